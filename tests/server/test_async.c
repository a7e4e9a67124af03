/* SPDX-License-Identifier: MIT
 *
 * test_async.c - the async twins: every start that said OK is answered exactly
 * once, on the callback thread or inside the program's own dispatch calls, and
 * what may be done from inside an answer.
 */
#include "server/kit.h"

#include <poll.h>

#define CHANNEL  "redisson_lock__channel:{l}"
#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

enum { MANY = 1000 };

/* ---- the twins --------------------------------------------------------- */

struct looked {
    struct told told;
    bool was_locked;
    bool had_info;
    dibs_lock_info info;
};

static void forced(dibs_err err, bool was_locked, void *arg)
{
    struct looked *lo = arg;

    lo->was_locked = was_locked;
    kit_tell(err, &lo->told);
}

static void informed(dibs_err err, const dibs_lock_info *info, void *arg)
{
    struct looked *lo = arg;

    lo->had_info = info != NULL;
    if (info)
        lo->info = *info;
    kit_tell(err, &lo->told);
}

/* Fresh ones for each answer: nobody may be told into the wrong one. */
static struct told *a_told(void)
{
    static struct told all[32];
    static unsigned next;
    struct told *t = &all[next++ % COUNT(all)];

    memset(t, 0, sizeof *t);
    return t;
}

static void test_async_twins(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    const dibs_lock_opts *other = DIBS_LOCK_OPTS(.owner = dibs_owner_new(c));
    struct looked info = {0}, force = {0}, again = {0};
    struct told *t = a_told();

    (void)state;
    FINE(dibs_lock_acquire_async(l, other, kit_tell, t));
    FINE(kit_answer(t));
    assert_string_equal(t->name, "dibs-cb");
    pthread_t thread = t->thread;
    assert_int_equal(kit_count(l, "l", other->owner), 1);
    FINE(dibs_lock_try_async(l, other, kit_tell, t = a_told()));
    FINE(kit_answer(t));
    FINE(dibs_lock_try_async(l, NULL, kit_tell, t = a_told()));
    WANT(kit_answer(t), DIBS_ERR_BUSY);
    FINE(dibs_lock_info_get_async(l, informed, &info));
    FINE(kit_answer(&info.told));
    assert_true(info.had_info && info.info.locked);
    assert_int_equal(info.info.holds, 2);
    FINE(dibs_lock_release_async(l, other, kit_tell, t = a_told()));
    FINE(kit_answer(t));
    FINE(dibs_lock_release_async(l, NULL, kit_tell, t = a_told()));
    WANT(kit_answer(t), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_force_release_async(l, forced, &force));
    FINE(kit_answer(&force.told));
    assert_true(force.was_locked);
    FINE(dibs_lock_force_release_async(l, forced, &again));
    FINE(kit_answer(&again.told));
    assert_false(again.was_locked);
    FINE(dibs_lock_release_async(l, other, kit_tell, t = a_told()));
    WANT(kit_answer(t), DIBS_ERR_LOST);
    assert_true(pthread_equal(t->thread, thread)); /* always the same */
    assert_false(pthread_equal(t->thread, pthread_self()));
    dibs_lock_free(l);
    kit_close(c);
}

/* With owner 0 the owner is the thread that starts it. */
static void test_async_owner(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct told got = {0}, gave = {0};

    (void)state;
    FINE(dibs_lock_acquire_async(l, NULL, kit_tell, &got));
    FINE(kit_answer(&got));
    assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD);
    WANT(kit_elsewhere(l, NULL, dibs_lock_try), DIBS_ERR_BUSY);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_release_async(l, NULL, kit_tell, &gave));
    FINE(kit_answer(&gave));
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

/* Started one behind the other without waiting: they are done in that order,
 * and the holds are what they should be. */
static void test_async_same_owner(void **state)
{
    enum { TIMES = 20 };
    static struct told got[TIMES], gave[TIMES];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    const dibs_lock_opts *opts = DIBS_LOCK_OPTS(.owner = owner);

    (void)state;
    for (int i = 0; i < TIMES; i++)
        FINE(dibs_lock_acquire_async(l, opts, kit_tell, &got[i]));
    for (int i = 0; i < TIMES; i++)
        FINE(kit_answer(&got[i]));
    assert_int_equal(dibs_lock_holds(l, owner), TIMES);
    assert_int_equal(kit_count(l, "l", owner), TIMES);
    for (int i = 0; i < TIMES; i++)
        FINE(dibs_lock_release_async(l, opts, kit_tell, &gave[i]));
    for (int i = 0; i < TIMES; i++)
        FINE(kit_answer(&gave[i]));
    assert_int_equal(dibs_lock_state(l, owner), DIBS_NOT_HELD);
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

/* Tries too: two at once are two holds. */
static void test_async_same_owner_tries(void **state)
{
    static struct told got[2], gave[2];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    const dibs_lock_opts *opts = DIBS_LOCK_OPTS(.owner = owner);

    (void)state;
    for (int i = 0; i < 2; i++)
        FINE(dibs_lock_try_async(l, opts, kit_tell, &got[i]));
    for (int i = 0; i < 2; i++)
        FINE(kit_answer(&got[i]));
    assert_int_equal(dibs_lock_holds(l, owner), 2);
    assert_int_equal(kit_count(l, "l", owner), 2);
    for (int i = 0; i < 2; i++) {
        FINE(dibs_lock_release_async(l, opts, kit_tell, &gave[i]));
        FINE(kit_answer(&gave[i]));
        assert_int_equal(ts_exists(srv, "l"), i == 0);
    }
    dibs_lock_free(l);
    kit_close(c);
}

/* The handle goes while they are under way. */
static void test_async_handle_freed(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_owner owner = dibs_owner_new(c);

    (void)state;
    for (int i = 0; i < 50; i++) {
        dibs_lock *l = kit_lock(c, "l");
        struct told got = {0}, gave = {0};
        struct looked info = {0};

        FINE(dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = owner),
                                     kit_tell, &got));
        FINE(dibs_lock_info_get_async(l, informed, &info));
        dibs_lock_free(l);
        FINE(kit_answer(&got));
        FINE(kit_answer(&info.told));
        l = kit_lock(c, "l");
        FINE(dibs_lock_release_async(l, DIBS_LOCK_OPTS(.owner = owner),
                                     kit_tell, &gave));
        dibs_lock_free(l);
        FINE(kit_answer(&gave));
    }
    kit_close(c);
}

/* ---- inside a callback ------------------------------------------------- */

struct inside {
    struct told told;
    dibs_client *c;
    dibs_lock *busy, *free;
    dibs_owner owner;
    dibs_err waits, tries, goes, gives, informs, closes;
    struct told next;
    dibs_err chain;
};

static void try_everything(dibs_err err, void *arg)
{
    struct inside *in = arg;
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    in->waits = dibs_lock_acquire(in->busy, NULL);
    in->tries = dibs_lock_try(in->busy, NULL);
    in->goes = dibs_lock_acquire(in->free, NULL);
    in->gives = dibs_lock_release(in->free, NULL);
    in->informs = dibs_lock_info_get(in->busy, &info);
    in->closes = dibs_client_close(in->c, 0);
    in->chain = dibs_lock_acquire_async(
        in->free, DIBS_LOCK_OPTS(.owner = in->owner), kit_tell, &in->next);
    kit_tell(err, &in->told);
}

static void inside_checks(struct inside *in)
{
    WANT(in->waits, DIBS_ERR_DEADLOCK);
    WANT(in->tries, DIBS_ERR_BUSY);
    FINE(in->goes);
    FINE(in->gives);
    FINE(in->informs);
    WANT(in->closes, DIBS_ERR_DEADLOCK);
    FINE(in->chain);
}

static void test_async_inside(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct inside in = {.c = c,
                        .busy = kit_lock(c, "busy"),
                        .free = kit_lock(c, "free"),
                        .owner = dibs_owner_new(c)};

    (void)state;
    FINE(dibs_lock_acquire_async(in.busy, NULL, try_everything, &in));
    FINE(kit_answer(&in.told));
    inside_checks(&in);
    FINE(kit_answer(&in.next));
    FINE(dibs_lock_release(in.free, DIBS_LOCK_OPTS(.owner = in.owner)));
    FINE(dibs_lock_release(in.busy, NULL));
    dibs_lock_free(in.busy);
    dibs_lock_free(in.free);
    kit_close(c);
}

/* Another client's locks are no business of this one's callbacks. */
static void wait_for_other(dibs_err err, void *arg)
{
    struct inside *in = arg;

    in->waits = dibs_lock_acquire(in->busy, DIBS_LOCK_OPTS(.wait_ms = 50));
    kit_tell(err, &in->told);
}

static void test_async_inside_another_client(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct inside in = {.c = d, .busy = kit_lock(d, "busy")};

    (void)state;
    FINE(dibs_lock_acquire(in.busy, NULL));
    FINE(dibs_lock_try_async(l, NULL, wait_for_other, &in));
    FINE(kit_answer(&in.told));
    WANT(in.waits, DIBS_ERR_TIMEOUT);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    dibs_lock_free(in.busy);
    kit_close(c);
    kit_close(d);
}

/* A callback that takes its time delays no renewal. */
static atomic_bool go_on;

static void linger(dibs_err err, void *arg)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (!atomic_load(&go_on) && ts_wait_step(&w))
        continue;
    kit_tell(err, arg);
}

static void test_async_slow_callback(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "l");
    struct told t = {0};

    (void)state;
    atomic_store(&go_on, false);
    FINE(dibs_lock_acquire_async(l, NULL, linger, &t));
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_HELD);
    long long before = ts_command_calls(srv, "pexpire");
    TS_WAIT(ts_command_calls(srv, "pexpire") >= before + 4);
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_HELD);
    assert_int_equal(atomic_load(&t.times), 0);
    atomic_store(&go_on, true);
    FINE(kit_answer(&t));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- the program's own loop -------------------------------------------- */

static const dibs_client_opts *dispatched =
    DIBS_CLIENT_OPTS(.callbacks = DIBS_CALLBACKS_DISPATCH);

static bool readable(dibs_client *c, int64_t ms)
{
    struct pollfd p = {.fd = dibs_client_fd(c), .events = POLLIN};

    return poll(&p, 1, (int)ms) == 1 && (p.revents & POLLIN);
}

static void test_async_dispatch(void **state)
{
    size_t threads = ts_threads();
    dibs_client *c = kit_open(dispatched);
    dibs_lock *l = kit_lock(c, "l");
    struct told got = {0}, gave = {0};
    struct inside in = {.c = c, .busy = l, .free = kit_lock(c, "free")};

    (void)state;
    assert_true(dibs_client_fd(c) >= 0);
    assert_false(readable(c, 0));
    assert_int_equal(dibs_client_dispatch(c), 0);
    FINE(dibs_lock_acquire_async(l, NULL, kit_tell, &got));
    assert_true(readable(c, TS_SOON));
    assert_int_equal(atomic_load(&got.times), 0); /* not before we say so */
    assert_int_equal(dibs_client_dispatch(c), 1);
    FINE(kit_answer(&got));
    assert_true(pthread_equal(got.thread, pthread_self()));
    assert_false(readable(c, 0));
    assert_int_equal(dibs_client_dispatch(c), 0);
    assert_true(ts_threads() <= threads + 1); /* dibs-io, no dibs-cb */

    in.owner = dibs_owner_new(c);
    FINE(dibs_lock_try_async(l, DIBS_LOCK_OPTS(.owner = in.owner),
                             try_everything, &in));
    assert_true(readable(c, TS_SOON));
    assert_true(dibs_client_dispatch(c) >= 1);
    WANT(kit_answer(&in.told), DIBS_ERR_BUSY);
    WANT(in.closes, DIBS_ERR_DEADLOCK);
    WANT(in.tries, DIBS_OK); /* the callback's thread is ours: a re-entry */
    FINE(in.chain);
    while (atomic_load(&in.next.times) == 0 && readable(c, TS_SOON))
        dibs_client_dispatch(c);
    FINE(kit_answer(&in.next));
    FINE(dibs_lock_release_async(l, NULL, kit_tell, &gave));
    assert_true(readable(c, TS_SOON));
    dibs_client_dispatch(c);
    FINE(kit_answer(&gave));
    dibs_lock_free(in.free);
    dibs_lock_free(l);
    kit_close(c);
}

/* Losses and events come the same way. */
static atomic_int events;

static void count_event(const dibs_event *ev, void *arg)
{
    if (ev->size == sizeof *ev && ev->text && arg == &events)
        atomic_fetch_add(&events, 1);
}

static void test_async_dispatch_all_kinds(void **state)
{
    dibs_client *c = kit_open(
        DIBS_CLIENT_OPTS(.callbacks = DIBS_CALLBACKS_DISPATCH,
                         .on_event = count_event, .event_arg = &events));
    dibs_lock *l = kit_lock(c, "l");
    struct lost lost = {0};

    (void)state;
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.lease_ms = kit_short(),
                                          .on_lost = kit_lose, .arg = &lost)));
    while (atomic_load(&lost.times) == 0 && readable(c, TS_SOON))
        dibs_client_dispatch(c);
    assert_int_equal(atomic_load(&lost.times), 1);
    TS_WAIT((dibs_client_dispatch(c), atomic_load(&events) >= 2));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    assert_true(ts_wait_exists(srv, "l", false));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_async_no_descriptor(void **state)
{
    dibs_client *c = kit_open(NULL);

    (void)state;
    assert_int_equal(dibs_client_fd(c), -1);
    assert_int_equal(dibs_client_dispatch(c), 0);
    kit_close(c);
}

/* ---- a thousand -------------------------------------------------------- */

struct waiter {
    dibs_lock *l;
    dibs_owner owner;
    struct told got, gave;
};

static struct waiter *crowd;

static void crowd_granted(dibs_err err, void *arg)
{
    struct waiter *w = arg;

    if (err == DIBS_OK)
        err = dibs_lock_release_async(w->l, DIBS_LOCK_OPTS(.owner = w->owner),
                                      kit_tell, &w->gave);
    kit_tell(err, &w->got);
}

static void crowd_comes(dibs_client *c, dibs_lock *l)
{
    free(crowd);
    crowd = ts_alloc(MANY * sizeof *crowd);
    for (int i = 0; i < MANY; i++) {
        crowd[i].l = l;
        crowd[i].owner = dibs_owner_new(c);
        FINE(dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = crowd[i].owner),
                                     crowd_granted, &crowd[i]));
    }
}

static void test_async_thousand_served(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    crowd_comes(c, l);
    FINE(dibs_lock_release(l, NULL));
    for (int i = 0; i < MANY; i++) {
        FINE(kit_answer(&crowd[i].got));
        FINE(kit_answer(&crowd[i].gave));
    }
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_async_thousand_canceled(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    crowd_comes(c, l);
    for (int i = MANY - 1; i >= 0; i -= 2)
        FINE(dibs_lock_cancel(l, crowd[i].owner));
    for (int i = MANY - 2; i >= 0; i -= 2)
        FINE(dibs_lock_cancel(l, crowd[i].owner));
    for (int i = 0; i < MANY; i++)
        WANT(kit_answer(&crowd[i].got), DIBS_ERR_CANCELED);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(atomic_load(&crowd[i].got.times), 1);
}

/* The client goes while they wait: CLOSED, each exactly once. */
static void test_async_thousand_closed(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    ts_ok(srv, "HSET l %s 1", STRANGER);
    crowd_comes(c, l);
    kit_close(c);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(atomic_load(&crowd[i].got.times), 1);
        WANT(atomic_load(&crowd[i].got.err), DIBS_ERR_CLOSED);
    }
    dibs_lock_free(l);
    ts_ok(srv, "DEL l");
}

/* In the program's own loop they are told at the next dispatch. */
static void test_async_closed_then_dispatched(void **state)
{
    dibs_client *c = kit_open(dispatched);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    crowd_comes(c, l);
    FINE(dibs_client_close(c, TS_SOON));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(atomic_load(&crowd[i].got.times), 0);
    assert_int_equal(dibs_client_dispatch(c), MANY);
    for (int i = 0; i < MANY; i++)
        WANT(kit_answer(&crowd[i].got), DIBS_ERR_CLOSED);
    dibs_lock_free(l);
    kit_close(c);
    free(crowd);
    crowd = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_async_twins),
        KIT_TEST(test_async_owner),
        KIT_TEST(test_async_same_owner),
        KIT_TEST(test_async_same_owner_tries),
        KIT_TEST(test_async_handle_freed),
        KIT_TEST(test_async_inside),
        KIT_TEST(test_async_inside_another_client),
        KIT_TEST(test_async_slow_callback),
        KIT_TEST(test_async_dispatch),
        KIT_TEST(test_async_dispatch_all_kinds),
        KIT_TEST(test_async_no_descriptor),
        KIT_TEST(test_async_thousand_served),
        KIT_TEST(test_async_thousand_canceled),
        KIT_TEST(test_async_thousand_closed),
        KIT_TEST(test_async_closed_then_dispatched),
    };
    return KIT_RUN("server.async", tests);
}
