/* SPDX-License-Identifier: MIT
 *
 * group_release.c - giving back several locks.
 *
 * Thread  as group_op.c.
 * Locks   group.mu.
 *
 * How     All that one client holds in one command where the kinds allow it,
 *         the clients side by side. One that fails spoils nothing for the
 *         others, and counts as given back itself. A quorum is given back when
 *         a majority says so; whatever the others do takes its course.
 */
#include "group/group.h"

#include "base/mem.h"

/* ---- taking back ------------------------------------------------------- */

static size_t count_got(struct dibs__group_op *group_op, size_t from, size_t to)
{
    size_t n = 0;

    dibs__lock(&group_op->g->mu);
    for (size_t i = from; i < to; i++)
        n += group_op->m[i].got;
    dibs__unlock(&group_op->g->mu);
    return n;
}

static void send_or_drop(struct dibs__batch *b, bool direct)
{
    if (b && dibs__batch_count(b) > 0)
        dibs__batch_send(b, direct);
    else
        dibs__free(b);
}

static void release_some(struct dibs__group_op *group_op, size_t from,
                         size_t to, struct dibs__scatter *sc, bool direct)
{
    size_t n = count_got(group_op, from, to);
    dibs_client *c = group_op->g->members[from].c;
    bool inside = dibs__client_enter(c) == DIBS_OK;
    struct dibs__batch *b =
        inside && n > 1 ? dibs__batch_new(VERB_RELEASE, n) : NULL;

    for (size_t i = from; i < to; i++) {
        if (dibs__member_op_take(group_op, i))
            dibs__member_op_release(group_op, i, 0, b, sc, false);
    }
    send_or_drop(b, direct);
    if (inside)
        dibs__client_leave(c);
}

void dibs__group_op_release(struct dibs__group_op *group_op, size_t from,
                            size_t to, bool direct)
{
    for (size_t i = from, end; i < to; i = end) {
        end = dibs__group_op_place_end(group_op, i, to);
        release_some(group_op, i, end, NULL, direct && end == to);
    }
}

/* ---- release ----------------------------------------------------------- */

/* Some confirmed: enough for the group, or the first error there was. */
static dibs_err release_verdict(struct dibs__group_op *group_op)
    REQUIRES(group_op->g->mu)
{
    size_t fine = 0;
    dibs_err first = DIBS_OK;

    for (size_t i = 0; i < group_op->g->n; i++) {
        const struct dibs__member_op *m = &group_op->m[i];
        if (!m->part || m->under_way)
            continue;
        fine += m->err == DIBS_OK;
        if (first == DIBS_OK)
            first = m->err;
    }
    return fine >= group_op->g->need ? DIBS_OK : first;
}

/* A quorum need not wait for the slowest. */
static void release_heard(struct dibs__group_op *group_op,
                          struct dibs__member_op *m, bool detached)
{
    size_t fine = 0;

    (void)m;
    (void)detached;
    dibs__lock(&group_op->g->mu);
    for (size_t i = 0; i < group_op->g->n; i++)
        fine += group_op->m[i].part && !group_op->m[i].under_way &&
                group_op->m[i].err == DIBS_OK;
    dibs__unlock(&group_op->g->mu);
    if (fine >= group_op->g->need)
        dibs__group_op_tell(group_op, DIBS_OK);
}

static void tell_only(struct dibs__group_op *group_op)
{
    dibs__group_op_tell(group_op, group_op->why);
}

static void release_done(struct dibs__group_op *group_op)
{
    dibs__lock(&group_op->g->mu);
    dibs_err err = release_verdict(group_op);
    dibs__unlock(&group_op->g->mu);
    dibs__group_op_tell(group_op, err);
}

static void release_scattered(struct dibs__group_op *group_op)
{
    struct dibs__scatter sc = {{false}};
    bool in[DIBS__MEMBERS_MAX];

    dibs__group_op_enter(group_op, in);
    for (size_t i = 0; i < group_op->g->n; i++)
        release_some(group_op, i, i + 1, &sc, false);
    dibs__group_op_hear(group_op, &sc);
    dibs__group_op_leave(group_op, in);
}

static void release_start(struct dibs__group_op *group_op)
{
    bool direct = group_op->direct;

    group_op->direct = false;
    group_op->heard = group_op->g->quorum ? release_heard : NULL;
    dibs__group_op_open(group_op, release_done);
    if (group_op->g->quorum && direct)
        release_scattered(group_op);
    else
        dibs__group_op_release(group_op, 0, group_op->g->n, direct);
    dibs__group_op_run(group_op);
}

/* The owner's newest level, out of the group. */
static dibs_err take_level(struct dibs__group_op *group_op)
{
    struct dibs__group *g = group_op->g;

    dibs__lock(&g->mu);
    struct dibs__group_level *lv = dibs__group_level_of(g, group_op->o.owner);
    if (lv) {
        dibs__list_del(&lv->link);
        lv->live = false;
        group_op->level = lv;      /* with the list's reference */
        dibs__loss_hush(lv->loss); /* this call tells */
        dibs__group_level_archive(g, lv);
        for (size_t i = 0; i < g->n; i++) {
            group_op->m[i].part = group_op->m[i].got = lv->members[i].got;
            group_op->m[i].err = DIBS_ERR_CANCELED; /* until it has ended */
        }
    }
    dibs__unlock(&g->mu);
    return lv ? DIBS_OK : DIBS_ERR_NOT_OWNER;
}

/* No client is left to tell its end, and all is given back anyway: as
 * settle_closed of lock.c. */
static void settle_closed(struct dibs__group *g, dibs_owner owner)
{
    dibs__no_cancel();
    dibs__lock(&g->mu);
    for (struct dibs__list *l = g->levels.next; l != &g->levels; l = l->next) {
        struct dibs__group_level *lv =
            DIBS_OF(l, struct dibs__group_level, link);
        if (lv->owner == owner)
            dibs__loss_hush(lv->loss);
    }
    dibs__unlock(&g->mu);
    dibs__losses_settle(g, owner);
    dibs__cancel_again();
}

dibs_err dibs__group_release(struct dibs__group *g, const dibs_lock_opts *o,
                             dibs_cb fn, void *arg)
{
    if (dibs__group_foreign(g))
        return DIBS_ERR_FORKED;
    struct dibs__group_op *group_op = dibs__group_op_new(g, o);
    if (!group_op)
        return DIBS_ERR_NOMEM;
    group_op->releasing = true;
    dibs_err err = dibs__group_op_ready(group_op, fn != NULL);
    if (err == DIBS_OK && !fn)
        err = take_level(group_op);
    else if (err == DIBS_OK && take_level(group_op) != DIBS_OK)
        group_op->why = DIBS_ERR_NOT_OWNER; /* told by the callback */
    if (err == DIBS_ERR_CLOSED)
        settle_closed(g, group_op->o.owner);
    if (err != DIBS_OK) {
        dibs__group_op_unref(group_op);
        return err;
    }
    struct dibs__loss *loss =
        group_op->level && !fn ? dibs__loss_ref(group_op->level->loss) : NULL;
    dibs__group_op_unregister(group_op);
    err = dibs__group_op_go(group_op, group_op->why ? tell_only : release_start,
                            fn, arg);
    dibs__no_cancel();
    dibs__loss_settle(loss);
    dibs__cancel_again();
    dibs__loss_unref(loss);
    return err;
}
