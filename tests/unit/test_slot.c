/* SPDX-License-Identifier: MIT
 *
 * test_slot.c - slots of keys, and names whose keys are all in one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/topology/hash_slot.h"

#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Numbers from a server's CLUSTER KEYSLOT. */
static void test_slot_numbers(void **state)
{
    static const struct {
        const char *key;
        int slot;
    } rows[] = {
        {"123456789", 12739},
        {"foo", 12182},
        {"a", 15495},
        {"b", 3300},
        {"", 0},
        {"x{foo}y", 12182},
        {"{foo}{bar}", 12182},
        {"{{foo}}", 13308},
        {"foo{}{bar}", 8363},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        int slot = dibs__hash_slot_of(rows[i].key, strlen(rows[i].key));
        if (slot != rows[i].slot)
            fail_msg("%s: %d, not %d", rows[i].key, slot, rows[i].slot);
    }
    assert_int_equal(dibs__hash_slot_of("{a\0b}", 5),
                     dibs__hash_slot_of("a\0b", 3));
}

static void test_slot_names(void **state)
{
    static const struct {
        const char *name;
        bool fits;
    } rows[] = {
        {"order", true}, {"a:{7}:b", true}, {"{a}{b}", true}, {"{x}y", true},
        {"{{a}}", true}, {"a{b", false},    {"{}x", false},   {"a}b", false},
        {"}{", false},   {"a{}b", false},   {"{", false},     {"}", false},
        {"a}{b}", true}, {"{}{a}", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        if (dibs__hash_slot_single(rows[i].name, strlen(rows[i].name)) !=
            rows[i].fits)
            fail_msg("%s", rows[i].name);
}

/* What the rule is for: the keys that are made of a name are where it is. */
static void test_slot_keys(void **state)
{
    static const char *const names[] = {"order", "a:{7}:b", "{a}{b}", "{x}y",
                                        "a}{b}"};

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        char key[100] = "redisson_lock__channel:";
        bool tagged = strchr(names[i], '{') != NULL;
        strcat(key, tagged ? "" : "{");
        strcat(key, names[i]);
        strcat(key, tagged ? "" : "}");
        strcat(key, ":uuid:1");
        assert_int_equal(dibs__hash_slot_of(key, strlen(key)),
                         dibs__hash_slot_of(names[i], strlen(names[i])));
        const char *suffixed = strchr(key, ':') + 1; /* "{name}:uuid:1" */
        assert_int_equal(dibs__hash_slot_of(suffixed, strlen(suffixed)),
                         dibs__hash_slot_of(names[i], strlen(names[i])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot_numbers),
        cmocka_unit_test(test_slot_names),
        cmocka_unit_test(test_slot_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
