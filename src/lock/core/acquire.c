/* SPDX-License-Identifier: MIT
 *
 * acquire.c - the acquire operation.
 *
 * The words (hold, level, owner id, in flight, stale copy) are explained in
 * lock_entry.h, hold.h and operation.h.
 *
 * Thread    app for the first attempt of a sync operation, else io.
 * Locks     entry.mu.
 *
 * Re-entry  An owner with a hold adds a level, with one command.
 *
 * First acquire
 *           Joins entry.wait. If it is the only waiter, it sends its command at
 *           once, on the caller's thread. Else it waits until the wait queue
 *           retries it (wait_queue.c), or a release hands the lock off to it
 *           (release.c). With no_wait it sends at once and does not join. With
 *           RETRY_EACH all waiters send at once.
 *
 * Replicas  If replicas must have the lock, too, it is recorded as held only
 *           when they have acknowledged it. If too few do, the acquire is
 *           rolled back on the server before the operation ends.
 *
 * Lost replies
 *           The command carries the level count that it shall result in, so it
 *           is idempotent and is sent again after a lost reply. A stale copy
 *           may still be executed after the operation has ended. Then the owner
 *           id is retired, and the orphan reaper releases what it gets.
 */
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"
#include "lock/wait/place.h"

#include <assert.h>
#include <stdio.h>

#define RETRY_MIN_MS    50
#define RETRY_MAX_MS    250
#define POLL_MAX_MS     128
#define EXPIRY_RETRY_MS 50 /* retry delay if a hold is about to end */
#define TEXT_MAX        200

/* Records the error text of a refused acquire. */
static void explain_refusal(struct dibs__operation *op, dibs_err err)
{
    if (err == DIBS_ERR_LOST)
        dibs__op_record_server_error(
            op, err,
            "'%.80s': this owner's earlier hold has ended and was not released "
            "yet; release it, then acquire again",
            op->entry->name);
    if (err == DIBS_ERR_UPGRADE)
        dibs__op_record_server_error(op, err,
                                     "'%.80s': this owner holds the read lock",
                                     op->entry->name);
    if (err == DIBS_ERR_WRONGTYPE)
        dibs__op_record_wrong_type(op);
}

/* An owner that holds read mode cannot acquire write mode; the holds of this
 * client decide that. The server may refuse for a read hold that has expired or
 * is being released: then the outcome is busy. It may have the read hold under
 * another id and answer busy: then the acquire is refused, since it would wait
 * for its own owner. */
static void check_upgrade(const struct dibs__operation *op,
                          struct dibs__acquire_outcome *outcome)
{
    bool refused =
        outcome->result == RESULT_REFUSED && outcome->err == DIBS_ERR_UPGRADE;

    if (op->entry->type->id != TYPE_WRITE ||
        (!refused && outcome->result != RESULT_BUSY))
        return;
    if (dibs__hold_has_read(op->entry, op->owner))
        *outcome = (struct dibs__acquire_outcome){.result = RESULT_REFUSED,
                                                  .err = DIBS_ERR_UPGRADE};
    else if (refused)
        *outcome =
            (struct dibs__acquire_outcome){.result = RESULT_BUSY,
                                           .retry_after_ms = EXPIRY_RETRY_MS,
                                           .registration = REG_NO_REPLY};
}

/* Decodes the reply to an acquire. *err: in, of the command; out, of the
 * operation if the lock was refused. */
static struct dibs__acquire_outcome
decode_acquire_reply(struct dibs__command *cmd, dibs_err *err,
                     const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__acquire_outcome outcome = {.result = RESULT_REFUSED,
                                            .err = *err};

    if (cmd->under_replicated) {
        outcome.result = RESULT_UNDER_REPLICATED;
    } else if (*err == DIBS_OK) {
        op->entry->type->decode(VERB_ACQUIRE, reply, &outcome);
        check_upgrade(op, &outcome);
        if (outcome.result == RESULT_REFUSED) {
            *err = outcome.err;
            explain_refusal(op, outcome.err);
        }
    } else if (*err == DIBS_ERR_CONN || *err == DIBS_ERR_UNKNOWN ||
               (*err == DIBS_ERR_SERVER && !reply)) {
        outcome.result = RESULT_RETRY;
    }
    return outcome;
}

/* ---- roll back: too few replicas have it -------------------------------- */

static void report_under_replication(struct dibs__operation *op, dibs_err why)
{
    const struct dibs__command *cmd = &op->command;
    char text[TEXT_MAX];

    if (why == DIBS_ERR_CLOSED)
        return;           /* the command did not wait for replicas */
    if (cmd->wanted == 0) /* all were asked for, and none is connected */
        snprintf(text, sizeof text,
                 "'%.80s': the server has no replicas connected; given back",
                 op->entry->name);
    else
        snprintf(text, sizeof text,
                 "'%.80s': %d of %d replicas have it; given back",
                 op->entry->name, cmd->acked, cmd->wanted);
    if (!op->error_text ||
        op->error_text->err != why) /* no error text of the server */
        dibs__op_record_server_error(op, why, "%s", text);
    dibs__entry_log_event(op->entry, DIBS_EVENT_REPLICAS, DIBS_ERR_REPLICAS,
                          "%s", text);
}

/* Releases the level that was just acquired. A first acquire has left
 * entry.wait, but stays in entry.in_flight until the release has a reply, so
 * that its owner cannot acquire the lock in between. */
static void roll_back_acquire(struct dibs__operation *op, dibs_err why,
                              dibs__reply_fn *done)
{
    report_under_replication(op, why);
    dibs__place_leave(&op->entry->wait_queue, &op->waiter, false);
    op->last_err = why;
    op->args.enqueue = false;
    op->args.target_count--;
    dibs__op_send(op, VERB_RELEASE, done, dibs__entry_timeout(op->entry), 0);
}

static void on_first_rolled_back(struct dibs__command *cmd, dibs_err err,
                                 const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list resume = {&resume, &resume};

    (void)reply;
    dibs__lock(&entry->mu);
    dibs__entry_acquire_done(entry, op, &resume);
    op->may_have_stale_copy |= cmd->may_have_stale_copy || err != DIBS_OK;
    dibs__wait_queue_wake_head(&entry->wait_queue);
    dibs__unlock(&entry->mu);
    if (op->may_have_stale_copy)
        dibs__op_abandon_id(op);
    dibs__op_finish(op, op->last_err);
    dibs__op_resume(&resume);
}

static void on_reentry_rolled_back(struct dibs__command *cmd, dibs_err err,
                                   const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__hold *h = op->hold;

    dibs__lock(&entry->mu);
    /* If the server has one level too many, the next release corrects it: its
     * command carries the level count. */
    h->may_have_stale_copy |= cmd->may_have_stale_copy || err != DIBS_OK;
    if (err == DIBS_OK && reply->type == REPLY_NUM && reply->num < 0)
        dibs__hold_lose(entry, h);
    err = h->state == HOLD_LOST ? DIBS_ERR_LOST : op->last_err;
    dibs__unlock(&entry->mu);
    dibs__op_finish_on_hold(op, err);
}

/* ---- re-entry ---------------------------------------------------------- */

/* The hold expired before the reply to the re-entry. The server may have set
 * its lease anew, so the orphan reaper releases it. */
static void expire_outer_hold(struct dibs__lock_entry *entry,
                              const struct dibs__operation *op)
    REQUIRES(entry->mu)
{
    struct dibs__hold *h = op->hold;

    dibs__hold_expire_locally(entry, h);
    h->may_have_stale_copy = true;
    dibs__orphan_release(entry, h->owner_id, op->args.lease_ms);
}

static void on_reentry_reply(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__hold *h = op->hold;

    struct dibs__acquire_outcome outcome =
        decode_acquire_reply(cmd, &err, reply);
    dibs__lock(&entry->mu);
    h->may_have_stale_copy |= cmd->may_have_stale_copy ||
                              err == DIBS_ERR_UNKNOWN ||
                              cmd->partially_executed;
    if (outcome.result == RESULT_UNDER_REPLICATED &&
        !dibs__hold_has_expired(h, dibs__now_ms())) {
        op->waiter.state = WAITER_ROLLING_BACK;
        dibs__unlock(&entry->mu);
        roll_back_acquire(op, err, on_reentry_rolled_back); /* h stays busy */
        return;
    }
    if (outcome.result == RESULT_OUTER_HOLD_LOST ||
        outcome.result == RESULT_BUSY)
        dibs__hold_lose(entry, h);
    else if (dibs__hold_has_expired(h, dibs__now_ms()))
        expire_outer_hold(entry, op);
    else if (outcome.result == RESULT_ACQUIRED)
        dibs__hold_add_level(entry, h, op, cmd->sent_ms, outcome.value);
    if (h->state == HOLD_LOST)
        err = DIBS_ERR_LOST;
    dibs__unlock(&entry->mu);
    if (err == DIBS_ERR_LOST)
        explain_refusal(op, err);
    dibs__op_finish_on_hold(op, err);
}

/* ---- first acquisition ------------------------------------------------- */

/* Removes the acquire from entry.wait and frees the hold prepared for it. */
static void leave_wait_queue(struct dibs__lock_entry *entry,
                             struct dibs__operation *op) REQUIRES(entry->mu)
{
    dibs__wait_queue_leave(&entry->wait_queue, &op->waiter);
    if (op->hold)
        dibs__hold_free(entry, op->hold);
    op->hold = NULL;
}

/* The lock is exclusive and was granted to this owner, so all other holds of
 * the entry were ended on the server, by dibs_lock_force for example. */
static void lose_other_holds(struct dibs__lock_entry *entry, dibs_owner owner)
    REQUIRES(entry->mu)
{
    for (struct dibs__hold *h = NULL; (h = dibs__hold_next(entry, h));)
        if (h->owner != owner && h->state != HOLD_ENDING)
            dibs__hold_lose(entry, h); /* HOLD_ENDING: it is being released */
}

/* Records a hold for a grant. An error: the grant cannot be used, the caller
 * must have it released. */
static dibs_err record_grant(struct dibs__lock_entry *entry,
                             struct dibs__operation *op, int64_t sent,
                             int64_t value) REQUIRES(entry->mu)
{
    int64_t now = dibs__now_ms();

    if (atomic_load(&entry->manager->closing))
        return DIBS_ERR_CLOSED;
    if (dibs__valid_until(sent, op->args.lease_ms) <= now)
        return DIBS_ERR_UNKNOWN; /* it expired before the reply */
    if (!op->hold)
        op->hold = dibs__hold_new(entry);
    if (!op->hold)
        return DIBS_ERR_NOMEM;
    dibs__hold_add_level(entry, op->hold, op, sent, value);
    op->hold = NULL;
    if (entry->type->shared)
        dibs__wait_queue_wake_all(&entry->wait_queue);
    else if (entry->type->is_counting)
        dibs__wait_queue_wake_head(
            &entry->wait_queue); /* another slot or permit may be free */
    else
        lose_other_holds(entry, op->owner);
    entry->handoff_count = 0;
    entry->handoff_start_ms = (uint32_t)now;
    return DIBS_OK;
}

void dibs__acquire_rerun_as_reentry(struct dibs__operation *op)
{
    dibs__place_leave(&op->entry->wait_queue, &op->waiter, false);
    op->args.enqueue = false;
    op->on_caller_thread = false;
    dibs__acquire_run(op);
}

static void on_leave_reply(struct dibs__command *cmd, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);

    if (reply && reply->type == REPLY_NUM && reply->num == SCRIPT_WAITER_WOKEN)
        dibs__fair_queue_gc(op->entry, true);
    if (op->may_have_stale_copy || cmd->may_have_stale_copy || err != DIBS_OK)
        dibs__op_abandon_id(
            op); /* the orphan reaper removes it from the queue */
    dibs__op_finish(op, op->last_err);
}

void dibs__acquire_leave_and_finish(struct dibs__operation *op, dibs_err err)
{
    dibs__place_leave(&op->entry->wait_queue, &op->waiter,
                      err == DIBS_OK && !op->may_have_stale_copy);
    if (op->args.enqueue && err != DIBS_OK) {
        op->last_err = err;
        op->on_caller_thread = false;
        op->waiter.state = WAITER_ROLLING_BACK;
        /* Retired now: no other acquire of the owner may use this id. */
        if (op->may_have_stale_copy)
            dibs__owner_retire(op->entry, op->owner, op->owner_id,
                               RENUMBER_REAP);
        dibs__op_send(op, VERB_LEAVE_QUEUE, on_leave_reply,
                      dibs__entry_timeout(op->entry), 0);
        return;
    }
    if (op->may_have_stale_copy && err != DIBS_OK)
        dibs__op_abandon_id(op);
    dibs__op_finish(op, err);
}

/* Exponential back-off with jitter. */
static int64_t poll_delay(struct dibs__waiter *waiter)
{
    int64_t longest_ms = INT64_C(1) << waiter->poll_count;

    if (longest_ms < POLL_MAX_MS)
        waiter->poll_count++;
    return dibs__random_in((longest_ms + 1) / 2, longest_ms);
}

/* Handles the outcome of a first acquire. Returns true if it stays in
 * entry.wait, else sets *err. Its owner has no hold: while this acquire was in
 * flight, the owner's other acquires were blocked, and no release handed off to
 * them. */
static bool handle_first_reply(struct dibs__lock_entry *entry,
                               struct dibs__operation *op,
                               const struct dibs__acquire_outcome *outcome,
                               dibs_err *err, struct dibs__list *resume)
    REQUIRES(entry->mu)
{
    int64_t pause_ms = 0, sent_ms = 0;

    switch (outcome->result) {
    case RESULT_ACQUIRED:
        assert(!dibs__hold_of(entry, op->owner));
        dibs__list_del(&op->waiter.link);
        *err = record_grant(entry, op, op->command.sent_ms, outcome->value);
        op->may_have_stale_copy |= *err != DIBS_OK;
        if (*err == DIBS_OK)
            dibs__op_take_waiters(entry, op->owner, resume);
        return false;
    case RESULT_BUSY:
        *err = op->no_wait ? DIBS_ERR_BUSY : DIBS_ERR_NOMEM;
        op->waiter.was_busy = !op->no_wait;
        pause_ms =
            op->waiter.poll_count
                ? poll_delay(&op->waiter)
                : entry->type->retry_delay(entry, outcome->retry_after_ms);
        /* A stale copy may acquire the lock for this waiter, and a retry by the
         * queue head would not cover that. With sent_ms 0 it retries on its
         * own. */
        if (!op->may_have_stale_copy || entry->type->retry_policy == RETRY_EACH)
            sent_ms = op->command.sent_ms;
        break;
    case RESULT_RETRY:
        pause_ms = dibs__random_in(RETRY_MIN_MS, RETRY_MAX_MS);
        break;
    case RESULT_OUTER_HOLD_LOST: /* only the reply to a re-entry may say that */
        *err = DIBS_ERR_PROTOCOL;
        op->may_have_stale_copy = true;
        return false;
    case RESULT_UNDER_REPLICATED: /* on_acquire_reply has handled it */
    case RESULT_REFUSED:
        return false;
    }
    return !op->no_wait &&
           dibs__wait_queue_park(&entry->wait_queue, &op->waiter, pause_ms,
                                 sent_ms);
}

/* Warns once if the server has another slot count than the handle. */
static void check_slot_count(struct dibs__lock_entry *entry, int64_t total)
{
    int64_t of_handle = atomic_load(&entry->slot_count);
    char text[TEXT_MAX];

    if (atomic_exchange(&entry->slot_count_known, true) || total == of_handle)
        return;
    snprintf(text, sizeof text,
             "'%.80s' has %lld slots, not %lld: the number on the server is "
             "used",
             entry->name, (long long)total, (long long)of_handle);
    dibs__server_log(dibs__entry_server(entry), DIBS_EVENT_WARNING, DIBS_OK,
                     text);
}

/* Returns what the reply says about the registration for a wake-up (turn.h). */
static enum dibs__reg_reply
registration_outcome(const struct dibs__acquire_outcome *outcome)
{
    switch (outcome->result) {
    case RESULT_ACQUIRED:
    case RESULT_UNDER_REPLICATED:
        return REG_ACQUIRED;
    case RESULT_BUSY:
        return outcome->registration;
    default:
        return REG_NO_REPLY;
    }
}

/* If the owner id was retired while the acquire was in flight, the grant is
 * released, and the acquire retries under the next id. */
static void reject_retired_grant(struct dibs__lock_entry *entry,
                                 const struct dibs__operation *op,
                                 struct dibs__acquire_outcome *outcome)
    REQUIRES(entry->mu)
{
    if (outcome->result != RESULT_ACQUIRED || op->renumber != RENUMBER_REAP)
        return;
    dibs__orphan_release(entry, op->owner_id, op->args.lease_ms);
    *outcome = (struct dibs__acquire_outcome){.result = RESULT_BUSY,
                                              .retry_after_ms = EXPIRY_RETRY_MS,
                                              .registration = REG_NO_REPLY};
}

static void on_acquire_reply(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list resume = {&resume, &resume};

    struct dibs__acquire_outcome outcome =
        decode_acquire_reply(cmd, &err, reply);
    dibs__lock(&entry->mu);
    reject_retired_grant(entry, op, &outcome);
    dibs__wait_queue_replied(&entry->wait_queue, op->args.registration,
                             registration_outcome(&outcome), dibs__now_ms());
    if (outcome.result == RESULT_UNDER_REPLICATED) {
        op->may_have_stale_copy |= cmd->may_have_stale_copy;
        leave_wait_queue(entry, op);
        op->waiter.state = WAITER_ROLLING_BACK;
        dibs__unlock(&entry->mu);
        roll_back_acquire(op, err, on_first_rolled_back);
        return;
    }
    dibs__entry_acquire_done(entry, op, &resume);
    op->may_have_stale_copy |=
        cmd->may_have_stale_copy || cmd->partially_executed ||
        err == DIBS_ERR_UNKNOWN || (err == DIBS_ERR_PROTOCOL && reply);
    op->last_err = outcome.result == RESULT_RETRY ? err : DIBS_OK;
    bool stays = handle_first_reply(entry, op, &outcome, &err, &resume);
    if (!stays)
        leave_wait_queue(entry, op);
    if (outcome.result == RESULT_REFUSED) /* it may have used up a wake-up */
        dibs__wait_queue_wake_head(&entry->wait_queue);
    dibs__unlock(&entry->mu);
    if (outcome.slot_total)
        check_slot_count(entry, outcome.slot_total);
    if (!stays)
        dibs__acquire_leave_and_finish(op, err);
    dibs__op_resume(&resume);
}

void dibs__acquire_send(struct dibs__operation *op)
{
    dibs__op_send(op, VERB_ACQUIRE, on_acquire_reply,
                  dibs__entry_timeout(op->entry) + op->command.replicas_ms,
                  op->no_wait ? 0 : op->waiter.deadline);
}

/* ---- what to send ------------------------------------------------------ */

enum acquire_plan { PLAN_SEND, PLAN_REENTER, PLAN_WAIT, PLAN_FAIL };

static enum acquire_plan plan_fail(dibs_err why, dibs_err *err)
{
    *err = why;
    return PLAN_FAIL;
}

static enum acquire_plan plan_reentry(struct dibs__lock_entry *entry,
                                      struct dibs__operation *op,
                                      struct dibs__hold *h, dibs_err *err)
    REQUIRES(entry->mu)
{
    if (h->busy && op->batch) /* it would delay the whole batch */
        return plan_fail(DIBS_ERR_CANCELED, err);
    if (h->busy && !dibs__wait_queue_activate(&entry->wait_queue))
        return plan_fail(DIBS_ERR_NOMEM, err);
    if (h->busy) {
        dibs__wait_queue_block_on(&entry->wait_queue, &h->blocked_ops,
                                  &op->waiter);
        return PLAN_WAIT;
    }
    if (dibs__hold_has_expired(h, dibs__now_ms())) {
        dibs__hold_expire_locally(entry, h);
        return plan_fail(DIBS_ERR_LOST, err);
    }
    if (op->no_reentry)
        return plan_fail(DIBS_ERR_DEADLOCK, err);
    if (!dibs__hold_reserve_level(h))
        return plan_fail(DIBS_ERR_NOMEM, err);
    h->busy = true;
    op->hold = h;
    op->waiter.state = WAITER_IN_FLIGHT;
    op->args.owner_id = h->owner_id;
    op->args.registration = REG_NONE;
    op->args.target_count = h->count + 1;
    return PLAN_REENTER;
}

/* May a first acquire send its command before it has waited? False: the lock
 * is known to be held, earlier waiters are queued, or this client has just
 * released the lock and backs off. */
static bool may_send_now(struct dibs__lock_entry *entry,
                         const struct dibs__operation *op) REQUIRES(entry->mu)
{
    const struct dibs__lock_type *type = entry->type;
    int64_t now;

    if (op->no_wait || type->retry_policy != RETRY_HEAD_ONLY)
        return true;
    if (type->is_counting && !type->register_args)
        return dibs__list_empty(&entry->wait_queue.waiters);
    now = dibs__now_ms();
    if (!type->is_counting && dibs__entry_held_until(entry, now))
        return false;
    int64_t until = entry->wait_queue.backoff_until;
    if (!op->batch && now < until && until < op->waiter.deadline)
        return false;
    return dibs__lock_type_has(type, VERB_LEAVE_QUEUE) ||
           dibs__list_empty(&entry->wait_queue.waiters);
}

static enum acquire_plan plan_first_acquire(struct dibs__lock_entry *entry,
                                            struct dibs__operation *op,
                                            dibs_err *err) REQUIRES(entry->mu)
{
    struct dibs__operation *in_flight =
        dibs__entry_in_flight_of(entry, op->owner);

    if (in_flight && op->batch)
        return plan_fail(DIBS_ERR_CANCELED, err);
    if (in_flight && !dibs__wait_queue_activate(&entry->wait_queue))
        return plan_fail(DIBS_ERR_NOMEM, err);
    if (in_flight) { /* its outcome decides: re-entry or first acquire */
        dibs__wait_queue_block_on(&entry->wait_queue, &in_flight->blocked_ops,
                                  &op->waiter);
        return PLAN_WAIT;
    }
    bool send_now = may_send_now(entry, op);
    if (!send_now && !dibs__wait_queue_activate(&entry->wait_queue))
        return plan_fail(DIBS_ERR_NOMEM, err);
    /* The hold is allocated now, so that a grant cannot fail. Not with
     * RETRY_EACH: server queues can be long. */
    if (op->no_wait || entry->type->retry_policy != RETRY_EACH) {
        op->hold = dibs__hold_new(entry);
        if (!op->hold)
            return plan_fail(DIBS_ERR_NOMEM, err);
    }
    op->args.owner_id = op->owner_id;
    op->args.target_count = 1;
    op->waiter.was_busy = !send_now;
    op->args.enqueue =
        dibs__lock_type_has(entry->type, VERB_LEAVE_QUEUE) && !op->no_wait;
    if (entry->type->shared)
        op->args.peer_id_hint = dibs__hold_find_peer(entry, NULL, 0);
    if (!op->no_wait)
        dibs__wait_queue_join(&entry->wait_queue, &op->waiter, !send_now);
    if (!send_now)
        return PLAN_WAIT;
    (void)dibs__entry_acquire_begin(entry, op); /* in_flight was NULL */
    op->args.registration =
        op->no_wait || op->batch || op->waiter.poll_count
            ? REG_NONE
            : (unsigned char)dibs__wait_queue_registration(&entry->wait_queue);
    return PLAN_SEND;
}

/* Locks entry.mu and sets the owner id of op. Returns whether the owner holds
 * the lock as another type of its family, which is the same lock on the server;
 * for write mode, whether it holds read mode. An id that was retired must not
 * be used: under entry.mu the orphan reaper checks which ids are in use before
 * it releases. So the loop repeats if an id was retired meanwhile. */
static bool lock_with_owner_id(struct dibs__lock_entry *entry,
                               struct dibs__operation *op) TAKES(entry->mu)
{
    for (;;) {
        unsigned retired = atomic_load(&entry->manager->retired_id_count);
        op->owner_id = dibs__owner_current_id(entry->manager, op->owner);
        op->args.other_id =
            dibs__owner_writer_id(entry, op->owner, op->owner_id);
        bool held_in_family = entry->type->layout == LAYOUT_HASH
                                  ? dibs__hold_in_other_type(entry, op->owner)
                                  : dibs__hold_has_read(entry, op->owner);
        dibs__lock(&entry->mu);
        op->renumber = RENUMBER_NO;
        if (atomic_load(&entry->manager->retired_id_count) == retired)
            return held_in_family;
        dibs__unlock(&entry->mu);
    }
}

void dibs__acquire_run(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;
    dibs_err err = DIBS_ERR_CLOSED;
    enum acquire_plan plan = PLAN_FAIL;
    bool on_caller_thread = op->on_caller_thread;

    op->on_caller_thread = false; /* if it waits, the io thread continues it */
    bool held_in_family = lock_with_owner_id(entry, op);
    if (held_in_family && entry->type->layout == LAYOUT_HASH) {
        err = DIBS_ERR_WRONGTYPE;
        dibs__op_record_error(op, err,
                              "this owner holds it as a lock of another kind");
    } else if (!atomic_load(&entry->manager->closing)) {
        struct dibs__hold *h = dibs__hold_of(entry, op->owner);
        plan = h                ? plan_reentry(entry, op, h, &err)
               : held_in_family ? plan_fail(DIBS_ERR_UPGRADE, &err)
                                : plan_first_acquire(entry, op, &err);
    }
    dibs__unlock(&entry->mu);
    if (plan == PLAN_FAIL && (err == DIBS_ERR_UPGRADE || err == DIBS_ERR_LOST))
        explain_refusal(op, err);
    if (plan == PLAN_FAIL && err == DIBS_ERR_DEADLOCK)
        dibs__op_record_error(op, err, "this owner holds it already");
    switch (plan) {
    case PLAN_SEND:
        op->on_caller_thread = on_caller_thread;
        dibs__acquire_send(op);
        break;
    case PLAN_REENTER:
        op->on_caller_thread = on_caller_thread;
        dibs__op_send(
            op, VERB_ACQUIRE, on_reentry_reply,
            2 * dibs__entry_timeout(op->entry) + op->command.replicas_ms, 0);
        break;
    case PLAN_WAIT:
        break;
    case PLAN_FAIL:
        dibs__op_finish(op, err);
    }
}
