/* SPDX-License-Identifier: MIT
 *
 * event.c - events for logging, delivered to the program's event callback.
 *
 * Thread  any.
 * Locks   server.mu, for a server's address.
 *
 * How     An event has one line of text; if it is about a server, that begins
 *         with the address. Events are queued with the other callbacks. An
 *         event is dropped when EVENTS_MAX are pending or memory is out: no
 *         state depends on it.
 */
#include "client/observe/event.h"

#include "base/mem.h"
#include "client/client.h"

#include <stdio.h>
#include <string.h>

#define EVENTS_MAX 256

struct event {
    struct dibs__callback cb;
    dibs_client *c;
    dibs_event_kind kind;
    dibs_err err;
    char text[];
};

static void event_run(struct dibs__callback *cb, bool drop)
{
    struct event *ev = DIBS_OF(cb, struct event, cb);
    dibs_client *c = ev->c;
    dibs_event event = {sizeof event, ev->kind, ev->err, ev->text};

    if (!drop)
        c->on_event(&event, c->event_arg);
    atomic_fetch_sub(&c->pending_events, 1);
    dibs__free(ev);
}

void dibs__client_emit_event(void *client, dibs_event_kind kind, dibs_err err,
                             const char *text)
{
    dibs_client *c = client;
    size_t len = strlen(text);

    if (kind == DIBS_EVENT_REAPED) /* counted without an event callback, too */
        dibs__stats_count(c->stats, STAT_ORPHANS_RELEASED, 1);
    if (!c->on_event)
        return;
    struct event *ev = dibs__malloc(sizeof *ev + len + 1);
    if (!ev)
        return;
    if (atomic_fetch_add(&c->pending_events, 1) >= EVENTS_MAX) {
        atomic_fetch_sub(&c->pending_events, 1); /* too many are pending */
        dibs__free(ev);
        return;
    }
    ev->cb.run = event_run;
    ev->c = c;
    ev->kind = kind;
    ev->err = err;
    memcpy(ev->text, text, len + 1);
    dibs__clean_text(ev->text);
    dibs__callbacks_push(&c->callbacks, &ev->cb);
}

void dibs__event_format(const struct dibs__url *at, const char *text,
                        char out[DIBS__REASON_MAX])
{
    char address[DIBS__ADDRESS_MAX];

    dibs__url_address(at, address, sizeof address);
    snprintf(out, DIBS__REASON_MAX, "%s: %s", address, text);
}

void dibs__event_emit(const struct dibs__events *to, const struct dibs__url *at,
                      dibs_event_kind kind, dibs_err err, const char *text)
{
    char whole[DIBS__REASON_MAX];

    if (!to->emit)
        return;
    dibs__event_format(at, text, whole);
    to->emit(to->arg, kind, err, whole);
}

/* ---- about a server ---------------------------------------------------- */

void dibs__server_format(struct dibs__server *s, const char *text,
                         char out[DIBS__REASON_MAX])
{
    dibs__lock(&s->mu);
    dibs__event_format(&s->target.url, text, out);
    dibs__unlock(&s->mu);
}

void dibs__server_log(struct dibs__server *s, dibs_event_kind kind,
                      dibs_err err, const char *text)
{
    char whole[DIBS__REASON_MAX];

    if (!s->events.emit)
        return;
    dibs__server_format(s, text, whole);
    s->events.emit(s->events.arg, kind, err, whole);
}

void dibs__server_set_last_error(struct dibs__server *s, const char *why)
{
    dibs__event_format(&s->target.url, why, s->last_error);
}
