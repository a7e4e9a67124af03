/* SPDX-License-Identifier: MIT
 *
 * dict.h - a table from strings to anything, walked in the order in which
 * things came in. No address and no chance takes part, so two runs see the
 * same order. A small hash of Redis keeps that order, too.
 */
#ifndef DIBS_SIM_DICT_H
#define DIBS_SIM_DICT_H

#include "sim/bytes.h"

struct sr_entry {
    struct sr_entry *prev, *next; /* in order of arrival */
    struct sr_entry *chain;
    struct sr_str key; /* owned */
    uint64_t hash;
    uint64_t serial; /* rises from entry to entry; a cursor of SCAN */
    void *val;
};

struct sr_dict {
    struct sr_entry **slots;
    size_t nslots, count;
    struct sr_entry *first, *last;
    uint64_t serial;
};

struct sr_entry *sr__dict_find(const struct sr_dict *d, struct sr_str key);
void *sr__dict_get(const struct sr_dict *d, struct sr_str key);
/* The key must not be there yet. */
struct sr_entry *sr__dict_add(struct sr_dict *d, struct sr_str key, void *val);
/* Its value, or NULL if it was not there. */
void *sr__dict_del(struct sr_dict *d, struct sr_str key);
/* drop: frees a value; or NULL. */
void sr__dict_free(struct sr_dict *d, void (*drop)(void *val));

#endif
