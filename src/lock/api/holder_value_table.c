/* SPDX-License-Identifier: MIT
 *
 * holder_value_table.c - table of the values that holds of this client publish.
 *
 * A hold that publishes a value has a row here, found by the hold's number; a
 * hold without one has no row and hold.has_value unset. Under entry.mu rows are
 * only marked; the io thread sends (holder_value.c), one command at a time for
 * each row.
 *
 * Thread  any, with entry.mu; dibs__holder_value_next on io.
 * Locks   holder_values.mu.
 *
 * States
 *
 *   state      event                                       next state
 *   IDLE       the hold was renewed, or ended              POSTED
 *   POSTED     the task runs: a command to send            IN_FLIGHT
 *              the task runs: nothing to send              IDLE
 *              the task runs: ended, nothing to remove     freed
 *   IN_FLIGHT  reply, and needs_send or hold_ended is set  IN_FLIGHT
 *              reply                                       IDLE
 *              reply to the removal                        freed
 *
 * needs_send and hold_ended may be set while a command is in flight. A client
 * that closes waits for rows that are not IDLE.
 *
 * Numbers A value's number is greater than that of any earlier value of this
 *         client, so that a stale copy of a command changes nothing. It is at
 *         least the time in microseconds, since an adopted hold may have
 *         published from another client before.
 */
#include "lock/api/holder_value_table.h"

#include "base/mem.h"
#include "base/tree.h"
#include "lock/core/lock_manager.h"

#include <string.h>
#include <time.h>

static int row_order(const struct dibs__holder_value *a,
                     const struct dibs__holder_value *b)
{
    return a->hold_number < b->hold_number ? -1
                                           : a->hold_number > b->hold_number;
}

DIBS_TREE(dibs__holder_value_tree, dibs__holder_value, node, row_order);

static struct dibs__holder_value *find_row(struct dibs__holder_value_table *t,
                                           uint64_t hold_number) REQUIRES(t->mu)
{
    struct dibs__holder_value key = {.hold_number = hold_number};

    return RB_FIND(dibs__holder_value_tree, &t->tree, &key);
}

static void row_destroy(struct dibs__holder_value *p)
{
    dibs__free(p->new_value);
    dibs__free(p->value);
    dibs__free(p);
}

void dibs__holder_values_init(struct dibs__holder_value_table *t)
{
    dibs__mutex_init(&t->mu, RANK_HOLDER_VALUES);
    RB_INIT(&t->tree);
}

void dibs__holder_values_clear(struct dibs__holder_value_table *t)
{
    struct dibs__holder_value *p;

    while ((p = RB_MIN(dibs__holder_value_tree, &t->tree))) {
        RB_REMOVE(dibs__holder_value_tree, &t->tree, p);
        row_destroy(p);
    }
    dibs__mutex_clear(&t->mu);
}

void dibs__holder_value_free(struct dibs__holder_value *p)
{
    struct dibs__lock_entry *entry = p->entry;

    row_destroy(p);
    dibs__entry_unref(entry);
}

/* ---- values ------------------------------------------------------------ */

static uint64_t next_number(struct dibs__holder_value_table *t) REQUIRES(t->mu)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t us =
        (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
    t->last_number = us > t->last_number ? us : t->last_number + 1;
    return t->last_number;
}

static struct dibs__value *value_new(const char *text, size_t len)
{
    struct dibs__value *v = dibs__malloc(sizeof *v + len + 1);

    if (!v)
        return NULL;
    v->len = len;
    memcpy(v->text, text, len);
    v->text[len] = '\0';
    return v;
}

bool dibs__holder_value_put(struct dibs__lock_entry *entry,
                            uint64_t hold_number, uint64_t owner_id,
                            const char *text, size_t len,
                            void (*step)(struct dibs__task *t),
                            uint64_t *number)
{
    struct dibs__holder_value_table *t = &entry->manager->holder_values;
    struct dibs__value *v = value_new(text, len);
    bool done = false;

    if (!v)
        return false;
    dibs__lock(&t->mu);
    struct dibs__holder_value *p = find_row(t, hold_number);
    if (!p && (p = dibs__calloc(1, sizeof *p))) {
        p->entry = entry;
        dibs__entry_ref(entry);
        p->hold_number = hold_number;
        p->owner_id = owner_id;
        p->step.run = step;
        RB_INSERT(dibs__holder_value_tree, &t->tree, p);
    }
    if (p) {
        v->number = *number = next_number(t);
        dibs__free(p->new_value);
        p->new_value = v;
        done = true;
    }
    dibs__unlock(&t->mu);
    if (!done)
        dibs__free(v);
    return done;
}

/* ---- marks ------------------------------------------------------------- */

enum mark { MARK_NEEDS_SEND, MARK_ENDED, MARK_REFUSED };

static void mark_row(struct dibs__lock_entry *entry, uint64_t hold_number,
                     enum mark mark)
{
    struct dibs__holder_value_table *t = &entry->manager->holder_values;
    bool post = false;

    dibs__lock(&t->mu);
    struct dibs__holder_value *p = find_row(t, hold_number);
    if (p) {
        post = p->state == HOLDER_VALUE_IDLE;
        p->state = post ? HOLDER_VALUE_POSTED : p->state;
        p->needs_send |= mark == MARK_NEEDS_SEND;
        p->hold_ended |= mark != MARK_NEEDS_SEND;
        p->removed |= mark == MARK_REFUSED;
        if (p->hold_ended)
            RB_REMOVE(dibs__holder_value_tree, &t->tree, p);
    }
    dibs__unlock(&t->mu);
    if (post) {
        atomic_fetch_add(&entry->manager->in_flight, 1); /* until IDLE */
        dibs__loop_post(&entry->manager->c->loop, &p->step);
    }
}

void dibs__holder_value_renew(struct dibs__lock_entry *entry,
                              uint64_t hold_number)
{
    mark_row(entry, hold_number, MARK_NEEDS_SEND);
}

void dibs__holder_value_end(struct dibs__lock_entry *entry,
                            uint64_t hold_number)
{
    mark_row(entry, hold_number, MARK_ENDED);
}

void dibs__holder_value_discard(struct dibs__lock_entry *entry,
                                uint64_t hold_number)
{
    mark_row(entry, hold_number, MARK_REFUSED);
}

enum dibs__holder_value_job
dibs__holder_value_next(struct dibs__holder_value *p)
{
    struct dibs__holder_value_table *t = &p->entry->manager->holder_values;
    enum dibs__holder_value_job job = JOB_NONE;

    dibs__lock(&t->mu);
    if (p->new_value) {
        dibs__free(p->value);
        p->value = p->new_value;
        p->new_value = NULL;
    }
    if (p->hold_ended)
        job = p->removed ? JOB_FREE : JOB_REMOVE;
    else if (p->needs_send && p->value)
        job = JOB_SEND;
    p->removed |= job == JOB_REMOVE; /* tried once; otherwise it expires */
    p->needs_send = false;
    p->state = job == JOB_SEND || job == JOB_REMOVE ? HOLDER_VALUE_IN_FLIGHT
                                                    : HOLDER_VALUE_IDLE;
    if (job == JOB_NONE || job == JOB_FREE)
        atomic_fetch_sub(&p->entry->manager->in_flight, 1);
    dibs__unlock(&t->mu);
    return job;
}
