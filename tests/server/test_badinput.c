/* SPDX-License-Identifier: MIT
 *
 * test_badinput.c - arguments that make no sense: each a clear error that names
 * the argument and says why, for dibs_error_text and as an event.
 */
#include "server/kit.h"

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

/* The call must have ended as INVALID, for this reason. */
#define BAD(call, why) bad((call), (why), __LINE__)

static void bad(dibs_err err, const char *why, int line)
{
    if (err != DIBS_ERR_INVALID || strcmp(dibs_error_text(), why) != 0)
        fail_msg("line %d: %s: \"%s\", not \"%s\"", line, dibs_strerror(err),
                 dibs_error_text(), why);
}

/* What the client told of bad arguments: how often, and what last. */
struct said {
    atomic_int times;
    pthread_mutex_t mu;
    char text[300]; /* mu */
};
#define SAID                                                                   \
    {                                                                          \
        .mu = PTHREAD_MUTEX_INITIALIZER                                        \
    }

static void hear(const dibs_event *ev, void *arg)
{
    struct said *said = arg;

    if (ev->kind != DIBS_EVENT_ERROR || ev->err != DIBS_ERR_INVALID)
        return;
    pthread_mutex_lock(&said->mu);
    snprintf(said->text, sizeof said->text, "%s", ev->text);
    pthread_mutex_unlock(&said->mu);
    atomic_fetch_add(&said->times, 1);
}

static bool said_last(struct said *said, const char *text)
{
    pthread_mutex_lock(&said->mu);
    bool yes = strcmp(said->text, text) == 0;
    pthread_mutex_unlock(&said->mu);
    return yes;
}

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
        if (strncmp(dibs_error_text(), "url: ", 5) != 0)
            fail_msg("%.60s: \"%s\"", urls[i], dibs_error_text());
        assert_null(c);
        err = dibs_client_open(urls[i], DIBS_CLIENT_OPTS(.lazy = true), &c);
        if (err != DIBS_ERR_INVALID)
            fail_msg("%.60s, lazy: %s", urls[i], dibs_strerror(err));
    }
}

static void test_badinput_client_opts(void **state)
{
    static const char few[] = "client_name must have 1 to 256 bytes";
    static const char odd[] =
        "client_name has a space, or a character that is not ASCII";
    static char long_name[300];
    const struct {
        dibs_client_opts opts;
        const char *why;
    } rows[] = {
        {*DIBS_CLIENT_OPTS(.command_timeout_ms = -1),
         "command_timeout_ms is -1, it must not be negative"},
        {*DIBS_CLIENT_OPTS(.command_timeout_ms = INT64_MIN),
         "command_timeout_ms is -9223372036854775808, it must not be negative"},
        {*DIBS_CLIENT_OPTS(.command_timeout_ms = (int64_t)INT32_MAX + 1),
         "command_timeout_ms is 2147483648, it must be at most 2147483647"},
        {*DIBS_CLIENT_OPTS(.connect_timeout_ms = -1),
         "connect_timeout_ms is -1, it must not be negative"},
        {*DIBS_CLIENT_OPTS(.connect_timeout_ms = INT64_MAX),
         "connect_timeout_ms is 9223372036854775807, it must be at most "
         "2147483647"},
        {*DIBS_CLIENT_OPTS(.lease_ms = -1),
         "lease_ms is -1, it must not be negative"},
        {*DIBS_CLIENT_OPTS(.lease_ms = 1),
         "lease_ms is 1, it must be at least 100"},
        {*DIBS_CLIENT_OPTS(.lease_ms = DIBS_LEASE_MIN_MS - 1),
         "lease_ms is 99, it must be at least 100"},
        {*DIBS_CLIENT_OPTS(.lease_ms = DIBS_MS_MAX + 1),
         "lease_ms is 31536000000001, it must be at most 31536000000000"},
        {*DIBS_CLIENT_OPTS(.fair_wait_ms = -1),
         "fair_wait_ms is -1, it must not be negative"},
        {*DIBS_CLIENT_OPTS(.fair_wait_ms = 999),
         "fair_wait_ms is 999, it must be at least 1000"},
        {*DIBS_CLIENT_OPTS(.fair_call_ms = -1),
         "fair_call_ms is -1, it must not be negative"},
        {*DIBS_CLIENT_OPTS(.fair_call_ms = 99),
         "fair_call_ms is 99, it must be at least 100"},
        {*DIBS_CLIENT_OPTS(.max_connections = 65),
         "max_connections is 65, it must be at most 64"},
        {*DIBS_CLIENT_OPTS(.max_connections = UINT32_MAX),
         "max_connections is 4294967295, it must be at most 64"},
        {*DIBS_CLIENT_OPTS(.callbacks = (dibs_callbacks)7),
         "callbacks is 7, which is no DIBS_CALLBACKS_ value"},
        {*DIBS_CLIENT_OPTS(.callbacks = (dibs_callbacks)-1),
         "callbacks is -1, which is no DIBS_CALLBACKS_ value"},
        {*DIBS_CLIENT_OPTS(.pubsub = (dibs_pubsub)4),
         "pubsub is 4, which is no DIBS_PUBSUB_ value"},
        {*DIBS_CLIENT_OPTS(.replicas = -3),
         "replicas is -3, it must be a number or one of DIBS_REPLICAS_ALL and "
         "_NONE"},
        {*DIBS_CLIENT_OPTS(.client_name = ""), few},
        {*DIBS_CLIENT_OPTS(.client_name = long_name), few},
        {*DIBS_CLIENT_OPTS(.client_name = "two words"), odd},
        {*DIBS_CLIENT_OPTS(.client_name = "line\nbreak"), odd},
        {*DIBS_CLIENT_OPTS(.client_name = "caf\xc3\xa9"), odd},
        {*DIBS_CLIENT_OPTS(.user = "joe"), "a user, but no password"},
        {*DIBS_CLIENT_OPTS(.sentinel_user = "joe"),
         "a user for the sentinels, but no password"},
        {*DIBS_CLIENT_OPTS(.tls_insecure = true),
         "TLS options, but the URL begins with no rediss"},
        {{.size = 0},
         "dibs_client_opts: size is 0, it must be sizeof(dibs_client_opts)"},
    };
    (void)state;
    memset(long_name, 'x', sizeof long_name - 1);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct said said = SAID;
        dibs_client_opts o = rows[i].opts;
        dibs_client *c = NULL;

        BAD(dibs_client_open(ts_server_url(srv), &o, &c), rows[i].why);
        assert_null(c);
        /* The one that listens hears the same, before the call returns. */
        o.on_event = hear;
        o.event_arg = &said;
        BAD(dibs_client_open(ts_server_url(srv), &o, &c), rows[i].why);
        if (o.size && strcmp(said.text, rows[i].why) != 0)
            fail_msg("row %zu: told \"%s\"", i, said.text);
    }
    /* At the edges it works. */
    kit_close(
        kit_open(DIBS_CLIENT_OPTS(.command_timeout_ms = 1000,
                                  .lease_ms = DIBS_LEASE_MIN_MS,
                                  .max_connections = 64, .client_name = "x")));
    kit_close(kit_open(
        DIBS_CLIENT_OPTS(.lease_ms = DIBS_MS_MAX, .max_connections = 1)));
    kit_close(kit_open(DIBS_CLIENT_OPTS(.user = "", .password = "",
                                        .sentinel_user = "joe",
                                        .sentinel_password = "x")));
}

static void test_badinput_lock_opts(void **state)
{
    static const struct {
        dibs_lock_opts opts;
        const char *why;
    } rows[] = {
#define ROW(text, ...) {{.size = sizeof(dibs_lock_opts), __VA_ARGS__}, text}
        ROW("wait_ms is -1, it must not be negative", .wait_ms = -1),
        ROW("wait_ms is -9223372036854775808, it must not be negative",
            .wait_ms = INT64_MIN),
        ROW("wait_ms is 31536000000001, it must be at most 31536000000000",
            .wait_ms = DIBS_MS_MAX + 1),
        ROW("wait_ms is 9223372036854775807, it must be at most 31536000000000",
            .wait_ms = INT64_MAX),
        ROW("lease_ms is -1, it must not be negative", .lease_ms = -1),
        ROW("lease_ms is 1, it must be at least 100", .lease_ms = 1),
        ROW("lease_ms is 99, it must be at least 100",
            .lease_ms = DIBS_LEASE_MIN_MS - 1),
        ROW("lease_ms is 31536000000001, it must be at most 31536000000000",
            .lease_ms = DIBS_MS_MAX + 1),
        ROW("max_hold_ms is -1, it must not be negative", .max_hold_ms = -1),
        ROW("max_hold_ms is 50, it must be at least 100", .max_hold_ms = 50),
        ROW("keep_ms is -1, it must not be negative", .keep_ms = -1),
        ROW("keep_ms is 9223372036854775807, it must be at most 31536000000000",
            .keep_ms = INT64_MAX),
        ROW("member_ms is -1, it must not be negative", .member_ms = -1),
        ROW("replicas_timeout_ms is -1, it must not be negative",
            .replicas_timeout_ms = -1),
        ROW("replicas is -3, it must be a number or one of DIBS_REPLICAS_ALL "
            "and _NONE",
            .replicas = -3),
        /* It either ends by itself or is renewed up to a point. */
        ROW("max_hold_ms is for renewed locks, and one with a lease_ms is not "
            "renewed",
            .lease_ms = 1000, .max_hold_ms = 1000),
        {{.size = 0},
         "dibs_lock_opts: size is 0, it must be sizeof(dibs_lock_opts)"},
        {{.size = 80}, "dibs_lock_opts: size is 80, it must be at least 88"},
        {{.size = SIZE_MAX},
         "dibs_lock_opts: size is 18446744073709551615, it must be at most "
         "65536"},
#undef ROW
    };
    struct told t = {0};
    struct said said = SAID;
    dibs_client *c =
        kit_open(DIBS_CLIENT_OPTS(.on_event = hear, .event_arg = &said));
    dibs_lock *l = kit_lock(c, "l"), *both;

    (void)state;
    FINE(dibs_multi_lock_new(&l, 1, &both));
    for (size_t i = 0; i < COUNT(rows); i++) {
        const dibs_lock_opts *o = &rows[i].opts;
        const char *why = rows[i].why;
        int before = atomic_load(&said.times);
        BAD(dibs_lock_acquire(l, o), why);
        BAD(dibs_lock_try(l, o), why);
        BAD(dibs_lock_release(l, o), why);
        BAD(dibs_lock_acquire_async(l, o, kit_tell, &t), why);
        BAD(dibs_lock_try_async(l, o, kit_tell, &t), why);
        BAD(dibs_lock_release_async(l, o, kit_tell, &t), why);
        BAD(dibs_lock_acquire(both, o), why);
        BAD(dibs_lock_release(both, o), why);
        BAD(dibs_lock_acquire_async(both, o, kit_tell, &t), why);
        TS_WAIT(atomic_load(&said.times) == before + 9);
        assert_true(said_last(&said, why));
    }
    assert_int_equal(ts_nkeys(srv), 0);
    assert_int_equal(atomic_load(&t.times), 0);
    dibs_lock_free(both);
    dibs_lock_free(l);
    kit_close(c);
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
    static const char size[] = "the name must have 1 to 1024 bytes";
    static char huge[(1 << 20) + 1];
    dibs_lock *l = NULL;

    (void)state;
    memset(huge, 'x', sizeof huge - 1);
    BAD(dibs_lock_new(client, "", &l), size);
    BAD(dibs_lock_new(client, huge, &l), size);
    BAD(dibs_fair_lock_new(client, "", &l), size);
    BAD(dibs_read_lock_new(client, "", &l), size);
    BAD(dibs_write_lock_new(client, huge, &l), size);
    BAD(dibs_lock_new_bytes(client, "x", 0, &l), size);
    BAD(dibs_lock_new_bytes(client, huge, sizeof huge - 1, &l), size);
    BAD(dibs_lock_new_bytes(client, huge, DIBS_NAME_MAX + 1, &l), size);
    BAD(dibs_lock_new_bytes(client, huge, SIZE_MAX, &l), size);
    BAD(dibs_fair_lock_new_bytes(client, "x", 0, &l), size);
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

/* NULL for every pointer that must be there, in every function; and what else
 * cannot be. */
static void test_badinput_null(void **state)
{
    static const char no_client[] = "client is NULL",
                      no_lock[] = "lock is NULL";
    static const char no_out[] = "out is NULL", no_name[] = "name is NULL";
    static const char no_cb[] = "cb is NULL", no_fn[] = "fn is NULL";
    static char long_owner[600];
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    char text[DIBS_OWNER_MAX];
    struct told t = {0};

    (void)state;
    memset(long_owner, 'x', sizeof long_owner - 1);
    FINE(dibs_lock_acquire(lock, NULL));
    BAD(dibs_client_open(NULL, NULL, &c), "url is NULL");
    BAD(dibs_client_open(ts_server_url(srv), NULL, NULL), no_out);
    BAD(dibs_client_close(NULL, 0), no_client);
    BAD(dibs_client_close(client, -1),
        "timeout_ms is -1, it must not be negative");
    BAD(dibs_client_close(client, DIBS_MS_MAX + 1),
        "timeout_ms is 31536000000001, it must be at most 31536000000000");
    BAD(dibs_lock_new(NULL, "x", &l), no_client);
    BAD(dibs_lock_new(client, NULL, &l), no_name);
    BAD(dibs_lock_new(client, "x", NULL), no_out);
    BAD(dibs_lock_new_bytes(NULL, "x", 1, &l), no_client);
    BAD(dibs_lock_new_bytes(client, NULL, 1, &l), no_name);
    BAD(dibs_lock_new_bytes(client, "x", 1, NULL), no_out);
    BAD(dibs_lock_acquire(NULL, NULL), no_lock);
    BAD(dibs_lock_try(NULL, NULL), no_lock);
    BAD(dibs_lock_release(NULL, NULL), no_lock);
    BAD(dibs_lock_force_release(NULL, NULL), no_lock);
    BAD(dibs_lock_force_release_owner(NULL, "x", NULL), no_lock);
    BAD(dibs_lock_force_release_owner(lock, NULL, NULL), "owner is NULL");
    BAD(dibs_lock_force_release_owner(lock, "", NULL),
        "owner must have 1 to 512 bytes");
    BAD(dibs_lock_force_release_owner(lock, long_owner, NULL),
        "owner must have 1 to 512 bytes");
    BAD(dibs_lock_cancel(NULL, 0), no_lock);
    BAD(dibs_lock_owner_text(NULL, 0, text, sizeof text), no_lock);
    BAD(dibs_lock_owner_text(lock, 0, NULL, sizeof text), "buf is NULL");
    assert_int_equal(dibs_lock_owner_text(lock, 0, text, 3), DIBS_ERR_INVALID);
    assert_non_null(strstr(dibs_error_text(), "size is 3, the owner has "));
    BAD(dibs_lock_info_get(NULL, &info), no_lock);
    BAD(dibs_lock_info_get(lock, NULL), "dibs_lock_info: out is NULL");
    info.size = 0;
    BAD(dibs_lock_info_get(lock, &info),
        "dibs_lock_info: size is 0, it must be sizeof(dibs_lock_info)");
    BAD(dibs_lock_holders(NULL, see_holder, NULL), no_lock);
    BAD(dibs_lock_holders(lock, NULL, NULL), no_fn);
    BAD(dibs_lock_queue(NULL, see_place, NULL), no_lock);
    BAD(dibs_lock_queue(lock, NULL, NULL), no_fn);
    BAD(dibs_client_list(NULL, NULL, see, NULL), no_client);
    BAD(dibs_client_list(client, NULL, NULL, NULL), no_fn);
    BAD(dibs_client_doctor(NULL, NULL, see_check, NULL), no_client);
    BAD(dibs_client_doctor(client, NULL, NULL, NULL), no_fn);
    BAD(dibs_client_doctor(client, "", see_check, NULL),
        "the name must have 1 to 1024 bytes");
    BAD(dibs_lock_acquire_async(NULL, NULL, kit_tell, &t), no_lock);
    BAD(dibs_lock_acquire_async(lock, NULL, NULL, NULL), no_cb);
    BAD(dibs_lock_try_async(NULL, NULL, kit_tell, &t), no_lock);
    BAD(dibs_lock_try_async(lock, NULL, NULL, NULL), no_cb);
    BAD(dibs_lock_release_async(NULL, NULL, kit_tell, &t), no_lock);
    BAD(dibs_lock_release_async(lock, NULL, NULL, NULL), no_cb);
    BAD(dibs_lock_force_release_async(NULL, no_force, &t), no_lock);
    BAD(dibs_lock_force_release_async(lock, NULL, NULL), no_cb);
    BAD(dibs_lock_info_get_async(NULL, no_info, &t), no_lock);
    BAD(dibs_lock_info_get_async(lock, NULL, NULL), no_cb);
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

/* What makes no group, and what a group cannot be asked. */
static void test_badinput_groups(void **state)
{
    static const char group[] = "this is a group of locks: ask its members";
    dibs_lock *const twice[] = {lock, lock}, *const hole[] = {lock, NULL};
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_member member = DIBS_MEMBER_INIT;
    dibs_lock *l = NULL, *multi, *quorum;
    char text[DIBS_OWNER_MAX], *why;

    (void)state;
    BAD(dibs_multi_lock_new(NULL, 1, &l), "members is NULL");
    BAD(dibs_multi_lock_new(&lock, 0, &l), "there must be 1 to 1000 members");
    BAD(dibs_multi_lock_new(&lock, 1001, &l),
        "there must be 1 to 1000 members");
    BAD(dibs_multi_lock_new(&lock, 1, NULL), "out is NULL");
    BAD(dibs_multi_lock_new(hole, 2, &l), "member 1 is NULL");
    why = ts_text("'l' at %s/0 is given twice", ts_server_socket(srv));
    BAD(dibs_multi_lock_new(twice, 2, &l), why);
    free(why);
    FINE(dibs_multi_lock_new(&lock, 1, &multi));
    FINE(dibs_quorum_lock_new(&lock, 1, &quorum));
    BAD(dibs_multi_lock_new(&quorum, 1, &l), "member 0 is a quorum lock");
    BAD(dibs_quorum_lock_new(&quorum, 1, &l), "member 0 is a quorum lock");
    BAD(dibs_quorum_lock_new(&multi, 1, &l), "member 0 is a multi lock");
    assert_null(l);
    BAD(dibs_lock_info_get(multi, &info), group);
    BAD(dibs_lock_holders(multi, see_holder, NULL), group);
    BAD(dibs_lock_queue(multi, see_place, NULL), group);
    BAD(dibs_lock_force_release(multi, NULL), group);
    BAD(dibs_lock_force_release_owner(multi, STRANGER, NULL), group);
    BAD(dibs_lock_info_get_async(multi, no_info, NULL), group);
    BAD(dibs_lock_force_release_async(multi, no_force, NULL), group);
    BAD(dibs_lock_owner_text(multi, 0, text, sizeof text), group);
    BAD(dibs_lock_acquire_async(multi, NULL, NULL, NULL), "cb is NULL");
    BAD(dibs_lock_release_async(multi, NULL, NULL, NULL), "cb is NULL");
    BAD(dibs_lock_members(NULL, 0, 0, &member), "lock is NULL");
    BAD(dibs_lock_members(lock, 0, 0, &member), "the lock has no members");
    BAD(dibs_lock_members(multi, 0, 0, NULL), "dibs_member: out is NULL");
    BAD(dibs_lock_members(multi, 1, 0, &member),
        "index is 1, it must be below 1");
    member.size = 0;
    BAD(dibs_lock_members(multi, 0, 0, &member),
        "dibs_member: size is 0, it must be sizeof(dibs_member)");
    dibs_lock_free(multi);
    dibs_lock_free(quorum);
}

#define OPEN_TEST(f)                                                           \
    cmocka_unit_test_setup_teardown(f, open_client, close_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_badinput_urls),       KIT_TEST(test_badinput_client_opts),
        OPEN_TEST(test_badinput_lock_opts), OPEN_TEST(test_badinput_largest),
        OPEN_TEST(test_badinput_names),     OPEN_TEST(test_badinput_null),
        OPEN_TEST(test_badinput_groups),
    };
    return KIT_RUN("server.badinput", tests);
}
