/* SPDX-License-Identifier: MIT
 *
 * client_list.c - dibs_client_who: one CLIENT LIST for many owners.
 *
 * Thread  app; answers also on io.
 * Locks   none.
 *
 * How     The UUIDs of the owners are sorted. The reply is copied on io and
 *         parsed on the caller's thread, with a binary search per line. So a
 *         server with many connections does not block io.
 *
 *         In a cluster a client is connected only to the nodes whose locks it
 *         uses. All nodes that have slots are queried until every owner is
 *         known.
 */
#include "base/api_args.h"
#include "base/mem.h"
#include "client/command/sync_query.h"
#include "client/observe/client_name.h"

#include <stdlib.h>
#include <string.h>

struct owner_row {
    char id[DIBS__CLIENT_ID_LEN + 1];
    size_t index; /* in the caller's array */
    struct dibs__client_info who;
};

struct client_list {
    struct dibs__sync_query ask;
    struct dibs__route to;
    struct dibs__buf text;
    struct owner_row *rows; /* sorted by UUID */
    size_t count;
    size_t unknown; /* rows without a result */
};

static void write_query(struct dibs__command *cmd, struct dibs__buf *out,
                        bool whole)
{
    (void)cmd;
    (void)whole;
    dibs__client_list_command(out);
}

static dibs_err copy_reply(struct dibs__sync_query *ask, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct client_list *list = DIBS_OF(ask, struct client_list, ask);

    if (err != DIBS_OK)
        return err;
    dibs__buf_add(&list->text, reply->text, reply->len);
    return dibs__buf_ok(&list->text) ? DIBS_OK : DIBS_ERR_NOMEM;
}

static int compare_ids(const void *a, const void *b)
{
    const struct owner_row *x = a, *y = b;

    return strcmp(x->id, y->id);
}

static int compare_indexes(const void *a, const void *b)
{
    const struct owner_row *x = a, *y = b;

    return (x->index > y->index) - (x->index < y->index);
}

/* Several owners may have the same UUID: all their rows are filled. */
static void match_line(struct client_list *list,
                       const struct dibs__client_list_row *line)
{
    struct owner_row key;

    memcpy(key.id, line->id, sizeof key.id);
    struct owner_row *at =
        bsearch(&key, list->rows, list->count, sizeof *list->rows, compare_ids);
    if (!at)
        return;
    while (at > list->rows && compare_ids(at - 1, &key) == 0)
        at--;
    for (; at < list->rows + list->count && compare_ids(at, &key) == 0; at++) {
        list->unknown -= !at->who.known;
        dibs__client_info_merge(&at->who, &line->who);
    }
}

static void parse_list(struct client_list *list)
{
    const char *at = list->text.data, *end = at + list->text.len;
    struct dibs__client_list_row line;

    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);

        if (dibs__client_list_parse(at, len, &line))
            match_line(list, &line);
        at += len + 1;
    }
}

static dibs_err query_client_list(dibs_client *c, struct client_list *list)
{
    dibs_err err = dibs__client_enter(c);

    if (err != DIBS_OK)
        return err;
    dibs__buf_cut(&list->text, 0);
    list->ask.cmd.write = write_query;
    list->ask.cmd.expects = 1u << REPLY_TEXT;
    list->ask.cmd.slot = list->to.server ? -1 : 0;
    list->ask.cmd.quiet = true; /* the result is optional for the caller */
    list->ask.read_reply = copy_reply;
    err = dibs__sync_query_run(c, list->to, &list->ask);
    dibs__client_leave(c);
    if (err == DIBS_OK && list->text.len > 0)
        parse_list(list);
    return err;
}

/* The first query goes to the node with slot 0, which makes the cluster load
 * its node list. */
static dibs_err query_all_nodes(dibs_client *c, struct client_list *list)
{
    list->to = c->route;
    dibs_err err = query_client_list(c, list);

    for (unsigned i = 0; err == DIBS_OK && c->cluster && list->unknown > 0 &&
                         (list->to.server = dibs__cluster_nth(c->cluster, i));
         i++)
        if (dibs__cluster_serves(c->cluster, list->to.server))
            err = query_client_list(c, list);
    return err;
}

/* Owners that do not begin with a UUID get no row. */
static void fill_rows(struct client_list *list, const char *const owners[],
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct owner_row *row = &list->rows[list->count];

        *row = (struct owner_row){.index = i};
        if (owners[i] && dibs__client_id_of_owner(owners[i], row->id))
            list->count++;
    }
    list->unknown = list->count;
    qsort(list->rows, list->count, sizeof *list->rows, compare_ids);
}

static void report_rows(struct client_list *list, dibs_who_fn fn, void *arg)
{
    qsort(list->rows, list->count, sizeof *list->rows, compare_indexes);
    for (size_t i = 0; i < list->count; i++) {
        dibs_who who = dibs__client_info_public(&list->rows[i].who);

        if (list->rows[i].who.known && !fn(list->rows[i].index, &who, arg))
            return;
    }
}

static dibs_err find_owners(dibs_client *c, const char *const owners[],
                            size_t count, dibs_who_fn fn, void *arg)
{
    struct client_list list = {.count = 0};
    dibs_err err = DIBS_OK;

    if (dibs__check_not_null("client", c) ||
        dibs__check_not_null("fn", fn ? c : NULL) ||
        dibs__check_not_null("owners", count > 0 ? (const void *)owners : c))
        return dibs__client_report_invalid_arg(c);
    if (dibs__client_is_forked_copy(c))
        return DIBS_ERR_FORKED;
    list.rows = dibs__calloc(count + 1, sizeof *list.rows);
    if (!list.rows)
        return DIBS_ERR_NOMEM;
    fill_rows(&list, owners, count);
    if (list.count > 0)
        err = query_all_nodes(c, &list);
    report_rows(&list, fn, arg); /* partial results, also after an error */
    dibs__free(list.rows);
    dibs__buf_clear(&list.text);
    return err;
}

dibs_err dibs_client_who(dibs_client *c, const char *const owners[],
                         size_t count, dibs_who_fn fn, void *arg)
{
    return DIBS__API_CALL(find_owners(c, owners, count, fn, arg));
}
