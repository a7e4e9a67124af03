/* SPDX-License-Identifier: MIT
 *
 * invariant_checker_end.c - checks that no key is left when a client has
 * closed, and at the end of the run. P6, P9, P11.
 */
#include "sim/simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool expires_soon(struct sim_server *sv, const char *name)
{
    const char *a = sim_server_ask(sv, "PTTL %s", name);

    return a && atoll(a + 1) < sim_plan.lease_ms * 2 / 50 + 10;
}

/* The field of an expired read hold stays as long as others read; the key with
 * its expiry is gone. */
static bool read_has_expired(struct sim_server *sv, const char *uuid)
{
    const char *a = sim_server_ask(sv, "KEYS {rw0}:%s*", uuid);

    return a && strncmp(a, "*0|", 3) == 0;
}

/* P6: if CLIENT KILL is refused, a command that was given up may run after the
 * close, or after the last check of the orphan reaper. That hold lasts for a
 * lease, at most twice the usual one. */
static bool late_copy_may_stay(const struct sim_proc *p, int64_t from)
{
    return sim_plan.no_kill &&
           (p->late_copy_at >= from ||
            (p->very_late_copy_at &&
             sim_now() < p->very_late_copy_at + 2 * sim_plan.lease_ms * 1000));
}

/* A hold that expired by its owner's clock and is not renewed expires on the
 * server one lease after the command ran, which may have been delayed for long.
 * A plain lock is not released before. */
void sim_check_lost(const struct sim_claim *cl)
{
    int64_t ms = cl->lease_ms, until;

    if (cl->proved_at && ms < sim_plan.lease_ms)
        ms = sim_plan.lease_ms; /* it was taken again, renewed */
    until = (cl->proved_at ? cl->proved_at : cl->since) + ms * 1020;
    if (!cl->renewed && cl->client->rest_until < until)
        cl->client->rest_until = until;
}

/* A lock that was left; or a plain one that expired by its owner's clock, and
 * will expire on the server. fields: the owners that have it. */
static bool may_stay(const struct sim_client *cl, const char *uuid,
                     const char *name, const char *fields)
{
    return sim_all_detached(name, uuid, fields) ||
           (name[0] == 'p' && sim_now() < cl->rest_until);
}

void sim_check_closed(const struct sim_client *cl, const char *uuid,
                      int64_t from)
{
    if (sim_plan.layout == SIM_SENTINEL)
        return; /* a release may have been lost with a master */
    if (late_copy_may_stay(cl->proc, from))
        return;
    if (sim_plan.layout != SIM_QUORUM)
        sim_detached_closed(cl->proc);
    for (int i = 0; i < sim_nservers; i++) {
        for (int t = 0; t < SIM_THINGS; t++) {
            char fields[8192];
            const char *a =
                sim_server_ask(sim_servers[i], "HKEYS %s", sim_keys[t][0]);
            snprintf(fields, sizeof fields, "%s", a ? a : "");
            bool has = strstr(fields, uuid) != NULL;
            bool reads = has && t == SIM_READ && !strstr(fields, ":write");
            /* A hold that expired by our clock lasts for the drift margin. */
            if (t == SIM_WRITE ||
                (reads && read_has_expired(sim_servers[i], uuid)))
                continue; /* one key, looked at as SIM_READ */
            if (!has || sim_master(sim_keys[t][0]) != sim_servers[i] ||
                expires_soon(sim_servers[i], sim_keys[t][0]))
                continue;
            if (!may_stay(cl, uuid, sim_keys[t][0], fields))
                sim_broken("P11", "%s is closed, and still has %s",
                           cl->proc->name, sim_keys[t][0]);
        }
    }
}

/* The last token and the numbers of slots and permits stay; idempotency tokens
 * of the latch for a week. */
static bool key_is_left(const char *keys)
{
    for (const char *at = keys; (at = strchr(at, '$'));) {
        const char *name = strchr(at, '|') + 1;
        const char *end = strchr(name, '|');
        size_t len = (size_t)(end - name);
        char key[100];
        at = end;
        snprintf(key, sizeof key, "%.*s", (int)len, name);
        if (!strstr(key, "{t0}") && !strstr(key, "{s0}") &&
            !strstr(key, "{m0}") && !strstr(key, "{l0}") &&
            !strstr(key, "{l1}") && strcmp(key, "l1") != 0 &&
            strcmp(key, "s0") != 0 && strcmp(key, "m0") != 0)
            return true;
    }
    return false;
}

/* Long after the last client closed; one client came since and acquired each
 * lock, which removes the queue entries of clients that died. */
void sim_check_end(void)
{
    if (sim_plan.layout != SIM_QUORUM)
        sim_counted_end();
    for (int i = 0; i < sim_nservers; i++) {
        const char *a = sim_server_ask(sim_servers[i], "KEYS *");
        if (a && a[0] == '*' && key_is_left(a))
            sim_broken("P6", "keys are left on server %d: %.300s", i, a);
    }
}
