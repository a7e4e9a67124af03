/* SPDX-License-Identifier: MIT
 *
 * contend.c - one lock that everybody wants.
 *
 * Inside one process the lock should go from thread to thread by one command
 * each. Between processes somebody has to be told that it is free and has to
 * ask again, so it costs more; how much more is the number here, and how
 * evenly the processes get their turns.
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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS      8
#define PROCESSES    4
#define THREADS_EACH 2
#define LAPS         4 /* as long as so many laps of the plan */

/* ---- threads ----------------------------------------------------------- */

void measure_handover(const struct plan *p)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    redisContext *rc = server_connect(p->url);
    void *same[THREADS];
    char name[96];

    title("hand-over: %d threads of one client, one lock", THREADS);
    must(dibs_client_open(p->url, NULL, &c), "open");
    must(dibs_lock_new(c, bench_name(name, sizeof name, "hand", 0), &l),
         "new lock");
    for (int i = 0; i < THREADS; i++)
        same[i] = l;

    race(THREADS, dibs_pair, same, p->lap_ms / 4); /* warm-up */
    struct tally before = server_tally(rc);
    struct lap lap = race(THREADS, dibs_pair, same, p->lap_ms * LAPS);
    struct tally after = server_tally(rc);
    double each = (double)(after.commands - before.commands) / lap.steps;

    line("acquires", lap.rate, 0, "per second");
    line("Redis commands", each, 3, "per acquire");
    target("hand-over, commands per acquire", AT_MOST, 1.1, each);
    dibs_lock_free(l);
    dibs_client_free(c);
    redisFree(rc);
}

/* ---- processes --------------------------------------------------------- */

/* A process at work, and the socket over which it and we keep in step: it
 * says that it is ready, we say go, it says how far it came, we say end. */
struct worker {
    pid_t pid;
    int fd;
};

static void say(int fd, double value)
{
    if (write(fd, &value, sizeof value) != (ssize_t)sizeof value)
        die("a process of the benchmark is gone");
}

static double hear(int fd)
{
    double value = NAN;

    if (read(fd, &value, sizeof value) != (ssize_t)sizeof value)
        die("a process of the benchmark is gone");
    return value;
}

static void work(int fd, const char *url, const char *name, int64_t ms)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    void *same[THREADS_EACH];

    must(dibs_client_open(url, NULL, &c), "open");
    must(dibs_lock_new(c, name, &l), "new lock");
    for (int i = 0; i < THREADS_EACH; i++)
        same[i] = l;
    say(fd, 0);
    hear(fd);
    say(fd, race(THREADS_EACH, dibs_pair, same, ms).steps);
    hear(fd);
    dibs_lock_free(l);
    dibs_client_free(c);
}

static struct worker start_worker(const char *url, const char *name, int64_t ms)
{
    struct worker w;
    pid_t parent = getpid();
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        die("socketpair: %s", strerror(errno));
    w.pid = fork();
    if (w.pid < 0)
        die("fork: %s", strerror(errno));
    if (w.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close(fds[0]);
        work(fds[1], url, name, ms);
        _exit(0);
    }
    close(fds[1]);
    w.fd = fds[0];
    return w;
}

static void end_worker(struct worker *w)
{
    int status = 0;

    say(w->fd, 0);
    if (waitpid(w->pid, &status, 0) != w->pid || status != 0)
        die("a process of the benchmark failed");
    close(w->fd);
}

void measure_processes(const struct plan *p)
{
    struct worker workers[PROCESSES];
    double steps[PROCESSES];
    double sum = 0;
    redisContext *rc = server_connect(p->url);
    int64_t ms = p->lap_ms * LAPS;
    char name[96];

    title("contention: %d processes with %d threads each, one lock", PROCESSES,
          THREADS_EACH);
    bench_name(name, sizeof name, "contend", 0);
    for (int i = 0; i < PROCESSES; i++)
        workers[i] = start_worker(p->url, name, ms);
    for (int i = 0; i < PROCESSES; i++)
        hear(workers[i].fd);

    struct tally before = server_tally(rc);
    int64_t began = now_ns();
    for (int i = 0; i < PROCESSES; i++)
        say(workers[i].fd, 0);
    for (int i = 0; i < PROCESSES; i++)
        sum += steps[i] = hear(workers[i].fd);
    double seconds = (double)(now_ns() - began) / 1e9;
    struct tally after = server_tally(rc);
    for (int i = 0; i < PROCESSES; i++)
        end_worker(&workers[i]);
    redisFree(rc);

    line("acquires", sum / seconds, 0, "per second");
    line("Redis commands", (double)(after.commands - before.commands) / sum, 3,
         "per acquire");
    line("share of the luckiest process",
         100 * greatest(steps, PROCESSES) / sum, 0, "%");
    line("share of the unluckiest process", 100 * least(steps, PROCESSES) / sum,
         0, "%");
}
