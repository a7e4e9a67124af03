/* SPDX-License-Identifier: MIT
 *
 * semaphore.c - permits without owners: Redisson's semaphore.
 *
 * Thread  app.
 * Locks   line.mu, to find what a release gives back.
 *
 * How     An acquire is that of a lock of a kind of its own (type_semaphore.c),
 *         by an owner that is made for this call: so it waits, is renewed, is
 *         lost and is taken back as any lock. A release finds one of these
 *         holds by how many permits it has. All else is a request.
 *
 * Trouble What is counted is counted once, however often it is sent: an acquire
 *         and a release by the book, the others by a guard that has the answer.
 */
#include "base/api_args.h"
#include "base/mem.h"
#include "lock/inspect/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD "dibs_req:"

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

static dibs_err check_permits(int64_t permits, int64_t least)
{
    if (permits >= least && permits <= DIBS_PERMITS_MAX)
        return DIBS_OK;
    return dibs__reason_set(
        DIBS_ERR_INVALID, "permits is %lld, it must be %lld to %lld",
        (long long)permits, (long long)least, (long long)DIBS_PERMITS_MAX);
}

/* What the options say, as those of a lock, and how many permits. OK, or
 * INVALID with a reason, which is told. */
static dibs_err take_semaphore_opts(const dibs_semaphore *s,
                                    const dibs_semaphore_opts *in,
                                    dibs_lock_opts *o, int64_t *permits)
{
    dibs_semaphore_opts so;

    if (dibs__check_not_null("semaphore", s) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (dibs__struct_take(&dibs__struct_semaphore_opts, in, &so) ||
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

/* ---- taking and giving back -------------------------------------------- */

typedef dibs_err semaphore_filler(struct dibs__operation *op,
                                  const dibs_lock_opts *o, bool trying);

/* What a call of these does. */
struct semaphore_call {
    dibs_lock_opts o;
    semaphore_filler *fill;
    int64_t permits;
    bool trying;
    dibs_cb cb; /* NULL: it waits */
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

/* The caller has entered. */
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

/* Inside a callback it must not wait, as for a lock. */
static dibs_err semaphore_acquire(dibs_semaphore *s,
                                  const dibs_semaphore_opts *opts, bool trying,
                                  dibs_cb cb, void *arg)
{
    struct semaphore_call sc = {
        .fill = dibs__acquire_fill, .trying = trying, .cb = cb, .arg = arg};

    if (take_semaphore_opts(s, opts, &sc.o, &sc.permits) != DIBS_OK)
        return DIBS_ERR_INVALID;
    bool inside = !cb && !trying && !dibs__client_is_forked_copy(s->l->c) &&
                  dibs__callbacks_inside(&s->l->c->callbacks);
    sc.trying |= inside;
    sc.o.owner = dibs__owner_number();
    dibs_err err = semaphore_run(s->l, &sc);
    return inside && err == DIBS_ERR_BUSY ? DIBS_ERR_DEADLOCK : err;
}

/* The oldest acquire that has so many, and that no other release has picked; 0:
 * there is none. text: its owner as the server knows it. */
static dibs_owner pick_hold(struct dibs__lock_entry *entry, int64_t permits,
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

/* The release did not begin, or is over: what it picked is there for another
 * one, if it is there at all. */
static void unpick_hold(struct dibs__lock_entry *entry, dibs_owner owner)
{
    dibs__lock(&entry->mu);
    struct dibs__hold *h = dibs__hold_of(entry, owner);
    if (h)
        h->release_claimed = false;
    dibs__unlock(&entry->mu);
}

/* Nothing was picked. If the client has begun to close since, the close may
 * have taken it. */
static dibs_err nothing_picked(struct dibs__lock_entry *entry)
{
    if (!atomic_load(&entry->manager->closing))
        return DIBS_ERR_NOT_OWNER;
    dibs__release_settle_closed(entry, 0);
    return DIBS_ERR_CLOSED;
}

/* text: not NULL, then it is left, and this is its owner. */
static dibs_err semaphore_give(dibs_semaphore *s, struct semaphore_call *sc,
                               char text[DIBS_OWNER_MAX])
{
    char unused[DIBS_OWNER_MAX];
    struct dibs__lock_entry *entry = s->l->entry;
    dibs_err err = dibs__lock_enter(s->l);

    /* It stays picked, the next release takes another one. What was lost is
     * out of the line by now, and nobody can tell who had how many. */
    if (err == DIBS_ERR_CLOSED)
        dibs__release_settle_closed(entry,
                                    pick_hold(entry, sc->permits, unused));
    if (err != DIBS_OK)
        return err;
    dibs_client *c = s->l->c;
    dibs__entry_ref(entry); /* a callback may free the handle meanwhile */
    sc->o.leave = text != NULL;
    sc->o.owner = pick_hold(entry, sc->permits, text ? text : unused);
    err = sc->o.owner ? semaphore_begin(s->l, sc) : nothing_picked(entry);
    if (sc->o.owner && err != DIBS_OK)
        unpick_hold(entry, sc->o.owner);
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
    return semaphore_give(s, &sc, NULL);
}

static dibs_err refuse_semaphore_cb(const dibs_semaphore *s)
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
                             : refuse_semaphore_cb(s));
}

dibs_err dibs_semaphore_try_async(dibs_semaphore *s,
                                  const dibs_semaphore_opts *opts, dibs_cb cb,
                                  void *arg)
{
    return DIBS__API_CALL(cb ? semaphore_acquire(s, opts, true, cb, arg)
                             : refuse_semaphore_cb(s));
}

dibs_err dibs_semaphore_release_async(dibs_semaphore *s,
                                      const dibs_semaphore_opts *opts,
                                      dibs_cb cb, void *arg)
{
    return DIBS__API_CALL(cb ? semaphore_release(s, opts, cb, arg)
                             : refuse_semaphore_cb(s));
}

/* ---- leaving and adopting ---------------------------------------------- */

/* "permits:uuid:number", as the book has it. */
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
    dibs_err err = semaphore_give(s, &sc, owner);
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

    if (digits == 0 || digits > 10 || text[0] == '0' || text[digits] != ':')
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
    int64_t many;

    if (take_semaphore_opts(s, opts, &o, &many) != DIBS_OK)
        return DIBS_ERR_INVALID;
    if (!parse_permits(text, &name, &many)) {
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
    err = dibs__adopt_named(s->l, &name, &o, many, &owner);
    dibs__client_leave(c);
    if (err == DIBS_OK && permits)
        *permits = many;
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

static void semaphore_look_write(const struct dibs__request *r,
                                 struct dibs__buf *out, bool whole)
{
    dibs__request_head(r, &dibs__script_semaphore_info, 2, 1, out, whole);
    dibs__request_args(r, "ndc*", out);
}

/* The answer that the guard keeps, a number as text. */
static dibs_err guard_read(struct dibs__request *r,
                           const struct dibs__reply *reply)
{
    if (reply->type != REPLY_TEXT || reply->len == 0)
        return DIBS_ERR_PROTOCOL;
    r->result[0] = strtoll(reply->text, NULL, 10);
    return DIBS_OK;
}

static dibs_err semaphore_look_read(struct dibs__request *r,
                                    const struct dibs__reply *reply)
{
    return dibs__reply_num(reply, 1, &r->result[0]) ? DIBS_OK
                                                    : DIBS_ERR_PROTOCOL;
}

/* out: where the result goes, or NULL. */
static dibs_err ask_semaphore(dibs_semaphore *s, struct dibs__request *r,
                              int64_t *out)
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
    dibs_err err = ask_semaphore(s, &r, &done);
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
    struct dibs__request r = {.write = semaphore_look_write,
                              .read = semaphore_look_read};

    if (dibs__check_not_null("available", available) != DIBS_OK)
        return s ? dibs__lock_report_invalid_arg(s->l) : DIBS_ERR_INVALID;
    return ask_semaphore(s, &r, available);
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
    return ask_semaphore(s, &r, available);
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

    return DIBS__API_CALL(ask_semaphore(s, &r, drained));
}
