/* SPDX-License-Identifier: MIT
 *
 * type_semaphore.c - Redisson's semaphore, with a ledger of the permits.
 *
 * Keys: the number of free permits, which is all that Redisson keeps, so that
 * the permits of a crashed process are lost; and the ledger, dibs's own: a
 * sorted set of "permits:owner", by the end of the lease. Permits of a crashed
 * process return when its lease ends. Each acquire has an owner id of its own,
 * so a late copy of its commands affects no other acquire. There is no
 * re-entry, and no hand-over. The value of a hold is its number of permits.
 */
#include "lock/type/lock_type.h"

const struct dibs__lock_type dibs__type_semaphore = {
    .id = TYPE_SEMAPHORE,
    .layout = LAYOUT_SEMAPHORE,
    .channel = "redisson_sc",
    .owner_suffix = "",
    .retry_policy = RETRY_HEAD_ONLY,
    .is_counting = true,
    .renew_keys = DIBS__PARAMS(PARAM_NAME, PARAM_LEDGER),
    .renew_arg = PARAM_LEDGER_ENTRY,
    .renew_script = &dibs__script_semaphore_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_semaphore_acquire,
                              DIBS__PARAMS(PARAM_NAME, PARAM_LEDGER),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_VALUE,
                                           PARAM_LEASE, PARAM_CHANNEL,
                                           PARAM_PUBLISH)},
            [VERB_RELEASE] = {&dibs__script_semaphore_release,
                              DIBS__PARAMS(PARAM_NAME, PARAM_LEDGER),
                              DIBS__PARAMS(PARAM_OWNER, PARAM_VALUE, PARAM_ZERO,
                                           PARAM_CHANNEL, PARAM_PUBLISH)},
            [VERB_FORCE] = {&dibs__script_semaphore_force,
                            DIBS__PARAMS(PARAM_NAME, PARAM_LEDGER),
                            DIBS__PARAMS(PARAM_OWNER, PARAM_CHANNEL,
                                         PARAM_PUBLISH)},
        },
    DIBS__NUMBERED_REPLIES,
    .retry_delay = dibs__retry_delay_default,
};
