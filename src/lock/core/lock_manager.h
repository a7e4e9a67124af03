/* SPDX-License-Identifier: MIT
 *
 * lock_manager.h - all locks of one client: lines, owners, renewals, the
 * reaper.
 */
#ifndef DIBS_LOCK_CORE_LOCK_MANAGER_H
#define DIBS_LOCK_CORE_LOCK_MANAGER_H

#include "lock/api/holder_value_table.h"
#include "lock/core/foreign_owner.h"
#include "lock/core/hold.h"

RB_HEAD(dibs__lock_entries, dibs__lock_entry);

/* An owner that goes under another number by now. */
struct dibs__alias {
    RB_ENTRY(dibs__alias) node;
    dibs_owner owner;
    uint64_t wire;
};
RB_HEAD(dibs__aliases, dibs__alias);

#define DIBS__ALIASES_KEPT 16 /* for when memory ends */

struct dibs__lock_manager {
    dibs_client *c;
    const struct dibs__wait_queue_ops
        *waits;                        /* const after init: how lines wait */
    struct dibs__lock_entries entries; /* client.mu */
    struct dibs__aliases aliases;      /* client.mu */
    atomic_bool aliased;               /* there is one at all */
    atomic_uint retired;               /* how often one was made */
    struct dibs__alias kept[DIBS__ALIASES_KEPT]; /* client.mu */
    unsigned kept_used;                          /* client.mu */
    struct dibs__adopted_table adopted;
    struct dibs__holder_value_table holder_values;
    atomic_ullong holds; /* numbers of holds given out */
    atomic_uint
        types_used[LAYOUT_COUNT]; /* a bit for each that was asked for */
    int64_t fair_wait_ms;         /* these three: const after init */
    int64_t fair_call_ms;
    bool prefer_readers;
    struct dibs__list orphans;        /* io only */
    struct dibs__list shutdown_hooks; /* client.mu: of the layers above, see
                                         shutdown_hook.h */
    atomic_int in_flight; /* operations and reaps begun, not ended */
    atomic_bool closing;
    struct dibs__timer close_timer; /* io only */
    int64_t close_by;               /* io only */
    bool orphan_release_failed;     /* io only, while closing */
    bool orphans_abandoned; /* io only: nobody waits for them any more */
};

/* The client's, made at the first call. NULL: out of memory. Thread: app. */
struct dibs__lock_manager *dibs__lock_manager_of(dibs_client *c);

/* ---- owner_id.c -----------------------------------------------------------
 */

/* The number behind 0 on this thread. */
dibs_owner dibs__owner_thread(void);
/* A number that nobody has had in this process. */
uint64_t dibs__owner_number(void);
/* Under which number this owner goes now. Thread: any. */
uint64_t dibs__owner_wire(struct dibs__lock_manager *manager, dibs_owner owner);
/* This owner is about to read by number `wire`: by which other number it has
 * the write half. 0: by none. Thread: any, no mutex held. */
uint64_t dibs__owner_writes(struct dibs__lock_entry *entry, dibs_owner owner,
                            uint64_t wire);
/* Commands with this number may still run on this lock, and nobody knows when,
 * or what it has is over, or somebody else's: the owner gets another number.
 * Calls for this lock that wait by the old one learn of it: lock_waiter.c.
 * Thread: any, no mutex held. */
void dibs__owner_retire(struct dibs__lock_entry *entry, dibs_owner owner,
                        uint64_t wire, enum dibs__renumber how);
void dibs__owners_free(struct dibs__lock_manager *manager);

/* ---- orphan_reaper.c
 * ------------------------------------------------------------ */

/* Takes back what this number holds or may yet be given: until that long
 * after the server first answered. ORPHAN_REMAINDER: nothing may be given to it
 * any more; the first answer ends it, and nobody is told. Thread: any. */
#define ORPHAN_REMAINDER INT64_MIN
void dibs__orphan_release(struct dibs__lock_entry *entry, uint64_t wire,
                          int64_t lease_ms);
/* The same, but not before that time is over: until then it is to be kept. A
 * client that closes earlier leaves it to its lease, and says so. */
void dibs__orphan_release_after(struct dibs__lock_entry *entry, uint64_t wire,
                                int64_t lease_ms, int64_t keep_ms);
/* This hold is lost: its time is over by our clock. A renewal whose answer was
 * lost may have kept it on the server, so that is taken back. So is one that
 * writes. Any other that is not renewed ends there by itself, or with its
 * release. Tells once. Thread: any. */
void dibs__hold_expire_locally(struct dibs__lock_entry *entry,
                               struct dibs__hold *h) REQUIRES(line->mu);
/* The same until it is confirmed once: a release whose caller does not wait.
 * Thread: io. */
void dibs__release_on_close(struct dibs__lock_entry *entry, uint64_t wire);
/* A fair lock was freed and somebody called, who heard it or not: looks after
 * the queue until somebody has the lock. Thread: any. */
void dibs__fair_queue_gc(struct dibs__lock_entry *entry, bool heard);
/* The client closes: those that were answered end, the others go on until they
 * are, or the time is over. */
void dibs__orphans_close(struct dibs__lock_manager *manager);
void dibs__orphans_stop(struct dibs__lock_manager *manager);

/* ---- renewal.c ----------------------------------------------------------- */

void dibs__renew_due(struct dibs__lease_timers *timers, int64_t now);

/* ---- key_invalidation.c
 * ----------------------------------------------------------- */

/* Somebody changed this key: what is held by it is looked at. Thread: io. */
void dibs__on_key_invalidated(struct dibs__lock_manager *manager,
                              const char *key, size_t len);
/* Maybe any key of these slots, and none is tracked. Thread: io. */
void dibs__on_all_keys_invalidated(struct dibs__lock_manager *manager,
                                   dibs__meant *meant, const void *arg);

#endif
