/* SPDX-License-Identifier: MIT
 *
 * place.c - a waiter that asks for itself: the server keeps a queue.
 *
 * Thread  io, but for the first answer, which may come on the caller's thread.
 * Locks   the mutex of the wait.
 *
 * How     Asking puts the waiter into the server's queue and keeps it there. It
 *         is called on a channel of its own. A waiter that cannot hear yet asks
 *         twice a second, so that the server does not take it for dead. The
 *         channel of a waiter that got in is kept for some seconds
 * (subscriber.c). If it was ready before the first question was sent, nothing
 * was missed, and there is no second question: a change of hands is three
 *         commands. Deadlines and cancels are the line's (wait_queue.c).
 */
#include "lock/wait/place.h"

#include "base/mem.h"

#include <limits.h>

#define AFTER_MS 10  /* look again at one that could not be dealt with */
#define DEAF_MS  500 /* longest pause of a waiter that cannot hear */

/* Its own channel and timer. io only, once it has started. */
struct dibs__place {
    struct dibs__wait_queue *w;
    struct dibs__waiter *wt; /* NULL: it ended before this started */
    union {
        struct dibs__task start; /* while it is pending */
        struct dibs__timer timer;
    };
    struct dibs__subscription sub;
    int pause_ms;
    bool called;  /* something happened while it asked */
    bool pending; /* start is still to come */
};

static struct dibs__loop *loop_of_place(const struct dibs__wait_queue *w)
{
    return &w->user->facts(w).c->loop;
}

/* False: it asks already, or another call of the same owner does. */
static bool place_ask(struct dibs__place *pl)
{
    struct dibs__wait_queue *w = pl->w;
    struct dibs__waiter *wt = pl->wt;

    dibs__lock(w->mu);
    bool may = dibs__now_ms() < wt->deadline && w->user->may_ask(w, wt);
    dibs__unlock(w->mu);
    if (!may)
        return false;
    dibs__timer_stop(loop_of_place(w), &pl->timer);
    pl->called = false;
    w->user->ask(wt);
    return true;
}

/* Pauses until it is called, or for as long as the answer said. */
static void place_pause(struct dibs__place *pl)
{
    int64_t ms = pl->called ? 0 : pl->pause_ms;

    if (!dibs__is_subscribed(&pl->sub))
        ms = dibs__min(ms, dibs__random_in(DEAF_MS / 2, DEAF_MS));
    dibs__timer_set(loop_of_place(pl->w), &pl->timer, dibs__now_ms() + ms);
}

static void waiter_called(struct dibs__subscription *sub, char said)
{
    struct dibs__place *pl = DIBS_OF(sub, struct dibs__place, sub);

    (void)said;
    if (!place_ask(pl))
        pl->called = true;
}

static void place_timed(struct dibs__timer *t)
{
    struct dibs__place *pl = DIBS_OF(t, struct dibs__place, timer);

    if (!place_ask(pl))
        dibs__timer_set(loop_of_place(pl->w), &pl->timer,
                        dibs__now_ms() + AFTER_MS);
}

static void place_started(struct dibs__task *t)
{
    struct dibs__place *pl = DIBS_OF(t, struct dibs__place, start);
    struct dibs__buf name = {0};

    pl->pending = false;
    if (!pl->wt) {
        dibs__free(pl);
        return;
    }
    struct dibs__wait_queue_info facts = pl->w->user->facts(pl->w);
    pl->timer = (struct dibs__timer){.fire = place_timed};
    pl->w->user->own_channel(pl->wt, &name);
    if (dibs__buf_ok(&name)) /* no memory: it cannot hear */
        dibs__client_subscribe(facts.c, facts.slot, &pl->sub, name.data,
                               name.len);
    dibs__buf_clear(&name);
    place_pause(pl);
}

static bool place_new(struct dibs__wait_queue *w, struct dibs__waiter *wt,
                      int64_t pause_ms, int64_t asked_ms)
{
    struct dibs__place *pl = dibs__calloc(1, sizeof *pl);

    if (!pl)
        return false;
    wt->place = pl;
    pl->w = w;
    pl->wt = wt;
    pl->pause_ms = (int)dibs__min(pause_ms, INT_MAX);
    pl->pending = true;
    pl->start.run = place_started;
    pl->sub.hear = waiter_called;
    pl->sub.asked_ms = asked_ms;
    dibs__loop_post(loop_of_place(w), &pl->start);
    return true;
}

bool dibs__place_stay(struct dibs__wait_queue *w, struct dibs__waiter *wt,
                      int64_t pause_ms, int64_t asked_ms)
{
    if (!wt->place)
        return place_new(w, wt, pause_ms, asked_ms);
    /* It has waited before, so this is io. */
    wt->place->pause_ms = (int)dibs__min(pause_ms, INT_MAX);
    if (!wt->place->pending)
        place_pause(wt->place);
    return true;
}

void dibs__place_leave(struct dibs__wait_queue *w, struct dibs__waiter *wt,
                       bool back)
{
    struct dibs__place *pl = w->asks == RETRY_EACH ? wt->place : NULL;

    if (!pl)
        return;
    if (!pl->pending)
        dibs__timer_stop(loop_of_place(w), &pl->timer);
    if (back)
        dibs__unsubscribe_lazily(&pl->sub);
    else
        dibs__unsubscribe(&pl->sub);
    wt->place = NULL;
    pl->wt = NULL;
    if (!pl->pending)
        dibs__free(pl);
}
