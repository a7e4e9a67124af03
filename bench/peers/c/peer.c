/* SPDX-License-Identifier: MIT
 *
 * peer.c - one side of the comparison in C: reads orders, runs them, answers.
 *
 *   peer LIBRARY URL      libraries: see the table below
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "peer.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct peer_library *const libraries[] = {
    &peer_dibs, &peer_hiredis, &peer_tasks, &peer_limit};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

void peer_die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "peer: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

int64_t peer_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void peer_sleep_us(int us)
{
    if (us > 0)
        usleep((useconds_t)us);
}

/* ---- the log of holds -------------------------------------------------- */

struct peer_log {
    FILE *file;
    pthread_mutex_t mu;
    long long count;
};

struct peer_log *peer_log_open(const char *path)
{
    struct peer_log *log = calloc(1, sizeof *log);

    if (!log || !(log->file = fopen(path, "w")))
        peer_die("%s cannot be written", path);
    setvbuf(log->file, NULL, _IOFBF, 1 << 20);
    pthread_mutex_init(&log->mu, NULL);
    return log;
}

void peer_log_add(struct peer_log *log, int who, const int64_t at[3])
{
    pthread_mutex_lock(&log->mu);
    log->count++;
    fprintf(log->file, "%d %lld %lld %lld\n", who, (long long)at[0],
            (long long)at[1], (long long)at[2]);
    pthread_mutex_unlock(&log->mu);
}

long long peer_log_close(struct peer_log *log)
{
    long long count = log->count;

    if (fclose(log->file) != 0)
        peer_die("the log cannot be written");
    pthread_mutex_destroy(&log->mu);
    free(log);
    return count;
}

/* ---- orders ------------------------------------------------------------ */

static long long timed(long long (*what)(const struct peer_order *),
                       const struct peer_order *o, double *seconds)
{
    int64_t start = peer_now_ns();
    long long n = what(o);

    *seconds = (double)(peer_now_ns() - start) / 1e9;
    return n;
}

static void answer(const char *verb, const struct peer_library *lib,
                   const struct peer_order *o)
{
    double seconds = 0;
    long long n = o->n;

    if (strcmp(verb, "pairs") == 0 && lib->pairs)
        n = timed(lib->pairs, o, &seconds);
    else if (strcmp(verb, "contend") == 0 && lib->contend)
        n = timed(lib->contend, o, &seconds);
    else if (strcmp(verb, "hold") == 0 && lib->hold)
        lib->hold(o);
    else if (strcmp(verb, "wait") == 0 && lib->wait)
        lib->wait(o);
    else
        peer_die("%s cannot %s", lib->name, verb);
    printf("{\"count\": %lld, \"seconds\": %.6f}\n", n, seconds);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const struct peer_library *lib = NULL;
    char text[1024];

    for (size_t i = 0; argc == 3 && i < COUNT(libraries); i++)
        if (strcmp(libraries[i]->name, argv[1]) == 0)
            lib = libraries[i];
    if (!lib) {
        fprintf(stderr, "usage: peer LIBRARY URL\n");
        return 2;
    }
    lib->open(argv[2]);
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (fgets(text, sizeof text, stdin)) {
        struct peer_order o = {0};
        char verb[16] = "";
        if (sscanf(text, "%15s %15s %d %d %159s %d %d %255s", verb, o.kind,
                   &o.n, &o.ms, o.name, &o.hold_us, &o.pause_us, o.file) < 1)
            peer_die("an empty order");
        if (strcmp(verb, "quit") == 0)
            break;
        answer(verb, lib, &o);
    }
    fflush(stdout);
    _exit(0); /* waiters may still wait */
}
