/* SPDX-License-Identifier: MIT
 *
 * test_tally.c - counting by many threads at once, buckets of times, stamps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "client/observe/stats.h"

#define THREADS 24 /* more than there are sets of numbers: some share one */
#define TIMES   100000

static void *count_much(void *arg)
{
    struct dibs__stats *st = arg;

    for (int i = 0; i < TIMES; i++) {
        dibs__stats_count(st, STAT_WAKEUPS, 2);
        dibs__stats_time(st, TIMING_WAIT, 3);
    }
    return NULL;
}

static void test_no_count_is_lost(void **state)
{
    struct dibs__stats *st = dibs__stats_new();
    pthread_t t[THREADS];
    dibs_stats s = {.size = sizeof s};

    (void)state;
    assert_non_null(st);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, count_much, st), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    dibs__stats_sum(st, &s);
    assert_int_equal(s.wakeups, 2 * THREADS * TIMES);
    assert_int_equal(s.wait.count, THREADS * TIMES);
    assert_int_equal(s.wait.sum_us, 3 * THREADS * TIMES);
    assert_int_equal(s.wait.bucket[2], THREADS * TIMES);
    assert_int_equal(s.acquires + s.acquire.count, 0);
    dibs__stats_free(st);
}

static void test_buckets(void **state)
{
    static const struct {
        int64_t us;
        int bucket;
    } rows[] = {
        {-5, 0},
        {0, 0},
        {1, 1},
        {2, 2},
        {3, 2},
        {4, 3},
        {1000, 10},
        {1023, 10},
        {1024, 11},
        {(INT64_C(1) << 38) - 1, 38},
        {INT64_C(1) << 38, 39},
        {INT64_C(1) << 39, 39},
        {INT64_MAX, 39},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dibs__stats *st = dibs__stats_new();
        dibs_stats s = {.size = sizeof s};
        dibs__stats_time(st, TIMING_HOLD, rows[i].us);
        dibs__stats_sum(st, &s);
        assert_int_equal(s.hold.bucket[rows[i].bucket], 1);
        assert_int_equal(s.hold.count, 1);
        assert_true(s.hold.sum_us ==
                    (uint64_t)(rows[i].us > 0 ? rows[i].us : 0));
        dibs__stats_free(st);
    }
}

static void test_no_stats(void **state)
{
    (void)state;
    dibs__stats_count(NULL, STAT_ACQUIRES, 1);
    dibs__stats_time(NULL, TIMING_HOLD, 1);
    dibs__stats_free(NULL);
}

static void test_stamps(void **state)
{
    static const int64_t times[] = {
        0, 1, 65535, 65536, INT64_C(1) << 33, INT64_C(1) << 47};

    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct dibs__coarse_time s = dibs__coarse_time_of(times[i]);
        assert_int_equal(dibs__coarse_time_age(s, times[i]), 0);
        assert_int_equal(dibs__coarse_time_age(s, times[i] + 123456789),
                         123456789);
        assert_int_equal(dibs__coarse_time_is_set(s), times[i] != 0);
    }
    /* The clock has more bits than the stamp. */
    struct dibs__coarse_time s = dibs__coarse_time_of((INT64_C(1) << 48) - 1);
    assert_int_equal(dibs__coarse_time_age(s, INT64_C(1) << 48), 1);
    assert_int_equal(sizeof s, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_count_is_lost),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_no_stats),
        cmocka_unit_test(test_stamps),
    };

    return cmocka_run_group_tests_name("tally", tests, NULL, NULL);
}
