/* SPDX-License-Identifier: MIT
 *
 * bytes.c - strings with a length, numbers in them, and a buffer that grows.
 *
 * Numbers are read and written as Redis does it, because clients and scripts
 * see the difference: "01" is no number, 0.1 is 0.10000000000000001.
 */
#include "sim/bytes.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- memory ------------------------------------------------------------ */

void *sr__grow(void *p, size_t size)
{
    void *q = realloc(p, size ? size : 1);

    if (!q)
        abort();
    return q;
}

void *sr__alloc(size_t size)
{
    return memset(sr__grow(NULL, size), 0, size);
}

/* ---- strings ----------------------------------------------------------- */

struct sr_str sr__bytes(const char *p, size_t n)
{
    struct sr_str s = {.p = sr__grow(NULL, n + 1), .n = n};

    if (n)
        memcpy(s.p, p, n);
    s.p[n] = '\0';
    return s;
}

struct sr_str sr__copy(struct sr_str s)
{
    return sr__bytes(s.p, s.n);
}

struct sr_str sr__view(const char *text)
{
    return (struct sr_str){.p = (char *)(uintptr_t)text, .n = strlen(text)};
}

void sr__str_free(struct sr_str *s)
{
    free(s->p);
    *s = (struct sr_str){0};
}

bool sr__same(struct sr_str a, struct sr_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

int sr__order(struct sr_str a, struct sr_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;

    return c ? c : (a.n > b.n) - (a.n < b.n);
}

bool sr__is(struct sr_str s, const char *word)
{
    return s.n == strlen(word) && (s.n == 0 || !strncasecmp(s.p, word, s.n));
}

/* ---- numbers ----------------------------------------------------------- */

bool sr__int(struct sr_str s, int64_t *out)
{
    char text[24], again[24];
    char *end;

    if (s.n == 0 || s.n >= sizeof text)
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || *end)
        return false;
    /* One way only to write a number. */
    snprintf(again, sizeof again, "%lld", n);
    *out = n;
    return strcmp(again, text) == 0;
}

bool sr__float(struct sr_str s, double *out)
{
    char text[256];
    char *end;

    if (s.n == 0 || s.n >= sizeof text || memchr(s.p, '\0', s.n) ||
        strchr(" \t\r\n\v\f", s.p[0]))
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    errno = 0;
    *out = strtod(text, &end);
    return !*end && !isnan(*out) &&
           !(errno == ERANGE && (isinf(*out) || *out == 0));
}

size_t sr__float_text(double d, char out[40])
{
    if (isinf(d))
        return (size_t)snprintf(out, 40, d > 0 ? "inf" : "-inf");
    return (size_t)snprintf(out, 40, "%.17g", d);
}

/* ---- patterns ---------------------------------------------------------- */

/* One [..] against one character; *at is behind it afterwards. */
static bool in_class(struct sr_str pattern, size_t *at, char c)
{
    size_t i = *at + 1;
    bool not = i < pattern.n && pattern.p[i] == '^', found = false;

    if (not )
        i++;
    for (; i < pattern.n && pattern.p[i] != ']'; i++) {
        if (pattern.p[i] == '\\' && i + 1 < pattern.n) {
            i++;
            found |= pattern.p[i] == c;
        } else if (i + 2 < pattern.n && pattern.p[i + 1] == '-') {
            char low = pattern.p[i], high = pattern.p[i + 2];
            found |=
                low <= high ? low <= c && c <= high : high <= c && c <= low;
            i += 2;
        } else {
            found |= pattern.p[i] == c;
        }
    }
    *at = i < pattern.n ? i + 1 : i;
    return found != not ;
}

bool sr__glob(struct sr_str pattern, struct sr_str s)
{
    size_t i = 0, j = 0;
    size_t star = SIZE_MAX, from = 0; /* where to go on if this leads nowhere */

    while (j < s.n || i < pattern.n) {
        size_t next = i + 1;
        bool fits = false;
        char p = i < pattern.n ? pattern.p[i] : '\0';
        if (i < pattern.n && p == '*') {
            star = i++;
            from = j;
            continue;
        }
        if (i < pattern.n && j < s.n) {
            if (p == '[') {
                next = i;
                fits = in_class(pattern, &next, s.p[j]);
            } else if (p == '\\' && i + 1 < pattern.n) {
                fits = pattern.p[i + 1] == s.p[j];
                next = i + 2;
            } else {
                fits = p == '?' || p == s.p[j];
            }
        }
        if (fits) {
            i = next;
            j++;
        } else if (star != SIZE_MAX && from < s.n) {
            i = star + 1;
            j = ++from;
        } else {
            return false;
        }
    }
    return true;
}

/* ---- a buffer ---------------------------------------------------------- */

void sr__buf_add(struct sr_buf *b, const void *p, size_t n)
{
    if (b->n + n + 1 > b->cap) {
        b->cap = 2 * b->cap + n + 64;
        b->p = sr__grow(b->p, b->cap);
    }
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}

void sr__buf_text(struct sr_buf *b, const char *text)
{
    sr__buf_add(b, text, strlen(text));
}

void sr__buf_vfmt(struct sr_buf *b, const char *fmt, va_list ap)
{
    char *text;
    int n = vasprintf(&text, fmt, ap);

    if (n < 0)
        abort();
    sr__buf_add(b, text, (size_t)n);
    free(text);
}

void sr__buf_fmt(struct sr_buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    sr__buf_vfmt(b, fmt, ap);
    va_end(ap);
}

void sr__buf_drop(struct sr_buf *b, size_t n)
{
    b->n -= n;
    if (b->n)
        memmove(b->p, b->p + n, b->n);
}

void sr__buf_free(struct sr_buf *b)
{
    free(b->p);
    *b = (struct sr_buf){0};
}
