/* SPDX-License-Identifier: MIT
 *
 * place.c - a waiter with a channel and timer of its own; the server keeps the
 * queue of waiters.
 *
 * Thread  io, but for the first reply, which may come on the caller's thread.
 * Locks   queue.mu.
 *
 * How     An acquire puts the waiter into the server's queue and keeps it
 *         there. A release wakes it on a channel of its own. A waiter whose
 *         subscription is not ready retries twice a second, so that the server
 *         does not evict it. The subscription of a waiter that got the lock is
 *         kept for some seconds (subscriber.c). If it was ready before the
 *         first acquire was sent, no message was missed, so no second acquire
 *         is needed, and a hand-off takes three commands. wait_queue.c handles
 *         deadlines and cancels.
 */
#include "lock/wait/place.h"

#include "base/mem.h"

#include <limits.h>

#define AFTER_MS 10  /* the waiter could not retry yet */
#define DEAF_MS  500 /* longest pause of a waiter that is not subscribed */

/* io only, once started. */
struct dibs__place {
    struct dibs__wait_queue *w;
    struct dibs__waiter *wt; /* NULL: the waiter left before the start */
    union {
        struct dibs__task start; /* while it is pending */
        struct dibs__timer timer;
    };
    struct dibs__subscription sub;
    int pause_ms;
    bool called;  /* a message came while its acquire was in flight */
    bool pending; /* start is in the inbox of io */
};

static struct dibs__loop *loop_of_place(const struct dibs__wait_queue *queue)
{
    return &queue->ops->info(queue).client->loop;
}

/* Returns false if an acquire of this waiter, or of its owner, is in flight. */
static bool place_ask(struct dibs__place *pl)
{
    struct dibs__wait_queue *queue = pl->w;
    struct dibs__waiter *waiter = pl->wt;

    dibs__lock(queue->mu);
    bool may = dibs__now_ms() < waiter->deadline &&
               queue->ops->may_retry(queue, waiter);
    dibs__unlock(queue->mu);
    if (!may)
        return false;
    dibs__timer_stop(loop_of_place(queue), &pl->timer);
    pl->called = false;
    queue->ops->retry(waiter);
    return true;
}

/* Until a message comes, or for pause_ms. */
static void place_pause(struct dibs__place *pl)
{
    int64_t ms = pl->called ? 0 : pl->pause_ms;

    if (!dibs__subscription_is_ready(&pl->sub))
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
    struct dibs__wait_queue_info facts = pl->w->ops->info(pl->w);
    pl->timer = (struct dibs__timer){.fire = place_timed};
    pl->w->ops->waiter_channel(pl->wt, &name);
    if (dibs__buf_ok(&name)) /* out of memory: no subscription */
        dibs__client_subscribe(facts.client, facts.slot, &pl->sub, name.data,
                               name.len);
    dibs__buf_clear(&name);
    place_pause(pl);
}

static bool place_new(struct dibs__wait_queue *queue,
                      struct dibs__waiter *waiter, int64_t pause_ms,
                      int64_t asked_ms)
{
    struct dibs__place *pl = dibs__calloc(1, sizeof *pl);

    if (!pl)
        return false;
    waiter->place = pl;
    pl->w = queue;
    pl->wt = waiter;
    pl->pause_ms = (int)dibs__min(pause_ms, INT_MAX);
    pl->pending = true;
    pl->start.run = place_started;
    pl->sub.on_message = waiter_called;
    pl->sub.asked_ms = asked_ms;
    dibs__loop_post(loop_of_place(queue), &pl->start);
    return true;
}

bool dibs__place_stay(struct dibs__wait_queue *queue,
                      struct dibs__waiter *waiter, int64_t pause_ms,
                      int64_t asked_ms)
{
    if (!waiter->place)
        return place_new(queue, waiter, pause_ms, asked_ms);
    /* Not the first reply, so this is io. */
    waiter->place->pause_ms = (int)dibs__min(pause_ms, INT_MAX);
    if (!waiter->place->pending)
        place_pause(waiter->place);
    return true;
}

void dibs__place_leave(struct dibs__wait_queue *queue,
                       struct dibs__waiter *waiter, bool back)
{
    struct dibs__place *pl =
        queue->retry_policy == RETRY_EACH ? waiter->place : NULL;

    if (!pl)
        return;
    if (!pl->pending)
        dibs__timer_stop(loop_of_place(queue), &pl->timer);
    if (back)
        dibs__unsubscribe_lazily(&pl->sub);
    else
        dibs__unsubscribe(&pl->sub);
    waiter->place = NULL;
    pl->wt = NULL;
    if (!pl->pending)
        dibs__free(pl);
}
