/* SPDX-License-Identifier: MIT
 *
 * script_kit.c - runs scripts as tables. What a row says is in script_kit.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "server/script_kit.h"

#include <dirent.h>

struct ts_server *sk_srv;
long long sk_began;

static redisContext *users[HOWS];
static redisContext *subscriber; /* to all channels of the kind */

/* ---- words ------------------------------------------------------------- */

const char *sk_meaning(const char *word)
{
    for (size_t i = 0; sk_kind.words[i][0]; i++)
        if (strcmp(sk_kind.words[i][0], word) == 0)
            return sk_kind.words[i][1];
    return strcmp(word, "''") == 0 ? "" : word;
}

/* The word for a channel, if there is one. */
static const char *word_for(const char *channel)
{
    for (size_t i = 0; sk_kind.words[i][0]; i++)
        if (strcmp(sk_kind.words[i][1], channel) == 0)
            return sk_kind.words[i][0];
    return channel;
}

static char *translate(const char *word)
{
    char *special = sk_kind.word ? sk_kind.word(word) : NULL;

    if (special)
        return special;
    if (word[0] == '@')
        return ts_text("%lld%s", sk_began + atoll(word + 1),
                       strchr(word, '.') ? ".5" : "");
    return ts_strdup(sk_meaning(word));
}

struct sk_words sk_split(const char *text)
{
    struct sk_words ws = {.n = 0};
    char *copy = ts_strdup(text), *save = NULL;

    for (char *w = strtok_r(copy, " ", &save); w;
         w = strtok_r(NULL, " ", &save)) {
        assert_true(ws.n < SK_MAX_WORDS);
        ws.w[ws.n++] = translate(w);
    }
    free(copy);
    return ws;
}

void sk_words_free(struct sk_words *ws)
{
    while (ws->n > 0)
        free(ws->w[--ws->n]);
}

const char *sk_cut(const char *word, char field[64])
{
    size_t len = strcspn(word, "=~");
    char *name = ts_strdup(word);

    if (!word[len])
        fail_msg("%s is not FIELD=VALUE", word);
    name[len] = '\0';
    snprintf(field, 64, "%s", sk_meaning(name));
    free(name);
    return word + len;
}

/* ---- replies ----------------------------------------------------------- */

static bool number_like(long long n, const char *want)
{
    char number[32];

    if (want[0] == '~')
        return n <= atoll(want + 1) && n > atoll(want + 1) / 2;
    snprintf(number, sizeof number, "%lld", n);
    return strcmp(number, want) == 0;
}

static bool text_like(const char *text, const char *want)
{
    if (strncmp(want, "'~", 2) == 0)
        return number_like(atoll(text), want + 1);
    if (strcmp(want, "'us") == 0)
        return atoll(text) / 1000 >= sk_began && atoll(text) / 1000 <= sk_now();
    return strcmp(text, want) == 0;
}

/* One element of a reply against one word of what is wanted. */
static bool is_like(const redisReply *r, const char *want)
{
    switch (r->type) {
    case REDIS_REPLY_NIL:
        return strcmp(want, "nil") == 0;
    case REDIS_REPLY_INTEGER:
        return number_like(r->integer, want);
    case REDIS_REPLY_STRING:
        return text_like(r->str, want);
    case REDIS_REPLY_ERROR:
        return strcmp(want, "-any") == 0 ||
               (want[0] == '-' && strtol(want, NULL, 10) == 0 &&
                strstr(r->str, want + 1));
    default:
        return false;
    }
}

/* As a row would say it; free() it. */
static char *shown(const redisReply *r)
{
    if (!r)
        return ts_strdup("none");
    if (r->type == REDIS_REPLY_NIL)
        return ts_strdup("nil");
    if (r->type == REDIS_REPLY_INTEGER)
        return ts_text("%lld", r->integer);
    if (r->type != REDIS_REPLY_ARRAY)
        return ts_text(r->type == REDIS_REPLY_ERROR ? "-%s" : "'%s'", r->str);
    char *all = ts_strdup("an array:");
    for (size_t i = 0; i < r->elements; i++) {
        char *one = shown(r->element[i]);
        char *more = ts_text("%s %s", all, one);
        free(one);
        free(all);
        all = more;
    }
    return all;
}

void sk_check_reply(const char *row, const redisReply *r, const char *want)
{
    struct sk_words ws = sk_split(want);
    bool ok = r != NULL;

    if (ok && r->type == REDIS_REPLY_ARRAY) {
        ok = (int)r->elements == ws.n;
        for (int i = 0; ok && i < ws.n; i++)
            ok = is_like(r->element[i], ws.w[i]);
    } else if (ok) {
        ok = ws.n == 1 && is_like(r, ws.w[0]);
    }
    sk_words_free(&ws);
    if (!ok)
        fail_msg("%s: the reply is not %s but %s", row, want, shown(r));
}

/* ---- calls ------------------------------------------------------------- */

void sk_commands(const char *row, const char *commands)
{
    char *copy = ts_strdup(commands), *save = NULL;

    for (char *one = strtok_r(copy, ";", &save); one;
         one = strtok_r(NULL, ";", &save)) {
        struct sk_words ws = sk_split(one);
        redisReply *r = ts_cmdv(sk_srv, ws.n, (const char **)ws.w, NULL);
        if (!r || r->type == REDIS_REPLY_ERROR)
            fail_msg("%s: %s: %s", row, one, r ? r->str : "no reply");
        freeReplyObject(r);
        sk_words_free(&ws);
    }
    free(copy);
}

redisReply *sk_call_args(int argc, const char **argv)
{
    return ts_script_call(users[PLAIN], argc, argv);
}

redisReply *sk_call(const char *call, enum how how)
{
    struct sk_words ws = sk_split(call);
    const char *argv[SK_MAX_WORDS + 3] = {"EVALSHA"};
    char sha[41], keys[16] = "";
    int argc = 3;

    ts_script_load(sk_srv, DIBS_LUA_DIR, ws.w[0], sha);
    for (int i = 1; i < ws.n; i++) {
        if (strcmp(ws.w[i], "|") == 0)
            snprintf(keys, sizeof keys, "%d", argc - 3);
        else
            argv[argc++] = ws.w[i];
    }
    if (!keys[0] || !users[how])
        fail_msg("%s: %s", call, keys[0] ? "no such user" : "where is the '|'");
    argv[1] = sha;
    argv[2] = keys;
    if (how == FULL)
        ts_config_set(sk_srv, "maxmemory", "1");
    redisReply *r = ts_script_call(users[how], argc, argv);
    if (how == FULL)
        ts_config_set(sk_srv, "maxmemory", "0");
    sk_words_free(&ws);
    return r;
}

void sk_expect(const char *row, const char *call, const char *want)
{
    redisReply *r = sk_call(call, PLAIN);

    sk_check_reply(row, r, want);
    freeReplyObject(r);
}

/* ---- messages ---------------------------------------------------------- */

/* All messages since the last time, as a row says it; free() it. Behind them
 * comes one of our own, so there is no need to wait for more. */
static char *heard(const char *row)
{
    char *told = ts_strdup("");

    ts_ok(sk_srv, "PUBLISH %s end", sk_meaning(sk_kind.channels[0]));
    for (;;) {
        redisReply *r = NULL;
        if (redisGetReply(subscriber, (void **)&r) != REDIS_OK)
            fail_msg("%s: the subscriber is gone", row);
        const char *channel = r->element[r->elements - 2]->str;
        const char *message = r->element[r->elements - 1]->str;
        bool end = strcmp(message, "end") == 0;
        char *more = ts_text("%s%s%s=%s", told, *told ? " " : "",
                             word_for(channel), message);
        freeReplyObject(r);
        free(end ? more : told);
        if (end)
            return told;
        told = more;
    }
}

void sk_check_told(const char *row, const char *want)
{
    char *told = heard(row);

    if (strcmp(told, want) != 0)
        fail_msg("%s: told \"%s\", not \"%s\"", row, told, want);
    free(told);
}

/* ---- states ------------------------------------------------------------ */

static void check_field(const char *row, const char *key, const char *pair)
{
    char field[64];
    const char *want = sk_cut(pair, field);
    char *value = ts_hget(sk_srv, key, field);

    if (!value || want[0] != '=' || strcmp(value, want + 1) != 0)
        fail_msg("%s: %s is not %s but %s", row, key, pair,
                 value ? value : "nil");
    free(value);
}

/* The members of a sorted set, in order. */
static void check_members(const char *row, const struct sk_words *ws)
{
    redisReply *r = ts_cmd(sk_srv, "ZRANGE %s 0 -1 WITHSCORES", ws->w[0]);
    bool ok = (int)r->elements == 2 * (ws->n - 2);

    for (int i = 1; ok && i < ws->n - 1; i++) {
        char member[64];
        const char *score = sk_cut(ws->w[i], member);
        ok = strcmp(r->element[2 * i - 2]->str, member) == 0 &&
             strcmp(r->element[2 * i - 1]->str, score + 1) == 0;
    }
    for (size_t i = 0; !ok && i < r->elements; i += 2)
        print_error("  %s=%s\n", r->element[i]->str, r->element[i + 1]->str);
    if (!ok)
        fail_msg("%s: %s has other members", row, ws->w[0]);
    freeReplyObject(r);
}

/* A hash, a string or a sorted set. */
static void check_key(const char *row, const struct sk_words *ws)
{
    if (ws->n < 2)
        fail_msg("%s: a state without a TTL", row);
    const char *key = ws->w[0], *ttl = ws->w[ws->n - 1];
    bool string = ws->n == 3 && strcmp(ws->w[1], "string") == 0;
    char *type = ts_str(sk_srv, "TYPE %s", key);
    long long left = ts_pttl(sk_srv, key);
    bool sorted = strcmp(type, "zset") == 0;

    if (!sorted && strcmp(type, string ? "string" : "hash") != 0)
        fail_msg("%s: %s is of type %s", row, key, type);
    if (strcmp(ttl, "any") != 0 && !number_like(left, ttl))
        fail_msg("%s: %s has %lld ms left, not %s", row, key, left, ttl);
    if (sorted)
        check_members(row, ws);
    if (!sorted && !string && ts_hlen(sk_srv, key) != ws->n - 2)
        fail_msg("%s: %s has more or fewer fields", row, key);
    for (int i = 1; !sorted && !string && i < ws->n - 1; i++)
        check_field(row, key, ws->w[i]);
    free(type);
}

static void check_states(const struct sk_turn *turn)
{
    const char *row = turn->row->name;
    char *copy = ts_strdup(turn->row->after), *save = NULL;
    int keys = 0;

    for (char *one = strtok_r(copy, ";", &save); one;
         one = strtok_r(NULL, ";", &save), keys++) {
        struct sk_words ws = sk_split(one);
        if (!sk_kind.state || !sk_kind.state(turn, &ws))
            check_key(row, &ws);
        sk_words_free(&ws);
    }
    free(copy);
    if (ts_int(sk_srv, "DBSIZE") != keys)
        fail_msg("%s: there are %lld keys, not %d", row,
                 ts_int(sk_srv, "DBSIZE"), keys);
}

/* ---- running a row ----------------------------------------------------- */

long long sk_now(void)
{
    redisReply *r = ts_cmd(sk_srv, "TIME");

    assert_int_equal(r->type, REDIS_REPLY_ARRAY);
    long long ms =
        atoll(r->element[0]->str) * 1000 + atoll(r->element[1]->str) / 1000;
    freeReplyObject(r);
    return ms;
}

void sk_begin(void)
{
    ts_ok(sk_srv, "FLUSHALL");
    free(heard("begin")); /* a row that failed may have left some */
    sk_began = sk_now();
}

static void send_and_check(struct sk_turn *turn, const char *want,
                           const char *told)
{
    const struct row *row = turn->row;
    redisReply *r = sk_call(row->call, row->how);

    turn->want = want;
    turn->answered = sk_now();
    sk_check_reply(row->name, r, want);
    freeReplyObject(r);
    check_states(turn);
    sk_check_told(row->name, told);
}

static void run_row(const struct row *row)
{
    char *told = ts_strdup(row->told);
    char *told_again = strstr(told, " / ");
    struct sk_turn turn = {.row = row};

    if (told_again)
        *told_again = '\0';
    sk_commands(row->name, row->before);
    turn.sent = sk_now();
    send_and_check(&turn, row->reply, told);
    if (row->again)
        send_and_check(&turn, row->again, told_again ? told_again + 3 : "");
    free(told);
}

void sk_rows(const struct row *rows, size_t n)
{
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        sk_begin();
        run_row(&rows[i]);
    }
}

void sk_story(const struct row *rows, size_t n)
{
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strncmp(rows[i].name, "anew", 4) == 0)
            sk_begin();
        run_row(&rows[i]);
    }
}

/* ---- no script without a table ----------------------------------------- */

static bool begins_with(const char *name, const char *const *beginnings)
{
    for (; *beginnings; beginnings++)
        if (strncmp(name, *beginnings, strlen(*beginnings)) == 0)
            return true;
    return false;
}

void sk_all_tested(const char *const *names, const struct row *const *tables,
                   size_t n)
{
    DIR *dir = opendir(DIBS_LUA_DIR);
    size_t scripts = 0;

    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        const char *dot = strrchr(e->d_name, '.');
        bool found = false;
        if (!begins_with(e->d_name, names) || !dot || strcmp(dot, ".lua") != 0)
            continue;
        scripts++;
        size_t len = (size_t)(dot - e->d_name);
        for (size_t i = 0; i < n; i++)
            found |= strncmp(tables[i]->call, e->d_name, len) == 0 &&
                     tables[i]->call[len] == ' ';
        if (!found)
            fail_msg("%s has no table", e->d_name);
    }
    closedir(dir);
    assert_int_equal(scripts, n);
}

/* ---- the set-up -------------------------------------------------------- */

/* A connection of a user who has these rights only. */
static redisContext *log_in(enum how how, const char *rights)
{
    char *acl =
        ts_text("ACL SETUSER user%d on >secret ~* %s", (int)how, rights);

    sk_commands("set-up", acl);
    free(acl);
    redisContext *cn = ts_connect(sk_srv);
    redisReply *r = redisCommand(cn, "AUTH user%d secret", (int)how);
    assert_int_equal(r->type, REDIS_REPLY_STATUS);
    freeReplyObject(r);
    return cn;
}

int sk_up(void **state)
{
    (void)state;
    sk_srv = ts_server_start(NULL);
    users[PLAIN] = ts_connect(sk_srv);
    users[FULL] = ts_connect(sk_srv);
    for (enum how how = FULL + 1; how < HOWS; how++)
        if (sk_kind.rights[how])
            users[how] = log_in(how, sk_kind.rights[how]);
    subscriber = ts_connect(sk_srv);
    for (const char *const *c = sk_kind.channels; *c; c++) {
        redisReply *r = redisCommand(
            subscriber, "%s %s", strchr(*c, '*') ? "PSUBSCRIBE" : "SUBSCRIBE",
            sk_meaning(*c));
        assert_int_equal(r->type, REDIS_REPLY_ARRAY);
        freeReplyObject(r);
    }
    return 0;
}

int sk_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(users); i++)
        redisFree(users[i]);
    redisFree(subscriber);
    ts_server_stop(sk_srv);
    return 0;
}
