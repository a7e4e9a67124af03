/* SPDX-License-Identifier: MIT
 *
 * test_scripts.c - every script of the plain lock alone, against a real server,
 * as a table. The tables are in script_rows.h and wait_rows.h; script_kit.c
 * runs them.
 */
#include "server/script_rows.h"
#include "server/wait_rows.h"

static const char *const words[][2] = {
    {"A", "8743c9c0-0795-4907-87fd-6c719a6b4586:45"},
    {"B", "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"},
    {"L", "order"},
    {"C", "redisson_lock__channel:{order}"},
    {"M", "a:{7}"},
    {"D", "redisson_lock__channel:a:{7}"},
    {"W", "dibs_lock_waiters:{order}"},
    {"N", "dibs_lock_listener:{order}"},
    {"WM", "dibs_lock_waiters:a:{7}"},
    {"WA", "wake:a"},
    {"WB", "wake:b"},
    {"WC", "wake:c"},
    {NULL, NULL},
};
static const char *const channels[] = {"C", "WA", "WB", "WC", NULL};

const struct sk_kind sk_kind = {
    .words = words,
    .channels = channels,
    .rights = {[NO_PEXPIRE] = "&* +@all -pexpire -hdel",
               [NO_SET] = "&* +@all resetkeys ~order",
               [NO_CHANNEL] = "resetchannels +@all"},
};

ROWS_TEST(test_scripts_acquire, acquire_rows)
ROWS_TEST(test_scripts_release, release_rows)
ROWS_TEST(test_scripts_renew, renew_rows)
ROWS_TEST(test_scripts_handover, handover_rows)
ROWS_TEST(test_scripts_force, force_rows)
ROWS_TEST(test_scripts_info, info_rows)
ROWS_TEST(test_scripts_foreign, foreign_rows)
ROWS_TEST(test_scripts_wait, wait_rows)
ROWS_TEST(test_scripts_call, call_rows)
ROWS_TEST(test_scripts_leave, leave_rows)
STORY_TEST(test_scripts_vectors, vector_rows)

/* Of very many fields only some are told, but all are counted; whichever way
 * the server stores them. */
static void test_scripts_info_of_a_crowd(void **state)
{
    (void)state;
    sk_begin();
    for (int i = 1; i <= 1000; i++) {
        ts_ok(sk_srv, "HSET %s mode read %s:%d 1", sk_meaning("L"),
              "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b", i);
        if (i != 100 && i != 1000)
            continue;
        redisReply *r = sk_call("mutex_info L |", PLAIN);
        assert_int_equal(r->type, REDIS_REPLY_ARRAY);
        assert_in_range(r->elements, 3 + 2, 3 + 2 * 32);
        assert_string_equal(r->element[3]->str, "mode");
        assert_int_equal(r->elements % 2, 1);
        assert_int_equal(r->element[1]->integer, i + 1);
        assert_int_equal(r->element[2]->integer, 0);
        freeReplyObject(r);
    }
}

/* A very large hash of an application is not read whole, and is no lock. */
static void test_scripts_foreign_crowd(void **state)
{
    static const char *const calls[][2] = {
        {"mutex_acquire L | A 1 30000", "-6"},
        {"mutex_force L | A C", "-6"},
        {"mutex_info L |", "-6 0 0"},
    };

    (void)state;
    sk_begin();
    ts_ok(sk_srv, "EVAL %s 1 %s",
          "for i = 1, 100000 do redis.call('hset', KEYS[1], i, i) end",
          sk_meaning("L"));
    for (size_t i = 0; i < COUNT(calls); i++)
        sk_expect("a crowd of fields", calls[i][0], calls[i][1]);
    assert_int_equal(ts_hlen(sk_srv, sk_meaning("L")), 100000);
    assert_int_equal(ts_pttl(sk_srv, sk_meaning("L")), -1);
}

/* A batch as long as the watchdog makes them, and a good deal longer. */
static void test_scripts_renew_very_many(void **state)
{
    enum { MANY = 2000 };
    const char *argv[3 + 3 * MANY + 1];
    static char keys[MANY][20];
    char sha[41];

    (void)state;
    sk_begin();
    ts_script_load(sk_srv, DIBS_LUA_DIR, "mutex_renew", sha);
    argv[0] = "EVALSHA";
    argv[1] = sha;
    argv[2] = "2000";
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "lock:%d", i);
        argv[3 + i] = keys[i];
        argv[3 + MANY + 2 * i] = "A";
        argv[3 + MANY + 2 * i + 1] = "100000";
        if (i % 2)
            ts_ok(sk_srv, "HSET %s A 1", keys[i]);
    }
    redisReply *r = sk_call_args(3 + 3 * MANY, argv);
    assert_int_equal(r->type, REDIS_REPLY_STRING);
    assert_int_equal(r->len, MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(r->str[i], i % 2 ? '1' : '0');
    freeReplyObject(r);
    assert_int_equal(ts_nkeys(sk_srv), MANY / 2);
}

/* No script of the plain lock without a table. */
static void test_scripts_all_tested(void **state)
{
    static const char *const names[] = {"mutex_", "wait_", NULL};
    static const struct row *const tables[] = {
        acquire_rows, release_rows, renew_rows, handover_rows,
        force_rows,   info_rows,    leave_rows};

    (void)state;
    sk_all_tested(names, tables, COUNT(tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scripts_acquire),
        cmocka_unit_test(test_scripts_release),
        cmocka_unit_test(test_scripts_renew),
        cmocka_unit_test(test_scripts_handover),
        cmocka_unit_test(test_scripts_force),
        cmocka_unit_test(test_scripts_info),
        cmocka_unit_test(test_scripts_foreign),
        cmocka_unit_test(test_scripts_wait),
        cmocka_unit_test(test_scripts_call),
        cmocka_unit_test(test_scripts_leave),
        cmocka_unit_test(test_scripts_foreign_crowd),
        cmocka_unit_test(test_scripts_vectors),
        cmocka_unit_test(test_scripts_info_of_a_crowd),
        cmocka_unit_test(test_scripts_renew_very_many),
        cmocka_unit_test(test_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("scripts", tests, sk_up, sk_down);
}
