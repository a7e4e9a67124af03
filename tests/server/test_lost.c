/* SPDX-License-Identifier: MIT
 *
 * test_lost.c - on_lost, exactly: a loss is told once for each acquire that
 * asked for it, by on_lost or by the release that finds out; and when the
 * release has returned, on_lost does not run and does not come.
 *
 * What on_lost gets here is on the stack of whoever releases, and is wiped
 * when the release has returned. So the sanitizers see what comes too late, and
 * so does the mark at its head.
 */
#include "server/multi_kit.h"

#include "support/proxy.h"

#include <semaphore.h>

/* ---- what on_lost gets ------------------------------------------------- */

#define ALIVE 0x11fe

static atomic_int stray; /* calls with an argument that is gone */

struct guard {
    atomic_int mark;
    atomic_int begun, ended;
    sem_t *gate;      /* it waits for that */
    dibs_lock *gives; /* it releases that */
    dibs_owner owner;
    dibs_err gave;
    atomic_bool *watch; /* was this still false at its end? */
    bool saw;
};

static void on_lost(const char *name, dibs_owner owner, void *arg)
{
    struct guard *g = arg;

    (void)name;
    (void)owner;
    if (atomic_load(&g->mark) != ALIVE) {
        atomic_fetch_add(&stray, 1);
        return;
    }
    atomic_fetch_add(&g->begun, 1);
    if (g->gate)
        while (sem_wait(g->gate) != 0)
            ;
    if (g->gives)
        g->gave = dibs_lock_release(g->gives, OWNED(g->owner));
    if (g->watch) { /* what must not happen has its chance */
        struct ts_wait w = ts_wait_begin(kit_short());
        while (!atomic_load(g->watch) && ts_wait_step(&w))
            ;
        g->saw = atomic_load(g->watch);
    }
    atomic_fetch_add(&g->ended, 1);
}

static void guard_set(struct guard *g)
{
    memset(g, 0, sizeof *g);
    atomic_store(&g->mark, ALIVE);
}

#define GUARDED(o, g)                                                          \
    DIBS_LOCK_OPTS(.owner = (o), .lease_ms = kit_short(), .on_lost = on_lost,  \
                   .arg = (g))

/* Callbacks wait behind this one. */
struct block {
    sem_t begun, gate;
};

static void block_here(dibs_err err, void *arg)
{
    struct block *b = arg;

    (void)err;
    sem_post(&b->begun);
    while (sem_wait(&b->gate) != 0)
        ;
}

static void await(sem_t *s)
{
    while (sem_wait(s) != 0)
        ;
}

/* The client's callback thread is busy until block_end. */
static void block_start(struct block *b, dibs_client *c)
{
    dibs_lock *l = kit_lock(c, "block");
    dibs_owner owner = dibs_owner_new(c);

    sem_init(&b->begun, 0, 0);
    sem_init(&b->gate, 0, 0);
    FINE(dibs_lock_acquire_async(l, OWNED(owner), block_here, b));
    await(&b->begun);
    FINE(dibs_lock_release(l, OWNED(owner)));
    dibs_lock_free(l);
}

/* And all that is queued has run. */
static void block_end(struct block *b, dibs_client *c)
{
    struct told last = {0};
    dibs_lock *l = kit_lock(c, "block");
    dibs_owner owner = dibs_owner_new(c);

    sem_post(&b->gate);
    FINE(dibs_lock_acquire_async(l, OWNED(owner), kit_tell, &last));
    FINE(kit_answer(&last));
    FINE(dibs_lock_release(l, OWNED(owner)));
    dibs_lock_free(l);
    sem_destroy(&b->begun);
    sem_destroy(&b->gate);
}

/* ---- queued, and not begun --------------------------------------------- */

/* Takes it, loses it, gives it back; the argument goes with the function. */
static dibs_err use_on_stack(dibs_lock *l, dibs_owner owner)
{
    struct guard g;

    guard_set(&g);
    FINE(dibs_lock_acquire(l, GUARDED(owner, &g)));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    dibs_err err = dibs_lock_release(l, OWNED(owner));
    assert_int_equal(atomic_load(&g.begun), 0);
    memset(&g, 0, sizeof g);
    return err;
}

static void test_lost_behind_slow_callback(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct block b;

    (void)state;
    atomic_store(&stray, 0);
    block_start(&b, c);
    WANT(use_on_stack(l, dibs_owner_new(c)), DIBS_ERR_LOST);
    block_end(&b, c);
    assert_int_equal(atomic_load(&stray), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* The same for several at once. */
static void test_lost_group_behind_slow_callback(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb@1 pc@2");
    struct block b[CLIENTS];

    (void)state;
    atomic_store(&stray, 0);
    for (int i = 0; i < CLIENTS; i++)
        block_start(&b[i], w.c[i]);
    WANT(use_on_stack(g, dibs_owner_new(w.c[0])), DIBS_ERR_LOST);
    for (int i = 0; i < CLIENTS; i++)
        block_end(&b[i], w.c[i]);
    assert_int_equal(atomic_load(&stray), 0);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* Each level has its own: the one that is released hears no more, the other
 * does. */
static void test_lost_levels(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard outer, inner;
    struct block b;

    (void)state;
    atomic_store(&stray, 0);
    guard_set(&outer);
    guard_set(&inner);
    FINE(dibs_lock_acquire(l, GUARDED(owner, &outer)));
    FINE(dibs_lock_acquire(l, GUARDED(owner, &inner)));
    block_start(&b, c);
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);
    memset(&inner, 0, sizeof inner);
    block_end(&b, c);
    TS_WAIT(atomic_load(&outer.ended) == 1);
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);
    assert_int_equal(atomic_load(&outer.begun), 1);
    assert_int_equal(atomic_load(&stray), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* The release finds out: of one level of two, and the other is told; of the
 * last, and nobody is. */
static void test_lost_found_by_release(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard outer, inner;

    (void)state;
    guard_set(&outer);
    guard_set(&inner);
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.owner = owner, .lease_ms = LONG_MS, .on_lost = on_lost,
                       .arg = &outer);
    FINE(dibs_lock_acquire(l, o));
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.owner = owner, .lease_ms = LONG_MS,
                                          .on_lost = on_lost, .arg = &inner)));
    ts_ok(srv, "DEL l");
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);
    TS_WAIT(atomic_load(&outer.ended) == 1);
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);

    FINE(dibs_lock_acquire(l, o));
    ts_ok(srv, "DEL l");
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c); /* which runs all callbacks there are */
    assert_int_equal(atomic_load(&outer.begun), 1);
    assert_int_equal(atomic_load(&inner.begun), 0);
}

struct in_callback {
    dibs_lock *l;
    dibs_owner owner;
    struct told told;
    sem_t gate;
};

static void release_here(dibs_err err, void *arg)
{
    struct in_callback *in = arg;

    (void)err;
    await(&in->gate);
    kit_tell(dibs_lock_release(in->l, OWNED(in->owner)), &in->told);
}

/* Another callback, on the thread on which on_lost would run next, releases. */
static void test_lost_release_in_other_callback(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *other = kit_lock(c, "other");
    struct in_callback in = {.l = l, .owner = dibs_owner_new(c)};
    struct guard g;

    (void)state;
    guard_set(&g);
    sem_init(&in.gate, 0, 0);
    FINE(dibs_lock_acquire(l, GUARDED(in.owner, &g)));
    FINE(dibs_lock_acquire_async(other, OWNED(in.owner), release_here, &in));
    TS_WAIT(dibs_lock_state(l, in.owner) == DIBS_LOST);
    sem_post(&in.gate);
    WANT(kit_answer(&in.told), DIBS_ERR_LOST);
    FINE(dibs_lock_release(other, OWNED(in.owner)));
    dibs_lock_free(l);
    dibs_lock_free(other);
    kit_close(c);
    assert_int_equal(atomic_load(&g.begun), 0);
    sem_destroy(&in.gate);
}

/* ---- while it runs ----------------------------------------------------- */

struct releaser {
    dibs_lock *l;
    dibs_owner owner;
    dibs_err err;
    atomic_bool calls, back;
    pthread_t thread;
};

static void *release_main(void *arg)
{
    struct releaser *r = arg;

    atomic_store(&r->calls, true);
    r->err = dibs_lock_release(r->l, OWNED(r->owner));
    atomic_store(&r->back, true);
    return NULL;
}

/* Another thread's release comes back when on_lost has. */
static void release_waits(dibs_lock *l, dibs_client *c)
{
    struct releaser r = {.l = l, .owner = dibs_owner_new(c)};
    struct guard g;
    sem_t gate;

    sem_init(&gate, 0, 0);
    guard_set(&g);
    g.gate = &gate;
    g.watch = &r.back;
    FINE(dibs_lock_acquire(l, GUARDED(r.owner, &g)));
    TS_WAIT(atomic_load(&g.begun) == 1);
    assert_int_equal(pthread_create(&r.thread, NULL, release_main, &r), 0);
    TS_WAIT(atomic_load(&r.calls));
    sem_post(&gate);
    pthread_join(r.thread, NULL);
    WANT(r.err, DIBS_ERR_LOST);
    assert_int_equal(atomic_load(&g.ended), 1);
    assert_false(g.saw);
    sem_destroy(&gate);
}

static void test_lost_release_waits(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    release_waits(l, c);
    dibs_lock_free(l);
    kit_close(c);
}

static void test_lost_group_release_waits(void **state)
{
    struct world w = kit_world(NULL);
    dibs_lock *g = kit_group(&w, "pa pb@1 pc@2");

    (void)state;
    release_waits(g, w.c[0]);
    dibs_lock_free(g);
    kit_world_end(&w);
}

/* Inside on_lost itself there is nothing to wait for. */
static void test_lost_release_inside(void **state)
{
    struct world w = kit_world(NULL);

    (void)state;
    for (int i = 0; i < 2; i++) {
        dibs_lock *l = kit_group(&w, i ? "pa pb@1" : "pa");
        struct guard g;

        guard_set(&g);
        g.gives = l;
        g.owner = dibs_owner_new(w.c[0]);
        FINE(dibs_lock_acquire(l, GUARDED(g.owner, &g)));
        TS_WAIT(atomic_load(&g.ended) == 1);
        WANT(g.gave, DIBS_ERR_LOST);
        WANT(dibs_lock_release(l, OWNED(g.owner)), DIBS_ERR_NOT_OWNER);
        dibs_lock_free(l);
    }
    kit_world_end(&w);
}

/* Two callbacks, on two threads, each of which releases the other's lock. */
static void test_lost_release_crosswise(void **state)
{
    struct world w = kit_world(NULL);
    struct guard g[2];
    dibs_lock *l[2];
    sem_t gate[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        guard_set(&g[i]);
        sem_init(&gate[i], 0, 0);
        l[i] = kit_lock(w.c[i], i ? "b" : "a");
        g[i].gate = &gate[i];
        g[i].owner = dibs_owner_new(w.c[0]);
    }
    for (int i = 0; i < 2; i++) {
        g[i].gives = l[1 - i];
        FINE(dibs_lock_acquire(l[i], GUARDED(g[i].owner, &g[i])));
    }
    dibs_owner swap = g[0].owner;
    g[0].owner = g[1].owner;
    g[1].owner = swap;
    TS_WAIT(atomic_load(&g[0].begun) == 1 && atomic_load(&g[1].begun) == 1);
    for (int i = 0; i < 2; i++)
        sem_post(&gate[i]);
    for (int i = 0; i < 2; i++) {
        TS_WAIT(atomic_load(&g[i].ended) == 1);
        WANT(g[i].gave, DIBS_ERR_LOST);
    }
    for (int i = 0; i < 2; i++) {
        sem_destroy(&gate[i]);
        dibs_lock_free(l[i]);
    }
    kit_world_end(&w);
}

/* ---- async ------------------------------------------------------------- */

static dibs_client *open_dispatch(void)
{
    return kit_open(DIBS_CLIENT_OPTS(.callbacks = DIBS_CALLBACKS_DISPATCH));
}

/* Not dispatched yet when the release is through: it does not come. */
static void test_lost_dispatch_queued(void **state)
{
    dibs_client *c = open_dispatch();
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    atomic_store(&stray, 0);
    WANT(use_on_stack(l, dibs_owner_new(c)), DIBS_ERR_LOST);
    (void)dibs_client_dispatch(c);
    assert_int_equal(atomic_load(&stray), 0);
    dibs_lock_free(l);
    kit_close(c);
}

static void *dispatch_main(void *arg)
{
    return (void *)(intptr_t)dibs_client_dispatch(arg);
}

/* on_lost runs in one thread's dispatch: the callback of the release does not
 * run in another's. */
static void dispatch_by_two(dibs_client *c, dibs_lock *l)
{
    dibs_owner owner = dibs_owner_new(c);
    struct told gave = {0};
    struct guard g;
    pthread_t first;
    sem_t gate;

    sem_init(&gate, 0, 0);
    guard_set(&g);
    g.gate = &gate;
    FINE(dibs_lock_acquire(l, GUARDED(owner, &g)));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    struct ts_wait w = ts_wait_begin(TS_SOON);
    do {
        assert_int_equal(pthread_create(&first, NULL, dispatch_main, c), 0);
        struct ts_wait b = ts_wait_begin(kit_short());
        while (!atomic_load(&g.begun) && ts_wait_step(&b))
            ;
        if (!atomic_load(&g.begun))
            pthread_join(first, NULL);
    } while (!atomic_load(&g.begun) && ts_wait_step(&w));
    FINE(dibs_lock_release_async(l, OWNED(owner), kit_tell, &gave));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_NOT_HELD);
    for (int i = 0; i < 20; i++)
        (void)dibs_client_dispatch(c);
    assert_int_equal(atomic_load(&gave.times), 0);
    sem_post(&gate);
    pthread_join(first, NULL);
    assert_int_equal(atomic_load(&g.ended), 1);
    TS_WAIT((dibs_client_dispatch(c), atomic_load(&gave.times) == 1));
    WANT(kit_answer(&gave), DIBS_ERR_LOST);
    sem_destroy(&gate);
}

static void test_lost_dispatch_by_two(void **state)
{
    dibs_client *c = open_dispatch();
    dibs_lock *l = kit_lock(c, "l"), *g = NULL;
    dibs_lock *m[2] = {kit_lock(c, "a"), kit_lock(c, "b")};

    (void)state;
    FINE(dibs_multi_lock_new(m, 2, &g));
    dispatch_by_two(c, l);
    dispatch_by_two(c, g);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    dibs_lock_free(g);
    dibs_lock_free(l);
    kit_close(c);
}

struct order {
    struct guard *g;
    struct told told;
    int begun, ended; /* of on_lost, as the release's callback saw them */
};

static void note_order(dibs_err err, void *arg)
{
    struct order *o = arg;

    o->begun = atomic_load(&o->g->begun);
    o->ended = atomic_load(&o->g->ended);
    kit_tell(err, &o->told);
}

/* With a thread of the library's own: queued behind a slow one, the release's
 * callback comes and on_lost does not. */
static void test_lost_async_release(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard g;
    struct order o = {.g = &g};
    struct block b;

    (void)state;
    guard_set(&g);
    block_start(&b, c);
    FINE(dibs_lock_acquire(l, GUARDED(owner, &g)));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    FINE(dibs_lock_release_async(l, OWNED(owner), note_order, &o));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_NOT_HELD);
    block_end(&b, c);
    WANT(kit_answer(&o.told), DIBS_ERR_LOST);
    assert_int_equal(o.begun, 0);
    assert_int_equal(atomic_load(&g.begun), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- unknown outcome, and the end of the client ------------------------ */

/* Nobody answers the release: it counts as given back, and nothing comes when
 * the time of the lease is over. */
static void test_lost_after_unknown(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard g;

    (void)state;
    atomic_store(&stray, 0);
    guard_set(&g);
    FINE(dibs_lock_acquire(
        l, DIBS_LOCK_OPTS(.owner = owner, .on_lost = on_lost, .arg = &g)));
    ts_server_pause(srv);
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = owner, .wait_ms = 10)),
         DIBS_ERR_UNKNOWN);
    memset(&g, 0, sizeof g);
    int64_t over = ts_now_ms() + kit_lease();
    TS_WAIT(ts_now_ms() > over);
    ts_server_resume(srv);
    assert_true(ts_wait_exists(srv, "l", false));
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(atomic_load(&stray), 0);
}

static void *close_main(void *arg)
{
    return (void *)(intptr_t)dibs_client_close(arg, TS_SOON);
}

/* The client closes while on_lost runs: a release has no client any more to
 * ask, but it comes back when on_lost has. */
static void test_lost_release_while_closing(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    struct releaser r = {.l = l, .owner = dibs_owner_new(c)};
    struct guard g;
    pthread_t closer;
    void *closed;
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    guard_set(&g);
    g.gate = &gate;
    g.watch = &r.back;
    FINE(dibs_lock_acquire(l, GUARDED(r.owner, &g)));
    TS_WAIT(atomic_load(&g.begun) == 1);
    assert_int_equal(pthread_create(&closer, NULL, close_main, c), 0);
    TS_WAIT(dibs_lock_cancel(l, r.owner) == DIBS_ERR_CLOSED);
    TS_WAIT(dibs_lock_state(l, r.owner) == DIBS_NOT_HELD);
    assert_int_equal(pthread_create(&r.thread, NULL, release_main, &r), 0);
    TS_WAIT(atomic_load(&r.calls));
    sem_post(&gate);
    pthread_join(r.thread, NULL);
    WANT(r.err, DIBS_ERR_CLOSED);
    assert_int_equal(atomic_load(&g.ended), 1);
    assert_false(g.saw);
    pthread_join(closer, &closed);
    FINE((dibs_err)(intptr_t)closed);
    sem_destroy(&gate);
    dibs_lock_free(l);
    kit_close(c);
}

/* The same with on_lost still in the queue: it does not come any more. */
static void test_lost_queued_while_closing(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct block b;
    struct guard g;
    pthread_t closer;
    void *closed;

    (void)state;
    guard_set(&g);
    block_start(&b, c);
    FINE(dibs_lock_acquire(l, GUARDED(owner, &g)));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    assert_int_equal(pthread_create(&closer, NULL, close_main, c), 0);
    TS_WAIT(dibs_lock_cancel(l, owner) == DIBS_ERR_CLOSED);
    WANT(dibs_lock_release(l, OWNED(owner)), DIBS_ERR_CLOSED);
    sem_post(&b.gate);
    pthread_join(closer, &closed);
    FINE((dibs_err)(intptr_t)closed);
    assert_int_equal(atomic_load(&g.begun), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* Closed before anybody dispatched: there is nothing left to lose. */
static void test_lost_dispatch_after_close(void **state)
{
    dibs_client *c = open_dispatch();
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct guard g;

    (void)state;
    guard_set(&g);
    FINE(dibs_lock_acquire(l, GUARDED(owner, &g)));
    TS_WAIT(dibs_lock_state(l, owner) == DIBS_LOST);
    FINE(dibs_client_close(c, TS_SOON));
    (void)dibs_client_dispatch(c);
    assert_int_equal(atomic_load(&g.begun), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* A group whose acquire a closing client ended: it was never held, so it cannot
 * be lost, whatever becomes of the members it had by then. */
static void test_lost_group_closed(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv2);
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open_at(ts_proxy_url(px), NULL);
    dibs_lock *m[2] = {kit_lock(c, "a"), kit_lock(d, "b")}, *g = NULL;
    struct told t = {0};
    struct guard lost;

    (void)state;
    guard_set(&lost);
    FINE(dibs_multi_lock_new(m, 2, &g));
    FINE(dibs_lock_try(m[1], NULL)); /* so that the script is known */
    FINE(dibs_lock_release(m[1], NULL));
    int rule = ts_proxy_rule(
        px, &(struct ts_rule){.action = TS_HOLD_REPLY, .match = "EVAL*"});
    FINE(dibs_lock_acquire_async(g,
                                 DIBS_LOCK_OPTS(.owner = dibs_owner_new(c),
                                                .on_lost = on_lost,
                                                .arg = &lost),
                                 kit_tell, &t));
    assert_true(ts_rule_wait(px, rule, 1, TS_SOON));
    assert_true(ts_wait_exists(srv, "a", true));
    (void)dibs_client_close(c, 100);
    (void)dibs_client_close(d, 100);
    WANT(kit_answer(&t), DIBS_ERR_CLOSED);
    ts_proxy_unrule(px, 0);
    ts_proxy_release(px);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    dibs_lock_free(g);
    dibs_client_free(c);
    dibs_client_free(d);
    kit_clients -= 2;
    assert_int_equal(atomic_load(&lost.begun), 0);
    ts_proxy_stop(px);
    ts_ok(srv, "FLUSHALL");
    ts_ok(srv2, "FLUSHALL");
}

/* A lease is over here a moment before it is over on the server. */
static int lost_after(void **state)
{
    if (kit_clients == 0)
        TS_WAIT(ts_nkeys(srv) == 0 && ts_nkeys(srv2) == 0);
    return multi_after(state);
}

#define LOST_TEST(f)                                                           \
    cmocka_unit_test_setup_teardown(f, multi_before, lost_after)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOST_TEST(test_lost_behind_slow_callback),
        LOST_TEST(test_lost_group_behind_slow_callback),
        LOST_TEST(test_lost_levels),
        LOST_TEST(test_lost_found_by_release),
        LOST_TEST(test_lost_release_in_other_callback),
        LOST_TEST(test_lost_release_waits),
        LOST_TEST(test_lost_group_release_waits),
        LOST_TEST(test_lost_release_inside),
        LOST_TEST(test_lost_release_crosswise),
        LOST_TEST(test_lost_dispatch_queued),
        LOST_TEST(test_lost_dispatch_by_two),
        LOST_TEST(test_lost_async_release),
        LOST_TEST(test_lost_after_unknown),
        LOST_TEST(test_lost_release_while_closing),
        LOST_TEST(test_lost_queued_while_closing),
        LOST_TEST(test_lost_dispatch_after_close),
        LOST_TEST(test_lost_group_closed),
    };
    return MULTI_RUN("server.lost", tests);
}
