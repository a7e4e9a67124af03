/* SPDX-License-Identifier: MIT
 *
 * acquire.c - taking a lock.
 *
 * Thread  app for the first attempt of a sync call, io for all else.
 * Locks   line.mu.
 *
 * How     An owner that has it already takes it once more: that is one command.
 *         Otherwise the call lines up. If nobody is before it, here, it asks
 *         the server at once, on its caller's own thread; if somebody is, it
 *         waits for its turn (wait.c), or is handed the lock (release.c)
 *         without asking at all. A call that only tries asks at once and does
 *         not line up. For a kind with a queue on the server everybody asks,
 *         and waits there (queue.c).
 *
 * Replicas  If some must have it, too, the server's yes is not enough: until
 *         they said so, nobody here sees it as held. If too few do, what was
 *         taken is given back before the call ends.
 *
 * Trouble The command says how many holds there shall be, so asking again after
 *         a lost reply is harmless. What remains is a copy that comes late, for
 *         a call that has given up: then the owner goes on under another
 *         number, and the reaper takes back what the old one may be given.
 */
#include "lock/locks.h"
#include "lock/op.h"

#include <stdio.h>

#define RETRY_MIN_MS 50
#define RETRY_MAX_MS 250
#define CAP_MIN_MS   1500 /* the longest sleep of a waiter, with jitter */
#define CAP_MAX_MS   2500

enum verdict {
    TAKEN,
    BUSY,  /* somebody has it */
    GONE,  /* the outer holds are gone */
    AGAIN, /* not executed, or nobody knows: worth another attempt */
    SHORT, /* taken, but too few replicas have it */
    REFUSED
};

static dibs_err refusal(struct dibs__op *op, const struct dibs__reply *reply)
{
    if (reply->type == REPLY_NUM && reply->num == -5) {
        dibs__op_explain_here(op, DIBS_ERR_UPGRADE,
                              "'%.80s': this owner holds the read lock",
                              op->line->name);
        return DIBS_ERR_UPGRADE;
    }
    if (reply->type == REPLY_NUM && reply->num == -6) {
        dibs__op_explain_here(
            op, DIBS_ERR_WRONGTYPE,
            "'%.80s' is something else, or a lock of another kind",
            op->line->name);
        return DIBS_ERR_WRONGTYPE;
    }
    return DIBS_ERR_PROTOCOL;
}

static enum verdict judge(struct dibs__call *call, dibs_err *err,
                          const struct dibs__reply *reply, int64_t *busy_ms)
{
    if (call->unacked)
        return SHORT;
    if (*err == DIBS_OK && reply->type == REPLY_NIL)
        return TAKEN;
    if (*err == DIBS_OK && reply->type == REPLY_NUM) {
        *busy_ms = dibs__reply_ms(reply->num);
        if (reply->num >= -1)
            return BUSY;
        if (reply->num == -3)
            return GONE;
    }
    if (*err == DIBS_OK) {
        *err = refusal(DIBS_OF(call, struct dibs__op, call), reply);
        return REFUSED;
    }
    if (*err == DIBS_ERR_CONN || *err == DIBS_ERR_UNKNOWN ||
        (*err == DIBS_ERR_SERVER && !reply))
        return AGAIN;
    return REFUSED;
}

static int64_t command_ms(const struct dibs__op *op)
{
    return dibs__line_client(op->line)->server.to.command_timeout_ms;
}

/* ---- too few replicas have it ------------------------------------------ */

static void tell_short(struct dibs__op *op, dibs_err why)
{
    const struct dibs__call *call = &op->call;
    char text[200];

    if (why == DIBS_ERR_CLOSED)
        return;            /* nobody waited for them */
    if (call->wanted == 0) /* all of them, and there are none */
        snprintf(text, sizeof text,
                 "'%.80s': the server has no replicas connected; given back",
                 op->line->name);
    else
        snprintf(text, sizeof text,
                 "'%.80s': %d of %d replicas have it; given back",
                 op->line->name, call->acked, call->wanted);
    if (!op->why || op->why->err != why) /* the server said no more */
        dibs__op_explain_here(op, why, "%s", text);
    dibs__server_tell(dibs__line_server(op->line), DIBS_EVENT_REPLICAS,
                      DIBS_ERR_REPLICAS, text);
}

static void taken_back(struct dibs__call *call, dibs_err err,
                       const struct dibs__reply *reply)
{
    struct dibs__op *op = DIBS_OF(call, struct dibs__op, call);
    struct dibs__line *line = op->line;
    struct dibs__list resume;

    (void)reply;
    dibs__list_init(&resume);
    dibs__lock(&line->mu);
    dibs__list_del(&op->ask_link);
    dibs__op_unstall(line, &op->followers, &resume);
    op->tainted |= call->ghost || err != DIBS_OK;
    dibs__line_kick(line);
    dibs__unlock(&line->mu);
    if (op->tainted)
        dibs__op_disown(op);
    dibs__op_finish(op, op->last);
    dibs__op_resume(&resume);
}

/* It is out of the line, but counts as asking until the server has confirmed
 * that it is free again: its owner must not ask for it meanwhile. */
static void take_back(struct dibs__op *op, dibs_err why)
{
    tell_short(op, why);
    dibs__queue_end(op);
    op->last = why;
    op->ask.stay = false;
    op->ask.target = 0;
    dibs__op_send(op, VERB_RELEASE, taken_back, command_ms(op), 0);
}

static void reentry_taken_back(struct dibs__call *call, dibs_err err,
                               const struct dibs__reply *reply)
{
    struct dibs__op *op = DIBS_OF(call, struct dibs__op, call);
    struct dibs__line *line = op->line;
    struct dibs__hold *h = op->hold;
    struct dibs__list blocked;

    dibs__list_init(&blocked);
    dibs__lock(&line->mu);
    /* Should there be one too many now, the next release says how many there
     * shall be. */
    h->tainted |= call->ghost || err != DIBS_OK;
    if (err == DIBS_OK && reply->type == REPLY_NUM && reply->num < 0)
        dibs__hold_lose(line, h);
    err = h->lost ? DIBS_ERR_LOST : op->last;
    dibs__unlock(&line->mu);
    dibs__op_end_busy(line, h, &blocked);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

/* One level less than the server has; the outer ones stay. */
static void reentry_take_back(struct dibs__op *op, dibs_err why)
{
    tell_short(op, why);
    op->last = why;
    op->ask.target--;
    dibs__op_send(op, VERB_RELEASE, reentry_taken_back, command_ms(op), 0);
}

/* ---- re-entry ---------------------------------------------------------- */

/* The outer hold was over when the answer came. What the server may have
 * granted is nobody's: it is taken back. */
static void end_late(struct dibs__line *line, const struct dibs__op *op)
    REQUIRES(line->mu)
{
    struct dibs__hold *h = op->hold;

    dibs__hold_run_out(line, h);
    h->tainted = true;
    dibs__reap(line, h->wire, op->ask.lease_ms);
}

static void reentry_answered(struct dibs__call *call, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__op *op = DIBS_OF(call, struct dibs__op, call);
    struct dibs__line *line = op->line;
    struct dibs__hold *h = op->hold;
    struct dibs__list blocked;
    int64_t ms;

    dibs__list_init(&blocked);
    enum verdict verdict = judge(call, &err, reply, &ms);
    dibs__lock(&line->mu);
    h->tainted |= call->ghost || err == DIBS_ERR_UNKNOWN || call->partly;
    if (verdict == SHORT && !dibs__hold_over(h, dibs__now_ms())) {
        dibs__unlock(&line->mu);
        reentry_take_back(op, err); /* and stays busy until then */
        return;
    }
    if (verdict == GONE || verdict == BUSY)
        dibs__hold_lose(line, h);
    else if (dibs__hold_over(h, dibs__now_ms()))
        end_late(line, op);
    else if (verdict == TAKEN)
        dibs__hold_taken(line, h, op, call->sent_ms);
    if (h->lost)
        err = DIBS_ERR_LOST;
    dibs__unlock(&line->mu);
    dibs__op_end_busy(line, h, &blocked);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

/* ---- first acquisition ------------------------------------------------- */

/* How long a waiter sleeps when nothing happens. In a queue the server says
 * so, but nobody keeps a place there for longer than that without asking. */
static int64_t ask_pause(const struct dibs__line *line, int64_t busy_ms)
{
    if (line->kind->queued)
        return dibs__max(
            dibs__min(busy_ms, dibs__line_client(line)->fair_wait_ms), 1);
    int64_t cap = dibs__random_in(CAP_MIN_MS, CAP_MAX_MS);

    if (line->kind->pause_ms)
        cap = dibs__min(cap, line->kind->pause_ms);
    return busy_ms < 0 ? cap : dibs__min(busy_ms + 1, cap);
}

/* Out of the line; what was prepared for the grant goes. */
static void leave(struct dibs__line *line, struct dibs__op *op)
    REQUIRES(line->mu)
{
    dibs__list_del(&op->link);
    if (op->hold)
        dibs__hold_free(line, op->hold);
    op->hold = NULL;
    if (line->awake && !line->stalled && dibs__list_empty(&line->waiters))
        dibs__line_wake(line); /* so that io stops looking */
}

/* False: out of memory. */
static bool stay(struct dibs__line *line, struct dibs__op *op, int64_t sleep_ms)
    REQUIRES(line->mu)
{
    /* Its time may have passed while it was being answered. */
    line->first_deadline = dibs__min(line->first_deadline, op->deadline);
    if (line->kind->queued) {
        if (!line->awake || line->canceled || op->deadline < line->looks_at ||
            atomic_load(&line->locks->closing))
            dibs__line_wake(line);
        return dibs__queue_stay(op, sleep_ms);
    }
    line->next_try = dibs__now_ms() + sleep_ms;
    dibs__line_wake(line);
    return true;
}

/* The server gave it to this owner, so nobody else here has it any more: it was
 * taken away by force. */
static void lose_others(struct dibs__line *line, dibs_owner owner)
    REQUIRES(line->mu)
{
    for (struct dibs__list *l = line->holds.next; l != &line->holds;
         l = l->next) {
        struct dibs__hold *h = DIBS_OF(l, struct dibs__hold, link);
        if (h->owner != owner && !h->ending) /* that one gives it back */
            dibs__hold_lose(line, h);
    }
}

/* Granted, but is it any use? */
static dibs_err take(struct dibs__line *line, struct dibs__op *op, int64_t sent)
    REQUIRES(line->mu)
{
    int64_t now = dibs__now_ms();

    if (atomic_load(&line->locks->closing))
        return DIBS_ERR_CLOSED;
    if (dibs__valid_until(sent, op->ask.lease_ms) <= now)
        return DIBS_ERR_UNKNOWN; /* the answer came when it was over */
    if (!op->hold)
        op->hold = dibs__hold_new(line);
    if (!op->hold)
        return DIBS_ERR_NOMEM;
    dibs__hold_taken(line, op->hold, op, sent);
    op->hold = NULL;
    if (line->kind->shared)
        dibs__line_kick_all(line); /* what one may, all may */
    else
        lose_others(line, op->owner);
    line->handed = 0;
    line->handed_since = now;
    return DIBS_OK;
}

void dibs__acquire_start_over(struct dibs__op *op)
{
    dibs__queue_end(op);
    op->ask.stay = false;
    op->direct = false;
    dibs__acquire_run(op);
}

static void end(struct dibs__op *op, dibs_err err)
{
    dibs__queue_end(op);
    if (op->ask.stay && err != DIBS_OK) {
        dibs__queue_leave(op, err);
        return;
    }
    if (op->tainted && err != DIBS_OK)
        dibs__op_disown(op);
    dibs__op_finish(op, err);
}

static void acquire_answered(struct dibs__call *call, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__op *op = DIBS_OF(call, struct dibs__op, call);
    struct dibs__line *line = op->line;
    struct dibs__list resume;
    int64_t busy_ms = 0;
    bool stays = false; /* in the line */
    bool again = false; /* the owner has it already: this is a re-entry */

    dibs__list_init(&resume);
    enum verdict verdict = judge(call, &err, reply, &busy_ms);
    dibs__lock(&line->mu);
    if (verdict == SHORT && !dibs__hold_of(line, op->owner)) {
        op->tainted |= call->ghost;
        leave(line, op);
        dibs__unlock(&line->mu);
        take_back(op, err);
        return;
    }
    dibs__list_del(&op->ask_link);
    dibs__op_unstall(line, &op->followers, &resume);
    op->tainted |= call->ghost || call->partly || err == DIBS_ERR_UNKNOWN ||
                   (err == DIBS_ERR_PROTOCOL && reply);
    op->last = verdict == AGAIN ? err : DIBS_OK;
    switch (verdict) {
    case SHORT: /* what its owner has stands; this is a re-entry, then */
    case TAKEN:
        dibs__list_del(&op->link);
        again = dibs__hold_of(line, op->owner) != NULL;
        err = again ? DIBS_OK : take(line, op, call->sent_ms);
        op->tainted |= err != DIBS_OK;
        if (err == DIBS_OK)
            dibs__op_take_waits(line, op->owner, &resume);
        break;
    case BUSY:
        stays = !op->trying && stay(line, op, ask_pause(line, busy_ms));
        err = op->trying ? DIBS_ERR_BUSY : DIBS_ERR_NOMEM;
        break;
    case AGAIN:
        stays = !op->trying &&
                stay(line, op, dibs__random_in(RETRY_MIN_MS, RETRY_MAX_MS));
        break;
    case GONE: /* of a first acquisition there are no outer holds */
        err = DIBS_ERR_PROTOCOL;
        op->tainted = true;
        break;
    case REFUSED:
        break;
    }
    if (!stays)
        leave(line, op);
    dibs__unlock(&line->mu);
    if (again)
        dibs__acquire_start_over(op);
    else if (!stays)
        end(op, err);
    dibs__op_resume(&resume);
}

bool dibs__acquire_may_ask(struct dibs__line *line, struct dibs__op *op)
{
    if (dibs__op_asking(line, op->owner))
        return false;
    dibs__list_init(&op->followers);
    dibs__list_add(&line->asks, &op->ask_link);
    return true;
}

void dibs__acquire_ask(struct dibs__op *op)
{
    dibs__op_send(op, VERB_ACQUIRE, acquire_answered,
                  command_ms(op) + op->call.replicas_ms,
                  op->trying ? 0 : op->deadline);
}

/* ---- where to start ---------------------------------------------------- */

enum plan { ASK, REENTER, WAIT, END };

static enum plan plan_reentry(struct dibs__line *line, struct dibs__op *op,
                              struct dibs__hold *h, dibs_err *err)
    REQUIRES(line->mu)
{
    if (h->busy && op->batch) { /* the others must not wait for it */
        *err = DIBS_ERR_CANCELED;
        return END;
    }
    if (h->busy) {
        dibs__op_stall(line, &h->blocked, op);
        return WAIT;
    }
    if (dibs__hold_over(h, dibs__now_ms())) {
        dibs__hold_run_out(line, h);
        *err = DIBS_ERR_LOST;
        return END;
    }
    if (!dibs__hold_room(h)) {
        *err = DIBS_ERR_NOMEM;
        return END;
    }
    h->busy = true;
    op->hold = h;
    op->ask.wire = h->wire;
    op->ask.target = h->count + 1;
    return REENTER;
}

/* Must it ask, or does it know that it has to wait? Whether one may read, or
 * would wait for itself, depends on what else its owner has: there everybody
 * asks once. */
static bool must_ask(struct dibs__line *line, const struct dibs__op *op)
    REQUIRES(line->mu)
{
    const struct dibs__kind *kind = line->kind;

    if (op->trying || kind->queued || kind->shared)
        return true;
    if (dibs__hold_other(line, 0, dibs__now_ms()))
        return false;
    return kind->leaves || dibs__list_empty(&line->waiters);
}

static enum plan plan_first(struct dibs__line *line, struct dibs__op *op,
                            dibs_err *err) REQUIRES(line->mu)
{
    struct dibs__op *before = dibs__op_asking(line, op->owner);

    if (before && op->batch) {
        *err = DIBS_ERR_CANCELED;
        return END;
    }
    if (before) { /* its answer decides what this one has to ask */
        dibs__op_stall(line, &before->followers, op);
        return WAIT;
    }
    /* Made now, so that a grant cannot fail; but a long queue on the server is
     * not worth a hold for everybody in it. */
    if (op->trying || !line->kind->queued) {
        op->hold = dibs__hold_new(line);
        if (!op->hold) {
            *err = DIBS_ERR_NOMEM;
            return END;
        }
    }
    op->ask.wire = op->wire;
    op->ask.target = 1;
    bool asks = must_ask(line, op);
    op->ask.stay = line->kind->leaves && !op->trying;
    if (!op->trying)
        dibs__line_join(line, op, !asks);
    return asks && dibs__acquire_may_ask(line, op) ? ASK : WAIT;
}

/* Takes line.mu, and the number under which the owner goes. Whether it is mixed
 * up: a plain and a fair lock of one name are one lock on the server. A number
 * that is retired meanwhile must not be used: the reaper looks for those who
 * do, under the same mutex, before it takes back what that number has. */
static bool lock_by_number(struct dibs__line *line, struct dibs__op *op)
    TAKES(line->mu)
{
    for (;;) {
        unsigned before = atomic_load(&line->locks->retired);
        op->wire = dibs__owner_wire_for(line, op->owner);
        bool mixed = !line->kind->shared && !line->kind->suffix[0] &&
                     dibs__line_held_by_sibling(line, op->owner);
        dibs__lock(&line->mu);
        if (atomic_load(&line->locks->retired) == before)
            return mixed;
        dibs__unlock(&line->mu);
    }
}

void dibs__acquire_run(struct dibs__op *op)
{
    struct dibs__line *line = op->line;
    dibs_err err = DIBS_ERR_CLOSED;
    enum plan plan = END;
    bool direct = op->direct;

    op->direct = false; /* if it waits, io goes on with it */
    bool mixed = lock_by_number(line, op);
    if (mixed) {
        err = DIBS_ERR_WRONGTYPE;
        dibs__op_explain(op, err,
                         "this owner holds it as a lock of another kind");
    } else if (!atomic_load(&line->locks->closing)) {
        struct dibs__hold *h = dibs__hold_of(line, op->owner);
        plan = h ? plan_reentry(line, op, h, &err) : plan_first(line, op, &err);
    }
    dibs__unlock(&line->mu);
    switch (plan) {
    case ASK:
        op->direct = direct;
        dibs__acquire_ask(op);
        break;
    case REENTER:
        op->direct = direct;
        dibs__op_send(op, VERB_ACQUIRE, reentry_answered,
                      2 * command_ms(op) + op->call.replicas_ms, 0);
        break;
    case WAIT:
        break;
    case END:
        dibs__op_finish(op, err);
    }
}
