/* SPDX-License-Identifier: MIT
 *
 * fault_quorum_reply.c - the quorum lock when answers do not come, or come
 * late: at one, two and three of five servers, for acquire, re-entry and
 * release, with and without the right to end the connection that has a ghost.
 *
 * Whatever was lost, what the call says is so, and in the end nothing is left
 * anywhere. A yes that comes late is kept while the lock is held, and goes back
 * when it is not, or was not granted.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/loss.h"
#include "fault/quorum_kit.h"

#include <stdio.h>

#define HASTY_MS ts_ms(100) /* a command's time where a reply never comes */

static dibs_owner me(struct qk_party *p)
{
    return dibs_owner_thread(p->k[0]->c);
}

/* ---- replies that are lost --------------------------------------------- */

static const struct loss reply_cut = {
    .name = "reply cut", .rule = {.action = TS_CUT_REPLY_AT, .at = 2}};

static const struct loss *const losses[] = {
    &loss_not_passed_on, &loss_request_cut, &loss_reply_dropped,
    &reply_cut,          &loss_reply_held,  &loss_request_held,
};

enum step { ACQUIRE, TRY, REENTRY, RELEASE, INNER_RELEASE, STEPS };

static const char *const step_names[STEPS] = {"acquire", "try", "re-entry",
                                              "release", "inner release"};

struct run {
    char where[128];
    struct qk_party p;
    unsigned bad;
    bool async, for_ever;
    int rules[QK_N];
};

static dibs_err call(struct run *r, enum step st)
{
    const dibs_lock_opts o = {
        .size = sizeof o,
        .owner = me(&r->p),
        .wait_ms = r->for_ever ? HASTY_MS : TS_SOON,
    };

    if (st == TRY)
        return kit_call(r->p.q, r->async, dibs_lock_try, dibs_lock_try_async,
                        &o);
    if (st < RELEASE)
        return kit_call(r->p.q, r->async, dibs_lock_acquire,
                        dibs_lock_acquire_async, &o);
    return kit_call(r->p.q, r->async, dibs_lock_release,
                    dibs_lock_release_async, &o);
}

static void begin(struct run *r, enum step st, const struct loss *loss,
                  unsigned way)
{
    snprintf(r->where, sizeof r->where, "%s, %s%s at %#x, %s, %s",
             step_names[st], loss->name, r->for_ever ? " forever" : "", r->bad,
             way & 2 ? "no CLIENT KILL" : "CLIENT KILL",
             way & 1 ? "async" : "sync");
    r->async = way & 1;
    qk_join(&r->p,
            &(struct kit_opts){.user = way & 2 ? KIT_MEEK : KIT_FULL,
                               .timeout_ms = loss->silent ? HASTY_MS : 0});
    if (st >= REENTRY) /* else a late yes would be the one that is lost */
        qk_take_all(r->where, &r->p);
    if (st == INNER_RELEASE)
        qk_take(r->where, &r->p);
    if (st >= REENTRY)
        TS_WAIT(qk_held(&r->p) == QK_ALL);
    struct ts_rule rule = loss->rule;
    rule.contains = st < RELEASE ? dibs__script_mutex_acquire.sha
                                 : dibs__script_mutex_release.sha;
    rule.count = r->for_ever ? 0 : 1;
    qk_rule(r->bad, &rule, r->rules);
}

/* What the library says we hold, a majority of the servers says, too. */
static void honest(struct run *r, dibs_err err, enum step st)
{
    int64_t holds = dibs_lock_holds(r->p.q, 0);
    bool took = st < RELEASE && err == DIBS_OK;
    int64_t want = (st == INNER_RELEASE ? 1 : st == REENTRY) + took;
    size_t have = 0;

    if (holds != want)
        fail_msg("%s: %s, and %lld holds", r->where, dibs_strerror(err),
                 (long long)holds);
    for (size_t i = 0; holds && i < QK_N; i++)
        have += qk_holds(&r->p, i) >= holds;
    if (holds && have < QK_NEED)
        fail_msg("%s: only %zu servers have it %lld times", r->where, have,
                 (long long)holds);
}

static void settle(struct run *r)
{
    dibs_err err;

    qk_unrule(QK_ALL);
    while (dibs_lock_holds(r->p.q, 0) > 0)
        if ((err = dibs_lock_release(
                 r->p.q, DIBS_LOCK_OPTS(.wait_ms = TS_SOON))) != DIBS_OK)
            fail_msg("%s: giving back: %s", r->where, dibs_strerror(err));
    QK_WANT(r->where, dibs_lock_release(r->p.q, NULL), DIBS_ERR_NOT_OWNER);
    qk_clean(r->where, QK_ALL, 0);
    qk_works(r->where, &r->p);
    qk_part(&r->p);
    qk_clean(r->where, QK_ALL, 0);
}

static bool was_lost(const struct run *r)
{
    QK_EACH(i, r->bad)
    if (!ts_rule_wait(qk_nodes[i].px, r->rules[i], 1, TS_SOON))
        return false;
    return true;
}

/* One reply at each of these servers: it is asked for again, and all is well.
 * Only a single attempt, or a release with so little time, may say that it does
 * not know. False: one of the servers was not asked, which was seen once, on a
 * busy machine. */
static bool lose_once(enum step st, const struct loss *loss, unsigned bad,
                      unsigned way)
{
    struct run r = {.bad = bad};
    bool may_fail = st == TRY || st >= RELEASE;

    begin(&r, st, loss, way);
    dibs_err err = call(&r, st);
    bool lost = was_lost(&r);
    if (err != DIBS_OK && !(may_fail && err == DIBS_ERR_UNKNOWN))
        fail_msg("%s: %s", r.where, dibs_strerror(err));
    if (st != INNER_RELEASE || err == DIBS_OK)
        honest(&r, err, st);
    settle(&r);
    return lost;
}

static void lose(enum step st, const struct loss *loss, unsigned bad,
                 unsigned way)
{
    for (int tries = 0; tries < 3; tries++)
        if (lose_once(st, loss, bad, way))
            return;
    fail_msg("%s, %s at %#x: nothing is lost", step_names[st], loss->name, bad);
}

static void lose_all_ways(enum step st)
{
    static const unsigned sets[] = {0x04, 0x11, 0x0b};
    unsigned way = 0;

    for (size_t f = 0; f < COUNT(losses); f++)
        for (size_t s = 0; s < COUNT(sets); s++)
            for (unsigned meek = 0; meek < 2; meek++)
                lose(st, losses[f], sets[s], meek * 2 + way++ / 2 % 2);
}

static void test_quorum_acquire_lost(void **state)
{
    (void)state;
    lose_all_ways(ACQUIRE);
}

static void test_quorum_try_lost(void **state)
{
    (void)state;
    lose_all_ways(TRY);
}

static void test_quorum_reentry_lost(void **state)
{
    (void)state;
    lose_all_ways(REENTRY);
}

static void test_quorum_release_lost(void **state)
{
    (void)state;
    lose_all_ways(RELEASE);
}

static void test_quorum_inner_release_lost(void **state)
{
    (void)state;
    lose_all_ways(INNER_RELEASE);
}

/* Every reply of three servers is lost until the caller has given up. */
static void lose_for_ever(enum step st, const struct loss *loss, unsigned way)
{
    struct run r = {.bad = 0x16, .for_ever = true};

    begin(&r, st, loss, way);
    dibs_err err = call(&r, st);
    if (err != DIBS_ERR_UNKNOWN && err != DIBS_ERR_CONN)
        fail_msg("%s: %s", r.where, dibs_strerror(err));
    assert_int_equal(dibs_lock_state(r.p.q, 0), DIBS_NOT_HELD);
    qk_clean(r.where, QK_ALL & ~r.bad, 0);
    settle(&r);
}

static void majority_lost(enum step st)
{
    for (size_t f = 0; f < COUNT(losses); f++)
        lose_for_ever(st, losses[f], (unsigned)(st + f) % 4);
}

static void test_quorum_acquire_majority_lost(void **state)
{
    (void)state;
    majority_lost(ACQUIRE);
}

static void test_quorum_try_majority_lost(void **state)
{
    (void)state;
    majority_lost(TRY);
}

static void test_quorum_release_majority_lost(void **state)
{
    (void)state;
    majority_lost(RELEASE);
}

/* ---- answers that come late -------------------------------------------- */

/* The answer of these servers to an acquire is held back. */
static void hold_back(unsigned mask)
{
    qk_rule(mask,
            &(struct ts_rule){.action = TS_HOLD_REPLY,
                              .contains = dibs__script_mutex_acquire.sha},
            NULL);
}

/* On each server the TTL falls and rises again, twice: it was renewed there. */
static void is_renewed_twice(struct qk_party *p, int64_t lease)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);
    bool was_low[QK_N] = {false};
    int rises[QK_N] = {0};
    size_t renewed = 0; /* on servers 0 to renewed - 1 */

    while (renewed < QK_N) {
        for (size_t i = 0; i < QK_N; i++) {
            bool is_low = ts_pttl(qk_nodes[i].srv, p->name) < lease * 9 / 10;
            rises[i] += was_low[i] && !is_low;
            was_low[i] = is_low;
        }
        while (renewed < QK_N && rises[renewed] >= 2)
            renewed++;
        if (renewed < QK_N && !ts_wait_step(&w))
            fail_msg("server %zu: renewed %d times, not twice", renewed,
                     rises[renewed]);
    }
}

/* Kept: seen, renewed and given back with the others. */
static void test_quorum_late_yes_is_kept(void **state)
{
    static const unsigned sets[] = {0x01, 0x14};
    int64_t lease = kit_ms(3000);

    (void)state;
    for (size_t s = 0; s < COUNT(sets); s++) {
        struct qk_party p;
        qk_join(&p, &(struct kit_opts){.lease_ms = lease});
        hold_back(sets[s]);
        qk_take("late yes", &p);
        TS_WAIT(qk_mine(&p, QK_ALL) == QK_ALL);
        TS_WAIT(qk_held(&p) == (QK_ALL & ~sets[s]));
        QK_EACH(i, sets[s])
        assert_int_not_equal(qk_member(&p, i).verdict, DIBS_OK);
        qk_unrule(sets[s]);
        TS_WAIT(qk_held(&p) == QK_ALL);
        is_renewed_twice(&p, lease);
        TS_WAIT(dibs_lock_state(p.q, 0) == DIBS_HELD && qk_held(&p) == QK_ALL);
        QK_WANT("late yes", dibs_lock_release(p.q, NULL), DIBS_OK);
        qk_clean("late yes", QK_ALL, 0);
        assert_int_equal(atomic_load(&p.lost), 0);
        qk_part(&p);
    }
}

/* Its lock is lost only when a majority of all that said yes is. */
static void test_quorum_late_yes_counts(void **state)
{
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){.lease_ms = kit_ms(2000)});
    hold_back(0x03);
    qk_take("late vote", &p);
    TS_WAIT(qk_held(&p) == 0x1c);
    qk_unrule(0x03);
    TS_WAIT(qk_held(&p) == QK_ALL);
    qk_stranger_off(0x18, p.name); /* the key is gone there */
    TS_WAIT(qk_held(&p) == 0x07);
    assert_int_equal(dibs_lock_state(p.q, 0), DIBS_HELD);
    assert_int_equal(atomic_load(&p.lost), 0);
    qk_stranger_off(0x04, p.name);
    TS_WAIT(dibs_lock_state(p.q, 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&p.lost) == 1);
    QK_WANT("late vote", dibs_lock_release(p.q, NULL), DIBS_ERR_LOST);
    qk_clean("late vote", QK_ALL, 0);
    qk_part(&p);
    assert_int_equal(atomic_load(&p.lost), 1);
}

static void test_quorum_late_yes_after_release(void **state)
{
    static const unsigned sets[] = {0x02, 0x18};
    struct qk_party p;

    (void)state;
    for (size_t s = 0; s < COUNT(sets); s++) {
        qk_join(&p, &(struct kit_opts){0});
        hold_back(sets[s]);
        qk_take("late", &p);
        TS_WAIT(qk_mine(&p, QK_ALL) == QK_ALL);
        QK_WANT("late", dibs_lock_release(p.q, NULL), DIBS_OK);
        qk_clean("late", QK_ALL & ~sets[s], 0);
        assert_int_equal(qk_mine(&p, sets[s]), sets[s]); /* nobody heard yet */
        qk_unrule(sets[s]);
        qk_clean("late", QK_ALL, 0);
        assert_int_equal(dibs_lock_state(p.q, 0), DIBS_NOT_HELD);
        qk_works("late", &p);
        qk_part(&p);
    }
}

/* The same when the owner has taken it again meanwhile: what is late belongs
 * to the hold that was given back, and must not spoil the one there is. */
static void test_quorum_late_yes_after_next(void **state)
{
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    hold_back(0x02);
    qk_take("late", &p);
    TS_WAIT(qk_mine(&p, QK_ALL) == QK_ALL);
    QK_WANT("late", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_take("late", &p);
    qk_unrule(0x02);
    TS_WAIT((qk_held(&p) & 0x1d) == 0x1d);
    assert_int_equal(dibs_lock_holds(p.q, 0), 1);
    for (size_t i = 0; i < QK_N; i++)
        if (i != 1)
            assert_int_equal(qk_holds(&p, i), 1);
    TS_WAIT(qk_holds(&p, 1) == (qk_member(&p, 1).state == DIBS_HELD));
    QK_WANT("late", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("late", QK_ALL, 0);
    qk_works("late", &p);
    qk_part(&p);
}

static void test_quorum_late_yes_after_failure(void **state)
{
    struct qk_party p;

    (void)state;
    for (int wait = 0; wait < 2; wait++) {
        qk_join(&p, &(struct kit_opts){0});
        qk_stranger(0x07, p.name);
        hold_back(0x18);
        const dibs_lock_opts *o = DIBS_LOCK_OPTS(.member_ms = ts_ms(500));
        const dibs_lock_opts *w =
            DIBS_LOCK_OPTS(.member_ms = ts_ms(500), .wait_ms = ts_ms(1500));
        QK_WANT("failed",
                wait ? dibs_lock_acquire(p.q, w) : dibs_lock_try(p.q, o),
                wait ? DIBS_ERR_TIMEOUT : DIBS_ERR_BUSY);
        TS_WAIT(qk_mine(&p, 0x18) == 0x18); /* nobody knows */
        qk_unrule(0x18);
        qk_clean("failed", QK_ALL, 0x07);
        qk_stranger_off(0x07, p.name);
        qk_works("failed", &p);
        qk_part(&p);
    }
}

/* A vote of an earlier round does not count in a later one. */
static void test_quorum_late_yes_of_old_round(void **state)
{
    struct kit_end end = {.err = DIBS_OK};
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_stranger(0x03, p.name);
    hold_back(0x04);
    QK_WANT("old round",
            dibs_lock_acquire_async(
                p.q, DIBS_LOCK_OPTS(.owner = me(&p), .member_ms = 50),
                kit_ended, &end),
            DIBS_OK);
    unsigned before = ts_proxy_requests(qk_nodes[0].px, "EVAL*");
    assert_true(
        ts_proxy_wait_requests(qk_nodes[0].px, "EVAL*", before + 4, TS_SOON));
    assert_false(atomic_load(&end.over));
    qk_unrule(0x04); /* a yes, long after its round; then it can be asked */
    QK_WANT("old round", kit_wait(&end), DIBS_OK);
    TS_WAIT(qk_held(&p) == 0x1c);
    QK_EACH(i, 0x1c) assert_int_equal(qk_holds(&p, i), 1);
    QK_WANT("old round", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("old round", QK_ALL, 0x03);
    qk_part(&p);
}

/* ---- answers that come as patience ends -------------------------------- */

/* A delay that moves around the limit, a little more or less each time. */
static int64_t around(int64_t limit, int i)
{
    return limit - 3 + i % 7;
}

/* Granted or not, it is so, and nothing is left. */
static void settle_try(struct qk_party *p, dibs_err err)
{
    if (err != DIBS_OK && err != DIBS_ERR_UNKNOWN && err != DIBS_ERR_CONN &&
        err != DIBS_ERR_BUSY && err != DIBS_ERR_TIMEOUT)
        fail_msg("at the limit: %s", dibs_strerror(err));
    assert_int_equal(dibs_lock_state(p->q, 0),
                     err == DIBS_OK ? DIBS_HELD : DIBS_NOT_HELD);
    if (err == DIBS_OK)
        QK_WANT("at the limit", dibs_lock_release(p->q, NULL), DIBS_OK);
    qk_clean("at the limit", QK_ALL, 0);
}

/* Taken back because it is late, and because it is a yes: once. */
static void test_quorum_late_at_the_limit(void **state)
{
    struct qk_party p;
    int granted = 0;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    for (int i = 0; i < 150; i++) {
        qk_rule(0x0e,
                &(struct ts_rule){.action = TS_DELAY_REPLY,
                                  .contains = dibs__script_mutex_acquire.sha,
                                  .ms = around(20, i)},
                NULL);
        dibs_err err = dibs_lock_try(p.q, DIBS_LOCK_OPTS(.member_ms = 20));
        granted += err == DIBS_OK;
        settle_try(&p, err);
        qk_unrule(QK_ALL);
    }
    print_message("granted at the limit: %d of 150\n", granted);
    qk_works("at the limit", &p);
    qk_part(&p);
}

/* The same for the question which server it is: asked again whenever it may be
 * another one. */
static void test_quorum_check_at_the_limit(void **state)
{
    struct qk_party p;
    int granted = 0;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    for (int i = 0; i < 60; i++) {
        QK_EACH(n, 0x0e)
        {
            ts_proxy_kill_all(qk_nodes[n].px, false);
            ts_proxy_rule(qk_nodes[n].px,
                          &(struct ts_rule){.action = TS_DELAY_REPLY,
                                            .match = "INFO",
                                            .ms = around(60, i * 3)});
        }
        dibs_err err =
            i % 2 ? dibs_lock_try(p.q, DIBS_LOCK_OPTS(.member_ms = 60))
                  : dibs_lock_acquire(
                        p.q, DIBS_LOCK_OPTS(.member_ms = 60, .wait_ms = 200));
        granted += err == DIBS_OK;
        settle_try(&p, err);
        qk_unrule(QK_ALL);
    }
    print_message("granted with late INFO: %d of 60\n", granted);
    qk_works("late INFO", &p);
    qk_part(&p);
}

/* ---- patience ---------------------------------------------------------- */

/* With much patience three late answers are waited for, with little not. */
static void test_quorum_member_ms(void **state)
{
    struct kit_end end = {.err = DIBS_OK};
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    hold_back(0x0e);
    QK_WANT("little", dibs_lock_try(p.q, DIBS_LOCK_OPTS(.member_ms = 30)),
            DIBS_ERR_UNKNOWN);
    QK_EACH(i, 0x0e)
    assert_int_equal(qk_member(&p, i).verdict, DIBS_ERR_UNKNOWN);
    qk_clean("little", 0x11, 0);
    qk_unrule(0x0e);
    qk_clean("little", QK_ALL, 0);
    hold_back(0x0e);
    QK_WANT("much",
            dibs_lock_try_async(
                p.q, DIBS_LOCK_OPTS(.member_ms = TS_SOON, .owner = me(&p)),
                kit_ended, &end),
            DIBS_OK);
    TS_WAIT(qk_mine(&p, QK_ALL) == QK_ALL);
    assert_false(atomic_load(&end.over));
    qk_unrule(0x0e);
    QK_WANT("much", kit_wait(&end), DIBS_OK);
    QK_WANT("much", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("much", QK_ALL, 0);
    qk_part(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_quorum_acquire_lost, qk_fresh),
        cmocka_unit_test_setup(test_quorum_try_lost, qk_fresh),
        cmocka_unit_test_setup(test_quorum_reentry_lost, qk_fresh),
        cmocka_unit_test_setup(test_quorum_release_lost, qk_fresh),
        cmocka_unit_test_setup(test_quorum_inner_release_lost, qk_fresh),
        cmocka_unit_test_setup(test_quorum_acquire_majority_lost, qk_fresh),
        cmocka_unit_test_setup(test_quorum_try_majority_lost, qk_fresh),
        cmocka_unit_test_setup(test_quorum_release_majority_lost, qk_fresh),
        cmocka_unit_test_setup(test_quorum_late_yes_is_kept, qk_fresh),
        cmocka_unit_test_setup(test_quorum_late_yes_counts, qk_fresh),
        cmocka_unit_test_setup(test_quorum_late_yes_after_release, qk_fresh),
        cmocka_unit_test_setup(test_quorum_late_yes_after_next, qk_fresh),
        cmocka_unit_test_setup(test_quorum_late_yes_after_failure, qk_fresh),
        cmocka_unit_test_setup(test_quorum_late_yes_of_old_round, qk_fresh),
        cmocka_unit_test_setup(test_quorum_late_at_the_limit, qk_fresh),
        cmocka_unit_test_setup(test_quorum_check_at_the_limit, qk_fresh),
        cmocka_unit_test_setup(test_quorum_member_ms, qk_fresh),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return TS_RUN_PARALLEL("fault.quorum_reply", tests, qk_up, qk_down);
}
