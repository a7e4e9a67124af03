/* SPDX-License-Identifier: MIT
 *
 * wait_queue.h - how calls wait for something that another client has.
 *
 * The machine does not know what it waits for. Its user gives it a table: what
 * to ask, and what to do when a call waits no more. The user has a struct with
 * a wait in it, the mutex that guards the wait, and a reference count.
 */
#ifndef DIBS_LOCK_WAIT_WAIT_QUEUE_H
#define DIBS_LOCK_WAIT_WAIT_QUEUE_H

#include "client/client.h"
#include "lock/wait/turn.h"

struct dibs__wait_queue;
struct dibs__place;
struct dibs__care;

/* Who of a line asks the server. */
enum dibs__retry_policy {
    RETRY_HEAD_ONLY,    /* the first; it listens for all of them */
    RETRY_EACH,         /* each for itself, with a channel of its own */
    RETRY_HEAD_THEN_ALL /* the first; when one got in, all others at once */
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

/* A call that waits; inside what the user knows of that call. */
struct dibs__waiter {
    struct dibs__list link; /* mu: in wait.waiters, or a list of the user's */
    union {
        struct dibs__place *place; /* RETRY_EACH: its channel and timer; io only
                                      once it has started */
        struct dibs__waiter *next; /* others: the next one that is about to ask;
                                      io only */
    };
    int64_t deadline;   /* const once it waits; INT64_MAX none */
    int64_t refused_at; /* mu: when it was first told to wait; 0 not yet */
    enum dibs__waiter_state state; /* mu */
    bool canceled;                 /* mu */
    bool was_busy;                 /* mu: somebody else had what it wants */
    bool no_reply; /* mu: not RETRY_EACH: its last question was not answered */
    unsigned char polls; /* it does not listen, it asks again and again: how
                            often, but not beyond a limit, plus 1; 0 = it
                            listens */
};

/* Calls that leave the line, and calls that may go on because of that. */
struct dibs__expired_waiters {
    struct dibs__list expired, resume; /* of waiter.link */
};

/* What does not change in the life of a line, but for closing. It is asked for
 * when somebody waits, so that lines without waiters need not keep it. */
struct dibs__wait_queue_info {
    dibs_client *c;
    int slot;
    bool closing;   /* the client closes: everybody leaves */
    bool registers; /* these two: see struct dibs__turn */
    char told;
};

/* What the machine needs of its user. "mu": called with the mutex held; all
 * others without. All on io. */
struct dibs__wait_queue_ops {
    struct dibs__wait_queue_info (*info)(const struct dibs__wait_queue *queue);
    /* Has this one hear what is said on the line's channel; no memory: it hears
     * nothing. */
    void (*subscribe)(const struct dibs__wait_queue *queue,
                      struct dibs__subscription *sub);
    /* mu: may this one ask now? True: its state says so, and ask follows. */
    bool (*may_retry)(struct dibs__wait_queue *queue,
                      struct dibs__waiter *waiter);
    /* Sends the question. Its answer ends in dibs__wait_queue_park, or the
     * waiter leaves. */
    void (*retry)(struct dibs__waiter *waiter);
    /* It waits no more, and is out of the line: CLOSED, CANCELED or TIMEOUT. */
    void (*end)(struct dibs__waiter *waiter, dibs_err err);
    void (*ref)(struct dibs__wait_queue *queue); /* mu */
    void (*unref)(struct dibs__wait_queue *queue);
    /* The rest may be NULL. */
    /* mu: how many permits it asks for; 0: as many as all others. */
    int64_t (*wants)(const struct dibs__waiter *waiter);
    /* mu: until when a call of this client has it, by our clock, so that there
     * is little to ask; 0 none has. */
    int64_t (*held_until)(struct dibs__wait_queue *queue, int64_t now);
    /* mu: it must go although it is PROMISED something. True: it may, and is
     * not PROMISED any more. */
    bool (*decline_handoff)(struct dibs__wait_queue *queue,
                            struct dibs__waiter *waiter,
                            struct dibs__list *resume);
    /* mu: those that are BEHIND another call, and must go. */
    void (*expire_blocked)(struct dibs__wait_queue *queue, int64_t now,
                           struct dibs__expired_waiters *out);
    /* These may go on. */
    void (*resume)(struct dibs__list *waiters);
    /* RETRY_EACH: appends the name of its channel. */
    void (*own_channel)(const struct dibs__waiter *waiter,
                        struct dibs__buf *name);
    /* If the line registers: appends the name of the channel on which this
     * client is called. */
    void (*turn_channel)(const struct dibs__wait_queue *queue,
                         struct dibs__buf *name);
    /* Tells the server that this client does not wait any more. deaf: nor does
     * it listen for others. Ends in dibs__wait_queue_deregistered. */
    void (*send_deregister)(struct dibs__wait_queue *queue, bool deaf);
};

/* One line of waiters. What only io needs is not here but in its care, which is
 * made when somebody has to wait, and goes when nobody does. */
struct dibs__wait_queue {
    const struct dibs__wait_queue_ops *ops; /* const after init */
    dibs__mutex *mu;                        /* the user's */
    struct dibs__care *care;                /* mu: NULL if nobody had to wait */
    struct dibs__list waiters;              /* mu: in order of arrival */
    int64_t backoff_until;      /* mu: other clients first; do not ask before */
    unsigned blocked_count;     /* mu: how many are BEHIND */
    bool retry_now;             /* mu: something happened, ask at once */
    unsigned char retry_policy; /* enum dibs__retry_policy; const after init */
};

void dibs__wait_queue_init(struct dibs__wait_queue *queue,
                           const struct dibs__wait_queue_ops *user,
                           dibs__mutex *mu, enum dibs__retry_policy asks);
/* Nobody refers to it any more. */
void dibs__wait_queue_clear(struct dibs__wait_queue *queue);

/* ---- all of these with the user's mutex held; any thread --------------- */

/* A call may have to wait here. False: out of memory, so it must not. */
bool dibs__wait_queue_activate(struct dibs__wait_queue *queue);
/* One more waiter, at the end. look: io looks after it, if need be; the line is
 * ready. */
void dibs__wait_queue_join(struct dibs__wait_queue *queue,
                           struct dibs__waiter *waiter, bool look);
/* It was answered "not yet" to what was sent at asked_ms: asks again when it is
 * called, or after that pause. asked_ms 0: it was not answered. False: out of
 * memory. Thread: io, or that of the first attempt. */
bool dibs__wait_queue_park(struct dibs__wait_queue *queue,
                           struct dibs__waiter *waiter, int64_t pause_ms,
                           int64_t asked_ms);
/* Out of the line, if it is in it. */
void dibs__wait_queue_leave(struct dibs__wait_queue *queue,
                            struct dibs__waiter *waiter);
/* It has to wait for another call, in a list of the user's: the line looks
 * after its deadline. One that cannot be refused comes here although the line
 * is not ready; then it stays for as long as that call may take. */
void dibs__wait_queue_block_on(struct dibs__wait_queue *queue,
                               struct dibs__list *behind,
                               struct dibs__waiter *waiter);
/* The other call is over: all of this list go to out. */
void dibs__wait_queue_unblock(struct dibs__wait_queue *queue,
                              struct dibs__list *behind,
                              struct dibs__list *out);
/* For sweep_behind: looks at one of such a list. never_closes: it stays when
 * the client closes. True: it must go, and was moved to out. */
bool dibs__wait_queue_expire_one(struct dibs__wait_queue *queue,
                                 struct dibs__waiter *waiter, int64_t now,
                                 bool never_closes,
                                 struct dibs__expired_waiters *out);
/* It is to end with CANCELED. */
void dibs__wait_queue_cancel(struct dibs__wait_queue *queue,
                             struct dibs__waiter *waiter);
/* The client closes: has io end those that wait. False: nobody does, and io
 * does not look after the line. */
bool dibs__wait_queue_close(struct dibs__wait_queue *queue);
/* Something happened that may have freed it: has io ask at once. */
void dibs__wait_queue_wake_head(struct dibs__wait_queue *queue);
/* RETRY_HEAD_THEN_ALL: one got in, so all that pause may ask. */
void dibs__wait_queue_wake_all(struct dibs__wait_queue *queue);
/* What the next question has to say about being called; its answer. */
enum dibs__how dibs__wait_queue_registration(struct dibs__wait_queue *queue);
void dibs__wait_queue_replied(struct dibs__wait_queue *queue,
                              enum dibs__how how, enum dibs__told told,
                              int64_t now);
/* Is this client among those that hear what is said on the line's channel,
 * without a duty to? */
bool dibs__wait_queue_is_passive_listener(const struct dibs__wait_queue *queue,
                                          int64_t now);

/* ---- no mutex held; io ------------------------------------------------- */

/* Ends all that must go and do not await an answer. */
void dibs__wait_queue_expire(struct dibs__wait_queue *queue);
/* The server was told that this client does not wait any more, or could not be
 * told. */
void dibs__wait_queue_deregistered(struct dibs__wait_queue *queue);

#endif
