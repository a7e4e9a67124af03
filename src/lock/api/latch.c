/* SPDX-License-Identifier: MIT
 *
 * latch.c - closed until it was counted down to zero: Redisson's latch.
 *
 * On the server a number, of what is left; without it the latch is open. Beside
 * it is a hash of notes: which tickets have counted, the deadline, and in which
 * life of the latch, for it may be set again. The number and the channel are
 * Redisson's, the notes are ours.
 *
 * Thread  app; waits on io.
 * Locks   line.mu.
 *
 * How     Nothing is held. A call that waits lines up in the waiting machine
 *         (wait_queue.c). The first of the line asks for all that stood in it
 * when it asked; if the latch is open, all of these go. One that came later may
 *         have closed it itself meanwhile, so it is asked for anew.
 *
 * Trouble Only the server's answer counts; a message is a hint. Whatever is
 *         lost, the first asks again every two seconds or so.
 */
#include "base/api_args.h"
#include "base/mem.h"
#include "lock/inspect/object_type.h"
#include "lock/inspect/request.h"

#include <string.h>

#define CHANNEL      "redisson_countdownlatch__channel__"
#define NOTES        ":dibs_down"
#define RETRY_MIN_MS 50
#define RETRY_MAX_MS 250

struct dibs_latch {
    dibs_lock *l;
};

/* ---- commands ---------------------------------------------------------- */

/* "{name}:dibs_down": in one slot with any name that has no closing brace. */
void dibs__latch_notes(struct dibs__buf *out,
                       const struct dibs__lock_entry *entry)
{
    dibs__buf_arg_open(out, entry->name_len + 2 + strlen(NOTES));
    dibs__buf_text(out, "{");
    dibs__buf_add(out, entry->name, entry->name_len);
    dibs__buf_text(out, "}" NOTES);
    dibs__buf_arg_close(out);
}

static void latch_keys(const struct dibs__lock_entry *entry,
                       struct dibs__buf *out)
{
    dibs__buf_arg(out, entry->name, entry->name_len);
    dibs__latch_notes(out, entry);
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

static void write_latch_look(const struct dibs__command_args *args,
                             struct dibs__buf *out, bool whole)
{
    dibs__script_head(out, &dibs__script_latch_look, whole, 2,
                      1 + dibs__publish_count(args->entry));
    latch_keys(args->entry, out);
    dibs__arg_write('c', args, out);
    dibs__arg_write('*', args, out);
}

static void latch_count_write(const struct dibs__request *r,
                              struct dibs__buf *out, bool whole)
{
    write_latch_look(&r->op.args, out, whole);
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

static struct dibs__operation *latch_op(const struct dibs__waiter *waiter)
{
    return DIBS_OF(waiter, struct dibs__operation, waiter);
}

static struct dibs__lock_entry *latch_line(struct dibs__wait_queue *queue)
{
    return DIBS_OF(queue, struct dibs__lock_entry, wait);
}

/* What the answer says: err OK: open, or TIMEOUT: its deadline has passed.
 * BUSY: it is closed, for so long at most. */
static dibs_err read_look(dibs_err err, const struct dibs__reply *reply,
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
        op->last_err = err; /* so that the reason stays */
        dibs__op_record_error_here(
            op, err, "'%.80s': the latch's deadline passed", op->entry->name);
    }
    dibs__op_finish(op, err);
}

/* Those that stood in the line when it was asked, but for this one. */
static void take_asked(struct dibs__lock_entry *entry, struct dibs__list *out)
    REQUIRES(entry->mu)
{
    struct dibs__list *all = &entry->wait.waiters;

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

static bool is_worth_retry(dibs_err err, const struct dibs__reply *reply)
{
    return err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN ||
           (err == DIBS_ERR_SERVER && !reply);
}

static void latch_answered(struct dibs__command *cmd, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct dibs__operation *op = DIBS_OF(cmd, struct dibs__operation, command);
    struct dibs__lock_entry *entry = op->entry;
    struct dibs__list open;
    int64_t busy_ms = 0;
    bool stays = false;

    dibs__list_init(&open);
    err = read_look(err, reply, &busy_ms);
    dibs__lock(&entry->mu);
    op->last_err = DIBS_OK;
    if (err == DIBS_ERR_BUSY) {
        stays = dibs__wait_queue_park(&entry->wait, &op->waiter,
                                      dibs__retry_delay_default(entry, busy_ms),
                                      cmd->sent_ms);
    } else if (is_worth_retry(err, reply)) {
        op->last_err = err;
        stays = dibs__wait_queue_park(
            &entry->wait, &op->waiter,
            dibs__random_in(RETRY_MIN_MS, RETRY_MAX_MS), 0);
    } else if (err == DIBS_OK || err == DIBS_ERR_TIMEOUT) {
        take_asked(entry, &open);
    }
    if (!stays) {
        dibs__wait_queue_leave(&entry->wait, &op->waiter);
        dibs__wait_queue_wake_head(
            &entry->wait); /* for those that came later */
    }
    dibs__unlock(&entry->mu);
    if (stays)
        return;
    bool passed = err == DIBS_ERR_TIMEOUT;
    finish_latch_wait(op, err == DIBS_ERR_BUSY ? DIBS_ERR_NOMEM : err, passed);
    for (struct dibs__list *l; (l = dibs__list_pop(&open));)
        finish_latch_wait(DIBS_OF(l, struct dibs__operation, waiter.link), err,
                          passed);
}

static void latch_wait_write(struct dibs__command *cmd, struct dibs__buf *out,
                             bool whole)
{
    write_latch_look(&DIBS_OF(cmd, struct dibs__operation, command)->args, out,
                     whole);
}

/* The question is for all that are in the line now. */
static bool latch_may_ask(struct dibs__wait_queue *queue,
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

static void latch_ask(struct dibs__waiter *waiter)
{
    struct dibs__operation *op = latch_op(waiter);

    dibs__op_send_own(op, latch_wait_write, 1u << REPLY_ARRAY, latch_answered,
                      dibs__entry_timeout(op->entry));
}

static void latch_end(struct dibs__waiter *waiter, dibs_err err)
{
    struct dibs__operation *op = latch_op(waiter);

    dibs__op_finish(op, err == DIBS_ERR_TIMEOUT && op->last_err ? op->last_err
                                                                : err);
}

static void latch_ref(struct dibs__wait_queue *queue)
{
    dibs__entry_ref(latch_line(queue));
}

static void latch_unref(struct dibs__wait_queue *queue)
{
    dibs__entry_unref(latch_line(queue));
}

static const struct dibs__wait_queue_ops latch_waits = {
    .info = dibs__entry_wait_info,
    .subscribe = dibs__entry_wait_subscribe,
    .may_retry = latch_may_ask,
    .retry = latch_ask,
    .end = latch_end,
    .ref = latch_ref,
    .unref = latch_unref,
};

/* No verbs: nothing is taken, and nothing given back. */
static const struct dibs__lock_type kind_latch = {
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
    struct dibs__wait_queue *queue = &entry->wait;
    bool asks = false, direct = op->on_caller_thread;
    dibs_err err = DIBS_OK;

    op->on_caller_thread = false; /* if it waits, io goes on with it */
    dibs__lock(&entry->mu);
    bool first = dibs__list_empty(&queue->waiters);
    if (atomic_load(&entry->manager->closing)) {
        err = DIBS_ERR_CLOSED;
    } else if (!first && !dibs__wait_queue_activate(queue)) {
        err = DIBS_ERR_NOMEM;
    } else {
        dibs__wait_queue_join(queue, &op->waiter, !first);
        asks = first && latch_may_ask(queue, &op->waiter);
    }
    dibs__unlock(&entry->mu);
    if (err != DIBS_OK) {
        dibs__op_finish(op, err);
    } else if (asks) {
        op->on_caller_thread = direct;
        latch_ask(&op->waiter);
    }
}

/* ---- public ------------------------------------------------------------ */

/* Its channel has the name in braces always, so a brace in the name spoils the
 * slot. */
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
        dibs__lock_new(c, &kind_latch, name, dibs__name_length(name), &l);
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

static dibs_err latch_refuse(const dibs_latch *l)
{
    return l ? dibs__lock_report_invalid_arg(l->l) : DIBS_ERR_INVALID;
}

static dibs_err take_latch_opts(const dibs_latch *l, const dibs_latch_opts *in,
                                dibs_latch_opts *o)
{
    if (dibs__check_not_null("latch", l) ||
        dibs__struct_take(&dibs__struct_latch_opts, in, o) ||
        dibs__check_time("wait_ms", o->wait_ms) ||
        dibs__check_time("deadline_ms", o->deadline_ms))
        return latch_refuse(l);
    if (o->ticket && (!*o->ticket ||
                      strnlen(o->ticket, DIBS_NAME_MAX + 1) > DIBS_NAME_MAX)) {
        dibs__reason_set(DIBS_ERR_INVALID, "the ticket must have 1 to %d bytes",
                         DIBS_NAME_MAX);
        return latch_refuse(l);
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
        return latch_refuse(l);
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

static dibs_err refuse_latch_cb(const dibs_latch *l)
{
    dibs__check_not_null("cb", NULL);
    return latch_refuse(l);
}

dibs_err dibs_latch_count_down_async(dibs_latch *l, const dibs_latch_opts *opts,
                                     dibs_cb cb, void *arg)
{
    return DIBS__API_CALL(cb ? latch_down(l, opts, NULL, cb, arg)
                             : refuse_latch_cb(l));
}

static dibs_err latch_count(dibs_latch *l, int64_t *left)
{
    struct dibs__request r = {.write = latch_count_write,
                              .read = latch_count_read};

    if (dibs__check_not_null("latch", l) || dibs__check_not_null("left", left))
        return latch_refuse(l);
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
    op->run = latch_wait_run;
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

/* Inside a callback it must not wait: what it waits for may be told by a
 * callback that waits for this one. */
static dibs_err latch_wait_inside(dibs_latch *l)
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
        err = latch_wait_inside(l);
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
                             : refuse_latch_cb(l));
}
