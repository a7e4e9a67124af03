/* SPDX-License-Identifier: MIT
 *
 * interop_latch.c - a latch of dibs and an RCountDownLatch of Redisson: either
 * side sets it, counts it down, and waits.
 */
#include "interop/kit.h"

#define NAME    "gate"
#define CHANNEL "redisson_countdownlatch__channel__{" NAME "}"

static dibs_latch *latch(void)
{
    dibs_latch *l = NULL;

    FINE(dibs_latch_new(dib, NAME, &l));
    return l;
}

static long long says(const char *op, const char *numbers)
{
    return SAYS("n", op, "latch", NAME, numbers).value;
}

static void agree(dibs_latch *l, int64_t want)
{
    int64_t left = -99;

    FINE(dibs_latch_count(l, &left));
    assert_int_equal(left, want);
    assert_int_equal(says("count", NULL), want);
}

/* Three Java threads that wait: two block, one does so in the background. */
enum { WAITERS = 3 };

static void java_waits(int id[WAITERS])
{
    static const char *const ways[WAITERS] = {"wait", "wait", "waitAsync"};

    ts_reset_stats(srv);
    for (int i = 0; i < WAITERS; i++) {
        char worker[8];
        snprintf(worker, sizeof worker, "w%d", i);
        id[i] = jvm_send(jvm, worker, ways[i], "latch", NAME, NULL);
    }
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    /* Each looks before it subscribes; the one in the background does not. */
    TS_WAIT(ts_command_calls(srv, "get") >= 2 * WAITERS - 1);
    kit_pass(50);
    for (int i = 0; i < WAITERS; i++)
        assert_false(jvm_done(jvm, id[i]));
}

static void java_went_on(const int id[WAITERS])
{
    for (int i = 0; i < WAITERS; i++)
        ENDS(jvm, id[i]);
}

struct waits {
    dibs_latch *l;
    dibs_err err;
    int64_t end_us;
    atomic_bool done;
    pthread_t thread;
};

static void *waits_main(void *arg)
{
    struct waits *w = arg;

    w->err = dibs_latch_wait(w->l, NULL);
    w->end_us = kit_now_us();
    atomic_store(&w->done, true);
    return NULL;
}

static void waits_start(struct waits *w, dibs_latch *l)
{
    memset(w, 0, sizeof *w);
    w->l = l;
    if (pthread_create(&w->thread, NULL, waits_main, w) != 0)
        ts_fatal("no thread");
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
}

static void waits_end(struct waits *w, dibs_err want)
{
    TS_WAIT(atomic_load(&w->done));
    pthread_join(w->thread, NULL);
    WANT(w->err, want);
}

/* ---- counting ---------------------------------------------------------- */

static void test_both_count(void **state)
{
    dibs_latch *l = latch();
    bool was_set = true;

    (void)state;
    agree(l, 0);
    assert_int_equal(says("set", "\t4"), 1);
    FINE(dibs_latch_set(l, 9, NULL, &was_set));
    assert_false(was_set);
    FINE(dibs_latch_count_down(l, NULL, NULL));
    says("down", NULL);
    agree(l, 2);
    for (int i = 0; i < 3; i++) /* a name counts once */
        FINE(dibs_latch_count_down(l, DIBS_LATCH_OPTS(.ticket = "bob"), NULL));
    agree(l, 1);
    says("down", NULL);
    agree(l, 0);
    FINE(dibs_latch_set(l, 2, NULL, &was_set));
    assert_true(was_set);
    assert_int_equal(says("set", "\t5"), 0);
    agree(l, 2);
    dibs_latch_free(l);
}

/* ---- waiting ----------------------------------------------------------- */

/* dibs counts the last, or opens it; each way all Java waiters go on. */
static void test_java_waits(void **state)
{
    struct wakes wakes = {.what = "dibs latch -> Java"};
    dibs_latch *l = latch();
    int id[WAITERS];

    (void)state;
    for (int i = 0; i < 6; i++) {
        if (i % 2)
            FINE(dibs_latch_set(l, 2, NULL, NULL));
        else
            assert_int_equal(says("set", "\t2"), 1);
        java_waits(id);
        if (i % 3 == 1)
            says("down", NULL);
        else
            FINE(dibs_latch_count_down(l, NULL, NULL));
        kit_pass(20);
        assert_false(jvm_done(jvm, id[0]));
        int64_t begin = kit_now_us();
        if (i % 3 == 2)
            FINE(dibs_latch_set(l, 0, NULL, NULL));
        else
            FINE(dibs_latch_count_down(l, NULL, NULL));
        java_went_on(id);
        wakes_add(&wakes, begin, jvm_await(jvm, id[0], TS_SOON).end_us);
        assert_true(ts_wait_numsub(srv, CHANNEL, 0));
    }
    wakes_print(&wakes);
    dibs_latch_free(l);
}

/* Java counts the last; or deletes it, which wakes no Java waiter, but a dibs
 * waiter hears that something happened, and looks. */
static void test_dibs_waits(void **state)
{
    struct wakes wakes = {.what = "Java latch -> dibs"};
    dibs_latch *l = latch();

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct waits w;
        if (i % 2)
            FINE(dibs_latch_set(l, 1, NULL, NULL));
        else
            assert_int_equal(says("set", "\t1"), 1);
        waits_start(&w, l);
        bool deletes = i % 3 == 2;
        struct jvm_answer a =
            SAYS("n", deletes ? "delete" : "down", "latch", NAME, NULL);
        waits_end(&w, DIBS_OK);
        if (!deletes)
            wakes_add(&wakes, a.begin_us, w.end_us);
        assert_true(ts_wait_numsub(srv, CHANNEL, 0));
    }
    wakes_print(&wakes);
    dibs_latch_free(l);
}

/* W91, W92: it is open, and the message was lost with Java's connection, or
 * there was none. Java waits for ever, until a dibs client counts down, or
 * opens what is open. */
static bool misses_message(dibs_latch *l, bool opens)
{
    int id[WAITERS];

    FINE(dibs_latch_set(l, 1, NULL, NULL));
    java_waits(id);
    ts_ok(srv, "DEL " NAME);
    if (!kit_cut_listeners(CHANNEL))
        return false;
    if (opens)
        FINE(dibs_latch_set(l, 0, NULL, NULL));
    else
        FINE(dibs_latch_count_down(l, NULL, NULL));
    java_went_on(id);
    assert_true(ts_wait_numsub(srv, CHANNEL, 0));
    return true;
}

static void test_missed_message(void **state)
{
    dibs_latch *l = latch();

    (void)state;
    for (int way = 0; way < 2; way++)
        assert_true(misses_message(l, way) || misses_message(l, way) ||
                    misses_message(l, way));
    dibs_latch_free(l);
}

/* A deadline that only dibs knows: Java goes on when a dibs client has found
 * out that it has passed. */
static void test_deadline(void **state)
{
    dibs_latch *l = latch();
    struct waits w;
    int id[WAITERS];

    (void)state;
    FINE(dibs_latch_set(l, 3, DIBS_LATCH_OPTS(.deadline_ms = 1500), NULL));
    java_waits(id);
    waits_start(&w, l);
    waits_end(&w, DIBS_ERR_TIMEOUT);
    java_went_on(id);
    agree(l, 0);
    dibs_latch_free(l);
}

/* W93: less than zero is open for dibs, and in the way of nobody. */
static void test_less_than_zero(void **state)
{
    dibs_latch *l = latch();
    bool was_set = false;

    (void)state;
    assert_int_equal(says("set", "\t-4"), 1);
    FINE(dibs_latch_wait(l, NULL));
    FINE(dibs_latch_set(l, 2, NULL, &was_set));
    assert_true(was_set);
    agree(l, 2);
    dibs_latch_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_OBJECT(test_both_count), KIT_OBJECT(test_java_waits),
        KIT_OBJECT(test_dibs_waits), KIT_OBJECT(test_missed_message),
        KIT_OBJECT(test_deadline),   KIT_OBJECT(test_less_than_zero),
    };
    return KIT_RUN("interop.latch", tests);
}
