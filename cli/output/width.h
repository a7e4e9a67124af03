/* SPDX-License-Identifier: MIT
 *
 * width.h - how many columns of a terminal a text takes.
 */
#ifndef DIBS_CLI_OUTPUT_WIDTH_H
#define DIBS_CLI_OUTPUT_WIDTH_H

#include <stddef.h>

/* The first character of a text that is not empty: *len bytes. Its columns: 0
 * (combining), 1 or 2; -1 if it is not UTF-8 or cannot be seen. */
int width_char(const char *text, size_t *len);
/* The columns of a text of out_printable. What width_char does not know counts
 * as one. */
int width_text(const char *text);
/* Returns how many bytes of it fit into that many columns. */
size_t width_fit(const char *text, int columns);

#endif
