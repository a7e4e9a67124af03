/* SPDX-License-Identifier: MIT
 *
 * hold.h - the state of one owner that has the lock: recursion count, expiry,
 * loss.
 *
 * hold           Exists from the grant of the owner's first acquire to the
 *                reply to the release of its last level.
 * level          One acquire of a hold: the first, or a re-entry. Each has its
 *                own lease and its own on_lost callback.
 * group level    A level of a multi-lock or quorum lock (src/group), which
 *                acquires one level on each member. The member's level points
 *                to it; NULL if the lock was acquired by itself.
 * lease          The time to live that an acquire or a renewal sets on the
 *                server.
 * drift margin   The last part of a lease, 1 % + 2 ms, on which the client does
 *                not rely: the clocks of client and server may drift apart.
 * valid_until    When the hold expires locally: send time + lease - margin. The
 *                server still has the hold then, for the margin.
 * renewal        A level without a lease of its own is renewed: the client sets
 *                the default lease again until the level is released.
 * lost           Expired, or the server answered that it does not have the
 *                hold. on_lost is called once for each level.
 * in doubt       A command that changes the hold may still be executed.
 * hold-off       keep_ms of a release: the hold stays on the server for that
 *                time under a retired id, so that the lock stays taken.
 * detach         leave of a release: the hold ends in this client and stays on
 *                the server, for another client to attach (dibs_lock_adopt).
 *
 * All of it requires entry.mu, unless stated otherwise.
 */
#ifndef DIBS_LOCK_CORE_HOLD_H
#define DIBS_LOCK_CORE_HOLD_H

#include "lock/core/lock_entry.h"
#include "lock/lease/loss_notify.h"

struct dibs__operation;

struct dibs__level {
    const void *group_level; /* NULL: not acquired by a group */
    bool renewed;
    struct dibs__coarse_time acquired_at; /* when it was acquired */
    int64_t lease_ms;                     /* renewed: the lease of a renewal */
    int64_t max_until;                    /* renewed: no lease may end later */
    struct dibs__loss_listener *loss;     /* a reference; NULL: no on_lost */
    struct dibs__loss_notification
        *notification; /* NULL: no on_lost, or pushed by the loss */
};

/* hold.c has the table of states. */
enum dibs__hold_state {
    HOLD_PREPARED,
    HOLD_HELD,
    HOLD_SUSPECT,
    HOLD_ENDING,
    HOLD_LOST
};

struct dibs__hold {
    struct dibs__list link;         /* in entry.holds */
    struct dibs__lock_entry *entry; /* const after init */
    uint64_t number;                /* const after init; never reused */
    dibs_owner owner;
    uint64_t owner_id;     /* on the server */
    int64_t value;         /* fencing token, slot or permits; 0 = none */
    int64_t valid_until;   /* expires locally then */
    int count;             /* levels */
    unsigned char state;   /* enum dibs__hold_state */
    bool has_level_array;  /* uses levels instead of first; it once had two */
    bool busy;             /* an operation is changing it; always so in
                              HOLD_ENDING. At most one at a time */
    bool release_claimed;  /* semaphore: a release has chosen this hold */
    bool in_renewal_batch; /* in a renewal command that is in flight */
    bool needs_verify;     /* renewal.c must ask the server if it exists */
    bool invalidated;      /* the same, since its key was changed */
    bool tracked;          /* the server sends an invalidation when its key is
                              changed */
    bool may_have_stale_copy : 1;  /* of a command that changes the hold */
    bool server_outlives : 1;      /* an attached hold: the server's lease may
                                      end later than valid_until */
    bool expired_locally : 1;      /* lost by valid_until; the server may still
                                      have it */
    bool renewal_in_flight : 1;    /* in_renewal_batch, with a new lease */
    bool has_value;                /* it has a row in holder_value_table.c */
    uint16_t extends_in_flight;    /* dibs_lock_extend calls */
    struct dibs__list blocked_ops; /* operations that wait until !busy */
    struct dibs__lease_timer timer;
    union {
        struct dibs__level first; /* !has_level_array */
        struct {
            struct dibs__level *levels;
            size_t levels_cap;
        };
    };
};

/* The terms of all levels together. */
struct dibs__hold_terms_sum {
    bool renewed;      /* at least one level is renewed */
    int64_t lease_ms;  /* the longest lease of the renewed levels */
    int64_t max_until; /* the latest of theirs; INT64_MAX: no limit */
};
struct dibs__hold_terms_sum dibs__hold_terms(const struct dibs__hold *h);

/* ---- finding ----------------------------------------------------------- */

/* Iterates over entry.holds: returns the first if h is NULL, else the next; or
 * NULL. */
struct dibs__hold *dibs__hold_next(struct dibs__lock_entry *entry,
                                   struct dibs__hold *h) REQUIRES(entry->mu);
/* These three return NULL if there is none. */
struct dibs__hold *dibs__hold_of(struct dibs__lock_entry *entry,
                                 dibs_owner owner) REQUIRES(entry->mu);
struct dibs__hold *dibs__hold_with_id(struct dibs__lock_entry *entry,
                                      uint64_t owner_id) REQUIRES(entry->mu);
struct dibs__hold *dibs__hold_with_number(struct dibs__lock_entry *entry,
                                          uint64_t number) REQUIRES(entry->mu);
/* Returns the owner id of another hold of this entry, valid at least until
 * `until`; else that of the oldest first acquire in flight, if its lease is as
 * long; else 0. h: the hold to skip, or NULL. Searches only the latest holds.
 * The id is a hint: its hold may have ended when the server reads it. */
uint64_t dibs__hold_find_peer(const struct dibs__lock_entry *entry,
                              const struct dibs__hold *h, int64_t until)
    REQUIRES(entry->mu);
/* Returns valid_until of the first hold that has not expired; 0: none. */
int64_t dibs__entry_held_until(struct dibs__lock_entry *entry, int64_t now)
    REQUIRES(entry->mu);
/* Does this owner have a hold in another entry of the same name and family?
 * Thread: any, no mutex held. */
bool dibs__hold_in_other_type(struct dibs__lock_entry *entry, dibs_owner owner);
/* Does this owner hold the other mode of this read-write lock, neither expired
 * nor in HOLD_ENDING? has_read: and is this entry the write mode? Thread: any,
 * no mutex held. */
bool dibs__hold_other_mode(struct dibs__lock_entry *entry, dibs_owner owner);
bool dibs__hold_has_read(struct dibs__lock_entry *entry, dibs_owner owner);
/* May a command that renews, extends or releases the hold still be executed? */
bool dibs__hold_in_doubt(const struct dibs__hold *h);
/* Is it in HOLD_LOST, or past valid_until? */
bool dibs__hold_has_expired(const struct dibs__hold *h, int64_t now);
/* Returns sent + lease_ms - drift margin. No mutex needed. */
int64_t dibs__valid_until(int64_t sent, int64_t lease_ms);

/* ---- life cycle -------------------------------------------------------- */

/* Returns a hold without levels, in HOLD_PREPARED and not yet in entry.holds.
 * NULL: out of memory. */
struct dibs__hold *dibs__hold_new(struct dibs__lock_entry *entry)
    REQUIRES(entry->mu);
/* Removes the hold from entry.holds and frees it with its levels; their on_lost
 * callbacks are not called. The caller must have a reference to entry. */
void dibs__hold_free(struct dibs__lock_entry *entry, struct dibs__hold *h)
    REQUIRES(entry->mu);
/* Makes room for one more level. False: out of memory. */
bool dibs__hold_reserve_level(struct dibs__hold *h);
/* Adds a level that the server granted to the command sent at `sent`. A new
 * hold goes into entry.holds, with the value of the reply. The room for the
 * level must be reserved. */
void dibs__hold_add_level(struct dibs__lock_entry *entry, struct dibs__hold *h,
                          struct dibs__operation *op, int64_t sent,
                          int64_t value) REQUIRES(entry->mu);
/* Removes the newest level with this group_level, or the newest of all if none
 * has it. Returns its loss listener, which the caller must suppress and unref;
 * NULL: no on_lost. */
struct dibs__loss_listener *dibs__hold_pop_level(struct dibs__hold *h,
                                                 const void *group_level);
/* Suppresses on_lost of that level: its release reports the loss. */
void dibs__hold_suppress_loss(struct dibs__hold *h, const void *group_level);
/* Suppresses on_lost of all levels that were not acquired by a group. */
void dibs__hold_suppress_all_losses(struct dibs__hold *h);
/* For a group whose members are all acquired: the lease of op replaces its
 * provisional renewal, from now on. False: the hold is lost. */
bool dibs__hold_commit_terms(struct dibs__lock_entry *entry,
                             const struct dibs__operation *op)
    REQUIRES(entry->mu);
/* Enters HOLD_ENDING and stops the timer: the last level is being released. */
void dibs__hold_begin_release(struct dibs__lock_entry *entry,
                              struct dibs__hold *h) REQUIRES(entry->mu);
/* A command sent at `sent` set this lease: updates state, valid_until, timer.
 */
void dibs__hold_set_lease(struct dibs__lock_entry *entry, struct dibs__hold *h,
                          int64_t sent, int64_t lease_ms) REQUIRES(entry->mu);
/* Sets the timer to renew_at, or to valid_until if that is earlier. */
void dibs__hold_schedule(struct dibs__lock_entry *entry, struct dibs__hold *h,
                         int64_t renew_at) REQUIRES(entry->mu);
/* The hold exists on the server, its lease was not changed: sets the timer to
 * its next renewal or tracking read. */
void dibs__hold_confirm(struct dibs__lock_entry *entry, struct dibs__hold *h)
    REQUIRES(entry->mu);

/* ---- loss -------------------------------------------------------------- */

/* Enters HOLD_LOST, since the server does not have the hold; lose_by: for the
 * reason `why`. Pushes the on_lost callbacks. Idempotent. For a hold that
 * expired, call dibs__hold_expire_locally (lock_manager.h). */
void dibs__hold_lose(struct dibs__lock_entry *entry, struct dibs__hold *h)
    REQUIRES(entry->mu);
void dibs__hold_lose_with_text(struct dibs__lock_entry *entry,
                               struct dibs__hold *h, const char *why)
    REQUIRES(entry->mu);

#endif
