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
 *         If the line registers, the server calls one client at a time, on a
 *         channel of the client's (turn.c).
 *
 *         ASKS_EACH: the server keeps a queue. Each waiter asks for itself
 *         (place.c); the line only looks after deadlines and cancels.
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
#include "lock/place.h"

#define IDLE_LOOK_MS 2000
#define AFTER_MS     10 /* look again at one that could not be dealt with */
#define LINGER_MAX   64 /* lines of a client that listen without waiters */

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

/* The last call has left: io stops looking. If it goes on for some seconds
 * anyway, and the server need not know, no thread is woken. */
static void wake_if_empty(struct dibs__wait *w) REQUIRES(*w->mu)
{
    if (w->awake && !w->behind && dibs__list_empty(&w->waiters) &&
        !dibs__turn_quiet(&w->turn))
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
        /* What happened before does not matter now, but one that stands back
         * has yet to ask, also if that moment is over just now. */
        w->try_now = look;
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

/* ---- who asks ---------------------------------------------------------- */

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

/* ---- channels ---------------------------------------------------------- */

/* What the line listens to. io only; made when it is needed. */
struct dibs__ears {
    struct dibs__wait *w;
    struct dibs__sub line; /* the line's channel */
    struct dibs__sub own;  /* the one on which this client is called */
};

static void wait_look(struct dibs__wait *w);

static void act_on(struct dibs__wait *w, enum dibs__heard heard)
    REQUIRES(*w->mu)
{
    if (heard == HEARD_LATER)
        dibs__wait_wake(w);
    if (heard == HEARD_CALL)
        w->yield_until = 0;
    w->try_now |= heard == HEARD_RELEASE || heard == HEARD_CALL;
}

static void line_said(struct dibs__sub *sub, char said)
{
    struct dibs__ears *ears = DIBS_OF(sub, struct dibs__ears, line);
    struct dibs__wait *w = ears->w;

    dibs__lock(w->mu);
    enum dibs__heard heard =
        dibs__turn_line_said(&w->turn, said, ears->own.on != NULL);
    /* Before it listened for others, a release may have called nobody. */
    w->turn.foreign |= !said && dibs__list_empty(&w->waiters) &&
                       dibs__now_ms() < w->turn.duty_until;
    act_on(w, heard);
    dibs__unlock(w->mu);
    if (heard == HEARD_RELEASE)
        wait_look(w);
}

static void own_said(struct dibs__sub *sub, char said)
{
    struct dibs__wait *w = DIBS_OF(sub, struct dibs__ears, own)->w;

    dibs__lock(w->mu);
    act_on(w, dibs__turn_own_said(&w->turn, said, dibs__pubsub_hears(sub),
                                  dibs__now_ms()));
    dibs__unlock(w->mu);
    wait_look(w);
}

static struct dibs__ears *ears_of(struct dibs__wait *w)
{
    if (!w->ears && (w->ears = dibs__calloc(1, sizeof *w->ears))) {
        w->ears->w = w;
        w->ears->line.hear = line_said;
        w->ears->own.hear = own_said;
        w->ears->own.optional = true;
    }
    return w->ears;
}

static void listen_own(struct dibs__wait *w)
{
    struct dibs__buf name = {0};

    w->user->turn_channel(w, &name);
    if (dibs__buf_ok(&name))
        dibs__client_listen(w->c, w->slot, &w->ears->own, name.data, name.len);
    dibs__buf_clear(&name);
}

/* Listens to these channels, and to no others. No memory: it hears nothing,
 * asks by itself, and the next look tries again. Its own channel is asked for
 * last: when that one is ready, so is the other. */
static void ears_set(struct dibs__wait *w, unsigned needs)
{
    struct dibs__ears *ears = needs ? ears_of(w) : w->ears;

    if (!ears)
        return;
    if (!(needs & EAR_LINE))
        dibs__pubsub_leave(&ears->line);
    else if (!ears->line.on)
        dibs__client_listen(w->c, w->slot, &ears->line, w->channel,
                            w->channel_len);
    if (!(needs & EAR_OWN))
        dibs__pubsub_leave(&ears->own);
    else if (!ears->own.on)
        listen_own(w);
    if (!needs) {
        dibs__free(ears);
        w->ears = NULL;
    }
}

/* To which channels it listens from now on. */
static unsigned wait_listens(struct dibs__wait *w, int64_t now, bool held,
                             bool asks) REQUIRES(*w->mu)
{
    bool waits = !dibs__list_empty(&w->waiters);

    /* One that asks may get in, and then need not listen. */
    if (!w->turn.listens &&
        (!waits || held || asks || now < w->yield_until ||
         w->asks == ASKS_EACH || waiter_of(w->waiters.next)->polls))
        return 0;
    return dibs__turn_needs(&w->turn, now, waits || w->behind);
}

/* ---- looking after the line -------------------------------------------- */

/* What a look found to do. */
struct look {
    struct dibs__swept swept;
    struct dibs__waiter *asking; /* chained by next */
    bool done;                   /* nobody waits here any more */
    bool tell;                   /* and the server shall know */
    bool deaf;                   /* and that it listens no more */
    unsigned listens;
    int64_t at; /* when to look again */
};

/* Nobody waits here. Some seconds longer io looks after the line. */
static void look_idle(struct dibs__wait *w, int64_t now, struct look *out)
    REQUIRES(*w->mu)
{
    struct dibs__turn *t = &w->turn;
    bool before = t->linger_until != 0;
    bool room = before || w->c->lingering < LINGER_MAX;

    out->tell = dibs__turn_over(t);
    if (w->behind) {
        /* They may wait here yet. */
    } else if (!wait_is_closing(w) && now < dibs__turn_linger(t, now, room)) {
        w->c->lingering += !before;
        out->at = dibs__min(out->at, dibs__turn_next(t, now));
    } else {
        out->done = true;
        w->c->lingering -= dibs__turn_unlinger(t);
        out->deaf = dibs__turn_end(t, now);
        out->tell |= out->deaf;
    }
    t->leaving += out->tell;
}

static void look_around(struct dibs__wait *w, int64_t now, struct look *out)
    REQUIRES(*w->mu)
{
    int64_t held = 0;

    out->at = w->first_deadline;
    if (dibs__list_empty(&w->waiters)) {
        look_idle(w, now, out);
    } else {
        held = w->user->held_until ? w->user->held_until(w, now) : 0;
        w->c->lingering -= dibs__turn_unlinger(&w->turn);
        if (held) /* what others did before does not matter */
            w->turn.foreign = false;
        w->try_now |= w->turn.foreign;
        out->asking = pick_asking(w, now, held, &out->at);
        if (out->asking) /* also by a question that could not say so */
            w->turn.foreign = false;
        out->at = dibs__min(out->at, w->first_deadline);
    }
    if (!out->done)
        out->listens = wait_listens(w, now, held != 0, out->asking != NULL);
}

static void wait_look(struct dibs__wait *w)
{
    int64_t now = dibs__now_ms();
    struct look found = {.done = false};

    dibs__lock(w->mu);
    wait_collect(w, now, &found.swept);
    w->turn.hears = w->ears && dibs__pubsub_hears(&w->ears->own);
    look_around(w, now, &found);
    w->turn.listens = (unsigned char)found.listens;
    w->looks_at = found.at;
    bool was_awake = w->awake;
    w->awake = !found.done;
    if (w->awake && !was_awake)
        w->user->ref(w);
    dibs__unlock(w->mu);
    end_swept(w, &found.swept);
    for (struct dibs__waiter *at = found.asking, *next; at; at = next) {
        next = at->next; /* it may be gone then */
        w->user->ask(at);
    }
    if (found.tell)
        w->user->tell_left(w, found.deaf);
    ears_set(w, found.listens);
    if (!found.done) {
        dibs__timer_set(&w->c->loop, &w->timer, found.at);
    } else if (was_awake) {
        dibs__timer_stop(&w->c->loop, &w->timer);
        w->user->unref(w);
    }
}

void dibs__wait_left(struct dibs__wait *w)
{
    dibs__lock(w->mu);
    if (--w->turn.leaving == 0)
        dibs__wait_kick(w); /* one that came meanwhile did not register */
    dibs__unlock(w->mu);
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

void dibs__wait_init(struct dibs__wait *w)
{
    dibs__list_init(&w->waiters);
    w->looks_at = INT64_MAX;
    w->first_deadline = INT64_MAX;
    w->post.run = look_posted;
    w->timer.fire = look_timed;
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
    return dibs__place_stay(w, wt, pause_ms, asked_ms);
}
