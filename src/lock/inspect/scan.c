/* SPDX-License-Identifier: MIT
 *
 * scan.c - all locks on a server, found by SCAN.
 *
 * Thread  app; answers also on io.
 * Locks   none.
 *
 * SCAN goes through the keys a page at a time and never stops the server for
 * long, whatever its size. A page may name a key twice, or one that is gone by
 * now; so each is read by itself, and what is no lock is left out. In a cluster
 * every server that has slots is scanned; a lock whose slot moves meanwhile may
 * come twice, or not at all. A server that does not answer is left out, and its
 * error is that of the call, when all others were scanned.
 *
 * Rounds  One for hashes, which locks are; the notes of a latch are a hash
 *         beside it. One for sorted sets: those of slots and of semaphores. The
 *         numbers themselves are not looked for: a server may have millions of
 *         strings.
 *
 * Names   The name of a key beside an object has the object's name in it. So
 *         the server finds more than what the pattern means, and each name is
 *         compared again here.
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
    struct dibs__sync_query ask;
    const char *pattern; /* or NULL */
    char *match;         /* what the server is asked for; or NULL */
    const char *type;    /* of keys, in this round */
    dibs_list_fn fn;
    void *arg;
    struct dibs__route to;
    char cursor[24];
    struct dibs__buf names; /* a length and a name, and so on */
};

static void scan_write(struct dibs__command *cmd, struct dibs__buf *out,
                       bool whole)
{
    struct scan *s = DIBS_OF(cmd, struct scan, ask.call);

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

static dibs_err scan_take(struct dibs__sync_query *ask, dibs_err err,
                          const struct dibs__reply *reply)
{
    return err == DIBS_OK ? scan_read(DIBS_OF(ask, struct scan, ask), reply)
                          : err;
}

static dibs_err next_page(dibs_client *c, struct scan *s)
{
    dibs_err err = dibs__client_enter(c);

    if (err != DIBS_OK)
        return err;
    dibs__buf_cut(&s->names, 0);
    s->ask.call.write = scan_write;
    s->ask.call.expects = 1u << REPLY_ARRAY;
    s->ask.call.slot = s->to.server ? -1 : 0;
    s->ask.take = scan_take;
    err = dibs__sync_query_run(c, s->to, &s->ask);
    dibs__client_leave(c);
    return err;
}

/* A UUID, a colon, a number, which may be negative with other clients. */
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

/* Keys beside an object, and what the object is then. */
static const struct beside {
    const char *type, *tail;
    bool braced; /* the name is in braces, whatever it is */
    dibs_kind kind;
} besides[] = {
    {"zset", ":timeout", false, DIBS_KIND_SLOTS},
    {"zset", ":dibs_held", false, DIBS_KIND_SEMAPHORE},
    {"hash", ":dibs_down", true, DIBS_KIND_LATCH},
};
#define BESIDES (sizeof besides / sizeof *besides)

/* The object's name in the name of a key beside it. NULL: it is none. */
static const char *object_name(const char *key, size_t *len,
                               const struct beside *b)
{
    size_t tail = strlen(b->tail);

    if (*len <= tail || memcmp(key + *len - tail, b->tail, tail) != 0)
        return NULL;
    size_t n = *len - tail;
    bool braces = n > 2 && key[0] == '{' && key[n - 1] == '}';
    if (braces && (b->braced || !memchr(key + 1, '{', n - 2))) {
        *len = n - 2;
        return key + 1;
    }
    *len = n;
    return b->braced || !memchr(key, '{', n) ? NULL : key;
}

static bool is_asked_for(const struct scan *s, const char *name, size_t len)
{
    return !s->pattern || dibs__glob_match(s->pattern, name, len);
}

/* False: enough. What is not ours to read is left out. */
static bool show_object(dibs_client *c, const struct scan *s, const char *name,
                        size_t len, dibs_kind kind, dibs_err *err)
{
    dibs_lock_info info;
    char copy[DIBS_NAME_MAX + 1]; /* with a NUL behind it */

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

/* False: enough. */
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
    if (*err == DIBS_ERR_WRONGTYPE) { /* it is something else by now */
        *err = DIBS_OK;
        more = true;
    } else if (more && info.locked && is_owner(info.owner)) {
        more = s->fn(l->entry->name, len, &info, s->arg);
    }
    dibs_lock_free(l);
    return more;
}

/* False: enough. */
static bool show_key(dibs_client *c, const struct scan *s, const char *key,
                     size_t len, dibs_err *err)
{
    const char *name = NULL;
    size_t name_len = len, i;

    for (i = 0; i < BESIDES && !name; i++) {
        name_len = len;
        if (strcmp(besides[i].type, s->type) == 0)
            name = object_name(key, &name_len, &besides[i]);
    }
    if (!name && strcmp(s->type, "hash") != 0)
        return true;
    if (!name) {
        name = key;
        name_len = len;
    }
    if (name_len == 0 || name_len > DIBS_NAME_MAX ||
        !is_asked_for(s, name, name_len))
        return true;
    if (c->cluster && !dibs__hash_slot_single(name, name_len))
        return true; /* not one of ours, nor of Redisson's */
    return name == key && name_len == len
               ? show_lock(c, s, name, name_len, err)
               : show_object(c, s, name, name_len, besides[i - 1].kind, err);
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

/* All of one type. False: enough, or *err says why. */
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

/* All of one server. */
static bool scan_server(dibs_client *c, struct scan *s, dibs_err *err)
{
    return scan_type(c, s, "hash", err) && scan_type(c, s, "zset", err);
}

/* Is it the trouble of one server? Others may answer. */
static bool is_of_server(dibs_err err)
{
    return err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN ||
           err == DIBS_ERR_SERVER || err == DIBS_ERR_TLS;
}

/* Keeps the first error with its text: later calls that end well empty it. */
static void keep_first(dibs_err *first, char why[DIBS__REASON_MAX],
                       dibs_err err)
{
    if (*first != DIBS_OK || err == DIBS_OK)
        return;
    *first = dibs__reason_end(err);
    snprintf(why, DIBS__REASON_MAX, "%s", dibs_error_text());
}

/* The first page is asked of the server with slot 0 and not used: after that
 * the servers of the cluster are known, unless none answers. */
static dibs_err scan_cluster(dibs_client *c, struct scan *s)
{
    char why[DIBS__REASON_MAX] = "";
    dibs_err first = DIBS_OK, err = next_page(c, s);
    bool more = err == DIBS_OK || is_of_server(err);

    keep_first(&first, why, err);
    for (unsigned i = 0;
         more && (s->to.server = dibs__cluster_nth(c->cluster, i)); i++) {
        if (!dibs__cluster_serves(c->cluster, s->to.server))
            continue;
        more = scan_server(c, s, &err) || is_of_server(err);
        keep_first(&first, why, err);
    }
    if (first != DIBS_OK && why[0])
        dibs__reason_set(first, "%s", why);
    return first;
}

/* What holds every key that the pattern means, and more. False: no memory. */
static bool make_match(struct scan *s)
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
    s.to = c->route;
    if (!make_match(&s))
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
