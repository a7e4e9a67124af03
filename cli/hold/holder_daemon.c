/* SPDX-License-Identifier: MIT
 *
 * holder_daemon.c - a background process that holds a lock for another process.
 *
 *     dibs hold --for-pid $$ backup || exit
 *     ...
 *     dibs release backup        # or just end
 *
 * The command forks. The child, the keeper, takes the lock; the parent waits
 * for that, exits 0 or with the code that says why not, and the script goes on.
 * The keeper holds the lock until the script ends, however it ends, or until
 * "dibs release" asks for it.
 *
 * Loss    As for "dibs run": when the lease is about to end, or the lock is
 *         gone, --on-lost counts, and KILL follows before the lease ends. A
 *         script that leads a process group is signaled with all of it, so that
 *         the step it waits for ends, too.
 *
 * Death   Should the keeper itself be killed, a second process acts
 *         (script_guard.c).
 *
 * Finding A socket in the folder of the private server (private_server.c),
 * named it      after script and name, leads to the keeper. Only our user may
 * use the folder. The socket of a keeper that was killed refuses connections,
 *         and is replaced.
 *
 * Apart   Until it holds the lock the keeper ends with its parent, and is in
 *         its process group: an interrupt ends the wait. From then on it has a
 *         session of its own, and no descriptors of the script but stderr and
 *         the pipes of the dibs runs around it (nesting.c).
 *
 * End     A script may ignore signals, and what it starts inherits that. So the
 *         end of the script and that of the parent are events on descriptors
 *         (a pidfd, the pipe that the parent reads from) and never signals.
 *         And once the lock is held no signal is ignored.
 *
 * Nested  If a dibs run around the script holds the lock, the keeper takes
 *         nothing and releases nothing. It is there for "dibs release", and
 *         acts when the outer hold ends first.
 *
 * Thread  The keeper's first one.
 */
#include "hold/holder_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "exit_codes.h"
#include "hold/hold.h"
#include "hold/pid_target.h"
#include "hold/script_guard.h"
#include "run/lock_session.h"
#include "run/status_report.h"
#include "run/supervise.h"
#include "server/private_server.h"
#include "util/fds.h"
#include "util/time.h"

#define WORD_RELEASE 'r'
#define MARGIN_MS    1000 /* from KILL to the end of the lease, at most */

/* What the keeper reports to its parent. */
struct news {
    int code;
    char owner[DIBS_OWNER_MAX];
};

/* Not on the stack: a thread that finds no server may outlive keeper_main. */
static struct keeper {
    const struct args *a;
    struct script script;
    struct signals signals;
    struct lock_session g;
    char path[LOCAL_PATH_MAX]; /* of the socket */
    struct script_guard guard;
    int news_fd, listen_fd, request_fd;
    int64_t deadline;  /* the lock is ours until then */
    int64_t margin_ms; /* from KILL to that */
    int64_t kill_at;   /* TIME_NEVER while nothing is lost */
    bool lost;
} keeper;

/* ---- the socket -------------------------------------------------------- */

static uint64_t hash_text(const char *s)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return h;
}

/* Where the keeper of this lock for this process listens. */
static int socket_path(const struct local *lo, pid_t pid, const char *name,
                       char out[LOCAL_PATH_MAX])
{
    if (snprintf(out, LOCAL_PATH_MAX, "%s/hold-%d-%016" PRIx64, lo->dir,
                 (int)pid, hash_text(name)) < (int)LOCAL_PATH_MAX)
        return EXIT_FINE;
    out_tell(OUT_ERROR, "local", "%s: too long for a socket's address",
             lo->dir);
    return EXIT_INTERNAL;
}

static void fill_address(struct sockaddr_un *sa, const char *path)
{
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(sa->sun_path, path, strlen(path) + 1);
}

/* A connection to the keeper there; -1: no process answers. */
static int dial_keeper(const char *path)
{
    struct sockaddr_un sa;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    fill_address(&sa, path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* 0, or an errno. */
static int listen_there(struct keeper *k)
{
    struct sockaddr_un sa;

    fill_address(&sa, k->path);
    unlink(k->path); /* no process answered there */
    k->listen_fd =
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->listen_fd < 0 ||
        bind(k->listen_fd, (struct sockaddr *)&sa, sizeof sa) != 0 ||
        listen(k->listen_fd, 8) != 0)
        return errno;
    return 0;
}

/* ---- while held -------------------------------------------------------- */

static void run_hook(const struct keeper *k)
{
    char pid[32];

    snprintf(pid, sizeof pid, "%d", (int)k->script.pid);
    if (fork() != 0)
        return;
    setenv("DIBS_PID", pid, 1);
    setenv("DIBS_NAME", k->a->words[0], 1);
    signals_restore(&k->signals);
    execl("/bin/sh", "sh", "-c", k->a->on_lost.command, (char *)NULL);
    _exit(127);
}

/* An outer run that loses the lock may have less time than we have. */
static int64_t loss_grace(const struct keeper *k)
{
    int64_t grace = supervise_grace_ms(k->a, &k->g);

    return k->g.outer == NESTING_LOST
               ? time_earlier(grace, k->g.b.outer.grace_ms)
               : grace;
}

static void begin_loss(struct keeper *k, int64_t now)
{
    const struct on_lost *what = &k->a->on_lost;
    bool warn = what->kind == LOST_WARN;

    k->lost = true;
    out_tell(OUT_ERROR, "lost", "lost %s; %s process %d", k->a->words[0],
             warn ? "leaving alone" : "signaling", (int)k->script.pid);
    if (warn)
        return;
    k->kill_at = time_earlier(now + loss_grace(k), k->deadline - k->margin_ms);
    if (what->kind == LOST_EXEC)
        run_hook(k);
    else if (k->kill_at > now)
        script_signal(&k->script, what->sig);
}

static void update_guard(struct keeper *k, bool held)
{
    script_guard_update(
        &k->guard, held ? k->deadline - k->margin_ms / 2 : TIME_NEVER, held);
}

/* Takes note of renewals; acts when they stay away. */
static void check_lock(struct keeper *k, int64_t now)
{
    int64_t left = session_valid_ms(&k->g), before = k->deadline;
    bool warn = k->a->on_lost.kind == LOST_WARN;

    session_check_outer(&k->g);
    if (k->g.outer != NESTING_HELD)
        left = 0;
    if (left > 0)
        k->deadline = now + left;
    if (left <= (warn ? 0 : supervise_grace_ms(k->a, &k->g) + k->margin_ms))
        begin_loss(k, now);
    else if (k->deadline != before)
        update_guard(k, true);
}

/* Is a release requested? Another hold only looks whether we are
 * there. Only our own user can reach the socket. */
static bool accept_request(struct keeper *k)
{
    const struct timeval patience = {.tv_sec = 1};
    int fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    char word = 0;

    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (read(fd, &word, 1) == 1 && word == WORD_RELEASE) {
        k->request_fd = fd;
        return true;
    }
    close(fd);
    return false;
}

static bool told_to_end(struct keeper *k)
{
    struct signal_got got;

    while (signals_next(&k->signals, &got)) {
        if (got.sig == SIGCHLD)
            while (waitpid(-1, NULL, WNOHANG) > 0)
                continue;
        else if (signals_fatal(got.sig))
            return true;
    }
    return false;
}

/* Until the script ends, a release is requested, or a signal comes. */
static void keep_holding(struct keeper *k)
{
    int timer = time_fd();
    struct pollfd p[6] = {{.fd = k->signals.fd, .events = POLLIN},
                          {.fd = session_fd(&k->g), .events = POLLIN},
                          {.fd = k->listen_fd, .events = POLLIN},
                          {.fd = timer, .events = POLLIN},
                          {.fd = session_outer_fd(&k->g), .events = POLLIN},
                          {.fd = k->script.fd, .events = POLLIN}};
    bool over = false;

    while (!over) {
        int64_t now = time_now();

        if (!k->lost)
            check_lock(k, now);
        if (k->lost && now >= k->kill_at) {
            script_signal(&k->script, SIGKILL);
            k->kill_at = TIME_NEVER;
        }
        time_arm(timer, k->lost
                            ? k->kill_at
                            : k->deadline - supervise_grace_ms(k->a, &k->g) -
                                  k->margin_ms);
        if (poll(p, 6, TIME_POLL(timer)) < 0)
            continue;
        if (p[1].revents)
            session_dispatch(&k->g);
        if (p[4].revents)
            p[4].fd = -1;
        over = (p[0].revents && told_to_end(k)) ||
               (p[2].revents && accept_request(k)) ||
               (p[5].revents && script_ended(&k->script));
    }
    if (timer >= 0)
        close(timer);
}

static void answer_request(struct keeper *k, int code)
{
    unsigned char byte = (unsigned char)code;

    if (k->request_fd < 0)
        return;
    ssize_t n = write(k->request_fd, &byte, 1);
    (void)n; /* it asked, and did not wait */
    close(k->request_fd);
}

static int give_back(struct keeper *k)
{
    int64_t more = k->a->min_hold_ms - (time_now() - k->g.held_at);

    if (k->lost || session_valid_ms(&k->g) <= 0)
        return hold_tell_lost(k->a, &k->g);
    return hold_give_back(k->a, &k->g, more > 0 ? more : 0, EXIT_FINE);
}

/* ---- the keeper -------------------------------------------------------- */

/* False: the parent has ended. */
static bool send_news(struct keeper *k, int code)
{
    struct news n = {.code = code};

    snprintf(n.owner, sizeof n.owner, "%s", k->g.owner_text);
    ssize_t done = write(k->news_fd, &n, sizeof n);
    close(k->news_fd);
    return done == (ssize_t)sizeof n; /* smaller than PIPE_BUF */
}

/* Nothing of the script's is left but stderr. */
static void leave_script(struct keeper *k)
{
    setsid();
    signals_heed(&k->signals);
    prctl(PR_SET_NAME, "dibs-keeper");
    fds_leave_input();
}

/* With the lock in hand; the exit code. */
static int hold_for_script(struct keeper *k)
{
    int64_t lease = k->a->lease_ms;
    int why = listen_there(k);

    if (why != 0) {
        out_tell(OUT_ERROR, "internal", "cannot hold %s in the background: %s",
                 k->a->words[0], strerror(why));
        (void)send_news(k, hold_give_back(k->a, &k->g, 0, EXIT_INTERNAL));
        return EXIT_INTERNAL;
    }
    k->margin_ms = time_earlier(lease / 10, MARGIN_MS);
    k->kill_at = TIME_NEVER;
    leave_script(k);
    script_guard_set_release_plan(&k->guard, &k->g);
    if (send_news(k, EXIT_FINE))
        keep_holding(k); /* else nobody knows of it: it is released */
    session_outer_leave(&k->g);
    int code = give_back(k);
    update_guard(k, false);
    unlink(k->path);
    answer_request(k, code);
    return code;
}

static int take_and_hold(struct keeper *k)
{
    struct report report = {.why = NULL};
    const struct wait_end ends = {&k->script, k->news_fd};

    if (script_guard_start(&k->guard, k->a, &k->script, k->news_fd) != 0 ||
        !signals_open_all(&k->signals)) {
        out_tell(OUT_ERROR, "internal", "cannot watch process %d",
                 (int)k->script.pid);
        (void)send_news(k, EXIT_INTERNAL);
        return EXIT_INTERNAL;
    }
    int code = session_acquire(&k->g, k->a, &k->signals, &ends);
    if (code == EXIT_FINE && (k->g.held || k->g.nested))
        code = hold_for_script(k);
    else
        (void)send_news(k, code); /* --ok-if-busy, for one */
    report.code = code;
    report_write(k->a, &k->g, &report);
    session_close(&k->g);
    return code;
}

/* Closes what the script has open; keeps ours, and the pipes of outer runs. */
static void close_others(struct keeper *k)
{
    for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
        if (fd != k->news_fd && fd != k->script.fd && fd != k->script.proc &&
            fd != k->a->status_fd && !nesting_is_outer_fd(fd))
            close(fd);
    fds_close_from(1024, false);
}

static _Noreturn void keeper_main(struct keeper *k)
{
    k->listen_fd = k->request_fd = -1;
    close_others(k);
    _exit(take_and_hold(k));
}

/* ---- the parent -------------------------------------------------------- */

static int await_news(const struct args *a, int fd, pid_t child)
{
    struct news n = {.code = EXIT_INTERNAL};
    struct json j;
    int status;

    ssize_t got = read(fd, &n, sizeof n);
    while (got < 0 && errno == EINTR)
        got = read(fd, &n, sizeof n);
    if (got != (ssize_t)sizeof n) {
        if (waitpid(child, &status, 0) == child)
            return WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status)
                                       : WEXITSTATUS(status);
        return EXIT_INTERNAL;
    }
    if (n.code != EXIT_FINE)
        (void)waitpid(child, &status, 0);
    if (n.code != EXIT_FINE || !a->json)
        return n.code;
    json_open(&j, stdout);
    json_text(&j, "name", a->words[0]);
    json_text(&j, "owner", n.owner[0] ? n.owner : NULL);
    json_int(&j, "lease_ms", a->lease_ms);
    json_int(&j, "for_pid", a->for_pid);
    json_close(&j);
    putchar('\n');
    return out_finish(EXIT_FINE);
}

static int check_script(struct keeper *k)
{
    struct local lo;
    int code = local_find(&lo);

    if (!script_open(&k->script, k->a->for_pid)) {
        out_tell(OUT_ERROR, "usage", "--for-pid: process %d: %s", k->a->for_pid,
                 strerror(errno));
        return EXIT_USAGE;
    }
    if (k->script.pid == SCRIPT_INIT && k->a->on_lost.kind != LOST_WARN)
        out_tell(OUT_WARN, "usage",
                 "process 1 cannot be killed: if %s is lost it is told by a "
                 "signal, once, and must end by itself",
                 k->a->words[0]);
    if (code == EXIT_FINE)
        code = local_folder(&lo);
    if (code == EXIT_FINE)
        code = socket_path(&lo, k->script.pid, k->a->words[0], k->path);
    int fd = code == EXIT_FINE ? dial_keeper(k->path) : -1;
    if (fd < 0)
        return code;
    close(fd);
    out_tell(OUT_ERROR, "busy", "%s is already held for process %d",
             k->a->words[0], k->a->for_pid);
    return k->a->busy_code;
}

int keeper_start(const struct args *a)
{
    int ends[2];

    keeper.a = a;
    int code = check_script(&keeper);
    if (code != EXIT_FINE)
        return code;
    pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (child < 0) {
        out_tell(OUT_ERROR, "internal", "cannot start a process: %s",
                 strerror(errno));
        return EXIT_INTERNAL;
    }
    if (child == 0) {
        keeper.news_fd = ends[1]; /* the parent alone has the read end */
        close(ends[0]);
        keeper_main(&keeper);
    }
    close(ends[1]);
    code = await_news(a, ends[0], child);
    close(ends[0]);
    return code;
}

/* ---- release ----------------------------------------------------------- */

/* The parent of a process; 0: none, or unknown. */
static pid_t parent_of(pid_t pid)
{
    char path[64], line[512], *at;
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    /* The name in brackets may have any bytes in it. */
    if (fgets(line, sizeof line, f) && (at = strrchr(line, ')')) &&
        sscanf(at + 1, " %*c %d", &parent) != 1)
        parent = 0;
    fclose(f);
    return parent;
}

/* The keeper of this process, or of the nearest one that started it. A shell
 * may become its last command, and a subshell releases what its script holds.
 * -1: there is none. */
static int find_keeper(const struct args *a, const struct local *lo)
{
    char path[LOCAL_PATH_MAX];
    pid_t pid = a->for_pid > 0 ? a->for_pid : getpid();

    while (pid > 0 && socket_path(lo, pid, a->words[0], path) == EXIT_FINE) {
        int fd = dial_keeper(path);

        if (fd >= 0 || a->for_pid > 0)
            return fd;
        pid = parent_of(pid);
    }
    return -1;
}

int keeper_release(const struct args *a)
{
    struct local lo;
    unsigned char byte;
    int code = local_find(&lo);

    if (code != EXIT_FINE)
        return code;
    int fd = find_keeper(a, &lo);
    if (fd < 0) {
        out_tell(OUT_ERROR, "lost",
                 "%s is not held for this process by 'dibs hold --for-pid', or "
                 "not any more; what 'dibs acquire' took is released with "
                 "--owner HANDLE",
                 a->words[0]);
        return EXIT_LOST;
    }
    byte = WORD_RELEASE;
    ssize_t n = send(fd, &byte, 1, MSG_NOSIGNAL);
    while (n == 1 && (n = read(fd, &byte, 1)) < 0 && errno == EINTR)
        n = 1;
    close(fd);
    if (n == 1)
        return byte;
    out_tell(OUT_ERROR, "unconfirmed",
             "the process that held %s ended without a word", a->words[0]);
    return EXIT_UNSURE;
}
