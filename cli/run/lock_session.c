/* SPDX-License-Identifier: MIT
 *
 * lock_session.c - one lock of one command: taking it, keeping it, releasing
 * it.
 *
 * What run and hold have in common. All of it must work beside signals: a
 * command that waits for a lock must stop waiting when a signal tells it to. A
 * command that cannot reach its server must print an error and not hang. So the
 * lock is asked for with the library's async calls, their callbacks run here,
 * when we call dibs_client_dispatch, and the main loop of each phase is a
 * poll(2) over the library's descriptor and that of the signals.
 *
 * Opening What can block is opening the client, and before it reading files,
 *         which may be pipes, and starting a private server. A thread does
 *         that. When a signal comes meanwhile, we do not wait for the thread:
 *         it holds nothing, and ends with us.
 *
 * Release A release that the server does not confirm is tried again until the
 *         time of --release-wait or the lease is over. Then we end, but not
 *         with success.
 *
 * Thread  The first one, but for opener_main().
 */
#include "run/lock_session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "args/lock_type.h"
#include "exit_codes.h"
#include "output/error_advice.h"
#include "output/progress_line.h"
#include "run/sd_notify.h"
#include "util/time.h"

#define RETRY_MS        500  /* between attempts of a refused release */
#define ENOUGH_MS       1000 /* from a signal to giving up on a release */
#define CLOSE_MS        2000 /* for taking back what was granted too late */
#define WAIT_TELL_MS    250  /* silence before -v says that we wait */
#define RELEASE_TELL_MS 1500 /* and before we say that a release hangs */
#define RELEASE_MIN_MS  1000 /* for a release, whatever --release-wait says */

/* ---- callbacks, all inside dibs_client_dispatch ------------------------ */

static void keep_why(struct lock_session *g, dibs_err err)
{
    snprintf(g->why, sizeof g->why, "%s",
             err != DIBS_OK ? dibs_error_text() : "");
}

static void on_answer(dibs_err err, void *arg)
{
    struct lock_session *g = arg;

    g->answer = err;
    g->answered = true;
    keep_why(g, err);
}

static void on_lost(const char *name, dibs_owner owner, void *arg)
{
    struct lock_session *g = arg;

    (void)name;
    (void)owner;
    g->lost = true;
}

static void on_event(const dibs_event *ev, void *arg)
{
    struct lock_session *g = arg;

    /* A single attempt that fails is logged as its result. */
    g->events.waiting = g->b.l && !g->held && g->a->wait_ms != 0;
    events_tell(&g->events, ev);
}

/* ---- opening ----------------------------------------------------------- */

static int tell_not_taken(struct lock_session *g, dibs_err err)
{
    return failure_tell(g->a, err, g->why,
                        g->b.n_clients == 1 ? g->b.clients[0] : NULL);
}

static int open_all(struct lock_session *g)
{
    char program[WHO_PART_MAX];
    dibs_client_opts opts = {
        .size = sizeof opts,
        .client_name = program,
        .lease_ms = g->a->no_renew ? 0 : g->a->lease_ms,
        .fair_call_ms = g->a->fair_call_ms > 0 ? g->a->fair_call_ms : 0,
        .max_connections = 1,
        .callbacks = DIBS_CALLBACKS_DISPATCH,
        .on_event = on_event,
        .event_arg = g,
    };
    int code = target_pick(g->a, &g->target);

    who_program(g->a->argv    ? g->a->argv[0]
                : g->a->shell ? "sh"
                              : "dibs",
                program);
    g->target.until = g->until;
    if (code == EXIT_FINE)
        code = lock_set_open(&g->b, g->a, &g->target, &opts);
    g->nested = g->b.nested;
    if (g->nested)
        snprintf(g->owner_text, sizeof g->owner_text, "%.*s",
                 (int)strcspn(g->b.owners, " "), g->b.owners);
    return code;
}

static void *opener_main(void *arg)
{
    struct lock_session *g = arg;
    uint64_t one = 1;

    g->open_code = open_all(g);
    ssize_t n = write(g->opened_fd, &one, sizeof one);
    (void)n; /* eight bytes into an eventfd of our own */
    return NULL;
}

/* ---- loops ------------------------------------------------------------- */

/* Waits for fd, a signal, or the timer, if there is one. True when fd is
 * readable. */
static bool wait_for(struct lock_session *g, int fd, int timer)
{
    const struct wait_end *ends = g->sig == 0 ? g->ends : NULL;
    struct pollfd p[5] = {{.fd = fd, .events = POLLIN},
                          {.fd = g->signals->fd, .events = POLLIN},
                          {.fd = timer, .events = POLLIN},
                          {.fd = ends ? ends->script->fd : -1, POLLIN},
                          {.fd = ends ? ends->pipe_fd : -1}};
    struct signal_got got;

    if (poll(p, 5, TIME_POLL(timer)) < 0)
        return false;
    if (p[4].revents || (p[3].revents && script_ended(ends->script)))
        g->sig = SIGTERM;
    while (p[1].revents && signals_next(g->signals, &got)) {
        if (got.sig == SIGTSTP) {
            progress_clear();
            signals_stop(SIGTSTP, false);
        } else if (signals_fatal(got.sig) && g->sig == 0) {
            g->sig = got.sig;
            g->typed = got.terminal;
        }
    }
    return p[0].revents != 0;
}

/* While we wait for the lock and --ready waiting has made systemd watch us: a
 * sign of life, and the timer for the next one. */
static void stay_alive(int timer, int64_t until)
{
    notify_alive(true, time_now());
    time_arm(timer, time_earlier(until, notify_due()));
}

/* Runs until what we asked for has ended, or until the time; a signal brings
 * that forward to grace_ms from then. False when it has not ended. */
static bool await_answer(struct lock_session *g, int64_t until,
                         int64_t grace_ms)
{
    int timer = time_fd();
    int sig = g->sig;

    while (!g->answered && time_now() < until) {
        if (g->held)
            time_arm(timer, until);
        else
            stay_alive(timer, until);
        if (wait_for(g, lock_set_fd(&g->b), timer))
            lock_set_dispatch(&g->b);
        if (g->sig != sig && time_now() + grace_ms < until)
            until = time_now() + grace_ms;
        sig = g->sig;
    }
    if (timer >= 0)
        close(timer);
    return g->answered;
}

/* 0, or an errno. */
static int open_beside(struct lock_session *g)
{
    g->opened_fd = eventfd(0, EFD_CLOEXEC);
    if (g->opened_fd < 0)
        return errno;
    int why = pthread_create(&g->opener, NULL, opener_main, g);
    g->opening = why == 0;
    return why;
}

static int open_client(struct lock_session *g)
{
    int why = open_beside(g);

    if (why != 0) {
        out_tell(OUT_ERROR, "internal", "cannot start a thread: %s",
                 strerror(why));
        return EXIT_INTERNAL;
    }
    int timer = time_fd();
    while (g->sig == 0 && g->opening) {
        stay_alive(timer, TIME_NEVER);
        if (wait_for(g, g->opened_fd, timer)) {
            pthread_join(g->opener, NULL);
            g->opening = false;
        }
    }
    if (timer >= 0)
        close(timer);
    return g->sig != 0 ? EXIT_SIGNAL + g->sig : g->open_code;
}

/* ---- token, slot, permit ----------------------------------------------- */

static void note_values(struct lock_session *g)
{
    if (g->a->fence && dibs_lock_token(g->b.l, g->owner, &g->token) != DIBS_OK)
        g->token = 0;
    if (g->a->slots > 0 &&
        dibs_lock_slot(g->b.l, g->owner, &g->slot) != DIBS_OK)
        g->slot = -1;
    if (g->a->slots > 0)
        lock_set_permit(g->owner_text, g->permit);
}

/* The token of an outer hold is known to the run that holds it, and to no other
 * process: the last token on the server may be of an earlier hold. So a nested
 * run reads it from its environment, if the run right around it holds the lock.
 * Returns false, and prints an error, if the token is needed and not known. */
static bool take_nested_values(struct lock_session *g)
{
    const char *owner = getenv("DIBS_OWNER"), *token = getenv("DIBS_TOKEN");

    if (g->a->slots > 0)
        lock_set_permit(g->owner_text, g->permit);
    if (!g->a->fence)
        return true;
    if (owner && token && strcmp(owner, g->owner_text) == 0 &&
        value_count(token, INT64_MAX, &g->token))
        return true;
    out_tell(OUT_ERROR, "usage",
             "%s is held by a dibs run around this command, whose token is not "
             "known here: is it without --fence, or not the next one?",
             g->a->words[0]);
    return false;
}

/* ---- taking ------------------------------------------------------------ */

/* What is left of -w, at least for one attempt; 0: no limit. */
static int64_t left_ms(const struct lock_session *g)
{
    int64_t left = g->until - time_now();

    if (g->until == TIME_NEVER)
        return 0;
    return left > 1 ? left : 1;
}

static dibs_err send_acquire(struct lock_session *g)
{
    const struct args *a = g->a;
    dibs_lock_opts opts = {
        .size = sizeof opts,
        .wait_ms = left_ms(g),
        .lease_ms = a->no_renew ? a->lease_ms : 0,
        .owner = g->owner,
        .on_lost = on_lost,
        .arg = g,
        .max_hold_ms = a->max_hold_ms,
        .replicas = a->replicas,
        .no_reentry = a->no_reentry,
        .poll = a->spin,
    };

    g->answered = false;
    return a->wait_ms == 0
               ? dibs_lock_try_async(g->b.l, &opts, on_answer, g)
               : dibs_lock_acquire_async(g->b.l, &opts, on_answer, g);
}

/* Stops waiting. A lock that is granted at this moment is released. */
static int leave_line(struct lock_session *g)
{
    if (!g->answered) {
        dibs_lock_cancel(g->b.l, g->owner);
        (void)await_answer(g, time_now() + CLOSE_MS, 0);
    }
    if (g->answered && g->answer == DIBS_OK) {
        g->held = true;
        (void)session_release(g, 0);
    }
    return EXIT_SIGNAL + g->sig;
}

static int tell_busy(struct lock_session *g)
{
    const char *name = g->a->words[0];
    char blocker[768] = "";
    struct holder_seen by = {.info = DIBS_LOCK_INFO_INIT};
    const dibs_lock_info *info = &by.info;
    char who[WHO_TEXT_MAX];
    struct out_fact facts[5] = {{"waited_ms", NULL, time_now() - g->asked_at}};

    g->busy = true;
    lock_set_log(&g->b, g->owner);
    if (g->a->ok_if_busy) {
        out_tell(OUT_INFO, "busy", "%s is taken", name);
        return EXIT_FINE;
    }
    if (!g->a->quiet)
        lock_set_holder(&g->b, g->owner, blocker, sizeof blocker, &by);
    if (kind_held(info)) {
        facts[1] = (struct out_fact){"owner", info->owner, 0};
        facts[2] = (struct out_fact){"left_ms", NULL, info->ttl_ms};
        if (by.who.known)
            facts[3] = (struct out_fact){"who", who_text(&by.who, who), 0};
    }
    out_tell_facts(OUT_WARN, "busy", facts, "%s is taken%s%s", name,
                   *blocker ? ": " : "", blocker);
    return g->a->busy_code;
}

static int note_taken(struct lock_session *g)
{
    char span[OUT_SPAN_MAX];

    g->held = true;
    g->held_at = time_now();
    lock_set_owner(&g->b, g->owner, g->owner_text);
    note_values(g);
    if (g->a->strict && !lock_set_check_slot_count(&g->b, g->a)) {
        (void)session_release(g, 0);
        return EXIT_USAGE;
    }
    lock_set_log(&g->b, g->owner);
    const struct out_fact facts[] = {
        {"owner", g->owner_text, 0},
        {"waited_ms", NULL, g->held_at - g->asked_at},
        {NULL, NULL, 0}};
    out_tell_facts(OUT_INFO, "acquired", facts, "got %s after %s, as %s",
                   g->a->words[0], out_span(g->held_at - g->asked_at, span),
                   g->owner_text);
    return EXIT_FINE;
}

static int wait_lock(struct lock_session *g)
{
    g->owner = g->b.owner = dibs_owner_new(g->b.clients[0]);
    dibs_err err = send_acquire(g);
    if (err != DIBS_OK) {
        keep_why(g, err);
        return tell_not_taken(g, err);
    }
    if (!await_answer(g, time_now() + WAIT_TELL_MS, 0) && g->sig == 0) {
        out_tell(OUT_INFO, "waiting", "waiting for %s", g->a->words[0]);
        waiting_begin(&g->waiting, g->a, &g->b, g->asked_at);
        while (!await_answer(g, waiting_due(&g->waiting), 0) && g->sig == 0)
            waiting_tick(&g->waiting);
        waiting_end(&g->waiting);
    }
    if (g->sig != 0)
        return leave_line(g);
    if (g->answer == DIBS_OK)
        return note_taken(g);
    if (g->answer == DIBS_ERR_BUSY || g->answer == DIBS_ERR_TIMEOUT)
        return tell_busy(g);
    lock_set_log(&g->b, g->owner);
    return tell_not_taken(g, g->answer);
}

static void close_clients(struct lock_session *g)
{
    lock_set_close(&g->b, CLOSE_MS);
}

/* The run around us holds it, and it shall not be used twice. */
static int refuse_outer(struct lock_session *g)
{
    out_tell(OUT_ERROR, "busy",
             "%s is held by the dibs run around this command; --no-reentry",
             g->a->words[0]);
    g->busy = true;
    g->nested = false; /* nothing of it is ours */
    return g->a->busy_code;
}

static int leave_to_outer(struct lock_session *g)
{
    if (!take_nested_values(g)) {
        g->nested = false;
        return EXIT_USAGE;
    }
    close_clients(g);
    g->held_at = time_now();
    out_tell(OUT_INFO, "nested", "%s is already held for this command, by %s",
             g->a->words[0], g->owner_text);
    return EXIT_FINE;
}

/* All is held, some of it perhaps by outer runs. Do they still hold it? */
static int join_outer(struct lock_session *g)
{
    nesting_join(&g->b.outer);
    session_check_outer(g);
    if (g->outer == NESTING_HELD)
        return EXIT_FINE;
    session_outer_leave(g);
    out_tell(OUT_ERROR, "lost", "lost %s: %s; nothing was started",
             g->a->words[0], session_outer_loss_text(g));
    (void)session_release(g, 0);
    return EXIT_LOST;
}

/* The lock is held. If the value cannot be published, it is released again: a
 * leader that nobody finds is no leader. Without an answer the library goes on
 * trying. */
static int publish_value(struct lock_session *g)
{
    const struct args *a = g->a;

    g->answered = false;
    dibs_err err =
        dibs_lock_publish_async(g->b.l, g->owner, a->publish, on_answer, g);
    if (err == DIBS_OK && !await_answer(g, TIME_NEVER, 0))
        g->answer = DIBS_ERR_UNKNOWN; /* a signal */
    if (err == DIBS_OK)
        err = g->answer;
    else
        keep_why(g, err);
    if (g->sig != 0) {
        (void)session_release(g, 0);
        return EXIT_SIGNAL + g->sig;
    }
    if (err == DIBS_OK)
        return EXIT_FINE;
    if (err == DIBS_ERR_CONN || err == DIBS_ERR_UNKNOWN) {
        out_tell(OUT_WARN, "publish",
                 "the value of %s is not published yet; trying again",
                 a->words[0]);
        return EXIT_FINE;
    }
    out_tell(OUT_ERROR, "publish", "cannot publish the value of %s",
             a->words[0]);
    int code = tell_not_taken(g, err);
    (void)session_release(g, 0);
    return err == DIBS_ERR_LOST ? EXIT_LOST : code;
}

int session_acquire(struct lock_session *g, const struct args *a,
                    const struct signals *signals, const struct wait_end *ends)
{
    *g = (struct lock_session){.a = a,
                               .signals = signals,
                               .ends = ends,
                               .opened_fd = -1,
                               .slot = -1,
                               .b = {.fd = -1, .outer = {.fd = -1}}};
    g->asked_at = time_now();
    g->until =
        a->wait_ms == WAIT_FOREVER ? TIME_NEVER : g->asked_at + a->wait_ms;
    if (a->ready_waiting)
        notify_tell("READY=1", "waits for %s", a->words[0]);
    else
        notify_tell(NULL, "waits for %s", a->words[0]);
    int code = open_client(g);
    if (a->server_wait_ms != NOT_GIVEN && g->until != TIME_NEVER)
        g->until =
            time_now() + a->wait_ms; /* it was for the server until now */

    if (code == EXIT_FINE && a->no_reentry && (g->nested || g->b.outer.n > 0))
        code = refuse_outer(g);
    else if (code == EXIT_FINE)
        code = g->nested ? leave_to_outer(g) : wait_lock(g);
    if (code == EXIT_FINE && (g->nested || g->held))
        code = join_outer(g);
    if (code == EXIT_FINE && a->publish && g->held)
        code = publish_value(g);
    else if (code == EXIT_FINE && a->publish && g->nested)
        out_tell(OUT_WARN, "publish",
                 "the outer dibs run holds %s: nothing is published",
                 a->words[0]);
    g->ends = NULL;
    if (g->sig != 0 && code > EXIT_SIGNAL)
        out_tell(OUT_INFO, "signal", "stopped waiting for %s: SIG%s",
                 a->words[0], sigabbrev_np(g->sig) ? sigabbrev_np(g->sig) : "");
    return code;
}

/* ---- while held -------------------------------------------------------- */

int session_fd(const struct lock_session *g)
{
    return lock_set_fd(&g->b);
}

void session_dispatch(struct lock_session *g)
{
    lock_set_dispatch(&g->b);
}

int64_t session_valid_ms(const struct lock_session *g)
{
    if (g->nested)
        return DIBS_MS_MAX; /* the outer run watches it */
    return g->lost ? 0 : dibs_lock_valid_ms(g->b.l, g->owner);
}

/* ---- what outer runs hold ---------------------------------------------- */

bool session_is_confirmed(const struct lock_session *g)
{
    if (g->outer != NESTING_HELD || g->lost)
        return false;
    return g->nested || dibs_lock_state(g->b.l, g->owner) == DIBS_HELD;
}

int session_outer_fd(const struct lock_session *g)
{
    return g->outer == NESTING_HELD ? g->b.outer.fd : -1;
}

void session_check_outer(struct lock_session *g)
{
    if (g->outer == NESTING_HELD)
        g->outer = nesting_state(&g->b.outer);
}

void session_outer_leave(struct lock_session *g)
{
    nesting_leave(&g->b.outer);
}

const char *session_outer_loss_text(const struct lock_session *g)
{
    return g->outer == NESTING_LOST ? "the outer dibs run lost it"
                                    : "the outer dibs run has ended";
}

/* ---- giving back ------------------------------------------------------- */

static bool await_release(struct lock_session *g, int64_t until)
{
    bool done = await_answer(g, time_now() + RELEASE_TELL_MS, ENOUGH_MS);
    int64_t left = until - time_now();
    char span[OUT_SPAN_MAX];

    if (done || g->sig != 0)
        return done;
    if (left > 0)
        out_tell(OUT_WARN, "release",
                 "the server does not confirm the release of %s; trying again "
                 "for %s",
                 g->a->words[0], out_span(left, span));
    /* A margin, for the library is to give up first and not we. */
    return await_answer(g, until + CLOSE_MS, ENOUGH_MS);
}

/* One attempt, until that time; its outcome, or SESSION_NOT_TAKEN when it is
 * worth another. */
static enum session_end try_release(struct lock_session *g, int64_t keep_ms,
                                    int64_t until, int64_t lease_end)
{
    int64_t left = until - time_now();
    dibs_lock_opts opts = {.size = sizeof opts,
                           .wait_ms = left > 1 ? left : 1,
                           .owner = g->owner,
                           .keep_ms = keep_ms};

    g->answered = false;
    dibs_err err = dibs_lock_release_async(g->b.l, &opts, on_answer, g);
    if (err == DIBS_OK && !await_release(g, until))
        return SESSION_UNCONFIRMED;
    if (err == DIBS_OK)
        err = g->answer;
    switch (err) {
    case DIBS_OK:
        return SESSION_RELEASED;
    case DIBS_ERR_LOST:
    case DIBS_ERR_NOT_OWNER:
        return time_now() < lease_end ? SESSION_LOST : SESSION_UNCONFIRMED;
    case DIBS_ERR_CONN:
    case DIBS_ERR_TLS:
    case DIBS_ERR_AUTH:
    case DIBS_ERR_SERVER:
        return time_now() + RETRY_MS < until ? SESSION_NOT_TAKEN
                                             : SESSION_UNCONFIRMED;
    default:
        return SESSION_UNCONFIRMED;
    }
}

/* Until when a release is tried: --release-wait, or the end of the lease. */
static int64_t release_until(const struct lock_session *g, int64_t lease_end)
{
    int64_t wait = g->a->release_wait_ms;

    if (wait == WAIT_FOREVER)
        return lease_end;
    wait = wait > RELEASE_MIN_MS ? wait : RELEASE_MIN_MS;
    return time_earlier(lease_end, time_now() + wait);
}

enum session_end session_release(struct lock_session *g, int64_t keep_ms)
{
    int64_t left = session_valid_ms(g), lease_end = time_now() + left;
    int64_t until = release_until(g, lease_end);
    bool again = false;

    if (!g->held)
        return g->end;
    g->ends = NULL;
    g->end = left > 0 ? SESSION_NOT_TAKEN : SESSION_LOST;
    while (g->end == SESSION_NOT_TAKEN) {
        g->end = try_release(g, keep_ms, until, lease_end);
        /* An earlier attempt may have released it, so this is not certain. */
        if (again && g->end == SESSION_LOST)
            g->end = SESSION_UNCONFIRMED;
        again = true;
        if (g->end != SESSION_NOT_TAKEN)
            break;
        g->answered = false; /* nothing is asked: only time passes */
        (void)await_answer(g, time_now() + RETRY_MS, 0);
        if (g->sig != 0)
            g->end = SESSION_UNCONFIRMED;
    }
    g->held = false;
    g->freed_at = time_now();
    g->kept = g->end == SESSION_RELEASED && keep_ms > 0;
    const struct out_fact facts[] = {
        {"owner", g->owner_text, 0},
        {"held_ms", NULL, g->freed_at - g->held_at},
        {NULL, NULL, 0}};
    if (g->end == SESSION_RELEASED)
        out_tell_facts(OUT_INFO, "released", facts,
                       g->kept ? "%s stays taken until --min-hold is over"
                               : "released %s",
                       g->a->words[0]);
    return g->end;
}

void session_close(struct lock_session *g)
{
    if (g->opening)
        return; /* the thread uses all of this; the process ends now */
    close_clients(g);
    nesting_close(&g->b.outer);
    if (g->opened_fd >= 0)
        close(g->opened_fd);
    target_clear(&g->target);
}
