/* SPDX-License-Identifier: MIT
 *
 * test_script.c - answers of scripts: only the one that has the number of the
 * sending is taken, and it is read right.
 */
#include "client/command/script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void show(const struct dibs__reply *r, char *out, size_t size)
{
    static const char *const types[] = {"nil", "num", "text", "error", "array"};
    int n = snprintf(out, size, "%s", types[r->type]);

    if (r->type == REPLY_NUM)
        snprintf(out + n, size - (size_t)n, " %lld", (long long)r->num);
    else if (r->type == REPLY_ARRAY)
        snprintf(out + n, size - (size_t)n, " %zu", r->len);
    else if (r->type != REPLY_NIL)
        snprintf(out + n, size - (size_t)n, " %zu %s", r->len, r->text);
}

/* What the sending 1234 makes of these bytes. */
static void read_as(const char *bytes, size_t len, char *out, size_t size)
{
    struct dibs__reader reader;
    const struct dibs__reply *reply;
    struct dibs__reply room;

    assert_int_equal(dibs__reader_init(&reader), DIBS_OK);
    assert_int_equal(dibs__reader_feed(&reader, bytes, len), DIBS_OK);
    assert_int_equal(dibs__reader_next(&reader, &reply), DIBS_OK);
    assert_non_null(reply);
    reply = dibs__script_result(reply, 1234, &room);
    if (reply)
        show(reply, out, size);
    else
        snprintf(out, size, "no");
    dibs__reader_clear(&reader);
}

static void test_script_answers(void **state)
{
    static const struct {
        const char *bytes, *want;
    } rows[] = {
        {"$4\r\n1234\r\n", "nil"},
        {"+1234\r\n", "nil"},
        {"$6\r\n1234 1\r\n", "num 1"},
        {"$6\r\n1234 0\r\n", "num 0"},
        {"$7\r\n1234 -6\r\n", "num -6"},
        {"$24\r\n1234 9223372036854775807\r\n", "num 9007199254740992"},
        {"$25\r\n1234 -9223372036854775808\r\n", "num -9007199254740992"},
        {"$30\r\n1234 9999999999999999999999999\r\n", "num 9007199254740992"},
        {"$8\r\n1234=abc\r\n", "text 3 abc"},
        {"$5\r\n1234=\r\n", "text 0 "},
        {"$11\r\n1234=1234=5\r\n", "text 6 1234=5"},
        {"*2\r\n$4\r\n1234\r\n*0\r\n", "array 0"},
        {"*2\r\n$4\r\n1234\r\n*2\r\n:1\r\n$-1\r\n", "array 2"},
        {"-ERR no\r\n", "error 6 ERR no"},
        /* Another one's. */
        {"$4\r\n1233\r\n", "no"},
        {"$4\r\n1235\r\n", "no"},
        {"$5\r\n12345\r\n", "no"},
        {"$3\r\n123\r\n", "no"},
        {"$6\r\n1235 1\r\n", "no"},
        {"$8\r\n4321=abc\r\n", "no"},
        {"*2\r\n$4\r\n1235\r\n*0\r\n", "no"},
        {"*2\r\n$5\r\n12345\r\n*0\r\n", "no"},
        {"*2\r\n$6\r\n1234 1\r\n*0\r\n", "no"},
        /* Without a number. */
        {"$-1\r\n", "no"},
        {":1234\r\n", "no"},
        {":1\r\n", "no"},
        {"+OK\r\n", "no"},
        {"$0\r\n\r\n", "no"},
        {"$4\r\nabcd\r\n", "no"},
        {"*0\r\n", "no"},
        {"*-1\r\n", "no"},
        {"*1\r\n$4\r\n1234\r\n", "no"},
        {"*2\r\n:1\r\n:2\r\n", "no"},
        /* With a number, but no answer. */
        {"$5\r\n1234 \r\n", "no"},
        {"$6\r\n1234 x\r\n", "no"},
        {"$7\r\n1234  1\r\n", "no"},
        {"$7\r\n1234 1x\r\n", "no"},
        {"$7\r\n1234 -x\r\n", "no"},
        {"$8\r\n1234 1.5\r\n", "no"},
        {"$6\r\n1234:1\r\n", "no"},
        {"*2\r\n:1234\r\n*0\r\n", "no"},
        {"*2\r\n$4\r\n1234\r\n:1\r\n", "no"},
        {"*2\r\n$4\r\n1234\r\n$-1\r\n", "no"},
        {"*2\r\n$4\r\n1234\r\n-ERR no\r\n", "no"},
        {"*3\r\n$4\r\n1234\r\n*0\r\n*0\r\n", "no"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char got[64];
        read_as(rows[i].bytes, strlen(rows[i].bytes), got, sizeof got);
        if (strcmp(got, rows[i].want) != 0)
            fail_msg("row %zu: %s, not %s", i, got, rows[i].want);
    }
}

/* Zero bytes, which end no text. */
static void test_script_zero_bytes(void **state)
{
    static const struct {
        const char bytes[16], *want;
        size_t len;
    } rows[] = {
        {"$7\r\n1234\0 1\r\n", "no", 13},
        {"$7\r\n1234 1\0\r\n", "no", 13},
        {"$7\r\n1234=\0a\r\n", "text 2 ", 13},
        {"$5\r\n1234\0\r\n", "no", 11},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char got[64];
        read_as(rows[i].bytes, rows[i].len, got, sizeof got);
        if (strcmp(got, rows[i].want) != 0)
            fail_msg("row %zu: %s, not %s", i, got, rows[i].want);
    }
}

/* The words for a user: no digest, no line of a script; the right URL. */
static void test_script_words(void **state)
{
    static const struct dibs__url plain, secure = {.tls.on = true};
    static const struct {
        const char *error;
        const struct dibs__url *single;
        const char *want;
    } rows[] = {
        {"OOM command not allowed when used memory > 'maxmemory'. script: "
         "0123, on @user_script:7.",
         &plain, "OOM command not allowed when used memory > 'maxmemory'"},
        {"WRONGTYPE Operation against a key holding the wrong kind of value "
         "script: 0123, on @user_script:7.",
         &plain,
         "the key holds something else: not a lock, or a lock of another "
         "kind"},
        {"ERR Error running script (call to f_0123): @user_script:7: "
         "WRONGTYPE Operation against a key",
         NULL,
         "the key holds something else: not a lock, or a lock of another "
         "kind"},
        {"MOVED 7 127.0.0.1:7000", &plain,
         "this is a node of a cluster: the URL begins with redis-cluster://"},
        {"MOVED 7 127.0.0.1:7000", &secure,
         "this is a node of a cluster: the URL begins with rediss-cluster://"},
        {"MOVED 7 127.0.0.1:7000", NULL, "MOVED 7 127.0.0.1:7000"},
        {"ERR unknown command 'EVALSHA', with args beginning with: 'a'", &plain,
         "the server has no scripts; for a sentinel the URL is "
         "redis-sentinel://HOST:PORT/SERVICE"},
        {"ERR unknown command 'FLY'", &plain, "ERR unknown command 'FLY'"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char got[DIBS__REASON_MAX];
        dibs__script_error_text(rows[i].error, rows[i].single, got);
        if (strcmp(got, rows[i].want) != 0)
            fail_msg("row %zu: %s, not %s", i, got, rows[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_script_answers),
        cmocka_unit_test(test_script_zero_bytes),
        cmocka_unit_test(test_script_words),
    };

    return cmocka_run_group_tests_name("script", tests, NULL, NULL);
}
