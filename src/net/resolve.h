/* SPDX-License-Identifier: MIT
 *
 * resolve.h - asynchronous look-up of a host name.
 */
#ifndef DIBS_NET_RESOLVE_H
#define DIBS_NET_RESOLVE_H

#include "net/event_loop.h"
#include "net/tls.h"

#include <netdb.h>

struct dibs__resolve;

struct dibs__resolved {
    struct addrinfo *found; /* owned by the callback; NULL: it failed */
    struct dibs__tls *tls;  /* owned by the callback; NULL: no TLS */
    dibs_err err;           /* if it failed */
    const char *why;        /* error text; valid during the callback */
};

/* Called on io, not from inside start, and not after cancel. */
typedef void (*dibs__resolve_fn)(void *arg, const struct dibs__resolved *r);

/* Looks up the host of url and loads its TLS files. url may be freed after the
 * call. NULL: no memory or no thread. Thread: io. */
struct dibs__resolve *dibs__resolve_start(struct dibs__loop *lp,
                                          const struct dibs__url *url,
                                          dibs__resolve_fn fn, void *arg);
/* fn is not called any more. The look-up itself may continue on its thread.
 * Thread: io. */
void dibs__resolve_cancel(struct dibs__resolve *rs);

#endif
