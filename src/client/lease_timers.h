/* SPDX-License-Identifier: MIT
 *
 * lease_timers.h - due times of leases, in order.
 */
#ifndef DIBS_CLIENT_LEASE_TIMERS_H
#define DIBS_CLIENT_LEASE_TIMERS_H

#include "net/event_loop.h"

/* Lives inside what is leased. */
struct dibs__lease_timer {
    RB_ENTRY(dibs__lease_timer) node; /* watchdog.mu */
    int64_t at; /* watchdog.mu: when to look at it; 0 = not in the tree */
};

RB_HEAD(dibs__lease_timer_tree, dibs__lease_timer);

struct dibs__lease_timers {
    struct dibs__loop *lp;
    void (*due)(struct dibs__lease_timers *timers, int64_t now); /* on io */
    struct dibs__timer timer;                                    /* io only */
    struct dibs__task poke;
    dibs__mutex mu;
    struct dibs__lease_timer_tree leases; /* mu */
    int64_t wakes_at;                     /* mu: when io looks by itself */
    bool poked;                           /* mu: poke is posted */
};

void dibs__lease_timers_init(struct dibs__lease_timers *timers);
void dibs__lease_timers_clear(struct dibs__lease_timers *timers);
/* Thread: io. No hook is called any more. */
void dibs__lease_timers_stop(struct dibs__lease_timers *timers)
    EXCLUDES(wd->mu);

/* Look at this one at that time, whatever was set before. Thread: any. */
void dibs__lease_timer_set(struct dibs__lease_timers *timers,
                           struct dibs__lease_timer *timer, int64_t at)
    EXCLUDES(wd->mu);
/* Thread: any. */
void dibs__lease_timer_cancel(struct dibs__lease_timers *timers,
                              struct dibs__lease_timer *timer) EXCLUDES(wd->mu);
/* Takes out the first that is due by `until`. take is called under the mutex,
 * so that the lease can neither go away nor be set meanwhile. False: none is
 * due. Thread: io. */
bool dibs__lease_timers_take_due(struct dibs__lease_timers *timers,
                                 int64_t until,
                                 void (*take)(struct dibs__lease_timer *timer,
                                              void *arg),
                                 void *arg) EXCLUDES(wd->mu);

#endif
