/* SPDX-License-Identifier: MIT
 *
 * log_throttle.c - rate limit for disconnect events.
 *
 * Thread  io.
 *
 * How     A server that is down causes the same failure up to several times a
 *         second. The first one is logged at once, the next one after
 *         DIBS__THROTTLE_MS, with the number suppressed meanwhile. The last
 *         DIBS__THROTTLE_KNOWN different failures are remembered, since several
 *         can alternate.
 *
 *         The failure of a connection that had worked is logged though its
 *         text is the same, up to DIBS__THROTTLE_NEW times in that interval.
 */
#include "client/observe/log_throttle.h"

#include "client/server/server.h"

#include <stdio.h>

/* FNV-1a. */
static uint64_t digest_of(dibs_err err, const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037) ^ (uint64_t)(unsigned)err;

    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return h ? h : 1;
}

bool dibs__log_throttle_allow(struct dibs__log_throttle *throttle, dibs_err err,
                              const char *text, bool worked, int64_t now,
                              unsigned *suppressed)
{
    uint64_t digest = digest_of(err, text);
    unsigned slot = 0;

    *suppressed = 0;
    for (unsigned i = 0; i < DIBS__THROTTLE_KNOWN; i++) {
        if (throttle->entry[i].digest == digest) {
            slot = i;
            break;
        }
        if (!throttle->entry[i].digest ||
            throttle->entry[i].start_ms < throttle->entry[slot].start_ms)
            slot = i; /* unused, or the oldest */
    }
    if (throttle->entry[slot].digest == digest &&
        now - throttle->entry[slot].start_ms < DIBS__THROTTLE_MS) {
        bool allowed =
            worked && throttle->entry[slot].logged < DIBS__THROTTLE_NEW;
        throttle->entry[slot].logged += allowed;
        throttle->entry[slot].suppressed += !allowed;
        return allowed;
    }
    if (throttle->entry[slot].digest == digest)
        *suppressed = throttle->entry[slot].suppressed;
    throttle->entry[slot].digest = digest;
    throttle->entry[slot].start_ms = now;
    throttle->entry[slot].logged = 1;
    throttle->entry[slot].suppressed = 0;
    return true;
}

bool dibs__log_disconnect(const struct dibs__events *events,
                          const struct dibs__url *at,
                          struct dibs__log_throttle *throttle,
                          const struct dibs__failure *f)
{
    unsigned suppressed;
    char text[400];

    if (!events->emit ||
        !dibs__log_throttle_allow(throttle, f->err, f->why, f->worked,
                                  dibs__now_ms(), &suppressed))
        return false;
    snprintf(text, sizeof text, "%.340s (and %u times before)", f->why,
             suppressed);
    dibs__event_emit(events, at, DIBS_EVENT_DISCONNECTED, f->err,
                     suppressed ? text : f->why);
    return true;
}

bool dibs__server_log_disconnect(struct dibs__server *s, dibs_err err,
                                 const char *why, bool worked)
{
    return dibs__log_disconnect(&s->events, &s->target.url, &s->throttle,
                                &(struct dibs__failure){err, why, worked});
}
