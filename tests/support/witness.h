/* SPDX-License-Identifier: MIT
 *
 * witness.h - notices two holders of one lock.
 *
 * A thread that believes to hold a lock tells the witness on entering and
 * leaving. It lives in memory that processes share: make it before they fork.
 *
 * It looks in two ways that do not depend on each other. A cell per lock must
 * be free when somebody enters and still be theirs when they leave. And a
 * number per lock is read, then written back one higher, with a pause in
 * between in which anybody else may run: two at a time lose a step, so in the
 * end the number is lower than the number of entries.
 *
 * Workers are numbered from 0. A worker is in at most one lock's section at a
 * time per thread; give each thread a number of its own.
 */
#ifndef DIBS_TESTS_WITNESS_H
#define DIBS_TESTS_WITNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ts_witness;

struct ts_witness *ts_witness_new(size_t locks, size_t workers);
void ts_witness_free(struct ts_witness *w);

/* False: somebody was there already, or had come in between. */
bool ts_witness_enter(struct ts_witness *w, size_t lock, size_t worker);
bool ts_witness_leave(struct ts_witness *w, size_t lock, size_t worker);

/* A worker that was killed: it is nowhere any more. Call it before anybody
 * else can have got what it held. */
void ts_witness_forget(struct ts_witness *w, size_t worker);

/* Who is in: a worker, or -1. */
long ts_witness_inside(const struct ts_witness *w, size_t lock);

/* How often a worker has entered and left again, and the least of all: 0 means
 * that somebody starved. */
uint64_t ts_witness_entries(const struct ts_witness *w, size_t worker);
uint64_t ts_witness_fewest(const struct ts_witness *w);
uint64_t ts_witness_total(const struct ts_witness *w);

/* What was noticed: meetings and lost steps. Ask for it when all have left. */
uint64_t ts_witness_violations(const struct ts_witness *w);
/* The first, in words; "" when there was none. Valid until the next call on
 * this thread. */
const char *ts_witness_first(const struct ts_witness *w);

#endif
