/* SPDX-License-Identifier: MIT
 *
 * orphan_reaper.c - releases orphans: what the server grants to an owner id
 * that no operation uses any more.
 *
 * Thread  io; dibs__orphan_release, dibs__hold_expire_locally and
 *         dibs__fair_queue_gc from any.
 *
 * Orphan  A command that was given up may execute late and take a lock for an
 *         abandoned owner id. No client would renew that lock, but others
 *         would wait for a whole lease. So the reaper sends FORCE for that id:
 *         at once, then at intervals that grow up to a second, until one lease
 *         (or a minute) after the first reply. An error reply does not end it
 *         earlier: a server whose disk is full may recover. After a release
 *         with hold_off_ms that got no reply, the reaper begins after that
 *         time.
 *
 * Expired A hold that expired by our clock still exists on the server for the
 *         drift margin. When it is released, its owner gets another owner id,
 *         and one FORCE that gets a reply ends the remainder. One mode of a
 *         read-write lock needs that at once, without a release: the other
 *         mode may keep the key alive, and the reader may want to write. Each
 *         mode has commands of its own, which do not affect the other mode.
 *
 * Close   When a client closes, the reaper releases all holds, and sends FORCE
 *         once more for each orphan: a late copy may have executed since the
 *         last one. There the first reply ends it.
 *
 * Queue   A waiter that was woken when a fair lock became free may be dead or
 *         stopped. So the reaper sends FORCE for owner id 0, which holds
 *         nothing, a second or two later, and again until an owner has the
 *         lock: the script evicts such waiters and wakes the next one.
 */
#include "base/mem.h"
#include "lock/core/lock_manager.h"

#define INTERVAL_MIN_MS 50
#define INTERVAL_MAX_MS 1000
#define LATE_COPY_MS    60000 /* limit of late copies after a reply */
#define IN_USE_MS       5     /* closing: the id's operation ends soon */
#define GC_MS           1050  /* an unsubscribed waiter is evicted after 1 s */
#define GC_WOKEN_MS     2000  /* a woken waiter retries by then */
#define GC_TOTAL_MS     10000 /* after that, other waiters have retried */

struct orphan_release {
    struct dibs__command command;
    struct dibs__task start;
    struct dibs__timer timer;
    struct dibs__list link; /* in manager.orphans; io only */
    struct dibs__lock_entry *entry;
    uint64_t owner_id;
    dibs_owner retire_owner; /* its owner id is retired at the start; or 0 */
    int64_t lease_ms;
    int64_t until; /* INT64_MAX before the first reply */
    int64_t interval_ms;
    bool on_close;     /* the client closes: the first reply ends it */
    bool confirmed;    /* a reply without error has come */
    bool is_gc;        /* of a fair queue; owner_id is 0 */
    bool is_remainder; /* no late copy can execute; the server's TTL ends it,
                          too */
    bool delayed;      /* not sent before its hold_off_ms has passed */
    bool in_flight;
};

static void orphan_release_send(struct orphan_release *r);

static void orphan_release_free(struct orphan_release *r)
{
    if (r->is_gc)
        atomic_store(&r->entry->gc_running, false);
    dibs__timer_stop(&dibs__entry_client(r->entry)->loop, &r->timer);
    dibs__list_del(&r->link);
    dibs__entry_unref(r->entry);
    dibs__free(r);
}

static void orphan_release_write(struct dibs__command *cmd,
                                 struct dibs__buf *out, bool whole)
{
    struct orphan_release *r = DIBS_OF(cmd, struct orphan_release, command);
    struct dibs__command_args args = {.entry = r->entry,
                                      .owner_id = r->owner_id};
    /* FORCE of a reader scans all readers, RELEASE does not. */
    enum dibs__lock_command verb =
        r->entry->type->shared ? VERB_RELEASE : VERB_FORCE;

    dibs__lock_command_encode(verb, &args, out, whole);
}

static void log_reaped(const struct orphan_release *r)
{
    dibs__entry_log_event(r->entry, DIBS_EVENT_REAPED, DIBS_OK,
                          "released an orphan of '%.80s'", r->entry->name);
}

static bool is_released_reply(const struct orphan_release *r,
                              const struct dibs__reply *reply)
{
    return reply && reply->type == REPLY_NUM &&
           (reply->num == SCRIPT_ENDED ||
            (reply->num > SCRIPT_ENDED && !r->entry->type->has_server_queue));
}

static bool is_woken_reply(const struct dibs__reply *reply)
{
    return reply && reply->type == REPLY_NUM &&
           reply->num == SCRIPT_WAITER_WOKEN;
}

static void orphan_release_replied(struct dibs__command *cmd, dibs_err err,
                                   const struct dibs__reply *reply)
{
    struct orphan_release *r = DIBS_OF(cmd, struct orphan_release, command);
    struct dibs__lock_manager *manager = r->entry->manager;
    int64_t now = dibs__now_ms();
    /* Or only transient errors until the deadline of the command. */
    bool no_reply = err != DIBS_OK && !reply;

    r->in_flight = false;
    if (err == DIBS_ERR_WRONGTYPE)
        err = DIBS_OK; /* the key is no lock, so nothing is held */
    if (is_released_reply(r, reply) && !r->on_close && !r->is_remainder)
        log_reaped(r);
    r->confirmed |= err == DIBS_OK;
    if (!no_reply && r->until == INT64_MAX)
        r->until = dibs__add(now, dibs__min(r->lease_ms, LATE_COPY_MS));
    bool done = now >= r->until || manager->orphans_abandoned ||
                manager->c->closing_conns || (r->on_close && !no_reply) ||
                (r->is_gc && !is_woken_reply(reply));
    if (done && r->on_close && err != DIBS_OK && !r->is_gc)
        manager->orphan_release_failed = true;
    if (done) {
        orphan_release_free(r);
        return;
    }
    r->interval_ms = dibs__min(
        r->interval_ms ? r->interval_ms * 2 : INTERVAL_MIN_MS, INTERVAL_MAX_MS);
    if (r->is_gc)
        r->interval_ms = GC_MS;
    dibs__timer_set(&manager->c->loop, &r->timer,
                    dibs__min(now + r->interval_ms, r->until));
}

static bool is_owner_id_used(struct dibs__lock_entry *entry, uint64_t owner_id)
{
    dibs__lock(&entry->mu);
    struct dibs__hold *h = dibs__hold_with_id(entry, owner_id);
    bool used =
        (h && h->state != HOLD_LOST) || dibs__entry_id_waits(entry, owner_id);
    dibs__unlock(&entry->mu);
    return used;
}

/* FORCE would also end a hold of the same owner id as another type of
 * LAYOUT_HASH, since these types share one hash. A closing client releases all
 * of them. */
static bool is_used_as_other_type(const struct orphan_release *r)
{
    bool used = false;

    if (r->on_close || r->entry->type->layout != LAYOUT_HASH)
        return false;
    for (struct dibs__lock_entry *l = NULL;
         (l = dibs__entry_next_in_family(r->entry, l));)
        used |= is_owner_id_used(l, r->owner_id);
    return used;
}

/* Returns whether a hold or an operation has this owner id: what it is granted
 * must not be released. If a late copy takes the lock meanwhile, the reply to
 * that operation includes it. */
static bool is_in_use(struct orphan_release *r)
{
    struct dibs__lock_entry *entry = r->entry;

    if (!r->is_gc)
        return is_owner_id_used(entry, r->owner_id) || is_used_as_other_type(r);
    dibs__lock(&entry->mu);
    bool held = !dibs__list_empty(&entry->holds);
    dibs__unlock(&entry->mu);
    return held;
}

static void orphan_release_send(struct orphan_release *r)
{
    dibs_client *c = dibs__entry_client(r->entry);

    r->delayed = false;
    if (is_in_use(r)) {
        if (r->is_gc || r->is_remainder || r->entry->manager->orphans_abandoned)
            orphan_release_free(r);
        else
            dibs__timer_set(&c->loop, &r->timer,
                            dibs__now_ms() +
                                (r->on_close ? IN_USE_MS : INTERVAL_MAX_MS));
        return;
    }
    r->in_flight = true;
    r->command.write = orphan_release_write;
    r->command.on_reply = orphan_release_replied;
    dibs__entry_fill_command(r->entry, &r->command,
                             dibs__entry_timeout(r->entry), 0);
    r->command.connect_by = r->command.deadline;
    dibs__command_start(dibs__entry_route(r->entry), &r->command);
}

static void orphan_release_timed(struct dibs__timer *t)
{
    orphan_release_send(DIBS_OF(t, struct orphan_release, timer));
}

static void orphan_release_start(struct dibs__task *t)
{
    struct orphan_release *r = DIBS_OF(t, struct orphan_release, start);

    atomic_fetch_sub(&r->entry->manager->in_flight, 1);
    dibs__list_add(&r->entry->manager->orphans, &r->link);
    if (r->retire_owner)
        dibs__owner_retire(r->entry, r->retire_owner, r->owner_id,
                           RENUMBER_REST);
    if (r->is_gc && r->entry->manager->orphans_abandoned)
        orphan_release_free(r);
    else if (r->is_gc || r->delayed)
        dibs__timer_set(&dibs__entry_client(r->entry)->loop, &r->timer,
                        dibs__now_ms() + r->interval_ms);
    else
        orphan_release_send(r);
}

static struct orphan_release *orphan_release_new(struct dibs__lock_entry *entry,
                                                 uint64_t owner_id)
{
    struct orphan_release *r = dibs__calloc(1, sizeof *r);

    if (!r)
        return NULL; /* the orphan ends with its lease */
    r->entry = entry;
    dibs__entry_ref(entry);
    atomic_fetch_add(&entry->manager->in_flight, 1); /* until it starts */
    r->owner_id = owner_id;
    r->start.run = orphan_release_start;
    r->timer.fire = orphan_release_timed;
    return r;
}

void dibs__orphan_release(struct dibs__lock_entry *entry, uint64_t owner_id,
                          int64_t lease_ms)
{
    dibs__orphan_release_after(entry, owner_id, lease_ms, 0);
}

void dibs__orphan_release_after(struct dibs__lock_entry *entry,
                                uint64_t owner_id, int64_t lease_ms,
                                int64_t keep_ms)
{
    struct orphan_release *r = orphan_release_new(entry, owner_id);

    if (!r)
        return;
    r->delayed = keep_ms > 0;
    r->interval_ms = keep_ms;
    r->until = INT64_MAX;
    r->is_remainder = lease_ms == ORPHAN_REMAINDER;
    if (!r->is_remainder)
        r->lease_ms = dibs__max(lease_ms, dibs__entry_client(entry)->lease_ms);
    dibs__loop_post(&dibs__entry_client(entry)->loop, &r->start);
}

/* Releases the remainder of one mode of a read-write lock. The owner may use
 * the other mode meanwhile, so it gets another owner id first. */
static void release_expired_mode(struct dibs__lock_entry *entry,
                                 const struct dibs__hold *h)
{
    struct orphan_release *r = orphan_release_new(entry, h->owner_id);

    if (!r)
        return;
    r->retire_owner = h->owner;
    r->until = INT64_MAX;
    r->is_remainder = true;
    dibs__loop_post(&dibs__entry_client(entry)->loop, &r->start);
}

void dibs__hold_expire_locally(struct dibs__lock_entry *entry,
                               struct dibs__hold *h)
{
    struct dibs__hold_terms_sum terms = dibs__hold_terms(h);

    if (h->state != HOLD_LOST) {
        h->expired_locally = true;
        h->may_have_stale_copy |=
            terms.renewed || h->server_outlives || dibs__hold_in_doubt(h);
        if (h->may_have_stale_copy)
            dibs__orphan_release(entry, h->owner_id, terms.lease_ms);
        else if (entry->type->layout == LAYOUT_RW)
            release_expired_mode(entry, h);
    }
    dibs__hold_lose_with_text(entry, h, "its lease is over");
}

void dibs__fair_queue_gc(struct dibs__lock_entry *entry, bool woken)
{
    if (atomic_exchange(&entry->gc_running, true))
        return;
    struct orphan_release *r = orphan_release_new(entry, 0);
    if (!r) {
        atomic_store(&entry->gc_running, false);
        return;
    }
    r->is_gc = true;
    r->interval_ms = woken ? GC_WOKEN_MS : GC_MS;
    r->until = dibs__add(dibs__now_ms() + GC_TOTAL_MS,
                         2 * entry->manager->fair_call_ms);
    dibs__loop_post(&dibs__entry_client(entry)->loop, &r->start);
}

void dibs__orphan_release_on_close(struct dibs__lock_entry *entry,
                                   uint64_t owner_id)
{
    struct orphan_release *r = orphan_release_new(entry, owner_id);

    if (!r) {
        entry->manager->orphan_release_failed = true;
        return;
    }
    r->on_close = true;
    r->until = entry->manager->close_by;
    orphan_release_start(&r->start);
}

void dibs__orphans_close(struct dibs__lock_manager *manager)
{
    for (struct dibs__list *l = manager->orphans.next, *n;
         l != &manager->orphans; l = n) {
        struct orphan_release *r = DIBS_OF(l, struct orphan_release, link);
        n = l->next;
        if (r->delayed) {
            manager->orphan_release_failed = true;
            orphan_release_free(r);
        } else if (r->is_gc && r->confirmed && !r->in_flight) {
            orphan_release_free(r);
        } else if (!r->on_close && !r->in_flight) {
            r->on_close = true;
            r->until = manager->close_by;
            dibs__timer_set(&manager->c->loop, &r->timer, dibs__now_ms());
        }
    }
}

void dibs__orphans_stop(struct dibs__lock_manager *manager)
{
    manager->orphans_abandoned = true; /* a new one is sent once at most */
    for (struct dibs__list *l = manager->orphans.next, *n;
         l != &manager->orphans; l = n) {
        struct orphan_release *r = DIBS_OF(l, struct orphan_release, link);
        n = l->next;
        if (!r->in_flight)
            orphan_release_free(r);
    }
}
