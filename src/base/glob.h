/* SPDX-License-Identifier: MIT
 *
 * glob.h - patterns of names, as Redis has them.
 */
#ifndef DIBS_BASE_GLOB_H
#define DIBS_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* Does the text match? In the pattern * is any number of bytes, ? is one byte,
 * [abc], [a-z] and [^a] are one of a set, and a backslash takes the meaning
 * from what follows. */
bool dibs__glob_match(const char *pattern, const char *text, size_t len);

/* Does the pattern end inside of a set, or with a backslash? Then nothing can
 * be put behind it. */
bool dibs__glob_open(const char *pattern);

#endif
