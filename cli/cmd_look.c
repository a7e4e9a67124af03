/* SPDX-License-Identifier: MIT
 *
 * cmd_look.c - dibs info, queue, ls and force-unlock: what the server knows.
 *
 * These ask and answer; nothing is held, nobody is waited for, and a signal
 * may simply end them. Where no URL is given and no private server runs, there
 * are no locks: that is the answer, and none is started for it.
 *
 * Breaking a lock names the holder it means. Should the lock change hands
 * between our look and our call, its next holder keeps it.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "exits.h"
#include "target.h"

/* A lock as the server sees it. */
struct seen {
    char *name;
    size_t len;
    dibs_lock_info info;
};

static const char *mode_word(dibs_mode mode)
{
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

static const char *left_text(int64_t ttl_ms, char buf[OUT_SPAN_MAX])
{
    return ttl_ms < 0 ? "no end" : out_span(ttl_ms, buf);
}

static void print_json(const struct seen *s)
{
    const dibs_lock_info *i = &s->info;
    struct json j;

    json_open(&j, stdout);
    json_bytes(&j, "name", s->name, s->len);
    json_bool(&j, "locked", i->locked);
    json_text(&j, "mode", i->locked ? mode_word(i->mode) : NULL);
    json_text(&j, "owner", i->locked ? i->owner : NULL);
    json_int(&j, "owners", (int64_t)i->owners);
    json_int(&j, "holds", i->holds);
    if (i->locked && i->ttl_ms >= 0)
        json_int(&j, "ttl_ms", i->ttl_ms);
    else
        json_null(&j, "ttl_ms");
    json_int(&j, "waiters", (int64_t)i->waiters);
    json_close(&j);
}

static int tell_error(const char *what, dibs_err err)
{
    out_tell(OUT_ERROR, "server", "%s: %s", what, dibs_strerror(err));
    return out_exit_of(err);
}

/* A client, and a lock of that name; both NULL where there is no server. */
struct look {
    dibs_client *c;
    dibs_lock *l;
};

static int look_open(const struct args *a, struct look *k)
{
    *k = (struct look){.c = NULL};
    int code = target_look(a, &k->c);

    if (code != EXIT_FINE || !k->c)
        return code;
    /* A handle for fair locks sees all there is to see of the other kinds. */
    dibs_err err = dibs_fair_lock_new(k->c, a->words[0], &k->l);
    return err == DIBS_OK ? EXIT_FINE : tell_error(a->words[0], err);
}

static dibs_err look_info(const struct args *a, struct look *k,
                          dibs_lock_info *info)
{
    dibs_err err = dibs_lock_info_get(k->l, info);
    dibs_lock *plain;

    if (err != DIBS_ERR_AUTH ||
        dibs_lock_new(k->c, a->words[0], &plain) != DIBS_OK)
        return err;
    /* No right to look at a queue; perhaps one to look at the lock. */
    dibs_lock_free(k->l);
    k->l = plain;
    return dibs_lock_info_get(k->l, info);
}

static void look_close(struct look *k)
{
    dibs_lock_free(k->l);
    dibs_client_free(k->c);
}

/* ---- info -------------------------------------------------------------- */

static void print_row(bool coloured, const char *key, const char *value)
{
    printf("%s%-8s%s %s\n", out_colour(coloured, COLOUR_HEAD), key,
           out_colour(coloured, COLOUR_PLAIN), value);
}

/* Readers, each with its time, and the writer. */
static bool print_holder(const char *owner, dibs_mode mode, int64_t holds,
                         int64_t remaining_ms, void *arg)
{
    char span[OUT_SPAN_MAX], text[DIBS_OWNER_MAX + 2 * OUT_SPAN_MAX];
    char *shown = out_printable(owner, strlen(owner));

    snprintf(text, sizeof text, "%s, %" PRId64 " %s, %s", shown ? shown : owner,
             holds, holds == 1 ? "hold" : "holds",
             remaining_ms == -2 ? "over" : left_text(remaining_ms, span));
    print_row(*(bool *)arg, mode == DIBS_MODE_WRITE ? "writer" : "reader",
              text);
    free(shown);
    return true;
}

static bool print_waiter(size_t place, const char *owner, int64_t remaining_ms,
                         void *arg)
{
    char span[OUT_SPAN_MAX], text[DIBS_OWNER_MAX + 2 * OUT_SPAN_MAX];
    char *shown = out_printable(owner, strlen(owner));

    snprintf(text, sizeof text, "%zu. %s, %s", place + 1, shown ? shown : owner,
             remaining_ms < 0 ? "overdue" : out_span(remaining_ms, span));
    print_row(*(bool *)arg, "waits", text);
    free(shown);
    return true;
}

/* What the first lines do not tell: all readers, all waiters. */
static dibs_err print_more(dibs_lock *l, const dibs_lock_info *i)
{
    bool coloured = out_coloured(stdout);
    dibs_err err = DIBS_OK;

    if (i->locked && i->mode != DIBS_MODE_EXCLUSIVE)
        err = dibs_lock_holders(l, print_holder, &coloured);
    if (err == DIBS_OK && i->waiters > 0)
        err = dibs_lock_queue(l, print_waiter, &coloured);
    return err;
}

static void print_info(const struct seen *s)
{
    const dibs_lock_info *i = &s->info;
    bool coloured = out_coloured(stdout);
    char *name = out_printable(s->name, s->len);
    char *owner = out_printable(i->owner, strlen(i->owner));
    char span[OUT_SPAN_MAX], state[64], holds[32];

    snprintf(state, sizeof state, "%s%s%s",
             out_colour(coloured, i->locked ? COLOUR_BUSY : COLOUR_GOOD),
             i->locked ? "held" : "free", out_colour(coloured, COLOUR_PLAIN));
    snprintf(holds, sizeof holds, "%" PRId64, i->holds);
    print_row(coloured, "name", name ? name : s->name);
    print_row(coloured, "state", state);
    if (i->locked) {
        print_row(coloured, "mode", mode_word(i->mode));
        print_row(coloured, "owner", owner ? owner : i->owner);
        print_row(coloured, "holds", holds);
        print_row(coloured, "left", left_text(i->ttl_ms, span));
    }
    free(name);
    free(owner);
}

int cmd_info(const struct args *a)
{
    struct seen s = {.name = (char *)a->words[0],
                     .len = strlen(a->words[0]),
                     .info = DIBS_LOCK_INFO_INIT};
    struct look k;
    int code = look_open(a, &k);

    if (code == EXIT_FINE && k.l) {
        dibs_err err = look_info(a, &k, &s.info);
        if (err != DIBS_OK)
            code = tell_error(a->words[0], err);
    }
    if (code == EXIT_FINE && a->json) {
        print_json(&s);
        putchar('\n');
    } else if (code == EXIT_FINE) {
        print_info(&s);
        dibs_err err = k.l ? print_more(k.l, &s.info) : DIBS_OK;
        if (err != DIBS_OK)
            code = tell_error(a->words[0], err);
    }
    look_close(&k);
    return out_finish(code);
}

/* ---- queue ------------------------------------------------------------- */

static bool json_waiter(size_t place, const char *owner, int64_t remaining_ms,
                        void *arg)
{
    struct json j;

    (void)arg;
    fputs(place > 0 ? ",\n " : "", stdout);
    json_open(&j, stdout);
    json_int(&j, "place", (int64_t)place + 1);
    json_text(&j, "owner", owner);
    if (remaining_ms >= 0)
        json_int(&j, "remaining_ms", remaining_ms);
    else
        json_null(&j, "remaining_ms");
    json_close(&j);
    return true;
}

int cmd_queue(const struct args *a)
{
    bool coloured = out_coloured(stdout);
    struct look k;
    int code = look_open(a, &k);

    if (code == EXIT_FINE && a->json)
        putchar('[');
    if (code == EXIT_FINE && k.l) {
        dibs_err err = dibs_lock_queue(
            k.l, a->json ? json_waiter : print_waiter, &coloured);
        if (err != DIBS_OK)
            code = tell_error(a->words[0], err);
    }
    if (code == EXIT_FINE && a->json)
        puts("]");
    look_close(&k);
    return out_finish(code);
}

/* ---- ls ---------------------------------------------------------------- */

struct list {
    struct seen *rows;
    size_t n, room;
    bool failed;
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
    all->rows[all->n++] = (struct seen){copy, len, *info};
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
static void tidy(struct list *all)
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
        fputs(i > 0 ? ",\n " : "", stdout);
        print_json(&all->rows[i]);
    }
    puts("]");
}

/* Columns as wide as what they hold; bytes count, which is right for nearly
 * every name. */
static void list_text(const struct list *all)
{
    bool coloured = out_coloured(stdout);
    size_t name_w = 4, owner_w = 5;
    char **names = calloc(all->n + 1, sizeof *names);
    char span[OUT_SPAN_MAX];

    if (!names || all->n == 0)
        goto out;
    for (size_t i = 0; i < all->n; i++) {
        names[i] = out_printable(all->rows[i].name, all->rows[i].len);
        size_t w = names[i] ? strlen(names[i]) : 0;
        name_w = w > name_w ? w : name_w;
        w = strlen(all->rows[i].info.owner);
        owner_w = w > owner_w ? w : owner_w;
    }
    name_w = name_w > 60 ? 60 : name_w;
    printf("%s%-*s  %-*s  %5s  %-9s  %s%s\n", out_colour(coloured, COLOUR_HEAD),
           (int)name_w, "NAME", (int)owner_w, "OWNER", "HOLDS", "MODE", "LEFT",
           out_colour(coloured, COLOUR_PLAIN));
    for (size_t i = 0; i < all->n; i++) {
        const dibs_lock_info *info = &all->rows[i].info;
        char *owner = out_printable(info->owner, strlen(info->owner));

        printf("%-*s  %-*s  %5" PRId64 "  %-9s  %s\n", (int)name_w,
               names[i] ? names[i] : "?", (int)owner_w, owner ? owner : "?",
               info->holds, mode_word(info->mode),
               left_text(info->ttl_ms, span));
        free(owner);
    }
out:
    for (size_t i = 0; names && i < all->n; i++)
        free(names[i]);
    free(names);
}

int cmd_ls(const struct args *a)
{
    const char *pattern = a->n_words > 0 ? a->words[0] : NULL;
    struct list all = {.rows = NULL};
    dibs_client *c;
    int code = target_look(a, &c);

    if (code == EXIT_FINE && c) {
        dibs_err err = dibs_client_list(c, pattern, add_row, &all);
        if (err != DIBS_OK || all.failed)
            code = tell_error("ls", all.failed ? DIBS_ERR_NOMEM : err);
    }
    if (code == EXIT_FINE) {
        tidy(&all);
        (a->json ? list_json : list_text)(&all);
    }
    for (size_t i = 0; i < all.n; i++)
        free(all.rows[i].name);
    free(all.rows);
    dibs_client_free(c);
    return out_finish(code);
}

/* ---- force-unlock ------------------------------------------------------ */

static void print_forced(const struct args *a, bool freed, const char *owner)
{
    struct json j;

    if (a->json) {
        json_open(&j, stdout);
        json_text(&j, "name", a->words[0]);
        json_bool(&j, "freed", freed);
        json_text(&j, "owner", owner);
        json_close(&j);
        putchar('\n');
        return;
    }
    char *name = out_printable(a->words[0], strlen(a->words[0]));
    if (freed)
        printf("%s was held by %s and is free now\n", name ? name : "it",
               owner);
    else if (!owner)
        printf("%s was not held\n", name ? name : "it");
    free(name);
}

/* Those who wait for it must be told in the way of their kind. */
static dibs_err force_kind(const struct args *a, struct look *k,
                           const dibs_lock_info *info, bool *freed)
{
    const char *name = a->words[0];
    dibs_lock *l = NULL;
    dibs_err err = DIBS_OK;

    if (info->mode == DIBS_MODE_READ)
        err = dibs_read_lock_new(k->c, name, &l);
    else if (info->mode == DIBS_MODE_WRITE)
        err = dibs_write_lock_new(k->c, name, &l);
    else if (info->waiters == 0)
        err = dibs_lock_new(k->c, name, &l);
    if (err == DIBS_OK)
        err = dibs_lock_force_release_owner(l ? l : k->l, info->owner, freed);
    dibs_lock_free(l);
    return err;
}

/* Ends the hold of the one who has it, if it is the one that is meant. */
static int force(const struct args *a, struct look *k)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    const char *meant = a->if_owner;
    bool freed = false;
    dibs_err err = look_info(a, k, &info);

    if (err != DIBS_OK)
        return tell_error(a->words[0], err);
    if (info.locked && (!meant || strcmp(meant, info.owner) == 0)) {
        err = force_kind(a, k, &info, &freed);
        if (err != DIBS_OK)
            return tell_error(a->words[0], err);
    }
    print_forced(a, freed, info.locked ? info.owner : NULL);
    if (freed || !info.locked)
        return EXIT_FINE;
    out_tell(OUT_ERROR, "busy",
             meant ? "%s is held by %s: nothing done"
                   : "%s changed hands, away from %s: nothing done",
             a->words[0], info.owner);
    return EXIT_BUSY;
}

int cmd_force_unlock(const struct args *a)
{
    struct look k;

    if (!a->yes)
        return args_wrong(command_find("force-unlock"),
                          "dibs force-unlock --yes NAME",
                          "whoever holds '%s' will lose it while at work; say "
                          "--yes if that is what you want",
                          a->words[0]);
    int code = look_open(a, &k);
    if (code == EXIT_FINE && k.l)
        code = force(a, &k);
    else if (code == EXIT_FINE)
        print_forced(a, false, NULL);
    look_close(&k);
    return out_finish(code);
}
