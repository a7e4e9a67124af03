/* SPDX-License-Identifier: MIT
 *
 * test_differ_pairs.c - two small servers say what two real ones say: a master
 * and its replica, two nodes of a cluster. And one a sentinel.
 */
#include "sim/differ.h"

/* ---- a replica --------------------------------------------------------- */

static bool is_synced(void *arg)
{
    char *text = ts_str(df_second.real, "INFO replication");
    bool up = strstr(text, "master_link_status:up");

    (void)arg;
    free(text);
    return up;
}

static void test_differ_replica(void **state)
{
    const char *const quick[] = {"--repl-diskless-sync-delay", "0", NULL};

    (void)state;
    df_first = df_start(quick, false);
    df_second = df_start(NULL, false);
    if (!df_comparable())
        skip();
    ts_ok(df_second.real, "REPLICAOF 127.0.0.1 %d",
          ts_server_port(df_first.real));
    if (!ts_wait_until(is_synced, NULL, TS_SOON))
        fail_msg("the real replica does not come up");
    sr_replicate(df_first.small, df_second.small);
    assert_true(df_file("differ_replica.txt", NULL) > 50);
}

/* ---- a cluster --------------------------------------------------------- */

static char *id_of(struct ts_server *s)
{
    return ts_str(s, "CLUSTER MYID");
}

static bool both_know(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) {
        struct ts_server *s = i ? df_second.real : df_first.real;
        struct ts_server *other = i ? df_first.real : df_second.real;
        char *id = id_of(other);
        char *nodes = ts_str(s, "CLUSTER NODES");
        char *at = strstr(nodes, id);
        bool knows = at && !strstr(nodes, "handshake") &&
                     strstr(nodes, i ? " 0-8191" : " 8192-16383");
        free(id);
        free(nodes);
        if (!knows)
            return false;
    }
    return true;
}

static bool cluster_is_up(struct ts_server *s)
{
    char *text = ts_str(s, "CLUSTER INFO");
    bool up = strstr(text, "cluster_state:ok");

    free(text);
    return up;
}

/* One slot, in both views of the real ones and of the small ones. */
static void set_slot(int slot, const char *what, struct df_pair *one,
                     struct df_pair *other)
{
    char *id = id_of(other->real);

    ts_ok(one->real, "CLUSTER SETSLOT %d %s %s", slot, what, id);
    free(id);
    sr_slot_move(one->small, slot,
                 strcmp(what, "MIGRATING") == 0 ? SR_MIGRATING : SR_IMPORTING,
                 other->small);
}

static void special(const char *text)
{
    int slot = atoi(strchr(text, ' '));

    if (strncmp(text, "nobody", 6) == 0) {
        ts_ok(df_first.real, "CLUSTER DELSLOTS %d", slot);
        ts_ok(df_second.real, "CLUSTER DELSLOTS %d", slot);
        sr_slots_assign(df_first.small, slot, slot, NULL);
        sr_slots_assign(df_second.small, slot, slot, NULL);
    } else if (strncmp(text, "back", 4) == 0) {
        char *id = id_of(df_first.real);
        ts_ok(df_first.real, "CLUSTER ADDSLOTS %d", slot);
        ts_ok(df_second.real, "CLUSTER SETSLOT %d NODE %s", slot, id);
        free(id);
        sr_slots_assign(df_first.small, slot, slot, df_first.small);
        sr_slots_assign(df_second.small, slot, slot, df_first.small);
    } else if (strncmp(text, "move", 4) == 0) {
        set_slot(slot, "MIGRATING", &df_first, &df_second);
        set_slot(slot, "IMPORTING", &df_second, &df_first);
    } else {
        ts_ok(df_first.real, "CLUSTER SETSLOT %d STABLE", slot);
        ts_ok(df_second.real, "CLUSTER SETSLOT %d STABLE", slot);
        sr_slot_move(df_first.small, slot, SR_STABLE, NULL);
        sr_slot_move(df_second.small, slot, SR_STABLE, NULL);
    }
}

static void assign_all(struct sr_server *s)
{
    sr_slots_assign(s, 0, 8191, df_first.small);
    sr_slots_assign(s, 8192, SR_SLOTS - 1, df_second.small);
}

static void test_differ_cluster(void **state)
{
    const char *const nodes[] = {"--cluster-enabled", "yes",
                                 "--cluster-require-full-coverage", "no", NULL};

    (void)state;
    df_first = df_start(nodes, true);
    df_second = df_start(nodes, true);
    if (!df_comparable())
        skip();
    ts_ok(df_first.real, "CLUSTER ADDSLOTSRANGE 0 8191");
    ts_ok(df_second.real, "CLUSTER ADDSLOTSRANGE 8192 16383");
    ts_ok(df_second.real, "CLUSTER SET-CONFIG-EPOCH 2");
    ts_ok(df_first.real, "CLUSTER MEET 127.0.0.1 %d",
          ts_server_port(df_second.real));
    if (!ts_wait_until(both_know, NULL, TS_SOON))
        fail_msg("the real cluster does not come up");
    assign_all(df_first.small);
    assign_all(df_second.small);
    TS_WAIT(cluster_is_up(df_first.real));
    TS_WAIT(cluster_is_up(df_second.real));
    assert_true(df_file("differ_cluster.txt", special) > 50);
}

/* ---- a sentinel -------------------------------------------------------- */

static void test_differ_sentinel(void **state)
{
    (void)state;
    df_first = df_start_sentinel("sentinel monitor jobs 127.0.0.1 1 1");
    if (!df_comparable())
        skip();
    sr_sentinel_master(df_first.small, "jobs", "127.0.0.1", 1);
    assert_true(df_file("differ_sentinel.txt", NULL) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_differ_replica, df_down),
        cmocka_unit_test_teardown(test_differ_cluster, df_down),
        cmocka_unit_test_teardown(test_differ_sentinel, df_down),
    };

    return cmocka_run_group_tests_name("sim differ pairs", tests, NULL, NULL);
}
