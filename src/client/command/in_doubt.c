/* SPDX-License-Identifier: MIT
 *
 * in_doubt.c - what a lost command may still do, and how that is ended.
 *
 * Thread  io, except dibs__in_doubt_new: the one that has the connection.
 * Locks   none.
 *
 * How     A command whose reply was lost may have been executed, or not, or may
 *         yet be: the server can hold it back for as long as it likes, even
 *         though we closed the connection. Our scripts do not mind being
 *         executed twice in a row, so a lost one is simply sent again. But a
 *         copy that is executed much later could change what has long moved
 *         on. So the new connection first asks the server to kill the old one
 *         by its number (CLIENT KILL): once that is answered, nothing of the
 *         old one can be executed any more, and the ghost is canceled. Where
 *         the server refuses, the caller is told that a ghost is about, and
 *         takes care by other means.
 *
 *         That goes for the server that has the old connection. When another
 *         server is in its place, the ghost can do no harm. A replica that was
 *         made master listens to its old master no more, so what that executes
 *         late stays there, and is thrown away when it becomes a replica. What
 *         it executed before and passed on is there already when the new
 *         master answers us; sending it once more changes nothing. And a slot
 *         that was moved is not served any more where it was. So a ghost of
 *         another run (INFO's run_id), or of another node, counts as canceled.
 * If runs are not known and the address is another, nobody can tell: it counts
 * as one that cannot be canceled.
 */
#include "client/command/in_doubt.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define KILL_TIMEOUT_MS 3000

static void say_refused(struct dibs__server *s)
{
    dibs__server_log(
        s, DIBS_EVENT_WARNING, DIBS_ERR_AUTH,
        "CLIENT KILL is refused: lost replies take longer to settle");
}

enum ghost_state {
    IN_DOUBT_NEW,
    IN_DOUBT_KILLING,
    IN_DOUBT_KILLED,
    IN_DOUBT_UNKILLABLE
};

struct dibs__in_doubt {
    struct dibs__req req; /* the killing */
    struct dibs__server *s;
    struct dibs__list at; /* in server.ghosts while new */
    unsigned refs;        /* io only, once it is in use */
    enum ghost_state state;
    unsigned born;  /* server.ups at that time */
    unsigned place; /* server.place of its connection */
    char id[24], addr[160], run[48];
};

void dibs__in_doubt_unref(struct dibs__in_doubt *doubt)
{
    if (doubt && --doubt->refs == 0)
        dibs__free(doubt);
}

static void cancel_write(struct dibs__req *req, struct dibs__buf *out)
{
    const struct dibs__in_doubt *g = DIBS_OF(req, struct dibs__in_doubt, req);

    dibs__buf_array(out, g->addr[0] ? 6 : 4);
    dibs__buf_arg_text(out, "CLIENT");
    dibs__buf_arg_text(out, "KILL");
    dibs__buf_arg_text(out, "ID");
    dibs__buf_arg_text(out, g->id);
    if (g->addr[0]) {
        dibs__buf_arg_text(out, "ADDR");
        dibs__buf_arg_text(out, g->addr);
    }
}

static void cancel_done(struct dibs__req *req, dibs_err err,
                        const struct dibs__reply *reply)
{
    struct dibs__in_doubt *doubt = DIBS_OF(req, struct dibs__in_doubt, req);
    struct dibs__server *s = doubt->s;

    if (err == DIBS_OK &&
        dibs__server_is_desync(s, req, reply, 1u << REPLY_NUM))
        err = DIBS_ERR_UNKNOWN;
    if (err == DIBS_OK && reply->type == REPLY_NUM) {
        doubt->state = IN_DOUBT_KILLED;
    } else if (err == DIBS_OK) {
        doubt->state = IN_DOUBT_UNKILLABLE;
        if (!doubt->s->kill_refused)
            say_refused(doubt->s);
        doubt->s->kill_refused = true;
    } else if (!dibs__server_is_closing(
                   doubt->s)) { /* once more, on the next connection */
        doubt->state = IN_DOUBT_NEW;
        dibs__list_add(&doubt->s->in_doubt, &doubt->at);
        return;
    }
    dibs__in_doubt_unref(doubt);
    dibs__server_replied(s);
}

struct dibs__in_doubt *dibs__in_doubt_new(const struct dibs__pooled_conn *conn)
{
    const struct dibs__conn *cn = &conn->cn;
    struct dibs__server *s = conn->server;
    struct dibs__in_doubt *doubt =
        cn->id[0] ? dibs__calloc(1, sizeof *doubt) : NULL;

    if (!doubt)
        return NULL;
    doubt->s = s;
    doubt->refs = 1;
    doubt->born = atomic_load(&s->ups);
    doubt->req.write = cancel_write;
    doubt->req.done = cancel_done;
    memcpy(doubt->id, cn->id, sizeof doubt->id);
    memcpy(doubt->addr, cn->addr, sizeof doubt->addr);
    memcpy(doubt->run, cn->run, sizeof doubt->run);
    doubt->place = conn->address_epoch;
    return doubt;
}

/* The server counts its connections up. If a later one has no greater number,
 * it is another process by now, and the ghost ended with the old one. */
static bool has_restarted(const struct dibs__server *s,
                          const struct dibs__in_doubt *g)
{
    unsigned long long now = strtoull(s->main->cn.id, NULL, 10);

    return atomic_load(&s->ups) != g->born && now != 0 &&
           now <= strtoull(g->id, NULL, 10);
}

/* Another server is there by now. Sets what that means for the ghost. */
static bool is_elsewhere(const struct dibs__server *s,
                         struct dibs__in_doubt *doubt)
{
    const char *run = s->main->cn.run;

    if (run[0] && doubt->run[0]) {
        if (strcmp(run, doubt->run) == 0)
            return false;
        doubt->state = IN_DOUBT_KILLED;
        return true;
    }
    if (doubt->place == s->address_epoch)
        return false;
    doubt->state = IN_DOUBT_UNKILLABLE;
    return true;
}

void dibs__in_doubt_kill(struct dibs__in_doubt *doubt)
{
    struct dibs__server *s = doubt->s;

    if (doubt->state != IN_DOUBT_NEW || !dibs__server_is_up(s))
        return;
    bool gone = is_elsewhere(s, doubt);
    if (!gone && has_restarted(s, doubt)) {
        doubt->state = IN_DOUBT_KILLED;
        gone = true;
    }
    if (gone) {
        if (dibs__list_linked(&doubt->at)) {
            dibs__list_del(&doubt->at);
            dibs__in_doubt_unref(doubt);
        }
        return;
    }
    if (dibs__list_linked(&doubt->at))
        dibs__list_del(&doubt->at); /* its reference is now the request's */
    else
        doubt->refs++;
    doubt->state = IN_DOUBT_KILLING;
    doubt->req.expires = dibs__now_ms() + KILL_TIMEOUT_MS;
    dibs__conn_send(&s->main->cn, &doubt->req);
}

void dibs__in_doubt_kill_later(struct dibs__in_doubt *doubt)
{
    struct dibs__server *s = doubt->s;

    if (doubt->state != IN_DOUBT_NEW || dibs__server_is_closing(s) ||
        dibs__list_linked(&doubt->at))
        return;
    doubt->refs++;
    dibs__list_add(&s->in_doubt, &doubt->at);
    dibs__in_doubt_kill(doubt);
}

void dibs__in_doubt_forget_all(struct dibs__server *s)
{
    for (struct dibs__list *l; (l = dibs__list_pop(&s->in_doubt));)
        dibs__in_doubt_unref(DIBS_OF(l, struct dibs__in_doubt, at));
}

void dibs__in_doubt_kill_all(struct dibs__server *s)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__list_move(&all, &s->in_doubt);
    for (struct dibs__list *l = all.next, *n; l != &all; l = n) {
        n = l->next;
        dibs__in_doubt_kill(DIBS_OF(l, struct dibs__in_doubt, at));
    }
}

void dibs__in_doubt_ref(struct dibs__in_doubt *doubt)
{
    doubt->refs++;
}

bool dibs__in_doubt_killed(const struct dibs__in_doubt *g)
{
    return g->state == IN_DOUBT_KILLED;
}

bool dibs__in_doubt_of(const struct dibs__in_doubt *g,
                       const struct dibs__server *s)
{
    return g->s == s;
}
