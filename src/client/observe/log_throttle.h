/* SPDX-License-Identifier: MIT
 *
 * log_throttle.h - rate limit for disconnect events.
 */
#ifndef DIBS_CLIENT_OBSERVE_LOG_THROTTLE_H
#define DIBS_CLIENT_OBSERVE_LOG_THROTTLE_H

#include "client/observe/event.h"

#include <stdbool.h>
#include <stdint.h>

#define DIBS__THROTTLE_MS    60000 /* interval of logging the same failure */
#define DIBS__THROTTLE_KNOWN 8     /* different failures that are remembered */
#define DIBS__THROTTLE_NEW                                                     \
    5 /* logged per interval if the connection had                             \
         worked before each */

/* All zero: nothing was logged yet. io only. */
struct dibs__log_throttle {
    struct {
        uint64_t digest;     /* of error and text; 0: unused */
        int64_t start_ms;    /* of the current interval */
        unsigned logged;     /* in this interval */
        unsigned suppressed; /* in this interval */
    } entry[DIBS__THROTTLE_KNOWN];
};

/* Returns whether this failure is to be logged. worked: the connection had
 * received a reply before it failed. *suppressed: how often the same failure
 * was not logged since the last time. */
bool dibs__log_throttle_allow(struct dibs__log_throttle *throttle, dibs_err err,
                              const char *text, bool worked, int64_t now,
                              unsigned *suppressed);

/* A connection failed. */
struct dibs__failure {
    dibs_err err;
    const char *why;
    bool worked; /* as for dibs__log_throttle_allow */
};

/* Emits DIBS_EVENT_DISCONNECTED within the rate limit. Returns whether it did.
 * Thread: io. */
bool dibs__log_disconnect(const struct dibs__events *events,
                          const struct dibs__url *at,
                          struct dibs__log_throttle *throttle,
                          const struct dibs__failure *f);

#endif
