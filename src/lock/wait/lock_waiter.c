/* SPDX-License-Identifier: MIT
 *
 * lock_waiter.c - waiters for a lock: the callbacks of wait_queue.c.
 *
 * Thread  io; dibs__entry_cancel any.
 * Locks   entry.mu.
 *
 * Expiry  A waiter may end while a release hands the lock over to it; the
 *         release then gives back what the waiter is granted (release.c). A
 *         BLOCKED call may end, too. A release that ends so has removed its
 *         level from the hold, and a later command applies it.
 */
#include "base/mem.h"
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"
#include "lock/wait/place.h"

static struct dibs__operation *operation_of(const struct dibs__waiter *waiter)
{
    return DIBS_OF(waiter, struct dibs__operation, waiter);
}

static struct dibs__lock_entry *entry_of(struct dibs__wait_queue *queue)
{
    return DIBS_OF(queue, struct dibs__lock_entry, wait_queue);
}

/* ---- retry ------------------------------------------------------------- */

static bool lock_may_retry(struct dibs__wait_queue *queue,
                           struct dibs__waiter *waiter)
{
    struct dibs__lock_entry *entry = entry_of(queue);
    struct dibs__operation *op = operation_of(waiter);

    dibs__assert_held(&entry->mu);
    if (waiter->state != WAITER_PARKED)
        return false;
    /* The owner may have got the lock by another call. With RETRY_HEAD_ONLY the
     * reply to that call removed the owner's waiters from the queue. */
    if (queue->retry_policy == RETRY_EACH && dibs__hold_of(entry, op->owner)) {
        dibs__wait_queue_leave(queue, waiter);
        return true;
    }
    if (!dibs__entry_acquire_begin(entry, op))
        return false;
    op->args.registration =
        waiter->poll_count
            ? REG_NONE
            : (unsigned char)dibs__wait_queue_registration(queue);
    return true;
}

/* Releases anything the server may still grant to the call's previous id,
 * unless that id was detached for another client. */
static void release_old_id(struct dibs__lock_entry *entry, uint64_t old,
                           const struct dibs__operation *op,
                           enum dibs__renumber how)
{
    if (how == RENUMBER_REST || how == RENUMBER_REAP)
        dibs__orphan_release(entry, old, op->args.lease_ms);
}

static void leave_queue_replied(struct dibs__command *cmd, dibs_err err,
                                const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;

    if (reply && reply->type == REPLY_NUM && reply->num == SCRIPT_WAITER_WOKEN)
        dibs__fair_queue_gc(entry, true);
    dibs__lock(&entry->mu);
    dibs__wait_queue_leave(&entry->wait_queue, &op->waiter);
    enum dibs__renumber how = op->renumber;
    bool in_doubt =
        op->may_have_stale_copy || cmd->may_have_stale_copy || err != DIBS_OK;
    op->may_have_stale_copy = false; /* the next owner id is new */
    op->args.enqueue = false;
    op->renumber = RENUMBER_NO;
    bool closing = atomic_load(&entry->manager->closing);
    bool canceled = op->waiter.canceled;
    bool expired = dibs__now_ms() >= op->waiter.deadline;
    dibs_err last = op->last_err ? op->last_err : DIBS_ERR_TIMEOUT;
    dibs__unlock(&entry->mu);
    if (in_doubt)
        release_old_id(entry, op->owner_id, op, how);
    if (closing)
        dibs__acquire_leave_and_finish(op, DIBS_ERR_CLOSED);
    else if (canceled || expired)
        dibs__acquire_leave_and_finish(op, canceled ? DIBS_ERR_CANCELED : last);
    else
        dibs__acquire_rerun_as_reentry(op);
}

/* The waiter is in the queue on the server with a retired owner id: leaves that
 * queue, then starts over with the new id. */
static void leave_server_queue(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list resume = {&resume, &resume};

    dibs__lock(&entry->mu);
    dibs__entry_acquire_done(entry, op, &resume);
    /* It stays in the wait queue, so that it can be canceled. */
    op->waiter.state = WAITER_ROLLING_BACK;
    dibs__unlock(&entry->mu);
    dibs__place_leave(&entry->wait_queue, &op->waiter, false);
    dibs__op_send(op, VERB_LEAVE_QUEUE, leave_queue_replied,
                  dibs__entry_timeout(entry), 0);
    dibs__op_resume(&resume);
}

static enum dibs__renumber retired_state(struct dibs__operation *op)
{
    dibs__lock(&op->entry->mu);
    enum dibs__renumber how = op->renumber;
    dibs__unlock(&op->entry->mu);
    return how;
}

/* Sets the owner id of the next acquire: the present id, if that of the last
 * acquire is retired for this lock; and for a reader the id with which its
 * owner writes. Returns how the last one was retired. As in lock_by_number of
 * acquire.c, an id that is retired meanwhile is not used. */
static enum dibs__renumber take_owner_id(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;

    for (;;) {
        unsigned before = atomic_load(&entry->manager->retired_id_count);
        enum dibs__renumber how = retired_state(op);
        uint64_t owner_id =
            how ? dibs__owner_current_id(entry->manager, op->owner)
                : op->owner_id;
        uint64_t writer_id = dibs__owner_writer_id(entry, op->owner, owner_id);
        dibs__lock(&entry->mu);
        if (atomic_load(&entry->manager->retired_id_count) == before) {
            op->owner_id = op->args.owner_id = owner_id;
            op->args.other_id = writer_id;
            op->renumber = RENUMBER_NO;
            dibs__unlock(&entry->mu);
            return how;
        }
        dibs__unlock(&entry->mu);
    }
}

/* While it was parked, another call of its owner may have retired the owner id
 * (no reply, or detached), or may have acquired the write lock. */
static void retry_parked(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;
    uint64_t old = op->owner_id;
    enum dibs__renumber how = retired_state(op);

    if (how && entry->type->retry_policy == RETRY_EACH) {
        leave_server_queue(op);
        return;
    }
    if (how || entry->type->id == TYPE_READ)
        how = take_owner_id(op);
    if (op->may_have_stale_copy && op->owner_id != old)
        release_old_id(entry, old, op, how);
    dibs__acquire_send(op);
}

static void lock_retry(struct dibs__waiter *waiter)
{
    struct dibs__operation *op = operation_of(waiter);

    if (waiter->state == WAITER_IDLE)
        dibs__acquire_rerun_as_reentry(op);
    else
        retry_parked(op);
}

static int64_t lock_wants(const struct dibs__waiter *waiter)
{
    const struct dibs__operation *op = operation_of(waiter);

    return op->entry->type->id == TYPE_SEMAPHORE ? op->args.value : 0;
}

static int64_t lock_held_until(struct dibs__wait_queue *queue, int64_t now)
{
    struct dibs__lock_entry *entry = entry_of(queue);

    dibs__assert_held(&entry->mu);
    return entry->type->shared || entry->type->is_counting
               ? 0
               : dibs__entry_held_until(entry, now);
}

static void lock_own_channel(const struct dibs__waiter *waiter,
                             struct dibs__buf *name)
{
    const struct dibs__operation *op = operation_of(waiter);
    char text[DIBS_OWNER_MAX];
    size_t len = dibs__owner_text(op->entry, op->owner_id, text);

    dibs__entry_channel(op->entry, name);
    dibs__buf_add(name, ":", 1);
    dibs__buf_add(name, text, len);
}

static void lock_turn_channel(const struct dibs__wait_queue *queue,
                              struct dibs__buf *name)
{
    dibs__client_channel(DIBS_OF(queue, struct dibs__lock_entry, wait_queue),
                         name);
}

/* ---- deregistration ---------------------------------------------------- */

/* Sent once no call waits in this queue. No call awaits the reply. */
struct deregister_command {
    struct dibs__command command;
    struct dibs__lock_entry *entry;
    bool end_listening; /* this client was the designated listener */
};

static void deregister_write(struct dibs__command *cmd, struct dibs__buf *out,
                             bool whole)
{
    const struct deregister_command *dereg =
        DIBS_OF(cmd, struct deregister_command, command);
    struct dibs__command_args args = {.entry = dereg->entry,
                                      .all = dereg->end_listening};

    dibs__lock_command_encode(VERB_DEREGISTER, &args, out, whole);
}

static void deregister_replied(struct dibs__command *cmd, dibs_err err,
                               const struct dibs__reply *reply)
{
    struct deregister_command *dereg =
        DIBS_OF(cmd, struct deregister_command, command);

    (void)err;
    (void)reply;
    dibs__wait_queue_deregistered(&dereg->entry->wait_queue);
    atomic_fetch_sub(&dereg->entry->manager->in_flight, 1);
    dibs__entry_unref(dereg->entry);
    dibs__free(dereg);
}

/* Out of memory: the server keeps the registration, and the next client retries
 * by its timer. */
static void lock_send_deregister(struct dibs__wait_queue *queue,
                                 bool end_listening)
{
    struct dibs__lock_entry *entry = entry_of(queue);
    struct deregister_command *dereg = dibs__calloc(1, sizeof *dereg);

    if (!dereg) {
        dibs__wait_queue_deregistered(queue);
        return;
    }
    dereg->entry = entry;
    dereg->end_listening = end_listening;
    dereg->command.write = deregister_write;
    dereg->command.on_reply = deregister_replied;
    dereg->command.expects = 1u << REPLY_NUM;
    dereg->command.quiet = true;
    dibs__entry_fill_command(entry, &dereg->command, dibs__entry_timeout(entry),
                             0);
    dibs__entry_ref(entry);
    atomic_fetch_add(&entry->manager->in_flight, 1);
    dibs__command_start(dibs__entry_route(entry), &dereg->command);
}

/* Fails once the release has its reply: then the outcome of the hand-off ends
 * the waiter. Otherwise the lock may still be granted to this call's owner id,
 * so the id must not be used any more. */
static bool lock_decline_handoff(struct dibs__wait_queue *queue,
                                 struct dibs__waiter *waiter,
                                 struct dibs__list *resume)
{
    struct dibs__lock_entry *entry = entry_of(queue);
    struct dibs__operation *op = operation_of(waiter);

    dibs__assert_held(&entry->mu);
    if (!op->handoff_from)
        return false;
    op->handoff_from->handoff_to = NULL;
    op->handoff_from = NULL;
    op->may_have_stale_copy = true;
    dibs__entry_acquire_done(entry, op, resume);
    return true;
}

/* blocked: operations that wait for another one; h: the hold that it changes,
 * or NULL. Closing does not end a BLOCKED release: a closing client releases
 * all holds anyway. */
static void expire_blocked_list(struct dibs__wait_queue *queue,
                                struct dibs__list *blocked,
                                struct dibs__hold *h, int64_t now,
                                struct dibs__expired_waiters *out)
{
    for (struct dibs__list *l = blocked->next, *n; l != blocked; l = n) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, waiter.link);
        n = l->next;
        /* The level is removed here; the next command of the hold sends the new
         * level count, and a hold without levels ends once it is not busy. */
        if (dibs__wait_queue_expire_one(queue, &op->waiter, now, op->is_release,
                                        out) &&
            op->is_release && h && h->state != HOLD_ENDING)
            dibs__op_drop_level(op, h);
    }
}

static void lock_expire_blocked(struct dibs__wait_queue *queue, int64_t now,
                                struct dibs__expired_waiters *out)
{
    struct dibs__lock_entry *entry = entry_of(queue);
    struct dibs__list *in_flight = &entry->in_flight;

    dibs__assert_held(&entry->mu);
    for (struct dibs__list *l = in_flight->next; l != in_flight; l = l->next)
        expire_blocked_list(
            queue,
            &DIBS_OF(l, struct dibs__operation, in_flight_link)->blocked_ops,
            NULL, now, out);
    for (struct dibs__hold *h = NULL; (h = dibs__hold_next(entry, h));)
        expire_blocked_list(queue, &h->blocked_ops, h, now, out);
}

static void lock_end(struct dibs__waiter *waiter, dibs_err err)
{
    struct dibs__operation *op = operation_of(waiter);

    dibs__lock(&op->entry->mu);
    if (op->hold) /* allocated before the acquire */
        dibs__hold_free(op->entry, op->hold);
    op->hold = NULL;
    dibs__unlock(&op->entry->mu);
    if (op->is_release)
        err = DIBS_ERR_UNKNOWN;
    else if (err == DIBS_ERR_TIMEOUT && op->no_wait)
        err = DIBS_ERR_BUSY; /* it was blocked by a call of its owner */
    else if (err == DIBS_ERR_TIMEOUT && op->last_err)
        err = op->last_err;
    dibs__acquire_leave_and_finish(op, err);
}

static void lock_ref(struct dibs__wait_queue *queue)
{
    dibs__entry_ref(entry_of(queue));
}

static void lock_unref(struct dibs__wait_queue *queue)
{
    dibs__entry_unref(entry_of(queue));
}

const struct dibs__wait_queue_ops dibs__lock_waiter_ops = {
    .info = dibs__entry_wait_info,
    .subscribe = dibs__entry_wait_subscribe,
    .may_retry = lock_may_retry,
    .retry = lock_retry,
    .end = lock_end,
    .ref = lock_ref,
    .unref = lock_unref,
    .permits_wanted = lock_wants,
    .held_until = lock_held_until,
    .decline_handoff = lock_decline_handoff,
    .expire_blocked = lock_expire_blocked,
    .resume = dibs__op_resume,
    .waiter_channel = lock_own_channel,
    .client_channel = lock_turn_channel,
    .send_deregister = lock_send_deregister,
};

/* ---- cancel ------------------------------------------------------------ */

static bool cancel_waiters(struct dibs__lock_entry *entry,
                           struct dibs__list *waiters, dibs_owner owner)
    REQUIRES(entry->mu)
{
    bool found = false;

    for (struct dibs__list *l = waiters->next; l != waiters; l = l->next) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, waiter.link);
        if (op->owner != owner || op->is_release)
            continue;
        dibs__wait_queue_cancel(&entry->wait_queue, &op->waiter);
        found = true;
    }
    return found;
}

bool dibs__entry_cancel(struct dibs__lock_entry *entry, dibs_owner owner)
{
    struct dibs__hold *h = dibs__hold_of(entry, owner);
    struct dibs__operation *in_flight = dibs__entry_in_flight_of(entry, owner);
    bool found = cancel_waiters(entry, &entry->wait_queue.waiters, owner);

    if (in_flight)
        found |= cancel_waiters(entry, &in_flight->blocked_ops, owner);
    if (h)
        found |= cancel_waiters(entry, &h->blocked_ops, owner);
    return found;
}
