/* SPDX-License-Identifier: MIT
 *
 * kind_fair.c - the fair lock: first come, first served.
 *
 * The hash is that of the plain lock. Beside it the server keeps a queue, a
 * list of owners in order of arrival, and a set of scores: the time until which
 * a waiter counts without asking again. A waiter is called on a channel of its
 * own, the lock's channel with the owner behind it. These keys, channels and
 * the unit of the scores are Redisson's. How scores are set, and how a dead or
 * stopped waiter is found, is ours (see the scripts). So is the hash of those
 * that did not hear when they were called, or did not come; it has a TTL.
 *
 * Thread  any.
 */
#include "lock/kind.h"
#include "lock/locks.h"

#include <string.h>

#define QUEUE  "redisson_lock_queue"
#define SCORES "redisson_lock_timeout"
#define SILENT "dibs_lock_silent"

static void fair_key(struct dibs__buf *out, const char *prefix,
                     const struct dibs__line *line)
{
    size_t len;
    const char *tag = dibs__line_tag(line, &len);

    dibs__buf_arg_parts(out, prefix, strlen(prefix), tag, len);
}

static void fair_head(struct dibs__buf *out, const struct dibs__script *script,
                      bool whole, const struct dibs__line *line, size_t args)
{
    dibs__script_head(out, script, whole, 4, args);
    dibs__name_arg(out, line);
    fair_key(out, QUEUE, line);
    fair_key(out, SCORES, line);
    fair_key(out, SILENT, line);
}

/* A waiter's channel, less its owner. */
static void fair_channel(struct dibs__buf *out, const struct dibs__line *line)
{
    dibs__buf_arg_parts(out, line->channel, line->channel_len, ":", 1);
}

static void fair_acquire(const struct dibs__ask *ask, struct dibs__buf *out,
                         bool whole)
{
    const struct dibs__line *line = ask->line;

    fair_head(out, &dibs__script_fair_acquire, whole, line,
              7 + dibs__publish_count(line));
    dibs__owner_arg(out, ask);
    dibs__buf_arg_num(out, ask->target);
    dibs__buf_arg_num(out, ask->lease_ms);
    dibs__buf_arg_num(out, line->locks->fair_wait_ms);
    fair_channel(out, line);
    dibs__buf_arg_num(out, ask->stay);
    dibs__buf_arg_num(out, line->locks->fair_call_ms);
    dibs__publish_args(out, line);
}

static void fair_release(const struct dibs__ask *ask, struct dibs__buf *out,
                         bool whole)
{
    const struct dibs__line *line = ask->line;

    fair_head(out, &dibs__script_fair_release, whole, line,
              6 + dibs__publish_count(line));
    dibs__owner_arg(out, ask);
    dibs__buf_arg_num(out, ask->target);
    dibs__buf_arg_num(out, ask->keep_ms);
    dibs__buf_arg_num(out, line->locks->fair_wait_ms);
    fair_channel(out, line);
    dibs__buf_arg_num(out, line->locks->fair_call_ms);
    dibs__publish_args(out, line);
}

/* force: off the lock, too, and not only out of the queue. */
static void fair_off(const struct dibs__ask *ask, struct dibs__buf *out,
                     bool whole, bool force)
{
    const struct dibs__line *line = ask->line;

    fair_head(out, &dibs__script_fair_leave, whole, line,
              5 + dibs__publish_count(line));
    if (ask->text || ask->wire)
        dibs__owner_arg(out, ask);
    else /* nobody: the script only looks after the queue */
        dibs__buf_arg_text(out, "");
    fair_channel(out, line);
    dibs__buf_arg_num(out, force);
    dibs__buf_arg_num(out, line->locks->fair_wait_ms);
    dibs__buf_arg_num(out, line->locks->fair_call_ms);
    dibs__publish_args(out, line);
}

static void fair_leave(const struct dibs__ask *ask, struct dibs__buf *out,
                       bool whole)
{
    fair_off(ask, out, whole, false);
}

static void fair_force(const struct dibs__ask *ask, struct dibs__buf *out,
                       bool whole)
{
    fair_off(ask, out, whole, true);
}

static void fair_info(const struct dibs__ask *ask, struct dibs__buf *out,
                      bool whole)
{
    fair_head(out, &dibs__script_fair_info, whole, ask->line, 2);
    dibs__buf_arg_num(out, ask->first);
    dibs__buf_arg_num(out, ask->count);
}

/* The server says when to ask again. No waiter keeps its place in the queue for
 * longer than fair_wait_ms without asking. */
static int64_t fair_pause(const struct dibs__line *line, int64_t busy_ms)
{
    return dibs__max(dibs__min(busy_ms, line->locks->fair_wait_ms), 1);
}

const struct dibs__kind dibs__kind_fair = {
    .id = KIND_FAIR,
    .family = FAMILY_PLAIN,
    .channel = "redisson_lock__channel",
    .suffix = "",
    .asks = ASKS_EACH,
    .queued = true,
    .renewal = RENEW_FIELD,
    DIBS__PLAIN_ANSWERS,
    .write =
        {
            [VERB_ACQUIRE] = fair_acquire,
            [VERB_RELEASE] = fair_release,
            [VERB_FORCE] = fair_force,
            [VERB_LEAVE] = fair_leave,
            [VERB_INFO] = fair_info,
            [VERB_HOLDERS] = dibs__write_holders,
        },
    .write_renew = dibs__write_renew,
    .pause = fair_pause,
};
