/* SPDX-License-Identifier: MIT
 *
 * hold.h - the end of a hold without a command, in words and as a code.
 */
#ifndef DIBS_CLI_HOLD_HOLD_H
#define DIBS_CLI_HOLD_HOLD_H

#include "run/lock_session.h"

/* The fields that not every lock has: token, slot, permit. */
void hold_json(struct json *j, const struct grip *g);

/* Tells that the lock is lost; EXIT_LOST. */
int hold_tell_lost(const struct args *a, struct grip *g);

/* Gives the lock back, leaving it taken for keep_ms; code if that works. */
int hold_give_back(const struct args *a, struct grip *g, int64_t keep_ms,
                   int code);

#endif
