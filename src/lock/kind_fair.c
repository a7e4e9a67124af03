/* SPDX-License-Identifier: MIT
 *
 * kind_fair.c - the fair lock: first come, first served.
 *
 * The hash is that of the plain lock. Beside it the server keeps a queue, a
 * list of owners in order of arrival, and a set of scores, the time until which
 * each waiter counts without a sign of life. A waiter is called on a channel of
 * its own, the lock's channel with its owner behind it. These keys, channels
 * and the unit of the scores are Redisson's; how scores are set, and how a dead
 * or stopped waiter is found out, is ours (see the scripts), and so is the hash
 * of those who did not hear when they were called, or did not come. That one
 * ends by itself.
 *
 * Thread  any.
 */
#include "client/script.h"
#include "lock/kind.h"
#include "lock/line.h"
#include "lock/locks.h"

#include <string.h>

#define QUEUE  "redisson_lock_queue"
#define SCORES "redisson_lock_timeout"
#define SILENT "dibs_lock_silent"

/* The name as the other keys have it: behind the channel's prefix. */
static void key(struct dibs__buf *out, const char *prefix,
                const struct dibs__line *line)
{
    size_t skip = strlen(dibs__kind_fair.channel);

    dibs__buf_arg_parts(out, prefix, strlen(prefix), line->channel + skip,
                        line->channel_len - skip);
}

static void head(struct dibs__buf *out, const struct dibs__script *script,
                 bool whole, const struct dibs__line *line, size_t args)
{
    dibs__script_head(out, script, whole, 4, args);
    dibs__buf_arg(out, line->name, line->name_len);
    key(out, QUEUE, line);
    key(out, SCORES, line);
    key(out, SILENT, line);
}

/* A waiter's channel, less its owner. */
static void channel(struct dibs__buf *out, const struct dibs__line *line)
{
    dibs__buf_arg_parts(out, line->channel, line->channel_len, ":", 1);
}

static void fair_write(enum dibs__verb verb, const struct dibs__ask *ask,
                       struct dibs__buf *out, bool whole)
{
    const struct dibs__line *line = ask->line;
    int64_t wait_ms = line->locks->fair_wait_ms;
    int64_t call_ms = line->locks->fair_call_ms;
    size_t more = dibs__publish_count(line);

    switch (verb) {
    case VERB_ACQUIRE:
        head(out, &dibs__script_fair_acquire, whole, line, 7 + more);
        dibs__owner_arg(out, ask);
        dibs__buf_arg_num(out, ask->target);
        dibs__buf_arg_num(out, ask->lease_ms);
        dibs__buf_arg_num(out, wait_ms);
        channel(out, line);
        dibs__buf_arg_num(out, ask->stay);
        dibs__buf_arg_num(out, call_ms);
        dibs__publish_args(out, line);
        break;
    case VERB_RELEASE:
        head(out, &dibs__script_fair_release, whole, line, 6 + more);
        dibs__owner_arg(out, ask);
        dibs__buf_arg_num(out, ask->target);
        dibs__buf_arg_num(out, ask->keep_ms);
        dibs__buf_arg_num(out, wait_ms);
        channel(out, line);
        dibs__buf_arg_num(out, call_ms);
        dibs__publish_args(out, line);
        break;
    case VERB_HANDOVER: /* never: the queue says who is next */
    case VERB_LEAVE:
    case VERB_FORCE:
        head(out, &dibs__script_fair_leave, whole, line, 5 + more);
        if (ask->text || ask->wire)
            dibs__owner_arg(out, ask);
        else /* nobody: the queue is to be looked after */
            dibs__buf_arg_text(out, "");
        channel(out, line);
        dibs__buf_arg_num(out, verb == VERB_FORCE);
        dibs__buf_arg_num(out, wait_ms);
        dibs__buf_arg_num(out, call_ms);
        dibs__publish_args(out, line);
        break;
    case VERB_INFO:
        head(out, &dibs__script_fair_info, whole, line, 2);
        dibs__buf_arg_num(out, ask->first);
        dibs__buf_arg_num(out, ask->count);
        break;
    case VERB_HOLDERS:
        dibs__write_holders(line, out, whole);
        break;
    }
}

const struct dibs__kind dibs__kind_fair = {
    .channel = "redisson_lock__channel",
    .suffix = "",
    .bit = 2,
    .sibling = &dibs__kind_basic,
    .queued = true,
    .leaves = true,
    .renewal = RENEW_FIELD,
    .write = fair_write,
    .write_renew = dibs__write_renew,
};
