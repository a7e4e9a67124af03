/* SPDX-License-Identifier: MIT
 *
 * test_lost_async.c - on_lost and async releases, callbacks that the program
 * dispatches itself, releases without an answer, and the end of the client.
 */
#include "server/lost_kit.h"

#include "support/proxy.h"

/* ---- async ------------------------------------------------------------- */

static dibs_client *open_dispatch(void)
{
    return kit_open(DIBS_CLIENT_OPTS(.callbacks = DIBS_CALLBACKS_DISPATCH));
}

/* Not dispatched yet when the release is through: it does not come. */
static void test_lost_dispatch_queued(void **state)
{
    dibs_client *c = open_dispatch();
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    atomic_store(&stray, 0);
    WANT(use_on_stack(l, dibs_owner_new(c)), DIBS_ERR_LOST);
    (void)dibs_client_dispatch(c);
    assert_int_equal(atomic_load(&stray), 0);
    dibs_lock_free(l);
    kit_close(c);
}

static void *dispatch_main(void *arg)
{
    return (void *)(intptr_t)dibs_client_dispatch(arg);
}

/* on_lost runs in one thread's dispatch: the callback of the release does not
 * run in another's. */
static void dispatch_by_two(dibs_client *c, dibs_lock *l)
{
    dibs_owner owner = dibs_owner_new(c);
    struct told gave = {0};
    struct guard g;
    pthread_t first;
    sem_t gate;

    sem_init(&gate, 0, 0);
    guard_set(&g);
    g.gate = &gate;
    FINE(dibs_lock_acquire(l, GUARDED(owner, &g)));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    struct ts_wait w = ts_wait_begin(TS_SOON);
    do {
        assert_int_equal(pthread_create(&first, NULL, dispatch_main, c), 0);
        struct ts_wait b = ts_wait_begin(kit_chance());
        while (!atomic_load(&g.begun) && ts_wait_step(&b))
            ;
        if (!atomic_load(&g.begun))
            pthread_join(first, NULL);
    } while (!atomic_load(&g.begun) && ts_wait_step(&w));
    FINE(dibs_lock_release_async(l, OWNED(owner), kit_tell, &gave));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_NOT_HELD);
    for (int i = 0; i < 20; i++)
        (void)dibs_client_dispatch(c);
    assert_int_equal(atomic_load(&gave.times), 0);
    sem_post(&gate);
    pthread_join(first, NULL);
    assert_int_equal(atomic_load(&g.ended), 1);
    TS_WAIT((dibs_client_dispatch(c), atomic_load(&gave.times) == 1));
    WANT(kit_answer(&gave), DIBS_ERR_LOST);
    sem_destroy(&gate);
}

static void test_lost_dispatch_by_two(void **state)
{
    dibs_client *c = open_dispatch();
    dibs_lock *l = kit_lock(c, "l"), *g = NULL;
    dibs_lock *m[2] = {kit_lock(c, "a"), kit_lock(c, "b")};

    (void)state;
    FINE(dibs_multi_lock_new(m, 2, &g));
    dispatch_by_two(c, l);
    dispatch_by_two(c, g);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    dibs_lock_free(g);
    dibs_lock_free(l);
    kit_close(c);
}

struct order {
    struct guard *g;
    struct told told;
    int begun, ended; /* of on_lost, as the release's callback saw them */
};

static void note_order(dibs_err err, void *arg)
{
    struct order *o = arg;

    o->begun = atomic_load(&o->g->begun);
    o->ended = atomic_load(&o->g->ended);
    kit_tell(err, &o->told);
}

/* With a thread of the library's own: queued behind a slow one, the release's
 * callback comes and on_lost does not. */
static void test_lost_async_release(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard g;
    struct order o = {.g = &g};
    struct block b;

    (void)state;
    guard_set(&g);
    block_start(&b, c);
    FINE(dibs_lock_acquire(l, GUARDED(owner, &g)));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    FINE(dibs_lock_release_async(l, OWNED(owner), note_order, &o));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_NOT_HELD);
    block_end(&b, c);
    WANT(kit_answer(&o.told), DIBS_ERR_LOST);
    assert_int_equal(o.begun, 0);
    assert_int_equal(atomic_load(&g.begun), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- unknown outcome, and the end of the client ------------------------ */

/* Nobody answers the release: it counts as given back, and nothing comes when
 * the time of the lease is over. */
static void test_lost_after_unknown(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard g;

    (void)state;
    atomic_store(&stray, 0);
    guard_set(&g);
    FINE(dibs_lock_acquire(
        l, DIBS_LOCK_OPTS(.owner = owner, .on_lost = on_lost, .arg = &g)));
    ts_server_pause(srv);
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = owner, .wait_ms = 10)),
         DIBS_ERR_UNKNOWN);
    memset(&g, 0, sizeof g);
    int64_t over = ts_now_ms() + kit_lease();
    TS_WAIT(ts_now_ms() > over);
    ts_server_resume(srv);
    assert_true(ts_wait_exists(srv, "l", false));
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(atomic_load(&stray), 0);
}

static void *close_main(void *arg)
{
    return (void *)(intptr_t)dibs_client_close(arg, TS_SOON);
}

/* The client closes while on_lost runs: a release has no client any more to
 * ask, but it comes back when on_lost has. */
static void test_lost_release_while_closing(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct releaser r = {.l = l, .owner = dibs_owner_new(c)};
    struct guard g;
    pthread_t closer;
    void *closed;
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    guard_set(&g);
    g.gate = &gate;
    g.watch = &r.back;
    FINE(dibs_lock_acquire(l, GUARDED(r.owner, &g)));
    TS_WAIT(atomic_load(&g.begun) == 1);
    assert_int_equal(pthread_create(&closer, NULL, close_main, c), 0);
    TS_WAIT(dibs_lock_cancel(l, r.owner) == DIBS_ERR_CLOSED);
    TS_WAIT(dibs_lock_state(l, r.owner) == DIBS_NOT_HELD);
    assert_int_equal(pthread_create(&r.thread, NULL, release_main, &r), 0);
    TS_WAIT(atomic_load(&r.calls));
    sem_post(&gate);
    pthread_join(r.thread, NULL);
    WANT(r.err, DIBS_ERR_CLOSED);
    assert_int_equal(atomic_load(&g.ended), 1);
    assert_false(g.saw);
    pthread_join(closer, &closed);
    FINE((dibs_err)(intptr_t)closed);
    sem_destroy(&gate);
    dibs_lock_free(l);
    kit_close(c);
}

/* The same with on_lost still in the queue: it does not come any more. */
static void test_lost_queued_while_closing(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct block b;
    struct guard g;
    pthread_t closer;
    void *closed;

    (void)state;
    guard_set(&g);
    block_start(&b, c);
    FINE(dibs_lock_acquire(l, GUARDED(owner, &g)));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    assert_int_equal(pthread_create(&closer, NULL, close_main, c), 0);
    TS_WAIT(dibs_lock_cancel(l, owner) == DIBS_ERR_CLOSED);
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_CLOSED);
    sem_post(&b.gate);
    pthread_join(closer, &closed);
    FINE((dibs_err)(intptr_t)closed);
    assert_int_equal(atomic_load(&g.begun), 0);
    dibs_lock_free(l);
    kit_close(c);
}

static uint64_t losses_of(dibs_client *c)
{
    dibs_stats s = DIBS_STATS_INIT;

    FINE(dibs_client_stats(c, &s));
    return s.losses;
}

/* The same with permits. */
static void test_lost_permits_while_closing(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_semaphore *s;
    struct block b;
    struct guard g;
    pthread_t closer;
    void *closed;

    (void)state;
    guard_set(&g);
    FINE(dibs_semaphore_new(c, "s", &s));
    FINE(dibs_semaphore_set(s, 1, NULL));
    block_start(&b, c);
    FINE(dibs_semaphore_acquire(s, DIBS_SEMAPHORE_OPTS(.lease_ms = kit_short(),
                                                       .on_lost = on_lost,
                                                       .arg = &g)));
    TS_WAIT(losses_of(c) == 1);
    assert_int_equal(pthread_create(&closer, NULL, close_main, c), 0);
    TS_WAIT(dibs_lock_cancel(l, 1) == DIBS_ERR_CLOSED);
    WANT(dibs_semaphore_release(s, NULL), DIBS_ERR_CLOSED);
    sem_post(&b.gate);
    pthread_join(closer, &closed);
    FINE((dibs_err)(intptr_t)closed);
    assert_int_equal(atomic_load(&g.begun), 0);
    dibs_semaphore_free(s);
    dibs_lock_free(l);
    kit_close(c);
    ts_ok(srv, "FLUSHALL"); /* the number of permits */
}

/* Closed before anybody dispatched: there is nothing left to lose. */
static void test_lost_dispatch_after_close(void **state)
{
    dibs_client *c = open_dispatch();
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard g;

    (void)state;
    guard_set(&g);
    FINE(dibs_lock_acquire(l, GUARDED(owner, &g)));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    FINE(dibs_client_close(c, TS_SOON));
    (void)dibs_client_dispatch(c);
    assert_int_equal(atomic_load(&g.begun), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* The same for a group: a release that has no client any more to tell of its
 * end is still the end of on_lost. */
static void test_lost_group_dispatch_after_close(void **state)
{
    dibs_client *c = open_dispatch();
    dibs_lock *m[2] = {kit_lock(c, "a"), kit_lock(c, "b")}, *l = NULL;
    dibs_owner owner = dibs_owner_new(c);
    struct told t = {0};
    struct guard g;

    (void)state;
    guard_set(&g);
    FINE(dibs_multi_lock_new(m, 2, &l));
    FINE(dibs_lock_acquire(l, GUARDED(owner, &g)));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    FINE(dibs_client_close(c, TS_SOON));
    WANT(dibs_lock_release_async(l, OWNED(owner), kit_tell, &t),
         DIBS_ERR_CLOSED);
    (void)dibs_client_dispatch(c);
    assert_int_equal(atomic_load(&g.begun), 0);
    dibs_lock_free(l);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    kit_close(c);
}

/* A group whose acquire a closing client ended: it was never held, so it cannot
 * be lost, whatever becomes of the members it had by then. */
static void test_lost_group_closed(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv2);
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open_at(ts_proxy_url(px), NULL);
    dibs_lock *m[2] = {kit_lock(c, "a"), kit_lock(d, "b")}, *g = NULL;
    struct told t = {0};
    struct guard lost;

    (void)state;
    guard_set(&lost);
    FINE(dibs_multi_lock_new(m, 2, &g));
    FINE(dibs_lock_try(m[1], NULL)); /* so that the script is known */
    FINE(dibs_lock_release(m[1], NULL));
    int rule = ts_proxy_rule(
        px, &(struct ts_rule){.action = TS_HOLD_REPLY, .match = "EVAL*"});
    FINE(dibs_lock_acquire_async(g,
                                 DIBS_LOCK_OPTS(.owner = dibs_owner_new(c),
                                                .on_lost = on_lost,
                                                .arg = &lost),
                                 kit_tell, &t));
    assert_true(ts_rule_wait(px, rule, 1, TS_SOON));
    assert_true(ts_wait_exists(srv, "a", true));
    (void)dibs_client_close(c, 100);
    (void)dibs_client_close(d, 100);
    WANT(kit_answer(&t), DIBS_ERR_CLOSED);
    ts_proxy_unrule(px, 0);
    ts_proxy_release(px);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    dibs_lock_free(g);
    dibs_client_free(c);
    dibs_client_free(d);
    kit_clients -= 2;
    assert_int_equal(atomic_load(&lost.begun), 0);
    ts_proxy_stop(px);
    ts_ok(srv, "FLUSHALL");
    ts_ok(srv2, "FLUSHALL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOST_TEST(test_lost_dispatch_queued),
        LOST_TEST(test_lost_dispatch_by_two),
        LOST_TEST(test_lost_async_release),
        LOST_TEST(test_lost_after_unknown),
        LOST_TEST(test_lost_release_while_closing),
        LOST_TEST(test_lost_queued_while_closing),
        LOST_TEST(test_lost_permits_while_closing),
        LOST_TEST(test_lost_dispatch_after_close),
        LOST_TEST(test_lost_group_dispatch_after_close),
        LOST_TEST(test_lost_group_closed),
    };
    return MULTI_RUN_PARALLEL("server.lost_async", tests);
}
