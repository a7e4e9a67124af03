/* SPDX-License-Identifier: MIT
 *
 * suggest.h - guesses what the user meant, and shows the corrected line.
 */
#ifndef DIBS_CLI_ARGS_SUGGEST_H
#define DIBS_CLI_ARGS_SUGGEST_H

#include "args/args.h"

/* A command line as it was typed. */
struct typed {
    int argc;
    char **argv;
};

/* The subcommand that is meant by this word, or NULL. */
const struct command *hint_command(const char *word);

/* The option of this subcommand (NULL: one that comes before it) that is meant
 * by these len bytes, which have no dashes before them; or NULL. */
const struct option_row *hint_option(const struct command *cmd,
                                     const char *name, size_t len);

/* Which subcommands take this option, as "hold, run"; "" when none does. name
 * has len bytes; NULL: the letter counts. */
const char *commands_accepting(char letter, const char *name, size_t len,
                               char buf[128]);

/* A word as it may be shown: one that may have a password in it is "URL". */
const char *hint_word(const char *word);

/* The line with n words from index at on replaced by `with`, which may be NULL
 * for nothing. A URL that may have a password is shown as URL; of the command
 * to run, only the first word is shown. Free it; NULL when out of memory. */
char *hint_line(const struct typed *t, int at, int n, const char *with);

/* The same, with -- and a command at the end if there is none. */
char *hint_run_line(const struct typed *t, int at, int n, const char *with);

#endif
