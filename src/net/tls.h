/* SPDX-License-Identifier: MIT
 *
 * tls.h - one TLS session over one socket: who the server is, and bytes.
 *
 * Sending and receiving look like send(2) and recv(2), so that a connection
 * does with a session what it does with a bare socket. A library built without
 * TLS has none of this, and refuses the URLs that need it.
 */
#ifndef DIBS_NET_TLS_H
#define DIBS_NET_TLS_H

#include "net/url.h"

#include <stddef.h>
#include <sys/types.h>

struct dibs__tls;

enum dibs__tls_step {
    TLS_DONE,
    TLS_READ,  /* go on when the socket is readable */
    TLS_WRITE, /* or writable */
    TLS_CUT,   /* the connection ended; another time it may work */
    TLS_FAILED /* it would fail again */
};

#ifdef DIBS_TLS

/* Is it there? */
#define DIBS__TLS_BUILT true

/* For one connection to url->host. NULL: out of memory. Thread: any. */
struct dibs__tls *dibs__tls_new(const struct dibs__url *url);
/* Reads the files that the URL names; that may take a while. False:
 * dibs__tls_why says what is wrong. Thread: any that may wait. */
bool dibs__tls_load(struct dibs__tls *t);
/* Says good-bye if the session was up, without waiting. Accepts NULL. */
void dibs__tls_free(struct dibs__tls *t);

/* The handshake, to be called until it is done or has failed. Never waits. */
enum dibs__tls_step dibs__tls_shake(struct dibs__tls *t, int fd);

/* As send and recv. flags: 0 or MSG_DONTWAIT; without it, at most one receive
 * waits, and EAGAIN then says that what came was no more than a part. EPROTO:
 * dibs__tls_why says it. What send did not take cannot be read by anybody. */
ssize_t dibs__tls_send(struct dibs__tls *t, const void *data, size_t len,
                       int flags);
ssize_t dibs__tls_recv(struct dibs__tls *t, void *data, size_t len, int flags);

/* The session has bytes from the socket, whole or in part, that recv has not
 * given out: no poll will tell of them. */
bool dibs__tls_more(const struct dibs__tls *t);
/* While dry, recv gives out what the session has and leaves the socket alone.
 */
void dibs__tls_dry(struct dibs__tls *t, bool dry);
/* There is nothing to receive. look: ask the socket as well. */
bool dibs__tls_quiet(struct dibs__tls *t, bool look);

/* For people; "" if nothing went wrong. */
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

static inline enum dibs__tls_step dibs__tls_shake(struct dibs__tls *t, int fd)
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

static inline bool dibs__tls_more(const struct dibs__tls *t)
{
    (void)t;
    return false;
}

static inline void dibs__tls_dry(struct dibs__tls *t, bool dry)
{
    (void)t;
    (void)dry;
}

static inline bool dibs__tls_quiet(struct dibs__tls *t, bool look)
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
