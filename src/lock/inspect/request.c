/* SPDX-License-Identifier: MIT
 *
 * request.c - one command about a name that neither acquires nor releases.
 *
 * Thread  app; replies also on io.
 */
#include "lock/inspect/request.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static struct dibs__request *request_of(struct dibs__command *cmd)
{
    return DIBS_OF(DIBS_OF(cmd, struct dibs__operation, command),
                   struct dibs__request, op);
}

static void request_write(struct dibs__command *cmd, struct dibs__buf *out,
                          bool whole)
{
    const struct dibs__request *r = request_of(cmd);

    r->write(r, out, whole);
}

static void on_request_reply(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__request *r = request_of(cmd);

    if (err == DIBS_OK)
        err = r->read(r, reply);
    dibs__op_finish(&r->op, err);
}

static void request_start(struct dibs__operation *op)
{
    dibs__op_send_custom(op, request_write,
                         1u << REPLY_NUM | 1u << REPLY_TEXT | 1u << REPLY_ARRAY,
                         on_request_reply, 2 * dibs__entry_timeout(op->entry));
}

void dibs__request_head(const struct dibs__request *r,
                        const struct dibs__script *script, size_t keys,
                        size_t args, struct dibs__buf *out, bool whole)
{
    dibs__script_head(out, script, whole, keys,
                      args + dibs__publish_arg_count(r->op.entry));
}

void dibs__request_args(const struct dibs__request *r, const char *letters,
                        struct dibs__buf *out)
{
    for (; *letters; letters++)
        dibs__param_write(*letters, &r->op.args, out);
}

void dibs__request_name(const struct dibs__lock_entry *entry,
                        char id[DIBS__REQUEST_ID])
{
    snprintf(id, DIBS__REQUEST_ID, "%s:%llu", entry->manager->c->id,
             (unsigned long long)dibs__owner_new_number());
}

static dibs_err request_sync(dibs_lock *l, struct dibs__request *r)
{
    dibs__op_init(&r->op, l);
    r->op.start = request_start;
    return dibs__op_wait(&r->op);
}

static dibs_err request_async(dibs_lock *l, const struct dibs__request *from,
                              dibs_cb cb, void *arg)
{
    size_t text_size = from->text ? strlen(from->text) + 1 : 0;
    dibs_err err = dibs__callbacks_ensure_thread(&l->c->callbacks);

    if (err != DIBS_OK)
        return err;
    struct dibs__request *r = dibs__op_new(l, sizeof *r + text_size);
    if (!r)
        return DIBS_ERR_NOMEM;
    r->write = from->write;
    r->read = from->read;
    r->number = from->number;
    r->within_ms = from->within_ms;
    r->value = from->value;
    memcpy(r->id, from->id, sizeof r->id);
    if (text_size)
        r->text = memcpy(r + 1, from->text, text_size);
    r->op.start = request_start;
    r->op.fn = cb;
    r->op.arg = arg;
    dibs__op_begin(&r->op);
    return DIBS_OK;
}

dibs_err dibs__request_run(dibs_lock *l, struct dibs__request *r, dibs_cb cb,
                           void *arg)
{
    dibs_err err = dibs__lock_enter(l);

    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* a callback may free the handle meanwhile */
    dibs__request_name(l->entry, r->id);
    err = cb ? request_async(l, r, cb, arg) : request_sync(l, r);
    dibs__client_leave(c);
    return err;
}
