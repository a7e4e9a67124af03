/* SPDX-License-Identifier: MIT
 *
 * group_timer.c - a one-shot timer of a group operation.
 *
 * Thread  any; the timer itself is on the io thread of one client.
 * Locks   none.
 *
 * A started timer counts as in flight on its client, so that the client cannot
 * be freed before on_expire has returned.
 */
#include "group/group_timer.h"

static void timer_expire(struct dibs__group_timer *timer)
{
    struct dibs__lock_manager *manager = timer->manager;

    dibs__timer_stop(&manager->c->loop, &timer->loop_timer);
    dibs__shutdown_hook_unregister(manager, &timer->shutdown_hook);
    timer->on_expire(timer); /* may start it again or free it */
    atomic_fetch_sub(&manager->in_flight, 1);
}

static void on_loop_timer(struct dibs__timer *t)
{
    timer_expire(DIBS_OF(t, struct dibs__group_timer, loop_timer));
}

static void timer_client_shutdown(struct dibs__shutdown_hook *hook)
{
    timer_expire(DIBS_OF(hook, struct dibs__group_timer, shutdown_hook));
}

static void timer_start_task(struct dibs__task *t)
{
    struct dibs__group_timer *timer =
        DIBS_OF(t, struct dibs__group_timer, start_task);

    dibs__shutdown_hook_register(timer->manager, &timer->shutdown_hook);
    dibs__timer_set(&timer->manager->c->loop, &timer->loop_timer,
                    dibs__now_ms() + timer->ms);
    if (timer->on_start)
        timer->on_start(timer);
}

void dibs__group_timer_shorten(struct dibs__group_timer *timer, int64_t ms)
{
    int64_t at = dibs__now_ms() + ms;

    if (at < timer->loop_timer.at)
        dibs__timer_set(&timer->manager->c->loop, &timer->loop_timer, at);
}

bool dibs__group_timer_start(struct dibs__group_timer *timer,
                             const struct dibs__group *g, int64_t ms,
                             void (*on_start)(struct dibs__group_timer *),
                             void (*on_expire)(struct dibs__group_timer *))
{
    for (size_t i = 0; i < g->n; i++) {
        const struct dibs__member *m = &g->members[i];
        if (dibs__client_enter(m->c) != DIBS_OK)
            continue;
        *timer = (struct dibs__group_timer){
            .shutdown_hook = {.on_close = timer_client_shutdown,
                              .on_close_timeout = timer_client_shutdown},
            .manager = m->entry->manager,
            .ms = ms,
            .on_start = on_start,
            .on_expire = on_expire,
            .start_task.run = timer_start_task,
            .loop_timer.fire = on_loop_timer};
        atomic_fetch_add(&timer->manager->in_flight, 1);
        dibs__loop_post(&m->c->loop, &timer->start_task);
        dibs__client_leave(m->c);
        return true;
    }
    return false;
}
