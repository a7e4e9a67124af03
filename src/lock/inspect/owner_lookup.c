/* SPDX-License-Identifier: MIT
 *
 * owner_lookup.c - dibs_lock_who_async: finds the client (host, process) of one
 * owner of a lock.
 *
 * Thread  app; replies on io.
 * Locks   none.
 *
 * How     Sends CLIENT LIST to the lock's server, since the owner is connected
 *         to it, too. The reply is parsed on io, so one call looks up one owner
 *         only; dibs_client_who looks up many.
 */
#include "lock/api/lock.h"

#include "base/api_args.h"
#include "base/mem.h"
#include "client/observe/client_name.h"

#include <string.h>

struct lookup {
    struct dibs__operation op;
    char id[DIBS__CLIENT_ID_LEN + 1];
    struct dibs__client_info who;
    dibs_who_cb fn;
};

static struct lookup *lookup_of(struct dibs__command *cmd)
{
    return DIBS_OF(DIBS_OF(cmd, struct dibs__operation, command), struct lookup,
                   op);
}

static void write_client_list(struct dibs__command *cmd, struct dibs__buf *out,
                              bool whole)
{
    (void)cmd;
    (void)whole;
    dibs__client_list_command(out);
}

static void on_client_list_reply(struct dibs__command *cmd, dibs_err err,
                                 const struct dibs__reply *reply)
{
    struct lookup *lk = lookup_of(cmd);
    const char *at = err == DIBS_OK ? reply->text : NULL;
    const char *end = err == DIBS_OK ? reply->text + reply->len : NULL;
    struct dibs__client_list_row line;

    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);

        if (dibs__client_list_parse(at, len, &line) &&
            strcmp(line.id, lk->id) == 0)
            dibs__client_info_merge(&lk->who, &line.who);
        at += len + 1;
    }
    dibs__op_finish(&lk->op, err);
}

static void lookup_run(struct dibs__operation *op)
{
    op->command.quiet = true; /* a failure is not logged: the result is extra */
    op->command.no_script = true;
    dibs__op_send_custom(op, write_client_list, 1u << REPLY_TEXT,
                         on_client_list_reply, dibs__entry_timeout(op->entry));
}

static void lookup_call_user(struct dibs__operation *op)
{
    const struct lookup *lk = DIBS_OF(op, struct lookup, op);
    dibs_who who = dibs__client_info_public(&lk->who);

    lk->fn(op->err, lk->who.known ? &who : NULL, op->arg);
}

static dibs_err lookup_begin(dibs_lock *l, const char *owner, dibs_who_cb cb,
                             void *arg)
{
    dibs_err err = dibs__callbacks_ensure_thread(&l->c->callbacks);
    struct lookup *lk = err == DIBS_OK ? dibs__op_new(l, sizeof *lk) : NULL;

    if (!lk)
        return err == DIBS_OK ? DIBS_ERR_NOMEM : err;
    if (!dibs__client_id_of_owner(owner, lk->id))
        lk->id[0] = '\0'; /* matches no client */
    lk->fn = cb;
    lk->op.arg = arg;
    lk->op.custom_completion = true;
    lk->op.complete = lookup_call_user;
    lk->op.start = lookup_run;
    dibs__op_begin(&lk->op);
    return DIBS_OK;
}

static dibs_err lookup_async(dibs_lock *l, const char *owner, dibs_who_cb cb,
                             void *arg)
{
    if (dibs__check_not_null("owner", owner) ||
        dibs__check_not_null("cb", cb ? owner : NULL))
        return dibs__lock_report_invalid_arg(l);
    dibs_err err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* a callback may free the handle meanwhile */
    err = lookup_begin(l, owner, cb, arg);
    dibs__client_leave(c);
    return err;
}

dibs_err dibs_lock_who_async(dibs_lock *l, const char *owner, dibs_who_cb cb,
                             void *arg)
{
    return DIBS__API_CALL(lookup_async(l, owner, cb, arg));
}
