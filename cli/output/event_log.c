/* SPDX-License-Identifier: MIT
 *
 * event_log.c - prints what the library reports.
 *
 * The library reports every failed attempt. A server that refuses for an hour
 * would fill a log, so the same text is printed at most once a minute. The next
 * time, the line says how often it came meanwhile.
 *
 * Thread  The thread that opens the clients, then the first one; never two at
 *         a time.
 */
#include "output/event_log.h"

#include <stdint.h>
#include <stdio.h>

#include "output/error_advice.h"
#include "output/output.h"
#include "util/time.h"

#define AGAIN_MS 60000
#define TEXTS    16 /* different texts that are remembered */

static struct logged_text {
    uint64_t hash; /* of a text and its level; 0 none */
    int64_t logged_at;
    unsigned more; /* how often it came since it was logged */
} recent[TEXTS];

/* FNV-1a. */
static uint64_t event_hash(const char *s)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return h;
}

/* The entry of a text; a new text gets the entry of the oldest one. */
static struct logged_text *find_recent(uint64_t hash)
{
    struct logged_text *oldest = &recent[0];

    for (struct logged_text *s = recent; s < recent + TEXTS; s++) {
        if (s->hash == hash)
            return s;
        if (s->logged_at < oldest->logged_at)
            oldest = s;
    }
    *oldest = (struct logged_text){.hash = hash};
    return oldest;
}

static void log_rarely(enum out_level level, const char *whole)
{
    char text[FAILURE_MAX];

    snprintf(text, sizeof text, "%s", whole);
    failure_trim(text);
    struct logged_text *s = find_recent(event_hash(text) + level);
    int64_t now = time_now();

    if (s->logged_at > 0 && now - s->logged_at < AGAIN_MS) {
        s->more++;
        return;
    }
    if (s->more > 0)
        out_tell(level, "library", "%s (%u more times since the last message)",
                 text, s->more);
    else
        out_tell(level, "library", "%s", text);
    s->logged_at = now;
    s->more = 0;
}

void events_tell(struct events *e, const dibs_event *ev)
{
    enum out_level level = OUT_INFO;

    switch (ev->kind) {
    case DIBS_EVENT_CONNECTED:
        e->told_down = false;
        break;
    case DIBS_EVENT_DISCONNECTED:
        if (e->waiting && !e->told_down) {
            e->told_down = true;
            level = OUT_WARN;
        }
        break;
    case DIBS_EVENT_SUSPECT:
    case DIBS_EVENT_WARNING:
        level = OUT_WARN;
        break;
    case DIBS_EVENT_REPLICAS: /* said with the error that follows */
    case DIBS_EVENT_ERROR:
    case DIBS_EVENT_UNKNOWN:
    case DIBS_EVENT_LOST:
    case DIBS_EVENT_REAPED:
        break;
    }
    log_rarely(level, ev->text);
}
