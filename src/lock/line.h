/* SPDX-License-Identifier: MIT
 *
 * line.h - all that a client knows of one lock: who here holds it, who here
 * waits for it, and in which order.
 *
 * There is one line for a name, however many handles. Threads that want the
 * lock line up in it; only the first talks to the server.
 */
#ifndef DIBS_LOCK_LINE_H
#define DIBS_LOCK_LINE_H

#include "client/call.h"
#include "client/client.h"
#include "lock/kind.h"
#include "lock/lost.h"

#include <semaphore.h>

struct dibs__lines;
struct dibs__locks;
struct dibs__op;

/* One of the times an owner took the lock. */
struct dibs__level {
    const void *with; /* what it was taken with: a group's level, or NULL */
    bool renewed;
    int64_t lease_ms;        /* of a renewed one: what a renewal asks for */
    int64_t max_until;       /* and no renewal beyond */
    struct dibs__loss *loss; /* what it is to be told, or NULL; ours */
    struct dibs__lost_note *note; /* until it is lost, or NULL */
};

#define DIBS__LEVELS 4 /* kept without an allocation */

struct dibs__hold {
    struct dibs__list link;  /* all of it: line.mu */
    struct dibs__line *line; /* const after init */
    uint64_t number;         /* of this hold; never used again */
    dibs_owner owner;        /* as the user knows it */
    uint64_t wire;           /* as the server knows it */
    int64_t count;
    int64_t lease_ms;    /* what a renewal asks for: the most of its levels */
    int64_t valid_until; /* ours until then, by our clock */
    int64_t max_until;   /* no renewal beyond; INT64_MAX none */
    unsigned renewed;    /* levels that want renewal */
    bool busy;           /* an operation is changing it */
    bool ending;         /* it is being given back: renew no more */
    bool renewing;       /* it is in a batch that awaits its answer */
    bool doubted;        /* the server shall say whether it is still there */
    bool suspect;        /* the last renewal failed */
    bool lost;
    bool tainted;              /* a copy of some command may still come */
    struct dibs__list blocked; /* operations that wait until it is not busy */
    struct dibs__lease lease;
    struct dibs__level *levels; /* count of them; own_levels or allocated */
    size_t levels_cap;
    struct dibs__level own_levels[DIBS__LEVELS];
};

struct dibs__line {
    RB_ENTRY(dibs__line) node; /* locks: client.mu */
    atomic_int refs;           /* falls to 0 under client.mu only */
    struct dibs__locks *locks;
    const struct dibs__kind *kind;

    dibs__mutex mu;
    struct dibs__list holds;   /* mu */
    struct dibs__hold *spare;  /* mu: kept for the next */
    struct dibs__list waiters; /* mu: acquires in order of arrival */
    struct dibs__list asks;    /* mu: first acquisitions that await an answer */
    unsigned stalled;          /* mu: calls behind another of the same owner */
    unsigned handed;           /* mu: hand-overs since it was free */
    int64_t handed_since;      /* mu */
    bool awake;                /* mu: io looks after the waiters */
    bool try_now;              /* mu: something happened, ask at once */
    bool all_ask;              /* mu: not only the head (a shared kind) */
    int64_t next_try;          /* mu: ask then, if nothing happens */
    int64_t yield_until;       /* mu: others first; do not ask before */
    int64_t looks_at;          /* mu: when io looks by itself */
    int64_t first_deadline;    /* mu: no waiter's time is over before */
    bool listening;            /* mu: sub is on */
    bool canceled;             /* mu: some waiter is canceled */
    atomic_bool swept;         /* a sweep of its queue is on */

    struct dibs__sub sub;     /* io only */
    struct dibs__timer timer; /* io only */
    struct dibs__task look;
    bool look_posted; /* mu */

    int slot;                     /* const after init; 0 if in no cluster */
    size_t name_len, channel_len; /* const after init */
    char *channel;
    char name[];
};

/* The line of this name, made if need be; a reference for the caller. NULL: out
 * of memory. Thread: app. */
struct dibs__line *dibs__line_get(struct dibs__locks *lk,
                                  const struct dibs__kind *kind,
                                  const char *name, size_t len);
/* That of the same name whose holds are in the same hash, with a reference; or
 * NULL. Thread: any, no mutex held. */
struct dibs__line *dibs__line_sibling(struct dibs__line *line);
/* Does this owner hold the lock through the sibling? The same conditions. */
bool dibs__line_held_by_sibling(struct dibs__line *line, dibs_owner owner);
struct dibs__line *dibs__line_first(struct dibs__lines *lines);
struct dibs__line *dibs__line_after(struct dibs__line *line);
void dibs__line_ref(struct dibs__line *line);
/* Thread: any, with no mutex held. */
void dibs__line_unref(struct dibs__line *line);
const char *dibs__line_uuid(const struct dibs__line *line);
dibs_client *dibs__line_client(const struct dibs__line *line);
/* Which server has the lock, as far as we know, and where its channel is. What
 * is sent goes with the line's slot, so that it finds its way if that has
 * changed. Thread: any; io. */
struct dibs__server *dibs__line_server(const struct dibs__line *line);
struct dibs__route dibs__line_route(const struct dibs__line *line);
/* Why its server cannot be reached; NULL: it can. Thread: io. */
const char *dibs__line_trouble(const struct dibs__line *line);
/* An event about its server. Thread: any. */
void dibs__line_tell(const struct dibs__line *line, dibs_event_kind kind,
                     dibs_err err, const char *text);
dibs_err dibs__line_listen(const struct dibs__line *line, struct dibs__sub *sub,
                           const char *name, size_t len);

/* ---- holds; all need line.mu ------------------------------------------- */

struct dibs__hold *dibs__hold_of(struct dibs__line *line, dibs_owner owner)
    REQUIRES(line->mu);
struct dibs__hold *dibs__hold_on_wire(struct dibs__line *line, uint64_t wire,
                                      uint64_t number) REQUIRES(line->mu);
/* One that is ours by our clock, other than this owner's. */
struct dibs__hold *dibs__hold_other(struct dibs__line *line, dibs_owner owner,
                                    int64_t now) REQUIRES(line->mu);
bool dibs__hold_over(const struct dibs__hold *h, int64_t now);

/* An empty one, not in the line yet. NULL: out of memory. */
struct dibs__hold *dibs__hold_new(struct dibs__line *line) REQUIRES(line->mu);
/* Out of the line, and gone. Frees the notes that were not needed. The caller
 * has a reference to the line. */
void dibs__hold_free(struct dibs__line *line, struct dibs__hold *h)
    REQUIRES(line->mu);
/* Room for one more level. */
bool dibs__hold_room(struct dibs__hold *h);

/* One more time taken, proven by a command sent at `sent`; into the line if it
 * is new. */
void dibs__hold_taken(struct dibs__line *line, struct dibs__hold *h,
                      struct dibs__op *op, int64_t sent) REQUIRES(line->mu);
/* One time less: the last of those that were taken with this. What it was to be
 * told is the caller's, to be hushed. */
struct dibs__loss *dibs__hold_drop(struct dibs__hold *h, const void *with);
/* That one finds out by itself if the hold is lost now. */
void dibs__hold_hush(struct dibs__hold *h, const void *with);
/* Has the operation what it took, still? If that was kept by renewal until now,
 * it goes on as it was asked for, from now. False: it is lost. */
bool dibs__hold_seal(struct dibs__line *line, const struct dibs__op *op)
    REQUIRES(line->mu);
/* Renewed by a command sent at `sent`. */
void dibs__hold_renewed(struct dibs__line *line, struct dibs__hold *h,
                        int64_t sent, int64_t lease_ms) REQUIRES(line->mu);
/* Sets when the watchdog looks at it next. */
void dibs__hold_watch(struct dibs__line *line, struct dibs__hold *h,
                      int64_t renew_at) REQUIRES(line->mu);
/* It is gone although nobody released it: the server says so, or our clock.
 * Tells once. */
void dibs__hold_lose(struct dibs__line *line, struct dibs__hold *h)
    REQUIRES(line->mu);
void dibs__hold_run_out(struct dibs__line *line, struct dibs__hold *h)
    REQUIRES(line->mu);

/* sent + lease, less what the two clocks may differ by. */
int64_t dibs__valid_until(int64_t sent, int64_t lease_ms);

/* ---- waiting, in wait.c ------------------------------------------------ */

void dibs__line_wait_init(struct dibs__line *line);
/* One more waiter, at the end; io looks after it, if need be. */
void dibs__line_join(struct dibs__line *line, struct dibs__op *op, bool look)
    REQUIRES(line->mu);
/* Ends this owner's waiting acquires. False: there are none. */
bool dibs__line_cancel(struct dibs__line *line, dibs_owner owner)
    REQUIRES(line->mu);
/* The client closes: ends all who do not await an answer. Thread: io. */
void dibs__line_end_waits(struct dibs__line *line);
/* Has io look after the waiters. */
void dibs__line_wake(struct dibs__line *line) REQUIRES(line->mu);
/* Something happened that may have freed the lock: has io ask at once. */
void dibs__line_kick(struct dibs__line *line) REQUIRES(line->mu);
/* One reader got in: all that sleep here may ask. */
void dibs__line_kick_all(struct dibs__line *line) REQUIRES(line->mu);

#endif
