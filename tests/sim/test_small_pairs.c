/* SPDX-License-Identifier: MIT
 *
 * test_small_pairs.c - several small servers in virtual time: replicas that
 * lag, failover with and without loss, sentinels, a slot that moves.
 */
#include "sim/small_kit.h"

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
    sr_acknowledge(r); /* of what it has read: nothing */
    assert_string_equal(heard(c), "");
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
        cmocka_unit_test_setup(test_small_wait, set_up),
        cmocka_unit_test_setup(test_small_lag, set_up),
        cmocka_unit_test_setup(test_small_failover, set_up),
        cmocka_unit_test_setup(test_small_sentinel, set_up),
        cmocka_unit_test_setup(test_small_cluster, set_up),
    };

    return cmocka_run_group_tests_name("sim small pairs", tests, NULL, NULL);
}
