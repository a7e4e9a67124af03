/* SPDX-License-Identifier: MIT
 *
 * scale.c - the library with many clients and many locks, in the simulated
 * world and without faults: what the server gets, and what a client sees.
 *
 *     scale --work NAME --clients N --locks N [--nodes N] [--seconds N]
 *           [--connections N]
 *
 * One run, one line of name=value. tools/scale.py runs many and writes
 * docs/scale.md.
 *
 *   work    what each client does
 *   spread  about once a second: takes one of all locks, holds it for 20 ms
 *   held    takes its share of all locks, and keeps them
 *   plain   as often as it can: takes the one lock, holds it for 1 ms
 *   fair    the same, a fair lock
 *   storm   as held; then the server is away for a second and comes back, with
 *           its data
 *
 * Each client is a process of one thread. Bytes take 60 to 900 us each way. A
 * server reads one piece of bytes after the other, and needs COST_US for each:
 * so it does 100,000 commands a second and no more. Client machines cost
 * nothing.
 */
#include "sim/impl.h"
#include "sim/net.h"
#include "sim/wrap.h"

#include <dibs/dibs.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COST_US    10
#define RAMP_US    400 /* for each client: all have come by then, */
#define RAMP_MIN   500000
#define SETTLE_US  500000  /* and are at it */
#define TAKEN_US   3000000 /* and have taken what they keep */
#define HOLD_US    20000
#define HOT_US     1000
#define AWAY_US    1000000
#define BUCKET_US  100000
#define BUCKETS    400
#define LEASE_MS   30000
#define SAMPLE_MAX 2000000

enum work { SPREAD, HELD, PLAIN, FAIR, STORM, WORKS };
static const char *const work_names[WORKS] = {"spread", "held", "plain", "fair",
                                              "storm"};

static struct {
    enum work work;
    int clients, locks, nodes;
    int connections; /* of a client to a server, at most; 0 = as it likes */
    int64_t seconds;
} want = {.work = SPREAD, .clients = 10, .locks = 100, .seconds = 20};

struct member {
    int number;
    struct sim_proc *proc;
    struct sim_chance chance;
    dibs_client *c;
};

/* What all servers together have counted. */
struct counts {
    uint64_t requests, messages, opened, evals, subscribes, busy_us;
    int64_t sessions;
    uint64_t peak_server; /* requests of the one that had most */
};

static char url[64];
static struct counts first, last;
static bool over;
static int64_t measures_from;
static int64_t *waits, nwaits;
static uint64_t losses, held;
static uint64_t came[BUCKETS], asked[BUCKETS]; /* after the storm */
static int64_t back_at, all_back_us;

/* ---- counting ---------------------------------------------------------- */

static uint64_t calls_of(const struct sr_server *s, const char *name)
{
    const uint64_t *n = sr__dict_get(&s->calls, sr__view(name));

    return n ? *n : 0;
}

static struct counts count_all(void)
{
    struct counts all = {0};

    for (int i = 0; i < sim_nservers; i++) {
        const struct sr_server *s = sim_servers[i]->s;
        all.requests += s->requests;
        all.messages += s->messages;
        all.opened += (uint64_t)s->last_id;
        all.evals += calls_of(s, "evalsha") + calls_of(s, "eval");
        all.subscribes += calls_of(s, "subscribe") + calls_of(s, "ssubscribe");
        all.busy_us += (uint64_t)sim_servers[i]->worked_us;
        if (s->requests > all.peak_server)
            all.peak_server = s->requests;
        for (const struct sr_session *c = s->sessions; c; c = c->next)
            all.sessions += c->mode != SR_ENDED;
        all.sessions--; /* our own */
    }
    return all;
}

static void begin_measuring(void *arg, int64_t number)
{
    (void)arg;
    (void)number;
    first = count_all();
    measures_from = sim_now();
}

static void end_measuring(void *arg, int64_t number)
{
    (void)arg;
    (void)number;
    last = count_all();
    over = true;
}

static void note_wait(int64_t from)
{
    if (measures_from && !over && nwaits < SAMPLE_MAX)
        waits[nwaits++] = sim_now() - from;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* ---- what they do ------------------------------------------------------ */

static void told_lost(const char *name, dibs_owner owner, void *arg)
{
    (void)name;
    (void)owner;
    (void)arg;
    losses++;
}

static void fail(const char *what, dibs_err err)
{
    fprintf(stderr, "scale: at %.3f s: %s: %s (%s)\n", (double)sim_now() / 1e6,
            what, dibs_strerror(err), dibs_error_text());
    exit(1);
}

static dibs_lock *lock_of(struct member *m, int64_t number)
{
    dibs_lock *l = NULL;
    char name[32];

    snprintf(name, sizeof name, "lock:%lld", (long long)number);
    dibs_err err = want.work == FAIR ? dibs_fair_lock_new(m->c, name, &l)
                                     : dibs_lock_new(m->c, name, &l);
    if (err != DIBS_OK)
        fail("a handle", err);
    return l;
}

/* Time between two, so that they come by chance: 0 to twice the mean. */
static void think(struct member *m, int64_t mean_us)
{
    sim_sleep(sim_between(&m->chance, 0, 2 * mean_us) + 1);
}

static void use_lock(struct member *m, dibs_lock *l, int64_t us)
{
    int64_t from = sim_now();
    dibs_err err = dibs_lock_acquire(l, NULL);

    if (err != DIBS_OK)
        fail("an acquire", err);
    note_wait(from);
    sim_sleep(us);
    if ((err = dibs_lock_release(l, NULL)) != DIBS_OK)
        fail("a release", err);
    (void)m;
}

static void play_spread(struct member *m)
{
    while (!over) {
        think(m, 1000000);
        dibs_lock *l = lock_of(m, sim_between(&m->chance, 0, want.locks - 1));
        use_lock(m, l, HOLD_US);
        dibs_lock_free(l);
    }
}

static void play_hot(struct member *m)
{
    dibs_lock *l = lock_of(m, 0);

    while (!over) {
        use_lock(m, l, HOT_US);
        think(m, 1000);
    }
}

static void play_held(struct member *m)
{
    int64_t many = want.locks / want.clients;
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;

    o.on_lost = told_lost;
    for (int64_t i = 0; i < many && !over; i++) {
        dibs_err err = dibs_lock_try(lock_of(m, m->number * many + i), &o);
        if (err != DIBS_OK)
            fail("a try", err);
        held++;
    }
    while (!over)
        sim_sleep(1000000);
}

static int64_t ramp_us(void)
{
    return RAMP_MIN + (int64_t)want.clients * RAMP_US;
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    dibs_client_opts o = DIBS_CLIENT_OPTS_INIT;

    sim_sleep(sim_between(&m->chance, 1, ramp_us()));
    o.lease_ms = LEASE_MS;
    o.max_connections = (unsigned)want.connections;
    dibs_err err = dibs_client_open(url, &o, &m->c);
    if (err != DIBS_OK)
        fail("a client", err);
    if (want.work == SPREAD)
        play_spread(m);
    else if (want.work == PLAIN || want.work == FAIR)
        play_hot(m);
    else
        play_held(m);
    return NULL;
}

/* ---- a server that goes and comes --------------------------------------- */

static void watch_storm(void *arg, int64_t bucket)
{
    struct counts now = count_all();

    (void)arg;
    came[bucket] = now.opened;
    asked[bucket] = now.requests;
    if (!all_back_us && now.sessions >= want.clients)
        all_back_us = sim_now() - back_at;
    if (bucket + 1 < BUCKETS && !over)
        sim_at(sim_now() + BUCKET_US, watch_storm, NULL, bucket + 1);
}

static void server_back(void *arg, int64_t number)
{
    (void)arg;
    (void)number;
    for (int i = 0; i < sim_nservers; i++)
        sim_server_restart(sim_servers[i]);
    back_at = sim_now();
    watch_storm(NULL, 0);
}

static void server_away(void *arg, int64_t number)
{
    (void)arg;
    (void)number;
    for (int i = 0; i < sim_nservers; i++)
        sim_server_crash(sim_servers[i], true);
    sim_at(sim_now() + AWAY_US, server_back, NULL, 0);
}

static uint64_t steepest(const uint64_t *at)
{
    uint64_t most = 0;

    for (int i = 1; i < BUCKETS && at[i]; i++)
        if (at[i] - at[i - 1] > most)
            most = at[i] - at[i - 1];
    return most * (1000000 / BUCKET_US);
}

/* ---- the run ----------------------------------------------------------- */

static bool is_over(void)
{
    return over;
}

static void make_servers(void)
{
    int n = want.nodes ? want.nodes : 1;

    for (int i = 0; i < n; i++) {
        struct sr_config how = {.cluster = want.nodes > 0};
        struct sim_server *sv = sim_server_new(1, &how);
        sv->cost_us = COST_US;
        sim_server_ask(sv, "CONFIG SET maxclients 1000000");
    }
    for (int node = 0; want.nodes && node < n; node++)
        for (int owner = 0; owner < n; owner++)
            sr_slots_assign(sim_servers[node]->s, owner * SR_SLOTS / n,
                            (owner + 1) * SR_SLOTS / n - 1,
                            sim_servers[owner]->s);
    snprintf(url, sizeof url, "%s://10.0.0.1:6379",
             want.nodes ? "redis-cluster" : "redis");
}

static void print_result(void)
{
    double s = (double)(sim_now() - measures_from) / 1e6;
    double n = nwaits ? (double)nwaits : 1;
    double requests = (double)(last.requests - first.requests);

    qsort(waits, (size_t)nwaits, sizeof *waits, by_size);
    printf("work=%s clients=%d locks=%d nodes=%d connections=%lld "
           "requests=%.1f messages=%.1f subscribes=%.1f busy=%.2f "
           "acquires=%.1f per_acquire=%.2f messages_per_acquire=%.2f "
           "p50_ms=%.2f p99_ms=%.2f max_ms=%.2f held=%llu lost=%llu",
           work_names[want.work], want.clients, want.locks, want.nodes,
           (long long)last.sessions, requests / s,
           (double)(last.messages - first.messages) / s,
           (double)(last.subscribes - first.subscribes) / s,
           (double)(last.busy_us - first.busy_us) / 1e4 / s /
               (want.nodes ? want.nodes : 1),
           (double)nwaits / s, requests / n,
           (double)(last.messages - first.messages) / n,
           nwaits ? (double)waits[nwaits / 2] / 1e3 : 0,
           nwaits ? (double)waits[nwaits * 99 / 100] / 1e3 : 0,
           nwaits ? (double)waits[nwaits - 1] / 1e3 : 0,
           (unsigned long long)held, (unsigned long long)losses);
    if (want.work == STORM)
        printf(" back_ms=%lld connects_peak=%llu requests_peak=%llu "
               "requests_all=%llu",
               (long long)(all_back_us / 1000),
               (unsigned long long)steepest(came),
               (unsigned long long)steepest(asked),
               (unsigned long long)(last.requests - first.requests));
    printf("\n");
}

static bool read_option(const char *name, const char *value)
{
    if (strcmp(name, "--clients") == 0)
        want.clients = atoi(value);
    else if (strcmp(name, "--locks") == 0)
        want.locks = atoi(value);
    else if (strcmp(name, "--nodes") == 0)
        want.nodes = atoi(value);
    else if (strcmp(name, "--connections") == 0)
        want.connections = atoi(value);
    else if (strcmp(name, "--seconds") == 0)
        want.seconds = atoll(value);
    else if (strcmp(name, "--work") == 0) {
        int i = 0;
        while (i < WORKS && strcmp(value, work_names[i]) != 0)
            i++;
        want.work = (enum work)i;
        return i < WORKS;
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (!read_option(argv[i], argv[i + 1])) {
            fprintf(stderr, "scale: what is %s %s?\n", argv[i], argv[i + 1]);
            return 2;
        }
    sim_memory_begin();
    sim_begin(1);
    waits = malloc(SAMPLE_MAX * sizeof *waits);
    make_servers();
    for (int i = 0; i < want.clients; i++) {
        struct member *m = calloc(1, sizeof *m);
        m->number = i;
        m->proc = sim_proc_new("c", 1);
        m->chance = sim_stream(7, (uint64_t)i);
        sim_spawn(m->proc, "main", member_main, m);
    }
    bool keeps = want.work == HELD || want.work == STORM;
    int64_t from = sim_now() + ramp_us() + (keeps ? TAKEN_US : SETTLE_US);
    sim_at(from, begin_measuring, NULL, 0);
    if (want.work == STORM)
        sim_at(from + 1, server_away, NULL, 0);
    sim_at(from + want.seconds * 1000000, end_measuring, NULL, 0);
    sim_run(is_over);
    print_result();
    fflush(stdout);
    _Exit(0);
}
