/* SPDX-License-Identifier: MIT
 *
 * in_doubt.h - the commands in flight on a connection that was lost, and the
 * CLIENT KILL that ends them.
 */
#ifndef DIBS_CLIENT_COMMAND_IN_DOUBT_H
#define DIBS_CLIENT_COMMAND_IN_DOUBT_H

#include "client/server/server.h"

/* Returns the record of the commands in flight on `conn`, with one reference;
 * NULL if out of memory, or if the connection's client id is unknown. Thread:
 * the connection's user. */
struct dibs__in_doubt *dibs__in_doubt_new(const struct dibs__pooled_conn *conn);
void dibs__in_doubt_ref(struct dibs__in_doubt *doubt);
void dibs__in_doubt_unref(struct dibs__in_doubt *doubt); /* accepts NULL */

/* Returns true if the server cannot execute these commands any more. */
bool dibs__in_doubt_killed(const struct dibs__in_doubt *doubt);
/* Returns true if the lost connection was one to `s`. */
bool dibs__in_doubt_is_on(const struct dibs__in_doubt *doubt,
                          const struct dibs__server *s);
/* Sends CLIENT KILL, unless the server is down or it was sent before. Commands
 * sent later on the main connection are executed after it. Thread: io, as for
 * all below. */
void dibs__in_doubt_kill(struct dibs__in_doubt *doubt);
/* Same; if the server is down, CLIENT KILL is sent once it is connected. For a
 * command that completed while in doubt. */
void dibs__in_doubt_kill_later(struct dibs__in_doubt *doubt);
/* The server is connected: sends each CLIENT KILL that is pending. */
void dibs__in_doubt_kill_all(struct dibs__server *s);
/* The server will not be used again: drops each pending CLIENT KILL. */
void dibs__in_doubt_forget_all(struct dibs__server *s);

#endif
