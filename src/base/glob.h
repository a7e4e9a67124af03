/* SPDX-License-Identifier: MIT
 *
 * glob.h - glob patterns with the rules of Redis.
 */
#ifndef DIBS_BASE_GLOB_H
#define DIBS_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether the text matches. In the pattern * is any number of bytes, ?
 * is one byte, [abc], [a-z] and [^a] are one byte of a set, and a backslash
 * escapes the next byte. */
bool dibs__glob_match(const char *pattern, const char *text, size_t len);

/* Returns whether the pattern ends inside a set or with a backslash; then no
 * suffix can be appended to it. */
bool dibs__glob_open(const char *pattern);

#endif
