/* SPDX-License-Identifier: MIT
 *
 * group_release.c - releasing a group.
 *
 * Thread  as group_op.c.
 * Locks   group.mu.
 *
 * How     All members are released in parallel, those on one server in one
 *         command where their lock types allow it. A member whose release fails
 *         does not stop the others, and no longer belongs to the level. The
 *         release of a quorum lock succeeds as soon as a majority has confirmed
 *         it; the other replies are not awaited.
 */
#include "group/group_op.h"

/* Returns the number of members whose server confirmed the release. *first_err:
 * the first error of the others. */
static size_t count_confirmed(struct dibs__group_op *op, dibs_err *first_err)
    REQUIRES(op->g->mu)
{
    size_t n = 0;

    *first_err = DIBS_OK;
    for (size_t i = 0; i < op->g->n; i++) {
        const struct dibs__member_op *m = &op->member_ops[i];
        if (!op->level->members[i].acquired || m->state != MEMBER_IDLE)
            continue;
        n += m->err == DIBS_OK;
        if (*first_err == DIBS_OK)
            *first_err = m->err;
    }
    return n;
}

/* A quorum lock: the caller has its result when a majority has confirmed. */
static void set_result_if_enough(struct dibs__group_op *op,
                                 struct dibs__member_op *m, bool detached)
{
    dibs_err first_err;

    (void)m;
    (void)detached;
    dibs__lock(&op->g->mu);
    bool enough = count_confirmed(op, &first_err) >= op->g->required;
    dibs__unlock(&op->g->mu);
    if (enough)
        dibs__group_op_set_result(op, DIBS_OK);
}

static void release_done(struct dibs__group_op *op)
{
    dibs_err first_err;

    dibs__lock(&op->g->mu);
    bool enough = count_confirmed(op, &first_err) >= op->g->required;
    dibs__unlock(&op->g->mu);
    dibs__group_op_set_result(op, enough ? DIBS_OK : first_err);
}

static void release_start(struct dibs__group_op *op)
{
    bool on_caller_thread = op->on_caller_thread;

    op->on_caller_thread = false;
    op->member_ended = op->g->quorum ? set_result_if_enough : NULL;
    dibs__group_op_pending_begin(op, release_done);
    if (op->g->quorum && on_caller_thread)
        dibs__members_release_fanout(op);
    else
        dibs__members_release(op, 0, op->g->n, on_caller_thread);
    dibs__group_op_pending_end(op);
}

/* An async release by an owner that holds no level: the callback gets the
 * error. */
static void release_not_owner(struct dibs__group_op *op)
{
    dibs__group_op_set_result(op, DIBS_ERR_NOT_OWNER);
}

/* Removes the owner's newest level from the group and hands it to op. Returns
 * false if the owner has none. */
static bool claim_level(struct dibs__group_op *op)
{
    struct dibs__group *g = op->g;

    dibs__lock(&g->mu);
    struct dibs__group_level *lv = dibs__group_level_of(g, op->o.owner);
    if (lv) {
        dibs__list_del(&lv->link);
        lv->active = false;
        op->level = lv;                /* with the list's reference */
        dibs__loss_suppress(lv->loss); /* the release reports a loss itself */
        dibs__group_level_record(g, lv);
        for (size_t i = 0; i < g->n; i++) {
            op->member_ops[i].err = DIBS_ERR_CANCELED; /* until released */
            if (lv->members[i].acquired)
                op->member_ops[i].state = MEMBER_ACQUIRED;
        }
    }
    dibs__unlock(&g->mu);
    return lv != NULL;
}

/* All clients are closing and release their holds themselves. on_lost is not
 * called after the owner's release has returned, as with one lock. */
static void suppress_losses_of_closed(struct dibs__group *g, dibs_owner owner)
{
    dibs__cancel_disable();
    dibs__lock(&g->mu);
    for (struct dibs__list *l = g->levels.next; l != &g->levels; l = l->next) {
        struct dibs__group_level *lv =
            DIBS_OF(l, struct dibs__group_level, link);
        if (lv->owner == owner)
            dibs__loss_suppress(lv->loss);
    }
    dibs__unlock(&g->mu);
    dibs__losses_suppress_and_wait(g, owner);
    dibs__cancel_restore();
}

/* Out of memory: nothing was released. on_lost is suppressed nevertheless,
 * since a sync caller may free on_lost's argument when the call returns; the
 * next release reports a loss. */
static void suppress_newest_loss(struct dibs__group *g, dibs_owner owner)
{
    dibs__cancel_disable();
    dibs__lock(&g->mu);
    const struct dibs__group_level *lv =
        dibs__group_level_of(g, owner ? owner : dibs__owner_thread());
    struct dibs__loss_listener *loss = lv ? dibs__loss_ref(lv->loss) : NULL;
    dibs__unlock(&g->mu);
    dibs__loss_suppress_and_wait(loss);
    dibs__loss_unref(loss);
    dibs__cancel_restore();
}

dibs_err dibs__group_release(struct dibs__group *g, const dibs_lock_opts *o,
                             dibs_cb fn, void *arg)
{
    struct dibs__group_op *op = dibs__group_op_new(g, o);

    if (!op && !fn)
        suppress_newest_loss(g, o->owner);
    if (!op)
        return DIBS_ERR_NOMEM;
    op->releasing = true;
    dibs_err err = dibs__group_op_choose_client(op, fn != NULL);
    if (err == DIBS_ERR_CLOSED)
        suppress_losses_of_closed(g, op->o.owner);
    bool has_level = err == DIBS_OK && claim_level(op);
    if (err == DIBS_OK && !has_level && !fn)
        err = DIBS_ERR_NOT_OWNER;
    if (err != DIBS_OK) {
        dibs__group_op_unref(op);
        return err;
    }
    struct dibs__loss_listener *loss =
        has_level && !fn ? dibs__loss_ref(op->level->loss) : NULL;
    err = dibs__group_op_start(
        op, has_level ? release_start : release_not_owner, fn, arg);
    dibs__cancel_disable();
    dibs__loss_suppress_and_wait(loss);
    dibs__cancel_restore();
    dibs__loss_unref(loss);
    return err;
}
