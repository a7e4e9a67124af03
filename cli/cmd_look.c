/* SPDX-License-Identifier: MIT
 *
 * cmd_look.c - dibs info, queue and force-unlock: one lock, as the server knows
 * it.
 *
 * They ask the server and print the answer. Nothing is held, so a signal may
 * simply end them. look.c has what they share with ls.
 *
 * A lease is not the time until the lock is free: the holder renews it. A time
 * in a queue is not the time waited: it is how long the waiter keeps its place
 * without a sign of life. The output says so.
 *
 * force-unlock names the holder that it means. If somebody else takes the lock
 * between our look and our call, that holder keeps it.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "exits.h"
#include "look.h"

#define LINE_MAX_BYTES (DIBS_OWNER_MAX * 4 + 128) /* a byte may be \xff */

/* ---- as text ----------------------------------------------------------- */

static void print_row(bool colored, const char *key, const char *value)
{
    printf("%s%-8s%s %s\n", out_color(colored, COLOR_HEAD), key,
           out_color(colored, COLOR_PLAIN), value);
}

/* Readers, each with its time, and the writer. */
static bool print_holder(const char *owner, dibs_mode mode, int64_t holds,
                         int64_t remaining_ms, void *arg)
{
    char span[OUT_SPAN_MAX], text[LINE_MAX_BYTES];
    char *shown = out_printable(owner, strlen(owner));

    snprintf(text, sizeof text, "%s, %" PRId64 " %s, lease %s",
             shown ? shown : "?", holds, holds == 1 ? "hold" : "holds",
             remaining_ms == -2 ? "over" : look_left(remaining_ms, span));
    print_row(*(bool *)arg, mode == DIBS_MODE_WRITE ? "writer" : "reader",
              text);
    free(shown);
    return true;
}

struct queue_text {
    bool colored;
    size_t shown;
};

static bool print_waiter(size_t place, const char *owner, int64_t remaining_ms,
                         void *arg)
{
    struct queue_text *q = arg;
    char span[OUT_SPAN_MAX], text[LINE_MAX_BYTES];
    char *shown = out_printable(owner, strlen(owner));

    q->shown++;
    if (remaining_ms < 0)
        snprintf(text, sizeof text, "%zu. %s, without a sign of life",
                 place + 1, shown ? shown : "?");
    else
        snprintf(text, sizeof text,
                 "%zu. %s, keeps its place %s without a sign of life",
                 place + 1, shown ? shown : "?", out_span(remaining_ms, span));
    print_row(q->colored, "waits", text);
    free(shown);
    return true;
}

/* The number of those who wait without a queue; if there are none, nothing is
 * printed. */
static void print_waiting(bool colored, const struct seen *s)
{
    char text[96];

    if (!s->counted || s->waiting == 0)
        return;
    snprintf(text, sizeof text, "%zu client%s, in no particular order",
             s->waiting, s->waiting == 1 ? "" : "s");
    print_row(colored, "waits", text);
}

/* What the first lines do not have: all readers, all waiters. */
static dibs_err print_more(dibs_lock *l, const struct seen *s)
{
    struct queue_text q = {.colored = out_colored(stdout)};
    dibs_err err = DIBS_OK;

    if (s->info.locked && s->info.mode != DIBS_MODE_EXCLUSIVE)
        err = dibs_lock_holders(l, print_holder, &q.colored);
    if (err == DIBS_OK && s->info.waiters > 0)
        err = dibs_lock_queue(l, print_waiter, &q);
    if (err == DIBS_OK)
        print_waiting(q.colored, s);
    return err;
}

static void print_info(const struct seen *s)
{
    const dibs_lock_info *i = &s->info;
    bool colored = out_colored(stdout);
    char *name = out_printable(s->name, s->len);
    char *owner = out_printable(i->owner, strlen(i->owner));
    char span[OUT_SPAN_MAX], text[96];

    print_row(colored, "name", name ? name : "?");
    snprintf(text, sizeof text, "%s%s%s",
             out_color(colored, i->locked ? COLOR_BUSY : COLOR_GOOD),
             i->locked ? "held" : "free", out_color(colored, COLOR_PLAIN));
    print_row(colored, "state", text);
    if (i->locked) {
        print_row(colored, "mode", look_mode(i->mode));
        print_row(colored, "owner", owner ? owner : "?");
        snprintf(text, sizeof text, "%" PRId64, i->holds);
        print_row(colored, "holds", text);
        snprintf(text, sizeof text,
                 i->ttl_ms < 0 ? "%s" : "%s left, unless it is renewed",
                 look_left(i->ttl_ms, span));
        print_row(colored, "lease", text);
    }
    free(name);
    free(owner);
}

/* ---- as JSON ----------------------------------------------------------- */

static void json_time(struct json *j, const char *key, int64_t ms)
{
    if (ms >= 0)
        json_int(j, key, ms);
    else
        json_null(j, key);
}

static bool json_holder(const char *owner, dibs_mode mode, int64_t holds,
                        int64_t remaining_ms, void *arg)
{
    struct json item;

    if (remaining_ms == -2) /* over: it does not hold it any more */
        return true;
    json_list_next(arg, &item);
    json_text(&item, "owner", owner);
    json_text(&item, "mode", look_mode(mode));
    json_int(&item, "holds", holds);
    json_time(&item, "ttl_ms", remaining_ms);
    json_close(&item);
    return true;
}

static bool json_waiter(size_t place, const char *owner, int64_t remaining_ms,
                        void *arg)
{
    struct json item;

    json_list_next(arg, &item);
    json_int(&item, "place", (int64_t)place + 1);
    json_text(&item, "owner", owner);
    json_time(&item, "remaining_ms", remaining_ms);
    json_close(&item);
    return true;
}

/* The whole object, or nothing. */
static dibs_err info_json(const struct look *k, const struct seen *s)
{
    const dibs_lock_info *i = &s->info;
    struct out_text text;
    struct json j;
    dibs_err err = DIBS_OK;

    if (!out_text_open(&text))
        return DIBS_ERR_NOMEM;
    json_open(&j, text.f);
    look_json(&j, s);
    json_bool(&j, "private_server", k->private_url != NULL);
    json_list_open(&j, "holders");
    if (i->locked && i->mode == DIBS_MODE_EXCLUSIVE)
        json_holder(i->owner, i->mode, i->holds, i->ttl_ms, &j);
    else if (i->locked)
        err = dibs_lock_holders(k->l, json_holder, &j);
    json_list_close(&j);
    json_list_open(&j, "queue");
    if (err == DIBS_OK && i->waiters > 0)
        err = dibs_lock_queue(k->l, json_waiter, &j);
    json_list_close(&j);
    json_close(&j);
    putc('\n', text.f);
    return out_text_print(&text, err);
}

/* ---- info -------------------------------------------------------------- */

static dibs_err info_text(const struct look *k, const struct seen *s)
{
    dibs_err err = DIBS_OK;
    char *text = NULL;

    print_info(s);
    if (k->l)
        err = print_more(k->l, s);
    if (k->private_url &&
        asprintf(&text, "private, for this user on this machine: %s",
                 k->private_url) >= 0)
        print_row(out_colored(stdout), "server", text);
    free(text);
    return err;
}

int cmd_info(const struct args *a)
{
    struct seen s = {.name = (char *)a->words[0],
                     .len = strlen(a->words[0]),
                     .info = DIBS_LOCK_INFO_INIT};
    struct look k;
    dibs_err err = DIBS_OK;
    int code = look_open_lock(a, &k);

    if (code == EXIT_FINE && k.l)
        err = look_info(&k, &s);
    else
        s.counted = true; /* nobody */
    if (err == DIBS_OK && code == EXIT_FINE && k.l)
        err = look_count(k.c, &s);
    if (err == DIBS_OK && code == EXIT_FINE)
        err = (a->json ? info_json : info_text)(&k, &s);
    if (err != DIBS_OK)
        code = look_failed(a->words[0], err);
    look_close(&k);
    return out_finish(code);
}

/* ---- queue ------------------------------------------------------------- */

/* Only fair locks have a queue. For others it prints that, and how many wait.
 */
static dibs_err queue_text(const struct args *a, struct look *k)
{
    struct seen s = {.name = (char *)a->words[0],
                     .len = strlen(a->words[0]),
                     .info = DIBS_LOCK_INFO_INIT};
    struct queue_text q = {.colored = out_colored(stdout)};
    dibs_err err = DIBS_OK;

    if (k->l)
        err = dibs_lock_queue(k->l, print_waiter, &q);
    if (err == DIBS_OK && k->l)
        err = look_count(k->c, &s);
    if (err != DIBS_OK || q.shown > 0)
        return err;
    if (s.counted && s.waiting > 0) {
        puts("no queue: only a fair lock has one");
        print_waiting(q.colored, &s);
    } else {
        puts(s.counted || !k->l
                 ? "nobody waits"
                 : "nobody is in a queue; only a fair lock has one");
    }
    return DIBS_OK;
}

static dibs_err queue_json(const struct args *a, struct look *k)
{
    struct out_text text;
    dibs_err err = DIBS_OK;

    (void)a;
    if (!out_text_open(&text))
        return DIBS_ERR_NOMEM;
    struct json j = {.f = text.f};
    putc('[', text.f);
    if (k->l)
        err = dibs_lock_queue(k->l, json_waiter, &j);
    fputs("]\n", text.f);
    return out_text_print(&text, err);
}

int cmd_queue(const struct args *a)
{
    struct look k;
    int code = look_open_lock(a, &k);

    if (code == EXIT_FINE) {
        dibs_err err = (a->json ? queue_json : queue_text)(a, &k);
        if (err != DIBS_OK)
            code = look_failed(a->words[0], err);
    }
    look_close(&k);
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
    char *holder = owner ? out_printable(owner, strlen(owner)) : NULL;
    if (freed)
        printf("%s was held by %s and is free now\n", name ? name : "it",
               holder ? holder : "somebody");
    else if (!owner)
        printf("%s was not held\n", name ? name : "it");
    free(holder);
    free(name);
}

/* Each kind has its own way to wake its waiters. */
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
    else if (info->waiters == 0) /* nobody is in a queue */
        err = dibs_lock_new(k->c, name, &l);
    if (err == DIBS_OK)
        err = dibs_lock_force_release_owner(l ? l : k->l, info->owner, freed);
    dibs_lock_free(l);
    return err;
}

/* Ends the hold, if the owner that is meant has it. */
static int force_unlock(const struct args *a, struct look *k)
{
    struct seen s = {.name = (char *)a->words[0], .info = DIBS_LOCK_INFO_INIT};
    const char *meant = a->if_owner;
    bool freed = false;
    dibs_err err = look_info(k, &s);
    const dibs_lock_info *info = &s.info;

    if (err != DIBS_OK)
        return look_failed(a->words[0], err);
    if (info->locked && (!meant || strcmp(meant, info->owner) == 0)) {
        err = force_kind(a, k, info, &freed);
        if (err != DIBS_OK)
            return look_failed(a->words[0], err);
    }
    print_forced(a, freed, info->locked ? info->owner : NULL);
    if (freed || !info->locked)
        return EXIT_FINE;
    out_tell(OUT_ERROR, "busy",
             meant ? "%s is held by %s: nothing done"
                   : "%s is not held by %s any more: nothing done",
             a->words[0], info->owner);
    return EXIT_BUSY;
}

int cmd_force_unlock(const struct args *a)
{
    struct look k;

    if (!a->yes)
        return args_wrong(command_find("force-unlock"),
                          "dibs force-unlock --yes NAME",
                          "the holder of '%s' loses it while it works; add "
                          "--yes if you want that",
                          a->words[0]);
    int code = look_open_lock(a, &k);
    if (code == EXIT_FINE && k.l)
        code = force_unlock(a, &k);
    else if (code == EXIT_FINE)
        print_forced(a, false, NULL);
    look_close(&k);
    return out_finish(code);
}
