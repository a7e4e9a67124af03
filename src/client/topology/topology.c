/* SPDX-License-Identifier: MIT
 *
 * topology.c - the servers of a client: a single server, a master that
 * sentinels find, or a cluster.
 *
 * Thread  app before the loop runs and after it ended, else io.
 *
 * With sentinels there is one server and one subscriber, which follow the
 * master. In a cluster each node has its own, and commands and subscriptions
 * are routed by slot.
 */
#include "base/mem.h"
#include "client/client.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_MAX_CONNECTIONS 8

/* ---- identity of a topology -------------------------------------------- */

static int host_order(const struct dibs__url_host *a,
                      const struct dibs__url_host *b)
{
    int order = strcmp(a->name, b->name);

    return order ? order : a->port - b->port;
}

/* Returns the smallest host: independent of their order in the URL. */
static const struct dibs__url_host *first_host(const struct dibs__url *url)
{
    const struct dibs__url_host *first = &url->hosts[0];

    for (size_t i = 1; i < url->host_count; i++)
        if (host_order(&url->hosts[i], first) < 0)
            first = &url->hosts[i];
    return first;
}

void dibs__client_address(const dibs_client *c, char *buf, size_t size)
{
    const struct dibs__url *url = &c->to.url;
    const struct dibs__url_host *h = NULL;

    if (url->mode != URL_SINGLE)
        h = first_host(url);
    if (url->mode == URL_SENTINEL)
        snprintf(buf, size, "%s:%d/%s/%d", h->name, h->port, url->service,
                 url->db);
    else if (url->mode == URL_CLUSTER)
        snprintf(buf, size, "%s:%d/0", h->name, h->port);
    else if (url->unix_socket)
        snprintf(buf, size, "%s/%d", url->path, url->db);
    else
        snprintf(buf, size, "%s:%d/%d", url->host, url->port, url->db);
}

static bool have_common_host(const struct dibs__url *a,
                             const struct dibs__url *b)
{
    for (size_t i = 0; i < a->host_count; i++)
        for (size_t j = 0; j < b->host_count; j++)
            if (host_order(&a->hosts[i], &b->hosts[j]) == 0)
                return true;
    return false;
}

/* A sentinel has one master per service name, and a node belongs to one
 * cluster, so one common host suffices. A master's own address changes and is
 * ignored. */
bool dibs__client_same_server(const dibs_client *a, const dibs_client *b)
{
    const struct dibs__url *x = &a->to.url, *y = &b->to.url;

    if (a == b)
        return true;
    if (x->mode != y->mode || x->unix_socket != y->unix_socket ||
        x->db != y->db)
        return false;
    if (x->mode == URL_SENTINEL)
        return strcmp(x->service, y->service) == 0 && have_common_host(x, y);
    if (x->mode == URL_CLUSTER)
        return have_common_host(x, y);
    if (x->unix_socket)
        return strcmp(x->path, y->path) == 0;
    return x->port == y->port && strcmp(x->host, y->host) == 0;
}

/* ---- the server of a slot ---------------------------------------------- */

struct dibs__server *dibs__client_server(const dibs_client *c, int slot)
{
    return c->cluster ? dibs__cluster_server(c->cluster, slot)
                      : &c->node->server;
}

const char *dibs__client_last_error(const dibs_client *c, int slot)
{
    const struct dibs__server *s = dibs__client_server(c, slot);
    const char *why = s ? s->last_error : c->cluster->slots.last_error;

    return (s && dibs__server_is_up(s)) || !why[0] ? NULL : why;
}

void dibs__client_format(dibs_client *c, int slot, const char *text,
                         char out[DIBS__REASON_MAX])
{
    struct dibs__server *s = dibs__client_server(c, slot);

    if (s)
        dibs__server_format(s, text, out);
    else
        dibs__event_format(&c->to.url, text, out);
}

void dibs__client_log(dibs_client *c, int slot, dibs_event_kind kind,
                      dibs_err err, const char *text)
{
    char full_text[DIBS__REASON_MAX];

    if (!c->on_event)
        return;
    dibs__client_format(c, slot, text, full_text);
    dibs__client_emit_event(c, kind, err, full_text);
}

dibs_err dibs__client_subscribe(dibs_client *c, int slot,
                                struct dibs__subscription *sub,
                                const char *name, size_t len)
{
    return c->cluster
               ? dibs__cluster_subscribe(c->cluster, slot, sub, name, len)
               : dibs__subscribe(&c->node->subscriber, sub, name, len);
}

/* ---- hooks ------------------------------------------------------------- */

static const struct dibs__upper *upper_of(dibs_client *c, void **upper_arg)
{
    dibs__lock(&c->mu);
    const struct dibs__upper *upper = c->lock_layer;
    *upper_arg = c->upper_arg;
    dibs__unlock(&c->mu);
    return upper;
}

static void verify_slots(dibs_client *c, dibs__slot_filter *filter,
                         const void *arg)
{
    void *upper_arg;
    const struct dibs__upper *upper = upper_of(c, &upper_arg);

    if (upper)
        upper->verify_holds(upper_arg, filter, arg);
}

static void key_changed(dibs_client *c, dibs__slot_filter *filter,
                        const void *arg, const char *key, size_t len)
{
    void *upper_arg;
    const struct dibs__upper *upper = upper_of(c, &upper_arg);

    if (upper)
        upper->on_key_changed(upper_arg, filter, arg, key, len);
}

static void cluster_changed(struct dibs__cluster *cl, dibs__slot_filter *filter,
                            const void *arg, const char *key, size_t len)
{
    key_changed(cl->user, filter, arg, key, len);
}

static void cluster_verify(struct dibs__cluster *cl, dibs__slot_filter *filter,
                           const void *arg)
{
    verify_slots(cl->user, filter, arg);
}

static bool every_slot(const void *arg, int slot)
{
    (void)arg;
    (void)slot;
    return true;
}

static void server_connected(struct dibs__server *s)
{
    verify_slots(dibs__node_of(s)->user, every_slot, NULL);
}

static void server_key_changed(struct dibs__server *s, const char *key,
                               size_t len)
{
    key_changed(dibs__node_of(s)->user, every_slot, NULL, key, len);
}

/* ---- life -------------------------------------------------------------- */

/* server.to shares the strings of the client's URL, except the host with
 * sentinels, which is set by dibs__server_found. */
static dibs_err create_node(dibs_client *c, unsigned max_idle_conns)
{
    struct dibs__node *n = dibs__calloc(1, sizeof *n);

    if (!n)
        return DIBS_ERR_NOMEM;
    n->user = c;
    n->server.target = c->to;
    n->server.max_idle_conns = max_idle_conns;
    n->server.events =
        (struct dibs__events){dibs__client_emit_event, c, c->stats};
    n->server.lifecycle = &c->lifecycle;
    n->server.on_connected = server_connected;
    n->server.tracking.changed = server_key_changed;
    dibs__node_init(n, &c->loop);
    c->node = n;
    c->route.server = &n->server;
    return DIBS_OK;
}

static dibs_err create_sentinels(dibs_client *c)
{
    struct dibs__sentinels *sn = dibs__calloc(1, sizeof *sn);

    if (!sn)
        return DIBS_ERR_NOMEM;
    sn->lp = &c->loop;
    sn->server = &c->node->server;
    sn->subscriber = &c->node->subscriber;
    sn->events = c->node->server.events;
    sn->lifecycle = &c->lifecycle;
    c->sentinels = sn;
    return dibs__sentinels_init(sn);
}

static dibs_err create_cluster(dibs_client *c, dibs_pubsub pubsub,
                               unsigned max_idle_conns)
{
    static const unsigned flavours[] = {
        [DIBS_PUBSUB_AUTO] = 0,
        [DIBS_PUBSUB_CLASSIC] = PUBSUB_CLASSIC,
        [DIBS_PUBSUB_SHARDED] = PUBSUB_SHARDED,
        [DIBS_PUBSUB_BOTH] = PUBSUB_CLASSIC | PUBSUB_SHARDED,
    };
    struct dibs__cluster *cl = dibs__calloc(1, sizeof *cl);

    if (!cl)
        return DIBS_ERR_NOMEM;
    cl->slots.lp = &c->loop;
    cl->to = &c->to;
    cl->max_idle_conns = max_idle_conns;
    cl->events = (struct dibs__events){dibs__client_emit_event, c, c->stats};
    cl->lifecycle = &c->lifecycle;
    cl->verify = cluster_verify;
    cl->changed = cluster_changed;
    cl->user = c;
    atomic_init(&cl->pubsub_mode, flavours[pubsub]);
    c->cluster = cl;
    c->route.slots = &cl->slots;
    return dibs__cluster_init(cl);
}

dibs_err dibs__topology_init(dibs_client *c, const dibs_client_opts *o)
{
    unsigned max_idle_conns =
        (o->max_connections ? o->max_connections : DEFAULT_MAX_CONNECTIONS) - 1;

    c->lifecycle.opening = !o->lazy;
    /* A failover may be in progress: do not fail the open call at once. */
    if (c->to.url.mode != URL_SINGLE)
        c->lifecycle.open_deadline =
            dibs__add(dibs__now_ms(), c->to.connect_timeout_ms);
    if (c->to.url.mode == URL_CLUSTER)
        return create_cluster(c, o->pubsub, max_idle_conns);
    dibs_err err = create_node(c, max_idle_conns);
    return err == DIBS_OK && c->to.url.mode == URL_SENTINEL
               ? create_sentinels(c)
               : err;
}

static void node_free(dibs_client *c)
{
    dibs__server_clear(&c->node->server);
    if (c->to.url.mode == URL_SENTINEL)
        dibs__free(c->node->server.target.url.host);
    dibs__free(c->node);
}

void dibs__topology_clear(dibs_client *c)
{
    if (c->sentinels)
        dibs__sentinels_clear(c->sentinels);
    if (c->cluster)
        dibs__cluster_clear(c->cluster);
    if (c->node)
        node_free(c);
    dibs__free(c->sentinels);
    dibs__free(c->cluster);
}

/* Time limit of the open call, for the queries of all sentinels or nodes and
 * the connection together. */
static void open_timed_out(struct dibs__timer *t)
{
    dibs_client *c = DIBS_OF(t, dibs_client, lifecycle.limit);
    const char *why = dibs__client_last_error(c, 0);
    char text[DIBS__REASON_MAX];

    dibs__event_format(&c->to.url, "no answer in time", text);
    dibs__lifecycle_opened(&c->lifecycle, DIBS_ERR_CONN, why ? why : text);
}

void dibs__topology_start(dibs_client *c)
{
    c->lifecycle.lp = &c->loop;
    c->lifecycle.limit.fire = open_timed_out;
    if (c->lifecycle.opening && c->to.url.mode != URL_SINGLE)
        dibs__timer_set(
            &c->loop, &c->lifecycle.limit,
            dibs__add(c->lifecycle.open_deadline, c->to.connect_timeout_ms));
    if (c->cluster)
        dibs__cluster_start(c->cluster);
    else
        dibs__server_start(&c->node->server);
}

void dibs__topology_close(dibs_client *c)
{
    c->closing_conns = true;
    c->lifecycle.open_components =
        DIBS__NODE_CLOSE_COUNT + (c->sentinels ? 1 : 0);
    if (c->sentinels)
        dibs__sentinels_close(c->sentinels);
    if (c->cluster)
        dibs__cluster_close(c->cluster);
    else
        dibs__node_close(c->node);
}

void dibs__topology_abandon(dibs_client *c)
{
    if (c->sentinels)
        dibs__sentinels_abandon(c->sentinels);
    if (c->cluster)
        dibs__cluster_abandon(c->cluster);
    else
        dibs__node_abandon(c->node);
}

void dibs__topology_fail_waiting(dibs_client *c, dibs_err err)
{
    if (c->cluster)
        dibs__cluster_fail_waiting(c->cluster, err);
    else
        dibs__node_fail_waiting(c->node, err);
}
