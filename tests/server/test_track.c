/* SPDX-License-Identifier: MIT
 *
 * test_track.c - a holder hears at once that somebody took its lock away.
 *
 * The leases are ten minutes, and a renewal is due after three: what a test
 * here waits for does not come from a renewal.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "server/kit.h"

#define LEASE_MS 600000

/* ---- locks of all kinds ------------------------------------------------ */

struct holder {
    const char *name;  /* of the lock */
    const char *key;   /* that somebody changes */
    const char *entry; /* HDEL or ZREM */
    dibs_err (*make)(dibs_client *c, const char *name, dibs_lock **out);
};

static dibs_err make_slots(dibs_client *c, const char *name, dibs_lock **out)
{
    return dibs_slots_lock_new(c, name, 3, out);
}

static dibs_err make_multi(dibs_client *c, const char *name, dibs_lock **out)
{
    dibs_lock *m[2];

    FINE(dibs_lock_new(c, name, &m[0]));
    FINE(dibs_fair_lock_new(c, "{multi}2", &m[1]));
    dibs_err err = dibs_multi_lock_new(m, 2, out);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    return err;
}

static const struct holder holders[] = {
    {"plain", "plain", "HDEL", dibs_lock_new},
    {"{a}b", "{a}b", "HDEL", dibs_lock_new},
    {"fair", "fair", "HDEL", dibs_fair_lock_new},
    {"read", "read", "HDEL", dibs_read_lock_new},
    {"write", "write", "HDEL", dibs_write_lock_new},
    {"fenced", "fenced", "HDEL", dibs_fenced_lock_new},
    {"slots", "{slots}:timeout", "ZREM", make_slots},
    {"{x}slots", "{x}slots:timeout", "ZREM", make_slots},
    {"{multi}1", "{multi}1", "HDEL", make_multi},
};

#define HOLDERS COUNT(holders)

struct held {
    dibs_client *c;
    dibs_lock *l[HOLDERS];
    struct lost lost[HOLDERS];
};

/* How many keys the server has in mind. */
static long long tracked(void)
{
    return ts_info(srv, "stats", "tracking_total_keys");
}

#define TRACKED                                                                \
    11 /* of all holders: two of the reader, two of the multi lock */

static void take_all(struct held *h, int64_t lease_ms)
{
    memset(h, 0, sizeof *h);
    h->c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS));
    for (size_t i = 0; i < HOLDERS; i++) {
        FINE(holders[i].make(h->c, holders[i].name, &h->l[i]));
        FINE(dibs_lock_acquire(h->l[i], DIBS_LOCK_OPTS(.lease_ms = lease_ms,
                                                       .on_lost = kit_lose,
                                                       .arg = &h->lost[i])));
    }
    TS_WAIT(tracked() == TRACKED);
}

static void end_all(struct held *h)
{
    for (size_t i = 0; i < HOLDERS; i++)
        dibs_lock_free(h->l[i]);
    kit_close(h->c);
    ts_ok(srv, "FLUSHALL");
}

static void all_lost(struct held *h)
{
    for (size_t i = 0; i < HOLDERS; i++) {
        struct ts_wait w = ts_wait_begin(TS_SOON);
        while (atomic_load(&h->lost[i].times) == 0 && ts_wait_step(&w))
            ;
        if (atomic_load(&h->lost[i].times) != 1)
            fail_msg("%s: on_lost was called %d times", holders[i].name,
                     atomic_load(&h->lost[i].times));
        assert_int_equal(dibs_lock_state(h->l[i], 0), DIBS_LOST);
        WANT(dibs_lock_release(h->l[i], NULL), DIBS_ERR_LOST);
    }
}

/* ---- what somebody may do ---------------------------------------------- */

static void by_del(const struct holder *who, dibs_lock *l)
{
    (void)l;
    ts_ok(srv, "DEL %s", who->key);
}

static void by_time(const struct holder *who, dibs_lock *l)
{
    (void)l;
    ts_ok(srv, "PEXPIRE %s 1", who->key);
}

static void by_script(const struct holder *who, dibs_lock *l)
{
    (void)l;
    ts_ok(srv, "EVAL %s 1 %s", "return redis.call('unlink', KEYS[1])",
          who->key);
}

static void by_name(const struct holder *who, dibs_lock *l)
{
    (void)l;
    ts_ok(srv, "RENAME %s other:%s", who->key, who->key);
}

static void by_entry(const struct holder *who, dibs_lock *l)
{
    (void)l;
    ts_ok(srv, "EVAL %s 1 %s %s",
          "local key = KEYS[1] "
          "if ARGV[1] == 'ZREM' then "
          "  return redis.call('zrem', key, "
          "                    unpack(redis.call('zrange', key, 0, -1))) "
          "end "
          "return redis.call('hdel', key, unpack(redis.call('hkeys', key)))",
          who->key, who->entry);
}

/* The hash is there again, with another owner. */
static void by_another(const struct holder *who, dibs_lock *l)
{
    (void)l;
    by_entry(who, l);
    if (strcmp(who->entry, "HDEL") == 0)
        ts_ok(srv, "HSET %s 01234567-0123-0123-0123-0123456789ab:1 1",
              who->key);
}

static void by_force(const struct holder *who, dibs_lock *l)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *mine = NULL;
    char owner[DIBS_OWNER_MAX];
    bool was = false;

    if (who->make == make_multi)
        FINE(dibs_lock_new(c, who->name, &mine));
    else
        FINE(who->make(c, who->name, &mine));
    if (who->make == make_slots) {
        FINE(dibs_lock_owner_text(l, 0, owner, sizeof owner));
        FINE(dibs_lock_force_release_owner(mine, owner, &was));
    } else {
        FINE(dibs_lock_force_release(mine, &was));
    }
    assert_true(was);
    dibs_lock_free(mine);
    kit_close(c);
}

static void by_type(const struct holder *who, dibs_lock *l)
{
    (void)l;
    ts_ok(srv, "SET %s x", who->key);
}

static const struct {
    const char *name;
    void (*change)(const struct holder *who, dibs_lock *l);
} changes[] = {
    {"DEL", by_del},
    {"PEXPIRE", by_time},
    {"a script", by_script},
    {"RENAME", by_name},
    {"HDEL", by_entry},
    {"another owner", by_another},
    {"force unlock", by_force},
    {"another type", by_type},
};

static void test_track_every_change(void **state)
{
    struct held h;

    (void)state;
    for (size_t n = 0; n < COUNT(changes); n++) {
        print_message("%s\n", changes[n].name);
        take_all(&h, 0);
        for (size_t i = 0; i < HOLDERS; i++)
            changes[n].change(&holders[i], h.l[i]);
        all_lost(&h);
        end_all(&h);
    }
}

static void test_track_flush(void **state)
{
    struct held h;

    (void)state;
    take_all(&h, 0);
    ts_ok(srv, "FLUSHALL");
    all_lost(&h);
    end_all(&h);
}

/* A hold that is not renewed is tracked as well. */
static void test_track_fixed_lease(void **state)
{
    struct held h;

    (void)state;
    take_all(&h, LEASE_MS);
    for (size_t i = 0; i < HOLDERS; i++)
        by_del(&holders[i], h.l[i]);
    all_lost(&h);
    end_all(&h);
}

/* The server is full, and throws out what it likes. */
static void test_track_eviction(void **state)
{
    struct held h;

    (void)state;
    take_all(&h, 0);
    ts_config_set(srv, "maxmemory-policy", "allkeys-random");
    ts_config_set(srv, "maxmemory", "1");
    TS_WAIT(ts_nkeys(srv) == 0);
    ts_config_set(srv, "maxmemory", "0");
    ts_config_set(srv, "maxmemory-policy", "noeviction");
    all_lost(&h);
    end_all(&h);
}

/* The reader's own key is gone: a writer may come in. */
static void test_track_readers_key(void **state)
{
    struct lost lost = {0};
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS));
    dibs_lock *l = NULL;
    char owner[DIBS_OWNER_MAX];

    (void)state;
    FINE(dibs_read_lock_new(c, "r", &l));
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    FINE(dibs_lock_owner_text(l, 0, owner, sizeof owner));
    TS_WAIT(tracked() == 2);
    assert_int_equal(ts_int(srv, "DEL {r}:%s:rwlock_timeout:1", owner), 1);
    TS_WAIT(atomic_load(&lost.times) == 1);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c);
    ts_ok(srv, "FLUSHALL");
}

/* Its permits, or the semaphore itself. */
static void test_track_semaphore(void **state)
{
    static const char *const rows[] = {
        "DEL {sem}:dibs_held",
        "SET {sem}:dibs_held x",
        "DEL sem",
        "RENAME sem other",
        "SET sem x",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct lost lost = {0};
        dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS));
        dibs_semaphore *s = NULL;

        print_message("%s\n", rows[i]);
        FINE(dibs_semaphore_new(c, "sem", &s));
        FINE(dibs_semaphore_set(s, 3, NULL));
        FINE(dibs_semaphore_acquire(s, DIBS_SEMAPHORE_OPTS(.permits = 2,
                                                           .on_lost = kit_lose,
                                                           .arg = &lost)));
        TS_WAIT(tracked() == 2);
        ts_ok(srv, rows[i]);
        TS_WAIT(atomic_load(&lost.times) == 1);
        WANT(dibs_semaphore_release(s, DIBS_SEMAPHORE_OPTS(.permits = 2)),
             DIBS_ERR_LOST);
        dibs_semaphore_free(s);
        kit_close(c);
        ts_ok(srv, "FLUSHALL");
    }
}

/* A change that leaves the hold: nothing is lost, and it is tracked again. */
static void test_track_goes_on(void **state)
{
    struct held h;

    (void)state;
    take_all(&h, 0);
    for (int times = 0; times < 3; times++) {
        for (size_t i = 0; i < HOLDERS; i++)
            ts_ok(srv, "PEXPIRE %s 700000", holders[i].key);
        TS_WAIT(tracked() == TRACKED);
    }
    for (size_t i = 0; i < HOLDERS; i++) {
        assert_int_equal(dibs_lock_state(h.l[i], 0), DIBS_HELD);
        by_del(&holders[i], h.l[i]);
    }
    all_lost(&h);
    end_all(&h);
}

/* ---- what it costs ----------------------------------------------------- */

static long long messages(void)
{
    return ts_info(srv, "stats", "tracking_total_items");
}

/* Takes it so often. How many ms the longest hold lasted: one of a second would
 * be tracked, and a machine may stand still for that long. */
static int64_t take_often(dibs_lock *l, int times)
{
    int64_t longest = 0;

    for (int i = 0; i < times; i++) {
        int64_t start = ts_now_ms();
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
        int64_t took = ts_now_ms() - start;
        longest = took > longest ? took : longest;
    }
    return longest;
}

/* Short holds are not tracked, so nobody sends a message about them. */
static void test_track_short_holds(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS));
    dibs_lock *l = kit_lock(c, "long"), *m = kit_lock(c, "short");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    for (int tries = 0;; tries++) {
        TS_WAIT(tracked() == 1);
        long long reads = ts_command_calls(srv, "exists");
        if (take_often(m, 1000) < 500) {
            assert_int_equal(messages(), 1);
            assert_int_equal(ts_command_calls(srv, "exists"), reads);
            break;
        }
        assert_in_range(tries, 0, 9);
    }
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    dibs_lock_free(m);
    kit_close(c);
}

/* Renewals, re-entries and hand-overs of our own do not make us look without
 * end, and they end no tracking for good. */
static void test_track_own_changes(void **state)
{
    struct lost lost = {0};
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS));
    dibs_lock *l = kit_lock(c, "own");

    (void)state;
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    TS_WAIT(tracked() == 1);
    long long reads = ts_command_calls(srv, "exists");
    for (int i = 0; i < 1000; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
    }
    print_message("1000 re-entries: %lld looks\n",
                  ts_command_calls(srv, "exists") - reads);
    assert_in_range(ts_command_calls(srv, "exists") - reads, 0, 100);
    TS_WAIT(tracked() == 1);
    ts_ok(srv, "DEL own");
    TS_WAIT(atomic_load(&lost.times) == 1);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_track_every_change), KIT_TEST(test_track_flush),
        KIT_TEST(test_track_fixed_lease),  KIT_TEST(test_track_eviction),
        KIT_TEST(test_track_readers_key),  KIT_TEST(test_track_semaphore),
        KIT_TEST(test_track_goes_on),      KIT_TEST(test_track_short_holds),
        KIT_TEST(test_track_own_changes),
    };

    return KIT_RUN_PARALLEL("track", tests);
}
