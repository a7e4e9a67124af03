/* SPDX-License-Identifier: MIT
 *
 * screen.h - a full screen of text on a terminal, of which only what changed is
 * written.
 */
#ifndef DIBS_CLI_TOP_SCREEN_H
#define DIBS_CLI_TOP_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

enum screen_style {
    STYLE_PLAIN,
    STYLE_BOLD,
    STYLE_REVERSE,
    STYLE_GOOD,
    STYLE_BUSY,
    STYLE_BAD,
    STYLE_DIM /* as a color: not with NO_COLOR */
};

/* One column. */
struct cell {
    char text[21];       /* one character, and what combines with it; "": the
                            second half of a wide one */
    unsigned char style; /* enum screen_style */
};

struct screen {
    int rows, cols;
    struct cell *now, *shown; /* rows * cols each */
    bool unknown;             /* what the terminal shows: draw all of it */
    bool open, colored, utf8;
    struct termios before;
};

/* Could this be a screen? Both stdin and stdout are terminals, and not dumb. */
bool screen_possible(void);

/* Takes the terminal; false: out of memory, or it will not. */
bool screen_open(struct screen *s);
/* Gives it back as it was. Harmless if it is not open. */
void screen_close(struct screen *s);
/* Between the two, for a stop: as it was, and ours again. */
void screen_suspend(struct screen *s);
void screen_resume(struct screen *s);

/* Asks how large the terminal is. False: out of memory. */
bool screen_resize(struct screen *s);

/* The next picture begins: all blank. */
void screen_blank(struct screen *s);
/* Puts text, UTF-8, at a place, in so many columns at most; what does not fit
 * is cut. Control characters become '?'. Returns the column behind it. */
int screen_put(struct screen *s, int row, int col, int width,
               enum screen_style style, const char *text);
/* A whole row gets this style. */
void screen_style_row(struct screen *s, int row, enum screen_style style);
/* Writes what differs from what is shown. False: the terminal is gone. */
bool screen_flush(struct screen *s);

#endif
