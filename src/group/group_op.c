/* SPDX-License-Identifier: MIT
 *
 * group_op.c - one group operation: references, steps, timers, result.
 *
 * Thread  app starts it; then the thread that receives a member's reply.
 * Locks   group.mu, never while an operation is started or a callback called.
 *
 * How     A group operation consists of ordinary operations on its members
 *         (member_op.c) and proceeds in steps: a step starts some of them, and
 *         when the last has ended, the next step runs. No thread blocks
 *         meanwhile, except a sync caller. The steps are in multi_lock.c,
 *         quorum_lock.c and group_release.c.
 *
 *         The completion client reports the result. The operation has a
 *         shutdown hook there: when the client closes, the operation stops;
 *         when the client's close timeout expires, the caller gets CLOSED.
 *
 *         The operation is freed when its result was reported and no member
 *         operation is in flight. It has a reference to the group.
 *
 *         The reason of a failure (dibs_error_text) is that of the first member
 *         with the verdict of the whole.
 *
 * States  state      event                                    next
 *         RUNNING    success, or a failure with nothing to
 *                    release                                  COMPLETED
 *                    cancel, the completion client closes,
 *                    or a failure with members to release     STOPPING
 *         STOPPING   all is released                          COMPLETED
 *         any        close timeout of the completion client   COMPLETED
 *         COMPLETED  no member operation is in flight         (freed)
 */
#include "group/group_op.h"

#include "base/mem.h"
#include "group/server_identity.h"

#include <stdio.h>
#include <time.h>

#define AWAIT_MS 3600000 /* one wait of a sync caller; repeated */

/* ---- acquires in flight ------------------------------------------------ */

static int op_order(const struct dibs__group_op *a,
                    const struct dibs__group_op *b)
{
    if (a->o.owner != b->o.owner)
        return a->o.owner < b->o.owner ? -1 : 1;
    return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

DIBS_TREE(dibs__group_ops, dibs__group_op, node, op_order);

struct dibs__group_op *dibs__group_ops_next(struct dibs__group *g,
                                            dibs_owner owner,
                                            struct dibs__group_op *op)
{
    struct dibs__group_op first = {.o.owner = owner};

    op = op ? DIBS_TREE_NEXT(dibs__group_ops, op)
            : RB_NFIND(dibs__group_ops, &g->ops, &first);
    return op && op->o.owner == owner ? op : NULL;
}

/* ---- creation ---------------------------------------------------------- */

void dibs__group_op_ref(struct dibs__group_op *op)
{
    atomic_fetch_add(&op->refs, 1);
}

void dibs__group_op_unref(struct dibs__group_op *op)
{
    struct dibs__group *g = op->g;

    if (atomic_fetch_sub(&op->refs, 1) != 1)
        return;
    dibs__lock(&g->mu);
    if (op->sequence)
        RB_REMOVE(dibs__group_ops, &g->ops, op);
    dibs__group_level_unref(g, op->level);
    for (size_t i = 0; i < g->n; i++)
        dibs__free(op->member_ops[i].error_text);
    dibs__unlock(&g->mu);
    dibs__free(op);
    dibs__group_unref(g);
}

static void group_op_hook_ref(struct dibs__shutdown_hook *hook)
{
    dibs__group_op_ref(DIBS_OF(hook, struct dibs__group_op, shutdown_hook));
}

static void group_op_client_close(struct dibs__shutdown_hook *hook);
static void group_op_close_timeout(struct dibs__shutdown_hook *hook);

struct dibs__group_op *dibs__group_op_new(struct dibs__group *g,
                                          const dibs_lock_opts *o)
{
    struct dibs__group_op *op =
        dibs__calloc(1, sizeof *op + g->n * sizeof op->member_ops[0]);

    if (!op)
        return NULL;
    op->g = g;
    op->o = *o;
    if (!op->o.owner)
        op->o.owner = dibs__owner_thread();
    atomic_init(&op->refs, 1);
    op->shutdown_hook.ref = group_op_hook_ref;
    op->shutdown_hook.on_close = group_op_client_close;
    op->shutdown_hook.on_close_timeout = group_op_close_timeout;
    op->deadline =
        o->wait_ms ? dibs__add(dibs__now_ms(), o->wait_ms) : INT64_MAX;
    for (size_t i = 0; i < g->n; i++) {
        op->member_ops[i].group_op = op;
        op->member_ops[i].index = i;
    }
    dibs__group_ref(g);
    return op;
}

/* ---- error text -------------------------------------------------------- */

static dibs_err verdict_of(const struct dibs__group_op *op, size_t i)
{
    if (op->releasing)
        return op->level->members[i].acquired ? op->member_ops[i].err : DIBS_OK;
    return op->level->members[i].err;
}

/* Returns the first member with that verdict; g->n: none. */
static size_t find_verdict(const struct dibs__group_op *op, dibs_err err)
{
    size_t i = 0;

    while (i < op->g->n && verdict_of(op, i) != err)
        i++;
    return i;
}

/* Returns whether err concerns the call itself, not one member. */
static bool is_call_error(dibs_err err)
{
    return err == DIBS_OK || err == DIBS_ERR_NOMEM || err == DIBS_ERR_CLOSED ||
           err == DIBS_ERR_CANCELED || err == DIBS_ERR_NOT_OWNER;
}

/* Returns false if no member has a verdict that explains the result. */
static bool write_error_text(struct dibs__group_op *op, char *out, size_t size)
    REQUIRES(op->g->mu)
{
    dibs_err err = op->err;
    size_t i = is_call_error(err) ? op->g->n : find_verdict(op, err);

    if (err == DIBS_ERR_TIMEOUT && i == op->g->n) {
        err = DIBS_ERR_BUSY;
        i = find_verdict(op, err);
    }
    if (i == op->g->n)
        return false;
    const struct dibs__member *member = &op->g->members[i];
    const struct dibs__reason *text = op->member_ops[i].error_text;
    if (err == DIBS_ERR_INVALID) {
        dibs__server_identity_report(op->g, i);
        snprintf(out, size, "%s", dibs_error_text());
    } else if (text && text->err == err) {
        snprintf(out, size, "'%.80s': %s", member->entry->name, text->text);
    } else {
        snprintf(out, size, "'%.80s' at %s: %s", member->entry->name,
                 member->server, dibs_strerror(err));
    }
    return true;
}

/* Sets dibs_error_text of this thread. */
static void set_error_text(struct dibs__group_op *op) EXCLUDES(op->g->mu)
{
    char text[DIBS__REASON_MAX];

    dibs__lock(&op->g->mu);
    dibs_err err = op->err;
    bool known = write_error_text(op, text, sizeof text);
    dibs__unlock(&op->g->mu);
    if (!known)
        return;
    dibs__reason_set(err, "%s", text);
    if (err == DIBS_ERR_INVALID)
        dibs__client_report_invalid_arg(op->g->members[0].c);
}

/* ---- completion -------------------------------------------------------- */

static dibs_client *completion_client(const struct dibs__group_op *op)
{
    return op->g->members[op->completion_member].c;
}

static struct dibs__lock_manager *
completion_manager(const struct dibs__group_op *op)
{
    return op->g->members[op->completion_member].entry->manager;
}

void dibs__group_op_stop(struct dibs__group_op *op, dibs_err err)
{
    if (op->state != GROUP_OP_RUNNING)
        return;
    op->state = GROUP_OP_STOPPING;
    op->err = err;
}

dibs_err dibs__group_op_error(struct dibs__group_op *op)
{
    dibs__lock(&op->g->mu);
    dibs_err err = op->err;
    dibs__unlock(&op->g->mu);
    return err;
}

bool dibs__group_op_complete(struct dibs__group_op *op, dibs_err err)
{
    if (op->state == GROUP_OP_COMPLETED)
        return false;
    op->state = GROUP_OP_COMPLETED;
    op->err = err;
    return true;
}

static void group_op_callback_run(struct dibs__callback *cb, bool drop)
{
    struct dibs__group_op *op = DIBS_OF(cb, struct dibs__group_op, cb);

    if (!drop) {
        dibs_err err = dibs__group_op_error(op);
        DIBS__API_CALL((set_error_text(op), err));
        op->fn(err, op->arg);
    }
    dibs__group_op_unref(op);
}

static void push_callback(void *arg)
{
    struct dibs__group_op *op = arg;
    struct dibs__lock_manager *manager = completion_manager(op);

    op->cb.run = group_op_callback_run;
    dibs__callbacks_push(&completion_client(op)->callbacks, &op->cb);
    atomic_fetch_sub(&manager->in_flight, 1);
}

/* A release is not reported while on_lost runs for the level it released. */
void dibs__group_op_finish(struct dibs__group_op *op)
{
    dibs__shutdown_hook_unregister(completion_manager(op), &op->shutdown_hook);
    if (!op->async)
        sem_post(&op->done); /* the caller has a reference */
    else if (!op->releasing || !op->level ||
             !dibs__loss_on_done(op->level->loss, push_callback, op))
        push_callback(op);
}

void dibs__group_op_set_result(struct dibs__group_op *op, dibs_err err)
{
    dibs__lock(&op->g->mu);
    bool first = dibs__group_op_complete(op, err);
    dibs__unlock(&op->g->mu);
    if (first)
        dibs__group_op_finish(op);
}

void dibs__group_op_fail(struct dibs__group_op *op, dibs_err err)
{
    dibs__lock(&op->g->mu);
    dibs__group_level_record(op->g, op->level);
    dibs__unlock(&op->g->mu);
    dibs__group_op_set_result(op, err);
}

/* ---- stop -------------------------------------------------------------- */

/* Stops the operation and cancels the waiters of its members. */
static void cancel_op(struct dibs__group *g, struct dibs__group_op *op,
                      dibs_err why) REQUIRES(g->mu)
{
    if (op->state == GROUP_OP_RUNNING) {
        op->state = GROUP_OP_STOPPING;
        op->err = why;
    }
    for (size_t i = 0; i < g->n; i++) {
        struct dibs__lock_entry *entry = g->members[i].entry;
        if (op->member_ops[i].state != MEMBER_ACQUIRING ||
            dibs__client_enter(g->members[i].c) != DIBS_OK)
            continue; /* a client that closes cancels its waiters itself */
        dibs__lock(&entry->mu);
        dibs__wait_queue_cancel(&entry->wait_queue,
                                &op->member_ops[i].lock_op.waiter);
        dibs__unlock(&entry->mu);
        dibs__client_leave(g->members[i].c);
    }
}

static void group_op_client_close(struct dibs__shutdown_hook *hook)
{
    struct dibs__group_op *op =
        DIBS_OF(hook, struct dibs__group_op, shutdown_hook);
    struct dibs__group *g = op->g;

    dibs__lock(&g->mu);
    cancel_op(g, op, DIBS_ERR_CLOSED);
    dibs__unlock(&g->mu);
    dibs__group_op_unref(op);
}

static void group_op_close_timeout(struct dibs__shutdown_hook *hook)
{
    struct dibs__group_op *op =
        DIBS_OF(hook, struct dibs__group_op, shutdown_hook);

    dibs__group_op_set_result(op, DIBS_ERR_CLOSED);
    dibs__group_op_unref(op);
}

dibs_err dibs__group_ops_cancel(struct dibs__group *g, dibs_owner owner)
{
    dibs_err err = DIBS_ERR_NOT_OWNER;

    dibs__lock(&g->mu);
    for (struct dibs__group_op *op = NULL;
         (op = dibs__group_ops_next(g, owner, op));) {
        if (op->state == GROUP_OP_COMPLETED)
            continue;
        cancel_op(g, op, DIBS_ERR_CANCELED);
        err = DIBS_OK;
    }
    dibs__unlock(&g->mu);
    return err;
}

/* ---- steps ------------------------------------------------------------- */

void dibs__group_op_pending_done(struct dibs__group_op *op, bool detached)
{
    dibs__lock(&op->g->mu);
    op->pending -= !detached;
    bool last = !detached && op->pending == 0;
    void (*step)(struct dibs__group_op *) = op->step;
    dibs__unlock(&op->g->mu);
    if (last)
        step(op);
    dibs__group_op_unref(op);
}

void dibs__group_op_pending_begin(struct dibs__group_op *op,
                                  void (*step)(struct dibs__group_op *))
{
    dibs__group_op_ref(op);
    dibs__lock(&op->g->mu);
    op->step = step;
    op->pending++;
    dibs__unlock(&op->g->mu);
}

void dibs__group_op_pending_end(struct dibs__group_op *op)
{
    dibs__group_op_pending_done(op, false);
}

/* ---- timers ------------------------------------------------------------ */

/* Messages that arrived before the timer started shorten it, too. */
static void on_timer_start(struct dibs__group_timer *timer)
{
    struct dibs__group_op *op = DIBS_OF(timer, struct dibs__group_op, timer);

    dibs__lock(&op->g->mu);
    op->timer_manager = timer->manager;
    int64_t ms =
        op->quorum.shortened_pause ? op->quorum.shortened_pause(op) : INT64_MAX;
    dibs__unlock(&op->g->mu);
    if (ms < INT64_MAX)
        dibs__group_timer_shorten(timer, ms);
}

static void on_timer_expire(struct dibs__group_timer *timer)
{
    struct dibs__group_op *op = DIBS_OF(timer, struct dibs__group_op, timer);

    dibs__lock(&op->g->mu);
    op->timer_manager = NULL;
    dibs__unlock(&op->g->mu);
    dibs__group_op_pending_end(op);
}

/* Runs on the loop that had the timer when the task was posted; the timer may
 * have expired since. */
static void run_shorten_task(struct dibs__task *t)
{
    struct dibs__group_op *op = DIBS_OF(t, struct dibs__group_op, shorten_task);

    dibs__lock(&op->g->mu);
    bool still_running = op->timer_manager == op->shorten_manager;
    int64_t ms = op->shorten_ms;
    op->shorten_manager = NULL;
    dibs__unlock(&op->g->mu);
    if (still_running)
        dibs__group_timer_shorten(&op->timer, ms);
    dibs__group_op_unref(op);
}

/* timer_manager cannot be freed while the timer runs on it. */
void dibs__group_op_shorten_timer(struct dibs__group_op *op, int64_t ms)
{
    dibs__lock(&op->g->mu);
    bool post = op->timer_manager && !op->shorten_manager;
    if (post || (op->shorten_manager && ms < op->shorten_ms))
        op->shorten_ms = ms;
    if (post) {
        op->shorten_manager = op->timer_manager;
        op->shorten_task.run = run_shorten_task;
        dibs__group_op_ref(op);
        dibs__loop_post(&op->timer_manager->c->loop, &op->shorten_task);
    }
    dibs__unlock(&op->g->mu);
}

void dibs__group_op_timer_start(struct dibs__group_op *op, int64_t ms,
                                void (*step)(struct dibs__group_op *))
{
    dibs__group_op_pending_begin(op, step);
    if (dibs__group_timer_start(&op->timer, op->g, ms, on_timer_start,
                                on_timer_expire))
        return;
    dibs__lock(&op->g->mu);
    dibs__group_op_stop(op, DIBS_ERR_CLOSED); /* all clients are closing */
    dibs__unlock(&op->g->mu);
    dibs__group_op_pending_end(op);
}

static void on_overdue_timer(struct dibs__group_timer *timer);

/* Starts the timer that calls quorum.on_overdue for an async operation, until
 * it is COMPLETED; a sync caller calls it itself (await_result). Consumes a
 * reference. */
static void overdue_timer_start(struct dibs__group_op *op)
{
    dibs__lock(&op->g->mu);
    bool completed = op->state == GROUP_OP_COMPLETED;
    dibs__unlock(&op->g->mu);
    if (completed || !dibs__group_timer_start(&op->quorum.overdue_timer, op->g,
                                              op->quorum.reply_timeout_ms, NULL,
                                              on_overdue_timer))
        dibs__group_op_unref(op);
}

static void on_overdue_timer(struct dibs__group_timer *timer)
{
    struct dibs__group_op *op =
        DIBS_OF(timer, struct dibs__group_op, quorum.overdue_timer);

    op->quorum.on_overdue(op);
    overdue_timer_start(op);
}

static void await_result(struct dibs__group_op *op)
{
    struct timespec until;

    for (;;) {
        int64_t ms =
            op->quorum.on_overdue ? op->quorum.reply_timeout_ms : AWAIT_MS;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += ms / 1000;
        until.tv_nsec += ms % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (sem_clockwait(&op->done, CLOCK_MONOTONIC, &until) == 0)
            return;
        if (op->quorum.on_overdue)
            op->quorum.on_overdue(op);
    }
}

/* ---- start ------------------------------------------------------------- */

dibs_err dibs__group_op_choose_client(struct dibs__group_op *op, bool async)
{
    dibs_err err = DIBS_OK;

    for (size_t i = 0; async && i < op->g->n; i++) {
        op->completion_member = i;
        err = dibs__client_enter(completion_client(op));
        if (err != DIBS_OK)
            continue;
        err = dibs__callbacks_ensure_thread(&completion_client(op)->callbacks);
        if (err == DIBS_OK) /* until push_callback */
            atomic_fetch_add(&completion_manager(op)->in_flight, 1);
        dibs__client_leave(completion_client(op));
        return err;
    }
    return err;
}

/* From here on cancel and the shutdown of the completion client reach it. */
static void register_op(struct dibs__group_op *op)
{
    if (!op->releasing) {
        dibs__lock(&op->g->mu);
        op->sequence = ++op->g->acquire_count;
        RB_INSERT(dibs__group_ops, &op->g->ops, op);
        dibs__unlock(&op->g->mu);
    }
    dibs__shutdown_hook_register(completion_manager(op), &op->shutdown_hook);
}

static dibs_err run_and_wait(struct dibs__group_op *op,
                             void (*start)(struct dibs__group_op *))
{
    sem_init(&op->done, 0, 0);
    register_op(op);
    op->on_caller_thread = true;
    start(op);
    await_result(op);
    sem_destroy(&op->done);
    set_error_text(op);
    return dibs__group_op_error(op);
}

dibs_err dibs__group_op_start(struct dibs__group_op *op,
                              void (*start)(struct dibs__group_op *),
                              dibs_cb fn, void *arg)
{
    dibs_err err = DIBS_OK;

    dibs__cancel_disable(); /* this thread may finish other callers' operations
                             */
    if (fn) {
        op->async = true;
        op->fn = fn;
        op->arg = arg;
        dibs__group_op_ref(op); /* for the callback */
        register_op(op);
        start(op);
        if (op->quorum.on_overdue) {
            dibs__group_op_ref(op); /* for the overdue timer */
            overdue_timer_start(op);
        }
    } else {
        err = run_and_wait(op, start);
    }
    dibs__group_op_unref(op);
    dibs__cancel_restore();
    return err;
}
