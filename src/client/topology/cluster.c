/* SPDX-License-Identifier: MIT
 *
 * cluster.c - many servers, and which of them has which slot.
 *
 * Thread  io; looking up a slot from any.
 * Locks   none: a slot is one atomic pointer, and nodes never go away.
 *
 * How     The map comes from any node that answers CLUSTER SLOTS. It is asked
 *         for at the start, and again when in doubt: a MOVED, a connection
 *         that went down, a "not now"; but at most twice a second. A MOVED
 *         changes its slot at once. After a change, calls and listeners that
 *         wait for a server look where their slot is by now. A map that is
 *         wrong does no harm: the node that is asked in error says so.
 *
 *         Nodes are connected when first needed, and let go when they have no
 *         slots any more and nothing is on their connections.
 *
 *         Before the first map, and for a slot that nobody has, calls wait in
 *         a list of the cluster, and that they do asks for the map. Listeners
 *         are in a tree of their own then.
 *
 *         Whether messages are sharded is found out as Redisson does it: if
 *         PUBSUB SHARDNUMSUB is no error, they are.
 *
 * Trouble Nobody answers: that is told, and asked again with growing pauses.
 *         A map with no slots, from a node that was thrown out, is not taken;
 *         slots that a map leaves out stay where they were. A node that does
 *         not know its own name is where we reached it.
 */
#include "client/topology/cluster.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFRESH_MS     500  /* between two refreshes, at least */
#define CONNECT_MS     1000 /* to ask for the map, if others can be asked */
#define TIDY_MS        5000
#define AGAIN_FIRST_MS 20 /* no map: until the next try */
#define AGAIN_MAX_MS   2000
#define REFUSED_MS     1000

static void ask_somebody(struct dibs__cluster *cl);

static struct dibs__cluster *cluster_of(const struct dibs__slot_map *sl)
{
    return DIBS_OF(sl, struct dibs__cluster, slots);
}

/* ---- nodes ------------------------------------------------------------- */

static void doubt_map(struct dibs__slot_map *sl)
{
    struct dibs__cluster *cl = cluster_of(sl);

    if (sl->closing || cl->doubted)
        return;
    cl->doubted = true;
    if (!cl->refreshing)
        dibs__timer_set(sl->lp, &cl->timer,
                        dibs__max(dibs__now_ms(), cl->not_before));
}

static bool is_at(const void *server, int slot)
{
    const struct dibs__server *s = server;

    return dibs__cluster_server(cluster_of(s->slots), slot) == s;
}

static void node_up_again(struct dibs__server *s)
{
    struct dibs__cluster *cl = cluster_of(s->slots);

    cl->verify(cl, is_at, s);
}

static void node_changed(struct dibs__server *s, const char *key, size_t len)
{
    struct dibs__cluster *cl = cluster_of(s->slots);

    cl->changed(cl, is_at, s, key, len);
}

static void node_set(struct dibs__cluster *cl, struct dibs__node *n)
{
    n->user = cl;
    n->server.events = cl->events;
    n->server.lifecycle = cl->parts;
    n->server.max_idle_conns = cl->max_spares;
    n->server.slots = &cl->slots;
    n->server.up_again = node_up_again;
    n->server.tracking.changed = node_changed;
    n->server.idle = true;
    n->pubsub.flavour = &cl->flavour;
    n->pubsub.slots = &cl->slots;
    dibs__node_init(n, cl->slots.lp);
}

/* The node with this address, made if need be. NULL: no memory, too many, or
 * not an address. */
static struct dibs__node *node_get(struct dibs__cluster *cl, const char *host,
                                   int port)
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
    n->server.to = *cl->to;
    if (dibs__url_is_server(&cl->to->url, host, port, &n->server.to.url) !=
        DIBS_OK) {
        dibs__free(n);
        return NULL;
    }
    node_set(cl, n);
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

    return s ? &dibs__node_of(s)->pubsub : NULL;
}

dibs_err dibs__cluster_listen(struct dibs__cluster *cl, int slot,
                              struct dibs__subscription *sub, const char *name,
                              size_t len)
{
    struct dibs__subscriber *ps = find_pubsub(cl, slot);

    return ps ? dibs__subscribe(ps, sub, name, len)
              : dibs__channels_subscribe(&cl->strays, sub, name, len);
}

/* ---- after a change ---------------------------------------------------- */

static bool has_moved(const void *cluster, int slot)
{
    return ((const struct dibs__cluster *)cluster)->moved[slot];
}

/* Who has a slot now need not have what was in it: a replica may have come too
 * late for the last of it. */
static void verify_moved(struct dibs__cluster *cl)
{
    if (!cl->some_moved)
        return;
    cl->some_moved = false;
    cl->verify(cl, has_moved, cl);
    memset(cl->moved, 0, sizeof cl->moved);
}

static void reroute_now(struct dibs__task *t)
{
    struct dibs__cluster *cl = DIBS_OF(t, struct dibs__cluster, reroute);

    cl->reroute_posted = false;
    if (cl->slots.closing)
        return;
    verify_moved(cl);
    dibs__commands_reroute(&cl->slots.waiting);
    dibs__channels_reroute(&cl->strays, find_pubsub, cl);
    for (unsigned i = 0; i < atomic_load(&cl->count); i++) {
        struct dibs__node *n = cl->nodes[i];
        dibs__commands_reroute(&n->server.waiting);
        dibs__channels_reroute(&n->pubsub.channels, find_pubsub, cl);
        if (!n->in_map)
            dibs__subscriber_idle(&n->pubsub);
    }
}

/* Not at once: the code that found the change is in the middle of something. */
static void reroute_soon(struct dibs__cluster *cl)
{
    if (!cl->reroute_posted)
        dibs__loop_post(cl->slots.lp, &cl->reroute);
    cl->reroute_posted = true;
}

/* True: it was elsewhere. */
static bool slot_set(struct dibs__cluster *cl, int slot, struct dibs__node *n)
{
    const struct dibs__server *was = atomic_load(&cl->has[slot]);

    if (was == &n->server)
        return false;
    cl->moved[slot] = cl->moved[slot] || was;
    cl->some_moved |= cl->moved[slot];
    atomic_store_explicit(&cl->has[slot], &n->server, memory_order_release);
    return true;
}

/* Nodes without slots need no connections. False: one is still in use. */
static bool tidy_nodes(struct dibs__cluster *cl)
{
    bool tidied = true;

    for (unsigned i = 0; i < atomic_load(&cl->count); i++) {
        struct dibs__node *n = cl->nodes[i];
        if (!n->in_map && (n->server.main || n->server.redial.at))
            tidied &= dibs__server_idle_close(&n->server);
    }
    return tidied;
}

/* ---- the map ----------------------------------------------------------- */

/* A node that does not know its own name is where we reached it. */
static struct dibs__node *node_from(struct dibs__cluster *cl,
                                    const struct dibs__reply *r,
                                    const struct dibs__server *from)
{
    const struct dibs__reply *name = dibs__reply_text(r, 0);
    int64_t port;

    if (r->type != REPLY_ARRAY || !dibs__reply_num(r, 1, &port) || port < 1 ||
        port > 65535)
        return NULL;
    bool known = name && name->len > 0 && strcmp(name->text, "?") != 0;
    return node_get(cl, known ? name->text : from->to.url.host, (int)port);
}

/* One range of slots; how many of them. */
static int take_range(struct dibs__cluster *cl, const struct dibs__reply *r,
                      const struct dibs__server *from)
{
    int64_t first, last;

    if (!dibs__reply_num(r, 0, &first) || !dibs__reply_num(r, 1, &last) ||
        first < 0 || last < first || last >= DIBS__SLOTS || r->len < 3)
        return 0;
    struct dibs__node *n = node_from(cl, r->elem[2], from);
    if (!n)
        return 0;
    n->in_map = true;
    for (int64_t slot = first; slot <= last; slot++)
        slot_set(cl, (int)slot, n);
    return (int)(last - first + 1);
}

/* Those that keep a slot, because the map left it out. */
static void keep_others(struct dibs__cluster *cl)
{
    for (int slot = 0; slot < DIBS__SLOTS; slot++) {
        struct dibs__server *s = atomic_load(&cl->has[slot]);
        if (s)
            dibs__node_of(s)->in_map = true;
    }
}

/* False: there was nothing in it. */
static bool take_map(struct dibs__cluster *cl, const struct dibs__reply *r,
                     const struct dibs__server *from)
{
    int covered = 0;

    if (r->type != REPLY_ARRAY || r->len == 0)
        return false;
    for (unsigned i = 0; i < atomic_load(&cl->count); i++)
        cl->nodes[i]->in_map = false;
    for (size_t i = 0; i < r->len && covered <= DIBS__SLOTS; i++)
        covered += take_range(cl, r->elem[i], from);
    keep_others(cl);
    reroute_soon(cl); /* also if nothing changed: a channel may wait for it */
    return covered > 0;
}

/* ---- asking for it ----------------------------------------------------- */

static void refresh_over(struct dibs__cluster *cl)
{
    int64_t now = dibs__now_ms();
    bool tidied = tidy_nodes(cl);

    cl->refreshing = false;
    cl->not_before = now + REFRESH_MS;
    if (cl->doubted)
        dibs__timer_set(cl->slots.lp, &cl->timer, cl->not_before);
    else if (!tidied)
        dibs__timer_set(cl->slots.lp, &cl->timer, now + TIDY_MS);
}

static void refresh_done(struct dibs__cluster *cl)
{
    refresh_over(cl);
    if (!cl->sought)
        return;
    cl->sought = false;
    cl->backoff_ms = 0;
    dibs__lifecycle_opened(cl->parts, DIBS_OK, "");
    dibs__commands_reroute(&cl->slots.waiting);
    /* What is left wants a slot that nobody has. */
    dibs__event_text(&cl->to->url, "no node serves the slot of the name",
                     cl->slots.why);
    dibs__commands_end(&cl->slots.waiting, DIBS_ERR_CONN, false);
}

static void seek_again(struct dibs__cluster *cl, bool refused)
{
    int64_t wait = dibs__backoff(&cl->backoff_ms, AGAIN_FIRST_MS, AGAIN_MAX_MS);

    wait = dibs__max(wait,
                     refused ? dibs__random_in(REFUSED_MS / 2, REFUSED_MS) : 0);
    dibs__timer_set(cl->slots.lp, &cl->again, dibs__now_ms() + wait);
}

static void refresh_failed(struct dibs__cluster *cl)
{
    char why[DIBS__REASON_MAX];
    bool refused = dibs__server_error_is_final(cl->err);
    dibs_err err = refused ? cl->err : DIBS_ERR_CONN;

    refresh_over(cl);
    if (!cl->sought)
        return;
    cl->sought = false;
    snprintf(why, sizeof why, "no node told where the slots are: %.400s",
             cl->why);
    dibs__event_text(&cl->to->url, why, cl->slots.why);
    dibs__log_disconnect(&cl->events, &cl->to->url, &cl->hush,
                         &(struct dibs__failure){err, why, false});
    seek_again(cl, refused);
    dibs__commands_end(&cl->slots.waiting, err, refused);
    dibs__lifecycle_opened(cl->parts, err, cl->slots.why);
}

static void map_explained(struct dibs__command *cmd, dibs_err err,
                          const char *why)
{
    struct dibs__cluster *cl = DIBS_OF(cmd, struct dibs__cluster, call);

    cl->err = err;
    snprintf(cl->why, sizeof cl->why, "%s", why);
}

static void no_slots(struct dibs__cluster *cl)
{
    char why[DIBS__REASON_MAX];

    dibs__event_text(&cl->call.server->to.url, "it knows of no slots", why);
    map_explained(&cl->call, DIBS_ERR_SERVER, why);
}

static void map_answered(struct dibs__command *cmd, dibs_err err,
                         const struct dibs__reply *reply)
{
    struct dibs__cluster *cl = DIBS_OF(cmd, struct dibs__cluster, call);
    bool probing = atomic_load(&cl->flavour) == 0;

    if (cl->slots.closing)
        return;
    if (probing && reply && err != DIBS_ERR_PROTOCOL) {
        atomic_store(&cl->flavour,
                     err == DIBS_OK ? PUBSUB_SHARDED : PUBSUB_CLASSIC);
        dibs__node_of(cmd->server)->asked--; /* now for the map */
        ask_somebody(cl);
    } else if (!probing && err == DIBS_OK && take_map(cl, reply, cmd->server)) {
        refresh_done(cl);
    } else {
        if (err == DIBS_OK)
            no_slots(cl);
        ask_somebody(cl);
    }
}

static void write_question(struct dibs__command *cmd, struct dibs__buf *out,
                           bool whole)
{
    struct dibs__cluster *cl = DIBS_OF(cmd, struct dibs__cluster, call);
    bool probing = atomic_load(&cl->flavour) == 0;

    (void)whole;
    dibs__buf_array(out, probing ? 3 : 2);
    dibs__buf_arg_text(out, probing ? "PUBSUB" : "CLUSTER");
    dibs__buf_arg_text(out, probing ? "SHARDNUMSUB" : "SLOTS");
    if (probing)
        dibs__buf_arg_text(out, "0");
}

/* One that was not asked in this round; one that is connected, if there is
 * one. *left: how many were not, with this one. */
static struct dibs__node *choose_node(struct dibs__cluster *cl, unsigned *left)
{
    unsigned count = atomic_load(&cl->count);
    unsigned from = (unsigned)dibs__random_in(0, count - 1);
    struct dibs__node *best = NULL;

    *left = 0;
    for (unsigned i = 0; i < count; i++) {
        struct dibs__node *n = cl->nodes[(from + i) % count];
        if (n->asked == cl->round)
            continue;
        ++*left;
        if (!best || (dibs__server_is_up(&n->server) &&
                      !dibs__server_is_up(&best->server)))
            best = n;
    }
    return best;
}

/* How long this node may take, if so many are left. One that is connected gets
 * the time that others on that connection have: its end would end theirs. While
 * a program opens the client, there are no others. Then all nodes share the
 * time of that call, as all of them may be silent. */
static int64_t answer_limit(const struct dibs__cluster *cl,
                            const struct dibs__node *n, unsigned left)
{
    const struct dibs__target *to = cl->to;
    int64_t within = to->command_timeout_ms;

    if (!dibs__server_is_up(&n->server))
        within = left > 1 ? dibs__min(to->connect_timeout_ms, CONNECT_MS)
                          : to->connect_timeout_ms;
    if (!cl->parts->opening)
        return within;
    int64_t rest =
        dibs__add(cl->parts->open_by, to->connect_timeout_ms) - dibs__now_ms();
    return dibs__max(1, dibs__min(within, rest / left));
}

static void ask_somebody(struct dibs__cluster *cl)
{
    unsigned left;
    struct dibs__node *n = choose_node(cl, &left);

    if (!n) {
        refresh_failed(cl);
        return;
    }
    n->asked = cl->round;
    int64_t within = answer_limit(cl, n, left);
    cl->call.write = write_question;
    cl->call.done = map_answered;
    cl->call.explain = map_explained;
    cl->call.expects = 0;
    cl->call.no_script = true;
    cl->call.slot = -1;
    cl->call.attempt_ms = within;
    cl->call.deadline = dibs__now_ms() + within;
    cl->call.connect_by = 0;
    dibs__command_start((struct dibs__route){.server = &n->server}, &cl->call);
}

static void refresh_map(struct dibs__cluster *cl)
{
    cl->refreshing = true;
    cl->doubted = false;
    cl->round++;
    ask_somebody(cl);
}

static void map_timed(struct dibs__timer *t)
{
    struct dibs__cluster *cl = DIBS_OF(t, struct dibs__cluster, timer);

    if (cl->refreshing)
        return;
    if (cl->doubted)
        refresh_map(cl);
    else if (!tidy_nodes(cl))
        dibs__timer_set(cl->slots.lp, &cl->timer, dibs__now_ms() + TIDY_MS);
}

static void seek_map(struct dibs__slot_map *sl)
{
    struct dibs__cluster *cl = cluster_of(sl);

    if (cl->sought || cl->again.at)
        return;
    cl->sought = true;
    doubt_map(sl);
}

static void again_timed(struct dibs__timer *t)
{
    seek_map(&DIBS_OF(t, struct dibs__cluster, again)->slots);
}

void dibs__cluster_start(struct dibs__cluster *cl)
{
    seek_map(&cl->slots);
}

/* ---- MOVED and ASK ----------------------------------------------------- */

static struct dibs__server *redirect_by(struct dibs__slot_map *sl,
                                        const struct dibs__server *from,
                                        const char *error, int *slot, bool *ask)
{
    struct dibs__cluster *cl = cluster_of(sl);
    char host[DIBS__URL_HOST_MAX + 1];
    int at, port;

    *ask = strncmp(error, "ASK ", 4) == 0;
    if (!*ask)
        doubt_map(sl);
    if (!dibs__hash_slot_redirect(error, &at, host, &port))
        return NULL;
    if (!host[0] || strcmp(host, "?") == 0)
        snprintf(host, sizeof host, "%s", from->to.url.host);
    struct dibs__node *n = node_get(cl, host, port);
    if (!n)
        return NULL;
    *slot = at;
    if (!*ask) {
        n->in_map = true;
        if (slot_set(cl, at, n))
            reroute_soon(cl);
    }
    return &n->server;
}

/* ---- life -------------------------------------------------------------- */

dibs_err dibs__cluster_init(struct dibs__cluster *cl)
{
    const struct dibs__url *url = &cl->to->url;

    cl->slots.url = url;
    cl->slots.find = find_server;
    cl->slots.redirect = redirect_by;
    cl->slots.doubt = doubt_map;
    cl->slots.wanted = seek_map;
    dibs__list_init(&cl->slots.waiting);
    RB_INIT(&cl->strays);
    cl->timer.fire = map_timed;
    cl->again.fire = again_timed;
    cl->reroute.run = reroute_now;
    for (size_t i = 0; i < url->host_count; i++)
        node_get(cl, url->hosts[i].name, url->hosts[i].port);
    return atomic_load(&cl->count) > 0 ? DIBS_OK : DIBS_ERR_NOMEM;
}

void dibs__cluster_clear(struct dibs__cluster *cl)
{
    for (unsigned i = 0; i < atomic_load(&cl->count); i++) {
        struct dibs__node *n = cl->nodes[i];
        dibs__server_clear(&n->server);
        dibs__url_clear(&n->server.to.url);
        dibs__free(n);
    }
    atomic_store(&cl->count, 0);
}

void dibs__cluster_fail_waiting(struct dibs__cluster *cl, dibs_err err)
{
    dibs__commands_end(&cl->slots.waiting, err, false);
    for (unsigned i = 0; i < atomic_load(&cl->count); i++)
        dibs__node_fail_waiting(cl->nodes[i], err);
}

void dibs__cluster_close(struct dibs__cluster *cl)
{
    unsigned count = atomic_load(&cl->count);

    cl->slots.closing = true;
    dibs__timer_stop(cl->slots.lp, &cl->timer);
    dibs__timer_stop(cl->slots.lp, &cl->again);
    dibs__commands_end(&cl->slots.waiting, DIBS_ERR_CLOSED, true);
    cl->parts->left = 1 + count * DIBS__NODE_PARTS;
    for (unsigned i = 0; i < count; i++)
        dibs__node_close(cl->nodes[i]);
    dibs__lifecycle_closed(cl->parts);
}

void dibs__cluster_abandon(struct dibs__cluster *cl)
{
    for (unsigned i = 0; i < atomic_load(&cl->count); i++)
        dibs__node_abandon(cl->nodes[i]);
}
