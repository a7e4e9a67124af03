/* SPDX-License-Identifier: MIT
 *
 * test_hush.c - failures that repeat themselves are told once a minute.
 */
#include "client/observe/log_throttle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static unsigned untold;

static bool allows(struct dibs__log_throttle *hu, const char *text, int64_t now)
{
    return dibs__log_throttle_allow(hu, DIBS_ERR_CONN, text, false, now,
                                    &untold);
}

static void test_hush_once_a_minute(void **state)
{
    struct dibs__log_throttle hu = {0};

    (void)state;
    for (int64_t start = 1000; start < 4 * DIBS__THROTTLE_MS;
         start += DIBS__THROTTLE_MS) {
        assert_true(allows(&hu, "refused", start));
        assert_int_equal(untold, start == 1000 ? 0 : 99);
        for (int i = 0; i < 99; i++)
            assert_false(allows(&hu, "refused", start + 500 * i));
    }
}

static void test_hush_each_by_itself(void **state)
{
    struct dibs__log_throttle hu = {0};
    char text[20];

    (void)state;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < DIBS__THROTTLE_KNOWN; i++) {
            snprintf(text, sizeof text, "trouble %d", i);
            assert_int_equal(allows(&hu, text, 1000 + i), round == 0);
        }
    assert_true(dibs__log_throttle_allow(&hu, DIBS_ERR_AUTH, "trouble 0", false,
                                         2000, &untold)); /* another error */
    /* That one took the place of the oldest. */
    assert_true(allows(&hu, "trouble 0", 2001));
}

/* What worked in between is news, up to a point. */
static void test_hush_worked(void **state)
{
    struct dibs__log_throttle hu = {0};
    int told = 0;

    (void)state;
    for (int i = 0; i < 50; i++)
        told += dibs__log_throttle_allow(&hu, DIBS_ERR_CONN, "cut", true,
                                         1000 + i, &untold);
    assert_int_equal(told, DIBS__THROTTLE_NEW);
    assert_true(dibs__log_throttle_allow(&hu, DIBS_ERR_CONN, "cut", true,
                                         1000 + DIBS__THROTTLE_MS, &untold));
    assert_int_equal(untold, 50 - DIBS__THROTTLE_NEW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hush_once_a_minute),
        cmocka_unit_test(test_hush_each_by_itself),
        cmocka_unit_test(test_hush_worked),
    };

    return cmocka_run_group_tests_name("unit.hush", tests, NULL, NULL);
}
