/* SPDX-License-Identifier: MIT
 *
 * invariant_checker_orphans.c - checks for orphans. P6: a command that runs
 * late may take a lock for a call that has given up. The client releases it
 * soon after the server answers. So, some time after the last fault, a lock
 * that the server has for a client is one that a thread of that client uses.
 */
#include "sim/simulation.h"

#include <stdio.h>
#include <string.h>

#define SOON_US 4000000

/* Of the read-write lock only writers: the field of a reader whose lease is
 * over may remain, and is ignored by scripts. */
static const struct {
    const char *name;
    enum sim_thing thing;
} checked[] = {{"p0", SIM_THINGS},
               {"p1", SIM_THINGS},
               {"f0", SIM_THINGS},
               {"t0", SIM_THINGS},
               {"rw0", SIM_WRITE}};
#define N_CHECKED ((int)(sizeof checked / sizeof *checked))

static int64_t orphan_since[SIM_CLIENTS_MAX][N_CHECKED];
static int64_t idle_before[SIM_CLIENTS_MAX];

/* The next owner of this client among those that hold the lock; of a writer,
 * without ":write". fields: where to begin. Returns where to continue, or NULL
 * if there is none. */
static const char *next_owner(const struct sim_client *cl, const char *fields,
                              bool writes, char owner[DIBS_OWNER_MAX])
{
    const char *uuid = dibs_client_id(cl->c[0]);

    for (const char *at = fields; (at = strstr(at, uuid));) {
        int n = (int)strcspn(at, "|");
        snprintf(owner, DIBS_OWNER_MAX, "%.*s", n, at);
        at += n;
        char *word = strstr(owner, ":write");
        if (writes && word)
            *word = '\0';
        if (!writes || word)
            return at;
    }
    return NULL;
}

/* P6: if CLIENT KILL is refused, an orphan of a command that ran more than a
 * lease after the server answered again lasts for its own lease, which is at
 * most twice the usual one. fields: the owners that have it. */
static bool is_very_late(const struct sim_client *cl, const char *fields,
                         bool writes)
{
    int64_t lasts = 2 * sim_plan.lease_ms * 1000;
    char owner[DIBS_OWNER_MAX];

    if (!sim_plan.no_kill)
        return false;
    for (const char *at = fields; (at = next_owner(cl, at, writes, owner));)
        if (!sim_came_late(cl->proc, owner, sim_now() - lasts - lasts / 50))
            return false;
    return true;
}

static bool is_orphan(const struct sim_client *cl, int i)
{
    const char *name = checked[i].name;
    const char *a = sim_server_ask(sim_master(name), "HKEYS %s", name);
    bool writes = checked[i].thing == SIM_WRITE;
    char owner[DIBS_OWNER_MAX];

    if (!a || sim_client_uses(cl, name, checked[i].thing))
        return false;
    for (const char *at = a; (at = next_owner(cl, at, writes, owner));)
        if (!sim_is_detached(name, owner))
            return !is_very_late(cl, a, writes);
    return false;
}

static void check_client(const struct sim_client *cl, int i)
{
    int64_t *since = &orphan_since[cl->number][i];
    int64_t idle = sim_idle_us(cl->proc);

    if (!is_orphan(cl, i) || idle != idle_before[cl->number])
        *since = 0;
    else if (*since == 0)
        *since = sim_now();
    else if (sim_now() - *since > SOON_US + 2 * sim_plan.command_ms * 1000)
        sim_broken("P6", "%s has %s for %.3f s, and no thread of it uses it",
                   cl->proc->name, checked[i].name,
                   (double)(sim_now() - *since) / 1e6);
}

void sim_check_orphans(void)
{
    bool calm = sim_now() > sim_calm_since();

    if (sim_plan.layout == SIM_QUORUM || sim_plan.layout == SIM_SENTINEL)
        return;
    for (int k = 0; k < sim_plan.clients; k++) {
        const struct sim_client *cl = &sim_clients[k];
        bool there = calm && cl->proc && cl->c[0] && cl->running > 0 &&
                     !cl->closing && !cl->proc->stopped;
        for (int i = 0; i < N_CHECKED; i++)
            if (there)
                check_client(cl, i);
            else
                orphan_since[k][i] = 0;
        if (there)
            idle_before[k] = sim_idle_us(cl->proc);
    }
}
