/* SPDX-License-Identifier: MIT
 *
 * server_identity.h - which server a group member is on, by its run_id.
 */
#ifndef DIBS_GROUP_SERVER_IDENTITY_H
#define DIBS_GROUP_SERVER_IDENTITY_H

#include "group/group.h"

typedef void dibs__server_identity_done(struct dibs__command *cmd, dibs_err err,
                                        const struct dibs__reply *reply);

/* Sends INFO within that time; `done` must call dibs__server_identity_record.
 * Thread: any, with the member's client entered, no mutex held. */
void dibs__server_identity_query(struct dibs__member *m,
                                 struct dibs__command *cmd, int64_t within,
                                 dibs__server_identity_done *done);
/* Stores the reply as the run_id of member i on its present connection. Thread:
 * any, no mutex held. */
void dibs__server_identity_record(struct dibs__group *g, size_t i, dibs_err err,
                                  const struct dibs__reply *reply);
/* Returns whether member i's run_id was read on its present connection. */
bool dibs__server_identity_is_known(struct dibs__group *g, size_t i)
    REQUIRES(g->mu);
/* Returns whether member i is known to be on the same server as another member
 * that must be on a different one. */
bool dibs__server_identity_is_duplicate(struct dibs__group *g, size_t i)
    REQUIRES(g->mu);

/* Returns whether both members have the same lock name. */
bool dibs__members_same_name(const struct dibs__member *a,
                             const struct dibs__member *b);
/* Queries all reachable servers. Returns INVALID, with a reason, if two members
 * of a quorum lock are on one server, or two members of a multi lock are one
 * lock. Thread: app. */
dibs_err dibs__server_identity_check(struct dibs__group *g);
/* Sets that reason for member i. Returns INVALID. */
dibs_err dibs__server_identity_report(const struct dibs__group *g, size_t i);

#endif
