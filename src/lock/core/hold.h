/* SPDX-License-Identifier: MIT
 *
 * hold.h - an owner's having a lock: how often, until when, and its loss.
 *
 * All of it needs line.mu unless it says otherwise.
 */
#ifndef DIBS_LOCK_CORE_HOLD_H
#define DIBS_LOCK_CORE_HOLD_H

#include "lock/core/lock_entry.h"
#include "lock/lease/loss_notify.h"

struct dibs__operation;

/* One of the times an owner took the lock. */
struct dibs__level {
    const void
        *group_level; /* what it was taken with: a group's level, or NULL */
    bool renewed;
    struct dibs__coarse_time taken; /* when */
    int64_t lease_ms;  /* of a renewed one: what a renewal asks for */
    int64_t max_until; /* and no renewal beyond */
    struct dibs__loss_listener *loss; /* what it is to be told, or NULL; ours */
    struct dibs__loss_notification
        *notification; /* until it is lost, or NULL */
};

/* hold.c has the table of states. */
enum dibs__hold_state {
    HOLD_READY,
    HOLD_HELD,
    HOLD_SUSPECT,
    HOLD_ENDING,
    HOLD_LOST
};

struct dibs__hold {
    struct dibs__list link;         /* all of it: line.mu */
    struct dibs__lock_entry *entry; /* const after init */
    uint64_t number;                /* of this hold; never used again */
    dibs_owner owner;               /* as the user knows it */
    uint64_t owner_id;              /* as the server knows it */
    int64_t value;                  /* what the server gave with it, or 0 */
    int64_t valid_until;            /* ours until then, by our clock */
    int count;                      /* levels */
    unsigned char state;            /* enum dibs__hold_state */
    bool has_level_array; /* it had a second level, and has the array below */
    bool busy;            /* an operation is changing it; always while ENDING */
    bool release_claimed; /* of a semaphore: a release is about to give it back
                           */
    bool in_renewal_batch; /* it is in a batch that awaits its answer */
    bool needs_verify;     /* the server shall say whether it is still there */
    bool invalidated;      /* somebody changed its key: the same, at once */
    bool tracked;          /* the server tells if somebody does */
    bool may_have_stale_copy : 1; /* an earlier copy of some command may still
                                     run */
    bool
        server_outlives : 1; /* the server may have it for longer than we say */
    bool expired_locally : 1; /* lost by our clock: the server may have it still
                               */
    bool renewal_in_flight : 1; /* it is in a batch that lengthens its lease */
    bool has_value;             /* it has a value: holder_value_table.c */
    uint16_t
        extends_in_flight; /* calls of dibs_lock_extend that await an answer */
    struct dibs__list
        blocked_ops; /* operations that wait until it is not busy */
    struct dibs__lease_timer timer;
    union {
        struct dibs__level first; /* few take it twice */
        struct {
            struct dibs__level *levels;
            size_t levels_cap;
        };
    };
};

/* What its levels want together. */
struct dibs__hold_terms_sum {
    bool renewed;      /* one of them wants renewal */
    int64_t lease_ms;  /* what a renewal asks for: the most of them */
    int64_t max_until; /* no renewal beyond; INT64_MAX none */
};
struct dibs__hold_terms_sum dibs__hold_terms(const struct dibs__hold *h);

/* ---- finding ----------------------------------------------------------- */

/* The next hold of the line, the first after NULL; NULL: no more. */
struct dibs__hold *dibs__hold_next(struct dibs__lock_entry *entry,
                                   struct dibs__hold *h) REQUIRES(line->mu);
struct dibs__hold *dibs__hold_of(struct dibs__lock_entry *entry,
                                 dibs_owner owner) REQUIRES(line->mu);
struct dibs__hold *dibs__hold_with_id(struct dibs__lock_entry *entry,
                                      uint64_t wire) REQUIRES(line->mu);
struct dibs__hold *dibs__hold_with_number(struct dibs__lock_entry *entry,
                                          uint64_t number) REQUIRES(line->mu);
/* The number of one here that shares the lock with this hold (or NULL), until
 * that time at least; or that has just asked for it. 0 if none is found soon. A
 * hint: by the time the server reads it, that one may not have it. */
uint64_t dibs__hold_find_peer(const struct dibs__lock_entry *entry,
                              const struct dibs__hold *h, int64_t until)
    REQUIRES(line->mu);
/* Until when anybody here has the lock, by our clock; 0 nobody has. */
int64_t dibs__hold_until(struct dibs__lock_entry *entry, int64_t now)
    REQUIRES(line->mu);
/* Does this owner hold the lock through another line of its family? Thread:
 * any, no mutex held. */
bool dibs__hold_in_other_type(struct dibs__lock_entry *entry, dibs_owner owner);
/* Does it have the other half of this read-write lock? Not if that is lost or
 * about to end. reads: and this is the write half. The same. */
bool dibs__hold_other_mode(struct dibs__lock_entry *entry, dibs_owner owner);
bool dibs__hold_has_read(struct dibs__lock_entry *entry, dibs_owner owner);
/* May a command still run that lengthens it, or gives it back? */
bool dibs__hold_in_doubt(const struct dibs__hold *h);
/* Lost, or over by our clock. */
bool dibs__hold_has_expired(const struct dibs__hold *h, int64_t now);
/* sent + lease, less what the two clocks may differ by. No mutex needed. */
int64_t dibs__valid_until(int64_t sent, int64_t lease_ms);

/* ---- its life ---------------------------------------------------------- */

/* An empty one, not in the line yet. NULL: out of memory. */
struct dibs__hold *dibs__hold_new(struct dibs__lock_entry *entry)
    REQUIRES(line->mu);
/* Out of the line, and gone. Frees the notes that were not needed. The caller
 * has a reference to the line. */
void dibs__hold_free(struct dibs__lock_entry *entry, struct dibs__hold *h)
    REQUIRES(line->mu);
/* Room for one more level. False: out of memory. */
bool dibs__hold_reserve_level(struct dibs__hold *h);
/* One more time taken, proven by a command sent at `sent`; into the line if it
 * is new, with the value that the server gave. */
void dibs__hold_taken(struct dibs__lock_entry *entry, struct dibs__hold *h,
                      struct dibs__operation *op, int64_t sent, int64_t value)
    REQUIRES(line->mu);
/* One time less: the last of those that were taken with this. What it was to be
 * told is the caller's, to be hushed. */
struct dibs__loss_listener *dibs__hold_pop_level(struct dibs__hold *h,
                                                 const void *with);
/* That level learns of a loss by its own call from now on. */
void dibs__hold_suppress_loss(struct dibs__hold *h, const void *with);
/* The same for all levels that were not taken with a group. */
void dibs__hold_suppress_all_losses(struct dibs__hold *h);
/* Has the operation what it took, still? If that was kept by renewal until now,
 * it goes on as it was asked for, from now. False: it is lost. */
bool dibs__hold_commit_terms(struct dibs__lock_entry *entry,
                             const struct dibs__operation *op)
    REQUIRES(line->mu);
/* The last level is about to be given back: no renewal any more. */
void dibs__hold_ending(struct dibs__lock_entry *entry, struct dibs__hold *h)
    REQUIRES(line->mu);
/* Renewed by a command sent at `sent`. */
void dibs__hold_renewed(struct dibs__lock_entry *entry, struct dibs__hold *h,
                        int64_t sent, int64_t lease_ms) REQUIRES(line->mu);
/* Sets when the watchdog looks at it next. */
void dibs__hold_schedule(struct dibs__lock_entry *entry, struct dibs__hold *h,
                         int64_t renew_at) REQUIRES(line->mu);
/* It is still there, but was not renewed: the next look is as it was to be. */
void dibs__hold_confirm(struct dibs__lock_entry *entry, struct dibs__hold *h)
    REQUIRES(line->mu);

/* ---- its loss ---------------------------------------------------------- */

/* The server does not know it any more. Tells once. (reap.h has the other way
 * to lose it: by our clock.) */
void dibs__hold_lose(struct dibs__lock_entry *entry, struct dibs__hold *h)
    REQUIRES(line->mu);
void dibs__hold_lose_by(struct dibs__lock_entry *entry, struct dibs__hold *h,
                        const char *why) REQUIRES(line->mu);

#endif
