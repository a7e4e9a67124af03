/* SPDX-License-Identifier: MIT
 *
 * fault_quorum.c - the quorum lock when some of its servers are taken, dead,
 * stopped, slow, mad, empty, or one and the same.
 *
 * It is granted exactly if a majority can be had. When it is not, nothing of
 * ours is on any server; when it was and is given back, nothing stays either,
 * also where nobody could be asked at the time.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/quorum_kit.h"

#include <stdio.h>

static unsigned count_of(unsigned mask)
{
    return (unsigned)__builtin_popcount(mask);
}

/* One attempt, sync or async. */
static dibs_err attempt(struct qk_party *p, bool async, int64_t member_ms)
{
    const dibs_lock_opts *o = DIBS_LOCK_OPTS(.member_ms = member_ms);
    dibs_owner owner = dibs_owner_thread(p->k[0]->c);
    struct kit_end end = {.err = DIBS_OK};

    if (!async)
        return dibs_lock_try(p->q, o);
    dibs_lock_opts mine = *o;
    mine.owner = owner;
    dibs_err err = dibs_lock_try_async(p->q, &mine, kit_ended, &end);
    return err == DIBS_OK ? kit_wait(&end) : err;
}

/* ---- strangers --------------------------------------------------------- */

/* The lock is ours, wherever no stranger has it. */
static void have_the_rest(const char *where, struct qk_party *p,
                          unsigned strangers)
{
    unsigned want = QK_ALL & ~strangers;
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (qk_mine(p, QK_ALL) != want || qk_held(p) != want)
        if (!ts_wait_step(&w))
            fail_msg("%s: the servers have %#x, the library %#x", where,
                     qk_mine(p, QK_ALL), qk_held(p));
    assert_int_equal(dibs_lock_state(p->q, 0), DIBS_HELD);
    assert_int_equal(dibs_lock_holds(p->q, 0), 1);
    QK_WANT(where, dibs_lock_release(p->q, NULL), DIBS_OK);
}

static void have_nothing(const char *where, struct qk_party *p)
{
    unsigned left = qk_mine(p, QK_ALL); /* now, not soon */

    if (left)
        fail_msg("%s: not granted, and %#x have it", where, left);
    assert_int_equal(dibs_lock_state(p->q, 0), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_valid_ms(p->q, 0), 0);
    QK_WANT(where, dibs_lock_release(p->q, NULL), DIBS_ERR_NOT_OWNER);
}

static void try_among(struct qk_party *p, unsigned strangers, bool async)
{
    bool free = count_of(strangers) <= QK_N - QK_NEED;
    char where[64];

    snprintf(where, sizeof where, "strangers %#x, %s", strangers,
             async ? "async" : "sync");
    qk_stranger(strangers, p->name);
    QK_WANT(where, attempt(p, async, TS_SOON), free ? DIBS_OK : DIBS_ERR_BUSY);
    if (free)
        have_the_rest(where, p, strangers);
    else
        have_nothing(where, p);
    qk_clean(where, QK_ALL, strangers);
    qk_stranger_off(strangers, p->name);
}

/* All 32 sets of servers. */
static void test_quorum_strangers(void **state)
{
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    for (unsigned mask = 0; mask <= QK_ALL; mask++) {
        try_among(&p, mask, false);
        try_among(&p, mask, true);
    }
    qk_part(&p);
}

/* What each server said, for a lock that was granted and one that was not. */
static void test_quorum_verdicts(void **state)
{
    static const unsigned sets[] = {0x00, 0x03, 0x18, 0x07, 0x15, 0x1f};
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    for (size_t i = 0; i < COUNT(sets); i++) {
        qk_stranger(sets[i], p.name);
        dibs_err err = attempt(&p, false, TS_SOON);
        for (size_t m = 0; m < QK_N; m++) {
            bool taken = sets[i] >> m & 1;
            TS_WAIT(qk_member(&p, m).verdict !=
                    (taken ? DIBS_OK : DIBS_ERR_BUSY));
            if (taken)
                TS_WAIT(qk_member(&p, m).verdict == DIBS_ERR_BUSY);
            else if (err == DIBS_OK)
                TS_WAIT(qk_member(&p, m).state == DIBS_HELD);
            if (err != DIBS_OK)
                assert_int_equal(qk_member(&p, m).state, DIBS_NOT_HELD);
        }
        if (err == DIBS_OK)
            QK_WANT("verdicts", dibs_lock_release(p.q, NULL), DIBS_OK);
        qk_clean("verdicts", QK_ALL, sets[i]);
        qk_stranger_off(sets[i], p.name);
    }
    qk_part(&p);
}

/* The one that waits gets it when the third server is free, and not before. */
static void test_quorum_waits(void **state)
{
    struct kit_end end = {.err = DIBS_OK};
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_stranger(0x07, p.name);
    QK_WANT("waits", dibs_lock_acquire(p.q, DIBS_LOCK_OPTS(.wait_ms = 50)),
            DIBS_ERR_TIMEOUT);
    assert_int_equal(qk_mine(&p, QK_ALL), 0);
    QK_WANT("waits",
            dibs_lock_acquire_async(
                p.q, DIBS_LOCK_OPTS(.owner = dibs_owner_thread(p.k[0]->c)),
                kit_ended, &end),
            DIBS_OK);
    for (unsigned n = ts_proxy_requests(qk_nodes[0].px, "EVAL*"), i = 1; i < 4;
         i++) /* several rounds, in vain */
        assert_true(
            ts_proxy_wait_requests(qk_nodes[0].px, "EVAL*", n + i, TS_SOON));
    assert_false(atomic_load(&end.over));
    qk_stranger_off(0x04, p.name);
    QK_WANT("waits", kit_wait(&end), DIBS_OK);
    have_the_rest("waits", &p, 0x03);
    qk_clean("waits", QK_ALL, 0x03);
    qk_part(&p);
}

/* ---- servers that are not there ---------------------------------------- */

static bool is_outage(dibs_err err)
{
    return err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN;
}

/* Granted by the others, and no member says yes that cannot have. */
static void granted_without(const char *where, struct qk_party *p, unsigned bad)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while ((qk_held(p) & ~bad) != (QK_ALL & ~bad))
        if (!ts_wait_step(&w))
            fail_msg("%s: held %#x", where, qk_held(p));
    QK_EACH(i, bad)
    if (qk_member(p, i).state != DIBS_NOT_HELD ||
        qk_member(p, i).verdict == DIBS_OK)
        fail_msg("%s: server %zu said yes", where, i);
    assert_int_equal(dibs_lock_state(p->q, 0), DIBS_HELD);
    assert_int_equal(qk_mine(p, QK_ALL & ~bad), QK_ALL & ~bad);
    QK_WANT(where, dibs_lock_release(p->q, NULL), DIBS_OK);
    qk_clean(where, QK_ALL & ~bad, 0);
}

/* lazy: the servers are gone before the clients come. */
static void try_without(enum qk_fault fault, unsigned bad, bool lazy)
{
    struct qk_party p;
    char where[64];

    snprintf(where, sizeof where, "%s %#x%s", qk_fault_names[fault], bad,
             lazy ? ", lazy" : "");
    if (lazy)
        qk_break(fault, bad);
    qk_join(&p, &(struct kit_opts){.lazy = lazy});
    if (!lazy)
        qk_break(fault, bad);
    int64_t begun = ts_now_ms();
    bool enough = count_of(bad) <= QK_N - QK_NEED;
    dibs_err err =
        enough ? dibs_lock_acquire(p.q, DIBS_LOCK_OPTS(.wait_ms = TS_SOON))
               : dibs_lock_try(p.q, NULL);
    if (enough ? err != DIBS_OK : !is_outage(err))
        fail_msg("%s: %s", where, dibs_strerror(err));
    assert_true(ts_now_ms() - begun < TS_SOON / 2); /* no connection's limit */
    if (enough)
        granted_without(where, &p, bad);
    qk_clean(where, QK_ALL & ~bad, 0);
    qk_mend(bad);
    qk_clean(where, QK_ALL, 0);
    qk_works(where, &p);
    qk_part(&p);
}

static void test_quorum_dead(void **state)
{
    static const unsigned sets[] = {0x01, 0x10, 0x03, 0x11, 0x18,
                                    0x07, 0x15, 0x1e, 0x1f};

    (void)state;
    for (size_t i = 0; i < COUNT(sets); i++) {
        try_without(QK_DEAD, sets[i], i % 2);
        try_without(QK_CUT_OFF, sets[i], (i + 1) % 2);
    }
}

/* ---- two that are not well --------------------------------------------- */

/* Some of these faults leave something on the server that nobody heard of. */
static void two_bad(enum qk_fault fault, unsigned bad, bool at_once)
{
    struct qk_party p;
    char where[64];

    snprintf(where, sizeof where, "two %s, %#x", qk_fault_names[fault], bad);
    qk_join(&p, &(struct kit_opts){.timeout_ms = ts_ms(3000)});
    if (fault == QK_RESTARTED) /* they knew us before */
        qk_works(where, &p);
    qk_break(fault, bad);
    int64_t begun = ts_now_ms();
    QK_WANT(where,
            dibs_lock_acquire(p.q, DIBS_LOCK_OPTS(.wait_ms = TS_SOON,
                                                  .on_lost = kit_lost,
                                                  .arg = &p.lost)),
            DIBS_OK);
    if (ts_now_ms() - begun > TS_SOON / 2)
        fail_msg("%s: somebody was waited for", where);
    if (fault == QK_RESTARTED)
        bad = 0;
    if (at_once)
        QK_WANT(where, dibs_lock_release(p.q, NULL), DIBS_OK);
    else
        granted_without(where, &p, bad);
    qk_mend(bad);
    qk_clean(where, QK_ALL, 0);
    assert_int_equal(atomic_load(&p.lost), 0);
    qk_works(where, &p);
    qk_part(&p);
}

static void test_quorum_two_bad(void **state)
{
    static const unsigned pairs[] = {0x03, 0x18, 0x12};

    (void)state;
    for (enum qk_fault fault = 0; fault < QK_FAULTS; fault++)
        for (size_t i = 0; i < COUNT(pairs); i++)
            if (fault != QK_SLOW || i == 0)
                two_bad(fault, pairs[i], i == 1);
}

/* The slow ones are 2 s late, and are given back once they answer. */
static void test_quorum_slow_given_back(void **state)
{
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_break(QK_SLOW, 0x11);
    qk_take("slow", &p);
    TS_WAIT(qk_mine(&p, 0x11) == 0x11); /* there, but we do not know */
    assert_int_equal(qk_held(&p) & 0x11, 0);
    QK_WANT("slow", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("slow", QK_ALL, 0); /* still slow */
    qk_unrule(0x11);
    qk_works("slow", &p);
    qk_part(&p);
}

/* ---- three that are not ------------------------------------------------ */

/* However it is asked for: a clear answer, no connection's limit waited for,
 * nothing left on the other two; nor on the three, when they come to. */
static void three_bad(enum qk_fault fault, unsigned bad, bool wait)
{
    struct qk_party p;
    char where[64];

    snprintf(where, sizeof where, "three %s, %#x", qk_fault_names[fault], bad);
    qk_join(&p, &(struct kit_opts){0});
    qk_break(fault, bad);
    int64_t begun = ts_now_ms();
    /* The other two have the time to answer, and to take it back. */
    const dibs_lock_opts *o = DIBS_LOCK_OPTS(.wait_ms = wait ? ts_ms(2000) : 0,
                                             .member_ms = ts_ms(2000));
    dibs_err err = wait ? dibs_lock_acquire(p.q, o) : dibs_lock_try(p.q, o);
    if (!is_outage(err))
        fail_msg("%s: %s", where, dibs_strerror(err));
    assert_true(ts_now_ms() - begun < TS_SOON / 2);
    assert_int_equal(dibs_lock_state(p.q, 0), DIBS_NOT_HELD);
    if (qk_mine(&p, QK_ALL & ~bad)) /* now, not soon */
        fail_msg("%s: left on %#x", where, qk_mine(&p, QK_ALL & ~bad));
    qk_mend(bad);
    qk_clean(where, QK_ALL, 0);
    qk_works(where, &p);
    qk_part(&p);
}

static void three_bad_both_ways(enum qk_fault fault)
{
    three_bad(fault, 0x07, false);
    three_bad(fault, 0x1a, true);
}

static void test_quorum_three_dead(void **state)
{
    (void)state;
    three_bad_both_ways(QK_DEAD);
}

static void test_quorum_three_cut_off(void **state)
{
    (void)state;
    three_bad_both_ways(QK_CUT_OFF);
}

static void test_quorum_three_paused(void **state)
{
    (void)state;
    three_bad_both_ways(QK_PAUSED);
}

/* A majority that comes back is a majority. */
static void test_quorum_three_come_back(void **state)
{
    struct kit_end end = {.err = DIBS_OK};
    struct qk_party p;

    (void)state;
    qk_join(&p, &(struct kit_opts){0});
    qk_break(QK_CUT_OFF, 0x07);
    QK_WANT("back",
            dibs_lock_acquire_async(
                p.q, DIBS_LOCK_OPTS(.owner = dibs_owner_thread(p.k[0]->c)),
                kit_ended, &end),
            DIBS_OK);
    assert_true(ts_proxy_wait_requests(qk_nodes[4].px, "EVAL*", 4, TS_SOON));
    assert_false(atomic_load(&end.over));
    qk_mend(0x07);
    QK_WANT("back", kit_wait(&end), DIBS_OK);
    QK_WANT("back", dibs_lock_release(p.q, NULL), DIBS_OK);
    qk_clean("back", QK_ALL, 0);
    qk_part(&p);
}

/* ---- servers that are one and the same --------------------------------- */

static dibs_lock *read_lock(struct kit_client *k, const char *name)
{
    dibs_lock *l = NULL;

    assert_int_equal(dibs_read_lock_new(k->c, name, &l), DIBS_OK);
    return l;
}

/* Members at server a by its socket, at a again by another way, and at b. */
struct twins {
    struct kit_client *k[3];
    dibs_lock *l[3], *q;
};

static void twins_open(struct twins *t, const struct kit_opts *again, bool lazy)
{
    const struct kit_opts o[3] = {{.direct = true}, *again, {.lazy = lazy}};

    for (size_t i = 0; i < 3; i++) {
        kit_srv = qk_nodes[i / 2].srv;
        kit_px = qk_nodes[i / 2].px;
        t->k[i] = kit_open(&o[i]);
        t->l[i] = read_lock(t->k[i], "twin"); /* readers do not mind others */
    }
    t->q = NULL;
}

static void twins_close(struct twins *t)
{
    dibs_lock_free(t->q);
    for (size_t i = 0; i < 3; i++) {
        dibs_lock_free(t->l[i]);
        kit_close(t->k[i]);
    }
}

/* Two addresses, one server: no quorum is made of it. */
static void test_quorum_twins_refused(void **state)
{
    struct twins t;

    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        twins_open(&t, &(struct kit_opts){.tcp = tcp}, false);
        QK_WANT("twins", dibs_quorum_lock_new(t.l, 3, &t.q), DIBS_ERR_INVALID);
        assert_null(t.q);
        twins_close(&t);
    }
}

/* One that could not be asked when it was made is asked when it votes; and it
 * never votes twice, however often it is tried. */
static void test_quorum_twins_found_later(void **state)
{
    struct twins t;

    (void)state;
    qk_break(QK_CUT_OFF, 0x03); /* the way again, and b */
    twins_open(&t, &(struct kit_opts){.lazy = true}, true);
    QK_WANT("twins", dibs_quorum_lock_new(t.l, 3, &t.q), DIBS_OK);
    ts_proxy_refuse(qk_nodes[0].px, false);
    for (int i = 0; i < 3; i++) {
        QK_WANT(
            i ? "twins, once more" : "twins",
            dibs_lock_acquire(t.q, DIBS_LOCK_OPTS(.wait_ms = TS_SOON,
                                                  .member_ms = TS_SOON / 4)),
            DIBS_ERR_INVALID);
        qk_clean("twins", 0x01, 0);
    }
    qk_mend(0x03);
    twins_close(&t);
    qk_clean("twins", QK_ALL, 0);
}

/* ---- rights ------------------------------------------------------------ */

static void test_quorum_without_info(void **state)
{
    struct qk_party p;

    (void)state;
    for (size_t i = 0; i < QK_N; i++)
        ts_ok(qk_nodes[i].srv,
              "ACL SETUSER shy reset on >pass ~* &* +@all -info");
    qk_join(&p, &(struct kit_opts){.name = "shy"});
    qk_works("without INFO", &p);
    for (size_t i = 0; i < QK_N; i++)
        TS_WAIT(kit_heard(p.k[i], DIBS_EVENT_WARNING, DIBS_ERR_AUTH, "INFO"));
    qk_part(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_quorum_strangers, qk_fresh),
        cmocka_unit_test_setup(test_quorum_verdicts, qk_fresh),
        cmocka_unit_test_setup(test_quorum_waits, qk_fresh),
        cmocka_unit_test_setup(test_quorum_dead, qk_fresh),
        cmocka_unit_test_setup(test_quorum_two_bad, qk_fresh),
        cmocka_unit_test_setup(test_quorum_slow_given_back, qk_fresh),
        cmocka_unit_test_setup(test_quorum_three_dead, qk_fresh),
        cmocka_unit_test_setup(test_quorum_three_cut_off, qk_fresh),
        cmocka_unit_test_setup(test_quorum_three_paused, qk_fresh),
        cmocka_unit_test_setup(test_quorum_three_come_back, qk_fresh),
        cmocka_unit_test_setup(test_quorum_twins_refused, qk_fresh),
        cmocka_unit_test_setup(test_quorum_twins_found_later, qk_fresh),
        cmocka_unit_test_setup(test_quorum_without_info, qk_fresh),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return TS_RUN_PARALLEL("fault.quorum", tests, qk_up, qk_down);
}
