/* SPDX-License-Identifier: MIT
 *
 * lease_timers.c - timers of leases, ordered by due time.
 *
 * A hold without a lease time lasts until it is released or its process dies.
 * The server cannot detect that the process died, so the key always has an
 * expiry, which the client renews while it lives. A timer here is due when a
 * renewal is due, or when a lease ends by the local clock; the lock layer
 * handles both.
 *
 * Thread  set and cancel from any, the rest io.
 * Locks   lease_timers.mu.
 *
 * How     A tree of due times, and one timer on io for the first. Acquiring and
 *         releasing a lock must not wake io: cancel leaves the io timer as it
 *         is, and set posts a task to io only if the lease is due before the io
 *         timer. In a loop of acquire and release that is once in a third of a
 *         lease.
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

static void timer_remove(struct dibs__lease_timers *timers,
                         struct dibs__lease_timer *timer) REQUIRES(timers->mu)
{
    if (timer->at)
        RB_REMOVE(dibs__lease_timer_tree, &timers->leases, timer);
    timer->at = 0;
}

void dibs__lease_timer_set(struct dibs__lease_timers *timers,
                           struct dibs__lease_timer *timer, int64_t at)
{
    dibs__lock(&timers->mu);
    timer_remove(timers, timer);
    timer->at = dibs__max(at, 1);
    RB_INSERT(dibs__lease_timer_tree, &timers->leases, timer);
    bool post = at < timers->next_wake && !timers->rearm_posted;
    timers->next_wake = dibs__min(timers->next_wake, at);
    timers->rearm_posted |= post;
    dibs__unlock(&timers->mu);
    if (post)
        dibs__loop_post(timers->lp, &timers->rearm_task);
}

void dibs__lease_timer_cancel(struct dibs__lease_timers *timers,
                              struct dibs__lease_timer *timer)
{
    dibs__lock(&timers->mu);
    timer_remove(timers, timer);
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
        timer_remove(timers, first);
    }
    dibs__unlock(&timers->mu);
    return due;
}

static void on_io_timer(struct dibs__timer *t)
{
    struct dibs__lease_timers *timers =
        DIBS_OF(t, struct dibs__lease_timers, timer);

    timers->due(timers, dibs__now_ms());
    dibs__lock(&timers->mu);
    struct dibs__lease_timer *first =
        RB_MIN(dibs__lease_timer_tree, &timers->leases);
    int64_t at = first ? first->at : INT64_MAX;
    timers->next_wake = at;
    dibs__unlock(&timers->mu);
    if (at < INT64_MAX)
        dibs__timer_set(timers->lp, &timers->timer, at);
}

/* The lease that caused the task may be canceled by now. The timer is set all
 * the same: the next lease then need not post a task. */
static void on_rearm(struct dibs__task *t)
{
    struct dibs__lease_timers *timers =
        DIBS_OF(t, struct dibs__lease_timers, rearm_task);

    dibs__lock(&timers->mu);
    timers->rearm_posted = false;
    int64_t at = timers->next_wake;
    dibs__unlock(&timers->mu);
    if (timers->due)
        dibs__timer_set(timers->lp, &timers->timer, at);
}

void dibs__lease_timers_init(struct dibs__lease_timers *timers)
{
    dibs__mutex_init(&timers->mu, RANK_LEASE_TIMERS);
    RB_INIT(&timers->leases);
    timers->next_wake = INT64_MAX;
    timers->timer.fire = on_io_timer;
    timers->rearm_task.run = on_rearm;
}

void dibs__lease_timers_stop(struct dibs__lease_timers *timers)
{
    timers->due = NULL;
    dibs__timer_stop(timers->lp, &timers->timer);
    dibs__lock(&timers->mu);
    timers->next_wake = INT64_MIN; /* set posts no task any more */
    dibs__unlock(&timers->mu);
}

void dibs__lease_timers_clear(struct dibs__lease_timers *timers)
{
    dibs__mutex_clear(&timers->mu);
}
