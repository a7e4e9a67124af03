/* SPDX-License-Identifier: MIT
 *
 * value.h - what a key can hold: a string, a hash, a list, a sorted set.
 *
 * A hash is a dict, a list and a sorted set are arrays: the keys of locks are
 * small. An empty hash, list or sorted set does not exist; who takes the last
 * element out deletes the key.
 */
#ifndef DIBS_SIM_VALUE_H
#define DIBS_SIM_VALUE_H

#include "sim/dict.h"

enum sr_type { SR_STRING, SR_HASH, SR_LIST, SR_ZSET };

struct sr_scored {
    double score;
    struct sr_str member; /* owned */
};

struct sr_value {
    enum sr_type type;
    int64_t expires;        /* ms since 1970; -1 = never */
    struct sr_str str;      /* SR_STRING */
    struct sr_dict hash;    /* SR_HASH: field to struct sr_str * */
    struct sr_str *list;    /* SR_LIST: owned strings */
    struct sr_scored *zset; /* SR_ZSET: by score, then by member */
    size_t n, cap;          /* of list or zset */
};

struct sr_value *sr__value_new(enum sr_type type);
struct sr_value *sr__value_copy(const struct sr_value *v);
void sr__value_free(void *v);
const char *sr__type_name(enum sr_type type);
size_t sr__value_size(const struct sr_value *v); /* number of elements */

/* ---- hash -------------------------------------------------------------- */

/* True: the field is new. */
bool sr__hash_set(struct sr_value *v, struct sr_str field, struct sr_str to);
const struct sr_str *sr__hash_get(const struct sr_value *v, struct sr_str f);
bool sr__hash_del(struct sr_value *v, struct sr_str field);

/* ---- list -------------------------------------------------------------- */

void sr__list_insert(struct sr_value *v, size_t at, struct sr_str s);
void sr__list_remove(struct sr_value *v, size_t at);

/* ---- sorted set -------------------------------------------------------- */

/* Its place, or v->n. */
size_t sr__zset_find(const struct sr_value *v, struct sr_str member);
void sr__zset_put(struct sr_value *v, struct sr_str member, double score);
void sr__zset_remove(struct sr_value *v, size_t at);

#endif
