/* SPDX-License-Identifier: MIT
 *
 * server.c - one server and our connections to it.
 *
 * Thread  io, except borrow and give_back.
 * Locks   server.mu: which spare connection is whose.
 *
 * How     The main connection is dialed at once and dialed again whenever it
 *         goes down: at once after one that worked, with growing, jittered
 *         delays after one that did not come up. Calls that find it down wait
 *         in a list; command.c sees to them.
 *
 *         state     what happens                        next
 *         DOWN      the time has come, or a call waits  SEEKING, or DIALING
 *         SEEKING   it is found; it is not              DIALING; DOWN
 *         DIALING   it is ready; it fails               UP; DOWN
 *         UP        it goes down                        DOWN
 *         UP        it takes no writes, or is to leave  RETIRING
 *         RETIRING  the last answer came                DOWN
 *         any       it is elsewhere, or not needed      CUTTING, then DOWN
 *         any       the client closes                   CLOSING, for good
 *
 *
 *         Spare connections are made when a caller would have liked one. A
 *         caller borrows only while few calls are queued: under load, one
 *         batch is faster than several callers side by side.
 *
 *         Where the server is may be for somebody else to say (`seek`, for
 *         sentinels): then each dialing begins with that question. And that
 *         somebody may say at any time that the server is elsewhere: all
 *         connections are cut, callers that talk on one are woken, and the new
 *         place is dialed. A server of a cluster sleeps until it is needed,
 *         and again when it is not any more. One that is not writable is dealt
 *         with in read_only.c.
 *
 * Trouble A connection that broke in a caller's hands comes back through its
 *         drop task and is closed here. A refusal that another attempt will
 *         not change (password, protocol) ends the waiting calls at once.
 */
#include "client/server/server.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 20
#define BACKOFF_MAX_MS   2000
#define REFUSED_MS       1000 /* after a refusal: no hammering */
#define GROW_AGAIN_MS    1000
#define QUEUED_ENOUGH    3 /* so many queued already: queue this one, too */

static void drop_stale_spares(struct dibs__server *s);
static void lend_spare(struct dibs__task *t);
static void drop_spare(struct dibs__task *t);

/* ---- links ------------------------------------------------------------- */

static struct dibs__pooled_conn *link_of(struct dibs__conn *cn)
{
    return DIBS_OF(cn, struct dibs__pooled_conn, cn);
}

static void link_gone(struct dibs__conn *cn)
{
    struct dibs__pooled_conn *conn = link_of(cn);
    struct dibs__server *s = conn->server;

    s->upper->link_gone(conn);
    dibs__timer_stop(s->lp, &conn->ride.tick);
    dibs__free(conn);
    if (--s->open_conns == 0 && dibs__server_is_closing(s))
        dibs__lifecycle_closed(s->lifecycle);
}

struct dibs__pooled_conn *dibs__pooled_conn_open(
    struct dibs__server *s, void (*up)(struct dibs__conn *),
    void (*down)(struct dibs__conn *, dibs_err, const char *))
{
    struct dibs__pooled_conn *conn = dibs__calloc(1, sizeof *conn);

    if (!conn)
        return NULL;
    conn->server = s;
    conn->lend.run = lend_spare;
    conn->drop.run = drop_spare;
    conn->generation = atomic_load(&s->generation);
    conn->address_epoch = s->address_epoch;
    conn->cn.lp = s->lp;
    conn->cn.to = &s->to;
    conn->cn.up = up;
    conn->cn.down = down;
    conn->cn.gone = link_gone;
    if (dibs__conn_open(&conn->cn) != DIBS_OK) {
        dibs__free(conn);
        return NULL;
    }
    s->open_conns++;
    return conn;
}

/* ---- the main connection ----------------------------------------------- */

/* For a cluster, one of its servers is not enough. */
static void tell_opened(struct dibs__server *s, dibs_err err)
{
    if (!s->slots)
        dibs__lifecycle_opened(s->lifecycle, err, s->why);
}

/* If nobody heard that it was down, nobody hears that it is up. */
static void tell_up(struct dibs__server *s)
{
    if (!s->logged_up)
        dibs__server_log(s, DIBS_EVENT_CONNECTED, DIBS_OK, "connected");
    s->logged_up = true;
}

void dibs__server_mark_writable(struct dibs__server *s)
{
    if (!s->read_only || !dibs__server_is_up(s))
        return;
    s->read_only = false;
    tell_up(s);
}

static void main_up(struct dibs__conn *cn)
{
    struct dibs__server *s = link_of(cn)->server;

    link_of(cn)->was_up = true;
    dibs__stats_count(s->events.stats, STAT_CONNECTS, 1);
    if (s->ever_connected)
        dibs__stats_count(s->events.stats, STAT_RECONNECTS, 1);
    s->ever_connected = true;
    s->state = SERVER_UP;
    atomic_fetch_add(&s->ups, 1);
    if (!s->read_only)
        tell_up(s);
    if (s->to.url.tls.insecure && atomic_load(&s->ups) == 1)
        dibs__server_log(
            s, DIBS_EVENT_WARNING, DIBS_OK,
            "TLS without verification: who answers may be anybody");
    s->up_again(s);
    s->upper->resume(s);
    tell_opened(s, DIBS_OK);
}

/* One that sleeps is dialed only if a call waits for it. Those that were on
 * its connection come back just now, and wake it. */
static void dial_again(struct dibs__server *s, int64_t at)
{
    if (!s->idle || !dibs__list_empty(&s->waiting))
        dibs__timer_set(s->lp, &s->redial, at);
}

static void server_redial_later(struct dibs__server *s, bool refused)
{
    int64_t wait =
        dibs__backoff(&s->backoff_ms, BACKOFF_FIRST_MS, BACKOFF_MAX_MS);

    dial_again(s, dibs__now_ms() +
                      dibs__max(wait, refused ? dibs__random_in(REFUSED_MS / 2,
                                                                REFUSED_MS)
                                              : 0));
}

static void main_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct dibs__pooled_conn *conn = link_of(cn);
    struct dibs__server *s = conn->server;

    s->main = NULL;
    if (dibs__server_is_closing(s))
        return;
    if (s->state != SERVER_CLOSING_CONNS)
        s->state = SERVER_DOWN;
    if (!dibs__server_is_idle_closing(s))
        dibs__server_set_last_error(s, why);
    bool retired = conn->why[0] != '\0';
    bool worked = conn->was_up && !(retired && s->read_only);
    if (dibs__server_is_idle_closing(s) ||
        dibs__server_log_disconnect(s, err, why, worked))
        s->logged_up = false;
    if (conn->was_up)
        drop_stale_spares(s);
    if (s->state == SERVER_CLOSING_CONNS)
        return; /* the code that did it knows what comes next */
    if (s->slots)
        s->slots->doubt(s->slots);
    if (conn->served && !retired) { /* it did work: dial at once */
        s->backoff_ms = 0;
        dial_again(s, dibs__now_ms());
        return;
    }
    server_redial_later(s, dibs__server_error_is_final(err));
    if (conn->was_up)
        return;
    s->read_only = false; /* that is another trouble */
    s->upper->fail(s, dibs__server_error_is_final(err) ? err : DIBS_ERR_CONN,
                   dibs__server_error_is_final(err));
    tell_opened(s, dibs__server_error_is_final(err) ? err : DIBS_ERR_CONN);
}

static void no_memory(struct dibs__server *s)
{
    server_redial_later(s, false);
    s->upper->fail(s, DIBS_ERR_NOMEM, false);
    tell_opened(s, DIBS_ERR_NOMEM);
}

static void dial_here(struct dibs__server *s)
{
    dibs__timer_stop(s->lp, &s->redial);
    s->main = dibs__pooled_conn_open(s, main_up, main_down);
    s->state = s->main ? SERVER_DIALING : SERVER_DOWN;
    if (!s->main)
        no_memory(s);
}

void dibs__server_start(struct dibs__server *s)
{
    if (s->state != SERVER_DOWN)
        return;
    if (!s->seek) {
        dial_here(s);
        return;
    }
    s->state = SERVER_DISCOVERING;
    s->seek(s);
}

static void redial_timed(struct dibs__timer *t)
{
    dibs__server_start(DIBS_OF(t, struct dibs__server, redial));
}

void dibs__server_close_now(struct dibs__server *s, const char *why)
{
    if (s->main)
        dibs__conn_close(&s->main->cn, DIBS_ERR_CONN, why);
}

/* ---- elsewhere --------------------------------------------------------- */

bool dibs__server_at(const struct dibs__server *s, const char *host, int port)
{
    return s->to.url.host && s->to.url.port == port &&
           strcmp(s->to.url.host, host) == 0;
}

/* False: out of memory. */
static bool set_place(struct dibs__server *s, const char *host, int port)
{
    if (dibs__server_at(s, host, port))
        return true;
    char *copy = dibs__strdup(host);
    if (!copy)
        return false;
    dibs__lock(&s->mu);
    dibs__free(s->to.url.host);
    s->to.url.host = copy;
    s->to.url.port = port;
    dibs__unlock(&s->mu);
    s->address_epoch++;
    return true;
}

void dibs__server_found(struct dibs__server *s, const char *host, int port)
{
    if (s->state != SERVER_DISCOVERING && s->state != SERVER_DOWN)
        return; /* spare ones must not go elsewhere than main */
    if (set_place(s, host, port))
        dial_here(s);
    else
        no_memory(s);
}

void dibs__server_not_found(struct dibs__server *s, dibs_err err,
                            const char *why)
{
    struct dibs__url nowhere = s->to.url;

    if (s->state != SERVER_DISCOVERING)
        return;
    s->state = SERVER_DOWN;
    nowhere.host = NULL; /* where it was does not matter */
    dibs__event_text(&nowhere, why, s->why);
    if (dibs__log_disconnect(&s->events, &nowhere, &s->throttle,
                             &(struct dibs__failure){err, why, false}))
        s->logged_up = false;
    server_redial_later(s, dibs__server_error_is_final(err));
    s->upper->fail(s, err, dibs__server_error_is_final(err));
    tell_opened(s, err);
}

/* Callers that talk on a spare connection wait for somebody who is not the
 * right one any more. */
static void wake_direct_callers(struct dibs__server *s) REQUIRES(s->mu)
{
    for (struct dibs__list *l = s->idle_conns.next; l != &s->idle_conns;
         l = l->next) {
        struct dibs__pooled_conn *conn =
            DIBS_OF(l, struct dibs__pooled_conn, at);
        if (conn->use == CONN_LENT)
            shutdown(conn->cn.fd, SHUT_RDWR);
    }
}

static void cut_quietly(struct dibs__server *s, const char *why)
{
    s->state = SERVER_CLOSING_CONNS;
    dibs__server_close_now(s, why);
    s->state = SERVER_DOWN;
}

void dibs__server_moved(struct dibs__server *s, const char *host, int port)
{
    if (dibs__server_is_closing(s) ||
        (dibs__server_is_up(s) && dibs__server_at(s, host, port)))
        return;
    cut_quietly(s, "the server is elsewhere by now");
    dibs__lock(&s->mu);
    wake_direct_callers(s);
    dibs__unlock(&s->mu);
    s->backoff_ms = 0;
    dibs__server_found(s, host, port);
}

/* ---- asleep ------------------------------------------------------------ */

void dibs__server_ensure_connected(struct dibs__server *s)
{
    s->idle = false;
    if (!s->redial.at)
        dibs__server_start(s);
}

/* Nobody can have borrowed a spare connection unseen: it is asked for under
 * the mutex, and refused once the generation has changed. */
bool dibs__server_idle_close(struct dibs__server *s)
{
    bool out = false;

    s->idle = true;
    dibs__lock(&s->mu);
    for (struct dibs__list *l = s->idle_conns.next; l != &s->idle_conns;
         l = l->next)
        out |= DIBS_OF(l, struct dibs__pooled_conn, at)->use == CONN_LENT;
    dibs__unlock(&s->mu);
    if (out || atomic_load(&s->queued) > 0 || !dibs__list_empty(&s->waiting) ||
        s->acks.wait_in_flight || !dibs__list_empty(&s->acks.queue))
        return false;
    dibs__timer_stop(s->lp, &s->redial);
    cut_quietly(s, "not needed any more");
    s->upper->forget(s);
    return true;
}

/* ---- spare connections ------------------------------------------------- */

/* Once io has nothing more to do with it: from here on a caller may have it. */
static void lend_spare(struct dibs__task *t)
{
    struct dibs__pooled_conn *conn = DIBS_OF(t, struct dibs__pooled_conn, lend);
    struct dibs__server *s = conn->server;

    if (conn->cn.state != CONN_READY)
        return; /* it went down meanwhile */
    if (dibs__server_is_closing(s) ||
        conn->generation != atomic_load(&s->generation)) {
        dibs__conn_close(&conn->cn, DIBS_ERR_CONN, "came too late");
        return;
    }
    dibs__conn_lend(&conn->cn);
    dibs__lock(&s->mu);
    conn->use = LINK_FREE;
    dibs__unlock(&s->mu);
}

static void spare_up(struct dibs__conn *cn)
{
    struct dibs__pooled_conn *conn = link_of(cn);
    struct dibs__server *s = conn->server;

    conn->was_up = true;
    dibs__stats_count(s->events.stats, STAT_CONNECTS, 1);
    dibs__lock(&s->mu);
    s->pool_growing = false;
    dibs__unlock(&s->mu);
    dibs__loop_post(s->lp, &conn->lend);
}

static void spare_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct dibs__pooled_conn *conn = link_of(cn);
    struct dibs__server *s = conn->server;

    dibs__lock(&s->mu);
    conn->use = LINK_DIALING;
    dibs__list_del(&conn->at);
    s->idle_conn_count--;
    if (!conn->was_up) {
        s->pool_growing = false;
        s->pool_grow_after = dibs__now_ms() + GROW_AGAIN_MS;
    }
    dibs__unlock(&s->mu);
    /* If main is gone, too, that was told. */
    if (dibs__server_is_closing(s) ||
        conn->generation != atomic_load(&s->generation))
        return;
    if (dibs__server_is_up(s))
        dibs__server_set_last_error(s, why);
    dibs__server_log_disconnect(s, err, why, conn->was_up);
}

static void grow_spares(struct dibs__task *t)
{
    struct dibs__server *s = DIBS_OF(t, struct dibs__server, pool_grow);
    struct dibs__pooled_conn *conn = NULL;

    if (dibs__server_is_up(s))
        conn = dibs__pooled_conn_open(s, spare_up, spare_down);
    dibs__lock(&s->mu);
    if (conn) {
        dibs__list_add(&s->idle_conns, &conn->at);
        s->idle_conn_count++;
    } else {
        s->pool_growing = false;
        s->pool_grow_after = dibs__now_ms() + GROW_AGAIN_MS;
    }
    dibs__unlock(&s->mu);
}

/* Thread: app. Locks: needs server.mu. */
static struct dibs__pooled_conn *find_free(struct dibs__server *s)
    REQUIRES(s->mu)
{
    for (struct dibs__list *l = s->idle_conns.next; l != &s->idle_conns;
         l = l->next) {
        struct dibs__pooled_conn *conn =
            DIBS_OF(l, struct dibs__pooled_conn, at);
        if (conn->use == LINK_FREE &&
            conn->generation == atomic_load(&s->generation))
            return conn;
    }
    return NULL;
}

struct dibs__pooled_conn *dibs__server_borrow_always(struct dibs__server *s)
{
    struct dibs__pooled_conn *conn = NULL;
    bool more = false;

    dibs__lock(&s->mu);
    if (!s->closed)
        conn = find_free(s);
    if (conn)
        conn->use = CONN_LENT;
    else
        more = !s->closed && !s->pool_growing &&
               s->idle_conn_count < s->max_idle_conns &&
               dibs__now_ms() >= s->pool_grow_after;
    s->pool_growing |= more;
    dibs__unlock(&s->mu);
    if (more)
        dibs__loop_post(s->lp, &s->pool_grow);
    return conn;
}

struct dibs__pooled_conn *dibs__server_borrow(struct dibs__server *s)
{
    if (atomic_load_explicit(&s->queued, memory_order_relaxed) > QUEUED_ENOUGH)
        return NULL;
    return dibs__server_borrow_always(s);
}

void dibs__server_reclaim(struct dibs__pooled_conn *conn)
{
    if (conn->ride.state != RIDE_TAKEN || conn->cn.state != CONN_READY ||
        !dibs__list_empty(&conn->cn.fifo))
        return;
    conn->ride.state = RIDE_NONE;
    dibs__loop_post(conn->server->lp, &conn->lend);
}

static void drop_spare(struct dibs__task *t)
{
    struct dibs__pooled_conn *conn = DIBS_OF(t, struct dibs__pooled_conn, drop);

    dibs__conn_close(&conn->cn, DIBS_ERR_UNKNOWN,
                     "a connection broke while a caller waited for a reply");
}

void dibs__server_give_back(struct dibs__pooled_conn *conn, bool usable)
{
    struct dibs__server *s = conn->server;

    dibs__lock(&s->mu);
    usable =
        usable && !s->closed && conn->generation == atomic_load(&s->generation);
    conn->use = usable ? LINK_FREE : LINK_DIALING;
    dibs__unlock(&s->mu);
    if (!usable)
        dibs__loop_post(s->lp, &conn->drop);
}

/* ---- life -------------------------------------------------------------- */

void dibs__server_init(struct dibs__server *s)
{
    dibs__mutex_init(&s->mu, RANK_SERVER);
    dibs__list_init(&s->idle_conns);
    dibs__list_init(&s->waiting);
    dibs__list_init(&s->backing_off);
    dibs__list_init(&s->in_doubt);
    atomic_init(&s->queued, 0);
    atomic_init(&s->ups, 0);
    atomic_init(&s->generation, 0);
    s->redial.fire = redial_timed;
    s->pool_grow.run = grow_spares;
}

/* Those in nobody's hands go to `ours`. */
static void take_idle(struct dibs__server *s, struct dibs__list *ours)
    REQUIRES(s->mu)
{
    for (struct dibs__list *l = s->idle_conns.next, *n; l != &s->idle_conns;
         l = n) {
        struct dibs__pooled_conn *conn =
            DIBS_OF(l, struct dibs__pooled_conn, at);
        n = l->next;
        if (conn->use == LINK_FREE ||
            (conn->use == LINK_DIALING && !conn->was_up)) {
            dibs__list_del(l);
            dibs__list_add(ours, l);
        }
    }
}

static void close_all(struct dibs__list *links, dibs_err err, const char *why)
{
    for (struct dibs__list *l; (l = dibs__list_pop(links));)
        dibs__conn_close(&DIBS_OF(l, struct dibs__pooled_conn, at)->cn, err,
                         why);
}

/* The main connection is gone: the server restarted, or another one has its
 * place. The spare ones must not go on talking to the old one. Those that are
 * out are refused when they come back. */
static void drop_stale_spares(struct dibs__server *s)
{
    struct dibs__list ours;

    dibs__list_init(&ours);
    atomic_fetch_add(&s->generation, 1);
    dibs__lock(&s->mu);
    take_idle(s, &ours);
    dibs__unlock(&s->mu);
    close_all(&ours, DIBS_ERR_CONN, "the main connection went down");
    s->upper->drop(s);
}

/* One that is out is woken, and comes back by itself through its drop task. */
static void close_spares(struct dibs__server *s)
{
    struct dibs__list ours;

    dibs__list_init(&ours);
    dibs__lock(&s->mu);
    s->closed = true;
    take_idle(s, &ours);
    wake_direct_callers(s);
    dibs__unlock(&s->mu);
    close_all(&ours, DIBS_ERR_CLOSED, "closed");
}

void dibs__server_close(struct dibs__server *s)
{
    s->state = SERVER_CLOSING;
    dibs__timer_stop(s->lp, &s->redial);
    if (s->main)
        dibs__conn_close(&s->main->cn, DIBS_ERR_CLOSED, "closed");
    close_spares(s);
    s->upper->drop(s);
    s->upper->fail(s, DIBS_ERR_CLOSED, true);
    s->upper->forget(s);
    if (s->open_conns == 0)
        dibs__lifecycle_closed(s->lifecycle);
}

void dibs__server_clear(struct dibs__server *s)
{
    dibs__mutex_clear(&s->mu);
}

void dibs__server_abandon(struct dibs__server *s)
{
    if (s->main && s->main->cn.fd >= 0)
        close(s->main->cn.fd);
    for (struct dibs__list *l = s->idle_conns.next; l != &s->idle_conns;
         l = l->next)
        close(DIBS_OF(l, struct dibs__pooled_conn, at)->cn.fd);
}
