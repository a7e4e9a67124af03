/* SPDX-License-Identifier: MIT
 *
 * bytes.h - strings with a length, and a buffer that grows.
 *
 * A test tool ends when memory does: nothing here can fail. A struct sr_str is
 * either owned (who has it frees it) or a view of somebody else's bytes; each
 * place says which. Behind owned bytes stands a NUL that does not count.
 */
#ifndef DIBS_SIM_BYTES_H
#define DIBS_SIM_BYTES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sr_str {
    char *p;
    size_t n;
};

struct sr_buf {
    char *p;
    size_t n, cap;
};

void *sr__alloc(size_t size); /* zeroed */
void *sr__grow(void *p, size_t size);

struct sr_str sr__copy(struct sr_str s);          /* owned */
struct sr_str sr__bytes(const char *p, size_t n); /* owned */
struct sr_str sr__view(const char *text);         /* of a C string */
void sr__str_free(struct sr_str *s);

bool sr__same(struct sr_str a, struct sr_str b);
int sr__order(struct sr_str a, struct sr_str b); /* as memcmp, then length */
bool sr__is(struct sr_str s, const char *word);  /* whatever the case */

/* A whole number as Redis reads one: no space, no '+', no leading zero. */
bool sr__int(struct sr_str s, int64_t *out);
bool sr__float(struct sr_str s, double *out);
/* As Redis writes one; gives the length. */
size_t sr__float_text(double d, char out[40]);

/* Does it fit the pattern? * ? [a-z] and \ as in Redis. */
bool sr__glob(struct sr_str pattern, struct sr_str s);

void sr__buf_add(struct sr_buf *b, const void *p, size_t n);
void sr__buf_text(struct sr_buf *b, const char *text);
void sr__buf_fmt(struct sr_buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sr__buf_vfmt(struct sr_buf *b, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
void sr__buf_drop(struct sr_buf *b, size_t n); /* from the front */
void sr__buf_free(struct sr_buf *b);

#endif
