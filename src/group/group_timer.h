/* SPDX-License-Identifier: MIT
 *
 * group_timer.h - a time that an operation on several locks lets pass.
 */
#ifndef DIBS_GROUP_GROUP_TIMER_H
#define DIBS_GROUP_GROUP_TIMER_H

#include "group/group.h"
#include "lock/core/shutdown_hook.h"

struct dibs__group_timer {
    struct dibs__shutdown_hook work; /* see there */
    struct dibs__lock_manager *lk;   /* const from begin to over, as are ms and
                               the   two hooks */
    struct dibs__task start;         /* the loop's */
    struct dibs__timer timer;        /* io only */
    int64_t ms;
    void (*begun)(struct dibs__group_timer *pause);
    void (*over)(struct dibs__group_timer *pause);
};

/* Calls over on the loop of a member's client that is not closing: after so
 * many ms, or when that client closes. Before that, there as well, begun, if it
 * is not NULL. False: all are closing. Thread: any, no mutex held. */
bool dibs__group_timer_start(struct dibs__group_timer *pause,
                             const struct dibs__group *g, int64_t ms,
                             void (*begun)(struct dibs__group_timer *),
                             void (*over)(struct dibs__group_timer *));
/* It ends in so many ms, if not sooner. From begun on until over. Thread: that
 * of the loop. */
void dibs__group_timer_shorten(struct dibs__group_timer *pause, int64_t ms);

#endif
