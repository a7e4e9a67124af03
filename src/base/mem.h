/* SPDX-License-Identifier: MIT
 *
 * mem.h - every allocation of the library goes through here.
 *
 * All may return NULL and every caller checks. A build with DIBS_FAULTS can be
 * told to fail the n-th allocation, so that tests can walk through all of them.
 */
#ifndef DIBS_BASE_MEM_H
#define DIBS_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

void *dibs__malloc(size_t size);
void *dibs__calloc(size_t count, size_t size); /* checked for overflow */
void *dibs__realloc(void *p, size_t size);
char *dibs__strdup(const char *s);
/* n bytes and a NUL behind them; the bytes may hold NULs. */
char *dibs__memdup(const void *p, size_t n);
char *dibs__strndup(const char *s, size_t n);
void dibs__free(void *p);

/* Room for at least `want` elements of `size` bytes in *array, which has room
 * for *cap. Grows by half, checks for overflow. False: out of memory, nothing
 * changed. */
bool dibs__grow(void **array, size_t *cap, size_t want, size_t size);

#ifdef DIBS_FAULTS
/* Fails the n-th allocation from now on (1 = the next), 0 = none; with `all`
 * every later one too. Returns how many were made since the last call. */
long dibs__mem_fail_at(long n, bool all);
#endif

#endif
