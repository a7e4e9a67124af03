/* SPDX-License-Identifier: MIT
 *
 * renewal.c - renews leases in batches, and verifies holds.
 *
 * Thread  io.
 * Locks   entry.mu, one entry at a time.
 *
 * How     The lease timers fire when the first lease is due. All leases that
 *         are due, and some that soon will be, go into batches, one for each
 *         server and renewal script, on a connection of the server's, so that
 *         no server delays another. The reply has one code for each hold.
 *         Until the reply, the timer of a hold is set to its expiry: a hold is
 *         lost in time even if no reply ever comes.
 *
 *         A hold that was released and acquired again has a new number, so a
 *         late result for the old hold is dropped. A renewal that is in flight
 *         when a hold ends cannot reach the next hold of its owner, which gets
 *         another owner id then (hold.renewal_in_flight).
 *
 * Verify  A renewal with LEASE_VERIFY_ONLY changes nothing, but its reply shows
 *         whether the hold exists. After a reconnect all holds of the server
 *         are due, since it may be another one or have lost data
 *         (lock_manager.c); those without renewal are verified so. Also after
 *         an invalidation (key_invalidation.c), where a write would send
 *         invalidations to the other holders of a shared lock; and to start
 *         tracking a hold that is a second old.
 *
 * Track   Behind each batch, in the same write, its keys are read with CLIENT
 *         CACHING (client/server/key_tracking.c), so that the server sends an
 *         invalidation when one changes.
 *
 * Cluster Keys of one command must be in one slot, so a batch passes them as
 *         arguments, and the reply is 'm' for each hold whose slot the node
 *         does not serve. Such a hold is renewed alone, with its keys as KEYS,
 *         so the redirect is followed. Only ALONE_MAX of a batch are: their
 *         MOVED updates the slot map, and the others go with the next batches.
 *
 * Failure Not held, or a key of another type: the hold is lost. An error or no
 *         reply: the hold is SUSPECT and is retried soon, until it expires;
 *         even sooner while it needs verification.
 */
#include "base/mem.h"
#include "lock/core/lock_manager.h"

#include <string.h>

#define BATCH_MAX       200
#define DUE_SOON_DIV    10  /* due within lease / 10: taken along */
#define RETRY_DIV       20  /* retry after a failure: lease / 20 */
#define VERIFY_RETRY_MS 500 /* longest retry while verification is needed */
#define GAIN_DIV        20  /* a renewal must gain at least lease / 20 */
#define ATTEMPT_DIV     6   /* one attempt takes at most lease / 6 */
#define ATTEMPT_MIN_MS  200 /* a shorter limit would fail on a slow network */
#define ALONE_MAX       10  /* misrouted holds of a batch renewed at once */

/* Result of one hold in a batch; the scripts' letters, but for NO_REPLY. */
enum renew_code {
    RENEW_OK = '1',
    RENEW_NOT_HELD = '0', /* another owner holds the lock, or none */
    RENEW_WRONG_TYPE = 'w',
    RENEW_ERROR = 'e',     /* the server refused the write */
    RENEW_MISROUTED = 'm', /* the node does not serve the slot */
    RENEW_NO_REPLY = '?'
};

struct renew_batch {
    struct dibs__command command;
    struct renew_batch *next; /* of the open batches */
    struct dibs__lock_manager *manager;
    struct dibs__server *server;
    int64_t sent_us; /* for the statistics */
    size_t count;
    bool sending;    /* renew_batch_send runs, and frees the batch */
    bool reads_sent; /* tracked reads of the keys follow the batch */
    bool done;       /* the reply came while it was sent */
    struct dibs__renew_item items[BATCH_MAX];
};

/* ---- replies ----------------------------------------------------------- */

/* The hold exists. If verification was requested after the batch was sent, it
 * is verified once more. */
static void confirm_hold(struct dibs__lock_entry *entry, struct dibs__hold *h,
                         const struct dibs__renew_item *item, int64_t sent)
    REQUIRES(entry->mu)
{
    int64_t now = dibs__now_ms();

    if (item->lease_ms == LEASE_VERIFY_ONLY) {
        h->state = HOLD_HELD;
        dibs__hold_confirm(entry, h);
    } else {
        dibs__hold_set_lease(entry, h, sent, item->lease_ms);
        dibs__stats_count(dibs__entry_client(entry)->stats, STAT_RENEWALS, 1);
    }
    if (h->needs_verify)
        dibs__hold_schedule(entry, h, now);
    else if (h->invalidated)
        dibs__hold_schedule(entry, h, dibs__max(now, entry->next_check_ms));
}

/* Tracked reads of a batch. */
enum tracked_reads {
    READS_NONE,  /* not sent */
    READS_EARLY, /* sent, but the batch itself was sent again later */
    READS_DONE
};

/* Returns whether the renewal failed and is retried; the hold has not expired.
 * cmd: NULL if none was sent. */
static bool apply_result(struct dibs__renew_item *item, char code,
                         const struct dibs__command *cmd,
                         enum tracked_reads reads)
{
    struct dibs__lock_entry *entry = item->entry;
    bool failed = false;

    dibs__lock(&entry->mu);
    struct dibs__hold *h = dibs__hold_with_number(entry, item->hold_number);
    int64_t now = dibs__now_ms();
    if (h) {
        h->may_have_stale_copy |=
            h->renewal_in_flight && cmd && cmd->may_have_stale_copy;
        h->in_renewal_batch = h->renewal_in_flight = false;
        h->invalidated |= reads == READS_EARLY;
        h->tracked = reads == READS_DONE && code == RENEW_OK && !h->invalidated;
    }
    if (h && h->state != HOLD_LOST && h->state != HOLD_ENDING) {
        if (dibs__hold_has_expired(h, now)) {
            dibs__hold_expire_locally(entry, h); /* the reply came too late */
        } else if (code == RENEW_OK) {
            confirm_hold(entry, h, item, cmd->sent_ms);
        } else if (code == RENEW_NOT_HELD || code == RENEW_WRONG_TYPE) {
            dibs__hold_lose(entry, h);
        } else {
            int64_t wait = dibs__hold_terms(h).lease_ms / RETRY_DIV;
            failed = code != RENEW_MISROUTED;
            if (failed) {
                h->state = HOLD_SUSPECT;
                dibs__stats_count(dibs__entry_client(entry)->stats,
                                  STAT_RENEWALS_FAILED, 1);
            }
            h->needs_verify |= item->needs_verify && code != RENEW_ERROR;
            dibs__hold_schedule(entry, h,
                                now + (h->needs_verify
                                           ? dibs__min(wait, VERIFY_RETRY_MS)
                                           : wait));
        }
    }
    dibs__unlock(&entry->mu);
    dibs__entry_unref(entry);
    return failed;
}

static void renew_alone(struct dibs__lock_manager *manager,
                        const struct dibs__renew_item *item);

static enum tracked_reads tracked_reads_of(const struct renew_batch *b)
{
    const struct dibs__command *cmd = &b->command;

    if (!b->reads_sent || !dibs__key_tracking_is_on(cmd->server))
        return READS_NONE;
    return cmd->full_script || cmd->resent || cmd->tries || cmd->redirects
               ? READS_EARLY
               : READS_DONE;
}

static void renew_batch_replied(struct dibs__command *cmd, dibs_err err,
                                const struct dibs__reply *reply)
{
    struct renew_batch *b = DIBS_OF(cmd, struct renew_batch, command);
    enum tracked_reads reads = tracked_reads_of(b);
    bool valid =
        err == DIBS_OK && reply->type == REPLY_TEXT && reply->len == b->count;
    bool failed = false;
    int slot = b->items[0].entry->hash_slot;

    if (valid)
        dibs__stats_time(b->manager->c->stats, TIMING_RENEW,
                         dibs__now_us() - b->sent_us);
    for (size_t i = 0, alone = 0; i < b->count; i++) {
        char code = valid ? reply->text[i] : RENEW_NO_REPLY;
        if (code == RENEW_MISROUTED && b->count > 1 && alone++ < ALONE_MAX)
            renew_alone(b->manager, &b->items[i]);
        else
            failed |= apply_result(&b->items[i], code, cmd, reads);
    }
    if (failed)
        dibs__client_log(b->manager->c, slot, DIBS_EVENT_SUSPECT,
                         err ? err : DIBS_ERR_SERVER,
                         "a renewal failed; trying again");
    b->done = true;
    if (!b->sending)
        dibs__free(b);
}

/* ---- sending ----------------------------------------------------------- */

/* A lease begins when the server executes the command, and the batch may have
 * waited for a connection. So max_hold_ms is applied when it is written. */
static void limit_leases(struct renew_batch *b)
{
    int64_t now = dibs__now_ms();

    for (size_t i = 0; i < b->count; i++) {
        struct dibs__renew_item *item = &b->items[i];
        int64_t most = item->max_until - now;
        if (item->lease_ms > most)
            item->lease_ms = most > 0 ? most : LEASE_VERIFY_ONLY;
    }
}

static void renew_batch_write(struct dibs__command *cmd, struct dibs__buf *out,
                              bool whole)
{
    struct renew_batch *b = DIBS_OF(cmd, struct renew_batch, command);

    limit_leases(b);
    dibs__renew_command_encode(b->items, b->count, out, whole);
}

/* Appends the tracked reads to the write of the batch, if it is sent now. */
static void send_tracked_reads(struct renew_batch *b)
{
    struct dibs__buf out = {0};

    if (b->command.state != CMD_SENT ||
        !dibs__key_tracking_is_on(b->command.server))
        return;
    unsigned count = dibs__tracking_reads_encode(b->items, b->count, &out);
    b->reads_sent = dibs__key_tracking_read(b->command.server, &out, count);
}

static void renew_batch_send(struct renew_batch *b)
{
    int64_t attempt_ms = b->manager->c->to.command_timeout_ms;

    for (size_t i = 0; i < b->count; i++)
        if (b->items[i].lease_ms != LEASE_VERIFY_ONLY)
            attempt_ms =
                dibs__min(attempt_ms, b->items[i].lease_ms / ATTEMPT_DIV);
    attempt_ms = dibs__max(attempt_ms, ATTEMPT_MIN_MS);
    b->sent_us = dibs__now_us();
    b->command.write = renew_batch_write;
    b->command.on_reply = renew_batch_replied;
    b->command.attempt_ms = attempt_ms;
    b->command.deadline = dibs__now_ms() + 2 * attempt_ms;
    b->command.connect_by = b->command.deadline;
    b->command.slot = b->count > 1 ? -1 : b->items[0].entry->hash_slot;
    b->sending = true;
    dibs__command_start_now(b->server
                                ? (struct dibs__route){.server = b->server}
                                : b->manager->c->route,
                            &b->command);
    b->sending = false;
    if (b->done)
        dibs__free(b);
    else
        send_tracked_reads(b);
}

/* ---- batches ----------------------------------------------------------- */

/* Requires the mutex of the lease timers: the hold is not freed meanwhile, so a
 * reference to its entry can be taken. */
static void take_timer(struct dibs__lease_timer *timer, void *arg)
{
    struct dibs__hold *h = DIBS_OF(timer, struct dibs__hold, timer);
    struct dibs__renew_item *item = arg;

    item->entry = h->entry;
    item->hold_number = h->number;
    item->due_at = timer->at;
    dibs__entry_ref(h->entry);
}

enum take_result {
    TAKE_NONE,    /* no timer is due */
    TAKE_SKIPPED, /* the hold needs no renewal now */
    TAKE_RENEW    /* the item is filled in, with a reference to its entry */
};

/* A level with a longer lease was released, so the hold lasts longer than a
 * renewal would. Returns when a renewal gains time again; never, if max_hold_ms
 * limits it. */
static int64_t next_useful_renewal(const struct dibs__hold *h, int64_t wanted,
                                   int64_t lease)
{
    return lease < wanted ? INT64_MAX : h->valid_until - wanted / 3 * 2;
}

/* Returns whether to start tracking the hold: its timer is due, and the server
 * supports it. Enables tracking on the server if need be. */
static bool start_tracking(const struct dibs__lock_entry *entry,
                           const struct dibs__hold *h,
                           const struct dibs__renew_item *item, int64_t now)
{
    struct dibs__server *s = dibs__entry_server(entry);

    if (h->tracked || item->due_at > now || !s)
        return false;
    if (!dibs__key_tracking_is_on(s))
        dibs__key_tracking_enable(s);
    return dibs__key_tracking_is_on(s);
}

/* Returns whether the hold goes into a batch now, as `item`. If not, its timer
 * is set again, unless the hold has ended. */
static bool plan_renewal(struct dibs__lock_entry *entry, struct dibs__hold *h,
                         struct dibs__renew_item *item, int64_t now)
    REQUIRES(entry->mu)
{
    /* The reply to a release shows whether the hold existed. */
    if (!h || h->state == HOLD_LOST || h->state == HOLD_ENDING)
        return false;
    if (now >= h->valid_until) {
        dibs__hold_expire_locally(entry, h);
        return false;
    }
    struct dibs__hold_terms_sum terms = dibs__hold_terms(h);
    int64_t lease = dibs__min(terms.lease_ms, terms.max_until - now);
    bool gains = now + lease >= h->valid_until + terms.lease_ms / GAIN_DIV;
    bool verifies = (h->invalidated && item->due_at <= now) ||
                    start_tracking(entry, h, item, now);
    if (h->in_renewal_batch ||
        (!h->needs_verify && !verifies && (!terms.renewed || !gains))) {
        int64_t at =
            gains ? INT64_MAX : next_useful_renewal(h, terms.lease_ms, lease);
        dibs__hold_schedule(
            entry, h, item->due_at > now ? dibs__min(at, item->due_at) : at);
        return false;
    }
    bool renews = h->needs_verify || !verifies ||
                  now >= next_useful_renewal(h, terms.lease_ms, lease);
    h->in_renewal_batch = true;
    item->owner_id = h->owner_id;
    item->value = h->value;
    item->lease_ms =
        renews && terms.renewed && lease > 0 ? lease : LEASE_VERIFY_ONLY;
    item->max_until = terms.max_until;
    h->renewal_in_flight = item->lease_ms != LEASE_VERIFY_ONLY;
    item->needs_verify = h->needs_verify || h->invalidated;
    h->needs_verify = h->invalidated = false;
    dibs__hold_schedule(entry, h, INT64_MAX);
    return true;
}

/* Takes one lease timer that is due by `until`. */
static enum take_result take_due(struct dibs__lock_manager *manager,
                                 struct dibs__renew_item *item, int64_t now,
                                 int64_t until)
{
    if (!dibs__lease_timers_take_due(&manager->c->lease_timers, until,
                                     take_timer, item))
        return TAKE_NONE;
    struct dibs__lock_entry *entry = item->entry;
    dibs__lock(&entry->mu);
    bool renews = plan_renewal(
        entry, dibs__hold_with_number(entry, item->hold_number), item, now);
    dibs__unlock(&entry->mu);
    if (!renews)
        dibs__entry_unref(entry);
    return renews ? TAKE_RENEW : TAKE_SKIPPED;
}

/* Adds to the open batch of its server and script. Sends a full batch. */
static void renew_batch_add(struct dibs__lock_manager *manager,
                            struct renew_batch **open,
                            struct dibs__renew_item *item)
{
    struct dibs__server *server = dibs__entry_server(item->entry);
    struct renew_batch **at = open, *b;

    while ((b = *at) && (!server || b->server != server ||
                         b->items[0].entry->type->renew_script !=
                             item->entry->type->renew_script))
        at = &b->next;
    if (!b)
        b = *at = dibs__calloc(1, sizeof *b);
    if (!b) {
        /* Out of memory: retried soon. */
        apply_result(item, RENEW_NO_REPLY, NULL, READS_NONE);
        return;
    }
    b->manager = manager;
    b->server = server;
    b->items[b->count++] = *item;
    if (b->count == BATCH_MAX) {
        *at = b->next;
        renew_batch_send(b);
    }
}

static void send_batches(struct renew_batch *open)
{
    for (struct renew_batch *b; (b = open);) {
        open = b->next;
        renew_batch_send(b);
    }
}

/* With one hold in the batch, its keys are KEYS and a redirect is followed. */
static void renew_alone(struct dibs__lock_manager *manager,
                        const struct dibs__renew_item *item)
{
    struct dibs__renew_item copy = *item;
    struct renew_batch *open = NULL;

    renew_batch_add(manager, &open, &copy);
    send_batches(open);
}

void dibs__renew_due(struct dibs__lease_timers *timers, int64_t now)
{
    dibs_client *c = DIBS_OF(timers, dibs_client, lease_timers);
    struct renew_batch *open = NULL;
    int64_t until = now;
    struct dibs__renew_item item;
    enum take_result taken;

    while ((taken = take_due(c->upper_arg, &item, now, until)) != TAKE_NONE) {
        if (taken == TAKE_RENEW)
            renew_batch_add(c->upper_arg, &open, &item);
        /* A batch is sent anyway, so leases that are due soon join it. */
        until = taken == TAKE_RENEW ? now + c->lease_ms / DUE_SOON_DIV : now;
    }
    send_batches(open);
}
