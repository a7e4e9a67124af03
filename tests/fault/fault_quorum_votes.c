/* SPDX-License-Identifier: MIT
 *
 * fault_quorum_votes.c - whose vote counts, and for how long a quorum waits for
 * one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/quorum_kit.h"

#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- a vote that does not count yet ------------------------------------ */

/* Server 3 says yes, but is still to say who it is; the lock is held by the
 * bare majority without it. What it gave ends before it counts: that is no
 * loss. */
static void test_votes_late_and_lost(void **state)
{
    const unsigned late = 3, busy = 4;
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){.lease_ms = kit_ms(3600)});
    unsigned before = kit_told(p.k[late], DIBS_EVENT_CONNECTED);
    ts_proxy_kill_all(qk_nodes[late].px, false); /* so it may be another now */
    TS_WAIT(kit_told(p.k[late], DIBS_EVENT_CONNECTED) > before);
    qk_stranger(1u << busy, p.name);
    int info = ts_proxy_rule(
        qk_nodes[late].px,
        &(struct ts_rule){.action = TS_HOLD_REPLY, .match = "INFO"});
    /* A connection that is made again renews before all else. */
    ts_proxy_rule(qk_nodes[late].px,
                  &(struct ts_rule){.action = TS_HOLD_REPLY,
                                    .match = "EVAL*",
                                    .contains = dibs__script_mutex_renew.sha});
    qk_take("late", &p);
    assert_true(ts_rule_wait(qk_nodes[late].px, info, 1, TS_SOON));
    assert_int_equal(qk_held(&p), 0x07);
    TS_WAIT(kit_told(p.k[late], DIBS_EVENT_LOST) == 1);
    assert_int_equal(atomic_load(&p.lost), 0);
    TS_WAIT(dibs_lock_state(p.q, 0) == DIBS_HELD); /* a renewal may be late */
    QK_WANT("late", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_unrule(1u << late);
    qk_stranger_off(1u << busy, p.name);
    qk_clean("late", QK_ALL, 0);
    assert_int_equal(atomic_load(&p.lost), 0);
    qk_part(&p);
}

/* ---- what counts as lost ------------------------------------------------ */

/* The server of the member that is looked at first. */
static unsigned first_server(struct qk_party *p)
{
    unsigned first = 0;

    for (unsigned i = 1; i < QK_N; i++)
        if (strcmp(qk_member(p, i).server, qk_member(p, first).server) < 0)
            first = i;
    return first;
}

/* These servers take the lock, and nobody hears of it. */
static void hold_answers(unsigned mask)
{
    qk_rule(mask,
            &(struct ts_rule){.action = TS_HOLD_REPLY,
                              .contains = dibs__script_mutex_acquire.sha},
            NULL);
}

/* As above; then the lock is lost, and given back. The one server still has not
 * said who it is: what it gave is over, and was never the owner's. So the next
 * acquire, for which there is no majority, is too late, and has lost nothing.
 */
static void test_votes_rest_is_no_loss(void **state)
{
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    unsigned late = first_server(&p), one = 1u << late;
    unsigned busy = 1u << (late + 1) % QK_N | 1u << (late + 2) % QK_N;
    unsigned silent = QK_ALL & ~(busy | one);
    unsigned before = kit_told(p.k[late], DIBS_EVENT_CONNECTED);
    ts_proxy_kill_all(qk_nodes[late].px, false); /* so it may be another now */
    TS_WAIT(kit_told(p.k[late], DIBS_EVENT_CONNECTED) > before);
    int info = ts_proxy_rule(
        qk_nodes[late].px,
        &(struct ts_rule){.action = TS_HOLD_REPLY, .match = "INFO"});
    QK_WANT("rest",
            dibs_lock_acquire(p.q, DIBS_LOCK_OPTS(.lease_ms = kit_ms(500),
                                                  .member_ms = TS_SOON)),
            DIBS_OK);
    assert_true(ts_rule_wait(qk_nodes[late].px, info, 1, TS_SOON));
    TS_WAIT(kit_told(p.k[late], DIBS_EVENT_LOST) == 1 &&
            dibs_lock_state(p.q, 0) == DIBS_LOST);
    QK_WANT("rest", dibs_lock_release(p.q, NULL), DIBS_ERR_LOST);
    TS_WAIT(!qk_mine(&p, QK_ALL));
    qk_stranger(busy, p.name);
    hold_answers(silent);
    QK_WANT(
        "rest",
        dibs_lock_acquire(p.q, DIBS_LOCK_OPTS(.wait_ms = 100, .member_ms = 50)),
        DIBS_ERR_TIMEOUT);
    qk_unrule(QK_ALL);
    qk_stranger_off(busy, p.name);
    qk_clean("rest", QK_ALL, 0);
    qk_works("rest", &p);
    qk_part(&p);
}

/* One of five is lost, and the lock is not. When it is taken again, two of the
 * others do not answer: that is why it fails. */
static void test_votes_minority_lost(void **state)
{
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    unsigned gone = first_server(&p);
    qk_take_all("minority", &p);
    ts_ok(qk_nodes[gone].srv, "DEL %s", p.name);
    hold_answers(1u << (gone + 1) % QK_N | 1u << (gone + 2) % QK_N);
    QK_WANT("minority", dibs_lock_try(p.q, DIBS_LOCK_OPTS(.member_ms = 50)),
            DIBS_ERR_UNKNOWN);
    assert_int_equal(qk_member(&p, gone).state, DIBS_LOST);
    assert_int_equal(dibs_lock_state(p.q, 0), DIBS_HELD);
    qk_unrule(QK_ALL);
    QK_WANT("minority", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("minority", QK_ALL, 0);
    qk_part(&p);
}

/* ---- patience ---------------------------------------------------------- */

/* A majority does not answer. A command may take very long here; what ends the
 * call is the time for one server. */
static void test_votes_patience(void **state)
{
    struct qk_party p;
    int held[QK_N];

    (void)state;
    for (int given = 0; given < 2; given++) { /* by the caller, or by default */
        qk_join(&p, &(struct kit_opts){0});
        qk_rule(0x07,
                &(struct ts_rule){.action = TS_HOLD_REPLY, .match = "EVAL*"},
                held);
        int64_t start = ts_now_ms();
        QK_WANT("patience",
                dibs_lock_try(p.q, DIBS_LOCK_OPTS(.member_ms = given ? 30 : 0)),
                DIBS_ERR_UNKNOWN);
        assert_true(ts_now_ms() - start < TS_SOON / 2);
        QK_EACH(i, 0x07)
        assert_int_equal(ts_rule_done(qk_nodes[i].px, held[i]), 0);
        qk_unrule(0x07);
        qk_clean("patience", QK_ALL, 0);
        qk_works("patience", &p);
        qk_part(&p);
    }
}

/* ---- one slow server --------------------------------------------------- */

/* The one that is heard first. */
static size_t first_heard(struct qk_party *p)
{
    size_t first = 0;

    for (size_t i = 1; i < QK_N; i++)
        if (strcmp(qk_member(p, i).server, qk_member(p, first).server) < 0)
            first = i;
    return first;
}

/* Sync calls have a connection to talk on themselves, beside the main one. */
static void warm(struct qk_party *p)
{
    for (size_t i = 0; i < QK_N; i++) {
        unsigned before = ts_proxy_accepted(qk_nodes[i].px);
        dibs_lock_info info = DIBS_LOCK_INFO_INIT;

        QK_WANT("warm", dibs_lock_info_get(p->l[i], &info), DIBS_OK);
        TS_WAIT(ts_proxy_accepted(qk_nodes[i].px) > before);
    }
}

/* How this thread's next look for a reply goes. The servers that are not slow
 * have answered before: on a busy machine they need longer than it waits. */
static _Thread_local struct look {
    unsigned others; /* 0 = this is not the one */
    int rules[QK_N];
    bool in_vain; /* it waited, and nothing came */
} look;

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    unsigned others = look.others;

    look.others = 0;
    QK_EACH(i, others)
    ts_rule_wait_done(qk_nodes[i].px, look.rules[i], 1, TS_SOON);
    int ready = (int)syscall(SYS_poll, fds, n, timeout);
    look.in_vain |= others && ready == 0;
    return ready;
}

/* The caller hears the servers one after the other. One that keeps it waiting
 * takes the time of the others; but what they said is there by then, and they
 * are not asked again. False: it was another story, because this machine stood
 * still for as long as the slow one takes, or a connection was not ready. */
static bool asked_once(struct qk_party *p)
{
    size_t slow = first_heard(p);
    const unsigned others = QK_ALL & ~(1u << slow);

    warm(p);
    ts_proxy_rule(qk_nodes[slow].px, &(struct ts_rule){.action = TS_DELAY_REPLY,
                                                       .match = "EVAL*",
                                                       .ms = 500});
    qk_rule(others,
            &(struct ts_rule){.match = "EVAL*",
                              .contains = dibs__script_mutex_acquire.sha},
            look.rules);
    look.in_vain = false;
    look.others = others;
    qk_take("one slow", p);
    look.others = 0;
    TS_WAIT((qk_held(p) & others) == others);
    if (look.in_vain)
        QK_EACH(i, others)
    assert_int_equal(ts_rule_hits(qk_nodes[i].px, look.rules[i]), 1);
    qk_unrule(QK_ALL);
    QK_WANT("one slow", dibs_lock_release(p->q, NULL), DIBS_OK);
    qk_clean("one slow", QK_ALL, 0);
    return look.in_vain;
}

static void test_votes_behind_slow_one(void **state)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);
    bool once;

    (void)state;
    do {
        struct qk_party p;
        qk_join(&p, &(struct kit_opts){0});
        once = asked_once(&p);
        qk_part(&p);
    } while (!once && ts_wait_step(&w));
    assert_true(once);
}

/* ---- how long it is held ----------------------------------------------- */

/* Two levels with different votes: the one that ends first counts. */
static void test_votes_of_two_levels(void **state)
{
    const dibs_lock_opts *brief =
        DIBS_LOCK_OPTS(.lease_ms = KIT_LONG / 2, .wait_ms = TS_SOON,
                       .member_ms = TS_SOON);
    const dibs_lock_opts *full =
        DIBS_LOCK_OPTS(.lease_ms = 2 * KIT_LONG, .wait_ms = TS_SOON,
                       .member_ms = TS_SOON);
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_stranger(0x18, p.name);
    QK_WANT("outer", dibs_lock_acquire(p.q, brief), DIBS_OK);
    assert_int_equal(qk_held(&p), 0x07);
    qk_stranger_off(0x18, p.name);
    qk_break(QK_CUT_OFF, 0x03);
    QK_WANT("inner", dibs_lock_acquire(p.q, full), DIBS_OK);
    assert_int_equal(dibs_lock_holds(p.q, 0), 2);
    assert_true(qk_member(&p, 2).valid_ms > KIT_LONG);
    assert_true(qk_member(&p, 3).valid_ms > KIT_LONG);
    assert_true(dibs_lock_valid_ms(p.q, 0) <= KIT_LONG / 2);
    assert_true(dibs_lock_valid_ms(p.q, 0) > 0);
    qk_mend(0x03);
    QK_WANT("inner", dibs_lock_release(p.q, NULL), DIBS_OK);
    QK_WANT("outer", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("levels", QK_ALL, 0);
    qk_part(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_votes_late_and_lost, qk_fresh),
        cmocka_unit_test_setup(test_votes_rest_is_no_loss, qk_fresh),
        cmocka_unit_test_setup(test_votes_minority_lost, qk_fresh),
        cmocka_unit_test_setup(test_votes_patience, qk_fresh),
        cmocka_unit_test_setup(test_votes_behind_slow_one, qk_fresh),
        cmocka_unit_test_setup(test_votes_of_two_levels, qk_fresh),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return TS_RUN_PARALLEL("fault.quorum_votes", tests, qk_up, qk_down);
}
