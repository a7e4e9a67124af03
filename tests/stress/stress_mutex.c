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
 * What counts as holding, and what makes it longer or repeats it, is said in
 * kit.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stress/kit.h"

#include <pthread.h>

#define PROCESSES 4
#define THREADS   8
#define WORKERS   (PROCESSES * THREADS)
#define ROGUE     50 /* broken: every so often without the lock */

/* ---- workers, in the children ------------------------------------------ */

struct worker {
    pthread_t thread;
    size_t number;
    dibs_lock *l;
};

static void *work(void *arg)
{
    struct worker *me = arg;

    for (unsigned i = 1; !atomic_load(&sk_board->stop); i++)
        if (sk_board->mode == SK_BROKEN && i % ROGUE == 0)
            sk_go_in(me->number);
        else
            sk_round(me->number, me->l);
    return NULL;
}

static int team(int fd, void *arg)
{
    size_t number = *(const size_t *)arg;
    struct worker workers[THREADS];
    dibs_client *c = NULL;
    dibs_lock *l = NULL;

    if (!sk_may_open(fd))
        return 2;
    dibs_err err = sk_open(0, &c, &l);
    if (err != DIBS_OK)
        sk_complain(number, "opening", err);
    if (!sk_ready(fd))
        return 3;
    for (size_t i = 0; l && i < THREADS; i++) {
        workers[i] = (struct worker){.number = number * THREADS + i, .l = l};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (size_t i = 0; l && i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    sk_close(number, c, l);
    return 0;
}

/* ---- the test's side --------------------------------------------------- */

static struct ts_server *srv;

static void spawn(enum sk_mode mode)
{
    sk_spawn(mode, ts_witness_new(1, WORKERS), PROCESSES, team);
}

static void begin(const char *url)
{
    sk_url(0, url);
    sk_begin();
}

static void test_plain(void **state)
{
    (void)state;
    spawn(SK_PLAIN);
    begin(ts_server_url(srv));
    sk_watch(sk_seconds() * 300);
    TS_WAIT(ts_witness_fewest(sk_witness) > 0 || atomic_load(&sk_board->stop));
    sk_finish(&srv, 1);
    sk_nobody_met();
    print_message("plain: %llu entries, the fewest of one worker %llu\n",
                  (unsigned long long)ts_witness_total(sk_witness),
                  (unsigned long long)ts_witness_fewest(sk_witness));
    sk_over();
}

static void test_broken(void **state)
{
    (void)state;
    spawn(SK_BROKEN);
    begin(ts_server_url(srv));
    sk_must_notice(&srv, 1);
    sk_over();
}

/* ---- nemesis ----------------------------------------------------------- */

static void trap(struct ts_proxy *px, enum ts_action action, size_t at)
{
    ts_proxy_rule(px, &(struct ts_rule){.action = action,
                                        .match = action == TS_SWALLOW_MESSAGE
                                                     ? NULL
                                                     : "EVAL*",
                                        .skip = sk_any(3),
                                        .count = 1 + sk_any(3),
                                        .at = at});
}

static void strike(struct ts_proxy *px)
{
    switch (sk_any(13)) {
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
        ts_ok(srv, "CLIENT PAUSE %u WRITE",
              50 + sk_any(2 * (unsigned)SK_REPLY_MS));
        break;
    case 4:
        ts_server_pause(srv);
        sk_pause_ms(
            20 + sk_any(SK_LEASE_MS > 8000 ? 1000 : (unsigned)SK_LEASE_MS / 6));
        ts_server_resume(srv);
        break;
    case 5:
        ts_proxy_kill_all(px, false);
        break;
    case 6:
        trap(px, TS_CLOSE_BEFORE, 0);
        break;
    case 7:
        trap(px, TS_CUT_REPLY_AT, sk_any(4));
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

    while (ts_now_ms() < until && !atomic_load(&sk_board->stop)) {
        strike(px);
        sk_pause_ms(5 + sk_any(60));
    }
    ts_proxy_unrule(px, 0);
    ts_proxy_release(px);
    ts_ok(srv, "CLIENT UNPAUSE");
}

static void test_nemesis(void **state)
{
    (void)state;
    spawn(SK_NEMESIS);
    struct ts_proxy *px = ts_proxy_start(srv);
    sk_seed();
    begin(ts_proxy_url(px));
    rage(px, sk_seconds() * 600);
    unsigned odd = atomic_load(&sk_board->odd);
    sk_quiet(WORKERS);
    sk_finish(&srv, 1);
    sk_nobody_met();
    print_message("nemesis: %llu entries, %u errors and losses\n",
                  (unsigned long long)ts_witness_total(sk_witness), odd);
    sk_over();
    ts_proxy_stop(px);
}

/* ---- all --------------------------------------------------------------- */

static int group_setup(void **state)
{
    (void)state;
    sk_up();
    srv = ts_server_start(NULL);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    sk_down();
    ts_server_stop(srv);
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
