/* SPDX-License-Identifier: MIT
 *
 * fault_limits.c - a waiter keeps its own limit, and can be canceled, whatever
 * the release does that hands the lock over to it.
 */
#include "fault/limits_kit.h"

#include <unistd.h>

/* ---- the one that is handed the lock ----------------------------------- */

static const enum ts_action holding[] = {TS_HOLD_REQUEST, TS_HOLD_REPLY};

static void one_limit(bool async, enum ts_action action, enum kit_user user)
{
    struct scene sc = begin(&(struct kit_opts){.user = user});
    struct act waits, gives;

    start_handover(&sc, async, limit_ms(), action, &waits, &gives);
    kit_want("the waiter", act_end(&waits), DIBS_ERR_TIMEOUT);
    assert_false(atomic_load(&gives.end.over));
    assert_int_equal(dibs_lock_state(sc.l, sc.b), DIBS_NOT_HELD);
    let_go(&sc);
    kit_want("the release", act_end(&gives), DIBS_OK);
    finish(&sc);
}

static void test_limits_of_heir(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(holding); i++)
        for (int async = 0; async < 2; async++)
            for (int meek = 0; meek < 2; meek++)
                one_limit(async, holding[i], meek ? KIT_MEEK : KIT_FULL);
}

static void test_limits_of_heir_canceled(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(holding); i++) {
        struct scene sc = begin(&(struct kit_opts){0});
        struct act waits, gives;

        start_handover(&sc, i, 0, holding[i], &waits, &gives);
        kit_want("cancel", dibs_lock_cancel(sc.l, sc.b), DIBS_OK);
        kit_want("the waiter", act_end(&waits), DIBS_ERR_CANCELED);
        assert_false(atomic_load(&gives.end.over));
        let_go(&sc);
        kit_want("the release", act_end(&gives), DIBS_OK);
        finish(&sc);
    }
}

/* The client is closed: the waiter hears so while the hand-over is still out,
 * and nothing is left in the end. */
static void test_limits_of_heir_closed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(holding); i++) {
        struct scene sc = begin(&(struct kit_opts){0});
        struct act waits, gives;
        pthread_t closer;
        void *err;

        start_handover(&sc, i, 0, holding[i], &waits, &gives);
        assert_int_equal(pthread_create(&closer, NULL, close_main, sc.k), 0);
        kit_want("the waiter", act_end(&waits), DIBS_ERR_CLOSED);
        assert_false(atomic_load(&gives.end.over));
        let_go(&sc);
        pthread_join(closer, &err);
        kit_want("closing", (dibs_err)(intptr_t)err, DIBS_OK);
        kit_want("the release", act_end(&gives), DIBS_OK);
        assert_false(ts_exists(kit_srv, sc.name));
        finish(&sc);
    }
}

/* What arrives for the one that left goes to the next. */
static void test_limits_of_heir_then_next(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(holding); i++) {
        struct scene sc = begin(&(struct kit_opts){.user = i & 1});
        struct act waits, next, gives;

        take(&sc, sc.a);
        hold_next(&sc, &dibs__script_mutex_handover, holding[i / 2]);
        act_async(&waits, sc.l, dibs_lock_acquire_async,
                  DIBS_LOCK_OPTS(.owner = sc.b, .wait_ms = limit_ms()));
        act_async(&next, sc.l, dibs_lock_acquire_async,
                  DIBS_LOCK_OPTS(.owner = sc.c));
        act_on_thread(&gives, sc.l, dibs_lock_release,
                      DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = KIT_LONG));
        is_held(&sc);
        kit_want("the waiter", act_end(&waits), DIBS_ERR_TIMEOUT);
        let_go(&sc);
        kit_want("the release", act_end(&gives), DIBS_OK);
        kit_want("the next", act_end(&next), DIBS_OK);
        kit_check("the next", sc.l, sc.c, sc.name, 1);
        give(&sc, sc.c);
        finish(&sc);
    }
}

/* The owner of the one that left waits once more, behind somebody else: that
 * one has its turn first, and does not wait for what the other was given. */
static void test_limits_of_heir_waiting_twice(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(holding); i++) {
        struct scene sc = begin(&(struct kit_opts){.user = i & 1});
        struct act waits, next, last, gives;

        take(&sc, sc.a);
        hold_next(&sc, &dibs__script_mutex_handover, holding[i / 2]);
        act_async(&waits, sc.l, dibs_lock_acquire_async,
                  DIBS_LOCK_OPTS(.owner = sc.b, .wait_ms = limit_ms()));
        act_async(&next, sc.l, dibs_lock_acquire_async,
                  DIBS_LOCK_OPTS(.owner = sc.c));
        act_async(&last, sc.l, dibs_lock_acquire_async,
                  DIBS_LOCK_OPTS(.owner = sc.b));
        act_on_thread(&gives, sc.l, dibs_lock_release,
                      DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = KIT_LONG));
        is_held(&sc);
        kit_want("the waiter", act_end(&waits), DIBS_ERR_TIMEOUT);
        let_go(&sc);
        kit_want("the release", act_end(&gives), DIBS_OK);
        kit_want("the next", act_end(&next), DIBS_OK);
        give(&sc, sc.c);
        kit_want("the last", act_end(&last), DIBS_OK);
        kit_check("the last", sc.l, sc.b, sc.name, 1);
        give(&sc, sc.b);
        finish(&sc);
    }
}

/* The owner that left asks again, before or after what was on its way for it
 * arrives, and has it once. */
static void test_limits_of_heir_that_returns(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(holding); i++) {
        struct scene sc = begin(&(struct kit_opts){.user = i & 1});
        struct act waits, again, gives;

        start_handover(&sc, true, limit_ms(), holding[i / 2], &waits, &gives);
        kit_want("the waiter", act_end(&waits), DIBS_ERR_TIMEOUT);
        act_async(&again, sc.l, dibs_lock_acquire_async,
                  DIBS_LOCK_OPTS(.owner = sc.b));
        let_go(&sc);
        kit_want("the release", act_end(&gives), DIBS_OK);
        kit_want("once more", act_end(&again), DIBS_OK);
        kit_check("once more", sc.l, sc.b, sc.name, 1);
        give(&sc, sc.b);
        finish(&sc);
    }
}

/* The waiter has left, and the reply of the hand-over is lost. What the release
 * says is true: it is not its owner's any more. */
static void test_limits_of_heir_reply_lost(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct scene sc = begin(&(struct kit_opts){.user = i & 1});
        struct act waits, gives;

        start_handover(&sc, i & 2, limit_ms(), TS_HOLD_REPLY, &waits, &gives);
        TS_WAIT(ts_rule_executed(kit_px, sc.rule) > 0);
        kit_want("the waiter", act_end(&waits), DIBS_ERR_TIMEOUT);
        ts_proxy_unrule(kit_px, sc.rule);
        ts_proxy_kill_all(kit_px, false);
        kit_want("the release", act_end(&gives), DIBS_OK);
        finish(&sc);
    }
}

/* The release itself gives up, after the waiter did: unknown to it, and no lock
 * is left behind, by whichever of the two numbers. */
static void test_limits_of_both(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct scene sc = begin(&(struct kit_opts){.user = i & 1});
        struct act waits, gives;

        take(&sc, sc.a);
        hold_next(&sc, &dibs__script_mutex_handover, holding[i / 2]);
        act_async(&waits, sc.l, dibs_lock_acquire_async,
                  DIBS_LOCK_OPTS(.owner = sc.b, .wait_ms = limit_ms()));
        act_on_thread(&gives, sc.l, dibs_lock_release,
                      DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = 2 * limit_ms()));
        is_held(&sc);
        kit_want("the waiter", act_end(&waits), DIBS_ERR_TIMEOUT);
        kit_want("the release", act_end(&gives), DIBS_ERR_UNKNOWN);
        let_go(&sc);
        finish(&sc);
    }
}

/* The owner waits for the same lock as a fair one, too, by the number that is
 * retired now. What it gets there is its own, and stays. */
static void test_limits_of_heir_in_queue(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act waits, gives, queued;
    dibs_lock *fair = NULL;

    (void)state;
    kit_want("a fair one", dibs_fair_lock_new(sc.k->c, sc.name, &fair),
             DIBS_OK);
    start_handover(&sc, true, limit_ms(), TS_HOLD_REQUEST, &waits, &gives);
    act_acquire(&queued, true, fair, DIBS_LOCK_OPTS(.owner = sc.b));
    kit_want("the waiter", act_end(&waits), DIBS_ERR_TIMEOUT);
    let_go(&sc);
    kit_want("the release", act_end(&gives), DIBS_OK);
    kit_want("the fair one", act_end(&queued), DIBS_OK);
    usleep(2500 * 1000); /* the reaper has looked by then, more than once */
    kit_check("the fair one", fair, sc.b, sc.name, 1);
    kit_want("giving it back",
             dibs_lock_release(fair, DIBS_LOCK_OPTS(.owner = sc.b)), DIBS_OK);
    dibs_lock_free(fair);
    finish(&sc);
}

/* ---- a server that says "not now" -------------------------------------- */

#define ANSWER_MS kit_ms(2500)

/* Somebody waits for another lock, on the same loop, until the first has had
 * time for one question and a good part of a second. */
static void await_other(struct scene *sc, dibs_lock *other, struct act *until)
{
    act_async(until, other, dibs_lock_acquire_async,
              DIBS_LOCK_OPTS(.owner = sc->b, .wait_ms = ANSWER_MS * 7 / 4));
}

/* Its time passes while the server says BUSY. When that question is over it
 * does not ask once more. */
static void late_question(struct scene *sc, dibs_lock *l, struct act *waits,
                          struct act *until)
{
    dibs_err err = act_end(waits);

    if (err != DIBS_ERR_TIMEOUT && err != DIBS_ERR_SERVER)
        fail_msg("the waiter: %s", dibs_strerror(err));
    if (atomic_load(&until->end.over))
        fail_msg("it asked once more when its time was over");
    assert_int_equal(dibs_lock_state(l, sc->c), DIBS_NOT_HELD);
    err = act_end(until); /* if it asked meanwhile, it heard BUSY, too */
    if (err != DIBS_ERR_TIMEOUT && err != DIBS_ERR_SERVER)
        fail_msg("the other: %s", dibs_strerror(err));
}

/* Calls whoever waits for this lock; how many heard it. */
static long long call_waiters(const char *name)
{
    redisReply *r = ts_cmd(kit_srv, "PUBSUB CHANNELS *%s*", name);
    long long heard = 0;

    for (size_t i = 0; i < r->elements; i++)
        heard += ts_int(kit_srv, "PUBLISH %s 0", r->element[i]->str);
    freeReplyObject(r);
    return heard;
}

/* A waiter asks because it is called. The server says BUSY until the waiter's
 * time is over, and it is called once more meanwhile. When that question is
 * over it does not ask again. */
static void check_busy(const char *name, const struct dibs__script *script,
                       dibs_err (*make)(dibs_client *c, const char *name,
                                        dibs_lock **out))
{
    struct scene sc = begin(&(struct kit_opts){.timeout_ms = ANSWER_MS});
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = NULL, *theirs = NULL;
    struct act waits, until;

    take(&sc, sc.a);
    kit_want("a lock", make(sc.k->c, name, &l), DIBS_OK);
    kit_want("a lock", make(k->c, name, &theirs), DIBS_OK);
    kit_want("taking it", dibs_lock_acquire(theirs, NULL), DIBS_OK);
    act_async(&waits, l, dibs_lock_acquire_async,
              DIBS_LOCK_OPTS(.owner = sc.c, .wait_ms = ANSWER_MS));
    TS_WAIT(call_waiters(name) > 0);
    int rule = ts_proxy_rule(
        kit_px,
        &(struct ts_rule){.action = TS_ANSWER,
                          .match = "EVALSHA",
                          .contains = script->sha,
                          .text = "-BUSY Redis is busy running a script\r\n"});
    TS_WAIT(call_waiters(name) > 0 && ts_rule_hits(kit_px, rule) > 0);
    await_other(&sc, sc.l, &until);
    assert_true(call_waiters(name) > 0);
    late_question(&sc, l, &waits, &until);
    ts_proxy_unrule(kit_px, rule);
    kit_want("giving it back", dibs_lock_release(theirs, NULL), DIBS_OK);
    give(&sc, sc.a);
    kit_free_for_all(name, name);
    dibs_lock_free(theirs);
    dibs_lock_free(l);
    kit_close(k);
    finish(&sc);
}

static void test_limits_of_busy_server(void **state)
{
    (void)state;
    check_busy("called", &dibs__script_mutex_acquire, dibs_lock_new);
}

static void test_limits_of_busy_server_in_queue(void **state)
{
    (void)state;
    check_busy("queue", &dibs__script_fair_acquire, dibs_fair_lock_new);
}

#define T(f) cmocka_unit_test_setup(f, kit_fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_limits_of_heir),
        T(test_limits_of_heir_canceled),
        T(test_limits_of_heir_closed),
        T(test_limits_of_heir_then_next),
        T(test_limits_of_heir_waiting_twice),
        T(test_limits_of_heir_that_returns),
        T(test_limits_of_heir_reply_lost),
        T(test_limits_of_both),
        T(test_limits_of_heir_in_queue),
        T(test_limits_of_busy_server),
        T(test_limits_of_busy_server_in_queue),
    };
    return TS_RUN_PARALLEL("fault.limits", tests, kit_up, kit_down);
}
