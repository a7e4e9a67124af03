/* SPDX-License-Identifier: MIT
 *
 * test_semaphore_scripts.c - every script of the semaphore alone, against a
 * real server, as a table. The tables are in semaphore_rows.h; script_kit.c
 * runs them.
 */
#include "server/semaphore_rows.h"

static const char *const words[][2] = {
    {"A", OWNER_A},
    {"B", OWNER_B},
    {"A1", "1:" OWNER_A},
    {"A2", "2:" OWNER_A},
    {"A99", "99:" OWNER_A},
    {"B1", "1:" OWNER_B},
    {"B3", "3:" OWNER_B},
    {"N", "pool"},
    {"D", "{pool}:dibs_held"},
    {"G", "{pool}:dibs_req:0123456789abcdef0123456789abcdef"},
    {"C", "redisson_sc:{pool}"},
    {NULL, NULL},
};
static const char *const channels[] = {"C", NULL};

const struct sk_kind sk_kind = {
    .words = words,
    .channels = channels,
    .rights =
        {[NO_SET] = "&* +@all -set", [NO_CHANNEL] = "resetchannels +@all"},
    .state = sync_state,
};

ROWS_TEST(test_semaphore_scripts_acquire, acquire_rows)
ROWS_TEST(test_semaphore_scripts_release, release_rows)
ROWS_TEST(test_semaphore_scripts_force, force_rows)
ROWS_TEST(test_semaphore_scripts_add, add_rows)
ROWS_TEST(test_semaphore_scripts_drain, drain_rows)
ROWS_TEST(test_semaphore_scripts_set, set_rows)
ROWS_TEST(test_semaphore_scripts_info, info_rows)
ROWS_TEST(test_semaphore_scripts_renew, renew_rows)
STORY_TEST(test_semaphore_scripts_vectors, vector_rows)

/* So many who are gone, each with two. */
static void crowd(int many)
{
    sk_begin();
    sk_commands("crowd", "SET N 0");
    ts_ok(sk_srv, "EVAL %s 1 %s %d %lld",
          "for i = 1, ARGV[1] do "
          "  redis.call('zadd', KEYS[1], ARGV[2] - 5, '2:x:' .. i) "
          "end",
          sk_meaning("D"), many, sk_began);
}

static void check_info(long long available, long long noted)
{
    redisReply *r = sk_call("semaphore_info N D | C", PLAIN);

    assert_int_equal(r->type, REDIS_REPLY_ARRAY);
    assert_int_equal(r->element[1]->integer, available);
    assert_int_equal(r->element[2]->integer, noted);
    freeReplyObject(r);
}

/* Ten thousand who are gone give back at once, and more in two steps; nothing
 * is lost. */
static void test_semaphore_scripts_many_gone(void **state)
{
    (void)state;
    crowd(10000);
    check_info(20000, 0);
    assert_int_equal(ts_nkeys(sk_srv), 1);
    crowd(10500);
    check_info(20000, 500);
    check_info(21000, 0);
}

/* An acquire takes back as many as it needs. */
static void test_semaphore_scripts_many_gone_enough(void **state)
{
    (void)state;
    crowd(10000);
    sk_expect("few", "semaphore_acquire N D | A 2 30000 C", "2");
    assert_int_equal(ts_int(sk_srv, "ZCARD %s", sk_meaning("D")), 9001);
    sk_expect("many", "semaphore_acquire N D | B 9000 30000 C", "9000");
    check_info(20000 - 9002, 2);
}

/* No script without a table. */
static void test_semaphore_scripts_all_tested(void **state)
{
    static const char *const names[] = {"semaphore_", NULL};
    static const struct row *const tables[] = {
        acquire_rows, release_rows, force_rows, add_rows,
        drain_rows,   set_rows,     info_rows,  renew_rows};

    (void)state;
    sk_all_tested(names, tables, COUNT(tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_semaphore_scripts_acquire),
        cmocka_unit_test(test_semaphore_scripts_release),
        cmocka_unit_test(test_semaphore_scripts_force),
        cmocka_unit_test(test_semaphore_scripts_add),
        cmocka_unit_test(test_semaphore_scripts_drain),
        cmocka_unit_test(test_semaphore_scripts_set),
        cmocka_unit_test(test_semaphore_scripts_info),
        cmocka_unit_test(test_semaphore_scripts_renew),
        cmocka_unit_test(test_semaphore_scripts_vectors),
        cmocka_unit_test(test_semaphore_scripts_many_gone),
        cmocka_unit_test(test_semaphore_scripts_many_gone_enough),
        cmocka_unit_test(test_semaphore_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("semaphore_scripts", tests, sk_up,
                                       sk_down);
}
