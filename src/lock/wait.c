/* SPDX-License-Identifier: MIT
 *
 * wait.c - how calls wait for something that another client has.
 *
 * Thread  io, except what other threads call to have io look.
 * Locks   the user's mutex, called mu here.
 *
 * How     Subscribe, ask again, then pause: who asks first and subscribes then
 *         can miss the release in between. A pause ends with a message, with
 *         the time that the last answer named, and when the subscription had to
 *         be made anew. A message is a hint; only the server's answer counts.
 *
 *         ASKS_HEAD: only the first of the line asks, on the line's channel and
 *         timer. While a call of this client has the thing there is little to
 *         ask: its release will hand it over. io watches the deadlines then,
 *         and the end of that hold. Every two seconds the head does ask, since
 *         the thing may have been taken away by force.
 *
 *         ASKS_EACH: the server keeps a queue. Each waiter asks for itself;
 *         asking puts it into the queue and keeps it there. It is called on a
 *         channel of its own. A waiter that cannot hear yet asks twice a
 *         second, so that the server does not take it for dead. The line only
 *         looks after deadlines and cancels. The channel of a waiter that got
 *         in is kept for some seconds (pubsub.c). If it was ready before the
 *         first question was sent, nothing was missed, and there is no second
 *         question: a change of hands is three commands.
 *
 *         Joining a line that io looks after wakes no thread, unless the new
 *         waiter must be attended to earlier than io would look anyway.
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
#include "lock/wait.h"

#include "base/mem.h"

#define IDLE_LOOK_MS 2000
#define AFTER_MS     10  /* look again at one that could not be dealt with */
#define DEAF_MS      500 /* longest pause of a waiter that cannot hear */
#define SAID_CALLED                                                            \
    '2' /* on a line's channel: a dibs release called somebody,                \
           or found nobody that waits */

/* Its own channel and timer. io only, once it has started. */
struct dibs__place {
    struct dibs__wait *w;
    struct dibs__waiter *wt; /* NULL: it ended before this started */
    struct dibs__task start;
    struct dibs__timer timer;
    struct dibs__sub sub;
    int64_t pause_ms;
    bool called;  /* something happened while it asked */
    bool pending; /* start is still to come */
};

static struct dibs__waiter *waiter_of(struct dibs__list *l)
{
    return DIBS_OF(l, struct dibs__waiter, link);
}

static bool wait_is_closing(const struct dibs__wait *w)
{
    return atomic_load(w->closing);
}

/* ---- having io look ---------------------------------------------------- */

void dibs__wait_wake(struct dibs__wait *w)
{
    dibs__assert_held(w->mu);
    if (!w->awake) {
        w->awake = true;
        w->user->ref(w);
    }
    if (!w->posted) {
        w->posted = true;
        w->user->ref(w);
        dibs__loop_post(&w->c->loop, &w->post);
    }
}

/* The last call has left: io stops looking. */
static void wake_if_empty(struct dibs__wait *w) REQUIRES(*w->mu)
{
    if (w->awake && !w->behind && dibs__list_empty(&w->waiters))
        dibs__wait_wake(w);
}

static bool some_pause(struct dibs__wait *w) REQUIRES(*w->mu)
{
    for (struct dibs__list *l = w->waiters.next; l != &w->waiters; l = l->next)
        if (waiter_of(l)->state == WAITER_PAUSES)
            return true;
    return false;
}

void dibs__wait_kick(struct dibs__wait *w)
{
    dibs__assert_held(w->mu);
    w->try_now = true;
    if (w->asks != ASKS_EACH && some_pause(w))
        dibs__wait_wake(w);
}

void dibs__wait_kick_all(struct dibs__wait *w)
{
    dibs__assert_held(w->mu);
    if (!some_pause(w))
        return;
    w->all_ask = true;
    dibs__wait_wake(w);
}

void dibs__wait_cancel(struct dibs__wait *w, struct dibs__waiter *wt)
{
    dibs__assert_held(w->mu);
    wt->canceled = true;
    w->canceled = true;
    dibs__wait_wake(w);
}

/* ---- joining and leaving ----------------------------------------------- */

void dibs__wait_join(struct dibs__wait *w, struct dibs__waiter *wt, bool look)
{
    bool first = dibs__list_empty(&w->waiters);

    dibs__assert_held(w->mu);
    if (first) {
        if (!w->behind)
            w->first_deadline = INT64_MAX;
        w->try_now = false; /* what happened before does not matter now */
        w->next_try = dibs__now_ms() + IDLE_LOOK_MS;
    }
    wt->state = WAITER_PAUSES;
    dibs__list_add(&w->waiters, &wt->link);
    w->first_deadline = dibs__min(w->first_deadline, wt->deadline);
    if (wt->canceled) /* before it came here */
        dibs__wait_cancel(w, wt);
    /* Before the first, io may have looked after a call that is behind
     * another one, and pause for as long as that one may wait. */
    if (look && (first || !w->awake || wt->deadline < w->looks_at))
        dibs__wait_wake(w);
}

void dibs__wait_leave(struct dibs__wait *w, struct dibs__waiter *wt)
{
    dibs__assert_held(w->mu);
    dibs__list_del(&wt->link);
    wt->state = WAITER_OUT;
    wake_if_empty(w);
}

void dibs__wait_behind(struct dibs__wait *w, struct dibs__list *behind,
                       struct dibs__waiter *wt)
{
    dibs__assert_held(w->mu);
    if (w->behind++ == 0 && dibs__list_empty(&w->waiters))
        w->first_deadline = INT64_MAX;
    wt->state = WAITER_BEHIND;
    dibs__list_add(behind, &wt->link);
    w->first_deadline = dibs__min(w->first_deadline, wt->deadline);
    if (wt->canceled)
        dibs__wait_cancel(w, wt);
    else if (wt->deadline < INT64_MAX &&
             (!w->awake || wt->deadline < w->looks_at))
        dibs__wait_wake(w);
}

void dibs__wait_unbehind(struct dibs__wait *w, struct dibs__list *behind,
                         struct dibs__list *out)
{
    dibs__assert_held(w->mu);
    for (struct dibs__list *l = behind->next; l != behind; l = l->next) {
        waiter_of(l)->state = WAITER_OUT;
        w->behind--;
    }
    wake_if_empty(w);
    dibs__list_move(out, behind);
}

/* ---- those that must go ------------------------------------------------ */

static bool must_go(const struct dibs__waiter *wt, int64_t now, bool closing)
{
    return wt->canceled || closing || now >= wt->deadline;
}

bool dibs__wait_sweep_one(struct dibs__wait *w, struct dibs__waiter *wt,
                          int64_t now, bool never_closes,
                          struct dibs__swept *out)
{
    dibs__assert_held(w->mu);
    if (!must_go(wt, now, wait_is_closing(w) && !never_closes)) {
        w->first_deadline = dibs__min(w->first_deadline, wt->deadline);
        return false;
    }
    dibs__list_del(&wt->link);
    wt->state = WAITER_OUT;
    w->behind--;
    dibs__list_add(&out->over, &wt->link);
    return true;
}

static void sweep_waiters(struct dibs__wait *w, int64_t now,
                          struct dibs__swept *out) REQUIRES(*w->mu)
{
    bool closing = wait_is_closing(w);

    for (struct dibs__list *l = w->waiters.next, *n; l != &w->waiters; l = n) {
        struct dibs__waiter *wt = waiter_of(l);
        bool must = must_go(wt, now, closing);
        n = l->next;
        if (must && (wt->state == WAITER_PAUSES ||
                     (wt->state == WAITER_PROMISED &&
                      w->user->withdraw(w, wt, &out->resume)))) {
            dibs__list_del(l);
            wt->state = WAITER_OUT;
            dibs__list_add(&out->over, l);
            continue;
        }
        w->canceled |= wt->canceled;
        w->first_deadline =
            dibs__min(w->first_deadline, must ? now + AFTER_MS : wt->deadline);
    }
}

/* Those whose time is over, who were canceled, or all when the client closes.
 * One that awaits an answer stays for the answer. */
static void wait_collect(struct dibs__wait *w, int64_t now,
                         struct dibs__swept *out) REQUIRES(*w->mu)
{
    dibs__list_init(&out->over);
    dibs__list_init(&out->resume);
    if (now < w->first_deadline && !w->canceled && !wait_is_closing(w))
        return;
    w->first_deadline = INT64_MAX;
    w->canceled = false;
    if (w->behind)
        w->user->sweep_behind(w, now, out);
    sweep_waiters(w, now, out);
}

static void end_swept(struct dibs__wait *w, struct dibs__swept *swept)
{
    dibs_err otherwise =
        wait_is_closing(w) ? DIBS_ERR_CLOSED : DIBS_ERR_TIMEOUT;

    for (struct dibs__list *l; (l = dibs__list_pop(&swept->over));) {
        struct dibs__waiter *wt = waiter_of(l);
        bool canceled = wt->canceled && otherwise != DIBS_ERR_CLOSED;
        w->user->end(wt, canceled ? DIBS_ERR_CANCELED : otherwise);
    }
    if (!dibs__list_empty(&swept->resume))
        w->user->resume(&swept->resume);
}

void dibs__wait_sweep(struct dibs__wait *w)
{
    struct dibs__swept swept;

    dibs__lock(w->mu);
    wait_collect(w, dibs__now_ms(), &swept);
    dibs__unlock(w->mu);
    end_swept(w, &swept);
}

/* ---- looking after the line -------------------------------------------- */

/* May the head ask now? If not, *again is when to look again. */
static bool head_turn(struct dibs__wait *w, int64_t now, int64_t held_until,
                      int64_t *again) REQUIRES(*w->mu)
{
    struct dibs__waiter *head = waiter_of(w->waiters.next);

    *again = now + IDLE_LOOK_MS;
    if (w->asks == ASKS_EACH || head->state != WAITER_PAUSES)
        return false;
    if (held_until && now < w->next_try)
        *again = dibs__min(held_until, w->next_try);
    else if (now < w->yield_until)
        *again = w->yield_until;
    else if (!w->try_now && now < w->next_try)
        *again = w->next_try;
    else if (!w->user->may_ask(w, head))
        *again = now + AFTER_MS; /* another call of the same owner asks */
    else
        return true;
    return false;
}

/* Those that ask now, chained by next. */
static struct dibs__waiter *pick_asking(struct dibs__wait *w, int64_t now,
                                        int64_t held_until, int64_t *again)
    REQUIRES(*w->mu)
{
    struct dibs__waiter *first = NULL, **end = &first;

    for (struct dibs__list *l = w->waiters.next; w->all_ask && l != &w->waiters;
         l = l->next) {
        struct dibs__waiter *wt = waiter_of(l);
        if (wt->state == WAITER_PAUSES && w->user->may_ask(w, wt)) {
            *end = wt;
            end = &wt->next;
        }
    }
    w->all_ask = false;
    if (head_turn(w, now, held_until, again)) {
        w->try_now = false;
        *end = waiter_of(w->waiters.next);
        end = &(*end)->next;
    }
    *end = NULL;
    return first;
}

static void stop_looking(struct dibs__wait *w)
{
    dibs__timer_stop(&w->c->loop, &w->timer);
    dibs__pubsub_leave(&w->sub);
    w->user->unref(w);
}

static void keep_looking(struct dibs__wait *w, bool listen, int64_t at)
{
    dibs__timer_set(&w->c->loop, &w->timer, at);
    if (!listen || dibs__client_listen(w->c, w->slot, &w->sub, w->channel,
                                       w->channel_len) == DIBS_OK)
        return;
    dibs__lock(w->mu);
    w->listening = false; /* no memory: next time */
    dibs__unlock(w->mu);
}

static void wait_look(struct dibs__wait *w)
{
    int64_t now = dibs__now_ms();
    struct dibs__waiter *asking = NULL;
    struct dibs__swept swept;
    bool listen = false;

    dibs__lock(w->mu);
    wait_collect(w, now, &swept);
    bool idle = dibs__list_empty(&w->waiters);
    bool done = idle && !w->behind;
    int64_t at = w->first_deadline;
    if (!idle) {
        int64_t held = w->user->held_until ? w->user->held_until(w, now) : 0;
        listen = w->asks != ASKS_EACH && !w->listening && !held &&
                 !waiter_of(w->waiters.next)->polls;
        asking = pick_asking(w, now, held, &at);
        at = dibs__min(at, w->first_deadline);
    }
    w->listening = !done && (w->listening || listen);
    w->looks_at = at;
    bool was_awake = w->awake;
    w->awake = !done;
    if (w->awake && !was_awake)
        w->user->ref(w);
    dibs__unlock(w->mu);
    end_swept(w, &swept);
    for (struct dibs__waiter *next; asking; asking = next) {
        next = asking->next; /* it may be gone then */
        w->user->ask(asking);
    }
    if (!done)
        keep_looking(w, listen, at);
    else if (was_awake)
        stop_looking(w);
}

static void look_posted(struct dibs__task *t)
{
    struct dibs__wait *w = DIBS_OF(t, struct dibs__wait, post);

    dibs__lock(w->mu);
    w->posted = false;
    dibs__unlock(w->mu);
    wait_look(w);
    w->user->unref(w);
}

static void look_timed(struct dibs__timer *t)
{
    wait_look(DIBS_OF(t, struct dibs__wait, timer));
}

static void line_called(struct dibs__sub *sub, char said)
{
    struct dibs__wait *w = DIBS_OF(sub, struct dibs__wait, sub);

    if (w->marked && said == SAID_CALLED)
        return; /* what was said before it is what counts */
    dibs__lock(w->mu);
    w->try_now = true;
    dibs__unlock(w->mu);
    wait_look(w);
}

void dibs__wait_init(struct dibs__wait *w)
{
    dibs__list_init(&w->waiters);
    w->looks_at = INT64_MAX;
    w->first_deadline = INT64_MAX;
    w->post.run = look_posted;
    w->timer.fire = look_timed;
    w->sub.hear = line_called;
}

/* ---- each for itself --------------------------------------------------- */

/* False: it asks already, or another call of the same owner does. */
static bool place_ask(struct dibs__place *pl)
{
    struct dibs__wait *w = pl->w;
    struct dibs__waiter *wt = pl->wt;

    dibs__lock(w->mu);
    bool may = dibs__now_ms() < wt->deadline && w->user->may_ask(w, wt);
    dibs__unlock(w->mu);
    if (!may)
        return false;
    dibs__timer_stop(&w->c->loop, &pl->timer);
    pl->called = false;
    w->user->ask(wt);
    return true;
}

/* Pauses until it is called, or for as long as the answer said. */
static void place_pause(struct dibs__place *pl)
{
    int64_t ms = pl->called ? 0 : pl->pause_ms;

    if (!dibs__pubsub_hears(&pl->sub))
        ms = dibs__min(ms, dibs__random_in(DEAF_MS / 2, DEAF_MS));
    dibs__timer_set(&pl->w->c->loop, &pl->timer, dibs__now_ms() + ms);
}

static void waiter_called(struct dibs__sub *sub, char said)
{
    struct dibs__place *pl = DIBS_OF(sub, struct dibs__place, sub);

    (void)said;
    if (!place_ask(pl))
        pl->called = true;
}

static void place_timed(struct dibs__timer *t)
{
    struct dibs__place *pl = DIBS_OF(t, struct dibs__place, timer);

    if (!place_ask(pl))
        dibs__timer_set(&pl->w->c->loop, &pl->timer, dibs__now_ms() + AFTER_MS);
}

static void place_started(struct dibs__task *t)
{
    struct dibs__place *pl = DIBS_OF(t, struct dibs__place, start);
    struct dibs__buf name = {0};

    pl->pending = false;
    if (!pl->wt) {
        dibs__free(pl);
        return;
    }
    pl->w->user->own_channel(pl->wt, &name);
    if (dibs__buf_ok(&name)) /* no memory: it cannot hear */
        dibs__client_listen(pl->w->c, pl->w->slot, &pl->sub, name.data,
                            name.len);
    dibs__buf_clear(&name);
    place_pause(pl);
}

static bool place_new(struct dibs__wait *w, struct dibs__waiter *wt,
                      int64_t pause_ms, int64_t asked_ms)
{
    struct dibs__place *pl = dibs__calloc(1, sizeof *pl);

    if (!pl)
        return false;
    wt->place = pl;
    pl->w = w;
    pl->wt = wt;
    pl->pause_ms = pause_ms;
    pl->pending = true;
    pl->start.run = place_started;
    pl->timer.fire = place_timed;
    pl->sub.hear = waiter_called;
    pl->sub.asked_ms = asked_ms;
    dibs__loop_post(&w->c->loop, &pl->start);
    return true;
}

bool dibs__wait_stay(struct dibs__wait *w, struct dibs__waiter *wt,
                     int64_t pause_ms, int64_t asked_ms)
{
    dibs__assert_held(w->mu);
    wt->state = WAITER_PAUSES;
    /* Its time may have passed while it was being answered. */
    w->first_deadline = dibs__min(w->first_deadline, wt->deadline);
    if (w->asks != ASKS_EACH) {
        w->next_try = dibs__now_ms() + pause_ms;
        dibs__wait_wake(w);
        return true;
    }
    if (!w->awake || w->canceled || wt->deadline < w->looks_at ||
        wait_is_closing(w))
        dibs__wait_wake(w);
    if (!wt->place)
        return place_new(w, wt, pause_ms, asked_ms);
    wt->place->pause_ms = pause_ms; /* it has waited before, so this is io */
    if (!wt->place->pending)
        place_pause(wt->place);
    return true;
}

void dibs__wait_unplace(struct dibs__wait *w, struct dibs__waiter *wt,
                        bool back)
{
    struct dibs__place *pl = w->asks == ASKS_EACH ? wt->place : NULL;

    if (!pl)
        return;
    dibs__timer_stop(&w->c->loop, &pl->timer);
    if (back)
        dibs__pubsub_part(&pl->sub);
    else
        dibs__pubsub_leave(&pl->sub);
    wt->place = NULL;
    pl->wt = NULL;
    if (!pl->pending)
        dibs__free(pl);
}
