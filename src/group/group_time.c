/* SPDX-License-Identifier: MIT
 *
 * group_time.c - how an operation on several locks passes time.
 *
 * Thread  app for waiting; io for pauses.
 * Locks   group.mu.
 *
 * How     A pause is kept by the loop of a member's client that is not closing;
 *         when that one closes, it is over at once, and what follows finds
 *         out. A sync caller waits for its result and, for a quorum, looks from
 *         time to time whether some server's answer is overdue; for an async
 *         call a pause does that.
 */
#include "group/group.h"

#include <time.h>

#define AWAIT_MS 3600000

/* ---- pauses -------------------------------------------------------------- */

static void pause_end(struct dibs__pause *pause)
{
    struct dibs__locks *lk = pause->lk;

    dibs__timer_stop(&lk->c->loop, &pause->timer);
    dibs__list_del(&pause->at);
    pause->over(pause);
    atomic_fetch_sub(&lk->in_flight, 1);
}

static void pause_timed(struct dibs__timer *t)
{
    pause_end(DIBS_OF(t, struct dibs__pause, timer));
}

static void pause_start(struct dibs__task *t)
{
    struct dibs__pause *pause = DIBS_OF(t, struct dibs__pause, start);

    dibs__list_add(&pause->lk->pauses, &pause->at);
    dibs__timer_set(&pause->lk->c->loop, &pause->timer,
                    dibs__now_ms() + pause->ms);
}

void dibs__pauses_end(struct dibs__locks *lk)
{
    while (!dibs__list_empty(&lk->pauses))
        pause_end(DIBS_OF(lk->pauses.next, struct dibs__pause, at));
}

static void pause_over(struct dibs__pause *pause)
{
    dibs__group_op_run(DIBS_OF(pause, struct dibs__group_op, pause));
}

/* On the loop of a client that is not closing; false: all are. */
static bool pause_begin(struct dibs__group_op *group_op,
                        struct dibs__pause *pause, int64_t ms,
                        void (*over)(struct dibs__pause *))
{
    for (size_t i = 0; i < group_op->g->n; i++) {
        const struct dibs__member *m = &group_op->g->members[i];
        if (dibs__client_enter(m->c) != DIBS_OK)
            continue;
        *pause = (struct dibs__pause){.lk = m->line->locks,
                                      .ms = ms,
                                      .over = over,
                                      .start.run = pause_start,
                                      .timer.fire = pause_timed};
        atomic_fetch_add(&pause->lk->in_flight, 1);
        dibs__loop_post(&m->c->loop, &pause->start);
        dibs__client_leave(m->c);
        return true;
    }
    return false;
}

void dibs__group_op_pause(struct dibs__group_op *group_op, int64_t ms,
                          void (*step)(struct dibs__group_op *))
{
    dibs__group_op_open(group_op, step);
    if (pause_begin(group_op, &group_op->pause, ms, pause_over))
        return;
    dibs__lock(&group_op->g->mu);
    if (!group_op->canceled)
        group_op->canceled = DIBS_ERR_CLOSED; /* all of them */
    dibs__unlock(&group_op->g->mu);
    dibs__group_op_run(group_op);
}

/* An async acquire of a quorum is looked at from time to time; for a sync one
 * its caller does that. */
static void watch_over(struct dibs__pause *pause)
{
    struct dibs__group_op *group_op =
        DIBS_OF(pause, struct dibs__group_op, watch);

    dibs__quorum_late(group_op);
    dibs__lock(&group_op->g->mu);
    bool told = group_op->told;
    dibs__unlock(&group_op->g->mu);
    if (told ||
        !pause_begin(group_op, pause, group_op->patience_ms, watch_over))
        dibs__group_op_unref(group_op);
}

void dibs__group_op_watch(struct dibs__group_op *group_op)
{
    atomic_fetch_add(&group_op->refs, 1);
    if (!pause_begin(group_op, &group_op->watch, group_op->patience_ms,
                     watch_over))
        dibs__group_op_unref(group_op);
}

/* Waits to be told. */
void dibs__group_op_await(struct dibs__group_op *group_op)
{
    struct timespec until;

    for (;;) {
        int64_t ms = group_op->patience_ms ? group_op->patience_ms : AWAIT_MS;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += ms / 1000;
        until.tv_nsec += ms % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (sem_clockwait(&group_op->done, CLOCK_MONOTONIC, &until) == 0)
            return;
        if (group_op->patience_ms)
            dibs__quorum_late(group_op);
    }
}
