/* SPDX-License-Identifier: MIT
 *
 * test_called_more.c - clients that are called: one that waits for two kinds of
 * one name, and several slots that are free at once. Each of these tests would
 * take minutes if waiters had to look by themselves. And one that is called
 * while its next call polls.
 */
#include "server/called_kit.h"

/* ---- two kinds of one name --------------------------------------------- */

/* A client waits for a plain and for a fenced lock of one name, which are one
 * lock: each has a place of its own, so both get in by message. */
static void test_called_more_two_kinds(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *held = kit_lock(c, "l");
    dibs_lock *want[2] = {kit_lock(d, "l"), called_lock(called_kind(state), d)};
    int64_t start = ts_now_ms();

    for (int i = 0; i < 20; i++) {
        struct told got[2] = {{0}, {0}};
        dibs_owner owner[2] = {dibs_owner_new(d), dibs_owner_new(d)};

        FINE(dibs_lock_acquire(held, NULL));
        for (int j = 0; j < 2; j++) {
            FINE(dibs_lock_acquire_async(
                want[j], DIBS_LOCK_OPTS(.owner = owner[j]), kit_tell, &got[j]));
            TS_WAIT(ts_waiting(srv, "l") == j + 1);
        }
        FINE(dibs_lock_release(held, NULL));
        for (int j = 0; j < 2; j++) { /* one after the other, in any order */
            TS_WAIT(dibs_lock_holds(want[0], owner[0]) ||
                    dibs_lock_holds(want[1], owner[1]));
            int first = dibs_lock_holds(want[1], owner[1]) ? 1 : 0;
            FINE(kit_answer(&got[first]));
            FINE(dibs_lock_release(want[first],
                                   DIBS_LOCK_OPTS(.owner = owner[first])));
        }
    }
    assert_true(ts_now_ms() - start < TS_SOON);
    dibs_lock_free(held);
    dibs_lock_free(want[0]);
    dibs_lock_free(want[1]);
    kit_close(c);
    kit_close(d);
}

/* ---- several slots ----------------------------------------------------- */

enum { SEVERAL = 3, ROUNDS = 40 };

/* Clients that wait, and keep what they get. */
static void come_to_stay(struct waiter *w)
{
    for (int i = 0; i < SEVERAL; i++) {
        w[i].owner = dibs_owner_new(w[i].c);
        atomic_store(&w[i].got.times, 0);
        FINE(dibs_lock_acquire_async(
            w[i].l, DIBS_LOCK_OPTS(.owner = w[i].owner), kit_tell, &w[i].got));
        TS_WAIT(ts_waiting(srv, "l") == i + 1);
    }
}

static void stay_and_go(struct waiter *w)
{
    for (int i = 0; i < SEVERAL; i++)
        FINE(kit_answer(&w[i].got));
    for (int i = 0; i < SEVERAL; i++)
        FINE(dibs_lock_release(w[i].l, DIBS_LOCK_OPTS(.owner = w[i].owner)));
}

static void open_several(struct waiter *w)
{
    memset(w, 0, SEVERAL * sizeof *w);
    for (int i = 0; i < SEVERAL; i++) {
        w[i].c = kit_open(NULL);
        FINE(dibs_slots_lock_new(w[i].c, "l", SEVERAL, &w[i].l));
    }
}

/* Another client frees three with one message: each that gets in calls the
 * next. */
static void test_called_more_several_are_free(void **state)
{
    struct waiter w[SEVERAL];
    int64_t start = ts_now_ms();

    (void)state;
    open_several(w);
    for (int i = 0; i < ROUNDS; i++) {
        ts_ok(srv, "SET l 0");
        come_to_stay(w);
        ts_ok(srv, "EVAL %s 0 %s",
              "redis.call('set', 'l', '3') "
              "return redis.call('publish', ARGV[1], '3')",
              PLACES);
        stay_and_go(w);
    }
    assert_true(ts_now_ms() - start < TS_SOON);
    for (int i = 0; i < SEVERAL; i++)
        go(&w[i]);
}

/* The same when it is said that there are more. */
static void test_called_more_slots(void **state)
{
    struct waiter w[SEVERAL];
    int64_t start = ts_now_ms();

    (void)state;
    open_several(w);
    for (int i = 0; i < ROUNDS; i++) {
        ts_ok(srv, "SET l 0");
        come_to_stay(w);
        FINE(dibs_slots_set(w[0].l, SEVERAL));
        stay_and_go(w);
    }
    assert_true(ts_now_ms() - start < TS_SOON);
    for (int i = 0; i < SEVERAL; i++)
        go(&w[i]);
}

/* ---- one that asks by itself ------------------------------------------- */

/* The line listens for others when a stranger says that it is free, and its
 * first call polls: that one asks at once, and then goes on with its pauses.
 * Those are 64 ms at least when it has asked eight times. */
static void test_called_more_poll(void **state)
{
    const struct kind *k = called_kind(state);
    static struct waiter w[1];
    static struct told got;

    assert_true(taken_by_stranger(k));
    come(k, w, 1);
    freed_by_stranger(k);
    FINE(kit_answer(&w[0].gave));
    assert_true(taken_by_stranger(k));
    memset(&got, 0, sizeof got);
    ts_reset_stats(srv);
    FINE(dibs_lock_acquire_async(
        w[0].l, DIBS_LOCK_OPTS(.owner = w[0].owner, .poll = true), kit_tell,
        &got));
    TS_WAIT(ts_command_calls(srv, "evalsha") > 8);
    ts_ok(srv, "PUBLISH %s 1", k->channel);
    ts_reset_stats(srv);
    int64_t start = ts_now_ms();
    TS_WAIT(ts_command_calls(srv, "evalsha") >= 10);
    int64_t took = ts_now_ms() - start;
    freed_by_stranger(k);
    FINE(kit_answer(&got));
    FINE(dibs_lock_release(w[0].l, DIBS_LOCK_OPTS(.owner = w[0].owner)));
    go(&w[0]);
    if (took < 400)
        fail_msg("it asked ten times in %lld ms", (long long)took);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CALLED_TEST(test_called_more_two_kinds, FENCED),
        CALLED_TEST(test_called_more_several_are_free, SLOTS),
        CALLED_TEST(test_called_more_slots, SLOTS),
        CALLED_TEST(test_called_more_poll, PLAIN),
        CALLED_TEST(test_called_more_poll, FENCED),
        CALLED_TEST(test_called_more_poll, SLOTS),
    };
    return KIT_RUN("server.called_more", tests);
}
