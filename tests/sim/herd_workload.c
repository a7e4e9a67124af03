/* SPDX-License-Identifier: MIT
 *
 * herd_workload.c - short-lived clients: each opens, acquires once or a few
 * times, holds for a moment and closes; some close while they wait. There are
 * no faults, so what is free must be granted at once
 * (invariant_checker_lateness.c): also when the client that was subscribed for
 * the others has just closed, and when the one that was woken is about to
 * close.
 *
 * A run uses mostly one lock type, which the seed chooses, so that the clients
 * wait for each other.
 *
 * The latch of a herd is closed and opened repeatedly. A call that waits when
 * it opens must pass, unless it is closed again first.
 */
#include "sim/program.h"

#define GATE_WAIT_MS 1500

/* A sim_thing, or one of those that are waited for besides. */
static int draw_what(struct sim_program *pr)
{
    struct sim_chance c = sim_stream(sim_plan.seed, 8);
    int what = (int)sim_between(&c, 0, SIM_WAITED_FOR - 1);

    if (what == SIM_MOST || sim_once_in(&pr->chance, 10)) /* all of them */
        what = (int)sim_between(&pr->chance, 0, SIM_WAITED_FOR - 1);
    if (what == SIM_READ || what == SIM_WRITE)
        what = sim_once_in(&pr->chance, 2) ? SIM_READ : SIM_WRITE;
    return what == SIM_MOST ? SIM_PLAIN_A : what;
}

/* ---- locks ------------------------------------------------------------- */

static void take_once(struct sim_program *pr, enum sim_thing t)
{
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
    enum sim_form form =
        sim_once_in(&pr->chance, 4) ? FORM_ACQUIRE_ASYNC : FORM_ACQUIRE;
    struct sim_client *cl = pr->client;
    struct sim_wait wait = {.what = (int)t, .proc = cl->proc};
    struct sim_claim claim = {.client = cl,
                              .proc = cl->proc,
                              .thing = t,
                              .lock = cl->lock[t],
                              .owner = pr->owner,
                              .asked_at = sim_now(),
                              .holds = 1,
                              .renewed = true,
                              .shared = t == SIM_READ};

    o.owner = pr->owner;
    o.on_lost = sim_claim_lost;
    o.arg = &claim;
    if (sim_once_in(&pr->chance, 6))
        o.wait_ms = sim_between(&pr->chance, 1, 500);
    pr->waits_for = t;
    pr->waiting = pr->uses[t] = true;
    pr->waits_since = sim_now();
    sim_note("asks for %s", sim_thing_name(t));
    sim_lateness_wait(&wait);
    dibs_err err = sim_take(pr, claim.lock, form, &o);
    sim_lateness_done(&wait, err);
    sim_note("%s: %s", sim_thing_name(t), dibs_strerror(err));
    pr->waiting = false;
    claim.since = sim_now();
    if (err != DIBS_OK) {
        sim_totals.refused++;
        if (!cl->closing)
            sim_check_refusal(pr, t, form, &o, err);
        return;
    }
    sim_totals.acquires++;
    sim_check_granted(&claim);
    sim_hold_on(pr, sim_between(&pr->chance, 1, sim_plan.hold_us));
    sim_let_go(pr, &claim);
}

/* ---- a latch ----------------------------------------------------------- */

static void wait_at_gate(struct sim_program *pr, dibs_latch *gate)
{
    dibs_latch_opts o = DIBS_LATCH_OPTS_INIT;
    struct sim_wait wait = {.what = SIM_GATE_OPEN, .proc = pr->client->proc};

    o.wait_ms = GATE_WAIT_MS;
    sim_lateness_wait(&wait);
    dibs_err err = dibs_latch_wait(gate, &o);
    sim_lateness_done(&wait, err);
    sim_note("waited at the gate: %s", dibs_strerror(err));
}

static void play_gate(struct sim_program *pr)
{
    dibs_latch *gate;

    if (dibs_latch_new(pr->client->c[0], "l1", &gate) != DIBS_OK)
        return;
    if (!sim_once_in(&pr->chance, 3)) {
        wait_at_gate(pr, gate);
    } else if (sim_once_in(&pr->chance, 2)) {
        dibs_err err = dibs_latch_set(gate, 1, NULL, NULL);
        sim_note("closes the gate: %s", dibs_strerror(err));
    } else {
        dibs_err err = dibs_latch_count_down(gate, NULL, NULL);
        sim_note("opens the gate: %s", dibs_strerror(err));
    }
    dibs_latch_free(gate);
}

void *sim_herd_main(void *program)
{
    struct sim_program *pr = program;
    struct sim_client *cl = pr->client;
    int rounds =
        sim_once_in(&pr->chance, 4) ? (int)sim_between(&pr->chance, 2, 4) : 1;

    pr->owner = dibs_owner_thread(cl->c[0]);
    while (rounds-- > 0 && !sim_faults_ended && !cl->closing) {
        int what = draw_what(pr);
        if (what == SIM_PERMITS_OF_SEMAPHORE)
            sim_counted_permits(cl, &pr->chance, pr->number);
        else if (what >= SIM_LATCH_OPEN)
            play_gate(pr);
        else
            take_once(pr, (enum sim_thing)what);
        for (int t = 0; t < SIM_THINGS; t++)
            pr->uses[t] = false;
    }
    cl->running--;
    sim_wake(cl, 1);
    return NULL;
}
