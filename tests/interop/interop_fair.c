/* SPDX-License-Identifier: MIT
 *
 * interop_fair.c - one queue for dibs and Redisson: first come, first served,
 * the one that came; and nobody who died stands in the way for long.
 */
#include "interop/kit.h"

#define NAME    "till"
#define QUEUE   "redisson_lock_queue:{" NAME "}"
#define SCORES  "redisson_lock_timeout:{" NAME "}"
#define WAITERS 20

/* ---- a queue of both --------------------------------------------------- */

struct line {
    struct jvm *java;
    dibs_client *dibs;
    struct waiter w[WAITERS];
    int id[WAITERS];
    char worker[WAITERS][16];
    bool is_java[WAITERS];
    int length;
};

/* One more at the end; returns when it stands there. */
static void line_join(struct line *line, bool is_java)
{
    int i = line->length++;

    line->is_java[i] = is_java;
    if (is_java) {
        snprintf(line->worker[i], sizeof line->worker[i], "f%d", i);
        line->id[i] =
            jvm_send(line->java, line->worker[i], "lock", "fair", NAME, "\t-1");
    } else {
        waiter_start(&line->w[i], line->dibs, FAIR, NAME, NULL);
    }
    kit_wait_queue(NAME, line->length);
}

static bool line_served(struct line *line, int i)
{
    return line->is_java[i] ? jvm_done(line->java, line->id[i])
                            : atomic_load(&line->w[i].done);
}

/* The i-th must be the next, and nobody behind it. Gives when it got the
 * lock. */
static int64_t line_next(struct line *line, int i)
{
    int64_t end = 0;

    TS_WAIT(line_served(line, i));
    for (int k = i + 1; k < line->length; k++)
        if (line_served(line, k))
            fail_msg("number %d is served before number %d", k, i);
    if (line->is_java[i]) {
        end = GRANTED(line->java, line->id[i]).end_us;
    } else {
        FINE(waiter_end(&line->w[i]));
        end = line->w[i].end_us;
    }
    return end;
}

static int64_t line_leave(struct line *line, int i)
{
    if (!line->is_java[i])
        return waiter_release(&line->w[i]);
    struct jvm_answer a =
        jvm_ask(line->java, line->worker[i], "unlock", "fair", NAME, NULL);
    assert_true(a.ok);
    return a.begin_us;
}

/* Twenty come in a given order, hold the lock for so long each, and are served
 * in that order. */
static void serve_all(struct jvm *java, dibs_client *dibs, int64_t hold_ms,
                      const char *what)
{
    struct line line = {.java = java, .dibs = dibs};
    struct wakes wakes = {.what = what};

    JAVA_AT(java, "holder", "lock", FAIR, NAME, "\t-1");
    /* DDJ DJJ D D J ...: next to their own kind, and to the other. */
    for (int i = 0; i < WAITERS; i++)
        line_join(&line, (0x5a6b4 >> i & 1) != 0);
    struct jvm_answer a = jvm_ask(java, "holder", "unlock", "fair", NAME, NULL);
    assert_true(a.ok);
    int64_t left = a.begin_us;
    for (int i = 0; i < WAITERS; i++) {
        wakes_add(&wakes, left, line_next(&line, i));
        kit_pass(hold_ms);
        left = line_leave(&line, i);
    }
    wakes_print(&wakes);
}

static void test_order_of_arrival(void **state)
{
    (void)state;
    serve_all(jvm, dib, 1, "20 mixed waiters, 300 s");
}

/* The whole takes longer than the 5 s that a silent waiter counts. */
static void test_order_of_arrival_5s(void **state)
{
    if (!jvm_has_fair_wait(jvm)) {
        print_message("             Redisson %s has no fairLockWaitTimeout\n",
                      jvm_version(jvm));
        (void)state;
        return;
    }
    struct jvm *java = kit_java("fairwait=5000", NULL);
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.fair_wait_ms = 5000));

    serve_all(java, c, 500, "20 mixed waiters, 5 s");
    dibs_client_free(c);
    jvm_stop(java);
}

/* ---- scores ------------------------------------------------------------ */

/* Java acquires and takes its W off every score; dibs keeps its place, and
 * counts as alive. */
static void test_java_shifts_scores(void **state)
{
    struct line line = {.java = jvm, .dibs = dib};
    char text[DIBS_OWNER_MAX + 8];

    (void)state;
    JAVA("holder", "lock", FAIR, NAME, "\t-1");
    for (int i = 0; i < 9; i++)
        line_join(&line, i % 3 != 1);
    JAVA("holder", "unlock", FAIR, NAME, NULL);
    for (int i = 0; i < line.length; i++) {
        line_next(&line, i);
        assert_int_equal(ts_int(srv, "LLEN " QUEUE), line.length - 1 - i);
        if (i + 1 < line.length && !line.is_java[i + 1]) {
            char *head = ts_str(srv, "LINDEX " QUEUE " 0");
            snprintf(text, sizeof text, "%s:%llu", dibs_client_id(dib),
                     (unsigned long long)line.w[i + 1].opts.owner);
            assert_string_equal(head, text);
            char *score = ts_str(srv, "ZSCORE " SCORES " %s", head);
            redisReply *now = ts_cmd(srv, "TIME");
            assert_true(atof(score) / 1000.0 > atof(now->element[0]->str));
            freeReplyObject(now);
            free(score);
            free(head);
        }
        line_leave(&line, i);
    }
}

/* Waiters of both sides give up; the others keep their order. */
static void test_some_give_up(void **state)
{
    struct line line = {.java = jvm, .dibs = dib};
    struct waiter quits;

    (void)state;
    JAVA("holder", "lock", FAIR, NAME, "\t-1");
    line_join(&line, false);
    int id = jvm_send(jvm, "quits", "tryLock", "fair", NAME, "\t4000\t-1");
    kit_wait_queue(NAME, 2);
    waiter_start(&quits, dib, FAIR, NAME, DIBS_LOCK_OPTS(.wait_ms = 4000));
    kit_wait_queue(NAME, 3);
    assert_int_equal(jvm_await(jvm, id, TS_SOON).value, 0);
    WANT(waiter_end(&quits), DIBS_ERR_TIMEOUT);
    dibs_lock_free(quits.l);
    kit_wait_queue(NAME, 1);
    line_join(&line, true);
    line_join(&line, false);
    line_join(&line, true);
    JAVA("holder", "unlock", FAIR, NAME, NULL);
    for (int i = 0; i < line.length; i++) {
        line_next(&line, i);
        line_leave(&line, i);
    }
}

/* ---- the dead ---------------------------------------------------------- */

/* Three Java waiters at the head die. The default would have the rest wait for
 * 300 s and more. */
static void dead_java_waiters(bool java_releases)
{
    struct jvm *doomed = kit_java(NULL, NULL);
    struct line line = {.java = jvm, .dibs = dib};
    dibs_lock *l = kit_lock(dib, FAIR, NAME);
    struct waiter w;

    if (java_releases)
        JAVA("holder", "lock", FAIR, NAME, "\t-1");
    else
        FINE(dibs_lock_acquire(l, NULL));
    for (int i = 0; i < 3; i++) {
        char worker[16];
        snprintf(worker, sizeof worker, "d%d", i);
        jvm_send(doomed, worker, "lock", "fair", NAME, "\t-1");
        kit_wait_queue(NAME, i + 1);
    }
    waiter_start(&w, dib, FAIR, NAME, NULL);
    kit_wait_queue(NAME, 4);
    jvm_kill(doomed);
    int64_t begin = kit_now_us();
    if (java_releases)
        JAVA("holder", "unlock", FAIR, NAME, NULL);
    else
        FINE(dibs_lock_release(l, NULL));
    FINE(waiter_end(&w));
    print_message("             three dead Java waiters, %s released: %.1f s\n",
                  java_releases ? "Java" : "dibs",
                  (double)(w.end_us - begin) / 1e6);
    line_join(&line, true);
    waiter_release(&w);
    line_next(&line, 0);
    line_leave(&line, 0);
    dibs_lock_free(l);
    jvm_stop(doomed);
}

static void test_dead_java_waiters_dibs_releases(void **state)
{
    (void)state;
    dead_java_waiters(false);
}

static void test_dead_java_waiters_java_releases(void **state)
{
    (void)state;
    dead_java_waiters(true);
}

static int stand_in_line(int fd, void *arg)
{
    dibs_client *c = NULL;

    (void)fd;
    (void)arg;
    if (dibs_client_open(ts_server_url(srv), NULL, &c) != DIBS_OK)
        return 1;
    return dibs_lock_acquire(kit_lock(c, FAIR, NAME), NULL) == DIBS_OK;
}

/* A dibs waiter dies; the Java waiter behind it is let in, since it was dibs
 * who released, and looks again a second later. */
static void test_dead_dibs_waiter(void **state)
{
    dibs_lock *l = kit_lock(dib, FAIR, NAME);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    struct ts_child *doomed = ts_spawn(stand_in_line, NULL);
    kit_wait_queue(NAME, 1);
    int id = jvm_send(jvm, "b", "lock", "fair", NAME, "\t-1");
    kit_wait_queue(NAME, 2);
    ts_child_kill(doomed);
    TS_WAIT(ts_nchannels(srv) == 1);
    int64_t begin = kit_now_us();
    FINE(dibs_lock_release(l, NULL));
    struct jvm_answer a = GRANTED(jvm, id);
    print_message("             a dead dibs waiter, dibs released: %.1f s\n",
                  (double)(a.end_us - begin) / 1e6);
    JAVA("b", "unlock", FAIR, NAME, NULL);
    ts_child_free(doomed);
    dibs_lock_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_order_of_arrival),
        KIT_TEST(test_order_of_arrival_5s),
        KIT_TEST(test_java_shifts_scores),
        KIT_TEST(test_some_give_up),
        KIT_TEST(test_dead_java_waiters_dibs_releases),
        KIT_TEST(test_dead_java_waiters_java_releases),
        KIT_TEST(test_dead_dibs_waiter),
    };
    return KIT_RUN("interop.fair", tests);
}
