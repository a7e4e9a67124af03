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
 *         A server that has not answered by then is left detached: nobody waits
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
#include "group/group.h"

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

static void round_start(struct dibs__group_op *group_op);
static void round_over(struct dibs__group_op *group_op);

static int64_t patience(const struct dibs__group_op *group_op)
{
    int64_t lease = group_op->o.lease_ms ? group_op->o.lease_ms
                                         : group_op->g->members[0].c->lease_ms;

    if (group_op->o.member_ms)
        return group_op->o.member_ms;
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
    const struct dibs__server *s = dibs__line_server(m->line);

    return 1 + (s ? atomic_load(&s->ups) : 0);
}

static bool is_up(const struct dibs__member *m)
{
    const struct dibs__server *s = dibs__line_server(m->line);

    return s && atomic_load(&s->ups) > atomic_load(&s->generation);
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
        dibs__line_tell(m->line, DIBS_EVENT_WARNING, DIBS_ERR_AUTH,
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
    dibs__call_start(dibs__line_route(m->line), call);
}

/* ---- a round ----------------------------------------------------------- */

/* Yes, in this round, from a server that is known. */
static bool counts(struct dibs__group_op *group_op, size_t i)
    REQUIRES(group_op->g->mu)
{
    return group_op->m[i].got && !group_op->m[i].checking &&
           group_op->m[i].round == group_op->rounds && is_known(group_op->g, i);
}

static size_t votes(struct dibs__group_op *group_op) REQUIRES(group_op->g->mu)
{
    size_t n = 0;

    for (size_t i = 0; i < group_op->g->n; i++)
        n += counts(group_op, i);
    return n;
}

/* Members that are waited for and may still say yes. */
static size_t open_votes(struct dibs__group_op *group_op)
    REQUIRES(group_op->g->mu)
{
    size_t n = group_op->to_ask;

    for (size_t i = 0; i < group_op->g->n; i++)
        n += (group_op->m[i].under_way && !group_op->m[i].detached) ||
             (group_op->m[i].checking && !group_op->m[i].idle_check);
    return n;
}

/* Enough of them are ours at this moment. */
static bool is_valid(struct dibs__group_op *group_op)
{
    int64_t now = dibs__now_ms();
    size_t n = 0;

    for (size_t i = 0; i < group_op->g->n; i++) {
        struct dibs__line *line = group_op->g->members[i].line;
        dibs__lock(&group_op->g->mu);
        bool mine = counts(group_op, i);
        dibs__unlock(&group_op->g->mu);
        if (!mine)
            continue;
        dibs__lock(&line->mu);
        struct dibs__hold *h = dibs__hold_of(line, group_op->o.owner);
        n += h && !dibs__hold_over(h, now);
        dibs__unlock(&line->mu);
    }
    return n >= group_op->g->need;
}

/* Whose vote counts, at one moment; how many. */
static size_t pick_votes(struct dibs__group_op *group_op, bool vote[])
    REQUIRES(group_op->g->mu)
{
    size_t n = 0;

    for (size_t i = 0; i < group_op->g->n; i++)
        n += vote[i] = counts(group_op, i);
    return n;
}

/* The votes are the level's. A yes that does not count (its connection was made
 * anew meanwhile) is nobody's, and goes back; if its server is being asked who
 * it is, that decides. */
static void share(struct dibs__group_op *group_op, const bool vote[])
    REQUIRES(group_op->g->mu)
{
    for (size_t i = 0; i < group_op->g->n; i++) {
        struct dibs__member_op *m = &group_op->m[i];
        group_op->level->members[i].got = vote[i];
        m->odd = m->got && !vote[i] && !m->checking && !m->under_way;
        if (m->odd || vote[i])
            m->got = false;
    }
}

/* A majority said yes: is that worth something? Whoever else says yes now is
 * counted here, or later by itself. */
static void try_to_win(struct dibs__group_op *group_op)
{
    const struct dibs__group *g = group_op->g;
    bool valid = is_valid(group_op), vote[MEMBERS_MAX];

    dibs__lock(&group_op->g->mu);
    group_op->winning = false;
    size_t yes = pick_votes(group_op, vote);
    bool wins = valid && !group_op->back && !group_op->canceled &&
                !group_op->twice && !group_op->told && yes >= g->need &&
                dibs__loss_arm(group_op->level->loss, vote) &&
                dibs__group_op_decide(group_op, DIBS_OK);
    if (wins) {
        group_op->won = true;
        dibs__group_level_live(group_op->g, group_op->level);
        share(group_op, vote);
    }
    dibs__unlock(&group_op->g->mu);
    if (!wins)
        return;
    for (size_t i = 0; i < g->n; i++)
        if (!vote[i] && group_op->m[i].odd) {
            group_op->m[i].odd = false;
            dibs__member_op_release(group_op, i, 0, NULL, NULL, true);
        }
    dibs__group_op_deliver(group_op);
}

/* One member's answer is in, and its server is known, or it will not be. */
static void counted(struct dibs__group_op *group_op, struct dibs__member_op *m,
                    bool detached)
{
    struct dibs__group *g = group_op->g;

    dibs__lock(&group_op->g->mu);
    if (counts(group_op, m->index) && is_twice(g, m->index)) {
        group_op->twice = true;
        group_op->level->members[m->index].err = DIBS_ERR_INVALID;
    }
    bool yes = counts(group_op, m->index) && !group_op->twice;
    size_t all = votes(group_op);
    bool playing = !group_op->won && !group_op->back;
    bool kept =
        group_op->level->members[m->index].got; /* the level's, not ours */
    bool unwanted =
        m->got && !kept &&
        (group_op->won ? !group_op->level->live || !yes
                       : group_op->back || m->round != group_op->rounds);
    bool late = group_op->won && yes && !unwanted && !kept;
    bool wins = playing && yes && all >= g->need && !group_op->winning;
    bool loses =
        playing && !group_op->winning && all + open_votes(group_op) < g->need;
    group_op->winning |= wins;
    group_op->back |= loses;
    if (late) { /* whoever gives it back gives back this one, too */
        group_op->level->members[m->index].got = true;
        dibs__loss_add(group_op->level->loss, m->index);
    }
    if (unwanted) /* ours to give back, and nobody else's */
        m->got = false;
    dibs__unlock(&group_op->g->mu);
    if (unwanted)
        dibs__member_op_release(group_op, m->index, 0, NULL, NULL, detached);
    else if (wins)
        try_to_win(group_op);
    else if (loses)
        dibs__group_op_release(group_op, 0, g->n, false);
}

static void who_answered(struct dibs__call *call, dibs_err err,
                         const struct dibs__reply *reply)
{
    struct dibs__member_op *m = DIBS_OF(call, struct dibs__member_op, ask);
    struct dibs__group_op *group_op = m->group_op;
    struct dibs__line *line = group_op->g->members[m->index].line;

    learn(group_op->g, m->index, err, reply);
    dibs__lock(&group_op->g->mu);
    bool detached = m->idle_check;
    m->checking = m->idle_check = false;
    if (err != DIBS_OK && !reply)
        group_op->level->members[m->index].err = err;
    dibs__unlock(&group_op->g->mu);
    counted(group_op, m, detached);
    dibs__group_op_done(group_op, detached);
    atomic_fetch_sub(&line->locks->in_flight, 1);
    dibs__line_unref(line);
}

/* A yes of a server that nobody knows: who is it? */
static void check_first(struct dibs__group_op *group_op,
                        struct dibs__member_op *m, bool detached)
{
    struct dibs__member *member = &group_op->g->members[m->index];

    if (dibs__client_enter(member->c) != DIBS_OK) {
        counted(group_op, m, detached);
        return;
    }
    dibs__group_op_begun(group_op, detached);
    dibs__lock(&group_op->g->mu);
    m->checking = true;
    m->idle_check = detached;
    dibs__unlock(&group_op->g->mu);
    dibs__line_ref(member->line);
    atomic_fetch_add(&member->line->locks->in_flight, 1);
    ask_who(member, &m->ask, patience(group_op), who_answered);
    dibs__client_leave(member->c);
}

static void heard(struct dibs__group_op *group_op, struct dibs__member_op *m,
                  bool detached)
{
    dibs__lock(&group_op->g->mu);
    bool unknown = m->got && !is_known(group_op->g, m->index);
    dibs__unlock(&group_op->g->mu);
    if (unknown)
        check_first(group_op, m, detached);
    else
        counted(group_op, m, detached);
}

/* ---- patience ---------------------------------------------------------- */

static bool is_late(struct dibs__group_op *group_op) REQUIRES(group_op->g->mu)
{
    return !group_op->told && !group_op->won && !group_op->winning &&
           group_op->pending > 0 && group_op->to_ask == 0 &&
           dibs__now_ms() >= group_op->late_at;
}

static void detach_member(struct dibs__group_op *group_op, size_t i, bool lost)
    REQUIRES(group_op->g->mu)
{
    struct dibs__member_op *m = &group_op->m[i];
    bool op = m->under_way && !m->detached;
    bool check = m->checking && !m->idle_check;

    m->detached |= op;
    m->idle_check |= check;
    group_op->pending -= op + check;
    if ((op || check) && lost && dibs__now_ms() < group_op->deadline)
        group_op->level->members[i].err =
            is_up(&group_op->g->members[i]) ? DIBS_ERR_UNKNOWN : DIBS_ERR_CONN;
}

/* Whoever has not answered by now is not waited for. */
void dibs__quorum_late(struct dibs__group_op *group_op)
{
    struct dibs__group *g = group_op->g;
    bool lost = false;

    dibs__lock(&group_op->g->mu);
    if (!is_late(group_op)) {
        dibs__unlock(&group_op->g->mu);
        return;
    }
    group_op->pending++;
    atomic_fetch_add(&group_op->refs, 1);
    lost = !group_op->back;
    group_op->late_at = lost ? dibs__now_ms() + patience(group_op) : INT64_MAX;
    group_op->back = true;
    for (size_t i = 0; i < g->n; i++)
        detach_member(group_op, i, lost);
    dibs__unlock(&group_op->g->mu);
    if (lost)
        dibs__group_op_release(group_op, 0, g->n, false);
    dibs__group_op_done(group_op, false);
}

/* ---- between rounds ---------------------------------------------------- */

/* What stood in the way: servers that could not be asked, or a holder. */
static dibs_err reason(struct dibs__group_op *group_op)
{
    struct dibs__group *g = group_op->g;
    dibs_err first = DIBS_OK;
    size_t out = 0;
    bool busy = false;

    dibs__lock(&group_op->g->mu);
    for (size_t i = 0; i < g->n; i++) {
        dibs_err err = group_op->level->members[i].err;
        busy |= err == DIBS_ERR_BUSY;
        if (err == DIBS_OK || err == DIBS_ERR_BUSY)
            continue;
        out++;
        if (first == DIBS_OK)
            first = err;
    }
    bool servers = out > g->n - g->need || !busy; /* and not a holder */
    dibs_err err = group_op->canceled ? group_op->canceled
                   : group_op->twice  ? DIBS_ERR_INVALID
                   : servers && first ? first
                                      : DIBS_ERR_BUSY;
    dibs__unlock(&group_op->g->mu);
    return err;
}

/* A server that is not there may come back; what else is wrong will not. */
static bool may_help(dibs_err err)
{
    return err == DIBS_ERR_BUSY || err == DIBS_ERR_CONN ||
           err == DIBS_ERR_UNKNOWN;
}

static void give_up(struct dibs__group_op *group_op, dibs_err err)
{
    dibs__lock(&group_op->g->mu);
    dibs__group_level_archive(group_op->g, group_op->level);
    dibs__unlock(&group_op->g->mu);
    if (err == DIBS_ERR_BUSY && !group_op->trying)
        err = DIBS_ERR_TIMEOUT;
    dibs__group_op_tell(group_op, err);
}

static int64_t pause_ms(const struct dibs__group_op *group_op, int64_t left)
{
    int64_t most = NAP_FIRST_MS << dibs__min(group_op->rounds, 5);

    most = dibs__min(most, NAP_MAX_MS);
    return dibs__min(dibs__random_in(NAP_MIN_MS, most), dibs__max(left, 0));
}

static void take_back(struct dibs__group_op *group_op)
{
    dibs__lock(&group_op->g->mu);
    group_op->back = true;
    group_op->late_at = dibs__now_ms() + patience(group_op);
    dibs__unlock(&group_op->g->mu);
    dibs__group_op_open(group_op, round_over);
    dibs__group_op_release(group_op, 0, group_op->g->n, false);
    dibs__group_op_run(group_op);
}

/* Every member has ended that was waited for. */
static void round_over(struct dibs__group_op *group_op)
{
    int64_t left = group_op->deadline - dibs__now_ms();

    dibs__lock(&group_op->g->mu);
    bool won = group_op->won;
    bool rest = !won && !group_op->back; /* a majority that did not last */
    group_op->late_at = INT64_MAX;
    dibs__unlock(&group_op->g->mu);
    if (won)
        return;
    if (rest) {
        take_back(group_op);
        return;
    }
    dibs_err why = reason(group_op);
    if (group_op->trying || !may_help(why) || left <= 0) {
        give_up(group_op, why);
        return;
    }
    dibs__lock(&group_op->g->mu);
    group_op->rounds++;
    dibs__unlock(&group_op->g->mu);
    dibs__group_op_pause(group_op, pause_ms(group_op, left), round_start);
}

/* Those that are detached have their question still. */
static void deal(struct dibs__group_op *group_op, bool ask[])
    REQUIRES(group_op->g->mu)
{
    for (size_t i = 0; i < group_op->g->n; i++) {
        struct dibs__member_op *m = &group_op->m[i];
        ask[i] = !m->under_way && !m->checking;
        if (group_op->rounds == 0) /* later on, what the last round knows */
            group_op->level->members[i].err = DIBS_ERR_UNKNOWN;
        if (ask[i]) {
            m->got = false;
            m->round = group_op->rounds;
            group_op->to_ask++;
        }
    }
}

static void round_start(struct dibs__group_op *group_op)
{
    struct dibs__group *g = group_op->g;
    int64_t now = dibs__now_ms();
    bool ask[MEMBERS_MAX], in[MEMBERS_MAX];
    struct dibs__scatter sc = {{false}};
    dibs_err canceled = dibs__group_op_canceled(group_op);

    if (!canceled && group_op->rounds &&
        !dibs__group_level_new_loss(group_op->level))
        canceled = DIBS_ERR_NOMEM;
    if (!canceled && group_op->rounds && now >= group_op->deadline)
        canceled = reason(group_op); /* as the last round left it */
    if (canceled) {
        give_up(group_op, canceled);
        return;
    }
    group_op->heard = heard;
    bool direct = group_op->direct;
    group_op->direct = false;
    dibs__group_op_open(group_op, round_over);
    dibs__lock(&group_op->g->mu);
    group_op->back = false;
    group_op->late_at =
        dibs__min(dibs__add(now, patience(group_op)),
                  group_op->trying ? INT64_MAX : group_op->deadline);
    deal(group_op, ask);
    dibs__unlock(&group_op->g->mu);
    if (direct)
        dibs__group_op_enter(group_op, in);
    for (size_t i = 0; i < g->n; i++) {
        if (!ask[i])
            continue;
        dibs__member_op_acquire(group_op, i, true, INT64_MAX, NULL,
                                direct ? &sc : NULL);
    }
    if (direct) {
        dibs__group_op_hear(group_op, &sc);
        dibs__group_op_leave(group_op, in);
    }
    dibs__group_op_run(group_op);
}

void dibs__quorum_start(struct dibs__group_op *group_op)
{
    group_op->patience_ms = patience(group_op);
    round_start(group_op);
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
