/* SPDX-License-Identifier: MIT
 *
 * cmd_string.c - commands on strings, and counters in them.
 */
#include "sim/impl.h"

#include <limits.h>
#include <stdio.h>

/* ---- set and get ------------------------------------------------------- */

struct set_words {
    bool nx, xx, get, keepttl;
    int expiry;      /* the argument that begins it; 0 = none */
    int64_t expires; /* -1 = never */
};

/* "px 100" and its like. False: an error was answered. */
static bool read_expiry(struct sr_call *k, struct set_words *w)
{
    struct sr_str word = k->argv[w->expiry];
    bool ms = word.p[0] == 'p' || word.p[0] == 'P';
    int64_t n;

    if (!sr__arg_int(k, w->expiry + 1, &n))
        return false;
    if (n <= 0 ||
        !sr__expire_time(k, n, ms ? 1 : 1000, word.n > 2, &w->expires)) {
        sr__reply_bad_expire(k);
        return false;
    }
    return true;
}

static bool read_set_words(struct sr_call *k, struct set_words *w)
{
    for (int i = 3; i < k->argc; i++) {
        struct sr_str word = k->argv[i];
        if (sr__is(word, "nx") && !w->xx) {
            w->nx = true;
        } else if (sr__is(word, "xx") && !w->nx) {
            w->xx = true;
        } else if (sr__is(word, "get")) {
            w->get = true;
        } else if (sr__is(word, "keepttl") && !w->expiry) {
            w->keepttl = true;
        } else if ((sr__is(word, "ex") || sr__is(word, "px") ||
                    sr__is(word, "exat") || sr__is(word, "pxat")) &&
                   i + 1 < k->argc && !w->expiry && !w->keepttl) {
            w->expiry = i++;
        } else {
            sr__reply_syntax(k);
            return false;
        }
    }
    return !w->expiry || read_expiry(k, w);
}

/* Others get the time at which it ends. */
static void pass_on_set(struct sr_call *k, struct sr_str to, int64_t expires)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)expires);
    struct sr_str argv[5] = {
        sr__view("SET"), k->argv[1], to, sr__view("PXAT"), {text, (size_t)n}};

    if (expires >= 0)
        sr__repl_instead(k, argv, 5);
}

static void store(struct sr_call *k, struct sr_str to, int64_t expires)
{
    struct sr_value *v = sr__value_new(SR_STRING);

    v->str = sr__copy(to);
    v->expires = expires;
    sr__key_put(k, k->argv[1], v);
    sr__key_changed(k, k->argv[1]);
    pass_on_set(k, to, expires);
}

static void cmd_set(struct sr_call *k)
{
    struct set_words w = {.expires = -1};

    if (!read_set_words(k, &w))
        return;
    struct sr_value *v = sr__key(k, k->argv[1]);
    bool go = !(w.nx && v) && !(w.xx && !v);
    if (w.get && v && v->type != SR_STRING) {
        sr__reply_wrongtype(k);
        return;
    }
    if (w.get && v)
        sr__reply_str(k, v->str);
    else if (w.get || !go)
        sr__reply_nil(k);
    else
        sr__reply_ok(k);
    if (go)
        store(k, k->argv[2], w.keepttl && v ? v->expires : w.expires);
}

static void cmd_setnx(struct sr_call *k)
{
    bool free_key = !sr__key(k, k->argv[1]);

    if (free_key)
        store(k, k->argv[2], -1);
    sr__reply_int(k, free_key);
}

static void set_for(struct sr_call *k, int64_t unit)
{
    int64_t n, then;

    if (!sr__arg_int(k, 2, &n))
        return;
    if (n <= 0 || !sr__expire_time(k, n, unit, false, &then)) {
        sr__reply_bad_expire(k);
        return;
    }
    store(k, k->argv[3], then);
    sr__reply_ok(k);
}

static void cmd_setex(struct sr_call *k)
{
    set_for(k, 1000);
}

static void cmd_psetex(struct sr_call *k)
{
    set_for(k, 1);
}

/* False: an error was answered. */
static bool answer_with(struct sr_call *k)
{
    struct sr_value *v;

    if (!sr__key_of(k, k->argv[1], SR_STRING, &v))
        return false;
    if (v)
        sr__reply_str(k, v->str);
    else
        sr__reply_nil(k);
    return true;
}

static void cmd_get(struct sr_call *k)
{
    answer_with(k);
}

static void cmd_getset(struct sr_call *k)
{
    if (answer_with(k))
        store(k, k->argv[2], -1);
}

static void cmd_getdel(struct sr_call *k)
{
    if (answer_with(k))
        sr__key_del(k, k->argv[1]);
}

static void cmd_mget(struct sr_call *k)
{
    sr__reply_array(k, (size_t)k->argc - 1);
    for (int i = 1; i < k->argc; i++) {
        const struct sr_value *v = sr__key(k, k->argv[i]);
        if (v && v->type == SR_STRING)
            sr__reply_str(k, v->str);
        else
            sr__reply_nil(k);
    }
}

static void cmd_mset(struct sr_call *k)
{
    if (k->argc % 2 == 0) {
        sr__reply_error(k, "ERR wrong number of arguments for 'mset' command");
        return;
    }
    for (int i = 1; i < k->argc; i += 2) {
        struct sr_value *v = sr__value_new(SR_STRING);
        v->str = sr__copy(k->argv[i + 1]);
        sr__key_put(k, k->argv[i], v);
        sr__key_changed(k, k->argv[i]);
    }
    sr__reply_ok(k);
}

static void cmd_strlen(struct sr_call *k)
{
    struct sr_value *v;

    if (sr__key_of(k, k->argv[1], SR_STRING, &v))
        sr__reply_int(k, v ? (int64_t)v->str.n : 0);
}

static void cmd_append(struct sr_call *k)
{
    struct sr_value *v;
    struct sr_buf b = {0};

    if (!sr__key_of(k, k->argv[1], SR_STRING, &v))
        return;
    if (!v)
        v = sr__key_make(k, k->argv[1], SR_STRING);
    sr__buf_add(&b, v->str.p, v->str.n);
    sr__buf_add(&b, k->argv[2].p, k->argv[2].n);
    sr__str_free(&v->str);
    v->str = (struct sr_str){b.p, b.n};
    sr__key_changed(k, k->argv[1]);
    sr__reply_int(k, (int64_t)v->str.n);
}

/* ---- counters ---------------------------------------------------------- */

static void add(struct sr_call *k, int64_t by)
{
    char text[24];
    struct sr_value *v;
    int64_t now = 0;

    if (!sr__key_of(k, k->argv[1], SR_STRING, &v))
        return;
    if (v && !sr__int(v->str, &now)) {
        sr__reply_error(k, "ERR value is not an integer or out of range");
        return;
    }
    if (by < 0 ? now < LLONG_MIN - by : now > LLONG_MAX - by) {
        sr__reply_error(k, "ERR increment or decrement would overflow");
        return;
    }
    int n = snprintf(text, sizeof text, "%lld", (long long)(now + by));
    if (!v)
        v = sr__key_make(k, k->argv[1], SR_STRING);
    sr__str_free(&v->str);
    v->str = sr__bytes(text, (size_t)n);
    sr__key_changed(k, k->argv[1]);
    sr__reply_int(k, now + by);
}

static void cmd_incr(struct sr_call *k)
{
    add(k, 1);
}

static void cmd_decr(struct sr_call *k)
{
    add(k, -1);
}

static void cmd_incrby(struct sr_call *k)
{
    int64_t by;

    if (sr__arg_int(k, 2, &by))
        add(k, by);
}

static void cmd_decrby(struct sr_call *k)
{
    int64_t by;

    if (!sr__arg_int(k, 2, &by))
        return;
    if (by == LLONG_MIN)
        sr__reply_error(k, "ERR decrement would overflow");
    else
        add(k, -by);
}

#define MAKES (SR_WRITE | SR_DENYOOM)

const struct sr_command sr__string_commands[] = {
    {"get", cmd_get, 2, SR_READ, 1, 1, 1},
    {"set", cmd_set, -3, MAKES, 1, 1, 1},
    {"setnx", cmd_setnx, 3, MAKES, 1, 1, 1},
    {"setex", cmd_setex, 4, MAKES, 1, 1, 1},
    {"psetex", cmd_psetex, 4, MAKES, 1, 1, 1},
    {"getset", cmd_getset, 3, MAKES, 1, 1, 1},
    {"getdel", cmd_getdel, 2, SR_WRITE, 1, 1, 1},
    {"mget", cmd_mget, -2, SR_READ, 1, -1, 1},
    {"mset", cmd_mset, -3, MAKES, 1, -1, 2},
    {"strlen", cmd_strlen, 2, SR_READ, 1, 1, 1},
    {"append", cmd_append, 3, MAKES, 1, 1, 1},
    {"incr", cmd_incr, 2, MAKES, 1, 1, 1},
    {"decr", cmd_decr, 2, MAKES, 1, 1, 1},
    {"incrby", cmd_incrby, 3, MAKES, 1, 1, 1},
    {"decrby", cmd_decrby, 3, MAKES, 1, 1, 1},
    {0}};
