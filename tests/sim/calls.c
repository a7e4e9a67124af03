/* SPDX-License-Identifier: MIT
 *
 * calls.c - acquires and releases a lock, sync or async, and async also from
 * inside a callback.
 */
#include "sim/program.h"

static void async_ended(dibs_err err, void *arg)
{
    struct sim_program *pr = arg;

    if (pr->async_done)
        sim_broken("callback once", "a callback came twice");
    pr->async_done = true;
    pr->async_err = err;
    sim_wake(pr, 1);
}

static dibs_err await(struct sim_program *pr, dibs_err started)
{
    if (started != DIBS_OK)
        return started;
    while (!pr->async_done)
        sim_block(pr, SIM_NEVER);
    return pr->async_err;
}

typedef dibs_err start_fn(dibs_lock *l, const dibs_lock_opts *o, dibs_cb cb,
                          void *arg);

struct inside {
    struct sim_program *pr;
    dibs_lock *l;
    const dibs_lock_opts *o;
    start_fn *start;
};

/* The callback of a call that ended at once begins the one that is meant, and
 * may take its time then. */
static void start_inside(dibs_err err, void *arg)
{
    const struct inside *in = arg;
    struct sim_program *pr = in->pr;
    bool slow = sim_once_in(&pr->chance, 8);

    (void)err;
    err = in->start(in->l, in->o, async_ended, pr); /* in may be gone then */
    if (err != DIBS_OK)
        async_ended(err, pr);
    if (slow)
        sim_sleep(5000);
}

static dibs_err run_async(struct sim_program *pr, dibs_lock *l,
                          const dibs_lock_opts *o, start_fn *start)
{
    struct inside in = {pr, l, o, start};
    dibs_lock_opts nobody = DIBS_LOCK_OPTS_INIT;

    if (sim_once_in(&pr->chance, 2)) {
        nobody.owner = dibs_owner_new(pr->client->c[0]); /* has nothing */
        if (dibs_lock_release_async(l, &nobody, start_inside, &in) == DIBS_OK)
            return await(pr, DIBS_OK);
    }
    return await(pr, start(l, o, async_ended, pr));
}

dibs_err sim_take(struct sim_program *pr, dibs_lock *l, enum sim_form form,
                  const dibs_lock_opts *o)
{
    pr->async_done = false;
    switch (form) {
    case FORM_ACQUIRE:
        return dibs_lock_acquire(l, o);
    case FORM_TRY:
        return dibs_lock_try(l, o);
    case FORM_ACQUIRE_ASYNC:
        return run_async(pr, l, o, dibs_lock_acquire_async);
    case FORM_TRY_ASYNC:
        return run_async(pr, l, o, dibs_lock_try_async);
    }
    return DIBS_ERR_INVALID;
}

dibs_err sim_give(struct sim_program *pr, dibs_lock *l, const dibs_lock_opts *o)
{
    pr->async_done = false;
    if (sim_once_in(&pr->chance, 4))
        return run_async(pr, l, o, dibs_lock_release_async);
    return dibs_lock_release(l, o);
}
