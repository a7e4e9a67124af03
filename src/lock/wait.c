/* SPDX-License-Identifier: MIT
 *
 * wait.c - how a line waits for a lock that somebody has.
 *
 * Thread  io, except what other threads call to have io look.
 * Locks   line.mu.
 *
 * How     Only the head of the line asks the server. Subscribe, ask again, then
 *         sleep: whoever looks first and subscribes then can miss the release
 *         in between. A sleep ends with a message, with the holder's lease,
 *         after two seconds or so whatever happens, and when the subscription
 *         had to be made anew. A message is a hint; the script's answer counts.
 *
 *         While somebody here holds the lock there is little to ask: the
 *         release will hand it over. io watches the deadlines then, and the end
 *         of that hold; and every two seconds the head does ask, for the lock
 *         may have been taken away by force.
 *
 *         Joining a line that io looks after wakes nobody, unless the newcomer
 *         must be attended to earlier than io would look anyway.
 *
 * Limits  Each call keeps its own, whatever it waits for. One to whom a release
 *         hands the lock just now leaves that release alone and goes; should
 *         the lock arrive for it all the same, the release sees to that. One
 *         that stands behind another call of its owner goes, too. Only an
 *         answer to its own question is waited for: that has a limit itself.
 */
#include "lock/locks.h"
#include "lock/op.h"

#define IDLE_LOOK_MS 2000
#define AFTER_MS     10 /* look again at one whose time passed while it asked */

void dibs__line_wake(struct dibs__line *line)
{
    if (!line->awake) {
        line->awake = true;
        dibs__line_ref(line);
    }
    if (!line->look_posted) {
        line->look_posted = true;
        dibs__line_ref(line);
        dibs__loop_post(&dibs__line_client(line)->loop, &line->look);
    }
}

/* Somebody waits who does not ask for itself just now. */
static bool somebody_sleeps(struct dibs__line *line) REQUIRES(line->mu)
{
    for (struct dibs__list *l = line->waiters.next; l != &line->waiters;
         l = l->next)
        if (!dibs__op_asks(DIBS_OF(l, struct dibs__op, link)))
            return true;
    return false;
}

void dibs__line_kick(struct dibs__line *line)
{
    line->try_now = true;
    if (!line->kind->queued && somebody_sleeps(line))
        dibs__line_wake(line);
}

void dibs__line_kick_all(struct dibs__line *line)
{
    if (!somebody_sleeps(line))
        return;
    line->all_ask = true;
    dibs__line_wake(line);
}

void dibs__line_join(struct dibs__line *line, struct dibs__op *op, bool look)
{
    bool first = dibs__list_empty(&line->waiters);

    if (first) {
        if (!line->stalled)
            line->first_deadline = INT64_MAX;
        line->try_now = false; /* what happened before does not matter now */
        line->next_try = dibs__now_ms() + IDLE_LOOK_MS;
    }
    dibs__list_add(&line->waiters, &op->link);
    line->first_deadline = dibs__min(line->first_deadline, op->deadline);
    if (op->canceled) { /* before it came here */
        line->canceled = true;
        dibs__line_wake(line);
    }
    /* Before the first, io may have looked after a call that stands behind
     * another, and rest for as long as that one may wait. */
    if (look && (first || !line->awake || op->deadline < line->looks_at))
        dibs__line_wake(line);
}

/* ---- who must go ------------------------------------------------------- */

static bool must_go(const struct dibs__op *op, int64_t now, bool closing)
{
    return op->canceled || closing || now >= op->deadline;
}

/* It is about to be answered, or to be given the lock. */
static bool answer_due(const struct dibs__op *op)
{
    return dibs__op_asks(op) || op->granting;
}

/* The lock is on its way to this one, which does not wait for it any more. The
 * release takes care of what comes of that; from now on its number is not to be
 * used. */
static void part_from_giver(struct dibs__line *line, struct dibs__op *op,
                            struct dibs__list *resume) REQUIRES(line->mu)
{
    op->giver->next_owner = NULL;
    op->giver = NULL;
    op->granting = false;
    op->tainted = true;
    dibs__list_del(&op->ask_link);
    dibs__op_unstall(line, &op->followers, resume);
}

/* Whose call ends now, and who may go on because of that. */
struct swept {
    struct dibs__list over, resume;
};

static void sweep_waiters(struct dibs__line *line, int64_t now,
                          struct swept *out) REQUIRES(line->mu)
{
    bool closing = atomic_load(&line->locks->closing);

    for (struct dibs__list *l = line->waiters.next, *n; l != &line->waiters;
         l = n) {
        struct dibs__op *op = DIBS_OF(l, struct dibs__op, link);
        bool must = must_go(op, now, closing);
        n = l->next;
        if (must && op->giver)
            part_from_giver(line, op, &out->resume);
        if (must && !answer_due(op)) {
            dibs__list_del(l);
            if (op->hold)
                dibs__hold_free(line, op->hold);
            op->hold = NULL;
            dibs__list_add(&out->over, l);
        } else {
            line->canceled |= op->canceled;
            line->first_deadline = dibs__min(
                line->first_deadline, must ? now + AFTER_MS : op->deadline);
        }
    }
}

/* Those behind another call of their owner; on a hold, if that call has one. A
 * release is not to be canceled, and a client that closes gives back anyway. */
static void sweep_behind(struct dibs__line *line, struct dibs__list *behind,
                         struct dibs__hold *h, struct swept *out)
    REQUIRES(line->mu)
{
    bool closing = atomic_load(&line->locks->closing);
    int64_t now = dibs__now_ms();

    for (struct dibs__list *l = behind->next, *n; l != behind; l = n) {
        struct dibs__op *op = DIBS_OF(l, struct dibs__op, link);
        bool gives = op->run == dibs__release_run;
        n = l->next;
        if (!must_go(op, now, closing && !gives)) {
            line->first_deadline =
                dibs__min(line->first_deadline, op->deadline);
            continue;
        }
        dibs__list_del(l);
        line->stalled--;
        if (gives)
            dibs__release_give_up(h, op);
        dibs__list_add(&out->over, l);
    }
}

/* Those whose time is over, who were canceled, or all when the client closes.
 * Whoever is being answered stays for the answer. */
static void sweep(struct dibs__line *line, int64_t now, struct swept *out)
    REQUIRES(line->mu)
{
    dibs__list_init(&out->over);
    dibs__list_init(&out->resume);
    if (now < line->first_deadline && !line->canceled &&
        !atomic_load(&line->locks->closing))
        return;
    line->first_deadline = INT64_MAX;
    line->canceled = false;
    if (line->stalled) {
        for (struct dibs__list *l = line->asks.next; l != &line->asks;
             l = l->next)
            sweep_behind(line,
                         &DIBS_OF(l, struct dibs__op, ask_link)->followers,
                         NULL, out);
        for (struct dibs__list *l = line->holds.next; l != &line->holds;
             l = l->next) {
            struct dibs__hold *h = DIBS_OF(l, struct dibs__hold, link);
            sweep_behind(line, &h->blocked, h, out);
        }
    }
    sweep_waiters(line, now, out);
}

/* How a call ends that does not wait any more. */
static dibs_err outcome(const struct dibs__op *op)
{
    if (op->run == dibs__release_run)
        return DIBS_ERR_UNKNOWN;
    if (atomic_load(&op->line->locks->closing))
        return DIBS_ERR_CLOSED;
    if (op->canceled)
        return DIBS_ERR_CANCELED;
    if (op->trying) /* an owner's own other call is in the way */
        return DIBS_ERR_BUSY;
    return op->last ? op->last : DIBS_ERR_TIMEOUT;
}

static void end_all(struct swept *swept)
{
    for (struct dibs__list *l; (l = dibs__list_pop(&swept->over));) {
        struct dibs__op *op = DIBS_OF(l, struct dibs__op, link);
        dibs_err err = outcome(op);

        if (op->ask.stay) {
            dibs__queue_end(op);
            dibs__queue_leave(op, err);
            continue;
        }
        if (op->tainted)
            dibs__op_disown(op);
        dibs__op_finish(op, err);
    }
    dibs__op_resume(&swept->resume);
}

void dibs__line_end_waits(struct dibs__line *line)
{
    struct swept swept;

    dibs__lock(&line->mu);
    sweep(line, dibs__now_ms(), &swept);
    dibs__unlock(&line->mu);
    end_all(&swept);
}

/* ---- canceling --------------------------------------------------------- */

static bool cancel_in(struct dibs__list *ops, dibs_owner owner)
{
    bool found = false;

    for (struct dibs__list *l = ops->next; l != ops; l = l->next) {
        struct dibs__op *op = DIBS_OF(l, struct dibs__op, link);
        if (op->owner != owner || op->run != dibs__acquire_run)
            continue;
        op->canceled = found = true;
    }
    return found;
}

bool dibs__line_cancel(struct dibs__line *line, dibs_owner owner)
{
    struct dibs__hold *h = dibs__hold_of(line, owner);
    struct dibs__op *asking = dibs__op_asking(line, owner);
    bool found = cancel_in(&line->waiters, owner);

    if (asking)
        found |= cancel_in(&asking->followers, owner);
    if (h)
        found |= cancel_in(&h->blocked, owner);
    if (found) {
        line->canceled = true;
        dibs__line_wake(line);
    }
    return found;
}

/* ---- looking ----------------------------------------------------------- */

/* What the head does now: asks, if it is returned; else when to look again. */
static struct dibs__op *next_step(struct dibs__line *line, int64_t now,
                                  int64_t *again) REQUIRES(line->mu)
{
    struct dibs__op *head = DIBS_OF(line->waiters.next, struct dibs__op, link);
    struct dibs__hold *here =
        line->kind->shared ? NULL : dibs__hold_other(line, 0, now);

    *again = now + IDLE_LOOK_MS;
    if (line->kind->queued || answer_due(head))
        return NULL;
    if (here && now < line->next_try) {
        *again = dibs__min(here->valid_until, line->next_try);
        return NULL;
    }
    if (now < line->yield_until) {
        *again = line->yield_until;
        return NULL;
    }
    if (!line->try_now && now < line->next_try) {
        *again = line->next_try;
        return NULL;
    }
    if (!dibs__acquire_may_ask(line, head)) {
        *again = now + AFTER_MS; /* a try of the same owner is on its way */
        return NULL;
    }
    line->try_now = false;
    return head;
}

/* One reader got in: all that wait here ask, in one batch. */
static void ask_all(struct dibs__line *line) REQUIRES(line->mu)
{
    line->all_ask = false;
    for (struct dibs__list *l = line->waiters.next; l != &line->waiters;
         l = l->next) {
        struct dibs__op *op = DIBS_OF(l, struct dibs__op, link);
        if (!answer_due(op) && dibs__acquire_may_ask(line, op))
            dibs__acquire_ask(op);
    }
}

static void stop_looking(struct dibs__line *line)
{
    dibs_client *c = dibs__line_client(line);

    dibs__timer_stop(&c->loop, &line->timer);
    dibs__pubsub_leave(&line->sub);
    dibs__line_unref(line);
}

static void keep_looking(struct dibs__line *line, bool listen, int64_t at)
{
    dibs_client *c = dibs__line_client(line);

    dibs__timer_set(&c->loop, &line->timer, at);
    if (!listen || dibs__line_listen(line, &line->sub, line->channel,
                                     line->channel_len) == DIBS_OK)
        return;
    dibs__lock(&line->mu);
    line->listening = false; /* no memory: next time */
    dibs__unlock(&line->mu);
}

static void look(struct dibs__line *line)
{
    int64_t now = dibs__now_ms(), at = 0;
    struct dibs__op *ask = NULL;
    struct swept swept;
    bool listen = false;

    dibs__lock(&line->mu);
    sweep(line, now, &swept);
    bool idle = dibs__list_empty(&line->waiters);
    bool done = idle && !line->stalled;
    at = line->first_deadline;
    if (!idle) {
        listen = !line->kind->queued && !line->listening &&
                 (line->kind->shared || !dibs__hold_other(line, 0, now));
        if (line->all_ask)
            ask_all(line);
        ask = next_step(line, now, &at);
        at = dibs__min(at, line->first_deadline);
    }
    line->listening = !done && (line->listening || listen);
    line->looks_at = at;
    bool was_awake = line->awake;
    line->awake = !done;
    if (line->awake && !was_awake)
        dibs__line_ref(line);
    dibs__unlock(&line->mu);
    end_all(&swept);
    if (ask)
        dibs__acquire_ask(ask);
    if (!done)
        keep_looking(line, listen, at);
    else if (was_awake)
        stop_looking(line);
}

static void look_posted(struct dibs__task *t)
{
    struct dibs__line *line = DIBS_OF(t, struct dibs__line, look);

    dibs__lock(&line->mu);
    line->look_posted = false;
    dibs__unlock(&line->mu);
    look(line);
    dibs__line_unref(line);
}

static void look_timed(struct dibs__timer *t)
{
    look(DIBS_OF(t, struct dibs__line, timer));
}

static void heard(struct dibs__sub *sub)
{
    struct dibs__line *line = DIBS_OF(sub, struct dibs__line, sub);

    dibs__lock(&line->mu);
    line->try_now = true;
    dibs__unlock(&line->mu);
    look(line);
}

void dibs__line_wait_init(struct dibs__line *line)
{
    line->looks_at = INT64_MAX;
    line->first_deadline = INT64_MAX;
    line->look.run = look_posted;
    line->timer.fire = look_timed;
    line->sub.hear = heard;
}
