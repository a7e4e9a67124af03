/* SPDX-License-Identifier: MIT
 *
 * group_timer.c - a time that an operation on several locks lets pass.
 *
 * Thread  any; the pause itself is on the io thread of one client.
 * Locks   none.
 */
#include "group/group_timer.h"

static void pause_end(struct dibs__group_timer *pause)
{
    struct dibs__lock_manager *manager = pause->lk;

    dibs__timer_stop(&manager->c->loop, &pause->timer);
    dibs__shutdown_hook_unregister(manager, &pause->work);
    pause->over(pause); /* it may begin anew, or be gone */
    atomic_fetch_sub(&manager->in_flight, 1);
}

static void pause_timed(struct dibs__timer *t)
{
    pause_end(DIBS_OF(t, struct dibs__group_timer, timer));
}

static void pause_closed(struct dibs__shutdown_hook *w)
{
    pause_end(DIBS_OF(w, struct dibs__group_timer, work));
}

static void pause_start(struct dibs__task *t)
{
    struct dibs__group_timer *pause =
        DIBS_OF(t, struct dibs__group_timer, start);

    dibs__shutdown_hook_register(pause->lk, &pause->work);
    dibs__timer_set(&pause->lk->c->loop, &pause->timer,
                    dibs__now_ms() + pause->ms);
    if (pause->begun)
        pause->begun(pause);
}

void dibs__group_timer_shorten(struct dibs__group_timer *pause, int64_t ms)
{
    int64_t at = dibs__now_ms() + ms;

    if (at < pause->timer.at)
        dibs__timer_set(&pause->lk->c->loop, &pause->timer, at);
}

bool dibs__group_timer_start(struct dibs__group_timer *pause,
                             const struct dibs__group *g, int64_t ms,
                             void (*begun)(struct dibs__group_timer *),
                             void (*over)(struct dibs__group_timer *))
{
    for (size_t i = 0; i < g->n; i++) {
        const struct dibs__member *m = &g->members[i];
        if (dibs__client_enter(m->c) != DIBS_OK)
            continue;
        *pause = (struct dibs__group_timer){
            .work = {.close = pause_closed, .over = pause_closed},
            .lk = m->entry->manager,
            .ms = ms,
            .begun = begun,
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
