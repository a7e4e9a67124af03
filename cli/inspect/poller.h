/* SPDX-License-Identifier: MIT
 *
 * poller.h - polls all locks, on a thread of its own.
 */
#ifndef DIBS_CLI_INSPECT_POLLER_H
#define DIBS_CLI_INSPECT_POLLER_H

#include <pthread.h>

#include "inspect/snapshot.h"

#define POLLER_VISIBLE_MAX 200

struct poller {
    dibs_client *c; /* const after poller_open, down to fd */
    const char *pattern;
    int64_t every_ms;
    int fd;   /* readable: there is a new look */
    int wake; /* the thread is to look up */
    pthread_t thread;
    bool started;

    pthread_mutex_t mu;
    struct snapshot now; /* mu: the last look */
    bool any;            /* mu: there was one */
    double rate;         /* mu: changes a second */
    int64_t pause_ms;    /* mu: from a look to the next one */
    int64_t seen_at;     /* mu: the end of the last look */
    int64_t due_at;      /* mu: when the next should have ended */
    dibs_err err;        /* mu: of the last attempt */
    char why[256];       /* mu */
    bool held, stop;     /* mu: looks pause; they end */
    struct lock_row
        wanted[POLLER_VISIBLE_MAX]; /* mu: whose waiters are to be counted */
    size_t n_wanted;                /* mu */
};

/* EXIT_FINE, or another code and an error was printed; poller_close in either
 * case. */
int poller_open(struct poller *f, dibs_client *c, const char *pattern,
                int64_t every_ms);
/* Ends the thread; the client must be closed by then, so that no call lasts. */
void poller_close(struct poller *f);

void poller_lock(struct poller *f);
void poller_unlock(struct poller *f);
/* With the lock: the waiters of this lock shall be counted, too. */
void poller_add_visible(struct poller *f, const struct lock_row *s);
void poller_clear_visible(struct poller *f);
/* With the lock: from when on the last look counts as stale, as another one
 * should have come, or failed. TIME_NEVER: looks pause, or there was none. */
int64_t poller_stale_at(const struct poller *f);
/* No looks, until they are wanted again. */
void poller_pause(struct poller *f, bool held);
/* Nothing new is known to the caller from now on: fd is not readable. */
void poller_mark_seen(struct poller *f);

#endif
