/* SPDX-License-Identifier: MIT
 *
 * test_stats.c - what a client counts and measures.
 */
#include "server/kit.h"
#include "support/proxy.h"

#define PAIRS   200
#define THREADS 12 /* more than there are sets of numbers */

static dibs_stats stats_of(dibs_client *c)
{
    dibs_stats s = DIBS_STATS_INIT;

    FINE(dibs_client_stats(c, &s));
    return s;
}

/* All buckets are counted, and the sum fits the buckets. */
static void check_histogram(const dibs_histogram *h, uint64_t count)
{
    uint64_t all = 0, least = 0;

    for (int i = 0; i < DIBS_BUCKETS; i++) {
        all += h->bucket[i];
        if (i > 0)
            least += h->bucket[i] * (UINT64_C(1) << (i - 1));
    }
    assert_int_equal(h->count, count);
    assert_int_equal(all, count);
    assert_true(h->sum_us >= least);
    assert_true(h->sum_us <= 2 * least + count);
}

/* PAIRS of them. How many ms the longest took. */
static uint64_t longest_of_pairs(dibs_lock *l)
{
    int64_t longest = 0;

    for (int i = 0; i < PAIRS; i++) {
        int64_t start = ts_now_ms();
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
        int64_t took = ts_now_ms() - start;
        longest = took > longest ? took : longest;
    }
    return (uint64_t)longest;
}

static void test_pairs(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    dibs_stats s = stats_of(c);
    assert_int_equal(s.acquires, 0);
    assert_int_equal(s.connects > 0, true);
    assert_int_equal(s.reconnects, 0);
    uint64_t pairs = 1, commands, longest;
    FINE(dibs_lock_acquire(l, NULL)); /* the server knows the scripts then */
    FINE(dibs_lock_release(l, NULL));
    do { /* a hold of a second costs more; a machine may stand still for that */
        assert_in_range(pairs, 1, 10 * PAIRS);
        commands = stats_of(c).commands;
        longest = longest_of_pairs(l);
        pairs += PAIRS;
    } while (longest >= 500);
    assert_int_equal(stats_of(c).commands - commands, 2 * PAIRS);
    FINE(dibs_lock_try(l, NULL));
    FINE(dibs_lock_acquire(l, NULL)); /* a re-entry */
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    s = stats_of(c);
    assert_int_equal(s.acquires, pairs + 2);
    assert_int_equal(s.tries, 1);
    assert_int_equal(s.releases, pairs + 2);
    assert_int_equal(s.waits, 0);
    assert_int_equal(s.busy + s.timeouts + s.failures, 0);
    assert_int_equal(s.losses + s.reaped + s.unknown, 0);
    check_histogram(&s.acquire, pairs + 2);
    check_histogram(&s.hold, pairs + 1);
    check_histogram(&s.wait, 0);
    dibs_lock_free(l);
    FINE(dibs_client_close(c, 0));
    assert_int_equal(stats_of(c).acquires, pairs + 2); /* closed, too */
    dibs_client_free(c);
    kit_clients--;
}

struct worker {
    dibs_lock *l;
    dibs_err err;
};

static void *run_pairs(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < PAIRS && w->err == DIBS_OK; i++) {
        w->err = dibs_lock_acquire(w->l, NULL);
        if (w->err == DIBS_OK)
            w->err = dibs_lock_release(w->l, NULL);
    }
    return NULL;
}

/* No count gets lost between threads. */
static void test_threads(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct worker w[THREADS];
    pthread_t t[THREADS];
    char name[16];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        snprintf(name, sizeof name, "t%d", i / 2); /* two on each */
        w[i] = (struct worker){kit_lock(c, name), DIBS_OK};
        assert_int_equal(pthread_create(&t[i], NULL, run_pairs, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        FINE(w[i].err);
        dibs_lock_free(w[i].l);
    }
    dibs_stats s = stats_of(c);
    assert_int_equal(s.acquires, THREADS * PAIRS);
    assert_int_equal(s.releases, THREADS * PAIRS);
    check_histogram(&s.acquire, THREADS * PAIRS);
    check_histogram(&s.hold, THREADS * PAIRS);
    check_histogram(&s.wait, s.waits);
    assert_true(s.handovers <= s.waits);
    kit_close(c);
}

static void test_busy_and_waiting(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a"), *other = kit_lock(d, "a");
    dibs_owner waiter = dibs_owner_new(d);
    struct told t = {0};

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    WANT(dibs_lock_try(other, NULL), DIBS_ERR_BUSY);
    WANT(dibs_lock_acquire(other, DIBS_LOCK_OPTS(.wait_ms = 50)),
         DIBS_ERR_TIMEOUT);
    TS_WAIT(ts_waiting(srv, "a") == 0); /* its channel stays a while */
    FINE(dibs_lock_acquire_async(other, DIBS_LOCK_OPTS(.owner = waiter),
                                 kit_tell, &t));
    TS_WAIT(ts_waiting(srv, "a") == 1);
    FINE(dibs_lock_release(l, NULL));
    FINE(kit_answer(&t));
    FINE(dibs_lock_release(other, DIBS_LOCK_OPTS(.owner = waiter)));
    dibs_stats s = stats_of(d);
    assert_int_equal(s.tries, 1);
    assert_int_equal(s.busy, 1);
    assert_int_equal(s.timeouts, 1);
    assert_int_equal(s.waits, 2);
    assert_int_equal(s.acquires, 1);
    assert_int_equal(s.failures, 0);
    check_histogram(&s.wait, 2);
    assert_true(s.wait.sum_us >= 40000); /* limits are whole milliseconds */
    assert_int_equal(stats_of(c).waits, 0);
    dibs_lock_free(l);
    dibs_lock_free(other);
    kit_close(c);
    kit_close(d);
}

static void test_renewals_and_loss(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    TS_WAIT(stats_of(c).renewals >= 3);
    ts_ok(srv, "DEL a");
    TS_WAIT(stats_of(c).losses == 1);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_stats s = stats_of(c);
    assert_int_equal(s.losses, 1);
    assert_int_equal(s.releases, 0);
    assert_true(s.renew.count >= s.renewals);
    check_histogram(&s.hold, 1);
    assert_true(s.hold.sum_us >= 3 * (uint64_t)kit_lease() * 1000 / 4);
    dibs_lock_free(l);
    kit_close(c);
}

static void test_reconnects_and_lost_replies(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv);
    dibs_client *c = kit_open_at(ts_proxy_url(px),
                                 DIBS_CLIENT_OPTS(.command_timeout_ms = 1000));
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    ts_proxy_rule(px, &(struct ts_rule){.action = TS_DROP_REPLY_CLOSE,
                                        .match = "EVAL*",
                                        .count = 1});
    FINE(dibs_lock_release(l, NULL));
    ts_proxy_kill_all(px, false);
    TS_WAIT(stats_of(c).reconnects >= 1);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_stats s = stats_of(c);
    assert_true(s.unknown >= 1);
    assert_true(s.connects > s.reconnects);
    assert_true(s.commands >= 5); /* the one that was sent again, too */
    dibs_lock_free(l);
    kit_close(c);
    ts_proxy_stop(px);
}

/* A program of another version has another struct. */
static void test_struct_size(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct {
        dibs_stats s;
        uint64_t more;
    } newer;
    dibs_stats s = {0};

    (void)state;
    WANT(dibs_client_stats(c, NULL), DIBS_ERR_INVALID);
    WANT(dibs_client_stats(c, &s), DIBS_ERR_INVALID);
    s.size = sizeof s - 8;
    WANT(dibs_client_stats(c, &s), DIBS_ERR_INVALID);
    WANT(dibs_client_stats(NULL, &s), DIBS_ERR_INVALID);
    memset(&newer, 0xff, sizeof newer);
    newer.s.size = sizeof newer;
    FINE(dibs_client_stats(c, &newer.s));
    assert_int_equal(newer.s.size, sizeof newer);
    assert_int_equal(newer.s.acquires, 0);
    assert_int_equal(newer.s.renew.bucket[DIBS_BUCKETS - 1], 0);
    assert_true(newer.more == UINT64_MAX);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_pairs),
        KIT_TEST(test_threads),
        KIT_TEST(test_busy_and_waiting),
        KIT_TEST(test_renewals_and_loss),
        KIT_TEST(test_reconnects_and_lost_replies),
        KIT_TEST(test_struct_size),
    };

    return KIT_RUN("stats", tests);
}
