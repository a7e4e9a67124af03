/* SPDX-License-Identifier: MIT
 *
 * callback_queue.c - where user code runs.
 *
 * User code may be slow, may block, may call us again. So it runs on a thread
 * that nothing else depends on, or on the program's own through a descriptor
 * and a dispatch call; never on the thread that renews leases.
 *
 * How     io wakes the thread that runs callbacks once in a round, for all of
 *         it. Between callbacks the thread of our own sends what they began and
 *         reads the replies, see callback_io.c.
 *
 * Thread  push from any; the rest as said.
 * Locks   callback.mu, never while user code runs.
 */
#include "client/callback_queue.h"

#include "base/error_text.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static _Thread_local const struct dibs__callbacks *inside;
static _Thread_local const struct dibs__callbacks *dispatches;

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

/* Wakes the thread that runs callbacks, wherever it waits. */
static void wake_runner(struct dibs__callbacks *cbs) EXCLUDES(cbs->mu)
{
    const uint64_t one = 1;

    dibs__lock(&cbs->mu);
    bool ring = cbs->polls || (cbs->fd >= 0 && !cbs->rung && !cbs->hears);
    cbs->polls = false;
    cbs->rung |= ring;
    ssize_t n = ring ? write(cbs->wake_fd, &one, sizeof one) : 0;
    (void)n; /* full means readable, and that is all it is for */
    pthread_cond_signal(&cbs->more);
    dibs__unlock(&cbs->mu);
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

/* For a program that waits by itself, whatever we have to wait for. */
static bool make_fds(struct dibs__callbacks *cbs)
{
    struct epoll_event ev = {.events = EPOLLIN};

    cbs->fd = epoll_create1(EPOLL_CLOEXEC);
    cbs->wake_fd = cbs->fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cbs->wake_fd >= 0 &&
        epoll_ctl(cbs->fd, EPOLL_CTL_ADD, cbs->wake_fd, &ev) == 0)
        return true;
    int why = errno;
    if (cbs->fd >= 0)
        close(cbs->fd);
    if (cbs->wake_fd >= 0)
        close(cbs->wake_fd);
    errno = why;
    return false;
}

dibs_err dibs__callbacks_init(struct dibs__callbacks *cbs,
                              struct dibs__loop *lp, bool dispatch)
{
    cbs->lp = lp;
    cbs->wake.run = wake_later;
    cbs->fd = cbs->wake_fd = -1;
    if (dispatch && !make_fds(cbs))
        return dibs__no_descriptor(errno);
    dibs__mutex_init(&cbs->mu, RANK_CALLBACK);
    dibs__list_init(&cbs->queue);
    dibs__list_init(&cbs->rides);
    pthread_cond_init(&cbs->more, NULL);
    return DIBS_OK;
}

dibs_err dibs__callbacks_ensure_thread(struct dibs__callbacks *cbs)
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

/* Takes what is to be run, and what replies lead to. False: another thread is
 * at it, or this one further out. */
static bool begin_dispatch(struct dibs__callbacks *cbs, struct dibs__list *now)
{
    uint64_t count;

    dibs__lock(&cbs->mu);
    bool mine = !cbs->dispatches;
    bool rides = mine && !dibs__list_empty(&cbs->rides);
    cbs->dispatches = true;
    if (mine)
        dispatches = cbs;
    if (rides) {
        cbs->hears = true;
        dibs__unlock(&cbs->mu);
        cbs->hear(cbs);
        dibs__lock(&cbs->mu);
        cbs->hears = false;
    }
    ssize_t n = cbs->rung ? read(cbs->wake_fd, &count, sizeof count) : 0;
    (void)n;
    cbs->rung = false;
    dibs__list_move(now, &cbs->queue);
    dibs__unlock(&cbs->mu);
    return mine;
}

static void end_dispatch(struct dibs__callbacks *cbs)
{
    dibs__lock(&cbs->mu);
    bool rides = !dibs__list_empty(&cbs->rides);
    dibs__unlock(&cbs->mu);
    if (rides)
        cbs->send(cbs);
    dibs__lock(&cbs->mu);
    cbs->dispatches = false;
    dispatches = NULL;
    dibs__unlock(&cbs->mu);
}

int dibs__callbacks_dispatch(struct dibs__callbacks *cbs)
{
    struct dibs__list now;
    int ran = 0;

    if (cbs->fd < 0)
        return 0;
    /* What comes meanwhile is for the next time: the program has other things
     * to do, too. */
    dibs__list_init(&now);
    bool mine = begin_dispatch(cbs, &now);
    for (struct dibs__list *l; (l = dibs__list_pop(&now)); ran++)
        run_callback(cbs, DIBS_OF(l, struct dibs__callback, link));
    if (mine)
        end_dispatch(cbs);
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

bool dibs__callbacks_on_thread(const struct dibs__callbacks *cbs)
{
    return inside == cbs && (cbs->fd < 0 || dispatches == cbs);
}
