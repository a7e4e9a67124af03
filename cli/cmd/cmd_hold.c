/* SPDX-License-Identifier: MIT
 *
 * cmd_hold.c - dibs hold: hold a lock until stdin ends or a signal comes.
 *
 * This is for users who have no single command to run: a script that guards
 * several steps, a person who wants to keep all others out for a while, a
 * systemd unit. When the lock is held, its owner is printed, so that a script
 * can wait for that line. If it cannot be printed, the lock is released. If the
 * lock is lost, hold prints an error and ends at once: scripts watch for its
 * end.
 *
 * Thread  The first one.
 */
#include "cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exit_codes.h"
#include "hold/hold.h"
#include "hold/holder_daemon.h"
#include "run/lock_session.h"
#include "run/sd_notify.h"
#include "run/status_report.h"
#include "util/time.h"

#define INPUT_AGAIN_MS 1000

/* Not on the stack: a thread that finds no server may outlive cmd_hold. */
static struct {
    struct signals signals;
    struct lock_session g;
} hold;

/* A shell gives the background jobs of a script an empty stdin. */
static void warn_of_no_input(void)
{
    struct stat in, null;

    if (fstat(STDIN_FILENO, &in) == 0 && stat("/dev/null", &null) == 0 &&
        S_ISCHR(in.st_mode) && in.st_rdev == null.st_rdev)
        out_tell(OUT_WARN, "stdin",
                 "stdin is /dev/null, so the hold ends at once (in a script, "
                 "'&' does that); use --no-stdin, or give hold "
                 "a pipe to read from");
}

void hold_json(struct json *j, const struct lock_session *g)
{
    if (g->token > 0)
        json_int(j, "token", g->token);
    if (g->slot >= 0)
        json_int(j, "slot", g->slot);
    if (g->permit[0])
        json_text(j, "permit", g->permit);
}

/* 0, or an errno. */
static int print_owner(const struct args *a, const struct lock_session *g)
{
    struct json j;

    if (a->json) {
        json_open(&j, stdout);
        json_text(&j, "name", a->words[0]);
        json_text(&j, "owner", g->owner_text);
        json_int(&j, "lease_ms", a->lease_ms);
        hold_json(&j, g);
        json_close(&j);
        putchar('\n');
    } else {
        printf("%s\n", g->owner_text);
    }
    if (fflush(stdout) != 0)
        return errno;
    if (!a->no_stdin)
        warn_of_no_input();
    return 0;
}

enum input { INPUT_COMES, INPUT_ENDED, INPUT_NOT_NOW };

/* The descriptor that stdin is read from. A shell reads from its terminal, too:
 * between our poll and our read it may take the input and bring us to the
 * front. A read that blocks then would see neither a signal nor a loss. So a
 * terminal is opened again, non-blocking for us only. */
static int open_input(const struct args *a)
{
    if (a->no_stdin)
        return -1;
    int fd =
        tcgetpgrp(STDIN_FILENO) < 0
            ? -1
            : open("/dev/tty", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd >= 0 ? fd : STDIN_FILENO;
}

/* Only the end of stdin matters, not what is in it. In the background of a
 * terminal we may not read: then we try again later. */
static enum input read_input(int input)
{
    char rest[4096];
    ssize_t n = read(input, rest, sizeof rest);

    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)))
        return INPUT_COMES;
    if (n < 0 && errno == EIO && tcgetpgrp(input) >= 0)
        return INPUT_NOT_NOW;
    return INPUT_ENDED;
}

/* The first signal that is meant to end us; 0 when none has come. */
static int ending_signal(const struct signals *s)
{
    struct signal_got got;

    while (signals_next(s, &got)) {
        if (got.sig == SIGTSTP)
            signals_stop(SIGTSTP, false);
        else if (signals_fatal(got.sig))
            return got.sig;
    }
    return 0;
}

/* For how long we surely hold the lock. */
static int64_t ours_ms(struct lock_session *g)
{
    session_check_outer(g);
    return g->outer == NESTING_HELD ? session_valid_ms(g) : 0;
}

/* Holds the lock until the end; false when it was lost. The owner is printed
 * when stdout is ready. If that fails, *unwritten is the errno. */
static bool hold_while_open(const struct args *a, struct lock_session *g,
                            int *unwritten)
{
    int timer = time_fd();
    int input = open_input(a);
    struct pollfd p[6] = {{.fd = g->signals->fd, .events = POLLIN},
                          {.fd = session_fd(g), .events = POLLIN},
                          {.fd = timer, .events = POLLIN},
                          {.fd = input, .events = POLLIN},
                          {.fd = session_outer_fd(g), .events = POLLIN},
                          {.fd = STDOUT_FILENO, .events = POLLOUT}};
    int64_t left;

    while (*unwritten == 0 && (left = ours_ms(g)) > 0) {
        int64_t now = time_now();
        notify_alive(session_is_confirmed(g), now);
        if (p[3].fd != input && left > INPUT_AGAIN_MS)
            left = INPUT_AGAIN_MS;
        time_arm(timer, time_earlier(now + left, notify_due()));
        if (poll(p, 6, TIME_POLL(timer)) < 0)
            continue;
        if (p[1].revents)
            session_dispatch(g);
        if (p[5].revents) {
            p[5].fd = -1;
            *unwritten = print_owner(a, g);
            if (*unwritten == 0)
                notify_tell(a->ready_waiting ? NULL : "READY=1",
                            "holds %s as %s", a->words[0], g->owner_text);
        }
        if (p[0].revents && ending_signal(g->signals) != 0)
            break;
        enum input in = p[3].revents ? read_input(input) : INPUT_COMES;
        if (in == INPUT_ENDED)
            break;
        p[3].fd = in == INPUT_NOT_NOW ? -1 : input;
    }
    if (timer >= 0)
        close(timer);
    if (input > STDIN_FILENO)
        close(input);
    return ours_ms(g) > 0;
}

int hold_tell_lost(const struct args *a, struct lock_session *g)
{
    bool outer = g->outer != NESTING_HELD;

    g->end = SESSION_LOST;
    out_tell(OUT_ERROR, "lost", "lost %s%s%s", a->words[0], outer ? ": " : "",
             outer ? session_outer_loss_text(g) : "");
    return EXIT_LOST;
}

int hold_give_back(const struct args *a, struct lock_session *g,
                   int64_t keep_ms, int code)
{
    if (g->nested)
        return code; /* it is the outer one's to give back */
    switch (session_release(g, keep_ms)) {
    case SESSION_RELEASED:
        return code;
    case SESSION_UNCONFIRMED:
        out_tell(OUT_ERROR, "unconfirmed",
                 "the server did not confirm the release of %s", a->words[0]);
        return g->sig ? EXIT_SIGNAL + g->sig : EXIT_UNSURE;
    default:
        return hold_tell_lost(a, g);
    }
}

static int hold_until_end(const struct args *a, struct lock_session *g)
{
    int unwritten = 0;
    bool ours = hold_while_open(a, g, &unwritten);

    notify_tell("STOPPING=1", ours ? "releases %s" : "lost %s", a->words[0]);
    session_outer_leave(g);
    if (unwritten != 0) { /* a script waits for that line */
        out_tell(OUT_ERROR, "stdout",
                 "cannot write to stdout: %s; releasing %s",
                 strerror(unwritten), a->words[0]);
        return hold_give_back(a, g, 0, EXIT_INTERNAL);
    }
    if (!ours)
        return hold_tell_lost(a, g);
    int64_t more = a->min_hold_ms - (time_now() - g->held_at);
    return hold_give_back(a, g, more > 0 ? more : 0, EXIT_FINE);
}

int cmd_hold(const struct args *a)
{
    struct report report = {.why = NULL};

    if (a->for_pid > 0)
        return keeper_start(a);
    if (!signals_open(&hold.signals)) {
        out_tell(OUT_ERROR, "internal", "no signalfd: %s", strerror(errno));
        return EXIT_INTERNAL;
    }
    notify_open(false);
    int code = session_acquire(&hold.g, a, &hold.signals, NULL);
    if (code == EXIT_FINE && (hold.g.held || hold.g.nested))
        code = hold_until_end(a, &hold.g);
    report.code = code;
    report_write(a, &hold.g, &report);
    session_close(&hold.g);
    signals_close(&hold.signals);
    return code;
}
