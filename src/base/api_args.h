/* SPDX-License-Identifier: MIT
 *
 * api_args.h - checks arguments of public calls: versioned structs, times,
 * pointers.
 *
 * A public struct begins with its size, since program and library may be of
 * different versions. The size that a struct had in its first version is
 * recorded here and never changes; every size from that on is accepted. New
 * fields are added at the end, which needs no change here. A new field must not
 * overlap the padding of an older version, which is uninitialized; an
 * eight-byte field never does.
 */
#ifndef DIBS_BASE_API_ARGS_H
#define DIBS_BASE_API_ARGS_H

#include "base/error_text.h"

#define DIBS__STRUCT_MAX 65536 /* a larger size must be uninitialized */

struct dibs__struct {
    const char *name; /* of the type */
    size_t first;     /* its size in its first version */
    size_t now;       /* its size in this version */
};

extern const struct dibs__struct dibs__struct_client_opts;
extern const struct dibs__struct dibs__struct_lock_opts;
extern const struct dibs__struct dibs__struct_lock_info;
extern const struct dibs__struct dibs__struct_member;
extern const struct dibs__struct dibs__struct_semaphore_opts;
extern const struct dibs__struct dibs__struct_latch_opts;
extern const struct dibs__struct dibs__struct_stats;
extern const struct dibs__struct dibs__struct_watch_opts;

/* Copies the caller's options `in` to `out`, which has the current size. Fields
 * that an older caller lacks are zero. Bytes of a newer caller beyond the
 * current size must be zero, since an unknown option cannot be honored. NULL is
 * all zero. Returns OK, or INVALID with a reason. */
dibs_err dibs__struct_read(const struct dibs__struct *type, const void *in,
                           void *out);
/* give copies the result `from` to the caller's struct `out`, truncated to its
 * size, which is kept; further bytes of a newer caller are not changed. The
 * caller must first call check, which returns OK, or INVALID with a reason. */
dibs_err dibs__struct_check(const struct dibs__struct *type, const void *out);
void dibs__struct_write(const struct dibs__struct *type, const void *from,
                        void *out);

/* Checks that ms is 0 or in [least, most]. Returns OK, or INVALID with a
 * reason. */
dibs_err dibs__check_ms(const char *what, int64_t ms, int64_t least,
                        int64_t most);
/* The same for [0, DIBS_MS_MAX]. */
static inline dibs_err dibs__check_time(const char *what, int64_t ms)
{
    return dibs__check_ms(what, ms, 0, DIBS_MS_MAX);
}
/* Returns OK, or for NULL INVALID with a reason. */
dibs_err dibs__check_not_null(const char *what, const void *pointer);

#endif
