/* SPDX-License-Identifier: MIT
 *
 * cmd_info.c - dibs info and queue: one lock, as the server knows it.
 *
 * They ask the server and print the answer. Nothing is held, so a signal may
 * simply end them. lock_query.c has what they share with ls.
 *
 * A lease is not the time until the lock is free: the holder renews it. A time
 * in a queue is not the time waited: it is how long the waiter keeps its place
 * without a sign of life. The output says so.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "args/lock_type.h"
#include "exit_codes.h"
#include "inspect/lock_query.h"

#define EXIT_FREE 1 /* info -q */

#define LINE_MAX_BYTES                                                         \
    (DIBS_OWNER_MAX * 4 + WHO_TEXT_MAX + 128) /* a byte may be \xff */

/* ---- all who have a part in it ----------------------------------------- */

/* Holders first, then the queue. All are read before anything is printed, so
 * that one question tells who they are. */
struct person {
    char *owner;
    bool waits;
    dibs_mode mode;
    int64_t holds;
    int64_t remaining_ms;
    size_t place;
};

struct crowd {
    struct person *rows;
    struct who *who; /* of each row */
    size_t n, room;
    bool failed;                    /* no memory */
    bool uncounted;                 /* those who wait are not known */
    char value[DIBS_VALUE_MAX + 1]; /* what the holder published; "" nothing */
};

static bool crowd_add(struct crowd *all, const char *owner, struct person p)
{
    if (all->n == all->room) {
        size_t room = all->room > 0 ? 2 * all->room : 16;
        struct person *rows = reallocarray(all->rows, room, sizeof *rows);

        all->failed |= !rows;
        all->rows = rows ? rows : all->rows;
        all->room = rows ? room : all->room;
    }
    p.owner = all->failed ? NULL : strdup(owner);
    all->failed |= !p.owner;
    if (!all->failed)
        all->rows[all->n++] = p;
    return !all->failed;
}

static bool add_holder(const char *owner, dibs_mode mode, int64_t holds,
                       int64_t remaining_ms, void *arg)
{
    return crowd_add(arg, owner,
                     (struct person){.mode = mode,
                                     .holds = holds,
                                     .remaining_ms = remaining_ms});
}

static bool add_waiter(size_t place, const char *owner, int64_t remaining_ms,
                       void *arg)
{
    return crowd_add(arg, owner,
                     (struct person){.waits = true,
                                     .place = place,
                                     .remaining_ms = remaining_ms});
}

static dibs_err crowd_name(struct crowd *all, dibs_client *c)
{
    const char **owners = calloc(all->n + 1, sizeof *owners);

    all->who = calloc(all->n + 1, sizeof *all->who);
    for (size_t i = 0; owners && i < all->n; i++)
        owners[i] = all->rows[i].owner;
    if (owners && all->who)
        who_ask(c, owners, all->who, all->n);
    else
        all->failed = true;
    free(owners);
    return all->failed ? DIBS_ERR_NOMEM : DIBS_OK;
}

/* A user who may not read it sees none. */
static void value_read(struct crowd *all, const struct lock_query *k)
{
    if (dibs_lock_published(k->l, all->value, sizeof all->value) != DIBS_OK)
        all->value[0] = '\0';
}

static dibs_err crowd_read(struct crowd *all, const struct lock_query *k,
                           const struct lock_row *s)
{
    const dibs_lock_info *i = &s->info;
    dibs_err err = DIBS_OK;

    if (!i->locked || i->kind == DIBS_KIND_LATCH ||
        i->kind == DIBS_KIND_SEMAPHORE)
        err = DIBS_OK; /* no name is known */
    else if (i->mode == DIBS_MODE_EXCLUSIVE && i->kind != DIBS_KIND_SLOTS)
        add_holder(i->owner, i->mode, i->holds, i->ttl_ms, all);
    else
        err = dibs_lock_holders(k->l, add_holder, all);
    if (err == DIBS_OK && i->waiters > 0)
        err = dibs_lock_queue(k->l, add_waiter, all);
    if (err == DIBS_OK && i->locked)
        value_read(all, k);
    return err == DIBS_OK ? crowd_name(all, k->c) : err;
}

static void crowd_free(struct crowd *all)
{
    for (size_t i = 0; i < all->n; i++)
        free(all->rows[i].owner);
    free(all->rows);
    free(all->who);
}

/* Of the one owner that stands for all. */
static void find_who(const struct crowd *all, struct lock_row *s)
{
    for (size_t i = 0; i < all->n; i++)
        if (!all->rows[i].waits &&
            strcmp(all->rows[i].owner, s->info.owner) == 0)
            s->who = all->who[i];
}

/* ---- as text ----------------------------------------------------------- */

static void print_row(bool colored, const char *key, const char *value)
{
    printf("%s%-8s%s %s\n", out_color(colored, COLOR_HEAD), key,
           out_color(colored, COLOR_PLAIN), value);
}

/* Readers, each with its time, and the writer. */
static void print_holder(bool colored, const struct person *p,
                         const struct who *w)
{
    char span[OUT_SPAN_MAX], text[LINE_MAX_BYTES], who[WHO_TEXT_MAX];
    char *shown = out_printable(p->owner, strlen(p->owner));

    snprintf(text, sizeof text, "%s%s, %" PRId64 " %s, lease %s",
             shown ? shown : "?", owner_describe(w, who), p->holds,
             p->holds == 1 ? "hold" : "holds",
             p->remaining_ms == -2 ? "over"
                                   : query_left(p->remaining_ms, span));
    print_row(colored,
              p->mode == DIBS_MODE_WRITE  ? "writer"
              : p->mode == DIBS_MODE_READ ? "reader"
                                          : "holder",
              text);
    free(shown);
}

static void print_waiter(bool colored, const struct person *p,
                         const struct who *w)
{
    char span[OUT_SPAN_MAX], text[LINE_MAX_BYTES], who[WHO_TEXT_MAX];
    char *shown = out_printable(p->owner, strlen(p->owner));
    bool silent = p->remaining_ms < 0;

    snprintf(text, sizeof text, "%zu. %s%s, %s%s%swithout a sign of life",
             p->place + 1, shown ? shown : "?", owner_describe(w, who),
             silent ? "" : "keeps its place ",
             silent ? "" : out_span(p->remaining_ms, span), silent ? "" : " ");
    print_row(colored, "waits", text);
    free(shown);
}

/* The number of those who wait without a queue; if there are none, nothing is
 * printed. */
static void print_waiting(bool colored, const struct lock_row *s)
{
    char text[96];

    if (!s->counted || s->waiting == 0)
        return;
    snprintf(text, sizeof text, "%zu client%s, in no particular order",
             s->waiting, s->waiting == 1 ? "" : "s");
    print_row(colored, "waits", text);
}

/* What the first lines do not have: all readers, all waiters. */
static void print_crowd(const struct crowd *all, const struct lock_row *s)
{
    bool colored = out_colored(stdout);

    for (size_t i = 0; i < all->n; i++) {
        if (all->rows[i].waits)
            print_waiter(colored, &all->rows[i], &all->who[i]);
        else if (s->info.mode != DIBS_MODE_EXCLUSIVE ||
                 s->info.kind == DIBS_KIND_SLOTS)
            print_holder(colored, &all->rows[i], &all->who[i]);
    }
    print_waiting(colored, s);
}

/* What is a number on the server. */
static void print_counted(bool colored, const dibs_lock_info *i)
{
    char text[96], span[OUT_SPAN_MAX];

    print_row(colored, "kind", kind_word(i->kind));
    switch (i->kind) {
    case DIBS_KIND_SLOTS:
        snprintf(text, sizeof text, "%" PRId64 ", %" PRId64 " free", i->slots,
                 i->free_slots);
        break;
    case DIBS_KIND_LATCH:
        snprintf(text, sizeof text, "%" PRId64, i->left);
        break;
    default:
        snprintf(text, sizeof text, "%" PRId64, i->free_slots);
    }
    print_row(colored,
              i->kind == DIBS_KIND_SLOTS     ? "slots"
              : i->kind == DIBS_KIND_LATCH   ? "left"
              : i->kind == DIBS_KIND_COUNTER ? "number"
                                             : "free",
              text);
    if (i->kind == DIBS_KIND_SEMAPHORE && i->owners == 0) {
        print_row(colored, "holders", "0");
    } else if (i->kind == DIBS_KIND_SEMAPHORE) {
        snprintf(text, sizeof text, "%zu, the first lease ends in %s",
                 i->owners, query_left(i->ttl_ms, span));
        print_row(colored, "holders", text);
    } else if (i->kind == DIBS_KIND_LATCH && i->ttl_ms >= 0) {
        snprintf(text, sizeof text, "in %s, at the latest",
                 out_span(i->ttl_ms, span));
        print_row(colored, "opens", text);
    }
}

/* What a lock with one holder has. */
static void print_held(bool colored, const struct lock_row *s)
{
    const dibs_lock_info *i = &s->info;
    char span[OUT_SPAN_MAX], text[96], who[WHO_TEXT_MAX];
    char *owner = out_printable(i->owner, strlen(i->owner));

    print_row(colored, "mode", query_mode(i->kind, i->mode));
    print_row(colored, "owner", owner ? owner : "?");
    if (s->who.known)
        print_row(colored, "who", who_text(&s->who, who));
    snprintf(text, sizeof text, "%" PRId64, i->holds);
    print_row(colored, "holds", text);
    if (i->token > 0) {
        snprintf(text, sizeof text, "%" PRId64, i->token);
        print_row(colored, "token", text);
    }
    snprintf(text, sizeof text,
             i->ttl_ms < 0 ? "%s" : "%s left, unless it is renewed",
             query_left(i->ttl_ms, span));
    print_row(colored, "lease", text);
    free(owner);
}

static const char *state_word(const dibs_lock_info *i)
{
    if (i->kind == DIBS_KIND_LATCH)
        return i->locked ? "closed" : "open";
    return i->locked ? "held" : "free";
}

static void print_info(const struct lock_row *s)
{
    const dibs_lock_info *i = &s->info;
    bool colored = out_colored(stdout);
    char *name = out_printable(s->name, s->len);
    char text[96];

    print_row(colored, "name", name ? name : "?");
    snprintf(text, sizeof text, "%s%s%s",
             out_color(colored, i->locked ? COLOR_BUSY : COLOR_GOOD),
             state_word(i), out_color(colored, COLOR_PLAIN));
    print_row(colored, "state", text);
    if (kind_counted(i->kind))
        print_counted(colored, i);
    else if (i->locked)
        print_held(colored, s);
    free(name);
}

/* ---- as JSON ----------------------------------------------------------- */

static void json_time(struct json *j, const char *key, int64_t ms)
{
    if (ms >= 0)
        json_int(j, key, ms);
    else
        json_null(j, key);
}

static void json_holder(struct json *j, const struct person *p,
                        const struct who *w, dibs_kind kind)
{
    struct json item;

    json_list_next(j, &item);
    json_text(&item, "owner", p->owner);
    who_json(&item, w);
    json_text(&item, "mode", query_mode(kind, p->mode));
    json_int(&item, "holds", p->holds);
    json_time(&item, "ttl_ms", p->remaining_ms);
    json_close(&item);
}

static void json_waiter(struct json *j, const struct person *p,
                        const struct who *w)
{
    struct json item;

    json_list_next(j, &item);
    json_int(&item, "place", (int64_t)p->place + 1);
    json_text(&item, "owner", p->owner);
    who_json(&item, w);
    json_time(&item, "remaining_ms", p->remaining_ms);
    json_close(&item);
}

/* A holder whose lease is over does not hold it any more. */
static void json_people(struct json *j, const struct crowd *all, bool waits,
                        dibs_kind kind)
{
    for (size_t i = 0; i < all->n; i++) {
        const struct person *p = &all->rows[i];

        if (p->waits && waits)
            json_waiter(j, p, &all->who[i]);
        else if (!p->waits && !waits && p->remaining_ms != -2)
            json_holder(j, p, &all->who[i], kind);
    }
}

/* The whole object, or nothing. */
static dibs_err info_json(const struct lock_query *k, const struct lock_row *s,
                          const struct crowd *all)
{
    struct out_text text;
    struct json j;

    if (!out_text_open(&text))
        return DIBS_ERR_NOMEM;
    json_open(&j, text.f);
    query_json(&j, s);
    if (all->value[0])
        json_text(&j, "value", all->value);
    json_bool(&j, "private_server", k->server.private);
    json_text(&j, "server", k->server.url);
    json_list_open(&j, "holders");
    json_people(&j, all, false, s->info.kind);
    json_list_close(&j);
    json_list_open(&j, "queue");
    json_people(&j, all, true, s->info.kind);
    json_list_close(&j);
    json_close(&j);
    putc('\n', text.f);
    return out_text_print(&text, DIBS_OK);
}

static void print_value(const char *value)
{
    char *shown = *value ? out_printable(value, strlen(value)) : NULL;

    if (shown)
        print_row(out_colored(stdout), "value", shown);
    free(shown);
}

/* ---- info -------------------------------------------------------------- */

static void print_address(const struct target_server *server)
{
    char *shown = out_printable(server->url, strlen(server->url)), *text = NULL;

    if (asprintf(&text, "%s%s",
                 server->private ? "private, for this user on this machine: "
                                 : "",
                 shown ? shown : "?") >= 0)
        print_row(out_colored(stdout), "server", text);
    free(text);
    free(shown);
}

static dibs_err info_text(const struct lock_query *k, const struct lock_row *s,
                          const struct crowd *all)
{
    print_info(s);
    print_value(all->value);
    print_crowd(all, s);
    if (k->server.url)
        print_address(&k->server);
    return DIBS_OK;
}

/* -q without --json: only the exit code tells, and less is asked. */
static dibs_err info_show(const struct args *a, struct lock_query *k,
                          bool *locked)
{
    struct lock_row s = {.name = (char *)a->words[0],
                         .len = strlen(a->words[0]),
                         .info = DIBS_LOCK_INFO_INIT,
                         .counted = !k->l}; /* nobody */
    struct crowd all = {.n = 0};
    dibs_err err = k->l ? query_info(k, &s) : DIBS_OK;

    *locked = s.info.locked;
    if (a->quiet && !a->json)
        return err;
    if (err == DIBS_OK && k->l)
        err = query_count(k->c, &s);
    if (err == DIBS_OK && k->l)
        err = crowd_read(&all, k, &s);
    if (err == DIBS_OK) {
        find_who(&all, &s);
        err = (a->json ? info_json : info_text)(k, &s, &all);
    }
    crowd_free(&all);
    return err;
}

int cmd_info(const struct args *a)
{
    bool locked = false;
    struct lock_query k;
    int code = query_open_lock(a, &k);

    if (code == EXIT_FINE) {
        dibs_err err = info_show(a, &k, &locked);
        if (err != DIBS_OK)
            code = query_failed(a->words[0], err);
        else if (a->quiet && !locked)
            code = EXIT_FREE;
    }
    query_close(&k);
    return out_finish(code);
}

/* ---- queue ------------------------------------------------------------- */

/* Only fair locks have a queue. For others it prints that, and how many wait.
 */
static dibs_err queue_text(const struct args *a, struct lock_query *k,
                           const struct crowd *all)
{
    struct lock_row s = {.name = (char *)a->words[0],
                         .len = strlen(a->words[0]),
                         .info = DIBS_LOCK_INFO_INIT};
    dibs_err err = k->l ? query_count(k->c, &s) : DIBS_OK;

    for (size_t i = 0; err == DIBS_OK && i < all->n; i++)
        print_waiter(out_colored(stdout), &all->rows[i], &all->who[i]);
    if (err != DIBS_OK || all->n > 0)
        return err;
    if (all->uncounted) {
        puts("no queue; who waits for a latch or for permits is not known");
    } else if (s.counted && s.waiting > 0) {
        puts("no queue: only a fair lock has one");
        print_waiting(out_colored(stdout), &s);
    } else {
        puts(s.counted || !k->l
                 ? "nobody waits"
                 : "nobody is in a queue; only a fair lock has one");
    }
    return DIBS_OK;
}

static dibs_err queue_json(const struct args *a, struct lock_query *k,
                           const struct crowd *all)
{
    struct out_text text;

    (void)a;
    (void)k;
    if (!out_text_open(&text))
        return DIBS_ERR_NOMEM;
    struct json j = {.f = text.f};
    putc('[', text.f);
    json_people(&j, all, true, DIBS_KIND_LOCK);
    fputs("]\n", text.f);
    return out_text_print(&text, DIBS_OK);
}

/* Slots, semaphores and latches are numbers on the server, without a queue. */
static dibs_err queue_read(const struct args *a, struct lock_query *k,
                           struct crowd *all)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_err err = dibs_lock_queue(k->l, add_waiter, all);

    if (err == DIBS_ERR_WRONGTYPE &&
        dibs_client_look(k->c, a->words[0], &info) == DIBS_OK &&
        kind_counted(info.kind)) {
        all->uncounted = info.kind != DIBS_KIND_SLOTS;
        err = DIBS_OK;
    }
    return err == DIBS_OK ? crowd_name(all, k->c) : err;
}

int cmd_queue(const struct args *a)
{
    struct crowd all = {.n = 0};
    struct lock_query k;
    int code = query_open_lock(a, &k);

    if (code == EXIT_FINE) {
        dibs_err err = k.l ? queue_read(a, &k, &all) : DIBS_OK;

        if (err == DIBS_OK)
            err = (a->json ? queue_json : queue_text)(a, &k, &all);
        if (err != DIBS_OK)
            code = query_failed(a->words[0], err);
    }
    crowd_free(&all);
    query_close(&k);
    return out_finish(code);
}
