/* SPDX-License-Identifier: MIT
 *
 * quorum.c - most of several locks, each on a server of its own (RedLock).
 *
 * Thread  as group_op.c.
 * Locks   group.mu.
 *
 * How     A round asks all servers at once, with little patience. As soon as a
 *         majority has said yes, and that is still worth something, the lock is
 *         held; a yes that comes later is kept, too. If no majority can be had
 *         any more, or not in time, everything goes back. Then a random while,
 *         and the next round: whoever draws the shorter while comes through.
 *
 *         A server that has not answered by then is left astray: nobody waits
 *         for it, it is not asked anew before it has answered, and should that
 *         be a yes, it goes back. If it never answers, the member's own
 *         operation sees to it (a number that nobody goes by any more, and the
 *         reaper).
 *
 *         How long it is held needs no sum of its own. Each member's hold knows
 *         until when it is ours, counted from when it was asked for, less what
 *         the clocks may differ by; the quorum is held while a majority of them
 *         are (group.c). Renewal is the members', too; one whose key is gone
 *         from its server is lost and stays so.
 *
 * Trouble Two addresses may be one server, which would then vote twice. So a
 *         server's vote counts only when it is known which one it is (run_id),
 *         for as long as the connection lasts; two with one name end the
 *         acquire with INVALID. A server that may not be asked is believed.
 */
#include "lock/group.h"

#include "base/mem.h"
#include "client/call.h"

#include <string.h>

#define PATIENCE_PART   50 /* of the lease, for one server's answer */
#define PATIENCE_MIN_MS 20
#define PATIENCE_MAX_MS 500
#define NAP_MIN_MS      1
#define NAP_FIRST_MS    10
#define NAP_MAX_MS      200
#define CHECK_MS        500
#define MEMBERS_MAX     DIBS__MEMBERS_MAX

static void round_start(struct dibs__gop *gop);
static void round_over(struct dibs__gop *gop);

static int64_t patience(const struct dibs__gop *gop)
{
    int64_t lease =
        gop->o.lease_ms ? gop->o.lease_ms : gop->g->members[0].c->lease_ms;

    if (gop->o.member_ms)
        return gop->o.member_ms;
    return dibs__max(PATIENCE_MIN_MS,
                     dibs__min(lease / PATIENCE_PART, PATIENCE_MAX_MS));
}

/* ---- which server is it? ----------------------------------------------- */

static void info_write(struct dibs__call *call, struct dibs__buf *out,
                       bool whole)
{
    (void)call;
    (void)whole;
    dibs__buf_array(out, 2);
    dibs__buf_arg_text(out, "INFO");
    dibs__buf_arg_text(out, "server");
}

/* "run_id:..." out of the text, or "". */
static void find_run_id(const struct dibs__reply *reply,
                        char out[DIBS__RUN_ID_MAX])
{
    static const char key[] = "\nrun_id:";
    const char *at = NULL;

    out[0] = '\0';
    if (reply && reply->type == REPLY_TEXT)
        at = strstr(reply->text, key);
    if (!at)
        return;
    at += sizeof key - 1;
    size_t len = strcspn(at, "\r\n");
    if (len < DIBS__RUN_ID_MAX) {
        memcpy(out, at, len);
        out[len] = '\0';
    }
}

static unsigned ups(const struct dibs__member *m)
{
    return 1 + atomic_load(&dibs__line_server(m->line)->ups);
}

static bool is_up(const struct dibs__member *m)
{
    const struct dibs__server *s = dibs__line_server(m->line);

    return atomic_load(&s->ups) > atomic_load(&s->generation);
}

/* No answer: it stays unknown. Refused: it is believed. */
static void learn(struct dibs__group *g, size_t i, dibs_err err,
                  const struct dibs__reply *reply)
{
    struct dibs__member *m = &g->members[i];
    char run_id[DIBS__RUN_ID_MAX];

    find_run_id(reply, run_id);
    if (err != DIBS_OK && !reply)
        return;
    if (!run_id[0] && g->quorum)
        dibs__server_tell(dibs__line_server(m->line), DIBS_EVENT_WARNING,
                          DIBS_ERR_AUTH,
                          "INFO is refused: nobody checks that the servers of "
                          "a quorum are different ones");
    dibs__lock(&g->mu);
    memcpy(m->run_id, run_id, sizeof run_id);
    m->known = ups(m);
    dibs__unlock(&g->mu);
}

static bool is_known(const struct dibs__group *g, size_t i)
{
    return g->members[i].known == ups(&g->members[i]);
}

static bool is_twice(const struct dibs__group *g, size_t i)
{
    for (size_t j = 0; j < g->n; j++)
        if (j != i && is_known(g, j) && g->members[i].run_id[0] &&
            dibs__members_differ(g, i, j) &&
            strcmp(g->members[i].run_id, g->members[j].run_id) == 0)
            return true;
    return false;
}

static void
ask_who(struct dibs__member *m, struct dibs__call *call, int64_t within,
        void (*done)(struct dibs__call *, dibs_err, const struct dibs__reply *))
{
    call->write = info_write;
    call->done = done;
    call->expects = 1u << REPLY_TEXT;
    call->attempt_ms = within;
    call->deadline = dibs__add(dibs__now_ms(), within);
    call->connect_by = 0;
    call->slot = m->line->slot;
    dibs__call_start(dibs__line_server(m->line), call);
}

/* ---- a round ----------------------------------------------------------- */

/* Yes, in this round, from a server that is known. */
static bool counts(struct dibs__gop *gop, size_t i) REQUIRES(gop->g->mu)
{
    return gop->m[i].got && !gop->m[i].checking &&
           gop->m[i].round == gop->rounds && is_known(gop->g, i);
}

static size_t votes(struct dibs__gop *gop) REQUIRES(gop->g->mu)
{
    size_t n = 0;

    for (size_t i = 0; i < gop->g->n; i++)
        n += counts(gop, i);
    return n;
}

/* Members that are waited for and may still say yes. */
static size_t open_votes(struct dibs__gop *gop) REQUIRES(gop->g->mu)
{
    size_t n = gop->to_ask;

    for (size_t i = 0; i < gop->g->n; i++)
        n += (gop->m[i].under_way && !gop->m[i].astray) ||
             (gop->m[i].checking && !gop->m[i].idle_check);
    return n;
}

/* Enough of them are ours at this moment. */
static bool is_valid(struct dibs__gop *gop)
{
    int64_t now = dibs__now_ms();
    size_t n = 0;

    for (size_t i = 0; i < gop->g->n; i++) {
        struct dibs__line *line = gop->g->members[i].line;
        dibs__lock(&gop->g->mu);
        bool mine = counts(gop, i);
        dibs__unlock(&gop->g->mu);
        if (!mine)
            continue;
        dibs__lock(&line->mu);
        struct dibs__hold *h = dibs__hold_of(line, gop->o.owner);
        n += h && !dibs__hold_over(h, now);
        dibs__unlock(&line->mu);
    }
    return n >= gop->g->need;
}

/* Whose vote counts, at one moment; how many. */
static size_t pick_votes(struct dibs__gop *gop, bool vote[])
    REQUIRES(gop->g->mu)
{
    size_t n = 0;

    for (size_t i = 0; i < gop->g->n; i++)
        n += vote[i] = counts(gop, i);
    return n;
}

/* The votes are the level's. A yes that does not count (its connection was made
 * anew meanwhile) is nobody's, and goes back; if its server is being asked who
 * it is, that decides. */
static void share(struct dibs__gop *gop, const bool vote[]) REQUIRES(gop->g->mu)
{
    for (size_t i = 0; i < gop->g->n; i++) {
        struct dibs__mop *m = &gop->m[i];
        gop->level->members[i].got = vote[i];
        m->odd = m->got && !vote[i] && !m->checking && !m->under_way;
        if (m->odd || vote[i])
            m->got = false;
    }
}

/* A majority said yes: is that worth something? Whoever else says yes now is
 * counted here, or later by itself. */
static void try_to_win(struct dibs__gop *gop)
{
    const struct dibs__group *g = gop->g;
    bool valid = is_valid(gop), vote[MEMBERS_MAX];

    dibs__lock(&gop->g->mu);
    gop->winning = false;
    size_t yes = pick_votes(gop, vote);
    bool wins = valid && !gop->back && !gop->canceled && !gop->twice &&
                !gop->told && yes >= g->need &&
                dibs__loss_arm(gop->level->loss, vote) &&
                dibs__gop_decide(gop, DIBS_OK);
    if (wins) {
        gop->won = true;
        dibs__glevel_live(gop->g, gop->level);
        share(gop, vote);
    }
    dibs__unlock(&gop->g->mu);
    if (!wins)
        return;
    for (size_t i = 0; i < g->n; i++)
        if (!vote[i] && gop->m[i].odd) {
            gop->m[i].odd = false;
            dibs__mop_release(gop, i, 0, NULL, NULL, true);
        }
    dibs__gop_deliver(gop);
}

/* One member's answer is in, and its server is known, or it will not be. */
static void counted(struct dibs__gop *gop, struct dibs__mop *m, bool astray)
{
    struct dibs__group *g = gop->g;

    dibs__lock(&gop->g->mu);
    if (counts(gop, m->index) && is_twice(g, m->index)) {
        gop->twice = true;
        gop->level->members[m->index].err = DIBS_ERR_INVALID;
    }
    bool yes = counts(gop, m->index) && !gop->twice;
    size_t all = votes(gop);
    bool playing = !gop->won && !gop->back;
    bool kept = gop->level->members[m->index].got; /* the level's, not ours */
    bool unwanted = m->got && !kept &&
                    (gop->won ? !gop->level->live || !yes
                              : gop->back || m->round != gop->rounds);
    bool late = gop->won && yes && !unwanted && !kept;
    bool wins = playing && yes && all >= g->need && !gop->winning;
    bool loses = playing && !gop->winning && all + open_votes(gop) < g->need;
    gop->winning |= wins;
    gop->back |= loses;
    if (late) { /* whoever gives it back gives back this one, too */
        gop->level->members[m->index].got = true;
        dibs__loss_add(gop->level->loss, m->index);
    }
    if (unwanted) /* ours to give back, and nobody else's */
        m->got = false;
    dibs__unlock(&gop->g->mu);
    if (unwanted)
        dibs__mop_release(gop, m->index, 0, NULL, NULL, astray);
    else if (wins)
        try_to_win(gop);
    else if (loses)
        dibs__gop_release(gop, 0, g->n, false);
}

static void who_answered(struct dibs__call *call, dibs_err err,
                         const struct dibs__reply *reply)
{
    struct dibs__mop *m = DIBS_OF(call, struct dibs__mop, ask);
    struct dibs__gop *gop = m->gop;
    struct dibs__line *line = gop->g->members[m->index].line;

    learn(gop->g, m->index, err, reply);
    dibs__lock(&gop->g->mu);
    bool astray = m->idle_check;
    m->checking = m->idle_check = false;
    if (err != DIBS_OK && !reply)
        gop->level->members[m->index].err = err;
    dibs__unlock(&gop->g->mu);
    counted(gop, m, astray);
    dibs__gop_done(gop, astray);
    atomic_fetch_sub(&line->locks->afoot, 1);
    dibs__line_unref(line);
}

/* A yes of a server that nobody knows: who is it? */
static void check_first(struct dibs__gop *gop, struct dibs__mop *m, bool astray)
{
    struct dibs__member *member = &gop->g->members[m->index];

    if (dibs__client_enter(member->c) != DIBS_OK) {
        counted(gop, m, astray);
        return;
    }
    dibs__gop_begun(gop, astray);
    dibs__lock(&gop->g->mu);
    m->checking = true;
    m->idle_check = astray;
    dibs__unlock(&gop->g->mu);
    dibs__line_ref(member->line);
    atomic_fetch_add(&member->line->locks->afoot, 1);
    ask_who(member, &m->ask, patience(gop), who_answered);
    dibs__client_leave(member->c);
}

static void heard(struct dibs__gop *gop, struct dibs__mop *m, bool astray)
{
    dibs__lock(&gop->g->mu);
    bool unknown = m->got && !is_known(gop->g, m->index);
    dibs__unlock(&gop->g->mu);
    if (unknown)
        check_first(gop, m, astray);
    else
        counted(gop, m, astray);
}

/* ---- patience ---------------------------------------------------------- */

static bool is_late(struct dibs__gop *gop) REQUIRES(gop->g->mu)
{
    return !gop->told && !gop->won && !gop->winning && gop->pending > 0 &&
           gop->to_ask == 0 && dibs__now_ms() >= gop->late_at;
}

static void leave_astray(struct dibs__gop *gop, size_t i, bool lost)
    REQUIRES(gop->g->mu)
{
    struct dibs__mop *m = &gop->m[i];
    bool op = m->under_way && !m->astray;
    bool check = m->checking && !m->idle_check;

    m->astray |= op;
    m->idle_check |= check;
    gop->pending -= op + check;
    if ((op || check) && lost && dibs__now_ms() < gop->deadline)
        gop->level->members[i].err =
            is_up(&gop->g->members[i]) ? DIBS_ERR_UNKNOWN : DIBS_ERR_CONN;
}

/* Whoever has not answered by now is not waited for. */
void dibs__quorum_late(struct dibs__gop *gop)
{
    struct dibs__group *g = gop->g;
    bool lost = false;

    dibs__lock(&gop->g->mu);
    if (!is_late(gop)) {
        dibs__unlock(&gop->g->mu);
        return;
    }
    gop->pending++;
    atomic_fetch_add(&gop->refs, 1);
    lost = !gop->back;
    gop->late_at = lost ? dibs__now_ms() + patience(gop) : INT64_MAX;
    gop->back = true;
    for (size_t i = 0; i < g->n; i++)
        leave_astray(gop, i, lost);
    dibs__unlock(&gop->g->mu);
    if (lost)
        dibs__gop_release(gop, 0, g->n, false);
    dibs__gop_done(gop, false);
}

/* ---- between rounds ---------------------------------------------------- */

/* What stood in the way: servers that could not be asked, or a holder. */
static dibs_err reason(struct dibs__gop *gop)
{
    struct dibs__group *g = gop->g;
    dibs_err first = DIBS_OK;
    size_t out = 0;
    bool busy = false;

    dibs__lock(&gop->g->mu);
    for (size_t i = 0; i < g->n; i++) {
        dibs_err err = gop->level->members[i].err;
        busy |= err == DIBS_ERR_BUSY;
        if (err == DIBS_OK || err == DIBS_ERR_BUSY)
            continue;
        out++;
        if (first == DIBS_OK)
            first = err;
    }
    bool servers = out > g->n - g->need || !busy; /* and not a holder */
    dibs_err err = gop->canceled      ? gop->canceled
                   : gop->twice       ? DIBS_ERR_INVALID
                   : servers && first ? first
                                      : DIBS_ERR_BUSY;
    dibs__unlock(&gop->g->mu);
    return err;
}

/* A server that is not there may come back; what else is wrong will not. */
static bool may_help(dibs_err err)
{
    return err == DIBS_ERR_BUSY || err == DIBS_ERR_CONN ||
           err == DIBS_ERR_UNKNOWN;
}

static void give_up(struct dibs__gop *gop, dibs_err err)
{
    dibs__lock(&gop->g->mu);
    dibs__glevel_bury(gop->g, gop->level);
    dibs__unlock(&gop->g->mu);
    if (err == DIBS_ERR_BUSY && !gop->trying)
        err = DIBS_ERR_TIMEOUT;
    dibs__gop_tell(gop, err);
}

static int64_t nap_ms(const struct dibs__gop *gop, int64_t left)
{
    int64_t most = NAP_FIRST_MS << dibs__min(gop->rounds, 5);

    most = dibs__min(most, NAP_MAX_MS);
    return dibs__min(dibs__random_in(NAP_MIN_MS, most), dibs__max(left, 0));
}

static void take_back(struct dibs__gop *gop)
{
    dibs__lock(&gop->g->mu);
    gop->back = true;
    gop->late_at = dibs__now_ms() + patience(gop);
    dibs__unlock(&gop->g->mu);
    dibs__gop_open(gop, round_over);
    dibs__gop_release(gop, 0, gop->g->n, false);
    dibs__gop_run(gop);
}

/* Every member has ended that was waited for. */
static void round_over(struct dibs__gop *gop)
{
    int64_t left = gop->deadline - dibs__now_ms();

    dibs__lock(&gop->g->mu);
    bool won = gop->won;
    bool rest = !won && !gop->back; /* a majority that did not last */
    gop->late_at = INT64_MAX;
    dibs__unlock(&gop->g->mu);
    if (won)
        return;
    if (rest) {
        take_back(gop);
        return;
    }
    dibs_err why = reason(gop);
    if (gop->trying || !may_help(why) || left <= 0) {
        give_up(gop, why);
        return;
    }
    dibs__lock(&gop->g->mu);
    gop->rounds++;
    dibs__unlock(&gop->g->mu);
    dibs__gop_nap(gop, nap_ms(gop, left), round_start);
}

/* Those that are astray have their question still. */
static void deal(struct dibs__gop *gop, bool ask[]) REQUIRES(gop->g->mu)
{
    for (size_t i = 0; i < gop->g->n; i++) {
        struct dibs__mop *m = &gop->m[i];
        ask[i] = !m->under_way && !m->checking;
        if (gop->rounds == 0) /* later on, what the last round knows */
            gop->level->members[i].err = DIBS_ERR_UNKNOWN;
        if (ask[i]) {
            m->got = false;
            m->round = gop->rounds;
            gop->to_ask++;
        }
    }
}

static void round_start(struct dibs__gop *gop)
{
    struct dibs__group *g = gop->g;
    int64_t now = dibs__now_ms();
    bool ask[MEMBERS_MAX], in[MEMBERS_MAX];
    struct dibs__scatter sc = {{false}};
    dibs_err canceled = dibs__gop_canceled(gop);

    if (!canceled && gop->rounds && !dibs__glevel_new_loss(gop->level))
        canceled = DIBS_ERR_NOMEM;
    if (!canceled && gop->rounds && now >= gop->deadline)
        canceled = reason(gop); /* as the last round left it */
    if (canceled) {
        give_up(gop, canceled);
        return;
    }
    gop->heard = heard;
    bool talk = gop->talk;
    gop->talk = false;
    dibs__gop_open(gop, round_over);
    dibs__lock(&gop->g->mu);
    gop->back = false;
    gop->late_at = dibs__min(dibs__add(now, patience(gop)),
                             gop->trying ? INT64_MAX : gop->deadline);
    deal(gop, ask);
    dibs__unlock(&gop->g->mu);
    if (talk)
        dibs__gop_enter(gop, in);
    for (size_t i = 0; i < g->n; i++) {
        if (!ask[i])
            continue;
        dibs__mop_acquire(gop, i, true, INT64_MAX, NULL, talk ? &sc : NULL);
    }
    if (talk) {
        dibs__gop_hear(gop, &sc);
        dibs__gop_leave(gop, in);
    }
    dibs__gop_run(gop);
}

void dibs__quorum_start(struct dibs__gop *gop)
{
    gop->patience_ms = patience(gop);
    round_start(gop);
}

/* ---- when it is made --------------------------------------------------- */

struct check {
    struct dibs__call call;
    struct dibs__group *g;
    size_t index;
    sem_t *done;
};

static void check_answered(struct dibs__call *call, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct check *ck = DIBS_OF(call, struct check, call);

    learn(ck->g, ck->index, err, reply);
    sem_post(ck->done);
}

dibs_err dibs__group_check(struct dibs__group *g)
{
    struct check *all = dibs__calloc(g->n, sizeof *all);
    bool twice = false;
    sem_t done;

    if (!all)
        return DIBS_ERR_NOMEM;
    sem_init(&done, 0, 0);
    for (size_t i = 0; i < g->n; i++) {
        all[i] = (struct check){.g = g, .index = i, .done = &done};
        if (dibs__client_enter(g->members[i].c) == DIBS_OK)
            ask_who(&g->members[i], &all[i].call, CHECK_MS, check_answered);
        else
            all[i].done = NULL;
    }
    for (size_t i = 0; i < g->n; i++)
        while (all[i].done && sem_wait(&done) != 0)
            ; /* a signal */
    for (size_t i = 0; i < g->n; i++) {
        if (all[i].done)
            dibs__client_leave(g->members[i].c);
        dibs__lock(&g->mu);
        bool same = is_twice(g, i);
        dibs__unlock(&g->mu);
        if (same && !twice)
            dibs__group_same_server(g, i);
        twice |= same;
    }
    dibs__free(all);
    sem_destroy(&done);
    return twice ? DIBS_ERR_INVALID : DIBS_OK;
}
