/* SPDX-License-Identifier: MIT
 *
 * cmd_zset.c - commands on members of sorted sets; ranges of them are in
 * cmd_zrange.c.
 */
#include "sim/impl.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

/* ---- in ---------------------------------------------------------------- */

struct add_words {
    bool nx, xx, gt, lt, ch, incr;
    int first; /* argument with a score */
};

static bool read_add_words(struct sr_call *k, struct add_words *w)
{
    int i = 2;

    for (; i < k->argc; i++) {
        if (sr__is(k->argv[i], "nx"))
            w->nx = true;
        else if (sr__is(k->argv[i], "xx"))
            w->xx = true;
        else if (sr__is(k->argv[i], "gt"))
            w->gt = true;
        else if (sr__is(k->argv[i], "lt"))
            w->lt = true;
        else if (sr__is(k->argv[i], "ch"))
            w->ch = true;
        else if (sr__is(k->argv[i], "incr"))
            w->incr = true;
        else
            break;
    }
    w->first = i;
    if (i == k->argc || (k->argc - i) % 2 != 0) {
        sr__reply_syntax(k);
        return false;
    }
    if (w->nx && w->xx) {
        sr__reply_error(k, "ERR XX and NX options at the same time are not "
                           "compatible");
        return false;
    }
    if ((w->gt && w->nx) || (w->lt && w->nx) || (w->gt && w->lt)) {
        sr__reply_error(k, "ERR GT, LT, and/or NX options at the same time "
                           "are not compatible");
        return false;
    }
    if (w->incr && k->argc - i > 2) {
        sr__reply_error(k, "ERR INCR option supports a single "
                           "increment-element pair");
        return false;
    }
    return true;
}

enum added { SKIPPED, SAME, UPDATED, ADDED, NOT_A_NUMBER };

/* One member. *score: wanted, or by how much more; afterwards what it has. */
static enum added add_one(struct sr_value *v, const struct add_words *w,
                          struct sr_str member, double *score)
{
    size_t at = sr__zset_find(v, member);

    if (at == v->n) {
        if (w->xx)
            return SKIPPED;
        sr__zset_put(v, member, *score);
        return ADDED;
    }
    double now = v->zset[at].score;
    if (w->nx)
        return SKIPPED;
    if (w->incr)
        *score += now;
    if (isnan(*score))
        return NOT_A_NUMBER;
    if ((w->gt && *score <= now) || (w->lt && *score >= now))
        return SKIPPED;
    if (*score == now)
        return SAME;
    sr__zset_put(v, member, *score);
    return UPDATED;
}

static void add_all(struct sr_call *k, const struct add_words *w,
                    const double *scores)
{
    struct sr_value *v;
    int64_t fresh = 0, updated = 0, processed = 0;
    double score = 0;

    if (!sr__key_of(k, k->argv[1], SR_ZSET, &v))
        return;
    if (!v && w->xx) {
        if (w->incr)
            sr__reply_nil(k);
        else
            sr__reply_int(k, 0);
        return;
    }
    if (!v)
        v = sr__key_make(k, k->argv[1], SR_ZSET);
    for (int i = w->first; i < k->argc; i += 2) {
        score = scores[(i - w->first) / 2];
        enum added what = add_one(v, w, k->argv[i + 1], &score);
        if (what == NOT_A_NUMBER) {
            sr__reply_error(k, "ERR resulting score is not a number (NaN)");
            return;
        }
        fresh += what == ADDED;
        updated += what == UPDATED;
        processed += what != SKIPPED;
    }
    if (fresh || updated)
        sr__key_changed(k, k->argv[1]);
    if (!w->incr)
        sr__reply_int(k, w->ch ? fresh + updated : fresh);
    else if (processed)
        sr__reply_float(k, score);
    else
        sr__reply_nil(k);
}

static void add_with(struct sr_call *k, const struct add_words *w)
{
    size_t n = (size_t)(k->argc - w->first) / 2;
    double *scores = sr__alloc(n * sizeof *scores);
    size_t i = 0;

    while (i < n && sr__arg_float(k, w->first + 2 * (int)i, &scores[i]))
        i++;
    if (i == n)
        add_all(k, w, scores);
    free(scores);
}

static void cmd_zadd(struct sr_call *k)
{
    struct add_words w = {0};

    if (read_add_words(k, &w))
        add_with(k, &w);
}

static void cmd_zincrby(struct sr_call *k)
{
    struct add_words w = {.incr = true, .first = 2};

    add_with(k, &w);
}

/* ---- out --------------------------------------------------------------- */

static void cmd_zrem(struct sr_call *k)
{
    struct sr_value *v;
    int64_t gone = 0;

    if (!sr__key_of(k, k->argv[1], SR_ZSET, &v))
        return;
    for (int i = 2; v && i < k->argc; i++) {
        size_t at = sr__zset_find(v, k->argv[i]);
        if (at == v->n)
            continue;
        sr__zset_remove(v, at);
        gone++;
    }
    if (gone)
        sr__key_changed(k, k->argv[1]);
    sr__reply_int(k, gone);
}

static void pop(struct sr_call *k, bool first)
{
    struct sr_value *v;
    int64_t count = 1;

    if (k->argc > 3) {
        sr__reply_syntax(k);
        return;
    }
    if (k->argc == 3 && !sr__arg_range(k, 2, 0, LONG_MAX, &count))
        return;
    if (!sr__key_of(k, k->argv[1], SR_ZSET, &v))
        return;
    if (!v || count == 0) {
        sr__reply_array(k, 0);
        return;
    }
    size_t n = (size_t)count < v->n ? (size_t)count : v->n;
    sr__reply_array(k, 2 * n);
    for (; n > 0; n--) {
        size_t at = first ? 0 : v->n - 1;
        sr__reply_str(k, v->zset[at].member);
        sr__reply_float(k, v->zset[at].score);
        sr__zset_remove(v, at);
    }
    sr__key_changed(k, k->argv[1]);
}

static void cmd_zpopmin(struct sr_call *k)
{
    pop(k, true);
}

static void cmd_zpopmax(struct sr_call *k)
{
    pop(k, false);
}

/* ---- looking ----------------------------------------------------------- */

static void cmd_zcard(struct sr_call *k)
{
    struct sr_value *v;

    if (sr__key_of(k, k->argv[1], SR_ZSET, &v))
        sr__reply_int(k, v ? (int64_t)v->n : 0);
}

static void reply_score(struct sr_call *k, const struct sr_value *v,
                        struct sr_str member)
{
    size_t at = v ? sr__zset_find(v, member) : 0;

    if (v && at < v->n)
        sr__reply_float(k, v->zset[at].score);
    else
        sr__reply_nil(k);
}

static void cmd_zscore(struct sr_call *k)
{
    struct sr_value *v;

    if (sr__key_of(k, k->argv[1], SR_ZSET, &v))
        reply_score(k, v, k->argv[2]);
}

static void cmd_zmscore(struct sr_call *k)
{
    struct sr_value *v;

    if (!sr__key_of(k, k->argv[1], SR_ZSET, &v))
        return;
    sr__reply_array(k, (size_t)k->argc - 2);
    for (int i = 2; i < k->argc; i++)
        reply_score(k, v, k->argv[i]);
}

static void rank(struct sr_call *k, bool back)
{
    struct sr_value *v;

    if (!sr__key_of(k, k->argv[1], SR_ZSET, &v))
        return;
    size_t at = v ? sr__zset_find(v, k->argv[2]) : 0;
    if (!v || at == v->n)
        sr__reply_nil(k);
    else
        sr__reply_int(k, (int64_t)(back ? v->n - 1 - at : at));
}

static void cmd_zrank(struct sr_call *k)
{
    rank(k, false);
}

static void cmd_zrevrank(struct sr_call *k)
{
    rank(k, true);
}

#define MAKES (SR_WRITE | SR_DENYOOM)

const struct sr_command sr__zset_commands[] = {
    {"zadd", cmd_zadd, -4, MAKES, 1, 1, 1},
    {"zincrby", cmd_zincrby, 4, MAKES, 1, 1, 1},
    {"zrem", cmd_zrem, -3, SR_WRITE, 1, 1, 1},
    {"zpopmin", cmd_zpopmin, -2, SR_WRITE, 1, 1, 1},
    {"zpopmax", cmd_zpopmax, -2, SR_WRITE, 1, 1, 1},
    {"zcard", cmd_zcard, 2, SR_READ, 1, 1, 1},
    {"zscore", cmd_zscore, 3, SR_READ, 1, 1, 1},
    {"zmscore", cmd_zmscore, -3, SR_READ, 1, 1, 1},
    {"zrank", cmd_zrank, 3, SR_READ, 1, 1, 1},
    {"zrevrank", cmd_zrevrank, 3, SR_READ, 1, 1, 1},
    {0}};
