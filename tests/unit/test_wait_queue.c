/* SPDX-License-Identifier: MIT
 *
 * test_wait_queue.c - a waiter of the wait queue as a table: from a state, what
 * a message, a timer, a reply, a cancel or a close does.
 *
 * Clock, inbox and timer of the loop are faked (linked with --wrap): an event
 * is applied, then io looks at what was posted. put() and apply() alone know
 * the names of the library.
 */
#include "lock/wait/care.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAUSE_MS 500
#define LIMIT_MS 900

enum state { OUT, BEHIND, PARKED, ASKING, PROMISED };
/* clang-format off */
enum event {
    JOIN, WAIT_BEHIND, CALL_ENDS, /* another call of its owner is in flight */
    WAKE, WAKE_ALL,       /* a message; also: more than one may get in */
    WAKE_YIELD, WAKE_HELD, /* but others come first; a call here has the lock */
    TIMER, TIMER_EARLY,   /* io looks when the pause is over; 1 ms before */
    REPLY_BUSY, REPLY_LOST, REPLY_GRANTED, /* lost: then the pause passes */
    DEADLINE, CANCEL, CLOSE
};
/* clang-format on */
enum { NONE, ACQUIRE, TIMEOUT, CANCELED, CLOSED };

static const struct row {
    const char *name;
    enum state from;
    enum event event;
    enum state to;
    int done; /* an acquire is sent, or the call ends */
} rows[] = {
    {"the first asks at once", OUT, JOIN, ASKING, ACQUIRE},
    {"behind another call: no acquire", OUT, WAIT_BEHIND, BEHIND, NONE},
    {"behind: that call is over", BEHIND, CALL_ENDS, OUT, NONE},
    {"behind: deadline", BEHIND, DEADLINE, OUT, TIMEOUT},
    {"behind: cancel", BEHIND, CANCEL, OUT, CANCELED},
    {"behind: close", BEHIND, CLOSE, OUT, CLOSED},
    {"parked: wake", PARKED, WAKE, ASKING, ACQUIRE},
    {"parked: all wake", PARKED, WAKE_ALL, ASKING, ACQUIRE},
    {"parked: pause over", PARKED, TIMER, ASKING, ACQUIRE},
    {"parked: pause not over", PARKED, TIMER_EARLY, PARKED, NONE},
    {"parked: wake, but yields", PARKED, WAKE_YIELD, PARKED, NONE},
    {"parked: wake, but held here", PARKED, WAKE_HELD, PARKED, NONE},
    {"parked: deadline", PARKED, DEADLINE, OUT, TIMEOUT},
    {"parked: cancel", PARKED, CANCEL, OUT, CANCELED},
    {"parked: close", PARKED, CLOSE, OUT, CLOSED},
    {"parked: its owner got in", PARKED, REPLY_GRANTED, OUT, NONE},
    {"asking: busy parks", ASKING, REPLY_BUSY, PARKED, NONE},
    {"asking: reply lost, asks again", ASKING, REPLY_LOST, ASKING, ACQUIRE},
    {"asking: granted", ASKING, REPLY_GRANTED, OUT, NONE},
    {"asking: a wake sends no second", ASKING, WAKE, ASKING, NONE},
    {"asking: deadline awaits the reply", ASKING, DEADLINE, ASKING, NONE},
    {"asking: cancel awaits the reply", ASKING, CANCEL, ASKING, NONE},
    {"asking: close awaits the reply", ASKING, CLOSE, ASKING, NONE},
    {"promised: a wake sends nothing", PROMISED, WAKE, PROMISED, NONE},
    {"promised: granted", PROMISED, REPLY_GRANTED, OUT, NONE},
    {"promised: deadline withdraws", PROMISED, DEADLINE, OUT, TIMEOUT},
    {"promised: cancel withdraws", PROMISED, CANCEL, OUT, CANCELED},
    {"promised: close withdraws", PROMISED, CLOSE, OUT, CLOSED},
};

static const enum dibs__waiter_state states[] = {
    WAITER_IDLE, WAITER_BLOCKED, WAITER_PARKED, WAITER_IN_FLIGHT,
    WAITER_HANDOFF_PENDING};

static struct {
    struct dibs__wait_queue w;
    struct dibs__waiter wt;
    dibs__mutex mu;
    struct dibs__list behind;
    dibs_client *c;
    struct dibs__task *posted;
    int64_t now, held_until;
    bool closing;
    int refs, done;
} q;

/* clang-format off */
int64_t __wrap_dibs__now_ms(void);
void __wrap_dibs__loop_post(struct dibs__loop *lp, struct dibs__task *t);
void __wrap_dibs__timer_set(void *lp, void *t, int64_t at);
void __wrap_dibs__timer_stop(void *lp, void *t);
int64_t __wrap_dibs__now_ms(void) { return q.now; }
void __wrap_dibs__loop_post(struct dibs__loop *lp, struct dibs__task *t)
{ (void)lp; q.posted = t; }
void __wrap_dibs__timer_set(void *lp, void *t, int64_t at)
{ (void)lp, (void)t, (void)at; }
void __wrap_dibs__timer_stop(void *lp, void *t) { (void)lp, (void)t; }
/* clang-format on */

/* ---- the user of the queue --------------------------------------------- */

static struct dibs__wait_queue_info facts(const struct dibs__wait_queue *queue)
{
    (void)queue;
    return (struct dibs__wait_queue_info){.client = q.c, .closing = q.closing};
}

static void listen_nowhere(const struct dibs__wait_queue *queue,
                           struct dibs__subscription *sub)
{
    (void)queue, (void)sub;
}

static bool may_ask(struct dibs__wait_queue *queue, struct dibs__waiter *waiter)
{
    (void)queue;
    waiter->state = WAITER_IN_FLIGHT;
    return true;
}

static void ask(struct dibs__waiter *waiter)
{
    (void)waiter;
    q.done = ACQUIRE;
}

static void end(struct dibs__waiter *waiter, dibs_err err)
{
    (void)waiter;
    q.done = err == DIBS_ERR_TIMEOUT    ? TIMEOUT
             : err == DIBS_ERR_CANCELED ? CANCELED
                                        : CLOSED;
}

/* clang-format off */
static void ref(struct dibs__wait_queue *queue) { (void)queue; q.refs++; }
static void unref(struct dibs__wait_queue *queue) { (void)queue; q.refs--; }
static int64_t held_until(struct dibs__wait_queue *queue, int64_t now)
{ (void)queue, (void)now; return q.held_until; }
static bool withdraw(struct dibs__wait_queue *queue, struct dibs__waiter *waiter,
                     struct dibs__list *resume)
{ (void)queue, (void)waiter, (void)resume; return true; }
/* clang-format on */

static void sweep_behind(struct dibs__wait_queue *queue, int64_t now,
                         struct dibs__expired_waiters *out)
{
    if (!dibs__list_empty(&q.behind))
        (void)dibs__wait_queue_expire_one(queue, &q.wt, now, false, out);
}

static const struct dibs__wait_queue_ops user = {.info = facts,
                                                 .subscribe = listen_nowhere,
                                                 .may_retry = may_ask,
                                                 .retry = ask,
                                                 .end = end,
                                                 .ref = ref,
                                                 .unref = unref,
                                                 .held_until = held_until,
                                                 .decline_handoff = withdraw,
                                                 .expire_blocked =
                                                     sweep_behind};

/* ---- events ------------------------------------------------------------ */

static void io_looks(void)
{
    for (struct dibs__task *t; (t = q.posted);) {
        q.posted = NULL;
        t->run(t);
    }
}

static void look_at(int64_t at)
{
    q.now = at;
    q.w.care->timer.fire(&q.w.care->timer);
}

static void apply(enum event e)
{
    struct dibs__list out;
    int64_t begin = q.now;

    dibs__list_init(&out);
    dibs__lock(&q.mu);
    switch (e) {
    case JOIN:
        assert_true(dibs__wait_queue_activate(&q.w));
        dibs__wait_queue_join(&q.w, &q.wt, true);
        break;
    case WAIT_BEHIND:
        dibs__wait_queue_block_on(&q.w, &q.behind, &q.wt);
        break;
    case CALL_ENDS:
        dibs__wait_queue_unblock(&q.w, &q.behind, &out);
        dibs__list_del(&q.wt.link);
        break;
    case WAKE:
    case WAKE_YIELD:
    case WAKE_HELD:
        q.w.backoff_until = e == WAKE_YIELD ? q.now + PAUSE_MS : 0;
        q.held_until = e == WAKE_HELD ? q.now + LIMIT_MS : 0;
        dibs__wait_queue_wake_head(&q.w);
        break;
    case WAKE_ALL:
        dibs__wait_queue_wake_all(&q.w);
        break;
    case REPLY_BUSY:
        assert_true(dibs__wait_queue_park(&q.w, &q.wt, PAUSE_MS, q.now));
        break;
    case REPLY_LOST:
        assert_true(dibs__wait_queue_park(&q.w, &q.wt, PAUSE_MS, 0));
        break;
    case REPLY_GRANTED:
        dibs__wait_queue_leave(&q.w, &q.wt);
        break;
    case CANCEL:
        dibs__wait_queue_cancel(&q.w, &q.wt);
        break;
    case CLOSE:
        q.closing = true;
        assert_true(dibs__wait_queue_close(&q.w));
        break;
    case TIMER:
    case TIMER_EARLY:
    case DEADLINE:
        break;
    }
    dibs__unlock(&q.mu);
    io_looks();
    if (e == WAKE) /* whatever made io look */
        look_at(begin);
    else if (e == TIMER || e == REPLY_LOST)
        look_at(begin + PAUSE_MS);
    else if (e == TIMER_EARLY)
        look_at(begin + PAUSE_MS - 1);
    else if (e == DEADLINE)
        look_at(begin + LIMIT_MS);
}

static void start(enum state from)
{
    memset(&q.w, 0, sizeof q.w);
    memset(&q.wt, 0, sizeof q.wt);
    q.refs = 0;
    q.closing = false;
    q.held_until = 0;
    q.now = 10000;
    q.wt.deadline = q.now + LIMIT_MS;
    dibs__list_init(&q.behind);
    dibs__wait_queue_init(&q.w, &user, &q.mu, RETRY_HEAD_ONLY);
    if (from == BEHIND)
        apply(WAIT_BEHIND);
    else if (from != OUT)
        apply(JOIN);
    if (from == PARKED || from == PROMISED)
        apply(REPLY_BUSY);
    if (from == PROMISED)
        q.wt.state = WAITER_HANDOFF_PENDING;
    q.done = NONE;
}

/* Whatever it waits for is over: nothing of the line is left. */
static bool ends_clean(void)
{
    if (q.wt.state == WAITER_BLOCKED)
        apply(CALL_ENDS);
    else if (q.wt.state != WAITER_IDLE)
        apply(REPLY_GRANTED);
    return q.refs == 0 && !q.w.care && !q.posted;
}

static void test_wait_queue_transitions(void **state)
{
    (void)state;
    dibs__mutex_init(&q.mu, RANK_ENTRY);
    q.c = calloc(1, sizeof *q.c);
    assert_non_null(q.c);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        start(rows[i].from);
        assert_int_equal(q.wt.state, states[rows[i].from]);
        apply(rows[i].event);
        if (q.wt.state != states[rows[i].to] || q.done != rows[i].done)
            fail_msg("%s: state %d, done %d", rows[i].name, q.wt.state, q.done);
        if (!ends_clean())
            fail_msg("%s: %d references left", rows[i].name, q.refs);
    }
    free(q.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_queue_transitions),
    };

    return cmocka_run_group_tests_name("unit.wait_queue", tests, NULL, NULL);
}
