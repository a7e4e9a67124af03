/* SPDX-License-Identifier: MIT
 *
 * topology_cluster.c - locks in a cluster of three masters and their replicas.
 *
 * Every kind works in every slot, with the same calls. Slots move while locks
 * are held, waited for and fought over; nodes end. A witness outside of Redis
 * sees to it that never two have a lock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "topology/kit.h"

#include "client/topology/hash_slot.h"
#include "support/witness.h"

#define LEASE_MS   ts_ms(8000)
#define LONG_MS    ts_ms(30000) /* longer than a failover takes, or several */
#define COMMAND_MS ts_ms(2000)

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

static dibs_client *open_with(struct top_events *e, dibs_pubsub pubsub,
                              int64_t lease_ms)
{
    dibs_client *c = NULL;

    want("opening",
         dibs_client_open(top.url,
                          DIBS_CLIENT_OPTS(.lease_ms = lease_ms,
                                           .command_timeout_ms = COMMAND_MS,
                                           .on_event = e ? top_hear : NULL,
                                           .event_arg = e, .pubsub = pubsub),
                          &c),
         DIBS_OK);
    return c;
}

static dibs_client *open_as(struct top_events *e, dibs_pubsub pubsub)
{
    return open_with(e, pubsub, LEASE_MS);
}

static dibs_client *open_client(struct top_events *e)
{
    return open_as(e, DIBS_PUBSUB_AUTO);
}

static long long all_keys(void)
{
    long long n = 0;

    for (int i = 0; i < 3; i++)
        n += ts_nkeys(top.node[i]);
    return n;
}

/* The library and the servers agree on the slot of any bytes. */
static void slots_are_the_servers(void **state)
{
    static const char *const names[] = {"a",         "order",  "{order}",
                                        "x{order}y", "{}a",    "a{",
                                        "a}b",       "{a}{b}", "}{",
                                        "a{}b",      "{{a}}",  "\xff\x01{\xfe}",
                                        "foo{}{bar}"};

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++)
        assert_int_equal(dibs__hash_slot_of(names[i], strlen(names[i])),
                         top_slot(&top, names[i]));
}

/* Names on every node, lazily opened too. */
static void all_kinds(void **state)
{
    dibs_client *c = open_client(NULL), *lazy = NULL;

    (void)state;
    want("opening",
         dibs_client_open(top.url, DIBS_CLIENT_OPTS(.lazy = true), &lazy),
         DIBS_OK);
    for (int i = 0; i < 40; i++) {
        char prefix[40];
        snprintf(prefix, sizeof prefix, i % 2 ? "all%d" : "all:{%d}:x", i);
        top_all_kinds(i % 4 < 2 ? c : lazy, prefix);
    }
    want("closing", dibs_client_close(c, 0), DIBS_OK);
    dibs_client_free(c);
    dibs_client_free(lazy);
    assert_int_equal(all_keys(), 0);
}

static void bad_names(void **state)
{
    static const char *const bad[] = {"a{b", "{}x", "a}b", "}{", "a{}b"};
    static const char *const good[] = {"{a}{b}", "{x}y", "plain", "a:{7}:b"};
    struct top_events e = {0};
    dibs_client *c = open_client(&e);
    dibs_lock *l = NULL;

    (void)state;
    for (size_t k = 0; k < COUNT(top_kinds); k++)
        for (size_t i = 0; i < COUNT(bad); i++)
            want(bad[i], top_kinds[k].make(c, bad[i], &l), DIBS_ERR_INVALID);
    TS_WAIT(atomic_load(&e.of[DIBS_EVENT_ERROR]) ==
            (int)(COUNT(bad) * COUNT(top_kinds)));
    assert_non_null(strstr(e.last, "is no name for a lock in a cluster"));
    for (size_t i = 0; i < COUNT(good); i++)
        top_all_kinds(c, good[i]);
    dibs_client_free(c);
}

static bool count_lock(const char *name, size_t len, const dibs_lock_info *info,
                       void *arg)
{
    int *n = arg;

    (void)name;
    (void)len;
    assert_true(info->locked);
    ++*n;
    return true;
}

static bool count_holder(const char *owner, dibs_mode mode, int64_t holds,
                         int64_t remaining_ms, void *arg)
{
    int *n = arg;

    (void)owner;
    (void)mode;
    (void)holds;
    (void)remaining_ms;
    ++*n;
    return true;
}

/* Listing finds locks on all nodes; forcing and looking go to the right one. */
static void looking(void **state)
{
    dibs_client *c = open_client(NULL), *other = open_client(NULL);
    dibs_lock *l[30];
    int n = 0;

    (void)state;
    for (int i = 0; i < 30; i++) {
        char name[40];
        snprintf(name, sizeof name, "look%d", i);
        l[i] = top_lock(c, (size_t)i % 3, name); /* no writers */
        want(name, dibs_lock_acquire(l[i], NULL), DIBS_OK);
    }
    want("listing", dibs_client_list(other, "look*", count_lock, &n), DIBS_OK);
    assert_int_equal(n, 30);
    for (int i = 0; i < 30; i++) {
        char name[40];
        bool was = false;
        snprintf(name, sizeof name, "look%d", i);
        dibs_lock *o = top_lock(other, (size_t)i % 3, name);
        n = 0;
        want("holders", dibs_lock_holders(o, count_holder, &n), DIBS_OK);
        assert_int_equal(n, 1);
        want("forcing", dibs_lock_force_release(o, &was), DIBS_OK);
        assert_true(was);
        dibs_lock_free(o);
        want("giving back", dibs_lock_release(l[i], NULL), DIBS_ERR_LOST);
        dibs_lock_free(l[i]);
    }
    dibs_client_free(c);
    dibs_client_free(other);
    assert_int_equal(all_keys(), 0);
}

/* ---- who ---------------------------------------------------------------- */

static bool know_far(size_t index, const dibs_who *who, void *arg)
{
    unsigned *known = arg;

    if (strcmp(who->host, "far") == 0 && who->pid == (int64_t)index + 1)
        *known |= 1u << index;
    return true;
}

/* Each owner is connected to one node only, and each is found. */
static void who_is_where(void **state)
{
    static const char *const owners[] = {
        "00000000-0000-4000-8000-000000000001:1",
        "00000000-0000-4000-8000-000000000002:1",
        "00000000-0000-4000-8000-000000000003:1",
    };
    dibs_client *c = open_as(NULL, DIBS_PUBSUB_AUTO);
    unsigned known = 0;

    (void)state;
    for (int i = 0; i < 3; i++) {
        char name[80];

        snprintf(name, sizeof name, "dibs/%.36s/far/%d/job", owners[i], i + 1);
        ts_ok(top.node[i], "CLIENT SETNAME %s", name);
    }
    want("who", dibs_client_who(c, owners, 3, know_far, &known), DIBS_OK);
    assert_int_equal(known, 7);
    for (int i = 0; i < 3; i++)
        ts_ok(top.node[i], "CLIENT SETNAME test");
    dibs_client_free(c);
}

/* ---- wake-ups ---------------------------------------------------------- */

static long long numsub(struct ts_server *s, bool sharded, const char *channel)
{
    redisReply *r = ts_cmd(
        s, sharded ? "PUBSUB SHARDNUMSUB %s" : "PUBSUB NUMSUB %s", channel);
    long long n = r && r->elements == 2 ? r->element[1]->integer : -1;

    freeReplyObject(r);
    return n;
}

/* Waits at one client while another has it; how it listens, and that it gets
 * it when it is given back, long before it would have looked by itself. */
static void wakes(dibs_pubsub holder, dibs_pubsub waiter, bool sharded,
                  bool classic)
{
    dibs_client *a = open_as(NULL, holder), *b = open_as(NULL, waiter);

    for (int i = 0; i < 6; i++) {
        char name[40], channel[80];
        struct top_end end = {.err = DIBS_OK};
        snprintf(name, sizeof name, "wake%d", i);
        snprintf(channel, sizeof channel, "redisson_lock__channel:{%s}", name);
        struct ts_server *node =
            top.node[top_owner(&top, dibs__hash_slot_of(name, strlen(name)))];
        dibs_lock *held = top_lock(a, 0, name), *wanted = top_lock(b, 0, name);
        want("taking", dibs_lock_acquire(held, NULL), DIBS_OK);
        want("lining up",
             dibs_lock_acquire_async(wanted, NULL, top_ended, &end), DIBS_OK);
        if (sharded)
            TS_WAIT(numsub(node, true, channel) == 1);
        if (classic)
            TS_WAIT(numsub(node, false, channel) == 1);
        assert_int_equal(numsub(node, true, channel), sharded);
        size_t n = 0;
        want("listeners", dibs_lock_listeners(held, &n), DIBS_OK);
        assert_int_equal(n, 1);
        want("giving back", dibs_lock_release(held, NULL), DIBS_OK);
        want("waiting", top_wait(&end), DIBS_OK);
        want("giving back", dibs_lock_release(wanted, NULL), DIBS_OK);
        if (i == 0) /* after some seconds */
            TS_WAIT(numsub(node, true, channel) == 0);
        dibs_lock_free(held);
        dibs_lock_free(wanted);
    }
    dibs_client_free(a);
    dibs_client_free(b);
}

static void wake_ups(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        ts_reset_stats(top.node[i]);
    wakes(DIBS_PUBSUB_AUTO, DIBS_PUBSUB_AUTO, true, false);
    long long asks = 0, shards = 0, plain = 0;
    for (int i = 0; i < 3; i++) {
        shards += ts_command_calls(top.node[i], "spublish");
        plain += ts_command_calls(top.node[i], "publish");
        asks += ts_command_calls(top.node[i], "ssubscribe");
    }
    assert_int_equal(plain, 0);
    assert_true(shards >= 12);
    assert_int_equal(asks, 12); /* the lock's channel, and the client's */
    wakes(DIBS_PUBSUB_CLASSIC, DIBS_PUBSUB_CLASSIC, false, true);
    wakes(DIBS_PUBSUB_SHARDED, DIBS_PUBSUB_SHARDED, true, false);
    wakes(DIBS_PUBSUB_BOTH, DIBS_PUBSUB_SHARDED, true, false);
    wakes(DIBS_PUBSUB_CLASSIC, DIBS_PUBSUB_BOTH, true, true);
}

/* ---- renewals ---------------------------------------------------------- */

#define MANY 3000

static long long renewals(void)
{
    long long n = 0;

    for (int i = 0; i < 3; i++)
        n += ts_command_calls(top.node[i], "evalsha") +
             ts_command_calls(top.node[i], "eval");
    return n;
}

/* Locks in thousands of slots: one command for many, and none is lost. */
static void many_renewals(void **state)
{
    struct top_events e = {0};
    dibs_client *c = NULL;
    dibs_lock **l = ts_alloc(MANY * sizeof *l);
    int64_t lease = ts_ms(6000);

    (void)state;
    want("opening",
         dibs_client_open(top.url,
                          DIBS_CLIENT_OPTS(.lease_ms = lease,
                                           .on_event = top_hear,
                                           .event_arg = &e),
                          &c),
         DIBS_OK);
    dibs_owner owner = dibs_owner_new(c);
    for (int i = 0; i < MANY; i++) {
        char name[40];
        snprintf(name, sizeof name, "many%d", i);
        l[i] = top_lock(c, i % 10 == 0 ? 2 : 0, name);
        want(name,
             dibs_lock_acquire(l[i],
                               DIBS_LOCK_OPTS(.owner = owner,
                                              .on_lost = top_lost, .arg = &e)),
             DIBS_OK);
    }
    long long before = renewals();
    int64_t from = ts_now_ms();
    TS_WAIT(ts_now_ms() > from + lease * 3 / 2);
    long long sent = renewals() - before;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(dibs_lock_state(l[i], owner), DIBS_HELD);
    assert_int_equal(atomic_load(&e.lost), 0);
    /* Each was renewed at least four times. */
    if (sent > 4 * MANY / 50 * 2 || sent < 4 * MANY / 200)
        fail_msg("%lld commands for %d locks", sent, MANY);
    for (int i = 0; i < MANY; i++) {
        want("giving back",
             dibs_lock_release(l[i], DIBS_LOCK_OPTS(.owner = owner)), DIBS_OK);
        dibs_lock_free(l[i]);
    }
    free(l);
    dibs_client_free(c);
    assert_int_equal(all_keys(), 0);
}

/* ---- slots that move --------------------------------------------------- */

/* The map is out of date: each lock is found anyway, held on, and its waiter is
 * woken where it is now. */
static void moved(void **state)
{
    struct top_events e = {0};
    dibs_client *c = open_client(&e), *other = open_client(NULL);

    (void)state;
    for (size_t k = 0; k < COUNT(top_kinds); k++) {
        char name[40];
        struct top_end end = {.err = DIBS_OK};
        snprintf(name, sizeof name, "moved%zu", k);
        int slot = top_slot(&top, name), from = top_owner(&top, slot);
        int to = (from + 1) % 3;
        size_t opposite = k == 2 ? 3 : k; /* a writer waits for a reader */
        dibs_lock *held = top_lock(c, k, name);
        dibs_lock *wanted = top_lock(other, opposite, name);
        want("taking",
             dibs_lock_acquire(held,
                               DIBS_LOCK_OPTS(.on_lost = top_lost, .arg = &e)),
             DIBS_OK);
        want("lining up",
             dibs_lock_acquire_async(wanted, NULL, top_ended, &end), DIBS_OK);
        top_move_slot(&top, slot, from, to);
        assert_true(ts_exists(top.node[to], name));
        if (k == 0) /* the one that waits listens there by now */
            TS_WAIT(numsub(top.node[to], true,
                           "redisson_lock__channel:{moved0}") == 1);
        want("nesting", dibs_lock_acquire(held, NULL), DIBS_OK);
        want("giving back", dibs_lock_release(held, NULL), DIBS_OK);
        assert_int_equal(dibs_lock_state(held, 0), DIBS_HELD);
        assert_false(atomic_load(&end.over));
        want("giving back", dibs_lock_release(held, NULL), DIBS_OK);
        want("waiting", top_wait(&end), DIBS_OK);
        want("giving back", dibs_lock_release(wanted, NULL), DIBS_OK);
        dibs_lock_free(held);
        dibs_lock_free(wanted);
        top_move_slot(&top, slot, to, from);
    }
    assert_int_equal(atomic_load(&e.lost), 0);
    dibs_client_free(c);
    dibs_client_free(other);
    assert_int_equal(all_keys(), 0);
}

#define HELD 48 /* so that several are in a batch */

/* Nothing is asked of the old node but a renewal: that finds its way too. */
static void renewed_after_a_move(void **state)
{
    struct top_events e = {0};
    dibs_client *c = open_client(&e);
    dibs_lock *l[HELD];
    int slot[HELD], from[HELD];

    (void)state;
    for (int i = 0; i < HELD; i++) {
        char name[40];
        snprintf(name, sizeof name, "renewed%d", i);
        slot[i] = top_slot(&top, name);
        from[i] = top_owner(&top, slot[i]);
        l[i] = top_lock(c, i % 2 ? 2 : 0, name);
        want("taking",
             dibs_lock_acquire(l[i],
                               DIBS_LOCK_OPTS(.on_lost = top_lost, .arg = &e)),
             DIBS_OK);
    }
    for (int i = 0; i < HELD; i += 8)
        top_move_slot(&top, slot[i], from[i], (from[i] + 1) % 3);
    int64_t start = ts_now_ms();
    TS_WAIT(ts_now_ms() > start + LEASE_MS / 2);
    for (int i = 0; i < HELD; i++) {
        TS_WAIT(dibs_lock_valid_ms(l[i], 0) > LEASE_MS / 2);
        assert_int_equal(dibs_lock_state(l[i], 0), DIBS_HELD);
        want("giving back", dibs_lock_release(l[i], NULL), DIBS_OK);
        dibs_lock_free(l[i]);
    }
    for (int i = 0; i < HELD; i += 8)
        top_move_slot(&top, slot[i], (from[i] + 1) % 3, from[i]);
    assert_int_equal(atomic_load(&e.lost), 0);
    dibs_client_free(c);
}

/* The slot is on its way: what is still there is served there, what is not is
 * asked for at the new place (ASK), and what is half there waits (TRYAGAIN). */
static void on_its_way(void **state)
{
    dibs_client *c = open_client(NULL);
    char tag[40], name[2][60];

    (void)state;
    top_name_in(&top, 5000, tag, sizeof tag);
    snprintf(name[0], sizeof name[0], "{%s}here", tag);
    snprintf(name[1], sizeof name[1], "{%s}there", tag);
    dibs_lock *here = top_lock(c, 0, name[0]), *there = top_lock(c, 0, name[1]);
    want("taking", dibs_lock_acquire(here, NULL), DIBS_OK);
    ts_reset_stats(top.node[1]);
    top_begin_move(&top, 5000, 0, 1);
    want("nesting", dibs_lock_acquire(here, NULL), DIBS_OK);
    want("taking", dibs_lock_acquire(there, NULL), DIBS_OK);
    assert_true(ts_exists(top.node[0], name[0]));
    assert_true(ts_command_calls(top.node[1], "asking") > 0);
    want("giving back", dibs_lock_release(there, NULL), DIBS_OK);
    want("trying", dibs_lock_try(there, NULL), DIBS_OK);

    /* A fair lock has three keys, and none of them is there: not before the
     * move is over. */
    struct top_end end = {.err = DIBS_OK};
    snprintf(name[1], sizeof name[1], "{%s}fair", tag);
    dibs_lock *fair = top_lock(c, 1, name[1]);
    want("starting", dibs_lock_acquire_async(fair, NULL, top_ended, &end),
         DIBS_OK);
    TS_WAIT(ts_command_calls(top.node[1], "asking") > 2);
    top_move_keys(&top, 5000, 0, 1);
    top_end_move(&top, 5000, 0, 1);
    want("waiting", top_wait(&end), DIBS_OK);
    want("giving back", dibs_lock_release(here, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(here, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(there, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(fair, NULL), DIBS_OK);
    dibs_lock_free(here);
    dibs_lock_free(there);
    dibs_lock_free(fair);
    top_move_slot(&top, 5000, 1, 0);
    dibs_client_free(c);
    assert_int_equal(all_keys(), 0);
}

/* ---- a fight, while the ground moves ----------------------------------- */

#define LOCKS   50
#define THREADS 6

struct fight {
    dibs_client *c[2];
    struct ts_witness *w;
    atomic_bool stop;
    atomic_uint rounds, odd;
    char problem[200];
};

struct fighter {
    struct fight *f;
    size_t number;
    pthread_t thread;
};

static void *fight(void *arg)
{
    struct fighter *me = arg;
    dibs_lock *l[LOCKS];
    unsigned seed = (unsigned)me->number;

    for (int i = 0; i < LOCKS; i++) {
        static const size_t kinds[] = {0, 1, 3};
        char name[40];
        snprintf(name, sizeof name, "fight%d", i);
        l[i] = top_lock(me->f->c[me->number % 2], kinds[i % 3], name);
    }
    while (!atomic_load(&me->f->stop)) {
        size_t i = (size_t)rand_r(&seed) % LOCKS;
        dibs_err err = dibs_lock_acquire(l[i], NULL);
        if (err == DIBS_OK && dibs_lock_valid_ms(l[i], 0) > LEASE_MS / 4) {
            ts_witness_enter(me->f->w, i, me->number);
            ts_witness_leave(me->f->w, i, me->number);
        }
        if (err == DIBS_OK)
            err = dibs_lock_release(l[i], NULL);
        if (err != DIBS_OK && atomic_fetch_add(&me->f->odd, 1) == 0)
            snprintf(me->f->problem, sizeof me->f->problem, "lock %zu: %s", i,
                     dibs_strerror(err));
        atomic_fetch_add(&me->f->rounds, 1);
    }
    for (int i = 0; i < LOCKS; i++)
        dibs_lock_free(l[i]);
    return NULL;
}

static void fight_start(struct fight *f, struct fighter *all)
{
    f->w = ts_witness_new(LOCKS, THREADS);
    f->c[0] = open_client(NULL);
    f->c[1] = open_client(NULL);
    for (size_t i = 0; i < THREADS; i++) {
        all[i] = (struct fighter){.f = f, .number = i};
        pthread_create(&all[i].thread, NULL, fight, &all[i]);
    }
}

static void fight_goes_on(struct fight *f)
{
    unsigned before = atomic_load(&f->rounds);

    TS_WAIT(atomic_load(&f->rounds) > before + 300);
}

static void fight_stop(struct fight *f, struct fighter *all)
{
    atomic_store(&f->stop, true);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(all[i].thread, NULL);
    dibs_client_free(f->c[0]);
    dibs_client_free(f->c[1]);
    if (ts_witness_violations(f->w))
        fail_msg("%s", ts_witness_first(f->w));
    assert_true(ts_witness_fewest(f->w) > 0);
    ts_witness_free(f->w);
}

/* Before anything moved. */
static int first_owner(int slot)
{
    return slot < 5461 ? 0 : slot < 10923 ? 1 : 2;
}

static bool fought_over(int slot)
{
    for (int i = 0; i < LOCKS; i++) {
        char name[40];
        int n = snprintf(name, sizeof name, "fight%d", i);
        if (dibs__hash_slot_of(name, (size_t)n) == slot)
            return true;
    }
    return false;
}

/* One after the other in one direction: nobody needs to wait for the gossip. */
static void move_quickly(int slot, int from, int to)
{
    top_begin_move(&top, slot, from, to);
    top_move_keys(&top, slot, from, to);
    top_end_move(&top, slot, from, to);
}

/* A thousand slots move, those of the locks among them. */
static void resharded(void **state)
{
    struct fight f = {.stop = false};
    struct fighter all[THREADS];

    (void)state;
    fight_start(&f, all);
    fight_goes_on(&f);
    for (int from = 0; from < 2; from++) {
        TS_WAIT(top_in_epoch(&top));
        for (int i = 0; i < LOCKS; i++) {
            char name[40];
            snprintf(name, sizeof name, "fight%d", i);
            int slot = top_slot(&top, name);
            if (first_owner(slot) <= from)
                move_quickly(slot, from, from + 1);
        }
        fight_goes_on(&f);
    }
    TS_WAIT(top_in_epoch(&top));
    for (int slot = 2000; slot < 2950; slot++)
        if (!fought_over(slot))
            move_quickly(slot, 0, 1);
    fight_goes_on(&f);
    fight_stop(&f, all);
    if (atomic_load(&f.odd))
        fail_msg("%u errors, the first: %s", atomic_load(&f.odd), f.problem);
    assert_int_equal(all_keys(), 0);
}

/* ---- nodes that end ---------------------------------------------------- */

/* A master ends while all is busy. Its replica takes over; what it had been
 * told of is held on, and everybody goes on. */
static void master_killed(void **state)
{
    struct top_events e = {0};
    struct fight f = {.stop = false};
    struct fighter all[THREADS];
    dibs_client *c = open_with(&e, DIBS_PUBSUB_AUTO, LONG_MS);
    dibs_client *other = open_client(NULL);
    struct top_end end = {.err = DIBS_OK};
    dibs_lock *held[COUNT(top_kinds)];
    char tag[40], name[80];

    (void)state;
    top_cluster_allow_failover(&top);
    top_name_in(&top, 7000, tag, sizeof tag);
    for (size_t k = 0; k < COUNT(top_kinds); k++) {
        snprintf(name, sizeof name, "{%s}%zu", tag, k);
        held[k] = top_lock(c, k, name);
        want("taking",
             dibs_lock_acquire(held[k],
                               DIBS_LOCK_OPTS(.on_lost = top_lost, .arg = &e)),
             DIBS_OK);
    }
    snprintf(name, sizeof name, "{%s}0", tag);
    dibs_lock *wanted = top_lock(other, 0, name);
    want("lining up", dibs_lock_acquire_async(wanted, NULL, top_ended, &end),
         DIBS_OK);
    fight_start(&f, all);
    fight_goes_on(&f);
    TS_WAIT(ts_int(top.node[1], "WAIT 1 100") == 1);
    ts_server_kill(top.node[1]);
    TS_WAIT(top_owner(&top, 7000) == 4);
    fight_goes_on(&f);
    for (size_t k = 0; k < COUNT(top_kinds); k++) {
        TS_WAIT(dibs_lock_valid_ms(held[k], 0) > LONG_MS * 9 / 10);
        assert_int_equal(dibs_lock_state(held[k], 0), DIBS_HELD);
    }
    assert_false(atomic_load(&end.over));
    for (size_t k = 0; k < COUNT(top_kinds); k++) {
        want("giving back", dibs_lock_release(held[k], NULL), DIBS_OK);
        dibs_lock_free(held[k]);
    }
    want("waiting", top_wait(&end), DIBS_OK);
    want("giving back", dibs_lock_release(wanted, NULL), DIBS_OK);
    assert_int_equal(atomic_load(&e.lost), 0);
    dibs_lock_free(wanted);
    fight_stop(&f, all);
    dibs_client_free(c);
    dibs_client_free(other);
    ts_server_restart(top.node[1]);
}

/* A master stops while all is busy, is replaced, and goes on later with what it
 * had not yet read: too late to change anything. */
static void master_stopped(void **state)
{
    struct top_events e = {0};
    struct fight f = {.stop = false};
    struct fighter all[THREADS];
    dibs_client *c = open_with(&e, DIBS_PUBSUB_AUTO, LONG_MS);
    char name[40];

    (void)state;
    top_cluster_allow_failover(&top);
    top_name_in(&top, 100, name, sizeof name);
    dibs_lock *held = top_lock(c, 0, name);
    want(
        "taking",
        dibs_lock_acquire(held, DIBS_LOCK_OPTS(.on_lost = top_lost, .arg = &e)),
        DIBS_OK);
    fight_start(&f, all);
    fight_goes_on(&f);
    TS_WAIT(ts_int(top.node[0], "WAIT 1 100") == 1);
    ts_server_pause(top.node[0]);
    TS_WAIT(top_believed(&top, 3, 100) == 3);
    fight_goes_on(&f);
    ts_server_resume(top.node[0]);
    TS_WAIT(top_believed(&top, 0, 100) == 3);
    fight_goes_on(&f);
    TS_WAIT(dibs_lock_valid_ms(held, 0) > LONG_MS * 9 / 10);
    assert_int_equal(dibs_lock_state(held, 0), DIBS_HELD);
    assert_int_equal(atomic_load(&e.lost), 0);
    want("giving back", dibs_lock_release(held, NULL), DIBS_OK);
    dibs_lock_free(held);
    fight_stop(&f, all);
    dibs_client_free(c);
}

/* The slots of a master without a replica are down; others go on. When it is
 * back, those who waited for it go on too. */
static void down_and_back(void **state)
{
    dibs_client *c = open_client(NULL);
    struct top_end end = {.err = DIBS_OK};
    char name[2][40];

    (void)state;
    ts_server_kill(top.node[5]);
    for (int i = 0; i < 5; i++)
        if (ts_server_pid(top.node[i]))
            ts_config_set(top.node[i], "cluster-require-full-coverage", "no");
    top_name_in(&top, 16000, name[0], sizeof name[0]);
    top_name_in(&top, 100, name[1], sizeof name[1]);
    dibs_lock *gone = top_lock(c, 0, name[0]), *good = top_lock(c, 0, name[1]);
    want("taking", dibs_lock_acquire(gone, NULL), DIBS_OK);
    want("giving back", dibs_lock_release(gone, NULL), DIBS_OK);
    ts_server_kill(top.node[2]);
    want("taking", dibs_lock_acquire(good, NULL), DIBS_OK);
    want("trying", dibs_lock_try(gone, NULL), DIBS_ERR_CONN);
    want("starting", dibs_lock_acquire_async(gone, NULL, top_ended, &end),
         DIBS_OK);
    want("giving back", dibs_lock_release(good, NULL), DIBS_OK);
    assert_false(atomic_load(&end.over));
    ts_server_restart(top.node[2]);
    want("waiting", top_wait(&end), DIBS_OK);
    want("giving back", dibs_lock_release(gone, NULL), DIBS_OK);
    dibs_lock_free(gone);
    dibs_lock_free(good);
    dibs_client_free(c);
}

/* What is between the first `from` and the next `to` on docs/guarantees.md;
 * free() it. */
static char *rule(const char *from, const char *to)
{
    FILE *f = fopen(DIBS_DOCS_DIR "/guarantees.md", "re");
    char *page = ts_alloc(200000);

    assert_non_null(f);
    assert_true(fread(page, 1, 199999, f) > 0);
    fclose(f);
    char *a = strstr(page, from);
    assert_non_null(a);
    a += strlen(from);
    *strstr(a, to) = '\0';
    char *found = ts_strdup(a);
    free(page);
    /* A bar in a table has a backslash before it. */
    for (char *at; (at = strstr(found, "\\|"));)
        memmove(at, at + 1, strlen(at));
    return found;
}

/* A user with the rights that the page names can use every kind, and nothing is
 * refused. */
static void rights(void **state)
{
    char *parts[] = {rule("ACL SETUSER jobs on >PASSWORD", "```"),
                     rule("| fair locks | `", "`"),
                     rule("| read-write locks | `", "`"),
                     rule("| a cluster | `", "`")};
    char *line = ts_text("ACL SETUSER jobs reset on >pass %s %s %s %s",
                         parts[0], parts[1], parts[2], parts[3]);
    const char *argv[128];
    int argc = 0;
    dibs_client *c = NULL;

    (void)state;
    for (char *save, *w = strtok_r(line, " \n", &save); w;
         w = strtok_r(NULL, " \n", &save))
        argv[argc++] = w;
    for (int i = 0; i < 6; i++) {
        redisReply *r = ts_cmdv(top.node[i], argc, argv, NULL);
        if (!r || r->type == REDIS_REPLY_ERROR)
            fail_msg("the page's rule: %s", r ? r->str : "no reply");
        freeReplyObject(r);
        ts_ok(top.node[i], "ACL LOG RESET");
    }
    want("opening",
         dibs_client_open(
             top.url, DIBS_CLIENT_OPTS(.user = "jobs", .password = "pass"), &c),
         DIBS_OK);
    top_all_kinds(c, "jobs:1");
    top_all_kinds(c, "jobs:2");
    for (size_t k = 0; k < COUNT(top_kinds); k++) { /* and waiting */
        struct top_end end = {.err = DIBS_OK};
        dibs_lock *l = top_lock(c, k, "jobs:3");
        dibs_owner other = dibs_owner_new(c);
        want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
        want("lining up",
             dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = other),
                                     top_ended, &end),
             DIBS_OK);
        want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
        want("waiting", top_wait(&end), DIBS_OK);
        want("giving back",
             dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = other)), DIBS_OK);
        dibs_lock_free(l);
    }
    dibs_client_free(c);
    for (int i = 0; i < 6; i++) {
        redisReply *r = ts_cmd(top.node[i], "ACL LOG");
        if (r->elements > 0)
            fail_msg("refused: %s", r->element[0]->element[7]->str);
        freeReplyObject(r);
    }
    free(line);
    for (size_t i = 0; i < COUNT(parts); i++)
        free(parts[i]);
}

static bool note_findings(const char *check, dibs_verdict verdict,
                          const char *text, void *arg)
{
    char *all = arg;
    size_t used = strlen(all);

    snprintf(all + used, 4000 - used, "%s %d %s\n", check, (int)verdict, text);
    return true;
}

/* The doctor looks at the rights that matter in a cluster. */
static void doctor(void **state)
{
    char all[4000] = "";
    dibs_client *c = NULL;

    (void)state;
    for (int i = 0; i < 6; i++)
        ts_ok(top.node[i],
              "ACL SETUSER mute reset on >pass ~* &* +@all -spublish -asking");
    want("opening",
         dibs_client_open(
             top.url, DIBS_CLIENT_OPTS(.user = "mute", .password = "pass"), &c),
         DIBS_OK);
    want("doctor", dibs_client_doctor(c, NULL, note_findings, all), DIBS_OK);
    assert_non_null(strstr(all, "sharded channels are used"));
    assert_non_null(strstr(all, "may not SPUBLISH: waiters"));
    assert_non_null(strstr(all, "may not ASKING: locks"));
    assert_null(strstr(all, "may not PUBLISH"));
    dibs_client_free(c);
}

/* What CLUSTER SLOTS calls the first node; "" for nil. */
static bool called(const char *name)
{
    bool yes = true;

    for (int i = 0; yes && i < 3; i++) {
        redisReply *r = ts_cmd(top.node[i], "CLUSTER SLOTS");
        for (size_t e = 0; r && e < r->elements; e++) {
            redisReply *host = r->element[e]->element[2]->element[0];
            yes &= host->type == REDIS_REPLY_NIL ? !*name
                                                 : !strcmp(host->str, name);
        }
        freeReplyObject(r);
    }
    return yes;
}

/* Nodes that are known by a name, and nodes that do not know their own. */
static void endpoints(void **state)
{
    static const char *const rows[][2] = {{"hostname", "localhost"},
                                          {"unknown-endpoint", ""},
                                          {"ip", "127.0.0.1"}};

    (void)state;
    for (int i = 0; i < 6; i++)
        ts_config_set(top.node[i], "cluster-announce-hostname", "localhost");
    for (size_t r = 0; r < COUNT(rows); r++) {
        for (int i = 0; i < 6; i++)
            ts_config_set(top.node[i], "cluster-preferred-endpoint-type",
                          rows[r][0]);
        TS_WAIT(called(rows[r][1]));
        dibs_client *c = open_client(NULL);
        char name[40];
        for (int i = 0; i < 6; i++) {
            snprintf(name, sizeof name, "endpoint%d", i);
            top_all_kinds(c, name);
        }
        /* And so says MOVED. */
        int slot = top_slot(&top, "endpoint"), from = top_owner(&top, slot);
        dibs_lock *l = top_lock(c, 0, "endpoint");
        want("taking", dibs_lock_acquire(l, NULL), DIBS_OK);
        if (from >= 0) {
            top_move_slot(&top, slot, from, (from + 1) % 3);
            want("nesting", dibs_lock_acquire(l, NULL), DIBS_OK);
            want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
            top_move_slot(&top, slot, (from + 1) % 3, from);
        }
        want("giving back", dibs_lock_release(l, NULL), DIBS_OK);
        dibs_lock_free(l);
        dibs_client_free(c);
    }
}

static void take_every_second(struct ts_server *s, int first)
{
    enum { HALF = DIBS__SLOTS / 2 };
    const char **argv = ts_alloc((HALF + 2) * sizeof *argv);
    char(*text)[8] = ts_alloc(HALF * sizeof *text);

    argv[0] = "CLUSTER";
    argv[1] = "ADDSLOTS";
    for (int i = 0; i < HALF; i++) {
        snprintf(text[i], sizeof text[i], "%d", 2 * i + first);
        argv[i + 2] = text[i];
    }
    redisReply *r = ts_cmdv(s, HALF + 2, argv, NULL);
    assert_true(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
    free(argv);
    free(text);
}

static bool whole(struct ts_server *s)
{
    char *text = ts_str(s, "CLUSTER INFO");
    bool ok = text && strstr(text, "cluster_state:ok") &&
              strstr(text, "cluster_known_nodes:2");

    free(text);
    return ok;
}

/* Every second slot is on the other node: the longest map there can be. */
static void map_in_pieces(void **state)
{
    static const char *const extra[] = {"--cluster-enabled", "yes", NULL};
    struct ts_server *a = ts_server_start(extra), *b = ts_server_start(extra);
    dibs_client *c = NULL;
    char url[100];

    (void)state;
    ts_ok(a, "CLUSTER SET-CONFIG-EPOCH 1");
    ts_ok(b, "CLUSTER SET-CONFIG-EPOCH 2");
    take_every_second(a, 0);
    take_every_second(b, 1);
    ts_ok(a, "CLUSTER MEET 127.0.0.1 %d", ts_server_port(b));
    TS_WAIT(whole(a) && whole(b));
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d",
             ts_server_port(a));
    want("opening", dibs_client_open(url, NULL, &c), DIBS_OK);
    ts_reset_stats(a);
    ts_reset_stats(b);
    for (int i = 0; i < 10; i++) {
        char name[40];
        snprintf(name, sizeof name, "piece%d", i);
        top_all_kinds(c, name);
    }
    assert_true(ts_command_calls(a, "eval") > 0);
    assert_true(ts_command_calls(b, "eval") > 0);
    dibs_client_free(c);
    ts_server_stop(a);
    ts_server_stop(b);
}

/* Not a cluster: it says so. Nobody there: it says that. */
static void no_cluster(void **state)
{
    struct ts_server *s = ts_server_start(NULL);
    struct top_events e = {0};
    char url[100];
    dibs_client *c = NULL;

    (void)state;
    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d",
             ts_server_port(s));
    want("opening",
         dibs_client_open(
             url, DIBS_CLIENT_OPTS(.on_event = top_hear, .event_arg = &e), &c),
         DIBS_ERR_SERVER);
    ts_server_kill(s);
    want("opening",
         dibs_client_open(url, DIBS_CLIENT_OPTS(.connect_timeout_ms = 300), &c),
         DIBS_ERR_CONN);
    ts_server_stop(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_the_servers),
        cmocka_unit_test(no_cluster),
        cmocka_unit_test(all_kinds),
        cmocka_unit_test(bad_names),
        cmocka_unit_test(rights),
        cmocka_unit_test(doctor),
        cmocka_unit_test(endpoints),
        cmocka_unit_test(map_in_pieces),
        cmocka_unit_test(looking),
        cmocka_unit_test(who_is_where),
        cmocka_unit_test(wake_ups),
        cmocka_unit_test(many_renewals),
        cmocka_unit_test(moved),
        cmocka_unit_test(renewed_after_a_move),
        cmocka_unit_test(on_its_way),
        cmocka_unit_test(resharded),
        cmocka_unit_test(master_killed),
        cmocka_unit_test(master_stopped),
        cmocka_unit_test(down_and_back),
    };

    if (argc > 1) /* one alone, or some: with a star */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, up, down);
}
