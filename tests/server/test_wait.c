/* SPDX-License-Identifier: MIT
 *
 * test_wait.c - waiting for a lock that somebody has: for how long, who is
 * next, what wakes a waiter, and how it is called off.
 *
 * That nobody listens to anything afterwards is checked after every test.
 */
#include "server/kit.h"

#include "support/proxy.h"

#define CHANNEL  "redisson_lock__channel:{l}"
#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

/* The lock is somebody's whom we do not know, for so long. */
static void taken_by_stranger(int64_t ms)
{
    ts_ok(srv, "HSET l %s 1", STRANGER);
    ts_ok(srv, "PEXPIRE l %lld", (long long)ms);
}

/* ---- limits ------------------------------------------------------------ */

static void test_wait_limit(void **state)
{
    static const int64_t limits[] = {1, 30, 300};
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    taken_by_stranger(600000);
    for (size_t i = 0; i < COUNT(limits); i++) {
        WANT(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = limits[i])),
             DIBS_ERR_TIMEOUT);
        assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
        WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
        TS_WAIT(ts_waiting(srv, "l") == 0);
    }
    char *count = ts_hget(srv, "l", STRANGER);
    assert_string_equal(count, "1");
    free(count);
    ts_ok(srv, "DEL l");
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 1)));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* The same when the one who has it is of the same client. */
static void test_wait_limit_behind_own(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner other = dibs_owner_new(c);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    for (int64_t limit = 1; limit < 200; limit *= 4)
        WANT(dibs_lock_acquire(
                 l, DIBS_LOCK_OPTS(.wait_ms = limit, .owner = other)),
             DIBS_ERR_TIMEOUT);
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 1, .owner = other)));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = other)));
    dibs_lock_free(l);
    kit_close(c);
}

/* The limit passes while an attempt is under way: the answer is waited for, and
 * then it is over anyway. */
static void test_wait_limit_during_attempt(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv);
    dibs_client *c = kit_open_at(ts_proxy_url(px), NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct told t = {0};

    (void)state;
    taken_by_stranger(600000);
    /* The first attempt, then the one after subscribing, then a third. */
    int held = ts_proxy_rule(px, &(struct ts_rule){.action = TS_HOLD_REPLY,
                                                   .match = "EVAL*",
                                                   .contains = "l",
                                                   .skip = 2});
    FINE(dibs_lock_acquire_async(
        l, DIBS_LOCK_OPTS(.wait_ms = 1000, .owner = owner), kit_tell, &t));
    TS_WAIT(ts_numsub(srv, CHANNEL) == 1 || atomic_load(&t.times) > 0);
    TS_WAIT(ts_rule_hits(px, held) > 0 || atomic_load(&t.times) > 0 ||
            ts_int(srv, "PUBLISH %s 0", CHANNEL) < 0);
    int64_t over = ts_now_ms() + 1100;
    TS_WAIT(ts_now_ms() > over);
    ts_proxy_unrule(px, 0);
    ts_proxy_release(px);
    WANT(kit_answer(&t), DIBS_ERR_TIMEOUT);
    dibs_lock_free(l);
    kit_close(c);
    ts_proxy_stop(px);
    ts_ok(srv, "DEL l");
}

/* ---- what wakes -------------------------------------------------------- */

/* Twenty times over, each time by the message: without it, each would take
 * the seconds after which a waiter looks by itself. */
static void test_wait_woken_by_release(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_lock *mine = kit_lock(c, "l");
    dibs_lock *yours = kit_lock(d, "l");
    int64_t start = ts_now_ms();

    (void)state;
    for (int i = 0; i < 20; i++) {
        struct told t = {0};
        dibs_owner waiter = dibs_owner_new(d);

        FINE(dibs_lock_acquire(mine, DIBS_LOCK_OPTS(.lease_ms = 600000)));
        FINE(dibs_lock_acquire_async(yours, DIBS_LOCK_OPTS(.owner = waiter),
                                     kit_tell, &t));
        assert_true(ts_wait_numsub(srv, CHANNEL, 1));
        TS_WAIT(ts_waiting(srv, "l") == 1);
        FINE(dibs_lock_release(mine, NULL));
        FINE(kit_answer(&t));
        assert_int_equal(kit_count(yours, "l", waiter), 1);
        FINE(dibs_lock_release(yours, DIBS_LOCK_OPTS(.owner = waiter)));
        TS_WAIT(ts_waiting(srv, "l") == 0);
    }
    assert_true(ts_now_ms() - start < TS_SOON);
    dibs_lock_free(mine);
    dibs_lock_free(yours);
    kit_close(c);
    kit_close(d);
}

static void test_wait_woken_by_force(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *breaker = kit_lock(d, "l");
    struct told t = {0};

    (void)state;
    taken_by_stranger(600000);
    FINE(dibs_lock_acquire_async(l, NULL, kit_tell, &t));
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    FINE(dibs_lock_force_release(breaker, NULL));
    FINE(kit_answer(&t));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    dibs_lock_free(breaker);
    kit_close(c);
    kit_close(d);
}

static void test_wait_woken_by_expiry(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    taken_by_stranger(300);
    FINE(dibs_lock_acquire(l, NULL));
    assert_int_equal(ts_hlen(srv, "l"), 1);
    assert_int_equal(kit_count(l, "l", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* A holder of the same client whose lease ends: there will be no release. */
static void test_wait_woken_by_expiry_of_own(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner other = dibs_owner_new(c);

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_short())));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = other)));
    assert_int_equal(dibs_lock_state(l, 0), DIBS_LOST);
    assert_int_equal(kit_count(l, "l", other), 1);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    assert_int_equal(kit_count(l, "l", other), 1);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = other)));
    dibs_lock_free(l);
    kit_close(c);
}

/* Gone without a message, and it had no end: found by looking. */
static void test_wait_finds_out(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct told t = {0};

    (void)state;
    ts_ok(srv, "HSET l %s 1", STRANGER);
    FINE(dibs_lock_acquire_async(l, NULL, kit_tell, &t));
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    ts_ok(srv, "DEL l");
    FINE(kit_answer(&t));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* A message is a hint: what it says is not believed. */
static void test_wait_woken_in_vain(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct told t = {0};

    (void)state;
    taken_by_stranger(600000);
    FINE(dibs_lock_acquire_async(l, NULL, kit_tell, &t));
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    for (int i = 0; i < 50; i++)
        ts_ok(srv, "PUBLISH %s %s", CHANNEL, i % 2 ? "0" : "rubbish");
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    FINE(dibs_lock_info_get(l, &info));
    assert_string_equal(info.owner, STRANGER);
    assert_int_equal(atomic_load(&t.times), 0);
    ts_ok(srv, "DEL l");
    ts_ok(srv, "PUBLISH %s 0", CHANNEL);
    FINE(kit_answer(&t));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- a line of waiters ------------------------------------------------- */

enum { LINE = 50 };

static atomic_int served;

struct waiter {
    dibs_lock *l;
    dibs_owner owner;
    struct told got, gave;
    int place;   /* in the order of grants */
    bool gently; /* gives back at once */
};

static void granted(dibs_err err, void *arg)
{
    struct waiter *w = arg;

    if (err == DIBS_OK) {
        w->place = atomic_fetch_add(&served, 1);
        if (w->gently) {
            err = dibs_lock_release_async(
                w->l, DIBS_LOCK_OPTS(.owner = w->owner), kit_tell, &w->gave);
        }
    }
    kit_tell(err, &w->got);
}

/* They line up, in the order of their numbers. */
static void line_up(struct waiter *w, size_t n, dibs_client *c, dibs_lock *l)
{
    atomic_store(&served, 0);
    memset(w, 0, n * sizeof *w);
    for (size_t i = 0; i < n; i++) {
        w[i].l = l;
        w[i].owner = dibs_owner_new(c);
        w[i].place = -1;
        w[i].gently = true;
        FINE(dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = w[i].owner),
                                     granted, &w[i]));
    }
}

static void test_wait_first_come_first_served(void **state)
{
    static struct waiter w[LINE];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    line_up(w, LINE, c, l);
    assert_int_equal(atomic_load(&served), 0);
    FINE(dibs_lock_release(l, NULL));
    for (int i = 0; i < LINE; i++) {
        FINE(kit_answer(&w[i].got));
        FINE(kit_answer(&w[i].gave));
        assert_int_equal(w[i].place, i);
    }
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

/* Also behind a stranger: one subscription for all of them. */
static void test_wait_line_behind_stranger(void **state)
{
    static struct waiter w[LINE];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    taken_by_stranger(600000);
    line_up(w, LINE, c, l);
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    /* The lock's, and the one on which this client is called. */
    assert_int_equal(ts_nchannels(srv), 2);
    ts_ok(srv, "DEL l");
    ts_ok(srv, "PUBLISH %s 0", CHANNEL);
    for (int i = 0; i < LINE; i++) {
        FINE(kit_answer(&w[i].got));
        FINE(kit_answer(&w[i].gave));
        assert_int_equal(w[i].place, i);
    }
    dibs_lock_free(l);
    kit_close(c);
}

/* Within a client the lock is handed over: one command each, nobody is told.
 * Now and then it is freed for real, so a few more are allowed. */
static void test_wait_handover_costs(void **state)
{
    static struct waiter w[LINE];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    line_up(w, LINE, c, l);
    ts_reset_stats(srv);
    int64_t begun = ts_now_ms();
    FINE(dibs_lock_release(l, NULL));
    for (int i = 0; i < LINE; i++)
        FINE(kit_answer(&w[i].gave));
    long long freed =
        LINE / 4 + (ts_now_ms() - begun) / 200; /* or more often */
    long long commands = ts_command_calls(srv, "evalsha");
    long long messages = ts_command_calls(srv, "publish");
    if (commands < LINE + 1 || commands > LINE + 2 * freed)
        fail_msg("%lld commands for %d hand-overs", commands, LINE);
    if (messages > freed)
        fail_msg("%lld messages for %d hand-overs", messages, LINE);
    dibs_lock_free(l);
    kit_close(c);
}

/* One whose time is over steps out; those behind it keep their order. */
static void test_wait_impatient_in_line(void **state)
{
    static struct waiter w[3];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    line_up(w, 1, c, l);
    WANT(dibs_lock_acquire(
             l, DIBS_LOCK_OPTS(.wait_ms = 20, .owner = dibs_owner_new(c))),
         DIBS_ERR_TIMEOUT);
    line_up(w + 1, 2, c, l);
    WANT(dibs_lock_acquire(
             l, DIBS_LOCK_OPTS(.wait_ms = 20, .owner = dibs_owner_new(c))),
         DIBS_ERR_TIMEOUT);
    FINE(dibs_lock_release(l, NULL));
    for (int i = 0; i < 3; i++) {
        FINE(kit_answer(&w[i].gave));
        assert_int_equal(w[i].place, i);
    }
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- turns ------------------------------------------------------------- */

enum { GREEDY = 8, TURNS = 5 };

static atomic_bool enough;
static atomic_int at_it;   /* greedy ones that have not stopped */
static atomic_int trouble; /* calls that failed */

struct greedy {
    dibs_client *c;
    dibs_lock *l;
    dibs_owner owner;
};

static void gave_back(dibs_err err, void *arg)
{
    (void)arg;
    atomic_fetch_add(&trouble, err != DIBS_OK);
}

/* It lines up again before it gives back, so the line is never empty. */
static void grab(dibs_err err, void *arg)
{
    struct greedy *g = arg;
    dibs_owner mine = g->owner;
    bool more = err == DIBS_OK && !atomic_load(&enough);

    if (more) {
        g->owner = dibs_owner_new(g->c);
        err = dibs_lock_acquire_async(g->l, DIBS_LOCK_OPTS(.owner = g->owner),
                                      grab, g);
    }
    if (err == DIBS_OK)
        err = dibs_lock_release_async(g->l, DIBS_LOCK_OPTS(.owner = mine),
                                      gave_back, NULL);
    atomic_fetch_add(&trouble, err != DIBS_OK);
    atomic_fetch_sub(&at_it, !more);
}

/* A client that never leaves the lock alone still lets others in. */
static void test_wait_others_have_their_turn(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_lock *theirs = kit_lock(c, "l");
    dibs_lock *l = kit_lock(d, "l");
    struct greedy greedy[GREEDY];

    (void)state;
    atomic_store(&enough, false);
    atomic_store(&at_it, GREEDY);
    atomic_store(&trouble, 0);
    for (int i = 0; i < GREEDY; i++) {
        greedy[i] = (struct greedy){c, theirs, dibs_owner_new(c)};
        FINE(dibs_lock_acquire_async(theirs,
                                     DIBS_LOCK_OPTS(.owner = greedy[i].owner),
                                     grab, &greedy[i]));
    }
    dibs_err err = DIBS_OK;
    for (int i = 0; i < TURNS && err == DIBS_OK; i++) {
        err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON / 2));
        if (err == DIBS_OK)
            err = dibs_lock_release(l, NULL);
    }
    atomic_store(&enough, true);
    TS_WAIT(atomic_load(&at_it) == 0);
    assert_true(ts_wait_exists(srv, "l", false));
    FINE(err);
    dibs_lock_free(l);
    dibs_lock_free(theirs);
    kit_close(c);
    kit_close(d);
    assert_int_equal(atomic_load(&trouble), 0);
}

/* ---- calling off ------------------------------------------------------- */

static void test_wait_cancel(void **state)
{
    static struct waiter w[3];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    taken_by_stranger(600000);
    WANT(dibs_lock_cancel(l, 0), DIBS_ERR_NOT_OWNER);
    WANT(dibs_lock_cancel(l, dibs_owner_new(c)), DIBS_ERR_NOT_OWNER);
    line_up(w, 3, c, l);
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    FINE(dibs_lock_cancel(l, w[1].owner)); /* in the middle of the line */
    WANT(kit_answer(&w[1].got), DIBS_ERR_CANCELED);
    WANT(dibs_lock_cancel(l, w[1].owner), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_cancel(l, w[0].owner)); /* its head */
    WANT(kit_answer(&w[0].got), DIBS_ERR_CANCELED);
    ts_ok(srv, "DEL l");
    ts_ok(srv, "PUBLISH %s 0", CHANNEL);
    FINE(kit_answer(&w[2].got));
    FINE(kit_answer(&w[2].gave));
    WANT(dibs_lock_cancel(l, w[2].owner), DIBS_ERR_NOT_OWNER);
    dibs_lock_free(l);
    kit_close(c);
}

/* The last one called off: nobody listens any more. */
static void test_wait_cancel_all(void **state)
{
    static struct waiter w[LINE];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    taken_by_stranger(600000);
    line_up(w, LINE, c, l);
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    for (int i = 0; i < LINE; i++)
        FINE(dibs_lock_cancel(l, w[i].owner));
    for (int i = 0; i < LINE; i++)
        WANT(kit_answer(&w[i].got), DIBS_ERR_CANCELED);
    TS_WAIT(ts_waiting(srv, "l") == 0);
    ts_ok(srv, "DEL l");
    dibs_lock_free(l);
    kit_close(c);
}

/* A thread that waits is called off by another. */
static void test_wait_cancel_sync(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    taken_by_stranger(600000);
    for (int i = 0; i < 10; i++) {
        dibs_owner owner = dibs_owner_new(c);
        struct call call;

        kit_call_start(&call, l, DIBS_LOCK_OPTS(.owner = owner),
                       dibs_lock_acquire);
        TS_WAIT(dibs_lock_cancel(l, owner) == DIBS_OK);
        WANT(kit_call_end(&call), DIBS_ERR_CANCELED);
    }
    ts_ok(srv, "DEL l");
    dibs_lock_free(l);
    kit_close(c);
}

/* Canceled behind a holder of the same client, who then goes on. */
static void test_wait_cancel_behind_own(void **state)
{
    static struct waiter w[2];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    line_up(w, 2, c, l);
    FINE(dibs_lock_cancel(l, w[0].owner));
    WANT(kit_answer(&w[0].got), DIBS_ERR_CANCELED);
    FINE(dibs_lock_release(l, NULL));
    FINE(kit_answer(&w[1].gave));
    WANT(dibs_lock_cancel(l, 0), DIBS_ERR_NOT_OWNER);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- a handle that goes ------------------------------------------------ */

/* Freed by another thread while somebody waits on it: the wait goes on. */
static void test_wait_handle_freed(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct call waits;

    (void)state;
    ts_ok(srv, "HSET l 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7 1");
    ts_ok(srv, "PEXPIRE l 600000");
    kit_call_start(&waits, l, NULL, dibs_lock_acquire);
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{l}", 1));
    dibs_lock_free(l);
    ts_ok(srv, "DEL l");
    ts_ok(srv, "PUBLISH redisson_lock__channel:{l} 0");
    FINE(kit_call_end(&waits));
    assert_true(ts_exists(srv, "l"));
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_wait_limit),
        KIT_TEST(test_wait_limit_behind_own),
        KIT_TEST(test_wait_limit_during_attempt),
        KIT_TEST(test_wait_woken_by_release),
        KIT_TEST(test_wait_woken_by_force),
        KIT_TEST(test_wait_woken_by_expiry),
        KIT_TEST(test_wait_woken_by_expiry_of_own),
        KIT_TEST(test_wait_finds_out),
        KIT_TEST(test_wait_woken_in_vain),
        KIT_TEST(test_wait_first_come_first_served),
        KIT_TEST(test_wait_line_behind_stranger),
        KIT_TEST(test_wait_handover_costs),
        KIT_TEST(test_wait_impatient_in_line),
        KIT_TEST(test_wait_others_have_their_turn),
        KIT_TEST(test_wait_cancel),
        KIT_TEST(test_wait_cancel_all),
        KIT_TEST(test_wait_cancel_sync),
        KIT_TEST(test_wait_cancel_behind_own),
        KIT_TEST(test_wait_handle_freed),
    };
    return KIT_RUN("server.wait", tests);
}
