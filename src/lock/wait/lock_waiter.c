/* SPDX-License-Identifier: MIT
 *
 * lock_waiter.c - what a call that waits for a lock does: the table that the
 * waiting machine (wait_queue.c) asks of its user.
 *
 * Thread  io; dibs__entry_cancel any.
 * Locks   line.mu.
 *
 * Limits  A waiter to which a release hands the lock just now may leave. The
 *         release then takes care of what arrives for it (release.c). A call
 *         that is behind another call of its owner may leave, too; a release
 *         that does so counts as done.
 */
#include "base/mem.h"
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"
#include "lock/wait/place.h"

static struct dibs__operation *op_waiting(const struct dibs__waiter *waiter)
{
    return DIBS_OF(waiter, struct dibs__operation, waiter);
}

static struct dibs__lock_entry *line_waiting(struct dibs__wait_queue *queue)
{
    return DIBS_OF(queue, struct dibs__lock_entry, wait);
}

/* ---- asking ------------------------------------------------------------ */

static bool lock_may_ask(struct dibs__wait_queue *queue,
                         struct dibs__waiter *waiter)
{
    struct dibs__lock_entry *entry = line_waiting(queue);
    struct dibs__operation *op = op_waiting(waiter);

    dibs__assert_held(&entry->mu);
    if (waiter->state != WAITER_PARKED)
        return false;
    /* Other waiters of an owner that got in are taken out of the line by that
     * answer; one with a place of its own sees to it here. */
    if (queue->retry_policy == RETRY_EACH && dibs__hold_of(entry, op->owner)) {
        dibs__wait_queue_leave(queue, waiter);
        return true;
    }
    if (!dibs__entry_acquire_begin(entry, op))
        return false;
    op->args.registration =
        waiter->polls ? HOW_PLAIN
                      : (unsigned char)dibs__wait_queue_registration(queue);
    return true;
}

/* What the old number of a call may yet be given for it is taken back, unless
 * that number has what was left to somebody. */
static void reap_old(struct dibs__lock_entry *entry, uint64_t old,
                     const struct dibs__operation *op, enum dibs__renumber how)
{
    if (how == RENUMBER_REST || how == RENUMBER_REAP)
        dibs__orphan_release(entry, old, op->args.lease_ms);
}

static void place_left(struct dibs__command *cmd, dibs_err err,
                       const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;

    if (reply && reply->type == REPLY_NUM && reply->num == SCRIPT_WAITER_WOKEN)
        dibs__fair_queue_gc(entry, true);
    dibs__lock(&entry->mu);
    dibs__wait_queue_leave(&entry->wait, &op->waiter);
    enum dibs__renumber how = op->renumber;
    bool unsure =
        op->may_have_stale_copy || cmd->maybe_live_copy || err != DIBS_OK;
    op->may_have_stale_copy = false; /* the next number is a new one */
    op->args.enqueue = false;
    op->renumber = RENUMBER_NO;
    bool closing = atomic_load(&entry->manager->closing);
    bool canceled = op->waiter.canceled;
    bool late = dibs__now_ms() >= op->waiter.deadline;
    dibs_err last = op->last_err ? op->last_err : DIBS_ERR_TIMEOUT;
    dibs__unlock(&entry->mu);
    if (unsure)
        reap_old(entry, op->owner_id, op, how);
    if (closing)
        dibs__acquire_end(op, DIBS_ERR_CLOSED);
    else if (canceled || late)
        dibs__acquire_end(op, canceled ? DIBS_ERR_CANCELED : last);
    else
        dibs__acquire_start_over(op);
}

/* It has a place in a queue on the server, by a number that is retired. */
static void leave_place(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list resume = {&resume, &resume};

    dibs__lock(&entry->mu);
    dibs__entry_acquire_done(entry, op, &resume);
    op->waiter.state =
        WAITER_ROLLING_BACK; /* in the line, where it can be canceled */
    dibs__unlock(&entry->mu);
    dibs__place_leave(&entry->wait, &op->waiter, false);
    dibs__op_send(op, VERB_LEAVE, place_left, dibs__entry_timeout(entry), 0);
    dibs__op_resume(&resume);
}

static enum dibs__renumber is_retired(struct dibs__operation *op)
{
    dibs__lock(&op->entry->mu);
    enum dibs__renumber how = op->renumber;
    dibs__unlock(&op->entry->mu);
    return how;
}

/* Another number, if that by which it waited is retired for this lock; and how
 * it is. A reader names the number by which its owner writes by now. As in
 * lock_by_number of acquire.c: no number that is retired meanwhile is used. */
static enum dibs__renumber take_number(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;

    for (;;) {
        unsigned before = atomic_load(&entry->manager->retired);
        enum dibs__renumber how = is_retired(op);
        uint64_t wire =
            how ? dibs__owner_wire(entry->manager, op->owner) : op->owner_id;
        uint64_t other = dibs__owner_writes(entry, op->owner, wire);
        dibs__lock(&entry->mu);
        if (atomic_load(&entry->manager->retired) == before) {
            op->owner_id = op->args.owner_id = wire;
            op->args.other_id = other;
            op->renumber = RENUMBER_NO;
            dibs__unlock(&entry->mu);
            return how;
        }
        dibs__unlock(&entry->mu);
    }
}

/* One that has waited. Meanwhile another call of its owner for this lock may
 * have had trouble, or have left the lock to somebody, or write. */
static void ask_again(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;
    uint64_t old = op->owner_id;
    enum dibs__renumber how = is_retired(op);

    if (how && entry->type->retry_policy == RETRY_EACH) {
        leave_place(op);
        return;
    }
    if (how || entry->type->id == TYPE_READ)
        how = take_number(op);
    if (op->may_have_stale_copy && op->owner_id != old)
        reap_old(entry, old, op, how);
    dibs__acquire_ask(op);
}

static void lock_ask(struct dibs__waiter *waiter)
{
    struct dibs__operation *op = op_waiting(waiter);

    if (waiter->state == WAITER_IDLE)
        dibs__acquire_start_over(op);
    else
        ask_again(op);
}

static int64_t lock_wants(const struct dibs__waiter *waiter)
{
    const struct dibs__operation *op = op_waiting(waiter);

    return op->entry->type->id == TYPE_SEMAPHORE ? op->args.value : 0;
}

static int64_t lock_held_until(struct dibs__wait_queue *queue, int64_t now)
{
    struct dibs__lock_entry *entry = line_waiting(queue);

    dibs__assert_held(&entry->mu);
    return entry->type->shared || entry->type->is_counting
               ? 0
               : dibs__hold_until(entry, now);
}

static void lock_own_channel(const struct dibs__waiter *waiter,
                             struct dibs__buf *name)
{
    const struct dibs__operation *op = op_waiting(waiter);
    char text[DIBS_OWNER_MAX];
    size_t len = dibs__owner_text(op->entry, op->owner_id, text);

    dibs__entry_channel(op->entry, name);
    dibs__buf_add(name, ":", 1);
    dibs__buf_add(name, text, len);
}

static void lock_turn_channel(const struct dibs__wait_queue *queue,
                              struct dibs__buf *name)
{
    dibs__turn_channel(DIBS_OF(queue, struct dibs__lock_entry, wait), name);
}

/* ---- leaving ----------------------------------------------------------- */

/* Tells the server that no call waits here. Nobody awaits the answer. */
struct left_note {
    struct dibs__command call;
    struct dibs__lock_entry *line;
    bool deaf;
};

static void left_write(struct dibs__command *cmd, struct dibs__buf *out,
                       bool whole)
{
    const struct left_note *note = DIBS_OF(cmd, struct left_note, call);
    struct dibs__command_args args = {.entry = note->line, .all = note->deaf};

    dibs__lock_command_write(VERB_DEREGISTER, &args, out, whole);
}

static void left_answered(struct dibs__command *cmd, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct left_note *note = DIBS_OF(cmd, struct left_note, call);

    (void)err;
    (void)reply;
    dibs__wait_queue_deregistered(&note->line->wait);
    atomic_fetch_sub(&note->line->manager->in_flight, 1);
    dibs__entry_unref(note->line);
    dibs__free(note);
}

/* No memory: the next one that waits asks by itself. */
static void lock_tell_left(struct dibs__wait_queue *queue, bool deaf)
{
    struct dibs__lock_entry *entry = line_waiting(queue);
    struct left_note *note = dibs__calloc(1, sizeof *note);

    if (!note) {
        dibs__wait_queue_deregistered(queue);
        return;
    }
    note->line = entry;
    note->deaf = deaf;
    note->call.write = left_write;
    note->call.done = left_answered;
    note->call.expects = 1u << REPLY_NUM;
    note->call.quiet = true;
    dibs__entry_fill_command(entry, &note->call, dibs__entry_timeout(entry), 0);
    dibs__entry_ref(entry);
    atomic_fetch_add(&entry->manager->in_flight, 1);
    dibs__command_start(dibs__entry_route(entry), &note->call);
}

/* From now on its number must not be used: the lock may arrive for it. Once the
 * answer to the release is there, it stays for what comes of that. */
static bool lock_withdraw(struct dibs__wait_queue *queue,
                          struct dibs__waiter *waiter,
                          struct dibs__list *resume)
{
    struct dibs__lock_entry *entry = line_waiting(queue);
    struct dibs__operation *op = op_waiting(waiter);

    dibs__assert_held(&entry->mu);
    if (!op->handoff_from)
        return false;
    op->handoff_from->handoff_to = NULL;
    op->handoff_from = NULL;
    op->may_have_stale_copy = true;
    dibs__entry_acquire_done(entry, op, resume);
    return true;
}

/* Calls behind another one; h: the hold that one changes, or NULL. A release
 * cannot be canceled, and a client that closes gives back anyway. */
static void sweep_list(struct dibs__wait_queue *queue,
                       struct dibs__list *behind, struct dibs__hold *h,
                       int64_t now, struct dibs__expired_waiters *out)
{
    for (struct dibs__list *l = behind->next, *n; l != behind; l = n) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, waiter.link);
        n = l->next;
        /* The call before it goes on. Levels are counted down here, and the
         * next command says how many there shall be; a hold that is left with
         * none ends as soon as it is idle. */
        if (dibs__wait_queue_expire_one(queue, &op->waiter, now, op->is_release,
                                        out) &&
            op->is_release && h && h->state != HOLD_ENDING)
            dibs__op_drop_level(op, h);
    }
}

static void lock_sweep_behind(struct dibs__wait_queue *queue, int64_t now,
                              struct dibs__expired_waiters *out)
{
    struct dibs__lock_entry *entry = line_waiting(queue);
    struct dibs__list *asks = &entry->in_flight;

    dibs__assert_held(&entry->mu);
    for (struct dibs__list *l = asks->next; l != asks; l = l->next)
        sweep_list(queue,
                   &DIBS_OF(l, struct dibs__operation, in_flight_link)->blocked_ops,
                   NULL, now, out);
    for (struct dibs__hold *h = NULL; (h = dibs__hold_next(entry, h));)
        sweep_list(queue, &h->blocked_ops, h, now, out);
}

static void lock_end(struct dibs__waiter *waiter, dibs_err err)
{
    struct dibs__operation *op = op_waiting(waiter);

    dibs__lock(&op->entry->mu);
    if (op->hold) /* made ready for the grant */
        dibs__hold_free(op->entry, op->hold);
    op->hold = NULL;
    dibs__unlock(&op->entry->mu);
    if (op->is_release)
        err = DIBS_ERR_UNKNOWN;
    else if (err == DIBS_ERR_TIMEOUT && op->no_wait)
        err = DIBS_ERR_BUSY; /* another call of its owner is in the way */
    else if (err == DIBS_ERR_TIMEOUT && op->last_err)
        err = op->last_err;
    dibs__acquire_end(op, err);
}

static void lock_ref(struct dibs__wait_queue *queue)
{
    dibs__entry_ref(line_waiting(queue));
}

static void lock_unref(struct dibs__wait_queue *queue)
{
    dibs__entry_unref(line_waiting(queue));
}

const struct dibs__wait_queue_ops dibs__lock_waits = {
    .info = dibs__entry_wait_info,
    .subscribe = dibs__entry_wait_subscribe,
    .may_retry = lock_may_ask,
    .retry = lock_ask,
    .end = lock_end,
    .ref = lock_ref,
    .unref = lock_unref,
    .wants = lock_wants,
    .held_until = lock_held_until,
    .decline_handoff = lock_withdraw,
    .expire_blocked = lock_sweep_behind,
    .resume = dibs__op_resume,
    .own_channel = lock_own_channel,
    .turn_channel = lock_turn_channel,
    .send_deregister = lock_tell_left,
};

/* ---- canceling --------------------------------------------------------- */

static bool cancel_in(struct dibs__lock_entry *entry, struct dibs__list *calls,
                      dibs_owner owner) REQUIRES(line->mu)
{
    bool found = false;

    for (struct dibs__list *l = calls->next; l != calls; l = l->next) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, waiter.link);
        if (op->owner != owner || op->is_release)
            continue;
        dibs__wait_queue_cancel(&entry->wait, &op->waiter);
        found = true;
    }
    return found;
}

bool dibs__entry_cancel(struct dibs__lock_entry *entry, dibs_owner owner)
{
    struct dibs__hold *h = dibs__hold_of(entry, owner);
    struct dibs__operation *asking = dibs__entry_in_flight_of(entry, owner);
    bool found = cancel_in(entry, &entry->wait.waiters, owner);

    if (asking)
        found |= cancel_in(entry, &asking->blocked_ops, owner);
    if (h)
        found |= cancel_in(entry, &h->blocked_ops, owner);
    return found;
}
