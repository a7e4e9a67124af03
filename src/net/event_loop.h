/* SPDX-License-Identifier: MIT
 *
 * event_loop.h - the I/O thread ("io"): tasks posted by other threads, timers,
 * flushes before each sleep.
 */
#ifndef DIBS_NET_EVENT_LOOP_H
#define DIBS_NET_EVENT_LOOP_H

#include "base/list.h"
#include "base/platform.h"
#include "base/tree.h"

#include <dibs/dibs.h>
#include <uv.h>

/* A call on the io thread, embedded in the object it works on. The caller must
 * not post it again before it has run. */
struct dibs__task {
    struct dibs__list link;
    void (*run)(struct dibs__task *t);
};

/* One-shot timer, io only. fire is called at or after `at` and may set the
 * timer again. */
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
    int64_t firing;             /* io only: timers up to this time are being
                                   fired; 0: none are */
    struct dibs__list flushes; /* io only: tasks to run before the next sleep */
    bool stopping;             /* io only */
    pthread_t thread;
    dibs__mutex mu;
    struct dibs__list inbox; /* mu */
    bool asleep;             /* mu: in poll; a post must call uv_async_send */
    struct dibs__task stop;
};

/* Returns whether `count` (at most 6) more descriptors can be opened now.
 * Thread: any. */
bool dibs__fds_available(unsigned count);

/* Returns OK, or NOMEM if memory, a thread or descriptors are not available. */
dibs_err dibs__loop_start(struct dibs__loop *lp);
/* Runs the posted tasks, then joins the thread. The caller must have closed all
 * handles and timers. Thread: app. */
void dibs__loop_stop(struct dibs__loop *lp);

/* Runs t on io. Thread: any. Locks: takes loop.mu. */
void dibs__loop_post(struct dibs__loop *lp, struct dibs__task *t)
    EXCLUDES(lp->mu);
/* Return whether the calling thread is an io thread, and whether it is this
 * loop's. */
bool dibs__loop_on_io_thread(void);
bool dibs__loop_is_current(const struct dibs__loop *lp);
/* Runs t before the loop sleeps again; idempotent until then. Thread: io. */
void dibs__loop_flush(struct dibs__loop *lp, struct dibs__task *t);

/* Set replaces an earlier time; stop is idempotent. Thread: io. */
void dibs__timer_set(struct dibs__loop *lp, struct dibs__timer *t, int64_t at);
void dibs__timer_stop(struct dibs__loop *lp, struct dibs__timer *t);

#endif
