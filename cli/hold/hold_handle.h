/* SPDX-License-Identifier: MIT
 *
 * hold_handle.h - holds that another process took and left: the text that names
 * them, and their release.
 */
#ifndef DIBS_CLI_HOLD_HOLD_HANDLE_H
#define DIBS_CLI_HOLD_HOLD_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

#include <dibs/dibs.h>

#include "args/lock_type.h"
#include "run/lock_set.h"

#define LEFT_LEASE_MS                                                          \
    10000 /* the least that a release has; see hold_handle.c */

/* What "dibs acquire" prints, read. */
struct left {
    enum lock_kind kind;
    const char *owners[BUNDLE_MAX];
    size_t n;
    char *copy; /* the owners are in there */
};

/* The text for what the bundle holds; free it. NULL: out of memory. */
char *left_text(const struct args *a, const struct bundle *b);
/* NULL, or what is wrong with the text. Call left_clear in either case. */
const char *left_read(struct left *f, const char *text);
void left_clear(struct left *f);

/* Adopts what one of these owners holds, the i-th first. NOT_OWNER: none of
 * them holds it. */
dibs_err left_adopt(const struct left *f, size_t i, dibs_lock *l,
                    int64_t lease_ms, dibs_owner *out);
/* The same, and gives it back; leaves it taken for keep_ms. LOST is NOT_OWNER
 * here: that owner has it not any more. */
dibs_err left_release(const struct left *f, size_t i, dibs_lock *l,
                      int64_t keep_ms);

#endif
