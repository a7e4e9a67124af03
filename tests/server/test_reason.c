/* SPDX-License-Identifier: MIT
 *
 * test_reason.c - why a call failed: dibs_error_text has the server's address
 * and its own words, or the system's; and events have the same.
 */
#include "server/fake.h"
#include "server/reason_kit.h"
#include "support/proxy.h"

static bool see(const char *name, size_t len, const dibs_lock_info *info,
                void *arg)
{
    (void)name, (void)len, (void)info, (void)arg;
    return true;
}

static bool see_holder(const char *owner, dibs_mode mode, int64_t holds,
                       int64_t ms, void *arg)
{
    (void)owner, (void)mode, (void)holds, (void)ms, (void)arg;
    return true;
}

static bool see_place(size_t place, const char *owner, int64_t ms, void *arg)
{
    (void)place, (void)owner, (void)ms, (void)arg;
    return true;
}

static bool see_check(const char *check, dibs_verdict verdict, const char *text,
                      void *arg)
{
    (void)check, (void)verdict, (void)text, (void)arg;
    return true;
}

/* Every call that asks the server, one after the other. */
static void all_end(dibs_client *c, dibs_lock *l, dibs_err want,
                    const char *address, const char *words)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    ENDS(dibs_lock_try(l, NULL), want, address, words);
    ENDS(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = HASTY_MS)), want,
         address, words);
    ENDS(dibs_lock_info_get(l, &info), want, address, words);
    ENDS(dibs_lock_holders(l, see_holder, NULL), want, address, words);
    ENDS(dibs_lock_queue(l, see_place, NULL), want, address, words);
    ENDS(dibs_lock_force_release(l, NULL), want, address, words);
    ENDS(dibs_lock_force_release_owner(l, "somebody", NULL), want, address,
         words);
    ENDS(dibs_client_list(c, NULL, see, NULL), want, address, words);
    ENDS(dibs_client_doctor(c, NULL, see_check, NULL), want, address, words);
}

/* ---- nobody there ------------------------------------------------------ */

static void test_reason_opening(void **state)
{
    struct ts_server *s = ts_server_start(NULL);
    int port = ts_server_port(s);
    char *url = ts_text("redis://joe:s3cret@127.0.0.1:%d/2", port);
    char *named = ts_text("redis://joe:s3cret@localhost:%d", port);
    char *sentinel = ts_text("redis-sentinel://127.0.0.1:%d/shop", port);
    char *cluster = ts_text("redis-cluster://127.0.0.1:%d", port);
    char *plain = ts_text("redis://127.0.0.1:%d", port);
    char *host = ts_text("redis://localhost:%d", port);
    char *db = ts_text("%s/2", plain), *words;
    struct said said = SAID;
    dibs_client *c = NULL;

    (void)state;
    ts_server_kill(s);
    ENDS(dibs_client_open(
             url, DIBS_CLIENT_OPTS(.on_event = hear, .event_arg = &said), &c),
         DIBS_ERR_CONN, db, "Connection refused");
    assert_true(has_said(&said, DIBS_EVENT_DISCONNECTED, dibs_error_text()));
    assert_null(strstr(dibs_error_text(), "s3cret"));
    /* A host may have several addresses: the last that was tried. */
    WANT(dibs_client_open(named, NULL, &c), DIBS_ERR_CONN);
    assert_int_equal(strncmp(dibs_error_text(), host, strlen(host)), 0);
    assert_non_null(strstr(dibs_error_text(), ": Connection refused"));
    assert_true(strstr(dibs_error_text(), " 127.0.0.1: ") ||
                strstr(dibs_error_text(), " ::1: "));
    words = ts_text("no sentinel returned the master's address: "
                    "127.0.0.1:%d: Connection refused",
                    port);
    ENDS(dibs_client_open(sentinel, NULL, &c), DIBS_ERR_CONN, sentinel, words);
    free(words);
    words =
        ts_text("no node returned the slot map: %s: Connection refused", plain);
    ENDS(dibs_client_open(cluster, NULL, &c), DIBS_ERR_CONN, cluster, words);
    free(words);
    ENDS(dibs_client_open("unix:///nonexistent/dibs?db=3", NULL, &c),
         DIBS_ERR_CONN, "unix:///nonexistent/dibs?db=3",
         "No such file or directory");
    free(url), free(named), free(sentinel), free(cluster);
    free(plain), free(host), free(db);
    ts_server_stop(s);
}

/* The server goes while the client is there. */
static void test_reason_away(void **state)
{
    struct ts_server *s = ts_server_start(NULL);
    const char *url = ts_server_tcp_url(s);
    struct said said = SAID;
    struct told t = {0};
    dibs_client *c = kit_open_at(
        url, DIBS_CLIENT_OPTS(.on_event = hear, .event_arg = &said));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    TS_WAIT(has_said(&said, DIBS_EVENT_CONNECTED, url));
    ts_server_kill(s);
    all_end(c, l, DIBS_ERR_CONN, url, "Connection refused");
    FINE(dibs_lock_try_async(l, NULL, kit_tell, &t));
    WANT(kit_answer(&t), DIBS_ERR_CONN);
    TS_WAIT(has_said(&said, DIBS_EVENT_DISCONNECTED, url));
    dibs_lock_free(l);
    kit_close(c);
    ts_server_stop(s);
}

/* It is there, and says nothing. */
static void test_reason_silent(void **state)
{
    struct said said = SAID;
    dibs_client *c =
        kit_open(DIBS_CLIENT_OPTS(.command_timeout_ms = HASTY_MS,
                                  .on_event = hear, .event_arg = &said));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    ts_server_pause(srv);
    ENDS(dibs_lock_try(l, NULL), DIBS_ERR_UNKNOWN, ts_server_url(srv), "");
    if (!strstr(dibs_error_text(), "time limit"))
        fail_msg("%s", dibs_error_text());
    ts_server_resume(srv);
    TS_WAIT(has_said(&said, DIBS_EVENT_UNKNOWN, ts_server_url(srv)));
    TS_WAIT(dibs_lock_try(l, NULL) == DIBS_OK);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* With sentinels, the master that they tell of is named; in a cluster, the
 * node. */
static void test_reason_names_the_node(void **state)
{
    const char *url = ts_server_tcp_url(srv);
    char *lines =
        ts_text("sentinel monitor shop 127.0.0.1 %d 1\n", ts_server_port(srv));
    struct ts_server *sentinel = ts_sentinel_start(lines);
    char *list =
        ts_text("redis-sentinel://127.0.0.1:%d/shop", ts_server_port(sentinel));
    struct said said = SAID;
    dibs_client *c = kit_open_at(
        list, DIBS_CLIENT_OPTS(.on_event = hear, .event_arg = &said));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    TS_WAIT(has_said(&said, DIBS_EVENT_CONNECTED, url));
    ts_ok(srv, "SET l precious");
    ENDS(dibs_lock_try(l, NULL), DIBS_ERR_WRONGTYPE, url, WRONGTYPE);
    ts_ok(srv, "DEL l");
    dibs_lock_free(l);
    kit_close(c);
    ts_server_stop(sentinel);
    free(lines);
    free(list);
}

static void test_reason_names_the_cluster(void **state)
{
    static const char *const extra[] = {"--cluster-enabled", "yes", NULL};
    struct ts_server *node = ts_server_start(extra);
    const char *url = ts_server_tcp_url(node);
    char *list = ts_text("redis-cluster://127.0.0.1:%d", ts_server_port(node));
    struct said said = SAID;
    dibs_client *c = NULL;
    dibs_lock *l = NULL;

    (void)state;
    char *words = ts_text(
        "no node returned the slot map: %s: CLUSTER SLOTS is empty", url);
    ENDS(dibs_client_open(list, NULL, &c), DIBS_ERR_SERVER, list, words);
    free(words);
    for (int i = 0; i < 16384; i += 1024) { /* as 6.2 can do it, too */
        char many[1024 * 6 + 20];
        size_t at = (size_t)snprintf(many, sizeof many, "CLUSTER ADDSLOTS");
        for (int k = i; k < i + 1024; k++)
            at += (size_t)snprintf(many + at, sizeof many - at, " %d", k);
        ts_ok(node, many);
    }
    TS_WAIT(dibs_client_open(
                list, DIBS_CLIENT_OPTS(.on_event = hear, .event_arg = &said),
                &c) == DIBS_OK);
    FINE(dibs_lock_new(c, "l", &l));
    TS_WAIT(dibs_lock_try(l, NULL) == DIBS_OK);
    FINE(dibs_lock_release(l, NULL));
    TS_WAIT(has_said(&said, DIBS_EVENT_CONNECTED, url));
    ts_ok(node, "SET l precious");
    ENDS(dibs_lock_try(l, NULL), DIBS_ERR_WRONGTYPE, url, WRONGTYPE);
    dibs_lock_free(l);
    WANT(dibs_lock_new(c, "a{b", &l), DIBS_ERR_INVALID);
    assert_non_null(strstr(dibs_error_text(),
                           "'a{b' is no name for a lock in a "
                           "cluster"));
    dibs_client_free(c);
    free(list);
    ts_server_stop(node);
}

/* ---- the server says no ------------------------------------------------ */

static void test_reason_words(void **state)
{
    static const struct {
        const char *answer;
        dibs_err want;
        const char *words;
    } rows[] = {
        {"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
         DIBS_ERR_SERVER,
         "OOM command not allowed when used memory > 'maxmemory'."},
        {"-NOPERM User joe has no permissions to run the 'evalsha' command\r\n",
         DIBS_ERR_AUTH,
         "NOPERM User joe has no permissions to run the 'evalsha' command"},
        {"-MISCONF Errors writing to the AOF file\r\n", DIBS_ERR_SERVER,
         "MISCONF Errors writing to the AOF file"},
        /* Tried again until the time is over. */
        {"-LOADING Redis is loading the dataset in memory\r\n", DIBS_ERR_SERVER,
         "LOADING Redis is loading the dataset in memory"},
        {"-READONLY You can't write against a read only replica.\r\n",
         DIBS_ERR_SERVER,
         "READONLY You can't write against a read only replica."},
        /* Nothing that a terminal would obey. */
        {"-ERR \x1b[31mred\ttext\r\n", DIBS_ERR_SERVER, "ERR ?[31mred?text"},
        {":-99\r\n", DIBS_ERR_PROTOCOL, ""},
        {"+OK\r\n", DIBS_ERR_PROTOCOL, "unexpected reply"},
    };
    struct ts_proxy *px = ts_proxy_start(srv);
    const char *url = ts_proxy_url(px);

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct said said = SAID;
        dibs_client *c = kit_open_at(
            url, DIBS_CLIENT_OPTS(.command_timeout_ms = ts_ms(400),
                                  .on_event = hear, .event_arg = &said));
        dibs_lock *l = kit_lock(c, "x");
        char *told = ts_text("%s: %s", url, rows[i].words);

        ts_proxy_rule(px, &(struct ts_rule){.action = TS_ANSWER,
                                            .match = "EVAL*",
                                            .text = rows[i].answer});
        ENDS(dibs_lock_try(l, NULL), rows[i].want, url, rows[i].words);
        if (rows[i].want != DIBS_ERR_PROTOCOL) /* by one kind or the other */
            TS_WAIT(has_said(&said, DIBS_EVENT_ERROR, told) ||
                    has_said(&said, DIBS_EVENT_DISCONNECTED, told));
        ts_proxy_unrule(px, 0);
        free(told);
        dibs_lock_free(l);
        kit_close(c);
    }
    ts_proxy_stop(px);
}

/* A full server, a missing right, a replica: as they really are. */
static void test_reason_real_servers(void **state)
{
    const char *url = ts_server_url(srv);
    char *joe = ts_text("unix://joe:pass@%s", ts_server_socket(srv));
    struct said said = SAID;
    dibs_client *c =
        kit_open(DIBS_CLIENT_OPTS(.command_timeout_ms = ts_ms(400),
                                  .on_event = hear, .event_arg = &said));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    ts_config_set(srv, "maxmemory", "1");
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_SERVER);
    ts_config_set(srv, "maxmemory", "0");
    assert_int_equal(strncmp(dibs_error_text(), url, strlen(url)), 0);
    assert_non_null(strstr(dibs_error_text(), "OOM"));
    TS_WAIT(has_said(&said, DIBS_EVENT_ERROR, dibs_error_text()));

    ts_ok(srv, "REPLICAOF 127.0.0.1 1");
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_SERVER);
    ts_ok(srv, "REPLICAOF NO ONE");
    assert_int_equal(strncmp(dibs_error_text(), url, strlen(url)), 0);
    assert_non_null(strstr(dibs_error_text(), "READONLY"));

    ts_ok(srv,
          "ACL SETUSER joe reset on >pass ~* &* +@all -hincrby -hset -eval "
          "-evalsha");
    dibs_client *other = kit_open_at(joe, NULL);
    dibs_lock *k = kit_lock(other, "l");
    ENDS(dibs_lock_try(k, NULL), DIBS_ERR_AUTH, url, "NOPERM");
    assert_non_null(strstr(dibs_error_text(), "eval"));
    dibs_lock_free(k);
    kit_close(other);
    ts_ok(srv, "ACL DELUSER joe");
    dibs_lock_free(l);
    kit_close(c);
    free(joe);
}

/* Wrong passwords are not shown, no matter who asks. */
static void test_reason_password(void **state)
{
    char *joe = ts_text("unix://joe:s3cret@%s", ts_server_socket(srv));
    dibs_client *c = NULL;

    (void)state;
    ENDS(dibs_client_open(joe, NULL, &c), DIBS_ERR_AUTH, ts_server_url(srv),
         "WRONGPASS");
    assert_null(strstr(dibs_error_text(), "s3cret"));
    assert_null(strstr(dibs_error_text(), "joe"));
    free(joe);
}

static void test_reason_not_redis(void **state)
{
    struct fake f;
    dibs_client *c = NULL;

    (void)state;
    fake_start(&f, "HTTP/1.1 400 Bad Request\r\n\r\n", true);
    WANT(dibs_client_open(f.url, NULL, &c), DIBS_ERR_PROTOCOL);
    assert_int_equal(strncmp(dibs_error_text(), f.url, strlen(f.url)), 0);
    assert_true(strlen(dibs_error_text()) > strlen(f.url) + 2);
    fake_stop(&f);
}

static void test_reason_kinds(void **state)
{
    const char *url = ts_server_url(srv);
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l"), *fair, *rd, *wr;

    (void)state;
    FINE(dibs_fair_lock_new(c, "l", &fair));
    FINE(dibs_read_lock_new(c, "rw", &rd));
    FINE(dibs_write_lock_new(c, "rw", &wr));
    ts_ok(srv, "SET l precious");
    ENDS(dibs_lock_acquire(l, NULL), DIBS_ERR_WRONGTYPE, url, WRONGTYPE);
    ENDS(dibs_lock_force_release(l, NULL), DIBS_ERR_WRONGTYPE, url, WRONGTYPE);
    ts_ok(srv, "DEL l");
    FINE(dibs_lock_acquire(l, NULL));
    WANT(dibs_lock_acquire(fair, NULL), DIBS_ERR_WRONGTYPE);
    assert_string_equal(dibs_error_text(),
                        "this owner holds it as a lock of another kind");
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_acquire(rd, NULL));
    ENDS(dibs_lock_acquire(wr, NULL), DIBS_ERR_UPGRADE, url,
         "'rw': this owner holds the read lock");
    FINE(dibs_lock_release(rd, NULL));
    ENDS(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.replicas = 1)), DIBS_ERR_REPLICAS,
         url, "'l': 0 of 1 replicas have it");
    dibs_lock_free(l);
    dibs_lock_free(fair);
    dibs_lock_free(rd);
    dibs_lock_free(wr);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_reason_opening),
        KIT_TEST(test_reason_away),
        KIT_TEST(test_reason_silent),
        KIT_TEST(test_reason_names_the_node),
        KIT_TEST(test_reason_names_the_cluster),
        KIT_TEST(test_reason_words),
        KIT_TEST(test_reason_real_servers),
        KIT_TEST(test_reason_password),
        KIT_TEST(test_reason_not_redis),
        KIT_TEST(test_reason_kinds),
    };
    return KIT_RUN_PARALLEL("server.reason", tests);
}
