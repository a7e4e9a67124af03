/* SPDX-License-Identifier: MIT
 *
 * group_op.c - one operation on several locks: its life, and its members'
 * parts in it.
 *
 * Thread  app starts it; then whichever thread has a member's answer.
 * Locks   group.mu, never while anything is started or told.
 *
 * How     An operation on a group is made of ordinary operations on its members
 *         and goes from step to step: some members are started, and when the
 *         last of them has ended, the next step is taken. No thread waits
 *         meanwhile, except a sync caller. What is done in which order, multi.c
 *         and quorum.c say; giving back is in group_release.c, passing time in
 *         group_time.c.
 *
 *         Members may be of several clients. Before a client's member is
 *         started its client is entered, so it cannot close in between; one
 *         that is closing answers CLOSED.
 *
 *         The operation ends when its caller is told and no member is under
 *         way; the group lives as long.
 */
#include "group/group.h"

#include "base/mem.h"

#include <string.h>

#define HEAR_MS 10 /* a server that takes longer is slow */

/* ---- its life ---------------------------------------------------------- */

void dibs__group_op_unref(struct dibs__group_op *group_op)
{
    struct dibs__group *g = group_op->g;

    if (atomic_fetch_sub(&group_op->refs, 1) != 1)
        return;
    dibs__lock(&g->mu);
    dibs__list_del(&group_op->link);
    dibs__group_level_unref(g, group_op->level);
    for (size_t i = 0; i < g->n; i++)
        dibs__free(group_op->m[i].why);
    dibs__unlock(&g->mu);
    dibs__free(group_op);
    dibs__group_unref(g);
}

struct dibs__group_op *dibs__group_op_new(struct dibs__group *g,
                                          const dibs_lock_opts *o)
{
    struct dibs__group_op *group_op =
        dibs__calloc(1, sizeof *group_op + g->n * sizeof group_op->m[0]);

    if (!group_op)
        return NULL;
    group_op->g = g;
    group_op->o = *o;
    if (!group_op->o.owner)
        group_op->o.owner = dibs__owner_thread();
    atomic_init(&group_op->refs, 1);
    group_op->end = g->n;
    group_op->deadline =
        o->wait_ms ? dibs__add(dibs__now_ms(), o->wait_ms) : INT64_MAX;
    for (size_t i = 0; i < g->n; i++) {
        group_op->m[i].group_op = group_op;
        group_op->m[i].index = i;
    }
    dibs__group_ref(g);
    return group_op;
}

static void called_back(struct dibs__callback *cb, bool drop)
{
    struct dibs__group_op *group_op = DIBS_OF(cb, struct dibs__group_op, cb);

    if (!drop) {
        DIBS__TOLD((dibs__group_op_tell_reason(group_op), group_op->err));
        group_op->fn(group_op->err, group_op->arg);
    }
    dibs__group_op_unref(group_op);
}

/* The client on whose thread the caller hears of it. */
static dibs_client *home(const struct dibs__group_op *group_op)
{
    return group_op->g->members[group_op->home].c;
}

static struct dibs__locks *home_locks(const struct dibs__group_op *group_op)
{
    return group_op->g->members[group_op->home].line->locks;
}

void dibs__group_op_unregister(struct dibs__group_op *group_op)
{
    dibs_client *c = home(group_op);

    dibs__lock(&c->mu);
    dibs__list_add(&home_locks(group_op)->group_ops, &group_op->home_link);
    dibs__unlock(&c->mu);
}

static void group_op_register(struct dibs__group_op *group_op)
{
    dibs_client *c = home(group_op);

    dibs__lock(&c->mu);
    dibs__list_del(&group_op->home_link);
    dibs__unlock(&c->mu);
}

bool dibs__group_op_decide(struct dibs__group_op *group_op, dibs_err err)
{
    if (group_op->told)
        return false;
    group_op->told = true;
    group_op->err = err;
    return true;
}

void dibs__group_op_tell(struct dibs__group_op *group_op, dibs_err err)
{
    dibs__lock(&group_op->g->mu);
    bool first = dibs__group_op_decide(group_op, err);
    dibs__unlock(&group_op->g->mu);
    if (first)
        dibs__group_op_deliver(group_op);
}

static void call_back(void *arg)
{
    struct dibs__group_op *group_op = arg;
    struct dibs__locks *lk = home_locks(group_op);

    group_op->cb.run = called_back;
    dibs__callbacks_push(&home(group_op)->callbacks, &group_op->cb);
    atomic_fetch_sub(&lk->in_flight, 1);
}

/* A release not while on_lost runs of what it gave back. */
void dibs__group_op_deliver(struct dibs__group_op *group_op)
{
    group_op_register(group_op);
    if (!group_op->async)
        sem_post(&group_op->done); /* its caller has a reference */
    else if (!group_op->releasing || !group_op->level ||
             !dibs__loss_then(group_op->level->loss, call_back, group_op))
        call_back(group_op);
}

/* ---- steps ------------------------------------------------------------- */

void dibs__group_op_begun(struct dibs__group_op *group_op, bool detached)
{
    dibs__lock(&group_op->g->mu);
    group_op->pending += !detached;
    dibs__unlock(&group_op->g->mu);
    atomic_fetch_add(&group_op->refs, 1);
}

void dibs__group_op_done(struct dibs__group_op *group_op, bool detached)
{
    dibs__lock(&group_op->g->mu);
    group_op->pending -= !detached;
    bool last = !detached && group_op->pending == 0;
    void (*step)(struct dibs__group_op *) = group_op->step;
    dibs__unlock(&group_op->g->mu);
    if (last)
        step(group_op);
    dibs__group_op_unref(group_op);
}

void dibs__group_op_open(struct dibs__group_op *group_op,
                         void (*step)(struct dibs__group_op *))
{
    dibs__lock(&group_op->g->mu);
    group_op->step = step;
    dibs__unlock(&group_op->g->mu);
    dibs__group_op_begun(group_op, false);
}

void dibs__group_op_run(struct dibs__group_op *group_op)
{
    dibs__group_op_done(group_op, false);
}

dibs_err dibs__group_op_canceled(struct dibs__group_op *group_op)
{
    dibs__lock(&group_op->g->mu);
    dibs_err why = group_op->canceled;
    dibs__unlock(&group_op->g->mu);
    return why;
}

/* ---- members ----------------------------------------------------------- */

/* acquire: what it took is the operation's, until a level has it or it is given
 * back. */
static void member_op_ended(struct dibs__member_op *m, dibs_err err,
                            bool acquire)
{
    struct dibs__group_op *group_op = m->group_op;

    dibs__lock(&group_op->g->mu);
    bool detached = m->detached;
    m->under_way = m->detached = false;
    m->err = err;
    dibs__member_op_keep_reason(group_op, m, acquire || group_op->releasing);
    if (acquire) {
        m->got = err == DIBS_OK;
        group_op->level->members[m->index].err = err;
    }
    dibs__unlock(&group_op->g->mu);
    if (group_op->heard)
        group_op->heard(group_op, m, detached);
    dibs__group_op_done(group_op, detached);
}

/* It did not even begin. */
static void member_op_refused(struct dibs__member_op *m, dibs_err err)
{
    struct dibs__group_op *group_op = m->group_op;

    dibs__lock(&group_op->g->mu);
    if (!group_op->releasing &&
        group_op->level->members[m->index].err != DIBS_OK)
        group_op->level->members[m->index].err = err;
    dibs__unlock(&group_op->g->mu);
    member_op_ended(m, err, false);
}

static void acquire_ended(struct dibs__op *op)
{
    struct dibs__member_op *m = DIBS_OF(op, struct dibs__member_op, op);
    struct dibs__member *member = &m->group_op->g->members[m->index];

    if (atomic_load(&member->slow) &&
        dibs__now_ms() - op->call.sent_ms < HEAR_MS)
        atomic_store(&member->slow, false);
    member_op_ended(m, op->err, true);
}

static void release_ended(struct dibs__op *op)
{
    struct dibs__member_op *m = DIBS_OF(op, struct dibs__member_op, op);

    member_op_ended(m, op->err, false);
}

/* NULL: it is canceled, or its client is closing; it has ended. Otherwise
 * dibs__client_leave must follow. */
static struct dibs__op *member_op_begin(struct dibs__group_op *group_op,
                                        size_t i, bool asks, bool detached)
{
    struct dibs__member_op *m = &group_op->m[i];
    const struct dibs__member *member = &group_op->g->members[i];
    dibs_err err = dibs__client_enter(member->c);
    bool inside = err == DIBS_OK;

    atomic_fetch_add(&group_op->refs, 1);
    dibs__lock(&group_op->g->mu);
    group_op->pending += !detached;
    m->detached = detached;
    if (asks && group_op->to_ask > 0)
        group_op->to_ask--;
    if (asks && group_op->canceled) /* from now on it hears of that itself */
        err = group_op->canceled;
    m->under_way = err == DIBS_OK;
    memset(&m->op, 0, sizeof m->op);
    m->op.ask.line = member->line;
    m->op.line = member->line;
    dibs__unlock(&group_op->g->mu);
    if (err == DIBS_OK) {
        dibs__line_ref(member->line);
        return &m->op;
    }
    if (inside)
        dibs__client_leave(member->c);
    member_op_refused(m, err);
    return NULL;
}

static void member_op_failed(struct dibs__group_op *group_op, size_t i,
                             dibs_err err)
{
    const struct dibs__member *member = &group_op->g->members[i];

    dibs__note_free(group_op->m[i].op.note);
    dibs__line_unref(member->line);
    dibs__client_leave(member->c);
    member_op_refused(&group_op->m[i], err);
}

/* Not where a server was slow: somebody else shall wait for that one. */
static void scatter(struct dibs__group_op *group_op, size_t i,
                    struct dibs__op *op, struct dibs__scatter *sc)
{
    if (!sc || atomic_load(&group_op->g->members[i].slow))
        return;
    op->direct = true;
    op->asked = &sc->asked[i];
}

void dibs__group_op_hear(struct dibs__group_op *group_op,
                         struct dibs__scatter *sc)
{
    int64_t until = dibs__now_ms() + HEAR_MS;

    for (size_t i = 0; i < group_op->g->n; i++)
        if (sc->asked[i] && !dibs__call_hear(&group_op->m[i].op.call, until))
            atomic_store(&group_op->g->members[i].slow, true);
}

void dibs__member_op_acquire(struct dibs__group_op *group_op, size_t i,
                             bool trying, int64_t deadline,
                             struct dibs__batch *batch,
                             struct dibs__scatter *sc)
{
    dibs_lock_opts o = group_op->o;
    struct dibs__op *op = member_op_begin(group_op, i, true, false);

    if (!op)
        return;
    o.on_lost = NULL; /* the group's own note instead */
    dibs_err err = dibs__acquire_fill(op, &o, trying);
    if (err == DIBS_OK && group_op->level->loss) {
        err = dibs__callbacks_ready(&group_op->g->members[i].c->callbacks);
        op->note = err ? NULL : dibs__note_new(group_op->level->loss, i);
        if (!op->note)
            err = DIBS_ERR_NOMEM;
    }
    if (err != DIBS_OK) {
        member_op_failed(group_op, i, err);
        return;
    }
    if (!trying)
        op->wait.deadline = deadline;
    op->with = group_op->level;
    op->kept = group_op->kept;
    op->batch = batch;
    scatter(group_op, i, op, sc);
    op->ended = acquire_ended;
    dibs__op_begin(op);
    dibs__client_leave(group_op->g->members[i].c);
}

bool dibs__member_op_take(struct dibs__group_op *group_op, size_t i)
{
    dibs__lock(&group_op->g->mu);
    bool got = group_op->m[i].got;
    group_op->m[i].got = false;
    dibs__unlock(&group_op->g->mu);
    return got;
}

void dibs__group_op_enter(struct dibs__group_op *group_op,
                          bool in[DIBS__MEMBERS_MAX])
{
    for (size_t i = 0; i < group_op->g->n; i++)
        in[i] = dibs__client_enter(group_op->g->members[i].c) == DIBS_OK;
}

void dibs__group_op_leave(struct dibs__group_op *group_op,
                          const bool in[DIBS__MEMBERS_MAX])
{
    for (size_t i = 0; i < group_op->g->n; i++)
        if (in[i])
            dibs__client_leave(group_op->g->members[i].c);
}

void dibs__member_op_release(struct dibs__group_op *group_op, size_t i,
                             int64_t deadline, struct dibs__batch *batch,
                             struct dibs__scatter *sc, bool detached)
{
    dibs_lock_opts o = group_op->o;
    struct dibs__op *op = member_op_begin(group_op, i, false, detached);

    if (!op)
        return;               /* a client that closes gives it back itself */
    if (!group_op->releasing) /* they were meant for the acquire */
        o.wait_ms = o.keep_ms = 0;
    dibs__release_fill(op, &o, false);
    op->with = group_op->level;
    if (!group_op->releasing) /* its caller has waited long enough */
        op->wait.deadline =
            dibs__now_ms() +
            group_op->g->members[i].c->server.to.command_timeout_ms;
    if (deadline)
        op->wait.deadline = deadline;
    op->batch = batch;
    scatter(group_op, i, op, sc);
    op->ended = release_ended;
    dibs__op_begin(op);
    dibs__client_leave(group_op->g->members[i].c);
}

size_t dibs__group_op_place_end(const struct dibs__group_op *group_op,
                                size_t from, size_t to)
{
    const struct dibs__member *first = &group_op->g->members[from];
    size_t end = from + 1;

    while (end < to && group_op->g->members[end].c == first->c &&
           group_op->g->members[end].line->slot == first->line->slot)
        end++;
    return end;
}

/* ---- acquire ----------------------------------------------------------- */

static bool is_told(struct dibs__group_op *group_op)
{
    dibs__lock(&group_op->g->mu);
    bool told = group_op->told;
    dibs__unlock(&group_op->g->mu);
    return told;
}

/* Runs it: waits for a sync one, leaves an async one to itself. */
dibs_err dibs__group_op_go(struct dibs__group_op *group_op,
                           void (*start)(struct dibs__group_op *), dibs_cb fn,
                           void *arg)
{
    dibs_err err = DIBS_OK;

    dibs__no_cancel(); /* it works for others, too */
    if (fn) {
        group_op->async = true;
        group_op->fn = fn;
        group_op->arg = arg;
        atomic_fetch_add(&group_op->refs, 1); /* for the callback */
        start(group_op);
        if (group_op->patience_ms && !is_told(group_op))
            dibs__group_op_watch(group_op);
    } else {
        sem_init(&group_op->done, 0, 0);
        group_op->direct = true;
        start(group_op);
        dibs__group_op_await(group_op);
        sem_destroy(&group_op->done);
        dibs__lock(&group_op->g->mu);
        err = group_op->err;
        dibs__unlock(&group_op->g->mu);
        dibs__group_op_tell_reason(group_op);
    }
    dibs__group_op_unref(group_op);
    dibs__cancel_again();
    return err;
}

/* An async operation counts as in_flight until its callback is on its way. */
dibs_err dibs__group_op_ready(struct dibs__group_op *group_op, bool async)
{
    dibs_err err = DIBS_OK;

    for (size_t i = 0; async && i < group_op->g->n; i++) {
        group_op->home = i; /* one that is not closing */
        err = dibs__client_enter(home(group_op));
        if (err != DIBS_OK)
            continue;
        err = dibs__callbacks_ready(&home(group_op)->callbacks);
        if (err == DIBS_OK)
            atomic_fetch_add(&home_locks(group_op)->in_flight, 1);
        dibs__client_leave(home(group_op));
        return err;
    }
    return err;
}

static dibs_err prepare(struct dibs__group_op *group_op)
{
    struct dibs__group *g = group_op->g;

    group_op->level = dibs__group_level_new(g, group_op->o.owner);
    if (!group_op->level)
        return DIBS_ERR_NOMEM;
    if (group_op->o.on_lost) {
        group_op->level->loss =
            dibs__loss_named(dibs__loss_new(g, &group_op->o, g->n, g->need),
                             g->label, strlen(g->label));
        if (!group_op->level->loss)
            return DIBS_ERR_NOMEM;
    }
    return DIBS_OK;
}

dibs_err dibs__group_acquire(struct dibs__group *g, const dibs_lock_opts *o,
                             bool trying, dibs_cb fn, void *arg)
{
    if (dibs__group_foreign(g))
        return DIBS_ERR_FORKED;
    struct dibs__group_op *group_op = dibs__group_op_new(g, o);
    if (!group_op)
        return DIBS_ERR_NOMEM;
    group_op->trying = trying;
    dibs_err err = prepare(group_op);
    if (err == DIBS_OK)
        err = dibs__group_op_ready(group_op, fn != NULL);
    if (err != DIBS_OK) {
        dibs__group_op_unref(group_op);
        return err;
    }
    dibs__lock(&g->mu);
    dibs__list_add(&g->group_ops, &group_op->link);
    dibs__unlock(&g->mu);
    dibs__group_op_unregister(group_op);
    return dibs__group_op_go(
        group_op, g->quorum ? dibs__quorum_start : dibs__multi_start, fn, arg);
}

/* ---- cancel ------------------------------------------------------------ */

/* The member that waits, if one does, is told to. */
static void cancel_members(struct dibs__group *g,
                           struct dibs__group_op *group_op) REQUIRES(g->mu)
{
    for (size_t i = 0; i < g->n; i++) {
        struct dibs__line *line = g->members[i].line;
        if (!group_op->m[i].under_way ||
            dibs__client_enter(g->members[i].c) != DIBS_OK)
            continue; /* one that closes ends its waiters itself */
        dibs__lock(&line->mu);
        dibs__wait_cancel(&line->wait, &group_op->m[i].op.wait);
        dibs__unlock(&line->mu);
        dibs__client_leave(g->members[i].c);
    }
}

static void cancel(struct dibs__group *g, struct dibs__group_op *group_op,
                   dibs_err why) REQUIRES(g->mu)
{
    if (!group_op->canceled)
        group_op->canceled = why;
    cancel_members(g, group_op);
}

/* One that was not told to end yet, or any, with a reference: while it is in
 * the list its caller is not told, so somebody has one. */
static struct dibs__group_op *next_at_home(struct dibs__locks *lk, bool any)
{
    struct dibs__group_op *found = NULL;

    dibs__lock(&lk->c->mu);
    for (struct dibs__list *l = lk->group_ops.next;
         l != &lk->group_ops && !found; l = l->next) {
        struct dibs__group_op *group_op =
            DIBS_OF(l, struct dibs__group_op, home_link);
        if (any || !group_op->closing)
            found = group_op;
    }
    if (found) {
        found->closing = true;
        atomic_fetch_add(&found->refs, 1);
    }
    dibs__unlock(&lk->c->mu);
    return found;
}

void dibs__group_ops_close(struct dibs__locks *lk)
{
    for (struct dibs__group_op *group_op;
         (group_op = next_at_home(lk, false));) {
        struct dibs__group *g = group_op->g;
        dibs__lock(&g->mu);
        cancel(g, group_op, DIBS_ERR_CLOSED);
        dibs__unlock(&g->mu);
        dibs__group_op_unref(group_op);
    }
}

void dibs__group_ops_tell(struct dibs__locks *lk)
{
    for (struct dibs__group_op *group_op;
         (group_op = next_at_home(lk, true));) {
        dibs__group_op_tell(group_op, DIBS_ERR_CLOSED);
        dibs__group_op_unref(group_op);
    }
}

dibs_err dibs__group_cancel(struct dibs__group *g, dibs_owner owner)
{
    dibs_err err = DIBS_ERR_NOT_OWNER;

    if (dibs__group_foreign(g))
        return DIBS_ERR_FORKED;
    if (!owner)
        owner = dibs__owner_thread();
    dibs__lock(&g->mu);
    for (struct dibs__list *l = g->group_ops.next; l != &g->group_ops;
         l = l->next) {
        struct dibs__group_op *group_op =
            DIBS_OF(l, struct dibs__group_op, link);
        if (group_op->o.owner != owner || group_op->told || group_op->releasing)
            continue;
        cancel(g, group_op, DIBS_ERR_CANCELED);
        err = DIBS_OK;
    }
    dibs__unlock(&g->mu);
    return err;
}
