/* SPDX-License-Identifier: MIT
 *
 * test_names.c - names on the server: the channel of a lock and the text of an
 * owner, as other clients of the same locks have them.
 *
 * The lock's own key is its name as it is. The channel's name has it in braces,
 * so that both live in one slot of a cluster; a name with an opening brace
 * anywhere is taken to have seen to that itself.
 */
#include "lock/core/lock_manager.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define PREFIX   "redisson_lock__channel:"
#define UUID     "8743c9c0-0795-4907-87fd-6c719a6b4586"

static dibs_client client;
static struct dibs__lock_manager locks;

static int make_locks(void **state)
{
    (void)state;
    dibs__mutex_init(&client.mu, RANK_CLIENT);
    locks.c = &client;
    return 0;
}

#define N(text) text, sizeof text - 1

static void test_names_channel(void **state)
{
    static const struct {
        const char *name;
        size_t len;
        const char *channel;
        size_t channel_len;
    } rows[] = {
        {N("a"), N(PREFIX "{a}")},
        {N("order"), N(PREFIX "{order}")},
        {N("a:b"), N(PREFIX "{a:b}")},
        {N("{t}:a"), N(PREFIX "{t}:a")},
        {N("a{t}b"), N(PREFIX "a{t}b")},
        {N("a:{7}:b"), N(PREFIX "a:{7}:b")},
        {N("{a}"), N(PREFIX "{a}")},
        {N("a{b"), N(PREFIX "a{b")},
        {N("{"), N(PREFIX "{")},
        {N("{}x"), N(PREFIX "{}x")},
        {N("a}b"), N(PREFIX "{a}b}")},
        {N("}"), N(PREFIX "{}}")},
        {N(" "), N(PREFIX "{ }")},
        {N("caf\xc3\xa9"), N(PREFIX "{caf\xc3\xa9}")},
        {N("\xe9\x94\x81"), N(PREFIX "{\xe9\x94\x81}")},
        {N("\xe9{\x94}\x81"), N(PREFIX "\xe9{\x94}\x81")},
        {N("a\0b"), N(PREFIX "{a\0b}")},
        {N("a\0{b"), N(PREFIX "a\0{b")},
        {N("\r\n"), N(PREFIX "{\r\n}")},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct dibs__lock_entry *entry = dibs__entry_get(
            &locks, &dibs__type_mutex, rows[i].name, rows[i].len);
        assert_non_null(entry);
        if (entry->name_len != rows[i].len ||
            memcmp(entry->name, rows[i].name, rows[i].len) != 0)
            fail_msg("row %zu: the name is not kept", i);
        struct dibs__buf channel = {0};
        dibs__entry_channel(entry, &channel);
        assert_true(dibs__buf_ok(&channel));
        if (channel.len != rows[i].channel_len ||
            memcmp(channel.data, rows[i].channel, channel.len) != 0)
            fail_msg("row %zu: the channel of %s is %.*s", i, rows[i].name,
                     (int)channel.len, channel.data);
        assert_int_equal(channel.len,
                         dibs__entry_key_len(entry, entry->type->channel));
        dibs__buf_clear(&channel);
        dibs__entry_unref(entry);
    }
}

/* One line a name, no matter who asks; names that differ in length only differ.
 */
static void test_names_lines(void **state)
{
    static const struct {
        const char *name;
        size_t len;
    } rows[] = {{N("a")},    {N("ab")},  {N("a\0")}, {N("a\0b")},
                {N("\xff")}, {N("{a}")}, {N("A")}};
    struct dibs__lock_entry *lines[COUNT(rows)];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        lines[i] = dibs__entry_get(&locks, &dibs__type_mutex, rows[i].name,
                                   rows[i].len);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct dibs__lock_entry *again = dibs__entry_get(
            &locks, &dibs__type_mutex, rows[i].name, rows[i].len);
        if (again != lines[i])
            fail_msg("row %zu: another line", i);
        dibs__entry_unref(again);
        for (size_t k = 0; k < i; k++)
            if (lines[k] == lines[i])
                fail_msg("rows %zu and %zu have one line", k, i);
    }
    for (size_t i = 0; i < COUNT(rows); i++)
        dibs__entry_unref(lines[i]);
    assert_null(dibs__entry_next(&locks, NULL));
}

static void test_names_owner(void **state)
{
    static const struct {
        const struct dibs__lock_type *kind;
        uint64_t number;
        const char *text;
    } rows[] = {
        {&dibs__type_mutex, 1, UUID ":1"},
        {&dibs__type_mutex, 45, UUID ":45"},
        {&dibs__type_mutex, UINT64_MAX, UUID ":18446744073709551615"},
        {&dibs__type_fair, 45, UUID ":45"},
        {&dibs__type_read, 45, UUID ":45"},
        {&dibs__type_write, 45, UUID ":45:write"},
    };
    (void)state;
    strcpy(client.id, UUID);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct dibs__lock_entry *entry =
            dibs__entry_get(&locks, rows[i].kind, "n", 1);
        char text[DIBS_OWNER_MAX];

        assert_non_null(entry);
        size_t len = dibs__owner_text(entry, rows[i].number, text);
        assert_string_equal(text, rows[i].text);
        assert_int_equal(len, strlen(rows[i].text));
        dibs__entry_unref(entry);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_channel),
        cmocka_unit_test(test_names_lines),
        cmocka_unit_test(test_names_owner),
    };
    return cmocka_run_group_tests_name("unit.names", tests, make_locks, NULL);
}
