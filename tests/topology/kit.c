/* SPDX-License-Identifier: MIT
 *
 * kit.c - what the tests of several servers share.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "topology/kit.h"

#include "client/topology/hash_slot.h"

/* ---- kinds ------------------------------------------------------------- */

const struct top_kind top_kinds[4] = {
    {"plain", dibs_lock_new},
    {"fair", dibs_fair_lock_new},
    {"read", dibs_read_lock_new},
    {"write", dibs_write_lock_new},
};

dibs_lock *top_lock(dibs_client *c, size_t kind, const char *name)
{
    dibs_lock *l = NULL;

    want(name, top_kinds[kind].make(c, name, &l), DIBS_OK);
    return l;
}

void top_all_kinds(dibs_client *c, const char *prefix)
{
    for (size_t k = 0; k < COUNT(top_kinds); k++) {
        dibs_lock_info info = DIBS_LOCK_INFO_INIT;
        char name[100];

        snprintf(name, sizeof name, "%s:%s", prefix, top_kinds[k].name);
        dibs_lock *l = top_lock(c, k, name);
        want(name, dibs_lock_acquire(l, NULL), DIBS_OK);
        want(name, dibs_lock_acquire(l, NULL), DIBS_OK);
        want(name, dibs_lock_info_get(l, &info), DIBS_OK);
        assert_true(info.locked);
        assert_int_equal(info.holds, 2);
        want(name, dibs_lock_release(l, NULL), DIBS_OK);
        want(name, dibs_lock_release(l, NULL), DIBS_OK);
        want(name, dibs_lock_info_get(l, &info), DIBS_OK);
        assert_false(info.locked);
        dibs_lock_free(l);
    }
}

/* ---- what a client told ------------------------------------------------ */

void top_hear(const dibs_event *ev, void *arg)
{
    struct top_events *e = arg;

    if (ev->err != DIBS_OK)
        snprintf(e->last, sizeof e->last, "%s", ev->text);
    if ((size_t)ev->kind < COUNT(e->of)) /* behind the text: it tells of it */
        atomic_fetch_add(&e->of[ev->kind], 1);
    if (getenv("KIT_LOUD"))
        fprintf(stderr, "%lld event %d: %s (%s)\n", (long long)ts_now_ms(),
                (int)ev->kind, ev->text, dibs_strerror(ev->err));
}

void top_lost(const char *name, dibs_owner owner, void *arg)
{
    struct top_events *e = arg;

    (void)name;
    (void)owner;
    atomic_fetch_add(&e->lost, 1);
}

void top_ended(dibs_err err, void *arg)
{
    struct top_end *end = arg;

    end->err = err;
    atomic_store(&end->over, true);
}

dibs_err top_wait(struct top_end *end)
{
    TS_WAIT(atomic_load(&end->over));
    return end->err;
}

/* ---- sentinels --------------------------------------------------------- */

static struct ts_server *start_replica(int port)
{
    char text[16];
    const char *extra[] = {"--replicaof", "127.0.0.1", text, NULL};

    snprintf(text, sizeof text, "%d", port);
    return ts_server_start(extra);
}

/* A sentinel that gives a server another role also cuts its clients, this one
 * too, at any moment: so these can fail, and are tried again. */
static bool linked(struct ts_server *s)
{
    redisReply *r = ts_cmd(s, "INFO replication");
    bool up = r && r->type == REDIS_REPLY_STRING &&
              strstr(r->str, "master_link_status:up") != NULL;

    freeReplyObject(r);
    return up;
}

bool top_follow(struct ts_server *s, struct ts_server *master)
{
    redisReply *r = ts_cmd(s, "REPLICAOF 127.0.0.1 %d", ts_server_port(master));
    bool done = r && r->type == REDIS_REPLY_STATUS;

    freeReplyObject(r);
    return done;
}

/* The value behind a name in what a sentinel says of the master; -1. */
static long long told(struct ts_server *sentinel, const char *name)
{
    redisReply *r = ts_cmd(sentinel, "SENTINEL MASTER " SERVICE);
    long long n = -1;

    for (size_t i = 0; r && i + 1 < r->elements; i += 2)
        if (strcmp(r->element[i]->str, name) == 0)
            n = atoll(r->element[i + 1]->str);
    freeReplyObject(r);
    return n;
}

void top_sentinels_start(struct top_sentinels *t)
{
    static const char *const master[] = {"--repl-diskless-sync-delay", "0",
                                         NULL};
    char lines[400];

    t->server[0] = ts_server_start(master);
    int port = ts_server_port(t->server[0]);
    for (int i = 1; i < 3; i++)
        t->server[i] = start_replica(port);
    for (int i = 1; i < 3; i++) {
        ts_config_set(t->server[i], "repl-diskless-sync-delay", "0");
        TS_WAIT(linked(t->server[i]));
    }
    snprintf(lines, sizeof lines,
             "sentinel monitor " SERVICE " 127.0.0.1 %d 2\n"
             "sentinel down-after-milliseconds " SERVICE " %d\n"
             "sentinel failover-timeout " SERVICE " 2000\n"
             "sentinel parallel-syncs " SERVICE " 2\n",
             port, TOP_PATIENT_MS);
    for (int i = 0; i < 3; i++) {
        t->sentinel[i] = ts_sentinel_start(lines);
        /* One that did not run for two seconds would do nothing for 30. */
        ts_ok(t->sentinel[i],
              "SENTINEL DEBUG tilt-trigger 600000 tilt-period 1000");
    }
    for (int i = 0; i < 3; i++) {
        TS_WAIT(told(t->sentinel[i], "num-slaves") == 2);
        TS_WAIT(told(t->sentinel[i], "num-other-sentinels") == 2);
    }
    snprintf(t->url, sizeof t->url,
             "redis-sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/" SERVICE,
             ts_server_port(t->sentinel[0]), ts_server_port(t->sentinel[1]),
             ts_server_port(t->sentinel[2]));
}

void top_sentinels_patience(struct top_sentinels *t, int ms)
{
    for (int i = 0; i < 3; i++)
        ts_ok(t->sentinel[i],
              "SENTINEL SET " SERVICE " down-after-milliseconds %d", ms);
}

void top_sentinels_stop(struct top_sentinels *t)
{
    for (int i = 0; i < 3; i++)
        ts_server_stop(t->sentinel[i]);
    for (int i = 0; i < 3; i++)
        ts_server_stop(t->server[i]);
}

static struct ts_server *live_sentinel(struct top_sentinels *t)
{
    for (int i = 0; i < 3; i++) {
        redisReply *r =
            ts_server_pid(t->sentinel[i]) ? ts_cmd(t->sentinel[i], "PING") : 0;
        freeReplyObject(r);
        if (r)
            return t->sentinel[i];
    }
    ts_fatal("no sentinel lives");
}

static int master_by(struct top_sentinels *t, struct ts_server *sentinel)
{
    redisReply *r =
        ts_cmd(sentinel, "SENTINEL GET-MASTER-ADDR-BY-NAME " SERVICE);
    int port = r && r->elements == 2 ? atoi(r->element[1]->str) : 0;

    freeReplyObject(r);
    for (int i = 0; i < 3; i++)
        if (ts_server_port(t->server[i]) == port)
            return i;
    return -1;
}

int top_master(struct top_sentinels *t)
{
    return master_by(t, live_sentinel(t));
}

/* Do all sentinels that live name the same master? */
static bool sentinels_agree(struct top_sentinels *t)
{
    int now = top_master(t);

    for (int i = 0; i < 3; i++)
        if (ts_server_pid(t->sentinel[i]) &&
            master_by(t, t->sentinel[i]) != now)
            return false;
    return now >= 0;
}

static bool says_master(struct ts_server *s)
{
    redisReply *r = ts_cmd(s, "ROLE");
    bool yes = r && r->type == REDIS_REPLY_ARRAY &&
               strcmp(r->element[0]->str, "master") == 0;

    freeReplyObject(r);
    return yes;
}

int top_master_after(struct top_sentinels *t, int old)
{
    /* A vote without a majority is held again, some seconds later. */
    struct ts_wait w = ts_wait_begin(3 * TS_SOON);
    int now = -1;

    while ((now = top_master(t)) < 0 || now == old ||
           !says_master(t->server[now]))
        if (!ts_wait_step(&w))
            fail_msg("nobody follows the old master");
    return now;
}

/* How many replicas have all that it has; -1: it is none's master. */
static long long copies(struct ts_server *s)
{
    redisReply *r = ts_cmd(s, "WAIT 2 100");
    long long n = r && r->type == REDIS_REPLY_INTEGER ? r->integer : -1;

    freeReplyObject(r);
    return n;
}

/* One attempt: on a slow machine the sentinels may change their mind. */
static bool heals(struct top_sentinels *t)
{
    bool agree = sentinels_agree(t);
    int now = top_master(t);

    if (!agree || now < 0)
        return false;
    /* The sentinels would see to all of this, but take long. */
    if (!says_master(t->server[now])) {
        freeReplyObject(ts_cmd(t->server[now], "REPLICAOF NO ONE"));
        return false;
    }
    for (int i = 0; i < 3; i++) {
        if (i != now && !linked(t->server[i]))
            top_follow(t->server[i], t->server[now]);
    }
    return copies(t->server[now]) == 2 && top_master(t) == now;
}

void top_heal(struct top_sentinels *t, int old)
{
    if (!ts_server_pid(t->server[old]))
        ts_server_restart(t->server[old]);
    ts_server_resume(t->server[old]);
    /* Sentinels that disagree for once take their time. */
    struct ts_wait w = ts_wait_begin(3 * TS_SOON);
    while (!heals(t))
        if (!ts_wait_step(&w))
            fail_msg("the sentinels and their servers do not heal");
    TS_WAIT(told(live_sentinel(t), "num-slaves") == 2);
}

void top_in_step(struct top_sentinels *t, int master)
{
    TS_WAIT(copies(t->server[master]) == 2);
}

/* ---- clusters ---------------------------------------------------------- */

static void meet(struct top_cluster *t)
{
    for (int i = 0; i < 6; i++) {
        char *id = ts_str(t->node[i], "CLUSTER MYID");
        snprintf(t->id[i], sizeof t->id[i], "%s", id);
        free(id);
        ts_ok(t->node[i], "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
    }
    for (int i = 1; i < 6; i++)
        ts_ok(t->node[0], "CLUSTER MEET 127.0.0.1 %d",
              ts_server_port(t->node[i]));
}

static bool knows(struct ts_server *s, const char *id)
{
    char *text = ts_str(s, "CLUSTER NODES");
    const char *line = text ? strstr(text, id) : NULL;
    bool yes = line && !memmem(line, strcspn(line, "\n"), "handshake", 9);

    free(text);
    return yes;
}

static bool cluster_ok(struct ts_server *s)
{
    char *text = ts_str(s, "CLUSTER INFO");
    bool ok = text && strstr(text, "cluster_state:ok") &&
              strstr(text, "cluster_slots_assigned:16384") &&
              strstr(text, "cluster_known_nodes:6");

    free(text);
    return ok;
}

/* All agree on who has what. */
static bool agreed(struct top_cluster *t)
{
    static const int probes[] = {0, 5460, 5461, 10922, 10923, 16383};
    static const int owners[] = {0, 0, 1, 1, 2, 2};
    bool ok = true;

    for (int i = 0; ok && i < 6; i++) {
        redisReply *r = ts_cmd(t->node[i], "CLUSTER SLOTS");
        for (size_t p = 0; ok && p < COUNT(probes); p++) {
            bool found = false;
            for (size_t e = 0; r && e < r->elements; e++) {
                redisReply **x = r->element[e]->element;
                found |= x[0]->integer <= probes[p] &&
                         probes[p] <= x[1]->integer &&
                         r->element[e]->elements >= 4 &&
                         x[2]->element[1]->integer ==
                             ts_server_port(t->node[owners[p]]);
            }
            ok = found;
        }
        freeReplyObject(r);
    }
    return ok;
}

void top_cluster_start(struct top_cluster *t, const char *const *extra)
{
    static const int first[] = {0, 5461, 10923, 16384};
    const char *args[20] = {"--cluster-enabled",
                            "yes",
                            "--cluster-node-timeout",
                            "2000",
                            "--cluster-replica-no-failover",
                            "yes",
                            "--cluster-replica-validity-factor",
                            "0",
                            "--repl-diskless-sync-delay",
                            "0"};
    size_t n = 10;

    for (; extra && *extra; extra++)
        args[n++] = *extra;
    for (int i = 0; i < 6; i++)
        t->node[i] = ts_server_start(args);
    meet(t);
    for (int i = 0; i < 3; i++)
        ts_ok(t->node[i], "CLUSTER ADDSLOTSRANGE %d %d", first[i],
              first[i + 1] - 1);
    for (int i = 3; i < 6; i++) {
        TS_WAIT(knows(t->node[i], t->id[i - 3]));
        ts_ok(t->node[i], "CLUSTER REPLICATE %s", t->id[i - 3]);
    }
    for (int i = 3; i < 6; i++)
        TS_WAIT(linked(t->node[i]));
    for (int i = 0; i < 6; i++)
        TS_WAIT(cluster_ok(t->node[i]));
    TS_WAIT(agreed(t));
    snprintf(t->url, sizeof t->url,
             "redis-cluster://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
             ts_server_port(t->node[0]), ts_server_port(t->node[1]),
             ts_server_port(t->node[2]));
}

void top_cluster_allow_failover(struct top_cluster *t)
{
    for (int i = 0; i < 6; i++) {
        ts_config_set(t->node[i], "cluster-node-timeout", "1000");
        ts_config_set(t->node[i], "cluster-replica-no-failover", "no");
    }
}

void top_cluster_stop(struct top_cluster *t)
{
    for (int i = 0; i < 6; i++)
        ts_server_stop(t->node[i]);
}

int top_slot(struct top_cluster *t, const char *key)
{
    return (int)ts_int(t->node[0], "CLUSTER KEYSLOT %s", key);
}

/* A port in this entry of CLUSTER SLOTS, as an index. */
static int node_at(struct top_cluster *t, long long port)
{
    for (int i = 0; i < 6; i++)
        if (ts_server_port(t->node[i]) == port)
            return i;
    return -1;
}

/* Which node this one takes for the slot's owner. */
int top_believed(struct top_cluster *t, int node, int slot)
{
    redisReply *r = ts_cmd(t->node[node], "CLUSTER SLOTS");
    int found = -1;

    for (size_t e = 0; r && e < r->elements; e++) {
        redisReply **x = r->element[e]->element;
        if (x[0]->integer <= slot && slot <= x[1]->integer)
            found = node_at(t, x[2]->element[1]->integer);
    }
    freeReplyObject(r);
    return found;
}

int top_owner(struct top_cluster *t, int slot)
{
    int found = -1;

    for (int i = 0; i < 6 && found < 0; i++) {
        if (ts_server_pid(t->node[i]))
            found = top_believed(t, i, slot);
        if (found >= 0 && !ts_server_pid(t->node[found]))
            found = -1;
    }
    return found;
}

void top_begin_move(struct top_cluster *t, int slot, int from, int to)
{
    ts_ok(t->node[to], "CLUSTER SETSLOT %d IMPORTING %s", slot, t->id[from]);
    ts_ok(t->node[from], "CLUSTER SETSLOT %d MIGRATING %s", slot, t->id[to]);
}

/* Who wants to be called, and who listens: these are hints, and while a slot
 * moves both nodes may have them. All other keys are at one node only. */
static bool is_hint(const char *key)
{
    return strncmp(key, "dibs_lock_waiters:", 18) == 0 ||
           strncmp(key, "dibs_lock_listener:", 19) == 0;
}

static redisReply *migrate(struct top_cluster *t, int from, int to,
                           const redisReply *key)
{
    int port = ts_server_port(t->node[to]);

    return is_hint(key->str)
               ? ts_cmd(t->node[from], "MIGRATE 127.0.0.1 %d %b 0 5000 REPLACE",
                        port, key->str, key->len)
               : ts_cmd(t->node[from], "MIGRATE 127.0.0.1 %d %b 0 5000", port,
                        key->str, key->len);
}

void top_move_keys(struct top_cluster *t, int slot, int from, int to)
{
    for (;;) {
        redisReply *r =
            ts_cmd(t->node[from], "CLUSTER GETKEYSINSLOT %d 50", slot);
        size_t n = r ? r->elements : 0;
        for (size_t i = 0; i < n; i++) {
            redisReply *m = migrate(t, from, to, r->element[i]);
            assert_non_null(m);
            if (m->type == REDIS_REPLY_ERROR)
                fail_msg("MIGRATE: %s", m->str);
            freeReplyObject(m);
        }
        freeReplyObject(r);
        if (n == 0)
            return;
    }
}

void top_end_move(struct top_cluster *t, int slot, int from, int to)
{
    ts_ok(t->node[to], "CLUSTER SETSLOT %d NODE %s", slot, t->id[to]);
    ts_ok(t->node[from], "CLUSTER SETSLOT %d NODE %s", slot, t->id[to]);
}

/* All masters have heard of the latest epoch. */
bool top_in_epoch(struct top_cluster *t)
{
    char seen[3][40];

    for (int i = 0; i < 3; i++) {
        char *text = ts_str(t->node[i], "CLUSTER INFO");
        const char *at = text ? strstr(text, "cluster_current_epoch:") : NULL;
        snprintf(seen[i], sizeof seen[i], "%.*s",
                 at ? (int)strcspn(at, "\r\n") : 0, at ? at : "");
        free(text);
    }
    return strcmp(seen[0], seen[1]) == 0 && strcmp(seen[0], seen[2]) == 0;
}

/* All masters must agree, on the slot and on the epoch, before another slot
 * goes the other way: who takes a slot must outdo all others to be believed. */
void top_move_slot(struct top_cluster *t, int slot, int from, int to)
{
    TS_WAIT(top_in_epoch(t));
    top_begin_move(t, slot, from, to);
    top_move_keys(t, slot, from, to);
    top_end_move(t, slot, from, to);
    for (int i = 0; i < 3; i++)
        TS_WAIT(top_believed(t, i, slot) == to);
}

void top_name_in(struct top_cluster *t, int slot, char *buf, size_t size)
{
    (void)t;
    for (unsigned i = 0;; i++) {
        int n = snprintf(buf, size, "name%u", i);
        if (dibs__hash_slot_of(buf, (size_t)n) == slot)
            return;
    }
}
