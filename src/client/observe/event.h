/* SPDX-License-Identifier: MIT
 *
 * event.h - events for logging, and where they are delivered.
 */
#ifndef DIBS_CLIENT_OBSERVE_EVENT_H
#define DIBS_CLIENT_OBSERVE_EVENT_H

#include "base/error_text.h"
#include "client/observe/stats.h"
#include "net/url.h"

/* The receiver of events; emit may be called by any thread. */
struct dibs__events {
    void (*emit)(void *arg, dibs_event_kind kind, dibs_err err,
                 const char *text);
    void *arg;
    struct dibs__stats *stats; /* of the same client, or NULL */
};

/* Emits "address: text". `at` is the server that the event is about. Thread:
 * one that may read `at`. */
void dibs__event_emit(const struct dibs__events *to, const struct dibs__url *at,
                      dibs_event_kind kind, dibs_err err, const char *text);
/* Formats the same text without emitting it. */
void dibs__event_format(const struct dibs__url *at, const char *text,
                        char out[DIBS__REASON_MAX]);

#endif
