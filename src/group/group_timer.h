/* SPDX-License-Identifier: MIT
 *
 * group_timer.h - a one-shot timer of a group operation.
 *
 * A group has no loop of its own: the timer runs on the io thread of the first
 * member's client that is not closing.
 */
#ifndef DIBS_GROUP_GROUP_TIMER_H
#define DIBS_GROUP_GROUP_TIMER_H

#include "group/group.h"
#include "lock/core/shutdown_hook.h"

struct dibs__group_timer {
    struct dibs__shutdown_hook shutdown_hook; /* ends the timer when the client
                                                 closes */
    struct dibs__lock_manager *manager; /* const until on_expire is called, as
                                           are ms and both callbacks */
    struct dibs__task start_task;       /* owned by the loop */
    struct dibs__timer loop_timer;      /* io only */
    int64_t ms;
    void (*on_start)(struct dibs__group_timer *timer);
    void (*on_expire)(struct dibs__group_timer *timer);
};

/* Starts the timer. Calls on_start (unless NULL) and then, after `ms` or when
 * the client closes, on_expire; both on that client's io thread. on_expire may
 * start the timer again or free it. Returns false if all clients are closing;
 * nothing is called then. Thread: any, no mutex held. */
bool dibs__group_timer_start(struct dibs__group_timer *timer,
                             const struct dibs__group *g, int64_t ms,
                             void (*on_start)(struct dibs__group_timer *),
                             void (*on_expire)(struct dibs__group_timer *));
/* The timer expires in `ms` at the latest. Only between on_start and on_expire.
 * Thread: io of the timer's client. */
void dibs__group_timer_shorten(struct dibs__group_timer *timer, int64_t ms);

#endif
