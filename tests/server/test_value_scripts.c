/* SPDX-License-Identifier: MIT
 *
 * test_value_scripts.c - every script about published values alone, against a
 * real server, as a table. The tables are in value_rows.h; script_kit.c runs
 * them.
 */
#include "server/value_rows.h"

#define OWNER_A "11111111-1111-4111-8111-111111111111:1"
#define OWNER_B "22222222-2222-4222-8222-222222222222:1"

static const char *const words[][2] = {
    {"L", "lead"},
    {"V", "dibs_lock_value:{lead}"},
    {"C", "redisson_lock__channel:{lead}"},
    {"P", "redisson_lock__channel:{lead}:"},
    {"R", "redisson_rwlock:{lead}"},
    {"Q", "redisson_lock_queue:{lead}"},
    {"Z", "redisson_lock_timeout:{lead}"},
    {"S", "dibs_lock_silent:{lead}"},
    {"K", "redisson_lock_token:{lead}"},
    {"G", "dibs_rwlock_gate:{lead}"},
    {"A", OWNER_A},
    {"B", OWNER_B},
    {"AW", OWNER_A ":write"},
    {"AW5hi", OWNER_A ":write 5 hi"},
    {"Ahuge", OWNER_A " 99999999999999999 x"},
    {"spaced", "  two  words "},
    {"A5", OWNER_A " 5 "},
    {"A5hi", OWNER_A " 5 hi"},
    {"A5spaced", OWNER_A " 5   two  words "},
    {"A4old", OWNER_A " 4 old"},
    {"A6new", OWNER_A " 6 new"},
    {"A1700000000000001old", OWNER_A " 1700000000000001 old"},
    {"A1700000000000002hi", OWNER_A " 1700000000000002 hi"},
    {"B4x", OWNER_B " 4 x"},
    {"B9x", OWNER_B " 9 x"},
    {NULL, NULL},
};
static const char *const channels[] = {"C", "R", NULL};

#define LONG 5000

/* A value of a stranger that is longer than any of ours. */
static char *long_word(const char *word)
{
    if (strcmp(word, "A5long") != 0)
        return NULL;
    return ts_text("%s 5 %0*d", OWNER_A, LONG, 0);
}

/* "KEY text TTL" */
static bool text_state(const struct sk_turn *turn, const struct sk_words *ws)
{
    const char *row = turn->row->name, *key = ws->w[0];

    if (ws->n != 3 || strchr(ws->w[1], '='))
        return false;
    char *value = ts_str(sk_srv, "GET %s", key);
    if (!value || strcmp(value, ws->w[1]) != 0)
        fail_msg("%s: %s is not '%s' but '%s'", row, key, ws->w[1],
                 value ? value : "nil");
    free(value);
    check_ttl(row, key, ws->w[2]);
    return true;
}

const struct sk_kind sk_kind = {
    .words = words,
    .channels = channels,
    .word = long_word,
    .state = text_state,
    .rights = {[NO_SET] = "&* +@all -set",
               [NO_VALUE] = "&* +@all -get",
               [NO_CHANNEL] = "resetchannels +@all"},
};

ROWS_TEST(test_value_scripts_set, set_rows)
ROWS_TEST(test_value_scripts_drop, drop_rows)
ROWS_TEST(test_value_scripts_get, get_rows)
ROWS_TEST(test_value_scripts_number, number_rows)
ROWS_TEST(test_value_scripts_ended, ended_rows)

/* It is cut by the server. */
static void test_value_scripts_long_text(void **state)
{
    (void)state;
    sk_begin();
    sk_commands("long", "HSET L A 1;SET V A5long");
    redisReply *r = sk_call(GET, PLAIN);
    assert_int_equal(r->type, REDIS_REPLY_ARRAY);
    assert_int_equal(r->elements, 2);
    assert_int_equal(r->element[1]->len, 4096);
    freeReplyObject(r);
}

/* No script without a table. */
static void test_value_scripts_all_tested(void **state)
{
    static const char *const names[] = {"value_", NULL};
    static const struct row *const tables[] = {set_rows, drop_rows, get_rows};

    (void)state;
    sk_all_tested(names, tables, COUNT(tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value_scripts_set),
        cmocka_unit_test(test_value_scripts_drop),
        cmocka_unit_test(test_value_scripts_get),
        cmocka_unit_test(test_value_scripts_number),
        cmocka_unit_test(test_value_scripts_ended),
        cmocka_unit_test(test_value_scripts_long_text),
        cmocka_unit_test(test_value_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("value_scripts", tests, sk_up, sk_down);
}
