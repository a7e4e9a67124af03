/* SPDX-License-Identifier: MIT
 *
 * platform.h - mutexes with an order, threads, clocks, chance.
 *
 * Lock order. Hold as few as you can: nearly all code holds one. Where two are
 * needed, take the lower rank first; debug builds check. None is held across a
 * system call that can block, or a user callback.
 *
 *   rank  mutex         guards                            taken by
 *   1     group.mu      who holds several locks at once   app, io
 *   2     client.mu     table of lines, owners, closing   app, io
 *   3     line.mu       all that is known of one name     app, io
 *   4     server.mu     who uses which connection         app, io
 *   5     watchdog.mu   due times                         app, io
 *   6     loop.mu       work not yet picked up by io      app, io
 *   7     callback.mu   callbacks not yet run, and who    app, io, cb
 *                       serves which connection (callback_io.c)
 *   8     published.mu  values of holds                   app, io
 *   9     adopted.mu    names of adopted owners           app, io
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
    RANK_LINE,
    RANK_SERVER,
    RANK_WATCHDOG,
    RANK_LOOP,
    RANK_CALLBACK,
    RANK_PUBLISHED,
    RANK_ADOPTED
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
/* Debug builds: this thread holds a mutex of this rank. For functions that are
 * called with a mutex that their caller knows by another name. */
void dibs__assert_held(const dibs__mutex *m) HELD(*m);
/* Debug builds: this thread holds none of our mutexes. */
void dibs__assert_no_lock(void);

/* A thread that blocks all signals and has a name. False: the system has no
 * thread to give. */
bool dibs__thread_start(pthread_t *t, const char *name, void *(*run)(void *),
                        void *arg);

/* Time that goes on while the machine sleeps, and never jumps. */
int64_t dibs__now_ms(void);
int64_t dibs__now_us(void);

/* Random bytes from the system. False: there are none to be had. */
bool dibs__random(void *out, size_t len);
/* A number in [low, high], for jitter. */
int64_t dibs__random_in(int64_t low, int64_t high);
/* How long to wait before the next try: longer each time, and never the same.
 * *next is 0 at first, and after a success. */
int64_t dibs__backoff(int64_t *next, int64_t first, int64_t most);

/* a + b, no further than the largest int64; both not negative. */
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
