/* SPDX-License-Identifier: MIT
 *
 * hash_slot.h - where a key is in a cluster.
 */
#ifndef DIBS_CLIENT_TOPOLOGY_HASH_SLOT_H
#define DIBS_CLIENT_TOPOLOGY_HASH_SLOT_H

#include <stdbool.h>
#include <stddef.h>

#define DIBS__SLOTS 16384

/* The part of a key that decides on its slot: what is between the first { and
 * the first } behind it, unless that is nothing; else all of it. */
const char *dibs__hash_slot_tag(const char *key, size_t len, size_t *tag_len);
/* Are all keys of a lock with this name in one slot? They have the name in
 * braces, unless it has a brace already. */
bool dibs__hash_slot_single(const char *name, size_t len);
/* What "MOVED 15495 host:port" says, or ASK. The host, of which there is room
 * for DIBS__URL_HOST_MAX + 1 bytes, may be an IPv6 address without brackets, or
 * missing. False: it makes no sense. */
bool dibs__hash_slot_redirect(const char *error, int *slot, char *host,
                              int *port);
/* 0 to 16383. */
int dibs__hash_slot_of(const char *key, size_t len);

#endif
