/* SPDX-License-Identifier: MIT
 *
 * member_subscriptions.h - an operation on several locks listens to its
 * members' channels.
 */
#ifndef DIBS_GROUP_MEMBER_SUBSCRIPTIONS_H
#define DIBS_GROUP_MEMBER_SUBSCRIPTIONS_H

#include "group/group.h"

struct dibs__member_subscriptions;

/* Listens to all members' channels. told is called with arg, on the io thread
 * of a member's client: a message came, or one may have been missed. arg must
 * live until `over` is called, which is the last call. NULL: out of memory.
 * Thread: any, no mutex held. */
struct dibs__member_subscriptions *
dibs__member_subscriptions_open(struct dibs__group *g,
                                void (*told)(void *arg, size_t member),
                                void (*over)(void *arg), void *arg);
/* Listens no more; a call that is on its way may still come. Thread: any, no
 * mutex held. */
void dibs__member_subscriptions_close(struct dibs__member_subscriptions *ears);
/* Of so many members a message will be heard. Thread: any. */
size_t dibs__member_subscriptions_ready_count(
    const struct dibs__member_subscriptions *ears);

#endif
