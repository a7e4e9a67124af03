/* SPDX-License-Identifier: MIT
 *
 * async.c - acquire and release with callbacks, and the server's limit.
 *
 * Tasks are chains: acquire, release, acquire ..., each next one begun inside
 * the callback of the last. Each has an owner and a lock of its own; all share
 * one client. Next to them, the floor has a thread and a connection for each
 * task, up to 64. The limit is one connection with many pairs of the same
 * scripts in each write, and two writes on their way at any time: nobody who
 * sends those scripts to this server can be faster. All take turns.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include "client/command/script.h"

#include <math.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TASKS_MAX    256
#define FLOOR_MAX    64
#define ROUNDS_MAX   15
#define LIMIT_PAIRS  64
#define NUMBER       "1000" /* of each call; dibs has another one each time */
#define TRACED_PAIRS 500

struct task {
    struct chains *all;
    dibs_lock *l;
    dibs_lock_opts opts;
    long long count;
};

struct chains {
    int n;
    dibs_client *c;
    long long most; /* pairs of each; 0 = until stop */
    atomic_bool stop;
    sem_t ended;
    struct task task[TASKS_MAX];
};

static void task_released(dibs_err err, void *arg);

static void task_acquired(dibs_err err, void *arg)
{
    struct task *t = arg;

    must(err, "acquire");
    must(dibs_lock_release_async(t->l, &t->opts, task_released, t), "release");
}

static void task_go(struct task *t)
{
    must(dibs_lock_acquire_async(t->l, &t->opts, task_acquired, t), "acquire");
}

static void task_released(dibs_err err, void *arg)
{
    struct task *t = arg;
    struct chains *all = t->all;

    must(err, "release");
    t->count++;
    if (all->most ? t->count == all->most : atomic_load(&all->stop))
        sem_post(&all->ended);
    else
        task_go(t);
}

static void open_chains(struct chains *s, const char *url, int n)
{
    *s = (struct chains){.n = n};
    sem_init(&s->ended, 0, 0);
    must(dibs_client_open(url, NULL, &s->c), "open");
    for (int i = 0; i < n; i++) {
        struct task *t = &s->task[i];
        char name[96];
        t->all = s;
        t->opts = (dibs_lock_opts){.size = sizeof t->opts,
                                   .owner = dibs_owner_new(s->c)};
        must(dibs_lock_new(s->c, bench_name(name, sizeof name, "task", i),
                           &t->l),
             "new lock");
    }
}

static void close_chains(struct chains *s)
{
    for (int i = 0; i < s->n; i++)
        dibs_lock_free(s->task[i].l);
    dibs_client_free(s->c);
    sem_destroy(&s->ended);
}

/* Pairs a second; ms 0: s->most of each task. */
static double run_chains(struct chains *s, int64_t ms)
{
    long long count = 0;
    int64_t start = now_ns();

    atomic_store(&s->stop, false);
    for (int i = 0; i < s->n; i++)
        s->task[i].count = 0;
    for (int i = 0; i < s->n; i++)
        task_go(&s->task[i]);
    if (ms > 0)
        sleep_ms(ms);
    atomic_store(&s->stop, true);
    for (int i = 0; i < s->n; i++)
        while (sem_wait(&s->ended) != 0)
            ;
    for (int i = 0; i < s->n; i++)
        count += s->task[i].count;
    return (double)count * 1e9 / (double)(now_ns() - start);
}

/* ---- the server's limit ------------------------------------------------ */

struct limit {
    redisContext *rc;
    char *bytes;
    size_t len;
};

static void limit_add(struct limit *l, int argc, const char **argv)
{
    char *command = NULL;
    long long n = redisFormatCommandArgv(&command, argc, argv, NULL);

    l->bytes = n > 0 ? realloc(l->bytes, l->len + (size_t)n) : NULL;
    if (!l->bytes)
        die("out of memory");
    for (long long i = 0; i < n; i++)
        l->bytes[l->len++] = command[i];
    redisFreeCommand(command);
}

static void limit_open(struct limit *l, const char *url)
{
    *l = (struct limit){.rc = server_connect(url)};
    for (int i = 0; i < LIMIT_PAIRS; i++) {
        char name[96], channel[160];
        const char *owner = "00000000-0000-4000-8000-000000000000:1";
        bench_name(name, sizeof name, "limit", i);
        snprintf(channel, sizeof channel, "redisson_lock__channel:{%s}", name);
        const char *acquire[] = {"EVALSHA", dibs__script_mutex_acquire.sha,
                                 "1",       name,
                                 owner,     "1",
                                 "30000",   NUMBER};
        const char *release[] = {"EVALSHA", dibs__script_mutex_release.sha,
                                 "1",       name,
                                 owner,     "0",
                                 "0",       channel,
                                 NUMBER};
        limit_add(l, COUNT(acquire), acquire);
        limit_add(l, COUNT(release), release);
    }
}

static void limit_close(struct limit *l)
{
    redisFree(l->rc);
    free(l->bytes);
}

static void limit_read(struct limit *l)
{
    for (int i = 0; i < 2 * LIMIT_PAIRS; i++) {
        redisReply *r = NULL;
        if (redisGetReply(l->rc, (void **)&r) != REDIS_OK || !r ||
            r->type != REDIS_REPLY_STRING ||
            strcmp(r->str, i % 2 ? NUMBER " 1" : NUMBER) != 0)
            die("limit: a pair did not work");
        freeReplyObject(r);
    }
}

static double run_limit(struct limit *l, int64_t ms)
{
    int64_t start = now_ns();
    double count = 2 * LIMIT_PAIRS;

    redisAppendFormattedCommand(l->rc, l->bytes, l->len);
    redisAppendFormattedCommand(l->rc, l->bytes, l->len);
    while (now_ns() - start < ms * 1000000) {
        limit_read(l);
        redisAppendFormattedCommand(l->rc, l->bytes, l->len);
        count += LIMIT_PAIRS;
    }
    limit_read(l);
    limit_read(l);
    return count * 1e9 / (double)(now_ns() - start);
}

/* ---- side by side ------------------------------------------------------ */

/* What the median of the rounds is, each as a part of the same round's. */
struct ratios {
    double floor, limit; /* NAN: not measured */
};

static struct ratios measure_tasks(const struct plan *p, int n)
{
    static struct chains s;
    void *floor[FLOOR_MAX];
    double rate[ROUNDS_MAX], of_floor[ROUNDS_MAX], of_limit[ROUNDS_MAX];
    size_t rounds = (size_t)p->rounds;
    struct limit limit;
    char label[64];

    open_chains(&s, p->url, n);
    limit_open(&limit, p->url);
    for (int i = 0; i < n && n <= FLOOR_MAX; i++)
        floor[i] = floor_open(
            p->url, bench_name(label, sizeof label, "floor", i), i + 1);
    run_chains(&s, p->lap_ms / 4); /* warm-up */
    for (size_t i = 0; i < rounds; i++) {
        rate[i] = run_chains(&s, p->lap_ms);
        of_floor[i] =
            n > FLOOR_MAX
                ? NAN
                : rate[i] / race(n, floor_pair, floor, p->lap_ms).rate;
        of_limit[i] = rate[i] / run_limit(&limit, p->lap_ms);
    }
    for (int i = 0; i < n && n <= FLOOR_MAX; i++)
        floor_close(floor[i]);
    limit_close(&limit);
    close_chains(&s);

    struct ratios r = {median(of_floor, rounds), median(of_limit, rounds)};
    snprintf(label, sizeof label, "%3d task%s  dibs", n, n > 1 ? "s" : " ");
    line(label, median(rate, rounds), 0, "pairs/s");
    if (n <= FLOOR_MAX)
        line("            dibs / floor, median", r.floor, 2, "x");
    line("            of the server's limit, median", r.limit, 2, "x");
    return r;
}

/* Runs traced, in a process of its own. */
static void traced(void *url)
{
    static struct chains s;

    open_chains(&s, url, 1);
    s.most = TRACED_PAIRS;
    run_chains(&s, 0); /* warm-up */
    trace_mark();
    run_chains(&s, 0);
    trace_mark();
    close_chains(&s);
}

void measure_async(const struct plan *p)
{
    static const struct {
        int n;
        double goal; /* of the floor; of the limit, if it has no floor */
        const char *what;
    } rows[] = {
        {1, 0.9, "1 task, of the floor"},
        {4, 0.9, "4 tasks, of the floor"},
        {16, 2.2, "16 tasks, of the floor"},
        {FLOOR_MAX, 4.0, "64 tasks, of the floor"},
        {TASKS_MAX, 0.85, "256 tasks, of the server's limit"},
    };
    char url[4096];

    title("async acquire + release, %d rounds of %d ms", p->rounds,
          (int)p->lap_ms);
    if (p->rounds > ROUNDS_MAX)
        die("at most %d rounds", ROUNDS_MAX);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct ratios r = measure_tasks(p, rows[i].n);
        target(rows[i].what, AT_LEAST, rows[i].goal,
               rows[i].n > FLOOR_MAX ? r.limit : r.floor);
    }
    snprintf(url, sizeof url, "%s", p->url);
    double calls = trace_count(traced, url) / TRACED_PAIRS;
    line("  1 task: system calls, all threads", calls, 2, "per pair");
    target("1 task, system calls per pair", AT_MOST, 8, calls);
}
