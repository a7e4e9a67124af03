/* SPDX-License-Identifier: MIT
 *
 * stress_permits.c - slots and semaphores: never more than PERMITS inside, and
 * none is lost or made, whatever replies get lost and whoever is killed.
 *
 * Three runs of each:
 *
 * broken   Now and then somebody goes in without a permit. The witness must
 *          notice, or it is worth nothing.
 * lost     Replies of scripts are lost: mostly the connection ends instead,
 *          some are cut, some come very late. Then it is quiet, and everybody
 *          must get in again.
 * killed   Processes are killed with -9 while they hold permits, and others
 *          take their places.
 *
 * $DIBS_TEST_LONG=1 makes it 10,000 replies and 100 kills of each kind.
 *
 * In the end the number on the server is PERMITS again, and nobody is noted as
 * a holder. The witness is a table in shared memory: how many permits each
 * worker is in with. Its mutex survives the death of who has it, and every
 * state of the table is a sound one, so whoever comes next goes on.
 *
 * A worker goes in only with a permit whose lease has long to go, and counts
 * until it leaves or that lease is over by its own clock: a busy machine may
 * keep it from leaving. Of a semaphore nobody tells how long that is, so there
 * it counts from the begin of the acquire, which gives up early.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stress/kit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PERMITS = 6, PROCESSES = 3, THREADS = 5, WORKERS = PROCESSES * THREADS };
enum { ROGUE = 20 }; /* broken: every so often without a permit */

#define NAME     "pool"
#define LEASE_MS ts_ms(1200)

/* ---- the witness ------------------------------------------------------- */

static struct table {
    pthread_mutex_t mu;
    int in[WORKERS];        /* mu: permits with which a worker is in */
    int64_t until[WORKERS]; /* mu: when their lease is over, by its own clock */
    unsigned met;           /* mu: times that there were too many */
    int most;               /* mu: that were in at a time */
    int64_t since[WORKERS]; /* mu: when it came in */
    char first[400];        /* mu: who met the first time, and since when */
    atomic_ullong entries;
    atomic_uint killed_inside;
    unsigned late; /* mu: left when their lease was over */
} * table;

static void table_make(void)
{
    pthread_mutexattr_t attr;

    table = st_share(sizeof *table);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&table->mu, &attr);
    pthread_mutexattr_destroy(&attr);
}

static void table_lock(void)
{
    if (pthread_mutex_lock(&table->mu) == EOWNERDEAD)
        pthread_mutex_consistent(&table->mu);
}

/* Who is in, for how long, and how long it may be. */
static void table_tell(int64_t now)
{
    size_t len = 0;

    for (size_t i = 0; i < WORKERS; i++)
        if (table->in[i] && len < sizeof table->first)
            len += (size_t)snprintf(
                table->first + len, sizeof table->first - len,
                " %zu: %d for %lld of %lld ms;", i, table->in[i],
                (long long)(now - table->since[i]),
                (long long)(table->until[i] - table->since[i]));
}

/* From here on this worker is in with so many permits, until then at most; 0:
 * it is out. */
static void table_note(size_t worker, int permits, int64_t until)
{
    int sum = 0;

    table_lock();
    int64_t now = ts_now_ms();
    if (table->in[worker] && now >= table->until[worker])
        table->late++;
    table->in[worker] = permits;
    table->until[worker] = until;
    table->since[worker] = now;
    for (size_t i = 0; i < WORKERS; i++)
        sum += now < table->until[i] ? table->in[i] : 0;
    if (sum > PERMITS && table->met++ == 0)
        table_tell(now);
    if (sum > table->most)
        table->most = sum;
    pthread_mutex_unlock(&table->mu);
}

/* These are dead. */
static void table_forget(size_t process)
{
    for (size_t i = 0; i < THREADS; i++) {
        size_t worker = process * THREADS + i;
        table_lock();
        if (table->in[worker])
            atomic_fetch_add(&table->killed_inside, 1);
        pthread_mutex_unlock(&table->mu);
        table_note(worker, 0, 0);
    }
}

/* ---- workers, in the children ------------------------------------------ */

enum kind { SLOTS, SEMAPHORE };

struct worker {
    pthread_t thread;
    size_t number;
    unsigned random;
    dibs_client *c;
    dibs_lock *l; /* one of the two */
    dibs_semaphore *s;
};

static enum kind kind; /* of this run; set before the children are made */

static bool may_be(dibs_err err)
{
    return err == DIBS_OK || err == DIBS_ERR_TIMEOUT || err == DIBS_ERR_BUSY ||
           (st_board->mode == ST_NEMESIS &&
            (err == DIBS_ERR_UNKNOWN || err == DIBS_ERR_CONN ||
             err == DIBS_ERR_LOST));
}

static void judge(struct worker *me, const char *what, dibs_err err)
{
    if (err != DIBS_OK && err != DIBS_ERR_TIMEOUT && err != DIBS_ERR_BUSY)
        atomic_fetch_add(&st_board->odd, 1);
    if (!may_be(err))
        st_complain(me->number, what, err);
}

static void go_in(struct worker *me, int permits, int64_t until)
{
    table_note(me->number, permits, until);
    atomic_fetch_add(&table->entries, 1);
    if (st_dice(&me->random, 2))
        st_pause_ms(st_dice(&me->random, 3));
    table_note(me->number, 0, 0);
    if (atomic_load(&st_board->quiet))
        atomic_fetch_add(&st_board->in_quiet[me->number], 1);
}

static void slots_round(struct worker *me)
{
    dibs_err err =
        dibs_lock_acquire(me->l, DIBS_LOCK_OPTS(.wait_ms = LEASE_MS));

    judge(me, "acquire", err);
    if (err != DIBS_OK)
        return;
    int64_t now = ts_now_ms();
    int64_t valid = dibs_lock_valid_ms(me->l, 0);
    if (valid >= LEASE_MS / 2)
        go_in(me, 1, now + valid);
    judge(me, "release", dibs_lock_release(me->l, NULL));
}

static void semaphore_round(struct worker *me)
{
    const int64_t most = LEASE_MS / 4;
    dibs_semaphore_opts o =
        *DIBS_SEMAPHORE_OPTS(.permits = 1 + st_dice(&me->random, 2),
                             .wait_ms = most);
    int64_t begin = ts_now_ms();
    dibs_err err = dibs_semaphore_acquire(me->s, &o);

    judge(me, "acquire", err);
    if (err != DIBS_OK)
        return;
    int64_t until = begin + LEASE_MS * 99 / 100 - 3;
    if (until - ts_now_ms() >= LEASE_MS / 2)
        go_in(me, (int)o.permits, until);
    judge(me, "release", dibs_semaphore_release(me->s, &o));
}

static void *work(void *arg)
{
    struct worker *me = arg;

    for (unsigned i = 1; !atomic_load(&st_board->stop); i++)
        if (st_board->mode == ST_BROKEN && i % ROGUE == 0)
            go_in(me, 1, INT64_MAX);
        else if (kind == SLOTS)
            slots_round(me);
        else
            semaphore_round(me);
    return NULL;
}

static dibs_err open_worker(struct worker *me)
{
    return kind == SLOTS ? dibs_slots_lock_new(me->c, NAME, PERMITS, &me->l)
                         : dibs_semaphore_new(me->c, NAME, &me->s);
}

static dibs_err open_client(const char *url, dibs_client **c)
{
    int64_t reply_ms = st_board->mode == ST_NEMESIS ? ST_REPLY_MS : TS_SOON;

    return dibs_client_open(
        url,
        DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS, .command_timeout_ms = reply_ms),
        c);
}

static void work_all(struct worker *workers)
{
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            ts_fatal("no thread");
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
}

static int team(int fd, void *arg)
{
    size_t number = *(const size_t *)arg;
    struct worker workers[THREADS];
    dibs_client *c = NULL;
    dibs_err err = DIBS_OK;

    if (!st_may_open(fd))
        return 2;
    err = open_client(st_board->url[0], &c);
    for (size_t i = 0; err == DIBS_OK && i < THREADS; i++) {
        size_t me = number * THREADS + i;
        workers[i] =
            (struct worker){.number = me,
                            .random = (unsigned)ts_now_ms() + (unsigned)me,
                            .c = c};
        err = open_worker(&workers[i]);
    }
    if (err != DIBS_OK)
        st_complain(number, "opening", err);
    if (!st_ready(fd))
        return 3;
    if (err == DIBS_OK)
        work_all(workers);
    for (size_t i = 0; err == DIBS_OK && i < THREADS; i++) {
        dibs_lock_free(workers[i].l);
        dibs_semaphore_free(workers[i].s);
    }
    st_close(number, c, NULL);
    return 0;
}

/* ---- the test's side --------------------------------------------------- */

static struct ts_server *srv;

static void begin_run(enum kind k)
{
    kind = k;
    ts_ok(srv, "FLUSHALL");
    ts_ok(srv, "SET " NAME " %d", PERMITS);
    table_make();
}

/* All are free, and nobody is noted. An acquire takes back what dead holders
 * had, so one is made now and then. */
static void all_are_back(void)
{
    const char *book =
        kind == SLOTS ? "{" NAME "}:timeout" : "{" NAME "}:dibs_held";
    struct ts_wait w = ts_wait_begin(TS_SOON);
    struct worker me = {0};

    assert_int_equal(open_client(ts_server_url(srv), &me.c), DIBS_OK);
    assert_int_equal(open_worker(&me), DIBS_OK);
    while (ts_int(srv, "GET " NAME) != PERMITS ||
           ts_int(srv, "ZCARD %s", book) != 0) {
        if (kind == SLOTS && dibs_lock_try(me.l, NULL) == DIBS_OK)
            assert_int_equal(dibs_lock_release(me.l, NULL), DIBS_OK);
        if (kind == SEMAPHORE && dibs_semaphore_try(me.s, NULL) == DIBS_OK)
            assert_int_equal(dibs_semaphore_release(me.s, NULL), DIBS_OK);
        if (!ts_wait_step(&w))
            fail_msg("%lld free of %d, %lld noted", ts_int(srv, "GET " NAME),
                     PERMITS, ts_int(srv, "ZCARD %s", book));
    }
    dibs_lock_free(me.l);
    dibs_semaphore_free(me.s);
    dibs_client_free(me.c);
}

static void check_run(void)
{
    if (st_board->problem[0])
        fail_msg("%s", st_board->problem);
    if (table->met > 0)
        fail_msg("%u times too many were in, %d of %d:%s", table->met,
                 table->most, PERMITS, table->first);
    assert_true(table->most > PERMITS / 2); /* they did meet */
    all_are_back();
}

/* ---- broken ------------------------------------------------------------ */

static void run_broken(enum kind k)
{
    begin_run(k);
    st_spawn(ST_BROKEN, ts_witness_new(1, WORKERS), PROCESSES, team);
    st_url(0, ts_server_url(srv));
    st_begin();
    struct ts_wait w = ts_wait_begin(TS_SOON);
    while (table->met == 0 && ts_wait_step(&w))
        continue;
    atomic_store(&st_board->stop, true);
    st_join();
    assert_true(table->met > 0);
    st_over();
}

static void test_broken(void **state)
{
    (void)state;
    run_broken(SLOTS);
    run_broken(SEMAPHORE);
}

/* ---- lost replies ------------------------------------------------------ */

/* One more reply is lost. How many that were: 0 or 1. */
static unsigned lose_reply(struct ts_proxy *px)
{
    struct ts_rule rule = {.match = "EVAL*", .count = 1, .skip = st_any(4)};
    unsigned what = st_any(40);

    rule.action = what == 0  ? TS_HOLD_REPLY
                  : what < 8 ? TS_CUT_REPLY_AT
                             : TS_DROP_REPLY_CLOSE;
    rule.at = st_any(4);
    int id = ts_proxy_rule(px, &rule);
    ts_rule_wait(px, id, 1, 1000);
    if (rule.action == TS_HOLD_REPLY) {
        st_pause_ms(st_any(2 * (unsigned)ST_REPLY_MS));
        ts_proxy_release(px);
    }
    unsigned lost = ts_rule_hits(px, id);
    ts_proxy_unrule(px, id);
    return lost;
}

static void run_lost(enum kind k)
{
    const long long wanted = ts_long() ? 10000 : 200;
    long long lost = 0;

    begin_run(k);
    st_spawn(ST_NEMESIS, ts_witness_new(1, WORKERS), PROCESSES, team);
    struct ts_proxy *px = ts_proxy_start(srv);
    st_url(0, ts_proxy_url(px));
    st_begin();
    while (lost < wanted && !atomic_load(&st_board->stop))
        lost += lose_reply(px);
    unsigned odd = atomic_load(&st_board->odd);
    ts_proxy_unrule(px, 0);
    ts_proxy_release(px);
    st_quiet(WORKERS);
    atomic_store(&st_board->stop, true);
    st_join();
    check_run();
    print_message("%s: %lld replies lost, %llu entries, %u errors and "
                  "losses, %d in at most, %u left late\n",
                  k == SLOTS ? "slots" : "semaphore", lost,
                  (unsigned long long)atomic_load(&table->entries), odd,
                  table->most, table->late);
    ts_proxy_stop(px);
    st_over();
}

static void test_lost_replies(void **state)
{
    (void)state;
    st_seed();
    run_lost(SLOTS);
    run_lost(SEMAPHORE);
}

/* ---- kills ------------------------------------------------------------- */

static struct ts_child *children[PROCESSES];
static size_t numbers[PROCESSES];

/* A process that works, in this place. */
static void enlist(size_t place)
{
    char word;

    numbers[place] = place;
    children[place] = ts_spawn(team, &numbers[place]);
    int fd = ts_child_fd(children[place]);
    if (!ts_tell(fd, "g", 1) || !ts_hear(fd, &word, 1, TS_SOON) ||
        !ts_tell(fd, "g", 1))
        fail_msg("process %zu does not begin", place);
}

static bool team_is_in(size_t place)
{
    bool in = false;

    table_lock();
    for (size_t i = 0; i < THREADS; i++)
        in = in || table->in[place * THREADS + i];
    pthread_mutex_unlock(&table->mu);
    return in;
}

/* When somebody of it is in, or seems not to get in any more. */
static void kill_one(size_t place)
{
    struct ts_wait w = ts_wait_begin(2 * LEASE_MS);

    st_pause_ms(1 + st_any(20));
    while (!team_is_in(place) && ts_wait_step(&w))
        continue;
    ts_child_kill(children[place]);
    table_forget(place);
    ts_child_free(children[place]);
    children[place] = NULL;
}

static void run_kills(enum kind k)
{
    const long long wanted = ts_long() ? 100 : 8;

    begin_run(k);
    memset(st_board, 0, sizeof *st_board);
    st_board->mode = ST_NEMESIS;
    st_url(0, ts_server_url(srv));
    for (size_t i = 0; i < PROCESSES; i++)
        enlist(i);
    for (long long i = 0; i < wanted && !atomic_load(&st_board->stop); i++) {
        size_t place = st_any(PROCESSES);
        kill_one(place);
        enlist(place);
    }
    st_quiet(WORKERS);
    atomic_store(&st_board->stop, true);
    for (size_t i = 0; i < PROCESSES; i++) {
        assert_int_equal(ts_child_wait(children[i], TS_SOON), 0);
        ts_child_free(children[i]);
        children[i] = NULL;
    }
    check_run();
    print_message("%s: %lld kills, %u workers were in then, %llu entries, %d "
                  "in at most, %u left late\n",
                  k == SLOTS ? "slots" : "semaphore", wanted,
                  atomic_load(&table->killed_inside),
                  (unsigned long long)atomic_load(&table->entries), table->most,
                  table->late);
}

static void test_kills(void **state)
{
    (void)state;
    st_seed();
    run_kills(SLOTS);
    run_kills(SEMAPHORE);
}

/* ---- all --------------------------------------------------------------- */

static int group_setup(void **state)
{
    (void)state;
    st_up();
    srv = ts_server_start(NULL);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < PROCESSES; i++)
        ts_child_free(children[i]);
    st_down();
    ts_server_stop(srv);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_kills),
        cmocka_unit_test(test_lost_replies),
    };

    return cmocka_run_group_tests_name("permits", tests, group_setup,
                                       group_teardown);
}
