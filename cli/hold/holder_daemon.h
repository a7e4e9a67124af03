/* SPDX-License-Identifier: MIT
 *
 * holder_daemon.h - a background process that holds a lock for another process.
 */
#ifndef DIBS_CLI_HOLD_HOLDER_DAEMON_H
#define DIBS_CLI_HOLD_HOLDER_DAEMON_H

#include "args/args.h"

/* dibs hold --for-pid: EXIT_FINE once a keeper has the lock. */
int keeper_start(const struct args *a);

/* dibs release: has the keeper of this lock give it back. */
int keeper_release(const struct args *a);

#endif
