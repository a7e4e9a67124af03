/* SPDX-License-Identifier: MIT
 *
 * test_small.c - what the small server does that no real one can be asked for:
 * virtual time, bytes cut anywhere, faults, lag, failover, a crash, and that
 * two runs are alike.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/redis.h"

#define START 1700000000000 /* ms */

static int64_t clock_ms;

static int64_t now_us(void *arg)
{
    (void)arg;
    return clock_ms * 1000;
}

static struct sr_server *server(int port)
{
    struct sr_config config = {.now_us = now_us, .seed = 7, .port = port};

    return sr_server_new(&config);
}

static int set_up(void **state)
{
    (void)state;
    clock_ms = START;
    return 0;
}

/* ---- talking ----------------------------------------------------------- */

/* A line of words as a request. */
static size_t request(const char *line, char *out)
{
    char copy[2000], *save = NULL, *at = out;
    int n = 1;

    for (const char *p = line; *p; p++)
        n += *p == ' ';
    at += sprintf(at, "*%d\r\n", n);
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok_r(copy, " ", &save); w;
         w = strtok_r(NULL, " ", &save))
        at += sprintf(at, "$%zu\r\n%s\r\n", strlen(w), w);
    return (size_t)(at - out);
}

static void say(struct sr_session *c, const char *line)
{
    char bytes[4000];

    sr_feed(c, bytes, request(line, bytes));
}

/* All that is waiting, line ends as '|'. */
static const char *heard(struct sr_session *c)
{
    static char text[8000];
    size_t n = sr_take(c, text, sizeof text - 1), to = 0;

    for (size_t i = 0; i < n; i++)
        if (text[i] != '\r')
            text[to++] = text[i] == '\n' ? '|' : text[i];
    text[to] = '\0';
    return text;
}

#define SAYS(c, line, want)                                                    \
    do {                                                                       \
        say(c, line);                                                          \
        assert_string_equal(heard(c), want);                                   \
    } while (0)

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

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

/* ---- replicas ---------------------------------------------------------- */

static void test_small_wait(void **state)
{
    struct sr_server *m = server(1), *r = server(2);
    struct sr_session *c = sr_open(m, "a:1");

    (void)state;
    sr_replicate(m, r);
    SAYS(c, "SET k v", "+OK|");
    SAYS(c, "WAIT 1 100", "");
    SAYS(c, "GET k", ""); /* behind it */
    assert_int_equal(sr_next(m), START + 100);
    clock_ms += 100;
    sr_tick(m);
    assert_string_equal(heard(c), ":0|$1|v|");
    SAYS(c, "WAIT 1 0", "");
    sr_stop(r);
    sr_deliver(r, sr_offset(m));
    sr_acknowledge(r);
    assert_string_equal(heard(c), "");
    sr_continue(r);
    sr_deliver(r, sr_offset(m));
    assert_string_equal(heard(c), ""); /* not acknowledged yet */
    sr_acknowledge(r);
    assert_string_equal(heard(c), ":1|");
    SAYS(c, "WAIT 1 100", ":1|");
    SAYS(c, "WAIT 2 100", "");
    clock_ms += 100;
    sr_tick(m);
    assert_string_equal(heard(c), ":1|");
    sr_server_free(r);
    SAYS(c, "WAIT 0 1", ":0|");
    sr_server_free(m);
}

static void test_small_lag(void **state)
{
    struct sr_server *m = server(1), *r = server(2);
    struct sr_session *c = sr_open(m, "a:1");
    struct sr_session *d;

    (void)state;
    SAYS(c, "SET before v", "+OK|");
    sr_replicate(m, r);
    d = sr_open(r, "a:2");
    SAYS(d, "GET before", "$1|v|");
    SAYS(c, "SET k v PX 100", "+OK|");
    int64_t one = sr_offset(m);
    SAYS(c, "EVAL return(redis.call('get','k')) 0", "$1|v|");
    assert_int_equal(sr_offset(m), one);
    SAYS(c, "EVAL redis.call('set','a',1)redis.call('set','b',2) 0", "$-1|");
    SAYS(d, "GET k", "$-1|");
    sr_deliver(r, one);
    SAYS(d, "GET k", "$1|v|");
    sr_deliver(r, sr_offset(m) - 1); /* a script whole, or not at all */
    SAYS(d, "MGET a b", "*2|$-1|$-1|");
    sr_deliver(r, sr_offset(m));
    SAYS(d, "MGET a b", "*2|$1|1|$1|2|");
    /* A key that has ended is there until the master says so. */
    clock_ms += 101;
    sr_tick(r);
    SAYS(d, "GET k", "$-1|");
    SAYS(d, "DBSIZE", ":4|");
    sr_tick(m);
    sr_deliver(r, sr_offset(m));
    SAYS(d, "DBSIZE", ":3|");
    sr_server_free(m);
    SAYS(d, "SET k v",
         "-READONLY You can't write against a read only replica.|");
    sr_server_free(r);
}

static void test_small_failover(void **state)
{
    struct sr_server *m = server(1), *r = server(2);
    struct sr_session *c = sr_open(m, "a:1"), *d = sr_open(r, "a:1");

    (void)state;
    sr_replicate(m, r);
    SAYS(c, "SET kept v", "+OK|");
    sr_deliver(r, sr_offset(m));
    SAYS(c, "SET lost v", "+OK|");
    sr_promote(r);
    SAYS(d, "MGET kept lost", "*2|$1|v|$-1|");
    SAYS(d, "SET new v", "+OK|");
    SAYS(c, "SET alone v", "+OK|"); /* it does not know */
    SAYS(c, "WAIT 1 10", "");
    sr_replicate(r, m); /* now it does */
    assert_true(begins(heard(c), "-UNBLOCKED "));
    assert_true(sr_ended(c));
    sr_close(c);
    c = sr_open(m, "a:1");
    SAYS(c, "MGET kept lost alone new", "*4|$1|v|$-1|$-1|$1|v|");
    SAYS(d, "SET more v", "+OK|");
    sr_deliver(m, sr_offset(r));
    SAYS(c, "GET more", "$1|v|");
    sr_fault(m, SR_LINK_DOWN, true);
    say(c, "GET more");
    assert_true(begins(heard(c), "-MASTERDOWN "));
    sr_restart(m, NULL);
    say(d, "ROLE");
    assert_non_null(strstr(heard(d), "|*0|")); /* it has no replica now */
    sr_server_free(r);
    sr_server_free(m);
}

/* ---- sentinels and clusters -------------------------------------------- */

static void test_small_sentinel(void **state)
{
    struct sr_config config = {.now_us = now_us, .sentinel = true, .port = 3};
    struct sr_server *s = sr_server_new(&config);
    struct sr_session *c = sr_open(s, "a:1"), *d = sr_open(s, "a:2");

    (void)state;
    sr_sentinel_master(s, "jobs", "10.0.0.1", 6379);
    sr_sentinel_peer(s, "10.0.0.9", 26379);
    SAYS(d, "SUBSCRIBE +switch-master",
         "*3|$9|subscribe|$14|+switch-master|:1|");
    SAYS(c, "SENTINEL GET-MASTER-ADDR-BY-NAME jobs", "*2|$8|10.0.0.1|$4|6379|");
    SAYS(c, "SENTINEL SENTINELS jobs",
         "*1|*8|$4|name|$14|10.0.0.9:26379|$2|ip|$8|10.0.0.9|$4|port|$5|26379|"
         "$5|flags|$8|sentinel|");
    sr_sentinel_master(s, "jobs", "10.0.0.2", 6380);
    assert_string_equal(heard(d), "*3|$7|message|$14|+switch-master|$32|jobs "
                                  "10.0.0.1 6379 10.0.0.2 6380|");
    SAYS(c, "SENTINEL GET-MASTER-ADDR-BY-NAME jobs", "*2|$8|10.0.0.2|$4|6380|");
    sr_server_free(s);
}

/* Hands a message to the other node, at once. */
static void pass_on(void *arg, struct sr_server *at, const char *channel,
                    const char *message)
{
    (void)at;
    sr_message(arg, channel, message);
}

static void test_small_cluster(void **state)
{
    struct sr_config config = {.now_us = now_us, .cluster = true, .port = 1};
    struct sr_server *a = sr_server_new(&config);
    config.port = 2;
    struct sr_server *b = sr_server_new(&config);
    struct sr_session *c = sr_open(a, "a:1"), *d = sr_open(b, "a:1");
    struct sr_session *e = sr_open(a, "a:2");
    int slot = sr_key_slot("b", 1);

    (void)state;
    assert_int_equal(slot, 3300);
    SAYS(c, "SET b v", "-CLUSTERDOWN Hash slot not served|");
    sr_slots_assign(a, 0, SR_SLOTS - 1, a);
    sr_slots_assign(b, 0, SR_SLOTS - 1, a);
    SAYS(c, "SET b v", "+OK|");
    SAYS(d, "GET b", "-MOVED 3300 127.0.0.1:1|");
    SAYS(e, "SSUBSCRIBE b", "*3|$10|ssubscribe|$1|b|:1|");
    sr_slot_move(a, slot, SR_MIGRATING, b);
    sr_slot_move(b, slot, SR_IMPORTING, a);
    SAYS(c, "GET b", "$1|v|");
    assert_true(sr_key_move(a, b, "b"));
    SAYS(c, "GET b", "-ASK 3300 127.0.0.1:2|");
    SAYS(d, "ASKING", "+OK|");
    SAYS(d, "GET b", "$1|v|");
    sr_slots_assign(a, slot, slot, b);
    sr_slots_assign(b, slot, slot, b);
    assert_string_equal(heard(e), "*3|$12|sunsubscribe|$1|b|:0|");
    SAYS(c, "GET b", "-MOVED 3300 127.0.0.1:2|");
    SAYS(d, "GET b", "$1|v|");
    SAYS(e, "SUBSCRIBE all", "*3|$9|subscribe|$3|all|:1|");
    SAYS(d, "PUBLISH all m", ":0|");
    assert_string_equal(heard(e), "");
    sr_on_publish(b, pass_on, a);
    SAYS(d, "PUBLISH all m", ":0|");
    assert_string_equal(heard(e), "*3|$7|message|$3|all|$1|m|");
    say(d, "CLUSTER SLOTS");
    assert_true(begins(heard(d), "*3|*3|:0|:3299|*4|$9|127.0.0.1|:1|$40|"));
    sr_server_free(a);
    sr_server_free(b);
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
        cmocka_unit_test_setup(test_small_wait, set_up),
        cmocka_unit_test_setup(test_small_lag, set_up),
        cmocka_unit_test_setup(test_small_failover, set_up),
        cmocka_unit_test_setup(test_small_sentinel, set_up),
        cmocka_unit_test_setup(test_small_cluster, set_up),
    };

    return cmocka_run_group_tests_name("sim small", tests, NULL, NULL);
}
