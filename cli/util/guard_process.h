/* SPDX-License-Identifier: MIT
 *
 * guard_process.h - a process that acts when dibs is killed or stopped: what
 * child_guard.c and script_guard.c have in common.
 *
 * Both are forked off, read messages from a pipe that only dibs writes to, and
 * take the end of that pipe for the death of dibs. A message is smaller than
 * PIPE_BUF, so it arrives whole.
 */
#ifndef DIBS_CLI_UTIL_GUARD_PROCESS_H
#define DIBS_CLI_UTIL_GUARD_PROCESS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

/* As fork(2): returns 0 in the guard, with *fd the end to read from; the
 * guard's pid in the caller, with *fd the end to write to; -1 and errno.
 *
 * The guard has a session of its own and blocks all signals, so that a signal
 * for dibs and its command does not reach it. */
static inline pid_t guard_process_fork(const char *name, int *fd)
{
    int ends[2];
    sigset_t all;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        setsid();
        prctl(PR_SET_NAME, name);
        close(ends[1]);
        *fd = ends[0];
        return 0;
    }
    int err = errno;
    close(ends[0]);
    if (pid < 0)
        close(ends[1]);
    else
        *fd = ends[1];
    errno = err;
    return pid;
}

/* If the guard has ended, closes *fd and sets it to -1. No error: dibs watches
 * the lock itself, too. The caller must block or ignore SIGPIPE. */
static inline void guard_process_send(int *fd, const void *message, size_t len)
{
    if (*fd >= 0 && write(*fd, message, len) != (ssize_t)len) {
        close(*fd);
        *fd = -1;
    }
}

#endif
