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

    for (unsigned i = 1; !atomic_load(&st_board->stop); i++)
        if (st_board->mode == ST_BROKEN && i % ROGUE == 0)
            st_go_in(me->number);
        else
            st_round(me->number, me->l);
    return NULL;
}

static int team(int fd, void *arg)
{
    size_t number = *(const size_t *)arg;
    struct worker workers[THREADS];
    dibs_client *c = NULL;
    dibs_lock *l = NULL;

    if (!st_may_open(fd))
        return 2;
    dibs_err err = st_open(0, &c, &l);
    if (err != DIBS_OK)
        st_complain(number, "opening", err);
    if (!st_ready(fd))
        return 3;
    for (size_t i = 0; l && i < THREADS; i++) {
        workers[i] = (struct worker){.number = number * THREADS + i, .l = l};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (size_t i = 0; l && i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    st_close(number, c, l);
    return 0;
}

/* ---- the test's side --------------------------------------------------- */

static struct ts_server *srv;

static void spawn(enum st_mode mode)
{
    st_spawn(mode, ts_witness_new(1, WORKERS), PROCESSES, team);
}

static void begin(const char *url)
{
    st_url(0, url);
    st_begin();
}

static void test_plain(void **state)
{
    (void)state;
    spawn(ST_PLAIN);
    begin(ts_server_url(srv));
    st_watch(st_seconds() * 300);
    TS_WAIT(ts_witness_fewest(st_witness) > 0 || atomic_load(&st_board->stop));
    st_finish(&srv, 1);
    st_nobody_met();
    print_message("plain: %llu entries, the fewest of one worker %llu\n",
                  (unsigned long long)ts_witness_total(st_witness),
                  (unsigned long long)ts_witness_fewest(st_witness));
    st_over();
}

static void test_broken(void **state)
{
    (void)state;
    spawn(ST_BROKEN);
    begin(ts_server_url(srv));
    st_must_notice(&srv, 1);
    st_over();
}

/* ---- nemesis ----------------------------------------------------------- */

static void trap(struct ts_proxy *px, enum ts_action action, size_t at)
{
    ts_proxy_rule(px, &(struct ts_rule){.action = action,
                                        .match = action == TS_SWALLOW_MESSAGE
                                                     ? NULL
                                                     : "EVAL*",
                                        .skip = st_any(3),
                                        .count = 1 + st_any(3),
                                        .at = at});
}

static void strike(struct ts_proxy *px)
{
    switch (st_any(13)) {
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
              50 + st_any(2 * (unsigned)ST_REPLY_MS));
        break;
    case 4:
        ts_server_pause(srv);
        st_pause_ms(
            20 + st_any(ST_LEASE_MS > 8000 ? 1000 : (unsigned)ST_LEASE_MS / 6));
        ts_server_resume(srv);
        break;
    case 5:
        ts_proxy_kill_all(px, false);
        break;
    case 6:
        trap(px, TS_CLOSE_BEFORE, 0);
        break;
    case 7:
        trap(px, TS_CUT_REPLY_AT, st_any(4));
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

    while (ts_now_ms() < until && !atomic_load(&st_board->stop)) {
        strike(px);
        st_pause_ms(5 + st_any(60));
    }
    ts_proxy_unrule(px, 0);
    ts_proxy_release(px);
    ts_ok(srv, "CLIENT UNPAUSE");
}

static void test_nemesis(void **state)
{
    (void)state;
    spawn(ST_NEMESIS);
    struct ts_proxy *px = ts_proxy_start(srv);
    st_seed();
    begin(ts_proxy_url(px));
    rage(px, st_seconds() * 600);
    unsigned odd = atomic_load(&st_board->odd);
    st_quiet(WORKERS);
    st_finish(&srv, 1);
    st_nobody_met();
    print_message("nemesis: %llu entries, %u errors and losses\n",
                  (unsigned long long)ts_witness_total(st_witness), odd);
    st_over();
    ts_proxy_stop(px);
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
    st_down();
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
