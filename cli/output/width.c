/* SPDX-License-Identifier: MIT
 *
 * width.c - how many columns of a terminal a text takes.
 *
 * Names are UTF-8 whatever the locale of the user, so the widths are those of
 * the C library in a UTF-8 locale of its own. If the system has none, each
 * character counts as one column.
 *
 * Thread  The first one.
 */
#include "output/width.h"

#include <locale.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* Made once, and kept until the command ends. */
static locale_t utf8_locale(void)
{
    static locale_t made;
    static const char *const names[] = {"C.UTF-8", "en_US.UTF-8", ""};

    for (size_t i = 0; !made && i < sizeof names / sizeof *names; i++)
        made = newlocale(LC_CTYPE_MASK, names[i], (locale_t)0);
    return made;
}

/* The lead byte and the bytes that continue it. */
static size_t bytes_of(const char *text)
{
    size_t n = 1;

    while (((unsigned char)text[n] & 0xC0) == 0x80 && n < 4)
        n++;
    return (unsigned char)text[0] < 0xC0 ? 1 : n;
}

/* Characters that turn the direction of a text, or hide in it. The C library
 * counts them as combining ones. */
static bool is_format(wchar_t c)
{
    static const struct {
        wchar_t first, last;
    } ranges[] = {
        {0xAD, 0xAD},       {0x61C, 0x61C},     {0x115F, 0x1160},
        {0x17B4, 0x17B5},   {0x180B, 0x180F},   {0x200B, 0x200F},
        {0x2028, 0x202E},   {0x2060, 0x206F},   {0x3164, 0x3164},
        {0xFEFF, 0xFEFF},   {0xFFF0, 0xFFFB},   {0x1BCA0, 0x1BCA3},
        {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF},
    };

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

int width_char(const char *text, size_t *len)
{
    locale_t utf8 = utf8_locale();
    mbstate_t state = {0};
    wchar_t wide;

    *len = bytes_of(text);
    if (!utf8)
        return 1;
    locale_t before = uselocale(utf8);
    size_t n = mbrtowc(&wide, text, strlen(text), &state);
    int width = n >= 1 && n <= 4 && !is_format(wide) ? wcwidth(wide) : -1;
    uselocale(before);
    *len = n >= 1 && n <= 4 ? n : 1;
    return width;
}

int width_text(const char *text)
{
    int columns = 0;
    size_t len;

    for (; *text; text += len) {
        int width = width_char(text, &len);

        columns += width < 0 ? 1 : width;
    }
    return columns;
}

size_t width_fit(const char *text, int columns)
{
    const char *at = text;
    size_t len;

    for (; *at; at += len) {
        int width = width_char(at, &len);

        columns -= width < 0 ? 1 : width;
        if (columns < 0)
            break;
    }
    return (size_t)(at - text);
}
