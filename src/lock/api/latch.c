/* SPDX-License-Identifier: MIT
 *
 * latch.c - count-down latch: closed until counted down to 0 (Redisson's
 * RCountDownLatch).
 *
 * The server keeps the remaining count in a string; without it the latch is
 * open. A hash beside it has the tickets that have counted, the deadline, and
 * the generation of the latch, which increases each time it is set. The string
 * and the channel are compatible with Redisson; the hash is used by dibs only.
 *
 * Thread  app; waits on io.
 * Locks   entry.mu.
 *
 * How     Nothing is held. A wait joins the entry's wait queue (wait_queue.c).
 *         The head of the queue queries the latch for all waiters that are in
 *         the queue when the query is sent (args.all); if it is open, all of
 *         them finish. A waiter that joined later may itself have set the latch
 *         again meanwhile, so it needs a query of its own.
 *
 * Limits  Only the server's reply counts; a message is a hint. If messages are
 *         lost, the head queries again about every two seconds.
 */
#include "base/api_args.h"
#include "base/mem.h"
#include "lock/inspect/object_type.h"
#include "lock/inspect/request.h"

#include <string.h>

#define CHANNEL      "redisson_countdownlatch__channel__"
#define HASH_SUFFIX  ":dibs_down"
#define RETRY_MIN_MS 50 /* after a failed query */
#define RETRY_MAX_MS 250

struct dibs_latch {
    dibs_lock *l;
};

/* ---- commands ---------------------------------------------------------- */

/* "{name}:dibs_down": has the slot of any name without a closing brace. */
void dibs__latch_hash_key(struct dibs__buf *out,
                          const struct dibs__lock_entry *entry)
{
    dibs__buf_arg_open(out, entry->name_len + 2 + strlen(HASH_SUFFIX));
    dibs__buf_text(out, "{");
    dibs__buf_add(out, entry->name, entry->name_len);
    dibs__buf_text(out, "}" HASH_SUFFIX);
    dibs__buf_arg_close(out);
}

static void latch_keys(const struct dibs__lock_entry *entry,
                       struct dibs__buf *out)
{
    dibs__buf_arg(out, entry->name, entry->name_len);
    dibs__latch_hash_key(out, entry);
}

static void latch_set_write(const struct dibs__request *r,
                            struct dibs__buf *out, bool whole)
{
    dibs__request_head(r, &dibs__script_latch_set, 2, 4, out, whole);
    latch_keys(r->op.entry, out);
    dibs__buf_arg_num(out, r->number);
    dibs__buf_arg_num(out, r->within_ms);
    dibs__buf_arg_text(out, r->id);
    dibs__request_args(r, "c*", out);
}

static void latch_down_write(const struct dibs__request *r,
                             struct dibs__buf *out, bool whole)
{
    dibs__request_head(r, &dibs__script_latch_down, 2, 3, out, whole);
    latch_keys(r->op.entry, out);
    dibs__buf_arg_text(out, r->text ? r->text : r->id);
    dibs__buf_arg_num(out, r->text != NULL);
    dibs__request_args(r, "c*", out);
}

static void write_latch_query(const struct dibs__command_args *args,
                              struct dibs__buf *out, bool whole)
{
    dibs__script_head(out, &dibs__script_latch_look, whole, 2,
                      1 + dibs__publish_arg_count(args->entry));
    latch_keys(args->entry, out);
    dibs__param_write('c', args, out);
    dibs__param_write('*', args, out);
}

static void latch_count_write(const struct dibs__request *r,
                              struct dibs__buf *out, bool whole)
{
    write_latch_query(&r->op.args, out, whole);
}

static dibs_err latch_set_read(struct dibs__request *r,
                               const struct dibs__reply *reply)
{
    return dibs__reply_num(reply, 0, &r->result[0]) &&
                   dibs__reply_num(reply, 1, &r->result[1])
               ? DIBS_OK
               : DIBS_ERR_PROTOCOL;
}

static dibs_err latch_down_read(struct dibs__request *r,
                                const struct dibs__reply *reply)
{
    if (reply->type != REPLY_NUM)
        return DIBS_ERR_PROTOCOL;
    r->result[0] = reply->num;
    return DIBS_OK;
}

static dibs_err latch_count_read(struct dibs__request *r,
                                 const struct dibs__reply *reply)
{
    return dibs__reply_num(reply, 0, &r->result[0]) ? DIBS_OK
                                                    : DIBS_ERR_PROTOCOL;
}

/* ---- waiting ----------------------------------------------------------- */

static struct dibs__operation *latch_op_of(const struct dibs__waiter *waiter)
{
    return DIBS_OF(waiter, struct dibs__operation, waiter);
}

static struct dibs__lock_entry *latch_entry_of(struct dibs__wait_queue *queue)
{
    return DIBS_OF(queue, struct dibs__lock_entry, wait_queue);
}

/* Returns OK if the latch is open, TIMEOUT if its deadline has passed, BUSY if
 * it is closed, for *busy_ms at most. */
static dibs_err read_latch_query(dibs_err err, const struct dibs__reply *reply,
                                 int64_t *busy_ms)
{
    int64_t left, passed;

    if (err != DIBS_OK)
        return err;
    if (!dibs__reply_num(reply, 0, &left) ||
        !dibs__reply_num(reply, 1, busy_ms) ||
        !dibs__reply_num(reply, 2, &passed))
        return DIBS_ERR_PROTOCOL;
    if (left > 0)
        return DIBS_ERR_BUSY;
    return passed ? DIBS_ERR_TIMEOUT : DIBS_OK;
}

static void finish_latch_wait(struct dibs__operation *op, dibs_err err,
                              bool passed)
{
    if (passed) {
        op->last_err = err; /* keeps the reason */
        dibs__op_record_server_error(
            op, err, "'%.80s': the latch's deadline passed", op->entry->name);
    }
    dibs__op_finish(op, err);
}

/* Moves to `out` the parked waiters that were in the queue when the query was
 * sent. */
static void take_covered(struct dibs__lock_entry *entry, struct dibs__list *out)
    REQUIRES(entry->mu)
{
    struct dibs__list *all = &entry->wait_queue.waiters;

    for (struct dibs__list *l = all->next, *n; l != all; l = n) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, waiter.link);
        n = l->next;
        if (op->waiter.state != WAITER_PARKED || !op->args.all)
            continue;
        dibs__list_del(l);
        op->waiter.state = WAITER_IDLE;
        dibs__list_add(out, l);
    }
}

static bool is_latch_retryable(dibs_err err, const struct dibs__reply *reply)
{
    return err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN ||
           (err == DIBS_ERR_SERVER && !reply);
}

static void on_latch_wait_reply(struct dibs__command *cmd, dibs_err err,
                                const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list covered;
    int64_t busy_ms = 0;
    bool parked = false;

    dibs__list_init(&covered);
    err = read_latch_query(err, reply, &busy_ms);
    dibs__lock(&entry->mu);
    op->last_err = DIBS_OK;
    if (err == DIBS_ERR_BUSY) {
        parked = dibs__wait_queue_park(
            &entry->wait_queue, &op->waiter,
            dibs__retry_delay_default(entry, busy_ms), cmd->sent_ms);
    } else if (is_latch_retryable(err, reply)) {
        op->last_err = err;
        parked = dibs__wait_queue_park(
            &entry->wait_queue, &op->waiter,
            dibs__random_in(RETRY_MIN_MS, RETRY_MAX_MS), 0);
    } else if (err == DIBS_OK || err == DIBS_ERR_TIMEOUT) {
        take_covered(entry, &covered);
    }
    if (!parked) {
        dibs__wait_queue_leave(&entry->wait_queue, &op->waiter);
        /* for waiters that joined after the query */
        dibs__wait_queue_wake_head(&entry->wait_queue);
    }
    dibs__unlock(&entry->mu);
    if (parked)
        return;
    bool passed = err == DIBS_ERR_TIMEOUT;
    finish_latch_wait(op, err == DIBS_ERR_BUSY ? DIBS_ERR_NOMEM : err, passed);
    for (struct dibs__list *l; (l = dibs__list_pop(&covered));)
        finish_latch_wait(DIBS_OF(l, struct dibs__operation, waiter.link), err,
                          passed);
}

static void latch_wait_write(struct dibs__command *cmd, struct dibs__buf *out,
                             bool whole)
{
    write_latch_query(&DIBS_OF(cmd, struct dibs__operation, command)->args, out,
                      whole);
}

/* Marks all waiters in the queue as covered by the query that follows. */
static bool latch_may_query(struct dibs__wait_queue *queue,
                            struct dibs__waiter *waiter)
{
    dibs__assert_held(queue->mu);
    if (waiter->state != WAITER_PARKED)
        return false;
    for (struct dibs__list *l = queue->waiters.next; l != &queue->waiters;
         l = l->next)
        DIBS_OF(l, struct dibs__operation, waiter.link)->args.all = true;
    waiter->state = WAITER_IN_FLIGHT;
    return true;
}

static void latch_query(struct dibs__waiter *waiter)
{
    struct dibs__operation *op = latch_op_of(waiter);

    dibs__op_send_custom(op, latch_wait_write, 1u << REPLY_ARRAY,
                         on_latch_wait_reply, dibs__entry_timeout(op->entry));
}

static void latch_end(struct dibs__waiter *waiter, dibs_err err)
{
    struct dibs__operation *op = latch_op_of(waiter);

    dibs__op_finish(op, err == DIBS_ERR_TIMEOUT && op->last_err ? op->last_err
                                                                : err);
}

static void latch_ref(struct dibs__wait_queue *queue)
{
    dibs__entry_ref(latch_entry_of(queue));
}

static void latch_unref(struct dibs__wait_queue *queue)
{
    dibs__entry_unref(latch_entry_of(queue));
}

static const struct dibs__wait_queue_ops latch_waits = {
    .info = dibs__entry_wait_info,
    .subscribe = dibs__entry_wait_subscribe,
    .may_retry = latch_may_query,
    .retry = latch_query,
    .end = latch_end,
    .ref = latch_ref,
    .unref = latch_unref,
};

/* Without lock commands: a latch is not acquired or released. */
static const struct dibs__lock_type latch_type = {
    .id = TYPE_LATCH,
    .layout = LAYOUT_LATCH,
    .channel = CHANNEL,
    .always_braces_channel = true,
    .owner_suffix = "",
    .retry_policy = RETRY_HEAD_ONLY,
    .wait_ops = &latch_waits,
};

static void latch_wait_run(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__wait_queue *queue = &entry->wait_queue;
    bool queries = false, on_caller_thread = op->on_caller_thread;
    dibs_err err = DIBS_OK;

    op->on_caller_thread = false; /* if it waits, io resumes it */
    dibs__lock(&entry->mu);
    bool first = dibs__list_empty(&queue->waiters);
    if (atomic_load(&entry->manager->closing)) {
        err = DIBS_ERR_CLOSED;
    } else if (!first && !dibs__wait_queue_activate(queue)) {
        err = DIBS_ERR_NOMEM;
    } else {
        dibs__wait_queue_join(queue, &op->waiter, !first);
        queries = first && latch_may_query(queue, &op->waiter);
    }
    dibs__unlock(&entry->mu);
    if (err != DIBS_OK) {
        dibs__op_finish(op, err);
    } else if (queries) {
        op->on_caller_thread = on_caller_thread;
        latch_query(&op->waiter);
    }
}

/* ---- public ------------------------------------------------------------ */

/* The channel always has the name in braces. A closing brace in the name would
 * end the hash tag early, and the channel would be in another slot. */
static dibs_err check_latch_name(dibs_client *c, const char *name)
{
    if (!c || !c->cluster || !name || !strchr(name, '}'))
        return DIBS_OK;
    dibs__reason_set(DIBS_ERR_INVALID,
                     "'%.80s' is no name for a latch in a cluster: it has a "
                     "closing brace",
                     name);
    return dibs__client_report_invalid_arg(c);
}

static dibs_err latch_new(dibs_client *c, const char *name, dibs_latch **out)
{
    dibs_lock *l = NULL;

    if (dibs__check_not_null("out", out) != DIBS_OK)
        return dibs__client_report_invalid_arg(c);
    if (check_latch_name(c, name) != DIBS_OK)
        return DIBS_ERR_INVALID;
    dibs_err err =
        dibs__lock_new(c, &latch_type, name, dibs__name_length(name), &l);
    if (err != DIBS_OK)
        return err;
    dibs_latch *latch = dibs__malloc(sizeof *latch);
    if (!latch) {
        dibs_lock_free(l);
        return DIBS_ERR_NOMEM;
    }
    latch->l = l;
    *out = latch;
    return DIBS_OK;
}

dibs_err dibs_latch_new(dibs_client *c, const char *name, dibs_latch **out)
{
    return DIBS__API_CALL(latch_new(c, name, out));
}

void dibs_latch_free(dibs_latch *l)
{
    if (!l)
        return;
    dibs_lock_free(l->l);
    dibs__free(l);
}

static dibs_err latch_report_invalid(const dibs_latch *l)
{
    return l ? dibs__lock_report_invalid_arg(l->l) : DIBS_ERR_INVALID;
}

static dibs_err take_latch_opts(const dibs_latch *l, const dibs_latch_opts *in,
                                dibs_latch_opts *o)
{
    if (dibs__check_not_null("latch", l) ||
        dibs__struct_read(&dibs__struct_latch_opts, in, o) ||
        dibs__check_time("wait_ms", o->wait_ms) ||
        dibs__check_time("deadline_ms", o->deadline_ms))
        return latch_report_invalid(l);
    if (o->ticket && (!*o->ticket ||
                      strnlen(o->ticket, DIBS_NAME_MAX + 1) > DIBS_NAME_MAX)) {
        dibs__reason_set(DIBS_ERR_INVALID, "the ticket must have 1 to %d bytes",
                         DIBS_NAME_MAX);
        return latch_report_invalid(l);
    }
    return DIBS_OK;
}

static dibs_err latch_set(dibs_latch *l, int64_t count,
                          const dibs_latch_opts *opts, bool *was_set)
{
    struct dibs__request r = {
        .write = latch_set_write, .read = latch_set_read, .number = count};
    dibs_latch_opts o;

    if (take_latch_opts(l, opts, &o) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (count < 0 || count > DIBS_MS_MAX) {
        dibs__reason_set(DIBS_ERR_INVALID,
                         "count is %lld, it must be 0 to %lld",
                         (long long)count, (long long)DIBS_MS_MAX);
        return latch_report_invalid(l);
    }
    r.within_ms = o.deadline_ms;
    dibs_err err = dibs__request_run(l->l, &r, NULL, NULL);
    if (err == DIBS_OK && was_set)
        *was_set = r.result[0] == 1;
    return err;
}

dibs_err dibs_latch_set(dibs_latch *l, int64_t count,
                        const dibs_latch_opts *opts, bool *was_set)
{
    return DIBS__API_CALL(latch_set(l, count, opts, was_set));
}

static dibs_err latch_down(dibs_latch *l, const dibs_latch_opts *opts,
                           int64_t *left, dibs_cb cb, void *arg)
{
    struct dibs__request r = {.write = latch_down_write,
                              .read = latch_down_read};
    dibs_latch_opts o;

    if (take_latch_opts(l, opts, &o) != DIBS_OK)
        return DIBS_ERR_INVALID;
    r.text = o.ticket;
    dibs_err err = dibs__request_run(l->l, &r, cb, arg);
    if (err == DIBS_OK && left)
        *left = r.result[0];
    return err;
}

dibs_err dibs_latch_count_down(dibs_latch *l, const dibs_latch_opts *opts,
                               int64_t *left)
{
    return DIBS__API_CALL(latch_down(l, opts, left, NULL, NULL));
}

static dibs_err latch_report_null_cb(const dibs_latch *l)
{
    dibs__check_not_null("cb", NULL);
    return latch_report_invalid(l);
}

dibs_err dibs_latch_count_down_async(dibs_latch *l, const dibs_latch_opts *opts,
                                     dibs_cb cb, void *arg)
{
    return DIBS__API_CALL(cb ? latch_down(l, opts, NULL, cb, arg)
                             : latch_report_null_cb(l));
}

static dibs_err latch_count(dibs_latch *l, int64_t *left)
{
    struct dibs__request r = {.write = latch_count_write,
                              .read = latch_count_read};

    if (dibs__check_not_null("latch", l) || dibs__check_not_null("left", left))
        return latch_report_invalid(l);
    dibs_err err = dibs__request_run(l->l, &r, NULL, NULL);
    if (err == DIBS_OK)
        *left = r.result[0];
    return err;
}

dibs_err dibs_latch_count(dibs_latch *l, int64_t *left)
{
    return DIBS__API_CALL(latch_count(l, left));
}

static void fill_latch_wait(struct dibs__operation *op,
                            const dibs_latch_opts *o)
{
    op->start = latch_wait_run;
    op->waiter.deadline =
        o->wait_ms ? dibs__add(dibs__now_ms(), o->wait_ms) : INT64_MAX;
}

static dibs_err latch_wait_sync(dibs_latch *l, const dibs_latch_opts *o)
{
    struct dibs__operation op;

    dibs__op_init(&op, l->l);
    fill_latch_wait(&op, o);
    return dibs__op_wait(&op);
}

static dibs_err latch_wait_async(dibs_latch *l, const dibs_latch_opts *o,
                                 dibs_cb cb, void *arg)
{
    dibs_err err = dibs__callbacks_ensure_thread(&l->l->c->callbacks);

    if (err != DIBS_OK)
        return err;
    struct dibs__operation *op = dibs__op_new(l->l, sizeof *op);
    if (!op)
        return DIBS_ERR_NOMEM;
    fill_latch_wait(op, o);
    op->fn = cb;
    op->arg = arg;
    dibs__op_begin(op);
    return DIBS_OK;
}

/* Inside a callback it queries once and returns DEADLOCK instead of waiting: a
 * callback that runs after this one may have to count down. */
static dibs_err latch_wait_in_callback(dibs_latch *l)
{
    int64_t left;
    dibs_err err = latch_count(l, &left);

    return err == DIBS_OK && left > 0 ? DIBS_ERR_DEADLOCK : err;
}

static dibs_err latch_wait(dibs_latch *l, const dibs_latch_opts *opts,
                           dibs_cb cb, void *arg)
{
    dibs_latch_opts o;

    if (take_latch_opts(l, opts, &o) != DIBS_OK)
        return DIBS_ERR_INVALID;
    dibs_err err = dibs__lock_enter(l->l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->l->c; /* a callback may free the handle meanwhile */
    if (cb)
        err = latch_wait_async(l, &o, cb, arg);
    else if (dibs__callbacks_inside(&c->callbacks))
        err = latch_wait_in_callback(l);
    else
        err = latch_wait_sync(l, &o);
    dibs__client_leave(c);
    return err;
}

dibs_err dibs_latch_wait(dibs_latch *l, const dibs_latch_opts *opts)
{
    return DIBS__API_CALL(latch_wait(l, opts, NULL, NULL));
}

dibs_err dibs_latch_wait_async(dibs_latch *l, const dibs_latch_opts *opts,
                               dibs_cb cb, void *arg)
{
    return DIBS__API_CALL(cb ? latch_wait(l, opts, cb, arg)
                             : latch_report_null_cb(l));
}
