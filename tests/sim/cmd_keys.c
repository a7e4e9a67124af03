/* SPDX-License-Identifier: MIT
 *
 * cmd_keys.c - commands on keys of any type: whether they are there, of which
 * type, all of them, away with them.
 *
 * SCAN's cursor is the serial number of the last key given, so what is there
 * all the time is given once, whatever comes and goes meanwhile. A real server
 * has another order; nobody may count on one.
 */
#include "sim/impl.h"

static void cmd_del(struct sr_call *k)
{
    int64_t gone = 0;

    for (int i = 1; i < k->argc; i++)
        gone += sr__key_del(k, k->argv[i]);
    sr__reply_int(k, gone);
}

static void cmd_exists(struct sr_call *k)
{
    int64_t there = 0;

    for (int i = 1; i < k->argc; i++)
        there += sr__key(k, k->argv[i]) != NULL;
    sr__reply_int(k, there);
}

static void cmd_type(struct sr_call *k)
{
    const struct sr_value *v = sr__key(k, k->argv[1]);

    sr__reply_status(k, v ? sr__type_name(v->type) : "none");
}

static void cmd_dbsize(struct sr_call *k)
{
    sr__reply_int(k, (int64_t)k->s->db[k->c->db].count);
}

static void cmd_rename(struct sr_call *k)
{
    const struct sr_value *v = sr__key(k, k->argv[1]);

    if (!v) {
        sr__reply_error(k, "ERR no such key");
        return;
    }
    if (!sr__same(k->argv[1], k->argv[2])) {
        struct sr_value *copy = sr__value_copy(v);
        sr__key_del(k, k->argv[2]);
        sr__key_put(k, k->argv[2], copy);
        sr__key_del(k, k->argv[1]);
        sr__key_changed(k, k->argv[2]);
    }
    sr__reply_ok(k);
}

static void cmd_randomkey(struct sr_call *k)
{
    const struct sr_dict *db = &k->s->db[k->c->db];
    const struct sr_entry *e = db->first;

    if (!e) {
        sr__reply_nil(k);
        return;
    }
    for (uint64_t n = sr__random(k->s, db->count); n > 0; n--)
        e = e->next;
    sr__reply_str(k, e->key);
}

/* ---- all of them ------------------------------------------------------- */

static bool flush_words(struct sr_call *k)
{
    if (k->argc == 1 || (k->argc == 2 && (sr__is(k->argv[1], "async") ||
                                          sr__is(k->argv[1], "sync"))))
        return true;
    sr__reply_syntax(k);
    return false;
}

static void cmd_flushall(struct sr_call *k)
{
    if (!flush_words(k))
        return;
    sr__keys_flush(k, -1);
    sr__reply_ok(k);
}

static void cmd_flushdb(struct sr_call *k)
{
    if (!flush_words(k))
        return;
    sr__keys_flush(k, k->c->db);
    sr__reply_ok(k);
}

/* What lies between a cursor and the next: the keys that fit. */
struct scan {
    const struct sr_str *match; /* NULL = all */
    const char *type;           /* NULL = any */
    int64_t left;               /* keys to look at */
    struct sr_buf found;
    size_t count;
    uint64_t cursor; /* the last looked at; 0 = there are no more */
};

static void scan_db(struct sr_call *k, struct scan *sc)
{
    const struct sr_dict *db = &k->s->db[k->c->db];
    uint64_t after = sc->cursor;
    struct sr_entry *next;

    sc->cursor = 0;
    for (struct sr_entry *e = db->first; e; e = next) {
        next = e->next;
        if (e->serial <= after)
            continue;
        if (sc->left-- == 0)
            break;
        struct sr_str key = sr__copy(e->key);
        uint64_t serial = e->serial;
        const struct sr_value *v = sr__key(k, key); /* e may be gone */
        if (v && (!sc->match || sr__glob(*sc->match, key)) &&
            (!sc->type || sr__is(sr__view(sc->type), sr__type_name(v->type)))) {
            sr__out_bulk(&sc->found, key);
            sc->count++;
        }
        sr__str_free(&key);
        sc->cursor = next ? serial : 0;
    }
}

static bool scan_words(struct sr_call *k, struct scan *sc, char type_name[16])
{
    for (int i = 2; i < k->argc; i += 2) {
        if (i + 1 == k->argc) {
            sr__reply_syntax(k);
            return false;
        }
        struct sr_str to = k->argv[i + 1];
        if (sr__is(k->argv[i], "count")) {
            if (!sr__arg_int(k, i + 1, &sc->left))
                return false;
            if (sc->left < 1) {
                sr__reply_syntax(k);
                return false;
            }
        } else if (sr__is(k->argv[i], "match")) {
            sc->match = &k->argv[i + 1];
        } else if (sr__is(k->argv[i], "type")) {
            size_t n = to.n < 15 ? to.n : 15;
            for (size_t j = 0; j < n; j++)
                type_name[j] = to.p[j];
            type_name[n] = '\0';
            sc->type = type_name;
        } else {
            sr__reply_syntax(k);
            return false;
        }
    }
    return true;
}

static void cmd_scan(struct sr_call *k)
{
    struct scan sc = {.left = 10};
    char type_name[16];
    int64_t cursor;

    if (!sr__int(k->argv[1], &cursor) || cursor < 0) {
        sr__reply_error(k, "ERR invalid cursor");
        return;
    }
    if (!scan_words(k, &sc, type_name))
        return;
    sc.cursor = (uint64_t)cursor;
    scan_db(k, &sc);
    struct sr_buf text = {0};
    sr__buf_fmt(&text, "%llu", (unsigned long long)sc.cursor);
    sr__reply_array(k, 2);
    sr__reply_text(k, text.p);
    sr__reply_array(k, sc.count);
    sr__buf_add(k->out, sc.found.p, sc.found.n);
    sr__buf_free(&text);
    sr__buf_free(&sc.found);
}

static void cmd_keys(struct sr_call *k)
{
    struct scan sc = {.left = -1, .match = &k->argv[1]};

    scan_db(k, &sc);
    sr__reply_array(k, sc.count);
    sr__buf_add(k->out, sc.found.p, sc.found.n);
    sr__buf_free(&sc.found);
}

const struct sr_command sr__key_commands[] = {
    {"del", cmd_del, -2, SR_WRITE, 1, -1, 1},
    {"unlink", cmd_del, -2, SR_WRITE, 1, -1, 1},
    {"exists", cmd_exists, -2, SR_READ, 1, -1, 1},
    {"type", cmd_type, 2, SR_READ, 1, 1, 1},
    {"rename", cmd_rename, 3, SR_WRITE, 1, 2, 1},
    {"randomkey", cmd_randomkey, 1, SR_READ, 0, 0, 0},
    {"dbsize", cmd_dbsize, 1, SR_READ, 0, 0, 0},
    {"flushall", cmd_flushall, -1, SR_WRITE, 0, 0, 0},
    {"flushdb", cmd_flushdb, -1, SR_WRITE, 0, 0, 0},
    {"scan", cmd_scan, -2, SR_READ, 0, 0, 0},
    {"keys", cmd_keys, 2, SR_READ, 0, 0, 0},
    {0}};
