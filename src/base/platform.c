/* SPDX-License-Identifier: MIT
 *
 * platform.c - ranked mutexes, threads, clocks, random numbers.
 *
 * Thread  any.
 */
#include "base/platform.h"

#include <signal.h>
#include <time.h>
#include <uv.h>

#ifdef CLOCK_BOOTTIME
#define DIBS_CLOCK CLOCK_BOOTTIME
#else
#define DIBS_CLOCK CLOCK_MONOTONIC
#endif

#ifndef NDEBUG
static _Thread_local unsigned held_ranks; /* a bit for each rank held */
#endif

void dibs__mutex_init(dibs__mutex *m, enum dibs__rank rank)
{
    pthread_mutex_init(&m->m, NULL);
#ifndef NDEBUG
    m->rank = rank;
#endif
    (void)rank;
}

void dibs__mutex_clear(dibs__mutex *m)
{
    pthread_mutex_destroy(&m->m);
}

void dibs__lock(dibs__mutex *m) UNCHECKED
{
#ifndef NDEBUG
    assert(held_ranks >> m->rank == 0 && "mutex taken out of rank order");
#endif
    pthread_mutex_lock(&m->m);
#ifndef NDEBUG
    held_ranks |= 1u << m->rank;
#endif
}

void dibs__unlock(dibs__mutex *m) UNCHECKED
{
#ifndef NDEBUG
    assert(held_ranks & 1u << m->rank);
    held_ranks &= ~(1u << m->rank);
#endif
    pthread_mutex_unlock(&m->m);
}

void dibs__cond_wait(pthread_cond_t *cond, dibs__mutex *m)
{
    pthread_cond_wait(cond, &m->m);
}

void dibs__assert_held(const dibs__mutex *m) UNCHECKED
{
#ifndef NDEBUG
    assert(held_ranks & 1u << m->rank);
#endif
    (void)m;
}

void dibs__assert_no_lock(void)
{
#ifndef NDEBUG
    assert(held_ranks == 0);
#endif
}

bool dibs__thread_start(pthread_t *t, const char *name, void *(*run)(void *),
                        void *arg)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(t, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return false;
#ifdef __linux__
    pthread_setname_np(*t, name);
#else
    (void)name;
#endif
    return true;
}

int64_t dibs__now_us(void)
{
    struct timespec ts;

    clock_gettime(DIBS_CLOCK, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t dibs__now_ms(void)
{
    return dibs__now_us() / 1000;
}

bool dibs__random(void *out, size_t len)
{
    return uv_random(NULL, NULL, out, len, 0, NULL) == 0;
}

int64_t dibs__random_in(int64_t low, int64_t high)
{
    uint64_t r;

    if (high <= low)
        return low;
    if (!dibs__random(&r, sizeof r))
        r = (uint64_t)dibs__now_us() * 2654435761u;
    return low + (int64_t)(r % (uint64_t)(high - low + 1));
}

int64_t dibs__backoff(int64_t *next, int64_t first, int64_t most)
{
    int64_t wait = *next ? *next : first;

    *next = dibs__min(wait * 2, most);
    return dibs__random_in(wait / 2, wait);
}
