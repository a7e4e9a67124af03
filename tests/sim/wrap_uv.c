/* SPDX-License-Identifier: MIT
 *
 * wrap_uv.c - as much of libuv as the library uses, on simulated time and
 * sockets. The order of a round is libuv's: timers, prepare, sleep, sockets and
 * wake-ups, check, closings.
 *
 * A handle's own record hangs on the handle (u.reserved), a loop's on the loop
 * (active_reqs); both are fields that libuv keeps for itself.
 */
#include "sim/fiber.h"
#include "sim/wrap.h"

#include <stdlib.h>
#include <string.h>

struct loop;

struct handle {
    struct handle *next;
    struct loop *loop;
    uv_handle_t *h;
    uv_handle_type type;
    bool active, closing;
    uv_close_cb closed;
    union {
        uv_async_cb async;
        uv_timer_cb timer;
        uv_prepare_cb prepare;
        uv_check_cb check;
        uv_poll_cb poll;
    } cb;
    int64_t due; /* timer: by the clock of the process */
    bool rung;   /* async */
    struct sim_sock *sock;
    int events; /* poll: asked for */
};

struct loop {
    struct handle *all;
    struct sim_proc *proc;
    bool closings;
};

static struct loop *loop_of(const uv_loop_t *uv)
{
    return uv->active_reqs.unused;
}

static struct handle *record_of(const void *h)
{
    return ((const uv_handle_t *)h)->u.reserved[0];
}

/* ---- loops ------------------------------------------------------------- */

int __wrap_uv_loop_init(uv_loop_t *uv)
{
    memset(uv, 0, sizeof *uv);
    if (sim_memory_short())
        return UV_ENOMEM;
    struct loop *lp = calloc(1, sizeof *lp);
    lp->proc = sim_proc_self();
    uv->active_reqs.unused = lp;
    return 0;
}

int __wrap_uv_loop_close(uv_loop_t *uv)
{
    if (loop_of(uv)->all)
        return UV_EBUSY;
    free(loop_of(uv));
    return 0;
}

static void add_handle(uv_loop_t *uv, void *h, uv_handle_type type)
{
    struct handle *r = calloc(1, sizeof *r);
    struct handle **end = &loop_of(uv)->all;
    void *data = ((uv_handle_t *)h)->data;

    while (*end)
        end = &(*end)->next;
    *end = r;
    r->loop = loop_of(uv);
    r->h = h;
    r->type = type;
    ((uv_handle_t *)h)->data = data;
    ((uv_handle_t *)h)->loop = uv;
    ((uv_handle_t *)h)->u.reserved[0] = r;
}

static void drop_closed(struct loop *lp)
{
    struct handle **at = &lp->all;

    lp->closings = false;
    while (*at) {
        struct handle *r = *at;
        if (!r->closing) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        if (r->closed)
            r->closed(r->h);
        free(r);
    }
}

/* ---- a round ----------------------------------------------------------- */

static void run_timers(struct loop *lp)
{
    int64_t now = sim_clock_us(lp->proc);

    for (struct handle *r = lp->all; r; r = r->next)
        if (r->type == UV_TIMER && r->active && !r->closing && r->due <= now) {
            r->active = false;
            r->cb.timer((uv_timer_t *)r->h);
        }
}

static void run_hooks(const struct loop *lp, uv_handle_type type)
{
    for (struct handle *r = lp->all; r; r = r->next)
        if (r->type == type && r->active && !r->closing) {
            if (type == UV_PREPARE)
                r->cb.prepare((uv_prepare_t *)r->h);
            else
                r->cb.check((uv_check_t *)r->h);
        }
}

static int poll_events(const struct handle *r)
{
    return r->type == UV_POLL && r->active && !r->closing
               ? sim_sock_events(r->sock) & r->events
               : 0;
}

/* When something is to be done, by simulated time; now, if it is already. */
static int64_t next_work(const struct loop *lp)
{
    int64_t when = lp->closings ? 0 : SIM_NEVER;

    for (const struct handle *r = lp->all; r; r = r->next) {
        if ((r->type == UV_ASYNC && r->rung) || poll_events(r))
            return 0;
        if (r->type == UV_TIMER && r->active && !r->closing) {
            int64_t due = sim_clock_when(lp->proc, r->due);
            when = due < when ? due : when;
        }
    }
    return when;
}

static void run_polls(struct loop *lp)
{
    for (struct handle *r = lp->all; r; r = r->next) {
        int events = poll_events(r);
        if (events)
            r->cb.poll((uv_poll_t *)r->h, 0, events);
        if (r->type == UV_ASYNC && r->rung && !r->closing) {
            r->rung = false;
            r->cb.async((uv_async_t *)r->h);
        }
    }
}

int __wrap_uv_run(uv_loop_t *uv, uv_run_mode mode)
{
    struct loop *lp = loop_of(uv);

    (void)mode;
    while (lp->all) {
        run_timers(lp);
        run_hooks(lp, UV_PREPARE);
        int64_t when = next_work(lp);
        if (when > sim_now())
            sim_block(lp, when);
        else
            sim_preempt();
        run_polls(lp);
        run_hooks(lp, UV_CHECK);
        drop_closed(lp);
    }
    return 0;
}

/* ---- handles ----------------------------------------------------------- */

void __wrap_uv_close(uv_handle_t *h, uv_close_cb cb)
{
    struct handle *r = record_of(h);

    r->closing = true;
    r->closed = cb;
    r->active = false;
    r->rung = false;
    if (r->sock)
        sim_sock_polled(r->sock, NULL);
    r->loop->closings = true;
    sim_wake(r->loop, 1);
}

int __wrap_uv_async_init(uv_loop_t *uv, uv_async_t *h, uv_async_cb cb)
{
    if (sim_memory_short())
        return UV_ENOMEM;
    add_handle(uv, h, UV_ASYNC);
    record_of(h)->cb.async = cb;
    return 0;
}

int __wrap_uv_async_send(uv_async_t *h)
{
    struct handle *r = record_of(h);

    r->rung = true;
    sim_wake(r->loop, 1);
    sim_preempt();
    return 0;
}

int __wrap_uv_timer_init(uv_loop_t *uv, uv_timer_t *h)
{
    add_handle(uv, h, UV_TIMER);
    return 0;
}

int __wrap_uv_timer_start(uv_timer_t *h, uv_timer_cb cb, uint64_t in,
                          uint64_t every)
{
    struct handle *r = record_of(h);

    (void)every;
    r->cb.timer = cb;
    r->due = sim_clock_us(r->loop->proc) + (int64_t)in * 1000;
    r->active = true;
    return 0;
}

int __wrap_uv_timer_stop(uv_timer_t *h)
{
    record_of(h)->active = false;
    return 0;
}

int __wrap_uv_prepare_init(uv_loop_t *uv, uv_prepare_t *h)
{
    add_handle(uv, h, UV_PREPARE);
    return 0;
}

int __wrap_uv_prepare_start(uv_prepare_t *h, uv_prepare_cb cb)
{
    record_of(h)->cb.prepare = cb;
    record_of(h)->active = true;
    return 0;
}

int __wrap_uv_check_init(uv_loop_t *uv, uv_check_t *h)
{
    add_handle(uv, h, UV_CHECK);
    return 0;
}

int __wrap_uv_check_start(uv_check_t *h, uv_check_cb cb)
{
    record_of(h)->cb.check = cb;
    record_of(h)->active = true;
    return 0;
}

int __wrap_uv_poll_init(uv_loop_t *uv, uv_poll_t *h, int fd)
{
    add_handle(uv, h, UV_POLL);
    record_of(h)->sock = sim_sock_of(fd);
    return 0;
}

int __wrap_uv_poll_start(uv_poll_t *h, int events, uv_poll_cb cb)
{
    struct handle *r = record_of(h);

    r->cb.poll = cb;
    r->events = events;
    r->active = true;
    sim_sock_polled(r->sock, r->loop);
    return 0;
}

int __wrap_uv_poll_stop(uv_poll_t *h)
{
    struct handle *r = record_of(h);

    r->active = false;
    sim_sock_polled(r->sock, NULL);
    return 0;
}
