/* SPDX-License-Identifier: MIT
 *
 * loss_notify.h - telling an owner that what it held is lost: once, and never
 * when the release has returned.
 */
#ifndef DIBS_LOCK_LEASE_LOSS_NOTIFY_H
#define DIBS_LOCK_LEASE_LOSS_NOTIFY_H

#include "client/callback_queue.h"

#include <dibs/dibs.h>
#include <stdbool.h>
#include <stddef.h>

/* What one acquire with on_lost is to be told. Counted references. */
struct dibs__loss_listener;

/* Carries the loss of one member's hold to where callbacks run. Made when the
 * lock is asked for, so that telling cannot fail. */
struct dibs__loss_notification {
    struct dibs__callback cb;
    struct dibs__loss_listener *loss; /* with a reference */
    size_t member;
};

/* place: the line or the group it belongs to. It is told once fewer than
 * `need` of its members that count are left. NULL: out of memory. */
struct dibs__loss_listener *dibs__loss_new(const void *place,
                                           const dibs_lock_opts *o,
                                           size_t members, size_t need);
/* The name that on_lost gets; copied when it is made. NULL: out of memory. */
struct dibs__loss_listener *
dibs__loss_set_name(struct dibs__loss_listener *loss, const char *name,
                    size_t len);
/* The same once more, with nothing lost yet. NULL: out of memory. */
struct dibs__loss_listener *
dibs__loss_clone(const struct dibs__loss_listener *loss);
/* All these take NULL for an acquire without on_lost. */
struct dibs__loss_listener *dibs__loss_ref(struct dibs__loss_listener *loss);
void dibs__loss_unref(struct dibs__loss_listener *loss);

/* NULL: out of memory. */
struct dibs__loss_notification *
dibs__loss_notification_new(struct dibs__loss_listener *loss, size_t member);
void dibs__loss_notification_free(struct dibs__loss_notification *notification);
/* That member's hold is lost. */
void dibs__loss_notification_push(struct dibs__loss_notification *notification,
                                  struct dibs__callbacks *cbs);

/* From now on it counts: these members, or all. False: too many of them are
 * lost already, and it does not count yet. */
bool dibs__loss_arm(struct dibs__loss_listener *loss, const bool member[]);
/* One more member counts; it may be lost by now. */
void dibs__loss_add(struct dibs__loss_listener *loss, size_t member);

/* Its owner has given back that lock: on_lost does not begin any
 * more. Thread: any. */
void dibs__loss_suppress(struct dibs__loss_listener *loss);
/* The same, and it does not run on another thread any more. Thread: app, no
 * mutex held. */
void dibs__loss_suppress_and_wait(struct dibs__loss_listener *loss);
/* The same for all of this owner's that are on their way; 0: of all owners. */
void dibs__losses_suppress_and_wait(const void *place, dibs_owner owner);
/* The same for a caller that cannot wait. False: nothing runs. True: then(arg)
 * comes when on_lost has returned. One caller a loss. */
bool dibs__loss_on_done(struct dibs__loss_listener *loss,
                        void (*then)(void *arg), void *arg);
/* All of this owner's that are on their way: on_lost does not begin any more.
 * The one that runs on another thread now, with a reference, or NULL. */
struct dibs__loss_listener *dibs__losses_suppress(const void *place,
                                                  dibs_owner owner);

#endif
