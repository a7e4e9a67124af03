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
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "args/lock_type.h"
#include "exit_codes.h"
#include "inspect/lock_query.h"
#include "output/error_advice.h"
#include "output/width.h"

#define GAP        2  /* between two columns */
#define COLS_USUAL 80 /* of a terminal of unknown width */
/* A column that is cut keeps so many columns of the terminal. */
#define WHO_GOOD  24 /* until NAME is cut, too */
#define NAME_MIN  12
#define WHO_MIN   5
#define NAME_PIPE 32 /* of NAME in a pipe */

struct list {
    struct lock_row *rows;
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
        struct lock_row *rows = reallocarray(all->rows, room, sizeof *rows);
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
        (struct lock_row){.name = copy, .len = len, .info = *info};
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct lock_row *x = a, *y = b;
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
        query_json(&j, &all->rows[i]);
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

/* ---- as text ----------------------------------------------------------- */

enum column {
    COL_NAME,
    COL_MODE,
    COL_HOLDERS, /* with -l */
    COL_HOLDS,   /* with -l: how often the first of them has it */
    COL_LEASE,
    COL_WHO,
    COL_OWNER, /* with -l */
    COLUMNS
};

static const char *const heads[COLUMNS] = {
    [COL_NAME] = "NAME",   [COL_MODE] = "MODE",   [COL_HOLDERS] = "HOLDERS",
    [COL_HOLDS] = "HOLDS", [COL_LEASE] = "LEASE", [COL_WHO] = "WHO",
    [COL_OWNER] = "OWNER",
};

static bool is_shown(const struct args *a, enum column c)
{
    return a->all_columns ||
           (c != COL_HOLDERS && c != COL_HOLDS && c != COL_OWNER);
}

/* Host, pid and program, or else the owner, and how many more there are; what
 * there is to tell of a kind without owners. */
static char *text_of_who(const struct args *a, const struct lock_row *s)
{
    const dibs_lock_info *i = &s->info;
    char who[WHO_TEXT_MAX], more[32] = "", *text = NULL;
    const char *known = who_text(&s->who, who);
    int n;

    if (i->owners > 1)
        snprintf(more, sizeof more, " +%zu", i->owners - 1);
    if (*known)
        n = asprintf(&text, "%s%s", known, more);
    else if (i->kind == DIBS_KIND_LATCH)
        n = asprintf(&text, "(%" PRId64 " left)", i->left);
    else if (i->kind == DIBS_KIND_SEMAPHORE)
        n = asprintf(&text, "(%" PRId64 " free)", i->free_slots);
    else
        n = asprintf(&text, "%s%s",
                     i->owner[0] && !a->all_columns ? i->owner : "-", more);
    char *shown = n < 0 ? NULL : out_printable(text, (size_t)n);
    free(n < 0 ? NULL : text);
    return shown;
}

static char *text_of_number(bool known, int64_t n)
{
    char *text = NULL;

    if (!known)
        return strdup("-");
    return asprintf(&text, "%" PRId64, n) < 0 ? NULL : text;
}

/* A cell; free it. NULL: out of memory. */
static char *cell_text(const struct args *a, const struct lock_row *s,
                       enum column c)
{
    const dibs_lock_info *i = &s->info;
    const char *owner = i->owner[0] ? i->owner : "-";
    char span[OUT_SPAN_MAX];

    switch (c) {
    case COL_NAME:
        return out_printable(s->name, s->len);
    case COL_MODE:
        return strdup(kind_counted(i->kind) ? kind_word(i->kind)
                                            : query_mode(i->kind, i->mode));
    case COL_HOLDERS:
        return text_of_number(i->kind != DIBS_KIND_LATCH, (int64_t)i->owners);
    case COL_HOLDS:
        return text_of_number(!kind_counted(i->kind), i->holds);
    case COL_LEASE:
        return strdup(query_left(i->ttl_ms, span));
    case COL_WHO:
        return text_of_who(a, s);
    case COL_OWNER:
        return out_printable(owner, strlen(owner));
    case COLUMNS:
        break;
    }
    return NULL;
}

struct table {
    char **cells; /* COLUMNS for each row */
    size_t n;
    int width[COLUMNS];
    bool cut; /* what is wider */
};

/* What does not fit ends with "..". Numbers are right-aligned. A last cell is
 * not padded. */
static void put_cell(const struct table *t, enum column c, const char *text,
                     bool last)
{
    bool right = c == COL_HOLDERS || c == COL_HOLDS;
    int width = t->width[c];
    int used = width_text(text);

    if (used > width && t->cut) {
        char *head = strndup(text, width_fit(text, width - 2));

        printf("%s..", head ? head : "");
        used = head ? width_text(head) + 2 : 2;
        free(head);
    } else {
        int missing = width > used ? width - used : 0;

        printf("%*s%s", right ? missing : 0, "", text);
        used = right || missing == 0 ? width : used;
    }
    printf("%*s", last ? 0 : width - used + GAP, "");
}

static bool make_table(const struct args *a, const struct list *all,
                       struct table *t)
{
    *t = (struct table){.n = all->n};
    t->cells = calloc(all->n * COLUMNS + 1, sizeof *t->cells);
    for (enum column c = COL_NAME; t->cells && c < COLUMNS; c++) {
        t->width[c] = width_text(heads[c]);
        for (size_t i = 0; is_shown(a, c) && i < all->n; i++) {
            char *text = cell_text(a, &all->rows[i], c);

            if (!text)
                return false;
            t->cells[i * COLUMNS + c] = text;
            if (width_text(text) > t->width[c])
                t->width[c] = width_text(text);
        }
    }
    return t->cells != NULL;
}

static void free_table(struct table *t)
{
    for (size_t i = 0; t->cells && i < t->n * COLUMNS; i++)
        free(t->cells[i]);
    free(t->cells);
}

/* Makes a column narrower by that many, down to least; returns the rest. */
static int shrink_column(int *width, int least, int over)
{
    int less = *width - least < over ? *width - least : over;

    *width -= less > 0 ? less : 0;
    return less > 0 ? over - less : over;
}

/* On a terminal, WHO and NAME are cut until a row fits into a line. In a file
 * or a pipe nothing is cut; a long name there moves only its own row. */
static void fit_terminal(const struct args *a, struct table *t)
{
    struct winsize size = {0};
    int over = -GAP;

    if (a->all_columns)
        return;
    t->cut = isatty(STDOUT_FILENO);
    if (!t->cut) {
        (void)shrink_column(&t->width[COL_NAME], NAME_PIPE, INT_MAX);
        return;
    }
    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    for (enum column c = COL_NAME; c < COLUMNS; c++)
        over += is_shown(a, c) ? t->width[c] + GAP : 0;
    over -= size.ws_col > 0 ? size.ws_col : COLS_USUAL;
    over = shrink_column(&t->width[COL_WHO], WHO_GOOD, over);
    over = shrink_column(&t->width[COL_NAME], NAME_MIN, over);
    (void)shrink_column(&t->width[COL_WHO], WHO_MIN, over);
}

static dibs_err list_text(const struct args *a, const struct list *all)
{
    bool colored = out_colored(stdout);
    enum column last = a->all_columns ? COL_OWNER : COL_WHO;
    struct table t;
    bool made = make_table(a, all, &t);

    if (made)
        fit_terminal(a, &t);
    for (size_t row = 0; made && all->n > 0 && row <= all->n; row++) {
        fputs(out_color(colored && row == 0, COLOR_HEAD), stdout);
        for (enum column c = COL_NAME; c < COLUMNS; c++)
            if (is_shown(a, c))
                put_cell(&t, c,
                         row == 0 ? heads[c] : t.cells[(row - 1) * COLUMNS + c],
                         c == last);
        fputs(out_color(colored && row == 0, COLOR_PLAIN), stdout);
        putchar('\n');
    }
    free_table(&t);
    return made ? DIBS_OK : DIBS_ERR_NOMEM;
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
        err = query_count(c, &all->rows[i]);
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
    struct lock_query k;
    int code = query_open(a, &k);

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
            code = query_failed("ls", all.failed ? DIBS_ERR_NOMEM : err);
    }
    if (code == EXIT_FINE && a->json)
        list_json(&all);
    else if (code == EXIT_FINE && list_text(a, &all) != DIBS_OK)
        code = query_failed("ls", DIBS_ERR_NOMEM);
    for (size_t i = 0; i < all.n; i++)
        free(all.rows[i].name);
    free(all.rows);
    query_close(&k);
    return out_finish(code);
}
