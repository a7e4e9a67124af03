/* SPDX-License-Identifier: MIT
 *
 * watch.c - dibs_lock_watch: reports each change of a lock's holder.
 *
 * Thread  io queries the lock; start and stop on any thread; the user's
 *         callback on the callback thread.
 * Locks   one static mutex for all watches of the process. It is a leaf: no
 *         other mutex is locked while it is held. Changes of holders are rare,
 *         so one mutex suffices.
 *
 * How     A watch subscribes to the lock's channel and queries the lock: when
 *         it starts, after a message, after a resubscription, when the lease
 *         that it saw has expired, and every every_ms. An acquire publishes no
 *         message and often follows a release at once; so after a message or a
 *         change the pauses start again at PAUSE_MIN_MS and double. Two queries
 *         are never closer than that, however many messages arrive. A holder
 *         that publishes a new value sends a message, too (value_set.lua).
 *
 *         The result of a query is a snapshot. If it differs from the snapshot
 *         before, a callback is queued unless one is queued already; it
 *         reports the latest snapshot. So a slow callback uses no more memory.
 *
 * Memory  References: the user's, until stop; io's, until the watch has ended;
 *         one for each task, query and callback in flight. The client reference
 *         belongs to the user's; io's needs none, since a client is not freed
 *         before its shutdown hooks have run.
 *
 * Limits  A failed query is a snapshot, too: the holder is unknown. The watch
 *         goes on. Stop waits for a callback that runs on another thread; two
 *         callbacks that stop each other's watch do not wait (deadlock).
 *
 * States of the io part
 *
 *   state    event                                       next state
 *   NEW      the start task runs                         PAUSED
 *            stop, or the client closes                  ENDED
 *   PAUSED   the timer fires (a message sets it earlier) QUERYING
 *            stop, or the client closes                  ENDED
 *   QUERYING reply, or out of memory                     PAUSED
 *            stop, or the client closes                  ENDED
 *   ENDED    a late reply is dropped                     -
 */
#include "lock/api/lock.h"

#include "base/api_args.h"
#include "base/mem.h"
#include "lock/core/shutdown_hook.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define EVERY_MS             1000 /* default of every_ms */
#define EVERY_MIN_MS         100
#define PAUSE_MIN_MS         50  /* between two queries */
#define LEASE_PAUSE_MIN_MS   250 /* between two queries at the end of leases */
#define MESSAGE_DELAY_MAX_MS 20  /* after a message: a waiter acquires first */
#define AFTER_LEASE_MS       5   /* after the end of a lease */

enum watch_state { WATCH_NEW, WATCH_PAUSED, WATCH_QUERYING, WATCH_ENDED };

/* Result of one query. */
struct snapshot {
    dibs_err err;
    dibs_lock_info info; /* if err is OK */
};

/* A thread that runs a watch callback. */
struct callback_thread {
    struct dibs_watch *stopping; /* mu: watch whose callback it waits for */
};

struct dibs_watch {
    atomic_int refs;
    dibs_lock handle; /* const after init; with a reference to its entry until
                         the io part ends, and to its client until stop */
    struct dibs__lock_manager *manager; /* const after init, as are the next
                                           four */
    dibs_watch_cb fn;
    void *arg;
    int64_t every_ms;
    bool values; /* a new published value is a change, too */
    struct dibs__task start_task, stop_task;
    struct dibs__shutdown_hook shutdown_hook;

    enum watch_state state; /* io only, as are the next five */
    struct dibs__subscription sub;
    struct dibs__timer timer;
    bool has_message;   /* a message arrived since the last query was sent */
    int64_t not_before; /* no query before this time */
    int64_t pause_ms;   /* the last pause, before randomization */

    struct dibs__callback cb;
    struct snapshot latest;     /* mu: of the last query */
    struct snapshot reported;   /* mu: last passed to the callback */
    bool has_latest;            /* mu */
    bool has_reported;          /* mu */
    char why[DIBS__REASON_MAX]; /* mu: reason of latest.err */
    bool queued;                /* mu: cb is in the callback queue */
    bool stopped;               /* mu: the callback must not be called */
    struct callback_thread *running_on; /* mu: runs the callback; or NULL */
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t callback_ended = PTHREAD_COND_INITIALIZER;
static _Thread_local struct callback_thread this_thread;

static void watch_ref(struct dibs_watch *w)
{
    atomic_fetch_add(&w->refs, 1);
}

static void watch_unref(struct dibs_watch *w)
{
    if (atomic_fetch_sub(&w->refs, 1) == 1)
        dibs__free(w);
}

/* ---- callbacks --------------------------------------------------------- */

static bool is_same_snapshot(const struct dibs_watch *w,
                             const struct snapshot *a, const struct snapshot *b)
{
    if (a->err != DIBS_OK || b->err != DIBS_OK)
        return a->err == b->err;
    return a->info.locked == b->info.locked && a->info.mode == b->info.mode &&
           a->info.owners == b->info.owners && a->info.token == b->info.token &&
           strcmp(a->info.owner, b->info.owner) == 0 &&
           (!w->values || a->info.published == b->info.published);
}

static void watch_call_user(struct dibs_watch *w, const struct snapshot *snap,
                            const char *why)
{
    DIBS__API_CALL(snap->err == DIBS_OK
                       ? DIBS_OK
                       : dibs__reason_set(snap->err, "%s", why));
    w->fn(snap->err, snap->err == DIBS_OK ? &snap->info : NULL, w->arg);
    pthread_mutex_lock(&mu);
    w->running_on = NULL;
    pthread_cond_broadcast(&callback_ended);
    pthread_mutex_unlock(&mu);
}

static void watch_callback_run(struct dibs__callback *cb, bool drop)
{
    struct dibs_watch *w = DIBS_OF(cb, struct dibs_watch, cb);
    char why[DIBS__REASON_MAX];

    pthread_mutex_lock(&mu);
    w->queued = false;
    bool calls =
        !drop && !w->stopped &&
        (!w->has_reported || !is_same_snapshot(w, &w->reported, &w->latest));
    struct snapshot snap = w->latest;
    memcpy(why, w->why, sizeof why);
    if (calls) {
        w->reported = snap;
        w->has_reported = true;
        w->running_on = &this_thread;
    }
    pthread_mutex_unlock(&mu);
    if (calls)
        watch_call_user(w, &snap, why);
    watch_unref(w);
}

/* Stores the snapshot and queues the callback if it is a change. Returns
 * whether it is. */
static bool store_snapshot(struct dibs_watch *w, const struct snapshot *snap,
                           const char *why)
{
    pthread_mutex_lock(&mu);
    bool changed = !w->has_latest || !is_same_snapshot(w, &w->latest, snap);
    bool push = changed && !w->queued && !w->stopped;
    if (changed) {
        w->latest = *snap;
        w->has_latest = true;
        snprintf(w->why, sizeof w->why, "%s", why);
    }
    w->queued |= push;
    pthread_mutex_unlock(&mu);
    if (push) {
        watch_ref(w);
        dibs__callbacks_push(&w->handle.c->callbacks, &w->cb);
    }
    return changed;
}

/* ---- queries, on io ---------------------------------------------------- */

static void ensure_subscribed(struct dibs_watch *w)
{
    if (!w->sub.channel) /* out of memory: the next query tries again */
        (void)dibs__entry_subscribe(w->handle.entry, &w->sub);
}

static void query_after(struct dibs_watch *w, int64_t pause_ms)
{
    int64_t at = dibs__add(dibs__now_ms(), pause_ms);

    dibs__timer_set(&w->handle.c->loop, &w->timer,
                    dibs__max(at, w->not_before));
}

static void watch_pause(struct dibs_watch *w, bool changed,
                        const struct snapshot *snap)
{
    int64_t pause;

    w->state = WATCH_PAUSED;
    w->pause_ms = changed || w->has_message
                      ? PAUSE_MIN_MS
                      : dibs__min(2 * w->pause_ms, w->every_ms);
    /* Random, so that the watches of one lock do not query together. */
    pause = dibs__random_in(w->pause_ms * 3 / 4, w->pause_ms);
    if (w->has_message)
        pause = dibs__random_in(1, MESSAGE_DELAY_MAX_MS);
    else if (snap->err == DIBS_OK && snap->info.locked &&
             snap->info.ttl_ms >= 0 &&
             snap->info.ttl_ms + AFTER_LEASE_MS < pause)
        pause = dibs__max(snap->info.ttl_ms + AFTER_LEASE_MS,
                          dibs__min(pause, LEASE_PAUSE_MIN_MS));
    query_after(w, pause);
}

static void on_query_result(dibs_err err, const dibs_lock_info *info,
                            const char *why, void *arg)
{
    struct dibs_watch *w = arg;
    struct snapshot snap = {.err = err};

    if (err == DIBS_OK)
        snap.info = *info;
    if (w->state == WATCH_QUERYING) { /* watch_client_close reports CLOSED */
        bool changed = err != DIBS_ERR_CLOSED && store_snapshot(w, &snap, why);
        watch_pause(w, changed, &snap);
    }
    watch_unref(w);
}

static void watch_on_timer(struct dibs__timer *t)
{
    struct dibs_watch *w = DIBS_OF(t, struct dibs_watch, timer);

    w->state = WATCH_QUERYING;
    w->has_message = false;
    w->not_before = dibs__now_ms() + PAUSE_MIN_MS;
    ensure_subscribed(w);
    watch_ref(w);
    if (dibs__lock_inspect(&w->handle, on_query_result, w) != DIBS_OK)
        on_query_result(DIBS_ERR_NOMEM, NULL, "", w);
}

static void on_channel_message(struct dibs__subscription *sub, char first)
{
    struct dibs_watch *w = DIBS_OF(sub, struct dibs_watch, sub);

    (void)first; /* any message may mean a change */
    w->has_message = true;
    if (w->state != WATCH_PAUSED)
        return; /* the pause after the query is short */
    w->pause_ms = PAUSE_MIN_MS;
    int64_t soon = dibs__now_ms() + dibs__random_in(1, MESSAGE_DELAY_MAX_MS);
    if (soon < w->timer.at)
        query_after(w, soon - dibs__now_ms());
}

/* ---- start and end, on io ---------------------------------------------- */

/* Idempotent. */
static void watch_end(struct dibs_watch *w)
{
    if (w->state == WATCH_ENDED)
        return;
    w->state = WATCH_ENDED;
    dibs__timer_stop(&w->handle.c->loop, &w->timer);
    dibs__unsubscribe(&w->sub);
    dibs__shutdown_hook_unregister(w->manager, &w->shutdown_hook);
    dibs__entry_unref(w->handle.entry);
    watch_unref(w);
}

static void watch_start_task(struct dibs__task *t)
{
    struct dibs_watch *w = DIBS_OF(t, struct dibs_watch, start_task);
    struct dibs__lock_manager *manager = w->manager;

    if (w->state == WATCH_NEW) {
        w->state = WATCH_PAUSED;
        w->pause_ms = PAUSE_MIN_MS;
        query_after(w, 0);
    }
    watch_unref(w);
    /* From here on the shutdown hook alone keeps the client. */
    atomic_fetch_sub(&manager->in_flight, 1);
}

static void watch_stop_task(struct dibs__task *t)
{
    struct dibs_watch *w = DIBS_OF(t, struct dibs_watch, stop_task);

    watch_end(w);
    watch_unref(w);
}

static struct dibs_watch *watch_of_hook(struct dibs__shutdown_hook *hook)
{
    return DIBS_OF(hook, struct dibs_watch, shutdown_hook);
}

static void watch_hook_ref(struct dibs__shutdown_hook *hook)
{
    watch_ref(watch_of_hook(hook));
}

static void watch_client_close(struct dibs__shutdown_hook *hook)
{
    struct dibs_watch *w = watch_of_hook(hook);
    const struct snapshot closed = {.err = DIBS_ERR_CLOSED};

    (void)store_snapshot(w, &closed, "");
    watch_end(w);
    watch_unref(w);
}

/* ---- public ------------------------------------------------------------ */

static struct dibs_watch *watch_new(const dibs_lock *l,
                                    const dibs_watch_opts *o)
{
    struct dibs_watch *w = dibs__calloc(1, sizeof *w);

    if (!w)
        return NULL;
    atomic_init(&w->refs, 3); /* the user's, io's, the start's */
    w->handle = *l;
    w->manager = l->entry->manager;
    w->every_ms = o->every_ms ? o->every_ms : EVERY_MS;
    w->values = o->values;
    w->start_task.run = watch_start_task;
    w->stop_task.run = watch_stop_task;
    w->shutdown_hook.ref = watch_hook_ref;
    w->shutdown_hook.on_close = w->shutdown_hook.on_close_timeout =
        watch_client_close;
    w->sub.on_message = on_channel_message;
    w->timer.fire = watch_on_timer;
    w->cb.run = watch_callback_run;
    dibs__entry_ref(l->entry);
    dibs__client_ref(l->c);
    return w;
}

/* The caller has entered the client. Until the start task has run, the watch
 * counts as in flight: a client that closes waits for it and then runs the
 * shutdown hook. */
static dibs_err watch_begin(dibs_lock *l, const dibs_watch_opts *o,
                            dibs_watch_cb cb, void *arg, dibs_watch **out)
{
    dibs_err err = dibs__callbacks_ensure_thread(&l->c->callbacks);
    struct dibs_watch *w = err == DIBS_OK ? watch_new(l, o) : NULL;

    if (!w)
        return err == DIBS_OK ? DIBS_ERR_NOMEM : err;
    w->fn = cb;
    w->arg = arg;
    *out = w; /* the callback may run before this call returns */
    atomic_fetch_add(&w->manager->in_flight, 1);
    dibs__shutdown_hook_register(w->manager, &w->shutdown_hook);
    dibs__loop_post(&l->c->loop, &w->start_task);
    return DIBS_OK;
}

static dibs_err watch_lock(dibs_lock *l, const dibs_watch_opts *opts,
                           dibs_watch_cb cb, void *arg, dibs_watch **out)
{
    dibs_watch_opts o;

    if (dibs__struct_read(&dibs__struct_watch_opts, opts, &o) ||
        dibs__check_ms("every_ms", o.every_ms, EVERY_MIN_MS, DIBS_MS_MAX) ||
        dibs__check_not_null("cb", cb ? &o : NULL) ||
        dibs__check_not_null("out", out))
        return dibs__lock_report_invalid_arg(l);
    dibs_err err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* another thread may free the handle meanwhile */
    err = watch_begin(l, &o, cb, arg, out);
    dibs__client_leave(c);
    return err;
}

dibs_err dibs_lock_watch(dibs_lock *l, const dibs_watch_opts *opts,
                         dibs_watch_cb cb, void *arg, dibs_watch **out)
{
    return DIBS__API_CALL(watch_lock(l, opts, cb, arg, out));
}

/* Returns whether waiting for the callback of w would deadlock: it runs on this
 * thread, or the thread that runs it waits, directly or through other watches,
 * for a callback on this thread. Requires mu. */
static bool would_deadlock(const struct dibs_watch *w)
{
    const struct callback_thread *at = w->running_on;

    while (at && at != &this_thread)
        at = at->stopping ? at->stopping->running_on : NULL;
    return at != NULL;
}

static void stop_callbacks(struct dibs_watch *w)
{
    pthread_mutex_lock(&mu);
    w->stopped = true;
    while (w->running_on && !would_deadlock(w)) {
        this_thread.stopping = w;
        pthread_cond_wait(&callback_ended, &mu);
        this_thread.stopping = NULL;
    }
    pthread_mutex_unlock(&mu);
}

void dibs_watch_stop(dibs_watch *w)
{
    if (!w || dibs__client_is_forked_copy(w->handle.c))
        return; /* in a child after fork the watch belongs to the parent */
    dibs_client *c = w->handle.c;
    dibs__cancel_disable();
    stop_callbacks(w);
    /* If it fails, the close of the client ends the watch. */
    if (dibs__client_enter(c) == DIBS_OK) {
        watch_ref(w);
        dibs__loop_post(&c->loop, &w->stop_task);
        dibs__client_leave(c);
    }
    watch_unref(w);
    dibs__client_unref(c);
    dibs__cancel_restore();
}
