/* SPDX-License-Identifier: MIT
 *
 * test_lost.c - on_lost, exactly: a loss is told once for each acquire that
 * asked for it, by on_lost or by the release that finds out; and when the
 * release has returned, on_lost does not run and does not come.
 */
#include "server/lost_kit.h"

/* ---- queued, and not begun --------------------------------------------- */

static void test_lost_behind_slow_callback(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct block b;

    (void)state;
    atomic_store(&stray, 0);
    block_start(&b, c);
    WANT(use_on_stack(l, dibs_owner_new(c)), DIBS_ERR_LOST);
    block_end(&b, c);
    assert_int_equal(atomic_load(&stray), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* The same for several at once. */
static void test_lost_group_behind_slow_callback(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb@1 pc@2");
    struct block b[CLIENTS];

    (void)state;
    atomic_store(&stray, 0);
    for (int i = 0; i < CLIENTS; i++)
        block_start(&b[i], w.c[i]);
    WANT(use_on_stack(g, dibs_owner_new(w.c[0])), DIBS_ERR_LOST);
    for (int i = 0; i < CLIENTS; i++)
        block_end(&b[i], w.c[i]);
    assert_int_equal(atomic_load(&stray), 0);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* Each level has its own: the one that is released hears no more, the other
 * does. */
static void test_lost_levels(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard outer, inner;
    struct block b;

    (void)state;
    atomic_store(&stray, 0);
    guard_set(&outer);
    guard_set(&inner);
    FINE(dibs_lock_acquire(l, GUARDED(owner, &outer)));
    FINE(dibs_lock_acquire(l, GUARDED(owner, &inner)));
    block_start(&b, c);
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);
    memset(&inner, 0, sizeof inner);
    block_end(&b, c);
    TS_WAIT(atomic_load(&outer.ended) == 1);
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);
    assert_int_equal(atomic_load(&outer.begun), 1);
    assert_int_equal(atomic_load(&stray), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* The release finds out: of one level of two, and the other is told; of the
 * last, and nobody is. */
static void test_lost_found_by_release(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard outer, inner;

    (void)state;
    guard_set(&outer);
    guard_set(&inner);
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.owner = owner, .lease_ms = LONG_MS, .on_lost = on_lost,
                       .arg = &outer);
    FINE(dibs_lock_acquire(l, o));
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.owner = owner, .lease_ms = LONG_MS,
                                          .on_lost = on_lost, .arg = &inner)));
    ts_ok(srv, "DEL l");
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);
    TS_WAIT(atomic_load(&outer.ended) == 1);
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);

    FINE(dibs_lock_acquire(l, o));
    ts_ok(srv, "DEL l");
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c); /* which runs all callbacks there are */
    assert_int_equal(atomic_load(&outer.begun), 1);
    assert_int_equal(atomic_load(&inner.begun), 0);
}

/* A release of one of two levels is refused, and the level stays. It hears no
 * more of a loss anyway: the release has returned. */
static void test_lost_release_refused(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard outer, inner;

    (void)state;
    atomic_store(&stray, 0);
    guard_set(&outer);
    guard_set(&inner);
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.owner = owner, .lease_ms = LONG_MS,
                                          .on_lost = on_lost, .arg = &outer)));
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.owner = owner, .lease_ms = LONG_MS,
                                          .on_lost = on_lost, .arg = &inner)));
    ts_ok(srv, "ACL SETUSER default -eval -evalsha");
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_AUTH);
    memset(&inner, 0, sizeof inner);
    ts_ok(srv, "ACL SETUSER default +eval +evalsha");
    assert_int_equal(dibs_lock_holds(l, owner), 2);
    ts_ok(srv, "DEL l");
    WANT(dibs_lock_acquire(l, OWNED(owner)), DIBS_ERR_LOST);
    assert_non_null(strstr(dibs_error_text(), "'l': this owner's earlier hold "
                                              "has ended"));
    WANT(dibs_lock_try(l, OWNED(owner)), DIBS_ERR_LOST);
    assert_non_null(strstr(dibs_error_text(), "release it, then acquire "
                                              "again"));
    TS_WAIT(atomic_load(&outer.ended) == 1);
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c); /* which runs all callbacks there are */
    assert_int_equal(atomic_load(&stray), 0);
}

struct in_callback {
    dibs_lock *l;
    dibs_owner owner;
    struct told told;
    sem_t gate;
};

static void release_here(dibs_err err, void *arg)
{
    struct in_callback *in = arg;

    (void)err;
    await(&in->gate);
    kit_tell(dibs_lock_release(in->l, OWNED(in->owner)), &in->told);
}

/* Another callback, on the thread on which on_lost would run next, releases. */
static void test_lost_release_in_other_callback(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *other = kit_lock(c, "other");
    struct in_callback in = {.l = l, .owner = dibs_owner_new(c)};
    struct guard g;

    (void)state;
    guard_set(&g);
    sem_init(&in.gate, 0, 0);
    FINE(dibs_lock_acquire(l, GUARDED(in.owner, &g)));
    FINE(dibs_lock_acquire_async(other, OWNED(in.owner), release_here, &in));
    TS_WAIT(dibs_lock_state(l, in.owner) == DIBS_LOST);
    sem_post(&in.gate);
    WANT(kit_answer(&in.told), DIBS_ERR_LOST);
    FINE(dibs_lock_release(other, OWNED(in.owner)));
    dibs_lock_free(l);
    dibs_lock_free(other);
    kit_close(c);
    assert_int_equal(atomic_load(&g.begun), 0);
    sem_destroy(&in.gate);
}

/* ---- while it runs ----------------------------------------------------- */

/* Another thread's release comes back when on_lost has. */
static void release_waits(dibs_lock *l, dibs_client *c)
{
    struct releaser r = {.l = l, .owner = dibs_owner_new(c)};
    struct guard g;
    sem_t gate;

    sem_init(&gate, 0, 0);
    guard_set(&g);
    g.gate = &gate;
    g.watch = &r.back;
    FINE(dibs_lock_acquire(l, GUARDED(r.owner, &g)));
    TS_WAIT(atomic_load(&g.begun) == 1);
    assert_int_equal(pthread_create(&r.thread, NULL, release_main, &r), 0);
    TS_WAIT(atomic_load(&r.calls));
    sem_post(&gate);
    pthread_join(r.thread, NULL);
    WANT(r.err, DIBS_ERR_LOST);
    assert_int_equal(atomic_load(&g.ended), 1);
    assert_false(g.saw);
    sem_destroy(&gate);
}

static void test_lost_release_waits(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    release_waits(l, c);
    dibs_lock_free(l);
    kit_close(c);
}

static void test_lost_group_release_waits(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb@1 pc@2");

    (void)state;
    release_waits(g, w.c[0]);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* Inside on_lost itself there is nothing to wait for. */
static void test_lost_release_inside(void **state)
{
    struct world w = kit_world(NULL);

    (void)state;
    for (int i = 0; i < 2; i++) {
        dibs_lock *l = kit_group(&w, i ? "pa pb@1" : "pa");
        struct guard g;

        guard_set(&g);
        g.gives = l;
        g.owner = dibs_owner_new(w.c[0]);
        FINE(dibs_lock_acquire(l, GUARDED(g.owner, &g)));
        TS_WAIT(atomic_load(&g.ended) == 1);
        WANT(g.gave, DIBS_ERR_LOST);
        WANT(dibs_lock_release(l, OWNED(g.owner)), DIBS_ERR_NOT_OWNER);
        dibs_lock_free(l);
    }
    kit_world_end(&w);
}

/* Two callbacks, on two threads, each of which releases the other's lock. */
static void test_lost_release_crosswise(void **state)
{
    struct world w = kit_world(NULL);
    struct guard g[2];
    dibs_lock *l[2];
    sem_t gate[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        guard_set(&g[i]);
        sem_init(&gate[i], 0, 0);
        l[i] = kit_lock(w.c[i], i ? "b" : "a");
        g[i].gate = &gate[i];
        g[i].owner = dibs_owner_new(w.c[0]);
    }
    for (int i = 0; i < 2; i++) {
        g[i].gives = l[1 - i];
        FINE(dibs_lock_acquire(l[i], GUARDED(g[i].owner, &g[i])));
    }
    dibs_owner swap = g[0].owner;
    g[0].owner = g[1].owner;
    g[1].owner = swap;
    TS_WAIT(atomic_load(&g[0].begun) == 1 && atomic_load(&g[1].begun) == 1);
    for (int i = 0; i < 2; i++)
        sem_post(&gate[i]);
    for (int i = 0; i < 2; i++) {
        TS_WAIT(atomic_load(&g[i].ended) == 1);
        WANT(g[i].gave, DIBS_ERR_LOST);
    }
    for (int i = 0; i < 2; i++) {
        sem_destroy(&gate[i]);
        dibs_lock_free(l[i]);
    }
    kit_world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOST_TEST(test_lost_behind_slow_callback),
        LOST_TEST(test_lost_group_behind_slow_callback),
        LOST_TEST(test_lost_levels),
        LOST_TEST(test_lost_found_by_release),
        LOST_TEST(test_lost_release_refused),
        LOST_TEST(test_lost_release_in_other_callback),
        LOST_TEST(test_lost_release_waits),
        LOST_TEST(test_lost_group_release_waits),
        LOST_TEST(test_lost_release_inside),
        LOST_TEST(test_lost_release_crosswise),
    };
    return MULTI_RUN_PARALLEL("server.lost", tests);
}
