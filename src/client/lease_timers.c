/* SPDX-License-Identifier: MIT
 *
 * lease_timers.c - due times of leases, in order.
 *
 * What is taken without a lease time belongs to its holder until released, or
 * until the holder dies. The server cannot see us die, so the key always
 * carries a lease, and its end is pushed back for as long as we live. Here is
 * kept when that is due, and when a lease is over by our own clock; what then
 * happens, the lock layer knows.
 *
 * Thread  set and unset from any, the rest io.
 * Locks   watchdog.mu.
 *
 * How     A tree of due times, and one timer on io for the first. Taking and
 *         releasing a lock must not wake io: a lease that goes away leaves the
 *         timer as it is, and a new one pokes io only if it is due before io
 *         would look anyway. In a loop of locking and unlocking that is once
 *         in a third of a lease.
 */
#include "client/lease_timers.h"

static int lease_order(const struct dibs__lease_timer *a,
                       const struct dibs__lease_timer *b)
{
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a < b ? -1 : a > b;
}

DIBS_TREE(dibs__lease_timer_tree, dibs__lease_timer, node, lease_order);

static void remove_it(struct dibs__lease_timers *timers,
                      struct dibs__lease_timer *timer) REQUIRES(wd->mu)
{
    if (timer->at)
        RB_REMOVE(dibs__lease_timer_tree, &timers->leases, timer);
    timer->at = 0;
}

void dibs__lease_timer_set(struct dibs__lease_timers *timers,
                           struct dibs__lease_timer *timer, int64_t at)
{
    dibs__lock(&timers->mu);
    remove_it(timers, timer);
    timer->at = dibs__max(at, 1);
    RB_INSERT(dibs__lease_timer_tree, &timers->leases, timer);
    bool poke = at < timers->wakes_at && !timers->poked;
    timers->wakes_at = dibs__min(timers->wakes_at, at);
    timers->poked |= poke;
    dibs__unlock(&timers->mu);
    if (poke)
        dibs__loop_post(timers->lp, &timers->poke);
}

void dibs__lease_timer_cancel(struct dibs__lease_timers *timers,
                              struct dibs__lease_timer *timer)
{
    dibs__lock(&timers->mu);
    remove_it(timers, timer);
    dibs__unlock(&timers->mu);
}

bool dibs__lease_timers_take_due(
    struct dibs__lease_timers *timers, int64_t until,
    void (*take)(struct dibs__lease_timer *timer, void *arg), void *arg)
{
    dibs__lock(&timers->mu);
    struct dibs__lease_timer *first =
        RB_MIN(dibs__lease_timer_tree, &timers->leases);
    bool due = first && first->at <= until;
    if (due) {
        take(first, arg);
        remove_it(timers, first);
    }
    dibs__unlock(&timers->mu);
    return due;
}

static void watchdog_timed(struct dibs__timer *t)
{
    struct dibs__lease_timers *timers =
        DIBS_OF(t, struct dibs__lease_timers, timer);

    timers->due(timers, dibs__now_ms());
    dibs__lock(&timers->mu);
    struct dibs__lease_timer *first =
        RB_MIN(dibs__lease_timer_tree, &timers->leases);
    int64_t at = first ? first->at : INT64_MAX;
    timers->wakes_at = at;
    dibs__unlock(&timers->mu);
    if (at < INT64_MAX)
        dibs__timer_set(timers->lp, &timers->timer, at);
}

/* The lease that poked may be gone by now. The timer is set all the same: it
 * saves the next one the poking. */
static void watchdog_poked(struct dibs__task *t)
{
    struct dibs__lease_timers *timers =
        DIBS_OF(t, struct dibs__lease_timers, poke);

    dibs__lock(&timers->mu);
    timers->poked = false;
    int64_t at = timers->wakes_at;
    dibs__unlock(&timers->mu);
    if (timers->due)
        dibs__timer_set(timers->lp, &timers->timer, at);
}

void dibs__lease_timers_init(struct dibs__lease_timers *timers)
{
    dibs__mutex_init(&timers->mu, RANK_WATCHDOG);
    RB_INIT(&timers->leases);
    timers->wakes_at = INT64_MAX;
    timers->timer.fire = watchdog_timed;
    timers->poke.run = watchdog_poked;
}

void dibs__lease_timers_stop(struct dibs__lease_timers *timers)
{
    timers->due = NULL;
    dibs__timer_stop(timers->lp, &timers->timer);
    dibs__lock(&timers->mu);
    timers->wakes_at = INT64_MIN; /* nobody needs to poke any more */
    dibs__unlock(&timers->mu);
}

void dibs__lease_timers_clear(struct dibs__lease_timers *timers)
{
    dibs__mutex_clear(&timers->mu);
}
