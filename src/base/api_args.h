/* SPDX-License-Identifier: MIT
 *
 * api_args.h - arguments of public calls: structs that grow, times, pointers.
 *
 * A struct that a program and the library share begins with its size. Either
 * may be newer than the other. So the size of each struct in the version that
 * brought it (0.1 was the first) is written down and never changes; every size
 * from that on is accepted. What is added to a struct goes to its end, and
 * needs no change here. (It must not lie where an older struct had padding:
 * what is in there is anybody's guess. An eight-byte field never does.)
 */
#ifndef DIBS_BASE_API_ARGS_H
#define DIBS_BASE_API_ARGS_H

#include "base/error_text.h"

#define DIBS__STRUCT_MAX 65536 /* a longer struct is a size never set */

struct dibs__struct {
    const char *name; /* of the type */
    size_t first;     /* its size in 0.1 */
    size_t now;
};

extern const struct dibs__struct dibs__struct_client_opts;
extern const struct dibs__struct dibs__struct_lock_opts;
extern const struct dibs__struct dibs__struct_lock_info;
extern const struct dibs__struct dibs__struct_member;
extern const struct dibs__struct dibs__struct_semaphore_opts;
extern const struct dibs__struct dibs__struct_latch_opts;
extern const struct dibs__struct dibs__struct_stats;
extern const struct dibs__struct dibs__struct_watch_opts;

/* Options of the caller's size, in, brought to ours, out. What an older caller
 * does not have is zero. What a newer one has beyond that must be zero: it asks
 * for something that we cannot do. NULL is all zero. OK, or INVALID with a
 * reason. */
dibs_err dibs__struct_take(const struct dibs__struct *type, const void *in,
                           void *out);
/* A result of ours, from, as far as the caller's struct, out, has room for it;
 * its size stays. What a newer caller has beyond is left alone. Check first:
 * OK, or INVALID with a reason. */
dibs_err dibs__struct_check(const struct dibs__struct *type, const void *out);
void dibs__struct_give(const struct dibs__struct *type, const void *from,
                       void *out);

/* 0, or at least `least` and at most `most`. OK, or INVALID with a reason. */
dibs_err dibs__check_ms(const char *what, int64_t ms, int64_t least,
                        int64_t most);
/* Any time at all. */
static inline dibs_err dibs__check_time(const char *what, int64_t ms)
{
    return dibs__check_ms(what, ms, 0, DIBS_MS_MAX);
}
/* Not NULL. OK, or INVALID with a reason. */
dibs_err dibs__check_not_null(const char *what, const void *pointer);

#endif
