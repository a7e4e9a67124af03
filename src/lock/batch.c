/* SPDX-License-Identifier: MIT
 *
 * batch.c - several operations of one client in one command.
 *
 * Thread  app, io: whoever makes it sends it; the answer comes where a call's
 *         answer comes.
 * Locks   none.
 *
 * How     Each operation prepares itself as if it were alone, up to the point
 *         where it would send its command; there the batch takes it. One script
 *         then does for all of them what each would have asked for, and each
 *         is given the answer it would have had. So an operation does not know
 *         that it was in a batch, and everything it does about lost replies,
 *         ghosts and losses holds here too.
 *
 *         Acquires are taken all or none. One that was not in the way, but was
 *         not taken because of another, is told CANCELED: nothing was done, and
 *         nothing is known about it.
 */
#include "lock/batch.h"

#include "base/mem.h"
#include "client/script.h"
#include "lock/locks.h"

#include <stdio.h>

struct item {
    struct dibs__op *op;
    dibs__answered *answered;
};

struct dibs__batch {
    struct dibs__call call;
    enum dibs__verb verb;
    size_t count, max;
    struct item items[];
};

struct dibs__batch *dibs__batch_new(enum dibs__verb verb, size_t max)
{
    struct dibs__batch *b =
        dibs__calloc(1, sizeof *b + max * sizeof b->items[0]);

    if (!b)
        return NULL;
    b->verb = verb;
    b->max = max;
    return b;
}

bool dibs__batch_take(struct dibs__op *op, enum dibs__verb verb,
                      dibs__answered *answered)
{
    struct dibs__batch *b = op->batch;

    if (verb != b->verb || !op->line->kind->batch || b->count == b->max) {
        op->batch = NULL;
        return false;
    }
    b->items[b->count++] = (struct item){.op = op, .answered = answered};
    return true;
}

size_t dibs__batch_count(const struct dibs__batch *b)
{
    return b->count;
}

/* ---- the command ------------------------------------------------------- */

static size_t count_gates(const struct dibs__batch *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->count; i++)
        n += b->items[i].op->line->kind->gate != NULL;
    return n;
}

static void write_keys(const struct dibs__batch *b, struct dibs__buf *out)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct dibs__line *line = b->items[i].op->line;
        dibs__buf_arg(out, line->name, line->name_len);
    }
    for (size_t i = 0; i < b->count; i++) {
        const struct dibs__line *line = b->items[i].op->line;
        if (line->kind->gate)
            line->kind->gate(out, line);
    }
}

/* Kind and holds in one word. */
static void write_word(const struct dibs__op *op, struct dibs__buf *out)
{
    char word[32];
    int n = snprintf(word, sizeof word, "%c%lld", op->line->kind->batch,
                     (long long)op->ask.target);

    dibs__buf_arg(out, word, (size_t)n);
}

/* The owner, unless it is that of the one before. */
static void write_owner(const struct dibs__batch *b, size_t i,
                        struct dibs__buf *out)
{
    const struct dibs__ask *ask = &b->items[i].op->ask;

    if (i > 0 && b->items[i - 1].op->ask.wire == ask->wire)
        dibs__buf_arg(out, "", 0);
    else
        dibs__owner_arg(out, ask);
}

static void batch_write(struct dibs__call *call, struct dibs__buf *out,
                        bool whole)
{
    const struct dibs__batch *b = DIBS_OF(call, struct dibs__batch, call);
    const struct dibs__ask *first = &b->items[0].op->ask;
    bool acquire = b->verb == VERB_ACQUIRE;
    size_t more = dibs__publish_count(first->line);

    dibs__script_head(out,
                      acquire ? &dibs__script_multi_acquire
                              : &dibs__script_multi_release,
                      whole, b->count + count_gates(b),
                      acquire ? 1 + 2 * b->count : 2 + 3 * b->count + more);
    write_keys(b, out);
    dibs__buf_arg_num(out, acquire ? first->lease_ms : first->keep_ms);
    if (!acquire)
        dibs__buf_arg_num(out, (int64_t)b->count);
    for (size_t i = 0; i < b->count; i++) {
        const struct dibs__op *op = b->items[i].op;
        write_word(op, out);
        write_owner(b, i, out);
        if (!acquire)
            dibs__buf_arg(out, op->line->channel, op->line->channel_len);
    }
    if (!acquire)
        dibs__publish_args(out, first->line);
}

/* ---- the answer -------------------------------------------------------- */

/* Each as if it had been asked by itself; the batch is gone then. */
static void answer(struct dibs__batch *b, size_t i, dibs_err err,
                   const struct dibs__reply *reply)
{
    struct dibs__op *op = b->items[i].op;

    op->batch = NULL;
    op->direct = false;
    op->call.sent_ms = b->call.sent_ms;
    op->call.again = b->call.again;
    op->call.ghost = b->call.ghost;
    op->call.partly = b->call.partly;
    op->call.unacked = b->call.unacked;
    op->call.acked = b->call.acked;
    op->call.wanted = b->call.wanted;
    b->items[i].answered(&op->call, err, reply);
}

static void answer_all(struct dibs__batch *b, dibs_err err,
                       const struct dibs__reply *reply)
{
    for (size_t i = 0; i < b->count; i++)
        answer(b, i, err, reply);
    dibs__free(b);
}

static void acquire_answered(struct dibs__call *call, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__batch *b = DIBS_OF(call, struct dibs__batch, call);
    struct dibs__reply why = {.type = REPLY_NUM};
    int64_t which = 0;

    if (err != DIBS_OK || reply->type == REPLY_NIL) {
        answer_all(b, err, reply);
        return;
    }
    if (reply->len != 2 || !dibs__reply_num(reply, 0, &which) ||
        !dibs__reply_num(reply, 1, &why.num) || which < 1 ||
        which > (int64_t)b->count) {
        answer_all(b, DIBS_ERR_PROTOCOL, reply);
        return;
    }
    for (size_t i = 0; i < b->count; i++)
        if ((int64_t)i + 1 == which && why.num != -7)
            answer(b, i, DIBS_OK, &why);
        else
            answer(b, i, DIBS_ERR_CANCELED, NULL);
    dibs__free(b);
}

static dibs_err refusal(int64_t verdict)
{
    return verdict == -6   ? DIBS_ERR_WRONGTYPE
           : verdict == -8 ? DIBS_ERR_SERVER
                           : DIBS_OK;
}

static void release_answered(struct dibs__call *call, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__batch *b = DIBS_OF(call, struct dibs__batch, call);
    struct dibs__reply one = {.type = REPLY_NUM};

    if (err == DIBS_OK && reply->len != b->count)
        err = DIBS_ERR_PROTOCOL;
    if (err != DIBS_OK) {
        answer_all(b, err, reply);
        return;
    }
    for (size_t i = 0; i < b->count; i++) {
        if (!dibs__reply_num(reply, i, &one.num))
            answer(b, i, DIBS_ERR_PROTOCOL, reply);
        else
            answer(b, i, refusal(one.num), &one);
    }
    dibs__free(b);
}

/* One reason for all. */
static void call_explained(struct dibs__call *call, dibs_err err,
                           const char *why)
{
    struct dibs__batch *b = DIBS_OF(call, struct dibs__batch, call);

    for (size_t i = 0; i < b->count; i++)
        dibs__op_explain(b->items[i].op, err, why);
}

/* ---- sending ----------------------------------------------------------- */

void dibs__batch_send(struct dibs__batch *b, bool direct)
{
    const struct dibs__op *op = b->items[0].op;
    struct dibs__route to = dibs__line_route(op->line);
    bool acquire = b->verb == VERB_ACQUIRE;
    int64_t now = dibs__now_ms();

    b->call.slot = op->line->slot;
    b->call.write = batch_write;
    b->call.done = acquire ? acquire_answered : release_answered;
    b->call.explain = call_explained;
    b->call.expects = 1u << REPLY_ARRAY | (acquire ? 1u << REPLY_NIL : 0);
    b->call.attempt_ms = dibs__line_client(op->line)->to.command_timeout_ms;
    b->call.deadline =
        acquire ? dibs__add(now, b->call.attempt_ms) : op->deadline;
    b->call.connect_by = acquire ? 0 : op->deadline;
    if (acquire) { /* one client's, so they are alike in this */
        b->call.replicas = op->replicas;
        b->call.replicas_ms = op->call.replicas_ms;
        b->call.writes = 1u << REPLY_NIL;
        b->call.deadline = dibs__add(b->call.deadline, op->call.replicas_ms);
    }
    if (direct)
        dibs__call_direct(to, &b->call);
    else
        dibs__call_start(to, &b->call);
}

void dibs__batch_drop(struct dibs__batch *b)
{
    answer_all(b, DIBS_ERR_CANCELED, NULL);
}
