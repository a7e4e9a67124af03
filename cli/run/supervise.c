/* SPDX-License-Identifier: MIT
 *
 * supervise.c - watches a command and its lock until the command is gone.
 *
 * One poll(2) waits for signals, the library, and a timer for what is due next.
 * Each pass does what is due, and checks whether the command is gone.
 *
 * Loss    The lock is ours until its deadline, which each renewal pushes back.
 *         We look at our own clock, and do not wait for an error: when the
 *         deadline comes near, the command gets TERM. Shortly before the
 *         deadline it is killed, so that it is dead when the server
 *         grants the lock to another owner. Seen backwards from the deadline:
 *
 *             TERM ...grace_ms... KILL ...margin_ms... deadline
 *
 *         When the server says that the lock is gone, the same steps begin at
 *         once. --on-lost chooses another step than TERM, or that the command
 *         runs on.
 *
 *         A lock that an outer dibs run holds for us is lost when that run
 *         loses it or ends (nesting.c).
 *
 * Pauses  While dibs is stopped nothing is renewed, so its command must be
 *         stopped, too. When the terminal stops us, we stop the command first.
 *         When we are continued, we continue it only if we still hold the lock.
 *         SIGSTOP gives no time for that; then the guard acts (child_guard.c).
 *
 * End     The lock may be released when the process group is empty, and when
 *         no run inside of ours relies on it (nesting.c). The end of a child
 *         wakes us. For other processes we look again and again, less and less
 *         often.
 */
#include "run/supervise.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "exit_codes.h"
#include "run/sd_notify.h"
#include "util/time.h"

#define MARGIN_MIN_MS 20
#define MARGIN_MAX_MS 1000
#define LOOK_MIN_MS   20
#define LOOK_MAX_MS   1000
#define LEFT_TELL_MS  3000 /* until processes that live on are reported */

/* The lease of the lock. That of an outer run may be shorter than ours. */
static int64_t lease_ms(const struct args *a, const struct lock_session *g)
{
    const char *text = getenv("DIBS_LEASE_MS");
    int64_t lease = a->max_hold_ms > 0
                        ? time_earlier(a->lease_ms, a->max_hold_ms)
                        : a->lease_ms;
    int64_t outer = text && g->b.outer.n > 0 ? strtoll(text, NULL, 10) : 0;

    return outer > 0 ? time_earlier(lease, outer) : lease;
}

int64_t supervise_grace_ms(const struct args *a, const struct lock_session *g)
{
    return a->on_lost.kind == LOST_WARN
               ? 0
               : time_earlier(a->kill_after_ms, lease_ms(a, g) / 3);
}

/* From KILL to the end of the lease. */
static int64_t kill_margin_ms(const struct args *a,
                              const struct lock_session *g)
{
    int64_t margin = lease_ms(a, g) / 10;

    return time_earlier(margin > MARGIN_MIN_MS ? margin : MARGIN_MIN_MS,
                        MARGIN_MAX_MS);
}

int64_t supervise_kill_at(const struct args *a, const struct lock_session *g)
{
    if (a->on_lost.kind == LOST_WARN || !g->held)
        return TIME_NEVER;
    return time_now() + session_valid_ms(g) - kill_margin_ms(a, g) / 2;
}

static bool warn_only(const struct supervisor *w)
{
    return w->a->on_lost.kind == LOST_WARN;
}

/* ---- stopping it ------------------------------------------------------- */

static void kill_it(struct supervisor *w)
{
    child_signal(w->ch, SIGKILL);
    w->kill_at = TIME_NEVER;
}

/* A stopped process gets a signal only when it is continued. */
static void ask_to_end(struct supervisor *w, int sig)
{
    child_signal(w->ch, sig);
    if (sig != SIGKILL)
        child_signal(w->ch, SIGCONT);
}

static const char *loss_text(const struct supervisor *w)
{
    const struct args *a = w->a;
    int64_t end = w->deadline - w->g->held_at; /* a little early: drift */

    if (w->g->outer != NESTING_HELD)
        return session_outer_loss_text(w->g);
    if (a->no_renew)
        return "its lease ends and is not renewed";
    if (a->max_hold_ms > 0 && end + a->max_hold_ms / 20 >= a->max_hold_ms)
        return "--max-hold is reached";
    return w->g->lost ? "the server says that we do not hold it any more"
                      : "it could not be renewed";
}

/* An outer run that loses the lock may have less time than we have. */
static int64_t loss_grace_ms(const struct supervisor *w)
{
    return w->g->outer == NESTING_LOST
               ? time_earlier(w->grace_ms, w->g->b.outer.grace_ms)
               : w->grace_ms;
}

static void begin_command_loss(struct supervisor *w, int64_t now)
{
    const struct on_lost *what = &w->a->on_lost;
    const char *name = w->a->words[0];

    child_tell_lost(w->ch);
    if (warn_only(w)) {
        w->late = true;
        session_outer_leave(w->g);
        guard_leave(&w->ch->guard);
        out_tell(OUT_ERROR, "lost", "lost %s: %s; the command runs on", name,
                 loss_text(w));
        return;
    }
    out_tell(OUT_ERROR, "lost", "lost %s: %s; stopping the command", name,
             loss_text(w));
    w->why = STOP_LOST;
    notify_tell("STOPPING=1", "lost %s: %s", name, loss_text(w));
    w->kill_at = time_earlier(w->kill_at, now + loss_grace_ms(w));
    w->kill_at = time_earlier(w->kill_at, w->deadline - w->margin_ms);
    if (w->kill_at <= now)
        kill_it(w);
    else if (what->kind == LOST_EXEC)
        child_hook(w->ch, what->command, w->plan);
    else
        ask_to_end(w, what->sig);
}

/* Notes renewals; acts when there are none. */
static void check_command_lock(struct supervisor *w, int64_t now)
{
    if (w->why == STOP_LOST || w->late)
        return;
    if (w->g->outer != NESTING_HELD)
        begin_command_loss(w, now);
    if (w->g->outer != NESTING_HELD || !w->g->held)
        return;
    int64_t left = session_valid_ms(w->g);
    int64_t before = w->deadline;

    if (left > 0)
        w->deadline = now + left;
    if (left <= (warn_only(w) ? 0 : w->grace_ms + w->margin_ms)) {
        begin_command_loss(w, now);
    } else if (!warn_only(w) && w->deadline != before) {
        guard_set(&w->ch->guard, w->ch->pid, w->ch->group,
                  w->deadline - w->margin_ms / 2);
    }
}

static void check_times(struct supervisor *w, int64_t now)
{
    char span[OUT_SPAN_MAX];

    if (w->why == STOP_NOT && now >= w->run_end) {
        w->why = STOP_TOOLONG;
        out_tell(OUT_ERROR, "max-run",
                 "the command still runs after %s (-t); stopping it",
                 out_span(w->a->max_run_ms, span));
        w->kill_at = now + w->a->kill_after_ms;
        if (w->kill_at > now)
            ask_to_end(w, SIGTERM);
    }
    if (now >= w->kill_at)
        kill_it(w);
    if (w->ch->denied && !w->told_denied) {
        w->told_denied = true;
        out_tell(OUT_WARN, "denied",
                 "not allowed to signal the command: it runs as another user");
    }
}

/* ---- pauses and the terminal ------------------------------------------- */

/* Goes on after a pause: the lock first. */
static void resume_command(struct supervisor *w)
{
    struct child *ch = w->ch;

    check_command_lock(w, time_now());
    if (w->why == STOP_LOST)
        return;
    if (ch->tty >= 0 && child_tty_ours(ch))
        child_give_tty(ch);
    child_signal(ch, SIGCONT);
}

static void pause_all(struct supervisor *w, int sig, bool group)
{
    child_signal(w->ch, SIGSTOP);
    child_take_tty(w->ch);
    if (!signals_stop(sig, group) && sig != SIGTSTP)
        child_signal(w->ch, SIGHUP); /* as the kernel treats orphans */
    resume_command(w);
}

/* The command was stopped. If the terminal did it, we may have to act as the
 * shell would. */
static void on_stopped(struct supervisor *w)
{
    struct child *ch = w->ch;
    int sig = ch->stopped_by;

    ch->stopped_by = 0;
    if (!ch->group)
        return;
    if (sig == SIGTSTP && ch->has_tty) {
        pause_all(w, SIGTSTP, true);
    } else if (sig == SIGTTIN || sig == SIGTTOU) {
        if (child_tty_ours(ch))
            resume_command(w);
        else if (ch->tty >= 0)
            pause_all(w, sig, true);
    }
}

static void on_signal(struct supervisor *w, struct signal_got got)
{
    struct child *ch = w->ch;

    switch (got.sig) {
    case SIGCHLD:
        child_reap(ch);
        if (ch->stopped_by != 0)
            on_stopped(w);
        break;
    case SIGTSTP:
        pause_all(w, SIGTSTP, false);
        break;
    case SIGCONT:
        resume_command(w);
        break;
    default:
        if (got.terminal && got.sig == SIGINT)
            w->typed = true;
        /* In our own group, it already got the signal from the terminal. */
        if (signals_forward(got.sig) && (ch->group || !got.terminal))
            child_signal(ch, got.sig);
    }
}

/* ---- the loop ---------------------------------------------------------- */

static bool all_over(struct supervisor *w, int64_t now)
{
    if (!w->ch->ended || child_gone(w->ch))
        return w->ch->ended;
    if (w->look_at == TIME_NEVER)
        w->tell_at = now + LEFT_TELL_MS;
    if (now >= w->tell_at) {
        w->tell_at = TIME_NEVER;
        out_tell(OUT_WARN, "leftovers",
                 "the command has ended, but it left processes in its group; "
                 "%s stays held until they end",
                 w->a->words[0]);
    }
    w->look_ms = time_earlier(2 * w->look_ms, LOOK_MAX_MS);
    w->look_at = now + w->look_ms;
    return false;
}

static int64_t next_due(const struct supervisor *w)
{
    int64_t due = time_earlier(w->kill_at, w->look_at);

    due = time_earlier(due, notify_due());
    if (w->why == STOP_NOT)
        due = time_earlier(due, w->run_end);
    if (w->g->held && w->why != STOP_LOST && !w->late)
        due = time_earlier(
            due, w->deadline - (warn_only(w) ? 0 : w->grace_ms + w->margin_ms));
    return due;
}

static void supervise_pass(struct supervisor *w)
{
    struct pollfd p[4] = {{.fd = w->g->signals->fd, .events = POLLIN},
                          {.fd = session_fd(w->g), .events = POLLIN},
                          {.fd = w->timer, .events = POLLIN},
                          {.fd = session_outer_fd(w->g), .events = POLLIN}};
    struct signal_got got;

    time_arm(w->timer, next_due(w));
    if (poll(p, 4, TIME_POLL(w->timer)) < 0)
        return;
    while (p[0].revents && signals_next(w->g->signals, &got))
        on_signal(w, got);
    if (p[1].revents)
        session_dispatch(w->g);
    if (p[3].revents)
        session_check_outer(w->g);
}

/* Signals while we wait for inner runs. False: a signal ends the wait. */
static bool may_wait_on(struct supervisor *w)
{
    struct signal_got got;
    bool wait = true;

    while (signals_next(w->g->signals, &got)) {
        if (got.sig == SIGCHLD)
            child_reap(w->ch);
        else if (got.sig == SIGTSTP)
            (void)signals_stop(SIGTSTP, false);
        else if (signals_fatal(got.sig))
            wait = false;
    }
    return wait;
}

/* Runs inside of ours rely on our hold. They hear now that it ends, and stop
 * their commands. The lock is kept until they have, or until it is lost. An
 * inner run is often our child by then, and its end wakes us. */
static void await_inner(struct supervisor *w)
{
    int64_t tell_at = time_now() + LEFT_TELL_MS;
    bool go_on = true;

    child_tell_end(w->ch);
    w->look_ms = LOOK_MIN_MS;
    while (go_on && child_has_inner(w->ch) && session_valid_ms(w->g) > 0) {
        struct pollfd p[2] = {{.fd = w->g->signals->fd, .events = POLLIN},
                              {.fd = session_fd(w->g), .events = POLLIN}};

        if (time_now() >= tell_at) {
            tell_at = TIME_NEVER;
            out_tell(OUT_WARN, "inner",
                     "the command has ended, but a dibs run inside of it has "
                     "not; %s stays held until it ends",
                     w->a->words[0]);
        }
        if (poll(p, 2, (int)w->look_ms) > 0 && p[1].revents)
            session_dispatch(w->g);
        go_on = may_wait_on(w);
        w->look_ms = time_earlier(2 * w->look_ms, LOOK_MAX_MS);
    }
}

/* The command is gone. Was it alone until then? */
static void check_end(struct supervisor *w)
{
    const char *name = w->a->words[0];

    if (guard_stop(&w->ch->guard) && w->why != STOP_LOST) {
        w->why = STOP_LOST;
        out_tell(
            OUT_ERROR, "lost",
            "dibs was stopped for too long and lost %s; the command was killed",
            name);
    }
    session_check_outer(w->g);
    if (w->g->outer != NESTING_HELD && w->why != STOP_LOST && !w->late) {
        w->late = true;
        out_tell(OUT_ERROR, "lost",
                 "lost %s before the command ended: %s; another one may have "
                 "run at the same time",
                 name, session_outer_loss_text(w->g));
    }
}

void supervise_run(struct supervisor *w, const struct args *a,
                   struct lock_session *g, struct child *ch,
                   const struct child_plan *plan)
{
    int64_t now = time_now();

    *w = (struct supervisor){
        .a = a,
        .g = g,
        .ch = ch,
        .plan = plan,
        .timer = time_fd(),
        .deadline = TIME_NEVER,
        .run_end = a->max_run_ms > 0 ? now + a->max_run_ms : TIME_NEVER,
        .kill_at = TIME_NEVER,
        .look_at = TIME_NEVER,
        .look_ms = LOOK_MIN_MS,
        .tell_at = TIME_NEVER,
    };
    w->grace_ms = supervise_grace_ms(a, g);
    w->margin_ms = kill_margin_ms(a, g);
    child_reap(ch);
    while (!all_over(w, now)) {
        check_command_lock(w, now);
        check_times(w, now);
        notify_alive(session_is_confirmed(w->g), now);
        supervise_pass(w);
        now = time_now();
    }
    check_end(w);
    session_outer_leave(g);
    await_inner(w);
    if (ch->has_tty)
        w->typed = true; /* whatever was typed, it got it and not we */
    child_take_tty(ch);
    if (w->timer >= 0)
        close(w->timer);
}
