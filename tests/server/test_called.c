/* SPDX-License-Identifier: MIT
 *
 * test_called.c - clients that wait for a plain, fenced or write lock, or for
 * slots, are called one at a time; a client that released stands back; and what
 * happens when those who release do not know of the queue, or those who wait
 * are not there any more.
 *
 * By message means within milliseconds: where a test does something very often,
 * it would take minutes if waiters had to look by themselves.
 */
#include "server/called_kit.h"

#include <pthread.h>

/* ---- one at a time ----------------------------------------------------- */

/* Who is called asks, gets it, and its release calls the next. The others ask
 * nothing, and nobody subscribes. False: it took so long that some asked
 * because their time had come, or that the holder subscribed. */
static bool called_in_turn(const struct kind *k)
{
    static struct waiter w[CLIENTS];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = called_lock(k, c);

    open_waiters(k, w, CLIENTS);
    int64_t start = ts_now_ms();
    FINE(dibs_lock_acquire(l, NULL));
    line_up(w, CLIENTS);
    assert_true(ts_wait_numsub(srv, k->channel, 2)); /* the first two */
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

    while (!called_in_turn(called_kind(state)))
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
 * of the other's turns it has few, on a busy machine some. If the other one
 * were not called, or kept out, it would have very many.
 */
static void test_called_greedy_stands_back(void **state)
{
    static dibs_err (*const kinds[])(dibs_client *, const char *,
                                     dibs_lock **) = {
        dibs_lock_new, dibs_write_lock_new, dibs_fenced_lock_new, one_slot};
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
        if (greedy.grants > 100 * TURNS)
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
    const struct kind *k = called_kind(state);
    static struct waiter w[1];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = called_lock(k, c);

    for (int i = 0; i < 20; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        come(k, w, 1);
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
        TS_WAIT(!called_held(k));
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
    const struct kind *k = called_kind(state);
    enum { HERD = 3, TIMES = 60 };
    struct loop herd[HERD] = {{.err = DIBS_OK}};
    dibs_client *c[HERD];
    atomic_bool stop = false;
    int64_t start = ts_now_ms();

    for (int i = 0; i < HERD; i++) {
        c[i] = kit_open(NULL);
        herd[i].l = called_lock(k, c[i]);
        herd[i].stop = &stop;
        assert_int_equal(
            pthread_create(&herd[i].thread, NULL, take_and_give, &herd[i]), 0);
    }
    for (int i = 0; i < TIMES; i++) {
        TS_WAIT(taken_by_stranger(k));
        TS_WAIT(ts_waiting(srv, "l") == HERD);
        freed_by_stranger(k);
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
    const struct kind *k = called_kind(state);
    static struct waiter w[4];

    assert_true(taken_by_stranger(k));
    come(k, w, 4);
    assert_true(ts_wait_numsub(srv, k->channel, 2));
    for (int i = 0; i < 2; i++) {
        go(&w[i]);
        WANT(kit_answer(&w[i].got), DIBS_ERR_CLOSED);
    }
    assert_true(ts_wait_numsub(srv, k->channel, 1));
    TS_WAIT(ts_waiting(srv, "l") == 2);
    freed_by_stranger(k);
    for (int i = 2; i < 4; i++) {
        FINE(kit_answer(&w[i].gave));
        go(&w[i]);
    }
}

/* ---- those who are gone ------------------------------------------------ */

static int wait_for_ever(int fd, void *arg)
{
    const struct kind *k = arg;
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    char go;

    if (!ts_hear(fd, &go, 1, TS_SOON) ||
        dibs_client_open(ts_server_url(srv), NULL, &c) != DIBS_OK ||
        k->make(c, "l", &l) != DIBS_OK)
        return 1;
    return dibs_lock_acquire(l, NULL);
}

/* The first ones of the queue are killed, the listener among them: the next one
 * gets it. */
static void test_called_first_is_killed(void **state)
{
    const struct kind *k = called_kind(state);
    struct waiter w[2] = {{.owner = 0}, {.owner = 0}};
    struct ts_child *ch[3];

    for (int i = 0; i < 3; i++)
        ch[i] = ts_spawn(wait_for_ever, (void *)(uintptr_t)k);
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = called_lock(k, c);
    FINE(dibs_lock_acquire(l, NULL));
    for (int i = 0; i < 3; i++) {
        assert_true(ts_tell(ts_child_fd(ch[i]), "g", 1));
        TS_WAIT(ts_waiting(srv, "l") == i + 1);
    }
    for (int i = 0; i < 2; i++) {
        w[i].c = kit_open(NULL);
        w[i].l = called_lock(k, w[i].c);
        w[i].owner = dibs_owner_new(w[i].c);
        FINE(dibs_lock_acquire_async(
            w[i].l, DIBS_LOCK_OPTS(.owner = w[i].owner), granted, &w[i]));
        TS_WAIT(ts_waiting(srv, "l") == 4 + i);
    }
    for (int i = 0; i < 3; i++) {
        ts_child_kill(ch[i]);
        ts_child_free(ch[i]);
    }
    assert_true(ts_wait_numsub(srv, k->channel, 0));
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
    const struct kind *k = called_kind(state);
    static struct waiter w[3];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = called_lock(k, c);
    int64_t start = ts_now_ms();

    for (int i = 0; i < 20; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        come(k, w, 3);
        FINE(dibs_lock_cancel(w[0].l, w[0].owner)); /* just then */
        FINE(dibs_lock_release(l, NULL));
        for (int j = 1; j < 3; j++)
            FINE(kit_answer(&w[j].gave));
        kit_answer(&w[0].got); /* in time, or not */
        if (atomic_load(&w[0].got.times) && w[0].got.err == DIBS_OK)
            FINE(kit_answer(&w[0].gave));
        TS_WAIT(!called_held(k));
        for (int j = 0; j < 3; j++)
            go(&w[j]);
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
        CALLED_TEST(test_called_one_at_a_time, PLAIN),
        CALLED_TEST(test_called_one_at_a_time, FENCED),
        CALLED_TEST(test_called_one_at_a_time, SLOTS),
        CALLED_TEST(test_called_greedy_stands_back, SLOTS),
        CALLED_TEST(test_called_stands_back_briefly, PLAIN),
        CALLED_TEST(test_called_stands_back_briefly, FENCED),
        CALLED_TEST(test_called_stands_back_briefly, SLOTS),
        KIT_TEST(test_called_upgrade_is_told),
        CALLED_TEST(test_called_stranger_releases, PLAIN),
        CALLED_TEST(test_called_stranger_releases, FENCED),
        CALLED_TEST(test_called_stranger_releases, SLOTS),
        CALLED_TEST(test_called_listener_closes, PLAIN),
        CALLED_TEST(test_called_listener_closes, FENCED),
        CALLED_TEST(test_called_listener_closes, SLOTS),
        CALLED_TEST(test_called_first_is_killed, PLAIN),
        CALLED_TEST(test_called_first_is_killed, FENCED),
        CALLED_TEST(test_called_first_is_killed, SLOTS),
        CALLED_TEST(test_called_in_vain, PLAIN),
        CALLED_TEST(test_called_in_vain, FENCED),
        CALLED_TEST(test_called_in_vain, SLOTS),
        KIT_TEST(test_called_without_rights),
    };
    return KIT_RUN_PARALLEL("server.called", tests);
}
