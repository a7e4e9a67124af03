/* SPDX-License-Identifier: MIT
 *
 * hands.c - one lock goes from process to process.
 *
 * Four processes want a lock, each holds it for a moment. Measured is the time
 * from just before a release to the acquire of another process. A lock on five
 * servers is next to a plain one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 4
#define SERVERS   5
#define CHANGES   300 /* that are counted */
#define HOLD_MS   2

/* What all processes see. */
struct shared {
    atomic_llong released; /* when, in ns */
    atomic_int by;
    atomic_uint changes;
    double us[CHANGES];
};

static void change_hands(dibs_lock *l, struct shared *sh, int me)
{
    while (atomic_load(&sh->changes) < CHANGES) {
        must(dibs_lock_acquire(l, NULL), "acquire");
        int64_t took = now_ns() - atomic_load(&sh->released);
        if (atomic_load(&sh->by) != me && atomic_load(&sh->released)) {
            unsigned i = atomic_fetch_add(&sh->changes, 1);
            if (i < CHANGES)
                sh->us[i] = (double)took / 1000;
        }
        sleep_ms(HOLD_MS);
        atomic_store(&sh->by, me);
        atomic_store(&sh->released, now_ns());
        must(dibs_lock_release(l, NULL), "release");
    }
}

static void be_process(const char *const *urls, int servers, struct shared *sh,
                       int me)
{
    dibs_client *clients[SERVERS];
    dibs_lock *members[SERVERS], *l = NULL;

    for (int i = 0; i < servers; i++) {
        must(dibs_client_open(urls[i], NULL, &clients[i]), "open");
        must(dibs_lock_new(clients[i], "bench:hands", &members[i]), "new");
    }
    if (servers > 1)
        must(dibs_quorum_lock_new(members, (size_t)servers, &l), "new quorum");
    change_hands(l ? l : members[0], sh, me);
    dibs_lock_free(l);
    for (int i = 0; i < servers; i++) {
        dibs_lock_free(members[i]);
        dibs_client_free(clients[i]);
    }
}

static double hands(const char *const *urls, int servers)
{
    struct shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[PROCESSES], parent = getpid();
    int status = 0;

    if (sh == MAP_FAILED)
        die("mmap: %s", strerror(errno));
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            die("fork: %s", strerror(errno));
        if (pids[i] > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        be_process(urls, servers, sh, i + 1);
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++)
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
            die("a process of the benchmark failed");
    for (int i = 1; i < CHANGES; i++) /* few enough */
        for (int j = i; j > 0 && sh->us[j] < sh->us[j - 1]; j--) {
            double more = sh->us[j - 1];
            sh->us[j - 1] = sh->us[j];
            sh->us[j] = more;
        }
    double middle = sh->us[CHANGES / 2];
    line(servers > 1 ? "five servers, p90" : "plain, p90",
         sh->us[CHANGES * 9 / 10], 0, "us");
    munmap(sh, sizeof *sh);
    return middle;
}

void measure_hands(const struct plan *p)
{
    const char *urls[SERVERS] = {p->url};

    title("change of hands: %d processes, each holds it for %d ms", PROCESSES,
          HOLD_MS);
    for (int i = 1; i < SERVERS; i++)
        urls[i] = server_more();
    double one = hands(urls, 1), five = hands(urls, SERVERS);
    line("plain, median", one, 0, "us");
    line("five servers, median", five, 0, "us");
    line("five servers / plain", five / one, 2, "x");
    target("change of hands, quorum of plain", AT_MOST, 3, five / one);
}
