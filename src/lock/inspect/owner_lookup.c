/* SPDX-License-Identifier: MIT
 *
 * owner_lookup.c - dibs_lock_who_async: who is one owner of a lock.
 *
 * Thread  app; answers on io.
 * Locks   none.
 *
 * How     The server that has the lock is asked for its CLIENT LIST: the owner
 *         talks to that one, too. The answer is read on io, so it is only one
 *         owner's; dibs_client_who is for many.
 */
#include "lock/api/lock.h"

#include "base/api_args.h"
#include "base/mem.h"
#include "client/observe/client_name.h"

#include <string.h>

struct who_op {
    struct dibs__operation op;
    char id[DIBS__WHO_ID_LEN + 1];
    struct dibs__client_info who;
    dibs_who_cb fn;
};

static struct who_op *who_op_of(struct dibs__command *cmd)
{
    return DIBS_OF(DIBS_OF(cmd, struct dibs__operation, command), struct who_op,
                   op);
}

static void who_write(struct dibs__command *cmd, struct dibs__buf *out,
                      bool whole)
{
    (void)cmd;
    (void)whole;
    dibs__client_list_command(out);
}

static void who_answered(struct dibs__command *cmd, dibs_err err,
                         const struct dibs__reply *reply)
{
    struct who_op *wo = who_op_of(cmd);
    const char *at = err == DIBS_OK ? reply->text : NULL;
    const char *end = err == DIBS_OK ? reply->text + reply->len : NULL;
    struct dibs__client_list_row line;

    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);

        if (dibs__client_list_parse(at, len, &line) &&
            strcmp(line.id, wo->id) == 0)
            dibs__client_info_merge(&wo->who, &line.who);
        at += len + 1;
    }
    dibs__op_finish(&wo->op, err);
}

static void who_run(struct dibs__operation *op)
{
    op->command.quiet = true; /* who asks can do without */
    op->command.no_script = true;
    dibs__op_send_own(op, who_write, 1u << REPLY_TEXT, who_answered,
                      dibs__entry_timeout(op->entry));
}

static void who_told(struct dibs__operation *op)
{
    const struct who_op *wo = DIBS_OF(op, struct who_op, op);
    dibs_who who = dibs__client_info_public(&wo->who);

    wo->fn(op->err, wo->who.known ? &who : NULL, op->arg);
}

static dibs_err who_begin(dibs_lock *l, const char *owner, dibs_who_cb cb,
                          void *arg)
{
    dibs_err err = dibs__callbacks_ensure_thread(&l->c->callbacks);
    struct who_op *wo = err == DIBS_OK ? dibs__op_new(l, sizeof *wo) : NULL;

    if (!wo)
        return err == DIBS_OK ? DIBS_ERR_NOMEM : err;
    if (!dibs__client_id_of_owner(owner, wo->id))
        wo->id[0] = '\0'; /* nobody's */
    wo->fn = cb;
    wo->op.arg = arg;
    wo->op.custom_completion = true;
    wo->op.complete = who_told;
    wo->op.run = who_run;
    dibs__op_begin(&wo->op);
    return DIBS_OK;
}

static dibs_err who_async(dibs_lock *l, const char *owner, dibs_who_cb cb,
                          void *arg)
{
    if (dibs__check_not_null("owner", owner) ||
        dibs__check_not_null("cb", cb ? owner : NULL))
        return dibs__lock_report_invalid_arg(l);
    dibs_err err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* a callback may free the handle meanwhile */
    err = who_begin(l, owner, cb, arg);
    dibs__client_leave(c);
    return err;
}

dibs_err dibs_lock_who_async(dibs_lock *l, const char *owner, dibs_who_cb cb,
                             void *arg)
{
    return DIBS__API_CALL(who_async(l, owner, cb, arg));
}
