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

#define HANDOFFS_MAX    64
#define HANDOFFS_MAX_MS 200
#define YIELD_MIN_MS     2 /* by a clock that may be just about to tick */
#define YIELD_MAX_MS     3
#define HINTLESS_ONE_IN      32 /* one of so many holds names no other holder */

static bool decode_release_reply(const struct dibs__reply *reply, dibs_err *err,
                       int64_t *out)
{
    if (*err == DIBS_OK && reply->type != REPLY_NUM)
        *err = DIBS_ERR_PROTOCOL;
    if (*err == DIBS_OK)
        *out = reply->num;
    return *err == DIBS_OK;
}

/* ---- one level of several ---------------------------------------------- */

static void on_partial_reply(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__hold *h = op->hold;
    int64_t n = 0;

    bool answered = decode_release_reply(reply, &err, &n);
    dibs__lock(&entry->mu);
    h->may_have_stale_copy |= cmd->maybe_live_copy || cmd->partially_executed ||
                              err == DIBS_ERR_UNKNOWN;
    if (answered && n < 0) {
        dibs__hold_suppress_loss(h, op->group_level); /* this call tells */
        dibs__hold_lose(entry, h);
        err = DIBS_ERR_LOST;
    }
    if (!answered && dibs__hold_has_expired(h, dibs__now_ms())) {
        dibs__hold_suppress_loss(h, op->group_level);
        dibs__hold_expire_locally(entry, h);
    }
    /* Unknown counts as done: the next command says how many there shall be.
     * So does a refusal for a group, which does not ask again. */
    if (answered || err == DIBS_ERR_UNKNOWN || h->state == HOLD_LOST ||
        op->ended)
        dibs__op_drop_level(op, h);
    else
        dibs__hold_suppress_loss(
            h, op->group_level); /* what on_lost is given may go now */
    if (h->state != HOLD_LOST)
        dibs__hold_confirm(entry, h);
    else
        err = DIBS_ERR_LOST;
    dibs__unlock(&entry->mu);
    dibs__op_end_busy(op, err);
}

/* ---- the last one ------------------------------------------------------ */

/* The lock is free, as far as we know. If other clients heard that, they come
 * first; else the line here may ask. */
static void end_handoffs(struct dibs__lock_entry *entry, int64_t receivers)
    REQUIRES(entry->mu)
{
    int64_t now = dibs__now_ms();

    entry->handoff_count = 0;
    entry->handoff_start_ms = (uint32_t)now;
    /* The script leaves out the listener. */
    bool self = dibs__wait_queue_is_passive_listener(&entry->wait, now);
    if (receivers > (self ? 1 : 0))
        entry->wait.backoff_until =
            now + dibs__random_in(YIELD_MIN_MS, YIELD_MAX_MS);
    dibs__wait_queue_wake_head(&entry->wait);
}

/* The hold is over. Calls that waited for it to be idle go to `blocked`. */
static void free_released_hold(struct dibs__lock_entry *entry, struct dibs__operation *op,
                     struct dibs__list *blocked) REQUIRES(entry->mu)
{
    op->may_have_stale_copy |= op->hold->may_have_stale_copy;
    dibs__wait_queue_unblock(&entry->wait, &op->hold->blocked_ops, blocked);
    dibs__op_drop_level(op, op->hold);
    dibs__hold_free(entry, op->hold);
    op->hold = NULL;
}

/* Before the hold is over: the next call of the same owner must not go by a
 * number under which a copy of this release may still run. */
static void retire_id_in_doubt(struct dibs__operation *op, bool tainted)
{
    dibs__lock(&op->entry->mu);
    /* A renewal that runs after a release that was answered finds nothing. */
    bool unsure = dibs__hold_in_doubt(op->hold);
    op->may_have_stale_copy |= tainted || op->hold->may_have_stale_copy ||
                               (unsure && op->args.hold_off_ms);
    dibs__unlock(&op->entry->mu);
    enum dibs__renumber how =
        op->args.hold_off_ms ? RENUMBER_LEFT : RENUMBER_REAP;
    if (op->may_have_stale_copy || unsure || op->args.hold_off_ms)
        dibs__owner_retire(op->entry, op->owner, op->owner_id, how);
}

static void on_last_reply(struct dibs__command *cmd, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list blocked = {&blocked, &blocked};
    int64_t n = 0;

    bool answered = decode_release_reply(reply, &err, &n);
    bool no_listener = answered && n == SCRIPT_NO_LISTENER;
    if (no_listener)
        n = SCRIPT_FREED;
    bool sure = answered && (n > 0 || !cmd->resent);
    if (answered && n < 0 && !cmd->resent)
        err = DIBS_ERR_LOST;
    if (err != DIBS_OK && !reply)
        err = DIBS_ERR_UNKNOWN; /* not sent, or "not now": it is the same */
    retire_id_in_doubt(op, cmd->maybe_live_copy || !sure);
    dibs__lock(&entry->mu);
    free_released_hold(entry, op, &blocked);
    end_handoffs(entry, n - 1);
    dibs__unlock(&entry->mu);
    if (no_listener || (entry->type->has_server_queue && n > 1))
        dibs__fair_queue_gc(entry, !no_listener);
    if (op->may_have_stale_copy)
        dibs__orphan_release_after(entry, op->owner_id, op->orphan_ttl_ms,
                                   op->args.hold_off_ms);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

static void send_last_release(struct dibs__operation *op)
{
    op->args.target_count = 0;
    dibs__op_send(op, VERB_RELEASE, on_last_reply,
                  op->waiter.deadline - dibs__now_ms(), op->waiter.deadline);
}

/* ---- handing over ------------------------------------------------------ */

static bool handoff_limit_reached(const struct dibs__lock_entry *entry, int64_t now)
{
    return entry->handoff_count >= HANDOFFS_MAX ||
           (entry->handoff_count > 0 &&
            (uint32_t)now - entry->handoff_start_ms > HANDOFFS_MAX_MS);
}

/* The waiter that gets the lock next, or NULL. */
static struct dibs__operation *handoff_pick(struct dibs__lock_entry *entry,
                                               struct dibs__operation *op,
                                               int64_t now) REQUIRES(entry->mu)
{
    struct dibs__list *first = dibs__list_first(&entry->wait.waiters);

    if (!dibs__lock_type_has(entry->type, VERB_HANDOVER) || !first ||
        op->args.hold_off_ms || handoff_limit_reached(entry, now) ||
        atomic_load(&entry->manager->closing))
        return NULL;
    struct dibs__operation *next =
        DIBS_OF(first, struct dibs__operation, waiter.link);
    if (next->replicas) /* they must have it, too: so it asks by itself */
        return NULL;
    if (next->waiter.canceled || next->waiter.state != WAITER_PARKED ||
        now >= next->waiter.deadline ||
        dibs__entry_in_flight_of(entry, next->owner) ||
        next->owner == op->owner || next->renumber)
        return NULL;
    return next;
}

/* While the lock is on its way to the next owner, that owner asks for nothing
 * else: it counts as asking. */
static void handoff_begin(struct dibs__lock_entry *entry,
                         struct dibs__operation *op) REQUIRES(entry->mu)
{
    (void)dibs__entry_acquire_begin(entry,
                                    op->handoff_to); /* it does not ask yet */
    op->handoff_to->waiter.state = WAITER_HANDOFF_PENDING;
    op->handoff_to->handoff_from = op;
}

/* The answer is there: from now on the next owner stays for what follows from
 * it. NULL: it has left. */
static struct dibs__operation *handoff_claim(struct dibs__operation *op)
{
    dibs__lock(&op->entry->mu);
    struct dibs__operation *next_owner = op->handoff_to;
    if (next_owner)
        next_owner->handoff_from = NULL;
    op->handoff_to = NULL;
    dibs__unlock(&op->entry->mu);
    return next_owner;
}

/* The next owner has it. False: too late, or its number is retired. */
static bool handoff_grant(struct dibs__lock_entry *entry,
                               struct dibs__operation *next_owner,
                               const struct dibs__command *cmd, int64_t value,
                               struct dibs__list *resume) REQUIRES(entry->mu)
{
    next_owner->may_have_stale_copy |= cmd->maybe_live_copy;
    if (next_owner->renumber == RENUMBER_REAP ||
        dibs__valid_until(cmd->sent_ms, next_owner->args.lease_ms) <=
            dibs__now_ms())
        return false;
    dibs__list_del(&next_owner->waiter.link); /* io need not hear of it */
    next_owner->waiter.state = WAITER_IDLE;
    dibs__hold_taken(entry, next_owner->hold, next_owner, cmd->sent_ms, value);
    next_owner->hold = NULL;
    entry->handoff_count++;
    dibs__stats_count(dibs__entry_client(entry)->stats, STAT_HANDOVERS, 1);
    dibs__op_take_waits(entry, next_owner->owner, resume);
    /* Another slot became free meanwhile, and this client was called. */
    if (entry->type->is_counting && entry->wait.retry_now)
        dibs__wait_queue_wake_head(&entry->wait);
    return true;
}

/* The next owner waits on, under another number. */
static void handoff_reassign_id(struct dibs__operation *next_owner,
                              struct dibs__list *resume)
{
    struct dibs__lock_entry *entry = next_owner->entry;
    dibs_owner owner = next_owner->owner; /* kept: the op may end below */
    uint64_t old = next_owner->owner_id;

    dibs__owner_retire(entry, owner, old, RENUMBER_REAP);
    uint64_t owner_id = dibs__owner_wire(entry->manager, owner);
    dibs__lock(&entry->mu);
    next_owner->owner_id = next_owner->args.owner_id = owner_id;
    dibs__entry_acquire_done(entry, next_owner, resume);
    dibs__wait_queue_wake_head(&entry->wait);
    dibs__unlock(&entry->mu);
    dibs__op_rename_waits(entry, owner, old);
}

static void handoff_lost(struct dibs__operation *op, dibs_err err)
{
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__operation *next_owner = handoff_claim(op);
    struct dibs__list blocked = {&blocked, &blocked};

    if (next_owner)
        handoff_reassign_id(next_owner, &blocked);
    retire_id_in_doubt(op, true);
    dibs__lock(&entry->mu);
    free_released_hold(entry, op, &blocked);
    end_handoffs(entry, 0);
    dibs__unlock(&entry->mu);
    dibs__orphan_release(entry, op->args.next_owner_id, op->args.lease_ms);
    dibs__op_disown(op);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

/* moved: the next owner's number has the lock. If nobody goes by it any more,
 * the reaper frees the lock, and the next waiter asks right behind it. Not
 * moved, but an earlier copy may have moved it: it is not ours, as wanted. */
static void handoff_complete(struct dibs__operation *op,
                          const struct dibs__acquired *outcome)
{
    bool moved = outcome->result == RESULT_ACQUIRED;
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__operation *next_owner = handoff_claim(op);
    bool unsure = !moved && op->command.resent;
    bool taken = false;
    struct dibs__list blocked = {&blocked, &blocked};

    retire_id_in_doubt(op, op->command.maybe_live_copy || unsure);
    dibs__lock(&entry->mu);
    if (next_owner) {
        dibs__entry_acquire_done(entry, next_owner, &blocked);
        taken = moved && handoff_grant(entry, next_owner, &op->command,
                                            outcome->value, &blocked);
    }
    bool gone = !next_owner || next_owner->renumber == RENUMBER_REAP;
    if (gone && (moved || unsure || op->command.maybe_live_copy))
        dibs__orphan_release(entry, op->args.next_owner_id, op->args.lease_ms);
    free_released_hold(entry, op, &blocked);
    if (!taken)
        end_handoffs(entry, 0);
    dibs__unlock(&entry->mu);
    if (op->may_have_stale_copy)
        dibs__op_disown(op);
    if (taken)
        dibs__op_finish(next_owner, DIBS_OK);
    dibs__op_finish(op, moved || unsure ? DIBS_OK : DIBS_ERR_LOST);
    dibs__op_resume(&blocked);
}

static void on_handoff_reply(struct dibs__command *cmd, dibs_err err,
                              const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__acquired outcome = {.err = err};

    if (err == DIBS_OK)
        op->entry->type->decode(VERB_HANDOVER, reply, &outcome);
    if (err == DIBS_OK && outcome.result != RESULT_REFUSED) {
        handoff_complete(op, &outcome);
        return;
    }
    err = outcome.err;
    if (reply && !cmd->resent && !cmd->partially_executed) {
        /* Refused, and nothing was done (a full server, say). A release asks
         * for less. */
        struct dibs__operation *next_owner = handoff_claim(op);
        struct dibs__list resume = {&resume, &resume};
        dibs__lock(&op->entry->mu);
        if (next_owner)
            dibs__entry_acquire_done(op->entry, next_owner, &resume);
        dibs__unlock(&op->entry->mu);
        op->on_caller_thread = false;
        send_last_release(op);
        dibs__op_resume(&resume);
    } else {
        handoff_lost(op, reply && err != DIBS_ERR_PROTOCOL ? err
                                                            : DIBS_ERR_UNKNOWN);
    }
}

/* ---- where to start ---------------------------------------------------- */

/* The number of another who reads for at least half as long, or 0. If that one
 * lives, and for about as long as the lock, the server looks at no other. Now
 * and then it shall, to find those whose lease is over; not by turns, which
 * could be those of other locks. */
static uint64_t peer_hint(const struct dibs__lock_entry *entry,
                             const struct dibs__hold *mine, int64_t now)
    REQUIRES(entry->mu)
{
    uint32_t chance = (uint32_t)mine->number * UINT32_C(2654435769);

    if (chance < UINT32_MAX / HINTLESS_ONE_IN)
        return 0;
    return dibs__hold_find_peer(entry, mine,
                                now + (mine->valid_until - now) / 2);
}

/* The hold ends, and nothing is sent. The number is retired before the hold is
 * seen to end, so that no other call of the owner goes by it: a lost hold may
 * still be on the server, and the reaper takes that back. One that is left to
 * somebody else is the adopter's, and never reaped. */
static void end_hold_without_command(struct dibs__operation *op, dibs_err err)
{
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list blocked = {&blocked, &blocked};
    bool lost = err == DIBS_ERR_LOST;

    retire_id_in_doubt(op, lost);
    dibs__lock(&entry->mu);
    free_released_hold(entry, op, &blocked);
    dibs__wait_queue_wake_head(&entry->wait);
    dibs__unlock(&entry->mu);
    dibs__op_rename_waits(entry, op->owner, op->owner_id);
    if (lost)
        dibs__orphan_release(entry, op->owner_id, op->orphan_ttl_ms);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

/* Has the owner the other half, or asks for it by this number just now? It may
 * get in by what it has here. Looked at when the number is retired: then no
 * call begins any more that goes by it. */
static bool is_other_mode_in_use(struct dibs__lock_entry *entry, dibs_owner owner,
                           uint64_t owner_id)
{
    bool wanted = false;

    if (entry->type->layout != LAYOUT_RW)
        return false;
    for (struct dibs__lock_entry *l = NULL;
         (l = dibs__entry_next_in_family(entry, l));) {
        dibs__lock(&l->mu);
        const struct dibs__hold *h = dibs__hold_of(l, owner);
        wanted |= h && h->state != HOLD_ENDING &&
                  !dibs__hold_has_expired(h, dibs__now_ms());
        for (struct dibs__list *at = l->in_flight.next; at != &l->in_flight;
             at = at->next) {
            const struct dibs__operation *op =
                DIBS_OF(at, struct dibs__operation, in_flight_link);
            wanted |= op->owner_id == owner_id || op->args.other_id == owner_id;
        }
        dibs__unlock(&l->mu);
    }
    return wanted;
}

static void record_detach_refusal(struct dibs__operation *op)
{
    dibs__op_record_error(op, DIBS_ERR_INVALID,
                          "this owner has the other half, too, or asks for it");
}

/* The hold is left to somebody else, unless its owner may get the other half by
 * it. Then it stays; a group, which does not ask again, gives it back. */
static void detach_hold(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;

    dibs__owner_retire(entry, op->owner, op->owner_id, RENUMBER_LEFT);
    if (!is_other_mode_in_use(entry, op->owner, op->owner_id)) {
        end_hold_without_command(op, DIBS_OK);
    } else if (op->ended) {
        op->args.hold_off_ms = 0;
        send_last_release(op);
    } else {
        dibs__lock(&entry->mu);
        op->hold->state = HOLD_HELD;
        op->hold->needs_verify = true; /* what came meanwhile was not heard */
        dibs__hold_suppress_loss(op->hold, op->group_level);
        dibs__hold_schedule(entry, op->hold, dibs__now_ms());
        dibs__unlock(&entry->mu);
        record_detach_refusal(op);
        dibs__op_end_busy(op, DIBS_ERR_INVALID);
    }
}

enum plan { PLAN_PARTIAL, PLAN_LAST, PLAN_HANDOFF, PLAN_DETACH, PLAN_RETIRE, PLAN_WAIT, PLAN_FINISH };

/* The server may have a hold that our clock has ended for the margin still.
 * Must what its owner asks for next not find that? It would have the old token,
 * or go before others in a queue, or a writer would hear that it reads. An
 * owner of a plain lock just goes on with it. What is left is the adopter's. A
 * slot that was lost is still noted with its number, and must not seem to be
 * taken when the owner has another one. */
static bool must_release_remainder(const struct dibs__lock_type *type,
                          const struct dibs__hold *h,
                          const struct dibs__operation *op)
{
    if (op->args.hold_off_ms == DETACH)
        return false;
    return type->id == TYPE_SLOTS ||
           (h->expired_locally &&
            (type->has_server_queue || type->id == TYPE_FENCED ||
             type->layout == LAYOUT_RW));
}

/* It was lost, now or before. Each level learns of it, this one by this call.
 * With the last one the number is retired, if something may be left of it. */
static enum plan plan_release_lost(struct dibs__lock_entry *entry, struct dibs__hold *h,
                          struct dibs__operation *op) REQUIRES(entry->mu)
{
    bool last = h->count == 1;

    dibs__hold_suppress_loss(h, op->group_level);
    dibs__hold_expire_locally(entry, h);
    op->may_have_stale_copy |= last && dibs__hold_in_doubt(h);
    if (last && !op->may_have_stale_copy && must_release_remainder(entry->type, h, op)) {
        op->may_have_stale_copy = true;
        op->orphan_ttl_ms = ORPHAN_REMAINDER;
    }
    if (last && op->may_have_stale_copy) {
        h->busy = true;
        op->hold = h;
        return PLAN_RETIRE;
    }
    dibs__op_drop_level(op, h);
    if (last)
        dibs__hold_free(entry, h);
    return PLAN_FINISH;
}

/* The client has begun to close since this call began, and the close has given
 * back what there was. If that was lost, its owner must not be told any more.
 * (The callback of an async call comes after on_lost anyway.) */
static dibs_err suppress_loss_at_close(struct dibs__lock_entry *entry,
                           struct dibs__operation *op) REQUIRES(entry->mu)
{
    struct dibs__loss_listener *loss = dibs__losses_suppress(entry, op->owner);

    if (op->async)
        dibs__loss_unref(loss);
    else
        op->loss = loss;
    return DIBS_ERR_CLOSED;
}

/* both: its owner has the other half of a read-write lock, too. */
static enum plan plan_release(struct dibs__lock_entry *entry,
                              struct dibs__operation *op, bool both,
                              dibs_err *err) REQUIRES(entry->mu)
{
    struct dibs__hold *h = dibs__hold_of(entry, op->owner);
    int64_t now = dibs__now_ms();

    *err = DIBS_ERR_NOT_OWNER;
    if (!h && !op->ended && atomic_load(&entry->manager->closing))
        *err = suppress_loss_at_close(entry, op);
    if (!h)
        return PLAN_FINISH;
    if (h->busy) {
        op->batch = NULL; /* the others of the batch do not wait for it */
        dibs__wait_queue_block_on(&entry->wait, &h->blocked_ops, &op->waiter);
        return PLAN_WAIT;
    }
    op->owner_id = op->args.owner_id = h->owner_id;
    op->orphan_ttl_ms = h->valid_until - now;
    if (dibs__hold_has_expired(h, now)) {
        *err = DIBS_ERR_LOST;
        return plan_release_lost(entry, h, op);
    }
    if (op->args.hold_off_ms == DETACH && h->count > 1) {
        dibs__op_drop_level(op, h);
        *err = DIBS_OK;
        return PLAN_FINISH;
    }
    if (both && op->args.hold_off_ms == DETACH && !op->ended) {
        dibs__hold_suppress_loss(
            h, op->group_level); /* what on_lost is given may go now */
        *err = DIBS_ERR_INVALID;
        return PLAN_FINISH;
    }
    if (both)
        op->args.hold_off_ms = 0; /* the other half would go on to use it */
    h->busy = true;
    op->hold = h;
    op->args.target_count = h->count - 1;
    op->args.value = h->value;
    if (op->args.hold_off_ms == DETACH) {
        dibs__hold_ending(entry, h);
        return PLAN_DETACH;
    }
    if (h->count > 1)
        return PLAN_PARTIAL;
    dibs__hold_ending(entry, h);
    if (entry->type->shared) {
        op->args.other_id = peer_hint(entry, h, now);
        op->args.hold_off_ms = 0; /* cannot be kept: others may have it, too */
    }
    op->handoff_to = handoff_pick(entry, op, now);
    if (!op->handoff_to)
        return PLAN_LAST;
    handoff_begin(entry, op);
    op->args.next_owner_id = op->handoff_to->owner_id;
    op->args.lease_ms = op->handoff_to->args.lease_ms;
    op->args.shortens_ttl = op->args.lease_ms < h->valid_until - now;
    return PLAN_HANDOFF;
}

void dibs__release_run(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;
    int64_t within = op->waiter.deadline - dibs__now_ms();
    dibs_err err;

    op->is_release = true;
    bool both = op->args.hold_off_ms && dibs__hold_other_mode(entry, op->owner);
    dibs__lock(&entry->mu);
    enum plan next = plan_release(entry, op, both, &err);
    dibs__unlock(&entry->mu);
    switch (next) {
    case PLAN_PARTIAL:
        dibs__op_send(op, VERB_RELEASE, on_partial_reply, within,
                      op->waiter.deadline);
        break;
    case PLAN_LAST:
        if (op->args.hold_off_ms) /* what is kept is nobody's */
            dibs__owner_retire(entry, op->owner, op->owner_id, RENUMBER_LEFT);
        if (op->args.hold_off_ms &&
            is_other_mode_in_use(entry, op->owner, op->owner_id))
            op->args.hold_off_ms = 0;
        send_last_release(op);
        break;
    case PLAN_HANDOFF:
        dibs__op_send(op, VERB_HANDOVER, on_handoff_reply, within,
                      op->waiter.deadline);
        break;
    case PLAN_DETACH:
        detach_hold(op);
        break;
    case PLAN_RETIRE:
        end_hold_without_command(op, err);
        break;
    case PLAN_WAIT:
        break;
    case PLAN_FINISH:
        if (err == DIBS_ERR_INVALID)
            record_detach_refusal(op);
        dibs__op_finish(op, err);
    }
}
