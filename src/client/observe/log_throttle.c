/* SPDX-License-Identifier: MIT
 *
 * log_throttle.c - which failures of connections are news.
 *
 * Thread  io.
 *
 * How     A server that is not there fails the same way again and again, up to
 *         several times a second. The first time is told at once, then nothing
 *         for a minute, then again, with how often it was meanwhile. The last
 *         few different ones are remembered, since several can take turns.
 *
 *         A connection that worked until it failed is news, though the words
 *         are the same. But if that goes on and on, it is not.
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

bool dibs__log_throttle_allow(struct dibs__log_throttle *hu, dibs_err err,
                              const char *text, bool worked, int64_t now,
                              unsigned *untold)
{
    uint64_t what = digest_of(err, text);
    unsigned at = 0;

    *untold = 0;
    for (unsigned i = 0; i < DIBS__THROTTLE_KNOWN; i++) {
        if (hu->of[i].what == what) {
            at = i;
            break;
        }
        if (!hu->of[i].what || hu->of[i].since < hu->of[at].since)
            at = i; /* the oldest makes room */
    }
    if (hu->of[at].what == what && now - hu->of[at].since < DIBS__THROTTLE_MS) {
        bool news = worked && hu->of[at].told < DIBS__THROTTLE_NEW;
        hu->of[at].told += news;
        hu->of[at].untold += !news;
        return news;
    }
    if (hu->of[at].what == what)
        *untold = hu->of[at].untold;
    hu->of[at].what = what;
    hu->of[at].since = now;
    hu->of[at].told = 1;
    hu->of[at].untold = 0;
    return true;
}

bool dibs__log_disconnect(const struct dibs__events *events,
                          const struct dibs__url *at,
                          struct dibs__log_throttle *hush,
                          const struct dibs__failure *f)
{
    unsigned untold;
    char text[400];

    if (!events->say ||
        !dibs__log_throttle_allow(hush, f->err, f->why, f->worked,
                                  dibs__now_ms(), &untold))
        return false;
    snprintf(text, sizeof text, "%.340s (and %u times before)", f->why, untold);
    dibs__event_tell(events, at, DIBS_EVENT_DISCONNECTED, f->err,
                     untold ? text : f->why);
    return true;
}

bool dibs__server_log_disconnect(struct dibs__server *s, dibs_err err,
                                 const char *why, bool worked)
{
    return dibs__log_disconnect(&s->events, &s->to.url, &s->throttle,
                                &(struct dibs__failure){err, why, worked});
}
