/* SPDX-License-Identifier: MIT
 *
 * topology_groups.c - several locks at once, in a cluster.
 *
 * Members in one slot are one command; others are asked one by one, at their
 * own nodes. All or none holds anyway, also while slots move.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "topology/kit.h"

#include "support/witness.h"

#define LEASE_MS   ts_ms(8000)
#define COMMAND_MS ts_ms(2000)
#define NAMES      6

static struct top_cluster top;

static int up(void **state)
{
    (void)state;
    top_cluster_start(&top, NULL);
    return 0;
}

static int down(void **state)
{
    (void)state;
    top_cluster_stop(&top);
    return 0;
}

static dibs_client *open_client(void)
{
    dibs_client *c = NULL;

    want("opening",
         dibs_client_open(top.url,
                          DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS,
                                           .command_timeout_ms = COMMAND_MS),
                          &c),
         DIBS_OK);
    return c;
}

/* So many names, two of a tag each; all kinds in turns. */
static dibs_lock *new_group(dibs_client *c, bool backward, bool one_kind)
{
    dibs_lock *m[NAMES], *l = NULL;

    for (int i = 0; i < NAMES; i++) {
        int n = backward ? NAMES - 1 - i : i;
        char name[40];
        snprintf(name, sizeof name, "{tag%d}:%d", n / 2, n);
        m[i] = top_lock(c, one_kind ? 0 : (size_t)n % COUNT(top_kinds), name);
    }
    want("a group", dibs_multi_lock_new(m, NAMES, &l), DIBS_OK);
    for (int i = 0; i < NAMES; i++)
        dibs_lock_free(m[i]);
    return l;
}

static long long all_keys(void)
{
    long long n = 0;

    for (int i = 0; i < 3; i++)
        n += ts_nkeys(top.node[i]);
    return n;
}

/* ---- all or none ------------------------------------------------------- */

static void test_all_or_none(void **state)
{
    dibs_client *c = open_client(), *other = open_client();
    dibs_lock *l = new_group(c, false, false);

    (void)state;
    for (int i = 0; i < NAMES; i += 3) {
        char name[40];
        dibs_member m = DIBS_MEMBER_INIT;
        snprintf(name, sizeof name, "{tag%d}:%d", i / 2, i);
        dibs_lock *one = top_lock(other, (size_t)i % COUNT(top_kinds), name);
        want("one of them", dibs_lock_acquire(one, NULL), DIBS_OK);
        want("all", dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
        want("who", dibs_lock_members(l, (size_t)i, 0, &m), DIBS_OK);
        assert_int_equal(m.verdict, DIBS_ERR_BUSY);
        want("all, in time",
             dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 100)),
             DIBS_ERR_TIMEOUT);
        want("giving back", dibs_lock_release(one, NULL), DIBS_OK);
        TS_WAIT(all_keys() == 0);
        dibs_lock_free(one);
    }
    want("all", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("once more", dibs_lock_acquire(l, NULL), DIBS_OK);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD);
    want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    TS_WAIT(all_keys() == 0);
    dibs_lock_free(l);
    dibs_client_free(other);
    dibs_client_free(c);
}

/* Two plain locks of a tag are one command each way. */
static void test_one_command(void **state)
{
    dibs_client *c = open_client();
    dibs_lock *m[] = {top_lock(c, 0, "{one}:a"), top_lock(c, 0, "{one}:b")};
    dibs_lock *l = NULL;
    int node = top_owner(&top, top_slot(&top, "{one}:a"));

    (void)state;
    want("a group", dibs_multi_lock_new(m, 2, &l), DIBS_OK);
    want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    ts_reset_stats(top.node[node]);
    want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    assert_int_equal(ts_command_calls(top.node[node], "evalsha"), 2);
    dibs_lock_free(l);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    dibs_client_free(c);
}

/* ---- while slots move -------------------------------------------------- */

struct worker {
    pthread_t thread;
    dibs_client *c;
    bool backward;
    size_t number;
};

static struct ts_witness *witness;
static atomic_bool stop;
static atomic_uint rounds;

static void *work(void *arg)
{
    struct worker *w = arg;
    dibs_lock *l = new_group(w->c, w->backward, true);

    while (!atomic_load(&stop)) {
        dibs_err err = dibs_lock_acquire(l, NULL);
        if (err != DIBS_OK)
            ts_fatal("acquire: %s", dibs_strerror(err));
        ts_witness_enter(witness, 0, w->number);
        atomic_fetch_add(&rounds, 1);
        ts_witness_leave(witness, 0, w->number);
        err = dibs_lock_release(l, NULL);
        if (err != DIBS_OK)
            ts_fatal("release: %s", dibs_strerror(err));
    }
    dibs_lock_free(l);
    return NULL;
}

static void goes_on(void)
{
    unsigned before = atomic_load(&rounds);

    TS_WAIT(atomic_load(&rounds) > before + 20);
}

static void test_slots_move(void **state)
{
    struct worker w[4];

    (void)state;
    witness = ts_witness_new(1, COUNT(w));
    for (size_t i = 0; i < COUNT(w); i++) {
        w[i] =
            (struct worker){.c = open_client(), .backward = i % 2, .number = i};
        pthread_create(&w[i].thread, NULL, work, &w[i]);
    }
    goes_on();
    for (int i = 0; i < 6; i++) {
        char key[16];
        snprintf(key, sizeof key, "{tag%d}", i % 3);
        int slot = top_slot(&top, key), from = top_owner(&top, slot);
        top_move_slot(&top, slot, from, (from + 1) % 3);
        goes_on();
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < COUNT(w); i++)
        pthread_join(w[i].thread, NULL);
    assert_int_equal(ts_witness_violations(witness), 0);
    for (size_t i = 0; i < COUNT(w); i++)
        dibs_client_free(w[i].c);
    TS_WAIT(all_keys() == 0);
    ts_witness_free(witness);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_or_none),
        cmocka_unit_test(test_one_command),
        cmocka_unit_test(test_slots_move),
    };

    return cmocka_run_group_tests(tests, up, down);
}
