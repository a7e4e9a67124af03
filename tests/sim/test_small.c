/* SPDX-License-Identifier: MIT
 *
 * test_small.c - what the small server does that no real one can be asked for:
 * virtual time, bytes cut anywhere, faults, a crash, and that two runs are
 * alike.
 */
#include "sim/small_kit.h"

/* ---- time -------------------------------------------------------------- */

static void test_small_expiry(void **state)
{
    struct sr_server *s = server(1);
    struct sr_session *c = sr_open(s, "a:1");

    (void)state;
    assert_int_equal(sr_next(s), -1);
    SAYS(c, "SET k v PX 100", "+OK|");
    SAYS(c, "SET l v PX 50", "+OK|");
    assert_int_equal(sr_next(s), START + 51);
    clock_ms += 50;
    SAYS(c, "PTTL l", ":0|"); /* its last ms */
    clock_ms += 1;
    SAYS(c, "DBSIZE", ":2|"); /* nobody has looked */
    SAYS(c, "PTTL l", ":-2|");
    SAYS(c, "DBSIZE", ":1|");
    clock_ms = START + 101;
    sr_tick(s);
    SAYS(c, "DBSIZE", ":0|");
    assert_int_equal(sr_next(s), -1);
    SAYS(c, "TIME", "*2|$10|1700000000|$6|101000|");
    sr_server_free(s);
}

static void test_small_pause(void **state)
{
    struct sr_server *s = server(1);
    struct sr_session *c = sr_open(s, "a:1"), *d = sr_open(s, "a:2");

    (void)state;
    SAYS(c, "SET k v PX 10", "+OK|");
    SAYS(c, "CLIENT PAUSE 500 WRITE", "+OK|");
    SAYS(d, "SET k w", "");
    SAYS(d, "GET k", ""); /* behind it */
    SAYS(c, "GET k", "$1|v|");
    assert_int_equal(sr_next(s), START + 500);
    clock_ms += 100;
    sr_tick(s);
    SAYS(c, "GET k", "$-1|");
    SAYS(c, "DBSIZE", ":1|"); /* the data stand still */
    clock_ms += 400;
    sr_tick(s);
    assert_string_equal(heard(d), "+OK|$1|w|");
    SAYS(c, "CLIENT PAUSE 500", "+OK|");
    SAYS(d, "PING", "");
    sr_close(d); /* so it never happens */
    clock_ms += 500;
    sr_tick(s);
    SAYS(c, "GET k", "$1|w|");
    sr_server_free(s);
}

/* ---- bytes ------------------------------------------------------------- */

static void test_small_cut_anywhere(void **state)
{
    static const char *const lines[] = {
        "SET k v", "INCR n", "EVAL return{1,2} 0", "HSET h f v", "GET k"};
    char bytes[2000], want[8000];
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        n += request(lines[i], bytes + n);
    for (size_t cut = 0; cut <= n; cut++) {
        struct sr_server *s = server(1);
        struct sr_session *c = sr_open(s, "a:1");
        sr_feed(c, bytes, cut);
        sr_feed(c, bytes + cut, n - cut);
        if (cut == 0)
            snprintf(want, sizeof want, "%s", heard(c));
        else
            assert_string_equal(heard(c), want);
        sr_server_free(s);
    }
    /* What is cut off is not executed. */
    struct sr_server *s = server(1);
    struct sr_session *c = sr_open(s, "a:1"), *d = sr_open(s, "a:2");
    size_t one = request("SET k v", bytes);
    sr_feed(c, bytes, one - 1);
    sr_close(c);
    SAYS(d, "EXISTS k", ":0|");
    sr_server_free(s);
}

static void test_small_bad_bytes(void **state)
{
    static const char *const bad[] = {"*1\r\n+GET\r\n", "*x\r\n",
                                      "*1\r\n$-5\r\n", "*1\r\n$x\r\n"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sr_server *s = server(1);
        struct sr_session *c = sr_open(s, "a:1");
        sr_feed(c, bad[i], strlen(bad[i]));
        assert_true(begins(heard(c), "-ERR Protocol error"));
        assert_true(sr_ended(c));
        sr_server_free(s);
    }
}

static void test_small_alike(void **state)
{
    struct sr_server *s[2] = {server(1), server(1)};
    struct sr_session *c[2] = {sr_open(s[0], "a:1"), sr_open(s[1], "a:1")};
    char first[8000];

    (void)state;
    for (int i = 0; i < 60; i++) {
        char line[64];
        snprintf(line, sizeof line, i % 2 ? "HSET h f%d %d" : "HRANDFIELD h %d",
                 i, i);
        for (int j = 0; j < 2; j++)
            say(c[j], line);
        snprintf(first, sizeof first, "%s", heard(c[0]));
        assert_string_equal(heard(c[1]), first);
    }
    for (int j = 0; j < 2; j++)
        say(c[j], "INFO server");
    snprintf(first, sizeof first, "%s", heard(c[0]));
    assert_string_equal(heard(c[1]), first);
    sr_server_free(s[0]);
    sr_server_free(s[1]);
}

/* ---- faults ------------------------------------------------------------ */

static const char *refuse_sets(void *arg, int64_t session, const char *command)
{
    (void)session;
    return strcmp(command, "set") == 0 ? arg : NULL;
}

static void test_small_faults(void **state)
{
    static const struct {
        enum sr_fault fault;
        const char *line, *want;
    } rows[] = {
        {SR_LOADING, "GET k", "-LOADING "},
        {SR_BUSY, "GET k", "-BUSY "},
        {SR_FULL, "SET k v", "-OOM "},
        {SR_FULL, "GET k", "$-1|"},
        {SR_MISCONF, "DEL k", "-MISCONF "},
        {SR_MISCONF, "EVAL return(redis.call('del','k')) 0", "-MISCONF "},
        {SR_LOADING, "CLIENT ID", ":1|"}};
    char busy[] = "BUSY another time";
    struct sr_server *s = server(1);
    struct sr_session *c = sr_open(s, "a:1");

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sr_fault(s, rows[i].fault, true);
        say(c, rows[i].line);
        assert_true(begins(heard(c), rows[i].want));
        sr_fault(s, rows[i].fault, false);
    }
    sr_refuse(s, refuse_sets, busy);
    SAYS(c, "SET k v", "-BUSY another time|");
    SAYS(c, "EXISTS k", ":0|");
    sr_refuse(s, NULL, NULL);
    SAYS(c, "SET k v", "+OK|");
    sr_stop(s);
    SAYS(c, "INCR n", "");
    assert_int_equal(sr_next(s), -1);
    sr_continue(s);
    assert_string_equal(heard(c), ":1|");
    sr_server_free(s);
}

/* Bytes of a client that has gone meanwhile, and of one that was killed. */
static void test_small_stopped(void **state)
{
    struct sr_server *s = server(1);
    struct sr_session *a = sr_open(s, "a:1"), *b = sr_open(s, "a:2");
    struct sr_session *c = sr_open(s, "a:3");

    (void)state;
    sr_stop(s);
    say(a, "SET late 1");
    sr_hang_up(a);
    say(b, "CLIENT KILL ID 3 ADDR a:3");
    say(c, "SET killed 1");
    sr_continue(s);
    assert_string_equal(heard(b), ":1|");
    assert_true(sr_ended(c));
    SAYS(b, "MGET late killed", "*2|$1|1|$-1|");
    sr_stop(s);
    say(c, "SET killed 1");
    sr_hang_up(c);
    say(b, "GET late");
    sr_hang_up(b);
    sr_restart(s, NULL); /* it dies instead of going on */
    a = sr_open(s, "a:1");
    SAYS(a, "DBSIZE", ":0|");
    sr_server_free(s);
}

static void test_small_too_many(void **state)
{
    struct sr_server *s = server(1);
    struct sr_session *c = sr_open(s, "a:1"), *d;

    (void)state;
    SAYS(c, "CONFIG SET maxclients 2", "+OK|");
    d = sr_open(s, "a:2");
    SAYS(d, "PING", "+PONG|");
    struct sr_session *e = sr_open(s, "a:3");
    assert_string_equal(heard(e), "-ERR max number of clients reached|");
    assert_true(sr_ended(e));
    sr_close(d);
    d = sr_open(s, "a:4");
    SAYS(d, "PING", "+PONG|");
    sr_server_free(s);
}

/* Whatever comes, it answers or ends the session. */
static void test_small_noise(void **state)
{
    static const char *const lines[] = {
        "SET k v PX 100",      "EVAL return(KEYS[1]..ARGV[1]) 1 a b",
        "ZADD z 1 a",          "LPOS l x RANK -1 COUNT 0",
        "CLIENT KILL ID 3",    "SUBSCRIBE a b",
        "HSCAN h 0 MATCH [a-", "ACL SETUSER u on >p ~* +@all -set"};
    uint64_t z = 1;
    struct sr_server *s = server(1);

    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct sr_session *c = sr_open(s, "a:1");
        char bytes[4000];
        size_t n = request(lines[i % 8], bytes);
        for (int flips = i % 5; flips > 0; flips--) {
            z = z * 6364136223846793005ULL + 1442695040888963407ULL;
            bytes[(z >> 33) % n] = (char)(z >> 56);
        }
        sr_feed(c, bytes, n);
        sr_feed(c, "\r\n*1\r\n$4\r\nPING\r\n", 16);
        heard(c);
        sr_close(c);
    }
    sr_server_free(s);
}

static void test_small_evict(void **state)
{
    struct sr_server *s = server(1);
    struct sr_session *c = sr_open(s, "a:1"), *d = sr_open(s, "a:2");

    (void)state;
    SAYS(d, "SUBSCRIBE __redis__:invalidate",
         "*3|$9|subscribe|$20|__redis__:invalidate|:1|");
    SAYS(c, "CLIENT TRACKING ON REDIRECT 2 NOLOOP", "+OK|");
    SAYS(c, "SET k v PX 20", "+OK|");
    SAYS(c, "GET k", "$1|v|");
    assert_false(sr_evict(s, 0, "nosuch"));
    assert_true(sr_evict(s, 0, "k"));
    assert_string_equal(heard(d),
                        "*3|$7|message|$20|__redis__:invalidate|*1|$1|k|");
    SAYS(c, "SET k v PX 20", "+OK|");
    SAYS(c, "GET k", "$1|v|");
    clock_ms += 21;
    sr_tick(s); /* the same for a key that ends */
    assert_string_equal(heard(d),
                        "*3|$7|message|$20|__redis__:invalidate|*1|$1|k|");
    sr_server_free(s);
}

static void test_small_restart(void **state)
{
    struct sr_server *s = server(1);
    struct sr_session *c = sr_open(s, "a:1");
    char before[8000];

    (void)state;
    SAYS(c, "SET k v", "+OK|");
    say(c, "SCRIPT LOAD return(1)");
    say(c, "INFO server");
    heard(c);
    say(c, "INFO server");
    snprintf(before, sizeof before, "%s", heard(c));
    struct sr_snapshot *snap = sr_snapshot(s);
    SAYS(c, "SET k later", "+OK|");
    sr_restart(s, snap);
    assert_true(sr_ended(c));
    say(c, "SET k ghost");
    sr_close(c);
    c = sr_open(s, "a:1");
    SAYS(c, "CLIENT ID", ":1|");
    SAYS(c, "GET k", "$1|v|");
    SAYS(c, "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
         "-NOSCRIPT No matching script. Please use EVAL.|");
    say(c, "INFO server");
    assert_string_not_equal(heard(c), before);
    sr_snapshot_free(snap);
    sr_restart(s, NULL);
    sr_close(c);
    c = sr_open(s, "a:1");
    SAYS(c, "DBSIZE", ":0|");
    sr_server_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_small_expiry, set_up),
        cmocka_unit_test_setup(test_small_pause, set_up),
        cmocka_unit_test_setup(test_small_cut_anywhere, set_up),
        cmocka_unit_test_setup(test_small_bad_bytes, set_up),
        cmocka_unit_test_setup(test_small_alike, set_up),
        cmocka_unit_test_setup(test_small_faults, set_up),
        cmocka_unit_test_setup(test_small_stopped, set_up),
        cmocka_unit_test_setup(test_small_too_many, set_up),
        cmocka_unit_test_setup(test_small_noise, set_up),
        cmocka_unit_test_setup(test_small_evict, set_up),
        cmocka_unit_test_setup(test_small_restart, set_up),
    };

    return cmocka_run_group_tests_name("sim small", tests, NULL, NULL);
}
