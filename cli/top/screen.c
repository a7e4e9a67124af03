/* SPDX-License-Identifier: MIT
 *
 * screen.c - a full screen of text on a terminal, of which only what changed is
 * written.
 *
 * A picture is a grid of cells. flush compares it with the grid that the
 * terminal shows, and writes the cells that differ, all by one write: so
 * nothing blinks, and a slow line carries little. After a change of size all is
 * written.
 *
 * Codes   Those that every terminal of the last forty years knows, and tmux and
 *         screen(1), too: move, clear, bold, dim, reverse, the eight colors,
 *         another screen. So there is no library for them: ncurses would be one
 * more thing to install, in the static command as well, for a dozen codes.
 *
 * Safety  Only what screen_put lets through reaches the terminal: characters
 *         that can be seen, and those that combine with them. All others are
 *         shown as '?'. A terminal that is not UTF-8 gets '?' for all that
 *         is not ASCII.
 *
 * Thread  The first one.
 */
#include "top/screen.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "output/output.h"
#include "output/width.h"

#define ROWS_USUAL 24
#define COLS_USUAL 80
#define SIZE_MAX_  1000 /* rows or columns; more are not used */
#define GAP_MAX    4    /* equal cells that are written rather than skipped */

#define ENTER "\033[?1049h\033[?25l\033[0m\033[2J"
#define LEAVE "\033[0m\033[?25h\033[?1049l"

static const char *const style_codes[] = {
    [STYLE_PLAIN] = "\033[0m",     [STYLE_BOLD] = "\033[0;1m",
    [STYLE_REVERSE] = "\033[0;7m", [STYLE_GOOD] = "\033[0;32m",
    [STYLE_BUSY] = "\033[0;33m",   [STYLE_BAD] = "\033[0;31m",
    [STYLE_DIM] = "\033[0;2m",
};

/* ---- the terminal ------------------------------------------------------ */

bool screen_possible(void)
{
    const char *term = getenv("TERM");

    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
           strcmp(term, "dumb") != 0;
}

static bool write_all(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, text, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        len -= (size_t)n;
    }
    return true;
}

/* Keys come one by one and are not shown. Ctrl-C is still a signal. */
static bool take_terminal(struct screen *s)
{
    struct termios raw = s->before;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    s->unknown = true;
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0 &&
           write_all(ENTER, strlen(ENTER));
}

bool screen_open(struct screen *s)
{
    *s = (struct screen){.colored = out_colored(stdout)};
    if (tcgetattr(STDIN_FILENO, &s->before) != 0 || !screen_resize(s))
        return false;
    /* Widths are known in any UTF-8 locale; the terminal's says what it
     * understands. */
    setlocale(LC_CTYPE, "");
    s->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    s->open = take_terminal(s);
    return s->open;
}

void screen_suspend(struct screen *s)
{
    if (!s->open)
        return;
    (void)write_all(LEAVE, strlen(LEAVE));
    tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
}

void screen_resume(struct screen *s)
{
    if (s->open)
        (void)take_terminal(s);
}

void screen_close(struct screen *s)
{
    screen_suspend(s);
    free(s->now);
    free(s->shown);
    *s = (struct screen){.open = false};
}

static int sane_size(int n, int usual)
{
    return n < 1 ? usual : n > SIZE_MAX_ ? SIZE_MAX_ : n;
}

bool screen_resize(struct screen *s)
{
    struct winsize size = {0};

    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    int rows = sane_size(size.ws_row, ROWS_USUAL);
    int cols = sane_size(size.ws_col, COLS_USUAL);
    size_t n = (size_t)rows * (size_t)cols;
    struct cell *now = calloc(n, sizeof *now);
    struct cell *shown = calloc(n, sizeof *shown);

    if (!now || !shown) {
        free(now);
        free(shown);
        return false;
    }
    free(s->now);
    free(s->shown);
    s->now = now;
    s->shown = shown;
    s->rows = rows;
    s->cols = cols;
    s->unknown = true;
    screen_blank(s);
    return true;
}

/* ---- the picture ------------------------------------------------------- */

void screen_blank(struct screen *s)
{
    for (int i = 0; i < s->rows * s->cols; i++)
        s->now[i] = (struct cell){.text = " "};
}

/* The next character of the text: its bytes, and how many columns it takes; 0
 * for one that combines with the one before it. */
static int next_char(const struct screen *s, const char **text, char out[5])
{
    size_t len = 1;
    int width =
        (unsigned char)**text < 0x80 || s->utf8 ? width_char(*text, &len) : -1;

    memcpy(out, width < 0 ? "?" : *text, width < 0 ? 1 : len);
    out[width < 0 ? 1 : len] = '\0';
    *text += len;
    return width < 0 ? 1 : width;
}

/* Puts a combining character behind what is in the cell before col. */
static void combine_char(struct screen *s, int row, int col, const char *one)
{
    struct cell *at = &s->now[row * s->cols + col];

    if (col > 0 && at[-1].text[0] == '\0')
        at--; /* the second half of a wide one */
    if (col > 0 && strlen(at[-1].text) + strlen(one) < sizeof at->text)
        strcat(at[-1].text, one);
}

int screen_put(struct screen *s, int row, int col, int width,
               enum screen_style style, const char *text)
{
    int end = col + width < s->cols ? col + width : s->cols;
    char one[5];

    if (row < 0 || row >= s->rows || col < 0)
        return col;
    while (*text && col <= end) {
        int wide = next_char(s, &text, one);

        if (wide == 0) {
            combine_char(s, row, col, one);
            continue;
        }
        if (col + wide > end)
            break;
        struct cell *at = &s->now[row * s->cols + col];
        strcpy(at->text, one);
        at->style = (unsigned char)style;
        if (wide == 2)
            at[1] = (struct cell){.text = "", .style = (unsigned char)style};
        col += wide;
    }
    return col;
}

void screen_style_row(struct screen *s, int row, enum screen_style style)
{
    for (int i = 0; row >= 0 && row < s->rows && i < s->cols; i++)
        s->now[row * s->cols + i].style = (unsigned char)style;
}

/* ---- writing ----------------------------------------------------------- */

static bool same_cell(const struct cell *a, const struct cell *b)
{
    return a->style == b->style && strcmp(a->text, b->text) == 0;
}

/* Where the next run of cells that differ begins in a row, from col on; and
 * where it ends. False: there is none. */
static bool next_run(const struct screen *s, int row, int *col, int *end)
{
    const struct cell *now = s->now + row * s->cols;
    const struct cell *shown = s->shown + row * s->cols;
    int same = 0;

    while (*col < s->cols && !s->unknown && same_cell(&now[*col], &shown[*col]))
        ++*col;
    if (*col >= s->cols)
        return false;
    if (*col > 0 && now[*col].text[0] == '\0')
        --*col; /* a wide character is written from its first half */
    *end = *col + 1;
    for (int i = *end; i < s->cols && same <= GAP_MAX; i++) {
        bool differs = s->unknown || !same_cell(&now[i], &shown[i]);

        same = differs ? 0 : same + 1;
        if (differs)
            *end = i + 1;
    }
    return true;
}

static void write_run(const struct screen *s, FILE *f, int row, int col,
                      int end)
{
    int style = -1;

    fprintf(f, "\033[%d;%dH", row + 1, col + 1);
    for (int i = col; i < end; i++) {
        const struct cell *at = &s->now[row * s->cols + i];

        if (at->style != style) {
            style = at->style;
            fputs(style_codes[!s->colored && style >= STYLE_GOOD ? STYLE_PLAIN
                                                                 : style],
                  f);
        }
        fputs(at->text, f);
    }
    fputs(style_codes[STYLE_PLAIN], f);
}

bool screen_flush(struct screen *s)
{
    struct out_text text;
    bool fine = true;

    if (!out_text_open(&text))
        return true; /* no memory: the next time */
    for (int row = 0; row < s->rows; row++)
        for (int col = 0, end; next_run(s, row, &col, &end); col = end)
            write_run(s, text.f, row, col, end);
    char *all = out_text_close(&text);
    if (all) {
        fine = write_all(all, text.size);
        memcpy(s->shown, s->now,
               (size_t)s->rows * (size_t)s->cols * sizeof *s->now);
        s->unknown = false;
    }
    free(all);
    return fine;
}
