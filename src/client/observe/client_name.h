/* SPDX-License-Identifier: MIT
 *
 * client_name.h - who is behind a UUID: the names of connections.
 */
#ifndef DIBS_CLIENT_OBSERVE_CLIENT_NAME_H
#define DIBS_CLIENT_OBSERVE_CLIENT_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "dibs/dibs.h"

#define DIBS__WHO_NAME_MAX 400 /* of a connection, with its NUL */
#define DIBS__WHO_TEXT_MAX 65  /* of host, program or address, with its NUL */
#define DIBS__WHO_ID_LEN   36

/* All zero: nobody known. The texts are ASCII without control characters. */
struct dibs__client_info {
    bool known;
    int64_t pid;
    int64_t age_ms; /* of the oldest connection */
    char host[DIBS__WHO_TEXT_MAX];
    char program[DIBS__WHO_TEXT_MAX];
    char address[DIBS__WHO_TEXT_MAX];
};

/* What the connections of this process are called. program NULL: that of the
 * process. */
void dibs__client_name_format(const char *id, const char *program,
                              char out[DIBS__WHO_NAME_MAX]);

/* CLIENT LIST, without those that only listen. */
void dibs__client_list_command(struct dibs__buf *out);

/* Does an owner's text begin with a UUID and a colon? Copies the UUID. */
bool dibs__client_id_of_owner(const char *owner,
                              char out[DIBS__WHO_ID_LEN + 1]);

/* A line of CLIENT LIST. False: not a connection of dibs. */
struct dibs__client_list_row {
    char id[DIBS__WHO_ID_LEN + 1];
    struct dibs__client_info who;
};
bool dibs__client_list_parse(const char *text, size_t len,
                             struct dibs__client_list_row *out);
/* Keeps the older connection of the two. */
void dibs__client_info_merge(struct dibs__client_info *into,
                             const struct dibs__client_info *from);
/* As the public struct; its texts are those of w. */
dibs_who dibs__client_info_public(const struct dibs__client_info *w);

#endif
