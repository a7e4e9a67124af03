/* SPDX-License-Identifier: MIT
 *
 * batch.h - several operations of one client in one command.
 */
#ifndef DIBS_LOCK_CORE_BATCH_H
#define DIBS_LOCK_CORE_BATCH_H

#include "lock/core/operation.h"

/* Returns a batch for up to max operations of this verb: VERB_ACQUIRE or
 * VERB_RELEASE. An operation joins it by its member `batch`. NULL: out of
 * memory. */
struct dibs__batch *dibs__batch_new(enum dibs__lock_command verb, size_t max);
size_t dibs__batch_count(const struct dibs__batch *b);
/* Sends the batch, passes each operation its part of the reply, and frees the
 * batch. Acquires are all or nothing: if one cannot be granted, that one gets
 * the reason and all others CANCELED. All CANCELED: the locks cannot be
 * acquired by a batch. direct: on this thread, if a connection is free. No
 * mutex held. */
void dibs__batch_send(struct dibs__batch *b, bool direct);
/* Passes CANCELED to all operations, sends nothing, and frees the batch. */
void dibs__batch_cancel(struct dibs__batch *b);

#endif
