/* SPDX-License-Identifier: MIT
 *
 * care.c - the part of a wait queue that only a queue with waiters needs.
 *
 * Thread  io; dibs__care_new any.
 * Locks   queue.mu for dibs__care_new; none to subscribe.
 *
 * How     Many locks are held and few are waited for. So a queue gets its care
 *         when a call has to wait, and loses it when no call waits.
 *         wait_queue.c decides both; here are the subscriptions.
 */
#include "lock/wait/care.h"

#include "base/mem.h"

/* io only; allocated with the first subscription. */
struct dibs__wait_subscriptions {
    struct dibs__care *care;
    struct dibs__subscription line; /* the lock's channel */
    struct dibs__subscription own;  /* the wake-up channel of this client */
};

static void line_said(struct dibs__subscription *sub, char what)
{
    struct dibs__care *care =
        DIBS_OF(sub, struct dibs__wait_subscriptions, line)->care;

    care->said(care, WAIT_LOCK_CHANNEL, what);
}

static void own_said(struct dibs__subscription *sub, char what)
{
    struct dibs__care *care =
        DIBS_OF(sub, struct dibs__wait_subscriptions, own)->care;

    care->said(care, WAIT_CLIENT_CHANNEL, what);
}

static struct dibs__wait_subscriptions *ears_of(struct dibs__care *care)
{
    struct dibs__wait_subscriptions *ears = care->ears;

    if (!ears && (ears = dibs__calloc(1, sizeof *ears))) {
        ears->care = care;
        ears->line.on_message = line_said;
        ears->own.on_message = own_said;
        ears->own.optional = true;
        care->ears = ears;
    }
    return ears;
}

static void listen_own(const struct dibs__wait_queue *queue,
                       struct dibs__subscription *own)
{
    struct dibs__wait_queue_info facts = queue->ops->info(queue);
    struct dibs__buf name = {0};

    queue->ops->client_channel(queue, &name);
    if (dibs__buf_ok(&name))
        dibs__client_subscribe(facts.client, facts.slot, own, name.data,
                               name.len);
    dibs__buf_clear(&name);
}

/* The wake-up channel is subscribed to last: when it is ready, so is the lock's
 * channel. */
void dibs__care_listen(struct dibs__care *care, unsigned needs)
{
    struct dibs__wait_subscriptions *ears = needs ? ears_of(care) : care->ears;

    if (!ears)
        return;
    if (!(needs & WAIT_LOCK_CHANNEL))
        dibs__unsubscribe(&ears->line);
    else if (!ears->line.channel)
        care->w->ops->subscribe(care->w, &ears->line);
    if (!(needs & WAIT_CLIENT_CHANNEL))
        dibs__unsubscribe(&ears->own);
    else if (!ears->own.channel)
        listen_own(care->w, &ears->own);
    if (!needs) {
        dibs__free(ears);
        care->ears = NULL;
    }
}

bool dibs__care_wants_own(const struct dibs__care *care)
{
    return care->ears && care->ears->own.channel;
}

bool dibs__care_hears_own(const struct dibs__care *care)
{
    return care->ears && dibs__subscription_is_ready(&care->ears->own);
}

void dibs__care_deadline(struct dibs__care *care, int64_t deadline)
{
    care->first_deadline = dibs__min(care->first_deadline, deadline);
}

/* first_deadline is 0, so the first service scans all waiters. */
struct dibs__care *dibs__care_new(struct dibs__wait_queue *queue)
{
    struct dibs__wait_queue_info facts = queue->ops->info(queue);
    struct dibs__care *care = dibs__calloc(1, sizeof *care);

    if (!care)
        return NULL;
    care->w = queue;
    care->turn.registers = facts.registers;
    care->turn.told = facts.queued_message;
    care->looks_at = INT64_MAX;
    return care;
}
