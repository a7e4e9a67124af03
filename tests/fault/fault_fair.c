/* SPDX-License-Identifier: MIT
 *
 * fault_fair.c - what goes wrong on the way to and from a fair lock's queue.
 *
 * A reply is lost where a waiter queues, where it is given the lock, where it
 * gives up and where it releases: it stands in the queue once or not at all,
 * the lock has one holder or none, and the next in line gets it. A message is
 * lost, a connection, the server's memory: waiting goes on.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/loss.h"

#include <stdio.h>

#define HASTY_MS ts_ms(400) /* a command's time where a reply never comes */
#define HOLDER   "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

/* ---- set-up ------------------------------------------------------------ */

static int fresh(void **state)
{
    static const struct dibs__script *const scripts[] = {
        &dibs__script_fair_acquire, &dibs__script_fair_info,
        &dibs__script_fair_leave, &dibs__script_fair_release};

    kit_fresh(state);
    for (size_t i = 0; i < COUNT(scripts); i++)
        kit_load(scripts[i]);
    return 0;
}

static dibs_lock *fair_lock(struct kit_client *k, const char *name)
{
    dibs_lock *l = NULL;

    assert_int_equal(dibs_fair_lock_new(k->c, name, &l), DIBS_OK);
    return l;
}

static long long queued(const char *name)
{
    return ts_int(kit_srv, "LLEN redisson_lock_queue:{%s}", name);
}

static void taken_by_stranger(const char *name)
{
    ts_ok(kit_srv, "HSET %s %s 1", name, HOLDER);
    ts_ok(kit_srv, "PEXPIRE %s %lld", name, (long long)KIT_LONG);
}

/* As any client of these keys does it. */
static void stranger_gives_back(const char *name)
{
    ts_ok(kit_srv, "EVAL %s 2 %s redisson_lock_queue:{%s} %s:{%s}:",
          "redis.call('del', KEYS[1]) "
          "local h = redis.call('lindex', KEYS[2], 0) "
          "if h then redis.call('publish', ARGV[1] .. h, '0') end",
          name, name, "redisson_lock__channel", name);
}

/* No entry twice, and as many scores as entries. */
static void check_queue(const char *where, const char *name, long long n)
{
    char *bad = ts_str(kit_srv,
                       "EVAL %s 2 redisson_lock_queue:{%s} "
                       "redisson_lock_timeout:{%s}",
                       "local all = redis.call('lrange', KEYS[1], 0, -1) "
                       "for i, o in ipairs(all) do "
                       "  if not redis.call('zscore', KEYS[2], o) or "
                       "    redis.call('lpos', KEYS[1], o) ~= i - 1 then "
                       "    return o end "
                       "end "
                       "if redis.call('zcard', KEYS[2]) ~= #all then "
                       "  return 'scores' end",
                       name, name);
    long long there = queued(name);

    if (bad)
        fail_msg("%s: the queue is unsound: %s", where, bad);
    if (there != n)
        fail_msg("%s: %lld in the queue, not %lld", where, there, n);
}

/* Everything is gone, and a stranger gets the lock at once. */
static void check_over(const char *where, const char *name)
{
    kit_no_keys(where);
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = fair_lock(k, name);
    if (dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)) != DIBS_OK ||
        dibs_lock_release(l, NULL) != DIBS_OK)
        fail_msg("%s: a stranger does not get it", where);
    dibs_lock_free(l);
    kit_close(k);
}

/* ---- a lost reply ------------------------------------------------------ */

static const struct loss reply_cut = {
    .name = "reply cut", .rule = {.action = TS_CUT_REPLY_AT, .at = 1}};

static const struct loss *const losses[] = {
    &loss_not_passed_on, &loss_request_cut,     &loss_reply_dropped,
    &reply_cut,          &loss_reply_swallowed, &loss_request_held,
};

struct run {
    char where[96];
    char *name;
    struct kit_client *k;
    dibs_lock *l;
    dibs_owner owner;
    struct kit_end end;
    const struct loss *loss;
    bool for_ever; /* every one is lost, until it is called off */
};

static int lose(struct run *r, const struct dibs__script *script)
{
    struct ts_rule rule = r->loss->rule;
    char *needle = kit_needle_keys(script, 4, r->name);

    rule.match = "EVAL*";
    rule.contains = needle;
    rule.count = r->for_ever ? 0 : 1;
    int id = ts_proxy_rule(kit_px, &rule);
    free(needle);
    return id;
}

static void wait_for_it(struct run *r, int64_t wait_ms)
{
    assert_int_equal(dibs_lock_acquire_async(
                         r->l,
                         DIBS_LOCK_OPTS(.owner = r->owner, .wait_ms = wait_ms),
                         kit_ended, &r->end),
                     DIBS_OK);
}

static void must_have_it(struct run *r, const char *step)
{
    dibs_err err = kit_wait(&r->end);

    if (err != DIBS_OK)
        fail_msg("%s, %s: %s", r->where, step, dibs_strerror(err));
    kit_check(r->where, r->l, r->owner, r->name, 1);
    check_queue(r->where, r->name, 0);
}

static void must_give_back(struct run *r)
{
    dibs_err err = dibs_lock_release(r->l, DIBS_LOCK_OPTS(.owner = r->owner));

    if (err != DIBS_OK)
        fail_msg("%s: release: %s", r->where, dibs_strerror(err));
}

static void lose_at_enqueue(struct run *r)
{
    taken_by_stranger(r->name);
    int id = lose(r, &dibs__script_fair_acquire);
    wait_for_it(r, 0);
    assert_true(ts_rule_wait(kit_px, id, 1, TS_SOON));
    TS_WAIT(queued(r->name) == 1);
    kit_relent();
    check_queue(r->where, r->name, 1);
    stranger_gives_back(r->name);
    must_have_it(r, "enqueue");
    must_give_back(r);
}

static void lose_at_acquire(struct run *r)
{
    int id = lose(r, &dibs__script_fair_acquire);

    wait_for_it(r, 0);
    assert_true(ts_rule_wait(kit_px, id, 1, TS_SOON));
    must_have_it(r, "acquire");
    kit_relent();
    must_give_back(r);
}

static void lose_at_turn(struct run *r)
{
    taken_by_stranger(r->name);
    ts_reset_stats(kit_srv);
    wait_for_it(r, 0);
    /* It asks once more when it hears; each time the script looks at the time.
     */
    TS_WAIT(ts_command_calls(kit_srv, "time") >= 2);
    int id = lose(r, &dibs__script_fair_acquire);
    stranger_gives_back(r->name);
    assert_true(ts_rule_wait(kit_px, id, 1, TS_SOON));
    must_have_it(r, "its turn");
    kit_relent();
    must_give_back(r);
}

static void lose_at_give_up(struct run *r)
{
    taken_by_stranger(r->name);
    int id = lose(r, &dibs__script_fair_leave);
    wait_for_it(r, 0);
    TS_WAIT(queued(r->name) == 1);
    TS_WAIT(dibs_lock_cancel(r->l, r->owner) == DIBS_OK);
    assert_true(ts_rule_wait(kit_px, id, 1, TS_SOON));
    dibs_err err = kit_wait(&r->end);
    if (err != DIBS_ERR_CANCELED)
        fail_msg("%s: %s", r->where, dibs_strerror(err));
    kit_relent();
    TS_WAIT(queued(r->name) == 0);
    check_queue(r->where, r->name, 0);
    ts_ok(kit_srv, "DEL %s", r->name);
}

static void lose_at_release(struct run *r)
{
    struct kit_client *next = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = fair_lock(next, r->name);
    struct kit_end end = {.err = DIBS_OK};

    wait_for_it(r, 0);
    must_have_it(r, "before the release");
    assert_int_equal(dibs_lock_acquire_async(l, NULL, kit_ended, &end),
                     DIBS_OK);
    TS_WAIT(queued(r->name) == 1);
    int id = lose(r, &dibs__script_fair_release);
    must_give_back(r);
    assert_int_equal(ts_rule_hits(kit_px, id), 1);
    assert_int_equal(kit_wait(&end), DIBS_OK);
    kit_relent(); /* a late release must not end the next one's hold */
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    assert_int_equal(dibs_lock_info_get(r->l, &info), DIBS_OK);
    kit_check(r->where, l, 0, r->name, 1);
    assert_int_equal(dibs_lock_release(l, NULL), DIBS_OK);
    dibs_lock_free(l);
    kit_close(next);
}

/* Every answer is lost until the wait is over: nothing may stay of it. */
static void lose_all(struct run *r)
{
    r->for_ever = true;
    int id = lose(r, &dibs__script_fair_acquire);
    wait_for_it(r, HASTY_MS / 2);
    dibs_err err = kit_wait(&r->end);
    assert_true(ts_rule_hits(kit_px, id) > 0);
    if (err != DIBS_ERR_TIMEOUT && err != DIBS_ERR_UNKNOWN &&
        err != DIBS_ERR_CONN)
        fail_msg("%s: %s", r->where, dibs_strerror(err));
    kit_relent();
}

static void run_all(void (*step)(struct run *r), const char *what)
{
    for (size_t i = 0; i < COUNT(losses); i++) {
        for (int user = KIT_FULL; user <= KIT_MEEK; user++) {
            struct run r = {.loss = losses[i]};
            void *state = NULL;

            fresh(&state);
            snprintf(r.where, sizeof r.where, "%s, %s, %s", what,
                     losses[i]->name, user ? "meek" : "full");
            r.name = kit_name("fair");
            r.k = kit_open(&(struct kit_opts){
                .user = (enum kit_user)user,
                .timeout_ms =
                    losses[i]->silent || step == lose_all ? HASTY_MS : 0});
            r.l = fair_lock(r.k, r.name);
            r.owner = dibs_owner_new(r.k->c);
            step(&r);
            check_over(r.where, r.name);
            dibs_lock_free(r.l);
            kit_close(r.k);
            free(r.name);
        }
    }
}

#define LOSE_TEST(what)                                                        \
    static void test_fair_lose_##what(void **state)                            \
    {                                                                          \
        (void)state;                                                           \
        run_all(lose_##what, #what);                                           \
    }

LOSE_TEST(at_enqueue)
LOSE_TEST(at_acquire)
LOSE_TEST(at_turn)
LOSE_TEST(at_give_up)
LOSE_TEST(at_release)
LOSE_TEST(all)

/* ---- a lost message, a lost connection --------------------------------- */

enum { LINE = 3 };

struct line {
    struct kit_client *k;
    dibs_lock *l;
    dibs_owner owner[LINE];
    struct kit_end end[LINE];
};

/* A stranger has the lock, and these wait for it. */
static void line_up(struct line *line)
{
    long long channels = ts_nchannels(kit_srv);

    taken_by_stranger("l");
    line->k = kit_open(&(struct kit_opts){.direct = false});
    line->l = fair_lock(line->k, "l");
    for (int i = 0; i < LINE; i++) {
        line->owner[i] = dibs_owner_new(line->k->c);
        assert_int_equal(dibs_lock_acquire_async(
                             line->l, DIBS_LOCK_OPTS(.owner = line->owner[i]),
                             kit_ended, &line->end[i]),
                         DIBS_OK);
        TS_WAIT(queued("l") == i + 1);
    }
    TS_WAIT(ts_nchannels(kit_srv) == channels + LINE);
}

/* Each gets it in turn, and nobody before. */
static void drain(struct line *line)
{
    for (int i = 0; i < LINE; i++) {
        assert_int_equal(kit_wait(&line->end[i]), DIBS_OK);
        kit_check("in turn", line->l, line->owner[i], "l", 1);
        for (int j = i + 1; j < LINE; j++)
            assert_false(atomic_load(&line->end[j].over));
        assert_int_equal(
            dibs_lock_release(line->l, DIBS_LOCK_OPTS(.owner = line->owner[i])),
            DIBS_OK);
    }
    dibs_lock_free(line->l);
    kit_close(line->k);
    assert_int_equal(ts_nkeys(kit_srv), 0);
}

/* Nobody hears that it is called: found out by looking. */
static void test_fair_messages_lost(void **state)
{
    struct line line = {.k = NULL};

    (void)state;
    line_up(&line);
    int id =
        ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_SWALLOW_MESSAGE});
    stranger_gives_back("l");
    assert_int_equal(kit_wait(&line.end[0]), DIBS_OK);
    ts_proxy_unrule(kit_px, id);
    drain(&line);
}

/* All connections end: everybody keeps its place. */
static void test_fair_connections_lost(void **state)
{
    struct line line = {.k = NULL};

    (void)state;
    line_up(&line);
    for (int i = 0; i < 5; i++) {
        char *before = ts_str(kit_srv, "LINDEX redisson_lock_queue:{l} 0");
        ts_proxy_refuse(kit_px, true); /* else nobody may see that all ended */
        ts_proxy_kill_all(kit_px, false);
        TS_WAIT(ts_nchannels(kit_srv) == 0);
        ts_proxy_refuse(kit_px, false);
        TS_WAIT(ts_nchannels(kit_srv) == LINE);
        char *after = ts_str(kit_srv, "LINDEX redisson_lock_queue:{l} 0");
        assert_string_equal(before, after);
        free(before);
        free(after);
        check_queue("connected again", "l", LINE);
    }
    stranger_gives_back("l");
    drain(&line);
}

/* The lock is freed while nobody is connected, and nobody can be called: each
 * is back within its second, and nobody is taken for dead. */
static void test_fair_freed_meanwhile(void **state)
{
    struct line line = {.k = NULL};

    (void)state;
    line_up(&line);
    ts_proxy_refuse(kit_px, true);
    ts_proxy_kill_all(kit_px, false);
    TS_WAIT(ts_nchannels(kit_srv) == 0);
    stranger_gives_back("l");
    ts_proxy_refuse(kit_px, false);
    drain(&line);
}

/* The server forgets everything: the queue is there again, and it goes on. */
static void test_fair_server_restarted(void **state)
{
    struct line line = {.k = NULL};

    (void)state;
    line_up(&line);
    ts_server_restart(kit_srv);
    for (int i = 0; i < LINE; i++) { /* the one that comes first has it first */
        int who = -1;
        struct ts_wait w = ts_wait_begin(TS_SOON);
        while (who < 0) {
            for (int j = 0; j < LINE; j++)
                if (atomic_load(&line.end[j].over) && line.owner[j])
                    who = j;
            if (who < 0 && !ts_wait_step(&w))
                fail_msg("nobody gets it");
        }
        assert_int_equal(line.end[who].err, DIBS_OK);
        assert_int_equal(
            dibs_lock_release(line.l, DIBS_LOCK_OPTS(.owner = line.owner[who])),
            DIBS_OK);
        line.owner[who] = 0;
    }
    dibs_lock_free(line.l);
    kit_close(line.k);
    TS_WAIT(ts_nkeys(kit_srv) == 0);
}

/* Closing while waiters cannot leave the queue: close says so, and those left
 * behind cost the next one its second, no more. */
static void test_fair_close_unheard(void **state)
{
    struct line line = {.k = NULL};

    (void)state;
    line_up(&line);
    ts_proxy_refuse(kit_px, true);
    ts_proxy_kill_all(kit_px, false);
    dibs_err err = dibs_client_close(line.k->c, HASTY_MS);
    assert_true(err == DIBS_OK || err == DIBS_ERR_UNKNOWN);
    for (int i = 0; i < LINE; i++)
        assert_int_equal(kit_wait(&line.end[i]), DIBS_ERR_CLOSED);
    dibs_lock_free(line.l);
    kit_drop(line.k);
    ts_proxy_refuse(kit_px, false);
    ts_ok(kit_srv, "DEL l");
    check_queue("left behind", "l", LINE);
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = fair_lock(k, "l");
    assert_int_equal(
        dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 4000 * ts_slow())),
        DIBS_OK);
    assert_int_equal(dibs_lock_release(l, NULL), DIBS_OK);
    dibs_lock_free(l);
    kit_close(k);
    assert_int_equal(ts_nkeys(kit_srv), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_fair_lose_at_enqueue, fresh),
        cmocka_unit_test_setup(test_fair_lose_at_acquire, fresh),
        cmocka_unit_test_setup(test_fair_lose_at_turn, fresh),
        cmocka_unit_test_setup(test_fair_lose_at_give_up, fresh),
        cmocka_unit_test_setup(test_fair_lose_at_release, fresh),
        cmocka_unit_test_setup(test_fair_lose_all, fresh),
        cmocka_unit_test_setup(test_fair_messages_lost, fresh),
        cmocka_unit_test_setup(test_fair_connections_lost, fresh),
        cmocka_unit_test_setup(test_fair_freed_meanwhile, fresh),
        cmocka_unit_test_setup(test_fair_server_restarted, fresh),
        cmocka_unit_test_setup(test_fair_close_unheard, fresh),
    };

    return TS_RUN_PARALLEL("fault.fair", tests, kit_up, kit_down);
}
