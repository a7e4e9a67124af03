/* SPDX-License-Identifier: MIT
 *
 * group_time.c - how an operation on several locks passes time.
 *
 * Thread  app for waiting; io for naps.
 * Locks   group.mu.
 *
 * How     A nap is kept by the loop of a member's client that is not closing;
 *         when that one closes, it is over at once, and what follows finds
 *         out. A sync caller waits for its result and, for a quorum, looks from
 *         time to time whether some server's answer is overdue; for an async
 *         call a nap does that.
 */
#include "lock/group.h"

#include <time.h>

#define AWAIT_MS 3600000

/* ---- naps -------------------------------------------------------------- */

static void nap_end(struct dibs__nap *nap)
{
    struct dibs__locks *lk = nap->lk;

    dibs__timer_stop(&lk->c->loop, &nap->timer);
    dibs__list_del(&nap->at);
    nap->over(nap);
    atomic_fetch_sub(&lk->afoot, 1);
}

static void nap_timed(struct dibs__timer *t)
{
    nap_end(DIBS_OF(t, struct dibs__nap, timer));
}

static void nap_start(struct dibs__task *t)
{
    struct dibs__nap *nap = DIBS_OF(t, struct dibs__nap, start);

    dibs__list_add(&nap->lk->naps, &nap->at);
    dibs__timer_set(&nap->lk->c->loop, &nap->timer, dibs__now_ms() + nap->ms);
}

void dibs__naps_end(struct dibs__locks *lk)
{
    while (!dibs__list_empty(&lk->naps))
        nap_end(DIBS_OF(lk->naps.next, struct dibs__nap, at));
}

static void nap_over(struct dibs__nap *nap)
{
    dibs__gop_run(DIBS_OF(nap, struct dibs__gop, nap));
}

/* On the loop of a client that is not closing; false: all are. */
static bool nap_begin(struct dibs__gop *gop, struct dibs__nap *nap, int64_t ms,
                      void (*over)(struct dibs__nap *))
{
    for (size_t i = 0; i < gop->g->n; i++) {
        const struct dibs__member *m = &gop->g->members[i];
        if (dibs__client_enter(m->c) != DIBS_OK)
            continue;
        *nap = (struct dibs__nap){.lk = m->line->locks,
                                  .ms = ms,
                                  .over = over,
                                  .start.run = nap_start,
                                  .timer.fire = nap_timed};
        atomic_fetch_add(&nap->lk->afoot, 1);
        dibs__loop_post(&m->c->loop, &nap->start);
        dibs__client_leave(m->c);
        return true;
    }
    return false;
}

void dibs__gop_nap(struct dibs__gop *gop, int64_t ms,
                   void (*step)(struct dibs__gop *))
{
    dibs__gop_open(gop, step);
    if (nap_begin(gop, &gop->nap, ms, nap_over))
        return;
    dibs__lock(&gop->g->mu);
    if (!gop->canceled)
        gop->canceled = DIBS_ERR_CLOSED; /* all of them */
    dibs__unlock(&gop->g->mu);
    dibs__gop_run(gop);
}

/* An async acquire of a quorum is looked at from time to time; for a sync one
 * its caller does that. */
static void watch_over(struct dibs__nap *nap)
{
    struct dibs__gop *gop = DIBS_OF(nap, struct dibs__gop, watch);

    dibs__quorum_late(gop);
    dibs__lock(&gop->g->mu);
    bool told = gop->told;
    dibs__unlock(&gop->g->mu);
    if (told || !nap_begin(gop, nap, gop->patience_ms, watch_over))
        dibs__gop_unref(gop);
}

void dibs__gop_watch(struct dibs__gop *gop)
{
    atomic_fetch_add(&gop->refs, 1);
    if (!nap_begin(gop, &gop->watch, gop->patience_ms, watch_over))
        dibs__gop_unref(gop);
}

/* Waits to be told. */
void dibs__gop_await(struct dibs__gop *gop)
{
    struct timespec until;

    for (;;) {
        int64_t ms = gop->patience_ms ? gop->patience_ms : AWAIT_MS;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += ms / 1000;
        until.tv_nsec += ms % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (sem_clockwait(&gop->done, CLOCK_MONOTONIC, &until) == 0)
            return;
        if (gop->patience_ms)
            dibs__quorum_late(gop);
    }
}
