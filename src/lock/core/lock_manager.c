/* SPDX-License-Identifier: MIT
 *
 * lock_manager.c - all locks of one client, and how they end when it closes.
 *
 * Thread  app for dibs__lock_manager_of, else io.
 * Locks   client.mu for the table of entries; entry.mu, one entry at a time.
 *
 * Close   A timer visits all entries every CLOSE_STEP_MS, until nothing is left
 *         or the time limit is over. Waiting operations end with CLOSED, the
 *         orphan reaper releases the holds, and operations in flight complete.
 *
 *         In each entry waiters end first: a release wakes the head of the
 *         server's queue, which should not be a waiter that is leaving. Entries
 *         without waiters in a server queue come first: leaving a long queue is
 *         slow, and the server executes commands in order.
 */
#include "lock/core/lock_manager.h"

#include "base/mem.h"
#include "lock/core/operation.h"
#include "lock/core/shutdown_hook.h"

#define CLOSE_STEP_MS 2
#define FAIR_WAIT_MS  300000 /* these two: defaults of client options */
#define FAIR_CALL_MS  5000

/* Frees holds that are not busy, up to the first that the server may still
 * have. Returns the owner id of that one, or 0. Sets *busy if a hold is busy.
 */
static uint64_t take_idle_hold(struct dibs__lock_entry *entry, bool *busy)
{
    uint64_t owner_id = 0;
    struct dibs__hold *next;

    dibs__lock(&entry->mu);
    for (struct dibs__hold *h = dibs__hold_next(entry, NULL); h && !owner_id;
         h = next) {
        next = dibs__hold_next(entry, h);
        if (h->busy) {
            *busy = true;
            continue;
        }
        /* A hold that expired by our clock still exists on the server for the
         * drift margin; one mode of a read-write lock exists as long as the
         * other mode keeps the key alive. */
        bool may_be_on_server =
            h->expired_locally &&
            (entry->type->layout == LAYOUT_RW ||
             dibs__now_ms() - h->valid_until < dibs__entry_timeout(entry));
        owner_id = h->state == HOLD_LOST && !may_be_on_server ? 0 : h->owner_id;
        /* A program that dispatches callbacks itself may do so after the close:
         * on_lost must not come then. (A callback thread has run them all.) */
        if (dibs__entry_client(entry)->callbacks.fd >= 0)
            dibs__hold_suppress_all_losses(h);
        dibs__hold_free(entry, h);
    }
    dibs__unlock(&entry->mu);
    return owner_id;
}

/* Has the orphan reaper release the holds of an entry. Returns whether a hold
 * is busy, which stays. */
static bool release_idle_holds(struct dibs__lock_entry *entry)
{
    bool busy = false;
    uint64_t owner_id;

    while ((owner_id = take_idle_hold(entry, &busy)))
        dibs__orphan_release_on_close(entry, owner_id);
    return busy;
}

/* Does the entry have waiters in a queue on the server, which must leave it? */
static bool has_queued_waiters(struct dibs__lock_entry *entry)
{
    dibs__lock(&entry->mu);
    bool queued = dibs__lock_type_has(entry->type, VERB_LEAVE_QUEUE) &&
                  !dibs__list_empty(&entry->wait_queue.waiters);
    dibs__unlock(&entry->mu);
    return queued;
}

/* Returns whether the entry has no waiters and no busy holds left. */
static bool close_entry(struct dibs__lock_entry *entry)
{
    dibs__wait_queue_expire(&entry->wait_queue);
    bool busy = release_idle_holds(entry);
    dibs__lock(&entry->mu);
    bool waiting = dibs__wait_queue_close(&entry->wait_queue);
    dibs__unlock(&entry->mu);
    return !busy && !waiting;
}

static void close_step(struct dibs__timer *t)
{
    struct dibs__lock_manager *manager =
        DIBS_OF(t, struct dibs__lock_manager, close_timer);
    int64_t now = dibs__now_ms();
    bool empty = true;

    for (struct dibs__lock_entry *entry = NULL;
         (entry = dibs__entry_next(manager, entry));)
        if (!has_queued_waiters(entry))
            (void)close_entry(entry);
    for (struct dibs__lock_entry *entry = NULL;
         (entry = dibs__entry_next(manager, entry));)
        empty &= close_entry(entry);
    dibs__orphans_close(manager);
    dibs__shutdown_hooks_close(manager);
    empty &= dibs__list_empty(&manager->orphans) &&
             atomic_load(&manager->in_flight) == 0;
    if (!empty && now < manager->close_by) {
        /* Not from the start of this step: if that took long, the timer would
         * be due at once, and the loop would not poll its sockets. */
        dibs__timer_set(&manager->c->loop, &manager->close_timer,
                        dibs__now_ms() + CLOSE_STEP_MS);
        return;
    }
    dibs__orphans_stop(manager);
    dibs__shutdown_hooks_expire(manager);
    dibs__client_wait_empty(manager->c,
                            empty && !manager->orphan_release_failed);
}

static void manager_close(void *arg, int64_t deadline)
{
    struct dibs__lock_manager *manager = arg;

    manager->close_by = deadline;
    atomic_store(&manager->closing, true);
    manager->close_timer.fire = close_step;
    dibs__topology_fail_waiting(manager->c, DIBS_ERR_CLOSED);
    close_step(&manager->close_timer);
}

static void manager_free(void *arg)
{
    struct dibs__lock_manager *manager = arg;

    dibs__owners_free(manager);
    dibs__holder_values_clear(&manager->holder_values);
    dibs__adopted_clear(&manager->adopted);
    dibs__free(manager);
}

/* Verifies the holds of an entry. One in a renewal batch is verified after the
 * reply to that: the reply may be of the connection before. */
static void mark_needs_verify(struct dibs__lock_entry *entry, int64_t now)
{
    dibs__lock(&entry->mu);
    for (struct dibs__hold *h = NULL; (h = dibs__hold_next(entry, h));) {
        if (h->state == HOLD_LOST || h->state == HOLD_ENDING)
            continue;
        h->needs_verify = true;
        if (!h->in_renewal_batch)
            dibs__hold_schedule(entry, h, now);
    }
    dibs__unlock(&entry->mu);
}

static void manager_verify(void *upper_arg, dibs__slot_filter *filter,
                           const void *arg)
{
    struct dibs__lock_manager *manager = upper_arg;
    int64_t now = dibs__now_ms();

    for (struct dibs__lock_entry *entry = NULL;
         (entry = dibs__entry_next(manager, entry));)
        if (filter(arg, entry->hash_slot))
            mark_needs_verify(entry, now);
    if (manager->c->lease_timers.due) /* NULL while the client closes */
        dibs__renew_due(&manager->c->lease_timers, now);
}

static void manager_on_invalidation(void *upper_arg, dibs__slot_filter *filter,
                                    const void *arg, const char *key,
                                    size_t len)
{
    if (key)
        dibs__on_key_invalidated(upper_arg, key, len);
    else
        dibs__on_all_keys_invalidated(upper_arg, filter, arg);
}

static const struct dibs__upper upper = {
    .close = manager_close,
    .verify_holds = manager_verify,
    .on_key_changed = manager_on_invalidation,
    .free = manager_free,
};

static void copy_options(struct dibs__lock_manager *manager,
                         const dibs_client_opts *o)
{
    manager->fair_wait_ms = o->fair_wait_ms ? o->fair_wait_ms : FAIR_WAIT_MS;
    manager->fair_call_ms = o->fair_call_ms ? o->fair_call_ms : FAIR_CALL_MS;
    manager->prefer_readers = o->prefer_readers;
}

struct dibs__lock_manager *dibs__lock_manager_of(dibs_client *c)
{
    dibs__lock(&c->mu);
    struct dibs__lock_manager *manager = c->upper_arg;
    if (!manager && (manager = dibs__calloc(1, sizeof *manager))) {
        manager->c = c;
        manager->wait_ops = &dibs__lock_waiter_ops;
        copy_options(manager, &c->opts);
        RB_INIT(&manager->entries);
        RB_INIT(&manager->aliases);
        dibs__adopted_init(&manager->adopted);
        dibs__holder_values_init(&manager->holder_values);
        dibs__list_init(&manager->orphans);
        dibs__list_init(&manager->shutdown_hooks);
        c->upper_arg = manager;
        c->lock_layer = &upper;
        c->lease_timers.due = dibs__renew_due;
    }
    dibs__unlock(&c->mu);
    return manager;
}
