/* SPDX-License-Identifier: MIT
 *
 * loss_notify.c - telling an owner that what it held is lost.
 *
 * Thread  any; on_lost itself runs where callbacks run.
 * Locks   one mutex of its own, for all losses of the process: a leaf, never
 *         held while anything else is done. Losses are rare.
 *
 * How     Each acquire that gave an on_lost has a loss. When a hold is lost,
 *         its note travels to where callbacks run. There it is decided whether
 *         there is something to tell: a group can lose some of its members.
 *
 *         A release hushes the loss before it returns: on_lost does not begin
 *         after that. If on_lost runs on another thread just then, a sync
 *         release waits for it, and the callback of an async one is held back.
 *         So the argument may be freed once the release has returned.
 *
 * Trouble A release inside on_lost must not wait for itself. Two callbacks,
 *         each on a thread of its own, may release each other's lock: the
 *         second one finds that the first waits for it, and goes on.
 */
#include "lock/lease/loss_notify.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { COUNTS = 1, LOST = 2 }; /* of a member */

/* A thread that may run on_lost, and what it waits for meanwhile. */
struct teller {
    struct dibs__loss_listener *waits_for; /* mu */
};

struct dibs__loss_listener {
    struct dibs__list link; /* mu: in `moving` */
    atomic_int refs;
    const void *place; /* all of these: const after init */
    dibs_lost_cb fn;
    void *arg;
    dibs_owner owner;
    size_t members, need;
    char *name;
    bool armed, hushed, told; /* mu */
    struct teller *teller;    /* mu: on_lost runs there */
    void (*then)(void *arg);  /* mu: what waits for its end */
    void *then_arg;
    unsigned char state[]; /* mu: of each member */
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
/* mu: those with a note on its way, and those that are being told. */
static struct dibs__list moving = {&moving, &moving};
static _Thread_local struct teller me;

/* ---- its life ---------------------------------------------------------- */

struct dibs__loss_listener *dibs__loss_new(const void *place,
                                           const dibs_lock_opts *o,
                                           size_t members, size_t need)
{
    struct dibs__loss_listener *loss = dibs__calloc(1, sizeof *loss + members);

    if (!loss)
        return NULL;
    atomic_init(&loss->refs, 1);
    loss->place = place;
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
        dibs__loss_new(loss->place, &o, loss->members, loss->need), loss->name,
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

/* ---- counting ---------------------------------------------------------- */

/* Under mu. */
static bool is_over(const struct dibs__loss_listener *loss)
{
    size_t left = 0;

    for (size_t i = 0; i < loss->members; i++)
        left += loss->state[i] == COUNTS;
    return left < loss->need;
}

bool dibs__loss_arm(struct dibs__loss_listener *loss, const bool member[])
{
    if (!loss)
        return true;
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < loss->members; i++)
        if (!member || member[i])
            loss->state[i] |= COUNTS;
    loss->armed = !is_over(loss);
    bool armed = loss->armed;
    pthread_mutex_unlock(&mu);
    return armed;
}

void dibs__loss_add(struct dibs__loss_listener *loss, size_t member)
{
    if (!loss)
        return;
    pthread_mutex_lock(&mu);
    loss->state[member] |= COUNTS;
    pthread_mutex_unlock(&mu);
}

/* ---- telling ----------------------------------------------------------- */

static void tell_loss(struct dibs__loss_listener *loss)
{
    loss->fn(loss->name, loss->owner, loss->arg);
    pthread_mutex_lock(&mu);
    void (*then)(void *) = loss->then;
    loss->teller = NULL;
    loss->then = NULL;
    dibs__list_del(&loss->link);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&mu);
    if (then)
        then(loss->then_arg);
}

static void note_run(struct dibs__callback *cb, bool drop)
{
    struct dibs__loss_notification *notification =
        DIBS_OF(cb, struct dibs__loss_notification, cb);
    struct dibs__loss_listener *loss = notification->loss;

    pthread_mutex_lock(&mu);
    loss->state[notification->member] |= LOST;
    bool tells =
        !drop && loss->armed && !loss->hushed && !loss->told && is_over(loss);
    if (tells) {
        loss->told = true;
        loss->teller = &me;
    }
    pthread_mutex_unlock(&mu);
    if (tells)
        tell_loss(loss);
    dibs__loss_notification_free(notification);
}

struct dibs__loss_notification *
dibs__loss_notification_new(struct dibs__loss_listener *loss, size_t member)
{
    struct dibs__loss_notification *notification =
        dibs__calloc(1, sizeof *notification);

    if (!notification)
        return NULL;
    notification->cb.run = note_run;
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
    bool hushed = loss->hushed;
    if (!hushed && !dibs__list_linked(&loss->link))
        dibs__list_add(&moving, &loss->link);
    pthread_mutex_unlock(&mu);
    if (hushed)
        dibs__loss_notification_free(notification);
    else
        dibs__callbacks_push(cbs, &notification->cb);
}

/* ---- no more of it ----------------------------------------------------- */

void dibs__loss_suppress(struct dibs__loss_listener *loss)
{
    if (!loss)
        return;
    pthread_mutex_lock(&mu);
    loss->hushed = true;
    pthread_mutex_unlock(&mu);
}

/* This thread runs it, or what it runs waits in turn for this thread. */
static bool leads_here(const struct dibs__loss_listener *loss)
{
    const struct teller *at = loss->teller;

    while (at && at != &me)
        at = at->waits_for ? at->waits_for->teller : NULL;
    return at != NULL;
}

/* Under mu, with a reference. */
static void await_teller(struct dibs__loss_listener *loss)
{
    loss->hushed = true;
    while (loss->teller && !leads_here(loss)) {
        me.waits_for = loss;
        pthread_cond_wait(&ended, &mu);
        me.waits_for = NULL;
    }
}

void dibs__loss_suppress_and_wait(struct dibs__loss_listener *loss)
{
    if (!loss)
        return;
    pthread_mutex_lock(&mu);
    await_teller(loss);
    pthread_mutex_unlock(&mu);
}

/* One that runs elsewhere, with a reference; all are hushed. Under mu. */
static struct dibs__loss_listener *find_running(const void *place,
                                                dibs_owner owner)
{
    struct dibs__loss_listener *found = NULL;

    for (struct dibs__list *l = moving.next; l != &moving; l = l->next) {
        struct dibs__loss_listener *loss =
            DIBS_OF(l, struct dibs__loss_listener, link);
        if (loss->place != place || (owner && loss->owner != owner))
            continue;
        loss->hushed = true;
        if (loss->teller && !leads_here(loss))
            found = loss;
    }
    return dibs__loss_ref(found);
}

void dibs__losses_suppress_and_wait(const void *place, dibs_owner owner)
{
    struct dibs__loss_listener *loss;

    pthread_mutex_lock(&mu);
    while ((loss = find_running(place, owner))) {
        await_teller(loss);
        pthread_mutex_unlock(&mu);
        dibs__loss_unref(loss);
        pthread_mutex_lock(&mu);
    }
    pthread_mutex_unlock(&mu);
}

struct dibs__loss_listener *dibs__losses_suppress(const void *place,
                                                  dibs_owner owner)
{
    pthread_mutex_lock(&mu);
    struct dibs__loss_listener *loss = find_running(place, owner);
    pthread_mutex_unlock(&mu);
    return loss;
}

bool dibs__loss_on_done(struct dibs__loss_listener *loss,
                        void (*then)(void *arg), void *arg)
{
    if (!loss)
        return false;
    pthread_mutex_lock(&mu);
    loss->hushed = true;
    bool runs = loss->teller != NULL;
    if (runs) {
        loss->then = then;
        loss->then_arg = arg;
    }
    pthread_mutex_unlock(&mu);
    return runs;
}
