/* SPDX-License-Identifier: MIT
 *
 * release.c - the release operation, and the hand-off to a waiter.
 *
 * The words (hold, level, owner id, hand-off, stale copy, orphan) are explained
 * in lock_entry.h, hold.h and operation.h.
 *
 * Thread    app for a sync operation, else io.
 * Locks     entry.mu.
 *
 * Partial release
 *           Of one of several levels: one command lowers the level count.
 *
 * Last release
 *           Frees the lock, and publishes that to other clients. If any client
 *           received it, the waiters of this client back off for a moment.
 *
 * Hand-off  A last release with a waiter in entry.wait: one script moves the
 *           lock to the waiter's owner id and sets its lease. Other clients see
 *           the lock held throughout. After HANDOFFS_MAX in a row, or
 *           HANDOFFS_MAX_MS, the lock is freed instead, for other clients.
 *
 * Detach    The hold stays on the server for another client to attach; nothing
 *           is sent. Its owner id is retired, so that nothing here uses it.
 *
 * Renewal   Stops before the command of a last release is sent: a renewal that
 *           the server executes later would fail, or renew another hold.
 *
 * Lost replies
 *           The hold ends here in any case; the owner id is retired, and the
 *           orphan reaper releases what the server still has. The waiter of a
 *           hand-off continues to wait under a new id, since its old id may get
 *           the lock at any time.
 *
 * Waiter has left
 *           The waiter of a hand-off keeps its deadline (lock_waiter.c). If it
 *           leaves before the reply, the lock is an orphan under its id.
 */
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"

#define HANDOFFS_MAX    64  /* in a row; then other clients get the lock */
#define HANDOFFS_MAX_MS 200 /* the same, as a time */
#define BACKOFF_MIN_MS  2   /* the clock counts whole ms: 1 could be 0 */
#define BACKOFF_MAX_MS  3
#define HINTLESS_ONE_IN 32 /* about one release in 32 sends no peer id hint */
#define HASH_FACTOR     UINT32_C(2654435769) /* 2^32 divided by golden ratio */

static bool decode_release_reply(const struct dibs__reply *reply, dibs_err *err,
                                 int64_t *out)
{
    if (*err == DIBS_OK && reply->type != REPLY_NUM)
        *err = DIBS_ERR_PROTOCOL;
    if (*err == DIBS_OK)
        *out = reply->num;
    return *err == DIBS_OK;
}

/* ---- partial release --------------------------------------------------- */

static void on_partial_reply(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__hold *h = op->hold;
    int64_t n = 0;

    bool has_reply = decode_release_reply(reply, &err, &n);
    dibs__lock(&entry->mu);
    h->may_have_stale_copy |= cmd->may_have_stale_copy ||
                              cmd->partially_executed ||
                              err == DIBS_ERR_UNKNOWN;
    if (has_reply && n < 0) {
        dibs__hold_suppress_loss(h, op->group_level); /* err reports it */
        dibs__hold_lose(entry, h);
        err = DIBS_ERR_LOST;
    }
    if (!has_reply && dibs__hold_has_expired(h, dibs__now_ms())) {
        dibs__hold_suppress_loss(h, op->group_level);
        dibs__hold_expire_locally(entry, h);
    }
    /* UNKNOWN counts as released: the next command carries the level count.
     * For a group any error does: it does not repeat a release. */
    if (has_reply || err == DIBS_ERR_UNKNOWN || h->state == HOLD_LOST ||
        op->on_ended)
        dibs__op_drop_level(op, h);
    else
        dibs__hold_suppress_loss(
            h, op->group_level); /* the caller may free on_lost's argument */
    if (h->state != HOLD_LOST)
        dibs__hold_confirm(entry, h);
    else
        err = DIBS_ERR_LOST;
    dibs__unlock(&entry->mu);
    dibs__op_finish_on_hold(op, err);
}

/* ---- last release ------------------------------------------------------ */

/* The lock is free, or assumed to be. receivers: how many clients received the
 * publish. If another client did, the waiters of this client back off. */
static void on_lock_freed(struct dibs__lock_entry *entry, int64_t receivers)
    REQUIRES(entry->mu)
{
    int64_t now = dibs__now_ms();

    entry->handoff_count = 0;
    entry->handoff_start_ms = (uint32_t)now;
    /* This client is one of the receivers if it is subscribed, unless it is the
     * designated listener, which the script does not count. */
    bool self_received =
        dibs__wait_queue_is_passive_listener(&entry->wait_queue, now);
    if (receivers > (self_received ? 1 : 0))
        entry->wait_queue.backoff_until =
            now + dibs__random_in(BACKOFF_MIN_MS, BACKOFF_MAX_MS);
    dibs__wait_queue_wake_head(&entry->wait_queue);
}

/* Frees the hold that op releases. The operations that were blocked on it move
 * to `blocked`; the caller must resume them. */
static void free_released_hold(struct dibs__lock_entry *entry,
                               struct dibs__operation *op,
                               struct dibs__list *blocked) REQUIRES(entry->mu)
{
    op->may_have_stale_copy |= op->hold->may_have_stale_copy;
    dibs__wait_queue_unblock(&entry->wait_queue, &op->hold->blocked_ops,
                             blocked);
    dibs__op_drop_level(op, op->hold);
    dibs__hold_free(entry, op->hold);
    op->hold = NULL;
}

/* Retires the owner id if a command under it may still be executed, or if the
 * hold stays on the server. Must precede free_released_hold, so that the
 * owner's next acquire uses another id. stale_copy: one of this release may
 * exist. */
static void retire_id_in_doubt(struct dibs__operation *op, bool stale_copy)
{
    dibs__lock(&op->entry->mu);
    /* A renewal in flight does nothing if it is executed after the release,
     * unless the release has left the hold on the server for hold_off_ms. */
    bool in_doubt = dibs__hold_in_doubt(op->hold);
    op->may_have_stale_copy |= stale_copy || op->hold->may_have_stale_copy ||
                               (in_doubt && op->args.hold_off_ms);
    dibs__unlock(&op->entry->mu);
    enum dibs__renumber how =
        op->args.hold_off_ms ? RENUMBER_LEFT : RENUMBER_REAP;
    if (op->may_have_stale_copy || in_doubt || op->args.hold_off_ms)
        dibs__owner_retire(op->entry, op->owner, op->owner_id, how);
}

static void on_last_reply(struct dibs__command *cmd, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list blocked = {&blocked, &blocked};
    int64_t n = 0;

    bool has_reply = decode_release_reply(reply, &err, &n);
    bool no_listener = has_reply && n == SCRIPT_NO_LISTENER;
    if (no_listener)
        n = SCRIPT_FREED;
    bool released = has_reply && (n > 0 || !cmd->resent);
    if (has_reply && n < 0 && !cmd->resent)
        err = DIBS_ERR_LOST;
    if (err != DIBS_OK && !reply)
        err = DIBS_ERR_UNKNOWN; /* also if not sent: the server has the hold */
    retire_id_in_doubt(op, cmd->may_have_stale_copy || !released);
    dibs__lock(&entry->mu);
    free_released_hold(entry, op, &blocked);
    on_lock_freed(entry, n - 1);
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

/* ---- hand-off ---------------------------------------------------------- */

static bool handoff_limit_reached(const struct dibs__lock_entry *entry,
                                  int64_t now)
{
    return entry->handoff_count >= HANDOFFS_MAX ||
           (entry->handoff_count > 0 &&
            (uint32_t)now - entry->handoff_start_ms > HANDOFFS_MAX_MS);
}

/* Returns the waiter to hand off to, or NULL to free the lock. */
static struct dibs__operation *handoff_pick(struct dibs__lock_entry *entry,
                                            struct dibs__operation *op,
                                            int64_t now) REQUIRES(entry->mu)
{
    struct dibs__list *first = dibs__list_first(&entry->wait_queue.waiters);

    if (!dibs__lock_type_has(entry->type, VERB_HANDOFF) || !first ||
        op->args.hold_off_ms || handoff_limit_reached(entry, now) ||
        atomic_load(&entry->manager->closing))
        return NULL;
    struct dibs__operation *target =
        DIBS_OF(first, struct dibs__operation, waiter.link);
    if (target->replicas) /* a hand-off does not wait for replicas */
        return NULL;
    if (target->waiter.canceled || target->waiter.state != WAITER_PARKED ||
        now >= target->waiter.deadline ||
        dibs__entry_in_flight_of(entry, target->owner) ||
        target->owner == op->owner || target->renumber)
        return NULL;
    return target;
}

/* The waiter counts as in flight until the reply to the hand-off, so that its
 * owner sends no other acquire. */
static void handoff_begin(struct dibs__lock_entry *entry,
                          struct dibs__operation *op) REQUIRES(entry->mu)
{
    /* True: handoff_pick has checked that its owner has none in flight. */
    (void)dibs__entry_acquire_begin(entry, op->handoff_to);
    op->handoff_to->waiter.state = WAITER_HANDOFF_PENDING;
    op->handoff_to->handoff_from = op;
}

/* The reply has come: returns the waiter, which cannot leave from now on. NULL:
 * it has left. */
static struct dibs__operation *handoff_claim(struct dibs__operation *op)
{
    dibs__lock(&op->entry->mu);
    struct dibs__operation *target = op->handoff_to;
    if (target)
        target->handoff_from = NULL;
    op->handoff_to = NULL;
    dibs__unlock(&op->entry->mu);
    return target;
}

/* Records the hold of the waiter. False: its lease has expired before the
 * reply, or its owner id was retired. */
static bool handoff_grant(struct dibs__lock_entry *entry,
                          struct dibs__operation *target,
                          const struct dibs__command *cmd, int64_t value,
                          struct dibs__list *resume) REQUIRES(entry->mu)
{
    target->may_have_stale_copy |= cmd->may_have_stale_copy;
    if (target->renumber == RENUMBER_REAP ||
        dibs__valid_until(cmd->sent_ms, target->args.lease_ms) <=
            dibs__now_ms())
        return false;
    dibs__list_del(&target->waiter.link); /* no need to wake io */
    target->waiter.state = WAITER_IDLE;
    dibs__hold_add_level(entry, target->hold, target, cmd->sent_ms, value);
    target->hold = NULL;
    entry->handoff_count++;
    dibs__stats_count(dibs__entry_client(entry)->stats, STAT_HANDOFFS, 1);
    dibs__op_take_waiters(entry, target->owner, resume);
    /* Another slot or permit became free meanwhile, and this client was woken.
     */
    if (entry->type->is_counting && entry->wait_queue.retry_now)
        dibs__wait_queue_wake_head(&entry->wait_queue);
    return true;
}

/* The waiter continues to wait, under another owner id. */
static void handoff_reassign_id(struct dibs__operation *target,
                                struct dibs__list *resume)
{
    struct dibs__lock_entry *entry = target->entry;
    dibs_owner owner = target->owner; /* target may finish below */
    uint64_t old = target->owner_id;

    dibs__owner_retire(entry, owner, old, RENUMBER_REAP);
    uint64_t owner_id = dibs__owner_current_id(entry->manager, owner);
    dibs__lock(&entry->mu);
    target->owner_id = target->args.owner_id = owner_id;
    dibs__entry_acquire_done(entry, target, resume);
    dibs__wait_queue_wake_head(&entry->wait_queue);
    dibs__unlock(&entry->mu);
    dibs__op_reassign_waiter_ids(entry, owner, old);
}

static void handoff_lost(struct dibs__operation *op, dibs_err err)
{
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__operation *target = handoff_claim(op);
    struct dibs__list blocked = {&blocked, &blocked};

    if (target)
        handoff_reassign_id(target, &blocked);
    retire_id_in_doubt(op, true);
    dibs__lock(&entry->mu);
    free_released_hold(entry, op, &blocked);
    on_lock_freed(entry, 0);
    dibs__unlock(&entry->mu);
    dibs__orphan_release(entry, op->args.next_owner_id, op->args.lease_ms);
    dibs__op_abandon_id(op);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

/* The server has replied. moved: the waiter's owner id has the lock; if the
 * waiter has left or its id was retired, the lock is an orphan. Not moved, but
 * resent: the first copy may have moved it, so this counts as released. */
static void handoff_complete(struct dibs__operation *op,
                             const struct dibs__acquire_outcome *outcome)
{
    bool moved = outcome->result == RESULT_ACQUIRED;
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__operation *target = handoff_claim(op);
    bool maybe_moved = !moved && op->command.resent;
    bool taken = false;
    struct dibs__list blocked = {&blocked, &blocked};

    retire_id_in_doubt(op, op->command.may_have_stale_copy || maybe_moved);
    dibs__lock(&entry->mu);
    if (target) {
        dibs__entry_acquire_done(entry, target, &blocked);
        taken = moved && handoff_grant(entry, target, &op->command,
                                       outcome->value, &blocked);
    }
    bool orphaned = !target || target->renumber == RENUMBER_REAP;
    if (orphaned && (moved || maybe_moved || op->command.may_have_stale_copy))
        dibs__orphan_release(entry, op->args.next_owner_id, op->args.lease_ms);
    free_released_hold(entry, op, &blocked);
    if (!taken)
        on_lock_freed(entry, 0);
    dibs__unlock(&entry->mu);
    if (op->may_have_stale_copy)
        dibs__op_abandon_id(op);
    if (taken)
        dibs__op_finish(target, DIBS_OK);
    dibs__op_finish(op, moved || maybe_moved ? DIBS_OK : DIBS_ERR_LOST);
    dibs__op_resume(&blocked);
}

static void on_handoff_reply(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__acquire_outcome outcome = {.err = err};

    if (err == DIBS_OK)
        op->entry->type->decode(VERB_HANDOFF, reply, &outcome);
    if (err == DIBS_OK && outcome.result != RESULT_REFUSED) {
        handoff_complete(op, &outcome);
        return;
    }
    err = outcome.err;
    if (reply && !cmd->resent && !cmd->partially_executed) {
        /* Refused without effect, as at maxmemory. A release needs no memory.
         */
        struct dibs__operation *target = handoff_claim(op);
        struct dibs__list resume = {&resume, &resume};
        dibs__lock(&op->entry->mu);
        if (target)
            dibs__entry_acquire_done(op->entry, target, &resume);
        dibs__unlock(&op->entry->mu);
        op->on_caller_thread = false;
        send_last_release(op);
        dibs__op_resume(&resume);
    } else {
        handoff_lost(op, reply && err != DIBS_ERR_PROTOCOL ? err
                                                           : DIBS_ERR_UNKNOWN);
    }
}

/* ---- what to send ------------------------------------------------------ */

/* Returns the owner id of another reader with at least half of h's remaining
 * time, or 0. If the server finds that reader, it does not scan the others.
 * Some releases send no hint, so that expired readers are removed, too; chosen
 * by a hash of the hold number, as numbers may alternate between locks. */
static uint64_t peer_hint(const struct dibs__lock_entry *entry,
                          const struct dibs__hold *h, int64_t now)
    REQUIRES(entry->mu)
{
    uint32_t hash = (uint32_t)h->number * HASH_FACTOR;

    if (hash < UINT32_MAX / HINTLESS_ONE_IN)
        return 0;
    return dibs__hold_find_peer(entry, h, now + (h->valid_until - now) / 2);
}

/* Frees the hold without a command. Its owner id is retired first, so that no
 * other operation of the owner uses it. A lost hold may still be on the server,
 * as an orphan; a detached one belongs to the client that attaches it. */
static void end_hold_without_command(struct dibs__operation *op, dibs_err err)
{
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list blocked = {&blocked, &blocked};
    bool lost = err == DIBS_ERR_LOST;

    retire_id_in_doubt(op, lost);
    dibs__lock(&entry->mu);
    free_released_hold(entry, op, &blocked);
    dibs__wait_queue_wake_head(&entry->wait_queue);
    dibs__unlock(&entry->mu);
    dibs__op_reassign_waiter_ids(entry, op->owner, op->owner_id);
    if (lost)
        dibs__orphan_release(entry, op->owner_id, op->orphan_ttl_ms);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

/* Does the owner hold the other mode of the read-write lock, or is an acquire
 * of it in flight that names this id? The server may grant that because of the
 * hold here. The id must be retired already, so that no other acquire uses it.
 */
static bool is_other_mode_in_use(struct dibs__lock_entry *entry,
                                 dibs_owner owner, uint64_t owner_id)
{
    bool in_use = false;

    if (entry->type->layout != LAYOUT_RW)
        return false;
    for (struct dibs__lock_entry *other_entry = NULL;
         (other_entry = dibs__entry_next_in_family(entry, other_entry));) {
        dibs__lock(&other_entry->mu);
        const struct dibs__hold *h = dibs__hold_of(other_entry, owner);
        in_use |= h && h->state != HOLD_ENDING &&
                  !dibs__hold_has_expired(h, dibs__now_ms());
        for (struct dibs__list *at = other_entry->in_flight.next;
             at != &other_entry->in_flight; at = at->next) {
            const struct dibs__operation *op =
                DIBS_OF(at, struct dibs__operation, in_flight_link);
            in_use |= op->owner_id == owner_id || op->args.other_id == owner_id;
        }
        dibs__unlock(&other_entry->mu);
    }
    return in_use;
}

static void record_detach_refusal(struct dibs__operation *op)
{
    dibs__op_record_error(
        op, DIBS_ERR_INVALID,
        "this owner also holds the lock in the other mode, or "
        "is acquiring it");
}

/* Detaches the hold, unless its owner uses the other mode. Then the detach
 * fails and the hold stays; that of a group is released instead, since a group
 * does not repeat it. */
static void detach_hold(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;

    dibs__owner_retire(entry, op->owner, op->owner_id, RENUMBER_LEFT);
    if (!is_other_mode_in_use(entry, op->owner, op->owner_id)) {
        end_hold_without_command(op, DIBS_OK);
    } else if (op->on_ended) {
        op->args.hold_off_ms = 0;
        send_last_release(op);
    } else {
        dibs__lock(&entry->mu);
        op->hold->state = HOLD_HELD;
        /* Invalidations were ignored in HOLD_ENDING. */
        op->hold->needs_verify = true;
        dibs__hold_suppress_loss(op->hold, op->group_level);
        dibs__hold_schedule(entry, op->hold, dibs__now_ms());
        dibs__unlock(&entry->mu);
        record_detach_refusal(op);
        dibs__op_finish_on_hold(op, DIBS_ERR_INVALID);
    }
}

enum release_plan {
    PLAN_PARTIAL,
    PLAN_LAST,
    PLAN_HANDOFF,
    PLAN_DETACH,
    PLAN_RETIRE,
    PLAN_WAIT,
    PLAN_FINISH
};

/* A hold that expired by our clock still exists on the server for the drift
 * margin. Must it be released before the owner's next acquire could find it?
 * That acquire would get the old fencing token, bypass a server queue, or be
 * refused as an upgrade. For a mutex it is just granted. A lost slot must be
 * released in any case: it would count as taken beside the owner's next one. A
 * detached hold belongs to the client that attaches it. */
static bool must_release_remainder(const struct dibs__lock_type *type,
                                   const struct dibs__hold *h,
                                   const struct dibs__operation *op)
{
    if (op->args.hold_off_ms == HOLD_OFF_DETACH)
        return false;
    return type->id == TYPE_SLOTS ||
           (h->expired_locally &&
            (type->has_server_queue || type->id == TYPE_FENCED ||
             type->layout == LAYOUT_RW));
}

/* The hold is lost, now or before. This release reports that for its level. The
 * release of the last level retires the owner id if the server may still have
 * the hold. */
static enum release_plan plan_release_lost(struct dibs__lock_entry *entry,
                                           struct dibs__hold *h,
                                           struct dibs__operation *op)
    REQUIRES(entry->mu)
{
    bool last = h->count == 1;

    dibs__hold_suppress_loss(h, op->group_level);
    dibs__hold_expire_locally(entry, h);
    op->may_have_stale_copy |= last && dibs__hold_in_doubt(h);
    if (last && !op->may_have_stale_copy &&
        must_release_remainder(entry->type, h, op)) {
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

/* The client began to close after this release began, and the close released
 * the hold. on_lost of that hold must not begin after this release returns.
 * (The callback of an async release comes after on_lost anyway.) */
static dibs_err suppress_loss_at_close(struct dibs__lock_entry *entry,
                                       struct dibs__operation *op)
    REQUIRES(entry->mu)
{
    struct dibs__loss_listener *loss = dibs__losses_suppress(entry, op->owner);

    if (op->async)
        dibs__loss_unref(loss);
    else
        op->loss = loss;
    return DIBS_ERR_CLOSED;
}

/* both_modes: the owner also holds the other mode of the read-write lock. */
static enum release_plan plan_release(struct dibs__lock_entry *entry,
                                      struct dibs__operation *op,
                                      bool both_modes, dibs_err *err)
    REQUIRES(entry->mu)
{
    struct dibs__hold *h = dibs__hold_of(entry, op->owner);
    int64_t now = dibs__now_ms();

    *err = DIBS_ERR_NOT_OWNER;
    if (!h && !op->on_ended && atomic_load(&entry->manager->closing))
        *err = suppress_loss_at_close(entry, op);
    if (!h)
        return PLAN_FINISH;
    if (h->busy) {
        op->batch = NULL; /* it must not delay the batch */
        dibs__wait_queue_block_on(&entry->wait_queue, &h->blocked_ops,
                                  &op->waiter);
        return PLAN_WAIT;
    }
    op->owner_id = op->args.owner_id = h->owner_id;
    op->orphan_ttl_ms = h->valid_until - now;
    if (dibs__hold_has_expired(h, now)) {
        *err = DIBS_ERR_LOST;
        return plan_release_lost(entry, h, op);
    }
    if (op->args.hold_off_ms == HOLD_OFF_DETACH && h->count > 1) {
        dibs__op_drop_level(op, h);
        *err = DIBS_OK;
        return PLAN_FINISH;
    }
    if (both_modes && op->args.hold_off_ms == HOLD_OFF_DETACH &&
        !op->on_ended) {
        dibs__hold_suppress_loss(
            h, op->group_level); /* the caller may free on_lost's argument */
        *err = DIBS_ERR_INVALID;
        return PLAN_FINISH;
    }
    if (both_modes)
        op->args.hold_off_ms =
            0; /* the other mode would make use of what stays */
    h->busy = true;
    op->hold = h;
    op->args.target_count = h->count - 1;
    op->args.value = h->value;
    if (op->args.hold_off_ms == HOLD_OFF_DETACH) {
        dibs__hold_begin_release(entry, h);
        return PLAN_DETACH;
    }
    if (h->count > 1)
        return PLAN_PARTIAL;
    dibs__hold_begin_release(entry, h);
    if (entry->type->shared) {
        op->args.other_id = peer_hint(entry, h, now);
        op->args.hold_off_ms = 0; /* no hold-off: there may be other holders */
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
    bool both_modes =
        op->args.hold_off_ms && dibs__hold_other_mode(entry, op->owner);
    dibs__lock(&entry->mu);
    enum release_plan plan = plan_release(entry, op, both_modes, &err);
    dibs__unlock(&entry->mu);
    switch (plan) {
    case PLAN_PARTIAL:
        dibs__op_send(op, VERB_RELEASE, on_partial_reply, within,
                      op->waiter.deadline);
        break;
    case PLAN_LAST:
        if (op->args.hold_off_ms) /* no owner may use what stays */
            dibs__owner_retire(entry, op->owner, op->owner_id, RENUMBER_LEFT);
        if (op->args.hold_off_ms &&
            is_other_mode_in_use(entry, op->owner, op->owner_id))
            op->args.hold_off_ms = 0;
        send_last_release(op);
        break;
    case PLAN_HANDOFF:
        dibs__op_send(op, VERB_HANDOFF, on_handoff_reply, within,
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
