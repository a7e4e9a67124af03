/* SPDX-License-Identifier: MIT
 *
 * type_semaphore.c - permits of Redisson's semaphore, with a book.
 *
 * On the server a number, of the permits that are free. Redisson keeps no more
 * than that, so permits of one that died are lost. Beside it we keep a book, a
 * sorted set: how many permits which owner has, by the end of its lease. Each
 * acquire goes by an owner of its own, so nothing that is sent for it can be
 * mistaken for another's. There is no re-entry, and no hand-over. A hold's
 * value is how many permits it has.
 */
#include "lock/type/lock_type.h"

const struct dibs__lock_type dibs__type_semaphore = {
    .id = TYPE_SEMAPHORE,
    .layout = LAYOUT_SEMAPHORE,
    .channel = "redisson_sc",
    .owner_suffix = "",
    .retry_policy = RETRY_HEAD_ONLY,
    .is_counting = true,
    .renew_keys = "nd",
    .renew_arg = 'E',
    .renew_script = &dibs__script_semaphore_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_semaphore_acquire, "nd", "oVlc*"},
            [VERB_RELEASE] = {&dibs__script_semaphore_release, "nd", "oV0c*"},
            [VERB_FORCE] = {&dibs__script_semaphore_force, "nd", "oc*"},
        },
    DIBS__NUMBERED_REPLIES,
    .retry_delay = dibs__retry_delay_default,
};
