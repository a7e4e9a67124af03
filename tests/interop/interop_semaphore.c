/* SPDX-License-Identifier: MIT
 *
 * interop_semaphore.c - a semaphore of dibs and an RSemaphore of Redisson: one
 * number. dibs keeps a book of its own beside it, so that what its holders had
 * comes back when they die.
 */
#include "interop/kit.h"

#define NAME    "permits"
#define CHANNEL "redisson_sc:{" NAME "}"
#define BOOK    "{" NAME "}:dibs_held"

enum { LEASE_MS = 4000 };

#define MANY(n) DIBS_SEMAPHORE_OPTS(.permits = (n))

static dibs_semaphore *semaphore(dibs_client *c)
{
    dibs_semaphore *s = NULL;

    FINE(dibs_semaphore_new(c, NAME, &s));
    return s;
}

static long long says(const char *op, const char *numbers)
{
    return SAYS("n", op, "semaphore", NAME, numbers).value;
}

/* What both sides say is free. */
static void agree(dibs_semaphore *s, int64_t want)
{
    int64_t available = -99;

    FINE(dibs_semaphore_available(s, &available));
    assert_int_equal(available, want);
    assert_int_equal(says("available", NULL), want);
}

/* ---- counting ---------------------------------------------------------- */

static void test_both_count(void **state)
{
    dibs_semaphore *s = semaphore(dib);
    bool was_set = true;
    int64_t drained = 0, available = 0;

    (void)state;
    assert_int_equal(says("set", "\t5"), 1);
    FINE(dibs_semaphore_set(s, 9, &was_set));
    assert_false(was_set);
    FINE(dibs_semaphore_try(s, MANY(2)));
    assert_int_equal(says("try", "\t2"), 1);
    agree(s, 1);
    WANT(dibs_semaphore_try(s, MANY(2)), DIBS_ERR_BUSY);
    assert_int_equal(says("try", "\t2"), 0);
    FINE(dibs_semaphore_release(s, MANY(2)));
    WANT(dibs_semaphore_release(s, MANY(2)), DIBS_ERR_NOT_OWNER);
    says("release", "\t2");
    agree(s, 5);
    FINE(dibs_semaphore_add(s, 2, &available));
    assert_int_equal(available, 7);
    says("add", "\t1");
    agree(s, 8);
    FINE(dibs_semaphore_drain(s, &drained));
    assert_int_equal(drained, 8);
    agree(s, 0);
    says("release", "\t3");
    assert_int_equal(says("drain", NULL), 3);
    says("delete", NULL);

    FINE(dibs_semaphore_set(s, 4, &was_set));
    assert_true(was_set);
    assert_int_equal(says("set", "\t9"), 0);
    agree(s, 4);
    dibs_semaphore_free(s);
}

/* A debt that Java leaves is not forgiven, and not told. */
static void test_debt(void **state)
{
    dibs_semaphore *s = semaphore(dib);
    int64_t drained = -1;

    (void)state;
    says("set", "\t2");
    FINE(dibs_semaphore_try(s, MANY(2)));
    says("add", "\t-3");
    agree(s, -3);
    WANT(dibs_semaphore_try(s, NULL), DIBS_ERR_BUSY);
    FINE(dibs_semaphore_drain(s, &drained));
    assert_int_equal(drained, 0);
    FINE(dibs_semaphore_release(s, MANY(2)));
    agree(s, -1);
    says("release", "\t2");
    agree(s, 1);
    FINE(dibs_semaphore_try(s, NULL));
    FINE(dibs_semaphore_release(s, NULL));
    dibs_semaphore_free(s);
}

/* Java deletes it: what dibs had is void, and does not make it anew. */
static void test_deleted(void **state)
{
    dibs_semaphore *s = semaphore(dib);

    (void)state;
    says("set", "\t2");
    FINE(dibs_semaphore_try(s, MANY(2)));
    assert_int_equal(says("delete", NULL), 1);
    WANT(dibs_semaphore_release(s, MANY(2)), DIBS_ERR_LOST);
    assert_int_equal(ts_nkeys(srv), 0);
    if (!jvm_older(jvm, 4, 0)) {
        assert_int_equal(says("releaseIfExists", "\t1"), 0);
        assert_int_equal(says("set", "\t0"), 1);
        assert_int_equal(says("releaseIfExists", "\t2"), 1);
        agree(s, 2);
    }
    dibs_semaphore_free(s);
}

/* ---- waiting ----------------------------------------------------------- */

static void test_java_waits(void **state)
{
    static const char *const ways[] = {"acquire", "acquireAsync"};
    dibs_semaphore *s = semaphore(dib);

    (void)state;
    FINE(dibs_semaphore_set(s, 2, NULL));
    for (size_t way = 0; way < COUNT(ways); way++) {
        char what[64];
        snprintf(what, sizeof what, "dibs semaphore -> Java %s", ways[way]);
        struct wakes wakes = {.what = what};
        for (int i = 0; i < 5; i++) {
            FINE(dibs_semaphore_acquire(s, MANY(2)));
            ts_reset_stats(srv);
            int id = jvm_send(jvm, "a", ways[way], "semaphore", NAME, "\t2");
            kit_wait_scripts(2);
            assert_false(jvm_done(jvm, id));
            int64_t begin = kit_now_us();
            FINE(dibs_semaphore_release(s, MANY(2)));
            wakes_add(&wakes, begin, ENDS(jvm, id).end_us);
            WANT(dibs_semaphore_try(s, NULL), DIBS_ERR_BUSY);
            says("release", "\t2");
        }
        wakes_print(&wakes);
    }
    agree(s, 2);
    dibs_semaphore_free(s);
}

struct asks {
    dibs_semaphore *s;
    int64_t end_us;
    dibs_err err;
    atomic_bool done;
    pthread_t thread;
};

static void *asks_main(void *arg)
{
    struct asks *a = arg;

    a->err = dibs_semaphore_acquire(a->s, MANY(2));
    a->end_us = kit_now_us();
    atomic_store(&a->done, true);
    return NULL;
}

static void asks_start(struct asks *a, dibs_semaphore *s)
{
    memset(a, 0, sizeof *a);
    a->s = s;
    if (pthread_create(&a->thread, NULL, asks_main, a) != 0)
        ts_fatal("no thread");
}

static void asks_end(struct asks *a)
{
    TS_WAIT(atomic_load(&a->done));
    pthread_join(a->thread, NULL);
    FINE(a->err);
}

static void test_dibs_waits(void **state)
{
    struct wakes wakes = {.what = "Java semaphore -> dibs"};
    dibs_semaphore *s = semaphore(dib);

    (void)state;
    says("set", "\t0");
    for (int i = 0; i < 5; i++) {
        struct asks a;
        asks_start(&a, s);
        assert_true(ts_wait_numsub(srv, CHANNEL, 1));
        says("release", "\t1");
        struct jvm_answer gives =
            SAYS("n", "release", "semaphore", NAME, "\t1");
        asks_end(&a);
        wakes_add(&wakes, gives.begin_us, a.end_us);
        assert_int_equal(says("try", "\t1"), 0);
        FINE(dibs_semaphore_release(s, MANY(2)));
        assert_int_equal(says("drain", NULL), 2);
        assert_true(ts_wait_numsub(srv, CHANNEL, 0));
    }
    wakes_print(&wakes);
    dibs_semaphore_free(s);
}

/* W75: Java waiters in the background take one message each. However permits
 * come from dibs, each of three waiters gets one. */
static void by_release(dibs_semaphore *s)
{
    FINE(dibs_semaphore_release(s, MANY(3)));
}

static void by_add(dibs_semaphore *s)
{
    FINE(dibs_semaphore_add(s, 3, NULL));
}

static void by_set(dibs_semaphore *s)
{
    FINE(dibs_semaphore_set(s, 3, NULL));
}

static void test_all_in_the_background(void **state)
{
    void (*const ways[])(dibs_semaphore *) = {by_release, by_add, by_set};
    dibs_semaphore *s = semaphore(dib);

    (void)state;
    for (size_t way = 0; way < COUNT(ways); way++) {
        int id[3];
        if (ways[way] != by_set)
            FINE(dibs_semaphore_set(s, 3, NULL));
        if (ways[way] != by_set)
            FINE(dibs_semaphore_acquire(s, MANY(3)));
        ts_reset_stats(srv);
        for (int i = 0; i < 3; i++) {
            char worker[8];
            snprintf(worker, sizeof worker, "w%d", i);
            id[i] =
                jvm_send(jvm, worker, "acquireAsync", "semaphore", NAME, "\t1");
        }
        kit_wait_scripts(6);
        ways[way](s);
        for (int i = 0; i < 3; i++)
            ENDS(jvm, id[i]);
        if (ways[way] == by_add)
            FINE(dibs_semaphore_release(s, MANY(3)));
        says("delete", NULL);
    }
    dibs_semaphore_free(s);
}

/* W91: the message is lost with Java's connection, and Java does not look
 * again. The next release wakes it, or an add of nothing. */
static bool misses_message(dibs_semaphore *s, bool release)
{
    says("set", "\t0");
    int id = jvm_send(jvm, "a", "acquire", "semaphore", NAME, "\t1");
    kit_wait_parked(jvm, "a");
    ts_ok(srv, "EVAL %s 1 " NAME,
          "redis.call('incr', KEYS[1])"); /* and nobody is told */
    if (!kit_cut_listeners(CHANNEL)) {
        ts_ok(srv, "DEL " NAME);
        return false;
    }
    if (release) {
        FINE(dibs_semaphore_acquire(s, NULL));
        FINE(dibs_semaphore_release(s, NULL));
    } else {
        FINE(dibs_semaphore_add(s, 0, NULL));
    }
    ENDS(jvm, id);
    return true;
}

static void test_missed_message(void **state)
{
    dibs_semaphore *s = semaphore(dib);

    (void)state;
    for (int way = 0; way < 2; way++)
        assert_true(misses_message(s, way) || misses_message(s, way) ||
                    misses_message(s, way));
    agree(s, 0);
    dibs_semaphore_free(s);
}

/* ---- death ------------------------------------------------------------- */

static int64_t hold_two(void)
{
    dibs_client *c = NULL;
    dibs_semaphore *s = NULL;

    if (dibs_client_open(ts_server_url(srv),
                         DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS),
                         &c) != DIBS_OK ||
        dibs_semaphore_new(c, NAME, &s) != DIBS_OK ||
        dibs_semaphore_set(s, 2, NULL) != DIBS_OK ||
        dibs_semaphore_try(s, MANY(2)) != DIBS_OK)
        return -1;
    return 2;
}

/* While any dibs client waits for it, permits of a dead one come back within a
 * lease: to Java, too. */
static void test_dibs_holder_dies(void **state)
{
    int64_t held;
    struct ts_child *doomed = kit_doom(hold_two, &held);
    dibs_semaphore *s = semaphore(dib);
    struct asks a;

    (void)state;
    asks_start(&a, s);
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    ts_child_kill(doomed);
    int64_t begin = kit_now_us();
    asks_end(&a);
    print_message("             dibs has a dead holder's permits after %.1f s "
                  "(the lease: %.1f s)\n",
                  (double)(a.end_us - begin) / 1e6, LEASE_MS / 1000.0);
    FINE(dibs_semaphore_release(s, MANY(2)));
    agree(s, 2);
    dibs_semaphore_free(s);
    ts_child_free(doomed);
}

/* Only Java waits: RSemaphore knows no leases, so the next dibs client that
 * asks anything takes the dead one's permits back, and all Java waiters wake.
 */
static void test_dibs_holder_dies_java_waits(void **state)
{
    int64_t held, available = -1;
    struct ts_child *doomed = kit_doom(hold_two, &held);
    dibs_semaphore *s = semaphore(dib);
    int id[2];

    (void)state;
    ts_reset_stats(srv);
    id[0] = jvm_send(jvm, "a", "acquireAsync", "semaphore", NAME, "\t1");
    id[1] = jvm_send(jvm, "b", "acquireAsync", "semaphore", NAME, "\t1");
    kit_wait_scripts(4);
    ts_child_kill(doomed);
    struct ts_wait w = ts_wait_begin(TS_SOON);
    do
        FINE(dibs_semaphore_available(s, &available));
    while (available < 2 && !jvm_done(jvm, id[0]) && ts_wait_step(&w));
    for (int i = 0; i < 2; i++)
        ENDS(jvm, id[i]);
    agree(s, 0);
    assert_int_equal(ts_int(srv, "ZCARD " BOOK), 0);
    dibs_semaphore_free(s);
    ts_child_free(doomed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_OBJECT(test_both_count),
        KIT_OBJECT(test_debt),
        KIT_OBJECT(test_deleted),
        KIT_OBJECT(test_java_waits),
        KIT_OBJECT(test_dibs_waits),
        KIT_OBJECT(test_all_in_the_background),
        KIT_OBJECT(test_missed_message),
        KIT_OBJECT(test_dibs_holder_dies),
        KIT_OBJECT(test_dibs_holder_dies_java_waits),
    };
    return KIT_RUN("interop.semaphore", tests);
}
