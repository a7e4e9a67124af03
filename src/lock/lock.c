/* SPDX-License-Identifier: MIT
 *
 * lock.c - handles, and the public calls that take, keep and give back.
 *
 * Thread  app.
 * Locks   line.mu for what is known without asking.
 *
 * A sync call is the async one plus a wait. It runs on its caller's thread as
 * far as it can; only what cannot be done at once goes to io. A thread cannot
 * be canceled while it is in here: its operation lives on its stack.
 */
#include "lock/lock.h"

#include "base/mem.h"
#include "lock/group.h"

#include <stdio.h>
#include <string.h>

#define OPTS_SIZE_V1  sizeof(dibs_lock_opts)
#define REPLICAS_MS   1000
#define REPLICAS_PART 10 /* of the lease, at most */

/* ---- handles ----------------------------------------------------------- */

/* In a cluster all keys of a lock must be in one slot. */
static dibs_err check_name(dibs_client *c, const char *name, size_t len)
{
    char text[200];

    if (!c->cluster || dibs__slot_fits(name, len))
        return DIBS_OK;
    snprintf(text, sizeof text,
             "'%.80s' is no name for a lock in a cluster: a brace without its "
             "partner, or with nothing between them",
             name);
    dibs__client_say(c, DIBS_EVENT_ERROR, DIBS_ERR_INVALID, text);
    return DIBS_ERR_INVALID;
}

static dibs_err lock_new(dibs_client *c, const struct dibs__kind *kind,
                         const void *name, size_t len, dibs_lock **out)
{
    if (!name || len == 0 || len > DIBS_NAME_MAX || !out)
        return DIBS_ERR_INVALID;
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

/* Longer than allowed is as good as any length that is not. */
static size_t length(const char *name)
{
    return name ? strnlen(name, DIBS_NAME_MAX + 1) : 0;
}

dibs_err dibs_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return lock_new(c, &dibs__kind_basic, name, length(name), out);
}

dibs_err dibs_lock_new_bytes(dibs_client *c, const void *name, size_t len,
                             dibs_lock **out)
{
    return lock_new(c, &dibs__kind_basic, name, len, out);
}

dibs_err dibs_fair_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return lock_new(c, &dibs__kind_fair, name, length(name), out);
}

dibs_err dibs_fair_lock_new_bytes(dibs_client *c, const void *name, size_t len,
                                  dibs_lock **out)
{
    return lock_new(c, &dibs__kind_fair, name, len, out);
}

dibs_err dibs_read_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return lock_new(c, &dibs__kind_read, name, length(name), out);
}

dibs_err dibs_write_lock_new(dibs_client *c, const char *name, dibs_lock **out)
{
    return lock_new(c, &dibs__kind_write, name, length(name), out);
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

dibs_err dibs__lock_enter(const dibs_lock *l)
{
    return l && !l->group ? dibs__client_enter(l->c) : DIBS_ERR_INVALID;
}

/* ---- options ----------------------------------------------------------- */

static bool ms_ok(int64_t ms)
{
    return ms >= 0 && ms <= DIBS_MS_MAX;
}

static bool lease_ok(int64_t ms)
{
    return ms == 0 || (ms >= DIBS_LEASE_MIN_MS && ms <= DIBS_MS_MAX);
}

dibs_err dibs__opts_check(const dibs_lock_opts *in, dibs_lock_opts *o)
{
    if (dibs__opts_take(o, sizeof *o, in, OPTS_SIZE_V1) != DIBS_OK ||
        !ms_ok(o->wait_ms) || !lease_ok(o->lease_ms) ||
        !lease_ok(o->max_hold_ms) || !ms_ok(o->keep_ms) || !ms_ok(o->member_ms))
        return DIBS_ERR_INVALID;
    if (o->lease_ms && o->max_hold_ms)
        return DIBS_ERR_INVALID;
    if (o->replicas < DIBS_REPLICAS_NONE || !ms_ok(o->replicas_timeout_ms))
        return DIBS_ERR_INVALID;
    return DIBS_OK;
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
    op->talk = true;
    dibs__op_begin(op);
    while (sem_wait(&op->done) != 0)
        ; /* a signal */
    sem_destroy(&op->done);
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

static void op_discard(struct dibs__op *op)
{
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
    op->ask.lease_ms =
        o->max_hold_ms ? dibs__min(lease, o->max_hold_ms) : lease;
    op->reap_ms = op->ask.lease_ms;
    set_replicas(op, o);
    int64_t timeout = dibs__line_client(op->line)->server.to.command_timeout_ms;
    int64_t limit = trying ? timeout : o->wait_ms;
    op->deadline = limit ? dibs__add(dibs__now_ms(), limit) : INT64_MAX;
    return promise_note(op, o);
}

dibs_err dibs__release_fill(struct dibs__op *op, const dibs_lock_opts *o,
                            bool trying)
{
    int64_t timeout = dibs__line_client(op->line)->server.to.command_timeout_ms;

    (void)trying;
    set_owner(op, o->owner);
    op->run = dibs__release_run;
    op->ask.keep_ms = o->keep_ms;
    op->deadline =
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

    if (dibs__opts_check(opts, &o) != DIBS_OK)
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
                          fill_fn *fill, bool trying, struct dibs__op *from)
{
    dibs_lock_opts o;

    if (dibs__opts_check(opts, &o) != DIBS_OK || !from->fn)
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
        op_discard(op);
    }
    dibs__client_leave(c);
    return err;
}

/* ---- groups ------------------------------------------------------------ */

static dibs_err acquire_group(struct dibs__group *g, const dibs_lock_opts *opts,
                              bool trying, dibs_cb cb, void *arg)
{
    dibs_lock_opts o;

    return dibs__opts_check(opts, &o) == DIBS_OK
               ? dibs__group_acquire(g, &o, trying, cb, arg)
               : DIBS_ERR_INVALID;
}

static dibs_err release_group(struct dibs__group *g, const dibs_lock_opts *opts,
                              dibs_cb cb, void *arg)
{
    dibs_lock_opts o;

    return dibs__opts_check(opts, &o) == DIBS_OK
               ? dibs__group_release(g, &o, cb, arg)
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

dibs_err dibs_lock_acquire(dibs_lock *l, const dibs_lock_opts *opts)
{
    /* Inside a callback it must not wait: what it waits for may be told by a
     * callback that waits for this one. */
    bool inside = is_inside(l);
    dibs_err err = l && l->group
                       ? acquire_group(l->group, opts, inside, NULL, NULL)
                       : run_sync(l, opts, dibs__acquire_fill, inside);

    return inside && err == DIBS_ERR_BUSY ? DIBS_ERR_DEADLOCK : err;
}

dibs_err dibs_lock_try(dibs_lock *l, const dibs_lock_opts *opts)
{
    if (l && l->group)
        return acquire_group(l->group, opts, true, NULL, NULL);
    return run_sync(l, opts, dibs__acquire_fill, true);
}

dibs_err dibs_lock_release(dibs_lock *l, const dibs_lock_opts *opts)
{
    if (l && l->group)
        return release_group(l->group, opts, NULL, NULL);
    return run_sync(l, opts, dibs__release_fill, false);
}

dibs_err dibs_lock_acquire_async(dibs_lock *l, const dibs_lock_opts *opts,
                                 dibs_cb cb, void *arg)
{
    struct dibs__op from = {.fn = cb, .arg = arg};

    if (l && l->group)
        return cb ? acquire_group(l->group, opts, false, cb, arg)
                  : DIBS_ERR_INVALID;
    return run_async(l, opts, dibs__acquire_fill, false, &from);
}

dibs_err dibs_lock_try_async(dibs_lock *l, const dibs_lock_opts *opts,
                             dibs_cb cb, void *arg)
{
    struct dibs__op from = {.fn = cb, .arg = arg};

    if (l && l->group)
        return cb ? acquire_group(l->group, opts, true, cb, arg)
                  : DIBS_ERR_INVALID;
    return run_async(l, opts, dibs__acquire_fill, true, &from);
}

dibs_err dibs_lock_release_async(dibs_lock *l, const dibs_lock_opts *opts,
                                 dibs_cb cb, void *arg)
{
    struct dibs__op from = {.fn = cb, .arg = arg};

    if (l && l->group)
        return cb ? release_group(l->group, opts, cb, arg) : DIBS_ERR_INVALID;
    return run_async(l, opts, dibs__release_fill, false, &from);
}

dibs_err dibs_lock_cancel(dibs_lock *l, dibs_owner owner)
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

/* ---- what is known without asking -------------------------------------- */

struct known {
    dibs_state state;
    int64_t valid_ms, holds;
    uint64_t wire;
};

static struct known look_up(const dibs_lock *l, dibs_owner owner)
{
    struct known k = {.state = DIBS_NOT_HELD};

    if (l && l->group) {
        k.state = dibs__group_state(l->group, owner, &k.valid_ms, &k.holds);
        return k;
    }
    if (!l || dibs__client_foreign(l->c))
        return k;
    struct dibs__line *line = l->line;
    int64_t now = dibs__now_ms();
    if (!owner)
        owner = dibs__owner_thread();
    dibs__lock(&line->mu);
    struct dibs__hold *h = dibs__hold_of(line, owner);
    if (h && h->count == 0) {
        /* Given back; the server has not been told yet. */
    } else if (h && dibs__hold_over(h, now)) {
        k.state = DIBS_LOST;
    } else if (h) {
        k.state = h->suspect ? DIBS_SUSPECT : DIBS_HELD;
        k.valid_ms = h->valid_until - now;
        k.holds = h->count;
        k.wire = h->wire;
    }
    dibs__unlock(&line->mu);
    return k;
}

dibs_state dibs_lock_state(const dibs_lock *l, dibs_owner owner)
{
    return look_up(l, owner).state;
}

int64_t dibs_lock_valid_ms(const dibs_lock *l, dibs_owner owner)
{
    return look_up(l, owner).valid_ms;
}

int64_t dibs_lock_holds(const dibs_lock *l, dibs_owner owner)
{
    return look_up(l, owner).holds;
}

dibs_err dibs_lock_owner_text(const dibs_lock *l, dibs_owner owner, char *buf,
                              size_t size)
{
    char text[DIBS_OWNER_MAX];

    if (!l || l->group || !buf)
        return DIBS_ERR_INVALID;
    if (dibs__client_foreign(l->c))
        return DIBS_ERR_FORKED;
    struct known k = look_up(l, owner);
    if (k.state == DIBS_LOST)
        return DIBS_ERR_LOST;
    if (k.state == DIBS_NOT_HELD)
        return DIBS_ERR_NOT_OWNER;
    size_t len = dibs__owner_text(l->line, k.wire, text);
    if (len >= size)
        return DIBS_ERR_INVALID;
    memcpy(buf, text, len + 1);
    return DIBS_OK;
}
