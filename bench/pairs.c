/* SPDX-License-Identifier: MIT
 *
 * pairs.c - acquire and release, as fast as it goes, nobody in the way.
 *
 * Each thread has a lock of its own. All threads of dibs share one client with
 * its few connections; each thread of the floor has a connection to itself.
 * The two take turns, since a machine that is slow now and fast later must not
 * favour one of them; what counts is the ratio within a round, and the median
 * of the rounds.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS_MAX 64
#define ROUNDS_MAX  15

const char *bench_name(char *buf, size_t size, const char *what, int number)
{
    snprintf(buf, size, "dibs:bench:%ld:%s:%d", (long)getpid(), what, number);
    return buf;
}

void dibs_pair(void *lock)
{
    must(dibs_lock_acquire(lock, NULL), "acquire");
    must(dibs_lock_release(lock, NULL), "release");
}

/* Both sides, ready to run. */
struct sides {
    int n;
    dibs_client *c;
    void *dibs[THREADS_MAX];  /* dibs_lock */
    void *floor[THREADS_MAX]; /* struct floor_lock */
};

static void open_sides(struct sides *s, const char *url, int n)
{
    *s = (struct sides){.n = n};
    must(dibs_client_open(url, NULL, &s->c), "open");
    for (int i = 0; i < n; i++) {
        dibs_lock *l = NULL;
        char name[96];
        must(dibs_lock_new(s->c, bench_name(name, sizeof name, "dibs", i), &l),
             "new lock");
        s->dibs[i] = l;
        s->floor[i] =
            floor_open(url, bench_name(name, sizeof name, "floor", i), i + 1);
    }
}

static void close_sides(struct sides *s)
{
    for (int i = 0; i < s->n; i++) {
        dibs_lock_free(s->dibs[i]);
        floor_close(s->floor[i]);
    }
    dibs_client_free(s->c);
}

/* Prints one row of the report; gives the ratio. */
static double measure(const struct plan *p, int n)
{
    double dibs[ROUNDS_MAX];
    double floor[ROUNDS_MAX];
    double ratio[ROUNDS_MAX];
    size_t rounds = (size_t)p->rounds;
    struct sides s;
    char label[64];

    if (rounds > ROUNDS_MAX)
        die("at most %d rounds", ROUNDS_MAX);
    open_sides(&s, p->url, n);
    race(n, dibs_pair, s.dibs, p->lap_ms / 4); /* warm-up */
    race(n, floor_pair, s.floor, p->lap_ms / 4);
    for (size_t i = 0; i < rounds; i++) {
        dibs[i] = race(n, dibs_pair, s.dibs, p->lap_ms).rate;
        floor[i] = race(n, floor_pair, s.floor, p->lap_ms).rate;
        ratio[i] = dibs[i] / floor[i];
    }
    close_sides(&s);

    snprintf(label, sizeof label, "%2d thread%s  dibs", n, n > 1 ? "s" : " ");
    line(label, median(dibs, rounds), 0, "pairs/s");
    line("            floor", median(floor, rounds), 0, "pairs/s");
    line("            dibs / floor, median", median(ratio, rounds), 2, "x");
    line("            dibs / floor, least", least(ratio, rounds), 2, "x");
    line("            dibs / floor, greatest", greatest(ratio, rounds), 2, "x");
    return median(ratio, rounds);
}

void measure_pairs(const struct plan *p, const char *where, bool targets)
{
    static const struct {
        int n;
        double goal;
        const char *what;
    } rows[] = {
        {1, 1.0, "1 thread, of the floor"},
        {4, 1.0, "4 threads, of the floor"},
        {16, 1.8, "16 threads, of the floor"},
        {THREADS_MAX, 2.5, "64 threads, of the floor"},
    };

    title("acquire + release over %s, %d rounds of %d ms", where, p->rounds,
          (int)p->lap_ms);
    floor_check(p->url);
    for (size_t i = 0; i < COUNT(rows); i++) {
        double ratio = measure(p, rows[i].n);
        if (targets)
            target(rows[i].what, AT_LEAST, rows[i].goal, ratio);
    }
}
