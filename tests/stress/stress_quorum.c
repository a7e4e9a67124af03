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
 * What counts as holding, and what makes it longer or repeats it, is said in
 * kit.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stress/kit.h"

#define WORKERS 3
#define SERVERS 5
#define ROGUE   20 /* broken: every so often with one server alone */
#define GRANTS  (ts_long() ? 3000u : 1000u) /* plain: at least so many */
#define LEAST   50                          /* of these, everybody */

/* ---- workers, each a child --------------------------------------------- */

struct worker {
    size_t number;
    dibs_client *c[SERVERS];
    dibs_lock *l[SERVERS], *q;
};

static dibs_err open_all(struct worker *me)
{
    dibs_err err = DIBS_OK;

    for (size_t i = 0; i < SERVERS && err == DIBS_OK; i++)
        err = st_open(i, &me->c[i], &me->l[i]);
    return err ? err : dibs_quorum_lock_new(me->l, SERVERS, &me->q);
}

static void close_all(struct worker *me)
{
    dibs_lock_free(me->q);
    for (size_t i = 0; i < SERVERS; i++)
        st_close(me->number, me->c[i], me->l[i]);
}

static int work(int fd, void *arg)
{
    struct worker me = {.number = *(const size_t *)arg};

    if (!st_may_open(fd))
        return 2;
    dibs_err err = open_all(&me);
    if (err != DIBS_OK)
        st_complain(me.number, "opening", err);
    if (!st_ready(fd))
        return 3;
    for (unsigned i = 1; me.q && !atomic_load(&st_board->stop); i++)
        if (st_board->mode == ST_BROKEN && i % ROGUE == 0)
            st_round(me.number, me.l[me.number]);
        else
            st_round(me.number, me.q);
    close_all(&me);
    return 0;
}

/* ---- the test's side --------------------------------------------------- */

static struct ts_server *srv[SERVERS];
static struct ts_proxy *px[SERVERS];

static void spawn(enum st_mode mode)
{
    st_spawn(mode, ts_witness_new(1, WORKERS), WORKERS, work);
}

static void begin(void)
{
    for (size_t i = 0; i < SERVERS; i++)
        st_url(i, px[i] ? ts_proxy_url(px[i]) : ts_server_url(srv[i]));
    st_begin();
}

static void tell(const char *run)
{
    print_message("%s: %llu grants, the fewest of one worker %llu, %u errors "
                  "and losses\n",
                  run, (unsigned long long)ts_witness_total(st_witness),
                  (unsigned long long)ts_witness_fewest(st_witness),
                  atomic_load(&st_board->odd));
}

static void test_plain(void **state)
{
    struct ts_wait w = ts_wait_begin(TS_SOON * 8);

    (void)state;
    spawn(ST_PLAIN);
    begin();
    while (ts_witness_total(st_witness) < GRANTS ||
           ts_witness_fewest(st_witness) < LEAST) {
        if (atomic_load(&st_board->stop) || !ts_wait_step(&w))
            break;
    }
    tell("plain");
    bool enough = ts_witness_total(st_witness) >= GRANTS &&
                  ts_witness_fewest(st_witness) >= LEAST;
    st_finish(srv, SERVERS);
    st_nobody_met();
    assert_true(enough);
    st_over();
}

static void test_broken(void **state)
{
    (void)state;
    spawn(ST_BROKEN);
    begin();
    st_must_notice(srv, SERVERS);
    st_over();
}

/* ---- nemesis ----------------------------------------------------------- */

static void trap(size_t i, enum ts_action action)
{
    ts_proxy_rule(px[i], &(struct ts_rule){.action = action,
                                           .match = "EVAL*",
                                           .skip = st_any(3),
                                           .count = st_any(3),
                                           .at = st_any(4)});
}

/* Something happens to a server. */
static void strike(size_t i)
{
    static const enum ts_action actions[] = {
        TS_CLOSE_BEFORE, TS_CUT_REPLY_AT, TS_DROP_REPLY_CLOSE,
        TS_HOLD_REPLY,   TS_HOLD_REQUEST, TS_DROP_REPLY_CLOSE};

    switch (st_any(10)) {
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
        ts_proxy_blackhole(px[i], st_any(2), true);
        break;
    default:
        trap(i, actions[st_any(6)]);
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

/* Two at a time, each pair in its turn; the one that was hit is well again
 * before the next ones are. */
static void rage(int64_t ms)
{
    int64_t until = ts_now_ms() + ms;

    for (size_t at = 0; ts_now_ms() < until && !atomic_load(&st_board->stop);
         at++) {
        size_t a = at % SERVERS, b = (at + 1 + st_any(SERVERS - 1)) % SERVERS;
        strike(a);
        if (b != a)
            strike(b);
        st_pause_ms(20 + st_any(st_any(4) ? 150 : (unsigned)ST_REPLY_MS * 2));
        mend(a);
        mend(b);
        st_pause_ms(st_any(20));
    }
}

static void test_nemesis(void **state)
{
    (void)state;
    spawn(ST_NEMESIS);
    for (size_t i = 0; i < SERVERS; i++)
        px[i] = ts_proxy_start(srv[i]);
    st_seed();
    begin();
    rage(st_seconds() * 1000);
    /* On a slow machine some had no turn yet. */
    int64_t until = ts_now_ms() + 2 * TS_SOON;
    while (ts_witness_fewest(st_witness) == 0 && ts_now_ms() < until &&
           !atomic_load(&st_board->stop))
        rage(1000);
    tell("nemesis");
    uint64_t fewest = ts_witness_fewest(st_witness);
    st_quiet(WORKERS);
    st_finish(srv, SERVERS);
    st_nobody_met();
    assert_true(fewest > 0); /* progress, not only when it was over */
    st_over();
}

/* ---- all --------------------------------------------------------------- */

static int group_setup(void **state)
{
    static const char *const lasting[] = {"--appendonly", "yes",
                                          "--appendfsync", "always", NULL};

    (void)state;
    st_up();
    for (size_t i = 0; i < SERVERS; i++)
        srv[i] = ts_server_start(lasting);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    st_down();
    for (size_t i = 0; i < SERVERS; i++) {
        ts_proxy_stop(px[i]);
        ts_server_resume(srv[i]);
        ts_server_stop(srv[i]);
    }
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
