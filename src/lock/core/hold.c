/* SPDX-License-Identifier: MIT
 *
 * hold.c - the state of one owner that has the lock: levels, expiry, loss.
 *
 * The words (hold, level, lease, drift margin, ...) are explained in hold.h.
 *
 * Thread  any; entry.mu is held.
 *
 * Expiry  valid_until is the time just before the last command that set the
 *         lease was sent, plus that lease, minus the drift margin. The server's
 *         lease began later, so the hold expires here before it does on the
 *         server. Past valid_until the hold is lost, even if the connection is
 *         dead.
 *
 * Levels  The levels of an owner, some of them acquired by groups, are released
 *         in any order; each keeps its own terms. The hold is renewed while at
 *         least one level is, with the longest lease of those.
 *
 * States
 *
 *   state    what can happen                               next state
 *   READY    its acquire is granted                        HELD
 *            its acquire ends without a grant              freed
 *   HELD     a renewal fails                               SUSPECT
 *            the release of the last level begins          ENDING
 *            the server does not have the hold             LOST
 *            valid_until has passed                        LOST
 *   SUSPECT  a renewal or re-entry succeeds                HELD
 *            else as HELD
 *   ENDING   the release ends, with a reply or without     freed
 *   LOST     each release of a level reports the loss;
 *            after the last level                          freed
 *
 * busy, in_renewal_batch, needs_verify, invalidated, tracked and
 * may_have_stale_copy are independent of the state: a renewal may be in flight
 * while an operation changes the hold.
 *
 * Tracking
 *         A hold older than TRACK_AFTER_MS is read once with CLIENT TRACKING
 *         on, so that the server sends an invalidation when its key is changed
 *         (renewal.c, key_invalidation.c). Short holds cause no reads. When a
 *         command of this client changes the key, the tracking ends; it is set
 *         up again TRACK_AFTER_MS later.
 */
#include "lock/core/hold.h"

#include "base/mem.h"
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"

#include <string.h>

#define DRIFT_PERCENT      1
#define DRIFT_MS           2
#define TRACK_AFTER_MS     1000 /* holds older than this are tracked */
#define PEER_SEARCH_MAX    8    /* holds that dibs__hold_find_peer checks */
#define RENEWALS_PER_LEASE 3
#define SPREAD_STEPS       8  /* renewals are spread in 8 steps, */
#define SPREAD_PART        10 /* over a tenth of their period */

/* ---- finding ----------------------------------------------------------- */

struct dibs__hold *dibs__hold_next(struct dibs__lock_entry *entry,
                                   struct dibs__hold *h)
{
    struct dibs__list *next = h ? h->link.next : entry->holds.next;

    return next == &entry->holds ? NULL
                                 : DIBS_OF(next, struct dibs__hold, link);
}

struct dibs__hold *dibs__hold_of(struct dibs__lock_entry *entry,
                                 dibs_owner owner)
{
    struct dibs__hold *h = NULL;

    while ((h = dibs__hold_next(entry, h)) && h->owner != owner)
        ;
    return h;
}

struct dibs__hold *dibs__hold_with_id(struct dibs__lock_entry *entry,
                                      uint64_t owner_id)
{
    struct dibs__hold *h = NULL;

    while ((h = dibs__hold_next(entry, h)) && h->owner_id != owner_id)
        ;
    return h;
}

struct dibs__hold *dibs__hold_with_number(struct dibs__lock_entry *entry,
                                          uint64_t number)
{
    struct dibs__hold *h = NULL;

    while ((h = dibs__hold_next(entry, h)) && h->number != number)
        ;
    return h;
}

/* The newest holds first. Of the acquires in flight the oldest, which the
 * server has most likely executed. */
uint64_t dibs__hold_find_peer(const struct dibs__lock_entry *entry,
                              const struct dibs__hold *h, int64_t until)
{
    const struct dibs__list *at = entry->holds.prev;

    for (int i = 0; i < PEER_SEARCH_MAX && at != &entry->holds;
         i++, at = at->prev) {
        const struct dibs__hold *peer = DIBS_OF(at, struct dibs__hold, link);
        if (peer != h && peer->valid_until >= until &&
            (peer->state == HOLD_HELD || peer->state == HOLD_SUSPECT))
            return peer->owner_id;
    }
    if (dibs__list_empty(&entry->in_flight))
        return 0;
    const struct dibs__operation *op =
        DIBS_OF(entry->in_flight.next, struct dibs__operation, in_flight_link);
    return op->args.lease_ms >= until - dibs__now_ms() ? op->owner_id : 0;
}

bool dibs__hold_in_doubt(const struct dibs__hold *h)
{
    return h->may_have_stale_copy || h->renewal_in_flight ||
           h->extends_in_flight > 0;
}

bool dibs__hold_has_expired(const struct dibs__hold *h, int64_t now)
{
    return h->state == HOLD_LOST || now >= h->valid_until;
}

int64_t dibs__entry_held_until(struct dibs__lock_entry *entry, int64_t now)
{
    struct dibs__hold *h = NULL;

    while ((h = dibs__hold_next(entry, h)) && dibs__hold_has_expired(h, now))
        ;
    return h ? h->valid_until : 0;
}

bool dibs__hold_in_other_type(struct dibs__lock_entry *entry, dibs_owner owner)
{
    bool held = false;

    for (struct dibs__lock_entry *sibling = NULL;
         (sibling = dibs__entry_next_in_family(entry, sibling));) {
        dibs__lock(&sibling->mu);
        held |= dibs__hold_of(sibling, owner) != NULL;
        dibs__unlock(&sibling->mu);
    }
    return held;
}

bool dibs__hold_other_mode(struct dibs__lock_entry *entry, dibs_owner owner)
{
    bool has = false;

    if (entry->type->layout != LAYOUT_RW)
        return false;
    for (struct dibs__lock_entry *sibling = NULL;
         (sibling = dibs__entry_next_in_family(entry, sibling));) {
        dibs__lock(&sibling->mu);
        const struct dibs__hold *h = dibs__hold_of(sibling, owner);
        has |= h && h->state != HOLD_ENDING &&
               !dibs__hold_has_expired(h, dibs__now_ms());
        dibs__unlock(&sibling->mu);
    }
    return has;
}

bool dibs__hold_has_read(struct dibs__lock_entry *entry, dibs_owner owner)
{
    return entry->type->id == TYPE_WRITE && dibs__hold_other_mode(entry, owner);
}

/* ---- levels ------------------------------------------------------------ */

static struct dibs__level *levels_of(struct dibs__hold *h)
{
    return h->has_level_array ? h->levels : &h->first;
}

/* Returns the newest level with this group_level, or NULL. */
static struct dibs__level *find_level(struct dibs__hold *h,
                                      const void *group_level)
{
    struct dibs__level *levels = levels_of(h);

    for (int i = h->count; i-- > 0;)
        if (levels[i].group_level == group_level)
            return &levels[i];
    return NULL;
}

struct dibs__hold_terms_sum dibs__hold_terms(const struct dibs__hold *h)
{
    const struct dibs__level *levels =
        h->has_level_array ? h->levels : &h->first;
    struct dibs__hold_terms_sum terms = {.renewed = false};

    for (int i = 0; i < h->count; i++) {
        if (!levels[i].renewed)
            continue;
        terms.renewed = true;
        terms.max_until = dibs__max(terms.max_until, levels[i].max_until);
        terms.lease_ms = dibs__max(terms.lease_ms, levels[i].lease_ms);
    }
    if (!terms.renewed)
        terms.lease_ms = dibs__entry_client(h->entry)->lease_ms;
    return terms;
}

/* Removes the newest level with this group_level, else the newest of all. */
static struct dibs__loss_listener *pop_level(struct dibs__hold *h,
                                             const void *group_level)
{
    if (h->count == 0) /* a blocked release gave up and removed the level */
        return NULL;
    struct dibs__level *last = &levels_of(h)[h->count - 1];
    struct dibs__level *level = find_level(h, group_level);

    if (!level)
        level = last;
    struct dibs__loss_listener *loss = level->loss;
    dibs__loss_notification_free(level->notification);
    memmove(level, level + 1, (size_t)(last - level) * sizeof *level);
    h->count--;
    return loss;
}

/* ---- life cycle -------------------------------------------------------- */

int64_t dibs__valid_until(int64_t sent, int64_t lease_ms)
{
    int64_t margin = lease_ms / 100 * DRIFT_PERCENT + DRIFT_MS;

    return dibs__add(sent, lease_ms - margin);
}

struct dibs__hold *dibs__hold_new(struct dibs__lock_entry *entry)
{
    struct dibs__hold *h = entry->spare_hold;

    if (h)
        entry->spare_hold = NULL;
    else
        h = dibs__malloc(sizeof *h);
    if (!h)
        return NULL;
    memset(h, 0, sizeof *h);
    h->entry = entry;
    h->number = atomic_fetch_add(&entry->manager->last_hold_number, 1) + 1;
    dibs__list_init(&h->blocked_ops);
    return h;
}

/* Ends the holder value that was published for this hold. */
static void end_holder_value(struct dibs__lock_entry *entry,
                             struct dibs__hold *h)
{
    if (h->has_value)
        dibs__holder_value_end(entry, h->number);
    h->has_value = false;
}

void dibs__hold_free(struct dibs__lock_entry *entry, struct dibs__hold *h)
{
    end_holder_value(entry, h);
    dibs__lease_timer_cancel(&dibs__entry_client(entry)->lease_timers,
                             &h->timer);
    bool was_linked = dibs__list_linked(&h->link);
    uint64_t owner_id = h->owner_id;
    dibs__list_del(&h->link);
    while (h->count > 0)
        dibs__loss_unref(pop_level(h, NULL));
    if (h->has_level_array)
        dibs__free(h->levels);
    if (entry->spare_hold)
        dibs__free(h);
    else
        entry->spare_hold = h;
    if (was_linked) { /* cannot be the last reference: the caller has one */
        dibs__adopted_held(&entry->manager->adopted, owner_id, false);
        atomic_fetch_sub(&entry->refs, 1);
    }
}

bool dibs__hold_reserve_level(struct dibs__hold *h)
{
    size_t want = (size_t)h->count + 1;

    if (h->has_level_array)
        return dibs__grow((void **)&h->levels, &h->levels_cap, want,
                          sizeof *h->levels);
    if (want == 1)
        return true;
    struct dibs__level *grown = dibs__calloc(want * 2, sizeof *grown);
    if (!grown)
        return false;
    grown[0] = h->first;
    h->levels = grown;
    h->levels_cap = want * 2;
    h->has_level_array = true;
    return true;
}

void dibs__hold_schedule(struct dibs__lock_entry *entry, struct dibs__hold *h,
                         int64_t renew_at)
{
    int64_t at = h->valid_until;

    if (h->state != HOLD_ENDING)
        at = dibs__min(at, renew_at);
    dibs__lease_timer_set(&dibs__entry_client(entry)->lease_timers, &h->timer,
                          at);
}

/* A third of the lease after `sent`; earlier for some holds, so that the
 * renewals of a client are spread. */
static int64_t next_renewal_time(const struct dibs__hold *h, int64_t sent)
{
    int64_t period = dibs__hold_terms(h).lease_ms / RENEWALS_PER_LEASE;

    return sent + period -
           period / SPREAD_PART * (int64_t)(h->number % SPREAD_STEPS) /
               SPREAD_STEPS;
}

/* Returns when the hold is to be verified because of an invalidation, or read
 * for tracking; INT64_MAX: neither. sent: of the last command that changed it.
 */
static int64_t next_tracking_time(const struct dibs__hold *h, int64_t sent)
{
    const struct dibs__server *s = dibs__entry_server(h->entry);

    if (h->invalidated)
        return h->entry->next_check_ms;
    return h->tracked || !s || !dibs__key_tracking_possible(s)
               ? INT64_MAX
               : sent + TRACK_AFTER_MS;
}

static int64_t next_check_time(const struct dibs__hold *h, int64_t sent)
{
    bool renewed = dibs__hold_terms(h).renewed;

    return dibs__min(renewed ? next_renewal_time(h, sent) : INT64_MAX,
                     next_tracking_time(h, sent));
}

void dibs__hold_confirm(struct dibs__lock_entry *entry, struct dibs__hold *h)
{
    struct dibs__hold_terms_sum terms = dibs__hold_terms(h);
    int64_t renew_at =
        terms.renewed ? h->valid_until - terms.lease_ms / RENEWALS_PER_LEASE * 2
                      : INT64_MAX;

    dibs__hold_schedule(
        entry, h, dibs__min(renew_at, next_tracking_time(h, dibs__now_ms())));
}

/* A command of this client changed the key. If it was sent on the main
 * connection, the server stops tracking the key without an invalidation
 * (NOLOOP). Tracks one hold again, which is enough for all holds of the key. */
static void restart_tracking(struct dibs__lock_entry *entry) REQUIRES(entry->mu)
{
    struct dibs__hold *h = NULL;

    while ((h = dibs__hold_next(entry, h)) &&
           (h->state == HOLD_LOST || h->state == HOLD_ENDING))
        ;
    if (!h || (!h->tracked && !h->in_renewal_batch))
        return; /* its next tracking read is scheduled already */
    h->tracked = false;
    h->invalidated |= h->in_renewal_batch;
    if (!h->in_renewal_batch)
        dibs__hold_confirm(entry, h);
}

void dibs__hold_set_lease(struct dibs__lock_entry *entry, struct dibs__hold *h,
                          int64_t sent, int64_t lease_ms)
{
    h->state = HOLD_HELD;
    h->valid_until =
        dibs__max(h->valid_until, dibs__valid_until(sent, lease_ms));
    dibs__hold_schedule(entry, h, next_check_time(h, sent));
    if (h->has_value)
        dibs__holder_value_renew(entry, h->number);
}

static void count_acquire_stats(struct dibs__lock_entry *entry,
                                const struct dibs__operation *op,
                                int64_t now_us)
{
    struct dibs__stats *st = dibs__entry_client(entry)->stats;

    dibs__stats_count(st, STAT_ACQUIRES, 1);
    dibs__stats_time(st, TIMING_ACQUIRE,
                     dibs__coarse_time_age(op->args.begun_at, now_us));
}

/* The hold ends now, by a release or a loss. */
static void count_hold_time_stats(struct dibs__lock_entry *entry,
                                  struct dibs__hold *h)
{
    if (h->count > 0)
        dibs__stats_time(
            dibs__entry_client(entry)->stats, TIMING_HOLD,
            dibs__coarse_time_age(levels_of(h)[0].acquired_at, dibs__now_us()));
}

void dibs__hold_add_level(struct dibs__lock_entry *entry, struct dibs__hold *h,
                          struct dibs__operation *op, int64_t sent,
                          int64_t value)
{
    int64_t now_us = dibs__now_us();

    levels_of(h)[h->count++] = (struct dibs__level){
        .group_level = op->group_level,
        .acquired_at = dibs__coarse_time_of(now_us),
        .renewed = op->lease_ms == 0 || op->provisional_renewal,
        .lease_ms = op->provisional_renewal
                        ? op->args.lease_ms
                        : dibs__entry_client(entry)->lease_ms,
        .max_until = op->max_hold_ms && !op->provisional_renewal
                         ? dibs__add(sent, op->max_hold_ms)
                         : INT64_MAX,
        .loss =
            op->notification ? dibs__loss_ref(op->notification->loss) : NULL,
        .notification = op->notification,
    };
    op->notification = NULL;
    count_acquire_stats(entry, op, now_us);
    h->may_have_stale_copy |= op->may_have_stale_copy;
    if (!dibs__list_linked(&h->link)) {
        h->owner = op->owner;
        h->owner_id = op->owner_id;
        h->value = value;
        dibs__list_add(&entry->holds, &h->link);
        dibs__entry_ref(entry);
        dibs__adopted_held(&entry->manager->adopted, h->owner_id, true);
    }
    restart_tracking(entry);
    dibs__hold_set_lease(entry, h, sent, op->args.lease_ms);
}

bool dibs__hold_commit_terms(struct dibs__lock_entry *entry,
                             const struct dibs__operation *op)
{
    struct dibs__hold *h = dibs__hold_of(entry, op->owner);
    int64_t now = dibs__now_ms();

    if (!h || dibs__hold_has_expired(h, now))
        return false;
    struct dibs__level *level = find_level(h, op->group_level);
    if (!level)
        return false;
    if (!op->provisional_renewal)
        return true;
    level->renewed = op->lease_ms == 0;
    level->lease_ms = dibs__entry_client(entry)->lease_ms;
    if (op->max_hold_ms)
        level->max_until = dibs__add(now, op->max_hold_ms);
    if (!h->in_renewal_batch)
        dibs__hold_schedule(entry, h, next_check_time(h, now));
    return true;
}

struct dibs__loss_listener *dibs__hold_pop_level(struct dibs__hold *h,
                                                 const void *group_level)
{
    struct dibs__loss_listener *loss = pop_level(h, group_level);

    dibs__assert_held(&h->entry->mu);
    if (dibs__list_linked(&h->link))
        restart_tracking(h->entry);
    return loss;
}

void dibs__hold_suppress_loss(struct dibs__hold *h, const void *group_level)
{
    struct dibs__level *level = find_level(h, group_level);

    if (!level && h->count > 0)
        level = &levels_of(h)[h->count - 1];
    if (level)
        dibs__loss_suppress(level->loss);
}

void dibs__hold_suppress_all_losses(struct dibs__hold *h)
{
    struct dibs__level *levels = levels_of(h);

    for (int i = 0; i < h->count; i++)
        if (!levels[i].group_level)
            dibs__loss_suppress(levels[i].loss);
}

void dibs__hold_begin_release(struct dibs__lock_entry *entry,
                              struct dibs__hold *h)
{
    h->state = HOLD_ENDING;
    count_hold_time_stats(entry, h);
    dibs__lease_timer_cancel(&dibs__entry_client(entry)->lease_timers,
                             &h->timer);
}

/* ---- loss -------------------------------------------------------------- */

void dibs__hold_lose_with_text(struct dibs__lock_entry *entry,
                               struct dibs__hold *h, const char *why)
{
    dibs_client *c = dibs__entry_client(entry);

    if (h->state == HOLD_LOST)
        return;
    h->state = HOLD_LOST;
    count_hold_time_stats(entry, h);
    dibs__stats_count(c->stats, STAT_LOSSES, 1);
    end_holder_value(entry, h);
    dibs__lease_timer_cancel(&c->lease_timers, &h->timer);
    struct dibs__level *levels = levels_of(h);
    for (int i = 0; i < h->count; i++) {
        struct dibs__loss_notification *notification = levels[i].notification;
        levels[i].notification = NULL;
        if (notification)
            dibs__loss_notification_push(notification, &c->callbacks);
    }
    dibs__entry_log_event(entry, DIBS_EVENT_LOST, DIBS_ERR_LOST,
                          "lost '%.80s': %s", entry->name, why);
    dibs__wait_queue_wake_head(&entry->wait_queue);
}

void dibs__hold_lose(struct dibs__lock_entry *entry, struct dibs__hold *h)
{
    dibs__hold_lose_with_text(entry, h, "the server does not know it any more");
}
