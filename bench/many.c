/* SPDX-License-Identifier: MIT
 *
 * many.c - many locks held at once, and many waiters for one.
 *
 * Held locks cost renewals: how many locks one command renews; and memory: how
 * much for each. Waiters cost memory, too, but need neither threads nor
 * sockets.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <dirent.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLOSE_MS 10000

/* ---- renewal ----------------------------------------------------------- */

/* each: the heap that one of them takes. */
static dibs_lock **hold_many(dibs_client *c, int n, double *each)
{
    dibs_lock **locks = calloc((size_t)n, sizeof(dibs_lock *));
    char name[96];

    if (!locks)
        die("out of memory");
    heap_start();
    for (int i = 0; i < n; i++) {
        must(dibs_lock_new(c, bench_name(name, sizeof name, "held", i),
                           &locks[i]),
             "new lock");
        must(dibs_lock_acquire(locks[i], NULL), "acquire");
    }
    heap_stop();
    *each = heap_bytes() / n;
    return locks;
}

/* Waits until every lock was renewed twice or so; gives how many locks a
 * command renewed on average. */
static double watch_renewals(redisContext *rc, const struct plan *p)
{
    int64_t limit = now_ns() + 2 * p->lease_ms * 1000000;
    struct tally before = server_tally(rc);
    struct tally now = before;

    while (now.looks - before.looks < 2LL * p->locks) {
        if (now_ns() > limit)
            die("%lld of %d renewals in two leases", now.looks - before.looks,
                2 * p->locks);
        sleep_ms(10);
        now = server_tally(rc);
    }
    return (double)(now.looks - before.looks) /
           (double)(now.commands - before.commands);
}

void measure_renewal(const struct plan *p)
{
    dibs_client *c = NULL;
    redisContext *rc = server_connect(p->url);

    title("renewal: %d locks held, lease %d ms", p->locks, (int)p->lease_ms);
    const dibs_client_opts *opts = DIBS_CLIENT_OPTS(.lease_ms = p->lease_ms);
    must(dibs_client_open(p->url, opts, &c), "open");
    double each;
    dibs_lock **locks = hold_many(c, p->locks, &each);
    double batch = watch_renewals(rc, p);
    for (int i = 0; i < p->locks; i++)
        if (dibs_lock_state(locks[i], 0) != DIBS_HELD)
            die("lock %d is not held any more", i);

    int64_t began = now_ns();
    must(dibs_client_close(c, CLOSE_MS), "close");
    double close_ms = (double)(now_ns() - began) / 1e6;

    line("locks renewed", batch, 0, "per command");
    line("Redis commands", p->locks / batch, 1, "per round of all locks");
    line("close, which releases them all", close_ms, 0, "ms");
    line("heap", each, 0, "bytes per lock held");
    target("held lock, bytes of heap", AT_MOST, 500, each);
    target("renewal, locks per command", AT_LEAST, 100, batch);
    for (int i = 0; i < p->locks; i++)
        dibs_lock_free(locks[i]);
    free(locks);
    dibs_client_free(c);
    redisFree(rc);
}

/* ---- waiters ----------------------------------------------------------- */

static atomic_int answered; /* callbacks so far */
static atomic_int granted;  /* those with OK */

static void on_answer(dibs_err err, void *arg)
{
    (void)arg;
    if (err == DIBS_OK)
        atomic_fetch_add(&granted, 1);
    atomic_fetch_add(&answered, 1);
}

int count_entries(const char *path, const char *prefix)
{
    struct dirent *entry;
    int n = 0;
    DIR *dir = opendir(path);

    while (dir && (entry = readdir(dir)) != NULL) {
        char to[64] = "";
        if (entry->d_name[0] == '.')
            continue;
        if (prefix &&
            readlinkat(dirfd(dir), entry->d_name, to, sizeof to - 1) < 0)
            continue;
        n += !prefix || strncmp(to, prefix, strlen(prefix)) == 0;
    }
    if (dir)
        closedir(dir);
    return n;
}

void settle(void)
{
    int quiet = 0;

    for (int i = 0; i < 250 && quiet < 10; i++) {
        double bytes = heap_bytes();
        sleep_ms(20);
        quiet = heap_bytes() > bytes || heap_bytes() < bytes ? 0 : quiet + 1;
    }
}

static void add_waiters(dibs_client *c, dibs_lock *l, int n)
{
    for (int i = 0; i < n; i++)
        must(dibs_lock_acquire_async(l,
                                     DIBS_LOCK_OPTS(.owner = dibs_owner_new(c)),
                                     on_answer, NULL),
             "acquire_async");
    settle();
}

void measure_waiters(const struct plan *p)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    char name[96];

    title("async waiters: %d for one lock", p->waiters);
    must(dibs_client_open(p->url, NULL, &c), "open");
    must(dibs_lock_new(c, bench_name(name, sizeof name, "wait", 0), &l),
         "new lock");
    must(dibs_lock_acquire(l, NULL), "acquire");

    int threads = count_entries("/proc/self/task", NULL);
    int sockets = count_entries("/proc/self/fd", "socket:");
    heap_start();
    add_waiters(c, l, p->waiters);
    heap_stop();
    double each = heap_bytes() / p->waiters;
    threads = count_entries("/proc/self/task", NULL) - threads;
    sockets = count_entries("/proc/self/fd", "socket:") - sockets;

    must(dibs_client_close(c, CLOSE_MS), "close");
    dibs_lock_free(l);
    dibs_client_free(c);
    if (atomic_load(&answered) != p->waiters || atomic_load(&granted) != 0)
        die("%d waiters, but %d callbacks, %d of them with the lock",
            p->waiters, atomic_load(&answered), atomic_load(&granted));

    line("heap", each, 0, "bytes per waiter");
    line("threads", threads, 0, "more, for all of them");
    line("sockets", sockets, 0, "more, for all of them");
    target("async waiter, bytes of heap", AT_MOST, 1023, each);
}
