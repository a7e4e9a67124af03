/* SPDX-License-Identifier: MIT
 *
 * operation.c - one operation on a lock: sent, finished, resumed.
 *
 * The words (operation, verb, blocked, resume) are explained in operation.h.
 *
 * Thread  app, io.
 * Locks   entry.mu where stated.
 *
 * States  op.waiter.state; wait_queue.c has the table. A first acquire goes
 *         through all states. A re-entry or release is only WAITER_IDLE,
 *         WAITER_BLOCKED or WAITER_IN_FLIGHT.
 *
 * Order   Two operations of one owner never change a hold at the same time: the
 *         second one is WAITER_BLOCKED, in hold.blocked_ops; while the owner's
 *         first acquire is in flight, in op.blocked_ops of that acquire.
 */
#include "lock/core/operation.h"

#include "base/mem.h"
#include "client/callback_io.h"
#include "lock/core/lock_manager.h"

#include <stdarg.h>
#include <stdio.h>

static void write_command(struct dibs__command *cmd, struct dibs__buf *out,
                          bool whole)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);

    dibs__lock_command_encode(op->lock_command, &op->args, out, whole);
}

/* ---- error texts ------------------------------------------------------- */

void dibs__op_record_error(struct dibs__operation *op, dibs_err err,
                           const char *why)
{
    dibs__free(op->error_text);
    op->error_text = dibs__reason_new(err, why);
}

void dibs__op_record_server_error(struct dibs__operation *op, dibs_err err,
                                  const char *fmt, ...)
{
    char text[DIBS__REASON_MAX], why[DIBS__REASON_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    dibs__client_format(dibs__entry_client(op->entry), op->entry->hash_slot,
                        text, why);
    dibs__op_record_error(op, err, why);
}

void dibs__op_record_wrong_type(struct dibs__operation *op)
{
    dibs__op_record_server_error(
        op, DIBS_ERR_WRONGTYPE,
        "'%.80s' (or a key that belongs to it) is something "
        "else, or a lock of another kind",
        op->entry->name);
}

static void on_command_error_text(struct dibs__command *cmd, dibs_err err,
                                  const char *why)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);

    if (op->waiter.state == WAITER_ROLLING_BACK)
        return; /* the operation fails for what made it roll back */
    if (err == DIBS_ERR_WRONGTYPE)
        dibs__op_record_wrong_type(op);
    else
        dibs__op_record_error(op, err, why);
}

/* Is the error caused by the server or the connection to it? */
static bool is_server_error(dibs_err err)
{
    return err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN ||
           err == DIBS_ERR_WRONGTYPE || err == DIBS_ERR_AUTH ||
           err == DIBS_ERR_SERVER || err == DIBS_ERR_PROTOCOL ||
           err == DIBS_ERR_REPLICAS || err == DIBS_ERR_TLS;
}

void dibs__op_set_error_text(struct dibs__operation *op)
{
    if (op->err == DIBS_OK)
        return;
    if (op->error_text)
        dibs__reason_set(op->err, "%s", op->error_text->text);
    dibs__free(op->error_text);
    op->error_text = NULL;
}

/* ---- send and finish --------------------------------------------------- */

static void start_command(struct dibs__operation *op)
{
    struct dibs__route to = dibs__entry_route(op->entry);
    bool on_caller_thread = op->on_caller_thread;

    op->on_caller_thread =
        false; /* the next command may be sent by io, which must not block */
    bool *sent = op->on_ended ? op->sent_on_caller_thread : NULL;
    if (on_caller_thread && sent) /* op may be freed when this returns false */
        *sent = dibs__command_send_sync(to, &op->command);
    else if (on_caller_thread)
        dibs__command_run_sync(to, &op->command);
    else if (op->async && !op->on_ended)
        dibs__ride_start(&dibs__entry_client(op->entry)->callbacks, to,
                         &op->command);
    else
        dibs__command_start(to, &op->command);
}

void dibs__op_send_custom(struct dibs__operation *op, dibs__op_writer *write,
                          unsigned expects, dibs__reply_fn *on_reply,
                          int64_t within)
{
    dibs__assert_no_lock();
    op->lock_command = VERB_COUNT;
    op->command.expects = expects;
    op->command.write = write;
    op->command.on_reply = on_reply;
    op->command.on_error_text = on_command_error_text;
    dibs__entry_fill_command(op->entry, &op->command, within, 0);
    op->command.replicas = 0;
    start_command(op);
}

void dibs__op_send(struct dibs__operation *op, enum dibs__lock_command verb,
                   dibs__reply_fn *on_reply, int64_t within, int64_t connect_by)
{
    const struct dibs__lock_type *type = op->entry->type;

    dibs__assert_no_lock();
    if (op->batch && op->batch->take(op, verb, on_reply))
        return;
    op->batch = NULL;
    static const unsigned expects[] = {
        [VERB_RELEASE] = 1u << REPLY_NUM, [VERB_FORCE] = 1u << REPLY_NUM,
        [VERB_LEAVE_QUEUE] = 0,           [VERB_DEREGISTER] = 1u << REPLY_NUM,
        [VERB_INFO] = 1u << REPLY_ARRAY,  [VERB_HOLDERS] = 1u << REPLY_ARRAY,
    };

    op->lock_command = verb;
    op->command.expects =
        verb == VERB_ACQUIRE || verb == VERB_HANDOFF
            ? type->acquired_reply_types | type->busy_reply_types
            : expects[verb];
    if (verb == VERB_ACQUIRE &&
        op->args.registration) /* busy, and what the registration did */
        op->command.expects |= 1u << REPLY_ARRAY;
    op->command.write = write_command;
    op->command.on_reply = on_reply;
    op->command.on_error_text = on_command_error_text;
    dibs__entry_fill_command(op->entry, &op->command, within, connect_by);
    op->command.replicas = verb == VERB_ACQUIRE ? op->replicas : 0;
    op->command.writes = type->acquired_reply_types;
    start_command(op);
}

void dibs__op_begin(struct dibs__operation *op)
{
    atomic_fetch_add(&op->entry->manager->in_flight, 1);
    op->start(op);
}

static void run_async_callback(struct dibs__callback *cb, bool drop)
{
    struct dibs__operation *op = DIBS_OF(cb, struct dibs__operation, cb);

    if (!drop)
        DIBS__API_CALL((dibs__op_set_error_text(op), op->err));
    if (!drop && op->custom_completion)
        op->complete(op);
    else if (!drop)
        op->fn(op->err, op->arg);
    dibs__free(op->error_text);
    dibs__free(op);
}

/* The deadline passed in entry.wait: if the server is unreachable, the text is
 * the error of the connection. */
static void explain_timeout(struct dibs__operation *op)
{
    const struct dibs__lock_entry *entry = op->entry;
    const char *why = dibs__loop_on_io_thread()
                          ? dibs__client_last_error(dibs__entry_client(entry),
                                                    entry->hash_slot)
                          : NULL;

    if (why)
        dibs__op_record_error(op, op->err, why);
}

/* Drops the text of an earlier attempt's error, unless the operation ends with
 * that error, or with TIMEOUT when the last attempt failed. Sets a text if
 * there is none. */
static void finish_error_text(struct dibs__operation *op)
{
    if (op->error_text && op->error_text->err != op->err &&
        (op->err != DIBS_ERR_TIMEOUT || !op->last_err)) {
        dibs__free(op->error_text);
        op->error_text = NULL;
    }
    if (!op->error_text && is_server_error(op->err))
        dibs__op_record_server_error(op, op->err, "%s", dibs_strerror(op->err));
    else if (!op->error_text && op->err == DIBS_ERR_TIMEOUT)
        explain_timeout(op);
}

static void push_async_callback(void *arg)
{
    struct dibs__operation *op = arg;
    struct dibs__lock_entry *entry = op->entry;
    dibs_client *c = dibs__entry_client(entry);

    atomic_fetch_sub(&entry->manager->in_flight, 1);
    dibs__entry_unref(entry);
    op->cb.run = run_async_callback;
    dibs__callbacks_push(&c->callbacks, &op->cb);
}

/* If on_lost of the released level is running, the callback of the operation
 * comes after it. */
static void finish_async(struct dibs__operation *op)
{
    struct dibs__loss_listener *loss = op->loss;

    op->loss = NULL;
    if (!dibs__loss_on_done(loss, push_async_callback, op))
        push_async_callback(op);
    dibs__loss_unref(loss);
}

/* Successful acquires are counted in hold.c. */
static void count_acquire_stats(const struct dibs__operation *op,
                                struct dibs__stats *st)
{
    if (op->no_wait)
        dibs__stats_count(st, STAT_TRIES, 1);
    if (op->waiter.was_busy) {
        dibs__stats_count(st, STAT_WAITS, 1);
        dibs__stats_time(
            st, TIMING_WAIT,
            dibs__coarse_time_age(op->args.begun_at, dibs__now_us()));
    }
    if (op->err == DIBS_ERR_BUSY)
        dibs__stats_count(st, STAT_BUSY, 1);
    else if (op->err == DIBS_ERR_TIMEOUT)
        dibs__stats_count(st, STAT_TIMEOUTS, 1);
    else if (op->err != DIBS_OK)
        dibs__stats_count(st, STAT_FAILURES, 1);
}

static void count_op_stats(const struct dibs__operation *op)
{
    struct dibs__stats *st = dibs__entry_client(op->entry)->stats;

    if (!op->is_release && dibs__coarse_time_is_set(op->args.begun_at))
        count_acquire_stats(op, st);
    else if (op->is_release && op->err == DIBS_OK)
        dibs__stats_count(st, STAT_RELEASES, 1);
}

void dibs__op_finish(struct dibs__operation *op, dibs_err err)
{
    struct dibs__lock_entry *entry = op->entry;

    dibs__assert_no_lock();
    dibs__loss_notification_free(op->notification);
    op->notification = NULL;
    op->err = err;
    count_op_stats(op);
    finish_error_text(op);
    if (op->on_ended) { /* may begin other operations: in_flight must not be 0
                         * yet
                         */
        op->on_ended(op);
        atomic_fetch_sub(&entry->manager->in_flight, 1);
        dibs__entry_unref(entry);
        return;
    }
    if (op->async) {
        finish_async(op);
        return;
    }
    atomic_fetch_sub(&entry->manager->in_flight, 1);
    sem_post(&op->done); /* the caller reads err, error_text and loss */
}

/* ---- operations of one owner, one after the other ---------------------- */

void dibs__op_take_waiters(struct dibs__lock_entry *entry, dibs_owner owner,
                           struct dibs__list *out)
{
    struct dibs__list *waiters = &entry->wait_queue.waiters;

    if (entry->type->retry_policy == RETRY_EACH)
        return; /* only io may unpark them; at their next retry they re-enter */
    for (struct dibs__list *l = waiters->next, *n; l != waiters; l = n) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, waiter.link);
        n = l->next;
        if (op->owner != owner || op->waiter.state != WAITER_PARKED)
            continue;
        dibs__list_del(l);
        op->waiter.state = WAITER_IDLE;
        if (op->hold)
            dibs__hold_free(entry, op->hold);
        op->hold = NULL;
        dibs__list_add(out, l);
    }
}

void dibs__op_drop_level(struct dibs__operation *op, struct dibs__hold *h)
{
    struct dibs__loss_listener *loss = dibs__hold_pop_level(h, op->group_level);

    if (op->on_ended)
        dibs__loss_unref(loss);
    else
        op->loss = loss;
}

void dibs__op_resume(struct dibs__list *waiters)
{
    for (struct dibs__list *l; (l = dibs__list_pop(waiters));) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, waiter.link);
        op->on_caller_thread = false; /* another thread than the caller's */
        op->start(op);
    }
}

void dibs__op_finish_on_hold(struct dibs__operation *op, dibs_err err)
{
    struct dibs__list blocked = {&blocked, &blocked};
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__hold *h = op->hold;

    dibs__lock(&entry->mu);
    bool released = h->count == 0;
    if (released) { /* the id must be retired before the hold ends */
        dibs__unlock(&entry->mu);
        dibs__owner_retire(entry, h->owner, h->owner_id, RENUMBER_REAP);
        dibs__lock(&entry->mu);
        dibs__orphan_release(entry, h->owner_id,
                             h->valid_until - dibs__now_ms());
    }
    h->busy = false;
    dibs__wait_queue_unblock(&entry->wait_queue, &h->blocked_ops, &blocked);
    if (released) {
        dibs__hold_free(entry, h);
        dibs__wait_queue_wake_head(&entry->wait_queue);
    }
    dibs__unlock(&entry->mu);
    dibs__op_finish(op, err);
    dibs__op_resume(&blocked);
}

/* Only for types with a hand-off: with the others the server may know waiters
 * by their old id. */
void dibs__op_reassign_waiter_ids(struct dibs__lock_entry *entry,
                                  dibs_owner owner, uint64_t old)
{
    struct dibs__list *waiters = &entry->wait_queue.waiters;

    if (!dibs__lock_type_has(entry->type, VERB_HANDOFF))
        return;
    uint64_t owner_id = dibs__owner_current_id(entry->manager, owner);
    dibs__lock(&entry->mu);
    for (struct dibs__list *l = waiters->next; l != waiters; l = l->next) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, waiter.link);
        if (op->owner == owner && op->owner_id == old &&
            op->waiter.state == WAITER_PARKED)
            op->owner_id = op->args.owner_id = owner_id;
    }
    dibs__unlock(&entry->mu);
}

void dibs__op_abandon_id(struct dibs__operation *op)
{
    dibs__owner_retire(op->entry, op->owner, op->owner_id, RENUMBER_REAP);
    dibs__op_reassign_waiter_ids(op->entry, op->owner, op->owner_id);
    dibs__lock(&op->entry->mu);
    bool detached = op->renumber == RENUMBER_LEFT;
    dibs__unlock(&op->entry->mu);
    if (!detached)
        dibs__orphan_release(op->entry, op->owner_id, op->orphan_ttl_ms);
}
