/* SPDX-License-Identifier: MIT
 *
 * cmd_run.c - dibs run: hold a lock while a command runs.
 *
 *     take the lock        lock_session.c        waits, signals end the wait
 *     start the command    child.c       own process group, guard
 *     watch both           supervise.c   until the group is gone
 *     give the lock back   lock_session.c        until it is confirmed
 *     say how it went      here          exit code, --status-fd
 *
 * The exit code answers two questions at once: how did the command end, and was
 * it alone while it ran? The second one is more important: if the command was
 * not alone, its success means little.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exit_codes.h"
#include "run/child.h"
#include "run/lock_session.h"
#include "run/sd_notify.h"
#include "run/status_report.h"
#include "run/supervise.h"
#include "util/time.h"

/* Not on the stack: a thread that finds no server may outlive cmd_run. */
static struct run {
    const struct args *a;
    struct signals signals;
    struct lock_session g;
    struct child ch;
    struct supervisor w;
    struct report report;
} run;

/* ---- the command's environment ----------------------------------------- */

enum {
    ENV_HELD,
    ENV_NAME,
    ENV_OWNER,
    ENV_OWNERS,  /* not for a nested run: the outer one has set it */
    ENV_LEASE,   /* the same */
    ENV_LOST_FD, /* only for a nested run: the pipe of the one that holds it */
    ENV_TOKEN,   /* these three: not with every lock */
    ENV_SLOT,
    ENV_PERMIT,
    ENV_MADE
};

struct env {
    char *made[ENV_MADE];
    const char *rows[ENV_MADE + 7];
};

static char *format_row(const char *fmt, ...) PRINTF(1, 2);

static char *format_row(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : text;
}

/* All owners around the command, the innermost first. */
static char *owners_row(const struct lock_session *g)
{
    const char *outer = getenv("DIBS_OWNERS");

    if (!(outer && *outer))
        outer = getenv("DIBS_OWNER");
    bool more = outer && *outer;
    return format_row("DIBS_OWNERS=%s%s%s", g->b.owners, more ? " " : "",
                      more ? outer : "");
}

/* Those of another lock, around this one, are taken away. The slot is only
 * known to the run that took it; if that is the next one around us, we have
 * it. */
static int env_values(struct env *e, const struct lock_session *g, int n)
{
    const char *outer = getenv("DIBS_OWNER");
    bool same = g->nested && outer && strcmp(outer, g->owner_text) == 0;

    if (g->token == 0)
        e->rows[n++] = "DIBS_TOKEN";
    if (g->slot < 0 && !(same && g->a->slots > 0))
        e->rows[n++] = "DIBS_SLOT";
    if (!g->permit[0])
        e->rows[n++] = "DIBS_PERMIT";
    return n;
}

/* What systemd gave us is ours, unless the command shall have it. */
static void env_systemd(struct env *e, const struct args *a, int n)
{
    e->rows[n++] = "WATCHDOG_PID"; /* it would be ours */
    if (!a->pass_notify) {
        e->rows[n++] = "NOTIFY_SOCKET";
        e->rows[n++] = "WATCHDOG_USEC";
    }
}

static bool env_make(struct env *e, const struct run *r)
{
    const struct lock_session *g = &r->g;
    int pipe = g->nested ? nesting_first_fd(&g->b.outer) : -1;
    int want = (g->nested ? 3 : 5) + (pipe >= 0) + (g->token > 0) +
               (g->slot >= 0) + (g->permit[0] != '\0');
    int n = 0;

    *e = (struct env){
        .made = {
            [ENV_HELD] = format_row("DIBS_HELD=1"),
            [ENV_NAME] = format_row("DIBS_NAME=%s", r->a->words[0]),
            [ENV_OWNER] = format_row("DIBS_OWNER=%s", g->owner_text),
            [ENV_OWNERS] = g->nested ? NULL : owners_row(g),
            [ENV_LEASE] = g->nested ? NULL
                                    : format_row("DIBS_LEASE_MS=%" PRId64,
                                                 r->a->lease_ms),
            [ENV_LOST_FD] =
                pipe >= 0 ? format_row("DIBS_LOST_FD=%d", pipe) : NULL,
            [ENV_TOKEN] = g->token > 0
                              ? format_row("DIBS_TOKEN=%" PRId64, g->token)
                              : NULL,
            [ENV_SLOT] =
                g->slot >= 0 ? format_row("DIBS_SLOT=%" PRId64, g->slot) : NULL,
            [ENV_PERMIT] =
                g->permit[0] ? format_row("DIBS_PERMIT=%s", g->permit) : NULL,
        }};
    for (int i = 0; i < ENV_MADE; i++)
        if (e->made[i])
            e->rows[n++] = e->made[i];
    if (n < want)
        return false;
    env_systemd(e, r->a, env_values(e, g, n));
    return true;
}

static void env_clear(struct env *e)
{
    for (int i = 0; i < ENV_MADE; i++)
        free(e->made[i]);
}

/* ---- how it went ------------------------------------------------------- */

/* The command's own code, as a shell would say it. */
static int child_code(struct run *r)
{
    int status = r->ch.status;

    if (WIFEXITED(status)) {
        r->report.why = "exit";
        return WEXITSTATUS(status);
    }
    r->report.why = "signal";
    return EXIT_SIGNAL + WTERMSIG(status);
}

static int final_code(struct run *r, enum session_end end)
{
    if (r->w.why == STOP_LOST)
        return EXIT_LOST;
    if (end == SESSION_LOST && !r->w.late)
        out_tell(OUT_ERROR, "lost",
                 "lost %s before the command ended: another one may have run "
                 "at the same time",
                 r->a->words[0]);
    if (end == SESSION_LOST || r->w.late)
        return EXIT_LATE;
    if (r->w.why == STOP_TOOLONG)
        return EXIT_TOOLONG;
    if (end == SESSION_UNCONFIRMED)
        out_tell(OUT_ERROR, "unconfirmed",
                 "the server did not confirm the release of %s",
                 r->a->words[0]);
    int code = child_code(r);
    if (code != EXIT_FINE || end != SESSION_UNCONFIRMED)
        return code;
    r->report.why = NULL;
    return r->g.sig ? EXIT_SIGNAL + r->g.sig : EXIT_UNSURE;
}

/* ---- the middle part --------------------------------------------------- */

/* A whole line of shell as one word? */
static bool is_shell_line(const struct run *r, int why)
{
    return !r->a->shell && why == ENOENT && !r->a->argv[1] &&
           strpbrk(r->a->argv[0], " \t\n") != NULL;
}

static int cannot_start(struct run *r, const char *what, int why)
{
    out_tell(
        OUT_ERROR, "exec", "cannot run '%s': %s%s", what, strerror(why),
        is_shell_line(r, why)
            ? "; this is one word with spaces in it; use -c for a line of shell"
            : "");
    if (!r->g.nested)
        (void)session_release(&r->g, 0);
    return why == ENOENT ? EXIT_NOTFOUND : EXIT_CANNOT;
}

static int64_t keep_ms(const struct run *r)
{
    int64_t left = r->a->min_hold_ms - (time_now() - r->g.held_at);

    return left > 0 && r->w.why != STOP_LOST ? left : 0;
}

/* While the lock is held. */
static int run_guarded(struct run *r, const struct env *e)
{
    char *shell[] = {"/bin/sh", "-c", (char *)r->a->shell, NULL};
    struct child_plan plan = {
        .argv = r->a->shell ? shell : r->a->argv,
        .env = e->rows,
        .foreground = r->a->foreground,
        .owners = r->g.nested ? NULL : r->g.b.owners,
        .kept_fd = r->a->status_fd,
        .grace_ms = supervise_grace_ms(r->a, &r->g),
        .kill_at = supervise_kill_at(r->a, &r->g),
        .outer = &r->g.b.outer,
        .signals = &r->signals,
    };
    enum session_end end = SESSION_RELEASED;
    struct release_plan release = {.fd = -1, .exe = -1};

    if (!r->g.nested) {
        release_plan_open(&release);
        release_plan_write(&release, &r->g);
        plan.release = &release;
    }
    int why = child_start(&r->ch, &plan);
    release_plan_close(&release);

    if (why != 0)
        return cannot_start(r, plan.argv[0], why);
    notify_tell(r->a->ready_waiting ? NULL : "READY=1", "holds %s as %s",
                r->a->words[0], r->g.owner_text);
    supervise_run(&r->w, r->a, &r->g, &r->ch, &plan);
    r->report.ran = true;
    r->report.status = r->ch.status;
    notify_tell("STOPPING=1", "releases %s", r->a->words[0]);
    if (!r->g.nested)
        end = session_release(&r->g, keep_ms(r));
    return final_code(r, end);
}

static int no_memory(void)
{
    out_tell(OUT_ERROR, "internal", "out of memory");
    return EXIT_INTERNAL;
}

/* A shell that runs a loop looks at how we died: by SIGINT, it ends the loop,
 * too. */
static void die_of_interrupt(const struct run *r)
{
    bool typed = (r->g.sig == SIGINT && r->g.typed) ||
                 (r->w.typed && r->report.ran && WIFSIGNALED(r->ch.status) &&
                  WTERMSIG(r->ch.status) == SIGINT);
    sigset_t one;

    if (!typed || r->report.code != EXIT_SIGNAL + SIGINT)
        return;
    sigemptyset(&one);
    sigaddset(&one, SIGINT);
    raise(SIGINT);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
}

int cmd_run(const struct args *a)
{
    struct run *r = &run;
    struct env e = {.made = {NULL}};

    r->a = a;
    child_init(&r->ch);
    if (!signals_open(&r->signals)) {
        out_tell(OUT_ERROR, "internal", "no signalfd: %s", strerror(errno));
        return EXIT_INTERNAL;
    }
    if (a->status_fd > STDERR_FILENO)
        fcntl(a->status_fd, F_SETFD, FD_CLOEXEC);
    notify_open(a->pass_notify);
    int code = session_acquire(&r->g, a, &r->signals, NULL);
    if (code == EXIT_FINE && (r->g.held || r->g.nested))
        code = env_make(&e, r) ? run_guarded(r, &e) : no_memory();
    child_close(&r->ch);
    env_clear(&e);
    r->report.code = code;
    report_write(a, &r->g, &r->report);
    session_close(&r->g);
    signals_close(&r->signals);
    die_of_interrupt(r);
    return code;
}
