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
    .renew_keys = DIBS__PARAMS(PARAM_NAME),
    .renew_script = &dibs__script_mutex_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_mutex_acquire,
                              DIBS__PARAMS(PARAM_NAME),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_TARGET_COUNT,
                                           PARAM_LEASE)},
            [VERB_RELEASE] = {&dibs__script_mutex_release,
                              DIBS__PARAMS(PARAM_NAME),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_TARGET_COUNT,
                                           PARAM_HOLD_OFF, PARAM_CHANNEL,
                                           PARAM_PUBLISH)},
            [VERB_HANDOFF] = {&dibs__script_mutex_handover,
                              DIBS__PARAMS(PARAM_NAME),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_NEXT_OWNER,
                                           PARAM_LEASE)},
            [VERB_FORCE] = {&dibs__script_mutex_force, DIBS__PARAMS(PARAM_NAME),
                            DIBS__PARAMS(PARAM_OWNER, PARAM_CHANNEL,
                                         PARAM_PUBLISH)},
            [VERB_DEREGISTER] = {&dibs__script_wait_leave,
                                 DIBS__PARAMS(PARAM_NAME),
                                 DIBS__PARAMS(PARAM_CHANNEL,
                                              PARAM_CLIENT_CHANNEL, PARAM_ALL,
                                              PARAM_PUBLISH)},
            [VERB_INFO] = DIBS__INFO,
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    .register_args =
        DIBS__PARAMS(PARAM_CHANNEL, PARAM_CLIENT_CHANNEL, PARAM_REGISTRATION),
    .shorten_args = DIBS__PARAMS(PARAM_CHANNEL, PARAM_PUBLISH),
    DIBS__PLAIN_REPLIES,
    .retry_delay = dibs__retry_delay_default,
};
