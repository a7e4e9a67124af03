/* SPDX-License-Identifier: MIT
 *
 * acquire.c - taking a lock.
 *
 * Thread  app for the first attempt of a sync call, io for all else.
 * Locks   line.mu.
 *
 * How     An owner that has the lock takes it once more: that is one command.
 *         Otherwise the call joins the line. If no call here is before it, it
 *         asks the server at once, on its caller's own thread. If one is, it
 *         waits for its turn (wait_queue.c), or a release hands it the lock
 *         (release.c). A call that only tries asks at once and does not join.
 *         Where each waiter asks for itself, all of them ask at once.
 *
 * Replicas
 *         If replicas must have it, too, the server's yes is not enough. Until
 *         they have said so, no call here sees it as held. If too few say so,
 *         what was taken is given back before the call ends.
 *
 * Trouble The command says how many holds there shall be, so asking again after
 *         a lost reply is harmless. A copy may still come late, for a call that
 *         has given up. Then the owner goes on under another number, and the
 *         reaper takes back what the old number may be given.
 */
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"
#include "lock/wait/place.h"

#include <assert.h>
#include <stdio.h>

#define RETRY_MIN_MS 50
#define RETRY_MAX_MS 250
#define POLL_MAX_MS  128
#define ENDS_MS      50 /* until what is about to end is asked for again */

static void explain_refusal(struct dibs__operation *op, dibs_err err)
{
    if (err == DIBS_ERR_LOST)
        dibs__op_record_error_here(
            op, err,
            "'%.80s': this owner's earlier hold has ended and was not released "
            "yet; release it, then acquire again",
            op->entry->name);
    if (err == DIBS_ERR_UPGRADE)
        dibs__op_record_error_here(op, err,
                                   "'%.80s': this owner holds the read lock",
                                   op->entry->name);
    if (err == DIBS_ERR_WRONGTYPE)
        dibs__op_explain_kind(op);
}

/* Who reads cannot write: whether it does is known here. The server may have a
 * read for some moments more that is lost, or about to end: then the writer has
 * to wait. And it may know the reader by another number, and let the writer
 * wait for itself. */
static void judge_upgrade(const struct dibs__operation *op,
                          struct dibs__acquired *got)
{
    bool told = got->result == RESULT_REFUSED && got->err == DIBS_ERR_UPGRADE;

    if (op->entry->type->id != TYPE_WRITE ||
        (!told && got->result != RESULT_BUSY))
        return;
    if (dibs__hold_has_read(op->entry, op->owner))
        *got = (struct dibs__acquired){.result = RESULT_REFUSED,
                                       .err = DIBS_ERR_UPGRADE};
    else if (told)
        *got = (struct dibs__acquired){.result = RESULT_BUSY,
                                       .retry_after_ms = ENDS_MS,
                                       .told = TOLD_UNKNOWN};
}

/* What came of an acquire. err is that of the call, or what a refusal means. */
static struct dibs__acquired read_answer(struct dibs__command *cmd,
                                         dibs_err *err,
                                         const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__acquired got = {.result = RESULT_REFUSED, .err = *err};

    if (cmd->under_replicated) {
        got.result = RESULT_UNDER_REPLICATED;
    } else if (*err == DIBS_OK) {
        op->entry->type->decode(VERB_ACQUIRE, reply, &got);
        judge_upgrade(op, &got);
        if (got.result == RESULT_REFUSED) {
            *err = got.err;
            explain_refusal(op, got.err);
        }
    } else if (*err == DIBS_ERR_CONN || *err == DIBS_ERR_UNKNOWN ||
               (*err == DIBS_ERR_SERVER && !reply)) {
        got.result = RESULT_RETRY;
    }
    return got;
}

/* ---- too few replicas have it ------------------------------------------ */

static void tell_short(struct dibs__operation *op, dibs_err why)
{
    const struct dibs__command *cmd = &op->command;
    char text[200];

    if (why == DIBS_ERR_CLOSED)
        return;           /* it did not wait for them */
    if (cmd->wanted == 0) /* all of them, and there are none */
        snprintf(text, sizeof text,
                 "'%.80s': the server has no replicas connected; given back",
                 op->entry->name);
    else
        snprintf(text, sizeof text,
                 "'%.80s': %d of %d replicas have it; given back",
                 op->entry->name, cmd->acked, cmd->wanted);
    if (!op->error_text ||
        op->error_text->err != why) /* the server said no more */
        dibs__op_record_error_here(op, why, "%s", text);
    dibs__entry_log_event(op->entry, DIBS_EVENT_REPLICAS, DIBS_ERR_REPLICAS,
                          "%s", text);
}

/* Gives back what was just taken; outer levels stay. A first acquisition is out
 * of the line by now, but counts as asking until the server has confirmed that
 * the lock is free again: its owner must not ask for it meanwhile. */
static void undo_acquire(struct dibs__operation *op, dibs_err why,
                         dibs__reply_fn *undone)
{
    tell_short(op, why);
    dibs__place_leave(&op->entry->wait, &op->waiter, false);
    op->last_err = why;
    op->args.enqueue = false;
    op->args.target_count--;
    dibs__op_send(op, VERB_RELEASE, undone, dibs__entry_timeout(op->entry), 0);
}

static void first_undone(struct dibs__command *cmd, dibs_err err,
                         const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list resume = {&resume, &resume};

    (void)reply;
    dibs__lock(&entry->mu);
    dibs__entry_acquire_done(entry, op, &resume);
    op->may_have_stale_copy |= cmd->maybe_live_copy || err != DIBS_OK;
    dibs__wait_queue_wake_head(&entry->wait);
    dibs__unlock(&entry->mu);
    if (op->may_have_stale_copy)
        dibs__op_disown(op);
    dibs__op_finish(op, op->last_err);
    dibs__op_resume(&resume);
}

static void reentry_undone(struct dibs__command *cmd, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__hold *h = op->hold;

    dibs__lock(&entry->mu);
    /* If there is one level too many now, the next release says how many there
     * shall be. */
    h->may_have_stale_copy |= cmd->maybe_live_copy || err != DIBS_OK;
    if (err == DIBS_OK && reply->type == REPLY_NUM && reply->num < 0)
        dibs__hold_lose(entry, h);
    err = h->state == HOLD_LOST ? DIBS_ERR_LOST : op->last_err;
    dibs__unlock(&entry->mu);
    dibs__op_end_busy(op, err);
}

/* ---- re-entry ---------------------------------------------------------- */

/* The outer hold was over when the answer came. What the server may have
 * granted is taken back. */
static void end_late(struct dibs__lock_entry *entry,
                     const struct dibs__operation *op) REQUIRES(line->mu)
{
    struct dibs__hold *h = op->hold;

    dibs__hold_expire_locally(entry, h);
    h->may_have_stale_copy = true;
    dibs__orphan_release(entry, h->owner_id, op->args.lease_ms);
}

static void reentry_answered(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__hold *h = op->hold;

    struct dibs__acquired got = read_answer(cmd, &err, reply);
    dibs__lock(&entry->mu);
    h->may_have_stale_copy |= cmd->maybe_live_copy || err == DIBS_ERR_UNKNOWN ||
                              cmd->partially_executed;
    if (got.result == RESULT_UNDER_REPLICATED &&
        !dibs__hold_has_expired(h, dibs__now_ms())) {
        op->waiter.state = WAITER_ROLLING_BACK;
        dibs__unlock(&entry->mu);
        undo_acquire(op, err, reentry_undone); /* busy until then */
        return;
    }
    if (got.result == RESULT_OUTER_HOLD_LOST || got.result == RESULT_BUSY)
        dibs__hold_lose(entry, h);
    else if (dibs__hold_has_expired(h, dibs__now_ms()))
        end_late(entry, op);
    else if (got.result == RESULT_ACQUIRED)
        dibs__hold_taken(entry, h, op, cmd->sent_ms, got.value);
    if (h->state == HOLD_LOST)
        err = DIBS_ERR_LOST;
    dibs__unlock(&entry->mu);
    if (err == DIBS_ERR_LOST)
        explain_refusal(op, err);
    dibs__op_end_busy(op, err);
}

/* ---- first acquisition ------------------------------------------------- */

/* Out of the line; what was prepared for the grant goes. */
static void op_leave(struct dibs__lock_entry *entry, struct dibs__operation *op)
    REQUIRES(line->mu)
{
    dibs__wait_queue_leave(&entry->wait, &op->waiter);
    if (op->hold)
        dibs__hold_free(entry, op->hold);
    op->hold = NULL;
}

/* The server gave it to this owner, so no other owner here has it any more: it
 * was taken away by force. */
static void lose_others(struct dibs__lock_entry *entry, dibs_owner owner)
    REQUIRES(line->mu)
{
    for (struct dibs__hold *h = NULL; (h = dibs__hold_next(entry, h));)
        if (h->owner != owner && h->state != HOLD_ENDING)
            dibs__hold_lose(entry, h); /* one that is ENDING gives it back */
}

/* Granted, but is it any use? */
static dibs_err take_granted(struct dibs__lock_entry *entry,
                             struct dibs__operation *op, int64_t sent,
                             int64_t value) REQUIRES(line->mu)
{
    int64_t now = dibs__now_ms();

    if (atomic_load(&entry->manager->closing))
        return DIBS_ERR_CLOSED;
    if (dibs__valid_until(sent, op->args.lease_ms) <= now)
        return DIBS_ERR_UNKNOWN; /* the answer came when it was over */
    if (!op->hold)
        op->hold = dibs__hold_new(entry);
    if (!op->hold)
        return DIBS_ERR_NOMEM;
    dibs__hold_taken(entry, op->hold, op, sent, value);
    op->hold = NULL;
    if (entry->type->shared)
        dibs__wait_queue_wake_all(&entry->wait); /* what one may, all may */
    else if (entry->type->is_counting)
        dibs__wait_queue_wake_head(
            &entry->wait); /* there may be one for the next */
    else
        lose_others(entry, op->owner);
    entry->handoff_count = 0;
    entry->handoff_start_ms = (uint32_t)now;
    return DIBS_OK;
}

void dibs__acquire_start_over(struct dibs__operation *op)
{
    dibs__place_leave(&op->entry->wait, &op->waiter, false);
    op->args.enqueue = false;
    op->on_caller_thread = false;
    dibs__acquire_run(op);
}

static void leave_answered(struct dibs__command *cmd, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);

    if (reply && reply->type == REPLY_NUM && reply->num == SCRIPT_WAITER_WOKEN)
        dibs__fair_queue_gc(op->entry, true);
    if (op->may_have_stale_copy || cmd->maybe_live_copy || err != DIBS_OK)
        dibs__op_disown(op); /* the reaper takes it out of the queue */
    dibs__op_finish(op, op->last_err);
}

void dibs__acquire_end(struct dibs__operation *op, dibs_err err)
{
    dibs__place_leave(&op->entry->wait, &op->waiter,
                      err == DIBS_OK && !op->may_have_stale_copy);
    if (op->args.enqueue && err != DIBS_OK) {
        op->last_err = err;
        op->on_caller_thread = false;
        op->waiter.state = WAITER_ROLLING_BACK;
        if (op->may_have_stale_copy) /* before another call of its owner asks by
                                        it */
            dibs__owner_retire(op->entry, op->owner, op->owner_id,
                               RENUMBER_REAP);
        dibs__op_send(op, VERB_LEAVE, leave_answered,
                      dibs__entry_timeout(op->entry), 0);
        return;
    }
    if (op->may_have_stale_copy && err != DIBS_OK)
        dibs__op_disown(op);
    dibs__op_finish(op, err);
}

/* Longer each time, and not the same for all. */
static int64_t poll_pause(struct dibs__waiter *waiter)
{
    int64_t longest = INT64_C(1) << waiter->polls;

    if (longest < POLL_MAX_MS)
        waiter->polls++;
    return dibs__random_in((longest + 1) / 2, longest);
}

/* What the answer means for a waiter. True: it stays in the line. No other call
 * of its owner has taken the lock meanwhile: while one asks, the others are
 * behind it, and no release hands over to them. */
static bool first_step(struct dibs__lock_entry *entry,
                       struct dibs__operation *op,
                       const struct dibs__acquired *got, dibs_err *err,
                       struct dibs__list *resume) REQUIRES(line->mu)
{
    int64_t pause_ms = 0, asked_ms = 0;

    switch (got->result) {
    case RESULT_ACQUIRED:
        assert(!dibs__hold_of(entry, op->owner));
        dibs__list_del(&op->waiter.link);
        *err = take_granted(entry, op, op->command.sent_ms, got->value);
        op->may_have_stale_copy |= *err != DIBS_OK;
        if (*err == DIBS_OK)
            dibs__op_take_waits(entry, op->owner, resume);
        return false;
    case RESULT_BUSY:
        *err = op->no_wait ? DIBS_ERR_BUSY : DIBS_ERR_NOMEM;
        op->waiter.was_busy = !op->no_wait;
        pause_ms = op->waiter.polls
                       ? poll_pause(&op->waiter)
                       : entry->type->retry_delay(entry, got->retry_after_ms);
        /* If a copy may yet get in for it, it goes on to ask for itself. */
        if (!op->may_have_stale_copy || entry->type->retry_policy == RETRY_EACH)
            asked_ms = op->command.sent_ms;
        break;
    case RESULT_RETRY:
        pause_ms = dibs__random_in(RETRY_MIN_MS, RETRY_MAX_MS);
        break;
    case RESULT_OUTER_HOLD_LOST: /* of a first acquisition there are no outer
                                    holds */
        *err = DIBS_ERR_PROTOCOL;
        op->may_have_stale_copy = true;
        return false;
    case RESULT_UNDER_REPLICATED: /* undone before */
    case RESULT_REFUSED:
        return false;
    }
    return !op->no_wait &&
           dibs__wait_queue_park(&entry->wait, &op->waiter, pause_ms, asked_ms);
}

/* The handle of a slots lock and the server may differ: told once. */
static void compare_total(struct dibs__lock_entry *entry, int64_t total)
{
    int64_t mine = atomic_load(&entry->slot_count);
    char text[200];

    if (atomic_exchange(&entry->slot_count_known, true) || total == mine)
        return;
    snprintf(text, sizeof text,
             "'%.80s' has %lld slots, and not %lld: the number on the server "
             "counts",
             entry->name, (long long)total, (long long)mine);
    dibs__server_log(dibs__entry_server(entry), DIBS_EVENT_WARNING, DIBS_OK,
                     text);
}

/* What the answer says about being called. */
static enum dibs__told told_by(const struct dibs__acquired *got)
{
    switch (got->result) {
    case RESULT_ACQUIRED:
    case RESULT_UNDER_REPLICATED:
        return TOLD_TAKEN;
    case RESULT_BUSY:
        return got->told;
    default:
        return TOLD_UNKNOWN;
    }
}

/* Another call of the owner had trouble meanwhile, and retired the number. What
 * the number was given is taken back, and this call asks by the next one. */
static void drop_retired(struct dibs__lock_entry *entry,
                         const struct dibs__operation *op,
                         struct dibs__acquired *got) REQUIRES(line->mu)
{
    if (got->result != RESULT_ACQUIRED || op->renumber != RENUMBER_REAP)
        return;
    dibs__orphan_release(entry, op->owner_id, op->args.lease_ms);
    *got = (struct dibs__acquired){
        .result = RESULT_BUSY, .retry_after_ms = ENDS_MS, .told = TOLD_UNKNOWN};
}

static void acquire_answered(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list resume = {&resume, &resume};

    struct dibs__acquired got = read_answer(cmd, &err, reply);
    dibs__lock(&entry->mu);
    drop_retired(entry, op, &got);
    dibs__wait_queue_replied(&entry->wait, op->args.registration, told_by(&got),
                             dibs__now_ms());
    if (got.result == RESULT_UNDER_REPLICATED) {
        op->may_have_stale_copy |= cmd->maybe_live_copy;
        op_leave(entry, op);
        op->waiter.state = WAITER_ROLLING_BACK;
        dibs__unlock(&entry->mu);
        undo_acquire(op, err, first_undone);
        return;
    }
    dibs__entry_acquire_done(entry, op, &resume);
    op->may_have_stale_copy |=
        cmd->maybe_live_copy || cmd->partially_executed ||
        err == DIBS_ERR_UNKNOWN || (err == DIBS_ERR_PROTOCOL && reply);
    op->last_err = got.result == RESULT_RETRY ? err : DIBS_OK;
    bool stays = first_step(entry, op, &got, &err, &resume);
    if (!stays)
        op_leave(entry, op);
    if (got.result == RESULT_REFUSED) /* it may have been called */
        dibs__wait_queue_wake_head(&entry->wait);
    dibs__unlock(&entry->mu);
    if (got.slot_total)
        compare_total(entry, got.slot_total);
    if (!stays)
        dibs__acquire_end(op, err);
    dibs__op_resume(&resume);
}

void dibs__acquire_ask(struct dibs__operation *op)
{
    dibs__op_send(op, VERB_ACQUIRE, acquire_answered,
                  dibs__entry_timeout(op->entry) + op->command.replicas_ms,
                  op->no_wait ? 0 : op->waiter.deadline);
}

/* ---- where to start ---------------------------------------------------- */

enum plan { ASK, REENTER, WAIT, END };

static enum plan plan_end(dibs_err why, dibs_err *err)
{
    *err = why;
    return END;
}

static enum plan plan_reentry(struct dibs__lock_entry *entry,
                              struct dibs__operation *op, struct dibs__hold *h,
                              dibs_err *err) REQUIRES(line->mu)
{
    if (h->busy && op->batch) /* the others of the batch must not wait */
        return plan_end(DIBS_ERR_CANCELED, err);
    if (h->busy && !dibs__wait_queue_activate(&entry->wait))
        return plan_end(DIBS_ERR_NOMEM, err);
    if (h->busy) {
        dibs__wait_queue_block_on(&entry->wait, &h->blocked_ops, &op->waiter);
        return WAIT;
    }
    if (dibs__hold_has_expired(h, dibs__now_ms())) {
        dibs__hold_expire_locally(entry, h);
        return plan_end(DIBS_ERR_LOST, err);
    }
    if (op->no_reentry)
        return plan_end(DIBS_ERR_DEADLOCK, err);
    if (!dibs__hold_reserve_level(h))
        return plan_end(DIBS_ERR_NOMEM, err);
    h->busy = true;
    op->hold = h;
    op->waiter.state = WAITER_IN_FLIGHT;
    op->args.owner_id = h->owner_id;
    op->args.registration = HOW_PLAIN;
    op->args.target_count = h->count + 1;
    return REENTER;
}

/* Must it ask, or does it know that it has to wait? It stands back if this
 * client has just released. */
static bool must_ask(struct dibs__lock_entry *entry,
                     const struct dibs__operation *op) REQUIRES(line->mu)
{
    const struct dibs__lock_type *type = entry->type;
    int64_t now;

    if (op->no_wait || type->retry_policy != RETRY_HEAD_ONLY)
        return true;
    if (type->is_counting && !type->register_args)
        return dibs__list_empty(&entry->wait.waiters);
    now = dibs__now_ms();
    if (!type->is_counting && dibs__hold_until(entry, now))
        return false;
    int64_t until = entry->wait.backoff_until;
    if (!op->batch && now < until && until < op->waiter.deadline)
        return false;
    return dibs__lock_type_has(type, VERB_LEAVE) ||
           dibs__list_empty(&entry->wait.waiters);
}

static enum plan plan_first(struct dibs__lock_entry *entry,
                            struct dibs__operation *op, dibs_err *err)
    REQUIRES(line->mu)
{
    struct dibs__operation *before = dibs__entry_in_flight_of(entry, op->owner);

    if (before && op->batch)
        return plan_end(DIBS_ERR_CANCELED, err);
    if (before && !dibs__wait_queue_activate(&entry->wait))
        return plan_end(DIBS_ERR_NOMEM, err);
    if (before) { /* its answer decides what this one has to ask */
        dibs__wait_queue_block_on(&entry->wait, &before->blocked_ops,
                                  &op->waiter);
        return WAIT;
    }
    /* Made now, so that a grant cannot fail; but a long queue on the server is
     * not worth a hold for each waiter in it. */
    bool asks = must_ask(entry, op);
    if (!asks && !dibs__wait_queue_activate(&entry->wait))
        return plan_end(DIBS_ERR_NOMEM, err);
    if (op->no_wait || entry->type->retry_policy != RETRY_EACH) {
        op->hold = dibs__hold_new(entry);
        if (!op->hold)
            return plan_end(DIBS_ERR_NOMEM, err);
    }
    op->args.owner_id = op->owner_id;
    op->args.target_count = 1;
    op->waiter.was_busy = !asks;
    op->args.enqueue =
        dibs__lock_type_has(entry->type, VERB_LEAVE) && !op->no_wait;
    if (entry->type->shared)
        op->args.peer_id_hint = dibs__hold_find_peer(entry, NULL, 0);
    if (!op->no_wait)
        dibs__wait_queue_join(&entry->wait, &op->waiter, !asks);
    if (!asks)
        return WAIT;
    (void)dibs__entry_acquire_begin(entry, op); /* nobody is before it */
    op->args.registration =
        op->no_wait || op->batch || op->waiter.polls
            ? HOW_PLAIN
            : (unsigned char)dibs__wait_queue_registration(&entry->wait);
    return ASK;
}

/* Takes line.mu, and the number under which the owner goes. True: the owner has
 * the lock as another kind of its family, which is one lock on the server; of a
 * writer, that it reads. A number that is retired meanwhile must not be used:
 * under the same mutex, the reaper looks for calls that go by a number before
 * it takes back what that number has. */
static bool lock_by_number(struct dibs__lock_entry *entry,
                           struct dibs__operation *op) TAKES(line->mu)
{
    for (;;) {
        unsigned before = atomic_load(&entry->manager->retired);
        op->owner_id = dibs__owner_wire(entry->manager, op->owner);
        op->args.other_id = dibs__owner_writes(entry, op->owner, op->owner_id);
        bool otherwise = entry->type->layout == LAYOUT_HASH
                             ? dibs__hold_in_other_type(entry, op->owner)
                             : dibs__hold_has_read(entry, op->owner);
        dibs__lock(&entry->mu);
        op->renumber = RENUMBER_NO;
        if (atomic_load(&entry->manager->retired) == before)
            return otherwise;
        dibs__unlock(&entry->mu);
    }
}

void dibs__acquire_run(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;
    dibs_err err = DIBS_ERR_CLOSED;
    enum plan plan = END;
    bool direct = op->on_caller_thread;

    op->on_caller_thread = false; /* if it waits, io goes on with it */
    bool otherwise = lock_by_number(entry, op);
    if (otherwise && entry->type->layout == LAYOUT_HASH) {
        err = DIBS_ERR_WRONGTYPE;
        dibs__op_record_error(op, err,
                              "this owner holds it as a lock of another kind");
    } else if (!atomic_load(&entry->manager->closing)) {
        struct dibs__hold *h = dibs__hold_of(entry, op->owner);
        plan = h           ? plan_reentry(entry, op, h, &err)
               : otherwise ? plan_end(DIBS_ERR_UPGRADE, &err)
                           : plan_first(entry, op, &err);
    }
    dibs__unlock(&entry->mu);
    if (plan == END && (err == DIBS_ERR_UPGRADE || err == DIBS_ERR_LOST))
        explain_refusal(op, err);
    if (plan == END && err == DIBS_ERR_DEADLOCK)
        dibs__op_record_error(op, err, "this owner holds it already");
    switch (plan) {
    case ASK:
        op->on_caller_thread = direct;
        dibs__acquire_ask(op);
        break;
    case REENTER:
        op->on_caller_thread = direct;
        dibs__op_send(
            op, VERB_ACQUIRE, reentry_answered,
            2 * dibs__entry_timeout(op->entry) + op->command.replicas_ms, 0);
        break;
    case WAIT:
        break;
    case END:
        dibs__op_finish(op, err);
    }
}
