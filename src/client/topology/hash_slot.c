/* SPDX-License-Identifier: MIT
 *
 * hash_slot.c - the hash slot of a key: a CRC of its hash tag.
 *
 * Thread  any.
 *
 * CRC-16/XMODEM (polynomial 0x1021, initial value 0), modulo 16384. A slot is
 * computed once per lock entry, so no lookup table is used.
 */
#include "client/topology/hash_slot.h"

#include "net/url.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

const char *dibs__hash_slot_tag(const char *key, size_t len, size_t *tag_len)
{
    const char *open = memchr(key, '{', len);
    size_t left = open ? len - (size_t)(open - key) - 1 : 0;
    const char *close = open ? memchr(open + 1, '}', left) : NULL;

    *tag_len = len;
    if (!close || close == open + 1)
        return key;
    *tag_len = (size_t)(close - open) - 1;
    return open + 1;
}

bool dibs__hash_slot_single(const char *name, size_t len)
{
    size_t tag_len;

    if (memchr(name, '{', len))
        return dibs__hash_slot_tag(name, len, &tag_len) != name;
    return !memchr(name, '}', len);
}

int dibs__hash_slot_of(const char *key, size_t len)
{
    uint16_t crc = 0;
    const char *tag = dibs__hash_slot_tag(key, len, &len);

    for (size_t i = 0; i < len; i++) {
        crc = (uint16_t)(crc ^ (unsigned char)tag[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc % DIBS__SLOTS;
}

bool dibs__hash_slot_redirect(const char *error, int *slot, char *host,
                              int *port)
{
    char *end;
    const char *at = strchr(error, ' ');
    long n = at ? strtol(at, &end, 10) : -1;

    if (n < 0 || n >= DIBS__SLOTS || *end != ' ')
        return false;
    *slot = (int)n;
    at = end + 1;
    size_t len = strcspn(at, " \r\n");
    const char *colon = memrchr(at, ':', len);
    if (!colon || (size_t)(colon - at) > DIBS__URL_HOST_MAX)
        return false;
    memcpy(host, at, (size_t)(colon - at));
    host[colon - at] = '\0';
    n = strtol(colon + 1, &end, 10);
    *port = (int)n;
    return n > 0 && n < 65536 && end == at + len;
}
