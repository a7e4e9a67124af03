/* SPDX-License-Identifier: MIT
 *
 * test_rw_scripts.c - every script of the read-write lock alone, against a real
 * server, as a table. The tables are in rw_rows.h and rw_wait_rows.h;
 * script_kit.c runs them.
 */
#include "server/rw_wait_rows.h"

#define OWNER_A "8743c9c0-0795-4907-87fd-6c719a6b4586:45"
#define OWNER_B "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"
#define HEAD    "{order}:"
#define TAIL    ":rwlock_timeout:"

#define CROWD_OWNER "77777777-3c4d-4e5f-8a9b-0c1d2e3f4a5b:"

static const char *const words[][2] = {
    {"A", OWNER_A},
    {"B", OWNER_B},
    {"AW", OWNER_A ":write"},
    {"BW", OWNER_B ":write"},
    {"X", CROWD_OWNER "99"},
    {"L", "order"},
    {"C", "redisson_rwlock:{order}"},
    {"G", "dibs_rwlock_gate:{order}"},
    {"P", HEAD OWNER_A TAIL "1"},
    {"P2", HEAD OWNER_A TAIL "2"},
    {"Q", HEAD OWNER_B TAIL "1"},
    {"Q2", HEAD OWNER_B TAIL "2"},
    {"H", HEAD},
    {"T", TAIL},
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
    .rights = {[NO_PEXPIRE] = "&* +@all -pexpire",
               [NO_SET] = "&* +@all -set",
               [NO_CHANNEL] = "resetchannels +@all"},
};

ROWS_TEST(test_rw_scripts_read_acquire, read_acquire_rows)
ROWS_TEST(test_rw_scripts_read_release, read_release_rows)
ROWS_TEST(test_rw_scripts_read_renew, read_renew_rows)
ROWS_TEST(test_rw_scripts_read_force, read_force_rows)
ROWS_TEST(test_rw_scripts_write_acquire, write_acquire_rows)
ROWS_TEST(test_rw_scripts_write_release, write_release_rows)
ROWS_TEST(test_rw_scripts_write_leave, write_leave_rows)
ROWS_TEST(test_rw_scripts_holders, holders_rows)
ROWS_TEST(test_rw_scripts_foreign, foreign_rows)
ROWS_TEST(test_rw_scripts_wait, rw_wait_rows)
STORY_TEST(test_rw_scripts_vectors, vector_rows)

/* ---- crowds ------------------------------------------------------------ */

enum { CROWD = 200 };

/* So many readers; those from `live` on have no lease any more. */
static void crowd(int n, int live)
{
    sk_begin();
    ts_ok(sk_srv, "HSET order mode read");
    ts_ok(sk_srv, "PEXPIRE order 60000");
    for (int i = 0; i < n; i++) {
        ts_ok(sk_srv, "HSET order " CROWD_OWNER "%d 1", i);
        if (i < live)
            ts_ok(sk_srv, "SET " HEAD CROWD_OWNER "%d" TAIL "1 1 PX 60000", i);
    }
}

static void a_joins(void)
{
    ts_ok(sk_srv, "HSET order " OWNER_A " 1");
    ts_ok(sk_srv, "SET %s 1 PX 60000", sk_meaning("P"));
}

static long long number_of(const char *call)
{
    redisReply *r = sk_call(call, PLAIN);

    if (!r || r->type != REDIS_REPLY_INTEGER)
        fail_msg("%s: no number", call);
    long long n = r->integer;
    freeReplyObject(r);
    return n;
}

/* With many readers a release looks at a few, and never misses the one that
 * lives; those that do not live go. */
static void test_rw_scripts_crowd(void **state)
{
    static const struct {
        int n, live;
        bool freed;
    } rows[] = {
        {CROWD, CROWD, false}, {CROWD, 1, false}, {CROWD, 0, true},
        {16, 1, false},        {17, 1, false},    {17, 0, true},
        {15, 15, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        crowd(rows[i].n, rows[i].live);
        a_joins();
        long long said = number_of(UNREAD("A", "P", "0"));
        if (ts_exists(sk_srv, "order") == rows[i].freed ||
            said != (rows[i].freed ? 2 : 1))
            fail_msg("row %zu: the answer is %lld", i, said);
        if (!rows[i].freed && rows[i].live == 1 &&
            number_of(WRITE("A", "P", "1", "9000", "0")) < 0)
            fail_msg("row %zu: a writer got in", i);
        sk_check_told("crowd", rows[i].freed ? "C=0" : "");
    }
}

/* A writer looks at a few of many readers, or at all: it gets in exactly when
 * none of them lives. */
static void test_rw_scripts_crowd_and_writer(void **state)
{
    (void)state;
    for (int live = 0; live < 3; live++) {
        crowd(CROWD, live);
        redisReply *r = sk_call(WRITE("A", "P", "1", "9000", "0"), PLAIN);
        assert_int_equal(r->type, live ? REDIS_REPLY_INTEGER : REDIS_REPLY_NIL);
        freeReplyObject(r);
        assert_int_equal(ts_hlen(sk_srv, "order"), live ? CROWD + 1 : 2);
    }
}

/* What crashed readers leave does not stay for as long as others read. */
static void test_rw_scripts_dead_readers_go(void **state)
{
    (void)state;
    crowd(CROWD, 1);
    for (int i = 0; i < 100 && ts_hlen(sk_srv, "order") > 2; i++) {
        a_joins();
        number_of(UNREAD("A", "P", "0"));
    }
    assert_in_range(ts_hlen(sk_srv, "order"), 2, 20);
    assert_true(ts_exists(sk_srv, HEAD CROWD_OWNER "0" TAIL "1"));
}

/* How many commands a release runs in the server. */
static long long cost(int readers)
{
    crowd(readers, readers);
    a_joins();
    redisReply *r = sk_call(UNREAD("X", "P", "0"), PLAIN); /* loads it */
    freeReplyObject(r);
    ts_reset_stats(sk_srv);
    number_of(UNREAD("A", "P", "0"));
    return ts_total_commands(sk_srv);
}

static void test_rw_scripts_crowd_costs(void **state)
{
    long long few = cost(10), many = cost(1000);

    (void)state;
    if (many > few + 4)
        fail_msg("%lld commands with 10 readers, %lld with 1000", few, many);
}

/* No script of the read-write lock without a table. */
static void test_rw_scripts_all_tested(void **state)
{
    static const char *const names[] = {"read_", "write_", "holders", NULL};
    static const struct row *const tables[] = {
        read_acquire_rows, read_release_rows,  read_renew_rows,
        read_force_rows,   write_acquire_rows, write_release_rows,
        write_leave_rows,  holders_rows};

    (void)state;
    sk_all_tested(names, tables, COUNT(tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rw_scripts_read_acquire),
        cmocka_unit_test(test_rw_scripts_read_release),
        cmocka_unit_test(test_rw_scripts_read_renew),
        cmocka_unit_test(test_rw_scripts_read_force),
        cmocka_unit_test(test_rw_scripts_write_acquire),
        cmocka_unit_test(test_rw_scripts_write_release),
        cmocka_unit_test(test_rw_scripts_write_leave),
        cmocka_unit_test(test_rw_scripts_holders),
        cmocka_unit_test(test_rw_scripts_foreign),
        cmocka_unit_test(test_rw_scripts_wait),
        cmocka_unit_test(test_rw_scripts_vectors),
        cmocka_unit_test(test_rw_scripts_crowd),
        cmocka_unit_test(test_rw_scripts_crowd_and_writer),
        cmocka_unit_test(test_rw_scripts_dead_readers_go),
        cmocka_unit_test(test_rw_scripts_crowd_costs),
        cmocka_unit_test(test_rw_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("rw_scripts", tests, sk_up, sk_down);
}
