/* SPDX-License-Identifier: MIT
 *
 * listeners.c - how many clients wait for a plain or a read-write lock.
 *
 * Thread  app; answers also on io.
 *
 * How     Waiters of such a lock are in no queue on the server: they listen to
 *         the lock's channel. The server knows how many do (PUBSUB NUMSUB).
 *         Both channels that the name can have are counted, so that the kind of
 *         the handle does not matter. A waiter of a fair lock listens to a
 *         channel of its own and is not counted.
 *
 *         In a cluster the node that has the lock's slot is asked. It counts
 *         all listeners of a sharded channel, but only its own listeners of a
 *         plain one. Where both are in use, a client may listen to both, so the
 *         larger number counts.
 */
#include "lock/lock.h"

#include "base/args.h"

#include <stdio.h>
#include <string.h>

#define CHANNELS 2

struct count {
    struct dibs__call call;
    const struct dibs__line *line;
    const char *subcommand;
    sem_t done;
    dibs_err err;
    char why[DIBS__REASON_MAX]; /* in words */
    int64_t found;              /* by this command */
};

static void count_write(struct dibs__call *call, struct dibs__buf *out,
                        bool whole)
{
    static const struct dibs__kind *const kinds[CHANNELS] = {
        &dibs__kind_basic,
        &dibs__kind_read,
    };
    const struct count *ct = DIBS_OF(call, struct count, call);
    const struct dibs__line *line = ct->line;
    size_t skip = strlen(line->kind->channel);

    (void)whole;
    dibs__buf_array(out, 2 + CHANNELS);
    dibs__buf_arg_text(out, "PUBSUB");
    dibs__buf_arg_text(out, ct->subcommand);
    for (int i = 0; i < CHANNELS; i++)
        dibs__buf_arg_parts(out, kinds[i]->channel, strlen(kinds[i]->channel),
                            line->channel + skip, line->channel_len - skip);
}

/* Channel and count, for each channel. */
static void count_answered(struct dibs__call *call, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct count *ct = DIBS_OF(call, struct count, call);
    int64_t n;

    for (size_t i = 1; err == DIBS_OK && i < 2 * (size_t)CHANNELS; i += 2) {
        if (dibs__reply_num(reply, i, &n) && n >= 0)
            ct->found += n;
        else
            err = DIBS_ERR_PROTOCOL;
    }
    ct->err = err;
    sem_post(&ct->done);
}

static void count_explained(struct dibs__call *call, dibs_err err,
                            const char *why)
{
    struct count *ct = DIBS_OF(call, struct count, call);

    (void)err;
    snprintf(ct->why, sizeof ct->why, "%s", why);
}

/* The handle may be freed by another thread meanwhile, but not its client; the
 * line has a reference of ours. */
static dibs_err count_ask(struct count *ct, const char *subcommand)
{
    struct dibs__server *s = dibs__line_server(ct->line);
    int64_t timeout = s->to.command_timeout_ms;

    ct->subcommand = subcommand;
    ct->found = 0;
    ct->why[0] = '\0';
    ct->call = (struct dibs__call){
        .write = count_write,
        .done = count_answered,
        .explain = count_explained,
        .attempt_ms = timeout,
        .deadline = dibs__now_ms() + 2 * timeout,
        .expects = 1u << REPLY_ARRAY,
        .slot = ct->line->slot,
    };
    dibs__call_direct(s, &ct->call);
    while (sem_wait(&ct->done) != 0)
        ; /* a signal */
    if (ct->err != DIBS_OK && ct->why[0])
        dibs__reason_set(ct->err, "%s", ct->why);
    return ct->err;
}

static dibs_err count_listeners(dibs_lock *l, size_t *out)
{
    struct count ct = {.found = 0};
    int64_t most = 0;

    if (dibs__check_given("out", out) != DIBS_OK)
        return dibs__lock_refuse(l);
    dibs_err err = dibs__lock_enter(l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c;
    struct dibs__line *line = l->line;
    unsigned how = dibs__client_flavour(c);
    dibs__line_ref(line);
    ct.line = line;
    sem_init(&ct.done, 0, 0);
    if (how & FLAVOUR_SHARDED)
        err = count_ask(&ct, "SHARDNUMSUB");
    most = ct.found;
    if (err == DIBS_OK && (how & FLAVOUR_CLASSIC || !how))
        err = count_ask(&ct, "NUMSUB");
    most = dibs__max(most, ct.found);
    sem_destroy(&ct.done);
    dibs__line_unref(line);
    dibs__client_leave(c);
    if (err == DIBS_OK)
        *out = (size_t)most;
    return err;
}

dibs_err dibs_lock_listeners(dibs_lock *l, size_t *out)
{
    return DIBS__TOLD(count_listeners(l, out));
}
