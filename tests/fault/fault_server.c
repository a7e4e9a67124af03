/* SPDX-License-Identifier: MIT
 *
 * fault_server.c - the server dies, forgets, stalls, or ends connections.
 *
 * What a client must do about it: end what cannot be done, with the right
 * error and in bounded time; go on with what can wait; tell a holder that its
 * lock is gone, by its own clock if need be; and never say "held" after that.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/witness.h"

#define HASTY_MS kit_ms(200)
#define LEASE_MS kit_ms(2400)

static void wait_async(dibs_lock *l, struct kit_end *end)
{
    kit_want("lining up",
             dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.lease_ms = KIT_LONG),
                                     kit_ended, end),
             DIBS_OK);
}

/* ---- gone and back ----------------------------------------------------- */

/* The server comes back and knows nothing. The holder learns that it lost; who
 * waits gets the lock, and the one that comes later too. */
static void test_restarted_empty(void **state)
{
    struct kit_opts o = {.direct = true, .lease_ms = LEASE_MS};
    struct kit_client *holder = kit_open(&o), *other = kit_open(&o);
    dibs_lock *held = kit_lock(holder, "r"), *wanted = kit_lock(other, "r");
    struct kit_end end = {.err = DIBS_OK};
    atomic_int lost = 0;

    (void)state;
    kit_want("taking",
             dibs_lock_acquire(
                 held, DIBS_LOCK_OPTS(.on_lost = kit_lost, .arg = &lost)),
             DIBS_OK);
    wait_async(wanted, &end);
    ts_server_kill(kit_srv);
    ts_server_restart(kit_srv);
    kit_want("waiting on", kit_wait(&end), DIBS_OK);
    TS_WAIT(dibs_lock_state(held, 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&lost) == 1);
    kit_want("giving back", dibs_lock_release(held, NULL), DIBS_ERR_LOST);
    kit_check("the waiter's", wanted, 0, "r", 1);
    kit_want("trying", dibs_lock_try(held, NULL), DIBS_ERR_BUSY);
    kit_want("giving back", dibs_lock_release(wanted, NULL), DIBS_OK);
    kit_free_for_all("afterwards", "r");
    assert_int_equal(atomic_load(&lost), 1);
    dibs_lock_free(held);
    dibs_lock_free(wanted);
    kit_close(holder);
    kit_close(other);
}

/* The server comes back and has forgotten nothing. */
static void test_restarted_with_its_data(void **state)
{
    static const char *const extra[] = {"--appendonly", "yes", "--appendfsync",
                                        "always", NULL};
    struct ts_server *usual = kit_srv;

    (void)state;
    kit_srv = ts_server_start(extra);
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = kit_lock(k, "aof");
    kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    ts_server_kill(kit_srv);
    ts_server_restart(kit_srv);
    kit_check("after the restart", l, 0, "aof", 2);
    kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    kit_check("once more", l, 0, "aof", 3);
    for (int left = 2; left >= 0; left--) {
        kit_want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
        kit_check("one less", l, 0, "aof", left);
    }
    dibs_lock_free(l);
    kit_close(k);
    ts_server_stop(kit_srv);
    kit_srv = usual;
}

/* Nobody is there. What has a limit ends with CONN, what has none goes on when
 * there is somebody again. */
static void test_away(void **state)
{
    struct kit_client *k =
        kit_open(&(struct kit_opts){.direct = true, .timeout_ms = HASTY_MS});
    dibs_lock *l = kit_lock(k, "away"), *mine = kit_lock(k, "mine");
    dibs_owner owner = dibs_owner_new(k->c);
    struct kit_end end = {.err = DIBS_OK};
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_err err;

    (void)state;
    kit_want("taking", dibs_lock_acquire(mine, NULL), DIBS_OK);
    ts_server_kill(kit_srv);
    kit_want("trying", dibs_lock_try(l, NULL), DIBS_ERR_CONN);
    kit_want("taking, with a limit",
             dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = HASTY_MS)),
             DIBS_ERR_CONN);
    kit_want("looking", dibs_lock_info_get(l, &info), DIBS_ERR_CONN);
    kit_want("forcing", dibs_lock_force_release(l, NULL), DIBS_ERR_CONN);
    kit_want("giving back", dibs_lock_release(mine, NULL), DIBS_ERR_UNKNOWN);
    kit_want("lining up",
             dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = owner),
                                     kit_ended, &end),
             DIBS_OK);
    assert_null(kit_open_err(&(struct kit_opts){.direct = true}, &err));
    kit_want("opening", err, DIBS_ERR_CONN);
    ts_server_restart(kit_srv);
    kit_want("waiting on", kit_wait(&end), DIBS_OK);
    kit_check("the waiter's", l, owner, "away", 1);
    kit_want("giving back",
             dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = owner)), DIBS_OK);
    kit_free_for_all("afterwards", "away");
    dibs_lock_free(l);
    dibs_lock_free(mine);
    kit_close(k);
}

/* A lock with a lease of its own, longer than that of the client's other locks,
 * is given back while the server cannot be reached for longer than those last.
 * It is freed anyway once the server is there again. */
static void test_release_outlives_short_leases(void **state)
{
    struct kit_client *k = kit_open(
        &(struct kit_opts){.timeout_ms = HASTY_MS, .lease_ms = LEASE_MS});
    dibs_lock *l = kit_lock(k, "long"), *clock = kit_lock(k, "clock");
    dibs_owner other = dibs_owner_new(k->c);

    (void)state;
    kit_want("taking",
             dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = KIT_LONG)),
             DIBS_OK);
    ts_proxy_refuse(kit_px, true);
    ts_proxy_kill_all(kit_px, false);
    kit_want("giving back", dibs_lock_release(l, NULL), DIBS_ERR_UNKNOWN);
    ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                            .match = "EVAL*",
                                            .contains = "long"});
    ts_proxy_refuse(kit_px, false);
    /* One and a half of those other leases pass, from here to their end. */
    kit_want(
        "taking",
        dibs_lock_acquire(clock, DIBS_LOCK_OPTS(.owner = other,
                                                .lease_ms = LEASE_MS * 3 / 2)),
        DIBS_OK);
    TS_WAIT(dibs_lock_state(clock, other) == DIBS_LOST);
    assert_true(ts_exists(kit_srv, "long"));
    ts_proxy_unrule(kit_px, 0);
    kit_free_for_all("afterwards", "long");
    dibs_lock_free(l);
    dibs_lock_free(clock);
    kit_drop(k);
}

/* ---- stalled ----------------------------------------------------------- */

/* The server stops for longer than a lease: nothing comes, nothing fails. The
 * holder must know by its own clock, and never say "held" after that. */
static void test_stopped_for_longer_than_a_lease(void **state)
{
    struct kit_client *k =
        kit_open(&(struct kit_opts){.direct = true, .lease_ms = LEASE_MS});
    dibs_lock *l = kit_lock(k, "s");
    atomic_int lost = 0;
    dibs_state st;

    (void)state;
    kit_want(
        "taking",
        dibs_lock_acquire(l, DIBS_LOCK_OPTS(.on_lost = kit_lost, .arg = &lost)),
        DIBS_OK);
    ts_server_pause(kit_srv);
    int64_t latest = ts_now_ms() + LEASE_MS;
    struct ts_wait w = ts_wait_begin(TS_SOON);
    for (;;) {
        int64_t now = ts_now_ms(), valid = dibs_lock_valid_ms(l, 0);
        st = dibs_lock_state(l, 0);
        if (st == DIBS_LOST)
            break;
        if (now + valid > latest)
            fail_msg("thinks it holds the lock for too long");
        if (!ts_wait_step(&w))
            fail_msg("never lost");
    }
    assert_int_equal(dibs_lock_valid_ms(l, 0), 0);
    TS_WAIT(atomic_load(&lost) == 1);
    assert_int_equal(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    ts_server_resume(kit_srv);
    kit_free_for_all("afterwards", "s");
    assert_int_equal(atomic_load(&lost), 1);
    assert_int_equal(kit_told(k, DIBS_EVENT_LOST), 1);
    dibs_lock_free(l);
    kit_close(k);
}

/* A pause that is shorter than a command's time is nothing but a pause. */
static void test_paused_for_a_moment(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = kit_lock(k, "p");
    static const char *const modes[] = {"WRITE", "ALL"};

    (void)state;
    for (size_t i = 0; i < COUNT(modes); i++) {
        ts_ok(kit_srv, "CLIENT PAUSE 100 %s", modes[i]);
        kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
        ts_ok(kit_srv, "CLIENT PAUSE 100 %s", modes[i]);
        kit_want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
        kit_check("twice", l, 0, "p", 2);
        ts_ok(kit_srv, "CLIENT PAUSE 100 %s", modes[i]);
        kit_want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
        kit_want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
        kit_check("none", l, 0, "p", 0);
    }
    assert_int_equal(kit_told(k, DIBS_EVENT_UNKNOWN), 0);
    dibs_lock_free(l);
    kit_close(k);
}

struct sync_waiter {
    pthread_t thread;
    dibs_lock *l;
    dibs_err err;
};

static void *wait_sync(void *arg)
{
    struct sync_waiter *w = arg;

    w->err = dibs_lock_acquire(w->l, NULL);
    if (w->err == DIBS_OK)
        w->err = dibs_lock_release(w->l, NULL);
    return NULL;
}

/* A thread waits for a lock, and the answer to its second attempt does not
 * come. That must not keep other locks of the same client from being
 * renewed. */
static void test_silence_delays_no_renewal(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lease_ms = LEASE_MS});
    struct kit_client *rival = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *mine = kit_lock(k, "mine"), *theirs = kit_lock(rival, "theirs");
    struct sync_waiter w = {.l = kit_lock(k, "theirs")};
    atomic_int lost = 0;

    (void)state;
    kit_want("a rival", dibs_lock_acquire(theirs, NULL), DIBS_OK);
    kit_want("taking",
             dibs_lock_acquire(
                 mine, DIBS_LOCK_OPTS(.on_lost = kit_lost, .arg = &lost)),
             DIBS_OK);
    kit_warm(k, mine, "mine");
    int held = kit_rule(
        &dibs__script_mutex_acquire, "theirs",
        &(struct ts_rule){.action = TS_HOLD_REPLY, .skip = 1, .count = 1});
    pthread_create(&w.thread, NULL, wait_sync, &w);
    assert_true(ts_rule_wait(kit_px, held, 1, TS_SOON));
    int renewals = kit_rule(&dibs__script_mutex_renew, "mine",
                            &(struct ts_rule){.action = TS_PASS});
    bool renewed = ts_rule_wait_done(kit_px, renewals, 3, LEASE_MS * 4);
    dibs_state st = dibs_lock_state(mine, 0);
    ts_proxy_release(kit_px);
    kit_want("the rival", dibs_lock_release(theirs, NULL), DIBS_OK);
    pthread_join(w.thread, NULL);
    kit_want("the waiter", w.err, DIBS_OK);
    if (!renewed || st == DIBS_LOST || atomic_load(&lost))
        fail_msg("a waiter's silence cost another lock its renewal");
    kit_want("giving back", dibs_lock_release(mine, NULL), DIBS_OK);
    dibs_lock_free(mine);
    dibs_lock_free(theirs);
    dibs_lock_free(w.l);
    kit_close(k);
    kit_close(rival);
}

/* ---- storms ------------------------------------------------------------ */

#define WORKERS 6
#define STROKES 60

struct storm {
    struct ts_witness *w;
    dibs_lock *l[2];    /* of two clients */
    atomic_uint steps;  /* of all workers */
    atomic_uint failed; /* workers that gave up */
    atomic_bool enough;
};

struct worker {
    pthread_t thread;
    struct storm *st;
    size_t number;
    dibs_err err;
};

static void *work(void *arg)
{
    struct worker *me = arg;
    struct storm *st = me->st;
    dibs_lock *l = st->l[me->number % 2];

    while (!atomic_load(&st->enough) && me->err == DIBS_OK) {
        me->err = dibs_lock_acquire(l, NULL);
        if (me->err != DIBS_OK)
            break;
        ts_witness_enter(st->w, 0, me->number);
        ts_witness_leave(st->w, 0, me->number);
        me->err = dibs_lock_release(l, NULL);
        atomic_fetch_add(&st->steps, 1);
    }
    if (me->err != DIBS_OK)
        atomic_fetch_add(&st->failed, 1);
    return NULL;
}

/* The command comes again and again, each time when the workers have got a
 * little further. */
static void strike(struct storm *st, const char *command)
{
    unsigned seen = 0;

    for (int i = 0; i < STROKES && atomic_load(&st->failed) == 0; i++) {
        struct ts_wait w = ts_wait_begin(TS_SOON);
        while (atomic_load(&st->steps) < seen + 2 &&
               atomic_load(&st->failed) == 0)
            if (!ts_wait_step(&w))
                ts_fatal("%s: no progress", command);
        seen = atomic_load(&st->steps);
        ts_ok(kit_srv, command);
    }
    atomic_store(&st->enough, true);
}

/* Work goes on meanwhile, and nobody sees an error. */
static void check_storm(const char *command)
{
    struct kit_client *k[2];
    struct storm st = {.w = ts_witness_new(1, WORKERS)};
    struct worker workers[WORKERS];

    for (size_t i = 0; i < 2; i++) {
        k[i] = kit_open(&(struct kit_opts){.direct = true});
        st.l[i] = kit_lock(k[i], "storm");
    }
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.st = &st, .number = i};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    strike(&st, command);
    for (size_t i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < WORKERS; i++)
        kit_want(command, workers[i].err, DIBS_OK);
    if (ts_witness_violations(st.w) > 0)
        fail_msg("%s: %s", command, ts_witness_first(st.w));
    kit_gone(command, "storm");
    ts_witness_free(st.w);
    for (size_t i = 0; i < 2; i++) {
        dibs_lock_free(st.l[i]);
        kit_close(k[i]);
    }
}

static void test_script_flush_storm(void **state)
{
    (void)state;
    check_storm("SCRIPT FLUSH");
}

static void test_kill_normal_storm(void **state)
{
    (void)state;
    check_storm("CLIENT KILL TYPE normal SKIPME yes");
}

static void test_kill_pubsub_storm(void **state)
{
    (void)state;
    check_storm("CLIENT KILL TYPE pubsub");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_restarted_empty, kit_fresh),
        cmocka_unit_test_setup(test_restarted_with_its_data, kit_fresh),
        cmocka_unit_test_setup(test_away, kit_fresh),
        cmocka_unit_test_setup(test_release_outlives_short_leases, kit_fresh),
        cmocka_unit_test_setup(test_stopped_for_longer_than_a_lease, kit_fresh),
        cmocka_unit_test_setup(test_paused_for_a_moment, kit_fresh),
        cmocka_unit_test_setup(test_silence_delays_no_renewal, kit_fresh),
        cmocka_unit_test_setup(test_script_flush_storm, kit_fresh),
        cmocka_unit_test_setup(test_kill_normal_storm, kit_fresh),
        cmocka_unit_test_setup(test_kill_pubsub_storm, kit_fresh),
    };

    return TS_RUN_PARALLEL("fault.server", tests, kit_up, kit_down);
}
