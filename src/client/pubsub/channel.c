/* SPDX-License-Identifier: MIT
 *
 * channel.c - one channel: who listens to it, and what the server was asked.
 *
 * Thread  io.
 *
 * How     A channel is subscribed for its first listener and given up with its
 *         last. Or it is kept for some seconds without a listener, for one that
 *         will soon listen again; what it says meanwhile is heard by nobody.
 *         Few channels are kept like that, and none beyond its connection.
 */
#include "client/pubsub/channel.h"

#include "base/mem.h"
#include "base/tree.h"
#include "client/topology/hash_slot.h"

#include <string.h>

#define KEEP_MS  5000 /* a channel without listeners */
#define KEEP_MAX 64

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

static struct dibs__subscription *next_to_call(struct dibs__channel *ch)
{
    for (struct dibs__list *l = ch->subs.next; l != &ch->subs; l = l->next) {
        struct dibs__subscription *sub =
            DIBS_OF(l, struct dibs__subscription, link);
        if (sub->heard != ch->calls)
            return sub;
    }
    return NULL;
}

void dibs__channel_call(struct dibs__channel *ch, char said)
{
    struct dibs__subscription *sub;

    ch->said_ms = dibs__now_ms();
    ch->calls++;
    ch->calling++;
    while ((sub = next_to_call(ch))) {
        sub->heard = ch->calls;
        sub->hear(sub, said);
    }
    ch->calling--;
}

void dibs__channel_drop_if_idle(struct dibs__channel *ch)
{
    if (!dibs__list_empty(&ch->subs) || ch->asked || ch->unasked ||
        ch->later_set || ch->calling || ch->kept)
        return;
    RB_REMOVE(dibs__channels, ch->in, ch);
    dibs__free(ch);
}

static void call_later(struct dibs__task *t)
{
    struct dibs__channel *ch = DIBS_OF(t, struct dibs__channel, later);

    ch->later_set = false;
    dibs__channel_call(ch, '\0');
    dibs__channel_drop_if_idle(ch);
}

void dibs__channel_call_later(struct dibs__channel *ch)
{
    if (ch->later_set)
        return;
    ch->later_set = true;
    ch->later.run = call_later;
    dibs__loop_post(ch->ps->lp, &ch->later);
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
    ch->in = in;
    ch->ps = ps;
    ch->slot = ps && !ps->flavour ? 0 : dibs__hash_slot_of(name, len);
    ch->len = (unsigned)len;
    memcpy(ch->name, name, len);
    dibs__list_init(&ch->subs);
    RB_INSERT(dibs__channels, in, ch);
    return ch;
}

void dibs__channel_join(struct dibs__channel *ch,
                        struct dibs__subscription *sub)
{
    dibs__list_add(&ch->subs, &sub->link);
    ch->optional = sub->optional;
    sub->on = ch;
    sub->heard = ch->calls;
}

/* ---- asking the server ------------------------------------------------- */

bool dibs__subscriber_usable(const struct dibs__subscriber *ps)
{
    return ps && ps->cn && ps->cn->state == CONN_READY && !ps->refused;
}

static bool ask_channel(struct dibs__channel *ch, const char *verb)
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
    ch->ps->asks++;
    return true;
}

static unsigned flavour_of(const struct dibs__subscriber *ps)
{
    return ps->flavour ? atomic_load(ps->flavour) : PUBSUB_CLASSIC;
}

/* *asked: how many confirmations are to come. */
static void ask_flavours(struct dibs__channel *ch, const char *classic,
                         const char *sharded, unsigned *asked)
{
    ch->ready = false;
    if (!dibs__subscriber_usable(ch->ps))
        return;
    unsigned how = flavour_of(ch->ps);
    if ((how & PUBSUB_CLASSIC) && ask_channel(ch, classic))
        ++*asked;
    if ((how & PUBSUB_SHARDED) && ask_channel(ch, sharded))
        ++*asked;
}

bool dibs__channel_refused(const struct dibs__channel *ch)
{
    return ch->ps->refused || (ch->optional && ch->ps->optional_refused);
}

void dibs__channel_subscribe(struct dibs__channel *ch)
{
    if (ch->ps && dibs__channel_refused(ch))
        return;
    if (ch->ps && !ch->asked)
        ch->first_ask = ch->ps->asks + 1;
    ask_flavours(ch, "SUBSCRIBE", "SSUBSCRIBE", &ch->asked);
    if (ch->ps)
        ch->last_ask = ch->ps->asks;
}

void dibs__channel_unsubscribe(struct dibs__channel *ch)
{
    ask_flavours(ch, "UNSUBSCRIBE", "SUNSUBSCRIBE", &ch->unasked);
}

/* ---- channels without listeners ---------------------------------------- */

void dibs__channel_idle_end(struct dibs__channel *ch)
{
    if (!ch->kept)
        return;
    ch->kept = false;
    dibs__list_del(&ch->keep_link);
    ch->ps->kept_count--;
}

void dibs__channels_trim(struct dibs__subscriber *ps, int64_t now,
                         unsigned most)
{
    struct dibs__list *first;

    while ((first = dibs__list_first(&ps->kept))) {
        struct dibs__channel *ch =
            DIBS_OF(first, struct dibs__channel, keep_link);
        if (ps->kept_count <= most && now < ch->keep_until) {
            dibs__timer_set(ps->lp, &ps->keeper, ch->keep_until);
            return;
        }
        dibs__channel_idle_end(ch);
        dibs__channel_unsubscribe(ch);
        dibs__channel_drop_if_idle(ch);
    }
    dibs__timer_stop(ps->lp, &ps->keeper);
}

void dibs__channels_timed(struct dibs__timer *t)
{
    struct dibs__subscriber *ps = DIBS_OF(t, struct dibs__subscriber, keeper);

    dibs__channels_trim(ps, dibs__now_ms(), KEEP_MAX);
}

void dibs__channel_idle_begin(struct dibs__channel *ch)
{
    struct dibs__subscriber *ps = ch->ps;
    int64_t now = dibs__now_ms();

    ch->kept = true;
    ch->keep_until = now + KEEP_MS;
    dibs__list_add(&ps->kept, &ch->keep_link);
    ps->kept_count++;
    dibs__channels_trim(ps, now, KEEP_MAX);
}
