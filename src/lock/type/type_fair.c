/* SPDX-License-Identifier: MIT
 *
 * type_fair.c - the fair lock: first come, first served.
 *
 * Keys: the hash of the plain lock; a list of the waiting owners in order of
 * arrival; a sorted set of them by the time at which each is evicted unless it
 * retries before. A release wakes a waiter on a channel of its own: the lock's
 * channel + ":" + owner. These keys, channels and the unit of the scores are
 * Redisson's. How scores are set, and how a dead or stopped waiter is detected,
 * is dibs's own (see the scripts), and so is the hash of unresponsive waiters,
 * which did not receive their wake-up or did not follow it; it has a TTL.
 *
 * There is no hand-over inside a client: the queue decides who is next.
 */
#include "lock/core/lock_manager.h"
#include "lock/type/lock_type.h"

/* The reply names the pause. A waiter that does not retry for fair_wait_ms is
 * evicted from the queue. */
static int64_t fair_retry_delay(const struct dibs__lock_entry *entry,
                                int64_t busy_ms)
{
    return dibs__max(dibs__min(busy_ms, entry->manager->fair_wait_ms), 1);
}

#define KEYS                                                                   \
    DIBS__PARAMS(PARAM_NAME, PARAM_QUEUE, PARAM_QUEUE_SCORES,                  \
                 PARAM_UNRESPONSIVE)

const struct dibs__lock_type dibs__type_fair = {
    .id = TYPE_FAIR,
    .layout = LAYOUT_HASH,
    .channel = "redisson_lock__channel",
    .owner_suffix = "",
    .retry_policy = RETRY_EACH,
    .has_server_queue = true,
    .renew_keys = DIBS__PARAMS(PARAM_NAME),
    .renew_script = &dibs__script_mutex_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_fair_acquire, KEYS,
                              DIBS__PARAMS(PARAM_OWNER, PARAM_TARGET_COUNT,
                                           PARAM_LEASE, PARAM_FAIR_WAIT,
                                           PARAM_WAITER_CHANNEL, PARAM_ENQUEUE,
                                           PARAM_FAIR_CALL, PARAM_PUBLISH)},
            [VERB_RELEASE] = {&dibs__script_fair_release, KEYS,
                              DIBS__PARAMS(PARAM_OWNER, PARAM_TARGET_COUNT,
                                           PARAM_HOLD_OFF, PARAM_FAIR_WAIT,
                                           PARAM_WAITER_CHANNEL,
                                           PARAM_FAIR_CALL, PARAM_PUBLISH)},
            [VERB_FORCE] = {&dibs__script_fair_leave, KEYS,
                            DIBS__PARAMS(PARAM_OWNER, PARAM_WAITER_CHANNEL,
                                         PARAM_ONE, PARAM_FAIR_WAIT,
                                         PARAM_FAIR_CALL, PARAM_PUBLISH)},
            [VERB_LEAVE_QUEUE] = {&dibs__script_fair_leave, KEYS,
                                  DIBS__PARAMS(PARAM_OWNER,
                                               PARAM_WAITER_CHANNEL, PARAM_ZERO,
                                               PARAM_FAIR_WAIT, PARAM_FAIR_CALL,
                                               PARAM_PUBLISH)},
            [VERB_INFO] = {&dibs__script_fair_info, KEYS,
                           DIBS__PARAMS(PARAM_FIRST, PARAM_COUNT,
                                        PARAM_HOLDER_VALUE)},
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    DIBS__PLAIN_REPLIES,
    .retry_delay = fair_retry_delay,
};
