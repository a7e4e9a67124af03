/* SPDX-License-Identifier: MIT
 *
 * multi_lock.c - acquires all members of a group, or none.
 *
 * Thread  as group_op.c.
 * Locks   group.mu.
 *
 * How     First all members are tried in parallel, those on one server in one
 *         script. If all are free, the acquire is done.
 *
 *         Otherwise what was acquired is released. Then the members before the
 *         first busy one are acquired, the busy one is waited for, and the rest
 *         are tried again; and so on. The members held during a wait are always
 *         [0, held), in an order that is the same for all callers, so callers
 *         cannot deadlock.
 *
 *         Members acquired before the last one are renewed whatever lease was
 *         asked for (provisional renewal). That lease begins when all members
 *         are held.
 *
 * Limits  Another client may acquire the same locks in another order: a
 *         Redisson client, or one that knows a server by another address. With
 *         members on several servers, a wait with some of them held is
 *         therefore limited to a few seconds; then all are released and the
 *         acquire starts over.
 *
 *         A member that was lost during the wait for another is detected when
 *         all are acquired; the acquire starts over then, too.
 *
 * Steps (multi_ is left out)
 *
 *         step       what it finds                     next step
 *         try_done   [held, try_end) acquired          commit if these are all
 *                                                      members, else
 *                                                      wait_for_next
 *                    member b is busy                  try_again, up to b; if
 *                                                      b is `held`,
 *                                                      wait_for_next
 *                    no batch can cover them           try_rest, no batches
 *         wait_done  acquired                          commit if it was the
 *                                                      last, else try_again
 *                    the limit of the wait has passed  start_over
 *                    blocked by a lost hold of another
 *                    acquire of the owner              start_over, back_off
 *         any        deadline, stopped, or an error    report_failure
 */
#include "group/group_op.h"

#define HOLD_AND_WAIT_MIN_MS 2000 /* a wait with other members held */
#define HOLD_AND_WAIT_MAX_MS 4000
#define LOST_HOLD_MIN_MS     5 /* back-off while blocked by a lost hold */
#define LOST_HOLD_MAX_MS     250

static void multi_try_rest(struct dibs__group_op *op);
static void multi_try_again(struct dibs__group_op *op);
static void multi_start_over(struct dibs__group_op *op,
                             void (*next)(struct dibs__group_op *));
static void wait_for_next(struct dibs__group_op *op);

/* ---- the end ----------------------------------------------------------- */

/* Releases members [from, n), then runs the next step. */
static void release_from(struct dibs__group_op *op, size_t from,
                         void (*next)(struct dibs__group_op *))
{
    dibs__group_op_pending_begin(op, next);
    dibs__members_release(op, from, op->g->n, false);
    dibs__group_op_pending_end(op);
}

static void multi_report_failure(struct dibs__group_op *op)
{
    dibs__group_op_fail(op, dibs__group_op_error(op));
}

/* Releases all members and fails with err, or with what stopped the operation.
 */
static void release_and_fail(struct dibs__group_op *op, dibs_err err)
{
    dibs__lock(&op->g->mu);
    dibs__group_op_stop(op, err);
    dibs__unlock(&op->g->mu);
    release_from(op, 0, multi_report_failure);
}

/* After the deadline: fails the operation and returns true. The error is that
 * of the first server that did not reply, otherwise TIMEOUT. */
static bool fail_if_past_deadline(struct dibs__group_op *op)
{
    dibs_err err = DIBS_ERR_TIMEOUT;

    if (op->no_wait || dibs__now_ms() < op->deadline)
        return false;
    dibs__lock(&op->g->mu);
    for (size_t i = op->g->n; i-- > 0;) {
        dibs_err member_err = op->level->members[i].err;
        if (member_err == DIBS_ERR_CONN || member_err == DIBS_ERR_UNKNOWN)
            err = member_err;
    }
    dibs__unlock(&op->g->mu);
    release_and_fail(op, err);
    return true;
}

/* Ends the provisional renewal of all members: their lease as asked for begins.
 * Returns false if one of them is lost. */
static bool commit_members(struct dibs__group_op *op)
{
    bool all_held = true;

    for (size_t i = 0; i < op->g->n; i++) {
        struct dibs__lock_entry *entry = op->g->members[i].entry;
        dibs__lock(&entry->mu);
        all_held &= dibs__hold_commit_terms(entry, &op->member_ops[i].lock_op);
        dibs__unlock(&entry->mu);
    }
    return all_held;
}

/* Activates the level: from here on its owner holds the group and on_lost is
 * armed. Returns LOST if a member is lost; another error if it was stopped. */
static dibs_err commit_level(struct dibs__group_op *op)
{
    if (!commit_members(op))
        return DIBS_ERR_LOST;
    dibs__lock(&op->g->mu);
    dibs_err err = op->err;
    if (err == DIBS_OK && !dibs__loss_arm(op->level->loss, NULL))
        err = DIBS_ERR_LOST;
    if (err == DIBS_OK && dibs__group_op_complete(op, DIBS_OK)) {
        dibs__group_level_activate(op->g, op->level);
        for (size_t i = 0; i < op->g->n; i++) {
            op->level->members[i].acquired = true;
            op->member_ops[i].state = MEMBER_IDLE;
        }
    }
    dibs__unlock(&op->g->mu);
    return err;
}

static void multi_commit(struct dibs__group_op *op)
{
    dibs_err err = dibs__group_op_error(op);

    if (err == DIBS_OK)
        err = commit_level(op);
    if (err == DIBS_OK)
        dibs__group_op_finish(op);
    else if (err != DIBS_ERR_LOST || op->no_wait)
        release_and_fail(op, err);
    else if (dibs__now_ms() < op->deadline)
        multi_start_over(op, multi_try_again);
    else
        release_and_fail(op, DIBS_ERR_TIMEOUT);
}

/* ---- trying ------------------------------------------------------------ */

/* Result of trying members [held, try_end). */
struct try_result {
    bool all_acquired;
    dibs_err error;    /* a permanent one; or OK */
    size_t first_busy; /* try_end: none is */
};

/* Returns whether waiting may help: a holder may release, an unreachable server
 * may come back, and a server that is busy itself may recover. */
static bool is_multi_retryable(struct dibs__group_op *op,
                               const struct dibs__member_op *m)
    REQUIRES(op->g->mu)
{
    dibs_err err = m->err;
    bool is_temporary = err == DIBS_ERR_SERVER && err == m->lock_op.last_err;

    return err == DIBS_ERR_BUSY ||
           (!op->no_wait &&
            (err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN || is_temporary));
}

static struct try_result get_try_result(struct dibs__group_op *op)
{
    struct try_result r = {.all_acquired = true,
                           .first_busy = op->multi.try_end};

    dibs__lock(&op->g->mu);
    for (size_t i = op->multi.try_end; i-- > op->multi.held;) {
        const struct dibs__member_op *m = &op->member_ops[i];
        r.all_acquired &= m->state == MEMBER_ACQUIRED;
        if (is_multi_retryable(op, m))
            r.first_busy = i;
        else if (m->err != DIBS_OK && m->err != DIBS_ERR_CANCELED)
            r.error = m->err;
    }
    dibs__unlock(&op->g->mu);
    return r;
}

static void multi_try_done(struct dibs__group_op *op)
{
    struct try_result r = get_try_result(op);
    dibs_err stopped = dibs__group_op_error(op);

    if (r.all_acquired) {
        op->multi.held = op->multi.try_end;
        if (op->multi.held == op->g->n)
            multi_commit(op);
        else
            wait_for_next(op);
    } else if (stopped || r.error) {
        release_and_fail(op, stopped ? stopped : r.error);
    } else if (r.first_busy == op->multi.try_end) {
        op->multi.no_batch = true; /* none is busy: no batch was sent */
        release_from(op, op->multi.held, multi_try_rest);
    } else if (op->no_wait) {
        release_and_fail(op, DIBS_ERR_BUSY);
    } else {
        op->multi.provisional = true;
        op->multi.try_end = r.first_busy;
        release_from(op, op->multi.held,
                     op->multi.try_end == op->multi.held ? wait_for_next
                                                         : multi_try_again);
    }
}

static bool is_batched(const struct dibs__group_op *op, size_t i)
{
    return !op->multi.no_batch && op->g->members[i].entry->type->batch_code;
}

/* Tries members on one server: in one script, or each by itself. If a member of
 * the batch could not begin, the batch is dropped. */
static void try_same_server(struct dibs__group_op *op, size_t from, size_t to,
                            bool on_caller_thread)
{
    size_t n = 0;
    struct dibs__batch *b = NULL;
    dibs_client *c = op->g->members[from].c;
    bool entered = dibs__client_enter(c) == DIBS_OK;

    for (size_t i = from; i < to; i++)
        n += is_batched(op, i);
    if (n > 1 && entered)
        b = dibs__batch_new(VERB_ACQUIRE, n);
    for (size_t i = from; i < to; i++)
        if (!b || !is_batched(op, i))
            dibs__member_op_try(op, i, NULL, NULL);
    for (size_t i = from; b && i < to; i++)
        if (is_batched(op, i))
            dibs__member_op_try(op, i, b, NULL);
    if (b && dibs__batch_count(b) == n)
        dibs__batch_send(b, on_caller_thread);
    else if (b)
        dibs__batch_cancel(b);
    if (entered)
        dibs__client_leave(c);
}

static void multi_try_rest(struct dibs__group_op *op)
{
    bool on_caller_thread = op->on_caller_thread;
    size_t from = op->multi.held, to = op->multi.try_end;

    op->on_caller_thread = false;
    dibs__group_op_pending_begin(op, multi_try_done);
    for (size_t i = from, end; i < to; i = end) {
        end = dibs__members_same_server_end(op, i, to);
        try_same_server(op, i, end, on_caller_thread && end == to);
    }
    dibs__group_op_pending_end(op);
}

static void multi_try_again(struct dibs__group_op *op)
{
    if (!fail_if_past_deadline(op))
        multi_try_rest(op);
}

/* Backs off while blocked by a lost hold: no message announces its release. */
static void multi_back_off(struct dibs__group_op *op)
{
    int64_t ms = dibs__backoff(&op->multi.backoff_ms, LOST_HOLD_MIN_MS,
                               LOST_HOLD_MAX_MS);

    ms = dibs__min(ms, dibs__max(op->deadline - dibs__now_ms(), 0));
    dibs__group_op_timer_start(op, ms, multi_try_again);
}

/* ---- waiting ----------------------------------------------------------- */

static void multi_wait_done(struct dibs__group_op *op)
{
    struct dibs__member_op *m = &op->member_ops[op->multi.held];

    dibs__lock(&op->g->mu);
    dibs_err err = m->err, stopped = op->err;
    bool blocked_by_lost_hold = m->blocked_by_lost_hold;
    bool retryable = err == DIBS_ERR_TIMEOUT || is_multi_retryable(op, m);
    if (err == DIBS_ERR_TIMEOUT) /* the server's last answer */
        op->level->members[m->index].err = DIBS_ERR_BUSY;
    dibs__unlock(&op->g->mu);
    if (stopped) {
        release_and_fail(op, stopped);
    } else if (err == DIBS_OK) {
        op->multi.held++;
        op->multi.try_end = op->g->n;
        if (op->multi.held == op->multi.try_end)
            multi_commit(op);
        else
            multi_try_again(op);
    } else if (retryable && blocked_by_lost_hold &&
               dibs__now_ms() < op->deadline) {
        multi_start_over(op, multi_back_off);
    } else if (retryable && dibs__now_ms() < op->deadline) {
        multi_start_over(op, multi_try_again);
    } else {
        release_and_fail(op, blocked_by_lost_hold ? DIBS_ERR_TIMEOUT : err);
    }
}

static void wait_for_next(struct dibs__group_op *op)
{
    bool several_servers =
        dibs__members_same_server_end(op, 0, op->g->n) < op->g->n;
    int64_t until = op->deadline;

    if (fail_if_past_deadline(op))
        return;
    if (op->multi.held > 0 && several_servers)
        until = dibs__min(until, dibs__now_ms() +
                                     dibs__random_in(HOLD_AND_WAIT_MIN_MS,
                                                     HOLD_AND_WAIT_MAX_MS));
    dibs__group_op_pending_begin(op, multi_wait_done);
    dibs__member_op_wait(op, op->multi.held, until);
    dibs__group_op_pending_end(op);
}

/* ---- start ------------------------------------------------------------- */

static void multi_start_over(struct dibs__group_op *op,
                             void (*next)(struct dibs__group_op *))
{
    if (!dibs__group_level_new_loss(op->level)) {
        release_and_fail(op, DIBS_ERR_NOMEM);
        return;
    }
    op->multi.held = 0;
    op->multi.try_end = op->g->n;
    release_from(op, 0, next);
}

void dibs__multi_start(struct dibs__group_op *op)
{
    op->multi.try_end = op->g->n;
    dibs__lock(&op->g->mu);
    for (size_t i = 0; i < op->g->n; i++)
        op->level->members[i].err = DIBS_ERR_CANCELED; /* not tried yet */
    dibs__unlock(&op->g->mu);
    multi_try_rest(op);
}
