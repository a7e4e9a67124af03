/* SPDX-License-Identifier: MIT
 *
 * lock.h - a handle on a lock, and the parts that public calls share.
 */
#ifndef DIBS_LOCK_LOCK_H
#define DIBS_LOCK_LOCK_H

#include "lock/locks.h"
#include "lock/op.h"

struct dibs__group;

struct dibs_lock {
    dibs_client *c;            /* with a reference */
    struct dibs__line *line;   /* with a reference */
    struct dibs__group *group; /* instead of both */
};

/* Every public call that needs the server: checks, then counts the caller in.
 * OK: dibs__client_leave must follow. */
dibs_err dibs__lock_enter(const dibs_lock *l);

/* An argument was refused, and the reason set: tells the lock's client, too. l
 * may be NULL. Returns INVALID. */
dibs_err dibs__lock_refuse(const dibs_lock *l);

/* A handle for a lock of this kind; checks all its arguments. */
dibs_err dibs__lock_new(dibs_client *c, const struct dibs__kind *kind,
                        const void *name, size_t len, dibs_lock **out);
/* How long a name is; one that is too long is as good as any other. */
size_t dibs__name_length(const char *name);

/* What the options say, into an operation that has its line. Thread: any. */
dibs_err dibs__acquire_fill(struct dibs__op *op, const dibs_lock_opts *o,
                            bool trying);
dibs_err dibs__release_fill(struct dibs__op *op, const dibs_lock_opts *o,
                            bool trying);

/* A sync operation on the caller's stack: filled in, run, waited for. */
void dibs__op_init(struct dibs__op *op, dibs_lock *l);
dibs_err dibs__op_wait(struct dibs__op *op);
/* An async one, of this size (an op comes first in it). It has a reference to
 * its line. NULL: out of memory. */
void *dibs__op_new(dibs_lock *l, size_t size);
/* One that was not begun. */
void dibs__op_discard(struct dibs__op *op);

#endif
