/* SPDX-License-Identifier: MIT
 *
 * lock_names.h - the name of the lock on the command line, or the names.
 */
#ifndef DIBS_CLI_ARGS_LOCK_NAMES_H
#define DIBS_CLI_ARGS_LOCK_NAMES_H

#include "args/args.h"

/* Puts the names of --multi in the place of NAME. */
int names_place(struct args *a, const struct command *cmd);

/* Are they names of locks? Both give EXIT_FINE, or EXIT_USAGE and an error was
 * printed. */
int names_check(const struct args *a, const struct command *cmd);

#endif
