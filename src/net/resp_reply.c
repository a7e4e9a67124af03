/* SPDX-License-Identifier: MIT
 *
 * resp_reply.c - replies of a server, parsed by hiredis and limited in size.
 *
 * Thread  the one that owns the reader.
 *
 * hiredis creates objects through the callbacks here, which allocate from
 * chunks: the first chunk lives as long as the reader, further ones as long as
 * their reply. So no object is freed by itself, and the limits are checked in
 * one place.
 *
 * hiredis searches an incomplete line from its beginning in each call. So it is
 * not called before the line is complete, and a line has a limit of its own,
 * far below that of a reply; otherwise a long line takes quadratic time.
 */
#include "net/resp_reply.h"

#include "base/mem.h"

#include <hiredis/hiredis.h>
#include <string.h>

#define CHUNK_SIZE 4096

/* hiredis 1.0 changed the type of an element count, and added RESP3 types,
 * which RESP2 connections do not use. */
#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

struct reply_chunk {
    struct reply_chunk *next;
    size_t len, cap;
    _Alignas(max_align_t) char data[];
};

static struct reply_chunk *chunk_new(size_t cap)
{
    struct reply_chunk *c = dibs__malloc(sizeof *c + cap);

    if (c) {
        c->next = NULL;
        c->len = 0;
        c->cap = cap;
    }
    return c;
}

static void *chunk_alloc(struct dibs__reader *r, size_t size)
{
    size_t need = (size + 15) & ~(size_t)15;
    struct reply_chunk *c = r->chunks;

    if (need > DIBS__REPLY_BYTES - r->used) {
        r->limit_exceeded = true;
        return NULL;
    }
    if (c->cap - c->len < need) {
        c = chunk_new(need > CHUNK_SIZE ? need : CHUNK_SIZE);
        if (!c)
            return NULL;
        c->next = r->chunks;
        r->chunks = c;
    }
    void *p = c->data + c->len;
    c->len += need;
    r->used += need;
    return p;
}

/* Frees all chunks but the first, and empties that. */
static void chunks_reset(struct dibs__reader *r)
{
    while (r->chunks->next) {
        struct reply_chunk *c = r->chunks;
        r->chunks = c->next;
        dibs__free(c);
    }
    r->chunks->len = 0;
    r->used = 0;
}

static struct dibs__reply *make_reply(const redisReadTask *task,
                                      enum dibs__reply_type type)
{
    struct dibs__reply *reply = chunk_alloc(task->privdata, sizeof *reply);

    if (!reply)
        return NULL;
    *reply = (struct dibs__reply){.type = type};
    if (task->parent) {
        struct dibs__reply *in = task->parent->obj;
        in->elem[task->idx] = reply;
    }
    return reply;
}

static void *make_text(const redisReadTask *task, char *text, size_t len)
{
    bool error = task->type == REDIS_REPLY_ERROR;
    struct dibs__reply *reply =
        make_reply(task, error ? REPLY_ERROR : REPLY_TEXT);
    char *copy = reply ? chunk_alloc(task->privdata, len + 1) : NULL;

    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    reply->text = copy;
    reply->len = len;
    return reply;
}

static void *make_array(const redisReadTask *task, element_count count)
{
    struct dibs__reader *r = task->privdata;
    struct dibs__reply *reply;
    size_t depth = 0;

    for (const redisReadTask *t = task; t; t = t->parent)
        depth++;
    if (depth > DIBS__REPLY_DEPTH || (size_t)count > DIBS__REPLY_ELEMENTS) {
        r->limit_exceeded = true;
        return NULL;
    }
    reply = make_reply(task, REPLY_ARRAY);
    if (!reply)
        return NULL;
    reply->len = (size_t)count;
    if (count > 0) {
        reply->elem =
            chunk_alloc(r, (size_t)count * sizeof(struct dibs__reply *));
        if (!reply->elem)
            return NULL;
    }
    return reply;
}

static void *make_num(const redisReadTask *task, long long num)
{
    struct dibs__reply *reply = make_reply(task, REPLY_NUM);

    if (reply)
        reply->num = dibs__reply_clamp(num);
    return reply;
}

static void *make_nil(const redisReadTask *task)
{
    return make_reply(task, REPLY_NIL);
}

#if HIREDIS_MAJOR >= 1
static void *refuse_double(const redisReadTask *task, double v, char *s,
                           size_t n)
{
    (void)v, (void)s, (void)n;
    ((struct dibs__reader *)task->privdata)->limit_exceeded = true;
    return NULL;
}

static void *refuse_bool(const redisReadTask *task, int v)
{
    (void)v;
    ((struct dibs__reader *)task->privdata)->limit_exceeded = true;
    return NULL;
}
#endif

static void free_nothing(void *reply)
{
    (void)reply;
}

static redisReplyObjectFunctions object_functions = {
    .createString = make_text,
    .createArray = make_array,
    .createInteger = make_num,
    .createNil = make_nil,
    .freeObject = free_nothing,
#if HIREDIS_MAJOR >= 1
    .createDouble = refuse_double,
    .createBool = refuse_bool,
#endif
};

dibs_err dibs__reader_init(struct dibs__reader *r)
{
    *r = (struct dibs__reader){0};
    r->chunks = chunk_new(CHUNK_SIZE);
    redisReader *hi =
        r->chunks ? redisReaderCreateWithFunctions(&object_functions) : NULL;
    if (!hi || !hi->buf) {
        r->hiredis = hi;
        dibs__reader_clear(r);
        return DIBS_ERR_NOMEM;
    }
    hi->privdata = r;
    r->hiredis = hi;
    return DIBS_OK;
}

void dibs__reader_clear(struct dibs__reader *r)
{
    if (r->hiredis)
        redisReaderFree(r->hiredis);
    while (r->chunks) {
        struct reply_chunk *c = r->chunks;
        r->chunks = c->next;
        dibs__free(c);
    }
    *r = (struct dibs__reader){0};
}

static dibs_err reader_error(const struct dibs__reader *r)
{
    const redisReader *hi = r->hiredis;

    if (hi->err == REDIS_ERR_OOM && !r->limit_exceeded)
        return DIBS_ERR_NOMEM;
    return DIBS_ERR_PROTOCOL;
}

dibs_err dibs__reader_feed(struct dibs__reader *r, const char *data, size_t len)
{
    redisReader *hi = r->hiredis;

    if (hi->len - hi->pos > DIBS__REPLY_BYTES) {
        r->limit_exceeded = true;
        return DIBS_ERR_PROTOCOL;
    }
    r->line_incomplete = r->line_incomplete && !memchr(data, '\n', len);
    r->has_input |= len > 0;
    return redisReaderFeed(hi, data, len) == REDIS_OK ? DIBS_OK
                                                      : reader_error(r);
}

/* hiredis needs more input. The unparsed rest begins with a line: a reply or
 * element, or its length. Sets line_incomplete; checks the limit of a line. */
static dibs_err check_incomplete_line(struct dibs__reader *r)
{
    const redisReader *hi = r->hiredis;
    size_t left = hi->len - hi->pos;
    size_t scan_len = left < DIBS__REPLY_LINE ? left : DIBS__REPLY_LINE;

    if (!r->line_incomplete)
        r->line_incomplete =
            scan_len > 0 && !memchr(hi->buf + hi->pos, '\n', scan_len);
    if (!r->line_incomplete || left <= DIBS__REPLY_LINE)
        return DIBS_OK;
    r->limit_exceeded = true;
    return DIBS_ERR_PROTOCOL;
}

dibs_err dibs__reader_next(struct dibs__reader *r,
                           const struct dibs__reply **out)
{
    void *reply = NULL;

    if (r->reply_returned) {
        chunks_reset(r);
        r->reply_returned = false;
    }
    *out = NULL;
    if (!r->line_incomplete &&
        redisReaderGetReply(r->hiredis, &reply) != REDIS_OK)
        return reader_error(r);
    if (!reply)
        return check_incomplete_line(r);
    const redisReader *hi = r->hiredis;
    r->has_input = hi->len > hi->pos;
    r->reply_returned = true;
    *out = reply;
    return DIBS_OK;
}

bool dibs__reader_has_input(const struct dibs__reader *r)
{
    return r->has_input;
}

bool dibs__reply_num(const struct dibs__reply *r, size_t i, int64_t *out)
{
    if (r->type != REPLY_ARRAY || i >= r->len || r->elem[i]->type != REPLY_NUM)
        return false;
    *out = r->elem[i]->num;
    return true;
}

const struct dibs__reply *dibs__reply_text(const struct dibs__reply *r,
                                           size_t i)
{
    if (r->type != REPLY_ARRAY || i >= r->len || r->elem[i]->type != REPLY_TEXT)
        return NULL;
    return r->elem[i];
}
