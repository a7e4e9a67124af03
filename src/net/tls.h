/* SPDX-License-Identifier: MIT
 *
 * tls.h - one TLS session over one socket: verification of the server, and I/O.
 *
 * Send and recv have the semantics of send(2) and recv(2), so that conn.c
 * treats a session like a socket. A library built without TLS has stubs here,
 * and refuses URLs that need TLS.
 */
#ifndef DIBS_NET_TLS_H
#define DIBS_NET_TLS_H

#include "net/url.h"

#include <stddef.h>
#include <sys/types.h>

struct dibs__tls;

enum dibs__tls_step {
    TLS_DONE,
    TLS_READ,  /* call again when the socket is readable */
    TLS_WRITE, /* call again when it is writable */
    TLS_CUT,   /* the connection was closed; a retry may succeed */
    TLS_FAILED /* a retry would fail, too */
};

#ifdef DIBS_TLS

/* The library is built with TLS. */
#define DIBS__TLS_BUILT true

/* For one connection to url->host. NULL: out of memory. Thread: any. */
struct dibs__tls *dibs__tls_new(const struct dibs__url *url);
/* Reads the certificate files of the URL; may block. Returns false with an
 * error in dibs__tls_why. Thread: any that may block. */
bool dibs__tls_load(struct dibs__tls *t);
/* Sends close_notify if the session was up, without blocking, and frees it.
 * Accepts NULL. */
void dibs__tls_free(struct dibs__tls *t);

/* Continues the handshake; to be called until TLS_DONE, TLS_CUT or TLS_FAILED.
 * Does not block. */
enum dibs__tls_step dibs__tls_handshake(struct dibs__tls *t, int fd);

/* As send(2) and recv(2). flags: 0 or MSG_DONTWAIT. Without it at most one
 * receive blocks; EAGAIN then means that only a part of a record arrived.
 * EPROTO: the error is in dibs__tls_why. The server cannot decrypt a record
 * that send did not take completely. */
ssize_t dibs__tls_send(struct dibs__tls *t, const void *data, size_t len,
                       int flags);
ssize_t dibs__tls_recv(struct dibs__tls *t, void *data, size_t len, int flags);

/* Returns whether the session buffers input that recv has not returned; poll
 * does not report it. */
bool dibs__tls_has_pending(const struct dibs__tls *t);
/* With `on`, recv returns only input buffered in the session and does not read
 * the socket. */
void dibs__tls_set_buffered_only(struct dibs__tls *t, bool on);
/* Returns whether no input, end of stream or error is pending. With `look` the
 * socket is checked, too. */
bool dibs__tls_has_no_input(struct dibs__tls *t, bool look);

/* Returns the error text, or "". */
const char *dibs__tls_why(const struct dibs__tls *t);

#else

#include <errno.h>

#define DIBS__TLS_BUILT false

static inline struct dibs__tls *dibs__tls_new(const struct dibs__url *url)
{
    (void)url;
    return NULL;
}

static inline bool dibs__tls_load(struct dibs__tls *t)
{
    (void)t;
    return false;
}

static inline void dibs__tls_free(struct dibs__tls *t)
{
    (void)t;
}

static inline enum dibs__tls_step dibs__tls_handshake(struct dibs__tls *t,
                                                      int fd)
{
    (void)t;
    (void)fd;
    return TLS_FAILED;
}

static inline ssize_t dibs__tls_send(struct dibs__tls *t, const void *data,
                                     size_t len, int flags)
{
    (void)t;
    (void)data;
    (void)len;
    (void)flags;
    errno = ENOTSUP;
    return -1;
}

static inline ssize_t dibs__tls_recv(struct dibs__tls *t, void *data,
                                     size_t len, int flags)
{
    return dibs__tls_send(t, data, len, flags);
}

static inline bool dibs__tls_has_pending(const struct dibs__tls *t)
{
    (void)t;
    return false;
}

static inline void dibs__tls_set_buffered_only(struct dibs__tls *t, bool on)
{
    (void)t;
    (void)on;
}

static inline bool dibs__tls_has_no_input(struct dibs__tls *t, bool look)
{
    (void)t;
    (void)look;
    return false;
}

static inline const char *dibs__tls_why(const struct dibs__tls *t)
{
    (void)t;
    return "built without TLS";
}

#endif
#endif
