/* SPDX-License-Identifier: MIT
 *
 * topology_track.c - a holder hears at once of a change of its key: on every
 * node of a cluster, where a slot went, and from the next master.
 *
 * The leases are ten minutes: what a test waits for comes from no renewal.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "topology/kit.h"

#define LEASE_MS 600000
#define NAMES    12 /* enough to have some on each of three nodes */

static dibs_client *open_at(const char *url)
{
    dibs_client *c = NULL;

    want("opening",
         dibs_client_open(url, DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS), &c),
         DIBS_OK);
    return c;
}

static dibs_lock *hold(dibs_client *c, size_t kind, const char *name,
                       struct top_events *e)
{
    dibs_lock *l = top_lock(c, kind, name);

    want("taking",
         dibs_lock_acquire(l, DIBS_LOCK_OPTS(.on_lost = top_lost, .arg = e)),
         DIBS_OK);
    return l;
}

static long long tracked(struct ts_server *s)
{
    return ts_info(s, "stats", "tracking_total_keys");
}

static void gone(dibs_lock *l)
{
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    want("giving back", dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
}

/* ---- a cluster --------------------------------------------------------- */

static void test_track_every_node(void **state)
{
    struct top_cluster t;
    struct top_events e = {0};
    dibs_lock *l[NAMES];
    char name[NAMES][32];
    int where[NAMES];
    long long on[6] = {0};

    (void)state;
    top_cluster_start(&t, NULL);
    dibs_client *c = open_at(t.url);
    for (int i = 0; i < NAMES; i++) {
        snprintf(name[i], sizeof name[i], "track:%d", i);
        where[i] = top_owner(&t, top_slot(&t, name[i]));
        on[where[i]] += i % 4 == 2 ? 2 : 1; /* a reader has two keys */
        l[i] = hold(c, (size_t)i % 4, name[i], &e);
    }
    assert_true(on[0] && on[1] && on[2]);
    for (int i = 0; i < 3; i++)
        TS_WAIT(tracked(t.node[i]) == on[i]);
    assert_int_equal(atomic_load(&e.lost), 0);
    for (int i = 0; i < NAMES; i++)
        ts_ok(t.node[where[i]], "DEL %s", name[i]);
    TS_WAIT(atomic_load(&e.lost) == NAMES);
    for (int i = 0; i < NAMES; i++)
        gone(l[i]);

    /* A slot goes elsewhere, and what is held goes on there. */
    top_name_in(&t, 5000, name[0], sizeof name[0]);
    int from = top_owner(&t, 5000), to = (from + 1) % 3;
    l[0] = hold(c, 0, name[0], &e);
    TS_WAIT(tracked(t.node[from]) > 0);
    top_move_slot(&t, 5000, from, to);
    TS_WAIT(tracked(t.node[to]) > 0);
    assert_int_equal(dibs_lock_state(l[0], 0), DIBS_HELD);
    ts_ok(t.node[to], "DEL %s", name[0]);
    gone(l[0]);
    dibs_client_free(c);
    top_cluster_stop(&t);
}

/* ---- sentinels --------------------------------------------------------- */

static void test_track_next_master(void **state)
{
    struct top_sentinels t;
    struct top_events e = {0};
    dibs_lock *l[2];

    (void)state;
    top_sentinels_start(&t);
    top_sentinels_patience(&t, TOP_IMPATIENT_MS);
    dibs_client *c = open_at(t.url);
    int old = top_master(&t);
    l[0] = hold(c, 0, "one", &e);
    l[1] = hold(c, 1, "two", &e);
    TS_WAIT(tracked(t.server[old]) == 2);
    ts_ok(t.server[old], "DEL one");
    TS_WAIT(atomic_load(&e.lost) == 1); /* a release would tell it, too */
    gone(l[0]);
    top_in_step(&t, old);
    ts_server_kill(t.server[old]);
    int now = top_master_after(&t, old);
    TS_WAIT(tracked(t.server[now]) == 1);
    assert_int_equal(dibs_lock_state(l[1], 0), DIBS_HELD);
    ts_ok(t.server[now], "DEL two");
    TS_WAIT(atomic_load(&e.lost) == 2);
    gone(l[1]);
    dibs_client_free(c);
    top_sentinels_stop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_track_every_node),
        cmocka_unit_test(test_track_next_master),
    };

    return cmocka_run_group_tests_name("track", tests, NULL, NULL);
}
