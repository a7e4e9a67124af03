/* SPDX-License-Identifier: MIT
 *
 * tasks.c - dibs with callbacks instead of threads; and the server's limit.
 *
 * tasks  n chains of acquire, release, acquire ... on the client's callback
 *        thread, each with an owner and a lock of its own.
 * limit  one connection, n pairs of the same two scripts in each write. Nobody
 *        who sends those scripts to this server can be faster.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "peer.h"

#include "client/command/script.h"

#include <dibs/dibs.h>
#include <hiredis/hiredis.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static dibs_client *client;

static void must(dibs_err err, const char *what)
{
    if (err != DIBS_OK)
        peer_die("%s: %s", what, dibs_strerror(err));
}

static void tasks_open(const char *url)
{
    must(dibs_client_open(url, NULL, &client), "open");
}

struct tasks {
    atomic_bool stop;
    sem_t ended;
    struct task {
        struct tasks *all;
        dibs_lock *l;
        dibs_lock_opts opts;
        long long count;
    } task[1024];
};

static void task_released(dibs_err err, void *arg);

static void task_acquired(dibs_err err, void *arg)
{
    struct task *t = arg;

    must(err, "acquire");
    must(dibs_lock_release_async(t->l, &t->opts, task_released, t), "release");
}

static void task_released(dibs_err err, void *arg)
{
    struct task *t = arg;

    must(err, "release");
    t->count++;
    if (atomic_load_explicit(&t->all->stop, memory_order_relaxed))
        sem_post(&t->all->ended);
    else
        must(dibs_lock_acquire_async(t->l, &t->opts, task_acquired, t),
             "acquire");
}

static void task_make(struct task *t, const char *kind, const char *name)
{
    if (strcmp(kind, "fair") == 0)
        must(dibs_fair_lock_new(client, name, &t->l), "new");
    else
        must(dibs_lock_new(client, name, &t->l), "new");
    t->opts = (dibs_lock_opts){.size = sizeof t->opts,
                               .owner = dibs_owner_new(client)};
}

static long long tasks_pairs(const struct peer_order *o)
{
    struct tasks *ts = calloc(1, sizeof *ts);
    long long count = 0;

    if (!ts || o->n < 1 || o->n > 1024)
        peer_die("%d tasks", o->n);
    sem_init(&ts->ended, 0, 0);
    for (int i = 0; i < o->n; i++) {
        char name[192];
        snprintf(name, sizeof name, "%s%d", o->name, i);
        ts->task[i].all = ts;
        task_make(&ts->task[i], o->kind, name);
    }
    for (int i = 0; i < o->n; i++)
        must(dibs_lock_acquire_async(ts->task[i].l, &ts->task[i].opts,
                                     task_acquired, &ts->task[i]),
             "acquire");
    peer_sleep_us(o->ms * 1000);
    atomic_store(&ts->stop, true);
    for (int i = 0; i < o->n; i++)
        sem_wait(&ts->ended);
    for (int i = 0; i < o->n; i++) {
        count += ts->task[i].count;
        dibs_lock_free(ts->task[i].l);
    }
    sem_destroy(&ts->ended);
    free(ts);
    return count;
}

static void wait_ended(dibs_err err, void *arg)
{
    (void)err;
    (void)arg;
}

static void tasks_wait(const struct peer_order *o)
{
    for (int i = 0; i < o->n; i++) {
        struct task t;
        task_make(&t, o->kind, o->name);
        must(dibs_lock_acquire_async(t.l, &t.opts, wait_ended, NULL),
             "acquire");
        dibs_lock_free(t.l);
    }
}

const struct peer_library peer_tasks = {"tasks", tasks_open, tasks_pairs,
                                        NULL,    NULL,       tasks_wait};

/* ---- the server's limit ------------------------------------------------ */

static redisContext *limit_rc;

static void limit_open(const char *url)
{
    static const struct dibs__script *const scripts[] = {
        &dibs__script_mutex_acquire, &dibs__script_mutex_release};
    char host[64];
    int port = 6379;

    if (strncmp(url, "unix://", 7) == 0)
        limit_rc = redisConnectUnix(url + 7);
    else if (sscanf(url, "redis://%63[^:]:%d", host, &port) >= 1)
        limit_rc = redisConnect(host, port);
    if (!limit_rc || limit_rc->err)
        peer_die("connect");
    for (int i = 0; i < 2; i++)
        freeReplyObject(redisCommand(limit_rc, "SCRIPT LOAD %b",
                                     scripts[i]->src, (size_t)scripts[i]->len));
}

/* n pairs as the bytes of one write. */
static char *limit_bytes(const struct peer_order *o, size_t *len)
{
    const char *owner = "00000000-0000-4000-8000-000000000000:1";
    size_t size = (size_t)o->n * 1024;
    char *bytes = malloc(size);

    *len = 0;
    for (int i = 0; bytes && i < o->n; i++) {
        char name[192];
        char channel[224];
        char *command[2];
        snprintf(name, sizeof name, "%s%d", o->name, i);
        snprintf(channel, sizeof channel, "redisson_lock__channel:{%s}", name);
        int first =
            redisFormatCommand(&command[0], "EVALSHA %s 1 %s %s 1 30000 1000",
                               dibs__script_mutex_acquire.sha, name, owner);
        int second = redisFormatCommand(
            &command[1], "EVALSHA %s 1 %s %s 0 0 %s 1000",
            dibs__script_mutex_release.sha, name, owner, channel);
        if (first < 0 || second < 0 || *len + 1024 > size)
            peer_die("a command that is too long");
        memcpy(bytes + *len, command[0], (size_t)first);
        memcpy(bytes + *len + first, command[1], (size_t)second);
        *len += (size_t)first + (size_t)second;
        redisFreeCommand(command[0]);
        redisFreeCommand(command[1]);
    }
    return bytes;
}

static void limit_read(const char *answer)
{
    redisReply *r = NULL;

    if (redisGetReply(limit_rc, (void **)&r) != REDIS_OK || !r ||
        r->type != REDIS_REPLY_STRING || strcmp(r->str, answer) != 0)
        peer_die("limit: %s", limit_rc->errstr);
    freeReplyObject(r);
}

static void limit_read_pairs(int n)
{
    for (int i = 0; i < n; i++) {
        limit_read("1000");
        limit_read("1000 1");
    }
}

/* Two batches are on their way at any time, so that the server never waits. */
static long long limit_pairs(const struct peer_order *o)
{
    int64_t end = peer_now_ns() + (int64_t)o->ms * 1000000;
    long long count = 0;
    size_t len;
    char *bytes = limit_bytes(o, &len);

    redisAppendFormattedCommand(limit_rc, bytes, len);
    redisAppendFormattedCommand(limit_rc, bytes, len);
    while (peer_now_ns() < end) {
        limit_read_pairs(o->n);
        redisAppendFormattedCommand(limit_rc, bytes, len);
        count += o->n;
    }
    limit_read_pairs(2 * o->n);
    free(bytes);
    return count + 2LL * o->n;
}

const struct peer_library peer_limit = {"limit", limit_open, limit_pairs,
                                        NULL,    NULL,       NULL};
