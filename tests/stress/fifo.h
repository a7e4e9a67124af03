/* SPDX-License-Identifier: MIT
 *
 * fifo.h - was a fair lock granted in the order in which it was asked for?
 *
 * The judge is the server: with appendonly on it writes down every change in
 * the order in which they happened, no matter who made them. From that record
 * queue and holder are rebuilt here, step by step, and these must hold:
 *
 * - the one that is given the lock, nobody who stands in the queue came before
 * it; - nobody is given the lock while somebody has it; - nobody stands in the
 * queue twice, and nobody queues a second time unless it was removed; - nobody
 * is removed but who is known to be dead.
 *
 * For this every acquisition is made under an owner of its own.
 */
#ifndef DIBS_TESTS_STRESS_FIFO_H
#define DIBS_TESTS_STRESS_FIFO_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "support/server.h"
#include "support/util.h"

enum fifo_state { FIFO_QUEUED, FIFO_GRANTED, FIFO_LEFT, FIFO_EVICTED };

struct fifo_waiter {
    char owner[64];
    enum fifo_state state;
};

struct fifo {
    const char *lock, *queue; /* the keys */
    bool (*dead)(const char *owner, void *arg);
    void *arg;

    struct fifo_waiter *waiters; /* in order of arrival */
    size_t n, cap;
    size_t first;    /* nobody before it is queued */
    char holder[64]; /* "" = free */
    /* What happened. */
    unsigned grants; /* to whomever */
    unsigned waited; /* to those who had queued */
    unsigned left, evicted;
    char bad[256]; /* what was not fair; "" = all was */
};

static inline void fifo_bad(struct fifo *f, const char *what, const char *owner)
{
    if (!f->bad[0])
        snprintf(f->bad, sizeof f->bad, "%s: %s (arrival %zu, grant %u)", owner,
                 what, f->n, f->grants);
}

/* Its last arrival, or NULL. */
static inline struct fifo_waiter *fifo_find(struct fifo *f, const char *owner)
{
    for (size_t i = f->n; i > 0; i--)
        if (strcmp(f->waiters[i - 1].owner, owner) == 0)
            return &f->waiters[i - 1];
    return NULL;
}

/* The first who is still queued, or NULL. */
static inline struct fifo_waiter *fifo_head(struct fifo *f)
{
    while (f->first < f->n && f->waiters[f->first].state != FIFO_QUEUED)
        f->first++;
    return f->first < f->n ? &f->waiters[f->first] : NULL;
}

static inline void fifo_arrives(struct fifo *f, const char *owner)
{
    struct fifo_waiter *w = fifo_find(f, owner);

    if (w && w->state != FIFO_EVICTED)
        fifo_bad(f, "queues twice", owner);
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 1024;
        f->waiters = realloc(f->waiters, f->cap * sizeof *f->waiters);
        if (!f->waiters)
            ts_fatal("out of memory");
    }
    w = &f->waiters[f->n++];
    snprintf(w->owner, sizeof w->owner, "%s", owner);
    w->state = FIFO_QUEUED;
}

/* all: it gave up by itself; otherwise somebody removed it. */
static inline void fifo_goes(struct fifo *f, const char *owner, bool all)
{
    struct fifo_waiter *w = fifo_find(f, owner);

    if (!w || w->state != FIFO_QUEUED) {
        fifo_bad(f, "goes without having been there", owner);
        return;
    }
    w->state = all ? FIFO_LEFT : FIFO_EVICTED;
    f->left += all;
    f->evicted += !all;
    if (!all && !f->dead(owner, f->arg))
        fifo_bad(f, "was thrown out, and lives", owner);
}

static inline void fifo_granted(struct fifo *f, const char *owner)
{
    struct fifo_waiter *w = fifo_find(f, owner);
    struct fifo_waiter *head = fifo_head(f);

    if (strcmp(f->holder, owner) == 0)
        return; /* a command sent twice */
    if (f->holder[0])
        fifo_bad(f, "is given what somebody has", owner);
    snprintf(f->holder, sizeof f->holder, "%s", owner);
    f->grants++;
    if (head && (!w || w->state != FIFO_GRANTED || head < w))
        fifo_bad(f, "is given the lock before its turn", owner);
    f->waited += w != NULL;
}

/* One command of the record. */
static inline void fifo_step(struct fifo *f, int argc, char **argv)
{
    bool lock = argc > 1 && strcmp(argv[1], f->lock) == 0;
    bool queue = argc > 1 && strcmp(argv[1], f->queue) == 0;

    if (queue && strcasecmp(argv[0], "rpush") == 0) {
        fifo_arrives(f, argv[2]);
    } else if (queue && strcasecmp(argv[0], "lrem") == 0) {
        fifo_goes(f, argv[3], strcmp(argv[2], "0") == 0);
    } else if (queue && strcasecmp(argv[0], "lpop") == 0) {
        struct fifo_waiter *head = fifo_head(f);
        if (head)
            head->state = FIFO_GRANTED; /* the grant itself comes next */
        else
            fifo_bad(f, "taken from an empty queue", "");
    } else if (queue && (strcasecmp(argv[0], "del") == 0 ||
                         strcasecmp(argv[0], "unlink") == 0)) {
        fifo_bad(f, "the queue ended", "");
    } else if (lock && strcasecmp(argv[0], "hset") == 0) {
        fifo_granted(f, argv[2]);
    } else if (lock && (strcasecmp(argv[0], "del") == 0 ||
                        strcasecmp(argv[0], "unlink") == 0)) {
        f->holder[0] = '\0';
    } else if (lock && strcasecmp(argv[0], "hdel") == 0 &&
               strcmp(argv[2], f->holder) == 0) {
        f->holder[0] = '\0';
    }
}

/* ---- the record -------------------------------------------------------- */

/* The arguments for a server that keeps one. */
static const char *const fifo_server[] = {"--appendonly",
                                          "yes",
                                          "--appendfsync",
                                          "no",
                                          "--auto-aof-rewrite-percentage",
                                          "0",
                                          NULL};

static inline FILE *fifo_open(struct ts_server *s)
{
    static const char *const names[] = {
        "appendonlydir/appendonly.aof.1.incr.aof", "appendonly.aof"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = ts_text("%s/%s", ts_server_dir(s), names[i]);
        FILE *file = fopen(path, "r");
        free(path);
        if (file)
            return file;
    }
    ts_fatal("the server keeps no record");
}

/* False: the end. */
static inline bool fifo_number(FILE *file, char kind, long *n)
{
    char text[64];

    if (!fgets(text, sizeof text, file))
        return false;
    if (text[0] != kind)
        ts_fatal("the record: '%s', not %c", text, kind);
    *n = strtol(text + 1, NULL, 10);
    return true;
}

/* Reads the whole record. Call it when all is over. */
static inline void fifo_read(struct fifo *f, struct ts_server *s)
{
    FILE *file = fifo_open(s);
    long argc, len;

    while (fifo_number(file, '*', &argc)) {
        char *argv[64] = {0};
        for (long i = 0; i < argc; i++) {
            if (!fifo_number(file, '$', &len) || len < 0 || i >= 64)
                ts_fatal("the record is cut");
            argv[i] = ts_alloc((size_t)len + 1);
            if (fread(argv[i], 1, (size_t)len, file) != (size_t)len ||
                fgetc(file) != '\r' || fgetc(file) != '\n')
                ts_fatal("the record is cut");
        }
        fifo_step(f, (int)argc, argv);
        for (long i = 0; i < argc; i++)
            free(argv[i]);
    }
    fclose(file);
}

static inline void fifo_clear(struct fifo *f)
{
    free(f->waiters);
    f->waiters = NULL;
    f->n = f->cap = 0;
}

#endif
