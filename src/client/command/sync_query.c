/* SPDX-License-Identifier: MIT
 *
 * sync_query.c - runs one command and blocks until its reply.
 *
 * Thread  app; sync_query.take may also run on io.
 * Locks   none.
 *
 * How     dibs__query copies the reply as text, one line per array element.
 *         For occasional inspection commands; frequent commands use
 *         struct dibs__command directly.
 */
#include "client/command/sync_query.h"

#include "client/command/command.h"

#include <stdio.h>
#include <string.h>

#define ATTEMPTS 2 /* the deadline, in reply timeouts: allows one retry */

/* ---- a blocking command ------------------------------------------------ */

static void sync_query_done(struct dibs__command *cmd, dibs_err err,
                            const struct dibs__reply *reply)
{
    struct dibs__sync_query *query = DIBS_OF(cmd, struct dibs__sync_query, cmd);

    query->err = query->read_reply(query, err, reply);
    sem_post(&query->done);
}

static void sync_query_explain(struct dibs__command *cmd, dibs_err err,
                               const char *why)
{
    struct dibs__sync_query *query = DIBS_OF(cmd, struct dibs__sync_query, cmd);

    (void)err;
    snprintf(query->why, sizeof query->why, "%s", why);
}

dibs_err dibs__sync_query_run(dibs_client *c, struct dibs__route to,
                              struct dibs__sync_query *query)
{
    query->cmd.no_script = true;
    query->cmd.on_reply = sync_query_done;
    query->cmd.on_error_text = sync_query_explain;
    query->cmd.attempt_ms = c->to.command_timeout_ms;
    query->cmd.deadline = dibs__now_ms() + ATTEMPTS * query->cmd.attempt_ms;
    query->why[0] = '\0';
    sem_init(&query->done, 0, 0);
    dibs__command_run_sync(to, &query->cmd);
    while (sem_wait(&query->done) != 0)
        ; /* EINTR */
    sem_destroy(&query->done);
    if (query->err != DIBS_OK && query->why[0])
        dibs__reason_set(query->err, "%s", query->why);
    return query->err;
}

/* ---- any command ------------------------------------------------------- */

struct query_op {
    struct dibs__sync_query base;
    const char *const *argv;
    struct dibs__query_reply *out;
};

static void query_write(struct dibs__command *cmd, struct dibs__buf *out,
                        bool whole)
{
    const struct query_op *q = DIBS_OF(cmd, struct query_op, base.cmd);
    size_t count = 0;

    (void)whole;
    while (q->argv[count])
        count++;
    dibs__buf_array(out, count);
    for (size_t i = 0; i < count; i++)
        dibs__buf_arg_text(out, q->argv[i]);
}

static void copy_reply(struct dibs__buf *text, const struct dibs__reply *r)
{
    switch (r->type) {
    case REPLY_NIL:
        break;
    case REPLY_NUM:
        dibs__buf_num(text, r->num);
        break;
    case REPLY_TEXT:
    case REPLY_ERROR:
        dibs__buf_add(text, r->text, r->len);
        break;
    case REPLY_ARRAY:
        for (size_t i = 0; i < r->len; i++) {
            copy_reply(text, r->elem[i]);
            if (r->elem[i]->type != REPLY_ARRAY)
                dibs__buf_add(text, "\n", 1);
        }
    }
}

static dibs_err query_take(struct dibs__sync_query *query, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct dibs__query_reply *out = DIBS_OF(query, struct query_op, base)->out;

    out->received_us = dibs__now_us();
    out->sent_us = query->cmd.sent_ms * 1000;
    out->replied = reply != NULL;
    if (reply) {
        out->array = reply->type == REPLY_ARRAY;
        out->num = reply->type == REPLY_NUM ? reply->num : 0;
        copy_reply(&out->text, reply);
        dibs__buf_add(&out->text, "", 1);
    }
    return err;
}

dibs_err dibs__query(dibs_client *c, const char *const *argv,
                     struct dibs__query_reply *out)
{
    struct query_op q = {.argv = argv, .out = out};
    int64_t before = dibs__now_us();

    dibs__buf_cut(&out->text, 0);
    out->replied = out->array = false;
    out->num = 0;
    out->err = dibs__client_enter(c);
    if (out->err != DIBS_OK)
        return out->err;
    q.base.cmd.write = query_write;
    q.base.cmd.quiet = true; /* the caller reads the error reply */
    q.base.read_reply = query_take;
    out->err = dibs__sync_query_run(c, c->route, &q.base);
    dibs__client_leave(c);
    out->sent_us = dibs__max(out->sent_us, before);
    if (!dibs__buf_ok(&out->text))
        out->err = DIBS_ERR_NOMEM;
    return out->err;
}

const char *dibs__query_reply_text(const struct dibs__query_reply *r)
{
    return r->replied && dibs__buf_ok(&r->text) && r->text.len ? r->text.data
                                                               : "";
}

const char *dibs__query_reply_line(const struct dibs__query_reply *r, size_t n,
                                   char buf[], size_t size)
{
    const char *at = dibs__query_reply_text(r);

    for (; n > 0 && *at; n--) {
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    size_t len = strcspn(at, "\n");
    if (len >= size)
        len = size - 1;
    memcpy(buf, at, len);
    buf[len] = '\0';
    return buf;
}

void dibs__query_reply_clear(struct dibs__query_reply *r)
{
    dibs__buf_clear(&r->text);
}
