/* SPDX-License-Identifier: MIT
 *
 * callback_queue.c - queue of user callbacks.
 *
 * User code may be slow, may block and may call the library. So it runs on the
 * callback thread, which nothing else depends on, or on a thread of the program
 * that calls dibs_client_dispatch; never on io, which renews leases.
 *
 * How     io wakes the runner (either of the two) once per loop round, however
 *         many callbacks were pushed in it. Between callbacks the callback
 *         thread sends the commands that they began and reads the replies, see
 *         callback_io.c.
 *
 * Thread  push from any; the rest as in the header.
 * Locks   callback.mu, never while user code runs.
 */
#include "client/callback_queue.h"

#include "base/error_text.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The queue whose callback this thread runs, and whose dispatch it is in. */
static _Thread_local const struct dibs__callbacks *running_queue;
static _Thread_local const struct dibs__callbacks *dispatch_queue;

static void run_callback(struct dibs__callbacks *cbs, struct dibs__callback *cb)
{
    const struct dibs__callbacks *outer = running_queue;

    dibs__assert_no_lock();
    running_queue = cbs;
    cb->run(cb, false);
    running_queue = outer;
}

static struct dibs__callback *pop_callback(struct dibs__callbacks *cbs)
    REQUIRES(cbs->mu)
{
    struct dibs__list *l = dibs__list_pop(&cbs->queue);

    return l ? DIBS_OF(l, struct dibs__callback, link) : NULL;
}

/* Wakes the runner, whether it waits for `more`, for wake_fd or for fd. */
static void wake_runner(struct dibs__callbacks *cbs) EXCLUDES(cbs->mu)
{
    const uint64_t one = 1;

    dibs__lock(&cbs->mu);
    bool must_write =
        cbs->polls || (cbs->fd >= 0 && !cbs->wake_written && !cbs->reading);
    cbs->polls = false;
    cbs->wake_written |= must_write;
    ssize_t n = must_write ? write(cbs->wake_fd, &one, sizeof one) : 0;
    (void)n; /* EAGAIN: the counter is full, so wake_fd is readable */
    pthread_cond_signal(&cbs->more);
    dibs__unlock(&cbs->mu);
}

static void on_wake_task(struct dibs__task *t)
{
    wake_runner(DIBS_OF(t, struct dibs__callbacks, wake));
}

static void *callback_main(void *arg)
{
    struct dibs__callbacks *cbs = arg;
    struct dibs__callback *cb;

    dibs__lock(&cbs->mu);
    while ((cb = pop_callback(cbs)) || !cbs->stop) {
        bool has_rides = !dibs__list_empty(&cbs->rides);
        if (!cb && !has_rides) {
            dibs__cond_wait(&cbs->more, &cbs->mu);
            continue;
        }
        if (cb && has_rides)
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

/* The epoll descriptor for dispatch mode, with wake_fd in it. */
static bool create_dispatch_fds(struct dibs__callbacks *cbs)
{
    struct epoll_event ev = {.events = EPOLLIN};

    cbs->fd = epoll_create1(EPOLL_CLOEXEC);
    cbs->wake_fd = cbs->fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cbs->wake_fd >= 0 &&
        epoll_ctl(cbs->fd, EPOLL_CTL_ADD, cbs->wake_fd, &ev) == 0)
        return true;
    int saved_errno = errno;
    if (cbs->fd >= 0)
        close(cbs->fd);
    if (cbs->wake_fd >= 0)
        close(cbs->wake_fd);
    errno = saved_errno;
    return false;
}

dibs_err dibs__callbacks_init(struct dibs__callbacks *cbs,
                              struct dibs__loop *lp, bool dispatch)
{
    cbs->lp = lp;
    cbs->wake.run = on_wake_task;
    cbs->fd = cbs->wake_fd = -1;
    if (dispatch && !create_dispatch_fds(cbs))
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
    if (dibs__loop_is_current(cbs->lp)) /* one wake-up per loop round */
        dibs__loop_flush(cbs->lp, &cbs->wake);
    else
        wake_runner(cbs);
}

/* Reads replies, then moves the queued callbacks to `batch`. Returns true if
 * this call is the dispatcher, and false if another thread is or this thread is
 * in an outer dispatch. The caller must call end_dispatch after true. */
static bool begin_dispatch(struct dibs__callbacks *cbs,
                           struct dibs__list *batch)
{
    uint64_t count;

    dibs__lock(&cbs->mu);
    bool is_dispatcher = !cbs->dispatching;
    bool has_rides = is_dispatcher && !dibs__list_empty(&cbs->rides);
    cbs->dispatching = true;
    if (is_dispatcher)
        dispatch_queue = cbs;
    if (has_rides) {
        cbs->reading = true;
        dibs__unlock(&cbs->mu);
        cbs->hear(cbs);
        dibs__lock(&cbs->mu);
        cbs->reading = false;
    }
    ssize_t n =
        cbs->wake_written ? read(cbs->wake_fd, &count, sizeof count) : 0;
    (void)n;
    cbs->wake_written = false;
    dibs__list_move(batch, &cbs->queue);
    dibs__unlock(&cbs->mu);
    return is_dispatcher;
}

static void end_dispatch(struct dibs__callbacks *cbs)
{
    dibs__lock(&cbs->mu);
    bool has_rides = !dibs__list_empty(&cbs->rides);
    dibs__unlock(&cbs->mu);
    if (has_rides)
        cbs->send(cbs);
    dibs__lock(&cbs->mu);
    cbs->dispatching = false;
    dispatch_queue = NULL;
    dibs__unlock(&cbs->mu);
}

int dibs__callbacks_dispatch(struct dibs__callbacks *cbs)
{
    struct dibs__list batch;
    int ran = 0;

    if (cbs->fd < 0)
        return 0;
    /* Callbacks pushed meanwhile are left for the next dispatch, so that this
     * call ends. */
    dibs__list_init(&batch);
    bool is_dispatcher = begin_dispatch(cbs, &batch);
    for (struct dibs__list *l; (l = dibs__list_pop(&batch)); ran++)
        run_callback(cbs, DIBS_OF(l, struct dibs__callback, link));
    if (is_dispatcher)
        end_dispatch(cbs);
    return ran;
}

void dibs__callbacks_stop(struct dibs__callbacks *cbs)
{
    dibs__lock(&cbs->mu);
    bool must_join = cbs->started;
    cbs->started = false;
    cbs->stop = true;
    dibs__unlock(&cbs->mu);
    wake_runner(cbs);
    if (must_join)
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
    return running_queue == cbs;
}

bool dibs__callbacks_on_thread(const struct dibs__callbacks *cbs)
{
    return running_queue == cbs && (cbs->fd < 0 || dispatch_queue == cbs);
}
