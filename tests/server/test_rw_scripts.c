/* SPDX-License-Identifier: MIT
 *
 * test_rw_scripts.c - every script of the read-write lock alone, against a real
 * server, as a table: state before, arguments, reply, state after, messages.
 * The tables are in rw_rows.h; here is what runs them.
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

#include "server/rw_rows.h"
#include "support/server.h"
#include "support/util.h"

#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define MAX_WORDS 32

#define OWNER_A "8743c9c0-0795-4907-87fd-6c719a6b4586:45"
#define OWNER_B "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"
#define HEAD    "{order}:"
#define TAIL    ":rwlock_timeout:"

static struct ts_server *srv;
static redisContext *users[HOWS];
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
        {"A", OWNER_A},
        {"B", OWNER_B},
        {"AW", OWNER_A ":write"},
        {"BW", OWNER_B ":write"},
        {"L", "order"},
        {"C", "redisson_rwlock:{order}"},
        {"G", "dibs_rwlock_gate:{order}"},
        {"P", HEAD OWNER_A TAIL "1"},
        {"P2", HEAD OWNER_A TAIL "2"},
        {"Q", HEAD OWNER_B TAIL "1"},
        {"Q2", HEAD OWNER_B TAIL "2"},
        {"H", HEAD},
        {"T", TAIL},
        {"<none>", ""},
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

static bool number_like(long long n, const char *want)
{
    if (want[0] != '~')
        return n == atoll(want);
    return n <= atoll(want + 1) && n > atoll(want + 1) / 2;
}

/* One element of a reply against one word of what is wanted. */
static bool is_like(const redisReply *r, const char *want)
{
    switch (r->type) {
    case REDIS_REPLY_NIL:
        return strcmp(want, "nil") == 0;
    case REDIS_REPLY_INTEGER:
        return strcmp(want, "nil") != 0 && number_like(r->integer, want);
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
    int argc = 3, n_keys = 0;

    ts_script_load(srv, DIBS_LUA_DIR, ws.w[0], sha);
    for (int i = 1; i < ws.n; i++) {
        if (strcmp(ws.w[i], "|") == 0)
            n_keys = argc - 3;
        else
            argv[argc++] = ws.w[i];
    }
    snprintf(keys, sizeof keys, "%d", n_keys);
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

/* What C was told since the last time. Behind it comes a message of our own, so
 * there is no need to wait for more. */
static void check_told(const char *row, const char *want)
{
    char told[16] = "";
    bool end = false;

    ts_ok(srv, "PUBLISH %s end", meaning("C"));
    while (!end) {
        redisReply *r = NULL;
        if (redisGetReply(subscriber, (void **)&r) != REDIS_OK)
            fail_msg("%s: the subscriber is gone", row);
        end = strcmp(r->element[2]->str, "end") == 0;
        if (!end)
            strncat(told, r->element[2]->str, sizeof told - strlen(told) - 1);
        freeReplyObject(r);
    }
    if (strcmp(told, want) != 0)
        fail_msg("%s: told \"%s\", not \"%s\"", row, told, want);
}

/* ---- states ------------------------------------------------------------ */

static int keys_named; /* by the states of a row */

static void check_field(const char *row, const char *key, const char *pair)
{
    char field[16] = "";
    const char *is = strchr(pair, '=');

    assert_non_null(is);
    snprintf(field, sizeof field, "%.*s", (int)(is - pair), pair);
    char *value = ts_hget(srv, key, meaning(field));
    if (!value || strcmp(value, is + 1) != 0)
        fail_msg("%s: %s is %s", row, pair, value ? value : "nil");
    free(value);
}

static void check_state(const char *row, const char *state)
{
    struct words ws = split(state);
    const char *key = ws.w[0];
    const char *ttl = ws.w[ws.n - 1];
    bool string = strcmp(ws.w[1], "string") == 0;
    char *type = ts_str(srv, "TYPE %s", key);
    long long left = ts_pttl(srv, key);

    keys_named++;
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

static void check_states(const char *row, const char *after)
{
    keys_named = 0;
    each(row, after, check_state);
    if (ts_nkeys(srv) != keys_named)
        fail_msg("%s: there are %lld keys, not %d", row, ts_nkeys(srv),
                 keys_named);
}

/* ---- running a row ----------------------------------------------------- */

static void send_and_check(const struct row *row, const char *want,
                           const char *told)
{
    redisReply *r = run_call(row->call, row->how);

    check_reply(row->name, r, want);
    freeReplyObject(r);
    check_states(row->name, row->after);
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

/* Rows that go on where the one before stopped. */
static void run_story(const struct row *rows, size_t n)
{
    ts_ok(srv, "FLUSHALL");
    for (size_t i = 0; i < n; i++) {
        if (strncmp(rows[i].name, "anew", 4) == 0)
            ts_ok(srv, "FLUSHALL");
        each(rows[i].name, rows[i].before, do_command);
        send_and_check(&rows[i], rows[i].reply, rows[i].told);
    }
}

/* ---- the tests --------------------------------------------------------- */

#define TABLE_TEST(what)                                                       \
    static void test_rw_scripts_##what(void **state)                           \
    {                                                                          \
        (void)state;                                                           \
        run_rows(what##_rows, COUNT(what##_rows));                             \
    }

TABLE_TEST(read_acquire)
TABLE_TEST(read_release)
TABLE_TEST(read_renew)
TABLE_TEST(read_force)
TABLE_TEST(write_acquire)
TABLE_TEST(write_release)
TABLE_TEST(write_leave)
TABLE_TEST(holders)

static void test_rw_scripts_vectors(void **state)
{
    (void)state;
    run_story(vector_rows, COUNT(vector_rows));
}

/* ---- crowds ------------------------------------------------------------ */

enum { CROWD = 200 };

/* So many readers; those from `live` on have no lease any more. */
static void crowd(int n, int live)
{
    ts_ok(srv, "FLUSHALL");
    ts_ok(srv, "HSET order mode read");
    ts_ok(srv, "PEXPIRE order 60000");
    for (int i = 0; i < n; i++) {
        ts_ok(srv, "HSET order reader:%d 1", i);
        if (i < live)
            ts_ok(srv, "SET " HEAD "reader:%d" TAIL "1 1 PX 60000", i);
    }
}

static void a_joins(void)
{
    ts_ok(srv, "HSET order " OWNER_A " 1");
    ts_ok(srv, "SET %s 1 PX 60000", meaning("P"));
}

static long long number_of(const char *call)
{
    redisReply *r = run_call(call, PLAIN);

    if (!r || r->type != REDIS_REPLY_INTEGER)
        fail_msg("%s: no number", call);
    long long n = r->integer;
    freeReplyObject(r);
    return n;
}

/* With many readers a release looks at a few, and never misses the one that
 * lives; those that do not live go. */
static void test_rw_scripts_crowd(void **state)
{
    static const struct {
        int n, live;
        bool freed;
    } rows[] = {
        {CROWD, CROWD, false}, {CROWD, 1, false}, {CROWD, 0, true},
        {16, 1, false},        {17, 1, false},    {17, 0, true},
        {15, 15, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        crowd(rows[i].n, rows[i].live);
        a_joins();
        long long said = number_of(UNREAD("A", "P", "0"));
        if (ts_exists(srv, "order") == rows[i].freed ||
            said != (rows[i].freed ? 2 : 1))
            fail_msg("row %zu: the answer is %lld", i, said);
        if (!rows[i].freed && rows[i].live == 1 &&
            number_of(WRITE("A", "P", "1", "9000", "0")) < 0)
            fail_msg("row %zu: a writer got in", i);
        check_told("crowd", rows[i].freed ? "0" : "");
    }
}

/* A writer looks at a few of many readers, or at all: it gets in exactly when
 * none of them lives. */
static void test_rw_scripts_crowd_and_writer(void **state)
{
    (void)state;
    for (int live = 0; live < 3; live++) {
        crowd(CROWD, live);
        redisReply *r = run_call(WRITE("A", "P", "1", "9000", "0"), PLAIN);
        assert_int_equal(r->type, live ? REDIS_REPLY_INTEGER : REDIS_REPLY_NIL);
        freeReplyObject(r);
        assert_int_equal(ts_hlen(srv, "order"), live ? CROWD + 1 : 2);
    }
}

/* What crashed readers leave does not stay for as long as others read. */
static void test_rw_scripts_dead_readers_go(void **state)
{
    (void)state;
    crowd(CROWD, 1);
    for (int i = 0; i < 100 && ts_hlen(srv, "order") > 2; i++) {
        a_joins();
        number_of(UNREAD("A", "P", "0"));
    }
    assert_in_range(ts_hlen(srv, "order"), 2, 20);
    assert_true(ts_exists(srv, HEAD "reader:0" TAIL "1"));
}

/* How many commands a release runs in the server. */
static long long cost(int readers)
{
    crowd(readers, readers);
    a_joins();
    redisReply *r = run_call(UNREAD("X", "P", "0"), PLAIN); /* loads it */
    freeReplyObject(r);
    ts_reset_stats(srv);
    number_of(UNREAD("A", "P", "0"));
    return ts_total_commands(srv);
}

static void test_rw_scripts_crowd_costs(void **state)
{
    long long few = cost(10), many = cost(1000);

    (void)state;
    if (many > few + 4)
        fail_msg("%lld commands with 10 readers, %lld with 1000", few, many);
}

static bool has_rows(const char *script)
{
    static const struct row *const tables[] = {
        read_acquire_rows, read_release_rows,  read_renew_rows,
        read_force_rows,   write_acquire_rows, write_release_rows,
        write_leave_rows,  holders_rows};
    size_t len = strlen(script) - strlen(".lua");

    for (size_t i = 0; i < COUNT(tables); i++)
        if (strncmp(tables[i]->call, script, len) == 0 &&
            tables[i]->call[len] == ' ')
            return true;
    return false;
}

/* No script of the read-write lock without a table. */
static void test_rw_scripts_all_tested(void **state)
{
    DIR *dir = opendir(DIBS_LUA_DIR);
    int n = 0;

    (void)state;
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        const char *dot = strrchr(e->d_name, '.');
        if ((strncmp(e->d_name, "read_", 5) != 0 &&
             strncmp(e->d_name, "write_", 6) != 0) ||
            !dot || strcmp(dot, ".lua") != 0)
            continue;
        n++;
        if (!has_rows(e->d_name))
            fail_msg("%s has no table", e->d_name);
    }
    closedir(dir);
    assert_int_equal(n, 7);
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
    users[NO_SET] = log_in("keyless", "&* +@all -set");
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
        cmocka_unit_test(test_rw_scripts_read_acquire),
        cmocka_unit_test(test_rw_scripts_read_release),
        cmocka_unit_test(test_rw_scripts_read_renew),
        cmocka_unit_test(test_rw_scripts_read_force),
        cmocka_unit_test(test_rw_scripts_write_acquire),
        cmocka_unit_test(test_rw_scripts_write_release),
        cmocka_unit_test(test_rw_scripts_write_leave),
        cmocka_unit_test(test_rw_scripts_holders),
        cmocka_unit_test(test_rw_scripts_vectors),
        cmocka_unit_test(test_rw_scripts_crowd),
        cmocka_unit_test(test_rw_scripts_crowd_and_writer),
        cmocka_unit_test(test_rw_scripts_dead_readers_go),
        cmocka_unit_test(test_rw_scripts_crowd_costs),
        cmocka_unit_test(test_rw_scripts_all_tested),
    };

    return cmocka_run_group_tests_name("rw_scripts", tests, group_setup,
                                       group_teardown);
}
