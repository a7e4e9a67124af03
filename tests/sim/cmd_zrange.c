/* SPDX-License-Identifier: MIT
 *
 * cmd_zrange.c - parts of sorted sets: by place or by score.
 */
#include "sim/impl.h"

#include <math.h>

/* A part of a sorted set: from score to score, or from place to place. */
struct part {
    bool by_score, reverse, scores;
    double low, high;
    bool over_low, under_high; /* "(5": not 5 itself */
    int64_t first, last;
    int64_t offset, limit; /* limit < 0: no limit */
};

/* Nothing at all is 0, as it is for Redis. */
static bool read_bound(struct sr_str s, double *out, bool *open)
{
    *open = s.n > 0 && s.p[0] == '(';
    if (*open)
        s = (struct sr_str){s.p + 1, s.n - 1};
    *out = 0;
    return s.n == 0 || sr__float(s, out);
}

static bool read_scores(struct sr_call *k, int low, int high, struct part *p)
{
    if (read_bound(k->argv[low], &p->low, &p->over_low) &&
        read_bound(k->argv[high], &p->high, &p->under_high))
        return true;
    sr__reply_error(k, "ERR min or max is not a float");
    return false;
}

static bool in_scores(const struct part *p, double score)
{
    return (p->over_low ? score > p->low : score >= p->low) &&
           (p->under_high ? score < p->high : score <= p->high);
}

/* Places, from *first to before *end, in the order of the set. */
static void find_part(const struct sr_value *v, const struct part *p,
                      size_t *first, size_t *end)
{
    int64_t n = (int64_t)v->n, a, b;

    if (p->by_score) {
        *first = 0;
        while (*first < v->n && !in_scores(p, v->zset[*first].score))
            ++*first;
        *end = *first;
        while (*end < v->n && in_scores(p, v->zset[*end].score))
            ++*end;
        return;
    }
    a = p->first < 0 ? p->first + n : p->first;
    b = p->last < 0 ? p->last + n : p->last;
    if (a < 0)
        a = 0;
    if (b >= n)
        b = n - 1;
    if (a > b) {
        *first = *end = 0;
        return;
    }
    *first = (size_t)(p->reverse ? n - 1 - b : a);
    *end = (size_t)(p->reverse ? n - a : b + 1);
}

static void reply_part(struct sr_call *k, const struct part *p)
{
    struct sr_value *v;
    size_t first = 0, end = 0;

    if (!sr__key_of(k, k->argv[1], SR_ZSET, &v))
        return;
    if (v)
        find_part(v, p, &first, &end);
    size_t n = end - first;
    size_t skip = p->offset < 0                       ? n
                  : (uint64_t)p->offset < (uint64_t)n ? (size_t)p->offset
                                                      : n;
    size_t left = n - skip;
    if (p->limit >= 0 && (uint64_t)p->limit < left)
        left = (size_t)p->limit;
    sr__reply_array(k, left * (p->scores ? 2 : 1));
    for (size_t i = 0; i < left; i++) {
        size_t at = p->reverse ? end - 1 - skip - i : first + skip + i;
        sr__reply_str(k, v->zset[at].member);
        if (p->scores)
            sr__reply_float(k, v->zset[at].score);
    }
}

/* WITHSCORES, LIMIT and, with ZRANGE, BYSCORE and REV. */
static bool read_range_words(struct sr_call *k, struct part *p, bool all)
{
    bool limited = false;

    for (int i = 4; i < k->argc; i++) {
        struct sr_str word = k->argv[i];
        if (sr__is(word, "withscores")) {
            p->scores = true;
        } else if (sr__is(word, "limit") && i + 2 < k->argc) {
            if (!sr__arg_int(k, i + 1, &p->offset) ||
                !sr__arg_int(k, i + 2, &p->limit))
                return false;
            limited = true;
            i += 2;
        } else if (all && sr__is(word, "byscore")) {
            p->by_score = true;
        } else if (all && sr__is(word, "rev")) {
            p->reverse = true;
        } else {
            sr__reply_syntax(k);
            return false;
        }
    }
    if (limited && !p->by_score) {
        sr__reply_error(k, "ERR syntax error, LIMIT is only supported in "
                           "combination with either BYSCORE or BYLEX");
        return false;
    }
    return true;
}

static void range(struct sr_call *k, struct part p, bool all)
{
    p.limit = -1;
    if (!read_range_words(k, &p, all))
        return;
    if (p.by_score) {
        if (!read_scores(k, p.reverse ? 3 : 2, p.reverse ? 2 : 3, &p))
            return;
    } else if (!sr__arg_int(k, 2, &p.first) || !sr__arg_int(k, 3, &p.last)) {
        return;
    }
    reply_part(k, &p);
}

static void cmd_zrange(struct sr_call *k)
{
    range(k, (struct part){0}, true);
}

static void cmd_zrevrange(struct sr_call *k)
{
    range(k, (struct part){.reverse = true}, false);
}

static void cmd_zrangebyscore(struct sr_call *k)
{
    range(k, (struct part){.by_score = true}, false);
}

static void cmd_zrevrangebyscore(struct sr_call *k)
{
    range(k, (struct part){.by_score = true, .reverse = true}, false);
}

static void cmd_zcount(struct sr_call *k)
{
    struct part p = {.by_score = true};
    struct sr_value *v;
    size_t first = 0, end = 0;

    if (!read_scores(k, 2, 3, &p) || !sr__key_of(k, k->argv[1], SR_ZSET, &v))
        return;
    if (v)
        find_part(v, &p, &first, &end);
    sr__reply_int(k, (int64_t)(end - first));
}

static void remove_part(struct sr_call *k, const struct part *p)
{
    struct sr_value *v;
    size_t first = 0, end = 0;

    if (!sr__key_of(k, k->argv[1], SR_ZSET, &v))
        return;
    if (v)
        find_part(v, p, &first, &end);
    for (size_t i = first; i < end; i++)
        sr__zset_remove(v, first);
    if (end > first)
        sr__key_changed(k, k->argv[1]);
    sr__reply_int(k, (int64_t)(end - first));
}

static void cmd_zremrangebyscore(struct sr_call *k)
{
    struct part p = {.by_score = true};

    if (read_scores(k, 2, 3, &p))
        remove_part(k, &p);
}

static void cmd_zremrangebyrank(struct sr_call *k)
{
    struct part p = {0};

    if (sr__arg_int(k, 2, &p.first) && sr__arg_int(k, 3, &p.last))
        remove_part(k, &p);
}

const struct sr_command sr__zrange_commands[] = {
    {"zrange", cmd_zrange, -4, SR_READ, 1, 1, 1},
    {"zrevrange", cmd_zrevrange, -4, SR_READ, 1, 1, 1},
    {"zrangebyscore", cmd_zrangebyscore, -4, SR_READ, 1, 1, 1},
    {"zrevrangebyscore", cmd_zrevrangebyscore, -4, SR_READ, 1, 1, 1},
    {"zcount", cmd_zcount, 4, SR_READ, 1, 1, 1},
    {"zremrangebyscore", cmd_zremrangebyscore, 4, SR_WRITE, 1, 1, 1},
    {"zremrangebyrank", cmd_zremrangebyrank, 4, SR_WRITE, 1, 1, 1},
    {0}};
