/* SPDX-License-Identifier: MIT
 *
 * route.h - destination of a command: a fixed server, or the slot map of a
 * cluster.
 */
#ifndef DIBS_CLIENT_TOPOLOGY_ROUTE_H
#define DIBS_CLIENT_TOPOLOGY_ROUTE_H

#include "base/error_text.h"
#include "net/event_loop.h"
#include "net/url.h"

struct dibs__server;

/* The slot map of a cluster, as command.c sees it: implemented by cluster.c, on
 * which command.c does not depend. io only, except where noted. */
struct dibs__slot_map {
    struct dibs__loop *lp;
    const struct dibs__url *url; /* of the cluster, for error texts */
    /* Returns the server of a slot, or NULL if unknown. Any thread. */
    struct dibs__server *(*find_server)(struct dibs__slot_map *sl, int slot);
    /* `from` replied with MOVED or ASK. Returns the server named there and sets
     * *slot and *ask. MOVED also updates the map. Returns NULL if the error is
     * malformed or out of memory. */
    struct dibs__server *(*redirect)(struct dibs__slot_map *sl,
                                     const struct dibs__server *from,
                                     const char *error, int *slot, bool *ask);
    /* The map may be stale: refreshes it, rate-limited. */
    void (*mark_stale)(struct dibs__slot_map *sl);
    /* A command waits for the map: fetches it, with back-off. */
    void (*need_map)(struct dibs__slot_map *sl);

    struct dibs__list waiting; /* commands whose slot has no known server */
    bool closing;              /* the client is closing */
    char last_error[DIBS__REASON_MAX]; /* last error, with the address */
};

/* Exactly one is not NULL. */
struct dibs__route {
    struct dibs__server *server;
    struct dibs__slot_map *slots;
};

#endif
