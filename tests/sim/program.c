/* SPDX-License-Identifier: MIT
 *
 * program.c - the threads of a simulated program: each acquires a lock by one
 * of the public calls, holds it for a while, re-enters or not, releases it, and
 * pauses. It includes the public header only.
 *
 * Each thread calls the checker before and after a call: its result, its
 * duration and the state after it must be what guarantees.md says.
 */
#include "sim/program.h"

#include <stdlib.h>
#include <string.h>

#define TOLD_US 5000000
#define TURN_US 1000000 /* so much earlier is earlier */

static const char *const thing_names[SIM_THINGS] = {
    "plain-a", "plain-b", "fair", "read", "write",
    "fenced",  "slots",   "both", "most"};

const char *sim_thing_name(enum sim_thing t)
{
    return thing_names[t];
}

bool sim_is_group(enum sim_thing t)
{
    return t == SIM_BOTH || t == SIM_MOST;
}

/* ---- what they may answer ---------------------------------------------- */

/* By the plan; or a thread stood still until a command's time was over. */
bool sim_may_fail(const struct sim_program *pr)
{
    return sim_plan.may != 0 ||
           pr->client->proc->longest_us >= sim_plan.command_ms * 500;
}

int64_t sim_take_limit(enum sim_thing t, enum sim_form form,
                       const dibs_lock_opts *o)
{
    int64_t one = sim_plan.command_ms, most = one;

    if (form == FORM_TRY || form == FORM_TRY_ASYNC)
        most = sim_is_group(t) ? 2 * one : one;
    else if (o->wait_ms == 0)
        return -1;
    else
        most = o->wait_ms + one + (t == SIM_FAIR || t == SIM_WRITE ? one : 0) +
               (sim_is_group(t) ? one : 0);
    if (o->replicas)
        most += 2 * o->replicas_timeout_ms + one;
    return most + most / 50 + SLACK_MS;
}

void sim_check_refusal(const struct sim_program *pr, enum sim_thing t,
                       enum sim_form form, const dibs_lock_opts *o,
                       dibs_err err)
{
    bool once = form == FORM_TRY || form == FORM_TRY_ASYNC;

    switch (err) {
    case DIBS_ERR_BUSY:
        if (!once)
            sim_broken("P4", "an acquire of %s says BUSY", thing_names[t]);
        return;
    case DIBS_ERR_TIMEOUT:
        if (once || o->wait_ms == 0)
            sim_broken("P4", "%s: TIMEOUT without a limit", thing_names[t]);
        return;
    case DIBS_ERR_CANCELED:
        return;
    case DIBS_ERR_CONN:
    case DIBS_ERR_UNKNOWN:
    case DIBS_ERR_SERVER:
        if (!sim_may_fail(pr))
            sim_broken("P4", "%s: %s, and nothing is wrong", thing_names[t],
                       dibs_strerror(err));
        return;
    case DIBS_ERR_NOMEM:
        if (!(sim_plan.may & SIM_F_MEMORY))
            sim_broken("P4", "%s: out of memory", thing_names[t]);
        return;
    case DIBS_ERR_REPLICAS:
        if (o->replicas)
            return;
        break;
    default:
        break;
    }
    sim_broken("P4", "%s by %s: %s (%s)", thing_names[t],
               pr->client->proc->name, dibs_strerror(err), dibs_error_text());
}

/* ---- holding ----------------------------------------------------------- */

void sim_claim_lost(const char *name, dibs_owner owner, void *arg)
{
    struct sim_claim *claim = arg;

    (void)name;
    (void)owner;
    sim_totals.lost++;
    if (claim->over)
        sim_broken("P2", "on_lost came after the release had returned");
    if (++claim->told > 1)
        sim_broken("P2", "on_lost came %d times for one acquire", claim->told);
    sim_note("lost: %s", thing_names[claim->thing]);
    if (sim_once_in(&claim->client->chance, 3)) /* a callback takes its time */
        sim_sleep(sim_between(&claim->client->chance, 1, 10000));
    if (claim->over)
        sim_broken("P2", "a release returned while on_lost was running");
}

/* In short naps, so that the end of the run is noticed. */
void sim_hold_on(struct sim_program *pr, int64_t us)
{
    while (us > 0 && !sim_faults_ended && !pr->client->closing) {
        int64_t nap = us < 500000 ? us : 500000;
        sim_sleep(nap);
        us -= nap;
    }
}

/* It is held once, after a call that ended so. Without an answer it may be held
 * twice there: the next command says how often it shall be. */
static void count_one(struct sim_claim *claim, dibs_err err)
{
    if (err != DIBS_ERR_UNKNOWN && err != DIBS_ERR_SERVER &&
        dibs_lock_holds(claim->lock, claim->owner) == 1)
        claim->holds = 1;
}

/* Takes what is held once more, and gives that back. */
static void hold_twice(struct sim_program *pr, struct sim_claim *claim)
{
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
    int64_t from = sim_now(), idle = sim_idle_us(pr->client->proc);

    o.owner = pr->owner;
    if (sim_is_group(claim->thing)) /* without a limit it waits for ever */
        o.wait_ms = 2 * sim_plan.command_ms;
    claim->holds = 0; /* unknown meanwhile */
    dibs_err err = sim_take(pr, claim->lock, FORM_ACQUIRE, &o);
    sim_note("again %s: %s", thing_names[claim->thing], dibs_strerror(err));
    int64_t most =
        (sim_is_group(claim->thing) ? 3 : 2) * sim_plan.command_ms + o.wait_ms;
    sim_check_time("re-entry", from, idle, most * 102 / 100 + SLACK_MS);
    if (pr->client->closing)
        return;
    if (err != DIBS_OK) {
        if (err == DIBS_ERR_BUSY ||
            (err == DIBS_ERR_TIMEOUT && !sim_is_group(claim->thing)) ||
            err == DIBS_ERR_NOT_OWNER || err == DIBS_ERR_WRONGTYPE)
            sim_broken("P4", "re-entry of %s: %s", thing_names[claim->thing],
                       dibs_strerror(err));
        count_one(claim, err);
        return;
    }
    claim->holds = 2;
    claim->proved_at = sim_now();
    if (claim->thing == SIM_FENCED)
        sim_check_token(claim);
    sim_hold_on(pr, sim_skewed(&pr->chance, sim_plan.hold_us));
    claim->holds = 0;
    err = sim_give(pr, claim->lock, &o);
    sim_note("one less %s: %s", thing_names[claim->thing], dibs_strerror(err));
    if (err == DIBS_ERR_NOT_OWNER && !pr->client->closing)
        sim_broken("P5", "%s had two levels and is not held any more",
                   thing_names[claim->thing]);
    /* Refused: it is held twice still, until the server answers again. Or it
     * could not begin. */
    while (err == DIBS_ERR_NOMEM ||
           (err != DIBS_OK && dibs_lock_holds(claim->lock, pr->owner) == 2)) {
        sim_sleep(300000);
        err = dibs_lock_release(claim->lock, &o);
    }
    count_one(claim, err);
}

static void check_release(struct sim_program *pr, const struct sim_claim *claim,
                          bool was_lost, dibs_err err)
{
    const char *name = thing_names[claim->thing];
    int64_t idle = sim_idle_us(pr->client->proc) - claim->lost_idle;

    if (claim->lost_at && !claim->told && !(sim_plan.may & SIM_F_MEMORY) &&
        sim_now() - claim->lost_at > TOLD_US + idle)
        sim_broken("P2", "%s is lost for %.3f s, and on_lost was not called",
                   name, (double)(sim_now() - claim->lost_at) / 1e6);
    if (err == DIBS_ERR_NOT_OWNER || err == DIBS_ERR_INVALID ||
        err == DIBS_ERR_WRONGTYPE || err == DIBS_ERR_AUTH)
        sim_broken("P5", "release of %s, held %s: %s (%s)", name,
                   was_lost ? "and lost" : "until then", dibs_strerror(err),
                   dibs_error_text());
    if (err == DIBS_OK && (was_lost || claim->told))
        sim_broken("P2", "release of %s, which was lost, says OK", name);
    if (err != DIBS_OK && !sim_may_fail(pr) &&
        !(err == DIBS_ERR_LOST && claim->lease_ms))
        sim_broken("P4", "release of %s: %s, and nothing is wrong", name,
                   dibs_strerror(err));
    if (dibs_lock_holds(claim->lock, pr->owner) > 0)
        sim_broken("P4", "%s is held after its last release (%s)", name,
                   dibs_strerror(err));
}

void sim_let_go(struct sim_program *pr, struct sim_claim *claim)
{
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
    struct sim_proc *p = pr->client->proc;
    dibs_err err;

    o.owner = pr->owner;
    struct sim_detached *left = sim_detached_draw(pr, claim, &o);
    bool was_lost = dibs_lock_state(claim->lock, pr->owner) == DIBS_LOST;
    do {
        int64_t from = sim_now(), idle = sim_idle_us(p);
        sim_check_releasing(claim);
        err = sim_give(pr, claim->lock, &o);
        sim_note("release %s: %s", thing_names[claim->thing],
                 dibs_strerror(err));
        sim_check_time("release", from, idle,
                       (sim_is_group(claim->thing) ? 3 : 2) *
                               sim_plan.command_ms * 102 / 100 +
                           SLACK_MS);
        if (err == DIBS_ERR_NOMEM)
            sim_sleep(10000);
    } while (err == DIBS_ERR_NOMEM); /* it could not begin */
    claim->over = true;
    claim->gave = err;
    sim_detached_told(left, claim, err);
    if (err == DIBS_ERR_LOST)
        sim_check_lost(claim);
    if (!pr->client->closing)
        check_release(pr, claim, was_lost, err);
}

void sim_hold(struct sim_program *pr, struct sim_claim *claim)
{
    int64_t most = sim_plan.hold_us;

    sim_check_granted(claim);
    if (sim_once_in(&pr->chance, 6)) /* longer than any lease */
        most = 3 * sim_plan.lease_ms * 1000;
    if (claim->lease_ms && sim_once_in(&pr->chance, 6)) /* just too long */
        sim_hold_on(pr,
                    dibs_lock_valid_ms(claim->lock, pr->owner) * 1000 + 1000);
    else
        sim_hold_on(pr, sim_skewed(&pr->chance, most));
    if (sim_once_in(&pr->chance, 8))
        sim_extend(pr, claim);
    if (sim_once_in(&pr->chance, 5))
        hold_twice(pr, claim);
    if (claim->thing == SIM_WRITE && sim_once_in(&pr->chance, 2))
        sim_read_too(pr, claim);
    if (claim->thing == SIM_READ && sim_once_in(&pr->chance, 4))
        sim_write_too(pr, claim);
    if (!claim->over)
        sim_let_go(pr, claim);
}

/* ---- one round --------------------------------------------------------- */

enum sim_thing sim_pick_thing(struct sim_program *pr)
{
    if (sim_plan.layout == SIM_QUORUM)
        return SIM_MOST;
    if (pr->again)
        return pr->waits_for;
    static const enum sim_thing often[] = {
        SIM_PLAIN_A, SIM_PLAIN_A, SIM_PLAIN_A, SIM_PLAIN_A, SIM_PLAIN_B,
        SIM_FAIR,    SIM_READ,    SIM_WRITE,   SIM_BOTH,    SIM_FENCED,
        SIM_SLOTS,   SIM_FAIR,    SIM_READ,    SIM_WRITE,   SIM_WRITE};
    return often[sim_between(&pr->chance, 0, 14)];
}

static void draw_opts(struct sim_program *pr, enum sim_thing t,
                      dibs_lock_opts *o)
{
    struct sim_chance *c = &pr->chance;

    o->owner = pr->owner;
    o->poll = t != SIM_FAIR && sim_once_in(c, 12);
    if (!sim_once_in(c, 3))
        o->wait_ms = sim_skewed(c, 4 * sim_plan.lease_ms) + 1;
    if (sim_once_in(c, pr->again || t == SIM_READ ? 2 : 4)) /* shorter than the
                                                               one before */
        o->lease_ms =
            sim_between(c, 300, (pr->again ? 1 : 2) * sim_plan.lease_ms);
    else if (sim_once_in(c, 10))
        o->max_hold_ms = sim_between(c, 300, 2 * sim_plan.lease_ms);
    if (t == SIM_MOST && sim_once_in(c, 4)) { /* patience beyond a lease */
        o->max_hold_ms = 0;
        o->lease_ms = sim_between(c, 200, sim_plan.command_ms);
        o->member_ms = sim_between(c, 200, 2 * sim_plan.command_ms);
    }
    if (sim_plan.layout == SIM_SENTINEL && !sim_is_group(t) && t != SIM_SLOTS &&
        sim_once_in(c, 2)) {
        o->replicas = 1;
        o->replicas_timeout_ms = 300;
    }
}

/* P10: a waiter that came a second earlier and is served later. In between it
 * may give up, so this is known when it is served. */
static void check_turn(struct sim_program *pr)
{
    if (sim_plan.may != 0)
        return;
    if (pr->overtaken > 0)
        sim_broken("P10",
                   "%s waited for the fair lock since %.6f s; %d that "
                   "came later had it before",
                   pr->client->proc->name, (double)pr->waits_since / 1e6,
                   pr->overtaken);
    for (int i = 0; i < sim_plan.clients; i++)
        for (int k = 0; k < sim_plan.threads; k++) {
            struct sim_program *o = sim_clients[i].programs[k];
            if (o && o != pr && o->waiting && o->queued &&
                o->waits_since + TURN_US < pr->waits_since)
                o->overtaken++;
        }
}

static void play_round(struct sim_program *pr)
{
    enum sim_thing t = sim_pick_thing(pr);
    dibs_lock *l = pr->client->lock[t];
    struct sim_proc *p = pr->client->proc;
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
    enum sim_form form = (enum sim_form)(sim_once_in(&pr->chance, 3)
                                             ? sim_between(&pr->chance, 1, 3)
                                             : FORM_ACQUIRE);
    struct sim_claim claim = {.client = pr->client,
                              .proc = p,
                              .thing = t,
                              .lock = l,
                              .owner = pr->owner,
                              .asked_at = sim_now(),
                              .holds = 1,
                              .shared = t == SIM_READ};

    draw_opts(pr, t, &o);
    o.on_lost = sim_claim_lost;
    o.arg = &claim;
    claim.lease_ms = o.lease_ms ? o.lease_ms : o.max_hold_ms;
    claim.renewed = !o.lease_ms;
    claim.replicas = o.replicas;
    int64_t idle = sim_idle_us(p), most = sim_take_limit(t, form, &o);
    sim_note("asks for %s, form %d, wait %lld, lease %lld", thing_names[t],
             (int)form, (long long)o.wait_ms, (long long)o.lease_ms);
    pr->waits_for = t;
    pr->waiting = pr->uses[t] = true;
    pr->waits_since = sim_now();
    bool waits = form == FORM_ACQUIRE || form == FORM_ACQUIRE_ASYNC;
    pr->queued = waits && t == SIM_FAIR;
    pr->overtaken = 0;
    struct sim_wait wait = {.what = (int)t, .proc = p, .polls = o.poll};
    if (waits)
        sim_lateness_wait(&wait);
    dibs_err err = sim_take(pr, l, form, &o);
    sim_lateness_done(&wait, err);
    pr->waiting = false;
    claim.since = sim_now();
    sim_note("%s: %s", thing_names[t], dibs_strerror(err));
    if (most >= 0)
        sim_check_time(thing_names[t], claim.asked_at, idle, most);
    if (err == DIBS_OK) {
        /* A callback, or the look below, may have waited for another thread. */
        bool sure = !sim_is_group(t) || (t == SIM_MOST && form <= FORM_TRY);
        sim_totals.acquires++;
        if (sim_plan.strict && sure && idle == sim_idle_us(p) &&
            dibs_lock_state(l, pr->owner) == DIBS_LOST &&
            sim_now() - claim.since < 1000)
            sim_broken(t == SIM_MOST ? "P14" : "P4",
                       "%s is granted, and over at that moment",
                       thing_names[t]);
        if (pr->queued)
            check_turn(pr);
        sim_hold(pr, &claim);
        return;
    }
    sim_totals.refused++;
    if (pr->client->closing)
        return;
    sim_check_refusal(pr, t, form, &o, err);
    if (dibs_lock_holds(l, pr->owner) != 0)
        sim_broken("P4", "%s was not granted and is held", thing_names[t]);
}

int64_t sim_waits_since(dibs_owner owner)
{
    for (int i = 0; i < sim_plan.clients; i++)
        for (int k = 0; k < sim_plan.threads; k++) {
            const struct sim_program *pr = sim_clients[i].programs[k];
            if (pr && pr->owner == owner && pr->waiting)
                return pr->waits_since;
        }
    return SIM_NEVER;
}

/* Another thread cancels a call that waits. */
static void cancel_waiter(struct sim_program *pr)
{
    const struct sim_client *cl = pr->client;
    const struct sim_program *other =
        cl->programs[sim_between(&pr->chance, 0, sim_plan.threads - 1)];

    if (other && other != pr && other->waiting)
        (void)dibs_lock_cancel(cl->lock[other->waits_for], other->owner);
}

static void look_around(struct sim_program *pr)
{
    enum sim_thing t = sim_pick_thing(pr);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    int64_t from = sim_now(), idle = sim_idle_us(pr->client->proc);

    if (sim_is_group(t))
        return;
    if (dibs_lock_info_get(pr->client->lock[t], &info) == DIBS_OK)
        sim_note("sees %s: %s", thing_names[t], info.locked ? "held" : "free");
    sim_check_time("info", from, idle,
                   2 * sim_plan.command_ms * 102 / 100 + SLACK_MS);
}

/* Force-releases a lock. Then two may hold it, until the other
 * one learns of it. */
static void force_holder(struct sim_program *pr)
{
    enum sim_thing t = sim_pick_thing(pr);
    int64_t from = sim_now(), idle = sim_idle_us(pr->client->proc);
    bool was_locked = false;

    if (sim_is_group(t) || t == SIM_SLOTS)
        return;
    dibs_err err = dibs_lock_force_release(pr->client->lock[t], &was_locked);
    sim_note("forces %s: %s%s", thing_names[t], dibs_strerror(err),
             was_locked ? ", it was held" : "");
    sim_check_time("force release", from, idle,
                   2 * sim_plan.command_ms * 102 / 100 + SLACK_MS);
    if (err == DIBS_ERR_INVALID || err == DIBS_ERR_NOT_OWNER ||
        err == DIBS_ERR_BUSY || err == DIBS_ERR_AUTH)
        sim_broken("P4", "force release of %s: %s", thing_names[t],
                   dibs_strerror(err));
}

bool sim_client_uses(const struct sim_client *cl, const char *name,
                     enum sim_thing only)
{
    for (int k = 0; k < sim_plan.threads; k++)
        for (int t = 0; cl->programs[k] && t < SIM_THINGS; t++)
            for (int i = 0; i < SIM_NAMES_MAX && sim_keys[t][i]; i++)
                if (cl->programs[k]->uses[t] &&
                    (only == SIM_THINGS || only == (enum sim_thing)t) &&
                    strcmp(sim_keys[t][i], name) == 0)
                    return true;
    return false;
}

static void *program_main(void *arg)
{
    struct sim_program *pr = arg;
    struct sim_client *cl = pr->client;

    pr->owner =
        pr->own_owner ? dibs_owner_new(cl->c[0]) : dibs_owner_thread(cl->c[0]);
    while (!sim_faults_ended && !cl->closing) {
        if (sim_plan.layout != SIM_QUORUM && sim_once_in(&pr->chance, 8))
            sim_counted_round(cl, &pr->chance, pr->number);
        else if (sim_once_in(&pr->chance, 10))
            sim_pair_round(pr);
        else if (!sim_once_in(&pr->chance, 4) || !sim_adopt_round(pr))
            play_round(pr);
        memset(pr->uses, 0, sizeof pr->uses);
        if (cl->closing)
            break;
        pr->again = !pr->again && sim_once_in(&pr->chance, 4);
        if (pr->again && sim_once_in(&pr->chance, 2))
            pr->waits_for = sim_other_half(pr->waits_for);
        if (pr->again)
            continue;
        if (sim_once_in(&pr->chance, 10))
            cancel_waiter(pr);
        if (sim_once_in(&pr->chance, 15))
            look_around(pr);
        if ((sim_plan.may & SIM_F_LOSS) && sim_once_in(&pr->chance, 30))
            force_holder(pr);
        if ((sim_plan.may & SIM_F_TAKE) && sim_once_in(&pr->chance, 10))
            force_holder(pr);
        if (!sim_faults_ended)
            sim_sleep(sim_skewed(&pr->chance, sim_plan.busy_us) + 1);
    }
    cl->running--;
    sim_wake(cl, 1);
    return NULL;
}

void sim_program_start(struct sim_client *cl, int number)
{
    struct sim_program *pr = calloc(1, sizeof *pr);
    char name[16] = "t0";

    name[1] = (char)('0' + number);
    pr->client = cl;
    pr->number = number;
    pr->chance =
        sim_stream(sim_plan.seed, (uint64_t)(5000 + cl->number * 100 +
                                             cl->generation * 10 + number));
    pr->own_owner =
        sim_once_in(&pr->chance, 4) && sim_plan.layout != SIM_QUORUM;
    cl->programs[number] = pr;
    cl->running++;
    sim_spawn(cl->proc, name, sim_plan.herd ? sim_herd_main : program_main, pr);
}
