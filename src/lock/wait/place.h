/* SPDX-License-Identifier: MIT
 *
 * place.h - a waiter that asks for itself: the server keeps a queue
 * (RETRY_EACH).
 */
#ifndef DIBS_LOCK_WAIT_PLACE_H
#define DIBS_LOCK_WAIT_PLACE_H

#include "lock/wait/wait_queue.h"

/* It was answered "not yet": as dibs__wait_queue_park, with the mutex held. */
bool dibs__place_stay(struct dibs__wait_queue *queue,
                      struct dibs__waiter *waiter, int64_t pause_ms,
                      int64_t asked_ms);
/* This waiter listens no more. back: the server does not take it for one that
 * waits, so its channel may be kept for the next time. Harmless otherwise. No
 * mutex held; io. */
void dibs__place_leave(struct dibs__wait_queue *queue,
                       struct dibs__waiter *waiter, bool back);

#endif
