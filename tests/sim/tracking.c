/* SPDX-License-Identifier: MIT
 *
 * tracking.c - CLIENT TRACKING: invalidation messages for keys that were read.
 *
 * A session that tracks is remembered for each key of a command with which it
 * read; a change tells it, and forgets it, until it reads again. Redis 7.0:
 *
 * - OPTIN: only the command right behind CLIENT CACHING YES is remembered.
 * - In a script it is each reading command that remembers, but the keys are
 *   those of the EVAL. So a key that a script reads and then writes is
 *   forgotten, one that it reads after it wrote is tracked, and a key that it
 *   has from ARGV never is.
 * - NOLOOP: a change by the session itself sends no message, but ends the
 *   tracking.
 * - In RESP2 messages go to another session, REDIRECT, which must be subscribed
 *   to something; else they are lost.
 * - FLUSHALL sends one message without a key to each session that tracks, also
 *   with NOLOOP.
 * - What a session brings about itself is told behind its reply.
 */
#include "sim/impl.h"

#include <stdio.h>
#include <stdlib.h>

static void free_set(void *val)
{
    sr__dict_free(val, NULL);
    free(val);
}

static struct sr_str id_text(int64_t id, char text[24])
{
    int n = snprintf(text, 24, "%lld", (long long)id);

    return (struct sr_str){text, (size_t)n};
}

/* ---- remembering ------------------------------------------------------- */

static void remember_key(struct sr_str key, void *arg)
{
    struct sr_session *c = arg;
    struct sr_dict *who = sr__dict_get(&c->s->tracked, key);
    char text[24];
    struct sr_str id = id_text(c->id, text);

    if (!who) {
        who = sr__alloc(sizeof *who);
        sr__dict_add(&c->s->tracked, key, who);
    }
    if (!sr__dict_find(who, id))
        sr__dict_add(who, id, NULL);
}

void sr__track(struct sr_session *c, const struct sr_command *cmd, int argc,
               const struct sr_str *argv)
{
    if ((c->optin && !c->caching) || (c->optout && c->caching))
        return;
    sr__keys_each(cmd, argc, argv, remember_key, c);
}

/* A session that has ended gets no messages; its id is never used again. */
void sr__track_leave(struct sr_session *c)
{
    c->tracking = c->optin = c->optout = c->noloop = c->caching = false;
    c->redirect = 0;
}

void sr__track_free(struct sr_server *s)
{
    sr__dict_free(&s->tracked, free_set);
    sr__value_free(s->told);
    s->told = NULL;
}

/* ---- who is remembered, for the invariant checker ---------------------- */

void sr_tracked_by(const struct sr_server *s, const char *key,
                   void (*fn)(void *owner, void *arg), void *arg)
{
    const struct sr_dict *who = sr__dict_get(&s->tracked, sr__view(key));

    for (const struct sr_entry *e = who ? who->first : NULL; e; e = e->next) {
        struct sr_session *c =
            sr__session_find((struct sr_server *)s, atoll(e->key.p));
        if (c && c->tracking && c->owner)
            fn(c->owner, arg);
    }
}

/* ---- telling ----------------------------------------------------------- */

/* body: the keys, as a reply. */
static void send_to(struct sr_session *c, struct sr_str body)
{
    struct sr_session *to =
        c->redirect ? sr__session_find(c->s, c->redirect) : NULL;

    if (!to || !sr__subscribed(to))
        return;
    sr__buf_text(&to->out, "*3\r\n$7\r\nmessage\r\n"
                           "$20\r\n__redis__:invalidate\r\n");
    sr__buf_add(&to->out, body.p, body.n);
    sr__touch(to);
}

static void tell(struct sr_session *c, struct sr_str body)
{
    struct sr_server *s = c->s;

    if (c != s->running) {
        send_to(c, body);
        return;
    }
    if (!s->told)
        s->told = sr__value_new(SR_LIST);
    sr__list_insert(s->told, s->told->n, body);
}

void sr__track_changed(struct sr_server *s, struct sr_str key)
{
    struct sr_dict *who = sr__dict_get(&s->tracked, key);
    struct sr_buf body = {0};

    if (!who)
        return;
    sr__buf_text(&body, "*1\r\n");
    sr__out_bulk(&body, key);
    for (const struct sr_entry *e = who->first; e; e = e->next) {
        struct sr_session *c = sr__session_find(s, atoll(e->key.p));
        if (!c || !c->tracking || (c->noloop && c == s->running))
            continue;
        tell(c, (struct sr_str){body.p, body.n});
    }
    sr__buf_free(&body);
    free_set(sr__dict_del(&s->tracked, key));
}

void sr__track_flushed(struct sr_server *s)
{
    for (struct sr_session *c = s->sessions; c; c = c->next)
        if (c->tracking)
            tell(c, sr__view("$-1\r\n"));
    sr__dict_free(&s->tracked, free_set);
}

void sr__track_told(struct sr_server *s, struct sr_session *c)
{
    struct sr_value *told = s->told;

    s->told = NULL;
    for (size_t i = 0; told && i < told->n; i++)
        send_to(c, told->list[i]);
    sr__value_free(told);
}
