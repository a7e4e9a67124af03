/* SPDX-License-Identifier: MIT
 *
 * permit_id.c - ids of permits.
 *
 * Thread  any.
 *
 * An id has sixteen bytes, as Redisson's have: d1 b5 01, five bytes of the
 * owner id, eight of the client's UUID. It is derived, not random, so a command
 * that is sent again has the same id and is idempotent, and no other owner has
 * it.
 */
#include "lock/type/permit_id.h"

#define OWNER_BYTE 3 /* offset of the owner id */
#define UUID_BYTE  8 /* offset of the client's UUID */

static unsigned hex_digit(char c)
{
    return c >= 'a'   ? (unsigned)(c - 'a') + 10
           : c >= 'A' ? (unsigned)(c - 'A') + 10
                      : (unsigned)(c - '0');
}

/* Parses one byte and moves *uuid behind it. */
static unsigned char uuid_byte(const char **uuid)
{
    const char *at = *uuid + (**uuid == '-');

    *uuid = at + 2;
    return (unsigned char)(hex_digit(at[0]) << 4 | hex_digit(at[1]));
}

void dibs__permit_id(const char *uuid, uint64_t owner_id,
                     unsigned char id[DIBS__PERMIT_ID])
{
    id[0] = 0xd1;
    id[1] = 0xb5;
    id[2] = 0x01;
    for (int i = OWNER_BYTE; i < UUID_BYTE; i++)
        id[i] = (unsigned char)(owner_id >> (8 * (UUID_BYTE - 1 - i)));
    for (int i = UUID_BYTE; i < DIBS__PERMIT_ID; i++)
        id[i] = uuid_byte(&uuid);
}

void dibs__permit_hex(const char *uuid, uint64_t owner_id,
                      char hex[2 * DIBS__PERMIT_ID])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char id[DIBS__PERMIT_ID];

    dibs__permit_id(uuid, owner_id, id);
    for (size_t i = 0; i < 2 * DIBS__PERMIT_ID; i++)
        hex[i] = digits[i % 2 ? id[i / 2] & 15 : id[i / 2] >> 4];
}
