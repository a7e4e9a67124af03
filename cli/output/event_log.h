/* SPDX-License-Identifier: MIT
 *
 * event_log.h - prints what the library reports.
 */
#ifndef DIBS_CLI_OUTPUT_EVENT_LOG_H
#define DIBS_CLI_OUTPUT_EVENT_LOG_H

#include <stdbool.h>

#include <dibs/dibs.h>

struct events {
    bool waiting;   /* we wait for a lock: a lost server matters to the user */
    bool told_down; /* that the server does not answer */
};

/* Prints one. An event with the same text as an earlier one is printed at most
 * once a minute. */
void events_tell(struct events *e, const dibs_event *ev);

#endif
