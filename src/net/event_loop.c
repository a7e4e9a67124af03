/* SPDX-License-Identifier: MIT
 *
 * event_loop.c - the I/O thread.
 *
 * One thread per client runs a libuv loop. It owns the sockets that are not
 * lent to a caller, the subscriptions and the timers, and never runs user code.
 *
 * Thread  io; dibs__loop_post from any.
 * Locks   loop.mu, around the inbox only.
 *
 * How     Other threads append tasks to the inbox and wake the loop only if it
 *         sleeps: under load a wake-up is a flag, not a system call. Just
 *         before sleeping the loop runs the inbox and then the flushes, so that
 *         commands posted together are sent in one write.
 *
 *         Timers are an ordered tree and one libuv timer for the first one.
 *         Their clock runs while the machine is suspended and libuv's does not,
 *         so the loop wakes at least every LONGEST_SLEEP_MS. A timer that is
 * set while timers fire is due in the next loop iteration at the earliest: a
 * timer that is always late must not starve the sockets.
 *
 * Trouble libuv aborts the process if it cannot create its process-wide pipe,
 *         and leaks the epoll descriptor if uv_loop_init fails halfway. So
 *         init_uv first checks that enough descriptors are available.
 */
#include "net/event_loop.h"

#include "base/error_text.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LONGEST_SLEEP_MS 2000
#define ROUND_MAX        1000 /* tasks per loop iteration */
#define LOOP_FDS         4    /* epoll, eventfd, a pipe */
#define PROCESS_FDS      2    /* the process-wide pipe, with the first loop */

static int timer_order(const struct dibs__timer *a, const struct dibs__timer *b)
{
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a < b ? -1 : a > b;
}

DIBS_TREE(dibs__timers, dibs__timer, node, timer_order);

static void on_clock(uv_timer_t *clock);

static void clock_set(struct dibs__loop *lp)
{
    struct dibs__timer *first = RB_MIN(dibs__timers, &lp->timers);

    if (!first) {
        uv_timer_stop(&lp->clock);
        return;
    }
    int64_t in = first->at - dibs__now_ms();
    in = dibs__min(dibs__max(in, lp->firing ? 1 : 0), LONGEST_SLEEP_MS);
    uv_timer_start(&lp->clock, on_clock, (uint64_t)in, 0);
}

static void on_clock(uv_timer_t *clock)
{
    struct dibs__loop *lp = clock->data;
    struct dibs__timer *t;

    lp->firing = dibs__now_ms();
    while ((t = RB_MIN(dibs__timers, &lp->timers)) && t->at <= lp->firing) {
        dibs__timer_stop(lp, t);
        t->fire(t);
    }
    clock_set(lp);
    lp->firing = 0;
}

void dibs__timer_set(struct dibs__loop *lp, struct dibs__timer *t, int64_t at)
{
    dibs__timer_stop(lp, t);
    t->at = dibs__max(at, lp->firing + 1);
    RB_INSERT(dibs__timers, &lp->timers, t);
    if (RB_MIN(dibs__timers, &lp->timers) == t)
        clock_set(lp);
}

void dibs__timer_stop(struct dibs__loop *lp, struct dibs__timer *t)
{
    if (t->at)
        RB_REMOVE(dibs__timers, &lp->timers, t);
    t->at = 0;
}

void dibs__loop_flush(struct dibs__loop *lp, struct dibs__task *t)
{
    if (!dibs__list_linked(&t->link))
        dibs__list_add(&lp->flushes, &t->link);
}

void dibs__loop_post(struct dibs__loop *lp, struct dibs__task *t)
{
    dibs__lock(&lp->mu);
    bool asleep = lp->asleep;
    lp->asleep = false;
    dibs__list_add(&lp->inbox, &t->link);
    dibs__unlock(&lp->mu);
    if (asleep)
        uv_async_send(&lp->wake);
}

static void run_tasks(struct dibs__list *tasks, size_t max)
{
    for (struct dibs__list *l; max-- > 0 && (l = dibs__list_pop(tasks));) {
        struct dibs__task *t = DIBS_OF(l, struct dibs__task, link);
        t->run(t);
    }
}

/* Runs up to ROUND_MAX tasks and all flushes. Returns true, and sets `asleep`,
 * if no task is left. */
static bool run_inbox(struct dibs__loop *lp)
{
    struct dibs__list work;

    dibs__list_init(&work);
    dibs__lock(&lp->mu);
    dibs__list_move(&work, &lp->inbox);
    dibs__unlock(&lp->mu);
    run_tasks(&work, ROUND_MAX);
    run_tasks(&lp->flushes, SIZE_MAX);
    dibs__lock(&lp->mu);
    dibs__list_move(&work, &lp->inbox); /* new tasks go behind those left */
    dibs__list_move(&lp->inbox, &work);
    bool idle = dibs__list_empty(&lp->inbox);
    lp->asleep = idle;
    dibs__unlock(&lp->mu);
    return idle;
}

static void close_handles(struct dibs__loop *lp)
{
    uv_close((uv_handle_t *)&lp->wake, NULL);
    uv_close((uv_handle_t *)&lp->clock, NULL);
    uv_close((uv_handle_t *)&lp->prepare, NULL);
    uv_close((uv_handle_t *)&lp->check, NULL);
}

/* Called before each poll. If tasks are left, poll does not block, but sockets
 * and timers are served first: other threads may post faster than io works.
 * After `stop` has run, only tasks on io post; the loop ends when the inbox is
 * empty, so tasks posted after `stop` run, too. */
static void before_sleep(uv_prepare_t *prepare)
{
    struct dibs__loop *lp = prepare->data;

    if (!run_inbox(lp))
        uv_async_send(&lp->wake);
    else if (lp->stopping)
        close_handles(lp);
}

static void after_sleep(uv_check_t *check)
{
    struct dibs__loop *lp = check->data;

    dibs__lock(&lp->mu);
    lp->asleep = false;
    dibs__unlock(&lp->mu);
}

static void on_wake(uv_async_t *wake)
{
    (void)wake; /* before_sleep runs the tasks */
}

static void on_stop(struct dibs__task *t)
{
    DIBS_OF(t, struct dibs__loop, stop)->stopping = true;
}

static _Thread_local const struct dibs__loop *current_loop;

bool dibs__loop_on_io_thread(void)
{
    return current_loop != NULL;
}

bool dibs__loop_is_current(const struct dibs__loop *lp)
{
    return current_loop == lp;
}

static void *loop_main(void *arg)
{
    struct dibs__loop *lp = arg;

    current_loop = lp;
    uv_run(&lp->uv, UV_RUN_DEFAULT);
    return NULL;
}

/* 0, or a negative errno. */
static int handles_init(struct dibs__loop *lp)
{
    int failed = uv_async_init(&lp->uv, &lp->wake, on_wake);

    if (failed)
        return failed;
    uv_timer_init(&lp->uv, &lp->clock);
    uv_prepare_init(&lp->uv, &lp->prepare);
    uv_check_init(&lp->uv, &lp->check);
    lp->clock.data = lp->prepare.data = lp->check.data = lp;
    uv_prepare_start(&lp->prepare, before_sleep);
    uv_check_start(&lp->check, after_sleep);
    return 0;
}

bool dibs__fds_available(unsigned count)
{
    int fd[LOOP_FDS + PROCESS_FDS];
    unsigned n = 0;

    assert(count <= sizeof fd / sizeof *fd);
    while (n < count && (fd[n] = eventfd(0, EFD_CLOEXEC)) >= 0)
        n++;
    bool available = n == count;
    int why = errno;
    while (n > 0)
        close(fd[--n]);
    errno = why;
    return available;
}

/* Serialized, so that a concurrent call does not use the descriptors found
 * available. Returns 0 or an errno. */
static int init_uv(uv_loop_t *uv)
{
    static pthread_mutex_t init_mu = PTHREAD_MUTEX_INITIALIZER;
    static bool process_pipe_exists;

    pthread_mutex_lock(&init_mu);
    int why =
        dibs__fds_available(LOOP_FDS + (process_pipe_exists ? 0 : PROCESS_FDS))
            ? -uv_loop_init(uv)
            : errno;
    process_pipe_exists |= why == 0;
    pthread_mutex_unlock(&init_mu);
    return why;
}

dibs_err dibs__loop_start(struct dibs__loop *lp)
{
    dibs__mutex_init(&lp->mu, RANK_LOOP);
    dibs__list_init(&lp->inbox);
    dibs__list_init(&lp->flushes);
    RB_INIT(&lp->timers);
    lp->stop.run = on_stop;
    int why = init_uv(&lp->uv);
    if (why)
        goto no_loop;
    why = -handles_init(lp);
    if (why)
        goto no_handles;
    if (dibs__thread_start(&lp->thread, "dibs-io", loop_main, lp))
        return DIBS_OK;
    on_stop(&lp->stop);
    uv_run(&lp->uv, UV_RUN_DEFAULT);
no_handles:
    uv_loop_close(&lp->uv);
no_loop:
    dibs__mutex_clear(&lp->mu);
    return dibs__no_descriptor(why);
}

void dibs__loop_stop(struct dibs__loop *lp)
{
    dibs__loop_post(lp, &lp->stop);
    pthread_join(lp->thread, NULL);
    int busy = uv_loop_close(&lp->uv);
    assert(busy == 0);
    (void)busy;
    dibs__mutex_clear(&lp->mu);
}
