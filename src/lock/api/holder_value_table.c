/* SPDX-License-Identifier: MIT
 *
 * holder_value_table.c - values that holders of this client publish: the table
 * of them.
 *
 * A hold that publishes has a row here, found by the number of the hold. A hold
 * without a value costs nothing: one flag says that there is no row. Where line
 * and hold are known and changed, rows are only marked; io does the sending
 * (holder_value.c), one command of a row at a time.
 *
 * Thread  any, with line.mu; dibs__holder_value_next on io.
 * Locks   published.mu.
 *
 * States
 *
 *   state   what can happen                               next state
 *   QUIET   its hold is renewed, or over                  POSTED
 *   POSTED  io looks: something is to be sent             SENT
 *           io looks: nothing is to be sent               QUIET
 *           io looks: over, and nothing to take away      freed
 *   SENT    the answer is there, and due again, or over   SENT
 *           the answer is there                           QUIET
 *           the value was taken away                      freed
 *
 * due and over are marks beside the state: they may be set while a command is
 * on its way. A client that closes waits for rows that are not QUIET.
 *
 * Numbers A value has a number that grows with each value of this client, so
 *         that a copy of a command that runs late changes nothing. It is the
 *         time in microseconds at least: an adopted hold may have published by
 *         another client before.
 */
#include "lock/api/holder_value_table.h"

#include "base/mem.h"
#include "base/tree.h"
#include "lock/core/lock_manager.h"

#include <string.h>
#include <time.h>

static int published_order(const struct dibs__holder_value *a,
                           const struct dibs__holder_value *b)
{
    return a->hold < b->hold ? -1 : a->hold > b->hold;
}

DIBS_TREE(dibs__holder_value_tree, dibs__holder_value, node, published_order);

static struct dibs__holder_value *row_of(struct dibs__holder_value_table *t,
                                         uint64_t hold) REQUIRES(t->mu)
{
    struct dibs__holder_value want = {.hold = hold};

    return RB_FIND(dibs__holder_value_tree, &t->tree, &want);
}

static void row_destroy(struct dibs__holder_value *p)
{
    dibs__free(p->fresh);
    dibs__free(p->value);
    dibs__free(p);
}

void dibs__holder_values_init(struct dibs__holder_value_table *t)
{
    dibs__mutex_init(&t->mu, RANK_PUBLISHED);
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
    struct dibs__lock_entry *entry = p->line;

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
    t->number = us > t->number ? us : t->number + 1;
    return t->number;
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

bool dibs__holder_value_put(struct dibs__lock_entry *entry, uint64_t hold,
                            uint64_t wire, const char *text, size_t len,
                            void (*step)(struct dibs__task *t),
                            uint64_t *number)
{
    struct dibs__holder_value_table *t = &entry->manager->holder_values;
    struct dibs__value *v = value_new(text, len);
    bool done = false;

    if (!v)
        return false;
    dibs__lock(&t->mu);
    struct dibs__holder_value *p = row_of(t, hold);
    if (!p && (p = dibs__calloc(1, sizeof *p))) {
        p->line = entry;
        dibs__entry_ref(entry);
        p->hold = hold;
        p->wire = wire;
        p->step.run = step;
        RB_INSERT(dibs__holder_value_tree, &t->tree, p);
    }
    if (p) {
        v->number = *number = next_number(t);
        dibs__free(p->fresh);
        p->fresh = v;
        done = true;
    }
    dibs__unlock(&t->mu);
    if (!done)
        dibs__free(v);
    return done;
}

/* ---- marks ------------------------------------------------------------- */

enum mark { MARK_DUE, MARK_OVER, MARK_FORGOTTEN };

static void mark_row(struct dibs__lock_entry *entry, uint64_t hold,
                     enum mark mark)
{
    struct dibs__holder_value_table *t = &entry->manager->holder_values;
    bool post = false;

    dibs__lock(&t->mu);
    struct dibs__holder_value *p = row_of(t, hold);
    if (p) {
        post = p->state == PUBLISHED_QUIET;
        p->state = post ? PUBLISHED_POSTED : p->state;
        p->due |= mark == MARK_DUE;
        p->over |= mark != MARK_DUE;
        p->forgotten |= mark == MARK_FORGOTTEN;
        if (p->over)
            RB_REMOVE(dibs__holder_value_tree, &t->tree, p);
    }
    dibs__unlock(&t->mu);
    if (post) {
        atomic_fetch_add(&entry->manager->in_flight, 1); /* until it is quiet */
        dibs__loop_post(&entry->manager->c->loop, &p->step);
    }
}

void dibs__holder_value_renew(struct dibs__lock_entry *entry, uint64_t hold)
{
    mark_row(entry, hold, MARK_DUE);
}

void dibs__holder_value_end(struct dibs__lock_entry *entry, uint64_t hold)
{
    mark_row(entry, hold, MARK_OVER);
}

void dibs__holder_value_forget(struct dibs__lock_entry *entry, uint64_t hold)
{
    mark_row(entry, hold, MARK_FORGOTTEN);
}

enum dibs__holder_value_job
dibs__holder_value_next(struct dibs__holder_value *p)
{
    struct dibs__holder_value_table *t = &p->line->manager->holder_values;
    enum dibs__holder_value_job job = JOB_NONE;

    dibs__lock(&t->mu);
    if (p->fresh) {
        dibs__free(p->value);
        p->value = p->fresh;
        p->fresh = NULL;
    }
    if (p->over)
        job = p->forgotten ? JOB_FREE : JOB_DROP;
    else if (p->due && p->value)
        job = JOB_SEND;
    p->forgotten |= job == JOB_DROP; /* one attempt; else its time ends it */
    p->due = false;
    p->state =
        job == JOB_SEND || job == JOB_DROP ? PUBLISHED_SENT : PUBLISHED_QUIET;
    if (job == JOB_NONE || job == JOB_FREE)
        atomic_fetch_sub(&p->line->manager->in_flight, 1);
    dibs__unlock(&t->mu);
    return job;
}
