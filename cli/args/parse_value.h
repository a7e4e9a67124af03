/* SPDX-License-Identifier: MIT
 *
 * parse_value.h - reads the values of options: times, numbers, signals.
 */
#ifndef DIBS_CLI_ARGS_PARSE_VALUE_H
#define DIBS_CLI_ARGS_PARSE_VALUE_H

#include <stdbool.h>
#include <stdint.h>

/* 500ms, 10s, 2m, 1h, 1d, 1.5s; a bare number is seconds. Several of them add
 * up, 1h30m: each with its unit, the larger first, none twice, and a fraction
 * only in the last. What is finer than a millisecond is rounded up, so that
 * nothing small turns into zero, which means something else. NULL and *ms when
 * it is a time, otherwise what is wrong with it, in words. */
const char *value_time(const char *text, int64_t *ms);

/* A decimal number from 0 to max, and nothing else. */
bool value_number(const char *text, int max, int *out);

/* A decimal number from 1 to max. */
bool value_count(const char *text, int64_t max, int64_t *out);

/* A number, or all. */
bool value_replicas(const char *text, int *out);

/* TERM, SIGTERM, sigterm, 15. */
bool value_signal(const char *text, int *sig);

/* What to do about a command whose lock is being lost. */
struct on_lost {
    enum { LOST_SIGNAL, LOST_WARN, LOST_EXEC } kind;
    int sig;             /* LOST_SIGNAL */
    const char *command; /* LOST_EXEC, for the shell */
};

/* term, kill, warn, exec:CMD, or a signal. */
bool value_on_lost(const char *text, struct on_lost *out);

#endif
