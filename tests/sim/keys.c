/* SPDX-License-Identifier: MIT
 *
 * keys.c - the keyspace: looking, changing, expiry.
 *
 * A key ends when its time is over, not when it is deleted: a command that
 * reads it finds nothing. On a master that read deletes it, sends DEL to the
 * replicas and a message to the sessions that track it. A replica deletes
 * nothing by itself; its clients see no key, its master's commands still do.
 * While clients are paused nothing is deleted, either, so that the data stand
 * still.
 *
 * Every change goes through sr__key_changed.
 */
#include "sim/impl.h"

#include <stdlib.h>
#include <string.h>

static struct sr_dict *db_of(struct sr_call *k)
{
    return &k->s->db[k->c->db];
}

/* ---- ends that came sooner than it was said ---------------------------- */

#define SOONER_MS 10

/* When a hash was to end, as far as somebody may have seen. It may have been
 * deleted and made anew since. For the invariant checker. */
struct sr_promise {
    int64_t end;
    bool sooner; /* it ends before that */
    bool ended;  /* and so it did; it is not there since */
    bool silent; /* it expired; it is not there since */
};

void sr__key_promised(struct sr_call *k, struct sr_str key, int64_t end)
{
    struct sr_promise *p = sr__dict_get(&k->s->promised, key);

    if (!p) {
        p = sr__alloc(sizeof *p);
        sr__dict_add(&k->s->promised, key, p);
    }
    p->sooner = p->end > k->s->now && end < p->end - SOONER_MS;
    if (!p->sooner)
        p->end = end;
}

static void key_ended(struct sr_server *s, struct sr_str key, bool by_itself)
{
    struct sr_promise *p = sr__dict_get(&s->promised, key);

    if (!p)
        return;
    p->ended = by_itself && p->sooner;
    p->silent = by_itself;
}

bool sr_ended_sooner(const struct sr_server *s, const char *key)
{
    const struct sr_promise *p = sr__dict_get(&s->promised, sr__view(key));

    return p && p->ended;
}

/* ---- looks that change nothing ----------------------------------------- */

static const struct sr_value *peek(const struct sr_server *s, const char *key)
{
    return sr__dict_get(&s->db[0], sr__view(key));
}

static bool is_over(const struct sr_server *s, const struct sr_value *v)
{
    return v->expires >= 0 &&
           s->config.now_us(s->config.arg) / 1000 > v->expires;
}

bool sr_has(const struct sr_server *s, const char *key)
{
    const struct sr_value *v = peek(s, key);

    return v && !is_over(s, v);
}

int64_t sr_number(const struct sr_server *s, const char *key, int64_t none)
{
    const struct sr_value *v = peek(s, key);
    char text[24];

    if (!v || is_over(s, v) || v->type != SR_STRING || v->str.n >= sizeof text)
        return none;
    memcpy(text, v->str.p, v->str.n);
    text[v->str.n] = '\0';
    return atoll(text);
}

bool sr_expired(const struct sr_server *s, const char *key)
{
    const struct sr_promise *p = sr__dict_get(&s->promised, sr__view(key));
    const struct sr_value *v = peek(s, key);

    return v ? is_over(s, v) : p && p->silent;
}

bool sr_field_is(const struct sr_server *s, const char *key, const char *field,
                 const char *value)
{
    const struct sr_value *v = peek(s, key);
    const struct sr_str *has = v && !is_over(s, v) && v->type == SR_HASH
                                   ? sr__hash_get(v, sr__view(field))
                                   : NULL;

    return has && (!value || (has->n == strlen(value) &&
                              memcmp(has->p, value, has->n) == 0));
}

/* ---- looking and changing ---------------------------------------------- */

/* Its time is over: away with it. */
static void expire_now(struct sr_server *s, int db, struct sr_str key)
{
    struct sr_str argv[2] = {sr__view("DEL"), sr__copy(key)};

    sr__value_free(sr__dict_del(&s->db[db], argv[1]));
    key_ended(s, argv[1], true);
    s->expired++;
    sr__repl_begin(s);
    sr__repl_add(s, db, 2, argv);
    sr__repl_end(s);
    sr__track_changed(s, argv[1]);
    sr__str_free(&argv[1]);
}

struct sr_value *sr__key(struct sr_call *k, struct sr_str key)
{
    struct sr_server *s = k->s;
    struct sr_value *v = sr__dict_get(db_of(k), key);

    if (!v || v->expires < 0 || s->now <= v->expires)
        return v;
    if (s->replica)
        return k->c->is_master ? v : NULL;
    if (s->pause_until <= s->now)
        expire_now(s, k->c->db, key);
    return NULL;
}

bool sr__key_of(struct sr_call *k, struct sr_str key, enum sr_type type,
                struct sr_value **out)
{
    *out = sr__key(k, key);
    if (!*out || (*out)->type == type)
        return true;
    sr__reply_wrongtype(k);
    return false;
}

void sr__key_put(struct sr_call *k, struct sr_str key, struct sr_value *v)
{
    struct sr_entry *e = sr__dict_find(db_of(k), key);

    if (e) {
        sr__value_free(e->val);
        e->val = v;
    } else {
        sr__dict_add(db_of(k), key, v);
        key_ended(k->s, key, false);
    }
}

struct sr_value *sr__key_make(struct sr_call *k, struct sr_str key,
                              enum sr_type type)
{
    struct sr_value *v = sr__value_new(type);

    sr__key_put(k, key, v);
    return v;
}

void sr__key_changed(struct sr_call *k, struct sr_str key)
{
    struct sr_value *v = sr__dict_get(db_of(k), key);

    if (v && sr__value_size(v) == 0)
        sr__value_free(sr__dict_del(db_of(k), key));
    k->changed = true;
    sr__track_changed(k->s, key);
}

bool sr__key_del(struct sr_call *k, struct sr_str key)
{
    if (!sr__key(k, key))
        return false;
    sr__value_free(sr__dict_del(db_of(k), key));
    sr__key_changed(k, key);
    return true;
}

/* ---- all of them ------------------------------------------------------- */

void sr__keys_flush(struct sr_call *k, int db)
{
    for (int i = 0; i < SR_DBS; i++)
        if (db < 0 || db == i)
            sr__dict_free(&k->s->db[i], sr__value_free);
    k->changed = true;
    sr__track_flushed(k->s);
}

void sr__keys_free(struct sr_server *s)
{
    for (int i = 0; i < SR_DBS; i++)
        sr__dict_free(&s->db[i], sr__value_free);
    sr__dict_free(&s->promised, free);
}

void sr__keys_expire(struct sr_server *s)
{
    if (s->replica || s->pause_until > s->now)
        return;
    for (int i = 0; i < SR_DBS; i++)
        for (struct sr_entry *e = s->db[i].first, *next; e; e = next) {
            const struct sr_value *v = e->val;
            next = e->next;
            if (v->expires >= 0 && s->now > v->expires)
                expire_now(s, i, e->key);
        }
}

int64_t sr__keys_next_expiry(const struct sr_server *s)
{
    int64_t first = -1;

    for (int i = 0; i < SR_DBS && !s->replica; i++)
        for (struct sr_entry *e = s->db[i].first; e; e = e->next) {
            const struct sr_value *v = e->val;
            if (v->expires >= 0 && (first < 0 || v->expires + 1 < first))
                first = v->expires + 1;
        }
    return first;
}

size_t sr_keys(const struct sr_server *s)
{
    size_t n = 0;

    for (int i = 0; i < SR_DBS; i++)
        n += s->db[i].count;
    return n;
}

bool sr_evict(struct sr_server *s, int db, const char *key)
{
    struct sr_str argv[2] = {sr__view("DEL"), sr__view(key)};

    sr__clock(s);
    if (!sr__dict_get(&s->db[db], argv[1]))
        return false;
    sr__value_free(sr__dict_del(&s->db[db], argv[1]));
    s->evicted++;
    sr__repl_begin(s);
    sr__repl_add(s, db, 2, argv);
    sr__repl_end(s);
    sr__track_changed(s, argv[1]);
    return true;
}

/* ---- copies ------------------------------------------------------------ */

struct sr_snapshot {
    struct sr_dict db[SR_DBS];
};

static void copy_all(const struct sr_dict from[], struct sr_dict to[])
{
    for (int i = 0; i < SR_DBS; i++)
        for (const struct sr_entry *e = from[i].first; e; e = e->next)
            sr__dict_add(&to[i], e->key, sr__value_copy(e->val));
}

struct sr_snapshot *sr_snapshot(const struct sr_server *s)
{
    struct sr_snapshot *snap = sr__alloc(sizeof *snap);

    copy_all(s->db, snap->db);
    return snap;
}

void sr_snapshot_free(struct sr_snapshot *snap)
{
    for (int i = 0; snap && i < SR_DBS; i++)
        sr__dict_free(&snap->db[i], sr__value_free);
    free(snap);
}

void sr__keys_load(struct sr_server *s, const struct sr_snapshot *snap)
{
    sr__keys_free(s);
    if (snap)
        copy_all(snap->db, s->db);
}
