/* SPDX-License-Identifier: MIT
 *
 * kit.c - what the stress tests share.
 *
 * Thread  the test's main thread; what is for the children, any of theirs.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stress/kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ENOUGH (SK_LEASE_MS / 2) /* time left with which one may go in */

struct sk_board *sk_board;
struct ts_witness *sk_witness;

static struct ts_child *children[SK_PROCESSES];
static size_t numbers[SK_PROCESSES];
static size_t spawned;

void *sk_share(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        ts_fatal("no memory to share");
    return at;
}

void sk_up(void)
{
    sk_board = sk_share(sizeof *sk_board);
}

void sk_down(void)
{
    for (size_t i = 0; i < SK_PROCESSES; i++)
        ts_child_free(children[i]);
    munmap(sk_board, sizeof *sk_board);
}

/* ---- in the children --------------------------------------------------- */

bool sk_may_open(int fd)
{
    char word;

    return ts_hear(fd, &word, 1, TS_SOON);
}

bool sk_ready(int fd)
{
    char word;

    return ts_tell(fd, "r", 1) && ts_hear(fd, &word, 1, TS_SOON);
}

dibs_err sk_open(size_t server, dibs_client **c, dibs_lock **l)
{
    int64_t reply_ms = sk_board->mode == SK_NEMESIS ? SK_REPLY_MS : TS_SOON;
    dibs_err err =
        dibs_client_open(sk_board->url[server],
                         DIBS_CLIENT_OPTS(.lease_ms = SK_LEASE_MS,
                                          .command_timeout_ms = reply_ms),
                         c);

    return err == DIBS_OK ? dibs_lock_new(*c, SK_NAME, l) : err;
}

void sk_close(size_t number, dibs_client *c, dibs_lock *l)
{
    dibs_lock_free(l);
    dibs_err err = c ? dibs_client_close(c, TS_SOON) : DIBS_OK;
    if (err != DIBS_OK)
        sk_complain(number, "closing", err);
    dibs_client_free(c);
}

void sk_complain(size_t number, const char *what, dibs_err err)
{
    bool none = false;

    if (atomic_compare_exchange_strong(&sk_board->told, &none, true))
        snprintf(sk_board->problem, sizeof sk_board->problem,
                 "worker %zu: %s: %s", number, what, dibs_strerror(err));
    atomic_store(&sk_board->stop, true);
}

void sk_go_in(size_t number)
{
    ts_witness_enter(sk_witness, 0, number);
    ts_witness_leave(sk_witness, 0, number);
}

static void judge(size_t number, const char *what, dibs_err err)
{
    bool quiet = atomic_load(&sk_board->quiet);

    if (err == DIBS_OK)
        return;
    atomic_fetch_add(&sk_board->odd, 1);
    if (sk_board->mode != SK_NEMESIS || err == DIBS_ERR_NOT_OWNER ||
        err == DIBS_ERR_INVALID || err == DIBS_ERR_NOMEM ||
        err == DIBS_ERR_WRONGTYPE || err == DIBS_ERR_PROTOCOL)
        sk_complain(number, quiet ? "in the quiet" : what, err);
}

void sk_round(size_t number, dibs_lock *l)
{
    bool quiet = atomic_load(&sk_board->quiet);
    dibs_err err = dibs_lock_acquire(l, NULL);

    judge(number, "acquire", err);
    if (err != DIBS_OK)
        return;
    bool safe = dibs_lock_valid_ms(l, 0) >= ENOUGH;
    if (safe)
        sk_go_in(number);
    else
        atomic_fetch_add(&sk_board->odd, 1);
    judge(number, "release", dibs_lock_release(l, NULL));
    if (quiet && safe)
        atomic_fetch_add(&sk_board->in_quiet[number], 1);
}

/* ---- the test's side --------------------------------------------------- */

void sk_spawn(enum sk_mode mode, struct ts_witness *witness, size_t processes,
              int (*life)(int fd, void *number))
{
    if (processes > SK_PROCESSES)
        ts_fatal("%zu processes are too many", processes);
    memset(sk_board, 0, sizeof *sk_board);
    sk_board->mode = mode;
    sk_witness = witness;
    spawned = processes;
    for (size_t i = 0; i < spawned; i++) {
        numbers[i] = i;
        children[i] = ts_spawn(life, &numbers[i]);
    }
}

void sk_url(size_t server, const char *url)
{
    snprintf(sk_board->url[server], sizeof sk_board->url[server], "%s", url);
}

void sk_begin(void)
{
    char ready;

    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < spawned; i++) {
            if (!ts_tell(ts_child_fd(children[i]), "g", 1))
                ts_fatal("process %zu is gone", i);
            if (round == 0 &&
                !ts_hear(ts_child_fd(children[i]), &ready, 1, TS_SOON))
                ts_fatal("process %zu is not ready", i);
        }
}

void sk_watch(int64_t ms)
{
    int64_t until = ts_now_ms() + ms;

    while (ts_now_ms() < until && !atomic_load(&sk_board->stop))
        sk_pause_ms(10);
}

static bool everybody_again(size_t workers)
{
    for (size_t i = 0; i < workers; i++)
        if (atomic_load(&sk_board->in_quiet[i]) == 0)
            return false;
    return true;
}

void sk_quiet(size_t workers)
{
    atomic_store(&sk_board->quiet, true);
    TS_WAIT(everybody_again(workers) || atomic_load(&sk_board->stop));
}

void sk_join(void)
{
    const char *problem = sk_board->problem;

    for (size_t i = 0; i < spawned; i++) {
        int rc = ts_child_wait(children[i], TS_SOON * 2);
        if (rc != 0)
            fail_msg("process %zu ended with %d after %llu entries%s%s", i, rc,
                     (unsigned long long)ts_witness_total(sk_witness),
                     problem[0] ? ": " : "", problem);
        ts_child_free(children[i]);
        children[i] = NULL;
    }
    if (problem[0])
        fail_msg("%s", problem);
}

void sk_finish(struct ts_server *const *srv, size_t servers)
{
    atomic_store(&sk_board->stop, true);
    sk_join();
    assert_int_equal(ts_witness_inside(sk_witness, 0), -1);
    for (size_t i = 0; i < servers; i++) {
        if (!ts_wait_exists(srv[i], SK_NAME, false))
            fail_msg("something stays on server %zu", i);
        TS_WAIT(ts_nchannels(srv[i]) == 0);
        assert_int_equal(ts_nkeys(srv[i]), 0);
    }
}

void sk_nobody_met(void)
{
    if (ts_witness_violations(sk_witness) > 0)
        fail_msg("%llu meetings; the first: %s",
                 (unsigned long long)ts_witness_violations(sk_witness),
                 ts_witness_first(sk_witness));
}

void sk_over(void)
{
    ts_witness_free(sk_witness);
    sk_witness = NULL;
}

void sk_must_notice(struct ts_server *const *srv, size_t servers)
{
    TS_WAIT(ts_witness_violations(sk_witness) > 0 ||
            atomic_load(&sk_board->stop));
    sk_finish(srv, servers);
    assert_true(ts_witness_violations(sk_witness) > 0);
    assert_string_not_equal(ts_witness_first(sk_witness), "");
}

/* ---- time and chance --------------------------------------------------- */

int64_t sk_seconds(void)
{
    const char *asked = getenv("DIBS_STRESS_SECONDS");

    return asked && atoi(asked) > 0 ? atoi(asked) : 7;
}

void sk_pause_ms(int64_t ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&ts, NULL);
}

static unsigned seed;

void sk_seed(void)
{
    const char *asked = getenv("DIBS_STRESS_SEED");

    seed = asked ? (unsigned)atoi(asked)
                 : (unsigned)ts_now_ms() ^ (unsigned)getpid();
    print_message("nemesis: DIBS_STRESS_SEED=%u\n", seed);
}

unsigned sk_any(unsigned below)
{
    return (unsigned)rand_r(&seed) % below;
}

unsigned sk_dice(unsigned *own, unsigned sides)
{
    *own = *own * 1103515245u + 12345u;
    return (*own >> 16) % sides;
}
