/* SPDX-License-Identifier: MIT
 *
 * scan.c - dibs_client_list: lists all objects of a server by SCAN.
 *
 * Thread  app; replies also on io.
 * Locks   none.
 *
 * SCAN iterates the keys a page at a time and never blocks the server for long,
 * whatever the number of keys. A page may name a key twice, or one that does
 * not exist any more; so each key is read again, and keys that are no lock are
 * skipped. In a cluster every server that has slots is scanned; a lock whose
 * slot moves meanwhile may be reported twice or not at all. A server that does
 * not reply is skipped; its error is returned after the others were scanned.
 *
 * Passes  One over hashes: locks, and the hash beside a latch. One over sorted
 *         sets: those beside slots locks and semaphores. Strings are not
 *         scanned, since a server may have millions of them.
 *
 * Names   A side key's name contains the object's name. MATCH is given the
 *         pattern with '*' on both ends, so it also returns keys whose object
 *         does not match; each object's name is matched again here.
 */
#include "base/api_args.h"
#include "base/error_text.h"
#include "base/glob.h"
#include "base/mem.h"
#include "client/command/sync_query.h"
#include "lock/inspect/object_type.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PAGE "200"

struct scan {
    struct dibs__sync_query query;
    const char *pattern; /* or NULL */
    char *match;         /* argument of MATCH; or NULL */
    const char *type;    /* argument of TYPE in this pass */
    dibs_list_fn fn;
    void *arg;
    struct dibs__route route;
    char cursor[24];
    struct dibs__buf names; /* for each key its length (size_t) and name */
};

static void scan_write(struct dibs__command *cmd, struct dibs__buf *out,
                       bool whole)
{
    struct scan *s = DIBS_OF(cmd, struct scan, query.cmd);

    (void)whole;
    dibs__buf_array(out, s->match ? 8 : 6);
    dibs__buf_arg_text(out, "SCAN");
    dibs__buf_arg_text(out, s->cursor);
    dibs__buf_arg_text(out, "COUNT");
    dibs__buf_arg_text(out, PAGE);
    dibs__buf_arg_text(out, "TYPE");
    dibs__buf_arg_text(out, s->type);
    if (s->match) {
        dibs__buf_arg_text(out, "MATCH");
        dibs__buf_arg_text(out, s->match);
    }
}

static dibs_err scan_read(struct scan *s, const struct dibs__reply *r)
{
    const struct dibs__reply *cursor = dibs__reply_text(r, 0);

    if (!cursor || cursor->len >= sizeof s->cursor || r->len != 2 ||
        r->elem[1]->type != REPLY_ARRAY)
        return DIBS_ERR_PROTOCOL;
    memcpy(s->cursor, cursor->text, cursor->len + 1);
    for (size_t i = 0; i < r->elem[1]->len; i++) {
        const struct dibs__reply *name = dibs__reply_text(r->elem[1], i);
        if (!name)
            return DIBS_ERR_PROTOCOL;
        dibs__buf_add(&s->names, &name->len, sizeof name->len);
        dibs__buf_add(&s->names, name->text, name->len);
    }
    return dibs__buf_ok(&s->names) ? DIBS_OK : DIBS_ERR_NOMEM;
}

static dibs_err scan_take(struct dibs__sync_query *query, dibs_err err,
                          const struct dibs__reply *reply)
{
    return err == DIBS_OK ? scan_read(DIBS_OF(query, struct scan, query), reply)
                          : err;
}

static dibs_err next_page(dibs_client *c, struct scan *s)
{
    dibs_err err = dibs__client_enter(c);

    if (err != DIBS_OK)
        return err;
    dibs__buf_cut(&s->names, 0);
    s->query.cmd.write = scan_write;
    s->query.cmd.expects = 1u << REPLY_ARRAY;
    s->query.cmd.slot = s->route.server ? -1 : 0;
    s->query.read_reply = scan_take;
    err = dibs__sync_query_run(c, s->route, &s->query);
    dibs__client_leave(c);
    return err;
}

/* Returns whether the text begins with an owner: a UUID, a colon and a number,
 * which may be negative with other clients. */
static bool is_owner(const char *text)
{
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx:0";

    for (size_t i = 0; i < sizeof form - 1; i++) {
        if (form[i] == '0' && text[i] == '-')
            text++;
        unsigned char ch = (unsigned char)text[i];
        if (form[i] == 'x'   ? !isxdigit(ch)
            : form[i] == '0' ? !isdigit(ch)
                             : ch != form[i])
            return false;
    }
    return true;
}

/* ---- one key ----------------------------------------------------------- */

/* Side keys: keys beside an object, and the kind of that object. */
static const struct side_key {
    const char *type, *suffix;
    bool braced; /* the object's name is always in braces */
    dibs_kind kind;
} side_keys[] = {
    {"zset", ":timeout", false, DIBS_KIND_SLOTS},
    {"zset", ":dibs_held", false, DIBS_KIND_SEMAPHORE},
    {"hash", ":dibs_down", true, DIBS_KIND_LATCH},
};
#define SIDE_KEYS (sizeof side_keys / sizeof *side_keys)

/* Returns the object's name within a side key's name and sets *len; NULL: the
 * key is not this side key. */
static const char *object_name(const char *key, size_t *len,
                               const struct side_key *side)
{
    size_t suffix_len = strlen(side->suffix);

    if (*len <= suffix_len ||
        memcmp(key + *len - suffix_len, side->suffix, suffix_len) != 0)
        return NULL;
    size_t n = *len - suffix_len;
    bool has_braces = n > 2 && key[0] == '{' && key[n - 1] == '}';
    if (has_braces && (side->braced || !memchr(key + 1, '{', n - 2))) {
        *len = n - 2;
        return key + 1;
    }
    *len = n;
    return side->braced || !memchr(key, '{', n) ? NULL : key;
}

static bool matches_pattern(const struct scan *s, const char *name, size_t len)
{
    return !s->pattern || dibs__glob_match(s->pattern, name, len);
}

/* Passes the object to fn if it is of that kind. Skips one that this user may
 * not read. Returns false to stop: fn asked to, or *err is set. */
static bool show_object(dibs_client *c, const struct scan *s, const char *name,
                        size_t len, dibs_kind kind, dibs_err *err)
{
    dibs_lock_info info;
    char copy[DIBS_NAME_MAX + 1]; /* the name with a NUL */

    *err = dibs__object_inspect(c, name, len, &info);
    if (*err == DIBS_ERR_WRONGTYPE || *err == DIBS_ERR_AUTH) {
        *err = DIBS_OK;
        return true;
    }
    if (*err != DIBS_OK)
        return false;
    if (info.kind != kind || !info.locked)
        return true;
    memcpy(copy, name, len);
    copy[len] = '\0';
    return s->fn(copy, len, &info, s->arg);
}

/* Like show_object, for a lock. */
static bool show_lock(dibs_client *c, const struct scan *s, const char *name,
                      size_t len, dibs_err *err)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_lock *l;

    *err = dibs_lock_new_bytes(c, name, len, &l);
    if (*err != DIBS_OK)
        return false;
    *err = dibs_lock_info_get(l, &info);
    bool more = *err == DIBS_OK;
    if (*err == DIBS_ERR_WRONGTYPE) { /* not a lock any more */
        *err = DIBS_OK;
        more = true;
    } else if (more && info.locked && is_owner(info.owner)) {
        more = s->fn(l->entry->name, len, &info, s->arg);
    }
    dibs_lock_free(l);
    return more;
}

/* Shows the lock of this key, or the object of a side key. Like show_object. */
static bool show_key(dibs_client *c, const struct scan *s, const char *key,
                     size_t len, dibs_err *err)
{
    const char *name = NULL;
    size_t name_len = len, i;

    for (i = 0; i < SIDE_KEYS && !name; i++) {
        name_len = len;
        if (strcmp(side_keys[i].type, s->type) == 0)
            name = object_name(key, &name_len, &side_keys[i]);
    }
    if (!name && strcmp(s->type, "hash") != 0)
        return true;
    if (!name) {
        name = key;
        name_len = len;
    }
    if (name_len == 0 || name_len > DIBS_NAME_MAX ||
        !matches_pattern(s, name, name_len))
        return true;
    if (c->cluster && !dibs__hash_slot_single(name, name_len))
        return true; /* neither dibs nor Redisson creates such a lock */
    return name == key && name_len == len
               ? show_lock(c, s, name, name_len, err)
               : show_object(c, s, name, name_len, side_keys[i - 1].kind, err);
}

static bool show_scan_page(dibs_client *c, const struct scan *s, dibs_err *err)
{
    size_t at = 0, len;

    while (at < s->names.len) {
        memcpy(&len, s->names.data + at, sizeof len);
        at += sizeof len;
        if (!show_key(c, s, s->names.data + at, len, err))
            return false;
        at += len;
    }
    return true;
}

/* ---- all keys ---------------------------------------------------------- */

/* Scans all keys of one type. Returns false to stop, as show_object. */
static bool scan_type(dibs_client *c, struct scan *s, const char *type,
                      dibs_err *err)
{
    bool more = true;

    s->type = type;
    strcpy(s->cursor, "0");
    do {
        *err = next_page(c, s);
        more = *err == DIBS_OK && show_scan_page(c, s, err);
    } while (more && strcmp(s->cursor, "0") != 0);
    return more;
}

static bool scan_server(dibs_client *c, struct scan *s, dibs_err *err)
{
    return scan_type(c, s, "hash", err) && scan_type(c, s, "zset", err);
}

/* Returns whether the error concerns one server only: others may reply. */
static bool is_server_error(dibs_err err)
{
    return err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN ||
           err == DIBS_ERR_SERVER || err == DIBS_ERR_TLS;
}

/* Keeps the first error and its text, which a later successful call clears. */
static void keep_first(dibs_err *first, char why[DIBS__REASON_MAX],
                       dibs_err err)
{
    if (*first != DIBS_OK || err == DIBS_OK)
        return;
    *first = dibs__reason_end(err);
    snprintf(why, DIBS__REASON_MAX, "%s", dibs_error_text());
}

/* The first page is requested from the server of slot 0 and discarded: the
 * reply, or its redirection, makes the servers of the cluster known. */
static dibs_err scan_cluster(dibs_client *c, struct scan *s)
{
    char why[DIBS__REASON_MAX] = "";
    dibs_err first = DIBS_OK, err = next_page(c, s);
    bool more = err == DIBS_OK || is_server_error(err);

    keep_first(&first, why, err);
    for (unsigned i = 0;
         more && (s->route.server = dibs__cluster_nth(c->cluster, i)); i++) {
        if (!dibs__cluster_serves(c->cluster, s->route.server))
            continue;
        more = scan_server(c, s, &err) || is_server_error(err);
        keep_first(&first, why, err);
    }
    if (first != DIBS_OK && why[0])
        dibs__reason_set(first, "%s", why);
    return first;
}

/* Sets match to a pattern that all side keys of matching objects match. Returns
 * false if out of memory. */
static bool set_match(struct scan *s)
{
    if (!s->pattern || dibs__glob_open(s->pattern))
        return true; /* all keys */
    size_t size = strlen(s->pattern) + 3;
    s->match = dibs__malloc(size);
    if (s->match)
        snprintf(s->match, size, "*%s*", s->pattern);
    return s->match != NULL;
}

static dibs_err list_all(dibs_client *c, const char *pattern, dibs_list_fn fn,
                         void *arg)
{
    struct scan s = {.pattern = pattern,
                     .type = "hash",
                     .cursor = "0",
                     .fn = fn,
                     .arg = arg};
    dibs_err err = DIBS_OK;

    if (dibs__check_not_null("client", c) ||
        dibs__check_not_null("fn", fn ? c : NULL))
        return dibs__client_report_invalid_arg(c);
    if (dibs__client_is_forked_copy(c))
        return DIBS_ERR_FORKED;
    s.route = c->route;
    if (!set_match(&s))
        return DIBS_ERR_NOMEM;
    if (c->cluster)
        err = scan_cluster(c, &s);
    else
        scan_server(c, &s, &err);
    dibs__buf_clear(&s.names);
    dibs__free(s.match);
    return err;
}

dibs_err dibs_client_list(dibs_client *c, const char *pattern, dibs_list_fn fn,
                          void *arg)
{
    return DIBS__API_CALL(list_all(c, pattern, fn, arg));
}
