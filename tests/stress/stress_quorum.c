/* SPDX-License-Identifier: MIT
 *
 * stress_quorum.c - three processes, a quorum lock on five servers, and a
 * witness that is none of them.
 *
 * Three runs:
 *
 * plain    Nothing goes wrong. A few thousand grants, never two at a time,
 *          everybody makes progress, nothing is left.
 * broken   The same, but now and then somebody walks in with one server's word
 *          alone. The witness must notice, or it is worth nothing.
 * nemesis  Two servers at a time, never more, are stopped, cut off, or killed
 *          and started again with all they knew (their log is written before
 *          they answer); replies are lost, requests held back and let go later.
 *          Still never two at a time, and still everybody comes through. Then
 *          it is quiet, and nothing is left on any server.
 *
 * A server that forgets what it said breaks what this lock promises; so none
 * does here.
 *
 * What counts as holding is as in stress_mutex.c: until our own clock says that
 * the lease is over, and one goes in only with plenty of time.
 *
 * $DIBS_STRESS_SECONDS makes it longer (default 7), $DIBS_STRESS_SEED repeats a
 * nemesis. Workers live in child processes, made before the proxies' threads.
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

#define WORKERS 3
#define SERVERS 5
#define ROGUE   20   /* broken: every so often with one server alone */
#define GRANTS  3000 /* plain: at least so many */
#define LEAST   50   /* of these, everybody */

#define NAME     "stress"
#define LEASE_MS ts_ms(3000)
#define ENOUGH   (LEASE_MS / 2) /* time left with which one may go in */
#define REPLY_MS ts_ms(250)     /* a command's time, in the nemesis run */

enum mode { PLAIN, BROKEN, NEMESIS };

/* Between the test and its children. */
struct shared {
    enum mode mode;
    char url[SERVERS][200];
    atomic_bool stop;
    atomic_bool quiet;             /* the faults are over */
    atomic_uint in_quiet[WORKERS]; /* times the lock was had since then */
    atomic_uint odd;               /* errors, lost locks, all told */
    atomic_bool told;              /* problem is taken */
    char problem[160];
};

static struct shared *sh;
static struct ts_witness *witness;

/* ---- workers, each a child --------------------------------------------- */

struct worker {
    size_t number;
    dibs_client *c[SERVERS];
    dibs_lock *l[SERVERS], *q;
};

static void complain(size_t number, const char *what, dibs_err err)
{
    bool none = false;

    if (atomic_compare_exchange_strong(&sh->told, &none, true))
        snprintf(sh->problem, sizeof sh->problem, "worker %zu: %s: %s", number,
                 what, dibs_strerror(err));
    atomic_store(&sh->stop, true);
}

/* Errors are part of the game only where there are faults. */
static void judge(struct worker *me, const char *what, dibs_err err)
{
    if (err == DIBS_OK)
        return;
    atomic_fetch_add(&sh->odd, 1);
    if (sh->mode != NEMESIS || err == DIBS_ERR_NOT_OWNER ||
        err == DIBS_ERR_INVALID || err == DIBS_ERR_NOMEM ||
        err == DIBS_ERR_WRONGTYPE || err == DIBS_ERR_PROTOCOL)
        complain(me->number, what, err);
}

static void one_round(struct worker *me, dibs_lock *l)
{
    bool quiet = atomic_load(&sh->quiet);
    dibs_err err = dibs_lock_acquire(l, NULL);

    judge(me, "acquire", err);
    if (err != DIBS_OK)
        return;
    bool safe = dibs_lock_valid_ms(l, 0) >= ENOUGH;
    if (safe) {
        ts_witness_enter(witness, 0, me->number);
        ts_witness_leave(witness, 0, me->number);
    } else {
        atomic_fetch_add(&sh->odd, 1);
    }
    judge(me, "release", dibs_lock_release(l, NULL));
    if (quiet && safe)
        atomic_fetch_add(&sh->in_quiet[me->number], 1);
}

static dibs_err open_all(struct worker *me)
{
    const dibs_client_opts *o =
        DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS,
                         .command_timeout_ms =
                             sh->mode == NEMESIS ? REPLY_MS : TS_SOON);
    dibs_err err = DIBS_OK;

    for (size_t i = 0; i < SERVERS && err == DIBS_OK; i++) {
        err = dibs_client_open(sh->url[i], o, &me->c[i]);
        if (err == DIBS_OK)
            err = dibs_lock_new(me->c[i], NAME, &me->l[i]);
    }
    return err ? err : dibs_quorum_lock_new(me->l, SERVERS, &me->q);
}

static void close_all(struct worker *me)
{
    dibs_lock_free(me->q);
    for (size_t i = 0; i < SERVERS; i++) {
        dibs_lock_free(me->l[i]);
        dibs_err err = me->c[i] ? dibs_client_close(me->c[i], TS_SOON) : 0;
        if (err != DIBS_OK)
            complain(me->number, "closing", err);
        dibs_client_free(me->c[i]);
    }
}

/* Says 'r' when it is ready, begins when it is told anything. */
static int work(int fd, void *arg)
{
    struct worker me = {.number = *(const size_t *)arg};
    char go = 'r';

    if (!ts_hear(fd, &go, 1, TS_SOON)) /* the URLs are there */
        return 2;
    dibs_err err = open_all(&me);
    if (err != DIBS_OK)
        complain(me.number, "opening", err);
    if (!ts_tell(fd, "r", 1) || !ts_hear(fd, &go, 1, TS_SOON))
        return 3;
    for (unsigned i = 1; me.q && !atomic_load(&sh->stop); i++)
        if (sh->mode == BROKEN && i % ROGUE == 0)
            one_round(&me, me.l[me.number]);
        else
            one_round(&me, me.q);
    close_all(&me);
    return 0;
}

/* ---- the test's side --------------------------------------------------- */

static struct ts_server *srv[SERVERS];
static struct ts_proxy *px[SERVERS];
static struct ts_child *workers[WORKERS];
static size_t numbers[WORKERS];

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
    for (size_t i = 0; i < WORKERS; i++) {
        numbers[i] = i;
        workers[i] = ts_spawn(work, &numbers[i]);
    }
}

static void begin(void)
{
    char ready;

    for (size_t i = 0; i < SERVERS; i++)
        snprintf(sh->url[i], sizeof sh->url[i], "%s",
                 px[i] ? ts_proxy_url(px[i]) : ts_server_url(srv[i]));
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < WORKERS; i++) {
            if (!ts_tell(ts_child_fd(workers[i]), "g", 1))
                ts_fatal("worker %zu is gone", i);
            if (round == 0 &&
                !ts_hear(ts_child_fd(workers[i]), &ready, 1, TS_SOON))
                ts_fatal("worker %zu is not ready", i);
        }
}

static void finish(void)
{
    atomic_store(&sh->stop, true);
    for (size_t i = 0; i < WORKERS; i++) {
        int rc = ts_child_wait(workers[i], TS_SOON * 2);
        if (rc != 0)
            fail_msg("worker %zu ended with %d", i, rc);
        ts_child_free(workers[i]);
        workers[i] = NULL;
    }
    if (sh->problem[0])
        fail_msg("%s", sh->problem);
    assert_int_equal(ts_witness_inside(witness, 0), -1);
    for (size_t i = 0; i < SERVERS; i++) {
        if (!ts_wait_exists(srv[i], NAME, false))
            fail_msg("something stays on server %zu", i);
        TS_WAIT(ts_nchannels(srv[i]) == 0);
        assert_int_equal(ts_nkeys(srv[i]), 0);
    }
}

static void nobody_met(void)
{
    if (ts_witness_violations(witness) > 0)
        fail_msg("%llu meetings; the first: %s",
                 (unsigned long long)ts_witness_violations(witness),
                 ts_witness_first(witness));
}

static void tell(const char *run)
{
    print_message("%s: %llu grants, the fewest of one worker %llu, %u errors "
                  "and losses\n",
                  run, (unsigned long long)ts_witness_total(witness),
                  (unsigned long long)ts_witness_fewest(witness),
                  atomic_load(&sh->odd));
}

static void test_plain(void **state)
{
    struct ts_wait w = ts_wait_begin(TS_SOON * 2);

    (void)state;
    spawn(PLAIN);
    begin();
    while (ts_witness_total(witness) < GRANTS ||
           ts_witness_fewest(witness) < LEAST) {
        if (atomic_load(&sh->stop) || !ts_wait_step(&w))
            break;
    }
    tell("plain");
    bool enough = ts_witness_total(witness) >= GRANTS &&
                  ts_witness_fewest(witness) >= LEAST;
    finish();
    nobody_met();
    assert_true(enough);
    ts_witness_free(witness);
}

static void test_broken(void **state)
{
    (void)state;
    spawn(BROKEN);
    begin();
    TS_WAIT(ts_witness_violations(witness) > 0 || atomic_load(&sh->stop));
    finish();
    assert_true(ts_witness_violations(witness) > 0);
    assert_string_not_equal(ts_witness_first(witness), "");
    ts_witness_free(witness);
}

/* ---- nemesis ----------------------------------------------------------- */

static unsigned seed;

static unsigned any(unsigned below)
{
    return (unsigned)rand_r(&seed) % below;
}

static void trap(size_t i, enum ts_action action)
{
    ts_proxy_rule(px[i], &(struct ts_rule){.action = action,
                                           .match = "EVAL*",
                                           .skip = any(3),
                                           .count = any(3),
                                           .at = any(4)});
}

/* Something happens to a server. */
static void strike(size_t i)
{
    static const enum ts_action actions[] = {
        TS_CLOSE_BEFORE, TS_CUT_REPLY_AT, TS_DROP_REPLY_CLOSE,
        TS_HOLD_REPLY,   TS_HOLD_REQUEST, TS_DROP_REPLY_CLOSE};

    switch (any(10)) {
    case 0:
    case 1:
        ts_server_pause(srv[i]);
        break;
    case 2:
        ts_server_kill(srv[i]);
        break;
    case 3:
        ts_proxy_refuse(px[i], true);
        ts_proxy_kill_all(px[i], false);
        break;
    case 4:
        ts_proxy_blackhole(px[i], any(2), true);
        break;
    default:
        trap(i, actions[any(6)]);
    }
}

/* It is as before, with all it knew. */
static void mend(size_t i)
{
    if (ts_server_pid(srv[i]) == 0)
        ts_server_restart(srv[i]);
    ts_server_resume(srv[i]);
    ts_proxy_refuse(px[i], false);
    ts_proxy_blackhole(px[i], false, false);
    ts_proxy_unrule(px[i], 0);
    ts_proxy_release(px[i]);
}

/* Two at a time, each pair in its turn; whoever was hit is well again before
 * the next ones are. */
static void rage(int64_t ms)
{
    int64_t until = ts_now_ms() + ms;

    for (size_t at = 0; ts_now_ms() < until && !atomic_load(&sh->stop); at++) {
        size_t a = at % SERVERS, b = (at + 1 + any(SERVERS - 1)) % SERVERS;
        strike(a);
        if (b != a)
            strike(b);
        pause_ms(20 + any(any(4) ? 150 : (unsigned)REPLY_MS * 2));
        mend(a);
        mend(b);
        pause_ms(any(20));
    }
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
    for (size_t i = 0; i < SERVERS; i++)
        px[i] = ts_proxy_start(srv[i]);
    seed = asked ? (unsigned)atoi(asked)
                 : (unsigned)ts_now_ms() ^ (unsigned)getpid();
    print_message("nemesis: DIBS_STRESS_SEED=%u\n", seed);
    begin();
    rage(seconds() * 1000);
    tell("nemesis");
    uint64_t fewest = ts_witness_fewest(witness);
    atomic_store(&sh->quiet, true);
    TS_WAIT(everybody_again() || atomic_load(&sh->stop));
    finish();
    nobody_met();
    assert_true(fewest > 0); /* progress, not only when it was over */
    ts_witness_free(witness);
}

/* ---- all --------------------------------------------------------------- */

static int group_setup(void **state)
{
    static const char *const lasting[] = {"--appendonly", "yes",
                                          "--appendfsync", "always", NULL};

    (void)state;
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED)
        return -1;
    for (size_t i = 0; i < SERVERS; i++)
        srv[i] = ts_server_start(lasting);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < WORKERS; i++)
        ts_child_free(workers[i]);
    for (size_t i = 0; i < SERVERS; i++) {
        ts_proxy_stop(px[i]);
        ts_server_resume(srv[i]);
        ts_server_stop(srv[i]);
    }
    munmap(sh, sizeof *sh);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_nemesis),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
