/* SPDX-License-Identifier: MIT
 *
 * events.h - what the library reports, told to people.
 */
#ifndef DIBS_CLI_EVENTS_H
#define DIBS_CLI_EVENTS_H

#include <stdbool.h>

#include <dibs/dibs.h>

struct events {
    bool waiting;   /* we wait for a lock: a lost server matters to the user */
    bool told_down; /* that the server does not answer */
};

/* Tells of one. An event with the same text as an earlier one is told at most
 * once a minute. */
void events_tell(struct events *e, const dibs_event *ev);

#endif
