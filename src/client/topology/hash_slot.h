/* SPDX-License-Identifier: MIT
 *
 * hash_slot.h - the hash slot of a key in a cluster.
 */
#ifndef DIBS_CLIENT_TOPOLOGY_HASH_SLOT_H
#define DIBS_CLIENT_TOPOLOGY_HASH_SLOT_H

#include <stdbool.h>
#include <stddef.h>

#define DIBS__SLOTS 16384

/* Returns the hash tag of a key: the bytes between the first { and the first }
 * after it, unless empty; else the whole key. */
const char *dibs__hash_slot_tag(const char *key, size_t len, size_t *tag_len);
/* Returns true if all keys of a lock with this name have the same slot. The
 * keys have the name in braces, unless it contains a { already. */
bool dibs__hash_slot_single(const char *name, size_t len);
/* Parses "MOVED 15495 host:port", or ASK. `host` must have room for
 * DIBS__URL_HOST_MAX + 1 bytes; it may be an IPv6 address without brackets, or
 * "". Returns false if the error is malformed. */
bool dibs__hash_slot_redirect(const char *error, int *slot, char *host,
                              int *port);
/* Returns 0 to DIBS__SLOTS - 1. */
int dibs__hash_slot_of(const char *key, size_t len);

#endif
