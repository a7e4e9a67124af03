/* SPDX-License-Identifier: MIT
 *
 * group.h - several locks held as one: all of them (multi), or most of them
 * (quorum).
 *
 * A group has nothing on any server but its members. What it adds is here: who
 * holds it, and when that is lost.
 */
#ifndef DIBS_GROUP_GROUP_H
#define DIBS_GROUP_GROUP_H

#include "base/tree.h"
#include "lock/api/lock.h"

#define DIBS__RUN_ID_MAX  64
#define DIBS__MEMBERS_MAX 1000
#define DIBS__VERDICTS_KEPT                                                    \
    16 /* acquires that ended, whose verdicts are kept */

/* One of the locks. */
struct dibs__member {
    dibs_client *c;                 /* const after init; with a reference */
    struct dibs__lock_entry *entry; /* const after init; with a reference */
    size_t caller_index;   /* const after init: place the caller gave it */
    char server[288];      /* const after init: its address, as text */
    atomic_bool slow;      /* its server kept a caller waiting */
    unsigned run_id_epoch; /* group.mu: 1 + server.ups when its run_id was
                       read; 0 = never */
    char run_id[DIBS__RUN_ID_MAX]; /* group.mu; "" = the server does not tell */
};

struct dibs__group {
    atomic_int refs;
    bool quorum; /* const after init */
    size_t n;    /* const after init: members */
    size_t need; /* const after init: so many of them make it held */
    char *label; /* const after init: its name, for on_lost */

    dibs__mutex mu;
    struct dibs__list
        levels; /* mu: of struct dibs__group_level, oldest first */
    RB_HEAD(dibs__group_ops, dibs__group_op)
    ops;            /* mu: acquires in flight, by owner */
    uint64_t begun; /* mu: acquires ever */
    struct dibs__group_level *ended[DIBS__VERDICTS_KEPT]; /* mu: a ring */
    unsigned ended_count;                                 /* mu: ever put in */
    struct dibs__member members[];                        /* see there */
};

/* One of the times an owner took the group, or tried to. */
struct dibs__group_level {
    struct dibs__list link;           /* group.mu: in group.levels */
    unsigned refs;                    /* group.mu */
    bool active;                      /* group.mu: taken, and not given back */
    dibs_owner owner;                 /* const after init */
    struct dibs__loss_listener *loss; /* or NULL; replaced only between two
                                tries, by the step that runs */
    struct dibs__verdict {
        dibs_err err; /* what the member's server answered */
        bool got;     /* this level has a hold there */
    } members[];      /* group.mu */
};

/* An empty group with room for its members. NULL: out of memory. */
struct dibs__group *dibs__group_new(size_t members, bool quorum);
/* Thread: any. Operations in flight have references, besides the handle. */
void dibs__group_ref(struct dibs__group *g);
void dibs__group_unref(struct dibs__group *g);
/* What the owner has. Thread: any. */
struct dibs__local_state dibs__group_local_state(struct dibs__group *g,
                                                 dibs_owner owner);
/* What the owner has of one member, which is g->members[at]. */
void dibs__group_member_local_state(struct dibs__group *g, size_t at,
                                    dibs_owner owner, dibs_member *out);

struct dibs__group_level *dibs__group_level_new(struct dibs__group *g,
                                                dibs_owner owner);
void dibs__group_level_unref(struct dibs__group *g,
                             struct dibs__group_level *lv) REQUIRES(g->mu);
/* The newest one of this owner's, or NULL. */
struct dibs__group_level *dibs__group_level_of(struct dibs__group *g,
                                               dibs_owner owner)
    REQUIRES(g->mu);
/* Its owner has the group. */
void dibs__group_level_activate(struct dibs__group *g,
                                struct dibs__group_level *lv) REQUIRES(g->mu);
/* Nobody has it, or has it any more; its verdicts can be read for a while. */
void dibs__group_level_record(struct dibs__group *g,
                              struct dibs__group_level *lv) REQUIRES(g->mu);
/* What was lost until now does not count. False: out of memory. */
bool dibs__group_level_new_loss(struct dibs__group_level *lv);

#endif
