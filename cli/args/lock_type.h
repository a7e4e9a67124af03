/* SPDX-License-Identifier: MIT
 *
 * lock_type.h - which kind of lock the options ask for.
 */
#ifndef DIBS_CLI_ARGS_LOCK_TYPE_H
#define DIBS_CLI_ARGS_LOCK_TYPE_H

#include "args/args.h"

enum lock_kind {
    KIND_PLAIN,
    TYPE_FAIR,
    TYPE_READ,
    TYPE_WRITE,
    TYPE_FENCED,
    TYPE_SLOTS
};

enum lock_kind kind_of(const struct args *a);
/* The options that ask for it. */
void kind_set(struct args *a, enum lock_kind kind);
/* A handle. slots: how many, for that kind. */
dibs_err kind_new(enum lock_kind kind, dibs_client *c, const char *name,
                  int64_t slots, dibs_lock **out);

/* What a name turned out to be, in a word: "lock", "slots". */
/* Is the name in use for other numbers than wanted, SLOTS or SEMAPHORE?
 * EXIT_FINE: no, or the server does not tell; otherwise the exit code, and an
 * error was printed. While no permit is acquired, both are just a number. */
int kind_refuse(dibs_client *c, const char *name, dibs_kind wanted);

const char *kind_word(dibs_kind kind);
/* Is it a number on the server, and not a lock of one holder? */
bool kind_counted(dibs_kind kind);
/* Does anybody hold it? A handle on one half of a read-write lock says of its
 * own half only that it is locked. */
bool kind_held(const dibs_lock_info *info);
/* The fields of a JSON object that depend on the kind. */
void kind_json(struct json *j, const dibs_lock_info *info);

/* Why a name cannot be used as the command line has it: what it is, and what to
 * use instead, as "it is a lock with 3 slots: use -N 3". Asks the server. NULL:
 * there is no such reason. */
#define KIND_CLASH_MAX 160
const char *kind_clash(dibs_client *c, const struct args *a,
                       char buf[KIND_CLASH_MAX]);

/* Do the options about the kind fit together? EXIT_FINE, or EXIT_USAGE and an
 * error was printed. */
int kind_check(const struct args *a, const struct command *cmd);

#endif
