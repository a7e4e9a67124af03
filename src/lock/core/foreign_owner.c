/* SPDX-License-Identifier: MIT
 *
 * foreign_owner.c - owners of other clients, whose holds this client has
 * adopted.
 *
 * In a client an owner is a number, and its name on the server is made of the
 * client's UUID and its id. An adopted owner has a number in this client, too,
 * but a name on the server with the UUID of another client: this table maps the
 * number to that name. Holds, renewals, stale copies and the orphan reaper use
 * the number.
 *
 * The number was never used before. So if a command is written when the row is
 * gone, it names an owner of this client that has no hold.
 *
 * A row is dropped some time after its last hold has ended: the orphan reaper
 * may need it until then.
 *
 * Thread  any.
 * Locks   adopted.mu, the last of all: commands are written with others held.
 */
#include "lock/core/foreign_owner.h"

#include "base/mem.h"
#include "base/tree.h"

#include <string.h>

#define KEPT_MS 180000 /* longer than the reaper takes */

struct dibs__adopted {
    RB_ENTRY(dibs__adopted) node;
    uint64_t wire; /* its number here */
    struct dibs__owner_name name;
    unsigned holds;
    int64_t idle_since;
};

static int adopted_order(const struct dibs__adopted *a,
                         const struct dibs__adopted *b)
{
    return a->wire < b->wire ? -1 : a->wire > b->wire;
}

DIBS_TREE(dibs__adopted_tree, dibs__adopted, node, adopted_order);

void dibs__adopted_init(struct dibs__adopted_table *t)
{
    dibs__mutex_init(&t->mu, RANK_FOREIGN_OWNERS);
    RB_INIT(&t->tree);
}

void dibs__adopted_clear(struct dibs__adopted_table *t)
{
    struct dibs__adopted *a;

    while ((a = RB_MIN(dibs__adopted_tree, &t->tree))) {
        RB_REMOVE(dibs__adopted_tree, &t->tree, a);
        dibs__free(a);
    }
    dibs__mutex_clear(&t->mu);
}

static struct dibs__adopted *adopted_row(struct dibs__adopted_table *t,
                                         uint64_t wire) REQUIRES(t->mu)
{
    struct dibs__adopted want = {.wire = wire};

    return RB_FIND(dibs__adopted_tree, &t->tree, &want);
}

/* The row of this name, or NULL. Drops old ones on the way. */
static struct dibs__adopted *adopted_named(struct dibs__adopted_table *t,
                                           const struct dibs__owner_name *name)
    REQUIRES(t->mu)
{
    struct dibs__adopted *found = NULL, *next;
    int64_t old = dibs__now_ms() - KEPT_MS;

    for (struct dibs__adopted *a = RB_MIN(dibs__adopted_tree, &t->tree); a;
         a = next) {
        next = DIBS_TREE_NEXT(dibs__adopted_tree, a);
        if (a->name.number == name->number &&
            strcmp(a->name.uuid, name->uuid) == 0) {
            found = a;
        } else if (a->holds == 0 && a->idle_since < old) {
            RB_REMOVE(dibs__adopted_tree, &t->tree, a);
            dibs__free(a);
        }
    }
    return found;
}

uint64_t dibs__adopted_add(struct dibs__adopted_table *t,
                           const struct dibs__owner_name *name, uint64_t fresh)
{
    uint64_t wire = 0;

    dibs__lock(&t->mu);
    struct dibs__adopted *a = adopted_named(t, name);
    if (!a && (a = dibs__calloc(1, sizeof *a))) {
        a->wire = fresh;
        a->name = *name;
        RB_INSERT(dibs__adopted_tree, &t->tree, a);
        atomic_store_explicit(&t->any, true, memory_order_release);
    }
    if (a) {
        a->idle_since = dibs__now_ms();
        wire = a->wire;
    }
    dibs__unlock(&t->mu);
    return wire;
}

bool dibs__adopted_find(struct dibs__adopted_table *t, uint64_t wire,
                        struct dibs__owner_name *out)
{
    if (!atomic_load_explicit(&t->any, memory_order_acquire))
        return false;
    dibs__lock(&t->mu);
    const struct dibs__adopted *a = adopted_row(t, wire);
    if (a)
        *out = a->name;
    dibs__unlock(&t->mu);
    return a != NULL;
}

void dibs__adopted_held(struct dibs__adopted_table *t, uint64_t wire,
                        bool begins)
{
    if (!atomic_load_explicit(&t->any, memory_order_acquire))
        return;
    dibs__lock(&t->mu);
    struct dibs__adopted *a = adopted_row(t, wire);
    if (a) {
        a->holds += begins ? 1u : -1u;
        a->idle_since = dibs__now_ms();
    }
    dibs__unlock(&t->mu);
}
