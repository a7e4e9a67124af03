/* SPDX-License-Identifier: MIT
 *
 * stress_mutex.c - many threads of several processes, one lock, and a witness.
 *
 * Three runs:
 *
 * plain    Nothing goes wrong. Never two at a time, nobody starves, nothing is
 *          left behind.
 * broken   The same, but now and then somebody walks in without the lock. The
 *          witness must notice, or it is worth nothing.
 * nemesis  Connections are ended, replies lost, requests held back and let go
 *          later, messages dropped, scripts forgotten, the server stopped for
 *          moments shorter than the lease. Still never two at a time. Then it
 *          is quiet, and everybody must get the lock again.
 *
 * What counts as holding: a worker holds the lock from the moment acquire says
 * so until it calls release, is told of a loss, or its own clock says that the
 * lease is over, whichever comes first. So before it goes in it looks how much
 * time it has, and goes in only if that is many times what it will take.
 *
 * $DIBS_STRESS_SECONDS makes it longer (default 7), $DIBS_STRESS_SEED repeats a
 * nemesis. Workers live in child processes, made before the proxy's thread is.
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
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "support/proxy.h"
#include "support/server.h"
#include "support/util.h"
#include "support/witness.h"

#define PROCESSES 4
#define THREADS   8
#define WORKERS   (PROCESSES * THREADS)
#define ROGUE     50 /* broken: every so often without the lock */

#define NAME     "stress"
#define LEASE_MS ts_ms(3000)
#define ENOUGH   (LEASE_MS / 2) /* time left with which one may go in */
#define REPLY_MS ts_ms(250)     /* a command's time, in the nemesis run */

enum mode { PLAIN, BROKEN, NEMESIS };

/* Between the test and its children. */
struct shared {
    enum mode mode;
    char url[200];
    atomic_bool stop;
    atomic_bool quiet;             /* the faults are over */
    atomic_uint in_quiet[WORKERS]; /* times the lock was had since then */
    atomic_uint odd;               /* errors, lost locks, all told */
    atomic_bool told;              /* problem is taken */
    char problem[160];
};

static struct shared *sh;
static struct ts_witness *witness;

/* ---- workers, in the children ------------------------------------------ */

struct worker {
    pthread_t thread;
    size_t number;
    dibs_lock *l;
};

static void complain(size_t number, const char *what, dibs_err err)
{
    bool none = false;

    if (atomic_compare_exchange_strong(&sh->told, &none, true))
        snprintf(sh->problem, sizeof sh->problem, "worker %zu: %s: %s", number,
                 what, dibs_strerror(err));
    atomic_store(&sh->stop, true);
}

static void go_in(struct worker *me)
{
    ts_witness_enter(witness, 0, me->number);
    ts_witness_leave(witness, 0, me->number);
}

/* Errors are part of the game only where there are faults. */
static void judge(struct worker *me, const char *what, dibs_err err)
{
    bool quiet = atomic_load(&sh->quiet);

    if (err == DIBS_OK)
        return;
    atomic_fetch_add(&sh->odd, 1);
    if (sh->mode != NEMESIS || err == DIBS_ERR_NOT_OWNER ||
        err == DIBS_ERR_INVALID || err == DIBS_ERR_NOMEM ||
        err == DIBS_ERR_WRONGTYPE || err == DIBS_ERR_PROTOCOL)
        complain(me->number, quiet ? "in the quiet" : what, err);
}

static void one_round(struct worker *me)
{
    bool quiet = atomic_load(&sh->quiet);
    dibs_err err = dibs_lock_acquire(me->l, NULL);

    judge(me, "acquire", err);
    if (err != DIBS_OK)
        return;
    bool safe = dibs_lock_valid_ms(me->l, 0) >= ENOUGH;
    if (safe)
        go_in(me);
    else
        atomic_fetch_add(&sh->odd, 1);
    judge(me, "release", dibs_lock_release(me->l, NULL));
    if (quiet && safe)
        atomic_fetch_add(&sh->in_quiet[me->number], 1);
}

static void *work(void *arg)
{
    struct worker *me = arg;

    for (unsigned i = 1; !atomic_load(&sh->stop); i++)
        if (sh->mode == BROKEN && i % ROGUE == 0)
            go_in(me);
        else
            one_round(me);
    return NULL;
}

/* Says 'r' when it is ready, begins when it is told anything. */
static int team(int fd, void *arg)
{
    size_t number = *(const size_t *)arg;
    struct worker workers[THREADS];
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    char go = 'r';

    if (!ts_hear(fd, &go, 1, TS_SOON)) /* the URL is there */
        return 2;
    dibs_err err = dibs_client_open(
        sh->url,
        DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS,
                         .command_timeout_ms =
                             sh->mode == NEMESIS ? REPLY_MS : TS_SOON),
        &c);
    if (err == DIBS_OK)
        err = dibs_lock_new(c, NAME, &l);
    if (err != DIBS_OK)
        complain(number, "opening", err);
    if (!ts_tell(fd, "r", 1) || !ts_hear(fd, &go, 1, TS_SOON))
        return 3;
    for (size_t i = 0; l && i < THREADS; i++) {
        workers[i] = (struct worker){.number = number * THREADS + i, .l = l};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (size_t i = 0; l && i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    dibs_lock_free(l);
    err = c ? dibs_client_close(c, TS_SOON) : err;
    if (err != DIBS_OK)
        complain(number, "closing", err);
    dibs_client_free(c);
    return 0;
}

/* ---- the test's side --------------------------------------------------- */

static struct ts_server *srv;
static struct ts_child *teams[PROCESSES];
static size_t numbers[PROCESSES];

static int seconds(void)
{
    const char *asked = getenv("DIBS_STRESS_SECONDS");

    return asked && atoi(asked) > 0 ? atoi(asked) : 7;
}

static void pause_ms(int64_t ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&ts, NULL);
}

static void spawn(enum mode mode)
{
    memset(sh, 0, sizeof *sh);
    sh->mode = mode;
    witness = ts_witness_new(1, WORKERS);
    for (size_t i = 0; i < PROCESSES; i++) {
        numbers[i] = i;
        teams[i] = ts_spawn(team, &numbers[i]);
    }
}

static void begin(const char *url)
{
    char ready;

    snprintf(sh->url, sizeof sh->url, "%s", url);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < PROCESSES; i++) {
            if (!ts_tell(ts_child_fd(teams[i]), "g", 1))
                ts_fatal("team %zu is gone", i);
            if (round == 0 &&
                !ts_hear(ts_child_fd(teams[i]), &ready, 1, TS_SOON))
                ts_fatal("team %zu is not ready", i);
        }
}

static void finish(void)
{
    atomic_store(&sh->stop, true);
    for (size_t i = 0; i < PROCESSES; i++) {
        int rc = ts_child_wait(teams[i], TS_SOON * 2);
        if (rc != 0)
            fail_msg("team %zu ended with %d", i, rc);
        ts_child_free(teams[i]);
        teams[i] = NULL;
    }
    if (sh->problem[0])
        fail_msg("%s", sh->problem);
    assert_int_equal(ts_witness_inside(witness, 0), -1);
    assert_true(ts_wait_exists(srv, NAME, false));
    TS_WAIT(ts_nchannels(srv) == 0);
    assert_int_equal(ts_nkeys(srv), 0);
}

static void nobody_met(void)
{
    if (ts_witness_violations(witness) > 0)
        fail_msg("%llu meetings; the first: %s",
                 (unsigned long long)ts_witness_violations(witness),
                 ts_witness_first(witness));
}

/* Until the time is over, or somebody has complained. */
static void watch(int64_t ms)
{
    int64_t until = ts_now_ms() + ms;

    while (ts_now_ms() < until && !atomic_load(&sh->stop))
        pause_ms(10);
}

static void test_plain(void **state)
{
    (void)state;
    spawn(PLAIN);
    begin(ts_server_url(srv));
    watch(seconds() * 300);
    TS_WAIT(ts_witness_fewest(witness) > 0 || atomic_load(&sh->stop));
    finish();
    nobody_met();
    print_message("plain: %llu entries, the fewest of one worker %llu\n",
                  (unsigned long long)ts_witness_total(witness),
                  (unsigned long long)ts_witness_fewest(witness));
    ts_witness_free(witness);
}

static void test_broken(void **state)
{
    (void)state;
    spawn(BROKEN);
    begin(ts_server_url(srv));
    TS_WAIT(ts_witness_violations(witness) > 0);
    assert_string_not_equal(ts_witness_first(witness), "");
    finish();
    ts_witness_free(witness);
}

/* ---- nemesis ----------------------------------------------------------- */

static unsigned seed;

static unsigned any(unsigned below)
{
    return (unsigned)rand_r(&seed) % below;
}

static void trap(struct ts_proxy *px, enum ts_action action, size_t at)
{
    ts_proxy_rule(px, &(struct ts_rule){.action = action,
                                        .match = action == TS_SWALLOW_MESSAGE
                                                     ? NULL
                                                     : "EVAL*",
                                        .skip = any(3),
                                        .count = 1 + any(3),
                                        .at = at});
}

static void strike(struct ts_proxy *px)
{
    switch (any(13)) {
    case 0:
        ts_ok(srv, "CLIENT KILL TYPE normal SKIPME yes");
        break;
    case 1:
        ts_ok(srv, "CLIENT KILL TYPE pubsub");
        break;
    case 2:
        ts_ok(srv, "SCRIPT FLUSH");
        break;
    case 3:
        ts_ok(srv, "CLIENT PAUSE %u WRITE", 50 + any(2 * (unsigned)REPLY_MS));
        break;
    case 4:
        ts_server_pause(srv);
        pause_ms(20 + any(LEASE_MS > 8000 ? 1000 : (unsigned)LEASE_MS / 6));
        ts_server_resume(srv);
        break;
    case 5:
        ts_proxy_kill_all(px, false);
        break;
    case 6:
        trap(px, TS_CLOSE_BEFORE, 0);
        break;
    case 7:
        trap(px, TS_CUT_REPLY_AT, any(4));
        break;
    case 8:
        trap(px, TS_DROP_REPLY_CLOSE, 0);
        break;
    case 9:
        trap(px, TS_HOLD_REPLY, 0);
        break;
    case 10:
        trap(px, TS_HOLD_REQUEST, 0); /* a ghost, once it is let go */
        break;
    case 11:
        trap(px, TS_SWALLOW_MESSAGE, 0);
        break;
    default:
        ts_proxy_release(px);
    }
}

static void rage(struct ts_proxy *px, int64_t ms)
{
    int64_t until = ts_now_ms() + ms;

    while (ts_now_ms() < until && !atomic_load(&sh->stop)) {
        strike(px);
        pause_ms(5 + any(60));
    }
    ts_proxy_unrule(px, 0);
    ts_proxy_release(px);
    ts_ok(srv, "CLIENT UNPAUSE");
}

static bool everybody_again(void)
{
    for (size_t i = 0; i < WORKERS; i++)
        if (atomic_load(&sh->in_quiet[i]) == 0)
            return false;
    return true;
}

static void test_nemesis(void **state)
{
    const char *asked = getenv("DIBS_STRESS_SEED");

    (void)state;
    spawn(NEMESIS);
    struct ts_proxy *px = ts_proxy_start(srv);
    seed = asked ? (unsigned)atoi(asked)
                 : (unsigned)ts_now_ms() ^ (unsigned)getpid();
    print_message("nemesis: DIBS_STRESS_SEED=%u\n", seed);
    begin(ts_proxy_url(px));
    rage(px, seconds() * 600);
    unsigned odd = atomic_load(&sh->odd);
    atomic_store(&sh->quiet, true);
    TS_WAIT(everybody_again() || atomic_load(&sh->stop));
    finish();
    nobody_met();
    print_message("nemesis: %llu entries, %u errors and losses\n",
                  (unsigned long long)ts_witness_total(witness), odd);
    ts_witness_free(witness);
    ts_proxy_stop(px);
}

/* ---- all --------------------------------------------------------------- */

static int group_setup(void **state)
{
    (void)state;
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED)
        return -1;
    srv = ts_server_start(NULL);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < PROCESSES; i++)
        ts_child_free(teams[i]);
    ts_server_stop(srv);
    munmap(sh, sizeof *sh);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_nemesis),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
