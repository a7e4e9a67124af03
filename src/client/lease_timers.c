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

static void remove_it(struct dibs__lease_timers *wd,
                      struct dibs__lease_timer *le) REQUIRES(wd->mu)
{
    if (le->at)
        RB_REMOVE(dibs__lease_timer_tree, &wd->leases, le);
    le->at = 0;
}

void dibs__lease_timer_set(struct dibs__lease_timers *wd,
                           struct dibs__lease_timer *le, int64_t at)
{
    dibs__lock(&wd->mu);
    remove_it(wd, le);
    le->at = dibs__max(at, 1);
    RB_INSERT(dibs__lease_timer_tree, &wd->leases, le);
    bool poke = at < wd->wakes_at && !wd->poked;
    wd->wakes_at = dibs__min(wd->wakes_at, at);
    wd->poked |= poke;
    dibs__unlock(&wd->mu);
    if (poke)
        dibs__loop_post(wd->lp, &wd->poke);
}

void dibs__lease_timer_cancel(struct dibs__lease_timers *wd,
                              struct dibs__lease_timer *le)
{
    dibs__lock(&wd->mu);
    remove_it(wd, le);
    dibs__unlock(&wd->mu);
}

bool dibs__lease_timers_take_due(struct dibs__lease_timers *wd, int64_t until,
                                 void (*take)(struct dibs__lease_timer *le,
                                              void *arg),
                                 void *arg)
{
    dibs__lock(&wd->mu);
    struct dibs__lease_timer *first =
        RB_MIN(dibs__lease_timer_tree, &wd->leases);
    bool due = first && first->at <= until;
    if (due) {
        take(first, arg);
        remove_it(wd, first);
    }
    dibs__unlock(&wd->mu);
    return due;
}

static void watchdog_timed(struct dibs__timer *t)
{
    struct dibs__lease_timers *wd =
        DIBS_OF(t, struct dibs__lease_timers, timer);

    wd->due(wd, dibs__now_ms());
    dibs__lock(&wd->mu);
    struct dibs__lease_timer *first =
        RB_MIN(dibs__lease_timer_tree, &wd->leases);
    int64_t at = first ? first->at : INT64_MAX;
    wd->wakes_at = at;
    dibs__unlock(&wd->mu);
    if (at < INT64_MAX)
        dibs__timer_set(wd->lp, &wd->timer, at);
}

/* The lease that poked may be gone by now. The timer is set all the same: it
 * saves the next one the poking. */
static void watchdog_poked(struct dibs__task *t)
{
    struct dibs__lease_timers *wd = DIBS_OF(t, struct dibs__lease_timers, poke);

    dibs__lock(&wd->mu);
    wd->poked = false;
    int64_t at = wd->wakes_at;
    dibs__unlock(&wd->mu);
    if (wd->due)
        dibs__timer_set(wd->lp, &wd->timer, at);
}

void dibs__lease_timers_init(struct dibs__lease_timers *wd)
{
    dibs__mutex_init(&wd->mu, RANK_WATCHDOG);
    RB_INIT(&wd->leases);
    wd->wakes_at = INT64_MAX;
    wd->timer.fire = watchdog_timed;
    wd->poke.run = watchdog_poked;
}

void dibs__lease_timers_stop(struct dibs__lease_timers *wd)
{
    wd->due = NULL;
    dibs__timer_stop(wd->lp, &wd->timer);
    dibs__lock(&wd->mu);
    wd->wakes_at = INT64_MIN; /* nobody needs to poke any more */
    dibs__unlock(&wd->mu);
}

void dibs__lease_timers_clear(struct dibs__lease_timers *wd)
{
    dibs__mutex_clear(&wd->mu);
}
