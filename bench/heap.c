/* SPDX-License-Identifier: MIT
 *
 * heap.c - counts allocations, whoever makes them.
 *
 * A program may define malloc and its kin itself, and the C library, libuv and
 * hiredis will use those too. These pass everything on to glibc's own, and
 * count while somebody asked for it; otherwise they cost one load, so that the
 * races are not slowed down. With another C library, or under a sanitizer that
 * brings its own malloc, nothing can be counted.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <malloc.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_MALLOC 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 1
#endif

#if defined(__GLIBC__) && !defined(OWN_MALLOC)

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void __libc_free(void *p);

static atomic_bool counting;
static atomic_llong calls;
static atomic_llong bytes;

static bool is_counting(void)
{
    return atomic_load_explicit(&counting, memory_order_relaxed);
}

/* Notes that p was taken. */
static void *taken(void *p)
{
    if (p && is_counting()) {
        atomic_fetch_add(&calls, 1);
        atomic_fetch_add(&bytes, (long long)malloc_usable_size(p));
    }
    return p;
}

/* Notes that p goes. */
static void given_back(void *p)
{
    if (p && is_counting())
        atomic_fetch_sub(&bytes, (long long)malloc_usable_size(p));
}

void *malloc(size_t size)
{
    return taken(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return taken(__libc_calloc(count, size));
}

void *realloc(void *p, size_t size)
{
    given_back(p);
    return taken(__libc_realloc(p, size));
}

void free(void *p)
{
    given_back(p);
    __libc_free(p);
}

void heap_start(void)
{
    atomic_store(&calls, 0);
    atomic_store(&bytes, 0);
    atomic_store(&counting, true);
}

void heap_stop(void)
{
    atomic_store(&counting, false);
}

double heap_calls(void)
{
    return (double)atomic_load(&calls);
}

double heap_bytes(void)
{
    return (double)atomic_load(&bytes);
}

#else

void heap_start(void)
{
}

void heap_stop(void)
{
}

double heap_calls(void)
{
    return NAN;
}

double heap_bytes(void)
{
    return NAN;
}

#endif
