/* SPDX-License-Identifier: MIT
 *
 * op.c - one operation on a lock: sent, finished, resumed.
 *
 * Thread  app, io.
 * Locks   none; what needs line.mu says so.
 */
#include "lock/op.h"

#include "base/mem.h"
#include "lock/batch.h"
#include "lock/locks.h"

#include <stdarg.h>
#include <stdio.h>

static void op_write(struct dibs__call *call, struct dibs__buf *out, bool whole)
{
    struct dibs__op *op = DIBS_OF(call, struct dibs__op, call);

    op->line->kind->write(op->verb, &op->ask, out, whole);
}

/* ---- why it failed ----------------------------------------------------- */

void dibs__op_explain(struct dibs__op *op, dibs_err err, const char *why)
{
    dibs__free(op->why);
    op->why = dibs__reason_new(err, why);
}

void dibs__op_explain_here(struct dibs__op *op, dibs_err err, const char *fmt,
                           ...)
{
    char text[DIBS__REASON_MAX], why[DIBS__REASON_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    dibs__client_text(dibs__line_client(op->line), op->line->slot, text, why);
    dibs__op_explain(op, err, why);
}

static void call_explained(struct dibs__call *call, dibs_err err,
                           const char *why)
{
    struct dibs__op *op = DIBS_OF(call, struct dibs__op, call);
    bool undoing = op->verb == VERB_LEAVE ||
                   (op->verb == VERB_RELEASE && op->run == dibs__acquire_run);

    if (!undoing) /* then it has failed already, for another reason */
        dibs__op_explain(op, err, why);
}

/* Something is wrong at the server, or on the way to it. */
static bool is_about_server(dibs_err err)
{
    return err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN ||
           err == DIBS_ERR_WRONGTYPE || err == DIBS_ERR_AUTH ||
           err == DIBS_ERR_SERVER || err == DIBS_ERR_PROTOCOL ||
           err == DIBS_ERR_REPLICAS || err == DIBS_ERR_TLS;
}

void dibs__op_tell_reason(struct dibs__op *op)
{
    if (op->err == DIBS_OK)
        return;
    if (op->why)
        dibs__reason_set(op->err, "%s", op->why->text);
    dibs__free(op->why);
    op->why = NULL;
}

/* ---- sending, and the end ---------------------------------------------- */

void dibs__op_send(struct dibs__op *op, enum dibs__verb verb,
                   void (*answered)(struct dibs__call *, dibs_err,
                                    const struct dibs__reply *),
                   int64_t within, int64_t connect_by)
{
    struct dibs__route to = dibs__line_route(op->line);

    if (op->batch && dibs__batch_take(op, verb, answered))
        return;
    static const unsigned expects[] = {
        [VERB_ACQUIRE] = 1u << REPLY_NIL | 1u << REPLY_NUM,
        [VERB_RELEASE] = 1u << REPLY_NUM,
        [VERB_HANDOVER] = 1u << REPLY_NUM,
        [VERB_FORCE] = 1u << REPLY_NUM,
        [VERB_LEAVE] = 0,
        [VERB_INFO] = 1u << REPLY_ARRAY,
        [VERB_HOLDERS] = 1u << REPLY_ARRAY,
    };

    op->verb = verb;
    op->call.expects = expects[verb];
    op->call.write = op_write;
    op->call.done = answered;
    op->call.explain = call_explained;
    op->call.attempt_ms = dibs__line_client(op->line)->to.command_timeout_ms;
    op->call.deadline = dibs__add(dibs__now_ms(), dibs__max(within, 0));
    op->call.connect_by = connect_by;
    op->call.replicas = verb == VERB_ACQUIRE ? op->replicas : 0;
    op->call.writes = 1u << REPLY_NIL;
    op->call.slot = op->line->slot;
    bool direct = op->direct;
    op->direct = false; /* its next step may be on io, which must not wait */
    bool *asked = op->asked;
    if (direct && asked) /* op may be gone by the time it says no */
        *asked = dibs__call_ask(to, &op->call);
    else if (direct)
        dibs__call_direct(to, &op->call);
    else
        dibs__call_start(to, &op->call);
}

void dibs__op_begin(struct dibs__op *op)
{
    atomic_fetch_add(&op->line->locks->in_flight, 1);
    op->run(op);
}

static void op_called_back(struct dibs__callback *cb, bool drop)
{
    struct dibs__op *op = DIBS_OF(cb, struct dibs__op, cb);

    if (!drop)
        DIBS__TOLD((dibs__op_tell_reason(op), op->err));
    if (!drop && op->tells)
        op->tell(op);
    else if (!drop)
        op->fn(op->err, op->arg);
    dibs__free(op->why);
    dibs__free(op);
}

/* Its time passed in a line: if the server is away, that is why. */
static void explain_timeout(struct dibs__op *op)
{
    const char *why = dibs__loop_inside() ? dibs__line_trouble(op->line) : NULL;

    if (why)
        dibs__op_explain(op, op->err, why);
}

/* What went wrong on the way matters only if that is how it ended, or if it
 * was still so when the time was over. */
static void settle_reason(struct dibs__op *op)
{
    if (op->why && op->why->err != op->err &&
        (op->err != DIBS_ERR_TIMEOUT || !op->last)) {
        dibs__free(op->why);
        op->why = NULL;
    }
    if (!op->why && is_about_server(op->err))
        dibs__op_explain_here(op, op->err, "%s", dibs_strerror(op->err));
    else if (!op->why && op->err == DIBS_ERR_TIMEOUT)
        explain_timeout(op);
}

static void tell_async(void *arg)
{
    struct dibs__op *op = arg;
    struct dibs__line *line = op->line;
    dibs_client *c = dibs__line_client(line);

    atomic_fetch_sub(&line->locks->in_flight, 1);
    dibs__line_unref(line);
    op->cb.run = op_called_back;
    dibs__callbacks_push(&c->callbacks, &op->cb);
}

/* Not while on_lost runs of what it gave back. */
static void finish_async(struct dibs__op *op)
{
    struct dibs__loss *loss = op->loss;

    op->loss = NULL;
    if (!dibs__loss_then(loss, tell_async, op))
        tell_async(op);
    dibs__loss_unref(loss);
}

void dibs__op_finish(struct dibs__op *op, dibs_err err)
{
    struct dibs__line *line = op->line;

    dibs__assert_no_lock();
    dibs__note_free(op->note);
    op->note = NULL;
    op->err = err;
    settle_reason(op);
    if (op->ended) { /* what it does next counts as begun before this ends */
        op->ended(op);
        atomic_fetch_sub(&line->locks->in_flight, 1);
        dibs__line_unref(line);
        return;
    }
    if (op->async) {
        finish_async(op);
        return;
    }
    atomic_fetch_sub(&line->locks->in_flight, 1);
    sem_post(&op->done); /* its caller settles the rest */
}

bool dibs__op_asks(const struct dibs__op *op)
{
    return dibs__list_linked(&op->ask_link);
}

struct dibs__op *dibs__op_asking(struct dibs__line *line, dibs_owner owner)
{
    for (struct dibs__list *l = line->asks.next; l != &line->asks;
         l = l->next) {
        struct dibs__op *op = DIBS_OF(l, struct dibs__op, ask_link);
        if (op->owner == owner)
            return op;
    }
    return NULL;
}

bool dibs__op_on_wire(struct dibs__line *line, uint64_t wire)
{
    for (struct dibs__list *l = line->waiters.next; l != &line->waiters;
         l = l->next)
        if (DIBS_OF(l, struct dibs__op, link)->wire == wire)
            return true;
    for (struct dibs__list *l = line->asks.next; l != &line->asks; l = l->next)
        if (DIBS_OF(l, struct dibs__op, ask_link)->wire == wire)
            return true;
    return false;
}

void dibs__op_take_waits(struct dibs__line *line, dibs_owner owner,
                         struct dibs__list *out)
{
    for (struct dibs__list *l = line->waiters.next, *n; l != &line->waiters;
         l = n) {
        struct dibs__op *op = DIBS_OF(l, struct dibs__op, link);
        n = l->next;
        if (op->owner != owner || dibs__op_asks(op) || op->granting ||
            op->place)
            continue;
        dibs__list_del(l);
        if (op->hold)
            dibs__hold_free(line, op->hold);
        op->hold = NULL;
        dibs__list_add(out, l);
    }
}

void dibs__op_stall(struct dibs__line *line, struct dibs__list *behind,
                    struct dibs__op *op)
{
    if (line->stalled++ == 0 && dibs__list_empty(&line->waiters))
        line->first_deadline = INT64_MAX;
    dibs__list_add(behind, &op->link);
    line->first_deadline = dibs__min(line->first_deadline, op->deadline);
    line->canceled |= op->canceled;
    if (op->canceled || (op->deadline < INT64_MAX &&
                         (!line->awake || op->deadline < line->looks_at)))
        dibs__line_wake(line);
}

void dibs__op_unstall(struct dibs__line *line, struct dibs__list *behind,
                      struct dibs__list *out)
{
    for (struct dibs__list *l = behind->next; l != behind; l = l->next)
        line->stalled--;
    if (line->awake && !line->stalled && dibs__list_empty(&line->waiters))
        dibs__line_wake(line); /* so that io stops looking */
    dibs__list_move(out, behind);
}

void dibs__op_take_blocked(struct dibs__line *line, struct dibs__hold *h,
                           struct dibs__list *out)
{
    dibs__op_unstall(line, &h->blocked, out);
}

/* Nobody else touches a busy hold, so it may be looked at without the mutex.
 * The number is retired before the hold is seen to end, as in release.c. */
void dibs__op_end_busy(struct dibs__line *line, struct dibs__hold *h,
                       struct dibs__list *blocked)
{
    dibs__lock(&line->mu);
    bool over = h->count == 0;
    if (!over) {
        dibs__op_take_blocked(line, h, blocked);
        h->busy = false;
    }
    dibs__unlock(&line->mu);
    if (!over)
        return;
    dibs__owner_retire(line->locks, h->owner, h->wire);
    dibs__lock(&line->mu);
    dibs__op_take_blocked(line, h, blocked);
    dibs__reap(line, h->wire, h->valid_until - dibs__now_ms());
    dibs__hold_free(line, h);
    dibs__line_kick(line);
    dibs__unlock(&line->mu);
}

void dibs__op_resume(struct dibs__list *ops)
{
    for (struct dibs__list *l; (l = dibs__list_pop(ops));) {
        struct dibs__op *op = DIBS_OF(l, struct dibs__op, link);
        op->direct = false; /* this is not its caller's thread */
        op->run(op);
    }
}

/* A kind that tells the server of its waiters does so by their number. */
void dibs__op_rename_waits(struct dibs__line *line, dibs_owner owner,
                           uint64_t old)
{
    if (!line->kind->hands_over)
        return;
    uint64_t wire = dibs__owner_wire(line->locks, owner);
    dibs__lock(&line->mu);
    for (struct dibs__list *l = line->waiters.next; l != &line->waiters;
         l = l->next) {
        struct dibs__op *op = DIBS_OF(l, struct dibs__op, link);
        if (op->owner == owner && op->wire == old && !dibs__op_asks(op))
            op->wire = op->ask.wire = wire;
    }
    dibs__unlock(&line->mu);
}

void dibs__op_disown(struct dibs__op *op)
{
    dibs__owner_retire(op->line->locks, op->owner, op->wire);
    dibs__op_rename_waits(op->line, op->owner, op->wire);
    dibs__reap(op->line, op->wire, op->reap_ms);
}
