/* SPDX-License-Identifier: MIT
 *
 * fault_reconnect.c - after a connection was made again, holders know at once
 * whether they still hold.
 *
 * Leases are so long that no renewal is due while a test runs: whatever is
 * heard, is heard because of the connection.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <string.h>

#define LEASE_MS 600000 /* the first renewal is due after minutes */

static const struct {
    const char *name;
    dibs_err (*make)(dibs_client *c, const char *name, dibs_lock **out);
} kinds[] = {
    {"plain", dibs_lock_new},
    {"fair", dibs_fair_lock_new},
    {"read", dibs_read_lock_new},
    {"write", dibs_write_lock_new},
};

/* How it is held. */
static const struct {
    const char *name;
    int64_t lease_ms, max_hold_ms;
    int levels;
} ways[] = {
    {"renewed", 0, 0, 1},
    {"fixed", LEASE_MS, 0, 1},
    {"twice", 0, 0, 2},
    {"limited", 0, LEASE_MS / 2, 1},
};

#define HOLDS (COUNT(kinds) * COUNT(ways))

struct holds {
    struct kit_client *k;
    dibs_lock *l[HOLDS];
    atomic_int lost[HOLDS];
    char name[HOLDS][32];
};

static void holds_take(struct holds *h)
{
    memset(h, 0, sizeof *h);
    h->k = kit_open(&(struct kit_opts){.lease_ms = LEASE_MS});
    for (size_t i = 0; i < HOLDS; i++) {
        size_t kind = i % COUNT(kinds), way = i / COUNT(kinds);
        snprintf(h->name[i], sizeof h->name[i], "%s:%s", kinds[kind].name,
                 ways[way].name);
        kit_want(h->name[i], kinds[kind].make(h->k->c, h->name[i], &h->l[i]),
                 DIBS_OK);
        for (int n = 0; n < ways[way].levels; n++)
            kit_want(
                h->name[i],
                dibs_lock_acquire(
                    h->l[i],
                    DIBS_LOCK_OPTS(.lease_ms = ways[way].lease_ms,
                                   .max_hold_ms = ways[way].max_hold_ms,
                                   .on_lost = kit_lost, .arg = &h->lost[i])),
                DIBS_OK);
    }
}

static void holds_free(struct holds *h)
{
    for (size_t i = 0; i < HOLDS; i++)
        dibs_lock_free(h->l[i]);
    kit_close(h->k);
}

/* ---- the server forgot ------------------------------------------------- */

static void test_reconnect_restarted_empty(void **state)
{
    struct holds h;

    (void)state;
    holds_take(&h);
    ts_server_restart(kit_srv);
    for (size_t i = 0; i < HOLDS; i++) {
        int levels = ways[i / COUNT(kinds)].levels;
        TS_WAIT(atomic_load(&h.lost[i]) == levels);
        assert_int_equal(dibs_lock_state(h.l[i], 0), DIBS_LOST);
        for (int n = 0; n < levels; n++)
            kit_want(h.name[i], dibs_lock_release(h.l[i], NULL), DIBS_ERR_LOST);
        kit_want(h.name[i], dibs_lock_try(h.l[i], NULL), DIBS_OK);
        kit_want(h.name[i], dibs_lock_release(h.l[i], NULL), DIBS_OK);
        assert_int_equal(atomic_load(&h.lost[i]), levels);
    }
    holds_free(&h);
}

/* Somebody else was quicker: one must not be told of the other's hold. */
static void test_reconnect_taken_by_another(void **state)
{
    struct holds h;
    struct kit_client *other = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *theirs = kit_lock(other, "plain:fixed");

    (void)state;
    holds_take(&h);
    ts_proxy_refuse(kit_px, true);
    ts_proxy_kill_all(kit_px, false);
    ts_ok(kit_srv, "FLUSHALL");
    kit_want("theirs", dibs_lock_acquire(theirs, NULL), DIBS_OK);
    ts_proxy_refuse(kit_px, false);
    for (size_t i = 0; i < HOLDS; i++)
        TS_WAIT(atomic_load(&h.lost[i]) == ways[i / COUNT(kinds)].levels);
    assert_int_equal(dibs_lock_state(theirs, 0), DIBS_HELD);
    kit_want("theirs", dibs_lock_release(theirs, NULL), DIBS_OK);
    dibs_lock_free(theirs);
    kit_close(other);
    holds_free(&h);
}

/* ---- it did not -------------------------------------------------------- */

/* All are still held, and what has a fixed end still ends then. */
static void test_reconnect_nothing_lost(void **state)
{
    struct holds h;
    long long ttl[HOLDS];

    (void)state;
    holds_take(&h);
    for (size_t i = 0; i < HOLDS; i++)
        ttl[i] = ts_pttl(kit_srv, h.name[i]);
    unsigned before = ts_proxy_requests(kit_px, "EVALSHA");
    ts_proxy_kill_all(kit_px, false);
    /* One batch for the hashes, one for the readers. */
    assert_true(ts_proxy_wait_requests(kit_px, "EVALSHA", before + 2, TS_SOON));
    kit_want("a call behind them",
             dibs_lock_info_get(h.l[0], &(dibs_lock_info)DIBS_LOCK_INFO_INIT),
             DIBS_OK);
    for (size_t i = 0; i < HOLDS; i++) {
        assert_int_equal(dibs_lock_state(h.l[i], 0), DIBS_HELD);
        if (ways[i / COUNT(kinds)].lease_ms &&
            ts_pttl(kit_srv, h.name[i]) > ttl[i])
            fail_msg("%s: it lasts longer now", h.name[i]);
        for (int n = 0; n < ways[i / COUNT(kinds)].levels; n++)
            kit_want(h.name[i], dibs_lock_release(h.l[i], NULL), DIBS_OK);
        assert_int_equal(atomic_load(&h.lost[i]), 0);
    }
    holds_free(&h);
}

/* ---- many -------------------------------------------------------------- */

#define MANY 1000

static void test_reconnect_many(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lease_ms = LEASE_MS});
    dibs_lock **l = ts_alloc(MANY * sizeof *l);
    atomic_int lost = 0;
    char name[32];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "many:%d", i);
        l[i] = kit_lock(k, name);
        kit_want(name,
                 dibs_lock_acquire(
                     l[i], DIBS_LOCK_OPTS(.lease_ms = i % 2 ? LEASE_MS : 0,
                                          .on_lost = kit_lost, .arg = &lost)),
                 DIBS_OK);
    }
    unsigned before = ts_proxy_requests(kit_px, "EVAL*");
    ts_proxy_kill_all(kit_px, false);
    TS_WAIT(ts_proxy_requests(kit_px, "EVAL*") > before);
    kit_want("a call behind them", dibs_lock_try(l[0], NULL), DIBS_OK);
    kit_want("and back", dibs_lock_release(l[0], NULL), DIBS_OK);
    unsigned sent = ts_proxy_requests(kit_px, "EVAL*") - before;
    if (sent > MANY / 100 + 4) /* those two; some that were asked for twice */
        fail_msg("%u commands for %d holds", sent, MANY);
    assert_int_equal(atomic_load(&lost), 0);
    ts_server_restart(kit_srv);
    TS_WAIT(atomic_load(&lost) == MANY);
    for (int i = 0; i < MANY; i++)
        dibs_lock_free(l[i]);
    free(l);
    kit_close(k);
}

/* ---- no answer --------------------------------------------------------- */

/* The first question is lost, too: it is asked again, and soon. */
static void test_reconnect_question_lost(void **state)
{
    struct kit_client *k = kit_open(
        &(struct kit_opts){.lease_ms = LEASE_MS, .timeout_ms = kit_ms(300)});
    dibs_lock *l = kit_lock(k, "l");
    atomic_int lost = 0;

    (void)state;
    kit_load(&dibs__script_mutex_renew);
    kit_want(
        "taking",
        dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = LEASE_MS,
                                            .on_lost = kit_lost, .arg = &lost)),
        DIBS_OK);
    int rule =
        kit_rule(&dibs__script_mutex_renew, "l",
                 &(struct ts_rule){.action = TS_SWALLOW_REPLY, .count = 3});
    ts_proxy_kill_all(kit_px, false);
    assert_true(ts_rule_wait(kit_px, rule, 3, TS_SOON));
    ts_ok(kit_srv, "DEL l");
    TS_WAIT(atomic_load(&lost) == 1);
    kit_want("giving back", dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(k);
}

#define KIT_TEST(f) cmocka_unit_test_setup(f, kit_fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_reconnect_restarted_empty),
        KIT_TEST(test_reconnect_taken_by_another),
        KIT_TEST(test_reconnect_nothing_lost),
        KIT_TEST(test_reconnect_many),
        KIT_TEST(test_reconnect_question_lost),
    };

    return cmocka_run_group_tests_name("fault.reconnect", tests, kit_up,
                                       kit_down);
}
