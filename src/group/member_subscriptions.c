/* SPDX-License-Identifier: MIT
 *
 * member_subscriptions.c - the subscriptions of one group operation to its
 * members' channels.
 *
 * Thread  any; each subscription is on the io thread of its member's client.
 * Locks   none.
 *
 * How     Each member's client has a pub/sub connection of its own, so there is
 *         one subscription for each member. It counts as in flight on its
 *         client and has a shutdown hook: a client that closes unsubscribes
 *         first.
 *
 *         A subscription has one reference to the whole while it is active, and
 *         one for its stop task. A client that is closing accepts no task; its
 *         shutdown hook ends the subscription instead.
 */
#include "group/member_subscriptions.h"

#include "base/mem.h"
#include "lock/core/shutdown_hook.h"

struct member_subscription {
    struct dibs__shutdown_hook shutdown_hook;
    struct dibs__subscription sub; /* io only */
    struct dibs__task start_task, stop_task;
    struct dibs__member_subscriptions *all;
    size_t member;
    bool active; /* io only: started and not ended */
    bool ready;  /* io only: the server has confirmed it */
};

struct dibs__member_subscriptions {
    atomic_uint refs;
    atomic_size_t ready_count;
    struct dibs__group *g;
    void (*on_message)(void *arg, size_t member);
    void (*on_end)(void *arg);
    void *arg;
    struct member_subscription members[]; /* group.n of them */
};

static void subscriptions_unref(struct dibs__member_subscriptions *subs)
{
    if (atomic_fetch_sub(&subs->refs, 1) != 1)
        return;
    void (*on_end)(void *arg) = subs->on_end;
    void *arg = subs->arg;
    dibs__free(subs);
    on_end(arg);
}

static struct dibs__lock_entry *
subscription_entry(const struct member_subscription *ms)
{
    return ms->all->g->members[ms->member].entry;
}

/* ---- one subscription, on its member's io thread ----------------------- */

static void on_channel_event(struct dibs__subscription *sub, char said)
{
    struct member_subscription *ms =
        DIBS_OF(sub, struct member_subscription, sub);

    (void)said;
    if (!ms->ready && dibs__subscription_is_ready(sub)) {
        ms->ready = true;
        atomic_fetch_add(&ms->all->ready_count, 1);
    }
    if (!ms->shutdown_hook.closing)
        ms->all->on_message(ms->all->arg, ms->member);
}

static void subscription_end(struct member_subscription *ms)
{
    struct dibs__lock_manager *manager = subscription_entry(ms)->manager;

    if (!ms->active)
        return;
    ms->active = false;
    dibs__unsubscribe(&ms->sub);
    dibs__shutdown_hook_unregister(manager, &ms->shutdown_hook);
    subscriptions_unref(ms->all);
    atomic_fetch_sub(&manager->in_flight, 1);
}

static void subscription_client_shutdown(struct dibs__shutdown_hook *hook)
{
    subscription_end(DIBS_OF(hook, struct member_subscription, shutdown_hook));
}

static void subscription_start_task(struct dibs__task *t)
{
    struct member_subscription *ms =
        DIBS_OF(t, struct member_subscription, start_task);
    struct dibs__lock_entry *entry = subscription_entry(ms);

    ms->active = true;
    dibs__shutdown_hook_register(entry->manager, &ms->shutdown_hook);
    /* Out of memory: it never becomes ready; the operation polls. */
    (void)dibs__entry_subscribe(entry, &ms->sub);
}

static void subscription_stop_task(struct dibs__task *t)
{
    struct member_subscription *ms =
        DIBS_OF(t, struct member_subscription, stop_task);
    struct dibs__member_subscriptions *all = ms->all;

    subscription_end(ms);
    subscriptions_unref(all);
}

/* ---- all members ------------------------------------------------------- */

static void subscription_start(struct member_subscription *ms)
{
    const struct dibs__member *m = &ms->all->g->members[ms->member];

    ms->shutdown_hook = (struct dibs__shutdown_hook){
        .on_close = subscription_client_shutdown,
        .on_close_timeout = subscription_client_shutdown};
    ms->sub.on_message = on_channel_event;
    ms->start_task.run = subscription_start_task;
    ms->stop_task.run = subscription_stop_task;
    if (dibs__client_enter(m->c) != DIBS_OK)
        return;
    atomic_fetch_add(&m->entry->manager->in_flight, 1);
    atomic_fetch_add(&ms->all->refs, 1);
    dibs__loop_post(&m->c->loop, &ms->start_task);
    dibs__client_leave(m->c);
}

struct dibs__member_subscriptions *
dibs__member_subscriptions_open(struct dibs__group *g,
                                void (*on_message)(void *arg, size_t member),
                                void (*on_end)(void *arg), void *arg)
{
    struct dibs__member_subscriptions *subs =
        dibs__calloc(1, sizeof *subs + g->n * sizeof subs->members[0]);

    if (!subs)
        return NULL;
    atomic_init(&subs->refs, 1);
    subs->g = g;
    subs->on_message = on_message;
    subs->on_end = on_end;
    subs->arg = arg;
    for (size_t i = 0; i < g->n; i++) {
        subs->members[i].all = subs;
        subs->members[i].member = i;
        subscription_start(&subs->members[i]);
    }
    return subs;
}

void dibs__member_subscriptions_close(struct dibs__member_subscriptions *subs)
{
    struct dibs__group *g = subs->g;

    for (size_t i = 0; i < g->n; i++) {
        if (dibs__client_enter(g->members[i].c) != DIBS_OK)
            continue; /* the shutdown hook ends the subscription */
        atomic_fetch_add(&subs->refs, 1);
        dibs__loop_post(&g->members[i].c->loop, &subs->members[i].stop_task);
        dibs__client_leave(g->members[i].c);
    }
    subscriptions_unref(subs);
}

size_t dibs__member_subscriptions_ready_count(
    const struct dibs__member_subscriptions *subs)
{
    return atomic_load(&subs->ready_count);
}
