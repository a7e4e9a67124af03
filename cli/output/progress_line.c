/* SPDX-License-Identifier: MIT
 *
 * progress_line.c - a line on the terminal that changes while we wait.
 *
 * The line is written without a newline. It is replaced and erased with blanks
 * and carriage returns, which every terminal knows. It is kept shorter than the
 * terminal is wide: a line that wraps could not be replaced.
 *
 * Thread  Any. Messages come from the thread that opens the clients, too.
 */
#include "output/progress_line.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "output/output.h"

#define WIDTH_USUAL 80 /* of a terminal of unknown width */
#define WIDTH_MAX   400

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static size_t shown; /* columns that are written to */

bool progress_possible(void)
{
    return isatty(STDERR_FILENO) && tcgetpgrp(STDERR_FILENO) == getpgrp();
}

static size_t terminal_width(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return WIDTH_USUAL;
    return size.ws_col < WIDTH_MAX ? size.ws_col : WIDTH_MAX;
}

/* How many bytes of the text fit into so many columns. A character that is not
 * ASCII may take two. */
static size_t fitting_bytes(const char *text, size_t columns, size_t *used)
{
    size_t n = 0;

    for (*used = 0; text[n];) {
        size_t len = 1, wide = (unsigned char)text[n] < 0x80 ? 1 : 2;

        while (((unsigned char)text[n + len] & 0xC0) == 0x80)
            len++;
        if (*used + wide > columns)
            break;
        *used += wide;
        n += len;
    }
    return n;
}

/* With mu held. */
static void write_over(const char *text)
{
    char line[2 * WIDTH_MAX * 4 + 8];
    size_t columns = terminal_width() - 1, used;
    size_t n = fitting_bytes(text, columns, &used);
    size_t rest = shown > used ? shown - used : 0;

    if (n > WIDTH_MAX * 4)
        return;
    if (rest > columns - used)
        rest = columns - used; /* the terminal was made narrower */
    int len = snprintf(line, sizeof line, "\r%.*s%*s%s", (int)n, text,
                       (int)rest, "", n == 0 ? "\r" : "");
    shown = used;
    ssize_t sent = write(STDERR_FILENO, line, (size_t)len);
    (void)sent; /* a terminal that is gone shows nothing */
}

void progress_show(const char *text)
{
    char *clean = out_printable(text, strlen(text));

    pthread_mutex_lock(&mu);
    if (clean && progress_possible())
        write_over(clean);
    pthread_mutex_unlock(&mu);
    free(clean);
}

void progress_clear(void)
{
    pthread_mutex_lock(&mu);
    if (shown > 0)
        write_over("");
    shown = 0;
    pthread_mutex_unlock(&mu);
}
