/* SPDX-License-Identifier: MIT
 *
 * test_multi_time.c - what becomes of a multi lock's first members while it
 * waits for the last: they may run out, or must be kept; and of what their
 * owner held before.
 */
#include "server/multi_kit.h"

static const struct word B = {.kind = 'p', .name = "b"};

static void count_lost(const dibs_event *ev, void *arg)
{
    if (ev->kind == DIBS_EVENT_LOST)
        atomic_fetch_add((atomic_int *)arg, 1);
}

/* ---- members that run out ---------------------------------------------- */

/* The second server does not answer while it is being connected to: its member
 * is asked for late, when the first one's lease is over. */
struct late {
    struct world w; /* its last client is not connected */
    dibs_lock *g;
    struct told told;
};

/* wait_ms: 0 = it only tries. */
static void late_begin(struct late *t, int64_t wait_ms)
{
    memset(t, 0, sizeof *t);
    t->w.c[0] = kit_open(NULL);
    t->w.c[1] = kit_open(NULL);
    ts_server_pause(srv2);
    t->w.c[2] = kit_open_at(ts_server_url(srv2),
                            DIBS_CLIENT_OPTS(.lazy = true,
                                             .connect_timeout_ms = TS_SOON,
                                             .command_timeout_ms = TS_SOON));
    t->g = kit_group(&t->w, "pa pb@2");
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.lease_ms = ts_ms(1000), .wait_ms = wait_ms);
    FINE(wait_ms ? dibs_lock_acquire_async(t->g, o, kit_tell, &t->told)
                 : dibs_lock_try_async(t->g, o, kit_tell, &t->told));
    assert_true(ts_wait_exists(srv, "a", true));
    assert_true(ts_wait_exists(srv, "a", false));
}

static void late_end(struct late *t)
{
    dibs_lock_free(t->g);
    kit_world_end(&t->w);
}

/* "Taken" means that all are held at that moment. */
static void test_multi_time_ran_out(void **state)
{
    struct late t;

    (void)state;
    late_begin(&t, TS_SOON);
    ts_server_resume(srv2);
    FINE(kit_answer(&t.told));
    assert_int_equal(dibs_lock_state(t.g, 0), DIBS_HELD);
    assert_true(ts_exists(srv, "a"));
    FINE(dibs_lock_release(t.g, NULL));
    late_end(&t);
}

static void test_multi_time_ran_out_try(void **state)
{
    struct late t;

    (void)state;
    late_begin(&t, 0);
    ts_server_resume(srv2);
    WANT(kit_answer(&t.told), DIBS_ERR_LOST);
    assert_int_equal(dibs_lock_state(t.g, 0), DIBS_NOT_HELD);
    TS_WAIT(ts_nkeys(srv) + ts_nkeys(srv2) == 0);
    late_end(&t);
}

/* Its time is over by then. */
static void test_multi_time_ran_out_limit(void **state)
{
    struct late t;

    (void)state;
    late_begin(&t, 1);
    ts_server_resume(srv2);
    WANT(kit_answer(&t.told), DIBS_ERR_TIMEOUT);
    assert_int_equal(dibs_lock_state(t.g, 0), DIBS_NOT_HELD);
    TS_WAIT(ts_nkeys(srv) + ts_nkeys(srv2) == 0);
    late_end(&t);
}

/* Somebody else has taken the first one by then: it is waited for. */
static void test_multi_time_taken_meanwhile(void **state)
{
    static const struct word A = {.kind = 'p', .name = "a"};
    struct late t;

    (void)state;
    late_begin(&t, TS_SOON);
    kit_block(&A, 0);
    ts_server_resume(srv2);
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{a}", 1));
    assert_int_equal(atomic_load(&t.told.times), 0);
    kit_unblock(&A);
    FINE(kit_answer(&t.told));
    assert_int_equal(dibs_lock_state(t.g, 0), DIBS_HELD);
    FINE(dibs_lock_release(t.g, NULL));
    late_end(&t);
}

/* ---- members that are kept --------------------------------------------- */

/* What the owner holds by itself goes on as it was, whatever lease a multi lock
 * with the same member asked for in vain. */
static void test_multi_time_own_lease_stays(void **state)
{
    struct world w = kit_world(DIBS_CLIENT_OPTS(.lease_ms = 3000));
    dibs_lock *a = kit_one(&w, "pa");
    dibs_lock *g = kit_group(&w, "pa pb");

    (void)state;
    FINE(dibs_lock_acquire(a, NULL));
    kit_block(&B, 0);
    WANT(dibs_lock_acquire(g, DIBS_LOCK_OPTS(.lease_ms = 200, .wait_ms = 300)),
         DIBS_ERR_TIMEOUT);
    for (int i = 0; i < 2; i++) { /* it falls, and rises again */
        TS_WAIT(ts_pttl(srv, "a") < 2500);
        TS_WAIT(ts_pttl(srv, "a") > 2600);
    }
    TS_WAIT(dibs_lock_state(a, 0) == DIBS_HELD);
    FINE(dibs_lock_release(a, NULL));
    kit_unblock(&B);
    dibs_lock_free(a);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* A limit that is shorter than the client's lease: the first member is kept
 * anyway, and no longer than that. */
static void test_multi_time_kept_with_limit(void **state)
{
    atomic_int lost = 0;
    struct world w =
        kit_world(DIBS_CLIENT_OPTS(.lease_ms = 30000, .on_event = count_lost,
                                   .event_arg = &lost));
    dibs_lock *g = kit_group(&w, "pa pb");
    int64_t limit = kit_lease();
    struct told told = {0};

    (void)state;
    kit_block(&B, 0);
    long long before = ts_command_calls(srv, "pexpire");
    FINE(dibs_lock_acquire_async(g, DIBS_LOCK_OPTS(.max_hold_ms = limit),
                                 kit_tell, &told));
    assert_true(ts_wait_exists(srv, "a", true));
    TS_WAIT(ts_command_calls(srv, "pexpire") >= before + 4);
    assert_true(ts_exists(srv, "a"));
    kit_unblock(&B);
    FINE(kit_answer(&told));
    assert_true(ts_pttl(srv, "a") <= limit);
    assert_int_equal(atomic_load(&lost), 0);
    (void)dibs_lock_release(g, NULL);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* ---- a server that says "not now" -------------------------------------- */

/* It is waited for as long as the caller waits, as with a plain lock. Before
 * Redis 7 a script that meets this error ends with another. */
static void test_multi_time_not_now(void **state)
{
    if (!ts_int(srv, "EVAL %s 0", "return redis.REDIS_VERSION_NUM or 0"))
        skip();
    struct world w = kit_world(DIBS_CLIENT_OPTS(.command_timeout_ms = 200));
    dibs_lock *g = kit_group(&w, "pa pb pc@2");
    struct told told = {0};

    (void)state;
    ts_config_set(srv2, "min-replicas-to-write", "1");
    long long errors = ts_info(srv2, "stats", "total_error_replies");
    FINE(dibs_lock_acquire_async(g, AT_LEISURE, kit_tell, &told));
    /* Many times what it is asked within one command's time. */
    TS_WAIT(ts_info(srv2, "stats", "total_error_replies") >= errors + 60 ||
            atomic_load(&told.times));
    assert_int_equal(atomic_load(&told.times), 0);
    ts_config_set(srv2, "min-replicas-to-write", "0");
    FINE(kit_answer(&told));
    kit_have(&w, "pa pb pc@2", 0, 1);
    FINE(dibs_lock_release(g, NULL));
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* A group in a group, and members that their owner holds for longer by
 * themselves: the whole is held for as long as the member that ends first. */
static void test_multi_valid_of_nested(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *a = kit_one(&w, "pa"), *b = kit_one(&w, "pb@2");
    dibs_lock *c = kit_one(&w, "pc@1"), *inner = NULL, *outer = NULL;
    dibs_lock *two[2] = {a, b};
    const dibs_lock_opts *brief = DIBS_LOCK_OPTS(.lease_ms = LONG_MS / 10);
    const dibs_lock_opts *full = DIBS_LOCK_OPTS(.lease_ms = LONG_MS);

    (void)state;
    FINE(dibs_multi_lock_new(two, 2, &inner));
    dibs_lock *both[2] = {inner, c};
    FINE(dibs_multi_lock_new(both, 2, &outer));
    FINE(dibs_lock_acquire(outer, brief));
    FINE(dibs_lock_acquire(inner, full));
    assert_true(dibs_lock_valid_ms(inner, 0) > LONG_MS / 2);
    assert_true(dibs_lock_valid_ms(outer, 0) <= LONG_MS / 10);
    FINE(dibs_lock_acquire(c, full));
    assert_true(dibs_lock_valid_ms(outer, 0) > LONG_MS / 2);
    FINE(dibs_lock_acquire(outer, brief)); /* does not shorten */
    assert_true(dibs_lock_valid_ms(outer, 0) > LONG_MS / 2);
    assert_int_equal(dibs_lock_holds(outer, 0), 2);
    FINE(dibs_lock_release(outer, NULL));
    FINE(dibs_lock_release(c, NULL));
    FINE(dibs_lock_release(inner, NULL));
    FINE(dibs_lock_release(outer, NULL));
    assert_int_equal(dibs_lock_valid_ms(outer, 0), 0);
    dibs_lock_free(outer);
    dibs_lock_free(inner);
    dibs_lock_free(a);
    dibs_lock_free(b);
    dibs_lock_free(c);
    kit_world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MULTI_TEST(test_multi_time_ran_out),
        MULTI_TEST(test_multi_time_ran_out_try),
        MULTI_TEST(test_multi_time_ran_out_limit),
        MULTI_TEST(test_multi_time_taken_meanwhile),
        MULTI_TEST(test_multi_time_own_lease_stays),
        MULTI_TEST(test_multi_time_kept_with_limit),
        MULTI_TEST(test_multi_time_not_now),
        MULTI_TEST(test_multi_valid_of_nested),
    };
    return MULTI_RUN_PARALLEL("server.multi_time", tests);
}
