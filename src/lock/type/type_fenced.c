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

const struct dibs__kind dibs__kind_fenced = {
    .id = KIND_FENCED,
    .family = FAMILY_PLAIN,
    .channel = "redisson_lock__channel",
    .suffix = "",
    .asks = ASKS_HEAD,
    .renew_keys = "n",
    .renews = &dibs__script_mutex_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_fenced_acquire, "nK", "otlw"},
            [VERB_RELEASE] = {&dibs__script_mutex_release, "n", "otkc*"},
            [VERB_HANDOVER] = {&dibs__script_fenced_handover, "nK", "oNlw"},
            [VERB_FORCE] = {&dibs__script_mutex_force, "n", "oc*"},
            [VERB_LEFT] = {&dibs__script_wait_leave, "n", "cBa*"},
            [VERB_INFO] = {&dibs__script_fenced_info, "nK", "Y"},
            [VERB_HOLDERS] = DIBS__HOLDERS,
        },
    .called = "cBH",
    .sooner = "c*",
    DIBS__VALUED_ANSWERS,
    .pause = dibs__pause_usual,
};
