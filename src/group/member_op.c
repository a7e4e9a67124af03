/* SPDX-License-Identifier: MIT
 *
 * member_op.c - one member's operation within a group operation.
 *
 * Thread  any.
 * Locks   group.mu, never while an operation is started or a callback called.
 *
 * How     A member operation is an ordinary operation on the member's lock. Its
 *         client is entered before it is started, so that the client cannot
 *         close in between; a client that is closing answers CLOSED.
 *
 *         Either the group operation's next step waits for the member
 *         operation, or it is detached: no step waits, and what it acquired is
 *         released when its reply arrives.
 *
 *         Members of one client, and in a cluster of one slot, are sent in one
 *         command where possible. A sync caller of a quorum lock sends to all
 *         servers and reads the replies on its own thread (fan-out), without
 *         waking another. A member whose server was slow is sent on the io
 *         thread the next time, so that it does not delay the others.
 *
 * States  state        event                                  next
 *         IDLE         its acquire is sent                    ACQUIRING
 *         ACQUIRING    granted                                ACQUIRED
 *                      refused, or no reply                   IDLE
 *         ACQUIRED     its server is not known (quorum)       IDENTIFYING
 *                      the group acquire succeeds: the level
 *                      has the hold                           IDLE
 *                      the group acquire fails                RELEASING
 *         IDENTIFYING  a reply, or none in time               ACQUIRED
 *         RELEASING    a reply, or none in time               IDLE
 */
#include "base/mem.h"
#include "group/group_op.h"

#include <string.h>

#define SLOW_MS 10 /* a server that replies later is slow */

/* ---- other group operations of the owner ------------------------------- */

/* Returns whether an active level of the owner has a hold of member i. */
static bool is_in_level(struct dibs__group_op *op, size_t i) REQUIRES(op->g->mu)
{
    struct dibs__list *levels = &op->g->levels;

    for (struct dibs__list *l = levels->next; l != levels; l = l->next) {
        const struct dibs__group_level *lv =
            DIBS_OF(l, struct dibs__group_level, link);
        if (lv->owner == op->o.owner && lv->members[i].acquired)
            return true;
    }
    return false;
}

/* Returns whether another acquire of the owner has member i in flight or has
 * yet to release it. A hold granted to that acquire belongs to no level. */
static bool is_in_other_op(struct dibs__group_op *op, size_t i)
    REQUIRES(op->g->mu)
{
    struct dibs__group_op *other_op = NULL;

    while ((other_op = dibs__group_ops_next(op->g, op->o.owner, other_op)))
        if (other_op != op && other_op->member_ops[i].state != MEMBER_IDLE)
            return true;
    return false;
}

/* LOST is reported only for a hold of a level. If the lost hold belongs to
 * another acquire of the owner, the verdict is BUSY: that acquire releases it.
 */
static dibs_err acquire_verdict(struct dibs__group_op *op,
                                struct dibs__member_op *m, dibs_err err)
    REQUIRES(op->g->mu)
{
    m->blocked_by_lost_hold =
        err == DIBS_ERR_LOST && !is_in_level(op, m->index) &&
        (m->concurrent_acquire || is_in_other_op(op, m->index));
    return m->blocked_by_lost_hold ? DIBS_ERR_BUSY : err;
}

/* ---- end --------------------------------------------------------------- */

/* Keeps the operation's reason, unless the operation only rolls back a failed
 * acquire. */
static void keep_error_text(struct dibs__member_op *m, bool rolls_back)
{
    struct dibs__reason *text = m->lock_op.error_text;

    m->lock_op.error_text = NULL;
    if (!rolls_back) {
        dibs__free(m->error_text);
        m->error_text = text;
    } else {
        dibs__free(text);
    }
}

static void member_op_ended(struct dibs__member_op *m, dibs_err err,
                            bool is_acquire)
{
    struct dibs__group_op *op = m->group_op;

    dibs__lock(&op->g->mu);
    bool detached = m->detached;
    if (is_acquire)
        err = acquire_verdict(op, m, err);
    m->detached = false;
    m->state = is_acquire && err == DIBS_OK ? MEMBER_ACQUIRED : MEMBER_IDLE;
    m->err = err;
    keep_error_text(m, !is_acquire && !op->releasing);
    if (is_acquire)
        op->level->members[m->index].err = err;
    dibs__unlock(&op->g->mu);
    if (op->member_ended)
        op->member_ended(op, m, detached);
    dibs__group_op_pending_done(op, detached);
}

/* Ends an operation that was not sent. */
static void member_op_refuse(struct dibs__member_op *m, dibs_err err)
{
    struct dibs__group_op *op = m->group_op;

    dibs__lock(&op->g->mu);
    if (!op->releasing && op->level->members[m->index].err != DIBS_OK)
        op->level->members[m->index].err = err;
    dibs__unlock(&op->g->mu);
    member_op_ended(m, err, false);
}

static void member_acquire_ended(struct dibs__operation *lock_op)
{
    struct dibs__member_op *m =
        DIBS_OF(lock_op, struct dibs__member_op, lock_op);
    struct dibs__member *member = &m->group_op->g->members[m->index];

    if (atomic_load(&member->slow) &&
        dibs__now_ms() - lock_op->command.sent_ms < SLOW_MS)
        atomic_store(&member->slow, false);
    member_op_ended(m, lock_op->err, true);
}

static void member_release_ended(struct dibs__operation *lock_op)
{
    struct dibs__member_op *m =
        DIBS_OF(lock_op, struct dibs__member_op, lock_op);

    member_op_ended(m, lock_op->err, false);
}

/* ---- start ------------------------------------------------------------- */

/* Returns the member's lock operation, to be filled; the caller must then call
 * member_op_send or member_op_fail. Returns NULL if the group operation is
 * stopping or the client is closing; the member operation has ended then. */
static struct dibs__operation *member_op_begin(struct dibs__group_op *op,
                                               size_t i,
                                               enum dibs__member_state state,
                                               bool detached)
{
    struct dibs__member_op *m = &op->member_ops[i];
    const struct dibs__member *member = &op->g->members[i];
    dibs_err err = dibs__client_enter(member->c);
    bool entered = err == DIBS_OK, is_acquire = state == MEMBER_ACQUIRING;

    dibs__group_op_ref(op);
    dibs__lock(&op->g->mu);
    op->pending += !detached;
    m->detached = detached;
    m->concurrent_acquire = is_acquire && is_in_other_op(op, i);
    if (is_acquire && op->quorum.unstarted > 0)
        op->quorum.unstarted--;
    /* Once the state is ACQUIRING, cancel_op cancels the waiter. */
    if (is_acquire && op->err != DIBS_OK)
        err = op->err;
    m->state = err == DIBS_OK ? state : MEMBER_IDLE;
    memset(&m->lock_op, 0, sizeof m->lock_op);
    m->lock_op.args.entry = member->entry;
    m->lock_op.entry = member->entry;
    dibs__unlock(&op->g->mu);
    if (err == DIBS_OK) {
        dibs__entry_ref(member->entry);
        return &m->lock_op;
    }
    if (entered)
        dibs__client_leave(member->c);
    member_op_refuse(m, err);
    return NULL;
}

/* Ends an operation that member_op_begin returned and that cannot be sent. */
static void member_op_fail(struct dibs__group_op *op, size_t i, dibs_err err)
{
    const struct dibs__member *member = &op->g->members[i];

    dibs__loss_notification_free(op->member_ops[i].lock_op.notification);
    dibs__entry_unref(member->entry);
    dibs__client_leave(member->c);
    member_op_refuse(&op->member_ops[i], err);
}

static void member_op_send(struct dibs__group_op *op, size_t i,
                           struct dibs__batch *batch,
                           struct dibs__fanout *fanout,
                           void (*ended)(struct dibs__operation *))
{
    struct dibs__operation *lock_op = &op->member_ops[i].lock_op;

    lock_op->group_level = op->level;
    lock_op->batch = batch;
    lock_op->on_ended = ended;
    if (fanout && !atomic_load(&op->g->members[i].slow)) {
        lock_op->on_caller_thread = true;
        lock_op->sent_on_caller_thread = &fanout->sent[i];
    }
    dibs__op_begin(lock_op);
    dibs__client_leave(op->g->members[i].c);
}

static void member_op_acquire(struct dibs__group_op *op, size_t i, bool trying,
                              int64_t until, struct dibs__batch *batch,
                              struct dibs__fanout *fanout)
{
    dibs_lock_opts o = op->o;
    struct dibs__operation *lock_op =
        member_op_begin(op, i, MEMBER_ACQUIRING, false);

    if (!lock_op)
        return;
    o.on_lost = NULL; /* the level's loss listener calls it */
    dibs_err err = dibs__acquire_fill(lock_op, &o, trying);
    if (err == DIBS_OK && op->level->loss) {
        err = dibs__callbacks_ensure_thread(&op->g->members[i].c->callbacks);
        lock_op->notification =
            err ? NULL : dibs__loss_notification_new(op->level->loss, i);
        if (!lock_op->notification)
            err = DIBS_ERR_NOMEM;
    }
    if (err != DIBS_OK) {
        member_op_fail(op, i, err);
        return;
    }
    if (!trying)
        lock_op->waiter.deadline = until;
    else if (!op->no_wait) /* it may queue behind another operation */
        lock_op->waiter.deadline =
            dibs__min(lock_op->waiter.deadline, op->deadline);
    lock_op->provisional_renewal = op->multi.provisional;
    member_op_send(op, i, batch, fanout, member_acquire_ended);
}

void dibs__member_op_try(struct dibs__group_op *op, size_t i,
                         struct dibs__batch *batch, struct dibs__fanout *fanout)
{
    member_op_acquire(op, i, true, INT64_MAX, batch, fanout);
}

void dibs__member_op_wait(struct dibs__group_op *op, size_t i, int64_t until)
{
    member_op_acquire(op, i, false, until, NULL, NULL);
}

void dibs__member_op_release(struct dibs__group_op *op, size_t i,
                             struct dibs__batch *batch,
                             struct dibs__fanout *fanout, bool detached)
{
    dibs_lock_opts o = op->o;
    struct dibs__operation *lock_op =
        member_op_begin(op, i, MEMBER_RELEASING, detached);

    if (!lock_op)
        return;           /* a client that closes releases its holds itself */
    if (!op->releasing) { /* a rollback: these options are the acquire's */
        o.wait_ms = o.keep_ms = 0;
        o.leave = false;
    }
    dibs__release_fill(lock_op, &o, false);
    if (!op->releasing) /* the caller of a failed acquire waits for it */
        lock_op->waiter.deadline =
            dibs__now_ms() + op->g->members[i].c->to.command_timeout_ms;
    member_op_send(op, i, batch, fanout, member_release_ended);
}

/* ---- fan-out ----------------------------------------------------------- */

void dibs__fanout_begin(struct dibs__group_op *op, struct dibs__fanout *fanout)
{
    for (size_t i = 0; i < op->g->n; i++) {
        fanout->entered[i] = dibs__client_enter(op->g->members[i].c) == DIBS_OK;
        fanout->sent[i] = false;
    }
}

void dibs__fanout_collect(struct dibs__group_op *op,
                          struct dibs__fanout *fanout)
{
    int64_t until = dibs__now_ms() + SLOW_MS;

    for (size_t i = 0; i < op->g->n; i++)
        if (fanout->sent[i] &&
            !dibs__command_recv_sync(&op->member_ops[i].lock_op.command, until))
            atomic_store(&op->g->members[i].slow, true);
    for (size_t i = 0; i < op->g->n; i++)
        if (fanout->entered[i])
            dibs__client_leave(op->g->members[i].c);
}

size_t dibs__members_same_server_end(const struct dibs__group_op *op,
                                     size_t from, size_t to)
{
    const struct dibs__member *first = &op->g->members[from];
    size_t end = from + 1;

    while (end < to && op->g->members[end].c == first->c &&
           op->g->members[end].entry->hash_slot == first->entry->hash_slot)
        end++;
    return end;
}

/* ---- release ----------------------------------------------------------- */

bool dibs__member_op_claim_release(struct dibs__group_op *op, size_t i)
{
    struct dibs__member_op *m = &op->member_ops[i];

    if (m->state != MEMBER_ACQUIRED)
        return false;
    m->state = MEMBER_RELEASING;
    m->detached = true; /* until dibs__member_op_release */
    return true;
}

static bool claim_release(struct dibs__group_op *op, size_t i)
{
    dibs__lock(&op->g->mu);
    bool claimed = dibs__member_op_claim_release(op, i);
    dibs__unlock(&op->g->mu);
    return claimed;
}

static size_t count_acquired(struct dibs__group_op *op, size_t from, size_t to)
{
    size_t n = 0;

    dibs__lock(&op->g->mu);
    for (size_t i = from; i < to; i++)
        n += op->member_ops[i].state == MEMBER_ACQUIRED;
    dibs__unlock(&op->g->mu);
    return n;
}

/* Releases members on one server, in one command if there are several. */
static void release_same_server(struct dibs__group_op *op, size_t from,
                                size_t to, bool on_caller_thread)
{
    size_t n = count_acquired(op, from, to);
    dibs_client *c = op->g->members[from].c;
    bool entered = dibs__client_enter(c) == DIBS_OK;
    struct dibs__batch *b =
        entered && n > 1 ? dibs__batch_new(VERB_RELEASE, n) : NULL;

    for (size_t i = from; i < to; i++)
        if (claim_release(op, i))
            dibs__member_op_release(op, i, b, NULL, false);
    if (b && dibs__batch_count(b) > 0)
        dibs__batch_send(b, on_caller_thread);
    else
        dibs__free(b);
    if (entered)
        dibs__client_leave(c);
}

void dibs__members_release(struct dibs__group_op *op, size_t from, size_t to,
                           bool on_caller_thread)
{
    for (size_t i = from, end; i < to; i = end) {
        end = dibs__members_same_server_end(op, i, to);
        release_same_server(op, i, end, on_caller_thread && end == to);
    }
}

void dibs__members_release_fanout(struct dibs__group_op *op)
{
    struct dibs__fanout fanout;

    dibs__fanout_begin(op, &fanout);
    for (size_t i = 0; i < op->g->n; i++)
        if (claim_release(op, i))
            dibs__member_op_release(op, i, NULL, &fanout, false);
    dibs__fanout_collect(op, &fanout);
}
