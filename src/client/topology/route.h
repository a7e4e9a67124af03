/* SPDX-License-Identifier: MIT
 *
 * route.h - where a call goes: to one server, or to the node that has its slot.
 */
#ifndef DIBS_CLIENT_TOPOLOGY_ROUTE_H
#define DIBS_CLIENT_TOPOLOGY_ROUTE_H

#include "base/error_text.h"
#include "net/event_loop.h"
#include "net/url.h"

struct dibs__server;

/* Which server of a cluster has which slot, and the calls that wait to know.
 * The functions are the cluster's; io, where nothing else is said. */
struct dibs__slot_map {
    struct dibs__loop *lp;
    const struct dibs__url *url; /* of the cluster, for words */
    /* Who has it; NULL: nobody is known to. Thread: any. */
    struct dibs__server *(*find)(struct dibs__slot_map *sl, int slot);
    /* `from` answered MOVED or ASK. Who it says has the slot, and the slot;
     * NULL: that makes no sense, or no memory. MOVED is remembered. */
    struct dibs__server *(*redirect)(struct dibs__slot_map *sl,
                                     const struct dibs__server *from,
                                     const char *error, int *slot, bool *ask);
    /* The map may be old; a call waits for one. */
    void (*doubt)(struct dibs__slot_map *sl);
    void (*wanted)(struct dibs__slot_map *sl);

    struct dibs__list waiting;  /* io only: calls */
    bool closing;               /* io only */
    char why[DIBS__REASON_MAX]; /* io only: the last trouble, in words */
};

/* One of the two is there. */
struct dibs__route {
    struct dibs__server *server;
    struct dibs__slot_map *slots;
};

#endif
