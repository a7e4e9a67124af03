/* SPDX-License-Identifier: MIT
 *
 * kit.h - what the interoperation tests share: a server, a Java client and a
 * dibs client for the whole program; short words for both; waiters.
 *
 * After each test nothing may be left on the server: no lock, no queue, no
 * read key. (Redisson removes the helper keys of its releases a moment later,
 * so that is waited for.)
 *
 * Checks must be made on the main thread: cmocka jumps out of the function
 * that fails.
 */
#ifndef DIBS_TESTS_INTEROP_KIT_H
#define DIBS_TESTS_INTEROP_KIT_H

#include <dibs/dibs.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interop/jvm.h"
#include "support/server.h"
#include "support/util.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* What is promised is 200 ms. This is late: so far beyond it that only a timer,
 * and no message, can have been the waker, or the machine stood still. */
#define WAKE_GUARD_US (ts_ms(1500) * 1000)

enum kind { PLAIN, FAIR, READ, WRITE };

extern struct ts_server *srv;
extern struct jvm *jvm;  /* with Redisson's defaults */
extern dibs_client *dib; /* with ours */

/* ---- the frame --------------------------------------------------------- */

int kit_start(void **state);
int kit_stop(void **state);
int kit_before(void **state);
int kit_after(void **state);

#define KIT_TEST(f) cmocka_unit_test_setup_teardown(f, kit_before, kit_after)
/* For what leaves keys on purpose: counters, tokens. The test looks at them. */
#define KIT_OBJECT(f) cmocka_unit_test_setup(f, kit_before)
#define KIT_RUN(name, tests)                                                   \
    cmocka_run_group_tests_name(name, tests, kit_start, kit_stop)

/* A second Java client of its own settings: "watchdog=2000", or two. */
struct jvm *kit_java(const char *setting, const char *another);

/* Until so much time has passed. For what shows only in time, such as a lease
 * that ends. */
void kit_pass(int64_t ms);

/* ---- dibs -------------------------------------------------------------- */

#define WANT(call, want) kit_want((call), (want), #call, __FILE__, __LINE__)
#define FINE(call)       WANT(call, DIBS_OK)
void kit_want(dibs_err got, dibs_err want, const char *call, const char *file,
              int line);

dibs_client *kit_open(const dibs_client_opts *opts);
dibs_lock *kit_lock(dibs_client *c, enum kind kind, const char *name);
/* Whether a try of a stranger gets the lock; if so it is given back. */
bool kit_free_for_dibs(enum kind kind, const char *name);

/* An acquire on a thread of its own: an owner that waits. */
struct waiter {
    dibs_lock *l;
    dibs_lock_opts opts;
    dibs_err err;
    int64_t end_us; /* when the call came back */
    atomic_bool done;
    pthread_t thread;
};

void waiter_start(struct waiter *w, dibs_client *c, enum kind kind,
                  const char *name, const dibs_lock_opts *opts);
/* The same with a handle, which is the waiter's then. */
void waiter_start_on(struct waiter *w, dibs_client *c, dibs_lock *l,
                     const dibs_lock_opts *opts);
dibs_err waiter_end(struct waiter *w); /* its answer; the handle stays */
/* Gives back what it got, and the handle. When it began, in us. */
int64_t waiter_release(struct waiter *w);

int64_t kit_now_us(void);

/* A process that does something, tells a number, and then waits to be killed:
 * kit_doom starts it, and gives the number. fn gives it; below 0 it failed. */
struct ts_child *kit_doom(int64_t (*fn)(void), int64_t *number);

/* ---- Java -------------------------------------------------------------- */

const char *kind_name(enum kind kind);

/* The request must end well; gives its number. */
#define JAVA(worker, op, kind, name, numbers)                                  \
    java_does(jvm, worker, op, kind, name, numbers, __FILE__, __LINE__)
#define JAVA_AT(j, worker, op, kind, name, numbers)                            \
    java_does(j, worker, op, kind, name, numbers, __FILE__, __LINE__)
long long java_does(struct jvm *j, const char *worker, const char *op,
                    enum kind kind, const char *name, const char *numbers,
                    const char *file, int line);

/* The same with the kind as a word, for what is no lock; gives all of the
 * answer. */
#define SAYS(worker, op, kind, name, numbers)                                  \
    java_says(jvm, worker, op, kind, name, numbers, __FILE__, __LINE__)
#define SAYS_AT(j, worker, op, kind, name, numbers)                            \
    java_says(j, worker, op, kind, name, numbers, __FILE__, __LINE__)
struct jvm_answer java_says(struct jvm *j, const char *worker, const char *op,
                            const char *kind, const char *name,
                            const char *numbers, const char *file, int line);
/* The answer to what was sent, which must be a good one. */
#define ENDS(j, id) java_ends(j, id, __FILE__, __LINE__)
struct jvm_answer java_ends(struct jvm *j, int id, const char *file, int line);

/* The answer to a lock() must be that it is held. */
#define GRANTED(j, id) java_granted(j, id, __FILE__, __LINE__)
struct jvm_answer java_granted(struct jvm *j, int id, const char *file,
                               int line);

/* ---- waiting for waiters ----------------------------------------------- */

/* The channel on which a waiter of this kind listens; owner for fair ones. */
void kit_channel(char *buf, size_t size, enum kind kind, const char *name,
                 const char *owner);
/* Until n listen to the lock's channel. */
void kit_wait_listeners(enum kind kind, const char *name, long long n);
/* Until this worker sleeps: it has asked, in vain, and listens. */
void kit_wait_parked(struct jvm *j, const char *worker);
/* Cuts the connections of all who listen, and waits until one listens to the
 * channel again. A Redisson was seen that did not within TS_SOON: false, and
 * there is a new Java, which holds and waits for nothing. */
bool kit_cut_listeners(const char *channel);
/* Until so many scripts ran since ts_reset_stats, and then none for a moment:
 * a waiter that asks in the background has asked twice when it waits. */
void kit_wait_scripts(long long n);
/* Until the fair queue is so long. */
void kit_wait_queue(const char *name, long long n);

/* ---- how long a wake-up takes ------------------------------------------ */

struct wakes {
    const char *what;
    int count, late;
    int64_t sum_us, worst_us;
};

/* Notes one. */
void wakes_add(struct wakes *w, int64_t from_us, int64_t to_us);
/* Shows them. One in five may be beyond the guard, since a machine may stand
 * still; where nobody is woken, more are. */
void wakes_print(const struct wakes *w);

#endif
