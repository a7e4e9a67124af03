/* SPDX-License-Identifier: MIT
 *
 * child_guard.c - a process that kills the command if dibs cannot.
 *
 * A command must not run on when its lock is not renewed any more. Normally
 * dibs itself stops it. But dibs can be killed with -9 or by the OOM killer, or
 * be stopped. Then the lease would run out while the command works. The kernel
 * ends a direct child with its parent (PDEATHSIG), but not the children's
 * children, and a stopped parent is not a dead one.
 *
 * How     A small process, forked off before the command is, sleeps on a pipe
 *         that only dibs writes to. Each message says which process group is
 *         to die, and at what time. (The first is sent by the new process that
 *         is about to become the command: dibs may die at once.) When the time
 *         comes without a newer message, or when the pipe ends because dibs
 *         has died, the guard kills the group. When dibs is done it sends
 *         target 0 and closes the pipe.
 *
 *         The guard's time is a little later than the one at which dibs
 *         itself kills, so it only acts when dibs does not.
 *
 * After   When dibs has died and the group is empty, the lock need not stay
 *         held until its lease ends. The guard becomes a process that releases
 *         that hold (release_plan.c). A run inside of the command may rely on
 *         the lock (nesting.c), with a process group of its own: the guard of
 *         that run joins our pipe, and we wait until it has left. If dibs dies
 *         before the command has begun, nothing is released.
 *
 * Apart   It has a session of its own and few descriptors, and blocks every
 *         signal, so that what hits dibs and its command does not hit the
 *         guard. It runs in a copy of a process with threads, and so calls
 *         only what is safe there.
 */
#include "run/child_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/nesting.h"
#include "util/fds.h"
#include "util/guard_process.h"
#include "util/time.h"

struct message {
    int64_t kill_at;
    int64_t target; /* as for kill(2): negative is a group; 0 none */
    bool leaves;    /* not what to kill: the outer runs need not wait */
};

/* The guard's descriptors, in this order and nothing else. */
enum { FD_PIPE, FD_INNER, FD_PLAN, FD_EXE, FD_OUTER };

#define ASIDE        64 /* above all that are kept */
#define LOOK_MIN_MS  10
#define LOOK_MAX_MS  500
#define DIRENTS_SIZE 4096

/* What the guard knows while it waits. */
struct guard_state {
    struct message m;
    bool has_target; /* what to kill */
    bool acted;      /* we killed before dibs ended */
    int process;     /* a pidfd, if it is a single process; else -1 */
    bool gone;       /* that process was reaped before it could be opened */
    size_t n_outer;
};

/* ---- what is left of a group ------------------------------------------- */

/* "pid (name) state ppid pgrp ...": is it in the group, and no zombie? */
static bool stat_in_group(const char *text, size_t len, pid_t group)
{
    const char *at = memrchr(text, ')', len), *end = text + len;
    long pgrp = 0;

    if (!at || end - at < 4 || at[2] == 'Z' || at[2] == 'X')
        return false;
    at += 4; /* ") S " */
    while (at < end && *at != ' ')
        at++;
    for (at++; at < end && *at >= '0' && *at <= '9'; at++)
        pgrp = pgrp * 10 + (*at - '0');
    return pgrp == group;
}

static bool process_in_group(int proc, const char *name, pid_t group)
{
    char path[64], text[512];
    size_t len = strnlen(name, sizeof path - sizeof "/stat");

    if (name[0] < '1' || name[0] > '9')
        return false;
    memcpy(path, name, len);
    memcpy(path + len, "/stat", sizeof "/stat");
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (fd >= 0)
        close(fd);
    return n > 0 && stat_in_group(text, (size_t)n, group);
}

/* As readdir(3) sees it, which is not safe here. */
struct entry {
    uint64_t ino, off;
    uint16_t len;
    unsigned char type;
    char name[];
};

/* Does anything but zombies remain of the group? */
static bool group_remains(pid_t group)
{
    _Alignas(struct entry) char buf[DIRENTS_SIZE];
    bool remains = false;
    long n = 1;

    if (kill(-group, 0) != 0 && errno == ESRCH)
        return false;
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return true;
    while (!remains && (n = syscall(SYS_getdents64, proc, buf, sizeof buf)) > 0)
        for (long at = 0; at < n && !remains;) {
            const struct entry *e = (const void *)(buf + at);
            remains = process_in_group(proc, e->name, group);
            at += e->len;
        }
    close(proc);
    return remains || n < 0;
}

/* ---- after the end of dibs --------------------------------------------- */

/* Waits until no process is left that may rely on the lock. */
static void await_last_user(const struct guard_state *w)
{
    struct pollfd p = {.fd = w->process, .events = POLLIN};
    int pause = LOOK_MIN_MS;

    while (p.fd >= 0 && poll(&p, 1, -1) < 0)
        continue;
    while ((w->m.target < 0 && group_remains((pid_t)-w->m.target)) ||
           nesting_is_joined(FD_INNER)) {
        poll(NULL, 0, pause);
        pause = pause * 2 < LOOK_MAX_MS ? pause * 2 : LOOK_MAX_MS;
    }
}

/* dibs was killed, or has set target 0. */
static void end_guarded(const struct guard_state *w)
{
    const struct release_plan release = {.fd = FD_PLAN, .exe = FD_EXE};

    /* A single process is ended by PDEATHSIG; its id may be in use again.
     * The id of a group stays in use until its last process has ended. */
    if (w->m.target < 0)
        kill((pid_t)w->m.target, SIGKILL);
    if (!w->has_target || w->m.target == 0 ||
        (w->m.target > 0 && w->process < 0 && !w->gone))
        return;
    await_last_user(w);
    release_plan_exec(&release);
}

/* ---- before it --------------------------------------------------------- */

static void take_message(struct guard_state *w, const struct message *next)
{
    if (next->leaves) {
        for (size_t i = 0; i < w->n_outer; i++)
            nesting_leave_fd(FD_OUTER + (int)i);
        return;
    }
    if (next->target > 0 && w->process < 0 && !w->gone) {
        w->process = (int)syscall(SYS_pidfd_open, (pid_t)next->target, 0);
        w->gone = w->process < 0 && errno == ESRCH;
    }
    w->m = *next;
    w->has_target = true;
}

/* Until dibs has ended. */
static void guard_watch(struct guard_state *w, int timer)
{
    struct pollfd p[2] = {{.fd = FD_PIPE, .events = POLLIN},
                          {.fd = timer, .events = POLLIN}};

    for (;;) {
        time_arm(timer, w->m.kill_at);
        if (poll(p, 2, TIME_POLL(timer)) < 0)
            continue;
        if (p[0].revents) {
            struct message next;
            ssize_t n = read(FD_PIPE, &next, sizeof next);

            if (n == (ssize_t)sizeof next)
                take_message(w, &next);
            else if (n == 0)
                break;
        } else if (w->m.target != 0 && time_now() >= w->m.kill_at) {
            kill((pid_t)w->m.target, SIGKILL);
            w->m.kill_at = TIME_NEVER;
            w->acted = true;
        }
    }
}

/* Keeps only these, at these numbers. Where there is none, it is /dev/null, so
 * that nothing else gets the number. */
static void keep_only(const int *fds, int n)
{
    int aside[FD_OUTER + NESTING_MAX];
    int null = open("/dev/null", O_RDONLY);

    for (int i = 0; i < n; i++)
        aside[i] = fcntl(fds[i] >= 0 ? fds[i] : null, F_DUPFD, ASIDE);
    if (aside[FD_PIPE] < 0) /* few are allowed: the pipe at least */
        dup2(fds[FD_PIPE], FD_PIPE);
    for (int i = 0; i < n; i++)
        if (aside[i] >= 0)
            dup2(aside[i], i);
    fds_close_from(aside[FD_PIPE] < 0 ? FD_PIPE + 1 : n, false);
}

static _Noreturn void guard_main(int fd, const struct guard_plan *plan)
{
    struct guard_state w = {
        .m = {.kill_at = TIME_NEVER}, .process = -1, .n_outer = plan->n_outer};
    int fds[FD_OUTER + NESTING_MAX] = {
        [FD_PIPE] = fd,
        [FD_INNER] = plan->inner_fd,
        [FD_PLAN] = plan->release ? plan->release->fd : -1,
        [FD_EXE] = plan->release ? plan->release->exe : -1};

    for (size_t i = 0; i < plan->n_outer; i++)
        fds[FD_OUTER + i] = plan->outer_fds[i];
    keep_only(fds, FD_OUTER + (int)plan->n_outer);
    for (size_t i = 0; i < plan->n_outer; i++)
        nesting_join_fd(FD_OUTER + (int)i);
    guard_watch(&w, time_fd());
    end_guarded(&w);
    _exit(w.acted ? 1 : 0);
}

bool guard_start(struct guard *g, const struct guard_plan *plan)
{
    int fd = -1;

    *g = (struct guard){.fd = -1};
    pid_t pid = guard_process_fork("dibs-guard", &fd);
    if (pid == 0)
        guard_main(fd, plan);
    if (pid < 0)
        return false;
    *g = (struct guard){.pid = pid, .fd = fd};
    return true;
}

void guard_set(struct guard *g, pid_t pid, bool group, int64_t kill_at)
{
    struct message m = {.kill_at = kill_at, .target = group ? -pid : pid};

    guard_process_send(&g->fd, &m, sizeof m);
}

void guard_leave(struct guard *g)
{
    struct message m = {.leaves = true};

    guard_process_send(&g->fd, &m, sizeof m);
}

bool guard_stop(struct guard *g)
{
    int status = 0;

    if (g->pid == 0)
        return false;
    guard_set(g, 0, false, TIME_NEVER);
    if (g->fd >= 0)
        close(g->fd);
    /* It may have been stopped, and dibs would wait without end, with the lock
     * held. It is signaled only while it is our child, so its id is valid. */
    siginfo_t info;
    if (waitid(P_PID, (id_t)g->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        kill(g->pid, SIGCONT);
    while (waitpid(g->pid, &status, 0) < 0)
        if (errno != EINTR) {
            status = 0;
            break;
        }
    *g = (struct guard){.fd = -1};
    return WIFEXITED(status) && WEXITSTATUS(status) != 0;
}
