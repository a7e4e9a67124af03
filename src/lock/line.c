/* SPDX-License-Identifier: MIT
 *
 * line.c - one lock as this client sees it: the line, and the holds in it.
 *
 * Thread  any; what needs a mutex says so.
 * Locks   line.mu; client.mu for the table of lines.
 *
 * Time    A hold is ours until valid_until: the time just before the command
 *         that last proved it was sent, plus the lease, less a margin for
 *         clocks that do not run alike. The server's lease began later than
 *         that, so our idea of its end is never later than the server's. Past
 *         it the hold is lost, even if no packet ever comes again.
 *
 * Lost    stays until the owner has released it as often as it took it, so
 *         that every level of the program hears of it.
 */
#include "lock/line.h"

#include "base/mem.h"
#include "lock/locks.h"
#include "lock/op.h"

#include <stdio.h>
#include <string.h>

#define DRIFT_PERCENT 1
#define DRIFT_MS      2

static int name_order(const struct dibs__line *a, const struct dibs__line *b)
{
    size_t shorter = a->name_len < b->name_len ? a->name_len : b->name_len;
    int order = memcmp(a->name, b->name, shorter);

    if (order)
        return order;
    return a->name_len < b->name_len ? -1 : a->name_len > b->name_len;
}

static int kind_order(const struct dibs__kind *a, const struct dibs__kind *b)
{
    return a < b ? -1 : a > b;
}

static int line_order(const struct dibs__line *a, const struct dibs__line *b)
{
    int order = name_order(a, b);

    return order ? order : kind_order(a->kind, b->kind);
}

DIBS_TREE(dibs__lines, dibs__line, node, line_order);

/* ---- lines ------------------------------------------------------------- */

dibs_client *dibs__line_client(const struct dibs__line *line)
{
    return line->locks->c;
}

struct dibs__server *dibs__line_server(const struct dibs__line *line)
{
    return dibs__client_server(line->locks->c, line->slot);
}

struct dibs__route dibs__line_route(const struct dibs__line *line)
{
    return line->locks->c->route;
}

const char *dibs__line_trouble(const struct dibs__line *line)
{
    return dibs__client_trouble(line->locks->c, line->slot);
}

void dibs__line_tell(const struct dibs__line *line, dibs_event_kind kind,
                     dibs_err err, const char *text)
{
    dibs__client_tell(line->locks->c, line->slot, kind, err, text);
}

dibs_err dibs__line_listen(const struct dibs__line *line, struct dibs__sub *sub,
                           const char *name, size_t len)
{
    return dibs__client_listen(line->locks->c, line->slot, sub, name, len);
}

const char *dibs__line_uuid(const struct dibs__line *line)
{
    return line->locks->c->id;
}

/* "prefix:{name}", or "prefix:name" for a name that has a brace already. */
static char *channel_name(const char *prefix, const char *name, size_t len,
                          size_t *out_len)
{
    struct dibs__buf b = {0};
    bool tagged = memchr(name, '{', len) != NULL;

    dibs__buf_text(&b, prefix);
    dibs__buf_text(&b, tagged ? ":" : ":{");
    dibs__buf_add(&b, name, len);
    if (!tagged)
        dibs__buf_text(&b, "}");
    *out_len = b.len;
    dibs__buf_add(&b, "", 1);
    if (!dibs__buf_ok(&b))
        dibs__buf_clear(&b);
    return b.data;
}

static void line_free(struct dibs__line *line)
{
    if (!line)
        return;
    dibs__free(line->spare);
    dibs__free(line->channel);
    dibs__mutex_clear(&line->mu);
    dibs__free(line);
}

static struct dibs__line *line_new(struct dibs__locks *lk,
                                   const struct dibs__kind *kind,
                                   const char *name, size_t len)
{
    struct dibs__line *line = dibs__calloc(1, sizeof *line + len + 1);

    if (!line)
        return NULL;
    atomic_init(&line->refs, 1);
    atomic_init(&line->swept, false);
    dibs__mutex_init(&line->mu, RANK_LINE);
    dibs__list_init(&line->holds);
    dibs__list_init(&line->waiters);
    dibs__list_init(&line->asks);
    line->locks = lk;
    line->kind = kind;
    line->name_len = len;
    memcpy(line->name, name, len);
    line->slot = lk->c->cluster ? dibs__slot_of(name, len) : 0;
    line->channel = channel_name(kind->channel, name, len, &line->channel_len);
    dibs__line_wait_init(line);
    if (!line->channel) {
        line_free(line);
        return NULL;
    }
    return line;
}

static struct dibs__line *line_find(struct dibs__locks *lk,
                                    const struct dibs__line *like)
    REQUIRES(lk->c->mu)
{
    struct dibs__line *line = RB_ROOT(&lk->lines);

    while (line) {
        int order = line_order(like, line);
        if (order == 0)
            return line;
        line = order < 0 ? RB_LEFT(line, node) : RB_RIGHT(line, node);
    }
    return NULL;
}

struct dibs__line *dibs__line_get(struct dibs__locks *lk,
                                  const struct dibs__kind *kind,
                                  const char *name, size_t len)
{
    struct dibs__line *fresh = line_new(lk, kind, name, len);

    if (!fresh)
        return NULL;
    atomic_fetch_or(&lk->kinds, kind->bit);
    dibs__lock(&lk->c->mu);
    struct dibs__line *line = line_find(lk, fresh);
    if (line) {
        dibs__line_ref(line);
    } else {
        RB_INSERT(dibs__lines, &lk->lines, fresh);
        line = fresh;
        fresh = NULL;
    }
    dibs__unlock(&lk->c->mu);
    line_free(fresh);
    return line;
}

struct dibs__line *dibs__line_sibling(struct dibs__line *line)
{
    struct dibs__locks *lk = line->locks;

    if (!(atomic_load(&lk->kinds) & line->kind->sibling->bit))
        return NULL; /* nearly always, and without a mutex */
    dibs__lock(&lk->c->mu);
    struct dibs__line *found = RB_ROOT(&lk->lines);
    while (found) {
        int order = name_order(line, found);
        if (order == 0)
            order = kind_order(line->kind->sibling, found->kind);
        if (order == 0)
            break;
        found = order < 0 ? RB_LEFT(found, node) : RB_RIGHT(found, node);
    }
    if (found)
        dibs__line_ref(found);
    dibs__unlock(&lk->c->mu);
    return found;
}

bool dibs__line_held_by_sibling(struct dibs__line *line, dibs_owner owner)
{
    struct dibs__line *other = dibs__line_sibling(line);

    if (!other)
        return false;
    dibs__lock(&other->mu);
    bool held = dibs__hold_of(other, owner) != NULL;
    dibs__unlock(&other->mu);
    dibs__line_unref(other);
    return held;
}

struct dibs__line *dibs__line_first(struct dibs__lines *lines)
{
    return RB_MIN(dibs__lines, lines);
}

struct dibs__line *dibs__line_after(struct dibs__line *line)
{
    return DIBS_TREE_NEXT(dibs__lines, line);
}

void dibs__line_ref(struct dibs__line *line)
{
    atomic_fetch_add(&line->refs, 1);
}

void dibs__line_unref(struct dibs__line *line)
{
    int refs = atomic_load(&line->refs);
    dibs_client *c = line->locks->c;

    while (refs > 1)
        if (atomic_compare_exchange_weak(&line->refs, &refs, refs - 1))
            return;
    dibs__lock(&c->mu);
    bool last = atomic_fetch_sub(&line->refs, 1) == 1;
    if (last)
        RB_REMOVE(dibs__lines, &line->locks->lines, line);
    dibs__unlock(&c->mu);
    if (last)
        line_free(line);
}

/* ---- finding holds ----------------------------------------------------- */

bool dibs__hold_over(const struct dibs__hold *h, int64_t now)
{
    return h->lost || now >= h->valid_until;
}

struct dibs__hold *dibs__hold_of(struct dibs__line *line, dibs_owner owner)
{
    for (struct dibs__list *l = line->holds.next; l != &line->holds;
         l = l->next) {
        struct dibs__hold *h = DIBS_OF(l, struct dibs__hold, link);
        if (h->owner == owner)
            return h;
    }
    return NULL;
}

struct dibs__hold *dibs__hold_on_wire(struct dibs__line *line, uint64_t wire,
                                      uint64_t number)
{
    for (struct dibs__list *l = line->holds.next; l != &line->holds;
         l = l->next) {
        struct dibs__hold *h = DIBS_OF(l, struct dibs__hold, link);
        if (h->wire == wire && (number == 0 || h->number == number))
            return h;
    }
    return NULL;
}

struct dibs__hold *dibs__hold_other(struct dibs__line *line, dibs_owner owner,
                                    int64_t now)
{
    for (struct dibs__list *l = line->holds.next; l != &line->holds;
         l = l->next) {
        struct dibs__hold *h = DIBS_OF(l, struct dibs__hold, link);
        if (h->owner != owner && !dibs__hold_over(h, now))
            return h;
    }
    return NULL;
}

/* ---- the life of a hold ------------------------------------------------ */

int64_t dibs__valid_until(int64_t sent, int64_t lease_ms)
{
    int64_t margin = lease_ms / 100 * DRIFT_PERCENT + DRIFT_MS;

    return dibs__add(sent, lease_ms - margin);
}

struct dibs__hold *dibs__hold_new(struct dibs__line *line)
{
    struct dibs__hold *h = line->spare;

    if (h)
        line->spare = NULL;
    else
        h = dibs__malloc(sizeof *h);
    if (!h)
        return NULL;
    memset(h, 0, sizeof *h);
    h->line = line;
    h->number = atomic_fetch_add(&line->locks->holds, 1) + 1;
    h->levels = h->own_levels;
    h->levels_cap = DIBS__LEVELS;
    h->max_until = INT64_MAX;
    dibs__list_init(&h->blocked);
    return h;
}

void dibs__hold_free(struct dibs__line *line, struct dibs__hold *h)
{
    dibs__watchdog_unset(&dibs__line_client(line)->watchdog, &h->lease);
    bool inside = dibs__list_linked(&h->link);
    dibs__list_del(&h->link);
    while (h->count > 0)
        dibs__loss_unref(dibs__hold_drop(h, NULL));
    if (h->levels != h->own_levels)
        dibs__free(h->levels);
    if (line->spare)
        dibs__free(h);
    else
        line->spare = h;
    if (inside) /* not the last: the caller has one */
        atomic_fetch_sub(&line->refs, 1);
}

bool dibs__hold_room(struct dibs__hold *h)
{
    size_t want = (size_t)h->count + 1;

    if (want <= h->levels_cap)
        return true;
    if (h->levels != h->own_levels)
        return dibs__grow((void **)&h->levels, &h->levels_cap, want,
                          sizeof *h->levels);
    struct dibs__level *grown = dibs__calloc(want * 2, sizeof *grown);
    if (!grown)
        return false;
    memcpy(grown, h->own_levels, sizeof h->own_levels);
    h->levels = grown;
    h->levels_cap = want * 2;
    return true;
}

void dibs__hold_watch(struct dibs__line *line, struct dibs__hold *h,
                      int64_t renew_at)
{
    int64_t at = h->valid_until;

    if ((h->renewed || h->doubted) && !h->ending)
        at = dibs__min(at, renew_at);
    dibs__watchdog_set(&dibs__line_client(line)->watchdog, &h->lease, at);
}

/* A third of the lease from now, a little earlier for some, so that not all
 * locks of a client come at once. */
static int64_t renewal_time(const struct dibs__hold *h, int64_t sent)
{
    int64_t third = h->lease_ms / 3;

    return sent + third - third / 10 * (int64_t)(h->number % 8) / 8;
}

void dibs__hold_renewed(struct dibs__line *line, struct dibs__hold *h,
                        int64_t sent, int64_t lease_ms)
{
    h->suspect = false;
    h->valid_until =
        dibs__max(h->valid_until, dibs__valid_until(sent, lease_ms));
    dibs__hold_watch(line, h, renewal_time(h, sent));
}

/* Renewed for as long as any of the levels wants it, as much as the most
 * demanding of them wants. */
static void count_renewed(struct dibs__hold *h)
{
    h->renewed = 0;
    h->max_until = 0;
    h->lease_ms = 0;
    for (int64_t i = 0; i < h->count; i++) {
        if (!h->levels[i].renewed)
            continue;
        h->renewed++;
        h->max_until = dibs__max(h->max_until, h->levels[i].max_until);
        h->lease_ms = dibs__max(h->lease_ms, h->levels[i].lease_ms);
    }
    if (!h->renewed)
        h->lease_ms = dibs__line_client(h->line)->lease_ms;
}

void dibs__hold_taken(struct dibs__line *line, struct dibs__hold *h,
                      struct dibs__op *op, int64_t sent)
{
    h->levels[h->count++] = (struct dibs__level){
        .with = op->with,
        .renewed = op->lease_ms == 0 || op->kept,
        .lease_ms =
            op->kept ? op->ask.lease_ms : dibs__line_client(line)->lease_ms,
        .max_until = op->max_hold_ms && !op->kept
                         ? dibs__add(sent, op->max_hold_ms)
                         : INT64_MAX,
        .loss = op->note ? dibs__loss_ref(op->note->loss) : NULL,
        .note = op->note,
    };
    op->note = NULL;
    h->tainted |= op->tainted;
    count_renewed(h);
    if (!dibs__list_linked(&h->link)) {
        h->owner = op->owner;
        h->wire = op->wire;
        dibs__list_add(&line->holds, &h->link);
        dibs__line_ref(line);
    }
    dibs__hold_renewed(line, h, sent, op->ask.lease_ms);
}

/* The last that was taken with this, or NULL. */
static struct dibs__level *level_with(struct dibs__hold *h, const void *with)
{
    for (int64_t i = h->count; i-- > 0;)
        if (h->levels[i].with == with)
            return &h->levels[i];
    return NULL;
}

bool dibs__hold_seal(struct dibs__line *line, const struct dibs__op *op)
{
    struct dibs__hold *h = dibs__hold_of(line, op->owner);
    int64_t now = dibs__now_ms();

    if (!h || dibs__hold_over(h, now))
        return false;
    struct dibs__level *level = level_with(h, op->with);
    if (!level)
        return false;
    if (!op->kept)
        return true;
    level->renewed = op->lease_ms == 0;
    level->lease_ms = dibs__line_client(line)->lease_ms;
    if (op->max_hold_ms)
        level->max_until = dibs__add(now, op->max_hold_ms);
    count_renewed(h);
    if (!h->renewing)
        dibs__hold_watch(line, h, renewal_time(h, now));
    return true;
}

/* Whoever holds it twice, by itself and in a group, may give back either one
 * first: each goes on as it was asked for. */
struct dibs__loss *dibs__hold_drop(struct dibs__hold *h, const void *with)
{
    if (h->count == 0) /* a release that gave up was before this one */
        return NULL;
    struct dibs__level *last = &h->levels[h->count - 1];
    struct dibs__level *level = level_with(h, with);

    if (!level)
        level = last;
    struct dibs__loss *loss = level->loss;
    dibs__note_free(level->note);
    memmove(level, level + 1, (size_t)(last - level) * sizeof *level);
    h->count--;
    count_renewed(h);
    return loss;
}

void dibs__hold_hush(struct dibs__hold *h, const void *with)
{
    struct dibs__level *level = level_with(h, with);

    if (!level && h->count > 0)
        level = &h->levels[h->count - 1];
    if (level)
        dibs__loss_hush(level->loss);
}

/* ---- loss -------------------------------------------------------------- */

static void lose(struct dibs__line *line, struct dibs__hold *h, bool over,
                 const char *why) REQUIRES(line->mu)
{
    dibs_client *c = dibs__line_client(line);
    char text[160];

    if (h->lost)
        return;
    h->lost = true;
    h->suspect = false;
    dibs__watchdog_unset(&c->watchdog, &h->lease);
    if (over && h->renewed) {
        /* A renewal that we did not hear of may have kept it there. */
        h->tainted = true;
        dibs__reap(line, h->wire, h->lease_ms);
    }
    for (int64_t i = 0; i < h->count; i++) {
        struct dibs__lost_note *note = h->levels[i].note;
        h->levels[i].note = NULL;
        if (note)
            dibs__note_push(note, &c->callbacks);
    }
    snprintf(text, sizeof text, "lost '%.80s': %s", line->name, why);
    dibs__line_tell(line, DIBS_EVENT_LOST, DIBS_ERR_LOST, text);
    dibs__line_kick(line);
}

void dibs__hold_lose(struct dibs__line *line, struct dibs__hold *h)
{
    lose(line, h, false, "the server does not know it any more");
}

void dibs__hold_run_out(struct dibs__line *line, struct dibs__hold *h)
{
    lose(line, h, true, "its lease is over");
}
