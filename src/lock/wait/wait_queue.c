/* SPDX-License-Identifier: MIT
 *
 * wait_queue.c - queue of the calls of one client that wait for a lock.
 *
 * Thread  io; other threads only post the queue to io.
 * Locks   queue.mu, the user's mutex, called mu here.
 *
 * How     A waiter subscribes, retries, then parks: a release between a retry
 *         and a later subscription would be missed. A parked waiter retries
 *         after a notification, after the pause that the last reply named, and
 *         when its subscription was made anew. Notifications are hints; only
 *         the reply to an acquire decides.
 *
 *         RETRY_HEAD_ONLY: only the head retries, with the queue's
 *         subscription and timer. While an owner of this client holds the
 *         lock, a retry is mostly in vain, since the release hands the lock
 *         over to the head. So io watches the deadlines and the expiry of that
 *         hold, and retries every IDLE_RETRY_MS only, as the lock may have
 *         been force-released.
 *
 *         If the queue registers, the server wakes one client at a time, on a
 *         channel of the client's (turn.c).
 *
 *         A waiter whose acquire got no reply may already own the lock. It
 *         retries on its own: a retry by the head would not cover it, and the
 *         head cannot get the lock before that waiter has released it.
 *
 *         RETRY_EACH: the server keeps a queue of waiters. Each one retries on
 *         its own (place.c); here only deadlines and cancels are handled.
 *
 *         A call that joins a queue in service wakes no thread, unless its
 *         deadline is earlier than the next service.
 *
 * Expiry  A waiter ends when its deadline has passed, when it is canceled, or
 *         when the client closes. A waiter that awaits a reply ends after the
 *         reply, which has a time limit of its own. care.first_deadline is a
 *         lower bound of all deadlines, so most services skip the scan.
 *
 * Memory  The care of a queue (care.c) is allocated before a call waits; out
 *         of memory, that call is refused with NOMEM. So a queue with a PARKED
 *         waiter has care. io frees it once there are no waiters and the
 *         registration has no state to keep.
 *
 * States of a waiter
 *
 *   state            event                                  next state
 *   IDLE             joins the queue                        PARKED
 *                    its first acquire is sent              IN_FLIGHT
 *                    another call of its owner is pending   BLOCKED
 *   BLOCKED          that call ends: starts over            IDLE
 *                    deadline, cancel, close                IDLE, ended
 *   PARKED           notification, timer, wake: retries     IN_FLIGHT
 *                    a release selects it for a hand-off    HANDOFF_PENDING
 *                    another call of its owner got the lock IDLE
 *                    deadline, cancel, close                IDLE, ended
 *   IN_FLIGHT        reply: busy                            PARKED
 *                    reply: acquired, or refused            IDLE
 *                    reply: acquired, but not usable        ROLLING_BACK
 *   HANDOFF_PENDING  reply: handed over                     IDLE
 *                    the hand-off failed                    PARKED
 *                    deadline, cancel, close: declined      IDLE, ended
 *   ROLLING_BACK     reply or failure of the release        IDLE, ended
 *
 *   Before a waiter is ended, it may be ROLLING_BACK to tell the server that it
 *   has left the server's queue.
 */
#include "lock/wait/wait_queue.h"

#include "base/mem.h"
#include "lock/wait/care.h"
#include "lock/wait/place.h"

#define IDLE_RETRY_MS          2000
#define RECHECK_MS             10 /* a waiter could not retry or end yet */
#define IDLE_SUBSCRIPTIONS_MAX 64 /* queues of a client */

static struct dibs__waiter *waiter_of(struct dibs__list *l)
{
    return DIBS_OF(l, struct dibs__waiter, link);
}

static bool wait_queue_is_closing(const struct dibs__wait_queue *queue)
{
    return queue->ops->info(queue).closing;
}

static struct dibs__loop *wait_queue_loop(const struct dibs__wait_queue *queue)
{
    return &queue->ops->info(queue).client->loop;
}

/* ---- activation -------------------------------------------------------- */

static void service_posted(struct dibs__task *t);
static void service_timed(struct dibs__timer *t);

static void on_message(struct dibs__care *care, enum dibs__wait_channel channel,
                       char message);

bool dibs__wait_queue_activate(struct dibs__wait_queue *queue)
{
    dibs__assert_held(queue->mu);
    if (queue->care)
        return true;
    struct dibs__care *care = queue->care = dibs__care_new(queue);
    if (!care)
        return false;
    care->next_try = dibs__now_ms() + IDLE_RETRY_MS;
    care->again_at = INT64_MAX;
    care->post.run = service_posted;
    care->timer.fire = service_timed;
    care->said = on_message;
    return true;
}

/* After a service that found no waiters. The care stays if a waiter has joined
 * since, while the client is being deregistered, and while the registration has
 * state to keep. */
static void free_care_if_idle(struct dibs__wait_queue *queue)
{
    struct dibs__care *idle = NULL;

    dibs__lock(queue->mu);
    struct dibs__care *care = queue->care;
    if (!care->awake && !care->posted && !queue->blocked_count &&
        dibs__list_empty(&queue->waiters) && dibs__turn_forgets(&care->turn)) {
        idle = care;
        queue->care = NULL;
    }
    dibs__unlock(queue->mu);
    dibs__free(idle);
}

void dibs__wait_queue_init(struct dibs__wait_queue *queue,
                           const struct dibs__wait_queue_ops *ops,
                           dibs__mutex *mu, enum dibs__retry_policy policy)
{
    queue->ops = ops;
    queue->mu = mu;
    queue->retry_policy = (unsigned char)policy;
    dibs__list_init(&queue->waiters);
}

void dibs__wait_queue_clear(struct dibs__wait_queue *queue)
{
    dibs__free(queue->care);
}

/* ---- wake-up of io ----------------------------------------------------- */

/* Has io service the queue, which is active. */
static void wake_io(struct dibs__wait_queue *queue) REQUIRES(*queue->mu)
{
    struct dibs__care *care = queue->care;

    if (!care->awake) {
        care->awake = true;
        queue->ops->ref(queue);
    }
    if (!care->posted) {
        care->posted = true;
        queue->ops->ref(queue);
        dibs__loop_post(wait_queue_loop(queue), &care->post);
    }
}

/* After the last waiter has left: has io stop servicing the queue. A queue that
 * stays subscribed while idle, and has nothing to deregister, wakes no
 * thread. */
static void wake_io_if_empty(struct dibs__wait_queue *queue)
    REQUIRES(*queue->mu)
{
    if (queue->care && queue->care->awake && !queue->blocked_count &&
        dibs__list_empty(&queue->waiters) &&
        !dibs__turn_quiet(&queue->care->turn))
        wake_io(queue);
}

static bool has_parked(struct dibs__wait_queue *queue) REQUIRES(*queue->mu)
{
    if (!queue->care)
        return false;
    for (struct dibs__list *l = queue->waiters.next; l != &queue->waiters;
         l = l->next)
        if (waiter_of(l)->state == WAITER_PARKED)
            return true;
    return false;
}

void dibs__wait_queue_wake_head(struct dibs__wait_queue *queue)
{
    dibs__assert_held(queue->mu);
    queue->retry_now = true;
    if (queue->retry_policy != RETRY_EACH && has_parked(queue))
        wake_io(queue);
}

void dibs__wait_queue_wake_all(struct dibs__wait_queue *queue)
{
    dibs__assert_held(queue->mu);
    if (!has_parked(queue))
        return;
    queue->care->all_ask = true;
    wake_io(queue);
}

void dibs__wait_queue_cancel(struct dibs__wait_queue *queue,
                             struct dibs__waiter *waiter)
{
    dibs__assert_held(queue->mu);
    waiter->canceled = true;
    if (!queue->care)
        return; /* the first service after it parks ends it */
    queue->care->canceled = true;
    wake_io(queue);
}

bool dibs__wait_queue_close(struct dibs__wait_queue *queue)
{
    dibs__assert_held(queue->mu);
    bool empty = dibs__list_empty(&queue->waiters);
    if (queue->care && (!empty || queue->care->awake)) {
        wake_io(queue);
        return true;
    }
    return !empty;
}

/* ---- joining and leaving ----------------------------------------------- */

void dibs__wait_queue_join(struct dibs__wait_queue *queue,
                           struct dibs__waiter *waiter, bool needs_service)
{
    struct dibs__care *care = queue->care;
    bool first = dibs__list_empty(&queue->waiters);

    dibs__assert_held(queue->mu);
    /* Earlier wake-ups do not concern this waiter. But a call that was made to
     * wait because of backoff_until has yet to send its first acquire, even if
     * backoff_until is just over. */
    if (first)
        queue->retry_now = needs_service;
    waiter->state = WAITER_PARKED;
    waiter->refused_at = 0;
    dibs__list_add(&queue->waiters, &waiter->link);
    if (!care) {
        assert(!needs_service);
        return;
    }
    if (first)
        care->next_try = dibs__now_ms() + IDLE_RETRY_MS;
    if (first && !queue->blocked_count)
        care->first_deadline = INT64_MAX;
    dibs__care_deadline(care, waiter->deadline);
    if (waiter->canceled) /* before it joined */
        dibs__wait_queue_cancel(queue, waiter);
    if (!needs_service)
        return;
    /* With BLOCKED waiters only, the next service may be as late as their
     * deadline, so the first waiter wakes io. */
    if (first || !care->awake || waiter->deadline < care->looks_at)
        wake_io(queue);
    /* Permits may be free for it, though not for the head. */
    if (dibs__bypass_may_retry(queue, waiter))
        dibs__wait_queue_wake_head(queue);
}

void dibs__wait_queue_leave(struct dibs__wait_queue *queue,
                            struct dibs__waiter *waiter)
{
    dibs__assert_held(queue->mu);
    dibs__list_del(&waiter->link);
    waiter->state = WAITER_IDLE;
    wake_io_if_empty(queue);
}

void dibs__wait_queue_block_on(struct dibs__wait_queue *queue,
                               struct dibs__list *blocked,
                               struct dibs__waiter *waiter)
{
    dibs__assert_held(queue->mu);
    bool first =
        queue->blocked_count++ == 0 && dibs__list_empty(&queue->waiters);
    waiter->state = WAITER_BLOCKED;
    dibs__list_add(blocked, &waiter->link);
    if (!dibs__wait_queue_activate(queue))
        return;
    if (first)
        queue->care->first_deadline = INT64_MAX;
    dibs__care_deadline(queue->care, waiter->deadline);
    if (waiter->canceled)
        dibs__wait_queue_cancel(queue, waiter);
    else if (waiter->deadline < INT64_MAX &&
             (!queue->care->awake || waiter->deadline < queue->care->looks_at))
        wake_io(queue);
}

void dibs__wait_queue_unblock(struct dibs__wait_queue *queue,
                              struct dibs__list *blocked,
                              struct dibs__list *out)
{
    dibs__assert_held(queue->mu);
    for (struct dibs__list *l = blocked->next; l != blocked; l = l->next) {
        waiter_of(l)->state = WAITER_IDLE;
        queue->blocked_count--;
    }
    wake_io_if_empty(queue);
    dibs__list_move(out, blocked);
}

/* ---- expiry ------------------------------------------------------------ */

static bool waiter_must_end(const struct dibs__waiter *waiter, int64_t now,
                            bool closing)
{
    return waiter->canceled || closing || now >= waiter->deadline;
}

bool dibs__wait_queue_expire_one(struct dibs__wait_queue *queue,
                                 struct dibs__waiter *waiter, int64_t now,
                                 bool ignore_closing,
                                 struct dibs__expired_waiters *out)
{
    dibs__assert_held(queue->mu);
    if (!waiter_must_end(waiter, now,
                         wait_queue_is_closing(queue) && !ignore_closing)) {
        dibs__care_deadline(queue->care, waiter->deadline);
        return false;
    }
    dibs__list_del(&waiter->link);
    waiter->state = WAITER_IDLE;
    queue->blocked_count--;
    dibs__list_add(&out->expired, &waiter->link);
    return true;
}

static void expire_waiters(struct dibs__wait_queue *queue, int64_t now,
                           struct dibs__expired_waiters *out)
    REQUIRES(*queue->mu)
{
    bool closing = wait_queue_is_closing(queue);

    for (struct dibs__list *l = queue->waiters.next, *n; l != &queue->waiters;
         l = n) {
        struct dibs__waiter *waiter = waiter_of(l);
        bool must_end = waiter_must_end(waiter, now, closing);
        n = l->next;
        if (must_end &&
            (waiter->state == WAITER_PARKED ||
             (waiter->state == WAITER_HANDOFF_PENDING &&
              queue->ops->decline_handoff(queue, waiter, &out->resume)))) {
            dibs__list_del(l);
            waiter->state = WAITER_IDLE;
            dibs__list_add(&out->expired, l);
            continue;
        }
        queue->care->canceled |= waiter->canceled;
        queue->care->first_deadline =
            dibs__min(queue->care->first_deadline,
                      must_end ? now + RECHECK_MS : waiter->deadline);
    }
}

/* Takes the waiters that must end out of the queue. */
static void collect_expired(struct dibs__wait_queue *queue, int64_t now,
                            struct dibs__expired_waiters *out)
    REQUIRES(*queue->mu)
{
    struct dibs__care *care = queue->care;

    dibs__list_init(&out->expired);
    dibs__list_init(&out->resume);
    if (!care || (now < care->first_deadline && !care->canceled &&
                  !wait_queue_is_closing(queue)))
        return;
    care->first_deadline = INT64_MAX;
    care->canceled = false;
    if (queue->blocked_count)
        queue->ops->expire_blocked(queue, now, out);
    expire_waiters(queue, now, out);
}

/* No mutex held. */
static void end_waiters(struct dibs__wait_queue *queue,
                        struct dibs__expired_waiters *expired)
{
    dibs_err reason =
        wait_queue_is_closing(queue) ? DIBS_ERR_CLOSED : DIBS_ERR_TIMEOUT;

    for (struct dibs__list *l; (l = dibs__list_pop(&expired->expired));) {
        struct dibs__waiter *waiter = waiter_of(l);
        bool canceled = waiter->canceled && reason != DIBS_ERR_CLOSED;
        queue->ops->end(waiter, canceled ? DIBS_ERR_CANCELED : reason);
    }
    if (!dibs__list_empty(&expired->resume))
        queue->ops->resume(&expired->resume);
}

void dibs__wait_queue_expire(struct dibs__wait_queue *queue)
{
    struct dibs__expired_waiters expired;

    dibs__lock(queue->mu);
    collect_expired(queue, dibs__now_ms(), &expired);
    dibs__unlock(queue->mu);
    end_waiters(queue, &expired);
}

/* ---- which waiters retry ----------------------------------------------- */

/* Prepares a retry of the head, if it is due. If not, *next_service is when to
 * check again. */
static bool head_may_retry(struct dibs__wait_queue *queue, int64_t now,
                           int64_t held_until, int64_t *next_service)
    REQUIRES(*queue->mu)
{
    struct dibs__waiter *head = waiter_of(queue->waiters.next);

    *next_service = now + IDLE_RETRY_MS;
    if (queue->retry_policy == RETRY_EACH || head->state != WAITER_PARKED)
        return false;
    if (held_until && now < queue->care->next_try)
        *next_service = dibs__min(held_until, queue->care->next_try);
    else if (now < queue->backoff_until)
        *next_service = queue->backoff_until;
    else if (!queue->retry_now && now < queue->care->next_try)
        *next_service = queue->care->next_try;
    else if (!queue->ops->may_retry(queue, head))
        *next_service = now + RECHECK_MS; /* a call of its owner is in flight */
    else
        return true;
    return false;
}

/* Prepares retries. Returns the waiters to retry, chained by waiter.next. */
static struct dibs__waiter *collect_retries(struct dibs__wait_queue *queue,
                                            int64_t now, int64_t held_until,
                                            int64_t *next_service)
    REQUIRES(*queue->mu)
{
    struct dibs__care *care = queue->care;
    struct dibs__waiter *first = NULL, **end = &first;
    bool all = care->all_ask, no_reply_due = now >= care->again_at;
    int64_t below = care->below;

    care->all_ask = false;
    care->below = 0;
    if (no_reply_due)
        care->again_at = INT64_MAX;
    for (struct dibs__list *l = queue->waiters.next;
         (all || no_reply_due) && l != &queue->waiters; l = l->next) {
        struct dibs__waiter *waiter = waiter_of(l);
        if (waiter->state != WAITER_PARKED || !(all || waiter->no_reply))
            continue;
        if (queue->ops->may_retry(queue, waiter)) {
            *end = waiter;
            end = &waiter->next;
        } else if (waiter->no_reply) { /* a call of its owner is in flight */
            care->again_at = now + RECHECK_MS;
        }
    }
    if (head_may_retry(queue, now, held_until, next_service)) {
        queue->retry_now = false;
        *end = waiter_of(queue->waiters.next);
        end = &(*end)->next;
    } else if ((*end = dibs__bypass_next(queue, below))) {
        end = &(*end)->next;
    }
    *end = NULL;
    return first;
}

/* ---- notifications ----------------------------------------------------- */

static void service_queue(struct dibs__care *care);

static void apply_wake(struct dibs__wait_queue *queue,
                       enum dibs__wake_reason wake) REQUIRES(*queue->mu)
{
    if (wake == WAKE_DEFERRED)
        wake_io(queue);
    if (wake == WAKE_DIRECT)
        queue->backoff_until = 0;
    queue->retry_now |= wake == WAKE_RELEASE || wake == WAKE_DIRECT;
}

static enum dibs__wake_reason on_lock_channel(struct dibs__wait_queue *queue,
                                              char message) REQUIRES(*queue->mu)
{
    struct dibs__turn *t = &queue->care->turn;
    enum dibs__wake_reason wake =
        dibs__turn_line_said(t, message, dibs__care_wants_own(queue->care));

    /* An external release before this subscription was ready was missed. */
    t->foreign |= !message && dibs__list_empty(&queue->waiters) &&
                  dibs__now_ms() < t->duty_until;
    return wake;
}

static void on_message(struct dibs__care *care, enum dibs__wait_channel channel,
                       char message)
{
    struct dibs__wait_queue *queue = care->w;

    dibs__lock(queue->mu);
    enum dibs__wake_reason wake =
        channel == WAIT_LOCK_CHANNEL
            ? on_lock_channel(queue, message)
            : dibs__turn_own_said(&care->turn, message,
                                  dibs__care_hears_own(care), dibs__now_ms());
    apply_wake(queue, wake);
    dibs__unlock(queue->mu);
    if (channel == WAIT_CLIENT_CHANNEL || wake == WAKE_RELEASE)
        service_queue(care);
}

/* Returns the channels to be subscribed to, as bits of enum dibs__wait_channel.
 */
static unsigned wanted_subscriptions(struct dibs__wait_queue *queue,
                                     int64_t now, bool held, bool retries)
    REQUIRES(*queue->mu)
{
    bool waits = !dibs__list_empty(&queue->waiters);

    /* The retry may get the lock; then no subscription is needed. */
    if (!queue->care->turn.listens &&
        (!waits || held || retries || now < queue->backoff_until ||
         queue->retry_policy == RETRY_EACH ||
         waiter_of(queue->waiters.next)->poll_count))
        return 0;
    return dibs__turn_needs(&queue->care->turn, now,
                            waits || queue->blocked_count);
}

/* ---- service ----------------------------------------------------------- */

/* Computed with mu held, executed without. */
struct service_plan {
    struct dibs__expired_waiters expired;
    struct dibs__waiter *retries; /* chained by next */
    bool stop;                    /* no waiters, and no idle subscription */
    bool deregister;
    bool end_listening; /* this client was the designated listener */
    unsigned listens;   /* channels, as bits of enum dibs__wait_channel */
    int64_t at;         /* time of the next service */
};

/* The queue has no PARKED waiters. It keeps its subscriptions for some seconds
 * (turn.c), unless too many queues of the client do. */
static void plan_idle(struct dibs__wait_queue *queue, int64_t now,
                      struct service_plan *plan) REQUIRES(*queue->mu)
{
    struct dibs__turn *t = &queue->care->turn;
    dibs_client *c = queue->ops->info(queue).client;
    bool was_idle = t->linger_until != 0;
    bool room = was_idle || c->idle_subscriptions < IDLE_SUBSCRIPTIONS_MAX;

    plan->deregister = dibs__turn_over(t);
    if (queue->blocked_count) {
        /* They may join the queue later. */
    } else if (!wait_queue_is_closing(queue) &&
               now < dibs__turn_linger(t, now, room)) {
        c->idle_subscriptions += !was_idle;
        plan->at = dibs__min(plan->at, dibs__turn_next(t, now));
    } else {
        plan->stop = true;
        c->idle_subscriptions -= dibs__turn_unlinger(t);
        plan->end_listening = dibs__turn_end(t, now);
        plan->deregister |= plan->end_listening;
    }
    t->leaving += plan->deregister;
}

static void plan_service(struct dibs__wait_queue *queue, int64_t now,
                         struct service_plan *plan) REQUIRES(*queue->mu)
{
    struct dibs__care *care = queue->care;
    int64_t held_until = 0;

    plan->at = care->first_deadline;
    if (dibs__list_empty(&queue->waiters)) {
        plan_idle(queue, now, plan);
    } else {
        held_until =
            queue->ops->held_until ? queue->ops->held_until(queue, now) : 0;
        queue->ops->info(queue).client->idle_subscriptions -=
            dibs__turn_unlinger(&care->turn);
        if (held_until) /* the external release was before this hold */
            care->turn.foreign = false;
        queue->retry_now |= care->turn.foreign;
        plan->retries = collect_retries(queue, now, held_until, &plan->at);
        if (plan->retries) /* also by an acquire that does not register */
            care->turn.foreign = false;
        plan->at = dibs__min(plan->at, care->first_deadline);
        plan->at = dibs__min(plan->at, care->again_at);
    }
    if (!plan->stop)
        plan->listens = wanted_subscriptions(queue, now, held_until != 0,
                                             plan->retries != NULL);
}

/* May free care. */
static void service_queue(struct dibs__care *care)
{
    struct dibs__wait_queue *queue = care->w;
    int64_t now = dibs__now_ms();
    struct service_plan plan = {.stop = false};

    dibs__lock(queue->mu);
    collect_expired(queue, now, &plan.expired);
    care->turn.hears = dibs__care_hears_own(care);
    plan_service(queue, now, &plan);
    care->turn.listens = (unsigned char)plan.listens;
    care->looks_at = plan.at;
    bool was_awake = care->awake;
    care->awake = !plan.stop;
    if (care->awake && !was_awake)
        queue->ops->ref(queue);
    dibs__unlock(queue->mu);
    end_waiters(queue, &plan.expired);
    for (struct dibs__waiter *at = plan.retries, *next; at; at = next) {
        next = at->next; /* retry may free at */
        queue->ops->retry(at);
    }
    if (plan.deregister)
        queue->ops->send_deregister(queue, plan.end_listening);
    dibs__care_listen(care, plan.listens);
    if (!plan.stop) {
        dibs__timer_set(wait_queue_loop(queue), &care->timer, plan.at);
        return;
    }
    dibs__timer_stop(wait_queue_loop(queue), &care->timer);
    free_care_if_idle(queue);
    if (was_awake)
        queue->ops->unref(queue);
}

/* A waiter that joined meanwhile was not registered, so the head retries.
 * Without waiters, one more service frees the care. */
void dibs__wait_queue_deregistered(struct dibs__wait_queue *queue)
{
    dibs__lock(queue->mu);
    if (--queue->care->turn.leaving == 0) {
        dibs__wait_queue_wake_head(queue);
        if (!queue->care->awake)
            wake_io(queue);
    }
    dibs__unlock(queue->mu);
}

static void service_posted(struct dibs__task *t)
{
    struct dibs__care *care = DIBS_OF(t, struct dibs__care, post);
    struct dibs__wait_queue *queue = care->w;

    dibs__lock(queue->mu);
    care->posted = false;
    dibs__unlock(queue->mu);
    service_queue(care);
    queue->ops->unref(queue);
}

static void service_timed(struct dibs__timer *t)
{
    service_queue(DIBS_OF(t, struct dibs__care, timer));
}

/* ---- replies ----------------------------------------------------------- */

bool dibs__wait_queue_park(struct dibs__wait_queue *queue,
                           struct dibs__waiter *waiter, int64_t pause_ms,
                           int64_t sent_ms)
{
    dibs__assert_held(queue->mu);
    if (!dibs__wait_queue_activate(queue))
        return false;
    struct dibs__care *care = queue->care;
    waiter->state = WAITER_PARKED;
    /* Its deadline may have passed while the acquire was in flight. */
    dibs__care_deadline(care, waiter->deadline);
    if (queue->retry_policy != RETRY_EACH) {
        const struct dibs__waiter *head = waiter_of(queue->waiters.next);
        int64_t retry_at = dibs__now_ms() + pause_ms;
        /* A head that polls keeps its interval. */
        if (waiter == head || !head->poll_count)
            care->next_try = retry_at;
        waiter->no_reply = sent_ms == 0;
        if (waiter->no_reply)
            care->again_at = dibs__min(care->again_at, retry_at);
        else
            dibs__bypass_on_refusal(queue, waiter);
        wake_io(queue);
        return true;
    }
    if (!care->awake || care->canceled || waiter->deadline < care->looks_at ||
        wait_queue_is_closing(queue))
        wake_io(queue);
    return dibs__place_stay(queue, waiter, pause_ms, sent_ms);
}

/* Without care there is no subscription, so the client cannot register. */
enum dibs__registration
dibs__wait_queue_registration(struct dibs__wait_queue *queue)
{
    dibs__assert_held(queue->mu);
    return queue->care ? dibs__turn_how(&queue->care->turn) : REG_NONE;
}

void dibs__wait_queue_replied(struct dibs__wait_queue *queue,
                              enum dibs__registration how,
                              enum dibs__reg_reply told, int64_t now)
{
    dibs__assert_held(queue->mu);
    if (how != REG_NONE) /* the waiter is in the queue, so care exists */
        dibs__turn_answered(&queue->care->turn, how, told, now);
}

bool dibs__wait_queue_is_passive_listener(const struct dibs__wait_queue *queue,
                                          int64_t now)
{
    return queue->care && (queue->care->turn.listens & WAIT_LOCK_CHANNEL) &&
           now >= queue->care->turn.duty_until;
}
