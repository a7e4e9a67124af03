/* SPDX-License-Identifier: MIT
 *
 * waiter_count.c - dibs_lock_listeners: how many clients wait for a lock.
 *
 * Thread  app; replies also on io.
 *
 * How     Readers, and clients of Redisson and of dibs 0.1, subscribe to the
 *         lock's channel while they wait. PUBSUB NUMSUB returns their number.
 *         All channels that a lock of that name can have are counted, so that
 *         the type of the handle does not matter. A waiter of a fair lock
 *         subscribes to a channel of its own and is not counted.
 *
 *         Other waiters for a plain, fenced, write or slots lock are registered
 *         in a queue on the server (turn.c). The first two of them subscribe to
 *         the lock's channel as well; so does the client in the key
 *         LISTENER_KEY, for some seconds after its wait has ended. If the
 *         channel has no subscriber, the queue is empty, too. Without the
 *         permission to read the queue only subscribers are counted.
 *
 *         In a cluster the node that has the lock's slot is queried. It counts
 *         all subscribers of a sharded channel, but only its own subscribers of
 *         a classic one. If both are in use, a client may subscribe to both, so
 *         the larger number is used.
 */
#include "lock/api/lock.h"

#include "base/api_args.h"
#include "client/command/sync_query.h"

#include <stdio.h>
#include <string.h>

#define CHANNELS 3

struct count {
    struct dibs__sync_query query;
    const struct dibs__lock_entry *entry;
    const char *subcommand; /* of PUBSUB, or prefix of the key to read */
    int64_t found;          /* result of the last command */
};

#define QUEUE_KEY             "dibs_lock_waiters"
#define LISTENER_KEY          "dibs_lock_listener"
#define QUEUED_SUBSCRIBED_MAX 2 /* queued clients that are subscribed, too */

static void write_numsub(struct dibs__command *cmd, struct dibs__buf *out,
                         bool whole)
{
    static const struct dibs__lock_type *const types[CHANNELS] = {
        &dibs__type_mutex,
        &dibs__type_read,
        &dibs__type_slots,
    };
    const struct count *ct = DIBS_OF(cmd, struct count, query.cmd);

    (void)whole;
    dibs__buf_array(out, 2 + CHANNELS);
    dibs__buf_arg_text(out, "PUBSUB");
    dibs__buf_arg_text(out, ct->subcommand);
    for (int i = 0; i < CHANNELS; i++)
        dibs__entry_key_arg(ct->entry, types[i]->channel, out);
}

/* The reply: channel and count, for each channel. */
static dibs_err take_numsub(struct dibs__sync_query *query, dibs_err err,
                            const struct dibs__reply *reply)
{
    struct count *ct = DIBS_OF(query, struct count, query);
    int64_t n;

    for (size_t i = 1; err == DIBS_OK && i < 2 * (size_t)CHANNELS; i += 2) {
        if (dibs__reply_num(reply, i, &n) && n >= 0)
            ct->found += n;
        else
            err = DIBS_ERR_PROTOCOL;
    }
    return err;
}

/* Another thread may free the handle meanwhile. The client was entered and the
 * entry has a reference from the caller, so neither is freed. */
static dibs_err query_numsub(struct count *ct, const char *subcommand)
{
    ct->subcommand = subcommand;
    ct->found = 0;
    ct->query.cmd.write = write_numsub;
    ct->query.cmd.expects = 1u << REPLY_ARRAY;
    ct->query.cmd.slot = ct->entry->hash_slot;
    ct->query.read_reply = take_numsub;
    return dibs__sync_query_run(dibs__entry_client(ct->entry),
                                dibs__entry_route(ct->entry), &ct->query);
}

/* "ZRANGE dibs_lock_waiters:{name} 0 -1", or "GET dibs_lock_listener:{name}" */
static void write_read_key(struct dibs__command *cmd, struct dibs__buf *out,
                           bool whole)
{
    const struct count *ct = DIBS_OF(cmd, struct count, query.cmd);
    bool queue = strcmp(ct->subcommand, QUEUE_KEY) == 0;

    (void)whole;
    dibs__buf_array(out, queue ? 4 : 2);
    dibs__buf_arg_text(out, queue ? "ZRANGE" : "GET");
    dibs__entry_key_arg(ct->entry, ct->subcommand, out);
    if (queue) {
        dibs__buf_arg_text(out, "0");
        dibs__buf_arg_text(out, "-1");
    }
}

static dibs_err take_key(struct dibs__sync_query *query, dibs_err err,
                         const struct dibs__reply *reply)
{
    struct count *ct = DIBS_OF(query, struct count, query);

    if (err == DIBS_OK && reply->type == REPLY_ARRAY)
        ct->found = (int64_t)reply->len;
    else if (err == DIBS_OK)
        ct->found = reply->type == REPLY_TEXT;
    return DIBS_OK; /* an error, such as no permission: 0 */
}

static int64_t read_key(struct count *ct, const char *key)
{
    ct->subcommand = key;
    ct->found = 0;
    ct->query.cmd.write = write_read_key;
    ct->query.cmd.expects =
        1u << REPLY_ARRAY | 1u << REPLY_TEXT | 1u << REPLY_NIL;
    ct->query.cmd.quiet = true;
    ct->query.read_reply = take_key;
    (void)dibs__sync_query_run(dibs__entry_client(ct->entry),
                               dibs__entry_route(ct->entry), &ct->query);
    return ct->found;
}

/* Returns the queued clients plus the subscribers that are not queued. */
static int64_t count_waiters(struct count *ct, int64_t subscribers)
{
    if (subscribers == 0)
        return 0;
    int64_t queued = read_key(ct, QUEUE_KEY);
    int64_t registered = queued ? dibs__min(queued, QUEUED_SUBSCRIBED_MAX)
                                : read_key(ct, LISTENER_KEY);
    return queued + dibs__max(subscribers - registered, 0);
}

static dibs_err count_listeners(dibs_lock *l, size_t *out)
{
    struct count ct = {.found = 0};
    int64_t max = 0;

    if (dibs__check_not_null("out", out) != DIBS_OK)
        return dibs__lock_report_invalid_arg(l);
    dibs_err err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c;
    struct dibs__lock_entry *entry = l->entry;
    unsigned pubsub_mode = dibs__client_pubsub_mode(c);
    dibs__entry_ref(entry);
    ct.entry = entry;
    if (pubsub_mode & PUBSUB_SHARDED)
        err = query_numsub(&ct, "SHARDNUMSUB");
    max = ct.found;
    if (err == DIBS_OK && (pubsub_mode & PUBSUB_CLASSIC || !pubsub_mode))
        err = query_numsub(&ct, "NUMSUB");
    max = dibs__max(max, ct.found);
    if (err == DIBS_OK)
        max = count_waiters(&ct, max);
    dibs__entry_unref(entry);
    dibs__client_leave(c);
    if (err == DIBS_OK)
        *out = (size_t)max;
    return err;
}

dibs_err dibs_lock_listeners(dibs_lock *l, size_t *out)
{
    return DIBS__API_CALL(count_listeners(l, out));
}
