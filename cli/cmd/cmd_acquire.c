/* SPDX-License-Identifier: MIT
 *
 * cmd_acquire.c - dibs acquire, extend, release: one lock, several processes.
 *
 *     handle=$(dibs acquire --lease 30m deploy)
 *     dibs extend --owner "$handle" --lease 30m deploy
 *     dibs release --owner "$handle" deploy
 *
 * For steps that are not one command: a pipeline whose jobs run on several
 * machines, a unit's ExecStartPre and ExecStopPost. Nobody renews the lock in
 * between, so it has a lease that is long enough, and ends with it.
 *
 * Acquire prints the handle first and leaves the hold then: if the handle
 * cannot be printed the lock is released.
 *
 * Extend adopts the hold, which lengthens its lease, and leaves it again.
 * Release adopts it and gives it back. Of several locks each is treated for
 * itself: all must be there, of a quorum more than half.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "exit_codes.h"
#include "hold/hold.h"
#include "hold/hold_handle.h"
#include "hold/holder_daemon.h"
#include "output/error_advice.h"
#include "run/lock_session.h"
#include "util/time.h"

#define CLOSE_MS     2000
#define SLOWEST_MS   500 /* as long as a quorum waits for one server */
#define SLOW_LOOK_MS 5

/* ---- acquire ----------------------------------------------------------- */

/* Not on the stack: a thread that finds no server may outlive cmd_acquire. */
static struct {
    struct args a;
    struct signals signals;
    struct lock_session g;
} taking;

/* 0, or an errno. */
static int print_handle(const struct args *a, const struct lock_session *g,
                        const char *handle)
{
    struct json j;

    if (a->json) {
        json_open(&j, stdout);
        json_text(&j, "name", a->words[0]);
        json_text(&j, "owner", handle);
        json_int(&j, "lease_ms", a->lease_ms);
        hold_json(&j, g);
        json_close(&j);
        putchar('\n');
    } else {
        printf("%s\n", handle);
    }
    return fflush(stdout) != 0 ? errno : 0;
}

/* A quorum is held before its slowest servers have answered. What they grant
 * later is kept, but only while we hold the rest. */
static void await_slowest(struct lock_session *g)
{
    int64_t until = time_now() + SLOWEST_MS;
    struct pollfd p = {.fd = session_fd(g), .events = POLLIN};

    while (lock_set_has_pending(&g->b, g->owner) && time_now() < until)
        if (poll(&p, 1, SLOW_LOOK_MS) > 0)
            session_dispatch(g);
}

/* With the lock in hand. */
static int print_and_leave(struct lock_session *g)
{
    const struct args *a = g->a;
    dibs_lock_opts opts = {
        .size = sizeof opts, .owner = g->owner, .leave = true};
    await_slowest(g);
    char *handle = hold_handle_format(a, &g->b);
    int why = handle ? print_handle(a, g, handle) : ENOMEM;

    free(handle);
    if (why != 0) {
        out_tell(OUT_ERROR, "stdout",
                 "cannot write to stdout: %s; releasing %s", strerror(why),
                 a->words[0]);
        return hold_give_back(a, g, 0, EXIT_INTERNAL);
    }
    dibs_err err = dibs_lock_release(g->b.l, &opts);
    g->held = false;
    return err == DIBS_OK ? EXIT_FINE : hold_tell_lost(a, g);
}

/* The run around us holds it, and waits for us. */
static int refuse_nested(struct lock_session *g)
{
    out_tell(OUT_ERROR, "busy",
             "%s is held by the dibs run around this command, which would wait "
             "for itself",
             g->a->words[0]);
    if (!g->nested)
        (void)session_release(g, 0);
    return g->a->busy_code;
}

int cmd_acquire(const struct args *a)
{
    struct lock_session *g = &taking.g;

    if (!out_has_stdout(a->words[0]))
        return EXIT_INTERNAL;
    taking.a = *a;
    taking.a.no_renew = true;
    if (!signals_open(&taking.signals)) {
        out_tell(OUT_ERROR, "internal", "no signalfd: %s", strerror(errno));
        return EXIT_INTERNAL;
    }
    int code = session_acquire(g, &taking.a, &taking.signals, NULL);
    if (code == EXIT_FINE)
        code = g->nested || g->b.outer.n > 0 ? refuse_nested(g)
                                             : print_and_leave(g);
    session_close(g);
    signals_close(&taking.signals);
    return code;
}

/* ---- extend and release ------------------------------------------------ */

/* What became of the locks. */
struct tally {
    size_t done, gone, unsure;
    dibs_err err; /* the first of the others */
    char why[FAILURE_MAX];
};

static void tally_add(struct tally *t, dibs_err err)
{
    if (err == DIBS_OK) {
        t->done++;
    } else if (err == DIBS_ERR_NOT_OWNER) {
        t->gone++;
    } else if (err == DIBS_ERR_UNKNOWN) {
        t->unsure++;
    } else if (t->err == DIBS_OK) {
        t->err = err;
        snprintf(t->why, sizeof t->why, "%s", dibs_error_text());
    }
}

static dibs_err extend_one(const struct hold_handle *f, size_t i, dibs_lock *l,
                           int64_t lease_ms)
{
    dibs_lock_opts opts = {.size = sizeof opts, .leave = true};
    dibs_err err = hold_handle_attach(f, i, l, lease_ms, &opts.owner);

    if (err != DIBS_OK)
        return err;
    err = dibs_lock_release(l, &opts);
    return err == DIBS_ERR_LOST ? DIBS_ERR_NOT_OWNER : err;
}

static int tell_done(const struct args *a, bool extending)
{
    struct json j;

    out_tell(OUT_INFO, extending ? "extended" : "released", "%s %s",
             extending ? "extended" : "released", a->words[0]);
    if (!a->json)
        return EXIT_FINE;
    json_open(&j, stdout);
    json_text(&j, "name", a->words[0]);
    json_text(&j, "owner", a->owner);
    if (extending)
        json_int(&j, "lease_ms", a->lease_ms);
    json_close(&j);
    putchar('\n');
    return out_finish(EXIT_FINE);
}

static int tally_code(const struct args *a, const struct tally *t, size_t need,
                      bool extending)
{
    if (t->done >= need)
        return tell_done(a, extending);
    if (t->err != DIBS_OK)
        return failure_tell(a, t->err, t->why, NULL);
    if (t->unsure > 0) {
        out_tell(OUT_ERROR, "unconfirmed", "the server did not confirm the %s",
                 extending ? "extension" : "release");
        return EXIT_UNSURE;
    }
    out_tell(OUT_ERROR, "lost", "%s is not held by that owner any more",
             a->words[0]);
    return EXIT_LOST;
}

static void drop_event(const dibs_event *ev, void *arg)
{
    (void)ev;
    (void)arg;
}

static int treat_all(const struct args *a, const struct hold_handle *f,
                     bool extending)
{
    dibs_client_opts opts = {.size = sizeof opts,
                             .max_connections = 1,
                             .callbacks = DIBS_CALLBACKS_DISPATCH,
                             .on_event = drop_event};
    struct tally t = {.done = 0};
    struct target target;
    struct lock_set b = {.fd = -1, .outer = {.fd = -1}};
    int code = target_pick(a, &target);

    if (code == EXIT_FINE)
        code = lock_set_open(&b, a, &target, &opts);
    for (size_t i = 0; code == EXIT_FINE && i < b.n_members; i++)
        tally_add(&t, extending ? extend_one(f, i, b.members[i], a->lease_ms)
                                : hold_handle_release(f, i, b.members[i], 0));
    if (code == EXIT_FINE)
        code = tally_code(a, &t, a->quorum ? b.n_members / 2 + 1 : b.n_members,
                          extending);
    lock_set_close(&b, CLOSE_MS);
    nesting_close(&b.outer);
    target_clear(&target);
    return code;
}

static int treat_left(const struct args *a, bool extending)
{
    struct args mine = *a;
    struct hold_handle f;
    const char *wrong = hold_handle_parse(&f, a->owner);
    int code;

    /* Whatever runs around us, this is about the hold that is named. */
    unsetenv("DIBS_OWNER");
    unsetenv("DIBS_OWNERS");
    kind_set(&mine, f.kind);
    if (wrong)
        code = args_wrong(NULL,
                          extending ? "dibs extend --owner \"$handle\" "
                                      "--lease 30m deploy"
                                    : "dibs release --owner \"$handle\" deploy",
                          "--owner: '%s' %s", a->owner, wrong);
    else
        code = treat_all(&mine, &f, extending);
    hold_handle_clear(&f);
    return code;
}

int cmd_extend(const struct args *a)
{
    return treat_left(a, true);
}

int cmd_release(const struct args *a)
{
    return a->owner ? treat_left(a, false) : keeper_release(a);
}
