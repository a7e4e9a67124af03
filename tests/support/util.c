/* SPDX-License-Identifier: MIT
 *
 * util.c - what every test needs: time, patience, child processes, counting.
 *
 * Thread  any, except the child functions: one thread per child.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/util.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct ts_child {
    pid_t pid;
    int fd;
    bool paused;
    bool ended;
    int status; /* as waitpid has it, once ended */
};

/* ---- trouble and memory ------------------------------------------------ */

void ts_fatal(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fputs("test harness: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

void *ts_alloc(size_t size)
{
    void *p = calloc(1, size ? size : 1);

    if (!p)
        ts_fatal("out of memory");
    return p;
}

char *ts_strdup(const char *s)
{
    char *copy = ts_alloc(strlen(s) + 1);

    return strcpy(copy, s);
}

char *ts_text(const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;

    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        ts_fatal("out of memory");
    return text;
}

bool ts_long(void)
{
    const char *asked = getenv("DIBS_TEST_LONG");

    return asked && strcmp(asked, "1") == 0;
}

bool ts_walks(long n, int part)
{
    return ts_long() || n <= 10 || n % 3 == part % 3;
}

/* ---- time -------------------------------------------------------------- */

int64_t ts_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define BUILT_SLOW 8
#elif defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define BUILT_SLOW 4
#else
#define BUILT_SLOW 1
#endif

int ts_slow(void)
{
    const char *asked = getenv("DIBS_TEST_SLOWNESS");
    const char *preload = getenv("LD_PRELOAD");
    int slow = BUILT_SLOW;

    if (preload && strstr(preload, "vgpreload") && slow < 20)
        slow = 20;
    if (asked && atoi(asked) > slow)
        slow = atoi(asked);
    return slow;
}

int64_t ts_ms(int64_t ms)
{
    return ms * ts_slow();
}

struct ts_wait ts_wait_begin(int64_t timeout_ms)
{
    return (struct ts_wait){.until = ts_now_ms() + timeout_ms, .step_us = 200};
}

bool ts_wait_step(struct ts_wait *w)
{
    if (ts_now_ms() >= w->until)
        return false;
    struct timespec ts = {.tv_nsec = w->step_us * 1000L};
    nanosleep(&ts, NULL);
    if (w->step_us < 5000)
        w->step_us *= 2;
    return true;
}

bool ts_wait_until(bool (*cond)(void *arg), void *arg, int64_t timeout_ms)
{
    struct ts_wait w = ts_wait_begin(timeout_ms);

    while (!cond(arg))
        if (!ts_wait_step(&w))
            return cond(arg);
    return true;
}

/* ---- child processes --------------------------------------------------- */

_Noreturn static void child_main(pid_t parent, int fd,
                                 int (*fn)(int fd, void *arg), void *arg)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(255); /* it died before we could ask to be told */
    int rc = fn(fd, arg);
    fflush(NULL);
    _exit(rc);
}

struct ts_child *ts_spawn(int (*fn)(int fd, void *arg), void *arg)
{
    struct ts_child *ch = ts_alloc(sizeof *ch);
    pid_t parent = getpid();
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        ts_fatal("socketpair: %s", strerror(errno));
    fflush(NULL); /* or the child would print it again */
    ch->pid = fork();
    if (ch->pid < 0)
        ts_fatal("fork: %s", strerror(errno));
    if (ch->pid == 0) {
        close(ends[0]);
        free(ch); /* should it exit() and leaks be looked for */
        child_main(parent, ends[1], fn, arg);
    }
    close(ends[1]);
    ch->fd = ends[0];
    return ch;
}

int ts_child_fd(const struct ts_child *ch)
{
    return ch->fd;
}

pid_t ts_child_pid(const struct ts_child *ch)
{
    return ch->pid;
}

bool ts_tell(int fd, const void *buf, size_t len)
{
    const char *p = buf;

    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

bool ts_hear(int fd, void *buf, size_t len, int64_t timeout_ms)
{
    const int64_t until = ts_now_ms() + timeout_ms;
    char *p = buf;

    while (len > 0) {
        struct pollfd f = {.fd = fd, .events = POLLIN};
        int64_t left = until - ts_now_ms();
        int ready = poll(&f, 1, left > 0 ? (int)left : 0);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        ssize_t n = recv(fd, p, len, 0);
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

/* One waitpid that nothing interrupts; true when the child has ended. */
static bool child_look(struct ts_child *ch, int flags)
{
    int status = 0;
    pid_t got;

    if (ch->ended)
        return true;
    do
        got = waitpid(ch->pid, &status, flags);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        ts_fatal("waitpid(%d): %s", (int)ch->pid, strerror(errno));
    if (got == ch->pid && (WIFEXITED(status) || WIFSIGNALED(status))) {
        ch->ended = true;
        ch->status = status;
    }
    return ch->ended;
}

void ts_child_pause(struct ts_child *ch)
{
    if (child_look(ch, WNOHANG))
        ts_fatal("a child that has ended cannot be paused");
    kill(ch->pid, SIGSTOP);
    ch->paused = !child_look(ch, WUNTRACED);
}

void ts_child_resume(struct ts_child *ch)
{
    if (!ch->paused)
        return;
    kill(ch->pid, SIGCONT);
    child_look(ch, WCONTINUED);
    ch->paused = false;
}

void ts_child_kill(struct ts_child *ch)
{
    if (child_look(ch, WNOHANG))
        return;
    kill(ch->pid, SIGKILL);
    while (!child_look(ch, 0))
        continue;
}

int ts_child_wait(struct ts_child *ch, int64_t timeout_ms)
{
    struct ts_wait w = ts_wait_begin(timeout_ms);

    while (!child_look(ch, WNOHANG))
        if (!ts_wait_step(&w))
            return -1;
    return WIFEXITED(ch->status) ? WEXITSTATUS(ch->status)
                                 : 128 + WTERMSIG(ch->status);
}

void ts_child_free(struct ts_child *ch)
{
    if (!ch)
        return;
    ts_child_kill(ch);
    close(ch->fd);
    free(ch);
}

/* ---- counting ---------------------------------------------------------- */

static size_t count_entries(const char *path)
{
    DIR *dir = opendir(path);
    size_t n = 0;

    if (!dir)
        ts_fatal("%s: %s", path, strerror(errno));
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (e->d_name[0] != '.')
            n++;
    closedir(dir);
    return n;
}

size_t ts_threads(void)
{
    return count_entries("/proc/self/task");
}

size_t ts_fds(void)
{
    return count_entries("/proc/self/fd") - 1; /* the folder itself is open */
}

bool ts_pid_alive(pid_t pid)
{
    char path[64], text[256] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* a name may hold anything */
    return after && after[1] == ' ' && after[2] != 'Z' && after[2] != 'X';
}
