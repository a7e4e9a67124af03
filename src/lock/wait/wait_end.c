/* SPDX-License-Identifier: MIT
 *
 * wait_end.c - calls that must not wait any longer.
 *
 * Thread  io.
 * Locks   the mutex of the wait.
 *
 * How     A call goes when its time is over, when it is canceled, or when the
 *         client closes. One that awaits an answer stays for the answer, which
 *         has a limit itself. The line remembers the first deadline, so most
 *         looks need not go through all waiters. wait_queue.c has the table of
 *         states.
 */
#include "lock/wait/care.h"

#define AFTER_MS 10 /* look again at one that could not be dealt with */

static struct dibs__waiter *swept_waiter(struct dibs__list *l)
{
    return DIBS_OF(l, struct dibs__waiter, link);
}

static bool line_closes(const struct dibs__wait_queue *w)
{
    return w->user->facts(w).closing;
}

static bool must_go(const struct dibs__waiter *wt, int64_t now, bool closing)
{
    return wt->canceled || closing || now >= wt->deadline;
}

bool dibs__wait_queue_expire_one(struct dibs__wait_queue *w,
                                 struct dibs__waiter *wt, int64_t now,
                                 bool never_closes,
                                 struct dibs__expired_waiters *out)
{
    dibs__assert_held(w->mu);
    if (!must_go(wt, now, line_closes(w) && !never_closes)) {
        dibs__care_deadline(w->care, wt->deadline);
        return false;
    }
    dibs__list_del(&wt->link);
    wt->state = WAITER_IDLE;
    w->behind--;
    dibs__list_add(&out->over, &wt->link);
    return true;
}

static void sweep_waiters(struct dibs__wait_queue *w, int64_t now,
                          struct dibs__expired_waiters *out) REQUIRES(*w->mu)
{
    bool closing = line_closes(w);

    for (struct dibs__list *l = w->waiters.next, *n; l != &w->waiters; l = n) {
        struct dibs__waiter *wt = swept_waiter(l);
        bool must = must_go(wt, now, closing);
        n = l->next;
        if (must && (wt->state == WAITER_PARKED ||
                     (wt->state == WAITER_HANDOFF_PENDING &&
                      w->user->withdraw(w, wt, &out->resume)))) {
            dibs__list_del(l);
            wt->state = WAITER_IDLE;
            dibs__list_add(&out->over, l);
            continue;
        }
        w->care->canceled |= wt->canceled;
        w->care->first_deadline = dibs__min(
            w->care->first_deadline, must ? now + AFTER_MS : wt->deadline);
    }
}

void dibs__wait_queue_collect_expired(struct dibs__wait_queue *w, int64_t now,
                                      struct dibs__expired_waiters *out)
{
    struct dibs__care *care = w->care;

    dibs__list_init(&out->over);
    dibs__list_init(&out->resume);
    if (!care ||
        (now < care->first_deadline && !care->canceled && !line_closes(w)))
        return;
    care->first_deadline = INT64_MAX;
    care->canceled = false;
    if (w->behind)
        w->user->sweep_behind(w, now, out);
    sweep_waiters(w, now, out);
}

void dibs__wait_queue_end(struct dibs__wait_queue *w,
                          struct dibs__expired_waiters *swept)
{
    dibs_err otherwise = line_closes(w) ? DIBS_ERR_CLOSED : DIBS_ERR_TIMEOUT;

    for (struct dibs__list *l; (l = dibs__list_pop(&swept->over));) {
        struct dibs__waiter *wt = swept_waiter(l);
        bool canceled = wt->canceled && otherwise != DIBS_ERR_CLOSED;
        w->user->end(wt, canceled ? DIBS_ERR_CANCELED : otherwise);
    }
    if (!dibs__list_empty(&swept->resume))
        w->user->resume(&swept->resume);
}

void dibs__wait_queue_expire(struct dibs__wait_queue *w)
{
    struct dibs__expired_waiters swept;

    dibs__lock(w->mu);
    dibs__wait_queue_collect_expired(w, dibs__now_ms(), &swept);
    dibs__unlock(w->mu);
    dibs__wait_queue_end(w, &swept);
}
