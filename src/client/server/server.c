/* SPDX-License-Identifier: MIT
 *
 * server.c - one server: its main connection and its connection pool.
 *
 * Thread  io, except dibs__server_borrow, _borrow_always and _give_back.
 * Locks   server.mu: the connection pool, and changes of the address.
 *
 * How     The main connection is redialed whenever it goes down: at once if it
 *         had worked, else with exponential, jittered back-off. Commands that
 *         find it down are queued in server.waiting, handled by command.c.
 *
 *         state          event                         next
 *         DOWN           timer, or a command waits     DISCOVERING or DIALING
 *         DISCOVERING    found; not found              DIALING; DOWN
 *         DIALING        connected; failed             UP; DOWN
 *         UP             disconnected                  DOWN
 *         UP             drain or redial               DRAINING
 *         DRAINING       last reply                    DOWN
 *         any            address changed, not needed   CLOSING_CONNS, then DOWN
 *         any            the client closes             CLOSING, final
 *
 *         The pool grows when a caller finds no free connection. A caller
 *         borrows only while few commands are queued: under load, pipelining on
 *         the main connection has a higher throughput.
 *
 *         With sentinels, the discover hook is called before each connection
 *         attempt, and dibs__server_moved reports a failover at any time: then
 *         all connections are closed, the recv of each borrower is ended, and
 *         the new address is dialed. A cluster node is idle until it is needed.
 *         A read-only server is handled in read_only.c.
 *
 * Errors  A connection that failed while it was lent is closed here, by its
 *         drop task. A final error (password, protocol) fails all waiting
 *         commands at once.
 */
#include "client/server/server.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS   20
#define BACKOFF_MAX_MS     2000
#define REFUSED_DELAY_MS   1000 /* at most, after an error that is final */
#define POOL_GROW_RETRY_MS 1000
#define BORROW_QUEUED_MAX  3 /* more queued commands: pipelining is faster */

static void close_stale_pool(struct dibs__server *s);
static void lend_conn(struct dibs__task *t);
static void drop_conn(struct dibs__task *t);

/* ---- connections ------------------------------------------------------- */

static struct dibs__pooled_conn *conn_of(struct dibs__conn *cn)
{
    return DIBS_OF(cn, struct dibs__pooled_conn, cn);
}

static void conn_freed(struct dibs__conn *cn)
{
    struct dibs__pooled_conn *conn = conn_of(cn);
    struct dibs__server *s = conn->server;

    s->upper->conn_freed(conn);
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
    conn->lend.run = lend_conn;
    conn->drop.run = drop_conn;
    conn->generation = atomic_load(&s->generation);
    conn->address_epoch = s->address_epoch;
    conn->cn.lp = s->lp;
    conn->cn.to = &s->target;
    conn->cn.up = up;
    conn->cn.down = down;
    conn->cn.gone = conn_freed;
    if (dibs__conn_open(&conn->cn) != DIBS_OK) {
        dibs__free(conn);
        return NULL;
    }
    s->open_conns++;
    return conn;
}

/* ---- the main connection ----------------------------------------------- */

/* Reports the first connection, unless in a cluster: there the first slot map
 * counts, which cluster.c reports. */
static void report_opened(struct dibs__server *s, dibs_err err)
{
    if (!s->slots)
        dibs__lifecycle_opened(s->lifecycle, err, s->last_error);
}

/* Logs CONNECTED, unless the disconnect before it was not logged either. */
static void log_up(struct dibs__server *s)
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
    log_up(s);
}

static void main_up(struct dibs__conn *cn)
{
    struct dibs__server *s = conn_of(cn)->server;

    conn_of(cn)->was_up = true;
    dibs__stats_count(s->events.stats, STAT_CONNECTS, 1);
    if (s->ever_connected)
        dibs__stats_count(s->events.stats, STAT_RECONNECTS, 1);
    s->ever_connected = true;
    s->state = SERVER_UP;
    atomic_fetch_add(&s->connect_count, 1);
    if (!s->read_only)
        log_up(s);
    if (s->target.url.tls.insecure && atomic_load(&s->connect_count) == 1)
        dibs__server_log(
            s, DIBS_EVENT_WARNING, DIBS_OK,
            "TLS without verification: the server may be an impostor");
    s->on_connected(s);
    s->upper->resume(s);
    report_opened(s, DIBS_OK);
}

/* Schedules a connection attempt. An idle server is dialed only if a command
 * waits; commands in flight on the lost connection are restarted after this and
 * call dibs__server_ensure_connected. */
static void schedule_dial(struct dibs__server *s, int64_t at)
{
    if (!s->idle || !dibs__list_empty(&s->waiting))
        dibs__timer_set(s->lp, &s->redial, at);
}

static void redial_with_backoff(struct dibs__server *s, bool refused)
{
    int64_t wait =
        dibs__backoff(&s->backoff_ms, BACKOFF_FIRST_MS, BACKOFF_MAX_MS);

    schedule_dial(
        s, dibs__now_ms() +
               dibs__max(wait, refused ? dibs__random_in(REFUSED_DELAY_MS / 2,
                                                         REFUSED_DELAY_MS)
                                       : 0));
}

static void main_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct dibs__pooled_conn *conn = conn_of(cn);
    struct dibs__server *s = conn->server;

    s->main = NULL;
    if (dibs__server_is_closing(s))
        return;
    if (s->state != SERVER_CLOSING_CONNS)
        s->state = SERVER_DOWN;
    if (!dibs__server_is_idle_closing(s))
        dibs__server_set_last_error(s, why);
    bool drained = conn->drain_reason[0] != '\0';
    bool worked = conn->was_up && !(drained && s->read_only);
    if (dibs__server_is_idle_closing(s) ||
        dibs__server_log_disconnect(s, err, why, worked))
        s->logged_up = false;
    if (conn->was_up)
        close_stale_pool(s);
    if (s->state == SERVER_CLOSING_CONNS)
        return; /* the function that closes it decides what comes next */
    if (s->slots)
        s->slots->mark_stale(s->slots);
    if (conn->served && !drained) { /* it worked: dial without back-off */
        s->backoff_ms = 0;
        schedule_dial(s, dibs__now_ms());
        return;
    }
    redial_with_backoff(s, dibs__server_error_is_final(err));
    if (conn->was_up)
        return;
    s->read_only = false; /* unreachable now, which is another error */
    s->upper->fail(s, dibs__server_error_is_final(err) ? err : DIBS_ERR_CONN,
                   dibs__server_error_is_final(err));
    report_opened(s, dibs__server_error_is_final(err) ? err : DIBS_ERR_CONN);
}

static void dial_out_of_memory(struct dibs__server *s)
{
    redial_with_backoff(s, false);
    s->upper->fail(s, DIBS_ERR_NOMEM, false);
    report_opened(s, DIBS_ERR_NOMEM);
}

static void dial(struct dibs__server *s)
{
    dibs__timer_stop(s->lp, &s->redial);
    s->main = dibs__pooled_conn_open(s, main_up, main_down);
    s->state = s->main ? SERVER_DIALING : SERVER_DOWN;
    if (!s->main)
        dial_out_of_memory(s);
}

void dibs__server_start(struct dibs__server *s)
{
    if (s->state != SERVER_DOWN)
        return;
    if (!s->discover) {
        dial(s);
        return;
    }
    s->state = SERVER_DISCOVERING;
    s->discover(s);
}

static void redial_fired(struct dibs__timer *t)
{
    dibs__server_start(DIBS_OF(t, struct dibs__server, redial));
}

void dibs__server_close_main(struct dibs__server *s, const char *why)
{
    if (s->main)
        dibs__conn_close(&s->main->cn, DIBS_ERR_CONN, why);
}

/* ---- change of address ------------------------------------------------- */

bool dibs__server_at(const struct dibs__server *s, const char *host, int port)
{
    return s->target.url.host && s->target.url.port == port &&
           strcmp(s->target.url.host, host) == 0;
}

/* Returns false if out of memory. */
static bool set_address(struct dibs__server *s, const char *host, int port)
{
    if (dibs__server_at(s, host, port))
        return true;
    char *copy = dibs__strdup(host);
    if (!copy)
        return false;
    dibs__lock(&s->mu);
    dibs__free(s->target.url.host);
    s->target.url.host = copy;
    s->target.url.port = port;
    dibs__unlock(&s->mu);
    s->address_epoch++;
    return true;
}

void dibs__server_found(struct dibs__server *s, const char *host, int port)
{
    if (s->state != SERVER_DISCOVERING && s->state != SERVER_DOWN)
        return; /* the pool must have the same address as main */
    if (set_address(s, host, port))
        dial(s);
    else
        dial_out_of_memory(s);
}

void dibs__server_not_found(struct dibs__server *s, dibs_err err,
                            const char *why)
{
    struct dibs__url no_address = s->target.url;

    if (s->state != SERVER_DISCOVERING)
        return;
    s->state = SERVER_DOWN;
    no_address.host = NULL; /* the event must not name the old address */
    dibs__event_format(&no_address, why, s->last_error);
    if (dibs__log_disconnect(&s->events, &no_address, &s->throttle,
                             &(struct dibs__failure){err, why, false}))
        s->logged_up = false;
    redial_with_backoff(s, dibs__server_error_is_final(err));
    s->upper->fail(s, err, dibs__server_error_is_final(err));
    report_opened(s, err);
}

/* Ends the recv of each borrower: the server at this address is not the right
 * one any more, and may never answer. */
static void shutdown_lent_conns(struct dibs__server *s) REQUIRES(s->mu)
{
    for (struct dibs__list *l = s->idle_conns.next; l != &s->idle_conns;
         l = l->next) {
        struct dibs__pooled_conn *conn =
            DIBS_OF(l, struct dibs__pooled_conn, pool_link);
        if (conn->use == POOLED_LENT)
            shutdown(conn->cn.fd, SHUT_RDWR);
    }
}

/* Closes the main connection, without a redial by main_down. */
static void close_on_purpose(struct dibs__server *s, const char *why)
{
    s->state = SERVER_CLOSING_CONNS;
    dibs__server_close_main(s, why);
    s->state = SERVER_DOWN;
}

void dibs__server_moved(struct dibs__server *s, const char *host, int port)
{
    if (dibs__server_is_closing(s) ||
        (dibs__server_is_up(s) && dibs__server_at(s, host, port)))
        return;
    close_on_purpose(s, "the server's address has changed");
    dibs__lock(&s->mu);
    shutdown_lent_conns(s);
    dibs__unlock(&s->mu);
    s->backoff_ms = 0;
    dibs__server_found(s, host, port);
}

/* ---- idle -------------------------------------------------------------- */

void dibs__server_ensure_connected(struct dibs__server *s)
{
    s->idle = false;
    if (!s->redial.at)
        dibs__server_start(s);
}

/* A connection that is borrowed after the check under the mutex is closed when
 * it is given back: main goes down here, so its generation is outdated. */
bool dibs__server_idle_close(struct dibs__server *s)
{
    bool lent = false;

    s->idle = true;
    dibs__lock(&s->mu);
    for (struct dibs__list *l = s->idle_conns.next; l != &s->idle_conns;
         l = l->next)
        lent |=
            DIBS_OF(l, struct dibs__pooled_conn, pool_link)->use == POOLED_LENT;
    dibs__unlock(&s->mu);
    if (lent || atomic_load(&s->queued) > 0 || !dibs__list_empty(&s->waiting) ||
        s->acks.wait_in_flight || !dibs__list_empty(&s->acks.queue))
        return false;
    dibs__timer_stop(s->lp, &s->redial);
    close_on_purpose(s, "not needed any more");
    s->upper->forget(s);
    return true;
}

/* ---- connection pool --------------------------------------------------- */

/* Hands a connection over to the pool. A posted task, because io must be done
 * with it: afterwards a borrower may use it. */
static void lend_conn(struct dibs__task *t)
{
    struct dibs__pooled_conn *conn = DIBS_OF(t, struct dibs__pooled_conn, lend);
    struct dibs__server *s = conn->server;

    if (conn->cn.state != CONN_READY)
        return; /* it went down meanwhile */
    if (dibs__server_is_closing(s) ||
        conn->generation != atomic_load(&s->generation)) {
        dibs__conn_close(&conn->cn, DIBS_ERR_CONN,
                         "the main connection went down");
        return;
    }
    dibs__conn_lend(&conn->cn);
    dibs__lock(&s->mu);
    conn->use = POOLED_FREE;
    dibs__unlock(&s->mu);
}

static void pooled_up(struct dibs__conn *cn)
{
    struct dibs__pooled_conn *conn = conn_of(cn);
    struct dibs__server *s = conn->server;

    conn->was_up = true;
    dibs__stats_count(s->events.stats, STAT_CONNECTS, 1);
    dibs__lock(&s->mu);
    s->pool_growing = false;
    dibs__unlock(&s->mu);
    dibs__loop_post(s->lp, &conn->lend);
}

static void pooled_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct dibs__pooled_conn *conn = conn_of(cn);
    struct dibs__server *s = conn->server;

    dibs__lock(&s->mu);
    conn->use = POOLED_DIALING;
    dibs__list_del(&conn->pool_link);
    s->idle_conn_count--;
    if (!conn->was_up) {
        s->pool_growing = false;
        s->pool_grow_after = dibs__now_ms() + POOL_GROW_RETRY_MS;
    }
    dibs__unlock(&s->mu);
    /* With an outdated generation, main's disconnect was logged already. */
    if (dibs__server_is_closing(s) ||
        conn->generation != atomic_load(&s->generation))
        return;
    if (dibs__server_is_up(s))
        dibs__server_set_last_error(s, why);
    dibs__server_log_disconnect(s, err, why, conn->was_up);
}

static void pool_grow_run(struct dibs__task *t)
{
    struct dibs__server *s = DIBS_OF(t, struct dibs__server, pool_grow);
    struct dibs__pooled_conn *conn = NULL;

    if (dibs__server_is_up(s))
        conn = dibs__pooled_conn_open(s, pooled_up, pooled_down);
    dibs__lock(&s->mu);
    if (conn) {
        dibs__list_add(&s->idle_conns, &conn->pool_link);
        s->idle_conn_count++;
    } else {
        s->pool_growing = false;
        s->pool_grow_after = dibs__now_ms() + POOL_GROW_RETRY_MS;
    }
    dibs__unlock(&s->mu);
}

/* Thread: app. */
static struct dibs__pooled_conn *find_free(struct dibs__server *s)
    REQUIRES(s->mu)
{
    for (struct dibs__list *l = s->idle_conns.next; l != &s->idle_conns;
         l = l->next) {
        struct dibs__pooled_conn *conn =
            DIBS_OF(l, struct dibs__pooled_conn, pool_link);
        if (conn->use == POOLED_FREE &&
            conn->generation == atomic_load(&s->generation))
            return conn;
    }
    return NULL;
}

struct dibs__pooled_conn *dibs__server_borrow_always(struct dibs__server *s)
{
    struct dibs__pooled_conn *conn = NULL;
    bool grow = false;

    dibs__lock(&s->mu);
    if (!s->closed)
        conn = find_free(s);
    if (conn)
        conn->use = POOLED_LENT;
    else
        grow = !s->closed && !s->pool_growing &&
               s->idle_conn_count < s->max_idle_conns &&
               dibs__now_ms() >= s->pool_grow_after;
    s->pool_growing |= grow;
    dibs__unlock(&s->mu);
    if (grow)
        dibs__loop_post(s->lp, &s->pool_grow);
    return conn;
}

struct dibs__pooled_conn *dibs__server_borrow(struct dibs__server *s)
{
    if (atomic_load_explicit(&s->queued, memory_order_relaxed) >
        BORROW_QUEUED_MAX)
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

static void drop_conn(struct dibs__task *t)
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
    conn->use = usable ? POOLED_FREE : POOLED_DIALING;
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
    atomic_init(&s->connect_count, 0);
    atomic_init(&s->generation, 0);
    s->redial.fire = redial_fired;
    s->pool_grow.run = pool_grow_run;
}

/* Moves the connections that are not lent to `out`. */
static void take_free_conns(struct dibs__server *s, struct dibs__list *out)
    REQUIRES(s->mu)
{
    for (struct dibs__list *l = s->idle_conns.next, *n; l != &s->idle_conns;
         l = n) {
        struct dibs__pooled_conn *conn =
            DIBS_OF(l, struct dibs__pooled_conn, pool_link);
        n = l->next;
        if (conn->use == POOLED_FREE ||
            (conn->use == POOLED_DIALING && !conn->was_up)) {
            dibs__list_del(l);
            dibs__list_add(out, l);
        }
    }
}

static void close_conns(struct dibs__list *conns, dibs_err err, const char *why)
{
    for (struct dibs__list *l; (l = dibs__list_pop(conns));)
        dibs__conn_close(&DIBS_OF(l, struct dibs__pooled_conn, pool_link)->cn,
                         err, why);
}

/* The main connection went down: the server was restarted or replaced, so the
 * pool's connections may lead to an old server. Free ones are closed here, lent
 * ones when they are given back. */
static void close_stale_pool(struct dibs__server *s)
{
    struct dibs__list conns;

    dibs__list_init(&conns);
    atomic_fetch_add(&s->generation, 1);
    dibs__lock(&s->mu);
    take_free_conns(s, &conns);
    dibs__unlock(&s->mu);
    close_conns(&conns, DIBS_ERR_CONN, "the main connection went down");
    s->upper->drop(s);
}

/* A lent connection is shut down; its borrower gives it back, and the drop task
 * closes it. */
static void close_pool(struct dibs__server *s)
{
    struct dibs__list conns;

    dibs__list_init(&conns);
    dibs__lock(&s->mu);
    s->closed = true;
    take_free_conns(s, &conns);
    shutdown_lent_conns(s);
    dibs__unlock(&s->mu);
    close_conns(&conns, DIBS_ERR_CLOSED, "closed");
}

void dibs__server_close(struct dibs__server *s)
{
    s->state = SERVER_CLOSING;
    dibs__timer_stop(s->lp, &s->redial);
    if (s->main)
        dibs__conn_close(&s->main->cn, DIBS_ERR_CLOSED, "closed");
    close_pool(s);
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
        close(DIBS_OF(l, struct dibs__pooled_conn, pool_link)->cn.fd);
}
