/* SPDX-License-Identifier: MIT
 *
 * poller.c - polls all locks, on a thread of its own.
 *
 * A look at ten thousand locks takes a while; a user who types must not wait
 * for it. So this thread looks, and the first one shows what was seen last.
 *
 * Load    One round of SCAN at a time, never more often than every_ms, and the
 *         pause after a round is at least four times as long as the work of it:
 *         however many locks there are, the server does other things most of
 *         the time. A server that is silent for a while does no work for us, so
 *         a round counts as no longer than the one before it. A round that
 *         failed is repeated after a second.
 *         Who waits is asked for each lock that is on the screen; for all, if
 *         there are few.
 *
 * Locks   poller.mu, not held while the server is asked.
 */
#include "inspect/poller.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "exit_codes.h"
#include "output/error_advice.h"
#include "util/time.h"

#define REST_FACTOR 4
#define REST_MAX_MS 60000
#define RETRY_MS    1000
#define STALE_MS    2000 /* that a look may come later than expected */
#define COUNT_ALL   200 /* locks; if there are more, only those on the screen */

void poller_lock(struct poller *f)
{
    pthread_mutex_lock(&f->mu);
}

void poller_unlock(struct poller *f)
{
    pthread_mutex_unlock(&f->mu);
}

static void notify_fd(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);

    (void)n; /* full means readable */
}

static void drain_fd(int fd)
{
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof count);

    (void)n;
}

void poller_mark_seen(struct poller *f)
{
    drain_fd(f->fd);
}

int64_t poller_stale_at(const struct poller *f)
{
    return f->paused || !f->any ? TIME_NEVER
           : f->err != DIBS_OK  ? f->seen_at
                                : f->due_at;
}

void poller_clear_visible(struct poller *f)
{
    for (size_t i = 0; i < f->n_visible; i++)
        free(f->visible[i].name);
    f->n_visible = 0;
}

void poller_add_visible(struct poller *f, const struct lock_row *s)
{
    if (f->n_visible == POLLER_VISIBLE_MAX)
        return;
    char *copy = malloc(s->len + 1);
    if (!copy)
        return; /* it is not counted then */
    memcpy(copy, s->name, s->len + 1);
    f->visible[f->n_visible++] = (struct lock_row){.name = copy, .len = s->len};
}

void poller_pause(struct poller *f, bool paused)
{
    poller_lock(f);
    f->paused = paused;
    f->due_at = time_now() + STALE_MS;
    poller_unlock(f);
    notify_fd(f->wake);
}

/* ---- a round ----------------------------------------------------------- */

static void count_change(enum change what, const struct snapshot_row *before,
                         struct snapshot_row *after, void *arg)
{
    unsigned *n = arg;

    (void)before;
    (void)after;
    *n += what == CHANGE_TAKEN || what == CHANGE_FREE || what == CHANGE_LOST;
}

/* The names that the screen shows, as a copy: they may change meanwhile. */
static size_t copy_visible(struct poller *f,
                           struct lock_row out[POLLER_VISIBLE_MAX])
{
    size_t n = 0;

    poller_lock(f);
    for (; n < f->n_visible; n++) {
        out[n] = f->visible[n];
        out[n].name = malloc(out[n].len + 1);
        if (!out[n].name)
            break;
        memcpy(out[n].name, f->visible[n].name, out[n].len + 1);
    }
    poller_unlock(f);
    return n;
}

static void count_wanted(struct poller *f, struct snapshot *v)
{
    struct lock_row visible[POLLER_VISIBLE_MAX];
    size_t n = copy_visible(f, visible);
    bool may = true;

    for (size_t i = 0; i < n; i++) {
        struct snapshot_row *x = snapshot_find(v, &visible[i]);

        if (x && may)
            may = query_count(f->c, &x->s) == DIBS_OK && x->s.counted;
        free(visible[i].name);
    }
}

static void count_round(struct poller *f, struct snapshot *v)
{
    bool may = true;

    if (v->n > COUNT_ALL) {
        count_wanted(f, v);
        return;
    }
    for (size_t i = 0; may && i < v->n; i++)
        may =
            query_count(f->c, &v->rows[i].s) == DIBS_OK && v->rows[i].s.counted;
}

static void keep_round(struct poller *f, struct snapshot *next, int64_t since)
{
    unsigned changes = 0;
    struct snapshot old;

    snapshot_compare(&f->now, next, !f->any, count_change, &changes);
    int64_t ms = time_now() - since;
    double rate = f->any && ms > 0 ? changes * 1000.0 / (double)ms : 0;
    poller_lock(f);
    old = f->now;
    f->now = *next;
    f->rate = f->any ? (f->rate + rate) / 2 : 0;
    f->any = true;
    poller_unlock(f);
    snapshot_clear(&old);
}

/* Only this thread changes poller.now, so it may read it without the lock. */
static void poller_round(struct poller *f, int64_t since)
{
    struct snapshot next;
    dibs_err err = snapshot_read(f->c, f->pattern, &next);

    if (err == DIBS_OK) {
        count_round(f, &next);
        snapshot_name_owners(f->c, &f->now, &next);
        keep_round(f, &next, since);
    }
    poller_lock(f);
    f->err = err;
    if (err == DIBS_OK)
        f->seen_at = time_now();
    snprintf(f->why, sizeof f->why, "%s", err ? dibs_error_text() : "");
    failure_trim(f->why);
    poller_unlock(f);
    notify_fd(f->fd);
}

/* ---- the thread -------------------------------------------------------- */

/* Until it is time for a round; false: it is to end. */
static bool poller_rest(struct poller *f, int64_t until)
{
    for (;;) {
        struct pollfd p = {.fd = f->wake, .events = POLLIN};

        poller_lock(f);
        bool stop = f->stop, paused = f->paused;
        poller_unlock(f);
        int64_t left = until - time_now();
        if (stop || (left <= 0 && !paused))
            return !stop;
        poll(&p, 1, paused ? -1 : (int)time_earlier(left, INT_MAX));
        if (p.revents)
            drain_fd(f->wake);
    }
}

/* The pause behind a round. work_ms: of the shorter one of the last two. */
static int64_t rest_after(const struct poller *f, int64_t work_ms)
{
    int64_t rest = f->every_ms - work_ms;

    if (f->err != DIBS_OK)
        return time_earlier(f->every_ms, RETRY_MS);
    if (rest < REST_FACTOR * work_ms)
        rest = REST_FACTOR * work_ms;
    if (rest > REST_MAX_MS && f->every_ms < REST_MAX_MS)
        rest = REST_MAX_MS;
    return rest;
}

static void *poller_main(void *arg)
{
    struct poller *f = arg;
    int64_t began = time_now(), since, took = 0, before, rest;

    do {
        since = began;
        began = time_now();
        before = took;
        poller_round(f, since);
        poller_lock(f);
        if (f->err == DIBS_OK)
            took = time_now() - began;
        int64_t work = time_earlier(took, before);
        rest = rest_after(f, work);
        if (f->err == DIBS_OK)
            f->pause_ms = rest + work;
        f->due_at = time_now() + rest + work + STALE_MS;
        poller_unlock(f);
    } while (poller_rest(f, time_now() + rest));
    return NULL;
}

int poller_open(struct poller *f, dibs_client *c, const char *pattern,
                int64_t every_ms)
{
    *f = (struct poller){
        .c = c,
        .pattern = pattern,
        .every_ms = every_ms,
        .pause_ms = every_ms,
        .seen_at = time_now(),
        .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .mu = PTHREAD_MUTEX_INITIALIZER,
    };
    f->started = f->fd >= 0 && f->wake >= 0 &&
                 pthread_create(&f->thread, NULL, poller_main, f) == 0;
    if (f->started)
        return EXIT_FINE;
    out_tell(OUT_ERROR, "internal", "top: no descriptor or thread left");
    return EXIT_INTERNAL;
}

void poller_close(struct poller *f)
{
    if (f->started) {
        poller_lock(f);
        f->stop = true;
        poller_unlock(f);
        notify_fd(f->wake);
        pthread_join(f->thread, NULL);
    }
    poller_clear_visible(f);
    snapshot_clear(&f->now);
    if (f->fd >= 0)
        close(f->fd);
    if (f->wake >= 0)
        close(f->wake);
}
