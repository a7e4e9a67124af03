/* SPDX-License-Identifier: MIT
 *
 * test_lease.c - how long a lock is ours: leases that end by themselves,
 * leases that are renewed, and how a holder learns that it is a holder no more.
 *
 * Every renewal is a PEXPIRE on the server. So "several leases later" is
 * waited for by counting those.
 */
#include "server/kit.h"

static long long renewals(void)
{
    return ts_command_calls(srv, "pexpire");
}

static bool held(dibs_lock *l)
{
    return dibs_lock_state(l, 0) == DIBS_HELD;
}

/* Until there were so many more. */
static void wait_renewals(long long more)
{
    long long want = renewals() + more;

    TS_WAIT(renewals() >= want);
}

/* ---- leases that end --------------------------------------------------- */

static void test_lease_ends(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct lost lost = {0};
    char text[DIBS_OWNER_MAX];

    (void)state;
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.lease_ms = kit_short(),
                                          .on_lost = kit_lose, .arg = &lost)));
    assert_true(ts_pttl(srv, "l") <= kit_short());
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    assert_int_equal(dibs_lock_valid_ms(l, 0), 0);
    assert_int_equal(dibs_lock_holds(l, 0), 0);
    WANT(dibs_lock_owner_text(l, 0, text, sizeof text), DIBS_ERR_LOST);
    TS_WAIT(atomic_load(&lost.times) == 1);
    assert_string_equal(lost.lock, "l");
    assert_int_equal(lost.owner, dibs_owner_thread(c));
    assert_true(ts_wait_exists(srv, "l", false));
    /* It stays so until the holder has heard of it. */
    WANT(dibs_lock_acquire(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(atomic_load(&lost.times), 1);
}

/* Known by our own clock: the server says nothing, and need not. */
static void test_lease_ends_without_server(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct lost lost = {0};

    (void)state;
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.lease_ms = kit_short(),
                                          .on_lost = kit_lose, .arg = &lost)));
    ts_server_pause(srv);
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&lost.times) == 1);
    ts_server_resume(srv);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    assert_true(ts_wait_exists(srv, "l", false));
    dibs_lock_free(l);
    kit_close(c);
}

/* Each level hears of it, and each that asked to be told is told. */
static void test_lease_ends_for_every_level(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct lost lost[3] = {{0}};

    (void)state;
    for (int i = 0; i < 3; i++)
        FINE(dibs_lock_acquire(
            l, DIBS_LOCK_OPTS(.lease_ms = kit_short() + 200,
                              .on_lost = i == 1 ? NULL : kit_lose,
                              .arg = &lost[i])));
    TS_WAIT(atomic_load(&lost[0].times) && atomic_load(&lost[2].times));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dibs_lock_state(l, 0), DIBS_LOST);
        WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    }
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    assert_true(ts_wait_exists(srv, "l", false));
    dibs_lock_free(l);
    kit_close(c);
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&lost[i].times), i == 1 ? 0 : 1);
}

/* Who gave it back in time has lost nothing. The loss of the second lock is
 * told after that of the first would have been. */
static void test_lease_released_in_time(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *first = kit_lock(c, "first");
    dibs_lock *second = kit_lock(c, "second");
    struct lost never = {0}, lost = {0};

    (void)state;
    FINE(dibs_lock_acquire(first,
                           DIBS_LOCK_OPTS(.lease_ms = kit_short(),
                                          .on_lost = kit_lose, .arg = &never)));
    FINE(dibs_lock_acquire(second,
                           DIBS_LOCK_OPTS(.lease_ms = kit_short() + 100,
                                          .on_lost = kit_lose, .arg = &lost)));
    dibs_err err = dibs_lock_release(first, NULL);
    TS_WAIT(atomic_load(&lost.times) == 1);
    /* On a machine that slept all that time it was lost indeed. */
    assert_true(atomic_load(&never.times) <= (err == DIBS_OK ? 0 : 1));
    WANT(dibs_lock_release(second, NULL), DIBS_ERR_LOST);
    assert_true(ts_wait_exists(srv, "second", false));
    dibs_lock_free(first);
    dibs_lock_free(second);
    kit_close(c);
}

struct told_late {
    dibs_lock *l;
    dibs_owner owner;
    dibs_state state;
    dibs_err gave, took;
    atomic_bool done;
};

/* Told of the loss, it gives back and starts again at once. */
static void start_again(const char *name, dibs_owner owner, void *arg)
{
    struct told_late *t = arg;
    const dibs_lock_opts *opts =
        DIBS_LOCK_OPTS(.owner = owner, .lease_ms = 600000);

    (void)name;
    t->state = dibs_lock_state(t->l, owner);
    t->gave = dibs_lock_release(t->l, opts);
    do /* the server's clock is a little behind ours */
        t->took = dibs_lock_try(t->l, opts);
    while (t->took == DIBS_ERR_BUSY);
    atomic_store(&t->done, true);
}

static void test_lease_lost_and_started_again(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct told_late t = {.l = kit_lock(c, "l"), .owner = dibs_owner_new(c)};

    (void)state;
    FINE(dibs_lock_acquire(
        t.l, DIBS_LOCK_OPTS(.owner = t.owner, .lease_ms = kit_short(),
                            .on_lost = start_again, .arg = &t)));
    TS_WAIT(atomic_load(&t.done));
    assert_int_equal(t.state, DIBS_LOST);
    WANT(t.gave, DIBS_ERR_LOST);
    FINE(t.took);
    assert_int_equal(kit_count(t.l, "l", t.owner), 1);
    FINE(dibs_lock_release(t.l, DIBS_LOCK_OPTS(.owner = t.owner)));
    dibs_lock_free(t.l);
    kit_close(c);
}

/* The loser's number does not spoil what others here do with the lock. */
static void test_lease_lost_and_taken_by_others(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner other = dibs_owner_new(c);

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_short())));
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = other)));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    assert_int_equal(kit_count(l, "l", other), 1);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = other)));
    dibs_lock_free(l);
    kit_close(c);
}

/* What is left of it on the server ends with its release, by one command; also
 * if that is for long. (The owner of a plain lock may go on with it.) */
static void test_lease_lost_and_released(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = NULL;

    (void)state;
    FINE(dibs_fair_lock_new(c, "l", &l));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_short())));
    assert_int_equal(ts_int(srv, "PEXPIRE l 600000"), 1);
    long long looks = ts_command_calls(srv, "hmget");
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    assert_true(ts_exists(srv, "l")); /* for as long as it was asked for */
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    assert_true(ts_wait_exists(srv, "l", false));
    dibs_lock_free(l);
    kit_close(c); /* one that still looked after it would ask now */
    assert_int_equal(ts_command_calls(srv, "hmget"), looks + 1);
}

/* An owner of a plain lock gets what is left of it, as before it was lost. No
 * command is sent for the loss, and the owner keeps its number. */
static void test_lease_lost_and_goes_on(void **state)
{
    char before[DIBS_OWNER_MAX], after[DIBS_OWNER_MAX];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_short())));
    FINE(dibs_lock_owner_text(l, 0, before, sizeof before));
    assert_int_equal(ts_int(srv, "PEXPIRE l 600000"), 1);
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_try(l, NULL));
    FINE(dibs_lock_owner_text(l, 0, after, sizeof after));
    assert_string_equal(before, after);
    assert_int_equal(kit_count(l, "l", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

/* A client that closes ends what is left, too. */
static void test_lease_lost_and_closed(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_short())));
    assert_int_equal(ts_int(srv, "PEXPIRE l 600000"), 1);
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    dibs_lock_free(l);
    kit_close(c);
    assert_false(ts_exists(srv, "l"));
}

/* ---- leases that are renewed ------------------------------------------- */

static void test_lease_renewed(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "l");
    struct lost lost = {0};

    (void)state;
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    assert_in_range(ts_pttl(srv, "l"), 1, kit_lease());
    wait_renewals(4); /* each a third of a lease after the other */
    TS_WAIT(held(l));
    assert_in_range(dibs_lock_valid_ms(l, 0), 1, kit_lease());
    assert_int_equal(kit_count(l, "l", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    /* Released means renewed no more. */
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(atomic_load(&lost.times), 0);
}

/* An inner lease never shortens the outer one, here or on the server. */
static void test_lease_nested_shorter(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 600000)));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 200)));
    assert_true(ts_pttl(srv, "l") > 300000);
    assert_true(dibs_lock_valid_ms(l, 0) > 300000);
    FINE(dibs_lock_release(l, NULL));
    assert_true(ts_pttl(srv, "l") > 300000);
    assert_true(dibs_lock_valid_ms(l, 0) > 300000);
    assert_true(held(l));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_lease_nested_longer(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 5000)));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 600000)));
    assert_true(ts_pttl(srv, "l") > 300000);
    assert_true(dibs_lock_valid_ms(l, 0) > 300000);
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

/* A level with a lease inside a renewed hold: renewed before, during, after. */
static void test_lease_nested_in_renewed(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 100)));
    wait_renewals(4);
    TS_WAIT(held(l));
    FINE(dibs_lock_release(l, NULL));
    wait_renewals(4);
    TS_WAIT(held(l));
    assert_int_equal(kit_count(l, "l", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* One that is longer than ours: renewed again when that is worth it. */
static void test_lease_renewed_after_longer(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 2 * kit_lease())));
    FINE(dibs_lock_release(l, NULL));
    wait_renewals(3);
    TS_WAIT(held(l));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* And a renewed level inside one with a lease. */
static void test_lease_renewed_in_leased(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_lease())));
    FINE(dibs_lock_acquire(l, NULL));
    wait_renewals(4);
    TS_WAIT(held(l));
    FINE(dibs_lock_release(l, NULL));
    /* Renewed no more, so it ends. */
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    assert_true(ts_wait_exists(srv, "l", false));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c);
}

static void test_lease_max_hold(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "l");
    struct lost lost = {0};
    long long before = renewals();

    (void)state;
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.max_hold_ms = 2 * kit_lease(),
                                          .on_lost = kit_lose, .arg = &lost)));
    TS_WAIT(renewals() >= before + 3); /* the first came with the lock */
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&lost.times) == 1);
    assert_true(ts_wait_exists(srv, "l", false));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);

    /* Shorter than a lease: it is the lease. */
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.max_hold_ms = kit_short())));
    assert_true(ts_pttl(srv, "l") <= kit_short());
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    assert_true(ts_wait_exists(srv, "l", false));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(atomic_load(&lost.times), 1);
}

/* ---- loss under renewal ------------------------------------------------ */

/* Somebody deleted the key: known at the next renewal, and not made again. */
static void test_lease_key_deleted(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "l");
    struct lost lost = {0};

    (void)state;
    for (int i = 0; i < 2; i++)
        FINE(dibs_lock_acquire(
            l, DIBS_LOCK_OPTS(.on_lost = i ? NULL : kit_lose, .arg = &lost)));
    ts_ok(srv, "DEL l");
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&lost.times) == 1);
    assert_false(ts_exists(srv, "l"));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(atomic_load(&lost.times), 1);
}

/* Deleted, and released before anybody noticed. */
static void test_lease_key_deleted_before_release(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    for (int i = 0; i < 3; i++)
        FINE(dibs_lock_acquire(l, NULL));
    ts_ok(srv, "DEL l");
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    assert_false(ts_exists(srv, "l"));

    FINE(dibs_lock_acquire(l, NULL));
    ts_ok(srv, "DEL l");
    WANT(dibs_lock_acquire(l, NULL), DIBS_ERR_LOST); /* not a new hold */
    assert_false(ts_exists(srv, "l"));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* Somebody else has it by now: theirs is left alone. */
static void test_lease_key_taken(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_client *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *thief = kit_lock(d, "l");
    struct lost lost = {0};

    (void)state;
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    FINE(dibs_lock_force_release(thief, NULL));
    FINE(dibs_lock_try(thief, DIBS_LOCK_OPTS(.lease_ms = 600000)));
    TS_WAIT(atomic_load(&lost.times) == 1);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    assert_int_equal(kit_count(thief, "l", 0), 1);
    assert_int_equal(ts_hlen(srv, "l"), 1);
    assert_true(ts_pttl(srv, "l") > 300000);
    FINE(dibs_lock_release(thief, NULL));
    dibs_lock_free(l);
    dibs_lock_free(thief);
    kit_close(c);
    kit_close(d);
}

/* One key of another type among those that are renewed: it is lost when its
 * lease is over by our clock, it is left as it is, the others live on. */
static void test_lease_key_of_another_type(void **state)
{
    enum { LOCKS = 10, BAD = 4 };
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *locks[LOCKS];
    struct lost lost[LOCKS] = {{0}};

    (void)state;
    for (int i = 0; i < LOCKS; i++) {
        char name[] = {(char)('a' + i), '\0'};
        locks[i] = kit_lock(c, name);
        FINE(dibs_lock_acquire(
            locks[i], DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost[i])));
    }
    ts_ok(srv, "SET e precious");
    TS_WAIT(dibs_lock_state(locks[BAD], 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&lost[BAD].times) == 1);
    wait_renewals(2 * LOCKS);
    for (int i = 0; i < LOCKS; i++) {
        if (i == BAD)
            continue;
        assert_true(held(locks[i]));
        assert_int_equal(atomic_load(&lost[i].times), 0);
    }
    WANT(dibs_lock_release(locks[BAD], NULL), DIBS_ERR_LOST);
    char *text = ts_str(srv, "GET e");
    assert_string_equal(text, "precious");
    free(text);
    for (int i = 0; i < LOCKS; i++)
        dibs_lock_free(locks[i]);
    kit_close(c);
    assert_true(ts_exists(srv, "e"));
    ts_ok(srv, "DEL e");
}

/* ---- many -------------------------------------------------------------- */

/* A thousand locks are renewed, many with one command. */
static void test_lease_thousand_locks(void **state)
{
    enum { LOCKS = 1000 };
    int64_t lease = ts_slow() > 1 ? 6000 : 3000;
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = lease));
    dibs_lock **locks = ts_alloc(LOCKS * sizeof *locks);
    struct lost lost = {0};

    (void)state;
    for (int i = 0; i < LOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:%d", i);
        locks[i] = kit_lock(c, name);
        FINE(dibs_lock_acquire(
            locks[i], DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    }
    long long commands = ts_command_calls(srv, "evalsha");
    wait_renewals(2 * LOCKS);
    commands = ts_command_calls(srv, "evalsha") - commands;
    for (int i = 0; i < LOCKS; i++)
        if (!held(locks[i]))
            fail_msg("lock %d is not held", i);
    assert_int_equal(ts_nkeys(srv), LOCKS);
    assert_int_equal(atomic_load(&lost.times), 0);
    if (commands > 2 * LOCKS / 10)
        fail_msg("%lld commands for %d renewals", commands, 2 * LOCKS);
    for (int i = 0; i < LOCKS; i++)
        dibs_lock_free(locks[i]);
    free(locks);
    kit_close(c);
    assert_int_equal(atomic_load(&lost.times), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_lease_ends),
        KIT_TEST(test_lease_ends_without_server),
        KIT_TEST(test_lease_ends_for_every_level),
        KIT_TEST(test_lease_released_in_time),
        KIT_TEST(test_lease_lost_and_started_again),
        KIT_TEST(test_lease_lost_and_taken_by_others),
        KIT_TEST(test_lease_lost_and_released),
        KIT_TEST(test_lease_lost_and_goes_on),
        KIT_TEST(test_lease_lost_and_closed),
        KIT_TEST(test_lease_renewed),
        KIT_TEST(test_lease_nested_shorter),
        KIT_TEST(test_lease_nested_longer),
        KIT_TEST(test_lease_nested_in_renewed),
        KIT_TEST(test_lease_renewed_after_longer),
        KIT_TEST(test_lease_renewed_in_leased),
        KIT_TEST(test_lease_max_hold),
        KIT_TEST(test_lease_key_deleted),
        KIT_TEST(test_lease_key_deleted_before_release),
        KIT_TEST(test_lease_key_taken),
        KIT_TEST(test_lease_key_of_another_type),
        KIT_TEST(test_lease_thousand_locks),
    };
    return KIT_RUN_PARALLEL("server.lease", tests);
}
