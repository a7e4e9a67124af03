/* SPDX-License-Identifier: MIT
 *
 * lock_entry.c - the table of names, and the order in a line.
 *
 * Thread  any; what needs a mutex says so.
 * Locks   line.mu; client.mu for the table.
 *
 * Order   All first acquisitions of one name that await an answer are in
 *         line.asks, at most one of an owner. Waiters are in line.wait, in
 *         order of arrival. A call that waits for another call of its owner is
 *         in that one's list: op.followers, or hold.blocked (operation.c).
 */
#include "lock/core/lock_entry.h"

#include "base/mem.h"
#include "base/tree.h"
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* By name, then by kind. */
static int order_by(const char *name, size_t len, enum dibs__lock_type_id kind,
                    const struct dibs__lock_entry *b)
{
    int order = memcmp(name, b->name, len < b->name_len ? len : b->name_len);

    if (order)
        return order;
    if (len != b->name_len)
        return len < b->name_len ? -1 : 1;
    return (int)kind - (int)b->kind->id;
}

static int line_order(const struct dibs__lock_entry *a,
                      const struct dibs__lock_entry *b)
{
    return order_by(a->name, a->name_len, a->kind->id, b);
}

DIBS_TREE(dibs__lock_entries, dibs__lock_entry, node, line_order);

/* ---- what a line belongs to -------------------------------------------- */

dibs_client *dibs__entry_client(const struct dibs__lock_entry *line)
{
    return line->locks->c;
}

struct dibs__route dibs__entry_route(const struct dibs__lock_entry *line)
{
    return line->locks->c->route;
}

struct dibs__server *dibs__entry_server(const struct dibs__lock_entry *line)
{
    return dibs__client_server(line->locks->c, line->slot);
}

int64_t dibs__entry_timeout(const struct dibs__lock_entry *line)
{
    return line->locks->c->to.command_timeout_ms;
}

void dibs__entry_log_event(const struct dibs__lock_entry *line,
                           dibs_event_kind kind, dibs_err err, const char *fmt,
                           ...)
{
    char text[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    dibs__client_log(line->locks->c, line->slot, kind, err, text);
}

void dibs__entry_fill_command(const struct dibs__lock_entry *line,
                              struct dibs__command *call, int64_t within,
                              int64_t connect_by)
{
    call->slot = line->slot;
    call->attempt_ms = dibs__entry_timeout(line);
    call->deadline = dibs__add(dibs__now_ms(), dibs__max(within, 0));
    call->connect_by = connect_by;
}

/* ---- names made of its name -------------------------------------------- */

static bool line_braces(const struct dibs__lock_entry *line)
{
    return line->kind->braced || !memchr(line->name, '{', line->name_len);
}

size_t dibs__entry_hash_tag_len(const struct dibs__lock_entry *line)
{
    return line->name_len + (line_braces(line) ? 2u : 0u);
}

void dibs__entry_hash_tag(const struct dibs__lock_entry *line,
                          struct dibs__buf *out)
{
    bool braces = line_braces(line);

    if (braces)
        dibs__buf_add(out, "{", 1);
    dibs__buf_add(out, line->name, line->name_len);
    if (braces)
        dibs__buf_add(out, "}", 1);
}

size_t dibs__entry_key_len(const struct dibs__lock_entry *line,
                           const char *prefix)
{
    return strlen(prefix) + (line->kind->braced ? 0 : 1) +
           dibs__entry_hash_tag_len(line);
}

void dibs__entry_key(const struct dibs__lock_entry *line, const char *prefix,
                     struct dibs__buf *out)
{
    dibs__buf_text(out, prefix);
    if (!line->kind->braced)
        dibs__buf_add(out, ":", 1);
    dibs__entry_hash_tag(line, out);
}

void dibs__entry_key_arg(const struct dibs__lock_entry *line,
                         const char *prefix, struct dibs__buf *out)
{
    dibs__buf_arg_open(out, dibs__entry_key_len(line, prefix));
    dibs__entry_key(line, prefix, out);
    dibs__buf_arg_close(out);
}

void dibs__entry_channel(const struct dibs__lock_entry *line,
                         struct dibs__buf *out)
{
    dibs__entry_key(line, line->kind->channel, out);
}

bool dibs__entry_subscribe(const struct dibs__lock_entry *line,
                           struct dibs__subscription *sub)
{
    struct dibs__buf name = {0};

    dibs__entry_channel(line, &name);
    bool made = dibs__buf_ok(&name) &&
                dibs__client_subscribe(line->locks->c, line->slot, sub,
                                       name.data, name.len) == DIBS_OK;
    dibs__buf_clear(&name);
    return made;
}

/* ---- the table --------------------------------------------------------- */

static void line_free(struct dibs__lock_entry *line)
{
    if (!line)
        return;
    dibs__free(line->spare);
    dibs__wait_queue_clear(&line->wait);
    dibs__mutex_clear(&line->mu);
    dibs__free(line);
}

/* Also where waiters are not called: those of other kinds may be. */
static char told_by_kind(const struct dibs__lock_type *kind)
{
    switch (kind->family) {
    case LAYOUT_HASH:
    case LAYOUT_RW:
        return DIBS__SAID_LOCK;
    case LAYOUT_SLOTS:
    case LAYOUT_SEMAPHORE: /* the same channel; none is free, it says */
        return DIBS__SAID_SLOTS;
    default:
        return '\0';
    }
}

struct dibs__wait_queue_info
dibs__entry_wait_info(const struct dibs__wait_queue *w)
{
    const struct dibs__lock_entry *line =
        DIBS_OF(w, struct dibs__lock_entry, wait);

    return (struct dibs__wait_queue_info){
        .c = line->locks->c,
        .slot = line->slot,
        .closing = atomic_load(&line->locks->closing),
        .registers = line->kind->called != NULL,
        .told = told_by_kind(line->kind),
    };
}

void dibs__entry_wait_subscribe(const struct dibs__wait_queue *w,
                                struct dibs__subscription *sub)
{
    (void)dibs__entry_subscribe(DIBS_OF(w, struct dibs__lock_entry, wait), sub);
}

static struct dibs__lock_entry *line_new(struct dibs__lock_manager *lk,
                                         const struct dibs__lock_type *kind,
                                         const char *name, size_t len)
{
    struct dibs__lock_entry *line = dibs__calloc(1, sizeof *line + len + 1);

    if (!line)
        return NULL;
    atomic_init(&line->refs, 1);
    atomic_init(&line->swept, false);
    dibs__mutex_init(&line->mu, RANK_LINE);
    dibs__list_init(&line->holds);
    dibs__list_init(&line->asks);
    line->locks = lk;
    line->kind = kind;
    line->name_len = (unsigned short)len;
    memcpy(line->name, name, len);
    if (lk->c->cluster)
        line->slot = (unsigned short)dibs__hash_slot_of(name, len);
    dibs__wait_queue_init(&line->wait, kind->waits ? kind->waits : lk->waits,
                          &line->mu, kind->asks);
    return line;
}

/* The one of this name and kind, or NULL. */
static struct dibs__lock_entry *line_find(struct dibs__lock_manager *lk,
                                          const char *name, size_t len,
                                          enum dibs__lock_type_id kind)
    REQUIRES(lk->c->mu)
{
    struct dibs__lock_entry *line = RB_ROOT(&lk->lines);

    while (line) {
        int order = order_by(name, len, kind, line);
        if (order == 0)
            return line;
        line = order < 0 ? RB_LEFT(line, node) : RB_RIGHT(line, node);
    }
    return NULL;
}

struct dibs__lock_entry *dibs__entry_get(struct dibs__lock_manager *lk,
                                         const struct dibs__lock_type *kind,
                                         const char *name, size_t len)
{
    struct dibs__lock_entry *fresh = line_new(lk, kind, name, len);

    if (!fresh)
        return NULL;
    atomic_fetch_or(&lk->kinds[kind->family], 1u << kind->id);
    dibs__lock(&lk->c->mu);
    struct dibs__lock_entry *line = line_find(lk, name, len, kind->id);
    if (line) {
        dibs__entry_ref(line);
    } else {
        RB_INSERT(dibs__lock_entries, &lk->lines, fresh);
        line = fresh;
        fresh = NULL;
    }
    dibs__unlock(&lk->c->mu);
    line_free(fresh);
    return line;
}

struct dibs__lock_entry *dibs__entry_find(struct dibs__lock_manager *lk,
                                          enum dibs__lock_type_id kind,
                                          const char *name, size_t len)
{
    dibs__lock(&lk->c->mu);
    struct dibs__lock_entry *line = line_find(lk, name, len, kind);
    if (line)
        dibs__entry_ref(line);
    dibs__unlock(&lk->c->mu);
    return line;
}

struct dibs__lock_entry *
dibs__entry_next_in_family(struct dibs__lock_entry *line,
                           struct dibs__lock_entry *after)
{
    struct dibs__lock_manager *lk = line->locks;
    unsigned kinds =
        atomic_load(&lk->kinds[line->kind->family]) & ~(1u << line->kind->id);
    struct dibs__lock_entry *found = NULL;

    if (after) { /* only those behind it */
        kinds &= ~0u << after->kind->id << 1;
        dibs__entry_unref(after);
    }
    if (!kinds)
        return NULL; /* nearly always, and without a mutex */
    dibs__lock(&lk->c->mu);
    for (unsigned id = 0; !found && id < TYPE_COUNT; id++)
        if (kinds & 1u << id)
            found = line_find(lk, line->name, line->name_len, id);
    if (found)
        dibs__entry_ref(found);
    dibs__unlock(&lk->c->mu);
    return found;
}

struct dibs__lock_entry *dibs__entry_next(struct dibs__lock_manager *lk,
                                          struct dibs__lock_entry *line)
{
    dibs__lock(&lk->c->mu);
    struct dibs__lock_entry *next =
        line ? DIBS_TREE_NEXT(dibs__lock_entries, line)
             : RB_MIN(dibs__lock_entries, &lk->lines);
    if (next)
        dibs__entry_ref(next);
    dibs__unlock(&lk->c->mu);
    if (line)
        dibs__entry_unref(line);
    return next;
}

void dibs__entry_ref(struct dibs__lock_entry *line)
{
    atomic_fetch_add(&line->refs, 1);
}

void dibs__entry_unref(struct dibs__lock_entry *line)
{
    int refs = atomic_load(&line->refs);
    dibs_client *c = line->locks->c;

    while (refs > 1)
        if (atomic_compare_exchange_weak(&line->refs, &refs, refs - 1))
            return;
    dibs__lock(&c->mu);
    bool last = atomic_fetch_sub(&line->refs, 1) == 1;
    if (last)
        RB_REMOVE(dibs__lock_entries, &line->locks->lines, line);
    dibs__unlock(&c->mu);
    if (last)
        line_free(line);
}

/* ---- the order in a line ----------------------------------------------- */

struct dibs__operation *dibs__entry_in_flight_of(struct dibs__lock_entry *line,
                                                 dibs_owner owner)
{
    for (struct dibs__list *l = line->asks.next; l != &line->asks;
         l = l->next) {
        struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, ask_link);
        if (op->owner == owner)
            return op;
    }
    return NULL;
}

bool dibs__entry_acquire_begin(struct dibs__lock_entry *line,
                               struct dibs__operation *op)
{
    if (dibs__entry_in_flight_of(line, op->owner))
        return false;
    op->wait.state = WAITER_IN_FLIGHT;
    dibs__list_init(&op->followers);
    dibs__list_add(&line->asks, &op->ask_link);
    return true;
}

void dibs__entry_acquire_done(struct dibs__lock_entry *line,
                              struct dibs__operation *op,
                              struct dibs__list *resume)
{
    dibs__list_del(&op->ask_link);
    op->wait.state =
        dibs__list_linked(&op->wait.link) ? WAITER_PARKED : WAITER_IDLE;
    dibs__wait_queue_unblock(&line->wait, &op->followers, resume);
}

bool dibs__entry_id_in_use(struct dibs__lock_entry *line, uint64_t wire)
{
    struct dibs__list *waiters = &line->wait.waiters;

    for (struct dibs__list *l = waiters->next; l != waiters; l = l->next) {
        const struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, wait.link);
        if (op->wire == wire && op->renumber <= RENUMBER_OTHER)
            return true;
    }
    return dibs__entry_id_in_flight(line, wire);
}

bool dibs__entry_id_in_flight(struct dibs__lock_entry *line, uint64_t wire)
{
    for (struct dibs__list *l = line->asks.next; l != &line->asks; l = l->next)
        if (DIBS_OF(l, struct dibs__operation, ask_link)->wire == wire)
            return true;
    return false;
}

bool dibs__entry_id_waits(struct dibs__lock_entry *line, uint64_t wire)
{
    struct dibs__list *waiters = &line->wait.waiters;

    for (struct dibs__list *l = waiters->next; l != waiters; l = l->next) {
        const struct dibs__operation *op =
            DIBS_OF(l, struct dibs__operation, wait.link);
        bool leaves = /* it takes another one before it asks again */
            (op->renumber == RENUMBER_REST || op->renumber == RENUMBER_REAP) &&
            op->wait.state == WAITER_PARKED;
        if (op->wire == wire && !leaves)
            return true;
    }
    return dibs__entry_id_in_flight(line, wire);
}
