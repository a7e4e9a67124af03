/* SPDX-License-Identifier: MIT
 *
 * outer.h - the dibs runs around us, and when their holds end.
 */
#ifndef DIBS_CLI_OUTER_H
#define DIBS_CLI_OUTER_H

#include <stdbool.h>
#include <stddef.h>

#define OUTER_MAX 16

enum outer_state {
    OUTER_HOLDS,
    OUTER_LOST, /* an outer run says that it lost its lock */
    OUTER_ENDED /* an outer run has released its lock, or was killed */
};

struct outer {
    int fd; /* readable when the state may have changed; -1 none */
    int fds[OUTER_MAX];
    size_t n;
    bool unguarded; /* one neither waits for us nor can it tell us */
};

/* Finds the descriptors of these owners, blanks between them, in our
 * environment. False when one of them has none that works: then nothing tells
 * us when its hold ends. That is fine as long as the outer run waits for us. */
bool outer_open(struct outer *o, const char *owners);
void outer_close(struct outer *o);

enum outer_state outer_state(const struct outer *o);

/* The descriptor of the first one; -1 none. */
int outer_first(const struct outer *o);

/* The row DIBS_LOST_FDS for the environment of a command: fd tells of the holds
 * of these owners, and what our own environment says of others follows. With
 * foreground, the run waits for its command only. Free it; NULL when out of
 * memory. */
char *outer_row(const char *owners, int fd, bool foreground);

#endif
