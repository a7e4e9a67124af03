/* SPDX-License-Identifier: MIT
 *
 * check_permissions.h - the table of commands, keys and channels that locks
 * need.
 */
#ifndef DIBS_ADMIN_CHECK_PERMISSIONS_H
#define DIBS_ADMIN_CHECK_PERMISSIONS_H

#include <stdbool.h>

/* What a command is for. */
enum dibs__permission_group {
    RIGHT_PLAIN,
    RIGHT_WAKE,
    RIGHT_LINE,
    RIGHT_BARRIER,
    RIGHT_TRACK,
    RIGHT_NAME,
    RIGHT_FAIR,
    RIGHT_RW,
    RIGHT_FENCED,
    RIGHT_SLOTS,
    RIGHT_SEMAPHORE,
    RIGHT_LATCH,
    RIGHT_VALUES,
    RIGHT_HOLDERS,
    RIGHT_LIST,
    RIGHT_COUNTS,
    RIGHT_WHO,
    RIGHT_ACKS,
    RIGHT_MOVES,
    RIGHT_GROUPS,
    RIGHT_DOCTOR = RIGHT_GROUPS /* not examined: the examination needs it */
};

/* One right: a command in capitals, with its subcommand or NULL; or a key or
 * channel, with its mark before it. False: enough. */
typedef bool dibs__permission_fn(const char *word, const char *sub, void *arg);

/* Tells what the wanted groups (a bit each) need for names that match the
 * pattern; some of it more than once. False: fn had enough. */
bool dibs__permissions_each(unsigned wanted, bool cluster, const char *pattern,
                            dibs__permission_fn *fn, void *arg);

#endif
