/* SPDX-License-Identifier: MIT
 *
 * lifecycle.h - completion of opening and closing, for the thread that waits.
 *
 * The app thread waits on step_done: once for the first connection when it
 * opens a client, and once for each step of closing. The components with
 * connections (nodes, subscribers, sentinels, cluster) report from io.
 */
#ifndef DIBS_CLIENT_LIFECYCLE_H
#define DIBS_CLIENT_LIFECYCLE_H

#include "base/error_text.h"
#include "base/platform.h"
#include "net/event_loop.h"

#include <semaphore.h>
#include <stdio.h>

struct dibs__lifecycle {
    sem_t step_done; /* posted when opening or a step of closing is done */
    bool opening;    /* io only: waiting for the first connection */
    int64_t open_deadline; /* a DIBS_ERR_CONN before this time is retried */
    struct dibs__loop *lp;
    struct dibs__timer limit;   /* io only: fails opening at the latest */
    dibs_err err;               /* result of opening */
    char why[DIBS__REASON_MAX]; /* its error text */
    unsigned open_components;   /* io only: components not yet closed */
};

/* The first connection is up (OK), or an attempt failed. Thread: io. */
static inline void dibs__lifecycle_opened(struct dibs__lifecycle *p,
                                          dibs_err err, const char *why)
{
    if (!p->opening ||
        (err == DIBS_ERR_CONN && dibs__now_ms() < p->open_deadline))
        return;
    p->opening = false;
    if (p->limit.at)
        dibs__timer_stop(p->lp, &p->limit);
    p->err = err;
    snprintf(p->why, sizeof p->why, "%s", why);
    sem_post(&p->step_done);
}

/* A component has closed: none of its handles, timers or tasks is left on the
 * loop. Thread: io. */
static inline void dibs__lifecycle_closed(struct dibs__lifecycle *p)
{
    if (--p->open_components == 0)
        sem_post(&p->step_done);
}

#endif
