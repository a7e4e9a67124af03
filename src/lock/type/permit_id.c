/* SPDX-License-Identifier: MIT
 *
 * permit_id.c - the ids of permits.
 *
 * Thread  any.
 *
 * An id has sixteen bytes, as Redisson's have: d1 b5 01, five bytes of the
 * owner's number, eight of the client's UUID. So it is known before anything is
 * sent, is the same when a command is sent again, and is no other owner's.
 */
#include "lock/type/permit_id.h"

#define OWNER_BYTE 3 /* where the owner's number begins */
#define UUID_BYTE  8 /* where the client's UUID begins */

static unsigned hex_digit(char c)
{
    return c >= 'a'   ? (unsigned)(c - 'a') + 10
           : c >= 'A' ? (unsigned)(c - 'A') + 10
                      : (unsigned)(c - '0');
}

/* The next byte of a UUID's text. */
static unsigned char uuid_byte(const char **uuid)
{
    const char *at = *uuid + (**uuid == '-');

    *uuid = at + 2;
    return (unsigned char)(hex_digit(at[0]) << 4 | hex_digit(at[1]));
}

void dibs__permit_id(const char *uuid, uint64_t wire,
                     unsigned char id[DIBS__PERMIT_ID])
{
    id[0] = 0xd1;
    id[1] = 0xb5;
    id[2] = 0x01;
    for (int i = OWNER_BYTE; i < UUID_BYTE; i++)
        id[i] = (unsigned char)(wire >> (8 * (UUID_BYTE - 1 - i)));
    for (int i = UUID_BYTE; i < DIBS__PERMIT_ID; i++)
        id[i] = uuid_byte(&uuid);
}

void dibs__permit_hex(const char *uuid, uint64_t wire,
                      char hex[2 * DIBS__PERMIT_ID])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char id[DIBS__PERMIT_ID];

    dibs__permit_id(uuid, wire, id);
    for (size_t i = 0; i < 2 * DIBS__PERMIT_ID; i++)
        hex[i] = digits[i % 2 ? id[i / 2] & 15 : id[i / 2] >> 4];
}
