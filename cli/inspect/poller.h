/* SPDX-License-Identifier: MIT
 *
 * poller.h - looks at all locks again and again, on a thread of its own.
 */
#ifndef DIBS_CLI_INSPECT_POLLER_H
#define DIBS_CLI_INSPECT_POLLER_H

#include <pthread.h>

#include "inspect/snapshot.h"

#define FEED_WANTED 200

struct feed {
    dibs_client *c; /* const after feed_open, down to fd */
    const char *pattern;
    int64_t every_ms;
    int fd;   /* readable: there is a new look */
    int wake; /* the thread is to look up */
    pthread_t thread;
    bool started;

    pthread_mutex_t mu;
    struct survey now;               /* mu: the last look */
    bool any;                        /* mu: there was one */
    double rate;                     /* mu: changes a second */
    int64_t pause_ms;                /* mu: from a look to the next one */
    int64_t seen_at;                 /* mu: the end of the last look */
    int64_t due_at;                  /* mu: when the next should have ended */
    dibs_err err;                    /* mu: of the last attempt */
    char why[256];                   /* mu */
    bool held, stop;                 /* mu: looks pause; they end */
    struct seen wanted[FEED_WANTED]; /* mu: whose waiters are to be counted */
    size_t n_wanted;                 /* mu */
};

/* EXIT_FINE, or another code and an error was printed; feed_close in either
 * case. */
int feed_open(struct feed *f, dibs_client *c, const char *pattern,
              int64_t every_ms);
/* Ends the thread; the client must be closed by then, so that no call lasts. */
void feed_close(struct feed *f);

void feed_lock(struct feed *f);
void feed_unlock(struct feed *f);
/* With the lock: the waiters of this lock shall be counted, too. */
void feed_want(struct feed *f, const struct seen *s);
void feed_want_none(struct feed *f);
/* With the lock: from when on the last look counts as stale, as another one
 * should have come, or failed. TIME_NEVER: looks pause, or there was none. */
int64_t feed_stale_at(const struct feed *f);
/* No looks, until they are wanted again. */
void feed_hold(struct feed *f, bool held);
/* Nothing new is known to the caller from now on: fd is not readable. */
void feed_taken(struct feed *f);

#endif
