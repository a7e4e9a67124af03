/* SPDX-License-Identifier: MIT
 *
 * connect.c - establishes a connection.
 *
 * Thread  io.
 *
 * How     Look up the host, try its addresses one after the other, do the TLS
 *         handshake, then send the set-up commands (AUTH, SELECT, CLIENT
 *         SETNAME, CLIENT INFO) in one write. One time limit covers all of it.
 *         The connection is up after the last reply. If a failover can replace
 *         the server, ROLE must report a master, and INFO server gives the run
 *         id.
 *
 *         CLIENT INFO gives the client id of this connection: with CLIENT KILL
 *         ID, a later connection can drop commands that are in doubt on this
 *         one. If the ACL denies it, the id stays unknown.
 */
#include "base/mem.h"
#include "net/conn.h"
#include "net/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define KEEPALIVE_IDLE_S  10
#define KEEPALIVE_EVERY_S 5
#define KEEPALIVE_COUNT   3
#define USER_TIMEOUT_MS   20000

static void try_next_address(struct dibs__conn *cn, int error_number);

/* ---- set-up ------------------------------------------------------------ */

static bool is_wanted(const struct dibs__conn *cn, enum dibs__setup_step kind)
{
    if (kind == SETUP_AUTH)
        return cn->to->url.password != NULL;
    if (kind == SETUP_SELECT)
        return cn->to->url.db != 0;
    if (kind == SETUP_ROLE || kind == SETUP_RUN)
        return cn->to->may_fail_over;
    return true;
}

static void setup_write(struct dibs__req *req, struct dibs__buf *out)
{
    const struct dibs__setup_req *h = DIBS_OF(req, struct dibs__setup_req, req);
    const struct dibs__target *to = h->cn->to;

    switch (h->kind) {
    case SETUP_AUTH:
        dibs__buf_array(out, to->url.user ? 3 : 2);
        dibs__buf_arg_text(out, "AUTH");
        if (to->url.user)
            dibs__buf_arg_text(out, to->url.user);
        dibs__buf_arg_text(out, to->url.password);
        break;
    case SETUP_SELECT:
        dibs__buf_array(out, 2);
        dibs__buf_arg_text(out, "SELECT");
        dibs__buf_arg_num(out, to->url.db);
        break;
    case SETUP_NAME:
        dibs__buf_array(out, 3);
        dibs__buf_arg_text(out, "CLIENT");
        dibs__buf_arg_text(out, "SETNAME");
        dibs__buf_arg_text(out, to->client_name);
        break;
    case SETUP_ROLE:
        dibs__buf_array(out, 1);
        dibs__buf_arg_text(out, "ROLE");
        break;
    case SETUP_RUN:
        dibs__buf_array(out, 2);
        dibs__buf_arg_text(out, "INFO");
        dibs__buf_arg_text(out, "server");
        break;
    case SETUP_INFO:
    case SETUP_COUNT:
        dibs__buf_array(out, 2);
        dibs__buf_arg_text(out, "CLIENT");
        dibs__buf_arg_text(out, "INFO");
        break;
    }
}

/* Copies the value that follows `name`, up to a space or the end of the line.
 */
static void copy_field(const char *text, const char *name, char *out,
                       size_t size)
{
    const char *at = strstr(text, name);

    if (!at)
        return;
    at += strlen(name);
    size_t len = strcspn(at, " \r\n");
    if (len < size) {
        memcpy(out, at, len);
        out[len] = '\0';
    }
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Returns OK if the refused command is optional: the connection's name, id,
 * role and run id. */
static dibs_err classify_refusal(enum dibs__setup_step kind, const char *text)
{
    if (starts_with(text, "ERR max number of clients") ||
        starts_with(text, "LOADING") || starts_with(text, "BUSY") ||
        starts_with(text, "MASTERDOWN"))
        return DIBS_ERR_CONN; /* transient */
    if (kind == SETUP_AUTH || starts_with(text, "NOAUTH") ||
        starts_with(text, "WRONGPASS") || starts_with(text, "DENIED"))
        return DIBS_ERR_AUTH;
    return kind == SETUP_SELECT ? DIBS_ERR_SERVER : DIBS_OK;
}

/* A server without AUTH repeats the arguments in its error. The password must
 * not get into an error text. */
static void fail_refused(struct dibs__conn *cn, const struct dibs__setup_req *h,
                         dibs_err err, const char *text)
{
    const char *password = cn->to->url.password;
    char shown[160];

    snprintf(shown, sizeof shown, "%.*s", (int)strcspn(text, ",\r\n"), text);
    if (h->kind != SETUP_AUTH)
        dibs__conn_fail(cn, err, text, 0);
    else if (!starts_with(shown, "WRONGPASS") && *password &&
             strstr(shown, password))
        dibs__conn_fail(cn, err, "AUTH was refused", 0);
    else
        dibs__conn_fail(cn, err, shown, 0);
}

static bool is_master(const struct dibs__reply *reply)
{
    const struct dibs__reply *role = dibs__reply_text(reply, 0);

    return role && strcmp(role->text, "master") == 0;
}

static void set_ready(struct dibs__conn *cn)
{
    int flags = fcntl(cn->fd, F_GETFL);

    fcntl(cn->fd, F_SETFL, flags & ~O_NONBLOCK);
    dibs__timer_stop(cn->lp, &cn->timer);
    cn->state = CONN_READY;
    cn->up(cn);
}

static void setup_done(struct dibs__req *req, dibs_err err,
                       const struct dibs__reply *reply)
{
    const struct dibs__setup_req *h = DIBS_OF(req, struct dibs__setup_req, req);
    struct dibs__conn *cn = h->cn;

    if (err != DIBS_OK)
        return; /* the connection is being closed */
    if (reply->type == REPLY_ERROR) {
        dibs_err refusal = classify_refusal(h->kind, reply->text);
        if (refusal != DIBS_OK) {
            fail_refused(cn, h, refusal, reply->text);
            return;
        }
    } else if (h->kind == SETUP_ROLE && !is_master(reply)) {
        dibs__conn_fail(cn, DIBS_ERR_CONN, "the server is not a master", 0);
        return;
    } else if (h->kind == SETUP_RUN && reply->type == REPLY_TEXT) {
        copy_field(reply->text, "\nrun_id:", cn->run_id, sizeof cn->run_id);
    } else if (h->kind == SETUP_INFO && reply->type == REPLY_TEXT) {
        copy_field(reply->text, "id=", cn->id, sizeof cn->id);
        copy_field(reply->text, " addr=", cn->addr, sizeof cn->addr);
    }
    if (h->kind == SETUP_INFO)
        set_ready(cn);
}

static void send_setup(struct dibs__conn *cn)
{
    int64_t expires = cn->timer.at;

    cn->state = CONN_SETUP;
    for (int k = 0; k < SETUP_COUNT; k++) {
        struct dibs__setup_req *h = &cn->setup[k];
        *h = (struct dibs__setup_req){.cn = cn,
                                      .kind = (enum dibs__setup_step)k};
        h->req.write = setup_write;
        h->req.done = setup_done;
        h->req.expires = expires;
        if (is_wanted(cn, h->kind))
            dibs__conn_send(cn, &h->req);
    }
}

/* ---- connecting -------------------------------------------------------- */

static void set_timeouts(int fd, int64_t ms)
{
    struct timeval tv = {.tv_sec = (time_t)(ms / 1000),
                         .tv_usec = (suseconds_t)(ms % 1000 * 1000)};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
}

static void set_tcp(int fd)
{
    const struct {
        int level, name, value;
    } opts[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
#ifdef TCP_KEEPIDLE
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT},
#endif
#ifdef TCP_USER_TIMEOUT
        {IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS},
#endif
    };

    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++)
        setsockopt(fd, opts[i].level, opts[i].name, &opts[i].value,
                   sizeof opts[i].value);
}

/* 0, or the error number. */
static int start_socket(struct dibs__conn *cn, const struct sockaddr *to,
                        socklen_t len)
{
    cn->fd =
        socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (cn->fd < 0)
        return errno;
    if (to->sa_family != AF_UNIX)
        set_tcp(cn->fd);
    set_timeouts(cn->fd, cn->to->command_timeout_ms);
    if (connect(cn->fd, to, len) != 0 && errno != EINPROGRESS)
        return errno;
    cn->poll = dibs__calloc(1, sizeof *cn->poll);
    if (!cn->poll)
        return ENOMEM;
    int failed = uv_poll_init(&cn->lp->uv, cn->poll, cn->fd);
    if (failed) {
        dibs__free(cn->poll);
        cn->poll = NULL;
        return -failed;
    }
    cn->poll->data = cn;
    cn->state = CONN_CONNECTING;
    dibs__conn_poll(cn, UV_WRITABLE);
    return 0;
}

/* After a failed handshake no other address is tried: the error concerns the
 * certificate of the host. */
static void continue_handshake(struct dibs__conn *cn)
{
    switch (dibs__tls_handshake(cn->tls, cn->fd)) {
    case TLS_DONE:
        send_setup(cn);
        break;
    case TLS_READ:
        dibs__conn_poll(cn, UV_READABLE);
        break;
    case TLS_WRITE:
        dibs__conn_poll(cn, UV_WRITABLE);
        break;
    case TLS_CUT:
        dibs__conn_fail(cn, DIBS_ERR_CONN, dibs__tls_why(cn->tls), 0);
        break;
    case TLS_FAILED:
        dibs__conn_fail(cn, DIBS_ERR_TLS, dibs__tls_why(cn->tls), 0);
        break;
    }
}

static void on_connected(struct dibs__conn *cn)
{
    int failed = 0;
    socklen_t len = sizeof failed;

    if (getsockopt(cn->fd, SOL_SOCKET, SO_ERROR, &failed, &len) != 0)
        failed = errno;
    if (failed) {
        dibs__conn_drop_socket(cn);
        try_next_address(cn, failed);
        return;
    }
    if (!cn->tls) {
        send_setup(cn);
        return;
    }
    cn->state = CONN_HANDSHAKE;
    continue_handshake(cn);
}

static void dial_step(struct dibs__conn *cn)
{
    if (cn->state == CONN_HANDSHAKE)
        continue_handshake(cn);
    else
        on_connected(cn);
}

static void dial_timed_out(struct dibs__conn *cn)
{
    const char *why = "no connection within the time limit";

    if (cn->state == CONN_HANDSHAKE)
        why = "connected, but the TLS handshake did not end in time; is this "
              "the server's port for TLS?";
    else if (cn->state == CONN_SETUP)
        why = "connected, but the server did not answer in time";
    dibs__conn_fail(cn, DIBS_ERR_CONN, why, 0);
}

/* The last address failed, too. The error text names that address if the URL
 * has a host name; a Unix socket has no host. */
static void fail_address(struct dibs__conn *cn, int error_number)
{
    char text[NI_MAXHOST] = "";
    const struct addrinfo *a = cn->found;

    while (a && a->ai_next)
        a = a->ai_next;
    if (a && getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0,
                         NI_NUMERICHOST) != 0)
        text[0] = '\0';
    if (cn->to->url.host && strcmp(text, cn->to->url.host) == 0)
        text[0] = '\0';
    dibs__conn_fail(cn, DIBS_ERR_CONN, text, error_number);
}

static void try_next_address(struct dibs__conn *cn, int error_number)
{
    while (cn->next) {
        struct addrinfo *a = cn->next;
        cn->next = a->ai_next;
        error_number = start_socket(cn, a->ai_addr, a->ai_addrlen);
        if (error_number == 0)
            return;
        dibs__conn_drop_socket(cn);
    }
    fail_address(cn, error_number);
}

static void host_resolved(void *arg, const struct dibs__resolved *r)
{
    struct dibs__conn *cn = arg;

    cn->resolve = NULL;
    cn->tls = r->tls;
    if (!r->found) {
        dibs__conn_fail(cn, r->err, r->why, 0);
        return;
    }
    cn->found = cn->next = r->found;
    try_next_address(cn, 0);
}

static void dial_unix(struct dibs__conn *cn)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    snprintf(to.sun_path, sizeof to.sun_path, "%s", cn->to->url.path);
    int failed = start_socket(cn, (struct sockaddr *)&to, sizeof to);
    if (failed)
        dibs__conn_fail(cn, DIBS_ERR_CONN, "", failed);
}

static void dial_begin(struct dibs__task *t)
{
    struct dibs__conn *cn = DIBS_OF(t, struct dibs__conn, step);
    const struct dibs__url *url = &cn->to->url;

    cn->dialing = false;
    if (cn->state == CONN_CLOSED) {
        cn->gone(cn);
        return;
    }
    if (url->unix_socket) {
        dial_unix(cn);
        return;
    }
    cn->resolve = dibs__resolve_start(cn->lp, url, host_resolved, cn);
    if (!cn->resolve)
        dibs__conn_fail(cn, DIBS_ERR_NOMEM, "no memory or thread for a look-up",
                        0);
}

dibs_err dibs__conn_open(struct dibs__conn *cn)
{
    dibs_err err = dibs__conn_prepare(cn);

    if (err != DIBS_OK)
        return err;
    cn->state = CONN_RESOLVING;
    cn->dial_step = dial_step;
    cn->dial_timed_out = dial_timed_out;
    dibs__timer_set(cn->lp, &cn->timer,
                    dibs__add(dibs__now_ms(), cn->to->connect_timeout_ms));
    cn->step.run = dial_begin;
    cn->dialing = true;
    dibs__loop_post(cn->lp, &cn->step);
    return DIBS_OK;
}
