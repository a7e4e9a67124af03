/* SPDX-License-Identifier: MIT
 *
 * topology.c - what a client has beside its one server: sentinels who tell
 * where that is, or the nodes of a cluster.
 *
 * Thread  app before the loop runs and after it ended, else io.
 *
 * With sentinels there is still one server and one subscription connection;
 * they go where the master goes. In a cluster the client's own server and
 * subscriptions stand for the cluster as a whole, and the nodes have theirs.
 */
#include "base/mem.h"
#include "client/client.h"

#include <stdio.h>
#include <string.h>

/* ---- which one it is --------------------------------------------------- */

static int host_order(const struct dibs__url_host *a,
                      const struct dibs__url_host *b)
{
    int order = strcmp(a->name, b->name);

    return order ? order : a->port - b->port;
}

/* The first in order, in which order they may be given. */
static const struct dibs__url_host *first_host(const struct dibs__url *url)
{
    const struct dibs__url_host *first = &url->hosts[0];

    for (size_t i = 1; i < url->host_count; i++)
        if (host_order(&url->hosts[i], first) < 0)
            first = &url->hosts[i];
    return first;
}

void dibs__client_where(const dibs_client *c, char *buf, size_t size)
{
    const struct dibs__url *url = &c->server.to.url;
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

static bool share_a_host(const struct dibs__url *a, const struct dibs__url *b)
{
    for (size_t i = 0; i < a->host_count; i++)
        for (size_t j = 0; j < b->host_count; j++)
            if (host_order(&a->hosts[i], &b->hosts[j]) == 0)
                return true;
    return false;
}

/* A sentinel knows one master by a name, and a node is in one cluster. The host
 * of a sentinel's master changes, and is not looked at. */
bool dibs__client_same(const dibs_client *a, const dibs_client *b)
{
    const struct dibs__url *x = &a->server.to.url, *y = &b->server.to.url;

    if (a == b)
        return true;
    if (x->mode != y->mode || x->unix_socket != y->unix_socket ||
        x->db != y->db)
        return false;
    if (x->mode == URL_SENTINEL)
        return strcmp(x->service, y->service) == 0 && share_a_host(x, y);
    if (x->mode == URL_CLUSTER)
        return share_a_host(x, y);
    if (x->unix_socket)
        return strcmp(x->path, y->path) == 0;
    return x->port == y->port && strcmp(x->host, y->host) == 0;
}

/* ---- life -------------------------------------------------------------- */

static void sentinels_ended(struct dibs__sentinels *sn)
{
    dibs__client_part_ended(sn->user);
}

static void cluster_ended(struct dibs__cluster *cl)
{
    dibs__client_part_ended(cl->user);
}

static void cluster_verify(struct dibs__cluster *cl, dibs__meant *meant,
                           const void *arg)
{
    dibs__client_verify(cl->user, meant, arg);
}

static bool is_meant(const void *arg, int slot)
{
    (void)arg;
    (void)slot;
    return true;
}

static void server_up_again(struct dibs__server *s)
{
    dibs__client_verify(DIBS_OF(s, dibs_client, server), is_meant, NULL);
}

void dibs__client_verify(dibs_client *c, dibs__meant *meant, const void *arg)
{
    dibs__lock(&c->mu);
    const struct dibs__upper *upper = c->upper;
    void *upper_arg = c->upper_arg;
    dibs__unlock(&c->mu);
    if (upper)
        upper->verify(upper_arg, meant, arg);
}

static dibs_err sentinels_new(dibs_client *c)
{
    struct dibs__sentinels *sn = dibs__calloc(1, sizeof *sn);

    if (!sn)
        return DIBS_ERR_NOMEM;
    sn->lp = &c->loop;
    sn->server = &c->server;
    sn->pubsub = &c->pubsub;
    sn->events = c->server.events;
    sn->ended = sentinels_ended;
    sn->user = c;
    c->sentinels = sn;
    return dibs__sentinels_init(sn);
}

static dibs_err cluster_new(dibs_client *c, dibs_pubsub pubsub)
{
    static const unsigned flavours[] = {
        [DIBS_PUBSUB_AUTO] = 0,
        [DIBS_PUBSUB_CLASSIC] = FLAVOUR_CLASSIC,
        [DIBS_PUBSUB_SHARDED] = FLAVOUR_SHARDED,
        [DIBS_PUBSUB_BOTH] = FLAVOUR_CLASSIC | FLAVOUR_SHARDED,
    };
    struct dibs__cluster *cl = dibs__calloc(1, sizeof *cl);

    if (!cl)
        return DIBS_ERR_NOMEM;
    cl->lp = &c->loop;
    cl->whole = &c->server;
    cl->nowhere = &c->pubsub;
    cl->events = c->server.events;
    cl->ended = cluster_ended;
    cl->verify = cluster_verify;
    cl->user = c;
    atomic_init(&cl->flavour, flavours[pubsub]);
    c->cluster = cl;
    return dibs__cluster_init(cl);
}

dibs_err dibs__topology_init(dibs_client *c, const dibs_client_opts *o)
{
    const struct dibs__target *to = &c->server.to;

    c->server.up_again = server_up_again; /* a cluster's is never up */
    if (to->url.mode == URL_SINGLE)
        return DIBS_OK;
    /* A master may be on its way: a failure is not the end at once. */
    c->server.came_by = dibs__add(dibs__now_ms(), to->connect_timeout_ms);
    return to->url.mode == URL_SENTINEL ? sentinels_new(c)
                                        : cluster_new(c, o->pubsub);
}

void dibs__topology_clear(dibs_client *c)
{
    if (c->sentinels)
        dibs__sentinels_clear(c->sentinels);
    if (c->cluster)
        dibs__cluster_clear(c->cluster);
    dibs__free(c->sentinels);
    dibs__free(c->cluster);
}

unsigned dibs__topology_parts(const dibs_client *c)
{
    return (c->sentinels ? 1u : 0u) + (c->cluster ? 1u : 0u);
}

void dibs__topology_close(dibs_client *c)
{
    if (c->sentinels)
        dibs__sentinels_close(c->sentinels);
    if (c->cluster)
        dibs__cluster_close(c->cluster);
}

void dibs__topology_abandon(dibs_client *c)
{
    if (c->sentinels)
        dibs__sentinels_abandon(c->sentinels);
    if (c->cluster)
        dibs__cluster_abandon(c->cluster);
}

void dibs__topology_fail_waiting(dibs_client *c, dibs_err err)
{
    struct dibs__server *s;

    dibs__calls_fail(&c->server, err, false);
    dibs__acks_end(&c->server);
    for (unsigned i = 0; c->cluster && (s = dibs__cluster_nth(c->cluster, i));
         i++) {
        dibs__calls_fail(s, err, false);
        dibs__acks_end(s);
    }
}
