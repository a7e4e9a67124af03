/* SPDX-License-Identifier: MIT
 *
 * cmd_expire.c - how long a key lives.
 *
 * A time that is over already deletes the key at once. Replicas get times, not
 * durations: what they read late must not live longer.
 */
#include "sim/impl.h"

#include <limits.h>
#include <stdio.h>

enum { IF_NONE = 1, IF_SOME = 2, IF_LATER = 4, IF_SOONER = 8 };

static bool read_conditions(struct sr_call *k, int *out)
{
    static const char *const words[] = {"nx", "xx", "gt", "lt"};

    *out = 0;
    for (int i = 3; i < k->argc; i++) {
        int w = 0;
        while (w < 4 && !sr__is(k->argv[i], words[w]))
            w++;
        if (w == 4) {
            sr__reply_error(k, "ERR Unsupported option %.*s", (int)k->argv[i].n,
                            k->argv[i].p);
            return false;
        }
        *out |= 1 << w;
    }
    if ((*out & IF_NONE) && (*out & ~IF_NONE)) {
        sr__reply_error(k, "ERR NX and XX, GT or LT options at the same time "
                           "are not compatible");
        return false;
    }
    if ((*out & IF_LATER) && (*out & IF_SOONER)) {
        sr__reply_error(k, "ERR GT and LT options at the same time are not "
                           "compatible");
        return false;
    }
    return true;
}

static bool conditions_met(int when, int64_t now, int64_t then)
{
    if ((when & IF_NONE) && now >= 0)
        return false;
    if ((when & IF_SOME) && now < 0)
        return false;
    if ((when & IF_LATER) && (now < 0 || then <= now))
        return false;
    return !((when & IF_SOONER) && now >= 0 && then >= now);
}

void sr__reply_bad_expire(struct sr_call *k)
{
    sr__reply_error(k, "ERR invalid expire time in '%s' command", k->cmd->name);
}

bool sr__expire_time(struct sr_call *k, int64_t n, int64_t unit, bool at,
                     int64_t *out)
{
    int64_t base = at ? 0 : k->s->now;

    if (n > LLONG_MAX / unit || n < LLONG_MIN / unit)
        return false;
    n *= unit;
    if (n > LLONG_MAX - base)
        return false;
    *out = n + base;
    return true;
}

/* Others hear of it with the time at which it ends. */
static void pass_on_time(struct sr_call *k, int64_t then)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)then);
    struct sr_str argv[3] = {
        sr__view("PEXPIREAT"), k->argv[1], {text, (size_t)n}};

    sr__repl_instead(k, argv, 3);
}

static void expire(struct sr_call *k, int64_t unit, bool at)
{
    int64_t n, then;
    int when;

    if (!read_conditions(k, &when))
        return;
    if (!sr__arg_int(k, 2, &n))
        return;
    if (!sr__expire_time(k, n, unit, at, &then)) {
        sr__reply_bad_expire(k);
        return;
    }
    struct sr_value *v = sr__key(k, k->argv[1]);
    if (!v || !conditions_met(when, v->expires, then)) {
        sr__reply_int(k, 0);
        return;
    }
    if (then <= k->s->now && !k->c->is_master) {
        struct sr_str argv[2] = {sr__view("DEL"), k->argv[1]};
        sr__key_del(k, k->argv[1]);
        sr__repl_instead(k, argv, 2);
    } else {
        v->expires = then < 0 ? 0 : then;
        if (v->type == SR_HASH)
            sr__key_promised(k, k->argv[1], then);
        sr__key_changed(k, k->argv[1]);
        pass_on_time(k, then);
    }
    sr__reply_int(k, 1);
}

static void cmd_expire(struct sr_call *k)
{
    expire(k, 1000, false);
}

static void cmd_pexpire(struct sr_call *k)
{
    expire(k, 1, false);
}

static void cmd_expireat(struct sr_call *k)
{
    expire(k, 1000, true);
}

static void cmd_pexpireat(struct sr_call *k)
{
    expire(k, 1, true);
}

static void left(struct sr_call *k, int64_t unit, bool at)
{
    const struct sr_value *v = sr__key(k, k->argv[1]);
    int64_t ms = -2;

    if (v && v->expires < 0)
        ms = -1;
    else if (v && at)
        ms = v->expires;
    else if (v)
        ms = v->expires > k->s->now ? v->expires - k->s->now : 0;
    sr__reply_int(k, ms < 0 || unit == 1 ? ms : (ms + 500) / 1000);
}

static void cmd_ttl(struct sr_call *k)
{
    left(k, 1000, false);
}

static void cmd_pttl(struct sr_call *k)
{
    left(k, 1, false);
}

static void cmd_expiretime(struct sr_call *k)
{
    left(k, 1000, true);
}

static void cmd_pexpiretime(struct sr_call *k)
{
    left(k, 1, true);
}

static void cmd_persist(struct sr_call *k)
{
    struct sr_value *v = sr__key(k, k->argv[1]);
    bool had = v && v->expires >= 0;

    if (had) {
        v->expires = -1;
        sr__key_changed(k, k->argv[1]);
    }
    sr__reply_int(k, had);
}

const struct sr_command sr__expire_commands[] = {
    {"expire", cmd_expire, -3, SR_WRITE, 1, 1, 1},
    {"pexpire", cmd_pexpire, -3, SR_WRITE, 1, 1, 1},
    {"expireat", cmd_expireat, -3, SR_WRITE, 1, 1, 1},
    {"pexpireat", cmd_pexpireat, -3, SR_WRITE, 1, 1, 1},
    {"ttl", cmd_ttl, 2, SR_READ, 1, 1, 1},
    {"pttl", cmd_pttl, 2, SR_READ, 1, 1, 1},
    {"expiretime", cmd_expiretime, 2, SR_READ, 1, 1, 1},
    {"pexpiretime", cmd_pexpiretime, 2, SR_READ, 1, 1, 1},
    {"persist", cmd_persist, 2, SR_WRITE, 1, 1, 1},
    {0}};
