/* SPDX-License-Identifier: MIT
 *
 * type_mutex.c - the plain re-entrant lock.
 *
 * Keys: a hash under the lock's own name, with one field: the owner, and its
 * recursion count. The hash always has a TTL. A release publishes a message on
 * the channel. The names and the hash are Redisson's; the scripts are dibs's
 * own.
 *
 * The channel is an argument and not a key, so that an ACL user with access to
 * the lock's key only can release, too.
 */
#include "lock/type/lock_type.h"

const struct dibs__lock_type dibs__type_mutex = {
    .id = TYPE_MUTEX,
    .layout = LAYOUT_HASH,
    .channel = "redisson_lock__channel",
    .owner_suffix = "",
    .retry_policy = RETRY_HEAD_ONLY,
    .batch_code = 'p',
    .renew_keys = "n",
    .renew_script = &dibs__script_mutex_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_mutex_acquire, "n", "otl"},
            [VERB_RELEASE] = {&dibs__script_mutex_release, "n", "otkc*"},
            [VERB_HANDOVER] = {&dibs__script_mutex_handover, "n", "oNl"},
            [VERB_FORCE] = {&dibs__script_mutex_force, "n", "oc*"},
            [VERB_DEREGISTER] = {&dibs__script_wait_leave, "n", "cBa*"},
            [VERB_INFO] = DIBS__INFO,
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    .register_args = "cBH",
    .shorten_args = "c*",
    DIBS__PLAIN_REPLIES,
    .retry_delay = dibs__retry_delay_default,
};
