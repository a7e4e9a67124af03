/* SPDX-License-Identifier: MIT
 *
 * resolve.h - a host name looked up without anybody waiting for it.
 */
#ifndef DIBS_NET_RESOLVE_H
#define DIBS_NET_RESOLVE_H

#include "net/event_loop.h"
#include "net/tls.h"

#include <netdb.h>

struct dibs__resolve;

struct dibs__resolved {
    struct addrinfo *found; /* yours to freeaddrinfo; NULL: there are none */
    struct dibs__tls *tls;  /* yours to free; ready if the URL wants it */
    dibs_err err;           /* without addresses: what kind of trouble */
    const char *why;        /* the same for people; valid while tls is */
};

/* Called on io, never from inside start, not after cancel. */
typedef void (*dibs__resolve_fn)(void *arg, const struct dibs__resolved *r);

/* Looks up the host of url, which needs not outlive the call, and makes ready
 * what TLS needs. NULL: no memory or no thread. Thread: io. */
struct dibs__resolve *dibs__resolve_start(struct dibs__loop *lp,
                                          const struct dibs__url *url,
                                          dibs__resolve_fn fn, void *arg);
/* The look-up may go on for a while, but nobody hears of it. Thread: io. */
void dibs__resolve_cancel(struct dibs__resolve *rs);

#endif
