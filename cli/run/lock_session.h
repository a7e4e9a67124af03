/* SPDX-License-Identifier: MIT
 *
 * lock_session.h - one lock of one command: taking it, keeping it, releasing
 * it.
 */
#ifndef DIBS_CLI_RUN_LOCK_SESSION_H
#define DIBS_CLI_RUN_LOCK_SESSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <dibs/dibs.h>

#include "args/args.h"
#include "hold/pid_target.h"
#include "output/event_log.h"
#include "run/lock_set.h"
#include "run/signals.h"
#include "run/wait_status.h"
#include "server/server_select.h"

#define PERMIT_TEXT 33 /* 32 hex digits */

enum session_end {
    SESSION_NOT_TAKEN,  /* never had it */
    SESSION_RELEASED,   /* the server confirmed it */
    SESSION_LOST,       /* it was gone already */
    SESSION_UNCONFIRMED /* the server did not confirm a release */
};

/* What ends the wait for a lock besides signals, as TERM would: the end of the
 * process that the lock is for, and of the one that reads from a pipe. */
struct wait_end {
    const struct script *script;
    int pipe_fd; /* its write end */
};

struct lock_session {
    const struct args *a;
    const struct signals *signals;
    const struct wait_end *ends; /* while we wait; NULL: nothing */
    struct target target;

    pthread_t opener; /* finds the server; then it is gone */
    bool opening;
    int opened_fd;
    int open_code;

    struct lock_set b;
    dibs_owner owner;
    char owner_text[DIBS_OWNER_MAX];
    int64_t token;            /* of a lock with tokens; 0 none */
    int64_t slot;             /* of a lock with slots; -1 none */
    char permit[PERMIT_TEXT]; /* the same as Redisson has it; "" none */
    bool nested;              /* an outer dibs run holds it for us */
    bool held;                /* from the grant to the release */
    bool lost;                /* on_lost was called */
    bool busy;                /* another owner has it, and we do not wait */
    enum nesting_state
        outer; /* of the runs that hold all or a part of it for us */

    bool answered; /* a call we started has ended, as answer says */
    dibs_err answer;
    char why[512]; /* what the library says of a call that failed */
    struct events events;
    struct waiting waiting;
    int sig;    /* the signal that made us give up; 0 = none */
    bool typed; /* on the terminal */
    int64_t asked_at, held_at, freed_at; /* on the clock of time.h */
    int64_t until; /* we wait no longer; TIME_NEVER: no limit */
    enum session_end end;
    bool kept; /* released, but left taken for a while */
};

/* Finds the server and takes the lock, waiting as the arguments say; signals
 * end the wait, and so does what ends names, if it is not NULL. EXIT_FINE when
 * it is held, by us or (nested) by an outer dibs run; otherwise the exit code,
 * and an error was printed. */
int session_acquire(struct lock_session *g, const struct args *a,
                    const struct signals *signals, const struct wait_end *ends);

/* While held: a descriptor to watch, what to call when it is readable, and for
 * how long the hold is valid by our clock. */
int session_fd(const struct lock_session *g);
void session_dispatch(struct lock_session *g);
int64_t session_valid_ms(const struct lock_session *g);
/* Held by our clock, and the last renewal was confirmed. */
bool session_is_confirmed(const struct lock_session *g);

/* The same for what outer runs hold for us: -1 when there is
 * nothing to watch, or no more; the state is then in g->outer. */
int session_outer_fd(const struct lock_session *g);
void session_check_outer(struct lock_session *g);
/* From now on the outer runs need not wait for us. */
void session_outer_leave(struct lock_session *g);
/* Why the lock is lost, if g->outer is not NESTING_HELD. */
const char *session_outer_loss_text(const struct lock_session *g);

/* Releases it, but leaves it taken for keep_ms. Goes on until the server has
 * confirmed it, the lease is over, or a signal ends the attempt. */
enum session_end session_release(struct lock_session *g, int64_t keep_ms);

/* Frees everything, and releases a lock that is still held. */
void session_close(struct lock_session *g);

#endif
