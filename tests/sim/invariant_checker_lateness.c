/* SPDX-License-Identifier: MIT
 *
 * invariant_checker_lateness.c - checks L1 to L4 of docs/testing.md.
 *
 * Simulated time is exact, so a message that is lost, or not sent, is noticed:
 * the waiter polls a second or two later. After each command that a server
 * executes, the checker determines what is free that a call waits for, and
 * since when.
 *
 *   L1  what is free is granted to a call that waits for it
 *   L2  a holder whose lock was taken away knows it, if its key is tracked
 *   L3  a close ends when there is nothing left to release
 *   L4  a call that waits at a latch passes when the latch opens
 *
 * Each has a bound of a few round trips without faults (exact), and one that
 * allows for polling otherwise.
 */
#include "sim/simulation.h"

#include <stdio.h>
#include <string.h>

#define GRANT_US 50000   /* a few round trips, of 2 ms at most */
#define CALM_US  500000  /* where threads stall, or others wait, too */
#define LOOK_US  3500000 /* a waiter polls; behind faults more */
#define FAIR_CALM_US                                                           \
    8000000                 /* of a fair lock: concurrent calls, or Redisson   \
                             */
#define FAIR_US    12000000 /* of a fair lock: for two of its queue that died */
#define RECOVER_US 5000000  /* from the last fault, until that counts */
#define VOTES_US   650000 /* a quorum: two pauses of quorum_lock.c, and trips */
#define VOTES_LATE 3      /* more than that, in a run */
#define LOSS_US    100000 /* and a sixth of a lease */
#define CLOSE_US   50000

bool sim_strict_wakeups;
int64_t sim_lateness_longest[SIM_LATE_KINDS];

static struct sim_wait *waits;
static struct item {
    int64_t free_since; /* 0 = it is not free, or no call waits */
    int64_t polled_at;
    bool silent;  /* no command has freed it */
    bool counted; /* in late */
    int late;     /* how often it was, of a quorum */
} items[SIM_WAITED_FOR];

#define LATE_CLOSE SIM_WAITED_FOR
#define LATE_LOSS  (SIM_WAITED_FOR + 1)

static const char *name_of(int what)
{
    static const char *const others[] = {"permits", "latch", "gate", "close",
                                         "loss"};

    return what < SIM_THINGS ? sim_thing_name((enum sim_thing)what)
                             : others[what - SIM_THINGS];
}

const char *sim_lateness_name(int i)
{
    return i <= LATE_LOSS ? name_of(i) : NULL;
}

static void note_longest(int what, int64_t us)
{
    if (sim_lateness_longest[what] < us) {
        sim_lateness_longest[what] = us;
        sim_note("late: %s, %.3f ms", name_of(what), (double)us / 1e3);
    }
}

/* ---- what is free ------------------------------------------------------ */

static bool has(const char *key)
{
    return sr_has(sim_master(key)->s, key);
}

static bool quorum_is_free(void)
{
    for (int i = 0; i < sim_plan.members; i++)
        if (sr_has(sim_servers[i]->s, "q0"))
            return false;
    return true;
}

static bool others_may_read(void)
{
    const struct sr_server *s = sim_master("rw0")->s;

    return !sr_has(s, "rw0") || (sr_field_is(s, "rw0", "mode", "read") &&
                                 !sr_has(s, "dibs_rwlock_gate:{rw0}"));
}

static int64_t number(const char *key)
{
    return sr_number(sim_master(key)->s, key, 0);
}

static int64_t most_needed(void)
{
    int64_t most = 0;

    for (const struct sim_wait *w = waits; w; w = w->next)
        if (w->what == SIM_PERMITS_OF_SEMAPHORE && w->need > most)
            most = w->need;
    return most;
}

static bool is_free(int what)
{
    switch (what) {
    case SIM_READ:
        return others_may_read();
    case SIM_SLOTS:
        return number("s0") > 0;
    case SIM_BOTH:
        return !has("p0") && !has("p1");
    case SIM_MOST:
        return quorum_is_free();
    case SIM_PERMITS_OF_SEMAPHORE:
        return number("m0") >= most_needed();
    case SIM_LATCH_OPEN:
        return number("l0") <= 0;
    case SIM_GATE_OPEN:
        return number("l1") <= 0;
    default:
        return !has(sim_keys[what][0]);
    }
}

static bool ended_silently(int what)
{
    for (int i = 0; what < SIM_THINGS && i < SIM_NAMES_MAX; i++) {
        const char *key = sim_keys[what][i];
        if (key && what != SIM_MOST && sr_expired(sim_master(key)->s, key))
            return true;
    }
    return false;
}

/* ---- who waits --------------------------------------------------------- */

static const struct sim_wait *first_of(int what)
{
    const struct sim_wait *first = NULL;

    for (const struct sim_wait *w = waits; w; w = w->next)
        if (w->what == what && (!first || w->since < first->since))
            first = w;
    return first;
}

static void wait_remove(struct sim_wait *w)
{
    for (struct sim_wait **at = &waits; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    if (w->polls)
        items[w->what].polled_at = sim_now();
    if (!first_of(w->what))
        items[w->what].free_since = 0;
}

/* Returns whether the two have a key in common. */
static bool share_a_key(int a, int b)
{
    if (a == b)
        return true;
    for (int i = 0; a < SIM_THINGS && i < SIM_NAMES_MAX; i++)
        for (int k = 0; b < SIM_THINGS && k < SIM_NAMES_MAX; k++)
            if (sim_keys[a][i] && sim_keys[b][k] &&
                strcmp(sim_keys[a][i], sim_keys[b][k]) == 0)
                return true;
    return false;
}

/* Returns whether a call polls for it, or did lately. Its client may be woken
 * for the calls behind it, and is not subscribed. */
static bool is_polled(int what)
{
    for (const struct sim_wait *w = waits; w; w = w->next)
        if (w->polls && share_a_key(w->what, what))
            return true;
    for (int i = 0; i < SIM_WAITED_FOR; i++)
        if (items[i].polled_at && sim_now() - items[i].polled_at < LOOK_US &&
            share_a_key(i, what))
            return true;
    return false;
}

/* Returns whether a grant must come within a few round trips. */
static bool is_exact(int what, const struct sim_wait *w)
{
    return sim_plan.may == 0 && sim_plan.stall_in == 0 && !w->pair &&
           (sim_plan.peers == 0 || sim_strict_wakeups) && !is_polled(what) &&
           !items[what].silent;
}

/* No message is sent when a lease ends, or to a client that polls. */
static bool has_no_message(int what)
{
    const char *key = sim_keys[what][0];

    return is_polled(what) || sim_ends_silently(key, LOOK_US) ||
           sr_ended_sooner(sim_master(key)->s, key);
}

static int64_t bound_of(int what, const struct sim_wait *w)
{
    if (sim_plan.may != 0)
        return (what == SIM_FAIR ? FAIR_US : LOOK_US) +
               2 * sim_plan.command_ms * 1000;
    if (is_exact(what, w) && what != SIM_MOST)
        return GRANT_US;
    if (what == SIM_PLAIN_A || what == SIM_PLAIN_B || what == SIM_WRITE ||
        what == SIM_FENCED)
        return has_no_message(what) ? LOOK_US : CALM_US;
    return what == SIM_FAIR ? FAIR_CALM_US : LOOK_US;
}

/* A quorum may miss a message a few times in a run, and poll. */
static bool is_late_vote(struct item *it, int64_t late)
{
    if (late <= VOTES_US || it->counted)
        return false;
    it->counted = true;
    return ++it->late > (sim_strict_wakeups ? 0 : VOTES_LATE);
}

/* What it waits for was free until now, and is granted, or still free. */
static void check_late(int what, const struct sim_wait *w)
{
    struct item *it = &items[what];
    int64_t from = it->free_since > w->since ? it->free_since : w->since;
    int64_t late = sim_now() - from;
    bool exact = is_exact(what, w);

    if (exact)
        note_longest(what, late);
    if (late > bound_of(what, w) ||
        (exact && what == SIM_MOST && is_late_vote(it, late)))
        sim_broken(what >= SIM_LATCH_OPEN ? "L4" : "L1",
                   "%s is free for %.3f s, and %s waits for it", name_of(what),
                   (double)late / 1e6, w->proc->name);
}

static void check_item(int what)
{
    struct item *it = &items[what];
    const struct sim_wait *first = first_of(what);

    if (it->free_since && first)
        check_late(what, first);
    if (!first || !is_free(what)) {
        it->free_since = 0;
    } else if (it->free_since == 0) {
        it->free_since = sim_now();
        it->counted = false;
        it->silent = ended_silently(what);
    }
}

static void check_items(void)
{
    for (int what = 0; what < SIM_WAITED_FOR; what++)
        check_item(what);
}

void sim_lateness_wait(struct sim_wait *w)
{
    w->since = sim_now();
    w->next = waits;
    waits = w;
}

void sim_lateness_done(struct sim_wait *w, dibs_err err)
{
    if (err == DIBS_OK && w->what >= SIM_LATCH_OPEN &&
        items[w->what].free_since)
        check_late(w->what, w);
    wait_remove(w);
}

void sim_lateness_dead(const struct sim_proc *p)
{
    for (struct sim_wait **at = &waits; *at;)
        if ((*at)->proc == p)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    for (int what = 0; what < SIM_WAITED_FOR; what++)
        if (!first_of(what))
            items[what].free_since = 0;
}

/* ---- what was taken away ----------------------------------------------- */

static void check_losses_later(void *arg, int64_t number);

/* A key that changes often is verified less often:
 * src/lock/lease/key_invalidation.c delays that by up to a sixth of a lease. */
static int64_t loss_us(void)
{
    return LOSS_US + sim_plan.lease_ms * 1000 / 6;
}

/* If its client tracks the key, it must know the loss at once. */
static void check_loss(struct sim_claim *cl)
{
    const char *key = sim_keys[cl->thing][0];
    const struct sim_server *sv = sim_master(key);
    char owner[DIBS_OWNER_MAX + 8];
    int64_t valid;
    bool sure;

    if (!sim_believes(cl, &sure, &valid)) {
        if (sure && cl->gone_at)
            note_longest(LATE_LOSS, sim_now() - cl->gone_at);
        if (sure) {
            cl->tracked = false;
            cl->gone_at = 0;
        }
        return;
    }
    if (!sim_owner_of(cl, cl->lock, owner))
        return;
    if (sr_field_is(sv->s, key, owner, NULL)) {
        cl->tracked = sim_is_tracked(sv, key, cl->proc);
        cl->gone_at = 0;
    } else if (cl->tracked && cl->gone_at == 0) {
        cl->gone_at = sim_now();
        sim_note("%s does not have %s any more", cl->proc->name, key);
        sim_at(sim_now() + loss_us() + 1, check_losses_later, NULL, 0);
    } else if (cl->tracked && sim_now() - cl->gone_at > loss_us()) {
        sim_broken("L2", "%s lost %s %.3f s ago, and does not know",
                   cl->proc->name, sim_thing_name(cl->thing),
                   (double)(sim_now() - cl->gone_at) / 1e6);
    }
}

static void check_losses(void)
{
    for (struct sim_claim *cl = sim_claims(); cl; cl = cl->next)
        if (!cl->shifts && cl->renewed &&
            (cl->thing <= SIM_FAIR || cl->thing == SIM_FENCED))
            check_loss(cl);
}

static void check_losses_later(void *arg, int64_t number)
{
    (void)arg;
    (void)number;
    check_losses();
}

/* ---- when it checks ---------------------------------------------------- */

void sim_lateness_closed(int64_t from, int64_t idle_us)
{
    int64_t took = sim_now() - from - idle_us;

    if (sim_plan.may != 0 || sim_plan.stall_in != 0)
        return;
    note_longest(LATE_CLOSE, took);
    if (took > CLOSE_US)
        sim_broken("L3", "a close took %.3f s without faults",
                   (double)took / 1e6);
}

static void forget_all(void)
{
    for (int what = 0; what < SIM_WAITED_FOR; what++)
        items[what].free_since = 0;
}

/* Without faults always; with faults, some time after the last one. */
void sim_lateness_look(void)
{
    if (sim_plan.layout == SIM_SENTINEL ||
        (sim_plan.may != 0 && sim_now() < sim_calm_since() + RECOVER_US))
        forget_all();
    else
        check_items();
}

static void server_ran(struct sim_server *sv)
{
    (void)sv;
    if (sim_plan.may == 0)
        check_items();
    else
        check_losses();
}

void sim_lateness_begin(void)
{
    if (sim_plan.stall_in == 0 &&
        (sim_plan.may == 0 || sim_plan.may == SIM_F_TAKE))
        sim_server_ran = server_ran;
}
