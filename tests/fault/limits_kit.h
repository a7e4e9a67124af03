/* SPDX-License-Identifier: MIT
 *
 * limits_kit.h - calls that wait for another call, which is held at the proxy.
 *
 * What ends before the proxy lets go has not waited for the other call; no
 * clock is needed to tell.
 */
#ifndef DIBS_TESTS_LIMITS_KIT_H
#define DIBS_TESTS_LIMITS_KIT_H

#include "fault/kit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define BRIEF_MS kit_ms(60)  /* a limit that is to pass */
#define HASTY_MS kit_ms(150) /* a command timeout that is to pass */

/* ---- a call on a thread of its own, or an async one -------------------- */

struct act {
    dibs_lock *l;
    dibs_lock_opts o;
    kit_sync_fn *sync;
    struct kit_end end;
    pthread_t thread;
    bool threaded;
};

static inline void *act_main(void *arg)
{
    struct act *a = arg;

    kit_ended(a->sync(a->l, &a->o), &a->end);
    return NULL;
}

static inline void act_on_thread(struct act *a, dibs_lock *l, kit_sync_fn *fn,
                                 const dibs_lock_opts *o)
{
    memset(a, 0, sizeof *a);
    a->l = l;
    a->o = *o;
    a->sync = fn;
    a->threaded = true;
    if (pthread_create(&a->thread, NULL, act_main, a) != 0)
        ts_fatal("no thread");
}

static inline void act_async(struct act *a, dibs_lock *l, kit_async_fn *fn,
                             const dibs_lock_opts *o)
{
    memset(a, 0, sizeof *a);
    kit_want("starting", fn(l, o, kit_ended, &a->end), DIBS_OK);
}

static inline void act_acquire(struct act *a, bool async, dibs_lock *l,
                               const dibs_lock_opts *o)
{
    if (async)
        act_async(a, l, dibs_lock_acquire_async, o);
    else
        act_on_thread(a, l, dibs_lock_acquire, o);
}

static inline dibs_err act_end(struct act *a)
{
    dibs_err err = kit_wait(&a->end);

    if (a->threaded)
        pthread_join(a->thread, NULL);
    return err;
}

/* ---- a scene ----------------------------------------------------------- */

struct scene {
    char *name;
    struct kit_client *k;
    dibs_lock *l;
    dibs_owner a, b, c;
    int rule;
};

static inline struct scene begin(const struct kit_opts *o)
{
    struct scene sc = {.name = kit_name("limits")};

    ts_proxy_reset(kit_px);
    sc.k = kit_open(o);
    sc.l = kit_lock(sc.k, sc.name);
    sc.a = dibs_owner_new(sc.k->c);
    sc.b = dibs_owner_new(sc.k->c);
    sc.c = dibs_owner_new(sc.k->c);
    return sc;
}

static inline void finish(struct scene *sc)
{
    kit_free_for_all(sc->name, sc->name);
    dibs_lock_free(sc->l);
    kit_close(sc->k);
    free(sc->name);
}

/* The next such command, or its reply, stays at the proxy. */
static inline void hold_next(struct scene *sc,
                             const struct dibs__script *script,
                             enum ts_action action)
{
    sc->rule = kit_rule(script, sc->name, &(struct ts_rule){.action = action});
}

static inline void is_held(struct scene *sc)
{
    if (!ts_rule_wait(kit_px, sc->rule, 1, TS_SOON))
        fail_msg("nothing was held");
}

static inline void let_go(struct scene *sc)
{
    ts_proxy_unrule(kit_px, sc->rule);
    ts_proxy_release(kit_px);
}

static inline void take(struct scene *sc, dibs_owner owner)
{
    kit_want("taking it",
             dibs_lock_acquire(sc->l, DIBS_LOCK_OPTS(.owner = owner)), DIBS_OK);
}

static inline void give(struct scene *sc, dibs_owner owner)
{
    kit_want("giving it back",
             dibs_lock_release(sc->l, DIBS_LOCK_OPTS(.owner = owner)), DIBS_OK);
}

/* False: the release came before the waiter, and freed the lock. */
static inline bool try_handover(struct scene *sc, bool async, int64_t wait_ms,
                                struct act *waits, struct act *gives)
{
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.owner = sc->a, .wait_ms = KIT_LONG);

    take(sc, sc->a);
    act_acquire(waits, async, sc->l,
                DIBS_LOCK_OPTS(.owner = sc->b, .wait_ms = wait_ms));
    if (async)
        act_async(gives, sc->l, dibs_lock_release_async, o);
    else
        act_on_thread(gives, sc->l, dibs_lock_release, o);
    TS_WAIT(ts_rule_hits(kit_px, sc->rule) > 0 ||
            atomic_load(&gives->end.over));
    return ts_rule_hits(kit_px, sc->rule) > 0;
}

/* b waits; a, which has it, hands it over, and that is held at the proxy. */
static inline void start_handover(struct scene *sc, bool async, int64_t wait_ms,
                                  enum ts_action action, struct act *waits,
                                  struct act *gives)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    hold_next(sc, &dibs__script_mutex_handover, action);
    while (!try_handover(sc, async, wait_ms, waits, gives)) {
        kit_want("the release", act_end(gives), DIBS_OK);
        kit_want("the waiter", act_end(waits), DIBS_OK);
        give(sc, sc->b);
        if (!ts_wait_step(&w))
            fail_msg("nothing is handed over");
    }
}

/* A limit that is still to pass when the hand-over begins. */
static inline int64_t limit_ms(void)
{
    return kit_ms(1200);
}

static inline void *close_main(void *arg)
{
    struct kit_client *k = arg;

    return (void *)(intptr_t)dibs_client_close(k->c, TS_SOON);
}

#endif
