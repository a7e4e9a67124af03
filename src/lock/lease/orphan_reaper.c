/* SPDX-License-Identifier: MIT
 *
 * orphan_reaper.c - taking back what nobody can use: the reaper.
 *
 * A command that was given up may run later and take a lock for a number that
 * is not used any more. Nobody would renew that lock, but other clients would
 * have to wait for a whole lease. So the reaper asks the server from time to
 * time to end whatever that number holds: at once, then at growing distances up
 * to a second, until one lease (or a minute) after its first answer.
 * A refusal does not end it earlier: a server whose disk is full may have room
 * in a second. What a release was to keep for some time, and nobody knows
 * whether the server heard it, is taken back after that time.
 *
 * A hold that our clock has ended is on the server for a little longer, by the
 * margin for clocks. When it is released, its owner goes on under another
 * number, and the rest of it is ended, by one command that is answered. Of one
 * half of a read-write lock the rest is ended at once, without a release: the
 * other half may keep the key, and who had a read wants to write.
 *
 * The halves of a read-write lock are ended by commands of their own: what is
 * ended in the one does not touch the other.
 *
 * When a client closes, the reaper also gives back what its owners still hold,
 * and asks once more for what it looks after: a copy may have run since it
 * asked last. There it ends with the first clear answer. And it sweeps: the
 * waiter that was called when a fair lock became free may be dead, or stopped.
 * So the reaper looks after the queue a second or two later, and again, until
 * the lock is taken. The number is 0 then, which holds nothing.
 *
 * Thread  io; dibs__orphan_release, dibs__hold_expire_locally and
 * dibs__fair_queue_gc from any.
 */
#include "base/mem.h"
#include "lock/core/lock_manager.h"

#define FIRST_MS   50
#define MAX_MS     1000
#define LONGEST_MS 60000 /* no copy runs later, once the server answers */
#define IN_USE_MS  5    /* a closing client ends what goes by the number soon */
#define SWEEP_MS   1050 /* a waiter that did not hear has a second */
#define HEARD_MS   2000 /* one that did has asked by then, or is stopped */
#define SWEEPS_MS  10000 /* after that, others will have asked */

struct reap {
    struct dibs__command call;
    struct dibs__task start;
    struct dibs__timer timer;
    struct dibs__list at; /* in locks.reaps; io only */
    struct dibs__lock_entry *line;
    uint64_t wire;
    dibs_owner owner; /* 0, or whose number is retired before it asks */
    int64_t lease_ms;
    int64_t until; /* INT64_MAX before the first answer */
    int64_t wait_ms;
    bool once;  /* the first clear answer ends it */
    bool clear; /* the server has answered, and not with a refusal */
    bool sweep; /* it only calls */
    bool rest;  /* no copy can run: whatever is there ends soon by itself */
    bool later; /* it must not ask yet: what it takes back is to be kept */
    bool asking;
};

static void reap_ask(struct reap *r);

static void reap_end(struct reap *r)
{
    if (r->sweep)
        atomic_store(&r->line->gc_running, false);
    dibs__timer_stop(&dibs__entry_client(r->line)->loop, &r->timer);
    dibs__list_del(&r->at);
    dibs__entry_unref(r->line);
    dibs__free(r);
}

static void reap_write(struct dibs__command *cmd, struct dibs__buf *out,
                       bool whole)
{
    struct reap *r = DIBS_OF(cmd, struct reap, call);
    struct dibs__command_args args = {.entry = r->line, .owner_id = r->wire};
    /* A reader of ours ends like any other, so that the end of many costs no
     * more than that of each. */
    enum dibs__lock_command verb =
        r->line->type->shared ? VERB_RELEASE : VERB_FORCE;

    dibs__lock_command_write(verb, &args, out, whole);
}

static void tell_reaped(const struct reap *r)
{
    dibs__entry_log_event(r->line, DIBS_EVENT_REAPED, DIBS_OK,
                          "took back '%.80s'", r->line->name);
}

static bool has_ended(const struct reap *r, const struct dibs__reply *reply)
{
    return reply && reply->type == REPLY_NUM &&
           (reply->num == SCRIPT_ENDED ||
            (reply->num > SCRIPT_ENDED && !r->line->type->has_server_queue));
}

/* It is free, and somebody was called. */
static bool is_silent(const struct dibs__reply *reply)
{
    return reply && reply->type == REPLY_NUM &&
           reply->num == SCRIPT_WAITER_WOKEN;
}

static void reap_answered(struct dibs__command *cmd, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct reap *r = DIBS_OF(cmd, struct reap, call);
    struct dibs__lock_manager *manager = r->line->manager;
    int64_t now = dibs__now_ms();
    /* No reply, or "not now" until its time was over. */
    bool silent = err != DIBS_OK && !reply;

    r->asking = false;
    if (err == DIBS_ERR_WRONGTYPE)
        err = DIBS_OK; /* no hash, no hold: that is an answer too */
    if (has_ended(r, reply) && !r->once && !r->rest)
        tell_reaped(r);
    r->clear |= err == DIBS_OK;
    if (!silent && r->until == INT64_MAX)
        r->until = dibs__add(now, dibs__min(r->lease_ms, LONGEST_MS));
    bool done = now >= r->until || manager->orphans_abandoned ||
                manager->c->ending || (r->once && !silent) ||
                (r->sweep && !is_silent(reply));
    if (done && r->once && err != DIBS_OK && !r->sweep)
        manager->orphan_release_failed = true;
    if (done) {
        reap_end(r);
        return;
    }
    r->wait_ms = dibs__min(r->wait_ms ? r->wait_ms * 2 : FIRST_MS, MAX_MS);
    if (r->sweep)
        r->wait_ms = SWEEP_MS;
    dibs__timer_set(&manager->c->loop, &r->timer,
                    dibs__min(now + r->wait_ms, r->until));
}

static bool is_wire_used(struct dibs__lock_entry *entry, uint64_t wire)
{
    dibs__lock(&entry->mu);
    struct dibs__hold *h = dibs__hold_with_id(entry, wire);
    bool used =
        (h && h->state != HOLD_LOST) || dibs__entry_id_waits(entry, wire);
    dibs__unlock(&entry->mu);
    return used;
}

/* All kinds of the plain family are one lock: what the owner has, or waits for,
 * as another kind must not be taken back, either. A client that closes gives
 * back all of it. */
static bool in_use_otherwise(const struct reap *r)
{
    bool used = false;

    if (r->once || r->line->type->layout != LAYOUT_HASH)
        return false;
    for (struct dibs__lock_entry *l = NULL;
         (l = dibs__entry_next_in_family(r->line, l));)
        used |= is_wire_used(l, r->wire);
    return used;
}

/* Some operation may still go by this number. What it gets must not be taken
 * back; should a late copy take the lock for it, that operation finds out. */
static bool in_use(struct reap *r)
{
    struct dibs__lock_entry *entry = r->line;

    if (!r->sweep)
        return is_wire_used(entry, r->wire) || in_use_otherwise(r);
    dibs__lock(&entry->mu);
    bool taken = !dibs__list_empty(&entry->holds); /* by us */
    dibs__unlock(&entry->mu);
    return taken;
}

static void reap_ask(struct reap *r)
{
    dibs_client *c = dibs__entry_client(r->line);

    r->later = false;
    if (in_use(r)) {
        if (r->sweep || r->rest || r->line->manager->orphans_abandoned)
            reap_end(r);
        else
            dibs__timer_set(&c->loop, &r->timer,
                            dibs__now_ms() + (r->once ? IN_USE_MS : MAX_MS));
        return;
    }
    r->asking = true;
    r->call.write = reap_write;
    r->call.done = reap_answered;
    dibs__entry_fill_command(r->line, &r->call, dibs__entry_timeout(r->line),
                             0);
    r->call.connect_by = r->call.deadline;
    dibs__command_start(dibs__entry_route(r->line), &r->call);
}

static void reap_timed(struct dibs__timer *t)
{
    reap_ask(DIBS_OF(t, struct reap, timer));
}

static void reap_start(struct dibs__task *t)
{
    struct reap *r = DIBS_OF(t, struct reap, start);

    atomic_fetch_sub(&r->line->manager->in_flight, 1);
    dibs__list_add(&r->line->manager->orphans, &r->at);
    if (r->owner)
        dibs__owner_retire(r->line, r->owner, r->wire, RENUMBER_REST);
    if (r->sweep && r->line->manager->orphans_abandoned)
        reap_end(r);
    else if (r->sweep || r->later)
        dibs__timer_set(&dibs__entry_client(r->line)->loop, &r->timer,
                        dibs__now_ms() + r->wait_ms);
    else
        reap_ask(r);
}

static struct reap *reap_new(struct dibs__lock_entry *entry, uint64_t wire)
{
    struct reap *r = dibs__calloc(1, sizeof *r);

    if (!r)
        return NULL; /* it ends with its lease */
    r->line = entry;
    dibs__entry_ref(entry);
    atomic_fetch_add(&entry->manager->in_flight, 1); /* until it starts */
    r->wire = wire;
    r->start.run = reap_start;
    r->timer.fire = reap_timed;
    return r;
}

void dibs__orphan_release(struct dibs__lock_entry *entry, uint64_t wire,
                          int64_t lease_ms)
{
    dibs__orphan_release_after(entry, wire, lease_ms, 0);
}

void dibs__orphan_release_after(struct dibs__lock_entry *entry, uint64_t wire,
                                int64_t lease_ms, int64_t keep_ms)
{
    struct reap *r = reap_new(entry, wire);

    if (!r)
        return;
    r->later = keep_ms > 0;
    r->wait_ms = keep_ms;
    r->until = INT64_MAX;
    r->rest = lease_ms == ORPHAN_REMAINDER;
    if (!r->rest)
        r->lease_ms = dibs__max(lease_ms, dibs__entry_client(entry)->lease_ms);
    dibs__loop_post(&dibs__entry_client(entry)->loop, &r->start);
}

/* What is left of one half. Its owner may go on with the other meanwhile. */
static void end_half(struct dibs__lock_entry *entry, const struct dibs__hold *h)
{
    struct reap *r = reap_new(entry, h->owner_id);

    if (!r)
        return;
    r->owner = h->owner;
    r->until = INT64_MAX;
    r->rest = true;
    dibs__loop_post(&dibs__entry_client(entry)->loop, &r->start);
}

void dibs__hold_expire_locally(struct dibs__lock_entry *entry,
                               struct dibs__hold *h)
{
    struct dibs__hold_terms_sum all = dibs__hold_terms(h);

    if (h->state != HOLD_LOST) {
        h->expired_locally = true;
        h->may_have_stale_copy |=
            all.renewed || h->server_outlives || dibs__hold_in_doubt(h);
        if (h->may_have_stale_copy)
            dibs__orphan_release(entry, h->owner_id, all.lease_ms);
        else if (entry->type->layout == LAYOUT_RW)
            end_half(entry, h);
    }
    dibs__hold_lose_by(entry, h, "its lease is over");
}

void dibs__fair_queue_gc(struct dibs__lock_entry *entry, bool heard)
{
    if (atomic_exchange(&entry->gc_running, true))
        return;
    struct reap *r = reap_new(entry, 0);
    if (!r) {
        atomic_store(&entry->gc_running, false);
        return;
    }
    r->sweep = true;
    r->wait_ms = heard ? HEARD_MS : SWEEP_MS;
    r->until =
        dibs__add(dibs__now_ms() + SWEEPS_MS, 2 * entry->manager->fair_call_ms);
    dibs__loop_post(&dibs__entry_client(entry)->loop, &r->start);
}

void dibs__release_on_close(struct dibs__lock_entry *entry, uint64_t wire)
{
    struct reap *r = reap_new(entry, wire);

    if (!r) {
        entry->manager->orphan_release_failed = true;
        return;
    }
    r->once = true;
    r->until = entry->manager->close_by;
    reap_start(&r->start);
}

void dibs__orphans_close(struct dibs__lock_manager *manager)
{
    for (struct dibs__list *l = manager->orphans.next, *n;
         l != &manager->orphans; l = n) {
        struct reap *r = DIBS_OF(l, struct reap, at);
        n = l->next;
        if (r->later) {
            manager->orphan_release_failed = true;
            reap_end(r);
        } else if (r->sweep && r->clear && !r->asking) {
            reap_end(r);
        } else if (!r->once && !r->asking) {
            r->once = true;
            r->until = manager->close_by;
            dibs__timer_set(&manager->c->loop, &r->timer, dibs__now_ms());
        }
    }
}

void dibs__orphans_stop(struct dibs__lock_manager *manager)
{
    manager->orphans_abandoned = true; /* a new one asks once at most */
    for (struct dibs__list *l = manager->orphans.next, *n;
         l != &manager->orphans; l = n) {
        struct reap *r = DIBS_OF(l, struct reap, at);
        n = l->next;
        if (!r->asking)
            reap_end(r);
    }
}
