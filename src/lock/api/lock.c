/* SPDX-License-Identifier: MIT
 *
 * lock.c - handles on one lock, and their table of operations.
 *
 * Thread  app.
 * Locks   entry.mu, to cancel an operation and to read a hold.
 *
 * A sync call runs the same operation as the async call and then waits for it.
 * It runs on the caller's thread as far as possible; only what must wait goes
 * to the io thread. Thread cancellation is disabled meanwhile, since the
 * operation is on the caller's stack.
 */
#include "lock/api/lock.h"

#include "base/api_args.h"
#include "base/mem.h"

#include <string.h>

#define REPLICAS_MS            1000 /* default replicas_timeout_ms, at most */
#define REPLICAS_LEASE_DIVISOR 10   /* the lease divided by this */
#define RELEASE_TIMEOUTS       2    /* command timeouts, default of wait_ms */

static const struct dibs__lock_ops one_lock_ops;

/* ---- handles ----------------------------------------------------------- */

/* In a cluster all keys of a lock must be in one slot. */
static dibs_err check_lock_name(dibs_client *c, const char *name, size_t len)
{
    if (!c->cluster || dibs__hash_slot_single(name, len))
        return DIBS_OK;
    dibs__reason_set(DIBS_ERR_INVALID,
                     "'%.80s' is no name for a lock in a cluster: a brace "
                     "without its partner, or with nothing between them",
                     name);
    return dibs__client_report_invalid_arg(c);
}

static dibs_err check_new_args(const void *name, size_t len, dibs_lock **out)
{
    if (dibs__check_not_null("name", name) || dibs__check_not_null("out", out))
        return DIBS_ERR_INVALID;
    if (len == 0 || len > DIBS_NAME_MAX)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "the name must have 1 to %d bytes",
                                DIBS_NAME_MAX);
    return DIBS_OK;
}

dibs_err dibs__lock_new(dibs_client *c, const struct dibs__lock_type *type,
                        const void *name, size_t len, dibs_lock **out)
{
    if (check_new_args(name, len, out) != DIBS_OK)
        return dibs__client_report_invalid_arg(c);
    dibs_err err = dibs__client_enter(c);
    if (err != DIBS_OK)
        return err;
    err = check_lock_name(c, name, len);
    if (err != DIBS_OK) {
        dibs__client_leave(c);
        return err;
    }
    struct dibs__lock_manager *manager = dibs__lock_manager_of(c);
    dibs_lock *l = manager ? dibs__calloc(1, sizeof *l) : NULL;
    if (l)
        l->entry = dibs__entry_get(manager, type, name, len);
    if (l && l->entry) {
        dibs__client_ref(c);
        l->c = c;
        l->ops = &one_lock_ops;
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
    return DIBS__API_CALL(dibs__lock_new(c, &dibs__type_mutex, name,
                                         dibs__name_length(name), out));
}

dibs_err dibs_lock_new_bytes(dibs_client *c, const void *name, size_t len,
                             dibs_lock **out)
{
    return DIBS__API_CALL(dibs__lock_new(c, &dibs__type_mutex, name, len, out));
}

dibs_err dibs_fair_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return DIBS__API_CALL(dibs__lock_new(c, &dibs__type_fair, name,
                                         dibs__name_length(name), out));
}

dibs_err dibs_fair_lock_new_bytes(dibs_client *c, const void *name, size_t len,
                                  dibs_lock **out)
{
    return DIBS__API_CALL(dibs__lock_new(c, &dibs__type_fair, name, len, out));
}

dibs_err dibs_read_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return DIBS__API_CALL(dibs__lock_new(c, &dibs__type_read, name,
                                         dibs__name_length(name), out));
}

dibs_err dibs_write_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return DIBS__API_CALL(dibs__lock_new(c, &dibs__type_write, name,
                                         dibs__name_length(name), out));
}

static bool is_forked_copy(const dibs_lock *l)
{
    return dibs__client_is_forked_copy(l->c);
}

static bool is_in_callback(const dibs_lock *l)
{
    return dibs__callbacks_inside(&l->c->callbacks);
}

/* In a child after fork the entry and the client belong to the parent: only the
 * handle is freed. */
static void lock_free(dibs_lock *l)
{
    if (!is_forked_copy(l)) {
        dibs__entry_unref(l->entry);
        dibs__client_unref(l->c);
    }
    dibs__free(l);
}

struct dibs__local_state dibs__entry_local_state(struct dibs__lock_entry *entry,
                                                 dibs_owner owner, int64_t now)
{
    struct dibs__local_state local = {.state = DIBS_NOT_HELD};

    dibs__lock(&entry->mu);
    struct dibs__hold *h = dibs__hold_of(entry, owner);
    if (h && (h->count == 0 || h->state == HOLD_ENDING)) {
        /* Released: the release is in flight or will be sent, and another
         * client may hold the lock by now. */
    } else if (h && dibs__hold_has_expired(h, now)) {
        local.state = DIBS_LOST;
    } else if (h) {
        local.state = h->state == HOLD_SUSPECT ? DIBS_SUSPECT : DIBS_HELD;
        local.valid_ms = h->valid_until - now;
        local.holds = h->count;
        local.owner_id = h->owner_id;
    }
    dibs__unlock(&entry->mu);
    return local;
}

static struct dibs__local_state lock_local_state(const dibs_lock *l,
                                                 dibs_owner owner)
{
    return dibs__entry_local_state(l->entry, owner, dibs__now_ms());
}

/* ---- operations -------------------------------------------------------- */

void dibs__op_init(struct dibs__operation *op, dibs_lock *l)
{
    memset(op, 0, sizeof *op);
    op->entry = l->entry;
    op->args.entry = l->entry;
}

dibs_err dibs__op_wait(struct dibs__operation *op)
{
    struct dibs__lock_entry *entry = op->entry;

    dibs__entry_ref(entry); /* the handle may be freed meanwhile */
    sem_init(&op->done, 0, 0);
    op->on_caller_thread = true;
    dibs__op_begin(op);
    while (sem_wait(&op->done) != 0)
        ; /* EINTR */
    sem_destroy(&op->done);
    dibs__op_set_error_text(op);
    dibs__entry_unref(entry);
    return op->err;
}

void *dibs__op_new(dibs_lock *l, size_t size)
{
    struct dibs__operation *op = dibs__malloc(size);

    if (!op)
        return NULL;
    memset(op, 0, size);
    dibs__op_init(op, l);
    dibs__entry_ref(l->entry);
    op->async = true;
    return op;
}

void dibs__op_discard(struct dibs__operation *op)
{
    dibs__free(op->error_text);
    dibs__loss_notification_free(op->notification);
    dibs__entry_unref(op->entry);
    dibs__free(op);
}

/* Allocates the loss notification now, so that reporting a loss cannot fail for
 * lack of memory. */
static dibs_err prepare_loss(struct dibs__operation *op,
                             const dibs_lock_opts *o)
{
    struct dibs__lock_entry *entry = op->entry;

    if (!o->on_lost)
        return DIBS_OK;
    dibs_err err =
        dibs__callbacks_ensure_thread(&dibs__entry_client(entry)->callbacks);
    if (err != DIBS_OK)
        return err;
    dibs_lock_opts with_owner = *o;
    with_owner.owner = op->owner;
    struct dibs__loss_listener *loss = dibs__loss_set_name(
        dibs__loss_new(entry, &with_owner, 1, 1), entry->name, entry->name_len);
    if (!loss)
        return DIBS_ERR_NOMEM;
    (void)dibs__loss_arm(loss, NULL); /* cannot fail: nothing is lost yet */
    op->notification = dibs__loss_notification_new(loss, 0);
    dibs__loss_unref(loss);
    return op->notification ? DIBS_OK : DIBS_ERR_NOMEM;
}

static void set_owner(struct dibs__operation *op, dibs_owner owner)
{
    op->owner = owner ? owner : dibs__owner_thread();
    op->owner_id = dibs__owner_current_id(op->entry->manager, op->owner);
}

/* Waiting for replicas uses up part of the lease, so its timeout is at most
 * half of it. */
static void set_replicas(struct dibs__operation *op, const dibs_lock_opts *o)
{
    int64_t ms = o->replicas_timeout_ms, lease = op->args.lease_ms;

    op->replicas =
        o->replicas ? o->replicas : dibs__entry_client(op->entry)->replicas;
    if (op->replicas == DIBS_REPLICAS_NONE)
        op->replicas = 0;
    if (!op->replicas)
        return;
    op->command.replicas_ms =
        ms ? dibs__min(ms, lease / 2)
           : dibs__min(REPLICAS_MS, lease / REPLICAS_LEASE_DIVISOR);
}

dibs_err dibs__acquire_fill(struct dibs__operation *op, const dibs_lock_opts *o,
                            bool trying)
{
    int64_t lease =
        o->lease_ms ? o->lease_ms : dibs__entry_client(op->entry)->lease_ms;

    set_owner(op, o->owner);
    op->start = dibs__acquire_run;
    op->no_wait = trying;
    op->lease_ms = o->lease_ms;
    op->max_hold_ms = o->max_hold_ms;
    op->no_reentry = o->no_reentry;
    op->waiter.poll_count = o->poll;
    op->args.lease_ms =
        o->max_hold_ms ? dibs__min(lease, o->max_hold_ms) : lease;
    op->orphan_ttl_ms = op->args.lease_ms;
    set_replicas(op, o);
    int64_t timeout = dibs__entry_client(op->entry)->to.command_timeout_ms;
    int64_t limit = trying ? timeout : o->wait_ms, now_us = dibs__now_us();
    op->waiter.deadline = limit ? dibs__add(now_us / 1000, limit) : INT64_MAX;
    op->args.begun_at = dibs__coarse_time_of(now_us);
    return prepare_loss(op, o);
}

dibs_err dibs__release_fill(struct dibs__operation *op, const dibs_lock_opts *o,
                            bool trying)
{
    int64_t timeout = dibs__entry_client(op->entry)->to.command_timeout_ms;

    (void)trying;
    set_owner(op, o->owner);
    op->start = dibs__release_run;
    op->args.hold_off_ms = o->leave ? HOLD_OFF_DETACH : o->keep_ms;
    op->waiter.deadline = dibs__add(
        dibs__now_ms(), o->wait_ms ? o->wait_ms : RELEASE_TIMEOUTS * timeout);
    return DIBS_OK;
}

void dibs__release_suppress_losses(struct dibs__lock_entry *entry,
                                   dibs_owner owner)
{
    dibs__cancel_disable();
    dibs__lock(&entry->mu);
    struct dibs__hold *h = dibs__hold_of(entry, owner);
    if (h)
        dibs__hold_suppress_all_losses(h);
    dibs__unlock(&entry->mu);
    dibs__losses_suppress_and_wait(entry, owner);
    dibs__cancel_restore();
}

/* Enters the client. A release after the client has begun to close returns
 * CLOSED: the close releases the holds. */
static dibs_err enter_to_run(dibs_lock *l, const dibs_lock_opts *o,
                             bool releasing)
{
    dibs_err err = dibs__client_enter(l->c);

    if (err == DIBS_ERR_CLOSED && releasing)
        dibs__release_suppress_losses(
            l->entry, o->owner ? o->owner : dibs__owner_thread());
    return err;
}

typedef dibs_err fill_fn(struct dibs__operation *op, const dibs_lock_opts *o,
                         bool trying);

static dibs_err run_sync(dibs_lock *l, const dibs_lock_opts *o, fill_fn *fill,
                         bool trying)
{
    struct dibs__operation op;
    dibs_err err = enter_to_run(l, o, fill == dibs__release_fill);

    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* another thread may free the handle meanwhile */
    dibs__op_init(&op, l);
    err = fill(&op, o, trying);
    if (err == DIBS_OK)
        err = dibs__op_wait(&op);
    dibs__loss_suppress_and_wait(op.loss);
    dibs__loss_unref(op.loss);
    dibs__client_leave(c);
    return err;
}

static dibs_err run_async(dibs_lock *l, const dibs_lock_opts *o, fill_fn *fill,
                          bool trying, dibs_cb fn, void *arg)
{
    dibs_err err = enter_to_run(l, o, fill == dibs__release_fill);

    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* a callback may free the handle meanwhile */
    struct dibs__operation *op = dibs__op_new(l, sizeof *op);
    err = op ? dibs__callbacks_ensure_thread(&l->c->callbacks) : DIBS_ERR_NOMEM;
    if (err == DIBS_OK)
        err = fill(op, o, trying);
    if (err == DIBS_OK) {
        op->fn = fn;
        op->arg = arg;
        dibs__op_begin(op);
    } else if (op) {
        dibs__op_discard(op);
    }
    dibs__client_leave(c);
    return err;
}

/* ---- table of operations ----------------------------------------------- */

static dibs_err lock_acquire(dibs_lock *l, const dibs_lock_opts *o, bool trying,
                             dibs_cb fn, void *arg)
{
    return fn ? run_async(l, o, dibs__acquire_fill, trying, fn, arg)
              : run_sync(l, o, dibs__acquire_fill, trying);
}

static dibs_err lock_release(dibs_lock *l, const dibs_lock_opts *o, dibs_cb fn,
                             void *arg)
{
    return fn ? run_async(l, o, dibs__release_fill, false, fn, arg)
              : run_sync(l, o, dibs__release_fill, false);
}

static dibs_err lock_cancel(dibs_lock *l, dibs_owner owner)
{
    dibs_err err = dibs__client_enter(l->c);

    if (err != DIBS_OK)
        return err;
    struct dibs__lock_entry *entry = l->entry;
    dibs__lock(&entry->mu);
    if (!dibs__entry_cancel(entry, owner))
        err = DIBS_ERR_NOT_OWNER;
    dibs__unlock(&entry->mu);
    dibs__client_leave(l->c);
    return err;
}

static const struct dibs__lock_ops one_lock_ops = {
    .acquire = lock_acquire,
    .release = lock_release,
    .cancel = lock_cancel,
    .local_state = lock_local_state,
    .is_forked_copy = is_forked_copy,
    .in_callback = is_in_callback,
    .free = lock_free,
};
