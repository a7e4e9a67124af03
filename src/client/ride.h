/* SPDX-License-Identifier: MIT
 *
 * ride.h - what callbacks begin is sent, and its replies read, by the thread
 * that runs them.
 */
#ifndef DIBS_CLIENT_RIDE_H
#define DIBS_CLIENT_RIDE_H

#include "client/call.h"
#include "client/callback.h"

/* As dibs__call_start. done comes on io, or on the thread that runs callbacks,
 * but not inside one. Thread: any. */
void dibs__ride_start(struct dibs__callbacks *cbs, struct dibs__route to,
                      struct dibs__call *call) EXCLUDES(cbs->mu);

#endif
