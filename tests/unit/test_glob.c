/* SPDX-License-Identifier: MIT
 *
 * test_glob.c - patterns of names: what they match, and which of them end in
 * the middle of something.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/glob.h"

#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void test_glob_matches(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } rows[] = {
        {"", "", true},          {"", "a", false},       {"*", "", true},
        {"**", "abc", true},     {"a*c", "abbc", true},  {"a*c", "abcd", false},
        {"*b*b", "abab", true},  {"?", "", false},       {"?b", "ab", true},
        {"[ab]c", "bc", true},   {"[ab]c", "cc", false}, {"[^ab]c", "cc", true},
        {"[^ab]c", "ac", false}, {"[a-c]", "b", true},   {"[c-a]", "b", true},
        {"[a-c]", "d", false},   {"[a-]", "`", true},    {"[a-", "a", true},
        {"[a-", "-", true},      {"[a-", "b", false},    {"[a", "a", true},
        {"[", "a", false},       {"[^", "a", true},      {"[\\]]", "]", true},
        {"[\\-z]", "b", false},  {"[!-]]", "[", true},   {"\\*", "*", true},
        {"\\*", "a", false},     {"a\\", "a\\", true},   {"a\\", "a", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        if (dibs__glob_match(rows[i].pattern, rows[i].text,
                             strlen(rows[i].text)) != rows[i].matches)
            fail_msg("%s, %s", rows[i].pattern, rows[i].text);
    assert_true(dibs__glob_match("a?b", "a\0b", 3));
}

static void test_glob_open(void **state)
{
    static const char *const closed[] = {"", "a*", "[a]", "[a-]]", "\\[", "]"};
    static const char *const open[] = {"[", "[a", "[a-", "[a-]", "\\", "a[\\]"};

    (void)state;
    for (size_t i = 0; i < COUNT(closed); i++)
        if (dibs__glob_open(closed[i]))
            fail_msg("%s", closed[i]);
    for (size_t i = 0; i < COUNT(open); i++)
        if (!dibs__glob_open(open[i]))
            fail_msg("%s", open[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_glob_matches),
        cmocka_unit_test(test_glob_open),
    };

    return cmocka_run_group_tests_name("unit.glob", tests, NULL, NULL);
}
