/* SPDX-License-Identifier: MIT
 *
 * fault_replicas.c - what can go wrong between a script and its WAIT.
 *
 * A master with one replica, and the proxy before it. Whatever is lost, a call
 * says OK only if the replica has the lock; otherwise nothing is left of it.
 */
#include "fault/kit.h"

#include <stdio.h>
#include <string.h>

#define SHORT_MS kit_ms(100)
#define LONG_MS  kit_ms(20000) /* only ends a hang */
#define HASTY_MS kit_ms(300)   /* of a command that will not be answered */

static struct ts_server *replica;

static bool in_step(void)
{
    return ts_int(kit_srv, "WAIT 1 0") == 1;
}

static int up(void **state)
{
    kit_up(state);
    ts_config_set(kit_srv, "repl-diskless-sync-delay", "0");
    char *port = ts_text("%d", ts_server_port(kit_srv));
    const char *extra[] = {"--replicaof", "127.0.0.1", port, NULL};
    replica = ts_server_start(extra);
    free(port);
    TS_WAIT(in_step());
    return 0;
}

static int down(void **state)
{
    ts_server_stop(replica);
    return kit_down(state);
}

static int fresh(void **state)
{
    ts_server_resume(replica);
    TS_WAIT(in_step());
    return kit_fresh(state);
}

static int tidy(void **state)
{
    (void)state;
    ts_server_resume(replica);
    return 0;
}

static void want(const char *what, dibs_err got, dibs_err expected)
{
    if (got != expected)
        fail_msg("%s: \"%s\", not \"%s\"", what, dibs_strerror(got),
                 dibs_strerror(expected));
}

static const dibs_lock_opts *one(void)
{
    static dibs_lock_opts o = {.size = sizeof o, .replicas = 1};

    return &o;
}

/* ---- on which connection ------------------------------------------------ */

static int connection_of(const char *text, unsigned nth)
{
    char *line = ts_proxy_log_line(kit_px, text, nth);
    int number = -1;

    assert_non_null(line);
    assert_int_equal(sscanf(line, "%*d #%d", &number), 1);
    free(line);
    return number;
}

/* WAIT counts the writes of its own connection: behind the script, on the same
 * one, and what asks for no replicas is not on it. */
static void test_same_connection(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
    dibs_lock *l = kit_lock(k, "mine"), *other = kit_lock(k, "other");

    (void)state;
    ts_proxy_reset(kit_px);
    for (unsigned i = 0; i < 3; i++) {
        want("acquire", dibs_lock_acquire(l, one()), DIBS_OK);
        want("other", dibs_lock_acquire(other, NULL), DIBS_OK);
        int waits_on = connection_of(" WAIT 1 ", i);
        assert_int_equal(connection_of(" 1 mine ", 2 * i), waits_on);
        want("release", dibs_lock_release(l, NULL), DIBS_OK);
        assert_int_not_equal(connection_of(" 1 mine ", 2 * i + 1), waits_on);
        assert_int_not_equal(connection_of(" 1 other ", 2 * i), waits_on);
        want("release", dibs_lock_release(other, NULL), DIBS_OK);
    }
    assert_int_equal(ts_proxy_logged(kit_px, " WAIT "), 3);
    dibs_lock_free(l);
    dibs_lock_free(other);
    kit_close(k);
}

/* ---- lost -------------------------------------------------------------- */

/* Once: it is all sent again, on another connection, and then it is true. */
static void test_lost_once(void **state)
{
    static const struct {
        const char *what;
        struct ts_rule rule;
        int replicas;
    } rows[] = {
        {"WAIT's reply", {TS_DROP_REPLY_CLOSE, .match = "WAIT"}, 1},
        {"half of it", {TS_CUT_REPLY_AT, .match = "WAIT", .at = 1}, 1},
        {"WAIT itself", {TS_CLOSE_BEFORE, .match = "WAIT"}, 1},
        {"half of it", {TS_CUT_REQUEST_AT, .match = "WAIT", .at = 9}, 1},
        {"the script's reply", {TS_DROP_REPLY_CLOSE, .match = "EVALSHA"}, 1},
        {"the script", {TS_CLOSE_BEFORE, .match = "EVALSHA"}, 1},
        {"ROLE's reply", {TS_DROP_REPLY_CLOSE, .match = "ROLE"}, -1},
        {"ROLE", {TS_CLOSE_BEFORE, .match = "ROLE"}, -1},
        {"WAIT's reply, behind ROLE",
         {TS_DROP_REPLY_CLOSE, .match = "WAIT"},
         -1},
    };

    (void)state;
    for (size_t i = 0; i < 2 * COUNT(rows); i++) {
        size_t row = i / 2;
        struct kit_client *k =
            kit_open(&(struct kit_opts){.user = i % 2 ? KIT_MEEK : KIT_FULL});
        struct ts_rule rule = rows[row].rule;
        dibs_lock_opts o = {.size = sizeof o, .replicas = rows[row].replicas};
        char *name = kit_name("once");
        dibs_lock *l = kit_lock(k, name);

        rule.count = 1;
        int id = ts_proxy_rule(kit_px, &rule);
        want(rows[row].what, dibs_lock_try(l, &o), DIBS_OK);
        assert_true(ts_exists(replica, name));
        assert_int_equal(ts_rule_hits(kit_px, id), 1);
        kit_check(rows[row].what, l, 0, name, 1);
        id = ts_proxy_rule(kit_px, &rule);
        want(rows[row].what, dibs_lock_try(l, &o), DIBS_OK);
        assert_int_equal(ts_rule_hits(kit_px, id), 1);
        kit_check(rows[row].what, l, 0, name, 2);
        want("release", dibs_lock_release(l, NULL), DIBS_OK);
        want("release", dibs_lock_release(l, NULL), DIBS_OK);
        kit_free_for_all(rows[row].what, name);
        dibs_lock_free(l);
        free(name);
        kit_close(k);
    }
}

/* Every time, and silently: nobody knows, so it does not count as taken, and
 * is taken back. */
static void test_lost_always(void **state)
{
    static const enum ts_action actions[] = {TS_SWALLOW_REPLY, TS_HOLD_REPLY,
                                             TS_DROP_REPLY_CLOSE};

    (void)state;
    for (size_t i = 0; i < COUNT(actions); i++) {
        struct kit_client *k =
            kit_open(&(struct kit_opts){.timeout_ms = HASTY_MS});
        struct ts_rule rule = {.action = actions[i], .match = "WAIT"};
        char *name = kit_name("always");
        dibs_lock *l = kit_lock(k, name);
        dibs_lock_opts o = *one();

        o.replicas_timeout_ms = SHORT_MS;
        int id = ts_proxy_rule(kit_px, &rule);
        want("try", dibs_lock_try(l, &o), DIBS_ERR_UNKNOWN);
        assert_true(ts_rule_hits(kit_px, id) > 0);
        assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
        kit_free_for_all("unknown", name);
        ts_proxy_unrule(kit_px, id);
        ts_proxy_release(kit_px);
        o.replicas_timeout_ms = LONG_MS;
        want("try", dibs_lock_try(l, &o), DIBS_OK);
        want("release", dibs_lock_release(l, NULL), DIBS_OK);
        dibs_lock_free(l);
        free(name);
        kit_close(k);
    }
}

/* A server that answers, but executes nothing for a while (CLIENT PAUSE; so
 * does a failover): the call has its time, and not more each time it fails. */
static void test_paused(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.timeout_ms = HASTY_MS});
    dibs_lock *l = kit_lock(k, "paused");
    dibs_lock_opts o = *one();

    (void)state;
    o.replicas_timeout_ms = SHORT_MS;
    ts_ok(kit_srv, "CLIENT PAUSE 60000 WRITE");
    want("try", dibs_lock_try(l, &o), DIBS_ERR_UNKNOWN);
    ts_ok(kit_srv, "CLIENT UNPAUSE");
    kit_free_for_all("paused", "paused");
    dibs_lock_free(l);
    kit_close(k);
}

/* One that waits goes on trying, and has it when that is true. */
static void test_lost_while_waiting(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.timeout_ms = HASTY_MS});
    struct ts_rule rule = {
        .action = TS_SWALLOW_REPLY, .match = "WAIT", .count = 2};
    dibs_lock *l = kit_lock(k, "waits");

    (void)state;
    int id = ts_proxy_rule(kit_px, &rule);
    want("acquire", dibs_lock_acquire(l, one()), DIBS_OK);
    assert_int_equal(ts_rule_hits(kit_px, id), 2);
    assert_true(ts_exists(replica, "waits"));
    want("release", dibs_lock_release(l, NULL), DIBS_OK);
    kit_free_for_all("released", "waits");
    dibs_lock_free(l);
    kit_close(k);
}

/* A new connection's WAIT must not count what the old one wrote as had by all:
 * the script writes each time, also when there is nothing new to write. */
static void test_second_time_writes(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lease_ms = 0});
    struct ts_rule rule = {
        .action = TS_DROP_REPLY_CLOSE, .match = "WAIT", .count = 1};
    dibs_lock *l = kit_lock(k, "twice");
    dibs_lock_opts o = {.size = sizeof o,
                        .replicas = 1,
                        .replicas_timeout_ms = SHORT_MS,
                        .lease_ms = 10000};

    (void)state;
    want("outer", dibs_lock_try(l, NULL), DIBS_OK);
    ts_server_pause(replica);
    int id = ts_proxy_rule(kit_px, &rule);
    /* A re-entry with a shorter lease: the second copy changes nothing. */
    want("try", dibs_lock_try(l, &o), DIBS_ERR_REPLICAS);
    assert_int_equal(ts_rule_hits(kit_px, id), 1);
    kit_check("taken back", l, 0, "twice", 1);
    want("release", dibs_lock_release(l, NULL), DIBS_OK);
    dibs_lock_free(l);
    kit_close(k);
}

static void test_scripts_write_again(void **state)
{
    static const struct {
        const struct dibs__script *script;
        const char *call; /* behind the script */
    } rows[] = {
        {&dibs__script_mutex_acquire, "1 k o 1 5000"},
        {&dibs__script_fair_acquire, "4 k q s z o 1 5000 60000 c 0 5000"},
        {&dibs__script_read_acquire, "3 k r g o 1 5000"},
        {&dibs__script_write_acquire, "3 k r g o 1 5000 0 h t"},
        {&dibs__script_multi_acquire, "1 k 5000 p1 o"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        long long at[3];

        ts_ok(kit_srv, "FLUSHALL");
        for (int n = 0; n < 3; n++) {
            char *line = ts_text("EVAL %%s %s 100%d", rows[i].call, n);
            ts_ok(kit_srv, line, rows[i].script->src);
            free(line);
            if (n == 0) /* longer than what the copies ask for */
                ts_ok(kit_srv, "PEXPIRE k 100000");
            at[n] = ts_info(kit_srv, "replication", "master_repl_offset");
            if (n > 0 && at[n] == at[n - 1])
                fail_msg("%s: copy %d wrote nothing", rows[i].script->name, n);
            assert_in_range(ts_pttl(kit_srv, "k"), 50000, 100000);
        }
    }
    ts_ok(kit_srv, "FLUSHALL");
}

/* ---- taking back goes wrong -------------------------------------------- */

static void test_take_back_lost(void **state)
{
    static const enum ts_action actions[] = {TS_DROP_REPLY_CLOSE,
                                             TS_CLOSE_BEFORE, TS_SWALLOW_REPLY};

    (void)state;
    ts_server_pause(replica);
    for (size_t i = 0; i < 2 * COUNT(actions); i++) {
        struct kit_client *k = kit_open(&(struct kit_opts){
            .timeout_ms = HASTY_MS, .user = i % 2 ? KIT_MEEK : KIT_FULL});
        char *name = kit_name("back");
        char *needle = kit_needle(&dibs__script_mutex_release, name);
        struct ts_rule rule = {
            .action = actions[i / 2], .contains = needle, .count = 3};
        dibs_lock *l = kit_lock(k, name);
        dibs_lock_opts o = *one();

        o.replicas_timeout_ms = SHORT_MS;
        int id = ts_proxy_rule(kit_px, &rule);
        want("try", dibs_lock_try(l, &o), DIBS_ERR_REPLICAS);
        assert_true(ts_rule_hits(kit_px, id) > 0);
        kit_free_for_all("taken back", name);
        ts_proxy_unrule(kit_px, id);

        want("outer", dibs_lock_try(l, NULL), DIBS_OK);
        id = ts_proxy_rule(kit_px, &rule);
        want("inner", dibs_lock_try(l, &o), DIBS_ERR_REPLICAS);
        assert_int_equal(dibs_lock_holds(l, 0), 1);
        ts_proxy_unrule(kit_px, id);
        want("release", dibs_lock_release(l, NULL), DIBS_OK);
        kit_free_for_all("released", name);
        dibs_lock_free(l);
        free(needle);
        free(name);
        kit_close(k);
    }
}

/* ---- strange answers --------------------------------------------------- */

static void test_strange_answers(void **state)
{
    static const struct {
        const char *match, *text;
        int replicas;
        dibs_err want;
    } rows[] = {
        {"WAIT", "-ERR WAIT cannot be used with replica instances.\r\n", 1,
         DIBS_ERR_REPLICAS},
        {"WAIT", "-UNBLOCKED force unblock from blocking operation\r\n", 1,
         DIBS_ERR_REPLICAS},
        {"WAIT", "-NOPERM this user has no permissions\r\n", 1, DIBS_ERR_AUTH},
        {"WAIT", "+OK\r\n", 1, DIBS_ERR_REPLICAS},
        {"WAIT", "$-1\r\n", 1, DIBS_ERR_REPLICAS},
        {"WAIT", ":-1\r\n", 1, DIBS_ERR_REPLICAS},
        {"WAIT", ":0\r\n", 1, DIBS_ERR_REPLICAS},
        {"WAIT", "*0\r\n", -1, DIBS_ERR_REPLICAS},
        {"ROLE", "*0\r\n", -1, DIBS_ERR_REPLICAS},
        {"ROLE", "*1\r\n$6\r\nmaster\r\n", -1, DIBS_ERR_REPLICAS},
        {"ROLE", "*3\r\n$6\r\nmaster\r\n:1\r\n:1\r\n", -1, DIBS_ERR_REPLICAS},
        {"ROLE", "*3\r\n$6\r\nmaster\r\n:1\r\n*0\r\n", -1, DIBS_ERR_REPLICAS},
        {"ROLE", "*2\r\n$5\r\nslave\r\n:1\r\n", -1, DIBS_ERR_REPLICAS},
        {"ROLE", ":1\r\n", -1, DIBS_ERR_REPLICAS},
        {"ROLE", "-NOPERM this user has no permissions\r\n", -1, DIBS_ERR_AUTH},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
        struct ts_rule rule = {.action = TS_REWRITE_REPLY,
                               .match = rows[i].match,
                               .text = rows[i].text,
                               .count = 1};
        char *name = kit_name("strange");
        dibs_lock *l = kit_lock(k, name);
        dibs_lock_opts o = {.size = sizeof o, .replicas = rows[i].replicas};

        ts_proxy_rule(kit_px, &rule);
        want(rows[i].text, dibs_lock_try(l, &o), rows[i].want);
        kit_free_for_all(rows[i].text, name);
        want("again", dibs_lock_try(l, &o), DIBS_OK);
        want("release", dibs_lock_release(l, NULL), DIBS_OK);
        dibs_lock_free(l);
        free(name);
        kit_close(k);
    }
}

/* No connection to be had for it: an error for those who try, not a hang. */
static void test_no_second_connection(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.timeout_ms = HASTY_MS});
    dibs_lock *l = kit_lock(k, "refused");

    (void)state;
    ts_proxy_refuse(kit_px, true);
    want("try", dibs_lock_try(l, one()), DIBS_ERR_CONN);
    want("acquire",
         dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.replicas = 1, .wait_ms = HASTY_MS)),
         DIBS_ERR_CONN);
    assert_false(ts_exists(kit_srv, "refused"));
    want("without", dibs_lock_try(l, NULL), DIBS_OK);
    want("release", dibs_lock_release(l, NULL), DIBS_OK);
    ts_proxy_refuse(kit_px, false);
    want("acquire", dibs_lock_acquire(l, one()), DIBS_OK);
    want("release", dibs_lock_release(l, NULL), DIBS_OK);
    dibs_lock_free(l);
    kit_close(k);
}

/* The server goes while WAIT is out; what comes back knows nothing. */
static void test_server_dies_meanwhile(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.timeout_ms = HASTY_MS});
    struct ts_rule rule = {.action = TS_PASS, .match = "WAIT"};
    dibs_lock *l = kit_lock(k, "dies");
    struct kit_end end = {.err = DIBS_OK};

    (void)state;
    int id = ts_proxy_rule(kit_px, &rule);
    want("acquire",
         dibs_lock_acquire_async(
             l,
             DIBS_LOCK_OPTS(.replicas = 2, .lease_ms = KIT_LONG,
                            .replicas_timeout_ms = KIT_LONG),
             kit_ended, &end),
         DIBS_OK);
    assert_true(ts_rule_wait(kit_px, id, 1, TS_SOON));
    TS_WAIT(ts_exists(kit_srv, "dies"));
    ts_server_restart(kit_srv);
    ts_config_set(kit_srv, "repl-diskless-sync-delay", "0");
    TS_WAIT(ts_rule_hits(kit_px, id) > 1); /* it asks the new one */
    TS_WAIT(ts_exists(kit_srv, "dies"));
    kit_close(k); /* which takes it back */
    assert_true(atomic_load(&end.over));
    assert_int_not_equal(end.err, DIBS_OK);
    assert_false(ts_exists(kit_srv, "dies"));
    dibs_lock_free(l);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, fresh, tidy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_same_connection),       TEST(test_lost_once),
        TEST(test_lost_always),           TEST(test_paused),
        TEST(test_lost_while_waiting),    TEST(test_second_time_writes),
        TEST(test_scripts_write_again),   TEST(test_take_back_lost),
        TEST(test_strange_answers),       TEST(test_no_second_connection),
        TEST(test_server_dies_meanwhile),
    };
    return TS_RUN_PARALLEL("fault.replicas", tests, up, down);
}
