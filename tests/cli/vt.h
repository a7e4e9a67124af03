/* SPDX-License-Identifier: MIT
 *
 * vt.h - a small terminal: what a screen shows after the bytes it was sent.
 *
 * It knows the codes that dibs top uses, and gives up on any other: a program
 * that sends more than it should is found out. A character is one column, and
 * its bytes are kept.
 */
#ifndef DIBS_TESTS_VT_H
#define DIBS_TESTS_VT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VT_ROWS 100
#define VT_COLS 300

static struct {
    char cell[VT_ROWS][VT_COLS][5];
    int row, col;
    int cleared;    /* how often all of it was cleared */
    int other;      /* the other screen is on */
    char wrong[64]; /* a code that it does not know */
} vt;

static void vt_clear(void)
{
    for (int r = 0; r < VT_ROWS; r++)
        for (int c = 0; c < VT_COLS; c++)
            strcpy(vt.cell[r][c], " ");
    vt.cleared++;
}

/* A code from ESC [ on: its last byte, what stands between. */
static void vt_code(const char *args, char last)
{
    int row = 1, col = 1;

    if (last == 'H' && sscanf(args, "%d;%d", &row, &col) == 2) {
        vt.row = row - 1;
        vt.col = col - 1;
    } else if (last == 'J' && strcmp(args, "2") == 0) {
        vt_clear();
    } else if ((last == 'h' || last == 'l') && strcmp(args, "?1049") == 0) {
        vt.other = last == 'h';
    } else if (last != 'm' && strcmp(args, "?25") != 0) {
        snprintf(vt.wrong, sizeof vt.wrong, "ESC [ %s %c", args, last);
    }
}

static void vt_char(const char *s, size_t n)
{
    if (vt.row >= 0 && vt.row < VT_ROWS && vt.col >= 0 && vt.col < VT_COLS) {
        memcpy(vt.cell[vt.row][vt.col], s, n);
        vt.cell[vt.row][vt.col][n] = '\0';
    }
    vt.col++;
}

/* Takes what is whole of these bytes; how many those are. */
static size_t vt_take(const char *s, size_t len)
{
    size_t at = 0;

    while (at < len) {
        unsigned char c = (unsigned char)s[at];
        size_t n = c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        if (c == 27) {
            char args[32] = "";
            size_t end = at + 2;
            while (end < len && (s[end] < '@' || s[end] > '~'))
                end++;
            if (end >= len)
                break;
            if (s[at + 1] == '[' && end - at - 2 < sizeof args)
                memcpy(args, s + at + 2, end - at - 2);
            else
                snprintf(vt.wrong, sizeof vt.wrong, "ESC %c", s[at + 1]);
            vt_code(args, s[end]);
            at = end + 1;
            continue;
        }
        if (at + n > len)
            break;
        if (c < 32 && c != '\r' && c != '\n')
            snprintf(vt.wrong, sizeof vt.wrong, "byte %d", c);
        else if (c >= 32)
            vt_char(s + at, n);
        at += n;
    }
    return at;
}

/* A row as text, without blanks at its end. */
static const char *vt_row(int row)
{
    static char line[VT_COLS * 5];
    size_t n = 0;

    for (int c = 0; c < VT_COLS; c++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s", vt.cell[row][c]);
    while (n > 0 && line[n - 1] == ' ')
        line[--n] = '\0';
    return line;
}

#endif
