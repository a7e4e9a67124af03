/* SPDX-License-Identifier: MIT
 *
 * test_replies.c - replies beyond reason: numbers that no clock has, lines that
 * never end. Time limits hold anyway, and nobody is kept busy.
 */
#include "server/fake.h"
#include "support/proxy.h"

#define MOST  "9223372036854775807"
#define LEAST "-9223372036854775808"

static const struct {
    const char *name;
    dibs_err (*make)(dibs_client *c, const char *name, dibs_lock **out);
} kinds[] = {
    {"plain", dibs_lock_new},
    {"fair", dibs_fair_lock_new},
    {"read", dibs_read_lock_new},
    {"write", dibs_write_lock_new},
};

static struct ts_proxy *px;
static dibs_client *client;

static int open_client(void **state)
{
    kit_before(state);
    px = ts_proxy_start(srv);
    client = kit_open_at(ts_proxy_url(px), NULL);
    return 0;
}

static int close_client(void **state)
{
    ts_proxy_unrule(px, 0);
    kit_close(client);
    ts_proxy_stop(px);
    return kit_after(state);
}

/* Everything of this name is answered so, and not executed. */
static int answer(const char *name, const char *text)
{
    return ts_proxy_rule(px, &(struct ts_rule){.action = TS_ANSWER,
                                               .match = "EVAL*",
                                               .contains = name,
                                               .text = text});
}

/* ---- numbers ----------------------------------------------------------- */

/* "Taken, for so long": the waiter's own limit counts, and so do those of
 * others in this client. */
static void test_replies_busy_for_ever(void **state)
{
    static const char *const answers[] = {
        ":" MOST "\r\n", ":9223372036854775806\r\n", ":9007199254740993\r\n"};

    (void)state;
    for (size_t i = 0; i < COUNT(answers) * COUNT(kinds); i++) {
        size_t kind = i % COUNT(kinds);
        dibs_lock *l = NULL, *free_one = kit_lock(client, "free");
        int rule = answer("the-one", answers[i / COUNT(kinds)]);
        struct call call;

        FINE(kinds[kind].make(client, "the-one", &l));
        WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
        kit_call_start(&call, l, DIBS_LOCK_OPTS(.wait_ms = 300),
                       dibs_lock_acquire);
        FINE(dibs_lock_acquire(free_one, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
        FINE(dibs_lock_release(free_one, NULL));
        WANT(kit_call_end(&call), DIBS_ERR_TIMEOUT);
        ts_proxy_unrule(px, rule);
        FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
        FINE(dibs_lock_release(l, NULL));
        dibs_lock_free(l);
        dibs_lock_free(free_one);
    }
}

/* One waiter may wait forever; it asks again anyway, and gets it. (In a queue
 * it asks when the server says so, or when it is called.) */
static void test_replies_asked_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dibs_lock *l = NULL;
        struct told t = {0};
        dibs_owner owner = dibs_owner_new(client);

        if (kinds[i].make == dibs_fair_lock_new)
            continue;
        FINE(kinds[i].make(client, "the-one", &l));
        ts_proxy_rule(px, &(struct ts_rule){.action = TS_ANSWER,
                                            .match = "EVAL*",
                                            .contains = "the-one",
                                            .count = 1,
                                            .text = ":" MOST "\r\n"});
        FINE(dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = owner),
                                     kit_tell, &t));
        FINE(kit_answer(&t));
        FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = owner)));
        dibs_lock_free(l);
    }
}

static bool see_holder(const char *owner, dibs_mode mode, int64_t holds,
                       int64_t remaining_ms, void *arg)
{
    (void)owner, (void)mode, (void)holds;
    *(int64_t *)arg = remaining_ms;
    return true;
}

static bool see_place(size_t place, const char *owner, int64_t remaining_ms,
                      void *arg)
{
    (void)place, (void)owner;
    *(int64_t *)arg = remaining_ms;
    return false;
}

/* What is shown is a time that our own calls would take. */
static void test_replies_looks(void **state)
{
    dibs_lock *l = NULL;
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    int64_t ms = 0;

    (void)state;
    FINE(dibs_fair_lock_new(client, "the-one", &l));
    int rule = answer("the-one", "*5\r\n:" MOST "\r\n:" MOST "\r\n:" MOST
                                 "\r\n$1\r\na\r\n$19\r\n" MOST "\r\n");
    FINE(dibs_lock_info_get(l, &info));
    assert_true(info.locked && info.ttl_ms == DIBS_MS_MAX);
    assert_true(info.holds > 0);
    ts_proxy_unrule(px, rule);
    rule = answer("the-one", "*4\r\n$0\r\n\r\n$1\r\na\r\n$19\r\n" MOST
                             "\r\n:" MOST "\r\n");
    FINE(dibs_lock_holders(l, see_holder, &ms));
    assert_int_equal(ms, DIBS_MS_MAX);
    ts_proxy_unrule(px, rule);
    rule = answer("the-one",
                  "*5\r\n:1\r\n:0\r\n:1\r\n$1\r\na\r\n$19\r\n" MOST "\r\n");
    FINE(dibs_lock_queue(l, see_place, &ms));
    assert_int_equal(ms, DIBS_MS_MAX);
    ts_proxy_unrule(px, rule);
    rule = answer("the-one", "*5\r\n:" LEAST "\r\n:" LEAST "\r\n:" LEAST
                             "\r\n$1\r\na\r\n$20\r\n" LEAST "\r\n");
    FINE(dibs_lock_info_get(l, &info));
    assert_int_equal(info.waiters, 0);
    assert_int_equal(info.owners, 0);
    ts_proxy_unrule(px, rule);
    dibs_lock_free(l);
}

/* So many replicas there are not. */
static void test_replies_replicas(void **state)
{
    static const struct {
        const char *answer;
        dibs_err want;
    } rows[] = {
        {":" MOST "\r\n", DIBS_OK},
        {":" LEAST "\r\n", DIBS_ERR_REPLICAS},
    };
    dibs_lock *l = kit_lock(client, "l");

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        int rule = ts_proxy_rule(px, &(struct ts_rule){.action = TS_ANSWER,
                                                       .match = "WAIT",
                                                       .text = rows[i].answer});
        WANT(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.replicas = 1)), rows[i].want);
        if (rows[i].want == DIBS_OK)
            FINE(dibs_lock_release(l, NULL));
        ts_proxy_unrule(px, rule);
    }
    dibs_lock_free(l);
}

/* A release that gives no sense, or far too much of it. */
static void test_replies_releases(void **state)
{
    static const char *const answers[] = {":" MOST "\r\n", ":" LEAST "\r\n"};

    (void)state;
    for (size_t i = 0; i < COUNT(answers) * COUNT(kinds); i++) {
        dibs_lock *l = NULL;

        FINE(kinds[i % COUNT(kinds)].make(client, "the-held-one", &l));
        for (int j = 0; j < 2; j++) { /* the server knows the scripts then */
            FINE(dibs_lock_acquire(l, NULL));
            if (j == 0)
                FINE(dibs_lock_release(l, NULL));
        }
        int rule = ts_proxy_rule(
            px, &(struct ts_rule){.action = TS_REWRITE_REPLY,
                                  .match = "EVAL*",
                                  .contains = "the-held-one",
                                  .count = 1,
                                  .text = answers[i / COUNT(kinds)]});
        (void)dibs_lock_release(l, NULL);
        assert_true(ts_rule_wait_done(px, rule, 1, TS_SOON));
        ts_proxy_unrule(px, rule);
        TS_WAIT(!ts_exists(srv, "the-held-one"));
        FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
        FINE(dibs_lock_release(l, NULL));
        dibs_lock_free(l);
    }
}

/* ---- lines ------------------------------------------------------------- */

#define ALL_OF_IT ((size_t)12 << 20) /* more than the kernel keeps */

/* Whatever connects gets a line that does not end. */
struct babbler {
    int fd;
    char first;
    size_t most; /* bytes that one connection took */
    atomic_bool stop;
    pthread_t thread;
    char *url;
};

static void babble(struct babbler *b, int fd)
{
    char bytes[16384];
    size_t sent = 0;

    memset(bytes, b->first == ':' ? '1' : 'a', sizeof bytes);
    bytes[0] = b->first;
    while (!atomic_load(&b->stop) && sent < 4 * ALL_OF_IT) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        if (poll(&p, 1, 50) == 0)
            continue;
        ssize_t n = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            break;
        sent += (size_t)n;
        bytes[0] = bytes[1];
    }
    if (sent > b->most)
        b->most = sent;
    close(fd);
}

static void *babble_main(void *arg)
{
    struct babbler *b = arg;

    while (!atomic_load(&b->stop)) {
        struct pollfd p = {.fd = b->fd, .events = POLLIN};
        if (poll(&p, 1, 10) <= 0)
            continue;
        int fd = accept4(b->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            babble(b, fd);
    }
    return NULL;
}

static void test_replies_line_without_end(void **state)
{
    static const char firsts[] = "+-:$*";

    (void)state;
    for (const char *first = firsts; *first; first++) {
        struct fake f;
        fake_start(&f, NULL, false); /* for its listener */
        atomic_store(&f.stop, true);
        pthread_join(f.thread, NULL);
        struct babbler b = {.fd = f.fd, .first = *first, .url = f.url};
        if (pthread_create(&b.thread, NULL, babble_main, &b) != 0)
            ts_fatal("no thread");
        dibs_client *c = NULL;
        dibs_err err = dibs_client_open(
            b.url, DIBS_CLIENT_OPTS(.connect_timeout_ms = TS_SOON), &c);
        atomic_store(&b.stop, true);
        pthread_join(b.thread, NULL);
        close(f.fd);
        if (err != DIBS_ERR_PROTOCOL)
            fail_msg("%c: %s", *first, dibs_strerror(err));
        if (b.most > ALL_OF_IT)
            fail_msg("%c: %zu bytes were read", *first, b.most);
    }
}

#define OPEN_TEST(f)                                                           \
    cmocka_unit_test_setup_teardown(f, open_client, close_client)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPEN_TEST(test_replies_busy_for_ever),
        OPEN_TEST(test_replies_asked_again),
        OPEN_TEST(test_replies_looks),
        OPEN_TEST(test_replies_replicas),
        OPEN_TEST(test_replies_releases),
        KIT_TEST(test_replies_line_without_end),
    };

    return KIT_RUN("server.replies", tests);
}
