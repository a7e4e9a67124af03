/* SPDX-License-Identifier: MIT
 *
 * platform.h - ranked mutexes, threads, clocks, random numbers.
 *
 * Lock order. Code that holds two mutexes must take the one with the lower rank
 * first; debug builds assert that. Nearly all code holds one. No mutex is held
 * across a blocking system call or a user callback.
 *
 *   rank  mutex            guards                           taken by
 *   1     group.mu         state of multi and quorum locks  app, io
 *   2     client.mu        tables of entries and owners,    app, io
 *                          closing
 *   3     entry.mu         one lock entry: holds, waiters   app, io
 *   4     server.mu        connection pool of a server      app, io
 *   5     lease_timers.mu  due times of leases              app, io
 *   6     loop.mu          inbox of io                      app, io
 *   7     callback.mu      callback queue, and the lent     app, io, cb
 *                          connections (callback_io.c)
 *   8     published.mu     values of holds                  app, io
 *   9     adopted.mu       names of adopted owners          app, io
 */
#ifndef DIBS_BASE_PLATFORM_H
#define DIBS_BASE_PLATFORM_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__clang__)
#define DIBS_TS(x) __attribute__((x))
#else
#define DIBS_TS(x)
#endif
#define REQUIRES(...) DIBS_TS(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) DIBS_TS(locks_excluded(__VA_ARGS__))
#define TAKES(...)    DIBS_TS(acquire_capability(__VA_ARGS__))
#define GIVES(...)    DIBS_TS(release_capability(__VA_ARGS__))
#define HELD(...)     DIBS_TS(assert_capability(__VA_ARGS__))
#define UNCHECKED     DIBS_TS(no_thread_safety_analysis)

enum dibs__rank {
    RANK_GROUP = 1,
    RANK_CLIENT,
    RANK_ENTRY,
    RANK_SERVER,
    RANK_LEASE_TIMERS,
    RANK_LOOP,
    RANK_CALLBACK,
    RANK_HOLDER_VALUES,
    RANK_FOREIGN_OWNERS
};

typedef struct DIBS_TS(capability("mutex")) dibs__mutex {
    pthread_mutex_t m;
#ifndef NDEBUG
    unsigned rank;
#endif
} dibs__mutex;

void dibs__mutex_init(dibs__mutex *m, enum dibs__rank rank);
void dibs__mutex_clear(dibs__mutex *m);
void dibs__lock(dibs__mutex *m) TAKES(*m);
void dibs__unlock(dibs__mutex *m) GIVES(*m);
void dibs__cond_wait(pthread_cond_t *cond, dibs__mutex *m) REQUIRES(*m);
/* Debug builds: asserts that this thread holds a mutex of this rank. For
 * functions whose caller locked the mutex under another expression. */
void dibs__assert_held(const dibs__mutex *m) HELD(*m);
/* Debug builds: asserts that this thread holds no dibs__mutex. */
void dibs__assert_no_lock(void);

/* Starts a named thread that blocks all signals. Returns false on failure. */
bool dibs__thread_start(pthread_t *t, const char *name, void *(*run)(void *),
                        void *arg);

/* Monotonic time, including the time the machine is suspended. */
int64_t dibs__now_ms(void);
int64_t dibs__now_us(void);

/* Fills `out` with random bytes. Returns false on failure. */
bool dibs__random(void *out, size_t len);
/* Returns a number in [low, high], for jitter; not for secrets. */
int64_t dibs__random_in(int64_t low, int64_t high);
/* Exponential back-off with jitter: returns the wait before the next attempt.
 * The caller sets *next to 0 at first and after a success. */
int64_t dibs__backoff(int64_t *next, int64_t first, int64_t most);

/* a + b, saturating at INT64_MAX. a and b must not be negative. */
static inline int64_t dibs__add(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static inline int64_t dibs__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t dibs__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
