/* SPDX-License-Identifier: MIT
 *
 * object_type.h - finds out what type of object a name is, and reads it.
 */
#ifndef DIBS_LOCK_INSPECT_OBJECT_TYPE_H
#define DIBS_LOCK_INSPECT_OBJECT_TYPE_H

#include "lock/api/lock.h"

/* Like dibs_client_look, for a name of any bytes. Thread: app. */
dibs_err dibs__object_inspect(dibs_client *c, const char *name, size_t len,
                              dibs_lock_info *info);

/* ---- latch.c ----------------------------------------------------------- */

/* Writes the key of a latch's hash as an argument. */
void dibs__latch_hash_key(struct dibs__buf *out,
                          const struct dibs__lock_entry *entry);

#endif
