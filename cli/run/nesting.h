/* SPDX-License-Identifier: MIT
 *
 * nesting.h - the dibs runs around us, and when their holds end.
 */
#ifndef DIBS_CLI_RUN_NESTING_H
#define DIBS_CLI_RUN_NESTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NESTING_MAX 16

enum nesting_state {
    NESTING_HELD,
    NESTING_LOST, /* an outer run says that it lost its lock */
    NESTING_ENDED /* an outer run is about to release its lock, or was killed */
};

struct nesting {
    int fd; /* readable when the state may have changed; -1 none */
    int fds[NESTING_MAX];
    size_t n;
    int64_t grace_ms; /* from "lost" to the end of the lease, at least */
    bool unguarded;   /* one does not wait for us, and has no valid pipe */
};

/* Finds the descriptors of these owners, separated by blanks, in our
 * environment. Returns false if one of them has no valid descriptor: the end of
 * its hold is not noticed then, which is safe only if that run waits for us. */
bool nesting_open(struct nesting *o, const char *owners);
void nesting_close(struct nesting *o);

enum nesting_state nesting_state(const struct nesting *o);

/* From join to leave, the outer runs do not release their locks, except to a
 * lost lease. Check the state after join: the hold may have ended before. */
void nesting_join_fd(int fd); /* one of them; safe between fork and exec */
void nesting_leave_fd(int fd);
void nesting_join(const struct nesting *o);
void nesting_leave(const struct nesting *o);
/* Returns whether an inner run has joined. fd is the command's end of our pipe.
 */
bool nesting_is_joined(int fd);

/* Is fd the pipe of a run around us, as the environment says? */
bool nesting_is_outer_fd(int fd);

/* The descriptor of the first one; -1 none. */
int nesting_first_fd(const struct nesting *o);

/* What a run passes to inner runs. */
struct nesting_terms {
    const char *owners; /* of its holds, blanks between them */
    int fd;             /* where the command reads from the pipe */
    int pipe_fd;        /* the same pipe in this process */
    bool foreground;    /* the run waits for its command only */
    int64_t grace_ms;   /* as in struct nesting */
};

/* The variable DIBS_LOST_FDS for the environment of a command: these terms,
 * then those of other owners in our own environment. Free it; NULL when out of
 * memory. */
char *nesting_env(const struct nesting_terms *t);

#endif
