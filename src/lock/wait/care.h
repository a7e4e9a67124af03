/* SPDX-License-Identifier: MIT
 *
 * care.h - what io needs to look after a line of waiters: a timer, its channels
 * and its turn.
 *
 * A line that nobody has to wait in has none of it (wait_queue.c).
 */
#ifndef DIBS_LOCK_WAIT_CARE_H
#define DIBS_LOCK_WAIT_CARE_H

#include "lock/wait/wait_queue.h"

struct dibs__wait_subscriptions;

struct dibs__care {
    struct dibs__wait_queue *w; /* const after init */
    bool awake;                 /* mu: io looks after the line */
    bool posted;                /* mu: post is in io's inbox */
    bool all_ask;               /* mu: not only the head */
    bool canceled;              /* mu: some waiter is canceled */
    struct dibs__turn turn;     /* mu: how it is called */
    int64_t next_try;           /* mu: ask then, if nothing happens */
    int64_t below;              /* mu: the next one that wants less may ask */
    int64_t again_at;           /* mu: then those ask that were not answered */
    int64_t looks_at;           /* mu: when io looks by itself */
    int64_t first_deadline;     /* mu: no waiter's time is over before */
    struct dibs__wait_subscriptions
        *ears;                /* io only; NULL: it listens to nothing */
    struct dibs__timer timer; /* io only */
    struct dibs__task post;
    /* Something was said on this channel; NUL: it is ready, or refused. */
    void (*said)(struct dibs__care *care, enum dibs__ear on, char what);
};

/* For a line that has none; the three functions are to be filled in. NULL: out
 * of memory. Thread: any, with the mutex of the wait. */
struct dibs__care *dibs__care_new(struct dibs__wait_queue *queue);
/* Listens to these channels, and to no others. No memory: it hears nothing, and
 * the next call tries again. Thread: io, no mutex held. */
void dibs__care_listen(struct dibs__care *care, unsigned needs);
/* Its own channel is asked for; it is ready. Thread: io. */
bool dibs__care_wants_own(const struct dibs__care *care);
bool dibs__care_hears_own(const struct dibs__care *care);
/* No later than that a waiter's time is over. With the mutex of the wait. */
void dibs__care_deadline(struct dibs__care *care, int64_t deadline);

/* ---- bypass.c -------------------------------------------------------------
 */

/* May this one, which has just joined, ask as soon as the head has to wait? */
bool dibs__pass_joined(struct dibs__wait_queue *queue,
                       const struct dibs__waiter *waiter) REQUIRES(*w->mu);
/* It was told to wait: sets care.below, or when the head shall ask again. */
void dibs__pass_refused(struct dibs__wait_queue *queue,
                        struct dibs__waiter *waiter) REQUIRES(*w->mu);
/* One that wants `below` was told to wait: the next one that wants less, as its
 * state says now, or NULL. If that one asks already, its answer decides who is
 * next. */
struct dibs__waiter *dibs__pass_pick(struct dibs__wait_queue *queue,
                                     int64_t below) REQUIRES(*w->mu);

/* ---- wait_end.c -------------------------------------------------------- */

/* Takes out of the line those whose time is over, who were canceled, or all
 * when the client closes. Thread: io. */
void dibs__wait_queue_collect_expired(struct dibs__wait_queue *queue,
                                      int64_t now,
                                      struct dibs__expired_waiters *out)
    REQUIRES(*w->mu);
/* Ends them. Thread: io, no mutex held. */
void dibs__wait_queue_end(struct dibs__wait_queue *queue,
                          struct dibs__expired_waiters *expired);

#endif
