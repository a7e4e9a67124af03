/* SPDX-License-Identifier: MIT
 *
 * cmd_hash.c - commands on hashes. Fields stay in the order in which they came,
 * as they do in a small hash of Redis.
 */
#include "sim/impl.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static void set_pairs(struct sr_call *k, bool counts)
{
    struct sr_value *v;
    int64_t fresh = 0;

    if (k->argc % 2 != 0) {
        sr__reply_arity(k);
        return;
    }
    if (!sr__key_of(k, k->argv[1], SR_HASH, &v))
        return;
    if (!v)
        v = sr__key_make(k, k->argv[1], SR_HASH);
    for (int i = 2; i < k->argc; i += 2)
        fresh += sr__hash_set(v, k->argv[i], k->argv[i + 1]);
    sr__key_changed(k, k->argv[1]);
    if (counts)
        sr__reply_int(k, fresh);
    else
        sr__reply_ok(k);
}

static void cmd_hset(struct sr_call *k)
{
    set_pairs(k, true);
}

static void cmd_hmset(struct sr_call *k)
{
    set_pairs(k, false);
}

static void cmd_hsetnx(struct sr_call *k)
{
    struct sr_value *v;

    if (!sr__key_of(k, k->argv[1], SR_HASH, &v))
        return;
    bool fresh = !v || !sr__hash_get(v, k->argv[2]);
    if (!v)
        v = sr__key_make(k, k->argv[1], SR_HASH);
    if (fresh) {
        sr__hash_set(v, k->argv[2], k->argv[3]);
        sr__key_changed(k, k->argv[1]);
    }
    sr__reply_int(k, fresh);
}

static void reply_field(struct sr_call *k, const struct sr_value *v,
                        struct sr_str field)
{
    const struct sr_str *s = v ? sr__hash_get(v, field) : NULL;

    if (s)
        sr__reply_str(k, *s);
    else
        sr__reply_nil(k);
}

static void cmd_hget(struct sr_call *k)
{
    struct sr_value *v;

    if (sr__key_of(k, k->argv[1], SR_HASH, &v))
        reply_field(k, v, k->argv[2]);
}

static void cmd_hmget(struct sr_call *k)
{
    struct sr_value *v;

    if (!sr__key_of(k, k->argv[1], SR_HASH, &v))
        return;
    sr__reply_array(k, (size_t)k->argc - 2);
    for (int i = 2; i < k->argc; i++)
        reply_field(k, v, k->argv[i]);
}

/* All of it: its fields, its values, or both. */
static void reply_all(struct sr_call *k, bool fields, bool values)
{
    struct sr_value *v;

    if (!sr__key_of(k, k->argv[1], SR_HASH, &v))
        return;
    sr__reply_array(k, (v ? v->hash.count : 0) * (fields && values ? 2 : 1));
    for (struct sr_entry *e = v ? v->hash.first : NULL; e; e = e->next) {
        if (fields)
            sr__reply_str(k, e->key);
        if (values)
            sr__reply_str(k, *(struct sr_str *)e->val);
    }
}

static void cmd_hgetall(struct sr_call *k)
{
    reply_all(k, true, true);
}

static void cmd_hkeys(struct sr_call *k)
{
    reply_all(k, true, false);
}

static void cmd_hvals(struct sr_call *k)
{
    reply_all(k, false, true);
}

static void cmd_hlen(struct sr_call *k)
{
    struct sr_value *v;

    if (sr__key_of(k, k->argv[1], SR_HASH, &v))
        sr__reply_int(k, v ? (int64_t)v->hash.count : 0);
}

static void cmd_hexists(struct sr_call *k)
{
    struct sr_value *v;

    if (sr__key_of(k, k->argv[1], SR_HASH, &v))
        sr__reply_int(k, v && sr__hash_get(v, k->argv[2]));
}

static void cmd_hstrlen(struct sr_call *k)
{
    struct sr_value *v;

    if (!sr__key_of(k, k->argv[1], SR_HASH, &v))
        return;
    const struct sr_str *s = v ? sr__hash_get(v, k->argv[2]) : NULL;
    sr__reply_int(k, s ? (int64_t)s->n : 0);
}

static void cmd_hdel(struct sr_call *k)
{
    struct sr_value *v;
    int64_t gone = 0;

    if (!sr__key_of(k, k->argv[1], SR_HASH, &v))
        return;
    for (int i = 2; v && i < k->argc; i++)
        gone += sr__hash_del(v, k->argv[i]);
    if (gone)
        sr__key_changed(k, k->argv[1]);
    sr__reply_int(k, gone);
}

static void cmd_hincrby(struct sr_call *k)
{
    struct sr_value *v;
    int64_t by, now = 0;
    char text[24];

    if (!sr__arg_int(k, 3, &by) || !sr__key_of(k, k->argv[1], SR_HASH, &v))
        return;
    const struct sr_str *s = v ? sr__hash_get(v, k->argv[2]) : NULL;
    if (s && !sr__int(*s, &now)) {
        sr__reply_error(k, "ERR hash value is not an integer");
        return;
    }
    if (by < 0 ? now < LLONG_MIN - by : now > LLONG_MAX - by) {
        sr__reply_error(k, "ERR increment or decrement would overflow");
        return;
    }
    int n = snprintf(text, sizeof text, "%lld", (long long)(now + by));
    if (!v)
        v = sr__key_make(k, k->argv[1], SR_HASH);
    sr__hash_set(v, k->argv[2], (struct sr_str){text, (size_t)n});
    sr__key_changed(k, k->argv[1]);
    sr__reply_int(k, now + by);
}

/* ---- some of it -------------------------------------------------------- */

static void reply_pair(struct sr_call *k, const struct sr_entry *e, bool values)
{
    sr__reply_str(k, e->key);
    if (values)
        sr__reply_str(k, *(const struct sr_str *)e->val);
}

static const struct sr_entry *nth(const struct sr_value *v, uint64_t n)
{
    const struct sr_entry *e = v->hash.first;

    while (n--)
        e = e->next;
    return e;
}

/* count of them, each once, in a random order. */
static void reply_some(struct sr_call *k, const struct sr_value *v,
                       size_t count, bool values)
{
    size_t all = v->hash.count;
    uint64_t *places = sr__alloc(all * sizeof *places);

    for (size_t i = 0; i < all; i++)
        places[i] = i;
    sr__reply_array(k, count * (values ? 2 : 1));
    for (size_t i = 0; i < count; i++) {
        size_t j = count == all ? i : i + sr__random(k->s, all - i);
        uint64_t place = places[j];
        places[j] = places[i];
        reply_pair(k, nth(v, place), values);
    }
    free(places);
}

static void cmd_hrandfield(struct sr_call *k)
{
    struct sr_value *v;
    int64_t count = 1;
    bool values = k->argc == 4;

    if (k->argc > 2 && !sr__arg_range(k, 2, -LONG_MAX, LONG_MAX, &count))
        return;
    if (k->argc > 4 || (values && !sr__is(k->argv[3], "withvalues"))) {
        sr__reply_syntax(k);
        return;
    }
    if (!sr__key_of(k, k->argv[1], SR_HASH, &v))
        return;
    if (!v && k->argc == 2) {
        sr__reply_nil(k);
    } else if (!v || count == 0) {
        sr__reply_array(k, 0);
    } else if (k->argc == 2) {
        reply_pair(k, nth(v, sr__random(k->s, v->hash.count)), false);
    } else if (count > 0) {
        size_t n = (size_t)count;
        reply_some(k, v, n < v->hash.count ? n : v->hash.count, values);
    } else {
        sr__reply_array(k, (size_t)-count * (values ? 2 : 1));
        for (; count < 0; count++)
            reply_pair(k, nth(v, sr__random(k->s, v->hash.count)), values);
    }
}

/* A small hash is given whole, whatever COUNT says. */
static void cmd_hscan(struct sr_call *k)
{
    struct sr_value *v;
    struct sr_str match = sr__view("*");
    int64_t cursor, count;
    size_t found = 0;

    if (!sr__int(k->argv[2], &cursor) || cursor < 0) {
        sr__reply_error(k, "ERR invalid cursor");
        return;
    }
    if (!sr__key_of(k, k->argv[1], SR_HASH, &v))
        return;
    for (int i = 3; v && i < k->argc; i += 2) {
        bool more = i + 1 < k->argc;
        if (more && sr__is(k->argv[i], "match")) {
            match = k->argv[i + 1];
        } else if (!more || !sr__is(k->argv[i], "count")) {
            sr__reply_syntax(k);
            return;
        } else if (!sr__arg_int(k, i + 1, &count)) {
            return;
        } else if (count < 1) {
            sr__reply_syntax(k);
            return;
        }
    }
    const struct sr_entry *first = v ? v->hash.first : NULL;
    for (const struct sr_entry *e = first; e; e = e->next)
        found += sr__glob(match, e->key);
    sr__reply_array(k, 2);
    sr__reply_text(k, "0");
    sr__reply_array(k, 2 * found);
    for (const struct sr_entry *e = first; e; e = e->next)
        if (sr__glob(match, e->key))
            reply_pair(k, e, true);
}

#define MAKES (SR_WRITE | SR_DENYOOM)

const struct sr_command sr__hash_commands[] = {
    {"hset", cmd_hset, -4, MAKES, 1, 1, 1},
    {"hmset", cmd_hmset, -4, MAKES, 1, 1, 1},
    {"hsetnx", cmd_hsetnx, 4, MAKES, 1, 1, 1},
    {"hget", cmd_hget, 3, SR_READ, 1, 1, 1},
    {"hmget", cmd_hmget, -3, SR_READ, 1, 1, 1},
    {"hgetall", cmd_hgetall, 2, SR_READ, 1, 1, 1},
    {"hkeys", cmd_hkeys, 2, SR_READ, 1, 1, 1},
    {"hvals", cmd_hvals, 2, SR_READ, 1, 1, 1},
    {"hlen", cmd_hlen, 2, SR_READ, 1, 1, 1},
    {"hexists", cmd_hexists, 3, SR_READ, 1, 1, 1},
    {"hstrlen", cmd_hstrlen, 3, SR_READ, 1, 1, 1},
    {"hdel", cmd_hdel, -3, SR_WRITE, 1, 1, 1},
    {"hincrby", cmd_hincrby, 4, MAKES, 1, 1, 1},
    {"hrandfield", cmd_hrandfield, -2, SR_READ, 1, 1, 1},
    {"hscan", cmd_hscan, -3, SR_READ, 1, 1, 1},
    {0}};
