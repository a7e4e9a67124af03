/* SPDX-License-Identifier: MIT
 *
 * error_advice.h - why a lock cannot be taken, and what to do next.
 */
#ifndef DIBS_CLI_OUTPUT_ERROR_ADVICE_H
#define DIBS_CLI_OUTPUT_ERROR_ADVICE_H

#include <dibs/dibs.h>

#include "args/args.h"

#define FAILURE_MAX 1024

/* Says that the lock cannot be taken, why, and what to try next. text is what
 * dibs_error_text said of it, or "". c may be NULL; else it is asked for the
 * master of a replica. Returns the exit code. */
int failure_tell(const struct args *a, dibs_err err, const char *text,
                 dibs_client *c);

/* What to try next, to be put behind a message: "; try: dibs doctor a", or
 * nothing. */
const char *failure_step(const struct args *a, dibs_err err, const char *text,
                         char buf[FAILURE_MAX]);

/* Removes the period at the end of a server's words. */
void failure_trim(char *text);

/* What follows the address in "redis://host:port: words". */
const char *failure_words(const char *text);

#endif
