/* SPDX-License-Identifier: MIT
 *
 * log_throttle.h - which failures of connections are news.
 */
#ifndef DIBS_CLIENT_OBSERVE_LOG_THROTTLE_H
#define DIBS_CLIENT_OBSERVE_LOG_THROTTLE_H

#include "client/observe/event.h"

#include <stdbool.h>
#include <stdint.h>

#define DIBS__THROTTLE_MS    60000 /* the same is told once in so long */
#define DIBS__THROTTLE_KNOWN 8     /* different ones that are remembered */
#define DIBS__THROTTLE_NEW   5     /* so often if it had worked in between */

/* All zero: nothing was told yet. io only. */
struct dibs__log_throttle {
    struct {
        uint64_t what;   /* error and text, in short; 0: nothing */
        int64_t since;   /* when it was told first, in this minute */
        unsigned told;   /* how often, since then */
        unsigned untold; /* how often it was not */
    } of[DIBS__THROTTLE_KNOWN];
};

/* Is this to be told? worked: the connection had answered before it failed.
 * *untold: how often the same was kept back before. */
bool dibs__log_throttle_allow(struct dibs__log_throttle *hu, dibs_err err,
                              const char *text, bool worked, int64_t now,
                              unsigned *untold);

/* A connection failed. */
struct dibs__failure {
    dibs_err err;
    const char *why;
    bool worked; /* it had been up */
};

/* Tells so, unless the same was told a moment ago. True: it was told. Thread:
 * io. */
bool dibs__log_disconnect(const struct dibs__events *events,
                          const struct dibs__url *at,
                          struct dibs__log_throttle *hush,
                          const struct dibs__failure *f);

#endif
