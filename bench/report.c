/* SPDX-License-Identifier: MIT
 *
 * report.c - numbers for people.
 *
 * One number and its unit a line, so that two reports can be laid side by side
 * and a script can cut a column out. The targets are collected on the way and
 * come as a block at the end. A missed target is something to read about, not
 * a failure of the program: machines differ, and so do their moods.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TARGETS_MAX 64
#define VALUES_MAX  99
#define GRACE       0.005 /* a value is judged by the digits that are shown */

static struct {
    const char *what;
    enum relation rel;
    double limit;
    double value;
} targets[TARGETS_MAX];
static size_t target_count;

void die(const char *format, ...)
{
    static atomic_flag dying = ATOMIC_FLAG_INIT;
    va_list ap;

    while (atomic_flag_test_and_set(&dying))
        pause(); /* another thread was first, and ends us all */
    fflush(stdout);
    fputs("bench: ", stderr);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

void must(dibs_err err, const char *what)
{
    if (err != DIBS_OK)
        die("%s: %s", what, dibs_strerror(err));
}

void title(const char *format, ...)
{
    va_list ap;

    putchar('\n');
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

void line(const char *label, double value, int digits, const char *unit)
{
    if (isnan(value))
        printf("  %-42s %12s\n", label, "not measured");
    else
        printf("  %-42s %12.*f %s\n", label, digits, value, unit);
    fflush(stdout);
}

void target(const char *what, enum relation rel, double limit, double value)
{
    if (target_count == TARGETS_MAX)
        die("more than %d targets", TARGETS_MAX);
    targets[target_count].what = what;
    targets[target_count].rel = rel;
    targets[target_count].limit = limit;
    targets[target_count].value = value;
    target_count++;
}

void targets_print(void)
{
    title("targets");
    for (size_t i = 0; i < target_count; i++) {
        bool at_most = targets[i].rel == AT_MOST;
        double value = targets[i].value;
        double limit = targets[i].limit;
        char text[24] = "-";
        const char *verdict = "not measured";

        if (!isnan(value)) {
            bool met = at_most ? value < limit + GRACE : value > limit - GRACE;
            verdict = met ? "ok" : "MISSED";
            snprintf(text, sizeof text, "%.2f", value);
        }
        printf("  %-42s %12s   %s %-8g %s\n", targets[i].what, text,
               at_most ? "<=" : ">=", limit, verdict);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double median(const double *values, size_t n)
{
    double sorted[VALUES_MAX];

    if (n == 0 || n > VALUES_MAX)
        return NAN;
    memcpy(sorted, values, n * sizeof *values);
    qsort(sorted, n, sizeof *sorted, by_value);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

double least(const double *values, size_t n)
{
    double found = values[0];

    for (size_t i = 1; i < n; i++)
        found = fmin(found, values[i]);
    return found;
}

double greatest(const double *values, size_t n)
{
    double found = values[0];

    for (size_t i = 1; i < n; i++)
        found = fmax(found, values[i]);
    return found;
}

int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void sleep_ms(int64_t ms)
{
    struct timespec ts = {.tv_sec = ms / 1000,
                          .tv_nsec = (ms % 1000) * 1000000};

    while (nanosleep(&ts, &ts) != 0)
        ;
}
