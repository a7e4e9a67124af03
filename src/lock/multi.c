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
#include "lock/group.h"

#include "base/mem.h"

#define PATIENCE_MIN_MS 2000
#define PATIENCE_MAX_MS 4000

static void try_rest(struct dibs__gop *gop);
static void start_over(struct dibs__gop *gop);
static void wait_for_next(struct dibs__gop *gop);

/* ---- the end ----------------------------------------------------------- */

static void failed(struct dibs__gop *gop)
{
    dibs__lock(&gop->g->mu);
    dibs__glevel_bury(gop->g, gop->level);
    dibs__unlock(&gop->g->mu);
    dibs__gop_tell(gop, gop->why);
}

/* Everything goes back, then it ends with that. */
static void fail(struct dibs__gop *gop, dibs_err err)
{
    gop->why = err;
    dibs__gop_open(gop, failed);
    dibs__gop_release(gop, 0, gop->g->n, false);
    dibs__gop_run(gop);
}

/* All are held. Are they still, and for as long as was asked for? */
static bool are_sealed(struct dibs__gop *gop)
{
    bool fine = true;

    for (size_t i = 0; i < gop->g->n; i++) {
        struct dibs__line *line = gop->g->members[i].line;
        dibs__lock(&line->mu);
        fine &= dibs__hold_seal(line, &gop->m[i].op);
        dibs__unlock(&line->mu);
    }
    return fine;
}

/* It is its caller's now, who hears of a loss from here on. False: some member
 * is lost. gone: its caller has been told something else, and hears nothing. */
static bool grant(struct dibs__gop *gop, bool *gone)
{
    struct dibs__group *g = gop->g;

    if (!are_sealed(gop))
        return false;
    dibs__lock(&gop->g->mu);
    *gone = gop->told;
    bool fine = *gone || dibs__loss_arm(gop->level->loss, NULL);
    if (fine && dibs__gop_decide(gop, DIBS_OK)) {
        dibs__glevel_live(gop->g, gop->level);
        for (size_t i = 0; i < g->n; i++)
            gop->level->members[i].got = true;
    }
    dibs__unlock(&gop->g->mu);
    return fine;
}

static void all_held(struct dibs__gop *gop)
{
    dibs_err canceled = dibs__gop_canceled(gop);
    bool gone = false;

    if (canceled) {
        fail(gop, canceled);
        return;
    }
    if (!grant(gop, &gone)) {
        if (gop->trying || dibs__now_ms() >= gop->deadline)
            fail(gop, DIBS_ERR_LOST);
        else
            start_over(gop);
        return;
    }
    if (gone)
        fail(gop, DIBS_ERR_CLOSED);
    else
        dibs__gop_deliver(gop);
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
static bool may_wait(struct dibs__gop *gop, const struct dibs__mop *m)
    REQUIRES(gop->g->mu)
{
    dibs_err err = m->err;
    bool not_now = err == DIBS_ERR_SERVER && err == m->op.last;

    return err == DIBS_ERR_BUSY ||
           (!gop->trying &&
            (err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN || not_now));
}

static struct outcome look(struct dibs__gop *gop)
{
    struct outcome o = {.all = true, .blocker = gop->end};

    dibs__lock(&gop->g->mu);
    for (size_t i = gop->end; i-- > gop->held;) {
        const struct dibs__mop *m = &gop->m[i];
        o.all &= m->got;
        if (may_wait(gop, m))
            o.blocker = i;
        else if (m->err != DIBS_OK && m->err != DIBS_ERR_CANCELED)
            o.error = m->err;
    }
    dibs__unlock(&gop->g->mu);
    return o;
}

/* What this try took goes back, then comes `after`. */
static void undo(struct dibs__gop *gop, void (*after)(struct dibs__gop *))
{
    dibs__gop_open(gop, after);
    dibs__gop_release(gop, gop->held, gop->g->n, false);
    dibs__gop_run(gop);
}

static void tried(struct dibs__gop *gop)
{
    struct outcome o = look(gop);
    dibs_err canceled = dibs__gop_canceled(gop);

    if (o.all) {
        gop->held = gop->end;
        if (gop->held == gop->g->n)
            all_held(gop);
        else
            wait_for_next(gop);
    } else if (canceled || o.error) {
        fail(gop, canceled ? canceled : o.error);
    } else if (o.blocker == gop->end) {
        gop->single = true; /* nobody is in the way: they were not asked */
        undo(gop, try_rest);
    } else if (gop->trying) {
        fail(gop, DIBS_ERR_BUSY);
    } else {
        gop->kept = true;
        gop->end = o.blocker;
        undo(gop, gop->end == gop->held ? wait_for_next : try_rest);
    }
}

static bool batched(const struct dibs__gop *gop, size_t i)
{
    return !gop->single && gop->g->members[i].line->kind->batch;
}

/* Those of one client and slot: in one script, or by themselves. All of the
 * batch are asked for, or none. */
static void try_client(struct dibs__gop *gop, size_t from, size_t to, bool talk)
{
    size_t n = 0;
    struct dibs__batch *b = NULL;
    dibs_client *c = gop->g->members[from].c;
    bool inside = dibs__client_enter(c) == DIBS_OK;

    for (size_t i = from; i < to; i++)
        n += batched(gop, i);
    if (n > 1 && inside)
        b = dibs__batch_new(VERB_ACQUIRE, n);
    for (size_t i = from; i < to; i++)
        if (!b || !batched(gop, i))
            dibs__mop_acquire(gop, i, true, INT64_MAX, NULL, NULL);
    for (size_t i = from; b && i < to; i++)
        if (batched(gop, i))
            dibs__mop_acquire(gop, i, true, INT64_MAX, b, NULL);
    if (b && dibs__batch_count(b) == n)
        dibs__batch_send(b, talk);
    else if (b)
        dibs__batch_drop(b);
    if (inside)
        dibs__client_leave(c);
}

static void try_rest(struct dibs__gop *gop)
{
    bool talk = gop->talk;
    size_t from = gop->held, to = gop->end;

    gop->talk = false;
    dibs__gop_open(gop, tried);
    for (size_t i = from, end; i < to; i = end) {
        end = dibs__gop_place_end(gop, i, to);
        try_client(gop, i, end, talk && end == to);
    }
    dibs__gop_run(gop);
}

/* ---- waiting ----------------------------------------------------------- */

static bool several_clients(const struct dibs__gop *gop)
{
    return dibs__gop_place_end(gop, 0, gop->g->n) < gop->g->n;
}

static void waited(struct dibs__gop *gop)
{
    struct dibs__mop *m = &gop->m[gop->held];
    dibs_err canceled = dibs__gop_canceled(gop);

    dibs__lock(&gop->g->mu);
    dibs_err err = m->err;
    bool patient = err == DIBS_ERR_TIMEOUT || may_wait(gop, m);
    if (err == DIBS_ERR_TIMEOUT) /* who was in the way */
        gop->level->members[m->index].err = DIBS_ERR_BUSY;
    dibs__unlock(&gop->g->mu);
    if (canceled) {
        fail(gop, canceled);
    } else if (err == DIBS_OK) {
        gop->held++;
        gop->end = gop->g->n;
        if (gop->held == gop->end)
            all_held(gop);
        else
            try_rest(gop);
    } else if (patient && dibs__now_ms() < gop->deadline) {
        start_over(gop); /* only its patience is over */
    } else {
        fail(gop, err);
    }
}

static void wait_for_next(struct dibs__gop *gop)
{
    int64_t until = gop->deadline;

    if (gop->held > 0 && several_clients(gop))
        until =
            dibs__min(until, dibs__now_ms() + dibs__random_in(PATIENCE_MIN_MS,
                                                              PATIENCE_MAX_MS));
    dibs__gop_open(gop, waited);
    dibs__mop_acquire(gop, gop->held, false, until, NULL, NULL);
    dibs__gop_run(gop);
}

/* ---- where to start ---------------------------------------------------- */

static void start_over(struct dibs__gop *gop)
{
    if (!dibs__glevel_new_loss(gop->level)) {
        fail(gop, DIBS_ERR_NOMEM);
        return;
    }
    gop->held = 0;
    gop->end = gop->g->n;
    undo(gop, try_rest);
}

void dibs__multi_start(struct dibs__gop *gop)
{
    dibs__lock(&gop->g->mu);
    for (size_t i = 0; i < gop->g->n; i++)
        gop->level->members[i].err = DIBS_ERR_CANCELED; /* not asked yet */
    dibs__unlock(&gop->g->mu);
    try_rest(gop);
}
