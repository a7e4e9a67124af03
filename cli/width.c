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
#include "width.h"

#include <locale.h>
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
    int width = n >= 1 && n <= 4 ? wcwidth(wide) : -1;
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
