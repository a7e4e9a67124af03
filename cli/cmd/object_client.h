/* SPDX-License-Identifier: MIT
 *
 * object_client.h - what slots, sem and latch share: a client, and how they
 * answer.
 */
#ifndef DIBS_CLI_CMD_OBJECT_CLIENT_H
#define DIBS_CLI_CMD_OBJECT_CLIENT_H

#include "args/args.h"
#include "server/server_select.h"

/* A client, with its server. */
struct object {
    const struct args *a;
    struct target target;
    dibs_client *c;
};

/* A private server is started if need be. EXIT_FINE, or another code and an
 * error was printed; object_close in either case. */
int object_open(struct object *o, const struct args *a);
/* The same, and a fatal signal ends --server-wait: *stopped_by is that, or 0.
 */
int object_open_until(struct object *o, const struct args *a,
                      const struct signals *signals, int *stopped_by);
/* The same for commands that only look: c is NULL if the private server does
 * not run, and a message says so. */
int object_look(struct object *o, const struct args *a);
void object_close(struct object *o);

/* Prints what failed; the exit code. A name of another kind is asked about by
 * the client that is open. */
int object_failed(const struct args *a, dibs_err err);

/* With --json, one object with the name and these numbers; else text, a line
 * (NULL: nothing). The exit code, or EXIT_INTERNAL if it cannot be written. */
int object_answer(const struct args *a, const struct out_fact *facts,
                  const char *text, int code);

#endif
