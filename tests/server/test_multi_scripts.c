/* SPDX-License-Identifier: MIT
 *
 * test_multi_scripts.c - the scripts of the multi lock alone, against a real
 * server, as tables: state before, call, reply, state after, messages.
 *
 * Words    A and B are owners, AW and BW the same as writers, - is empty. a, b
 *          and c are locks, Ga to Gc the keys of waiting writers, Ca to Cc
 *          channels.
 * A call   is the script, its keys, '|', its arguments.
 * A reply  is "nil", a number, "-TEXT" for an error with that text in it, or
 *          several numbers for an array; ~N is a number that was N a moment ago
 *          and has been falling since.
 * A state  is "KEY FIELD=VALUE ... TTL" or "KEY string TTL" for each key; a key
 *          that is not named must not exist, so nothing is left unnoticed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/server.h"
#include "support/util.h"

#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define MAX_WORDS 96
#define OWNER_A   "8743c9c0-0795-4907-87fd-6c719a6b4586:45"
#define OWNER_B   "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

enum how {
    PLAIN,
    FULL,       /* the server has no memory left */
    NO_PEXPIRE, /* by a user who may not set an expiry */
    NO_CHANNEL, /* by a user who may not publish */
    HOWS
};

struct row {
    const char *name;
    const char *before; /* commands, ';' between them */
    const char *call;
    const char *reply;
    const char *again; /* the reply when sent a second time; NULL = not sent */
    const char *after; /* states, ';' between them */
    const char *told;  /* channel=message, one after the other */
    enum how how;
};

#define TOO_LONG          "9223372036854775807"
#define PLAIN_2           "multi_acquire a b | 30000 p1 A p1 A"
#define MIXED_2           "multi_acquire a b Gb | 30000 p1 A w1 A"
#define AGAIN_2           "multi_acquire a b | 30000 p2 A p1 A"
#define HELD(k, ms)       "HSET " k " A 1;PEXPIRE " k " " ms
#define TAKEN(k, ms)      "HSET " k " B 1;PEXPIRE " k " " ms
#define WRITTEN(k, o, ms) "HSET " k " mode write " o " 1;PEXPIRE " k " " ms

static const struct row acquire_rows[] = {
    {"fresh", "", PLAIN_2, "nil", "nil", "a A=1 ~30000;b A=1 ~30000", "",
     PLAIN},
    {"an owner is named once", "",
     "multi_acquire a b c Gb | 30000 p1 A w1 - p1 -", "nil", "nil",
     "a A=1 ~30000;b mode=write AW=1 ~30000;c A=1 ~30000", "", PLAIN},
    {"two owners, each named once", "",
     "multi_acquire a b c | 30000 p1 A p1 B p1 -", "nil", "nil",
     "a A=1 ~30000;b B=1 ~30000;c B=1 ~30000", "", PLAIN},
    {"fresh, each with its owner", "", "multi_acquire a b | 30000 p1 A p1 B",
     "nil", "nil", "a A=1 ~30000;b B=1 ~30000", "", PLAIN},
    {"plain and write", "", MIXED_2, "nil", "nil",
     "a A=1 ~30000;b mode=write AW=1 ~30000", "", PLAIN},
    {"write and plain, the gates go by writers", "SET Ga BW PX 2500",
     "multi_acquire a b c Ga Gc | 30000 w1 A p1 A w1 A", "nil", "nil",
     "a mode=write AW=1 ~30000;b A=1 ~30000;c mode=write AW=1 "
     "~30000",
     "", PLAIN},
    {"a waiting writer's key is removed", "SET Gb BW PX 2500", MIXED_2, "nil",
     "nil", "a A=1 ~30000;b mode=write AW=1 ~30000", "", PLAIN},
    {"re-entry of one", HELD("a", "20000"), AGAIN_2, "nil", "nil",
     "a A=2 ~30000;b A=1 ~30000", "", PLAIN},
    {"re-entry never shortens", HELD("a", "60000"), AGAIN_2, "nil", "nil",
     "a A=2 ~60000;b A=1 ~30000", "", PLAIN},
    {"re-entry of a writer that reads too",
     WRITTEN("b", "AW", "60000") ";HSET b A 1",
     "multi_acquire a b Gb | 30000 p1 A w2 A", "nil", "nil",
     "a A=1 ~30000;b mode=write AW=2 A=1 ~60000", "", PLAIN},
    {"a copy that comes late lowers nothing", HELD("a", "60000") ";HSET a A 3",
     AGAIN_2, "nil", "nil", "a A=3 ~60000;b A=1 ~30000", "", PLAIN},
    {"the first is busy", TAKEN("a", "60000"), PLAIN_2, "1 ~60000", "1 ~60000",
     "a B=1 ~60000", "", PLAIN},
    {"the second is busy", TAKEN("b", "60000"), PLAIN_2, "2 ~60000", "2 ~60000",
     "b B=1 ~60000", "", PLAIN},
    {"both are: the first is named", TAKEN("a", "60000") ";" TAKEN("b", "9000"),
     PLAIN_2, "1 ~60000", NULL, "a B=1 ~60000;b B=1 ~9000", "", PLAIN},
    {"busy without an end", "HSET b B 1", PLAIN_2, "2 -1", "2 -1", "b B=1 -1",
     "", PLAIN},
    {"a writer is in the way", WRITTEN("b", "BW", "60000"), MIXED_2, "2 ~60000",
     "2 ~60000", "b mode=write BW=1 ~60000", "", PLAIN},
    {"busy, and the key of a waiting writer stays",
     WRITTEN("b", "BW", "60000") ";SET Gb BW PX 2500", MIXED_2, "2 ~60000",
     NULL, "b mode=write BW=1 ~60000;Gb string ~2500", "", PLAIN},
    {"busy behind a re-entry", HELD("a", "60000") ";" TAKEN("b", "9000"),
     AGAIN_2, "2 ~9000", "2 ~9000", "a A=1 ~60000;b B=1 ~9000", "", PLAIN},
    {"outer hold gone", "", AGAIN_2, "1 -3", "1 -3", "", "", PLAIN},
    {"outer hold gone, somebody has it", TAKEN("a", "60000"), AGAIN_2, "1 -3",
     "1 -3", "a B=1 ~60000", "", PLAIN},
    {"outer write hold gone", WRITTEN("b", "BW", "60000"),
     "multi_acquire a b Gb | 30000 p1 A w2 A", "2 -3", NULL,
     "b mode=write BW=1 ~60000", "", PLAIN},
    {"a write lock where a plain one is asked for", WRITTEN("b", "BW", "60000"),
     PLAIN_2, "2 -6", "2 -6", "b mode=write BW=1 ~60000", "", PLAIN},
    {"a plain lock where a write one is asked for", TAKEN("b", "60000"),
     MIXED_2, "2 -6", "2 -6", "b B=1 ~60000", "", PLAIN},
    {"not a lock", "SET b x PX 60000", PLAIN_2, "2 -6", "2 -6",
     "b string ~60000", "", PLAIN},
    {"not a lock, for a writer", "SET b x PX 60000", MIXED_2, "2 -6", NULL,
     "b string ~60000", "", PLAIN},
    {"somebody reads", "HSET b mode read B 1;PEXPIRE b 60000", MIXED_2, "2 -7",
     "2 -7", "b mode=read B=1 ~60000", "", PLAIN},
    {"one reads itself", "HSET b mode read A 1;PEXPIRE b 60000", MIXED_2,
     "2 -7", NULL, "b mode=read A=1 ~60000", "", PLAIN},
    {"lease refused: none is taken", "",
     "multi_acquire a b c | " TOO_LONG " p1 A p1 A p1 A", "-invalid",
     "-invalid", "", "", PLAIN},
    {"lease refused: as before",
     HELD("a", "60000") ";" WRITTEN("b", "AW", "60000"),
     "multi_acquire c a b Gb | " TOO_LONG " p1 A p2 A w2 A", "-invalid",
     "-invalid", "a A=1 ~60000;b mode=write AW=1 ~60000", "", PLAIN},
    {"lease refused, write lock", "",
     "multi_acquire a b Gb | " TOO_LONG " p1 A w1 A", "-invalid", NULL, "", "",
     PLAIN},
    {"no right to expire", "", PLAIN_2, "-any", "-any", "", "", NO_PEXPIRE},
    {"no right to expire, mixed", "", MIXED_2, "-any", "-any", "", "",
     NO_PEXPIRE},
    {"no right to expire, re-entry", HELD("a", "60000"), AGAIN_2, "-any",
     "-any", "a A=1 ~60000", "", NO_PEXPIRE},
    {"no right to expire, re-entry of a writer",
     HELD("a", "60000") ";" WRITTEN("b", "AW", "60000"),
     "multi_acquire a b c Gb | 30000 p2 A w2 A p1 A", "-any", "-any",
     "a A=1 ~60000;b mode=write AW=1 ~60000", "", NO_PEXPIRE},
    {"full", "", PLAIN_2, "-OOM", "-OOM", "", "", FULL},
    {"full, mixed", "SET Gb BW PX 2500", MIXED_2, "-OOM", "-OOM",
     "Gb string ~2500", "", FULL},
    {"full, re-entry", HELD("a", "60000"), AGAIN_2, "-OOM", "-OOM",
     "a A=1 ~60000", "", FULL},
    {"full, somebody has it", TAKEN("a", "60000"), PLAIN_2, "1 ~60000", NULL,
     "a B=1 ~60000", "", FULL},
};

#define FREE_2     "multi_release a b | 0 2 p0 A Ca p0 A Cb"
#define FREE_MIXED "multi_release a b Gb | 0 2 p0 A Ca w0 A Cb"

static const struct row release_rows[] = {
    {"all", HELD("a", "60000") ";" HELD("b", "60000"), FREE_2, "2 2", "-1 -1",
     "", "a=0 b=0 ", PLAIN},
    {"all holds at once",
     HELD("a", "60000") ";" HELD("b", "60000") ";HSET a A 3", FREE_2, "2 2",
     "-1 -1", "", "a=0 b=0 ", PLAIN},
    {"once less", HELD("a", "60000") ";" HELD("b", "60000") ";HSET a A 3",
     "multi_release a b | 0 2 p2 A Ca p0 A Cb", "0 2", "0 -1", "a A=2 ~60000",
     "b=0 ", PLAIN},
    {"a copy that comes late raises nothing", HELD("a", "60000"),
     "multi_release a b | 0 2 p2 A Ca p0 A Cb", "0 -1", "0 -1", "a A=1 ~60000",
     "", PLAIN},
    {"plain and write", HELD("a", "60000") ";" WRITTEN("b", "AW", "60000"),
     FREE_MIXED, "2 2", "-1 -1", "", "b=1 b=0 a=0 ", PLAIN},
    {"an owner is named once",
     HELD("a", "60000") ";" WRITTEN("b", "AW", "60000") ";" HELD("c", "60000"),
     "multi_release a b c Gb | 0 3 p0 A Ca w0 - Cb p0 - Cc", "2 2 2",
     "-1 -1 -1", "", "b=1 b=0 a=0 c=0 ", PLAIN},
    {"told in two ways", HELD("a", "60000") ";" WRITTEN("b", "AW", "60000"),
     "multi_release a b Gb | 0 2 p0 A Ca w0 - Cb publish spublish", "2 2",
     "-1 -1", "", "b=1 b=0 a=0 ", PLAIN},
    {"told where nobody listens", HELD("a", "60000"),
     "multi_release a | 0 1 p0 A Ca spublish", "1", "-1", "", "", PLAIN},
    {"once less, write",
     HELD("a", "60000") ";" WRITTEN("b", "AW", "60000") ";HSET b AW 2",
     "multi_release a b Gb | 0 2 p0 A Ca w1 A Cb", "2 0", "-1 0",
     "b mode=write AW=1 ~60000", "a=0 ", PLAIN},
    {"the key of a waiting writer goes",
     HELD("a", "60000") ";" WRITTEN("b", "AW", "60000") ";SET Gb BW PX 2500",
     FREE_MIXED, "2 2", "-1 -1", "", "b=1 b=0 a=0 ", PLAIN},
    {"the writer reads on",
     HELD("a", "60000") ";" WRITTEN("b", "AW", "60000") ";HSET b A 1",
     FREE_MIXED, "2 2", "-1 -1", "b mode=read A=1 ~60000", "b=1 b=0 a=0 ",
     PLAIN},
    {"one is not held", HELD("b", "60000"), FREE_2, "-1 2", "-1 -1", "", "b=0 ",
     PLAIN},
    {"one is somebody else's", TAKEN("a", "60000") ";" HELD("b", "60000"),
     FREE_2, "-1 2", "-1 -1", "a B=1 ~60000", "b=0 ", PLAIN},
    {"one is another writer's",
     HELD("a", "60000") ";" WRITTEN("b", "BW", "60000"), FREE_MIXED, "2 -1",
     "-1 -1", "b mode=write BW=1 ~60000", "a=0 ", PLAIN},
    {"one is not a lock", "SET a x PX 60000;" HELD("b", "60000"), FREE_2,
     "-6 2", "-6 -1", "a string ~60000", "b=0 ", PLAIN},
    {"one is not a lock, write", HELD("a", "60000") ";SET b x PX 60000",
     FREE_MIXED, "2 -6", "-1 -6", "b string ~60000", "a=0 ", PLAIN},
    {"none is held", "", FREE_2, "-1 -1", "-1 -1", "", "", PLAIN},
    {"keep", HELD("a", "60000") ";" WRITTEN("b", "AW", "60000"),
     "multi_release a b Gb | 9000 2 p0 A Ca w0 A Cb", "1 1", NULL,
     "a A=1 ~9000;b mode=write AW=1 ~9000", "", PLAIN},
    {"keep, once less", HELD("a", "60000") ";HSET a A 2;" HELD("b", "60000"),
     "multi_release a b | 9000 2 p1 A Ca p0 A Cb", "0 1", NULL,
     "a A=1 ~60000;b A=1 ~9000", "", PLAIN},
    {"no right to publish", HELD("a", "60000") ";" WRITTEN("b", "AW", "60000"),
     FREE_MIXED, "1 1", "-1 -1", "", "", NO_CHANNEL},
    {"no right to expire", HELD("a", "60000") ";" WRITTEN("b", "AW", "60000"),
     FREE_MIXED, "2 2", "-1 -1", "", "b=1 b=0 a=0 ", NO_PEXPIRE},
    {"full", HELD("a", "60000") ";" WRITTEN("b", "AW", "60000"), FREE_MIXED,
     "2 2", "-1 -1", "", "b=1 b=0 a=0 ", FULL},
    {"full, one ends and one is held once less",
     HELD("a", "60000") ";HSET a A 2;" HELD("b", "60000"),
     "multi_release a b | 0 2 p1 A Ca p0 A Cb", "0 2", "0 -1", "a A=1 ~60000",
     "b=0 ", FULL},
    {"full, both are held once less: refused",
     HELD("a", "60000") ";HSET a A 2;" WRITTEN("b", "AW", "60000") ";HSET b AW "
                                                                   "3",
     "multi_release a b Gb | 0 2 p1 A Ca w2 A Cb", "-8 -8", "-8 -8",
     "a A=2 ~60000;b mode=write AW=3 ~60000", "", FULL},
    {"full, the writer reads on", WRITTEN("b", "AW", "60000") ";HSET b A 1",
     "multi_release b Gb | 0 1 w0 A Cb", "2", "-1", "b mode=read A=1 ~60000",
     "b=1 b=0 ", FULL},
};

/* ---- words ------------------------------------------------------------- */

static struct ts_server *srv;
static redisContext *users[HOWS];
static redisContext *subscriber; /* to all channels */

struct words {
    char *text; /* what w points into */
    const char *w[MAX_WORDS];
    int n;
};

static const char *meaning(const char *word)
{
    static const char *const table[][2] = {
        {"A", OWNER_A},           {"B", OWNER_B},      {"AW", OWNER_A ":write"},
        {"BW", OWNER_B ":write"}, {"Ga", "gate:a"},    {"Gb", "gate:b"},
        {"Gc", "gate:c"},         {"Ca", "channel:a"}, {"Cb", "channel:b"},
        {"Cc", "channel:c"},      {"-", ""},
    };

    for (size_t i = 0; i < COUNT(table); i++)
        if (strcmp(table[i][0], word) == 0)
            return table[i][1];
    return word;
}

static struct words split(const char *text)
{
    struct words ws = {.text = ts_strdup(text)};
    char *save = NULL;

    for (char *w = strtok_r(ws.text, " ", &save); w;
         w = strtok_r(NULL, " ", &save)) {
        assert_true(ws.n < MAX_WORDS);
        ws.w[ws.n++] = meaning(w);
    }
    return ws;
}

/* Calls fn for each part of a text that is split at ';'; returns how many. */
static int each(const char *row, const char *text,
                void (*fn)(const char *row, const char *part))
{
    char *copy = ts_strdup(text);
    char *save = NULL;
    int n = 0;

    for (char *part = strtok_r(copy, ";", &save); part;
         part = strtok_r(NULL, ";", &save), n++)
        fn(row, part);
    free(copy);
    return n;
}

/* ---- calls and replies ------------------------------------------------- */

static void do_command(const char *row, const char *text)
{
    struct words ws = split(text);
    redisReply *r = ts_cmdv(srv, ws.n, ws.w, NULL);

    if (!r || r->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s: %s", row, text, r ? r->str : "no reply");
    freeReplyObject(r);
    free(ws.text);
}

/* EVALSHA with the words of a call. */
static redisReply *run_call(const char *call, enum how how)
{
    struct words ws = split(call);
    const char *argv[MAX_WORDS + 2] = {"EVALSHA"};
    char sha[41], keys[16] = "0";
    int argc = 3;

    ts_script_load(srv, DIBS_LUA_DIR, ws.w[0], sha);
    for (int i = 1; i < ws.n; i++) {
        if (strcmp(ws.w[i], "|") == 0)
            snprintf(keys, sizeof keys, "%d", argc - 3);
        else
            argv[argc++] = ws.w[i];
    }
    argv[1] = sha;
    argv[2] = keys;
    if (how == FULL)
        ts_config_set(srv, "maxmemory", "1");
    redisReply *r = redisCommandArgv(users[how], argc, argv, NULL);
    if (how == FULL)
        ts_config_set(srv, "maxmemory", "0");
    free(ws.text);
    return r;
}

static bool number_like(long long n, const char *want)
{
    if (want[0] != '~')
        return n == atoll(want);
    return n <= atoll(want + 1) && n > atoll(want + 1) / 2;
}

static bool is_like(const redisReply *r, const char *want)
{
    switch (r->type) {
    case REDIS_REPLY_NIL:
        return strcmp(want, "nil") == 0;
    case REDIS_REPLY_INTEGER:
        return strcmp(want, "nil") != 0 && number_like(r->integer, want);
    case REDIS_REPLY_ERROR:
        return strcmp(want, "-any") == 0 ||
               (want[0] == '-' && strstr(r->str, want + 1));
    default:
        return false;
    }
}

static void check_reply(const char *row, const redisReply *r, const char *want)
{
    struct words ws = split(want);
    bool ok = r != NULL;

    if (ok && r->type == REDIS_REPLY_ARRAY) {
        ok = (int)r->elements == ws.n;
        for (int i = 0; ok && i < ws.n; i++)
            ok = is_like(r->element[i], ws.w[i]);
    } else if (ok) {
        ok = ws.n == 1 && is_like(r, ws.w[0]);
    }
    free(ws.text);
    if (!ok)
        fail_msg("%s: the reply is not %s but (type %d) %s", row, want,
                 r ? r->type : 0, r && r->str ? r->str : "");
}

/* What was told since the last time. Behind it comes a message of our own, so
 * there is no need to wait for more. */
static void check_told(const char *row, const char *want)
{
    char told[80] = "";
    bool end = false;

    ts_ok(srv, "PUBLISH channel:end 0");
    while (!end) {
        redisReply *r = NULL;
        if (redisGetReply(subscriber, (void **)&r) != REDIS_OK)
            fail_msg("%s: the subscriber is gone", row);
        const char *from = strchr(r->element[2]->str, ':') + 1;
        size_t len = strlen(told);
        end = strcmp(from, "end") == 0;
        if (!end)
            snprintf(told + len, sizeof told - len, "%s=%s ", from,
                     r->element[3]->str);
        freeReplyObject(r);
    }
    if (strcmp(told, want) != 0)
        fail_msg("%s: told \"%s\", not \"%s\"", row, told, want);
}

/* ---- states ------------------------------------------------------------ */

static void check_field(const char *row, const char *key, const char *pair)
{
    char field[16] = "";
    const char *is = strchr(pair, '=');

    assert_non_null(is);
    snprintf(field, sizeof field, "%.*s", (int)(is - pair), pair);
    char *value = ts_hget(srv, key, meaning(field));
    if (!value || strcmp(value, is + 1) != 0)
        fail_msg("%s: %s %s is %s", row, key, pair, value ? value : "nil");
    free(value);
}

static void check_state(const char *row, const char *state)
{
    struct words ws = split(state);
    const char *key = ws.w[0], *ttl = ws.w[ws.n - 1];
    bool string = strcmp(ws.w[1], "string") == 0;
    char *type = ts_str(srv, "TYPE %s", key);
    long long left = ts_pttl(srv, key);

    if (strcmp(type, string ? "string" : "hash") != 0)
        fail_msg("%s: %s is of type %s", row, key, type);
    if (!number_like(left, ttl))
        fail_msg("%s: %s has %lld ms left, not %s", row, key, left, ttl);
    if (!string && ts_hlen(srv, key) != ws.n - 2)
        fail_msg("%s: %s has more or fewer fields", row, key);
    for (int i = 1; !string && i < ws.n - 1; i++)
        check_field(row, key, ws.w[i]);
    free(type);
    free(ws.text);
}

static void send_and_check(const struct row *row, const char *want,
                           const char *told)
{
    redisReply *r = run_call(row->call, row->how);

    check_reply(row->name, r, want);
    freeReplyObject(r);
    int keys = each(row->name, row->after, check_state);
    if (ts_nkeys(srv) != keys)
        fail_msg("%s: there are %lld keys, not %d", row->name, ts_nkeys(srv),
                 keys);
    check_told(row->name, told);
}

static void run_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ts_ok(srv, "FLUSHALL");
        each(rows[i].name, rows[i].before, do_command);
        send_and_check(&rows[i], rows[i].reply, rows[i].told);
        if (rows[i].again)
            send_and_check(&rows[i], rows[i].again, "");
    }
}

/* ---- the tests --------------------------------------------------------- */

static void test_multi_scripts_acquire(void **state)
{
    (void)state;
    run_rows(acquire_rows, COUNT(acquire_rows));
}

static void test_multi_scripts_release(void **state)
{
    (void)state;
    run_rows(release_rows, COUNT(release_rows));
}

/* How many commands the server runs for this call, which must give that. */
static long long cost(const char *call, const char *want)
{
    freeReplyObject(run_call("multi_acquire x | 30000 p9 A", PLAIN));
    freeReplyObject(run_call("multi_release x | 0 1 p0 A Cx", PLAIN));
    ts_reset_stats(srv);
    redisReply *r = run_call(call, PLAIN);
    long long n = ts_total_commands(srv);
    check_reply("cost", r, want);
    freeReplyObject(r);
    return n;
}

#define TEN_KEYS  "k0 k1 k2 k3 k4 k5 k6 k7 k8 k9 | "
#define TEN(each) each each each each each each each each each each

/* A script's cost is its commands. For ten free names: two each and a look at
 * all; to free them a look and a message each, and one to delete them all.
 * (Beside it the script is loaded and called.) */
static void test_multi_scripts_cost(void **state)
{
    (void)state;
    ts_ok(srv, "FLUSHALL");
    assert_in_range(
        cost("multi_acquire " TEN_KEYS "30000 " TEN("p1 A "), "nil"), 20, 23);
    assert_in_range(
        cost("multi_release " TEN_KEYS "0 10 " TEN("p0 A Ca "), TEN("2 ")), 20,
        23);
    check_told("cost", TEN("a=0 "));
    assert_int_equal(ts_nkeys(srv), 0);
}

/* As many as a group may have, in one command. */
static redisReply *thousand(const char *script, const char *kind, bool acquire)
{
    enum { N = 1000 };
    char sha[41], (*keys)[24] = ts_alloc(2 * N * sizeof keys[0]);
    const char **argv = ts_alloc((5 + 6 * N) * sizeof argv[0]);
    int argc = 3;

    ts_script_load(srv, DIBS_LUA_DIR, script, sha);
    argv[0] = "EVALSHA";
    argv[1] = sha;
    argv[2] = "2000";
    for (int i = 0; i < 2 * N; i++) {
        snprintf(keys[i], sizeof keys[i], i < N ? "k%d" : "gate:%d", i);
        argv[argc++] = keys[i];
    }
    argv[argc++] = acquire ? "60000" : "0";
    if (!acquire)
        argv[argc++] = "1000";
    for (int i = 0; i < N; i++) {
        argv[argc++] = kind;
        argv[argc++] = i == 0 ? OWNER_A : "";
        if (!acquire)
            argv[argc++] = "channel:a";
    }
    redisReply *r = redisCommandArgv(users[PLAIN], argc, argv, NULL);
    free(keys);
    free(argv);
    return r;
}

static void test_multi_scripts_thousand(void **state)
{
    static const char *const kinds[][2] = {{"p1", "p0"}, {"w1", "w0"}};

    (void)state;
    ts_ok(srv, "FLUSHALL");
    for (size_t i = 0; i < COUNT(kinds); i++) {
        redisReply *r = thousand("multi_acquire", kinds[i][0], true);
        check_reply(kinds[i][0], r, "nil");
        freeReplyObject(r);
        assert_int_equal(ts_nkeys(srv), 1000);
        r = thousand("multi_release", kinds[i][1], false);
        assert_int_equal(r->type, REDIS_REPLY_ARRAY);
        assert_int_equal(r->elements, 1000);
        freeReplyObject(r);
        assert_int_equal(ts_nkeys(srv), 0);
    }
}

/* ---- the set-up -------------------------------------------------------- */

/* A connection of a user who lacks one right. */
static redisContext *log_in(const char *name, const char *rights)
{
    char *acl = ts_text("ACL SETUSER %s on >secret ~* %s", name, rights);

    do_command(name, acl);
    free(acl);
    redisContext *cn = ts_connect(srv);
    redisReply *r = redisCommand(cn, "AUTH %s secret", name);
    assert_int_equal(r->type, REDIS_REPLY_STATUS);
    freeReplyObject(r);
    return cn;
}

static int group_setup(void **state)
{
    (void)state;
    srv = ts_server_start(NULL);
    users[PLAIN] = ts_connect(srv);
    users[FULL] = ts_connect(srv);
    users[NO_PEXPIRE] = log_in("timeless", "&* +@all -pexpire");
    users[NO_CHANNEL] = log_in("mute", "resetchannels +@all");
    subscriber = ts_connect(srv);
    redisReply *r = redisCommand(subscriber, "PSUBSCRIBE channel:*");
    assert_int_equal(r->type, REDIS_REPLY_ARRAY);
    freeReplyObject(r);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(users); i++)
        redisFree(users[i]);
    redisFree(subscriber);
    ts_server_stop(srv);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multi_scripts_acquire),
        cmocka_unit_test(test_multi_scripts_release),
        cmocka_unit_test(test_multi_scripts_cost),
        cmocka_unit_test(test_multi_scripts_thousand),
    };

    return cmocka_run_group_tests_name("multi_scripts", tests, group_setup,
                                       group_teardown);
}
