/* SPDX-License-Identifier: MIT
 *
 * type_fair.c - the fair lock: first come, first served.
 *
 * The hash is that of the plain lock. Beside it the server keeps a queue, a
 * list of owners in order of arrival, and a set of scores: the time until which
 * a waiter counts without asking again. A waiter is called on a channel of its
 * own, the lock's channel with the owner behind it. These keys, channels and
 * the unit of the scores are Redisson's. How scores are set, and how a dead or
 * stopped waiter is found, is ours (see the scripts). So is the hash of those
 * that did not hear when they were called, or did not come; it has a TTL.
 *
 * There is no hand-over inside a client: the queue says who is next.
 */
#include "lock/core/lock_manager.h"
#include "lock/type/lock_type.h"

/* The server says when to ask again. No waiter keeps its place in the queue for
 * longer than fair_wait_ms without asking. */
static int64_t fair_pause(const struct dibs__lock_entry *entry, int64_t busy_ms)
{
    return dibs__max(dibs__min(busy_ms, entry->manager->fair_wait_ms), 1);
}

#define KEYS "nqsi"

const struct dibs__lock_type dibs__type_fair = {
    .id = TYPE_FAIR,
    .layout = LAYOUT_HASH,
    .channel = "redisson_lock__channel",
    .owner_suffix = "",
    .retry_policy = RETRY_EACH,
    .has_server_queue = true,
    .renew_keys = "n",
    .renew_script = &dibs__script_mutex_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_fair_acquire, KEYS, "otlWCyF*"},
            [VERB_RELEASE] = {&dibs__script_fair_release, KEYS, "otkWCF*"},
            [VERB_FORCE] = {&dibs__script_fair_leave, KEYS, "oC1WF*"},
            [VERB_LEAVE] = {&dibs__script_fair_leave, KEYS, "oC0WF*"},
            [VERB_INFO] = {&dibs__script_fair_info, KEYS, "fuY"},
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    DIBS__PLAIN_REPLIES,
    .retry_delay = fair_pause,
};
