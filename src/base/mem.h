/* SPDX-License-Identifier: MIT
 *
 * mem.h - every allocation of the library goes through here.
 *
 * All may return NULL; every caller must check. With DIBS_FAULTS a test can
 * fail the n-th allocation, to cover each failure in turn.
 */
#ifndef DIBS_BASE_MEM_H
#define DIBS_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

void *dibs__malloc(size_t size);
void *dibs__calloc(size_t count, size_t size); /* checked for overflow */
void *dibs__realloc(void *p, size_t size);
char *dibs__strdup(const char *s);
/* Sets *to to a copy of `from`, or to NULL if that is NULL. Returns false if
 * out of memory. */
bool dibs__copy_text(const char *from, char **to);
/* Copies n bytes and appends a NUL; the bytes may contain NULs. */
char *dibs__memdup(const void *p, size_t n);
char *dibs__strndup(const char *s, size_t n);
void dibs__free(void *p);

/* Grows *array from *cap to at least `want` elements of `size` bytes, by half
 * if that is more. Returns false if out of memory or on overflow; then nothing
 * changed. */
bool dibs__grow(void **array, size_t *cap, size_t want, size_t size);

#ifdef DIBS_FAULTS
/* Makes the n-th allocation from now on fail (1: the next, 0: none), and with
 * `all` every later one, too. Returns the number of allocations since the last
 * call. */
long dibs__mem_fail_at(long n, bool all);
#endif

#endif
