/* SPDX-License-Identifier: MIT
 *
 * pid_target.h - a process that is not our child: known for sure, and signaled.
 *
 * A process id can be another process's a moment later; a pidfd cannot. The
 * process is called a script here, as that is what it nearly always is.
 *
 * Without pidfd_open(2) (before Linux 5.3, or in a sandbox) an open /proc/PID
 * identifies the process: reading in it fails with ESRCH once the process is
 * gone, also when its id is in use again. That cannot be polled, so fd is a
 * timer then, and each tick is a reason to look.
 */
#ifndef DIBS_CLI_HOLD_PID_TARGET_H
#define DIBS_CLI_HOLD_PID_TARGET_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SCRIPT_LOOK_MS 100 /* between two looks at /proc */

struct script {
    pid_t pid;
    int fd;     /* when readable, ask script_ended; a pidfd, or a timer */
    int proc;   /* /proc/PID, if fd is a timer; else -1 */
    bool leads; /* a process group: then all of it is signaled */
};

/* The first process of a machine or container. The kernel keeps KILL from it,
 * and its group cannot be named: -1 means all processes there are. */
#define SCRIPT_INIT 1

/* A timer for fd of a script without a pidfd. The processes that fork(2) makes
 * need one each: a tick that one of them reads is gone for the others. */
static inline bool script_own_timer(struct script *s)
{
    const struct timespec pause = {.tv_nsec = SCRIPT_LOOK_MS * 1000000L};
    const struct itimerspec ticks = {pause, pause};

    if (s->proc < 0)
        return true;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    return s->fd >= 0 && timerfd_settime(s->fd, 0, &ticks, NULL) == 0;
}

/* Does /proc show a process that has not ended? A zombie has. */
static inline bool script_in_proc(const struct script *s)
{
    char text[512];
    int fd = openat(s->proc, "stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strrchr(text, ')'); /* a name may hold anything */
    return at && at[1] == ' ' && at[2] != 'Z' && at[2] != 'X';
}

static inline bool script_ended(const struct script *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    uint64_t ticks;

    if (s->proc < 0)
        return poll(&p, 1, 0) > 0;
    ssize_t n = read(s->fd, &ticks, sizeof ticks); /* not readable any more */
    (void)n;
    return !script_in_proc(s);
}

/* To the process alone. 0, or -1 and errno. pidfd_send_signal(2) takes an open
 * /proc/PID, too. Before Linux 5.1 there is only kill(2). */
static inline int script_kill(const struct script *s, int sig)
{
    int fd = s->proc < 0 ? s->fd : s->proc;
    int done = (int)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);

    if (done == 0 || s->proc < 0 || errno == ESRCH || errno == EPERM)
        return done;
    return script_in_proc(s) ? kill(s->pid, sig) : -1;
}

/* False and errno when there is no such process, or it is not ours to signal.
 */
static inline bool script_open(struct script *s, pid_t pid)
{
    char path[32];

    *s = (struct script){.pid = pid, .proc = -1};
    s->leads = pid != SCRIPT_INIT && getpgid(pid) == pid;
    s->fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (s->fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        snprintf(path, sizeof path, "/proc/%d", (int)pid);
        s->proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (s->proc < 0 && errno == ENOENT)
            errno = ESRCH;
        if (s->proc < 0 || !script_own_timer(s))
            return false;
    }
    return s->fd >= 0 && script_kill(s, 0) == 0;
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
        script_kill(s, sig);
    if (s->leads && sig != SIGKILL)
        kill(-s->pid, SIGCONT);
    else if (sig != SIGKILL)
        script_kill(s, SIGCONT);
}

#endif
