/* SPDX-License-Identifier: MIT
 *
 * plan.c - the plan that a seed draws.
 *
 * Profiles are a table; without --profile a seed picks one by weight. The
 * strict ones allow what leaves the promise of one holder untouched: whatever
 * happens to the network, to processes and to a server that keeps its data.
 */
#include "sim/plan.h"

#include "sim/net.h"
#include "sim/prng.h"

#include <stddef.h>
#include <string.h>

static const struct profile {
    const char *name;
    enum sim_layout layout;
    unsigned may;
    int faults; /* at most */
    int weight; /* 0 = each EVERY-th seed, from that number on */
    unsigned from, every;
} profiles[] = {
    {"calm", SIM_ONE, 0, 0, 2, 0, 0},
    {"net", SIM_ONE, SIM_F_NET, 14, 4, 0, 0},
    {"stop", SIM_ONE, SIM_F_STOP | SIM_F_KILL | SIM_F_CLOCK, 14, 3, 0, 0},
    {"server", SIM_ONE, SIM_F_SERVER | SIM_F_REFUSE, 10, 3, 0, 0},
    {"storm", SIM_ONE,
     SIM_F_NET | SIM_F_STOP | SIM_F_KILL | SIM_F_SERVER | SIM_F_REFUSE |
         SIM_F_CLOCK,
     24, 6, 0, 0},
    {"memory", SIM_ONE, SIM_F_NET | SIM_F_MEMORY, 14, 2, 0, 0},
    {"loss", SIM_ONE, SIM_F_NET | SIM_F_LOSS | SIM_F_STOP, 14, 2, 0, 0},
    {"failover", SIM_SENTINEL, SIM_F_NET | SIM_F_FAILOVER | SIM_F_STOP, 12, 3,
     0, 0},
    {"quorum", SIM_QUORUM,
     SIM_F_NET | SIM_F_STOP | SIM_F_KILL | SIM_F_SERVER | SIM_F_REFUSE |
         SIM_F_CLOCK,
     16, 3, 0, 0},
    {"cluster", SIM_CLUSTER, SIM_F_NET | SIM_F_STOP | SIM_F_SERVER, 12, 2, 0,
     0},
    {"herd", SIM_ONE, 0, 0, 0, 3, 10},
    {"taken", SIM_ONE, SIM_F_TAKE, 14, 0, 7, 10},
    {"votes", SIM_QUORUM, 0, 0, 0, 9, 20},
};

#define PROFILES (sizeof profiles / sizeof *profiles)

static const struct {
    const char *name;
    unsigned needs;
} kinds[SIM_FAULT_KINDS] = {
    [SIM_FAULT_SLOW] = {"slow", SIM_F_NET},
    [SIM_FAULT_BLOCKED] = {"blocked", SIM_F_NET},
    [SIM_FAULT_HOLE] = {"hole", SIM_F_NET},
    [SIM_FAULT_FLAKY] = {"flaky", SIM_F_NET},
    [SIM_FAULT_CUT] = {"cut", SIM_F_NET},
    [SIM_FAULT_STOP] = {"stop", SIM_F_STOP},
    [SIM_FAULT_STALL] = {"stall", SIM_F_STOP},
    [SIM_FAULT_KILL] = {"kill", SIM_F_KILL},
    [SIM_FAULT_SERVER_STOP] = {"server-stop", SIM_F_SERVER},
    [SIM_FAULT_CRASH] = {"crash", SIM_F_SERVER},
    [SIM_FAULT_REFUSE] = {"refuse", SIM_F_REFUSE},
    [SIM_FAULT_MEMORY] = {"memory", SIM_F_MEMORY},
    [SIM_FAULT_CRASH_EMPTY] = {"crash-empty", SIM_F_LOSS},
    [SIM_FAULT_DELETE] = {"delete", SIM_F_LOSS | SIM_F_TAKE},
    [SIM_FAULT_FLUSH] = {"flush", SIM_F_LOSS},
    [SIM_FAULT_EVICT] = {"evict", SIM_F_LOSS | SIM_F_TAKE},
    [SIM_FAULT_CLOCK_STEP] = {"clock-step", SIM_F_LOSS},
    [SIM_FAULT_FAILOVER] = {"failover", SIM_F_FAILOVER},
};

const char *sim_fault_name(enum sim_fault_kind kind)
{
    return kinds[kind].name;
}

const char *sim_profile_name(int i)
{
    return i < (int)PROFILES ? profiles[i].name : NULL;
}

static const struct profile *find_profile(struct sim_chance *c, uint64_t seed,
                                          const char *name)
{
    int64_t all = 0;

    for (size_t i = 0; i < PROFILES; i++) {
        if (name ? strcmp(name, profiles[i].name) == 0
                 : profiles[i].every &&
                       seed % profiles[i].every == profiles[i].from)
            return &profiles[i];
        all += profiles[i].weight;
    }
    int64_t at = sim_between(c, 0, all - 1);
    for (size_t i = 0; !name && i < PROFILES; i++)
        if ((at -= profiles[i].weight) < 0)
            return &profiles[i];
    return NULL;
}

static void draw_fault(struct sim_plan *p, struct sim_chance *c,
                       struct sim_fault *f)
{
    int servers = p->layout == SIM_ONE ? 1 : p->members;

    do
        f->kind = (enum sim_fault_kind)sim_between(c, 0, SIM_FAULT_KINDS - 1);
    while (!(kinds[f->kind].needs & p->may));
    f->at = sim_between(c, 1000000, p->length_us);
    f->lasts = sim_skewed(c, 4 * p->lease_ms * 1000) + 1000;
    f->client = sim_once_in(c, 5) ? -1 : (int)sim_between(c, 0, p->clients - 1);
    f->server = sim_once_in(c, 3) ? -1 : (int)sim_between(c, 0, servers - 1);
    f->ways = (int)sim_between(c, 1, 3);
    f->amount = sim_between(c, 0, 1000000);
    if (f->kind == SIM_FAULT_SLOW)
        f->amount = sim_skewed(c, 3 * p->command_ms * 1000) + 1000;
    else if (f->kind == SIM_FAULT_FLAKY)
        f->amount = sim_between(c, 2, 40);
    if (f->kind == SIM_FAULT_KILL && f->client < 0)
        f->client = 0;
    if (f->server < 0 && f->kind != SIM_FAULT_SLOW &&
        f->kind != SIM_FAULT_BLOCKED && f->kind != SIM_FAULT_HOLE &&
        f->kind != SIM_FAULT_FLAKY && f->kind != SIM_FAULT_CUT)
        f->server = 0;
}

static void draw_people(struct sim_plan *p, struct sim_chance *c)
{
    static const int64_t leases[] = {1000, 3000, 5000, 10000, 30000};
    static const int64_t limits[] = {300, 1000, 3000};

    p->clients = (int)sim_between(c, 2, 6);
    p->threads = (int)sim_between(c, 1, 4);
    p->members = p->layout == SIM_QUORUM    ? (sim_once_in(c, 3) ? 5 : 3)
                 : p->layout == SIM_ONE     ? 1
                 : p->layout == SIM_CLUSTER ? 3
                                            : 3;
    p->lease_ms = leases[sim_between(c, 0, 4)];
    p->command_ms = limits[sim_between(c, 0, 2)];
    p->length_us = sim_between(c, 20, 90) * 1000000;
    p->busy_us = sim_between(c, 1, 20) * 100000;
    p->hold_us = sim_between(c, 1, 10) * 50000;
    p->yield_in = sim_between(c, 2, 30);
    p->stall_in = sim_once_in(c, 2) ? sim_between(c, 500, 5000) : 0;
    p->stall_us = sim_once_in(c, 3) ? 300000 : 20000;
}

/* Many clients of short life, that hold for a moment. */
static void draw_herd(struct sim_plan *p, struct sim_chance *c)
{
    p->herd = true;
    p->clients = (int)sim_between(c, 6, SIM_CLIENTS_MAX);
    p->threads = sim_once_in(c, 4) ? 2 : 1;
    p->length_us = sim_between(c, 4, 12) * 1000000;
    p->busy_us = sim_between(c, 1, 100) * 10000;
    p->hold_us = sim_between(c, 1, 40) * 1000;
    p->stall_in = 0;
    p->peers = 0;
}

bool sim_plan_make(struct sim_plan *p, uint64_t seed, const char *profile)
{
    struct sim_chance c = sim_stream(seed, 3);
    const struct profile *how = find_profile(&c, seed, profile);

    if (!how)
        return false;
    memset(p, 0, sizeof *p);
    p->seed = seed;
    p->profile = how->name;
    p->layout = how->layout;
    p->may = how->may;
    p->strict = !(how->may & (SIM_F_LOSS | SIM_F_FAILOVER | SIM_F_TAKE));
    draw_people(p, &c);
    if (how->faults > 0)
        p->nfaults = (int)sim_between(&c, 1, how->faults);
    for (int i = 0; i < p->nfaults; i++)
        draw_fault(p, &c, &p->faults[i]);
    if (!(how->may & SIM_F_STOP) && !sim_once_in(&c, 3))
        p->stall_in = 0;
    if (p->layout == SIM_ONE && sim_once_in(&c, 2))
        p->peers = (int)sim_between(&c, 1, 2);
    p->no_kill = sim_once_in(&c, 4);
    if (strcmp(how->name, "herd") == 0)
        draw_herd(p, &c);
    return true;
}
