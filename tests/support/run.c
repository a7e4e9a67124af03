/* SPDX-License-Identifier: MIT
 *
 * run.c - runs the tests of one program in several processes at once.
 *
 * Thread  the main thread of the program, and of each worker process.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/run.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/util.h"

#define WORKERS 6

struct group {
    const char *name;
    const struct CMUnitTest *tests;
    size_t n;
    CMFixtureFunction setup, teardown;
};

/* In memory that all workers share. */
struct progress {
    atomic_size_t next;             /* test that no worker has taken */
    atomic_size_t running[WORKERS]; /* its number + 1; 0: none */
    atomic_int failed;
};

struct worker {
    pid_t pid;
    int capture; /* file with what its test has printed so far */
};

/* A worker prints the whole output of a test at once, so that the output of
 * tests that run at the same time is not mixed. */
static void print_captured(int capture, int to)
{
    off_t size = lseek(capture, 0, SEEK_END);
    char *text = size > 0 ? ts_alloc((size_t)size) : NULL;

    if (text && pread(capture, text, (size_t)size, 0) == size)
        for (off_t at = 0; at < size;) {
            ssize_t n = write(to, text + at, (size_t)(size - at));
            if (n < 0 && errno != EINTR)
                break;
            at += n > 0 ? n : 0;
        }
    free(text);
    if (ftruncate(capture, 0) < 0 || lseek(capture, 0, SEEK_SET) < 0)
        ts_fatal("captured output: %s", strerror(errno));
}

_Noreturn static void worker_main(const struct group *g, struct progress *p,
                                  size_t number, int capture)
{
    int out = dup(STDOUT_FILENO);
    void *state = NULL;

    if (out < 0 || dup2(capture, STDOUT_FILENO) < 0 ||
        dup2(capture, STDERR_FILENO) < 0)
        ts_fatal("dup: %s", strerror(errno));
    if (g->setup && g->setup(&state) != 0)
        ts_fatal("%s: setup failed", g->name);
    for (;;) {
        size_t i = atomic_fetch_add(&p->next, 1);
        if (i >= g->n)
            break;
        atomic_store(&p->running[number], i + 1);
        dprintf(out, "begins: %s\n", g->tests[i].name);
        int64_t from = ts_now_ms();
        int failed = _cmocka_run_group_tests(g->tests[i].name, &g->tests[i], 1,
                                             NULL, NULL);
        atomic_fetch_add(&p->failed, failed);
        atomic_store(&p->running[number], 0);
        fflush(NULL);
        dprintf(STDOUT_FILENO, "ended: %s, %lld ms\n", g->tests[i].name,
                (long long)(ts_now_ms() - from));
        print_captured(capture, out);
    }
    if (g->teardown && g->teardown(&state) != 0)
        ts_fatal("%s: teardown failed", g->name);
    exit(0);
}

static void worker_start(struct worker *w, const struct group *g,
                         struct progress *p, size_t number)
{
    pid_t parent = getpid();

    w->capture = memfd_create("output", MFD_CLOEXEC);
    if (w->capture < 0)
        ts_fatal("memfd_create: %s", strerror(errno));
    w->pid = fork();
    if (w->pid < 0)
        ts_fatal("fork: %s", strerror(errno));
    if (w->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(255);
        worker_main(g, p, number, w->capture);
    }
}

/* Returns 1 if the worker did not end as it should: its test crashed or called
 * exit(3), or a fixture failed. */
static int worker_end(struct worker *w, const struct group *g,
                      struct progress *p, size_t number)
{
    int status = 0;

    while (waitpid(w->pid, &status, 0) < 0)
        if (errno != EINTR)
            ts_fatal("waitpid: %s", strerror(errno));
    print_captured(w->capture, STDOUT_FILENO);
    close(w->capture);
    size_t running = atomic_load(&p->running[number]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !running)
        return 0;
    dprintf(STDOUT_FILENO, "a worker ended with %s %d in %s\n",
            WIFSIGNALED(status) ? "signal" : "exit code",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
            running ? g->tests[running - 1].name : "a fixture");
    return 1;
}

int ts_run_parallel(const char *group, const struct CMUnitTest *tests, size_t n,
                    CMFixtureFunction setup, CMFixtureFunction teardown)
{
    const struct group g = {group, tests, n, setup, teardown};
    struct worker workers[WORKERS];
    size_t count = n < WORKERS ? n : WORKERS;
    struct progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        ts_fatal("mmap: %s", strerror(errno));
    fflush(NULL); /* or each worker would print it again */
    for (size_t i = 0; i < count; i++)
        worker_start(&workers[i], &g, p, i);
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        failed += worker_end(&workers[i], &g, p, i);
    failed += atomic_load(&p->failed);
    size_t taken = atomic_load(&p->next);
    if (taken < n) {
        dprintf(STDOUT_FILENO, "%zu of %zu tests did not run\n", n - taken, n);
        failed++;
    }
    dprintf(STDOUT_FILENO, "%s: %zu tests, %d failed\n", group, n, failed);
    munmap(p, sizeof *p);
    return failed;
}
