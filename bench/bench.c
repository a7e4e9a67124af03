/* SPDX-License-Identifier: MIT
 *
 * bench.c - how fast dibs is, and what it costs.
 *
 *   bench [-u URL | --tcp] [--quick] [PART...]
 *
 *   -u URL    measure against this server instead of a private one. It must
 *             be idle otherwise: its command counts go into the numbers
 *   --tcp     acquire + release over loopback TCP too
 *   --quick   shorter rounds and fewer locks: less exact, in seconds
 *   PART      only this: see parts[] below
 *
 * Everything in one run, one number a line, the targets at the end. Times
 * depend on the machine, so compare the ratios, which come from rounds that
 * took turns; counts do not.
 *
 * Exit code 0 whether or not targets are met, 1 if something did not work, 2
 * for a wrong command line.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct plan full = {
    .rounds = 9,
    .lap_ms = 250,
    .pairs = 5000,
    .locks = 10000,
    .waiters = 10000,
    .lease_ms = 6000,
};

static const struct plan quick = {
    .rounds = 9,
    .lap_ms = 50,
    .pairs = 1000,
    .locks = 1000,
    .waiters = 10000,
    .lease_ms = 1500,
};

static void measure_places(const struct plan *p)
{
    struct plan tcp = *p;

    measure_pairs(p, p->where, true);
    tcp.url = p->tcp_url;
    if (tcp.url)
        measure_pairs(&tcp, "loopback TCP", false);
}

/* In the order in which they are measured. */
static const struct part {
    const char *name;
    void (*measure)(const struct plan *p);
    bool own_servers; /* not with a URL */
} parts[] = {
    {"pairs", measure_places, false},
    {"async", measure_async, false},
    {"counts", measure_counts, false},
    {"handover", measure_handover, false},
    {"processes", measure_processes, false},
    {"greedy", measure_greedy, false},
    {"herd", measure_herd, false},
    {"renewal", measure_renewal, false},
    {"waiters", measure_waiters, false},
    {"fair", measure_fair, false},
    {"fair-waiters", measure_fair_waiters, false},
    {"readers", measure_readers, false},
    {"kinds", measure_kinds, false},
    {"permits", measure_permits, false},
    {"slots-waiters", measure_places_in_line, false},
    {"multi", measure_multi, false},
    {"orders", measure_orders, true},
    {"quorum", measure_quorum, true},
    {"loss", measure_loss, false},
    {"hands", measure_hands, true},
    {"cluster", measure_cluster, true},
};

struct args {
    const char *url;
    bool tcp;
    bool quick;
    bool some; /* of the parts */
    bool wanted[COUNT(parts)];
};

/* False: there is no such part. */
static bool want(struct args *a, const char *name)
{
    for (size_t i = 0; i < COUNT(parts); i++)
        if (strcmp(parts[i].name, name) == 0)
            return a->some = a->wanted[i] = true;
    return false;
}

/* False: the word that was wrong is in *bad. */
static bool read_args(int argc, char **argv, struct args *a, const char **bad)
{
    for (int i = 1; i < argc; i++) {
        *bad = argv[i];
        if (strcmp(argv[i], "--quick") == 0)
            a->quick = true;
        else if (strcmp(argv[i], "--tcp") == 0)
            a->tcp = true;
        else if (strcmp(argv[i], "-u") == 0 && i + 1 < argc)
            a->url = argv[++i];
        else if (!want(a, argv[i]))
            return false;
    }
    *bad = "--tcp"; /* is about the private server */
    return !(a->tcp && a->url);
}

static void print_head(const char *url)
{
    char version[32];
    redisContext *rc = server_connect(url);

    printf("dibs %s, server %s, %ld cores\n", dibs_version(),
           server_version(rc, version, sizeof version),
           sysconf(_SC_NPROCESSORS_ONLN));
    redisFree(rc);
}

int main(int argc, char **argv)
{
    struct args a = {0};
    const char *bad = NULL;

    if (!read_args(argc, argv, &a, &bad)) {
        fprintf(stderr,
                "bench: %s is wrong here\n"
                "usage: bench [-u URL | --tcp] [--quick] [PART...]\n",
                bad);
        return 2;
    }
    if (!a.url)
        server_start(a.tcp);
    struct plan p = a.quick ? quick : full;
    p.url = a.url ? a.url : server_url(false);
    p.where = a.url ? "the given URL" : "a Unix socket";
    p.tcp_url = a.tcp ? server_url(true) : NULL;
    print_head(p.url);

    for (size_t i = 0; i < COUNT(parts); i++) {
        bool possible = !a.url || !parts[i].own_servers;
        if (possible && (!a.some || a.wanted[i]))
            parts[i].measure(&p);
    }
    targets_print();
    return 0;
}
