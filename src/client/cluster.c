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
 *         Before the first map, and for a slot that nobody has, calls wait at
 *         `whole`, a server that is never dialed: its seek asks for the map.
 *
 *         Whether messages are sharded is found out as Redisson does it: if
 *         PUBSUB SHARDNUMSUB is no error, they are.
 *
 * Trouble Nobody answers: `whole` is told, and asks again with growing pauses.
 *         A map with no slots, from a node that was thrown out, is not taken;
 *         slots that a map leaves out stay where they were. A node that does
 *         not know its own name is where we reached it.
 */
#include "client/cluster.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFRESH_MS 500  /* between two refreshes, at least */
#define CONNECT_MS 1000 /* to ask for the map, if others can be asked */
#define TIDY_MS    5000

static void ask_somebody(struct dibs__cluster *cl);

static struct dibs__node *node_of(const struct dibs__server *s)
{
    return DIBS_OF(s, struct dibs__node, server);
}

/* ---- nodes ------------------------------------------------------------- */

static void part_ended(struct dibs__cluster *cl)
{
    if (--cl->parts == 0)
        cl->ended(cl);
}

static void server_ended(struct dibs__server *s)
{
    part_ended(node_of(s)->cl);
}

static void pubsub_ended(struct dibs__pubsub *ps)
{
    part_ended(DIBS_OF(ps, struct dibs__node, pubsub)->cl);
}

static void trouble(struct dibs__server *s)
{
    dibs__cluster_doubt(s->cluster);
}

static bool is_at(const void *server, int slot)
{
    const struct dibs__server *s = server;

    return dibs__cluster_server(s->cluster, slot) == s;
}

static void up_again(struct dibs__server *s)
{
    s->cluster->verify(s->cluster, is_at, s);
}

static void node_init(struct dibs__cluster *cl, struct dibs__node *n)
{
    n->cl = cl;
    n->server.lp = n->pubsub.lp = cl->lp;
    n->server.events = n->pubsub.events = cl->events;
    n->server.max_spares = cl->whole->max_spares;
    n->server.cluster = n->pubsub.cluster = cl;
    n->server.ended = server_ended;
    n->server.trouble = trouble;
    n->server.up_again = up_again;
    n->server.asleep = true;
    n->pubsub.to = &n->server.to;
    n->pubsub.ended = pubsub_ended;
    dibs__server_init(&n->server);
    dibs__pubsub_init(&n->pubsub);
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
    if (count == DIBS__NODES_MAX || cl->closing)
        return NULL;
    struct dibs__node *n = dibs__calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->server.to = cl->whole->to;
    if (dibs__url_of_server(&cl->whole->to.url, host, port,
                            &n->server.to.url) != DIBS_OK) {
        dibs__free(n);
        return NULL;
    }
    node_init(cl, n);
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

struct dibs__pubsub *dibs__cluster_pubsub(struct dibs__cluster *cl, int slot)
{
    struct dibs__server *s = dibs__cluster_server(cl, slot);

    return s == cl->whole ? cl->nowhere : &node_of(s)->pubsub;
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
    if (cl->closing)
        return;
    verify_moved(cl);
    dibs__calls_reroute(cl->whole);
    dibs__pubsub_reroute(cl->nowhere);
    for (unsigned i = 0; i < atomic_load(&cl->count); i++) {
        dibs__calls_reroute(&cl->nodes[i]->server);
        dibs__pubsub_reroute(&cl->nodes[i]->pubsub);
    }
}

/* Not at once: whoever found the change is in the middle of something. */
static void reroute(struct dibs__cluster *cl)
{
    if (!cl->reroute_posted)
        dibs__loop_post(cl->lp, &cl->reroute);
    cl->reroute_posted = true;
}

/* True: it was elsewhere. */
static bool slot_set(struct dibs__cluster *cl, int slot, struct dibs__node *n)
{
    const struct dibs__server *was = atomic_load(&cl->slots[slot]);

    if (was == &n->server)
        return false;
    cl->moved[slot] = cl->moved[slot] || was;
    cl->some_moved |= cl->moved[slot];
    atomic_store_explicit(&cl->slots[slot], &n->server, memory_order_release);
    return true;
}

/* Nodes without slots need no connections. False: one is still in use. */
static bool tidy(struct dibs__cluster *cl)
{
    bool tidied = true;

    for (unsigned i = 0; i < atomic_load(&cl->count); i++) {
        struct dibs__node *n = cl->nodes[i];
        if (!n->in_map && (n->server.main || n->server.redial.armed))
            tidied &= dibs__server_sleep(&n->server);
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
        struct dibs__server *s = atomic_load(&cl->slots[slot]);
        if (s)
            node_of(s)->in_map = true;
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
    reroute(cl); /* also if nothing changed: a channel may wait for it */
    return covered > 0;
}

/* ---- asking for it ----------------------------------------------------- */

static void refresh_over(struct dibs__cluster *cl)
{
    int64_t now = dibs__now_ms();
    bool tidied = tidy(cl);

    cl->refreshing = false;
    cl->not_before = now + REFRESH_MS;
    if (cl->doubted)
        dibs__timer_set(cl->lp, &cl->timer, cl->not_before);
    else if (!tidied)
        dibs__timer_set(cl->lp, &cl->timer, now + TIDY_MS);
}

static void refreshed(struct dibs__cluster *cl)
{
    bool sought = cl->whole->seeking;

    refresh_over(cl);
    if (!sought)
        return;
    dibs__server_settled(cl->whole);
    dibs__calls_reroute(cl->whole);
    /* What is left wants a slot that nobody has. */
    dibs__server_note(cl->whole, "no node serves the slot of the name");
    dibs__calls_fail(cl->whole, DIBS_ERR_CONN, false);
}

static void refresh_failed(struct dibs__cluster *cl)
{
    char why[DIBS__REASON_MAX];
    bool final = cl->err == DIBS_ERR_AUTH || cl->err == DIBS_ERR_SERVER ||
                 cl->err == DIBS_ERR_PROTOCOL || cl->err == DIBS_ERR_TLS;

    refresh_over(cl);
    if (!cl->whole->seeking)
        return;
    snprintf(why, sizeof why, "no node told where the slots are: %.400s",
             cl->why);
    dibs__server_not_found(cl->whole, final ? cl->err : DIBS_ERR_CONN, why);
}

static void explained(struct dibs__call *call, dibs_err err, const char *why)
{
    struct dibs__cluster *cl = DIBS_OF(call, struct dibs__cluster, call);

    cl->err = err;
    snprintf(cl->why, sizeof cl->why, "%s", why);
}

static void no_slots(struct dibs__cluster *cl)
{
    char why[DIBS__REASON_MAX];

    dibs__event_text(&cl->call.s->to.url, "it knows of no slots", why);
    explained(&cl->call, DIBS_ERR_SERVER, why);
}

static void answered(struct dibs__call *call, dibs_err err,
                     const struct dibs__reply *reply)
{
    struct dibs__cluster *cl = DIBS_OF(call, struct dibs__cluster, call);
    bool probing = atomic_load(&cl->flavour) == 0;

    if (cl->closing)
        return;
    if (probing && reply && err != DIBS_ERR_PROTOCOL) {
        atomic_store(&cl->flavour,
                     err == DIBS_OK ? FLAVOUR_SHARDED : FLAVOUR_CLASSIC);
        node_of(call->s)->asked--; /* now for the map */
        ask_somebody(cl);
    } else if (!probing && err == DIBS_OK && take_map(cl, reply, call->s)) {
        refreshed(cl);
    } else {
        if (err == DIBS_OK)
            no_slots(cl);
        ask_somebody(cl);
    }
}

static void write_question(struct dibs__call *call, struct dibs__buf *out,
                           bool whole)
{
    struct dibs__cluster *cl = DIBS_OF(call, struct dibs__cluster, call);
    bool probing = atomic_load(&cl->flavour) == 0;

    (void)whole;
    dibs__buf_array(out, probing ? 3 : 2);
    dibs__buf_arg_text(out, probing ? "PUBSUB" : "CLUSTER");
    dibs__buf_arg_text(out, probing ? "SHARDNUMSUB" : "SLOTS");
    if (probing)
        dibs__buf_arg_text(out, "0");
}

/* One that was not asked in this round; one that is connected, if there is
 * one. *more: there are others. */
static struct dibs__node *choose(struct dibs__cluster *cl, bool *more)
{
    unsigned count = atomic_load(&cl->count), left = 0;
    unsigned from = (unsigned)dibs__random_in(0, count - 1);
    struct dibs__node *best = NULL;

    for (unsigned i = 0; i < count; i++) {
        struct dibs__node *n = cl->nodes[(from + i) % count];
        if (n->asked == cl->round)
            continue;
        left++;
        if (!best || (n->server.up && !best->server.up))
            best = n;
    }
    *more = left > 1;
    return best;
}

static void ask_somebody(struct dibs__cluster *cl)
{
    const struct dibs__target *to = &cl->whole->to;
    bool more;
    struct dibs__node *n = choose(cl, &more);

    if (!n) {
        refresh_failed(cl);
        return;
    }
    n->asked = cl->round;
    /* One that is connected gets the time that others on that connection have:
     * its end would end theirs. */
    int64_t within = to->command_timeout_ms;
    if (!n->server.up)
        within = more ? dibs__min(to->connect_timeout_ms, CONNECT_MS)
                      : to->connect_timeout_ms;
    cl->call.write = write_question;
    cl->call.done = answered;
    cl->call.explain = explained;
    cl->call.expects = 0;
    cl->call.slot = -1;
    cl->call.attempt_ms = within;
    cl->call.deadline = dibs__now_ms() + within;
    cl->call.connect_by = 0;
    dibs__call_start(&n->server, &cl->call);
}

static void refresh(struct dibs__cluster *cl)
{
    cl->refreshing = true;
    cl->doubted = false;
    cl->round++;
    ask_somebody(cl);
}

void dibs__cluster_doubt(struct dibs__cluster *cl)
{
    int64_t now = dibs__now_ms();

    if (cl->closing || cl->doubted)
        return;
    cl->doubted = true;
    if (!cl->refreshing)
        dibs__timer_set(cl->lp, &cl->timer, dibs__max(now, cl->not_before));
}

static void timer_fired(struct dibs__timer *t)
{
    struct dibs__cluster *cl = DIBS_OF(t, struct dibs__cluster, timer);

    if (cl->refreshing)
        return;
    if (cl->doubted)
        refresh(cl);
    else if (!tidy(cl))
        dibs__timer_set(cl->lp, &cl->timer, dibs__now_ms() + TIDY_MS);
}

static void seek(struct dibs__server *whole)
{
    dibs__cluster_doubt(whole->cluster);
}

/* ---- MOVED and ASK ----------------------------------------------------- */

/* "MOVED 15495 host:port"; the host may be an IPv6 address without brackets,
 * or missing. */
static bool read_redirect(const char *error, int *slot, char *host, int *port)
{
    char *end;
    const char *at = strchr(error, ' ');
    long n = at ? strtol(at, &end, 10) : -1;

    if (n < 0 || n >= DIBS__SLOTS || *end != ' ')
        return false;
    *slot = (int)n;
    at = end + 1;
    size_t len = strcspn(at, " \r\n");
    const char *colon = memrchr(at, ':', len);
    if (!colon || (size_t)(colon - at) > DIBS__URL_HOST_MAX)
        return false;
    memcpy(host, at, (size_t)(colon - at));
    host[colon - at] = '\0';
    n = strtol(colon + 1, &end, 10);
    *port = (int)n;
    return n > 0 && n < 65536 && end == at + len;
}

struct dibs__server *dibs__cluster_redirect(struct dibs__cluster *cl,
                                            const struct dibs__server *from,
                                            const char *error, int *slot,
                                            bool *ask)
{
    char host[DIBS__URL_HOST_MAX + 1];
    int at, port;

    *ask = strncmp(error, "ASK ", 4) == 0;
    if (!*ask)
        dibs__cluster_doubt(cl);
    if (!read_redirect(error, &at, host, &port))
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
            reroute(cl);
    }
    return &n->server;
}

/* ---- life -------------------------------------------------------------- */

dibs_err dibs__cluster_init(struct dibs__cluster *cl)
{
    const struct dibs__url *url = &cl->whole->to.url;

    cl->timer.fire = timer_fired;
    cl->reroute.run = reroute_now;
    cl->whole->cluster = cl->nowhere->cluster = cl;
    cl->nowhere->nowhere = true;
    cl->whole->seek = seek;
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

void dibs__cluster_close(struct dibs__cluster *cl)
{
    unsigned count = atomic_load(&cl->count);

    cl->closing = true;
    dibs__timer_stop(cl->lp, &cl->timer);
    cl->parts = 2 * count + 1;
    for (unsigned i = 0; i < count; i++) {
        dibs__server_close(&cl->nodes[i]->server);
        dibs__pubsub_close(&cl->nodes[i]->pubsub);
    }
    part_ended(cl);
}

void dibs__cluster_abandon(struct dibs__cluster *cl)
{
    for (unsigned i = 0; i < atomic_load(&cl->count); i++) {
        dibs__server_abandon(&cl->nodes[i]->server);
        dibs__pubsub_abandon(&cl->nodes[i]->pubsub);
    }
}
