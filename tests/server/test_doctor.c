/* SPDX-License-Identifier: MIT
 *
 * test_doctor.c - the examination: a server in each state, and what is said of
 * it. The proxy stands in for servers whose clock jumps or that talk nonsense.
 */
#include "server/kit.h"

#include "support/proxy.h"
#include "support/server_impl.h"

#include <unistd.h>

#define FOUND_MAX 64

struct found {
    char check[32];
    dibs_verdict verdict;
    char text[512];
};

static struct found found[FOUND_MAX];
static size_t count, stop_after;

static bool note(const char *check, dibs_verdict verdict, const char *text,
                 void *arg)
{
    struct found *f = &found[count++];

    (void)arg;
    assert_true(count < FOUND_MAX);
    snprintf(f->check, sizeof f->check, "%s", check);
    snprintf(f->text, sizeof f->text, "%s", text);
    f->verdict = verdict;
    return count != stop_after;
}

static dibs_err examine(dibs_client *c, const char *name)
{
    count = stop_after = 0;
    return dibs_client_doctor(c, name, note, NULL);
}

/* There is such a finding: check, verdict, and this in its text. */
static void says(const char *check, dibs_verdict verdict, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(found[i].check, check) == 0 && found[i].verdict == verdict &&
            strstr(found[i].text, text))
            return;
    for (size_t i = 0; i < count; i++)
        print_error("%d %s: %s\n", (int)found[i].verdict, found[i].check,
                    found[i].text);
    fail_msg("no %s with verdict %d and '%s'", check, (int)verdict, text);
}

/* This was found, whatever its text. */
static bool finds(const char *check, dibs_verdict verdict)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(found[i].check, check) == 0 && found[i].verdict == verdict)
            return true;
    return false;
}

static bool silent(const char *check)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(found[i].check, check) == 0)
            return false;
    return true;
}

#define OK      DIBS_VERDICT_OK
#define NOTE    DIBS_VERDICT_NOTE
#define WARNING DIBS_VERDICT_WARNING
#define PROBLEM DIBS_VERDICT_PROBLEM

/* Before Redis 7 a part of a command cannot be forbidden, nor a node's other
 * port be chosen, nor a right be tried. */
static bool is_redis_7(void)
{
    return ts_int(srv, "EVAL %s 0", "return redis.REDIS_VERSION_NUM or 0") > 0;
}

static void need_redis_7(void)
{
    if (!is_redis_7())
        skip();
}

/* ---- healthy ----------------------------------------------------------- */

static void test_doctor_healthy(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = 1000));
    char *version = ts_str(srv, "EVAL %s 0",
                           "local i = redis.call('info', 'server') "
                           "return i:match('valkey_version:([%d.]+)') or "
                           "i:match('redis_version:([%d.]+)')");

    (void)state;
    TS_WAIT(ts_info(srv, "server", "uptime_in_seconds") >= 1);
    /* On a busy machine an answer may take too long now and then. */
    TS_WAIT(examine(c, NULL) != DIBS_OK || finds("latency", OK));
    says("version", OK, version);
    free(version);
    says("role", OK, "master");
    says("replicas", NOTE, "none");
    says("persistence", WARNING, "none: after a restart");
    says("eviction", OK, "noeviction");
    says("uptime", OK, "longer than a lease");
    says("latency", OK, "ms");
    says("scripting", OK, "");
    says("pubsub", OK,
         is_redis_7() ? "sharded ones are known" : "unknown here");
    says("tracking", OK, "at once");
    says("wait", OK, "");
    says("rights", OK, "user default");
    says("tls", OK, "Unix socket");
    says("offset", OK, "give or take");
    says("clock", OK, "steady");
    assert_true(silent("cluster"));
    kit_close(c);

    c = kit_open_at(ts_server_tcp_url(srv),
                    DIBS_CLIENT_OPTS(.lease_ms = 3600000));
    FINE(examine(c, "some lock"));
    says("uptime", WARNING, "less than a lease");
    says("tls", OK, "this machine");
    kit_close(c);
}

/* Nothing is changed, not even of the lock that was named. */
static void test_doctor_does_nothing(void **state)
{
    const char *urls[2] = {ts_server_url(srv), NULL};
    char *jobs =
        ts_text("redis://timid:pass@127.0.0.1:%d", ts_server_port(srv));
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    urls[1] = jobs; /* may not use DRYRUN: there everything is tried */
    ts_ok(srv, "ACL SETUSER timid reset on >pass ~* &* +@all -acl");
    FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(.lease_ms = 1000000)));
    for (size_t i = 0; i < COUNT(urls); i++) {
        dibs_client *other = kit_open_at(urls[i], NULL);
        long long before =
            ts_info(srv, "persistence", "rdb_changes_since_last_save");
        FINE(examine(other, "l"));
        says("rights", OK, i == 0 ? "user default" : "can be tried");
        assert_int_equal(ts_nkeys(srv), 1);
        assert_int_equal(kit_count(l, "l", 0), 1);
        assert_true(ts_pttl(srv, "l") > 500000);
        assert_int_equal(
            ts_info(srv, "persistence", "rdb_changes_since_last_save"), before);
        kit_close(other);
    }
    assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    ts_ok(srv, "ACL DELUSER timid");
    free(jobs);
}

static void test_doctor_arguments(void **state)
{
    char longer[DIBS_NAME_MAX + 2];
    dibs_client *c = kit_open(NULL);

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    WANT(dibs_client_doctor(c, NULL, NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_client_doctor(NULL, NULL, note, NULL), DIBS_ERR_INVALID);
    WANT(examine(c, ""), DIBS_ERR_INVALID);
    WANT(examine(c, longer), DIBS_ERR_INVALID);
    longer[DIBS_NAME_MAX] = '\0';
    FINE(examine(c, longer));
    count = 0;
    stop_after = 3;
    FINE(dibs_client_doctor(c, NULL, note, NULL));
    assert_int_equal(count, 3);
    FINE(dibs_client_close(c, 0));
    WANT(examine(c, NULL), DIBS_ERR_CLOSED);
    dibs_client_free(c);
    kit_clients--;
}

/* ---- memory and data --------------------------------------------------- */

static void test_doctor_memory(void **state)
{
    static const struct {
        const char *policy, *max;
        dibs_verdict verdict;
        const char *text;
    } rows[] = {
        {"volatile-lru", "100mb", PROBLEM, "volatile-lru"},
        {"volatile-ttl", "100mb", PROBLEM, "volatile-ttl"},
        {"allkeys-random", "100mb", PROBLEM, "set noeviction"},
        {"allkeys-lru", "0", WARNING, "until one is set"},
        {"noeviction", "10gb", OK, "noeviction"},
        {"noeviction", "ALMOST", WARNING, "refuses new locks"},
        {"noeviction", "FULL", PROBLEM, "no lock can be taken"},
    };
    dibs_client *c = kit_open(NULL);

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        /* Now, for what it uses grows meanwhile. */
        long long used = ts_info(srv, "memory", "used_memory");
        char *almost = ts_text("%lld", used + used / 20);
        char *full = ts_text("%lld", used / 2);
        ts_config_set(srv, "maxmemory-policy", rows[i].policy);
        ts_config_set(srv, "maxmemory",
                      strcmp(rows[i].max, "FULL") == 0     ? full
                      : strcmp(rows[i].max, "ALMOST") == 0 ? almost
                                                           : rows[i].max);
        FINE(examine(c, NULL));
        says("eviction", rows[i].verdict, rows[i].text);
        free(almost);
        free(full);
    }
    ts_config_set(srv, "maxmemory", "0");
    kit_close(c);
}

static void test_doctor_persistence(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = 3600000));

    (void)state;
    ts_config_set(srv, "save", "3600 1");
    FINE(examine(c, NULL));
    says("persistence", WARNING, "snapshots only");
    ts_config_set(srv, "appendonly", "yes");
    ts_config_set(srv, "appendfsync", "always");
    FINE(examine(c, NULL));
    says("persistence", OK, "always");
    says("uptime", NOTE, "keeps its data");
    ts_config_set(srv, "appendfsync", "everysec");
    FINE(examine(c, NULL));
    says("persistence", NOTE, "second or two");
    ts_config_set(srv, "appendfsync", "no");
    FINE(examine(c, NULL));
    says("persistence", WARNING, "appendfsync no");
    ts_config_set(srv, "appendonly", "no");
    ts_config_set(srv, "save", "");
    kit_close(c);
}

/* ---- replicas ---------------------------------------------------------- */

static bool lags(void)
{
    char *info = ts_str(srv, "INFO replication");
    const char *lag = strstr(info, "lag=");
    bool yes = lag && atoi(lag + 4) > 3;

    free(info);
    return yes;
}

static void test_doctor_replicas(void **state)
{
    char *port = ts_text("%d", ts_server_port(srv));
    const char *extra[] = {"--replicaof", "127.0.0.1", port, NULL};

    (void)state;
    ts_config_set(srv, "repl-diskless-sync-delay", "0");
    struct ts_server *r = ts_server_start(extra);
    TS_WAIT(ts_int(srv, "WAIT 1 0") == 1);
    kit_strange = ts_client_count(srv) - 1;
    dibs_client *c = kit_open(NULL);
    dibs_client *at_replica = kit_open_at(ts_server_url(r), NULL);

    FINE(examine(c, NULL));
    says("replicas", OK, "1 connected");
    FINE(examine(at_replica, NULL));
    says("role", PROBLEM, "locks are taken on the master");
    assert_true(silent("replicas"));
    ts_server_pause(r);
    TS_WAIT(lags());
    FINE(examine(c, NULL));
    says("replicas", WARNING, "a failover loses locks");
    ts_server_resume(r);
    kit_close(at_replica);
    kit_close(c);
    ts_server_stop(r);
    free(port);
}

/* ---- rights ------------------------------------------------------------ */

#define PLAIN_RIGHTS                                                           \
    "+eval +evalsha +hexists +hset +hget +hmget +hdel +hlen +hgetall +pttl "   \
    "+pexpire +del +publish +subscribe +unsubscribe +client|setname "          \
    "+client|info +client|kill "

/* Everything is refused that is not said: the doctor says what follows. */
static void test_doctor_rights(void **state)
{
    need_redis_7();
    char *url = ts_text("redis://jobs:pass@127.0.0.1:%d", ts_server_port(srv));

    (void)state;
    ts_ok(srv, "ACL SETUSER jobs reset on >pass ~jobs:* "
               "&redisson_lock__channel:{jobs:* " PLAIN_RIGHTS);
    dibs_client *c = kit_open_at(url, NULL);
    FINE(examine(c, NULL));
    says("version", NOTE, "NOPERM");
    says("role", NOTE, "unknown");
    says("eviction", NOTE, "unknown");
    says("persistence", NOTE, "unknown");
    says("clock", NOTE, "unknown");
    says("scripting", OK, "");
    says("wait", NOTE, "NOPERM");
    says("tracking", NOTE, "unknown");
    says("rights", NOTE, "CLIENT TRACKING, CLIENT CACHING, EXISTS: a lost");
    says("rights", NOTE, "no fair locks");
    says("rights", NOTE, "no read-write locks");
    says("rights", NOTE, "SCAN: locks cannot be listed");
    says("rights", NOTE, "HSCAN: who holds a read-write lock is unknown");
    says("rights", NOTE, "HINCRBY, TIME: no latches");
    says("rights", NOTE, "ZPOPMIN, GET, SET: all who wait");
    says("rights", NOTE, "PUBSUB NUMSUB: how many wait");
    says("rights", NOTE, "CLIENT LIST: who an owner is");

    ts_ok(srv, "ACL SETUSER jobs -hset -publish -client|kill");
    FINE(examine(c, NULL));
    says("rights", PROBLEM, "may not HSET: locks do not work");
    says("rights", WARNING, "may not PUBLISH: waiters are not woken");
    says("rights", NOTE, "may not CLIENT KILL: a lost reply");
    ts_ok(srv, "ACL SETUSER jobs -eval");
    FINE(examine(c, NULL));
    says("scripting", PROBLEM, "NOPERM");

    /* With DRYRUN, keys and channels count, too. */
    ts_ok(srv, "ACL SETUSER jobs +acl|whoami +acl|dryrun " PLAIN_RIGHTS);
    FINE(examine(c, "jobs:nightly"));
    says("rights", NOTE, "user jobs");
    for (size_t i = 0; i < count; i++)
        if (strcmp(found[i].check, "rights") == 0)
            assert_int_equal(found[i].verdict, NOTE);
    FINE(examine(c, "other"));
    says("rights", PROBLEM, "with this name, may not EVAL");
    says("rights", WARNING, "PUBLISH, SUBSCRIBE");
    ts_ok(srv, "ACL SETUSER jobs -subscribe");
    FINE(examine(c, NULL));
    says("rights", WARNING, "may not SUBSCRIBE");
    kit_close(c);
    ts_ok(srv, "ACL DELUSER jobs");
    free(url);
}

/* ---- other servers ----------------------------------------------------- */

static void test_doctor_cluster(void **state)
{
    need_redis_7();
    int bus, fd = ts__port_take(&bus); /* its own plus 10000 may be too high */
    char *port = ts_text("%d", bus);
    const char *extra[] = {"--cluster-enabled", "yes", "--cluster-port", port,
                           NULL};
    struct ts_server *node = ts_server_start(extra);
    dibs_client *c = kit_open_at(ts_server_url(node), NULL);

    (void)state;
    FINE(examine(c, NULL));
    says("cluster", WARNING, "a node of a cluster");
    says("slots", PROBLEM, "0 of 16384");
    ts_ok(node, "CLUSTER ADDSLOTSRANGE 0 16383");
    TS_WAIT(ts_int(node, "EVAL %s 0", "return 1") == 1);
    struct ts_wait w = ts_wait_begin(TS_SOON);
    do {
        FINE(examine(c, NULL));
    } while (found[count - 3].verdict != OK && ts_wait_step(&w));
    says("slots", OK, "16384");
    kit_close(c);
    ts_server_stop(node);
    close(fd);
    free(port);
}

static void test_doctor_without_wait(void **state)
{
    const char *extra[] = {"--rename-command", "WAIT", "", NULL};
    struct ts_server *s = ts_server_start(extra);
    dibs_client *c = kit_open_at(ts_server_url(s), NULL);

    (void)state;
    FINE(examine(c, NULL));
    says("wait", NOTE, "unknown command");
    kit_close(c);
    ts_server_stop(s);
}

/* ---- servers that are not well ----------------------------------------- */

static void test_doctor_lies(void **state)
{
    static const struct {
        struct ts_rule rule;
        const char *check;
        dibs_verdict verdict;
        const char *text;
    } rows[] = {
        {{TS_REWRITE_REPLY, .match = "TIME", .skip = 1,
          .text = "*2\r\n$10\r\n4102444800\r\n$1\r\n0\r\n"},
         "clock",
         PROBLEM,
         "slew it"},
        {{TS_REWRITE_REPLY, .match = "TIME",
          .text = "*2\r\n$10\r\n1000000000\r\n$1\r\n0\r\n"},
         "offset",
         WARNING,
         "behind"},
        {{TS_REWRITE_REPLY, .match = "TIME",
          .text = "*2\r\n$19\r\n9223372036854775807\r\n$19\r\n"
                  "9223372036854775807\r\n"},
         "clock",
         NOTE,
         "unknown"},
        {{TS_REWRITE_REPLY, .match = "TIME", .text = "*0\r\n"},
         "clock",
         NOTE,
         "unknown"},
        {{TS_REWRITE_REPLY, .match = "INFO", .text = ":1\r\n"},
         "version",
         NOTE,
         "unknown"},
        {{TS_REWRITE_REPLY, .match = "INFO", .text = "$-1\r\n"},
         "version",
         NOTE,
         "unknown"},
        {{TS_REWRITE_REPLY, .match = "INFO",
          .text = "$20\r\nredis_version:5.0.14\r\n"},
         "version",
         PROBLEM,
         "older than 6.2"},
        {{TS_REWRITE_REPLY, .match = "INFO",
          .text = "$42\r\nrole:master\r\nconnected_slaves:999999999999\r\n"},
         "replicas",
         WARNING,
         "0 of 999999999999"},
        {{TS_REWRITE_REPLY, .match = "INFO",
          .text = "$42\r\nredis_version:7.0.0\r\nredis_mode:sentinel\r\n\r\n"},
         "version",
         PROBLEM,
         "sentinel"},
        {{TS_DELAY_REPLY, .match = "PING", .ms = 80},
         "latency",
         WARNING,
         "every step"},
    };
    struct ts_proxy *px = ts_proxy_start(srv);

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_client *c = kit_open_at(ts_proxy_url(px), NULL);
        int id = ts_proxy_rule(px, &rows[i].rule);
        FINE(examine(c, NULL));
        says(rows[i].check, rows[i].verdict, rows[i].text);
        ts_proxy_unrule(px, id);
        kit_close(c);
    }
    ts_proxy_stop(px);
}

/* Not a hang, and not a finding: an error. */
static void test_doctor_dies(void **state)
{
    static const char *const at[] = {"TIME", "INFO", "EVAL", "PUBSUB", "ACL"};
    struct ts_proxy *px = ts_proxy_start(srv);

    (void)state;
    for (size_t i = 0; i < COUNT(at); i++) {
        dibs_client *c = kit_open_at(
            ts_proxy_url(px), DIBS_CLIENT_OPTS(.command_timeout_ms = 100));
        int id = ts_proxy_rule(
            px, &(struct ts_rule){.action = TS_SWALLOW_REPLY, .match = at[i]});
        WANT(examine(c, NULL), DIBS_ERR_UNKNOWN);
        ts_proxy_unrule(px, id);
        kit_close(c);
    }
    ts_proxy_stop(px);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_doctor_healthy),      KIT_TEST(test_doctor_does_nothing),
        KIT_TEST(test_doctor_arguments),    KIT_TEST(test_doctor_memory),
        KIT_TEST(test_doctor_persistence),  KIT_TEST(test_doctor_replicas),
        KIT_TEST(test_doctor_rights),       KIT_TEST(test_doctor_cluster),
        KIT_TEST(test_doctor_without_wait), KIT_TEST(test_doctor_lies),
        KIT_TEST(test_doctor_dies),
    };
    return KIT_RUN_PARALLEL("server.doctor", tests);
}
