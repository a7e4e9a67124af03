/* SPDX-License-Identifier: MIT
 *
 * wait_queue.h - queue of the calls of one client that wait for a lock.
 *
 * Words
 *   wait queue   the waiters of one lock entry, in order of arrival. The server
 *                knows at most the client, not its waiters (except with
 *                RETRY_EACH).
 *   waiter       one call that waits; embedded in the operation of that call.
 *   retry        sends the acquire command of a waiter again.
 *   park         a waiter that got the reply "busy" waits for a notification or
 *                a timer before its next retry.
 *   block on     a waiter waits for another call of its owner in this client,
 *                not for the server.
 *   activate     allocates what only a queue with waiters needs: timer,
 *                subscriptions, registration on the server (struct dibs__care).
 *   service      one pass of io over a queue: end expired waiters, retry, set
 *                subscriptions and the timer.
 *   register     the server keeps a queue of the clients that wait, and a
 *                release wakes the first one (turn.h).
 *
 * The queue does not depend on the lock type: dibs__wait_queue_ops has the
 * callbacks that send the commands. The user embeds the queue in a struct of
 * its own, with a reference count and the mutex that guards the queue.
 */
#ifndef DIBS_LOCK_WAIT_WAIT_QUEUE_H
#define DIBS_LOCK_WAIT_WAIT_QUEUE_H

#include "client/client.h"
#include "lock/wait/turn.h"

struct dibs__wait_queue;
struct dibs__place;
struct dibs__care;

/* Which waiters of a queue retry. */
enum dibs__retry_policy {
    RETRY_HEAD_ONLY,    /* the head, for all; the queue has the subscription */
    RETRY_EACH,         /* each waiter, with a channel and timer of its own */
    RETRY_HEAD_THEN_ALL /* the head; once it has the lock, all others at once */
};

/* wait_queue.c has the table of states. */
enum dibs__waiter_state {
    WAITER_IDLE,
    WAITER_BLOCKED,
    WAITER_PARKED,
    WAITER_IN_FLIGHT,
    WAITER_HANDOFF_PENDING,
    WAITER_ROLLING_BACK
};

/* A call that waits. Embedded in the user's struct for that call. */
struct dibs__waiter {
    struct dibs__list link; /* mu: in queue.waiters or, BLOCKED, in a list of
                               the user's */
    union {
        struct dibs__place *place; /* RETRY_EACH: channel and timer of this
                                      waiter; io only once started */
        struct dibs__waiter *next; /* other policies: next waiter to be retried
                                      in this service; io only */
    };
    int64_t deadline;   /* const once it waits; INT64_MAX: none */
    int64_t refused_at; /* mu: time of its first "busy"; 0: none yet */
    enum dibs__waiter_state state; /* mu */
    bool canceled;                 /* mu */
    bool was_busy; /* mu: the lock had another holder when the call began, or at
                      a retry */
    bool no_reply; /* mu: its last acquire got no reply; not RETRY_EACH */
    unsigned char poll_count; /* 0: subscribes. Otherwise it retries at
                            intervals without a subscription; 1 + the number of
                            polls, up to a limit */
};

/* Result of dibs__wait_queue_collect_expired: waiters to end, and waiters that
 * were blocked on a call that has ended. */
struct dibs__expired_waiters {
    struct dibs__list expired, resume; /* of waiter.link */
};

/* Facts about a queue that its user knows already, so that queues without
 * waiters need not store them. All but closing are constant. */
struct dibs__wait_queue_info {
    dibs_client *client;
    int slot;
    bool closing;   /* the client closes: all waiters must end */
    bool registers; /* of struct dibs__turn, as the next one */
    char queued_message;
};

/* Callbacks of a queue's user. "mu": called with queue.mu held; the others with
 * no mutex held. All on io. */
struct dibs__wait_queue_ops {
    struct dibs__wait_queue_info (*info)(const struct dibs__wait_queue *queue);
    /* Subscribes sub to the lock's channel. Out of memory: sub stays
     * unsubscribed, and the queue retries by its timer only. */
    void (*subscribe)(const struct dibs__wait_queue *queue,
                      struct dibs__subscription *sub);
    /* mu: prepares a retry of this waiter. True: its state is IN_FLIGHT (or
     * IDLE, if it need not wait any more), and retry follows. */
    bool (*may_retry)(struct dibs__wait_queue *queue,
                      struct dibs__waiter *waiter);
    /* Sends the acquire. Its reply ends in dibs__wait_queue_park, or the waiter
     * leaves the queue. */
    void (*retry)(struct dibs__waiter *waiter);
    /* Ends the call of a waiter that has left the queue. err: CLOSED, CANCELED
     * or TIMEOUT. */
    void (*end)(struct dibs__waiter *waiter, dibs_err err);
    void (*ref)(struct dibs__wait_queue *queue); /* mu */
    void (*unref)(struct dibs__wait_queue *queue);
    /* The rest may be NULL. */
    /* mu: number of permits that the waiter needs; 0: as many as all others. */
    int64_t (*permits_wanted)(const struct dibs__waiter *waiter);
    /* mu: until when an owner of this client holds the lock, by our clock; a
     * retry before is mostly in vain. 0: none holds it. */
    int64_t (*held_until)(struct dibs__wait_queue *queue, int64_t now);
    /* mu: an expired waiter is HANDOFF_PENDING. True: the hand-off was
     * declined, and the waiter may end. False: it must await the hand-off. */
    bool (*decline_handoff)(struct dibs__wait_queue *queue,
                            struct dibs__waiter *waiter,
                            struct dibs__list *resume);
    /* mu: calls dibs__wait_queue_expire_one for all BLOCKED waiters. */
    void (*expire_blocked)(struct dibs__wait_queue *queue, int64_t now,
                           struct dibs__expired_waiters *out);
    /* Resumes waiters that were unblocked. */
    void (*resume)(struct dibs__list *waiters);
    /* RETRY_EACH: appends the name of the waiter's channel. */
    void (*waiter_channel)(const struct dibs__waiter *waiter,
                           struct dibs__buf *name);
    /* If info.registers: appends the name of the client's wake-up channel. */
    void (*client_channel)(const struct dibs__wait_queue *queue,
                           struct dibs__buf *name);
    /* Deregisters this client on the server. deaf: it is no longer the
     * designated listener of the lock's channel, either. Ends in
     * dibs__wait_queue_deregistered. */
    void (*send_deregister)(struct dibs__wait_queue *queue, bool deaf);
};

/* What only a queue with waiters needs is in its care, which is allocated by
 * dibs__wait_queue_activate and freed after the last waiter has left. */
struct dibs__wait_queue {
    const struct dibs__wait_queue_ops *ops; /* const after init */
    dibs__mutex *mu;                        /* the user's */
    struct dibs__care *care;                /* mu: NULL: not active */
    struct dibs__list waiters;              /* mu: in order of arrival */
    int64_t backoff_until;      /* mu: head retries not before, so that other
                                   clients come first */
    unsigned blocked_count;     /* mu: number of BLOCKED waiters */
    bool retry_now;             /* mu: the head retries at the next service */
    unsigned char retry_policy; /* enum dibs__retry_policy; const after init */
};

void dibs__wait_queue_init(struct dibs__wait_queue *queue,
                           const struct dibs__wait_queue_ops *ops,
                           dibs__mutex *mu, enum dibs__retry_policy policy);
/* Frees what the queue has. The last reference is gone. */
void dibs__wait_queue_clear(struct dibs__wait_queue *queue);

/* ---- any thread; require queue->mu ------------------------------------- */

/* Must succeed before a call parks or blocks. Returns false if out of memory:
 * the call must fail instead of waiting. Idempotent. */
bool dibs__wait_queue_activate(struct dibs__wait_queue *queue);
/* Appends a waiter, as PARKED. needs_service: io must end it at its deadline
 * and retry it; the queue is active. False: its first acquire is sent next. */
void dibs__wait_queue_join(struct dibs__wait_queue *queue,
                           struct dibs__waiter *waiter, bool needs_service);
/* Parks a waiter after the reply "busy" to an acquire sent at sent_ms; sent_ms
 * 0: no reply came. Its next retry follows a notification, or pause_ms. Returns
 * false if out of memory. Thread: io, or that of the first attempt. */
bool dibs__wait_queue_park(struct dibs__wait_queue *queue,
                           struct dibs__waiter *waiter, int64_t pause_ms,
                           int64_t sent_ms);
/* Removes a waiter; it becomes IDLE. Idempotent. */
void dibs__wait_queue_leave(struct dibs__wait_queue *queue,
                            struct dibs__waiter *waiter);
/* Appends a waiter, as BLOCKED, to `blocked`, a list of the user's. io ends it
 * at its deadline. A release cannot be refused, so it may come here although
 * the queue could not be activated; then it has no deadline. */
void dibs__wait_queue_block_on(struct dibs__wait_queue *queue,
                               struct dibs__list *blocked,
                               struct dibs__waiter *waiter);
/* Moves all waiters of `blocked` to out; they become IDLE. */
void dibs__wait_queue_unblock(struct dibs__wait_queue *queue,
                              struct dibs__list *blocked,
                              struct dibs__list *out);
/* For ops.expire_blocked: moves the waiter to out if it is canceled, expired,
 * or the client closes (unless ignore_closing). Returns whether it was
 * moved. */
bool dibs__wait_queue_expire_one(struct dibs__wait_queue *queue,
                                 struct dibs__waiter *waiter, int64_t now,
                                 bool ignore_closing,
                                 struct dibs__expired_waiters *out);
/* Has io end the waiter with CANCELED. */
void dibs__wait_queue_cancel(struct dibs__wait_queue *queue,
                             struct dibs__waiter *waiter);
/* The client closes: has io end the waiters. Returns false if there are none,
 * and io does not service the queue. */
bool dibs__wait_queue_close(struct dibs__wait_queue *queue);
/* The lock may be free: has io retry the head at once. */
void dibs__wait_queue_wake_head(struct dibs__wait_queue *queue);
/* RETRY_HEAD_THEN_ALL, after the head got the lock: has io retry all parked
 * waiters. */
void dibs__wait_queue_wake_all(struct dibs__wait_queue *queue);
/* Returns the registration argument of the next acquire. The caller must send
 * it, and pass the reply to dibs__wait_queue_replied. */
enum dibs__registration
dibs__wait_queue_registration(struct dibs__wait_queue *queue);
void dibs__wait_queue_replied(struct dibs__wait_queue *queue,
                              enum dibs__registration how,
                              enum dibs__reg_reply told, int64_t now);
/* Returns whether this client is subscribed to the lock's channel without being
 * the designated listener. */
bool dibs__wait_queue_is_passive_listener(const struct dibs__wait_queue *queue,
                                          int64_t now);

/* ---- io; no mutex held ------------------------------------------------- */

/* Ends all waiters that are canceled, expired or closing, but for those that
 * await a reply. */
void dibs__wait_queue_expire(struct dibs__wait_queue *queue);
/* ops.send_deregister has ended, with or without a reply. */
void dibs__wait_queue_deregistered(struct dibs__wait_queue *queue);

#endif
