/* SPDX-License-Identifier: MIT
 *
 * type_fenced.c - the plain lock with a fencing token.
 *
 * Keys: the hash and the channel of the plain lock; the last token. The acquire
 * or hand-over that begins a hold increments the token and returns it, without
 * a command of its own. Only the begin of a hold changes the last token, and no
 * other hold can begin while an owner has the lock. So an acquire that is sent
 * again, because its reply was lost, returns the same token. The key is
 * Redisson's; how a token is made is dibs's own (lua/lib/token.lua).
 */
#include "lock/type/lock_type.h"

const struct dibs__lock_type dibs__type_fenced = {
    .id = TYPE_FENCED,
    .layout = LAYOUT_HASH,
    .channel = "redisson_lock__channel",
    .owner_suffix = "",
    .retry_policy = RETRY_HEAD_ONLY,
    .renew_keys = DIBS__PARAMS(PARAM_NAME),
    .renew_script = &dibs__script_mutex_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_fenced_acquire,
                              DIBS__PARAMS(PARAM_NAME, PARAM_LAST_TOKEN),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_TARGET_COUNT,
                                           PARAM_LEASE, PARAM_SMALL_TOKENS)},
            [VERB_RELEASE] = {&dibs__script_mutex_release,
                              DIBS__PARAMS(PARAM_NAME),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_TARGET_COUNT,
                                           PARAM_HOLD_OFF, PARAM_CHANNEL,
                                           PARAM_PUBLISH)},
            [VERB_HANDOFF] = {&dibs__script_fenced_handover,
                              DIBS__PARAMS(PARAM_NAME, PARAM_LAST_TOKEN),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_NEXT_OWNER,
                                           PARAM_LEASE, PARAM_SMALL_TOKENS)},
            [VERB_FORCE] = {&dibs__script_mutex_force, DIBS__PARAMS(PARAM_NAME),
                            DIBS__PARAMS(PARAM_OWNER, PARAM_CHANNEL,
                                         PARAM_PUBLISH)},
            [VERB_DEREGISTER] = {&dibs__script_wait_leave,
                                 DIBS__PARAMS(PARAM_NAME),
                                 DIBS__PARAMS(PARAM_CHANNEL,
                                              PARAM_CLIENT_CHANNEL, PARAM_ALL,
                                              PARAM_PUBLISH)},
            [VERB_INFO] = {&dibs__script_fenced_info,
                           DIBS__PARAMS(PARAM_NAME, PARAM_LAST_TOKEN),
                           DIBS__PARAMS(PARAM_HOLDER_VALUE)},
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    .register_args =
        DIBS__PARAMS(PARAM_CHANNEL, PARAM_CLIENT_CHANNEL, PARAM_REGISTRATION),
    .shorten_args = DIBS__PARAMS(PARAM_CHANNEL, PARAM_PUBLISH),
    DIBS__NUMBERED_REPLIES,
    .retry_delay = dibs__retry_delay_default,
};
