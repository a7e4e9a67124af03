/* SPDX-License-Identifier: MIT
 *
 * server_identity.h - which server a member of a group is on.
 */
#ifndef DIBS_GROUP_SERVER_IDENTITY_H
#define DIBS_GROUP_SERVER_IDENTITY_H

#include "group/group.h"

typedef void dibs__server_identity_done(struct dibs__command *cmd, dibs_err err,
                                        const struct dibs__reply *reply);

/* Sends the question; done must call dibs__server_identity_record. Thread: any,
 * with the member's client entered, no mutex held. */
void dibs__server_identity_query(struct dibs__member *m,
                                 struct dibs__command *cmd, int64_t within,
                                 dibs__server_identity_done *done);
/* What was answered. Thread: any, no mutex held. */
void dibs__server_identity_record(struct dibs__group *g, size_t i, dibs_err err,
                                  const struct dibs__reply *reply);
/* Is its server known, since the connection was made? */
bool dibs__server_identity_is_known(struct dibs__group *g, size_t i)
    REQUIRES(g->mu);
/* Is its server known to be that of another member, which it must not be? */
bool dibs__server_identity_is_duplicate(struct dibs__group *g, size_t i)
    REQUIRES(g->mu);

/* Two members have one name. */
bool dibs__members_same_name(const struct dibs__member *a,
                             const struct dibs__member *b);
/* Asks all servers that can be reached. INVALID, with a reason: two members of
 * a quorum are on one server, or two of a multi lock are one lock. Thread:
 * app. */
dibs_err dibs__server_identity_check(struct dibs__group *g);
/* The reason for that; INVALID. */
dibs_err dibs__server_identity_report(const struct dibs__group *g, size_t i);

#endif
