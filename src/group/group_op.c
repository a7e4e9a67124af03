/* SPDX-License-Identifier: MIT
 *
 * group_op.c - one operation on several locks: its life, its steps, its end.
 *
 * Thread  app starts it; then the thread that has a member's answer.
 * Locks   group.mu, never while anything is started or told.
 *
 * How     An operation on a group is made of ordinary operations on its members
 *         (member_op.c) and goes from step to step: some members are started,
 *         and when the last of them has ended, the next step is taken. No
 *         thread waits meanwhile, except a sync caller. The steps are in
 *         multi_lock.c, quorum_lock.c and group_release.c.
 *
 *         One client, the home, tells the result. The operation is registered
 *         there: a client that closes stops it, and when the client's time is
 *         over, the caller is told CLOSED.
 *
 *         The operation is freed when its caller is told and no member is in
 *         flight; the group lives as long.
 *
 * States  state     what can happen                           next
 *         RUNNING   it succeeds; it fails for itself          TOLD
 *                   cancel; its client closes; a failure      STOPPING
 *                   for which members must be given back
 *         STOPPING  all is given back                         TOLD
 *         any       the time of its home client is over       TOLD (CLOSED)
 *         TOLD      members may still be in flight            (freed)
 */
#include "group/group_op.h"

#include "base/mem.h"

#include <time.h>

#define AWAIT_MS 3600000

/* ---- those in flight --------------------------------------------------- */

static int op_order(const struct dibs__group_op *a,
                    const struct dibs__group_op *b)
{
    if (a->o.owner != b->o.owner)
        return a->o.owner < b->o.owner ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
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

/* ---- its life ---------------------------------------------------------- */

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
    if (op->number)
        RB_REMOVE(dibs__group_ops, &g->ops, op);
    dibs__group_level_unref(g, op->level);
    for (size_t i = 0; i < g->n; i++)
        dibs__free(op->m[i].why);
    dibs__unlock(&g->mu);
    dibs__free(op);
    dibs__group_unref(g);
}

static void op_ref_for_client(struct dibs__shutdown_hook *w)
{
    dibs__group_op_ref(DIBS_OF(w, struct dibs__group_op, work));
}

static void op_closed(struct dibs__shutdown_hook *w);
static void op_over(struct dibs__shutdown_hook *w);

struct dibs__group_op *dibs__group_op_new(struct dibs__group *g,
                                          const dibs_lock_opts *o)
{
    struct dibs__group_op *op =
        dibs__calloc(1, sizeof *op + g->n * sizeof op->m[0]);

    if (!op)
        return NULL;
    op->g = g;
    op->o = *o;
    if (!op->o.owner)
        op->o.owner = dibs__owner_thread();
    atomic_init(&op->refs, 1);
    op->work.ref = op_ref_for_client;
    op->work.close = op_closed;
    op->work.over = op_over;
    op->deadline =
        o->wait_ms ? dibs__add(dibs__now_ms(), o->wait_ms) : INT64_MAX;
    for (size_t i = 0; i < g->n; i++) {
        op->m[i].group_op = op;
        op->m[i].index = i;
    }
    dibs__group_ref(g);
    return op;
}

/* ---- its end ----------------------------------------------------------- */

/* The client on whose thread an async caller gets the result. */
static dibs_client *home_client(const struct dibs__group_op *op)
{
    return op->g->members[op->completion_client].c;
}

static struct dibs__lock_manager *home_locks(const struct dibs__group_op *op)
{
    return op->g->members[op->completion_client].entry->manager;
}

void dibs__group_op_stop(struct dibs__group_op *op, dibs_err err)
{
    if (op->state != GROUP_OP_RUNNING)
        return;
    op->state = GROUP_OP_STOPPING;
    op->err = err;
}

dibs_err dibs__group_op_stopped(struct dibs__group_op *op)
{
    dibs__lock(&op->g->mu);
    dibs_err err = op->err;
    dibs__unlock(&op->g->mu);
    return err;
}

bool dibs__group_op_complete(struct dibs__group_op *op, dibs_err err)
{
    if (op->state == GROUP_OP_TOLD)
        return false;
    op->state = GROUP_OP_TOLD;
    op->err = err;
    return true;
}

static void callback_run(struct dibs__callback *cb, bool drop)
{
    struct dibs__group_op *op = DIBS_OF(cb, struct dibs__group_op, cb);

    if (!drop) {
        dibs_err err = dibs__group_op_stopped(op);
        DIBS__API_CALL((dibs__group_op_set_error_text(op), err));
        op->fn(err, op->arg);
    }
    dibs__group_op_unref(op);
}

static void push_callback(void *arg)
{
    struct dibs__group_op *op = arg;
    struct dibs__lock_manager *manager = home_locks(op);

    op->cb.run = callback_run;
    dibs__callbacks_push(&home_client(op)->callbacks, &op->cb);
    atomic_fetch_sub(&manager->in_flight, 1);
}

/* A release is not told while on_lost runs for what it gave back. */
void dibs__group_op_finish(struct dibs__group_op *op)
{
    dibs__shutdown_hook_unregister(home_locks(op), &op->work);
    if (!op->async)
        sem_post(&op->done); /* its caller has a reference */
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

/* ---- stopping it ------------------------------------------------------- */

/* Members that wait are woken, and end. */
static void cancel_op(struct dibs__group *g, struct dibs__group_op *op,
                      dibs_err why) REQUIRES(g->mu)
{
    if (op->state == GROUP_OP_RUNNING) {
        op->state = GROUP_OP_STOPPING;
        op->err = why;
    }
    for (size_t i = 0; i < g->n; i++) {
        struct dibs__lock_entry *entry = g->members[i].entry;
        if (op->m[i].state != MEMBER_ASKING ||
            dibs__client_enter(g->members[i].c) != DIBS_OK)
            continue; /* a client that closes ends its waiters itself */
        dibs__lock(&entry->mu);
        dibs__wait_queue_cancel(&entry->wait, &op->m[i].op.waiter);
        dibs__unlock(&entry->mu);
        dibs__client_leave(g->members[i].c);
    }
}

static void op_closed(struct dibs__shutdown_hook *w)
{
    struct dibs__group_op *op = DIBS_OF(w, struct dibs__group_op, work);
    struct dibs__group *g = op->g;

    dibs__lock(&g->mu);
    cancel_op(g, op, DIBS_ERR_CLOSED);
    dibs__unlock(&g->mu);
    dibs__group_op_unref(op);
}

static void op_over(struct dibs__shutdown_hook *w)
{
    struct dibs__group_op *op = DIBS_OF(w, struct dibs__group_op, work);

    dibs__group_op_set_result(op, DIBS_ERR_CLOSED);
    dibs__group_op_unref(op);
}

dibs_err dibs__group_ops_cancel(struct dibs__group *g, dibs_owner owner)
{
    dibs_err err = DIBS_ERR_NOT_OWNER;

    dibs__lock(&g->mu);
    for (struct dibs__group_op *op = NULL;
         (op = dibs__group_ops_next(g, owner, op));) {
        if (op->state == GROUP_OP_TOLD)
            continue;
        cancel_op(g, op, DIBS_ERR_CANCELED);
        err = DIBS_OK;
    }
    dibs__unlock(&g->mu);
    return err;
}

/* ---- steps ------------------------------------------------------------- */

void dibs__group_op_done(struct dibs__group_op *op, bool detached)
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

void dibs__group_op_open(struct dibs__group_op *op,
                         void (*step)(struct dibs__group_op *))
{
    dibs__group_op_ref(op);
    dibs__lock(&op->g->mu);
    op->step = step;
    op->pending++;
    dibs__unlock(&op->g->mu);
}

void dibs__group_op_run(struct dibs__group_op *op)
{
    dibs__group_op_done(op, false);
}

/* ---- time -------------------------------------------------------------- */

/* What was heard before it began counts, too. */
static void pause_is_on(struct dibs__group_timer *pause)
{
    struct dibs__group_op *op = DIBS_OF(pause, struct dibs__group_op, timer);

    dibs__lock(&op->g->mu);
    op->timer_owner = pause->lk;
    int64_t ms = op->quorum.wake ? op->quorum.wake(op) : INT64_MAX;
    dibs__unlock(&op->g->mu);
    if (ms < INT64_MAX)
        dibs__group_timer_shorten(pause, ms);
}

static void pause_is_over(struct dibs__group_timer *pause)
{
    struct dibs__group_op *op = DIBS_OF(pause, struct dibs__group_op, timer);

    dibs__lock(&op->g->mu);
    op->timer_owner = NULL;
    dibs__unlock(&op->g->mu);
    dibs__group_op_run(op);
}

/* On the loop where the pause was when this was posted. */
static void hasten_now(struct dibs__task *t)
{
    struct dibs__group_op *op = DIBS_OF(t, struct dibs__group_op, shorten);

    dibs__lock(&op->g->mu);
    bool on = op->timer_owner == op->shorten_owner;
    int64_t ms = op->shorten_ms;
    op->shorten_owner = NULL;
    dibs__unlock(&op->g->mu);
    if (on)
        dibs__group_timer_shorten(&op->timer, ms);
    dibs__group_op_unref(op);
}

/* While the pause is on, that client does not go. */
void dibs__group_op_shorten_timer(struct dibs__group_op *op, int64_t ms)
{
    dibs__lock(&op->g->mu);
    bool post = op->timer_owner && !op->shorten_owner;
    if (post || (op->shorten_owner && ms < op->shorten_ms))
        op->shorten_ms = ms;
    if (post) {
        op->shorten_owner = op->timer_owner;
        op->shorten.run = hasten_now;
        dibs__group_op_ref(op);
        dibs__loop_post(&op->timer_owner->c->loop, &op->shorten);
    }
    dibs__unlock(&op->g->mu);
}

void dibs__group_op_timer_start(struct dibs__group_op *op, int64_t ms,
                                void (*step)(struct dibs__group_op *))
{
    dibs__group_op_open(op, step);
    if (dibs__group_timer_start(&op->timer, op->g, ms, pause_is_on,
                                pause_is_over))
        return;
    dibs__lock(&op->g->mu);
    dibs__group_op_stop(op, DIBS_ERR_CLOSED); /* all clients are closing */
    dibs__unlock(&op->g->mu);
    dibs__group_op_run(op);
}

static void watch_is_over(struct dibs__group_timer *pause);

/* Somebody has to notice that a server's answer is overdue: a sync caller does
 * so itself, for an async one this pause does. It has a reference. */
static void watch_on(struct dibs__group_op *op)
{
    dibs__lock(&op->g->mu);
    bool told = op->state == GROUP_OP_TOLD;
    dibs__unlock(&op->g->mu);
    if (told ||
        !dibs__group_timer_start(&op->quorum.watch, op->g,
                                 op->quorum.patience_ms, NULL, watch_is_over))
        dibs__group_op_unref(op);
}

static void watch_is_over(struct dibs__group_timer *pause)
{
    struct dibs__group_op *op =
        DIBS_OF(pause, struct dibs__group_op, quorum.watch);

    op->quorum.late(op);
    watch_on(op);
}

static void await_result(struct dibs__group_op *op)
{
    struct timespec until;

    for (;;) {
        int64_t ms = op->quorum.late ? op->quorum.patience_ms : AWAIT_MS;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += ms / 1000;
        until.tv_nsec += ms % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (sem_clockwait(&op->done, CLOCK_MONOTONIC, &until) == 0)
            return;
        if (op->quorum.late)
            op->quorum.late(op);
    }
}

/* ---- running it -------------------------------------------------------- */

dibs_err dibs__group_op_ready(struct dibs__group_op *op, bool async)
{
    dibs_err err = DIBS_OK;

    for (size_t i = 0; async && i < op->g->n; i++) {
        op->completion_client = i; /* one that is not closing */
        err = dibs__client_enter(home_client(op));
        if (err != DIBS_OK)
            continue;
        err = dibs__callbacks_ensure_thread(&home_client(op)->callbacks);
        if (err == DIBS_OK) /* until its callback is on its way */
            atomic_fetch_add(&home_locks(op)->in_flight, 1);
        dibs__client_leave(home_client(op));
        return err;
    }
    return err;
}

/* From here on a client that closes knows of it. */
static void register_op(struct dibs__group_op *op)
{
    if (!op->releasing) {
        dibs__lock(&op->g->mu);
        op->number = ++op->g->begun;
        RB_INSERT(dibs__group_ops, &op->g->ops, op);
        dibs__unlock(&op->g->mu);
    }
    dibs__shutdown_hook_register(home_locks(op), &op->work);
}

static dibs_err run_and_wait(struct dibs__group_op *op,
                             void (*start)(struct dibs__group_op *))
{
    sem_init(&op->done, 0, 0);
    register_op(op);
    op->direct = true;
    start(op);
    await_result(op);
    sem_destroy(&op->done);
    dibs__group_op_set_error_text(op);
    return dibs__group_op_stopped(op);
}

dibs_err dibs__group_op_go(struct dibs__group_op *op,
                           void (*start)(struct dibs__group_op *), dibs_cb fn,
                           void *arg)
{
    dibs_err err = DIBS_OK;

    dibs__no_cancel(); /* it works for others, too */
    if (fn) {
        op->async = true;
        op->fn = fn;
        op->arg = arg;
        dibs__group_op_ref(op); /* for the callback */
        register_op(op);
        start(op);
        if (op->quorum.late) {
            dibs__group_op_ref(op); /* for the watch */
            watch_on(op);
        }
    } else {
        err = run_and_wait(op, start);
    }
    dibs__group_op_unref(op);
    dibs__cancel_again();
    return err;
}
