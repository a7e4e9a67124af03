/* SPDX-License-Identifier: MIT
 *
 * test_buf.c - growable bytes: what is written is what is there, and a buffer
 * that ran out of memory says so once, at the end.
 */
#include "base/buf.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The buffer holds exactly this; row names the case. */
static void holds(const char *row, const struct dibs__buf *b, const char *want,
                  size_t len)
{
    if (!dibs__buf_ok(b))
        fail_msg("%s: out of memory", row);
    if (b->len != len || (len > 0 && memcmp(b->data, want, len) != 0))
        fail_msg("%s: holds %zu bytes: %.*s", row, b->len, (int)b->len,
                 b->data ? b->data : "");
    if (b->len > b->cap)
        fail_msg("%s: %zu bytes in room for %zu", row, b->len, b->cap);
}

static void test_buf_numbers(void **state)
{
    static const struct {
        int64_t in;
        const char *text;
        const char *arg; /* the same as an argument of a command */
    } rows[] = {
        {0, "0", "$1\r\n0\r\n"},
        {7, "7", "$1\r\n7\r\n"},
        {-7, "-7", "$2\r\n-7\r\n"},
        {10, "10", "$2\r\n10\r\n"},
        {30000, "30000", "$5\r\n30000\r\n"},
        {1234567890123, "1234567890123", "$13\r\n1234567890123\r\n"},
        {INT64_MAX, "9223372036854775807", "$19\r\n9223372036854775807\r\n"},
        {INT64_MIN, "-9223372036854775808", "$20\r\n-9223372036854775808\r\n"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct dibs__buf b = {0};

        dibs__buf_num(&b, rows[i].in);
        holds(rows[i].text, &b, rows[i].text, strlen(rows[i].text));
        dibs__buf_cut(&b, 0);
        dibs__buf_arg_num(&b, rows[i].in);
        holds(rows[i].text, &b, rows[i].arg, strlen(rows[i].arg));
        dibs__buf_clear(&b);
    }
}

static void test_buf_command(void **state)
{
    static const char want[] = "*4\r\n$7\r\nEVALSHA\r\n$0\r\n\r\n$5\r\n"
                               "a\0b\r\n\r\n$2\r\n-1\r\n";
    struct dibs__buf b = {0};

    (void)state;
    dibs__buf_array(&b, 4);
    dibs__buf_arg_text(&b, "EVALSHA");
    dibs__buf_arg(&b, "", 0);
    dibs__buf_arg(&b, "a\0b\r\n", 5);
    dibs__buf_arg_num(&b, -1);
    holds("command", &b, want, sizeof want - 1);
    dibs__buf_clear(&b);
}

static void test_buf_drop_and_cut(void **state)
{
    struct dibs__buf b = {0};

    (void)state;
    dibs__buf_drop(&b, 0); /* of an empty one: nothing to touch */
    dibs__buf_text(&b, "hello world");
    dibs__buf_drop(&b, 0);
    holds("drop nothing", &b, "hello world", 11);
    dibs__buf_drop(&b, 6);
    holds("drop the first", &b, "world", 5);
    dibs__buf_cut(&b, 3);
    holds("cut back", &b, "wor", 3);
    dibs__buf_drop(&b, 3);
    holds("drop all", &b, "", 0);
    dibs__buf_clear(&b);
    assert_null(b.data);
    assert_int_equal(b.cap, 0);
    dibs__buf_clear(&b); /* twice is harmless */
}

/* Many small pieces and one large: nothing is lost when the memory moves. */
static void test_buf_grows(void **state)
{
    enum { PIECES = 10000 };
    static char large[1 << 20];
    struct dibs__buf b = {0};

    (void)state;
    for (size_t i = 0; i < PIECES; i++) {
        char c = (char)('a' + i % 26);
        dibs__buf_add(&b, &c, 1);
    }
    assert_true(dibs__buf_ok(&b));
    assert_int_equal(b.len, PIECES);
    for (size_t i = 0; i < PIECES; i++)
        assert_int_equal(b.data[i], 'a' + (int)(i % 26));
    memset(large, 'x', sizeof large);
    dibs__buf_add(&b, large, sizeof large);
    assert_int_equal(b.len, PIECES + sizeof large);
    assert_int_equal(b.data[PIECES - 1], 'a' + (PIECES - 1) % 26);
    assert_memory_equal(b.data + PIECES, large, sizeof large);
    dibs__buf_clear(&b);
}

/* A length that no memory has: refused, not added up past the end. */
static void test_buf_absurd_length(void **state)
{
    struct dibs__buf b = {0};

    (void)state;
    dibs__buf_text(&b, "abc");
    dibs__buf_add(&b, "x", SIZE_MAX);
    assert_false(dibs__buf_ok(&b));
    assert_int_equal(b.len, 3);
    dibs__buf_cut(&b, 3);
    dibs__buf_add(&b, "x", SIZE_MAX / 2);
    assert_false(dibs__buf_ok(&b));
    dibs__buf_cut(&b, 3);
    holds("after it was forgotten", &b, "abc", 3);
    dibs__buf_clear(&b);
}

#ifdef DIBS_FAULTS
static void test_buf_out_of_memory(void **state)
{
    struct dibs__buf b = {0};

    (void)state;
    dibs__buf_text(&b, "12345678");
    dibs__mem_fail_at(1, false);
    dibs__buf_text(&b, "9");
    dibs__mem_fail_at(0, false);
    assert_false(dibs__buf_ok(&b));
    /* What follows a failure must not go in behind the gap. */
    dibs__buf_text(&b, "10");
    assert_int_equal(b.len, 8);
    assert_false(dibs__buf_ok(&b));
    dibs__buf_cut(&b, 8);
    dibs__buf_text(&b, "9");
    holds("goes on", &b, "123456789", 9);
    dibs__buf_clear(&b);
}

/* Emptied, it keeps its memory. */
static void test_buf_steady_use(void **state)
{
    struct dibs__buf b = {0};

    (void)state;
    for (int round = 0; round < 3; round++) {
        dibs__mem_fail_at(0, false);
        for (int i = 0; i < 100; i++)
            dibs__buf_arg_text(&b, "some words");
        dibs__buf_cut(&b, 0);
        dibs__buf_text(&b, "x");
        dibs__buf_drop(&b, 1);
        long made = dibs__mem_fail_at(0, false);
        if (round > 0 && made != 0)
            fail_msg("round %d allocates %ld times", round, made);
    }
    dibs__buf_clear(&b);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buf_numbers),
        cmocka_unit_test(test_buf_command),
        cmocka_unit_test(test_buf_drop_and_cut),
        cmocka_unit_test(test_buf_grows),
        cmocka_unit_test(test_buf_absurd_length),
#ifdef DIBS_FAULTS
        cmocka_unit_test(test_buf_out_of_memory),
        cmocka_unit_test(test_buf_steady_use),
#endif
    };
    return cmocka_run_group_tests_name("unit.buf", tests, NULL, NULL);
}
