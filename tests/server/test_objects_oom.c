/* SPDX-License-Identifier: MIT
 *
 * test_objects_oom.c - memory ends, at every point there is, in fenced locks,
 * slots, semaphores and latches.
 *
 * As test_oom.c does it for the plain lock: a scenario is run with its first
 * allocation failing, then its second, and so on, and once more with all that
 * follow failing too. Nothing crashes, hangs or leaks; and when there is memory
 * again, no permit is lost and none was made.
 */
#include "server/kit.h"

#ifdef DIBS_FAULTS

#include "base/mem.h"

enum { TOTAL = 3 };

static dibs_client *client;
static dibs_lock *fenced, *slots;
static dibs_semaphore *permits;
static dibs_latch *gate;
static bool starved; /* the failure was met */

static bool excusable(dibs_err err)
{
    return err == DIBS_OK || err == DIBS_ERR_NOMEM || err == DIBS_ERR_CONN ||
           err == DIBS_ERR_UNKNOWN || err == DIBS_ERR_TIMEOUT;
}

/* ---- the walk ---------------------------------------------------------- */

static void open_all(int64_t lease_ms, int64_t timeout_ms)
{
    client = kit_open(DIBS_CLIENT_OPTS(.lease_ms = lease_ms,
                                       .command_timeout_ms = timeout_ms));
    FINE(dibs_fenced_lock_new(client, "f", &fenced));
    FINE(dibs_slots_lock_new(client, "s", TOTAL, &slots));
    FINE(dibs_semaphore_new(client, "p", &permits));
    FINE(dibs_latch_new(client, "g", &gate));
    /* A command has little time here. */
    TS_WAIT(dibs_slots_set(slots, TOTAL) == DIBS_OK);
    TS_WAIT(dibs_semaphore_set(permits, TOTAL, NULL) == DIBS_OK);
}

static long long number_at(const char *key)
{
    return ts_int(srv, "EVAL %s 1 %s",
                  "return tonumber(redis.call('get', KEYS[1]) or 0)", key);
}

/* A permit whose holder could not be told comes back with its lease, to
 * somebody who asks. */
static bool slots_sound(void)
{
    dibs_err err = dibs_lock_try(slots, NULL);

    if (err == DIBS_OK)
        FINE(dibs_lock_release(slots, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
    return err == DIBS_OK && number_at("s") == TOTAL &&
           ts_int(srv, "EXISTS {s}:timeout") == 0;
}

static bool permits_sound(void)
{
    int64_t n = 0;

    return dibs_semaphore_available(permits, &n) == DIBS_OK && n == TOTAL &&
           ts_int(srv, "EXISTS {p}:dibs_held") == 0;
}

static void close_all(void)
{
    TS_WAIT(slots_sound());
    TS_WAIT(permits_sound());
    FINE(dibs_lock_acquire(fenced, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
    TS_WAIT(dibs_latch_set(gate, 0, NULL, NULL) == DIBS_OK);
    dibs_lock_free(fenced);
    dibs_lock_free(slots);
    dibs_semaphore_free(permits);
    dibs_latch_free(gate);
    kit_close(client);
    assert_int_equal(ts_int(srv, "EXISTS f"), 0);
    assert_int_equal(ts_int(srv, "EXISTS g"), 0);
    ts_ok(srv, "FLUSHALL");
}

static void one_run(const char *(*run)(void), long n, bool all)
{
    size_t threads = ts_threads(), fds = ts_fds();

    open_all(kit_chance() + 200, ts_ms(100));
    dibs__mem_fail_at(n, all);
    const char *odd = run();
    starved = dibs__mem_fail_at(0, false) >= n;
    if (odd)
        fail_msg("allocation %ld%s: %s", n, all ? " and all after it" : "",
                 odd);
    close_all();
    TS_WAIT(ts_threads() <= threads);
    TS_WAIT(ts_fds() <= fds);
}

static void walk(const char *(*run)(void))
{
    enum { MOST = 300 }; /* more means that it never ends */

    for (int all = 0; all <= 1; all++) {
        long n = 1;
        do
            if (ts_walks(n, all))
                one_run(run, n, all);
        while (starved && ++n < MOST);
        assert_true(n < MOST);
    }
}

/* ---- handles ----------------------------------------------------------- */

static const char *odd_handle(dibs_err err, const void *handle)
{
    if (err != DIBS_OK && err != DIBS_ERR_NOMEM)
        return dibs_strerror(err);
    return (err == DIBS_OK) == (handle != NULL) ? NULL
                                                : "a handle and an error";
}

static const char *run_new(void)
{
    dibs_lock *f = NULL, *s = NULL;
    dibs_semaphore *p = NULL;
    dibs_latch *g = NULL;
    dibs_err errs[4] = {
        dibs_fenced_lock_new(client, "F", &f),
        dibs_slots_lock_new(client, "S", 1, &s),
        dibs_semaphore_new(client, "P", &p),
        dibs_latch_new(client, "G", &g),
    };
    const void *handles[4] = {f, s, p, g};
    const char *odd = NULL;

    for (int i = 0; i < 4 && !odd; i++)
        odd = odd_handle(errs[i], handles[i]);
    dibs_lock_free(f);
    dibs_lock_free(s);
    dibs_semaphore_free(p);
    dibs_latch_free(g);
    return odd;
}

static void test_objects_oom_new(void **state)
{
    (void)state;
    walk(run_new);
}

/* ---- locks ------------------------------------------------------------- */

/* What is said is so, and what is held is given back. */
static const char *try_lock(dibs_lock *l)
{
    struct lost lost = {.times = 0};
    dibs_err err =
        dibs_lock_try(l, DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost));
    const char *odd = excusable(err) ? NULL : dibs_strerror(err);

    if (err == DIBS_OK && dibs_lock_state(l, 0) == DIBS_NOT_HELD)
        odd = "it says OK, and is not held";
    if (err == DIBS_OK)
        (void)dibs_lock_release(l, NULL);
    return odd;
}

static const char *run_locks(void)
{
    const char *odd = try_lock(fenced);

    return odd ? odd : try_lock(slots);
}

static void test_objects_oom_locks(void **state)
{
    (void)state;
    walk(run_locks);
}

/* ---- semaphores and latches -------------------------------------------- */

static const char *run_permits(void)
{
    struct lost lost = {.times = 0};
    dibs_err err = dibs_semaphore_acquire(
        permits, DIBS_SEMAPHORE_OPTS(.permits = 2, .wait_ms = ts_ms(100),
                                     .on_lost = kit_lose, .arg = &lost));
    const char *odd = excusable(err) ? NULL : dibs_strerror(err);

    if (err == DIBS_OK) /* it tells of no loss any more */
        (void)dibs_semaphore_release(permits,
                                     DIBS_SEMAPHORE_OPTS(.permits = 2));
    return odd;
}

static const char *run_latch(void)
{
    dibs_err errs[3] = {
        dibs_latch_set(gate, 2, NULL, NULL),
        dibs_latch_count_down(gate, DIBS_LATCH_OPTS(.ticket = "bob"), NULL),
        dibs_latch_wait(gate, DIBS_LATCH_OPTS(.wait_ms = 20)),
    };

    for (int i = 0; i < 3; i++)
        if (!excusable(errs[i]))
            return dibs_strerror(errs[i]);
    return NULL;
}

static void test_objects_oom_permits(void **state)
{
    (void)state;
    walk(run_permits);
}

static void test_objects_oom_latch(void **state)
{
    (void)state;
    walk(run_latch);
}

/* ---- without a thread -------------------------------------------------- */

static struct told told[4];

/* A callback comes if and only if the call began. */
static const char *run_async(void)
{
    memset(told, 0, sizeof told);
    dibs_err began[4] = {
        dibs_latch_set(gate, 1, NULL, NULL),
        dibs_latch_wait_async(gate, DIBS_LATCH_OPTS(.wait_ms = TS_SOON),
                              kit_tell, &told[1]),
        dibs_latch_count_down_async(gate, DIBS_LATCH_OPTS(.ticket = "eve"),
                                    kit_tell, &told[2]),
        dibs_semaphore_try_async(permits, NULL, kit_tell, &told[3]),
    };
    dibs__mem_fail_at(0, false); /* what is under way needs some */
    if (began[2] != DIBS_OK || kit_answer(&told[2]) != DIBS_OK)
        (void)!dibs_latch_set(gate, 0, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        if (!excusable(began[i]))
            return dibs_strerror(began[i]);
        if (i && began[i] == DIBS_OK && !excusable(kit_answer(&told[i])))
            return dibs_strerror(atomic_load(&told[i].err));
    }
    (void)dibs_semaphore_release(permits, NULL);
    return NULL;
}

/* A release that could not begin has given nothing back: the next one can. */
static void test_objects_oom_release(void **state)
{
    static struct told one;

    (void)state;
    open_all(0, TS_SOON);
    for (long n = 1; n <= 4; n++) {
        memset(&one, 0, sizeof one);
        FINE(dibs_semaphore_acquire(permits, NULL));
        dibs__mem_fail_at(n, true);
        dibs_err began =
            dibs_semaphore_release_async(permits, NULL, kit_tell, &one);
        dibs__mem_fail_at(0, false);
        assert_true(excusable(began));
        if (began == DIBS_OK)
            FINE(kit_answer(&one));
        else
            FINE(dibs_semaphore_release(permits, NULL));
    }
    close_all();
}

/* run_async gives memory back by itself, so it is walked by number. */
static void test_objects_oom_async(void **state)
{
    (void)state;
    for (long n = 1; n <= 12; n++)
        one_run(run_async, n, n % 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_objects_oom_new),     KIT_TEST(test_objects_oom_locks),
        KIT_TEST(test_objects_oom_permits), KIT_TEST(test_objects_oom_latch),
        KIT_TEST(test_objects_oom_async),   KIT_TEST(test_objects_oom_release),
    };

    return KIT_RUN("objects_oom", tests);
}

#else

int main(void)
{
    print_message("server.objects_oom: needs a build with DIBS_FAULTS\n");
    return 0;
}

#endif
