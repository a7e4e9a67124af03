/* SPDX-License-Identifier: MIT
 *
 * cluster.c - a server as a node of a cluster: which slots are whose, and what
 * it answers to those who ask the wrong node.
 *
 * A node knows others by address only, as it tells them to clients. Each node
 * has a view of its own, so one may be behind the times. While a slot moves,
 * its old node says ASK for keys that it has no more, the new one takes them
 * from who says ASKING, and a command of several keys of which only some are
 * there gets TRYAGAIN.
 */
#include "sim/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    char *host;
    int port;
};

struct slot {
    int owner; /* in nodes; -1 = nobody */
    int other; /* where it goes, or comes from */
    enum sr_slot_move move;
};

struct sr_cluster {
    struct node *nodes; /* 0 is this server */
    int count;
    struct slot slots[SR_SLOTS];
};

/* ---- slots ------------------------------------------------------------- */

static uint16_t crc16(const char *p, size_t n)
{
    uint16_t crc = 0;

    for (size_t i = 0; i < n; i++) {
        crc = (uint16_t)(crc ^ (uint16_t)((unsigned char)p[i] << 8));
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

int sr_key_slot(const char *key, size_t n)
{
    const char *open = n ? memchr(key, '{', n) : NULL;
    const char *shut =
        open ? memchr(open + 1, '}', n - (size_t)(open + 1 - key)) : NULL;

    if (shut && shut > open + 1) {
        n = (size_t)(shut - open - 1);
        key = open + 1;
    }
    return crc16(key, n) % SR_SLOTS;
}

/* ---- the view ---------------------------------------------------------- */

static struct sr_cluster *cluster_of(struct sr_server *s)
{
    if (!s->cluster) {
        s->cluster = sr__alloc(sizeof *s->cluster);
        for (int i = 0; i < SR_SLOTS; i++)
            s->cluster->slots[i].owner = s->cluster->slots[i].other = -1;
    }
    return s->cluster;
}

static int node_of(struct sr_server *s, const struct sr_server *other)
{
    struct sr_cluster *cl = cluster_of(s);

    for (int i = 0; i < cl->count; i++)
        if (cl->nodes[i].port == other->config.port &&
            strcmp(cl->nodes[i].host, other->host) == 0)
            return i;
    cl->nodes =
        sr__grow(cl->nodes, (size_t)(cl->count + 1) * sizeof *cl->nodes);
    cl->nodes[cl->count] =
        (struct node){sr__copy(sr__view(other->host)).p, other->config.port};
    return cl->count++;
}

void sr__cluster_init(struct sr_server *s)
{
    node_of(s, s);
}

void sr__cluster_free(struct sr_server *s)
{
    for (int i = 0; s->cluster && i < s->cluster->count; i++)
        free(s->cluster->nodes[i].host);
    if (s->cluster)
        free(s->cluster->nodes);
    free(s->cluster);
    s->cluster = NULL;
}

void sr_slots_assign(struct sr_server *s, int first, int last,
                     const struct sr_server *owner)
{
    int node = owner ? node_of(s, owner) : -1;

    for (int i = first; i <= last; i++) {
        struct slot *slot = &cluster_of(s)->slots[i];
        bool was_mine = slot->owner == 0;
        *slot = (struct slot){.owner = node, .other = -1};
        if (was_mine && node != 0)
            sr__pubsub_slot_gone(s, i);
    }
}

void sr_slot_move(struct sr_server *s, int slot, enum sr_slot_move move,
                  const struct sr_server *other)
{
    cluster_of(s)->slots[slot].move = move;
    cluster_of(s)->slots[slot].other = other ? node_of(s, other) : -1;
}

bool sr_key_move(struct sr_server *from, struct sr_server *to, const char *key)
{
    struct sr_str name = sr__view(key), argv[2] = {sr__view("DEL"), name};
    struct sr_value *v = sr__dict_del(&from->db[0], name);

    if (!v)
        return false;
    sr__clock(from);
    sr__repl_begin(from);
    sr__repl_add(from, 0, 2, argv);
    sr__repl_end(from);
    sr__track_changed(from, name);
    sr__value_free(sr__dict_del(&to->db[0], name));
    sr__dict_add(&to->db[0], name, v);
    return true;
}

/* ---- may it run here? -------------------------------------------------- */

struct routed {
    struct sr_server *s;
    int slot; /* -1 = no key yet */
    bool crossed;
    int there, missing;
};

static void route_key(struct sr_str key, void *arg)
{
    struct routed *r = arg;
    int slot = sr_key_slot(key.p, key.n);

    r->crossed |= r->slot >= 0 && r->slot != slot;
    r->slot = slot;
    const struct sr_value *v = sr__dict_get(&r->s->db[0], key);
    if (v && (v->expires < 0 || r->s->now <= v->expires))
        r->there++;
    else
        r->missing++;
}

static void redirect(struct sr_call *k, const char *word, int slot, int node)
{
    const struct node *n = &k->s->cluster->nodes[node];

    sr__reply_error(k, "%s %d %s:%d", word, slot, n->host, n->port);
}

static bool slot_allows(struct sr_call *k, const struct routed *r)
{
    const struct slot *slot = &k->s->cluster->slots[r->slot];
    bool sharded = k->cmd->flags & SR_SHARDED;
    int keys = r->there + r->missing;

    if (slot->owner < 0) {
        sr__reply_error(k, "CLUSTERDOWN Hash slot not served");
    } else if (slot->owner == 0 && slot->move == SR_MIGRATING && r->missing &&
               !sharded) {
        if (r->there && keys > 1)
            sr__reply_error(k,
                            "TRYAGAIN Multiple keys request during rehashing "
                            "of slot");
        else
            redirect(k, "ASK", r->slot, slot->other);
    } else if (slot->owner != 0 && slot->move == SR_IMPORTING && k->c->asking) {
        if (!(r->missing && keys > 1))
            return true;
        sr__reply_error(k, "TRYAGAIN Multiple keys request during rehashing of "
                           "slot");
    } else if (slot->owner != 0) {
        redirect(k, "MOVED", r->slot, slot->owner);
    } else {
        return true;
    }
    return false;
}

bool sr__cluster_allows(struct sr_call *k)
{
    struct routed r = {.s = k->s, .slot = -1};

    if (k->cmd->flags & SR_SHARDED)
        for (int i = 1; i < ((k->cmd->flags & SR_CHANNEL) ? 2 : k->argc); i++)
            route_key(k->argv[i], &r);
    else
        sr__keys_each(k->cmd, k->argc, k->argv, route_key, &r);
    if (r.slot < 0)
        return true;
    if (r.crossed) {
        sr__reply_error(k, "CROSSSLOT Keys in request don't hash to the same "
                           "slot");
        return false;
    }
    return slot_allows(k, &r);
}

/* In a script: is the key here? */
bool sr__cluster_local(struct sr_server *s, struct sr_str key)
{
    struct routed r = {.s = s, .slot = -1};

    if (!s->cluster)
        return true;
    route_key(key, &r);
    const struct slot *slot = &s->cluster->slots[r.slot];
    if (slot->owner == 0)
        return !(slot->move == SR_MIGRATING && r.missing);
    return slot->move == SR_IMPORTING && s->script && s->script->c->asking;
}

/* ---- commands ---------------------------------------------------------- */

static bool enabled(struct sr_call *k)
{
    if (!k->s->cluster)
        sr__reply_error(k, "ERR This instance has cluster support disabled");
    return k->s->cluster;
}

/* Slots of one owner in a row, from first on; where they end. */
static int run_of(const struct sr_cluster *cl, int first)
{
    int last = first;

    while (last + 1 < SR_SLOTS &&
           cl->slots[last + 1].owner == cl->slots[first].owner)
        last++;
    return last;
}

/* A name for a node, as long as a real one. */
static void node_id(const struct node *n, char hex[41])
{
    char text[300];

    snprintf(text, sizeof text, "%s:%d", n->host, n->port);
    sr__sha1_hex(sr__view(text), hex);
}

static void cmd_cluster_slots(struct sr_call *k)
{
    const struct sr_cluster *cl = k->s->cluster;
    size_t n = 0;

    if (!enabled(k))
        return;
    for (int i = 0; i < SR_SLOTS; i = run_of(cl, i) + 1)
        n += cl->slots[i].owner >= 0;
    sr__reply_array(k, n);
    for (int i = 0, last; i < SR_SLOTS; i = last + 1) {
        last = run_of(cl, i);
        if (cl->slots[i].owner < 0)
            continue;
        const struct node *node = &cl->nodes[cl->slots[i].owner];
        char hex[41];
        node_id(node, hex);
        sr__reply_array(k, 3);
        sr__reply_int(k, i);
        sr__reply_int(k, last);
        sr__reply_array(k, 4);
        sr__reply_text(k, node->host);
        sr__reply_int(k, node->port);
        sr__reply_text(k, hex);
        sr__reply_array(k, 0);
    }
}

static void cmd_cluster_keyslot(struct sr_call *k)
{
    if (enabled(k))
        sr__reply_int(k, sr_key_slot(k->argv[2].p, k->argv[2].n));
}

static void cmd_cluster_info(struct sr_call *k)
{
    const struct sr_cluster *cl = k->s->cluster;
    struct sr_buf text = {0};
    int assigned = 0;

    if (!enabled(k))
        return;
    for (int i = 0; i < SR_SLOTS; i++)
        assigned += cl->slots[i].owner >= 0;
    sr__buf_fmt(&text,
                "cluster_enabled:1\r\ncluster_state:%s\r\n"
                "cluster_slots_assigned:%d\r\ncluster_known_nodes:%d\r\n",
                assigned == SR_SLOTS ? "ok" : "fail", assigned, cl->count);
    sr__reply_str(k, (struct sr_str){text.p, text.n});
    sr__buf_free(&text);
}

static void cmd_asking(struct sr_call *k)
{
    if (!enabled(k))
        return;
    k->c->asking = true;
    sr__reply_ok(k);
}

#define ANY (SR_IN_LOADING | SR_IN_STALE | SR_NOSCRIPT)

const struct sr_command sr__cluster_commands[] = {
    {"cluster", NULL, -2, ANY | SR_CONTAINER, 0, 0, 0},
    {"cluster|slots", cmd_cluster_slots, 2, ANY, 0, 0, 0},
    {"cluster|keyslot", cmd_cluster_keyslot, 3, ANY, 0, 0, 0},
    {"cluster|info", cmd_cluster_info, 2, ANY, 0, 0, 0},
    {"asking", cmd_asking, 1, ANY, 0, 0, 0},
    {0}};
