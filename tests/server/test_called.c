/* SPDX-License-Identifier: MIT
 *
 * test_called.c - clients that wait for a plain or write lock are called one at
 * a time; a client that released stands back; and what happens when those who
 * release do not know of the queue, or those who wait are not there any more.
 *
 * By message means within milliseconds: where a test does something very often,
 * it would take minutes if waiters had to look by themselves.
 */
#include "server/kit.h"

#include <pthread.h>

#define CHANNEL  "redisson_lock__channel:{l}"
#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

enum { CLIENTS = 8 };

/* A client with one call that waits, and gives back when it got in. */
struct waiter {
    dibs_client *c;
    dibs_lock *l;
    dibs_owner owner;
    struct told got, gave;
};

static void granted(dibs_err err, void *arg)
{
    struct waiter *w = arg;

    if (err == DIBS_OK)
        err = dibs_lock_release_async(w->l, DIBS_LOCK_OPTS(.owner = w->owner),
                                      kit_tell, &w->gave);
    kit_tell(err, &w->got);
}

static void open_waiters(struct waiter *w, int n)
{
    memset(w, 0, (size_t)n * sizeof *w);
    for (int i = 0; i < n; i++) {
        w[i].c = kit_open(NULL);
        w[i].l = kit_lock(w[i].c, "l");
        w[i].owner = dibs_owner_new(w[i].c);
    }
}

/* They come one after the other; the server has so many in its queue then. */
static void line_up(struct waiter *w, int n)
{
    for (int i = 0; i < n; i++) {
        FINE(dibs_lock_acquire_async(
            w[i].l, DIBS_LOCK_OPTS(.owner = w[i].owner), granted, &w[i]));
        TS_WAIT(ts_waiting(srv, "l") == i + 1);
    }
}

static void come(struct waiter *w, int n)
{
    open_waiters(w, n);
    line_up(w, n);
}

static void go(struct waiter *w)
{
    dibs_lock_free(w->l);
    kit_close(w->c);
}

/* False: somebody has it. */
static bool taken_by_stranger(void)
{
    static const char script[] =
        "if redis.call('exists', 'l') == 1 then return 0 end "
        "redis.call('hset', 'l', ARGV[1], '1') "
        "return redis.call('pexpire', 'l', '600000')";

    return ts_int(srv, "EVAL %s 0 %s", script, STRANGER) == 1;
}

static void freed_by_stranger(void)
{
    ts_ok(srv, "DEL l");
    ts_ok(srv, "PUBLISH %s 0", CHANNEL);
}

/* ---- one at a time ----------------------------------------------------- */

/* Who is called asks, gets it, and its release calls the next. The others ask
 * nothing, and nobody subscribes. False: it took so long that some asked
 * because their time had come, or that the holder subscribed. */
static bool called_in_turn(void)
{
    static struct waiter w[CLIENTS];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    open_waiters(w, CLIENTS);
    int64_t start = ts_now_ms();
    FINE(dibs_lock_acquire(l, NULL));
    line_up(w, CLIENTS);
    assert_true(ts_wait_numsub(srv, CHANNEL, 2)); /* the first two */
    ts_reset_stats(srv);
    FINE(dibs_lock_release(l, NULL));
    for (int i = 0; i < CLIENTS; i++)
        FINE(kit_answer(&w[i].gave));
    long long asked = ts_command_calls(srv, "evalsha");
    long long subscribed = ts_command_calls(srv, "subscribe");
    bool quick = ts_now_ms() - start < 800;
    if (quick && asked > 1 + 2 * CLIENTS + 2)
        fail_msg("%lld commands for %d hand-overs", asked, CLIENTS);
    if (quick)
        assert_int_equal(subscribed, 0);
    assert_int_equal(ts_waiting(srv, "l"), 0);
    for (int i = 0; i < CLIENTS; i++)
        go(&w[i]);
    dibs_lock_free(l);
    kit_close(c);
    return quick;
}

static void test_called_one_at_a_time(void **state)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    (void)state;
    while (!called_in_turn())
        if (!ts_wait_step(&w))
            skip(); /* nothing can be said on so slow a machine */
}

struct loop {
    dibs_lock *l;
    atomic_bool *stop;
    long grants;
    dibs_err err;
    pthread_t thread;
};

static void *take_and_give(void *arg)
{
    struct loop *lp = arg;

    while (lp->err == DIBS_OK && !atomic_load(lp->stop)) {
        lp->err = dibs_lock_acquire(lp->l, NULL);
        lp->grants++;
        if (lp->err == DIBS_OK)
            lp->err = dibs_lock_release(lp->l, NULL);
    }
    return NULL;
}

/* A client that asks again at once does not keep another one out: between two
 * of the other's turns it has few. Without standing back there are very many.
 */
static void test_called_greedy_stands_back(void **state)
{
    static dibs_err (*const kinds[])(dibs_client *, const char *,
                                     dibs_lock **) = {dibs_lock_new,
                                                      dibs_write_lock_new};
    enum { TURNS = 100 };

    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++) {
        dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
        atomic_bool stop = false;
        struct loop greedy = {.stop = &stop};
        dibs_lock *l = NULL;

        FINE(kinds[k](c, "l", &greedy.l));
        FINE(kinds[k](d, "l", &l));
        assert_int_equal(
            pthread_create(&greedy.thread, NULL, take_and_give, &greedy), 0);
        for (int i = 0; i < TURNS; i++) {
            FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
            FINE(dibs_lock_release(l, NULL));
        }
        atomic_store(&stop, true);
        pthread_join(greedy.thread, NULL);
        FINE(greedy.err);
        if (greedy.grants > 10 * TURNS)
            fail_msg("%ld turns of the greedy one, %d of the other",
                     greedy.grants, TURNS);
        dibs_lock_free(greedy.l);
        dibs_lock_free(l);
        kit_close(c);
        kit_close(d);
    }
}

/* One that stands back asks once, however short its limit is. */
static void test_called_stands_back_briefly(void **state)
{
    static struct waiter w[1];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    for (int i = 0; i < 20; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        come(w, 1);
        FINE(dibs_lock_release(l, NULL));
        long long asked = ts_command_calls(srv, "evalsha");
        dibs_err err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 1));
        if (err == DIBS_OK)
            FINE(dibs_lock_release(l, NULL));
        else
            WANT(err, DIBS_ERR_TIMEOUT);
        FINE(kit_answer(&w[0].gave));
        /* The waiter's two, and ours. */
        assert_true(ts_command_calls(srv, "evalsha") >= asked + 2);
        TS_WAIT(!ts_exists(srv, "l"));
        go(&w[0]);
    }
    dibs_lock_free(l);
    kit_close(c);
}

/* A writer whose owner reads hears at once that it would wait for itself, also
 * when its client stands back and others of it wait before it. */
static void test_called_upgrade_is_told(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *w, *r, *other;

    (void)state;
    FINE(dibs_write_lock_new(c, "l", &w));
    FINE(dibs_read_lock_new(c, "l", &r));
    FINE(dibs_write_lock_new(d, "l", &other));
    for (int i = 0; i < 20; i++) {
        struct told near = {0}, far = {0};
        dibs_owner second = dibs_owner_new(c), third = dibs_owner_new(d);

        FINE(dibs_lock_acquire(w, NULL));
        FINE(dibs_lock_acquire_async(other, DIBS_LOCK_OPTS(.owner = third),
                                     kit_tell, &far));
        TS_WAIT(ts_waiting(srv, "l") == 1);
        FINE(dibs_lock_acquire_async(w, DIBS_LOCK_OPTS(.owner = second),
                                     kit_tell, &near));
        FINE(dibs_lock_acquire(r, NULL));
        FINE(dibs_lock_release(w, NULL));
        WANT(dibs_lock_acquire(w, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)),
             DIBS_ERR_UPGRADE);
        FINE(dibs_lock_release(r, NULL));
        for (int k = 0; k < 2; k++) { /* one after the other, in any order */
            TS_WAIT(atomic_load(&near.times) + atomic_load(&far.times) > k);
            if (atomic_load(&near.times) && near.err == DIBS_OK &&
                dibs_lock_holds(w, second))
                FINE(dibs_lock_release(w, DIBS_LOCK_OPTS(.owner = second)));
            if (atomic_load(&far.times) && dibs_lock_holds(other, third))
                FINE(dibs_lock_release(other, DIBS_LOCK_OPTS(.owner = third)));
        }
        FINE(kit_answer(&near));
        FINE(kit_answer(&far));
        TS_WAIT(!ts_exists(srv, "l"));
    }
    dibs_lock_free(w);
    dibs_lock_free(r);
    dibs_lock_free(other);
    kit_close(c);
    kit_close(d);
}

/* ---- others, who do not know of the queue ------------------------------ */

/* One of the queue listens for all: a release by a stranger is heard each time,
 * though the clients change places all the time. */
static void test_called_stranger_releases(void **state)
{
    enum { HERD = 3, TIMES = 60 };
    struct loop herd[HERD] = {{.err = DIBS_OK}};
    dibs_client *c[HERD];
    atomic_bool stop = false;
    int64_t start = ts_now_ms();

    (void)state;
    for (int i = 0; i < HERD; i++) {
        c[i] = kit_open(NULL);
        herd[i].l = kit_lock(c[i], "l");
        herd[i].stop = &stop;
        assert_int_equal(
            pthread_create(&herd[i].thread, NULL, take_and_give, &herd[i]), 0);
    }
    for (int i = 0; i < TIMES; i++) {
        TS_WAIT(taken_by_stranger());
        TS_WAIT(ts_waiting(srv, "l") == HERD);
        freed_by_stranger();
    }
    assert_true(ts_now_ms() - start < TS_SOON);
    atomic_store(&stop, true);
    for (int i = 0; i < HERD; i++) {
        pthread_join(herd[i].thread, NULL);
        FINE(herd[i].err);
        dibs_lock_free(herd[i].l);
        kit_close(c[i]);
    }
}

/* A client that listens for all, and closes, hands that on. */
static void test_called_listener_closes(void **state)
{
    static struct waiter w[4];

    (void)state;
    assert_true(taken_by_stranger());
    come(w, 4);
    assert_true(ts_wait_numsub(srv, CHANNEL, 2));
    for (int i = 0; i < 2; i++) {
        go(&w[i]);
        WANT(kit_answer(&w[i].got), DIBS_ERR_CLOSED);
    }
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    TS_WAIT(ts_waiting(srv, "l") == 2);
    freed_by_stranger();
    for (int i = 2; i < 4; i++) {
        FINE(kit_answer(&w[i].gave));
        go(&w[i]);
    }
}

/* ---- those who are gone ------------------------------------------------ */

static int wait_for_ever(int fd, void *arg)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    char go;

    (void)arg;
    if (!ts_hear(fd, &go, 1, TS_SOON) ||
        dibs_client_open(ts_server_url(srv), NULL, &c) != DIBS_OK ||
        dibs_lock_new(c, "l", &l) != DIBS_OK)
        return 1;
    return dibs_lock_acquire(l, NULL);
}

/* The first ones of the queue are killed, the listener among them: the next one
 * gets it. */
static void test_called_first_is_killed(void **state)
{
    static struct waiter w[2];
    struct ts_child *ch[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        ch[i] = ts_spawn(wait_for_ever, NULL);
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    FINE(dibs_lock_acquire(l, NULL));
    for (int i = 0; i < 3; i++) {
        assert_true(ts_tell(ts_child_fd(ch[i]), "g", 1));
        TS_WAIT(ts_waiting(srv, "l") == i + 1);
    }
    for (int i = 0; i < 2; i++) {
        w[i].c = kit_open(NULL);
        w[i].l = kit_lock(w[i].c, "l");
        w[i].owner = dibs_owner_new(w[i].c);
        FINE(dibs_lock_acquire_async(
            w[i].l, DIBS_LOCK_OPTS(.owner = w[i].owner), granted, &w[i]));
        TS_WAIT(ts_waiting(srv, "l") == 4 + i);
    }
    for (int i = 0; i < 3; i++) {
        ts_child_kill(ch[i]);
        ts_child_free(ch[i]);
    }
    assert_true(ts_wait_numsub(srv, CHANNEL, 0));
    FINE(dibs_lock_release(l, NULL));
    for (int i = 0; i < 2; i++) {
        FINE(kit_answer(&w[i].gave));
        go(&w[i]);
    }
    TS_WAIT(ts_waiting(srv, "l") == 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* A call that comes for nobody is passed on. */
static void test_called_in_vain(void **state)
{
    static struct waiter w[3];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    int64_t start = ts_now_ms();

    (void)state;
    for (int i = 0; i < 20; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        come(w, 3);
        FINE(dibs_lock_cancel(w[0].l, w[0].owner)); /* just then */
        FINE(dibs_lock_release(l, NULL));
        for (int k = 1; k < 3; k++)
            FINE(kit_answer(&w[k].gave));
        kit_answer(&w[0].got); /* in time, or not */
        if (atomic_load(&w[0].got.times) && w[0].got.err == DIBS_OK)
            FINE(kit_answer(&w[0].gave));
        TS_WAIT(!ts_exists(srv, "l"));
        for (int k = 0; k < 3; k++)
            go(&w[k]);
    }
    assert_true(ts_now_ms() - start < TS_SOON);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- without rights ---------------------------------------------------- */

/* The client may not listen to its own channel, or not register: it waits as
 * everybody did before there was a queue, and is woken by each release. */
static void test_called_without_rights(void **state)
{
    static const char *const rights[] = {
        "~* resetchannels &" CHANNEL " +@all",
        "~l &* +@all",
        "~* &* +@all -zadd",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rights); i++) {
        ts_ok(srv, "ACL SETUSER some reset");
        char *rule = ts_text("ACL SETUSER some on >pass %s", rights[i]);
        ts_ok(srv, rule);
        free(rule);
        dibs_client *c = kit_open(NULL);
        dibs_client *d =
            kit_open(DIBS_CLIENT_OPTS(.user = "some", .password = "pass"));
        dibs_lock *l = kit_lock(c, "l"), *want = kit_lock(d, "l");
        int64_t start = ts_now_ms();

        for (int k = 0; k < 40; k++) {
            struct told t = {0};
            dibs_owner owner = dibs_owner_new(d);

            FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 600000)));
            FINE(dibs_lock_acquire_async(want, DIBS_LOCK_OPTS(.owner = owner),
                                         kit_tell, &t));
            assert_true(ts_wait_numsub(srv, CHANNEL, 1));
            FINE(dibs_lock_release(l, NULL));
            FINE(kit_answer(&t));
            FINE(dibs_lock_release(want, DIBS_LOCK_OPTS(.owner = owner)));
        }
        assert_int_equal(ts_waiting(srv, "l"), 0);
        assert_true(ts_now_ms() - start < TS_SOON);
        dibs_lock_free(l);
        dibs_lock_free(want);
        kit_close(c);
        kit_close(d);
    }
    ts_ok(srv, "ACL DELUSER some");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_called_one_at_a_time),
        KIT_TEST(test_called_greedy_stands_back),
        KIT_TEST(test_called_stands_back_briefly),
        KIT_TEST(test_called_upgrade_is_told),
        KIT_TEST(test_called_stranger_releases),
        KIT_TEST(test_called_listener_closes),
        KIT_TEST(test_called_first_is_killed),
        KIT_TEST(test_called_in_vain),
        KIT_TEST(test_called_without_rights),
    };
    return KIT_RUN("server.called", tests);
}
