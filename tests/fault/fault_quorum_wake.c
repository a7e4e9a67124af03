/* SPDX-License-Identifier: MIT
 *
 * fault_quorum_wake.c - a waiter of a quorum lock is woken by messages, and
 * gets along without.
 *
 * A waiter that hears nothing looks after a second or two. That it does not
 * sleep that out is seen by doing it often: all of it must be over sooner than
 * so many seconds.
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_quorum_is_woken, qk_fresh),
        cmocka_unit_test_setup(test_quorum_without_messages, qk_fresh),
        cmocka_unit_test_setup(test_quorum_waiter_closed, qk_fresh),
    };

    return cmocka_run_group_tests_name("quorum wake", tests, qk_up, qk_down);
}
