/* SPDX-License-Identifier: MIT
 *
 * test_scripts.c - every script alone, against a real server, as a table:
 * state before, arguments, reply, state after. The tables are in
 * script_rows.h; here is what runs them.
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

#include "server/script_rows.h"
#include "support/server.h"
#include "support/util.h"

#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define MAX_WORDS 32

static struct ts_server *srv;
static redisContext *users[4];   /* by enum how */
static redisContext *subscriber; /* to C */

/* ---- words ------------------------------------------------------------- */

struct words {
    char *text; /* what w points into */
    const char *w[MAX_WORDS];
    int n;
};

static const char *meaning(const char *word)
{
    static const char *const table[][2] = {
        {"A", "8743c9c0-0795-4907-87fd-6c719a6b4586:45"},
        {"B", "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"},
        {"L", "order"},
        {"C", "redisson_lock__channel:{order}"},
        {"M", "a:{7}"},
        {"D", "redisson_lock__channel:a:{7}"},
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

/* Calls fn for each part of a text that is split at ';'. */
static void each(const char *row, const char *text,
                 void (*fn)(const char *row, const char *part))
{
    char *copy = ts_strdup(text);
    char *save = NULL;

    for (char *part = strtok_r(copy, ";", &save); part;
         part = strtok_r(NULL, ";", &save))
        fn(row, part);
    free(copy);
}

/* ---- replies ----------------------------------------------------------- */

/* One element of a reply against one word of what is wanted. */
static bool is_like(const redisReply *r, const char *want)
{
    char number[32];

    snprintf(number, sizeof number, "%lld", r->integer);
    switch (r->type) {
    case REDIS_REPLY_NIL:
        return strcmp(want, "nil") == 0;
    case REDIS_REPLY_INTEGER:
        if (want[0] != '~')
            return strcmp(number, want) == 0;
        return r->integer <= atoll(want + 1) &&
               r->integer > atoll(want + 1) / 2;
    case REDIS_REPLY_STRING:
        return strcmp(r->str, want) == 0;
    case REDIS_REPLY_ERROR:
        return strcmp(want, "-any") == 0 ||
               (want[0] == '-' && strtol(want, NULL, 10) == 0 &&
                strstr(r->str, want + 1));
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
        fail_msg("%s: the reply is not %s but (type %d) %lld %s", row, want,
                 r ? r->type : 0, r ? r->integer : 0,
                 r && r->str ? r->str : "");
}

/* ---- calls ------------------------------------------------------------- */

/* EVALSHA with the words of a call. */
static redisReply *run_call(const char *call, enum how how)
{
    struct words ws = split(call);
    const char *argv[MAX_WORDS + 2];
    char sha[41], keys[16];
    int argc = 3, n_keys = -1;

    ts_script_load(srv, DIBS_LUA_DIR, ws.w[0], sha);
    for (int i = 1; i < ws.n; i++) {
        if (strcmp(ws.w[i], "|") == 0)
            n_keys = argc - 3;
        else
            argv[argc++] = ws.w[i];
    }
    snprintf(keys, sizeof keys, "%d", n_keys < 0 ? argc - 3 : n_keys);
    argv[0] = "EVALSHA";
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

static void do_command(const char *row, const char *text)
{
    struct words ws = split(text);
    redisReply *r = ts_cmdv(srv, ws.n, ws.w, NULL);

    if (!r || r->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s: %s", row, text, r ? r->str : "no reply");
    freeReplyObject(r);
    free(ws.text);
}

/* How many messages C has had since the last time; each must be "0". Behind
 * them comes one of our own, so there is no need to wait for more. */
static int count_messages(const char *row)
{
    for (int n = 0;; n++) {
        redisReply *r = NULL;

        if (n == 0)
            ts_ok(srv, "PUBLISH %s end", meaning("C"));
        if (redisGetReply(subscriber, (void **)&r) != REDIS_OK)
            fail_msg("%s: the subscriber is gone", row);
        bool end = strcmp(r->element[2]->str, "end") == 0;
        bool zero = strcmp(r->element[2]->str, "0") == 0;
        freeReplyObject(r);
        if (end)
            return n;
        if (!zero)
            fail_msg("%s: a message that is not 0", row);
    }
}

/* ---- states ------------------------------------------------------------ */

static int keys_named; /* by the states of a row */

static void check_state(const char *row, const char *state)
{
    struct words ws = split(state);
    const char *key = ws.w[0];
    const char *ttl = ws.w[ws.n - 1];
    char *type = ts_str(srv, "TYPE %s", key);
    redisReply left = {.type = REDIS_REPLY_INTEGER,
                       .integer = ts_pttl(srv, key)};

    keys_named++;
    if (strcmp(ttl, "string") == 0) {
        if (strcmp(type, "string") != 0)
            fail_msg("%s: %s is not what it was", row, key);
    } else {
        if (strcmp(type, "hash") != 0)
            fail_msg("%s: %s is of type %s", row, key, type);
        if (!is_like(&left, ttl))
            fail_msg("%s: %s has %lld ms left, not %s", row, key, left.integer,
                     ttl);
        if (ts_hlen(srv, key) != ws.n - 2)
            fail_msg("%s: %s has more or fewer fields", row, key);
        for (int i = 1; i < ws.n - 1; i++) {
            char field[2] = {ws.w[i][0], '\0'};
            char *value = ts_hget(srv, key, meaning(field));
            if (!value || strcmp(value, ws.w[i] + 2) != 0)
                fail_msg("%s: %s is %s", row, ws.w[i], value ? value : "nil");
            free(value);
        }
    }
    free(type);
    free(ws.text);
}

static void check_states(const char *row, const char *after)
{
    keys_named = 0;
    each(row, after, check_state);
    if (ts_nkeys(srv) != keys_named)
        fail_msg("%s: there are %lld keys, not %d", row, ts_nkeys(srv),
                 keys_named);
}

/* ---- running a row ----------------------------------------------------- */

static void send_and_check(const struct row *row, const char *want, int told)
{
    redisReply *r = run_call(row->call, row->how);

    check_reply(row->name, r, want);
    freeReplyObject(r);
    check_states(row->name, row->after);
    int n = count_messages(row->name);
    if (n != told)
        fail_msg("%s: %d messages, not %d", row->name, n, told);
}

static void run_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ts_ok(srv, "FLUSHALL");
        each(rows[i].name, rows[i].before, do_command);
        send_and_check(&rows[i], rows[i].reply, rows[i].told);
        if (rows[i].again)
            send_and_check(&rows[i], rows[i].again, 0);
    }
}

/* Rows that go on where the one before stopped. */
static void run_story(const struct row *rows, size_t n)
{
    ts_ok(srv, "FLUSHALL");
    for (size_t i = 0; i < n; i++) {
        each(rows[i].name, rows[i].before, do_command);
        send_and_check(&rows[i], rows[i].reply, rows[i].told);
    }
}

/* ---- the tests --------------------------------------------------------- */

#define TABLE_TEST(what)                                                       \
    static void test_scripts_##what(void **state)                              \
    {                                                                          \
        (void)state;                                                           \
        run_rows(what##_rows, COUNT(what##_rows));                             \
    }

TABLE_TEST(acquire)
TABLE_TEST(release)
TABLE_TEST(renew)
TABLE_TEST(handover)
TABLE_TEST(force)
TABLE_TEST(info)

static void test_scripts_vectors(void **state)
{
    (void)state;
    run_story(vector_rows, COUNT(vector_rows));
}

/* Of very many fields only some are told, but all are counted; whichever way
 * the server stores them. */
static void test_scripts_info_of_a_crowd(void **state)
{
    (void)state;
    ts_ok(srv, "FLUSHALL");
    for (int i = 1; i <= 1000; i++) {
        ts_ok(srv, "HSET %s reader:%d 1", meaning("L"), i);
        if (i != 100 && i != 1000)
            continue;
        redisReply *r = run_call("basic_info L |", PLAIN);
        assert_int_equal(r->type, REDIS_REPLY_ARRAY);
        assert_in_range(r->elements, 3 + 2, 3 + 2 * 32);
        assert_int_equal(r->elements % 2, 1);
        assert_int_equal(r->element[1]->integer, i);
        assert_int_equal(r->element[2]->integer, 0);
        freeReplyObject(r);
    }
}

/* A batch as long as the watchdog makes them, and a good deal longer. */
static void test_scripts_renew_very_many(void **state)
{
    enum { MANY = 2000 };
    const char *argv[3 + 3 * MANY];
    static char keys[MANY][20];
    char sha[41];

    (void)state;
    ts_ok(srv, "FLUSHALL");
    ts_script_load(srv, DIBS_LUA_DIR, "basic_renew", sha);
    argv[0] = "EVALSHA";
    argv[1] = sha;
    argv[2] = "2000";
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "lock:%d", i);
        argv[3 + i] = keys[i];
        argv[3 + MANY + 2 * i] = "A";
        argv[3 + MANY + 2 * i + 1] = "100000";
        if (i % 2)
            ts_ok(srv, "HSET %s A 1", keys[i]);
    }
    redisReply *r = ts_cmdv(srv, 3 + 3 * MANY, argv, NULL);
    assert_int_equal(r->type, REDIS_REPLY_STRING);
    assert_int_equal(r->len, MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(r->str[i], i % 2 ? '1' : '0');
    freeReplyObject(r);
    assert_int_equal(ts_nkeys(srv), MANY / 2);
}

static bool has_rows(const char *script)
{
    static const struct row *const tables[] = {acquire_rows, release_rows,
                                               renew_rows,   handover_rows,
                                               force_rows,   info_rows};
    size_t len = strlen(script) - strlen(".lua");

    for (size_t i = 0; i < COUNT(tables); i++)
        if (strncmp(tables[i]->call, script, len) == 0 &&
            tables[i]->call[len] == ' ')
            return true;
    return false;
}

/* No script of the plain lock without a table. */
static void test_scripts_all_tested(void **state)
{
    DIR *dir = opendir(DIBS_LUA_DIR);
    int n = 0;

    (void)state;
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        const char *dot = strrchr(e->d_name, '.');
        if (strncmp(e->d_name, "basic_", 6) != 0 || !dot ||
            strcmp(dot, ".lua") != 0)
            continue;
        n++;
        if (!has_rows(e->d_name))
            fail_msg("%s has no table", e->d_name);
    }
    closedir(dir);
    assert_int_equal(n, 6);
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
    users[NO_PEXPIRE] = log_in("timeless", "&* +@all -pexpire -hdel");
    users[NO_CHANNEL] = log_in("mute", "resetchannels +@all");
    subscriber = ts_connect(srv);
    redisReply *r = redisCommand(subscriber, "SUBSCRIBE %s", meaning("C"));
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
        cmocka_unit_test(test_scripts_acquire),
        cmocka_unit_test(test_scripts_release),
        cmocka_unit_test(test_scripts_renew),
        cmocka_unit_test(test_scripts_handover),
        cmocka_unit_test(test_scripts_force),
        cmocka_unit_test(test_scripts_info),
        cmocka_unit_test(test_scripts_vectors),
        cmocka_unit_test(test_scripts_info_of_a_crowd),
        cmocka_unit_test(test_scripts_renew_very_many),
        cmocka_unit_test(test_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("scripts", tests, group_setup,
                                       group_teardown);
}
