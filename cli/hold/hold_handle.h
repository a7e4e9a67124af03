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

#define HANDLE_LEASE_MS                                                        \
    10000 /* the least that a release has; see hold_handle.c */

/* What "dibs acquire" prints, read. */
struct hold_handle {
    enum lock_kind kind;
    const char *owners[LOCK_SET_MAX];
    size_t n;
    char *copy; /* the owners are in there */
};

/* The text for what the lock set holds; free it. NULL: out of memory. */
char *hold_handle_format(const struct args *a, const struct lock_set *b);
/* NULL, or what is wrong with the text. Call hold_handle_clear in either case.
 */
const char *hold_handle_parse(struct hold_handle *f, const char *text);
void hold_handle_clear(struct hold_handle *f);

/* Adopts what one of these owners holds, the i-th first. NOT_OWNER: none of
 * them holds it. */
dibs_err hold_handle_attach(const struct hold_handle *f, size_t i, dibs_lock *l,
                            int64_t lease_ms, dibs_owner *out);
/* The same, and gives it back; leaves it taken for keep_ms. LOST is NOT_OWNER
 * here: that owner has it not any more. */
dibs_err hold_handle_release(const struct hold_handle *f, size_t i,
                             dibs_lock *l, int64_t keep_ms);

#endif
