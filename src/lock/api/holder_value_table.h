/* SPDX-License-Identifier: MIT
 *
 * holder_value_table.h - values that holders of this client publish with their
 * locks: the table of them. holder_value.c sends them.
 */
#ifndef DIBS_LOCK_API_HOLDER_VALUE_TABLE_H
#define DIBS_LOCK_API_HOLDER_VALUE_TABLE_H

#include "base/platform.h"
#include "client/command/command.h"

#include <uv/tree.h>

struct dibs__lock_entry;

/* holder_value_table.c has the table of states. */
enum dibs__holder_value_state {
    PUBLISHED_QUIET,
    PUBLISHED_POSTED,
    PUBLISHED_SENT
};

/* A text that does not change any more. Numbers grow from one value to the
 * next. */
struct dibs__value {
    uint64_t number;
    size_t len;
    char text[];
};

/* What one hold publishes. */
struct dibs__holder_value {
    RB_ENTRY(dibs__holder_value) node; /* mu */
    struct dibs__lock_entry *line;     /* const after init; with a reference */
    uint64_t hold, wire;               /* const after init */
    enum dibs__holder_value_state state; /* mu */
    bool due;                            /* mu: to be sent, or sent again */
    bool over;                           /* mu: its hold is; out of the table */
    bool forgotten;                      /* mu: nothing is to be taken away */
    struct dibs__value *fresh;           /* mu: newer than value; or NULL */
    struct dibs__value *value;           /* io: what is published; or NULL */
    struct dibs__task step;
    struct dibs__command call; /* io */
};

RB_HEAD(dibs__holder_value_tree, dibs__holder_value);

struct dibs__holder_value_table {
    dibs__mutex mu;
    struct dibs__holder_value_tree tree; /* mu; by hold */
    uint64_t number;                     /* mu: the last that was given */
};

void dibs__holder_values_init(struct dibs__holder_value_table *t);
void dibs__holder_values_clear(struct dibs__holder_value_table *t);

/* The hold publishes this from now on; *number is that of the value. step: what
 * sends it. Nothing is sent now. False: out of memory. line.mu is held, and the
 * hold is not over. */
bool dibs__holder_value_put(struct dibs__lock_entry *entry, uint64_t hold,
                            uint64_t wire, const char *text, size_t len,
                            void (*step)(struct dibs__task *t),
                            uint64_t *number);
/* The hold was renewed: its value is sent again. line.mu is held. */
void dibs__holder_value_renew(struct dibs__lock_entry *entry, uint64_t hold);
/* The hold is over: its value goes. line.mu is held. */
void dibs__holder_value_end(struct dibs__lock_entry *entry, uint64_t hold);
/* The server refused it: nothing more is sent. line.mu is held. */
void dibs__holder_value_forget(struct dibs__lock_entry *entry, uint64_t hold);

/* What is to be done now. */
enum dibs__holder_value_job { JOB_NONE, JOB_SEND, JOB_DROP, JOB_FREE };
/* On io, at each step and after each answer. JOB_NONE: it is quiet now. */
enum dibs__holder_value_job
dibs__holder_value_next(struct dibs__holder_value *p);
/* After JOB_FREE, with no mutex held. */
void dibs__holder_value_free(struct dibs__holder_value *p);

#endif
