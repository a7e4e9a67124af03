/* SPDX-License-Identifier: MIT
 *
 * top_text.h - what the columns of dibs top say about a lock.
 */
#ifndef DIBS_CLI_TOP_TOP_TEXT_H
#define DIBS_CLI_TOP_TOP_TEXT_H

#include "inspect/snapshot.h"

#define TOP_SPAN_MAX 32

/* "27s", "4m10s", "5h03m", "12d". */
const char *top_span(int64_t ms, char buf[TOP_SPAN_MAX]);
/* Host, pid and program, or else the owner, and how many more there are. A
 * latch and a semaphore have no owner: then their number. */
void top_owner(const struct snapshot_row *x, char *buf, size_t size);
/* How many wait, as far as that is known. */
size_t top_waiters(const struct snapshot_row *x);
/* The mode or the kind, in five letters at most. */
const char *top_mode(const dibs_lock_info *i);

#endif
