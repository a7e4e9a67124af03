/* SPDX-License-Identifier: MIT
 *
 * plan.h - the plan that a seed draws: clients, length, and faults with their
 * times. It is made before the run, so that a run with a client or a fault less
 * keeps the rest of the plan.
 */
#ifndef DIBS_SIM_PLAN_H
#define DIBS_SIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_FAULTS_MAX  64
#define SIM_CLIENTS_MAX 24
#define SIM_MEMBERS_MAX 5

enum sim_layout {
    SIM_ONE,      /* one server */
    SIM_SENTINEL, /* a master, two replicas, three sentinels */
    SIM_QUORUM,   /* three or five servers that know nothing of each other */
    SIM_CLUSTER   /* three masters that share the slots */
};

/* What may go wrong: bits of a profile. */
#define SIM_F_NET      (1 << 0)
#define SIM_F_STOP     (1 << 1) /* of processes and threads */
#define SIM_F_KILL     (1 << 2) /* of processes */
#define SIM_F_SERVER   (1 << 3) /* stops, crashes; its data stay */
#define SIM_F_REFUSE   (1 << 4) /* LOADING, BUSY, OOM and so on */
#define SIM_F_MEMORY   (1 << 5) /* of the client */
#define SIM_F_LOSS     (1 << 6) /* data vanish: two holders are possible */
#define SIM_F_FAILOVER (1 << 7)
#define SIM_F_CLOCK    (1 << 8) /* clocks drift, as far as is promised */
#define SIM_F_TAKE     (1 << 9) /* locks are deleted and forced, and no more */

enum sim_fault_kind {
    SIM_FAULT_SLOW,
    SIM_FAULT_BLOCKED,
    SIM_FAULT_HOLE,
    SIM_FAULT_FLAKY,
    SIM_FAULT_CUT,
    SIM_FAULT_STOP,
    SIM_FAULT_STALL,
    SIM_FAULT_KILL,
    SIM_FAULT_SERVER_STOP,
    SIM_FAULT_CRASH,
    SIM_FAULT_REFUSE,
    SIM_FAULT_MEMORY,
    SIM_FAULT_CRASH_EMPTY,
    SIM_FAULT_DELETE,
    SIM_FAULT_FLUSH,
    SIM_FAULT_EVICT,
    SIM_FAULT_CLOCK_STEP,
    SIM_FAULT_FAILOVER,
    SIM_FAULT_KINDS
};

struct sim_fault {
    enum sim_fault_kind kind;
    int64_t at, lasts; /* us */
    int client;        /* -1 = all */
    int server;        /* -1 = all */
    int ways;
    int64_t amount;
    bool dropped; /* left out by shrinking */
};

struct sim_plan {
    uint64_t seed;
    const char *profile;
    enum sim_layout layout;
    unsigned may; /* SIM_F_ */
    bool strict;  /* never two holders */
    bool herd;    /* clients open, take once and close (herd_workload.c) */
    int clients, threads, members;
    int peers;    /* Redisson clients */
    bool no_kill; /* clients may not end connections: CLIENT KILL is refused */
    int64_t length_us;
    int64_t lease_ms, command_ms;
    int64_t busy_us; /* the longest time between two calls of a thread */
    int64_t hold_us; /* the longest a lock is usually held */
    int64_t yield_in, stall_in, stall_us;
    struct sim_fault faults[SIM_FAULTS_MAX];
    int nfaults;
};

/* profile: a name, or NULL = as the seed has it. False: there is none. */
bool sim_plan_make(struct sim_plan *p, uint64_t seed, const char *profile);
const char *sim_fault_name(enum sim_fault_kind kind);
/* All profiles, a name each; NULL behind the last. */
const char *sim_profile_name(int i);

#endif
