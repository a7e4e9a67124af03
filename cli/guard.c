/* SPDX-License-Identifier: MIT
 *
 * guard.c - a process that kills the command if dibs cannot.
 *
 * A command must not run on when nobody renews its lock any more. Normally dibs
 * itself stops it. But dibs can be killed with -9 or by the OOM killer, or be
 * stopped. Then the lease would run out while the command works. The kernel
 * ends a direct child with its parent (PDEATHSIG), but not the children's
 * children, and a stopped parent is not a dead one.
 *
 * How     A small process, forked off before the command is, sleeps on a pipe
 *         that only dibs writes to. Each message says which process group is
 *         to die, and at what time. When the time comes without a newer
 *         message, or when the pipe ends because dibs has died, the guard
 *         kills the group. When dibs is done it sends "nobody" and closes the
 *         pipe.
 *
 *         The guard's time is a little later than the one at which dibs
 *         itself kills, so it only acts when dibs does not.
 *
 * Apart   It has a session of its own, no descriptors but its two, and blocks
 *         every signal, so that what hits dibs and its command does not hit
 *         the guard. It runs in a copy of a process with threads, and so
 *         calls only what is safe there.
 */
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fds.h"
#include "times.h"

/* Smaller than PIPE_BUF: it comes whole. */
struct message {
    int64_t kill_at;
    int64_t target; /* as for kill(2): negative is a group; 0 nobody */
};

/* Keeps only fd, as descriptor 0. */
static void keep_only(int fd)
{
    if (fd != 0)
        dup2(fd, 0);
    fds_close_from(1, false);
}

/* Until dibs has ended; whether we killed before that. */
static bool guard_watch(int timer)
{
    bool acted = false;
    struct message m = {.kill_at = TIME_NEVER};
    struct pollfd p[2] = {{.fd = 0, .events = POLLIN},
                          {.fd = timer, .events = POLLIN}};

    for (;;) {
        time_arm(timer, m.kill_at);
        if (poll(p, 2, TIME_POLL(timer)) < 0)
            continue;
        if (p[0].revents) {
            struct message next;
            ssize_t n = read(0, &next, sizeof next);

            if (n == (ssize_t)sizeof next)
                m = next;
            else if (n == 0)
                break;
        } else if (m.target != 0 && time_now() >= m.kill_at) {
            kill((pid_t)m.target, SIGKILL);
            m.kill_at = TIME_NEVER;
            acted = true;
        }
    }
    /* A single process is ended by PDEATHSIG; its number may be another's by
     * now. A group's number stays taken while anybody is left in it. */
    if (m.target < 0)
        kill((pid_t)m.target, SIGKILL);
    return acted;
}

static _Noreturn void guard_main(int fd)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "dibs-guard");
    keep_only(fd);
    _exit(guard_watch(time_fd()) ? 1 : 0);
}

bool guard_start(struct guard *g)
{
    int ends[2];

    *g = (struct guard){.fd = -1};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid_t pid = fork();
    if (pid == 0)
        guard_main(ends[0]);
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return false;
    }
    *g = (struct guard){.pid = pid, .fd = ends[1]};
    return true;
}

void guard_set(struct guard *g, pid_t pid, bool group, int64_t kill_at)
{
    struct message m = {.kill_at = kill_at, .target = group ? -pid : pid};

    /* Should the guard be gone, there is nothing to do about it: SIGPIPE is
     * blocked, and dibs itself still watches. */
    if (g->fd >= 0 && write(g->fd, &m, sizeof m) != (ssize_t)sizeof m) {
        close(g->fd);
        g->fd = -1;
    }
}

bool guard_stop(struct guard *g)
{
    int status = 0;

    if (g->pid == 0)
        return false;
    guard_set(g, 0, false, TIME_NEVER);
    if (g->fd >= 0)
        close(g->fd);
    /* Somebody may have stopped it, and we would wait with the lock in hand.
     * It is told only while it is our child, and its number is no other's. */
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
