/* SPDX-License-Identifier: MIT
 *
 * interop_lock.c - what holds for every kind of lock between dibs and Redisson:
 * each keeps the other out, wakes the other, counts what the other counts, and
 * outlives the other's death.
 */
#include "interop/kit.h"

/* Who holds keeps out who asks. */
static const struct pair {
    enum kind holds, asks;
} pairs[] = {
    {PLAIN, PLAIN}, {FAIR, FAIR}, {WRITE, WRITE}, {WRITE, READ}, {READ, WRITE}};

static const char *const names[] = {
    "order",     "orders:17:items", "shop:{7}:order",
    "{tag}last", "Bücher/日本語/🔒", "two words",
};

#define ALL_PAIRS(p)                                                           \
    for (const struct pair *p = pairs; p < pairs + COUNT(pairs); p++)
#define LEASE_MS 1000

/* ---- exclusion, and being woken ---------------------------------------- */

static void java_then_dibs(const struct pair *p, const char *name,
                           struct wakes *wakes)
{
    struct waiter w;

    JAVA("a", "lock", p->holds, name, "\t-1");
    assert_false(kit_free_for_dibs(p->asks, name));
    waiter_start(&w, dib, p->asks, name, NULL);
    kit_wait_listeners(p->asks, name, 1);
    assert_false(atomic_load(&w.done));
    struct jvm_answer a =
        jvm_ask(jvm, "a", "unlock", kind_name(p->holds), name, NULL);
    assert_true(a.ok);
    FINE(waiter_end(&w));
    wakes_add(wakes, a.begin_us, w.end_us);
    assert_int_equal(JAVA("a", "tryLock", p->holds, name, "\t0\t-1"), 0);
    waiter_release(&w);
}

static void test_java_holds_dibs_waits(void **state)
{
    (void)state;
    ALL_PAIRS(p)
    {
        char what[64];
        snprintf(what, sizeof what, "Java %s -> dibs %s", kind_name(p->holds),
                 kind_name(p->asks));
        struct wakes wakes = {.what = what};
        for (size_t i = 0; i < COUNT(names); i++)
            java_then_dibs(p, names[i], &wakes);
        wakes_print(&wakes);
    }
}

static void dibs_then_java(const struct pair *p, const char *name,
                           struct wakes *wakes)
{
    struct waiter holder;

    waiter_start(&holder, dib, p->holds, name, NULL);
    FINE(waiter_end(&holder));
    assert_int_equal(JAVA("a", "try", p->asks, name, NULL), 0);
    int id = jvm_send(jvm, "a", "lock", kind_name(p->asks), name, "\t-1");
    kit_wait_parked(jvm, "a");
    assert_false(jvm_done(jvm, id));
    int64_t begin = waiter_release(&holder);
    struct jvm_answer a = GRANTED(jvm, id);
    wakes_add(wakes, begin, a.end_us);
    assert_false(kit_free_for_dibs(p->holds, name));
    JAVA("a", "unlock", p->asks, name, NULL);
}

static void test_dibs_holds_java_waits(void **state)
{
    (void)state;
    ALL_PAIRS(p)
    {
        char what[64];
        snprintf(what, sizeof what, "dibs %s -> Java %s", kind_name(p->holds),
                 kind_name(p->asks));
        struct wakes wakes = {.what = what};
        for (size_t i = 0; i < COUNT(names); i++)
            dibs_then_java(p, names[i], &wakes);
        wakes_print(&wakes);
    }
}

/* Waiting with a limit: both give up, and leave nothing behind. */
static void test_limits_of_waiting(void **state)
{
    (void)state;
    ALL_PAIRS(p)
    {
        struct waiter w;
        JAVA("a", "lock", p->holds, "order", "\t-1");
        waiter_start(&w, dib, p->asks, "order", DIBS_LOCK_OPTS(.wait_ms = 200));
        WANT(waiter_end(&w), DIBS_ERR_TIMEOUT);
        dibs_lock_free(w.l);
        JAVA("a", "unlock", p->holds, "order", NULL);

        waiter_start(&w, dib, p->holds, "order", NULL);
        FINE(waiter_end(&w));
        assert_int_equal(JAVA("a", "tryLock", p->asks, "order", "\t200\t-1"),
                         0);
        waiter_release(&w);
        assert_true(kit_free_for_dibs(p->asks, "order"));
    }
}

/* ---- re-entry ---------------------------------------------------------- */

static void test_java_re_enters(void **state)
{
    (void)state;
    ALL_PAIRS(p)
    {
        struct waiter w;
        dibs_lock_info info = DIBS_LOCK_INFO_INIT;
        dibs_lock *l = kit_lock(dib, p->holds, "order");

        for (int i = 0; i < 3; i++)
            JAVA("a", "lock", p->holds, "order", "\t-1");
        FINE(dibs_lock_info_get(l, &info));
        assert_int_equal(info.holds, 3);
        waiter_start(&w, dib, p->asks, "order", NULL);
        kit_wait_listeners(p->asks, "order", 1);
        for (int i = 2; i > 0; i--) {
            JAVA("a", "unlock", p->holds, "order", NULL);
            FINE(dibs_lock_info_get(l, &info));
            assert_int_equal(info.holds, i);
            assert_false(kit_free_for_dibs(p->asks, "order"));
        }
        assert_false(atomic_load(&w.done));
        JAVA("a", "unlock", p->holds, "order", NULL);
        FINE(waiter_end(&w));
        waiter_release(&w);
        dibs_lock_free(l);
    }
}

static void test_dibs_re_enters(void **state)
{
    (void)state;
    ALL_PAIRS(p)
    {
        dibs_lock *l = kit_lock(dib, p->holds, "order");
        for (int i = 0; i < 3; i++)
            FINE(dibs_lock_acquire(l, NULL));
        int id =
            jvm_send(jvm, "a", "lock", kind_name(p->asks), "order", "\t-1");
        kit_wait_parked(jvm, "a");
        for (int i = 0; i < 2; i++) {
            FINE(dibs_lock_release(l, NULL));
            assert_int_equal(JAVA("b", "try", p->asks, "order", NULL), 0);
        }
        assert_false(jvm_done(jvm, id));
        FINE(dibs_lock_release(l, NULL));
        GRANTED(jvm, id);
        JAVA("a", "unlock", p->asks, "order", NULL);
        dibs_lock_free(l);
    }
}

/* ---- leases that end --------------------------------------------------- */

/* Not before its time, and soon after. A holder of dibs has lost it a little
 * earlier, by its own clock, and gives back a write lock then. */
static void check_lease(int64_t begin_us, int64_t end_us, int64_t earlier_ms)
{
    assert_true(end_us - begin_us >= (LEASE_MS - 10 - earlier_ms) * 1000);
}

static void test_java_lease_ends(void **state)
{
    (void)state;
    ALL_PAIRS(p)
    {
        struct waiter w;
        struct jvm_answer a =
            jvm_ask(jvm, "a", "lock", kind_name(p->holds), "order", "\t1000");
        assert_true(a.ok);
        waiter_start(&w, dib, p->asks, "order", NULL);
        FINE(waiter_end(&w));
        check_lease(a.begin_us, w.end_us, 0);
        a = jvm_ask(jvm, "a", "unlock", kind_name(p->holds), "order", NULL);
        assert_false(a.ok);
        assert_non_null(strstr(a.text, "IllegalMonitorState"));
        waiter_release(&w);
    }
}

/* Before 3.32 a fair waiter of Redisson's may sleep forever when a lease ends
 * (interop_known). The next dibs client that asks calls it. */
static void wake_old_fair_waiter(const struct pair *p, int id, const char *name)
{
    if (p->asks != FAIR || !jvm_older(jvm, 3, 32))
        return;
    TS_WAIT(jvm_done(jvm, id) ||
            (ts_int(srv, "LLEN redisson_lock_queue:{%s}", name) == 1 &&
             !ts_exists(srv, name)));
    assert_false(kit_free_for_dibs(FAIR, name));
}

static void test_dibs_lease_ends(void **state)
{
    (void)state;
    ALL_PAIRS(p)
    {
        dibs_lock *l = kit_lock(dib, p->holds, "order");
        int64_t begin = kit_now_us();
        FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = LEASE_MS)));
        int id =
            jvm_send(jvm, "a", "lock", kind_name(p->asks), "order", "\t-1");
        wake_old_fair_waiter(p, id, "order");
        struct jvm_answer a = jvm_await(jvm, id, TS_SOON);
        assert_true(a.ok);
        check_lease(begin, a.end_us, LEASE_MS / 100 + 2);
        WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
        assert_int_equal(JAVA("a", "isHeld", p->asks, "order", NULL), 1);
        JAVA("a", "unlock", p->asks, "order", NULL);
        dibs_lock_free(l);
    }
}

/* A waiter sleeps until the end that it was told. When a release leaves the
 * lock taken for a shorter time, it must not. (An old Redisson's fair waiter
 * sleeps on when a lease ends, so fair locks are left out.) */
static void test_dibs_keeps(void **state)
{
    (void)state;
    ALL_PAIRS(p)
    {
        if (p->holds == FAIR || p->holds == READ)
            continue;
        dibs_lock *l = kit_lock(dib, p->holds, "order");
        FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 10 * TS_SOON)));
        int id =
            jvm_send(jvm, "a", "lock", kind_name(p->asks), "order", "\t-1");
        kit_wait_parked(jvm, "a");
        FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.keep_ms = LEASE_MS)));
        struct jvm_answer a = jvm_await(jvm, id, TS_SOON);
        assert_true(a.ok);
        JAVA("a", "unlock", p->asks, "order", NULL);
        dibs_lock_free(l);
    }
}

struct ended {
    atomic_bool over;
    dibs_err err;
};

static void note_end(dibs_err err, void *arg)
{
    struct ended *e = arg;

    e->err = err;
    atomic_store(&e->over, true);
}

/* Both are asked for before either begins, so the lock is not free between
 * them. */
static void hand_over(dibs_lock *l, dibs_owner from, dibs_owner to)
{
    struct ended taken = {0}, given = {0};
    dibs_stats s = DIBS_STATS_INIT;
    FINE(dibs_client_stats(dib, &s));
    uint64_t before = s.handovers;

    FINE(dibs_lock_acquire_async(
        l, DIBS_LOCK_OPTS(.owner = to, .lease_ms = LEASE_MS), note_end,
        &taken));
    FINE(dibs_lock_release_async(l, DIBS_LOCK_OPTS(.owner = from), note_end,
                                 &given));
    TS_WAIT(atomic_load(&taken.over) && atomic_load(&given.over));
    FINE(taken.err);
    FINE(given.err);
    FINE(dibs_client_stats(dib, &s));
    assert_int_equal(s.handovers, before + 1);
}

/* The same when the lock is handed over inside a client, to a lease that ends
 * sooner, and by itself. */
static void test_dibs_hands_over(void **state)
{
    dibs_owner from = dibs_owner_new(dib), to = dibs_owner_new(dib);
    dibs_lock *l = kit_lock(dib, PLAIN, "order");

    (void)state;
    FINE(dibs_lock_acquire(
        l, DIBS_LOCK_OPTS(.owner = from, .lease_ms = 10 * TS_SOON)));
    int id = jvm_send(jvm, "a", "lock", kind_name(PLAIN), "order", "\t-1");
    kit_wait_parked(jvm, "a");
    hand_over(l, from, to);
    struct jvm_answer a = jvm_await(jvm, id, TS_SOON);
    assert_true(a.ok);
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = to)), DIBS_ERR_LOST);
    JAVA("a", "unlock", PLAIN, "order", NULL);
    dibs_lock_free(l);
}

/* ---- watchdogs --------------------------------------------------------- */

/* All kinds at once, so that the time passes only once. */
static void test_java_watchdog_renews(void **state)
{
    static const enum kind kinds[] = {PLAIN, FAIR, READ, WRITE};
    struct jvm *short_lived = kit_java("watchdog=4000", NULL);
    struct ts_wait w = ts_wait_begin(6000);

    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++)
        JAVA_AT(short_lived, "a", "lock", kinds[i], kind_name(kinds[i]),
                "\t-1");
    while (ts_wait_step(&w))
        for (size_t i = 0; i < COUNT(kinds); i++)
            assert_false(kit_free_for_dibs(kinds[i] == READ ? WRITE : kinds[i],
                                           kind_name(kinds[i])));
    for (size_t i = 0; i < COUNT(kinds); i++)
        JAVA_AT(short_lived, "a", "unlock", kinds[i], kind_name(kinds[i]),
                NULL);
    jvm_stop(short_lived);
}

static void test_dibs_watchdog_renews(void **state)
{
    static const enum kind kinds[] = {PLAIN, FAIR, READ, WRITE};
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = 3000));
    dibs_lock *l[COUNT(kinds)];
    struct ts_wait w = ts_wait_begin(4000);

    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        l[i] = kit_lock(c, kinds[i], kind_name(kinds[i]));
        FINE(dibs_lock_acquire(l[i], NULL));
    }
    while (ts_wait_step(&w))
        for (size_t i = 0; i < COUNT(kinds); i++)
            assert_int_equal(JAVA("a", "try",
                                  kinds[i] == READ ? WRITE : kinds[i],
                                  kind_name(kinds[i]), NULL),
                             0);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        FINE(dibs_lock_release(l[i], NULL));
        dibs_lock_free(l[i]);
    }
    dibs_client_free(c);
}

/* ---- death ------------------------------------------------------------- */

static void test_java_holder_dies(void **state)
{
    struct waiter w[COUNT(pairs)];
    struct jvm *doomed = kit_java("watchdog=4000", NULL);
    char name[COUNT(pairs)][16];

    (void)state;
    for (size_t i = 0; i < COUNT(pairs); i++) {
        snprintf(name[i], sizeof name[i], "order%zu", i);
        JAVA_AT(doomed, "a", "lock", pairs[i].holds, name[i], "\t-1");
        waiter_start(&w[i], dib, pairs[i].asks, name[i], NULL);
        kit_wait_listeners(pairs[i].asks, name[i], 1);
    }
    jvm_kill(doomed);
    for (size_t i = 0; i < COUNT(pairs); i++) {
        FINE(waiter_end(&w[i]));
        waiter_release(&w[i]);
    }
    jvm_stop(doomed);
}

/* Holds all kinds, tells so, and waits to be killed. */
static int hold_all(int fd, void *arg)
{
    dibs_client *c = NULL;
    char name[16], done = 1;

    (void)arg;
    if (dibs_client_open(ts_server_url(srv), DIBS_CLIENT_OPTS(.lease_ms = 4000),
                         &c) != DIBS_OK)
        return 1;
    for (size_t i = 0; i < COUNT(pairs); i++) {
        snprintf(name, sizeof name, "order%zu", i);
        if (dibs_lock_acquire(kit_lock(c, pairs[i].holds, name), NULL) !=
            DIBS_OK)
            return 1;
    }
    ts_tell(fd, &done, 1);
    ts_hear(fd, &done, 1, ts_ms(600000));
    return 0;
}

static void test_dibs_holder_dies(void **state)
{
    struct ts_child *doomed = ts_spawn(hold_all, NULL);
    int id[COUNT(pairs)];
    char name[COUNT(pairs)][16], worker[COUNT(pairs)][16], done;

    (void)state;
    assert_true(ts_hear(ts_child_fd(doomed), &done, 1, TS_SOON));
    for (size_t i = 0; i < COUNT(pairs); i++) {
        snprintf(name[i], sizeof name[i], "order%zu", i);
        snprintf(worker[i], sizeof worker[i], "w%zu", i);
        id[i] = jvm_send(jvm, worker[i], "lock", kind_name(pairs[i].asks),
                         name[i], "\t-1");
        kit_wait_parked(jvm, worker[i]);
    }
    ts_child_kill(doomed);
    for (size_t i = 0; i < COUNT(pairs); i++) {
        wake_old_fair_waiter(&pairs[i], id[i], name[i]);
        GRANTED(jvm, id[i]);
        JAVA(worker[i], "unlock", pairs[i].asks, name[i], NULL);
    }
    ts_child_free(doomed);
}

/* ---- force ------------------------------------------------------------- */

/* Ends what dibs holds; a waiter of that client, or of another, wakes. */
static void java_forces(const struct pair *p, dibs_client *waits,
                        struct wakes *wakes)
{
    struct waiter holder, w;

    /* Redisson forgets a reader's key, which then lives as long as its lease.
     */
    waiter_start(&holder, dib, p->holds, "order",
                 DIBS_LOCK_OPTS(.lease_ms = 5000));
    FINE(waiter_end(&holder));
    waiter_start(&w, waits, p->asks, "order", NULL);
    kit_wait_listeners(p->asks, "order", 1);
    struct jvm_answer a =
        jvm_ask(jvm, "b", "forceUnlock", kind_name(p->holds), "order", NULL);
    assert_true(a.ok && a.value == 1);
    FINE(waiter_end(&w));
    wakes_add(wakes, a.begin_us, w.end_us);
    WANT(
        dibs_lock_release(holder.l, DIBS_LOCK_OPTS(.owner = holder.opts.owner)),
        DIBS_ERR_LOST);
    dibs_lock_free(holder.l);
    waiter_release(&w);
}

static void test_java_forces(void **state)
{
    dibs_client *other = kit_open(NULL);
    struct wakes wakes = {.what = "Java forces, dibs wakes"};

    (void)state;
    ALL_PAIRS(p)
    java_forces(p, other, &wakes);
    wakes_print(&wakes);
    dibs_client_free(other);
}

static void test_dibs_forces(void **state)
{
    struct wakes wakes = {.what = "dibs forces, Java wakes"};

    (void)state;
    ALL_PAIRS(p)
    {
        dibs_lock *l = kit_lock(dib, p->holds, "order");
        bool was = false;

        JAVA("a", "lock", p->holds, "order", "\t-1");
        int id =
            jvm_send(jvm, "b", "lock", kind_name(p->asks), "order", "\t-1");
        kit_wait_parked(jvm, "b");
        int64_t begin = kit_now_us();
        FINE(dibs_lock_force_release(l, &was));
        assert_true(was);
        wakes_add(&wakes, begin, GRANTED(jvm, id).end_us);
        JAVA("b", "unlock", p->asks, "order", NULL);
        /* A fair unlock of nothing is fine to Redisson, and to older ones that
         * of a read-write lock, too. */
        struct jvm_answer a =
            jvm_ask(jvm, "a", "unlock", kind_name(p->holds), "order", NULL);
        bool silent =
            p->holds == FAIR || (p->holds != PLAIN && jvm_older(jvm, 3, 44));
        assert_int_equal(a.ok, silent);
        dibs_lock_free(l);
    }
    wakes_print(&wakes);
}

/* ---- what each sees of the other --------------------------------------- */

static void java_seen_by_dibs(enum kind kind, const char *name)
{
    static const dibs_mode modes[] = {DIBS_MODE_EXCLUSIVE, DIBS_MODE_EXCLUSIVE,
                                      DIBS_MODE_READ, DIBS_MODE_WRITE};
    dibs_lock *l = kit_lock(dib, kind, name);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    JAVA("a", "lock", kind, name, "\t20000");
    JAVA("a", "lock", kind, name, "\t20000");
    char *owner =
        ts_strdup(jvm_ask(jvm, "a", "owner", kind_name(kind), name, NULL).text);
    long long before = JAVA("b", "ttl", kind, name, NULL);
    FINE(dibs_lock_info_get(l, &info));
    long long after = JAVA("b", "ttl", kind, name, NULL);
    assert_true(info.locked);
    assert_int_equal(info.mode, modes[kind]);
    assert_int_equal(info.holds, JAVA("a", "holdCount", kind, name, NULL));
    assert_int_equal(info.holds, 2);
    assert_int_equal(info.owners, 1);
    if (kind >= READ) { /* the other half is not locked */
        dibs_lock *half = kit_lock(dib, kind == READ ? WRITE : READ, name);
        dibs_lock_info other = DIBS_LOCK_INFO_INIT;
        FINE(dibs_lock_info_get(half, &other));
        assert_false(other.locked);
        assert_int_equal(other.mode, modes[kind]);
        dibs_lock_free(half);
    }
    assert_true(before >= info.ttl_ms && info.ttl_ms >= after);
    /* A writer's owner may be shown with or without the mark of its half. */
    assert_int_equal(strncmp(info.owner, owner, strlen(owner)), 0);
    free(owner);
    JAVA("a", "unlock", kind, name, NULL);
    JAVA("a", "unlock", kind, name, NULL);
    FINE(dibs_lock_info_get(l, &info));
    assert_false(info.locked);
    dibs_lock_free(l);
}

static void dibs_seen_by_java(enum kind kind, const char *name)
{
    dibs_lock *l = kit_lock(dib, kind, name);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    assert_int_equal(JAVA("a", "isLocked", kind, name, NULL), 0);
    assert_int_equal(JAVA("a", "ttl", kind, name, NULL), -2);
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 20000)));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 20000)));
    assert_int_equal(JAVA("a", "isLocked", kind, name, NULL), 1);
    assert_int_equal(JAVA("a", "isHeld", kind, name, NULL), 0);
    assert_int_equal(JAVA("a", "holdCount", kind, name, NULL), 0);
    if (kind >= READ) /* the other half is not locked */
        assert_int_equal(
            JAVA("a", "isLocked", kind == READ ? WRITE : READ, name, NULL), 0);
    FINE(dibs_lock_info_get(l, &info));
    long long seen = JAVA("a", "ttl", kind, name, NULL);
    assert_true(seen <= info.ttl_ms && seen > 0);
    FINE(dibs_lock_info_get(l, &info));
    assert_true(info.ttl_ms <= seen);
    FINE(dibs_lock_release(l, NULL));
    assert_int_equal(JAVA("a", "isLocked", kind, name, NULL), 1);
    FINE(dibs_lock_release(l, NULL));
    assert_int_equal(JAVA("a", "isLocked", kind, name, NULL), 0);
    dibs_lock_free(l);
}

static void test_state_agrees(void **state)
{
    (void)state;
    for (enum kind kind = PLAIN; kind <= WRITE; kind++)
        for (size_t i = 0; i < COUNT(names); i++) {
            java_seen_by_dibs(kind, names[i]);
            dibs_seen_by_java(kind, names[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_java_holds_dibs_waits),
        KIT_TEST(test_dibs_holds_java_waits),
        KIT_TEST(test_limits_of_waiting),
        KIT_TEST(test_java_re_enters),
        KIT_TEST(test_dibs_re_enters),
        KIT_TEST(test_java_lease_ends),
        KIT_TEST(test_dibs_lease_ends),
        KIT_TEST(test_dibs_keeps),
        KIT_TEST(test_dibs_hands_over),
        KIT_TEST(test_java_watchdog_renews),
        KIT_TEST(test_dibs_watchdog_renews),
        KIT_TEST(test_java_holder_dies),
        KIT_TEST(test_dibs_holder_dies),
        KIT_TEST(test_java_forces),
        KIT_TEST(test_dibs_forces),
        KIT_TEST(test_state_agrees),
    };
    return KIT_RUN("interop.lock", tests);
}
