/* SPDX-License-Identifier: MIT
 *
 * list.c - all locks on a server, found by SCAN.
 *
 * Thread  app; answers also on io.
 * Locks   none.
 *
 * SCAN goes through the keys a page at a time and never stops the server for
 * long, whatever its size. A page may name a key twice, or one that is gone by
 * now; so each is read by itself, and what is no lock is left out. In a cluster
 * every server that has slots is scanned; a lock whose slot moves meanwhile may
 * come twice, or not at all.
 */
#include "base/args.h"
#include "base/mem.h"
#include "client/query.h"
#include "lock/lock.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PAGE "200"

struct scan {
    struct dibs__question ask;
    const char *pattern;
    struct dibs__route to;
    char cursor[24];
    struct dibs__buf names; /* a length and a name, and so on */
};

static void scan_write(struct dibs__call *call, struct dibs__buf *out,
                       bool whole)
{
    struct scan *s = DIBS_OF(call, struct scan, ask.call);

    (void)whole;
    dibs__buf_array(out, s->pattern ? 8 : 6);
    dibs__buf_arg_text(out, "SCAN");
    dibs__buf_arg_text(out, s->cursor);
    dibs__buf_arg_text(out, "COUNT");
    dibs__buf_arg_text(out, PAGE);
    dibs__buf_arg_text(out, "TYPE");
    dibs__buf_arg_text(out, "hash");
    if (s->pattern) {
        dibs__buf_arg_text(out, "MATCH");
        dibs__buf_arg_text(out, s->pattern);
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

static dibs_err scan_take(struct dibs__question *ask, dibs_err err,
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
    err = dibs__question_ask(c, s->to, &s->ask);
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

/* False: enough. */
static bool show_lock(dibs_client *c, const char *name, size_t len,
                      dibs_list_fn fn, void *arg, dibs_err *err)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_lock *l;

    if (len == 0 || len > DIBS_NAME_MAX)
        return true;
    if (c->cluster && !dibs__slot_fits(name, len))
        return true; /* not one of ours, nor of Redisson's */
    *err = dibs_lock_new_bytes(c, name, len, &l);
    if (*err != DIBS_OK)
        return false;
    *err = dibs_lock_info_get(l, &info);
    bool more = *err == DIBS_OK;
    if (*err == DIBS_ERR_WRONGTYPE) { /* it is something else by now */
        *err = DIBS_OK;
        more = true;
    } else if (more && info.locked && is_owner(info.owner)) {
        more = fn(l->line->name, len, &info, arg);
    }
    dibs_lock_free(l);
    return more;
}

static bool show_scan_page(dibs_client *c, const struct scan *s,
                           dibs_list_fn fn, void *arg, dibs_err *err)
{
    size_t at = 0, len;

    while (at < s->names.len) {
        memcpy(&len, s->names.data + at, sizeof len);
        at += sizeof len;
        if (!show_lock(c, s->names.data + at, len, fn, arg, err))
            return false;
        at += len;
    }
    return true;
}

/* All of one server. False: enough, or *err says why. */
static bool scan_server(dibs_client *c, struct scan *s, dibs_list_fn fn,
                        void *arg, dibs_err *err)
{
    bool more = true;

    strcpy(s->cursor, "0");
    do {
        *err = next_page(c, s);
        more = *err == DIBS_OK && show_scan_page(c, s, fn, arg, err);
    } while (more && strcmp(s->cursor, "0") != 0);
    return more;
}

/* The first page is asked of the server with slot 0 and not used: after that
 * the servers of the cluster are known. */
static dibs_err scan_cluster(dibs_client *c, struct scan *s, dibs_list_fn fn,
                             void *arg)
{
    dibs_err err = next_page(c, s);
    bool more = err == DIBS_OK;

    for (unsigned i = 0;
         more && (s->to.server = dibs__cluster_nth(c->cluster, i)); i++)
        if (dibs__cluster_serves(c->cluster, s->to.server))
            more = scan_server(c, s, fn, arg, &err);
    return err;
}

static dibs_err list_all(dibs_client *c, const char *pattern, dibs_list_fn fn,
                         void *arg)
{
    struct scan s = {.pattern = pattern, .cursor = "0"};
    dibs_err err = DIBS_OK;

    if (dibs__check_given("client", c) ||
        dibs__check_given("fn", fn ? c : NULL))
        return dibs__client_refuse(c);
    if (dibs__client_foreign(c))
        return DIBS_ERR_FORKED;
    s.to = c->route;
    if (c->cluster)
        err = scan_cluster(c, &s, fn, arg);
    else
        scan_server(c, &s, fn, arg, &err);
    dibs__buf_clear(&s.names);
    return err;
}

dibs_err dibs_client_list(dibs_client *c, const char *pattern, dibs_list_fn fn,
                          void *arg)
{
    return DIBS__TOLD(list_all(c, pattern, fn, arg));
}
