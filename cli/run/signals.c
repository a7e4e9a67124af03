/* SPDX-License-Identifier: MIT
 *
 * signals.c - signals, read from a descriptor.
 *
 * A process that holds a lock for a command must not die of a signal. It has to
 * pass the signal on, wait for the command, and release the lock. So every
 * signal that we handle is blocked, and read from a descriptor in the same
 * poll(2) as everything else.
 *
 * What    Forwarded: what people and programs send each other, with real-time
 *         signals. For ourselves: CHLD, CONT and TSTP. Only blocked: PIPE, so
 *         that a log reader that went away cannot kill us, and TTIN and TTOU,
 *         so that using the terminal from the background cannot stop us. Not
 *         blocked: signals of a bug (SEGV and so on), and those that cannot be
 *         caught.
 *
 * Ignored A signal that was ignored when we were started stays so, here and in
 *         the guarded command: nohup(1) and "&" in scripts work as usual.
 *         SIGCHLD is the exception; ignored, it would hide how the command
 *         ended. The keeper (holder_daemon.c) is the other one: it outlives the
 *         command that started it, and must be possible to end.
 *
 * Thread The first one. Other threads inherit the mask and get no signals.
 */
#include "run/signals.h"

#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const struct {
    int sig;
    bool forward, fatal;
} rows[] = {
    {SIGHUP, true, true},    {SIGINT, true, true},    {SIGQUIT, true, true},
    {SIGTERM, true, true},   {SIGUSR1, true, true},   {SIGUSR2, true, true},
    {SIGALRM, true, true},   {SIGVTALRM, true, true}, {SIGPROF, true, true},
    {SIGIO, true, true},     {SIGPWR, true, true},    {SIGSTKFLT, true, true},
    {SIGXCPU, true, true},   {SIGWINCH, true, false}, {SIGURG, true, false},
    {SIGCHLD, false, false}, {SIGCONT, false, false}, {SIGTSTP, false, false},
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

bool signals_fatal(int sig)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].sig == sig)
            return rows[i].fatal;
    return sig >= SIGRTMIN;
}

bool signals_forward(int sig)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].sig == sig)
            return rows[i].forward;
    return sig >= SIGRTMIN;
}

static bool is_ignored(int sig)
{
    struct sigaction now;

    return sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

bool signals_open(struct signals *s)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t read, block;

    s->fd = -1;
    sigemptyset(&s->skip);
    s->chld_ignored = is_ignored(SIGCHLD);
    if (s->chld_ignored)
        sigaction(SIGCHLD, &usual, NULL);
    sigemptyset(&read);
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!is_ignored(rows[i].sig))
            sigaddset(&read, rows[i].sig);
    for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
        if (!is_ignored(sig))
            sigaddset(&read, sig);
    block = read;
    sigaddset(&block, SIGPIPE);
    sigaddset(&block, SIGTTIN);
    sigaddset(&block, SIGTTOU);
    if (sigprocmask(SIG_BLOCK, &block, &s->old) != 0)
        return false;
    s->fd = signalfd(-1, &read, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->fd >= 0;
}

static void heed_ignored(struct signals *s, int sig)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};

    if (is_ignored(sig) && sigaction(sig, &usual, NULL) == 0)
        sigaddset(&s->skip, sig);
}

bool signals_open_all(struct signals *s)
{
    struct signals before = {.fd = -1};
    sigset_t none;

    sigemptyset(&none);
    sigemptyset(&before.skip);
    for (size_t i = 0; i < COUNT(rows); i++)
        heed_ignored(&before, rows[i].sig);
    for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
        heed_ignored(&before, sig);
    sigprocmask(SIG_SETMASK, &none, NULL);
    bool opened = signals_open(s);
    s->skip = before.skip;
    sigdelset(&s->skip, SIGCHLD); /* it tells of our own children */
    return opened;
}

void signals_heed(struct signals *s)
{
    sigemptyset(&s->skip);
}

void signals_close(struct signals *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

bool signals_next(const struct signals *s, struct signal_got *out)
{
    struct signalfd_siginfo info;

    do
        if (read(s->fd, &info, sizeof info) != (ssize_t)sizeof info)
            return false;
    while (sigismember(&s->skip, (int)info.ssi_signo) == 1);
    out->sig = (int)info.ssi_signo;
    out->terminal = info.ssi_code == SI_KERNEL;
    return true;
}

bool signals_stop(int sig, bool group)
{
    sigset_t one, before, waiting;

    kill(group ? 0 : getpid(), sig);
    sigemptyset(&one);
    sigaddset(&one, sig);
    sigprocmask(SIG_UNBLOCK, &one, &before); /* here we stop */
    sigprocmask(SIG_SETMASK, &before, NULL);
    return sigpending(&waiting) == 0 && sigismember(&waiting, SIGCONT) == 1;
}

void signals_restore(const struct signals *s)
{
    if (s->chld_ignored) {
        struct sigaction off = {.sa_handler = SIG_IGN};
        sigaction(SIGCHLD, &off, NULL);
    }
    sigprocmask(SIG_SETMASK, &s->old, NULL);
}
