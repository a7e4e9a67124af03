/* SPDX-License-Identifier: MIT
 *
 * judge_late.c - what must happen soon. docs/testing.md has the table.
 *
 * Time in a run is exact, so a message that is lost, or not sent, shows: the
 * waiter comes by a look of its own, a second or two later. After each command
 * a server executes, the judge looks whether something that a call waits for is
 * free, and since when.
 *
 *   L1  what is free is granted to a call that waits for it
 *   L2  a holder whose lock was taken away is told, where its key is tracked
 *   L3  a close ends when there is nothing left to give back
 *   L4  who waits at a latch passes when it opens
 *
 * Each has a bound of a few round trips where nothing goes wrong (exact), and
 * one that allows for the looks elsewhere.
 */
#include "sim/world.h"

#include <stdio.h>
#include <string.h>

#define LOOK_LATE_US 3500000
int64_t sim_late_most[SIM_LATE_KINDS];

static struct sim_wait *waits;
static struct item {
    int64_t free_since; /* 0 = it is not free, or nobody waits */
    int64_t polled_at;
    bool silent; /* no command has freed it */
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

const char *sim_late_name(int i)
{
    return i <= LATE_LOSS ? name_of(i) : NULL;
}

static void note_most(int what, int64_t us)
{
    if (sim_late_most[what] < us) {
        sim_late_most[what] = us;
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

static void wait_out(struct sim_wait *w)
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

static bool is_polled(int what)
{
    for (const struct sim_wait *w = waits; w; w = w->next)
        if (w->what == what && w->polls)
            return true;
    return items[what].polled_at &&
           sim_now() - items[what].polled_at < LOOK_LATE_US;
}

static int64_t bound_of(int what, const struct sim_wait *first)
{
    (void)what;
    return first->pair || is_polled(what) || items[what].silent ? LOOK_LATE_US : 50000;
}

/* It was free until now, and is granted, or still free. */
static void check_late(int what, const struct sim_wait *first)
{
    const struct item *it = &items[what];
    int64_t from = it->free_since > first->since ? it->free_since : first->since;
    int64_t late = sim_now() - from, bound = bound_of(what, first);
    bool exact=bound<LOOK_LATE_US;

    if (exact)
        note_most(what, late);
    if (late > bound)
        sim_broken("L1", "%s is free for %.3f ms, and %s waits for it%s%s%s %d peers", name_of(what), (double)late / 1e3, first->proc->name, first->pair ? " pair":"", is_polled(what)?" polled":"",
        it->silent?" silent":"", sim_plan.peers);
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
        it->silent = ended_silently(what);
    }
}

static void check_items(void)
{
    for (int what = 0; what < SIM_WAITED_FOR; what++)
        check_item(what);
}

void sim_late_wait(struct sim_wait *w)
{
    w->since = sim_now();
    w->next = waits;
    waits = w;
}

void sim_late_done(struct sim_wait *w, dibs_err err)
{
    if (err == DIBS_OK && w->what >= SIM_LATCH_OPEN &&
        items[w->what].free_since)
        check_late(w->what, w);
    wait_out(w);
}

void sim_late_dead(const struct sim_proc *p)
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

void sim_late_closed(int64_t from, int64_t idle_us)
{
    note_most(LATE_CLOSE, sim_now() - from - idle_us);
}

void sim_late_look(void)
{
    check_items();
}

static void server_ran(struct sim_server *sv)
{
    (void)sv;
    check_items();
}

void sim_late_begin(void)
{
    if (sim_plan.may == 0 && sim_plan.stall_in == 0)
        sim_server_ran = server_ran;
}
