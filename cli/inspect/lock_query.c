/* SPDX-License-Identifier: MIT
 *
 * lock_query.c - what info, queue, ls and force-unlock share: a server to ask,
 * and a lock as it sees it.
 *
 * If no URL is given and no private server runs, there are no locks, and no
 * server is started. A message says so: a user who forgot the URL would believe
 * that this is the answer of another server.
 *
 * Thread  The first one.
 */
#include "inspect/lock_query.h"

#include <stdlib.h>
#include <string.h>

#include "args/lock_type.h"
#include "exit_codes.h"
#include "output/error_advice.h"

int query_failed(const char *what, dibs_err err)
{
    char why[FAILURE_MAX];

    if (err == DIBS_ERR_WRONGTYPE) {
        out_tell(OUT_ERROR, "usage",
                 "'%s' is not a lock: the server has something else under this "
                 "name",
                 what);
        return out_exit_of(err);
    }
    snprintf(why, sizeof why, "%s", dibs_error_text());
    failure_trim(why);
    out_tell(OUT_ERROR, "server", "%s: %s%s%s", what, dibs_strerror(err),
             *why ? ": " : "", why);
    return out_exit_of(err);
}

int query_open(const struct args *a, struct lock_query *k)
{
    *k = (struct lock_query){.c = NULL};
    int code = target_look(a, &k->c, &k->server);

    if (code == EXIT_FINE && !k->c)
        out_tell(OUT_WARN, "local",
                 "no URL given, and the private server of this user (%s) does "
                 "not run: no locks there",
                 k->server.url ? k->server.url : "");
    return code;
}

int query_open_lock(const struct args *a, struct lock_query *k)
{
    int code = query_open(a, k);

    if (code != EXIT_FINE || !k->c)
        return code;
    k->slots = a->slots > 0;
    /* A handle for fair locks sees all there is to see of the other kinds. */
    dibs_err err = dibs_fair_lock_new(k->c, a->words[0], &k->l);
    return err == DIBS_OK ? EXIT_FINE : query_failed(a->words[0], err);
}

void query_close(struct lock_query *k)
{
    dibs_lock_free(k->l);
    dibs_client_free(k->c);
    target_server_clear(&k->server);
}

/* What is a number on the server is asked by a handle of its kind; of a lock
 * there may be a token. */
static dibs_err look_kind(struct lock_query *k, struct lock_row *s,
                          dibs_err err)
{
    dibs_lock_info found = DIBS_LOCK_INFO_INIT;
    dibs_lock *l = NULL;

    if ((err != DIBS_OK && err != DIBS_ERR_WRONGTYPE) ||
        dibs_client_look(k->c, s->name, &found) != DIBS_OK)
        return err;
    bool slots = found.kind == DIBS_KIND_SLOTS ||
                 (k->slots && found.kind == DIBS_KIND_COUNTER);
    if (!kind_counted(found.kind)) {
        s->info.token = found.token;
        return err;
    }
    s->info = found;
    if (!slots || dibs_slots_lock_new(k->c, s->name, 1, &l) != DIBS_OK)
        return DIBS_OK;
    dibs_lock_free(k->l);
    k->l = l;
    return dibs_lock_info_get(l, &s->info);
}

static dibs_err look_hash(struct lock_query *k, struct lock_row *s)
{
    dibs_err err = dibs_lock_info_get(k->l, &s->info);
    dibs_lock *plain;

    if (err != DIBS_ERR_AUTH || dibs_lock_new(k->c, s->name, &plain) != DIBS_OK)
        return err;
    /* No right to look at a queue; perhaps one to look at the lock. */
    dibs_lock_free(k->l);
    k->l = plain;
    return dibs_lock_info_get(k->l, &s->info);
}

dibs_err query_info(struct lock_query *k, struct lock_row *s)
{
    return look_kind(k, s, look_hash(k, s));
}

dibs_err query_count(dibs_client *c, struct lock_row *s)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_lock *l;
    dibs_err err = dibs_fair_lock_new_bytes(c, s->name, s->len, &l);

    if (err != DIBS_OK)
        return err;
    err = dibs_lock_listeners(l, &s->waiting);
    s->counted = err == DIBS_OK;
    if (s->counted) /* who may not look at queues has no fair locks */
        err = dibs_lock_info_get(l, &info);
    s->queued = info.waiters;
    dibs_lock_free(l);
    return err == DIBS_ERR_AUTH || err == DIBS_ERR_WRONGTYPE ? DIBS_OK : err;
}

bool query_has_counts(const struct lock_row *s)
{
    return s->counted &&
           (!kind_counted(s->info.kind) || s->info.kind == DIBS_KIND_SLOTS);
}

/* The lock is looked at once more, behind its value: if that is as we know it,
 * so was the value. */
char *query_value(dibs_client *c, const struct lock_row *s)
{
    dibs_lock_info now = DIBS_LOCK_INFO_INIT;
    char value[DIBS_VALUE_MAX + 1];
    dibs_lock *l = NULL;

    if (s->info.published == 0 ||
        dibs_lock_new_bytes(c, s->name, s->len, &l) != DIBS_OK)
        return NULL;
    bool same = dibs_lock_published(l, value, sizeof value) == DIBS_OK &&
                dibs_lock_info_get(l, &now) == DIBS_OK &&
                now.published == s->info.published &&
                strcmp(now.owner, s->info.owner) == 0;
    dibs_lock_free(l);
    return same ? strdup(value) : NULL;
}

/* Slots are held by several, each alone in its own. */
const char *query_mode(dibs_kind kind, dibs_mode mode)
{
    if (kind == DIBS_KIND_SLOTS && mode != DIBS_MODE_NONE)
        return "slots";
    switch (mode) { /* no default: the compiler names a missing case */
    case DIBS_MODE_NONE:
        return "free";
    case DIBS_MODE_EXCLUSIVE:
        return "exclusive";
    case DIBS_MODE_READ:
        return "read";
    case DIBS_MODE_WRITE:
        return "write";
    }
    return "unknown";
}

const char *query_left(int64_t ttl_ms, char buf[OUT_SPAN_MAX])
{
    return ttl_ms < 0 ? "no end" : out_span(ttl_ms, buf);
}

void query_json(struct json *j, const struct lock_row *s)
{
    const dibs_lock_info *i = &s->info;

    json_bytes(j, "name", s->name, s->len);
    json_bool(j, "locked", i->locked);
    kind_json(j, i);
    json_text(j, "mode",
              i->locked && i->mode != DIBS_MODE_NONE
                  ? query_mode(i->kind, i->mode)
                  : NULL);
    json_text(j, "owner", i->locked && i->owner[0] ? i->owner : NULL);
    who_json(j, &s->who);
    json_int(j, "owners", (int64_t)i->owners);
    json_int(j, "holds", i->holds);
    if (i->locked && i->ttl_ms >= 0)
        json_int(j, "ttl_ms", i->ttl_ms);
    else
        json_null(j, "ttl_ms");
    if (query_has_counts(s))
        json_int(j, "waiters", (int64_t)(s->queued + s->waiting));
    else
        json_null(j, "waiters");
}
