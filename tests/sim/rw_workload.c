/* SPDX-License-Identifier: MIT
 *
 * rw_workload.c - both modes of a read-write lock, by one owner. A writer also
 * reads, with a lease of its own or without, and releases the two in either
 * order. A reader tries to write, and gets UPGRADE.
 *
 *   P4   a writer may read: BUSY is wrong, and so is a wait
 *   P4   UPGRADE is only for an owner that reads, and not if its read is lost
 */
#include "sim/program.h"

#define LATER_US 12000000

enum sim_thing sim_other_half(enum sim_thing t)
{
    return t == SIM_READ ? SIM_WRITE : t == SIM_WRITE ? SIM_READ : t;
}

static struct sim_claim claim_for(struct sim_program *pr, enum sim_thing t)
{
    return (struct sim_claim){.client = pr->client,
                              .proc = pr->client->proc,
                              .thing = t,
                              .lock = pr->client->lock[t],
                              .owner = pr->owner,
                              .asked_at = sim_now(),
                              .holds = 1,
                              .shared = t == SIM_READ};
}

static enum sim_form draw_form(struct sim_chance *c)
{
    return sim_once_in(c, 2) ? FORM_ACQUIRE
                             : (enum sim_form)sim_between(c, 1, 3);
}

static bool is_held(const struct sim_claim *claim)
{
    return dibs_lock_state(claim->lock, claim->owner) == DIBS_HELD;
}

/* Takes it, for a claim that is not told to the checker yet. */
static dibs_err ask_for(struct sim_program *pr, struct sim_claim *claim,
                        enum sim_form form, dibs_lock_opts *o)
{
    int64_t idle = sim_idle_us(claim->proc);
    int64_t most = sim_take_limit(claim->thing, form, o);
    const char *name = sim_thing_name(claim->thing);

    o->owner = pr->owner;
    o->on_lost = sim_claim_lost;
    o->arg = claim;
    claim->lease_ms = o->lease_ms;
    claim->renewed = !o->lease_ms;
    sim_note("asks for %s, too, form %d, wait %lld, lease %lld", name,
             (int)form, (long long)o->wait_ms, (long long)o->lease_ms);
    pr->uses[claim->thing] = true;
    dibs_err err = sim_take(pr, claim->lock, form, o);
    claim->since = sim_now();
    sim_note("%s, too: %s", name, dibs_strerror(err));
    if (most >= 0)
        sim_check_time(name, claim->asked_at, idle, most);
    if (err == DIBS_OK)
        sim_totals.acquires++;
    else
        sim_totals.refused++;
    return err;
}

/* ---- a writer that reads ----------------------------------------------- */

/* It was not let in, although it writes. */
static void check_shut_out(const struct sim_program *pr,
                           const struct sim_claim *read, enum sim_form form,
                           const dibs_lock_opts *o, dibs_err err, bool writes)
{
    int64_t calm = sim_calm_since();

    if (pr->client->closing)
        return;
    if (writes && sim_plan.strict &&
        (err == DIBS_ERR_BUSY || err == DIBS_ERR_TIMEOUT) &&
        (calm == 0 || calm + 2 * sim_plan.command_ms * 1000 < read->asked_at))
        sim_broken("P4", "%s writes, and asks to read: %s",
                   pr->client->proc->name, dibs_strerror(err));
    sim_check_refusal(pr, SIM_READ, form, o, err);
}

/* The write half is over, and the other one goes on. */
static void end_write(struct sim_program *pr, struct sim_claim *write)
{
    sim_let_go(pr, write);
    pr->uses[SIM_WRITE] = false;
}

static void hold_read(struct sim_program *pr, struct sim_claim *read,
                      struct sim_claim *write)
{
    struct sim_chance *c = &pr->chance;
    int64_t most =
        sim_once_in(c, 4) ? 2000 * sim_plan.lease_ms : sim_plan.hold_us;

    sim_check_granted(read);
    if (read->lease_ms && sim_once_in(c, 3)) /* just too long */
        sim_hold_on(pr, dibs_lock_valid_ms(read->lock, pr->owner) * 1000 +
                            sim_between(c, 0, 5000));
    else
        sim_hold_on(pr, sim_skewed(c, most));
    if (dibs_lock_state(write->lock, pr->owner) == DIBS_LOST) {
        pr->uses[SIM_WRITE] = false; /* and it gives that back much later */
        sim_hold_on(pr, sim_between(c, 1, LATER_US));
    }
    if (!write->over && sim_once_in(c, 3)) {
        end_write(pr, write);
        sim_hold_on(pr, sim_skewed(c, 2 * most));
    }
    if (sim_once_in(c, 3) && !pr->client->closing)
        sim_write_too(pr, read);
    sim_let_go(pr, read);
}

void sim_read_too(struct sim_program *pr, struct sim_claim *write)
{
    struct sim_chance *c = &pr->chance;

    for (int64_t n = sim_between(c, 1, 4);
         n > 0 && !write->over && !pr->client->closing && !sim_faults_ended;
         n--) {
        struct sim_claim read = claim_for(pr, SIM_READ);
        dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
        enum sim_form form = draw_form(c);
        if (sim_once_in(c, 2))
            o.lease_ms = sim_between(c, 300, sim_plan.lease_ms);
        if (sim_once_in(c, 2))
            o.wait_ms = sim_skewed(c, 4 * sim_plan.lease_ms) + 1;
        bool writes = is_held(write);
        dibs_err err = ask_for(pr, &read, form, &o);
        if (err == DIBS_OK)
            hold_read(pr, &read, write);
        else
            check_shut_out(pr, &read, form, &o, err, writes && is_held(write));
    }
}

/* ---- a reader that would like to write --------------------------------- */

void sim_write_too(struct sim_program *pr, struct sim_claim *read)
{
    struct sim_claim write = claim_for(pr, SIM_WRITE);
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
    enum sim_form form = draw_form(&pr->chance);

    if (dibs_lock_state(write.lock, pr->owner) != DIBS_NOT_HELD ||
        pr->client->closing)
        return;
    o.wait_ms = sim_between(&pr->chance, 1, 2000);
    bool lost = dibs_lock_state(read->lock, pr->owner) == DIBS_LOST;
    bool held = is_held(read);
    dibs_err err = ask_for(pr, &write, form, &o);
    if (pr->client->closing)
        return;
    if (err == DIBS_OK && held && is_held(read))
        sim_broken("P4", "%s reads, and was let in to write",
                   pr->client->proc->name);
    if (err == DIBS_OK) {
        sim_check_granted(&write);
        sim_hold_on(pr, sim_skewed(&pr->chance, sim_plan.hold_us));
        sim_let_go(pr, &write);
    } else if (err == DIBS_ERR_UPGRADE) {
        if (lost)
            sim_broken("P4", "%s has lost its read, and is told that it reads",
                       pr->client->proc->name);
    } else {
        sim_check_refusal(pr, SIM_WRITE, form, &o, err);
    }
    pr->uses[SIM_WRITE] = false;
}
