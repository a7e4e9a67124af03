/* SPDX-License-Identifier: MIT
 *
 * lock.h - a handle on a lock, and the parts that public calls share.
 *
 * A handle is one lock (lock.c) or several locks held as one, which a layer
 * above makes. The public calls are in lock_api.c; they reach either one
 * through the handle's table of operations.
 */
#ifndef DIBS_LOCK_API_LOCK_H
#define DIBS_LOCK_API_LOCK_H

#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"

/* What is known of an owner's hold without asking the server. */
struct dibs__local_state {
    dibs_state state;
    int64_t valid_ms, holds;
    uint64_t owner_id; /* of one lock: the owner's number on the server */
};

/* Operations on a handle. Arguments are checked. In a child after fork only
 * foreign and free are called. o: an owner of 0 is the thread. */
struct dibs__lock_ops {
    /* fn NULL: waits for the result. */
    dibs_err (*acquire)(dibs_lock *l, const dibs_lock_opts *o, bool trying,
                        dibs_cb fn, void *arg);
    dibs_err (*release)(dibs_lock *l, const dibs_lock_opts *o, dibs_cb fn,
                        void *arg);
    dibs_err (*cancel)(dibs_lock *l, dibs_owner owner);
    struct dibs__local_state (*local_state)(const dibs_lock *l,
                                            dibs_owner owner);
    /* One of its members, see dibs_lock_members. NULL: it has none. */
    dibs_err (*member)(dibs_lock *l, size_t index, dibs_owner owner,
                       dibs_member *out);
    bool (*in_callback)(
        const dibs_lock *l); /* this thread runs its callbacks */
    bool (*is_forked_copy)(const dibs_lock *l); /* this is a child after fork */
    void (*free)(dibs_lock *l);
    const char *no_name; /* why calls about one name fail; NULL: they do not */
};

struct dibs_lock {
    const struct dibs__lock_ops *ops;
    dibs_client *c; /* hears of refused arguments; ops say whether with
                       a reference */
    struct dibs__lock_entry
        *entry; /* with a reference; NULL if it has no_name */
};

/* ---- lock_api.c ---------------------------------------------------------- */

/* Every public call about one name that needs the server: checks, then counts
 * the caller in. OK: dibs__client_leave must follow. */
dibs_err dibs__lock_enter(const dibs_lock *l);

/* An argument was refused, and the reason set: tells the lock's client, too. l
 * may be NULL. Returns INVALID. */
dibs_err dibs__lock_report_invalid_arg(const dibs_lock *l);

/* The options as given, or the defaults for NULL. INVALID with a reason, which
 * the lock's client is told; FORKED. */
dibs_err dibs__lock_opts_take(const dibs_lock *l, const dibs_lock_opts *in,
                              dibs_lock_opts *o);

/* A handle for a lock of this kind; checks all its arguments. */
dibs_err dibs__lock_new(dibs_client *c, const struct dibs__lock_type *type,
                        const void *name, size_t len, dibs_lock **out);
/* How long a name is; one that is too long is as good as any other. */
size_t dibs__name_length(const char *name);

/* ---- lock_info.c ------------------------------------------------------------
 */

/* One look at the lock by the library itself: no callback of the user, no
 * thread that waits. looked comes once, where the answer does, unless this
 * fails (NOMEM); why: the reason in words, or "". Thread: io. */
typedef void dibs__lock_inspected(dibs_err err, const dibs_lock_info *info,
                                  const char *why, void *arg);
dibs_err dibs__lock_inspect(dibs_lock *l, dibs__lock_inspected *looked,
                            void *arg);

/* ---- lock.c ------------------------------------------------------------ */

/* What this owner has here by our own clock: a hold whose time is over is lost,
 * whether or not anybody has noticed yet. Thread: any. */
struct dibs__local_state dibs__entry_local_state(struct dibs__lock_entry *entry,
                                                 dibs_owner owner, int64_t now);

/* What the options say, into an operation that has its line. Thread: any. */
dibs_err dibs__acquire_fill(struct dibs__operation *op, const dibs_lock_opts *o,
                            bool trying);
dibs_err dibs__release_fill(struct dibs__operation *op, const dibs_lock_opts *o,
                            bool trying);
/* The client is closing and gives back all there is. An owner that releases on
 * top of that hears of no loss any more. 0: it may have been any of them. */
void dibs__release_settle_closed(struct dibs__lock_entry *entry,
                                 dibs_owner owner);

/* A sync operation on the caller's stack: filled in, run, waited for. */
void dibs__op_init(struct dibs__operation *op, dibs_lock *l);
dibs_err dibs__op_wait(struct dibs__operation *op);
/* An async one, of this size (an op comes first in it). It has a reference to
 * its line. NULL: out of memory. */
void *dibs__op_new(dibs_lock *l, size_t size);
/* One that was not begun. */
void dibs__op_discard(struct dibs__operation *op);

#endif
