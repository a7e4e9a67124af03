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

/* Of the read-write lock, who writes: a reader whose lease is over may leave a
 * field that counts for nothing. */
static const struct {
    const char *name;
    enum sim_thing thing;
} looked_at[] = {{"p0", SIM_THINGS},
                 {"p1", SIM_THINGS},
                 {"f0", SIM_THINGS},
                 {"t0", SIM_THINGS},
                 {"rw0", SIM_WRITE}};
#define MANY ((int)(sizeof looked_at / sizeof *looked_at))

static int64_t strange_since[SIM_CLIENTS_MAX][MANY];
static int64_t idle_then[SIM_CLIENTS_MAX];

/* The next owner of this client among those that have the lock; of those who
 * write, without the word for it. fields: where to begin. NULL: there is none;
 * else where to go on. */
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

/* P6: if the client may not end connections, a lock that came of a command more
 * than a lease after the server answered again lasts for its own lease, which
 * is twice the usual one at most. fields: the owners that have it. */
static bool came_too_late(const struct sim_client *cl, const char *fields,
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

static bool has_nobody(const struct sim_client *cl, int i)
{
    const char *name = looked_at[i].name;
    const char *a = sim_server_ask(sim_master(name), "HKEYS %s", name);
    bool writes = looked_at[i].thing == SIM_WRITE;
    char owner[DIBS_OWNER_MAX];

    if (!a || sim_client_uses(cl, name, looked_at[i].thing))
        return false;
    for (const char *at = a; (at = next_owner(cl, at, writes, owner));)
        if (!sim_is_detached(name, owner))
            return !came_too_late(cl, a, writes);
    return false;
}

static void look_at_client(const struct sim_client *cl, int i)
{
    int64_t *since = &strange_since[cl->number][i];
    int64_t idle = sim_idle_us(cl->proc);

    if (!has_nobody(cl, i) || idle != idle_then[cl->number])
        *since = 0;
    else if (*since == 0)
        *since = sim_now();
    else if (sim_now() - *since > SOON_US + 2 * sim_plan.command_ms * 1000)
        sim_broken("P6", "%s has %s for %.3f s, and nobody there wants it",
                   cl->proc->name, looked_at[i].name,
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
        for (int i = 0; i < MANY; i++)
            if (there)
                look_at_client(cl, i);
            else
                strange_since[k][i] = 0;
        if (there)
            idle_then[k] = sim_idle_us(cl->proc);
    }
}
