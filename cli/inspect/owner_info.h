/* SPDX-License-Identifier: MIT
 *
 * owner_info.h - who an owner is: host, pid, program, and since when.
 */
#ifndef DIBS_CLI_INSPECT_OWNER_INFO_H
#define DIBS_CLI_INSPECT_OWNER_INFO_H

#include "output/output.h"

#define WHO_PART_MAX 65
#define WHO_TEXT_MAX 240

struct who {
    bool known;
    char host[WHO_PART_MAX], program[WHO_PART_MAX], address[WHO_PART_MAX];
    int64_t pid, age_ms;
};

/* NULL: not known. */
void who_copy(struct who *w, const dibs_who *from);
/* Looks up the process of each owner. If the server refuses, none is known:
 * that is no error. Waits for the server. */
void who_ask(dibs_client *c, const char *const owners[], struct who out[],
             size_t n);

/* "db1, pid 4711, backup.sh, 3 min"; "" if it is not known. */
const char *who_text(const struct who *w, char buf[WHO_TEXT_MAX]);
/* The same behind an owner: " (db1, pid 4711, backup.sh, 3 min)", or "". */
const char *owner_describe(const struct who *w, char buf[WHO_TEXT_MAX]);
/* A field "who": an object, or null. */
void who_json(struct json *j, const struct who *w);

/* What the connections of a command are called after: the last part of its
 * path, with what cannot be in such a name replaced. */
void who_program(const char *path, char buf[WHO_PART_MAX]);

#endif
