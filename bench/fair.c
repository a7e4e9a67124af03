/* SPDX-License-Identifier: MIT
 *
 * fair.c - the fair lock: what handing it on costs, and what waiting for it
 * costs.
 *
 * Server time comes from the server's own count of microseconds spent in
 * scripts. It must not grow with the queue: a hand-over concerns the holder,
 * the next, and the one behind that. Rounds are short, so that few of those
 * who wait happen to show themselves just then, and the median leaves these
 * rounds out.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE_MS  30000
#define LINE_MS   60000 /* the longest time for all to line up */
#define ROUNDS    41
#define HANDOVERS 5 /* in a round */

/* ---- what the server counts -------------------------------------------- */

struct spent {
    double calls; /* of scripts */
    double usec;  /* in them */
};

/* The number behind a text in a section of INFO; 0 if it is not there. */
static double info_number(redisContext *rc, const char *section,
                          const char *text)
{
    redisReply *r = redisCommand(rc, "INFO %s", section);

    if (!r || r->type != REDIS_REPLY_STRING)
        die("INFO: %s", r && r->str ? r->str : rc->errstr);
    const char *at = strstr(r->str, text);
    double n = at ? strtod(at + strlen(text), NULL) : 0;
    freeReplyObject(r);
    return n;
}

static struct spent server_spent(redisContext *rc)
{
    redisReply *r = redisCommand(rc, "INFO commandstats");
    struct spent s = {0};

    if (!r || r->type != REDIS_REPLY_STRING)
        die("INFO: %s", r && r->str ? r->str : rc->errstr);
    const char *at = strstr(r->str, "cmdstat_evalsha:calls=");
    if (!at || sscanf(at, "cmdstat_evalsha:calls=%lf,usec=%lf", &s.calls,
                      &s.usec) != 2)
        die("INFO commandstats: no scripts");
    freeReplyObject(r);
    return s;
}

/* Until so many channels, at least or at most, have somebody who listens. */
static void wait_listening(redisContext *rc, enum relation rel, int n)
{
    int64_t limit = now_ns() + (int64_t)LINE_MS * 1000000;

    for (;;) {
        double now = info_number(rc, "stats", "pubsub_channels:");
        if (rel == AT_LEAST ? now >= n : now <= n)
            return;
        if (now_ns() > limit)
            die("%.0f listen, not %d", now, n);
        sleep_ms(2);
    }
}

/* ---- hand-overs -------------------------------------------------------- */

struct queue {
    dibs_client *c;
    dibs_lock *l;
    sem_t turn;
    _Atomic(dibs_owner) holder;
    atomic_int ended; /* callbacks without the lock */
};

struct ticket {
    struct queue *q;
    dibs_owner owner;
};

static void on_turn(dibs_err err, void *arg)
{
    struct ticket *t = arg;
    struct queue *q = t->q;

    if (err == DIBS_OK) {
        atomic_store(&q->holder, t->owner);
        sem_post(&q->turn);
    } else {
        atomic_fetch_add(&q->ended, 1);
    }
    free(t);
}

static void line_up(struct queue *q, int n)
{
    for (int i = 0; i < n; i++) {
        struct ticket *t = malloc(sizeof *t);
        if (!t)
            die("out of memory");
        t->q = q;
        t->owner = dibs_owner_new(q->c);
        must(dibs_lock_acquire_async(q->l, DIBS_LOCK_OPTS(.owner = t->owner),
                                     on_turn, t),
             "acquire_async");
    }
}

static void hand_over(struct queue *q)
{
    dibs_owner holder = atomic_load(&q->holder);

    must(dibs_lock_release(q->l, DIBS_LOCK_OPTS(.owner = holder)), "release");
    while (sem_wait(&q->turn) != 0)
        ;
}

static void queue_open(struct queue *q, const char *url, int number)
{
    char name[96];

    must(dibs_client_open(url, NULL, &q->c), "open");
    must(dibs_fair_lock_new(q->c, bench_name(name, sizeof name, "fair", number),
                            &q->l),
         "new lock");
    sem_init(&q->turn, 0, 0);
    atomic_store(&q->ended, 0);
    line_up(q, 1);
    while (sem_wait(&q->turn) != 0)
        ;
}

static void queue_close(struct queue *q)
{
    must(dibs_client_close(q->c, CLOSE_MS), "close");
    dibs_lock_free(q->l);
    dibs_client_free(q->c);
    sem_destroy(&q->turn);
}

/* One round: what a hand-over takes. Then the queue is as long as before. */
static struct spent round_of(redisContext *rc, struct queue *q, int listening)
{
    struct spent before = server_spent(rc);

    for (int k = 0; k < HANDOVERS; k++)
        hand_over(q);
    struct spent after = server_spent(rc);
    line_up(q, HANDOVERS);
    wait_listening(rc, AT_LEAST, listening);
    sleep_ms(2); /* they ask once more after they have begun to listen */
    return (struct spent){.calls = (after.calls - before.calls) / HANDOVERS,
                          .usec = (after.usec - before.usec) / HANDOVERS};
}

static const int sizes[] = {10, 100, 1000, 10000};

/* The queues take turns, so that all see the same moods of the machine. */
static void measure_queues(const struct plan *p, struct spent s[])
{
    static struct queue q[COUNT(sizes)];
    static double usec[COUNT(sizes)][ROUNDS], calls[COUNT(sizes)][ROUNDS];
    redisContext *rc = server_connect(p->url);
    int listening = 0;

    for (size_t i = 0; i < COUNT(sizes); i++) {
        queue_open(&q[i], p->url, sizes[i]);
        line_up(&q[i], sizes[i]);
        listening += sizes[i];
        wait_listening(rc, AT_LEAST, listening);
    }
    settle();
    for (int r = 0; r < ROUNDS; r++) {
        for (size_t i = 0; i < COUNT(sizes); i++) {
            struct spent one = round_of(rc, &q[i], listening);
            usec[i][r] = one.usec;
            calls[i][r] = one.calls;
        }
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        s[i].usec = median(usec[i], ROUNDS);
        s[i].calls = median(calls[i], ROUNDS);
        queue_close(&q[i]);
    }
    wait_listening(rc, AT_MOST, 0);
    redisFree(rc);
}

void measure_fair(const struct plan *p)
{
    struct spent s[COUNT(sizes)];
    double commands = 0;

    title("fair lock: a hand-over, by the length of the queue");
    measure_queues(p, s);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char label[64];
        snprintf(label, sizeof label, "server time, %d waiting", sizes[i]);
        line(label, s[i].usec, 1, "us per hand-over");
        commands = s[i].calls > commands ? s[i].calls : commands;
    }
    line("Redis commands, at most", commands, 2, "per hand-over");
    line("server time, 10,000 to 10 waiting", s[3].usec / s[0].usec, 2,
         "times");
    target("fair hand-over, 10,000 to 10 waiting", AT_MOST, 1.3,
           s[3].usec / s[0].usec);
    target("fair hand-over, Redis commands", AT_MOST, 2, commands);
}

/* ---- waiters ----------------------------------------------------------- */

/* Until those who have begun to listen have asked once more: what is left is
 * that some ask from time to time. Their commands would count as memory. */
static void wait_calm(redisContext *rc, int waiters)
{
    for (int i = 0; i < LINE_MS / 300; i++) {
        long long before = server_tally(rc).commands;
        sleep_ms(300);
        if (server_tally(rc).commands - before < waiters / 100)
            return;
    }
    die("%d waiters do not come to rest", waiters);
}

static void on_end(dibs_err err, void *arg)
{
    (void)err;
    atomic_fetch_add((atomic_int *)arg, 1);
}

void measure_fair_waiters(const struct plan *p)
{
    redisContext *rc = server_connect(p->url);
    struct queue q;

    title("fair lock: %d async waiters", p->waiters);
    queue_open(&q, p->url, 0);
    int threads = count_entries("/proc/self/task", NULL);
    int sockets = count_entries("/proc/self/fd", "socket:");
    heap_start();
    for (int i = 0; i < p->waiters; i++)
        must(dibs_lock_acquire_async(
                 q.l, DIBS_LOCK_OPTS(.owner = dibs_owner_new(q.c)), on_end,
                 &q.ended),
             "acquire_async");
    wait_listening(rc, AT_LEAST, p->waiters);
    wait_calm(rc, p->waiters);
    settle();
    heap_stop();
    double each = heap_bytes() / p->waiters;
    threads = count_entries("/proc/self/task", NULL) - threads;
    sockets = count_entries("/proc/self/fd", "socket:") - sockets;

    int64_t began = now_ns();
    queue_close(&q);
    double close_ms = (double)(now_ns() - began) / 1e6;
    if (atomic_load(&q.ended) != p->waiters)
        die("%d waiters, but %d callbacks", p->waiters, atomic_load(&q.ended));
    line("heap", each, 0, "bytes per waiter");
    line("threads", threads, 0, "more, for all of them");
    line("sockets", sockets, 0, "more, for all of them");
    line("close, which takes them out of the queue", close_ms, 0, "ms");
    target("fair waiter, bytes of heap", AT_MOST, 1023, each);
    target("fair waiters, threads for all", AT_MOST, 0, threads);
    target("fair waiters, sockets for all", AT_MOST, 2, sockets);
    redisFree(rc);
}
