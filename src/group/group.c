/* SPDX-License-Identifier: MIT
 *
 * group.c - the group, its levels, and the state of both by our clock.
 *
 * Thread  any.
 * Locks   group.mu; under it entry.mu, of one member at a time.
 *
 * How     Each acquire of the group makes a level: which members it acquired,
 *         and what the servers of the others answered. The members' holds are
 *         ordinary ones; each is renewed and lost by itself. A group is held
 *         while `required` of them are. The loss of a group is therefore
 *         counted: each member's hold has a loss notification, and the one that
 *         leaves fewer than `required` calls on_lost (loss_notify.c).
 *
 *         The verdicts of the last ended levels are kept in a ring, so that
 *         dibs_lock_members can explain why an acquire failed.
 */
#include "group/group.h"

#include "base/api_args.h"
#include "base/mem.h"

#include <stdlib.h>

#define MEMBERS_MAX DIBS__MEMBERS_MAX

/* ---- groups ------------------------------------------------------------ */

struct dibs__group *dibs__group_new(size_t members, bool quorum)
{
    struct dibs__group *g =
        dibs__calloc(1, sizeof *g + members * sizeof g->members[0]);

    if (!g)
        return NULL;
    atomic_init(&g->refs, 1);
    g->quorum = quorum;
    g->required = quorum ? members / 2 + 1 : members;
    dibs__mutex_init(&g->mu, RANK_GROUP);
    dibs__list_init(&g->levels);
    RB_INIT(&g->ops);
    return g;
}

void dibs__group_ref(struct dibs__group *g)
{
    atomic_fetch_add(&g->refs, 1);
}

static void free_levels(struct dibs__group *g)
{
    struct dibs__list *l;

    dibs__lock(&g->mu);
    for (size_t i = 0; i < DIBS__VERDICTS_KEPT; i++)
        dibs__group_level_unref(g, g->ended_levels[i]);
    while ((l = dibs__list_pop(&g->levels)))
        dibs__group_level_unref(g, DIBS_OF(l, struct dibs__group_level, link));
    dibs__unlock(&g->mu);
}

void dibs__group_unref(struct dibs__group *g)
{
    if (atomic_fetch_sub(&g->refs, 1) != 1)
        return;
    free_levels(g);
    for (size_t i = 0; i < g->n; i++) {
        dibs__entry_unref(g->members[i].entry);
        dibs__client_unref(g->members[i].c);
    }
    dibs__mutex_clear(&g->mu);
    dibs__free(g->label);
    dibs__free(g);
}

/* ---- levels ------------------------------------------------------------ */

struct dibs__group_level *dibs__group_level_new(struct dibs__group *g,
                                                dibs_owner owner)
{
    struct dibs__group_level *lv =
        dibs__calloc(1, sizeof *lv + g->n * sizeof lv->members[0]);

    if (!lv)
        return NULL;
    lv->refs = 1;
    lv->owner = owner;
    return lv;
}

void dibs__group_level_unref(struct dibs__group *g,
                             struct dibs__group_level *lv)
{
    (void)g;
    if (!lv || --lv->refs > 0)
        return;
    dibs__loss_unref(lv->loss);
    dibs__free(lv);
}

struct dibs__group_level *dibs__group_level_of(struct dibs__group *g,
                                               dibs_owner owner)
{
    for (struct dibs__list *l = g->levels.prev; l != &g->levels; l = l->prev) {
        struct dibs__group_level *lv =
            DIBS_OF(l, struct dibs__group_level, link);
        if (lv->owner == owner)
            return lv;
    }
    return NULL;
}

/* Returns this owner's newest level in the ring, or NULL. */
static struct dibs__group_level *ended_level(struct dibs__group *g,
                                             dibs_owner owner) REQUIRES(g->mu)
{
    for (unsigned i = 1; i <= DIBS__VERDICTS_KEPT; i++) {
        struct dibs__group_level *lv =
            g->ended_levels[(g->ended_total - i) % DIBS__VERDICTS_KEPT];
        if (lv && lv->owner == owner)
            return lv;
    }
    return NULL;
}

void dibs__group_level_activate(struct dibs__group *g,
                                struct dibs__group_level *lv)
{
    lv->active = true;
    lv->refs++;
    dibs__list_add(&g->levels, &lv->link);
}

void dibs__group_level_record(struct dibs__group *g,
                              struct dibs__group_level *lv)
{
    struct dibs__group_level **slot =
        &g->ended_levels[g->ended_total++ % DIBS__VERDICTS_KEPT];

    dibs__group_level_unref(g, *slot);
    *slot = lv;
    lv->refs++;
}

bool dibs__group_level_new_loss(struct dibs__group_level *lv)
{
    if (!lv->loss)
        return true;
    struct dibs__loss_listener *fresh = dibs__loss_clone(lv->loss);
    if (!fresh)
        return false;
    dibs__loss_unref(lv->loss);
    lv->loss = fresh;
    return true;
}

/* ---- state by our clock ------------------------------------------------ */

static int compare_descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* A level is held while `required` members are. Its validity is that of the
 * member with the `required`-th longest one. */
static struct dibs__local_state
level_local_state(struct dibs__group *g, const struct dibs__group_level *lv)
    REQUIRES(g->mu)
{
    int64_t now = dibs__now_ms(), valid[MEMBERS_MAX];
    size_t held = 0, confirmed = 0;

    for (size_t i = 0; i < g->n; i++) {
        if (!lv->members[i].acquired)
            continue;
        struct dibs__local_state k =
            dibs__entry_local_state(g->members[i].entry, lv->owner, now);
        if (k.state == DIBS_LOST || k.state == DIBS_NOT_HELD)
            continue;
        confirmed += k.state == DIBS_HELD;
        valid[held++] = k.valid_ms;
    }
    if (held < g->required)
        return (struct dibs__local_state){.state = DIBS_LOST};
    qsort(valid, held, sizeof valid[0], compare_descending);
    return (struct dibs__local_state){
        .state = confirmed < g->required ? DIBS_SUSPECT : DIBS_HELD,
        .valid_ms = valid[g->required - 1]};
}

struct dibs__local_state dibs__group_local_state(struct dibs__group *g,
                                                 dibs_owner owner)
{
    struct dibs__local_state all = {.state = DIBS_NOT_HELD};

    dibs__lock(&g->mu);
    for (struct dibs__list *l = g->levels.next; l != &g->levels; l = l->next) {
        struct dibs__group_level *lv =
            DIBS_OF(l, struct dibs__group_level, link);
        if (lv->owner != owner)
            continue;
        struct dibs__local_state k = level_local_state(g, lv);
        all.valid_ms =
            all.holds++ ? dibs__min(all.valid_ms, k.valid_ms) : k.valid_ms;
        if (k.state > all.state) /* the worst state of all levels */
            all.state = k.state;
    }
    dibs__unlock(&g->mu);
    if (all.state == DIBS_LOST)
        all.valid_ms = all.holds = 0;
    return all;
}

void dibs__group_member_local_state(struct dibs__group *g, size_t at,
                                    dibs_owner owner, dibs_member *out)
{
    struct dibs__lock_entry *entry = g->members[at].entry;

    *out = (dibs_member){.size = sizeof *out,
                         .name = entry->name,
                         .name_len = entry->name_len,
                         .server = g->members[at].server,
                         .verdict = DIBS_ERR_NOT_OWNER};
    dibs__lock(&g->mu);
    struct dibs__group_level *lv = dibs__group_level_of(g, owner);
    if (!lv)
        lv = ended_level(g, owner);
    if (lv)
        out->verdict = lv->members[at].err;
    if (lv && lv->active && lv->members[at].acquired) {
        struct dibs__local_state k =
            dibs__entry_local_state(entry, owner, dibs__now_ms());
        out->state = k.state == DIBS_NOT_HELD ? DIBS_LOST : k.state;
        out->valid_ms = k.valid_ms;
        if (out->state == DIBS_LOST)
            out->verdict = DIBS_ERR_LOST;
    }
    dibs__unlock(&g->mu);
}
