/* SPDX-License-Identifier: MIT
 *
 * permit_id.h - permits as the server knows them: those of slots locks, and the
 * entries in the book of a semaphore.
 */
#ifndef DIBS_LOCK_TYPE_PERMIT_ID_H
#define DIBS_LOCK_TYPE_PERMIT_ID_H

#include "lock/type/lock_type.h"

#define DIBS__PERMIT_ID 16 /* bytes */

/* The id of the permit that this owner has, or will have. It begins with a mark
 * of this library, and says which owner of which client (by its UUID). */
void dibs__permit_id(const char *uuid, uint64_t wire,
                     unsigned char id[DIBS__PERMIT_ID]);
/* The same as hex digits. */
void dibs__permit_hex(const char *uuid, uint64_t wire,
                      char hex[2 * DIBS__PERMIT_ID]);

#endif
