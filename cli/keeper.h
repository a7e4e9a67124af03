/* SPDX-License-Identifier: MIT
 *
 * keeper.h - a background process that holds a lock for another process.
 */
#ifndef DIBS_CLI_KEEPER_H
#define DIBS_CLI_KEEPER_H

#include "args.h"

/* dibs hold --for-pid: EXIT_FINE once a keeper has the lock. */
int keeper_start(const struct args *a);

/* dibs release: has the keeper of this lock give it back. */
int keeper_release(const struct args *a);

#endif
