/* SPDX-License-Identifier: MIT
 *
 * event_loop.h - the I/O thread: tasks from other threads, timers, flushes.
 */
#ifndef DIBS_NET_EVENT_LOOP_H
#define DIBS_NET_EVENT_LOOP_H

#include "base/list.h"
#include "base/platform.h"
#include "base/tree.h"

#include <dibs/dibs.h>
#include <uv.h>

/* Something to be done on the io thread. Lives inside whatever it is about,
 * and must not be posted again before it ran. */
struct dibs__task {
    struct dibs__list link;
    void (*run)(struct dibs__task *t);
};

/* Fires once, at or after `at`; may be set again from inside. io only. */
struct dibs__timer {
    RB_ENTRY(dibs__timer) node;
    int64_t at; /* 0: not set */
    void (*fire)(struct dibs__timer *t);
};

RB_HEAD(dibs__timers, dibs__timer);

struct dibs__loop {
    uv_loop_t uv;               /* io only */
    uv_async_t wake;            /* any */
    uv_timer_t clock;           /* io only */
    uv_prepare_t prepare;       /* io only */
    uv_check_t check;           /* io only */
    struct dibs__timers timers; /* io only */
    int64_t firing;             /* io only: timers up to this time fire; or 0 */
    struct dibs__list flushes;  /* io only: to run before the next sleep */
    bool stopping;              /* io only */
    pthread_t thread;
    dibs__mutex mu;
    struct dibs__list inbox; /* mu */
    bool asleep;             /* mu: in poll, needs waking */
    struct dibs__task stop;
};

/* Could so many descriptors, up to 6, be had at this moment? Thread: any. */
bool dibs__fds_left(unsigned count);

/* NOMEM: no memory, no thread, no descriptors. */
dibs_err dibs__loop_start(struct dibs__loop *lp);
/* Runs what was posted before, then ends and joins the thread. Everything that
 * lives on the loop must be closed by then. Thread: app. */
void dibs__loop_stop(struct dibs__loop *lp);

/* Thread: any. Locks: takes loop.mu. */
void dibs__loop_post(struct dibs__loop *lp, struct dibs__task *t)
    EXCLUDES(lp->mu);
/* Is this an io thread? This loop's? */
bool dibs__loop_inside(void);
bool dibs__loop_is_here(const struct dibs__loop *lp);
/* Before the loop sleeps again. Thread: io. */
void dibs__loop_flush(struct dibs__loop *lp, struct dibs__task *t);

/* Thread: io. */
void dibs__timer_set(struct dibs__loop *lp, struct dibs__timer *t, int64_t at);
void dibs__timer_stop(struct dibs__loop *lp, struct dibs__timer *t);

#endif
