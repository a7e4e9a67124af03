/* SPDX-License-Identifier: MIT
 *
 * cluster.c - the nodes of a cluster and its slot map.
 *
 * Thread  io; dibs__cluster_server and _nth: any.
 * Locks   none: a slot is one atomic pointer, and nodes are freed only with the
 *         client.
 *
 * How     The map is read with CLUSTER SLOTS from any node that answers: at the
 *         start, and when it may be stale (MOVED, a lost connection, a
 *         transient error), at most twice a second. MOVED updates its slot at
 *         once. After a change, waiting commands and subscriptions are routed
 *         again. A stale map is harmless: the wrong node replies MOVED.
 *
 *         A node is connected when a command needs it. Its connections are
 *         closed when it has no slots any more and no command in flight.
 *
 *         Before the first map, and for a slot without a server, commands wait
 *         in slots.waiting, which triggers a refresh; subscriptions wait in
 *         unrouted_channels.
 *
 *         A refresh is a round: each node is queried at most once, until one
 *         returns the map. The first query probes for sharded pub/sub, as
 *         Redisson does: it is available if PUBSUB SHARDNUMSUB succeeds.
 *
 * Errors  If no node answers, that is logged, and retried with back-off. A map
 *         without slots, from a node that was removed from the cluster, is
 *         ignored; slots that a map omits keep their server.
 */
#include "client/topology/cluster.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFRESH_MIN_MS   500  /* between two refreshes */
#define QUERY_CONNECT_MS 1000 /* connect timeout if other nodes are left */
#define CLOSE_UNUSED_MS  5000 /* until the next close_unused_nodes */
#define RETRY_FIRST_MS   20   /* back-off while there is no map */
#define RETRY_MAX_MS     2000
#define REFUSED_DELAY_MS 1000 /* at most, after an error that is final */

static void query_next_node(struct dibs__cluster *cl);

static struct dibs__cluster *cluster_of(const struct dibs__slot_map *sl)
{
    return DIBS_OF(sl, struct dibs__cluster, slots);
}

/* ---- nodes ------------------------------------------------------------- */

static void mark_map_stale(struct dibs__slot_map *sl)
{
    struct dibs__cluster *cl = cluster_of(sl);

    if (sl->closing || cl->refresh_needed)
        return;
    cl->refresh_needed = true;
    if (!cl->refreshing)
        dibs__timer_set(sl->lp, &cl->refresh_timer,
                        dibs__max(dibs__now_ms(), cl->next_refresh_ms));
}

static bool slot_is_on(const void *server, int slot)
{
    const struct dibs__server *s = server;

    return dibs__cluster_server(cluster_of(s->slots), slot) == s;
}

static void node_connected(struct dibs__server *s)
{
    struct dibs__cluster *cl = cluster_of(s->slots);

    cl->verify(cl, slot_is_on, s);
}

static void node_key_changed(struct dibs__server *s, const char *key,
                             size_t len)
{
    struct dibs__cluster *cl = cluster_of(s->slots);

    cl->changed(cl, slot_is_on, s, key, len);
}

static void configure_node(struct dibs__cluster *cl, struct dibs__node *n)
{
    n->user = cl;
    n->server.events = cl->events;
    n->server.lifecycle = cl->lifecycle;
    n->server.max_idle_conns = cl->max_idle_conns;
    n->server.slots = &cl->slots;
    n->server.on_connected = node_connected;
    n->server.tracking.changed = node_key_changed;
    n->server.idle = true;
    n->subscriber.pubsub_mode = &cl->pubsub_mode;
    n->subscriber.slots = &cl->slots;
    dibs__node_init(n, cl->slots.lp);
}

/* Returns the node with this address, adds it if it is new. NULL: out of
 * memory, too many nodes, or an invalid address. */
static struct dibs__node *find_or_add_node(struct dibs__cluster *cl,
                                           const char *host, int port)
{
    unsigned count = atomic_load(&cl->count);

    for (unsigned i = 0; i < count; i++)
        if (dibs__server_at(&cl->nodes[i]->server, host, port))
            return cl->nodes[i];
    if (count == DIBS__NODES_MAX || cl->slots.closing)
        return NULL;
    struct dibs__node *n = dibs__calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->server.target = *cl->to;
    if (dibs__url_for_server(&cl->to->url, host, port, &n->server.target.url) !=
        DIBS_OK) {
        dibs__free(n);
        return NULL;
    }
    configure_node(cl, n);
    cl->nodes[count] = n;
    atomic_store(&cl->count, count + 1);
    return n;
}

struct dibs__server *dibs__cluster_nth(struct dibs__cluster *cl, unsigned i)
{
    return i < atomic_load(&cl->count) ? &cl->nodes[i]->server : NULL;
}

bool dibs__cluster_serves(struct dibs__cluster *cl,
                          const struct dibs__server *s)
{
    for (int slot = 0; slot < DIBS__SLOTS; slot++)
        if (dibs__cluster_server(cl, slot) == s)
            return true;
    return false;
}

static struct dibs__server *find_server(struct dibs__slot_map *sl, int slot)
{
    return dibs__cluster_server(cluster_of(sl), slot);
}

static struct dibs__subscriber *find_pubsub(void *cluster, int slot)
{
    struct dibs__server *s = dibs__cluster_server(cluster, slot);

    return s ? &dibs__node_of(s)->subscriber : NULL;
}

dibs_err dibs__cluster_subscribe(struct dibs__cluster *cl, int slot,
                                 struct dibs__subscription *sub,
                                 const char *name, size_t len)
{
    struct dibs__subscriber *ps = find_pubsub(cl, slot);

    return ps ? dibs__subscribe(ps, sub, name, len)
              : dibs__channels_subscribe(&cl->unrouted_channels, sub, name,
                                         len);
}

/* ---- after a change of the map ----------------------------------------- */

static bool has_moved(const void *cluster, int slot)
{
    return ((const struct dibs__cluster *)cluster)->moved[slot];
}

/* Verifies the locks held in slots that have another server now: if that is a
 * promoted replica, it may lack the latest writes. */
static void verify_moved(struct dibs__cluster *cl)
{
    if (!cl->any_moved)
        return;
    cl->any_moved = false;
    cl->verify(cl, has_moved, cl);
    memset(cl->moved, 0, sizeof cl->moved);
}

static void reroute_run(struct dibs__task *t)
{
    struct dibs__cluster *cl = DIBS_OF(t, struct dibs__cluster, reroute);

    cl->reroute_posted = false;
    if (cl->slots.closing)
        return;
    verify_moved(cl);
    dibs__commands_reroute(&cl->slots.waiting);
    dibs__channels_reroute(&cl->unrouted_channels, find_pubsub, cl);
    for (unsigned i = 0; i < atomic_load(&cl->count); i++) {
        struct dibs__node *n = cl->nodes[i];
        dibs__commands_reroute(&n->server.waiting);
        dibs__channels_reroute(&n->subscriber.channels, find_pubsub, cl);
        if (!n->in_map)
            dibs__subscriber_close_if_unused(&n->subscriber);
    }
}

/* Posted, because the caller may be iterating over a list of commands. */
static void post_reroute(struct dibs__cluster *cl)
{
    if (!cl->reroute_posted)
        dibs__loop_post(cl->slots.lp, &cl->reroute);
    cl->reroute_posted = true;
}

/* Returns true if the slot had another server, or none. */
static bool set_slot_server(struct dibs__cluster *cl, int slot,
                            struct dibs__node *n)
{
    const struct dibs__server *old_server = atomic_load(&cl->slot_server[slot]);

    if (old_server == &n->server)
        return false;
    cl->moved[slot] = cl->moved[slot] || old_server;
    cl->any_moved |= cl->moved[slot];
    atomic_store_explicit(&cl->slot_server[slot], &n->server,
                          memory_order_release);
    return true;
}

/* Closes the connections of nodes without slots. Returns false if one of them
 * is still in use. */
static bool close_unused_nodes(struct dibs__cluster *cl)
{
    bool all_closed = true;

    for (unsigned i = 0; i < atomic_load(&cl->count); i++) {
        struct dibs__node *n = cl->nodes[i];
        if (!n->in_map && (n->server.main || n->server.redial.at))
            all_closed &= dibs__server_idle_close(&n->server);
    }
    return all_closed;
}

/* ---- the map ----------------------------------------------------------- */

/* Returns the master in an entry of CLUSTER SLOTS. Its host is "" or "?" if the
 * node does not know its own address: then it has the host of `from`. */
static struct dibs__node *range_master(struct dibs__cluster *cl,
                                       const struct dibs__reply *r,
                                       const struct dibs__server *from)
{
    const struct dibs__reply *name = dibs__reply_text(r, 0);
    int64_t port;

    if (r->type != REPLY_ARRAY || !dibs__reply_num(r, 1, &port) || port < 1 ||
        port > 65535)
        return NULL;
    bool has_host = name && name->len > 0 && strcmp(name->text, "?") != 0;
    return find_or_add_node(cl, has_host ? name->text : from->target.url.host,
                            (int)port);
}

/* Applies one entry of CLUSTER SLOTS. Returns the number of slots in it. */
static int apply_range(struct dibs__cluster *cl, const struct dibs__reply *r,
                       const struct dibs__server *from)
{
    int64_t first, last;

    if (!dibs__reply_num(r, 0, &first) || !dibs__reply_num(r, 1, &last) ||
        first < 0 || last < first || last >= DIBS__SLOTS || r->len < 3)
        return 0;
    struct dibs__node *n = range_master(cl, r->elem[2], from);
    if (!n)
        return 0;
    n->in_map = true;
    for (int64_t slot = first; slot <= last; slot++)
        set_slot_server(cl, (int)slot, n);
    return (int)(last - first + 1);
}

/* Slots that the reply omits keep their server, which stays in the map. */
static void mark_remaining_nodes(struct dibs__cluster *cl)
{
    for (int slot = 0; slot < DIBS__SLOTS; slot++) {
        struct dibs__server *s = atomic_load(&cl->slot_server[slot]);
        if (s)
            dibs__node_of(s)->in_map = true;
    }
}

/* Returns false if the reply has no slots. */
static bool apply_map(struct dibs__cluster *cl, const struct dibs__reply *r,
                      const struct dibs__server *from)
{
    int covered = 0;

    if (r->type != REPLY_ARRAY || r->len == 0)
        return false;
    for (unsigned i = 0; i < atomic_load(&cl->count); i++)
        cl->nodes[i]->in_map = false;
    for (size_t i = 0; i < r->len && covered <= DIBS__SLOTS; i++)
        covered += apply_range(cl, r->elem[i], from);
    mark_remaining_nodes(cl);
    post_reroute(cl); /* also without a change: unrouted channels may wait */
    return covered > 0;
}

/* ---- refresh of the map ------------------------------------------------ */

static void end_refresh(struct dibs__cluster *cl)
{
    int64_t now = dibs__now_ms();
    bool all_closed = close_unused_nodes(cl);

    cl->refreshing = false;
    cl->next_refresh_ms = now + REFRESH_MIN_MS;
    if (cl->refresh_needed)
        dibs__timer_set(cl->slots.lp, &cl->refresh_timer, cl->next_refresh_ms);
    else if (!all_closed)
        dibs__timer_set(cl->slots.lp, &cl->refresh_timer,
                        now + CLOSE_UNUSED_MS);
}

static void refresh_succeeded(struct dibs__cluster *cl)
{
    end_refresh(cl);
    if (!cl->map_needed)
        return;
    cl->map_needed = false;
    cl->backoff_ms = 0;
    dibs__lifecycle_opened(cl->lifecycle, DIBS_OK, "");
    dibs__commands_reroute(&cl->slots.waiting);
    /* The commands left have a slot without a server. */
    dibs__event_format(&cl->to->url, "no node serves the slot of the name",
                       cl->slots.last_error);
    dibs__commands_fail_list(&cl->slots.waiting, DIBS_ERR_CONN, false);
}

static void retry_with_backoff(struct dibs__cluster *cl, bool refused)
{
    int64_t wait = dibs__backoff(&cl->backoff_ms, RETRY_FIRST_MS, RETRY_MAX_MS);

    wait = dibs__max(
        wait,
        refused ? dibs__random_in(REFUSED_DELAY_MS / 2, REFUSED_DELAY_MS) : 0);
    dibs__timer_set(cl->slots.lp, &cl->retry_timer, dibs__now_ms() + wait);
}

static void refresh_failed(struct dibs__cluster *cl)
{
    char why[DIBS__REASON_MAX];
    bool refused = dibs__server_error_is_final(cl->err);
    dibs_err err = refused ? cl->err : DIBS_ERR_CONN;

    end_refresh(cl);
    if (!cl->map_needed)
        return;
    cl->map_needed = false;
    snprintf(why, sizeof why, "no node returned the slot map: %.400s", cl->why);
    dibs__event_format(&cl->to->url, why, cl->slots.last_error);
    dibs__log_disconnect(&cl->events, &cl->to->url, &cl->throttle,
                         &(struct dibs__failure){err, why, false});
    retry_with_backoff(cl, refused);
    dibs__commands_fail_list(&cl->slots.waiting, err, refused);
    dibs__lifecycle_opened(cl->lifecycle, err, cl->slots.last_error);
}

static void query_explain(struct dibs__command *cmd, dibs_err err,
                          const char *why)
{
    struct dibs__cluster *cl = DIBS_OF(cmd, struct dibs__cluster, map_cmd);

    cl->err = err;
    snprintf(cl->why, sizeof cl->why, "%s", why);
}

static void set_no_slots_error(struct dibs__cluster *cl)
{
    char why[DIBS__REASON_MAX];

    dibs__event_format(&cl->map_cmd.server->target.url,
                       "CLUSTER SLOTS is empty", why);
    query_explain(&cl->map_cmd, DIBS_ERR_SERVER, why);
}

static void query_done(struct dibs__command *cmd, dibs_err err,
                       const struct dibs__reply *reply)
{
    struct dibs__cluster *cl = DIBS_OF(cmd, struct dibs__cluster, map_cmd);
    bool probing = atomic_load(&cl->pubsub_mode) == 0;

    if (cl->slots.closing)
        return;
    if (probing && reply && err != DIBS_ERR_PROTOCOL) {
        atomic_store(&cl->pubsub_mode,
                     err == DIBS_OK ? PUBSUB_SHARDED : PUBSUB_CLASSIC);
        /* Query the same node again, now for the map. */
        dibs__node_of(cmd->server)->map_round--;
        query_next_node(cl);
    } else if (!probing && err == DIBS_OK &&
               apply_map(cl, reply, cmd->server)) {
        refresh_succeeded(cl);
    } else {
        if (err == DIBS_OK)
            set_no_slots_error(cl);
        query_next_node(cl);
    }
}

static void query_write(struct dibs__command *cmd, struct dibs__buf *out,
                        bool whole)
{
    struct dibs__cluster *cl = DIBS_OF(cmd, struct dibs__cluster, map_cmd);
    bool probing = atomic_load(&cl->pubsub_mode) == 0;

    (void)whole;
    dibs__buf_array(out, probing ? 3 : 2);
    dibs__buf_arg_text(out, probing ? "PUBSUB" : "CLUSTER");
    dibs__buf_arg_text(out, probing ? "SHARDNUMSUB" : "SLOTS");
    if (probing)
        dibs__buf_arg_text(out, "0");
}

/* Returns a node that was not queried in this round, a connected one if
 * possible; NULL if there is none. *left: number of such nodes. */
static struct dibs__node *pick_node(struct dibs__cluster *cl, unsigned *left)
{
    unsigned count = atomic_load(&cl->count);
    unsigned start = (unsigned)dibs__random_in(0, count - 1);
    struct dibs__node *best = NULL;

    *left = 0;
    for (unsigned i = 0; i < count; i++) {
        struct dibs__node *n = cl->nodes[(start + i) % count];
        if (n->map_round == cl->refresh_round)
            continue;
        ++*left;
        if (!best || (dibs__server_is_up(&n->server) &&
                      !dibs__server_is_up(&best->server)))
            best = n;
    }
    return best;
}

/* Returns the time limit for querying node `n`; `left` nodes are left in this
 * round. A timeout closes the connection, also for the commands of others on
 * it, so a connected node gets the full command timeout. While the client is
 * being opened there are no other commands: then the nodes left share the time
 * limit of the open call, because none of them may answer. */
static int64_t query_timeout(const struct dibs__cluster *cl,
                             const struct dibs__node *n, unsigned left)
{
    const struct dibs__target *to = cl->to;
    int64_t timeout_ms = to->command_timeout_ms;

    if (!dibs__server_is_up(&n->server))
        timeout_ms = left > 1
                         ? dibs__min(to->connect_timeout_ms, QUERY_CONNECT_MS)
                         : to->connect_timeout_ms;
    if (!cl->lifecycle->opening)
        return timeout_ms;
    int64_t remaining =
        dibs__add(cl->lifecycle->open_deadline, to->connect_timeout_ms) -
        dibs__now_ms();
    return dibs__max(1, dibs__min(timeout_ms, remaining / left));
}

static void query_next_node(struct dibs__cluster *cl)
{
    unsigned left;
    struct dibs__node *n = pick_node(cl, &left);

    if (!n) {
        refresh_failed(cl);
        return;
    }
    n->map_round = cl->refresh_round;
    int64_t timeout_ms = query_timeout(cl, n, left);
    cl->map_cmd.write = query_write;
    cl->map_cmd.on_reply = query_done;
    cl->map_cmd.on_error_text = query_explain;
    cl->map_cmd.expects = 0;
    cl->map_cmd.no_script = true;
    cl->map_cmd.slot = -1;
    cl->map_cmd.attempt_ms = timeout_ms;
    cl->map_cmd.deadline = dibs__now_ms() + timeout_ms;
    cl->map_cmd.connect_by = 0;
    dibs__command_start((struct dibs__route){.server = &n->server},
                        &cl->map_cmd);
}

static void refresh_map(struct dibs__cluster *cl)
{
    cl->refreshing = true;
    cl->refresh_needed = false;
    cl->refresh_round++;
    query_next_node(cl);
}

static void refresh_fired(struct dibs__timer *t)
{
    struct dibs__cluster *cl = DIBS_OF(t, struct dibs__cluster, refresh_timer);

    if (cl->refreshing)
        return;
    if (cl->refresh_needed)
        refresh_map(cl);
    else if (!close_unused_nodes(cl))
        dibs__timer_set(cl->slots.lp, &cl->refresh_timer,
                        dibs__now_ms() + CLOSE_UNUSED_MS);
}

static void request_map(struct dibs__slot_map *sl)
{
    struct dibs__cluster *cl = cluster_of(sl);

    if (cl->map_needed || cl->retry_timer.at)
        return;
    cl->map_needed = true;
    mark_map_stale(sl);
}

static void retry_fired(struct dibs__timer *t)
{
    request_map(&DIBS_OF(t, struct dibs__cluster, retry_timer)->slots);
}

void dibs__cluster_start(struct dibs__cluster *cl)
{
    request_map(&cl->slots);
}

/* ---- MOVED and ASK ----------------------------------------------------- */

static struct dibs__server *handle_redirect(struct dibs__slot_map *sl,
                                            const struct dibs__server *from,
                                            const char *error, int *slot,
                                            bool *ask)
{
    struct dibs__cluster *cl = cluster_of(sl);
    char host[DIBS__URL_HOST_MAX + 1];
    int at, port;

    *ask = strncmp(error, "ASK ", 4) == 0;
    if (!*ask)
        mark_map_stale(sl);
    if (!dibs__hash_slot_redirect(error, &at, host, &port))
        return NULL;
    if (!host[0] || strcmp(host, "?") == 0)
        snprintf(host, sizeof host, "%s", from->target.url.host);
    struct dibs__node *n = find_or_add_node(cl, host, port);
    if (!n)
        return NULL;
    *slot = at;
    if (!*ask) {
        n->in_map = true;
        if (set_slot_server(cl, at, n))
            post_reroute(cl);
    }
    return &n->server;
}

/* ---- life -------------------------------------------------------------- */

dibs_err dibs__cluster_init(struct dibs__cluster *cl)
{
    const struct dibs__url *url = &cl->to->url;

    cl->slots.url = url;
    cl->slots.find_server = find_server;
    cl->slots.redirect = handle_redirect;
    cl->slots.mark_stale = mark_map_stale;
    cl->slots.need_map = request_map;
    dibs__list_init(&cl->slots.waiting);
    RB_INIT(&cl->unrouted_channels);
    cl->refresh_timer.fire = refresh_fired;
    cl->retry_timer.fire = retry_fired;
    cl->reroute.run = reroute_run;
    for (size_t i = 0; i < url->host_count; i++)
        find_or_add_node(cl, url->hosts[i].name, url->hosts[i].port);
    return atomic_load(&cl->count) > 0 ? DIBS_OK : DIBS_ERR_NOMEM;
}

void dibs__cluster_clear(struct dibs__cluster *cl)
{
    for (unsigned i = 0; i < atomic_load(&cl->count); i++) {
        struct dibs__node *n = cl->nodes[i];
        dibs__server_clear(&n->server);
        dibs__url_clear(&n->server.target.url);
        dibs__free(n);
    }
    atomic_store(&cl->count, 0);
}

void dibs__cluster_fail_waiting(struct dibs__cluster *cl, dibs_err err)
{
    dibs__commands_fail_list(&cl->slots.waiting, err, false);
    for (unsigned i = 0; i < atomic_load(&cl->count); i++)
        dibs__node_fail_waiting(cl->nodes[i], err);
}

void dibs__cluster_close(struct dibs__cluster *cl)
{
    unsigned count = atomic_load(&cl->count);

    cl->slots.closing = true;
    dibs__timer_stop(cl->slots.lp, &cl->refresh_timer);
    dibs__timer_stop(cl->slots.lp, &cl->retry_timer);
    dibs__commands_fail_list(&cl->slots.waiting, DIBS_ERR_CLOSED, true);
    cl->lifecycle->open_components = 1 + count * DIBS__NODE_CLOSE_COUNT;
    for (unsigned i = 0; i < count; i++)
        dibs__node_close(cl->nodes[i]);
    dibs__lifecycle_closed(cl->lifecycle);
}

void dibs__cluster_abandon(struct dibs__cluster *cl)
{
    for (unsigned i = 0; i < atomic_load(&cl->count); i++)
        dibs__node_abandon(cl->nodes[i]);
}
