/* SPDX-License-Identifier: MIT
 *
 * type_fenced.c - the plain lock with a token.
 *
 * The hash and the channel are those of the plain lock. Beside them the server
 * keeps the last token. A hold that begins spends the next one, by an acquire
 * or by a hand-over; the script gives it with the lock, so it costs no command
 * of its own. Only holds that begin move the last token, and nobody else can
 * begin one while an owner has the lock. So a command that is sent again,
 * because its reply was lost, finds its own token there. The key is Redisson's;
 * how a token is made is ours (lua/lib/token.lua).
 */
#include "lock/type/lock_type.h"

const struct dibs__lock_type dibs__type_fenced = {
    .id = TYPE_FENCED,
    .layout = LAYOUT_HASH,
    .channel = "redisson_lock__channel",
    .owner_suffix = "",
    .retry_policy = RETRY_HEAD_ONLY,
    .renew_keys = "n",
    .renew_script = &dibs__script_mutex_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_fenced_acquire, "nK", "otlw"},
            [VERB_RELEASE] = {&dibs__script_mutex_release, "n", "otkc*"},
            [VERB_HANDOVER] = {&dibs__script_fenced_handover, "nK", "oNlw"},
            [VERB_FORCE] = {&dibs__script_mutex_force, "n", "oc*"},
            [VERB_DEREGISTER] = {&dibs__script_wait_leave, "n", "cBa*"},
            [VERB_INFO] = {&dibs__script_fenced_info, "nK", "Y"},
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    .register_args = "cBH",
    .shorten_args = "c*",
    DIBS__NUMBERED_REPLIES,
    .retry_delay = dibs__retry_delay_default,
};
