/* SPDX-License-Identifier: MIT
 *
 * batch.h - several operations of one client in one command.
 */
#ifndef DIBS_LOCK_CORE_BATCH_H
#define DIBS_LOCK_CORE_BATCH_H

#include "lock/core/operation.h"

/* For so many operations, all acquires or all releases. NULL: out of memory. */
struct dibs__batch *dibs__batch_new(enum dibs__lock_command verb, size_t max);
size_t dibs__batch_count(const struct dibs__batch *b);
/* Sends it, and answers each operation; it is gone then. Acquires: all are
 * taken, or none: then the one in the way learns why, and the others end with
 * CANCELED. If even that one does, none can be asked for in this way. direct:
 * on this thread, if a connection is free. No mutex held. */
void dibs__batch_send(struct dibs__batch *b, bool direct);
/* Answers CANCELED to all, without sending anything. */
void dibs__batch_drop(struct dibs__batch *b);

#endif
