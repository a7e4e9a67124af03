/* SPDX-License-Identifier: MIT
 *
 * threads.c - libraries whose calls block, one thread for each that wants.
 *
 * dibs     one client for all threads, as its README says.
 * hiredis  what one would write by hand: a connection a thread, the two scripts
 *          of a plain dibs lock. Who finds the lock taken listens on the lock's
 *          channel on a second connection, asks again, and sleeps until a
 *          message comes, for a second at most.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "peer.h"

#include "client/command/script.h"

#include <dibs/dibs.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define STACK_SIZE (128 * 1024)

/* How a thread uses a lock. */
struct lock_ops {
    void *(*make)(const char *kind, const char *name, int who);
    void (*acquire)(void *lock);
    void (*release)(void *lock);
    void (*destroy)(void *lock);
};

struct crew {
    const struct peer_order *order;
    const struct lock_ops *ops;
    struct peer_log *log; /* NULL: each has a lock of its own */
    atomic_bool stop;
    atomic_int ready;
    atomic_bool go;
    pthread_t threads[1024];
    struct member {
        struct crew *crew;
        int who;
        long long count;
    } members[1024];
};

static void *member_make_lock(const struct member *m)
{
    const struct peer_order *o = m->crew->order;
    char name[192];

    if (m->crew->log)
        snprintf(name, sizeof name, "%s", o->name);
    else
        snprintf(name, sizeof name, "%s%d", o->name, m->who);
    return m->crew->ops->make(o->kind, name, m->who);
}

static void member_hold_once(struct member *m, void *lock)
{
    const struct peer_order *o = m->crew->order;
    int64_t at[3];

    at[0] = peer_now_ns();
    m->crew->ops->acquire(lock);
    at[1] = peer_now_ns();
    peer_sleep_us(o->hold_us);
    at[2] = peer_now_ns();
    m->crew->ops->release(lock);
    peer_log_add(m->crew->log, m->who, at);
    peer_sleep_us(o->pause_us);
}

static void *member_run(void *member)
{
    struct member *m = member;
    struct crew *c = m->crew;
    void *lock = member_make_lock(m);

    atomic_fetch_add(&c->ready, 1);
    while (!atomic_load(&c->go))
        peer_sleep_us(50);
    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        if (c->log) {
            member_hold_once(m, lock);
        } else {
            c->ops->acquire(lock);
            c->ops->release(lock);
        }
        m->count++;
    }
    c->ops->destroy(lock);
    return NULL;
}

static void thread_start(pthread_t *t, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    if (pthread_create(t, &attr, run, arg) != 0)
        peer_die("no thread");
    pthread_attr_destroy(&attr);
}

/* All members for as long as the order says; how often they had a lock. */
static long long crew_run(const struct peer_order *o,
                          const struct lock_ops *ops, struct peer_log *log)
{
    struct crew *c = calloc(1, sizeof *c);
    long long count = 0;

    if (!c || o->n < 1 || o->n > 1024)
        peer_die("%d threads", o->n);
    c->order = o;
    c->ops = ops;
    c->log = log;
    for (int i = 0; i < o->n; i++) {
        c->members[i] = (struct member){c, i, 0};
        thread_start(&c->threads[i], member_run, &c->members[i]);
    }
    while (atomic_load(&c->ready) < o->n)
        peer_sleep_us(100);
    atomic_store(&c->go, true);
    peer_sleep_us(o->ms * 1000);
    atomic_store(&c->stop, true);
    for (int i = 0; i < o->n; i++) {
        pthread_join(c->threads[i], NULL);
        count += c->members[i].count;
    }
    free(c);
    return count;
}

static long long crew_contend(const struct peer_order *o,
                              const struct lock_ops *ops)
{
    struct peer_log *log = peer_log_open(o->file);

    crew_run(o, ops, log);
    return peer_log_close(log);
}

static void crew_hold(const struct peer_order *o, const struct lock_ops *ops)
{
    for (int i = 0; i < o->n; i++) {
        char name[192];
        snprintf(name, sizeof name, "%s%d", o->name, i);
        ops->acquire(ops->make(o->kind, name, 0));
    }
}

/* ---- dibs -------------------------------------------------------------- */

static dibs_client *dibs;

static void must(dibs_err err, const char *what)
{
    if (err != DIBS_OK)
        peer_die("%s: %s", what, dibs_strerror(err));
}

static void dibs_open(const char *url)
{
    must(dibs_client_open(url, NULL, &dibs), "open");
}

static void *dibs_make(const char *kind, const char *name, int who)
{
    dibs_lock *l = NULL;

    (void)who;
    if (strcmp(kind, "fair") == 0)
        must(dibs_fair_lock_new(dibs, name, &l), "new");
    else if (strcmp(kind, "read") == 0)
        must(dibs_read_lock_new(dibs, name, &l), "new");
    else
        must(dibs_lock_new(dibs, name, &l), "new");
    return l;
}

static void dibs_acquire(void *lock)
{
    must(dibs_lock_acquire(lock, NULL), "acquire");
}

static void dibs_release(void *lock)
{
    must(dibs_lock_release(lock, NULL), "release");
}

static void dibs_destroy(void *lock)
{
    dibs_lock_free(lock);
}

static const struct lock_ops dibs_ops = {dibs_make, dibs_acquire, dibs_release,
                                         dibs_destroy};

static long long dibs_pairs(const struct peer_order *o)
{
    return crew_run(o, &dibs_ops, NULL);
}

static long long dibs_contend(const struct peer_order *o)
{
    return crew_contend(o, &dibs_ops);
}

static void dibs_hold(const struct peer_order *o)
{
    crew_hold(o, &dibs_ops);
}

static void *dibs_wait_thread(void *lock)
{
    dibs_acquire(lock);
    return NULL;
}

static void dibs_wait(const struct peer_order *o)
{
    for (int i = 0; i < o->n; i++) {
        pthread_t t;
        thread_start(&t, dibs_wait_thread, dibs_make(o->kind, o->name, i));
    }
}

const struct peer_library peer_dibs = {"dibs",       dibs_open, dibs_pairs,
                                       dibs_contend, dibs_hold, dibs_wait};

/* ---- plain hiredis ----------------------------------------------------- */

#define NUMBER "1000" /* of a call, repeated in its answer */

static const char *plain_url;

struct plain {
    redisContext *rc;
    redisContext *listen; /* NULL: never had to wait */
    char name[192];
    char channel[224];
    char owner[64];
};

/* Only what the comparison itself gives: redis://host:port or unix://path. */
static redisContext *plain_connect(void)
{
    char host[64];
    int port = 6379;
    redisContext *rc;

    if (strncmp(plain_url, "unix://", 7) == 0)
        rc = redisConnectUnix(plain_url + 7);
    else if (sscanf(plain_url, "redis://%63[^:]:%d", host, &port) >= 1)
        rc = redisConnect(host, port);
    else
        peer_die("%s: a URL of another form", plain_url);
    if (!rc || rc->err)
        peer_die("connect: %s", rc ? rc->errstr : "out of memory");
    return rc;
}

static void plain_open(const char *url)
{
    static const struct dibs__script *const scripts[] = {
        &dibs__script_mutex_acquire, &dibs__script_mutex_release};
    redisContext *rc;

    plain_url = url;
    rc = plain_connect();
    for (int i = 0; i < 2; i++) {
        redisReply *r = redisCommand(rc, "SCRIPT LOAD %b", scripts[i]->src,
                                     (size_t)scripts[i]->len);
        if (!r || r->type != REDIS_REPLY_STRING)
            peer_die("a script could not be loaded");
        freeReplyObject(r);
    }
    redisFree(rc);
}

static void *plain_make(const char *kind, const char *name, int who)
{
    struct plain *p = calloc(1, sizeof *p);

    if (!p || strcmp(kind, "plain") != 0)
        peer_die("hiredis has no %s lock", kind);
    p->rc = plain_connect();
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(p->channel, sizeof p->channel, "redisson_lock__channel:{%s}",
             name);
    snprintf(p->owner, sizeof p->owner, "%08x-0000-4000-8000-000000000000:%d",
             (unsigned)peer_now_ns(), who + 1);
    return p;
}

/* -1: taken; otherwise the holder's remaining time. */
static long long plain_ask(struct plain *p)
{
    const char *argv[] = {"EVALSHA", dibs__script_mutex_acquire.sha,
                          "1",       p->name,
                          p->owner,  "1",
                          "30000",   NUMBER};
    redisReply *r = redisCommandArgv(p->rc, 8, argv, NULL);
    long long left = -1;

    if (!r || r->type != REDIS_REPLY_STRING ||
        strncmp(r->str, NUMBER, strlen(NUMBER)) != 0)
        peer_die("acquire: %s", r && r->str ? r->str : p->rc->errstr);
    if (r->len > strlen(NUMBER)) {
        left = atoll(r->str + strlen(NUMBER));
        left = left < 0 ? 0 : left;
    }
    freeReplyObject(r);
    return left;
}

static void plain_listen(struct plain *p)
{
    struct timeval second = {1, 0};
    redisReply *r;

    if (!p->listen) {
        p->listen = plain_connect();
        redisSetTimeout(p->listen, second);
    }
    r = redisCommand(p->listen, "SUBSCRIBE %s", p->channel);
    if (!r)
        peer_die("subscribe: %s", p->listen->errstr);
    freeReplyObject(r);
}

/* Until a message comes, or for a second. After that the connection is used up:
 * hiredis does not go on after a timeout. */
static void plain_sleep(struct plain *p)
{
    redisReply *r = NULL;

    if (redisGetReply(p->listen, (void **)&r) == REDIS_OK) {
        freeReplyObject(r);
        return;
    }
    redisFree(p->listen);
    p->listen = NULL;
    plain_listen(p);
}

static void plain_unlisten(struct plain *p)
{
    redisReply *r = NULL;

    if (redisAppendCommand(p->listen, "UNSUBSCRIBE") != REDIS_OK)
        peer_die("unsubscribe");
    do {
        if (r)
            freeReplyObject(r);
        if (redisGetReply(p->listen, (void **)&r) != REDIS_OK)
            peer_die("unsubscribe: %s", p->listen->errstr);
    } while (strcmp(r->element[0]->str, "unsubscribe") != 0);
    freeReplyObject(r);
}

static void plain_acquire(void *lock)
{
    struct plain *p = lock;

    if (plain_ask(p) < 0)
        return;
    plain_listen(p);
    while (plain_ask(p) >= 0)
        plain_sleep(p);
    plain_unlisten(p);
}

static void plain_release(void *lock)
{
    struct plain *p = lock;
    const char *argv[] = {"EVALSHA", dibs__script_mutex_release.sha,
                          "1",       p->name,
                          p->owner,  "0",
                          "0",       p->channel,
                          NUMBER};
    redisReply *r = redisCommandArgv(p->rc, 9, argv, NULL);

    if (!r || r->type != REDIS_REPLY_STRING ||
        atoll(r->str + strlen(NUMBER)) < 1)
        peer_die("release: %s", r && r->str ? r->str : "not held");
    freeReplyObject(r);
}

static void plain_destroy(void *lock)
{
    struct plain *p = lock;

    redisFree(p->rc);
    if (p->listen)
        redisFree(p->listen);
    free(p);
}

static const struct lock_ops plain_ops = {plain_make, plain_acquire,
                                          plain_release, plain_destroy};

static long long plain_pairs(const struct peer_order *o)
{
    return crew_run(o, &plain_ops, NULL);
}

static long long plain_contend(const struct peer_order *o)
{
    return crew_contend(o, &plain_ops);
}

const struct peer_library peer_hiredis = {
    "hiredis", plain_open, plain_pairs, plain_contend, NULL, NULL};
