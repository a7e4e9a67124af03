/* SPDX-License-Identifier: MIT
 *
 * cmd_ls.c - dibs ls: the locks that are held.
 *
 * All are read first, then sorted and shown: a scan of a server that changes
 * may see a lock twice. Who the owners are is asked once, for all of them. How
 * many wait is asked for each, so only with --json.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "exits.h"
#include "failure.h"
#include "kinds.h"
#include "look.h"

#define LEASE_WIDTH 11 /* if something follows */

struct list {
    struct seen *rows;
    size_t n, room;
    bool failed;
    char partial[FAILURE_MAX]; /* why some are missing; or "" */
};

static bool add_row(const char *name, size_t len, const dibs_lock_info *info,
                    void *arg)
{
    struct list *all = arg;

    if (all->n == all->room) {
        size_t room = all->room > 0 ? 2 * all->room : 64;
        struct seen *rows = reallocarray(all->rows, room, sizeof *rows);
        if (!rows) {
            all->failed = true;
            return false;
        }
        all->rows = rows;
        all->room = room;
    }
    char *copy = malloc(len + 1);
    if (!copy) {
        all->failed = true;
        return false;
    }
    memcpy(copy, name, len);
    copy[len] = '\0';
    all->rows[all->n++] =
        (struct seen){.name = copy, .len = len, .info = *info};
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    int way = memcmp(x->name, y->name, x->len < y->len ? x->len : y->len);

    return way != 0 ? way : (x->len > y->len) - (x->len < y->len);
}

/* In order, and each name once: a scan of a changing server may see a lock
 * twice. */
static void sort_rows(struct list *all)
{
    size_t n = 0;

    if (all->n == 0)
        return;
    qsort(all->rows, all->n, sizeof *all->rows, by_name);
    for (size_t i = 1; i < all->n; i++) {
        if (by_name(&all->rows[n], &all->rows[i]) == 0)
            free(all->rows[i].name);
        else
            all->rows[++n] = all->rows[i];
    }
    all->n = n + 1;
}

static void list_json(const struct list *all)
{
    putchar('[');
    for (size_t i = 0; i < all->n; i++) {
        struct json j;

        fputs(i > 0 ? ",\n " : "", stdout);
        json_open(&j, stdout);
        look_json(&j, &all->rows[i]);
        json_close(&j);
    }
    if (all->partial[0]) {
        struct json j;

        fputs(",\n ", stdout); /* a part has at least one */
        json_open(&j, stdout);
        json_null(&j, "name");
        json_bool(&j, "partial", true);
        json_text(&j, "error", all->partial);
        json_close(&j);
    }
    puts("]");
}

/* Not every kind has owners. Of slots there may be many. */
static const char *shown_owner(const dibs_lock_info *info)
{
    return info->owner[0] ? info->owner : "-";
}

/* How many holders a lock with many has; of a latch, what is left. */
static int64_t shown_holds(const dibs_lock_info *info)
{
    if (info->kind == DIBS_KIND_LATCH)
        return info->left;
    return kind_counted(info->kind) ? (int64_t)info->owners : info->holds;
}

/* Columns as wide as what they hold; bytes count, which is right for nearly
 * every name. */
static void list_text(const struct list *all)
{
    bool colored = out_colored(stdout);
    size_t name_w = 4, owner_w = 5;
    char **names = calloc(all->n + 1, sizeof *names);
    char span[OUT_SPAN_MAX], who[WHO_TEXT_MAX];
    bool known = false;

    if (!names || all->n == 0)
        goto out;
    for (size_t i = 0; i < all->n; i++) {
        names[i] = out_printable(all->rows[i].name, all->rows[i].len);
        size_t w = names[i] ? strlen(names[i]) : 0;
        name_w = w > name_w ? w : name_w;
        known |= all->rows[i].who.known;
        w = strlen(shown_owner(&all->rows[i].info));
        owner_w = w > owner_w ? w : owner_w;
    }
    name_w = name_w > 60 ? 60 : name_w;
    printf("%s%-*s  %-*s  %5s  %-9s  %-*s%s%s\n",
           out_color(colored, COLOR_HEAD), (int)name_w, "NAME", (int)owner_w,
           "OWNER", "HOLDS", "MODE", known ? LEASE_WIDTH : 0, "LEASE",
           known ? "  WHO" : "", out_color(colored, COLOR_PLAIN));
    for (size_t i = 0; i < all->n; i++) {
        const dibs_lock_info *info = &all->rows[i].info;
        const char *shown = shown_owner(info);
        char *owner = out_printable(shown, strlen(shown));

        printf("%-*s  %-*s  %5" PRId64 "  %-9s  %-*s%s%s\n", (int)name_w,
               names[i] ? names[i] : "?", (int)owner_w, owner ? owner : "?",
               shown_holds(info),
               kind_counted(info->kind) ? kind_word(info->kind)
                                        : look_mode(info->kind, info->mode),
               all->rows[i].who.known ? LEASE_WIDTH : 0,
               look_left(info->ttl_ms, span),
               all->rows[i].who.known ? "  " : "",
               who_text(&all->rows[i].who, who));
        free(owner);
    }
out:
    for (size_t i = 0; names && i < all->n; i++)
        free(names[i]);
    free(names);
}

/* Who has each of them. */
static void name_all(dibs_client *c, struct list *all)
{
    const char **owners = calloc(all->n + 1, sizeof *owners);
    struct who *found = calloc(all->n + 1, sizeof *found);

    for (size_t i = 0; owners && found && i < all->n; i++)
        owners[i] = all->rows[i].info.owner;
    if (owners && found)
        who_ask(c, owners, found, all->n);
    for (size_t i = 0; owners && found && i < all->n; i++)
        all->rows[i].who = found[i];
    free(owners);
    free(found);
}

/* Who waits for each of them. A user that may not ask about one lock may not
 * ask about any. */
static dibs_err count_all(dibs_client *c, struct list *all)
{
    dibs_err err = DIBS_OK;

    for (size_t i = 0; i < all->n && err == DIBS_OK; i++) {
        err = look_count(c, &all->rows[i]);
        if (!all->rows[i].counted)
            break;
    }
    return err;
}

/* A server of a cluster did not answer: the list of the others is shown. */
static dibs_err take_part(struct list *all, dibs_err err)
{
    if (all->n == 0 || all->failed ||
        (err != DIBS_ERR_CONN && err != DIBS_ERR_UNKNOWN &&
         err != DIBS_ERR_SERVER && err != DIBS_ERR_TLS))
        return err;
    snprintf(all->partial, sizeof all->partial, "%s",
             *dibs_error_text() ? dibs_error_text() : dibs_strerror(err));
    out_tell(OUT_WARN, "partial", "the list is not complete: %s", all->partial);
    return DIBS_OK;
}

int cmd_ls(const struct args *a)
{
    const char *pattern = a->n_words > 0 ? a->words[0] : NULL;
    struct list all = {.rows = NULL};
    struct look k;
    int code = look_open(a, &k);

    if (code == EXIT_FINE && k.c) {
        dibs_err err = dibs_client_list(k.c, pattern, add_row, &all);

        err = err == DIBS_OK ? err : take_part(&all, err);
        if (err == DIBS_OK && !all.failed)
            sort_rows(&all);
        if (err == DIBS_OK && !all.failed)
            name_all(k.c, &all);
        if (err == DIBS_OK && a->json && !all.failed)
            err = count_all(k.c, &all);
        if (err != DIBS_OK || all.failed)
            code = look_failed("ls", all.failed ? DIBS_ERR_NOMEM : err);
    }
    if (code == EXIT_FINE)
        (a->json ? list_json : list_text)(&all);
    for (size_t i = 0; i < all.n; i++)
        free(all.rows[i].name);
    free(all.rows);
    look_close(&k);
    return out_finish(code);
}
