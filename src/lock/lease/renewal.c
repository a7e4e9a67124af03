/* SPDX-License-Identifier: MIT
 *
 * renewal.c - keeps leases alive, many with one command.
 *
 * Thread  io.
 * Locks   line.mu, one line at a time.
 *
 * How     The watchdog calls when the first lease is due. All that are due, and
 *         some that soon will be, go into batches. The answer has a letter for
 *         each. Meanwhile the watchdog looks at each hold again when it is over
 *         by our clock: a hold is lost in time even if no answer ever comes.
 *
 *         In a cluster there is a batch for each node, on its own connection,
 *         so none waits for another. Keys of one command would have to be in
 *         one slot; so the script gets them as arguments, and answers 'm' for
 *         each that the node does not have (any more). That one is asked for
 *         alone, as a key, and finds its way by its slot. Of many only a few
 *         are: their MOVED brings a new map, and the others go with the next
 *         batches.
 *
 *         A hold that was released and taken again is another hold: it has
 *         another number, and an answer for the old one is dropped. Nor does a
 *         renewal reach it that is under way when the old one ends: its owner
 *         goes on under another number then (hold.lengthens).
 *
 *         Behind each batch, in the same write, the keys are read such that the
 *         server tells when somebody changes one
 * (client/server/key_tracking.c). A hold of a second is looked at for that
 * alone, by a renewal that lengthens nothing. So is one whose key was changed
 * (key_invalidation.c): that writes nothing, so clients that share a lock do
 * not alarm each other.
 *
 *         After a connection was made anew, the server may be another one, or
 *         have forgotten. So all holds of that server are due at once
 *         (lock_manager.c). One that is not renewed is looked for by a renewal
 * that lengthens nothing.
 *
 * Trouble '0': another owner has it, or none; 'w': the key has another type;
 *         lost. No answer, or 'e', a refusal: the hold is suspect and is asked
 *         for again soon, until it is over; very soon if nothing has answered
 *         since the connection was made anew.
 */
#include "base/mem.h"
#include "lock/core/lock_manager.h"

#include <string.h>

#define BATCH           200
#define SOON            10 /* part of a lease: what is due so soon is taken, too */
#define RETRY_PART      20 /* part of a lease until the next try after trouble */
#define DOUBT_MS        500 /* until the next try if it is doubted */
#define NO_ANSWER       '?' /* instead of a letter */
#define GAIN            20  /* part of a lease that is worth a renewal */
#define PATIENCE        6   /* part of a lease that an answer may take */
#define PATIENCE_MIN_MS 200 /* less says nothing about the connection */
#define ALONE_MAX       10  /* of a batch; others when the map is new */

struct renewal {
    struct dibs__command call;
    struct renewal *next; /* of those that are being filled */
    struct dibs__lock_manager *locks;
    struct dibs__server *server;
    int64_t sent_us; /* for the statistics */
    size_t count;
    bool sending; /* renewal_send is about it, and frees it */
    bool tracks;  /* reads of the keys went out right behind it */
    bool over;    /* it was answered while it was sent */
    struct dibs__renew_item items[BATCH];
};

/* ---- answers ----------------------------------------------------------- */

/* It is still there. If it was asked before the last doubt or alarm, it is
 * looked at once more. */
static void hold_found(struct dibs__lock_entry *entry, struct dibs__hold *h,
                       const struct dibs__renew_item *item, int64_t sent)
    REQUIRES(line->mu)
{
    int64_t now = dibs__now_ms();

    if (item->lease_ms == LEASE_LOOK) {
        h->state = HOLD_HELD;
        dibs__hold_confirm(entry, h);
    } else {
        dibs__hold_renewed(entry, h, sent, item->lease_ms);
        dibs__stats_count(dibs__entry_client(entry)->stats, STAT_RENEWALS, 1);
    }
    if (h->needs_verify)
        dibs__hold_schedule(entry, h, now);
    else if (h->invalidated)
        dibs__hold_schedule(entry, h, dibs__max(now, entry->next_check_ms));
}

/* How a batch stands with tracking: its reads did not go out; they went out,
 * but before an attempt that came later; as they should. */
enum reads { READS_NONE, READS_EARLY, READS_DONE };

/* True: it did not work, and the hold, which is not over, is asked for again.
 * call: NULL if there was none. */
static bool hold_answered(struct dibs__renew_item *item, char letter,
                          const struct dibs__command *cmd, enum reads reads)
{
    struct dibs__lock_entry *entry = item->entry;
    bool failed = false;

    dibs__lock(&entry->mu);
    struct dibs__hold *h = dibs__hold_with_number(entry, item->hold_number);
    int64_t now = dibs__now_ms();
    if (h) {
        h->may_have_stale_copy |=
            h->renewal_in_flight && cmd && cmd->maybe_live_copy;
        h->in_renewal_batch = h->renewal_in_flight = false;
        h->invalidated |= reads == READS_EARLY;
        h->tracked = reads == READS_DONE && letter == '1' && !h->invalidated;
    }
    if (h && h->state != HOLD_LOST && h->state != HOLD_ENDING) {
        if (dibs__hold_has_expired(h, now)) {
            dibs__hold_expire_locally(entry, h); /* the answer came too late */
        } else if (letter == '1') {
            hold_found(entry, h, item, cmd->sent_ms);
        } else if (letter == '0' || letter == 'w') {
            dibs__hold_lose(entry, h);
        } else {
            int64_t wait = dibs__hold_terms(h).lease_ms / RETRY_PART;
            failed = letter != 'm';
            if (failed) {
                h->state = HOLD_SUSPECT;
                dibs__stats_count(dibs__entry_client(entry)->stats,
                                  STAT_RENEWALS_FAILED, 1);
            }
            h->needs_verify |= item->needs_verify && letter != 'e';
            dibs__hold_schedule(
                entry, h,
                now + (h->needs_verify ? dibs__min(wait, DOUBT_MS) : wait));
        }
    }
    dibs__unlock(&entry->mu);
    dibs__entry_unref(entry);
    return failed;
}

static void ask_alone(struct dibs__lock_manager *manager,
                      const struct dibs__renew_item *item);

static enum reads reads_of(const struct renewal *b)
{
    const struct dibs__command *cmd = &b->call;

    if (!b->tracks || !dibs__key_tracking_is_on(cmd->server))
        return READS_NONE;
    return cmd->full_script || cmd->resent || cmd->tries || cmd->redirects
               ? READS_EARLY
               : READS_DONE;
}

static void renewal_answered(struct dibs__command *cmd, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct renewal *b = DIBS_OF(cmd, struct renewal, call);
    enum reads reads = reads_of(b);
    bool good =
        err == DIBS_OK && reply->type == REPLY_TEXT && reply->len == b->count;
    bool failed = false;
    int slot = b->items[0].entry->hash_slot;

    if (good)
        dibs__stats_time(b->locks->c->stats, TIMING_RENEW,
                         dibs__now_us() - b->sent_us);
    for (size_t i = 0, alone = 0; i < b->count; i++) {
        char letter = good ? reply->text[i] : NO_ANSWER;
        if (letter == 'm' && b->count > 1 && alone++ < ALONE_MAX)
            ask_alone(b->locks, &b->items[i]);
        else
            failed |= hold_answered(&b->items[i], letter, cmd, reads);
    }
    if (failed) /* of a hold that is over there is nothing to say */
        dibs__client_log(b->locks->c, slot, DIBS_EVENT_SUSPECT,
                         err ? err : DIBS_ERR_SERVER,
                         "a renewal failed; trying again");
    b->over = true;
    if (!b->sending)
        dibs__free(b);
}

/* ---- sending ----------------------------------------------------------- */

/* The batch may have waited for a connection, and a lease begins when the
 * server has the command: so max_hold_ms limits it here. */
static void limit_leases(struct renewal *b)
{
    int64_t now = dibs__now_ms();

    for (size_t i = 0; i < b->count; i++) {
        struct dibs__renew_item *item = &b->items[i];
        int64_t most = item->max_until - now;
        if (item->lease_ms > most)
            item->lease_ms = most > 0 ? most : LEASE_LOOK;
    }
}

static void renewal_write(struct dibs__command *cmd, struct dibs__buf *out,
                          bool whole)
{
    struct renewal *b = DIBS_OF(cmd, struct renewal, call);

    limit_leases(b);
    dibs__renew_write(b->items, b->count, out, whole);
}

/* In the write that the batch goes with, if it goes now. */
static void send_reads(struct renewal *b)
{
    struct dibs__buf out = {0};

    if (b->call.state != CMD_SENT || !dibs__key_tracking_is_on(b->call.server))
        return;
    unsigned count = dibs__tracking_reads_write(b->items, b->count, &out);
    b->tracks = dibs__key_tracking_read(b->call.server, &out, count);
}

static void renewal_send(struct renewal *b)
{
    int64_t patience = b->locks->c->to.command_timeout_ms;

    for (size_t i = 0; i < b->count; i++)
        if (b->items[i].lease_ms != LEASE_LOOK)
            patience = dibs__min(patience, b->items[i].lease_ms / PATIENCE);
    patience = dibs__max(patience, PATIENCE_MIN_MS);
    b->sent_us = dibs__now_us();
    b->call.write = renewal_write;
    b->call.done = renewal_answered;
    b->call.attempt_ms = patience;
    b->call.deadline = dibs__now_ms() + 2 * patience;
    b->call.connect_by = b->call.deadline;
    b->call.slot = b->count > 1 ? -1 : b->items[0].entry->hash_slot;
    b->sending = true;
    dibs__command_run_now(b->server ? (struct dibs__route){.server = b->server}
                                    : b->locks->c->route,
                          &b->call);
    b->sending = false;
    if (b->over)
        dibs__free(b);
    else
        send_reads(b);
}

/* ---- collecting -------------------------------------------------------- */

/* Under watchdog.mu: the hold cannot go away, so its line can be kept. */
static void keep_line(struct dibs__lease_timer *timer, void *arg)
{
    struct dibs__hold *h = DIBS_OF(timer, struct dibs__hold, timer);
    struct dibs__renew_item *item = arg;

    item->entry = h->entry;
    item->hold_number = h->number;
    item->due_at = timer->at;
    dibs__entry_ref(h->entry);
}

enum due { DUE_NOT, DUE_RENEW, DUE_LATER };

/* A longer lease than ours still runs: it was that of another level. When a
 * renewal is worth something again; never, if it may not last longer. */
static int64_t worth_at(const struct dibs__hold *h, int64_t wanted,
                        int64_t lease)
{
    return lease < wanted ? INT64_MAX : h->valid_until - wanted / 3 * 2;
}

/* It is as old as it must be to be tracked, and can be. */
static bool may_track(const struct dibs__lock_entry *entry,
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

static enum due hold_due(struct dibs__lock_entry *entry, struct dibs__hold *h,
                         struct dibs__renew_item *item, int64_t now)
    REQUIRES(line->mu)
{
    /* A release tells by itself. */
    if (!h || h->state == HOLD_LOST || h->state == HOLD_ENDING)
        return DUE_NOT;
    if (now >= h->valid_until) {
        dibs__hold_expire_locally(entry, h);
        return DUE_NOT;
    }
    struct dibs__hold_terms_sum all = dibs__hold_terms(h);
    int64_t lease = dibs__min(all.lease_ms, all.max_until - now);
    bool gains = now + lease >= h->valid_until + all.lease_ms / GAIN;
    bool looks = (h->invalidated && item->due_at <= now) ||
                 may_track(entry, h, item, now);
    if (h->in_renewal_batch ||
        (!h->needs_verify && !looks && (!all.renewed || !gains))) {
        int64_t at = gains ? INT64_MAX : worth_at(h, all.lease_ms, lease);
        dibs__hold_schedule(
            entry, h, item->due_at > now ? dibs__min(at, item->due_at) : at);
        return DUE_LATER;
    }
    bool renews =
        h->needs_verify || !looks || now >= worth_at(h, all.lease_ms, lease);
    h->in_renewal_batch = true;
    item->owner_id = h->owner_id;
    item->value = h->value;
    item->lease_ms = renews && all.renewed && lease > 0 ? lease : LEASE_LOOK;
    item->max_until = all.max_until;
    h->renewal_in_flight = item->lease_ms != LEASE_LOOK;
    item->needs_verify = h->needs_verify || h->invalidated;
    h->needs_verify = h->invalidated = false;
    dibs__hold_schedule(entry, h, INT64_MAX);
    return DUE_RENEW;
}

/* Takes one lease that is due by `until`. */
static enum due take_lease(struct dibs__lock_manager *manager,
                           struct dibs__renew_item *item, int64_t now,
                           int64_t until)
{
    if (!dibs__lease_timers_take_due(&manager->c->lease_timers, until,
                                     keep_line, item))
        return DUE_NOT;
    struct dibs__lock_entry *entry = item->entry;
    dibs__lock(&entry->mu);
    enum due due = hold_due(
        entry, dibs__hold_with_number(entry, item->hold_number), item, now);
    dibs__unlock(&entry->mu);
    if (due != DUE_RENEW)
        dibs__entry_unref(entry);
    return due == DUE_NOT ? DUE_LATER : due;
}

/* Into the batch of its sort and server; a full one is sent. */
static void renewal_add(struct dibs__lock_manager *manager,
                        struct renewal **open, struct dibs__renew_item *item)
{
    struct dibs__server *server = dibs__entry_server(item->entry);
    struct renewal **at = open, *b;

    while ((b = *at) && (!server || b->server != server ||
                         b->items[0].entry->type->renew_script !=
                             item->entry->type->renew_script))
        at = &b->next;
    if (!b)
        b = *at = dibs__calloc(1, sizeof *b);
    if (!b) {
        /* No memory: soon again. */
        hold_answered(item, NO_ANSWER, NULL, READS_NONE);
        return;
    }
    b->locks = manager;
    b->server = server;
    b->items[b->count++] = *item;
    if (b->count == BATCH) {
        *at = b->next;
        renewal_send(b);
    }
}

static void send_renewals(struct renewal *open)
{
    for (struct renewal *b; (b = open);) {
        open = b->next;
        renewal_send(b);
    }
}

/* Its node does not have it: by its slot it finds its way. */
static void ask_alone(struct dibs__lock_manager *manager,
                      const struct dibs__renew_item *item)
{
    struct dibs__renew_item copy = *item;
    struct renewal *open = NULL;

    renewal_add(manager, &open, &copy);
    send_renewals(open);
}

void dibs__renew_due(struct dibs__lease_timers *timers, int64_t now)
{
    dibs_client *c = DIBS_OF(timers, dibs_client, lease_timers);
    struct renewal *open = NULL;
    int64_t until = now;
    struct dibs__renew_item item;
    enum due due;

    while ((due = take_lease(c->upper_arg, &item, now, until)) != DUE_NOT) {
        if (due == DUE_RENEW)
            renewal_add(c->upper_arg, &open, &item);
        /* A batch is sent anyway: add what is due soon. */
        until = due == DUE_RENEW ? now + c->lease_ms / SOON : now;
    }
    send_renewals(open);
}
