/* SPDX-License-Identifier: MIT
 *
 * renew.c - keeps leases alive, many with one command.
 *
 * Thread  io.
 * Locks   line.mu, one line at a time.
 *
 * How     The watchdog calls when the first lease is due. All that are due, and
 *         some that soon will be, go into batches. The answer has a letter for
 *         each. While it is awaited the watchdog looks at each hold again when
 *         it is over by our clock, so a hold is lost in time even if no answer
 *         ever comes.
 *
 *         In a cluster there is a batch for each node, each on its own
 *         connection, so none waits for another. Keys of one command would
 *         have to be in one slot; so the script is told of them as arguments,
 *         and each that the node does not have (any more) comes back as 'm'.
 *         That one is asked for alone, as a key, and finds its way by its slot.
 *         If there are many of them, a few lead the way: their MOVED brings a
 *         new map, and the others go with the next batches.
 *
 *         A hold that was released and taken again meanwhile is another hold:
 *         it has another number, and an answer for the old one is dropped.
 *
 *         After a connection was made anew, who answers may be another server,
 *         or have forgotten. So all holds of that server are due at once
 *         (locks.c). One that is not renewed is looked for by a renewal that
 *         lengthens nothing.
 *
 * Trouble '0': somebody else has it, or nobody; lost. No answer, or 'e': the
 *         hold is suspect and is asked for again soon, until it is over; very
 *         soon if nothing has answered since the connection was made anew.
 */
#include "base/mem.h"
#include "lock/locks.h"

#include <string.h>

#define BATCH           200
#define SOON            10 /* part of a lease: what is due so soon comes along */
#define RETRY_PART      20 /* part of a lease until the next try after trouble */
#define DOUBT_MS        500 /* until the next try if it is doubted */
#define NO_ANSWER       '?' /* instead of a letter */
#define GAIN            20  /* part of a lease that is worth a renewal */
#define PATIENCE        6   /* part of a lease that an answer may take */
#define PATIENCE_MIN_MS 200 /* less says nothing about the connection */
#define ALONE_MAX       10  /* of a batch; others when the map is new */

struct batch {
    struct dibs__call call;
    struct batch *next; /* of those that are being filled */
    struct dibs__locks *locks;
    struct dibs__server *server;
    size_t count;
    struct dibs__renew_item items[BATCH];
};

/* ---- answers ----------------------------------------------------------- */

/* It is still there. If that was not asked for the sake of a renewal, or was
 * asked before the last doubt, it is looked at once more. */
static void found(struct dibs__line *line, struct dibs__hold *h,
                  const struct dibs__renew_item *item, int64_t sent)
    REQUIRES(line->mu)
{
    if (item->lease_ms == LEASE_LOOK)
        h->suspect = false;
    else
        dibs__hold_renewed(line, h, sent, item->lease_ms);
    if (item->lease_ms == LEASE_LOOK || h->doubted)
        dibs__hold_watch(line, h, dibs__now_ms());
}

/* True: it did not work, and the hold, which is not over, is asked for again.
 */
static bool one_answered(struct dibs__renew_item *item, char letter,
                         int64_t sent)
{
    struct dibs__line *line = item->line;
    bool failed = false;

    dibs__lock(&line->mu);
    struct dibs__hold *h = dibs__hold_on_wire(line, item->wire, item->hold);
    int64_t now = dibs__now_ms();
    if (h)
        h->renewing = false;
    if (h && !h->lost && !h->ending) {
        if (dibs__hold_over(h, now)) {
            dibs__hold_run_out(line, h); /* over is over, whatever came */
        } else if (letter == '1') {
            found(line, h, item, sent);
        } else if (letter == '0') {
            dibs__hold_lose(line, h);
        } else {
            int64_t wait = h->lease_ms / RETRY_PART;
            failed = letter != 'm';
            h->suspect |= failed;
            h->doubted |= item->doubted && letter != 'e';
            dibs__hold_watch(
                line, h, now + (h->doubted ? dibs__min(wait, DOUBT_MS) : wait));
        }
    }
    dibs__unlock(&line->mu);
    dibs__line_unref(line);
    return failed;
}

static void ask_alone(struct dibs__locks *lk,
                      const struct dibs__renew_item *item);

static void batch_answered(struct dibs__call *call, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct batch *b = DIBS_OF(call, struct batch, call);
    bool good =
        err == DIBS_OK && reply->type == REPLY_TEXT && reply->len == b->count;
    int slot = b->items[0].line->slot;
    bool failed = false;

    for (size_t i = 0, alone = 0; i < b->count; i++) {
        char letter = good ? reply->text[i] : NO_ANSWER;
        if (letter == 'm' && b->count > 1 && alone++ < ALONE_MAX)
            ask_alone(b->locks, &b->items[i]);
        else
            failed |= one_answered(&b->items[i], letter, call->sent_ms);
    }
    if (failed) /* of a hold that is over there is nothing to say */
        dibs__client_tell(b->locks->c, slot, DIBS_EVENT_SUSPECT,
                          err ? err : DIBS_ERR_SERVER,
                          "a renewal failed; trying again");
    dibs__free(b);
}

/* ---- sending ----------------------------------------------------------- */

static void batch_write(struct dibs__call *call, struct dibs__buf *out,
                        bool whole)
{
    struct batch *b = DIBS_OF(call, struct batch, call);

    b->items[0].line->kind->write_renew(b->items, b->count, out, whole);
}

static void batch_send(struct batch *b)
{
    int64_t patience = b->locks->c->to.command_timeout_ms;

    for (size_t i = 0; i < b->count; i++)
        if (b->items[i].lease_ms != LEASE_LOOK)
            patience = dibs__min(patience, b->items[i].lease_ms / PATIENCE);
    patience = dibs__max(patience, PATIENCE_MIN_MS);
    b->call.write = batch_write;
    b->call.done = batch_answered;
    b->call.attempt_ms = patience;
    b->call.deadline = dibs__now_ms() + 2 * patience;
    b->call.connect_by = b->call.deadline;
    b->call.slot = b->count > 1 ? -1 : b->items[0].line->slot;
    dibs__call_now(b->server ? (struct dibs__route){.server = b->server}
                             : b->locks->c->route,
                   &b->call);
}

/* ---- collecting -------------------------------------------------------- */

/* Under watchdog.mu: the hold cannot go away, so its line can be kept. */
static void note_due(struct dibs__lease *le, void *arg)
{
    struct dibs__hold *h = DIBS_OF(le, struct dibs__hold, lease);
    struct dibs__renew_item *item = arg;

    item->line = h->line;
    item->hold = h->number;
    dibs__line_ref(h->line);
}

static struct dibs__hold *hold_numbered(struct dibs__line *line,
                                        uint64_t hold_number) REQUIRES(line->mu)
{
    for (struct dibs__list *l = line->holds.next; l != &line->holds;
         l = l->next) {
        struct dibs__hold *h = DIBS_OF(l, struct dibs__hold, link);
        if (h->number == hold_number)
            return h;
    }
    return NULL;
}

enum due { DUE_NOT, DUE_RENEW, DUE_LATER };

/* A longer lease than ours still runs: it was that of another level. When a
 * renewal is worth something again; never, if it may not last longer. */
static int64_t worth_at(const struct dibs__hold *h, int64_t lease)
{
    return lease < h->lease_ms ? INT64_MAX
                               : h->valid_until - h->lease_ms / 3 * 2;
}

static enum due look_at(struct dibs__line *line, struct dibs__hold *h,
                        struct dibs__renew_item *item, int64_t now)
    REQUIRES(line->mu)
{
    if (!h || h->lost || h->ending) /* a release tells by itself */
        return DUE_NOT;
    if (now >= h->valid_until) {
        dibs__hold_run_out(line, h);
        return DUE_NOT;
    }
    int64_t lease = dibs__min(h->lease_ms, h->max_until - now);
    bool gains = now + lease >= h->valid_until + h->lease_ms / GAIN;
    if (h->renewing || (!h->doubted && (!h->renewed || !gains))) {
        dibs__hold_watch(line, h, gains ? INT64_MAX : worth_at(h, lease));
        return DUE_LATER;
    }
    h->renewing = true;
    item->wire = h->wire;
    item->lease_ms = h->renewed && lease > 0 ? lease : LEASE_LOOK;
    item->doubted = h->doubted;
    h->doubted = false;
    dibs__hold_watch(line, h, INT64_MAX);
    return DUE_RENEW;
}

/* Takes one lease that is due by `until`. */
static enum due take_one(struct dibs__locks *lk, struct dibs__renew_item *item,
                         int64_t now, int64_t until)
{
    if (!dibs__watchdog_take(&lk->c->watchdog, until, note_due, item))
        return DUE_NOT;
    struct dibs__line *line = item->line;
    dibs__lock(&line->mu);
    enum due due = look_at(line, hold_numbered(line, item->hold), item, now);
    dibs__unlock(&line->mu);
    if (due != DUE_RENEW)
        dibs__line_unref(line);
    return due == DUE_NOT ? DUE_LATER : due;
}

/* Into the batch of its sort and server; a full one is sent. */
static void collect(struct dibs__locks *lk, struct batch **open,
                    struct dibs__renew_item *item)
{
    struct dibs__server *server = dibs__line_server(item->line);
    struct batch **at = open, *b;

    while ((b = *at) &&
           (!server || b->server != server ||
            b->items[0].line->kind->renewal != item->line->kind->renewal))
        at = &b->next;
    if (!b)
        b = *at = dibs__calloc(1, sizeof *b);
    if (!b) {
        one_answered(item, NO_ANSWER, 0); /* no memory: soon again */
        return;
    }
    b->locks = lk;
    b->server = server;
    b->items[b->count++] = *item;
    if (b->count == BATCH) {
        *at = b->next;
        batch_send(b);
    }
}

static void send_all(struct batch *open)
{
    for (struct batch *b; (b = open);) {
        open = b->next;
        batch_send(b);
    }
}

/* Its node does not have it: by its slot it finds its way. */
static void ask_alone(struct dibs__locks *lk,
                      const struct dibs__renew_item *item)
{
    struct dibs__renew_item copy = *item;
    struct batch *open = NULL;

    collect(lk, &open, &copy);
    send_all(open);
}

void dibs__renew_due(struct dibs__watchdog *wd, int64_t now)
{
    dibs_client *c = DIBS_OF(wd, dibs_client, watchdog);
    struct batch *open = NULL;
    int64_t until = now;
    struct dibs__renew_item item;
    enum due due;

    while ((due = take_one(c->upper_arg, &item, now, until)) != DUE_NOT) {
        if (due == DUE_RENEW)
            collect(c->upper_arg, &open, &item);
        /* A batch goes anyway: take along what is due soon. Deadlines that
         * come next are left in peace. */
        until = due == DUE_RENEW ? now + c->lease_ms / SOON : now;
    }
    send_all(open);
}
