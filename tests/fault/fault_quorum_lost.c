/* SPDX-License-Identifier: MIT
 *
 * fault_quorum_lost.c - how a quorum lock is kept, and how it is lost.
 *
 * Held while a majority is, by our own clock. A key that vanished is not made
 * again. When the majority is gone the lock is lost, and that is told exactly
 * once; and what is left of it goes back.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/quorum_kit.h"

#include <stdio.h>
#include <string.h>

#define LEASE_MS kit_ms(2400)

/* So many more renewals at each of these servers. */
static void renewals(unsigned mask, unsigned n)
{
    int rules[QK_N];

    qk_rule(mask, &(struct ts_rule){.contains = dibs__script_mutex_renew.sha},
            rules);
    QK_EACH(i, mask)
    {
        if (!ts_rule_wait_done(qk_nodes[i].px, rules[i], n, TS_SOON))
            fail_msg("no renewal at server %zu", i);
        ts_proxy_unrule(qk_nodes[i].px, rules[i]);
    }
}

static void take_all(const char *where, struct qk_party *p, int64_t lease_ms)
{
    qk_join(p, &(struct kit_opts){.lease_ms = lease_ms,
                                  .timeout_ms = lease_ms / 4});
    qk_take_all(where, p);
}

/* Held, and not suspect for longer than a renewal that came late makes it. */
static void is_held(struct qk_party *p)
{
    TS_WAIT(dibs_lock_state(p->q, 0) == DIBS_HELD);
}

/* It was lost, that was told once, and all of it goes. */
static void lost_once(const char *where, struct qk_party *p)
{
    TS_WAIT(dibs_lock_state(p->q, 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&p->lost) == 1);
    assert_int_equal(dibs_lock_valid_ms(p->q, 0), 0);
    assert_int_equal(dibs_lock_holds(p->q, 0), 0);
    QK_WANT(where, dibs_lock_acquire(p->q, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)),
            DIBS_ERR_LOST);
    QK_WANT(where, dibs_lock_release(p->q, NULL), DIBS_ERR_LOST);
    QK_WANT(where, dibs_lock_release(p->q, NULL), DIBS_ERR_NOT_OWNER);
}

static void end(const char *where, struct qk_party *p, int lost)
{
    qk_clean(where, QK_ALL, 0);
    assert_int_equal(atomic_load(&p->lost), lost);
    qk_works(where, p);
    qk_free_for_all(where, p->name);
    qk_part(p);
}

/* ---- kept -------------------------------------------------------------- */

/* All five are renewed, for longer than a lease. */
static void test_quorum_renewed(void **state)
{
    struct qk_party p;

    (void)state;
    take_all("renewed", &p, LEASE_MS);
    renewals(QK_ALL, 5);
    assert_int_equal(qk_mine(&p, QK_ALL), QK_ALL);
    is_held(&p);
    QK_WANT("renewed", dibs_lock_release(p.q, NULL), DIBS_OK);
    end("renewed", &p, 0);
}

/* Gone on one, or two: still held, and not made again there. */
static void keys_gone(unsigned gone)
{
    struct qk_party p;
    char where[32];

    snprintf(where, sizeof where, "gone on %#x", gone);
    take_all(where, &p, LEASE_MS);
    qk_stranger_off(gone, p.name);
    TS_WAIT(qk_held(&p) == (QK_ALL & ~gone));
    QK_EACH(i, gone)
    {
        assert_int_equal(qk_member(&p, i).state, DIBS_LOST);
        assert_int_equal(qk_member(&p, i).verdict, DIBS_ERR_LOST);
    }
    renewals(QK_ALL & ~gone, 4);
    assert_int_equal(qk_mine(&p, QK_ALL), QK_ALL & ~gone);
    is_held(&p);
    assert_true(dibs_lock_valid_ms(p.q, 0) > 0);
    QK_WANT(where, dibs_lock_release(p.q, NULL), DIBS_OK);
    end(where, &p, 0);
}

static void test_quorum_one_key_gone(void **state)
{
    (void)state;
    keys_gone(0x01);
    keys_gone(0x10);
}

static void test_quorum_two_keys_gone(void **state)
{
    (void)state;
    keys_gone(0x06);
    keys_gone(0x11);
}

/* Somebody else took those that were freed: they are left alone. */
static void test_quorum_keys_taken_over(void **state)
{
    struct qk_party p;

    (void)state;
    take_all("taken over", &p, LEASE_MS);
    qk_stranger_off(0x0a, p.name);
    qk_stranger(0x0a, p.name);
    TS_WAIT(qk_held(&p) == 0x15);
    renewals(0x15, 3);
    QK_WANT("taken over", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("taken over", QK_ALL, 0x0a);
    qk_stranger_off(0x0a, p.name);
    end("taken over", &p, 0);
}

/* Two servers start again and empty: nothing of ours is made there. */
static void test_quorum_two_restarted(void **state)
{
    struct qk_party p;

    (void)state;
    take_all("restarted", &p, kit_ms(3000));
    qk_break(QK_RESTARTED, 0x12);
    TS_WAIT(qk_held(&p) == 0x0d);
    renewals(0x0d, 3);
    assert_int_equal(qk_mine(&p, QK_ALL), 0x0d);
    is_held(&p);
    QK_WANT("restarted", dibs_lock_release(p.q, NULL), DIBS_OK);
    end("restarted", &p, 0);
}

/* ---- lost -------------------------------------------------------------- */

static void test_quorum_lost(void **state)
{
    static const unsigned sets[] = {0x07, 0x15, 0x1a, 0x1e, 0x1f};

    (void)state;
    for (size_t s = 0; s < COUNT(sets); s++) {
        struct qk_party p;
        take_all("lost", &p, LEASE_MS);
        qk_stranger_off(sets[s], p.name);
        lost_once("lost", &p);
        end("lost", &p, 1);
    }
}

/* One after the other: told at the third, not again at the fourth. */
static void test_quorum_lost_by_and_by(void **state)
{
    struct qk_party p;

    (void)state;
    take_all("by and by", &p, LEASE_MS);
    for (unsigned i = 0; i < QK_N; i++) {
        qk_stranger_off(1u << i, p.name);
        TS_WAIT(qk_member(&p, i).state == DIBS_LOST);
        TS_WAIT(dibs_lock_state(p.q, 0) == (i < 2 ? DIBS_HELD : DIBS_LOST));
        if (i >= 2)
            TS_WAIT(atomic_load(&p.lost) == 1);
        assert_int_equal(atomic_load(&p.lost), i >= 2);
    }
    lost_once("by and by", &p);
    end("by and by", &p, 1);
}

/* Nobody says no, but nobody says yes either: lost by our own clock, while the
 * servers are still away; and before it is so by theirs. */
static void silent(enum qk_fault fault, unsigned bad)
{
    struct qk_party p;
    char where[48];

    snprintf(where, sizeof where, "%s %#x", qk_fault_names[fault], bad);
    take_all(where, &p, LEASE_MS);
    qk_break(fault, bad);
    struct ts_wait w = ts_wait_begin(TS_SOON);
    for (int64_t begun = ts_now_ms(), now = begun;
         dibs_lock_state(p.q, 0) != DIBS_LOST; now = ts_now_ms()) {
        assert_true(now - begun <= LEASE_MS);
        ts_wait_step(&w);
    }
    TS_WAIT(atomic_load(&p.lost) == 1);
    assert_int_equal(qk_held(&p) & bad, 0);
    TS_WAIT(qk_held(&p) == (QK_ALL & ~bad)); /* these are renewed still */
    qk_mend(bad);
    lost_once(where, &p);
    end(where, &p, 1);
}

static void test_quorum_three_paused(void **state)
{
    (void)state;
    silent(QK_PAUSED, 0x07);
    silent(QK_PAUSED, 0x1a);
}

static void test_quorum_three_cut_off(void **state)
{
    (void)state;
    silent(QK_CUT_OFF, 0x13);
}

static void test_quorum_three_dead(void **state)
{
    (void)state;
    silent(QK_DEAD, 0x0e);
}

/* Two that are silent do not matter, however long. */
static void test_quorum_two_silent(void **state)
{
    struct qk_party p;

    (void)state;
    take_all("two silent", &p, 2 * LEASE_MS); /* none of the others may stall */
    qk_break(QK_PAUSED, 0x09);
    TS_WAIT(qk_held(&p) == 0x16);
    renewals(0x16, 4);
    is_held(&p);
    assert_int_equal(qk_mine(&p, 0x16), 0x16);
    qk_mend(0x09);
    QK_WANT("two silent", dibs_lock_release(p.q, NULL), DIBS_OK);
    end("two silent", &p, 0);
}

/* Every level hears of it, and it is told for each that asked to be. */
static void test_quorum_lost_nested(void **state)
{
    struct qk_party p;

    (void)state;
    take_all("nested", &p, LEASE_MS);
    qk_take("nested", &p);
    assert_int_equal(dibs_lock_holds(p.q, 0), 2);
    qk_stranger_off(0x0e, p.name);
    TS_WAIT(dibs_lock_state(p.q, 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&p.lost) >= 1);
    QK_WANT("nested", dibs_lock_release(p.q, NULL), DIBS_ERR_LOST);
    assert_int_equal(dibs_lock_state(p.q, 0), DIBS_LOST);
    QK_WANT("nested", dibs_lock_release(p.q, NULL), DIBS_ERR_LOST);
    QK_WANT("nested", dibs_lock_release(p.q, NULL), DIBS_ERR_NOT_OWNER);
    qk_clean("nested", QK_ALL, 0);
    assert_true(atomic_load(&p.lost) <= 2);
    qk_works("nested", &p);
    qk_part(&p);
}

/* ---- how long ---------------------------------------------------------- */

/* The third longest of the members', in ms. */
static int64_t third(struct qk_party *p)
{
    int64_t v[QK_N];

    for (size_t i = 0; i < QK_N; i++) {
        v[i] = qk_member(p, i).valid_ms;
        for (size_t j = i; j > 0 && v[j] > v[j - 1]; j--) {
            int64_t swap = v[j];
            v[j] = v[j - 1];
            v[j - 1] = swap;
        }
    }
    return v[QK_NEED - 1];
}

/* Both looks around it, unless a renewal came in between. */
static void valid_is_third(struct qk_party *p)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    for (;;) {
        int64_t before = third(p), valid = dibs_lock_valid_ms(p->q, 0);
        int64_t after = third(p);
        if (before >= valid && valid >= after)
            return;
        if (!ts_wait_step(&w))
            fail_msg("valid for %lld, not %lld to %lld", (long long)valid,
                     (long long)after, (long long)before);
    }
}

static void test_quorum_valid_ms(void **state)
{
    int64_t lease = kit_ms(6000);
    struct qk_party p;

    (void)state;
    take_all("valid", &p, lease);
    valid_is_third(&p);
    qk_break(QK_PAUSED, 0x05); /* two fall behind, which does not matter */
    TS_WAIT(qk_member(&p, 0).valid_ms < lease / 2);
    valid_is_third(&p);
    TS_WAIT(dibs_lock_valid_ms(p.q, 0) > qk_member(&p, 0).valid_ms + lease / 6);
    qk_break(QK_PAUSED, 0x08); /* the third does */
    TS_WAIT(dibs_lock_valid_ms(p.q, 0) < lease / 2);
    valid_is_third(&p);
    TS_WAIT(dibs_lock_state(p.q, 0) == DIBS_SUSPECT);
    qk_mend(0x0d);
    TS_WAIT(dibs_lock_state(p.q, 0) == DIBS_HELD);
    TS_WAIT(dibs_lock_valid_ms(p.q, 0) > lease / 2);
    QK_WANT("valid", dibs_lock_release(p.q, NULL), DIBS_OK);
    end("valid", &p, 0);
}

/* A lease of its own is not renewed, and ends. */
static void test_quorum_lease_ms(void **state)
{
    struct qk_party p;
    int64_t lease = kit_ms(800);

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    QK_WANT("lease",
            dibs_lock_acquire(
                p.q, DIBS_LOCK_OPTS(.lease_ms = lease, .wait_ms = TS_SOON,
                                    .on_lost = kit_lost, .arg = &p.lost)),
            DIBS_OK);
    assert_true(dibs_lock_valid_ms(p.q, 0) < lease);
    for (size_t i = 0; i < QK_N; i++)
        assert_true(ts_pttl(qk_nodes[i].srv, p.name) <= lease);
    lost_once("lease", &p);
    end("lease", &p, 1);
}

static void test_quorum_max_hold_ms(void **state)
{
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){.lease_ms = LEASE_MS});
    QK_WANT("max hold",
            dibs_lock_acquire(
                p.q, DIBS_LOCK_OPTS(.max_hold_ms = LEASE_MS * 5 / 2,
                                    .wait_ms = TS_SOON, .on_lost = kit_lost,
                                    .arg = &p.lost)),
            DIBS_OK);
    renewals(QK_ALL, 2);
    lost_once("max hold", &p);
    end("max hold", &p, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_quorum_two_silent, qk_fresh),
        cmocka_unit_test_setup(test_quorum_one_key_gone, qk_fresh),
        cmocka_unit_test_setup(test_quorum_two_keys_gone, qk_fresh),
        cmocka_unit_test_setup(test_quorum_three_paused, qk_fresh),
        cmocka_unit_test_setup(test_quorum_valid_ms, qk_fresh),
        cmocka_unit_test_setup(test_quorum_max_hold_ms, qk_fresh),
        cmocka_unit_test_setup(test_quorum_renewed, qk_fresh),
        cmocka_unit_test_setup(test_quorum_keys_taken_over, qk_fresh),
        cmocka_unit_test_setup(test_quorum_two_restarted, qk_fresh),
        cmocka_unit_test_setup(test_quorum_lost, qk_fresh),
        cmocka_unit_test_setup(test_quorum_lost_by_and_by, qk_fresh),
        cmocka_unit_test_setup(test_quorum_three_cut_off, qk_fresh),
        cmocka_unit_test_setup(test_quorum_three_dead, qk_fresh),
        cmocka_unit_test_setup(test_quorum_lost_nested, qk_fresh),
        cmocka_unit_test_setup(test_quorum_lease_ms, qk_fresh),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return TS_RUN_PARALLEL("fault.quorum_lost", tests, qk_up, qk_down);
}
