/* SPDX-License-Identifier: MIT
 *
 * kind_basic.c - the plain re-entrant lock.
 *
 * On the server a hash under the lock's own name, with one field: the owner,
 * and how often it holds. The hash always has a TTL. A message on the channel
 * tells that it is gone. The names and the hash are Redisson's; the scripts are
 * ours.
 *
 * Thread  any.
 */
#include "lock/kind.h"
#include "lock/line.h"

static void basic_head(struct dibs__buf *out, const struct dibs__script *script,
                       bool whole, const struct dibs__ask *ask, size_t args)
{
    dibs__script_head(out, script, whole, 1, args);
    dibs__name_arg(out, ask->line);
    dibs__owner_arg(out, ask);
}

/* The channel is an argument and not a key, so that a user who may use the
 * lock's key may also release. Only the publish commands follow it. */
static void basic_tail(struct dibs__buf *out, const struct dibs__line *line)
{
    dibs__buf_arg(out, line->channel, line->channel_len);
    dibs__publish_args(out, line);
}

static void basic_acquire(const struct dibs__ask *ask, struct dibs__buf *out,
                          bool whole)
{
    basic_head(out, &dibs__script_basic_acquire, whole, ask, 3);
    dibs__buf_arg_num(out, ask->target);
    dibs__buf_arg_num(out, ask->lease_ms);
}

static void basic_release(const struct dibs__ask *ask, struct dibs__buf *out,
                          bool whole)
{
    basic_head(out, &dibs__script_basic_release, whole, ask,
               4 + dibs__publish_count(ask->line));
    dibs__buf_arg_num(out, ask->target);
    dibs__buf_arg_num(out, ask->keep_ms);
    basic_tail(out, ask->line);
}

static void basic_handover(const struct dibs__ask *ask, struct dibs__buf *out,
                           bool whole)
{
    struct dibs__ask next_owner = {.line = ask->line, .wire = ask->next_owner};

    basic_head(out, &dibs__script_basic_handover, whole, ask, 3);
    dibs__owner_arg(out, &next_owner);
    dibs__buf_arg_num(out, ask->lease_ms);
}

static void basic_force(const struct dibs__ask *ask, struct dibs__buf *out,
                        bool whole)
{
    basic_head(out, &dibs__script_basic_force, whole, ask,
               2 + dibs__publish_count(ask->line));
    basic_tail(out, ask->line);
}

const struct dibs__kind dibs__kind_basic = {
    .id = KIND_BASIC,
    .family = FAMILY_PLAIN,
    .channel = "redisson_lock__channel",
    .suffix = "",
    .asks = ASKS_HEAD,
    .renewal = RENEW_FIELD,
    .batch = 'p',
    DIBS__PLAIN_ANSWERS,
    .write =
        {
            [VERB_ACQUIRE] = basic_acquire,
            [VERB_RELEASE] = basic_release,
            [VERB_HANDOVER] = basic_handover,
            [VERB_FORCE] = basic_force,
            [VERB_INFO] = dibs__write_info,
            [VERB_HOLDERS] = dibs__write_holders,
        },
    .write_renew = dibs__write_renew,
    .pause = dibs__pause_usual,
};
