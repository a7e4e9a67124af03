/* SPDX-License-Identifier: MIT
 *
 * group.h - several locks held as one: all of them (multi lock), or a majority
 * of them (quorum lock).
 *
 * Words
 *   member   One lock of the group: a lock entry and the client it belongs to.
 *   level    One acquire of the group by one owner: which members' holds it
 *            has, and the verdicts. An owner that acquires a group twice has
 *            two levels, as an owner of one lock has two levels of one hold.
 *   verdict  What the server of one member answered to the level's last
 *            acquire (dibs_member.verdict).
 *
 * A group stores nothing on a server. Its members are held by ordinary holds;
 * the levels, and the number of members whose loss ends a level, are kept only
 * here.
 */
#ifndef DIBS_GROUP_GROUP_H
#define DIBS_GROUP_GROUP_H

#include "base/tree.h"
#include "lock/api/lock.h"

#define DIBS__RUN_ID_MAX    64
#define DIBS__MEMBERS_MAX   1000
#define DIBS__VERDICTS_KEPT 16 /* ended levels whose verdicts are kept */

struct dibs__member {
    dibs_client *c;                 /* const after init; with a reference */
    struct dibs__lock_entry *entry; /* const after init; with a reference */
    size_t caller_index;   /* const after init: index in the caller's array */
    char server[288];      /* const after init: address of its server */
    atomic_bool slow;      /* the server's last reply to a sync caller took
                              longer than SLOW_MS (member_op.c) */
    unsigned run_id_epoch; /* group.mu: connection (1 + server.ups) on which
                              run_id was read; 0 = never read */
    char run_id[DIBS__RUN_ID_MAX]; /* group.mu; "" = the server refused INFO */
};

struct dibs__group {
    atomic_int refs;
    bool quorum;     /* const after init */
    size_t n;        /* const after init: number of members */
    size_t required; /* const after init: members that must be held */
    char *label;     /* const after init: the group's name for on_lost */

    dibs__mutex mu;
    struct dibs__list levels; /* mu: active dibs__group_level, oldest first */
    RB_HEAD(dibs__group_ops, dibs__group_op)
    ops;                    /* mu: acquires in flight, by owner */
    uint64_t acquire_count; /* mu: acquires started so far */
    struct dibs__group_level
        *ended_levels[DIBS__VERDICTS_KEPT]; /* mu: a ring */
    unsigned ended_total;                   /* mu: levels ever put into it */
    struct dibs__member members[];          /* n of them */
};

struct dibs__group_level {
    struct dibs__list link;           /* group.mu: in group.levels */
    unsigned refs;                    /* group.mu */
    bool active;                      /* group.mu: acquired, not released */
    dibs_owner owner;                 /* const after init */
    struct dibs__loss_listener *loss; /* calls on_lost; or NULL. Replaced only
                                         between two attempts, by the step */
    struct dibs__verdict {
        dibs_err err;  /* what the member's server answered */
        bool acquired; /* the level has a hold of this member */
    } members[];       /* group.mu; group.n of them */
};

/* Returns a group with room for that many members and none in it; NULL: out of
 * memory. */
struct dibs__group *dibs__group_new(size_t members, bool quorum);
/* The handle and each operation have one reference. Thread: any. */
void dibs__group_ref(struct dibs__group *g);
void dibs__group_unref(struct dibs__group *g);
/* Returns the state of the owner's levels by our clock. Thread: any. */
struct dibs__local_state dibs__group_local_state(struct dibs__group *g,
                                                 dibs_owner owner);
/* Fills `out` for g->members[at] and the owner's newest level, active or ended.
 * Thread: any. */
void dibs__group_member_local_state(struct dibs__group *g, size_t at,
                                    dibs_owner owner, dibs_member *out);

/* Returns a level with one reference, not in group.levels; NULL: out of
 * memory. */
struct dibs__group_level *dibs__group_level_new(struct dibs__group *g,
                                                dibs_owner owner);
void dibs__group_level_unref(struct dibs__group *g,
                             struct dibs__group_level *lv) REQUIRES(g->mu);
/* Returns the owner's newest active level, or NULL. */
struct dibs__group_level *dibs__group_level_of(struct dibs__group *g,
                                               dibs_owner owner)
    REQUIRES(g->mu);
/* Adds the level to group.levels: its owner holds the group. */
void dibs__group_level_activate(struct dibs__group *g,
                                struct dibs__group_level *lv) REQUIRES(g->mu);
/* Puts a level that failed or was released into the ring of ended levels, for
 * dibs_lock_members. */
void dibs__group_level_record(struct dibs__group *g,
                              struct dibs__group_level *lv) REQUIRES(g->mu);
/* Replaces level.loss by an unused copy, so that members lost during an earlier
 * attempt are not counted. Returns false if out of memory. */
bool dibs__group_level_new_loss(struct dibs__group_level *lv);

#endif
