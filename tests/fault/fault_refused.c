/* SPDX-License-Identifier: MIT
 *
 * fault_refused.c - the server is there, and says no.
 *
 * Some refusals pass: the server is loading, busy, a replica for a moment, out
 * of connections. These are waited for, within the caller's time. Others do not
 * pass by themselves: a full server, a missing right. These are errors at once.
 * Either way nothing was done, and what is held already stays held.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <stdio.h>
#include <string.h>

#define HASTY_MS kit_ms(1000)
#define LEASE_MS kit_ms(2400)

/* However long it takes. */
static void give_back(dibs_lock *l)
{
    kit_want("giving back",
             dibs_lock_release(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)), DIBS_OK);
}

/* The server can do nothing just now, and may not even say so in time. */
static void not_now(const char *what, dibs_err err)
{
    if (err != DIBS_ERR_SERVER && err != DIBS_ERR_UNKNOWN)
        fail_msg("%s: %s", what, dibs_strerror(err));
}

static void wait_async(dibs_lock *l, struct kit_end *end)
{
    kit_want("lining up", dibs_lock_acquire_async(l, NULL, kit_ended, end),
             DIBS_OK);
}

/* Error replies, made up by the proxy: the first few answers, or all. */
static void test_error_replies(void **state)
{
    static const struct {
        const char *text;
        dibs_err at_once; /* OK: tried again until it works */
    } rows[] = {
        {"-LOADING Redis is loading the dataset in memory\r\n", DIBS_OK},
        {"-BUSY Redis is busy running a script\r\n", DIBS_OK},
        {"-MASTERDOWN Link with MASTER is down\r\n", DIBS_OK},
        {"-TRYAGAIN Multiple keys request\r\n", DIBS_OK},
        {"-CLUSTERDOWN The cluster is down\r\n", DIBS_OK},
        {"-NOREPLICAS Not enough good replicas to write.\r\n", DIBS_OK},
        {"-READONLY You can't write against a read only replica.\r\n", DIBS_OK},
        {"-ERR Script killed by user with SCRIPT KILL.\r\n", DIBS_OK},
        {"-NOSCRIPT No matching script.\r\n", DIBS_OK},
        {"-OOM command not allowed\r\n", DIBS_ERR_SERVER},
        {"-MISCONF Errors writing to the AOF file\r\n", DIBS_ERR_SERVER},
        {"-NOPERM this user has no permissions\r\n", DIBS_ERR_AUTH},
        {"-NOAUTH Authentication required.\r\n", DIBS_ERR_AUTH},
        {"-WRONGTYPE Operation against a key\r\n", DIBS_ERR_WRONGTYPE},
        {"-ERR what is this\r\n", DIBS_ERR_SERVER},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
        char *name = kit_name("error");
        dibs_lock *l = kit_lock(k, name);
        struct ts_rule rule = {.action = TS_ANSWER,
                               .match = "EVALSHA",
                               .contains = name,
                               .text = rows[i].text,
                               .count = rows[i].at_once ? 0 : 3};
        int id = ts_proxy_rule(kit_px, &rule);
        kit_want(rows[i].text, dibs_lock_try(l, NULL), rows[i].at_once);
        if (rows[i].at_once == DIBS_OK) {
            kit_check(rows[i].text, l, 0, name, 1);
        } else {
            TS_WAIT(kit_told(k, DIBS_EVENT_ERROR) > 0);
            assert_true(ts_rule_hits(kit_px, id) <= 4); /* the reaper's too */
        }
        ts_proxy_unrule(kit_px, 0);
        dibs_err err = dibs_lock_release(l, NULL);
        kit_want("giving back", err,
                 rows[i].at_once ? DIBS_ERR_NOT_OWNER : DIBS_OK);
        kit_gone(rows[i].text, name);
        dibs_lock_free(l);
        kit_close(k);
        free(name);
    }
}

static bool server_is_busy(void)
{
    redisReply *r = ts_cmd(kit_srv, "GET x");
    bool busy = r && r->type == REDIS_REPLY_ERROR;

    freeReplyObject(r);
    return busy;
}

/* A release that the server is in no state for just now. The caller has done
 * its part; the lock must go as soon as the server can. */
static void release_in_vain(dibs_lock *l)
{
    not_now("giving back", dibs_lock_release(l, NULL));
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
}

/* A script that does not end keeps the server from everything else. */
static void test_busy(void **state)
{
    struct kit_client *k =
        kit_open(&(struct kit_opts){.direct = true, .timeout_ms = HASTY_MS});
    dibs_lock *l = kit_lock(k, "busy"), *mine = kit_lock(k, "mine");
    dibs_lock *vain = kit_lock(k, "vain");
    redisContext *endless = ts_connect(kit_srv);
    struct kit_end end = {.err = DIBS_OK};
    int done = 0;

    (void)state;
    kit_want("taking", dibs_lock_acquire(mine, NULL), DIBS_OK);
    kit_want("taking", dibs_lock_acquire(vain, NULL), DIBS_OK);
    ts_config_set(kit_srv, "lua-time-limit", "10");
    redisAppendCommand(endless, "EVAL %s 0", "while true do end");
    while (!done)
        assert_int_equal(redisBufferWrite(endless, &done), REDIS_OK);
    TS_WAIT(server_is_busy());
    not_now("trying", dibs_lock_try(l, NULL));
    not_now("taking, with a limit",
            dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = HASTY_MS)));
    release_in_vain(vain);
    not_now("trying", dibs_lock_try(l, NULL));
    wait_async(l, &end);
    assert_int_equal(dibs_lock_state(mine, 0), DIBS_HELD);
    ts_ok(kit_srv, "SCRIPT KILL");
    kit_want("waiting on", kit_wait(&end), DIBS_OK);
    kit_check("taken", l, 0, "busy", 1);
    kit_check("kept", mine, 0, "mine", 1);
    give_back(l);
    give_back(mine);
    kit_gone("afterwards", "busy");
    kit_gone("given back in vain", "vain");
    redisFree(endless);
    dibs_lock_free(l);
    dibs_lock_free(mine);
    dibs_lock_free(vain);
    kit_close(k);
}

#define MISCONF "-MISCONF Errors writing to the AOF file\r\n"

/* A release is refused, and so are the first attempts to make up for it. That
 * goes on until it works: the lock does not stand for its lease. */
static void check_reaped(dibs_err (*make)(dibs_client *c, const char *name,
                                          dibs_lock **out))
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
    char *name = kit_name("reaped");
    dibs_lock *l = NULL;

    kit_want("a name", make(k->c, name, &l), DIBS_OK);
    kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    int id = ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_ANSWER,
                                                     .match = "EVALSHA",
                                                     .contains = name,
                                                     .text = MISCONF,
                                                     .count = 4});
    kit_want("giving back", dibs_lock_release(l, NULL), DIBS_ERR_SERVER);
    kit_gone("given back in vain", name);
    assert_int_equal(ts_rule_hits(kit_px, id), 4);
    ts_proxy_unrule(kit_px, id);
    dibs_lock_free(l);
    kit_close(k);
    free(name);
}

static void test_reaper_refused(void **state)
{
    (void)state;
    check_reaped(dibs_lock_new);
    check_reaped(dibs_fair_lock_new);
    check_reaped(dibs_read_lock_new);
    check_reaped(dibs_write_lock_new);
    check_reaped(dibs_fenced_lock_new);
}

/* While the server refuses, a close does not say that all is given back. */
static void test_reaper_refused_at_close(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
    dibs_lock *l = NULL;

    (void)state;
    kit_want("a name", dibs_write_lock_new(k->c, "closed", &l), DIBS_OK);
    kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    int id = ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_ANSWER,
                                                     .match = "EVALSHA",
                                                     .contains = "closed",
                                                     .text = MISCONF});
    kit_want("giving back", dibs_lock_release(l, NULL), DIBS_ERR_SERVER);
    assert_true(ts_rule_wait(kit_px, id, 3, TS_SOON));
    if (dibs_client_close(k->c, 0) == DIBS_OK)
        fail_msg("closed, and 'closed' is still locked");
    assert_true(ts_exists(kit_srv, "closed"));
    ts_proxy_unrule(kit_px, id);
    ts_ok(kit_srv, "DEL closed");
    dibs_lock_free(l);
    kit_drop(k);
}

/* A release that keeps the lock for a moment, and is refused: it goes after
 * that moment, not with its lease, which is long. A close does not wait for it,
 * and says so. */
static void test_keep_refused(void **state)
{
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        struct kit_client *k =
            kit_open(&(struct kit_opts){.lease_ms = 10 * TS_SOON});
        dibs_lock *l = kit_lock(k, "kept");
        int64_t keep_ms = closes ? 10 * TS_SOON : 50;

        kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
        int id = ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_ANSWER,
                                                         .match = "EVAL*",
                                                         .contains = "kept",
                                                         .text = MISCONF});
        kit_want("keeping",
                 dibs_lock_release(l, DIBS_LOCK_OPTS(.keep_ms = keep_ms)),
                 DIBS_ERR_SERVER);
        if (closes && dibs_client_close(k->c, 0) == DIBS_OK)
            fail_msg("closed, and 'kept' is still locked");
        ts_proxy_unrule(kit_px, id);
        if (closes)
            ts_ok(kit_srv, "DEL kept");
        TS_WAIT(!ts_exists(kit_srv, "kept"));
        dibs_lock_free(l);
        closes ? kit_drop(k) : kit_close(k);
    }
}

/* The server becomes a replica, as in a failover, and the master again. */
static void test_readonly(void **state)
{
    struct kit_client *k =
        kit_open(&(struct kit_opts){.direct = true, .timeout_ms = HASTY_MS});
    dibs_lock *l = kit_lock(k, "ro"), *mine = kit_lock(k, "mine");
    dibs_lock *vain = kit_lock(k, "vain");
    struct kit_end end = {.err = DIBS_OK};

    (void)state;
    kit_want("taking", dibs_lock_acquire(mine, NULL), DIBS_OK);
    kit_want("taking", dibs_lock_acquire(vain, NULL), DIBS_OK);
    ts_ok(kit_srv, "REPLICAOF 127.0.0.1 1");
    not_now("trying", dibs_lock_try(l, NULL));
    release_in_vain(vain);
    not_now("trying", dibs_lock_try(l, NULL));
    wait_async(l, &end);
    /* It was asked for on the new connection: it is there, but a replica does
     * not renew it. */
    TS_WAIT(dibs_lock_state(mine, 0) == DIBS_SUSPECT);
    ts_ok(kit_srv, "REPLICAOF NO ONE");
    kit_want("waiting on", kit_wait(&end), DIBS_OK);
    kit_check("taken", l, 0, "ro", 1);
    TS_WAIT(dibs_lock_state(mine, 0) == DIBS_HELD);
    give_back(l);
    give_back(mine);
    kit_gone("afterwards", "ro");
    kit_gone("given back in vain", "vain");
    dibs_lock_free(l);
    dibs_lock_free(mine);
    dibs_lock_free(vain);
    kit_close(k);
}

/* A full server: nothing can be taken, everything can be given back, what is
 * held is renewed. */
static void test_full(void **state)
{
    struct kit_client *k =
        kit_open(&(struct kit_opts){.direct = true, .lease_ms = LEASE_MS});
    dibs_lock *l = kit_lock(k, "full"), *fixed = kit_lock(k, "fixed");
    dibs_owner next_owner = dibs_owner_new(k->c);
    struct kit_end end = {.err = DIBS_OK};
    atomic_int lost = 0;

    (void)state;
    kit_want(
        "taking",
        dibs_lock_acquire(l, DIBS_LOCK_OPTS(.on_lost = kit_lost, .arg = &lost)),
        DIBS_OK);
    kit_want("taking",
             dibs_lock_acquire(fixed, DIBS_LOCK_OPTS(.lease_ms = KIT_LONG)),
             DIBS_OK);
    ts_config_set(kit_srv, "maxmemory", "1");
    dibs_lock *other = kit_lock(k, "other");
    kit_want("trying", dibs_lock_try(other, NULL), DIBS_ERR_SERVER);
    kit_want("taking", dibs_lock_acquire(other, NULL), DIBS_ERR_SERVER);
    TS_WAIT(kit_heard(k, DIBS_EVENT_ERROR, DIBS_ERR_SERVER, "OOM"));
    kit_want("once more", dibs_lock_try(l, NULL), DIBS_ERR_SERVER);
    kit_check("once", l, 0, "full", 1);

    /* The lease is the first write of a hand-over, and is not refused. */
    kit_want("lining up",
             dibs_lock_acquire_async(
                 fixed,
                 DIBS_LOCK_OPTS(.owner = next_owner, .lease_ms = LEASE_MS),
                 kit_ended, &end),
             DIBS_OK);
    kit_want("handing over", dibs_lock_release(fixed, NULL), DIBS_OK);
    kit_want("inheriting", kit_wait(&end), DIBS_OK);
    kit_want("giving back",
             dibs_lock_release(fixed, DIBS_LOCK_OPTS(.owner = next_owner)),
             DIBS_OK);
    kit_gone("given back", "fixed");

    long long renewals = ts_command_calls(kit_srv, "pexpire");
    TS_WAIT(ts_command_calls(kit_srv, "pexpire") >= renewals + 2);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD);
    kit_want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    kit_gone("given back", "full");
    ts_config_set(kit_srv, "maxmemory", "0");
    kit_want("taking", dibs_lock_acquire(other, NULL), DIBS_OK);
    kit_want("giving back", dibs_lock_release(other, NULL), DIBS_OK);
    assert_int_equal(atomic_load(&lost), 0);
    dibs_lock_free(l);
    dibs_lock_free(fixed);
    dibs_lock_free(other);
    kit_close(k);
}

/* A hand-over is refused before it has done anything. Then the lock is simply
 * given back, and the next owner gets it like anybody else. */
static void test_handover_refused(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
    dibs_lock *l = kit_lock(k, "refused");
    dibs_owner next_owner = dibs_owner_new(k->c);
    struct kit_end end = {.err = DIBS_OK};

    (void)state;
    kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    kit_want("lining up",
             dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = next_owner),
                                     kit_ended, &end),
             DIBS_OK);
    int id =
        kit_rule(&dibs__script_mutex_handover, "refused",
                 &(struct ts_rule){.action = TS_ANSWER,
                                   .text = "-OOM command not allowed\r\n"});
    kit_want("handing over", dibs_lock_release(l, NULL), DIBS_OK);
    assert_true(ts_rule_hits(kit_px, id) > 0);
    kit_want("inheriting", kit_wait(&end), DIBS_OK);
    kit_check("the next owner's", l, next_owner, "refused", 1);
    kit_want("giving back",
             dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = next_owner)),
             DIBS_OK);
    kit_gone("given back", "refused");
    dibs_lock_free(l);
    kit_close(k);
}

/* No more connections. */
static void check_maxclients(enum kit_user user)
{
    struct kit_client *k = kit_open(&(struct kit_opts){
        .user = user, .direct = true, .timeout_ms = HASTY_MS});
    dibs_lock *l = kit_lock(k, "max"), *mine = kit_lock(k, "mine");
    struct kit_opts o = {
        .user = user, .direct = true, .connect_ms = kit_ms(500)};
    struct kit_end end = {.err = DIBS_OK};
    dibs_err err;

    kit_want("taking", dibs_lock_acquire(mine, NULL), DIBS_OK);
    ts_config_set(kit_srv, "maxclients", "1");
    ts_ok(kit_srv, "CLIENT KILL TYPE normal SKIPME yes");
    kit_want("trying", dibs_lock_try(l, NULL), DIBS_ERR_CONN);
    assert_null(kit_open_err(&o, &err));
    kit_want("opening", err, DIBS_ERR_CONN);
    wait_async(l, &end);
    assert_int_equal(dibs_lock_state(mine, 0), DIBS_HELD);
    ts_config_set(kit_srv, "maxclients", "1000");
    kit_want("waiting on", kit_wait(&end), DIBS_OK);
    give_back(l);
    give_back(mine);
    kit_gone("afterwards", "mine");
    dibs_lock_free(l);
    dibs_lock_free(mine);
    kit_close(k);
}

static void test_maxclients(void **state)
{
    (void)state;
    check_maxclients(KIT_FULL);
    check_maxclients(KIT_MEEK);
}

/* The first thing that a new connection says may be answered with something
 * that has nothing to do with it. That is no reason to give up, or to think
 * that the password is wrong. */
static void test_set_up_refused(void **state)
{
    static const struct {
        const char *command, *text;
    } rows[] = {
        {"AUTH", "-ERR max number of clients reached\r\n"},
        {"CLIENT", "-ERR max number of clients reached\r\n"},
        {"SELECT", "-BUSY Redis is busy running a script\r\n"},
        {"SELECT", "-ERR max number of clients reached\r\n"},
    };
    char *url = ts_text("%s?db=3", ts_proxy_url(kit_px));

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_client *c = NULL;
        dibs_lock *l = NULL;
        int id =
            ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_ANSWER,
                                                    .match = rows[i].command,
                                                    .text = rows[i].text,
                                                    .count = 2});
        kit_want("opening",
                 dibs_client_open(url,
                                  DIBS_CLIENT_OPTS(.lazy = true, .user = "meek",
                                                   .password = "pass"),
                                  &c),
                 DIBS_OK);
        kit_want("a name", dibs_lock_new(c, "set-up", &l), DIBS_OK);
        kit_want(rows[i].text, dibs_lock_acquire(l, NULL), DIBS_OK);
        kit_want(rows[i].text, dibs_lock_release(l, NULL), DIBS_OK);
        assert_int_equal(ts_rule_hits(kit_px, id), 2);
        dibs_lock_free(l);
        dibs_client_free(c);
        ts_proxy_reset(kit_px);
    }
    free(url);
}

/* A server that takes connections but hangs up on every command is asked again,
 * but not as fast as we can. */
static void test_no_rush(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.timeout_ms = 500});
    dibs_lock *l = kit_lock(k, "rush");

    (void)state;
    ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_CLOSE_BEFORE, .match = "EVAL*"});
    kit_want("trying", dibs_lock_try(l, NULL), DIBS_ERR_UNKNOWN);
    if (ts_proxy_accepted(kit_px) > 50)
        fail_msg("%u connections in half a second", ts_proxy_accepted(kit_px));
    ts_proxy_unrule(kit_px, 0);
    kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    kit_want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    dibs_lock_free(l);
    kit_close(k);
}

/* A release is done, but says that it went wrong half way. A thread that asked
 * itself has it asked once more, which finds nothing, and that is no loss. */
static void test_done_but_refused(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lease_ms = 0});
    char *name = kit_name("refused");
    dibs_lock *l = kit_lock(k, name);
    const struct ts_rule wrong = {
        .action = TS_REWRITE_REPLY, .text = "-ERR half way\r\n", .count = 1};

    (void)state;
    for (int i = 0; i < 10; i++) {
        kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
        int id = kit_rule(&dibs__script_mutex_release, name, &wrong);
        dibs_err err = dibs_lock_release(l, NULL);
        if (err != DIBS_ERR_SERVER) /* it went by the shared connection */
            kit_want("giving back", err, DIBS_OK);
        assert_int_equal(ts_rule_hits(kit_px, id), 1);
        kit_gone("done but refused", name);
    }
    dibs_lock_free(l);
    kit_close(k);
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_error_replies, kit_fresh),
        cmocka_unit_test_setup(test_busy, kit_fresh),
        cmocka_unit_test_setup(test_reaper_refused, kit_fresh),
        cmocka_unit_test_setup(test_reaper_refused_at_close, kit_fresh),
        cmocka_unit_test_setup(test_keep_refused, kit_fresh),
        cmocka_unit_test_setup(test_readonly, kit_fresh),
        cmocka_unit_test_setup(test_full, kit_fresh),
        cmocka_unit_test_setup(test_handover_refused, kit_fresh),
        cmocka_unit_test_setup(test_maxclients, kit_fresh),
        cmocka_unit_test_setup(test_set_up_refused, kit_fresh),
        cmocka_unit_test_setup(test_no_rush, kit_fresh),
        cmocka_unit_test_setup(test_done_but_refused, kit_fresh),
    };

    return TS_RUN_PARALLEL("fault.refused", tests, kit_up, kit_down);
}
