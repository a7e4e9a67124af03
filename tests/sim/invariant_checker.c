/* SPDX-License-Identifier: MIT
 *
 * invariant_checker.c - checks the promises of docs/guarantees.md.
 *
 * The checker knows what each client believes at this moment by its own clock
 * (dibs_lock_state, called from outside, without its mutexes) and what the
 * server has. It runs at each grant, and periodically.
 *
 *   P1   granted: no other owner believes that it holds the lock
 *   P2   a lost hold stays lost; on_lost comes once; and a client that believes
 *        to hold has the lock on the server, for at least as long
 *   P3   a lock that was taken away is known to be lost within its lease
 *   P4   results: after OK the server has the lock, else the owner does not;
 *        a token is larger than all before; at most as many holders as slots,
 *        each with another slot; permits neither vanish nor multiply
 *   P5   the recursion counts of client and server agree
 *   P6   and P9, P11: at the end no key is left
 *   P7   no call takes longer than its limit
 *   P8   at the end every waiter was granted; P16: after a failover, too
 *   P10  no waiter overtakes in the queue of a fair lock, without faults
 *   P11  a client that closed has no key, no thread, no socket
 *   P13  all or none: as P1 and P5, for each member
 *   P14  a majority of the servers has what counts as held
 *   P15  the replicas have it when an acquire returns OK
 *
 * Where data may vanish (a profile that is not strict), two holders are
 * possible; how long that lasts is measured, and it must end with the lease.
 */
#include "sim/simulation.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MOST_US 400000
#define AGAIN_MOST   10    /* looks at once; a stopped process stays as it is */
#define FAR_PPM      20000 /* more than any clock is off */

static struct sim_claim *claims;
static bool was_locked; /* a mutex was locked: check again soon */
static struct sim_chance eye;

struct sim_claim *sim_claims(void)
{
    return claims;
}

const char *const sim_keys[SIM_THINGS][3] = {
    [SIM_PLAIN_A] = {"p0"}, [SIM_PLAIN_B] = {"p1"},    [SIM_FAIR] = {"f0"},
    [SIM_READ] = {"rw0"},   [SIM_WRITE] = {"rw0"},     [SIM_FENCED] = {"t0"},
    [SIM_SLOTS] = {"s0"},   [SIM_BOTH] = {"p0", "p1"}, [SIM_MOST] = {"q0"},
};

_Noreturn void sim_broken(const char *promise, const char *fmt, ...)
{
    char text[400];
    va_list list;

    va_start(list, fmt);
    vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    printf("BROKEN %s: seed %llu, profile %s, at %.6f s: %s\n", promise,
           (unsigned long long)sim_plan.seed, sim_plan.profile,
           (double)sim_now() / 1e6, text);
    fflush(stdout);
    _exit(1);
}

/* ---- what they believe ------------------------------------------------- */

/* Returns whether it believes that it holds. *sure: no thread of it was inside
 * the mutex. */
bool sim_believes(const struct sim_claim *cl, bool *sure, int64_t *valid_ms)
{
    sim_peek_begin(cl->proc);
    dibs_state state = dibs_lock_state(cl->lock, cl->owner);
    *valid_ms = dibs_lock_valid_ms(cl->lock, cl->owner);
    *sure = sim_peek_end();
    sim_totals.looks++;
    if (!*sure)
        sim_totals.skipped++;
    was_locked |= !*sure;
    return *sure && (state == DIBS_HELD || state == DIBS_SUSPECT);
}

static bool share_key(enum sim_thing a, enum sim_thing b)
{
    for (int i = 0; i < 3 && sim_keys[a][i]; i++)
        for (int j = 0; j < 3 && sim_keys[b][j]; j++)
            if (strcmp(sim_keys[a][i], sim_keys[b][j]) == 0)
                return true;
    return false;
}

static bool is_conflict(const struct sim_claim *a, const struct sim_claim *b)
{
    return a != b && !(a->shared && b->shared) && a->thing != SIM_SLOTS &&
           !(a->owner == b->owner && a->client == b->client) &&
           share_key(a->thing, b->thing);
}

/* No Redisson client may have it. */
static void check_foreign(const struct sim_claim *cl)
{
    const char *who = NULL;

    for (int i = 0; i < 3 && sim_keys[cl->thing][i] && !who; i++)
        who = sim_redisson_hold(sim_keys[cl->thing][i], cl->shared);
    if (who && sim_plan.strict)
        sim_broken("P1", "%s and the Redisson client %s both hold %s",
                   cl->proc->name, who, sim_thing_name(cl->thing));
}

void sim_check_redisson_grant(const char *name, bool shared, const char *who)
{
    bool sure;
    int64_t valid;

    for (const struct sim_claim *cl = claims; cl; cl = cl->next)
        for (int i = 0; i < 3 && sim_keys[cl->thing][i]; i++)
            if (strcmp(sim_keys[cl->thing][i], name) == 0 && sim_plan.strict &&
                !(shared && cl->shared) && sim_believes(cl, &sure, &valid))
                sim_broken("P1", "Redisson client %s was granted %s; %s has it",
                           who, name, cl->proc->name);
}

static void check_alone(const struct sim_claim *cl)
{
    bool sure, sure_other;
    int64_t valid, valid_other;

    if (!sim_believes(cl, &sure, &valid))
        return;
    check_foreign(cl);
    for (const struct sim_claim *o = claims; o; o = o->next) {
        if (!is_conflict(cl, o) || !sim_believes(o, &sure_other, &valid_other))
            continue;
        if (sim_plan.strict)
            sim_broken(cl->thing == SIM_MOST ? "P14" : "P1",
                       "%s and %s both hold: %s (for %lld ms) and %s (for "
                       "%lld ms, since %.6f s)",
                       cl->proc->name, o->proc->name, sim_thing_name(cl->thing),
                       (long long)valid, sim_thing_name(o->thing),
                       (long long)valid_other, (double)o->since / 1e6);
        sim_totals.overlaps++;
    }
}

/* ---- tokens and slots -------------------------------------------------- */

static int64_t last_token;

void sim_check_token(const struct sim_claim *cl)
{
    int64_t token = 0;

    sim_peek_begin(cl->proc);
    dibs_err err = dibs_lock_token(cl->lock, cl->owner, &token);
    if (sim_peek_end() && err == DIBS_OK && token != cl->token)
        sim_broken("P1", "%s has token %lld, and %lld when it takes it again",
                   cl->proc->name, (long long)cl->token, (long long)token);
}

/* The last grant is the newest hold, so its token is the largest. */
static void check_token(struct sim_claim *cl)
{
    bool sure;
    int64_t valid;

    sim_peek_begin(cl->proc);
    dibs_err err = dibs_lock_token(cl->lock, cl->owner, &cl->token);
    if (!sim_peek_end() || err != DIBS_OK || !sim_plan.strict ||
        !sim_believes(cl, &sure, &valid))
        return;
    if (cl->token <= last_token)
        sim_broken("P1", "%s has token %lld; there was %lld before",
                   cl->proc->name, (long long)cl->token, (long long)last_token);
    last_token = cl->token;
}

/* -1 = unknown now. */
static int64_t slot_of(const struct sim_claim *cl)
{
    int64_t slot = -1, valid;
    bool sure;

    if (cl->thing != SIM_SLOTS || !sim_believes(cl, &sure, &valid))
        return -1;
    sim_peek_begin(cl->proc);
    dibs_err err = dibs_lock_slot(cl->lock, cl->owner, &slot);
    return sim_peek_end() && err == DIBS_OK ? slot : -1;
}

static void check_slots(const struct sim_claim *cl)
{
    int64_t slot = slot_of(cl), other;
    int have = 1 + sim_redisson_slots();

    if (slot < 0 || !sim_plan.strict)
        return;
    for (const struct sim_claim *o = claims; o; o = o->next) {
        if (o == cl || (other = slot_of(o)) < 0)
            continue;
        if (other == slot)
            sim_broken("P1", "%s and %s both have slot %lld", cl->proc->name,
                       o->proc->name, (long long)slot);
        if (++have > SIM_SLOTS_MANY)
            sim_broken("P1", "%d hold one of %d slots", have, SIM_SLOTS_MANY);
    }
    if (slot >= SIM_SLOTS_MANY)
        sim_broken("P1", "%s has slot %lld of %d", cl->proc->name,
                   (long long)slot, SIM_SLOTS_MANY);
}

/* The sum of free and acquired permits is constant. */
static void count_permits(void)
{
    struct sim_server *sv = sim_master("s0");
    const char *a = sv ? sim_server_ask(sv, "GET s0") : NULL;

    if (!sim_plan.strict || !a || a[0] != '$' || a[1] == '-')
        return;
    long long free = atoll(strchr(a, '|') + 1);
    a = sim_server_ask(sv, "ZCARD {s0}:timeout");
    if (a && a[0] == ':' && free + atoll(a + 1) != SIM_SLOTS_MANY)
        sim_broken("P5", "%lld permits are free and %lld out, of %d", free,
                   atoll(a + 1), SIM_SLOTS_MANY);
}

/* ---- what the servers have --------------------------------------------- */

/* The owner as the server has it. False: it does not hold, or that is unknown
 * now. */
bool sim_owner_of(const struct sim_claim *cl, const dibs_lock *l,
                  char text[DIBS_OWNER_MAX + 8])
{
    sim_peek_begin(cl->proc);
    dibs_err err = dibs_lock_owner_text(l, cl->owner, text, DIBS_OWNER_MAX);
    bool sure = sim_peek_end();
    if (cl->thing == SIM_WRITE && err == DIBS_OK && !strstr(text, ":write"))
        strcat(text, ":write");
    return sure && err == DIBS_OK;
}

/* The recursion count on the server for this owner; -1 = unknown now. */
static long count_on_server(struct sim_server *sv, const char *name,
                            const char *owner, int64_t *ttl_ms)
{
    const char *a = sim_server_ask(sv, "PTTL %s", name);

    if (!a || a[0] == '-') /* it refuses all commands */
        return -1;
    *ttl_ms = atoll(a + 1);
    a = sim_server_ask(sv, "HGET %s %s", name, owner);
    if (strncmp(a, "$-1", 3) == 0)
        return 0;
    a = strchr(a, '|');
    return a ? atol(a + 1) : 0;
}

/* The server does not have it: a broken promise, or a loss that the holder must
 * notice within its lease. */
static void check_missing(struct sim_claim *cl, const char *what, long there)
{
    int64_t lease =
        cl->lease_ms > sim_plan.lease_ms ? cl->lease_ms : sim_plan.lease_ms;

    if (lease < cl->longest_ms)
        lease = cl->longest_ms;

    if (sim_plan.strict)
        sim_broken(there == 0 ? "P2" : "P5",
                   "%s believes to hold %s%s; the server has it %ld times, not "
                   "%d",
                   cl->proc->name, sim_thing_name(cl->thing), what, there,
                   cl->holds);
    if (cl->odd_since == 0)
        cl->odd_since = sim_now();
    int64_t lasts = sim_now() - cl->odd_since;
    if (lasts > lease * 1000 + lease * 20 + 100000)
        sim_broken("P3", "%s lost %s %.3f s ago and does not know",
                   cl->proc->name, sim_thing_name(cl->thing),
                   (double)lasts / 1e6);
}

/* A slot: the server has a permit of this owner. */
static void check_slot_owner(struct sim_claim *cl)
{
    char owner[DIBS_OWNER_MAX + 8];
    struct sim_server *sv = sim_master("s0");

    if (!sv || !sim_owner_of(cl, cl->lock, owner))
        return;
    const char *a = sim_server_ask(sv, "HVALS {s0}:dibs_slot");
    if (!a || a[0] == '-')
        return;
    if (strstr(a, owner))
        cl->odd_since = 0;
    else
        check_missing(cl, "", 0);
}

static void check_on_server(struct sim_claim *cl, const dibs_lock *l,
                            const char *name, int64_t valid)
{
    char owner[DIBS_OWNER_MAX + 8];
    int64_t ttl = 0;
    struct sim_server *sv = sim_master(name);

    if (!sv || !sim_owner_of(cl, l, owner))
        return;
    long there = count_on_server(sv, name, owner, &ttl);
    if (there < 0)
        return;
    /* A failover, or a late copy, can bring back a count from before. */
    bool late = sim_plan.no_kill && cl->proc->late_copy_at >= cl->since;
    bool other = cl->holds > 0 && there != cl->holds && !cl->shared;
    if (there == 0 || (other && sim_plan.strict && !late)) {
        check_missing(cl, "", there);
        return;
    }
    cl->odd_since = 0;
    int64_t own = valid - valid * cl->proc->ppm / 1000000;
    int64_t its = ttl - ttl * sv->ppm / 1000000;
    if (sim_plan.strict && cl->thing != SIM_READ && ttl >= 0 && own > its + 5)
        sim_broken("P2",
                   "%s believes to hold %s for %lld ms more, the server says "
                   "%lld ms",
                   cl->proc->name, sim_thing_name(cl->thing), (long long)valid,
                   (long long)ttl);
}

/* A quorum: a majority of the servers have it, or cannot be asked. */
static void check_majority(struct sim_claim *cl)
{
    char owner[DIBS_OWNER_MAX + 8];
    int votes = 0;
    int64_t ttl;

    for (int i = 0; i < sim_plan.members; i++) {
        if (!sim_owner_of(cl, cl->client->member[i], owner))
            continue;
        votes += count_on_server(sim_servers[i], "q0", owner, &ttl) != 0;
    }
    if (votes * 2 <= sim_plan.members)
        sim_broken("P14", "%s believes to hold the quorum; %d of %d have it",
                   cl->proc->name, votes, sim_plan.members);
}

static void check_belief(struct sim_claim *cl)
{
    bool sure;
    int64_t valid;

    if (!sim_believes(cl, &sure, &valid)) {
        if (sure && !cl->lost_at && !cl->shifts) {
            cl->lost_at = sim_now();
            cl->lost_idle = sim_idle_us(cl->proc);
            cl->odd_since = 0;
        }
        return;
    }
    if (cl->lost_at)
        sim_broken("P2", "%s had lost %s and holds it again", cl->proc->name,
                   sim_thing_name(cl->thing));
    if (cl->thing == SIM_MOST) {
        check_majority(cl);
    } else if (cl->thing == SIM_SLOTS) {
        check_slot_owner(cl);
    } else if (cl->thing == SIM_BOTH) {
        check_on_server(cl, cl->client->lock[SIM_PLAIN_A], "p0", valid);
        check_on_server(cl, cl->client->lock[SIM_PLAIN_B], "p1", valid);
    } else {
        check_on_server(cl, cl->lock, sim_keys[cl->thing][0], valid);
    }
}

/* P15: right after OK. Skipped if the master has failed over since, or cannot
 * be reached. */
static void check_replicas(const struct sim_claim *cl)
{
    char owner[DIBS_OWNER_MAX + 8];
    int have = 0;
    int64_t ttl;
    bool sure;

    if (!sim_believes(cl, &sure, &ttl) || !sim_owner_of(cl, cl->lock, owner))
        return;
    for (int i = 0; i < 3; i++) {
        long n = count_on_server(sim_servers[i], sim_keys[cl->thing][0], owner,
                                 &ttl);
        have += n != 0;
    }
    if (have < cl->replicas + 1)
        sim_broken("P15", "%s holds %s; %d of 3 servers have it, not %d",
                   cl->proc->name, sim_thing_name(cl->thing), have,
                   cl->replicas + 1);
}

/* ---- when it checks ---------------------------------------------------- */

/* P10: no owner that waited before the granted one still waits. The queue as it
 * was at the last check. */
static char queue[8192];
static int64_t queue_at;

static void record_queue(void)
{
    const char *a = sim_server_ask(sim_master("f0"),
                                   "LRANGE redisson_lock_queue:{f0} 0 -1");

    snprintf(queue, sizeof queue, "%s", a ? a : "");
    queue_at = sim_now();
}

static int64_t waits_since(const char *owner)
{
    int64_t since;

    if (!sim_redisson_wait(owner, &since))
        since = sim_waits_since(strtoull(strrchr(owner, ':') + 1, NULL, 10));
    return since;
}

static void check_order(const struct sim_claim *cl)
{
    char owner[DIBS_OWNER_MAX + 8], first[DIBS_OWNER_MAX + 8];

    if (sim_plan.may != 0 || cl->asked_at > queue_at ||
        !sim_owner_of(cl, cl->lock, owner))
        return;
    const char *granted = strstr(queue, owner);
    const char *now = sim_server_ask(sim_master("f0"),
                                     "LRANGE redisson_lock_queue:{f0} 0 -1");
    for (const char *at = queue; granted && (at = strchr(at, '$'));) {
        at = strchr(at, '|') + 1;
        snprintf(first, sizeof first, "%.*s", (int)strcspn(at, "|"), at);
        if (at >= granted)
            break;
        if (strstr(now, first) && waits_since(first) < queue_at)
            sim_broken("P10", "%s got the fair lock before %s, who came first",
                       owner, first);
    }
}

static void check_waiters(void)
{
    sim_lateness_look();
    if (sim_plan.may == 0 && sim_plan.layout == SIM_ONE && !sim_faults_ended)
        record_queue();
}

static void check_all(void *arg, int64_t number)
{
    static int again;

    (void)arg;
    (void)number;
    was_locked = false;
    for (struct sim_claim *cl = claims; cl; cl = cl->next) {
        check_belief(cl);
        if (sim_plan.strict)
            check_alone(cl);
    }
    if (sim_plan.layout != SIM_QUORUM) {
        count_permits();
        sim_counted_look();
        sim_check_orphans();
    }
    check_waiters();
    again = was_locked && again < AGAIN_MOST ? again + 1 : 0;
    sim_at(sim_now() +
               sim_between(&eye, again ? 20 : 1000, again ? 200 : LOOK_MOST_US),
           check_all, NULL, 0);
}

void sim_check_begin(void)
{
    eye = sim_stream(sim_plan.seed, 4);
    sim_at(sim_now() + 1000, check_all, NULL, 0);
    sim_lateness_begin();
}

void sim_check_granted(struct sim_claim *cl)
{
    cl->next = claims;
    claims = cl;
    check_alone(cl);
    check_belief(cl);
    if (cl->thing == SIM_FAIR && !cl->adopted)
        check_order(cl);
    if (cl->thing == SIM_FENCED && !cl->adopted)
        check_token(cl);
    if (cl->thing == SIM_SLOTS)
        check_slots(cl);
    if (cl->replicas > 0)
        check_replicas(cl);
}

void sim_check_releasing(struct sim_claim *cl)
{
    for (struct sim_claim **at = &claims; *at; at = &(*at)->next)
        if (*at == cl) {
            *at = cl->next;
            return;
        }
}

void sim_check_dead(const struct sim_proc *p)
{
    struct sim_claim **at = &claims;

    sim_counted_dead(p);
    sim_lateness_dead(p);
    sim_detached_dead(p);
    while (*at) {
        if ((*at)->proc == p)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}

void sim_check_time(const char *call, int64_t from, int64_t idle_before,
                    int64_t most_ms)
{
    int64_t idle = sim_idle_us(sim_proc_self()) - idle_before;
    int64_t took = sim_now() - from;

    if (took > most_ms * 1000 + idle)
        sim_broken("P7",
                   "%s by %s took %.3f s; it may take %.3f s (and %.3f s "
                   "without a processor)",
                   call, sim_proc_self()->name, (double)took / 1e6,
                   (double)most_ms / 1e3, (double)idle / 1e6);
}
