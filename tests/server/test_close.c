/* SPDX-License-Identifier: MIT
 *
 * test_close.c - the end of a client: what it held is free, what it had is
 * gone, and the one that was in the middle of something is told.
 */
#include "server/kit.h"

#include "client/command/script.h"
#include "support/proxy.h"

#define CHANNEL  "redisson_lock__channel:{l}"
#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

static size_t threads_before, fds_before;

static void count_all(void)
{
    threads_before = ts_threads();
    fds_before = ts_fds();
}

static void nothing_left(void)
{
    TS_WAIT(ts_threads() <= threads_before);
    assert_int_equal(ts_fds(), fds_before);
}

/* ---- what is left ------------------------------------------------------ */

/* Locks held by threads and by owners, several times, with leases and
 * without, one of them waited for: all free, nothing left. */
static void test_close_releases(void **state)
{
    enum { LOCKS = 20 };
    dibs_lock *locks[LOCKS];

    (void)state;
    ts_nkeys(srv); /* so that the harness is connected */
    count_all();
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    struct told waits = {0};
    for (int i = 0; i < LOCKS; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        locks[i] = kit_lock(c, name);
        for (int k = 0; k <= i % 3; k++)
            FINE(dibs_lock_acquire(
                locks[i],
                DIBS_LOCK_OPTS(.owner = i % 2 ? (dibs_owner)(1000000 + i) : 0,
                               .lease_ms = i % 5 == 0 ? 600000 : 0)));
    }
    FINE(dibs_lock_acquire_async(locks[0],
                                 DIBS_LOCK_OPTS(.owner = dibs_owner_new(c)),
                                 kit_tell, &waits));
    assert_int_equal(ts_nkeys(srv), LOCKS);
    FINE(dibs_client_close(c, 0));
    assert_int_equal(ts_nkeys(srv), 0);
    WANT(kit_answer(&waits), DIBS_ERR_CLOSED);
    nothing_left();
    assert_true(ts_wait_clients(srv, kit_strange));
    for (int i = 0; i < LOCKS; i++) {
        assert_int_equal(dibs_lock_state(locks[i], 0), DIBS_NOT_HELD);
        dibs_lock_free(locks[i]);
    }
    kit_close(c);
}

/* Others hear that it is free. */
static void test_close_wakes_others(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *other = kit_lock(d, "l");
    struct told t = {0};

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 600000)));
    FINE(dibs_lock_acquire_async(other, NULL, kit_tell, &t));
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    dibs_lock_free(l);
    kit_close(c);
    FINE(kit_answer(&t));
    dibs_lock_free(other);
    kit_close(d);
}

static void test_close_again_and_again(void **state)
{
    (void)state;
    ts_nkeys(srv);
    count_all();
    for (int i = 0; i < 50; i++) {
        dibs_client *c = kit_open(
            DIBS_CLIENT_OPTS(.callbacks = i % 2 ? DIBS_CALLBACKS_DISPATCH
                                                : DIBS_CALLBACKS_THREAD));
        dibs_lock *l = kit_lock(c, "l");
        struct told t = {0};
        FINE(dibs_lock_acquire_async(l, NULL, kit_tell, &t));
        if (i % 3 == 0) {
            FINE(dibs_client_close(c, 0));
            FINE(dibs_client_close(c, 0)); /* twice is fine */
        }
        dibs_lock_free(l);
        kit_close(c);
        assert_int_equal(ts_nkeys(srv), 0);
    }
    nothing_left();
}

/* Opened without waiting, closed before anything could happen. */
static void test_close_at_once(void **state)
{
    (void)state;
    ts_nkeys(srv);
    count_all();
    for (int i = 0; i < 200; i++)
        kit_close(kit_open(DIBS_CLIENT_OPTS(.lazy = true)));
    for (int i = 0; i < 50; i++)
        kit_close(kit_open_at(i % 2 ? "unix:///nonexistent/dibs"
                                    : "redis://localhost:1",
                              DIBS_CLIENT_OPTS(.lazy = true)));
    nothing_left();
}

/* ---- after it ---------------------------------------------------------- */

static bool see(const char *name, size_t len, const dibs_lock_info *info,
                void *arg)
{
    (void)name, (void)len, (void)info, (void)arg;
    return true;
}

static void no_force(dibs_err err, bool was, void *arg)
{
    (void)was;
    kit_tell(err, arg);
}

static void no_info(dibs_err err, const dibs_lock_info *info, void *arg)
{
    (void)info;
    kit_tell(err, arg);
}

static void test_close_then_calls(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *none = NULL;
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    struct told t = {0};
    char text[DIBS_OWNER_MAX];

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_client_close(c, 0));
    FINE(dibs_client_close(c, 1));
    WANT(dibs_lock_new(c, "x", &none), DIBS_ERR_CLOSED);
    WANT(dibs_lock_new_bytes(c, "x", 1, &none), DIBS_ERR_CLOSED);
    assert_null(none);
    WANT(dibs_lock_acquire(l, NULL), DIBS_ERR_CLOSED);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_CLOSED);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_CLOSED);
    WANT(dibs_lock_force_release(l, NULL), DIBS_ERR_CLOSED);
    WANT(dibs_lock_force_release_owner(l, "x", NULL), DIBS_ERR_CLOSED);
    WANT(dibs_lock_cancel(l, 0), DIBS_ERR_CLOSED);
    WANT(dibs_lock_info_get(l, &info), DIBS_ERR_CLOSED);
    WANT(dibs_client_list(c, NULL, see, NULL), DIBS_ERR_CLOSED);
    WANT(dibs_lock_acquire_async(l, NULL, kit_tell, &t), DIBS_ERR_CLOSED);
    WANT(dibs_lock_try_async(l, NULL, kit_tell, &t), DIBS_ERR_CLOSED);
    WANT(dibs_lock_release_async(l, NULL, kit_tell, &t), DIBS_ERR_CLOSED);
    WANT(dibs_lock_force_release_async(l, no_force, &t), DIBS_ERR_CLOSED);
    WANT(dibs_lock_info_get_async(l, no_info, &t), DIBS_ERR_CLOSED);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_valid_ms(l, 0), 0);
    assert_int_equal(dibs_lock_holds(l, 0), 0);
    WANT(dibs_lock_owner_text(l, 0, text, sizeof text), DIBS_ERR_NOT_OWNER);
    assert_int_equal(strlen(dibs_client_id(c)), 36);
    assert_int_equal(dibs_client_dispatch(c), 0);
    kit_close(c);
    dibs_lock_free(l);
    assert_int_equal(atomic_load(&t.times), 0);
}

/* Handles live on when the client is gone. */
static void test_close_handles_outlive(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *a = kit_lock(c, "a");
    dibs_lock *b = kit_lock(c, "b");

    (void)state;
    FINE(dibs_lock_acquire(a, NULL));
    dibs_client_free(c); /* closes */
    kit_clients--;
    assert_int_equal(ts_nkeys(srv), 0);
    WANT(dibs_lock_acquire(a, NULL), DIBS_ERR_CLOSED);
    WANT(dibs_lock_release(a, NULL), DIBS_ERR_CLOSED);
    assert_int_equal(dibs_lock_state(a, 0), DIBS_NOT_HELD);
    dibs_lock_free(b);
    WANT(dibs_lock_try(a, NULL), DIBS_ERR_CLOSED);
    dibs_lock_free(a);
    dibs_lock_free(NULL);
    dibs_client_free(NULL);
}

struct misuse {
    dibs_client *c;
    dibs_err closed;
    struct told done;
};

static void close_inside(dibs_err err, void *arg)
{
    struct misuse *m = arg;

    m->closed = dibs_client_close(m->c, 0);
    dibs_client_free(m->c);
    kit_tell(err, &m->done);
}

/* A callback cannot end its client: nothing is done, and nothing is broken. */
static void test_close_inside_callback(void **state)
{
    static struct misuse m;

    (void)state;
    m = (struct misuse){.c = kit_open(NULL)};
    dibs_lock *l = kit_lock(m.c, "l");
    dibs_owner o = dibs_owner_new(m.c);
    const dibs_lock_opts *mine = DIBS_LOCK_OPTS(.owner = o);
    FINE(dibs_lock_acquire_async(l, mine, close_inside, &m));
    FINE(kit_answer(&m.done));
    WANT(m.closed, DIBS_ERR_DEADLOCK);
    assert_int_equal(dibs_lock_state(l, o), DIBS_HELD);
    FINE(dibs_lock_release(l, mine));
    dibs_lock_free(l);
    kit_close(m.c);
}

/* ---- while others are inside ------------------------------------------- */

static void *close_it(void *arg)
{
    return (void *)(intptr_t)dibs_client_close(arg, TS_SOON);
}

static void test_close_by_many(void **state)
{
    enum { CLOSERS = 4 };

    (void)state;
    for (int round = 0; round < 20; round++) {
        dibs_client *c = kit_open(NULL);
        dibs_lock *l = kit_lock(c, "l");
        pthread_t t[CLOSERS];
        void *err;

        FINE(dibs_lock_acquire(l, NULL));
        for (int i = 0; i < CLOSERS; i++)
            assert_int_equal(pthread_create(&t[i], NULL, close_it, c), 0);
        for (int i = 0; i < CLOSERS; i++) {
            pthread_join(t[i], &err);
            FINE((dibs_err)(intptr_t)err);
        }
        assert_int_equal(ts_nkeys(srv), 0);
        dibs_lock_free(l);
        kit_close(c);
    }
}

static void test_close_while_they_wait(void **state)
{
    enum { WAITERS = 8 };
    static struct call calls[WAITERS];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    ts_ok(srv, "HSET l %s 1", STRANGER);
    for (int i = 0; i < WAITERS; i++)
        kit_call_start(&calls[i], l, NULL, dibs_lock_acquire);
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    FINE(dibs_client_close(c, TS_SOON));
    for (int i = 0; i < WAITERS; i++)
        WANT(kit_call_end(&calls[i]), DIBS_ERR_CLOSED);
    dibs_lock_free(l);
    kit_close(c);
    ts_ok(srv, "DEL l");
}

struct busy {
    dibs_lock *l;
    atomic_int rounds;
    dibs_err err;
    const char *odd; /* what ended as it should not */
    int kind;
    pthread_t thread;
};

static dibs_err one_round(struct busy *b)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_err err;

    if (b->kind == 2)
        return dibs_lock_info_get(b->l, &info);
    err = b->kind == 0 ? dibs_lock_acquire(b->l, NULL)
                       : dibs_lock_try(b->l, NULL);
    if (err == DIBS_ERR_BUSY)
        return DIBS_OK;
    return err == DIBS_OK ? dibs_lock_release(b->l, NULL) : err;
}

static void *keep_busy(void *arg)
{
    struct busy *b = arg;

    while ((b->err = one_round(b)) == DIBS_OK)
        atomic_fetch_add(&b->rounds, 1);
    return NULL;
}

/* In the middle of everything: all calls end, and nothing stays locked. */
static void test_close_in_full_swing(void **state)
{
    enum { THREADS = 9, ROUNDS = 15 };
    static struct busy busy[THREADS];

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        dibs_client *c = kit_open(NULL);
        dibs_lock *l = kit_lock(c, "l");

        for (int i = 0; i < THREADS; i++) {
            memset(&busy[i], 0, sizeof busy[i]);
            busy[i].l = l;
            busy[i].kind = i % 3;
            pthread_create(&busy[i].thread, NULL, keep_busy, &busy[i]);
        }
        for (int i = 0; i < THREADS; i += 3)
            TS_WAIT(atomic_load(&busy[i].rounds) > round);
        dibs_err closed = dibs_client_close(c, TS_SOON);
        for (int i = 0; i < THREADS; i++)
            pthread_join(busy[i].thread, NULL);
        FINE(closed);
        /* A release that the end of the client overtook may not know. */
        for (int i = 0; i < THREADS; i++)
            if (busy[i].err != DIBS_ERR_CLOSED &&
                busy[i].err != DIBS_ERR_UNKNOWN &&
                busy[i].err != DIBS_ERR_NOT_OWNER)
                fail_msg("thread %d: %s", i, dibs_strerror(busy[i].err));
        if (ts_nkeys(srv) != 0)
            fail_msg("round %d: a key is left", round);
        dibs_lock_free(l);
        kit_close(c);
    }
}

/* ---- with commands under way ------------------------------------------- */

typedef dibs_err start_fn(dibs_lock *l, const dibs_lock_opts *opts, dibs_cb cb,
                          void *arg);

/* The lock is granted, but the reply is still on its way when the client is
 * closed. It must not stay with a client that is gone. */
static void close_during(start_fn *start)
{
    struct ts_proxy *px = ts_proxy_start(srv);

    for (int round = 0; round < 10; round++) {
        dibs_client *c = kit_open_at(ts_proxy_url(px), NULL);
        dibs_lock *l = kit_lock(c, "l");
        struct told t = {0};
        pthread_t closer;
        void *err;

        FINE(dibs_lock_try(l, NULL)); /* so that the script is known */
        FINE(dibs_lock_release(l, NULL));
        int held = ts_proxy_rule(
            px, &(struct ts_rule){.action = TS_HOLD_REPLY, .match = "EVAL*"});
        FINE(
            start(l, DIBS_LOCK_OPTS(.owner = dibs_owner_new(c)), kit_tell, &t));
        assert_true(ts_wait_exists(srv, "l", true));
        pthread_create(&closer, NULL, close_it, c);
        TS_WAIT(dibs_lock_cancel(l, 1) == DIBS_ERR_CLOSED);
        ts_proxy_unrule(px, held);
        ts_proxy_release(px);
        pthread_join(closer, &err);
        FINE((dibs_err)(intptr_t)err);
        /* Told before the client began to close, or after. */
        if (kit_answer(&t) != DIBS_OK)
            WANT(kit_answer(&t), DIBS_ERR_CLOSED);
        if (ts_exists(srv, "l"))
            fail_msg("round %d: the lock stays with nobody", round);
        dibs_lock_free(l);
        kit_close(c);
        ts_proxy_reset(px);
    }
    ts_proxy_stop(px);
}

static void test_close_during_acquire(void **state)
{
    (void)state;
    close_during(dibs_lock_acquire_async);
}

static void test_close_during_try(void **state)
{
    (void)state;
    close_during(dibs_lock_try_async);
}

/* Leaving the queue of a fair lock takes the server long where the queue is
 * long. Here it takes forever: the other locks are free anyway, also those
 * whose name comes later. */
static void test_close_before_leaving_queues(void **state)
{
    enum { WAITERS = 5 };
    static const char *const names[] = {"a", "k", "z"};
    struct ts_proxy *px = ts_proxy_start(srv);
    dibs_client *c = kit_open_at(
        ts_proxy_url(px), DIBS_CLIENT_OPTS(.command_timeout_ms = 600000));
    dibs_lock *fair = NULL, *l[COUNT(names)];
    struct told t[WAITERS] = {{0}}, plain = {0};
    pthread_t closer;
    void *err;

    (void)state;
    ts_ok(srv, "HSET g %s 1", STRANGER);
    ts_ok(srv, "PEXPIRE g 600000");
    FINE(dibs_fair_lock_new(c, "g", &fair));
    for (size_t i = 0; i < COUNT(names); i++) {
        l[i] = kit_lock(c, names[i]);
        FINE(dibs_lock_acquire(l[i], DIBS_LOCK_OPTS(.lease_ms = 600000)));
    }
    FINE(dibs_lock_acquire_async(
        l[2], DIBS_LOCK_OPTS(.owner = dibs_owner_new(c)), kit_tell, &plain));
    int asks = ts_proxy_rule(
        px, &(struct ts_rule){.match = "EVAL*",
                              .contains = dibs__script_fair_acquire.sha});
    for (int i = 0; i < WAITERS; i++)
        FINE(dibs_lock_acquire_async(
            fair, DIBS_LOCK_OPTS(.owner = dibs_owner_new(c)), kit_tell, &t[i]));
    /* Once, and once more when they are listening; then they sleep. */
    assert_true(ts_rule_wait_done(px, asks, 2 * WAITERS, TS_SOON));
    assert_int_equal(ts_int(srv, "LLEN redisson_lock_queue:{g}"), WAITERS);
    int leaves = ts_proxy_rule(
        px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                              .match = "EVAL*",
                              .contains = dibs__script_fair_leave.sha});
    pthread_create(&closer, NULL, close_it, c);
    assert_true(ts_rule_wait(px, leaves, 1, TS_SOON));
    for (size_t i = 0; i < COUNT(names); i++)
        assert_true(ts_wait_exists(srv, names[i], false));
    ts_proxy_unrule(px, leaves);
    ts_proxy_release(px);
    pthread_join(closer, &err);
    FINE((dibs_err)(intptr_t)err);
    for (int i = 0; i < WAITERS; i++)
        WANT(kit_answer(&t[i]), DIBS_ERR_CLOSED);
    WANT(kit_answer(&plain), DIBS_ERR_CLOSED);
    ts_ok(srv, "DEL g");
    for (size_t i = 0; i < COUNT(names); i++)
        dibs_lock_free(l[i]);
    dibs_lock_free(fair);
    kit_close(c);
    ts_proxy_stop(px);
}

/* A server that does not answer: closed anyway, in time, and the answer says
 * that it is not known. */
static void test_close_without_answer(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv);

    (void)state;
    count_all();
    dibs_client *c = kit_open_at(ts_proxy_url(px), NULL);
    dibs_lock *l = kit_lock(c, "l");
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 600000)));
    ts_proxy_blackhole(px, true, true);
    WANT(dibs_client_close(c, 200), DIBS_ERR_UNKNOWN);
    WANT(dibs_client_close(c, 0), DIBS_ERR_UNKNOWN); /* the same again */
    dibs_lock_free(l);
    dibs_client_free(c);
    kit_clients--;
    ts_proxy_blackhole(px, false, false);
    TS_WAIT(ts_proxy_open(px) == 0);
    nothing_left();
    ts_proxy_stop(px);
    ts_ok(srv, "DEL l");
}

/* What ended long ago is not there any more: a close does not ask for it. */
static void test_close_after_a_loss(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv);
    const int64_t timeout = ts_ms(1000);
    dibs_client *c = kit_open_at(
        ts_proxy_url(px), DIBS_CLIENT_OPTS(.command_timeout_ms = timeout));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(
        l, DIBS_LOCK_OPTS(.lease_ms = kit_short(), .wait_ms = TS_SOON)));
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    int64_t lost = ts_now_ms();
    TS_WAIT(!ts_exists(srv, "l") && ts_now_ms() - lost > timeout);
    dibs_lock_free(l);
    ts_proxy_refuse(px, true);
    ts_proxy_kill_all(px, false);
    FINE(dibs_client_close(c, TS_SOON));
    dibs_client_free(c);
    ts_proxy_stop(px);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_close_releases),
        KIT_TEST(test_close_wakes_others),
        KIT_TEST(test_close_again_and_again),
        KIT_TEST(test_close_at_once),
        KIT_TEST(test_close_then_calls),
        KIT_TEST(test_close_handles_outlive),
        KIT_TEST(test_close_inside_callback),
        KIT_TEST(test_close_by_many),
        KIT_TEST(test_close_while_they_wait),
        KIT_TEST(test_close_in_full_swing),
        KIT_TEST(test_close_during_acquire),
        KIT_TEST(test_close_during_try),
        KIT_TEST(test_close_before_leaving_queues),
        KIT_TEST(test_close_without_answer),
        KIT_TEST(test_close_after_a_loss),
    };
    return KIT_RUN("server.close", tests);
}
