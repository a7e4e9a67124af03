/* SPDX-License-Identifier: MIT
 *
 * fault_limits_own.c - a call keeps its own limit, and can be canceled, behind
 * another call of the same owner that takes long. And a renewed hold keeps its
 * own limit where a renewal has to wait for a connection.
 */
#include "fault/limits_kit.h"

#include <unistd.h>

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
    hold_next(&sc, &dibs__script_mutex_release, TS_HOLD_REPLY);
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

/* A try has the time of one command, and is BUSY then. */
static void test_limits_of_try(void **state)
{
    struct scene sc = begin(&(struct kit_opts){.timeout_ms = HASTY_MS});
    struct act gives;

    (void)state;
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_mutex_release, TS_HOLD_REQUEST);
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

/* The client closes: the one that stands behind is told so at once. */
static void test_limits_behind_closed(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act gives, again;
    pthread_t closer;
    void *err;

    (void)state;
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_mutex_release, TS_HOLD_REPLY);
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

/* A line that io looks after for the sake of such a call only: the one that
 * joins it is looked after, too. The lock is taken away behind everybody's
 * back, which the next renewal would find out, a long time from now. */
static void test_limits_joined(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act again, behind, waits;

    (void)state;
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_mutex_acquire, TS_HOLD_REPLY);
    act_acquire(&again, true, sc.l, DIBS_LOCK_OPTS(.owner = sc.a));
    is_held(&sc);
    act_acquire(&behind, true, sc.l,
                DIBS_LOCK_OPTS(.owner = sc.a, .wait_ms = KIT_LONG));
    usleep((useconds_t)BRIEF_MS * 1000); /* io has looked by then, and rests */
    act_acquire(&waits, true, sc.l, DIBS_LOCK_OPTS(.owner = sc.b));
    let_go(&sc);
    kit_want("the re-entry", act_end(&again), DIBS_OK);
    kit_want("the next", act_end(&behind), DIBS_OK);
    ts_ok(kit_srv, "DEL %s", sc.name);
    kit_want("the waiter", act_end(&waits), DIBS_OK);
    give(&sc, sc.b);
    for (int i = 0; i < 3; i++)
        kit_want("what was lost",
                 dibs_lock_release(sc.l, DIBS_LOCK_OPTS(.owner = sc.a)),
                 DIBS_ERR_LOST);
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
    hold_next(&sc, &dibs__script_mutex_release, TS_HOLD_REQUEST);
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
    hold_next(&sc, &dibs__script_mutex_acquire,
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
        kit_rule(&dibs__script_mutex_acquire, sc.name, &refuse);
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
    hold_next(&sc, &dibs__script_mutex_release, TS_HOLD_REQUEST);
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

/* ---- too late ---------------------------------------------------------- */

/* A re-entry is granted, but when that is heard the outer hold is over, by our
 * clock. What the server has then is nobody's, and goes at once. */
static void test_limits_of_reentry_heard_late(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act again;

    (void)state;
    kit_want("taking",
             dibs_lock_acquire(
                 sc.l, DIBS_LOCK_OPTS(.owner = sc.a, .lease_ms = kit_ms(600))),
             DIBS_OK);
    hold_next(&sc, &dibs__script_mutex_acquire, TS_HOLD_REPLY);
    act_acquire(&again, true, sc.l,
                DIBS_LOCK_OPTS(.owner = sc.a, .lease_ms = 10 * KIT_LONG));
    is_held(&sc);
    TS_WAIT(dibs_lock_state(sc.l, sc.a) == DIBS_LOST);
    assert_int_equal(ts_hlen(kit_srv, sc.name), 1);
    let_go(&sc);
    kit_want("once more", act_end(&again), DIBS_ERR_LOST);
    kit_gone("late", sc.name);
    kit_want("giving back",
             dibs_lock_release(sc.l, DIBS_LOCK_OPTS(.owner = sc.a)),
             DIBS_ERR_LOST);
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
    hold_next(&sc, &dibs__script_mutex_release, TS_HOLD_REPLY);
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
    const struct kit_opts hasty = {.timeout_ms = kit_ms(2000)};
    struct scene sc = begin(&hasty), other = begin(&hasty);
    struct kit_client *k = kit_open(&hasty);
    char *busy = kit_name("limits");
    dibs_lock *m[2] = {sc.l, kit_lock(k, busy)}, *g = NULL;
    struct act gives, tries;

    (void)state;
    kit_want("a group", dibs_multi_lock_new(m, 2, &g), DIBS_OK);
    ts_ok(kit_srv, "HSET %s 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:1 1", busy);
    take(&other, other.a);
    hold_next(&other, &dibs__script_mutex_release, TS_HOLD_REQUEST);
    hold_next(&sc, &dibs__script_mutex_release, TS_HOLD_REQUEST);
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

/* ---- a call of two commands -------------------------------------------- */

static void forced(dibs_err err, bool was_locked, void *end)
{
    (void)was_locked;
    kit_ended(err, end);
}

/* A force release asks who has the lock, and is not answered for half of its
 * time; then it ends that hold, and is not answered for the other half. Another
 * call, with more time, is there still. */
static void test_limits_of_force(void **state)
{
    struct scene sc =
        begin(&(struct kit_opts){.timeout_ms = HASTY_MS, .user = KIT_MEEK});
    struct kit_end forces = {0};
    struct act until;

    (void)state;
    kit_load(&dibs__script_mutex_info);
    take(&sc, sc.a);
    kit_rule(&dibs__script_mutex_info, sc.name,
             &(struct ts_rule){.action = TS_SWALLOW_REPLY, .count = 1});
    hold_next(&sc, &dibs__script_mutex_force, TS_HOLD_REQUEST);
    act_async(&until, sc.l, dibs_lock_acquire_async,
              DIBS_LOCK_OPTS(.owner = sc.b, .wait_ms = HASTY_MS * 5 / 2));
    kit_want("starting", dibs_lock_force_release_async(sc.l, forced, &forces),
             DIBS_OK);
    kit_want("the force release", kit_wait(&forces), DIBS_ERR_UNKNOWN);
    assert_true(ts_rule_hits(kit_px, sc.rule) > 0);
    if (atomic_load(&until.end.over))
        fail_msg("each of its commands had the time of both");
    kit_want("the other", act_end(&until), DIBS_ERR_TIMEOUT);
    kit_relent();
    kit_gone("what was forced out", sc.name);
    kit_want("giving it back",
             dibs_lock_release(sc.l, DIBS_LOCK_OPTS(.owner = sc.a)),
             DIBS_ERR_LOST);
    finish(&sc);
}

/* ---- a renewal that waits for a connection ----------------------------- */

#define LEASE_MS  6000
#define HOLD_MS   7000 /* max_hold_ms */
#define OUTAGE_MS 2500 /* a renewal is due by then */

/* When the last request with this text came. */
static long long last_came(const char *text)
{
    unsigned n = ts_proxy_logged(kit_px, text);
    char *line = n ? ts_proxy_log_line(kit_px, text, n - 1) : NULL;
    long long ms = line ? atoll(line) : 0;

    free(line);
    return ms;
}

/* Renewals of this lock ask for no more than what is left until `end` when they
 * are sent. That is after the connection was ready. How many there are. */
static int check_renewals(const char *name, int64_t end)
{
    char text[64], ready[64];
    int renewals = 0;

    snprintf(text, sizeof text, " 1 %s ", name);
    for (unsigned i = 0; i < ts_proxy_logged(kit_px, text); i++) {
        char *line = ts_proxy_log_line(kit_px, text, i);
        long long lease;
        int link = 0;
        /* Behind the key: the owner, the lease, the number of the call. */
        int n = sscanf(strstr(line, text) + strlen(text), "%*s %lld", &lease);
        assert_int_equal(sscanf(line, "%*d #%d", &link) + n, 2);
        snprintf(ready, sizeof ready, "#%d CLIENT INFO", link);
        if (lease > 0)
            renewals++;
        if (lease > end - last_came(ready))
            fail_msg("%lld ms too long: %s", lease - end + last_came(ready),
                     line);
        free(line);
    }
    return renewals;
}

/* It is sent long after it was due: no connection can be made. */
static void test_limits_of_renewal(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lease_ms = LEASE_MS});
    dibs_lock *l = kit_lock(k, "limited");

    (void)state;
    kit_want("acquire",
             dibs_lock_acquire(l, DIBS_LOCK_OPTS(.max_hold_ms = HOLD_MS)),
             DIBS_OK);
    int64_t end = ts_now_ms() + HOLD_MS;
    ts_proxy_reset(kit_px); /* its log has renewals only from now on */
    ts_proxy_refuse(kit_px, true);
    ts_proxy_kill_all(kit_px, false);
    TS_WAIT(ts_now_ms() >= end - HOLD_MS + OUTAGE_MS);
    ts_proxy_refuse(kit_px, false);
    TS_WAIT(check_renewals("limited", end) > 0 || ts_now_ms() >= end);
    dibs_err err = dibs_lock_release(l, NULL); /* it may be over by now */
    assert_true(err == DIBS_OK || err == DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(k);
}

#define T(f) cmocka_unit_test_setup(f, kit_fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_limits_of_follower),
        T(test_limits_of_follower_that_stays),
        T(test_limits_behind_own_release),
        T(test_limits_of_try),
        T(test_limits_behind_closed),
        T(test_limits_joined),
        T(test_limits_of_release),
        T(test_limits_of_release_behind_reentry),
        T(test_limits_of_releases_too_many),
        T(test_limits_of_reentry_heard_late),
        T(test_limits_of_group),
        T(test_limits_of_giving_back),
        T(test_limits_of_force),
        T(test_limits_of_renewal),
    };
    return TS_RUN_PARALLEL("fault.limits_own", tests, kit_up, kit_down);
}
