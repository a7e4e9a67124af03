/* SPDX-License-Identifier: MIT
 *
 * child.h - the guarded command, with all that belongs to it.
 */
#ifndef DIBS_CLI_RUN_CHILD_H
#define DIBS_CLI_RUN_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "run/child_guard.h"
#include "run/signals.h"

struct child {
    pid_t pid;      /* 0 before it is started */
    bool group;     /* leads a process group of its own */
    bool ended;     /* status says how */
    int status;     /* as of waitpid(2) */
    int stopped_by; /* the signal that stopped it; 0 while it runs */
    bool denied;    /* a signal to it was refused by the system */
    int lost_fd;    /* we write, it reads: the lock is lost */
    int inner_fd;   /* its end of that pipe, which runs inside of it join */
    int tty;        /* the terminal, once it asked for it; else -1 */
    bool has_tty;   /* the terminal is its group's */
    struct guard guard;
};

struct child_plan {
    char *const *argv;
    const char *const *env; /* NAME=value, to add; ends with NULL */
    bool foreground;        /* in our process group */
    const char *owners;     /* make a DIBS_LOST_FD for them; NULL: none */
    int kept_fd;            /* it does not get this number; -1: any */
    int64_t grace_ms;       /* passed to inner runs (nesting.h) */
    int64_t kill_at;        /* for the guard, until guard_set; TIME_NEVER */
    const struct nesting *outer; /* runs around us */
    const struct release_plan
        *release; /* what to release if we are killed, or NULL */
    const struct signals *signals;
};

void child_init(struct child *ch);

/* Starts the command. Returns 0, or an errno: then nothing runs. */
int child_start(struct child *ch, const struct child_plan *plan);

/* Signals it: all of its group, or the process where it has none. */
void child_signal(struct child *ch, int sig);

/* Collects what happened to our child processes. Call it on SIGCHLD. */
void child_reap(struct child *ch);

/* Returns whether it has ended, and all processes of its group. */
bool child_gone(struct child *ch);

/* Makes DIBS_LOST_FD readable: the lock is lost, or is about to be released. */
void child_tell_lost(struct child *ch);
void child_tell_end(struct child *ch);
/* Returns whether an inner run still relies on our hold. */
bool child_has_inner(const struct child *ch);

/* The terminal. tty_ours: is there one, and may we give it away? give_tty does
 * so; take_tty takes it back, if it was given. */
bool child_tty_ours(struct child *ch);
void child_give_tty(struct child *ch);
void child_take_tty(struct child *ch);

/* Runs a line of shell, in a group of its own, and does not wait for it. */
void child_hook(const struct child *ch, const char *line,
                const struct child_plan *plan);

/* Ends the guard and closes the descriptors. */
void child_close(struct child *ch);

#endif
