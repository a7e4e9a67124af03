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
#include "lock/group.h"

#include "base/mem.h"

/* ---- taking back ------------------------------------------------------- */

static size_t count_got(struct dibs__gop *gop, size_t from, size_t to)
{
    size_t n = 0;

    dibs__lock(&gop->g->mu);
    for (size_t i = from; i < to; i++)
        n += gop->m[i].got;
    dibs__unlock(&gop->g->mu);
    return n;
}

static void send_or_drop(struct dibs__batch *b, bool talk)
{
    if (b && dibs__batch_count(b) > 0)
        dibs__batch_send(b, talk);
    else
        dibs__free(b);
}

static void release_some(struct dibs__gop *gop, size_t from, size_t to,
                         struct dibs__scatter *sc, bool talk)
{
    size_t n = count_got(gop, from, to);
    dibs_client *c = gop->g->members[from].c;
    bool inside = dibs__client_enter(c) == DIBS_OK;
    struct dibs__batch *b =
        inside && n > 1 ? dibs__batch_new(VERB_RELEASE, n) : NULL;

    for (size_t i = from; i < to; i++) {
        if (dibs__mop_take(gop, i))
            dibs__mop_release(gop, i, 0, b, sc, false);
    }
    send_or_drop(b, talk);
    if (inside)
        dibs__client_leave(c);
}

void dibs__gop_release(struct dibs__gop *gop, size_t from, size_t to, bool talk)
{
    for (size_t i = from, end; i < to; i = end) {
        end = dibs__gop_place_end(gop, i, to);
        release_some(gop, i, end, NULL, talk && end == to);
    }
}

/* ---- release ----------------------------------------------------------- */

/* Some confirmed: enough for the group, or the first error there was. */
static dibs_err release_verdict(struct dibs__gop *gop) REQUIRES(gop->g->mu)
{
    size_t fine = 0;
    dibs_err first = DIBS_OK;

    for (size_t i = 0; i < gop->g->n; i++) {
        const struct dibs__mop *m = &gop->m[i];
        if (!m->part || m->under_way)
            continue;
        fine += m->err == DIBS_OK;
        if (first == DIBS_OK)
            first = m->err;
    }
    return fine >= gop->g->need ? DIBS_OK : first;
}

/* A quorum need not wait for the slowest. */
static void release_heard(struct dibs__gop *gop, struct dibs__mop *m,
                          bool astray)
{
    size_t fine = 0;

    (void)m;
    (void)astray;
    dibs__lock(&gop->g->mu);
    for (size_t i = 0; i < gop->g->n; i++)
        fine +=
            gop->m[i].part && !gop->m[i].under_way && gop->m[i].err == DIBS_OK;
    dibs__unlock(&gop->g->mu);
    if (fine >= gop->g->need)
        dibs__gop_tell(gop, DIBS_OK);
}

static void tell_only(struct dibs__gop *gop)
{
    dibs__gop_tell(gop, gop->why);
}

static void release_done(struct dibs__gop *gop)
{
    dibs__lock(&gop->g->mu);
    dibs_err err = release_verdict(gop);
    dibs__unlock(&gop->g->mu);
    dibs__gop_tell(gop, err);
}

static void release_scattered(struct dibs__gop *gop)
{
    struct dibs__scatter sc = {{false}};
    bool in[DIBS__MEMBERS_MAX];

    dibs__gop_enter(gop, in);
    for (size_t i = 0; i < gop->g->n; i++)
        release_some(gop, i, i + 1, &sc, false);
    dibs__gop_hear(gop, &sc);
    dibs__gop_leave(gop, in);
}

static void release_start(struct dibs__gop *gop)
{
    bool talk = gop->talk;

    gop->talk = false;
    gop->heard = gop->g->quorum ? release_heard : NULL;
    dibs__gop_open(gop, release_done);
    if (gop->g->quorum && talk)
        release_scattered(gop);
    else
        dibs__gop_release(gop, 0, gop->g->n, talk);
    dibs__gop_run(gop);
}

/* The owner's newest level, out of the group. */
static dibs_err take_level(struct dibs__gop *gop)
{
    struct dibs__group *g = gop->g;

    dibs__lock(&g->mu);
    struct dibs__glevel *lv = dibs__glevel_of(g, gop->o.owner);
    if (lv) {
        dibs__list_del(&lv->link);
        lv->live = false;
        gop->level = lv;           /* with the list's reference */
        dibs__loss_hush(lv->loss); /* this call tells */
        dibs__glevel_bury(g, lv);
        for (size_t i = 0; i < g->n; i++) {
            gop->m[i].part = gop->m[i].got = lv->members[i].got;
            gop->m[i].err = DIBS_ERR_CANCELED; /* until it has ended */
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
        struct dibs__glevel *lv = DIBS_OF(l, struct dibs__glevel, link);
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
    struct dibs__gop *gop = dibs__gop_new(g, o);
    if (!gop)
        return DIBS_ERR_NOMEM;
    gop->releasing = true;
    dibs_err err = dibs__gop_ready(gop, fn != NULL);
    if (err == DIBS_OK && !fn)
        err = take_level(gop);
    else if (err == DIBS_OK && take_level(gop) != DIBS_OK)
        gop->why = DIBS_ERR_NOT_OWNER; /* told by the callback */
    if (err == DIBS_ERR_CLOSED)
        settle_closed(g, gop->o.owner);
    if (err != DIBS_OK) {
        dibs__gop_unref(gop);
        return err;
    }
    struct dibs__loss *loss =
        gop->level && !fn ? dibs__loss_ref(gop->level->loss) : NULL;
    dibs__gop_leave_home(gop);
    err = dibs__gop_go(gop, gop->why ? tell_only : release_start, fn, arg);
    dibs__no_cancel();
    dibs__loss_settle(loss);
    dibs__cancel_again();
    dibs__loss_unref(loss);
    return err;
}
