/* SPDX-License-Identifier: MIT
 *
 * selftest_proxy.c - does the fault proxy do what its rules say, and nothing
 * else?
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/proxy.h"
#include "support/resp.h"
#include "support/server.h"
#include "support/util.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct ts_server *srv;
static struct ts_proxy *px;

static int group_setup(void **state)
{
    (void)state;
    srv = ts_server_start(NULL);
    px = ts_proxy_start(srv);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    ts_proxy_stop(px);
    ts_server_stop(srv);
    return 0;
}

/* Whatever the test before left. */
static int fresh(void **state)
{
    (void)state;
    if (ts_server_pid(srv) == 0)
        ts_server_restart(srv);
    ts_proxy_reset(px);
    ts_ok(srv, "FLUSHALL");
    return 0;
}

static redisContext *dial(bool tcp)
{
    redisContext *cn = tcp ? ts_dial_tcp(ts_proxy_port(px))
                           : ts_dial_unix(ts_proxy_socket(px));

    assert_non_null(cn);
    return cn;
}

/* ---- messages ---------------------------------------------------------- */

static void test_resp_ends(void **state)
{
    static const struct {
        const char *msg;
        ssize_t want; /* of the whole text; every shorter part wants more */
    } rows[] = {
        {"+OK\r\n", 5},
        {":-12\r\n", 6},
        {"$-1\r\n", 5},
        {"$0\r\n\r\n", 6},
        {"$4\r\na\r\nb\r\n", 10},
        {"*0\r\n", 4},
        {"*-1\r\n", 5},
        {"*2\r\n*1\r\n$1\r\na\r\n:3\r\n", 19},
        {"*3\r\n*2\r\n*0\r\n+a\r\n-b\r\n$-1\r\n", 25},
        {"x", -1},
        {"*1\r\nx", -1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t len = strlen(rows[i].msg);
        if (ts_resp_reply(rows[i].msg, len) != rows[i].want)
            fail_msg("row %zu: wrong end", i);
        for (size_t cut = 0; cut < len; cut++)
            if (rows[i].want > 0 && ts_resp_reply(rows[i].msg, cut) != 0)
                fail_msg("row %zu: ends at %zu", i, cut);
    }
    struct ts_word w[4];
    const char *req = "*3\r\n$3\r\nSET\r\n$0\r\n\r\n:17\r\n";
    assert_int_equal(ts_resp_words(req, strlen(req), w, 4), 3);
    assert_memory_equal(w[0].p, "SET", 3);
    assert_int_equal(w[1].len, 0);
    assert_int_equal(w[2].len, 2);
    assert_int_equal(ts_resp_request("PING a\r\n*", 9), 8);
    assert_int_equal(ts_resp_words("PING  a\r\n", 9, w, 4), 2);
}

/* ---- the proxy --------------------------------------------------------- */

/* What a client sees of a reply: 'i' a number, 's' a string, '-' an error, 'n'
 * nil; 'E' the end, 'R' a reset, 'P' nonsense. */
static char look(redisContext *cn, long long *number)
{
    redisReply *r = NULL;

    *number = 0;
    if (redisGetReply(cn, (void **)&r) != REDIS_OK) {
        if (cn->err == REDIS_ERR_EOF)
            return 'E';
        if (cn->err == REDIS_ERR_PROTOCOL)
            return 'P';
        return errno == ECONNRESET || errno == EPIPE ? 'R' : '?';
    }
    char c = r->type == REDIS_REPLY_INTEGER ? 'i'
             : r->type == REDIS_REPLY_ERROR ? '-'
             : r->type == REDIS_REPLY_NIL   ? 'n'
                                            : 's';
    *number = r->integer;
    freeReplyObject(r);
    return c;
}

struct action_row {
    struct ts_rule rule;
    const char *seen;   /* of INCR k, INCR k: one letter each */
    long long first;    /* number in the first reply */
    long long executed; /* k in the end */
};

static const struct action_row action_rows[] = {
    {{.action = TS_PASS}, "ii", 1, 2},
    {{.action = TS_CLOSE_BEFORE}, "E", 0, 0},
    {{.action = TS_CLOSE_BEFORE, .rst = true}, "R", 0, 0},
    {{.action = TS_CLOSE_BEFORE, .skip = 1}, "iE", 1, 1},
    {{.action = TS_CUT_REQUEST_AT, .at = 9}, "E", 0, 0},
    {{.action = TS_CUT_REQUEST_AT, .at = 9, .rst = true}, "R", 0, 0},
    {{.action = TS_ANSWER, .text = ":7\r\n"}, "ii", 7, 1},
    {{.action = TS_ANSWER, .text = "-READONLY no\r\n"}, "-i", 0, 1},
    {{.action = TS_ANSWER, .text = "HTTP/1.1 400\r\n"}, "P", 0, 1},
    {{.action = TS_DROP_REPLY_CLOSE}, "E", 0, 1},
    {{.action = TS_DROP_REPLY_CLOSE, .rst = true}, "R", 0, 1},
    {{.action = TS_DROP_REPLY_CLOSE, .skip = 1}, "iE", 1, 2},
    {{.action = TS_SWALLOW_REPLY}, "i", 2, 2},
    {{.action = TS_DELAY_REPLY, .ms = 3}, "ii", 1, 2},
    {{.action = TS_CUT_REPLY_AT, .at = 0}, "E", 0, 1},
    {{.action = TS_CUT_REPLY_AT, .at = 2}, "E", 0, 1},
    {{.action = TS_CUT_REPLY_AT, .at = 2, .rst = true}, "R", 0, 1},
    {{.action = TS_REWRITE_REPLY, .text = ":42\r\n"}, "ii", 42, 2},
    {{.action = TS_REWRITE_REPLY, .text = "$-1\r\n"}, "ni", 0, 2},
    {{.action = TS_DUPLICATE_REPLY}, "iii", 1, 2},
    {{.action = TS_DRIP, .ms = 2}, "ii", 1, 2},
    {{.action = TS_CORRUPT}, "P", 0, 2},
    {{.action = TS_CORRUPT, .at = 1, .bits = 8}, "ii", 9, 2},
};

/* Two INCR at once; the rule meets one of them. */
static void check_action(size_t i, bool tcp)
{
    const struct action_row *row = &action_rows[i];
    struct ts_rule rule = row->rule;
    long long number, first = 0;

    fresh(NULL);
    rule.match = "INC?";
    rule.count = 1;
    int id = ts_proxy_rule(px, &rule);
    redisContext *cn = dial(tcp);
    redisAppendCommand(cn, "INCR k");
    redisAppendCommand(cn, "INCR k");
    for (const char *c = row->seen; *c; c++) {
        char got = look(cn, &number);
        if (got != *c)
            fail_msg("row %zu tcp %d: saw %c, not %c", i, tcp, got, *c);
        if (c == row->seen)
            first = number;
    }
    redisFree(cn);
    if (first != row->first)
        fail_msg("row %zu tcp %d: read %lld", i, tcp, first);
    if (!ts_rule_wait_done(px, id, 1, TS_SOON))
        fail_msg("row %zu tcp %d: never done", i, tcp);
    TS_WAIT(ts_proxy_open(px) == 0);
    assert_int_equal(ts_rule_hits(px, id), 1);
    assert_int_equal(ts_rule_done(px, id), 1);
    assert_true(ts_wait_clients(srv, 0)); /* the server is through with it */
    long long k = ts_exists(srv, "k") ? ts_int(srv, "GET k") : 0;
    if (k != row->executed)
        fail_msg("row %zu tcp %d: k is %lld", i, tcp, k);
}

static void test_proxy_actions(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(action_rows); i++) {
        check_action(i, true);
        if (!action_rows[i].rule.rst)
            check_action(i, false);
    }
}

static void traffic(redisContext *cn, size_t size)
{
    char *big = ts_alloc(size);

    memset(big, 'x', size);
    big[7] = '\r';
    big[8] = '\n';
    freeReplyObject(redisCommand(cn, "SET big %b", big, size));
    redisReply *r = redisCommand(cn, "GET big");
    assert_int_equal(r->len, size);
    assert_memory_equal(r->str, big, size);
    freeReplyObject(r);
    r = redisCommand(cn, "EVAL %s 0", "return {1,{2,'x',{false,{}}},'y'}");
    assert_int_equal(r->elements, 3);
    assert_int_equal(r->element[1]->element[2]->elements, 2);
    freeReplyObject(r);
    for (int i = 0; i < 100; i++)
        redisAppendCommand(cn, "INCR n");
    for (int i = 0; i < 100; i++) {
        assert_int_equal(redisGetReply(cn, (void **)&r), REDIS_OK);
        assert_int_equal(r->integer, i + 1);
        freeReplyObject(r);
    }
    ts_ok(srv, "DEL n");
    free(big);
}

static void test_proxy_is_transparent(void **state)
{
    (void)state;
    for (int mode = 0; mode < 4; mode++) {
        ts_proxy_bytewise(px, mode & 2);
        redisContext *cn = dial(mode & 1);
        traffic(cn, mode & 2 ? 3000 : 1000000);
        redisFree(cn);
    }
    assert_int_equal(ts_proxy_accepted(px), 4);
    assert_int_equal(ts_proxy_requests(px, "incr"), 400);
    assert_int_equal(ts_proxy_requests(px, NULL), 4 * 103);
    assert_int_equal(ts_proxy_logged(px, " INCR n"), 400);
    char *line = ts_proxy_log_line(px, "EVAL", 3);
    assert_non_null(line);
    assert_non_null(strstr(line, " EVAL return\\x20{1"));
    free(line);
    assert_null(ts_proxy_log_line(px, "EVAL", 4));
}

static void test_proxy_rules_choose(void **state)
{
    (void)state;
    redisContext *cn = dial(false);
    int skip = ts_proxy_rule(px, &(struct ts_rule){.action = TS_ANSWER,
                                                   .match = "incr",
                                                   .contains = "chosen",
                                                   .text = ":-1\r\n",
                                                   .skip = 1,
                                                   .count = 2});
    int any = ts_proxy_rule(px, &(struct ts_rule){.match = "incr"});
    long long seen[6];

    for (int i = 0; i < 6; i++) {
        redisReply *r =
            redisCommand(cn, "INCR %s", i == 4 ? "other" : "chosen");
        seen[i] = r->integer;
        freeReplyObject(r);
    }
    const long long want[6] = {1, -1, -1, 2, 1, 3};
    assert_memory_equal(seen, want, sizeof want);
    assert_int_equal(ts_rule_hits(px, skip), 2);
    assert_int_equal(ts_rule_executed(px, skip), 0);
    assert_int_equal(ts_rule_hits(px, any), 4);
    assert_int_equal(ts_rule_executed(px, any), 4);
    ts_proxy_unrule(px, any);
    freeReplyObject(redisCommand(cn, "INCR x"));
    assert_int_equal(ts_rule_hits(px, any), 4);
    assert_false(ts_rule_wait(px, any, 5, 1));
    assert_true(ts_proxy_wait_requests(px, "INCR", 5, TS_SOON));
    redisFree(cn);
}

/* Sends without waiting for a reply. */
static void post(redisContext *cn, const char *command)
{
    int sent = 0;

    assert_int_equal(redisAppendCommand(cn, command), REDIS_OK);
    while (!sent)
        assert_int_equal(redisBufferWrite(cn, &sent), REDIS_OK);
}

static void test_proxy_ghost(void **state)
{
    (void)state;
    for (int killed = 0; killed < 2; killed++) {
        fresh(NULL);
        int id = ts_proxy_rule(px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                                     .contains = "late"});
        redisContext *cn = dial(killed);
        redisReply *r = redisCommand(cn, "CLIENT ID");
        long long client = r->integer;
        freeReplyObject(r);
        post(cn, "SET late 1");
        post(cn, "SET behind 1");
        assert_true(ts_rule_wait(px, id, 1, TS_SOON));
        redisFree(cn);
        assert_int_equal(ts_nkeys(srv), 0);
        assert_int_equal(ts_proxy_open(px), 1);
        if (killed)
            ts_ok(srv, "CLIENT KILL ID %lld", client);
        else
            ts_proxy_release(px);
        assert_true(ts_rule_wait_done(px, id, 1, TS_SOON));
        TS_WAIT(ts_proxy_open(px) == 0);
        ts_proxy_release(px);
        assert_int_equal(ts_rule_executed(px, id), !killed);
        assert_int_equal(ts_nkeys(srv), killed ? 0 : 2);
    }
}

static void test_proxy_hold_reply(void **state)
{
    (void)state;
    redisContext *cn = dial(true);
    int id = ts_proxy_rule(
        px, &(struct ts_rule){.action = TS_HOLD_REPLY, .count = 1});
    long long n;

    post(cn, "INCR k");
    post(cn, "INCR k");
    TS_WAIT(ts_exists(srv, "k") && ts_int(srv, "GET k") == 2);
    TS_WAIT(ts_rule_executed(px, id) == 1);
    assert_int_equal(ts_rule_done(px, id), 0);
    ts_proxy_release(px);
    assert_int_equal(look(cn, &n), 'i');
    assert_int_equal(n, 1);
    assert_int_equal(look(cn, &n), 'i');
    assert_int_equal(n, 2);
    redisFree(cn);
}

static void test_proxy_blackhole(void **state)
{
    (void)state;
    struct pollfd f = {.events = POLLIN};
    long long n;

    for (int up = 0; up < 2; up++) {
        fresh(NULL);
        redisContext *cn = dial(up);
        freeReplyObject(redisCommand(cn, "PING"));
        ts_proxy_blackhole(px, up, !up);
        post(cn, "INCR k");
        if (!up)
            TS_WAIT(ts_exists(srv, "k"));
        f.fd = cn->fd;
        assert_int_equal(poll(&f, 1, 20), 0);
        assert_int_equal(ts_proxy_logged(px, "INCR"), !up);
        ts_proxy_blackhole(px, false, false);
        assert_int_equal(look(cn, &n), 'i');
        redisFree(cn);
    }
}

static void test_proxy_refuse_and_kill(void **state)
{
    (void)state;
    redisContext *a = dial(true), *b = dial(false);
    long long n;

    freeReplyObject(redisCommand(a, "PING"));
    freeReplyObject(redisCommand(b, "PING"));
    ts_proxy_refuse(px, true);
    assert_null(ts_dial_tcp(ts_proxy_port(px)));
    assert_null(ts_dial_unix(ts_proxy_socket(px)));
    freeReplyObject(redisCommand(a, "SET k v"));
    assert_true(ts_exists(srv, "k"));
    ts_proxy_kill_all(px, true);
    assert_int_equal(look(a, &n), 'R');
    assert_int_equal(look(b, &n), 'E');
    assert_int_equal(ts_proxy_open(px), 0);
    ts_proxy_refuse(px, false);
    redisFree(a);
    redisFree(b);
    a = dial(true);
    b = dial(false);
    freeReplyObject(redisCommand(a, "DEL k"));
    freeReplyObject(redisCommand(b, "PING"));
    assert_false(ts_exists(srv, "k"));
    redisFree(a);
    redisFree(b);
}

static void test_proxy_server_goes(void **state)
{
    (void)state;
    redisContext *cn = dial(true);
    long long n;

    freeReplyObject(redisCommand(cn, "PING"));
    ts_server_kill(srv);
    assert_int_equal(look(cn, &n), 'E');
    redisFree(cn);
    cn = dial(false);
    assert_int_equal(look(cn, &n), 'E');
    redisFree(cn);
    ts_server_restart(srv);
    cn = dial(false);
    freeReplyObject(redisCommand(cn, "SET k v"));
    assert_true(ts_exists(srv, "k"));
    redisFree(cn);
}

/* The next thing a subscriber reads: its kind, channel and text or number. */
static void hear(redisContext *cn, const char *kind, const char *channel,
                 const char *text)
{
    redisReply *r = NULL;
    char number[32];

    assert_int_equal(redisGetReply(cn, (void **)&r), REDIS_OK);
    assert_int_equal(r->elements, 3);
    assert_string_equal(r->element[0]->str, kind);
    assert_string_equal(r->element[1]->str, channel);
    snprintf(number, sizeof number, "%lld", r->element[2]->integer);
    assert_string_equal(r->element[2]->str ? r->element[2]->str : number, text);
    freeReplyObject(r);
}

static void test_proxy_messages(void **state)
{
    (void)state;
    redisContext *cn = dial(false);
    int lose = ts_proxy_rule(px, &(struct ts_rule){.action = TS_SWALLOW_MESSAGE,
                                                   .contains = "lost"});
    int late = ts_proxy_rule(
        px, &(struct ts_rule){.action = TS_HOLD_REPLY, .match = "SUBSCRIBE"});
    long long n;

    post(cn, "SUBSCRIBE a b");
    assert_true(ts_wait_numsub(srv, "b", 1));
    ts_ok(srv, "PUBLISH a lost");
    ts_ok(srv, "PUBLISH b kept");
    assert_true(ts_rule_wait(px, lose, 1, TS_SOON));
    assert_int_equal(ts_rule_hits(px, late), 1);
    ts_proxy_release(px);
    hear(cn, "subscribe", "a", "1");
    hear(cn, "subscribe", "b", "2");
    hear(cn, "message", "b", "kept");
    assert_int_equal(ts_proxy_messages(px), 1);
    post(cn, "UNSUBSCRIBE a b");
    hear(cn, "unsubscribe", "a", "1");
    hear(cn, "unsubscribe", "b", "0");
    post(cn, "SUBSCRIBE c");
    TS_WAIT(ts_rule_executed(px, late) == 2);
    ts_proxy_release(px);
    hear(cn, "subscribe", "c", "1");
    post(cn, "UNSUBSCRIBE");
    hear(cn, "unsubscribe", "c", "0");
    post(cn, "INCR k"); /* still counts right */
    assert_int_equal(look(cn, &n), 'i');
    redisFree(cn);
    TS_WAIT(ts_proxy_open(px) == 0);
}

/* What a rule answers a script with has the number of the call. */
static void test_proxy_numbers(void **state)
{
    static const struct {
        const char *text, *want;
        bool bare;
    } rows[] = {
        {"$-1\r\n", "1234", false},           {":-1\r\n", "1234 -1", false},
        {"$3\r\na b\r\n", "1234=a b", false}, {"+OK\r\n", "1234=OK", false},
        {"-ERR no\r\n", "ERR no", false},     {"$2\r\nxy\r\n", "xy", true},
    };

    (void)state;
    redisContext *cn = dial(false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int id = ts_proxy_rule(
            px,
            &(struct ts_rule){.action = i % 2 ? TS_ANSWER : TS_REWRITE_REPLY,
                              .match = "EVAL",
                              .text = rows[i].text,
                              .bare = rows[i].bare});
        redisReply *r = redisCommand(cn, "EVAL return{} 0 a 1234");
        assert_non_null(r);
        assert_string_equal(r->str, rows[i].want);
        freeReplyObject(r);
        ts_proxy_unrule(px, id);
    }
    ts_proxy_rule(
        px, &(struct ts_rule){.action = TS_ANSWER, .text = "*1\r\n:7\r\n"});
    redisReply *r = redisCommand(cn, "EVAL return{} 0 1234");
    assert_int_equal(r->elements, 2);
    assert_string_equal(r->element[0]->str, "1234");
    assert_int_equal(r->element[1]->elements, 1);
    freeReplyObject(r);
    redisFree(cn);
}

/* Subscribing has as many replies as channels; what comes behind must not get
 * one of them. */
static void test_proxy_counts_replies(void **state)
{
    (void)state;
    redisContext *cn = dial(true);
    int id = ts_proxy_rule(px, &(struct ts_rule){.action = TS_REWRITE_REPLY,
                                                 .match = "PING",
                                                 .text = ":5\r\n"});
    long long n;

    post(cn, "SUBSCRIBE a b c");
    post(cn, "PING");
    hear(cn, "subscribe", "a", "1");
    hear(cn, "subscribe", "b", "2");
    hear(cn, "subscribe", "c", "3");
    assert_int_equal(look(cn, &n), 'i');
    post(cn, "UNSUBSCRIBE b");
    post(cn, "UNSUBSCRIBE"); /* a and c, in an order of the server's */
    post(cn, "PING");
    hear(cn, "unsubscribe", "b", "2");
    assert_int_equal(look(cn, &n), 's');
    assert_int_equal(look(cn, &n), 's');
    assert_int_equal(look(cn, &n), 'i');
    assert_int_equal(n, 5);
    assert_int_equal(ts_rule_executed(px, id), 2);
    redisFree(cn);
}

static void test_proxy_stops_in_the_middle(void **state)
{
    (void)state;
    size_t fds = ts_fds(), threads = ts_threads();
    struct ts_proxy *p = ts_proxy_start(srv);
    int id = ts_proxy_rule(
        p, &(struct ts_rule){.action = TS_HOLD_REQUEST, .match = "GET"});
    redisContext *a = ts_dial_unix(ts_proxy_socket(p));
    redisContext *b = ts_dial_tcp(ts_proxy_port(p));
    long long n;

    post(a, "GET x");
    assert_true(ts_rule_wait(p, id, 1, TS_SOON));
    freeReplyObject(redisCommand(b, "PING"));
    ts_proxy_stop(p);
    assert_int_equal(look(a, &n), 'E');
    assert_int_equal(look(b, &n), 'E');
    redisFree(a);
    redisFree(b);
    assert_int_equal(ts_fds(), fds);
    TS_WAIT(ts_threads() == threads);
}

#define T(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_resp_ends),
        T(test_proxy_actions),
        T(test_proxy_is_transparent),
        T(test_proxy_rules_choose),
        T(test_proxy_ghost),
        T(test_proxy_hold_reply),
        T(test_proxy_blackhole),
        T(test_proxy_refuse_and_kill),
        T(test_proxy_server_goes),
        T(test_proxy_messages),
        T(test_proxy_numbers),
        T(test_proxy_counts_replies),
        T(test_proxy_stops_in_the_middle),
    };

    return cmocka_run_group_tests_name("selftest_proxy", tests, group_setup,
                                       group_teardown);
}
