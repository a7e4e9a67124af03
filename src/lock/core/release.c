/* SPDX-License-Identifier: MIT
 *
 * release.c - giving a lock back, or to the next owner of this client.
 *
 * Thread  app for a sync call, io for all else.
 * Locks   line.mu.
 *
 * How     One of several levels: one command, the lock stays. The last level:
 *         if a call waits here, one script moves the lock from the old owner to
 *         the next and renews it; other clients see it held all the time. If
 *         none waits, or after so many hand-overs that other clients must have
 *         their turn, the lock is freed and they are told. Then the line here
 *         does not ask for a moment.
 *
 *         Renewal ends before the command is sent: a renewal must not outlive
 *         its lock.
 *
 * Trouble No answer: the lock is not ours any more, whatever the server thinks;
 *         the reaper goes on freeing it. If the lock was on its way to a waiter
 *         here, that one waits on under another number, since the old number
 *         may yet be given the lock.
 *
 *         The next owner keeps its own deadline (lock_waiter.c), and may have
 *         left by the time of the answer. Then a number has the lock that is
 *         not used any more, and the reaper takes that back.
 */
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"

#define HANDOVERS_MAX    64
#define HANDOVERS_MAX_MS 200
#define YIELD_MIN_MS     2 /* by a clock that may be just about to tick */
#define YIELD_MAX_MS     3
#define LOOK_AROUND      32 /* one of so many holds names no other holder */

static bool read_count(const struct dibs__reply *reply, dibs_err *err,
                       int64_t *out)
{
    if (*err == DIBS_OK && reply->type != REPLY_NUM)
        *err = DIBS_ERR_PROTOCOL;
    if (*err == DIBS_OK)
        *out = reply->num;
    return *err == DIBS_OK;
}

/* ---- one level of several ---------------------------------------------- */

static void partial_answered(struct dibs__command *call, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(call, struct dibs__operation, call);
    struct dibs__lock_entry *line = op->line;
    struct dibs__hold *h = op->hold;
    int64_t n = 0;

    bool answered = read_count(reply, &err, &n);
    dibs__lock(&line->mu);
    h->tainted |= call->ghost || call->partly || err == DIBS_ERR_UNKNOWN;
    if (answered && n < 0) {
        dibs__hold_suppress_loss(h, op->with); /* this call tells */
        dibs__hold_lose(line, h);
        err = DIBS_ERR_LOST;
    }
    if (!answered && dibs__hold_has_expired(h, dibs__now_ms())) {
        dibs__hold_suppress_loss(h, op->with);
        dibs__hold_expire_locally(line, h);
    }
    /* Unknown counts as done: the next command says how many there shall be.
     * So does a refusal for a group, which does not ask again. */
    if (answered || err == DIBS_ERR_UNKNOWN || h->state == HOLD_LOST ||
        op->ended)
        dibs__op_drop_level(op, h);
    else
        dibs__hold_suppress_loss(
            h, op->with); /* what on_lost is given may go now */
    if (h->state != HOLD_LOST)
        dibs__hold_confirm(line, h);
    else
        err = DIBS_ERR_LOST;
    dibs__unlock(&line->mu);
    dibs__op_end_busy(op, err);
}

/* ---- the last one ------------------------------------------------------ */

/* The lock is free, as far as we know. If other clients heard that, they come
 * first; else the line here may ask. */
static void yield_to_others(struct dibs__lock_entry *line, int64_t heard)
    REQUIRES(line->mu)
{
    int64_t now = dibs__now_ms();

    line->handed = 0;
    line->handed_since = (uint32_t)now;
    /* The script leaves out the listener. */
    bool self = dibs__wait_queue_is_passive_listener(&line->wait, now);
    if (heard > (self ? 1 : 0))
        line->wait.yield_until =
            now + dibs__random_in(YIELD_MIN_MS, YIELD_MAX_MS);
    dibs__wait_queue_wake_head(&line->wait);
}

/* The hold is over. Calls that waited for it to be idle go to `blocked`. */
static void end_hold(struct dibs__lock_entry *line, struct dibs__operation *op,
                     struct dibs__list *blocked) REQUIRES(line->mu)
{
    op->tainted |= op->hold->tainted;
    dibs__wait_queue_unblock(&line->wait, &op->hold->blocked, blocked);
    dibs__op_drop_level(op, op->hold);
    dibs__hold_free(line, op->hold);
    op->hold = NULL;
}

/* Before the hold is over: the next call of the same owner must not go by a
 * number under which a copy of this release may still run. */
static void note_ghosts(struct dibs__operation *op, bool tainted)
{
    dibs__lock(&op->line->mu);
    /* A renewal that runs after a release that was answered finds nothing. */
    bool unsure = dibs__hold_in_doubt(op->hold);
    op->tainted |= tainted || op->hold->tainted || (unsure && op->ask.keep_ms);
    dibs__unlock(&op->line->mu);
    enum dibs__renumber how = op->ask.keep_ms ? RENUMBER_LEFT : RENUMBER_REAP;
    if (op->tainted || unsure || op->ask.keep_ms)
        dibs__owner_retire(op->line, op->owner, op->wire, how);
}

static void last_answered(struct dibs__command *call, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(call, struct dibs__operation, call);
    struct dibs__lock_entry *line = op->line;
    struct dibs__list blocked = {&blocked, &blocked};
    int64_t n = 0;

    bool answered = read_count(reply, &err, &n);
    bool unheard = answered && n == SCRIPT_NO_LISTENER;
    if (unheard)
        n = SCRIPT_FREED;
    bool sure = answered && (n > 0 || !call->again);
    if (answered && n < 0 && !call->again)
        err = DIBS_ERR_LOST;
    if (err != DIBS_OK && !reply)
        err = DIBS_ERR_UNKNOWN; /* not sent, or "not now": it is the same */
    note_ghosts(op, call->ghost || !sure);
    dibs__lock(&line->mu);
    end_hold(line, op, &blocked);
    yield_to_others(line, n - 1);
    dibs__unlock(&line->mu);
    if (unheard || (line->kind->queued && n > 1))
        dibs__fair_queue_gc(line, !unheard);
    if (op->tainted)
        dibs__orphan_release_after(line, op->wire, op->reap_ms,
                                   op->ask.keep_ms);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

static void send_last(struct dibs__operation *op)
{
    op->ask.target = 0;
    dibs__op_send(op, VERB_RELEASE, last_answered,
                  op->wait.deadline - dibs__now_ms(), op->wait.deadline);
}

/* ---- handing over ------------------------------------------------------ */

static bool others_turn(const struct dibs__lock_entry *line, int64_t now)
{
    return line->handed >= HANDOVERS_MAX ||
           (line->handed > 0 &&
            (uint32_t)now - line->handed_since > HANDOVERS_MAX_MS);
}

/* The waiter that gets the lock next, or NULL. */
static struct dibs__operation *pick_next_owner(struct dibs__lock_entry *line,
                                               struct dibs__operation *op,
                                               int64_t now) REQUIRES(line->mu)
{
    struct dibs__list *first = dibs__list_first(&line->wait.waiters);

    if (!dibs__lock_type_has(line->kind, VERB_HANDOVER) || !first ||
        op->ask.keep_ms || others_turn(line, now) ||
        atomic_load(&line->locks->closing))
        return NULL;
    struct dibs__operation *next =
        DIBS_OF(first, struct dibs__operation, wait.link);
    if (next->replicas) /* they must have it, too: so it asks by itself */
        return NULL;
    if (next->wait.canceled || next->wait.state != WAITER_PARKED ||
        now >= next->wait.deadline ||
        dibs__entry_in_flight_of(line, next->owner) ||
        next->owner == op->owner || next->renumber)
        return NULL;
    return next;
}

/* While the lock is on its way to the next owner, that owner asks for nothing
 * else: it counts as asking. */
static void promise_lock(struct dibs__lock_entry *line,
                         struct dibs__operation *op) REQUIRES(line->mu)
{
    (void)dibs__entry_acquire_begin(line,
                                    op->next_owner); /* it does not ask yet */
    op->next_owner->wait.state = WAITER_HANDOFF_PENDING;
    op->next_owner->giver = op;
}

/* The answer is there: from now on the next owner stays for what follows from
 * it. NULL: it has left. */
static struct dibs__operation *claim_next_owner(struct dibs__operation *op)
{
    dibs__lock(&op->line->mu);
    struct dibs__operation *next_owner = op->next_owner;
    if (next_owner)
        next_owner->giver = NULL;
    op->next_owner = NULL;
    dibs__unlock(&op->line->mu);
    return next_owner;
}

/* The next owner has it. False: too late, or its number is retired. */
static bool give_to_next_owner(struct dibs__lock_entry *line,
                               struct dibs__operation *next_owner,
                               const struct dibs__command *call, int64_t value,
                               struct dibs__list *resume) REQUIRES(line->mu)
{
    next_owner->tainted |= call->ghost;
    if (next_owner->renumber == RENUMBER_REAP ||
        dibs__valid_until(call->sent_ms, next_owner->ask.lease_ms) <=
            dibs__now_ms())
        return false;
    dibs__list_del(&next_owner->wait.link); /* io need not hear of it */
    next_owner->wait.state = WAITER_IDLE;
    dibs__hold_taken(line, next_owner->hold, next_owner, call->sent_ms, value);
    next_owner->hold = NULL;
    line->handed++;
    dibs__stats_count(dibs__entry_client(line)->stats, STAT_HANDOVERS, 1);
    dibs__op_take_waits(line, next_owner->owner, resume);
    /* Another slot became free meanwhile, and this client was called. */
    if (line->kind->counted && line->wait.try_now)
        dibs__wait_queue_wake_head(&line->wait);
    return true;
}

/* The next owner waits on, under another number. */
static void rename_next_owner(struct dibs__operation *next_owner,
                              struct dibs__list *resume)
{
    struct dibs__lock_entry *line = next_owner->line;
    dibs_owner owner = next_owner->owner; /* kept: the op may end below */
    uint64_t old = next_owner->wire;

    dibs__owner_retire(line, owner, old, RENUMBER_REAP);
    uint64_t wire = dibs__owner_wire(line->locks, owner);
    dibs__lock(&line->mu);
    next_owner->wire = next_owner->ask.wire = wire;
    dibs__entry_acquire_done(line, next_owner, resume);
    dibs__wait_queue_wake_head(&line->wait);
    dibs__unlock(&line->mu);
    dibs__op_rename_waits(line, owner, old);
}

static void handover_lost(struct dibs__operation *op, dibs_err err)
{
    struct dibs__lock_entry *line = op->line;
    struct dibs__operation *next_owner = claim_next_owner(op);
    struct dibs__list blocked = {&blocked, &blocked};

    if (next_owner)
        rename_next_owner(next_owner, &blocked);
    note_ghosts(op, true);
    dibs__lock(&line->mu);
    end_hold(line, op, &blocked);
    yield_to_others(line, 0);
    dibs__unlock(&line->mu);
    dibs__orphan_release(line, op->ask.next_owner, op->ask.lease_ms);
    dibs__op_disown(op);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

/* moved: the next owner's number has the lock. If nobody goes by it any more,
 * the reaper frees the lock, and the next waiter asks right behind it. Not
 * moved, but an earlier copy may have moved it: it is not ours, as wanted. */
static void handover_done(struct dibs__operation *op,
                          const struct dibs__acquired *got)
{
    bool moved = got->verdict == RESULT_ACQUIRED;
    struct dibs__lock_entry *line = op->line;
    struct dibs__operation *next_owner = claim_next_owner(op);
    bool unsure = !moved && op->call.again;
    bool taken = false;
    struct dibs__list blocked = {&blocked, &blocked};

    note_ghosts(op, op->call.ghost || unsure);
    dibs__lock(&line->mu);
    if (next_owner) {
        dibs__entry_acquire_done(line, next_owner, &blocked);
        taken = moved && give_to_next_owner(line, next_owner, &op->call,
                                            got->value, &blocked);
    }
    bool gone = !next_owner || next_owner->renumber == RENUMBER_REAP;
    if (gone && (moved || unsure || op->call.ghost))
        dibs__orphan_release(line, op->ask.next_owner, op->ask.lease_ms);
    end_hold(line, op, &blocked);
    if (!taken)
        yield_to_others(line, 0);
    dibs__unlock(&line->mu);
    if (op->tainted)
        dibs__op_disown(op);
    if (taken)
        dibs__op_finish(next_owner, DIBS_OK);
    dibs__op_finish(op, moved || unsure ? DIBS_OK : DIBS_ERR_LOST);
    dibs__op_resume(&blocked);
}

static void handover_answered(struct dibs__command *call, dibs_err err,
                              const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(call, struct dibs__operation, call);
    struct dibs__acquired got = {.err = err};

    if (err == DIBS_OK)
        op->line->kind->read(VERB_HANDOVER, reply, &got);
    if (err == DIBS_OK && got.verdict != RESULT_REFUSED) {
        handover_done(op, &got);
        return;
    }
    err = got.err;
    if (reply && !call->again && !call->partly) {
        /* Refused, and nothing was done (a full server, say). A release asks
         * for less. */
        struct dibs__operation *next_owner = claim_next_owner(op);
        struct dibs__list resume = {&resume, &resume};
        dibs__lock(&op->line->mu);
        if (next_owner)
            dibs__entry_acquire_done(op->line, next_owner, &resume);
        dibs__unlock(&op->line->mu);
        op->direct = false;
        send_last(op);
        dibs__op_resume(&resume);
    } else {
        handover_lost(op, reply && err != DIBS_ERR_PROTOCOL ? err
                                                            : DIBS_ERR_UNKNOWN);
    }
}

/* ---- where to start ---------------------------------------------------- */

/* The number of another who reads for at least half as long, or 0. If that one
 * lives, and for about as long as the lock, the server looks at no other. Now
 * and then it shall, to find those whose lease is over; not by turns, which
 * could be those of other locks. */
static uint64_t other_holder(const struct dibs__lock_entry *line,
                             const struct dibs__hold *mine, int64_t now)
    REQUIRES(line->mu)
{
    uint32_t chance = (uint32_t)mine->number * UINT32_C(2654435769);

    if (chance < UINT32_MAX / LOOK_AROUND)
        return 0;
    return dibs__hold_find_peer(line, mine,
                                now + (mine->valid_until - now) / 2);
}

/* The hold ends, and nothing is sent. The number is retired before the hold is
 * seen to end, so that no other call of the owner goes by it: a lost hold may
 * still be on the server, and the reaper takes that back. One that is left to
 * somebody else is the adopter's, and never reaped. */
static void retire_hold(struct dibs__operation *op, dibs_err err)
{
    struct dibs__lock_entry *line = op->line;
    struct dibs__list blocked = {&blocked, &blocked};
    bool lost = err == DIBS_ERR_LOST;

    note_ghosts(op, lost);
    dibs__lock(&line->mu);
    end_hold(line, op, &blocked);
    dibs__wait_queue_wake_head(&line->wait);
    dibs__unlock(&line->mu);
    dibs__op_rename_waits(line, op->owner, op->wire);
    if (lost)
        dibs__orphan_release(line, op->wire, op->reap_ms);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

/* Has the owner the other half, or asks for it by this number just now? It may
 * get in by what it has here. Looked at when the number is retired: then no
 * call begins any more that goes by it. */
static bool is_half_wanted(struct dibs__lock_entry *line, dibs_owner owner,
                           uint64_t wire)
{
    bool wanted = false;

    if (line->kind->family != LAYOUT_RW)
        return false;
    for (struct dibs__lock_entry *l = NULL;
         (l = dibs__entry_next_in_family(line, l));) {
        dibs__lock(&l->mu);
        const struct dibs__hold *h = dibs__hold_of(l, owner);
        wanted |= h && h->state != HOLD_ENDING &&
                  !dibs__hold_has_expired(h, dibs__now_ms());
        for (struct dibs__list *at = l->asks.next; at != &l->asks;
             at = at->next) {
            const struct dibs__operation *op =
                DIBS_OF(at, struct dibs__operation, ask_link);
            wanted |= op->wire == wire || op->ask.other == wire;
        }
        dibs__unlock(&l->mu);
    }
    return wanted;
}

static void refuse_leave(struct dibs__operation *op)
{
    dibs__op_record_error(op, DIBS_ERR_INVALID,
                          "this owner has the other half, too, or asks for it");
}

/* The hold is left to somebody else, unless its owner may get the other half by
 * it. Then it stays; a group, which does not ask again, gives it back. */
static void leave_hold(struct dibs__operation *op)
{
    struct dibs__lock_entry *line = op->line;

    dibs__owner_retire(line, op->owner, op->wire, RENUMBER_LEFT);
    if (!is_half_wanted(line, op->owner, op->wire)) {
        retire_hold(op, DIBS_OK);
    } else if (op->ended) {
        op->ask.keep_ms = 0;
        send_last(op);
    } else {
        dibs__lock(&line->mu);
        op->hold->state = HOLD_HELD;
        op->hold->doubted = true; /* what came meanwhile was not heard */
        dibs__hold_suppress_loss(op->hold, op->with);
        dibs__hold_schedule(line, op->hold, dibs__now_ms());
        dibs__unlock(&line->mu);
        refuse_leave(op);
        dibs__op_end_busy(op, DIBS_ERR_INVALID);
    }
}

enum plan { PARTIAL, LAST, HAND_OVER, LEAVE, RETIRE, WAIT, END };

/* The server may have a hold that our clock has ended for the margin still.
 * Must what its owner asks for next not find that? It would have the old token,
 * or go before others in a queue, or a writer would hear that it reads. An
 * owner of a plain lock just goes on with it. What is left is the adopter's. A
 * slot that was lost is still noted with its number, and must not seem to be
 * taken when the owner has another one. */
static bool must_end_rest(const struct dibs__lock_type *kind,
                          const struct dibs__hold *h,
                          const struct dibs__operation *op)
{
    if (op->ask.keep_ms == DETACH)
        return false;
    return kind->id == TYPE_SLOTS ||
           (h->over && (kind->queued || kind->id == TYPE_FENCED ||
                        kind->family == LAYOUT_RW));
}

/* It was lost, now or before. Each level learns of it, this one by this call.
 * With the last one the number is retired, if something may be left of it. */
static enum plan end_lost(struct dibs__lock_entry *line, struct dibs__hold *h,
                          struct dibs__operation *op) REQUIRES(line->mu)
{
    bool last = h->count == 1;

    dibs__hold_suppress_loss(h, op->with);
    dibs__hold_expire_locally(line, h);
    op->tainted |= last && dibs__hold_in_doubt(h);
    if (last && !op->tainted && must_end_rest(line->kind, h, op)) {
        op->tainted = true;
        op->reap_ms = ORPHAN_REMAINDER;
    }
    if (last && op->tainted) {
        h->busy = true;
        op->hold = h;
        return RETIRE;
    }
    dibs__op_drop_level(op, h);
    if (last)
        dibs__hold_free(line, h);
    return END;
}

/* The client has begun to close since this call began, and the close has given
 * back what there was. If that was lost, its owner must not be told any more.
 * (The callback of an async call comes after on_lost anyway.) */
static dibs_err end_closed(struct dibs__lock_entry *line,
                           struct dibs__operation *op) REQUIRES(line->mu)
{
    struct dibs__loss_listener *loss = dibs__losses_suppress(line, op->owner);

    if (op->async)
        dibs__loss_unref(loss);
    else
        op->loss = loss;
    return DIBS_ERR_CLOSED;
}

/* both: its owner has the other half of a read-write lock, too. */
static enum plan plan_release(struct dibs__lock_entry *line,
                              struct dibs__operation *op, bool both,
                              dibs_err *err) REQUIRES(line->mu)
{
    struct dibs__hold *h = dibs__hold_of(line, op->owner);
    int64_t now = dibs__now_ms();

    *err = DIBS_ERR_NOT_OWNER;
    if (!h && !op->ended && atomic_load(&line->locks->closing))
        *err = end_closed(line, op);
    if (!h)
        return END;
    if (h->busy) {
        op->batch = NULL; /* the others of the batch do not wait for it */
        dibs__wait_queue_block_on(&line->wait, &h->blocked, &op->wait);
        return WAIT;
    }
    op->wire = op->ask.wire = h->wire;
    op->reap_ms = h->valid_until - now;
    if (dibs__hold_has_expired(h, now)) {
        *err = DIBS_ERR_LOST;
        return end_lost(line, h, op);
    }
    if (op->ask.keep_ms == DETACH && h->count > 1) {
        dibs__op_drop_level(op, h);
        *err = DIBS_OK;
        return END;
    }
    if (both && op->ask.keep_ms == DETACH && !op->ended) {
        dibs__hold_suppress_loss(
            h, op->with); /* what on_lost is given may go now */
        *err = DIBS_ERR_INVALID;
        return END;
    }
    if (both)
        op->ask.keep_ms = 0; /* the other half would go on to use it */
    h->busy = true;
    op->hold = h;
    op->ask.target = h->count - 1;
    op->ask.value = h->value;
    if (op->ask.keep_ms == DETACH) {
        dibs__hold_ending(line, h);
        return LEAVE;
    }
    if (h->count > 1)
        return PARTIAL;
    dibs__hold_ending(line, h);
    if (line->kind->shared) {
        op->ask.other = other_holder(line, h, now);
        op->ask.keep_ms = 0; /* cannot be kept: others may have it, too */
    }
    op->next_owner = pick_next_owner(line, op, now);
    if (!op->next_owner)
        return LAST;
    promise_lock(line, op);
    op->ask.next_owner = op->next_owner->wire;
    op->ask.lease_ms = op->next_owner->ask.lease_ms;
    op->ask.sooner = op->ask.lease_ms < h->valid_until - now;
    return HAND_OVER;
}

void dibs__release_run(struct dibs__operation *op)
{
    struct dibs__lock_entry *line = op->line;
    int64_t within = op->wait.deadline - dibs__now_ms();
    dibs_err err;

    op->gives = true;
    bool both = op->ask.keep_ms && dibs__hold_other_mode(line, op->owner);
    dibs__lock(&line->mu);
    enum plan next = plan_release(line, op, both, &err);
    dibs__unlock(&line->mu);
    switch (next) {
    case PARTIAL:
        dibs__op_send(op, VERB_RELEASE, partial_answered, within,
                      op->wait.deadline);
        break;
    case LAST:
        if (op->ask.keep_ms) /* what is kept is nobody's */
            dibs__owner_retire(line, op->owner, op->wire, RENUMBER_LEFT);
        if (op->ask.keep_ms && is_half_wanted(line, op->owner, op->wire))
            op->ask.keep_ms = 0;
        send_last(op);
        break;
    case HAND_OVER:
        dibs__op_send(op, VERB_HANDOVER, handover_answered, within,
                      op->wait.deadline);
        break;
    case LEAVE:
        leave_hold(op);
        break;
    case RETIRE:
        retire_hold(op, err);
        break;
    case WAIT:
        break;
    case END:
        if (err == DIBS_ERR_INVALID)
            refuse_leave(op);
        dibs__op_finish(op, err);
    }
}
