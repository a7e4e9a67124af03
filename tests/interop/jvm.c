/* SPDX-License-Identifier: MIT
 *
 * jvm.c - starting Java, and sorting out what it says.
 *
 * A thread reads the answers and puts each where its number says, so that they
 * may come in any order and be awaited by anybody.
 */
#include "interop/jvm.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/util.h"

enum { REQUESTS = 100000, ARGS = 24, LINE = 4096 };

struct jvm {
    pid_t pid;
    FILE *to; /* mutex */
    int from; /* the reader's, once it runs, with what came of it: */
    char heard[LINE];
    size_t heard_len;
    pthread_t reader;
    pthread_mutex_t mutex;
    pthread_cond_t change;
    int sent;                             /* mutex */
    bool gone;                            /* mutex: says nothing any more */
    struct jvm_answer *answers[REQUESTS]; /* mutex */
    char version[32];
    bool fair_wait;
};

/* ---- reading ----------------------------------------------------------- */

/* Cuts a line at its tabs. */
static int fields(char *line, char **out, int most)
{
    int n = 0;

    for (char *rest = line; rest && n < most; n++) {
        out[n] = rest;
        rest = strchr(rest, '\t');
        if (rest)
            *rest++ = '\0';
    }
    return n;
}

static void take_answer(struct jvm *j, char *line)
{
    char *f[5];
    struct jvm_answer *a = ts_alloc(sizeof *a);

    if (fields(line, f, 5) != 5)
        ts_fatal("Java said: %s", line);
    int id = atoi(f[0]);
    if (id < 0 || id >= REQUESTS)
        ts_fatal("Java answers what nobody asked: %d", id);
    a->ok = strcmp(f[1], "ok") == 0;
    a->value = atoll(f[2]);
    a->begin_us = atoll(f[3]) / 1000;
    a->end_us = atoll(f[4]) / 1000;
    snprintf(a->text, sizeof a->text, "%s", f[2]);
    pthread_mutex_lock(&j->mutex);
    j->answers[id] = a;
    pthread_cond_broadcast(&j->change);
    pthread_mutex_unlock(&j->mutex);
}

/* One line without its end; false: there are no more. No FILE: the C library
 * locks those of all threads when it forks or flushes, and this one waits. */
static bool read_line(struct jvm *j, char line[LINE])
{
    char *end;

    while (!(end = memchr(j->heard, '\n', j->heard_len))) {
        if (j->heard_len == LINE)
            ts_fatal("Java says too much at once");
        ssize_t n = read(j->from, j->heard + j->heard_len, LINE - j->heard_len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        j->heard_len += (size_t)n;
    }
    size_t len = (size_t)(end - j->heard);
    memcpy(line, j->heard, len);
    line[len] = '\0';
    j->heard_len -= len + 1;
    memmove(j->heard, end + 1, j->heard_len);
    return true;
}

static void *read_answers(void *arg)
{
    struct jvm *j = arg;
    char line[LINE];

    while (read_line(j, line))
        take_answer(j, line);
    pthread_mutex_lock(&j->mutex);
    j->gone = true;
    pthread_cond_broadcast(&j->change);
    pthread_mutex_unlock(&j->mutex);
    return NULL;
}

/* ---- its life ---------------------------------------------------------- */

_Noreturn static void become_java(pid_t parent, int in, int out, int port,
                                  const char *const *extra)
{
    const char *java = getenv("DIBS_INTEROP_JAVA");
    const char *classes = getenv("DIBS_INTEROP_CLASSPATH");
    char number[32];
    const char *argv[ARGS] = {java ? java : "java",
                              "-Xmx192m",
                              "-XX:+UseSerialGC",
                              "-XX:TieredStopAtLevel=1",
                              "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                              "-cp",
                              classes,
                              "Helper",
                              number};
    int n = 9;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(255);
    snprintf(number, sizeof number, "port=%d", port);
    for (; extra && *extra && n < ARGS - 1; extra++)
        argv[n++] = *extra;
    if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
        _exit(255);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

static void read_greeting(struct jvm *j)
{
    char line[LINE], *f[3];

    if (!read_line(j, line))
        ts_fatal("Java did not start");
    if (fields(line, f, 3) != 3 || strcmp(f[0], "ready") != 0)
        ts_fatal("Java said: %s", line);
    snprintf(j->version, sizeof j->version, "%s", f[1]);
    j->fair_wait = strcmp(f[2], "fair") == 0;
}

struct jvm *jvm_start(int port, const char *const *extra)
{
    struct jvm *j = ts_alloc(sizeof *j);
    pthread_condattr_t attr;
    pid_t parent = getpid();
    int to[2], from[2];

    if (!getenv("DIBS_INTEROP_CLASSPATH"))
        ts_fatal("DIBS_INTEROP_CLASSPATH is not set; `make interop` sets it");
    if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
        ts_fatal("pipe: %s", strerror(errno));
    fflush(NULL);
    j->pid = fork();
    if (j->pid < 0)
        ts_fatal("fork: %s", strerror(errno));
    if (j->pid == 0)
        become_java(parent, to[0], from[1], port, extra);
    close(to[0]);
    close(from[1]);
    j->to = fdopen(to[1], "we");
    j->from = from[0];
    if (!j->to)
        ts_fatal("fdopen: %s", strerror(errno));
    pthread_mutex_init(&j->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&j->change, &attr);
    pthread_condattr_destroy(&attr);
    read_greeting(j);
    if (pthread_create(&j->reader, NULL, read_answers, j) != 0)
        ts_fatal("no thread");
    return j;
}

void jvm_kill(struct jvm *j)
{
    if (j->pid == 0)
        return;
    kill(j->pid, SIGKILL);
    while (waitpid(j->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    j->pid = 0;
}

void jvm_stop(struct jvm *j)
{
    if (!j)
        return;
    if (j->pid != 0) {
        struct ts_wait w = ts_wait_begin(TS_SOON);
        fputs("quit\n", j->to);
        fflush(j->to);
        while (waitpid(j->pid, NULL, WNOHANG) == 0)
            if (!ts_wait_step(&w))
                ts_fatal("Java does not end");
    }
    pthread_join(j->reader, NULL);
    fclose(j->to);
    close(j->from);
    for (int i = 0; i < j->sent; i++)
        free(j->answers[i]);
    pthread_cond_destroy(&j->change);
    pthread_mutex_destroy(&j->mutex);
    free(j);
}

const char *jvm_version(const struct jvm *j)
{
    return j->version;
}

bool jvm_older(const struct jvm *j, int major, int minor)
{
    int has_major = 0, has_minor = 0;

    if (sscanf(j->version, "%d.%d", &has_major, &has_minor) != 2)
        ts_fatal("a strange version: %s", j->version);
    return has_major < major || (has_major == major && has_minor < minor);
}

bool jvm_has_fair_wait(const struct jvm *j)
{
    return j->fair_wait;
}

/* ---- requests ---------------------------------------------------------- */

int jvm_send(struct jvm *j, const char *worker, const char *op,
             const char *kind, const char *name, const char *numbers)
{
    pthread_mutex_lock(&j->mutex);
    int id = j->sent++;
    if (id >= REQUESTS)
        ts_fatal("too many requests");
    fprintf(j->to, "%d\t%s\t%s\t%s\t%s%s\n", id, worker, op, kind, name,
            numbers ? numbers : "");
    if (fflush(j->to) != 0)
        ts_fatal("Java does not listen: %s", strerror(errno));
    pthread_mutex_unlock(&j->mutex);
    return id;
}

bool jvm_done(struct jvm *j, int id)
{
    pthread_mutex_lock(&j->mutex);
    bool done = j->answers[id] != NULL;
    pthread_mutex_unlock(&j->mutex);
    return done;
}

struct jvm_answer jvm_await(struct jvm *j, int id, int64_t timeout_ms)
{
    int64_t until = ts_now_ms() + timeout_ms;
    struct timespec ts = {.tv_sec = until / 1000,
                          .tv_nsec = until % 1000 * 1000000};
    struct jvm_answer a = {.ok = false, .text = "no answer in time"};
    int rc = 0;

    pthread_mutex_lock(&j->mutex);
    while (!j->answers[id] && !j->gone && rc == 0)
        rc = pthread_cond_timedwait(&j->change, &j->mutex, &ts);
    if (j->answers[id])
        a = *j->answers[id];
    pthread_mutex_unlock(&j->mutex);
    return a;
}

struct jvm_answer jvm_ask(struct jvm *j, const char *worker, const char *op,
                          const char *kind, const char *name,
                          const char *numbers)
{
    return jvm_await(j, jvm_send(j, worker, op, kind, name, numbers), TS_SOON);
}
