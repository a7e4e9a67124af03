/* SPDX-License-Identifier: MIT
 *
 * stress_all.c - all kinds of locks at once, alone and in groups, chosen by
 * chance, while connections end and servers stop.
 *
 * Three servers, each behind a proxy. Two teams, each with a client for every
 * server, so that they see each other as two programs would. A worker picks
 * some of the things there are (plain, fair, read and write locks; one quorum),
 * makes one lock of them, and takes it in some way: it tries, waits for a
 * moment, asks in the background and perhaps cancels; and perhaps takes one of
 * its members once more inside. Some workers share an owner.
 *
 * Churn   Clients that are opened and closed in the middle of what they do.
 *         Every callback must come, exactly once.
 * Nemesis Connections are ended, replies lost, requests held back, servers
 *         stopped for moments much shorter than the lease.
 *
 * What must hold: never two at a time, readers apart; every call returns, with
 * an error that can be; and when all have released, nothing is left on any
 * server although all clients are still there and would renew it.
 *
 * $DIBS_TEST_LONG=1 and $DIBS_STRESS_SECONDS make it longer, $DIBS_STRESS_SEED
 * repeats the choices, though not what the scheduler makes of them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dibs/dibs.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/proxy.h"
#include "support/server.h"
#include "support/util.h"

#define SERVERS 3
#define TEAMS   2
#define WORKERS 5 /* of a team; the last two share an owner */
#define OWNERS  (TEAMS * WORKERS)

#define LEASE_MS ts_ms(3000)
#define ENOUGH   (LEASE_MS / 2) /* time left with which one may go in */
#define REPLY_MS ts_ms(250)

/* ---- what there is ----------------------------------------------------- */

enum kind { PLAIN, FAIR, READ, WRITE };

static const struct thing {
    enum kind kind;
    int server;
    const char *name;
    int cell; /* the halves of a read-write lock have one */
} things[] = {
    {PLAIN, 0, "a", 0}, {PLAIN, 0, "b", 1},  {PLAIN, 0, "c", 2},
    {PLAIN, 1, "a", 3}, {PLAIN, 1, "b", 4},  {PLAIN, 2, "a", 5},
    {FAIR, 1, "f", 6},  {READ, 0, "rw", 7},  {WRITE, 0, "rw", 7},
    {READ, 2, "rw", 8}, {WRITE, 2, "rw", 8},
};
#define THINGS (sizeof things / sizeof things[0])
#define QUORUM 9 /* its cell */
#define CELLS  10

/* Who is in, each owner how often. */
static struct cell {
    pthread_mutex_t mu;
    int reads[OWNERS], writes[OWNERS];
} cells[CELLS];

static struct ts_server *srv[SERVERS];
static struct ts_proxy *proxies[SERVERS];
static dibs_client *clients[TEAMS][SERVERS];
static atomic_bool stop;
static atomic_uint entered, odd;
static atomic_bool told;
static char problem[200];
static unsigned seed;

static void complain(const char *what, dibs_err err)
{
    bool none = false;

    if (atomic_compare_exchange_strong(&told, &none, true))
        snprintf(problem, sizeof problem, "%s: %s", what, dibs_strerror(err));
    atomic_store(&stop, true);
}

static void pause_us(long us)
{
    struct timespec ts = {.tv_sec = us / 1000000,
                          .tv_nsec = us % 1000000 * 1000};

    nanosleep(&ts, NULL);
}

static unsigned chance(unsigned *state, unsigned below)
{
    return (unsigned)rand_r(state) % below;
}

/* ---- going in ---------------------------------------------------------- */

/* Both halves come here: n is 1 to go in, -1 to go out. */
static void pass(int number, bool reads, size_t who, int n)
{
    struct cell *cell = &cells[number];

    pthread_mutex_lock(&cell->mu);
    for (size_t i = 0; n > 0 && i < OWNERS; i++)
        if (i != who && (cell->writes[i] || (!reads && cell->reads[i])))
            complain(reads ? "a reader met a writer" : "two holders at a time",
                     DIBS_OK);
    if (reads)
        cell->reads[who] += n;
    else
        cell->writes[who] += n;
    pthread_mutex_unlock(&cell->mu);
}

/* What a worker works on: some things, or the quorum. */
struct pick {
    size_t n;
    size_t which[4];
    bool quorum;
    dibs_lock *members[4], *lock;
};

static void pass_all(const struct pick *p, size_t who, int n)
{
    if (p->quorum)
        pass(QUORUM, false, who, n);
    for (size_t i = 0; !p->quorum && i < p->n; i++) {
        const struct thing *t = &things[p->which[i]];
        pass(t->cell, t->kind == READ, who, n);
    }
}

static dibs_lock *make(dibs_client *c, enum kind kind, const char *name)
{
    dibs_lock *l = NULL;
    dibs_err err = kind == PLAIN  ? dibs_lock_new(c, name, &l)
                   : kind == FAIR ? dibs_fair_lock_new(c, name, &l)
                   : kind == READ ? dibs_read_lock_new(c, name, &l)
                                  : dibs_write_lock_new(c, name, &l);

    if (err != DIBS_OK)
        complain("a new lock", err);
    return l;
}

static bool has_cell(const struct pick *p, int cell)
{
    for (size_t i = 0; i < p->n; i++)
        if (things[p->which[i]].cell == cell)
            return true;
    return false;
}

static void pick_things(struct pick *p, dibs_client **team, unsigned *state)
{
    size_t n = 1 + chance(state, 4);

    while (p->n < n) {
        size_t which = chance(state, THINGS);
        if (has_cell(p, things[which].cell))
            continue;
        p->which[p->n] = which;
        p->members[p->n++] = make(team[things[which].server],
                                  things[which].kind, things[which].name);
    }
}

/* Sometimes a group in a group. */
static void group(struct pick *p, unsigned *state)
{
    dibs_lock *inner = NULL;
    dibs_err err;

    if (p->n > 2 && !p->quorum && chance(state, 3) == 0) {
        err = dibs_multi_lock_new(p->members, 2, &inner);
        dibs_lock *outer[] = {p->members[p->n - 1], inner,
                              p->n > 3 ? p->members[2] : NULL};
        if (err == DIBS_OK)
            err = dibs_multi_lock_new(outer, p->n - 1, &p->lock);
    } else if (p->quorum) {
        err = dibs_quorum_lock_new(p->members, p->n, &p->lock);
    } else {
        err = dibs_multi_lock_new(p->members, p->n, &p->lock);
    }
    if (err != DIBS_OK)
        complain("a new group", err);
    dibs_lock_free(inner);
}

static struct pick pick_new(dibs_client **team, unsigned *state)
{
    struct pick p = {.quorum = chance(state, 5) == 0};

    if (p.quorum)
        for (; p.n < SERVERS; p.n++)
            p.members[p.n] = make(team[p.n], PLAIN, "q");
    else
        pick_things(&p, team, state);
    group(&p, state);
    return p;
}

static void pick_free(struct pick *p)
{
    dibs_lock_free(p->lock);
    for (size_t i = 0; i < p->n; i++)
        dibs_lock_free(p->members[i]);
}

/* ---- taking ------------------------------------------------------------ */

static bool can_be(dibs_err err)
{
    return err != DIBS_ERR_INVALID && err != DIBS_ERR_NOMEM &&
           err != DIBS_ERR_NOT_OWNER && err != DIBS_ERR_WRONGTYPE &&
           err != DIBS_ERR_PROTOCOL && err != DIBS_ERR_DEADLOCK &&
           err != DIBS_ERR_CLOSED && err != DIBS_ERR_FORKED;
}

static void judge(const char *what, dibs_err err)
{
    if (err != DIBS_OK)
        atomic_fetch_add(&odd, 1);
    if (!can_be(err))
        complain(what, err);
}

struct answer {
    sem_t came;
    atomic_uint times;
    dibs_err err;
};

static void answered(dibs_err err, void *arg)
{
    struct answer *a = arg;

    a->err = err;
    atomic_fetch_add(&a->times, 1);
    sem_post(&a->came);
}

static void wait_answer(struct answer *a)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += TS_SOON / 1000;
    while (sem_timedwait(&a->came, &until) != 0)
        if (errno == ETIMEDOUT)
            ts_fatal("a callback never came");
}

static dibs_err in_background(dibs_lock *l, const dibs_lock_opts *o,
                              unsigned *state)
{
    struct answer a = {.err = DIBS_OK};

    sem_init(&a.came, 0, 0);
    dibs_err err = dibs_lock_acquire_async(l, o, answered, &a);
    if (err == DIBS_OK) {
        if (chance(state, 2)) {
            pause_us(chance(state, 3000));
            (void)dibs_lock_cancel(l, o->owner);
        }
        wait_answer(&a);
        err = a.err;
    }
    sem_destroy(&a.came);
    return err;
}

static dibs_err take(dibs_lock *l, dibs_owner owner, unsigned *state)
{
    dibs_lock_opts o = {
        .size = sizeof o, .owner = owner, .wait_ms = 1 + chance(state, 300)};

    if (chance(state, 4) == 0)
        o.lease_ms = LEASE_MS;
    if (chance(state, 8) == 0)
        o.keep_ms = 60000; /* means nothing for an acquire */
    switch (chance(state, 3)) {
    case 0:
        return dibs_lock_try(l, &o);
    case 1:
        return dibs_lock_acquire(l, &o);
    default:
        return in_background(l, &o, state);
    }
}

static void give_back(dibs_lock *l, dibs_owner owner, unsigned *state)
{
    const dibs_lock_opts o = {.size = sizeof o, .owner = owner};
    struct answer a = {.err = DIBS_OK};

    if (chance(state, 2)) {
        judge("release", dibs_lock_release(l, &o));
        return;
    }
    sem_init(&a.came, 0, 0);
    dibs_err err = dibs_lock_release_async(l, &o, answered, &a);
    if (err == DIBS_OK)
        wait_answer(&a);
    judge("release in the background", err == DIBS_OK ? a.err : err);
    sem_destroy(&a.came);
}

/* ---- workers ----------------------------------------------------------- */

struct worker {
    pthread_t thread;
    dibs_client **team;
    dibs_owner owner;
    size_t who; /* the owner, from 0 */
    unsigned state;
};

static void go_in(struct worker *me, const struct pick *p)
{
    if (dibs_lock_valid_ms(p->lock, me->owner) < ENOUGH)
        return;
    pass_all(p, me->who, 1);
    atomic_fetch_add(&entered, 1);
    pause_us(chance(&me->state, 500));
    pass_all(p, me->who, -1);
}

/* One of the members once more, by itself. */
static void go_deeper(struct worker *me, const struct pick *p)
{
    dibs_lock *l = p->members[chance(&me->state, (unsigned)p->n)];
    dibs_err err = take(l, me->owner, &me->state);

    judge("acquire inside", err);
    if (err == DIBS_OK)
        give_back(l, me->owner, &me->state);
}

static void one_round(struct worker *me)
{
    struct pick p = pick_new(me->team, &me->state);
    dibs_err err = take(p.lock, me->owner, &me->state);

    judge("acquire", err);
    if (err == DIBS_OK) {
        go_in(me, &p);
        if (chance(&me->state, 3) == 0)
            go_deeper(me, &p);
        give_back(p.lock, me->owner, &me->state);
    }
    pick_free(&p);
}

static void *work(void *arg)
{
    while (!atomic_load(&stop))
        one_round(arg);
    return NULL;
}

/* ---- churn ------------------------------------------------------------- */

static void open_all(dibs_client **team, int64_t lease_ms)
{
    for (size_t i = 0; i < SERVERS; i++) {
        dibs_err err = dibs_client_open(
            ts_proxy_url(proxies[i]),
            DIBS_CLIENT_OPTS(.lease_ms = lease_ms, .lazy = true,
                             .command_timeout_ms = REPLY_MS),
            &team[i]);
        if (err != DIBS_OK)
            complain("open", err);
    }
}

/* Closed while it takes or gives back, one client after the other. */
static void churn_once(unsigned *state)
{
    dibs_client *team[SERVERS];
    struct answer a = {.err = DIBS_OK}, b = {.err = DIBS_OK};

    open_all(team, ts_ms(300));
    struct pick p = pick_new(team, state);
    dibs_lock_opts o = {.size = sizeof o, .owner = dibs_owner_new(team[0])};
    sem_init(&a.came, 0, 0);
    sem_init(&b.came, 0, 0);
    bool asked = dibs_lock_acquire_async(p.lock, &o, answered, &a) == DIBS_OK;
    pause_us(chance(state, 5000));
    bool given = dibs_lock_release_async(p.lock, &o, answered, &b) == DIBS_OK;
    for (size_t i = 0; i < SERVERS; i++)
        (void)dibs_client_close(team[i], 1 + chance(state, 30));
    if (asked)
        wait_answer(&a);
    if (given)
        wait_answer(&b);
    pick_free(&p);
    for (size_t i = 0; i < SERVERS; i++)
        dibs_client_free(team[i]);
    if (atomic_load(&a.times) != asked || atomic_load(&b.times) != given)
        complain("a callback came twice", DIBS_OK);
    sem_destroy(&a.came);
    sem_destroy(&b.came);
}

static void *churn(void *arg)
{
    while (!atomic_load(&stop))
        churn_once(arg);
    return NULL;
}

/* ---- nemesis ----------------------------------------------------------- */

/* Nothing that a connection cannot do: a reply from the middle of a row is
 * never lost alone, what is behind it would be taken for it. */
static void do_harm(unsigned *state)
{
    static const struct ts_rule rules[] = {
        {.action = TS_DROP_REPLY_CLOSE, .match = "EVAL*", .count = 1},
        {.action = TS_CLOSE_BEFORE, .match = "EVAL*", .count = 1},
        {.action = TS_HOLD_REPLY, .match = "EVAL*", .count = 1},
        {.action = TS_HOLD_REPLY, .match = "INFO", .count = 1},
        {.action = TS_DELAY_REPLY, .match = "*", .count = 3, .ms = 30},
        {.action = TS_HOLD_REQUEST, .match = "EVAL*", .count = 1},
        {.action = TS_SWALLOW_MESSAGE, .count = 5},
    };
    size_t n = sizeof rules / sizeof rules[0];
    size_t which = chance(state, (unsigned)n + 2), at = chance(state, SERVERS);

    if (which == n) {
        ts_proxy_kill_all(proxies[at], false);
    } else if (which == n + 1) {
        ts_server_pause(srv[at]);
        pause_us(1000 * (long)chance(state, 100));
        ts_server_resume(srv[at]);
    } else {
        int id = ts_proxy_rule(proxies[at], &rules[which]);
        pause_us(1000 * (long)chance(state, 60));
        ts_proxy_unrule(proxies[at], id);
        ts_proxy_release(proxies[at]);
    }
}

static void rage(int64_t ms, bool harm)
{
    unsigned state = seed;
    int64_t until = ts_now_ms() + ms;

    while (!atomic_load(&stop) && ts_now_ms() < until) {
        if (harm)
            do_harm(&state);
        pause_us(1000 * (long)chance(&state, 100));
    }
}

/* ---- the tests --------------------------------------------------------- */

static int64_t length_ms(void)
{
    const char *asked = getenv("DIBS_STRESS_SECONDS");

    return 1000 *
           (asked && atoi(asked) > 0 ? atoi(asked)
            : ts_long()              ? 60
                                     : 8) /
           2;
}

static void start_workers(struct worker *workers)
{
    for (size_t i = 0; i < OWNERS; i++) {
        struct worker *w = &workers[i];
        bool shares = i % WORKERS == WORKERS - 1;
        w->team = clients[i / WORKERS];
        w->state = seed + (unsigned)i;
        w->who = shares ? i - 1 : i;
        w->owner = shares ? workers[i - 1].owner : dibs_owner_new(w->team[0]);
        pthread_create(&w->thread, NULL, work, w);
    }
}

/* All was released: whatever is there now is nobody's, and must end. */
static void expect_nothing_left(void)
{
    for (size_t i = 0; i < SERVERS; i++) {
        struct ts_wait w = ts_wait_begin(TS_SOON);
        while (ts_nkeys(srv[i]) > 0)
            if (!ts_wait_step(&w)) {
                char *key = ts_str(srv[i], "RANDOMKEY");
                fail_msg("'%s' is left on server %zu, %lld ms; seed %u", key, i,
                         ts_pttl(srv[i], key), seed);
            }
    }
}

static void run(bool harm)
{
    struct worker workers[OWNERS] = {{0}};
    unsigned state = seed + OWNERS;
    pthread_t churner;

    memset(cells, 0, sizeof cells);
    for (size_t i = 0; i < CELLS; i++)
        pthread_mutex_init(&cells[i].mu, NULL);
    atomic_store(&stop, false);
    atomic_store(&entered, 0);
    for (size_t t = 0; t < TEAMS; t++)
        open_all(clients[t], LEASE_MS);
    start_workers(workers);
    pthread_create(&churner, NULL, churn, &state);
    rage(length_ms(), harm);
    atomic_store(&stop, true);
    for (size_t i = 0; i < OWNERS; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_join(churner, NULL);
    for (size_t i = 0; i < SERVERS; i++)
        ts_proxy_reset(proxies[i]);
    if (atomic_load(&told))
        fail_msg("%s; seed %u", problem, seed);
    print_message("%u times in, %u times not; seed %u\n", atomic_load(&entered),
                  atomic_load(&odd), seed);
    assert_true(atomic_load(&entered) > 0);
    expect_nothing_left();
    for (size_t i = 0; i < TEAMS * SERVERS; i++) {
        dibs_client *c = clients[i / SERVERS][i % SERVERS];
        assert_int_equal(dibs_client_close(c, TS_SOON), DIBS_OK);
        dibs_client_free(c);
    }
}

static void test_quiet(void **unused)
{
    (void)unused;
    run(false);
}

static void test_nemesis(void **unused)
{
    (void)unused;
    run(true);
}

static int set_up(void **unused)
{
    const char *asked = getenv("DIBS_STRESS_SEED");

    (void)unused;
    seed = asked ? (unsigned)atoi(asked) : (unsigned)time(NULL);
    for (size_t i = 0; i < SERVERS; i++) {
        srv[i] = ts_server_start(NULL);
        proxies[i] = ts_proxy_start(srv[i]);
    }
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < SERVERS; i++) {
        ts_proxy_stop(proxies[i]);
        ts_server_stop(srv[i]);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_nemesis),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
