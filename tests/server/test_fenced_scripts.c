/* SPDX-License-Identifier: MIT
 *
 * test_fenced_scripts.c - every script of the fenced lock alone, against a real
 * server, as a table. The tables are in fenced_rows.h; script_kit.c runs them.
 */
#include "server/fenced_rows.h"

static const char *const words[][2] = {
    {"A", "8743c9c0-0795-4907-87fd-6c719a6b4586:45"},
    {"B", "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"},
    {"L", "order"},
    {"K", "redisson_lock_token:{order}"},
    {"C", "redisson_lock__channel:{order}"},
    {"W", "dibs_lock_waiters:{order}"},
    {"N", "dibs_lock_listener:{order}"},
    {"WA", "wake:a"},
    {"WB", "wake:b"},
    {NULL, NULL},
};
static const char *const channels[] = {"C", "WA", "WB", NULL};

const struct sk_kind sk_kind = {
    .words = words,
    .channels = channels,
    .rights = {[NO_PEXPIRE] = "&* +@all -pexpire", [NO_SET] = "&* +@all -set"},
    .state = sync_state,
};

ROWS_TEST(test_fenced_scripts_acquire, acquire_rows)
ROWS_TEST(test_fenced_scripts_wait, wait_rows)
ROWS_TEST(test_fenced_scripts_handover, handover_rows)
ROWS_TEST(test_fenced_scripts_info, info_rows)
STORY_TEST(test_fenced_scripts_vectors, vector_rows)

static char *token_of(const char *call)
{
    redisReply *r = sk_call(call, PLAIN);

    assert_int_equal(r->type, REDIS_REPLY_STRING);
    char *token = ts_strdup(r->str);
    freeReplyObject(r);
    return token;
}

/* The same token when sent again, a larger one each time after, also when the
 * server has lost the last one, or a larger one than its clock says is known.
 */
static void test_fenced_scripts_tokens_grow(void **state)
{
    static const char *const before[] = {
        "", "DEL K", "FLUSHALL", "SET K 5", "INCRBY K 3600000000", "", "",
    };
    long long last = 0;

    (void)state;
    sk_begin();
    for (size_t i = 0; i < COUNT(before); i++) {
        sk_commands("before", before[i]);
        char *token = token_of("fenced_acquire L K | A 1 30000 0");
        char *again = token_of("fenced_acquire L K | A 1 30000 0");
        assert_string_equal(token, again);
        assert_true(atoll(token) > last);
        free(token);
        token = token_of("fenced_handover L K | A B 30000 0");
        assert_true(atoll(token) > atoll(again));
        free(again);
        again = token_of("fenced_handover L K | A B 30000 0");
        assert_string_equal(token, again);
        last = atoll(token);
        free(token);
        free(again);
        sk_expect("release", "mutex_release L | B 0 0 D", "1");
    }
}

/* The life of the last token begins anew, but not at each hold: that would cost
 * each of them time. */
static void test_fenced_scripts_life(void **state)
{
    const char *key = sk_meaning("K");

    (void)state;
    sk_begin();
    char *first = token_of(TAKE);
    assert_true(ts_int(sk_srv, "PTTL %s", key) > 604700000);
    sk_expect("release", "mutex_release L | A 0 0 D", "1");
    sk_commands("life", "PEXPIRE K 600000");
    char *next = token_of(TAKE);
    bool same = strncmp(first, next, 7) == 0;
    assert_true(ts_int(sk_srv, "PTTL %s", key) > 600000 ? !same : same);
    free(first);
    free(next);
}

/* No script of the fenced lock without a table. */
static void test_fenced_scripts_all_tested(void **state)
{
    static const char *const names[] = {"fenced_", NULL};
    static const struct row *const tables[] = {acquire_rows, handover_rows,
                                               info_rows};

    (void)state;
    sk_all_tested(names, tables, COUNT(tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fenced_scripts_acquire),
        cmocka_unit_test(test_fenced_scripts_wait),
        cmocka_unit_test(test_fenced_scripts_handover),
        cmocka_unit_test(test_fenced_scripts_info),
        cmocka_unit_test(test_fenced_scripts_vectors),
        cmocka_unit_test(test_fenced_scripts_tokens_grow),
        cmocka_unit_test(test_fenced_scripts_life),
        cmocka_unit_test(test_fenced_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("fenced_scripts", tests, sk_up, sk_down);
}
