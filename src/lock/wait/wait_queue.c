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

static bool wait_is_closing(const struct dibs__wait_queue *w)
{
    return w->user->facts(w).closing;
}

static struct dibs__loop *waiters_loop(const struct dibs__wait_queue *w)
{
    return &w->user->facts(w).c->loop;
}

/* ---- its care ---------------------------------------------------------- */

static void look_posted(struct dibs__task *t);
static void look_timed(struct dibs__timer *t);

static void channel_said(struct dibs__care *care, enum dibs__ear on, char what);

bool dibs__wait_queue_activate(struct dibs__wait_queue *w)
{
    dibs__assert_held(w->mu);
    if (w->care)
        return true;
    struct dibs__care *care = w->care = dibs__care_new(w);
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
static void drop_care(struct dibs__wait_queue *w)
{
    struct dibs__care *idle = NULL;

    dibs__lock(w->mu);
    struct dibs__care *care = w->care;
    if (!care->awake && !care->posted && !w->behind &&
        dibs__list_empty(&w->waiters) && dibs__turn_forgets(&care->turn)) {
        idle = care;
        w->care = NULL;
    }
    dibs__unlock(w->mu);
    dibs__free(idle);
}

void dibs__wait_queue_init(struct dibs__wait_queue *w,
                           const struct dibs__wait_queue_ops *user,
                           dibs__mutex *mu, enum dibs__retry_policy asks)
{
    w->user = user;
    w->mu = mu;
    w->asks = (unsigned char)asks;
    dibs__list_init(&w->waiters);
}

void dibs__wait_queue_clear(struct dibs__wait_queue *w)
{
    dibs__free(w->care);
}

/* ---- having io look ---------------------------------------------------- */

/* The line is ready. */
static void wake_io(struct dibs__wait_queue *w) REQUIRES(*w->mu)
{
    struct dibs__care *care = w->care;

    if (!care->awake) {
        care->awake = true;
        w->user->ref(w);
    }
    if (!care->posted) {
        care->posted = true;
        w->user->ref(w);
        dibs__loop_post(waiters_loop(w), &care->post);
    }
}

/* The last call has left: io stops looking. If it goes on for some seconds
 * anyway, and the server need not know, no thread is woken. */
static void wake_if_empty(struct dibs__wait_queue *w) REQUIRES(*w->mu)
{
    if (w->care && w->care->awake && !w->behind &&
        dibs__list_empty(&w->waiters) && !dibs__turn_quiet(&w->care->turn))
        wake_io(w);
}

static bool some_pause(struct dibs__wait_queue *w) REQUIRES(*w->mu)
{
    if (!w->care)
        return false;
    for (struct dibs__list *l = w->waiters.next; l != &w->waiters; l = l->next)
        if (waiter_of(l)->state == WAITER_PARKED)
            return true;
    return false;
}

void dibs__wait_queue_wake_head(struct dibs__wait_queue *w)
{
    dibs__assert_held(w->mu);
    w->try_now = true;
    if (w->asks != RETRY_EACH && some_pause(w))
        wake_io(w);
}

void dibs__wait_queue_wake_all(struct dibs__wait_queue *w)
{
    dibs__assert_held(w->mu);
    if (!some_pause(w))
        return;
    w->care->all_ask = true;
    wake_io(w);
}

void dibs__wait_queue_cancel(struct dibs__wait_queue *w,
                             struct dibs__waiter *wt)
{
    dibs__assert_held(w->mu);
    wt->canceled = true;
    if (!w->care)
        return; /* it asks, and will not wait */
    w->care->canceled = true;
    wake_io(w);
}

bool dibs__wait_queue_close(struct dibs__wait_queue *w)
{
    dibs__assert_held(w->mu);
    bool empty = dibs__list_empty(&w->waiters);
    if (w->care && (!empty || w->care->awake)) {
        wake_io(w);
        return true;
    }
    return !empty;
}

/* ---- joining and leaving ----------------------------------------------- */

void dibs__wait_queue_join(struct dibs__wait_queue *w, struct dibs__waiter *wt,
                           bool look)
{
    struct dibs__care *care = w->care;
    bool first = dibs__list_empty(&w->waiters);

    dibs__assert_held(w->mu);
    if (first) /* what happened before does not matter now, but one that stands
                  back has yet to ask, also if that moment is over just now */
        w->try_now = look;
    wt->state = WAITER_PARKED;
    wt->refused_at = 0;
    dibs__list_add(&w->waiters, &wt->link);
    if (!care) {
        assert(!look);
        return;
    }
    if (first)
        care->next_try = dibs__now_ms() + IDLE_LOOK_MS;
    if (first && !w->behind)
        care->first_deadline = INT64_MAX;
    dibs__care_deadline(care, wt->deadline);
    if (wt->canceled) /* before it came here */
        dibs__wait_queue_cancel(w, wt);
    /* Before the first, io may have looked after a call that is behind
     * another one, and pause for as long as that one may wait. */
    if (look && (first || !care->awake || wt->deadline < care->looks_at))
        wake_io(w);
    if (look && dibs__pass_joined(w, wt)) /* it asks if the head has to wait */
        dibs__wait_queue_wake_head(w);
}

void dibs__wait_queue_leave(struct dibs__wait_queue *w, struct dibs__waiter *wt)
{
    dibs__assert_held(w->mu);
    dibs__list_del(&wt->link);
    wt->state = WAITER_IDLE;
    wake_if_empty(w);
}

void dibs__wait_queue_block_on(struct dibs__wait_queue *w,
                               struct dibs__list *behind,
                               struct dibs__waiter *wt)
{
    dibs__assert_held(w->mu);
    bool first = w->behind++ == 0 && dibs__list_empty(&w->waiters);
    wt->state = WAITER_BLOCKED;
    dibs__list_add(behind, &wt->link);
    if (!dibs__wait_queue_activate(w))
        return;
    if (first)
        w->care->first_deadline = INT64_MAX;
    dibs__care_deadline(w->care, wt->deadline);
    if (wt->canceled)
        dibs__wait_queue_cancel(w, wt);
    else if (wt->deadline < INT64_MAX &&
             (!w->care->awake || wt->deadline < w->care->looks_at))
        wake_io(w);
}

void dibs__wait_queue_unblock(struct dibs__wait_queue *w,
                              struct dibs__list *behind, struct dibs__list *out)
{
    dibs__assert_held(w->mu);
    for (struct dibs__list *l = behind->next; l != behind; l = l->next) {
        waiter_of(l)->state = WAITER_IDLE;
        w->behind--;
    }
    wake_if_empty(w);
    dibs__list_move(out, behind);
}

/* ---- who asks ---------------------------------------------------------- */

/* May the head ask now? If not, *again is when to look again. */
static bool head_turn(struct dibs__wait_queue *w, int64_t now,
                      int64_t held_until, int64_t *again) REQUIRES(*w->mu)
{
    struct dibs__waiter *head = waiter_of(w->waiters.next);

    *again = now + IDLE_LOOK_MS;
    if (w->asks == RETRY_EACH || head->state != WAITER_PARKED)
        return false;
    if (held_until && now < w->care->next_try)
        *again = dibs__min(held_until, w->care->next_try);
    else if (now < w->yield_until)
        *again = w->yield_until;
    else if (!w->try_now && now < w->care->next_try)
        *again = w->care->next_try;
    else if (!w->user->may_ask(w, head))
        *again = now + AFTER_MS; /* another call of the same owner asks */
    else
        return true;
    return false;
}

/* Those that ask now, chained by next. */
static struct dibs__waiter *pick_asking(struct dibs__wait_queue *w, int64_t now,
                                        int64_t held_until, int64_t *again)
    REQUIRES(*w->mu)
{
    struct dibs__care *care = w->care;
    struct dibs__waiter *first = NULL, **end = &first;
    bool all = care->all_ask, unheard = now >= care->again_at;
    int64_t below = care->below;

    care->all_ask = false;
    care->below = 0;
    if (unheard)
        care->again_at = INT64_MAX;
    for (struct dibs__list *l = w->waiters.next;
         (all || unheard) && l != &w->waiters; l = l->next) {
        struct dibs__waiter *wt = waiter_of(l);
        if (wt->state != WAITER_PARKED || !(all || wt->unheard))
            continue;
        if (w->user->may_ask(w, wt)) {
            *end = wt;
            end = &wt->next;
        } else if (wt->unheard) { /* another call of the same owner asks */
            care->again_at = now + AFTER_MS;
        }
    }
    if (head_turn(w, now, held_until, again)) {
        w->try_now = false;
        *end = waiter_of(w->waiters.next);
        end = &(*end)->next;
    } else if ((*end = dibs__pass_pick(w, below))) {
        end = &(*end)->next;
    }
    *end = NULL;
    return first;
}

/* ---- channels ---------------------------------------------------------- */

static void look_at_line(struct dibs__care *care);

static void act_on(struct dibs__wait_queue *w, enum dibs__heard heard)
    REQUIRES(*w->mu)
{
    if (heard == HEARD_LATER)
        wake_io(w);
    if (heard == HEARD_CALL)
        w->yield_until = 0;
    w->try_now |= heard == HEARD_RELEASE || heard == HEARD_CALL;
}

static enum dibs__heard line_heard(struct dibs__wait_queue *w, char what)
    REQUIRES(*w->mu)
{
    struct dibs__turn *t = &w->care->turn;
    enum dibs__heard heard =
        dibs__turn_line_said(t, what, dibs__care_wants_own(w->care));

    /* Before it listened for others, a release may have called nobody. */
    t->foreign |= !what && dibs__list_empty(&w->waiters) &&
                  dibs__now_ms() < t->duty_until;
    return heard;
}

static void channel_said(struct dibs__care *care, enum dibs__ear on, char what)
{
    struct dibs__wait_queue *w = care->w;

    dibs__lock(w->mu);
    enum dibs__heard heard =
        on == EAR_LINE
            ? line_heard(w, what)
            : dibs__turn_own_said(&care->turn, what, dibs__care_hears_own(care),
                                  dibs__now_ms());
    act_on(w, heard);
    dibs__unlock(w->mu);
    if (on == EAR_OWN || heard == HEARD_RELEASE)
        look_at_line(care);
}

/* To which channels it listens from now on. */
static unsigned wait_listens(struct dibs__wait_queue *w, int64_t now, bool held,
                             bool asks) REQUIRES(*w->mu)
{
    bool waits = !dibs__list_empty(&w->waiters);

    /* One that asks may get in, and then need not listen. */
    if (!w->care->turn.listens &&
        (!waits || held || asks || now < w->yield_until ||
         w->asks == RETRY_EACH || waiter_of(w->waiters.next)->polls))
        return 0;
    return dibs__turn_needs(&w->care->turn, now, waits || w->behind);
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
static void look_idle(struct dibs__wait_queue *w, int64_t now, struct look *out)
    REQUIRES(*w->mu)
{
    struct dibs__turn *t = &w->care->turn;
    dibs_client *c = w->user->facts(w).c;
    bool before = t->linger_until != 0;
    bool room = before || c->lingering < LINGER_MAX;

    out->tell = dibs__turn_over(t);
    if (w->behind) {
        /* They may wait here yet. */
    } else if (!wait_is_closing(w) && now < dibs__turn_linger(t, now, room)) {
        c->lingering += !before;
        out->at = dibs__min(out->at, dibs__turn_next(t, now));
    } else {
        out->done = true;
        c->lingering -= dibs__turn_unlinger(t);
        out->deaf = dibs__turn_end(t, now);
        out->tell |= out->deaf;
    }
    t->leaving += out->tell;
}

static void look_around(struct dibs__wait_queue *w, int64_t now,
                        struct look *out) REQUIRES(*w->mu)
{
    struct dibs__care *care = w->care;
    int64_t held = 0;

    out->at = care->first_deadline;
    if (dibs__list_empty(&w->waiters)) {
        look_idle(w, now, out);
    } else {
        held = w->user->held_until ? w->user->held_until(w, now) : 0;
        w->user->facts(w).c->lingering -= dibs__turn_unlinger(&care->turn);
        if (held) /* what others did before does not matter */
            care->turn.foreign = false;
        w->try_now |= care->turn.foreign;
        out->asking = pick_asking(w, now, held, &out->at);
        if (out->asking) /* also by a question that could not say so */
            care->turn.foreign = false;
        out->at = dibs__min(out->at, care->first_deadline);
        out->at = dibs__min(out->at, care->again_at);
    }
    if (!out->done)
        out->listens = wait_listens(w, now, held != 0, out->asking != NULL);
}

/* care may be gone then. */
static void look_at_line(struct dibs__care *care)
{
    struct dibs__wait_queue *w = care->w;
    int64_t now = dibs__now_ms();
    struct look found = {.done = false};

    dibs__lock(w->mu);
    dibs__wait_queue_collect_expired(w, now, &found.swept);
    care->turn.hears = dibs__care_hears_own(care);
    look_around(w, now, &found);
    care->turn.listens = (unsigned char)found.listens;
    care->looks_at = found.at;
    bool was_awake = care->awake;
    care->awake = !found.done;
    if (care->awake && !was_awake)
        w->user->ref(w);
    dibs__unlock(w->mu);
    dibs__wait_queue_end(w, &found.swept);
    for (struct dibs__waiter *at = found.asking, *next; at; at = next) {
        next = at->next; /* it may be gone then */
        w->user->ask(at);
    }
    if (found.tell)
        w->user->tell_left(w, found.deaf);
    dibs__care_listen(care, found.listens);
    if (!found.done) {
        dibs__timer_set(waiters_loop(w), &care->timer, found.at);
        return;
    }
    dibs__timer_stop(waiters_loop(w), &care->timer);
    drop_care(w);
    if (was_awake)
        w->user->unref(w);
}

/* One that came meanwhile did not register. If none did, io looks once more, so
 * that the care of the line can go. */
void dibs__wait_queue_deregistered(struct dibs__wait_queue *w)
{
    dibs__lock(w->mu);
    if (--w->care->turn.leaving == 0) {
        dibs__wait_queue_wake_head(w);
        if (!w->care->awake)
            wake_io(w);
    }
    dibs__unlock(w->mu);
}

static void look_posted(struct dibs__task *t)
{
    struct dibs__care *care = DIBS_OF(t, struct dibs__care, post);
    struct dibs__wait_queue *w = care->w;

    dibs__lock(w->mu);
    care->posted = false;
    dibs__unlock(w->mu);
    look_at_line(care);
    w->user->unref(w);
}

static void look_timed(struct dibs__timer *t)
{
    look_at_line(DIBS_OF(t, struct dibs__care, timer));
}

/* ---- questions and answers --------------------------------------------- */

bool dibs__wait_queue_park(struct dibs__wait_queue *w, struct dibs__waiter *wt,
                           int64_t pause_ms, int64_t asked_ms)
{
    dibs__assert_held(w->mu);
    if (!dibs__wait_queue_activate(w))
        return false;
    struct dibs__care *care = w->care;
    wt->state = WAITER_PARKED;
    /* Its time may have passed while it was being answered. */
    dibs__care_deadline(care, wt->deadline);
    if (w->asks != RETRY_EACH) {
        const struct dibs__waiter *head = waiter_of(w->waiters.next);
        int64_t then = dibs__now_ms() + pause_ms;
        if (wt == head || !head->polls) /* one that polls goes on as it did */
            care->next_try = then;
        wt->unheard = asked_ms == 0;
        if (wt->unheard)
            care->again_at = dibs__min(care->again_at, then);
        else
            dibs__pass_refused(w, wt);
        wake_io(w);
        return true;
    }
    if (!care->awake || care->canceled || wt->deadline < care->looks_at ||
        wait_is_closing(w))
        wake_io(w);
    return dibs__place_stay(w, wt, pause_ms, asked_ms);
}

/* Without care its channel is not ready. */
enum dibs__how dibs__wait_queue_registration(struct dibs__wait_queue *w)
{
    dibs__assert_held(w->mu);
    return w->care ? dibs__turn_how(&w->care->turn) : HOW_PLAIN;
}

void dibs__wait_queue_replied(struct dibs__wait_queue *w, enum dibs__how how,
                              enum dibs__told told, int64_t now)
{
    dibs__assert_held(w->mu);
    if (how != HOW_PLAIN) /* it waits still, so there is care */
        dibs__turn_answered(&w->care->turn, how, told, now);
}

bool dibs__wait_queue_is_passive_listener(const struct dibs__wait_queue *w,
                                          int64_t now)
{
    return w->care && (w->care->turn.listens & EAR_LINE) &&
           now >= w->care->turn.duty_until;
}
