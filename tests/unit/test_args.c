/* SPDX-License-Identifier: MIT
 *
 * test_args.c - structs that grow, as the library of a later day sees them; and
 * the text of the last failure.
 *
 * Here a struct has grown by a field since 0.1. A program of 0.1, one of today
 * and one of tomorrow come with theirs.
 */
#include "base/api_args.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct old {
    size_t size;
    int64_t first;
};

struct today {
    size_t size;
    int64_t first;
    int64_t second;
};

struct tomorrow {
    size_t size;
    int64_t first;
    int64_t second;
    int64_t third;
};

static const struct dibs__struct type = {"demo", sizeof(struct old),
                                         sizeof(struct today)};

static void test_args_take(void **state)
{
    const struct old old = {sizeof old, 1};
    const struct today today = {sizeof today, 1, 2};
    struct tomorrow tomorrow = {sizeof tomorrow, 1, 2, 0};
    struct today out;
    char text[100];

    (void)state;
    memset(&out, 0x5a, sizeof out);
    assert_int_equal(dibs__struct_read(&type, &old, &out), DIBS_OK);
    assert_int_equal(out.size, sizeof out);
    assert_int_equal(out.first, 1);
    assert_int_equal(out.second, 0); /* it never heard of that */
    memset(&out, 0x5a, sizeof out);
    assert_int_equal(dibs__struct_read(&type, &today, &out), DIBS_OK);
    assert_int_equal(out.second, 2);
    memset(&out, 0x5a, sizeof out);
    assert_int_equal(dibs__struct_read(&type, &tomorrow, &out), DIBS_OK);
    assert_int_equal(out.size, sizeof out);
    assert_int_equal(out.second, 2);
    tomorrow.third = 3; /* we would have to do what we do not know */
    assert_int_equal(dibs__struct_read(&type, &tomorrow, &out),
                     DIBS_ERR_INVALID);
    snprintf(text, sizeof text,
             "demo: it has something at byte 24 that dibs %s does not know",
             dibs_version());
    assert_string_equal(dibs_error_text(), text);
    memset(&out, 0x5a, sizeof out);
    assert_int_equal(dibs__struct_read(&type, NULL, &out), DIBS_OK);
    assert_int_equal(out.size, sizeof out);
    assert_int_equal(out.first, 0);
    assert_int_equal(out.second, 0);
}

static void test_args_give(void **state)
{
    const struct today from = {sizeof from, 1, 2};
    struct {
        struct old s;
        int64_t behind;
    } old = {{sizeof old.s, 0}, 77};
    struct tomorrow tomorrow = {sizeof tomorrow, 0, 0, 77};

    (void)state;
    assert_int_equal(dibs__struct_check(&type, &old.s), DIBS_OK);
    dibs__struct_write(&type, &from, &old.s);
    assert_int_equal(old.s.size, sizeof old.s);
    assert_int_equal(old.s.first, 1);
    assert_int_equal(old.behind, 77);
    assert_int_equal(dibs__struct_check(&type, &tomorrow), DIBS_OK);
    dibs__struct_write(&type, &from, &tomorrow);
    assert_int_equal(tomorrow.size, sizeof tomorrow);
    assert_int_equal(tomorrow.second, 2);
    assert_int_equal(tomorrow.third, 77); /* as it was */
}

static void test_args_sizes(void **state)
{
    static const struct {
        size_t size;
        const char *text; /* NULL: it is fine */
    } rows[] = {
        {0, "demo: size is 0, it must be sizeof(demo)"},
        {1, "demo: size is 1, it must be at least 16"},
        {15, "demo: size is 15, it must be at least 16"},
        {16, NULL},
        {17, NULL},
        {65536, NULL},
        {65537, "demo: size is 65537, it must be at most 65536"},
        {SIZE_MAX,
         "demo: size is 18446744073709551615, it must be at most 65536"},
    };
    static union {
        size_t size;
        char bytes[65536];
    } in;
    struct today out;

    (void)state;
    if (sizeof(size_t) != 8)
        skip();
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_err want = rows[i].text ? DIBS_ERR_INVALID : DIBS_OK;
        in.size = rows[i].size;
        assert_int_equal(dibs__struct_read(&type, &in, &out), want);
        if (rows[i].text)
            assert_string_equal(dibs_error_text(), rows[i].text);
        assert_int_equal(dibs__struct_check(&type, &in), want);
        if (rows[i].text)
            assert_string_equal(dibs_error_text(), rows[i].text);
    }
}

static void test_args_times(void **state)
{
    static const struct {
        int64_t ms, least, most;
        const char *text;
    } rows[] = {
        {0, 100, 1000, NULL},
        {100, 100, 1000, NULL},
        {1000, 100, 1000, NULL},
        {-1, 0, 1000, "t is -1, it must not be negative"},
        {INT64_MIN, 0, 1000,
         "t is -9223372036854775808, it must not be negative"},
        {99, 100, 1000, "t is 99, it must be at least 100"},
        {1001, 100, 1000, "t is 1001, it must be at most 1000"},
        {INT64_MAX, 100, DIBS_MS_MAX,
         "t is 9223372036854775807, it must be at most 31536000000000"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_err err =
            dibs__check_ms("t", rows[i].ms, rows[i].least, rows[i].most);
        assert_int_equal(err, rows[i].text ? DIBS_ERR_INVALID : DIBS_OK);
        if (rows[i].text)
            assert_string_equal(dibs_error_text(), rows[i].text);
    }
}

/* ---- the text ---------------------------------------------------------- */

static dibs_err say(dibs_err err, const char *text)
{
    return dibs__reason_set(err, "%s", text);
}

/* It belongs to the last call that failed, whatever came before or after. */
static void test_args_text_of_the_last_failure(void **state)
{
    (void)state;
    DIBS__API_CALL(say(DIBS_ERR_CONN, "one"));
    assert_string_equal(dibs_error_text(), "one");
    DIBS__API_CALL(DIBS_OK);
    assert_string_equal(dibs_error_text(), "one");
    DIBS__API_CALL(DIBS_ERR_CONN); /* the same code, and nothing was said */
    assert_string_equal(dibs_error_text(), "");
    DIBS__API_CALL(say(DIBS_ERR_CONN, "two"));
    DIBS__API_CALL(DIBS_ERR_BUSY);
    assert_string_equal(dibs_error_text(), "");
    /* What went wrong on the way is not why it failed. */
    DIBS__API_CALL((say(DIBS_ERR_CONN, "three"), DIBS_ERR_TIMEOUT));
    assert_string_equal(dibs_error_text(), "");
    /* A call inside a call. */
    DIBS__API_CALL(DIBS__API_CALL(say(DIBS_ERR_AUTH, "four")));
    assert_string_equal(dibs_error_text(), "four");
}

/* Nothing of it can move the cursor of a terminal, or make two lines of one. */
static void test_args_text_is_clean(void **state)
{
    char long_text[2 * DIBS__REASON_MAX];

    (void)state;
    say(DIBS_ERR_SERVER, "a\nb\r\tc\x1b[31md\x7f"
                         "e\xc3\xa9");
    assert_string_equal(dibs_error_text(), "a?b??c?[31md?e\xc3\xa9");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    say(DIBS_ERR_SERVER, long_text);
    assert_int_equal(strlen(dibs_error_text()), DIBS__REASON_MAX - 1);
}

static void *look_elsewhere(void *arg)
{
    *(size_t *)arg = strlen(dibs_error_text());
    DIBS__API_CALL(say(DIBS_ERR_AUTH, "elsewhere"));
    return NULL;
}

static void test_args_text_of_each_thread(void **state)
{
    pthread_t thread;
    size_t before = 99;

    (void)state;
    DIBS__API_CALL(say(DIBS_ERR_CONN, "here"));
    assert_int_equal(pthread_create(&thread, NULL, look_elsewhere, &before), 0);
    pthread_join(thread, NULL);
    assert_int_equal(before, 0);
    assert_string_equal(dibs_error_text(), "here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_args_take),
        cmocka_unit_test(test_args_give),
        cmocka_unit_test(test_args_sizes),
        cmocka_unit_test(test_args_times),
        cmocka_unit_test(test_args_text_of_the_last_failure),
        cmocka_unit_test(test_args_text_is_clean),
        cmocka_unit_test(test_args_text_of_each_thread),
    };
    return cmocka_run_group_tests_name("unit.args", tests, NULL, NULL);
}
