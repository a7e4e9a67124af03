/* SPDX-License-Identifier: MIT
 *
 * rw.c - the read-write lock: what many readers cost.
 *
 * A reader that leaves must find out whether it was the last. How long that
 * keeps the server busy is measured with few readers and with many, in turns;
 * it must not grow with them. They are another client's: a client that has two
 * readers knows without looking.
 *
 * Readers do not stand in each other's way: many threads that read one lock
 * should get as much done as with a plain lock each.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FEW        10
#define MANY       1000
#define THREADS    8
#define ROUNDS_MAX 15

static dibs_lock *new_reader(dibs_client *c, const char *what)
{
    dibs_lock *l = NULL;
    char name[96];

    must(dibs_read_lock_new(c, bench_name(name, sizeof name, what, 0), &l),
         "new read lock");
    return l;
}

/* ---- how long a release takes ------------------------------------------ */

/* Time the server has spent in scripts so far, in us. */
static double script_us(redisContext *rc)
{
    redisReply *r = redisCommand(rc, "INFO commandstats");
    const char *at = r && r->str ? strstr(r->str, "cmdstat_evalsha:") : NULL;
    const char *us = at ? strstr(at, ",usec=") : NULL;

    if (!us)
        die("INFO commandstats: no EVALSHA in it");
    double n = strtod(us + strlen(",usec="), NULL);
    freeReplyObject(r);
    return n;
}

/* So many owners read it from now on. */
static void fill(dibs_client *c, const char *what, int readers)
{
    dibs_lock *l = new_reader(c, what);

    for (int i = 0; i < readers; i++)
        must(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = dibs_owner_new(c))),
             "acquire");
    dibs_lock_free(l);
}

/* One more comes and goes, often; the time of its going, on average. */
static double release_us(redisContext *rc, dibs_lock *l, int times)
{
    double sum = 0;

    for (int i = 0; i < times; i++) {
        must(dibs_lock_acquire(l, NULL), "acquire");
        double before = script_us(rc);
        must(dibs_lock_release(l, NULL), "release");
        sum += script_us(rc) - before;
    }
    return sum / times;
}

static void measure_release(const struct plan *p)
{
    double few[ROUNDS_MAX], many[ROUNDS_MAX], ratio[ROUNDS_MAX];
    size_t rounds = (size_t)p->rounds;
    int times = p->pairs / 50;
    dibs_client *c = NULL, *others = NULL;
    redisContext *rc = server_connect(p->url);

    must(dibs_client_open(p->url, NULL, &c), "open");
    must(dibs_client_open(p->url, NULL, &others), "open");
    dibs_lock *a = new_reader(c, "few-readers");
    dibs_lock *b = new_reader(c, "many-readers");
    fill(others, "few-readers", FEW);
    fill(others, "many-readers", MANY);
    release_us(rc, a, times / 4 + 1); /* warm-up */
    release_us(rc, b, times / 4 + 1);
    for (size_t i = 0; i < rounds; i++) {
        few[i] = release_us(rc, a, times);
        many[i] = release_us(rc, b, times);
        ratio[i] = many[i] / few[i];
    }
    dibs_lock_free(a);
    dibs_lock_free(b);
    dibs_client_free(c);
    dibs_client_free(others); /* which ends the reading */
    redisFree(rc);

    line("release among 10 readers", median(few, rounds), 1, "us of server");
    line("release among 1000 readers", median(many, rounds), 1, "us of server");
    line("1000 readers / 10 readers, median", median(ratio, rounds), 2, "x");
    target("read release, 1000 / 10 readers", AT_MOST, 2,
           median(ratio, rounds));
}

/* ---- readers side by side ---------------------------------------------- */

static void measure_side_by_side(const struct plan *p)
{
    double read[ROUNDS_MAX], plain[ROUNDS_MAX], ratio[ROUNDS_MAX];
    void *same[THREADS], *own[THREADS];
    size_t rounds = (size_t)p->rounds;
    dibs_client *c = NULL;

    must(dibs_client_open(p->url, NULL, &c), "open");
    dibs_lock *reader = new_reader(c, "readers");
    for (int i = 0; i < THREADS; i++) {
        dibs_lock *l = NULL;
        char name[96];
        must(dibs_lock_new(c, bench_name(name, sizeof name, "own", i), &l),
             "new lock");
        own[i] = l;
        same[i] = reader;
    }
    race(THREADS, dibs_pair, same, p->lap_ms / 4); /* warm-up */
    race(THREADS, dibs_pair, own, p->lap_ms / 4);
    for (size_t i = 0; i < rounds; i++) {
        read[i] = race(THREADS, dibs_pair, same, p->lap_ms).rate;
        plain[i] = race(THREADS, dibs_pair, own, p->lap_ms).rate;
        ratio[i] = read[i] / plain[i];
    }
    dibs_lock_free(reader);
    for (int i = 0; i < THREADS; i++)
        dibs_lock_free(own[i]);
    dibs_client_free(c);

    line("8 threads, one read lock", median(read, rounds), 0, "pairs/s");
    line("8 threads, a plain lock each", median(plain, rounds), 0, "pairs/s");
    line("read / plain, median", median(ratio, rounds), 2, "x");
    line("read / plain, least", least(ratio, rounds), 2, "x");
    line("read / plain, greatest", greatest(ratio, rounds), 2, "x");
    target("8 readers, of 8 plain locks", AT_LEAST, 0.9, median(ratio, rounds));
}

void measure_readers(const struct plan *p)
{
    title("read-write lock: many readers, no writer");
    if (p->rounds > ROUNDS_MAX)
        die("at most %d rounds", ROUNDS_MAX);
    measure_release(p);
    measure_side_by_side(p);
}
