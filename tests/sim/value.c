/* SPDX-License-Identifier: MIT
 *
 * value.c - what a key can hold: a string, a hash, a list, a sorted set.
 */
#include "sim/value.h"

#include <stdlib.h>
#include <string.h>

struct sr_value *sr__value_new(enum sr_type type)
{
    struct sr_value *v = sr__alloc(sizeof *v);

    v->type = type;
    v->expires = -1;
    return v;
}

static void free_field(void *val)
{
    sr__str_free(val);
    free(val);
}

void sr__value_free(void *val)
{
    struct sr_value *v = val;

    if (!v)
        return;
    sr__str_free(&v->str);
    sr__dict_free(&v->hash, free_field);
    for (size_t i = 0; v->list && i < v->n; i++)
        sr__str_free(&v->list[i]);
    for (size_t i = 0; v->zset && i < v->n; i++)
        sr__str_free(&v->zset[i].member);
    free(v->list);
    free(v->zset);
    free(v);
}

struct sr_value *sr__value_copy(const struct sr_value *v)
{
    struct sr_value *copy = sr__value_new(v->type);

    copy->expires = v->expires;
    if (v->type == SR_STRING)
        copy->str = sr__copy(v->str);
    for (const struct sr_entry *e = v->hash.first; e; e = e->next)
        sr__hash_set(copy, e->key, *(const struct sr_str *)e->val);
    for (size_t i = 0; i < v->n; i++) {
        if (v->type == SR_LIST)
            sr__list_insert(copy, i, v->list[i]);
        else
            sr__zset_put(copy, v->zset[i].member, v->zset[i].score);
    }
    return copy;
}

const char *sr__type_name(enum sr_type type)
{
    static const char *const names[] = {"string", "hash", "list", "zset"};

    return names[type];
}

size_t sr__value_size(const struct sr_value *v)
{
    return v->type == SR_STRING ? 1 : v->type == SR_HASH ? v->hash.count : v->n;
}

/* ---- hash -------------------------------------------------------------- */

bool sr__hash_set(struct sr_value *v, struct sr_str field, struct sr_str to)
{
    struct sr_str *now = sr__dict_get(&v->hash, field);
    bool fresh = !now;
    struct sr_str copy = sr__copy(to);

    if (fresh) {
        now = sr__alloc(sizeof *now);
        sr__dict_add(&v->hash, field, now);
    }
    sr__str_free(now);
    *now = copy;
    return fresh;
}

const struct sr_str *sr__hash_get(const struct sr_value *v, struct sr_str f)
{
    return sr__dict_get(&v->hash, f);
}

bool sr__hash_del(struct sr_value *v, struct sr_str field)
{
    struct sr_str *now = sr__dict_del(&v->hash, field);

    if (now)
        free_field(now);
    return now;
}

/* ---- list -------------------------------------------------------------- */

void sr__list_insert(struct sr_value *v, size_t at, struct sr_str s)
{
    if (v->n == v->cap) {
        v->cap = 2 * v->cap + 4;
        v->list = sr__grow(v->list, v->cap * sizeof *v->list);
    }
    memmove(v->list + at + 1, v->list + at, (v->n - at) * sizeof *v->list);
    v->list[at] = sr__copy(s);
    v->n++;
}

void sr__list_remove(struct sr_value *v, size_t at)
{
    sr__str_free(&v->list[at]);
    v->n--;
    memmove(v->list + at, v->list + at + 1, (v->n - at) * sizeof *v->list);
}

/* ---- sorted set -------------------------------------------------------- */

size_t sr__zset_find(const struct sr_value *v, struct sr_str member)
{
    size_t i = 0;

    while (i < v->n && !sr__same(v->zset[i].member, member))
        i++;
    return i;
}

void sr__zset_put(struct sr_value *v, struct sr_str member, double score)
{
    struct sr_str copy = sr__copy(member);
    size_t old = sr__zset_find(v, member), at = 0;

    if (old < v->n)
        sr__zset_remove(v, old);
    if (v->n == v->cap) {
        v->cap = 2 * v->cap + 4;
        v->zset = sr__grow(v->zset, v->cap * sizeof *v->zset);
    }
    while (at < v->n && (v->zset[at].score < score ||
                         (v->zset[at].score == score &&
                          sr__order(v->zset[at].member, copy) < 0)))
        at++;
    memmove(v->zset + at + 1, v->zset + at, (v->n - at) * sizeof *v->zset);
    v->zset[at] = (struct sr_scored){.score = score, .member = copy};
    v->n++;
}

void sr__zset_remove(struct sr_value *v, size_t at)
{
    sr__str_free(&v->zset[at].member);
    v->n--;
    memmove(v->zset + at, v->zset + at + 1, (v->n - at) * sizeof *v->zset);
}
