/* SPDX-License-Identifier: MIT
 *
 * callback_io.h - what callbacks begin is sent, and its replies read, by the
 * thread that runs them.
 */
#ifndef DIBS_CLIENT_CALLBACK_IO_H
#define DIBS_CLIENT_CALLBACK_IO_H

#include "client/callback_queue.h"
#include "client/command/command.h"

/* As dibs__command_start. done comes on io, or on the thread that runs
 * callbacks, but not inside one. Thread: any. */
void dibs__ride_start(struct dibs__callbacks *cbs, struct dibs__route to,
                      struct dibs__command *cmd) EXCLUDES(cbs->mu);

#endif
