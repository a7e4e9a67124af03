/* SPDX-License-Identifier: MIT
 *
 * status_report.h - the one line of --status-fd.
 */
#ifndef DIBS_CLI_RUN_STATUS_REPORT_H
#define DIBS_CLI_RUN_STATUS_REPORT_H

#include <stdbool.h>

#include "run/lock_session.h"

/* How it ended, besides what the session knows. */
struct report {
    int code;        /* our exit code */
    const char *why; /* the cause, where the code does not tell; or NULL */
    bool ran;        /* status counts */
    int status;      /* of the command, as of waitpid(2) */
};

/* Writes it, if it was asked for. */
void report_write(const struct args *a, struct lock_session *g,
                  const struct report *r);

#endif
