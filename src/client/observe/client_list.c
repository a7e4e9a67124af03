/* SPDX-License-Identifier: MIT
 *
 * client_list.c - dibs_client_who: one CLIENT LIST for many owners.
 *
 * Thread  app; answers also on io.
 * Locks   none.
 *
 * How     The UUIDs of the owners are sorted. The list is copied on io and read
 *         on the caller's thread, where each line takes a binary search. So a
 *         server with many connections keeps nobody else from working.
 *
 *         In a cluster a client is connected to the nodes whose locks it uses.
 *         All nodes that have slots are asked, until every owner is known.
 */
#include "base/api_args.h"
#include "base/mem.h"
#include "client/command/sync_query.h"
#include "client/observe/client_name.h"

#include <stdlib.h>
#include <string.h>

struct asked {
    char id[DIBS__WHO_ID_LEN + 1];
    size_t place; /* in the caller's array */
    struct dibs__client_info who;
};

struct roll {
    struct dibs__sync_query ask;
    struct dibs__route to;
    struct dibs__buf text;
    struct asked *rows; /* by UUID */
    size_t count;
    size_t unknown; /* of the rows */
};

static void roll_write(struct dibs__command *cmd, struct dibs__buf *out,
                       bool whole)
{
    (void)cmd;
    (void)whole;
    dibs__client_list_command(out);
}

static dibs_err roll_take(struct dibs__sync_query *ask, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct roll *r = DIBS_OF(ask, struct roll, ask);

    if (err != DIBS_OK)
        return err;
    dibs__buf_add(&r->text, reply->text, reply->len);
    return dibs__buf_ok(&r->text) ? DIBS_OK : DIBS_ERR_NOMEM;
}

static int order_ids(const void *a, const void *b)
{
    const struct asked *x = a, *y = b;

    return strcmp(x->id, y->id);
}

static int order_places(const void *a, const void *b)
{
    const struct asked *x = a, *y = b;

    return (x->place > y->place) - (x->place < y->place);
}

/* Several owners may have one UUID: all of them become known. */
static void enter_line(struct roll *r, const struct dibs__client_list_row *line)
{
    struct asked key;

    memcpy(key.id, line->id, sizeof key.id);
    struct asked *at =
        bsearch(&key, r->rows, r->count, sizeof *r->rows, order_ids);
    if (!at)
        return;
    while (at > r->rows && order_ids(at - 1, &key) == 0)
        at--;
    for (; at < r->rows + r->count && order_ids(at, &key) == 0; at++) {
        r->unknown -= !at->who.known;
        dibs__client_info_merge(&at->who, &line->who);
    }
}

static void read_roll(struct roll *r)
{
    const char *at = r->text.data, *end = at + r->text.len;
    struct dibs__client_list_row line;

    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);

        if (dibs__client_list_parse(at, len, &line))
            enter_line(r, &line);
        at += len + 1;
    }
}

static dibs_err call_roll(dibs_client *c, struct roll *r)
{
    dibs_err err = dibs__client_enter(c);

    if (err != DIBS_OK)
        return err;
    dibs__buf_cut(&r->text, 0);
    r->ask.call.write = roll_write;
    r->ask.call.expects = 1u << REPLY_TEXT;
    r->ask.call.slot = r->to.server ? -1 : 0;
    r->ask.call.quiet = true; /* who asks can do without */
    r->ask.take = roll_take;
    err = dibs__sync_query_run(c, r->to, &r->ask);
    dibs__client_leave(c);
    if (err == DIBS_OK && r->text.len > 0)
        read_roll(r);
    return err;
}

/* The first answer comes from the node with slot 0; after it the others are
 * known. */
static dibs_err call_all(dibs_client *c, struct roll *r)
{
    r->to = c->route;
    dibs_err err = call_roll(c, r);

    for (unsigned i = 0; err == DIBS_OK && c->cluster && r->unknown > 0 &&
                         (r->to.server = dibs__cluster_nth(c->cluster, i));
         i++)
        if (dibs__cluster_serves(c->cluster, r->to.server))
            err = call_roll(c, r);
    return err;
}

/* Owners without a UUID are nobody that could be known. */
static void fill_rows(struct roll *r, const char *const owners[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct asked *row = &r->rows[r->count];

        *row = (struct asked){.place = i};
        if (owners[i] && dibs__client_id_of_owner(owners[i], row->id))
            r->count++;
    }
    r->unknown = r->count;
    qsort(r->rows, r->count, sizeof *r->rows, order_ids);
}

static void tell_rows(struct roll *r, dibs_who_fn fn, void *arg)
{
    qsort(r->rows, r->count, sizeof *r->rows, order_places);
    for (size_t i = 0; i < r->count; i++) {
        dibs_who who = dibs__client_info_public(&r->rows[i].who);

        if (r->rows[i].who.known && !fn(r->rows[i].place, &who, arg))
            return;
    }
}

static dibs_err find_owners(dibs_client *c, const char *const owners[],
                            size_t count, dibs_who_fn fn, void *arg)
{
    struct roll r = {.count = 0};
    dibs_err err = DIBS_OK;

    if (dibs__check_not_null("client", c) ||
        dibs__check_not_null("fn", fn ? c : NULL) ||
        dibs__check_not_null("owners", count > 0 ? (const void *)owners : c))
        return dibs__client_report_invalid_arg(c);
    if (dibs__client_is_forked_copy(c))
        return DIBS_ERR_FORKED;
    r.rows = dibs__calloc(count + 1, sizeof *r.rows);
    if (!r.rows)
        return DIBS_ERR_NOMEM;
    fill_rows(&r, owners, count);
    if (r.count > 0)
        err = call_all(c, &r);
    tell_rows(&r, fn, arg); /* what is known, also after an error */
    dibs__free(r.rows);
    dibs__buf_clear(&r.text);
    return err;
}

dibs_err dibs_client_who(dibs_client *c, const char *const owners[],
                         size_t count, dibs_who_fn fn, void *arg)
{
    return DIBS__API_CALL(find_owners(c, owners, count, fn, arg));
}
