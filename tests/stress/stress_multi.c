/* SPDX-License-Identifier: MIT
 *
 * stress_multi.c - two processes take the same six locks as groups, one of them
 * giving the members in one order, the other in the opposite one; others of
 * each process take single ones of them meanwhile. On one server, then with the
 * six on two servers.
 *
 * They must not wait for each other forever, never two have a lock at a time (a
 * witness outside Redis says), nobody starves, and in the end nothing is left
 * on any server.
 *
 * A round is one group taken and given back; $DIBS_STRESS_ROUNDS says how many
 * there are in all. A witness's number is for one lock at a time, so each
 * worker has one for each lock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stress/kit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROCESSES = 2,
    GROUPERS = 2, /* threads of a process that take groups */
    SINGLES = 1,  /* and single locks */
    THREADS = GROUPERS + SINGLES,
    WORKERS = PROCESSES * THREADS,
    NAMES = 6,
    SETS = 5
};

/* Which names a group has, as bits. Any two of the first four meet. */
static const unsigned sets[SETS] = {0x3f, 0x2d, 0x1e, 0x35, 0x21};

/* Between the test and its children. */
struct shared {
    int servers;
    long rounds;       /* to do */
    atomic_long begun; /* of these */
    atomic_long waits; /* that came after a try that found it busy */
};

static struct shared *sh;
static struct ts_server *srv[2];

/* ---- workers, in the children ------------------------------------------ */

struct worker {
    pthread_t thread;
    size_t number;
    unsigned seed;
    bool single;
    dibs_lock *const *locks; /* by name */
    dibs_lock *const *groups;
};

static void enter(struct worker *me, unsigned set)
{
    for (size_t i = 0; i < NAMES; i++)
        if (set >> i & 1)
            ts_witness_enter(st_witness, i, me->number * NAMES + i);
}

static void leave(struct worker *me, unsigned set)
{
    for (size_t i = 0; i < NAMES; i++)
        if (set >> i & 1)
            ts_witness_leave(st_witness, i, me->number * NAMES + i);
}

/* Now and then it gives up at once, or almost; that is not a round. */
static dibs_err take(struct worker *me, dibs_lock *l)
{
    unsigned way = st_dice(&me->seed, 8);
    dibs_err err = DIBS_ERR_BUSY;

    if (way == 0)
        err = dibs_lock_try(l, NULL);
    else if (way == 1)
        err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 3));
    if (err != DIBS_ERR_BUSY && err != DIBS_ERR_TIMEOUT)
        return err;
    if (way < 2)
        atomic_fetch_add(&sh->waits, 1);
    return dibs_lock_acquire(l, NULL);
}

static void one_round(struct worker *me)
{
    size_t which = st_dice(&me->seed, me->single ? NAMES : SETS);
    unsigned set = me->single ? 1u << which : sets[which];
    dibs_lock *l = me->single ? me->locks[which] : me->groups[which];
    dibs_err err = take(me, l);

    if (err != DIBS_OK) {
        st_complain(me->number, "acquire", err);
        return;
    }
    enter(me, set);
    leave(me, set);
    if ((err = dibs_lock_release(l, NULL)) != DIBS_OK)
        st_complain(me->number, "release", err);
}

static void *work(void *arg)
{
    struct worker *me = arg;

    while (!atomic_load(&st_board->stop) &&
           atomic_fetch_add(&sh->begun, !me->single) < sh->rounds)
        one_round(me);
    return NULL;
}

/* ---- a process --------------------------------------------------------- */

struct house {
    dibs_client *c[2];
    dibs_lock *locks[NAMES], *groups[SETS];
};

/* The members of a set, from the last if backwards. */
static dibs_err make_group(struct house *h, unsigned set, bool backwards,
                           dibs_lock **out)
{
    dibs_lock *m[NAMES];
    size_t n = 0;

    for (size_t i = 0; i < NAMES; i++) {
        size_t at = backwards ? NAMES - 1 - i : i;
        if (set >> at & 1)
            m[n++] = h->locks[at];
    }
    return dibs_multi_lock_new(m, n, out);
}

/* The last two are write locks; every other one is on the second server. */
static dibs_err furnish(struct house *h, bool backwards)
{
    dibs_err err = DIBS_OK;
    char name[2] = "a";

    for (int i = 0; i < sh->servers && err == DIBS_OK; i++)
        err = dibs_client_open(ts_server_url(srv[i]),
                               DIBS_CLIENT_OPTS(.lease_ms = ts_ms(10000)),
                               &h->c[i]);
    for (int i = 0; i < NAMES && err == DIBS_OK; i++, name[0]++) {
        dibs_client *c = h->c[i % sh->servers];
        err = i < NAMES - 2 ? dibs_lock_new(c, name, &h->locks[i])
                            : dibs_write_lock_new(c, name, &h->locks[i]);
    }
    for (int i = 0; i < SETS && err == DIBS_OK; i++)
        err = make_group(h, sets[i], backwards, &h->groups[i]);
    return err;
}

static dibs_err clear_out(struct house *h)
{
    dibs_err err = DIBS_OK;

    for (int i = 0; i < SETS; i++)
        dibs_lock_free(h->groups[i]);
    for (int i = 0; i < NAMES; i++)
        dibs_lock_free(h->locks[i]);
    for (int i = 0; i < 2; i++) {
        dibs_err closed = h->c[i] ? dibs_client_close(h->c[i], TS_SOON) : err;
        err = err ? err : closed;
        dibs_client_free(h->c[i]);
    }
    return err;
}

static int process(int fd, void *arg)
{
    size_t number = *(const size_t *)arg;
    struct worker workers[THREADS];
    struct house h = {{NULL}, {NULL}, {NULL}};

    if (!st_may_open(fd))
        return 2;
    dibs_err err = furnish(&h, number % 2);
    if (err != DIBS_OK)
        st_complain(number, "furnishing", err);
    if (!st_ready(fd))
        return 2;
    for (size_t i = 0; err == DIBS_OK && i < THREADS; i++) {
        workers[i] = (struct worker){.number = number * THREADS + i,
                                     .seed = (unsigned)(number * 97 + i * 7),
                                     .single = i >= GROUPERS,
                                     .locks = h.locks,
                                     .groups = h.groups};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 3;
    }
    for (size_t i = 0; err == DIBS_OK && i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    err = clear_out(&h);
    if (err != DIBS_OK)
        st_complain(number, "closing", err);
    return 0;
}

/* ---- the test's side --------------------------------------------------- */

static long rounds(long usual)
{
    if (!ts_long())
        usual /= 3;

    const char *asked = getenv("DIBS_STRESS_ROUNDS");

    return asked && atol(asked) > 0 ? atol(asked) : usual / ts_slow();
}

/* How often a worker had whatever it wanted, over all locks. */
static uint64_t entries(size_t worker)
{
    uint64_t n = 0;

    for (size_t i = 0; i < NAMES; i++)
        n += ts_witness_entries(st_witness, worker * NAMES + i);
    return n;
}

static void opposite_orders(int servers, long n)
{
    memset(sh, 0, sizeof *sh);
    sh->servers = servers;
    sh->rounds = n;
    st_spawn(ST_PLAIN, ts_witness_new(NAMES, WORKERS * NAMES), PROCESSES,
             process);
    st_begin();
    st_join();
    print_message("%ld rounds, %ld of them at the second attempt\n", n,
                  atomic_load(&sh->waits));
    st_nobody_met();
    assert_true(ts_witness_total(st_witness) > (uint64_t)n);
    for (size_t i = 0; i < WORKERS; i++)
        if (entries(i) == 0)
            fail_msg("worker %zu never had its turn", i);
    for (int i = 0; i < servers; i++)
        assert_int_equal(ts_nkeys(srv[i]), 0);
    st_over();
}

static void test_multi_opposite_orders(void **state)
{
    (void)state;
    opposite_orders(1, rounds(10000));
}

static void test_multi_opposite_orders_two_servers(void **state)
{
    (void)state;
    opposite_orders(2, rounds(4000));
}

static int group_setup(void **state)
{
    (void)state;
    srv[0] = ts_server_start(NULL);
    srv[1] = ts_server_start(NULL);
    st_up();
    sh = st_share(sizeof *sh);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    ts_server_stop(srv[0]);
    ts_server_stop(srv[1]);
    st_down();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multi_opposite_orders),
        cmocka_unit_test(test_multi_opposite_orders_two_servers),
    };

    return cmocka_run_group_tests_name("stress.multi", tests, group_setup,
                                       group_teardown);
}
