/* SPDX-License-Identifier: MIT
 *
 * command.c - a command seen through.
 *
 * Thread  io, except dibs__command_start and dibs__command_run_direct.
 * Locks   none.
 *
 * How     A call is sent; what comes back decides (error_class.c): it is
 * answered, tried again a little later, or given up, all by one deadline.
 *
 *         state    what happens                          next
 *         POSTED   io looks: up; not up                  SENT; WAITING
 *         WAITING  a connection, a map; the time is over SENT; OVER
 *         RESTING  the time to try again                 as POSTED
 *         GROUPED  (replica_ack.c) the group goes               SENT
 *         SENT     the answer; "not now"; none           OVER; RESTING; POSTED
 *         SENT     the answer, but replicas count        KEPT
 *         KEPT     (replica_ack.c) they have it, or do not      OVER
 *
 *         In a cluster a call goes by its slot: where that is is looked up
 *         each time it is sent. MOVED tells another place for good, ASK for
 *         this once: then ASKING goes out before the command, in one write.
 *
 * Ghosts  A call whose reply was lost leaves a ghost: see in_doubt.c. The ghost
 * is canceled before the call is sent again. Where that is not possible, the
 * caller is told, and takes care by other means.
 */
#include "client/command/command.h"

#include "client/command/error_class.h"
#include "client/command/in_doubt.h"
#include "client/command/script.h"

#include <stdio.h>
#include <string.h>

#define RETRY_FIRST_MS 10
#define RETRY_MAX_MS   500
#define HUSH_MS        1000
#define HOPS_MAX       4 /* sent on so often at once, then with pauses */

static void start_call(struct dibs__command *call);

/* The reply to this call is lost. Thread: the one that has the connection. */
static void taint_call(struct dibs__command *call)
{
    struct dibs__pooled_conn *ln =
        DIBS_OF(call->req.cn, struct dibs__pooled_conn, cn);

    dibs__stats_count(call->s->events.stats, STAT_UNKNOWN, 1);
    call->again = true;
    call->loose |=
        call->g && !dibs__in_doubt_killed(call->g); /* an older one */
    dibs__in_doubt_unref(call->g);
    if (!ln->ghost)
        ln->ghost = dibs__in_doubt_new(ln);
    call->g = ln->ghost;
    if (call->g)
        dibs__in_doubt_ref(call->g);
    else
        call->loose = true;
}

/* ---- one call ---------------------------------------------------------- */

/* Why it ends with an error: what the server answered, or the last that is
 * known about the server, or about the cluster. */
static void explain_call(struct dibs__command *call, dibs_err err,
                         const struct dibs__reply *reply)
{
    char words[DIBS__REASON_MAX], why[DIBS__REASON_MAX];
    const struct dibs__url *url = call->s ? &call->s->to.url : call->slots->url;
    const char *known = call->s ? call->s->why : call->slots->why;

    if (reply && reply->type == REPLY_ERROR) {
        dibs__script_words(reply->text, call->slots ? NULL : url, words);
        dibs__event_text(url, words, why);
    } else if (err == DIBS_ERR_PROTOCOL) {
        dibs__event_text(url, "the reply makes no sense", why);
    } else if (known[0]) {
        snprintf(why, sizeof why, "%s", known);
    } else {
        dibs__event_text(url, dibs_strerror(err), why);
    }
    call->explain(call, err, why);
}

static struct dibs__loop *loop_of(const struct dibs__command *call)
{
    return call->s ? call->s->lp : call->slots->lp;
}

/* So many calls are with io: a server that has some gets no callers. Those for
 * replicas have a connection of their own. */
static void count_call(const struct dibs__command *call, unsigned by)
{
    if (call->s && !call->replicas)
        atomic_fetch_add_explicit(&call->s->queued, by, memory_order_relaxed);
}

static void end_call(struct dibs__command *call, dibs_err err,
                     const struct dibs__reply *reply)
{
    dibs__timer_stop(loop_of(call), &call->timer);
    call->state = CMD_DONE;
    call->ghost = call->loose || (call->g && !dibs__in_doubt_killed(call->g) &&
                                  dibs__in_doubt_of(call->g, call->s));
    if (call->g)
        dibs__in_doubt_kill_later(call->g);
    dibs__in_doubt_unref(call->g);
    call->g = NULL;
    count_call(call, -1u);
    call->done(call, err, reply);
}

static void finish_call(struct dibs__command *call, dibs_err err,
                        const struct dibs__reply *reply)
{
    if (err != DIBS_OK && err != DIBS_ERR_CLOSED && call->explain)
        explain_call(call, err, reply);
    end_call(call, err, reply);
}

static bool is_closing(const struct dibs__command *call)
{
    return call->s ? dibs__server_is_closing(call->s) : call->slots->closing;
}

static void give_up_call(struct dibs__command *call)
{
    if (call->again)
        finish_call(call, DIBS_ERR_UNKNOWN, NULL);
    else if (is_closing(call))
        finish_call(call, DIBS_ERR_CLOSED, NULL);
    else if (call->last)
        finish_call(call, call->last, NULL);
    else /* one that is not writable is there, and would have said no */
        finish_call(call,
                    call->s && call->s->unfit ? DIBS_ERR_SERVER : DIBS_ERR_CONN,
                    NULL);
}

static void call_timed(struct dibs__timer *t)
{
    struct dibs__command *call = DIBS_OF(t, struct dibs__command, timer);

    assert(call->state == CMD_WAITING || call->state == CMD_BACKOFF ||
           call->state == CMD_WAIT_GROUP);
    dibs__list_del(&call->req.link);
    start_call(call);
}

static void move_call(struct dibs__command *call, struct dibs__server *to)
{
    count_call(call, -1u);
    call->s = to;
    count_call(call, 1);
}

static void route_call(struct dibs__command *call)
{
    if (!call->slots || call->slot < 0 || call->asking)
        return;
    struct dibs__server *to = call->slots->find(call->slots, call->slot);
    if (to != call->s)
        move_call(call, to);
}

/* For its server, or to know which one that is. The call may be over after
 * that. */
static void wait_call(struct dibs__command *call, int64_t until)
{
    struct dibs__server *s = call->s;

    call->state = CMD_WAITING;
    dibs__list_add(s ? &s->waiting : &call->slots->waiting, &call->req.link);
    dibs__timer_set(loop_of(call), &call->timer, until);
    if (s)
        dibs__server_ensure_connected(s);
    else
        call->slots->wanted(call->slots);
}

static void start_call(struct dibs__command *call)
{
    route_call(call);
    struct dibs__server *s = call->s;
    bool up = s && dibs__server_is_up(s);
    int64_t until = call->deadline;

    if (!up && call->connect_by)
        until = dibs__min(until, call->connect_by);
    if (is_closing(call) || dibs__now_ms() >= until) {
        give_up_call(call);
        return;
    }
    if (!up) {
        wait_call(call, until);
        return;
    }
    if (call->g && dibs__in_doubt_of(call->g, s))
        dibs__in_doubt_kill(call->g);
    if (call->replicas)
        s->acks.add(s, call);
    else
        dibs__command_send(call, s->main);
}

void dibs__command_send(struct dibs__command *call,
                        struct dibs__pooled_conn *ln)
{
    dibs__timer_stop(call->s->lp, &call->timer);
    dibs__command_mark_sent(call);
    call->req.skip = call->asking ? 1 : 0;
    dibs__conn_send(&ln->cn, &call->req);
    call->asking = false; /* for this once */
}

void dibs__command_retry(struct dibs__command *call, bool executed)
{
    call->again |= executed;
    start_call(call);
}

void dibs__command_give_up(struct dibs__command *call, dibs_err err)
{
    call->last = err;
    give_up_call(call);
}

void dibs__command_acknowledged(struct dibs__command *call, dibs_err err,
                                bool refused)
{
    struct dibs__reply reply = {.type = call->kept};

    if (reply.type == REPLY_TEXT) {
        reply.text = call->kept_as.text;
        reply.len = strlen(reply.text);
    } else {
        reply.num = call->kept_as.num;
    }
    call->unacked = err != DIBS_OK;
    if (refused && call->explain)
        call->explain(call, err, call->s->why);
    end_call(call, err, &reply);
}

static void rest_call(struct dibs__command *call)
{
    int64_t wait = RETRY_FIRST_MS << dibs__min(call->tries, 6);

    call->tries++;
    wait = dibs__min(wait, RETRY_MAX_MS);
    wait = dibs__now_ms() + dibs__random_in(wait / 2, wait);
    call->state = CMD_BACKOFF;
    dibs__list_add(&call->s->resting, &call->req.link);
    dibs__timer_set(call->s->lp, &call->timer, dibs__min(wait, call->deadline));
}

/* MOVED or ASK: another server it is. */
static bool redirect_call(struct dibs__command *call, const char *error)
{
    bool ask = false;

    if (!call->slots)
        return false;
    struct dibs__server *to =
        call->slots->redirect(call->slots, call->s, error, &call->slot, &ask);
    if (!to || to == call->s || call->hops++ >= HOPS_MAX) {
        rest_call(call);
        return true;
    }
    if (ask)
        move_call(call, to);
    call->asking = ask;
    start_call(call);
    return true;
}

static void tell_error(const struct dibs__command *call, const char *error)
{
    char words[DIBS__REASON_MAX];

    dibs__script_words(error, call->slots ? NULL : &call->s->to.url, words);
    dibs__server_log(call->s, DIBS_EVENT_ERROR, call->last, words);
}

/* The server can do nothing just now (it is loading, say), and all its calls
 * come back with that: once in a while is enough. In a cluster a slot on its
 * way answers so, which is not worth telling. */
static void tell_not_now(const struct dibs__command *call, const char *error)
{
    int64_t now = dibs__now_ms();

    if (call->quiet || call->slots || now < call->s->hush_until)
        return;
    call->s->hush_until = now + HUSH_MS;
    tell_error(call, error);
}

/* The server answered with an error. False: that is the answer. */
static bool try_again(struct dibs__command *call, const char *error)
{
    const struct dibs__error_class *class = dibs__error_classify(error);

    call->partly = class->executed == EXECUTED_PARTLY;
    call->last = class->err;
    if (class->next != NEXT_GIVE_UP && class->next != NEXT_RELOAD)
        dibs__server_set_last_error(call->s,
                                    error); /* should it give up then */
    switch (class->next) {
    case NEXT_GIVE_UP:
        return false;
    case NEXT_RELOAD:
        if (call->whole)
            return false;
        call->whole = true;
        start_call(call);
        return true;
    case NEXT_REDIAL:
        dibs__server_redial(call->s, error);
        rest_call(call);
        return true;
    case NEXT_REDIRECT:
        return redirect_call(call, error);
    case NEXT_LATER:
        call->again |= call->partly;
        tell_not_now(call, error);
        if (call->slots)
            call->slots->doubt(call->slots);
        rest_call(call);
        return true;
    }
    return false;
}

/* A reply ends with the next one: what is said of this one is copied. */
static void keep_reply(struct dibs__command *call,
                       const struct dibs__reply *reply)
{
    const size_t room = sizeof call->kept_as.text - 1;
    size_t len = reply->len < room ? reply->len : room;

    call->state = CMD_AWAIT_REPLICAS;
    call->kept = (unsigned char)reply->type;
    if (reply->type != REPLY_TEXT) {
        call->kept_as.num = reply->num;
        return;
    }
    memcpy(call->kept_as.text, reply->text, len);
    call->kept_as.text[len] = 0;
}

/* What the reply says, maybe in *room. NULL: it is not the reply to this
 * sending; the connection is out of step. */
static const struct dibs__reply *answer_in(const struct dibs__command *call,
                                           const struct dibs__reply *reply,
                                           struct dibs__reply *room)
{
    if (!call->plain)
        reply = dibs__script_result(reply, call->req.number, room);
    return reply && dibs__reply_fits(reply, call->expects) ? reply : NULL;
}

static void judge_reply(struct dibs__req *req, dibs_err err,
                        const struct dibs__reply *reply)
{
    struct dibs__command *call = DIBS_OF(req, struct dibs__command, req);
    const struct dibs__reply *whole = reply;
    struct dibs__reply room;

    reply = err == DIBS_OK ? answer_in(call, whole, &room) : NULL;
    if (err == DIBS_OK && !reply) {
        /* Again: that is how this server answers. But with others behind it,
         * it may be the answer to one of those. */
        if (call->misfit && dibs__list_empty(&req->cn->fifo)) {
            finish_call(call, DIBS_ERR_PROTOCOL, whole);
            return;
        }
        call->misfit = true;
        err = DIBS_ERR_UNKNOWN;
        dibs__conn_close(req->cn, DIBS_ERR_CONN, "a reply to another command");
    }
    if (err == DIBS_OK)
        DIBS_OF(req->cn, struct dibs__pooled_conn, cn)->served = true;
    if (err == DIBS_OK && call->replicas && call->writes & 1u << reply->type) {
        keep_reply(call, reply);
        call->s->acks.keep(call->s, call);
    } else if (err == DIBS_OK && reply->type != REPLY_ERROR) {
        dibs__server_mark_writable(call->s);
        finish_call(call, DIBS_OK, reply);
    } else if (err == DIBS_OK) {
        if (try_again(call, reply->text))
            return;
        if (!call->quiet)
            tell_error(call, reply->text);
        finish_call(call, call->last, reply);
    } else {
        if (err == DIBS_ERR_UNKNOWN) {
            taint_call(call);
            dibs__server_log(call->s, DIBS_EVENT_UNKNOWN, err,
                             "a reply was lost");
        }
        start_call(call);
    }
}

static void call_answered(struct dibs__req *req, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct dibs__server *s = DIBS_OF(req, struct dibs__command, req)->s;
    struct dibs__pooled_conn *ln =
        DIBS_OF(req->cn, struct dibs__pooled_conn, cn);

    judge_reply(req, err, reply);
    dibs__server_replied(s);
    dibs__server_reclaim(ln);
}

static void write_call(struct dibs__req *req, struct dibs__buf *out)
{
    struct dibs__command *call = DIBS_OF(req, struct dibs__command, req);

    dibs__stats_count(call->s->events.stats, STAT_COMMANDS, 1);
    if (call->asking) {
        dibs__buf_array(out, 1);
        dibs__buf_arg_text(out, "ASKING");
    }
    call->write(call, out, call->whole);
    if (!call->plain)
        dibs__buf_arg_num(out, req->number);
}

static void start_posted(struct dibs__task *t)
{
    start_call(DIBS_OF(t, struct dibs__command, task));
}

void dibs__command_prepare(struct dibs__route to, struct dibs__command *call)
{
    call->s = to.server;
    call->slots = to.server ? to.server->slots : to.slots;
    if (!call->s)
        call->s = call->slots->find(call->slots, call->slot);
    call->req = (struct dibs__req){.write = write_call, .done = call_answered};
    call->req.careful = call->plain; /* its answer has no number */
    call->task.run = start_posted;
    call->timer.fire = call_timed;
    call->timer.at = 0;
    call->g = NULL;
    call->again = call->ghost = call->partly = call->unacked = false;
    call->loose = call->whole = call->misfit = false;
    call->asking = call->put_off = false;
    call->tries = call->hops = 0;
    call->last = DIBS_OK;
    call->state = CMD_POSTED;
}

void dibs__command_post(struct dibs__command *call)
{
    call->state = CMD_POSTED;
    count_call(call, 1);
    dibs__loop_post(loop_of(call), &call->task);
}

void dibs__command_start(struct dibs__route to, struct dibs__command *call)
{
    dibs__command_prepare(to, call);
    dibs__command_post(call);
}

void dibs__command_run_now(struct dibs__route to, struct dibs__command *call)
{
    dibs__command_prepare(to, call);
    count_call(call, 1);
    start_call(call);
}

bool dibs__command_consume_reply(struct dibs__command *call,
                                 const struct dibs__reply *reply)
{
    struct dibs__reply room;

    reply = answer_in(call, reply, &room);
    call->misfit = !reply;
    if (call->misfit)
        return false;
    if (reply->type == REPLY_ERROR) {
        /* An error from the middle of a script: it may be done all the same. */
        call->again |=
            dibs__error_classify(reply->text)->executed == EXECUTED_PARTLY;
        dibs__command_post(call);
        return true;
    }
    call->state = CMD_DONE;
    call->done(call, DIBS_OK, reply);
    return true;
}

/* What came of a direct call. Anything out of the ordinary is for the io
 * thread. An error reply is asked for once more there: the same answer comes,
 * or a better one. */
static void settle_call(struct dibs__command *call,
                        struct dibs__pooled_conn *ln, dibs_err err,
                        const struct dibs__reply *reply)
{
    if (err == DIBS_OK && dibs__command_consume_reply(call, reply)) {
        dibs__server_give_back(ln, true);
        return;
    }
    if (err != DIBS_ERR_CONN)
        taint_call(call);
    dibs__server_give_back(ln, false);
    dibs__command_post(call);
}

void dibs__commands_count(const struct dibs__list *fifo)
{
    for (struct dibs__list *l = fifo->next; l != fifo; l = l->next)
        count_call(DIBS_OF(l, struct dibs__command, req.link), 1);
}

void dibs__command_mark_sent(struct dibs__command *call)
{
    call->state = CMD_SENT;
    call->sent_ms = dibs__now_ms();
    call->req.expires =
        dibs__min(dibs__add(call->sent_ms, call->attempt_ms), call->deadline);
}

bool dibs__command_send_sync(struct dibs__route to, struct dibs__command *call)
{
    assert(!dibs__loop_inside() && "io must not wait");
    dibs__command_prepare(to, call);
    struct dibs__pooled_conn *ln =
        call->replicas || !call->s ? NULL : dibs__server_borrow(call->s);
    if (!ln) {
        dibs__command_post(call);
        return false;
    }
    dibs__command_mark_sent(call);
    dibs_err err = dibs__conn_send_sync(&ln->cn, &call->req);
    if (err != DIBS_OK)
        settle_call(call, ln, err, NULL);
    return err == DIBS_OK;
}

bool dibs__command_recv_sync(struct dibs__command *call, int64_t until)
{
    struct dibs__pooled_conn *ln =
        DIBS_OF(call->req.cn, struct dibs__pooled_conn, cn);
    const struct dibs__reply *reply;
    dibs_err err = dibs__conn_recv_sync(
        &ln->cn, dibs__min(call->req.expires, until), &reply);

    settle_call(call, ln, err, reply);
    return err == DIBS_OK;
}

void dibs__command_run_direct(struct dibs__route to, struct dibs__command *call)
{
    if (dibs__command_send_sync(to, call))
        dibs__command_recv_sync(call, INT64_MAX);
}

/* ---- all calls --------------------------------------------------------- */

void dibs__commands_resume(struct dibs__server *s)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__list_move(&all, &s->waiting);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));)
        start_call(DIBS_OF(l, struct dibs__command, req.link));
}

void dibs__commands_reroute(struct dibs__list *waiting)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__list_move(&all, waiting);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));) {
        struct dibs__command *call = DIBS_OF(l, struct dibs__command, req.link);
        call->asking = false;
        start_call(call);
    }
}

void dibs__commands_end(struct dibs__list *waiting, dibs_err err,
                        bool patient_too)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__list_move(&all, waiting);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));) {
        struct dibs__command *call = DIBS_OF(l, struct dibs__command, req.link);
        if (call->connect_by && !patient_too)
            dibs__list_add(waiting, &call->req.link);
        else
            dibs__command_give_up(call, err);
    }
}

void dibs__commands_fail(struct dibs__server *s, dibs_err err, bool patient_too)
{
    if (dibs__server_is_closing(s))
        dibs__list_move(&s->waiting, &s->resting);
    dibs__commands_end(&s->waiting, err, patient_too);
}
