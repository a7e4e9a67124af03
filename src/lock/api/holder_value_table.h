/* SPDX-License-Identifier: MIT
 *
 * holder_value_table.h - table of the values that holds of this client publish
 * (dibs_lock_publish). holder_value.c sends them.
 */
#ifndef DIBS_LOCK_API_HOLDER_VALUE_TABLE_H
#define DIBS_LOCK_API_HOLDER_VALUE_TABLE_H

#include "base/platform.h"
#include "client/command/command.h"

#include <uv/tree.h>

struct dibs__lock_entry;

/* holder_value_table.c has the table of states. */
enum dibs__holder_value_state {
    HOLDER_VALUE_IDLE,
    HOLDER_VALUE_POSTED,
    HOLDER_VALUE_IN_FLIGHT
};

/* An immutable text. A later value of the client has a greater number. */
struct dibs__value {
    uint64_t number;
    size_t len;
    char text[];
};

/* The value of one hold: one row of the table. */
struct dibs__holder_value {
    RB_ENTRY(dibs__holder_value) node; /* mu */
    struct dibs__lock_entry *entry;    /* const after init; with a reference */
    uint64_t hold_number;              /* const after init: key of the table */
    uint64_t owner_id;                 /* const after init */
    enum dibs__holder_value_state state; /* mu */
    bool needs_send;                     /* mu: must be sent (again) */
    bool hold_ended;                     /* mu: not in the table any more */
    bool removed; /* mu: nothing left to remove on the server */
    struct dibs__value *new_value; /* mu: replaces value; or NULL */
    struct dibs__value *value;     /* io: the published value; or NULL */
    struct dibs__task step;
    struct dibs__command cmd; /* io */
};

RB_HEAD(dibs__holder_value_tree, dibs__holder_value);

struct dibs__holder_value_table {
    dibs__mutex mu;
    struct dibs__holder_value_tree tree; /* mu; by hold_number */
    uint64_t last_number;                /* mu: of the newest value */
};

void dibs__holder_values_init(struct dibs__holder_value_table *t);
void dibs__holder_values_clear(struct dibs__holder_value_table *t);

/* Sets the value of a hold that has not ended, sends nothing. *number: the
 * value's number. step: task that calls dibs__holder_value_next and sends.
 * Returns false if out of memory. Requires entry->mu. */
bool dibs__holder_value_put(struct dibs__lock_entry *entry,
                            uint64_t hold_number, uint64_t owner_id,
                            const char *text, size_t len,
                            void (*step)(struct dibs__task *t),
                            uint64_t *number);
/* The hold was renewed: sends its value again. Requires entry->mu. */
void dibs__holder_value_renew(struct dibs__lock_entry *entry,
                              uint64_t hold_number);
/* The hold has ended: removes its value. Requires entry->mu. */
void dibs__holder_value_end(struct dibs__lock_entry *entry,
                            uint64_t hold_number);
/* The server refused the value: ends the row without sending anything more.
 * Requires entry->mu. */
void dibs__holder_value_discard(struct dibs__lock_entry *entry,
                                uint64_t hold_number);

enum dibs__holder_value_job { JOB_NONE, JOB_SEND, JOB_REMOVE, JOB_FREE };
/* Returns what the caller must do next with this row and changes its state.
 * Called at each step and after each reply. Thread: io. */
enum dibs__holder_value_job
dibs__holder_value_next(struct dibs__holder_value *p);
/* Frees the row after JOB_FREE. No mutex held. */
void dibs__holder_value_free(struct dibs__holder_value *p);

#endif
