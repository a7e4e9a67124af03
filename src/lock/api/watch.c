/* SPDX-License-Identifier: MIT
 *
 * watch.c - dibs_lock_watch: tells who has a lock whenever that changes.
 *
 * Thread  io looks; start and stop on any thread; the user is told where
 *         callbacks run.
 * Locks   one mutex of its own, for the watches of the process: a leaf, never
 *         held while anything else is done. Changes of holders are rare.
 *
 * How     A watch listens to the lock's channel and looks at the lock: when it
 *         begins, when a message came, when the subscription was made anew,
 *         when the lease that it saw is over, and every every_ms. A take sends
 *         no message, and often follows a release at once. So after a message
 *         or a change the pauses begin at PAUSE_MIN_MS and double. Two looks
 *         are never closer than that, whatever is published. A holder that
 *         publishes another value sends a message, too (value_set.lua).
 *
 *         What a look finds is the news. If it differs from the news before, a
 *         callback is pushed, unless one is on its way: the user gets the last
 *         news. So a slow callback costs no memory.
 *
 * Memory  Counted references: of the user, until stop; of io, until the watch
 *         has ended there; of each task, look and callback that is on its way.
 *         Only the user's has one to the client: a client does not end before
 *         io's part has.
 *
 * Trouble A look that fails is news, too: nobody knows who has the lock. The
 *         watch goes on. Stop waits for a callback that runs on another thread;
 *         two callbacks that stop each other's watch do not wait.
 *
 * States of io's part
 *
 *   state   what can happen                              next state
 *   NEW     io picks it up: it listens, and looks        PAUSES
 *           stop, or the client closes                   ENDED
 *   PAUSES  timer; message: the timer is set earlier     ASKS
 *           stop, or the client closes                   ENDED
 *   ASKS    answer, or no memory to ask                  PAUSES
 *           stop, or the client closes                   ENDED
 *   ENDED   an answer that comes now is dropped          -
 */
#include "lock/api/lock.h"

#include "base/api_args.h"
#include "base/mem.h"
#include "lock/core/shutdown_hook.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define EVERY_MS     1000
#define EVERY_MIN_MS 100
#define PAUSE_MIN_MS 50  /* no two looks are closer */
#define LEASE_MIN_MS 250 /* nor those at the ends of leases */
#define CALLED_MS    20  /* after a message, at most: a waiter takes it */
#define AFTER_END_MS 5   /* behind the end of a lease */

enum watch_state { WATCH_NEW, WATCH_PAUSES, WATCH_ASKS, WATCH_ENDED };

/* What is known of the lock. */
struct news {
    dibs_err err;
    dibs_lock_info info; /* if err is OK */
};

/* A thread that may run a callback, and what it waits for meanwhile. */
struct teller {
    struct dibs_watch *waits_for; /* mu */
};

struct dibs_watch {
    atomic_int refs;
    dibs_lock handle; /* const after init; its line has a reference until io's
                         part ends, its client until stop */
    struct dibs__lock_manager *locks; /* const after init, down to values */
    dibs_watch_cb fn;
    void *arg;
    int64_t every_ms;
    bool values; /* a value that changes is news, too */
    struct dibs__task start, stop;
    struct dibs__shutdown_hook work;

    enum watch_state state; /* io only, down to pause_ms */
    struct dibs__subscription sub;
    struct dibs__timer timer;
    bool called;        /* a message came since the last look began */
    int64_t not_before; /* no look before this time */
    int64_t pause_ms;   /* the last one; it grows */

    struct dibs__callback cb;
    struct news news;           /* mu: the last that io found */
    struct news told;           /* mu: the last that the user was told */
    bool has_news, has_told;    /* mu */
    char why[DIBS__REASON_MAX]; /* mu: of the news, in words */
    bool queued;                /* mu: cb is on its way */
    bool stopped;               /* mu: the user is not to be told */
    struct teller *teller;      /* mu: the callback runs there */
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static _Thread_local struct teller me;

static void watch_ref(struct dibs_watch *w)
{
    atomic_fetch_add(&w->refs, 1);
}

static void watch_unref(struct dibs_watch *w)
{
    if (atomic_fetch_sub(&w->refs, 1) == 1)
        dibs__free(w);
}

/* ---- telling ----------------------------------------------------------- */

static bool same_news(const struct dibs_watch *w, const struct news *a,
                      const struct news *b)
{
    if (a->err != DIBS_OK || b->err != DIBS_OK)
        return a->err == b->err;
    return a->info.locked == b->info.locked && a->info.mode == b->info.mode &&
           a->info.owners == b->info.owners && a->info.token == b->info.token &&
           strcmp(a->info.owner, b->info.owner) == 0 &&
           (!w->values || a->info.published == b->info.published);
}

static void tell_news(struct dibs_watch *w, const struct news *n,
                      const char *why)
{
    DIBS__API_CALL(n->err == DIBS_OK ? DIBS_OK
                                     : dibs__reason_set(n->err, "%s", why));
    w->fn(n->err, n->err == DIBS_OK ? &n->info : NULL, w->arg);
    pthread_mutex_lock(&mu);
    w->teller = NULL;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&mu);
}

static void news_run(struct dibs__callback *cb, bool drop)
{
    struct dibs_watch *w = DIBS_OF(cb, struct dibs_watch, cb);
    char why[DIBS__REASON_MAX];

    pthread_mutex_lock(&mu);
    w->queued = false;
    bool tells = !drop && !w->stopped &&
                 (!w->has_told || !same_news(w, &w->told, &w->news));
    struct news n = w->news;
    memcpy(why, w->why, sizeof why);
    if (tells) {
        w->told = n;
        w->has_told = true;
        w->teller = &me;
    }
    pthread_mutex_unlock(&mu);
    if (tells)
        tell_news(w, &n, why);
    watch_unref(w);
}

/* True: that is new. */
static bool take_news(struct dibs_watch *w, const struct news *n,
                      const char *why)
{
    pthread_mutex_lock(&mu);
    bool fresh = !w->has_news || !same_news(w, &w->news, n);
    bool push = fresh && !w->queued && !w->stopped;
    if (fresh) {
        w->news = *n;
        w->has_news = true;
        snprintf(w->why, sizeof w->why, "%s", why);
    }
    w->queued |= push;
    pthread_mutex_unlock(&mu);
    if (push) {
        watch_ref(w);
        dibs__callbacks_push(&w->handle.c->callbacks, &w->cb);
    }
    return fresh;
}

/* ---- looking, on io ---------------------------------------------------- */

static void listen_if_deaf(struct dibs_watch *w)
{
    if (!w->sub.on) /* no memory: the next look tries again */
        (void)dibs__entry_subscribe(w->handle.entry, &w->sub);
}

static void look_after(struct dibs_watch *w, int64_t pause_ms)
{
    int64_t at = dibs__add(dibs__now_ms(), pause_ms);

    dibs__timer_set(&w->handle.c->loop, &w->timer,
                    dibs__max(at, w->not_before));
}

static void watch_pause(struct dibs_watch *w, bool fresh, const struct news *n)
{
    int64_t pause;

    w->state = WATCH_PAUSES;
    w->pause_ms = fresh || w->called ? PAUSE_MIN_MS
                                     : dibs__min(2 * w->pause_ms, w->every_ms);
    /* Those who watch one lock shall not all look at the same time. */
    pause = dibs__random_in(w->pause_ms * 3 / 4, w->pause_ms);
    if (w->called)
        pause = dibs__random_in(1, CALLED_MS);
    else if (n->err == DIBS_OK && n->info.locked && n->info.ttl_ms >= 0 &&
             n->info.ttl_ms + AFTER_END_MS < pause)
        pause = dibs__max(n->info.ttl_ms + AFTER_END_MS,
                          dibs__min(pause, LEASE_MIN_MS));
    look_after(w, pause);
}

static void watch_looked(dibs_err err, const dibs_lock_info *info,
                         const char *why, void *arg)
{
    struct dibs_watch *w = arg;
    struct news n = {.err = err};

    if (err == DIBS_OK)
        n.info = *info;
    if (w->state == WATCH_ASKS) { /* CLOSED is told by who closes */
        bool fresh = err != DIBS_ERR_CLOSED && take_news(w, &n, why);
        watch_pause(w, fresh, &n);
    }
    watch_unref(w);
}

static void watch_timed(struct dibs__timer *t)
{
    struct dibs_watch *w = DIBS_OF(t, struct dibs_watch, timer);

    w->state = WATCH_ASKS;
    w->called = false;
    w->not_before = dibs__now_ms() + PAUSE_MIN_MS;
    listen_if_deaf(w);
    watch_ref(w);
    if (dibs__lock_inspect(&w->handle, watch_looked, w) != DIBS_OK)
        watch_looked(DIBS_ERR_NOMEM, NULL, "", w);
}

static void watch_heard(struct dibs__subscription *sub, char first)
{
    struct dibs_watch *w = DIBS_OF(sub, struct dibs_watch, sub);

    (void)first; /* whatever was said, something may have changed */
    w->called = true;
    if (w->state != WATCH_PAUSES)
        return; /* when the answer is there */
    w->pause_ms = PAUSE_MIN_MS;
    int64_t soon = dibs__now_ms() + dibs__random_in(1, CALLED_MS);
    if (soon < w->timer.at)
        look_after(w, soon - dibs__now_ms());
}

/* ---- its life on io ---------------------------------------------------- */

/* Ending twice is harmless. */
static void watch_end(struct dibs_watch *w)
{
    if (w->state == WATCH_ENDED)
        return;
    w->state = WATCH_ENDED;
    dibs__timer_stop(&w->handle.c->loop, &w->timer);
    dibs__unsubscribe(&w->sub);
    dibs__shutdown_hook_unregister(w->locks, &w->work);
    dibs__entry_unref(w->handle.entry);
    watch_unref(w);
}

static void watch_started(struct dibs__task *t)
{
    struct dibs_watch *w = DIBS_OF(t, struct dibs_watch, start);
    struct dibs__lock_manager *manager = w->locks;

    if (w->state == WATCH_NEW) {
        w->state = WATCH_PAUSES;
        w->pause_ms = PAUSE_MIN_MS;
        look_after(w, 0);
    }
    watch_unref(w);
    atomic_fetch_sub(&manager->in_flight, 1); /* from now on the work is known */
}

static void watch_stopped(struct dibs__task *t)
{
    struct dibs_watch *w = DIBS_OF(t, struct dibs_watch, stop);

    watch_end(w);
    watch_unref(w);
}

static struct dibs_watch *watch_of_work(struct dibs__shutdown_hook *work)
{
    return DIBS_OF(work, struct dibs_watch, work);
}

static void watch_ref_work(struct dibs__shutdown_hook *work)
{
    watch_ref(watch_of_work(work));
}

static void watch_closed(struct dibs__shutdown_hook *work)
{
    struct dibs_watch *w = watch_of_work(work);
    const struct news closed = {.err = DIBS_ERR_CLOSED};

    (void)take_news(w, &closed, "");
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
    w->locks = l->entry->manager;
    w->every_ms = o->every_ms ? o->every_ms : EVERY_MS;
    w->values = o->values;
    w->start.run = watch_started;
    w->stop.run = watch_stopped;
    w->work.ref = watch_ref_work;
    w->work.close = w->work.over = watch_closed;
    w->sub.hear = watch_heard;
    w->timer.fire = watch_timed;
    w->cb.run = news_run;
    dibs__entry_ref(l->entry);
    dibs__client_ref(l->c);
    return w;
}

/* The client is entered. Until io has the watch, it counts as an operation: a
 * client that closes waits for it, and ends the work then. */
static dibs_err watch_begin(dibs_lock *l, const dibs_watch_opts *o,
                            dibs_watch_cb cb, void *arg, dibs_watch **out)
{
    dibs_err err = dibs__callbacks_ensure_thread(&l->c->callbacks);
    struct dibs_watch *w = err == DIBS_OK ? watch_new(l, o) : NULL;

    if (!w)
        return err == DIBS_OK ? DIBS_ERR_NOMEM : err;
    w->fn = cb;
    w->arg = arg;
    *out = w; /* the callback may come before we return */
    atomic_fetch_add(&w->locks->in_flight, 1);
    dibs__shutdown_hook_register(w->locks, &w->work);
    dibs__loop_post(&l->c->loop, &w->start);
    return DIBS_OK;
}

static dibs_err watch_lock(dibs_lock *l, const dibs_watch_opts *opts,
                           dibs_watch_cb cb, void *arg, dibs_watch **out)
{
    dibs_watch_opts o;

    if (dibs__struct_take(&dibs__struct_watch_opts, opts, &o) ||
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

/* This thread runs the callback, or what the callback does waits in turn for
 * this thread. Under mu. */
static bool news_lead_here(const struct dibs_watch *w)
{
    const struct teller *at = w->teller;

    while (at && at != &me)
        at = at->waits_for ? at->waits_for->teller : NULL;
    return at != NULL;
}

static void hush_news(struct dibs_watch *w)
{
    pthread_mutex_lock(&mu);
    w->stopped = true;
    while (w->teller && !news_lead_here(w)) {
        me.waits_for = w;
        pthread_cond_wait(&ended, &mu);
        me.waits_for = NULL;
    }
    pthread_mutex_unlock(&mu);
}

void dibs_watch_stop(dibs_watch *w)
{
    if (!w || dibs__client_is_forked_copy(w->handle.c))
        return; /* in a child the watch is the parent's, as is its client */
    dibs_client *c = w->handle.c;
    dibs__no_cancel();
    hush_news(w);
    if (dibs__client_enter(c) == DIBS_OK) { /* else its close ends the watch */
        watch_ref(w);
        dibs__loop_post(&c->loop, &w->stop);
        dibs__client_leave(c);
    }
    watch_unref(w);
    dibs__client_unref(c);
    dibs__cancel_again();
}
