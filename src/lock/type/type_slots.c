/* SPDX-License-Identifier: MIT
 *
 * type_slots.c - the lock that so many can have at once.
 *
 * On the server a number, of the permits that are free, and a sorted set of
 * those that are out, by the time at which they end. A hold is one permit; its
 * id is made of the owner's number. How often the owner holds it is known here
 * only. Both keys and the channel are those of Redisson's semaphore with
 * permits that expire. The hash that says which slot a permit has, and whose it
 * is, is ours.
 *
 * A hold's value is the number of its slot plus 1; 0: not known.
 */
#include "lock/type/lock_type.h"

#include <string.h>

/* "slot" or "slot/total". */
static void slots_read(enum dibs__lock_command verb,
                       const struct dibs__reply *reply,
                       struct dibs__acquired *out)
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

#define KEYS "nzS"

const struct dibs__lock_type dibs__type_slots = {
    .id = TYPE_SLOTS,
    .layout = LAYOUT_SLOTS,
    .channel = "redisson_sc",
    .owner_suffix = "",
    .retry_policy = RETRY_HEAD_ONLY,
    .is_counting = true,
    .renew_keys = "z",
    .renew_arg = 'p',
    .renew_script = &dibs__script_permit_renew,
    .command =
        {
            [VERB_ACQUIRE] = {&dibs__script_slots_acquire, KEYS, "potlTQc*"},
            [VERB_RELEASE] = {&dibs__script_slots_release, KEYS, "pvtkc*"},
            [VERB_HANDOVER] = {&dibs__script_slots_handover, "zS", "pPNlv"},
            [VERB_FORCE] = {&dibs__script_slots_force, KEYS, "xc*"},
            [VERB_DEREGISTER] = {&dibs__script_slots_leave, "n", "cBa*"},
            [VERB_INFO] = {&dibs__script_slots_info, KEYS, "0M"},
            [VERB_HOLDERS] = {&dibs__script_slots_info, KEYS, "0m"},
        },
    .register_args = "BH",
    .taken_types = 1u << REPLY_NIL | 1u << REPLY_TEXT,
    .other_types = 1u << REPLY_NUM,
    .decode = slots_read,
    .retry_delay = dibs__retry_delay_default,
};
