/* SPDX-License-Identifier: MIT
 *
 * subscriber.c - channels, and who listens to them.
 *
 * Thread  io.
 *
 * How     One connection for any number of channels (channel.c), made when the
 *         first listener comes. The server confirms in the order in which it
 *         was asked; a channel is ready when nothing that was asked for it is
 *         outstanding.
 *
 *         A listener that will soon be back parts, and does not leave: the
 *         channel stays subscribed for some seconds, and what it says meanwhile
 *         is heard by nobody. One that comes back is not called at once if the
 *         channel was ready, and silent, since it last asked.
 *
 *         In a cluster there is one of these for each node that is needed.
 *         Channels of slots that nobody is known to have are in a tree without
 *         a connection until somebody is. Channels may be sharded:
 *         then only the node that has the channel's slot knows of them (the
 *         slot is the lock's), and they move with the slot. The node says so
 *         by unsubscribing us, or with MOVED.
 *
 * Trouble A message is a hint: listeners must get along without. When the
 *         connection was down, messages may have been missed, so every channel
 *         is subscribed anew and all listeners are called. Where the server
 *         does not let us subscribe, they are called at once and told nothing
 *         more; they look by themselves. Channels that are optional may be
 *         refused without harm to others.
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

/* ---- what the server says ---------------------------------------------- */

static void refuse_listeners(struct dibs__subscriber *ps, const char *text)
{
    struct dibs__channel *ch, *next;

    if (!ps->refused)
        dibs__event_tell(&ps->events, &ps->to->url, DIBS_EVENT_WARNING,
                         DIBS_ERR_AUTH, text);
    ps->refused = true;
    for (ch = dibs__channel_first(&ps->channels); ch; ch = next) {
        next = dibs__channel_next(ch);
        ch->asked = ch->unasked = 0;
        dibs__channel_idle_end(ch);
        /* Not now: a listener of one channel may leave another one. */
        if (!dibs__list_empty(&ch->subs))
            dibs__channel_call_later(ch);
        dibs__channel_drop_if_idle(ch);
    }
}

/* MOVED: what was asked for channels of that slot will not be answered. They
 * are looked after when the next map has come, and not at once: two nodes can
 * point to each other for a while. */
static void slot_moved(struct dibs__subscriber *ps, const char *error)
{
    long slot = strtol(error + strlen(MOVED), NULL, 10);
    struct dibs__channel *ch, *next;

    ps->slots->doubt(ps->slots);
    for (ch = dibs__channel_first(&ps->channels); ch; ch = next) {
        next = dibs__channel_next(ch);
        if (ch->slot != slot)
            continue;
        ch->asked = ch->unasked = 0;
        ch->ready = false;
        dibs__channel_idle_end(ch);
        dibs__channel_drop_if_idle(ch);
    }
}

/* The channel whose question was refused just now, if that one is optional.
 * Answers come in the order of the questions. */
static struct dibs__channel *refused_option(struct dibs__subscriber *ps)
{
    struct dibs__channel *ch;

    for (ch = dibs__channel_first(&ps->channels); ch;
         ch = dibs__channel_next(ch))
        if (ch->optional && ch->asked &&
            ps->answers - ch->first_ask <= ch->last_ask - ch->first_ask)
            break;
    return ch;
}

static void refuse_option(struct dibs__channel *ch)
{
    ch->ps->optional_refused = true;
    ch->asked--; /* it may have been asked for once more */
    dibs__channel_call(ch, '\0');
    dibs__channel_drop_if_idle(ch);
}

static void error_came(struct dibs__subscriber *ps, const char *text)
{
    struct dibs__channel *option = refused_option(ps);

    if (ps->slots && strncmp(text, MOVED, strlen(MOVED)) == 0)
        slot_moved(ps, text);
    else if (ps->slots && dibs__error_classify(text)->next == NEXT_LATER)
        dibs__conn_close(ps->cn, DIBS_ERR_CONN, text); /* and then again */
    else if (option)
        refuse_option(option);
    else
        refuse_listeners(ps, text);
}

/* The server has unsubscribed us, since the slot went elsewhere. */
static void put_out(struct dibs__channel *ch)
{
    ch->ready = false;
    dibs__channel_idle_end(ch);
    ch->ps->slots->doubt(ch->ps->slots);
}

static bool is_verb(const char *verb, const char *plain)
{
    return strcmp(verb, plain) == 0 ||
           (verb[0] == 's' && strcmp(verb + 1, plain) == 0);
}

static void message_came(struct dibs__conn *cn, const struct dibs__reply *reply)
{
    struct dibs__subscriber *ps = cn->user;
    const struct dibs__reply *verb = dibs__reply_text(reply, 0);
    const struct dibs__reply *name = dibs__reply_text(reply, 1);

    if (reply->type == REPLY_ERROR) {
        ps->answers++;
        error_came(ps, reply->text);
        return;
    }
    struct dibs__channel *ch =
        verb && name ? dibs__channel_find(&ps->channels, name->text, name->len)
                     : NULL;
    if (!ch)
        return;
    if ((is_verb(verb->text, "subscribe") && ch->asked) ||
        (is_verb(verb->text, "unsubscribe") && ch->unasked))
        ps->answers++;
    if (is_verb(verb->text, "message")) {
        const struct dibs__reply *text = dibs__reply_text(reply, 2);
        dibs__stats_count(ps->events.stats, STAT_WAKEUPS, 1);
        dibs__channel_call(ch, text ? text->text[0] : '\0');
    } else if (is_verb(verb->text, "subscribe") && ch->asked > 0) {
        ps->backoff_ms = 0; /* it works */
        /* If it is given up meanwhile, that is still to be confirmed. */
        ch->ready = --ch->asked == 0 && !ch->unasked;
        if (ch->ready)
            dibs__channel_call(ch, '\0');
    } else if (is_verb(verb->text, "unsubscribe") && ch->unasked > 0) {
        ch->unasked--;
    } else if (ps->slots && strcmp(verb->text, "sunsubscribe") == 0) {
        put_out(ch);
    }
    dibs__channel_drop_if_idle(ch);
}

/* ---- the connection ---------------------------------------------------- */

static void conn_up(struct dibs__conn *cn)
{
    struct dibs__subscriber *ps = cn->user;
    struct dibs__channel *ch;

    ps->refused = ps->optional_refused = false;
    ps->asks = ps->answers = 0;
    dibs__conn_poll(cn, UV_READABLE);
    for (ch = dibs__channel_first(&ps->channels); ch;
         ch = dibs__channel_next(ch))
        dibs__channel_subscribe(ch);
}

static void pubsub_redial_later(struct dibs__subscriber *ps)
{
    int64_t wait =
        dibs__backoff(&ps->backoff_ms, BACKOFF_FIRST_MS, BACKOFF_MAX_MS);

    dibs__timer_set(ps->lp, &ps->redial, dibs__now_ms() + wait);
}

static void conn_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct dibs__subscriber *ps = cn->user;
    struct dibs__channel *ch, *next;

    ps->cn = NULL;
    if (!ps->closing && err != DIBS_ERR_CLOSED)
        dibs__log_disconnect(
            &ps->events, &ps->to->url, &ps->hush,
            &(struct dibs__failure){err, why, cn->id[0] != '\0'});
    for (ch = dibs__channel_first(&ps->channels); ch; ch = next) {
        next = dibs__channel_next(ch);
        ch->asked = ch->unasked = 0;
        ch->ready = false;
        dibs__channel_idle_end(ch);
        dibs__channel_drop_if_idle(ch);
    }
    if (ps->closing)
        return;
    if (ps->slots && err != DIBS_ERR_CLOSED)
        ps->slots->doubt(ps->slots);
    if (!RB_EMPTY(&ps->channels))
        pubsub_redial_later(ps);
}

static void conn_gone(struct dibs__conn *cn)
{
    struct dibs__subscriber *ps = cn->user;

    dibs__free(cn);
    if (--ps->conns == 0 && ps->closing)
        dibs__lifecycle_closed(ps->parts);
}

/* Is it known where the server is? Sentinels may have yet to say so. Then the
 * connection is cut, and that dials. */
static bool is_placed(const struct dibs__subscriber *ps)
{
    return ps->to->url.unix_socket || ps->to->url.host;
}

static void pubsub_dial(struct dibs__subscriber *ps)
{
    if (ps->cn || ps->closing || RB_EMPTY(&ps->channels) || !is_placed(ps))
        return;
    struct dibs__conn *cn = dibs__calloc(1, sizeof *cn);
    if (cn) {
        cn->lp = ps->lp;
        cn->to = ps->to;
        cn->user = ps;
        cn->up = conn_up;
        cn->down = conn_down;
        cn->gone = conn_gone;
        cn->push = message_came;
    }
    if (!cn || dibs__conn_open(cn) != DIBS_OK) {
        dibs__free(cn);
        pubsub_redial_later(ps);
        return;
    }
    ps->cn = cn;
    ps->conns++;
}

static void pubsub_timed(struct dibs__timer *t)
{
    pubsub_dial(DIBS_OF(t, struct dibs__subscriber, redial));
}

/* ---- listeners --------------------------------------------------------- */

dibs_err dibs__subscribe(struct dibs__subscriber *ps,
                         struct dibs__subscription *sub, const char *name,
                         size_t len)
{
    struct dibs__channel *ch = dibs__channel_get(&ps->channels, ps, name, len);

    if (!ch)
        return DIBS_ERR_NOMEM;
    bool first = dibs__list_empty(&ch->subs);
    dibs__channel_idle_end(ch);
    dibs__channel_join(ch, sub);
    if (ch->ready || dibs__channel_refused(ch)) {
        bool known = ch->ready && ch->said_ms < sub->asked_ms;
        if (!known)
            dibs__channel_call_later(ch);
    } else if (first) {
        dibs__channel_subscribe(ch);
    }
    if (!ps->redial.at)
        pubsub_dial(ps);
    return DIBS_OK;
}

bool dibs__is_subscribed(const struct dibs__subscription *sub)
{
    return sub->on && sub->on->ready;
}

static void sub_end(struct dibs__subscription *sub, bool keep)
{
    struct dibs__channel *ch = sub->on;

    if (!ch)
        return;
    sub->on = NULL;
    dibs__list_del(&sub->link);
    if (!dibs__list_empty(&ch->subs))
        return;
    if (keep && ch->ready && !ch->later_set &&
        dibs__subscriber_usable(ch->ps)) {
        dibs__channel_idle_begin(ch);
        return;
    }
    dibs__channel_unsubscribe(ch);
    dibs__channel_drop_if_idle(ch);
}

void dibs__unsubscribe(struct dibs__subscription *sub)
{
    sub_end(sub, false);
}

void dibs__unsubscribe_lazily(struct dibs__subscription *sub)
{
    sub_end(sub, true);
}

/* No memory there: such a listener hears nothing, and looks by itself. */
static void channel_move(struct dibs__channel *ch, struct dibs__subscriber *to)
{
    struct dibs__list subs;

    dibs__list_init(&subs);
    dibs__list_move(&subs, &ch->subs);
    for (struct dibs__list *l; (l = dibs__list_pop(&subs));) {
        struct dibs__subscription *sub =
            DIBS_OF(l, struct dibs__subscription, link);
        sub->on = NULL;
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
        else if (!ch->ready && !ch->asked)
            dibs__channel_subscribe(
                ch); /* the map was wrong, or the slot is back */
    }
}

void dibs__subscriber_idle(struct dibs__subscriber *ps)
{
    dibs__channels_trim(ps, dibs__now_ms(), 0);
    if (ps->cn && RB_EMPTY(&ps->channels))
        dibs__conn_close(ps->cn, DIBS_ERR_CLOSED, "not needed any more");
}

dibs_err dibs__channels_subscribe(struct dibs__channels *strays,
                                  struct dibs__subscription *sub,
                                  const char *name, size_t len)
{
    struct dibs__channel *ch = dibs__channel_get(strays, NULL, name, len);

    if (!ch)
        return DIBS_ERR_NOMEM;
    dibs__channel_join(ch, sub);
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
    dibs__list_init(&ps->kept);
    ps->keeper.fire = dibs__channels_timed;
    ps->redial.fire = pubsub_timed;
}

void dibs__subscriber_close(struct dibs__subscriber *ps)
{
    ps->closing = true;
    dibs__channels_trim(ps, dibs__now_ms(), 0);
    dibs__timer_stop(ps->lp, &ps->redial);
    if (ps->cn)
        dibs__conn_close(ps->cn, DIBS_ERR_CLOSED, "closed");
    if (ps->conns == 0)
        dibs__lifecycle_closed(ps->parts);
}

void dibs__subscriber_abandon(struct dibs__subscriber *ps)
{
    if (ps->cn && ps->cn->fd >= 0)
        close(ps->cn->fd);
}
