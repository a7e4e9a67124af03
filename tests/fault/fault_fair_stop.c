/* SPDX-License-Identifier: MIT
 *
 * fault_fair_stop.c - a process in the queue of a fair lock is stopped: by
 * Ctrl-Z, in a machine that is paused, on a host that lost its power. To the
 * server it is there: its connections are open, and what it is told is received
 * by its host. The lock is not kept for it for long; when it wakes, it queues
 * anew. A server that stood still costs nobody its place.
 *
 * Waiters are children of the test that do what they are told over a socket.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define CALL_MS  kit_ms(600)
#define HOLDER   "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"
#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:8"
#define QUEUE    "redisson_lock_queue:{l}"
#define SCORES   "redisson_lock_timeout:{l}"

/* ---- children ---------------------------------------------------------- */

enum what { OPEN, LINE_UP, LOOK, GIVE, CLOSE };

struct order {
    enum what what;
    int64_t call_ms;
    char url[200];
};

struct answer {
    dibs_err err;
    bool over; /* its acquire */
};

struct life {
    dibs_client *c;
    dibs_lock *l;
    dibs_owner owner;
    struct kit_end end;
};

static dibs_err obey(struct life *me, const struct order *o)
{
    const dibs_lock_opts opts = {.size = sizeof opts, .owner = me->owner};
    dibs_err err;

    switch (o->what) {
    case OPEN:
        err = dibs_client_open(o->url,
                               DIBS_CLIENT_OPTS(.fair_call_ms = o->call_ms,
                                                .command_timeout_ms = KIT_LONG,
                                                .lease_ms = KIT_LONG),
                               &me->c);
        if (err == DIBS_OK)
            err = dibs_fair_lock_new(me->c, "l", &me->l);
        if (err == DIBS_OK)
            me->owner = dibs_owner_new(me->c);
        return err;
    case LINE_UP:
        return dibs_lock_acquire_async(me->l, &opts, kit_ended, &me->end);
    case LOOK:
        return DIBS_OK;
    case GIVE:
        return dibs_lock_release(me->l, &opts);
    case CLOSE:
        err = dibs_client_close(me->c, TS_SOON);
        dibs_lock_free(me->l);
        dibs_client_free(me->c);
        *me = (struct life){.c = NULL};
        return err;
    }
    return DIBS_ERR_INVALID;
}

static int child(int fd, void *arg)
{
    struct life me = {.c = NULL};
    struct order o;

    (void)arg;
    while (ts_hear(fd, &o, sizeof o, ts_ms(600000))) {
        struct answer a = {.err = obey(&me, &o)};
        a.over = atomic_load(&me.end.over);
        if (!ts_tell(fd, &a, sizeof a))
            break;
    }
    dibs_lock_free(me.l);
    dibs_client_free(me.c);
    return 0;
}

#define CHILDREN 6
static struct ts_child *children[CHILDREN];

static void tell(struct ts_child *ch, enum what what, int64_t call_ms)
{
    struct order o = {.what = what, .call_ms = call_ms};

    snprintf(o.url, sizeof o.url, "%s", ts_server_url(kit_srv));
    assert_true(ts_tell(ts_child_fd(ch), &o, sizeof o));
}

static struct answer ask(struct ts_child *ch, enum what what)
{
    struct answer a;

    tell(ch, what, CALL_MS);
    assert_true(ts_hear(ts_child_fd(ch), &a, sizeof a, TS_SOON));
    return a;
}

static bool has_it(struct ts_child *ch)
{
    return ask(ch, LOOK).over;
}

/* ---- the queue --------------------------------------------------------- */

static long long queued(void)
{
    return ts_int(kit_srv, "LLEN " QUEUE);
}

static bool is_queued(const char *owner)
{
    return ts_int(kit_srv, "EVAL %s 1 " QUEUE " %s",
                  "return redis.call('lpos', KEYS[1], ARGV[1]) and 1 or 0",
                  owner) == 1;
}

static void taken_by_stranger(void)
{
    ts_ok(kit_srv, "HSET l " HOLDER " 1");
    ts_ok(kit_srv, "PEXPIRE l %lld", (long long)KIT_LONG);
}

/* As any client of these keys does it. */
static void stranger_gives_back(void)
{
    ts_ok(kit_srv, "EVAL %s 2 l " QUEUE " redisson_lock__channel:{l}:",
          "redis.call('del', KEYS[1]) "
          "local h = redis.call('lindex', KEYS[2], 0) "
          "if h then redis.call('publish', ARGV[1] .. h, '0') end");
}

/* So many wait, in order, and each listens. */
static void line_up(size_t first, size_t n, char owners[][DIBS_OWNER_MAX])
{
    long long before = queued();

    for (size_t i = 0; i < n; i++) {
        struct ts_child *ch = children[first + i];
        kit_want("opening", ask(ch, OPEN).err, DIBS_OK);
        kit_want("lining up", ask(ch, LINE_UP).err, DIBS_OK);
        TS_WAIT(queued() == before + (long long)i + 1);
        char *who = ts_str(kit_srv, "LINDEX " QUEUE " -1");
        snprintf(owners[i], DIBS_OWNER_MAX, "%s", who);
        free(who);
        char *channel = ts_text("redisson_lock__channel:{l}:%s", owners[i]);
        assert_true(ts_wait_numsub(kit_srv, channel, 1));
        free(channel);
    }
}

static void let_go(size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        kit_want("closing", ask(children[first + i], CLOSE).err, DIBS_OK);
    kit_no_keys("the end");
}

/* ---- the tests --------------------------------------------------------- */

/* The first of two is stopped: the second gets the lock. The first wakes, finds
 * itself at the end of the queue, and gets it too. */
static void test_stopped_in_the_queue(void **state)
{
    struct ts_child *first = children[0], *second = children[1];
    char owners[2][DIBS_OWNER_MAX];

    (void)state;
    taken_by_stranger();
    line_up(0, 2, owners);
    ts_child_pause(first);
    stranger_gives_back();
    TS_WAIT(has_it(second));
    assert_false(is_queued(owners[0]));
    ts_child_resume(first);
    TS_WAIT(is_queued(owners[0]));
    assert_false(has_it(first));
    kit_want("giving back", ask(second, GIVE).err, DIBS_OK);
    TS_WAIT(has_it(first));
    kit_want("giving back", ask(first, GIVE).err, DIBS_OK);
    let_go(0, 2);
}

/* Nobody of ours is behind it: the one that gave the lock back looks after it.
 */
static void test_stopped_before_a_stranger(void **state)
{
    struct ts_child *first = children[0], *holder = children[1];
    char owners[2][DIBS_OWNER_MAX];

    (void)state;
    kit_want("opening", ask(holder, OPEN).err, DIBS_OK);
    kit_want("taking", ask(holder, LINE_UP).err, DIBS_OK);
    TS_WAIT(has_it(holder));
    line_up(0, 1, owners);
    ts_ok(kit_srv, "RPUSH " QUEUE " " STRANGER);
    ts_ok(kit_srv, "ZADD " SCORES " 99999999999999 " STRANGER);
    ts_child_pause(first);
    kit_want("giving back", ask(holder, GIVE).err, DIBS_OK);
    TS_WAIT(!is_queued(owners[0]));
    ts_child_resume(first);
    TS_WAIT(has_it(first));
    kit_want("giving back", ask(first, GIVE).err, DIBS_OK);
    let_go(0, 2);
}

/* Several are stopped, of several processes: those that run keep their order.
 */
static void test_stopped_among_others(void **state)
{
    char owners[5][DIBS_OWNER_MAX];

    (void)state;
    taken_by_stranger();
    line_up(0, 5, owners);
    ts_child_pause(children[0]);
    ts_child_pause(children[1]);
    ts_child_pause(children[3]);
    stranger_gives_back();
    TS_WAIT(has_it(children[2]));
    assert_true(is_queued(owners[3])); /* it was not called yet */
    assert_true(is_queued(owners[4]));
    kit_want("giving back", ask(children[2], GIVE).err, DIBS_OK);
    TS_WAIT(has_it(children[4]));
    kit_want("giving back", ask(children[4], GIVE).err, DIBS_OK);
    for (size_t i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        ts_child_resume(children[i]);
        TS_WAIT(has_it(children[i]));
        kit_want("giving back", ask(children[i], GIVE).err, DIBS_OK);
    }
    let_go(0, 5);
}

/* The server stands still for much longer than a waiter has, when the first in
 * line has been called and not yet asked. It asks as soon as it can, and others
 * who ask at the same moment do not get the lock before it. */
static void test_stopped_server(void **state)
{
    struct ts_child *first = children[0], *second = children[1];
    char owners[2][DIBS_OWNER_MAX];
    struct timespec still = {.tv_sec = 3 * CALL_MS / 1000,
                             .tv_nsec = 3 * CALL_MS % 1000 * 1000000};

    (void)state;
    taken_by_stranger();
    line_up(0, 2, owners);
    ts_child_pause(first);
    stranger_gives_back();
    ts_server_pause(kit_srv);
    ts_child_resume(first);
    nanosleep(&still, NULL); /* there is no event to wait for */
    ts_server_resume(kit_srv);
    TS_WAIT(has_it(first));
    assert_false(has_it(second));
    kit_want("giving back", ask(first, GIVE).err, DIBS_OK);
    TS_WAIT(has_it(second));
    kit_want("giving back", ask(second, GIVE).err, DIBS_OK);
    let_go(0, 2);
}

/* Before the proxy has its thread. */
static int up(void **state)
{
    for (size_t i = 0; i < CHILDREN; i++)
        children[i] = ts_spawn(child, NULL);
    return kit_up(state);
}

static int down(void **state)
{
    for (size_t i = 0; i < CHILDREN; i++)
        ts_child_free(children[i]);
    return kit_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_stopped_among_others, kit_fresh),
        cmocka_unit_test_setup(test_stopped_in_the_queue, kit_fresh),
        cmocka_unit_test_setup(test_stopped_before_a_stranger, kit_fresh),
        cmocka_unit_test_setup(test_stopped_server, kit_fresh),
    };

    return TS_RUN_PARALLEL("fault.fair_stop", tests, up, down);
}
