/* SPDX-License-Identifier: MIT
 *
 * topology_nodes.c - nodes of a cluster that come back empty, lose a slot, or
 * are let go: what is held there, and what is under way there.
 *
 * Leases are so long that no renewal is due while a test runs.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "topology/kit.h"

#define LEASE_MS 600000

static struct top_cluster top;

static int up(void **state)
{
    (void)state;
    top_cluster_start(&top, NULL);
    return 0;
}

static int down(void **state)
{
    (void)state;
    top_cluster_stop(&top);
    return 0;
}

static dibs_client *open_client(void)
{
    dibs_client *c = NULL;

    want("opening",
         dibs_client_open(top.url,
                          DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS,
                                           .command_timeout_ms = ts_ms(2000)),
                          &c),
         DIBS_OK);
    return c;
}

/* ---- what is held ------------------------------------------------------ */

/* All kinds of this slot, with and without renewal. */
struct holds {
    dibs_lock *l[8];
    struct top_events ev[8];
};

static void holds_take(struct holds *h, dibs_client *c, const char *tag)
{
    memset(h, 0, sizeof *h);
    for (size_t i = 0; i < COUNT(h->l); i++) {
        char name[80];
        snprintf(name, sizeof name, "{%s}:%zu", tag, i);
        h->l[i] = top_lock(c, i % COUNT(top_kinds), name);
        want(name,
             dibs_lock_acquire(h->l[i],
                               DIBS_LOCK_OPTS(.lease_ms = i < 4 ? 0 : LEASE_MS,
                                              .on_lost = top_lost,
                                              .arg = &h->ev[i])),
             DIBS_OK);
    }
}

static void holds_lost(struct holds *h)
{
    for (size_t i = 0; i < COUNT(h->l); i++) {
        TS_WAIT(atomic_load(&h->ev[i].lost) == 1);
        want("giving back", dibs_lock_release(h->l[i], NULL), DIBS_ERR_LOST);
        dibs_lock_free(h->l[i]);
    }
}

static void holds_kept(struct holds *h)
{
    for (size_t i = 0; i < COUNT(h->l); i++) {
        assert_int_equal(dibs_lock_state(h->l[i], 0), DIBS_HELD);
        want("giving back", dibs_lock_release(h->l[i], NULL), DIBS_OK);
        assert_int_equal(atomic_load(&h->ev[i].lost), 0);
        dibs_lock_free(h->l[i]);
    }
}

/* It is back before anybody has taken its place, and knows nothing. What is at
 * another node is not touched. */
static void test_nodes_restarted_empty(void **state)
{
    dibs_client *c = open_client();
    struct holds here, there;
    char tag[2][40];

    (void)state;
    top_name_in(&top, 100, tag[0], sizeof tag[0]);  /* of node 0 */
    top_name_in(&top, 6000, tag[1], sizeof tag[1]); /* of node 1 */
    holds_take(&here, c, tag[0]);
    holds_take(&there, c, tag[1]);
    ts_ok(top.node[0], "FLUSHALL");
    ts_ok(top.node[0], "CLIENT KILL TYPE normal");
    holds_lost(&here);
    holds_kept(&there);
    dibs_client_free(c);
}

/* Another node has the slot, but not what was in it. */
static void test_nodes_slot_without_keys(void **state)
{
    dibs_client *c = open_client();
    struct holds here, there;
    char tag[2][40];
    int slot = 200;

    (void)state;
    top_name_in(&top, slot, tag[0], sizeof tag[0]);
    top_name_in(&top, slot + 1, tag[1], sizeof tag[1]);
    holds_take(&here, c, tag[0]);
    holds_take(&there, c, tag[1]);
    TS_WAIT(top_in_epoch(&top));
    top_begin_move(&top, slot, 0, 1);
    for (size_t i = 0; i < COUNT(here.l); i++)
        ts_ok(top.node[0], "DEL {%s}:%d", tag[0], (int)i);
    top_move_keys(&top, slot, 0, 1);
    top_end_move(&top, slot, 0, 1);
    for (int i = 0; i < 3; i++)
        TS_WAIT(top_believed(&top, i, slot) == 1);
    /* A call that meets MOVED brings the new map. */
    dibs_lock *l = top_lock(c, 0, tag[0]);
    want("finding out", dibs_lock_try(l, NULL), DIBS_OK);
    holds_lost(&here);
    holds_kept(&there);
    want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    dibs_lock_free(l);
    dibs_client_free(c);
    top_move_slot(&top, slot, 1, 0);
}

/* The slot moves with all that is in it: nothing is lost. */
static void test_nodes_slot_with_keys(void **state)
{
    dibs_client *c = open_client();
    struct holds here;
    char tag[40];
    int slot = 300;

    (void)state;
    top_name_in(&top, slot, tag, sizeof tag);
    holds_take(&here, c, tag);
    top_move_slot(&top, slot, 0, 1);
    dibs_lock *l = top_lock(c, 0, tag);
    want("finding out", dibs_lock_try(l, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    holds_kept(&here);
    dibs_lock_free(l);
    dibs_client_free(c);
    top_move_slot(&top, slot, 1, 0);
}

/* ---- what is under way ------------------------------------------------- */

static bool has_node(struct ts_server *s, const char *id)
{
    char *text = ts_str(s, "CLUSTER NODES");
    const char *line = text ? strstr(text, id) : NULL;
    bool yes = line && !memmem(line, strcspn(line, "\n"), "handshake", 9);

    free(text);
    return yes;
}

/* A seventh node, a master without replicas. A master that has no slots any
 * more becomes a replica of who has them, unless it is told not to. */
static struct ts_server *join(char id[41], bool demoted)
{
    struct ts_server *s = ts_server_start((const char *[]){
        "--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
        "--cluster-allow-replica-migration", demoted ? "yes" : "no", NULL});
    char *text = ts_str(s, "CLUSTER MYID");

    snprintf(id, 41, "%s", text);
    free(text);
    ts_ok(s, "CLUSTER SET-CONFIG-EPOCH 7");
    ts_ok(top.node[0], "CLUSTER MEET 127.0.0.1 %d", ts_server_port(s));
    for (int i = 0; i < 6; i++)
        TS_WAIT(has_node(top.node[i], id));
    for (int i = 0; i < 6; i++)
        TS_WAIT(has_node(s, top.id[i]));
    return s;
}

static bool believes(struct ts_server *s, int slot, const struct ts_server *who)
{
    redisReply *r = ts_cmd(s, "CLUSTER SLOTS");
    bool yes = false;

    for (size_t e = 0; r && e < r->elements; e++) {
        redisReply **x = r->element[e]->element;
        if (x[0]->integer <= slot && slot <= x[1]->integer)
            yes = x[2]->element[1]->integer == ts_server_port(who);
    }
    freeReplyObject(r);
    return yes;
}

/* The slot, with its keys, from one to the other. */
static void hand(int slot, struct ts_server *from, const char *from_id,
                 struct ts_server *to, const char *to_id)
{
    TS_WAIT(top_in_epoch(&top));
    ts_ok(to, "CLUSTER SETSLOT %d IMPORTING %s", slot, from_id);
    ts_ok(from, "CLUSTER SETSLOT %d MIGRATING %s", slot, to_id);
    redisReply *r = ts_cmd(from, "CLUSTER GETKEYSINSLOT %d 50", slot);
    for (size_t i = 0; i < r->elements; i++)
        ts_ok(from, "MIGRATE 127.0.0.1 %d %s 0 5000", ts_server_port(to),
              r->element[i]->str);
    freeReplyObject(r);
    ts_ok(to, "CLUSTER SETSLOT %d NODE %s", slot, to_id);
    /* It may have heard so already, and be no master any more. */
    freeReplyObject(ts_cmd(from, "CLUSTER SETSLOT %d NODE %s", slot, to_id));
    for (int i = 0; i < 3; i++)
        TS_WAIT(believes(top.node[i], slot, to));
}

/* A call waits for a replica that the node does not have, and meanwhile the
 * node loses its only slot: it stays a master of nothing, or becomes a replica
 * itself. It is let go, but not under that call, which ends as it would have:
 * taken back, where the slot is by then. */
static void let_go(bool demoted)
{
    dibs_client *c = open_client();
    struct top_end end = {0};
    char id[41], name[40], beside[60];
    int slot = demoted ? 401 : 400;
    struct ts_server *extra = join(id, demoted);
    long long strangers = ts_client_count(extra);

    hand(slot, top.node[0], top.id[0], extra, id);
    top_name_in(&top, slot, name, sizeof name);
    snprintf(beside, sizeof beside, "{%s}:beside", name);
    dibs_lock *l = top_lock(c, 0, name), *other = top_lock(c, 0, beside);
    want("taking", dibs_lock_acquire(l, NULL), DIBS_OK); /* the map is known */
    want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    want("asking",
         dibs_lock_acquire_async(
             l,
             DIBS_LOCK_OPTS(.owner = dibs_owner_new(c), .replicas = 1,
                            .replicas_timeout_ms = ts_ms(15000),
                            .lease_ms = LEASE_MS),
             top_ended, &end),
         DIBS_OK);
    TS_WAIT(ts_exists(extra, name)); /* and WAIT is out */
    hand(slot, extra, id, top.node[0], top.id[0]);
    want("another", dibs_lock_try(other, NULL), DIBS_OK); /* meets MOVED */
    want("giving back", dibs_lock_release(other, NULL), DIBS_OK);
    if (!demoted && atomic_load(&end.over))
        fail_msg("over too soon: %s", dibs_strerror(end.err));
    want("asking", top_wait(&end), DIBS_ERR_REPLICAS);
    TS_WAIT(!ts_exists(top.node[0], name));
    /* Nobody needs it; a replica's master is one of its clients. */
    TS_WAIT(ts_client_count(extra) == strangers + demoted);
    want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
    dibs_lock_free(other);
    dibs_lock_free(l);
    dibs_client_free(c);
    for (int i = 0; i < 6; i++)
        ts_ok(top.node[i], "CLUSTER FORGET %s", id);
    ts_server_stop(extra);
}

static void test_nodes_let_go_under_replicas(void **state)
{
    (void)state;
    let_go(false);
}

static void test_nodes_demoted_under_replicas(void **state)
{
    (void)state;
    let_go(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_restarted_empty),
        cmocka_unit_test(test_nodes_slot_without_keys),
        cmocka_unit_test(test_nodes_slot_with_keys),
        cmocka_unit_test(test_nodes_let_go_under_replicas),
        cmocka_unit_test(test_nodes_demoted_under_replicas),
    };

    return cmocka_run_group_tests_name("topology.nodes", tests, up, down);
}
