/* SPDX-License-Identifier: MIT
 *
 * trace.c - counts system calls.
 *
 * Three processes: the benchmark; a tracer, which it waits for; and a worker,
 * which the tracer follows with ptrace(2) through each system call of each
 * thread. The worker marks the part that counts by two calls that nobody else
 * makes. So the number is exact, for all threads of the worker, and nothing
 * has to be installed for it. Everything is slow meanwhile; nothing is timed.
 *
 * Where tracing is not allowed there is no number, and that is all.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_S 20         /* for the whole trace */
#define MARK    0x64696273 /* no option of prctl: it fails and does nothing */

/* A stop at a system call, as PTRACE_O_TRACESYSGOOD has it. */
#define SYSCALL_STOP (SIGTRAP | 0x80)

void trace_mark(void)
{
    prctl(MARK, 0, 0, 0, 0);
}

/* What the tracer knows. */
struct trace {
    bool counting;
    bool marked_twice;
    long long calls;
};

/* The thread tid stopped at the entry to a system call, or behind it. */
static bool note(struct trace *t, pid_t tid)
{
    struct __ptrace_syscall_info info = {0};

    if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof info, &info) <= 0)
        return false;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return true;
    if (info.entry.nr == SYS_prctl && info.entry.args[0] == MARK) {
        t->marked_twice = t->counting;
        t->counting = !t->counting;
    } else if (t->counting) {
        t->calls++;
    }
    return true;
}

/* Which signal the stop is to be passed on with: none for stops that are
 * tracing's own doing. */
static uintptr_t signal_of(int status)
{
    int sig = WSTOPSIG(status);
    bool ours = sig == SYSCALL_STOP || status >> 16 != 0 || sig == SIGSTOP;

    return ours ? 0 : (uintptr_t)sig;
}

/* Follows the worker and its threads to the end. */
static bool follow(struct trace *t, pid_t worker)
{
    uintptr_t options =
        PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
    int status = 0;

    if (waitpid(worker, &status, 0) != worker || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, worker, NULL, (void *)options) != 0 ||
        ptrace(PTRACE_SYSCALL, worker, NULL, NULL) != 0)
        return false;
    for (;;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0)
            return false;
        if (tid == worker && WIFEXITED(status))
            return WEXITSTATUS(status) == 0 && t->marked_twice;
        if (tid == worker && WIFSIGNALED(status))
            return false;
        if (!WIFSTOPPED(status))
            continue;
        if (WSTOPSIG(status) == SYSCALL_STOP && !note(t, tid))
            return false;
        /* A thread that was killed meanwhile is no error. */
        ptrace(PTRACE_SYSCALL, tid, NULL, (void *)signal_of(status));
    }
}

/* The tracer: its answer goes into the pipe, or nothing does. */
static void tracer(int out, void (*work)(void *arg), void *arg)
{
    struct trace t = {0};
    double calls;

    signal(SIGALRM, SIG_DFL);
    alarm(LIMIT_S); /* the worker dies with us */
    pid_t worker = fork();
    if (worker == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(1);
        raise(SIGSTOP);
        work(arg);
        _exit(0);
    }
    if (worker < 0 || !follow(&t, worker))
        _exit(1);
    calls = (double)t.calls;
    _exit(write(out, &calls, sizeof calls) == sizeof calls ? 0 : 1);
}

double trace_count(void (*work)(void *arg), void *arg)
{
    double calls = NAN;
    int fds[2];

    if (pipe(fds) != 0)
        die("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        close(fds[0]);
        tracer(fds[1], work, arg);
    }
    close(fds[1]);
    if (read(fds[0], &calls, sizeof calls) != sizeof calls)
        calls = NAN;
    close(fds[0]);
    waitpid(pid, NULL, 0);
    return calls;
}
