/* SPDX-License-Identifier: MIT
 *
 * resolve.h - a host name looked up without anybody waiting for it.
 */
#ifndef DIBS_NET_RESOLVE_H
#define DIBS_NET_RESOLVE_H

#include "net/loop.h"

#include <netdb.h>

struct dibs__resolve;

/* found: the addresses, yours to freeaddrinfo; NULL if there are none, then
 * why says so. Called on io, never from inside start, not after cancel. */
typedef void (*dibs__resolve_fn)(void *arg, struct addrinfo *found,
                                 const char *why);

/* NULL: no memory or no thread. Thread: io. */
struct dibs__resolve *dibs__resolve_start(struct dibs__loop *lp,
                                          const char *host, int port,
                                          dibs__resolve_fn fn, void *arg);
/* The look-up may go on for a while, but nobody hears of it. Thread: io. */
void dibs__resolve_cancel(struct dibs__resolve *rs);

#endif
