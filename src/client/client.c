/* SPDX-License-Identifier: MIT
 *
 * client.c - opens and closes a client; detects use in a child after fork.
 *
 * Thread  app; io where the function says so.
 * Locks   client.mu.
 *
 * Close   In order: refuse new calls; the lock layer fails pending operations
 *         and releases holds until the deadline; close the connections, which
 *         unblocks callers in a synchronous command; wait until the last call
 *         has left; join the threads.
 *
 * Fork    The child has a copy of the memory but not the threads, and shares
 *         the sockets. The kernel zeroes the page of client.not_forked in a
 *         child (MADV_WIPEONFORK), so each call detects that with one read and
 *         returns FORKED. Free then closes only the descriptors, since any
 *         other state may have been copied in the middle of a change.
 */
#include "client/client.h"

#include "base/api_args.h"
#include "base/mem.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEASE_MS 30000
#define CLOSE_MS 5000

/* ---- active calls ------------------------------------------------------ */

bool dibs__client_is_forked_copy(const dibs_client *c)
{
    return !c || *c->not_forked != 1;
}

/* Cancellation is disabled inside a call: the thread may hold a mutex, and its
 * operation may live on its stack. */
static _Thread_local int call_depth, saved_cancel_state;

void dibs__cancel_disable(void)
{
    if (call_depth++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved_cancel_state);
}

void dibs__cancel_restore(void)
{
    if (--call_depth == 0)
        pthread_setcancelstate(saved_cancel_state, NULL);
}

dibs_err dibs__client_enter(dibs_client *c)
{
    if (dibs__check_not_null("client", c) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (dibs__client_is_forked_copy(c))
        return DIBS_ERR_FORKED;
    dibs__cancel_disable();
    atomic_fetch_add(&c->active_calls, 1);
    if (!atomic_load(&c->closing))
        return DIBS_OK;
    dibs__client_leave(c);
    return DIBS_ERR_CLOSED;
}

/* The closing thread may free the client once both counters are 0.
 * leaving_calls covers this function's last access to the client. */
void dibs__client_leave(dibs_client *c)
{
    atomic_fetch_add(&c->leaving_calls, 1);
    if (atomic_fetch_sub(&c->active_calls, 1) == 1 && atomic_load(&c->closing))
        sem_post(&c->calls_drained);
    atomic_fetch_sub(&c->leaving_calls, 1);
    dibs__cancel_restore();
}

void dibs__client_ref(dibs_client *c)
{
    atomic_fetch_add(&c->refs, 1);
}

static void client_destroy(dibs_client *c)
{
    if (c->not_forked)
        munmap((void *)c->not_forked, 1);
    dibs__url_clear(&c->to.url);
    dibs__free((void *)c->to.client_name);
    dibs__stats_free(c->stats);
    dibs__free(c);
}

/* The caller must have joined the threads. */
static void client_clear(dibs_client *c)
{
    dibs__callbacks_clear(&c->callbacks);
    dibs__lease_timers_clear(&c->lease_timers);
    dibs__topology_clear(c);
    dibs__mutex_clear(&c->mu);
    pthread_cond_destroy(&c->closed_cv);
    sem_destroy(&c->lifecycle.step_done);
    sem_destroy(&c->calls_drained);
    client_destroy(c);
}

void dibs__client_unref(dibs_client *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1 || dibs__client_is_forked_copy(c))
        return;
    if (c->lock_layer)
        c->lock_layer->free(c->upper_arg);
    client_clear(c);
}

/* ---- opening ----------------------------------------------------------- */

static bool generate_uuid(char id[DIBS__UUID_LEN + 1])
{
    unsigned char r[16];

    if (!dibs__random(r, sizeof r))
        return false;
    r[6] = (unsigned char)(0x40 | (r[6] & 0x0f));
    r[8] = (unsigned char)(0x80 | (r[8] & 0x3f));
    snprintf(id, DIBS__UUID_LEN + 1,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x"
             "%02x",
             r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10],
             r[11], r[12], r[13], r[14], r[15]);
    return true;
}

static bool map_fork_page(dibs_client *c)
{
    void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return false;
    c->not_forked = page;
    *c->not_forked = 1;
    return madvise(page, 1, MADV_WIPEONFORK) == 0;
}

static void start_io(struct dibs__task *t)
{
    dibs__topology_start(DIBS_OF(t, dibs_client, start));
}

static void client_init(dibs_client *c, const dibs_client_opts *o)
{
    dibs__mutex_init(&c->mu, RANK_CLIENT);
    pthread_cond_init(&c->closed_cv, NULL);
    sem_init(&c->lifecycle.step_done, 0, 0);
    sem_init(&c->calls_drained, 0, 0);
    atomic_init(&c->refs, 1);
    c->lease_ms = o->lease_ms ? o->lease_ms : LEASE_MS;
    c->replicas = o->replicas;
    c->opts.fair_wait_ms = o->fair_wait_ms;
    c->opts.fair_call_ms = o->fair_call_ms;
    c->opts.prefer_readers = o->prefer_readers;
    c->opts.small_tokens = o->small_tokens;
    c->on_event = o->on_event;
    c->event_arg = o->event_arg;
    c->lease_timers.lp = &c->loop;
    c->start.run = start_io;
    dibs__lease_timers_init(&c->lease_timers);
}

/* The program has no pointer to the client yet, so it cannot dispatch the
 * queued events: they are dispatched here. */
static void dispatch_events_of_failed(dibs_client *c, dibs_err err)
{
    char why[DIBS__REASON_MAX];

    /* The event callback runs on this thread and may overwrite its error text.
     */
    dibs__reason_end(err);
    snprintf(why, sizeof why, "%s", dibs_error_text());
    dibs__callbacks_stop(&c->callbacks);
    (void)dibs__callbacks_dispatch(&c->callbacks);
    dibs__reason_set(err, "%s", why);
}

/* Creates the client and starts its loop; connects nothing. On failure nothing
 * is left. */
static dibs_err client_new(const char *url, const dibs_client_opts *o,
                           dibs_client **out)
{
    dibs_client *c = dibs__calloc(1, sizeof *c);

    if (!c)
        return DIBS_ERR_NOMEM;
    dibs_err err = DIBS_ERR_NOMEM;
    c->stats = dibs__stats_new();
    if (c->stats && generate_uuid(c->id) && map_fork_page(c))
        err = dibs__callbacks_init(&c->callbacks, &c->loop,
                                   o->callbacks == DIBS_CALLBACKS_DISPATCH);
    if (err != DIBS_OK) {
        client_destroy(c);
        return err;
    }
    client_init(c, o);
    if (o->on_event)
        err = dibs__callbacks_ensure_thread(&c->callbacks);
    if (err == DIBS_OK)
        err = dibs__options_apply(c, url, o);
    if (err == DIBS_OK)
        err = dibs__topology_init(c, o);
    if (err == DIBS_OK)
        err = dibs__loop_start(&c->loop);
    if (err == DIBS_OK) {
        *out = c;
        return DIBS_OK;
    }
    dispatch_events_of_failed(c, err);
    client_clear(c);
    return err;
}

static dibs_err client_close(dibs_client *c, int64_t timeout_ms);

static dibs_err client_open(const char *url, const dibs_client_opts *opts,
                            dibs_client **out)
{
    dibs_client *c = NULL;
    dibs_client_opts o;

    if (dibs__check_not_null("url", url) || dibs__check_not_null("out", out) ||
        dibs__struct_read(&dibs__struct_client_opts, opts, &o))
        return DIBS_ERR_INVALID;
    dibs_err err = client_new(url, &o, &c);
    if (err != DIBS_OK)
        return err;
    dibs__loop_post(&c->loop, &c->start);
    if (!o.lazy) {
        while (sem_wait(&c->lifecycle.step_done) != 0)
            ;
        err = c->lifecycle.err;
    }
    if (err != DIBS_OK) {
        (void)client_close(c, 0);
        dibs__reason_set(err, "%s", c->lifecycle.why);
        dispatch_events_of_failed(c, err);
        dibs_client_free(c);
        return err;
    }
    *out = c;
    return DIBS_OK;
}

dibs_err dibs_client_open(const char *url, const dibs_client_opts *opts,
                          dibs_client **out)
{
    dibs__cancel_disable();
    dibs_err err = DIBS__API_CALL(client_open(url, opts, out));
    dibs__cancel_restore();
    return err;
}

/* ---- closing ----------------------------------------------------------- */

/* First step, on io. */
static void close_lock_layer(struct dibs__task *t)
{
    dibs_client *c = DIBS_OF(t, dibs_client, step);

    if (c->lock_layer)
        c->lock_layer->close(c->upper_arg, c->close_deadline);
    else
        dibs__client_wait_empty(c, true);
}

void dibs__client_wait_empty(dibs_client *c, bool all_released)
{
    c->all_released = all_released;
    sem_post(&c->lifecycle.step_done);
}

/* Second step, on io. */
static void close_connections(struct dibs__task *t)
{
    dibs_client *c = DIBS_OF(t, dibs_client, step);

    dibs__lease_timers_stop(&c->lease_timers);
    dibs__topology_close(c);
}

static void run_close_step(dibs_client *c, void (*run)(struct dibs__task *))
{
    c->step.run = run;
    dibs__loop_post(&c->loop, &c->step);
    while (sem_wait(&c->lifecycle.step_done) != 0)
        ;
}

static void wait_for_calls(dibs_client *c)
{
    while (atomic_load(&c->active_calls) > 0)
        while (sem_wait(&c->calls_drained) != 0)
            ;
    while (atomic_load(&c->leaving_calls) > 0)
        sched_yield(); /* dibs__client_leave has only a few instructions left */
}

/* Another thread closes, or has closed, the client: all get one result. */
static dibs_err wait_closed(dibs_client *c)
{
    dibs__lock(&c->mu);
    while (!c->closed)
        dibs__cond_wait(&c->closed_cv, &c->mu);
    dibs_err err = c->close_err;
    dibs__unlock(&c->mu);
    return err;
}

static dibs_err client_close(dibs_client *c, int64_t timeout_ms)
{
    if (atomic_exchange(&c->closing, true))
        return wait_closed(c);
    c->close_deadline =
        dibs__add(dibs__now_ms(), timeout_ms ? timeout_ms : CLOSE_MS);
    run_close_step(c, close_lock_layer);
    run_close_step(c, close_connections);
    wait_for_calls(c);
    dibs__loop_stop(&c->loop);
    dibs__callbacks_stop(&c->callbacks);
    dibs_err err = c->all_released ? DIBS_OK : DIBS_ERR_UNKNOWN;
    dibs__lock(&c->mu);
    c->closed = true;
    c->close_err = err;
    pthread_cond_broadcast(&c->closed_cv);
    dibs__unlock(&c->mu);
    return err;
}

static dibs_err close_checked(dibs_client *c, int64_t timeout_ms)
{
    if (dibs__check_not_null("client", c) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (dibs__check_time("timeout_ms", timeout_ms) != DIBS_OK)
        return dibs__client_report_invalid_arg(c);
    if (dibs__client_is_forked_copy(c))
        return DIBS_ERR_FORKED;
    if (dibs__callbacks_inside(&c->callbacks))
        return DIBS_ERR_DEADLOCK;
    dibs__cancel_disable();
    dibs_err err = client_close(c, timeout_ms);
    dibs__cancel_restore();
    return err;
}

/* Reads io's state without a lock: after UNKNOWN the io thread has been joined.
 */
static dibs_err explain_close(const dibs_client *c, dibs_err err)
{
    if (err != DIBS_ERR_UNKNOWN)
        return err;
    const char *why =
        c->node ? c->node->server.last_error : c->cluster->slots.last_error;
    return dibs__reason_set(err, "not every release was confirmed in time%s%s",
                            why[0] ? "; last error: " : "", why);
}

dibs_err dibs_client_close(dibs_client *c, int64_t timeout_ms)
{
    return DIBS__API_CALL(explain_close(c, close_checked(c, timeout_ms)));
}

void dibs_client_free(dibs_client *c)
{
    if (!c)
        return;
    if (dibs__client_is_forked_copy(c)) {
        dibs__topology_abandon(c);
        return;
    }
    if (close_checked(c, 0) == DIBS_ERR_DEADLOCK)
        return;
    dibs__callbacks_drop(&c->callbacks); /* they may hold references to c */
    dibs__client_unref(c);
}

dibs_err dibs__client_report_invalid_arg(dibs_client *c)
{
    if (!c || !c->on_event || dibs__client_enter(c) != DIBS_OK)
        return DIBS_ERR_INVALID; /* no event callback, or closed */
    dibs__client_emit_event(c, DIBS_EVENT_ERROR, DIBS_ERR_INVALID,
                            dibs_error_text());
    dibs__client_leave(c);
    return DIBS_ERR_INVALID;
}

/* ---- accessors --------------------------------------------------------- */

const char *dibs_client_id(const dibs_client *c)
{
    return c ? c->id : "";
}

int dibs_client_fd(const dibs_client *c)
{
    return dibs__client_is_forked_copy(c) ? -1 : c->callbacks.fd;
}

int dibs_client_dispatch(dibs_client *c)
{
    return dibs__client_is_forked_copy(c)
               ? 0
               : dibs__callbacks_dispatch(&c->callbacks);
}

/* ---- statistics -------------------------------------------------------- */

/* Works on a closed client, too. */
static dibs_err stats_get(dibs_client *c, dibs_stats *out)
{
    dibs_stats sum = {.size = sizeof sum};

    if (dibs__check_not_null("client", c))
        return DIBS_ERR_INVALID;
    if (dibs__client_is_forked_copy(c))
        return DIBS_ERR_FORKED;
    if (dibs__struct_check(&dibs__struct_stats, out) != DIBS_OK)
        return dibs__client_report_invalid_arg(c);
    dibs__stats_sum(c->stats, &sum);
    dibs__struct_write(&dibs__struct_stats, &sum, out);
    return DIBS_OK;
}

dibs_err dibs_client_stats(dibs_client *c, dibs_stats *out)
{
    return DIBS__API_CALL(stats_get(c, out));
}
