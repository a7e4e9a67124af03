/* SPDX-License-Identifier: MIT
 *
 * sentinel.c - finds the master through sentinels, and follows failovers.
 *
 * Thread  io.
 * Locks   none.
 *
 * Discovery  Before each connection attempt the server calls its discover hook.
 *         The known sentinels are queried in order with SENTINEL
 *         GET-MASTER-ADDR-BY-NAME. If one has not answered after HEDGE_MS, the
 *         next is queried as well (hedged request), so neither a dead nor a
 *         slow one delays discovery. The first answer is used, and its sentinel
 *         is queried first the next time. The address is verified on connect:
 *         ROLE must be master (connect.c). If it is not, discovery is repeated
 *         after a back-off, and that sentinel is queried last.
 *
 *         Each sentinel is also asked for the other ones (SENTINEL SENTINELS),
 *         which are added to the known ones, up to a limit. None is removed: an
 *         unreachable one costs HEDGE_MS.
 *
 * Watch   One sentinel is watched: a subscription to +switch-master there, with
 *         PING as a keep-alive. On a failover the server and the subscriber are
 *         moved at once. If the watched sentinel fails, another one is chosen.
 *         A failover without a message shows as a lost connection or READONLY,
 *         after which the server calls the discover hook.
 *
 * Errors  If no sentinel answers, or none knows the service, the server is
 *         informed and retries with back-off. A malicious sentinel can make
 *         the client dial any address, but the client uses only a server that
 *         accepts its password and has the role of a master.
 */
#include "client/topology/sentinel.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEDGE_MS       250  /* without an answer: query one more */
#define PING_MS        2000 /* interval of the keep-alive */
#define RETRY_FIRST_MS 100  /* back-off until the next discovery */
#define RETRY_MAX_MS   5000
#define SWITCH_MASTER  "+switch-master"

/* A connection to one sentinel. */
struct sentinel_conn {
    struct dibs__conn cn;
    struct dibs__target to;
    struct dibs__sentinels *sn;
    struct dibs__list at; /* in sentinels.conns */
    struct dibs__req address_req, peers_req;
    struct dibs__timer ping;
    bool answered; /* it returned the master's address */
    bool alive;    /* it sent something since the last PING */
};

static void query_next(struct dibs__sentinels *sn);

/* ---- known sentinels --------------------------------------------------- */

static bool is_host(const struct dibs__url_host *h, const char *name, int port)
{
    return h->port == port && strcmp(h->name, name) == 0;
}

static size_t find_known(const struct dibs__sentinels *sn, const char *name,
                         int port)
{
    size_t i = 0;

    while (i < sn->count && !is_host(&sn->known[i], name, port))
        i++;
    return i;
}

/* Adds a sentinel. It is ignored if out of memory or if the table is full. */
static void add_sentinel(struct dibs__sentinels *sn, const char *name, int port)
{
    struct dibs__url url;

    if (sn->count == DIBS__SENTINELS_MAX ||
        find_known(sn, name, port) < sn->count ||
        dibs__url_for_sentinel(&sn->server->target.url, name, port, &url) !=
            DIBS_OK)
        return;
    sn->known[sn->count].name = url.host;
    sn->known[sn->count++].port = port;
    atomic_store(&sn->known_count, (unsigned)sn->count);
    url.host = NULL;
    dibs__url_clear(&url);
}

/* Moves the sentinel of `conn` to the front or to the end of the known ones. */
static void move_sentinel(struct dibs__sentinels *sn,
                          const struct sentinel_conn *conn, bool to_front)
{
    size_t i = find_known(sn, conn->to.url.host, conn->to.url.port);

    if (i == sn->count)
        return;
    struct dibs__url_host h = sn->known[i];
    struct dibs__url_host *k = sn->known;
    if (to_front) {
        memmove(k + 1, k, i * sizeof *k);
        k[0] = h;
    } else {
        memmove(k + i, k + i + 1, (sn->count - i - 1) * sizeof *k);
        k[sn->count - 1] = h;
    }
}

/* ---- end of a discovery ------------------------------------------------ */

/* Closes the connections of a discovery, except `keep` and the watched one. */
static void end_discovery(struct dibs__sentinels *sn,
                          const struct sentinel_conn *keep)
{
    sn->discovering = false;
    dibs__timer_stop(sn->lp, &sn->hedge);
    for (struct dibs__list *l = sn->conns.next, *n; l != &sn->conns; l = n) {
        struct sentinel_conn *conn = DIBS_OF(l, struct sentinel_conn, at);
        n = l->next;
        if (conn != keep && conn != sn->watched)
            dibs__conn_close(&conn->cn, DIBS_ERR_CLOSED, "");
    }
}

static void schedule_retry(struct dibs__sentinels *sn)
{
    int64_t wait = dibs__backoff(&sn->backoff_ms, RETRY_FIRST_MS, RETRY_MAX_MS);

    dibs__timer_set(sn->lp, &sn->retry_timer, dibs__now_ms() + wait);
}

static void discovery_failed(struct dibs__sentinels *sn)
{
    bool final = sn->err == DIBS_ERR_AUTH || sn->err == DIBS_ERR_TLS;
    dibs_err err = final ? sn->err : DIBS_ERR_CONN;
    char why[300];

    end_discovery(sn, NULL);
    if (!sn->watched && !sn->retry_timer.at)
        schedule_retry(sn);
    if (!sn->server_waits)
        return;
    sn->server_waits = false;
    snprintf(why, sizeof why, "no sentinel returned the master's address: %s",
             sn->why);
    dibs__server_not_found(sn->server, err, why);
}

/* The subscriber must reconnect if the server gets another address. */
static void disconnect_subscriber(struct dibs__sentinels *sn, const char *host,
                                  int port)
{
    if (!dibs__server_at(sn->server, host, port))
        dibs__subscriber_disconnect(sn->subscriber,
                                    "the server's address has changed");
}

/* A sentinel returned the master's address. */
static void discovery_succeeded(struct sentinel_conn *conn, const char *host,
                                int port)
{
    struct dibs__sentinels *sn = conn->sn;

    conn->answered = true;
    move_sentinel(sn, conn, true);
    end_discovery(sn, conn);
    if (sn->server_waits) {
        sn->server_waits = false;
        sn->answer_given = true;
        sn->ups_at_answer = atomic_load(&sn->server->connect_count);
        disconnect_subscriber(sn, host, port);
        dibs__server_found(sn->server, host, port);
    } else if (!dibs__server_at(sn->server, host, port)) {
        /* Either we missed a failover, or this sentinel did. Draining the main
         * connection leads to a new discovery, without failing a command. */
        dibs__server_drain(sn->server, "a sentinel reports another master");
    }
}

/* ---- one sentinel ------------------------------------------------------ */

static void address_write(struct dibs__req *req, struct dibs__buf *out)
{
    struct sentinel_conn *conn =
        DIBS_OF(req, struct sentinel_conn, address_req);

    dibs__buf_array(out, 3);
    dibs__buf_arg_text(out, "SENTINEL");
    dibs__buf_arg_text(out, "GET-MASTER-ADDR-BY-NAME");
    dibs__buf_arg_text(out, conn->sn->server->target.url.service);
}

static void set_query_error(struct sentinel_conn *conn, const char *why)
{
    snprintf(conn->sn->why, sizeof conn->sn->why, "%s:%d: %.150s",
             conn->to.url.host, conn->to.url.port, why);
}

static bool parse_port(const char *text, int *out)
{
    char *end;
    long n = strtol(text, &end, 10);

    *out = n > 0 && n < 65536 ? (int)n : 0;
    return *out && *end == '\0';
}

static bool parse_port_reply(const struct dibs__reply *text, int *out)
{
    return text && parse_port(text->text, out);
}

/* Returns true if a URL may have this host and port. */
static bool is_valid_host(struct dibs__sentinels *sn, const char *host,
                          int port)
{
    struct dibs__url url;

    if (dibs__url_for_server(&sn->server->target.url, host, port, &url) !=
        DIBS_OK)
        return false;
    dibs__url_clear(&url);
    return true;
}

static void address_done(struct dibs__req *req, dibs_err err,
                         const struct dibs__reply *reply)
{
    struct sentinel_conn *conn =
        DIBS_OF(req, struct sentinel_conn, address_req);
    char host[DIBS__URL_HOST_MAX + 1];
    int port;

    if (err != DIBS_OK)
        return; /* the connection was lost: sentinel_down handles that */
    const struct dibs__reply *name = dibs__reply_text(reply, 0);
    if (name && name->len < sizeof host &&
        parse_port_reply(dibs__reply_text(reply, 1), &port) &&
        is_valid_host(conn->sn, name->text, port)) {
        memcpy(host, name->text, name->len + 1);
        discovery_succeeded(conn, host, port);
        return;
    }
    set_query_error(conn, reply->type == REPLY_ERROR ? reply->text
                          : reply->type == REPLY_NIL
                              ? "the sentinel does not know the service"
                              : "unexpected reply");
    dibs__conn_close(&conn->cn, DIBS_ERR_SERVER, conn->sn->why);
}

static void peers_write(struct dibs__req *req, struct dibs__buf *out)
{
    struct sentinel_conn *conn = DIBS_OF(req, struct sentinel_conn, peers_req);

    dibs__buf_array(out, 3);
    dibs__buf_arg_text(out, "SENTINEL");
    dibs__buf_arg_text(out, "SENTINELS");
    dibs__buf_arg_text(out, conn->sn->server->target.url.service);
}

/* Adds a sentinel from one entry of SENTINEL SENTINELS: an array of alternating
 * names and values. */
static void add_peer(struct dibs__sentinels *sn, const struct dibs__reply *r)
{
    const struct dibs__reply *ip = NULL, *text = NULL;
    int port;

    for (size_t i = 0; r->type == REPLY_ARRAY && i + 1 < r->len; i += 2) {
        const struct dibs__reply *name = dibs__reply_text(r, i);
        if (name && strcmp(name->text, "ip") == 0)
            ip = dibs__reply_text(r, i + 1);
        else if (name && strcmp(name->text, "port") == 0)
            text = dibs__reply_text(r, i + 1);
    }
    if (ip && parse_port_reply(text, &port))
        add_sentinel(sn, ip->text, port);
}

static void watch_sentinel(struct sentinel_conn *conn);

static void peers_done(struct dibs__req *req, dibs_err err,
                       const struct dibs__reply *reply)
{
    struct sentinel_conn *conn = DIBS_OF(req, struct sentinel_conn, peers_req);
    struct dibs__sentinels *sn = conn->sn;

    if (err != DIBS_OK)
        return;
    for (size_t i = 0; reply->type == REPLY_ARRAY && i < reply->len; i++)
        add_peer(sn, reply->elem[i]);
    if (sn->watched)
        dibs__conn_close(&conn->cn, DIBS_ERR_CLOSED, "");
    else
        watch_sentinel(conn);
}

static void sentinel_up(struct dibs__conn *cn)
{
    struct sentinel_conn *conn = cn->user;
    int64_t expires = dibs__now_ms() + conn->to.command_timeout_ms;

    conn->address_req.write = address_write;
    conn->address_req.done = address_done;
    conn->peers_req.write = peers_write;
    conn->peers_req.done = peers_done;
    conn->address_req.expires = conn->peers_req.expires = expires;
    dibs__conn_send(cn, &conn->address_req);
    dibs__conn_send(cn, &conn->peers_req);
}

static void sentinel_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct sentinel_conn *conn = cn->user;
    struct dibs__sentinels *sn = conn->sn;

    dibs__list_del(&conn->at);
    dibs__timer_stop(sn->lp, &conn->ping);
    if (sn->closing)
        return;
    if (conn == sn->watched) {
        sn->watched = NULL;
        atomic_store(&sn->is_watching, false);
        dibs__log_disconnect(&sn->events, &conn->to.url, &sn->throttle,
                             &(struct dibs__failure){err, why, true});
        move_sentinel(sn, conn, false);
    }
    if (!sn->watched && !sn->discovering && !sn->retry_timer.at)
        schedule_retry(sn);
    if (conn->answered || !sn->discovering)
        return;
    sn->err = err;
    if (err != DIBS_ERR_SERVER)
        set_query_error(conn, why);
    query_next(sn);
}

static void sentinel_gone(struct dibs__conn *cn)
{
    struct sentinel_conn *conn = cn->user;
    struct dibs__sentinels *sn = conn->sn;

    dibs__url_clear(&conn->to.url);
    dibs__free(conn);
    if (--sn->open_conns == 0 && sn->closing)
        dibs__lifecycle_closed(sn->lifecycle);
}

static bool sentinel_open(struct dibs__sentinels *sn,
                          const struct dibs__url_host *h)
{
    struct sentinel_conn *conn = dibs__calloc(1, sizeof *conn);

    if (!conn)
        return false;
    conn->to = sn->server->target;
    conn->to.may_fail_over = false;
    if (dibs__url_for_sentinel(&sn->server->target.url, h->name, h->port,
                               &conn->to.url) != DIBS_OK) {
        dibs__free(conn);
        return false;
    }
    conn->sn = sn;
    conn->cn.lp = sn->lp;
    conn->cn.to = &conn->to;
    conn->cn.user = conn;
    conn->cn.up = sentinel_up;
    conn->cn.down = sentinel_down;
    conn->cn.gone = sentinel_gone;
    if (dibs__conn_open(&conn->cn) != DIBS_OK) {
        dibs__url_clear(&conn->to.url);
        dibs__free(conn);
        return false;
    }
    dibs__list_add(&sn->conns, &conn->at);
    sn->open_conns++;
    return true;
}

/* ---- discovery --------------------------------------------------------- */

static bool any_query_pending(const struct dibs__sentinels *sn)
{
    for (struct dibs__list *l = sn->conns.next; l != &sn->conns; l = l->next)
        if (!DIBS_OF(l, struct sentinel_conn, at)->answered)
            return true;
    return false;
}

static void query_next(struct dibs__sentinels *sn)
{
    while (sn->next_query < sn->count &&
           !sentinel_open(sn, &sn->known[sn->next_query++]))
        snprintf(sn->why, sizeof sn->why, "out of memory");
    if (sn->next_query < sn->count)
        dibs__timer_set(sn->lp, &sn->hedge, dibs__now_ms() + HEDGE_MS);
    else if (!any_query_pending(sn))
        discovery_failed(sn);
}

static void hedge_fired(struct dibs__timer *t)
{
    query_next(DIBS_OF(t, struct dibs__sentinels, hedge));
}

static void start_discovery(struct dibs__sentinels *sn)
{
    if (sn->discovering)
        return;
    sn->discovering = true;
    sn->next_query = 0;
    sn->err = DIBS_ERR_CONN;
    snprintf(sn->why, sizeof sn->why, "no sentinel answered");
    query_next(sn);
}

static void discover_master(struct dibs__server *s)
{
    struct dibs__sentinels *sn = s->user;

    /* The connection to the last address failed: query its sentinel last. */
    if (sn->answer_given &&
        sn->ups_at_answer == atomic_load(&s->connect_count)) {
        struct dibs__url_host h = sn->known[0];
        memmove(sn->known, sn->known + 1, (sn->count - 1) * sizeof h);
        sn->known[sn->count - 1] = h;
    }
    sn->answer_given = false;
    sn->server_waits = true;
    start_discovery(sn);
}

static void retry_fired(struct dibs__timer *t)
{
    start_discovery(DIBS_OF(t, struct dibs__sentinels, retry_timer));
}

/* ---- watching ---------------------------------------------------------- */

/* Handles a +switch-master message, whose text is "service old-host old-port
 * new-host new-port". */
static void master_switched(struct dibs__sentinels *sn, const char *text)
{
    char copy[2 * DIBS__URL_HOST_MAX + 600], *save, *part[5];
    char *rest = copy;
    size_t n = 0;

    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return;
    while (n < 5 && (part[n] = strtok_r(rest, " ", &save))) {
        rest = NULL;
        n++;
    }
    if (n < 5 || strcmp(part[0], sn->server->target.url.service) != 0)
        return;
    int port;
    if (!parse_port(part[4], &port) || !is_valid_host(sn, part[3], port))
        return;
    if (sn->server_waits) { /* the message answers the discovery */
        sn->server_waits = false;
        end_discovery(sn, NULL);
    }
    disconnect_subscriber(sn, part[3], port);
    dibs__server_moved(sn->server, part[3], port);
}

static void handle_message(struct dibs__conn *cn,
                           const struct dibs__reply *reply)
{
    struct sentinel_conn *conn = cn->user;
    const struct dibs__reply *verb = dibs__reply_text(reply, 0);
    const struct dibs__reply *text = dibs__reply_text(reply, 2);

    conn->alive = true;
    if (reply->type == REPLY_ERROR)
        dibs__event_emit(&conn->sn->events, &conn->to.url, DIBS_EVENT_WARNING,
                         DIBS_ERR_AUTH, reply->text);
    else if (verb && strcmp(verb->text, "subscribe") == 0)
        conn->sn->backoff_ms = 0;
    else if (verb && text && strcmp(verb->text, "message") == 0)
        master_switched(conn->sn, text->text);
}

/* Sends a command of one or two words (`arg` may be NULL) whose reply arrives
 * as a message (conn.push), not as the reply to a dibs__req. Returns false if
 * out of memory: then nothing was sent. */
static bool send_command(struct dibs__conn *cn, const char *command,
                         const char *arg)
{
    size_t before = cn->out.len;

    dibs__buf_array(&cn->out, arg ? 2 : 1);
    dibs__buf_arg_text(&cn->out, command);
    if (arg)
        dibs__buf_arg_text(&cn->out, arg);
    if (!dibs__buf_ok(&cn->out)) {
        dibs__buf_cut(&cn->out, before);
        return false;
    }
    dibs__loop_flush(cn->lp, &cn->flush);
    return true;
}

static void ping_fired(struct dibs__timer *t)
{
    struct sentinel_conn *conn = DIBS_OF(t, struct sentinel_conn, ping);

    if (!conn->alive) {
        dibs__conn_close(&conn->cn, DIBS_ERR_CONN,
                         "a sentinel did not answer PING");
        return;
    }
    conn->alive = false;
    send_command(&conn->cn, "PING", NULL);
    dibs__timer_set(conn->sn->lp, &conn->ping, dibs__now_ms() + PING_MS);
}

static void watch_sentinel(struct sentinel_conn *conn)
{
    if (!send_command(&conn->cn, "SUBSCRIBE", SWITCH_MASTER)) {
        dibs__conn_close(&conn->cn, DIBS_ERR_NOMEM, "out of memory");
        return;
    }
    conn->sn->watched = conn;
    atomic_store(&conn->sn->is_watching, true);
    conn->cn.push = handle_message;
    conn->alive = true;
    conn->ping.fire = ping_fired;
    dibs__timer_stop(conn->sn->lp, &conn->sn->retry_timer);
    dibs__timer_set(conn->sn->lp, &conn->ping, dibs__now_ms() + PING_MS);
}

/* ---- life -------------------------------------------------------------- */

dibs_err dibs__sentinels_init(struct dibs__sentinels *sn)
{
    const struct dibs__url *url = &sn->server->target.url;

    dibs__list_init(&sn->conns);
    sn->hedge.fire = hedge_fired;
    sn->retry_timer.fire = retry_fired;
    for (size_t i = 0; i < url->host_count; i++)
        add_sentinel(sn, url->hosts[i].name, url->hosts[i].port);
    if (sn->count == 0)
        return DIBS_ERR_NOMEM;
    sn->server->target.may_fail_over = true;
    sn->server->discover = discover_master;
    sn->server->user = sn;
    return DIBS_OK;
}

void dibs__sentinels_clear(struct dibs__sentinels *sn)
{
    while (sn->count > 0)
        dibs__free(sn->known[--sn->count].name);
}

void dibs__sentinels_close(struct dibs__sentinels *sn)
{
    sn->closing = true;
    dibs__timer_stop(sn->lp, &sn->retry_timer);
    sn->watched = NULL;
    sn->server_waits = false;
    end_discovery(sn, NULL);
    if (sn->open_conns == 0)
        dibs__lifecycle_closed(sn->lifecycle);
}

void dibs__sentinels_abandon(struct dibs__sentinels *sn)
{
    for (struct dibs__list *l = sn->conns.next; l != &sn->conns; l = l->next) {
        int fd = DIBS_OF(l, struct sentinel_conn, at)->cn.fd;
        if (fd >= 0)
            close(fd);
    }
}
