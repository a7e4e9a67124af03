/* SPDX-License-Identifier: MIT
 *
 * test_badanswer.c - keys that are something else, answers that no server
 * gives: each a clear error, and nothing breaks.
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

/* ---- keys of another type ---------------------------------------------- */

static void test_badanswer_wrong_type(void **state)
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
static void test_badanswer_wrong_type_later(void **state)
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

/* The text has what is wrong with the key, and does not say it twice. */
static void test_badanswer_other_hash(void **state)
{
    const char *same = dibs_strerror(DIBS_ERR_WRONGTYPE);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    (void)state;
    ts_ok(srv, "HSET l name bob");
    WANT(dibs_lock_info_get(lock, &info), DIBS_ERR_WRONGTYPE);
    assert_non_null(strstr(dibs_error_text(), "its fields are not a lock's"));
    assert_null(strstr(dibs_error_text(), same));
    WANT(dibs_lock_force_release(lock, NULL), DIBS_ERR_WRONGTYPE);
    assert_null(strstr(dibs_error_text(), same));
    ts_ok(srv, "DEL l");
}

/* ---- answers ----------------------------------------------------------- */

static bool count_place(size_t place, const char *owner, int64_t left_ms,
                        void *arg)
{
    size_t *count = arg;

    (void)owner;
    (void)left_ms;
    assert_int_equal(place, *count);
    ++*count;
    return true;
}

/* A server that gives a full page for ever: the look at it ends. */
static void test_badanswer_endless_queue(void **state)
{
    enum { PAGE = 200, MAX = 1000000 };
    struct ts_proxy *px = ts_proxy_start(srv);
    dibs_client *c = kit_open_at(ts_proxy_url(px), NULL);
    dibs_lock *l = NULL;
    size_t count = 0, size = 64 + (size_t)PAGE * 64;
    char *text = malloc(size);

    (void)state;
    assert_non_null(text);
    size_t used = (size_t)snprintf(text, size, "*%d\r\n:-2\r\n:0\r\n:%d\r\n",
                                   3 + 2 * PAGE, MAX);
    for (int i = 0; i < PAGE; i++)
        used += (size_t)snprintf(text + used, size - used,
                                 "$1\r\nx\r\n$1\r\n9\r\n");
    ts_proxy_rule(px, &(struct ts_rule){
                          .action = TS_ANSWER, .match = "EVAL*", .text = text});
    FINE(dibs_fair_lock_new(c, "endless", &l));
    WANT(dibs_lock_queue(l, count_place, &count), DIBS_ERR_PROTOCOL);
    assert_int_equal(count, MAX);
    assert_non_null(strstr(dibs_error_text(), "waiters"));
    dibs_lock_free(l);
    kit_close(c);
    ts_proxy_stop(px);
    free(text);
}

/* Whatever the answer to an attempt is, the attempt ends, soon, with an error;
 * and once the answers make sense again, so does the lock. */
static void test_badanswer_each(void **state)
{
    static const struct {
        const char *answer;
        dibs_err want;
        bool refused; /* the command does not even reach the server */
    } rows[] = {
        /* Well formed, but not what the script gives. */
        {"+OK\r\n", DIBS_ERR_PROTOCOL, false},
        {":-7\r\n", DIBS_ERR_PROTOCOL, false},
        {":-3\r\n", DIBS_ERR_PROTOCOL, false}, /* there are no outer holds */
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
        /* Some of these are no answer, and time is sat out. */
        bool sits = rows[i].want == DIBS_ERR_UNKNOWN;
        dibs_client *c = kit_open_at(
            ts_proxy_url(px),
            DIBS_CLIENT_OPTS(.command_timeout_ms = sits ? ts_ms(150) : TS_SOON,
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
        err = dibs_lock_acquire(
            l, DIBS_LOCK_OPTS(.wait_ms = sits ? 100 : TS_SOON));
        if (err != rows[i].want && !(err == DIBS_ERR_CONN && sits))
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

/* One answer too many: it must not be taken for the answer to the next, least
 * of all a yes for a lock that another one has. */
static void test_badanswer_twice(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv);
    dibs_client *c = kit_open_at(ts_proxy_url(px), NULL);
    dibs_lock *l = kit_lock(c, "x"), *other = kit_lock(c, "y");

    (void)state;
    ts_ok(srv, "HSET y " STRANGER " 1");
    for (int i = 0; i < 10; i++) { /* now others are there to be borrowed */
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
    }
    for (int i = 0; i < 10; i++) {
        int id = ts_proxy_rule(
            px, &(struct ts_rule){.action = TS_DUPLICATE_REPLY,
                                  .match = "EVAL*",
                                  .ms = i, /* with the first, or behind */
                                  .count = 1});
        FINE(dibs_lock_acquire(l, NULL));
        assert_int_equal(kit_count(l, "x", 0), 1);
        assert_true(ts_rule_wait_done(px, id, 1, TS_SOON));
        WANT(dibs_lock_try(other, NULL), DIBS_ERR_BUSY);
        FINE(dibs_lock_release(l, NULL));
        assert_false(ts_exists(srv, "x"));
        WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    }
    dibs_lock_free(l);
    dibs_lock_free(other);
    kit_close(c);
    ts_ok(srv, "DEL y");
    ts_proxy_stop(px);
}

/* The same on the shared connection, and the answer too many comes in two
 * pieces: one with the answer that it follows, one with the next. */
static void test_badanswer_twice_in_pieces(void **state)
{
    static const struct {
        const char *first, *then;
    } rows[] = {
        {":1\r\n$-1\r\n", ":60000\r\n"}, /* whole */
        {":1\r\n$-1", "\r\n:60000\r\n"},
        {":1\r\n$", "-1\r\n:60000\r\n"},
    };
    struct ts_proxy *px = ts_proxy_start(srv);
    dibs_client *c = kit_open_at(ts_proxy_url(px), NULL);
    dibs_lock *l = kit_lock(c, "x"), *other = kit_lock(c, "y");

    (void)state;
    ts_ok(srv, "HSET y " STRANGER " 1");
    FINE(dibs_lock_acquire(l, NULL)); /* the server knows the scripts */
    FINE(dibs_lock_release(l, NULL));
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_owner owner = dibs_owner_new(c);
        const dibs_lock_opts *o = DIBS_LOCK_OPTS(.owner = owner);
        struct told t = {0}, end = {0}, tried = {0};
        struct ts_rule rule = {
            .action = TS_REWRITE_REPLY, .match = "EVAL*", .count = 1};

        FINE(dibs_lock_acquire_async(l, o, kit_tell, &t));
        FINE(kit_answer(&t));
        rule.text = rows[i].first;
        ts_proxy_rule(px, &rule);
        FINE(dibs_lock_release_async(l, o, kit_tell, &end));
        FINE(kit_answer(&end));
        rule.text = rows[i].then;
        int id = ts_proxy_rule(px, &rule);
        FINE(dibs_lock_try_async(other, o, kit_tell, &tried));
        if (kit_answer(&tried) == DIBS_OK) /* BUSY, or it made no sense */
            fail_msg("row %zu: a yes that is none", i);
        ts_proxy_unrule(px, id);
    }
    dibs_lock_free(l);
    dibs_lock_free(other);
    kit_close(c);
    ts_ok(srv, "DEL y");
    ts_proxy_stop(px);
}

/* Every byte on its own: slow, and right anyway. */
static void test_badanswer_bytewise(void **state)
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
        OPEN_TEST(test_badanswer_wrong_type),
        OPEN_TEST(test_badanswer_wrong_type_later),
        OPEN_TEST(test_badanswer_other_hash),
        KIT_TEST(test_badanswer_endless_queue),
        KIT_TEST(test_badanswer_each),
        KIT_TEST(test_badanswer_twice),
        KIT_TEST(test_badanswer_twice_in_pieces),
        KIT_TEST(test_badanswer_bytewise),
    };
    return KIT_RUN_PARALLEL("server.badanswer", tests);
}
