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
    int fd;   /* readable: there is a new snapshot */
    int wake; /* wakes the thread */
    pthread_t thread;
    bool started;

    pthread_mutex_t mu;
    struct snapshot now; /* mu: the last snapshot */
    bool any;            /* mu: there was one */
    double rate;         /* mu: changes a second */
    int64_t pause_ms;    /* mu: between two snapshots */
    int64_t seen_at;     /* mu: when the last snapshot was complete */
    int64_t due_at;      /* mu: when the next should have ended */
    dibs_err err;        /* mu: of the last attempt */
    char why[256];       /* mu */
    bool paused, stop;   /* mu: polling pauses; it ends */
    struct lock_row visible[POLLER_VISIBLE_MAX]; /* mu: rows on the screen:
                                                    waiters are counted */
    size_t n_visible;                            /* mu */
};

/* EXIT_FINE, or another code and an error was printed; poller_close in either
 * case. */
int poller_open(struct poller *f, dibs_client *c, const char *pattern,
                int64_t every_ms);
/* Ends the thread; the client must be closed by then, so that no call lasts. */
void poller_close(struct poller *f);

void poller_lock(struct poller *f);
void poller_unlock(struct poller *f);
/* Requires poller.mu: adds a row on the screen, whose waiters are counted. */
void poller_add_visible(struct poller *f, const struct lock_row *s);
void poller_clear_visible(struct poller *f);
/* Requires poller.mu. Returns when the last snapshot becomes stale, because the
 * next one is overdue or failed. TIME_NEVER: polling pauses, or there was none.
 */
int64_t poller_stale_at(const struct poller *f);
/* Pauses or resumes polling. */
void poller_pause(struct poller *f, bool paused);
/* The caller has read the snapshot: fd is not readable any more. */
void poller_mark_seen(struct poller *f);

#endif
