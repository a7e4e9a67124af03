/* SPDX-License-Identifier: MIT
 *
 * cmd_watch.c - dibs watch and wait: changes of locks.
 *
 * watch polls and prints what changed (snapshot.c). A word without wildcards is
 * one lock: that needs no scan, so it is polled more often. Two slow rounds in
 * a row make the pause before the next one longer, so that a server with very
 * many locks is not kept busy; a single slow round may be due to a server that
 * did not answer. A round that failed is repeated after a second.
 *
 * Info of a lock has the number of the value that its holder published, so a
 * change of the value is noticed without reading it.
 *
 * wait uses dibs_lock_watch, which is woken by a release. That needs the type
 * of the lock, so wait asks for it first.
 *
 * Trouble If the server cannot be reached, both print one message and go on: it
 *         may be restarting. An error that cannot change, such as a missing
 *         permission, ends them. wait ends with the time of -w.
 *
 * Thread  The first one. Callbacks of wait run on a thread of the library; a
 *         descriptor wakes the first one.
 */
#include "cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "args/lock_type.h"
#include "exit_codes.h"
#include "inspect/snapshot.h"
#include "util/time.h"

#define EVERY_ONE_MS  250
#define EVERY_ALL_MS  1000
#define REST_FACTOR   2 /* pauses at least that many times its round */
#define REST_MAX_MS   60000
#define RETRY_MS      1000 /* after a look that failed */
#define COUNT_MAX     100  /* locks whose waiters are counted */
#define WAIT_EVERY_MS 500

/* Waiting longer may help. */
static bool may_pass(dibs_err err)
{
    return err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN ||
           err == DIBS_ERR_SERVER || err == DIBS_ERR_NOMEM;
}

/* ---- watch: lines ------------------------------------------------------ */

static const char *const change_words[] = {
    [CHANGE_HELD] = "held",       [CHANGE_TAKEN] = "taken",
    [CHANGE_FREE] = "free",       [CHANGE_LOST] = "lost",
    [CHANGE_HOLDERS] = "holders", [CHANGE_QUEUE] = "queue",
    [CHANGE_VALUE] = "value",
};

struct stamp {
    char text[40];
};

/* The time of day; for programs, that of Greenwich. */
static struct stamp stamp_now(bool json)
{
    struct stamp s;
    struct timespec now;
    struct tm tm;
    char day[24];

    clock_gettime(CLOCK_REALTIME, &now);
    if (json) {
        gmtime_r(&now.tv_sec, &tm);
        strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(s.text, sizeof s.text, "%s.%03ldZ", day,
                 now.tv_nsec / 1000000);
    } else {
        localtime_r(&now.tv_sec, &tm);
        strftime(s.text, sizeof s.text, "%H:%M:%S", &tm);
    }
    return s;
}

/* value: what the holder published; or NULL. */
static void change_json(enum change what, const struct snapshot_row *before,
                        const struct snapshot_row *after, const char *value)
{
    const struct snapshot_row *x = after ? after : before;
    struct json j;

    json_open(&j, stdout);
    json_text(&j, "time", stamp_now(true).text);
    json_text(&j, "event", change_words[what]);
    query_json(&j,
               &(struct lock_row){
                   .name = x->s.name,
                   .len = x->s.len,
                   .info = after ? after->s.info : (dibs_lock_info){.size = 0},
                   .who = after ? after->s.who : (struct who){.known = false},
                   .counted = after && after->s.counted,
                   .queued = x->s.queued,
                   .waiting = x->s.waiting});
    json_text(&j, "previous",
              before && before->s.info.owner[0] ? before->s.info.owner : NULL);
    json_text(&j, "value", value);
    json_close(&j);
    putchar('\n');
}

/* "OWNER (host, pid, ...)", cleaned; to be freed. */
static char *owner_shown(const struct snapshot_row *x)
{
    char who[WHO_TEXT_MAX], *shown = NULL;
    char *owner = out_printable(x->s.info.owner, strlen(x->s.info.owner));

    if (asprintf(&shown, "%s%s", owner ? owner : "?",
                 owner_describe(&x->s.who, who)) < 0)
        shown = NULL;
    free(owner);
    return shown;
}

/* Behind the name of a latch or a semaphore: those have no owners. */
static void counted_text(enum change what, const struct snapshot_row *before,
                         const struct snapshot_row *after)
{
    const dibs_lock_info *i = after ? &after->s.info : &before->s.info;
    bool latch = i->kind == DIBS_KIND_LATCH;
    char span[OUT_SPAN_MAX];

    if (what == CHANGE_HELD || what == CHANGE_TAKEN)
        printf(latch ? "closed, %" PRId64 " left" : "taken, %" PRId64 " free",
               latch ? i->left : i->free_slots);
    else
        printf("%s after %s%s", latch ? "open" : "all permits are back",
               before->from_start ? "at least " : "",
               out_span(time_now() - before->since, span));
}

/* Behind the name. */
static void change_text(enum change what, const struct snapshot_row *before,
                        const struct snapshot_row *after)
{
    const struct snapshot_row *x = after ? after : before;
    char *owner = owner_shown(x), *was = before ? owner_shown(before) : NULL;
    char span[OUT_SPAN_MAX];

    switch (what) { /* no default: the compiler names a missing case */
    case CHANGE_HELD:
        printf("held by %s", owner ? owner : "?");
        break;
    case CHANGE_TAKEN:
        printf("taken by %s%s%s", owner ? owner : "?", was ? ", before: " : "",
               was ? was : "");
        break;
    case CHANGE_FREE:
        printf("free; %s had it for %s%s", was ? was : "?",
               before->from_start ? "at least " : "",
               out_span(time_now() - before->since, span));
        break;
    case CHANGE_LOST:
        printf("lost by %s: its lease ran out", was ? was : "?");
        break;
    case CHANGE_HOLDERS:
        printf("held by %zu owners, before: %zu", after->s.info.owners,
               before->s.info.owners);
        break;
    case CHANGE_QUEUE:
        printf("%zu wait%s, before: %zu", x->s.queued + x->s.waiting,
               x->s.queued + x->s.waiting == 1 ? "s" : "",
               before ? before->s.queued + before->s.waiting : 0);
        break;
    case CHANGE_VALUE:
        if (x->s.info.published == 0)
            printf("no value any more");
        break;
    }
    free(owner);
    free(was);
}

/* Last in its line: a value may have anything in it, commas, too. */
static void value_text(enum change what, const char *value)
{
    char *shown = value ? out_printable(value, strlen(value)) : NULL;
    bool told = what == CHANGE_HELD || what == CHANGE_TAKEN;

    if (shown && (told || what == CHANGE_VALUE))
        printf("%svalue: %s", told ? ", " : "", shown);
    free(shown);
}

static void line_text(enum change what, const struct snapshot_row *before,
                      const struct snapshot_row *after, const char *value)
{
    const struct snapshot_row *x = after ? after : before;
    char *name = out_printable(x->s.name, x->s.len);
    printf("%s %s: ", stamp_now(false).text, name ? name : "?");
    if (x->s.info.owner[0] || what == CHANGE_HOLDERS || what == CHANGE_QUEUE)
        change_text(what, before, after);
    else
        counted_text(what, before, after);
    value_text(what, value);
    putchar('\n');
    free(name);
}

/* ---- watch: rounds ----------------------------------------------------- */

struct watching {
    const struct args *a;
    struct lock_query k;
    const char *one, *pattern; /* one of them, or none: all locks */
    struct snapshot last;
    bool first;  /* no look has succeeded yet */
    bool counts; /* our user may ask who waits */
    bool away;   /* the last look failed */
};

/* A value is asked for when there is a line to print about its lock, so that
 * locks whose values do not change cost nothing. One that changed meanwhile, or
 * that could not be read, counts as not seen: the next look finds it again. */
static void print_change(enum change what, const struct snapshot_row *before,
                         struct snapshot_row *after, void *arg)
{
    const struct watching *w = arg;
    char *value = after ? query_value(w->k.c, &after->s) : NULL;
    bool unread = after && after->s.info.published != 0 && !value;

    if (unread)
        after->s.info.published =
            before && what != CHANGE_TAKEN ? before->s.info.published : 0;
    if (unread && what == CHANGE_VALUE)
        return;
    if (w->a->json)
        change_json(what, before, after, value);
    else
        line_text(what, before, after, value);
    free(value);
}

static void watch_count(struct watching *w, struct snapshot *v)
{
    for (size_t i = 0; w->counts && v->n <= COUNT_MAX && i < v->n; i++) {
        dibs_err err = query_count(w->k.c, &v->rows[i].s);
        w->counts = err != DIBS_OK || v->rows[i].s.counted;
    }
}

static dibs_err watch_round(struct watching *w)
{
    struct snapshot now;
    dibs_err err = w->one ? snapshot_read_one(&w->k, w->one, &now)
                          : snapshot_read(w->k.c, w->pattern, &now);

    if (err != DIBS_OK)
        return err;
    watch_count(w, &now);
    snapshot_name_owners(w->k.c, &w->last, &now);
    snapshot_compare(&w->last, &now, w->first, print_change, w);
    if (w->first && w->one && now.n == 0 && !w->a->json) {
        char *name = out_printable(w->one, strlen(w->one));
        printf("%s %s: free\n", stamp_now(false).text, name ? name : "?");
        free(name);
    }
    w->first = false;
    snapshot_clear(&w->last);
    w->last = now;
    return DIBS_OK;
}

/* Says that the server is away, and that it is back. Otherwise the code to end
 * with. */
static int watch_trouble(struct watching *w, dibs_err err)
{
    if (err != DIBS_OK && !may_pass(err))
        return query_failed(w->one ? w->one : "watch", err);
    if (err != DIBS_OK && !w->away)
        out_tell(OUT_WARN, "server", "cannot look: %s%s%s", dibs_strerror(err),
                 *dibs_error_text() ? ": " : "", dibs_error_text());
    else if (err == DIBS_OK && w->away)
        out_tell(OUT_WARN, "server", "the server answers again");
    w->away = err != DIBS_OK;
    return EXIT_FINE;
}

/* The pause behind a round; work_ms: of the shorter one of the last two. */
static int64_t watch_rest(int64_t every_ms, int64_t work_ms)
{
    int64_t rest = every_ms - work_ms;

    if (rest < REST_FACTOR * work_ms)
        rest = REST_FACTOR * work_ms;
    return rest > REST_MAX_MS && every_ms < REST_MAX_MS ? REST_MAX_MS : rest;
}

/* Until the reader of our lines is gone, a signal comes, or an error. */
static int watch_loop(struct watching *w, int64_t every_ms)
{
    int code = EXIT_FINE;
    int64_t took = 0;

    while (code == EXIT_FINE) {
        int64_t began = time_now(), before = took;

        code = watch_trouble(w, watch_round(w));
        if (code == EXIT_FINE && (fflush(stdout) != 0 || ferror(stdout)))
            break;
        if (!w->away)
            took = time_now() - began;
        int64_t rest = w->away
                           ? time_earlier(every_ms, RETRY_MS)
                           : watch_rest(every_ms, time_earlier(took, before));
        struct pollfd reader = {.fd = STDOUT_FILENO}; /* for its end only */
        if (poll(&reader, 1, (int)time_earlier(rest, INT_MAX)) > 0)
            break;
    }
    return code;
}

int cmd_watch(const struct args *a)
{
    const char *word = a->n_words > 0 ? a->words[0] : NULL;
    bool one = word && !strpbrk(word, "*?[\\");
    struct watching w = {.a = a, .first = true, .counts = true};
    int64_t every_ms;
    int code = snapshot_interval(a, "watch", one ? EVERY_ONE_MS : EVERY_ALL_MS,
                                 &every_ms);

    if (code != EXIT_FINE)
        return code;
    w.one = one ? word : NULL;
    w.pattern = one ? NULL : word;
    code = one ? query_open_lock(a, &w.k) : query_open(a, &w.k);
    if (code == EXIT_FINE && w.k.c)
        code = watch_loop(&w, every_ms);
    else if (code == EXIT_FINE)
        code = EXIT_SERVER; /* nothing to watch, and that was said */
    snapshot_clear(&w.last);
    query_close(&w.k);
    return out_finish(code);
}

/* ---- wait -------------------------------------------------------------- */

/* The last callback of the library. */
struct waited {
    int fd; /* readable: there is something new */
    pthread_mutex_t mu;
    dibs_err err; /* mu, as all below */
    char why[512];
    dibs_lock_info info;
};

static void on_change(dibs_err err, const dibs_lock_info *info, void *arg)
{
    struct waited *w = arg;
    uint64_t one = 1;

    pthread_mutex_lock(&w->mu);
    w->err = err;
    snprintf(w->why, sizeof w->why, "%s", err ? dibs_error_text() : "");
    if (info)
        w->info = *info;
    pthread_mutex_unlock(&w->mu);
    ssize_t n = write(w->fd, &one, sizeof one);
    (void)n; /* full means readable */
}

static void tell_holder(const struct args *a, struct lock_query *k,
                        const dibs_lock_info *info)
{
    const char *owners[1] = {info->owner};
    struct who who = {.known = false};
    char text[WHO_TEXT_MAX];

    if (!a->verbose)
        return;
    who_ask(k->c, owners, &who, 1);
    out_tell(OUT_INFO, "waiting", "%s is held by %s%s", a->words[0],
             info->owner, owner_describe(&who, text));
}

/* EXIT_FINE: it is free. -1: not yet. */
static int wait_news(const struct args *a, struct lock_query *k,
                     struct waited *w)
{
    uint64_t count;
    char why[512];

    ssize_t n = read(w->fd, &count, sizeof count);
    (void)n;
    pthread_mutex_lock(&w->mu);
    dibs_err err = w->err;
    dibs_lock_info info = w->info;
    memcpy(why, w->why, sizeof why);
    pthread_mutex_unlock(&w->mu);
    if (err == DIBS_OK && !kind_held(&info))
        return EXIT_FINE;
    if (err == DIBS_OK)
        tell_holder(a, k, &info);
    else
        out_tell(may_pass(err) ? OUT_WARN : OUT_ERROR, "server", "%s: %s%s%s",
                 a->words[0], dibs_strerror(err), *why ? ": " : "", why);
    return err == DIBS_OK || may_pass(err) ? -1 : out_exit_of(err);
}

/* The time is over. */
static int wait_over(const struct args *a, struct waited *w)
{
    pthread_mutex_lock(&w->mu);
    dibs_err err = w->err;
    pthread_mutex_unlock(&w->mu);
    if (err != DIBS_OK)
        return out_exit_of(err);
    out_tell(OUT_WARN, "busy", "%s is still held", a->words[0]);
    return a->busy_code;
}

static int wait_loop(const struct args *a, struct lock_query *k,
                     struct waited *w, int64_t until)
{
    int timer = time_fd(), code = -1;

    if (timer >= 0)
        time_arm(timer, until);
    while (code < 0) {
        struct pollfd p[2] = {{.fd = w->fd, .events = POLLIN},
                              {.fd = timer, .events = POLLIN}};

        poll(p, 2, TIME_POLL(timer));
        if (p[0].revents)
            code = wait_news(a, k, w);
        else if (until != TIME_NEVER && time_now() >= until)
            code = wait_over(a, w);
    }
    if (timer >= 0)
        close(timer);
    return code;
}

/* The channel of a lock depends on its kind. */
static dibs_err open_kind(struct lock_query *k, const char *name,
                          const dibs_lock_info *info, dibs_lock **out)
{
    if (info->kind == DIBS_KIND_SLOTS)
        return dibs_slots_lock_new(k->c, name, 1, out);
    return info->mode == DIBS_MODE_READ || info->mode == DIBS_MODE_WRITE
               ? dibs_read_lock_new(k->c, name, out)
               : dibs_lock_new(k->c, name, out);
}

/* Refuses what cannot be watched. EXIT_FINE: it is a lock. */
static int refuse_wait(const char *name, const dibs_lock_info *info)
{
    const char *why = info->kind == DIBS_KIND_LATCH
                          ? "a latch: use 'dibs latch wait'"
                      : info->kind == DIBS_KIND_SEMAPHORE
                          ? "a semaphore: use 'dibs sem acquire'"
                          : NULL;

    if (!why)
        return EXIT_FINE;
    out_tell(OUT_ERROR, "usage", "%s is %s", name, why);
    return EXIT_USAGE;
}

static int wait_until_free(const struct args *a, struct lock_query *k,
                           int64_t until)
{
    struct waited w = {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                       .mu = PTHREAD_MUTEX_INITIALIZER};
    struct lock_row s = {.name = (char *)a->words[0],
                         .info = DIBS_LOCK_INFO_INIT};
    dibs_lock *l = NULL;
    dibs_watch *watch = NULL;
    dibs_err err = query_info(k, &s);
    int code = EXIT_FINE;

    if (err != DIBS_OK) {
        code = query_failed(a->words[0], err);
    } else if (refuse_wait(a->words[0], &s.info) != EXIT_FINE) {
        code = EXIT_USAGE;
    } else if (s.info.locked && a->wait_ms == 0) {
        code = wait_over(a, &w);
    } else if (s.info.locked) {
        err =
            w.fd < 0 ? DIBS_ERR_NOMEM : open_kind(k, a->words[0], &s.info, &l);
        if (err == DIBS_OK)
            err = dibs_lock_watch(l, DIBS_WATCH_OPTS(.every_ms = WAIT_EVERY_MS),
                                  on_change, &w, &watch);
        code = err == DIBS_OK ? wait_loop(a, k, &w, until)
                              : query_failed(a->words[0], err);
    }
    dibs_watch_stop(watch);
    dibs_lock_free(l);
    if (w.fd >= 0)
        close(w.fd);
    return code;
}

int cmd_wait(const struct args *a)
{
    int64_t until =
        a->wait_ms == WAIT_FOREVER ? TIME_NEVER : time_now() + a->wait_ms;
    struct lock_query k;
    int code = query_open_lock(a, &k);

    if (code == EXIT_FINE && k.l)
        code = wait_until_free(a, &k, until);
    query_close(&k);
    return out_finish(code);
}
