/* SPDX-License-Identifier: MIT
 *
 * test_fair_queue.c - the fair lock's queue, and who else may be in it or
 * at it: a waiter that lives keeps its place, among Redisson's clients,
 * whatever the clocks say, and without ears; and whatever was left behind is
 * cleared away.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "server/fair_kit.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* ---- the wall clock, which the library must not look at ---------------- */

static atomic_llong wall_off; /* seconds that this process's is off */

int clock_gettime(clockid_t clock, struct timespec *ts)
{
    int result = (int)syscall(SYS_clock_gettime, clock, ts);

    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        ts->tv_sec += atomic_load(&wall_off);
    return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &ts);
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    if (out)
        *out = ts.tv_sec;
    return ts.tv_sec;
}

/* ---- the living -------------------------------------------------------- */

/* The stranger renews its lock, if it does. */
static void stranger_goes_on(int64_t lease_ms)
{
    if (lease_ms)
        ts_ok(srv, "PEXPIRE l %lld", (long long)lease_ms);
    else
        ts_ok(srv, "PERSIST l");
}

/* However long the holder keeps the lock, also by Redisson's measure: a waiter
 * of ours never counts as gone. False: this machine stood still meanwhile, so
 * that the lock ended, or a place in the queue. */
static bool never_evicted(int64_t lease_ms)
{
    enum { LINE = 4, STILL_MS = 300 };
    static struct waiter w[LINE];
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.fair_wait_ms = 1000));
    dibs_lock *l = fair_lock(c);

    atomic_store(&served, 0);
    taken_by_stranger(600000);
    stranger_goes_on(lease_ms);
    for (int i = 0; i < LINE; i++) {
        waiter_start(&w[i], c, l, 0);
        TS_WAIT((stranger_goes_on(lease_ms),
                 queued() == i + 1 || atomic_load(&served) > 0));
    }
    int64_t last = ts_now_ms(), now = last;
    /* More than twice as long as a silent one would be suffered. */
    const int64_t until = now + 2500;
    char *before = queue_text();
    bool calm = atomic_load(&served) == 0;
    for (; calm && now < until; last = now) {
        stranger_goes_on(lease_ms);
        redisson(REDISSON_TRY, HOLDER "1", 30000, 1000, 0);
        ts_ok(srv, "LREM %s 0 %s", QUEUE, HOLDER "1");
        ts_ok(srv, "ZREM %s %s", SCORES, HOLDER "1");
        char *text = queue_text();
        now = ts_now_ms();
        calm = now - last < STILL_MS;
        if (calm)
            assert_string_equal(text, before);
        free(text);
    }
    free(before);
    if (calm) {
        check_queue_sound();
        stranger_gives_back();
        check_served(w, LINE, 0);
    } else {
        redisson(REDISSON_UNLOCK, HOLDER, 0, 0, 0);
        for (int i = 0; i < LINE; i++)
            FINE(kit_answer(&w[i].gave));
    }
    dibs_lock_free(l);
    kit_close(c);
    return calm;
}

static void test_fair_queue_never_evicted(void **state)
{
    (void)state;
    for (int i = 0; !never_evicted(0); i++)
        assert_in_range(i, 0, 9);
}

static void test_fair_queue_never_evicted_short_lease(void **state)
{
    (void)state;
    for (int i = 0; !never_evicted(600); i++)
        assert_in_range(i, 0, 9);
}

/* Evicted after all: queues again, at the end, and nobody hears of it. */
static void test_fair_queue_evicted_comes_back(void **state)
{
    static struct waiter w[3];
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.fair_wait_ms = 1000));
    dibs_lock *l = fair_lock(c);

    (void)state;
    atomic_store(&served, 0);
    taken_by_stranger(600000);
    line_up(w, 3, c, l);
    char *evicted = ts_str(srv, "LPOP %s", QUEUE);
    ts_ok(srv, "ZREM %s %s", SCORES, evicted);
    wait_queued(3);
    char *last = queue_at(-1);
    assert_string_equal(last, evicted);
    free(last);
    free(evicted);
    check_queue_sound();
    stranger_gives_back();
    for (int i = 0; i < 3; i++) {
        FINE(kit_answer(&w[i].got));
        FINE(kit_answer(&w[i].gave));
        assert_int_equal(atomic_load(&w[i].place), (i + 2) % 3);
    }
    dibs_lock_free(l);
    kit_close(c);
}

/* Redisson clients in the same queue. Each of their acquires takes W off every
 * score, and each removes the one that is late by its clock. Ours keep their
 * places, and get the lock in turn. */
static void test_fair_queue_among_redisson(void **state)
{
    enum { ROUNDS = 6 };
    static struct waiter w[2 * ROUNDS];
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.fair_wait_ms = 1000));
    dibs_lock *l = fair_lock(c);
    char theirs[ROUNDS][64];

    (void)state;
    atomic_store(&served, 0);
    taken_by_stranger(600000);
    for (int i = 0; i < ROUNDS; i++) { /* theirs, ours, ours, theirs ... */
        snprintf(theirs[i], sizeof theirs[i], "%s:%d", UUID, 100 + i);
        assert_false(redisson(REDISSON_TRY, theirs[i], 30000, 1000, 0));
        line_up(&w[2 * i], 2, c, l);
        /* Those of theirs that wait do not get older here: they would be
         * removed by each other. */
        ts_ok(srv, "ZADD %s %lld %s", SCORES, server_now() + 3600000,
              theirs[i]);
    }
    assert_int_equal(queued(), 3 * ROUNDS);
    stranger_gives_back();
    for (int i = 0; i < ROUNDS; i++) {
        char *head = queue_at(0);
        assert_string_equal(head, theirs[i]);
        free(head);
        TS_WAIT(redisson(REDISSON_TRY, theirs[i], 30000, 1000, 0));
        assert_int_equal(atomic_load(&served), 2 * i);
        assert_int_equal(queued(), 3 * ROUNDS - 3 * i - 1);
        assert_true(redisson(REDISSON_UNLOCK, theirs[i], 0, 0, 0));
        check_served(&w[2 * i], 2, 2 * i);
    }
    dibs_lock_free(l);
    kit_close(c);
}

/* Our wall clock is a day off, either way: it makes no difference. */
static void test_fair_queue_wall_clock(void **state)
{
    static struct waiter w[3];
    static const long long off[] = {86400, -86400, 0};
    long long low[COUNT(off)];

    (void)state;
    for (size_t i = 0; i < COUNT(off); i++) {
        atomic_store(&wall_off, off[i]);
        assert_true(
            llabs((long long)time(NULL) - off[i] - server_now() / 1000) < 600);
        dibs_client *c = kit_open(NULL);
        dibs_client *d = kit_open(NULL);
        dibs_lock *l = fair_lock(c);
        dibs_lock *m = fair_lock(d);

        atomic_store(&served, 0);
        taken_by_stranger(600000);
        line_up(w, 2, c, l);
        atomic_store(&wall_off, -off[i]); /* and it jumps */
        line_up(w + 2, 1, d, m);
        char *score = ts_str(srv, "EVAL %s 1 %s",
                             "return redis.call('zrange', KEYS[1], 0, 0, "
                             "'WITHSCORES')[2]",
                             SCORES);
        low[i] = (long long)atof(score) - server_now();
        free(score);
        check_queue_sound();
        stranger_gives_back();
        check_served(w, 3, 0);
        dibs_lock_free(l);
        dibs_lock_free(m);
        kit_close(c);
        kit_close(d);
    }
    for (size_t i = 0; i < COUNT(off); i++)
        assert_in_range(low[i], 600000, 900000);
}

/* ---- healing ----------------------------------------------------------- */

/* Whatever somebody left: the next operation puts it right. */
static void test_fair_queue_heals(void **state)
{
    static const char *const left[] = {
        "redis.call('rpush', Q, 'x')",   /* without a score */
        "redis.call('zadd', Z, T, 'x')", /* without an entry */
        "redis.call('rpush', Q, 'x', 'x', 'y', 'x')"
        "redis.call('zadd', Z, 1, 'x', 1, 'y')", /* twice */
        "for i = 1, 100 do redis.call('rpush', Q, i)"
        "redis.call('zadd', Z, i, i) end", /* long gone */
        "redis.call('rpush', Q, '', 'a b', '\\0\\255')"
        "redis.call('zadd', Z, '-inf', 'q', 'inf', 'r', 0, '')", /* garbage */
    };
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);

    (void)state;
    for (size_t i = 0; i < COUNT(left); i++) {
        char *script =
            ts_text("local Q, Z, T = KEYS[1], KEYS[2], ARGV[1] %s", left[i]);
        for (int how = 0; how < 2; how++) {
            ts_ok(srv, "EVAL %s 2 %s %s %lld", script, QUEUE, SCORES,
                  server_now() + 300000);
            FINE(how ? dibs_lock_try(l, NULL) : dibs_lock_acquire(l, NULL));
            assert_int_equal(queued(), 0);
            FINE(dibs_lock_release(l, NULL));
            if (ts_nkeys(srv) != 0)
                fail_msg("%s: something is left", left[i]);
        }
        free(script);
    }
    dibs_lock_free(l);
    kit_close(c);
}

/* The same happens to a queue in which ours stand. */
static void test_fair_queue_heals_under_waiters(void **state)
{
    static struct waiter w[3];
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.fair_wait_ms = 1000));
    dibs_lock *l = fair_lock(c);

    (void)state;
    atomic_store(&served, 0);
    taken_by_stranger(600000);
    ts_ok(srv, "RPUSH %s garbage", QUEUE);
    line_up(w, 2, c, l);
    char *head = queue_at(-1);
    ts_ok(srv, "RPUSH %s %s", QUEUE, head); /* twice */
    ts_ok(srv, "ZREM %s %s", SCORES, head); /* and without a score */
    ts_ok(srv, "ZADD %s 1 orphan", SCORES);
    free(head);
    waiter_start(&w[2], c, l, 0);
    TS_WAIT(queued_owners() == 3);
    stranger_gives_back();
    for (int i = 0; i < 3; i++) {
        FINE(kit_answer(&w[i].got));
        FINE(kit_answer(&w[i].gave));
    }
    assert_int_equal(atomic_load(&served), 3);
    assert_int_equal(ts_nkeys(srv), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* The whole queue is wiped out while ours wait. */
static void test_fair_queue_wiped(void **state)
{
    static struct waiter w[3];
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.fair_wait_ms = 1000));
    dibs_lock *l = fair_lock(c);

    (void)state;
    atomic_store(&served, 0);
    taken_by_stranger(600000);
    line_up(w, 3, c, l);
    ts_ok(srv, "DEL %s %s", QUEUE, SCORES);
    wait_queued(3);
    check_queue_sound();
    stranger_gives_back();
    for (int i = 0; i < 3; i++)
        FINE(kit_answer(&w[i].gave));
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- a head that did not hear ------------------------------------------ */

#define SLOW   UUID ":98"
#define SILENT "dibs_lock_silent:{l}"

/* It is queued, and listens only when the release is over. False: this machine
 * stood still meanwhile, for nearly the second that it has. */
static bool listens_late(dibs_lock *l, redisContext *slow)
{
    ts_ok(srv, "DEL %s %s %s", QUEUE, SCORES, SILENT);
    FINE(dibs_lock_acquire(l, NULL));
    queue_dead(SLOW, 60000);
    int64_t began = ts_now_ms();
    FINE(dibs_lock_release(l, NULL)); /* nobody hears */
    freeReplyObject(redisCommand(slow, "SUBSCRIBE %s", CALL SLOW));
    return ts_now_ms() - began < 700;
}

/* One that stands in the queue and does not listen yet, as a Java client for a
 * moment: the release cannot reach it, so the one that released calls it again.
 * It keeps its place and its time. */
static void test_fair_queue_called_again(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);
    redisContext *slow = ts_connect(srv);
    redisReply *r = NULL;

    (void)state;
    for (int i = 0; !listens_late(l, slow); i++) {
        assert_in_range(i, 0, 9);
        redisFree(slow);
        slow = ts_connect(srv);
    }
    char *before = ts_str(srv, "ZSCORE %s %s", SCORES, SLOW);
    assert_int_equal(redisGetReply(slow, (void **)&r), REDIS_OK);
    assert_string_equal(r->element[0]->str, "message");
    freeReplyObject(r);
    char *after = ts_str(srv, "ZSCORE %s %s", SCORES, SLOW);
    assert_string_equal(after, before);
    assert_int_equal(queued(), 1);
    ts_ok(srv, "DEL %s %s %s", QUEUE, SCORES, SILENT);
    free(before);
    free(after);
    redisFree(slow);
    dibs_lock_free(l);
    kit_close(c);
}

/* And those who never listen are cleared away, although nobody else comes. */
static void test_fair_queue_swept(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    for (int i = 0; i < 5; i++) {
        char owner[64];
        snprintf(owner, sizeof owner, UUID ":%d", 100 + i);
        queue_dead(owner, 60000);
    }
    FINE(dibs_lock_release(l, NULL));
    TS_WAIT(ts_nkeys(srv) == 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* A client closes that has the lock and many waiters: they leave before it is
 * free, so that the first who is called is somebody else's. */
static void test_fair_queue_closed_leave_first(void **state)
{
    enum { LINE = 50 };
    static struct waiter w[LINE], other;
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *l = fair_lock(c), *m = fair_lock(d);

    (void)state;
    atomic_store(&served, 0);
    FINE(dibs_lock_acquire(l, NULL));
    long long asked = ts_command_calls(srv, "evalsha");
    line_up(w, LINE, c, l);
    line_up(&other, 1, d, m);
    TS_WAIT(ts_command_calls(srv, "evalsha") >= asked + 2 * LINE); /* at rest */
    long long before = ts_command_calls(srv, "publish");
    dibs_lock_free(l);
    kit_close(c);
    check_served(&other, 1, 0);
    /* One, and one for each who awaited an answer just then. */
    assert_in_range(ts_command_calls(srv, "publish"), before + 1,
                    before + LINE);
    for (int i = 0; i < LINE; i++)
        WANT(kit_answer(&w[i].got), DIBS_ERR_CLOSED);
    dibs_lock_free(m);
    kit_close(d);
}

/* ---- without ears ------------------------------------------------------ */

/* No right to any channel, neither to listen nor to call. */
static void test_fair_queue_without_channels(void **state)
{
    static struct waiter w[5];

    (void)state;
    atomic_store(&served, 0);
    ts_ok(srv, "ACL SETUSER deaf on >pass ~* resetchannels +@all");
    dibs_client *c =
        kit_open(DIBS_CLIENT_OPTS(.user = "deaf", .password = "pass"));
    dibs_lock *l = fair_lock(c);
    FINE(dibs_lock_acquire(l, NULL));
    for (int i = 0; i < 5; i++) {
        waiter_start(&w[i], c, l, 0);
        wait_queued(i + 1);
    }
    FINE(dibs_lock_release(l, NULL));
    check_served(w, 5, 0);

    /* And a dead head, which cannot be called either, goes when its time is
     * over. */
    queue_dead(UUID ":99", 700);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    ts_ok(srv, "ACL DELUSER deaf");
}

/* Those without ears, among others who take them for dead. */
static void test_fair_queue_deaf_among_others(void **state)
{
    static struct waiter w[6];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);

    (void)state;
    atomic_store(&served, 0);
    ts_ok(srv, "ACL SETUSER deaf on >pass ~* resetchannels +@all");
    dibs_client *d =
        kit_open(DIBS_CLIENT_OPTS(.user = "deaf", .password = "pass"));
    dibs_lock *m = fair_lock(d);
    FINE(dibs_lock_acquire(l, NULL));
    for (int i = 0; i < 6; i++) {
        waiter_start(&w[i], i % 2 ? c : d, i % 2 ? l : m, 0);
        wait_queued(i + 1);
    }
    FINE(dibs_lock_release(l, NULL));
    check_served(w, 6, 0);
    dibs_lock_free(l);
    dibs_lock_free(m);
    kit_close(c);
    kit_close(d);
    ts_ok(srv, "ACL DELUSER deaf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_fair_queue_never_evicted),
        KIT_TEST(test_fair_queue_never_evicted_short_lease),
        KIT_TEST(test_fair_queue_evicted_comes_back),
        KIT_TEST(test_fair_queue_among_redisson),
        KIT_TEST(test_fair_queue_wall_clock),
        KIT_TEST(test_fair_queue_heals),
        KIT_TEST(test_fair_queue_heals_under_waiters),
        KIT_TEST(test_fair_queue_wiped),
        KIT_TEST(test_fair_queue_called_again),
        KIT_TEST(test_fair_queue_swept),
        KIT_TEST(test_fair_queue_closed_leave_first),
        KIT_TEST(test_fair_queue_without_channels),
        KIT_TEST(test_fair_queue_deaf_among_others),
    };
    return KIT_RUN_PARALLEL("server.fair_queue", tests);
}
