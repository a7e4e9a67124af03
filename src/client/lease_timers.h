/* SPDX-License-Identifier: MIT
 *
 * lease_timers.h - timers of leases, ordered by due time.
 */
#ifndef DIBS_CLIENT_LEASE_TIMERS_H
#define DIBS_CLIENT_LEASE_TIMERS_H

#include "net/event_loop.h"

/* Embedded in a hold. */
struct dibs__lease_timer {
    RB_ENTRY(dibs__lease_timer) node; /* lease_timers.mu */
    int64_t at; /* lease_timers.mu: due time; 0: not in the tree */
};

RB_HEAD(dibs__lease_timer_tree, dibs__lease_timer);

struct dibs__lease_timers {
    struct dibs__loop *lp;
    /* Called on io when the first timer is due; takes the due timers with
     * dibs__lease_timers_take_due. NULL after stop. */
    void (*due)(struct dibs__lease_timers *timers, int64_t now);
    struct dibs__timer timer;     /* io only: set to next_wake */
    struct dibs__task rearm_task; /* sets `timer` to an earlier time */
    dibs__mutex mu;
    struct dibs__lease_timer_tree leases; /* mu */
    int64_t next_wake;                    /* mu: when io calls `due` next */
    bool rearm_posted;                    /* mu */
};

void dibs__lease_timers_init(struct dibs__lease_timers *timers);
void dibs__lease_timers_clear(struct dibs__lease_timers *timers);
/* After stop `due` is not called any more. Thread: io. */
void dibs__lease_timers_stop(struct dibs__lease_timers *timers)
    EXCLUDES(timers->mu);

/* Sets the due time of this timer and replaces an earlier one. Thread: any. */
void dibs__lease_timer_set(struct dibs__lease_timers *timers,
                           struct dibs__lease_timer *timer, int64_t at)
    EXCLUDES(timers->mu);
/* Idempotent. Thread: any. */
void dibs__lease_timer_cancel(struct dibs__lease_timers *timers,
                              struct dibs__lease_timer *timer)
    EXCLUDES(timers->mu);
/* Removes the first timer that is due by `until`. take is called under
 * lease_timers.mu, so the timer can be neither freed nor set during the call.
 * Returns false if none is due. Thread: io. */
bool dibs__lease_timers_take_due(struct dibs__lease_timers *timers,
                                 int64_t until,
                                 void (*take)(struct dibs__lease_timer *timer,
                                              void *arg),
                                 void *arg) EXCLUDES(timers->mu);

#endif
