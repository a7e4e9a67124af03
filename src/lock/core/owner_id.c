/* SPDX-License-Identifier: MIT
 *
 * owner_id.c - numbers of owners.
 *
 * An owner is "uuid:number" to the server: the client's UUID and a number that
 * was never used before in this process. A thread gets its number when it first
 * asks, so a new thread never has what a dead one left behind.
 *
 * A command whose reply was lost may run at any later time. If the owner went
 * on under the same number, such a ghost could end or revive a hold that it
 * knows nothing of. So the owner goes on under another number, its alias, as
 * soon as it holds nothing; ghosts then only meet a number that is not used any
 * more. What they take for it, the reaper takes back.
 *
 * No acquire goes by a retired number. Who writes by one, and reads, does so by
 * its new number, and says by which one it writes: the server lets it in.
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

uint64_t dibs__owner_wire(struct dibs__lock_manager *manager, dibs_owner owner)
{
    struct dibs__alias want = {.owner = owner};

    if (!atomic_load_explicit(&manager->aliased, memory_order_acquire))
        return owner;
    dibs__lock(&manager->c->mu);
    struct dibs__alias *a = RB_FIND(dibs__aliases, &manager->aliases, &want);
    uint64_t wire = a ? a->wire : owner;
    dibs__unlock(&manager->c->mu);
    return wire;
}

uint64_t dibs__owner_writes(struct dibs__lock_entry *entry, dibs_owner owner,
                            uint64_t wire)
{
    struct dibs__lock_manager *manager = entry->manager;
    uint64_t other = 0;

    if (entry->type->id != TYPE_READ ||
        (!atomic_load_explicit(&manager->aliased, memory_order_acquire) &&
         !atomic_load(&manager->adopted.any)))
        return 0; /* nobody goes by two numbers */
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

/* A retired number must not be used again even when memory ends, so a few
 * aliases are kept for that. */
static struct dibs__alias *alias_new(struct dibs__lock_manager *manager)
    REQUIRES(manager->c->mu)
{
    struct dibs__alias *a = dibs__calloc(1, sizeof *a);

    if (!a && manager->kept_used < DIBS__ALIASES_KEPT)
        a = &manager->kept[manager->kept_used++];
    return a;
}

/* Calls of this owner that wait, or ask, by this number; and readers that go by
 * another one, and name this one as that by which their owner writes. */
static void mark_calls(struct dibs__lock_entry *entry, dibs_owner owner,
                       uint64_t wire, enum dibs__renumber how)
{
    struct dibs__list *lists[] = {&entry->wait.waiters, &entry->in_flight};

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
        atomic_store_explicit(&manager->aliased, true, memory_order_release);
    }
    if (a && a->wire == wire)
        a->wire = dibs__owner_number();
    dibs__unlock(&manager->c->mu);
    atomic_fetch_add(&manager->retired, 1);
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
    return dibs__client_is_forked_copy(c) ? 0 : dibs__owner_number();
}

dibs_owner dibs_owner_thread(dibs_client *c)
{
    return dibs__client_is_forked_copy(c) ? 0 : dibs__owner_thread();
}
