/* SPDX-License-Identifier: MIT
 *
 * test_multi_hold.c - how often and how long a multi lock is held: renewed, for
 * a lease of its own, for a limited time; and how it is lost: with any of its
 * members, told once, and the others are given back.
 */
#include "server/multi_kit.h"

#define EVERYWHERE "pa wb rc fd pe@1 wf@2"

static struct world open_world(int64_t lease_ms)
{
    return kit_world(DIBS_CLIENT_OPTS(.lease_ms = lease_ms));
}

/* ---- re-entry ---------------------------------------------------------- */

static void test_multi_hold_reentry(void **state)
{
    struct world w = kit_world(NULL);
    static const char *const text = "wc pa rb@1 fd pe@2";
    dibs_lock *g = kit_group(&w, text);

    (void)state;
    for (int i = 1; i <= 3; i++) {
        FINE(dibs_lock_acquire(g, NULL));
        kit_have(&w, text, 0, i);
        assert_int_equal(dibs_lock_holds(g, 0), i);
    }
    WANT(kit_elsewhere(g, NULL, dibs_lock_try), DIBS_ERR_BUSY);
    kit_have(&w, text, 0, 3);
    for (int i = 2; i >= 0; i--) {
        FINE(dibs_lock_release(g, NULL));
        assert_int_equal(dibs_lock_holds(g, 0), i);
        if (i)
            kit_have(&w, text, 0, i);
    }
    WANT(dibs_lock_release(g, NULL), DIBS_ERR_NOT_OWNER);
    kit_keys(text, 0, 0);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* Two groups with a member in common, and the member by itself. */
static void test_multi_hold_shared_member(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *ab = kit_group(&w, "pa pb"), *bc = kit_group(&w, "wc pb");
    dibs_lock *b = kit_one(&w, "pb");

    (void)state;
    FINE(dibs_lock_acquire(b, NULL));
    FINE(dibs_lock_acquire(ab, NULL));
    FINE(dibs_lock_acquire(bc, NULL));
    kit_have(&w, "pb", 0, 3);
    FINE(dibs_lock_release(ab, NULL));
    assert_false(ts_exists(srv, "a"));
    assert_int_equal(dibs_lock_state(bc, 0), DIBS_HELD);
    kit_have(&w, "pb", 0, 2);
    kit_have(&w, "wc", 0, 1);
    FINE(dibs_lock_release(b, NULL));
    FINE(dibs_lock_release(bc, NULL));
    kit_keys("shared", 0, 0);
    WANT(dibs_lock_release(b, NULL), DIBS_ERR_NOT_OWNER);
    dibs_lock_free(b);
    dibs_lock_free(ab);
    dibs_lock_free(bc);
    kit_world_end(&w);
}

/* A member by itself and the group, given back in the order in which they were
 * taken: what is left goes on as it was asked for. */
static void test_multi_hold_overlap(void **state)
{
    struct world w = kit_world(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *g = kit_group(&w, "pa pb"), *a = kit_one(&w, "pa");
    struct lost lost = {0};

    (void)state;
    FINE(dibs_lock_acquire(a, NULL));
    FINE(dibs_lock_acquire(g,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    FINE(dibs_lock_release(a, NULL));
    ts_ok(srv, "DEL a");
    TS_WAIT(atomic_load(&lost.times) == 1); /* the group's, not the other's */
    WANT(dibs_lock_release(g, NULL), DIBS_ERR_LOST);

    FINE(dibs_lock_acquire(g, DIBS_LOCK_OPTS(.lease_ms = kit_lease())));
    FINE(dibs_lock_acquire(a, NULL));
    int64_t until = ts_now_ms() + 3 * kit_lease() / 2;
    FINE(dibs_lock_release(g, NULL));
    TS_WAIT(ts_now_ms() >= until); /* renewed, as nobody asked for an end */
    TS_WAIT(dibs_lock_state(a, 0) == DIBS_HELD);
    FINE(dibs_lock_release(a, NULL));
    dibs_lock_free(a);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* Somebody gives back a member behind the group's back: that is a loss of the
 * group, the rest is given back anyway. */
static void test_multi_hold_member_given_back(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb pc@2"), *b = kit_one(&w, "pb");

    (void)state;
    FINE(dibs_lock_acquire(g, NULL));
    FINE(dibs_lock_release(b, NULL));
    assert_int_equal(dibs_lock_state(g, 0), DIBS_LOST);
    assert_int_equal(dibs_lock_valid_ms(g, 0), 0);
    assert_int_equal(kit_member(g, 1, 0).state, DIBS_LOST);
    assert_int_equal(kit_member(g, 0, 0).state, DIBS_HELD);
    assert_int_not_equal(dibs_lock_release(g, NULL), DIBS_OK);
    kit_keys("given back", 0, 0);
    dibs_lock_free(b);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* The same with one that is lost: who gives back the member learns of it. */
static void test_multi_hold_lost_member_given_back(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb"), *a = kit_one(&w, "pa");
    struct lost lost = {0};

    (void)state;
    FINE(dibs_lock_acquire(g,
                           DIBS_LOCK_OPTS(.lease_ms = kit_short(),
                                          .on_lost = kit_lose, .arg = &lost)));
    TS_WAIT(dibs_lock_state(a, 0) == DIBS_LOST);
    WANT(dibs_lock_release(a, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(a, NULL), DIBS_ERR_NOT_OWNER);
    assert_int_not_equal(dibs_lock_release(g, NULL), DIBS_OK);
    assert_true(atomic_load(&lost.times) <= 1);
    WANT(dibs_lock_release(g, NULL), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_acquire(g, AT_LEISURE));
    FINE(dibs_lock_release(g, NULL));
    dibs_lock_free(a);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* ---- renewed ----------------------------------------------------------- */

/* Every member is renewed, longer than its lease. */
static void test_multi_hold_renewed(void **state)
{
    struct world w = open_world(kit_lease());
    dibs_lock *g = kit_group(&w, EVERYWHERE);
    struct lost lost = {.times = 0};

    (void)state;
    FINE(dibs_lock_acquire(g,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    int64_t start = ts_now_ms();
    TS_WAIT(ts_now_ms() > start + 3 * kit_lease() / 2);
    TS_WAIT(dibs_lock_state(g, 0) == DIBS_HELD);
    assert_in_range(dibs_lock_valid_ms(g, 0), 1, kit_lease());
    kit_have(&w, EVERYWHERE, 0, 1);
    FINE(dibs_lock_release(g, NULL));
    kit_keys("renewed", 0, 0);
    assert_int_equal(atomic_load(&lost.times), 0);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* The group is no longer valid than the first of its members to end. */
static void test_multi_hold_shortest_counts(void **state)
{
    struct world w = open_world(LONG_MS);
    dibs_lock *g = kit_group(&w, "pa pb");
    dibs_lock *a = kit_one(&w, "pa");

    (void)state;
    FINE(dibs_lock_acquire(a, DIBS_LOCK_OPTS(.lease_ms = 400000)));
    FINE(dibs_lock_acquire(g, DIBS_LOCK_OPTS(.lease_ms = 100000)));
    assert_in_range(dibs_lock_valid_ms(g, 0), 50000, 100000);
    assert_in_range(dibs_lock_valid_ms(a, 0), 200000, 400000);
    assert_in_range(ts_pttl(srv, "a"), 200000, 400000);
    FINE(dibs_lock_release(g, NULL));
    FINE(dibs_lock_release(a, NULL));
    dibs_lock_free(a);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* ---- a lease of its own ------------------------------------------------ */

/* It ends by itself, everywhere, and is told. */
static void lease_ends(dibs_lock *g, struct lost *lost, int64_t lease)
{
    assert_int_equal(dibs_lock_state(g, 0), DIBS_HELD);
    assert_in_range(dibs_lock_valid_ms(g, 0), 1, lease);
    TS_WAIT(dibs_lock_state(g, 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&lost->times) > 0);
    TS_WAIT(ts_nkeys(srv) == 0 && ts_nkeys(srv2) == 0);
    WANT(dibs_lock_release(g, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(g, NULL), DIBS_ERR_NOT_OWNER);
    assert_int_equal(atomic_load(&lost->times), 1);
}

static void test_multi_hold_lease(void **state)
{
    struct world w = open_world(LONG_MS);
    dibs_lock *g = kit_group(&w, EVERYWHERE);
    struct lost lost = {.times = 0};

    (void)state;
    FINE(dibs_lock_acquire(g,
                           DIBS_LOCK_OPTS(.lease_ms = kit_short(),
                                          .on_lost = kit_lose, .arg = &lost)));
    lease_ends(g, &lost, kit_short());
    FINE(dibs_lock_acquire(g, NULL));
    kit_have(&w, EVERYWHERE, 0, 1);
    FINE(dibs_lock_release(g, NULL));
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* It had to wait for one of them for longer than the lease. What it had by
 * then was kept; and the lease is what was asked for, for all of them. */
static void lease_after_wait(struct world *w, const char *text, size_t late)
{
    struct word is[WORDS_MAX];
    dibs_lock *g = kit_group(w, text);
    struct lost lost = {.times = 0};
    struct told told = {.times = 0};
    int64_t lease = kit_short();

    kit_words(text, is);
    kit_block(&is[late], 0);
    FINE(dibs_lock_acquire_async(
        g, DIBS_LOCK_OPTS(.lease_ms = lease, .on_lost = kit_lose, .arg = &lost),
        kit_tell, &told));
    int64_t over = ts_now_ms() + 3 * lease / 2;
    TS_WAIT(ts_now_ms() > over);
    int64_t freed = ts_now_ms();
    kit_unblock(&is[late]);
    FINE(kit_answer(&told));
    kit_have(w, text, 0, 1);
    /* What has passed by now is of the new lease. */
    int64_t valid = dibs_lock_valid_ms(g, 0);
    assert_in_range(valid + ts_now_ms() - freed, lease / 2, TS_SOON);
    lease_ends(g, &lost, lease);
    dibs_lock_free(g);
}

static void test_multi_hold_lease_after_wait(void **state)
{
    struct world w = open_world(LONG_MS);

    (void)state;
    lease_after_wait(&w, "pa pb pc", 2);
    lease_after_wait(&w, "pa pb pc", 1);
    kit_world_end(&w);
}

static void test_multi_hold_lease_after_wait_of_others(void **state)
{
    struct world w = open_world(LONG_MS);

    (void)state;
    lease_after_wait(&w, "ra wb pc", 2);
    lease_after_wait(&w, "pa@2 pb", 0);
    kit_world_end(&w);
}

static void test_multi_hold_max_hold(void **state)
{
    struct world w = open_world(kit_lease());
    dibs_lock *g = kit_group(&w, EVERYWHERE);
    struct lost lost = {.times = 0};
    int64_t most = 2 * kit_lease();

    (void)state;
    FINE(dibs_lock_acquire(g,
                           DIBS_LOCK_OPTS(.max_hold_ms = most,
                                          .on_lost = kit_lose, .arg = &lost)));
    lease_ends(g, &lost, most);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* ---- loss -------------------------------------------------------------- */

/* A member's key goes; the next renewal finds out. */
static void lose_one(struct world *w, size_t which, int levels)
{
    struct word is[WORDS_MAX];
    size_t n = kit_words(EVERYWHERE, is);
    dibs_lock *g = kit_group(w, EVERYWHERE);
    struct lost lost[2] = {{.times = 0}};

    for (int i = 0; i < levels; i++)
        FINE(dibs_lock_acquire(
            g, DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost[i])));
    ts_ok(kit_server(&is[which]), "DEL %s", is[which].name);
    TS_WAIT(atomic_load(&lost[0].times) == 1);
    TS_WAIT(atomic_load(&lost[levels - 1].times) == 1);
    assert_true(strcmp(lost[0].lock, "a,b,c,d,e,f") == 0 ||
                strcmp(lost[0].lock, "f,a,b,c,d,e") == 0); /* by server */
    assert_true(lost[0].owner == dibs_owner_thread(w->c[0]));
    assert_int_equal(dibs_lock_state(g, 0), DIBS_LOST);
    assert_int_equal(dibs_lock_valid_ms(g, 0), 0);
    assert_int_equal(dibs_lock_holds(g, 0), 0);
    for (size_t i = 0; i < n; i++) {
        dibs_member m = kit_member(g, i, 0);
        assert_int_equal(m.state, i == which ? DIBS_LOST : DIBS_HELD);
        assert_int_equal(m.verdict, i == which ? DIBS_ERR_LOST : DIBS_OK);
    }
    for (int i = 0; i < levels; i++)
        WANT(dibs_lock_release(g, NULL), DIBS_ERR_LOST);
    TS_WAIT(ts_nkeys(srv) == 0); /* a lone read key ends with its lease */
    kit_keys(is[which].name, 0, 0);
    WANT(dibs_lock_release(g, NULL), DIBS_ERR_NOT_OWNER);
    for (int i = 0; i < levels; i++)
        assert_int_equal(atomic_load(&lost[i].times), 1);
    FINE(dibs_lock_acquire(g, NULL));
    kit_have(w, EVERYWHERE, 0, 1);
    FINE(dibs_lock_release(g, NULL));
    dibs_lock_free(g);
}

static void test_multi_hold_loss_of_one(void **state)
{
    struct world w = open_world(kit_lease());

    (void)state;
    for (size_t i = 0; i < 6; i++)
        lose_one(&w, i, 1 + i % 2);
    kit_world_end(&w);
}

/* All are lost at once: still told once. */
static void test_multi_hold_loss_of_all(void **state)
{
    struct world w = open_world(kit_lease());
    dibs_lock *g = kit_group(&w, EVERYWHERE);
    struct lost lost = {.times = 0};

    (void)state;
    FINE(dibs_lock_acquire(g,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    ts_ok(srv, "FLUSHALL");
    ts_ok(srv2, "FLUSHALL");
    for (size_t i = 0; i < 6; i++)
        TS_WAIT(kit_member(g, i, 0).state == DIBS_LOST);
    TS_WAIT(atomic_load(&lost.times) > 0);
    WANT(dibs_lock_release(g, NULL), DIBS_ERR_LOST);
    kit_world_end(&w); /* all callbacks have run */
    assert_int_equal(atomic_load(&lost.times), 1);
    dibs_lock_free(g);
}

/* The release finds out, and the others are free. */
static void test_multi_hold_loss_at_release(void **state)
{
    struct world w = open_world(LONG_MS);
    struct word is[WORDS_MAX];
    size_t n = kit_words(EVERYWHERE, is);
    dibs_lock *g = kit_group(&w, EVERYWHERE);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        FINE(dibs_lock_acquire(g, NULL));
        ts_ok(kit_server(&is[i]), "DEL %s", is[i].name);
        WANT(dibs_lock_release(g, NULL), DIBS_ERR_LOST);
        TS_WAIT(ts_nkeys(srv) == 0); /* a read key may be left to the reaper */
        kit_keys(is[i].name, 0, 0);
        WANT(dibs_lock_release(g, NULL), DIBS_ERR_NOT_OWNER);
    }
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* Something else is there by now: it stays, the others are free. */
static void test_multi_hold_other_type_at_release(void **state)
{
    struct world w = open_world(LONG_MS);
    struct word is[WORDS_MAX];
    size_t n = kit_words("pa wb pc pd@2", is);
    dibs_lock *g = kit_group(&w, "pa wb pc pd@2");

    (void)state;
    for (size_t i = 0; i < n; i++) {
        bool second = kit_server(&is[i]) == srv2;
        FINE(dibs_lock_acquire(g, NULL));
        ts_ok(kit_server(&is[i]), "SET %s text", is[i].name);
        WANT(dibs_lock_release(g, NULL), DIBS_ERR_WRONGTYPE);
        kit_keys(is[i].name, !second, second);
        assert_int_equal(dibs_lock_state(g, 0), DIBS_NOT_HELD);
        ts_ok(kit_server(&is[i]), "DEL %s", is[i].name);
    }
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* A re-entry finds that an outer hold of one is gone: none is taken once more,
 * and each level hears of it. */
static void test_multi_hold_loss_at_reentry(void **state)
{
    struct world w = open_world(LONG_MS);
    dibs_lock *g = kit_group(&w, "pa wb pc@2 rd"), *a = kit_one(&w, "pa");

    (void)state;
    FINE(dibs_lock_acquire(g, NULL));
    ts_ok(srv, "DEL b");
    WANT(dibs_lock_acquire(g, NULL), DIBS_ERR_LOST);
    kit_have(&w, "pa pc@2 rd", 0, 1);
    assert_int_equal(dibs_lock_state(g, 0), DIBS_LOST);
    WANT(dibs_lock_acquire(g, NULL), DIBS_ERR_LOST);
    kit_have(&w, "pa pc@2 rd", 0, 1);
    WANT(dibs_lock_release(g, NULL), DIBS_ERR_LOST);
    kit_keys("re-entry", 0, 0);
    FINE(dibs_lock_acquire(g, NULL));
    FINE(dibs_lock_release(g, NULL));
    dibs_lock_free(a);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* One is lost while another is waited for: nobody was promised anything yet, so
 * it begins again and is told nothing. */
static void test_multi_hold_loss_while_waiting(void **state)
{
    struct world w = open_world(kit_lease());
    struct word c = {.kind = 'p', .name = "c"};
    dibs_lock *g = kit_group(&w, "pa pb pc");
    struct lost lost = {.times = 0};
    struct told told = {.times = 0};

    (void)state;
    kit_block(&c, 0);
    FINE(dibs_lock_acquire_async(
        g, DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost), kit_tell, &told));
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{c}", 1));
    ts_ok(srv, "DEL a");
    ts_ok(srv, "HSET a 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7 1");
    dibs_lock *a = kit_one(&w, "pa");
    TS_WAIT(dibs_lock_state(a, 0) == DIBS_LOST);
    ts_ok(srv, "PEXPIRE a 50");
    kit_unblock(&c);
    FINE(kit_answer(&told));
    kit_have(&w, "pa pb pc", 0, 1);
    assert_int_equal(dibs_lock_state(g, 0), DIBS_HELD);
    FINE(dibs_lock_release(g, NULL));
    kit_keys("while waiting", 0, 0);
    assert_int_equal(atomic_load(&lost.times), 0);
    dibs_lock_free(a);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* What was given back is not lost any more. */
static void test_multi_hold_not_told_after_release(void **state)
{
    struct world w = open_world(kit_lease());
    dibs_lock *g = kit_group(&w, EVERYWHERE);
    struct lost lost = {.times = 0};

    (void)state;
    for (int i = 0; i < 20; i++) {
        FINE(dibs_lock_acquire(
            g, DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
        FINE(dibs_lock_release(g, NULL));
    }
    kit_world_end(&w);
    assert_int_equal(atomic_load(&lost.times), 0);
    dibs_lock_free(g);
}

/* A full server lets go of what ends, and writes down smaller numbers. */
static void test_multi_hold_full_server(void **state)
{
    struct world w = open_world(LONG_MS);
    dibs_lock *g = kit_group(&w, "pa wb pc"), *a = kit_one(&w, "pa");

    (void)state;
    FINE(dibs_lock_acquire(a, NULL));
    FINE(dibs_lock_acquire(g, NULL));
    ts_config_set(srv, "maxmemory", "1");
    FINE(dibs_lock_release(g, NULL));
    kit_have(&w, "pa", 0, 1);
    kit_keys("full", 1, 0);
    FINE(dibs_lock_release(a, NULL));
    kit_keys("full", 0, 0);
    WANT(dibs_lock_acquire(g, DIBS_LOCK_OPTS(.wait_ms = 50)), DIBS_ERR_SERVER);
    kit_keys("full", 0, 0);
    ts_config_set(srv, "maxmemory", "0");
    FINE(dibs_lock_acquire(g, NULL));
    FINE(dibs_lock_acquire(g, NULL));
    ts_config_set(srv, "maxmemory", "1");
    FINE(dibs_lock_release(g, NULL));
    assert_int_equal(dibs_lock_holds(g, 0), 1);
    kit_have(&w, "pa wb pc", 0, 1);
    FINE(dibs_lock_release(g, NULL));
    kit_keys("full", 0, 0);
    ts_config_set(srv, "maxmemory", "0");
    dibs_lock_free(a);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* ---- keeping it taken -------------------------------------------------- */

static void test_multi_hold_keep(void **state)
{
    struct world w = open_world(LONG_MS);
    dibs_lock *g = kit_group(&w, "pa wb fc pd@2");

    (void)state;
    FINE(dibs_lock_acquire(g, NULL));
    FINE(dibs_lock_release(g, DIBS_LOCK_OPTS(.keep_ms = 100000)));
    kit_keys("keep", 3, 1);
    assert_in_range(ts_pttl(srv, "a"), 50000, 100000);
    assert_in_range(ts_pttl(srv, "b"), 50000, 100000);
    assert_in_range(ts_pttl(srv2, "d"), 50000, 100000);
    assert_int_equal(dibs_lock_state(g, 0), DIBS_NOT_HELD);
    WANT(kit_elsewhere(g, NULL, dibs_lock_try), DIBS_ERR_BUSY);
    ts_ok(srv, "FLUSHALL");
    ts_ok(srv2, "FLUSHALL");
    dibs_lock_free(g);
    kit_world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MULTI_TEST(test_multi_hold_loss_of_one),
        MULTI_TEST(test_multi_hold_lease_after_wait),
        MULTI_TEST(test_multi_hold_lease_after_wait_of_others),
        MULTI_TEST(test_multi_hold_max_hold),
        MULTI_TEST(test_multi_hold_reentry),
        MULTI_TEST(test_multi_hold_shared_member),
        MULTI_TEST(test_multi_hold_overlap),
        MULTI_TEST(test_multi_hold_member_given_back),
        MULTI_TEST(test_multi_hold_lost_member_given_back),
        MULTI_TEST(test_multi_hold_renewed),
        MULTI_TEST(test_multi_hold_shortest_counts),
        MULTI_TEST(test_multi_hold_lease),
        MULTI_TEST(test_multi_hold_loss_of_all),
        MULTI_TEST(test_multi_hold_loss_at_release),
        MULTI_TEST(test_multi_hold_other_type_at_release),
        MULTI_TEST(test_multi_hold_loss_at_reentry),
        MULTI_TEST(test_multi_hold_loss_while_waiting),
        MULTI_TEST(test_multi_hold_not_told_after_release),
        MULTI_TEST(test_multi_hold_full_server),
        MULTI_TEST(test_multi_hold_keep),
    };
    return MULTI_RUN_PARALLEL("server.multi_hold", tests);
}
