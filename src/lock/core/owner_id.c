/* SPDX-License-Identifier: MIT
 *
 * owner_id.c - the ids of owners on the server.
 *
 * On the server an owner is "uuid:id": the client's UUID and a number that was
 * never used before in this process. The first id of an owner is the owner's
 * own number. A thread gets its number when it first asks for it, so a new
 * thread never has the number of one that has ended.
 *
 * A stale copy of a command may be executed at any later time. Under an id that
 * is still in use it could release or create a hold that the owner does not
 * expect. So the id is retired when the owner has no hold under it, and the
 * owner gets another one, its alias. What a stale copy acquires under a retired
 * id is an orphan, which the orphan reaper releases.
 *
 * No acquire uses a retired id. An owner that holds write mode under a retired
 * id acquires read mode under its new id, and names the retired one in the
 * command: then the server lets it in.
 *
 * Thread  any.
 * Locks   client.mu for the aliases.
 */
#include "base/mem.h"
#include "base/tree.h"
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"

static atomic_ullong last_number;
static _Thread_local dibs_owner this_thread;

static int alias_order(const struct dibs__alias *a, const struct dibs__alias *b)
{
    return a->owner < b->owner ? -1 : a->owner > b->owner;
}

DIBS_TREE(dibs__aliases, dibs__alias, node, alias_order);

uint64_t dibs__owner_new_number(void)
{
    return atomic_fetch_add(&last_number, 1) + 1;
}

dibs_owner dibs__owner_thread(void)
{
    if (!this_thread)
        this_thread = dibs__owner_new_number();
    return this_thread;
}

uint64_t dibs__owner_current_id(struct dibs__lock_manager *manager,
                                dibs_owner owner)
{
    struct dibs__alias want = {.owner = owner};

    if (!atomic_load_explicit(&manager->has_aliases, memory_order_acquire))
        return owner;
    dibs__lock(&manager->c->mu);
    struct dibs__alias *a = RB_FIND(dibs__aliases, &manager->aliases, &want);
    uint64_t wire = a ? a->wire : owner;
    dibs__unlock(&manager->c->mu);
    return wire;
}

uint64_t dibs__owner_writer_id(struct dibs__lock_entry *entry, dibs_owner owner,
                               uint64_t wire)
{
    struct dibs__lock_manager *manager = entry->manager;
    uint64_t other = 0;

    if (entry->type->id != TYPE_READ ||
        (!atomic_load_explicit(&manager->has_aliases, memory_order_acquire) &&
         !atomic_load(&manager->adopted.any)))
        return 0; /* no owner has two ids */
    for (struct dibs__lock_entry *l = NULL;
         (l = dibs__entry_next_in_family(entry, l));) {
        dibs__lock(&l->mu);
        struct dibs__hold *h = dibs__hold_of(l, owner);
        if (h && h->state != HOLD_LOST && h->state != HOLD_ENDING &&
            h->owner_id != wire)
            other = h->owner_id;
        dibs__unlock(&l->mu);
    }
    return other;
}

/* A retired id must not be used again even if memory is out: a few aliases are
 * kept in reserve. */
static struct dibs__alias *alias_new(struct dibs__lock_manager *manager)
    REQUIRES(manager->c->mu)
{
    struct dibs__alias *a = dibs__calloc(1, sizeof *a);

    if (!a && manager->kept_used < DIBS__ALIASES_KEPT)
        a = &manager->kept[manager->kept_used++];
    return a;
}

/* Sets op.renumber of this owner's waiters and acquires in flight under this
 * id, and of readers under another id that name this one as their writer's. */
static void mark_calls(struct dibs__lock_entry *entry, dibs_owner owner,
                       uint64_t wire, enum dibs__renumber how)
{
    struct dibs__list *lists[] = {&entry->wait_queue.waiters,
                                  &entry->in_flight};

    dibs__lock(&entry->mu);
    for (size_t i = 0; i < 2; i++)
        for (struct dibs__list *l = lists[i]->next; l != lists[i];
             l = l->next) {
            struct dibs__operation *op =
                i == 0 ? DIBS_OF(l, struct dibs__operation, waiter.link)
                       : DIBS_OF(l, struct dibs__operation, in_flight_link);
            bool reads = op->owner_id != wire && op->args.other_id == wire;
            enum dibs__renumber now = reads ? RENUMBER_OTHER : how;
            if (op->owner == owner && (op->owner_id == wire || reads) &&
                op->renumber < now)
                op->renumber = (unsigned char)now;
        }
    dibs__unlock(&entry->mu);
}

static void give_next_number(struct dibs__lock_manager *manager,
                             dibs_owner owner, uint64_t wire)
{
    struct dibs__alias want = {.owner = owner};

    dibs__lock(&manager->c->mu);
    struct dibs__alias *a = RB_FIND(dibs__aliases, &manager->aliases, &want);
    if (!a && owner == wire && (a = alias_new(manager))) {
        a->owner = owner;
        a->wire = wire;
        RB_INSERT(dibs__aliases, &manager->aliases, a);
        atomic_store_explicit(&manager->has_aliases, true,
                              memory_order_release);
    }
    if (a && a->wire == wire)
        a->wire = dibs__owner_new_number();
    dibs__unlock(&manager->c->mu);
    atomic_fetch_add(&manager->retired_id_count, 1);
}

void dibs__owner_retire(struct dibs__lock_entry *entry, dibs_owner owner,
                        uint64_t wire, enum dibs__renumber how)
{
    give_next_number(entry->manager, owner, wire);
    mark_calls(entry, owner, wire, how);
    for (struct dibs__lock_entry *l = NULL;
         (l = dibs__entry_next_in_family(entry, l));)
        mark_calls(l, owner, wire, how);
}

void dibs__owners_free(struct dibs__lock_manager *manager)
{
    struct dibs__alias *a;

    while ((a = RB_MIN(dibs__aliases, &manager->aliases))) {
        RB_REMOVE(dibs__aliases, &manager->aliases, a);
        if (a < manager->kept || a >= manager->kept + DIBS__ALIASES_KEPT)
            dibs__free(a);
    }
}

dibs_owner dibs_owner_new(dibs_client *c)
{
    return dibs__client_is_forked_copy(c) ? 0 : dibs__owner_new_number();
}

dibs_owner dibs_owner_thread(dibs_client *c)
{
    return dibs__client_is_forked_copy(c) ? 0 : dibs__owner_thread();
}
