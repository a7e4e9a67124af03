/* SPDX-License-Identifier: MIT
 *
 * stats.h - a client's counters and histograms.
 *
 * Thread: any, for all of it; no mutex is taken.
 */
#ifndef DIBS_CLIENT_OBSERVE_STATS_H
#define DIBS_CLIENT_OBSERVE_STATS_H

#include <dibs/dibs.h>
#include <stdbool.h>
#include <stdint.h>

/* In the order of dibs_stats. */
enum dibs__stat {
    STAT_ACQUIRES,
    STAT_TRIES,
    STAT_WAITS,
    STAT_BUSY,
    STAT_TIMEOUTS,
    STAT_FAILURES,
    STAT_RELEASES,
    STAT_HANDOFFS,
    STAT_RENEWALS,
    STAT_RENEWALS_FAILED,
    STAT_LOSSES,
    STAT_ORPHANS_RELEASED,
    STAT_UNKNOWN,
    STAT_COMMANDS,
    STAT_CONNECTS,
    STAT_RECONNECTS,
    STAT_WAKEUPS,
    STAT_COUNT
};

enum dibs__timing {
    TIMING_ACQUIRE,
    TIMING_WAIT,
    TIMING_HOLD,
    TIMING_RENEW,
    TIMING_COUNT
};

struct dibs__stats;

/* NULL: out of memory. */
struct dibs__stats *dibs__stats_new(void);
void dibs__stats_free(struct dibs__stats *st);

void dibs__stats_count(struct dibs__stats *st, enum dibs__stat what,
                       uint64_t by);
/* Adds a duration to a histogram; a negative one counts as 0. */
void dibs__stats_time(struct dibs__stats *st, enum dibs__timing what,
                      int64_t us);

/* Adds all counters and histograms to *out, which the caller must have zeroed.
 */
void dibs__stats_sum(struct dibs__stats *st, dibs_stats *out);

/* A time in microseconds in 48 bits, for structs with many instances. It wraps
 * around after nine years. */
struct dibs__coarse_time {
    uint16_t part[3];
};

static inline struct dibs__coarse_time dibs__coarse_time_of(int64_t us)
{
    return (struct dibs__coarse_time){
        {(uint16_t)us, (uint16_t)(us >> 16), (uint16_t)(us >> 32)}};
}

static inline bool dibs__coarse_time_is_set(struct dibs__coarse_time s)
{
    return s.part[0] || s.part[1] || s.part[2];
}

/* Returns the age of s at now_us. */
static inline int64_t dibs__coarse_time_age(struct dibs__coarse_time s,
                                            int64_t now_us)
{
    uint64_t at = (uint64_t)s.part[0] | (uint64_t)s.part[1] << 16 |
                  (uint64_t)s.part[2] << 32;

    return (int64_t)(((uint64_t)now_us - at) & ((UINT64_C(1) << 48) - 1));
}

#endif
