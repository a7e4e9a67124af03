/* SPDX-License-Identifier: MIT
 *
 * lock_manager.h - all locks of one client: the table of lock entries, owner
 * ids, renewal, the orphan reaper, and how they end when the client closes.
 */
#ifndef DIBS_LOCK_CORE_LOCK_MANAGER_H
#define DIBS_LOCK_CORE_LOCK_MANAGER_H

#include "lock/api/holder_value_table.h"
#include "lock/core/foreign_owner.h"
#include "lock/core/hold.h"

RB_HEAD(dibs__lock_entries, dibs__lock_entry);

/* The current id of an owner whose first id was retired. */
struct dibs__alias {
    RB_ENTRY(dibs__alias) node;
    dibs_owner owner;
    uint64_t wire;
};
RB_HEAD(dibs__aliases, dibs__alias);

#define DIBS__ALIASES_KEPT 16 /* reserve for when memory is out */

struct dibs__lock_manager {
    dibs_client *c;
    const struct dibs__wait_queue_ops
        *wait_ops; /* const after init: of types without own */
    struct dibs__lock_entries entries;           /* client.mu */
    struct dibs__aliases aliases;                /* client.mu */
    atomic_bool has_aliases;                     /* aliases is not empty */
    atomic_uint retired_id_count;                /* how many ids were retired */
    struct dibs__alias kept[DIBS__ALIASES_KEPT]; /* client.mu */
    unsigned kept_used;                          /* client.mu */
    struct dibs__adopted_table adopted;
    struct dibs__holder_value_table holder_values;
    atomic_ullong last_hold_number; /* the last hold.number */
    atomic_uint
        types_used[LAYOUT_COUNT]; /* one bit for each lock type with entries */
    int64_t fair_wait_ms;         /* of the client's options; const after init,
                                     as the next two */
    int64_t fair_call_ms;
    bool prefer_readers;
    struct dibs__list orphans;        /* io only: of orphan_reaper.c */
    struct dibs__list shutdown_hooks; /* client.mu: see shutdown_hook.h */
    atomic_int in_flight; /* operations and orphan releases, begun, not ended */
    atomic_bool closing;
    struct dibs__timer close_timer; /* io only */
    int64_t close_by;               /* io only */
    bool orphan_release_failed;     /* io only, while closing */
    bool orphans_abandoned; /* io only: the time limit of the close is over */
};

/* Returns the client's lock manager; the first call creates it. NULL: out of
 * memory. Thread: app. */
struct dibs__lock_manager *dibs__lock_manager_of(dibs_client *c);

/* ---- owner_id.c -------------------------------------------------------- */

/* Returns the owner of this thread, which callers name as owner 0. */
dibs_owner dibs__owner_thread(void);
/* Returns a number that was not used in this process before. */
uint64_t dibs__owner_new_number(void);
/* Returns the current owner id of this owner. Thread: any. */
uint64_t dibs__owner_current_id(struct dibs__lock_manager *manager,
                                dibs_owner owner);
/* For an acquire of read mode under id `wire`: returns the other id under which
 * the same owner holds write mode; 0: none. Thread: any, no mutex held. */
uint64_t dibs__owner_writer_id(struct dibs__lock_entry *entry, dibs_owner owner,
                               uint64_t wire);
/* Retires this id and gives the owner another one: a stale copy under the id
 * may still be executed, or its hold has expired or was detached (how). Marks
 * the owner's waiters for this lock (op.renumber), which lock_waiter.c handles.
 * Thread: any, no mutex held. */
void dibs__owner_retire(struct dibs__lock_entry *entry, dibs_owner owner,
                        uint64_t wire, enum dibs__renumber how);
void dibs__owners_free(struct dibs__lock_manager *manager);

/* ---- orphan_reaper.c --------------------------------------------------- */

/* Releases orphans under this id: repeatedly, until lease_ms after the first
 * reply, since a stale copy can create one until then. ORPHAN_REMAINDER: there
 * is no stale copy; ends with the first reply and emits no event. Thread: any.
 */
#define ORPHAN_REMAINDER INT64_MIN
void dibs__orphan_release(struct dibs__lock_entry *entry, uint64_t owner_id,
                          int64_t lease_ms);
/* The same, beginning after keep_ms: the hold-off of the release. A client that
 * closes earlier leaves the orphan to its lease, and its close reports that. */
void dibs__orphan_release_after(struct dibs__lock_entry *entry,
                                uint64_t owner_id, int64_t lease_ms,
                                int64_t keep_ms);
/* Enters HOLD_LOST, since the hold is past valid_until. Idempotent. Has the
 * orphan reaper release what the server may still have, if a renewal may have
 * kept it or if it is a mode of a read-write lock. Any other hold ends on the
 * server with its lease. Thread: any. */
void dibs__hold_expire_locally(struct dibs__lock_entry *entry,
                               struct dibs__hold *h) REQUIRES(entry->mu);
/* As dibs__orphan_release, until the first reply that is no error: releases a
 * hold when the client closes. Thread: io. */
void dibs__orphan_release_on_close(struct dibs__lock_entry *entry,
                                   uint64_t owner_id);
/* A fair lock was freed and a waiter in its queue woken; heard: that waiter was
 * subscribed. Removes dead waiters from the queue until the lock is acquired.
 * Thread: any. */
void dibs__fair_queue_gc(struct dibs__lock_entry *entry, bool heard);
/* The client closes: orphan releases end with their next reply.
 * dibs__orphans_stop: the time limit of the close is over, they end now.
 * Thread: io. */
void dibs__orphans_close(struct dibs__lock_manager *manager);
void dibs__orphans_stop(struct dibs__lock_manager *manager);

/* ---- renewal.c ----------------------------------------------------------- */

void dibs__renew_due(struct dibs__lease_timers *timers, int64_t now);

/* ---- key_invalidation.c ------------------------------------------------ */

/* The server sent an invalidation of this key: verifies the holds of that key.
 * Thread: io. */
void dibs__on_key_invalidated(struct dibs__lock_manager *manager,
                              const char *key, size_t len);
/* Any key of these hash slots may have changed, and tracking of them has ended:
 * verifies their holds. Thread: io. */
void dibs__on_all_keys_invalidated(struct dibs__lock_manager *manager,
                                   dibs__slot_filter *filter, const void *arg);

#endif
