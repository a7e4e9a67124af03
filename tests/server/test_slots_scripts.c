/* SPDX-License-Identifier: MIT
 *
 * test_slots_scripts.c - every script of the slots lock alone, against a real
 * server, as a table. The tables are in slots_rows.h; script_kit.c runs them.
 */
#include "server/slots_rows.h"

static const char *const words[][2] = {
    {"A", OWNER_A},
    {"B", OWNER_B},
    {"IA", ID_A},
    {"IB", ID_B},
    {"J", ID_J},
    {"J2", ID_J2},
    {"N", "pool"},
    {"Z", "{pool}:timeout"},
    {"S", "{pool}:dibs_slot"},
    {"C", "redisson_sc:{pool}"},
    {"W", "dibs_lock_waiters:{pool}"},
    {"E", "dibs_lock_listener:{pool}"},
    {"WA", "wake:a"},
    {"WB", "wake:b"},
    {"WX", "wake:x"},
    {NULL, NULL},
};
static const char *const channels[] = {"C", "WA", "WB", NULL};

const struct sk_kind sk_kind = {
    .words = words,
    .channels = channels,
    .rights =
        {[NO_SET] = "&* +@all -hset", [NO_CHANNEL] = "resetchannels +@all"},
    .state = sync_state,
};

ROWS_TEST(test_slots_scripts_acquire, acquire_rows)
ROWS_TEST(test_slots_scripts_wait, wait_rows)
ROWS_TEST(test_slots_scripts_call, call_rows)
ROWS_TEST(test_slots_scripts_leave, leave_rows)
ROWS_TEST(test_slots_scripts_release, release_rows)
ROWS_TEST(test_slots_scripts_handover, handover_rows)
ROWS_TEST(test_slots_scripts_force, force_rows)
ROWS_TEST(test_slots_scripts_info, info_rows)
ROWS_TEST(test_slots_scripts_set, set_rows)
ROWS_TEST(test_slots_scripts_renew, renew_rows)
STORY_TEST(test_slots_scripts_vectors, vector_rows)

/* ---- many permits ------------------------------------------------------ */

/* So many permits of ours that ended a second ago, and so many that did not. */
static void crowd(int ended, int out)
{
    sk_begin();
    ts_ok(sk_srv, "EVAL %s 2 %s %s %d %d %lld",
          "for i = 1, ARGV[1] + ARGV[2] do "
          "  redis.call('zadd', KEYS[1], ARGV[3] + "
          "    (i > tonumber(ARGV[1]) and 60000 or -1000), "
          "    string.char(209, 181, 1) .. ('%013d'):format(i)) "
          "  redis.call('hset', KEYS[2], i - 1, "
          "    string.char(209, 181, 1) .. ('%013d'):format(i) .. 'x') "
          "end",
          sk_meaning("Z"), sk_meaning("S"), ended, out, sk_began);
}

static long long free_permits(void)
{
    return ts_int(sk_srv, "EVAL %s 1 %s",
                  "return tonumber(redis.call('get', KEYS[1]))",
                  sk_meaning("N"));
}

/* Ten thousand that have ended come back in chunks, and none is lost. */
static void test_slots_scripts_many_ended(void **state)
{
    (void)state;
    crowd(10000, 0);
    sk_commands("crowd", "SET N 0");
    sk_expect("first", TAKE, "0");
    assert_int_equal(free_permits(), 999);
    assert_int_equal(ts_int(sk_srv, "ZCARD %s", sk_meaning("Z")), 9001);
    sk_expect("second", "slots_acquire N Z S | IB B 1 30000 3 1 C", "1/10000");
    assert_int_equal(
        free_permits() + ts_int(sk_srv, "ZCARD %s", sk_meaning("Z")), 10000);
}

/* So far below zero that one chunk is not enough. */
static void test_slots_scripts_many_ended_below_zero(void **state)
{
    (void)state;
    crowd(9000, 0);
    sk_commands("crowd", "SET N -8500");
    sk_expect("taken", TAKE, "0");
    assert_int_equal(
        free_permits() + ts_int(sk_srv, "ZCARD %s", sk_meaning("Z")), 500);
}

/* The number of the slot among very many that are taken. */
static void test_slots_scripts_many_taken(void **state)
{
    (void)state;
    crowd(0, 3000);
    sk_commands("crowd", "SET N 1");
    sk_expect("last", TAKE, "3000");
    sk_expect("again", TAKE, "3000");
    sk_commands("crowd", "SET N 2;HDEL S 1234");
    sk_expect("hole", "slots_acquire N Z S | IB B 1 30000 3 0 C", "1234");
}

/* A batch as long as the watchdog makes them, and a good deal longer. */
static void test_slots_scripts_renew_very_many(void **state)
{
    enum { MANY = 2000 };
    const char *argv[3 + 3 * MANY + 1];
    static char ids[MANY][17];
    char sha[41];

    (void)state;
    crowd(MANY / 2, MANY / 2);
    ts_script_load(sk_srv, DIBS_LUA_DIR, "permit_renew", sha);
    argv[0] = "EVALSHA";
    argv[1] = sha;
    argv[2] = "2000";
    for (int i = 0; i < MANY; i++) {
        snprintf(ids[i], sizeof ids[i], MARK "%013d", i + 1);
        argv[3 + i] = sk_meaning("Z");
        argv[3 + MANY + 2 * i] = ids[i];
        argv[3 + MANY + 2 * i + 1] = "100000";
    }
    redisReply *r = sk_call_args(3 + 3 * MANY, argv);
    assert_int_equal(r->type, REDIS_REPLY_STRING);
    assert_int_equal(r->len, MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(r->str[i], i < MANY / 2 ? '0' : '1');
    freeReplyObject(r);
}

/* No script without a table. */
static void test_slots_scripts_all_tested(void **state)
{
    static const char *const names[] = {"slots_", "permit_", NULL};
    static const struct row *const tables[] = {
        acquire_rows, release_rows, handover_rows, force_rows,
        info_rows,    set_rows,     renew_rows,    leave_rows};

    (void)state;
    sk_all_tested(names, tables, COUNT(tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_scripts_acquire),
        cmocka_unit_test(test_slots_scripts_wait),
        cmocka_unit_test(test_slots_scripts_call),
        cmocka_unit_test(test_slots_scripts_leave),
        cmocka_unit_test(test_slots_scripts_release),
        cmocka_unit_test(test_slots_scripts_handover),
        cmocka_unit_test(test_slots_scripts_force),
        cmocka_unit_test(test_slots_scripts_info),
        cmocka_unit_test(test_slots_scripts_set),
        cmocka_unit_test(test_slots_scripts_renew),
        cmocka_unit_test(test_slots_scripts_vectors),
        cmocka_unit_test(test_slots_scripts_many_ended),
        cmocka_unit_test(test_slots_scripts_many_ended_below_zero),
        cmocka_unit_test(test_slots_scripts_many_taken),
        cmocka_unit_test(test_slots_scripts_renew_very_many),
        cmocka_unit_test(test_slots_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("slots_scripts", tests, sk_up, sk_down);
}
