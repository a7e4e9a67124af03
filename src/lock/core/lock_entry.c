/* SPDX-License-Identifier: MIT
 *
 * lock_entry.c - the table of lock entries, and the first acquires in flight.
 *
 * Thread  any.
 * Locks   entry.mu where stated; client.mu for the table.
 *
 * Where an operation is
 *         entry.in_flight       first acquires in flight; at most one of an
 *                               owner
 *         entry.wait            waiters, in order of arrival; they can be in
 *                               entry.in_flight at the same time
 *         op.blocked_ops        operations blocked on that first acquire
 *         hold.blocked_ops      operations blocked on the one that keeps the
 *                               hold busy
 */
#include "lock/core/lock_entry.h"

#include "base/mem.h"
#include "base/tree.h"
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define EVENT_TEXT_MAX 200

/* Orders entries by name, then by lock type. */
static int entry_compare_key(const char *name, size_t len,
                             enum dibs__lock_type_id type_id,
                             const struct dibs__lock_entry *b)
{
    int order = memcmp(name, b->name, len < b->name_len ? len : b->name_len);

    if (order)
        return order;
    if (len != b->name_len)
        return len < b->name_len ? -1 : 1;
    return (int)type_id - (int)b->type->id;
}

static int entry_compare(const struct dibs__lock_entry *a,
                         const struct dibs__lock_entry *b)
{
    return entry_compare_key(a->name, a->name_len, a->type->id, b);
}

DIBS_TREE(dibs__lock_entries, dibs__lock_entry, node, entry_compare);

/* ---- its client and server --------------------------------------------- */

dibs_client *dibs__entry_client(const struct dibs__lock_entry *entry)
{
    return entry->manager->c;
}

struct dibs__route dibs__entry_route(const struct dibs__lock_entry *entry)
{
    return entry->manager->c->route;
}

struct dibs__server *dibs__entry_server(const struct dibs__lock_entry *entry)
{
    return dibs__client_server(entry->manager->c, entry->hash_slot);
}

int64_t dibs__entry_timeout(const struct dibs__lock_entry *entry)
{
    return entry->manager->c->to.command_timeout_ms;
}

void dibs__entry_log_event(const struct dibs__lock_entry *entry,
                           dibs_event_kind type_id, dibs_err err,
                           const char *fmt, ...)
{
    char text[EVENT_TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    dibs__client_log(entry->manager->c, entry->hash_slot, type_id, err, text);
}

void dibs__entry_fill_command(const struct dibs__lock_entry *entry,
                              struct dibs__command *cmd, int64_t within,
                              int64_t connect_by)
{
    cmd->slot = entry->hash_slot;
    cmd->attempt_ms = dibs__entry_timeout(entry);
    cmd->deadline = dibs__add(dibs__now_ms(), dibs__max(within, 0));
    cmd->connect_by = connect_by;
}

/* ---- keys and channels ------------------------------------------------- */

static bool needs_braces(const struct dibs__lock_entry *entry)
{
    return entry->type->always_braces_channel ||
           !memchr(entry->name, '{', entry->name_len);
}

size_t dibs__entry_hash_tag_len(const struct dibs__lock_entry *entry)
{
    return entry->name_len + (needs_braces(entry) ? 2u : 0u);
}

void dibs__entry_hash_tag(const struct dibs__lock_entry *entry,
                          struct dibs__buf *out)
{
    bool braces = needs_braces(entry);

    if (braces)
        dibs__buf_add(out, "{", 1);
    dibs__buf_add(out, entry->name, entry->name_len);
    if (braces)
        dibs__buf_add(out, "}", 1);
}

size_t dibs__entry_key_len(const struct dibs__lock_entry *entry,
                           const char *prefix)
{
    return strlen(prefix) + (entry->type->always_braces_channel ? 0 : 1) +
           dibs__entry_hash_tag_len(entry);
}

void dibs__entry_key(const struct dibs__lock_entry *entry, const char *prefix,
                     struct dibs__buf *out)
{
    dibs__buf_text(out, prefix);
    if (!entry->type->always_braces_channel)
        dibs__buf_add(out, ":", 1);
    dibs__entry_hash_tag(entry, out);
}

void dibs__entry_key_arg(const struct dibs__lock_entry *entry,
                         const char *prefix, struct dibs__buf *out)
{
    dibs__buf_arg_open(out, dibs__entry_key_len(entry, prefix));
    dibs__entry_key(entry, prefix, out);
    dibs__buf_arg_close(out);
}

void dibs__entry_channel(const struct dibs__lock_entry *entry,
                         struct dibs__buf *out)
{
    dibs__entry_key(entry, entry->type->channel, out);
}

bool dibs__entry_subscribe(const struct dibs__lock_entry *entry,
                           struct dibs__subscription *sub)
{
    struct dibs__buf name = {0};

    dibs__entry_channel(entry, &name);
    bool made = dibs__buf_ok(&name) &&
                dibs__client_subscribe(entry->manager->c, entry->hash_slot, sub,
                                       name.data, name.len) == DIBS_OK;
    dibs__buf_clear(&name);
    return made;
}

/* ---- the table --------------------------------------------------------- */

static void entry_free(struct dibs__lock_entry *entry)
{
    if (!entry)
        return;
    dibs__free(entry->spare_hold);
    dibs__wait_queue_clear(&entry->wait_queue);
    dibs__mutex_clear(&entry->mu);
    dibs__free(entry);
}

/* Returns the first character of a message that announces a direct wake-up on
 * the type's channel, so is no release; NUL: there is none. Needed for types
 * without direct wake-ups, too: types of one family share the channel. */
static char direct_wakeup_message(const struct dibs__lock_type *type)
{
    switch (type->layout) {
    case LAYOUT_HASH:
    case LAYOUT_RW:
        return DIBS__MSG_QUEUED_LOCK;
    case LAYOUT_SLOTS:
    case LAYOUT_SEMAPHORE: /* the same channel; '0' says that none is free */
        return DIBS__MSG_QUEUED_SLOTS;
    default:
        return '\0';
    }
}

struct dibs__wait_queue_info
dibs__entry_wait_info(const struct dibs__wait_queue *queue)
{
    const struct dibs__lock_entry *entry =
        DIBS_OF(queue, struct dibs__lock_entry, wait_queue);

    return (struct dibs__wait_queue_info){
        .client = entry->manager->c,
        .slot = entry->hash_slot,
        .closing = atomic_load(&entry->manager->closing),
        .registers = entry->type->register_args != NULL,
        .queued_message = direct_wakeup_message(entry->type),
    };
}

void dibs__entry_wait_subscribe(const struct dibs__wait_queue *queue,
                                struct dibs__subscription *sub)
{
    (void)dibs__entry_subscribe(
        DIBS_OF(queue, struct dibs__lock_entry, wait_queue), sub);
}

static struct dibs__lock_entry *entry_new(struct dibs__lock_manager *manager,
                                          const struct dibs__lock_type *type,
                                          const char *name, size_t len)
{
    struct dibs__lock_entry *entry = dibs__calloc(1, sizeof *entry + len + 1);

    if (!entry)
        return NULL;
    atomic_init(&entry->refs, 1);
    atomic_init(&entry->gc_running, false);
    dibs__mutex_init(&entry->mu, RANK_ENTRY);
    dibs__list_init(&entry->holds);
    dibs__list_init(&entry->in_flight);
    entry->manager = manager;
    entry->type = type;
    entry->name_len = (unsigned short)len;
    memcpy(entry->name, name, len);
    if (manager->c->cluster)
        entry->hash_slot = (unsigned short)dibs__hash_slot_of(name, len);
    dibs__wait_queue_init(&entry->wait_queue,
                          type->wait_ops ? type->wait_ops : manager->wait_ops,
                          &entry->mu, type->retry_policy);
    return entry;
}

/* Returns the entry of this name and type, without a reference, or NULL. */
static struct dibs__lock_entry *entry_lookup(struct dibs__lock_manager *manager,
                                             const char *name, size_t len,
                                             enum dibs__lock_type_id type_id)
    REQUIRES(manager->c->mu)
{
    struct dibs__lock_entry *entry = RB_ROOT(&manager->entries);

    while (entry) {
        int order = entry_compare_key(name, len, type_id, entry);
        if (order == 0)
            return entry;
        entry = order < 0 ? RB_LEFT(entry, node) : RB_RIGHT(entry, node);
    }
    return NULL;
}

struct dibs__lock_entry *dibs__entry_get(struct dibs__lock_manager *manager,
                                         const struct dibs__lock_type *type,
                                         const char *name, size_t len)
{
    struct dibs__lock_entry *new_entry = entry_new(manager, type, name, len);

    if (!new_entry)
        return NULL;
    atomic_fetch_or(&manager->types_used[type->layout], 1u << type->id);
    dibs__lock(&manager->c->mu);
    struct dibs__lock_entry *entry = entry_lookup(manager, name, len, type->id);
    if (entry) {
        dibs__entry_ref(entry);
    } else {
        RB_INSERT(dibs__lock_entries, &manager->entries, new_entry);
        entry = new_entry;
        new_entry = NULL;
    }
    dibs__unlock(&manager->c->mu);
    entry_free(new_entry);
    return entry;
}

struct dibs__lock_entry *dibs__entry_find(struct dibs__lock_manager *manager,
                                          enum dibs__lock_type_id type_id,
                                          const char *name, size_t len)
{
    dibs__lock(&manager->c->mu);
    struct dibs__lock_entry *entry = entry_lookup(manager, name, len, type_id);
    if (entry)
        dibs__entry_ref(entry);
    dibs__unlock(&manager->c->mu);
    return entry;
}

struct dibs__lock_entry *
dibs__entry_next_in_family(struct dibs__lock_entry *entry,
                           struct dibs__lock_entry *after)
{
    struct dibs__lock_manager *manager = entry->manager;
    unsigned type_ids = atomic_load(&manager->types_used[entry->type->layout]) &
                        ~(1u << entry->type->id);
    struct dibs__lock_entry *found = NULL;

    if (after) { /* only types behind it: iterates in the order of ids */
        type_ids &= ~0u << after->type->id << 1;
        dibs__entry_unref(after);
    }
    if (!type_ids)
        return NULL; /* the usual case needs no mutex */
    dibs__lock(&manager->c->mu);
    for (unsigned id = 0; !found && id < TYPE_COUNT; id++)
        if (type_ids & 1u << id)
            found = entry_lookup(manager, entry->name, entry->name_len, id);
    if (found)
        dibs__entry_ref(found);
    dibs__unlock(&manager->c->mu);
    return found;
}

struct dibs__lock_entry *dibs__entry_next(struct dibs__lock_manager *manager,
                                          struct dibs__lock_entry *entry)
{
    dibs__lock(&manager->c->mu);
    struct dibs__lock_entry *next =
        entry ? DIBS_TREE_NEXT(dibs__lock_entries, entry)
              : RB_MIN(dibs__lock_entries, &manager->entries);
    if (next)
        dibs__entry_ref(next);
    dibs__unlock(&manager->c->mu);
    if (entry)
        dibs__entry_unref(entry);
    return next;
}

void dibs__entry_ref(struct dibs__lock_entry *entry)
{
    atomic_fetch_add(&entry->refs, 1);
}

void dibs__entry_unref(struct dibs__lock_entry *entry)
{
    int refs = atomic_load(&entry->refs);
    dibs_client *c = entry->manager->c;

    while (refs > 1)
        if (atomic_compare_exchange_weak(&entry->refs, &refs, refs - 1))
            return;
    dibs__lock(&c->mu);
    bool last = atomic_fetch_sub(&entry->refs, 1) == 1;
    if (last)
        RB_REMOVE(dibs__lock_entries, &entry->manager->entries, entry);
    dibs__unlock(&c->mu);
    if (last)
        entry_free(entry);
}

/* ---- first acquires in flight ------------------------------------------ */

struct dibs__operation *dibs__entry_in_flight_of(struct dibs__lock_entry *entry,
                                                 dibs_owner owner)
{
    for (struct dibs__list *l = entry->in_flight.next; l != &entry->in_flight;
         l = l->next) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, in_flight_link);
        if (op->owner == owner)
            return op;
    }
    return NULL;
}

bool dibs__entry_acquire_begin(struct dibs__lock_entry *entry,
                               struct dibs__operation *op)
{
    if (dibs__entry_in_flight_of(entry, op->owner))
        return false;
    op->waiter.state = WAITER_IN_FLIGHT;
    dibs__list_init(&op->blocked_ops);
    dibs__list_add(&entry->in_flight, &op->in_flight_link);
    return true;
}

void dibs__entry_acquire_done(struct dibs__lock_entry *entry,
                              struct dibs__operation *op,
                              struct dibs__list *resume)
{
    dibs__list_del(&op->in_flight_link);
    op->waiter.state =
        dibs__list_linked(&op->waiter.link) ? WAITER_PARKED : WAITER_IDLE;
    dibs__wait_queue_unblock(&entry->wait_queue, &op->blocked_ops, resume);
}

bool dibs__entry_id_in_use(struct dibs__lock_entry *entry, uint64_t owner_id)
{
    struct dibs__list *waiters = &entry->wait_queue.waiters;

    for (struct dibs__list *l = waiters->next; l != waiters; l = l->next) {
        const struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, waiter.link);
        if (op->owner_id == owner_id && op->renumber <= RENUMBER_OTHER)
            return true;
    }
    return dibs__entry_id_in_flight(entry, owner_id);
}

bool dibs__entry_id_in_flight(struct dibs__lock_entry *entry, uint64_t owner_id)
{
    for (struct dibs__list *l = entry->in_flight.next; l != &entry->in_flight;
         l = l->next)
        if (DIBS_OF(l, struct dibs__operation, in_flight_link)->owner_id ==
            owner_id)
            return true;
    return false;
}

bool dibs__entry_id_waits(struct dibs__lock_entry *entry, uint64_t owner_id)
{
    struct dibs__list *waiters = &entry->wait_queue.waiters;

    for (struct dibs__list *l = waiters->next; l != waiters; l = l->next) {
        const struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, waiter.link);
        bool replaces_id = /* it takes a new id before its next command */
            (op->renumber == RENUMBER_REST || op->renumber == RENUMBER_REAP) &&
            op->waiter.state == WAITER_PARKED;
        if (op->owner_id == owner_id && !replaces_id)
            return true;
    }
    return dibs__entry_id_in_flight(entry, owner_id);
}
