/* SPDX-License-Identifier: MIT
 *
 * lifecycle.h - what a program waits for when it opens or closes a client.
 */
#ifndef DIBS_CLIENT_LIFECYCLE_H
#define DIBS_CLIENT_LIFECYCLE_H

#include "base/error_text.h"
#include "base/platform.h"
#include "net/event_loop.h"

#include <semaphore.h>
#include <stdio.h>

struct dibs__lifecycle {
    sem_t turn;      /* what was waited for has come */
    bool opening;    /* io only: the first connection is waited for */
    int64_t open_by; /* before that, no connection is not the end */
    struct dibs__loop *lp;
    struct dibs__timer limit;   /* io only: then it is, whatever goes on */
    dibs_err err;               /* how that went */
    char why[DIBS__REASON_MAX]; /* in words */
    unsigned left;              /* io only: those that have not ended */
};

/* The first connection is up, or an attempt failed. Thread: io. */
static inline void dibs__lifecycle_opened(struct dibs__lifecycle *p,
                                          dibs_err err, const char *why)
{
    if (!p->opening || (err == DIBS_ERR_CONN && dibs__now_ms() < p->open_by))
        return;
    p->opening = false;
    if (p->limit.at)
        dibs__timer_stop(p->lp, &p->limit);
    p->err = err;
    snprintf(p->why, sizeof p->why, "%s", why);
    sem_post(&p->turn);
}

/* After its close, nothing of a part is left on the loop. Thread: io. */
static inline void dibs__lifecycle_closed(struct dibs__lifecycle *p)
{
    if (--p->left == 0)
        sem_post(&p->turn);
}

#endif
