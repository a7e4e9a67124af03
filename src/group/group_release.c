/* SPDX-License-Identifier: MIT
 *
 * group_release.c - giving back several locks.
 *
 * Thread  as group_op.c.
 * Locks   group.mu.
 *
 * How     All members are given back at once, those of one place in one command
 *         where their kinds allow it. A member that fails does not stop the
 *         others, and counts as given back. The release of a quorum succeeds as
 *         soon as a majority was given back; nobody waits for the others.
 */
#include "group/group_op.h"

/* Members that were given back, and were confirmed; *first: the first error of
 * the others. */
static size_t count_returned(struct dibs__group_op *op, dibs_err *first)
    REQUIRES(op->g->mu)
{
    size_t n = 0;

    *first = DIBS_OK;
    for (size_t i = 0; i < op->g->n; i++) {
        const struct dibs__member_op *m = &op->m[i];
        if (!op->level->members[i].got || m->state != MEMBER_FREE)
            continue;
        n += m->err == DIBS_OK;
        if (*first == DIBS_OK)
            *first = m->err;
    }
    return n;
}

/* A quorum need not wait for the slowest. */
static void return_ended(struct dibs__group_op *op, struct dibs__member_op *m,
                         bool detached)
{
    dibs_err first;

    (void)m;
    (void)detached;
    dibs__lock(&op->g->mu);
    bool enough = count_returned(op, &first) >= op->g->need;
    dibs__unlock(&op->g->mu);
    if (enough)
        dibs__group_op_set_result(op, DIBS_OK);
}

static void release_done(struct dibs__group_op *op)
{
    dibs_err first;

    dibs__lock(&op->g->mu);
    bool enough = count_returned(op, &first) >= op->g->need;
    dibs__unlock(&op->g->mu);
    dibs__group_op_set_result(op, enough ? DIBS_OK : first);
}

static void release_start(struct dibs__group_op *op)
{
    bool direct = op->direct;

    op->direct = false;
    op->member_ended = op->g->quorum ? return_ended : NULL;
    dibs__group_op_open(op, release_done);
    if (op->g->quorum && direct)
        dibs__members_return_fanout(op);
    else
        dibs__members_return(op, 0, op->g->n, direct);
    dibs__group_op_run(op);
}

/* An async release of what its owner does not have: its callback says so. */
static void release_nothing(struct dibs__group_op *op)
{
    dibs__group_op_set_result(op, DIBS_ERR_NOT_OWNER);
}

/* Takes the owner's newest level out of the group. False: it has none. */
static bool take_level(struct dibs__group_op *op)
{
    struct dibs__group *g = op->g;

    dibs__lock(&g->mu);
    struct dibs__group_level *lv = dibs__group_level_of(g, op->o.owner);
    if (lv) {
        dibs__list_del(&lv->link);
        lv->active = false;
        op->level = lv;                /* with the list's reference */
        dibs__loss_suppress(lv->loss); /* this call tells */
        dibs__group_level_record(g, lv);
        for (size_t i = 0; i < g->n; i++) {
            op->m[i].err = DIBS_ERR_CANCELED; /* until it has ended */
            if (lv->members[i].got)
                op->m[i].state = MEMBER_TAKEN;
        }
    }
    dibs__unlock(&g->mu);
    return lv != NULL;
}

/* All clients are closing and give back what they have. An owner that releases
 * on top of that hears of no loss any more, as with one lock. */
static void settle_closed_group(struct dibs__group *g, dibs_owner owner)
{
    dibs__no_cancel();
    dibs__lock(&g->mu);
    for (struct dibs__list *l = g->levels.next; l != &g->levels; l = l->next) {
        struct dibs__group_level *lv =
            DIBS_OF(l, struct dibs__group_level, link);
        if (lv->owner == owner)
            dibs__loss_suppress(lv->loss);
    }
    dibs__unlock(&g->mu);
    dibs__losses_suppress_and_wait(g, owner);
    dibs__cancel_again();
}

/* There is no memory to begin, and all is as it was. But a sync caller may go
 * now, and what on_lost is given with it: the next release tells of a loss. */
static void settle_refused(struct dibs__group *g, dibs_owner owner)
{
    dibs__no_cancel();
    dibs__lock(&g->mu);
    const struct dibs__group_level *lv =
        dibs__group_level_of(g, owner ? owner : dibs__owner_thread());
    struct dibs__loss_listener *loss = lv ? dibs__loss_ref(lv->loss) : NULL;
    dibs__unlock(&g->mu);
    dibs__loss_suppress_and_wait(loss);
    dibs__loss_unref(loss);
    dibs__cancel_again();
}

dibs_err dibs__group_release(struct dibs__group *g, const dibs_lock_opts *o,
                             dibs_cb fn, void *arg)
{
    struct dibs__group_op *op = dibs__group_op_new(g, o);

    if (!op && !fn)
        settle_refused(g, o->owner);
    if (!op)
        return DIBS_ERR_NOMEM;
    op->releasing = true;
    dibs_err err = dibs__group_op_ready(op, fn != NULL);
    if (err == DIBS_ERR_CLOSED)
        settle_closed_group(g, op->o.owner);
    bool has = err == DIBS_OK && take_level(op);
    if (err == DIBS_OK && !has && !fn)
        err = DIBS_ERR_NOT_OWNER;
    if (err != DIBS_OK) {
        dibs__group_op_unref(op);
        return err;
    }
    struct dibs__loss_listener *loss =
        has && !fn ? dibs__loss_ref(op->level->loss) : NULL;
    err = dibs__group_op_go(op, has ? release_start : release_nothing, fn, arg);
    dibs__no_cancel();
    dibs__loss_suppress_and_wait(loss);
    dibs__cancel_again();
    dibs__loss_unref(loss);
    return err;
}
