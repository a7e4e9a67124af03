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

static void sentinels_ended(struct dibs__sentinels *sn)
{
    dibs__client_part_ended(sn->user);
}

static void cluster_ended(struct dibs__cluster *cl)
{
    dibs__client_part_ended(cl->user);
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
    cl->user = c;
    atomic_init(&cl->flavour, flavours[pubsub]);
    c->cluster = cl;
    return dibs__cluster_init(cl);
}

dibs_err dibs__topology_init(dibs_client *c, const dibs_client_opts *o)
{
    const struct dibs__target *to = &c->server.to;

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
