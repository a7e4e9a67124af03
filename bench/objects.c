/* SPDX-License-Identifier: MIT
 *
 * objects.c - what is more than a plain lock: fenced locks, and slots.
 *
 * Pairs are measured next to those of the plain lock, in rounds that take
 * turns. The server's own time of a pair is told, too, and what the best
 * rounds of both say: they depend less on who else uses the machine. Many
 * permits that are held cost renewals; many waiters for three slots must not
 * cost more commands than few do.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE_MS 30000
#define ROUNDS   45 /* short ones, so that each is next to its neighbors */

/* ---- what the server counts -------------------------------------------- */

struct counted {
    double scripts, usec; /* and the server's time in them */
    double looks; /* ZSCORE calls: a renewal makes one for each permit */
};

static void count_line(const char *info, const char *command, double *calls,
                       double *usec)
{
    char text[64];
    double time = 0;

    snprintf(text, sizeof text, "cmdstat_%s:calls=", command);
    const char *at = strstr(info, text);
    if (!at || sscanf(at + strlen(text), "%lf,usec=%lf", calls, &time) != 2)
        *calls = 0;
    if (usec)
        *usec = time;
}

static struct counted server_counted(redisContext *rc)
{
    redisReply *r = redisCommand(rc, "INFO commandstats");
    struct counted n;

    if (!r || r->type != REDIS_REPLY_STRING)
        die("INFO: %s", r && r->str ? r->str : rc->errstr);
    count_line(r->str, "evalsha", &n.scripts, &n.usec);
    count_line(r->str, "zscore", &n.looks, NULL);
    freeReplyObject(r);
    return n;
}

/* ---- pairs ------------------------------------------------------------- */

enum { PLAIN, FENCED, SLOTS, KINDS };

static const char *const kinds[KINDS] = {"plain", "fenced", "slots"};

struct pairs {
    void *lock[KINDS];
    double rate[KINDS][ROUNDS], ratio[KINDS][ROUNDS];
    double usec[KINDS][ROUNDS]; /* of the server, a pair */
};

static void open_kinds(dibs_client *c, struct pairs *all)
{
    dibs_lock *l[KINDS];
    char name[96];

    must(dibs_lock_new(c, bench_name(name, sizeof name, "plain", 0), &l[PLAIN]),
         "new lock");
    must(dibs_fenced_lock_new(c, bench_name(name, sizeof name, "fenced", 0),
                              &l[FENCED]),
         "new fenced lock");
    must(dibs_slots_lock_new(c, bench_name(name, sizeof name, "slots", 0), 8,
                             &l[SLOTS]),
         "new slots lock");
    for (int k = 0; k < KINDS; k++)
        all->lock[k] = l[k];
}

static void one_lap(const struct plan *p, redisContext *rc, struct pairs *all,
                    int kind, size_t round)
{
    struct counted before = server_counted(rc);
    struct lap lap = race(1, dibs_pair, &all->lock[kind], p->lap_ms / 5);
    struct counted after = server_counted(rc);

    all->rate[kind][round] = lap.rate;
    all->usec[kind][round] = (after.usec - before.usec) / lap.steps;
}

static double best_rate(const double *rates, size_t rounds)
{
    double best = 0;

    for (size_t i = 0; i < rounds; i++)
        best = rates[i] > best ? rates[i] : best;
    return best;
}

static void tell_kind(const struct pairs *all, int kind, size_t rounds)
{
    char label[64];

    snprintf(label, sizeof label, "%s", kinds[kind]);
    line(label, median(all->rate[kind], rounds), 0, "pairs/s");
    snprintf(label, sizeof label, "%s, server time", kinds[kind]);
    line(label, median(all->usec[kind], rounds), 1, "us per pair");
    if (kind == PLAIN)
        return;
    snprintf(label, sizeof label, "%s / plain, median", kinds[kind]);
    line(label, median(all->ratio[kind], rounds), 2, "x");
    snprintf(label, sizeof label, "%s / plain, best rounds", kinds[kind]);
    line(label,
         best_rate(all->rate[kind], rounds) /
             best_rate(all->rate[PLAIN], rounds),
         2, "x");
}

void measure_kinds(const struct plan *p)
{
    redisContext *rc = server_connect(p->url);
    const size_t rounds = ROUNDS;
    struct pairs all = {0};
    dibs_client *c = NULL;

    title("fenced locks and slots next to plain locks, one thread");
    must(dibs_client_open(p->url, NULL, &c), "open");
    open_kinds(c, &all);
    for (int k = 0; k < KINDS; k++)
        race(1, dibs_pair, &all.lock[k], p->lap_ms / 4);
    for (size_t i = 0; i < rounds; i++) {
        for (int k = 0; k < KINDS; k++)
            one_lap(p, rc, &all, k, i);
        for (int k = 0; k < KINDS; k++)
            all.ratio[k][i] = all.rate[k][i] / all.rate[PLAIN][i];
    }
    for (int k = 0; k < KINDS; k++)
        tell_kind(&all, k, rounds);
    target("fenced pair, of a plain pair", AT_LEAST, 0.9,
           median(all.ratio[FENCED], rounds));
    target("slots pair, of a plain pair", AT_LEAST, 0.7,
           median(all.ratio[SLOTS], rounds));
    for (int k = 0; k < KINDS; k++)
        dibs_lock_free(all.lock[k]);
    dibs_client_free(c);
    redisFree(rc);
}

/* ---- renewal ----------------------------------------------------------- */

enum { A_LOCK = 100 }; /* so many permits */

static void hold_permits(dibs_client *c, dibs_lock **locks, int n)
{
    char name[96];

    for (int i = 0; i < n; i++) {
        if (i % A_LOCK == 0)
            must(dibs_slots_lock_new(
                     c, bench_name(name, sizeof name, "permits", i / A_LOCK),
                     A_LOCK, &locks[i / A_LOCK]),
                 "new slots lock");
        must(dibs_lock_try(locks[i / A_LOCK],
                           DIBS_LOCK_OPTS(.owner = dibs_owner_new(c))),
             "try");
    }
}

/* Waits until every permit was renewed twice or so; gives how many commands
 * one round of all of them took. */
static double watch_permits(redisContext *rc, const struct plan *p)
{
    int64_t limit = now_ns() + 2 * p->lease_ms * 1000000;
    struct counted before = server_counted(rc), now = before;

    while (now.looks - before.looks < 2.0 * p->locks) {
        if (now_ns() > limit)
            die("%.0f of %d renewals in two leases", now.looks - before.looks,
                2 * p->locks);
        sleep_ms(10);
        now = server_counted(rc);
    }
    return (now.scripts - before.scripts) * p->locks /
           (now.looks - before.looks);
}

void measure_permits(const struct plan *p)
{
    size_t count = (size_t)(p->locks + A_LOCK - 1) / A_LOCK;
    dibs_lock **locks = calloc(count, sizeof(dibs_lock *));
    redisContext *rc = server_connect(p->url);
    dibs_client *c = NULL;

    if (!locks)
        die("out of memory");
    title("renewal: %d permits held, lease %d ms", p->locks, (int)p->lease_ms);
    must(
        dibs_client_open(p->url, DIBS_CLIENT_OPTS(.lease_ms = p->lease_ms), &c),
        "open");
    hold_permits(c, locks, p->locks);
    double commands = watch_permits(rc, p);
    must(dibs_client_close(c, CLOSE_MS), "close");
    line("Redis commands", commands, 1, "per round of all permits");
    target("renewal, commands for 100 permits", AT_MOST, 1,
           commands * 100 / p->locks);
    for (size_t i = 0; i < count; i++)
        dibs_lock_free(locks[i]);
    free(locks);
    dibs_client_free(c);
    redisFree(rc);
}

/* ---- waiters ----------------------------------------------------------- */

enum { CLIENTS = 5, PLACES = 3, CHANGES = 3000 };

static atomic_int changes; /* of hands, so far */
static atomic_bool enough;

struct waiter {
    dibs_lock *l;
    dibs_owner owner;
};

static void got_place(dibs_err err, void *arg);

static void want_place(struct waiter *w)
{
    if (atomic_load(&enough))
        return;
    dibs_err err = dibs_lock_acquire_async(
        w->l, DIBS_LOCK_OPTS(.owner = w->owner), got_place, w);
    if (err != DIBS_ERR_CLOSED)
        must(err, "acquire_async");
}

static void left_place(dibs_err err, void *arg)
{
    must(err, "release");
    want_place(arg);
}

static void got_place(dibs_err err, void *arg)
{
    struct waiter *w = arg;

    if (err == DIBS_ERR_CANCELED || err == DIBS_ERR_CLOSED)
        return;
    must(err, "acquire");
    atomic_fetch_add(&changes, 1);
    err = dibs_lock_release_async(w->l, DIBS_LOCK_OPTS(.owner = w->owner),
                                  left_place, w);
    if (err != DIBS_ERR_CLOSED)
        must(err, "release_async");
}

/* Commands for a change of hands, with so many in line for the three. */
static double commands_a_change(const struct plan *p, redisContext *rc, int n)
{
    struct waiter *all = calloc((size_t)n, sizeof *all);
    dibs_client *c[CLIENTS] = {NULL};
    dibs_lock *l[CLIENTS] = {NULL};
    char name[96];

    if (!all)
        die("out of memory");
    atomic_store(&changes, 0);
    atomic_store(&enough, false);
    for (int i = 0; i < CLIENTS; i++) {
        must(dibs_client_open(p->url, NULL, &c[i]), "open");
        must(dibs_slots_lock_new(c[i],
                                 bench_name(name, sizeof name, "places", n),
                                 PLACES, &l[i]),
             "new slots lock");
    }
    for (int i = 0; i < n; i++) {
        all[i] = (struct waiter){.l = l[i % CLIENTS],
                                 .owner = dibs_owner_new(c[i % CLIENTS])};
        want_place(&all[i]);
    }
    while (atomic_load(&changes) < CHANGES / 10)
        sleep_ms(1);
    struct counted before = server_counted(rc);
    int first = atomic_load(&changes);
    while (atomic_load(&changes) < first + CHANGES)
        sleep_ms(1);
    int done = atomic_load(&changes) - first;
    struct counted after = server_counted(rc);
    atomic_store(&enough, true);
    for (int i = 0; i < CLIENTS; i++)
        must(dibs_client_close(c[i], CLOSE_MS), "close");
    for (int i = 0; i < CLIENTS; i++) {
        dibs_lock_free(l[i]);
        dibs_client_free(c[i]);
    }
    free(all);
    return (after.scripts - before.scripts) / done;
}

void measure_places_in_line(const struct plan *p)
{
    static const int many[] = {10, 100, 1000};
    double commands[COUNT(many)];
    redisContext *rc = server_connect(p->url);
    char label[64];

    title("waiters for %d slots, in %d clients", PLACES, CLIENTS);
    for (size_t i = 0; i < COUNT(many); i++) {
        commands[i] = commands_a_change(p, rc, many[i]);
        snprintf(label, sizeof label, "%d waiters", many[i]);
        line(label, commands[i], 2, "commands per change of hands");
    }
    target("1,000 waiters for 3 slots, of 10: commands", AT_MOST, 1.5,
           commands[COUNT(many) - 1] / commands[0]);
    redisFree(rc);
}
