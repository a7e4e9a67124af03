/* SPDX-License-Identifier: MIT
 *
 * lost_kit.h - what the tests of on_lost share: an argument that knows when it
 * is gone, and callbacks that others wait behind.
 *
 * The argument is on the stack of the caller of the release, and is wiped when
 * the release has returned. So the sanitizers see what comes too late, and so
 * does the mark at its head.
 */
#ifndef DIBS_TESTS_LOST_KIT_H
#define DIBS_TESTS_LOST_KIT_H

#include "server/multi_kit.h"

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

static inline void on_lost(const char *name, dibs_owner owner, void *arg)
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
        struct ts_wait w = ts_wait_begin(kit_chance());
        while (!atomic_load(g->watch) && ts_wait_step(&w))
            ;
        g->saw = atomic_load(g->watch);
    }
    atomic_fetch_add(&g->ended, 1);
}

static inline void guard_set(struct guard *g)
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

static inline void block_here(dibs_err err, void *arg)
{
    struct block *b = arg;

    (void)err;
    sem_post(&b->begun);
    while (sem_wait(&b->gate) != 0)
        ;
}

static inline void await(sem_t *s)
{
    while (sem_wait(s) != 0)
        ;
}

/* The client's callback thread is busy until block_end. */
static inline void block_start(struct block *b, dibs_client *c)
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
static inline void block_end(struct block *b, dibs_client *c)
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

/* Takes it, loses it, gives it back; the argument goes with the function. */
static inline dibs_err use_on_stack(dibs_lock *l, dibs_owner owner)
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

struct releaser {
    dibs_lock *l;
    dibs_owner owner;
    dibs_err err;
    atomic_bool calls, back;
    pthread_t thread;
};

static inline void *release_main(void *arg)
{
    struct releaser *r = arg;

    atomic_store(&r->calls, true);
    r->err = dibs_lock_release(r->l, OWNED(r->owner));
    atomic_store(&r->back, true);
    return NULL;
}

/* A lease is over here a moment before it is over on the server. */
static inline int lost_after(void **state)
{
    if (kit_clients == 0)
        TS_WAIT(ts_nkeys(srv) == 0 && ts_nkeys(srv2) == 0);
    return multi_after(state);
}

#define LOST_TEST(f)                                                           \
    cmocka_unit_test_setup_teardown(f, multi_before, lost_after)

#endif
