/* SPDX-License-Identifier: MIT
 *
 * nesting.h - the dibs runs around us, and when their holds end.
 */
#ifndef DIBS_CLI_RUN_NESTING_H
#define DIBS_CLI_RUN_NESTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTER_MAX 16

enum outer_state {
    OUTER_HOLDS,
    OUTER_LOST, /* an outer run says that it lost its lock */
    OUTER_ENDED /* an outer run is about to release its lock, or was killed */
};

struct outer {
    int fd; /* readable when the state may have changed; -1 none */
    int fds[OUTER_MAX];
    size_t n;
    int64_t grace_ms; /* from "lost" to the end of the lease, at least */
    bool unguarded;   /* one neither waits for us nor can it tell us */
};

/* Finds the descriptors of these owners, blanks between them, in our
 * environment. False when one of them has none that works: then nothing tells
 * us when its hold ends. That is fine as long as the outer run waits for us. */
bool outer_open(struct outer *o, const char *owners);
void outer_close(struct outer *o);

enum outer_state outer_state(const struct outer *o);

/* From join to leave, the outer runs do not release their locks, except to a
 * lost lease. Look at the state behind join: it may have been too late. */
void outer_join_fd(int fd); /* one of them; safe between fork and exec */
void outer_leave_fd(int fd);
void outer_join(const struct outer *o);
void outer_leave(const struct outer *o);
/* Has a run inside of ours joined? fd is the command's end of our pipe. */
bool outer_joined(int fd);

/* Is fd the pipe of a run around us, as the environment says? */
bool outer_names_fd(int fd);

/* The descriptor of the first one; -1 none. */
int outer_first(const struct outer *o);

/* What a run tells the runs inside of it. */
struct outer_terms {
    const char *owners; /* of its holds, blanks between them */
    int fd;             /* where the command reads from the pipe */
    int pipe_fd;        /* the same pipe in this process */
    bool foreground;    /* the run waits for its command only */
    int64_t grace_ms;   /* as in struct outer */
};

/* The row DIBS_LOST_FDS for the environment of a command: these terms, then
 * what our own environment says of other owners. Free it; NULL when out of
 * memory. */
char *outer_row(const struct outer_terms *t);

#endif
