/* SPDX-License-Identifier: MIT
 *
 * in_doubt.c - the commands in flight on a connection that was lost, and the
 * CLIENT KILL that ends them.
 *
 * Thread  io, except dibs__in_doubt_new: the connection's user.
 * Locks   none.
 *
 * How     A command whose reply was lost may have been executed, or not, or may
 *         be executed later: the server can delay it without limit, even after
 *         we closed the connection. Commands are idempotent, so a lost command
 *         is sent again. But a copy that is executed much later could undo a
 *         change made in between. So the new connection first sends CLIENT KILL
 *         with the old connection's client id. Once that is answered, the
 *         server executes nothing more from the old connection. If the server
 *         refuses CLIENT KILL, the command's owner learns that a copy may still
 *         run (maybe_live_copy).
 *
 *         This applies only while the same server process answers. A command
 *         in flight to another process is harmless:
 *         - A promoted replica no longer replicates from its old master. What
 *           the old master executes late stays there, and is discarded when it
 *           becomes a replica. What it had replicated before, the new master
 *           has when it answers us; sending that command again is idempotent.
 *         - The old node of a moved slot does not serve the slot any more.
 *         So with another run_id (INFO) the command counts as killed. With an
 *         unknown run_id and another address, it counts as unkillable.
 *
 *         state       event                               next
 *         NEW         sent on the main connection         KILLING
 *         NEW         another server process              KILLED
 *         NEW         perhaps another server process      UNKILLABLE
 *         KILLING     answered                            KILLED
 *         KILLING     refused                             UNKILLABLE
 *         KILLING     no reply                            NEW, pending
 */
#include "client/command/in_doubt.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define KILL_TIMEOUT_MS 3000

static void log_kill_refused(struct dibs__server *s)
{
    dibs__server_log(
        s, DIBS_EVENT_WARNING, DIBS_ERR_AUTH,
        "CLIENT KILL is refused: recovery from lost replies takes longer");
}

enum in_doubt_state {
    IN_DOUBT_NEW,
    IN_DOUBT_KILLING,
    IN_DOUBT_KILLED,
    IN_DOUBT_UNKILLABLE
};

struct dibs__in_doubt {
    struct dibs__req req; /* CLIENT KILL */
    struct dibs__server *s;
    struct dibs__list link; /* in server.in_doubt while NEW and pending */
    unsigned refs;          /* io only, once the command was posted */
    enum in_doubt_state state;
    unsigned ups_at_loss;               /* server.ups when the reply was lost */
    unsigned address_epoch;             /* of the lost connection */
    char id[24], addr[160], run_id[48]; /* of the lost connection */
};

void dibs__in_doubt_unref(struct dibs__in_doubt *doubt)
{
    if (doubt && --doubt->refs == 0)
        dibs__free(doubt);
}

static void kill_write(struct dibs__req *req, struct dibs__buf *out)
{
    const struct dibs__in_doubt *doubt =
        DIBS_OF(req, struct dibs__in_doubt, req);

    dibs__buf_array(out, doubt->addr[0] ? 6 : 4);
    dibs__buf_arg_text(out, "CLIENT");
    dibs__buf_arg_text(out, "KILL");
    dibs__buf_arg_text(out, "ID");
    dibs__buf_arg_text(out, doubt->id);
    if (doubt->addr[0]) {
        dibs__buf_arg_text(out, "ADDR");
        dibs__buf_arg_text(out, doubt->addr);
    }
}

static void kill_done(struct dibs__req *req, dibs_err err,
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
            log_kill_refused(doubt->s);
        doubt->s->kill_refused = true;
    } else if (!dibs__server_is_closing(doubt->s)) {
        /* Retried on the next connection. */
        doubt->state = IN_DOUBT_NEW;
        dibs__list_add(&doubt->s->in_doubt, &doubt->link);
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
    doubt->ups_at_loss = atomic_load(&s->connect_count);
    doubt->req.write = kill_write;
    doubt->req.done = kill_done;
    memcpy(doubt->id, cn->id, sizeof doubt->id);
    memcpy(doubt->addr, cn->addr, sizeof doubt->addr);
    memcpy(doubt->run_id, cn->run_id, sizeof doubt->run_id);
    doubt->address_epoch = conn->address_epoch;
    return doubt;
}

/* A server assigns client ids in ascending order. If a later connection has no
 * greater id, the server was restarted, and the old process is gone together
 * with the commands in doubt. */
static bool has_restarted(const struct dibs__server *s,
                          const struct dibs__in_doubt *doubt)
{
    unsigned long long now = strtoull(s->main->cn.id, NULL, 10);

    return atomic_load(&s->connect_count) != doubt->ups_at_loss && now != 0 &&
           now <= strtoull(doubt->id, NULL, 10);
}

/* Returns true if another server process, or perhaps another, answers now; sets
 * the state accordingly. */
static bool is_other_process(const struct dibs__server *s,
                             struct dibs__in_doubt *doubt)
{
    const char *run = s->main->cn.run_id;

    if (run[0] && doubt->run_id[0]) {
        if (strcmp(run, doubt->run_id) == 0)
            return false;
        doubt->state = IN_DOUBT_KILLED;
        return true;
    }
    if (doubt->address_epoch == s->address_epoch)
        return false;
    doubt->state = IN_DOUBT_UNKILLABLE;
    return true;
}

void dibs__in_doubt_kill(struct dibs__in_doubt *doubt)
{
    struct dibs__server *s = doubt->s;

    if (doubt->state != IN_DOUBT_NEW || !dibs__server_is_up(s))
        return;
    bool gone = is_other_process(s, doubt);
    if (!gone && has_restarted(s, doubt)) {
        doubt->state = IN_DOUBT_KILLED;
        gone = true;
    }
    if (gone) {
        if (dibs__list_linked(&doubt->link)) {
            dibs__list_del(&doubt->link);
            dibs__in_doubt_unref(doubt);
        }
        return;
    }
    if (dibs__list_linked(&doubt->link))
        dibs__list_del(&doubt->link); /* the request takes its reference */
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
        dibs__list_linked(&doubt->link))
        return;
    doubt->refs++;
    dibs__list_add(&s->in_doubt, &doubt->link);
    dibs__in_doubt_kill(doubt);
}

void dibs__in_doubt_forget_all(struct dibs__server *s)
{
    for (struct dibs__list *l; (l = dibs__list_pop(&s->in_doubt));)
        dibs__in_doubt_unref(DIBS_OF(l, struct dibs__in_doubt, link));
}

void dibs__in_doubt_kill_all(struct dibs__server *s)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__list_move(&all, &s->in_doubt);
    for (struct dibs__list *l = all.next, *n; l != &all; l = n) {
        n = l->next;
        dibs__in_doubt_kill(DIBS_OF(l, struct dibs__in_doubt, link));
    }
}

void dibs__in_doubt_ref(struct dibs__in_doubt *doubt)
{
    doubt->refs++;
}

bool dibs__in_doubt_killed(const struct dibs__in_doubt *doubt)
{
    return doubt->state == IN_DOUBT_KILLED;
}

bool dibs__in_doubt_is_on(const struct dibs__in_doubt *doubt,
                          const struct dibs__server *s)
{
    return doubt->s == s;
}
