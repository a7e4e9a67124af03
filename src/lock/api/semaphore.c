/* SPDX-License-Identifier: MIT
 *
 * semaphore.c - permits without owners: Redisson's semaphore.
 *
 * Thread  app.
 * Locks   entry.mu, to find the hold that a release ends.
 *
 * How     Each acquire is the acquire of a lock type of its own
 *         (type_semaphore.c) by a new owner, so it waits, is renewed, is lost
 *         and is reaped like any lock. A release has no owner: it ends the
 *         oldest hold with that number of permits. All other calls are requests
 *         (inspect/request.h).
 *
 * Limits  Each command must count once, however often it is sent. Acquire and
 *         release record the owner in a sorted set; the requests keep their
 *         result under a key of their own (guard), which a repeated send
 *         returns.
 */
#include "base/api_args.h"
#include "base/mem.h"
#include "lock/inspect/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD             "dibs_req:" /* key of a request's kept result */
#define PERMIT_DIGITS_MAX 10

struct dibs_semaphore {
    dibs_lock *l;
};

/* ---- handles ----------------------------------------------------------- */

static dibs_err semaphore_new(dibs_client *c, const char *name,
                              dibs_semaphore **out)
{
    dibs_lock *l = NULL;

    if (dibs__check_not_null("out", out) != DIBS_OK)
        return dibs__client_report_invalid_arg(c);
    dibs_err err = dibs__lock_new(c, &dibs__type_semaphore, name,
                                  dibs__name_length(name), &l);
    if (err != DIBS_OK)
        return err;
    dibs_semaphore *s = dibs__malloc(sizeof *s);
    if (!s) {
        dibs_lock_free(l);
        return DIBS_ERR_NOMEM;
    }
    s->l = l;
    *out = s;
    return DIBS_OK;
}

dibs_err dibs_semaphore_new(dibs_client *c, const char *name,
                            dibs_semaphore **out)
{
    return DIBS__API_CALL(semaphore_new(c, name, out));
}

void dibs_semaphore_free(dibs_semaphore *s)
{
    if (!s)
        return;
    dibs_lock_free(s->l);
    dibs__free(s);
}

/* ---- options ----------------------------------------------------------- */

static dibs_err check_permits(int64_t permits, int64_t min)
{
    if (permits >= min && permits <= DIBS_PERMITS_MAX)
        return DIBS_OK;
    return dibs__reason_set(
        DIBS_ERR_INVALID, "permits is %lld, it must be %lld to %lld",
        (long long)permits, (long long)min, (long long)DIBS_PERMITS_MAX);
}

/* Converts the options to those of a lock and the number of permits. Returns
 * OK, or INVALID with a reason that was logged. */
static dibs_err take_semaphore_opts(const dibs_semaphore *s,
                                    const dibs_semaphore_opts *in,
                                    dibs_lock_opts *o, int64_t *permits)
{
    dibs_semaphore_opts so;

    if (dibs__check_not_null("semaphore", s) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (dibs__struct_read(&dibs__struct_semaphore_opts, in, &so) ||
        check_permits(so.permits, 0) ||
        dibs__check_time("wait_ms", so.wait_ms) ||
        dibs__check_ms("lease_ms", so.lease_ms, DIBS_LEASE_MIN_MS, DIBS_MS_MAX))
        return dibs__lock_report_invalid_arg(s->l);
    *o = (dibs_lock_opts){.size = sizeof *o,
                          .wait_ms = so.wait_ms,
                          .lease_ms = so.lease_ms,
                          .on_lost = so.on_lost,
                          .arg = so.arg};
    *permits = so.permits ? so.permits : 1;
    return DIBS_OK;
}

/* ---- acquire and release ----------------------------------------------- */

typedef dibs_err semaphore_filler(struct dibs__operation *op,
                                  const dibs_lock_opts *o, bool trying);

/* Arguments of one acquire or release. */
struct semaphore_call {
    dibs_lock_opts o;
    semaphore_filler *fill;
    int64_t permits;
    bool trying;
    dibs_cb cb; /* NULL: a sync call */
    void *arg;
};

static dibs_err semaphore_fill(struct dibs__operation *op,
                               const struct semaphore_call *sc)
{
    dibs_err err = sc->fill(op, &sc->o, sc->trying);

    op->args.value = sc->permits;
    return err;
}

static dibs_err semaphore_sync(dibs_lock *l, const struct semaphore_call *sc)
{
    struct dibs__operation op;

    dibs__op_init(&op, l);
    dibs_err err = semaphore_fill(&op, sc);
    if (err == DIBS_OK)
        err = dibs__op_wait(&op);
    dibs__loss_suppress_and_wait(op.loss);
    dibs__loss_unref(op.loss);
    return err;
}

static dibs_err semaphore_async(dibs_lock *l, const struct semaphore_call *sc)
{
    dibs_err err = dibs__callbacks_ensure_thread(&l->c->callbacks);

    if (err != DIBS_OK)
        return err;
    struct dibs__operation *op = dibs__op_new(l, sizeof *op);
    if (!op)
        return DIBS_ERR_NOMEM;
    err = semaphore_fill(op, sc);
    if (err != DIBS_OK) {
        dibs__op_discard(op);
        return err;
    }
    op->fn = sc->cb;
    op->arg = sc->arg;
    dibs__op_begin(op);
    return DIBS_OK;
}

/* The caller has entered the client. */
static dibs_err semaphore_begin(dibs_lock *l, const struct semaphore_call *sc)
{
    return sc->cb ? semaphore_async(l, sc) : semaphore_sync(l, sc);
}

static dibs_err semaphore_run(dibs_lock *l, const struct semaphore_call *sc)
{
    dibs_err err = dibs__lock_enter(l);

    if (err != DIBS_OK)
        return err;
    dibs_client *c = l->c; /* a callback may free the handle meanwhile */
    err = semaphore_begin(l, sc);
    dibs__client_leave(c);
    return err;
}

/* Inside a callback it tries once, like dibs_lock_acquire (lock_api.c). */
static dibs_err semaphore_acquire(dibs_semaphore *s,
                                  const dibs_semaphore_opts *opts, bool trying,
                                  dibs_cb cb, void *arg)
{
    struct semaphore_call sc = {
        .fill = dibs__acquire_fill, .trying = trying, .cb = cb, .arg = arg};

    if (take_semaphore_opts(s, opts, &sc.o, &sc.permits) != DIBS_OK)
        return DIBS_ERR_INVALID;
    bool in_callback = !cb && !trying &&
                       !dibs__client_is_forked_copy(s->l->c) &&
                       dibs__callbacks_inside(&s->l->c->callbacks);
    sc.trying |= in_callback;
    sc.o.owner = dibs__owner_new_number();
    dibs_err err = semaphore_run(s->l, &sc);
    return in_callback && err == DIBS_ERR_BUSY ? DIBS_ERR_DEADLOCK : err;
}

/* Claims the oldest hold with that number of permits that no other release has
 * claimed. Returns its owner and fills text with the owner's name on the
 * server; 0: there is none. */
static dibs_owner claim_hold(struct dibs__lock_entry *entry, int64_t permits,
                             char text[DIBS_OWNER_MAX])
{
    struct dibs__hold *h = NULL;
    dibs_owner owner = 0;

    dibs__lock(&entry->mu);
    while ((h = dibs__hold_next(entry, h)) && !owner) {
        if (h->value != permits || h->release_claimed || h->count == 0)
            continue;
        h->release_claimed = true;
        owner = h->owner;
        dibs__owner_text(entry, h->owner_id, text);
    }
    dibs__unlock(&entry->mu);
    return owner;
}

/* The release failed: the hold, if it still exists, is available to another
 * release. */
static void unclaim_hold(struct dibs__lock_entry *entry, dibs_owner owner)
{
    dibs__lock(&entry->mu);
    struct dibs__hold *h = dibs__hold_of(entry, owner);
    if (h)
        h->release_claimed = false;
    dibs__unlock(&entry->mu);
}

/* Returns the error of a release that found no hold: if the client has begun to
 * close meanwhile, the close may have released it. */
static dibs_err no_hold_error(struct dibs__lock_entry *entry)
{
    if (!atomic_load(&entry->manager->closing))
        return DIBS_ERR_NOT_OWNER;
    dibs__release_suppress_losses(entry, 0);
    return DIBS_ERR_CLOSED;
}

/* Releases a hold. text: unless NULL, the hold is detached (left on the server)
 * instead, and text is filled with its owner. */
static dibs_err release_or_detach(dibs_semaphore *s, struct semaphore_call *sc,
                                  char text[DIBS_OWNER_MAX])
{
    char unused[DIBS_OWNER_MAX];
    struct dibs__lock_entry *entry = s->l->entry;
    dibs_err err = dibs__lock_enter(s->l);

    /* The hold stays claimed, so that the next release takes another. A lost
     * hold has left the entry; its number of permits is not known any more. */
    if (err == DIBS_ERR_CLOSED)
        dibs__release_suppress_losses(entry,
                                      claim_hold(entry, sc->permits, unused));
    if (err != DIBS_OK)
        return err;
    dibs_client *c = s->l->c;
    dibs__entry_ref(entry); /* a callback may free the handle meanwhile */
    sc->o.leave = text != NULL;
    sc->o.owner = claim_hold(entry, sc->permits, text ? text : unused);
    err = sc->o.owner ? semaphore_begin(s->l, sc) : no_hold_error(entry);
    if (sc->o.owner && err != DIBS_OK)
        unclaim_hold(entry, sc->o.owner);
    dibs__entry_unref(entry);
    dibs__client_leave(c);
    return err;
}

static dibs_err semaphore_release(dibs_semaphore *s,
                                  const dibs_semaphore_opts *opts, dibs_cb cb,
                                  void *arg)
{
    struct semaphore_call sc = {
        .fill = dibs__release_fill, .cb = cb, .arg = arg};

    if (take_semaphore_opts(s, opts, &sc.o, &sc.permits) != DIBS_OK)
        return DIBS_ERR_INVALID;
    return release_or_detach(s, &sc, NULL);
}

static dibs_err semaphore_report_null_cb(const dibs_semaphore *s)
{
    dibs__check_not_null("cb", NULL);
    return s ? dibs__lock_report_invalid_arg(s->l) : DIBS_ERR_INVALID;
}

dibs_err dibs_semaphore_acquire(dibs_semaphore *s,
                                const dibs_semaphore_opts *opts)
{
    return DIBS__API_CALL(semaphore_acquire(s, opts, false, NULL, NULL));
}

dibs_err dibs_semaphore_try(dibs_semaphore *s, const dibs_semaphore_opts *opts)
{
    return DIBS__API_CALL(semaphore_acquire(s, opts, true, NULL, NULL));
}

dibs_err dibs_semaphore_release(dibs_semaphore *s,
                                const dibs_semaphore_opts *opts)
{
    return DIBS__API_CALL(semaphore_release(s, opts, NULL, NULL));
}

dibs_err dibs_semaphore_acquire_async(dibs_semaphore *s,
                                      const dibs_semaphore_opts *opts,
                                      dibs_cb cb, void *arg)
{
    return DIBS__API_CALL(cb ? semaphore_acquire(s, opts, false, cb, arg)
                             : semaphore_report_null_cb(s));
}

dibs_err dibs_semaphore_try_async(dibs_semaphore *s,
                                  const dibs_semaphore_opts *opts, dibs_cb cb,
                                  void *arg)
{
    return DIBS__API_CALL(cb ? semaphore_acquire(s, opts, true, cb, arg)
                             : semaphore_report_null_cb(s));
}

dibs_err dibs_semaphore_release_async(dibs_semaphore *s,
                                      const dibs_semaphore_opts *opts,
                                      dibs_cb cb, void *arg)
{
    return DIBS__API_CALL(cb ? semaphore_release(s, opts, cb, arg)
                             : semaphore_report_null_cb(s));
}

/* ---- leave and adopt --------------------------------------------------- */

/* buf: "permits:uuid:number", as the server's sorted set has it. */
static dibs_err semaphore_leave(dibs_semaphore *s,
                                const dibs_semaphore_opts *opts, char *buf,
                                size_t size)
{
    struct semaphore_call sc = {.fill = dibs__release_fill};
    char owner[DIBS_OWNER_MAX];

    if (take_semaphore_opts(s, opts, &sc.o, &sc.permits) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (dibs__check_not_null("buf", buf) != DIBS_OK || size < DIBS_OWNER_MAX) {
        dibs__reason_set(DIBS_ERR_INVALID, "buf must have %d bytes",
                         DIBS_OWNER_MAX);
        return dibs__lock_report_invalid_arg(s->l);
    }
    dibs_err err = release_or_detach(s, &sc, owner);
    if (err == DIBS_OK)
        snprintf(buf, size, "%lld:%.140s", (long long)sc.permits, owner);
    return err;
}

dibs_err dibs_semaphore_leave(dibs_semaphore *s,
                              const dibs_semaphore_opts *opts, char *buf,
                              size_t size)
{
    return DIBS__API_CALL(semaphore_leave(s, opts, buf, size));
}

static bool parse_permits(const char *text, struct dibs__owner_name *name,
                          int64_t *permits)
{
    size_t len = text ? strnlen(text, DIBS_OWNER_MAX) : 0;
    size_t digits = text ? strspn(text, "0123456789") : 0;

    if (digits == 0 || digits > PERMIT_DIGITS_MAX || text[0] == '0' ||
        text[digits] != ':')
        return false;
    *permits = dibs__parse_number(text, text + digits);
    return *permits <= DIBS_PERMITS_MAX &&
           dibs__owner_parse(text + digits + 1, text + len, name);
}

static dibs_err semaphore_adopt(dibs_semaphore *s, const char *text,
                                const dibs_semaphore_opts *opts,
                                int64_t *permits)
{
    struct dibs__owner_name name;
    dibs_lock_opts o;
    dibs_owner owner;
    int64_t count;

    if (take_semaphore_opts(s, opts, &o, &count) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (!parse_permits(text, &name, &count)) {
        dibs__reason_set(DIBS_ERR_INVALID,
                         "text is '%.160s', it must be what "
                         "dibs_semaphore_leave gave",
                         text ? text : "NULL");
        return dibs__lock_report_invalid_arg(s->l);
    }
    dibs_err err = dibs__lock_enter(s->l);
    if (err != DIBS_OK)
        return err;
    dibs_client *c = s->l->c;
    err = dibs__adopt_named(s->l, &name, &o, count, &owner);
    dibs__client_leave(c);
    if (err == DIBS_OK && permits)
        *permits = count;
    return err;
}

dibs_err dibs_semaphore_adopt(dibs_semaphore *s, const char *text,
                              const dibs_semaphore_opts *opts, int64_t *permits)
{
    return DIBS__API_CALL(semaphore_adopt(s, text, opts, permits));
}

/* ---- requests ---------------------------------------------------------- */

/* "{name}:dibs_req:id". */
static void guard_arg(struct dibs__buf *out, const struct dibs__request *r)
{
    dibs__suffix_arg(out, r->op.entry, GUARD, r->id);
}

static void semaphore_set_write(const struct dibs__request *r,
                                struct dibs__buf *out, bool whole)
{
    dibs__request_head(r, &dibs__script_semaphore_set, 3, 2, out, whole);
    dibs__request_args(r, "nd", out);
    guard_arg(out, r);
    dibs__buf_arg_num(out, r->number);
    dibs__request_args(r, "c*", out);
}

static void semaphore_add_write(const struct dibs__request *r,
                                struct dibs__buf *out, bool whole)
{
    dibs__request_head(r, &dibs__script_semaphore_add, 2, 2, out, whole);
    dibs__request_args(r, "n", out);
    guard_arg(out, r);
    dibs__buf_arg_num(out, r->number);
    dibs__request_args(r, "c*", out);
}

static void semaphore_drain_write(const struct dibs__request *r,
                                  struct dibs__buf *out, bool whole)
{
    dibs__request_head(r, &dibs__script_semaphore_drain, 2, 0, out, whole);
    dibs__request_args(r, "n", out);
    guard_arg(out, r);
    dibs__request_args(r, "*", out);
}

static void semaphore_info_write(const struct dibs__request *r,
                                 struct dibs__buf *out, bool whole)
{
    dibs__request_head(r, &dibs__script_semaphore_info, 2, 1, out, whole);
    dibs__request_args(r, "ndc*", out);
}

/* The result of a guarded request: a number as text. */
static dibs_err guard_read(struct dibs__request *r,
                           const struct dibs__reply *reply)
{
    if (reply->type != REPLY_TEXT || reply->len == 0)
        return DIBS_ERR_PROTOCOL;
    r->result[0] = strtoll(reply->text, NULL, 10);
    return DIBS_OK;
}

static dibs_err semaphore_info_read(struct dibs__request *r,
                                    const struct dibs__reply *reply)
{
    return dibs__reply_num(reply, 1, &r->result[0]) ? DIBS_OK
                                                    : DIBS_ERR_PROTOCOL;
}

/* Runs a request. out: gets its result; or NULL. */
static dibs_err semaphore_run_request(dibs_semaphore *s,
                                      struct dibs__request *r, int64_t *out)
{
    if (dibs__check_not_null("semaphore", s) != DIBS_OK)
        return DIBS_ERR_INVALID;
    dibs_err err = dibs__request_run(s->l, r, NULL, NULL);
    if (err == DIBS_OK && out)
        *out = r->result[0];
    return err;
}

static dibs_err semaphore_set(dibs_semaphore *s, int64_t permits, bool *was_set)
{
    struct dibs__request r = {
        .write = semaphore_set_write, .read = guard_read, .number = permits};
    int64_t done;

    if (check_permits(permits, 0) != DIBS_OK)
        return s ? dibs__lock_report_invalid_arg(s->l) : DIBS_ERR_INVALID;
    dibs_err err = semaphore_run_request(s, &r, &done);
    if (err == DIBS_OK && was_set)
        *was_set = done == 1;
    return err;
}

dibs_err dibs_semaphore_set(dibs_semaphore *s, int64_t permits, bool *was_set)
{
    return DIBS__API_CALL(semaphore_set(s, permits, was_set));
}

static dibs_err semaphore_available(dibs_semaphore *s, int64_t *available)
{
    struct dibs__request r = {.write = semaphore_info_write,
                              .read = semaphore_info_read};

    if (dibs__check_not_null("available", available) != DIBS_OK)
        return s ? dibs__lock_report_invalid_arg(s->l) : DIBS_ERR_INVALID;
    return semaphore_run_request(s, &r, available);
}

dibs_err dibs_semaphore_available(dibs_semaphore *s, int64_t *available)
{
    return DIBS__API_CALL(semaphore_available(s, available));
}

static dibs_err semaphore_add(dibs_semaphore *s, int64_t permits,
                              int64_t *available)
{
    struct dibs__request r = {
        .write = semaphore_add_write, .read = guard_read, .number = permits};

    if (check_permits(permits, -DIBS_PERMITS_MAX) != DIBS_OK)
        return s ? dibs__lock_report_invalid_arg(s->l) : DIBS_ERR_INVALID;
    return semaphore_run_request(s, &r, available);
}

dibs_err dibs_semaphore_add(dibs_semaphore *s, int64_t permits,
                            int64_t *available)
{
    return DIBS__API_CALL(semaphore_add(s, permits, available));
}

dibs_err dibs_semaphore_drain(dibs_semaphore *s, int64_t *drained)
{
    struct dibs__request r = {.write = semaphore_drain_write,
                              .read = guard_read};

    return DIBS__API_CALL(semaphore_run_request(s, &r, drained));
}
