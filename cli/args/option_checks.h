/* SPDX-License-Identifier: MIT
 *
 * option_checks.h - do the options of a line fit together?
 */
#ifndef DIBS_CLI_ARGS_OPTION_CHECKS_H
#define DIBS_CLI_ARGS_OPTION_CHECKS_H

#include "args/args.h"

/* Each gives EXIT_FINE, or EXIT_USAGE and an error was printed. */

/* Those that take a lock. */
int check_take(const struct args *a, const struct command *cmd);
/* Those about a hold that is left, before settings are applied. */
int check_left(const struct args *a, const struct command *cmd);
/* Can the text of --publish go with the lock? */
int check_publish(const struct args *a, const struct command *cmd);
/* Is the lease long enough? */
int check_lease(const struct args *a, const struct command *cmd);

#endif
