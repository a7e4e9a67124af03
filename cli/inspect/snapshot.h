/* SPDX-License-Identifier: MIT
 *
 * snapshot.h - all locks at one time, and the changes between two snapshots.
 */
#ifndef DIBS_CLI_INSPECT_SNAPSHOT_H
#define DIBS_CLI_INSPECT_SNAPSHOT_H

#include "inspect/lock_query.h"

/* A lock that was held, with what is known from earlier snapshots. */
struct snapshot_row {
    struct lock_row s;
    int64_t at;       /* when it was seen, on the clock of time.h */
    int64_t ends;     /* when its lease would end; TIME_NEVER: it has none */
    int64_t since;    /* this owner has had it at least since then */
    bool from_start;  /* since the first snapshot: it may be longer */
    bool not_renewed; /* the snapshot before had the same end of the lease */
    bool asked;       /* the server was asked who the owner is */
    unsigned changes; /* of its owner, that were noticed */
};

struct snapshot {
    struct snapshot_row *rows; /* by name */
    size_t n, room;
    bool failed; /* no memory */
};

/* The polling interval: --every, or usual_ms. EXIT_FINE, or EXIT_USAGE
 * and an error was printed. */
int snapshot_interval(const struct args *a, const char *command,
                      int64_t usual_ms, int64_t *every_ms);

/* All locks that match; sorted, each once. */
dibs_err snapshot_read(dibs_client *c, const char *pattern,
                       struct snapshot *out);
/* One lock; out has one row, or none if it is free. */
dibs_err snapshot_read_one(struct lock_query *k, const char *name,
                           struct snapshot *out);
void snapshot_clear(struct snapshot *v);
/* The one of that name, or NULL. */
struct snapshot_row *snapshot_find(struct snapshot *v,
                                   const struct lock_row *s);

/* Looks up the processes of the owners. Those of the snapshot before are known;
 * for all others there is one query. */
void snapshot_name_owners(dibs_client *c, const struct snapshot *before,
                          struct snapshot *v);

/* What happened to one lock between two snapshots. */
enum change {
    CHANGE_HELD,    /* it was held in the first snapshot */
    CHANGE_TAKEN,   /* free before, or by another owner */
    CHANGE_FREE,    /* not held any more */
    CHANGE_LOST,    /* the same, and its lease had run out */
    CHANGE_HOLDERS, /* of several owners: there are more, or fewer */
    CHANGE_VALUE,   /* the same owner published another value, or none now */
    CHANGE_QUEUE    /* more wait */
};

/* before: NULL for HELD, and TAKEN when it was free. after: NULL for FREE and
 * LOST; what is changed in it counts for the next comparison. */
typedef void snapshot_fn(enum change what, const struct snapshot_row *before,
                         struct snapshot_row *after, void *arg);

/* Copies from before to after what only earlier snapshots know, and calls fn
 * for each change. first: there is no snapshot before. */
void snapshot_compare(const struct snapshot *before, struct snapshot *after,
                      bool first, snapshot_fn *fn, void *arg);

#endif
