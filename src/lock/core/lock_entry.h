/* SPDX-License-Identifier: MIT
 *
 * lock_entry.h - one name and kind of lock as this client knows it: its holds,
 * its waiters, and their order.
 *
 * There is one line for a name and kind, however many handles.
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

/* Has the number by which a call waits been retired for this lock? */
enum dibs__renumber {
    RENUMBER_NO,
    RENUMBER_OTHER, /* not its own, but that by which its owner writes */
    RENUMBER_REST,  /* what it has is over; no command for it can come late */
    RENUMBER_REAP,  /* what it may yet be given is to be taken back */
    RENUMBER_LEFT   /* what it has was left to somebody, or kept */
};

struct dibs__lock_entry {
    RB_ENTRY(dibs__lock_entry) node; /* locks: client.mu */
    atomic_int refs;                 /* falls to 0 under client.mu only */
    unsigned short hash_slot;        /* const after init; 0 if in no cluster */
    atomic_bool gc_running;          /* a sweep of its queue is on */
    atomic_bool slot_count_known;    /* of a slots lock: the server was asked */
    struct dibs__lock_manager *manager;
    const struct dibs__lock_type *type;

    dibs__mutex mu;
    struct dibs__list holds;       /* mu */
    struct dibs__hold *spare_hold; /* mu: kept for the next */
    struct dibs__list
        in_flight;           /* mu: first acquisitions that await an answer */
    unsigned short name_len; /* const after init */
    unsigned char handoff_count;  /* mu: hand-overs since it was free */
    unsigned char invalidations;  /* mu: in a row; each is answered later */
    uint32_t handoff_start_ms;    /* mu: in ms; begins anew after 49 days */
    struct dibs__wait_queue wait; /* mu: the waiters */
    int64_t next_check_ms;        /* mu: the next alarm is answered then */
    atomic_llong slot_count; /* of a slots lock: how many the handle says */
    char name[];
};

/* ---- the table of names ------------------------------------------------ */

/* The line of this name, made if need be; a reference for the caller. NULL: out
 * of memory. Thread: app. */
struct dibs__lock_entry *dibs__entry_get(struct dibs__lock_manager *manager,
                                         const struct dibs__lock_type *type,
                                         const char *name, size_t len);
/* The one of this name and kind, with a reference; NULL: there is none. Thread:
 * any, no mutex held. */
struct dibs__lock_entry *dibs__entry_find(struct dibs__lock_manager *manager,
                                          enum dibs__lock_type_id kind,
                                          const char *name, size_t len);
/* Lines of the same name and family, but for this one: the first after NULL,
 * then the next, with a reference; that of the one given is let go. Thread:
 * any, no mutex held. */
struct dibs__lock_entry *
dibs__entry_next_in_family(struct dibs__lock_entry *entry,
                           struct dibs__lock_entry *after);
/* The line after this one, the first after NULL; with a reference, while that
 * of the one given is let go. Thread: any, no mutex held. */
struct dibs__lock_entry *dibs__entry_next(struct dibs__lock_manager *manager,
                                          struct dibs__lock_entry *entry);
void dibs__entry_ref(struct dibs__lock_entry *entry);
/* Thread: any, with no mutex held. */
void dibs__entry_unref(struct dibs__lock_entry *entry);

dibs_client *dibs__entry_client(const struct dibs__lock_entry *entry);
/* How long one reply may take. */
int64_t dibs__entry_timeout(const struct dibs__lock_entry *entry);
/* Which server has the lock, as far as we know. What is sent goes with the
 * line's slot, so that it finds its way if that has changed. Thread: any. */
struct dibs__server *dibs__entry_server(const struct dibs__lock_entry *entry);
/* How what is sent with its slot finds its way. Thread: any. */
struct dibs__route dibs__entry_route(const struct dibs__lock_entry *entry);
/* Tells the event callback, with the address of the lock's server. */
__attribute__((format(printf, 4, 5))) void
dibs__entry_log_event(const struct dibs__lock_entry *entry,
                      dibs_event_kind kind, dibs_err err, const char *fmt, ...);
/* What calls about this line have in common: its slot, and time. */
void dibs__entry_fill_command(const struct dibs__lock_entry *entry,
                              struct dibs__command *cmd, int64_t within,
                              int64_t connect_by);

/* ---- names made of its name -------------------------------------------- */

/* "{name}", or the name itself if it has a brace already. */
void dibs__entry_hash_tag(const struct dibs__lock_entry *entry,
                          struct dibs__buf *out);
size_t dibs__entry_hash_tag_len(const struct dibs__lock_entry *entry);
/* "prefix:{name}", as its channel and keys beside the lock's are named; of a
 * latch "prefix{name}". */
void dibs__entry_key(const struct dibs__lock_entry *entry, const char *prefix,
                     struct dibs__buf *out);
size_t dibs__entry_key_len(const struct dibs__lock_entry *entry,
                           const char *prefix);
/* The same as an argument. */
void dibs__entry_key_arg(const struct dibs__lock_entry *entry,
                         const char *prefix, struct dibs__buf *out);
/* Its channel. */
void dibs__entry_channel(const struct dibs__lock_entry *entry,
                         struct dibs__buf *out);
/* Listens to its channel. False: out of memory, it hears nothing. Thread: io.
 */
bool dibs__entry_subscribe(const struct dibs__lock_entry *entry,
                           struct dibs__subscription *sub);

/* ---- for the table of those that wait in a line (wait_queue.h)
 * --------------- */

struct dibs__wait_queue_info
dibs__entry_wait_info(const struct dibs__wait_queue *queue);
void dibs__entry_wait_subscribe(const struct dibs__wait_queue *queue,
                                struct dibs__subscription *sub);

/* ---- the order in a line ----------------------------------------------- */

/* This first acquisition awaits an answer from now on. False: another one of
 * the same owner does already; two questions would get one answer. */
bool dibs__entry_acquire_begin(struct dibs__lock_entry *entry,
                               struct dibs__operation *op) REQUIRES(line->mu);
/* The answer is there. Those behind it go to `resume`. */
void dibs__entry_acquire_done(struct dibs__lock_entry *entry,
                              struct dibs__operation *op,
                              struct dibs__list *resume) REQUIRES(line->mu);
/* One of this owner's first acquisitions that awaits an answer, or NULL. */
struct dibs__operation *dibs__entry_in_flight_of(struct dibs__lock_entry *entry,
                                                 dibs_owner owner)
    REQUIRES(line->mu);
/* Does one that asks go by this number? */
bool dibs__entry_id_in_flight(struct dibs__lock_entry *entry, uint64_t wire)
    REQUIRES(line->mu);
/* The same; or one that waits, and will ask by it. */
bool dibs__entry_id_in_use(struct dibs__lock_entry *entry, uint64_t wire)
    REQUIRES(line->mu);
/* Does one that waits or asks go by this number? */
bool dibs__entry_id_waits(struct dibs__lock_entry *entry, uint64_t wire)
    REQUIRES(line->mu);

#endif
