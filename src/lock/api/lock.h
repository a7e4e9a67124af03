/* SPDX-License-Identifier: MIT
 *
 * lock.h - lock handles, and what the public calls on them share.
 *
 * Words
 *   handle     dibs_lock: what a program creates and frees. It is one lock
 *              (lock.c) or a group of locks (src/group). The public calls
 *              (lock_api.c) check their arguments and call the handle's table
 *              of operations, dibs__lock_ops.
 *   entry      dibs__lock_entry: one name and type of lock in one client. All
 *              handles with that name and type share it.
 *   operation  dibs__operation: one acquire, release or request in flight. Of a
 *              sync call it is on the caller's stack; of an async call it is
 *              allocated and has a reference to the entry.
 */
#ifndef DIBS_LOCK_API_LOCK_H
#define DIBS_LOCK_API_LOCK_H

#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"

/* State of an owner's hold by the client's clock, without asking the server. */
struct dibs__local_state {
    dibs_state state;
    int64_t valid_ms, holds; /* as dibs_lock_valid_ms, dibs_lock_holds */
    uint64_t owner_id;       /* of one lock: the owner's id on the server */
};

/* Operations of a handle. Arguments were checked. In a child after fork only
 * is_forked_copy and free are called. An owner of 0 in `o` is the thread. */
struct dibs__lock_ops {
    /* fn NULL: waits for the result. */
    dibs_err (*acquire)(dibs_lock *l, const dibs_lock_opts *o, bool trying,
                        dibs_cb fn, void *arg);
    dibs_err (*release)(dibs_lock *l, const dibs_lock_opts *o, dibs_cb fn,
                        void *arg);
    dibs_err (*cancel)(dibs_lock *l, dibs_owner owner);
    struct dibs__local_state (*local_state)(const dibs_lock *l,
                                            dibs_owner owner);
    /* dibs_lock_members. NULL: the handle has no members. */
    dibs_err (*member)(dibs_lock *l, size_t index, dibs_owner owner,
                       dibs_member *out);
    /* Returns whether this thread runs a callback of the handle's client. */
    bool (*in_callback)(const dibs_lock *l);
    /* Returns whether this process is a child that inherited the handle. */
    bool (*is_forked_copy)(const dibs_lock *l);
    void (*free)(dibs_lock *l);
    const char *no_name; /* error text of calls that need one name; NULL: the
                            handle has one name */
};

struct dibs_lock {
    const struct dibs__lock_ops *ops;
    dibs_client *c; /* logs invalid arguments; with a reference if the handle
                       is one lock */
    struct dibs__lock_entry *entry; /* with a reference; NULL if no_name */
};

/* ---- lock_api.c ---------------------------------------------------------- */

/* Checks that the handle has one name and enters its client. If it returns OK,
 * the caller must call dibs__client_leave. Thread: app. */
dibs_err dibs__lock_enter(const dibs_lock *l);

/* Logs this thread's reason (dibs__reason_set) as an event of the lock's
 * client; l may be NULL. Returns INVALID. */
dibs_err dibs__lock_report_invalid_arg(const dibs_lock *l);

/* Copies the options, or the defaults for NULL. Returns INVALID, with a reason
 * that was logged, or FORKED. */
dibs_err dibs__lock_opts_take(const dibs_lock *l, const dibs_lock_opts *in,
                              dibs_lock_opts *o);

/* Checks its arguments and creates a handle on a lock of that type. */
dibs_err dibs__lock_new(dibs_client *c, const struct dibs__lock_type *type,
                        const void *name, size_t len, dibs_lock **out);
/* Returns strlen(name), at most DIBS_NAME_MAX + 1; 0 for NULL. */
size_t dibs__name_length(const char *name);

/* ---- lock_info.c --------------------------------------------------------- */

/* Queries the lock without running a user's callback or blocking a thread.
 * Unless it returns NOMEM, it calls `done` once, when the reply has arrived.
 * why: the reason of an error, or "". Thread: io. */
typedef void dibs__lock_inspected(dibs_err err, const dibs_lock_info *info,
                                  const char *why, void *arg);
dibs_err dibs__lock_inspect(dibs_lock *l, dibs__lock_inspected *done,
                            void *arg);

/* ---- lock.c ------------------------------------------------------------ */

/* Returns the state of this owner's hold at `now`. A hold that has expired by
 * the client's clock is LOST even before the expiry was processed. Thread:
 * any. */
struct dibs__local_state dibs__entry_local_state(struct dibs__lock_entry *entry,
                                                 dibs_owner owner, int64_t now);

/* Fill an operation whose entry is set from the options. Thread: any. */
dibs_err dibs__acquire_fill(struct dibs__operation *op, const dibs_lock_opts *o,
                            bool trying);
dibs_err dibs__release_fill(struct dibs__operation *op, const dibs_lock_opts *o,
                            bool trying);
/* For a release while the client closes and releases all holds itself: on_lost
 * of this owner (0: of all owners) is not called any more, and does not run any
 * more, when this returns. Thread: app. */
void dibs__release_suppress_losses(struct dibs__lock_entry *entry,
                                   dibs_owner owner);

/* A sync operation on the caller's stack: init, fill, wait. dibs__op_wait runs
 * it and returns its result. */
void dibs__op_init(struct dibs__operation *op, dibs_lock *l);
dibs_err dibs__op_wait(struct dibs__operation *op);
/* Returns an async operation with a reference to its entry; NULL: out of
 * memory. size: that of a struct whose first member is the operation. */
void *dibs__op_new(dibs_lock *l, size_t size);
/* Frees an async operation that was not begun. */
void dibs__op_discard(struct dibs__operation *op);

#endif
