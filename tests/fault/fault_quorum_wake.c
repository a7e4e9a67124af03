/* SPDX-License-Identifier: MIT
 *
 * fault_quorum_wake.c - a waiter of a quorum lock is woken by messages, and
 * gets along without.
 *
 * A waiter that hears nothing looks after a second or two. That it does not
 * sleep that out is seen by doing it often: all of it must be over sooner than
 * so many seconds.
 *
 * That rounds do not start each other is seen by counting what a server was
 * asked until all waiters have given up.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/quorum_kit.h"

#include <stdlib.h>

#define OFTEN 40 /* pauses of a second or more are longer than TS_SOON */

static unsigned asked(size_t i)
{
    return ts_proxy_requests(qk_nodes[i].px, "EVALSHA");
}

/* It listens everywhere, and has asked more than once. */
static void is_asleep(struct qk_party *p, unsigned before)
{
    char *channel = ts_text("redisson_lock__channel:{%s}", p->name);

    QK_EACH(i, QK_ALL)
    assert_true(ts_wait_numsub(qk_nodes[i].srv, channel, 1));
    TS_WAIT(asked(0) >= before + 2);
    free(channel);
}

static void change_hands(struct qk_party *has, struct qk_party *wants)
{
    struct kit_end end = {.err = DIBS_OK};
    dibs_owner owner = dibs_owner_new(wants->k[0]->c);
    const dibs_lock_opts *o = DIBS_LOCK_OPTS(.owner = owner);

    QK_WANT("taking", dibs_lock_acquire(has->q, NULL), DIBS_OK);
    unsigned before = asked(0);
    QK_WANT("lining up", dibs_lock_acquire_async(wants->q, o, kit_ended, &end),
            DIBS_OK);
    is_asleep(wants, before);
    assert_false(atomic_load(&end.over));
    QK_WANT("giving back", dibs_lock_release(has->q, NULL), DIBS_OK);
    kit_want("waiting", kit_wait(&end), DIBS_OK);
    QK_WANT("giving back", dibs_lock_release(wants->q, o), DIBS_OK);
}

static void test_quorum_is_woken(void **state)
{
    struct qk_party a, b;
    struct ts_wait w = ts_wait_begin(TS_SOON);

    (void)state;
    qk_join(&a, &(struct kit_opts){.lease_ms = 0});
    qk_join_as(&b, &(struct kit_opts){.lease_ms = 0}, a.name);
    for (int i = 0; i < OFTEN; i++) {
        change_hands(&a, &b);
        if (!ts_wait_step(&w))
            fail_msg("%d changes of hands took too long", i + 1);
    }
    qk_part(&b);
    qk_part(&a);
}

static void test_quorum_without_messages(void **state)
{
    struct qk_party a, b;

    (void)state;
    qk_join(&a, &(struct kit_opts){.lease_ms = 0});
    qk_join_as(&b, &(struct kit_opts){.lease_ms = 0}, a.name);
    qk_rule(QK_ALL, &(struct ts_rule){.action = TS_SWALLOW_MESSAGE}, NULL);
    change_hands(&a, &b);
    qk_unrule(QK_ALL);
    qk_part(&b);
    qk_part(&a);
}

/* Some of its clients close while it waits: the others go on, or it ends. */
static void test_quorum_waiter_closed(void **state)
{
    struct qk_party a, b;
    struct kit_end end = {.err = DIBS_OK};

    (void)state;
    qk_join(&a, &(struct kit_opts){.lease_ms = 0});
    qk_join_as(&b, &(struct kit_opts){.lease_ms = 0}, a.name);
    QK_WANT("taking", dibs_lock_acquire(a.q, NULL), DIBS_OK);
    unsigned before = asked(0);
    QK_WANT("lining up",
            dibs_lock_acquire_async(
                b.q, DIBS_LOCK_OPTS(.owner = dibs_owner_new(b.k[0]->c)),
                kit_ended, &end),
            DIBS_OK);
    is_asleep(&b, before);
    qk_part(&b);
    assert_true(atomic_load(&end.over));
    assert_int_equal(end.err, DIBS_ERR_CLOSED);
    QK_WANT("giving back", dibs_lock_release(a.q, NULL), DIBS_OK);
    qk_part(&a);
}

/* ---- rounds do not start rounds ---------------------------------------- */

#define WAITERS   4
#define WAIT_MS   2000
#define SCRIPTS   600 /* at one server; rounds that start rounds send more */
#define FEW_ASKED 40

static void line_up(struct qk_party *p, struct kit_end ends[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        QK_WANT(
            "lining up",
            dibs_lock_acquire_async(
                p[i].q,
                DIBS_LOCK_OPTS(.owner = dibs_owner_new(p[i].k[0]->c),
                               .wait_ms = WAIT_MS, .member_ms = TS_SOON / 4),
                kit_ended, &ends[i]),
            DIBS_OK);
}

/* Two servers grant each round something, which goes back and sends messages:
 * to the waiter itself, and to the others. */
static void test_quorum_rounds_collide(void **state)
{
    struct qk_party p[WAITERS];
    struct kit_end ends[WAITERS] = {{.err = DIBS_OK}};

    (void)state;
    qk_join(&p[0], &(struct kit_opts){.lease_ms = 0});
    for (size_t i = 1; i < WAITERS; i++)
        qk_join_as(&p[i], &(struct kit_opts){.lease_ms = 0}, p[0].name);
    qk_stranger(0x07, p[0].name);
    unsigned before = asked(QK_N - 1);
    line_up(p, ends, WAITERS);
    for (size_t i = 0; i < WAITERS; i++)
        kit_want("waiting", kit_wait(&ends[i]), DIBS_ERR_TIMEOUT);
    assert_in_range(asked(QK_N - 1) - before, WAITERS, SCRIPTS);
    qk_clean("given up", QK_ALL, 0x07);
    qk_stranger_off(0x07, p[0].name);
    for (size_t i = WAITERS; i-- > 0;)
        qk_part(&p[i]);
}

/* One server says over and over that it is free: that is no majority. */
static void test_quorum_few_say_so(void **state)
{
    struct qk_party p;
    struct kit_end end = {.err = DIBS_OK};
    struct ts_wait w = ts_wait_begin(TS_SOON);

    (void)state;
    qk_join(&p, &(struct kit_opts){.lease_ms = 0});
    qk_stranger(QK_ALL, p.name);
    unsigned before = asked(0);
    line_up(&p, &end, 1);
    while (!atomic_load(&end.over)) {
        ts_ok(qk_nodes[0].srv, "PUBLISH redisson_lock__channel:{%s} 0", p.name);
        assert_true(ts_wait_step(&w));
    }
    kit_want("waiting", kit_wait(&end), DIBS_ERR_TIMEOUT);
    assert_in_range(asked(0) - before, 1, FEW_ASKED);
    qk_stranger_off(QK_ALL, p.name);
    qk_part(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_quorum_is_woken, qk_fresh),
        cmocka_unit_test_setup(test_quorum_without_messages, qk_fresh),
        cmocka_unit_test_setup(test_quorum_waiter_closed, qk_fresh),
        cmocka_unit_test_setup(test_quorum_rounds_collide, qk_fresh),
        cmocka_unit_test_setup(test_quorum_few_say_so, qk_fresh),
    };

    return cmocka_run_group_tests_name("quorum wake", tests, qk_up, qk_down);
}
