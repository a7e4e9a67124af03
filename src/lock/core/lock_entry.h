/* SPDX-License-Identifier: MIT
 *
 * lock_entry.h - the record of one lock in one client: its holds, its waiters,
 * and the order in which they acquire.
 *
 * lock entry   One per lock name and lock type of a client. All handles
 *              (dibs_lock) of that name and type share it.
 * lock type    Mutex, fair, read, write, ...: lock_type.h. Types with the same
 *              key layout are a family: entries of one name and family use the
 *              same keys on the server. Read and write, the two modes of a
 *              read-write lock, are such a family.
 * owner        The thread, or number from dibs_owner_new, on whose behalf a
 *              lock is acquired.
 * owner id     The number in the owner's name on the server, "uuid:id". It is
 *              the owner's own number until that id is retired: then the owner
 *              gets another id, see owner_id.c.
 * hold         The state of an owner that has the lock: hold.h.
 * operation    One acquire or release: operation.h.
 * first acquire
 *              An acquire whose owner has no hold; others are re-entries.
 * waiter       The part of an operation that entry.wait queues: wait_queue.h.
 * in flight    The command of the operation was sent, and its reply is not
 *              processed yet.
 * hand-off     A release that moves the lock to a waiter of this client in one
 *              script, so that no other client sees the lock free.
 * stale copy   A command that was sent before, got no reply, and may still be
 *              executed by the server.
 * orphan       A hold on the server under an id that this client does not use
 *              any more; a stale copy can create one. orphan_reaper.c releases
 *              orphans.
 */
#ifndef DIBS_LOCK_CORE_LOCK_ENTRY_H
#define DIBS_LOCK_CORE_LOCK_ENTRY_H

#include "client/client.h"
#include "client/command/command.h"
#include "lock/type/lock_type.h"
#include "lock/wait/wait_queue.h"

#include <semaphore.h>

struct dibs__lock_entries;
struct dibs__lock_manager;
struct dibs__hold;
struct dibs__operation;

/* Was the owner id of a waiter retired for this lock, and why? */
enum dibs__renumber {
    RENUMBER_NO,
    RENUMBER_OTHER, /* only the id by which the same owner holds write mode */
    RENUMBER_REST,  /* its hold expired, and no stale copy exists */
    RENUMBER_REAP,  /* a stale copy may create an orphan under it */
    RENUMBER_LEFT   /* its hold was detached, or is held off: not an orphan */
};

struct dibs__lock_entry {
    RB_ENTRY(dibs__lock_entry) node; /* client.mu: in manager.entries */
    atomic_int refs;                 /* falls to 0 under client.mu only */
    unsigned short hash_slot;        /* const after init; 0 without cluster */
    atomic_bool gc_running;          /* dibs__fair_queue_gc is active */
    atomic_bool slot_count_known;    /* TYPE_SLOTS: compared with the server */
    struct dibs__lock_manager *manager;
    const struct dibs__lock_type *type;

    dibs__mutex mu;
    struct dibs__list holds;       /* mu */
    struct dibs__hold *spare_hold; /* mu: one freed hold, for reuse */
    struct dibs__list in_flight;   /* mu: first acquires in flight; at most one
                                      of an owner */
    unsigned short name_len;       /* const after init */
    unsigned char handoff_count;   /* mu: hand-offs in a row */
    unsigned char invalidations;   /* mu: in a row, for the rate limit of
                                      key_invalidation.c */
    uint32_t handoff_start_ms;     /* mu: when the row began; low 32 bits */
    struct dibs__wait_queue wait_queue; /* mu */
    int64_t next_check_ms;   /* mu: invalidations are handled from then on */
    atomic_llong slot_count; /* TYPE_SLOTS: as the handle was created with */
    char name[];
};

/* ---- the table of entries ---------------------------------------------- */

/* Returns the entry of this name and type with a reference; creates it if there
 * is none. NULL: out of memory. Thread: app. */
struct dibs__lock_entry *dibs__entry_get(struct dibs__lock_manager *manager,
                                         const struct dibs__lock_type *type,
                                         const char *name, size_t len);
/* Returns the entry of this name and type with a reference, or NULL. Thread:
 * any, no mutex held. */
struct dibs__lock_entry *dibs__entry_find(struct dibs__lock_manager *manager,
                                          enum dibs__lock_type_id type_id,
                                          const char *name, size_t len);
/* Iterates over the other entries of the same name and family. Returns the
 * first if after is NULL, else the one that follows it; with a reference. Drops
 * the reference to after. Thread: any, no mutex held. */
struct dibs__lock_entry *
dibs__entry_next_in_family(struct dibs__lock_entry *entry,
                           struct dibs__lock_entry *after);
/* Iterates over all entries. Returns the first if entry is NULL, else the one
 * that follows it; with a reference. Drops the reference to entry. Thread: any,
 * no mutex held. */
struct dibs__lock_entry *dibs__entry_next(struct dibs__lock_manager *manager,
                                          struct dibs__lock_entry *entry);
void dibs__entry_ref(struct dibs__lock_entry *entry);
/* Thread: any, with no mutex held. */
void dibs__entry_unref(struct dibs__lock_entry *entry);

/* ---- its client and server --------------------------------------------- */

dibs_client *dibs__entry_client(const struct dibs__lock_entry *entry);
/* Returns the time limit for one reply, in ms. */
int64_t dibs__entry_timeout(const struct dibs__lock_entry *entry);
/* Returns the server of the entry's hash slot by the current slot map, or NULL.
 * Commands are sent by hash slot, so they are right even if the map is stale.
 * Thread: any. */
struct dibs__server *dibs__entry_server(const struct dibs__lock_entry *entry);
/* Returns how commands are routed to that server. Thread: any. */
struct dibs__route dibs__entry_route(const struct dibs__lock_entry *entry);
/* Emits an event, with the address of the entry's server. */
__attribute__((format(printf, 4, 5))) void
dibs__entry_log_event(const struct dibs__lock_entry *entry,
                      dibs_event_kind kind, dibs_err err, const char *fmt, ...);
/* Sets the hash slot and the time limits of a command: within, in ms from now,
 * for all of it. */
void dibs__entry_fill_command(const struct dibs__lock_entry *entry,
                              struct dibs__command *cmd, int64_t within,
                              int64_t connect_by);

/* ---- keys and channels ------------------------------------------------- */

/* Appends "{name}", or the name itself if it contains a brace. */
void dibs__entry_hash_tag(const struct dibs__lock_entry *entry,
                          struct dibs__buf *out);
size_t dibs__entry_hash_tag_len(const struct dibs__lock_entry *entry);
/* Appends "prefix:{name}", the form of the keys and channels beside the lock's
 * own key; for a type that always braces its channel, "prefix{name}". */
void dibs__entry_key(const struct dibs__lock_entry *entry, const char *prefix,
                     struct dibs__buf *out);
size_t dibs__entry_key_len(const struct dibs__lock_entry *entry,
                           const char *prefix);
/* The same as one argument of a command. */
void dibs__entry_key_arg(const struct dibs__lock_entry *entry,
                         const char *prefix, struct dibs__buf *out);
/* Appends the name of the channel on which releases are published. */
void dibs__entry_channel(const struct dibs__lock_entry *entry,
                         struct dibs__buf *out);
/* Subscribes to that channel. False: out of memory, not subscribed. Thread: io.
 */
bool dibs__entry_subscribe(const struct dibs__lock_entry *entry,
                           struct dibs__subscription *sub);

/* ---- for wait_queue_ops (wait_queue.h) --------------------------------- */

struct dibs__wait_queue_info
dibs__entry_wait_info(const struct dibs__wait_queue *queue);
void dibs__entry_wait_subscribe(const struct dibs__wait_queue *queue,
                                struct dibs__subscription *sub);

/* ---- first acquires in flight ------------------------------------------ */

/* Adds the operation to entry.in_flight. False: a first acquire of the same
 * owner is in flight already; the server could not tell the two apart. */
bool dibs__entry_acquire_begin(struct dibs__lock_entry *entry,
                               struct dibs__operation *op) REQUIRES(entry->mu);
/* Removes the operation from entry.in_flight. The operations that were blocked
 * on it move to resume; the caller must pass that to dibs__op_resume. */
void dibs__entry_acquire_done(struct dibs__lock_entry *entry,
                              struct dibs__operation *op,
                              struct dibs__list *resume) REQUIRES(entry->mu);
/* Returns this owner's first acquire in flight, or NULL. */
struct dibs__operation *dibs__entry_in_flight_of(struct dibs__lock_entry *entry,
                                                 dibs_owner owner)
    REQUIRES(entry->mu);
/* Is a first acquire in flight under this id? */
bool dibs__entry_id_in_flight(struct dibs__lock_entry *entry, uint64_t owner_id)
    REQUIRES(entry->mu);
/* Is a first acquire in flight under this id, or does a waiter have this id,
 * which was not retired for it? */
bool dibs__entry_id_in_use(struct dibs__lock_entry *entry, uint64_t owner_id)
    REQUIRES(entry->mu);
/* Is a first acquire in flight under this id, or does a waiter have this id,
 * which it will not replace before its next command? */
bool dibs__entry_id_waits(struct dibs__lock_entry *entry, uint64_t owner_id)
    REQUIRES(entry->mu);

#endif
