/* SPDX-License-Identifier: MIT
 *
 * buf.c - growable byte buffer, and RESP commands appended to it.
 *
 * Thread  the one that owns the buffer.
 *
 * hiredis has a formatter, too, but that allocates memory for each command.
 */
#include "base/buf.h"

#include "base/mem.h"

#include <string.h>

#define NUM_MAX  21    /* digits of an int64 with its sign */
#define KEEP_MAX 65536 /* an emptied buffer frees more memory than that */
#define ARG_MAX  (1 + NUM_MAX + 2 + 2) /* header and end of an argument */

static size_t num_digits(int64_t num, char out[NUM_MAX])
{
    char reversed[NUM_MAX];
    uint64_t rest = num < 0 ? 0 - (uint64_t)num : (uint64_t)num;
    size_t n = 0, at = 0;

    if (num >= 0 && num < 10) { /* most lengths and counts */
        out[0] = (char)('0' + num);
        return 1;
    }
    do {
        reversed[n++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (num < 0)
        out[at++] = '-';
    while (n)
        out[at++] = reversed[--n];
    return at;
}

/* Returns where len more bytes may be written; NULL: out of memory. */
static char *buf_room(struct dibs__buf *b, size_t len)
{
    if (b->failed)
        return NULL;
    if (len > b->cap - b->len &&
        (len > SIZE_MAX - b->len ||
         !dibs__grow((void **)&b->data, &b->cap, b->len + len, 1))) {
        b->failed = true;
        return NULL;
    }
    return b->data + b->len;
}

void dibs__buf_add(struct dibs__buf *b, const void *data, size_t len)
{
    char *at = len ? buf_room(b, len) : NULL;

    if (!at)
        return;
    memcpy(at, data, len);
    b->len += len;
}

void dibs__buf_text(struct dibs__buf *b, const char *text)
{
    dibs__buf_add(b, text, strlen(text));
}

void dibs__buf_num(struct dibs__buf *b, int64_t num)
{
    char digits[NUM_MAX];

    dibs__buf_add(b, digits, num_digits(num, digits));
}

void dibs__buf_drop(struct dibs__buf *b, size_t n)
{
    if (n == 0)
        return;
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    if (b->len == 0 && b->cap > KEEP_MAX)
        dibs__buf_clear(b);
}

void dibs__buf_cut(struct dibs__buf *b, size_t n)
{
    b->len = n;
    b->failed = false;
}

void dibs__buf_clear(struct dibs__buf *b)
{
    dibs__free(b->data);
    *b = (struct dibs__buf){0};
}

/* Writes a header line such as "$16\r\n", for which the caller has made room.
 * Returns its end. */
static char *number_line(char *at, char type, size_t num)
{
    *at++ = type;
    at += num_digits((int64_t)num, at);
    *at++ = '\r';
    *at++ = '\n';
    return at;
}

void dibs__buf_array(struct dibs__buf *b, size_t count)
{
    char *at = buf_room(b, ARG_MAX);

    if (at)
        b->len = (size_t)(number_line(at, '*', count) - b->data);
}

void dibs__buf_arg_open(struct dibs__buf *b, size_t len)
{
    char *at = buf_room(b, ARG_MAX);

    if (at)
        b->len = (size_t)(number_line(at, '$', len) - b->data);
}

void dibs__buf_arg_close(struct dibs__buf *b)
{
    dibs__buf_add(b, "\r\n", 2);
}

/* Makes room once for header, parts and end. */
void dibs__buf_arg_parts(struct dibs__buf *b, const void *one, size_t one_len,
                         const void *two, size_t two_len)
{
    size_t len = one_len + two_len;
    char *at = buf_room(b, len < SIZE_MAX - ARG_MAX ? len + ARG_MAX : len);

    if (!at)
        return;
    at = number_line(at, '$', len);
    if (one_len)
        memcpy(at, one, one_len);
    if (two_len)
        memcpy(at + one_len, two, two_len);
    at += len;
    *at++ = '\r';
    *at++ = '\n';
    b->len = (size_t)(at - b->data);
}

void dibs__buf_arg(struct dibs__buf *b, const void *data, size_t len)
{
    dibs__buf_arg_parts(b, data, len, "", 0);
}

void dibs__buf_arg_text(struct dibs__buf *b, const char *text)
{
    dibs__buf_arg(b, text, strlen(text));
}

void dibs__buf_arg_num(struct dibs__buf *b, int64_t num)
{
    char digits[NUM_MAX];

    dibs__buf_arg(b, digits, num_digits(num, digits));
}
