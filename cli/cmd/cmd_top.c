/* SPDX-License-Identifier: MIT
 *
 * cmd_top.c - dibs top: the locks, their holders and their waiters on a live
 * screen.
 *
 * poller.c looks at the server on a thread of its own. The first thread waits
 * for a look, a key or a signal, makes the picture anew and has screen.c write
 * what differs. Nothing is held, so there is nothing to give back at the end
 * but the terminal.
 *
 * The server does not know since when a lock is held. The age is counted from
 * when we saw the owner first; if that was in the first look, a + follows.
 *
 * Rows of the picture: two of summary, the heads of the columns, the locks, and
 * one that has the chosen lock in full, or what is typed as a filter.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exit_codes.h"
#include "inspect/poller.h"
#include "output/error_advice.h"
#include "output/width.h"
#include "run/signals.h"
#include "top/keyboard.h"
#include "top/screen.h"
#include "top/top_text.h"
#include "util/time.h"

#define EVERY_MS   1000
#define ESCAPE_MS  100 /* for the rest of a key */
#define SECOND_MS  1000
#define FILTER_MAX 64
#define HEAD_ROWS  3
#define FOOT_ROWS  1

enum column { BY_NAME, BY_OWNER, BY_AGE, BY_LEASE, BY_WAITERS, BY_CHANGES };

static const struct {
    const char *head;
    char key;
    int width; /* 0: what is left is shared by these */
    bool down; /* the largest first */
} columns[] = {
    [BY_NAME] = {"NAME", 'n', 0, false},
    [BY_OWNER] = {"OWNER", 'o', 0, false},
    [BY_AGE] = {"AGE", 'a', 8, true},
    [BY_LEASE] = {"LEASE", 'l', 8, false},
    [BY_WAITERS] = {"WAIT", 'w', 5, true},
    [BY_CHANGES] = {"CHG", 'c', 5, true},
};
#define COLUMNS    (sizeof columns / sizeof *columns)
#define MODE_WIDTH 6
#define SHARED_MIN 20 /* columns for name and owner */

struct top {
    struct poller poller;
    struct screen screen;
    struct signals signals;
    struct keys keys;
    const char *where; /* the server, for the first line */
    enum column by;
    bool reversed, paused, typing, over;
    bool stale; /* the last look is older than it should be */
    int fatal;  /* the signal that ends us, or 0 */
    char filter[FILTER_MAX];
    size_t cursor, offset;             /* in shown */
    const struct snapshot_row **shown; /* those that the filter lets through */
    size_t n_shown, room;
};

/* ---- which locks, in which order --------------------------------------- */

static const struct top *sorting; /* qsort passes nothing on */

static int by_number(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int column_order(const struct snapshot_row *x,
                        const struct snapshot_row *y)
{
    char a[2 * WHO_TEXT_MAX], b[2 * WHO_TEXT_MAX];

    switch (sorting->by) {
    case BY_NAME:
        break; /* the snapshot is in that order */
    case BY_OWNER:
        top_owner(x, a, sizeof a);
        top_owner(y, b, sizeof b);
        return strcmp(a, b);
    case BY_AGE:
        return by_number(x->since, y->since);
    case BY_LEASE:
        return by_number(x->ends, y->ends);
    case BY_WAITERS:
        return by_number((int64_t)top_waiters(y), (int64_t)top_waiters(x));
    case BY_CHANGES:
        return by_number(y->changes, x->changes);
    }
    return 0;
}

static int in_order(const void *a, const void *b)
{
    const struct snapshot_row *x = *(const struct snapshot_row *const *)a;
    const struct snapshot_row *y = *(const struct snapshot_row *const *)b;
    int way = column_order(x, y);

    if (way == 0)
        way = (x > y) - (x < y); /* by name, as the snapshot has them */
    return sorting->reversed ? -way : way;
}

static bool passes_filter(const struct top *t, const struct snapshot_row *x)
{
    char owner[2 * WHO_TEXT_MAX];

    if (!t->filter[0] ||
        memmem(x->s.name, x->s.len, t->filter, strlen(t->filter)) ||
        strstr(x->s.info.owner, t->filter))
        return true;
    top_owner(x, owner, sizeof owner);
    return strstr(owner, t->filter) != NULL;
}

/* Requires poller.mu. */
static void choose_locks(struct top *t)
{
    const struct snapshot *v = &t->poller.now;

    t->n_shown = 0;
    if (v->n > t->room) {
        const struct snapshot_row **more =
            reallocarray(t->shown, v->n, sizeof *more);
        if (!more)
            return; /* nothing is shown this time */
        t->shown = more;
        t->room = v->n;
    }
    for (size_t i = 0; i < v->n; i++)
        if (passes_filter(t, &v->rows[i]))
            t->shown[t->n_shown++] = &v->rows[i];
    sorting = t;
    if (t->n_shown > 1 && (t->by != BY_NAME || t->reversed))
        qsort(t->shown, t->n_shown, sizeof *t->shown, in_order);
}

/* ---- the picture ------------------------------------------------------- */

static size_t list_rows(const struct top *t)
{
    int rows = t->screen.rows - HEAD_ROWS - FOOT_ROWS;

    return rows > 0 ? (size_t)rows : 0;
}

/* The chosen one stays on the screen. */
static void scroll_list(struct top *t)
{
    size_t rows = list_rows(t);

    if (t->cursor >= t->n_shown)
        t->cursor = t->n_shown > 0 ? t->n_shown - 1 : 0;
    if (t->cursor < t->offset)
        t->offset = t->cursor;
    if (rows > 0 && t->cursor >= t->offset + rows)
        t->offset = t->cursor - rows + 1;
}

/* Right-aligned in the first line, from column from on at most: all of the
 * address, or else its end, or nothing. */
static void draw_server(struct top *t, int from)
{
    char *shown = out_printable(t->where, strlen(t->where));
    const char *at = shown ? shown : "", *host = strstr(at, "://");
    int room = t->screen.cols - from;

    if (host && width_text(at) > room)
        at = host + 3;
    if (width_text(at) <= room)
        screen_put(&t->screen, 0, t->screen.cols - width_text(at), room,
                   STYLE_PLAIN, at);
    free(shown);
}

static void draw_summary(struct top *t)
{
    const struct poller *f = &t->poller;
    char text[256], span[OUT_SPAN_MAX];
    size_t holders = 0;

    for (size_t i = 0; i < f->now.n; i++)
        holders += f->now.rows[i].s.info.owners;
    int col =
        screen_put(&t->screen, 0, 0, t->screen.cols, STYLE_BOLD, "dibs top  ");
    snprintf(text, sizeof text, "stale for %" PRId64 " s",
             (time_now() - f->seen_at) / 1000);
    if (t->stale || t->paused)
        col = 2 + screen_put(&t->screen, 0, col, t->screen.cols,
                             t->stale ? STYLE_BAD : STYLE_BUSY,
                             t->stale ? text : "stopped");
    int n =
        snprintf(text, sizeof text, "%zu lock%s, %zu holder%s", f->now.n,
                 f->now.n == 1 ? "" : "s", holders, holders == 1 ? "" : "s");
    if (!t->stale && !t->paused)
        snprintf(text + n, sizeof text - (size_t)n,
                 ", %.1f changes/s, every %s", f->rate,
                 out_span(f->pause_ms, span));
    col = screen_put(&t->screen, 0, col, t->screen.cols, STYLE_BOLD, text);
    draw_server(t, col + 2);
    if (f->err != DIBS_OK) {
        snprintf(text, sizeof text, "cannot look: %.200s",
                 *f->why ? failure_words(f->why) : dibs_strerror(f->err));
        screen_put(&t->screen, 1, 0, t->screen.cols, STYLE_BAD, text);
    } else if (!f->any) {
        screen_put(&t->screen, 1, 0, t->screen.cols, STYLE_PLAIN, "looking...");
    } else if (t->filter[0] && !t->typing) {
        col = screen_put(&t->screen, 1, 0, 8, STYLE_BUSY, "filter: ");
        col = screen_put(&t->screen, 1, col, FILTER_MAX, STYLE_BUSY, t->filter);
        snprintf(text, sizeof text, "  (%zu shown; Esc ends it)", t->n_shown);
        screen_put(&t->screen, 1, col, t->screen.cols, STYLE_BUSY, text);
    } else {
        screen_put(&t->screen, 1, 0, t->screen.cols, STYLE_PLAIN,
                   "q end  n o a l w c sort  r turn  / filter  space stop");
    }
}

/* The widths of the columns. Two share what is left; if that is too little,
 * others are left out. */
static void share_width(const struct top *t, int width[COLUMNS])
{
    static const enum column spare[] = {BY_CHANGES, BY_AGE, BY_WAITERS};
    int left = t->screen.cols - MODE_WIDTH;

    for (size_t i = 0; i < COLUMNS; i++) {
        width[i] = columns[i].width;
        left -= columns[i].width;
    }
    for (size_t i = 0; left < SHARED_MIN && i < sizeof spare / sizeof *spare;
         i++) {
        left += width[spare[i]];
        width[spare[i]] = 0;
    }
    left = left > SHARED_MIN ? left : SHARED_MIN;
    width[BY_NAME] = left * 9 / 20;
    width[BY_OWNER] = left - width[BY_NAME];
}

static void draw_heads(struct top *t, const int width[COLUMNS])
{
    int row = HEAD_ROWS - 1, col = 0;
    char head[16];

    for (size_t i = 0; i < COLUMNS; i++) {
        snprintf(head, sizeof head, "%s%s", columns[i].head,
                 t->by != i                       ? ""
                 : columns[i].down != t->reversed ? "-"
                                                  : "+");
        screen_put(&t->screen, row, col, width[i] - 1, STYLE_PLAIN, head);
        col += width[i];
        if (i == BY_OWNER) {
            screen_put(&t->screen, row, col, MODE_WIDTH - 1, STYLE_PLAIN,
                       "MODE");
            col += MODE_WIDTH;
        }
    }
    screen_style_row(&t->screen, row, STYLE_REVERSE);
}

static void column_text(const struct snapshot_row *x, enum column c,
                        int64_t now, char *buf, size_t size)
{
    char span[TOP_SPAN_MAX];

    switch (c) {
    case BY_NAME:
        break; /* printed as it is, cleaned */
    case BY_OWNER:
        top_owner(x, buf, size);
        break;
    case BY_AGE:
        snprintf(buf, size, "%s%s", top_span(now - x->since, span),
                 x->from_start ? "+" : "");
        break;
    case BY_LEASE:
        snprintf(buf, size, "%s",
                 x->ends == TIME_NEVER ? "no end"
                                       : top_span(x->ends - now, span));
        break;
    case BY_WAITERS:
        snprintf(buf, size, query_has_counts(&x->s) ? "%zu" : "-",
                 top_waiters(x));
        break;
    case BY_CHANGES:
        snprintf(buf, size, "%u", x->changes);
        break;
    }
}

static void draw_lock(struct top *t, int row, const struct snapshot_row *x,
                      const int width[COLUMNS])
{
    char text[2 * WHO_TEXT_MAX] = "";
    char *name = out_printable(x->s.name, x->s.len);
    int64_t now = x->at; /* so that nothing changes but by a look */
    int col = 0;

    for (size_t i = 0; i < COLUMNS; i++) {
        column_text(x, (enum column)i, now, text, sizeof text);
        screen_put(&t->screen, row, col, width[i] - 1,
                   i == BY_LEASE && x->ends == TIME_NEVER  ? STYLE_BAD
                   : i == BY_WAITERS && top_waiters(x) > 0 ? STYLE_BUSY
                                                           : STYLE_PLAIN,
                   i == BY_NAME ? (name ? name : "?") : text);
        col += width[i];
        if (i == BY_OWNER) {
            screen_put(&t->screen, row, col, MODE_WIDTH - 1, STYLE_PLAIN,
                       top_mode(&x->s.info));
            col += MODE_WIDTH;
        }
    }
    free(name);
}

/* The last row: the chosen lock in full, or the filter as it is typed. */
static void draw_foot(struct top *t)
{
    int row = t->screen.rows - 1;
    char who[WHO_TEXT_MAX];

    if (t->typing) {
        int col = screen_put(&t->screen, row, 0, 1, STYLE_BOLD, "/");
        screen_put(&t->screen, row, col, FILTER_MAX, STYLE_BOLD, t->filter);
        return;
    }
    if (t->n_shown == 0)
        return;
    const struct snapshot_row *x = t->shown[t->cursor];
    char *name = out_printable(x->s.name, x->s.len);
    int col = screen_put(&t->screen, row, 0, t->screen.cols, STYLE_BOLD,
                         name ? name : "?");
    col = screen_put(&t->screen, row, col + 2, t->screen.cols, STYLE_PLAIN,
                     x->s.info.owner);
    screen_put(&t->screen, row, col, t->screen.cols, STYLE_PLAIN,
               owner_describe(&x->s.who, who));
    free(name);
}

static void draw_list(struct top *t)
{
    int width[COLUMNS];

    share_width(t, width);
    draw_heads(t, width);
    poller_clear_visible(&t->poller);
    for (size_t i = 0; i < list_rows(t) && t->offset + i < t->n_shown; i++) {
        const struct snapshot_row *x = t->shown[t->offset + i];
        int row = HEAD_ROWS + (int)i;

        draw_lock(t, row, x, width);
        if (t->offset + i == t->cursor)
            screen_style_row(&t->screen, row, STYLE_REVERSE);
        else if (t->stale)
            screen_style_row(&t->screen, row, STYLE_DIM);
        poller_add_visible(&t->poller, &x->s);
    }
}

/* Nobody is there any more; the signal that says so may come a moment later. */
static void end_without_terminal(struct top *t)
{
    t->over = true;
    t->fatal = SIGHUP;
}

static void draw_picture(struct top *t)
{
    poller_lock(&t->poller);
    t->stale = poller_stale_at(&t->poller) <= time_now();
    choose_locks(t);
    scroll_list(t);
    screen_blank(&t->screen);
    draw_summary(t);
    draw_list(t);
    draw_foot(t);
    poller_unlock(&t->poller);
    if (!screen_flush(&t->screen))
        end_without_terminal(t);
}

/* ---- keys and signals -------------------------------------------------- */

static void type_filter(struct top *t, int key)
{
    size_t n = strlen(t->filter);

    if (key == '\r' || key == '\n') {
        t->typing = false;
    } else if (key == KEY_ESCAPE) {
        t->typing = false;
        t->filter[0] = '\0';
    } else if ((key == 127 || key == 8) && n > 0) {
        do /* a character that is not ASCII has several bytes */
            n--;
        while (n > 0 && ((unsigned char)t->filter[n] & 0xC0) == 0x80);
        t->filter[n] = '\0';
    } else if (key >= ' ' && key < 256 && key != 127 && n + 1 < FILTER_MAX) {
        t->filter[n] = (char)key;
        t->filter[n + 1] = '\0';
    }
    t->cursor = t->offset = 0;
}

static void move_cursor(struct top *t, int key)
{
    size_t page = list_rows(t) > 1 ? list_rows(t) - 1 : 1;
    size_t last = t->n_shown > 0 ? t->n_shown - 1 : 0;
    size_t step = key == KEY_PAGE_UP || key == KEY_PAGE_DOWN ? page : 1;

    if (key == KEY_HOME)
        t->cursor = 0;
    else if (key == KEY_END)
        t->cursor = last;
    else if (key == KEY_UP || key == KEY_PAGE_UP || key == 'k')
        t->cursor -= t->cursor < step ? t->cursor : step;
    else
        t->cursor += last - t->cursor < step ? last - t->cursor : step;
}

static void sort_by(struct top *t, int key)
{
    for (size_t i = 0; i < COLUMNS; i++)
        if (columns[i].key == key) {
            t->by = (enum column)i;
            t->reversed = false;
            t->cursor = t->offset = 0;
        }
}

static void press_key(struct top *t, int key)
{
    if (t->typing) {
        type_filter(t, key);
        return;
    }
    switch (key) {
    case 'q':
        t->over = true;
        break;
    case 'r':
        t->reversed = !t->reversed;
        break;
    case '/':
        t->typing = true;
        break;
    case KEY_ESCAPE:
        t->filter[0] = '\0';
        break;
    case ' ':
        t->paused = !t->paused;
        poller_pause(&t->poller, t->paused);
        break;
    case KEY_UP:
    case KEY_DOWN:
    case KEY_PAGE_UP:
    case KEY_PAGE_DOWN:
    case KEY_HOME:
    case KEY_END:
    case 'j':
    case 'k':
        move_cursor(t, key);
        break;
    default:
        sort_by(t, key);
    }
}

static void take_signal(struct top *t, int sig)
{
    if (sig == SIGWINCH) {
        if (!screen_resize(&t->screen))
            t->over = true;
    } else if (sig == SIGTSTP) {
        screen_suspend(&t->screen);
        (void)signals_stop(sig, false);
        screen_resume(&t->screen);
    } else if (signals_fatal(sig)) {
        t->over = true;
        t->fatal = sig;
    }
}

static void take_events(struct top *t, const struct pollfd p[3], bool quiet)
{
    struct signal_got got;
    int key;

    if (p[0].revents && !keys_read(&t->keys, STDIN_FILENO))
        end_without_terminal(t);
    while ((key = keys_next(&t->keys, quiet)) != KEY_NONE)
        press_key(t, key);
    if (p[1].revents)
        poller_mark_seen(&t->poller);
    while (p[2].revents && signals_next(&t->signals, &got))
        take_signal(t, got.sig);
}

/* How long the picture stays right, for poll: a second while the number of
 * seconds in it counts, else until the look in it is stale. */
static int until_redraw(struct top *t)
{
    poller_lock(&t->poller);
    int64_t at = poller_stale_at(&t->poller), left = at - time_now();
    poller_unlock(&t->poller);
    return at == TIME_NEVER ? -1
           : left <= 0      ? SECOND_MS
                            : (int)time_earlier(left + 1, INT_MAX);
}

static void top_loop(struct top *t)
{
    while (!t->over) {
        struct pollfd p[3] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = t->poller.fd, .events = POLLIN},
                              {.fd = t->signals.fd, .events = POLLIN}};

        draw_picture(t);
        if (t->over)
            break;
        int n = poll(p, 3, t->keys.n > 0 ? ESCAPE_MS : until_redraw(t));
        take_events(t, p, n == 0);
    }
}

/* ---- the command ------------------------------------------------------- */

static int top_run(const struct args *a, struct top *t, dibs_client *c,
                   int64_t every_ms)
{
    int code = poller_open(&t->poller, c, a->n_words > 0 ? a->words[0] : NULL,
                           every_ms);

    if (code == EXIT_FINE && screen_open(&t->screen)) {
        top_loop(t);
        screen_close(&t->screen);
    } else if (code == EXIT_FINE) {
        screen_close(&t->screen);
        out_tell(OUT_ERROR, "internal", "top: the terminal cannot be used");
        code = EXIT_INTERNAL;
    }
    (void)dibs_client_close(c, 1); /* ends the look that is under way */
    poller_close(&t->poller);
    free(t->shown);
    return code;
}

int cmd_top(const struct args *a)
{
    struct top t = {.by = BY_NAME, .signals = {.fd = -1}};
    struct lock_query k = {.c = NULL};
    int64_t every_ms;
    int code = snapshot_interval(a, "top", EVERY_MS, &every_ms);

    if (code != EXIT_FINE)
        return code;
    if (!screen_possible())
        return args_wrong(command_find("top"), "dibs ls --json",
                          "needs a terminal; for programs and files there is "
                          "'dibs ls --json'");
    if (!signals_open(&t.signals)) { /* before there are threads */
        out_tell(OUT_ERROR, "internal", "top: no descriptor left");
        return EXIT_INTERNAL;
    }
    code = query_open(a, &k);
    t.where = k.server.url ? k.server.url : "";
    if (code == EXIT_FINE && k.c)
        code = top_run(a, &t, k.c, every_ms);
    else if (code == EXIT_FINE)
        code = EXIT_SERVER;
    query_close(&k);
    signals_close(&t.signals);
    return t.fatal ? EXIT_SIGNAL + t.fatal : out_finish(code);
}
