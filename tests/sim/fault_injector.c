/* SPDX-License-Identifier: MIT
 *
 * fault_injector.c - injects the faults of the plan, each at its time, and ends
 * them: after their duration, or when the faults of the run end.
 *
 * It also runs the replication, with its lag.
 */
#include "sim/simulation.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define REPLICATE_US 4000
#define SENTINELS    3

static struct sim_chance luck;
static int master; /* of the sentinels' service */
static bool replicas_lag;

static struct sim_server *server_of(const struct sim_fault *f)
{
    return sim_servers[f->server < 0 ? 0 : f->server];
}

/* ---- the network ------------------------------------------------------- */

static void open_window(const struct sim_fault *f, enum sim_trouble kind)
{
    struct sim_window w = {.kind = kind,
                           .until = sim_now() + f->lasts,
                           .proc = -1,
                           .server = f->server,
                           .ways = f->ways,
                           .amount = f->amount};

    /* Half of the time only the old ones hang, and new ones are fine: what
     * comes late then comes after what was sent instead. */
    if (kind == SIM_BLOCKED && f->amount % 2)
        w.before = sim_next_link;
    if (f->kind == SIM_FAULT_CUT)
        w.ways = SIM_UP;
    if (f->client >= 0) {
        if (!sim_clients[f->client].proc)
            return;
        w.proc = sim_clients[f->client].proc->id;
    }
    sim_window_open(&w);
}

static void cut_links(const struct sim_fault *f, bool deaf)
{
    const struct sim_proc *p =
        f->client >= 0 ? sim_clients[f->client].proc : NULL;

    if (f->client < 0 || p)
        sim_cut(p ? p->id : -1, f->server, deaf);
}

static void cut_late(void *arg, int64_t number)
{
    (void)number;
    cut_links(arg, true);
}

/* Half of the time the old connections hang first; then the clients hear that
 * they are gone, and the server does not. What was sent comes much later: after
 * what the clients have sent instead. */
static void cut_now(struct sim_fault *f)
{
    int64_t soon = sim_plan.command_ms * 900;

    if (f->amount % 2 == 0) {
        cut_links(f, false);
        return;
    }
    open_window(f, SIM_BLOCKED);
    soon = f->amount % (soon < f->lasts ? soon : f->lasts);
    sim_at(sim_now() + soon, cut_late, f, 0);
}

/* ---- processes --------------------------------------------------------- */

static void go_on(void *arg, int64_t number)
{
    (void)number;
    sim_proc_continue(arg);
}

static void stop_client(const struct sim_fault *f)
{
    for (int i = 0; i < sim_plan.clients; i++) {
        struct sim_proc *p = sim_clients[i].proc;
        if (!p || (f->client >= 0 && f->client != i))
            continue;
        if (f->kind == SIM_FAULT_STALL) {
            sim_proc_stall(p, f->lasts);
        } else {
            sim_proc_stop(p);
            sim_at(sim_now() + f->lasts, go_on, p, 0);
        }
    }
}

static void start_again(void *arg, int64_t number)
{
    struct sim_client *cl = arg;

    (void)number;
    if (!sim_faults_ended && !cl->proc)
        sim_client_start(cl);
}

static void kill_client(const struct sim_fault *f)
{
    struct sim_client *cl = &sim_clients[f->client];

    if (!cl->proc || cl->ended)
        return;
    sim_client_killed(cl);
    sim_at(sim_now() + f->lasts, start_again, cl, 0);
}

/* ---- servers ----------------------------------------------------------- */

static void server_up(void *arg, int64_t number)
{
    (void)number;
    sim_server_continue(arg);
    sim_server_restart(arg);
}

static void crash_server(const struct sim_fault *f, bool keep)
{
    sim_server_crash(server_of(f), keep);
    sim_at(sim_now() + f->lasts, server_up, server_of(f), 0);
}

static void refuse_over(void *arg, int64_t number)
{
    struct sim_server *sv = arg;

    sr_fault(sv->s, (enum sr_fault)number, false);
}

static void refuse_now(const struct sim_fault *f)
{
    static const enum sr_fault kinds[] = {SR_LOADING, SR_BUSY, SR_FULL,
                                          SR_MISCONF};
    enum sr_fault kind = kinds[f->amount % 4];

    sr_fault(server_of(f)->s, kind, true);
    sim_at(sim_now() + f->lasts, refuse_over, server_of(f), (int64_t)kind);
}

/* ---- losses ------------------------------------------------------------ */

static void delete_key(const struct sim_fault *f)
{
    static const char *const keys[] = {"p0", "p1", "f0", "rw0", "t0"};
    struct sim_server *sv = server_of(f);
    const char *key = keys[f->amount % (int64_t)(sizeof keys / sizeof *keys)];

    if (f->kind == SIM_FAULT_FLUSH)
        sim_server_ask(sv, "FLUSHALL");
    else if (f->kind == SIM_FAULT_DELETE)
        sim_server_ask(sv, "DEL %s", key);
    else if (!sv->down && !sv->stopped)
        sr_evict(sv->s, 0, key);
    sim_server_settle(sv);
}

static void step_clock(const struct sim_fault *f)
{
    struct sim_server *sv = server_of(f);

    sv->offset_us += f->amount % 5000000; /* a wall clock is set forward */
    if (!sv->down && !sv->stopped)
        sr_tick(sv->s);
    sim_server_settle(sv);
}

/* ---- replicas and sentinels -------------------------------------------- */

struct sim_server *sim_master(const char *name)
{
    if (sim_plan.layout == SIM_CLUSTER)
        return sim_servers[sr_key_slot(name, strlen(name)) * 3 / SR_SLOTS];
    return sim_plan.layout == SIM_QUORUM ? NULL : sim_servers[master];
}

static void replicate(void *arg, int64_t number)
{
    struct sim_server *m = sim_servers[master];

    (void)arg;
    (void)number;
    for (int i = 0; i < 3; i++) {
        struct sim_server *r = sim_servers[i];
        if (i == master || r->down || r->stopped || m->down)
            continue;
        if (replicas_lag && !sim_once_in(&luck, 50))
            continue;
        sr_deliver(r->s, sr_offset(m->s));
        sr_acknowledge(r->s);
    }
    sim_server_settle(m);
    sim_at(sim_now() + REPLICATE_US, replicate, NULL, 0);
}

static void lag_over(void *arg, int64_t number)
{
    (void)arg;
    (void)number;
    replicas_lag = false;
}

/* The sentinels have noticed; the old master is made a replica. */
static void failover_known(void *arg, int64_t old)
{
    (void)arg;
    sim_server_continue(sim_servers[old]);
    sim_server_restart(sim_servers[old]);
    for (int i = 0; i < 3; i++)
        if (i != master) {
            sr_replicate(sim_servers[master]->s, sim_servers[i]->s);
            sim_cut(-1, i, false);
        }
    for (int i = 3; i < 3 + SENTINELS; i++) {
        sr_sentinel_master(sim_servers[i]->s, "svc", sim_servers[master]->host,
                           sim_servers[master]->port);
        sim_server_settle(sim_servers[i]);
    }
}

/* The one that has read most, as sentinels choose. */
static int best_replica(int64_t number)
{
    int a = (master + 1 + (int)(number % 2)) % 3, b = 3 - master - a;

    return sr_offset(sim_servers[b]->s) > sr_offset(sim_servers[a]->s) ? b : a;
}

static void fail_over(const struct sim_fault *f)
{
    int old = master, next = best_replica(f->amount);

    if (f->amount % 3 == 0)
        sim_server_crash(sim_servers[old], true);
    else if (f->amount % 3 == 1)
        sim_server_stop(sim_servers[old]);
    sr_promote(sim_servers[next]->s);
    master = next;
    sim_note("server %d is the master now", next);
    failover_known(NULL, old);
}

static void lag_then_fail(void *arg, int64_t number)
{
    (void)number;
    fail_over(arg);
}

/* ---- each at its time -------------------------------------------------- */

static void memory_over(void *arg, int64_t number)
{
    (void)arg;
    (void)number;
#ifdef DIBS_FAULTS
    dibs__mem_fail_at(0, false);
#endif
}

static void memory_short(const struct sim_fault *f)
{
#ifdef DIBS_FAULTS
    dibs__mem_fail_at(f->amount % 60 + 1, f->amount % 7 == 0);
#endif
    sim_at(sim_now() + f->lasts % 300000, memory_over, NULL, 0);
}

static int64_t trouble_until;

int64_t sim_calm_since(void)
{
    return trouble_until;
}

static void strike(void *arg, int64_t number)
{
    struct sim_fault *f = arg;

    (void)number;
    if (sim_faults_ended)
        return;
    if (sim_now() + f->lasts > trouble_until)
        trouble_until = sim_now() + f->lasts;
    sim_totals.faults++;
    sim_totals.by_kind[f->kind]++;
    sim_note("fault: %s for %.3f s, client %d, server %d, ways %d, %lld",
             sim_fault_name(f->kind), (double)f->lasts / 1e6, f->client,
             f->server, f->ways, (long long)f->amount);
    switch (f->kind) {
    case SIM_FAULT_SLOW:
        open_window(f, SIM_SLOW);
        if (sim_plan.layout == SIM_SENTINEL) { /* replicas are, too */
            replicas_lag = true;
            sim_at(sim_now() + f->lasts, lag_over, NULL, 0);
        }
        break;
    case SIM_FAULT_BLOCKED:
        open_window(f, SIM_BLOCKED);
        break;
    case SIM_FAULT_HOLE:
        open_window(f, SIM_HOLE);
        break;
    case SIM_FAULT_FLAKY:
        open_window(f, SIM_FLAKY);
        break;
    case SIM_FAULT_CUT:
        cut_now(f);
        break;
    case SIM_FAULT_STOP:
    case SIM_FAULT_STALL:
        stop_client(f);
        break;
    case SIM_FAULT_KILL:
        kill_client(f);
        break;
    case SIM_FAULT_SERVER_STOP:
        sim_server_stop(server_of(f));
        sim_at(sim_now() + f->lasts, server_up, server_of(f), 0);
        break;
    case SIM_FAULT_CRASH:
        crash_server(f, true);
        break;
    case SIM_FAULT_CRASH_EMPTY:
        crash_server(f, false);
        break;
    case SIM_FAULT_REFUSE:
        refuse_now(f);
        break;
    case SIM_FAULT_MEMORY:
        memory_short(f);
        break;
    case SIM_FAULT_DELETE:
    case SIM_FAULT_FLUSH:
    case SIM_FAULT_EVICT:
        delete_key(f);
        break;
    case SIM_FAULT_CLOCK_STEP:
        step_clock(f);
        break;
    case SIM_FAULT_FAILOVER:
        replicas_lag = true;
        sim_at(sim_now() + f->lasts % 500000, lag_then_fail, f, 0);
        sim_at(sim_now() + f->lasts % 500000 + 1, lag_over, NULL, 0);
        break;
    case SIM_FAULT_KINDS:
        break;
    }
}

void sim_faults_begin(void)
{
    luck = sim_stream(sim_plan.seed, 6);
    for (int i = 0; i < sim_plan.nfaults; i++)
        if (!sim_plan.faults[i].dropped)
            sim_at(sim_plan.faults[i].at, strike, &sim_plan.faults[i], 0);
    if (sim_plan.layout == SIM_SENTINEL)
        sim_at(sim_now() + REPLICATE_US, replicate, NULL, 0);
}

void sim_faults_end(void)
{
    sim_windows_close();
    replicas_lag = false;
    memory_over(NULL, 0);
    for (int i = 0; i < sim_nservers; i++) {
        sim_server_continue(sim_servers[i]);
        sim_server_restart(sim_servers[i]);
        for (int k = 0; k < SR_FAULTS; k++)
            sr_fault(sim_servers[i]->s, (enum sr_fault)k, false);
    }
    for (int i = 0; i < sim_plan.clients; i++)
        if (sim_clients[i].proc)
            sim_proc_continue(sim_clients[i].proc);
}
