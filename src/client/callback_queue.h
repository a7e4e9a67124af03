/* SPDX-License-Identifier: MIT
 *
 * callback_queue.h - queue of user callbacks, run by a thread of the library or
 * by the program's calls of dibs_client_dispatch.
 */
#ifndef DIBS_CLIENT_CALLBACK_QUEUE_H
#define DIBS_CLIENT_CALLBACK_QUEUE_H

#include "net/event_loop.h"

#include <dibs/dibs.h>

/* Embedded in the object that the callback reports on. run is called once and
 * frees that object; with `drop` it must not call user code. */
struct dibs__callback {
    struct dibs__list link;
    void (*run)(struct dibs__callback *cb, bool drop);
};

struct dibs__callbacks {
    dibs__mutex mu;
    struct dibs__list queue; /* mu */
    bool started;            /* mu: the thread runs */
    bool stop;               /* mu */
    pthread_cond_t more;     /* mu: queue, rides or stop have changed */
    pthread_t thread;
    /* const after init. Dispatch mode: an epoll descriptor, readable when
     * callbacks or replies are pending. Else -1. */
    int fd;
    struct dibs__loop *lp;  /* const after init: the client's */
    struct dibs__task wake; /* io only: wakes the runner once per loop round */

    /* Connections lent to the thread that runs callbacks, see callback_io.c,
     * which sets the hooks. leave: before user code runs, marks them as
     * available to io. work: sends, then waits for a reply or a callback. In
     * dispatch mode: hear reads replies, send sends; neither waits. */
    struct dibs__list rides;                    /* mu */
    void (*leave)(struct dibs__callbacks *cbs); /* under mu */
    void (*work)(struct dibs__callbacks *cbs);
    void (*hear)(struct dibs__callbacks *cbs);
    void (*send)(struct dibs__callbacks *cbs);
    /* mu: a thread is in dispatch. Another one that calls dispatch runs
     * callbacks, but must not use rides. */
    bool dispatching;
    /* mu: the dispatcher is in `hear` and takes the queue afterwards, so a push
     * need not wake it. */
    bool reading;
    bool wake_written;  /* mu: wake_fd is readable */
    bool polls;         /* mu: the runner is in poll on rides and wake_fd */
    int wake_fd;        /* mu: eventfd; -1: not created yet */
    int64_t slow_until; /* mu: user code was slow; until then callbacks hand
                           their commands to io */
};

/* dispatch: whether the program calls dispatch, or a thread runs the callbacks.
 * Returns OK or NOMEM. */
dibs_err dibs__callbacks_init(struct dibs__callbacks *cbs,
                              struct dibs__loop *lp, bool dispatch);
/* Starts the callback thread if there is none; idempotent. The caller must call
 * it before it registers a callback. Returns OK or NOMEM. Thread: app. */
dibs_err dibs__callbacks_ensure_thread(struct dibs__callbacks *cbs)
    EXCLUDES(cbs->mu);
/* Queues cb and wakes the runner. Thread: any. */
void dibs__callbacks_push(struct dibs__callbacks *cbs,
                          struct dibs__callback *cb) EXCLUDES(cbs->mu);
/* Runs the queued callbacks. Returns how many. Thread: app. */
int dibs__callbacks_dispatch(struct dibs__callbacks *cbs) EXCLUDES(cbs->mu);
/* Runs the queued callbacks and joins the thread. Thread: app, not inside a
 * callback. */
void dibs__callbacks_stop(struct dibs__callbacks *cbs) EXCLUDES(cbs->mu);
/* Drops the callbacks that were never dispatched. */
void dibs__callbacks_drop(struct dibs__callbacks *cbs) EXCLUDES(cbs->mu);
/* Drops them and frees the descriptors and the mutex. */
void dibs__callbacks_clear(struct dibs__callbacks *cbs);

/* Returns whether this thread is inside a callback of this queue. */
bool dibs__callbacks_inside(const struct dibs__callbacks *cbs);
/* Returns whether, in addition, this thread may use the connections in
 * `rides`: it is the callback thread, or the one that dispatches. */
bool dibs__callbacks_on_thread(const struct dibs__callbacks *cbs);

#endif
