/* SPDX-License-Identifier: MIT
 *
 * buf.h - growable byte buffer, and RESP commands appended to it.
 *
 * A failed allocation is sticky: the caller appends without checks and calls
 * dibs__buf_ok once at the end. An emptied buffer keeps up to 64 KiB of memory,
 * so a buffer in steady use allocates nothing.
 */
#ifndef DIBS_BASE_BUF_H
#define DIBS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dibs__buf {
    char *data;
    size_t len, cap;
    bool failed;
};

void dibs__buf_add(struct dibs__buf *b, const void *data, size_t len);
void dibs__buf_text(struct dibs__buf *b, const char *text);
void dibs__buf_num(struct dibs__buf *b, int64_t num);
/* Drops the first n bytes. */
void dibs__buf_drop(struct dibs__buf *b, size_t n);
/* Truncates to the first n bytes, and resets `failed`. */
void dibs__buf_cut(struct dibs__buf *b, size_t n);
void dibs__buf_clear(struct dibs__buf *b); /* frees */

static inline bool dibs__buf_ok(const struct dibs__buf *b)
{
    return !b->failed;
}

/* A command: the array header, then `count` arguments. */
void dibs__buf_array(struct dibs__buf *b, size_t count);
void dibs__buf_arg(struct dibs__buf *b, const void *data, size_t len);
/* One argument, concatenated from two parts; or from any number: the caller
 * must add exactly `len` bytes between open and close. */
void dibs__buf_arg_parts(struct dibs__buf *b, const void *one, size_t one_len,
                         const void *two, size_t two_len);
void dibs__buf_arg_open(struct dibs__buf *b, size_t len);
void dibs__buf_arg_close(struct dibs__buf *b);
void dibs__buf_arg_text(struct dibs__buf *b, const char *text);
void dibs__buf_arg_num(struct dibs__buf *b, int64_t num);

#endif
