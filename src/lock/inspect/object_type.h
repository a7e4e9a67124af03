/* SPDX-License-Identifier: MIT
 *
 * object_type.h - what is under a name, for those who do not know its kind.
 */
#ifndef DIBS_LOCK_INSPECT_OBJECT_TYPE_H
#define DIBS_LOCK_INSPECT_OBJECT_TYPE_H

#include "lock/api/lock.h"

/* As dibs_client_look, for a name of any bytes. Thread: app. */
dibs_err dibs__object_inspect(dibs_client *c, const char *name, size_t len,
                              dibs_lock_info *info);

/* ---- latch.c ----------------------------------------------------------- */

/* The name of a latch's notes, as an argument. */
void dibs__latch_notes(struct dibs__buf *out,
                       const struct dibs__lock_entry *entry);

#endif
