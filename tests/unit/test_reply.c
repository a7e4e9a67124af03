/* SPDX-License-Identifier: MIT
 *
 * test_reply.c - replies: read in pieces of any size, kept within limits,
 * without allocations once the reader is warm.
 */
#include "base/buf.h"
#include "base/mem.h"
#include "net/resp_reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define N(text)  text, sizeof text - 1

/* A reply as text: 7 "x" !error nil [1 [2]]. Small ones only. */
static void show(const struct dibs__reply *r, struct dibs__buf *out)
{
    switch (r->type) {
    case REPLY_NIL:
        dibs__buf_text(out, "nil");
        break;
    case REPLY_NUM:
        dibs__buf_num(out, r->num);
        break;
    case REPLY_TEXT:
        dibs__buf_text(out, "\"");
        dibs__buf_add(out, r->text, r->len);
        dibs__buf_text(out, "\"");
        break;
    case REPLY_ERROR:
        dibs__buf_text(out, "!");
        dibs__buf_add(out, r->text, r->len);
        break;
    case REPLY_ARRAY:
        dibs__buf_text(out, "[");
        for (size_t i = 0; i < r->len; i++) {
            dibs__buf_text(out, i ? " " : "");
            show(r->elem[i], out);
        }
        dibs__buf_text(out, "]");
        break;
    }
}

/* All replies in the bytes, fed in pieces of this size, as text with a ; behind
 * each; then what ended it: ok, broken, nomem. */
static struct dibs__buf read_all(const char *bytes, size_t len, size_t piece)
{
    const struct dibs__reply *reply;
    struct dibs__reader r;
    struct dibs__buf out = {0};
    dibs_err err = dibs__reader_init(&r);

    assert_int_equal(err, DIBS_OK);
    for (size_t at = 0; err == DIBS_OK && at < len; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        err = dibs__reader_feed(&r, bytes + at, n);
        reply = NULL;
        do {
            if (err == DIBS_OK)
                err = dibs__reader_next(&r, &reply);
            if (err == DIBS_OK && reply) {
                show(reply, &out);
                dibs__buf_text(&out, ";");
            }
        } while (err == DIBS_OK && reply);
    }
    dibs__buf_text(&out, err == DIBS_OK             ? "ok"
                         : err == DIBS_ERR_PROTOCOL ? "broken"
                                                    : "nomem");
    dibs__buf_add(&out, "", 1);
    dibs__reader_clear(&r);
    return out;
}

struct row {
    const char *in;
    size_t len;
    const char *want;
    size_t want_len;
};

static void check(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t piece = 1; piece <= rows[i].len + 1; piece++) {
            struct dibs__buf got = read_all(rows[i].in, rows[i].len, piece);
            if (got.len - 1 != rows[i].want_len ||
                memcmp(got.data, rows[i].want, rows[i].want_len) != 0)
                fail_msg("row %zu, %s, in pieces of %zu: %s", i, rows[i].in,
                         piece, got.data);
            dibs__buf_clear(&got);
        }
    }
}

static void test_reply_good(void **state)
{
    static const struct row rows[] = {
        {N("+OK\r\n"), N("\"OK\";ok")},
        {N("+\r\n"), N("\"\";ok")},
        {N("-ERR no\r\n"), N("!ERR no;ok")},
        {N(":0\r\n:-3\r\n"), N("0;-3;ok")},
        {N(":9223372036854775807\r\n"), N("9007199254740992;ok")},
        {N(":-9223372036854775808\r\n"), N("-9007199254740992;ok")},
        {N("$-1\r\n"), N("nil;ok")},
        {N("*-1\r\n"), N("nil;ok")},
        {N("$0\r\n\r\n"), N("\"\";ok")},
        {N("$5\r\nhello\r\n"), N("\"hello\";ok")},
        {N("$6\r\na\r\n\0bc\r\n"), N("\"a\r\n\0bc\";ok")},
        {N("*0\r\n"), N("[];ok")},
        {N("*3\r\n:1\r\n$-1\r\n+x\r\n"), N("[1 nil \"x\"];ok")},
        {N("*2\r\n*1\r\n:1\r\n*2\r\n-E\r\n*0\r\n"), N("[[1] [!E []]];ok")},
        {N("*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"), N("[[[[1]]]];ok")},
        {N("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n+OK\r\n"),
         N("[\"message\" \"c\" \"0\"];\"OK\";ok")},
        /* Not whole yet: nothing, and no error either. */
        {N("+OK"), N("ok")},
        {N("+OK\r"), N("ok")},
        {N("$5\r\nhel"), N("ok")},
        {N("$5\r\nhello"), N("ok")},
        {N("$9223372036854775807\r\nx"), N("ok")},
        {N("*2\r\n:1\r\n"), N("ok")},
        {N(":1\r\n*2\r\n:2\r\n"), N("1;ok")},
    };
    (void)state;
    check(rows, COUNT(rows));
}

static void test_reply_bad(void **state)
{
    static const struct row rows[] = {
        {N("HTTP/1.1 400 Bad Request\r\n\r\n"), N("broken")},
        {N("SSH-2.0-x\r\n"), N("broken")},
        {N("\r\n"), N("broken")},
        {N("\0\0\0\0"), N("broken")},
        {N("OK\r\n"), N("broken")},
        {N("$x\r\n"), N("broken")},
        {N("$-2\r\n"), N("broken")},
        {N("$99999999999999999999\r\n"), N("broken")},
        {N(":\r\n"), N("broken")},
        {N(":12x\r\n"), N("broken")},
        {N(":9223372036854775808\r\n"), N("broken")},
        {N("*-2\r\n"), N("broken")},
        {N("*x\r\n"), N("broken")},
        {N("*99999999999\r\n"), N("broken")},
        {N("*65537\r\n"), N("broken")},
        {N("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"), N("broken")},
        {N(":1\r\n:2\r\nbad\r\n:3\r\n"), N("1;2;broken")},
        {N("*2\r\n:1\r\n!\r\n"), N("broken")},
    };
    (void)state;
    check(rows, COUNT(rows));
}

/* Arrays of that many elements, each ":1". */
static void test_reply_many_elements(void **state)
{
    static const size_t counts[] = {1, 1000, DIBS__REPLY_ELEMENTS};

    (void)state;
    for (size_t i = 0; i < COUNT(counts); i++) {
        const struct dibs__reply *reply;
        struct dibs__buf in = {0};
        struct dibs__reader r;
        int64_t n = 0;

        dibs__buf_array(&in, counts[i]);
        for (size_t k = 0; k < counts[i]; k++) {
            dibs__buf_text(&in, ":");
            dibs__buf_num(&in, (int64_t)k);
            dibs__buf_text(&in, "\r\n");
        }
        assert_int_equal(dibs__reader_init(&r), DIBS_OK);
        assert_int_equal(dibs__reader_feed(&r, in.data, in.len), DIBS_OK);
        assert_int_equal(dibs__reader_next(&r, &reply), DIBS_OK);
        /* More than any server sends is broken; up to that it is read. */
        if (reply) {
            assert_int_equal(reply->len, counts[i]);
            for (size_t k = 0; k < counts[i]; k++) {
                assert_true(dibs__reply_num(reply, k, &n));
                assert_int_equal(n, k);
            }
        } else {
            fail_msg("%zu elements: not read", counts[i]);
        }
        dibs__reader_clear(&r);
        dibs__buf_clear(&in);
    }
}

/* One string of that many bytes. */
static dibs_err read_bulk(size_t size, size_t *fed)
{
    static char chunk[16384];
    const struct dibs__reply *reply = NULL;
    struct dibs__buf head = {0};
    struct dibs__reader r;
    dibs_err err = dibs__reader_init(&r);

    assert_int_equal(err, DIBS_OK);
    memset(chunk, 'x', sizeof chunk);
    dibs__buf_text(&head, "$");
    dibs__buf_num(&head, (int64_t)size);
    dibs__buf_text(&head, "\r\n");
    err = dibs__reader_feed(&r, head.data, head.len);
    for (*fed = 0; err == DIBS_OK && *fed < size;) {
        size_t n = size - *fed < sizeof chunk ? size - *fed : sizeof chunk;
        err = dibs__reader_feed(&r, chunk, n);
        *fed += n;
        if (err == DIBS_OK)
            err = dibs__reader_next(&r, &reply);
    }
    if (err == DIBS_OK)
        err = dibs__reader_feed(&r, "\r\n", 2);
    if (err == DIBS_OK)
        err = dibs__reader_next(&r, &reply);
    if (err == DIBS_OK) {
        assert_non_null(reply);
        assert_int_equal(reply->len, size);
    }
    dibs__reader_clear(&r);
    dibs__buf_clear(&head);
    return err;
}

static void test_reply_many_bytes(void **state)
{
    size_t fed;

    (void)state;
    assert_int_equal(read_bulk(1 << 20, &fed), DIBS_OK);
    assert_int_equal(read_bulk(DIBS__REPLY_BYTES - 4096, &fed), DIBS_OK);
    assert_int_equal(read_bulk(DIBS__REPLY_BYTES, &fed), DIBS_ERR_PROTOCOL);
    /* A length of gigabytes: given up long before they have come. */
    assert_int_equal(read_bulk(2000000000, &fed), DIBS_ERR_PROTOCOL);
    assert_true(fed <= 2 * DIBS__REPLY_BYTES);
}

/* Small enough each, too much together. */
static void test_reply_many_strings(void **state)
{
    static char text[1000];
    const struct dibs__reply *reply;
    struct dibs__buf in = {0};
    struct dibs__reader r;
    dibs_err err = DIBS_OK;
    size_t count = DIBS__REPLY_BYTES / sizeof text + 1;

    (void)state;
    memset(text, 'x', sizeof text);
    assert_int_equal(dibs__reader_init(&r), DIBS_OK);
    dibs__buf_array(&in, count);
    for (size_t i = 0; err == DIBS_OK && i < count; i++) {
        dibs__buf_arg(&in, text, sizeof text);
        err = dibs__reader_feed(&r, in.data, in.len);
        if (err == DIBS_OK)
            err = dibs__reader_next(&r, &reply);
        dibs__buf_cut(&in, 0);
    }
    assert_int_equal(err, DIBS_ERR_PROTOCOL);
    dibs__reader_clear(&r);
    dibs__buf_clear(&in);
}

/* A line has an end, or the reader has: in pieces of any size, and also as a
 * part of something. */
static void test_reply_line_without_end(void **state)
{
    static const char *const heads[] = {
        "+", "-", ":", "$", "*", "*2\r\n+x\r\n-", "*1\r\n$"};
    static const size_t pieces[] = {1, 1000, 16384};
    static char bytes[16384];

    (void)state;
    memset(bytes, '1', sizeof bytes);
    for (size_t i = 0; i < COUNT(heads) * COUNT(pieces); i++) {
        size_t piece = pieces[i % COUNT(pieces)], fed = 0;
        const char *head = heads[i / COUNT(pieces)];
        const struct dibs__reply *reply;
        struct dibs__reader r;

        assert_int_equal(dibs__reader_init(&r), DIBS_OK);
        dibs_err err = dibs__reader_feed(&r, head, strlen(head));
        while (err == DIBS_OK && fed < 4 * DIBS__REPLY_LINE) {
            err = dibs__reader_feed(&r, bytes, piece);
            fed += piece;
            if (err == DIBS_OK)
                err = dibs__reader_next(&r, &reply);
        }
        if (err != DIBS_ERR_PROTOCOL || fed > 2 * DIBS__REPLY_LINE)
            fail_msg("%s, pieces of %zu: %s after %zu", head, piece,
                     dibs_strerror(err), fed);
        dibs__reader_clear(&r);
    }
}

static void test_reply_large_numbers(void **state)
{
    static const struct {
        const char *bytes;
        int64_t num;
    } rows[] = {
        {":9223372036854775807\r\n", DIBS__REPLY_NUM_MAX},
        {":-9223372036854775808\r\n", -DIBS__REPLY_NUM_MAX},
        {":9007199254740992\r\n", DIBS__REPLY_NUM_MAX},
        {":9007199254740991\r\n", DIBS__REPLY_NUM_MAX - 1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct dibs__reply *reply;
        struct dibs__reader r;

        assert_int_equal(dibs__reader_init(&r), DIBS_OK);
        assert_int_equal(
            dibs__reader_feed(&r, rows[i].bytes, strlen(rows[i].bytes)),
            DIBS_OK);
        assert_int_equal(dibs__reader_next(&r, &reply), DIBS_OK);
        assert_true(reply->num == rows[i].num);
        dibs__reader_clear(&r);
    }
}

/* Every byte behind the last reply counts, also one that the parser has taken:
 * a reply nobody asked for must be seen before it is whole. */
static void test_reply_more(void **state)
{
    static const char bytes[] = ":1\r\n$2\r\nab\r\n*2\r\n:1\r\n:2\r\n$-1\r\n";
    const struct dibs__reply *reply;
    struct dibs__reader r;
    size_t whole = 0;

    (void)state;
    assert_int_equal(dibs__reader_init(&r), DIBS_OK);
    assert_false(dibs__reader_has_input(&r));
    for (size_t i = 0; i < sizeof bytes - 1; i++) {
        assert_int_equal(dibs__reader_feed(&r, bytes + i, 1), DIBS_OK);
        assert_int_equal(dibs__reader_next(&r, &reply), DIBS_OK);
        assert_int_equal(dibs__reader_has_input(&r), !reply);
        whole += reply != NULL;
    }
    assert_int_equal(whole, 4);
    assert_int_equal(dibs__reader_feed(&r, ":1\r\n:2\r\n", 8), DIBS_OK);
    assert_int_equal(dibs__reader_next(&r, &reply), DIBS_OK);
    assert_true(dibs__reader_has_input(&r));
    assert_int_equal(dibs__reader_next(&r, &reply), DIBS_OK);
    assert_false(dibs__reader_has_input(&r));
    dibs__reader_clear(&r);
}

static void test_reply_elements(void **state)
{
    static const char bytes[] = "*4\r\n:7\r\n$1\r\nx\r\n$-1\r\n*0\r\n:5\r\n";
    const struct dibs__reply *reply;
    struct dibs__reader r;
    int64_t n = -1;

    (void)state;
    assert_int_equal(dibs__reader_init(&r), DIBS_OK);
    assert_int_equal(dibs__reader_feed(&r, bytes, sizeof bytes - 1), DIBS_OK);
    assert_int_equal(dibs__reader_next(&r, &reply), DIBS_OK);
    assert_true(dibs__reply_num(reply, 0, &n));
    assert_int_equal(n, 7);
    assert_string_equal(dibs__reply_text(reply, 1)->text, "x");
    for (size_t i = 0; i < 6; i++) {
        n = -1;
        assert_int_equal(dibs__reply_num(reply, i, &n), i == 0);
        assert_int_equal(n, i == 0 ? 7 : -1);
        assert_int_equal(dibs__reply_text(reply, i) != NULL, i == 1);
    }
    assert_int_equal(dibs__reader_next(&r, &reply), DIBS_OK);
    assert_false(dibs__reply_num(reply, 0, &n)); /* not an array */
    assert_null(dibs__reply_text(reply, 0));
    assert_int_equal(dibs__reader_next(&r, &reply), DIBS_OK);
    assert_null(reply);
    dibs__reader_clear(&r);
    dibs__reader_clear(&r); /* twice is harmless */
}

#ifdef DIBS_FAULTS
/* Large replies come and go; what they needed goes with them. */
static void test_reply_steady_use(void **state)
{
    static const char small[] = "*3\r\n:1\r\n$5\r\nhello\r\n-ERR x\r\n";
    const struct dibs__reply *reply;
    struct dibs__buf large = {0};
    struct dibs__reader r;

    (void)state;
    dibs__buf_array(&large, 500);
    for (int i = 0; i < 500; i++)
        dibs__buf_arg_text(&large, "twenty bytes of text");
    assert_int_equal(dibs__reader_init(&r), DIBS_OK);
    for (int round = 0; round < 50; round++) {
        assert_int_equal(dibs__reader_feed(&r, large.data, large.len), DIBS_OK);
        assert_int_equal(dibs__reader_next(&r, &reply), DIBS_OK);
        assert_int_equal(reply->len, 500);
        dibs__mem_fail_at(0, false);
        for (int i = 0; i < 100; i++) {
            assert_int_equal(dibs__reader_feed(&r, small, sizeof small - 1),
                             DIBS_OK);
            assert_int_equal(dibs__reader_next(&r, &reply), DIBS_OK);
            assert_int_equal(reply->len, 3);
        }
        assert_int_equal(dibs__mem_fail_at(0, false), 0);
        assert_true(r.used < 4096);
    }
    dibs__reader_clear(&r);
    dibs__buf_clear(&large);
}

/* The n-th allocation fails: NOMEM, not PROTOCOL, and nothing is left. */
static void test_reply_out_of_memory(void **state)
{
    struct dibs__buf in = {0};
    dibs_err err = DIBS_ERR_NOMEM;

    (void)state;
    dibs__buf_array(&in, 1000);
    for (int i = 0; i < 1000; i++)
        dibs__buf_arg_text(&in, "twenty bytes of text");
    for (long n = 1; err != DIBS_OK; n++) {
        const struct dibs__reply *reply = NULL;
        struct dibs__reader r;

        dibs__mem_fail_at(n, false);
        err = dibs__reader_init(&r);
        if (err == DIBS_OK) {
            err = dibs__reader_feed(&r, in.data, in.len);
            if (err == DIBS_OK)
                err = dibs__reader_next(&r, &reply);
            dibs__reader_clear(&r);
        }
        long made = dibs__mem_fail_at(0, false);
        if (err != DIBS_OK)
            assert_int_equal(err, DIBS_ERR_NOMEM);
        else
            assert_true(made < n);
    }
    dibs__buf_clear(&in);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reply_good),
        cmocka_unit_test(test_reply_bad),
        cmocka_unit_test(test_reply_many_elements),
        cmocka_unit_test(test_reply_many_bytes),
        cmocka_unit_test(test_reply_many_strings),
        cmocka_unit_test(test_reply_line_without_end),
        cmocka_unit_test(test_reply_large_numbers),
        cmocka_unit_test(test_reply_more),
        cmocka_unit_test(test_reply_elements),
#ifdef DIBS_FAULTS
        cmocka_unit_test(test_reply_steady_use),
        cmocka_unit_test(test_reply_out_of_memory),
#endif
    };
    return cmocka_run_group_tests_name("unit.reply", tests, NULL, NULL);
}
