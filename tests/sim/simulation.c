/* SPDX-License-Identifier: MIT
 *
 * simulation.c - creates servers and clients, and runs them to the end.
 *
 *   time     what happens
 *   0        servers; each client opens, its threads run their programs
 *   ...      faults, each at its time
 *   length   all faults end; threads finish their current step
 *   +        each client closes: that must be OK, and leave nothing
 *   + lease  no key is left anywhere
 */
#include "sim/simulation.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALM_DOWN_S  60      /* beyond the longest lease all must end */
#define KEEP_MOST_US 2200000 /* a lock that is kept after its release */
#define DRIFT_PPM    4500
#define VISIT_MS     60000
#define VISITOR      16 /* its stream of choices */

struct sim_plan sim_plan;
struct sim_client sim_clients[SIM_CLIENTS_MAX];
struct sim_totals sim_totals;
bool sim_faults_ended, sim_prints_history, sim_closed_unreachable;
int64_t sim_faults_ended_at;

static bool too_late, all_over;
static struct sim_client visitor; /* comes when all others have gone */
static char url[400];

void sim_note(const char *fmt, ...)
{
    const struct sim_proc *p = sim_proc_self();
    va_list list;

    if (!sim_prints_history)
        return;
    printf("%12.6f  %*s%-4s %-4s ", (double)sim_now() / 1e6,
           p ? 3 * (p->id % 8) : 0, "", p ? p->name : "*", sim_self_name());
    va_start(list, fmt);
    vprintf(fmt, list);
    va_end(list);
    printf("\n");
}

/* ---- servers ----------------------------------------------------------- */

static void make_servers(struct sim_chance *c)
{
    int n = sim_plan.layout == SIM_ONE ? 1 : sim_plan.members;
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        struct sr_config how = {.cluster = sim_plan.layout == SIM_CLUSTER};
        struct sim_server *sv = sim_server_new(sim_plan.seed, &how);
        if (sim_plan.may & SIM_F_CLOCK)
            sv->ppm = sim_between(c, -DRIFT_PPM, DRIFT_PPM);
        if (sim_plan.no_kill) {
            sv->rights = "ACL SETUSER default -client|kill";
            sim_server_ask(sv, "%s", sv->rights);
        }
    }
    if (sim_plan.layout == SIM_CLUSTER) {
        for (int at_node = 0; at_node < n; at_node++)
            for (int slot = 0; slot < SR_SLOTS; slot++)
                sr_slots_assign(sim_servers[at_node]->s, slot, slot,
                                sim_servers[slot * 3 / SR_SLOTS]->s);
        snprintf(url, sizeof url,
                 "redis-cluster://10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379");
        return;
    }
    if (sim_plan.layout != SIM_SENTINEL)
        return;
    sr_replicate(sim_servers[0]->s, sim_servers[1]->s);
    sr_replicate(sim_servers[0]->s, sim_servers[2]->s);
    at = (size_t)snprintf(url, sizeof url, "redis-sentinel://");
    for (int i = 3; i < 6; i++) {
        struct sr_config how = {.sentinel = true, .port = 26379};
        struct sim_server *sv = sim_server_new(sim_plan.seed, &how);
        sr_sentinel_master(sv->s, "svc", sim_servers[0]->host,
                           sim_servers[0]->port);
        at += (size_t)snprintf(url + at, sizeof url - at, "%s%s:%d",
                               i > 3 ? "," : "", sv->host, sv->port);
    }
    snprintf(url + at, sizeof url - at, "/svc");
}

/* ---- clients ----------------------------------------------------------- */

static void open_client(struct sim_client *cl, int i)
{
    dibs_client_opts o = DIBS_CLIENT_OPTS_INIT;
    char where[sizeof url];
    int64_t from, idle;
    dibs_err err;

    o.command_timeout_ms = sim_plan.command_ms;
    o.connect_timeout_ms = sim_plan.command_ms;
    o.lease_ms = sim_plan.lease_ms;
    o.max_connections = (unsigned)sim_between(&cl->chance, 1, 4);
    o.lazy = sim_once_in(&cl->chance, 5) && sim_plan.may != 0;
    o.client_name = cl->proc->name;
    memcpy(where, url, sizeof where);
    if (sim_plan.layout == SIM_ONE || sim_plan.layout == SIM_QUORUM)
        snprintf(where, sizeof where, "redis://%s:%d", sim_servers[i]->host,
                 sim_servers[i]->port);
    do {
        from = sim_now();
        idle = sim_idle_us(cl->proc);
        err = dibs_client_open(where, &o, &cl->c[i]);
        sim_check_time("open", from, idle, 2 * sim_plan.command_ms + 200);
        if (err != DIBS_OK) {
            sim_note("open: %s (%s)", dibs_strerror(err), dibs_error_text());
            if (sim_plan.may == 0)
                sim_broken("P7", "a client cannot be opened: %s",
                           dibs_error_text());
            sim_sleep(200000);
        }
    } while (err != DIBS_OK);
}

static void need(dibs_err err)
{
    if (err == DIBS_ERR_NOMEM)
        sim_sleep(1000);
    else if (err != DIBS_OK)
        sim_broken("P4", "a handle cannot be made: %s", dibs_error_text());
}

static void make_locks(struct sim_client *cl)
{
    dibs_client *c = cl->c[0];
    dibs_lock *pair[2];

#define NEED(expression)                                                       \
    do                                                                         \
        err = (expression);                                                    \
    while (need(err), err != DIBS_OK)
    dibs_err err;
    if (sim_plan.layout == SIM_QUORUM) {
        for (int i = 0; i < sim_plan.members; i++)
            NEED(dibs_lock_new(cl->c[i], "q0", &cl->member[i]));
        NEED(dibs_quorum_lock_new(cl->member, (size_t)sim_plan.members,
                                  &cl->lock[SIM_MOST]));
        return;
    }
    NEED(dibs_lock_new(c, "p0", &cl->lock[SIM_PLAIN_A]));
    NEED(dibs_lock_new(c, "p1", &cl->lock[SIM_PLAIN_B]));
    NEED(dibs_fair_lock_new(c, "f0", &cl->lock[SIM_FAIR]));
    NEED(dibs_read_lock_new(c, "rw0", &cl->lock[SIM_READ]));
    NEED(dibs_write_lock_new(c, "rw0", &cl->lock[SIM_WRITE]));
    NEED(dibs_fenced_lock_new(c, "t0", &cl->lock[SIM_FENCED]));
    NEED(dibs_slots_lock_new(c, "s0", SIM_SLOTS_MANY, &cl->lock[SIM_SLOTS]));
    pair[0] = cl->lock[SIM_PLAIN_A];
    pair[1] = cl->lock[SIM_PLAIN_B];
    NEED(dibs_multi_lock_new(pair, 2, &cl->lock[SIM_BOTH]));
#undef NEED
    sim_counted_make(cl);
}

/* Long after all have gone: takes everything once, and gives it back. */
static void take_everything(struct sim_client *cl)
{
    dibs_semaphore_opts so = DIBS_SEMAPHORE_OPTS_INIT;
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
    dibs_err err = DIBS_OK;

    o.wait_ms = VISIT_MS;
    for (int t = 0; t < SIM_THINGS; t++) {
        if (cl->lock[t] && ((err = dibs_lock_acquire(cl->lock[t], &o)) ||
                            (err = dibs_lock_release(cl->lock[t], NULL))))
            sim_broken("P9", "all clients have closed; %s: %s (%s)",
                       sim_thing_name((enum sim_thing)t), dibs_strerror(err),
                       dibs_error_text());
    }
    so.permits = sim_plan.strict ? SIM_PERMITS : 1;
    so.wait_ms = VISIT_MS;
    if (!cl->semaphore)
        return;
    sim_counted_open(cl); /* a client may have set it late */
    if ((err = dibs_semaphore_acquire(cl->semaphore, &so)) ||
        (err = dibs_semaphore_release(cl->semaphore, &so)))
        sim_broken("P9", "all clients have closed; all permits: %s",
                   dibs_strerror(err));
}

static void close_client(struct sim_client *cl)
{
    char uuid[SIM_MEMBERS_MAX][64];

    for (int i = 0; i < cl->nclients; i++) {
        int64_t from = sim_now(), idle = sim_idle_us(cl->proc);
        bool calm = sim_faults_ended || sim_plan.may == 0;
        snprintf(uuid[i], sizeof uuid[i], "%s", dibs_client_id(cl->c[i]));
        dibs_err err = dibs_client_close(cl->c[i], 0);
        sim_note("close: %s", dibs_strerror(err));
        sim_check_time("close", from, idle, 5200);
        sim_lateness_closed(from, sim_idle_us(cl->proc) - idle);
        if (err != DIBS_OK && calm)
            sim_broken("P11", "close of %s: %s (%s)", cl->proc->name,
                       dibs_strerror(err), dibs_error_text());
        if (err == DIBS_OK)
            sim_check_closed(cl, uuid[i], from);
        else
            sim_closed_unreachable = true;
    }
    while (cl->running > 0)
        sim_block(cl, SIM_NEVER);
    for (int i = 0; i < SIM_THINGS; i++)
        dibs_lock_free(cl->lock[i]);
    sim_counted_free(cl);
    for (int i = 0; i < cl->nclients; i++) {
        dibs_lock_free(cl->member[i]);
        dibs_client_free(cl->c[i]);
    }
    sim_sleep(100000); /* look-ups of names end by themselves */
    if (cl->proc->fibers != 1 || cl->proc->sockets != 0)
        sim_broken("P11", "%s is closed and has %d threads, %d sockets",
                   cl->proc->name, cl->proc->fibers - 1, cl->proc->sockets);
}

static void come_back(void *arg, int64_t number)
{
    (void)number;
    sim_client_start(arg);
}

/* It has left in peace, and comes back as another one. */
static void begin_anew(struct sim_client *cl)
{
    cl->proc = NULL;
    cl->generation++;
    if (!sim_faults_ended)
        sim_at(sim_now() + sim_skewed(&cl->chance, sim_plan.herd
                                                       ? sim_plan.busy_us
                                                       : 5000000),
               come_back, cl, 0);
}

static void *client_main(void *arg)
{
    struct sim_client *cl = arg;

    for (int i = 0; i < cl->nclients; i++)
        open_client(cl, i);
    make_locks(cl);
    if (cl == &visitor)
        take_everything(cl);
    for (int i = 0; i < sim_plan.threads && cl != &visitor; i++)
        sim_program_start(cl, i);
    for (bool open = false; cl->running > 0 && !cl->closing;) {
        if (sim_faults_ended && !open && cl->latch)
            sim_counted_open(cl);
        open = sim_faults_ended;
        if (cl->running == 0)
            break;
        cl->closing =
            !sim_block(cl, sim_faults_ended ? SIM_NEVER : cl->closes_at) &&
            !sim_faults_ended;
    }
    if (cl->closing)
        sim_check_dead(cl->proc); /* what they hold ends now */
    else if (!sim_plan.herd)
        sim_sleep(KEEP_MOST_US);
    close_client(cl);
    if (cl->closing || (sim_plan.herd && !sim_faults_ended && cl != &visitor))
        begin_anew(cl);
    else
        cl->ended = true;
    return NULL;
}

void sim_client_start(struct sim_client *cl)
{
    char name[16];

    snprintf(name, sizeof name, "c%d%s", cl->number,
             cl->generation == 0   ? ""
             : cl->generation == 1 ? "'"
                                   : "''");
    memset(cl->lock, 0, sizeof cl->lock);
    memset(cl->member, 0, sizeof cl->member);
    memset(cl->programs, 0, sizeof cl->programs);
    cl->running = 0;
    cl->closing = false;
    cl->nclients = sim_plan.layout == SIM_QUORUM ? sim_plan.members : 1;
    cl->proc = sim_proc_new(name, sim_plan.seed);
    cl->proc->lease_us = sim_plan.lease_ms * 1000;
    cl->chance = sim_stream(
        sim_plan.seed, (uint64_t)(4000 + cl->number * 10 + cl->generation));
    cl->closes_at =
        sim_once_in(&cl->chance, 3)
            ? sim_between(&cl->chance, sim_now(), sim_plan.length_us)
            : SIM_NEVER;
    if (sim_plan.herd && cl->closes_at != SIM_NEVER)
        cl->closes_at = sim_now() + sim_skewed(&cl->chance, 1000000);
    if (sim_plan.may & SIM_F_CLOCK)
        cl->proc->ppm = sim_between(&cl->chance, -DRIFT_PPM, DRIFT_PPM);
    sim_spawn(cl->proc, "main", client_main, cl);
}

void sim_client_killed(struct sim_client *cl)
{
    sim_note("%s is killed", cl->proc->name);
    sim_check_dead(cl->proc);
    sim_proc_kill(cl->proc);
    sim_hang_up_all(cl->proc);
    cl->proc = NULL;
    cl->generation++;
}

/* ---- the run ----------------------------------------------------------- */

static bool ended(void)
{
    if (too_late)
        return true;
    if (!sim_faults_ended)
        return false;
    for (int i = 0; i < sim_plan.clients; i++)
        if (sim_clients[i].proc && !sim_clients[i].ended)
            return false;
    return true;
}

static void late(void *arg, int64_t number)
{
    (void)number;
    too_late |= arg == (visitor.proc ? &visitor : NULL);
}

static void over(void *arg, int64_t number)
{
    (void)arg;
    (void)number;
    all_over = true;
}

static bool is_over(void)
{
    return all_over;
}

static bool has_visited(void)
{
    return visitor.ended || too_late;
}

static int64_t longest_lease_us(void)
{
    return 3 * sim_plan.lease_ms * 1000; /* of a Redisson client */
}

static void heal(void *arg, int64_t number)
{
    (void)arg;
    (void)number;
    sim_faults_ended = true;
    sim_faults_ended_at = sim_now();
    sim_note("all is well from now on");
    sim_faults_end();
    for (int i = 0; i < sim_plan.clients; i++)
        sim_wake(&sim_clients[i], 1);
    sim_at(sim_now() + longest_lease_us() + CALM_DOWN_S * 1000000, late, NULL,
           0);
}

static void say_who_waits(void)
{
    for (int i = 0; i < sim_plan.clients; i++)
        if (sim_clients[i].proc && !sim_clients[i].ended)
            sim_broken("P8", "%s has not ended; %d of its threads wait still",
                       sim_clients[i].proc->name, sim_clients[i].running);
    sim_broken("P8", "no fiber can go on");
}

void sim_run_plan(void)
{
    struct sim_chance c = sim_stream(sim_plan.seed, 5);

    sim_disturb(sim_plan.yield_in, sim_plan.stall_in, sim_plan.stall_us);
    make_servers(&c);
    sim_check_begin();
    sim_faults_begin();
    for (int i = 0; i < sim_plan.clients; i++) {
        sim_clients[i].number = i;
        sim_client_start(&sim_clients[i]);
    }
    sim_redisson_begin();
    sim_at(sim_plan.length_us, heal, NULL, 0);
    if (!sim_run(ended) || too_late)
        say_who_waits();
    sim_at(sim_now() + 4 * longest_lease_us(), over, NULL, 0);
    sim_run(is_over);
    all_over = too_late = false;
    visitor.number = VISITOR;
    sim_client_start(&visitor);
    sim_at(sim_now() + VISIT_MS * SIM_THINGS * 1000, late, &visitor, 0);
    if (!sim_run(has_visited) || !visitor.ended)
        sim_broken("P9", "a later client cannot acquire everything");
    sim_at(sim_now() + 2 * longest_lease_us(), over, NULL, 0);
    sim_run(is_over);
    sim_check_end();
    sim_totals.simulated_us = sim_faults_ended_at;
    sim_totals.turns = sim_turns;
    sim_totals.pieces = sim_pieces;
    sim_totals.cuts = sim_cuts;
    memcpy(sim_totals.late_us, sim_lateness_longest, sizeof sim_totals.late_us);
}
