/* SPDX-License-Identifier: MIT
 *
 * counts.c - what one acquire and release cost, counted instead of timed.
 *
 * Counts do not depend on the machine's mood. One thread, one lock, nobody in
 * the way, everything warm: the caller should talk to the server itself, and
 * nothing else should happen at all.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_PAIRS   1000
#define TRACED_PAIRS 500

/* The number behind a label of a file in /proc, -1 if there is none. */
static long long proc_number(const char *path, const char *label)
{
    char text[256];
    long long n = -1;
    FILE *f = fopen(path, "r");

    if (!f)
        return -1;
    while (fgets(text, sizeof text, f))
        if (strncmp(text, label, strlen(label)) == 0)
            n = strtoll(text + strlen(label), NULL, 10);
    fclose(f);
    return n;
}

/* Whether this thread of ours has this name. */
static bool has_name(const char *tid, const char *name)
{
    char path[300];
    char text[32] = "";

    snprintf(path, sizeof path, "/proc/self/task/%s/comm", tid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    if (!fgets(text, sizeof text, f))
        text[0] = '\0';
    fclose(f);
    text[strcspn(text, "\n")] = '\0';
    return strcmp(text, name) == 0;
}

/* How often the I/O thread went to sleep so far, which is how often it was
 * woken; NAN if it cannot be found. */
static double io_wakeups(void)
{
    struct dirent *entry;
    double found = NAN;
    DIR *dir = opendir("/proc/self/task");

    while (dir && (entry = readdir(dir)) != NULL) {
        char path[300];
        if (entry->d_name[0] == '.' || !has_name(entry->d_name, "dibs-io"))
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        long long n = proc_number(path, "voluntary_ctxt_switches:");
        if (n >= 0)
            found = (double)n;
    }
    if (dir)
        closedir(dir);
    return found;
}

static void pairs(dibs_lock *l, int n)
{
    for (int i = 0; i < n; i++)
        dibs_pair(l);
}

/* A client and a lock, warm. */
static void warm(const char *url, dibs_client **c, dibs_lock **l)
{
    char name[96];

    must(dibs_client_open(url, NULL, c), "open");
    must(dibs_lock_new(*c, bench_name(name, sizeof name, "count", 0), l),
         "new lock");
    pairs(*l, WARM_PAIRS);
}

/* Runs traced, in a process of its own. */
static void traced(void *url)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;

    warm(url, &c, &l);
    trace_mark();
    pairs(l, TRACED_PAIRS);
    trace_mark();
    dibs_lock_free(l);
    dibs_client_free(c);
}

void measure_counts(const struct plan *p)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    redisContext *rc = server_connect(p->url);
    double n = p->pairs;
    char url[4096];

    title("one thread, one acquire + release (of %d)", p->pairs);
    warm(p->url, &c, &l);

    struct tally before = server_tally(rc);
    pairs(l, p->pairs);
    struct tally after = server_tally(rc);
    double commands = (double)(after.commands - before.commands) / n;

    heap_start();
    pairs(l, p->pairs);
    heap_stop();
    double allocations = heap_calls() / n;

    double slept = io_wakeups();
    pairs(l, p->pairs);
    double wakeups = (io_wakeups() - slept) / n;

    dibs_lock_free(l);
    dibs_client_free(c);
    redisFree(rc);
    snprintf(url, sizeof url, "%s", p->url);
    double calls = trace_count(traced, url) / TRACED_PAIRS;

    line("Redis commands", commands, 3, "per pair");
    line("system calls, all threads", calls, 3, "per pair");
    line("heap allocations, all threads", allocations, 3, "per pair");
    line("wake-ups of the I/O thread", wakeups, 3, "per pair");
    target("Redis commands, per pair", AT_MOST, 2, commands);
    target("system calls, per pair", AT_MOST, 4, calls);
    target("heap allocations, per pair", AT_MOST, 0, allocations);
}
