/* SPDX-License-Identifier: MIT
 *
 * callback_queue.h - where user code runs: a thread of its own, or the
 * program's.
 */
#ifndef DIBS_CLIENT_CALLBACK_QUEUE_H
#define DIBS_CLIENT_CALLBACK_QUEUE_H

#include "net/event_loop.h"

#include <dibs/dibs.h>

/* Lives inside whatever it is about. run is called once and frees it; with
 * `drop` the user is not to be called any more. */
struct dibs__callback {
    struct dibs__list link;
    void (*run)(struct dibs__callback *cb, bool drop);
};

struct dibs__callbacks {
    dibs__mutex mu;
    struct dibs__list queue; /* mu */
    bool started;            /* mu: the thread runs */
    bool stop;               /* mu */
    pthread_cond_t more;     /* mu */
    pthread_t thread;
    int fd; /* const after init, of epoll: readable when callbacks wait, or
               replies; -1: the thread runs them */
    struct dibs__loop *lp;  /* const after init: the client's */
    struct dibs__task wake; /* io only */

    /* Connections that are served between callbacks: see callback_io.c. leave:
     * user code is about to run. work: sends and reads, and waits for a reply
     * or a callback. For dispatch, without waiting: hear reads, send sends. */
    struct dibs__list rides;                    /* mu */
    void (*leave)(struct dibs__callbacks *cbs); /* under mu */
    void (*work)(struct dibs__callbacks *cbs);
    void (*hear)(struct dibs__callbacks *cbs);
    void (*send)(struct dibs__callbacks *cbs);
    bool dispatches; /* mu: a thread is in dispatch; others leave rides alone */
    bool hears;      /* mu: that thread will look again before it returns */
    bool rung;       /* mu: something was written to wake_fd */
    bool polls;      /* mu: it waits for these and for wake_fd */
    int wake_fd;     /* mu; -1 none yet */
    int64_t slow_until; /* mu: user code took its time lately */
};

dibs_err dibs__callbacks_init(struct dibs__callbacks *cbs,
                              struct dibs__loop *lp, bool dispatch);
/* Makes sure that callbacks can be run. Call it before promising one. OK or
 * NOMEM. Thread: app. */
dibs_err dibs__callbacks_ensure_thread(struct dibs__callbacks *cbs)
    EXCLUDES(cbs->mu);
/* Thread: any. */
void dibs__callbacks_push(struct dibs__callbacks *cbs,
                          struct dibs__callback *cb) EXCLUDES(cbs->mu);
/* Runs what waits; how many. Thread: app. */
int dibs__callbacks_dispatch(struct dibs__callbacks *cbs) EXCLUDES(cbs->mu);
/* Runs what is left and ends the thread. Thread: app, not inside a callback. */
void dibs__callbacks_stop(struct dibs__callbacks *cbs) EXCLUDES(cbs->mu);
/* Drops what was never dispatched; and then ends. */
void dibs__callbacks_drop(struct dibs__callbacks *cbs) EXCLUDES(cbs->mu);
void dibs__callbacks_clear(struct dibs__callbacks *cbs);

/* Is this thread inside one of these callbacks? */
bool dibs__callbacks_inside(const struct dibs__callbacks *cbs);
/* And are the rides its own? */
bool dibs__callbacks_on_thread(const struct dibs__callbacks *cbs);

#endif
