/* SPDX-License-Identifier: MIT
 *
 * test_multi_scripts.c - the scripts of the multi lock alone, against a real
 * server, as tables. The tables are in multi_rows.h; script_kit.c runs them.
 */
#include "server/multi_rows.h"

#define OWNER_A "8743c9c0-0795-4907-87fd-6c719a6b4586:45"
#define OWNER_B "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

static const char *const words[][2] = {
    {"A", OWNER_A},           {"B", OWNER_B},      {"AW", OWNER_A ":write"},
    {"BW", OWNER_B ":write"}, {"Ga", "gate:a"},    {"Gb", "gate:b"},
    {"Gc", "gate:c"},         {"Ca", "channel:a"}, {"Cb", "channel:b"},
    {"Cc", "channel:c"},      {NULL, NULL},
};
static const char *const channels[] = {"channel:*", NULL};

const struct sk_kind sk_kind = {
    .words = words,
    .channels = channels,
    .rights = {[NO_PEXPIRE] = "&* +@all -pexpire",
               [NO_CHANNEL] = "resetchannels +@all"},
};

ROWS_TEST(test_multi_scripts_acquire, acquire_rows)
ROWS_TEST(test_multi_scripts_release, release_rows)

/* How many commands the server runs for this call, which must give that. */
static long long cost(const char *call, const char *want)
{
    freeReplyObject(sk_call("multi_acquire x | 30000 p9 A", PLAIN));
    freeReplyObject(sk_call("multi_release x | 0 1 p0 A Cx", PLAIN));
    ts_reset_stats(sk_srv);
    redisReply *r = sk_call(call, PLAIN);
    long long n = ts_total_commands(sk_srv);
    sk_check_reply("cost", r, want);
    freeReplyObject(r);
    return n;
}

#define TEN_KEYS   "k0 k1 k2 k3 k4 k5 k6 k7 k8 k9 | "
#define FIVE(each) each " " each " " each " " each " " each
#define TEN(each)  FIVE(each) " " FIVE(each)

/* A script's cost is its commands. For ten free names: two each and a look at
 * all; to free them a look and a message each, and one to delete them all.
 * (Beside it the script is loaded and called.) */
static void test_multi_scripts_cost(void **state)
{
    (void)state;
    sk_begin();
    assert_in_range(cost("multi_acquire " TEN_KEYS "30000 " TEN("p1 A"), "nil"),
                    20, 23);
    assert_in_range(
        cost("multi_release " TEN_KEYS "0 10 " TEN("p0 A Ca"), TEN("2")), 20,
        23);
    sk_check_told("cost", TEN("Ca=0"));
    assert_int_equal(ts_nkeys(sk_srv), 0);
}

/* As many as a group may have, in one command. */
static redisReply *thousand(const char *script, const char *kind, bool acquire)
{
    enum { N = 1000 };
    char sha[41], (*keys)[24] = ts_alloc(2 * N * sizeof keys[0]);
    const char **argv = ts_alloc((6 + 6 * N) * sizeof argv[0]);
    int argc = 3;

    ts_script_load(sk_srv, DIBS_LUA_DIR, script, sha);
    argv[0] = "EVALSHA";
    argv[1] = sha;
    argv[2] = "2000";
    for (int i = 0; i < 2 * N; i++) {
        snprintf(keys[i], sizeof keys[i], i < N ? "k%d" : "gate:%d", i);
        argv[argc++] = keys[i];
    }
    argv[argc++] = acquire ? "60000" : "0";
    if (!acquire)
        argv[argc++] = "1000";
    for (int i = 0; i < N; i++) {
        argv[argc++] = kind;
        argv[argc++] = i == 0 ? OWNER_A : "";
        if (!acquire)
            argv[argc++] = "channel:a";
    }
    redisReply *r = sk_call_args(argc, argv);
    free(keys);
    free(argv);
    return r;
}

static void test_multi_scripts_thousand(void **state)
{
    static const char *const kinds[][2] = {{"p1", "p0"}, {"w1", "w0"}};

    (void)state;
    sk_begin();
    for (size_t i = 0; i < COUNT(kinds); i++) {
        redisReply *r = thousand("multi_acquire", kinds[i][0], true);
        sk_check_reply(kinds[i][0], r, "nil");
        freeReplyObject(r);
        assert_int_equal(ts_nkeys(sk_srv), 1000);
        r = thousand("multi_release", kinds[i][1], false);
        assert_int_equal(r->type, REDIS_REPLY_ARRAY);
        assert_int_equal(r->elements, 1000);
        freeReplyObject(r);
        assert_int_equal(ts_nkeys(sk_srv), 0);
    }
}

/* No script of the multi lock without a table. */
static void test_multi_scripts_all_tested(void **state)
{
    static const char *const names[] = {"multi_", NULL};
    static const struct row *const tables[] = {acquire_rows, release_rows};

    (void)state;
    sk_all_tested(names, tables, COUNT(tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multi_scripts_acquire),
        cmocka_unit_test(test_multi_scripts_release),
        cmocka_unit_test(test_multi_scripts_cost),
        cmocka_unit_test(test_multi_scripts_thousand),
        cmocka_unit_test(test_multi_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("multi_scripts", tests, sk_up, sk_down);
}
