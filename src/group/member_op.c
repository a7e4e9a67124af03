/* SPDX-License-Identifier: MIT
 *
 * member_op.c - one member's part in an operation on several locks.
 *
 * Thread  any.
 * Locks   group.mu, never while anything is started or told.
 *
 * How     A part is an ordinary operation on the member's lock. Before it is
 *         started its client is entered, so the client cannot close in between;
 *         a client that is closing answers CLOSED.
 *
 *         The step of the whole waits for a part, or the part is detached: then
 *         nobody waits, and what it took is given back when it has ended.
 *
 *         Members of one client, and in a cluster of one slot, go in one
 *         command where that is possible. A sync caller of a quorum sends to
 *         all servers itself and then reads the replies (scatter): no other
 *         thread is woken. A server that was slow goes to the io thread the
 *         next time, so that others are not kept waiting.
 *
 * States  state      what can happen                         next
 *         FREE       it is asked for                         ASKING
 *         ASKING     it was taken                            TAKEN
 *                    it was not                              FREE
 *         TAKEN      its server is not known (quorum)        CHECKING
 *                    the whole succeeds: a level has it      FREE
 *                    the whole does not                      RETURNING
 *         CHECKING   the server has answered, or will not    TAKEN
 *         RETURNING  the server has answered, or will not    FREE
 */
#include "base/mem.h"
#include "group/group_op.h"

#include <string.h>

#define SLOW_MS 10 /* a server that takes longer is slow */

/* ---- other acquires of the owner --------------------------------------- */

/* A hold of the member that its owner has as part of the group. */
static bool is_in_level(struct dibs__group_op *op, size_t i) REQUIRES(op->g->mu)
{
    struct dibs__list *levels = &op->g->levels;

    for (struct dibs__list *l = levels->next; l != levels; l = l->next) {
        const struct dibs__group_level *lv =
            DIBS_OF(l, struct dibs__group_level, link);
        if (lv->owner == op->o.owner && lv->members[i].got)
            return true;
    }
    return false;
}

/* Another acquire of the owner asks for the member, or has still to give it
 * back. What that one was granted counts for nobody. */
static bool is_in_other_op(struct dibs__group_op *op, size_t i)
    REQUIRES(op->g->mu)
{
    struct dibs__group_op *other = NULL;

    while ((other = dibs__group_ops_next(op->g, op->o.owner, other)))
        if (other != op && other->m[i].state != MEMBER_FREE)
            return true;
    return false;
}

/* LOST is about a hold that the owner knows of. If another acquire of the owner
 * had the hold, the member is busy: that acquire gives it back. */
static dibs_err acquire_verdict(struct dibs__group_op *op,
                                struct dibs__member_op *m, dibs_err err)
    REQUIRES(op->g->mu)
{
    m->in_way = err == DIBS_ERR_LOST && !is_in_level(op, m->index) &&
                (m->shared || is_in_other_op(op, m->index));
    return m->in_way ? DIBS_ERR_BUSY : err;
}

/* ---- the end of one ---------------------------------------------------- */

/* asked: it was an acquire. */
static void member_op_ended(struct dibs__member_op *m, dibs_err err, bool asked)
{
    struct dibs__group_op *op = m->group_op;

    dibs__lock(&op->g->mu);
    bool detached = m->detached;
    if (asked)
        err = acquire_verdict(op, m, err);
    m->detached = false;
    m->state = asked && err == DIBS_OK ? MEMBER_TAKEN : MEMBER_FREE;
    m->err = err;
    dibs__member_op_keep_reason(op, m, asked || op->releasing);
    if (asked)
        op->level->members[m->index].err = err;
    dibs__unlock(&op->g->mu);
    if (op->member_ended)
        op->member_ended(op, m, detached);
    dibs__group_op_done(op, detached);
}

/* It did not even begin. */
static void member_op_refused(struct dibs__member_op *m, dibs_err err)
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
    struct dibs__member_op *m = DIBS_OF(lock_op, struct dibs__member_op, op);
    struct dibs__member *member = &m->group_op->g->members[m->index];

    if (atomic_load(&member->slow) &&
        dibs__now_ms() - lock_op->command.sent_ms < SLOW_MS)
        atomic_store(&member->slow, false);
    member_op_ended(m, lock_op->err, true);
}

static void member_return_ended(struct dibs__operation *lock_op)
{
    struct dibs__member_op *m = DIBS_OF(lock_op, struct dibs__member_op, op);

    member_op_ended(m, lock_op->err, false);
}

/* ---- the beginning of one ---------------------------------------------- */

/* NULL: the whole is stopping, or its client is closing; it has ended.
 * Otherwise dibs__client_leave must follow. */
static struct dibs__operation *member_op_begin(struct dibs__group_op *op,
                                               size_t i,
                                               enum dibs__member_state state,
                                               bool detached)
{
    struct dibs__member_op *m = &op->m[i];
    const struct dibs__member *member = &op->g->members[i];
    dibs_err err = dibs__client_enter(member->c);
    bool inside = err == DIBS_OK, asks = state == MEMBER_ASKING;

    dibs__group_op_ref(op);
    dibs__lock(&op->g->mu);
    op->pending += !detached;
    m->detached = detached;
    m->shared = asks && is_in_other_op(op, i);
    if (asks && op->quorum.to_ask > 0)
        op->quorum.to_ask--;
    if (asks && op->err != DIBS_OK) /* from now on a stop reaches it */
        err = op->err;
    m->state = err == DIBS_OK ? state : MEMBER_FREE;
    memset(&m->op, 0, sizeof m->op);
    m->op.args.entry = member->entry;
    m->op.entry = member->entry;
    dibs__unlock(&op->g->mu);
    if (err == DIBS_OK) {
        dibs__entry_ref(member->entry);
        return &m->op;
    }
    if (inside)
        dibs__client_leave(member->c);
    member_op_refused(m, err);
    return NULL;
}

/* One that has begun cannot go on. */
static void member_op_fail(struct dibs__group_op *op, size_t i, dibs_err err)
{
    const struct dibs__member *member = &op->g->members[i];

    dibs__loss_notification_free(op->m[i].op.notification);
    dibs__entry_unref(member->entry);
    dibs__client_leave(member->c);
    member_op_refused(&op->m[i], err);
}

static void member_op_send(struct dibs__group_op *op, size_t i,
                           struct dibs__batch *batch, struct dibs__fanout *sc,
                           void (*ended)(struct dibs__operation *))
{
    struct dibs__operation *lock_op = &op->m[i].op;

    lock_op->group_level = op->level;
    lock_op->batch = batch;
    lock_op->ended = ended;
    if (sc && !atomic_load(&op->g->members[i].slow)) {
        lock_op->on_caller_thread = true;
        lock_op->sent = &sc->asked[i];
    }
    dibs__op_begin(lock_op);
    dibs__client_leave(op->g->members[i].c);
}

static void member_op_acquire(struct dibs__group_op *op, size_t i, bool trying,
                              int64_t until, struct dibs__batch *batch,
                              struct dibs__fanout *sc)
{
    dibs_lock_opts o = op->o;
    struct dibs__operation *lock_op =
        member_op_begin(op, i, MEMBER_ASKING, false);

    if (!lock_op)
        return;
    o.on_lost = NULL; /* the group's own note instead */
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
    else if (!op->no_wait) /* it may have to wait for another call */
        lock_op->waiter.deadline =
            dibs__min(lock_op->waiter.deadline, op->deadline);
    lock_op->provisional_renewal = op->multi.kept;
    member_op_send(op, i, batch, sc, member_acquire_ended);
}

void dibs__member_op_try(struct dibs__group_op *op, size_t i,
                         struct dibs__batch *batch, struct dibs__fanout *sc)
{
    member_op_acquire(op, i, true, INT64_MAX, batch, sc);
}

void dibs__member_op_wait(struct dibs__group_op *op, size_t i, int64_t until)
{
    member_op_acquire(op, i, false, until, NULL, NULL);
}

void dibs__member_op_return(struct dibs__group_op *op, size_t i,
                            struct dibs__batch *batch, struct dibs__fanout *sc,
                            bool detached)
{
    dibs_lock_opts o = op->o;
    struct dibs__operation *lock_op =
        member_op_begin(op, i, MEMBER_RETURNING, detached);

    if (!lock_op)
        return;           /* a client that closes gives it back itself */
    if (!op->releasing) { /* they were meant for the acquire */
        o.wait_ms = o.keep_ms = 0;
        o.leave = false;
    }
    dibs__release_fill(lock_op, &o, false);
    if (!op->releasing) /* its caller has waited long enough */
        lock_op->waiter.deadline =
            dibs__now_ms() + op->g->members[i].c->to.command_timeout_ms;
    member_op_send(op, i, batch, sc, member_return_ended);
}

/* ---- several at once --------------------------------------------------- */

void dibs__fanout_begin(struct dibs__group_op *op, struct dibs__fanout *sc)
{
    for (size_t i = 0; i < op->g->n; i++) {
        sc->entered[i] = dibs__client_enter(op->g->members[i].c) == DIBS_OK;
        sc->asked[i] = false;
    }
}

void dibs__fanout_collect(struct dibs__group_op *op, struct dibs__fanout *sc)
{
    int64_t until = dibs__now_ms() + SLOW_MS;

    for (size_t i = 0; i < op->g->n; i++)
        if (sc->asked[i] &&
            !dibs__command_recv_sync(&op->m[i].op.command, until))
            atomic_store(&op->g->members[i].slow, true);
    for (size_t i = 0; i < op->g->n; i++)
        if (sc->entered[i])
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

/* ---- giving back ------------------------------------------------------- */

bool dibs__member_op_take(struct dibs__group_op *op, size_t i)
{
    struct dibs__member_op *m = &op->m[i];

    if (m->state != MEMBER_TAKEN)
        return false;
    m->state = MEMBER_RETURNING;
    m->detached = true; /* until it has begun */
    return true;
}

static bool take_member(struct dibs__group_op *op, size_t i)
{
    dibs__lock(&op->g->mu);
    bool took = dibs__member_op_take(op, i);
    dibs__unlock(&op->g->mu);
    return took;
}

static size_t count_taken(struct dibs__group_op *op, size_t from, size_t to)
{
    size_t n = 0;

    dibs__lock(&op->g->mu);
    for (size_t i = from; i < to; i++)
        n += op->m[i].state == MEMBER_TAKEN;
    dibs__unlock(&op->g->mu);
    return n;
}

/* Members of one place, in one command if there are several. */
static void return_place(struct dibs__group_op *op, size_t from, size_t to,
                         bool direct)
{
    size_t n = count_taken(op, from, to);
    dibs_client *c = op->g->members[from].c;
    bool inside = dibs__client_enter(c) == DIBS_OK;
    struct dibs__batch *b =
        inside && n > 1 ? dibs__batch_new(VERB_RELEASE, n) : NULL;

    for (size_t i = from; i < to; i++)
        if (take_member(op, i))
            dibs__member_op_return(op, i, b, NULL, false);
    if (b && dibs__batch_count(b) > 0)
        dibs__batch_send(b, direct);
    else
        dibs__free(b);
    if (inside)
        dibs__client_leave(c);
}

void dibs__members_return(struct dibs__group_op *op, size_t from, size_t to,
                          bool direct)
{
    for (size_t i = from, end; i < to; i = end) {
        end = dibs__members_same_server_end(op, i, to);
        return_place(op, i, end, direct && end == to);
    }
}

void dibs__members_return_fanout(struct dibs__group_op *op)
{
    struct dibs__fanout sc;

    dibs__fanout_begin(op, &sc);
    for (size_t i = 0; i < op->g->n; i++)
        if (take_member(op, i))
            dibs__member_op_return(op, i, NULL, &sc, false);
    dibs__fanout_collect(op, &sc);
}
