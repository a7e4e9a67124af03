/* SPDX-License-Identifier: MIT
 *
 * test_who.c - names of connections: ours, and what others may be called.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/observe/client_name.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ID       "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b"
#define AT       "id=3 addr=10.0.0.7:5000 laddr=10.0.0.1:6379 fd=8 name="
#define REST     " age=192 idle=0 flags=N db=0"

static void test_who_lines(void **state)
{
    static const struct {
        const char *line, *host, *program; /* host NULL: not one of ours */
        int64_t pid;
    } rows[] = {
        {AT "dibs/" ID "/db1/4711/backup.sh" REST, "db1", "backup.sh", 4711},
        {AT "dibs/" ID "/db1/4711/a/b" REST, "db1", "a/b", 4711},
        {AT "dibs/" ID "/d\x1b[31m1/1/p\x9b\xff\n" REST, "d?[31m1", "p???", 1},
        {AT "dibs/" ID "//1/" REST, "", "", 1},
        {AT "dibs/" ID "/db1/4711" REST, NULL, NULL, 0},
        {AT "dibs/" ID "/db1" REST, NULL, NULL, 0},
        {AT "dibs/" ID REST, NULL, NULL, 0},
        {AT "dibs/" ID "/db1/x/p" REST, NULL, NULL, 0},
        {AT "dibs/" ID "/db1//p" REST, NULL, NULL, 0},
        {AT "dibs/" ID "/db1/-1/p" REST, NULL, NULL, 0},
        {AT "dibs/" ID "/db1/99999999999999999999/p" REST, NULL, NULL, 0},
        {AT "dibs/1b2e5f0a/db1/1/p" REST, NULL, NULL, 0},
        {AT "dibs/" REST, NULL, NULL, 0},
        {AT "dibs" REST, NULL, NULL, 0},
        {AT REST, NULL, NULL, 0},
        {"", NULL, NULL, 0},
    };
    struct dibs__client_list_row got;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool ours =
            dibs__client_list_parse(rows[i].line, strlen(rows[i].line), &got);

        if (ours != (rows[i].host != NULL))
            fail_msg("%s", rows[i].line);
        if (!ours)
            continue;
        assert_string_equal(got.id, ID);
        assert_string_equal(got.who.host, rows[i].host);
        assert_string_equal(got.who.program, rows[i].program);
        assert_string_equal(got.who.address, "10.0.0.7:5000");
        assert_int_equal(got.who.pid, rows[i].pid);
        assert_int_equal(got.who.age_ms, 192000);
    }
}

/* Cut at every byte: no more is read than there is. */
static void test_who_cut(void **state)
{
    static const char line[] = AT "dibs/" ID "/db1/4711/backup.sh" REST;
    struct dibs__client_list_row got;

    (void)state;
    for (size_t n = 0; n < sizeof line; n++) {
        char *copy = test_malloc(n + 1);

        memcpy(copy, line, n);
        dibs__client_list_parse(copy, n, &got);
        test_free(copy);
    }
}

static void test_who_long(void **state)
{
    char line[2000], big[600];
    struct dibs__client_list_row got;

    (void)state;
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    snprintf(line, sizeof line, AT "dibs/" ID "/%s/1/%s" REST, big, big);
    assert_true(dibs__client_list_parse(line, strlen(line), &got));
    assert_int_equal(strlen(got.who.host), DIBS__CLIENT_INFO_TEXT_MAX - 1);
    assert_int_equal(strlen(got.who.program), DIBS__CLIENT_INFO_TEXT_MAX - 1);
}

/* The name that we give is one that we read, and that CLIENT SETNAME takes. */
static void test_who_own(void **state)
{
    static const struct {
        const char *program, *want;
    } rows[] = {
        {"backup.sh", "backup.sh"},
        {"two words\x1b[31m\xc3\xbc", "two_words_[31m__"},
        {"", "unknown"},
        {NULL, "test_who"},
    };
    char name[DIBS__CLIENT_NAME_MAX], line[DIBS__CLIENT_NAME_MAX + 200];
    struct dibs__client_list_row got;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs__client_name_format(ID, rows[i].program, name);
        for (const char *p = name; *p; p++)
            assert_in_range(*p, '!', '~');
        snprintf(line, sizeof line, AT "%s" REST, name);
        assert_true(dibs__client_list_parse(line, strlen(line), &got));
        assert_string_equal(got.id, ID);
        assert_string_equal(got.who.program, rows[i].want);
        assert_true(got.who.host[0]);
    }
}

static void test_who_ids(void **state)
{
    char id[DIBS__CLIENT_ID_LEN + 1];

    (void)state;
    assert_true(dibs__client_id_of_owner(ID ":1", id));
    assert_string_equal(id, ID);
    assert_true(dibs__client_id_of_owner(ID ":7:write", id));
    assert_false(dibs__client_id_of_owner(ID, id));
    assert_false(dibs__client_id_of_owner("", id));
    assert_false(dibs__client_id_of_owner("1b2e5f0a:1", id));
    assert_false(dibs__client_id_of_owner("mode", id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_lines), cmocka_unit_test(test_who_cut),
        cmocka_unit_test(test_who_long),  cmocka_unit_test(test_who_own),
        cmocka_unit_test(test_who_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
