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
#include "lock/group.h"

#include "base/mem.h"

#include <string.h>

#define HEAR_MS 10 /* a server that takes longer is slow */

/* ---- its life ---------------------------------------------------------- */

void dibs__gop_unref(struct dibs__gop *gop)
{
    struct dibs__group *g = gop->g;

    if (atomic_fetch_sub(&gop->refs, 1) != 1)
        return;
    dibs__lock(&g->mu);
    dibs__list_del(&gop->link);
    dibs__glevel_unref(g, gop->level);
    for (size_t i = 0; i < g->n; i++)
        dibs__free(gop->m[i].why);
    dibs__unlock(&g->mu);
    dibs__free(gop);
    dibs__group_unref(g);
}

struct dibs__gop *dibs__gop_new(struct dibs__group *g, const dibs_lock_opts *o)
{
    struct dibs__gop *gop =
        dibs__calloc(1, sizeof *gop + g->n * sizeof gop->m[0]);

    if (!gop)
        return NULL;
    gop->g = g;
    gop->o = *o;
    if (!gop->o.owner)
        gop->o.owner = dibs__owner_thread();
    atomic_init(&gop->refs, 1);
    gop->end = g->n;
    gop->deadline =
        o->wait_ms ? dibs__add(dibs__now_ms(), o->wait_ms) : INT64_MAX;
    for (size_t i = 0; i < g->n; i++) {
        gop->m[i].gop = gop;
        gop->m[i].index = i;
    }
    dibs__group_ref(g);
    return gop;
}

static void called_back(struct dibs__callback *cb, bool drop)
{
    struct dibs__gop *gop = DIBS_OF(cb, struct dibs__gop, cb);

    if (!drop) {
        DIBS__TOLD((dibs__gop_tell_reason(gop), gop->err));
        gop->fn(gop->err, gop->arg);
    }
    dibs__gop_unref(gop);
}

/* The client on whose thread the caller hears of it. */
static dibs_client *home(const struct dibs__gop *gop)
{
    return gop->g->members[gop->home].c;
}

static struct dibs__locks *home_locks(const struct dibs__gop *gop)
{
    return gop->g->members[gop->home].line->locks;
}

void dibs__gop_leave_home(struct dibs__gop *gop)
{
    dibs_client *c = home(gop);

    dibs__lock(&c->mu);
    dibs__list_add(&home_locks(gop)->gops, &gop->at_home);
    dibs__unlock(&c->mu);
}

static void go_home(struct dibs__gop *gop)
{
    dibs_client *c = home(gop);

    dibs__lock(&c->mu);
    dibs__list_del(&gop->at_home);
    dibs__unlock(&c->mu);
}

bool dibs__gop_decide(struct dibs__gop *gop, dibs_err err)
{
    if (gop->told)
        return false;
    gop->told = true;
    gop->err = err;
    return true;
}

void dibs__gop_tell(struct dibs__gop *gop, dibs_err err)
{
    dibs__lock(&gop->g->mu);
    bool first = dibs__gop_decide(gop, err);
    dibs__unlock(&gop->g->mu);
    if (first)
        dibs__gop_deliver(gop);
}

void dibs__gop_deliver(struct dibs__gop *gop)
{
    go_home(gop);
    if (!gop->async) {
        sem_post(&gop->done); /* its caller has a reference */
        return;
    }
    gop->cb.run = called_back;
    struct dibs__locks *lk = home_locks(gop);
    dibs__callbacks_push(&home(gop)->callbacks, &gop->cb);
    atomic_fetch_sub(&lk->afoot, 1);
}

/* ---- steps ------------------------------------------------------------- */

void dibs__gop_begun(struct dibs__gop *gop, bool astray)
{
    dibs__lock(&gop->g->mu);
    gop->pending += !astray;
    dibs__unlock(&gop->g->mu);
    atomic_fetch_add(&gop->refs, 1);
}

void dibs__gop_done(struct dibs__gop *gop, bool astray)
{
    dibs__lock(&gop->g->mu);
    gop->pending -= !astray;
    bool last = !astray && gop->pending == 0;
    void (*step)(struct dibs__gop *) = gop->step;
    dibs__unlock(&gop->g->mu);
    if (last)
        step(gop);
    dibs__gop_unref(gop);
}

void dibs__gop_open(struct dibs__gop *gop, void (*step)(struct dibs__gop *))
{
    dibs__lock(&gop->g->mu);
    gop->step = step;
    dibs__unlock(&gop->g->mu);
    dibs__gop_begun(gop, false);
}

void dibs__gop_run(struct dibs__gop *gop)
{
    dibs__gop_done(gop, false);
}

dibs_err dibs__gop_canceled(struct dibs__gop *gop)
{
    dibs__lock(&gop->g->mu);
    dibs_err why = gop->canceled;
    dibs__unlock(&gop->g->mu);
    return why;
}

/* ---- members ----------------------------------------------------------- */

/* acquire: what it took is the operation's, until a level has it or it is given
 * back. */
static void mop_ended(struct dibs__mop *m, dibs_err err, bool acquire)
{
    struct dibs__gop *gop = m->gop;

    dibs__lock(&gop->g->mu);
    bool astray = m->astray;
    m->under_way = m->astray = false;
    m->err = err;
    dibs__mop_keep_reason(gop, m, acquire || gop->releasing);
    if (acquire) {
        m->got = err == DIBS_OK;
        gop->level->members[m->index].err = err;
    }
    dibs__unlock(&gop->g->mu);
    if (gop->heard)
        gop->heard(gop, m, astray);
    dibs__gop_done(gop, astray);
}

/* It did not even begin. */
static void mop_refused(struct dibs__mop *m, dibs_err err)
{
    struct dibs__gop *gop = m->gop;

    dibs__lock(&gop->g->mu);
    if (!gop->releasing && gop->level->members[m->index].err != DIBS_OK)
        gop->level->members[m->index].err = err;
    dibs__unlock(&gop->g->mu);
    mop_ended(m, err, false);
}

static void acquire_ended(struct dibs__op *op)
{
    struct dibs__mop *m = DIBS_OF(op, struct dibs__mop, op);
    struct dibs__member *member = &m->gop->g->members[m->index];

    if (atomic_load(&member->slow) &&
        dibs__now_ms() - op->call.sent_ms < HEAR_MS)
        atomic_store(&member->slow, false);
    mop_ended(m, op->err, true);
}

static void release_ended(struct dibs__op *op)
{
    struct dibs__mop *m = DIBS_OF(op, struct dibs__mop, op);

    mop_ended(m, op->err, false);
}

/* NULL: it is canceled, or its client is closing; it has ended. Otherwise
 * dibs__client_leave must follow. */
static struct dibs__op *mop_begin(struct dibs__gop *gop, size_t i, bool asks,
                                  bool astray)
{
    struct dibs__mop *m = &gop->m[i];
    const struct dibs__member *member = &gop->g->members[i];
    dibs_err err = dibs__client_enter(member->c);
    bool inside = err == DIBS_OK;

    atomic_fetch_add(&gop->refs, 1);
    dibs__lock(&gop->g->mu);
    gop->pending += !astray;
    m->astray = astray;
    if (asks && gop->to_ask > 0)
        gop->to_ask--;
    if (asks && gop->canceled) /* from now on it hears of that itself */
        err = gop->canceled;
    m->under_way = err == DIBS_OK;
    memset(&m->op, 0, sizeof m->op);
    m->op.ask.line = member->line;
    m->op.line = member->line;
    dibs__unlock(&gop->g->mu);
    if (err == DIBS_OK) {
        dibs__line_ref(member->line);
        return &m->op;
    }
    if (inside)
        dibs__client_leave(member->c);
    mop_refused(m, err);
    return NULL;
}

static void mop_failed(struct dibs__gop *gop, size_t i, dibs_err err)
{
    const struct dibs__member *member = &gop->g->members[i];

    dibs__note_free(gop->m[i].op.note);
    dibs__line_unref(member->line);
    dibs__client_leave(member->c);
    mop_refused(&gop->m[i], err);
}

/* Not where a server was slow: somebody else shall wait for that one. */
static void scatter(struct dibs__gop *gop, size_t i, struct dibs__op *op,
                    struct dibs__scatter *sc)
{
    if (!sc || atomic_load(&gop->g->members[i].slow))
        return;
    op->talk = true;
    op->asked = &sc->asked[i];
}

void dibs__gop_hear(struct dibs__gop *gop, struct dibs__scatter *sc)
{
    int64_t until = dibs__now_ms() + HEAR_MS;

    for (size_t i = 0; i < gop->g->n; i++)
        if (sc->asked[i] && !dibs__call_hear(&gop->m[i].op.call, until))
            atomic_store(&gop->g->members[i].slow, true);
}

void dibs__mop_acquire(struct dibs__gop *gop, size_t i, bool trying,
                       int64_t deadline, struct dibs__batch *batch,
                       struct dibs__scatter *sc)
{
    dibs_lock_opts o = gop->o;
    struct dibs__op *op = mop_begin(gop, i, true, false);

    if (!op)
        return;
    o.on_lost = NULL; /* the group's own note instead */
    dibs_err err = dibs__acquire_fill(op, &o, trying);
    if (err == DIBS_OK && gop->level->loss) {
        err = dibs__callbacks_ready(&gop->g->members[i].c->callbacks);
        op->note = err ? NULL : dibs__loss_note(gop->level->loss);
        if (!op->note)
            err = DIBS_ERR_NOMEM;
    }
    if (err != DIBS_OK) {
        mop_failed(gop, i, err);
        return;
    }
    op->deadline = deadline;
    op->with = gop->level;
    op->kept = gop->kept;
    op->batch = batch;
    scatter(gop, i, op, sc);
    op->ended = acquire_ended;
    dibs__op_begin(op);
    dibs__client_leave(gop->g->members[i].c);
}

bool dibs__mop_take(struct dibs__gop *gop, size_t i)
{
    dibs__lock(&gop->g->mu);
    bool got = gop->m[i].got;
    gop->m[i].got = false;
    dibs__unlock(&gop->g->mu);
    return got;
}

void dibs__gop_enter(struct dibs__gop *gop, bool in[DIBS__MEMBERS_MAX])
{
    for (size_t i = 0; i < gop->g->n; i++)
        in[i] = dibs__client_enter(gop->g->members[i].c) == DIBS_OK;
}

void dibs__gop_leave(struct dibs__gop *gop, const bool in[DIBS__MEMBERS_MAX])
{
    for (size_t i = 0; i < gop->g->n; i++)
        if (in[i])
            dibs__client_leave(gop->g->members[i].c);
}

void dibs__mop_release(struct dibs__gop *gop, size_t i, int64_t deadline,
                       struct dibs__batch *batch, struct dibs__scatter *sc,
                       bool astray)
{
    dibs_lock_opts o = gop->o;
    struct dibs__op *op = mop_begin(gop, i, false, astray);

    if (!op)
        return;          /* a client that closes gives it back itself */
    if (!gop->releasing) /* they were meant for the acquire */
        o.wait_ms = o.keep_ms = 0;
    dibs__release_fill(op, &o, false);
    op->with = gop->level;
    if (!gop->releasing) /* its caller has waited long enough */
        op->deadline =
            dibs__now_ms() + gop->g->members[i].c->server.to.command_timeout_ms;
    if (deadline)
        op->deadline = deadline;
    op->batch = batch;
    scatter(gop, i, op, sc);
    op->ended = release_ended;
    dibs__op_begin(op);
    dibs__client_leave(gop->g->members[i].c);
}

size_t dibs__gop_place_end(const struct dibs__gop *gop, size_t from, size_t to)
{
    const struct dibs__member *first = &gop->g->members[from];
    size_t end = from + 1;

    while (end < to && gop->g->members[end].c == first->c &&
           gop->g->members[end].line->slot == first->line->slot)
        end++;
    return end;
}

/* ---- acquire ----------------------------------------------------------- */

static bool is_told(struct dibs__gop *gop)
{
    dibs__lock(&gop->g->mu);
    bool told = gop->told;
    dibs__unlock(&gop->g->mu);
    return told;
}

/* Runs it: waits for a sync one, leaves an async one to itself. */
dibs_err dibs__gop_go(struct dibs__gop *gop, void (*start)(struct dibs__gop *),
                      dibs_cb fn, void *arg)
{
    dibs_err err = DIBS_OK;

    dibs__no_cancel(); /* it works for others, too */
    if (fn) {
        gop->async = true;
        gop->fn = fn;
        gop->arg = arg;
        atomic_fetch_add(&gop->refs, 1); /* for the callback */
        start(gop);
        if (gop->patience_ms && !is_told(gop))
            dibs__gop_watch(gop);
    } else {
        sem_init(&gop->done, 0, 0);
        gop->talk = true;
        start(gop);
        dibs__gop_await(gop);
        sem_destroy(&gop->done);
        dibs__lock(&gop->g->mu);
        err = gop->err;
        dibs__unlock(&gop->g->mu);
        dibs__gop_tell_reason(gop);
    }
    dibs__gop_unref(gop);
    dibs__cancel_again();
    return err;
}

/* An async operation counts as afoot until its callback is on its way. */
dibs_err dibs__gop_ready(struct dibs__gop *gop, bool async)
{
    dibs_err err = DIBS_OK;

    for (size_t i = 0; async && i < gop->g->n; i++) {
        gop->home = i; /* one that is not closing */
        err = dibs__client_enter(home(gop));
        if (err != DIBS_OK)
            continue;
        err = dibs__callbacks_ready(&home(gop)->callbacks);
        if (err == DIBS_OK)
            atomic_fetch_add(&home_locks(gop)->afoot, 1);
        dibs__client_leave(home(gop));
        return err;
    }
    return err;
}

static dibs_err prepare(struct dibs__gop *gop)
{
    struct dibs__group *g = gop->g;

    gop->level = dibs__glevel_new(g, gop->o.owner);
    if (!gop->level)
        return DIBS_ERR_NOMEM;
    if (gop->o.on_lost) {
        gop->level->loss = dibs__loss_new(g, &gop->o, gop->o.owner);
        if (!gop->level->loss)
            return DIBS_ERR_NOMEM;
    }
    return DIBS_OK;
}

dibs_err dibs__group_acquire(struct dibs__group *g, const dibs_lock_opts *o,
                             bool trying, dibs_cb fn, void *arg)
{
    if (dibs__group_foreign(g))
        return DIBS_ERR_FORKED;
    struct dibs__gop *gop = dibs__gop_new(g, o);
    if (!gop)
        return DIBS_ERR_NOMEM;
    gop->trying = trying;
    dibs_err err = prepare(gop);
    if (err == DIBS_OK)
        err = dibs__gop_ready(gop, fn != NULL);
    if (err != DIBS_OK) {
        dibs__gop_unref(gop);
        return err;
    }
    dibs__lock(&g->mu);
    dibs__list_add(&g->gops, &gop->link);
    dibs__unlock(&g->mu);
    dibs__gop_leave_home(gop);
    return dibs__gop_go(gop, g->quorum ? dibs__quorum_start : dibs__multi_start,
                        fn, arg);
}

/* ---- cancel ------------------------------------------------------------ */

/* The member that waits, if one does, is told to. */
static void cancel_members(struct dibs__group *g, struct dibs__gop *gop)
    REQUIRES(g->mu)
{
    for (size_t i = 0; i < g->n; i++) {
        struct dibs__line *line = g->members[i].line;
        if (!gop->m[i].under_way ||
            dibs__client_enter(g->members[i].c) != DIBS_OK)
            continue; /* one that closes ends its waiters itself */
        dibs__lock(&line->mu);
        gop->m[i].op.canceled = line->canceled = true;
        dibs__line_wake(line);
        dibs__unlock(&line->mu);
        dibs__client_leave(g->members[i].c);
    }
}

static void cancel(struct dibs__group *g, struct dibs__gop *gop, dibs_err why)
    REQUIRES(g->mu)
{
    if (!gop->canceled)
        gop->canceled = why;
    cancel_members(g, gop);
}

/* One that was not told to end yet, or any, with a reference: while it is in
 * the list its caller is not told, so somebody has one. */
static struct dibs__gop *next_at_home(struct dibs__locks *lk, bool any)
{
    struct dibs__gop *found = NULL;

    dibs__lock(&lk->c->mu);
    for (struct dibs__list *l = lk->gops.next; l != &lk->gops && !found;
         l = l->next) {
        struct dibs__gop *gop = DIBS_OF(l, struct dibs__gop, at_home);
        if (any || !gop->closing)
            found = gop;
    }
    if (found) {
        found->closing = true;
        atomic_fetch_add(&found->refs, 1);
    }
    dibs__unlock(&lk->c->mu);
    return found;
}

void dibs__gops_close(struct dibs__locks *lk)
{
    for (struct dibs__gop *gop; (gop = next_at_home(lk, false));) {
        struct dibs__group *g = gop->g;
        dibs__lock(&g->mu);
        cancel(g, gop, DIBS_ERR_CLOSED);
        dibs__unlock(&g->mu);
        dibs__gop_unref(gop);
    }
}

void dibs__gops_tell(struct dibs__locks *lk)
{
    for (struct dibs__gop *gop; (gop = next_at_home(lk, true));) {
        dibs__gop_tell(gop, DIBS_ERR_CLOSED);
        dibs__gop_unref(gop);
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
    for (struct dibs__list *l = g->gops.next; l != &g->gops; l = l->next) {
        struct dibs__gop *gop = DIBS_OF(l, struct dibs__gop, link);
        if (gop->o.owner != owner || gop->told || gop->releasing)
            continue;
        cancel(g, gop, DIBS_ERR_CANCELED);
        err = DIBS_OK;
    }
    dibs__unlock(&g->mu);
    return err;
}
