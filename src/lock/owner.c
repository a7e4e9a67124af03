/* SPDX-License-Identifier: MIT
 *
 * owner.c - numbers of owners.
 *
 * An owner is "uuid:number" to the server: the client's UUID and a number that
 * was never used before in this process. Threads get theirs when they first
 * ask; others are asked for. A new thread can therefore never inherit what a
 * dead one left behind.
 *
 * A command whose reply was lost may be executed at any later time. If the
 * owner went on under the same number, such a ghost could end or revive a hold
 * that it knows nothing of. So the owner goes on under another number, its
 * alias, as soon as it holds nothing; ghosts then only meet a number that
 * nobody uses any more. What they take for it, the reaper takes back.
 *
 * Thread  any.
 * Locks   client.mu for the aliases.
 */
#include "base/mem.h"
#include "lock/locks.h"

static atomic_ullong last_number;
static _Thread_local dibs_owner this_thread;

static int alias_order(const struct dibs__alias *a, const struct dibs__alias *b)
{
    return a->owner < b->owner ? -1 : a->owner > b->owner;
}

DIBS_TREE(dibs__aliases, dibs__alias, node, alias_order);

uint64_t dibs__owner_number(void)
{
    return atomic_fetch_add(&last_number, 1) + 1;
}

dibs_owner dibs__owner_thread(void)
{
    if (!this_thread)
        this_thread = dibs__owner_number();
    return this_thread;
}

uint64_t dibs__owner_wire(struct dibs__locks *lk, dibs_owner owner)
{
    struct dibs__alias want = {.owner = owner};

    if (!atomic_load_explicit(&lk->aliased, memory_order_acquire))
        return owner;
    dibs__lock(&lk->c->mu);
    struct dibs__alias *a = RB_FIND(dibs__aliases, &lk->aliases, &want);
    uint64_t wire = a ? a->wire : owner;
    dibs__unlock(&lk->c->mu);
    return wire;
}

uint64_t dibs__owner_wire_for(struct dibs__line *line, dibs_owner owner)
{
    uint64_t wire = 0;
    struct dibs__line *other = NULL;

    if (!atomic_load_explicit(&line->locks->aliased, memory_order_acquire))
        return owner; /* nobody goes by another number */
    if (line->kind->suffix[0] || line->kind->shared)
        other = dibs__line_sibling(line); /* only halves need to agree */
    if (other) {
        dibs__lock(&other->mu);
        struct dibs__hold *h = dibs__hold_of(other, owner);
        wire = h && !h->lost ? h->wire : 0;
        dibs__unlock(&other->mu);
        dibs__line_unref(other);
    }
    return wire ? wire : dibs__owner_wire(line->locks, owner);
}

/* A retired number must not be used again even when memory ends, so a few
 * aliases are kept for that. */
static struct dibs__alias *alias_new(struct dibs__locks *lk) REQUIRES(lk->c->mu)
{
    struct dibs__alias *a = dibs__calloc(1, sizeof *a);

    if (!a && lk->kept_used < DIBS__ALIASES_KEPT)
        a = &lk->kept[lk->kept_used++];
    return a;
}

void dibs__owner_retire(struct dibs__locks *lk, dibs_owner owner, uint64_t wire)
{
    struct dibs__alias want = {.owner = owner};

    dibs__lock(&lk->c->mu);
    struct dibs__alias *a = RB_FIND(dibs__aliases, &lk->aliases, &want);
    if (!a && owner == wire && (a = alias_new(lk))) {
        a->owner = owner;
        a->wire = wire;
        RB_INSERT(dibs__aliases, &lk->aliases, a);
        atomic_store_explicit(&lk->aliased, true, memory_order_release);
    }
    if (a && a->wire == wire)
        a->wire = dibs__owner_number();
    dibs__unlock(&lk->c->mu);
    atomic_fetch_add(&lk->retired, 1);
}

void dibs__owners_free(struct dibs__locks *lk)
{
    struct dibs__alias *a;

    while ((a = RB_MIN(dibs__aliases, &lk->aliases))) {
        RB_REMOVE(dibs__aliases, &lk->aliases, a);
        if (a < lk->kept || a >= lk->kept + DIBS__ALIASES_KEPT)
            dibs__free(a);
    }
}

dibs_owner dibs_owner_new(dibs_client *c)
{
    return dibs__client_foreign(c) ? 0 : dibs__owner_number();
}

dibs_owner dibs_owner_thread(dibs_client *c)
{
    return dibs__client_foreign(c) ? 0 : dibs__owner_thread();
}
