/* SPDX-License-Identifier: MIT
 *
 * pause.h - a time that an operation on several locks lets pass.
 */
#ifndef DIBS_GROUP_PAUSE_H
#define DIBS_GROUP_PAUSE_H

#include "group/group.h"
#include "lock/work.h"

struct dibs__pause {
    struct dibs__work work;   /* see there */
    struct dibs__locks *lk;   /* const from begin to over, as are ms and over */
    struct dibs__task start;  /* the loop's */
    struct dibs__timer timer; /* io only */
    int64_t ms;
    void (*over)(struct dibs__pause *pause);
};

/* Calls over on the loop of a member's client that is not closing: after so
 * many ms, or when that client closes. False: all are closing. Thread: any, no
 * mutex held. */
bool dibs__pause_begin(struct dibs__pause *pause, const struct dibs__group *g,
                       int64_t ms, void (*over)(struct dibs__pause *));

#endif
