/* SPDX-License-Identifier: MIT
 *
 * witness.c - notices two holders of one lock.
 *
 * Thread  any, of any process that has the memory. Atomics only.
 *
 * The number of a lock is atomic too, though each step is a read and a write
 * apart: a broken lock then shows as a lost step, not as undefined behavior.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/witness.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/util.h"

/* In a cell: 0 = nobody, otherwise the worker + 1. */
struct cell {
    atomic_uint_fast64_t owner;
    atomic_uint_fast64_t number; /* one higher for each entry */
    atomic_uint_fast64_t done;   /* entries that have raised it */
};

struct first {
    atomic_uint_fast64_t taken; /* 0, then 1 while written, 2 when written */
    bool leaving;
    uint64_t lock, worker, other;
    int64_t at_ms;
    long pid;
};

struct ts_witness {
    size_t size; /* of the whole mapping */
    size_t locks, workers;
    atomic_uint_fast64_t meetings;
    struct first first;
    struct cell *cells;            /* [locks], behind this struct */
    atomic_uint_fast64_t *entries; /* [workers], behind them */
};

struct ts_witness *ts_witness_new(size_t locks, size_t workers)
{
    size_t size = sizeof(struct ts_witness) + locks * sizeof(struct cell) +
                  workers * sizeof(atomic_uint_fast64_t);
    struct ts_witness *w = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (w == MAP_FAILED)
        ts_fatal("no memory for %zu locks and %zu workers", locks, workers);
    w->size = size;
    w->locks = locks;
    w->workers = workers;
    w->cells = (struct cell *)(void *)(w + 1);
    w->entries = (atomic_uint_fast64_t *)(void *)(w->cells + locks);
    return w;
}

void ts_witness_free(struct ts_witness *w)
{
    if (w)
        munmap(w, w->size);
}

static void check(const struct ts_witness *w, size_t lock, size_t worker)
{
    if (lock >= w->locks || worker >= w->workers)
        ts_fatal("the witness knows no lock %zu or no worker %zu", lock,
                 worker);
}

/* other: what the cell had in it. */
static void notice(struct ts_witness *w, bool leaving, size_t lock,
                   size_t worker, uint64_t other)
{
    uint_fast64_t none = 0;

    atomic_fetch_add(&w->meetings, 1);
    if (!atomic_compare_exchange_strong(&w->first.taken, &none, 1))
        return;
    w->first.leaving = leaving;
    w->first.lock = lock;
    w->first.worker = worker;
    w->first.other = other;
    w->first.at_ms = ts_now_ms();
    w->first.pid = (long)getpid();
    atomic_store(&w->first.taken, 2);
}

/* The second look: deliberately not one step. */
static void raise_number(struct cell *c)
{
    uint_fast64_t seen = atomic_load_explicit(&c->number, memory_order_relaxed);
    sched_yield();
    atomic_store_explicit(&c->number, seen + 1, memory_order_relaxed);
    atomic_fetch_add(&c->done, 1);
}

bool ts_witness_enter(struct ts_witness *w, size_t lock, size_t worker)
{
    check(w, lock, worker);
    struct cell *c = &w->cells[lock];
    uint_fast64_t seen = 0;
    bool alone = atomic_compare_exchange_strong(&c->owner, &seen, worker + 1);

    if (!alone)
        notice(w, false, lock, worker, seen);
    raise_number(c);
    return alone;
}

bool ts_witness_leave(struct ts_witness *w, size_t lock, size_t worker)
{
    check(w, lock, worker);
    struct cell *c = &w->cells[lock];
    uint_fast64_t seen = worker + 1;
    bool mine = atomic_compare_exchange_strong(&c->owner, &seen, 0);

    if (!mine)
        notice(w, true, lock, worker, seen);
    atomic_fetch_add(&w->entries[worker], 1);
    return mine;
}

void ts_witness_forget(struct ts_witness *w, size_t worker)
{
    for (size_t i = 0; i < w->locks; i++) {
        uint_fast64_t seen = worker + 1;
        atomic_compare_exchange_strong(&w->cells[i].owner, &seen, 0);
    }
}

long ts_witness_inside(const struct ts_witness *w, size_t lock)
{
    check(w, lock, 0);
    return (long)atomic_load(&w->cells[lock].owner) - 1;
}

uint64_t ts_witness_entries(const struct ts_witness *w, size_t worker)
{
    check(w, 0, worker);
    return atomic_load(&w->entries[worker]);
}

uint64_t ts_witness_fewest(const struct ts_witness *w)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < w->workers; i++) {
        uint64_t n = atomic_load(&w->entries[i]);
        least = n < least ? n : least;
    }
    return least;
}

uint64_t ts_witness_total(const struct ts_witness *w)
{
    uint64_t n = 0;

    for (size_t i = 0; i < w->workers; i++)
        n += atomic_load(&w->entries[i]);
    return n;
}

/* Steps missing from a lock's number. A worker that was killed may have begun
 * a step and not taken it; that is none. */
static uint64_t lost_steps(const struct cell *c)
{
    uint64_t number = atomic_load(&c->number);
    uint64_t done = atomic_load(&c->done);

    return done > number ? done - number : 0;
}

uint64_t ts_witness_violations(const struct ts_witness *w)
{
    uint64_t n = atomic_load(&w->meetings);

    for (size_t i = 0; i < w->locks; i++)
        n += lost_steps(&w->cells[i]);
    return n;
}

const char *ts_witness_first(const struct ts_witness *w)
{
    static _Thread_local char text[200];
    const struct first *f = &w->first;
    char other[40] = "nobody";

    text[0] = '\0';
    if (atomic_load(&f->taken) == 2) {
        if (f->other)
            snprintf(other, sizeof other, "worker %llu",
                     (unsigned long long)f->other - 1);
        snprintf(text, sizeof text,
                 "lock %llu: worker %llu (pid %ld) %s at %lld ms and found %s",
                 (unsigned long long)f->lock, (unsigned long long)f->worker,
                 f->pid, f->leaving ? "left" : "entered", (long long)f->at_ms,
                 other);
    } else if (ts_witness_violations(w) > 0) {
        snprintf(text, sizeof text, "steps were lost, though nobody met");
    }
    return text;
}
