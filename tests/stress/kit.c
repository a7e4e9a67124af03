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

#define ENOUGH    (ST_LEASE_MS / 2) /* time left with which one may go in */
#define TURNS_MAX 5 /* so often a process has the time to end once more */

struct st_board *st_board;
struct ts_witness *st_witness;

static struct ts_child *children[ST_PROCESSES];
static size_t numbers[ST_PROCESSES];
static size_t spawned;

void *st_share(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        ts_fatal("no memory to share");
    return at;
}

void st_up(void)
{
    st_board = st_share(sizeof *st_board);
}

void st_down(void)
{
    for (size_t i = 0; i < ST_PROCESSES; i++)
        ts_child_free(children[i]);
    munmap(st_board, sizeof *st_board);
}

/* ---- in the children --------------------------------------------------- */

bool st_may_open(int fd)
{
    char word;

    return ts_hear(fd, &word, 1, TS_SOON);
}

bool st_ready(int fd)
{
    char word;

    return ts_tell(fd, "r", 1) && ts_hear(fd, &word, 1, TS_SOON);
}

dibs_err st_open(size_t server, dibs_client **c, dibs_lock **l)
{
    int64_t reply_ms = st_board->mode == ST_NEMESIS ? ST_REPLY_MS : TS_SOON;
    dibs_err err =
        dibs_client_open(st_board->url[server],
                         DIBS_CLIENT_OPTS(.lease_ms = ST_LEASE_MS,
                                          .command_timeout_ms = reply_ms),
                         c);

    return err == DIBS_OK ? dibs_lock_new(*c, ST_NAME, l) : err;
}

void st_close(size_t number, dibs_client *c, dibs_lock *l)
{
    dibs_lock_free(l);
    dibs_err err = c ? dibs_client_close(c, TS_SOON) : DIBS_OK;
    if (err != DIBS_OK)
        st_complain(number, "closing", err);
    dibs_client_free(c);
}

void st_complain(size_t number, const char *what, dibs_err err)
{
    bool none = false;

    if (atomic_compare_exchange_strong(&st_board->told, &none, true))
        snprintf(st_board->problem, sizeof st_board->problem,
                 "worker %zu: %s: %s", number, what, dibs_strerror(err));
    atomic_store(&st_board->stop, true);
}

void st_go_in(size_t number)
{
    ts_witness_enter(st_witness, 0, number);
    ts_witness_leave(st_witness, 0, number);
}

static void judge(size_t number, const char *what, dibs_err err)
{
    bool quiet = atomic_load(&st_board->quiet);

    if (err == DIBS_OK)
        return;
    atomic_fetch_add(&st_board->odd, 1);
    if (st_board->mode != ST_NEMESIS || err == DIBS_ERR_NOT_OWNER ||
        err == DIBS_ERR_INVALID || err == DIBS_ERR_NOMEM ||
        err == DIBS_ERR_WRONGTYPE || err == DIBS_ERR_PROTOCOL)
        st_complain(number, quiet ? "in the quiet" : what, err);
}

void st_round(size_t number, dibs_lock *l)
{
    bool quiet = atomic_load(&st_board->quiet);
    dibs_err err = dibs_lock_acquire(l, NULL);

    judge(number, "acquire", err);
    if (err != DIBS_OK)
        return;
    bool safe = dibs_lock_valid_ms(l, 0) >= ENOUGH;
    if (safe)
        st_go_in(number);
    else
        atomic_fetch_add(&st_board->odd, 1);
    judge(number, "release", dibs_lock_release(l, NULL));
    if (quiet && safe)
        atomic_fetch_add(&st_board->in_quiet[number], 1);
}

/* ---- the test's side --------------------------------------------------- */

void st_spawn(enum st_mode mode, struct ts_witness *witness, size_t processes,
              int (*life)(int fd, void *number))
{
    if (processes > ST_PROCESSES)
        ts_fatal("%zu processes are too many", processes);
    memset(st_board, 0, sizeof *st_board);
    st_board->mode = mode;
    st_witness = witness;
    spawned = processes;
    for (size_t i = 0; i < spawned; i++) {
        numbers[i] = i;
        children[i] = ts_spawn(life, &numbers[i]);
    }
}

void st_url(size_t server, const char *url)
{
    snprintf(st_board->url[server], sizeof st_board->url[server], "%s", url);
}

void st_begin(void)
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

void st_watch(int64_t ms)
{
    int64_t until = ts_now_ms() + ms;

    while (ts_now_ms() < until && !atomic_load(&st_board->stop))
        st_pause_ms(10);
}

static bool everybody_again(size_t workers)
{
    for (size_t i = 0; i < workers; i++)
        if (atomic_load(&st_board->in_quiet[i]) == 0)
            return false;
    return true;
}

void st_quiet(size_t workers)
{
    atomic_store(&st_board->quiet, true);
    TS_WAIT(everybody_again(workers) || atomic_load(&st_board->stop));
}

/* On a busy machine it takes its time; while somebody gets in, that is all. */
static int wait_working(struct ts_child *ch)
{
    uint64_t before;
    int rc, turns = 0;

    do {
        before = ts_witness_total(st_witness);
        rc = ts_child_wait(ch, TS_SOON * 2);
    } while (rc == -1 && ts_witness_total(st_witness) > before &&
             ++turns < TURNS_MAX);
    return rc;
}

void st_join(void)
{
    const char *problem = st_board->problem;

    for (size_t i = 0; i < spawned; i++) {
        int rc = wait_working(children[i]);
        if (rc != 0)
            fail_msg("process %zu ended with %d after %llu entries%s%s", i, rc,
                     (unsigned long long)ts_witness_total(st_witness),
                     problem[0] ? ": " : "", problem);
        ts_child_free(children[i]);
        children[i] = NULL;
    }
    if (problem[0])
        fail_msg("%s", problem);
}

void st_finish(struct ts_server *const *srv, size_t servers)
{
    atomic_store(&st_board->stop, true);
    st_join();
    assert_int_equal(ts_witness_inside(st_witness, 0), -1);
    for (size_t i = 0; i < servers; i++) {
        if (!ts_wait_exists(srv[i], ST_NAME, false))
            fail_msg("something stays on server %zu", i);
        TS_WAIT(ts_nchannels(srv[i]) == 0);
        assert_int_equal(ts_nkeys(srv[i]), 0);
    }
}

void st_nobody_met(void)
{
    if (ts_witness_violations(st_witness) > 0)
        fail_msg("%llu meetings; the first: %s",
                 (unsigned long long)ts_witness_violations(st_witness),
                 ts_witness_first(st_witness));
}

void st_over(void)
{
    ts_witness_free(st_witness);
    st_witness = NULL;
}

void st_must_notice(struct ts_server *const *srv, size_t servers)
{
    TS_WAIT(ts_witness_violations(st_witness) > 0 ||
            atomic_load(&st_board->stop));
    st_finish(srv, servers);
    assert_true(ts_witness_violations(st_witness) > 0);
    assert_string_not_equal(ts_witness_first(st_witness), "");
}

/* ---- time and chance --------------------------------------------------- */

int64_t st_seconds(void)
{
    const char *asked = getenv("DIBS_STRESS_SECONDS");

    return asked && atoi(asked) > 0 ? atoi(asked) : ts_long() ? 30 : 4;
}

void st_pause_ms(int64_t ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&ts, NULL);
}

static unsigned seed;

void st_seed(void)
{
    const char *asked = getenv("DIBS_STRESS_SEED");

    seed = asked ? (unsigned)atoi(asked)
                 : (unsigned)ts_now_ms() ^ (unsigned)getpid();
    print_message("nemesis: DIBS_STRESS_SEED=%u\n", seed);
}

unsigned st_any(unsigned below)
{
    return (unsigned)rand_r(&seed) % below;
}

unsigned st_dice(unsigned *own, unsigned sides)
{
    *own = *own * 1103515245u + 12345u;
    return (*own >> 16) % sides;
}
