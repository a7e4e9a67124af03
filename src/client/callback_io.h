/* SPDX-License-Identifier: MIT
 *
 * callback_io.h - commands begun inside callbacks are sent by the thread that
 * runs the callbacks, which also reads their replies.
 */
#ifndef DIBS_CLIENT_CALLBACK_IO_H
#define DIBS_CLIENT_CALLBACK_IO_H

#include "client/callback_queue.h"
#include "client/command/command.h"

/* As dibs__command_start. done is called on io, or on the thread that runs
 * callbacks, there never inside a callback. Thread: any. */
void dibs__ride_start(struct dibs__callbacks *cbs, struct dibs__route to,
                      struct dibs__command *cmd) EXCLUDES(cbs->mu);

#endif
