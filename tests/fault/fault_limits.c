/* SPDX-License-Identifier: MIT
 *
 * fault_limits.c - a call keeps its own limit, and can be canceled, whatever
 * another call that it waits for does: the release that hands the lock over to
 * it, or a slow call of the same owner.
 *
 * The other call is held at the proxy. So what ends before the proxy lets go
 * has not waited for it; no clock is needed to tell.
 */
#include "fault/kit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define BRIEF_MS kit_ms(60)  /* a limit that is to pass */
#define HASTY_MS kit_ms(150) /* a command timeout that is to pass */

/* ---- a call on a thread of its own, or an async one -------------------- */

struct act {
    dibs_lock *l;
    dibs_lock_opts o;
    kit_sync_fn *sync;
    struct kit_end end;
    pthread_t thread;
    bool threaded;
};

static void *act_main(void *arg)
{
    struct act *a = arg;

    kit_ended(a->sync(a->l, &a->o), &a->end);
    return NULL;
}

static void act_on_thread(struct act *a, dibs_lock *l, kit_sync_fn *fn,
                          const dibs_lock_opts *o)
{
    memset(a, 0, sizeof *a);
    a->l = l;
    a->o = *o;
    a->sync = fn;
    a->threaded = true;
    if (pthread_create(&a->thread, NULL, act_main, a) != 0)
        ts_fatal("no thread");
}

static void act_async(struct act *a, dibs_lock *l, kit_async_fn *fn,
                      const dibs_lock_opts *o)
{
    memset(a, 0, sizeof *a);
    kit_want("starting", fn(l, o, kit_ended, &a->end), DIBS_OK);
}

static void act_acquire(struct act *a, bool async, dibs_lock *l,
                        const dibs_lock_opts *o)
{
    if (async)
        act_async(a, l, dibs_lock_acquire_async, o);
    else
        act_on_thread(a, l, dibs_lock_acquire, o);
}

static dibs_err act_end(struct act *a)
{
    dibs_err err = kit_wait(&a->end);

    if (a->threaded)
        pthread_join(a->thread, NULL);
    return err;
}

/* ---- a scene ----------------------------------------------------------- */

struct scene {
    char *name;
    struct kit_client *k;
    dibs_lock *l;
    dibs_owner a, b, c;
    int rule;
};

static struct scene begin(const struct kit_opts *o)
{
    struct scene sc = {.name = kit_name("limits")};

    ts_proxy_reset(kit_px);
    sc.k = kit_open(o);
    sc.l = kit_lock(sc.k, sc.name);
    sc.a = dibs_owner_new(sc.k->c);
    sc.b = dibs_owner_new(sc.k->c);
    sc.c = dibs_owner_new(sc.k->c);
    return sc;
}

static void finish(struct scene *sc)
{
    kit_free_for_all(sc->name, sc->name);
    dibs_lock_free(sc->l);
    kit_close(sc->k);
    free(sc->name);
}

/* The next such command, or its reply, stays at the proxy. */
static void hold_next(struct scene *sc, const struct dibs__script *script,
                      enum ts_action action)
{
    sc->rule = kit_rule(script, sc->name, &(struct ts_rule){.action = action});
}

static void is_held(struct scene *sc)
{
    if (!ts_rule_wait(kit_px, sc->rule, 1, TS_SOON))
        fail_msg("nothing was held");
}

static void let_go(struct scene *sc)
{
    ts_proxy_unrule(kit_px, sc->rule);
    ts_proxy_release(kit_px);
}

static void take(struct scene *sc, dibs_owner owner)
{
    kit_want("taking it",
             dibs_lock_acquire(sc->l, DIBS_LOCK_OPTS(.owner = owner)), DIBS_OK);
}

static void give(struct scene *sc, dibs_owner owner)
{
    kit_want("giving it back",
             dibs_lock_release(sc->l, DIBS_LOCK_OPTS(.owner = owner)), DIBS_OK);
}

/* False: the release came before the waiter, and freed the lock. */
static bool try_handover(struct scene *sc, bool async, int64_t wait_ms,
                         struct act *waits, struct act *gives)
{
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.owner = sc->a, .wait_ms = KIT_LONG);

    take(sc, sc->a);
    act_acquire(waits, async, sc->l,
                DIBS_LOCK_OPTS(.owner = sc->b, .wait_ms = wait_ms));
    if (async)
        act_async(gives, sc->l, dibs_lock_release_async, o);
    else
        act_on_thread(gives, sc->l, dibs_lock_release, o);
    TS_WAIT(ts_rule_hits(kit_px, sc->rule) > 0 ||
            atomic_load(&gives->end.over));
    return ts_rule_hits(kit_px, sc->rule) > 0;
}

/* b waits; a, which has it, hands it over, and that is held at the proxy. */
static void start_handover(struct scene *sc, bool async, int64_t wait_ms,
                           enum ts_action action, struct act *waits,
                           struct act *gives)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    hold_next(sc, &dibs__script_basic_handover, action);
    while (!try_handover(sc, async, wait_ms, waits, gives)) {
        kit_want("the release", act_end(gives), DIBS_OK);
        kit_want("the waiter", act_end(waits), DIBS_OK);
        give(sc, sc->b);
        if (!ts_wait_step(&w))
            fail_msg("nothing is handed over");
    }
}

/* ---- the one that is handed the lock ----------------------------------- */

static const enum ts_action holding[] = {TS_HOLD_REQUEST, TS_HOLD_REPLY};

/* A limit that is still to pass when the hand-over begins. */
static int64_t limit_ms(void)
{
    return kit_ms(400);
}

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

static void *close_main(void *arg)
{
    struct kit_client *k = arg;

    return (void *)(intptr_t)dibs_client_close(k->c, TS_SOON);
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
        hold_next(&sc, &dibs__script_basic_handover, holding[i / 2]);
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
        hold_next(&sc, &dibs__script_basic_handover, holding[i / 2]);
        act_async(&waits, sc.l, dibs_lock_acquire_async,
                  DIBS_LOCK_OPTS(.owner = sc.b, .wait_ms = BRIEF_MS));
        act_on_thread(&gives, sc.l, dibs_lock_release,
                      DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = limit_ms()));
        is_held(&sc);
        kit_want("the waiter", act_end(&waits), DIBS_ERR_TIMEOUT);
        kit_want("the release", act_end(&gives), DIBS_ERR_UNKNOWN);
        let_go(&sc);
        finish(&sc);
    }
}

/* ---- behind another call of the same owner ----------------------------- */

/* The lock is being handed to one acquire of the owner; another one of the same
 * owner has less time. */
static void test_limits_of_follower(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act waits, second, third, gives;

    (void)state;
    start_handover(&sc, true, 0, TS_HOLD_REQUEST, &waits, &gives);
    act_acquire(&second, false, sc.l,
                DIBS_LOCK_OPTS(.owner = sc.b, .wait_ms = BRIEF_MS));
    kit_want("the second", act_end(&second), DIBS_ERR_TIMEOUT);
    act_acquire(&third, true, sc.l, DIBS_LOCK_OPTS(.owner = sc.b));
    assert_false(atomic_load(&waits.end.over));
    kit_want("cancel", dibs_lock_cancel(sc.l, sc.b), DIBS_OK);
    kit_want("the third", act_end(&third), DIBS_ERR_CANCELED);
    kit_want("the first", act_end(&waits), DIBS_ERR_CANCELED);
    assert_false(atomic_load(&gives.end.over));
    let_go(&sc);
    kit_want("the release", act_end(&gives), DIBS_OK);
    finish(&sc);
}

/* Only the first is over; the other goes on by itself. */
static void test_limits_of_follower_that_stays(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act waits, second, gives;

    (void)state;
    start_handover(&sc, true, limit_ms(), TS_HOLD_REPLY, &waits, &gives);
    act_acquire(&second, true, sc.l, DIBS_LOCK_OPTS(.owner = sc.b));
    kit_want("the first", act_end(&waits), DIBS_ERR_TIMEOUT);
    assert_false(atomic_load(&gives.end.over));
    let_go(&sc);
    kit_want("the release", act_end(&gives), DIBS_OK);
    kit_want("the second", act_end(&second), DIBS_OK);
    kit_check("the second", sc.l, sc.b, sc.name, 1);
    give(&sc, sc.b);
    finish(&sc);
}

/* An owner gives back, slowly, and asks again meanwhile. */
static void test_limits_behind_own_release(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act gives, again, more;

    (void)state;
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_basic_release, TS_HOLD_REPLY);
    act_async(&gives, sc.l, dibs_lock_release_async,
              DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = KIT_LONG));
    is_held(&sc);
    act_acquire(&again, false, sc.l,
                DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = BRIEF_MS));
    kit_want("the acquire", act_end(&again), DIBS_ERR_TIMEOUT);
    act_acquire(&more, true, sc.l, DIBS_LOCK_OPTS(.owner = sc.a));
    kit_want("cancel", dibs_lock_cancel(sc.l, sc.a), DIBS_OK);
    kit_want("the second", act_end(&more), DIBS_ERR_CANCELED);
    kit_want("cancel", dibs_lock_cancel(sc.l, sc.a), DIBS_ERR_NOT_OWNER);
    assert_false(atomic_load(&gives.end.over));
    let_go(&sc);
    kit_want("the release", act_end(&gives), DIBS_OK);
    finish(&sc);
}

/* A try has a command's time, and then it is not to be had. */
static void test_limits_of_try(void **state)
{
    struct scene sc = begin(&(struct kit_opts){.timeout_ms = HASTY_MS});
    struct act gives;

    (void)state;
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_basic_release, TS_HOLD_REQUEST);
    act_on_thread(&gives, sc.l, dibs_lock_release,
                  DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = KIT_LONG));
    is_held(&sc);
    kit_want("the try", dibs_lock_try(sc.l, DIBS_LOCK_OPTS(.owner = sc.a)),
             DIBS_ERR_BUSY);
    assert_false(atomic_load(&gives.end.over));
    let_go(&sc);
    kit_want("the release", act_end(&gives), DIBS_OK);
    finish(&sc);
}

/* The client closes: whoever stands behind hears so at once. */
static void test_limits_behind_closed(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act gives, again;
    pthread_t closer;
    void *err;

    (void)state;
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_basic_release, TS_HOLD_REPLY);
    act_async(&gives, sc.l, dibs_lock_release_async,
              DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = KIT_LONG));
    is_held(&sc);
    act_acquire(&again, true, sc.l, DIBS_LOCK_OPTS(.owner = sc.a));
    assert_int_equal(pthread_create(&closer, NULL, close_main, sc.k), 0);
    kit_want("the acquire", act_end(&again), DIBS_ERR_CLOSED);
    assert_false(atomic_load(&gives.end.over));
    let_go(&sc);
    pthread_join(closer, &err);
    kit_want("closing", (dibs_err)(intptr_t)err, DIBS_OK);
    kit_want("the release", act_end(&gives), DIBS_OK);
    finish(&sc);
}

/* ---- a release behind another call ------------------------------------- */

/* Two levels are given back side by side; the second has less time, and counts
 * as done. When the first is through, nobody has it. */
static void test_limits_of_release(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act gives, brief;

    (void)state;
    take(&sc, sc.a);
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_basic_release, TS_HOLD_REQUEST);
    act_async(&gives, sc.l, dibs_lock_release_async,
              DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = KIT_LONG));
    is_held(&sc);
    act_on_thread(&brief, sc.l, dibs_lock_release,
                  DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = BRIEF_MS));
    kit_want("the second", act_end(&brief), DIBS_ERR_UNKNOWN);
    assert_false(atomic_load(&gives.end.over));
    let_go(&sc);
    kit_want("the first", act_end(&gives), DIBS_OK);
    kit_gone("both", sc.name);
    assert_int_equal(dibs_lock_state(sc.l, sc.a), DIBS_NOT_HELD);
    take(&sc, sc.a);
    kit_check("anew", sc.l, sc.a, sc.name, 1);
    give(&sc, sc.a);
    finish(&sc);
}

/* A re-entry is under way, and the outer level is given back: the inner one
 * stands, if it was granted; otherwise nothing does. */
static void release_behind_reentry(bool granted)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act inner, outer;
    struct ts_rule refuse = {.action = TS_ANSWER,
                             .text = "-OOM no more memory\r\n"};

    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_basic_acquire,
              granted ? TS_HOLD_REPLY : TS_HOLD_REQUEST);
    act_async(&inner, sc.l, dibs_lock_acquire_async,
              DIBS_LOCK_OPTS(.owner = sc.a));
    is_held(&sc);
    act_on_thread(&outer, sc.l, dibs_lock_release,
                  DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = BRIEF_MS));
    kit_want("the release", act_end(&outer), DIBS_ERR_UNKNOWN);
    assert_int_equal(dibs_lock_state(sc.l, sc.a), DIBS_NOT_HELD);
    assert_false(atomic_load(&inner.end.over));
    if (granted) {
        let_go(&sc);
        kit_want("the re-entry", act_end(&inner), DIBS_OK);
        assert_int_equal(dibs_lock_holds(sc.l, sc.a), 1);
        give(&sc, sc.a);
    } else {
        kit_rule(&dibs__script_basic_acquire, sc.name, &refuse);
        ts_proxy_unrule(kit_px, sc.rule);
        ts_proxy_kill_all(kit_px, false);
        kit_want("the re-entry", act_end(&inner), DIBS_ERR_SERVER);
        ts_proxy_reset(kit_px);
    }
    kit_gone("both", sc.name);
    finish(&sc);
}

static void test_limits_of_release_behind_reentry(void **state)
{
    (void)state;
    release_behind_reentry(true);
    release_behind_reentry(false);
}

/* More releases than there are levels do no harm, either. */
static void test_limits_of_releases_too_many(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act gives, brief[3];

    (void)state;
    take(&sc, sc.a);
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_basic_release, TS_HOLD_REQUEST);
    act_async(&gives, sc.l, dibs_lock_release_async,
              DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = KIT_LONG));
    is_held(&sc);
    for (size_t i = 0; i < COUNT(brief); i++)
        act_on_thread(&brief[i], sc.l, dibs_lock_release,
                      DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = BRIEF_MS));
    for (size_t i = 0; i < COUNT(brief); i++)
        kit_want("one of many", act_end(&brief[i]), DIBS_ERR_UNKNOWN);
    let_go(&sc);
    kit_want("the first", act_end(&gives), DIBS_OK);
    kit_gone("all", sc.name);
    finish(&sc);
}

/* ---- groups ------------------------------------------------------------ */

/* A member that the same owner is just giving back, slowly, by itself: the
 * group keeps its limit and its cancel. */
static void test_limits_of_group(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    char *other = kit_name("limits");
    dibs_lock *m[2] = {sc.l, kit_lock(sc.k, other)}, *g = NULL;
    struct act gives, again;

    (void)state;
    kit_want("a group", dibs_multi_lock_new(m, 2, &g), DIBS_OK);
    kit_warm(sc.k, sc.l, sc.name); /* the main connection stays free */
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_basic_release, TS_HOLD_REPLY);
    act_on_thread(&gives, sc.l, dibs_lock_release,
                  DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = KIT_LONG));
    is_held(&sc);
    act_acquire(&again, true, g, DIBS_LOCK_OPTS(.owner = sc.a));
    TS_WAIT(dibs_lock_cancel(g, sc.a) == DIBS_OK);
    kit_want("the group", act_end(&again), DIBS_ERR_CANCELED);
    assert_false(atomic_load(&gives.end.over));
    let_go(&sc);
    kit_want("the release", act_end(&gives), DIBS_OK);
    dibs_lock_free(g);
    dibs_lock_free(m[1]);
    kit_free_for_all(other, other);
    free(other);
    finish(&sc);
}

/* A group that could not be had gives back what it took. Its caller has waited
 * long enough by then: one command's time for that, where a release has two.
 * The release here begins before, and ends after. */
static void test_limits_of_giving_back(void **state)
{
    const struct kit_opts hasty = {.timeout_ms = kit_ms(700)};
    struct scene sc = begin(&hasty), other = begin(&hasty);
    struct kit_client *k = kit_open(&hasty);
    char *busy = kit_name("limits");
    dibs_lock *m[2] = {sc.l, kit_lock(k, busy)}, *g = NULL;
    struct act gives, tries;

    (void)state;
    kit_want("a group", dibs_multi_lock_new(m, 2, &g), DIBS_OK);
    ts_ok(kit_srv, "HSET %s stranger:1 1", busy);
    take(&other, other.a);
    hold_next(&other, &dibs__script_basic_release, TS_HOLD_REQUEST);
    hold_next(&sc, &dibs__script_basic_release, TS_HOLD_REQUEST);
    act_on_thread(&gives, other.l, dibs_lock_release,
                  DIBS_LOCK_OPTS(.owner = other.a));
    is_held(&other);
    act_on_thread(&tries, g, dibs_lock_try, DIBS_LOCK_OPTS(.owner = sc.a));
    is_held(&sc);
    kit_want("the group", act_end(&tries), DIBS_ERR_BUSY);
    assert_false(atomic_load(&gives.end.over));
    kit_want("the release", act_end(&gives), DIBS_ERR_UNKNOWN);
    let_go(&sc);
    let_go(&other);
    ts_ok(kit_srv, "DEL %s", busy);
    dibs_lock_free(g);
    dibs_lock_free(m[1]);
    kit_close(k);
    free(busy);
    finish(&other);
    finish(&sc);
}

#define T(f) cmocka_unit_test_setup(f, kit_fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_limits_of_heir),
        T(test_limits_of_heir_canceled),
        T(test_limits_of_heir_closed),
        T(test_limits_of_heir_then_next),
        T(test_limits_of_heir_that_returns),
        T(test_limits_of_heir_reply_lost),
        T(test_limits_of_both),
        T(test_limits_of_follower),
        T(test_limits_of_follower_that_stays),
        T(test_limits_behind_own_release),
        T(test_limits_of_try),
        T(test_limits_behind_closed),
        T(test_limits_of_release),
        T(test_limits_of_release_behind_reentry),
        T(test_limits_of_releases_too_many),
        T(test_limits_of_group),
        T(test_limits_of_giving_back),
    };
    return cmocka_run_group_tests_name("fault.limits", tests, kit_up, kit_down);
}
