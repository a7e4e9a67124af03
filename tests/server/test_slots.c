/* SPDX-License-Identifier: MIT
 *
 * test_slots.c - what is promised about slots: so many holders and no more,
 * numbers, and permits that come back.
 */
#include "server/kit.h"

#define OUT   "{s}:timeout"
#define SEATS "{s}:dibs_slot"
#define NEVER "922337203685477"
#define JAVA  "0123456789abcdef" /* the id of another client's permit */

static dibs_lock *slots(dibs_client *c, int64_t many)
{
    dibs_lock *l = NULL;

    FINE(dibs_slots_lock_new(c, "s", many, &l));
    return l;
}

static long long unused(void)
{
    return ts_int(srv, "EVAL %s 1 s",
                  "return tonumber(redis.call('get', KEYS[1]))");
}

static int64_t slot_of(dibs_lock *l, dibs_owner owner)
{
    int64_t slot = -1;

    FINE(dibs_lock_slot(l, owner, &slot));
    return slot;
}

/* How many there are stays on the server. */
static void tidy(dibs_client *c, dibs_lock *l, long long many)
{
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(unused(), many);
    assert_int_equal(ts_int(srv, "EXISTS %s", OUT), 0);
    ts_ok(srv, "DEL s %s", SEATS);
}

static void test_slots_so_many_and_no_more(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *l = slots(c, 2), *m = slots(d, 2);
    dibs_owner a = dibs_owner_new(c), b = dibs_owner_new(d);
    int64_t none = 7;

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = a)));
    FINE(dibs_lock_acquire(m, DIBS_LOCK_OPTS(.owner = b)));
    assert_int_equal(slot_of(l, a), 0);
    assert_int_equal(slot_of(m, b), 1);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    WANT(dibs_lock_try(m, NULL), DIBS_ERR_BUSY);
    WANT(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 50)), DIBS_ERR_TIMEOUT);
    WANT(dibs_lock_slot(l, 0, &none), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = a)));
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = a)), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_try(m, NULL));
    assert_int_equal(slot_of(m, 0), 0);
    FINE(dibs_lock_release(m, NULL));
    FINE(dibs_lock_release(m, DIBS_LOCK_OPTS(.owner = b)));
    dibs_lock_free(m);
    kit_close(d);
    tidy(c, l, 2);
}

/* An owner that has a slot takes no second one. */
static void test_slots_reentry(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = slots(c, 3);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_acquire(l, NULL));
    assert_int_equal(unused(), 2);
    assert_int_equal(dibs_lock_holds(l, 0), 2);
    assert_int_equal(slot_of(l, 0), 0);
    FINE(dibs_lock_release(l, NULL));
    assert_int_equal(unused(), 2);
    FINE(dibs_lock_release(l, NULL));
    tidy(c, l, 3);
}

static void test_slots_waiter_is_woken(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *l = slots(c, 1), *m = slots(d, 1);
    struct call call;

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    kit_call_start(&call, m, NULL, dibs_lock_acquire);
    TS_WAIT(ts_waiting(srv, "s") == 1);
    FINE(dibs_lock_release(l, NULL));
    FINE(kit_call_end(&call));
    kit_close(d); /* gives it back */
    dibs_lock_free(m);
    tidy(c, l, 1);
}

/* One whose slot was lost gets another one, handed over in its client. The
 * number of the first must be free then. lease_ms: 0 = somebody takes it away.
 */
static void lost_then_handed_over(int64_t lease_ms)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = slots(c, 2);
    dibs_owner a = dibs_owner_new(c), b = dibs_owner_new(c);
    struct call call;

    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = b)));
    FINE(
        dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = a, .lease_ms = lease_ms)));
    assert_int_equal(slot_of(l, a), 1);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = b)));
    if (lease_ms)
        TS_WAIT(dibs_lock_state(l, a) == DIBS_LOST);
    else
        ts_ok(srv, "ZREMRANGEBYRANK %s 0 -1", OUT);
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = a)), DIBS_ERR_LOST);
    ts_ok(srv, "DEL %s", OUT);
    ts_ok(srv, "ZADD %s %s %s", OUT, NEVER, JAVA); /* has no number */
    ts_ok(srv, "SET s 1");
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = b)));
    assert_int_equal(slot_of(l, b), 0);
    kit_call_start(&call, l, DIBS_LOCK_OPTS(.owner = a), dibs_lock_acquire);
    TS_WAIT(ts_waiting(srv, "s") == 1);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = b)));
    FINE(kit_call_end(&call));
    assert_int_equal(slot_of(l, a), 0);
    ts_ok(srv, "ZREM %s %s", OUT, JAVA);
    ts_ok(srv, "INCR s");
    FINE(dibs_lock_try(l, NULL));
    assert_int_equal(slot_of(l, 0), 1);
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = a)));
    tidy(c, l, 2);
}

static void test_slots_lost_number(void **state)
{
    (void)state;
    lost_then_handed_over(0);
    lost_then_handed_over(300);
}

/* A lease that is not renewed ends, and nobody says so: the waiter knows by
 * itself when to ask. */
static void test_slots_of_one_that_died(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *l = slots(c, 1), *m = slots(d, 1);

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_short())));
    FINE(dibs_lock_acquire(m, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
    assert_int_equal(dibs_lock_state(l, 0), DIBS_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_release(m, NULL));
    dibs_lock_free(m);
    kit_close(d);
    tidy(c, l, 1);
}

static void test_slots_are_renewed(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = slots(c, 2);
    dibs_owner owners[20];

    (void)state;
    FINE(dibs_slots_set(l, 20));
    for (size_t i = 0; i < COUNT(owners); i++) {
        owners[i] = dibs_owner_new(c);
        FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = owners[i])));
    }
    int64_t end = ts_now_ms() + 3 * kit_lease() / 2;
    TS_WAIT(ts_now_ms() > end);
    for (size_t i = 0; i < COUNT(owners); i++) {
        TS_WAIT(dibs_lock_state(l, owners[i]) == DIBS_HELD);
        assert_int_equal(slot_of(l, owners[i]), i);
        FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = owners[i])));
    }
    tidy(c, l, 20);
}

static void test_slots_loss_is_told(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = slots(c, 2);
    struct lost lost = {.times = 0};

    (void)state;
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    ts_ok(srv, "DEL %s", OUT);
    TS_WAIT(atomic_load(&lost.times) == 1);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    ts_ok(srv, "SET s 2"); /* whoever deleted it has to answer for the count */
    tidy(c, l, 2);
}

static void note_warning(const dibs_event *ev, void *arg)
{
    if (ev->kind == DIBS_EVENT_WARNING && strstr(ev->text, "slots"))
        atomic_fetch_add((atomic_int *)arg, 1);
}

/* The server's number counts, and one who thinks otherwise hears of it. */
static void test_slots_another_number(void **state)
{
    atomic_int warned = 0;
    dibs_client *c = kit_open(
        DIBS_CLIENT_OPTS(.on_event = note_warning, .event_arg = &warned));
    dibs_lock *l = slots(c, 5);

    (void)state;
    ts_ok(srv, "SET s 2");
    for (int i = 0; i < 2; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
    }
    TS_WAIT(atomic_load(&warned) == 1);
    assert_int_equal(unused(), 2);
    dibs_lock_free(l);
    l = slots(c, 2);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    assert_int_equal(atomic_load(&warned), 1);
    tidy(c, l, 2);
}

/* More slots wake who waits; fewer take none away. */
static void test_slots_set(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = slots(c, 1);
    dibs_owner a = dibs_owner_new(c);
    struct call call;

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = a)));
    kit_call_start(&call, l, NULL, dibs_lock_acquire);
    TS_WAIT(ts_waiting(srv, "s") == 1);
    FINE(dibs_slots_set(l, 2));
    FINE(kit_call_end(&call));
    FINE(dibs_slots_set(l, 1));
    assert_int_equal(unused(), -1);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = a)));
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = a)), DIBS_ERR_BUSY);
    assert_int_equal(unused(), 0);
    tidy(c, l, 1); /* the thread's slot comes back with the client */
}

static void no_force(dibs_err err, bool ended, void *arg)
{
    (void)err;
    (void)ended;
    (void)arg;
}

/* What has no number of slots; and nobody ends all holds of slots at once. */
static void test_slots_bad_calls(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = slots(c, 1), *plain = kit_lock(c, "p"), *multi = NULL;

    (void)state;
    FINE(dibs_multi_lock_new(&plain, 1, &multi));
    WANT(dibs_slots_set(NULL, 2), DIBS_ERR_INVALID);
    WANT(dibs_slots_set(plain, 2), DIBS_ERR_INVALID);
    WANT(dibs_slots_set(multi, 2), DIBS_ERR_INVALID);
    WANT(dibs_lock_force_release(l, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_force_release_async(l, no_force, NULL), DIBS_ERR_INVALID);
    dibs_lock_free(multi);
    dibs_lock_free(plain);
    dibs_lock_free(l);
    kit_close(c);
}

static bool count_holder(const char *owner, dibs_mode mode, int64_t holds,
                         int64_t remaining_ms, void *arg)
{
    int *seen = arg;

    (void)mode;
    (void)holds;
    seen[0]++;
    seen[1] += strlen(owner) == 32;
    seen[2] += remaining_ms == -1;
    return true;
}

/* Another client's permits count, and are seen. */
static void test_slots_of_other_clients(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = slots(c, 2);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    char owner[DIBS_OWNER_MAX];
    int seen[3] = {0};
    bool was = false;

    (void)state;
    ts_ok(srv, "SET s 1");
    ts_ok(srv, "ZADD %s %s %s", OUT, NEVER, JAVA);
    FINE(dibs_lock_acquire(l, NULL));
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = dibs_owner_new(c))),
         DIBS_ERR_BUSY);
    FINE(dibs_lock_info_get(l, &info));
    assert_true(info.locked);
    assert_int_equal(info.owners, 2);
    assert_int_equal(info.slots, 2);
    assert_int_equal(info.free_slots, 0);
    FINE(dibs_lock_owner_text(l, 0, owner, sizeof owner));
    assert_string_equal(info.owner, owner);
    FINE(dibs_lock_holders(l, count_holder, seen));
    assert_int_equal(seen[0], 2);
    assert_int_equal(seen[1], 1);
    assert_int_equal(seen[2], 1);
    WANT(dibs_lock_force_release(l, &was), DIBS_ERR_INVALID);
    FINE(dibs_lock_force_release_owner(l, "30313233343536373839616263646566",
                                       &was));
    assert_true(was);
    FINE(dibs_lock_force_release_owner(l, owner, &was));
    assert_true(was);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    tidy(c, l, 2);
}

static void test_slots_kept(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = slots(c, 1);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.keep_ms = kit_short())));
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
    FINE(dibs_lock_release(l, NULL));
    tidy(c, l, 1);
}

static void test_slots_bad_input(void **state)
{
    static const int64_t bad[] = {0, -1, INT64_MIN, DIBS_PERMITS_MAX + 1,
                                  INT64_MAX};
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = NULL, *plain = kit_lock(c, "s");

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        WANT(dibs_slots_lock_new(c, "s", bad[i], &l), DIBS_ERR_INVALID);
    WANT(dibs_slots_lock_new(c, NULL, 1, &l), DIBS_ERR_INVALID);
    WANT(dibs_slots_lock_new(c, "s", 1, NULL), DIBS_ERR_INVALID);
    assert_null(l);
    WANT(dibs_slots_set(plain, 2), DIBS_ERR_INVALID);
    WANT(dibs_slots_set(NULL, 2), DIBS_ERR_INVALID);
    l = slots(c, DIBS_PERMITS_MAX);
    for (size_t i = 0; i < COUNT(bad); i++)
        WANT(dibs_slots_set(l, bad[i]), DIBS_ERR_INVALID);
    ts_ok(srv, "SET s x");
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_slots_set(l, 2), DIBS_ERR_WRONGTYPE);
    ts_ok(srv, "DEL s");
    FINE(dibs_lock_acquire(plain, NULL)); /* a lock of that name */
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_slots_set(l, 2), DIBS_ERR_WRONGTYPE);
    FINE(dibs_lock_release(plain, NULL));
    FINE(dibs_lock_acquire(l, NULL));
    WANT(dibs_lock_try(plain, NULL), DIBS_ERR_WRONGTYPE);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(plain);
    tidy(c, l, DIBS_PERMITS_MAX);
}

/* ---- a crowd ----------------------------------------------------------- */

enum { THREADS = 12, ROUNDS = 40, SLOTS = 3 };

struct room {
    dibs_lock *l;
    atomic_int *inside, *most, *bad;
    atomic_int *seats; /* whose number is in use */
};

static void *run_rounds(void *arg)
{
    struct room *r = arg;

    for (int i = 0; i < ROUNDS; i++) {
        int64_t slot = 0;
        if (dibs_lock_acquire(r->l, NULL) != DIBS_OK ||
            dibs_lock_slot(r->l, 0, &slot) != DIBS_OK || slot < 0 ||
            slot >= SLOTS || atomic_fetch_add(&r->seats[slot], 1) != 0) {
            atomic_fetch_add(r->bad, 1);
            continue;
        }
        int now = atomic_fetch_add(r->inside, 1) + 1;
        if (now > atomic_load(r->most))
            atomic_store(r->most, now);
        sched_yield();
        atomic_fetch_sub(r->inside, 1);
        atomic_fetch_sub(&r->seats[slot], 1);
        if (dibs_lock_release(r->l, NULL) != DIBS_OK)
            atomic_fetch_add(r->bad, 1);
    }
    return NULL;
}

/* Never more than three inside, each with a number of its own, over two
 * clients; and nothing is left. */
static void test_slots_crowd(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *l = slots(c, SLOTS), *m = slots(d, SLOTS);
    atomic_int inside = 0, most = 0, bad = 0, seats[SLOTS] = {0};
    struct room one = {l, &inside, &most, &bad, seats};
    struct room two = {m, &inside, &most, &bad, seats};
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, run_rounds, i % 2 ? &one : &two),
            0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&bad), 0);
    assert_in_range(atomic_load(&most), 1, SLOTS);
    dibs_lock_free(m);
    kit_close(d);
    tidy(c, l, SLOTS);
}

/* Many that wait without a thread, in order. */
static void test_slots_async(void **state)
{
    enum { MANY = 60 };
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = slots(c, SLOTS);
    dibs_owner owners[MANY];
    struct told got[MANY] = {{0}}, gave[MANY] = {{0}};

    (void)state;
    for (int i = 0; i < MANY; i++) {
        owners[i] = dibs_owner_new(c);
        FINE(dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = owners[i]),
                                     kit_tell, &got[i]));
    }
    for (int i = 0; i < MANY; i++) {
        FINE(kit_answer(&got[i]));
        FINE(dibs_lock_release_async(l, DIBS_LOCK_OPTS(.owner = owners[i]),
                                     kit_tell, &gave[i]));
    }
    for (int i = 0; i < MANY; i++)
        FINE(kit_answer(&gave[i]));
    tidy(c, l, SLOTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_slots_so_many_and_no_more),
        KIT_TEST(test_slots_reentry),
        KIT_TEST(test_slots_waiter_is_woken),
        KIT_TEST(test_slots_lost_number),
        KIT_TEST(test_slots_of_one_that_died),
        KIT_TEST(test_slots_are_renewed),
        KIT_TEST(test_slots_loss_is_told),
        KIT_TEST(test_slots_another_number),
        KIT_TEST(test_slots_set),
        KIT_TEST(test_slots_bad_calls),
        KIT_TEST(test_slots_of_other_clients),
        KIT_TEST(test_slots_kept),
        KIT_TEST(test_slots_bad_input),
        KIT_TEST(test_slots_crowd),
        KIT_TEST(test_slots_async),
    };

    return KIT_RUN_PARALLEL("slots", tests);
}
