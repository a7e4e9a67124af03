/* SPDX-License-Identifier: MIT
 *
 * multi.c - all of several locks, or none.
 *
 * Thread  as group_op.c.
 * Locks   group.mu.
 *
 * How     First all members are tried at once, those of one client in one
 *         script, the servers side by side. Nobody in the way: that was it.
 *
 *         Otherwise what was got is given back, and the members before the one
 *         in the way are taken, it is waited for, and the rest are tried again;
 *         and so on. What is held while waiting is always a row from the start,
 *         in an order that is the same for all callers, so they cannot wait for
 *         each other in a circle.
 *
 *         What is held before the last one is taken is renewed whatever lease
 *         was asked for; that lease begins when all are held.
 *
 * Trouble Somebody may take the same locks in another order: a Redisson client,
 *         or one that knows a server by another address. So with members on
 *         several servers nobody waits long while holding some: after a few
 *         seconds all go back, and it begins anew.
 *
 *         A member that was lost while the others were waited for is found out
 *         at the end; then it begins anew, too.
 */
#include "group/group.h"

#include "base/mem.h"

#define PATIENCE_MIN_MS 2000
#define PATIENCE_MAX_MS 4000

static void try_rest(struct dibs__group_op *group_op);
static void start_over(struct dibs__group_op *group_op);
static void wait_for_next(struct dibs__group_op *group_op);

/* ---- the end ----------------------------------------------------------- */

static void failed(struct dibs__group_op *group_op)
{
    dibs__lock(&group_op->g->mu);
    dibs__group_level_archive(group_op->g, group_op->level);
    dibs__unlock(&group_op->g->mu);
    dibs__group_op_tell(group_op, group_op->why);
}

/* Everything goes back, then it ends with that. */
static void fail(struct dibs__group_op *group_op, dibs_err err)
{
    group_op->why = err;
    dibs__group_op_open(group_op, failed);
    dibs__group_op_release(group_op, 0, group_op->g->n, false);
    dibs__group_op_run(group_op);
}

/* All are held. Are they still, and for as long as was asked for? */
static bool are_sealed(struct dibs__group_op *group_op)
{
    bool fine = true;

    for (size_t i = 0; i < group_op->g->n; i++) {
        struct dibs__line *line = group_op->g->members[i].line;
        dibs__lock(&line->mu);
        fine &= dibs__hold_seal(line, &group_op->m[i].op);
        dibs__unlock(&line->mu);
    }
    return fine;
}

/* It is its caller's now, who hears of a loss from here on. False: some member
 * is lost. gone: its caller has been told something else, and hears nothing. */
static bool grant(struct dibs__group_op *group_op, bool *gone)
{
    struct dibs__group *g = group_op->g;

    if (!are_sealed(group_op))
        return false;
    dibs__lock(&group_op->g->mu);
    *gone = group_op->told;
    bool fine = *gone || dibs__loss_arm(group_op->level->loss, NULL);
    if (fine && dibs__group_op_decide(group_op, DIBS_OK)) {
        dibs__group_level_live(group_op->g, group_op->level);
        for (size_t i = 0; i < g->n; i++)
            group_op->level->members[i].got = true;
    }
    dibs__unlock(&group_op->g->mu);
    return fine;
}

static void all_held(struct dibs__group_op *group_op)
{
    dibs_err canceled = dibs__group_op_canceled(group_op);
    bool gone = false;

    if (canceled) {
        fail(group_op, canceled);
        return;
    }
    if (!grant(group_op, &gone)) {
        if (group_op->trying || dibs__now_ms() >= group_op->deadline)
            fail(group_op, DIBS_ERR_LOST);
        else
            start_over(group_op);
        return;
    }
    if (gone)
        fail(group_op, DIBS_ERR_CLOSED);
    else
        dibs__group_op_deliver(group_op);
}

/* ---- trying ------------------------------------------------------------ */

/* What a try of [held, end) came to. */
struct outcome {
    bool all;       /* taken */
    dibs_err error; /* one that waiting does not help */
    size_t blocker; /* the first that is busy; end = none is */
};

/* A server that cannot be reached, or says "not now", is waited for as a holder
 * is. */
static bool may_wait(struct dibs__group_op *group_op,
                     const struct dibs__member_op *m) REQUIRES(group_op->g->mu)
{
    dibs_err err = m->err;
    bool not_now = err == DIBS_ERR_SERVER && err == m->op.last;

    return err == DIBS_ERR_BUSY ||
           (!group_op->trying &&
            (err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN || not_now));
}

static struct outcome look(struct dibs__group_op *group_op)
{
    struct outcome o = {.all = true, .blocker = group_op->end};

    dibs__lock(&group_op->g->mu);
    for (size_t i = group_op->end; i-- > group_op->held;) {
        const struct dibs__member_op *m = &group_op->m[i];
        o.all &= m->got;
        if (may_wait(group_op, m))
            o.blocker = i;
        else if (m->err != DIBS_OK && m->err != DIBS_ERR_CANCELED)
            o.error = m->err;
    }
    dibs__unlock(&group_op->g->mu);
    return o;
}

/* What this try took goes back, then comes `after`. */
static void undo(struct dibs__group_op *group_op,
                 void (*after)(struct dibs__group_op *))
{
    dibs__group_op_open(group_op, after);
    dibs__group_op_release(group_op, group_op->held, group_op->g->n, false);
    dibs__group_op_run(group_op);
}

static void tried(struct dibs__group_op *group_op)
{
    struct outcome o = look(group_op);
    dibs_err canceled = dibs__group_op_canceled(group_op);

    if (o.all) {
        group_op->held = group_op->end;
        if (group_op->held == group_op->g->n)
            all_held(group_op);
        else
            wait_for_next(group_op);
    } else if (canceled || o.error) {
        fail(group_op, canceled ? canceled : o.error);
    } else if (o.blocker == group_op->end) {
        group_op->single = true; /* nobody is in the way: they were not asked */
        undo(group_op, try_rest);
    } else if (group_op->trying) {
        fail(group_op, DIBS_ERR_BUSY);
    } else {
        group_op->kept = true;
        group_op->end = o.blocker;
        undo(group_op,
             group_op->end == group_op->held ? wait_for_next : try_rest);
    }
}

static bool batched(const struct dibs__group_op *group_op, size_t i)
{
    return !group_op->single && group_op->g->members[i].line->kind->batch;
}

/* Those of one client and slot: in one script, or by themselves. All of the
 * batch are asked for, or none. */
static void try_client(struct dibs__group_op *group_op, size_t from, size_t to,
                       bool direct)
{
    size_t n = 0;
    struct dibs__batch *b = NULL;
    dibs_client *c = group_op->g->members[from].c;
    bool inside = dibs__client_enter(c) == DIBS_OK;

    for (size_t i = from; i < to; i++)
        n += batched(group_op, i);
    if (n > 1 && inside)
        b = dibs__batch_new(VERB_ACQUIRE, n);
    for (size_t i = from; i < to; i++)
        if (!b || !batched(group_op, i))
            dibs__member_op_acquire(group_op, i, true, INT64_MAX, NULL, NULL);
    for (size_t i = from; b && i < to; i++)
        if (batched(group_op, i))
            dibs__member_op_acquire(group_op, i, true, INT64_MAX, b, NULL);
    if (b && dibs__batch_count(b) == n)
        dibs__batch_send(b, direct);
    else if (b)
        dibs__batch_drop(b);
    if (inside)
        dibs__client_leave(c);
}

static void try_rest(struct dibs__group_op *group_op)
{
    bool direct = group_op->direct;
    size_t from = group_op->held, to = group_op->end;

    group_op->direct = false;
    dibs__group_op_open(group_op, tried);
    for (size_t i = from, end; i < to; i = end) {
        end = dibs__group_op_place_end(group_op, i, to);
        try_client(group_op, i, end, direct && end == to);
    }
    dibs__group_op_run(group_op);
}

/* ---- waiting ----------------------------------------------------------- */

static bool several_clients(const struct dibs__group_op *group_op)
{
    return dibs__group_op_place_end(group_op, 0, group_op->g->n) <
           group_op->g->n;
}

static void waited(struct dibs__group_op *group_op)
{
    struct dibs__member_op *m = &group_op->m[group_op->held];
    dibs_err canceled = dibs__group_op_canceled(group_op);

    dibs__lock(&group_op->g->mu);
    dibs_err err = m->err;
    bool patient = err == DIBS_ERR_TIMEOUT || may_wait(group_op, m);
    if (err == DIBS_ERR_TIMEOUT) /* who was in the way */
        group_op->level->members[m->index].err = DIBS_ERR_BUSY;
    dibs__unlock(&group_op->g->mu);
    if (canceled) {
        fail(group_op, canceled);
    } else if (err == DIBS_OK) {
        group_op->held++;
        group_op->end = group_op->g->n;
        if (group_op->held == group_op->end)
            all_held(group_op);
        else
            try_rest(group_op);
    } else if (patient && dibs__now_ms() < group_op->deadline) {
        start_over(group_op); /* only its patience is over */
    } else {
        fail(group_op, err);
    }
}

static void wait_for_next(struct dibs__group_op *group_op)
{
    int64_t until = group_op->deadline;

    if (group_op->held > 0 && several_clients(group_op))
        until =
            dibs__min(until, dibs__now_ms() + dibs__random_in(PATIENCE_MIN_MS,
                                                              PATIENCE_MAX_MS));
    dibs__group_op_open(group_op, waited);
    dibs__member_op_acquire(group_op, group_op->held, false, until, NULL, NULL);
    dibs__group_op_run(group_op);
}

/* ---- where to start ---------------------------------------------------- */

static void start_over(struct dibs__group_op *group_op)
{
    if (!dibs__group_level_new_loss(group_op->level)) {
        fail(group_op, DIBS_ERR_NOMEM);
        return;
    }
    group_op->held = 0;
    group_op->end = group_op->g->n;
    undo(group_op, try_rest);
}

void dibs__multi_start(struct dibs__group_op *group_op)
{
    dibs__lock(&group_op->g->mu);
    for (size_t i = 0; i < group_op->g->n; i++)
        group_op->level->members[i].err = DIBS_ERR_CANCELED; /* not asked yet */
    dibs__unlock(&group_op->g->mu);
    try_rest(group_op);
}
