/* SPDX-License-Identifier: MIT
 *
 * fault_pubsub.c - wake-ups that are lost, late, forged or forbidden.
 *
 * A message is a hint. A waiter that does not get it must find out by itself,
 * within a few seconds, however long the holder's lease is. A waiter that may
 * have missed it, since its subscription was not there at that time, must look
 * at once; that is seen by doing it so often that sleeping it out each time
 * would take longer than any test may.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <stdio.h>
#include <string.h>

#define OFTEN 16  /* times a waiter's shortest sleep is more than TS_SOON */
#define MANY  500 /* channels */

/* Somebody has the lock, directly at the server; somebody else waits for it,
 * through the proxy. */
struct scene {
    struct kit_client *has, *wants;
    dibs_lock *held, *wanted;
    char *name, *channel;
    struct kit_end end;
    int asks; /* the waiter's attempts, as the proxy counts them */
};

static void lock_up(struct scene *sc)
{
    sc->name = kit_name("ps");
    sc->channel = ts_text("redisson_lock__channel:{%s}", sc->name);
    sc->held = kit_lock(sc->has, sc->name);
    sc->wanted = kit_lock(sc->wants, sc->name);
    sc->end.err = DIBS_OK;
    atomic_store(&sc->end.over, false);
    sc->asks = kit_rule(&dibs__script_mutex_acquire, sc->name,
                        &(struct ts_rule){.action = TS_PASS});
    kit_want("taking", dibs_lock_acquire(sc->held, NULL), DIBS_OK);
}

static void line_up(struct scene *sc)
{
    kit_want("lining up",
             dibs_lock_acquire_async(sc->wanted, NULL, kit_ended, &sc->end),
             DIBS_OK);
}

static void cancel_wait(struct scene *sc)
{
    kit_want("leaving", dibs_lock_cancel(sc->wanted, 0), DIBS_OK);
    kit_want("left", kit_wait(&sc->end), DIBS_ERR_CANCELED);
    sc->end.err = DIBS_OK;
    atomic_store(&sc->end.over, false);
}

/* It has asked, subscribed, asked again, and sleeps now. */
static void asleep(struct scene *sc)
{
    assert_true(ts_wait_numsub(kit_srv, sc->channel, 1));
    assert_true(ts_rule_wait_done(kit_px, sc->asks, 2, TS_SOON));
}

/* The waiter gets it; then all is undone. */
static void gets_it(struct scene *sc)
{
    kit_want("waiting", kit_wait(&sc->end), DIBS_OK);
    kit_check("the waiter's", sc->wanted, 0, sc->name, 1);
    kit_want("giving back", dibs_lock_release(sc->wanted, NULL), DIBS_OK);
    TS_WAIT(ts_waiting(kit_srv, sc->name) == 0);
    kit_gone("afterwards", sc->name);
    dibs_lock_free(sc->held);
    dibs_lock_free(sc->wanted);
    free(sc->name);
    free(sc->channel);
}

static struct scene open_both(const char *user)
{
    struct scene sc = {.asks = 0};

    sc.has = kit_open(&(struct kit_opts){.direct = true});
    sc.wants = kit_open(&(struct kit_opts){.name = user});
    return sc;
}

static void close_both(struct scene *sc)
{
    kit_close(sc->has);
    kit_close(sc->wants);
}

/* ---- as it should be --------------------------------------------------- */

static void test_message_wakes(void **state)
{
    struct scene sc = open_both(NULL);
    int64_t until = ts_now_ms() + TS_SOON;

    (void)state;
    for (unsigned i = 0; i < OFTEN; i++) {
        lock_up(&sc);
        line_up(&sc);
        asleep(&sc);
        kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
        gets_it(&sc);
    }
    if (ts_now_ms() > until)
        fail_msg("nobody was woken");
    close_both(&sc);
}

/* ---- lost -------------------------------------------------------------- */

static void test_message_dropped(void **state)
{
    struct scene sc = open_both(NULL);

    (void)state;
    lock_up(&sc);
    line_up(&sc);
    asleep(&sc);
    int dropped =
        ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_SWALLOW_MESSAGE});
    kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
    gets_it(&sc);
    /* The release, the call, and that there was one; what it says itself when
     * it gives back may come, too. */
    assert_true(ts_rule_hits(kit_px, dropped) >= 3);
    close_both(&sc);
}

/* The lock is freed while the waiter cannot be told, since its connection was
 * ended and it cannot make another. */
static void test_connection_down_at_release(void **state)
{
    struct scene sc = open_both(NULL);

    (void)state;
    lock_up(&sc);
    line_up(&sc);
    asleep(&sc);
    ts_proxy_refuse(kit_px, true);
    ts_ok(kit_srv, "CLIENT KILL TYPE pubsub");
    assert_true(ts_wait_numsub(kit_srv, sc.channel, 0));
    kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
    ts_proxy_refuse(kit_px, false);
    gets_it(&sc);
    close_both(&sc);
}

/* Each time the subscription is made again, the waiter looks. */
static void test_new_subscription_wakes(void **state)
{
    struct scene sc = open_both(NULL);
    int64_t until = ts_now_ms() + TS_SOON;

    (void)state;
    lock_up(&sc);
    line_up(&sc);
    asleep(&sc);
    for (unsigned i = 0; i < OFTEN; i++) {
        unsigned asks = ts_rule_done(kit_px, sc.asks);
        /* The holder's may be among them, once it has held for a second. */
        assert_true(ts_int(kit_srv, "CLIENT KILL TYPE pubsub") >= 1);
        assert_true(ts_wait_numsub(kit_srv, sc.channel, 1));
        assert_true(ts_rule_wait_done(kit_px, sc.asks, asks + 1, TS_SOON));
    }
    if (ts_now_ms() > until)
        fail_msg("nobody was woken");
    assert_false(atomic_load(&sc.end.over));
    kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
    gets_it(&sc);
    close_both(&sc);
}

/* The lock is freed after the first attempt and before the server has heard of
 * the subscription, or has confirmed it. */
static void check_release_in_between(enum ts_action action, const char *user)
{
    struct scene sc = open_both(user);
    int64_t until = ts_now_ms() + TS_SOON;

    for (unsigned i = 0; i < OFTEN; i++) {
        int held = ts_proxy_rule(
            kit_px, &(struct ts_rule){.action = action,
                                      .match = "SUBSCRIBE",
                                      .contains = "redisson_lock__channel",
                                      .count = 1});
        lock_up(&sc);
        line_up(&sc);
        assert_true(ts_rule_wait(kit_px, held, 1, TS_SOON));
        if (action == TS_HOLD_REPLY)
            TS_WAIT(ts_rule_executed(kit_px, held) == 1);
        assert_true(ts_rule_wait_done(kit_px, sc.asks, 1, TS_SOON));
        kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
        ts_proxy_release(kit_px);
        gets_it(&sc);
    }
    if (ts_now_ms() > until)
        fail_msg("nobody looked again");
    close_both(&sc);
}

static void test_release_before_subscription(void **state)
{
    (void)state;
    check_release_in_between(TS_HOLD_REQUEST, NULL);
}

static void test_release_before_confirmation(void **state)
{
    (void)state;
    check_release_in_between(TS_HOLD_REPLY, NULL);
}

/* A waiter leaves before its subscription is confirmed, and the next one comes
 * when that is confirmed, but the end of it is not. The server forgets the
 * first; so the second one must subscribe by itself. */
static void test_left_before_confirmation(void **state)
{
    struct scene sc = open_both(NULL);
    int64_t until = ts_now_ms() + TS_SOON;

    (void)state;
    for (unsigned i = 0; i < OFTEN; i++) {
        int begins = ts_proxy_rule(
            kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                      .match = "SUBSCRIBE",
                                      .contains = "redisson_lock__channel",
                                      .count = 1});
        int ends = ts_proxy_rule(
            kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                      .match = "UNSUBSCRIBE",
                                      .contains = "redisson_lock__channel",
                                      .count = 1});
        lock_up(&sc);
        line_up(&sc);
        assert_true(ts_rule_wait(kit_px, begins, 1, TS_SOON));
        cancel_wait(&sc);
        unsigned asks = ts_rule_done(kit_px, sc.asks);
        ts_proxy_release(kit_px);
        assert_true(ts_rule_wait(kit_px, ends, 1, TS_SOON));
        line_up(&sc);
        assert_true(ts_rule_wait_done(kit_px, sc.asks, asks + 1, TS_SOON));
        ts_proxy_release(kit_px);
        assert_true(ts_rule_wait_done(kit_px, ends, 1, TS_SOON));
        assert_true(ts_wait_numsub(kit_srv, sc.channel, 1));
        assert_true(ts_rule_wait_done(kit_px, sc.asks, asks + 2, TS_SOON));
        kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
        gets_it(&sc);
    }
    if (ts_now_ms() > until)
        fail_msg("nobody was woken");
    close_both(&sc);
}

/* Both have waited, and the first one listens for others; the second one only
 * waits to be called, for some seconds more. False: it came otherwise. The
 * second one heard of the release before the first one was called, and got the
 * lock or listens. */
static bool linger_second(struct scene *sc, struct kit_client *first)
{
    dibs_lock *l = kit_lock(first, sc->name);
    struct kit_end end = {.err = DIBS_OK};
    char *channel = ts_text("\r\n%s\r\n", sc->channel);
    /* Of the second one: the first one does not come through the proxy. */
    int leaves = ts_proxy_rule(
        kit_px, &(struct ts_rule){.match = "UNSUBSCRIBE", .contains = channel});

    free(channel);
    kit_want("lining up", dibs_lock_acquire_async(l, NULL, kit_ended, &end),
             DIBS_OK);
    TS_WAIT(ts_waiting(kit_srv, sc->name) == 1);
    line_up(sc);
    TS_WAIT(ts_waiting(kit_srv, sc->name) == 2);
    kit_want("giving back", dibs_lock_release(sc->held, NULL), DIBS_OK);
    TS_WAIT(atomic_load(&end.over) || atomic_load(&sc->end.over));
    bool in_order = atomic_load(&end.over);
    if (!in_order)
        kit_want("giving back", dibs_lock_release(sc->wanted, NULL), DIBS_OK);
    kit_want("waiting", kit_wait(&end), DIBS_OK);
    kit_want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    kit_want("waiting", kit_wait(&sc->end), DIBS_OK);
    if (in_order)
        kit_want("giving back", dibs_lock_release(sc->wanted, NULL), DIBS_OK);
    sc->end.err = DIBS_OK;
    atomic_store(&sc->end.over, false);
    dibs_lock_free(l);
    TS_WAIT(ts_numsub(kit_srv, sc->channel) <= 1);
    bool left = ts_rule_hits(kit_px, leaves) > 0;
    ts_proxy_unrule(kit_px, leaves);
    return in_order && left && ts_numsub(kit_srv, sc->channel) == 1;
}

/* False: it could not be tried. */
static bool listener_comes_late(void)
{
    struct scene sc = open_both(NULL);
    struct kit_client *first = kit_open(&(struct kit_opts){.direct = true});

    kit_load(&dibs__script_wait_leave);
    lock_up(&sc);
    bool alone = linger_second(&sc, first);
    if (!alone)
        goto end;
    freeReplyObject(ts_cmd(kit_srv, "DEL dibs_lock_listener:{%s}", sc.name));
    kit_want("taking", dibs_lock_acquire(sc.held, NULL), DIBS_OK);
    int leaves = kit_rule(&dibs__script_wait_leave, sc.name,
                          &(struct ts_rule){.action = TS_PASS});
    int begins = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                  .match = "SUBSCRIBE",
                                  .contains = "redisson_lock__channel",
                                  .count = 1});
    line_up(&sc);
    assert_true(ts_rule_wait(kit_px, begins, 1, TS_SOON));
    cancel_wait(&sc);
    assert_true(ts_rule_wait_done(kit_px, leaves, 1, TS_SOON));
    ts_proxy_release(kit_px);
    assert_true(ts_rule_wait_done(kit_px, leaves, 2, TS_SOON));
    kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
end:
    dibs_lock_free(sc.held);
    dibs_lock_free(sc.wanted);
    free(sc.name);
    free(sc.channel);
    kit_close(first);
    close_both(&sc);
    return alone;
}

/* A client that does not wait any more has yet to listen for others, as the
 * server told it. A release before that calls nobody; so once it listens, it
 * has the server look. */
static void test_listener_comes_late(void **state)
{
    bool tried = false;

    (void)state;
    for (int i = 0; i < 10 && !tried; i++)
        tried = listener_comes_late();
    assert_true(tried);
}

/* ---- forbidden --------------------------------------------------------- */

/* How often it was warned. Not counted is what a holder may hear last, should
 * it hold for a second: that it is not told of changes. */
static unsigned warnings(struct kit_client *k)
{
    return kit_told(k, DIBS_EVENT_WARNING) -
           kit_heard(k, DIBS_EVENT_WARNING, DIBS_ERR_AUTH, "CLIENT TRACKING");
}

/* No right to any channel: one waits by looking now and then, and says so;
 * releasing works, though nobody is told. */
static void test_no_channel_right(void **state)
{
    (void)state;
    ts_ok(kit_srv, "ACL SETUSER mute reset on >pass ~* +@all resetchannels");
    struct scene sc = open_both("mute");
    lock_up(&sc);
    line_up(&sc);
    TS_WAIT(kit_heard(sc.wants, DIBS_EVENT_WARNING, DIBS_ERR_AUTH, "NOPERM"));
    kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
    kit_want("waiting", kit_wait(&sc.end), DIBS_OK);

    /* The other way round: its release is not heard of. */
    struct kit_end end = {.err = DIBS_OK};
    kit_want("lining up",
             dibs_lock_acquire_async(sc.held, NULL, kit_ended, &end), DIBS_OK);
    assert_true(ts_wait_numsub(kit_srv, sc.channel, 1));
    kit_want("giving back", dibs_lock_release(sc.wanted, NULL), DIBS_OK);
    kit_want("waiting", kit_wait(&end), DIBS_OK);
    kit_check("the first one's", sc.held, 0, sc.name, 1);
    kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
    kit_gone("afterwards", sc.name);
    assert_int_equal(warnings(sc.wants), 1);
    dibs_lock_free(sc.held);
    dibs_lock_free(sc.wanted);
    free(sc.name);
    free(sc.channel);
    close_both(&sc);
}

/* The right to the channels of locks, but not to those on which a client is
 * called, whose names are longer. Each lock is another one: what was refused
 * for the first is not asked for again, and the waiter must look all the same.
 */
static void allow_half(void)
{
    ts_ok(kit_srv, "ACL SETUSER half reset on >pass ~* +@all resetchannels "
                   "&redisson_lock__channel:{????} "
                   "&redisson_lock__channel:{?????} "
                   "&redisson_lock__channel:{??????}");
}

static void test_no_right_to_be_called(void **state)
{
    (void)state;
    allow_half();
    check_release_in_between(TS_HOLD_REQUEST, "half");
}

/* The same, and it is refused twice, as one waiter left and the next came
 * before the first answer. That is still no refusal of the lock's channel. */
static void test_no_right_twice(void **state)
{
    (void)state;
    allow_half();
    for (unsigned i = 0; i < 4; i++) {
        struct scene sc = open_both("half");
        int begins = ts_proxy_rule(
            kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                      .match = "SUBSCRIBE",
                                      .contains = "redisson_lock__channel",
                                      .count = 1});
        lock_up(&sc);
        line_up(&sc);
        assert_true(ts_rule_wait(kit_px, begins, 1, TS_SOON));
        cancel_wait(&sc);
        unsigned asks = ts_rule_done(kit_px, sc.asks);
        line_up(&sc);
        assert_true(ts_rule_wait_done(kit_px, sc.asks, asks + 1, TS_SOON));
        /* io has dealt with the answer, and with what follows from it. */
        for (int k = 0; k < 2; k++) {
            struct kit_end end = {.err = DIBS_OK};
            dibs_owner owner = dibs_owner_new(sc.wants->c);
            kit_want("trying",
                     dibs_lock_try_async(sc.wanted,
                                         DIBS_LOCK_OPTS(.owner = owner),
                                         kit_ended, &end),
                     DIBS_OK);
            kit_want("tried", kit_wait(&end), DIBS_ERR_BUSY);
        }
        ts_proxy_release(kit_px);
        assert_true(ts_wait_numsub(kit_srv, sc.channel, 1));
        kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
        gets_it(&sc);
        assert_int_equal(warnings(sc.wants), 0);
        close_both(&sc);
    }
}

/* ---- forged ------------------------------------------------------------ */

/* Anybody may publish anything. The waiter looks and waits on. */
static void test_junk_messages(void **state)
{
    struct scene sc = open_both(NULL);
    size_t big = 1 << 20;
    char *junk = ts_alloc(big + 1);

    (void)state;
    memset(junk, 'x', big);
    lock_up(&sc);
    line_up(&sc);
    asleep(&sc);
    const struct {
        const char *p;
        size_t len;
    } rows[] = {{"", 0},         {"1", 1},        {"0", 1},
                {"\0\r\n*3", 6}, {"nonsense", 8}, {junk, big}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        unsigned asks = ts_rule_done(kit_px, sc.asks);
        const char *argv[] = {"PUBLISH", sc.channel, rows[i].p};
        const size_t lens[] = {7, strlen(sc.channel), rows[i].len};
        redisReply *r = ts_cmdv(kit_srv, 3, argv, lens);
        assert_non_null(r);
        assert_int_equal(r->integer, 1);
        freeReplyObject(r);
        assert_true(ts_rule_wait_done(kit_px, sc.asks, asks + 1, TS_SOON));
        assert_false(atomic_load(&sc.end.over));
    }
    kit_want("giving back", dibs_lock_release(sc.held, NULL), DIBS_OK);
    gets_it(&sc);
    free(junk);
    close_both(&sc);
}

/* ---- many -------------------------------------------------------------- */

struct many {
    dibs_lock *held[MANY], *wanted[MANY];
    dibs_owner owners[MANY];
    struct kit_end ends[MANY];
};

static void many_wait(struct scene *sc, struct many *m)
{
    for (size_t i = 0; i < MANY; i++) {
        char *name = ts_text("many-%zu", i);
        m->held[i] = kit_lock(sc->has, name);
        m->wanted[i] = kit_lock(sc->wants, name);
        m->owners[i] = dibs_owner_new(sc->wants->c);
        kit_want("taking", dibs_lock_acquire(m->held[i], NULL), DIBS_OK);
        kit_want("lining up",
                 dibs_lock_acquire_async(m->wanted[i],
                                         DIBS_LOCK_OPTS(.owner = m->owners[i]),
                                         kit_ended, &m->ends[i]),
                 DIBS_OK);
        free(name);
    }
}

/* Each waits for another lock; all share a connection, also a second one. */
static void test_many_channels(void **state)
{
    struct scene sc = open_both(NULL);
    struct many *m = ts_alloc(sizeof *m);

    (void)state;
    many_wait(&sc, m);
    /* The lock's, and the one on which the client is called. */
    TS_WAIT(ts_nchannels(kit_srv) == 2 * MANY);
    assert_in_range(ts_int(kit_srv, "CLIENT KILL TYPE pubsub"), 1, 2);
    TS_WAIT(ts_nchannels(kit_srv) == 2 * MANY);
    for (size_t i = 0; i < MANY; i++)
        kit_want("giving back", dibs_lock_release(m->held[i], NULL), DIBS_OK);
    for (size_t i = 0; i < MANY; i++) {
        kit_want("waiting", kit_wait(&m->ends[i]), DIBS_OK);
        kit_want("giving back",
                 dibs_lock_release(m->wanted[i],
                                   DIBS_LOCK_OPTS(.owner = m->owners[i])),
                 DIBS_OK);
    }
    TS_WAIT(ts_nchannels(kit_srv) == 0);
    TS_WAIT(ts_nkeys(kit_srv) == 0);
    for (size_t i = 0; i < MANY; i++) {
        dibs_lock_free(m->held[i]);
        dibs_lock_free(m->wanted[i]);
    }
    free(m);
    close_both(&sc);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_message_wakes, kit_fresh),
        cmocka_unit_test_setup(test_message_dropped, kit_fresh),
        cmocka_unit_test_setup(test_connection_down_at_release, kit_fresh),
        cmocka_unit_test_setup(test_new_subscription_wakes, kit_fresh),
        cmocka_unit_test_setup(test_release_before_subscription, kit_fresh),
        cmocka_unit_test_setup(test_release_before_confirmation, kit_fresh),
        cmocka_unit_test_setup(test_left_before_confirmation, kit_fresh),
        cmocka_unit_test_setup(test_listener_comes_late, kit_fresh),
        cmocka_unit_test_setup(test_no_channel_right, kit_fresh),
        cmocka_unit_test_setup(test_no_right_to_be_called, kit_fresh),
        cmocka_unit_test_setup(test_no_right_twice, kit_fresh),
        cmocka_unit_test_setup(test_junk_messages, kit_fresh),
        cmocka_unit_test_setup(test_many_channels, kit_fresh),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return TS_RUN_PARALLEL("fault.pubsub", tests, kit_up, kit_down);
}
