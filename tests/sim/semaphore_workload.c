/* SPDX-License-Identifier: MIT
 *
 * semaphore_workload.c - semaphores and latches: what the simulated programs do
 * with them, and their invariants.
 *
 * A semaphore of SIM_PERMITS permits. Each thread of a client takes another
 * number of them, so a release finds the acquire of its own thread.
 *
 *   P4   granted: the server has the permits
 *   P5   free and acquired permits always add up
 *   P3   permits that vanished are reported as lost in time
 *
 * A latch with a count that a run does not reach. So how often it was counted
 * down is known, and how often it may have been:
 *
 *   P5   it was counted at least as often as a call returned OK, and at most as
 *        often as a call was started; a ticket counts once
 *   P4   no call passes before it is opened
 *   P8   all calls pass when it is, at the end
 */
#include "sim/simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT    1000000
#define SLACK_MS 100
#define TOLD_US  5000000

/* Permits that were granted. Lives on the stack of the one who has them. */
struct stake {
    struct stake *next;
    struct sim_proc *proc;
    const struct sim_client *client;
    char entry[DIBS_OWNER_MAX + 24]; /* how its note in the book begins */
    int64_t lease_ms;
    int64_t gone_since, gone_idle;
    bool told, over;
};

static struct stake *stakes;
static int64_t downs_begun, downs_sure;
static bool latch_opened;

void sim_counted_make(struct sim_client *cl)
{
    dibs_err err;

    while (dibs_semaphore_new(cl->c[0], "m0", &cl->semaphore) != DIBS_OK)
        continue; /* memory is short */
    while (dibs_latch_new(cl->c[0], "l0", &cl->latch) != DIBS_OK)
        continue;
    while ((err = dibs_semaphore_set(cl->semaphore, SIM_PERMITS, NULL)) !=
           DIBS_OK) {
        sim_note("semaphore set: %s", dibs_strerror(err));
        sim_sleep(200000);
    }
    while (!sim_faults_ended &&
           (err = dibs_latch_set(cl->latch, COUNT, NULL, NULL)) != DIBS_OK) {
        sim_note("latch set: %s", dibs_strerror(err));
        sim_sleep(200000);
    }
}

void sim_counted_free(struct sim_client *cl)
{
    dibs_semaphore_free(cl->semaphore);
    dibs_latch_free(cl->latch);
    cl->semaphore = NULL;
    cl->latch = NULL;
}

static void check_error(const char *call, dibs_err err, bool once, bool limited)
{
    bool fine = err == DIBS_ERR_CLOSED || err == DIBS_ERR_CANCELED;

    fine |= err == DIBS_ERR_BUSY && once;
    fine |= err == DIBS_ERR_TIMEOUT && limited;
    fine |= err == DIBS_ERR_NOMEM && (sim_plan.may & SIM_F_MEMORY);
    fine |=
        sim_plan.may != 0 && (err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN ||
                              err == DIBS_ERR_SERVER);
    if (!fine)
        sim_broken("P4", "%s: %s (%s)", call, dibs_strerror(err),
                   dibs_error_text());
}

/* ---- semaphores -------------------------------------------------------- */

/* The book, as the server tells it; NULL: nobody can tell now. */
static const char *read_book(void)
{
    struct sim_server *sv = sim_master("m0");
    const char *a =
        sv ? sim_server_ask(sv, "ZRANGE {m0}:dibs_held 0 -1") : NULL;

    return a && a[0] == '*' ? a : NULL;
}

static void permits_lost(const char *name, dibs_owner owner, void *arg)
{
    struct stake *st = arg;

    (void)name;
    (void)owner;
    sim_totals.lost++;
    if (st->over)
        sim_broken("P2", "on_lost of permits came after their release");
    if (st->told)
        sim_broken("P2", "on_lost of permits came twice");
    st->told = true;
    sim_note("permits are lost");
}

static void stake_leave(struct stake *st)
{
    for (struct stake **at = &stakes; *at; at = &(*at)->next)
        if (*at == st) {
            *at = st->next;
            return;
        }
}

void sim_counted_dead(const struct sim_proc *p)
{
    for (struct stake **at = &stakes; *at;)
        if ((*at)->proc == p)
            *at = (*at)->next;
        else
            at = &(*at)->next;
}

static void check_grant(struct stake *st, int64_t asked_at)
{
    const char *book = read_book();

    st->next = stakes;
    stakes = st;
    if (sim_plan.strict && book && !strstr(book, st->entry) &&
        !st->client->closing && /* which gives them back */
        sim_now() - asked_at < st->lease_ms * 900)
        sim_broken("P4", "permits are granted, and the book has no %s",
                   st->entry);
}

static void give_permits_back(struct sim_client *cl, struct stake *st,
                              dibs_semaphore_opts *o)
{
    int64_t from = sim_now(), idle = sim_idle_us(cl->proc);
    bool told = st->told;

    stake_leave(st);
    o->wait_ms = 0;
    dibs_err err;
    while ((err = dibs_semaphore_release(cl->semaphore, o)) == DIBS_ERR_NOMEM &&
           !cl->closing)
        sim_sleep(10000);
    st->over = true;
    sim_note("release of %lld permits: %s", (long long)o->permits,
             dibs_strerror(err));
    if (cl->closing)
        return;
    if (err != DIBS_ERR_NOMEM && !(sim_plan.may & SIM_F_MEMORY))
        sim_check_time("release of permits", from, idle,
                       2 * sim_plan.command_ms * 102 / 100 + SLACK_MS);
    if (err == DIBS_ERR_NOT_OWNER || err == DIBS_ERR_INVALID ||
        err == DIBS_ERR_WRONGTYPE)
        sim_broken("P5", "release of permits: %s", dibs_strerror(err));
    if (err == DIBS_OK && told)
        sim_broken("P2", "release of permits that were lost says OK");
    if (err == DIBS_ERR_LOST && sim_plan.may == 0 && st->lease_ms == 0)
        sim_broken("P4", "permits are lost, and nothing is wrong");
    if (err != DIBS_OK && err != DIBS_ERR_LOST)
        check_error("release of permits", err, false, false);
}

void sim_counted_permits(struct sim_client *cl, struct sim_chance *c, int n)
{
    dibs_semaphore_opts o = DIBS_SEMAPHORE_OPTS_INIT;
    struct stake st = {
        .proc = cl->proc, .client = cl, .lease_ms = sim_plan.lease_ms};
    bool once = sim_once_in(c, 4);
    int64_t from = sim_now(), idle = sim_idle_us(cl->proc);

    o.permits = n + 1;
    if (!sim_once_in(c, 3))
        o.wait_ms = sim_skewed(c, 4 * sim_plan.lease_ms) + 1;
    if (sim_once_in(c, 4))
        st.lease_ms = o.lease_ms = sim_between(c, 300, 2 * sim_plan.lease_ms);
    o.on_lost = permits_lost;
    o.arg = &st;
    snprintf(st.entry, sizeof st.entry, "|%lld:%s:", (long long)o.permits,
             dibs_client_id(cl->c[0]));
    sim_note("asks for %lld permits%s, wait %lld", (long long)o.permits,
             once ? " once" : "", (long long)o.wait_ms);
    struct sim_wait wait = {
        .what = SIM_PERMITS_OF_SEMAPHORE, .proc = cl->proc, .need = o.permits};
    if (!once)
        sim_lateness_wait(&wait);
    dibs_err err = once ? dibs_semaphore_try(cl->semaphore, &o)
                        : dibs_semaphore_acquire(cl->semaphore, &o);
    sim_lateness_done(&wait, err);
    sim_note("permits: %s", dibs_strerror(err));
    if (once || o.wait_ms)
        sim_check_time("acquire of permits", from, idle,
                       ((once ? 0 : o.wait_ms) + sim_plan.command_ms) * 102 /
                               100 +
                           SLACK_MS);
    if (err != DIBS_OK) {
        if (!cl->closing)
            check_error("acquire of permits", err, once, o.wait_ms > 0);
        return;
    }
    sim_totals.acquires++;
    check_grant(&st, from);
    for (int64_t us = sim_skewed(c, 2 * sim_plan.hold_us);
         us > 0 && !sim_faults_ended && !cl->closing; us -= 300000)
        sim_sleep(us < 300000 ? us : 300000);
    give_permits_back(cl, &st, &o);
}

static void check_stake(struct stake *st, const char *book)
{
    if (st->told || st->client->closing || strstr(book, st->entry)) {
        st->gone_since = 0;
        return;
    }
    if (st->gone_since == 0) {
        st->gone_since = sim_now();
        st->gone_idle = sim_idle_us(st->proc);
    }
    int64_t lasts =
        sim_now() - st->gone_since - (sim_idle_us(st->proc) - st->gone_idle);
    if (!(sim_plan.may & SIM_F_MEMORY) && lasts > st->lease_ms * 1020 + TOLD_US)
        sim_broken("P3",
                   "permits of %s are gone for %.3f s, and it is not told",
                   st->proc->name, (double)lasts / 1e6);
}

static int64_t permits_in(const char *book)
{
    int64_t out = 0;

    for (const char *at = strchr(book, '|'); at && (at = strchr(at, '$'));) {
        at = strchr(at, '|') + 1;
        out += atoll(at);
    }
    return out;
}

static void check_permits(void)
{
    struct sim_server *sv = sim_master("m0");
    const char *a = sv ? sim_server_ask(sv, "GET m0") : NULL;

    if (!a || a[0] != '$' || a[1] == '-')
        return;
    int64_t free = atoll(strchr(a, '|') + 1);
    const char *book = read_book();
    if (!book)
        return;
    for (struct stake *st = stakes; st; st = st->next)
        check_stake(st, book);
    int64_t out = permits_in(book) + sim_redisson_permits();
    if (sim_plan.strict && (free < 0 || free + out != SIM_PERMITS))
        sim_broken("P5", "%lld permits are free and %lld out, of %d",
                   (long long)free, (long long)out, SIM_PERMITS);
}

/* ---- latches ----------------------------------------------------------- */

static void check_left(int64_t left, int64_t sure_before)
{
    if (!sim_plan.strict || latch_opened)
        return;
    if (left < COUNT - downs_begun || left > COUNT - sure_before)
        sim_broken("P5",
                   "the latch has %lld left of %d; it was counted down %lld to "
                   "%lld times",
                   (long long)left, COUNT, (long long)sure_before,
                   (long long)downs_begun);
}

static void count_down(struct sim_client *cl, struct sim_chance *c, int n)
{
    static int tickets;
    dibs_latch_opts o = DIBS_LATCH_OPTS_INIT;
    char ticket[32];
    int64_t left = 0, before = downs_sure, tries = 1;
    dibs_err err;

    if (sim_once_in(c, 2)) { /* it may be sent as often as one likes */
        snprintf(ticket, sizeof ticket, "%d.%d.%d", cl->number, n, ++tickets);
        o.ticket = ticket;
        tries = sim_between(c, 1, 3);
    }
    downs_begun++;
    bool sure = false;
    for (; tries > 0 && !cl->closing; tries--) {
        int64_t from = sim_now(), idle = sim_idle_us(cl->proc);
        err = dibs_latch_count_down(cl->latch, &o, &left);
        sim_note("counts down: %s, %lld left", dibs_strerror(err),
                 (long long)left);
        sim_check_time("count down", from, idle,
                       2 * sim_plan.command_ms * 102 / 100 + SLACK_MS);
        if (err == DIBS_OK)
            check_left(left, before);
        else if (!cl->closing)
            check_error("count down", err, false, false);
        sure |= err == DIBS_OK;
    }
    downs_sure += sure;
}

static void pass_latch(struct sim_client *cl, struct sim_chance *c)
{
    dibs_latch_opts o = DIBS_LATCH_OPTS_INIT;
    int64_t from = sim_now(), idle = sim_idle_us(cl->proc);

    if (!sim_once_in(c, 10)) /* else for as long as it is closed */
        o.wait_ms = sim_skewed(c, 3 * sim_plan.lease_ms) + 1;
    sim_note("waits at the latch for %lld", (long long)o.wait_ms);
    struct sim_wait wait = {.what = SIM_LATCH_OPEN, .proc = cl->proc};
    sim_lateness_wait(&wait);
    dibs_err err = dibs_latch_wait(cl->latch, &o);
    sim_lateness_done(&wait, err);
    sim_note("latch: %s", dibs_strerror(err));
    if (o.wait_ms)
        sim_check_time("latch", from, idle,
                       (o.wait_ms + sim_plan.command_ms) * 102 / 100 +
                           SLACK_MS);
    if (err == DIBS_OK && !latch_opened && sim_plan.strict)
        sim_broken("P4", "%s is past the latch, which is closed",
                   cl->proc->name);
    if (err != DIBS_OK && !cl->closing)
        check_error("latch", err, false, o.wait_ms > 0);
}

/* At the end: everybody who waits may go, and those who wait for permits that
 * vanished. */
void sim_counted_open(struct sim_client *cl)
{
    latch_opened = true;
    for (dibs_err err = DIBS_ERR_UNKNOWN; err != DIBS_OK && !cl->closing;) {
        err = dibs_semaphore_set(cl->semaphore, SIM_PERMITS, NULL);
        if (err != DIBS_OK) /* if it was lost with all data */
            sim_sleep(200000);
    }
    for (dibs_err err = DIBS_ERR_UNKNOWN; err != DIBS_OK && !cl->closing;) {
        err = dibs_latch_set(cl->latch, 0, NULL, NULL);
        if (err != DIBS_OK)
            sim_sleep(200000);
    }
}

static void check_latch(void)
{
    struct sim_server *sv = sim_master("l0");
    const char *a = sv ? sim_server_ask(sv, "GET l0") : NULL;

    if (a && a[0] == '$' && a[1] != '-')
        check_left(atoll(strchr(a, '|') + 1), downs_sure);
}

/* ---- both -------------------------------------------------------------- */

void sim_counted_round(struct sim_client *cl, struct sim_chance *c, int thread)
{
    if (sim_once_in(c, 2))
        sim_counted_permits(cl, c, thread);
    else if (sim_once_in(c, 3))
        pass_latch(cl, c);
    else
        count_down(cl, c, thread);
}

void sim_counted_look(void)
{
    check_permits();
    check_latch();
}

/* Somebody has asked for permits after all others had gone. */
void sim_counted_end(void)
{
    const char *book = read_book();

    check_permits();
    if (book && permits_in(book) > 0)
        sim_broken("P9", "permits are still out: %.200s", book);
}
