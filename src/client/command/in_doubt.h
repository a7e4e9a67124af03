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
struct dibs__ghost *dibs__ghost_new(const struct dibs__link *ln);
void dibs__ghost_ref(struct dibs__ghost *g);
void dibs__ghost_unref(struct dibs__ghost *g); /* NULL is fine */

/* It can do nothing any more. */
bool dibs__ghost_canceled(const struct dibs__ghost *g);
bool dibs__ghost_of(const struct dibs__ghost *g, const struct dibs__server *s);
/* Lays it, if its server is up and nobody did. What is sent after that comes
 * after it. Thread: io, as all below. */
void dibs__ghost_cancel(struct dibs__ghost *g);
/* The caller has given up, but it is still about: when there is a
 * connection. */
void dibs__ghost_cancel_later(struct dibs__ghost *g);
/* All of those, now that there is one; none of them, as nobody will ask. */
void dibs__ghosts_cancel(struct dibs__server *s);
void dibs__ghosts_forget(struct dibs__server *s);

#endif
