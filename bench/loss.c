/* SPDX-License-Identifier: MIT
 *
 * loss.c - how long it takes until a holder hears that its lock is gone.
 *
 * Many locks are held, with leases of ten minutes. They are deleted, one after
 * the other, by somebody else. Measured is the time from just before the DEL is
 * sent until on_lost runs, next to PINGs of the same moment.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEASE_MS 600000
#define LOSSES   200
#define WAIT_MS  20000 /* for a message that has to come */

typedef dibs_err maker(dibs_client *c, const char *name, dibs_lock **out);

static dibs_err new_slots(dibs_client *c, const char *name, dibs_lock **out)
{
    return dibs_slots_lock_new(c, name, 1, out);
}

static const struct kind {
    const char *what, *aim;
    maker *make;
    const char *before, *behind; /* its name: the key */
} kinds[] = {
    {"plain", "loss of plain, p99, in PINGs", dibs_lock_new, "", ""},
    {"fair", "loss of fair, p99, in PINGs", dibs_fair_lock_new, "", ""},
    {"read", "loss of read, p99, in PINGs", dibs_read_lock_new, "", ""},
    {"write", "loss of write, p99, in PINGs", dibs_write_lock_new, "", ""},
    {"fenced", "loss of fenced, p99, in PINGs", dibs_fenced_lock_new, "", ""},
    {"slots", "loss of slots, p99, in PINGs", new_slots, "{", "}:timeout"},
};

struct held {
    dibs_lock *l;
    char key[128];
    int64_t lost_ns;
    sem_t lost;
};

static void on_lost(const char *name, dibs_owner owner, void *arg)
{
    struct held *h = arg;

    (void)name;
    (void)owner;
    h->lost_ns = now_ns();
    sem_post(&h->lost);
}

static void take(dibs_client *c, const struct kind *k, int i, struct held *h)
{
    char name[96];

    bench_name(name, sizeof name, k->what, i);
    sem_init(&h->lost, 0, 0);
    must(k->make(c, name, &h->l), "new lock");
    must(dibs_lock_acquire(h->l, DIBS_LOCK_OPTS(.on_lost = on_lost, .arg = h)),
         "acquire");
    snprintf(h->key, sizeof h->key, "%s%s%s", k->before, name, k->behind);
}

static void ask(redisContext *rc, const char *command, const char *key)
{
    redisReply *r = redisCommand(rc, command, key);

    if (!r || r->type == REDIS_REPLY_ERROR)
        die("%s: %s", command, r ? r->str : rc->errstr);
    freeReplyObject(r);
}

/* All of them are older than a second, and known to the server. */
static void wait_tracked(redisContext *rc, long long many)
{
    int64_t until = now_ns() + (int64_t)WAIT_MS * 1000000;
    long long keys = 0;

    while (keys < many) {
        redisReply *r = redisCommand(rc, "INFO stats");
        const char *at =
            r && r->str ? strstr(r->str, "tracking_total_keys:") : NULL;
        keys = at ? atoll(strchr(at, ':') + 1) : 0;
        freeReplyObject(r);
        if (now_ns() > until)
            die("this server tracks %lld keys, not %lld", keys, many);
        sleep_ms(20);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double part_of(double *values, size_t n, double part)
{
    qsort(values, n, sizeof *values, by_size);
    return values[(size_t)((double)(n - 1) * part)];
}

static double lose(redisContext *rc, struct held *h)
{
    struct timespec until;
    int64_t began = now_ns();

    ask(rc, "DEL %s", h->key);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_MS / 1000;
    if (sem_timedwait(&h->lost, &until) != 0)
        die("a loss was not told");
    return (double)(h->lost_ns - began) / 1000;
}

static double ping(redisContext *rc)
{
    int64_t began = now_ns();

    ask(rc, "PING", NULL);
    return (double)(now_ns() - began) / 1000;
}

static void measure_kind(const struct plan *p, const struct kind *k,
                         struct held *held, size_t n)
{
    double losses[LOSSES], pings[LOSSES];
    dibs_client *c = NULL;
    redisContext *rc = server_connect(p->url);
    char what[64];

    must(dibs_client_open(p->url, DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS), &c),
         "open");
    for (size_t i = 0; i < n; i++)
        take(c, k, (int)i, &held[i]);
    wait_tracked(rc, (long long)n);
    for (size_t i = 0; i < n; i++) {
        pings[i] = ping(rc);
        losses[i] = lose(rc, &held[i]);
    }
    double one = part_of(pings, n, 0.5), late = part_of(losses, n, 0.99);
    snprintf(what, sizeof what, "%s, p50", k->what);
    line(what, part_of(losses, n, 0.5), 0, "us");
    snprintf(what, sizeof what, "%s, p99", k->what);
    line(what, late, 0, "us");
    line("  PING, p50", one, 0, "us");
    line("  PING, p99", part_of(pings, n, 0.99), 0, "us");
    target(k->aim, AT_MOST, 20, late / one);
    for (size_t i = 0; i < n; i++) {
        if (dibs_lock_release(held[i].l, NULL) != DIBS_ERR_LOST)
            die("a lock that was deleted is not lost");
        dibs_lock_free(held[i].l);
        sem_destroy(&held[i].lost);
    }
    dibs_client_free(c);
    redisFree(rc);
}

void measure_loss(const struct plan *p)
{
    static struct held held[LOSSES];

    title("loss: from somebody's DEL to on_lost, %d losses a kind", LOSSES);
    for (size_t i = 0; i < COUNT(kinds); i++)
        measure_kind(p, &kinds[i], held, LOSSES);
}
