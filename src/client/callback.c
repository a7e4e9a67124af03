/* SPDX-License-Identifier: MIT
 *
 * callback.c - where user code runs.
 *
 * User code may be slow, may block, may call us again. So it runs on a thread
 * that nothing else depends on, or on the program's own through a descriptor
 * and a dispatch call; never on the thread that renews leases.
 *
 * How     io wakes whoever runs callbacks once in a round, for all that came in
 *         it. Between callbacks the thread of our own sends what they began and
 *         reads the replies, see ride.c.
 *
 * Thread  push from any; the rest as said.
 * Locks   callback.mu, never while user code runs.
 */
#include "client/callback.h"

#include <sys/eventfd.h>
#include <unistd.h>

static _Thread_local const struct dibs__callbacks *inside;

static void run_callback(struct dibs__callbacks *cbs, struct dibs__callback *cb)
{
    const struct dibs__callbacks *before = inside;

    dibs__assert_no_lock();
    inside = cbs;
    cb->run(cb, false);
    inside = before;
}

static struct dibs__callback *pop_callback(struct dibs__callbacks *cbs)
    REQUIRES(cbs->mu)
{
    struct dibs__list *l = dibs__list_pop(&cbs->queue);

    return l ? DIBS_OF(l, struct dibs__callback, link) : NULL;
}

/* Whoever runs callbacks, wherever it waits. */
static void wake_runner(struct dibs__callbacks *cbs) EXCLUDES(cbs->mu)
{
    const uint64_t one = 1;

    dibs__lock(&cbs->mu);
    int fd = cbs->polls ? cbs->wake_fd : cbs->fd;
    cbs->polls = false;
    pthread_cond_signal(&cbs->more);
    dibs__unlock(&cbs->mu);
    if (fd >= 0) {
        ssize_t n = write(fd, &one, sizeof one);
        (void)n; /* full means readable, and that is all it is for */
    }
}

static void wake_later(struct dibs__task *t)
{
    wake_runner(DIBS_OF(t, struct dibs__callbacks, wake));
}

static void *callback_main(void *arg)
{
    struct dibs__callbacks *cbs = arg;
    struct dibs__callback *cb;

    dibs__lock(&cbs->mu);
    while ((cb = pop_callback(cbs)) || !cbs->stop) {
        bool rides = !dibs__list_empty(&cbs->rides);
        if (!cb && !rides) {
            dibs__cond_wait(&cbs->more, &cbs->mu);
            continue;
        }
        if (cb && rides)
            cbs->leave(cbs);
        dibs__unlock(&cbs->mu);
        if (cb)
            run_callback(cbs, cb);
        else
            cbs->work(cbs);
        dibs__lock(&cbs->mu);
    }
    dibs__unlock(&cbs->mu);
    return NULL;
}

dibs_err dibs__callbacks_init(struct dibs__callbacks *cbs,
                              struct dibs__loop *lp, bool dispatch)
{
    cbs->lp = lp;
    cbs->wake.run = wake_later;
    cbs->fd = cbs->wake_fd = -1;
    if (dispatch) {
        cbs->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (cbs->fd < 0)
            return DIBS_ERR_NOMEM;
    }
    dibs__mutex_init(&cbs->mu, RANK_CALLBACK);
    dibs__list_init(&cbs->queue);
    dibs__list_init(&cbs->rides);
    pthread_cond_init(&cbs->more, NULL);
    return DIBS_OK;
}

dibs_err dibs__callbacks_ready(struct dibs__callbacks *cbs)
{
    dibs_err err = DIBS_OK;

    if (cbs->fd >= 0)
        return DIBS_OK;
    dibs__lock(&cbs->mu);
    if (!cbs->started && !cbs->stop) {
        cbs->started =
            dibs__thread_start(&cbs->thread, "dibs-cb", callback_main, cbs);
        if (!cbs->started)
            err = DIBS_ERR_NOMEM;
    }
    dibs__unlock(&cbs->mu);
    return err;
}

void dibs__callbacks_push(struct dibs__callbacks *cbs,
                          struct dibs__callback *cb)
{
    dibs__lock(&cbs->mu);
    dibs__list_add(&cbs->queue, &cb->link);
    dibs__unlock(&cbs->mu);
    if (dibs__loop_is_here(cbs->lp)) /* once for all that comes in this round */
        dibs__loop_flush(cbs->lp, &cbs->wake);
    else
        wake_runner(cbs);
}

int dibs__callbacks_dispatch(struct dibs__callbacks *cbs)
{
    struct dibs__list now;
    uint64_t count;
    int ran = 0;

    if (cbs->fd < 0)
        return 0;
    ssize_t n = read(cbs->fd, &count, sizeof count);
    (void)n;
    /* What comes meanwhile is for the next time: the program has other things
     * to do, too. */
    dibs__list_init(&now);
    dibs__lock(&cbs->mu);
    dibs__list_move(&now, &cbs->queue);
    dibs__unlock(&cbs->mu);
    for (struct dibs__list *l; (l = dibs__list_pop(&now)); ran++)
        run_callback(cbs, DIBS_OF(l, struct dibs__callback, link));
    return ran;
}

void dibs__callbacks_stop(struct dibs__callbacks *cbs)
{
    dibs__lock(&cbs->mu);
    bool join = cbs->started;
    cbs->started = false;
    cbs->stop = true;
    dibs__unlock(&cbs->mu);
    wake_runner(cbs);
    if (join)
        pthread_join(cbs->thread, NULL);
}

void dibs__callbacks_drop(struct dibs__callbacks *cbs)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__lock(&cbs->mu);
    dibs__list_move(&all, &cbs->queue);
    dibs__unlock(&cbs->mu);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));) {
        struct dibs__callback *cb = DIBS_OF(l, struct dibs__callback, link);
        cb->run(cb, true);
    }
}

void dibs__callbacks_clear(struct dibs__callbacks *cbs)
{
    dibs__callbacks_drop(cbs);
    if (cbs->fd >= 0)
        close(cbs->fd);
    if (cbs->wake_fd >= 0)
        close(cbs->wake_fd);
    pthread_cond_destroy(&cbs->more);
    dibs__mutex_clear(&cbs->mu);
}

bool dibs__callbacks_inside(const struct dibs__callbacks *cbs)
{
    return inside == cbs;
}
