/* SPDX-License-Identifier: MIT
 *
 * member_subscriptions.h - the subscriptions of one group operation to its
 * members' channels.
 */
#ifndef DIBS_GROUP_MEMBER_SUBSCRIPTIONS_H
#define DIBS_GROUP_MEMBER_SUBSCRIPTIONS_H

#include "group/group.h"

struct dibs__member_subscriptions;

/* Subscribes to the channels of all members. Calls on_message(arg, member) for
 * each message and whenever one may have been missed, on the io thread of the
 * member's client. Calls on_end(arg) last; arg must live until then. Returns
 * NULL if out of memory. Thread: any, no mutex held. */
struct dibs__member_subscriptions *
dibs__member_subscriptions_open(struct dibs__group *g,
                                void (*on_message)(void *arg, size_t member),
                                void (*on_end)(void *arg), void *arg);
/* Unsubscribes. on_message may still be called until on_end. Thread: any, no
 * mutex held. */
void dibs__member_subscriptions_close(struct dibs__member_subscriptions *subs);
/* Returns the number of members whose subscription the server has confirmed.
 * Thread: any. */
size_t dibs__member_subscriptions_ready_count(
    const struct dibs__member_subscriptions *subs);

#endif
