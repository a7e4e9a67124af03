/* SPDX-License-Identifier: MIT
 *
 * type_slots.c - the lock that up to N owners hold at once.
 *
 * Keys: the number of free permits; a sorted set of the acquired permits, by
 * the end of the lease; a hash from slot to permit id and owner. A hold is one
 * permit; its id is derived from the owner id. The recursion count exists in
 * the client only. The first two keys and the channel are those of Redisson's
 * expirable semaphore; the hash is dibs's own.
 *
 * The value of a hold is its slot + 1; 0: unknown.
 */
#include "lock/type/lock_type.h"

#include <string.h>

/* The text is "slot" or "slot/total". */
static void slots_decode(enum dibs__lock_command verb,
                         const struct dibs__reply *reply,
                         struct dibs__acquire_outcome *out)
{
    dibs__decode_numbered_reply(verb, reply, out);
    if (out->result != RESULT_ACQUIRED || reply->type != REPLY_TEXT)
        return;
    const char *slash = memchr(reply->text, '/', reply->len);
    out->value += out->value < INT64_MAX;
    if (slash)
        out->slot_total =
            dibs__parse_number(slash + 1, reply->text + reply->len);
}

#define KEYS DIBS__PARAMS(PARAM_NAME, PARAM_PERMITS, PARAM_SLOTS)

const struct dibs__lock_type dibs__type_slots = {
    .id = TYPE_SLOTS,
    .layout = LAYOUT_SLOTS,
    .channel = "redisson_sc",
    .owner_suffix = "",
    .retry_policy = RETRY_HEAD_ONLY,
    .is_counting = true,
    .renew_keys = DIBS__PARAMS(PARAM_PERMITS),
    .renew_arg = PARAM_PERMIT_ID,
    .renew_script = &dibs__script_permit_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_slots_acquire, KEYS,
                              DIBS__PARAMS(PARAM_PERMIT_ID, PARAM_OWNER,
                                           PARAM_TARGET_COUNT, PARAM_LEASE,
                                           PARAM_SLOT_TOTAL,
                                           PARAM_WANT_SLOT_TOTAL, PARAM_CHANNEL,
                                           PARAM_PUBLISH)},
            [VERB_RELEASE] = {&dibs__script_slots_release, KEYS,
                              DIBS__PARAMS(PARAM_PERMIT_ID, PARAM_SLOT,
                                           PARAM_TARGET_COUNT, PARAM_HOLD_OFF,
                                           PARAM_CHANNEL, PARAM_PUBLISH)},
            [VERB_HANDOFF] = {&dibs__script_slots_handover,
                              DIBS__PARAMS(PARAM_PERMITS, PARAM_SLOTS),
                              DIBS__PARAMS(
                                  PARAM_PERMIT_ID, PARAM_NEXT_PERMIT_ID,
                                  PARAM_NEXT_OWNER, PARAM_LEASE, PARAM_SLOT)},
            [VERB_FORCE] = {&dibs__script_slots_force, KEYS,
                            DIBS__PARAMS(PARAM_PERMIT_HEX, PARAM_CHANNEL,
                                         PARAM_PUBLISH)},
            [VERB_DEREGISTER] = {&dibs__script_slots_leave,
                                 DIBS__PARAMS(PARAM_NAME),
                                 DIBS__PARAMS(PARAM_CHANNEL,
                                              PARAM_CLIENT_CHANNEL, PARAM_ALL,
                                              PARAM_PUBLISH)},
            [VERB_INFO] = {&dibs__script_slots_info, KEYS,
                           DIBS__PARAMS(PARAM_ZERO, PARAM_INFO_MAX)},
            [VERB_HOLDERS] = {&dibs__script_slots_info, KEYS,
                              DIBS__PARAMS(PARAM_ZERO, PARAM_HOLDERS_MAX)},
        },
    .register_args = DIBS__PARAMS(PARAM_CLIENT_CHANNEL, PARAM_REGISTRATION),
    .acquired_reply_types = 1u << REPLY_NIL | 1u << REPLY_TEXT,
    .busy_reply_types = 1u << REPLY_NUM,
    .decode = slots_decode,
    .retry_delay = dibs__retry_delay_default,
};
