/* SPDX-License-Identifier: MIT
 *
 * member_subscriptions.c - an operation on several locks listens to its
 * members' channels.
 *
 * Thread  any; each ear is on the io thread of its member's client.
 * Locks   none.
 *
 * How     Each member's client has its own connection for messages, so there is
 *         an ear for each member. An ear counts as work of its client: one that
 *         closes does not go before the ear has left, and makes it leave.
 *
 *         Each ear has a reference while it listens, and one for the task that
 *         ends it. A client that is closing takes no task; it ends the ear.
 */
#include "group/member_subscriptions.h"

#include "base/mem.h"
#include "lock/core/shutdown_hook.h"

struct ear {
    struct dibs__shutdown_hook work; /* see there */
    struct dibs__subscription sub;   /* io only */
    struct dibs__task start, stop;
    struct dibs__member_subscriptions *all;
    size_t member;
    bool on, ready; /* io only: it listens; it has heard that it will hear */
};

struct dibs__member_subscriptions {
    atomic_uint refs;
    atomic_size_t ready; /* ears that hear */
    struct dibs__group *g;
    void (*told)(void *arg, size_t member);
    void (*over)(void *arg);
    void *arg;
    struct ear ear[];
};

static void ears_unref(struct dibs__member_subscriptions *ears)
{
    if (atomic_fetch_sub(&ears->refs, 1) != 1)
        return;
    void (*over)(void *arg) = ears->over;
    void *arg = ears->arg;
    dibs__free(ears);
    over(arg);
}

static struct dibs__lock_entry *line_of(const struct ear *e)
{
    return e->all->g->members[e->member].entry;
}

/* ---- one ear, on its member's io thread -------------------------------- */

static void ear_hears(struct dibs__subscription *sub, char said)
{
    struct ear *e = DIBS_OF(sub, struct ear, sub);

    (void)said;
    if (!e->ready && dibs__is_subscribed(sub)) {
        e->ready = true;
        atomic_fetch_add(&e->all->ready, 1);
    }
    if (!e->work.closing)
        e->all->told(e->all->arg, e->member);
}

static void ear_end(struct ear *e)
{
    struct dibs__lock_manager *manager = line_of(e)->manager;

    if (!e->on)
        return;
    e->on = false;
    dibs__unsubscribe(&e->sub);
    dibs__shutdown_hook_unregister(manager, &e->work);
    ears_unref(e->all);
    atomic_fetch_sub(&manager->in_flight, 1);
}

static void ear_closed(struct dibs__shutdown_hook *w)
{
    ear_end(DIBS_OF(w, struct ear, work));
}

static void ear_start(struct dibs__task *t)
{
    struct ear *e = DIBS_OF(t, struct ear, start);
    struct dibs__lock_entry *entry = line_of(e);

    e->on = true;
    dibs__shutdown_hook_register(entry->manager, &e->work);
    /* No memory: it hears nothing, and is not counted. */
    (void)dibs__entry_subscribe(entry, &e->sub);
}

static void ear_stop(struct dibs__task *t)
{
    struct ear *e = DIBS_OF(t, struct ear, stop);
    struct dibs__member_subscriptions *all = e->all;

    ear_end(e);
    ears_unref(all);
}

/* ---- all --------------------------------------------------------------- */

static void ear_open(struct ear *e)
{
    const struct dibs__member *m = &e->all->g->members[e->member];

    e->work =
        (struct dibs__shutdown_hook){.close = ear_closed, .over = ear_closed};
    e->sub.hear = ear_hears;
    e->start.run = ear_start;
    e->stop.run = ear_stop;
    if (dibs__client_enter(m->c) != DIBS_OK)
        return;
    atomic_fetch_add(&m->entry->manager->in_flight, 1);
    atomic_fetch_add(&e->all->refs, 1);
    dibs__loop_post(&m->c->loop, &e->start);
    dibs__client_leave(m->c);
}

struct dibs__member_subscriptions *
dibs__member_subscriptions_open(struct dibs__group *g,
                                void (*told)(void *arg, size_t member),
                                void (*over)(void *arg), void *arg)
{
    struct dibs__member_subscriptions *ears =
        dibs__calloc(1, sizeof *ears + g->n * sizeof ears->ear[0]);

    if (!ears)
        return NULL;
    atomic_init(&ears->refs, 1);
    ears->g = g;
    ears->told = told;
    ears->over = over;
    ears->arg = arg;
    for (size_t i = 0; i < g->n; i++) {
        ears->ear[i].all = ears;
        ears->ear[i].member = i;
        ear_open(&ears->ear[i]);
    }
    return ears;
}

void dibs__member_subscriptions_close(struct dibs__member_subscriptions *ears)
{
    struct dibs__group *g = ears->g;

    for (size_t i = 0; i < g->n; i++) {
        if (dibs__client_enter(g->members[i].c) != DIBS_OK)
            continue; /* it ends its ear itself */
        atomic_fetch_add(&ears->refs, 1);
        dibs__loop_post(&g->members[i].c->loop, &ears->ear[i].stop);
        dibs__client_leave(g->members[i].c);
    }
    ears_unref(ears);
}

size_t dibs__member_subscriptions_ready_count(
    const struct dibs__member_subscriptions *ears)
{
    return atomic_load(&ears->ready);
}
