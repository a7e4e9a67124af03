/* SPDX-License-Identifier: MIT
 *
 * sd_notify.h - sends the state of a command to systemd.
 */
#ifndef DIBS_CLI_RUN_SD_NOTIFY_H
#define DIBS_CLI_RUN_SD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "output/output.h"

/* If systemd started us and wants to hear of it; otherwise all below does
 * nothing. passed: the command tells, not we. */
void notify_open(bool passed);

/* One message: what changes (READY=1, STOPPING=1; NULL: nothing), and a line
 * for people. */
void notify_tell(const char *change, const char *fmt, ...) PRINTF(2, 3);

/* When the next sign of life is due; TIME_NEVER: none is. */
int64_t notify_due(void);
/* A sign of life, if one is due; none while the lock is not surely ours. */
void notify_alive(bool ours, int64_t now);

#endif
