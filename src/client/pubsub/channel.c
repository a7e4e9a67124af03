/* SPDX-License-Identifier: MIT
 *
 * channel.c - one channel: its subscriptions, and its state at the server.
 *
 * Thread  io.
 *
 * How     The first subscription sends SUBSCRIBE and the last one UNSUBSCRIBE.
 *         With dibs__unsubscribe_lazily the channel instead stays subscribed as
 *         idle for some seconds, since the caller may soon subscribe again;
 *         messages are dropped meanwhile. There are at most IDLE_MAX idle
 *         channels, and none outlives its connection.
 */
#include "client/pubsub/channel.h"

#include "base/mem.h"
#include "base/tree.h"
#include "client/topology/hash_slot.h"

#include <string.h>

#define IDLE_MS  5000 /* an idle channel stays subscribed */
#define IDLE_MAX 64

static int channel_order(const struct dibs__channel *a,
                         const struct dibs__channel *b)
{
    size_t shorter = a->len < b->len ? a->len : b->len;
    int order = memcmp(a->name, b->name, shorter);

    if (order)
        return order;
    return a->len < b->len ? -1 : a->len > b->len;
}

DIBS_TREE(dibs__channels, dibs__channel, node, channel_order);

/* ---- channels ---------------------------------------------------------- */

struct dibs__channel *dibs__channel_first(struct dibs__channels *in)
{
    return RB_MIN(dibs__channels, in);
}

struct dibs__channel *dibs__channel_next(struct dibs__channel *ch)
{
    return DIBS_TREE_NEXT(dibs__channels, ch);
}

struct dibs__channel *dibs__channel_find(struct dibs__channels *in,
                                         const char *name, size_t len)
{
    struct dibs__channel *ch = RB_ROOT(in);

    while (ch) {
        size_t shorter = len < ch->len ? len : ch->len;
        int order = memcmp(name, ch->name, shorter);
        if (order == 0)
            order = len < ch->len ? -1 : len > ch->len;
        if (order == 0)
            break;
        ch = order < 0 ? RB_LEFT(ch, node) : RB_RIGHT(ch, node);
    }
    return ch;
}

static struct dibs__subscription *next_to_notify(struct dibs__channel *ch)
{
    for (struct dibs__list *l = ch->subs.next; l != &ch->subs; l = l->next) {
        struct dibs__subscription *sub =
            DIBS_OF(l, struct dibs__subscription, link);
        if (sub->notify_round != ch->notify_round)
            return sub;
    }
    return NULL;
}

void dibs__channel_notify(struct dibs__channel *ch, char first_byte)
{
    struct dibs__subscription *sub;

    ch->active_ms = dibs__now_ms();
    ch->notify_round++;
    ch->notify_depth++;
    while ((sub = next_to_notify(ch))) {
        sub->notify_round = ch->notify_round;
        sub->on_message(sub, first_byte);
    }
    ch->notify_depth--;
}

void dibs__channel_drop_if_idle(struct dibs__channel *ch)
{
    if (!dibs__list_empty(&ch->subs) || ch->pending_subscribes ||
        ch->pending_unsubscribes || ch->notify_posted || ch->notify_depth ||
        ch->idle)
        return;
    RB_REMOVE(dibs__channels, ch->tree, ch);
    dibs__free(ch);
}

static void on_notify_task(struct dibs__task *t)
{
    struct dibs__channel *ch = DIBS_OF(t, struct dibs__channel, notify_task);

    ch->notify_posted = false;
    dibs__channel_notify(ch, '\0');
    dibs__channel_drop_if_idle(ch);
}

void dibs__channel_notify_later(struct dibs__channel *ch)
{
    if (ch->notify_posted)
        return;
    ch->notify_posted = true;
    ch->notify_task.run = on_notify_task;
    dibs__loop_post(ch->ps->lp, &ch->notify_task);
}

struct dibs__channel *dibs__channel_get(struct dibs__channels *in,
                                        struct dibs__subscriber *ps,
                                        const char *name, size_t len)
{
    struct dibs__channel *ch = dibs__channel_find(in, name, len);

    if (ch)
        return ch;
    ch = dibs__calloc(1, sizeof *ch + len + 1);
    if (!ch)
        return NULL;
    ch->tree = in;
    ch->ps = ps;
    ch->slot = ps && !ps->pubsub_mode ? 0 : dibs__hash_slot_of(name, len);
    ch->len = (unsigned)len;
    memcpy(ch->name, name, len);
    dibs__list_init(&ch->subs);
    RB_INSERT(dibs__channels, in, ch);
    return ch;
}

void dibs__channel_add(struct dibs__channel *ch, struct dibs__subscription *sub)
{
    dibs__list_add(&ch->subs, &sub->link);
    ch->optional = sub->optional;
    sub->channel = ch;
    sub->notify_round = ch->notify_round;
}

/* ---- requests to the server -------------------------------------------- */

bool dibs__subscriber_usable(const struct dibs__subscriber *ps)
{
    return ps && ps->cn && ps->cn->state == CONN_READY && !ps->refused;
}

static bool send_request(struct dibs__channel *ch, const char *verb)
{
    struct dibs__conn *cn = ch->ps->cn;
    size_t before = cn->out.len;

    dibs__buf_array(&cn->out, 2);
    dibs__buf_arg_text(&cn->out, verb);
    dibs__buf_arg(&cn->out, ch->name, ch->len);
    if (!dibs__buf_ok(&cn->out)) {
        dibs__buf_cut(&cn->out, before);
        return false;
    }
    dibs__loop_flush(ch->ps->lp, &cn->flush);
    ch->ps->requests++;
    return true;
}

static unsigned pubsub_mode(const struct dibs__subscriber *ps)
{
    return ps->pubsub_mode ? atomic_load(ps->pubsub_mode) : PUBSUB_CLASSIC;
}

/* Adds the requests sent to *pending. */
static void send_requests(struct dibs__channel *ch, const char *classic,
                          const char *sharded, unsigned *pending)
{
    ch->ready = false;
    if (!dibs__subscriber_usable(ch->ps))
        return;
    unsigned mode = pubsub_mode(ch->ps);
    if ((mode & PUBSUB_CLASSIC) && send_request(ch, classic))
        ++*pending;
    if ((mode & PUBSUB_SHARDED) && send_request(ch, sharded))
        ++*pending;
}

bool dibs__channel_refused(const struct dibs__channel *ch)
{
    return ch->ps->refused || (ch->optional && ch->ps->optional_refused);
}

void dibs__channel_subscribe(struct dibs__channel *ch)
{
    if (ch->ps && dibs__channel_refused(ch))
        return;
    if (ch->ps && !ch->pending_subscribes)
        ch->first_request = ch->ps->requests + 1;
    send_requests(ch, "SUBSCRIBE", "SSUBSCRIBE", &ch->pending_subscribes);
    if (ch->ps)
        ch->last_request = ch->ps->requests;
}

void dibs__channel_unsubscribe(struct dibs__channel *ch)
{
    send_requests(ch, "UNSUBSCRIBE", "SUNSUBSCRIBE", &ch->pending_unsubscribes);
}

/* ---- idle channels ----------------------------------------------------- */

void dibs__channel_idle_end(struct dibs__channel *ch)
{
    if (!ch->idle)
        return;
    ch->idle = false;
    dibs__list_del(&ch->idle_link);
    ch->ps->idle_count--;
}

void dibs__channels_trim(struct dibs__subscriber *ps, int64_t now,
                         unsigned most)
{
    struct dibs__list *first;

    while ((first = dibs__list_first(&ps->idle_channels))) {
        struct dibs__channel *ch =
            DIBS_OF(first, struct dibs__channel, idle_link);
        if (ps->idle_count <= most && now < ch->idle_until) {
            dibs__timer_set(ps->lp, &ps->idle_timer, ch->idle_until);
            return;
        }
        dibs__channel_idle_end(ch);
        dibs__channel_unsubscribe(ch);
        dibs__channel_drop_if_idle(ch);
    }
    dibs__timer_stop(ps->lp, &ps->idle_timer);
}

void dibs__channels_on_idle_timer(struct dibs__timer *t)
{
    struct dibs__subscriber *ps =
        DIBS_OF(t, struct dibs__subscriber, idle_timer);

    dibs__channels_trim(ps, dibs__now_ms(), IDLE_MAX);
}

void dibs__channel_idle_begin(struct dibs__channel *ch)
{
    struct dibs__subscriber *ps = ch->ps;
    int64_t now = dibs__now_ms();

    ch->idle = true;
    ch->idle_until = now + IDLE_MS;
    dibs__list_add(&ps->idle_channels, &ch->idle_link);
    ps->idle_count++;
    dibs__channels_trim(ps, now, IDLE_MAX);
}
