/* SPDX-License-Identifier: MIT
 *
 * event_loop.c - the I/O thread.
 *
 * One thread a client runs a libuv loop. It owns the sockets that are busy, the
 * subscriptions and the timers, and runs no code that is not ours.
 *
 * Thread  io; dibs__loop_post from any.
 * Locks   loop.mu, around the inbox only.
 *
 * How     Other threads put tasks into the inbox and wake the loop, but only
 *         when it sleeps: under load a wake-up is a flag, not a system call.
 *         Just before sleeping the loop empties the inbox and runs the flushes,
 *         so that commands which came together leave in one write.
 *
 *         Timers are an ordered tree and one libuv timer for the first of
 *         them. Their time goes on while the machine sleeps, libuv's does not;
 *         so the loop looks again at least every two seconds. A timer that is
 *         set while others fire is not due before the loop has been round once:
 *         one that is always late must not keep sockets from their turn.
 *
 * Trouble libuv aborts the program if the pipe that it makes once for a process
 *         cannot be made, and a loop that cannot be made whole leaves its epoll
 *         descriptor behind. So we look first whether there are descriptors
 *         enough, and ask libuv only then.
 */
#include "net/event_loop.h"

#include "base/error_text.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LONGEST_SLEEP_MS 2000
#define ROUND_MAX        1000 /* tasks, then sockets and timers have a turn */
#define LOOP_FDS         4    /* epoll, eventfd, a pipe */
#define PROCESS_FDS      2    /* another pipe, with the first loop */

static int timer_order(const struct dibs__timer *a, const struct dibs__timer *b)
{
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a < b ? -1 : a > b;
}

DIBS_TREE(dibs__timers, dibs__timer, node, timer_order);

static void clock_fired(uv_timer_t *clock);

static void clock_set(struct dibs__loop *lp)
{
    struct dibs__timer *first = RB_MIN(dibs__timers, &lp->timers);

    if (!first) {
        uv_timer_stop(&lp->clock);
        return;
    }
    int64_t in = first->at - dibs__now_ms();
    in = dibs__min(dibs__max(in, lp->firing ? 1 : 0), LONGEST_SLEEP_MS);
    uv_timer_start(&lp->clock, clock_fired, (uint64_t)in, 0);
}

static void clock_fired(uv_timer_t *clock)
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

static void run_some(struct dibs__list *tasks, size_t most)
{
    for (struct dibs__list *l; most-- > 0 && (l = dibs__list_pop(tasks));) {
        struct dibs__task *t = DIBS_OF(l, struct dibs__task, link);
        t->run(t);
    }
}

/* One round of what was posted, and what is to be sent. False: there is more by
 * now. */
static bool work_off(struct dibs__loop *lp)
{
    struct dibs__list work;

    dibs__list_init(&work);
    dibs__lock(&lp->mu);
    dibs__list_move(&work, &lp->inbox);
    dibs__unlock(&lp->mu);
    run_some(&work, ROUND_MAX);
    run_some(&lp->flushes, SIZE_MAX);
    dibs__lock(&lp->mu);
    dibs__list_move(&work, &lp->inbox); /* behind what is left over */
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

/* Before each sleep. If more has come meanwhile there is no sleep, but sockets
 * and timers have their turn: others can post faster than we work. When the
 * loop is to stop, nobody posts any more but our own tasks; it ends when there
 * are none, also none that came behind the word to stop. */
static void before_sleep(uv_prepare_t *prepare)
{
    struct dibs__loop *lp = prepare->data;

    if (!work_off(lp))
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

static void wake_came(uv_async_t *wake)
{
    (void)wake; /* before_sleep does the work */
}

static void stop_now(struct dibs__task *t)
{
    DIBS_OF(t, struct dibs__loop, stop)->stopping = true;
}

static _Thread_local const struct dibs__loop *inside;

bool dibs__loop_inside(void)
{
    return inside != NULL;
}

bool dibs__loop_is_here(const struct dibs__loop *lp)
{
    return inside == lp;
}

static void *loop_main(void *arg)
{
    struct dibs__loop *lp = arg;

    inside = lp;
    uv_run(&lp->uv, UV_RUN_DEFAULT);
    return NULL;
}

/* 0, or a negative errno. */
static int handles_init(struct dibs__loop *lp)
{
    int failed = uv_async_init(&lp->uv, &lp->wake, wake_came);

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

bool dibs__fds_left(unsigned count)
{
    int fd[LOOP_FDS + PROCESS_FDS];
    unsigned n = 0;

    assert(count <= sizeof fd / sizeof *fd);
    while (n < count && (fd[n] = eventfd(0, EFD_CLOEXEC)) >= 0)
        n++;
    bool left = n == count;
    int why = errno;
    while (n > 0)
        close(fd[--n]);
    errno = why;
    return left;
}

/* One at a time: what one has found free, another must not take. 0, or an
 * errno. */
static int init_uv(uv_loop_t *uv)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    static bool first_made;

    pthread_mutex_lock(&turn);
    int why = dibs__fds_left(LOOP_FDS + (first_made ? 0 : PROCESS_FDS))
                  ? -uv_loop_init(uv)
                  : errno;
    first_made |= why == 0;
    pthread_mutex_unlock(&turn);
    return why;
}

dibs_err dibs__loop_start(struct dibs__loop *lp)
{
    dibs__mutex_init(&lp->mu, RANK_LOOP);
    dibs__list_init(&lp->inbox);
    dibs__list_init(&lp->flushes);
    RB_INIT(&lp->timers);
    lp->stop.run = stop_now;
    int why = init_uv(&lp->uv);
    if (why)
        goto no_loop;
    why = -handles_init(lp);
    if (why)
        goto no_handles;
    if (dibs__thread_start(&lp->thread, "dibs-io", loop_main, lp))
        return DIBS_OK;
    stop_now(&lp->stop);
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
    int left = uv_loop_close(&lp->uv);
    assert(left == 0);
    (void)left;
    dibs__mutex_clear(&lp->mu);
}
