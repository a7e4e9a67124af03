/* SPDX-License-Identifier: MIT
 *
 * wait_queue.c - how calls wait for something that another client has.
 *
 * Thread  io, except what other threads call to have io look.
 * Locks   the user's mutex, called mu here.
 *
 * How     Subscribe, ask again, then pause: who asks first and subscribes then
 *         can miss the release in between. A pause ends with a message, with
 *         the time that the last answer named, and when the subscription had to
 *         be made anew. A message is a hint; only the server's answer counts.
 *
 *         RETRY_HEAD_ONLY: only the first of the line asks, on the line's
 * channel and timer. While a call of this client has the thing there is little
 * to ask: its release will hand it over. io watches the deadlines then, and the
 * end of that hold. Every two seconds the head does ask, since the thing may
 * have been taken away by force.
 *
 *         If the line registers, the server calls one client at a time, on a
 *         channel of the client's (turn.c).
 *
 *         One whose question was not answered may have got in; then those
 *         before it wait for it. So it asks again by itself, and is not spoken
 *         for by the head.
 *
 *         RETRY_EACH: the server keeps a queue. Each waiter asks for itself
 *         (place.c); the line only looks after deadlines and cancels.
 *
 *         Joining a line that io looks after wakes no thread, unless the new
 *         waiter must be attended to earlier than io would look anyway.
 *
 * Care    What io needs to look after a line (care.c) is made before a call has
 *         to wait; a call that cannot be looked after is refused with NOMEM. So
 *         nobody PAUSES in a line without care. When io finds that nobody
 *         waits, and that nothing is to be remembered, it goes.
 *
 * Limits  Each call keeps its own deadline, whatever it waits for. Only the
 *         answer to its own question is waited for: that has a limit itself.
 *
 * States of a waiter
 *
 *   state     what can happen                              next state
 *   OUT       it joins the line                            PAUSES
 *             its first question is sent                   ASKS
 *             another call of its owner is under way       BEHIND
 *   BEHIND    that call ends: it begins anew               OUT
 *             deadline, cancel, close                      OUT, ended
 *   PAUSES    message, timer, kick: it may ask             ASKS
 *             a release picks it                           PROMISED
 *             its owner got in by another call             OUT
 *             deadline, cancel, close                      OUT, ended
 *   ASKS      answer: not yet                              PAUSES
 *             answer: taken, refused                       OUT
 *             answer: taken, but of no use                 UNDOES
 *   PROMISED  the hand-over is answered: it has it         OUT
 *             the hand-over failed                         PAUSES
 *             deadline, cancel, close: it withdraws        OUT, ended
 *   UNDOES    the server confirmed, or did not answer      OUT, ended
 *
 *   One that is ended may go to UNDOES first, to tell the server that it left.
 */
#include "lock/wait/wait_queue.h"

#include "base/mem.h"
#include "lock/wait/care.h"
#include "lock/wait/place.h"

#define IDLE_LOOK_MS 2000
#define AFTER_MS     10 /* look again at one that could not be dealt with */
#define LINGER_MAX   64 /* lines of a client that listen without waiters */

static struct dibs__waiter *waiter_of(struct dibs__list *l)
{
    return DIBS_OF(l, struct dibs__waiter, link);
}

static bool wait_is_closing(const struct dibs__wait_queue *queue)
{
    return queue->ops->info(queue).closing;
}

static struct dibs__loop *waiters_loop(const struct dibs__wait_queue *queue)
{
    return &queue->ops->info(queue).c->loop;
}

/* ---- its care ---------------------------------------------------------- */

static void look_posted(struct dibs__task *t);
static void look_timed(struct dibs__timer *t);

static void channel_said(struct dibs__care *care, enum dibs__ear on, char what);

bool dibs__wait_queue_activate(struct dibs__wait_queue *queue)
{
    dibs__assert_held(queue->mu);
    if (queue->care)
        return true;
    struct dibs__care *care = queue->care = dibs__care_new(queue);
    if (!care)
        return false;
    care->next_try = dibs__now_ms() + IDLE_LOOK_MS;
    care->again_at = INT64_MAX;
    care->post.run = look_posted;
    care->timer.fire = look_timed;
    care->said = channel_said;
    return true;
}

/* io has looked and found nobody. It stays if somebody came meanwhile, while
 * the server is being told, and while registering is known to be in vain. */
static void drop_care(struct dibs__wait_queue *queue)
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
                           const struct dibs__wait_queue_ops *user,
                           dibs__mutex *mu, enum dibs__retry_policy asks)
{
    queue->ops = user;
    queue->mu = mu;
    queue->retry_policy = (unsigned char)asks;
    dibs__list_init(&queue->waiters);
}

void dibs__wait_queue_clear(struct dibs__wait_queue *queue)
{
    dibs__free(queue->care);
}

/* ---- having io look ---------------------------------------------------- */

/* The line is ready. */
static void wake_io(struct dibs__wait_queue *queue) REQUIRES(*w->mu)
{
    struct dibs__care *care = queue->care;

    if (!care->awake) {
        care->awake = true;
        queue->ops->ref(queue);
    }
    if (!care->posted) {
        care->posted = true;
        queue->ops->ref(queue);
        dibs__loop_post(waiters_loop(queue), &care->post);
    }
}

/* The last call has left: io stops looking. If it goes on for some seconds
 * anyway, and the server need not know, no thread is woken. */
static void wake_if_empty(struct dibs__wait_queue *queue) REQUIRES(*w->mu)
{
    if (queue->care && queue->care->awake && !queue->blocked_count &&
        dibs__list_empty(&queue->waiters) &&
        !dibs__turn_quiet(&queue->care->turn))
        wake_io(queue);
}

static bool some_pause(struct dibs__wait_queue *queue) REQUIRES(*w->mu)
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
    if (queue->retry_policy != RETRY_EACH && some_pause(queue))
        wake_io(queue);
}

void dibs__wait_queue_wake_all(struct dibs__wait_queue *queue)
{
    dibs__assert_held(queue->mu);
    if (!some_pause(queue))
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
        return; /* it asks, and will not wait */
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
                           struct dibs__waiter *waiter, bool look)
{
    struct dibs__care *care = queue->care;
    bool first = dibs__list_empty(&queue->waiters);

    dibs__assert_held(queue->mu);
    if (first) /* what happened before does not matter now, but one that stands
                  back has yet to ask, also if that moment is over just now */
        queue->retry_now = look;
    waiter->state = WAITER_PARKED;
    waiter->refused_at = 0;
    dibs__list_add(&queue->waiters, &waiter->link);
    if (!care) {
        assert(!look);
        return;
    }
    if (first)
        care->next_try = dibs__now_ms() + IDLE_LOOK_MS;
    if (first && !queue->blocked_count)
        care->first_deadline = INT64_MAX;
    dibs__care_deadline(care, waiter->deadline);
    if (waiter->canceled) /* before it came here */
        dibs__wait_queue_cancel(queue, waiter);
    /* Before the first, io may have looked after a call that is behind
     * another one, and pause for as long as that one may wait. */
    if (look && (first || !care->awake || waiter->deadline < care->looks_at))
        wake_io(queue);
    if (look &&
        dibs__pass_joined(queue, waiter)) /* it asks if the head has to wait */
        dibs__wait_queue_wake_head(queue);
}

void dibs__wait_queue_leave(struct dibs__wait_queue *queue,
                            struct dibs__waiter *waiter)
{
    dibs__assert_held(queue->mu);
    dibs__list_del(&waiter->link);
    waiter->state = WAITER_IDLE;
    wake_if_empty(queue);
}

void dibs__wait_queue_block_on(struct dibs__wait_queue *queue,
                               struct dibs__list *behind,
                               struct dibs__waiter *waiter)
{
    dibs__assert_held(queue->mu);
    bool first =
        queue->blocked_count++ == 0 && dibs__list_empty(&queue->waiters);
    waiter->state = WAITER_BLOCKED;
    dibs__list_add(behind, &waiter->link);
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
                              struct dibs__list *behind, struct dibs__list *out)
{
    dibs__assert_held(queue->mu);
    for (struct dibs__list *l = behind->next; l != behind; l = l->next) {
        waiter_of(l)->state = WAITER_IDLE;
        queue->blocked_count--;
    }
    wake_if_empty(queue);
    dibs__list_move(out, behind);
}

/* ---- who asks ---------------------------------------------------------- */

/* May the head ask now? If not, *again is when to look again. */
static bool head_turn(struct dibs__wait_queue *queue, int64_t now,
                      int64_t held_until, int64_t *again) REQUIRES(*w->mu)
{
    struct dibs__waiter *head = waiter_of(queue->waiters.next);

    *again = now + IDLE_LOOK_MS;
    if (queue->retry_policy == RETRY_EACH || head->state != WAITER_PARKED)
        return false;
    if (held_until && now < queue->care->next_try)
        *again = dibs__min(held_until, queue->care->next_try);
    else if (now < queue->backoff_until)
        *again = queue->backoff_until;
    else if (!queue->retry_now && now < queue->care->next_try)
        *again = queue->care->next_try;
    else if (!queue->ops->may_retry(queue, head))
        *again = now + AFTER_MS; /* another call of the same owner asks */
    else
        return true;
    return false;
}

/* Those that ask now, chained by next. */
static struct dibs__waiter *pick_asking(struct dibs__wait_queue *queue,
                                        int64_t now, int64_t held_until,
                                        int64_t *again) REQUIRES(*w->mu)
{
    struct dibs__care *care = queue->care;
    struct dibs__waiter *first = NULL, **end = &first;
    bool all = care->all_ask, unheard = now >= care->again_at;
    int64_t below = care->below;

    care->all_ask = false;
    care->below = 0;
    if (unheard)
        care->again_at = INT64_MAX;
    for (struct dibs__list *l = queue->waiters.next;
         (all || unheard) && l != &queue->waiters; l = l->next) {
        struct dibs__waiter *waiter = waiter_of(l);
        if (waiter->state != WAITER_PARKED || !(all || waiter->no_reply))
            continue;
        if (queue->ops->may_retry(queue, waiter)) {
            *end = waiter;
            end = &waiter->next;
        } else if (waiter->no_reply) { /* another call of the same owner asks */
            care->again_at = now + AFTER_MS;
        }
    }
    if (head_turn(queue, now, held_until, again)) {
        queue->retry_now = false;
        *end = waiter_of(queue->waiters.next);
        end = &(*end)->next;
    } else if ((*end = dibs__pass_pick(queue, below))) {
        end = &(*end)->next;
    }
    *end = NULL;
    return first;
}

/* ---- channels ---------------------------------------------------------- */

static void look_at_line(struct dibs__care *care);

static void act_on(struct dibs__wait_queue *queue, enum dibs__heard heard)
    REQUIRES(*w->mu)
{
    if (heard == HEARD_LATER)
        wake_io(queue);
    if (heard == HEARD_CALL)
        queue->backoff_until = 0;
    queue->retry_now |= heard == HEARD_RELEASE || heard == HEARD_CALL;
}

static enum dibs__heard line_heard(struct dibs__wait_queue *queue, char what)
    REQUIRES(*w->mu)
{
    struct dibs__turn *t = &queue->care->turn;
    enum dibs__heard heard =
        dibs__turn_line_said(t, what, dibs__care_wants_own(queue->care));

    /* Before it listened for others, a release may have called nobody. */
    t->foreign |= !what && dibs__list_empty(&queue->waiters) &&
                  dibs__now_ms() < t->duty_until;
    return heard;
}

static void channel_said(struct dibs__care *care, enum dibs__ear on, char what)
{
    struct dibs__wait_queue *queue = care->w;

    dibs__lock(queue->mu);
    enum dibs__heard heard =
        on == EAR_LINE
            ? line_heard(queue, what)
            : dibs__turn_own_said(&care->turn, what, dibs__care_hears_own(care),
                                  dibs__now_ms());
    act_on(queue, heard);
    dibs__unlock(queue->mu);
    if (on == EAR_OWN || heard == HEARD_RELEASE)
        look_at_line(care);
}

/* To which channels it listens from now on. */
static unsigned wait_listens(struct dibs__wait_queue *queue, int64_t now,
                             bool held, bool asks) REQUIRES(*w->mu)
{
    bool waits = !dibs__list_empty(&queue->waiters);

    /* One that asks may get in, and then need not listen. */
    if (!queue->care->turn.listens &&
        (!waits || held || asks || now < queue->backoff_until ||
         queue->retry_policy == RETRY_EACH ||
         waiter_of(queue->waiters.next)->polls))
        return 0;
    return dibs__turn_needs(&queue->care->turn, now,
                            waits || queue->blocked_count);
}

/* ---- looking after the line -------------------------------------------- */

/* What a look found to do. */
struct look {
    struct dibs__expired_waiters swept;
    struct dibs__waiter *asking; /* chained by next */
    bool done;                   /* nobody waits here any more */
    bool tell;                   /* and the server shall know */
    bool deaf;                   /* and that it listens no more */
    unsigned listens;
    int64_t at; /* when to look again */
};

/* Nobody waits here. Some seconds longer io looks after the line. */
static void look_idle(struct dibs__wait_queue *queue, int64_t now,
                      struct look *out) REQUIRES(*w->mu)
{
    struct dibs__turn *t = &queue->care->turn;
    dibs_client *c = queue->ops->info(queue).c;
    bool before = t->linger_until != 0;
    bool room = before || c->idle_subscriptions < LINGER_MAX;

    out->tell = dibs__turn_over(t);
    if (queue->blocked_count) {
        /* They may wait here yet. */
    } else if (!wait_is_closing(queue) &&
               now < dibs__turn_linger(t, now, room)) {
        c->idle_subscriptions += !before;
        out->at = dibs__min(out->at, dibs__turn_next(t, now));
    } else {
        out->done = true;
        c->idle_subscriptions -= dibs__turn_unlinger(t);
        out->deaf = dibs__turn_end(t, now);
        out->tell |= out->deaf;
    }
    t->leaving += out->tell;
}

static void look_around(struct dibs__wait_queue *queue, int64_t now,
                        struct look *out) REQUIRES(*w->mu)
{
    struct dibs__care *care = queue->care;
    int64_t held = 0;

    out->at = care->first_deadline;
    if (dibs__list_empty(&queue->waiters)) {
        look_idle(queue, now, out);
    } else {
        held = queue->ops->held_until ? queue->ops->held_until(queue, now) : 0;
        queue->ops->info(queue).c->idle_subscriptions -=
            dibs__turn_unlinger(&care->turn);
        if (held) /* what others did before does not matter */
            care->turn.foreign = false;
        queue->retry_now |= care->turn.foreign;
        out->asking = pick_asking(queue, now, held, &out->at);
        if (out->asking) /* also by a question that could not say so */
            care->turn.foreign = false;
        out->at = dibs__min(out->at, care->first_deadline);
        out->at = dibs__min(out->at, care->again_at);
    }
    if (!out->done)
        out->listens = wait_listens(queue, now, held != 0, out->asking != NULL);
}

/* care may be gone then. */
static void look_at_line(struct dibs__care *care)
{
    struct dibs__wait_queue *queue = care->w;
    int64_t now = dibs__now_ms();
    struct look found = {.done = false};

    dibs__lock(queue->mu);
    dibs__wait_queue_collect_expired(queue, now, &found.swept);
    care->turn.hears = dibs__care_hears_own(care);
    look_around(queue, now, &found);
    care->turn.listens = (unsigned char)found.listens;
    care->looks_at = found.at;
    bool was_awake = care->awake;
    care->awake = !found.done;
    if (care->awake && !was_awake)
        queue->ops->ref(queue);
    dibs__unlock(queue->mu);
    dibs__wait_queue_end(queue, &found.swept);
    for (struct dibs__waiter *at = found.asking, *next; at; at = next) {
        next = at->next; /* it may be gone then */
        queue->ops->retry(at);
    }
    if (found.tell)
        queue->ops->send_deregister(queue, found.deaf);
    dibs__care_listen(care, found.listens);
    if (!found.done) {
        dibs__timer_set(waiters_loop(queue), &care->timer, found.at);
        return;
    }
    dibs__timer_stop(waiters_loop(queue), &care->timer);
    drop_care(queue);
    if (was_awake)
        queue->ops->unref(queue);
}

/* One that came meanwhile did not register. If none did, io looks once more, so
 * that the care of the line can go. */
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

static void look_posted(struct dibs__task *t)
{
    struct dibs__care *care = DIBS_OF(t, struct dibs__care, post);
    struct dibs__wait_queue *queue = care->w;

    dibs__lock(queue->mu);
    care->posted = false;
    dibs__unlock(queue->mu);
    look_at_line(care);
    queue->ops->unref(queue);
}

static void look_timed(struct dibs__timer *t)
{
    look_at_line(DIBS_OF(t, struct dibs__care, timer));
}

/* ---- questions and answers --------------------------------------------- */

bool dibs__wait_queue_park(struct dibs__wait_queue *queue,
                           struct dibs__waiter *waiter, int64_t pause_ms,
                           int64_t asked_ms)
{
    dibs__assert_held(queue->mu);
    if (!dibs__wait_queue_activate(queue))
        return false;
    struct dibs__care *care = queue->care;
    waiter->state = WAITER_PARKED;
    /* Its time may have passed while it was being answered. */
    dibs__care_deadline(care, waiter->deadline);
    if (queue->retry_policy != RETRY_EACH) {
        const struct dibs__waiter *head = waiter_of(queue->waiters.next);
        int64_t then = dibs__now_ms() + pause_ms;
        if (waiter == head ||
            !head->polls) /* one that polls goes on as it did */
            care->next_try = then;
        waiter->no_reply = asked_ms == 0;
        if (waiter->no_reply)
            care->again_at = dibs__min(care->again_at, then);
        else
            dibs__pass_refused(queue, waiter);
        wake_io(queue);
        return true;
    }
    if (!care->awake || care->canceled || waiter->deadline < care->looks_at ||
        wait_is_closing(queue))
        wake_io(queue);
    return dibs__place_stay(queue, waiter, pause_ms, asked_ms);
}

/* Without care its channel is not ready. */
enum dibs__how dibs__wait_queue_registration(struct dibs__wait_queue *queue)
{
    dibs__assert_held(queue->mu);
    return queue->care ? dibs__turn_how(&queue->care->turn) : HOW_PLAIN;
}

void dibs__wait_queue_replied(struct dibs__wait_queue *queue,
                              enum dibs__how how, enum dibs__told told,
                              int64_t now)
{
    dibs__assert_held(queue->mu);
    if (how != HOW_PLAIN) /* it waits still, so there is care */
        dibs__turn_answered(&queue->care->turn, how, told, now);
}

bool dibs__wait_queue_is_passive_listener(const struct dibs__wait_queue *queue,
                                          int64_t now)
{
    return queue->care && (queue->care->turn.listens & EAR_LINE) &&
           now >= queue->care->turn.duty_until;
}
