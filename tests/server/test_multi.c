/* SPDX-License-Identifier: MIT
 *
 * test_multi.c - several locks as one: all of them or none, of every kind and
 * wherever they are; what a group may be made of.
 *
 * Re-entry, leases and losses are in test_multi_hold.c, async calls in
 * test_multi_async.c, the scripts alone in test_multi_scripts.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "server/multi_kit.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of each kind, mixed, in order and not; one client, two clients of a server,
 * two servers. */
static const char *const groups[] = {
    "pa",
    "pa pb pc",
    "pc pa pb",
    "fa fb",
    "ra rb",
    "wa wb",
    "wb pa",
    "pa fb rc wd",
    "wd rc fb pa",
    "rb pa rc wd",
    "pb@1 pa",
    "pa pb@1 pc",
    "wc@1 fa rb@1 pd",
    "pa@2 pa",
    "pa wb pc@2 wd@2",
    "rd@2 fa wc@1 pb@2 pe",
};

/* ---- all or nothing ---------------------------------------------------- */

static void check_members(dibs_lock *g, const char *text, dibs_err verdict,
                          dibs_state st)
{
    struct word is[WORDS_MAX];
    size_t n = kit_words(text, is);
    dibs_member m = DIBS_MEMBER_INIT;

    for (size_t i = 0; i < n; i++) {
        m = kit_member(g, i, 0);
        assert_string_equal(m.name, is[i].name);
        assert_int_equal(m.name_len, strlen(is[i].name));
        assert_non_null(strstr(m.server, ts_server_socket(kit_server(&is[i]))));
        if (m.verdict != verdict || m.state != st ||
            (m.valid_ms > 0) != (st == DIBS_HELD))
            fail_msg("%s: %s: %s, state %d", text, m.name,
                     dibs_strerror(m.verdict), (int)m.state);
    }
    WANT(dibs_lock_members(g, n, 0, &m), DIBS_ERR_INVALID);
}

static void take_all(struct world *w, dibs_lock *g, const char *text,
                     bool trying)
{
    check_members(g, text, DIBS_ERR_NOT_OWNER, DIBS_NOT_HELD);
    FINE(trying ? dibs_lock_try(g, NULL) : dibs_lock_acquire(g, NULL));
    kit_have(w, text, 0, 1);
    check_members(g, text, DIBS_OK, DIBS_HELD);
    assert_int_equal(dibs_lock_state(g, 0), DIBS_HELD);
    assert_int_equal(dibs_lock_holds(g, 0), 1);
    assert_in_range(dibs_lock_valid_ms(g, 0), 1, 30000);
    assert_int_equal(kit_elsewhere(g, NULL, dibs_lock_release),
                     DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_release(g, NULL));
    assert_int_equal(dibs_lock_state(g, 0), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_valid_ms(g, 0), 0);
    kit_keys(text, 0, 0);
    WANT(dibs_lock_release(g, NULL), DIBS_ERR_NOT_OWNER);
}

static void test_multi_all(void **state)
{
    struct world w = kit_world(NULL);

    (void)state;
    for (size_t i = 0; i < COUNT(groups); i++) {
        for (int trying = 0; trying <= 1; trying++) {
            dibs_lock *g = kit_group(&w, groups[i]);
            take_all(&w, g, groups[i], trying);
            dibs_lock_free(g);
        }
    }
    kit_world_end(&w);
}

/* The one in the way is named, nobody has been left with anything, and nobody
 * stands in a queue or keeps readers out. */
static void check_blocked(dibs_lock *g, const char *text, size_t blocker)
{
    struct word is[WORDS_MAX];
    size_t n = kit_words(text, is);
    bool second = kit_server(&is[blocker]) == srv2;

    assert_int_equal(dibs_lock_state(g, 0), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_holds(g, 0), 0);
    for (size_t i = 0; i < n; i++) {
        dibs_member m = kit_member(g, i, 0);
        if ((m.verdict == DIBS_ERR_BUSY) != (i == blocker))
            fail_msg("%s: %s is in the way, and %s says %s", text,
                     is[blocker].name, is[i].name, dibs_strerror(m.verdict));
        assert_int_equal(m.state, DIBS_NOT_HELD);
    }
    /* What it took goes back, and it leaves a queue last: nobody waits for
     * that when the time is over. */
    kit_keys_soon(text, !second, second);
}

static void test_multi_or_none(void **state)
{
    struct world w = kit_world(NULL);
    struct word is[WORDS_MAX];

    (void)state;
    for (size_t i = 0; i < COUNT(groups); i++) {
        dibs_lock *g = kit_group(&w, groups[i]);
        size_t n = kit_words(groups[i], is);
        for (size_t blocker = 0; blocker < n; blocker++) {
            kit_block(&is[blocker], 0);
            WANT(dibs_lock_try(g, NULL), DIBS_ERR_BUSY);
            check_blocked(g, groups[i], blocker);
            WANT(dibs_lock_acquire(g, DIBS_LOCK_OPTS(.wait_ms = 20)),
                 DIBS_ERR_TIMEOUT);
            check_blocked(g, groups[i], blocker);
            kit_unblock(&is[blocker]);
            FINE(dibs_lock_try(g, NULL));
            kit_have(&w, groups[i], 0, 1);
            FINE(dibs_lock_release(g, NULL));
            kit_keys(groups[i], 0, 0);
        }
        dibs_lock_free(g);
    }
    kit_world_end(&w);
}

/* What one server refuses, nobody gets. */
static void test_multi_refused(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa wb pc rd fe pf@2");
    static const char *const names[] = {"a", "b", "c", "d", "e"};

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        ts_ok(srv, "SET %s text", names[i]);
        WANT(dibs_lock_acquire(g, NULL), DIBS_ERR_WRONGTYPE);
        assert_int_equal(kit_member(g, i, 0).verdict, DIBS_ERR_WRONGTYPE);
        kit_keys(names[i], 1, 0);
        WANT(dibs_lock_try(g, NULL), DIBS_ERR_WRONGTYPE);
        kit_keys(names[i], 1, 0);
        ts_ok(srv, "DEL %s", names[i]);
    }
    dibs_lock *r = kit_one(&w, "rb");
    FINE(dibs_lock_acquire(r, NULL));
    WANT(dibs_lock_acquire(g, NULL), DIBS_ERR_UPGRADE);
    assert_int_equal(kit_member(g, 1, 0).verdict, DIBS_ERR_UPGRADE);
    kit_have(&w, "rb", 0, 1);
    FINE(dibs_lock_release(r, NULL));
    kit_keys("upgrade", 0, 0);
    dibs_lock_free(r);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* Readers whose lease is over are not in the way of a writer in a group. */
static void test_multi_dead_readers(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa wb");

    (void)state;
    ts_ok(srv, "HSET b mode read 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7 1");
    ts_ok(srv, "PEXPIRE b 60000");
    FINE(dibs_lock_try(g, NULL));
    kit_have(&w, "pa wb", 0, 1);
    FINE(dibs_lock_release(g, NULL));
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* ---- waiting ----------------------------------------------------------- */

/* The one that is in the way goes, one after the other; then all are held. */
static void wait_for_all(struct world *w, const char *text)
{
    struct word is[WORDS_MAX];
    size_t n = kit_words(text, is);
    dibs_lock *g = kit_group(w, text);
    struct told told = {.times = 0};

    for (size_t i = 0; i < n; i++)
        kit_block(&is[i], 0);
    FINE(dibs_lock_acquire_async(g, NULL, kit_tell, &told));
    for (size_t i = n; i-- > 0;) {
        assert_int_equal(atomic_load(&told.times), 0);
        kit_unblock(&is[i]);
    }
    FINE(kit_answer(&told));
    kit_have(w, text, 0, 1);
    FINE(dibs_lock_release(g, NULL));
    kit_keys(text, 0, 0);
    dibs_lock_free(g);
}

static void test_multi_waits(void **state)
{
    struct world w = kit_world(NULL);

    (void)state;
    wait_for_all(&w, "pa pb pc");
    wait_for_all(&w, "wc ra pb");
    wait_for_all(&w, "pa wb@1 pc@2");
    kit_world_end(&w);
}

/* While it waits for the second, others may have the third, and the first is
 * its own: it holds a row from the start. */
static void test_multi_holds_a_row(void **state)
{
    struct world w = kit_world(NULL);
    struct word b = {.kind = 'p', .name = "b"};
    dibs_lock *g = kit_group(&w, "pc pb pa"), *c = kit_one(&w, "pc");
    struct told told = {.times = 0};
    dibs_owner other = dibs_owner_new(w.c[0]);

    (void)state;
    kit_block(&b, 0);
    FINE(dibs_lock_acquire_async(g, NULL, kit_tell, &told));
    assert_true(ts_wait_numsub(srv, "redisson_lock__channel:{b}", 1));
    assert_true(ts_exists(srv, "a"));
    assert_int_equal(dibs_lock_state(g, 0), DIBS_NOT_HELD);
    FINE(dibs_lock_try(c, OWNED(other)));
    kit_unblock(&b);
    assert_true(ts_wait_exists(srv, "b", true));
    FINE(dibs_lock_release(c, OWNED(other)));
    FINE(kit_answer(&told));
    kit_have(&w, "pa pb pc", 0, 1);
    FINE(dibs_lock_release(g, NULL));
    dibs_lock_free(c);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* One deadline for the whole: what the first cost is not added to it. How many
 * ms it took. */
static int64_t deadline_took(int64_t limit)
{
    struct world w = kit_world(NULL);
    struct word a = {.kind = 'p', .name = "a"}, b = {.kind = 'p', .name = "b"};
    dibs_lock *g = kit_group(&w, "pa pb");

    kit_block(&b, 0);
    int64_t start = ts_now_ms();
    kit_block(&a, limit * 2 / 3);
    WANT(dibs_lock_acquire(g, DIBS_LOCK_OPTS(.wait_ms = limit)),
         DIBS_ERR_TIMEOUT);
    int64_t took = ts_now_ms() - start;
    assert_int_equal(kit_member(g, 1, 0).verdict, DIBS_ERR_BUSY);
    kit_keys_soon("deadline", 1, 0);
    kit_unblock(&b);
    dibs_lock_free(g);
    kit_world_end(&w);
    return took;
}

/* Once of a few times: this machine may stand still. */
static void test_multi_one_deadline(void **state)
{
    int64_t limit = ts_ms(1500), took = INT64_MAX;

    (void)state;
    for (int i = 0; i < 5 && took >= limit * 3 / 2; i++)
        took = deadline_took(limit);
    assert_in_range(took, limit, limit * 3 / 2);
}

/* ---- how many commands ------------------------------------------------- */

static void count_commands(struct world *w, const char *text, long long each)
{
    dibs_lock *g = kit_group(w, text);

    for (int warm = 0; warm < 3; warm++) {
        ts_reset_stats(srv);
        int64_t begun = ts_now_ms();
        FINE(dibs_lock_acquire(g, NULL));
        long long taking = ts_command_calls(srv, "evalsha");
        FINE(dibs_lock_release(g, NULL));
        long long giving = ts_command_calls(srv, "evalsha") - taking;
        if (ts_now_ms() - begun >= 500) /* one that is held long is looked at */
            warm--;
        else if (warm && (taking != each || giving != each))
            fail_msg("%s: %lld commands to take, %lld to give back", text,
                     taking, giving);
    }
    dibs_lock_free(g);
}

static void test_multi_one_command(void **state)
{
    struct world w = kit_world(NULL);

    (void)state;
    count_commands(&w, "pa pb pc pd pe pf pg ph pi pj", 1);
    count_commands(&w, "wa wb wc wd we wf wg wh wi wj", 1);
    count_commands(&w, "wj pi wh pg wf pe wd pc wb pa", 1);
    count_commands(&w, "pa pb pc@2 pd@2", 1);
    count_commands(&w, "pa pb rc", 2);
    kit_world_end(&w);
}

/* ---- what it is made of ------------------------------------------------ */

static void test_multi_twice(void **state)
{
    static const char *const bad[] = {
        "pa pa", "pa pb pa", "pa fa",      "ra wa",        "ra ra",
        "wa pa", "pa pa@1",  "fa@1 pb ra", "pa@2 pb wa@2",
    };
    struct world w = kit_world(NULL);
    dibs_lock *a = kit_one(&w, "pa"), *ab = kit_group(&w, "pa pb");
    dibs_lock *c = kit_one(&w, "pc"), *out = NULL;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        if (kit_group_err(&w, bad[i], &out) != DIBS_ERR_INVALID || out)
            fail_msg("%s can be had", bad[i]);
    WANT(dibs_multi_lock_new((dibs_lock *[]){a, a}, 2, &out), DIBS_ERR_INVALID);
    WANT(dibs_multi_lock_new((dibs_lock *[]){ab, a}, 2, &out),
         DIBS_ERR_INVALID);
    WANT(dibs_multi_lock_new((dibs_lock *[]){ab, ab}, 2, &out),
         DIBS_ERR_INVALID);
    WANT(dibs_multi_lock_new((dibs_lock *[]){c, NULL}, 2, &out),
         DIBS_ERR_INVALID);
    WANT(dibs_multi_lock_new(NULL, 1, &out), DIBS_ERR_INVALID);
    WANT(dibs_multi_lock_new(&a, 0, &out), DIBS_ERR_INVALID);
    WANT(dibs_multi_lock_new(&a, 1, NULL), DIBS_ERR_INVALID);
    assert_null(out);
    dibs_lock_free(a);
    dibs_lock_free(c);
    dibs_lock_free(ab);
    kit_world_end(&w);
}

static void test_multi_quorum_inside(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *m[] = {kit_one(&w, "pq"), kit_one(&w, "pq@2")};
    dibs_lock *a = kit_one(&w, "pa"), *q = NULL, *out = NULL;

    (void)state;
    FINE(dibs_quorum_lock_new(m, 2, &q));
    WANT(dibs_multi_lock_new((dibs_lock *[]){a, q}, 2, &out), DIBS_ERR_INVALID);
    assert_null(out);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    dibs_lock_free(a);
    dibs_lock_free(q);
    kit_world_end(&w);
}

/* A multi lock among the members stands for its own. */
static void test_multi_nested(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *inner = kit_group(&w, "pc wa"), *d = kit_one(&w, "pd@2");
    dibs_lock *b = kit_one(&w, "fb"), *mid = NULL, *g = NULL;

    (void)state;
    FINE(dibs_multi_lock_new((dibs_lock *[]){d, inner}, 2, &mid));
    FINE(dibs_multi_lock_new((dibs_lock *[]){b, mid}, 2, &g));
    dibs_lock_free(inner);
    dibs_lock_free(mid);
    take_all(&w, g, "fb pd@2 pc wa", false);
    dibs_lock_free(g);
    dibs_lock_free(b);
    dibs_lock_free(d);
    kit_world_end(&w);
}

/* A thousand members, and not one more. */
static void test_multi_many(void **state)
{
    enum { MOST = 1000 };
    dibs_client *c = kit_open(NULL);
    dibs_lock **m = ts_alloc((MOST + 1) * sizeof m[0]), *g = NULL;
    char name[16];

    (void)state;
    for (int i = 0; i <= MOST; i++) {
        snprintf(name, sizeof name, "m%d", i);
        m[i] = kit_make(c, i % 2 ? 'w' : 'p', name);
    }
    WANT(dibs_multi_lock_new(m, MOST + 1, &g), DIBS_ERR_INVALID);
    FINE(dibs_multi_lock_new(m, MOST, &g));
    for (int i = 0; i <= MOST; i++)
        dibs_lock_free(m[i]);
    free(m);
    FINE(dibs_lock_acquire(g, NULL));
    assert_int_equal(ts_nkeys(srv), MOST);
    assert_int_equal(dibs_lock_state(g, 0), DIBS_HELD);
    FINE(dibs_lock_release(g, NULL));
    assert_int_equal(ts_nkeys(srv), 0);
    dibs_lock_free(g);
    kit_close(c);
}

/* Freeing a handle releases nothing; closing does. */
static void test_multi_freed_while_held(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa wb@1 pc@2 rd fe");

    (void)state;
    FINE(dibs_lock_acquire(g, NULL));
    dibs_lock_free(g);
    kit_have(&w, "pa wb@1 pc@2 rd fe", 0, 1);
    kit_world_end(&w);
    kit_keys("freed", 0, 0);
}

/* A handle that outlives its clients answers, and can be freed. */
static void test_multi_outlives_clients(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb@2");

    (void)state;
    FINE(dibs_lock_acquire(g, NULL));
    kit_world_end(&w);
    WANT(dibs_lock_try(g, NULL), DIBS_ERR_CLOSED);
    WANT(dibs_lock_release(g, NULL), DIBS_ERR_CLOSED);
    dibs_lock_free(g);
}

static bool no_holder(const char *owner, dibs_mode mode, int64_t holds,
                      int64_t remaining_ms, void *arg)
{
    (void)owner, (void)mode, (void)holds, (void)remaining_ms, (void)arg;
    return true;
}

static bool no_waiter(size_t place, const char *owner, int64_t remaining_ms,
                      void *arg)
{
    (void)place, (void)owner, (void)remaining_ms, (void)arg;
    return true;
}

static void no_info(dibs_err err, const dibs_lock_info *info, void *arg)
{
    (void)err, (void)info, (void)arg;
}

static void no_force(dibs_err err, bool was, void *arg)
{
    (void)err, (void)was, (void)arg;
}

static void test_multi_not_for_groups(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb"), *one = kit_one(&w, "pa");
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_member m = DIBS_MEMBER_INIT;
    char text[DIBS_OWNER_MAX];

    (void)state;
    FINE(dibs_lock_acquire(g, NULL));
    WANT(dibs_lock_info_get(g, &info), DIBS_ERR_INVALID);
    WANT(dibs_lock_info_get_async(g, no_info, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_holders(g, no_holder, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_queue(g, no_waiter, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_force_release(g, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_force_release_owner(g, "x", NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_force_release_async(g, no_force, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_owner_text(g, 0, text, sizeof text), DIBS_ERR_INVALID);
    WANT(dibs_lock_members(one, 0, 0, &m), DIBS_ERR_INVALID);
    WANT(dibs_lock_members(g, 0, 0, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_acquire(g, DIBS_LOCK_OPTS(.wait_ms = -1)), DIBS_ERR_INVALID);
    WANT(dibs_lock_try(g, DIBS_LOCK_OPTS(.lease_ms = 1)), DIBS_ERR_INVALID);
    WANT(dibs_lock_acquire_async(g, NULL, NULL, NULL), DIBS_ERR_INVALID);
    kit_have(&w, "pa pb", 0, 1);
    FINE(dibs_lock_release(g, NULL));
    dibs_lock_free(one);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* ---- fork -------------------------------------------------------------- */

static int refused(dibs_lock *g, dibs_lock *one)
{
    dibs_member m = DIBS_MEMBER_INIT;
    dibs_lock *out = NULL;
    const dibs_err got[] = {
        dibs_lock_acquire(g, NULL),       dibs_lock_try(g, NULL),
        dibs_lock_release(g, NULL),       dibs_lock_cancel(g, 0),
        dibs_lock_members(g, 0, 0, &m),   dibs_multi_lock_new(&one, 1, &out),
        dibs_multi_lock_new(&g, 1, &out),
    };

    for (size_t i = 0; i < COUNT(got); i++)
        if (got[i] != DIBS_ERR_FORKED)
            return 1 + (int)i;
    if (dibs_lock_state(g, 0) != DIBS_NOT_HELD || out)
        return 100;
    dibs_lock_free(g);
    return 0;
}

static void test_multi_fork(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb pc@2"), *one = kit_one(&w, "px");
    int status = 0;

    (void)state;
    FINE(dibs_lock_acquire(g, NULL));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm((unsigned)(TS_SOON / 1000)); /* it may hang, then it dies */
        _exit(refused(g, one));
    }
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    kit_have(&w, "pa pb pc@2", 0, 1);
    FINE(dibs_lock_release(g, NULL));
    dibs_lock_free(one);
    dibs_lock_free(g);
    kit_world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MULTI_TEST(test_multi_all),
        MULTI_TEST(test_multi_or_none),
        MULTI_TEST(test_multi_refused),
        MULTI_TEST(test_multi_dead_readers),
        MULTI_TEST(test_multi_waits),
        MULTI_TEST(test_multi_holds_a_row),
        MULTI_TEST(test_multi_one_deadline),
        MULTI_TEST(test_multi_one_command),
        MULTI_TEST(test_multi_twice),
        MULTI_TEST(test_multi_quorum_inside),
        MULTI_TEST(test_multi_nested),
        MULTI_TEST(test_multi_many),
        MULTI_TEST(test_multi_freed_while_held),
        MULTI_TEST(test_multi_outlives_clients),
        MULTI_TEST(test_multi_not_for_groups),
        MULTI_TEST(test_multi_fork),
    };
    return MULTI_RUN("server.multi", tests);
}
