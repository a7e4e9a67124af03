/* SPDX-License-Identifier: MIT
 *
 * holder_value.c - dibs_lock_publish and dibs_lock_published: a text that the
 * holder of a lock publishes and any client reads.
 *
 * Thread  app for the calls; io for repeated sends and for replies.
 * Locks   entry.mu, to read and change a hold.
 *
 * The server keeps a string beside the lock: owner, number, text. A script
 * writes it only if the owner holds the lock, with the remaining lease as TTL
 * (value_set.lua). A reader ignores it unless its owner holds the lock at that
 * moment (value_get.lua). So a value whose removal was lost is never read, and
 * expires.
 *
 * How     The publishing call is an operation on the hold, which is busy until
 *         the reply: a release waits for it. Afterwards the hold's row
 *         (holder_value_table.c) sends the value again after each renewal, so
 *         that it lasts as long as the lock and is restored after a failover
 *         or a deletion. When the hold ends, the row removes the value.
 *
 * Limits  Without a reply the value is sent again at the next renewal; the hold
 *         is marked may_have_stale_copy, so that its owner gets a new id after
 *         it, and a late copy finds no lock of the old id. A value that the
 *         server refuses is not sent again. If the owner does not hold the lock
 *         on the server, the hold is lost.
 */
#include "base/api_args.h"
#include "base/mem.h"
#include "lock/api/lock.h"

#include <string.h>

#define CALL_TIMEOUTS 2 /* command timeouts for one public call */

/* ---- commands ---------------------------------------------------------- */

static void append_owner(struct dibs__buf *out,
                         const struct dibs__lock_entry *entry,
                         uint64_t owner_id)
{
    char text[DIBS_OWNER_MAX];

    dibs__buf_arg(out, text, dibs__owner_text(entry, owner_id, text));
}

static void append_value_key(struct dibs__buf *out,
                             const struct dibs__lock_entry *entry)
{
    dibs__param_write('Y', &(struct dibs__command_args){.entry = entry}, out);
}

static void write_value_set(const struct dibs__lock_entry *entry,
                            uint64_t owner_id, const struct dibs__value *v,
                            struct dibs__buf *out, bool whole)
{
    dibs__script_head(out, &dibs__script_value_set, whole, 2,
                      5 + dibs__publish_arg_count(entry));
    dibs__buf_arg(out, entry->name, entry->name_len);
    append_value_key(out, entry);
    append_owner(out, entry, owner_id);
    dibs__buf_arg_num(out, (int64_t)v->number);
    dibs__buf_arg(out, v->text, v->len);
    dibs__buf_arg_num(out, dibs__entry_client(entry)->lease_ms);
    dibs__param_write('c', &(struct dibs__command_args){.entry = entry}, out);
    dibs__param_write('*', &(struct dibs__command_args){.entry = entry}, out);
}

/* ---- replies ----------------------------------------------------------- */

/* Returns OK, LOST if the owner does not hold the lock, or err. */
static dibs_err value_set_result(dibs_err err, const struct dibs__reply *reply)
{
    if (err != DIBS_OK)
        return err;
    if (reply->type != REPLY_NUM)
        return DIBS_ERR_PROTOCOL;
    return reply->num == 1 ? DIBS_OK : DIBS_ERR_LOST;
}

/* Returns whether sending the value again would fail in the same way. */
static bool is_refusal(dibs_err err)
{
    return err == DIBS_ERR_AUTH || err == DIBS_ERR_WRONGTYPE ||
           err == DIBS_ERR_PROTOCOL;
}

/* Applies the result of a send to the hold, which may have ended (NULL). */
static void hold_apply_result(struct dibs__lock_entry *entry,
                              struct dibs__hold *h, dibs_err err,
                              bool maybe_live_copy) REQUIRES(entry->mu)
{
    if (!h || h->state == HOLD_LOST || h->state == HOLD_ENDING)
        return;
    h->may_have_stale_copy |= maybe_live_copy || err == DIBS_ERR_UNKNOWN;
    if (is_refusal(err)) {
        dibs__holder_value_discard(entry, h->number);
        h->has_value = false;
    }
    if (err == DIBS_ERR_LOST)
        dibs__hold_lose(entry, h);
}

/* ---- repeated sends, and removal --------------------------------------- */

static void row_send_next(struct dibs__holder_value *p);

static void on_row_sent(struct dibs__command *cmd, dibs_err err,
                        const struct dibs__reply *reply)
{
    struct dibs__holder_value *p = DIBS_OF(cmd, struct dibs__holder_value, cmd);
    struct dibs__lock_entry *entry = p->entry;

    err = value_set_result(err, reply);
    dibs__lock(&entry->mu);
    hold_apply_result(entry, dibs__hold_with_number(entry, p->hold_number), err,
                      cmd->may_have_stale_copy);
    dibs__unlock(&entry->mu);
    row_send_next(p);
}

static void write_row(struct dibs__command *cmd, struct dibs__buf *out,
                      bool whole)
{
    const struct dibs__holder_value *p =
        DIBS_OF(cmd, struct dibs__holder_value, cmd);

    write_value_set(p->entry, p->owner_id, p->value, out, whole);
}

static void on_row_removed(struct dibs__command *cmd, dibs_err err,
                           const struct dibs__reply *reply)
{
    (void)err; /* a value that was not removed expires */
    (void)reply;
    row_send_next(DIBS_OF(cmd, struct dibs__holder_value, cmd));
}

static void write_row_removal(struct dibs__command *cmd, struct dibs__buf *out,
                              bool whole)
{
    const struct dibs__holder_value *p =
        DIBS_OF(cmd, struct dibs__holder_value, cmd);

    dibs__script_head(out, &dibs__script_value_drop, whole, 1, 2);
    append_value_key(out, p->entry);
    append_owner(out, p->entry, p->owner_id);
    dibs__buf_arg_num(out, (int64_t)p->value->number);
}

/* Sends the row's next command, if there is one, or frees the row. Thread:
 * io. */
static void row_send_next(struct dibs__holder_value *p)
{
    enum dibs__holder_value_job job = dibs__holder_value_next(p);

    if (job == JOB_FREE)
        dibs__holder_value_free(p);
    if (job == JOB_FREE || job == JOB_NONE)
        return;
    p->cmd.write = job == JOB_SEND ? write_row : write_row_removal;
    p->cmd.on_reply = job == JOB_SEND ? on_row_sent : on_row_removed;
    p->cmd.expects = 1u << REPLY_NUM;
    dibs__entry_fill_command(p->entry, &p->cmd, dibs__entry_timeout(p->entry),
                             0);
    dibs__command_start(dibs__entry_route(p->entry), &p->cmd);
}

static void run_row_task(struct dibs__task *t)
{
    row_send_next(DIBS_OF(t, struct dibs__holder_value, step));
}

/* ---- publishing -------------------------------------------------------- */

struct publishing {
    struct dibs__operation op;
    struct dibs__value *value; /* owned; numbered by dibs__holder_value_put */
};

static struct publishing *publishing_of(struct dibs__operation *op)
{
    return DIBS_OF(op, struct publishing, op);
}

static void write_publish(struct dibs__command *cmd, struct dibs__buf *out,
                          bool whole)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);

    write_value_set(op->entry, op->owner_id, publishing_of(op)->value, out,
                    whole);
}

static void on_publish_reply(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;

    err = value_set_result(err, reply);
    dibs__lock(&entry->mu);
    hold_apply_result(entry, op->hold, err, cmd->may_have_stale_copy);
    if (op->hold->state == HOLD_LOST)
        err = DIBS_ERR_LOST;
    dibs__unlock(&entry->mu);
    dibs__free(publishing_of(op)->value);
    dibs__op_finish_on_hold(op, err);
}

enum publish_plan { PLAN_SEND, PLAN_WAIT, PLAN_END };

static enum publish_plan publish_decide(struct dibs__lock_entry *entry,
                                        struct dibs__operation *op,
                                        dibs_err *err) REQUIRES(entry->mu)
{
    struct dibs__value *v = publishing_of(op)->value;
    struct dibs__hold *h = dibs__hold_of(entry, op->owner);

    *err = DIBS_ERR_NOT_OWNER;
    if (!h)
        return PLAN_END;
    *err = DIBS_ERR_NOMEM;
    if (h->busy && !dibs__wait_queue_activate(&entry->wait_queue))
        return PLAN_END;
    if (h->busy) {
        dibs__wait_queue_block_on(&entry->wait_queue, &h->blocked_ops,
                                  &op->waiter);
        return PLAN_WAIT;
    }
    *err = DIBS_ERR_LOST;
    if (dibs__hold_has_expired(h, dibs__now_ms()))
        return PLAN_END;
    *err = DIBS_ERR_NOMEM;
    if (!dibs__holder_value_put(entry, h->number, h->owner_id, v->text, v->len,
                                run_row_task, &v->number))
        return PLAN_END;
    h->has_value = true;
    h->busy = true;
    op->hold = h;
    op->owner_id = h->owner_id;
    op->waiter.state = WAITER_IN_FLIGHT;
    return PLAN_SEND;
}

static void publishing_run(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;
    bool on_caller_thread = op->on_caller_thread;
    dibs_err err;

    op->on_caller_thread = false; /* if it waits, io resumes it */
    dibs__lock(&entry->mu);
    enum publish_plan plan = publish_decide(entry, op, &err);
    dibs__unlock(&entry->mu);
    if (plan == PLAN_SEND) {
        op->on_caller_thread = on_caller_thread;
        dibs__op_send_custom(op, write_publish, 1u << REPLY_NUM,
                             on_publish_reply,
                             CALL_TIMEOUTS * dibs__entry_timeout(entry));
    } else if (plan == PLAN_END) {
        dibs__free(publishing_of(op)->value);
        dibs__op_finish(op, err);
    }
}

static dibs_err check_value(const dibs_lock *l, const char *value)
{
    size_t len = value ? strnlen(value, DIBS_VALUE_MAX + 1) : 0;

    if (dibs__check_not_null("lock", l) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (len > DIBS_VALUE_MAX)
        dibs__reason_set(DIBS_ERR_INVALID,
                         "the value must have at most %d bytes",
                         DIBS_VALUE_MAX);
    else if (l->entry &&
             (l->entry->type->shared || l->entry->type->is_counting))
        dibs__reason_set(DIBS_ERR_INVALID,
                         "this type of lock can have several holders: it has "
                         "no value");
    else
        return DIBS_OK;
    return dibs__lock_report_invalid_arg(l);
}

static struct dibs__value *value_copy(const char *text)
{
    size_t len = text ? strlen(text) : 0;
    struct dibs__value *v = dibs__calloc(1, sizeof *v + len + 1);

    if (v && len)
        memcpy(v->text, text, len);
    if (v)
        v->len = len;
    return v;
}

static void publishing_fill(struct dibs__operation *op, dibs_owner owner)
{
    op->owner = owner ? owner : dibs__owner_thread();
    op->start = publishing_run;
}

static dibs_err publish_sync(dibs_lock *l, dibs_owner owner,
                             struct dibs__value *v)
{
    struct publishing pb = {.value = v};

    dibs__op_init(&pb.op, l);
    publishing_fill(&pb.op, owner);
    return dibs__op_wait(&pb.op);
}

static dibs_err publish_async(dibs_lock *l, dibs_owner owner,
                              struct dibs__value *v, dibs_cb cb, void *arg)
{
    dibs_err err = dibs__callbacks_ensure_thread(&l->c->callbacks);
    struct publishing *pb = err == DIBS_OK ? dibs__op_new(l, sizeof *pb) : NULL;

    if (!pb) {
        dibs__free(v);
        return err == DIBS_OK ? DIBS_ERR_NOMEM : err;
    }
    pb->value = v;
    publishing_fill(&pb->op, owner);
    pb->op.fn = cb;
    pb->op.arg = arg;
    dibs__op_begin(&pb->op);
    return DIBS_OK;
}

static dibs_err publish_value(dibs_lock *l, dibs_owner owner, const char *value,
                              dibs_cb cb, void *arg)
{
    if (check_value(l, value) != DIBS_OK)
        return DIBS_ERR_INVALID;
    dibs_err err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* a callback may free the handle meanwhile */
    struct dibs__value *v = value_copy(value);
    if (!v)
        err = DIBS_ERR_NOMEM;
    else
        err = cb ? publish_async(l, owner, v, cb, arg)
                 : publish_sync(l, owner, v);
    dibs__client_leave(c);
    return err;
}

dibs_err dibs_lock_publish(dibs_lock *l, dibs_owner owner, const char *value)
{
    return DIBS__API_CALL(publish_value(l, owner, value, NULL, NULL));
}

static dibs_err publish_report_null_cb(const dibs_lock *l)
{
    dibs__check_not_null("cb", NULL);
    return dibs__lock_report_invalid_arg(l);
}

dibs_err dibs_lock_publish_async(dibs_lock *l, dibs_owner owner,
                                 const char *value, dibs_cb cb, void *arg)
{
    return DIBS__API_CALL(cb ? publish_value(l, owner, value, cb, arg)
                             : publish_report_null_cb(l));
}

/* ---- reading ----------------------------------------------------------- */

struct reading {
    struct dibs__operation op;
    dibs_value_cb fn;
    char owner[DIBS_OWNER_MAX];
    char text[DIBS_VALUE_MAX + 1];
};

static struct reading *reading_of(struct dibs__operation *op)
{
    return DIBS_OF(op, struct reading, op);
}

static void copy_truncated(char *to, size_t size,
                           const struct dibs__reply *from)
{
    size_t len = from->len < size ? from->len : size - 1;

    memcpy(to, from->text, len);
    to[len] = '\0';
}

static void on_read_reply(struct dibs__command *cmd, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct reading *rd = reading_of(op);

    if (err == DIBS_OK && reply->len > 0) {
        const struct dibs__reply *owner = dibs__reply_text(reply, 0);
        const struct dibs__reply *text = dibs__reply_text(reply, 1);
        if (owner && text) {
            copy_truncated(rd->owner, sizeof rd->owner, owner);
            copy_truncated(rd->text, sizeof rd->text, text);
        } else {
            err = DIBS_ERR_PROTOCOL;
        }
    }
    dibs__op_finish(op, err);
}

static void write_read(struct dibs__command *cmd, struct dibs__buf *out,
                       bool whole)
{
    const struct dibs__lock_entry *entry =
        DIBS_OF(cmd, struct dibs__operation, command)->entry;

    dibs__script_head(out, &dibs__script_value_get, whole, 2, 0);
    dibs__buf_arg(out, entry->name, entry->name_len);
    append_value_key(out, entry);
}

static void reading_run(struct dibs__operation *op)
{
    dibs__op_send_custom(op, write_read, 1u << REPLY_ARRAY, on_read_reply,
                         CALL_TIMEOUTS * dibs__entry_timeout(op->entry));
}

static void call_read_cb(struct dibs__operation *op)
{
    struct reading *rd = reading_of(op);
    bool ok = op->err == DIBS_OK;

    rd->fn(op->err, ok ? rd->owner : NULL, ok ? rd->text : NULL, op->arg);
}

static dibs_err enter_to_read(const dibs_lock *l)
{
    if (l && l->entry && l->entry->type->is_counting)
        return check_value(l, NULL);
    return dibs__lock_enter(l);
}

static dibs_err value_read_sync(dibs_lock *l, char *buf, size_t size)
{
    struct reading rd = {.text = ""};

    if (dibs__check_not_null("buf", buf) ||
        (size == 0 && dibs__reason_set(DIBS_ERR_INVALID, "size is 0")))
        return dibs__lock_report_invalid_arg(l);
    dibs_err err = enter_to_read(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* another thread may free the handle meanwhile */
    dibs__op_init(&rd.op, l);
    rd.op.start = reading_run;
    err = dibs__op_wait(&rd.op);
    dibs__client_leave(c);
    if (err == DIBS_OK) {
        size_t len = strnlen(rd.text, size - 1);
        memcpy(buf, rd.text, len);
        buf[len] = '\0';
    }
    return err;
}

dibs_err dibs_lock_published(dibs_lock *l, char *buf, size_t size)
{
    return DIBS__API_CALL(value_read_sync(l, buf, size));
}

static dibs_err reading_begin(dibs_lock *l, dibs_value_cb cb, void *arg)
{
    dibs_err err = dibs__callbacks_ensure_thread(&l->c->callbacks);
    struct reading *rd = err == DIBS_OK ? dibs__op_new(l, sizeof *rd) : NULL;

    if (!rd)
        return err == DIBS_OK ? DIBS_ERR_NOMEM : err;
    rd->fn = cb;
    rd->op.arg = arg;
    rd->op.custom_completion = true;
    rd->op.complete = call_read_cb;
    rd->op.start = reading_run;
    dibs__op_begin(&rd->op);
    return DIBS_OK;
}

static dibs_err value_read_async(dibs_lock *l, dibs_value_cb cb, void *arg)
{
    if (!cb)
        return publish_report_null_cb(l);
    dibs_err err = enter_to_read(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* a callback may free the handle meanwhile */
    err = reading_begin(l, cb, arg);
    dibs__client_leave(c);
    return err;
}

dibs_err dibs_lock_published_async(dibs_lock *l, dibs_value_cb cb, void *arg)
{
    return DIBS__API_CALL(value_read_async(l, cb, arg));
}
