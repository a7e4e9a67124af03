/* SPDX-License-Identifier: MIT
 *
 * memory.c - the memory of the simulation: an arena at a fixed address,
 * allocated in the same order in each run. So what is ordered by address (two
 * timers of one time, say) is ordered the same way when a seed is run again.
 *
 * Freed memory is filled with 0xdd, so a use after free shows, and does so in
 * each run.
 */
#include "sim/fiber.h"
#include "sim/wrap.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY_AT    ((char *)0x100000000000)
#define MEMORY_BYTES ((size_t)8 << 30)
#define HEAD         16
#define CLASSES      128 /* by 16 bytes up to 1 KiB, then by powers of two */

struct head {
    size_t class;
    size_t bytes;
};

static char *at, *end;
static struct head *free_list[CLASSES];
static size_t used;
static int64_t refuse_one_in;

void sim_memory_begin(void)
{
    at = mmap(MEMORY_AT, MEMORY_BYTES, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
              -1, 0);
    if (at != MEMORY_AT)
        sim_die("no place for memory");
    end = at + MEMORY_BYTES;
}

void sim_memory_refuse(int64_t one_in)
{
    refuse_one_in = one_in;
}

/* Only where a fiber asks: the server has memory enough. */
bool sim_memory_short(void)
{
    return sim_self() && sim_once_in(&sim_luck, refuse_one_in);
}

size_t sim_memory_used(void)
{
    return used;
}

static size_t class_of(size_t n, size_t *room)
{
    if (n <= 1024) {
        size_t steps = n ? (n + 15) / 16 : 1;
        *room = steps * 16;
        return steps;
    }
    size_t class = 65;
    for (*room = 2048; *room < n; *room *= 2)
        class ++;
    return class;
}

void *__wrap_malloc(size_t n)
{
    size_t room, class;

    if (!at)
        return __real_malloc(n);
    if (n > MEMORY_BYTES / 4) {
        errno = ENOMEM;
        return NULL;
    }
    class = class_of(n, &room);
    struct head *h = free_list[class];
    if (h) {
        memcpy(&free_list[class], h + 1, sizeof(void *));
    } else {
        if ((size_t)(end - at) < room + HEAD)
            sim_die("the simulation is out of memory");
        h = (struct head *)(void *)at;
        at += room + HEAD;
    }
    h->class = class;
    h->bytes = room;
    used += room;
    return h + 1;
}

void *__wrap_calloc(size_t n, size_t size)
{
    void *p = __wrap_malloc(n * size);

    return p ? memset(p, 0, n * size) : NULL;
}

static bool is_ours(const void *p)
{
    return (const char *)p >= MEMORY_AT && (const char *)p < end;
}

void __wrap_free(void *p)
{
    if (!p)
        return;
    if (!is_ours(p)) {
        __real_free(p);
        return;
    }
    struct head *h = (struct head *)p - 1;
    if (h->class >= CLASSES)
        sim_die("memory is given back twice, or was written over");
    used -= h->bytes;
    memset(p, 0xdd, h->bytes);
    memcpy(p, &free_list[h->class], sizeof(void *));
    free_list[h->class] = h;
    h->class = CLASSES + h->class;
}

void *__wrap_realloc(void *p, size_t n)
{
    if (!p)
        return __wrap_malloc(n);
    if (!is_ours(p))
        return __real_realloc(p, n);
    const struct head *h = (struct head *)p - 1;
    if (n <= h->bytes)
        return p;
    void *more = __wrap_malloc(n);
    if (!more)
        return NULL;
    memcpy(more, p, h->bytes);
    __wrap_free(p);
    return more;
}
