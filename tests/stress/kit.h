/* SPDX-License-Identifier: MIT
 *
 * kit.h - what the stress tests share: child processes whose workers take a
 * lock and go in, a witness that sees them, and chance that can be repeated.
 *
 * Use     st_up and st_down are for cmocka's group fixtures. A test spawns its
 *         processes, which hear twice from it: when the URLs are on the board,
 *         and, all being ready, to begin. st_finish ends them.
 * Fork    Children are made before any thread is, a proxy's too; so a URL comes
 *         to them by the board.
 * Holds   A worker holds the lock from the moment acquire says so until it
 *         calls release, is told of a loss, or its own clock says that the
 *         lease is over, whichever comes first. So before it goes in it looks
 *         how much time it has, and goes in only if that is many times what it
 *         will take.
 * Longer  $DIBS_TEST_LONG=1 makes it a soak, $DIBS_STRESS_SECONDS says how
 *         long, $DIBS_STRESS_SEED repeats a nemesis.
 */
#ifndef DIBS_TESTS_STRESS_KIT_H
#define DIBS_TESTS_STRESS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dibs/dibs.h>
#include <stdatomic.h>

#include "support/proxy.h"
#include "support/server.h"
#include "support/util.h"
#include "support/witness.h"

#define ST_NAME     "stress" /* the lock of st_open */
#define ST_LEASE_MS ts_ms(3000)
#define ST_REPLY_MS ts_ms(250) /* a command's time, in the nemesis run */

enum { ST_SERVERS = 5, ST_PROCESSES = 4, ST_WORKERS = 32 }; /* at most */

enum st_mode {
    ST_PLAIN,  /* nothing goes wrong */
    ST_BROKEN, /* somebody goes in without the lock: it must be noticed */
    ST_NEMESIS /* there are faults */
};

/* Between the test and its children. */
struct st_board {
    enum st_mode mode;
    char url[ST_SERVERS][200];
    atomic_bool stop;
    atomic_bool quiet;                /* the faults are over */
    atomic_uint in_quiet[ST_WORKERS]; /* times the lock was had since then */
    atomic_uint odd;                  /* errors, lost locks, all told */
    atomic_bool told;                 /* problem is taken */
    char problem[160];
};

extern struct st_board *st_board;
extern struct ts_witness *st_witness;

void st_up(void);
void st_down(void); /* what a failed test has left, too */
/* Zeroed memory that children share. It stays until the program ends. */
void *st_share(size_t size);

/* ---- in the children --------------------------------------------------- */

/* Waits until the URLs are on the board; says that all is ready, and waits
 * until it may begin. False: nobody said so. */
bool st_may_open(int fd);
bool st_ready(int fd);

/* A client of this server, and the lock there. */
dibs_err st_open(size_t server, dibs_client **c, dibs_lock **l);
void st_close(size_t number, dibs_client *c, dibs_lock *l);

/* Something went wrong: all stop, and the test fails. */
void st_complain(size_t number, const char *what, dibs_err err);
void st_go_in(size_t number);
/* Takes it, goes in, gives it back. Errors are part of the game only where
 * there are faults. */
void st_round(size_t number, dibs_lock *l);

/* ---- the test's side --------------------------------------------------- */

/* So many processes; life gets a pointer to its number, a size_t. The witness
 * is ours from here on. */
void st_spawn(enum st_mode mode, struct ts_witness *witness, size_t processes,
              int (*life)(int fd, void *number));
void st_url(size_t server, const char *url);
void st_begin(void);
/* Until the time is over, or somebody has complained. */
void st_watch(int64_t ms);
/* The faults are over: every worker must get the lock again. */
void st_quiet(size_t workers);
/* Waits until the processes have ended, all well. */
void st_join(void);
/* Ends them; nobody is in, and nothing is left on these servers. */
void st_finish(struct ts_server *const *srv, size_t servers);
void st_nobody_met(void);
/* The witness goes. */
void st_over(void);

/* The broken run, between st_begin and st_over. */
void st_must_notice(struct ts_server *const *srv, size_t servers);

/* ---- time and chance --------------------------------------------------- */

int64_t st_seconds(void);
void st_pause_ms(int64_t ms);
/* The seed of st_any, as asked for or a new one; it is told. */
void st_seed(void);
unsigned st_any(unsigned below);
/* A worker's own. */
unsigned st_dice(unsigned *seed, unsigned sides);

#endif
