/* SPDX-License-Identifier: MIT
 *
 * waiter_count.c - how many clients wait for a lock without a queue.
 *
 * Thread  app; answers also on io.
 *
 * How     Readers, clients of Redisson and of dibs 0.1 listen to the lock's
 *         channel while they wait. The server knows how many do (PUBSUB
 *         NUMSUB). All channels that the name can have are counted, so that
 *         the kind of the handle does not matter. A waiter of a fair lock
 *         listens to a channel of its own and is not counted.
 *
 *         Others that wait for a plain, fenced or write lock, or for slots,
 *         are in a queue (turn.c). The first two of these listen to the lock's
 *         channel as well, and so does the listener, for some seconds even if
 *         it does not wait any more. Nobody listens: then the queue is empty,
 *         too. Without the right to look at the queue, those who listen are
 *         counted.
 *
 *         In a cluster the node that has the lock's slot is asked. It counts
 *         all listeners of a sharded channel, but only its own listeners of a
 *         plain one. Where both are in use, a client may listen to both, so the
 *         larger number counts.
 */
#include "lock/api/lock.h"

#include "base/api_args.h"
#include "client/command/sync_query.h"

#include <stdio.h>
#include <string.h>

#define CHANNELS 3

struct count {
    struct dibs__sync_query ask;
    const struct dibs__lock_entry *line;
    const char *subcommand;
    int64_t found; /* by this command */
};

#define QUEUE     "dibs_lock_waiters"
#define LISTENER  "dibs_lock_listener"
#define EARS_MOST 2 /* of the queue, who listen to the lock's channel, too */

static void count_write(struct dibs__command *cmd, struct dibs__buf *out,
                        bool whole)
{
    static const struct dibs__lock_type *const kinds[CHANNELS] = {
        &dibs__type_mutex,
        &dibs__type_read,
        &dibs__type_slots,
    };
    const struct count *ct = DIBS_OF(cmd, struct count, ask.call);

    (void)whole;
    dibs__buf_array(out, 2 + CHANNELS);
    dibs__buf_arg_text(out, "PUBSUB");
    dibs__buf_arg_text(out, ct->subcommand);
    for (int i = 0; i < CHANNELS; i++)
        dibs__entry_key_arg(ct->line, kinds[i]->channel, out);
}

/* Channel and count, for each channel. */
static dibs_err count_take(struct dibs__sync_query *ask, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct count *ct = DIBS_OF(ask, struct count, ask);
    int64_t n;

    for (size_t i = 1; err == DIBS_OK && i < 2 * (size_t)CHANNELS; i += 2) {
        if (dibs__reply_num(reply, i, &n) && n >= 0)
            ct->found += n;
        else
            err = DIBS_ERR_PROTOCOL;
    }
    return err;
}

/* The handle may be freed by another thread meanwhile, but not its client; the
 * line has a reference of ours. */
static dibs_err count_ask(struct count *ct, const char *subcommand)
{
    ct->subcommand = subcommand;
    ct->found = 0;
    ct->ask.call.write = count_write;
    ct->ask.call.expects = 1u << REPLY_ARRAY;
    ct->ask.call.slot = ct->line->hash_slot;
    ct->ask.take = count_take;
    return dibs__sync_query_run(dibs__entry_client(ct->line),
                                dibs__entry_route(ct->line), &ct->ask);
}

/* "ZRANGE dibs_lock_waiters:{name} 0 -1", or "GET dibs_lock_listener:{name}" */
static void queue_write(struct dibs__command *cmd, struct dibs__buf *out,
                        bool whole)
{
    const struct count *ct = DIBS_OF(cmd, struct count, ask.call);
    bool queue = strcmp(ct->subcommand, QUEUE) == 0;

    (void)whole;
    dibs__buf_array(out, queue ? 4 : 2);
    dibs__buf_arg_text(out, queue ? "ZRANGE" : "GET");
    dibs__entry_key_arg(ct->line, ct->subcommand, out);
    if (queue) {
        dibs__buf_arg_text(out, "0");
        dibs__buf_arg_text(out, "-1");
    }
}

static dibs_err queue_take(struct dibs__sync_query *ask, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct count *ct = DIBS_OF(ask, struct count, ask);

    if (err == DIBS_OK && reply->type == REPLY_ARRAY)
        ct->found = (int64_t)reply->len;
    else if (err == DIBS_OK)
        ct->found = reply->type == REPLY_TEXT;
    return DIBS_OK; /* no rights, or something else: 0 */
}

static int64_t queue_ask(struct count *ct, const char *key)
{
    ct->subcommand = key;
    ct->found = 0;
    ct->ask.call.write = queue_write;
    ct->ask.call.expects =
        1u << REPLY_ARRAY | 1u << REPLY_TEXT | 1u << REPLY_NIL;
    ct->ask.call.quiet = true;
    ct->ask.take = queue_take;
    (void)dibs__sync_query_run(dibs__entry_client(ct->line),
                               dibs__entry_route(ct->line), &ct->ask);
    return ct->found;
}

/* Those in the queue, and those who listen but are not of the queue. */
static int64_t count_waiting(struct count *ct, int64_t listening)
{
    if (listening == 0)
        return 0;
    int64_t queued = queue_ask(ct, QUEUE);
    int64_t ears =
        queued ? dibs__min(queued, EARS_MOST) : queue_ask(ct, LISTENER);
    return queued + dibs__max(listening - ears, 0);
}

static dibs_err count_listeners(dibs_lock *l, size_t *out)
{
    struct count ct = {.found = 0};
    int64_t most = 0;

    if (dibs__check_not_null("out", out) != DIBS_OK)
        return dibs__lock_report_invalid_arg(l);
    dibs_err err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c;
    struct dibs__lock_entry *entry = l->entry;
    unsigned how = dibs__client_pubsub_mode(c);
    dibs__entry_ref(entry);
    ct.line = entry;
    if (how & PUBSUB_SHARDED)
        err = count_ask(&ct, "SHARDNUMSUB");
    most = ct.found;
    if (err == DIBS_OK && (how & PUBSUB_CLASSIC || !how))
        err = count_ask(&ct, "NUMSUB");
    most = dibs__max(most, ct.found);
    if (err == DIBS_OK)
        most = count_waiting(&ct, most);
    dibs__entry_unref(entry);
    dibs__client_leave(c);
    if (err == DIBS_OK)
        *out = (size_t)most;
    return err;
}

dibs_err dibs_lock_listeners(dibs_lock *l, size_t *out)
{
    return DIBS__API_CALL(count_listeners(l, out));
}
