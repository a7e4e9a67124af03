/* SPDX-License-Identifier: MIT
 *
 * top_text.c - what the columns of dibs top say about a lock.
 *
 * Thread  The first one.
 */
#include "top/top_text.h"

#include <inttypes.h>

const char *top_span(int64_t ms, char buf[TOP_SPAN_MAX])
{
    long long s = (long long)(ms > 0 ? ms : 0) / 1000;

    if (s < 60)
        snprintf(buf, TOP_SPAN_MAX, "%llds", s);
    else if (s < 3600)
        snprintf(buf, TOP_SPAN_MAX, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, TOP_SPAN_MAX, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        snprintf(buf, TOP_SPAN_MAX, "%lldd", s / 86400);
    return buf;
}

void top_owner(const struct snapshot_row *x, char *buf, size_t size)
{
    const struct who *w = &x->s.who;
    const dibs_lock_info *i = &x->s.info;
    int n;

    if (w->known)
        n = snprintf(buf, size, "%s %" PRId64 " %s", w->host, w->pid,
                     w->program);
    else if (i->kind == DIBS_KIND_LATCH)
        n = snprintf(buf, size, "(%" PRId64 " left)", i->left);
    else if (i->kind == DIBS_KIND_SEMAPHORE)
        n = snprintf(buf, size, "(%" PRId64 " free)", i->free_slots);
    else
        n = snprintf(buf, size, "%s", i->owner);

    if (i->owners > 1 && i->kind != DIBS_KIND_SEMAPHORE && n >= 0 &&
        (size_t)n < size)
        snprintf(buf + n, size - (size_t)n, " +%zu", i->owners - 1);
}

size_t top_waiters(const struct snapshot_row *x)
{
    return query_has_counts(&x->s) ? x->s.queued + x->s.waiting : 0;
}

const char *top_mode(const dibs_lock_info *i)
{
    return i->kind == DIBS_KIND_SLOTS       ? "slots"
           : i->kind == DIBS_KIND_SEMAPHORE ? "sem"
           : i->kind == DIBS_KIND_LATCH     ? "latch"
           : i->mode == DIBS_MODE_READ      ? "read"
           : i->mode == DIBS_MODE_WRITE     ? "write"
           : i->mode == DIBS_MODE_EXCLUSIVE ? "excl"
                                            : "?";
}
