/* SPDX-License-Identifier: MIT
 *
 * bench.c - how fast dibs is, and what it costs.
 *
 *   bench [-u URL] [--tcp] [--quick]
 *
 *   -u URL    measure against this server instead of a private one. It must
 *             be idle otherwise: its command counts go into the numbers
 *   --tcp     acquire + release over loopback TCP too
 *   --quick   shorter rounds and fewer locks: less exact, in seconds
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

struct args {
    const char *url;
    bool tcp;
    bool quick;
};

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
        else
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
                "usage: bench [-u URL | --tcp] [--quick]\n",
                bad);
        return 2;
    }
    if (!a.url)
        server_start(a.tcp);
    struct plan p = a.quick ? quick : full;
    p.url = a.url ? a.url : server_url(false);
    print_head(p.url);

    measure_pairs(&p, a.url ? "the given URL" : "a Unix socket", true);
    if (a.tcp) {
        struct plan tcp = p;
        tcp.url = server_url(true);
        measure_pairs(&tcp, "loopback TCP", false);
    }
    measure_counts(&p);
    measure_handover(&p);
    measure_processes(&p);
    measure_renewal(&p);
    measure_waiters(&p);
    measure_fair(&p);
    measure_fair_waiters(&p);
    measure_readers(&p);
    measure_multi(&p);
    if (!a.url) { /* these start servers of their own */
        measure_orders(&p);
        measure_quorum(&p);
        measure_cluster(&p);
    }
    targets_print();
    return 0;
}
