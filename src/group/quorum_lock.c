/* SPDX-License-Identifier: MIT
 *
 * quorum_lock.c - most of several locks, each on a server of its own (RedLock).
 *
 * Thread  as group_op.c.
 * Locks   group.mu; under it line.mu, of one member at a time.
 *
 * How     A round asks all servers at once, with little patience. As soon as a
 *         majority has granted it, and those grants are still valid, the lock
 *         is held; a grant that comes later is kept, too. If a majority is not
 *         possible any more, or not in time, everything is given back. Then a
 *         random pause, and the next round: the caller with the shorter pause
 *         gets through.
 *
 *         From the first pause on, the members' channels are listened to. When
 *         a majority of them say that they are free, the pause ends after a
 *         random moment. While messages can be heard, a pause without one is
 *         long. Fewer messages than a majority shorten it a little: they may be
 *         the end of somebody's failed round, or some may have been missed.
 *
 *         A round that was granted something and failed has collided: others
 *         ask just now. Giving back sends messages, too, to ourselves as well.
 *         If they started the next round, rounds would start each other without
 *         end. So after a collision only time ends the pause; it is random, and
 *         grows from round to round up to a limit.
 *
 *         A server that has not answered in time is detached: nobody waits for
 *         it, it is not asked again before it has answered, and a late grant
 *         goes back. If it never answers, the member's own operation sees to
 *         that (lock/core/operation.c: the owner gets another number, and the
 * reaper takes back what the old one may be given).
 *
 *         The time of a quorum needs no sum of its own. Each member's hold
 *         knows until when it is ours, counted from when it was asked for, less
 *         what the clocks may differ by. The quorum is held while a majority of
 *         the holds are (group.c). The members' holds are renewed each by
 *         itself; one whose key is gone from its server is lost and stays lost.
 *
 * Rounds  state   what can happen                            next
 *         ASKING  a majority, and it is valid                WON
 *                 no majority is possible; patience is over  BACK
 *                 all have answered, but a majority was not
 *                 valid                                      BACK
 *         WON     a late grant: the level keeps it, or it
 *                 is given back                              WON
 *         BACK    all was given back: after a pause          ASKING
 *                 or the acquire ends                        (told)
 *
 * Trouble Two addresses may be one server, which would then vote twice. So a
 *         server's grant counts only when it is known which server that is
 *         (server_identity.c); two members on one server end the acquire with
 * INVALID.
 */
#include "group/group_op.h"
#include "group/server_identity.h"

#define PATIENCE_PART   50 /* of the lease, for one server's answer */
#define PATIENCE_MIN_MS 20
#define PATIENCE_MAX_MS 500
#define PAUSE_MIN_MS    1
#define PAUSE_FIRST_MS  10
#define PAUSE_MAX_MS    200
#define POLL_MIN_MS     1000 /* a pause that a message should end */
#define POLL_MAX_MS     2000
#define WAKE_MAX_MS     2   /* from a majority's messages to the round */
#define FEW_MIN_MS      200 /* from the first message, if no more come */
#define FEW_MAX_MS      400
#define MEMBERS_MAX     DIBS__MEMBERS_MAX

static void round_start(struct dibs__group_op *op);

static int64_t patience_of(const struct dibs__group_op *op)
{
    int64_t lease =
        op->o.lease_ms ? op->o.lease_ms : op->g->members[0].c->lease_ms;

    if (op->o.member_ms)
        return op->o.member_ms;
    return dibs__max(PATIENCE_MIN_MS,
                     dibs__min(lease / PATIENCE_PART, PATIENCE_MAX_MS));
}

/* ---- messages ---------------------------------------------------------- */

/* How long a pause may still last, after what was heard. */
static int64_t wake_time(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    if (op->quorum.collided || op->quorum.heard == 0)
        return INT64_MAX;
    return op->quorum.heard >= op->g->need
               ? dibs__random_in(0, WAKE_MAX_MS)
               : dibs__random_in(FEW_MIN_MS, FEW_MAX_MS);
}

/* The moment is drawn once: of many draws the least would be none at all. */
static void member_told(void *arg, size_t i)
{
    struct dibs__group_op *op = arg;
    int64_t ms = INT64_MAX;

    dibs__lock(&op->g->mu);
    bool news = !op->m[i].heard;
    op->m[i].heard = true;
    op->quorum.heard += news;
    if (news && (op->quorum.heard == 1 || op->quorum.heard == op->g->need))
        ms = wake_time(op);
    dibs__unlock(&op->g->mu);
    if (ms < INT64_MAX)
        dibs__group_op_shorten_timer(op, ms);
}

static void ears_over(void *arg)
{
    dibs__group_op_unref(arg);
}

static void listen_to_members(struct dibs__group_op *op)
{
    if (op->quorum.ears || op->o.poll)
        return;
    dibs__group_op_ref(op);
    op->quorum.ears =
        dibs__member_subscriptions_open(op->g, member_told, ears_over, op);
    if (!op->quorum.ears)
        dibs__group_op_unref(op);
}

static void stop_listening(struct dibs__group_op *op)
{
    struct dibs__member_subscriptions *ears = op->quorum.ears;

    op->quorum.ears = NULL;
    if (ears)
        dibs__member_subscriptions_close(ears);
}

/* ---- counting ---------------------------------------------------------- */

/* Granted, in this round, by a server that is known. */
static bool is_vote(struct dibs__group_op *op, size_t i) REQUIRES(op->g->mu)
{
    return op->m[i].state == MEMBER_TAKEN &&
           op->m[i].round == op->quorum.rounds &&
           dibs__server_identity_is_known(op->g, i);
}

static size_t count_votes(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    size_t n = 0;

    for (size_t i = 0; i < op->g->n; i++)
        n += is_vote(op, i);
    return n;
}

/* Members that are waited for and may still become votes. */
static size_t count_open(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    size_t n = op->quorum.to_ask;

    for (size_t i = 0; i < op->g->n; i++)
        n += !op->m[i].detached && (op->m[i].state == MEMBER_ASKING ||
                                    op->m[i].state == MEMBER_CHECKING);
    return n;
}

/* The level has this member's hold from now on. */
static void give_to_level(struct dibs__group_op *op, size_t i)
    REQUIRES(op->g->mu)
{
    op->level->members[i].got = true;
    op->m[i].state = MEMBER_FREE;
}

/* Is there a majority of votes, and of holds that are ours at this moment? Then
 * the caller has the group. back: grants that do not count, because their
 * connection was made anew meanwhile; the caller returns them. */
static bool win_round(struct dibs__group_op *op, bool back[])
    REQUIRES(op->g->mu)
{
    struct dibs__group *g = op->g;
    int64_t now = dibs__now_ms();
    bool vote[MEMBERS_MAX];
    size_t votes = 0, valid = 0;

    for (size_t i = 0; i < g->n; i++) {
        votes += vote[i] = is_vote(op, i);
        if (!vote[i])
            continue;
        dibs_state state =
            dibs__entry_local_state(g->members[i].entry, op->o.owner, now)
                .state;
        valid += state == DIBS_HELD || state == DIBS_SUSPECT;
    }
    if (votes < g->need || valid < g->need || op->state != GROUP_OP_RUNNING ||
        !dibs__loss_arm(op->level->loss, vote) ||
        !dibs__group_op_complete(op, DIBS_OK))
        return false;
    op->quorum.round = ROUND_WON;
    dibs__group_level_activate(op->g, op->level);
    for (size_t i = 0; i < g->n; i++) {
        if (vote[i])
            give_to_level(op, i);
        back[i] = dibs__member_op_take(op, i);
    }
    return true;
}

static void round_won(struct dibs__group_op *op, const bool back[])
{
    stop_listening(op);
    for (size_t i = 0; i < op->g->n; i++)
        if (back[i])
            dibs__member_op_return(op, i, NULL, NULL, true);
    dibs__group_op_finish(op);
}

/* A grant of a server that has another member: no vote, and the acquire ends.
 */
static bool is_double_vote(struct dibs__group_op *op, size_t i)
    REQUIRES(op->g->mu)
{
    if (!is_vote(op, i) || !dibs__server_identity_is_duplicate(op->g, i))
        return false;
    op->level->members[i].err = DIBS_ERR_INVALID;
    dibs__group_op_stop(op, DIBS_ERR_INVALID);
    return true;
}

/* One member has ended, and its server is known, or it will not be. */
static void member_counted(struct dibs__group_op *op, struct dibs__member_op *m,
                           bool detached)
{
    size_t i = m->index;
    bool wins = false, loses = false, back = false, odd[MEMBERS_MAX];

    dibs__lock(&op->g->mu);
    bool vote = !is_double_vote(op, i) && is_vote(op, i) && op->err == DIBS_OK;
    switch (op->quorum.round) {
    case ROUND_ASKING:
        if (m->round != op->quorum.rounds)
            back = dibs__member_op_take(op, i);
        wins = vote && win_round(op, odd);
        loses = !wins && op->pending > 0 &&
                count_votes(op) + count_open(op) < op->g->need;
        if (loses)
            op->quorum.round = ROUND_BACK;
        break;
    case ROUND_WON: /* what the level has goes back with the others */
        if (vote && op->level->active) {
            give_to_level(op, i);
            dibs__loss_add(op->level->loss, i);
        }
        back = dibs__member_op_take(op, i);
        break;
    case ROUND_BACK:
        back = dibs__member_op_take(op, i);
        break;
    }
    dibs__unlock(&op->g->mu);
    if (back)
        dibs__member_op_return(op, i, NULL, NULL, detached);
    if (wins)
        round_won(op, odd);
    if (loses)
        dibs__members_return(op, 0, op->g->n, false);
}

/* ---- a server that nobody knows ---------------------------------------- */

static void identity_answered(struct dibs__command *cmd, dibs_err err,
                              const struct dibs__reply *reply)
{
    struct dibs__member_op *m = DIBS_OF(cmd, struct dibs__member_op, check);
    struct dibs__group_op *op = m->group_op;
    struct dibs__lock_entry *entry = op->g->members[m->index].entry;

    dibs__server_identity_record(op->g, m->index, err, reply);
    dibs__lock(&op->g->mu);
    bool detached = m->detached;
    m->detached = false;
    m->state = MEMBER_TAKEN;
    if (err != DIBS_OK && !reply)
        op->level->members[m->index].err = err;
    dibs__unlock(&op->g->mu);
    member_counted(op, m, detached);
    dibs__group_op_done(op, detached);
    atomic_fetch_sub(&entry->manager->in_flight, 1);
    dibs__entry_unref(entry);
}

/* It has granted the lock. If nobody knows which server it is, that is asked
 * before the grant counts. */
static void quorum_member_ended(struct dibs__group_op *op,
                                struct dibs__member_op *m, bool detached)
{
    struct dibs__member *member = &op->g->members[m->index];

    dibs__lock(&op->g->mu);
    bool check = m->state == MEMBER_TAKEN &&
                 !dibs__server_identity_is_known(op->g, m->index) &&
                 dibs__client_enter(member->c) == DIBS_OK;
    if (check) {
        m->state = MEMBER_CHECKING;
        m->detached = detached;
        op->pending += !detached;
    }
    dibs__unlock(&op->g->mu);
    if (!check) {
        member_counted(op, m, detached);
        return;
    }
    dibs__group_op_ref(op);
    dibs__entry_ref(member->entry);
    atomic_fetch_add(&member->entry->manager->in_flight, 1);
    dibs__server_identity_query(member, &m->check, op->quorum.patience_ms,
                                identity_answered);
    dibs__client_leave(member->c);
}

/* ---- patience ---------------------------------------------------------- */

static bool is_round_late(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    return op->state != GROUP_OP_TOLD && op->quorum.round != ROUND_WON &&
           op->pending > 0 && op->quorum.to_ask == 0 &&
           dibs__now_ms() >= op->quorum.late_at;
}

static bool is_server_up(const struct dibs__member *m)
{
    const struct dibs__server *s = dibs__entry_server(m->entry);

    return s && atomic_load(&s->ups) > atomic_load(&s->generation);
}

/* asked: the round's answer is what does not come. */
static void detach_member(struct dibs__group_op *op, size_t i, bool asked)
    REQUIRES(op->g->mu)
{
    struct dibs__member_op *m = &op->m[i];

    if (m->detached || m->state == MEMBER_FREE || m->state == MEMBER_TAKEN)
        return;
    m->detached = true;
    op->pending--;
    if (asked && dibs__now_ms() < op->deadline)
        op->level->members[i].err =
            is_server_up(&op->g->members[i]) ? DIBS_ERR_UNKNOWN : DIBS_ERR_CONN;
}

/* Nobody waits any longer for members that have not answered by now. */
static void detach_late(struct dibs__group_op *op)
{
    dibs__lock(&op->g->mu);
    if (!is_round_late(op)) {
        dibs__unlock(&op->g->mu);
        return;
    }
    bool asking = op->quorum.round == ROUND_ASKING;
    op->pending++;
    op->quorum.round = ROUND_BACK;
    op->quorum.late_at =
        asking ? dibs__now_ms() + op->quorum.patience_ms : INT64_MAX;
    for (size_t i = 0; i < op->g->n; i++)
        detach_member(op, i, asking);
    dibs__unlock(&op->g->mu);
    dibs__group_op_ref(op);
    if (asking)
        dibs__members_return(op, 0, op->g->n, false);
    dibs__group_op_done(op, false);
}

/* ---- between rounds ---------------------------------------------------- */

/* What made the round fail: holds that are lost, servers that could not be
 * asked, or a holder. Of a re-entry some members may be lost while the outer
 * hold is not: the others can still be a majority. */
static dibs_err round_reason(struct dibs__group_op *op)
{
    struct dibs__group *g = op->g;
    dibs_err first = DIBS_OK;
    size_t failed = 0, lost = 0;
    bool busy = false;

    dibs__lock(&op->g->mu);
    for (size_t i = 0; i < g->n; i++) {
        dibs_err err = op->level->members[i].err;
        busy |= err == DIBS_ERR_BUSY;
        lost += err == DIBS_ERR_LOST;
        if (err == DIBS_OK || err == DIBS_ERR_BUSY)
            continue;
        failed++;
        if (first == DIBS_OK && err != DIBS_ERR_LOST)
            first = err;
    }
    if (lost > g->n - g->need)
        first = DIBS_ERR_LOST;
    bool servers = failed > g->n - g->need || !busy;
    dibs_err err = op->err ? op->err : servers && first ? first : DIBS_ERR_BUSY;
    dibs__unlock(&op->g->mu);
    return err;
}

/* A server that is down may come back; other errors stay. */
static bool may_next_round_help(dibs_err err)
{
    return err == DIBS_ERR_BUSY || err == DIBS_ERR_CONN ||
           err == DIBS_ERR_UNKNOWN;
}

static void quorum_fail(struct dibs__group_op *op, dibs_err err)
{
    bool timeout = err == DIBS_ERR_BUSY && !op->no_wait;

    stop_listening(op);
    dibs__group_op_fail(op, timeout ? DIBS_ERR_TIMEOUT : err);
}

/* Did a server grant the round that failed? A member with a queue counts as
 * such: it calls those that are in the queue, and says nothing to others. */
static bool has_collided(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    for (size_t i = 0; i < op->g->n; i++)
        if (op->level->members[i].err == DIBS_OK ||
            op->g->members[i].entry->type->has_server_queue)
            return true;
    return false;
}

/* Until the next round, if no message comes. */
static int64_t pause_time(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    int64_t most = PAUSE_FIRST_MS << dibs__min(++op->quorum.rounds, 5);

    op->quorum.collided = has_collided(op);
    if (!op->quorum.collided && op->quorum.ears &&
        dibs__member_subscriptions_ready_count(op->quorum.ears) >= op->g->need)
        return dibs__random_in(POLL_MIN_MS, POLL_MAX_MS);
    return dibs__random_in(PAUSE_MIN_MS, dibs__min(most, PAUSE_MAX_MS));
}

static void next_round(struct dibs__group_op *op, int64_t left)
{
    listen_to_members(op);
    dibs__lock(&op->g->mu);
    int64_t ms = pause_time(op);
    dibs__unlock(&op->g->mu);
    dibs__group_op_timer_start(op, dibs__min(ms, left), round_start);
}

/* Every member has ended that was waited for. */
static void round_over(struct dibs__group_op *op)
{
    int64_t now = dibs__now_ms(), left = op->deadline - now;

    dibs__lock(&op->g->mu);
    enum dibs__round round = op->quorum.round;
    op->quorum.late_at = INT64_MAX;
    if (round == ROUND_ASKING) { /* a majority that did not last */
        op->quorum.round = ROUND_BACK;
        op->quorum.late_at = now + op->quorum.patience_ms;
    }
    dibs__unlock(&op->g->mu);
    if (round == ROUND_WON)
        return;
    if (round == ROUND_ASKING) {
        dibs__group_op_open(op, round_over);
        dibs__members_return(op, 0, op->g->n, false);
        dibs__group_op_run(op);
        return;
    }
    dibs_err why = round_reason(op);
    if (op->no_wait || !may_next_round_help(why) || left <= 0)
        quorum_fail(op, why);
    else
        next_round(op, left);
}

/* ---- a round ----------------------------------------------------------- */

/* Whom to ask: not those that were detached and have not ended. */
static void round_open(struct dibs__group_op *op, int64_t now, bool ask[])
{
    dibs__lock(&op->g->mu);
    op->quorum.round = ROUND_ASKING;
    op->quorum.late_at = dibs__min(dibs__add(now, op->quorum.patience_ms),
                                   op->no_wait ? INT64_MAX : op->deadline);
    for (size_t i = 0; i < op->g->n; i++) {
        ask[i] = op->m[i].state == MEMBER_FREE;
        if (op->quorum.rounds == 0) /* later: what the last round found */
            op->level->members[i].err = DIBS_ERR_UNKNOWN;
        if (ask[i])
            op->m[i].round = op->quorum.rounds;
        op->quorum.to_ask += ask[i];
        op->m[i].heard = false;
    }
    op->quorum.heard = 0;
    dibs__unlock(&op->g->mu);
}

static void ask_members(struct dibs__group_op *op, const bool ask[])
{
    bool direct = op->direct;
    struct dibs__fanout sc;

    op->direct = false;
    if (direct)
        dibs__fanout_begin(op, &sc);
    for (size_t i = 0; i < op->g->n; i++)
        if (ask[i])
            dibs__member_op_try(op, i, NULL, direct ? &sc : NULL);
    if (direct)
        dibs__fanout_collect(op, &sc);
}

static void round_start(struct dibs__group_op *op)
{
    int64_t now = dibs__now_ms();
    bool ask[MEMBERS_MAX];
    dibs_err err = dibs__group_op_stopped(op);

    dibs__lock(&op->g->mu);
    bool first = op->quorum.rounds == 0;
    dibs__unlock(&op->g->mu);
    if (!err && !first && !dibs__group_level_new_loss(op->level))
        err = DIBS_ERR_NOMEM;
    if (!err && !first && now >= op->deadline)
        err = round_reason(op); /* as the last round left it */
    if (err != DIBS_OK) {
        quorum_fail(op, err);
        return;
    }
    dibs__group_op_open(op, round_over);
    round_open(op, now, ask);
    ask_members(op, ask);
    dibs__group_op_run(op);
}

void dibs__quorum_start(struct dibs__group_op *op)
{
    op->quorum.patience_ms = patience_of(op);
    op->quorum.late = detach_late;
    op->quorum.wake = wake_time;
    op->member_ended = quorum_member_ended;
    round_start(op);
}
