/* SPDX-License-Identifier: MIT
 *
 * in_doubt.h - what a lost command may still do, and how that is ended.
 */
#ifndef DIBS_CLIENT_COMMAND_IN_DOUBT_H
#define DIBS_CLIENT_COMMAND_IN_DOUBT_H

#include "client/server/server.h"

/* Of what this connection left under way; one reference. NULL: out of memory,
 * or nobody knows the connection's number. Thread: the one that has the
 * connection.
 */
struct dibs__in_doubt *dibs__in_doubt_new(const struct dibs__pooled_conn *conn);
void dibs__in_doubt_ref(struct dibs__in_doubt *doubt);
void dibs__in_doubt_unref(struct dibs__in_doubt *doubt); /* NULL is fine */

/* It can do nothing any more. */
bool dibs__in_doubt_killed(const struct dibs__in_doubt *g);
bool dibs__in_doubt_of(const struct dibs__in_doubt *g,
                       const struct dibs__server *s);
/* Lays it, if its server is up and nobody did. What is sent after that comes
 * after it. Thread: io, as all below. */
void dibs__in_doubt_kill(struct dibs__in_doubt *doubt);
/* The caller has given up, but it is still about: when there is a
 * connection. */
void dibs__in_doubt_kill_later(struct dibs__in_doubt *doubt);
/* All of those, now that there is one; none of them, as nobody will ask. */
void dibs__in_doubt_kill_all(struct dibs__server *s);
void dibs__in_doubt_forget_all(struct dibs__server *s);

#endif
