/* SPDX-License-Identifier: MIT
 *
 * server_cmd.c - what tests say to their server and ask of it.
 *
 * One blocking hiredis connection per server, opened when first needed. One
 * that the server or a test has closed meanwhile is noticed before anything is
 * sent on it and replaced, so no command is ever sent twice.
 *
 * Thread  any. Locks: each call takes s.mu.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/server_impl.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "support/resp.h"
#include "support/util.h"

/* ---- connections ------------------------------------------------------- */

static struct timeval patience(void)
{
    return (struct timeval){.tv_sec = ts_ms(20000) / 1000};
}

/* What came of a connect: usable and patient, or NULL. */
static redisContext *settled(redisContext *cn)
{
    if (!cn)
        ts_fatal("out of memory");
    if (cn->err || redisSetTimeout(cn, patience()) != REDIS_OK) {
        redisFree(cn);
        return NULL;
    }
    return cn;
}

redisContext *ts_dial_unix(const char *path)
{
    return settled(redisConnectUnixWithTimeout(path, patience()));
}

redisContext *ts_dial_tcp(int port)
{
    return settled(redisConnectWithTimeout("127.0.0.1", port, patience()));
}

static void say_password(redisContext *cn, const char *password)
{
    redisReply *r = redisCommand(cn, "AUTH %s", password);

    if (!r || r->type == REDIS_REPLY_ERROR)
        ts_fatal("AUTH: %s", r ? r->str : "no reply");
    freeReplyObject(r);
}

redisContext *ts_connect(struct ts_server *s)
{
    redisContext *cn = ts_dial_unix(s->socket);

    if (!cn)
        ts_fatal("nobody listens on %s", s->socket);
    pthread_mutex_lock(&s->mu);
    if (s->password)
        say_password(cn, s->password);
    pthread_mutex_unlock(&s->mu);
    return cn;
}

void ts_server_password(struct ts_server *s, const char *password)
{
    pthread_mutex_lock(&s->mu);
    free(s->password);
    s->password = password ? ts_strdup(password) : NULL;
    pthread_mutex_unlock(&s->mu);
}

void ts__cn_drop(struct ts_server *s)
{
    if (s->cn)
        redisFree(s->cn);
    s->cn = NULL;
}

/* The password comes first: the one that has not said it is asked for it even
 * by a server that is still loading its data. */
bool ts__cn_ready(struct ts_server *s)
{
    redisContext *cn = ts_dial_unix(s->socket);
    redisReply *r = NULL;

    if (cn && s->password) {
        freeReplyObject(redisCommand(cn, "AUTH %s", s->password));
        s->own++;
    }
    if (cn)
        r = redisCommand(cn, "PING");
    bool ready = r && !(r->type == REDIS_REPLY_ERROR &&
                        strncmp(r->str, "LOADING", 7) == 0);
    freeReplyObject(r);
    if (cn)
        redisFree(cn);
    if (ready)
        s->own++;
    return ready;
}

/* Our connection, fit to be used, or NULL. An idle connection has nothing to
 * read unless it has ended. Locks: needs s.mu. */
static redisContext *usable(struct ts_server *s)
{
    if (s->cn && s->cn_pid != getpid())
        ts__cn_drop(s); /* it is our parent's */
    if (s->cn) {
        struct pollfd f = {.fd = s->cn->fd, .events = POLLIN};
        if (poll(&f, 1, 0) > 0)
            ts__cn_drop(s);
    }
    if (!s->cn) {
        s->cn = ts_dial_unix(s->socket);
        s->cn_pid = getpid();
        if (s->cn && s->password) {
            say_password(s->cn, s->password);
            s->own++;
        }
    }
    return s->cn;
}

/* ---- commands ---------------------------------------------------------- */

/* hiredis does not keep the kernel from sending SIGPIPE, and a test that wants
 * to see whether the library does must not have it ignored. So it is blocked
 * around our own commands, and taken away if it came. */
static bool block_sigpipe(sigset_t *before)
{
    sigset_t pipe, pending;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, before);
    return sigismember(&pending, SIGPIPE) == 1;
}

static void unblock_sigpipe(const sigset_t *before, bool was_pending)
{
    const struct timespec now = {0};
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (!was_pending)
        while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
            continue;
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Locks: needs s.mu. */
static redisReply *sent(struct ts_server *s, redisReply *r)
{
    if (r)
        s->own++;
    else
        ts__cn_drop(s);
    return r;
}

static redisReply *command(struct ts_server *s, const char *fmt, va_list ap)
{
    sigset_t before;

    pthread_mutex_lock(&s->mu);
    bool was_pending = block_sigpipe(&before);
    redisContext *cn = usable(s);
    redisReply *r = sent(s, cn ? redisvCommand(cn, fmt, ap) : NULL);
    unblock_sigpipe(&before, was_pending);
    pthread_mutex_unlock(&s->mu);
    return r;
}

redisReply *ts_cmd(struct ts_server *s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    redisReply *r = command(s, fmt, ap);
    va_end(ap);
    return r;
}

redisReply *ts_cmdv(struct ts_server *s, int argc, const char **argv,
                    const size_t *lens)
{
    sigset_t before;

    pthread_mutex_lock(&s->mu);
    bool was_pending = block_sigpipe(&before);
    redisContext *cn = usable(s);
    redisReply *r = sent(s, cn ? redisCommandArgv(cn, argc, argv, lens) : NULL);
    unblock_sigpipe(&before, was_pending);
    pthread_mutex_unlock(&s->mu);
    return r;
}

/* A reply that is no error, or the end of the program. */
static redisReply *good(struct ts_server *s, const char *fmt, va_list ap)
{
    redisReply *r = command(s, fmt, ap);

    if (!r)
        ts_fatal("%s: no reply", fmt);
    if (r->type == REDIS_REPLY_ERROR)
        ts_fatal("%s: %s", fmt, r->str);
    return r;
}

long long ts_int(struct ts_server *s, const char *fmt, ...)
{
    va_list ap;
    long long n = 0;

    va_start(ap, fmt);
    redisReply *r = good(s, fmt, ap);
    va_end(ap);
    if (r->type == REDIS_REPLY_INTEGER)
        n = r->integer;
    else if (r->type == REDIS_REPLY_STRING)
        n = strtoll(r->str, NULL, 10);
    else
        ts_fatal("%s: the reply is no number", fmt);
    freeReplyObject(r);
    return n;
}

char *ts_str(struct ts_server *s, const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;

    va_start(ap, fmt);
    redisReply *r = good(s, fmt, ap);
    va_end(ap);
    if (r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS)
        text = ts_strdup(r->str);
    else if (r->type != REDIS_REPLY_NIL)
        ts_fatal("%s: the reply is no string", fmt);
    freeReplyObject(r);
    return text;
}

void ts_ok(struct ts_server *s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    freeReplyObject(good(s, fmt, ap));
    va_end(ap);
}

/* ---- questions --------------------------------------------------------- */

char *ts_hget(struct ts_server *s, const char *key, const char *field)
{
    return ts_str(s, "HGET %s %s", key, field);
}

long long ts_hlen(struct ts_server *s, const char *key)
{
    return ts_int(s, "HLEN %s", key);
}

long long ts_pttl(struct ts_server *s, const char *key)
{
    return ts_int(s, "PTTL %s", key);
}

bool ts_exists(struct ts_server *s, const char *key)
{
    return ts_int(s, "EXISTS %s", key) == 1;
}

long long ts_nkeys(struct ts_server *s)
{
    /* At one moment; and DBSIZE would count those whose time is over, too. */
    return ts_int(s, "EVAL %s 0",
                  "return #redis.call('keys', '*') - "
                  "#redis.call('keys', 'dibs_lock_listener:*')");
}

long long ts_waiting(struct ts_server *s, const char *name)
{
    return ts_int(s, "ZCARD dibs_lock_waiters:{%s}", name);
}

long long ts_numsub(struct ts_server *s, const char *channel)
{
    redisReply *r = ts_cmd(s, "PUBSUB NUMSUB %s", channel);

    if (!r || r->type != REDIS_REPLY_ARRAY || r->elements != 2)
        ts_fatal("PUBSUB NUMSUB: no usable reply");
    long long n = r->element[1]->integer;
    freeReplyObject(r);
    return n;
}

long long ts_nchannels(struct ts_server *s)
{
    redisReply *r = ts_cmd(s, "PUBSUB CHANNELS");

    if (!r || r->type != REDIS_REPLY_ARRAY)
        ts_fatal("PUBSUB CHANNELS: no usable reply");
    long long n = 0;
    for (size_t i = 0; i < r->elements; i++)
        n += strncmp(r->element[i]->str, "__redis__:", 10) != 0;
    freeReplyObject(r);
    return n;
}

long long ts_client_count(struct ts_server *s)
{
    char *text = ts_str(s, "CLIENT LIST");
    long long n = 0;

    for (const char *p = text; p && *p; p++)
        n += *p == '\n';
    free(text);
    return n - 1;
}

void ts_config_set(struct ts_server *s, const char *name, const char *value)
{
    ts_ok(s, "CONFIG SET %s %s", name, value);
}

/* The number behind "\r\n<name>" in an INFO text, or -1. */
static long long info_number(const char *text, const char *name)
{
    char *line = ts_text("\r\n%s", name);
    const char *at = strcasestr(text, line);
    long long n = at ? strtoll(at + strlen(line), NULL, 10) : -1;

    free(line);
    return n;
}

long long ts_info(struct ts_server *s, const char *section, const char *field)
{
    char *text = ts_str(s, "INFO %s", section);
    char *name = ts_text("%s:", field);
    long long n = info_number(text, name);

    if (n < 0 && !strstr(text, name))
        ts_fatal("INFO %s has no %s", section, field);
    free(name);
    free(text);
    return n;
}

long long ts_command_calls(struct ts_server *s, const char *command)
{
    char *text = ts_str(s, "INFO commandstats");
    char *name = ts_text("cmdstat_%s:calls=", command);
    long long n = info_number(text, name);

    free(name);
    free(text);
    return n < 0 ? 0 : n;
}

long long ts_total_commands(struct ts_server *s)
{
    pthread_mutex_lock(&s->mu);
    long long own = s->own; /* the INFO to come does not count itself */
    pthread_mutex_unlock(&s->mu);
    return ts_info(s, "stats", "total_commands_processed") - own;
}

void ts_reset_stats(struct ts_server *s)
{
    ts_ok(s, "CONFIG RESETSTAT");
    pthread_mutex_lock(&s->mu);
    s->own = 1; /* it counts itself */
    pthread_mutex_unlock(&s->mu);
}

/* ---- scripts ----------------------------------------------------------- */

void ts_script_load(struct ts_server *s, const char *dir, const char *name,
                    char sha[41])
{
    char *path = ts_text("%s/%s.lua", dir, name);
    char body[16384];
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(body, 1, sizeof body, f) : 0;

    if (!f || n == 0 || n == sizeof body)
        ts_fatal("%s cannot be read, or is too long", path);
    fclose(f);
    redisReply *r = ts_cmd(s, "SCRIPT LOAD %b", body, n);
    if (!r || r->type != REDIS_REPLY_STRING || r->len != 40)
        ts_fatal("%s: %s", path, r ? r->str : "no reply");
    memcpy(sha, r->str, 41);
    freeReplyObject(r);
    free(path);
}

/* A reply that reads so. */
static redisReply *make_reply(const char *bytes, size_t len)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    if (!reader || redisReaderFeed(reader, bytes, len) != REDIS_OK ||
        redisReaderGetReply(reader, &reply) != REDIS_OK || !reply)
        ts_fatal("no reply could be made");
    redisReaderFree(reader);
    return reply;
}

/* What lua/lib/around.lua made a text of. */
static redisReply *answer_in(const redisReply *r, const char *number)
{
    const char *at = r->str + strlen(number);
    size_t left = r->len - strlen(number);

    if (left == 0)
        return make_reply("$-1\r\n", 5);
    char *head = *at == ' ' ? ts_text(":") : ts_text("$%zu\r\n", left - 1);
    struct ts_bytes b = {0};
    ts_bytes_add(&b, head, strlen(head));
    ts_bytes_add(&b, at + 1, left - 1);
    ts_bytes_add(&b, "\r\n", 2);
    redisReply *answer = make_reply(ts_bytes_at(&b), ts_bytes_len(&b));
    free(b.buf);
    free(head);
    return answer;
}

redisReply *ts_script_call(redisContext *cn, int argc, const char **argv)
{
    static atomic_uint calls;
    char number[16];

    snprintf(number, sizeof number, "%u", 1000 + atomic_fetch_add(&calls, 1));
    argv[argc] = number;
    redisReply *r = redisCommandArgv(cn, argc + 1, argv, NULL);
    if (!r || r->type == REDIS_REPLY_ERROR)
        return r;
    bool array = r->type == REDIS_REPLY_ARRAY && r->elements == 2;
    const redisReply *head = array ? r->element[0] : r;
    size_t n = strlen(number);
    if (head->type != REDIS_REPLY_STRING || head->len < n ||
        memcmp(head->str, number, n) != 0 || (array && head->len != n) ||
        (!array && head->len > n && !strchr(" =", head->str[n])))
        ts_fatal("the answer of %s does not have the number %s", argv[1],
                 number);
    redisReply *answer = array ? r->element[1] : answer_in(r, number);
    if (array)
        r->element[1] = NULL;
    freeReplyObject(r);
    return answer;
}

/* ---- waiting ----------------------------------------------------------- */

bool ts_wait_numsub(struct ts_server *s, const char *channel, long long n)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (ts_numsub(s, channel) != n)
        if (!ts_wait_step(&w))
            return false;
    return true;
}

bool ts_wait_clients(struct ts_server *s, long long n)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (ts_client_count(s) != n)
        if (!ts_wait_step(&w))
            return false;
    return true;
}

bool ts_wait_exists(struct ts_server *s, const char *key, bool there)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (ts_exists(s, key) != there)
        if (!ts_wait_step(&w))
            return false;
    return true;
}
