/* SPDX-License-Identifier: MIT
 *
 * signals.h - signals, read from a descriptor.
 */
#ifndef DIBS_CLI_RUN_SIGNALS_H
#define DIBS_CLI_RUN_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* How signals were before we started; the guarded command gets that back. */
struct signals {
    int fd;       /* readable when one has come; -1 before signals_open */
    sigset_t old; /* the mask we were started with */
    bool chld_ignored;
    sigset_t skip; /* signals_next leaves these out: see signals_open_all */
};

/* One that came. */
struct signal_got {
    int sig;
    bool terminal; /* typed on the terminal: its whole group got it */
};

/* Blocks what we handle and makes fd. Call it before there are threads. False
 * when the system will not. */
bool signals_open(struct signals *s);
/* The same, for a process in the background that nothing of its start may keep
 * from ending: every signal has its default action, and none is blocked but by
 * us. One that was ignored is left out until signals_heed. */
bool signals_open_all(struct signals *s);
void signals_heed(struct signals *s);
void signals_close(struct signals *s);

/* The next one that came; false when there is none. */
bool signals_next(const struct signals *s, struct signal_got *out);

/* Does it end a process that does nothing about it? Then it ends a wait. */
bool signals_fatal(int sig);
/* Is it one to pass on to a guarded command? */
bool signals_forward(int sig);

/* Stops this process, as that signal would have; with group, all of our
 * process group. Returns when we are continued: true. Returns false at once in
 * an orphaned process group, where it could not be continued. */
bool signals_stop(int sig, bool group);

/* In a new process, before exec: everything as it was. */
void signals_restore(const struct signals *s);

#endif
