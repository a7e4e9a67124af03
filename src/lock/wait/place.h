/* SPDX-License-Identifier: MIT
 *
 * place.h - a waiter with a channel and timer of its own, for locks whose queue
 * of waiters is on the server (RETRY_EACH).
 */
#ifndef DIBS_LOCK_WAIT_PLACE_H
#define DIBS_LOCK_WAIT_PLACE_H

#include "lock/wait/wait_queue.h"

/* As dibs__wait_queue_park. Requires queue->mu. */
bool dibs__place_stay(struct dibs__wait_queue *queue,
                      struct dibs__waiter *waiter, int64_t pause_ms,
                      int64_t sent_ms);
/* Ends the subscription and the timer of this waiter; idempotent. back: the
 * server does not have it in its queue any more, so the subscription may be
 * kept for the next acquire. No mutex held; io. */
void dibs__place_leave(struct dibs__wait_queue *queue,
                       struct dibs__waiter *waiter, bool back);

#endif
