/* SPDX-License-Identifier: MIT
 *
 * multi_lock.c - all of several locks, or none.
 *
 * Thread  as group_op.c.
 * Locks   group.mu.
 *
 * How     First all members are tried at once, those of one place in one
 *         script, the servers side by side. If all are free, that is enough.
 *
 *         Otherwise what was taken is given back. Then the members before the
 *         busy one are taken, the busy one is waited for, and the rest are
 *         tried again; and so on. What is held during a wait is always a row
 *         from the start, in an order that is the same for all callers. So
 *         callers cannot wait for each other in a circle.
 *
 *         What is held before the last member is taken is renewed, whatever
 *         lease was asked for; that lease begins when all are held.
 *
 * Trouble Others may take the same locks in another order: a Redisson client,
 *         or a client that knows a server by another address. So with members
 *         on several servers a wait with some of them held is short: after a
 *         few seconds all are given back, and the acquire begins anew.
 *
 *         A member that was lost during a wait for others is found out at the
 *         end; then the acquire begins anew, too.
 *
 * Steps   step           what it found                     next step
 *         try_done       all of [held, end) taken           wait_for_next, or
 *                                                           the end
 *                        some are busy                      wait_for_next, or
 *                                                           try_rest before it
 *                        one batch cannot ask for them      try_rest, singly
 *         wait_done      taken                              try_rest, or the
 *                                                           end
 *                        the wait was long enough           start_over
 *                        lost, by another call of the owner start_over, pause
 *         any            its time is over: none asks more   give_back, failed
 *                        stopped, or an error               give_back, failed
 */
#include "group/group_op.h"

#define PATIENCE_MIN_MS 2000
#define PATIENCE_MAX_MS 4000
#define IN_WAY_MIN_MS   5 /* until a lost member is asked for again */
#define IN_WAY_MAX_MS   250

static void try_rest(struct dibs__group_op *op);
static void ask_multi_again(struct dibs__group_op *op);
static void start_over(struct dibs__group_op *op,
                       void (*next)(struct dibs__group_op *));
static void wait_for_next(struct dibs__group_op *op);

/* ---- the end ----------------------------------------------------------- */

/* Gives back those from this one on; then comes the next step. */
static void give_back_from(struct dibs__group_op *op, size_t from,
                           void (*next)(struct dibs__group_op *))
{
    dibs__group_op_open(op, next);
    dibs__members_return(op, from, op->g->n, false);
    dibs__group_op_run(op);
}

static void multi_failed(struct dibs__group_op *op)
{
    dibs__group_op_fail(op, dibs__group_op_stopped(op));
}

/* Everything is given back, then it ends with that, or with what stopped it. */
static void multi_fail(struct dibs__group_op *op, dibs_err err)
{
    dibs__lock(&op->g->mu);
    dibs__group_op_stop(op, err);
    dibs__unlock(&op->g->mu);
    give_back_from(op, 0, multi_failed);
}

/* Its time is over. If some server did not answer, that is told. */
static bool is_multi_late(struct dibs__group_op *op)
{
    dibs_err err = DIBS_ERR_TIMEOUT;

    if (op->no_wait || dibs__now_ms() < op->deadline)
        return false;
    dibs__lock(&op->g->mu);
    for (size_t i = op->g->n; i-- > 0;) {
        dibs_err its = op->level->members[i].err;
        if (its == DIBS_ERR_CONN || its == DIBS_ERR_UNKNOWN)
            err = its;
    }
    dibs__unlock(&op->g->mu);
    multi_fail(op, err);
    return true;
}

/* All were taken. Are they still ours, and for as long as was asked for? */
static bool are_sealed(struct dibs__group_op *op)
{
    bool fine = true;

    for (size_t i = 0; i < op->g->n; i++) {
        struct dibs__lock_entry *entry = op->g->members[i].entry;
        dibs__lock(&entry->mu);
        fine &= dibs__hold_commit_terms(entry, &op->m[i].op);
        dibs__unlock(&entry->mu);
    }
    return fine;
}

/* The caller has the group from here on, and hears of its loss. LOST: some
 * member is lost. Others: it was stopped. */
static dibs_err grant_level(struct dibs__group_op *op)
{
    if (!are_sealed(op))
        return DIBS_ERR_LOST;
    dibs__lock(&op->g->mu);
    dibs_err err = op->err;
    if (err == DIBS_OK && !dibs__loss_arm(op->level->loss, NULL))
        err = DIBS_ERR_LOST;
    if (err == DIBS_OK && dibs__group_op_complete(op, DIBS_OK)) {
        dibs__group_level_activate(op->g, op->level);
        for (size_t i = 0; i < op->g->n; i++) {
            op->level->members[i].got = true;
            op->m[i].state = MEMBER_FREE;
        }
    }
    dibs__unlock(&op->g->mu);
    return err;
}

static void all_taken(struct dibs__group_op *op)
{
    dibs_err err = dibs__group_op_stopped(op);

    if (err == DIBS_OK)
        err = grant_level(op);
    if (err == DIBS_OK)
        dibs__group_op_finish(op);
    else if (err != DIBS_ERR_LOST || op->no_wait)
        multi_fail(op, err);
    else if (dibs__now_ms() < op->deadline)
        start_over(op, ask_multi_again);
    else
        multi_fail(op, DIBS_ERR_TIMEOUT);
}

/* ---- trying ------------------------------------------------------------ */

/* What a try of [held, end) came to. */
struct outcome {
    bool all;       /* taken */
    dibs_err error; /* one that waiting does not help */
    size_t blocker; /* the first that is busy; end = none is */
};

/* A server that cannot be reached, or is busy itself, is waited for as a holder
 * is. */
static bool is_worth_waiting(struct dibs__group_op *op,
                             const struct dibs__member_op *m)
    REQUIRES(op->g->mu)
{
    dibs_err err = m->err;
    bool not_now = err == DIBS_ERR_SERVER && err == m->op.last_err;

    return err == DIBS_ERR_BUSY ||
           (!op->no_wait &&
            (err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN || not_now));
}

static struct outcome try_outcome(struct dibs__group_op *op)
{
    struct outcome o = {.all = true, .blocker = op->multi.end};

    dibs__lock(&op->g->mu);
    for (size_t i = op->multi.end; i-- > op->multi.held;) {
        const struct dibs__member_op *m = &op->m[i];
        o.all &= m->state == MEMBER_TAKEN;
        if (is_worth_waiting(op, m))
            o.blocker = i;
        else if (m->err != DIBS_OK && m->err != DIBS_ERR_CANCELED)
            o.error = m->err;
    }
    dibs__unlock(&op->g->mu);
    return o;
}

static void try_done(struct dibs__group_op *op)
{
    struct outcome o = try_outcome(op);
    dibs_err stopped = dibs__group_op_stopped(op);

    if (o.all) {
        op->multi.held = op->multi.end;
        if (op->multi.held == op->g->n)
            all_taken(op);
        else
            wait_for_next(op);
    } else if (stopped || o.error) {
        multi_fail(op, stopped ? stopped : o.error);
    } else if (o.blocker == op->multi.end) {
        op->multi.single = true; /* none is busy: the batch did not ask */
        give_back_from(op, op->multi.held, try_rest);
    } else if (op->no_wait) {
        multi_fail(op, DIBS_ERR_BUSY);
    } else {
        op->multi.kept = true;
        op->multi.end = o.blocker;
        give_back_from(op, op->multi.held,
                       op->multi.end == op->multi.held ? wait_for_next
                                                       : ask_multi_again);
    }
}

static bool is_batched(const struct dibs__group_op *op, size_t i)
{
    return !op->multi.single && op->g->members[i].entry->type->batch_code;
}

/* Those of one place: in one script, or each by itself. All of the batch are
 * asked for, or none. */
static void try_place(struct dibs__group_op *op, size_t from, size_t to,
                      bool direct)
{
    size_t n = 0;
    struct dibs__batch *b = NULL;
    dibs_client *c = op->g->members[from].c;
    bool inside = dibs__client_enter(c) == DIBS_OK;

    for (size_t i = from; i < to; i++)
        n += is_batched(op, i);
    if (n > 1 && inside)
        b = dibs__batch_new(VERB_ACQUIRE, n);
    for (size_t i = from; i < to; i++)
        if (!b || !is_batched(op, i))
            dibs__member_op_try(op, i, NULL, NULL);
    for (size_t i = from; b && i < to; i++)
        if (is_batched(op, i))
            dibs__member_op_try(op, i, b, NULL);
    if (b && dibs__batch_count(b) == n)
        dibs__batch_send(b, direct);
    else if (b)
        dibs__batch_drop(b);
    if (inside)
        dibs__client_leave(c);
}

static void try_rest(struct dibs__group_op *op)
{
    bool direct = op->direct;
    size_t from = op->multi.held, to = op->multi.end;

    op->direct = false;
    dibs__group_op_open(op, try_done);
    for (size_t i = from, end; i < to; i = end) {
        end = dibs__members_same_server_end(op, i, to);
        try_place(op, i, end, direct && end == to);
    }
    dibs__group_op_run(op);
}

static void ask_multi_again(struct dibs__group_op *op)
{
    if (!is_multi_late(op))
        try_rest(op);
}

/* A member is in the way of which nobody tells when it is gone. */
static void rest_multi(struct dibs__group_op *op)
{
    int64_t ms =
        dibs__backoff(&op->multi.pause_ms, IN_WAY_MIN_MS, IN_WAY_MAX_MS);

    ms = dibs__min(ms, dibs__max(op->deadline - dibs__now_ms(), 0));
    dibs__group_op_timer_start(op, ms, ask_multi_again);
}

/* ---- waiting ----------------------------------------------------------- */

static void wait_done(struct dibs__group_op *op)
{
    struct dibs__member_op *m = &op->m[op->multi.held];

    dibs__lock(&op->g->mu);
    dibs_err err = m->err, stopped = op->err;
    bool in_way = m->in_way;
    bool again = err == DIBS_ERR_TIMEOUT || is_worth_waiting(op, m);
    if (err == DIBS_ERR_TIMEOUT) /* what its server had answered */
        op->level->members[m->index].err = DIBS_ERR_BUSY;
    dibs__unlock(&op->g->mu);
    if (stopped) {
        multi_fail(op, stopped);
    } else if (err == DIBS_OK) {
        op->multi.held++;
        op->multi.end = op->g->n;
        if (op->multi.held == op->multi.end)
            all_taken(op);
        else
            ask_multi_again(op);
    } else if (again && in_way && dibs__now_ms() < op->deadline) {
        start_over(op, rest_multi);
    } else if (again && dibs__now_ms() < op->deadline) {
        start_over(op, ask_multi_again);
    } else {
        multi_fail(op, in_way ? DIBS_ERR_TIMEOUT : err);
    }
}

static void wait_for_next(struct dibs__group_op *op)
{
    bool several = dibs__members_same_server_end(op, 0, op->g->n) < op->g->n;
    int64_t until = op->deadline;

    if (is_multi_late(op))
        return;
    if (op->multi.held > 0 && several)
        until =
            dibs__min(until, dibs__now_ms() + dibs__random_in(PATIENCE_MIN_MS,
                                                              PATIENCE_MAX_MS));
    dibs__group_op_open(op, wait_done);
    dibs__member_op_wait(op, op->multi.held, until);
    dibs__group_op_run(op);
}

/* ---- where to start ---------------------------------------------------- */

static void start_over(struct dibs__group_op *op,
                       void (*next)(struct dibs__group_op *))
{
    if (!dibs__group_level_new_loss(op->level)) {
        multi_fail(op, DIBS_ERR_NOMEM);
        return;
    }
    op->multi.held = 0;
    op->multi.end = op->g->n;
    give_back_from(op, 0, next);
}

void dibs__multi_start(struct dibs__group_op *op)
{
    op->multi.end = op->g->n;
    dibs__lock(&op->g->mu);
    for (size_t i = 0; i < op->g->n; i++)
        op->level->members[i].err = DIBS_ERR_CANCELED; /* not asked yet */
    dibs__unlock(&op->g->mu);
    try_rest(op);
}
