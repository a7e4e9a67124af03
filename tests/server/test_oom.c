/* SPDX-License-Identifier: MIT
 *
 * test_oom.c - memory ends, at every point there is.
 *
 * A scenario is run with its first allocation failing, then its second, and so
 * on, until it runs through untouched; and once more with all that follow
 * failing too. Whatever the point: nothing crashes, hangs or leaks (the
 * address sanitizer says), what says OK is true, what does not has taken
 * nothing, and once there is memory again everything works as before.
 */
#include "server/kit.h"

#ifdef DIBS_FAULTS

#include "base/mem.h"

static dibs_client *client;
static dibs_lock *lock;
static bool starved; /* the failure was met */

/* ---- the walk ---------------------------------------------------------- */

/* What a lack of memory may turn a call into. A connection that could not be
 * read from or written to is a broken one, and waiting for a better one has
 * its limit. */
static bool excusable(dibs_err err)
{
    return err == DIBS_OK || err == DIBS_ERR_NOMEM || err == DIBS_ERR_CONN ||
           err == DIBS_ERR_UNKNOWN || err == DIBS_ERR_TIMEOUT;
}

struct scenario {
    const char *name;
    void (*prepare)(void);    /* with memory; may be NULL */
    const char *(*run)(void); /* without; what is odd, or NULL */
    void (*finish)(void);     /* with memory again; may be NULL */
};

static void one_run(const struct scenario *s, long n, bool all)
{
    ts_ok(srv, "FLUSHALL");
    size_t threads = ts_threads(), fds = ts_fds();
    if (s->prepare)
        s->prepare();
    dibs__mem_fail_at(n, all);
    const char *odd = s->run();
    starved = dibs__mem_fail_at(0, false) >= n;
    if (odd)
        fail_msg("%s, allocation %ld%s: %s", s->name, n,
                 all ? " and all after it" : "", odd);
    if (s->finish)
        s->finish();
    TS_WAIT(ts_threads() <= threads);
    TS_WAIT(ts_fds() <= fds);
    if (!ts_wait_exists(srv, "l", false) || ts_nkeys(srv) != 0)
        fail_msg("%s, allocation %ld: a key is left", s->name, n);
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

/* ---- shared parts ------------------------------------------------------ */

static void open_client(void)
{
    client = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_chance() + 200,
                                       .command_timeout_ms = ts_ms(100)));
    lock = kit_lock(client, "l");
}

/* Warm: connected, the script known. */
static void open_warm(void)
{
    open_client();
    FINE(dibs_lock_acquire(lock, NULL));
    FINE(dibs_lock_release(lock, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
}

/* It works again, and closes as it should. */
static void works_again(void)
{
    FINE(dibs_lock_acquire(lock, DIBS_LOCK_OPTS(.owner = dibs_owner_new(client),
                                                .wait_ms = TS_SOON)));
    dibs_lock_free(lock);
    kit_close(client);
    client = NULL;
    lock = NULL;
}

/* What a call says about the lock must be so. */
static const char *honest(dibs_err err)
{
    if (!excusable(err))
        return dibs_strerror(err);
    if ((err == DIBS_OK) != (dibs_lock_state(lock, 0) == DIBS_HELD))
        return "it is not as it says";
    return NULL;
}

/* ---- opening and closing ----------------------------------------------- */

static const char *url;

static void hush(const dibs_event *ev, void *arg)
{
    (void)ev, (void)arg;
}

static const char *run_open(void)
{
    dibs_client *c = NULL;
    dibs_err err = dibs_client_open(
        url, DIBS_CLIENT_OPTS(.client_name = "oom", .on_event = hush), &c);

    if (!excusable(err))
        return dibs_strerror(err);
    if ((err == DIBS_OK) != (c != NULL))
        return "a client and an error";
    if (c && dibs_client_close(c, 0) != DIBS_OK)
        return "not closed";
    dibs_client_free(c);
    return NULL;
}

static void test_oom_open(void **state)
{
    const struct scenario s = {.name = "open", .run = run_open};
    char *tcp =
        ts_text("redis://ann:secret@localhost:%d/1", ts_server_port(srv));

    (void)state;
    ts_ok(srv, "ACL SETUSER ann on >secret ~* &* +@all");
    url = ts_server_url(srv);
    walk(&s);
    url = tcp;
    walk(&s);
    free(tcp);
}

static const char *run_new(void)
{
    dibs_lock *l[3] = {NULL, NULL, NULL};
    const char *odd = NULL;

    for (int i = 0; i < 3; i++) {
        dibs_err err = dibs_lock_new(client, i ? "b" : "a", &l[i]);
        if (err != DIBS_OK && err != DIBS_ERR_NOMEM)
            odd = dibs_strerror(err);
        if ((err == DIBS_OK) != (l[i] != NULL))
            odd = "a lock and an error";
    }
    for (int i = 0; i < 3; i++)
        dibs_lock_free(l[i]);
    return odd;
}

static void open_bare(void)
{
    client = kit_open(NULL);
}

static void close_bare(void)
{
    lock = kit_lock(client, "l");
    works_again();
}

static void test_oom_new(void **state)
{
    const struct scenario s = {"new", open_bare, run_new, close_bare};

    (void)state;
    walk(&s);
}

static void prepare_close(void)
{
    static struct lost lost;

    open_warm();
    for (int i = 0; i < 3; i++) /* a command has little time here */
        TS_WAIT(dibs_lock_acquire(
                    lock, DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)) ==
                DIBS_OK);
    dibs_lock_free(lock);
}

static const char *run_close(void)
{
    dibs_err err = dibs_client_close(client, 200);

    return err == DIBS_OK || err == DIBS_ERR_UNKNOWN ? NULL
                                                     : dibs_strerror(err);
}

static void finish_close(void)
{
    dibs_client_free(client);
    kit_clients--;
}

static void test_oom_close(void **state)
{
    const struct scenario s = {"close", prepare_close, run_close, finish_close};

    (void)state;
    walk(&s);
}

/* ---- taking and giving back -------------------------------------------- */

/* The count is what it should be, or the lease ran out meanwhile: nobody could
 * renew it. */
static bool counted(int held)
{
    return dibs_lock_holds(lock, 0) == held ||
           dibs_lock_state(lock, 0) == DIBS_LOST;
}

/* The first time, again and again, and back; cold and warm. */
static const char *run_pair(void)
{
    const dibs_lock_opts *opts = DIBS_LOCK_OPTS(.wait_ms = 100);
    dibs_err err = DIBS_OK;
    int held = 0;

    for (int i = 0; i < 6 && err == DIBS_OK; i++) {
        err = dibs_lock_acquire(lock, opts);
        if (!excusable(err) && err != DIBS_ERR_LOST)
            return dibs_strerror(err);
        held += err == DIBS_OK;
        if (!counted(held))
            return "the count is wrong";
    }
    for (err = DIBS_OK; held > 0 && err == DIBS_OK;) {
        err = dibs_lock_release(lock, NULL);
        if (!excusable(err) && err != DIBS_ERR_LOST)
            return dibs_strerror(err);
        /* With CONN nothing was done. */
        held -= err != DIBS_ERR_CONN && err != DIBS_ERR_NOMEM;
        if (!counted(held))
            return "the count is wrong after a release";
    }
    return NULL;
}

/* Gives back what could not be given back before. */
static void finish_pair(void)
{
    dibs_err err;

    do
        err = dibs_lock_release(lock, DIBS_LOCK_OPTS(.wait_ms = TS_SOON));
    while (err == DIBS_OK || err == DIBS_ERR_LOST);
    WANT(err, DIBS_ERR_NOT_OWNER);
    works_again();
}

static void test_oom_pair(void **state)
{
    const struct scenario cold = {"pair", open_client, run_pair, finish_pair};
    const struct scenario warm = {"warm pair", open_warm, run_pair,
                                  finish_pair};

    (void)state;
    walk(&cold);
    walk(&warm);
}

static void prepare_wait(void)
{
    open_warm();
    ts_ok(srv, "HSET l 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7 1");
    ts_ok(srv, "PEXPIRE l 100");
}

/* Behind somebody else, whose lease ends. */
static const char *run_wait(void)
{
    dibs_err err = dibs_lock_acquire(lock, DIBS_LOCK_OPTS(.wait_ms = 1000));
    const char *odd = honest(err);

    if (!odd && err == DIBS_OK) {
        err = dibs_lock_release(lock, NULL);
        odd = excusable(err) ? NULL : dibs_strerror(err);
    }
    return odd;
}

static void test_oom_wait(void **state)
{
    const struct scenario s = {"wait", prepare_wait, run_wait, finish_pair};

    (void)state;
    walk(&s);
}

/* ---- async ------------------------------------------------------------- */

static struct lost lost;
static struct told told[8];
static unsigned started;

static void forced(dibs_err err, bool was, void *arg)
{
    (void)was;
    kit_tell(err, arg);
}

static void informed(dibs_err err, const dibs_lock_info *info, void *arg)
{
    if ((err == DIBS_OK) != (info != NULL))
        err = DIBS_ERR_INVALID;
    kit_tell(err, arg);
}

/* Waits for the answer of a start that said OK, and for none else. */
static const char *settled(dibs_err err, unsigned i)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    if (err != DIBS_OK)
        return err == DIBS_ERR_NOMEM ? NULL : dibs_strerror(err);
    started |= 1u << i;
    while (atomic_load(&told[i].times) == 0)
        if (!ts_wait_step(&w))
            return "not told";
    err = atomic_load(&told[i].err);
    return excusable(err) || err == DIBS_ERR_NOT_OWNER || err == DIBS_ERR_LOST
               ? NULL
               : dibs_strerror(err);
}

static const char *run_async(void)
{
    const dibs_lock_opts *opts =
        DIBS_LOCK_OPTS(.wait_ms = 100, .on_lost = kit_lose, .arg = &lost);
    const char *odd;

    memset(told, 0, sizeof told);
    started = 0;
    odd = settled(dibs_lock_acquire_async(lock, opts, kit_tell, &told[0]), 0);
    if (!odd)
        odd = settled(dibs_lock_try_async(lock, opts, kit_tell, &told[1]), 1);
    if (!odd)
        odd = settled(dibs_lock_info_get_async(lock, informed, &told[2]), 2);
    if (!odd)
        odd =
            settled(dibs_lock_release_async(lock, NULL, kit_tell, &told[3]), 3);
    if (!odd)
        odd = settled(dibs_lock_force_release_async(lock, forced, &told[4]), 4);
    return odd;
}

static void finish_async(void)
{
    finish_pair();
    for (unsigned i = 0; i < COUNT(told); i++)
        if (atomic_load(&told[i].times) != (int)(started >> i & 1))
            fail_msg("callback %u came %d times", i,
                     atomic_load(&told[i].times));
}

static void test_oom_async(void **state)
{
    const struct scenario s = {"async", open_client, run_async, finish_async};

    (void)state;
    walk(&s);
}

/* One owner's calls, each behind the one before it: a acquires, r releases.
 * None of them may be forgotten there. */
static const char *run_behind(const char order[4])
{
    const dibs_lock_opts *opts = DIBS_LOCK_OPTS(.wait_ms = 100);
    const char *odd = NULL;
    dibs_err err[4];

    memset(told, 0, sizeof told);
    started = 0;
    for (unsigned i = 0; i < COUNT(err); i++)
        err[i] = order[i] == 'a'
                     ? dibs_lock_acquire_async(lock, opts, kit_tell, &told[i])
                     : dibs_lock_release_async(lock, NULL, kit_tell, &told[i]);
    for (unsigned i = 0; i < COUNT(err); i++) {
        const char *answer = settled(err[i], i);
        odd = odd ? odd : answer;
    }
    return odd;
}

static const char *run_behind_asking(void)
{
    return run_behind("aarr");
}

static void prepare_held(void)
{
    open_warm();
    WANT(dibs_lock_acquire(lock, NULL), DIBS_OK);
}

/* A release has to wait although there is no memory for that. */
static const char *run_behind_reentry(void)
{
    return run_behind("arar");
}

static void test_oom_behind(void **state)
{
    const struct scenario asking = {"behind", open_warm, run_behind_asking,
                                    finish_async};
    const struct scenario held = {"behind a re-entry", prepare_held,
                                  run_behind_reentry, finish_async};

    (void)state;
    walk(&asking);
    walk(&held);
}

/* ---- what is lost ------------------------------------------------------ */

/* The start of an async release may fail, and then it is as it was. The sync
 * one needs no memory, and after it the owner starts anew. */
static void test_oom_lost(void **state)
{
    struct told never = {.times = 0};

    (void)state;
    open_warm();
    FINE(dibs_lock_acquire(lock, DIBS_LOCK_OPTS(.lease_ms = kit_chance())));
    TS_WAIT(dibs_lock_state(lock, 0) == DIBS_LOST);
    dibs__mem_fail_at(1, true);
    dibs_err start = dibs_lock_release_async(lock, NULL, kit_tell, &never);
    dibs_state then = dibs_lock_state(lock, 0);
    dibs_err first = dibs_lock_release(lock, NULL);
    dibs_err second = dibs_lock_release(lock, NULL);
    dibs__mem_fail_at(0, false);
    WANT(start, DIBS_ERR_NOMEM);
    assert_int_equal(then, DIBS_LOST);
    WANT(first, DIBS_ERR_LOST);
    WANT(second, DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_acquire(lock, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
    FINE(dibs_lock_release(lock, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
    works_again();
    assert_int_equal(atomic_load(&never.times), 0);
}

/* ---- handing over ------------------------------------------------------ */

enum { NEXT_OWNERS = 4 };

static struct next_owner {
    struct told got;
    dibs_owner owner;
    bool started;
    dibs_err gave;
} next_owners[NEXT_OWNERS];

static void take_over(dibs_err err, void *arg)
{
    struct next_owner *h = arg;

    if (err == DIBS_OK)
        h->gave = dibs_lock_release(lock, DIBS_LOCK_OPTS(.owner = h->owner));
    kit_tell(err, &h->got);
}

static void prepare_handover(void)
{
    open_warm();
    FINE(dibs_lock_acquire(lock, NULL));
}

static const char *run_handover(void)
{
    const char *odd = NULL;

    memset(next_owners, 0, sizeof next_owners);
    for (int i = 0; i < NEXT_OWNERS; i++) {
        next_owners[i].owner = dibs_owner_new(client);
        dibs_err err = dibs_lock_acquire_async(
            lock, DIBS_LOCK_OPTS(.owner = next_owners[i].owner, .wait_ms = 500),
            take_over, &next_owners[i]);
        next_owners[i].started = err == DIBS_OK;
        if (err != DIBS_OK && err != DIBS_ERR_NOMEM)
            odd = dibs_strerror(err);
    }
    dibs_err err = dibs_lock_release(lock, NULL);
    if (!excusable(err))
        odd = dibs_strerror(err);
    for (int i = 0; i < NEXT_OWNERS; i++) {
        struct ts_wait w = ts_wait_begin(TS_SOON);
        while (next_owners[i].started &&
               atomic_load(&next_owners[i].got.times) == 0)
            if (!ts_wait_step(&w))
                return "a next owner was not told";
        if (!excusable(atomic_load(&next_owners[i].got.err)))
            odd = dibs_strerror(atomic_load(&next_owners[i].got.err));
        if (!excusable(next_owners[i].gave))
            odd = dibs_strerror(next_owners[i].gave);
    }
    return odd;
}

static void test_oom_handover(void **state)
{
    const struct scenario s = {"handover", prepare_handover, run_handover,
                               works_again};

    (void)state;
    walk(&s);
}

/* ---- renewing and listing ---------------------------------------------- */

static long long renewals(void)
{
    return ts_command_calls(srv, "pexpire");
}

/* A failure that passes costs no lock. One that lasts does, and it is told. */
static const char *run_renew(void)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);
    long long before = renewals();

    while (renewals() < before + 2 && dibs_lock_state(lock, 0) != DIBS_LOST)
        if (!ts_wait_step(&w))
            return "neither renewed nor lost";
    return NULL;
}

static void prepare_renew(void)
{
    open_warm();
    FINE(dibs_lock_acquire(lock, NULL));
}

static void test_oom_renew(void **state)
{
    const struct scenario s = {"renew", prepare_renew, run_renew, finish_pair};

    (void)state;
    walk(&s);
}

static bool see(const char *name, size_t len, const dibs_lock_info *info,
                void *arg)
{
    (void)name, (void)len, (void)info, (void)arg;
    return true;
}

static const char *run_list(void)
{
    dibs_err err = dibs_client_list(client, "l*", see, NULL);

    return excusable(err) ? NULL : dibs_strerror(err);
}

static void test_oom_list(void **state)
{
    const struct scenario s = {"list", prepare_renew, run_list, finish_pair};

    (void)state;
    walk(&s);
}

/* ---- replicas, and the doctor ------------------------------------------ */

/* One replica: one is enough, two are too many; also on top of the first. */
static const char *run_replicas(void)
{
    dibs_err err = dibs_lock_try(
        lock, DIBS_LOCK_OPTS(.replicas = 2, .replicas_timeout_ms = 1));
    int held = 0;

    if (err == DIBS_OK || (!excusable(err) && err != DIBS_ERR_REPLICAS))
        return dibs_strerror(err);
    for (int want = 1; want <= 2; want++) {
        err = dibs_lock_try(
            lock, DIBS_LOCK_OPTS(.replicas = want, .replicas_timeout_ms = 100));
        if (want == 2 && err == DIBS_OK)
            return "two of one";
        /* BUSY: what an attempt took and could not give back is taken back a
         * moment later, by the reaper. */
        if (!excusable(err) && err != DIBS_ERR_REPLICAS &&
            err != DIBS_ERR_LOST && !(err == DIBS_ERR_BUSY && held == 0))
            return dibs_strerror(err);
        held += err == DIBS_OK;
        if (!counted(held))
            return "the count is wrong";
    }
    return NULL;
}

static void test_oom_replicas(void **state)
{
    const struct scenario s = {"replicas", open_warm, run_replicas,
                               finish_pair};
    char *port = ts_text("%d", ts_server_port(srv));
    const char *extra[] = {"--replicaof", "127.0.0.1", port, NULL};

    (void)state;
    ts_config_set(srv, "repl-diskless-sync-delay", "0");
    struct ts_server *replica = ts_server_start(extra);
    TS_WAIT(ts_int(srv, "WAIT 1 0") == 1);
    walk(&s);
    ts_server_stop(replica);
    free(port);
}

static bool finding(const char *check, dibs_verdict verdict, const char *text,
                    void *arg)
{
    (void)check, (void)verdict, (void)text, (void)arg;
    return strcmp(check, "scripting") != 0; /* enough; the clock takes time */
}

static const char *run_doctor(void)
{
    dibs_err err = dibs_client_doctor(client, "l", finding, NULL);

    return excusable(err) ? NULL : dibs_strerror(err);
}

static void test_oom_doctor(void **state)
{
    const struct scenario s = {"doctor", open_warm, run_doctor, works_again};

    (void)state;
    walk(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_oom_open),     KIT_TEST(test_oom_new),
        KIT_TEST(test_oom_close),    KIT_TEST(test_oom_pair),
        KIT_TEST(test_oom_wait),     KIT_TEST(test_oom_async),
        KIT_TEST(test_oom_behind),   KIT_TEST(test_oom_handover),
        KIT_TEST(test_oom_renew),    KIT_TEST(test_oom_list),
        KIT_TEST(test_oom_replicas), KIT_TEST(test_oom_doctor),
        KIT_TEST(test_oom_lost),
    };
    return KIT_RUN_PARALLEL("server.oom", tests);
}

#else

int main(void)
{
    print_message("server.oom: needs a build with DIBS_FAULTS\n");
    return 0;
}

#endif
