/* SPDX-License-Identifier: MIT
 *
 * batch.c - several operations of one client in one command.
 *
 * Thread  app, io: the thread that creates a batch sends it; replies come on
 *         the same threads as those of a single command.
 * Locks   none.
 *
 * How     Each operation runs as if it were alone, up to dibs__op_send; there
 *         the batch takes it. One script executes all commands, and each
 *         operation gets the reply that its own command would have had. So what
 *         acquire.c and release.c do about lost replies and lost holds works in
 *         a batch, too.
 *
 * Acquire All or nothing. If one lock cannot be acquired, its operation gets
 *         the reason, and all others end with CANCELED: nothing was executed
 *         for them.
 */
#include "lock/core/batch.h"

#include "base/mem.h"
#include "client/command/script.h"
#include "lock/core/lock_manager.h"

#include <stdio.h>

struct batch_item {
    struct dibs__operation *op;
    dibs__reply_fn *on_reply;
};

struct op_batch {
    struct dibs__batch head; /* the public part */
    struct dibs__command command;
    enum dibs__lock_command verb;
    size_t count, max;
    struct batch_item items[];
};

static struct op_batch *batch_of(const struct dibs__batch *b)
{
    return DIBS_OF(b, struct op_batch, head);
}

static bool batch_take(struct dibs__operation *op, enum dibs__lock_command verb,
                       dibs__reply_fn *on_reply)
{
    struct op_batch *b = batch_of(op->batch);

    if (verb != b->verb || !op->entry->type->batch_code || b->count == b->max)
        return false;
    if (b->count > 0 &&
        b->items[0].op->args.hold_off_ms != op->args.hold_off_ms)
        return false; /* the script has one hold-off for all */
    b->items[b->count++] = (struct batch_item){.op = op, .on_reply = on_reply};
    return true;
}

struct dibs__batch *dibs__batch_new(enum dibs__lock_command verb, size_t max)
{
    struct op_batch *b = dibs__calloc(1, sizeof *b + max * sizeof b->items[0]);

    if (!b)
        return NULL;
    b->head.take = batch_take;
    b->verb = verb;
    b->max = max;
    return &b->head;
}

size_t dibs__batch_count(const struct dibs__batch *b)
{
    return batch_of(b)->count;
}

/* ---- the command ------------------------------------------------------- */

static size_t count_extra_keys(const struct op_batch *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->count; i++)
        n += b->items[i].op->entry->type->batch_key != 0;
    return n;
}

static void write_keys(const struct op_batch *b, struct dibs__buf *out)
{
    for (size_t i = 0; i < b->count; i++)
        dibs__param_write('n', &b->items[i].op->args, out);
    for (size_t i = 0; i < b->count; i++) {
        const struct dibs__command_args *args = &b->items[i].op->args;
        if (args->entry->type->batch_key)
            dibs__param_write(args->entry->type->batch_key, args, out);
    }
}

/* Appends the type's code and the level count as one argument. */
static void write_type_and_count(const struct dibs__operation *op,
                                 struct dibs__buf *out)
{
    char word[32];
    int n = snprintf(word, sizeof word, "%c%lld", op->entry->type->batch_code,
                     (long long)op->args.target_count);

    dibs__buf_arg(out, word, (size_t)n);
}

/* Appends the owner, or "" if it is the same as of the item before. */
static void write_owner(const struct op_batch *b, size_t i,
                        struct dibs__buf *out)
{
    const struct dibs__command_args *args = &b->items[i].op->args;

    if (i > 0 && b->items[i - 1].op->args.owner_id == args->owner_id)
        dibs__buf_arg(out, "", 0);
    else
        dibs__param_write('o', args, out);
}

static void write_batch(struct dibs__command *cmd, struct dibs__buf *out,
                        bool with_script)
{
    const struct op_batch *b = DIBS_OF(cmd, struct op_batch, command);
    const struct dibs__command_args *first = &b->items[0].op->args;
    bool acquire = b->verb == VERB_ACQUIRE;
    size_t more = dibs__publish_arg_count(first->entry);

    dibs__script_head(out,
                      acquire ? &dibs__script_multi_acquire
                              : &dibs__script_multi_release,
                      with_script, b->count + count_extra_keys(b),
                      acquire ? 1 + 2 * b->count : 2 + 3 * b->count + more);
    write_keys(b, out);
    dibs__buf_arg_num(out, acquire ? first->lease_ms : first->hold_off_ms);
    if (!acquire)
        dibs__buf_arg_num(out, (int64_t)b->count);
    for (size_t i = 0; i < b->count; i++) {
        const struct dibs__operation *op = b->items[i].op;
        write_type_and_count(op, out);
        write_owner(b, i, out);
        if (!acquire)
            dibs__param_write('c', &op->args, out);
    }
    if (!acquire)
        dibs__param_write('*', first, out);
}

/* ---- the reply --------------------------------------------------------- */

/* Passes a reply to one operation, with what is known of the batch's command,
 * as if the operation had sent it. */
static void complete_item(struct op_batch *b, size_t i, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct dibs__operation *op = b->items[i].op;

    op->batch = NULL;
    op->on_caller_thread = false;
    op->command.sent_ms = b->command.sent_ms;
    op->command.resent = b->command.resent;
    op->command.may_have_stale_copy = b->command.may_have_stale_copy;
    op->command.partially_executed = b->command.partially_executed;
    op->command.under_replicated = b->command.under_replicated;
    op->command.acked = b->command.acked;
    op->command.wanted = b->command.wanted;
    b->items[i].on_reply(&op->command, err, reply);
}

static void complete_items(struct op_batch *b, dibs_err err,
                           const struct dibs__reply *reply)
{
    for (size_t i = 0; i < b->count; i++)
        complete_item(b, i, err, reply);
    dibs__free(b);
}

static void on_batch_acquire_reply(struct dibs__command *cmd, dibs_err err,
                                   const struct dibs__reply *reply)
{
    struct op_batch *b = DIBS_OF(cmd, struct op_batch, command);
    struct dibs__reply blocker_reply = {.type = REPLY_NUM};
    int64_t blocker = 0;

    if (err != DIBS_OK || reply->type == REPLY_NIL) {
        complete_items(b, err, reply);
        return;
    }
    if (reply->len != 2 || !dibs__reply_num(reply, 0, &blocker) ||
        !dibs__reply_num(reply, 1, &blocker_reply.num) || blocker < 1 ||
        blocker > (int64_t)b->count) {
        complete_items(b, DIBS_ERR_PROTOCOL, reply);
        return;
    }
    for (size_t i = 0; i < b->count; i++)
        if ((int64_t)i + 1 == blocker &&
            blocker_reply.num != SCRIPT_NOT_BATCHABLE)
            complete_item(b, i, DIBS_OK, &blocker_reply);
        else
            complete_item(b, i, DIBS_ERR_CANCELED, NULL);
    dibs__free(b);
}

static dibs_err release_error(int64_t verdict)
{
    return verdict == SCRIPT_WRONG_TYPE      ? DIBS_ERR_WRONGTYPE
           : verdict == SCRIPT_MEMBER_FAILED ? DIBS_ERR_SERVER
                                             : DIBS_OK;
}

static void on_batch_release_reply(struct dibs__command *cmd, dibs_err err,
                                   const struct dibs__reply *reply)
{
    struct op_batch *b = DIBS_OF(cmd, struct op_batch, command);
    struct dibs__reply item_reply = {.type = REPLY_NUM};

    if (err == DIBS_OK && reply->len != b->count)
        err = DIBS_ERR_PROTOCOL;
    if (err != DIBS_OK) {
        complete_items(b, err, reply);
        return;
    }
    for (size_t i = 0; i < b->count; i++) {
        if (!dibs__reply_num(reply, i, &item_reply.num))
            complete_item(b, i, DIBS_ERR_PROTOCOL, reply);
        else
            complete_item(b, i, release_error(item_reply.num), &item_reply);
    }
    dibs__free(b);
}

static void on_batch_error_text(struct dibs__command *cmd, dibs_err err,
                                const char *blocker_reply)
{
    struct op_batch *b = DIBS_OF(cmd, struct op_batch, command);

    for (size_t i = 0; i < b->count; i++)
        dibs__op_record_error(b->items[i].op, err, blocker_reply);
}

/* ---- sending ----------------------------------------------------------- */

void dibs__batch_send(struct dibs__batch *head, bool direct)
{
    struct op_batch *b = batch_of(head);
    const struct dibs__operation *op = b->items[0].op;
    struct dibs__route to = dibs__entry_route(op->entry);
    bool acquire = b->verb == VERB_ACQUIRE;
    int64_t within = acquire ? dibs__entry_timeout(op->entry)
                             : op->waiter.deadline - dibs__now_ms();

    b->command.write = write_batch;
    b->command.on_reply =
        acquire ? on_batch_acquire_reply : on_batch_release_reply;
    b->command.on_error_text = on_batch_error_text;
    b->command.expects = 1u << REPLY_ARRAY | (acquire ? 1u << REPLY_NIL : 0);
    if (acquire) { /* the same for all: options of one client */
        b->command.replicas = op->replicas;
        b->command.replicas_ms = op->command.replicas_ms;
        b->command.writes = 1u << REPLY_NIL;
        within = dibs__add(within, op->command.replicas_ms);
    }
    dibs__entry_fill_command(op->entry, &b->command, within,
                             acquire ? 0 : op->waiter.deadline);
    if (direct)
        dibs__command_run_sync(to, &b->command);
    else
        dibs__command_start(to, &b->command);
}

void dibs__batch_cancel(struct dibs__batch *b)
{
    complete_items(batch_of(b), DIBS_ERR_CANCELED, NULL);
}
