/* SPDX-License-Identifier: MIT
 *
 * test_fair.c - the fair lock: first come, first served; giving up; what the
 * dead cost those behind them; how quiet it is; losing it.
 *
 * That queue, scores and subscriptions are gone afterwards is checked after
 * every test. What others may do to the queue is test_fair_queue's, order under
 * load and with crashes stress_fair's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "server/fair_kit.h"

/* ---- the two forms ----------------------------------------------------- */

static void test_fair_take_and_give(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    assert_int_equal(kit_count(l, "l", 0), 1);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_try(l, NULL));
    assert_int_equal(kit_count(l, "l", 0), 3);
    assert_int_equal(queued(), 0);
    WANT(kit_elsewhere(l, NULL, dibs_lock_try), DIBS_ERR_BUSY);
    for (int i = 2; i >= 0; i--) {
        FINE(dibs_lock_release(l, NULL));
        assert_int_equal(kit_count(l, "l", 0), i);
    }
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    dibs_lock_free(l);
    kit_close(c);
}

/* Trying neither queues nor overtakes a queue: not while the lock is taken,
 * and not while it is free and somebody else's turn. */
static void test_fair_try(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);
    redisContext *redisson_head = ts_connect(srv);

    (void)state;
    taken_by_stranger(600000);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    assert_int_equal(queued(), 0);
    assert_false(ts_exists(srv, SCORES));

    /* Somebody waits, and listens, but is slow. */
    freeReplyObject(
        redisCommand(redisson_head, "SUBSCRIBE %s", CALL HOLDER "1"));
    redisson(REDISSON_TRY, HOLDER "1", 30000, 300000, 0);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    stranger_gives_back();
    for (int i = 0; i < 20; i++)
        WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    assert_int_equal(queued(), 1);
    assert_true(redisson(REDISSON_TRY, HOLDER "1", 30000, 300000, 0));
    assert_true(redisson(REDISSON_UNLOCK, HOLDER "1", 0, 0, 0));
    FINE(dibs_lock_try(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    redisFree(redisson_head);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- order ------------------------------------------------------------- */

static void test_fair_order(void **state)
{
    enum { LINE = 40 };
    static struct waiter w[LINE];
    dibs_client *c[2] = {kit_open(NULL), kit_open(NULL)};
    dibs_lock *l[2] = {fair_lock(c[0]), fair_lock(c[1])};

    (void)state;
    atomic_store(&served, 0);
    FINE(dibs_lock_acquire(l[0], NULL));
    for (int i = 0; i < LINE; i++)
        line_up(&w[i], 1, c[i % 2], l[i % 2]);
    check_queue_sound();
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    FINE(dibs_lock_info_get(l[1], &info));
    assert_int_equal(info.waiters, LINE);
    assert_int_equal(atomic_load(&served), 0);
    ts_reset_stats(srv);
    FINE(dibs_lock_release(l[0], NULL));
    check_served(w, LINE, 0);
    /* A release and the next one's acquire; somebody may have asked because
     * its time had come. */
    long long commands = ts_command_calls(srv, "evalsha");
    if (commands > 2 * LINE + 1 + LINE / 4)
        fail_msg("%lld commands for %d hand-overs", commands, LINE);
    for (int i = 0; i < 2; i++) {
        dibs_lock_free(l[i]);
        kit_close(c[i]);
    }
}

/* Sync waiters, on threads. */
static void test_fair_order_of_threads(void **state)
{
    enum { LINE = 5 };
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);
    struct call calls[LINE];
    char *first = NULL, *head = NULL;

    (void)state;
    taken_by_stranger(600000);
    for (int i = 0; i < LINE; i++) {
        kit_call_start(&calls[i], l, DIBS_LOCK_OPTS(.owner = dibs_owner_new(c)),
                       dibs_lock_acquire);
        wait_queued(i + 1);
    }
    stranger_gives_back();
    for (int i = 0; i < LINE; i++) {
        char text[DIBS_OWNER_MAX];
        FINE(kit_call_end(&calls[i]));
        FINE(dibs_lock_owner_text(l, calls[i].opts.owner, text, sizeof text));
        assert_int_equal(queued(), LINE - 1 - i);
        free(first);
        first = ts_hget(srv, "l", text);
        assert_string_equal(first, "1");
        free(head);
        head = queue_at(0);
        assert_true(!head || strcmp(head, text) != 0);
        FINE(dibs_lock_release(l, &calls[i].opts));
    }
    free(first);
    free(head);
    dibs_lock_free(l);
    kit_close(c);
}

static bool see(size_t place, const char *owner, int64_t remaining_ms,
                void *arg)
{
    char *seen = arg;

    assert_true(remaining_ms > 0);
    sprintf(seen + strlen(seen), "%s%s", place ? " " : "", owner);
    return true;
}

static void test_fair_queue_can_be_seen(void **state)
{
    static struct waiter w[3];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);
    char seen[4 * DIBS_OWNER_MAX] = "";

    (void)state;
    atomic_store(&served, 0);
    taken_by_stranger(600000);
    line_up(w, 3, c, l);
    FINE(dibs_lock_queue(l, see, seen));
    char *text = queue_text();
    assert_string_equal(seen, text);
    free(text);
    bool was_locked = false;
    FINE(dibs_lock_force_release(l, &was_locked)); /* calls the next in line */
    assert_true(was_locked);
    check_served(w, 3, 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- giving up --------------------------------------------------------- */

static void test_fair_gives_up(void **state)
{
    static struct waiter w[4];
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_lock *l = fair_lock(c);
    dibs_lock *other = fair_lock(d);

    (void)state;
    atomic_store(&served, 0);
    taken_by_stranger(600000);
    WANT(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 30)), DIBS_ERR_TIMEOUT);
    assert_false(ts_exists(srv, QUEUE));
    assert_false(ts_exists(srv, SCORES));

    line_up(w, 2, c, l);
    WANT(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 30)), DIBS_ERR_TIMEOUT);
    assert_int_equal(queued(), 2);
    line_up(w + 2, 1, d, other);
    line_up(w + 3, 1, c, l);
    FINE(dibs_lock_cancel(l, w[1].owner)); /* in the middle */
    WANT(kit_answer(&w[1].got), DIBS_ERR_CANCELED);
    assert_int_equal(queued(), 3);
    FINE(dibs_lock_cancel(l, w[0].owner)); /* the head */
    WANT(kit_answer(&w[0].got), DIBS_ERR_CANCELED);
    assert_int_equal(queued(), 2);
    check_queue_sound();
    dibs_lock_free(other);
    kit_close(d); /* the head of now, by closing */
    WANT(kit_answer(&w[2].got), DIBS_ERR_CLOSED);
    assert_int_equal(queued(), 1);
    stranger_gives_back();
    check_served(w + 3, 1, 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* The one who was called leaves instead: the next is called then. */
static void test_fair_called_one_leaves(void **state)
{
    static struct waiter w[2];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);
    int64_t start = ts_now_ms();

    (void)state;
    for (int i = 0; i < 10; i++) {
        atomic_store(&served, 0);
        taken_by_stranger(600000);
        line_up(w, 2, c, l);
        ts_ok(srv, "DEL l"); /* without a word */
        dibs_err late = dibs_lock_cancel(l, w[0].owner);
        dibs_err err = kit_answer(&w[0].got);
        assert_true(err == DIBS_OK || err == DIBS_ERR_CANCELED);
        if (err == DIBS_ERR_CANCELED || late != DIBS_ERR_NOT_OWNER)
            FINE(late); /* else: had it, and gave it back, before that */
        FINE(kit_answer(&w[1].got));
        FINE(kit_answer(&w[1].gave));
        if (err == DIBS_OK)
            FINE(kit_answer(&w[0].gave));
        TS_WAIT(queued() == 0);
    }
    assert_true(ts_now_ms() - start < TS_SOON);
    dibs_lock_free(l);
    kit_close(c);
}

static void test_fair_close_with_waiters(void **state)
{
    enum { LINE = 100 };
    static struct waiter w[LINE];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    for (int i = 0; i < LINE; i++)
        waiter_start(&w[i], c, l, 0);
    wait_queued(LINE);
    kit_close(c);
    for (int i = 0; i < LINE; i++)
        WANT(kit_answer(&w[i].got), DIBS_ERR_CLOSED);
    assert_int_equal(ts_nkeys(srv), 0);
    dibs_lock_free(l);
}

/* ---- the dead ---------------------------------------------------------- */

/* How many ms n dead ones in front cost, measured from the release. */
static int64_t dead_cost(int n)
{
    static struct waiter w[2];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);

    atomic_store(&served, 0);
    FINE(dibs_lock_acquire(l, NULL));
    for (int i = 0; i < n; i++) {
        char owner[64];
        snprintf(owner, sizeof owner, "%s:%d", UUID, 900 + i);
        queue_dead(owner, 330000 + 300000LL * i);
    }
    line_up(w, 2, c, l);
    assert_int_equal(queued(), n + 2);
    int64_t start = ts_now_ms();
    FINE(dibs_lock_release(l, NULL));
    check_served(w, 2, 0);
    int64_t took = ts_now_ms() - start;
    assert_int_equal(ts_nkeys(srv), 0);
    dibs_lock_free(l);
    kit_close(c);
    return took;
}

/* What is promised of it holds, unless this machine stood still meanwhile. */
static void cost_of_dead(int n, int64_t limit_ms)
{
    for (int i = 0;; i++) {
        int64_t took = dead_cost(n);
        if (took <= limit_ms * ts_slow())
            return;
        if (i == 4)
            fail_msg("%d dead heads cost %lld ms", n, (long long)took);
    }
}

static void test_fair_dead_head(void **state)
{
    (void)state;
    cost_of_dead(1, 2000);
}

static void test_fair_five_dead_heads(void **state)
{
    (void)state;
    cost_of_dead(5, 6000);
}

/* More than anybody calls at once: cleared away anyway. */
static void test_fair_crowd_of_dead(void **state)
{
    (void)state;
    cost_of_dead(300, 20000);
}

/* The holder dies, too, and so do those behind it: found out soon after the
 * lock's end. */
static void test_fair_all_before_dead(void **state)
{
    static struct waiter w[1];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);

    (void)state;
    atomic_store(&served, 0);
    taken_by_stranger(3000); /* time to line up */
    for (int i = 0; i < 30; i++) {
        char owner[64];
        snprintf(owner, sizeof owner, "%s:%d", UUID, 900 + i);
        queue_dead(owner, 330000);
    }
    line_up(w, 1, c, l);
    int64_t start = ts_now_ms();
    check_served(w, 1, 0);
    assert_true(ts_now_ms() - start < 13000 * ts_slow());
    dibs_lock_free(l);
    kit_close(c);
}

/* A process is killed while it waits. */
static int wait_for_ever(int fd, void *arg)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    char go;

    if (!ts_hear(fd, &go, 1, 4 * TS_SOON) ||
        dibs_client_open(arg, NULL, &c) != DIBS_OK ||
        dibs_fair_lock_new(c, "l", &l) != DIBS_OK)
        return 1;
    return dibs_lock_acquire(l, NULL) == DIBS_OK ? 2 : 3;
}

/* How many ms it costs that this one at the head is killed. */
static int64_t killed_cost(struct ts_child *ch)
{
    static struct waiter w[1];

    atomic_store(&served, 0);
    taken_by_stranger(600000);
    assert_true(ts_tell(ts_child_fd(ch), "g", 1));
    wait_queued(1);
    TS_WAIT(ts_nchannels(srv) == 1);
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);
    line_up(w, 1, c, l);
    ts_child_kill(ch);
    TS_WAIT(ts_nchannels(srv) == 1);
    assert_int_equal(queued(), 2);
    int64_t start = ts_now_ms();
    stranger_gives_back();
    /* Redisson calls only the dead one; ours finds out by itself. */
    check_served(w, 1, 0);
    int64_t took = ts_now_ms() - start;
    dibs_lock_free(l);
    kit_close(c);
    TS_WAIT(ts_nchannels(srv) == 0);
    return took;
}

static void test_fair_killed_head(void **state)
{
    enum { MOST = 4 }; /* should this machine stand still */
    struct ts_child *ch[MOST];
    int64_t took = INT64_MAX;

    (void)state;
    for (int i = 0; i < MOST; i++)
        ch[i] = ts_spawn(wait_for_ever, (void *)(uintptr_t)ts_server_url(srv));
    for (int i = 0; i < MOST && took >= 4000 * ts_slow(); i++)
        took = killed_cost(ch[i]);
    for (int i = 0; i < MOST; i++)
        ts_child_free(ch[i]);
    assert_true(took < 4000 * ts_slow());
}

/* ---- quiet ------------------------------------------------------------- */

/* Nothing happens: the first two ask every other second, those behind them
 * less often. More than that may come when this machine stood still. */
static void count_idle(long long seconds, long long most)
{
    for (int i = 0;; i++) {
        ts_reset_stats(srv);
        int64_t until = ts_now_ms() + 1000 * seconds;
        TS_WAIT(ts_now_ms() >= until);
        long long asked =
            ts_command_calls(srv, "evalsha") + ts_command_calls(srv, "eval");
        if (asked <= most)
            return;
        if (i == 3)
            fail_msg("%lld commands in %lld seconds", asked, seconds);
    }
}

static void test_fair_no_spinning(void **state)
{
    enum { LINE = 30 };
    static struct waiter w[LINE];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);
    redisContext *lazy = ts_connect(srv);

    (void)state;
    atomic_store(&served, 0);
    taken_by_stranger(600000);
    line_up(w, LINE, c, l);
    /* In three seconds: each one's settling in, then two of the first two,
     * and one of the third. */
    TS_WAIT(ts_command_calls(srv, "evalsha") >= 2 * LINE);
    count_idle(3, 2 + 2 + 1 + 1);

    /* The lock is free, and somebody at the head hears but does not move. */
    freeReplyObject(redisCommand(lazy, "SUBSCRIBE %s", CALL "lazy"));
    ts_ok(srv, "LPUSH %s lazy", QUEUE);
    ts_ok(srv, "ZADD %s %lld lazy", SCORES, server_now() + 600000);
    ts_ok(srv, "DEL l");
    count_idle(2, 2 * 3 + LINE / 2);
    assert_int_equal(atomic_load(&served), 0);
    ts_ok(srv, "LPOP %s", QUEUE);
    ts_ok(srv, "ZREM %s lazy", SCORES);
    redisFree(lazy);
    check_served(w, LINE, 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- losing it --------------------------------------------------------- */

static void test_fair_release_of_lost(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fair_lock(c);

    (void)state;
    /* It ended, and nobody has had it since. */
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_short())));
    assert_true(ts_wait_exists(srv, "l", false));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    /* Somebody took it away, and only the server knows. */
    FINE(dibs_lock_acquire(l, NULL));
    ts_ok(srv, "DEL l");
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_acquire(l, NULL));
    ts_ok(srv, "DEL l");
    taken_by_stranger(600000);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    char *count = ts_hget(srv, "l", HOLDER);
    assert_string_equal(count, "1");
    free(count);
    ts_ok(srv, "DEL l");
    dibs_lock_free(l);
    kit_close(c);
}

/* Its owner's clock has ended it, the server's has not. That owner asks again,
 * and comes behind who waited meanwhile. */
static void test_fair_lost_goes_to_the_end(void **state)
{
    dibs_client *c[2] = {kit_open(NULL),
                         kit_open(DIBS_CLIENT_OPTS(.fair_wait_ms = 60000))};
    dibs_lock *l[2] = {fair_lock(c[0]), fair_lock(c[1])};
    static struct waiter w;

    (void)state;
    atomic_store(&served, 0);
    FINE(dibs_lock_acquire(l[0], DIBS_LOCK_OPTS(.lease_ms = kit_short())));
    assert_int_equal(ts_int(srv, "PEXPIRE l 600000"), 1);
    line_up(&w, 1, c[1], l[1]);
    TS_WAIT(dibs_lock_state(l[0], 0) == DIBS_LOST);
    WANT(dibs_lock_release(l[0], NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_acquire(l[0], DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
    assert_int_equal(atomic_load(&w.place), 0);
    check_served(&w, 1, 0);
    FINE(dibs_lock_release(l[0], NULL));
    for (int i = 0; i < 2; i++) {
        dibs_lock_free(l[i]);
        kit_close(c[i]);
    }
}

/* Renewed while it is held, and those who wait see it. */
static void test_fair_renewed(void **state)
{
    static struct waiter w[1];
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = fair_lock(c);

    (void)state;
    atomic_store(&served, 0);
    FINE(dibs_lock_acquire(l, NULL));
    line_up(w, 1, c, l);
    int64_t until = ts_now_ms() + 3 * kit_lease() / 2;
    TS_WAIT(ts_now_ms() >= until);
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_HELD);
    assert_int_equal(atomic_load(&served), 0);
    FINE(dibs_lock_release(l, NULL));
    check_served(w, 1, 0);
    dibs_lock_free(l);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_fair_killed_head), /* first: it forks */
        KIT_TEST(test_fair_take_and_give),
        KIT_TEST(test_fair_try),
        KIT_TEST(test_fair_order),
        KIT_TEST(test_fair_order_of_threads),
        KIT_TEST(test_fair_queue_can_be_seen),
        KIT_TEST(test_fair_gives_up),
        KIT_TEST(test_fair_called_one_leaves),
        KIT_TEST(test_fair_close_with_waiters),
        KIT_TEST(test_fair_dead_head),
        KIT_TEST(test_fair_five_dead_heads),
        KIT_TEST(test_fair_crowd_of_dead),
        KIT_TEST(test_fair_all_before_dead),
        KIT_TEST(test_fair_no_spinning),
        KIT_TEST(test_fair_release_of_lost),
        KIT_TEST(test_fair_lost_goes_to_the_end),
        KIT_TEST(test_fair_renewed),
    };
    return KIT_RUN_PARALLEL("server.fair", tests);
}
