/* SPDX-License-Identifier: MIT
 *
 * queue.c - how a waiter stands in a queue that the server keeps.
 *
 * Thread  io; dibs__queue_stay also from the thread of a first attempt.
 * Locks   line.mu, shortly.
 *
 * How     Each waiter asks for itself: asking puts it into the queue and keeps
 *         it there. It listens to a channel of its own, on which it is called
 *         when it is its turn, asks again once it hears, and otherwise when the
 *         server's answer told it to: the first in line every two seconds,
 *         those far back seldom. Without ears (the subscription is not there,
 *         or not yet) it asks twice a second, so that nobody takes it for dead.
 *
 *         Deadlines and cancels are looked after by the line (wait.c); whoever
 *         must go then tells the server, so that the others need not wait for
 *         somebody who has left.
 *
 * Trouble A farewell that is not answered is left to the reaper, which goes on
 *         taking this owner out of the queue.
 */
#include "base/mem.h"
#include "lock/locks.h"
#include "lock/op.h"

#define DEAF_MS  500
#define AFTER_MS 10

/* A place in the queue. io only, once it is started. */
struct dibs__place {
    struct dibs__op *op;
    struct dibs__task start;
    struct dibs__timer timer;
    struct dibs__sub sub;
    int64_t next_ms; /* how long to sleep */
    bool called;     /* something happened while it asked */
    bool pending;    /* start is still to come */
};

static dibs_client *client_of(const struct dibs__place *pl)
{
    return dibs__line_client(pl->op->line);
}

/* False: it asks already, or another of the same owner does; or its time is
 * over, and the line is about to see that. */
static bool ask(struct dibs__place *pl)
{
    struct dibs__op *op = pl->op;

    dibs__lock(&op->line->mu);
    bool has = dibs__hold_of(op->line, op->owner) != NULL;
    if (has)
        dibs__list_del(&op->link);
    bool may = !has && dibs__now_ms() < op->deadline &&
               dibs__acquire_may_ask(op->line, op);
    dibs__unlock(&op->line->mu);
    if (has) {
        dibs__acquire_start_over(op); /* and this place is no more */
        return true;
    }
    if (!may)
        return false;
    dibs__timer_stop(&client_of(pl)->loop, &pl->timer);
    pl->called = false;
    op->direct = false;
    dibs__acquire_ask(op);
    return true;
}

/* Sleeps until it is called, or for as long as the answer said. */
static void rest(struct dibs__place *pl)
{
    int64_t ms = pl->called ? 0 : pl->next_ms;

    if (!dibs__pubsub_hears(&pl->sub))
        ms = dibs__min(ms, dibs__random_in(DEAF_MS / 2, DEAF_MS));
    dibs__timer_set(&client_of(pl)->loop, &pl->timer, dibs__now_ms() + ms);
}

static void heard(struct dibs__sub *sub)
{
    struct dibs__place *pl = DIBS_OF(sub, struct dibs__place, sub);

    if (!ask(pl))
        pl->called = true;
}

static void timed(struct dibs__timer *t)
{
    struct dibs__place *pl = DIBS_OF(t, struct dibs__place, timer);

    if (!ask(pl))
        dibs__timer_set(&client_of(pl)->loop, &pl->timer,
                        dibs__now_ms() + AFTER_MS);
}

static void listen_to(struct dibs__place *pl)
{
    const struct dibs__line *line = pl->op->line;
    char text[DIBS_OWNER_MAX];
    struct dibs__buf name = {0};

    size_t len = dibs__owner_text(line, pl->op->wire, text);
    dibs__buf_add(&name, line->channel, line->channel_len);
    dibs__buf_add(&name, ":", 1);
    dibs__buf_add(&name, text, len);
    if (dibs__buf_ok(&name))
        dibs__pubsub_listen(dibs__line_pubsub(line), &pl->sub, name.data,
                            name.len); /* no memory: it stays deaf */
    dibs__buf_clear(&name);
}

static void started(struct dibs__task *t)
{
    struct dibs__place *pl = DIBS_OF(t, struct dibs__place, start);

    pl->pending = false;
    if (!pl->op) { /* it ended before it began */
        dibs__free(pl);
        return;
    }
    listen_to(pl);
    rest(pl);
}

bool dibs__queue_stay(struct dibs__op *op, int64_t sleep_ms)
{
    struct dibs__place *pl = op->place;

    if (pl) { /* on io: it has been waiting before */
        pl->next_ms = sleep_ms;
        if (!pl->pending)
            rest(pl);
        return true;
    }
    pl = dibs__calloc(1, sizeof *pl);
    if (!pl)
        return false;
    op->place = pl;
    pl->op = op;
    pl->next_ms = sleep_ms;
    pl->pending = true;
    pl->start.run = started;
    pl->timer.fire = timed;
    pl->sub.hear = heard;
    dibs__loop_post(&dibs__line_client(op->line)->loop, &pl->start);
    return true;
}

void dibs__queue_end(struct dibs__op *op)
{
    struct dibs__place *pl = op->place;

    if (!pl)
        return;
    dibs__timer_stop(&client_of(pl)->loop, &pl->timer);
    dibs__pubsub_leave(&pl->sub);
    op->place = NULL;
    pl->op = NULL;
    if (!pl->pending)
        dibs__free(pl);
}

/* ---- farewell ---------------------------------------------------------- */

static void left(struct dibs__call *call, dibs_err err,
                 const struct dibs__reply *reply)
{
    struct dibs__op *op = DIBS_OF(call, struct dibs__op, call);

    if (reply && reply->type == REPLY_NUM && reply->num == 2)
        dibs__sweep(op->line, true);
    if (op->tainted || call->ghost || err != DIBS_OK)
        dibs__op_disown(op);
    dibs__op_finish(op, op->last);
}

void dibs__queue_leave(struct dibs__op *op, dibs_err why)
{
    dibs_client *c = dibs__line_client(op->line);

    op->last = why;
    op->direct = false;
    dibs__op_send(op, VERB_LEAVE, left, c->server.to.command_timeout_ms, 0);
}
