/* SPDX-License-Identifier: MIT
 *
 * lock_api.c - the public calls that acquire, query and release any handle.
 *
 * Thread  app.
 * Locks   none.
 *
 * Arguments and options are checked here; the handle's table of operations does
 * the rest: that of one lock (lock.c) or of a group (src/group).
 */
#include "lock/api/lock.h"

#include "base/api_args.h"
#include "base/mem.h"

#include <string.h>

/* ---- checks ------------------------------------------------------------ */

dibs_err dibs__lock_report_invalid_arg(const dibs_lock *l)
{
    return l ? dibs__client_report_invalid_arg(l->c) : DIBS_ERR_INVALID;
}

/* A group has no name of its own. */
static dibs_err check_one_name(const dibs_lock *l)
{
    if (!l->ops->no_name)
        return DIBS_OK;
    dibs__reason_set(DIBS_ERR_INVALID, "%s", l->ops->no_name);
    return dibs__lock_report_invalid_arg(l);
}

dibs_err dibs__lock_enter(const dibs_lock *l)
{
    if (dibs__check_not_null("lock", l) || check_one_name(l))
        return DIBS_ERR_INVALID;
    return dibs__client_enter(l->c);
}

static dibs_err check_lease(const char *what, int64_t ms)
{
    return dibs__check_ms(what, ms, DIBS_LEASE_MIN_MS, DIBS_MS_MAX);
}

static dibs_err check_lock_opts(const dibs_lock_opts *o)
{
    if (dibs__check_time("wait_ms", o->wait_ms) ||
        check_lease("lease_ms", o->lease_ms) ||
        check_lease("max_hold_ms", o->max_hold_ms) ||
        dibs__check_time("keep_ms", o->keep_ms) ||
        dibs__check_time("member_ms", o->member_ms) ||
        dibs__check_time("replicas_timeout_ms", o->replicas_timeout_ms))
        return DIBS_ERR_INVALID;
    if (o->lease_ms && o->max_hold_ms)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "max_hold_ms is for renewed locks, and one "
                                "with a lease_ms is not renewed");
    if (o->leave && o->keep_ms)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "leave and keep_ms exclude each other");
    if (o->replicas < DIBS_REPLICAS_NONE)
        return dibs__reason_set(DIBS_ERR_INVALID,
                                "replicas is %d, it must be a number or one of "
                                "DIBS_REPLICAS_ALL and _NONE",
                                o->replicas);
    return DIBS_OK;
}

dibs_err dibs__lock_opts_take(const dibs_lock *l, const dibs_lock_opts *in,
                              dibs_lock_opts *o)
{
    if (dibs__struct_read(&dibs__struct_lock_opts, in, o) ||
        check_lock_opts(o) || dibs__check_not_null("lock", l))
        return dibs__lock_report_invalid_arg(l);
    return l->ops->is_forked_copy(l) ? DIBS_ERR_FORKED : DIBS_OK;
}

/* ---- acquire and release ----------------------------------------------- */

static dibs_err acquire_handle(dibs_lock *l, const dibs_lock_opts *opts,
                               bool trying, dibs_cb fn, void *arg)
{
    dibs_lock_opts o;
    dibs_err err = dibs__lock_opts_take(l, opts, &o);

    return err ? err : l->ops->acquire(l, &o, trying, fn, arg);
}

static dibs_err release_handle(dibs_lock *l, const dibs_lock_opts *opts,
                               dibs_cb fn, void *arg)
{
    dibs_lock_opts o;
    dibs_err err = dibs__lock_opts_take(l, opts, &o);

    return err ? err : l->ops->release(l, &o, fn, arg);
}

/* Inside a callback an acquire tries once and returns DEADLOCK instead of BUSY:
 * the lock may be released by a callback that runs after this one. */
static dibs_err acquire_waiting(dibs_lock *l, const dibs_lock_opts *opts)
{
    bool in_callback =
        l && !l->ops->is_forked_copy(l) && l->ops->in_callback(l);
    dibs_err err = acquire_handle(l, opts, in_callback, NULL, NULL);

    return in_callback && err == DIBS_ERR_BUSY ? DIBS_ERR_DEADLOCK : err;
}

dibs_err dibs_lock_acquire(dibs_lock *l, const dibs_lock_opts *opts)
{
    return DIBS__API_CALL(acquire_waiting(l, opts));
}

dibs_err dibs_lock_try(dibs_lock *l, const dibs_lock_opts *opts)
{
    return DIBS__API_CALL(acquire_handle(l, opts, true, NULL, NULL));
}

dibs_err dibs_lock_release(dibs_lock *l, const dibs_lock_opts *opts)
{
    return DIBS__API_CALL(release_handle(l, opts, NULL, NULL));
}

static dibs_err report_null_cb(const dibs_lock *l)
{
    dibs__check_not_null("cb", NULL);
    return dibs__lock_report_invalid_arg(l);
}

dibs_err dibs_lock_acquire_async(dibs_lock *l, const dibs_lock_opts *opts,
                                 dibs_cb cb, void *arg)
{
    return DIBS__API_CALL(cb ? acquire_handle(l, opts, false, cb, arg)
                             : report_null_cb(l));
}

dibs_err dibs_lock_try_async(dibs_lock *l, const dibs_lock_opts *opts,
                             dibs_cb cb, void *arg)
{
    return DIBS__API_CALL(cb ? acquire_handle(l, opts, true, cb, arg)
                             : report_null_cb(l));
}

dibs_err dibs_lock_release_async(dibs_lock *l, const dibs_lock_opts *opts,
                                 dibs_cb cb, void *arg)
{
    return DIBS__API_CALL(cb ? release_handle(l, opts, cb, arg)
                             : report_null_cb(l));
}

static dibs_err cancel_handle(dibs_lock *l, dibs_owner owner)
{
    if (dibs__check_not_null("lock", l) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (l->ops->is_forked_copy(l))
        return DIBS_ERR_FORKED;
    return l->ops->cancel(l, owner ? owner : dibs__owner_thread());
}

dibs_err dibs_lock_cancel(dibs_lock *l, dibs_owner owner)
{
    return DIBS__API_CALL(cancel_handle(l, owner));
}

void dibs_lock_free(dibs_lock *l)
{
    if (l)
        l->ops->free(l);
}

/* ---- local state ------------------------------------------------------- */

static struct dibs__local_state handle_local_state(const dibs_lock *l,
                                                   dibs_owner owner)
{
    if (!l || l->ops->is_forked_copy(l))
        return (struct dibs__local_state){.state = DIBS_NOT_HELD};
    return l->ops->local_state(l, owner ? owner : dibs__owner_thread());
}

dibs_state dibs_lock_state(const dibs_lock *l, dibs_owner owner)
{
    return handle_local_state(l, owner).state;
}

int64_t dibs_lock_valid_ms(const dibs_lock *l, dibs_owner owner)
{
    return handle_local_state(l, owner).valid_ms;
}

int64_t dibs_lock_holds(const dibs_lock *l, dibs_owner owner)
{
    return handle_local_state(l, owner).holds;
}

static dibs_err get_owner_text(const dibs_lock *l, dibs_owner owner, char *buf,
                               size_t size)
{
    char text[DIBS_OWNER_MAX];

    if (dibs__check_not_null("lock", l) || dibs__check_not_null("buf", buf))
        return dibs__lock_report_invalid_arg(l);
    if (check_one_name(l) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (l->ops->is_forked_copy(l))
        return DIBS_ERR_FORKED;
    struct dibs__local_state held = handle_local_state(l, owner);
    if (held.state == DIBS_LOST)
        return DIBS_ERR_LOST;
    if (held.state == DIBS_NOT_HELD)
        return DIBS_ERR_NOT_OWNER;
    size_t len = dibs__owner_text(l->entry, held.owner_id, text);
    if (len >= size) {
        dibs__reason_set(DIBS_ERR_INVALID,
                         "size is %zu, the owner has %zu bytes with its NUL",
                         size, len + 1);
        return dibs__lock_report_invalid_arg(l);
    }
    memcpy(buf, text, len + 1);
    return DIBS_OK;
}

dibs_err dibs_lock_owner_text(const dibs_lock *l, dibs_owner owner, char *buf,
                              size_t size)
{
    return DIBS__API_CALL(get_owner_text(l, owner, buf, size));
}

static dibs_err get_member(dibs_lock *l, size_t index, dibs_owner owner,
                           dibs_member *out)
{
    if (dibs__check_not_null("lock", l) ||
        dibs__struct_check(&dibs__struct_member, out))
        return dibs__lock_report_invalid_arg(l);
    if (!l->ops->member) {
        dibs__reason_set(DIBS_ERR_INVALID, "the lock has no members");
        return dibs__lock_report_invalid_arg(l);
    }
    if (l->ops->is_forked_copy(l))
        return DIBS_ERR_FORKED;
    return l->ops->member(l, index, owner ? owner : dibs__owner_thread(), out);
}

dibs_err dibs_lock_members(dibs_lock *l, size_t index, dibs_owner owner,
                           dibs_member *out)
{
    return DIBS__API_CALL(get_member(l, index, owner, out));
}
