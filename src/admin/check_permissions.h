/* SPDX-License-Identifier: MIT
 *
 * check_permissions.h - the commands, keys and channels that locks use.
 */
#ifndef DIBS_ADMIN_CHECK_PERMISSIONS_H
#define DIBS_ADMIN_CHECK_PERMISSIONS_H

#include <stdbool.h>

/* The feature that a command is used for. */
enum dibs__permission_group {
    RIGHT_PLAIN,      /* every lock */
    RIGHT_WAKE,       /* pub/sub: wakes waiters */
    RIGHT_WAIT_QUEUE, /* server-side wait queue: wakes one waiter per release */
    RIGHT_KILL,       /* CLIENT KILL of commands in doubt */
    RIGHT_TRACK,      /* CLIENT TRACKING of held locks */
    RIGHT_NAME,       /* CLIENT SETNAME */
    RIGHT_FAIR,
    RIGHT_RW,
    RIGHT_FENCED,
    RIGHT_SLOTS,
    RIGHT_SEMAPHORE,
    RIGHT_LATCH,
    RIGHT_VALUES,       /* values published by holders */
    RIGHT_HOLDERS,      /* holders of a read-write lock */
    RIGHT_SCAN,         /* list of locks */
    RIGHT_WAITER_COUNT, /* number of waiters */
    RIGHT_CLIENT_LIST,  /* host and process of an owner */
    RIGHT_REPLICA_ACK,  /* WAIT */
    RIGHT_REDIRECT,     /* cluster: slot map, ASK */
    RIGHT_GROUPS,
    RIGHT_DOCTOR = RIGHT_GROUPS /* used by the doctor only, not checked by it */
};

/* Receives one permission. word: a command in upper case, with its subcommand
 * or NULL in `sub`; or a key pattern after '~', or a channel pattern after '&'.
 * Returns false to stop. */
typedef bool dibs__permission_fn(const char *word, const char *sub, void *arg);

/* Calls fn for the permissions of the `wanted` groups (one bit each), with keys
 * and channels for names that match `pattern`. A permission may be passed more
 * than once. Returns false if fn stopped. */
bool dibs__permissions_each(unsigned wanted, bool cluster, const char *pattern,
                            dibs__permission_fn *fn, void *arg);

#endif
