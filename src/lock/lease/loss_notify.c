/* SPDX-License-Identifier: MIT
 *
 * loss_notify.c - runs on_lost when a lock is lost.
 *
 * Thread  any; on_lost runs on the thread that runs callbacks.
 * Locks   mu, one for all listeners of the process: a leaf. Losses are rare.
 *
 * How     Each acquire with on_lost has a listener. When a hold is lost, its
 *         notification is queued as a callback. That decides whether on_lost
 *         runs: a group may lose some members.
 *
 *         A release suppresses the listener before it returns, so on_lost does
 *         not begin afterwards. If on_lost runs on another thread just then, a
 *         sync release waits for it, and the callback of an async release is
 *         delayed. So the application may free the argument of on_lost once
 *         the release has returned.
 *
 * Cycle   A release inside on_lost must not wait for that on_lost. Two
 *         on_lost, each on a thread of its own, may release each other's lock:
 *         the second one detects the cycle and does not wait.
 */
#include "lock/lease/loss_notify.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MEMBER_ARMED = 1, MEMBER_LOST = 2 }; /* bits of state[] */

/* A thread that runs on_lost; the listener it waits for meanwhile, or NULL. */
struct callback_runner {
    struct dibs__loss_listener *waits_for; /* mu */
};

struct dibs__loss_listener {
    struct dibs__list link; /* mu: in `pending` */
    atomic_int refs;
    const void *scope; /* const after init, as all up to name */
    dibs_lost_cb fn;
    void *arg;
    dibs_owner owner;
    size_t members, need;
    char *name;
    bool armed, suppressed, delivered; /* mu */
    struct callback_runner *runner;    /* mu: runs on_lost now; else NULL */
    void (*done)(void *arg);           /* mu: called after on_lost; or NULL */
    void *done_arg;
    unsigned char state[]; /* mu: of each member, bits MEMBER_* */
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
/* mu: listeners with a queued notification, or whose on_lost runs. */
static struct dibs__list pending = {&pending, &pending};
static _Thread_local struct callback_runner this_thread;

/* ---- life cycle -------------------------------------------------------- */

struct dibs__loss_listener *dibs__loss_new(const void *scope,
                                           const dibs_lock_opts *o,
                                           size_t members, size_t need)
{
    struct dibs__loss_listener *loss = dibs__calloc(1, sizeof *loss + members);

    if (!loss)
        return NULL;
    atomic_init(&loss->refs, 1);
    loss->scope = scope;
    loss->fn = o->on_lost;
    loss->arg = o->arg;
    loss->owner = o->owner;
    loss->members = members;
    loss->need = need;
    return loss;
}

struct dibs__loss_listener *
dibs__loss_set_name(struct dibs__loss_listener *loss, const char *name,
                    size_t len)
{
    if (!loss)
        return NULL;
    loss->name = dibs__calloc(1, len + 1);
    if (loss->name) {
        memcpy(loss->name, name, len);
        return loss;
    }
    dibs__loss_unref(loss);
    return NULL;
}

struct dibs__loss_listener *
dibs__loss_clone(const struct dibs__loss_listener *loss)
{
    const dibs_lock_opts o = {
        .on_lost = loss->fn, .arg = loss->arg, .owner = loss->owner};

    return dibs__loss_set_name(
        dibs__loss_new(loss->scope, &o, loss->members, loss->need), loss->name,
        strlen(loss->name));
}

struct dibs__loss_listener *dibs__loss_ref(struct dibs__loss_listener *loss)
{
    if (loss)
        atomic_fetch_add(&loss->refs, 1);
    return loss;
}

void dibs__loss_unref(struct dibs__loss_listener *loss)
{
    if (!loss || atomic_fetch_sub(&loss->refs, 1) != 1)
        return;
    pthread_mutex_lock(&mu);
    dibs__list_del(&loss->link);
    pthread_mutex_unlock(&mu);
    dibs__free(loss->name);
    dibs__free(loss);
}

/* ---- members ----------------------------------------------------------- */

/* Requires mu. */
static bool has_too_few_members(const struct dibs__loss_listener *loss)
{
    size_t left = 0;

    for (size_t i = 0; i < loss->members; i++)
        left += loss->state[i] == MEMBER_ARMED;
    return left < loss->need;
}

bool dibs__loss_arm(struct dibs__loss_listener *loss, const bool member[])
{
    if (!loss)
        return true;
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < loss->members; i++)
        if (!member || member[i])
            loss->state[i] |= MEMBER_ARMED;
    loss->armed = !has_too_few_members(loss);
    bool armed = loss->armed;
    pthread_mutex_unlock(&mu);
    return armed;
}

void dibs__loss_add(struct dibs__loss_listener *loss, size_t member)
{
    if (!loss)
        return;
    pthread_mutex_lock(&mu);
    loss->state[member] |= MEMBER_ARMED;
    pthread_mutex_unlock(&mu);
}

/* ---- notification ------------------------------------------------------ */

static void run_on_lost(struct dibs__loss_listener *loss)
{
    loss->fn(loss->name, loss->owner, loss->arg);
    pthread_mutex_lock(&mu);
    void (*done)(void *) = loss->done;
    loss->runner = NULL;
    loss->done = NULL;
    dibs__list_del(&loss->link);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&mu);
    if (done)
        done(loss->done_arg);
}

static void notification_run(struct dibs__callback *cb, bool drop)
{
    struct dibs__loss_notification *notification =
        DIBS_OF(cb, struct dibs__loss_notification, cb);
    struct dibs__loss_listener *loss = notification->loss;

    pthread_mutex_lock(&mu);
    loss->state[notification->member] |= MEMBER_LOST;
    bool runs = !drop && loss->armed && !loss->suppressed && !loss->delivered &&
                has_too_few_members(loss);
    if (runs) {
        loss->delivered = true;
        loss->runner = &this_thread;
    }
    pthread_mutex_unlock(&mu);
    if (runs)
        run_on_lost(loss);
    dibs__loss_notification_free(notification);
}

struct dibs__loss_notification *
dibs__loss_notification_new(struct dibs__loss_listener *loss, size_t member)
{
    struct dibs__loss_notification *notification =
        dibs__calloc(1, sizeof *notification);

    if (!notification)
        return NULL;
    notification->cb.run = notification_run;
    notification->loss = dibs__loss_ref(loss);
    notification->member = member;
    return notification;
}

void dibs__loss_notification_free(struct dibs__loss_notification *notification)
{
    if (!notification)
        return;
    dibs__loss_unref(notification->loss);
    dibs__free(notification);
}

void dibs__loss_notification_push(struct dibs__loss_notification *notification,
                                  struct dibs__callbacks *cbs)
{
    struct dibs__loss_listener *loss = notification->loss;

    pthread_mutex_lock(&mu);
    bool suppressed = loss->suppressed;
    if (!suppressed && !dibs__list_linked(&loss->link))
        dibs__list_add(&pending, &loss->link);
    pthread_mutex_unlock(&mu);
    if (suppressed)
        dibs__loss_notification_free(notification);
    else
        dibs__callbacks_push(cbs, &notification->cb);
}

/* ---- suppression ------------------------------------------------------- */

void dibs__loss_suppress(struct dibs__loss_listener *loss)
{
    if (!loss)
        return;
    pthread_mutex_lock(&mu);
    loss->suppressed = true;
    pthread_mutex_unlock(&mu);
}

/* Returns whether waiting for this on_lost would deadlock: this thread runs it,
 * or its thread waits, directly or not, for this thread. */
static bool would_deadlock(const struct dibs__loss_listener *loss)
{
    const struct callback_runner *runner = loss->runner;

    while (runner && runner != &this_thread)
        runner = runner->waits_for ? runner->waits_for->runner : NULL;
    return runner != NULL;
}

/* Requires mu, and a reference to loss. */
static void suppress_and_wait(struct dibs__loss_listener *loss)
{
    loss->suppressed = true;
    while (loss->runner && !would_deadlock(loss)) {
        this_thread.waits_for = loss;
        pthread_cond_wait(&ended, &mu);
        this_thread.waits_for = NULL;
    }
}

void dibs__loss_suppress_and_wait(struct dibs__loss_listener *loss)
{
    if (!loss)
        return;
    pthread_mutex_lock(&mu);
    suppress_and_wait(loss);
    pthread_mutex_unlock(&mu);
}

/* Suppresses the pending listeners of this owner in a scope; owner 0: of all
 * owners. Returns one whose on_lost runs on another thread, with a reference,
 * or NULL. Requires mu. */
static struct dibs__loss_listener *suppress_pending(const void *scope,
                                                    dibs_owner owner)
{
    struct dibs__loss_listener *found = NULL;

    for (struct dibs__list *l = pending.next; l != &pending; l = l->next) {
        struct dibs__loss_listener *loss =
            DIBS_OF(l, struct dibs__loss_listener, link);
        if (loss->scope != scope || (owner && loss->owner != owner))
            continue;
        loss->suppressed = true;
        if (loss->runner && !would_deadlock(loss))
            found = loss;
    }
    return dibs__loss_ref(found);
}

void dibs__losses_suppress_and_wait(const void *scope, dibs_owner owner)
{
    struct dibs__loss_listener *loss;

    pthread_mutex_lock(&mu);
    while ((loss = suppress_pending(scope, owner))) {
        suppress_and_wait(loss);
        pthread_mutex_unlock(&mu);
        dibs__loss_unref(loss);
        pthread_mutex_lock(&mu);
    }
    pthread_mutex_unlock(&mu);
}

struct dibs__loss_listener *dibs__losses_suppress(const void *scope,
                                                  dibs_owner owner)
{
    pthread_mutex_lock(&mu);
    struct dibs__loss_listener *loss = suppress_pending(scope, owner);
    pthread_mutex_unlock(&mu);
    return loss;
}

bool dibs__loss_on_done(struct dibs__loss_listener *loss,
                        void (*done)(void *arg), void *arg)
{
    if (!loss)
        return false;
    pthread_mutex_lock(&mu);
    loss->suppressed = true;
    bool runs = loss->runner != NULL;
    if (runs) {
        loss->done = done;
        loss->done_arg = arg;
    }
    pthread_mutex_unlock(&mu);
    return runs;
}
