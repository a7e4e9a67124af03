/* SPDX-License-Identifier: MIT
 *
 * stats.c - what a client has counted and measured, for dibs_client_stats.
 *
 * Thread  any.
 * Locks   none.
 *
 * How     A number that all threads count in would travel between their
 *         processors with each count. So there are eight sets of numbers. A
 *         thread gets one when it first counts, in turn, and counts there;
 *         threads that share one still count right. Who asks adds them up. The
 *         numbers of one answer may be a moment apart from each other.
 *
 *         A time goes into the bucket of its highest bit, so the buckets are
 *         the same for all clients, and histograms can be added.
 */
#include "client/observe/stats.h"

#include "base/mem.h"

#include <stdatomic.h>

#define SHARDS 8

struct timing {
    atomic_ullong sum_us;
    atomic_ullong bucket[DIBS_BUCKETS];
};

struct shard {
    atomic_ullong count[STAT_COUNT];
    struct timing timing[TIMING_COUNT];
    char apart[64]; /* the next one is in another cache line */
};

struct dibs__stats {
    struct shard shard[SHARDS];
};

struct dibs__stats *dibs__stats_new(void)
{
    return dibs__calloc(1, sizeof(struct dibs__stats));
}

void dibs__stats_free(struct dibs__stats *st)
{
    dibs__free(st);
}

static struct shard *own_shard(struct dibs__stats *st)
{
    static atomic_uint threads;
    static _Thread_local unsigned mine; /* from 1; 0: not known yet */

    if (mine == 0)
        mine = atomic_fetch_add(&threads, 1) % SHARDS + 1;
    return &st->shard[mine - 1];
}

static void add_to(atomic_ullong *number, uint64_t by)
{
    atomic_fetch_add_explicit(number, by, memory_order_relaxed);
}

static uint64_t read_from(atomic_ullong *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

void dibs__stats_count(struct dibs__stats *st, enum dibs__stat what,
                       uint64_t by)
{
    if (st)
        add_to(&own_shard(st)->count[what], by);
}

/* The bucket is the number of bits. */
static unsigned bucket_of(uint64_t us)
{
    unsigned bits = us ? 64 - (unsigned)__builtin_clzll(us) : 0;

    return bits < DIBS_BUCKETS ? bits : DIBS_BUCKETS - 1;
}

void dibs__stats_time(struct dibs__stats *st, enum dibs__timing what,
                      int64_t us)
{
    uint64_t took = us > 0 ? (uint64_t)us : 0;

    if (!st)
        return;
    struct timing *t = &own_shard(st)->timing[what];
    add_to(&t->sum_us, took);
    add_to(&t->bucket[bucket_of(took)], 1);
}

/* ---- adding up --------------------------------------------------------- */

static uint64_t sum_count(struct dibs__stats *st, enum dibs__stat what)
{
    uint64_t sum = 0;

    for (int i = 0; i < SHARDS; i++)
        sum += read_from(&st->shard[i].count[what]);
    return sum;
}

static void sum_timing(struct dibs__stats *st, enum dibs__timing what,
                       dibs_histogram *out)
{
    for (int i = 0; i < SHARDS; i++) {
        struct timing *t = &st->shard[i].timing[what];
        out->sum_us += read_from(&t->sum_us);
        for (int b = 0; b < DIBS_BUCKETS; b++) {
            uint64_t n = read_from(&t->bucket[b]);
            out->bucket[b] += n;
            out->count += n;
        }
    }
}

void dibs__stats_sum(struct dibs__stats *st, dibs_stats *out)
{
    uint64_t *const counts[STAT_COUNT] = {
        [STAT_ACQUIRES] = &out->acquires,
        [STAT_TRIES] = &out->tries,
        [STAT_WAITS] = &out->waits,
        [STAT_BUSY] = &out->busy,
        [STAT_TIMEOUTS] = &out->timeouts,
        [STAT_FAILURES] = &out->failures,
        [STAT_RELEASES] = &out->releases,
        [STAT_HANDOVERS] = &out->handovers,
        [STAT_RENEWALS] = &out->renewals,
        [STAT_RENEWALS_FAILED] = &out->renewals_failed,
        [STAT_LOSSES] = &out->losses,
        [STAT_REAPED] = &out->reaped,
        [STAT_UNKNOWN] = &out->unknown,
        [STAT_COMMANDS] = &out->commands,
        [STAT_CONNECTS] = &out->connects,
        [STAT_RECONNECTS] = &out->reconnects,
        [STAT_WAKEUPS] = &out->wakeups,
    };
    dibs_histogram *const timings[TIMING_COUNT] = {
        [TIMING_ACQUIRE] = &out->acquire,
        [TIMING_WAIT] = &out->wait,
        [TIMING_HOLD] = &out->hold,
        [TIMING_RENEW] = &out->renew,
    };

    for (int i = 0; i < STAT_COUNT; i++)
        *counts[i] = sum_count(st, (enum dibs__stat)i);
    for (int i = 0; i < TIMING_COUNT; i++)
        sum_timing(st, (enum dibs__timing)i, timings[i]);
}
