/* SPDX-License-Identifier: MIT
 *
 * client_name.h - connection names, which map a client's UUID to host, process
 * and program.
 */
#ifndef DIBS_CLIENT_OBSERVE_CLIENT_NAME_H
#define DIBS_CLIENT_OBSERVE_CLIENT_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "dibs/dibs.h"

#define DIBS__CLIENT_NAME_MAX 400 /* of a connection, with its NUL */
#define DIBS__CLIENT_INFO_TEXT_MAX                                             \
    65 /* of host, program or address, with its NUL */
#define DIBS__CLIENT_ID_LEN 36

/* All zero: not known. The texts are ASCII without control characters. */
struct dibs__client_info {
    bool known;
    int64_t pid;
    int64_t age_ms; /* of the oldest connection */
    char host[DIBS__CLIENT_INFO_TEXT_MAX];
    char program[DIBS__CLIENT_INFO_TEXT_MAX];
    char address[DIBS__CLIENT_INFO_TEXT_MAX];
};

/* Formats the name of this client's connections. program NULL: name of the
 * running program. */
void dibs__client_name_format(const char *id, const char *program,
                              char out[DIBS__CLIENT_NAME_MAX]);

/* Appends CLIENT LIST TYPE normal, which leaves out pub/sub connections. */
void dibs__client_list_command(struct dibs__buf *out);

/* Copies the UUID of an owner "UUID:n". Returns false if the text does not
 * begin with a UUID and a colon. */
bool dibs__client_id_of_owner(const char *owner,
                              char out[DIBS__CLIENT_ID_LEN + 1]);

struct dibs__client_list_row {
    char id[DIBS__CLIENT_ID_LEN + 1];
    struct dibs__client_info who;
};
/* Parses a line of CLIENT LIST. Returns false if it is not a connection of
 * dibs.
 */
bool dibs__client_list_parse(const char *text, size_t len,
                             struct dibs__client_list_row *out);
/* Keeps the older one of the two connections in *into. */
void dibs__client_info_merge(struct dibs__client_info *into,
                             const struct dibs__client_info *from);
/* Returns the public struct; its texts point into w. */
dibs_who dibs__client_info_public(const struct dibs__client_info *w);

#endif
