/* SPDX-License-Identifier: MIT
 *
 * subverbs.h - subcommands with a verb: slots, sem and latch.
 */
#ifndef DIBS_CLI_ARGS_SUBVERBS_H
#define DIBS_CLI_ARGS_SUBVERBS_H

#include "args/args.h"

/* dibs latch down NAME: the verb is "down". */
struct verb {
    unsigned command;
    const char *name;
    bool number;    /* a number follows the name */
    int64_t least;  /* of that number */
    unsigned takes; /* which of the options that not all verbs take */
    const char *example;
    const char *summary;
    int (*run)(const struct args *a);
};

/* Ends with a row without a name. */
extern const struct verb verb_rows[];

/* NULL: there is none of that name. */
const struct verb *verb_find(const struct command *cmd, const char *name);
/* Does it take this option of its subcommand? */
bool verb_takes(const struct verb *v, const char *option);
/* Says which ones there are; EXIT_USAGE. */
int verb_unknown(const struct command *cmd, const char *word);

/* Of a subcommand with verbs: takes the verb out of the words, reads the number
 * behind the name, and checks the options. EXIT_FINE, or EXIT_USAGE and an
 * error was printed. */
int verbs_place(struct args *a, const struct command *cmd);

/* The run of such a subcommand. */
int verbs_run(const struct args *a);

#endif
