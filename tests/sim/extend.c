/* SPDX-License-Identifier: MIT
 *
 * extend.c - dibs_lock_extend, also while other calls of the owner are in
 * flight.
 *
 *   P2   after OK it lasts at least as long as was asked for
 *   P4   NOT_OWNER is for an owner without a hold, LOST for a lost hold
 *   P7   two command timeouts, and two more if the server refuses to write
 */
#include "sim/program.h"

/* What the clocks may differ by, and some ms. */
static int64_t margin_ms(int64_t ms)
{
    return ms / 50 + 10;
}

static void check_extended(struct sim_program *pr,
                           const struct sim_claim *claim, int64_t lease_ms,
                           int64_t from)
{
    dibs_state state = dibs_lock_state(claim->lock, pr->owner);
    int64_t valid = dibs_lock_valid_ms(claim->lock, pr->owner);
    int64_t passed = (sim_now() - from) / 1000;

    if (sim_plan.strict && state != DIBS_LOST && !pr->client->closing &&
        valid + passed + margin_ms(lease_ms + passed) < lease_ms)
        sim_broken("P2", "%s was extended to %lld ms and lasts %lld ms",
                   sim_thing_name(claim->thing), (long long)lease_ms,
                   (long long)valid);
}

/* Longer than the checker thought until now. */
static void note_longer(struct sim_claim *claim, int64_t lease_ms)
{
    claim->proved_at = sim_now();
    if (claim->lease_ms && claim->lease_ms < lease_ms)
        claim->lease_ms = lease_ms;
    if (claim->longest_ms < lease_ms)
        claim->longest_ms = lease_ms;
}

static void check_not_extended(const struct sim_program *pr,
                               const struct sim_claim *claim, dibs_err err)
{
    bool fine = err == DIBS_ERR_LOST;

    fine |= err == DIBS_ERR_NOMEM && (sim_plan.may & SIM_F_MEMORY);
    fine |=
        sim_may_fail(pr) && (err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN ||
                             err == DIBS_ERR_SERVER);
    if (!fine)
        sim_broken("P4", "extending %s: %s (%s)", sim_thing_name(claim->thing),
                   dibs_strerror(err), dibs_error_text());
}

void sim_extend(struct sim_program *pr, struct sim_claim *claim)
{
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
    int64_t from = sim_now(), idle = sim_idle_us(pr->client->proc);

    if (sim_is_group(claim->thing) || claim->over)
        return;
    o.owner = pr->owner;
    o.lease_ms = sim_between(&pr->chance, 300, 2 * sim_plan.lease_ms);
    if (claim->longest_ms < o.lease_ms) /* the server may have it so long */
        claim->longest_ms = o.lease_ms;
    dibs_err err = dibs_lock_extend(claim->lock, &o);
    sim_note("extends %s to %lld: %s", sim_thing_name(claim->thing),
             (long long)o.lease_ms, dibs_strerror(err));
    sim_check_time("extending", from, idle,
                   (sim_plan.may & SIM_F_REFUSE ? 4 : 2) * sim_plan.command_ms *
                           102 / 100 +
                       SLACK_MS);
    if (pr->client->closing)
        return;
    if (err != DIBS_OK) {
        check_not_extended(pr, claim, err);
        return;
    }
    check_extended(pr, claim, o.lease_ms, from);
    note_longer(claim, o.lease_ms);
}
