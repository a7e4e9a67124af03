/* SPDX-License-Identifier: MIT
 *
 * stats.c - a client's counters and histograms, for dibs_client_stats.
 *
 * Thread  any.
 * Locks   none.
 *
 * How     The counters are sharded, so that threads do not contend for one
 *         cache line. Shards are assigned round robin when a thread first
 *         counts; the counters are atomic, so threads may share a shard.
 *         Reading adds up all shards and is no consistent snapshot.
 *
 *         A duration goes into the bucket of its highest bit, so the buckets
 *         are the same for all clients, and histograms can be added.
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
    char apart[64]; /* padding: the next shard is in another cache line */
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
    static _Thread_local unsigned
        shard_number; /* index + 1; 0: not assigned yet */

    if (shard_number == 0)
        shard_number = atomic_fetch_add(&threads, 1) % SHARDS + 1;
    return &st->shard[shard_number - 1];
}

static void counter_add(atomic_ullong *number, uint64_t by)
{
    atomic_fetch_add_explicit(number, by, memory_order_relaxed);
}

static uint64_t counter_read(atomic_ullong *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

void dibs__stats_count(struct dibs__stats *st, enum dibs__stat what,
                       uint64_t by)
{
    if (st)
        counter_add(&own_shard(st)->count[what], by);
}

/* Returns the number of significant bits. */
static unsigned bucket_of(uint64_t us)
{
    unsigned bits = us ? 64 - (unsigned)__builtin_clzll(us) : 0;

    return bits < DIBS_BUCKETS ? bits : DIBS_BUCKETS - 1;
}

void dibs__stats_time(struct dibs__stats *st, enum dibs__timing what,
                      int64_t us)
{
    uint64_t duration = us > 0 ? (uint64_t)us : 0;

    if (!st)
        return;
    struct timing *t = &own_shard(st)->timing[what];
    counter_add(&t->sum_us, duration);
    counter_add(&t->bucket[bucket_of(duration)], 1);
}

/* ---- adding up --------------------------------------------------------- */

static uint64_t sum_count(struct dibs__stats *st, enum dibs__stat what)
{
    uint64_t sum = 0;

    for (int i = 0; i < SHARDS; i++)
        sum += counter_read(&st->shard[i].count[what]);
    return sum;
}

static void sum_timing(struct dibs__stats *st, enum dibs__timing what,
                       dibs_histogram *out)
{
    for (int i = 0; i < SHARDS; i++) {
        struct timing *t = &st->shard[i].timing[what];
        out->sum_us += counter_read(&t->sum_us);
        for (int b = 0; b < DIBS_BUCKETS; b++) {
            uint64_t n = counter_read(&t->bucket[b]);
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
        [STAT_HANDOFFS] = &out->handovers,
        [STAT_RENEWALS] = &out->renewals,
        [STAT_RENEWALS_FAILED] = &out->renewals_failed,
        [STAT_LOSSES] = &out->losses,
        [STAT_ORPHANS_RELEASED] = &out->reaped,
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
