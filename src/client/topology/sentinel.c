/* SPDX-License-Identifier: MIT
 *
 * sentinel.c - sentinels, who know which server is the master.
 *
 * Thread  io.
 * Locks   none.
 *
 * How     Before each dialing the server asks where it is (its seek). The
 *         sentinels are asked in turn: one that does not answer for a moment
 *         is left to think and the next is asked as well, so neither dead nor
 *         slow ones hold up the rest. The first answer counts; who gave it is
 *         asked first next time. Whether it is true the server sees for
 *         itself: a connection comes up only if ROLE says master (connect.c).
 * If not, it asks again after a pause, and who told the untruth is asked last.
 *
 *         One sentinel is watched: we subscribe to +switch-master there and
 *         move the server and the subscriptions at once. Should it fall
 *         silent, another is found. A change that nobody told us of shows as a
 *         lost connection or a READONLY, and the server asks.
 *
 *         Each answer comes with the other sentinels, who are remembered, up
 *         to a limit. Nobody is forgotten: one that is away costs a moment.
 *
 * Trouble All silent, or none knows the service: the server is told so, and
 *         asks again with growing pauses. A sentinel that lies can make us
 *         dial any address, but we talk only to one that knows our password
 *         and says it is a master.
 */
#include "client/topology/sentinel.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEDGE_MS       250  /* no answer for so long: ask one more */
#define PING_MS        2000 /* whether the one that is watched lives */
#define AGAIN_FIRST_MS 100  /* until another is looked for */
#define AGAIN_MAX_MS   5000
#define SWITCH_MASTER  "+switch-master"

/* A connection to one of them. */
struct sentinel_link {
    struct dibs__conn cn;
    struct dibs__target to;
    struct dibs__sentinels *sn;
    struct dibs__list at; /* in sentinels.links */
    struct dibs__req where, others;
    struct dibs__timer ping;
    bool answered; /* it said where the master is */
    bool heard;    /* something, since the last ping */
};

static void ask_next(struct dibs__sentinels *sn);

/* ---- who is known ------------------------------------------------------ */

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

/* No memory, no room: then we go without that one. */
static void learn_sentinel(struct dibs__sentinels *sn, const char *name,
                           int port)
{
    struct dibs__url url;

    if (sn->count == DIBS__SENTINELS_MAX ||
        find_known(sn, name, port) < sn->count ||
        dibs__url_is_sentinel(&sn->server->to.url, name, port, &url) != DIBS_OK)
        return;
    sn->known[sn->count].name = url.host;
    sn->known[sn->count++].port = port;
    atomic_store(&sn->seen, (unsigned)sn->count);
    url.host = NULL;
    dibs__url_clear(&url);
}

/* To the front, or to the end. */
static void place_known(struct dibs__sentinels *sn,
                        const struct sentinel_link *ln, bool first)
{
    size_t i = find_known(sn, ln->to.url.host, ln->to.url.port);

    if (i == sn->count)
        return;
    struct dibs__url_host h = sn->known[i];
    struct dibs__url_host *k = sn->known;
    if (first) {
        memmove(k + 1, k, i * sizeof *k);
        k[0] = h;
    } else {
        memmove(k + i, k + i + 1, (sn->count - i - 1) * sizeof *k);
        k[sn->count - 1] = h;
    }
}

/* ---- the end of a hunt ------------------------------------------------- */

/* Those that were asked too are not needed any more. */
static void dismiss_others(struct dibs__sentinels *sn,
                           const struct sentinel_link *but)
{
    sn->hunting = false;
    dibs__timer_stop(sn->lp, &sn->hedge);
    for (struct dibs__list *l = sn->links.next, *n; l != &sn->links; l = n) {
        struct sentinel_link *ln = DIBS_OF(l, struct sentinel_link, at);
        n = l->next;
        if (ln != but && ln != sn->watched)
            dibs__conn_close(&ln->cn, DIBS_ERR_CLOSED, "");
    }
}

static void watch_again(struct dibs__sentinels *sn)
{
    int64_t wait = dibs__backoff(&sn->backoff_ms, AGAIN_FIRST_MS, AGAIN_MAX_MS);

    dibs__timer_set(sn->lp, &sn->again, dibs__now_ms() + wait);
}

static void hunt_failed(struct dibs__sentinels *sn)
{
    bool final = sn->err == DIBS_ERR_AUTH || sn->err == DIBS_ERR_TLS;
    dibs_err err = final ? sn->err : DIBS_ERR_CONN;
    char why[300];

    dismiss_others(sn, NULL);
    if (!sn->watched && !sn->again.at)
        watch_again(sn);
    if (!sn->wanted)
        return;
    sn->wanted = false;
    snprintf(why, sizeof why, "no sentinel could tell where the master is: %s",
             sn->why);
    dibs__server_not_found(sn->server, err, why);
}

static void go_there(struct dibs__sentinels *sn, const char *host, int port)
{
    if (!dibs__server_at(sn->server, host, port))
        dibs__subscriber_disconnect(sn->pubsub,
                                    "the server is elsewhere by now");
    dibs__server_moved(sn->server, host, port);
}

/* ln said that the master is there. The server sees to it that it is true. */
static void hunt_succeeded(struct sentinel_link *ln, const char *host, int port)
{
    struct dibs__sentinels *sn = ln->sn;

    ln->answered = true;
    place_known(sn, ln, true);
    dismiss_others(sn, ln);
    if (sn->wanted) {
        sn->wanted = false;
        sn->told = true;
        sn->told_ups = atomic_load(&sn->server->ups);
        if (!dibs__server_at(sn->server, host, port))
            dibs__subscriber_disconnect(sn->pubsub,
                                        "the server is elsewhere by now");
        dibs__server_found(sn->server, host, port);
    } else if (!dibs__server_at(sn->server, host, port)) {
        /* We may have missed a change, or this one has. Asking again when
         * nothing is under way tells, and harms nobody. */
        dibs__server_drain(sn->server,
                           "a sentinel says that the master is elsewhere");
    }
}

/* ---- one sentinel ------------------------------------------------------ */

static void where_write(struct dibs__req *req, struct dibs__buf *out)
{
    struct sentinel_link *ln = DIBS_OF(req, struct sentinel_link, where);

    dibs__buf_array(out, 3);
    dibs__buf_arg_text(out, "SENTINEL");
    dibs__buf_arg_text(out, "GET-MASTER-ADDR-BY-NAME");
    dibs__buf_arg_text(out, ln->sn->server->to.url.service);
}

static void no_help(struct sentinel_link *ln, const char *why)
{
    snprintf(ln->sn->why, sizeof ln->sn->why, "%s:%d: %.150s", ln->to.url.host,
             ln->to.url.port, why);
}

static bool read_port(const char *text, int *out)
{
    char *end;
    long n = strtol(text, &end, 10);

    *out = n > 0 && n < 65536 ? (int)n : 0;
    return *out && *end == '\0';
}

static bool port_of(const struct dibs__reply *text, int *out)
{
    return text && read_port(text->text, out);
}

/* A host that no URL could have is nothing to dial. */
static bool host_ok(struct dibs__sentinels *sn, const char *host, int port)
{
    struct dibs__url url;

    if (dibs__url_is_server(&sn->server->to.url, host, port, &url) != DIBS_OK)
        return false;
    dibs__url_clear(&url);
    return true;
}

static void where_done(struct dibs__req *req, dibs_err err,
                       const struct dibs__reply *reply)
{
    struct sentinel_link *ln = DIBS_OF(req, struct sentinel_link, where);
    char host[DIBS__URL_HOST_MAX + 1];
    int port;

    if (err != DIBS_OK)
        return; /* it is going down, and that tells */
    const struct dibs__reply *name = dibs__reply_text(reply, 0);
    if (name && name->len < sizeof host &&
        port_of(dibs__reply_text(reply, 1), &port) &&
        host_ok(ln->sn, name->text, port)) {
        memcpy(host, name->text, name->len + 1);
        hunt_succeeded(ln, host, port);
        return;
    }
    no_help(ln, reply->type == REPLY_ERROR ? reply->text
                : reply->type == REPLY_NIL ? "it does not know the service"
                                           : "it makes no sense");
    dibs__conn_close(&ln->cn, DIBS_ERR_SERVER, ln->sn->why);
}

static void others_write(struct dibs__req *req, struct dibs__buf *out)
{
    struct sentinel_link *ln = DIBS_OF(req, struct sentinel_link, others);

    dibs__buf_array(out, 3);
    dibs__buf_arg_text(out, "SENTINEL");
    dibs__buf_arg_text(out, "SENTINELS");
    dibs__buf_arg_text(out, ln->sn->server->to.url.service);
}

/* Names and values in turn. */
static void learn_from(struct dibs__sentinels *sn, const struct dibs__reply *r)
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
    if (ip && port_of(text, &port))
        learn_sentinel(sn, ip->text, port);
}

static void watch_sentinel(struct sentinel_link *ln);

static void others_done(struct dibs__req *req, dibs_err err,
                        const struct dibs__reply *reply)
{
    struct sentinel_link *ln = DIBS_OF(req, struct sentinel_link, others);
    struct dibs__sentinels *sn = ln->sn;

    if (err != DIBS_OK)
        return;
    for (size_t i = 0; reply->type == REPLY_ARRAY && i < reply->len; i++)
        learn_from(sn, reply->elem[i]);
    if (sn->watched)
        dibs__conn_close(&ln->cn, DIBS_ERR_CLOSED, "");
    else
        watch_sentinel(ln);
}

static void sentinel_up(struct dibs__conn *cn)
{
    struct sentinel_link *ln = cn->user;
    int64_t expires = dibs__now_ms() + ln->to.command_timeout_ms;

    ln->where.write = where_write;
    ln->where.done = where_done;
    ln->others.write = others_write;
    ln->others.done = others_done;
    ln->where.expires = ln->others.expires = expires;
    dibs__conn_send(cn, &ln->where);
    dibs__conn_send(cn, &ln->others);
}

static void sentinel_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct sentinel_link *ln = cn->user;
    struct dibs__sentinels *sn = ln->sn;

    dibs__list_del(&ln->at);
    dibs__timer_stop(sn->lp, &ln->ping);
    if (sn->closing)
        return;
    if (ln == sn->watched) {
        sn->watched = NULL;
        atomic_store(&sn->watches, false);
        dibs__log_disconnect(&sn->events, &ln->to.url, &sn->hush,
                             &(struct dibs__failure){err, why, true});
        place_known(sn, ln, false);
    }
    if (!sn->watched && !sn->hunting && !sn->again.at)
        watch_again(sn);
    if (ln->answered || !sn->hunting)
        return;
    sn->err = err;
    if (err != DIBS_ERR_SERVER)
        no_help(ln, why);
    ask_next(sn);
}

static void sentinel_gone(struct dibs__conn *cn)
{
    struct sentinel_link *ln = cn->user;
    struct dibs__sentinels *sn = ln->sn;

    dibs__url_clear(&ln->to.url);
    dibs__free(ln);
    if (--sn->open == 0 && sn->closing)
        dibs__lifecycle_closed(sn->parts);
}

static bool sentinel_open(struct dibs__sentinels *sn,
                          const struct dibs__url_host *h)
{
    struct sentinel_link *ln = dibs__calloc(1, sizeof *ln);

    if (!ln)
        return false;
    ln->to = sn->server->to;
    ln->to.changes = false;
    if (dibs__url_is_sentinel(&sn->server->to.url, h->name, h->port,
                              &ln->to.url) != DIBS_OK) {
        dibs__free(ln);
        return false;
    }
    ln->sn = sn;
    ln->cn.lp = sn->lp;
    ln->cn.to = &ln->to;
    ln->cn.user = ln;
    ln->cn.up = sentinel_up;
    ln->cn.down = sentinel_down;
    ln->cn.gone = sentinel_gone;
    if (dibs__conn_open(&ln->cn) != DIBS_OK) {
        dibs__url_clear(&ln->to.url);
        dibs__free(ln);
        return false;
    }
    dibs__list_add(&sn->links, &ln->at);
    sn->open++;
    return true;
}

/* ---- hunting ----------------------------------------------------------- */

static bool somebody_thinks(const struct dibs__sentinels *sn)
{
    for (struct dibs__list *l = sn->links.next; l != &sn->links; l = l->next)
        if (!DIBS_OF(l, struct sentinel_link, at)->answered)
            return true;
    return false;
}

static void ask_next(struct dibs__sentinels *sn)
{
    while (sn->next < sn->count && !sentinel_open(sn, &sn->known[sn->next++]))
        snprintf(sn->why, sizeof sn->why, "out of memory");
    if (sn->next < sn->count)
        dibs__timer_set(sn->lp, &sn->hedge, dibs__now_ms() + HEDGE_MS);
    else if (!somebody_thinks(sn))
        hunt_failed(sn);
}

static void hedge_fired(struct dibs__timer *t)
{
    ask_next(DIBS_OF(t, struct dibs__sentinels, hedge));
}

static void start_hunt(struct dibs__sentinels *sn)
{
    if (sn->hunting)
        return;
    sn->hunting = true;
    sn->next = 0;
    sn->err = DIBS_ERR_CONN;
    snprintf(sn->why, sizeof sn->why, "none answered");
    ask_next(sn);
}

static void seek_master(struct dibs__server *s)
{
    struct dibs__sentinels *sn = s->user;

    /* What we were told last led to nobody: another shall be asked first. */
    if (sn->told && sn->told_ups == atomic_load(&s->ups)) {
        struct dibs__url_host h = sn->known[0];
        memmove(sn->known, sn->known + 1, (sn->count - 1) * sizeof h);
        sn->known[sn->count - 1] = h;
    }
    sn->told = false;
    sn->wanted = true;
    start_hunt(sn);
}

static void again_fired(struct dibs__timer *t)
{
    start_hunt(DIBS_OF(t, struct dibs__sentinels, again));
}

/* ---- watching ---------------------------------------------------------- */

/* "service old-host old-port new-host new-port" */
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
    if (n < 5 || strcmp(part[0], sn->server->to.url.service) != 0)
        return;
    int port;
    if (!read_port(part[4], &port) || !host_ok(sn, part[3], port))
        return;
    if (sn->wanted) { /* this is the answer */
        sn->wanted = false;
        dismiss_others(sn, NULL);
    }
    go_there(sn, part[3], port);
}

static void sentinel_said(struct dibs__conn *cn,
                          const struct dibs__reply *reply)
{
    struct sentinel_link *ln = cn->user;
    const struct dibs__reply *verb = dibs__reply_text(reply, 0);
    const struct dibs__reply *text = dibs__reply_text(reply, 2);

    ln->heard = true;
    if (reply->type == REPLY_ERROR)
        dibs__event_tell(&ln->sn->events, &ln->to.url, DIBS_EVENT_WARNING,
                         DIBS_ERR_AUTH, reply->text);
    else if (verb && strcmp(verb->text, "subscribe") == 0)
        ln->sn->backoff_ms = 0;
    else if (verb && text && strcmp(verb->text, "message") == 0)
        master_switched(ln->sn, text->text);
}

/* Straight into the buffer: what comes back is for pushed. False: out of
 * memory, nothing was written. */
static bool send_words(struct dibs__conn *cn, const char *one, const char *two)
{
    size_t before = cn->out.len;

    dibs__buf_array(&cn->out, two ? 2 : 1);
    dibs__buf_arg_text(&cn->out, one);
    if (two)
        dibs__buf_arg_text(&cn->out, two);
    if (!dibs__buf_ok(&cn->out)) {
        dibs__buf_cut(&cn->out, before);
        return false;
    }
    dibs__loop_flush(cn->lp, &cn->flush);
    return true;
}

static void ping_fired(struct dibs__timer *t)
{
    struct sentinel_link *ln = DIBS_OF(t, struct sentinel_link, ping);

    if (!ln->heard) {
        dibs__conn_close(&ln->cn, DIBS_ERR_CONN, "a sentinel fell silent");
        return;
    }
    ln->heard = false;
    send_words(&ln->cn, "PING", NULL);
    dibs__timer_set(ln->sn->lp, &ln->ping, dibs__now_ms() + PING_MS);
}

static void watch_sentinel(struct sentinel_link *ln)
{
    if (!send_words(&ln->cn, "SUBSCRIBE", SWITCH_MASTER)) {
        dibs__conn_close(&ln->cn, DIBS_ERR_NOMEM, "out of memory");
        return;
    }
    ln->sn->watched = ln;
    atomic_store(&ln->sn->watches, true);
    ln->cn.push = sentinel_said;
    ln->heard = true;
    ln->ping.fire = ping_fired;
    dibs__timer_stop(ln->sn->lp, &ln->sn->again);
    dibs__timer_set(ln->sn->lp, &ln->ping, dibs__now_ms() + PING_MS);
}

/* ---- life -------------------------------------------------------------- */

dibs_err dibs__sentinels_init(struct dibs__sentinels *sn)
{
    const struct dibs__url *url = &sn->server->to.url;

    dibs__list_init(&sn->links);
    sn->hedge.fire = hedge_fired;
    sn->again.fire = again_fired;
    for (size_t i = 0; i < url->host_count; i++)
        learn_sentinel(sn, url->hosts[i].name, url->hosts[i].port);
    if (sn->count == 0)
        return DIBS_ERR_NOMEM;
    sn->server->to.changes = true;
    sn->server->seek = seek_master;
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
    dibs__timer_stop(sn->lp, &sn->again);
    sn->watched = NULL;
    sn->wanted = false;
    dismiss_others(sn, NULL);
    if (sn->open == 0)
        dibs__lifecycle_closed(sn->parts);
}

void dibs__sentinels_abandon(struct dibs__sentinels *sn)
{
    for (struct dibs__list *l = sn->links.next; l != &sn->links; l = l->next) {
        int fd = DIBS_OF(l, struct sentinel_link, at)->cn.fd;
        if (fd >= 0)
            close(fd);
    }
}
