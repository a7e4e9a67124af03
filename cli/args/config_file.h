/* SPDX-License-Identifier: MIT
 *
 * config_file.h - defaults of the command, read from files.
 */
#ifndef DIBS_CLI_ARGS_CONFIG_FILE_H
#define DIBS_CLI_ARGS_CONFIG_FILE_H

#include "args/args.h"

/* Fills in what neither an option nor the environment gives: from the user's
 * file, then the system's, then the built-in default. EXIT_FINE, or EXIT_USAGE
 * after a message. Strings that are filled in live until the process ends. */
int settings_apply(struct args *a);

/* Tells for each setting where its value comes from. */
void settings_explain(const struct args *a,
                      void (*tell)(const char *text, void *arg), void *arg);

#endif
