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

static struct dibs__operation *op_waiting(const struct dibs__waiter *wt)
{
    return DIBS_OF(wt, struct dibs__operation, wait);
}

static struct dibs__lock_entry *line_waiting(struct dibs__wait_queue *w)
{
    return DIBS_OF(w, struct dibs__lock_entry, wait);
}

/* ---- asking ------------------------------------------------------------ */

static bool lock_may_ask(struct dibs__wait_queue *w, struct dibs__waiter *wt)
{
    struct dibs__lock_entry *line = line_waiting(w);
    struct dibs__operation *op = op_waiting(wt);

    dibs__assert_held(&line->mu);
    if (wt->state != WAITER_PARKED)
        return false;
    /* Other waiters of an owner that got in are taken out of the line by that
     * answer; one with a place of its own sees to it here. */
    if (w->asks == RETRY_EACH && dibs__hold_of(line, op->owner)) {
        dibs__wait_queue_leave(w, wt);
        return true;
    }
    if (!dibs__entry_acquire_begin(line, op))
        return false;
    op->ask.how =
        wt->polls ? HOW_PLAIN : (unsigned char)dibs__wait_queue_registration(w);
    return true;
}

/* What the old number of a call may yet be given for it is taken back, unless
 * that number has what was left to somebody. */
static void reap_old(struct dibs__lock_entry *line, uint64_t old,
                     const struct dibs__operation *op, enum dibs__renumber how)
{
    if (how == RENUMBER_REST || how == RENUMBER_REAP)
        dibs__orphan_release(line, old, op->ask.lease_ms);
}

static void place_left(struct dibs__command *call, dibs_err err,
                       const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(call, struct dibs__operation, call);
    struct dibs__lock_entry *line = op->line;

    if (reply && reply->type == REPLY_NUM && reply->num == SCRIPT_WAITER_WOKEN)
        dibs__fair_queue_gc(line, true);
    dibs__lock(&line->mu);
    dibs__wait_queue_leave(&line->wait, &op->wait);
    enum dibs__renumber how = op->renumber;
    bool unsure = op->tainted || call->ghost || err != DIBS_OK;
    op->tainted = false; /* the next number is a new one */
    op->ask.stay = false;
    op->renumber = RENUMBER_NO;
    bool closing = atomic_load(&line->locks->closing);
    bool canceled = op->wait.canceled;
    bool late = dibs__now_ms() >= op->wait.deadline;
    dibs_err last = op->last ? op->last : DIBS_ERR_TIMEOUT;
    dibs__unlock(&line->mu);
    if (unsure)
        reap_old(line, op->wire, op, how);
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
    struct dibs__lock_entry *line = op->line;
    struct dibs__list resume = {&resume, &resume};

    dibs__lock(&line->mu);
    dibs__entry_acquire_done(line, op, &resume);
    op->wait.state =
        WAITER_ROLLING_BACK; /* in the line, where it can be canceled */
    dibs__unlock(&line->mu);
    dibs__place_leave(&line->wait, &op->wait, false);
    dibs__op_send(op, VERB_LEAVE, place_left, dibs__entry_timeout(line), 0);
    dibs__op_resume(&resume);
}

static enum dibs__renumber is_retired(struct dibs__operation *op)
{
    dibs__lock(&op->line->mu);
    enum dibs__renumber how = op->renumber;
    dibs__unlock(&op->line->mu);
    return how;
}

/* Another number, if that by which it waited is retired for this lock; and how
 * it is. A reader names the number by which its owner writes by now. As in
 * lock_by_number of acquire.c: no number that is retired meanwhile is used. */
static enum dibs__renumber take_number(struct dibs__operation *op)
{
    struct dibs__lock_entry *line = op->line;

    for (;;) {
        unsigned before = atomic_load(&line->locks->retired);
        enum dibs__renumber how = is_retired(op);
        uint64_t wire =
            how ? dibs__owner_wire(line->locks, op->owner) : op->wire;
        uint64_t other = dibs__owner_writes(line, op->owner, wire);
        dibs__lock(&line->mu);
        if (atomic_load(&line->locks->retired) == before) {
            op->wire = op->ask.wire = wire;
            op->ask.other = other;
            op->renumber = RENUMBER_NO;
            dibs__unlock(&line->mu);
            return how;
        }
        dibs__unlock(&line->mu);
    }
}

/* One that has waited. Meanwhile another call of its owner for this lock may
 * have had trouble, or have left the lock to somebody, or write. */
static void ask_again(struct dibs__operation *op)
{
    struct dibs__lock_entry *line = op->line;
    uint64_t old = op->wire;
    enum dibs__renumber how = is_retired(op);

    if (how && line->kind->asks == RETRY_EACH) {
        leave_place(op);
        return;
    }
    if (how || line->kind->id == TYPE_READ)
        how = take_number(op);
    if (op->tainted && op->wire != old)
        reap_old(line, old, op, how);
    dibs__acquire_ask(op);
}

static void lock_ask(struct dibs__waiter *wt)
{
    struct dibs__operation *op = op_waiting(wt);

    if (wt->state == WAITER_IDLE)
        dibs__acquire_start_over(op);
    else
        ask_again(op);
}

static int64_t lock_wants(const struct dibs__waiter *wt)
{
    const struct dibs__operation *op = op_waiting(wt);

    return op->line->kind->id == TYPE_SEMAPHORE ? op->ask.value : 0;
}

static int64_t lock_held_until(struct dibs__wait_queue *w, int64_t now)
{
    struct dibs__lock_entry *line = line_waiting(w);

    dibs__assert_held(&line->mu);
    return line->kind->shared || line->kind->counted
               ? 0
               : dibs__hold_until(line, now);
}

static void lock_own_channel(const struct dibs__waiter *wt,
                             struct dibs__buf *name)
{
    const struct dibs__operation *op = op_waiting(wt);
    char text[DIBS_OWNER_MAX];
    size_t len = dibs__owner_text(op->line, op->wire, text);

    dibs__entry_channel(op->line, name);
    dibs__buf_add(name, ":", 1);
    dibs__buf_add(name, text, len);
}

static void lock_turn_channel(const struct dibs__wait_queue *w,
                              struct dibs__buf *name)
{
    dibs__turn_channel(DIBS_OF(w, struct dibs__lock_entry, wait), name);
}

/* ---- leaving ----------------------------------------------------------- */

/* Tells the server that no call waits here. Nobody awaits the answer. */
struct left_note {
    struct dibs__command call;
    struct dibs__lock_entry *line;
    bool deaf;
};

static void left_write(struct dibs__command *call, struct dibs__buf *out,
                       bool whole)
{
    const struct left_note *note = DIBS_OF(call, struct left_note, call);
    struct dibs__command_args ask = {.line = note->line, .all = note->deaf};

    dibs__lock_command_write(VERB_DEREGISTER, &ask, out, whole);
}

static void left_answered(struct dibs__command *call, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct left_note *note = DIBS_OF(call, struct left_note, call);

    (void)err;
    (void)reply;
    dibs__wait_queue_deregistered(&note->line->wait);
    atomic_fetch_sub(&note->line->locks->in_flight, 1);
    dibs__entry_unref(note->line);
    dibs__free(note);
}

/* No memory: the next one that waits asks by itself. */
static void lock_tell_left(struct dibs__wait_queue *w, bool deaf)
{
    struct dibs__lock_entry *line = line_waiting(w);
    struct left_note *note = dibs__calloc(1, sizeof *note);

    if (!note) {
        dibs__wait_queue_deregistered(w);
        return;
    }
    note->line = line;
    note->deaf = deaf;
    note->call.write = left_write;
    note->call.done = left_answered;
    note->call.expects = 1u << REPLY_NUM;
    note->call.quiet = true;
    dibs__entry_fill_command(line, &note->call, dibs__entry_timeout(line), 0);
    dibs__entry_ref(line);
    atomic_fetch_add(&line->locks->in_flight, 1);
    dibs__command_start(dibs__entry_route(line), &note->call);
}

/* From now on its number must not be used: the lock may arrive for it. Once the
 * answer to the release is there, it stays for what comes of that. */
static bool lock_withdraw(struct dibs__wait_queue *w, struct dibs__waiter *wt,
                          struct dibs__list *resume)
{
    struct dibs__lock_entry *line = line_waiting(w);
    struct dibs__operation *op = op_waiting(wt);

    dibs__assert_held(&line->mu);
    if (!op->giver)
        return false;
    op->giver->next_owner = NULL;
    op->giver = NULL;
    op->tainted = true;
    dibs__entry_acquire_done(line, op, resume);
    return true;
}

/* Calls behind another one; h: the hold that one changes, or NULL. A release
 * cannot be canceled, and a client that closes gives back anyway. */
static void sweep_list(struct dibs__wait_queue *w, struct dibs__list *behind,
                       struct dibs__hold *h, int64_t now,
                       struct dibs__expired_waiters *out)
{
    for (struct dibs__list *l = behind->next, *n; l != behind; l = n) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, wait.link);
        n = l->next;
        /* The call before it goes on. Levels are counted down here, and the
         * next command says how many there shall be; a hold that is left with
         * none ends as soon as it is idle. */
        if (dibs__wait_queue_expire_one(w, &op->wait, now, op->gives, out) &&
            op->gives && h && h->state != HOLD_ENDING)
            dibs__op_drop_level(op, h);
    }
}

static void lock_sweep_behind(struct dibs__wait_queue *w, int64_t now,
                              struct dibs__expired_waiters *out)
{
    struct dibs__lock_entry *line = line_waiting(w);
    struct dibs__list *asks = &line->asks;

    dibs__assert_held(&line->mu);
    for (struct dibs__list *l = asks->next; l != asks; l = l->next)
        sweep_list(w, &DIBS_OF(l, struct dibs__operation, ask_link)->followers,
                   NULL, now, out);
    for (struct dibs__hold *h = NULL; (h = dibs__hold_next(line, h));)
        sweep_list(w, &h->blocked, h, now, out);
}

static void lock_end(struct dibs__waiter *wt, dibs_err err)
{
    struct dibs__operation *op = op_waiting(wt);

    dibs__lock(&op->line->mu);
    if (op->hold) /* made ready for the grant */
        dibs__hold_free(op->line, op->hold);
    op->hold = NULL;
    dibs__unlock(&op->line->mu);
    if (op->gives)
        err = DIBS_ERR_UNKNOWN;
    else if (err == DIBS_ERR_TIMEOUT && op->trying)
        err = DIBS_ERR_BUSY; /* another call of its owner is in the way */
    else if (err == DIBS_ERR_TIMEOUT && op->last)
        err = op->last;
    dibs__acquire_end(op, err);
}

static void lock_ref(struct dibs__wait_queue *w)
{
    dibs__entry_ref(line_waiting(w));
}

static void lock_unref(struct dibs__wait_queue *w)
{
    dibs__entry_unref(line_waiting(w));
}

const struct dibs__wait_queue_ops dibs__lock_waits = {
    .facts = dibs__entry_wait_info,
    .listen = dibs__entry_wait_subscribe,
    .may_ask = lock_may_ask,
    .ask = lock_ask,
    .end = lock_end,
    .ref = lock_ref,
    .unref = lock_unref,
    .wants = lock_wants,
    .held_until = lock_held_until,
    .withdraw = lock_withdraw,
    .sweep_behind = lock_sweep_behind,
    .resume = dibs__op_resume,
    .own_channel = lock_own_channel,
    .turn_channel = lock_turn_channel,
    .tell_left = lock_tell_left,
};

/* ---- canceling --------------------------------------------------------- */

static bool cancel_in(struct dibs__lock_entry *line, struct dibs__list *calls,
                      dibs_owner owner) REQUIRES(line->mu)
{
    bool found = false;

    for (struct dibs__list *l = calls->next; l != calls; l = l->next) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, wait.link);
        if (op->owner != owner || op->gives)
            continue;
        dibs__wait_queue_cancel(&line->wait, &op->wait);
        found = true;
    }
    return found;
}

bool dibs__entry_cancel(struct dibs__lock_entry *line, dibs_owner owner)
{
    struct dibs__hold *h = dibs__hold_of(line, owner);
    struct dibs__operation *asking = dibs__entry_in_flight_of(line, owner);
    bool found = cancel_in(line, &line->wait.waiters, owner);

    if (asking)
        found |= cancel_in(line, &asking->followers, owner);
    if (h)
        found |= cancel_in(line, &h->blocked, owner);
    return found;
}
