/* SPDX-License-Identifier: MIT
 *
 * lock.c - handles, and the public calls that take, keep and give back.
 *
 * Thread  app.
 * Locks   line.mu to cancel.
 *
 * A sync call is the async one plus a wait. It runs on its caller's thread as
 * far as it can; only what cannot be done at once goes to io. A thread cannot
 * be canceled while it is in here: its operation lives on its stack.
 */
#include "lock/lock.h"

#include "base/args.h"
#include "base/mem.h"
#include "group/group.h"

#include <string.h>

#define REPLICAS_MS   1000
#define REPLICAS_PART 10 /* of the lease, at most */

/* ---- handles ----------------------------------------------------------- */

/* In a cluster all keys of a lock must be in one slot. */
static dibs_err check_name(dibs_client *c, const char *name, size_t len)
{
    if (!c->cluster || dibs__slot_fits(name, len))
        return DIBS_OK;
    dibs__reason_set(DIBS_ERR_INVALID,
                     "'%.80s' is no name for a lock in a cluster: a brace "
                     "without its partner, or with nothing between them",
                     name);
    return dibs__client_refuse(c);
}

static dibs_err check_args(const void *name, size_t len, dibs_lock **out)
{
    if (dibs__check_given("name", name) || dibs__check_given("out", out))
        return DIBS_ERR_INVALID;
    if (len == 0 || len > DIBS_NAME_MAX)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "the name must have 1 to %d bytes",
                                DIBS_NAME_MAX);
    return DIBS_OK;
}

dibs_err dibs__lock_new(dibs_client *c, const struct dibs__kind *kind,
                        const void *name, size_t len, dibs_lock **out)
{
    if (check_args(name, len, out) != DIBS_OK)
        return dibs__client_refuse(c);
    dibs_err err = dibs__client_enter(c);
    if (err != DIBS_OK)
        return err;
    err = check_name(c, name, len);
    if (err != DIBS_OK) {
        dibs__client_leave(c);
        return err;
    }
    struct dibs__locks *lk = dibs__locks_of(c);
    dibs_lock *l = lk ? dibs__calloc(1, sizeof *l) : NULL;
    if (l)
        l->line = dibs__line_get(lk, kind, name, len);
    if (l && l->line) {
        dibs__client_ref(c);
        l->c = c;
        *out = l;
    } else {
        dibs__free(l);
        err = DIBS_ERR_NOMEM;
    }
    dibs__client_leave(c);
    return err;
}

size_t dibs__name_length(const char *name)
{
    return name ? strnlen(name, DIBS_NAME_MAX + 1) : 0;
}

dibs_err dibs_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return DIBS__TOLD(dibs__lock_new(c, &dibs__kind_basic, name,
                                     dibs__name_length(name), out));
}

dibs_err dibs_lock_new_bytes(dibs_client *c, const void *name, size_t len,
                             dibs_lock **out)
{
    return DIBS__TOLD(dibs__lock_new(c, &dibs__kind_basic, name, len, out));
}

dibs_err dibs_fair_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return DIBS__TOLD(dibs__lock_new(c, &dibs__kind_fair, name,
                                     dibs__name_length(name), out));
}

dibs_err dibs_fair_lock_new_bytes(dibs_client *c, const void *name, size_t len,
                                  dibs_lock **out)
{
    return DIBS__TOLD(dibs__lock_new(c, &dibs__kind_fair, name, len, out));
}

dibs_err dibs_read_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return DIBS__TOLD(dibs__lock_new(c, &dibs__kind_read, name,
                                     dibs__name_length(name), out));
}

dibs_err dibs_write_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return DIBS__TOLD(dibs__lock_new(c, &dibs__kind_write, name,
                                     dibs__name_length(name), out));
}

void dibs_lock_free(dibs_lock *l)
{
    if (!l)
        return;
    if (l->group) {
        dibs__group_free(l->group);
    } else if (!dibs__client_foreign(l->c)) {
        dibs__line_unref(l->line);
        dibs__client_unref(l->c);
    }
    dibs__free(l);
}

dibs_err dibs__lock_refuse(const dibs_lock *l)
{
    if (!l)
        return DIBS_ERR_INVALID;
    return dibs__client_refuse(l->group ? l->group->members[0].c : l->c);
}

dibs_err dibs__lock_enter(const dibs_lock *l)
{
    if (dibs__check_given("lock", l) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (!l->group)
        return dibs__client_enter(l->c);
    dibs__reason_set(DIBS_ERR_INVALID,
                     "this is a group of locks: ask its members");
    return dibs__lock_refuse(l);
}

/* ---- options ----------------------------------------------------------- */

static dibs_err check_lease(const char *what, int64_t ms)
{
    return dibs__check_ms(what, ms, DIBS_LEASE_MIN_MS, DIBS_MS_MAX);
}

static dibs_err check_opts(const dibs_lock_opts *o)
{
    if (dibs__check_time("wait_ms", o->wait_ms) ||
        check_lease("lease_ms", o->lease_ms) ||
        check_lease("max_hold_ms", o->max_hold_ms) ||
        dibs__check_time("keep_ms", o->keep_ms) ||
        dibs__check_time("member_ms", o->member_ms) ||
        dibs__check_time("replicas_timeout_ms", o->replicas_timeout_ms))
        return DIBS_ERR_INVALID;
    if (o->lease_ms && o->max_hold_ms)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "max_hold_ms is for renewed locks, and one "
                                "with a lease_ms is not renewed");
    if (o->replicas < DIBS_REPLICAS_NONE)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "replicas is %d, it must be a number or one of "
                                "DIBS_REPLICAS_ALL and _NONE",
                                o->replicas);
    return DIBS_OK;
}

/* Options as given, or those of nobody; checked. OK, or INVALID with a reason,
 * which is told. */
static dibs_err take_opts(const dibs_lock *l, const dibs_lock_opts *in,
                          dibs_lock_opts *o)
{
    if (dibs__struct_take(&dibs__struct_lock_opts, in, o) ||
        check_opts(o) != DIBS_OK)
        return dibs__lock_refuse(l);
    return DIBS_OK;
}

static dibs_err refuse_cb(const dibs_lock *l)
{
    dibs__check_given("cb", NULL);
    return dibs__lock_refuse(l);
}

/* ---- operations -------------------------------------------------------- */

void dibs__op_init(struct dibs__op *op, dibs_lock *l)
{
    memset(op, 0, sizeof *op);
    op->line = l->line;
    op->ask.line = l->line;
}

dibs_err dibs__op_wait(struct dibs__op *op)
{
    struct dibs__line *line = op->line;

    dibs__line_ref(line); /* the handle's may go while we wait */
    sem_init(&op->done, 0, 0);
    op->direct = true;
    dibs__op_begin(op);
    while (sem_wait(&op->done) != 0)
        ; /* a signal */
    sem_destroy(&op->done);
    dibs__op_tell_reason(op);
    dibs__line_unref(line);
    return op->err;
}

void *dibs__op_new(dibs_lock *l, size_t size)
{
    struct dibs__op *op = dibs__malloc(size);

    if (!op)
        return NULL;
    memset(op, 0, size);
    dibs__op_init(op, l);
    dibs__line_ref(l->line);
    op->async = true;
    return op;
}

void dibs__op_discard(struct dibs__op *op)
{
    dibs__free(op->why);
    dibs__note_free(op->note);
    dibs__line_unref(op->line);
    dibs__free(op);
}

/* So that telling of a loss cannot fail later. */
static dibs_err promise_note(struct dibs__op *op, const dibs_lock_opts *o)
{
    struct dibs__line *line = op->line;

    if (!o->on_lost)
        return DIBS_OK;
    dibs_err err = dibs__callbacks_ready(&dibs__line_client(line)->callbacks);
    if (err != DIBS_OK)
        return err;
    dibs_lock_opts mine = *o;
    mine.owner = op->owner;
    struct dibs__loss *loss = dibs__loss_named(
        dibs__loss_new(line, &mine, 1, 1), line->name, line->name_len);
    if (!loss)
        return DIBS_ERR_NOMEM;
    (void)dibs__loss_arm(loss, NULL); /* nothing is lost yet */
    op->note = dibs__note_new(loss, 0);
    dibs__loss_unref(loss);
    return op->note ? DIBS_OK : DIBS_ERR_NOMEM;
}

static void set_owner(struct dibs__op *op, dibs_owner owner)
{
    op->owner = owner ? owner : dibs__owner_thread();
    op->wire = dibs__owner_wire(op->line->locks, op->owner);
}

/* Their time is taken off the lease, so it is a part of it. */
static void set_replicas(struct dibs__op *op, const dibs_lock_opts *o)
{
    int64_t ms = o->replicas_timeout_ms, lease = op->ask.lease_ms;

    op->replicas =
        o->replicas ? o->replicas : dibs__line_client(op->line)->replicas;
    if (op->replicas == DIBS_REPLICAS_NONE)
        op->replicas = 0;
    if (!op->replicas)
        return;
    op->call.replicas_ms = ms ? dibs__min(ms, lease / 2)
                              : dibs__min(REPLICAS_MS, lease / REPLICAS_PART);
}

dibs_err dibs__acquire_fill(struct dibs__op *op, const dibs_lock_opts *o,
                            bool trying)
{
    int64_t lease =
        o->lease_ms ? o->lease_ms : dibs__line_client(op->line)->lease_ms;

    set_owner(op, o->owner);
    op->run = dibs__acquire_run;
    op->trying = trying;
    op->lease_ms = o->lease_ms;
    op->max_hold_ms = o->max_hold_ms;
    op->no_reentry = o->no_reentry;
    op->wait.polls = o->poll;
    op->ask.lease_ms =
        o->max_hold_ms ? dibs__min(lease, o->max_hold_ms) : lease;
    op->reap_ms = op->ask.lease_ms;
    set_replicas(op, o);
    int64_t timeout = dibs__line_client(op->line)->to.command_timeout_ms;
    int64_t limit = trying ? timeout : o->wait_ms;
    op->wait.deadline = limit ? dibs__add(dibs__now_ms(), limit) : INT64_MAX;
    return promise_note(op, o);
}

dibs_err dibs__release_fill(struct dibs__op *op, const dibs_lock_opts *o,
                            bool trying)
{
    int64_t timeout = dibs__line_client(op->line)->to.command_timeout_ms;

    (void)trying;
    set_owner(op, o->owner);
    op->run = dibs__release_run;
    op->ask.keep_ms = o->keep_ms;
    op->wait.deadline =
        dibs__add(dibs__now_ms(), o->wait_ms ? o->wait_ms : 2 * timeout);
    return DIBS_OK;
}

/* The client is closing and gives back all there is. Whoever releases on top of
 * that hears of no loss any more, either. */
static void settle_closed(dibs_lock *l, dibs_owner owner)
{
    struct dibs__line *line = l->line;

    dibs__no_cancel();
    dibs__lock(&line->mu);
    struct dibs__hold *h = dibs__hold_of(line, owner);
    for (int64_t i = 0; h && i < h->count; i++)
        if (!h->levels[i].with)
            dibs__loss_hush(h->levels[i].loss);
    dibs__unlock(&line->mu);
    dibs__losses_settle(line, owner);
    dibs__cancel_again();
}

typedef dibs_err fill_fn(struct dibs__op *op, const dibs_lock_opts *o,
                         bool trying);

static dibs_err run_sync(dibs_lock *l, const dibs_lock_opts *opts,
                         fill_fn *fill, bool trying)
{
    struct dibs__op op;
    dibs_lock_opts o;

    if (take_opts(l, opts, &o) != DIBS_OK)
        return DIBS_ERR_INVALID;
    dibs_err err = dibs__lock_enter(l);
    if (err == DIBS_ERR_CLOSED && fill == dibs__release_fill)
        settle_closed(l, o.owner ? o.owner : dibs__owner_thread());
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* another thread may free the handle meanwhile */
    dibs__op_init(&op, l);
    err = fill(&op, &o, trying);
    if (err == DIBS_OK)
        err = dibs__op_wait(&op);
    dibs__loss_settle(op.loss);
    dibs__loss_unref(op.loss);
    dibs__client_leave(c);
    return err;
}

static dibs_err run_async(dibs_lock *l, const dibs_lock_opts *opts,
                          fill_fn *fill, bool trying,
                          const struct dibs__op *from)
{
    dibs_lock_opts o;

    if (take_opts(l, opts, &o) != DIBS_OK)
        return DIBS_ERR_INVALID;
    dibs_err err = dibs__lock_enter(l);
    if (err == DIBS_ERR_CLOSED && fill == dibs__release_fill)
        settle_closed(l, o.owner ? o.owner : dibs__owner_thread());
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* a callback may free the handle meanwhile */
    struct dibs__op *op = dibs__op_new(l, sizeof *op);
    err = op ? dibs__callbacks_ready(&l->c->callbacks) : DIBS_ERR_NOMEM;
    if (err == DIBS_OK)
        err = fill(op, &o, trying);
    if (err == DIBS_OK) {
        op->fn = from->fn;
        op->arg = from->arg;
        dibs__op_begin(op);
    } else if (op) {
        dibs__op_discard(op);
    }
    dibs__client_leave(c);
    return err;
}

/* ---- groups ------------------------------------------------------------ */

static dibs_err acquire_group(const dibs_lock *l, const dibs_lock_opts *opts,
                              bool trying, dibs_cb cb, void *arg)
{
    dibs_lock_opts o;

    return take_opts(l, opts, &o) == DIBS_OK
               ? dibs__group_acquire(l->group, &o, trying, cb, arg)
               : DIBS_ERR_INVALID;
}

static dibs_err release_group(const dibs_lock *l, const dibs_lock_opts *opts,
                              dibs_cb cb, void *arg)
{
    dibs_lock_opts o;

    return take_opts(l, opts, &o) == DIBS_OK
               ? dibs__group_release(l->group, &o, cb, arg)
               : DIBS_ERR_INVALID;
}

static bool is_inside(const dibs_lock *l)
{
    if (!l)
        return false;
    if (l->group)
        return !dibs__group_foreign(l->group) && dibs__group_inside(l->group);
    return !dibs__client_foreign(l->c) &&
           dibs__callbacks_inside(&l->c->callbacks);
}

/* ---- public ------------------------------------------------------------ */

static dibs_err acquire(dibs_lock *l, const dibs_lock_opts *opts, bool trying)
{
    return l && l->group ? acquire_group(l, opts, trying, NULL, NULL)
                         : run_sync(l, opts, dibs__acquire_fill, trying);
}

static dibs_err release(dibs_lock *l, const dibs_lock_opts *opts)
{
    return l && l->group ? release_group(l, opts, NULL, NULL)
                         : run_sync(l, opts, dibs__release_fill, false);
}

/* Inside a callback it must not wait: what it waits for may be told by a
 * callback that waits for this one. */
static dibs_err acquire_waiting(dibs_lock *l, const dibs_lock_opts *opts)
{
    bool inside = is_inside(l);
    dibs_err err = acquire(l, opts, inside);

    return inside && err == DIBS_ERR_BUSY ? DIBS_ERR_DEADLOCK : err;
}

dibs_err dibs_lock_acquire(dibs_lock *l, const dibs_lock_opts *opts)
{
    return DIBS__TOLD(acquire_waiting(l, opts));
}

dibs_err dibs_lock_try(dibs_lock *l, const dibs_lock_opts *opts)
{
    return DIBS__TOLD(acquire(l, opts, true));
}

dibs_err dibs_lock_release(dibs_lock *l, const dibs_lock_opts *opts)
{
    return DIBS__TOLD(release(l, opts));
}

static dibs_err start_acquire(dibs_lock *l, const dibs_lock_opts *opts,
                              bool trying, const struct dibs__op *from)
{
    if (!from->fn)
        return refuse_cb(l);
    return l && l->group ? acquire_group(l, opts, trying, from->fn, from->arg)
                         : run_async(l, opts, dibs__acquire_fill, trying, from);
}

dibs_err dibs_lock_acquire_async(dibs_lock *l, const dibs_lock_opts *opts,
                                 dibs_cb cb, void *arg)
{
    struct dibs__op from = {.fn = cb, .arg = arg};

    return DIBS__TOLD(start_acquire(l, opts, false, &from));
}

dibs_err dibs_lock_try_async(dibs_lock *l, const dibs_lock_opts *opts,
                             dibs_cb cb, void *arg)
{
    struct dibs__op from = {.fn = cb, .arg = arg};

    return DIBS__TOLD(start_acquire(l, opts, true, &from));
}

static dibs_err start_release(dibs_lock *l, const dibs_lock_opts *opts,
                              const struct dibs__op *from)
{
    if (!from->fn)
        return refuse_cb(l);
    return l && l->group ? release_group(l, opts, from->fn, from->arg)
                         : run_async(l, opts, dibs__release_fill, false, from);
}

dibs_err dibs_lock_release_async(dibs_lock *l, const dibs_lock_opts *opts,
                                 dibs_cb cb, void *arg)
{
    struct dibs__op from = {.fn = cb, .arg = arg};

    return DIBS__TOLD(start_release(l, opts, &from));
}

static dibs_err cancel(dibs_lock *l, dibs_owner owner)
{
    if (l && l->group)
        return dibs__group_cancel(l->group, owner);
    dibs_err err = dibs__lock_enter(l);

    if (err != DIBS_OK)
        return err;
    struct dibs__line *line = l->line;
    if (!owner)
        owner = dibs__owner_thread();
    dibs__lock(&line->mu);
    if (!dibs__line_cancel(line, owner))
        err = DIBS_ERR_NOT_OWNER;
    dibs__unlock(&line->mu);
    dibs__client_leave(l->c);
    return err;
}

dibs_err dibs_lock_cancel(dibs_lock *l, dibs_owner owner)
{
    return DIBS__TOLD(cancel(l, owner));
}
