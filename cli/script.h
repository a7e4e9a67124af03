/* SPDX-License-Identifier: MIT
 *
 * script.h - a process that is not our child: known for sure, and signaled.
 *
 * A process id can be another process's a moment later; a pidfd cannot. The
 * process is called a script here, as that is what it nearly always is.
 */
#ifndef DIBS_CLI_SCRIPT_H
#define DIBS_CLI_SCRIPT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

struct script {
    pid_t pid;
    int fd;     /* a pidfd: readable once the process has ended */
    bool leads; /* a process group: then all of it is signaled */
};

/* The first process of a machine or container. The kernel keeps KILL from it,
 * and its group cannot be named: -1 means all processes there are. */
#define SCRIPT_INIT 1

/* False and errno when there is no such process, or it is not ours to signal.
 */
static inline bool script_open(struct script *s, pid_t pid)
{
    s->pid = pid;
    s->fd = (int)syscall(SYS_pidfd_open, pid, 0);
    s->leads = pid != SCRIPT_INIT && getpgid(pid) == pid;
    return s->fd >= 0 && syscall(SYS_pidfd_send_signal, s->fd, 0, NULL, 0) == 0;
}

static inline bool script_ended(const struct script *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

/* A group's number stays taken while its leader lives. A process that is
 * stopped hears of a signal only when it is continued. */
static inline void script_signal(const struct script *s, int sig)
{
    if (script_ended(s))
        return;
    if (s->leads)
        kill(-s->pid, sig);
    else
        syscall(SYS_pidfd_send_signal, s->fd, sig, NULL, 0);
    if (s->leads && sig != SIGKILL)
        kill(-s->pid, SIGCONT);
    else if (sig != SIGKILL)
        syscall(SYS_pidfd_send_signal, s->fd, SIGCONT, NULL, 0);
}

#endif
