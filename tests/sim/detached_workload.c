/* SPDX-License-Identifier: MIT
 *
 * detached_workload.c - locks that a release leaves on the server: held for a
 * while (keep_ms), or left for adoption by another owner (leave).
 *
 *   P4   a lock that was left exists for as long as its owner could have held
 *        it: until then an adoption does not return NOT_OWNER
 *   P6   until then it is no orphan
 *   P11  an adopter that closes releases it
 *
 * The recursion count of an adopted lock is not checked: it may have had two
 * levels when it was left, and counts once for the adopter.
 *
 *   state     what can happen                                   next
 *   LEAVING   the release has returned: left                    OFFERED
 *             it has returned: kept, or not left                OVER
 *   OFFERED   a thread of any client adopts it                  ASKED
 *   ASKED     it is adopted                                     ADOPTED
 *             outcome unknown                                   OFFERED or OVER
 *             it does not exist any more                        OVER
 *   ADOPTED   it is released                                    OVER
 *             its client closes, or dies                        DROPPED
 *   DROPPED   that client has closed, and it is gone            OVER
 */
#include "sim/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum stage { LEAVING, OFFERED, ASKED, ADOPTED, DROPPED, OVER };

struct sim_detached {
    struct sim_detached *next;
    enum sim_thing thing;
    enum stage stage;
    char text[DIBS_OWNER_MAX + 8];  /* as its owner told it */
    char owner[DIBS_OWNER_MAX + 8]; /* as the server has it, without ":write" */
    bool any; /* a group, or a lost one: that is only how its owners begin */
    const struct sim_proc *proc; /* who had to do with it last */
    int64_t keep_ms;             /* 0 = left for adoption */
    int64_t sure_until; /* us: the server has it for at least so long, */
    int64_t until;      /* us: and for at most so long */
    int64_t token;      /* of a fenced lock; 0 = not known */
};

static struct sim_detached *all_left;

/* The longest that something can last, which a command makes last by now. */
static int64_t longest_from_now(int64_t ms)
{
    return sim_now() + ms * 1020 + 3 * sim_plan.command_ms * 1000;
}

static bool is_named(const struct sim_detached *left, const char *name)
{
    for (int i = 0; i < SIM_NAMES_MAX && sim_keys[left->thing][i]; i++)
        if (strcmp(sim_keys[left->thing][i], name) == 0)
            return true;
    return false;
}

/* ---- for the invariant checker ------------------------------------------ */

bool sim_is_detached(const char *name, const char *owner)
{
    for (const struct sim_detached *left = all_left; left; left = left->next) {
        size_t n = strlen(left->owner);
        if (is_named(left, name) && sim_now() < left->until &&
            (left->any ? strncmp(owner, left->owner, n)
                       : strcmp(owner, left->owner)) == 0)
            return true;
    }
    return false;
}

/* Its lease is over; the field stays as long as others read. */
static bool is_over_reader(const char *name, const char *owner)
{
    if (strcmp(name, sim_keys[SIM_READ][0]) != 0)
        return false;
    const char *a =
        sim_server_ask(sim_master(name), "KEYS {%s}:%s:rwlock*", name, owner);
    return a && strncmp(a, "*0|", 3) == 0;
}

bool sim_all_detached(const char *name, const char *uuid, const char *fields)
{
    char owner[DIBS_OWNER_MAX + 8];

    for (const char *at = fields; (at = strstr(at, uuid));) {
        int n = (int)strcspn(at, "|");
        snprintf(owner, sizeof owner, "%.*s", n, at);
        at += n;
        char *word = strstr(owner, ":write");
        if (word)
            *word = '\0';
        else if (is_over_reader(name, owner))
            continue;
        if (!sim_is_detached(name, owner))
            return false;
    }
    return true;
}

bool sim_ends_silently(const char *name, int64_t within_us)
{
    for (const struct sim_detached *left = all_left; left; left = left->next)
        if (is_named(left, name) && left->stage != ADOPTED &&
            (left->until == SIM_NEVER || sim_now() < left->until + within_us))
            return true;
    return false;
}

void sim_detached_dead(const struct sim_proc *p)
{
    for (struct sim_detached *left = all_left; left; left = left->next) {
        if (left->proc != p || left->stage == OFFERED)
            continue;
        left->stage = left->stage == ADOPTED ? DROPPED : OVER;
        left->until = longest_from_now(2 * sim_plan.lease_ms);
    }
}

static bool has_owner(const char *fields, const char *owner)
{
    size_t n = strlen(owner);

    for (const char *at = fields; (at = strstr(at, owner)); at += n)
        if (at[n] == '|' || at[n] == ':')
            return true;
    return false;
}

void sim_detached_closed(const struct sim_proc *p)
{
    for (struct sim_detached *left = all_left; left; left = left->next) {
        const char *key = sim_keys[left->thing][0];
        if (left->proc != p || left->stage != DROPPED)
            continue;
        left->stage = OVER;
        const char *a = sim_server_ask(sim_master(key), "HKEYS %s", key);
        if (a && has_owner(a, left->owner))
            sim_broken("P11",
                       "%s is closed, and still has %s, which it had "
                       "adopted from %s",
                       p->name, sim_thing_name(left->thing), left->text);
    }
}

/* ---- leaving ----------------------------------------------------------- */

static bool has_other_half(const struct sim_program *pr, enum sim_thing t)
{
    enum sim_thing other = sim_other_half(t);

    return other != t &&
           dibs_lock_state(pr->client->lock[other], pr->owner) != DIBS_NOT_HELD;
}

static struct sim_detached *left_new(struct sim_program *pr,
                                     const struct sim_claim *claim)
{
    struct sim_detached *left = calloc(1, sizeof *left);

    left->thing = claim->thing;
    left->proc = pr->client->proc;
    left->until = SIM_NEVER;
    left->next = all_left;
    all_left = left;
    return left;
}

/* False: it has no name: it is lost, or a group. */
static bool can_be_left(struct sim_detached *left, const struct sim_program *pr,
                        const struct sim_claim *claim)
{
    if (dibs_lock_owner_text(claim->lock, pr->owner, left->text,
                             DIBS_OWNER_MAX) != DIBS_OK)
        return false;
    strcpy(left->owner, left->text);
    char *word = strstr(left->owner, ":write");
    if (word)
        *word = '\0';
    left->token = claim->token;
    left->sure_until =
        sim_now() + dibs_lock_valid_ms(claim->lock, pr->owner) * 990;
    return true;
}

struct sim_detached *sim_detached_draw(struct sim_program *pr,
                                       const struct sim_claim *claim,
                                       dibs_lock_opts *o)
{
    struct sim_chance *c = &pr->chance;
    struct sim_detached *left;

    /* All is to be free soon; or all who wait are to get it at once. */
    if (sim_faults_ended || sim_plan.herd)
        return NULL;
    if (claim->thing != SIM_READ && sim_once_in(c, 40)) {
        left = left_new(pr, claim);
        o->keep_ms = left->keep_ms = sim_between(c, 100, 2000);
        left->any = !can_be_left(left, pr, claim);
        if (left->any)
            snprintf(left->owner, sizeof left->owner,
                     "%s:", dibs_client_id(pr->client->c[0]));
        return left;
    }
    if (!sim_once_in(c, 15) || sim_is_group(claim->thing) ||
        has_other_half(pr, claim->thing))
        return NULL;
    left = left_new(pr, claim);
    o->leave = can_be_left(left, pr, claim);
    if (!o->leave)
        left->until = 0;
    return o->leave ? left : NULL;
}

void sim_detached_told(struct sim_detached *left, const struct sim_claim *claim,
                       dibs_err err)
{
    int64_t ms = claim->lease_ms;

    if (!left || left->stage != LEAVING)
        return;
    if (ms < claim->longest_ms)
        ms = claim->longest_ms;
    if (ms < sim_plan.lease_ms)
        ms = sim_plan.lease_ms;
    left->until = longest_from_now(left->keep_ms ? left->keep_ms : ms);
    bool offer = err == DIBS_OK && !left->keep_ms;
    left->stage = offer ? OFFERED : OVER;
    if (err == DIBS_ERR_LOST)
        left->until = sim_now();
}

/* ---- adopting ---------------------------------------------------------- */

static struct sim_detached *pick_left(struct sim_chance *c)
{
    struct sim_detached *found = NULL;
    int many = 0;

    for (struct sim_detached *left = all_left; left; left = left->next)
        if (left->stage == OFFERED && sim_now() < left->until &&
            sim_once_in(c, ++many))
            found = left;
    return found;
}

/* It was not adopted: may that be? */
static void check_not_adopted(const struct sim_program *pr,
                              const struct sim_detached *left, dibs_err err)
{
    bool fine = err == DIBS_ERR_NOT_OWNER &&
                (!sim_plan.strict || sim_now() >= left->sure_until);

    fine |= err == DIBS_ERR_NOMEM && (sim_plan.may & SIM_F_MEMORY);
    fine |=
        sim_may_fail(pr) && (err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN ||
                             err == DIBS_ERR_SERVER);
    if (!fine)
        sim_broken(
            "P4", "adopting %s of %s: %s (%s); it is there for %.3f s more",
            sim_thing_name(left->thing), left->text, dibs_strerror(err),
            dibs_error_text(), (double)(left->sure_until - sim_now()) / 1e6);
}

static void not_adopted(struct sim_program *pr, struct sim_detached *left,
                        const dibs_lock_opts *o, dibs_err err)
{
    int64_t until =
        longest_from_now(o->lease_ms ? o->lease_ms : sim_plan.lease_ms);

    if (left->stage != ASKED)
        return; /* its process has gone */
    if (!pr->client->closing)
        check_not_adopted(pr, left, err);
    left->stage = OVER;
    if (err == DIBS_ERR_NOT_OWNER) {
        left->until = sim_now();
    } else { /* another adoption may be tried */
        left->until = left->until < until ? until : left->until;
        left->stage = sim_once_in(&pr->chance, 2) ? OFFERED : OVER;
    }
}

/* When what an adopter has given back is gone. One that is lost may last there.
 * And where no connection can be ended, a copy of the acquire of the one that
 * left it may come late, and take it once more. */
static int64_t gone_by(const struct sim_claim *claim)
{
    if (sim_plan.no_kill)
        return longest_from_now(2 * sim_plan.lease_ms);
    return claim->gave == DIBS_OK ? sim_now()
                                  : longest_from_now(claim->longest_ms);
}

/* It is the thread's own from now on, until it gives it back. */
static void hold_adopted(struct sim_program *pr, struct sim_detached *left,
                         struct sim_claim *claim)
{
    dibs_owner own = pr->owner;

    sim_totals.acquires++;
    claim->longest_ms = (left->until - sim_now()) / 1000; /* not shortened */
    left->stage = ADOPTED;
    left->until = SIM_NEVER;
    pr->owner = claim->owner;
    if (claim->token && sim_plan.strict)
        sim_check_token(claim);
    else if (dibs_lock_token(claim->lock, claim->owner, &claim->token))
        claim->token = 0; /* the server does not know it */
    sim_hold(pr, claim);
    pr->owner = own;
    if (left->stage == ADOPTED) {
        left->stage = OVER;
        left->until = gone_by(claim);
    }
}

static void draw_adoption(struct sim_program *pr, struct sim_claim *claim,
                          dibs_lock_opts *o)
{
    if (sim_once_in(&pr->chance, 3))
        o->lease_ms = sim_between(&pr->chance, 300, 2 * sim_plan.lease_ms);
    o->on_lost = sim_claim_lost;
    o->arg = claim;
    claim->lease_ms = o->lease_ms;
    claim->renewed = !o->lease_ms;
}

bool sim_adopt_round(struct sim_program *pr)
{
    struct sim_detached *left = pick_left(&pr->chance);
    struct sim_client *cl = pr->client;
    dibs_lock_opts o = DIBS_LOCK_OPTS_INIT;
    int64_t idle = sim_idle_us(cl->proc);

    if (!left)
        return false;
    enum sim_thing t = left->thing;
    struct sim_claim claim = {.client = cl,
                              .proc = cl->proc,
                              .thing = t,
                              .lock = cl->lock[t],
                              .asked_at = sim_now(),
                              .token = left->token,
                              .adopted = true,
                              .shared = t == SIM_READ};
    draw_adoption(pr, &claim, &o);
    left->stage = ASKED;
    left->proc = cl->proc;
    pr->waits_for = t;
    pr->uses[t] = true;
    dibs_err err = dibs_lock_adopt(claim.lock, left->text, &o, &claim.owner);
    claim.since = sim_now();
    sim_note("adopts %s of %s, lease %lld: %s", sim_thing_name(t), left->text,
             (long long)o.lease_ms, dibs_strerror(err));
    int asks = 1 + (t == SIM_FENCED || t == SIM_SLOTS) +
               ((sim_plan.may & SIM_F_REFUSE) != 0);
    sim_check_time("adopting", claim.asked_at, idle,
                   2 * asks * sim_plan.command_ms * 102 / 100 + SLACK_MS);
    if (err == DIBS_OK)
        hold_adopted(pr, left, &claim);
    else
        not_adopted(pr, left, &o, err);
    return true;
}
