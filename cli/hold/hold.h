/* SPDX-License-Identifier: MIT
 *
 * hold.h - the end of a hold without a command: message and exit code.
 */
#ifndef DIBS_CLI_HOLD_HOLD_H
#define DIBS_CLI_HOLD_HOLD_H

#include "run/lock_session.h"

/* The fields that not every lock has: token, slot, permit. */
void hold_json(struct json *j, const struct lock_session *g);

/* Prints that the lock is lost; returns EXIT_LOST. */
int hold_tell_lost(const struct args *a, struct lock_session *g);

/* Releases the lock, leaving it held for keep_ms; returns code on success. */
int hold_give_back(const struct args *a, struct lock_session *g,
                   int64_t keep_ms, int code);

#endif
