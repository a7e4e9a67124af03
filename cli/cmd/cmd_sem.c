/* SPDX-License-Identifier: MIT
 *
 * cmd_sem.c - dibs sem: permits of Redisson's semaphore.
 *
 *     dibs sem set license 5
 *     handle=$(dibs sem acquire --lease 30m license) || exit
 *     dibs sem release --owner "$handle" license
 *
 * The permits outlive the process that acquired them, so they have a lease, and
 * return when it ends. The handle names them as the ledger on the server does:
 * permits, UUID, number. It is printed before the permits are left: if it
 * cannot be printed, they are released.
 *
 * Signals end a wait. A grant at that moment is released, because the
 * client is closed before the process ends.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "args/lock_type.h"
#include "args/subverbs.h"
#include "cmd/object_client.h"
#include "exit_codes.h"
#include "run/signals.h"

#define EXIT_AS_IT_WAS 1 /* set: there is a number already */
#define CLOSE_MS       2000
#define TEXT_MAX       (DIBS_OWNER_MAX + 32)

static int sem_new(struct object *o, dibs_semaphore **s)
{
    dibs_err err = dibs_semaphore_new(o->c, o->a->words[0], s);

    return err == DIBS_OK ? EXIT_FINE : object_failed(o->a, err);
}

static int sem_open(struct object *o, const struct args *a, dibs_semaphore **s)
{
    int code = object_open(o, a);

    *s = NULL;
    return code == EXIT_FINE ? sem_new(o, s) : code;
}

static int sem_close(struct object *o, dibs_semaphore *s, int code)
{
    dibs_semaphore_free(s);
    object_close(o);
    return code;
}

static int answer_number(const struct args *a, const char *key, int64_t n)
{
    const struct out_fact facts[] = {{key, NULL, n}, {NULL, NULL, 0}};
    char text[TEXT_MAX];

    snprintf(text, sizeof text, "%" PRId64 " %s", n, key);
    return object_answer(a, facts, text, EXIT_FINE);
}

/* ---- how many there are ------------------------------------------------ */

static int set_number(const struct args *a, dibs_client *c, dibs_semaphore *s)
{
    bool was_set = false;
    int64_t available = a->number;
    dibs_err err = dibs_semaphore_set(s, a->number, &was_set);

    if (err == DIBS_OK && !was_set)
        err = dibs_semaphore_available(s, &available);
    if (err != DIBS_OK)
        return object_failed(a, err);
    if (was_set)
        return answer_number(a, "free", available);
    int code = kind_refuse(c, a->words[0], DIBS_KIND_SEMAPHORE);
    if (code != EXIT_FINE)
        return code;
    out_tell(OUT_ERROR, "set",
             "%s has a number already, %" PRId64
             " free: nothing changed; see 'dibs sem add'",
             a->words[0], available);
    return EXIT_AS_IT_WAS;
}

int sem_set(const struct args *a)
{
    struct object o;
    dibs_semaphore *s;
    int code = sem_open(&o, a, &s);

    return sem_close(&o, s, code == EXIT_FINE ? set_number(a, o.c, s) : code);
}

int sem_add(const struct args *a)
{
    struct object o;
    dibs_semaphore *s;
    int64_t available = 0;
    int code = sem_open(&o, a, &s);

    if (code == EXIT_FINE) {
        dibs_err err = dibs_semaphore_add(s, a->number, &available);
        code = err == DIBS_OK ? answer_number(a, "free", available)
                              : object_failed(a, err);
    }
    return sem_close(&o, s, code);
}

int sem_drain(const struct args *a)
{
    struct object o;
    dibs_semaphore *s;
    int64_t drained = 0;
    int code = sem_open(&o, a, &s);

    if (code == EXIT_FINE) {
        dibs_err err = dibs_semaphore_drain(s, &drained);
        code = err == DIBS_OK ? answer_number(a, "drained", drained)
                              : object_failed(a, err);
    }
    return sem_close(&o, s, code);
}

int sem_info(const struct args *a)
{
    struct object o;
    dibs_semaphore *s = NULL;
    int64_t available = 0;
    int code = object_look(&o, a);

    if (code == EXIT_FINE && o.c) {
        dibs_err err = dibs_semaphore_new(o.c, a->words[0], &s);
        if (err == DIBS_OK)
            err = dibs_semaphore_available(s, &available);
        if (err != DIBS_OK)
            code = object_failed(a, err);
    }
    if (code == EXIT_FINE)
        code = answer_number(a, "free", available);
    return sem_close(&o, s, code);
}

/* ---- taking ------------------------------------------------------------ */

struct sem_answer {
    bool came;
    dibs_err err;
    char why[512];
};

static void on_permits(dibs_err err, void *arg)
{
    struct sem_answer *w = arg;

    *w = (struct sem_answer){.came = true, .err = err};
    snprintf(w->why, sizeof w->why, "%s", dibs_error_text());
}

/* Until the answer is there; 0, or the signal that came first. */
static int await_permits(struct object *o, const struct signals *signals,
                         const struct sem_answer *w)
{
    struct pollfd p[2] = {{.fd = dibs_client_fd(o->c), .events = POLLIN},
                          {.fd = signals->fd, .events = POLLIN}};
    struct signal_got got;

    while (!w->came) {
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[0].revents)
            dibs_client_dispatch(o->c);
        while (!w->came && p[1].revents && signals_next(signals, &got)) {
            if (got.sig == SIGTSTP)
                signals_stop(SIGTSTP, false);
            else if (signals_fatal(got.sig))
                return got.sig;
        }
    }
    return 0;
}

static int no_permits(const struct args *a, const struct sem_answer *w)
{
    if (w->err == DIBS_ERR_BUSY || w->err == DIBS_ERR_TIMEOUT) {
        out_tell(OUT_WARN, "busy", "%s: not enough permits are free",
                 a->words[0]);
        return a->busy_code;
    }
    if (w->err == DIBS_ERR_WRONGTYPE)
        return object_failed(a, w->err);
    out_tell(OUT_ERROR, "server", "%s: %s%s%s", a->words[0],
             dibs_strerror(w->err), *w->why ? ": " : "", w->why);
    return out_exit_of(w->err);
}

/* Prints the handle while the permits are still ours to give back. */
static int leave_permits(const struct args *a, dibs_semaphore *s,
                         const dibs_semaphore_opts *opts)
{
    char handle[DIBS_OWNER_MAX];
    struct out_fact facts[] = {{"owner", handle, 0},
                               {"permits", NULL, opts->permits},
                               {"lease_ms", NULL, opts->lease_ms},
                               {NULL, NULL, 0}};
    dibs_err err = dibs_semaphore_leave(s, opts, handle, sizeof handle);

    if (err != DIBS_OK) {
        out_tell(OUT_ERROR, "lost", "lost the permits of %s", a->words[0]);
        return EXIT_LOST;
    }
    int code = object_answer(a, facts, handle, EXIT_FINE);
    if (code == EXIT_FINE)
        return EXIT_FINE;
    /* The handle was not printed, so the permits are released. */
    if (dibs_semaphore_adopt(s, handle, NULL, NULL) == DIBS_OK)
        (void)dibs_semaphore_release(
            s, DIBS_SEMAPHORE_OPTS(.permits = opts->permits));
    return code;
}

static int take_permits(struct object *o, dibs_semaphore *s,
                        const struct signals *signals)
{
    const struct args *a = o->a;
    /* Not on the stack: the callback may come while the client closes. */
    static struct sem_answer w;
    dibs_semaphore_opts opts = {
        .size = sizeof opts,
        .permits = a->permits > 0 ? a->permits : 1,
        .wait_ms = a->wait_ms > 0 ? a->wait_ms : 0,
        .lease_ms = a->lease_ms,
    };
    dibs_err err = a->wait_ms == 0
                       ? dibs_semaphore_try_async(s, &opts, on_permits, &w)
                       : dibs_semaphore_acquire_async(s, &opts, on_permits, &w);

    if (err != DIBS_OK)
        return object_failed(a, err);
    int sig = await_permits(o, signals, &w);
    if (sig != 0) {
        dibs_client_close(o->c, CLOSE_MS); /* gives back what was granted */
        return EXIT_SIGNAL + sig;
    }
    return w.err == DIBS_OK ? leave_permits(a, s, &opts) : no_permits(a, &w);
}

int sem_acquire(const struct args *a)
{
    struct signals signals;
    struct object o;
    dibs_semaphore *s = NULL;
    int stopped_by;

    if (!out_has_stdout(a->words[0]))
        return EXIT_INTERNAL;
    if (!signals_open(&signals)) { /* before there are threads */
        out_tell(OUT_ERROR, "internal", "no signalfd: %s", strerror(errno));
        return EXIT_INTERNAL;
    }
    int code = object_open_until(&o, a, &signals, &stopped_by);
    if (stopped_by)
        code = EXIT_SIGNAL + stopped_by;
    if (code == EXIT_FINE)
        code = sem_new(&o, &s);
    if (code == EXIT_FINE)
        code = take_permits(&o, s, &signals);
    code = sem_close(&o, s, code);
    signals_close(&signals);
    return code;
}

/* ---- giving back ------------------------------------------------------- */

static int give_permits(const struct args *a, dibs_semaphore *s)
{
    int64_t permits = 0;
    dibs_err err = dibs_semaphore_adopt(s, a->owner, NULL, &permits);

    if (err == DIBS_ERR_INVALID)
        return args_wrong(NULL, a->verb->example,
                          "--owner: '%s' is not what 'dibs sem acquire' "
                          "printed",
                          a->owner);
    if (err == DIBS_OK)
        err =
            dibs_semaphore_release(s, DIBS_SEMAPHORE_OPTS(.permits = permits));
    if (err == DIBS_OK)
        return answer_number(a, "released", permits);
    if (err != DIBS_ERR_NOT_OWNER && err != DIBS_ERR_LOST)
        return object_failed(a, err);
    out_tell(OUT_ERROR, "lost",
             "these permits of %s had come back before: they were released, or "
             "their lease was over",
             a->words[0]);
    return EXIT_LOST;
}

int sem_release(const struct args *a)
{
    struct object o;
    dibs_semaphore *s;
    int code = sem_open(&o, a, &s);

    return sem_close(&o, s, code == EXIT_FINE ? give_permits(a, s) : code);
}
