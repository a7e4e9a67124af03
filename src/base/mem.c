/* SPDX-License-Identifier: MIT
 *
 * mem.c - allocation, with failure injection for tests.
 *
 * Thread  any.
 */
#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef DIBS_FAULTS
#include <stdatomic.h>

static atomic_long alloc_count;
static atomic_long fail_at;
static atomic_bool fail_all;

long dibs__mem_fail_at(long n, bool all)
{
    long before = atomic_exchange(&alloc_count, 0);
    atomic_store(&fail_all, all);
    atomic_store(&fail_at, n);
    return before;
}

static bool must_fail(void)
{
    long index = atomic_fetch_add(&alloc_count, 1) + 1;
    long fail_index = atomic_load(&fail_at);

    return fail_index != 0 && (index == fail_index ||
                               (index > fail_index && atomic_load(&fail_all)));
}
#else
#define must_fail() false
#endif

void *dibs__malloc(size_t size)
{
    return must_fail() ? NULL : malloc(size);
}

void *dibs__calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : calloc(count, size);
}

void *dibs__realloc(void *p, size_t size)
{
    return must_fail() ? NULL : realloc(p, size);
}

void dibs__free(void *p)
{
    free(p);
}

char *dibs__memdup(const void *p, size_t n)
{
    char *copy = dibs__malloc(n + 1);

    if (copy) {
        memcpy(copy, p, n);
        copy[n] = '\0';
    }
    return copy;
}

char *dibs__strdup(const char *s)
{
    return dibs__memdup(s, strlen(s));
}

bool dibs__copy_text(const char *from, char **to)
{
    *to = from ? dibs__strdup(from) : NULL;
    return !from || *to;
}

char *dibs__strndup(const char *s, size_t n)
{
    return dibs__memdup(s, strnlen(s, n));
}

bool dibs__grow(void **array, size_t *cap, size_t want, size_t size)
{
    if (want <= *cap)
        return true;
    size_t next = *cap + *cap / 2;
    if (next < want)
        next = want;
    if (next < 8)
        next = 8;
    if (next > SIZE_MAX / 2 / size)
        return false;
    void *grown = dibs__realloc(*array, next * size);
    if (!grown)
        return false;
    *array = grown;
    *cap = next;
    return true;
}
