/* SPDX-License-Identifier: MIT
 *
 * loss_notify.h - runs on_lost when a lock is lost: at most once for an
 * acquire, and never after its release has returned.
 *
 * Words
 *   loss listener   the on_lost of one acquire, with what decides whether it
 *                   runs. An acquire of a group has one listener for all
 *                   members.
 *   notification    carries the loss of one member to the callback thread.
 *   scope           the lock entry or the group of the acquire.
 *   armed           the acquire has succeeded. A member that is lost before
 * makes the acquire fail; on_lost does not run. suppress        on_lost must
 * not begin any more: the lock was released.
 */
#ifndef DIBS_LOCK_LEASE_LOSS_NOTIFY_H
#define DIBS_LOCK_LEASE_LOSS_NOTIFY_H

#include "client/callback_queue.h"

#include <dibs/dibs.h>
#include <stdbool.h>
#include <stddef.h>

/* Reference counted. */
struct dibs__loss_listener;

/* Allocated before the acquire is sent, so that a loss needs no memory. */
struct dibs__loss_notification {
    struct dibs__callback cb;
    struct dibs__loss_listener *loss; /* with a reference */
    size_t member;
};

/* on_lost runs once fewer than `need` of the armed members are left. Returns
 * NULL if out of memory. */
struct dibs__loss_listener *dibs__loss_new(const void *scope,
                                           const dibs_lock_opts *o,
                                           size_t members, size_t need);
/* Sets the name that on_lost gets, a copy. Returns loss. Out of memory: drops
 * the reference and returns NULL. */
struct dibs__loss_listener *
dibs__loss_set_name(struct dibs__loss_listener *loss, const char *name,
                    size_t len);
/* Returns a new listener with the same callback and name, no member armed; NULL
 * if out of memory. */
struct dibs__loss_listener *
dibs__loss_clone(const struct dibs__loss_listener *loss);
/* ref, unref, arm, add, suppress and on_done accept NULL: an acquire without
 * on_lost. */
struct dibs__loss_listener *dibs__loss_ref(struct dibs__loss_listener *loss);
void dibs__loss_unref(struct dibs__loss_listener *loss);

/* Takes a reference to loss. Returns NULL if out of memory. */
struct dibs__loss_notification *
dibs__loss_notification_new(struct dibs__loss_listener *loss, size_t member);
void dibs__loss_notification_free(struct dibs__loss_notification *notification);
/* The member's hold is lost: queues the notification, which frees itself. */
void dibs__loss_notification_push(struct dibs__loss_notification *notification,
                                  struct dibs__callbacks *cbs);

/* The acquire has succeeded: arms these members, or all if NULL. Returns false
 * if too few of them are left already; then on_lost does not run. */
bool dibs__loss_arm(struct dibs__loss_listener *loss, const bool member[]);
/* Arms one more member; it may be lost already. */
void dibs__loss_add(struct dibs__loss_listener *loss, size_t member);

/* The lock was released: on_lost does not begin any more. Any thread. */
void dibs__loss_suppress(struct dibs__loss_listener *loss);
/* As dibs__loss_suppress, and waits until on_lost has returned, unless that
 * would deadlock. Thread: app, no mutex held. */
void dibs__loss_suppress_and_wait(struct dibs__loss_listener *loss);
/* The same for all queued notifications of this owner in a scope; owner 0: of
 * all owners. */
void dibs__losses_suppress_and_wait(const void *scope, dibs_owner owner);
/* As dibs__loss_suppress, for a caller that must not wait. Returns whether
 * on_lost runs; then done(arg) is called after it has returned. At most one
 * caller for a listener. */
bool dibs__loss_on_done(struct dibs__loss_listener *loss,
                        void (*done)(void *arg), void *arg);
/* As dibs__loss_suppress for all queued notifications of this owner in a scope.
 * Returns a listener whose on_lost runs on another thread, with a reference, or
 * NULL. */
struct dibs__loss_listener *dibs__losses_suppress(const void *scope,
                                                  dibs_owner owner);

#endif
