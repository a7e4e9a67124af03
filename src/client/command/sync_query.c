/* SPDX-License-Identifier: MIT
 *
 * sync_query.c - commands that are asked and waited for.
 *
 * Thread  app; the answer also on io.
 * Locks   none.
 *
 * How     The reply is copied as text, an array as a line for each element, so
 *         that the caller can read it at leisure. For questions that are
 *         asked now and then by people; whatever is asked often has code of its
 *         own.
 */
#include "client/command/sync_query.h"

#include "client/command/command.h"

#include <stdio.h>
#include <string.h>

/* ---- asking and waiting ------------------------------------------------ */

static void ask_answered(struct dibs__command *cmd, dibs_err err,
                         const struct dibs__reply *reply)
{
    struct dibs__sync_query *ask = DIBS_OF(cmd, struct dibs__sync_query, call);

    ask->err = ask->take(ask, err, reply);
    sem_post(&ask->done);
}

static void ask_explained(struct dibs__command *cmd, dibs_err err,
                          const char *why)
{
    struct dibs__sync_query *ask = DIBS_OF(cmd, struct dibs__sync_query, call);

    (void)err;
    snprintf(ask->why, sizeof ask->why, "%s", why);
}

dibs_err dibs__sync_query_run(dibs_client *c, struct dibs__route to,
                              struct dibs__sync_query *ask)
{
    ask->call.no_script = true;
    ask->call.done = ask_answered;
    ask->call.explain = ask_explained;
    ask->call.attempt_ms = c->to.command_timeout_ms;
    ask->call.deadline = dibs__now_ms() + 2 * ask->call.attempt_ms;
    ask->why[0] = '\0';
    sem_init(&ask->done, 0, 0);
    dibs__command_run_direct(to, &ask->call);
    while (sem_wait(&ask->done) != 0)
        ; /* a signal */
    sem_destroy(&ask->done);
    if (ask->err != DIBS_OK && ask->why[0])
        dibs__reason_set(ask->err, "%s", ask->why);
    return ask->err;
}

/* ---- any command ------------------------------------------------------- */

struct query {
    struct dibs__sync_query ask;
    const char *const *argv;
    struct dibs__query_reply *out;
};

static void query_write(struct dibs__command *cmd, struct dibs__buf *out,
                        bool whole)
{
    const struct query *q = DIBS_OF(cmd, struct query, ask.call);
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

static dibs_err query_take(struct dibs__sync_query *ask, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct dibs__query_reply *out = DIBS_OF(ask, struct query, ask)->out;

    out->came_us = dibs__now_us();
    out->sent_us = ask->call.sent_ms * 1000;
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
    struct query q = {.argv = argv, .out = out};
    int64_t before = dibs__now_us();

    dibs__buf_cut(&out->text, 0);
    out->replied = out->array = false;
    out->num = 0;
    out->err = dibs__client_enter(c);
    if (out->err != DIBS_OK)
        return out->err;
    q.ask.call.write = query_write;
    q.ask.call.quiet = true; /* the caller reads the answer */
    q.ask.take = query_take;
    out->err = dibs__sync_query_run(c, c->route, &q.ask);
    dibs__client_leave(c);
    out->sent_us = dibs__max(out->sent_us, before);
    if (!dibs__buf_ok(&out->text))
        out->err = DIBS_ERR_NOMEM;
    return out->err;
}

const char *dibs__query_reply_text(const struct dibs__query_reply *a)
{
    return a->replied && dibs__buf_ok(&a->text) && a->text.len ? a->text.data
                                                               : "";
}

const char *dibs__query_reply_line(const struct dibs__query_reply *a, size_t n,
                                   char buf[], size_t size)
{
    const char *at = dibs__query_reply_text(a);

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

void dibs__query_reply_clear(struct dibs__query_reply *a)
{
    dibs__buf_clear(&a->text);
}
