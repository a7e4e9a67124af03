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

enum grip_end {
    GRIP_NOT_TAKEN, /* never had it */
    GRIP_RELEASED,  /* the server said so */
    GRIP_LOST,      /* it was gone already */
    GRIP_UNSURE     /* the server did not say */
};

/* What ends the wait for a lock besides signals, as TERM would: the end of the
 * process that the lock is for, and of the one that reads from a pipe. */
struct wait_end {
    const struct script *script;
    int pipe_fd; /* its write end */
};

struct grip {
    const struct args *a;
    const struct signals *signals;
    const struct wait_end *ends; /* while we wait; NULL: nothing */
    struct target target;

    pthread_t opener; /* finds the server; then it is gone */
    bool opening;
    int opened_fd;
    int open_code;

    struct bundle b;
    dibs_owner owner;
    char owner_text[DIBS_OWNER_MAX];
    int64_t token;            /* of a lock with tokens; 0 none */
    int64_t slot;             /* of a lock with slots; -1 none */
    char permit[PERMIT_TEXT]; /* the same as Redisson has it; "" none */
    bool nested;              /* an outer dibs run holds it for us */
    bool held;                /* from the grant to the release */
    bool lost;                /* the library said so */
    bool busy;                /* somebody else has it, and we do not wait */
    enum outer_state outer;   /* of those who hold all or a part of it for us */

    bool answered; /* a call we started has ended, as answer says */
    dibs_err answer;
    char why[512]; /* what the library says of a call that failed */
    struct events events;
    struct waiting waiting;
    int sig;    /* the signal that made us give up; 0 = none */
    bool typed; /* on the terminal */
    int64_t asked_at, held_at, freed_at; /* on the clock of time.h */
    int64_t until; /* we wait no longer; TIME_NEVER: no limit */
    enum grip_end end;
    bool kept; /* released, but left taken for a while */
};

/* Finds the server and takes the lock, waiting as the arguments say; signals
 * end the wait, and so does what ends names, if it is not NULL. EXIT_FINE when
 * it is held, by us or (nested) by an outer dibs run; otherwise the exit code,
 * and an error was printed. */
int grip_take(struct grip *g, const struct args *a,
              const struct signals *signals, const struct wait_end *ends);

/* While held: a descriptor to watch, what to call when it is readable, and for
 * how long we surely hold the lock. */
int grip_fd(const struct grip *g);
void grip_pump(struct grip *g);
int64_t grip_valid_ms(const struct grip *g);
/* Surely ours, and renewed when it should be. */
bool grip_is_sure(const struct grip *g);

/* The same for what outer runs hold for us: -1 when there is
 * nothing to watch, or no more; the state is then in g->outer. */
int grip_outer_fd(const struct grip *g);
void grip_outer_look(struct grip *g);
/* From now on the outer runs need not wait for us. */
void grip_outer_leave(struct grip *g);
/* Why the lock is not ours any more, when g->outer says so. */
const char *grip_outer_text(const struct grip *g);

/* Releases it, but leaves it taken for keep_ms. Goes on until the server has
 * confirmed it, the lease is over, or a signal ends the attempt. */
enum grip_end grip_drop(struct grip *g, int64_t keep_ms);

/* Frees everything, and releases a lock that is still held. */
void grip_close(struct grip *g);

#endif
