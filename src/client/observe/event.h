/* SPDX-License-Identifier: MIT
 *
 * event.h - what a log would say, and to whom.
 */
#ifndef DIBS_CLIENT_OBSERVE_EVENT_H
#define DIBS_CLIENT_OBSERVE_EVENT_H

#include "base/error_text.h"
#include "client/observe/stats.h"
#include "net/url.h"

/* Where an event goes; any thread. */
struct dibs__events {
    void (*say)(void *arg, dibs_event_kind kind, dibs_err err,
                const char *text);
    void *arg;
    struct dibs__stats *stats; /* of the same client, or NULL */
};

/* "address: text". at: whom it is about. Thread: the one that may read at. */
void dibs__event_tell(const struct dibs__events *to, const struct dibs__url *at,
                      dibs_event_kind kind, dibs_err err, const char *text);
/* The same text, without telling it to anybody. */
void dibs__event_text(const struct dibs__url *at, const char *text,
                      char out[DIBS__REASON_MAX]);

#endif
