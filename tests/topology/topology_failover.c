/* SPDX-License-Identifier: MIT
 *
 * topology_failover.c - many failovers, with locks that a replica must have.
 *
 * Several clients fight for locks of all kinds that exclude, each taken with
 * replicas = 1, while the master is killed or stopped again and again. The one
 * that is granted a lock looks whether another client still has it by its own
 * clock. That witness is memory of this process: it knows nothing of Redis.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "topology/kit.h"

#define FAILOVERS  20
#define CLIENTS    3
#define LEASE_MS   ts_ms(6000)
#define COMMAND_MS ts_ms(1000)

enum { PLAIN, FAIR, WRITE, MULTI, KINDS };

static struct top_sentinels top;
static atomic_bool stop;
static atomic_uint grants, twice;

/* Who has it, as far as those know who have it. */
static struct {
    pthread_mutex_t mu;
    dibs_lock *l; /* NULL: nobody */
} inside[KINDS];

struct worker {
    pthread_t thread;
    dibs_client *c;
    int kind;
};

static int up(void **state)
{
    (void)state;
    top_sentinels_start(&top);
    top_sentinels_patience(&top, TOP_IMPATIENT_MS);
    for (int i = 0; i < 3; i++) /* twice that is the least between two */
        ts_ok(top.sentinel[i], "SENTINEL SET " SERVICE " failover-timeout 800");
    return 0;
}

static int down(void **state)
{
    (void)state;
    top_sentinels_stop(&top);
    return 0;
}

static dibs_lock *new_multi(dibs_client *c)
{
    dibs_lock *m[] = {top_lock(c, 0, "multi:1"), top_lock(c, 0, "multi:2")};
    dibs_lock *l = NULL;

    want("a multi lock", dibs_multi_lock_new(m, 2, &l), DIBS_OK);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    return l;
}

static dibs_lock *new_lock(dibs_client *c, int kind)
{
    dibs_lock *l = NULL;

    switch (kind) {
    case PLAIN:
        want("a lock", dibs_lock_new(c, "plain", &l), DIBS_OK);
        break;
    case FAIR:
        want("a lock", dibs_fair_lock_new(c, "fair", &l), DIBS_OK);
        break;
    case WRITE:
        want("a lock", dibs_write_lock_new(c, "write", &l), DIBS_OK);
        break;
    default:
        l = new_multi(c);
    }
    return l;
}

/* Granted: does somebody else have it? The holder is this process's, under an
 * owner that is his alone; so we can ask for him. */
static void enter(struct worker *w, dibs_lock *l, dibs_owner me,
                  dibs_owner *theirs)
{
    pthread_mutex_lock(&inside[w->kind].mu);
    if (inside[w->kind].l && dibs_lock_valid_ms(inside[w->kind].l, *theirs) > 0)
        atomic_fetch_add(&twice, 1);
    inside[w->kind].l = l;
    *theirs = me;
    pthread_mutex_unlock(&inside[w->kind].mu);
}

static void leave(struct worker *w, dibs_lock *l)
{
    pthread_mutex_lock(&inside[w->kind].mu);
    if (inside[w->kind].l == l)
        inside[w->kind].l = NULL;
    pthread_mutex_unlock(&inside[w->kind].mu);
}

static void *work(void *arg)
{
    static dibs_owner owners[KINDS]; /* of the holder */
    struct worker *w = arg;
    dibs_lock *l = new_lock(w->c, w->kind);
    dibs_owner me = dibs_owner_new(w->c);
    const dibs_lock_opts opts = {
        .size = sizeof opts, .owner = me, .wait_ms = 1000, .replicas = 1};

    while (!atomic_load(&stop)) {
        if (dibs_lock_acquire(l, &opts) != DIBS_OK)
            continue;
        enter(w, l, me, &owners[w->kind]);
        atomic_fetch_add(&grants, 1);
        struct ts_wait a_moment = ts_wait_begin(1);
        while (ts_wait_step(&a_moment))
            ;
        leave(w, l);
        (void)dibs_lock_release(l, &opts);
    }
    dibs_lock_free(l);
    return NULL;
}

/* They get on, at the new master. */
static void gets_on(void)
{
    unsigned before = atomic_load(&grants);

    TS_WAIT(atomic_load(&grants) > before + 10 * KINDS);
}

/* The other replica would be told by the sentinels, but that takes long. */
static void join_new(int old, int now)
{
    int third = 3 - old - now;

    TS_WAIT(top_follow(top.server[third], top.server[now]));
}

static void one_failover(int i)
{
    int old = top_master(&top);

    if (i % 3 == 2)
        ts_server_pause(top.server[old]);
    else
        ts_server_kill(top.server[old]);
    join_new(old, top_master_after(&top, old));
    gets_on();
    top_heal(&top, old);
    gets_on();
}

static void test_failovers(void **state)
{
    struct worker w[CLIENTS * KINDS];
    dibs_client *c[CLIENTS];

    (void)state;
    for (int k = 0; k < KINDS; k++)
        pthread_mutex_init(&inside[k].mu, NULL);
    for (int i = 0; i < CLIENTS; i++)
        want(
            "opening",
            dibs_client_open(top.url,
                             DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS,
                                              .command_timeout_ms = COMMAND_MS),
                             &c[i]),
            DIBS_OK);
    for (int i = 0; i < CLIENTS * KINDS; i++) {
        w[i] = (struct worker){.c = c[i / KINDS], .kind = i % KINDS};
        pthread_create(&w[i].thread, NULL, work, &w[i]);
    }
    gets_on();
    for (int i = 0; i < FAILOVERS; i++)
        one_failover(i);
    atomic_store(&stop, true);
    for (int i = 0; i < CLIENTS * KINDS; i++)
        pthread_join(w[i].thread, NULL);
    print_message("%u grants in %d failovers\n", atomic_load(&grants),
                  FAILOVERS);
    assert_int_equal(atomic_load(&twice), 0);
    for (int i = 0; i < CLIENTS; i++)
        dibs_client_free(c[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failovers)};

    return cmocka_run_group_tests(tests, up, down);
}
