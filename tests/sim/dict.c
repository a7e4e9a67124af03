/* SPDX-License-Identifier: MIT
 *
 * dict.c - a table from strings to anything, in order of arrival: chains for
 * finding, a list for walking.
 */
#include "sim/dict.h"

#include <stdlib.h>

static uint64_t hash_of(struct sr_str key)
{
    uint64_t h = 14695981039346656037ULL; /* FNV-1a */

    for (size_t i = 0; i < key.n; i++)
        h = (h ^ (unsigned char)key.p[i]) * 1099511628211ULL;
    return h;
}

struct sr_entry *sr__dict_find(const struct sr_dict *d, struct sr_str key)
{
    if (d->count == 0)
        return NULL;
    uint64_t h = hash_of(key);
    struct sr_entry *e = d->slots[h % d->nslots];
    while (e && !(e->hash == h && sr__same(e->key, key)))
        e = e->chain;
    return e;
}

void *sr__dict_get(const struct sr_dict *d, struct sr_str key)
{
    struct sr_entry *e = sr__dict_find(d, key);

    return e ? e->val : NULL;
}

static void widen(struct sr_dict *d)
{
    free(d->slots);
    d->nslots = d->nslots ? 2 * d->nslots : 8;
    d->slots = sr__alloc(d->nslots * sizeof(struct sr_entry *));
    for (struct sr_entry *e = d->first; e; e = e->next) {
        e->chain = d->slots[e->hash % d->nslots];
        d->slots[e->hash % d->nslots] = e;
    }
}

struct sr_entry *sr__dict_add(struct sr_dict *d, struct sr_str key, void *val)
{
    struct sr_entry *e = sr__alloc(sizeof *e);

    if (d->count >= d->nslots)
        widen(d);
    e->key = sr__copy(key);
    e->hash = hash_of(key);
    e->val = val;
    e->serial = ++d->serial;
    e->chain = d->slots[e->hash % d->nslots];
    d->slots[e->hash % d->nslots] = e;
    e->prev = d->last;
    *(d->last ? &d->last->next : &d->first) = e;
    d->last = e;
    d->count++;
    return e;
}

void *sr__dict_del(struct sr_dict *d, struct sr_str key)
{
    struct sr_entry *e = sr__dict_find(d, key);

    if (!e)
        return NULL;
    struct sr_entry **at = &d->slots[e->hash % d->nslots];
    while (*at != e)
        at = &(*at)->chain;
    *at = e->chain;
    *(e->prev ? &e->prev->next : &d->first) = e->next;
    *(e->next ? &e->next->prev : &d->last) = e->prev;
    d->count--;
    void *val = e->val;
    sr__str_free(&e->key);
    free(e);
    return val;
}

void sr__dict_free(struct sr_dict *d, void (*drop)(void *val))
{
    for (struct sr_entry *e = d->first, *next; e; e = next) {
        next = e->next;
        if (drop)
            drop(e->val);
        sr__str_free(&e->key);
        free(e);
    }
    free(d->slots);
    *d = (struct sr_dict){0};
}
