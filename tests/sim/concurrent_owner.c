/* SPDX-License-Identifier: MIT
 *
 * concurrent_owner.c - one owner with two calls at once: two threads of a
 * process acquire, extend, cancel and release the same lock for the same owner,
 * for a while. They may use one mode of a read-write lock each; and one may use
 * a plain lock while the other uses the multi lock that contains it.
 *
 * It is unknown which of the two has which level. So the checker uses what the
 * owner has (struct sim_claim), and levels are counted here:
 *
 *   P1   as of any other holder
 *   P2   on_lost comes at most once for each grant, and not when all is over
 *   P4   LOST is for an owner that had it; what was granted can be released;
 *        when all was released nothing is held
 *   P7   a call waits for the other one, but not beyond its limit
 */
#include "sim/program.h"

#include <string.h>

#define CALLS_MOST 4

/* What the two have of one thing. */
struct side {
    struct sim_claim claim;
    int granted, told; /* levels ever; losses that on_lost told of */
    int levels;        /* granted, and no release of them has returned */
    bool unsure;       /* a release was refused: it may be held still */
    bool over;
};

struct pair {
    struct side side[2];
    bool same;  /* both are about side[0] */
    bool ended; /* the second caller has */
    struct sim_program second;
};

static struct side *side_of(struct pair *p, int caller)
{
    return &p->side[p->same ? 0 : caller];
}

static int levels_of(const struct pair *p)
{
    return p->side[0].levels + p->side[1].levels;
}

/* One of the two is about a multi lock, which may have a member as a level
 * before it is told of anything. */
static bool has_group(const struct pair *p)
{
    return !p->same && sim_is_group(p->side[1].claim.thing);
}

static int grants_of(const struct pair *p)
{
    return p->side[0].granted + p->side[1].granted;
}

static void side_lost(const char *name, dibs_owner owner, void *arg)
{
    struct side *s = arg;

    (void)name;
    (void)owner;
    sim_totals.lost++;
    sim_note("lost: %s, of a pair", sim_thing_name(s->claim.thing));
    if (s->over)
        sim_broken("P2", "on_lost came after all releases had returned");
    /* A grant is told after it was given, so one more may be on its way. */
    if (++s->told > s->granted + 2)
        sim_broken("P2", "on_lost came %d times for %d grants", s->told,
                   s->granted);
}

/* ---- giving back ------------------------------------------------------- */

static void check_given(const struct sim_program *pr, const struct side *s,
                        bool was_lost, dibs_err err)
{
    const char *name = sim_thing_name(s->claim.thing);

    if ((err == DIBS_ERR_NOT_OWNER && !s->unsure) || err == DIBS_ERR_INVALID ||
        err == DIBS_ERR_WRONGTYPE || err == DIBS_ERR_AUTH)
        sim_broken("P5", "release of %s by one of a pair: %s (%s)", name,
                   dibs_strerror(err), dibs_error_text());
    if (err == DIBS_OK && was_lost && !sim_is_group(s->claim.thing))
        sim_broken("P2", "release of %s, which was lost, says OK", name);
    if (err != DIBS_OK && err != DIBS_ERR_LOST && err != DIBS_ERR_NOT_OWNER &&
        !sim_may_fail(pr))
        sim_broken("P4", "release of %s: %s, and nothing is wrong", name,
                   dibs_strerror(err));
}

/* Was it left for somebody, or was that one of several levels? Then the owner
 * has it still. */
static bool is_left(const struct sim_program *pr, const struct pair *p,
                    const struct side *s, const char *before, int granted)
{
    char now[DIBS_OWNER_MAX];
    const dibs_lock *l = s->claim.lock;

    if (grants_of(p) != granted || levels_of(p) > 0)
        return false;
    if (dibs_lock_state(l, pr->owner) == DIBS_NOT_HELD)
        return true;
    return dibs_lock_owner_text(l, pr->owner, now, sizeof now) == DIBS_OK &&
           strcmp(now, before) != 0;
}

/* INVALID: one half cannot be left while its owner asks for the other. Then it
 * is held as before. NOMEM: it could not begin. */
static dibs_err release_level(struct sim_program *pr, struct pair *p,
                              struct side *s, dibs_lock_opts *o)
{
    const struct sim_claim *claim = &s->claim;
    dibs_err err;

    for (;;) {
        int64_t from = sim_now(), idle = sim_idle_us(claim->proc);
        err = sim_give(pr, claim->lock, o);
        sim_note("release %s, of a pair: %s", sim_thing_name(claim->thing),
                 dibs_strerror(err));
        sim_check_time("release", from, idle,
                       (sim_is_group(claim->thing) ? 3 : 2) *
                               sim_plan.command_ms * 102 / 100 +
                           SLACK_MS);
        if (err == DIBS_ERR_INVALID && o->leave && !p->same)
            o->leave = false;
        else if (err == DIBS_ERR_NOMEM)
            sim_sleep(10000);
        else
            return err;
    }
}

static void give_level(struct sim_program *pr, struct pair *p, struct side *s)
{
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
    char before[DIBS_OWNER_MAX] = "";
    int granted = grants_of(p);
    bool alone = levels_of(p) == 1 && !has_group(p);

    o.owner = pr->owner;
    struct sim_detached *left = sim_detached_draw(pr, &s->claim, &o);
    if (o.leave)
        (void)dibs_lock_owner_text(s->claim.lock, pr->owner, before,
                                   sizeof before);
    bool was_lost = dibs_lock_state(s->claim.lock, pr->owner) == DIBS_LOST;
    dibs_err err = release_level(pr, p, s, &o);
    s->levels--;
    bool sure = err != DIBS_OK ||
                (o.leave && alone && is_left(pr, p, s, before, granted));
    sim_detached_told(left, &s->claim, sure ? err : DIBS_ERR_UNKNOWN);
    if (err == DIBS_ERR_LOST)
        sim_check_lost(&s->claim);
    if (pr->client->closing)
        return;
    check_given(pr, s, was_lost, err);
    s->unsure |= err == DIBS_ERR_CONN || err == DIBS_ERR_SERVER;
}

/* ---- one call ---------------------------------------------------------- */

/* LOST: it had it when the call began, or since. Of a multi lock nobody can
 * tell: the callback of the other call may be still to come. */
static void check_refused(const struct sim_program *pr, struct pair *p,
                          const struct side *s, enum sim_form form,
                          const dibs_lock_opts *o, dibs_err err, bool had)
{
    enum sim_thing t = s->claim.thing;

    if (pr->client->closing ||
        (err == DIBS_ERR_LOST && (had || sim_is_group(t))) ||
        (err == DIBS_ERR_UPGRADE && t == SIM_WRITE && !p->same) ||
        (err == DIBS_ERR_UNKNOWN && t == SIM_MOST))
        return;
    sim_check_refusal(pr, t, form, o, err);
}

static void note_grant(struct side *s, const dibs_lock_opts *o)
{
    int64_t ms = o->lease_ms ? o->lease_ms : sim_plan.lease_ms;

    sim_totals.acquires++;
    s->granted++;
    s->levels++;
    s->claim.proved_at = sim_now();
    if (s->claim.lease_ms < ms)
        s->claim.lease_ms = ms;
}

static void draw_call(struct sim_program *pr, struct side *s, dibs_lock_opts *o)
{
    struct sim_chance *c = &pr->chance;

    o->owner = pr->owner;
    o->on_lost = side_lost;
    o->arg = s;
    if (!sim_once_in(c, 3))
        o->wait_ms = sim_skewed(c, 4 * sim_plan.lease_ms) + 1;
    if (sim_once_in(c, 3))
        o->lease_ms = sim_between(c, 300, sim_plan.lease_ms);
}

static void take_level(struct sim_program *pr, struct pair *p, struct side *s)
{
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
    enum sim_thing t = s->claim.thing;
    enum sim_form form = (enum sim_form)sim_between(&pr->chance, 0, 3);
    bool waits = form == FORM_ACQUIRE || form == FORM_ACQUIRE_ASYNC;
    int64_t from = sim_now(), idle = sim_idle_us(s->claim.proc);
    int granted = grants_of(p);
    bool had = levels_of(p) > 0;

    draw_call(pr, s, &o);
    int64_t most = sim_take_limit(t, form, &o);
    sim_note("asks for %s, of a pair, form %d, wait %lld, lease %lld",
             sim_thing_name(t), (int)form, (long long)o.wait_ms,
             (long long)o.lease_ms);
    struct sim_wait wait = {
        .what = (int)t, .proc = s->claim.proc, .pair = true};
    if (waits)
        sim_lateness_wait(&wait);
    dibs_err err = sim_take(pr, s->claim.lock, form, &o);
    sim_lateness_done(&wait, err);
    sim_note("%s, of a pair: %s", sim_thing_name(t), dibs_strerror(err));
    if (most >= 0) /* and it may be a re-entry by then */
        sim_check_time(sim_thing_name(t), from, idle,
                       most + 2 * sim_plan.command_ms);
    if (err != DIBS_OK) {
        sim_totals.refused++;
        had |= s->unsure || has_group(p) || levels_of(p) > 0 ||
               grants_of(p) != granted;
        check_refused(pr, p, s, form, &o, err, had);
        return;
    }
    note_grant(s, &o);
    sim_hold_on(pr, sim_skewed(&pr->chance, sim_plan.hold_us));
    if (sim_once_in(&pr->chance, 4) && !pr->client->closing)
        sim_extend(pr, &s->claim);
    give_level(pr, p, s);
}

static void play_calls(struct sim_program *pr, struct pair *p, int caller)
{
    for (int64_t n = sim_between(&pr->chance, 1, CALLS_MOST);
         n > 0 && !pr->client->closing && !sim_faults_ended; n--) {
        if (sim_once_in(&pr->chance, 8))
            (void)dibs_lock_cancel(side_of(p, 1 - caller)->claim.lock,
                                   pr->owner);
        take_level(pr, p, side_of(p, caller));
        if (sim_once_in(&pr->chance, 2))
            sim_hold_on(pr, sim_skewed(&pr->chance, sim_plan.hold_us));
    }
}

/* ---- both -------------------------------------------------------------- */

static void *second_main(void *arg)
{
    struct pair *p = arg;

    play_calls(&p->second, p, 1);
    p->ended = true;
    sim_wake(p, 1);
    return NULL;
}

/* What the second one is about. */
static enum sim_thing draw_partner(struct sim_program *pr, enum sim_thing t)
{
    if (!sim_once_in(&pr->chance, 3))
        return t;
    return t == SIM_PLAIN_A || t == SIM_PLAIN_B ? SIM_BOTH : sim_other_half(t);
}

static void side_begin(struct sim_program *pr, struct side *s, enum sim_thing t)
{
    s->claim = (struct sim_claim){.client = pr->client,
                                  .proc = pr->client->proc,
                                  .thing = t,
                                  .lock = pr->client->lock[t],
                                  .owner = pr->owner,
                                  .asked_at = sim_now(),
                                  .since = sim_now(),
                                  .shifts = true,
                                  .shared = t == SIM_READ};
    pr->uses[t] = true;
    sim_check_granted(&s->claim);
}

/* Both have given back all that they were granted. */
static void side_end(struct sim_program *pr, struct side *s)
{
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;

    o.owner = pr->owner;
    while (!pr->client->closing && s->claim.lock &&
           dibs_lock_state(s->claim.lock, pr->owner) != DIBS_NOT_HELD) {
        if (!s->unsure)
            sim_broken("P4", "%s is held after its last release, of a pair",
                       sim_thing_name(s->claim.thing));
        sim_sleep(300000);
        (void)dibs_lock_release(s->claim.lock, &o);
    }
    sim_check_releasing(&s->claim);
    s->over = true;
}

void sim_pair_round(struct sim_program *pr)
{
    enum sim_thing t = sim_pick_thing(pr), other = draw_partner(pr, t);
    struct pair p = {.same = other == t};

    p.second =
        (struct sim_program){.client = pr->client,
                             .number = pr->number,
                             .owner = pr->owner,
                             .chance = sim_stream(sim_draw(&pr->chance), 1)};
    side_begin(pr, &p.side[0], t);
    if (!p.same)
        side_begin(pr, &p.side[1], other);
    pr->waits_for = t;
    sim_spawn(pr->client->proc, "two", second_main, &p);
    play_calls(pr, &p, 0);
    while (!p.ended)
        sim_block(&p, SIM_NEVER);
    side_end(pr, &p.side[1]); /* a group before its members */
    side_end(pr, &p.side[0]);
}
