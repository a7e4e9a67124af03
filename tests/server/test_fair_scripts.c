/* SPDX-License-Identifier: MIT
 *
 * test_fair_scripts.c - every script of the fair lock alone, against a real
 * server, as a table: state before, arguments, reply, state after. The tables
 * are in fair_rows.h; here is what runs them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/fair_rows.h"
#include "support/server.h"
#include "support/util.h"

#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define MAX_WORDS 40

#define LOCK   "order"
#define QUEUE  "redisson_lock_queue:{order}"
#define SCORES "redisson_lock_timeout:{order}"
#define SILENT "dibs_lock_silent:{order}"
#define W      300000
#define CALL   "redisson_lock__channel:{order}:"
#define UUID   "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b"

/* ---- words ------------------------------------------------------------- */

static struct ts_server *srv;
static redisContext *users[3];   /* by enum how */
static redisContext *subscriber; /* to all that live */
static long long base;           /* when the row began */

struct words {
    char *text; /* what w points into */
    const char *w[MAX_WORDS];
    char numbers[MAX_WORDS][48];
    int n;
};

static const char *meaning(const char *word)
{
    static const char *const table[][2] = {
        {"A", UUID ":1"}, {"B", UUID ":2"}, {"C", UUID ":3"}, {"X", UUID ":8"},
        {"Y", UUID ":9"}, {"L", LOCK},      {"Q", QUEUE},     {"Z", SCORES},
        {"P", CALL},      {"S", SILENT},    {"''", ""},
    };

    for (size_t i = 0; i < COUNT(table); i++)
        if (strcmp(table[i][0], word) == 0)
            return table[i][1];
    return word;
}

static void split(const char *text, struct words *ws)
{
    char *save = NULL;

    ws->text = ts_strdup(text);
    ws->n = 0;
    for (char *w = strtok_r(ws->text, " ", &save); w;
         w = strtok_r(NULL, " ", &save)) {
        assert_true(ws->n < MAX_WORDS);
        ws->w[ws->n] = meaning(w);
        if (w[0] == '@') {
            snprintf(ws->numbers[ws->n], sizeof ws->numbers[0], "%lld%s",
                     base + atoll(w + 1), strchr(w, '.') ? ".5" : "");
            ws->w[ws->n] = ws->numbers[ws->n];
        } else if (w[0] == '!') {
            snprintf(ws->numbers[ws->n], sizeof ws->numbers[0], "%lld %lld",
                     base - atoll(w + 1), base % W);
            ws->w[ws->n] = ws->numbers[ws->n];
        }
        ws->n++;
    }
}

/* "OWNER=REST", or "OWNER~REST": the rest, with its sign. */
static const char *cut(char *word)
{
    size_t len = strcspn(word, "=~");
    static char rest[64];

    snprintf(rest, sizeof rest, "%s", word + len);
    word[len] = '\0';
    return rest;
}

static long long server_now(void)
{
    redisReply *r = ts_cmd(srv, "TIME");

    assert_int_equal(r->type, REDIS_REPLY_ARRAY);
    long long ms =
        atoll(r->element[0]->str) * 1000 + atoll(r->element[1]->str) / 1000;
    freeReplyObject(r);
    return ms;
}

/* ---- replies and calls ------------------------------------------------- */

static bool falls(long long got, long long from)
{
    return got <= from && got > from / 2;
}

static bool is_like(const redisReply *r, const char *want)
{
    switch (r->type) {
    case REDIS_REPLY_NIL:
        return strcmp(want, "nil") == 0;
    case REDIS_REPLY_INTEGER:
        return want[0] == '~' ? falls(r->integer, atoll(want + 1))
                              : r->integer == atoll(want);
    case REDIS_REPLY_STRING:
        return want[0] == '~' ? falls(atoll(r->str), atoll(want + 1))
                              : strcmp(r->str, want) == 0;
    case REDIS_REPLY_ERROR:
        return want[0] == '-' && strtol(want, NULL, 10) == 0 &&
               strstr(r->str, want + 1);
    default:
        return false;
    }
}

static void check_reply(const char *row, const redisReply *r, const char *want)
{
    struct words ws;
    bool ok = r != NULL;

    split(want, &ws);
    if (ok && r->type == REDIS_REPLY_ARRAY) {
        ok = (int)r->elements == ws.n;
        for (int i = 0; ok && i < ws.n; i++)
            ok = is_like(r->element[i], ws.w[i]);
    } else if (ok) {
        ok = ws.n == 1 && is_like(r, ws.w[0]);
    }
    free(ws.text);
    if (!ok)
        fail_msg("%s: the reply is not %s but (type %d) %lld %s", row, want,
                 r ? r->type : 0, r ? r->integer : 0,
                 r && r->str ? r->str : "");
}

/* EVALSHA: all scripts of this kind have the same keys. */
static redisReply *run_call(const char *call, enum how how)
{
    const char *argv[MAX_WORDS + 7] = {"EVALSHA", NULL,   "4",   LOCK,
                                       QUEUE,     SCORES, SILENT};
    struct words ws;
    char sha[41];

    split(call, &ws);
    ts_script_load(srv, DIBS_LUA_DIR, ws.w[0], sha);
    argv[1] = sha;
    for (int i = 1; i < ws.n; i++)
        argv[6 + i] = ws.w[i];
    if (how == FULL)
        ts_config_set(srv, "maxmemory", "1");
    redisReply *r = redisCommandArgv(users[how], 6 + ws.n, argv, NULL);
    if (how == FULL)
        ts_config_set(srv, "maxmemory", "0");
    free(ws.text);
    return r;
}

static void do_commands(const char *row, const char *text)
{
    char *copy = ts_strdup(text);
    char *save = NULL;

    for (char *part = strtok_r(copy, ";", &save); part;
         part = strtok_r(NULL, ";", &save)) {
        struct words ws;
        split(part, &ws);
        redisReply *r = ts_cmdv(srv, ws.n, ws.w, NULL);
        if (!r || r->type == REDIS_REPLY_ERROR)
            fail_msg("%s: %s: %s", row, part, r ? r->str : "no reply");
        freeReplyObject(r);
        free(ws.text);
    }
    free(copy);
}

/* ---- states ------------------------------------------------------------ */

static void check_lock(const struct row *row)
{
    struct words ws;

    split(row->lock, &ws);
    if (ts_hlen(srv, LOCK) != ws.n)
        fail_msg("%s: the lock has %lld fields", row->name, ts_hlen(srv, LOCK));
    for (int i = 0; i < ws.n; i++) {
        char word[96];
        snprintf(word, sizeof word, "%s", ws.w[i]);
        const char *want = cut(word) + 1;
        char *got = ts_hget(srv, LOCK, meaning(word));
        if (!got || strcmp(got, want) != 0)
            fail_msg("%s: the lock's %s is %s", row->name, word,
                     got ? got : "nil");
        free(got);
    }
    free(ws.text);
}

static void check_queue(const struct row *row)
{
    struct words ws;
    redisReply *r = ts_cmd(srv, "LRANGE %s 0 -1", QUEUE);

    split(row->queue, &ws);
    bool ok = (int)r->elements == ws.n;
    for (int i = 0; ok && i < ws.n; i++)
        ok = strcmp(r->element[i]->str, ws.w[i]) == 0;
    for (size_t i = 0; !ok && i < r->elements; i++)
        print_error("  %s\n", r->element[i]->str);
    if (!ok)
        fail_msg("%s: the queue is not %s", row->name, row->queue);
    freeReplyObject(r);
    free(ws.text);
}

/* The script ran between t0 and t1. */
static void check_scores(const struct row *row, long long t0, long long t1)
{
    struct words ws;

    split(row->scores, &ws);
    if (ts_int(srv, "ZCARD %s", SCORES) != ws.n)
        fail_msg("%s: there are %lld scores", row->name,
                 ts_int(srv, "ZCARD %s", SCORES));
    for (int i = 0; i < ws.n; i++) {
        char word[96];
        snprintf(word, sizeof word, "%s", ws.w[i]);
        const char *want = cut(word);
        long long ms = atoll(want + 1);
        long long low = (want[0] == '=' ? base : t0) + ms - 2;
        long long high = (want[0] == '=' ? base : t1) + ms + 2;
        char *got = ts_str(srv, "ZSCORE %s %s", SCORES, meaning(word));
        if (!got || atof(got) < (double)low || atof(got) > (double)high)
            fail_msg("%s: the score of %s is base + %.0f", row->name, word,
                     got ? atof(got) - (double)base : -1.0);
        free(got);
    }
    free(ws.text);
}

/* Noted, and not for ever. */
static void check_silent(const struct row *row)
{
    struct words ws;

    split(row->silent ? row->silent : "", &ws);
    if (ts_hlen(srv, SILENT) != ws.n)
        fail_msg("%s: %lld are noted as silent", row->name,
                 ts_hlen(srv, SILENT));
    for (int i = 0; i < ws.n; i++) {
        char *got = ts_hget(srv, SILENT, ws.w[i]);
        if (!got)
            fail_msg("%s: %s is not noted as silent", row->name, ws.w[i]);
        free(got);
    }
    if (ws.n > 0 && !strstr(row->before, "HSET S"))
        assert_in_range(ts_int(srv, "PTTL %s", SILENT), 1, 10000);
    free(ws.text);
}

/* Whoever was put into the queue gave both the same TTL, behind all scores. */
static void check_ttl(const struct row *row)
{
    const char *at = TS_LUA_ENDS
        "return {ends(KEYS[1]), ends(KEYS[2]), redis.call('zrange', "
        "KEYS[2], -1, -1, 'WITHSCORES')[2]}";
    redisReply *r = ts_cmd(srv, "EVAL %s 2 %s %s", at, QUEUE, SCORES);

    assert_int_equal(r->type, REDIS_REPLY_ARRAY);
    long long q = r->element[0]->integer, z = r->element[1]->integer;
    long long last = (long long)atof(r->element[2]->str);
    freeReplyObject(r);
    if (llabs(q - z) > 2 || q <= last)
        fail_msg("%s: the queue ends at %lld, the scores at %lld, the last "
                 "score at %lld",
                 row->name, q - base, z - base, last - base);
}

/* Whose channels got a message since the last time; behind them comes one of
 * our own. */
static const char *told_since(const char *row)
{
    static char told[64];
    bool end = false;

    told[0] = '\0';
    ts_ok(srv, "PUBLISH %s:1 end", CALL UUID);
    while (!end) {
        redisReply *r = NULL;
        if (redisGetReply(subscriber, (void **)&r) != REDIS_OK)
            fail_msg("%s: the subscriber is gone", row);
        const char *number = strrchr(r->element[1]->str, ':') + 1;
        end = strcmp(r->element[2]->str, "end") == 0;
        if (!end && strcmp(r->element[2]->str, "0") != 0)
            fail_msg("%s: a message that is not 0", row);
        if (!end && strlen(told) < sizeof told - 4)
            sprintf(told + strlen(told), "%s%c", *told ? " " : "",
                    "?ABC"[atoi(number) & 3]);
        freeReplyObject(r);
    }
    return told;
}

static void check_told(const struct row *row)
{
    const char *told = told_since(row->name);

    if (strcmp(told, row->told) != 0)
        fail_msg("%s: called '%s', not '%s'", row->name, told, row->told);
}

/* ---- running a row ----------------------------------------------------- */

/* t0: when it was sent first; what was written then may stay as it is. */
static void send_and_check(const struct row *row, const char *want,
                           long long t0)
{
    bool queued = strstr(row->call, "fair_acquire") &&
                  strcmp(row->call + strlen(row->call) - 3, "P 1") == 0 &&
                  want[0] == '~';
    redisReply *r = run_call(row->call, row->how);
    long long t1 = server_now();

    check_reply(row->name, r, want);
    freeReplyObject(r);
    check_lock(row);
    check_queue(row);
    check_scores(row, t0, t1);
    check_silent(row);
    if (queued)
        check_ttl(row);
}

static void run_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ts_ok(srv, "FLUSHALL");
        told_since(rows[i].name); /* a row that failed may have left some */
        base = server_now();
        do_commands(rows[i].name, rows[i].before);
        long long t0 = server_now();
        send_and_check(&rows[i], rows[i].reply, t0);
        check_told(&rows[i]);
        if (!rows[i].again)
            continue;
        send_and_check(&rows[i], rows[i].again, t0);
        check_told(&rows[i]);
    }
}

/* ---- the tests --------------------------------------------------------- */

#define TABLE_TEST(what)                                                       \
    static void test_fair_scripts_##what(void **state)                         \
    {                                                                          \
        (void)state;                                                           \
        run_rows(what##_rows, COUNT(what##_rows));                             \
    }

TABLE_TEST(acquire)
TABLE_TEST(release)
TABLE_TEST(leave)
TABLE_TEST(info)
TABLE_TEST(vector)

/* A crowd of dead ones: whoever comes clears them away, after one second if
 * there are not too many, and the last in line is called when there are. */
static void test_fair_scripts_crowd_of_dead(void **state)
{
    static const struct row call_last = {.name = "crowd", .told = "C"};
    const char *fill = "for i = 1, 300 do redis.call('rpush', KEYS[1], i);"
                       "redis.call('zadd', KEYS[2], ARGV[1], i) end";

    (void)state;
    ts_ok(srv, "FLUSHALL");
    base = server_now();
    do_commands("crowd", HELD);
    ts_ok(srv, "EVAL %s 2 %s %s %lld", fill, QUEUE, SCORES, base + 900000);
    freeReplyObject(run_call(WAIT("C"), PLAIN));
    redisReply *r = run_call(RELEASE("A"), PLAIN);
    check_reply("nobody hears", r, "-2");
    freeReplyObject(r);
    check_told(&call_last);
    /* What C does then, with the seconds left out. */
    bool taken = false;
    for (int i = 0; i < 10 && !taken; i++) {
        r = run_call(WAIT("C"), PLAIN);
        taken = r->type == REDIS_REPLY_NIL;
        freeReplyObject(r);
        assert_true(taken || ts_hlen(srv, SILENT) > 0);
        ts_ok(srv, "EVAL %s 1 %s",
              "for _, who in ipairs(redis.call('hkeys', KEYS[1])) do "
              "local t, r = redis.call('hget', KEYS[1], who):match('(.+) (.+)')"
              " redis.call('hset', KEYS[1], who, t - 1000 .. ' ' .. r) end",
              SILENT);
    }
    assert_true(taken);
    assert_false(ts_exists(srv, QUEUE));
    assert_false(ts_exists(srv, SCORES));
    assert_false(ts_exists(srv, SILENT));
}

/* In a long queue a waiter keeps its place though nobody counts that far, and
 * its score is rather too high than too low. */
static void test_fair_scripts_far_back(void **state)
{
    const char *fill = "for i = 1, 3000 do redis.call('rpush', KEYS[1], i);"
                       "redis.call('zadd', KEYS[2], ARGV[1], i) end";

    (void)state;
    ts_ok(srv, "FLUSHALL");
    base = server_now();
    do_commands("far back", HELD);
    ts_ok(srv, "EVAL %s 2 %s %s %lld", fill, QUEUE, SCORES, base + 900000);
    for (int i = 0; i < 3; i++) {
        redisReply *r = run_call(WAIT("C"), PLAIN);
        check_reply("W / 3", r, "100000");
        freeReplyObject(r);
        freeReplyObject(ts_cmd(srv, "RPUSH %s behind%d", QUEUE, i));
        assert_int_equal(ts_int(srv, "LPOS %s %s", QUEUE, meaning("C")), 3000);
    }
    char *score = ts_str(srv, "ZSCORE %s %s", SCORES, meaning("C"));
    assert_true(atof(score) >= (double)(base + 30000 + 300000LL * 3001 - 2));
    free(score);
}

/* No script of the fair lock without a table. */
static void test_fair_scripts_all_tested(void **state)
{
    static const struct row *const tables[] = {acquire_rows, release_rows,
                                               leave_rows, info_rows};
    DIR *dir = opendir(DIBS_LUA_DIR);
    size_t n = 0;

    (void)state;
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        size_t len = strcspn(e->d_name, ".");
        bool found = false;
        if (strncmp(e->d_name, "fair_", 5) != 0)
            continue;
        n++;
        for (size_t i = 0; i < COUNT(tables); i++)
            found |= strncmp(tables[i]->call, e->d_name, len) == 0;
        if (!found)
            fail_msg("%s has no table", e->d_name);
    }
    closedir(dir);
    assert_int_equal(n, COUNT(tables));
}

/* ---- the set-up -------------------------------------------------------- */

static int group_setup(void **state)
{
    (void)state;
    srv = ts_server_start(NULL);
    users[PLAIN] = ts_connect(srv);
    users[FULL] = ts_connect(srv);
    users[NO_CHANNEL] = ts_connect(srv);
    ts_ok(srv, "ACL SETUSER mute on >secret ~* resetchannels +@all");
    redisReply *r = redisCommand(users[NO_CHANNEL], "AUTH mute secret");
    assert_int_equal(r->type, REDIS_REPLY_STATUS);
    freeReplyObject(r);
    subscriber = ts_connect(srv);
    for (int i = 1; i <= 3; i++) {
        r = redisCommand(subscriber, "SUBSCRIBE %s:%d", CALL UUID, i);
        assert_int_equal(r->type, REDIS_REPLY_ARRAY);
        freeReplyObject(r);
    }
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
        cmocka_unit_test(test_fair_scripts_acquire),
        cmocka_unit_test(test_fair_scripts_release),
        cmocka_unit_test(test_fair_scripts_leave),
        cmocka_unit_test(test_fair_scripts_info),
        cmocka_unit_test(test_fair_scripts_vector),
        cmocka_unit_test(test_fair_scripts_crowd_of_dead),
        cmocka_unit_test(test_fair_scripts_far_back),
        cmocka_unit_test(test_fair_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("fair_scripts", tests, group_setup,
                                       group_teardown);
}
