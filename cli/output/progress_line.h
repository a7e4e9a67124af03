/* SPDX-License-Identifier: MIT
 *
 * progress_line.h - a line on the terminal that changes while we wait.
 */
#ifndef DIBS_CLI_OUTPUT_PROGRESS_LINE_H
#define DIBS_CLI_OUTPUT_PROGRESS_LINE_H

#include <stdbool.h>

/* Is stderr a terminal, and are we in its foreground? */
bool progress_possible(void);

/* Shows a line instead of the last one, cut to the width of the terminal.
 * Control characters are shown as escapes. */
void progress_show(const char *text);

/* Erases it. Messages do that before they are written. */
void progress_clear(void);

#endif
