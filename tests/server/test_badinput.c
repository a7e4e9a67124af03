/* SPDX-License-Identifier: MIT
 *
 * test_badinput.c - arguments that make no sense, keys that are something
 * else, answers that no server gives: each a clear error, and nothing breaks.
 */
#include "server/kit.h"

#include "support/proxy.h"

#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

static dibs_client *client;
static dibs_lock *lock;

static int open_client(void **state)
{
    kit_before(state);
    client = kit_open(NULL);
    lock = kit_lock(client, "l");
    return 0;
}

static int close_client(void **state)
{
    dibs_lock_free(lock);
    kit_close(client);
    return kit_after(state);
}

/* ---- arguments --------------------------------------------------------- */

static void test_badinput_urls(void **state)
{
    static char long_url[5000] = "redis://";
    static const char *const urls[] = {
        "",
        "redis",
        "redis:",
        "redis:/",
        "redis://",
        "redis://:6379",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:-1",
        "redis://h:99999999999999999999",
        "redis://h:6379x",
        "redis://h/x",
        "redis://h/-1",
        "redis://h/99999999999",
        "redis://h/1/2",
        "redis://h?db=1",
        "redis://h#f",
        "redis://@h",
        "redis://a b",
        "redis://h\n",
        "redis://[::1",
        "redis://[:::1]",
        "redis://::1",
        "redis://u:%zz@h",
        "redis://u:%0@h",
        "redis://u:%00@h",
        "redisss://h",
        "rediss://h?x=1",
        "http://h",
        "REDIS://h",
        "unix:",
        "unix://",
        "unix:///",
        "unix://tmp/x",
        "unix:///x?db=",
        "unix:///x?db=-1",
        "unix:///x?name=1",
        "unix:///x?db=1&db=2",
        "unix:///x%00y",
        "h",
        "127.0.0.1:6379",
        "/tmp/x.sock",
        "\xff\xfe",
        long_url,
    };
    (void)state;
    memset(long_url + 8, 'h', sizeof long_url - 9);
    for (size_t i = 0; i < COUNT(urls); i++) {
        dibs_client *c = NULL;
        dibs_err err = dibs_client_open(urls[i], NULL, &c);
        if (err != DIBS_ERR_INVALID)
            fail_msg("%.60s: %s", urls[i], dibs_strerror(err));
        assert_null(c);
        err = dibs_client_open(urls[i], DIBS_CLIENT_OPTS(.lazy = true), &c);
        if (err != DIBS_ERR_INVALID)
            fail_msg("%.60s, lazy: %s", urls[i], dibs_strerror(err));
    }
}

static void test_badinput_client_opts(void **state)
{
    static char long_name[300];
    const dibs_client_opts rows[] = {
        *DIBS_CLIENT_OPTS(.command_timeout_ms = -1),
        *DIBS_CLIENT_OPTS(.command_timeout_ms = INT64_MIN),
        *DIBS_CLIENT_OPTS(.command_timeout_ms = INT64_MAX),
        *DIBS_CLIENT_OPTS(.command_timeout_ms = DIBS_MS_MAX + 1),
        *DIBS_CLIENT_OPTS(.connect_timeout_ms = -1),
        *DIBS_CLIENT_OPTS(.connect_timeout_ms = INT64_MAX),
        *DIBS_CLIENT_OPTS(.fair_call_ms = -1),
        *DIBS_CLIENT_OPTS(.fair_call_ms = 99),
        *DIBS_CLIENT_OPTS(.fair_call_ms = DIBS_MS_MAX + 1),
        *DIBS_CLIENT_OPTS(.lease_ms = -1),
        *DIBS_CLIENT_OPTS(.lease_ms = 1),
        *DIBS_CLIENT_OPTS(.lease_ms = DIBS_LEASE_MIN_MS - 1),
        *DIBS_CLIENT_OPTS(.lease_ms = DIBS_MS_MAX + 1),
        *DIBS_CLIENT_OPTS(.lease_ms = INT64_MAX),
        *DIBS_CLIENT_OPTS(.max_connections = 65),
        *DIBS_CLIENT_OPTS(.max_connections = UINT32_MAX),
        *DIBS_CLIENT_OPTS(.callbacks = (dibs_callbacks)7),
        *DIBS_CLIENT_OPTS(.callbacks = (dibs_callbacks)-1),
        *DIBS_CLIENT_OPTS(.client_name = ""),
        *DIBS_CLIENT_OPTS(.client_name = "two words"),
        *DIBS_CLIENT_OPTS(.client_name = "line\nbreak"),
        *DIBS_CLIENT_OPTS(.client_name = "caf\xc3\xa9"),
        *DIBS_CLIENT_OPTS(.client_name = long_name),
    };
    (void)state;
    memset(long_name, 'x', sizeof long_name - 1);
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_client *c = NULL;
        dibs_err err = dibs_client_open(ts_server_url(srv), &rows[i], &c);
        if (err != DIBS_ERR_INVALID)
            fail_msg("row %zu: %s", i, dibs_strerror(err));
        assert_null(c);
    }
    /* At the edges it works. */
    kit_close(
        kit_open(DIBS_CLIENT_OPTS(.command_timeout_ms = 1000,
                                  .lease_ms = DIBS_LEASE_MIN_MS,
                                  .max_connections = 64, .client_name = "x")));
    kit_close(kit_open(
        DIBS_CLIENT_OPTS(.lease_ms = DIBS_MS_MAX, .max_connections = 1)));
}

static void test_badinput_lock_opts(void **state)
{
    const dibs_lock_opts rows[] = {
        *DIBS_LOCK_OPTS(.wait_ms = -1),
        *DIBS_LOCK_OPTS(.wait_ms = INT64_MIN),
        *DIBS_LOCK_OPTS(.wait_ms = DIBS_MS_MAX + 1),
        *DIBS_LOCK_OPTS(.wait_ms = INT64_MAX),
        *DIBS_LOCK_OPTS(.lease_ms = -1),
        *DIBS_LOCK_OPTS(.lease_ms = INT64_MIN),
        *DIBS_LOCK_OPTS(.lease_ms = 1),
        *DIBS_LOCK_OPTS(.lease_ms = DIBS_LEASE_MIN_MS - 1),
        *DIBS_LOCK_OPTS(.lease_ms = DIBS_MS_MAX + 1),
        *DIBS_LOCK_OPTS(.lease_ms = INT64_MAX),
        *DIBS_LOCK_OPTS(.max_hold_ms = -1),
        *DIBS_LOCK_OPTS(.max_hold_ms = INT64_MAX),
        *DIBS_LOCK_OPTS(.keep_ms = -1),
        *DIBS_LOCK_OPTS(.keep_ms = INT64_MAX),
        /* It either ends by itself or is renewed up to a point. */
        *DIBS_LOCK_OPTS(.lease_ms = 1000, .max_hold_ms = 1000),
    };
    struct told t = {0};

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const dibs_err errs[] = {
            dibs_lock_acquire(lock, &rows[i]),
            dibs_lock_try(lock, &rows[i]),
            dibs_lock_release(lock, &rows[i]),
            dibs_lock_acquire_async(lock, &rows[i], kit_tell, &t),
            dibs_lock_try_async(lock, &rows[i], kit_tell, &t),
            dibs_lock_release_async(lock, &rows[i], kit_tell, &t),
        };
        for (size_t k = 0; k < COUNT(errs); k++)
            if (errs[k] != DIBS_ERR_INVALID)
                fail_msg("row %zu, call %zu: %s", i, k, dibs_strerror(errs[k]));
    }
    assert_int_equal(ts_nkeys(srv), 0);
    assert_int_equal(atomic_load(&t.times), 0);
}

/* The largest that make sense, one after the other, and nothing overflows. */
static void test_badinput_largest(void **state)
{
    (void)state;
    FINE(dibs_lock_acquire(
        lock, DIBS_LOCK_OPTS(.wait_ms = DIBS_MS_MAX, .lease_ms = DIBS_MS_MAX)));
    assert_true(ts_pttl(srv, "l") > DIBS_MS_MAX - 1000000);
    int64_t valid = dibs_lock_valid_ms(lock, 0);
    assert_true(valid > DIBS_MS_MAX / 100 * 98 && valid < DIBS_MS_MAX);
    FINE(dibs_lock_acquire(lock, DIBS_LOCK_OPTS(.max_hold_ms = DIBS_MS_MAX)));
    FINE(dibs_lock_release(lock, DIBS_LOCK_OPTS(.wait_ms = DIBS_MS_MAX)));
    FINE(dibs_lock_release(lock, DIBS_LOCK_OPTS(.keep_ms = DIBS_MS_MAX)));
    assert_true(ts_pttl(srv, "l") > DIBS_MS_MAX - 1000000);
    WANT(dibs_lock_acquire(lock, DIBS_LOCK_OPTS(.wait_ms = 20)),
         DIBS_ERR_TIMEOUT);
    ts_ok(srv, "DEL l");
    FINE(dibs_lock_acquire(lock, DIBS_LOCK_OPTS(.owner = UINT64_MAX)));
    assert_int_equal(dibs_lock_holds(lock, UINT64_MAX), 1);
    FINE(dibs_lock_release(lock, DIBS_LOCK_OPTS(.owner = UINT64_MAX)));
}

static void test_badinput_names(void **state)
{
    static char huge[(1 << 20) + 1];
    dibs_lock *l = NULL;

    (void)state;
    memset(huge, 'x', sizeof huge - 1);
    WANT(dibs_lock_new(client, "", &l), DIBS_ERR_INVALID);
    WANT(dibs_lock_new(client, huge, &l), DIBS_ERR_INVALID);
    WANT(dibs_lock_new_bytes(client, "x", 0, &l), DIBS_ERR_INVALID);
    WANT(dibs_lock_new_bytes(client, huge, sizeof huge - 1, &l),
         DIBS_ERR_INVALID);
    WANT(dibs_lock_new_bytes(client, huge, DIBS_NAME_MAX + 1, &l),
         DIBS_ERR_INVALID);
    WANT(dibs_lock_new_bytes(client, huge, SIZE_MAX, &l), DIBS_ERR_INVALID);
    assert_null(l);
    FINE(dibs_lock_new_bytes(client, huge, DIBS_NAME_MAX, &l));
    dibs_lock_free(l);
    huge[DIBS_NAME_MAX] = '\0';
    FINE(dibs_lock_new(client, huge, &l));
    FINE(dibs_lock_try(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
}

static bool see(const char *name, size_t len, const dibs_lock_info *info,
                void *arg)
{
    (void)name, (void)len, (void)info, (void)arg;
    return true;
}

static void no_force(dibs_err err, bool was, void *arg)
{
    (void)was;
    kit_tell(err, arg);
}

static void no_info(dibs_err err, const dibs_lock_info *info, void *arg)
{
    (void)info;
    kit_tell(err, arg);
}

/* NULL for every pointer that must be there, in every function. */
static void test_badinput_null(void **state)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    char text[DIBS_OWNER_MAX];
    struct told t = {0};

    (void)state;
    FINE(dibs_lock_acquire(lock, NULL));
    const dibs_err errs[] = {
        dibs_client_open(NULL, NULL, &c),
        dibs_client_open(ts_server_url(srv), NULL, NULL),
        dibs_client_close(NULL, 0),
        dibs_client_close(client, -1),
        dibs_client_close(client, INT64_MAX),
        dibs_lock_new(NULL, "x", &l),
        dibs_lock_new(client, NULL, &l),
        dibs_lock_new(client, "x", NULL),
        dibs_lock_new_bytes(NULL, "x", 1, &l),
        dibs_lock_new_bytes(client, NULL, 1, &l),
        dibs_lock_new_bytes(client, "x", 1, NULL),
        dibs_lock_acquire(NULL, NULL),
        dibs_lock_try(NULL, NULL),
        dibs_lock_release(NULL, NULL),
        dibs_lock_force_release(NULL, NULL),
        dibs_lock_force_release_owner(NULL, "x", NULL),
        dibs_lock_force_release_owner(lock, NULL, NULL),
        dibs_lock_force_release_owner(lock, "", NULL),
        dibs_lock_cancel(NULL, 0),
        dibs_lock_owner_text(NULL, 0, text, sizeof text),
        dibs_lock_owner_text(lock, 0, NULL, sizeof text),
        dibs_lock_owner_text(lock, 0, text, 0),
        dibs_lock_info_get(NULL, &info),
        dibs_lock_info_get(lock, NULL),
        dibs_client_list(NULL, NULL, see, NULL),
        dibs_client_list(client, NULL, NULL, NULL),
        dibs_lock_acquire_async(NULL, NULL, kit_tell, &t),
        dibs_lock_acquire_async(lock, NULL, NULL, NULL),
        dibs_lock_try_async(NULL, NULL, kit_tell, &t),
        dibs_lock_try_async(lock, NULL, NULL, NULL),
        dibs_lock_release_async(NULL, NULL, kit_tell, &t),
        dibs_lock_release_async(lock, NULL, NULL, NULL),
        dibs_lock_force_release_async(NULL, no_force, &t),
        dibs_lock_force_release_async(lock, NULL, NULL),
        dibs_lock_info_get_async(NULL, no_info, &t),
        dibs_lock_info_get_async(lock, NULL, NULL),
    };
    for (size_t i = 0; i < COUNT(errs); i++)
        if (errs[i] != DIBS_ERR_INVALID)
            fail_msg("call %zu: %s", i, dibs_strerror(errs[i]));
    assert_null(c);
    assert_null(l);
    assert_int_equal(dibs_lock_state(NULL, 0), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_valid_ms(NULL, 0), 0);
    assert_int_equal(dibs_lock_holds(NULL, 0), 0);
    assert_non_null(dibs_client_id(NULL));
    assert_int_equal(dibs_client_fd(NULL), -1);
    assert_int_equal(dibs_client_dispatch(NULL), 0);
    assert_int_equal(dibs_owner_new(NULL), 0);
    assert_int_equal(dibs_owner_thread(NULL), 0);
    dibs_lock_free(NULL);
    dibs_client_free(NULL);
    assert_int_equal(atomic_load(&t.times), 0);
    assert_int_equal(kit_count(lock, "l", 0), 1); /* nothing happened to it */
}

/* ---- keys of another type ---------------------------------------------- */

static void test_badinput_wrong_type(void **state)
{
    static const struct {
        const char *make, *digest;
    } rows[] = {
        {"SET l precious", "string"},
        {"RPUSH l a b", "list"},
        {"SADD l a b", "set"},
        {"ZADD l 1 a", "zset"},
        {"XADD l * field value", "stream"},
    };
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct told t = {0};

        ts_ok(srv, rows[i].make);
        char *before = ts_str(srv, "DUMP l");
        WANT(dibs_lock_try(lock, NULL), DIBS_ERR_WRONGTYPE);
        WANT(dibs_lock_acquire(lock, NULL), DIBS_ERR_WRONGTYPE);
        WANT(dibs_lock_acquire(lock, DIBS_LOCK_OPTS(.wait_ms = 100)),
             DIBS_ERR_WRONGTYPE);
        FINE(dibs_lock_acquire_async(lock, NULL, kit_tell, &t));
        WANT(kit_answer(&t), DIBS_ERR_WRONGTYPE);
        WANT(dibs_lock_info_get(lock, &info), DIBS_ERR_WRONGTYPE);
        WANT(dibs_lock_force_release(lock, NULL), DIBS_ERR_WRONGTYPE);
        WANT(dibs_lock_force_release_owner(lock, STRANGER, NULL),
             DIBS_ERR_WRONGTYPE);
        WANT(dibs_lock_release(lock, NULL), DIBS_ERR_NOT_OWNER);
        assert_int_equal(dibs_lock_state(lock, 0), DIBS_NOT_HELD);
        char *after = ts_str(srv, "DUMP l");
        assert_string_equal(before, after);
        assert_int_equal(ts_pttl(srv, "l"), -1);
        free(before);
        free(after);
        ts_ok(srv, "DEL l");
    }
    FINE(dibs_lock_acquire(lock, NULL)); /* and it can be a lock again */
    FINE(dibs_lock_release(lock, NULL));
}

/* It becomes something else while it is held. */
static void test_badinput_wrong_type_later(void **state)
{
    (void)state;
    FINE(dibs_lock_acquire(lock, NULL));
    FINE(dibs_lock_acquire(lock, NULL));
    ts_ok(srv, "SET l precious");
    WANT(dibs_lock_acquire(lock, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_release(lock, NULL), DIBS_ERR_WRONGTYPE);
    ts_ok(srv, "DEL l");
    dibs_err err;
    for (int i = 0; (err = dibs_lock_release(lock, NULL)) == DIBS_ERR_LOST;)
        assert_true(++i <= 2);
    WANT(err, DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_acquire(lock, NULL));
    FINE(dibs_lock_release(lock, NULL));
}

/* ---- answers ----------------------------------------------------------- */

/* Whatever the answer to an attempt is, the attempt ends, soon, with an error;
 * and once the answers make sense again, so does the lock. */
static void test_badinput_answers(void **state)
{
    static const struct {
        const char *answer;
        dibs_err want;
        bool refused; /* the command does not even reach the server */
    } rows[] = {
        /* Well formed, but not what the script gives. */
        {"+OK\r\n", DIBS_ERR_PROTOCOL, false},
        {":-7\r\n", DIBS_ERR_PROTOCOL, false},
        {"$3\r\nabc\r\n", DIBS_ERR_PROTOCOL, false},
        {"*0\r\n", DIBS_ERR_PROTOCOL, false},
        {"*2\r\n:1\r\n*1\r\n$-1\r\n", DIBS_ERR_PROTOCOL, false},
        /* Errors; nothing was done. */
        {"-ERR something\r\n", DIBS_ERR_SERVER, true},
        {"-OOM command not allowed\r\n", DIBS_ERR_SERVER, true},
        {"-NOPERM no\r\n", DIBS_ERR_AUTH, true},
        {"-WRONGTYPE no\r\n", DIBS_ERR_WRONGTYPE, true},
        {"-\r\n", DIBS_ERR_SERVER, true},
        /* Not the protocol, or not within reason. Nobody knows what became of
         * the command. */
        {"rubbish\r\n", DIBS_ERR_UNKNOWN, false},
        {"HTTP/1.1 200 OK\r\n\r\n", DIBS_ERR_UNKNOWN, false},
        {"$-9\r\n", DIBS_ERR_UNKNOWN, false},
        {"$99999999999999999999\r\n", DIBS_ERR_UNKNOWN, false},
        {"$2000000000\r\nabc", DIBS_ERR_UNKNOWN, false},
        {"*2000000000\r\n:1\r\n", DIBS_ERR_UNKNOWN, false},
        {"*100000\r\n:1\r\n", DIBS_ERR_UNKNOWN, false},
        {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
         DIBS_ERR_UNKNOWN, false},
        {":12", DIBS_ERR_UNKNOWN, false},
        {"$100\r\nab", DIBS_ERR_UNKNOWN, false},
        {"*3\r\n:1\r\n", DIBS_ERR_UNKNOWN, false},
    };
    struct ts_proxy *px = ts_proxy_start(srv);

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_client *c = kit_open_at(
            ts_proxy_url(px), DIBS_CLIENT_OPTS(.command_timeout_ms = ts_ms(150),
                                               .lease_ms = 60000));
        dibs_lock *l = kit_lock(c, "x");

        ts_proxy_rule(px, &(struct ts_rule){.action = rows[i].refused
                                                          ? TS_ANSWER
                                                          : TS_REWRITE_REPLY,
                                            .match = "EVAL*",
                                            .text = rows[i].answer});
        dibs_err err = dibs_lock_try(l, NULL);
        if (err != rows[i].want)
            fail_msg("row %zu: try: %s", i, dibs_strerror(err));
        /* A connection that broke may not be up again in that time. */
        err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 100));
        if (err != rows[i].want &&
            !(err == DIBS_ERR_CONN && rows[i].want == DIBS_ERR_UNKNOWN))
            fail_msg("row %zu: acquire: %s", i, dibs_strerror(err));
        assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
        ts_proxy_unrule(px, 0);
        /* It was granted, but not to anybody who knows. */
        if (!ts_wait_exists(srv, "x", false))
            fail_msg("row %zu: it stays locked", i);
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
        dibs_lock_free(l);
        kit_close(c);
    }
    ts_proxy_stop(px);
}

/* One answer too many: it must not be taken for the answer to the next. */
static void test_badinput_answer_twice(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv);
    dibs_client *c = kit_open_at(ts_proxy_url(px), NULL);
    dibs_lock *l = kit_lock(c, "x");

    (void)state;
    for (int i = 0; i < 10; i++) { /* now others are there to be borrowed */
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
    }
    for (int i = 0; i < 10; i++) {
        ts_proxy_rule(px, &(struct ts_rule){.action = TS_DUPLICATE_REPLY,
                                            .match = "EVAL*",
                                            .count = 1});
        FINE(dibs_lock_acquire(l, NULL));
        assert_int_equal(kit_count(l, "x", 0), 1);
        FINE(dibs_lock_release(l, NULL));
        assert_false(ts_exists(srv, "x"));
        WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    }
    dibs_lock_free(l);
    kit_close(c);
    ts_proxy_stop(px);
}

/* Every byte on its own: slow, and right all the same. */
static void test_badinput_bytewise(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv);

    (void)state;
    ts_proxy_bytewise(px, true);
    dibs_client *c = kit_open_at(ts_proxy_url(px), NULL);
    dibs_lock *l = kit_lock(c, "x");
    for (int i = 0; i < 20; i++) {
        dibs_lock_info info = DIBS_LOCK_INFO_INIT;
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_info_get(l, &info));
        assert_true(info.locked);
        FINE(dibs_lock_release(l, NULL));
    }
    dibs_lock_free(l);
    kit_close(c);
    ts_proxy_stop(px);
}

#define OPEN_TEST(f)                                                           \
    cmocka_unit_test_setup_teardown(f, open_client, close_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_badinput_urls),
        KIT_TEST(test_badinput_client_opts),
        OPEN_TEST(test_badinput_lock_opts),
        OPEN_TEST(test_badinput_largest),
        OPEN_TEST(test_badinput_names),
        OPEN_TEST(test_badinput_null),
        OPEN_TEST(test_badinput_wrong_type),
        OPEN_TEST(test_badinput_wrong_type_later),
        KIT_TEST(test_badinput_answers),
        KIT_TEST(test_badinput_answer_twice),
        KIT_TEST(test_badinput_bytewise),
    };
    return KIT_RUN("server.badinput", tests);
}
