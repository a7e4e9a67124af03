/* SPDX-License-Identifier: MIT
 *
 * sha1.c - the digest by which a server knows a script (FIPS 180).
 */
#include "sim/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t roll(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static void take_block(uint32_t h[5], const unsigned char *p)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = roll(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                              : (b ^ c ^ d) + 0xca62c1d6;
        uint32_t next = roll(a, 5) + f + e + w[i];
        e = d;
        d = c;
        c = roll(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

void sr__sha1_hex(struct sr_str s, char hex[41])
{
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476,
                     0xc3d2e1f0};
    size_t blocks = (s.n + 8) / 64 + 1;
    unsigned char *p = sr__alloc(blocks * 64);

    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = 0x80;
    for (int i = 0; i < 8; i++)
        p[blocks * 64 - 1 - (size_t)i] =
            (unsigned char)((uint64_t)s.n * 8 >> (8 * i));
    for (size_t i = 0; i < blocks; i++)
        take_block(h, p + 64 * i);
    free(p);
    for (int i = 0; i < 5; i++)
        snprintf(hex + 8 * i, 9, "%08x", h[i]);
}
