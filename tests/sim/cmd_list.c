/* SPDX-License-Identifier: MIT
 *
 * cmd_list.c - commands on lists.
 */
#include "sim/impl.h"

#include <limits.h>

/* A place counted from the end when it is negative. */
static int64_t from_start(int64_t i, size_t n)
{
    return i < 0 ? i + (int64_t)n : i;
}

/* ---- in and out -------------------------------------------------------- */

static void push(struct sr_call *k, bool front, bool only_if_there)
{
    struct sr_value *v;

    if (!sr__key_of(k, k->argv[1], SR_LIST, &v))
        return;
    if (!v && only_if_there) {
        sr__reply_int(k, 0);
        return;
    }
    if (!v)
        v = sr__key_make(k, k->argv[1], SR_LIST);
    for (int i = 2; i < k->argc; i++)
        sr__list_insert(v, front ? 0 : v->n, k->argv[i]);
    sr__key_changed(k, k->argv[1]);
    sr__reply_int(k, (int64_t)v->n);
}

static void cmd_lpush(struct sr_call *k)
{
    push(k, true, false);
}

static void cmd_rpush(struct sr_call *k)
{
    push(k, false, false);
}

static void cmd_lpushx(struct sr_call *k)
{
    push(k, true, true);
}

static void cmd_rpushx(struct sr_call *k)
{
    push(k, false, true);
}

static void pop(struct sr_call *k, bool front)
{
    struct sr_value *v;
    int64_t count = 1;

    if (k->argc > 3) {
        sr__reply_arity(k);
        return;
    }
    if (k->argc == 3 && !sr__arg_range(k, 2, 0, LONG_MAX, &count))
        return;
    if (!sr__key_of(k, k->argv[1], SR_LIST, &v))
        return;
    if (!v) {
        if (k->argc == 3)
            sr__reply_nil_array(k);
        else
            sr__reply_nil(k);
        return;
    }
    if (k->argc == 3) {
        count = count < (int64_t)v->n ? count : (int64_t)v->n;
        sr__reply_array(k, (size_t)count);
    }
    if (count == 0)
        return;
    while (count-- > 0) {
        size_t at = front ? 0 : v->n - 1;
        sr__reply_str(k, v->list[at]);
        sr__list_remove(v, at);
    }
    sr__key_changed(k, k->argv[1]);
}

static void cmd_lpop(struct sr_call *k)
{
    pop(k, true);
}

static void cmd_rpop(struct sr_call *k)
{
    pop(k, false);
}

/* ---- looking ----------------------------------------------------------- */

static void cmd_llen(struct sr_call *k)
{
    struct sr_value *v;

    if (sr__key_of(k, k->argv[1], SR_LIST, &v))
        sr__reply_int(k, v ? (int64_t)v->n : 0);
}

static void cmd_lindex(struct sr_call *k)
{
    struct sr_value *v;
    int64_t i;

    if (!sr__key_of(k, k->argv[1], SR_LIST, &v))
        return;
    if (!v) {
        sr__reply_nil(k);
        return;
    }
    if (!sr__arg_int(k, 2, &i))
        return;
    i = from_start(i, v->n);
    if (i >= 0 && i < (int64_t)v->n)
        sr__reply_str(k, v->list[i]);
    else
        sr__reply_nil(k);
}

/* Arguments 2 and 3 as a part of n elements, from *first to before *end. */
static bool read_part(struct sr_call *k, int64_t *first, int64_t *end)
{
    return sr__arg_int(k, 2, first) && sr__arg_int(k, 3, end);
}

static void fit_part(size_t n, int64_t *first, int64_t *end)
{
    *first = from_start(*first, n);
    *end = from_start(*end, n) + 1;
    if (*first < 0)
        *first = 0;
    if (*end > (int64_t)n)
        *end = (int64_t)n;
    if (*first > *end)
        *end = *first;
}

static void cmd_lrange(struct sr_call *k)
{
    struct sr_value *v;
    int64_t first, end;

    if (!read_part(k, &first, &end) || !sr__key_of(k, k->argv[1], SR_LIST, &v))
        return;
    fit_part(v ? v->n : 0, &first, &end);
    sr__reply_array(k, (size_t)(end - first));
    for (; first < end; first++)
        sr__reply_str(k, v->list[first]);
}

static void lpos_reply(struct sr_call *k, const struct sr_value *v,
                       int64_t rank, int64_t count, int64_t most)
{
    bool back = rank < 0, many = count >= 0;
    struct sr_buf found = {0};
    int64_t seen = 0, matched = 0, one = -1;

    for (size_t i = 0; v && i < v->n && (most == 0 || seen < most); i++) {
        size_t at = back ? v->n - 1 - i : i;
        seen++;
        if (!sr__same(v->list[at], k->argv[2]))
            continue;
        if (++matched < (back ? -rank : rank))
            continue;
        if (one < 0)
            one = (int64_t)at;
        sr__buf_fmt(&found, ":%zu\r\n", at);
        if (!many || matched - (back ? -rank : rank) + 1 == count)
            break;
    }
    if (many) {
        size_t n = 0;
        for (size_t i = 0; i < found.n; i++)
            n += found.p[i] == ':';
        sr__reply_array(k, n);
        sr__buf_add(k->out, found.p, found.n);
    } else if (one >= 0) {
        sr__reply_int(k, one);
    } else {
        sr__reply_nil(k);
    }
    sr__buf_free(&found);
}

static void cmd_lpos(struct sr_call *k)
{
    int64_t rank = 1, count = -1, most = 0;
    struct sr_value *v;

    for (int i = 3; i < k->argc; i += 2) {
        bool more = i + 1 < k->argc;
        if (more && sr__is(k->argv[i], "rank")) {
            if (!sr__arg_int(k, i + 1, &rank))
                return;
            if (rank == 0) {
                sr__reply_error(
                    k, "ERR RANK can't be zero: use 1 to start from the first "
                       "match, 2 from the second ... or use negative to start "
                       "from the end of the list");
                return;
            }
        } else if (more && (sr__is(k->argv[i], "count") ||
                            sr__is(k->argv[i], "maxlen"))) {
            bool is_count = sr__is(k->argv[i], "count");
            int64_t *to = is_count ? &count : &most;
            if (!sr__int(k->argv[i + 1], to) || *to < 0) {
                sr__reply_error(k, "ERR %s can't be negative",
                                is_count ? "COUNT" : "MAXLEN");
                return;
            }
        } else {
            sr__reply_syntax(k);
            return;
        }
    }
    if (sr__key_of(k, k->argv[1], SR_LIST, &v))
        lpos_reply(k, v, rank, count, most);
}

/* ---- changing ---------------------------------------------------------- */

static void cmd_lrem(struct sr_call *k)
{
    struct sr_value *v;
    int64_t count, gone = 0;

    if (!sr__arg_int(k, 2, &count) || !sr__key_of(k, k->argv[1], SR_LIST, &v))
        return;
    int64_t most = count == 0 ? INT64_MAX : count < 0 ? -count : count;
    size_t i = v && count < 0 ? v->n : 0;
    while (v && gone < most && (count < 0 ? i > 0 : i < v->n)) {
        size_t at = count < 0 ? --i : i;
        if (sr__same(v->list[at], k->argv[3])) {
            sr__list_remove(v, at);
            gone++;
        } else if (count >= 0) {
            i++;
        }
    }
    if (gone)
        sr__key_changed(k, k->argv[1]);
    sr__reply_int(k, gone);
}

static void cmd_lset(struct sr_call *k)
{
    struct sr_value *v;
    int64_t i;

    if (!sr__key_of(k, k->argv[1], SR_LIST, &v))
        return;
    if (!v) {
        sr__reply_error(k, "ERR no such key");
        return;
    }
    if (!sr__arg_int(k, 2, &i))
        return;
    i = from_start(i, v->n);
    if (i < 0 || i >= (int64_t)v->n) {
        sr__reply_error(k, "ERR index out of range");
        return;
    }
    sr__list_remove(v, (size_t)i);
    sr__list_insert(v, (size_t)i, k->argv[3]);
    sr__key_changed(k, k->argv[1]);
    sr__reply_ok(k);
}

static void cmd_ltrim(struct sr_call *k)
{
    struct sr_value *v;
    int64_t first, end;

    if (!read_part(k, &first, &end) || !sr__key_of(k, k->argv[1], SR_LIST, &v))
        return;
    if (v) {
        fit_part(v->n, &first, &end);
        while (v->n > (size_t)end)
            sr__list_remove(v, v->n - 1);
        for (; first > 0 && v->n > 0; first--)
            sr__list_remove(v, 0);
        sr__key_changed(k, k->argv[1]);
    }
    sr__reply_ok(k);
}

#define MAKES (SR_WRITE | SR_DENYOOM)

const struct sr_command sr__list_commands[] = {
    {"lpush", cmd_lpush, -3, MAKES, 1, 1, 1},
    {"rpush", cmd_rpush, -3, MAKES, 1, 1, 1},
    {"lpushx", cmd_lpushx, -3, MAKES, 1, 1, 1},
    {"rpushx", cmd_rpushx, -3, MAKES, 1, 1, 1},
    {"lpop", cmd_lpop, -2, SR_WRITE, 1, 1, 1},
    {"rpop", cmd_rpop, -2, SR_WRITE, 1, 1, 1},
    {"llen", cmd_llen, 2, SR_READ, 1, 1, 1},
    {"lindex", cmd_lindex, 3, SR_READ, 1, 1, 1},
    {"lrange", cmd_lrange, 4, SR_READ, 1, 1, 1},
    {"lpos", cmd_lpos, -3, SR_READ, 1, 1, 1},
    {"lrem", cmd_lrem, 4, SR_WRITE, 1, 1, 1},
    {"lset", cmd_lset, 4, MAKES, 1, 1, 1},
    {"ltrim", cmd_ltrim, 4, SR_WRITE, 1, 1, 1},
    {0}};
