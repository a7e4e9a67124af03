/* SPDX-License-Identifier: MIT
 *
 * subscriber.c - the pub/sub connection to one server, and its subscriptions.
 *
 * Thread  io.
 *
 * How     One connection for any number of channels (channel.c), opened with
 *         the first subscription. The server confirms requests in order; a
 *         channel is ready when none of its requests is in flight.
 *
 *         dibs__unsubscribe_lazily keeps the channel subscribed for some
 *         seconds; messages are dropped meanwhile. A new subscription is not
 *         called at once if the channel was ready and silent since asked_ms:
 *         no message was missed.
 *
 *         In a cluster there is one subscriber for each node in use. Channels
 *         whose slot has no known node are in a tree without a connection. A
 *         sharded channel exists only at the node that has its slot (the slot
 *         of the lock), and moves with the slot; the old node reports that by
 *         an unsolicited "sunsubscribe", or with MOVED.
 *
 * Trouble A message is a hint; waiters also poll. After a reconnect, messages
 *         may have been missed, so every channel is subscribed again and all
 *         subscriptions are called. If SUBSCRIBE is not permitted, they are
 *         called once and get no messages; waiters then only poll. An optional
 *         channel may be refused without effect on the others.
 */
#include "client/pubsub/channel.h"

#include "base/mem.h"
#include "client/command/error_class.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 20
#define BACKOFF_MAX_MS   2000
#define MOVED            "MOVED "

/* ---- replies and messages ---------------------------------------------- */

static void refuse_all(struct dibs__subscriber *ps, const char *text)
{
    struct dibs__channel *ch, *next;

    if (!ps->refused)
        dibs__event_emit(&ps->events, &ps->to->url, DIBS_EVENT_WARNING,
                         DIBS_ERR_AUTH, text);
    ps->refused = true;
    for (ch = dibs__channel_first(&ps->channels); ch; ch = next) {
        next = dibs__channel_next(ch);
        ch->pending_subscribes = ch->pending_unsubscribes = 0;
        dibs__channel_idle_end(ch);
        /* Deferred: hear may unsubscribe, which may free channel `next`. */
        if (!dibs__list_empty(&ch->subs))
            dibs__channel_notify_later(ch);
        dibs__channel_drop_if_idle(ch);
    }
}

/* MOVED: requests for channels of that slot get no further reply. The channels
 * move when the next slot map arrives, not at once: two nodes can redirect to
 * each other for a while. */
static void slot_moved(struct dibs__subscriber *ps, const char *error)
{
    long slot = strtol(error + strlen(MOVED), NULL, 10);
    struct dibs__channel *ch, *next;

    ps->slots->mark_stale(ps->slots);
    for (ch = dibs__channel_first(&ps->channels); ch; ch = next) {
        next = dibs__channel_next(ch);
        if (ch->slot != slot)
            continue;
        ch->pending_subscribes = ch->pending_unsubscribes = 0;
        ch->ready = false;
        dibs__channel_idle_end(ch);
        dibs__channel_drop_if_idle(ch);
    }
}

/* Returns the optional channel whose request was refused by the current reply,
 * or NULL. Replies come in the order of the requests. */
static struct dibs__channel *find_refused_optional(struct dibs__subscriber *ps)
{
    struct dibs__channel *ch;

    for (ch = dibs__channel_first(&ps->channels); ch;
         ch = dibs__channel_next(ch))
        if (ch->optional && ch->pending_subscribes &&
            ps->replies - ch->first_request <=
                ch->last_request - ch->first_request)
            break;
    return ch;
}

static void refuse_optional(struct dibs__channel *ch)
{
    ch->ps->optional_refused = true;
    ch->pending_subscribes--; /* a later request may be in flight */
    dibs__channel_notify(ch, '\0');
    dibs__channel_drop_if_idle(ch);
}

static void on_error(struct dibs__subscriber *ps, const char *text)
{
    struct dibs__channel *optional_ch = find_refused_optional(ps);

    if (ps->slots && strncmp(text, MOVED, strlen(MOVED)) == 0)
        slot_moved(ps, text);
    else if (ps->slots && dibs__error_classify(text)->next == NEXT_LATER)
        dibs__conn_close(ps->cn, DIBS_ERR_CONN, text); /* reconnects */
    else if (optional_ch)
        refuse_optional(optional_ch);
    else
        refuse_all(ps, text);
}

/* The server has ended the subscription, since the slot has moved. */
static void channel_revoked(struct dibs__channel *ch)
{
    ch->ready = false;
    dibs__channel_idle_end(ch);
    ch->ps->slots->mark_stale(ch->ps->slots);
}

/* Returns whether verb is `plain` or its sharded form, with "s" in front. */
static bool is_verb(const char *verb, const char *plain)
{
    return strcmp(verb, plain) == 0 ||
           (verb[0] == 's' && strcmp(verb + 1, plain) == 0);
}

static void on_reply(struct dibs__conn *cn, const struct dibs__reply *reply)
{
    struct dibs__subscriber *ps = cn->user;
    const struct dibs__reply *verb = dibs__reply_text(reply, 0);
    const struct dibs__reply *name = dibs__reply_text(reply, 1);

    if (reply->type == REPLY_ERROR) {
        ps->replies++;
        on_error(ps, reply->text);
        return;
    }
    struct dibs__channel *ch =
        verb && name ? dibs__channel_find(&ps->channels, name->text, name->len)
                     : NULL;
    if (!ch)
        return;
    if ((is_verb(verb->text, "subscribe") && ch->pending_subscribes) ||
        (is_verb(verb->text, "unsubscribe") && ch->pending_unsubscribes))
        ps->replies++;
    if (is_verb(verb->text, "message")) {
        const struct dibs__reply *text = dibs__reply_text(reply, 2);
        dibs__stats_count(ps->events.stats, STAT_WAKEUPS, 1);
        dibs__channel_notify(ch, text ? text->text[0] : '\0');
    } else if (is_verb(verb->text, "subscribe") && ch->pending_subscribes > 0) {
        ps->backoff_ms = 0;
        /* Not ready while an UNSUBSCRIBE sent meanwhile is in flight. */
        ch->ready = --ch->pending_subscribes == 0 && !ch->pending_unsubscribes;
        if (ch->ready)
            dibs__channel_notify(ch, '\0');
    } else if (is_verb(verb->text, "unsubscribe") &&
               ch->pending_unsubscribes > 0) {
        ch->pending_unsubscribes--;
    } else if (ps->slots && strcmp(verb->text, "sunsubscribe") == 0) {
        channel_revoked(ch);
    }
    dibs__channel_drop_if_idle(ch);
}

/* ---- the connection ---------------------------------------------------- */

static void on_conn_up(struct dibs__conn *cn)
{
    struct dibs__subscriber *ps = cn->user;
    struct dibs__channel *ch;

    ps->refused = ps->optional_refused = false;
    ps->requests = ps->replies = 0;
    dibs__conn_poll(cn, UV_READABLE);
    for (ch = dibs__channel_first(&ps->channels); ch;
         ch = dibs__channel_next(ch))
        dibs__channel_subscribe(ch);
}

static void schedule_reconnect(struct dibs__subscriber *ps)
{
    int64_t wait =
        dibs__backoff(&ps->backoff_ms, BACKOFF_FIRST_MS, BACKOFF_MAX_MS);

    dibs__timer_set(ps->lp, &ps->redial, dibs__now_ms() + wait);
}

static void on_conn_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct dibs__subscriber *ps = cn->user;
    struct dibs__channel *ch, *next;

    ps->cn = NULL;
    if (!ps->closing && err != DIBS_ERR_CLOSED)
        dibs__log_disconnect(
            &ps->events, &ps->to->url, &ps->throttle,
            &(struct dibs__failure){err, why, cn->id[0] != '\0'});
    for (ch = dibs__channel_first(&ps->channels); ch; ch = next) {
        next = dibs__channel_next(ch);
        ch->pending_subscribes = ch->pending_unsubscribes = 0;
        ch->ready = false;
        dibs__channel_idle_end(ch);
        dibs__channel_drop_if_idle(ch);
    }
    if (ps->closing)
        return;
    if (ps->slots && err != DIBS_ERR_CLOSED)
        ps->slots->mark_stale(ps->slots);
    if (!RB_EMPTY(&ps->channels))
        schedule_reconnect(ps);
}

static void on_conn_gone(struct dibs__conn *cn)
{
    struct dibs__subscriber *ps = cn->user;

    dibs__free(cn);
    if (--ps->conn_count == 0 && ps->closing)
        dibs__lifecycle_closed(ps->lifecycle);
}

/* Returns whether the address of the server is known. It is not before the
 * sentinels have reported it; dibs__subscriber_disconnect then connects. */
static bool has_address(const struct dibs__subscriber *ps)
{
    return ps->to->url.unix_socket || ps->to->url.host;
}

static void subscriber_connect(struct dibs__subscriber *ps)
{
    if (ps->cn || ps->closing || RB_EMPTY(&ps->channels) || !has_address(ps))
        return;
    struct dibs__conn *cn = dibs__calloc(1, sizeof *cn);
    if (cn) {
        cn->lp = ps->lp;
        cn->to = ps->to;
        cn->user = ps;
        cn->up = on_conn_up;
        cn->down = on_conn_down;
        cn->gone = on_conn_gone;
        cn->push = on_reply;
    }
    if (!cn || dibs__conn_open(cn) != DIBS_OK) {
        dibs__free(cn);
        schedule_reconnect(ps);
        return;
    }
    ps->cn = cn;
    ps->conn_count++;
}

static void on_redial_timer(struct dibs__timer *t)
{
    subscriber_connect(DIBS_OF(t, struct dibs__subscriber, redial));
}

/* ---- subscriptions ----------------------------------------------------- */

dibs_err dibs__subscribe(struct dibs__subscriber *ps,
                         struct dibs__subscription *sub, const char *name,
                         size_t len)
{
    struct dibs__channel *ch = dibs__channel_get(&ps->channels, ps, name, len);

    if (!ch)
        return DIBS_ERR_NOMEM;
    bool first = dibs__list_empty(&ch->subs);
    dibs__channel_idle_end(ch);
    dibs__channel_add(ch, sub);
    if (ch->ready || dibs__channel_refused(ch)) {
        bool missed_none = ch->ready && ch->active_ms < sub->asked_ms;
        if (!missed_none)
            dibs__channel_notify_later(ch);
    } else if (first) {
        dibs__channel_subscribe(ch);
    }
    if (!ps->redial.at)
        subscriber_connect(ps);
    return DIBS_OK;
}

bool dibs__subscription_is_ready(const struct dibs__subscription *sub)
{
    return sub->channel && sub->channel->ready;
}

static void subscription_end(struct dibs__subscription *sub, bool lazily)
{
    struct dibs__channel *ch = sub->channel;

    if (!ch)
        return;
    sub->channel = NULL;
    dibs__list_del(&sub->link);
    if (!dibs__list_empty(&ch->subs))
        return;
    if (lazily && ch->ready && !ch->notify_posted &&
        dibs__subscriber_usable(ch->ps)) {
        dibs__channel_idle_begin(ch);
        return;
    }
    dibs__channel_unsubscribe(ch);
    dibs__channel_drop_if_idle(ch);
}

void dibs__unsubscribe(struct dibs__subscription *sub)
{
    subscription_end(sub, false);
}

void dibs__unsubscribe_lazily(struct dibs__subscription *sub)
{
    subscription_end(sub, true);
}

/* A subscription that fails for lack of memory gets no messages; its waiters
 * poll. */
static void channel_move(struct dibs__channel *ch, struct dibs__subscriber *to)
{
    struct dibs__list subs;

    dibs__list_init(&subs);
    dibs__list_move(&subs, &ch->subs);
    for (struct dibs__list *l; (l = dibs__list_pop(&subs));) {
        struct dibs__subscription *sub =
            DIBS_OF(l, struct dibs__subscription, link);
        sub->channel = NULL;
        dibs__subscribe(to, sub, ch->name, ch->len);
    }
    dibs__channel_unsubscribe(ch);
    dibs__channel_drop_if_idle(ch);
}

void dibs__channels_reroute(struct dibs__channels *in,
                            dibs__subscriber_finder *find, void *arg)
{
    struct dibs__channel *ch, *next;

    for (ch = dibs__channel_first(in); ch; ch = next) {
        next = dibs__channel_next(ch);
        struct dibs__subscriber *to = find(arg, ch->slot);
        if (dibs__list_empty(&ch->subs))
            continue;
        if (to && to != ch->ps)
            channel_move(ch, to);
        else if (!ch->ready && !ch->pending_subscribes)
            dibs__channel_subscribe(ch); /* e.g. the slot has moved back */
    }
}

void dibs__subscriber_close_if_unused(struct dibs__subscriber *ps)
{
    dibs__channels_trim(ps, dibs__now_ms(), 0);
    if (ps->cn && RB_EMPTY(&ps->channels))
        dibs__conn_close(ps->cn, DIBS_ERR_CLOSED, "no channels");
}

dibs_err dibs__channels_subscribe(struct dibs__channels *unrouted,
                                  struct dibs__subscription *sub,
                                  const char *name, size_t len)
{
    struct dibs__channel *ch = dibs__channel_get(unrouted, NULL, name, len);

    if (!ch)
        return DIBS_ERR_NOMEM;
    dibs__channel_add(ch, sub);
    return DIBS_OK;
}

void dibs__subscriber_disconnect(struct dibs__subscriber *ps, const char *why)
{
    if (ps->cn)
        dibs__conn_close(ps->cn, DIBS_ERR_CONN, why);
    ps->backoff_ms = 0;
    if (!ps->closing && !RB_EMPTY(&ps->channels))
        dibs__timer_set(ps->lp, &ps->redial, dibs__now_ms());
}

void dibs__subscriber_init(struct dibs__subscriber *ps)
{
    RB_INIT(&ps->channels);
    dibs__list_init(&ps->idle_channels);
    ps->idle_timer.fire = dibs__channels_on_idle_timer;
    ps->redial.fire = on_redial_timer;
}

void dibs__subscriber_close(struct dibs__subscriber *ps)
{
    ps->closing = true;
    dibs__channels_trim(ps, dibs__now_ms(), 0);
    dibs__timer_stop(ps->lp, &ps->redial);
    if (ps->cn)
        dibs__conn_close(ps->cn, DIBS_ERR_CLOSED, "closed");
    if (ps->conn_count == 0)
        dibs__lifecycle_closed(ps->lifecycle);
}

void dibs__subscriber_abandon(struct dibs__subscriber *ps)
{
    if (ps->cn && ps->cn->fd >= 0)
        close(ps->cn->fd);
}
