/* SPDX-License-Identifier: MIT
 *
 * test_multi_async.c - multi locks by callback, canceled, closed, from inside
 * callbacks, and many at once.
 */
#include "server/multi_kit.h"

#include <poll.h>

static const struct word B = {.kind = 'p', .name = "b"};

/* An acquire of "pa pb..." that waits for b. */
static void begin_waiting(dibs_lock *g, const dibs_lock_opts *opts,
                          struct told *told)
{
    memset(told, 0, sizeof *told);
    FINE(dibs_lock_acquire_async(g, opts, kit_tell, told));
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{b}", 1));
    assert_int_equal(atomic_load(&told->times), 0);
}

/* ---- callbacks --------------------------------------------------------- */

static void test_multi_async_pair(void **state)
{
    static const char *const groups[] = {"pa pb", "wb fa rc", "pa pb@1 wc@2"};
    struct world w = kit_world(NULL);
    struct told told[3];

    (void)state;
    for (size_t i = 0; i < COUNT(groups); i++) {
        dibs_lock *g = kit_group(&w, groups[i]);
        memset(told, 0, sizeof told);
        FINE(dibs_lock_acquire_async(g, NULL, kit_tell, &told[0]));
        FINE(kit_answer(&told[0]));
        assert_string_equal(told[0].name, "dibs-cb");
        kit_have(&w, groups[i], 0, 1);
        FINE(dibs_lock_try_async(g, NULL, kit_tell, &told[1]));
        FINE(kit_answer(&told[1]));
        kit_have(&w, groups[i], 0, 2);
        FINE(dibs_lock_release(g, NULL));
        FINE(dibs_lock_release_async(g, NULL, kit_tell, &told[2]));
        FINE(kit_answer(&told[2]));
        kit_keys(groups[i], 0, 0);
        memset(told, 0, sizeof told);
        FINE(dibs_lock_release_async(g, NULL, kit_tell, &told[0]));
        WANT(kit_answer(&told[0]), DIBS_ERR_NOT_OWNER);
        dibs_lock_free(g);
    }
    kit_world_end(&w);
}

static void test_multi_async_busy(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb pc@2");
    struct told told[2] = {{.times = 0}};

    (void)state;
    kit_block(&B, 0);
    FINE(dibs_lock_try_async(g, NULL, kit_tell, &told[0]));
    WANT(kit_answer(&told[0]), DIBS_ERR_BUSY);
    kit_keys("busy", 1, 0);
    FINE(dibs_lock_acquire_async(g, DIBS_LOCK_OPTS(.wait_ms = 50), kit_tell,
                                 &told[1]));
    WANT(kit_answer(&told[1]), DIBS_ERR_TIMEOUT);
    assert_int_equal(kit_member(g, 1, 0).verdict, DIBS_ERR_BUSY);
    kit_keys_soon("timeout", 1, 0);
    kit_unblock(&B);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* The handle goes while its acquire waits; the callback comes anyway. */
static void test_multi_async_freed(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb pc@2");
    struct told told;

    (void)state;
    kit_block(&B, 0);
    begin_waiting(g, NULL, &told);
    dibs_lock_free(g);
    kit_unblock(&B);
    FINE(kit_answer(&told));
    kit_have(&w, "pa pb pc@2", 0, 1);
    kit_world_end(&w);
}

/* Many owners at once, each with two names out of three, and each gives them
 * back from its callback. */
struct owner {
    dibs_lock *g;
    dibs_owner number;
    struct told gave;
};

static void got_it(dibs_err err, void *arg)
{
    struct owner *o = arg;

    if (err == DIBS_OK)
        err =
            dibs_lock_release_async(o->g, OWNED(o->number), kit_tell, &o->gave);
    if (err != DIBS_OK)
        kit_tell(err, &o->gave);
}

static void test_multi_async_many(void **state)
{
    enum { OWNERS = 60 };
    static const char *const groups[] = {"pa pb", "pb wc", "wc pa"};
    struct world w = kit_world(NULL);
    struct owner owners[OWNERS];
    dibs_lock *g[3];

    (void)state;
    memset(owners, 0, sizeof owners);
    for (int i = 0; i < 3; i++)
        g[i] = kit_group(&w, groups[i]);
    for (int i = 0; i < OWNERS; i++) {
        owners[i].g = g[i % 3];
        owners[i].number = dibs_owner_new(w.c[0]);
        FINE(dibs_lock_acquire_async(g[i % 3], OWNED(owners[i].number), got_it,
                                     &owners[i]));
    }
    for (int i = 0; i < OWNERS; i++)
        FINE(kit_answer(&owners[i].gave));
    kit_keys("many", 0, 0);
    for (int i = 0; i < 3; i++)
        dibs_lock_free(g[i]);
    kit_world_end(&w);
}

/* ---- canceled ---------------------------------------------------------- */

static void test_multi_async_cancel(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pc@2 pb pa");
    dibs_owner other = dibs_owner_new(w.c[0]);
    struct told told;

    (void)state;
    WANT(dibs_lock_cancel(g, 0), DIBS_ERR_NOT_OWNER);
    kit_block(&B, 0);
    begin_waiting(g, NULL, &told);
    WANT(dibs_lock_cancel(g, other), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_cancel(g, 0));
    WANT(kit_answer(&told), DIBS_ERR_CANCELED);
    assert_int_equal(dibs_lock_state(g, 0), DIBS_NOT_HELD);
    kit_keys_soon("canceled", 1, 0);
    WANT(dibs_lock_cancel(g, 0), DIBS_ERR_NOT_OWNER);
    kit_unblock(&B);
    FINE(dibs_lock_try(g, NULL));
    FINE(dibs_lock_release(g, NULL));
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* Canceled at any moment: it ends, one way or the other. */
static void cancel_at(struct world *w, const char *text, unsigned spin)
{
    dibs_lock *g = kit_group(w, text);
    struct told told = {.times = 0};
    atomic_uint idle = 0;

    FINE(dibs_lock_acquire_async(g, NULL, kit_tell, &told));
    while (atomic_fetch_add(&idle, 1) < spin)
        ;
    FINE(dibs_lock_cancel(g, 0));
    WANT(kit_answer(&told), DIBS_ERR_CANCELED);
    dibs_lock_free(g);
}

static void test_multi_async_cancel_any_time(void **state)
{
    struct world w = kit_world(NULL);
    struct word c = {.kind = 'p', .name = "c", .client = 2};

    (void)state;
    kit_block(&B, 0);
    kit_block(&c, 0);
    for (unsigned i = 0; i < 400; i++) {
        cancel_at(&w, "pa pb", i % 50 * 400);
        cancel_at(&w, "pa pc@2", i % 50 * 400);
        cancel_at(&w, "wa pb rd", i % 50 * 400);
    }
    TS_WAIT(ts_nkeys(srv) == 1 && ts_nkeys(srv2) == 1);
    kit_unblock(&B);
    kit_unblock(&c);
    kit_world_end(&w);
}

/* ---- closed ------------------------------------------------------------ */

/* Any one of the clients closes while it waits for a member of client 0; what
 * the others had is free. */
static void close_one(size_t which, dibs_err want)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb pc@1 pa@2");
    struct told told;

    kit_block(&B, 0);
    begin_waiting(g, NULL, &told);
    FINE(dibs_client_close(w.c[which], TS_SOON));
    if (which != 0)
        kit_unblock(&B);
    WANT(kit_answer(&told), want);
    TS_WAIT(ts_nkeys(srv) == (which == 0));
    TS_WAIT(ts_nkeys(srv2) == 0);
    if (which == 0)
        kit_unblock(&B);
    WANT(dibs_lock_try(g, NULL), DIBS_ERR_CLOSED);

    kit_keys("closed", 0, 0);
    dibs_lock_free(g);
    kit_world_end(&w);
}

static void test_multi_async_close(void **state)
{
    (void)state;
    close_one(0, DIBS_ERR_CLOSED);
    close_one(1, DIBS_ERR_CLOSED);
    close_one(2, DIBS_ERR_CLOSED);
}

/* The client on whose thread it is to be told closes, while the wait is for
 * another client's member. That one goes on. */
static void test_multi_async_close_home(void **state)
{
    struct world w = kit_world(NULL);
    dibs_client *c[2] = {kit_open_at(ts_server_tcp_url(srv), NULL),
                         kit_open_at(ts_server_url(srv), NULL)};
    dibs_lock *m[2] = {NULL, NULL}, *g = NULL;
    struct told told;

    (void)state;
    for (int i = 0; i < 2; i++) { /* one of them is the first in order */
        m[0] = kit_lock(c[i], "a");
        m[1] = kit_lock(c[!i], "b");
        FINE(dibs_multi_lock_new(m, 2, &g));
        kit_block(&B, 0);
        memset(&told, 0, sizeof told);
        FINE(dibs_lock_acquire_async(g, NULL, kit_tell, &told));
        TS_WAIT(ts_numsub(srv, "redisson_lock__channel:{b}") == 1);
        FINE(dibs_client_close(c[i], TS_SOON));
        kit_unblock(&B);
        WANT(kit_answer(&told), DIBS_ERR_CLOSED);
        TS_WAIT(ts_nkeys(srv) == 0);
        for (int j = 0; j < 2; j++)
            dibs_lock_free(m[j]);
        dibs_lock_free(g);
        kit_close(c[i]);
        c[i] = kit_open_at(i == 0 ? ts_server_tcp_url(srv) : ts_server_url(srv),
                           NULL);
    }
    kit_close(c[0]);
    kit_close(c[1]);
    kit_world_end(&w);
}

/* A sync caller hears of it too. */
static void test_multi_async_close_sync(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb pa@2");
    struct call call;

    (void)state;
    kit_block(&B, 0);
    kit_call_start(&call, g, NULL, dibs_lock_acquire);
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{b}", 1));
    FINE(dibs_client_close(w.c[0], TS_SOON));
    WANT(kit_call_end(&call), DIBS_ERR_CLOSED);
    TS_WAIT(ts_nkeys(srv2) == 0);
    kit_unblock(&B);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* One of the clients has closed while the group was held: its members are
 * free, and a release gives back the rest. */
static void release_after_close(int which, bool async)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb@1 pa@2");
    struct told told = {.times = 0};

    FINE(dibs_lock_acquire(g, NULL));
    FINE(dibs_client_close(w.c[which], TS_SOON));
    assert_int_not_equal(dibs_lock_state(g, 0), DIBS_HELD);
    if (async) {
        FINE(dibs_lock_release_async(g, NULL, kit_tell, &told));
        assert_int_not_equal(kit_answer(&told), DIBS_OK);
    } else {
        assert_int_not_equal(dibs_lock_release(g, NULL), DIBS_OK);
    }
    kit_keys("closed", 0, 0);
    dibs_lock_free(g);
    kit_world_end(&w);
}

static void test_multi_async_release_after_close(void **state)
{
    (void)state;
    for (int which = 0; which < CLIENTS; which++) {
        release_after_close(which, false);
        release_after_close(which, true);
    }
}

/* ---- in the program's own loop ----------------------------------------- */

static void dispatch_until(dibs_client *c, const struct told *told)
{
    TS_WAIT((dibs_client_dispatch(c), atomic_load(&told->times) > 0));
}

static void test_multi_async_dispatch(void **state)
{
    struct world w =
        kit_world(DIBS_CLIENT_OPTS(.callbacks = DIBS_CALLBACKS_DISPATCH,
                                   .lease_ms = kit_lease()));
    dibs_lock *g = kit_group(&w, "pa pb wc");
    struct lost lost = {.times = 0};
    struct told told[2] = {{.times = 0}};

    (void)state;
    FINE(dibs_lock_acquire_async(
        g, DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost), kit_tell,
        &told[0]));
    TS_WAIT(dibs_lock_state(g, 0) == DIBS_HELD);
    assert_int_equal(atomic_load(&told[0].times), 0);
    dispatch_until(w.c[0], &told[0]);
    FINE(kit_answer(&told[0]));
    assert_true(pthread_equal(told[0].thread, pthread_self()));
    ts_ok(srv, "DEL c");
    TS_WAIT(dibs_lock_state(g, 0) == DIBS_LOST);
    TS_WAIT((dibs_client_dispatch(w.c[0]), atomic_load(&lost.times) > 0));
    FINE(dibs_lock_release_async(g, NULL, kit_tell, &told[1]));
    dispatch_until(w.c[0], &told[1]);
    WANT(kit_answer(&told[1]), DIBS_ERR_LOST);
    assert_int_equal(atomic_load(&lost.times), 1);
    kit_keys("dispatch", 0, 0);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* ---- inside a callback ------------------------------------------------- */

static struct {
    dibs_lock *free, *busy;
    dibs_err taken, refused, given;
    atomic_bool done;
} inside;

static void from_inside(dibs_err err, void *arg)
{
    (void)err, (void)arg;
    inside.taken = dibs_lock_acquire(inside.free, NULL);
    inside.refused =
        dibs_lock_acquire(inside.busy, DIBS_LOCK_OPTS(.wait_ms = 50));
    inside.given = dibs_lock_release(inside.free, NULL);
    atomic_store(&inside.done, true);
}

/* Of whichever client the callback is, as long as it has a member. */
static void test_multi_async_inside(void **state)
{
    struct world w = kit_world(NULL);

    (void)state;
    inside.free = kit_group(&w, "pa wc pd@1 pe@2");
    inside.busy = kit_group(&w, "pf pb pg@2");
    kit_block(&B, 0);
    for (int i = 0; i < CLIENTS; i++) {
        dibs_lock *l = kit_make(w.c[i], 'p', "x");
        atomic_store(&inside.done, false);
        FINE(dibs_lock_release_async(l, NULL, from_inside, NULL));
        TS_WAIT(atomic_load(&inside.done));
        FINE(inside.taken);
        WANT(inside.refused, i == 1 ? DIBS_ERR_TIMEOUT : DIBS_ERR_DEADLOCK);
        FINE(inside.given);
        kit_keys_soon("inside", 1, 0);
        dibs_lock_free(l);
    }
    kit_unblock(&B);
    dibs_lock_free(inside.free);
    dibs_lock_free(inside.busy);
    kit_world_end(&w);
}

/* ---- one owner on several threads -------------------------------------- */

enum { THREADS = 4, ROUNDS = 100 };

struct overlap {
    pthread_t thread;
    dibs_lock *g;
    dibs_owner owner;
    dibs_err err;
};

static void *take_and_give(void *arg)
{
    struct overlap *o = arg;

    for (int i = 0; i < ROUNDS && o->err == DIBS_OK; i++) {
        o->err = i % 3 ? dibs_lock_acquire(o->g, OWNED(o->owner))
                       : dibs_lock_try(o->g, OWNED(o->owner));
        if (o->err == DIBS_OK)
            o->err = dibs_lock_release(o->g, OWNED(o->owner));
    }
    return NULL;
}

/* It never waits for itself, and all holds are counted. */
static void test_multi_async_one_owner(void **state)
{
    static const char *const groups[THREADS] = {"pa pb wc", "wc pb pd@2",
                                                "pd@2 pa", "wc re pa"};
    struct world w = kit_world(NULL);
    struct overlap o[THREADS];
    dibs_owner owner = dibs_owner_new(w.c[0]);

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        o[i] = (struct overlap){.g = kit_group(&w, groups[i]), .owner = owner};
        pthread_create(&o[i].thread, NULL, take_and_give, &o[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(o[i].thread, NULL);
        if (o[i].err != DIBS_OK)
            fail_msg("%s: %s", groups[i], dibs_strerror(o[i].err));
        dibs_lock_free(o[i].g);
    }
    kit_keys("one owner", 0, 0);
    kit_world_end(&w);
}

/* What was never dispatched is dropped with its client, though the operation
 * has a share in the client itself: the address sanitizer would tell. */
static void test_multi_async_never_dispatched(void **state)
{
    struct world w =
        kit_world(DIBS_CLIENT_OPTS(.callbacks = DIBS_CALLBACKS_DISPATCH));
    dibs_lock *g = kit_group(&w, "pa pb");
    struct told told = {0};
    struct pollfd ready = {.fd = dibs_client_fd(w.c[0]), .events = POLLIN};

    (void)state;
    size_t fds = ts_fds();
    FINE(dibs_lock_try_async(g, NULL, kit_tell, &told));
    assert_int_equal(poll(&ready, 1, (int)TS_SOON), 1);
    dibs_lock_free(g);
    kit_world_end(&w);
    assert_int_equal(atomic_load(&told.times), 0);
    assert_true(ts_fds() < fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MULTI_TEST(test_multi_async_pair),
        MULTI_TEST(test_multi_async_busy),
        MULTI_TEST(test_multi_async_freed),
        MULTI_TEST(test_multi_async_many),
        MULTI_TEST(test_multi_async_cancel),
        MULTI_TEST(test_multi_async_cancel_any_time),
        MULTI_TEST(test_multi_async_close),
        MULTI_TEST(test_multi_async_close_home),
        MULTI_TEST(test_multi_async_close_sync),
        MULTI_TEST(test_multi_async_release_after_close),
        MULTI_TEST(test_multi_async_dispatch),
        MULTI_TEST(test_multi_async_inside),
        MULTI_TEST(test_multi_async_one_owner),
        MULTI_TEST(test_multi_async_never_dispatched),
    };
    return MULTI_RUN("server.multi_async", tests);
}
