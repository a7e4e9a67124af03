/* SPDX-License-Identifier: MIT
 *
 * server_select.h - which server, and a client of it.
 */
#ifndef DIBS_CLI_SERVER_SERVER_SELECT_H
#define DIBS_CLI_SERVER_SERVER_SELECT_H

#include <stdbool.h>

#include <dibs/dibs.h>

#include "args/args.h"
#include "run/signals.h"
#include "server/private_server.h"

/* A server as the user named it, or our own. */
struct target {
    const struct args *a;
    char *url;
    char **urls;    /* of a quorum: all of them, ended by NULL; or NULL */
    char *password; /* NULL when none was given beside the URL */
    bool embedded;  /* no URL was given: local says where ours is */
    struct local local;
    int64_t until; /* a server that does not answer is tried again until then,
                      on the clock of time.h. 0, TIME_NEVER: not */
    int64_t server_until; /* counts instead, if it is not 0. TIME_NEVER: without
                             end */
    const struct signals *signals; /* a fatal one stops that; NULL: none */
    int *stopped_by;               /* the signal that did */
};

/* Finds out which server. EXIT_FINE, or another code and an error was printed.
 * Call target_clear in either case. */
int target_pick(const struct args *a, struct target *t);
void target_clear(struct target *t);

/* Is there a password in the URL? */
bool target_has_password(const char *url);

/* The first line of a file that has such a thing in it, "password" or "URL",
 * blanks at both ends taken off. NULL: an error was printed. */
char *target_read_line(const char *what, const char *path);

/* The number of its servers. */
size_t target_count(const struct target *t);

/* A client of the i-th, made as opts say; url and password are filled in here.
 * An embedded server is started if need be; those of a quorum need not answer
 * yet. EXIT_FINE, or another code and an error was printed. */
int target_open(const struct target *t, size_t i, const dibs_client_opts *opts,
                dibs_client **out);

/* Which server a subcommand that only looks has asked. */
struct target_server {
    char *url;    /* without its password; NULL: none could be chosen */
    bool private; /* no URL was given: it is our own */
    dibs_err err; /* why it could not be opened */
};

/* The same for subcommands that only look: if our private server does not run,
 * it is not started. *out is NULL then. Call target_server_clear in any
 * case. */
int target_look(const struct args *a, dibs_client **out,
                struct target_server *server);
void target_server_clear(struct target_server *server);

#endif
