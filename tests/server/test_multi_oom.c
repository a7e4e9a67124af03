/* SPDX-License-Identifier: MIT
 *
 * test_multi_oom.c - memory ends while several locks are taken or given back,
 * at every point there is; as test_oom.c does it for one.
 *
 * Whatever the point: nothing crashes, hangs or leaks, what says OK is true
 * for every member, what does not has taken none, and once there is memory
 * again everything is free and can be had.
 */
#include "server/multi_kit.h"

#ifdef DIBS_FAULTS

#include "base/mem.h"

#define TEXT "pa wb pc rd fe"

static dibs_client *client;
static dibs_lock *group, *members[5];
static struct lost lost;
static bool starved; /* the failure was met */

/* What a lack of memory may turn a call into. */
static bool excusable(dibs_err err)
{
    return err == DIBS_OK || err == DIBS_ERR_NOMEM || err == DIBS_ERR_CONN ||
           err == DIBS_ERR_UNKNOWN || err == DIBS_ERR_TIMEOUT ||
           err == DIBS_ERR_LOST;
}

/* ---- the walk ---------------------------------------------------------- */

struct scenario {
    const char *name;
    void (*prepare)(void);    /* with memory */
    const char *(*run)(void); /* without; what is odd, or NULL */
};

/* The lease is short enough to be waited for, where nobody could take back
 * what was granted. */
static void open_client(void)
{
    struct word is[WORDS_MAX];

    client = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_chance() + 200,
                                       .command_timeout_ms = ts_ms(100)));
    kit_words(TEXT, is);
    for (size_t i = 0; i < COUNT(members); i++)
        members[i] = kit_make(client, is[i].kind, is[i].name);
    FINE(dibs_multi_lock_new(members, COUNT(members), &group));
}

static void open_warm(void)
{
    open_client();
    FINE(dibs_lock_acquire(group, NULL));
    FINE(dibs_lock_release(group, AT_LEISURE));
}

/* There is memory again: all is given back, can be taken again, and goes. */
static void finish(void)
{
    dibs_err err;

    do
        err = dibs_lock_release(group, AT_LEISURE);
    while (err == DIBS_OK || err == DIBS_ERR_LOST);
    WANT(err, DIBS_ERR_NOT_OWNER);
    FINE(
        dibs_lock_acquire(group, DIBS_LOCK_OPTS(.owner = dibs_owner_new(client),
                                                .wait_ms = TS_SOON)));
    dibs_lock_free(group);
    for (size_t i = 0; i < COUNT(members); i++)
        dibs_lock_free(members[i]);
    kit_close(client);
}

static void one_run(const struct scenario *s, long n, bool all)
{
    ts_ok(srv, "FLUSHALL");
    size_t threads = ts_threads(), fds = ts_fds();
    s->prepare();
    dibs__mem_fail_at(n, all);
    const char *odd = s->run();
    starved = dibs__mem_fail_at(0, false) >= n;
    if (odd)
        fail_msg("%s, allocation %ld%s: %s", s->name, n,
                 all ? " and all after it" : "", odd);
    finish();
    TS_WAIT(ts_threads() <= threads);
    TS_WAIT(ts_fds() <= fds);
    TS_WAIT(ts_nkeys(srv) == 0);
    TS_WAIT(ts_nchannels(srv) == 0);
}

static void walk(const struct scenario *s)
{
    enum { MOST = 500 }; /* more means that it never ends */

    for (int all = 0; all <= 1; all++) {
        long n = 1;
        do
            if (ts_walks(n, all))
                one_run(s, n, all);
        while (starved && ++n < MOST);
        assert_true(n < MOST);
    }
}

/* ---- scenarios --------------------------------------------------------- */

/* Every member is held so often, or the lease ran out meanwhile: nobody could
 * renew it. */
static bool counted(int held)
{
    if (dibs_lock_state(group, 0) == DIBS_LOST)
        return true;
    if (dibs_lock_holds(group, 0) != held)
        return false;
    for (size_t i = 0; i < COUNT(members); i++)
        if (dibs_lock_holds(members[i], 0) != held &&
            dibs_lock_state(members[i], 0) != DIBS_LOST)
            return false;
    return true;
}

static const char *run_pair(void)
{
    const dibs_lock_opts *opts =
        DIBS_LOCK_OPTS(.wait_ms = 100, .on_lost = kit_lose, .arg = &lost);
    dibs_err err = DIBS_OK;
    int held = 0;

    for (int i = 0; i < 2 && err == DIBS_OK; i++) {
        err = i ? dibs_lock_try(group, opts) : dibs_lock_acquire(group, opts);
        if (!excusable(err))
            return dibs_strerror(err);
        held += err == DIBS_OK;
        if (!counted(held))
            return "the count is wrong";
    }
    for (err = DIBS_OK; held > 0 && err == DIBS_OK; held--) {
        err = dibs_lock_release(group, NULL);
        if (!excusable(err))
            return dibs_strerror(err);
    }
    return NULL;
}

static void test_multi_oom_pair(void **state)
{
    const struct scenario cold = {"pair", open_client, run_pair};
    const struct scenario warm = {"warm pair", open_warm, run_pair};

    (void)state;
    walk(&cold);
    walk(&warm);
}

static void open_blocked(void)
{
    const struct word c = {.kind = 'p', .name = "c"};

    open_warm();
    kit_block(&c, 50);
}

/* Behind somebody else, whose lease ends. */
static void test_multi_oom_wait(void **state)
{
    const struct scenario s = {"wait", open_blocked, run_pair};

    (void)state;
    walk(&s);
}

static const char *run_async(void)
{
    static struct told told[2];
    const dibs_lock_opts *opts =
        DIBS_LOCK_OPTS(.wait_ms = 100, .on_lost = kit_lose, .arg = &lost);

    memset(told, 0, sizeof told);
    for (size_t i = 0; i < COUNT(told); i++) {
        struct ts_wait w = ts_wait_begin(TS_SOON);
        dibs_err err =
            i ? dibs_lock_release_async(group, NULL, kit_tell, &told[i])
              : dibs_lock_acquire_async(group, opts, kit_tell, &told[i]);
        if (err == DIBS_ERR_NOMEM)
            return NULL;
        if (err != DIBS_OK)
            return dibs_strerror(err);
        while (atomic_load(&told[i].times) == 0)
            if (!ts_wait_step(&w))
                return "not told";
        err = atomic_load(&told[i].err);
        if (!excusable(err))
            return dibs_strerror(err);
        if (err != DIBS_OK)
            return NULL;
    }
    return NULL;
}

static void test_multi_oom_async(void **state)
{
    const struct scenario s = {"async", open_client, run_async};

    (void)state;
    walk(&s);
}

static dibs_err release_starved(void)
{
    dibs__mem_fail_at(1, true);
    dibs_err err = dibs_lock_release(group, NULL);
    dibs__mem_fail_at(0, false);
    return err;
}

/* A release that cannot begin leaves all as it was, held or lost. But its
 * caller may go then, and what on_lost is given with it. */
static void test_multi_oom_release(void **state)
{
    struct lost gone = {.times = 0};
    struct told behind = {.times = 0};

    (void)state;
    open_warm();
    FINE(dibs_lock_acquire(group,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &gone)));
    WANT(release_starved(), DIBS_ERR_NOMEM);
    int times = atomic_load(&gone.times); /* a machine that stood still */
    assert_true(counted(1));
    ts_ok(srv, "DEL a");
    TS_WAIT(dibs_lock_state(group, 0) == DIBS_LOST);
    FINE(dibs_lock_release_async(
        members[0], DIBS_LOCK_OPTS(.owner = dibs_owner_new(client)), kit_tell,
        &behind)); /* after on_lost, if that came */
    WANT(kit_answer(&behind), DIBS_ERR_NOT_OWNER);
    assert_int_equal(atomic_load(&gone.times), times);
    WANT(release_starved(), DIBS_ERR_NOMEM);
    assert_int_equal(dibs_lock_state(group, 0), DIBS_LOST);
    WANT(dibs_lock_release(group, AT_LEISURE), DIBS_ERR_LOST);
    FINE(dibs_lock_acquire(group, AT_LEISURE));
    finish();
    assert_int_equal(atomic_load(&gone.times), times);
    TS_WAIT(ts_nkeys(srv) == 0);
    TS_WAIT(ts_nchannels(srv) == 0);
}

static const char *run_new(void)
{
    dibs_lock *g = NULL, *outer = NULL;
    dibs_err err = dibs_multi_lock_new(members, 3, &g);

    if ((err != DIBS_OK && err != DIBS_ERR_NOMEM) || (err == DIBS_OK) != !!g)
        return "a group and an error";
    if (g) {
        err = dibs_multi_lock_new((dibs_lock *[]){members[4], g}, 2, &outer);
        if ((err != DIBS_OK && err != DIBS_ERR_NOMEM) ||
            (err == DIBS_OK) != !!outer)
            return "an outer group and an error";
    }
    dibs_lock_free(outer);
    dibs_lock_free(g);
    return NULL;
}

static void test_multi_oom_new(void **state)
{
    const struct scenario s = {"new", open_client, run_new};

    (void)state;
    walk(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MULTI_TEST(test_multi_oom_new),     MULTI_TEST(test_multi_oom_pair),
        MULTI_TEST(test_multi_oom_wait),    MULTI_TEST(test_multi_oom_async),
        MULTI_TEST(test_multi_oom_release),
    };
    return MULTI_RUN_PARALLEL("server.multi_oom", tests);
}

#else

int main(void)
{
    print_message("server.multi_oom: needs a build with DIBS_FAULTS\n");
    return 0;
}

#endif
