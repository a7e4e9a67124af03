/* SPDX-License-Identifier: MIT
 *
 * permit_id.h - ids of the permits of slots locks on the server.
 */
#ifndef DIBS_LOCK_TYPE_PERMIT_ID_H
#define DIBS_LOCK_TYPE_PERMIT_ID_H

#include "lock/type/lock_type.h"

#define DIBS__PERMIT_ID 16 /* bytes */

/* Writes the id of the permit that this owner of the client `uuid` has, or will
 * have. It begins with a prefix that marks permits of this library. */
void dibs__permit_id(const char *uuid, uint64_t owner_id,
                     unsigned char id[DIBS__PERMIT_ID]);
/* The same as hex digits. */
void dibs__permit_hex(const char *uuid, uint64_t owner_id,
                      char hex[2 * DIBS__PERMIT_ID]);

#endif
