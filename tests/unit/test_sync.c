/* SPDX-License-Identifier: MIT
 *
 * test_sync.c - mutexes with an order, threads, clocks, chance.
 *
 * That a wrong order is noticed is shown in a child process, which must abort.
 */
#include "base/platform.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static dibs__mutex client, line, other_line, server, callback;

static int make_mutexes(void **state)
{
    (void)state;
    dibs__mutex_init(&client, RANK_CLIENT);
    dibs__mutex_init(&line, RANK_ENTRY);
    dibs__mutex_init(&other_line, RANK_ENTRY);
    dibs__mutex_init(&server, RANK_SERVER);
    dibs__mutex_init(&callback, RANK_CALLBACK);
    return 0;
}

/* ---- the order --------------------------------------------------------- */

/* The compiler sees what these do wrong, which is the point of them. */

static void in_order(void) UNCHECKED
{
    dibs__lock(&client);
    dibs__lock(&line);
    dibs__lock(&server);
    dibs__lock(&callback);
    dibs__unlock(&callback);
    dibs__unlock(&server);
    dibs__unlock(&line);
    dibs__unlock(&client);
    dibs__assert_no_lock();
    dibs__lock(&client); /* a low one again, once the high ones are free */
    dibs__unlock(&client);
    dibs__lock(&line); /* and not given back in the order of taking */
    dibs__lock(&server);
    dibs__unlock(&line);
    dibs__unlock(&server);
    dibs__assert_no_lock();
}

#ifndef NDEBUG
static void lower_after_higher(void) UNCHECKED
{
    dibs__lock(&server);
    dibs__lock(&line);
}

static void two_of_a_rank(void) UNCHECKED
{
    dibs__lock(&line);
    dibs__lock(&other_line);
}

static void the_same_twice(void) UNCHECKED
{
    dibs__lock(&line);
    dibs__lock(&line);
}

static void lowest_after_highest(void) UNCHECKED
{
    dibs__lock(&callback);
    dibs__lock(&client);
}

static void not_taken(void) UNCHECKED
{
    dibs__unlock(&line);
}

static void given_back_twice(void) UNCHECKED
{
    dibs__lock(&line);
    dibs__unlock(&line);
    dibs__unlock(&line);
}

static void calls_out_with_one(void) UNCHECKED
{
    dibs__lock(&callback);
    dibs__assert_no_lock();
}
#endif

/* The signal that ended a child in which fn ran; 0 if it came through. */
static int ended_by(void (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        dup2(null, STDERR_FILENO); /* it will say why it aborts */
        signal(SIGABRT, SIG_DFL);
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_sync_order(void **state)
{
    (void)state;
    in_order();
    assert_int_equal(ended_by(in_order), 0);
#ifndef NDEBUG
    static const struct {
        const char *what;
        void (*fn)(void);
    } rows[] = {
        {"a lower rank after a higher", lower_after_higher},
        {"two mutexes of a rank", two_of_a_rank},
        {"the same mutex twice", the_same_twice},
        {"the lowest after the highest", lowest_after_highest},
        {"a mutex given back that was not taken", not_taken},
        {"a mutex given back twice", given_back_twice},
        {"a call out with a mutex held", calls_out_with_one},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (ended_by(rows[i].fn) != SIGABRT)
            fail_msg("not noticed: %s", rows[i].what);
#endif
}

/* ---- threads ----------------------------------------------------------- */

static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int whose; /* callback */

static void *take_low(void *arg)
{
    (void)arg;
    dibs__lock(&client); /* what another thread holds does not count */
    dibs__unlock(&client);
    dibs__lock(&callback);
    whose = 1;
    pthread_cond_signal(&turn);
    while (whose != 2)
        dibs__cond_wait(&turn, &callback);
    dibs__unlock(&callback);
    return NULL;
}

static void test_sync_order_is_per_thread(void **state)
{
    pthread_t t;

    (void)state;
    dibs__lock(&callback);
    whose = 0;
    assert_true(dibs__thread_start(&t, "dibs-test", take_low, NULL));
    while (whose != 1)
        dibs__cond_wait(&turn, &callback);
    whose = 2;
    pthread_cond_signal(&turn);
    dibs__unlock(&callback);
    pthread_join(t, NULL);
    dibs__assert_no_lock();
}

struct seen {
    char name[16];
    sigset_t blocked;
};

static void *look_around(void *arg)
{
    struct seen *seen = arg;

    pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked);
    return NULL;
}

static void test_sync_thread_blocks_signals(void **state)
{
    static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGCHLD,
                                  SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2};
    struct seen seen;
    sigset_t before, after;
    pthread_t t;

    (void)state;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_true(dibs__thread_start(&t, "dibs-test", look_around, &seen));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    pthread_join(t, NULL);
    for (size_t i = 0; i < COUNT(signals); i++) {
        if (!sigismember(&seen.blocked, signals[i]))
            fail_msg("the thread takes signal %d", signals[i]);
        if (sigismember(&before, signals[i]) != sigismember(&after, signals[i]))
            fail_msg("signal %d is not as it was for us", signals[i]);
    }
}

static atomic_bool named;

static void *wait_for_name(void *arg)
{
    while (!atomic_load(&named))
        sched_yield();
    pthread_getname_np(pthread_self(), arg, 16);
    return NULL;
}

static void test_sync_thread_has_a_name(void **state)
{
    char name[16] = "";
    pthread_t t;

    (void)state;
    assert_true(dibs__thread_start(&t, "dibs-test", wait_for_name, name));
    atomic_store(&named, true);
    pthread_join(t, NULL);
    assert_string_equal(name, "dibs-test");
}

/* ---- clocks, sums, chance ---------------------------------------------- */

static void test_sync_clocks(void **state)
{
    int64_t us = dibs__now_us();
    int64_t ms = dibs__now_ms();

    (void)state;
    assert_true(us > 0);
    assert_true(ms >= us / 1000);
    for (int i = 0; i < 100000; i++) {
        int64_t now = dibs__now_us();
        if (now < us)
            fail_msg("the clock went back");
        us = now;
    }
    assert_true(dibs__now_ms() >= us / 1000);
}

static void test_sync_sums(void **state)
{
    static const struct {
        int64_t a, b, sum;
    } rows[] = {
        {0, 0, 0},
        {1, 2, 3},
        {INT64_MAX, 0, INT64_MAX},
        {INT64_MAX, 1, INT64_MAX},
        {1, INT64_MAX, INT64_MAX},
        {INT64_MAX - 5, 5, INT64_MAX},
        {INT64_MAX - 5, 4, INT64_MAX - 1},
        {INT64_MAX, INT64_MAX, INT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        if (dibs__add(rows[i].a, rows[i].b) != rows[i].sum)
            fail_msg("row %zu", i);
    assert_int_equal(dibs__min(-1, 2), -1);
    assert_int_equal(dibs__min(2, -1), -1);
    assert_int_equal(dibs__max(-1, 2), 2);
    assert_int_equal(dibs__max(2, -1), 2);
}

static void test_sync_chance(void **state)
{
    unsigned char a[16] = {0}, b[16] = {0};
    bool seen[5] = {false};

    (void)state;
    assert_true(dibs__random(a, sizeof a));
    assert_true(dibs__random(b, sizeof b));
    assert_memory_not_equal(a, b, sizeof a);

    assert_int_equal(dibs__random_in(3, 3), 3);
    assert_int_equal(dibs__random_in(3, 2), 3);
    for (int i = 0; i < 10000; i++) {
        int64_t n = dibs__random_in(-2, 2);
        if (n < -2 || n > 2)
            fail_msg("%lld is not within -2 and 2", (long long)n);
        seen[n + 2] = true;
    }
    for (size_t i = 0; i < COUNT(seen); i++)
        assert_true(seen[i]); /* both ends too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync_order),
        cmocka_unit_test(test_sync_order_is_per_thread),
        cmocka_unit_test(test_sync_thread_blocks_signals),
        cmocka_unit_test(test_sync_thread_has_a_name),
        cmocka_unit_test(test_sync_clocks),
        cmocka_unit_test(test_sync_sums),
        cmocka_unit_test(test_sync_chance),
    };
    return cmocka_run_group_tests_name("unit.sync", tests, make_mutexes, NULL);
}
