/* SPDX-License-Identifier: MIT
 *
 * care.h - the part of a wait queue that only a queue with waiters needs:
 * timer, subscriptions, registration on the server. wait_queue.c allocates and
 * frees it.
 */
#ifndef DIBS_LOCK_WAIT_CARE_H
#define DIBS_LOCK_WAIT_CARE_H

#include "lock/wait/wait_queue.h"

struct dibs__wait_subscriptions;

struct dibs__care {
    struct dibs__wait_queue *w; /* const after init */
    bool awake;                 /* mu: io services the queue */
    bool posted;                /* mu: post is in the inbox of io */
    bool all_ask;               /* mu: the next service retries all waiters */
    bool canceled;              /* mu: some waiter is canceled */
    struct dibs__turn turn;     /* mu: registration on the server */
    int64_t next_try;           /* mu: retry of the head without a wake-up */
    int64_t below;              /* mu: a waiter for fewer permits may retry; 0:
                                   none */
    int64_t again_at;           /* mu: retry of waiters with no_reply */
    int64_t looks_at;           /* mu: time of the next service */
    int64_t first_deadline;     /* mu: lower bound of all deadlines */
    struct dibs__wait_subscriptions *ears; /* io only; NULL: no subscription */
    struct dibs__timer timer;              /* io only */
    struct dibs__task post;
    /* A message on this channel; what NUL: subscribed, or refused. */
    void (*said)(struct dibs__care *care, enum dibs__wait_channel on,
                 char what);
};

/* Returns the care for a queue that has none, or NULL if out of memory. The
 * caller must set post.run, timer.fire and said. Any thread; requires
 * queue->mu. */
struct dibs__care *dibs__care_new(struct dibs__wait_queue *queue);
/* Subscribes to exactly these channels, bits of enum dibs__wait_channel. Out of
 * memory: to none; the next call tries again. Thread: io, no mutex held. */
void dibs__care_listen(struct dibs__care *care, unsigned needs);
/* Returns whether the subscription to the wake-up channel of this client was
 * sent; whether it is ready. Thread: io. */
bool dibs__care_wants_own(const struct dibs__care *care);
bool dibs__care_hears_own(const struct dibs__care *care);
/* Lowers first_deadline to this deadline. Requires queue->mu. */
void dibs__care_deadline(struct dibs__care *care, int64_t deadline);

/* ---- bypass.c ---------------------------------------------------------- */

/* Returns whether a waiter that has just joined may retry before the head,
 * which needs more permits. */
bool dibs__bypass_may_retry(struct dibs__wait_queue *queue,
                            const struct dibs__waiter *waiter)
    REQUIRES(*queue->mu);
/* After the reply "busy" to this waiter: sets care.below, or the time of the
 * next retry. */
void dibs__bypass_on_refusal(struct dibs__wait_queue *queue,
                             struct dibs__waiter *waiter) REQUIRES(*queue->mu);
/* After a waiter for `below` permits was refused: prepares a retry of the first
 * waiter that needs fewer, and returns it. Returns NULL if there is none, or if
 * its acquire is in flight: then its reply selects the next one. */
struct dibs__waiter *dibs__bypass_next(struct dibs__wait_queue *queue,
                                       int64_t below) REQUIRES(*queue->mu);

#endif
