/* SPDX-License-Identifier: MIT
 *
 * race.c - many threads doing the same thing for a while.
 *
 * The clock starts when every thread stands at the line, and stops when the
 * last one has finished its last step; so neither the making of threads nor a
 * step that was cut off is in the number.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct course {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    int ready;        /* mu: how many stand at the line */
    bool started;     /* mu */
    atomic_bool over; /* no further step */
    step_fn step;
};

struct racer {
    struct course *course;
    void *arg;
    pthread_t thread;
    int64_t steps;
};

static void *run(void *arg)
{
    struct racer *r = arg;
    struct course *co = r->course;

    pthread_mutex_lock(&co->mu);
    co->ready++;
    pthread_cond_broadcast(&co->changed);
    while (!co->started)
        pthread_cond_wait(&co->changed, &co->mu);
    pthread_mutex_unlock(&co->mu);

    while (!atomic_load_explicit(&co->over, memory_order_relaxed)) {
        co->step(r->arg);
        r->steps++;
    }
    return NULL;
}

/* Waits for all at the line, lets them go, and gives the time of that. */
static int64_t start(struct course *co, int n)
{
    pthread_mutex_lock(&co->mu);
    while (co->ready < n)
        pthread_cond_wait(&co->changed, &co->mu);
    co->started = true;
    int64_t began = now_ns();
    pthread_cond_broadcast(&co->changed);
    pthread_mutex_unlock(&co->mu);
    return began;
}

struct lap race(int n, step_fn step, void *const *args, int64_t ms)
{
    struct course co = {.mu = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER,
                        .step = step};
    struct racer *racers = calloc((size_t)n, sizeof *racers);
    struct lap lap = {0};

    if (!racers)
        die("out of memory");
    for (int i = 0; i < n; i++) {
        racers[i].course = &co;
        racers[i].arg = args[i];
        int bad = pthread_create(&racers[i].thread, NULL, run, &racers[i]);
        if (bad)
            die("thread %d: %s", i, strerror(bad));
    }

    int64_t began = start(&co, n);
    sleep_ms(ms);
    atomic_store(&co.over, true);
    for (int i = 0; i < n; i++) {
        pthread_join(racers[i].thread, NULL);
        lap.steps += (double)racers[i].steps;
    }
    lap.rate = lap.steps / ((double)(now_ns() - began) / 1e9);
    free(racers);
    return lap;
}
