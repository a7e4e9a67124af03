/* SPDX-License-Identifier: MIT
 *
 * quorum_lock.c - acquires a majority of members, each on a different server
 * (RedLock).
 *
 * Thread  as group_op.c.
 * Locks   group.mu; under it entry.mu, of one member at a time.
 *
 * How     A round tries all members in parallel, with a short reply timeout. A
 *         vote is a grant of this round from an identified server. The lock is
 *         held as soon as a majority has voted and those holds are still valid;
 *         the level keeps a late grant, too. If a majority is impossible, or
 *         was not reached in time, all grants are rolled back. The next round
 *         follows after a random pause, so that of two colliding callers the
 *         one with the shorter pause wins.
 *
 *         From the first pause on, the operation subscribes to the members'
 *         channels. Release messages of a majority end the pause after a short
 *         random delay. While a majority of the subscriptions is confirmed, a
 *         pause without a message is long. Messages of a minority shorten it
 *         less: they may stem from the rollback of another caller's round, or
 *         others may have been missed.
 *
 *         A round that got a grant and failed has collided with another
 *         caller's round. Rollbacks publish messages, too, which reach the
 *         caller itself. If they started the next round, rounds would trigger
 *         each other for ever; so after a collision messages do not shorten the
 *         pause. It is random, up to a bound that doubles with each round.
 *
 *         A member whose server has not replied in time is detached: no step
 *         waits for it, later rounds leave it out until its reply has arrived,
 *         and its late grant is released. If no reply ever arrives, the member
 *         operation handles it (lock/core/operation.c: the owner gets a new id,
 *         and the reaper releases what the old id may still be granted).
 *
 *         The validity of the group needs no computation of its own. Each
 *         member's hold is valid until its send time plus the lease, less the
 *         drift margin; the group is held while a majority of the holds are
 *         (group.c). Each hold is renewed by itself; one whose key is gone
 *         from its server is lost and stays lost.
 *
 * Rounds  state      event                                   next
 *         ACQUIRING  a majority has voted and is valid       WON
 *                    a majority is impossible, or the reply
 *                    timeout has passed                      ROLLBACK
 *                    all replied, the majority is not valid  ROLLBACK
 *         WON        a late grant is kept or released        WON
 *         ROLLBACK   all released, and a pause               ACQUIRING
 *                    all released, no further round          (completed)
 *
 * Limits  Two addresses may lead to one server, which would then vote twice. A
 *         grant therefore counts only once the server is identified
 *         (server_identity.c); two members on one server fail the acquire with
 *         INVALID.
 */
#include "group/group_op.h"
#include "group/server_identity.h"

#define REPLY_TIMEOUT_DIVISOR 50 /* the lease divided by this */
#define REPLY_TIMEOUT_MIN_MS  20
#define REPLY_TIMEOUT_MAX_MS  500
#define PAUSE_MIN_MS          1
#define PAUSE_BOUND_MS        10 /* bound of a pause: this << round */
#define PAUSE_DOUBLINGS_MAX   5
#define PAUSE_MAX_MS          200
#define POLL_MIN_MS           1000 /* a pause that a message should end */
#define POLL_MAX_MS           2000
#define MAJORITY_DELAY_MAX_MS 2   /* from a majority's messages to the round */
#define MINORITY_DELAY_MIN_MS 200 /* from the first message to the round */
#define MINORITY_DELAY_MAX_MS 400
#define MEMBERS_MAX           DIBS__MEMBERS_MAX

static void round_start(struct dibs__group_op *op);

static int64_t reply_timeout_of(const struct dibs__group_op *op)
{
    int64_t lease =
        op->o.lease_ms ? op->o.lease_ms : op->g->members[0].c->lease_ms;

    if (op->o.member_ms)
        return op->o.member_ms;
    return dibs__max(
        REPLY_TIMEOUT_MIN_MS,
        dibs__min(lease / REPLY_TIMEOUT_DIVISOR, REPLY_TIMEOUT_MAX_MS));
}

/* ---- messages ---------------------------------------------------------- */

/* Returns how long a pause may still last, given the members that sent a
 * message; INT64_MAX: they do not shorten it. */
static int64_t shortened_pause(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    if (op->quorum.collided || op->quorum.notified_count == 0)
        return INT64_MAX;
    return op->quorum.notified_count >= op->g->required
               ? dibs__random_in(0, MAJORITY_DELAY_MAX_MS)
               : dibs__random_in(MINORITY_DELAY_MIN_MS, MINORITY_DELAY_MAX_MS);
}

/* The random delay is drawn once for the first message and once for the
 * majority: the minimum of a draw for each message would be close to 0. */
static void on_member_message(void *arg, size_t i)
{
    struct dibs__group_op *op = arg;
    int64_t ms = INT64_MAX;

    dibs__lock(&op->g->mu);
    bool is_first = !op->member_ops[i].notified;
    op->member_ops[i].notified = true;
    op->quorum.notified_count += is_first;
    if (is_first && (op->quorum.notified_count == 1 ||
                     op->quorum.notified_count == op->g->required))
        ms = shortened_pause(op);
    dibs__unlock(&op->g->mu);
    if (ms < INT64_MAX)
        dibs__group_op_shorten_timer(op, ms);
}

static void on_subscriptions_end(void *arg)
{
    dibs__group_op_unref(arg);
}

static void subscribe_to_members(struct dibs__group_op *op)
{
    if (op->quorum.subscriptions || op->o.poll)
        return;
    dibs__group_op_ref(op);
    op->quorum.subscriptions = dibs__member_subscriptions_open(
        op->g, on_member_message, on_subscriptions_end, op);
    if (!op->quorum.subscriptions)
        dibs__group_op_unref(op);
}

static void unsubscribe_from_members(struct dibs__group_op *op)
{
    struct dibs__member_subscriptions *subs = op->quorum.subscriptions;

    op->quorum.subscriptions = NULL;
    if (subs)
        dibs__member_subscriptions_close(subs);
}

/* ---- votes ------------------------------------------------------------- */

/* A vote: granted, in this round, by an identified server. */
static bool is_vote(struct dibs__group_op *op, size_t i) REQUIRES(op->g->mu)
{
    return op->member_ops[i].state == MEMBER_ACQUIRED &&
           op->member_ops[i].round_number == op->quorum.round_number &&
           dibs__server_identity_is_known(op->g, i);
}

static size_t count_votes(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    size_t n = 0;

    for (size_t i = 0; i < op->g->n; i++)
        n += is_vote(op, i);
    return n;
}

/* Members of this round that may still become votes. */
static size_t count_possible_votes(struct dibs__group_op *op)
    REQUIRES(op->g->mu)
{
    size_t n = op->quorum.unstarted;

    for (size_t i = 0; i < op->g->n; i++)
        n += !op->member_ops[i].detached &&
             (op->member_ops[i].state == MEMBER_ACQUIRING ||
              op->member_ops[i].state == MEMBER_IDENTIFYING);
    return n;
}

/* Moves member i's hold from the operation to the level. */
static void move_to_level(struct dibs__group_op *op, size_t i)
    REQUIRES(op->g->mu)
{
    op->level->members[i].acquired = true;
    op->member_ops[i].state = MEMBER_IDLE;
}

/* If a majority has voted and a majority of the holds is valid: completes the
 * operation, activates the level and returns true.
 * release[i]: member i is acquired but no vote, because its connection was
 * replaced meanwhile; the caller must release it. */
static bool win_round(struct dibs__group_op *op, bool release[])
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
    if (votes < g->required || valid < g->required ||
        op->state != GROUP_OP_RUNNING ||
        !dibs__loss_arm(op->level->loss, vote) ||
        !dibs__group_op_complete(op, DIBS_OK))
        return false;
    op->quorum.round_state = ROUND_WON;
    dibs__group_level_activate(op->g, op->level);
    for (size_t i = 0; i < g->n; i++) {
        if (vote[i])
            move_to_level(op, i);
        release[i] = dibs__member_op_claim_release(op, i);
    }
    return true;
}

static void finish_won_round(struct dibs__group_op *op, const bool release[])
{
    unsubscribe_from_members(op);
    for (size_t i = 0; i < op->g->n; i++)
        if (release[i])
            dibs__member_op_release(op, i, NULL, NULL, true);
    dibs__group_op_finish(op);
}

/* If member i was granted by a server that is known to be another member's,
 * too: stops the operation and returns true. */
static bool stop_on_double_vote(struct dibs__group_op *op, size_t i)
    REQUIRES(op->g->mu)
{
    if (!is_vote(op, i) || !dibs__server_identity_is_duplicate(op->g, i))
        return false;
    op->level->members[i].err = DIBS_ERR_INVALID;
    dibs__group_op_stop(op, DIBS_ERR_INVALID);
    return true;
}

/* Counts a member operation that has ended and whose server is identified, or
 * cannot be. */
static void count_member(struct dibs__group_op *op, struct dibs__member_op *m,
                         bool detached)
{
    size_t i = m->index;
    bool wins = false, loses = false, release = false;
    bool release_others[MEMBERS_MAX];

    dibs__lock(&op->g->mu);
    bool vote =
        !stop_on_double_vote(op, i) && is_vote(op, i) && op->err == DIBS_OK;
    switch (op->quorum.round_state) {
    case ROUND_ACQUIRING:
        if (m->round_number != op->quorum.round_number)
            release = dibs__member_op_claim_release(op, i);
        wins = vote && win_round(op, release_others);
        loses = !wins && op->pending > 0 &&
                count_votes(op) + count_possible_votes(op) < op->g->required;
        if (loses)
            op->quorum.round_state = ROUND_ROLLBACK;
        break;
    case ROUND_WON: /* a late grant; the level may have been released */
        if (vote && op->level->active) {
            move_to_level(op, i);
            dibs__loss_add(op->level->loss, i);
        }
        release = dibs__member_op_claim_release(op, i);
        break;
    case ROUND_ROLLBACK:
        release = dibs__member_op_claim_release(op, i);
        break;
    }
    dibs__unlock(&op->g->mu);
    if (release)
        dibs__member_op_release(op, i, NULL, NULL, detached);
    if (wins)
        finish_won_round(op, release_others);
    if (loses)
        dibs__members_release(op, 0, op->g->n, false);
}

/* ---- identification of servers ----------------------------------------- */

static void on_identity_reply(struct dibs__command *cmd, dibs_err err,
                              const struct dibs__reply *reply)
{
    struct dibs__member_op *m =
        DIBS_OF(cmd, struct dibs__member_op, identify_command);
    struct dibs__group_op *op = m->group_op;
    struct dibs__lock_entry *entry = op->g->members[m->index].entry;

    dibs__server_identity_record(op->g, m->index, err, reply);
    dibs__lock(&op->g->mu);
    bool detached = m->detached;
    m->detached = false;
    m->state = MEMBER_ACQUIRED;
    if (err != DIBS_OK && !reply)
        op->level->members[m->index].err = err;
    dibs__unlock(&op->g->mu);
    count_member(op, m, detached);
    dibs__group_op_pending_done(op, detached);
    atomic_fetch_sub(&entry->manager->in_flight, 1);
    dibs__entry_unref(entry);
}

/* A grant counts after its server was identified: queries the run_id if it is
 * not known for the present connection. */
static void quorum_member_ended(struct dibs__group_op *op,
                                struct dibs__member_op *m, bool detached)
{
    struct dibs__member *member = &op->g->members[m->index];

    dibs__lock(&op->g->mu);
    bool identify = m->state == MEMBER_ACQUIRED &&
                    !dibs__server_identity_is_known(op->g, m->index) &&
                    dibs__client_enter(member->c) == DIBS_OK;
    if (identify) {
        m->state = MEMBER_IDENTIFYING;
        m->detached = detached;
        op->pending += !detached;
    }
    dibs__unlock(&op->g->mu);
    if (!identify) {
        count_member(op, m, detached);
        return;
    }
    dibs__group_op_ref(op);
    dibs__entry_ref(member->entry);
    atomic_fetch_add(&member->entry->manager->in_flight, 1);
    dibs__server_identity_query(member, &m->identify_command,
                                op->quorum.reply_timeout_ms, on_identity_reply);
    dibs__client_leave(member->c);
}

/* ---- reply timeout ----------------------------------------------------- */

static bool is_round_overdue(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    return op->state != GROUP_OP_COMPLETED &&
           op->quorum.round_state != ROUND_WON && op->pending > 0 &&
           op->quorum.unstarted == 0 && dibs__now_ms() >= op->quorum.overdue_at;
}

static bool is_server_up(const struct dibs__member *m)
{
    const struct dibs__server *s = dibs__entry_server(m->entry);

    return s && atomic_load(&s->connect_count) > atomic_load(&s->generation);
}

/* acquiring: the overdue reply is that of the acquire. */
static void detach_member(struct dibs__group_op *op, size_t i, bool acquiring)
    REQUIRES(op->g->mu)
{
    struct dibs__member_op *m = &op->member_ops[i];

    if (m->detached || m->state == MEMBER_IDLE || m->state == MEMBER_ACQUIRED)
        return;
    m->detached = true;
    op->pending--;
    if (acquiring && dibs__now_ms() < op->deadline)
        op->level->members[i].err =
            is_server_up(&op->g->members[i]) ? DIBS_ERR_UNKNOWN : DIBS_ERR_CONN;
}

/* After the reply timeout: detaches the members without a reply and rolls the
 * round back. */
static void detach_overdue(struct dibs__group_op *op)
{
    dibs__lock(&op->g->mu);
    if (!is_round_overdue(op)) {
        dibs__unlock(&op->g->mu);
        return;
    }
    bool acquiring = op->quorum.round_state == ROUND_ACQUIRING;
    op->pending++;
    op->quorum.round_state = ROUND_ROLLBACK;
    op->quorum.overdue_at =
        acquiring ? dibs__now_ms() + op->quorum.reply_timeout_ms : INT64_MAX;
    for (size_t i = 0; i < op->g->n; i++)
        detach_member(op, i, acquiring);
    dibs__unlock(&op->g->mu);
    dibs__group_op_ref(op);
    if (acquiring)
        dibs__members_release(op, 0, op->g->n, false);
    dibs__group_op_pending_done(op, false);
}

/* ---- between rounds ---------------------------------------------------- */

/* Returns why the round failed: LOST, the first server error, or BUSY. A
 * re-entry may find some members of the outer level lost; that is no failure as
 * long as the others can be a majority. */
static dibs_err round_error(struct dibs__group_op *op)
{
    struct dibs__group *g = op->g;
    dibs_err first_err = DIBS_OK;
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
        if (first_err == DIBS_OK && err != DIBS_ERR_LOST)
            first_err = err;
    }
    if (lost > g->n - g->required)
        first_err = DIBS_ERR_LOST;
    bool blame_servers = failed > g->n - g->required || !busy;
    dibs_err err = blame_servers && first_err ? first_err : DIBS_ERR_BUSY;
    if (op->err)
        err = op->err;
    dibs__unlock(&op->g->mu);
    return err;
}

/* A holder may release, and a server that is down may come back; other errors
 * are permanent. */
static bool is_round_retryable(dibs_err err)
{
    return err == DIBS_ERR_BUSY || err == DIBS_ERR_CONN ||
           err == DIBS_ERR_UNKNOWN;
}

static void quorum_fail(struct dibs__group_op *op, dibs_err err)
{
    bool timeout = err == DIBS_ERR_BUSY && !op->no_wait;

    unsubscribe_from_members(op);
    dibs__group_op_fail(op, timeout ? DIBS_ERR_TIMEOUT : err);
}

/* Returns whether the failed round got a grant. A member with a queue on the
 * server counts as one: its messages are addressed to queued waiters only, so a
 * long pause would miss its release. */
static bool has_collided(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    for (size_t i = 0; i < op->g->n; i++)
        if (op->level->members[i].err == DIBS_OK ||
            op->g->members[i].entry->type->has_server_queue)
            return true;
    return false;
}

/* Counts the round and returns the pause before the next if no message
 * arrives. */
static int64_t next_pause(struct dibs__group_op *op) REQUIRES(op->g->mu)
{
    int64_t bound = PAUSE_BOUND_MS << dibs__min(++op->quorum.round_number,
                                                PAUSE_DOUBLINGS_MAX);

    op->quorum.collided = has_collided(op);
    if (!op->quorum.collided && op->quorum.subscriptions &&
        dibs__member_subscriptions_ready_count(op->quorum.subscriptions) >=
            op->g->required)
        return dibs__random_in(POLL_MIN_MS, POLL_MAX_MS);
    return dibs__random_in(PAUSE_MIN_MS, dibs__min(bound, PAUSE_MAX_MS));
}

static void next_round(struct dibs__group_op *op, int64_t left)
{
    subscribe_to_members(op);
    dibs__lock(&op->g->mu);
    int64_t ms = next_pause(op);
    dibs__unlock(&op->g->mu);
    dibs__group_op_timer_start(op, dibs__min(ms, left), round_start);
}

/* No member operation of the round is pending. */
static void round_done(struct dibs__group_op *op)
{
    int64_t now = dibs__now_ms(), left = op->deadline - now;

    dibs__lock(&op->g->mu);
    enum dibs__round round_state = op->quorum.round_state;
    op->quorum.overdue_at = INT64_MAX;
    if (round_state == ROUND_ACQUIRING) { /* a majority that is not valid */
        op->quorum.round_state = ROUND_ROLLBACK;
        op->quorum.overdue_at = now + op->quorum.reply_timeout_ms;
    }
    dibs__unlock(&op->g->mu);
    if (round_state == ROUND_WON)
        return;
    if (round_state == ROUND_ACQUIRING) {
        dibs__group_op_pending_begin(op, round_done);
        dibs__members_release(op, 0, op->g->n, false);
        dibs__group_op_pending_end(op);
        return;
    }
    dibs_err why = round_error(op);
    if (op->no_wait || !is_round_retryable(why) || left <= 0)
        quorum_fail(op, why);
    else
        next_round(op, left);
}

/* ---- a round ----------------------------------------------------------- */

/* Begins the round. included[i]: member i takes part; detached members whose
 * reply has not arrived do not. */
static void round_begin(struct dibs__group_op *op, int64_t now, bool included[])
{
    dibs__lock(&op->g->mu);
    op->quorum.round_state = ROUND_ACQUIRING;
    op->quorum.overdue_at =
        dibs__min(dibs__add(now, op->quorum.reply_timeout_ms),
                  op->no_wait ? INT64_MAX : op->deadline);
    for (size_t i = 0; i < op->g->n; i++) {
        included[i] = op->member_ops[i].state == MEMBER_IDLE;
        if (op->quorum.round_number == 0) /* later: the last round's verdict */
            op->level->members[i].err = DIBS_ERR_UNKNOWN;
        if (included[i])
            op->member_ops[i].round_number = op->quorum.round_number;
        op->quorum.unstarted += included[i];
        op->member_ops[i].notified = false;
    }
    op->quorum.notified_count = 0;
    dibs__unlock(&op->g->mu);
}

static void try_members(struct dibs__group_op *op, const bool included[])
{
    bool on_caller_thread = op->on_caller_thread;
    struct dibs__fanout fanout;

    op->on_caller_thread = false;
    if (on_caller_thread)
        dibs__fanout_begin(op, &fanout);
    for (size_t i = 0; i < op->g->n; i++)
        if (included[i])
            dibs__member_op_try(op, i, NULL, on_caller_thread ? &fanout : NULL);
    if (on_caller_thread)
        dibs__fanout_collect(op, &fanout);
}

static void round_start(struct dibs__group_op *op)
{
    int64_t now = dibs__now_ms();
    bool included[MEMBERS_MAX];
    dibs_err err = dibs__group_op_error(op);

    dibs__lock(&op->g->mu);
    bool first_round = op->quorum.round_number == 0;
    dibs__unlock(&op->g->mu);
    if (!err && !first_round && !dibs__group_level_new_loss(op->level))
        err = DIBS_ERR_NOMEM;
    if (!err && !first_round && now >= op->deadline)
        err = round_error(op); /* of the last round */
    if (err != DIBS_OK) {
        quorum_fail(op, err);
        return;
    }
    dibs__group_op_pending_begin(op, round_done);
    round_begin(op, now, included);
    try_members(op, included);
    dibs__group_op_pending_end(op);
}

void dibs__quorum_start(struct dibs__group_op *op)
{
    op->quorum.reply_timeout_ms = reply_timeout_of(op);
    op->quorum.on_overdue = detach_overdue;
    op->quorum.shortened_pause = shortened_pause;
    op->member_ended = quorum_member_ended;
    round_start(op);
}
