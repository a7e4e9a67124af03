/* SPDX-License-Identifier: MIT
 *
 * private_server.c - the private server of a user who gave no URL.
 *
 * Locks between processes of one user on one machine should need no set-up: the
 * first command that needs a server starts one, on a Unix socket in the user's
 * runtime folder, and all later ones find it there. It is a real redis-server,
 * without a port and without files, and runs until "dibs local stop" or until
 * the machine is shut down.
 *
 * Where   $XDG_RUNTIME_DIR/dibs; without that variable /run/user/UID/dibs or,
 *         where that does not exist, /tmp/dibs-UID. A cron job may find no
 *         /run/user/UID while a login shell does, and both must get the same
 *         server: so one that already listens in /tmp/dibs-UID is used.
 *
 *         If a server runs but cannot be reached any more, no second one is
 *         started: see private_server_orphan.c.
 *
 * Trust   A user who can replace the folder or the socket decides who holds our
 *         locks. So the folder must not be a link, must belong to us, and must
 *         be closed to others. The server on the socket must run as our user
 *         (SO_PEERCRED).
 *
 * Once    Starting and stopping happen under flock(2) on a file in the folder.
 *         The process that gets this lock looks again before it acts. The
 *         kernel drops the lock when its holder dies. If the holder lives and
 *         does not finish, we wait until the user's limit.
 *
 * Thread  Any one; run and hold do this on a thread beside their main loop.
 *         Between fork and exec only async-signal-safe functions are called.
 */
#include "server/private_server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exit_codes.h"
#include "output/output.h"
#include "server/private_server_orphan.h"
#include "util/fds.h"
#include "util/time.h"

#define START_MS     10000 /* longest wait for a server to listen */
#define START_MIN_MS 1000  /* it gets so long, however small -w is */
#define START_TRY_MS 3000  /* and so long with -n, which is no time limit */
#define STOP_MS      5000  /* from TERM to KILL */

#define LOCK_TELL_MS  2000 /* before we say that we wait for others */
#define LOCK_PAUSE_MS 50

/* ---- the folder -------------------------------------------------------- */

static int refuse_place(const char *why, const char *path)
{
    out_tell(OUT_ERROR, "local",
             "no place for a private server: %s %s; give a server with -u "
             "URL, or another folder in XDG_RUNTIME_DIR",
             path, why);
    return EXIT_SERVER;
}

static bool join_path(char out[LOCAL_PATH_MAX], const char *dir,
                      const char *name)
{
    size_t n = strlen(dir), more = strlen(name);

    if (n + more >= LOCAL_PATH_MAX)
        return false;
    memcpy(out, dir, n);
    memcpy(out + n, name, more + 1);
    return true;
}

/* Puts the paths together; false when they do not fit a socket address. */
static bool set_dir(struct local *lo, const char *dir)
{
    lo->other[0] = '\0';
    return join_path(lo->dir, dir, "") &&
           join_path(lo->socket, dir, "/redis.sock") &&
           join_path(lo->start, dir, "/start.lock") &&
           join_path(lo->log, dir, "/redis.log");
}

/* What is wrong with the folder that contains ours? Others may own it only if
 * they cannot rename our folder in it. */
static const char *base_wrong(const char *path)
{
    struct stat st;

    if (path[0] != '/')
        return "is not an absolute path";
    if (stat(path, &st) != 0)
        return strerror(errno);
    if (!S_ISDIR(st.st_mode))
        return "is not a folder";
    if (st.st_uid != geteuid() && !(st.st_mode & S_ISVTX))
        return "belongs to somebody else";
    return NULL;
}

/* What is wrong with our folder? That it does not exist is not wrong; *absent
 * tells. */
static const char *dir_wrong(const char *path, bool *absent)
{
    struct stat st;

    *absent = false;
    if (lstat(path, &st) != 0) {
        *absent = errno == ENOENT;
        return *absent ? NULL : strerror(errno);
    }
    if (!S_ISDIR(st.st_mode))
        return "is not a folder";
    if (st.st_uid != geteuid())
        return "belongs to somebody else";
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return "is open to others (chmod 700 it)";
    return NULL;
}

int local_folder(const struct local *lo)
{
    bool absent;

    if (mkdir(lo->dir, 0700) != 0 && errno != EEXIST)
        return refuse_place(strerror(errno), lo->dir);
    const char *why = dir_wrong(lo->dir, &absent);
    if (!why && absent)
        why = "was removed meanwhile";
    return why ? refuse_place(why, lo->dir) : EXIT_FINE;
}

static int find_in(struct local *lo, const char *base)
{
    char dir[LOCAL_PATH_MAX];
    const char *why = base_wrong(base);

    if (why)
        return refuse_place(why, base);
    if (snprintf(dir, sizeof dir, "%s/dibs", base) >= (int)sizeof dir ||
        !set_dir(lo, dir))
        return refuse_place("is too long for a socket's address", base);
    return EXIT_FINE;
}

int local_find(struct local *lo)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    char user[LOCAL_PATH_MAX], tmp[LOCAL_PATH_MAX];
    struct local other;

    snprintf(user, sizeof user, "/run/user/%lu", (unsigned long)geteuid());
    snprintf(tmp, sizeof tmp, "/tmp/dibs-%lu", (unsigned long)geteuid());
    if (xdg && *xdg && strcmp(xdg, user) != 0)
        return find_in(lo, xdg);

    (void)set_dir(&other, tmp); /* fits, as the other place does */
    (void)join_path(other.other, user, "/dibs");
    if (base_wrong(user) != NULL) {
        *lo = other;
        return EXIT_FINE;
    }
    int code = find_in(lo, user);
    if (code == EXIT_FINE)
        (void)join_path(lo->other, tmp, "");
    if (code == EXIT_FINE && !local_alive(lo, NULL) &&
        local_alive(&other, NULL))
        *lo = other;
    return code;
}

/* ---- is it there? ------------------------------------------------------ */

/* A connection to what listens on the socket, or -1. */
static int dial_server(const struct local *lo, struct ucred *peer)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    socklen_t len = sizeof *peer;
    bool absent;

    if (dir_wrong(lo->dir, &absent) || absent)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    memcpy(sa.sun_path, lo->socket, sizeof sa.sun_path);
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &len) == 0 &&
        peer->uid == geteuid())
        return fd;
    close(fd);
    return -1;
}

bool local_alive(const struct local *lo, pid_t *pid)
{
    struct ucred peer;
    int fd = dial_server(lo, &peer);

    if (fd < 0)
        return false;
    close(fd);
    if (pid)
        *pid = peer.pid;
    return true;
}

char *local_url(const struct local *lo)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-._~";
    struct out_text url;

    if (!out_text_open(&url))
        return NULL;
    fputs("unix://", url.f);
    for (const char *s = lo->socket; *s; s++)
        fprintf(url.f, strchr(plain, *s) ? "%c" : "%%%02X", (unsigned char)*s);
    return out_text_close(&url);
}

/* ---- start ------------------------------------------------------------- */

/* In the new process: becomes the server, or sends errno and ends. err_fd
 * closes by itself when exec works; life_fd stays open while the server
 * lives. */
static _Noreturn void become_server(const struct local *lo, int err_fd,
                                    int life_fd)
{
    static char *const names[] = {"redis-server", "valkey-server"};
    char *argv[] = {NULL,
                    "--port",
                    "0",
                    "--unixsocket",
                    (char *)lo->socket,
                    "--unixsocketperm",
                    "700",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--maxmemory-policy",
                    "noeviction",
                    "--dir",
                    (char *)lo->dir,
                    "--logfile",
                    (char *)lo->log,
                    "--daemonize",
                    "no",
                    NULL};
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t none;
    int null = open("/dev/null", O_RDWR);
    int why = null < 0 ? errno : ENOENT;

    for (int sig = 1; sig < NSIG; sig++)
        sigaction(sig, &usual, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(077);
    if (null >= 0 && dup2(null, 0) >= 0 && dup2(null, 1) >= 0 &&
        dup2(null, 2) >= 0 && chdir(lo->dir) == 0) {
        fds_close_from(3, true);
        fcntl(life_fd, F_SETFD, 0);
        for (size_t i = 0; i < 2 && why == ENOENT; i++) {
            argv[0] = names[i];
            execvp(argv[0], argv);
            why = errno;
        }
    }
    ssize_t n = write(err_fd, &why, sizeof why);
    _exit(n == sizeof why ? 0 : 1);
}

/* Forks twice, so that the server is not our child, and has a session of its
 * own: no terminal and no signal to our group reaches it. */
static bool spawn_server(const struct local *lo, int err_fd, int life_fd)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        setsid();
        pid = fork();
        if (pid == 0)
            become_server(lo, err_fd, life_fd);
        _exit(pid < 0 ? 1 : 0);
    }
    if (pid < 0)
        return false;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) /* ECHILD: SIGCHLD is ignored; life_fd tells */
            return errno == ECHILD;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Waits until the server listens. It is dead when life ends first. */
static int await_listening(const struct local *lo, int life, int64_t until)
{
    int64_t end = time_earlier(time_now() + START_MS, until);
    struct pollfd p = {.fd = life, .events = POLLIN};
    bool died = false;

    while (!died && time_now() < end) {
        if (local_alive(lo, NULL))
            return EXIT_FINE;
        died = poll(&p, 1, 2) > 0; /* EOF: no process has the write end */
    }
    out_tell(OUT_ERROR, "local",
             died ? "the private redis-server ended at once; see %s"
                  : "the private redis-server did not start in time; see %s",
             lo->log);
    return EXIT_SERVER;
}

static int launch_server(const struct local *lo, int64_t until)
{
    int err[2] = {-1, -1}, life[2] = {-1, -1}, why = 0;
    int code = EXIT_SERVER;

    unlink(lo->socket); /* of a server that died */
    if (pipe2(err, O_CLOEXEC) != 0 || pipe2(life, O_CLOEXEC) != 0 ||
        !spawn_server(lo, err[1], life[1])) {
        out_tell(OUT_ERROR, "local", "cannot start a private redis-server: %s",
                 strerror(errno));
        goto out;
    }
    close(err[1]);
    close(life[1]);
    err[1] = life[1] = -1;
    if (read(err[0], &why, sizeof why) == sizeof why) {
        out_tell(OUT_ERROR, "local",
                 why == ENOENT
                     ? "no URL given, and no redis-server or valkey-server to "
                       "start: install one, or give a server with -u URL"
                     : "cannot start a private redis-server: %s",
                 strerror(why));
        goto out;
    }
    code = await_listening(lo, life[0], until);
out:
    for (int i = 0; i < 2; i++) {
        if (err[i] >= 0)
            close(err[i]);
        if (life[i] >= 0)
            close(life[i]);
    }
    return code;
}

/* Locks a file of ours that others may have locked; 0, or the errno. ETIMEDOUT:
 * still locked by another at that time. flock has no time limit, so we try
 * again and again. */
static int lock_file(const struct local *lo, int fd, int64_t until)
{
    int64_t tell_at = time_now() + LOCK_TELL_MS, pause = 5;

    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int64_t now = time_now();

        if (errno != EWOULDBLOCK && errno != EINTR)
            return errno;
        if (now >= until)
            return ETIMEDOUT;
        if (now >= tell_at) {
            tell_at = TIME_NEVER;
            out_tell(OUT_WARN, "local",
                     "waiting for another process that starts or stops the "
                     "private redis-server (it has locked %s)",
                     lo->start);
        }
        if (pause > until - now)
            pause = until - now;
        poll(NULL, 0, (int)pause);
        pause = pause < LOCK_PAUSE_MS / 2 ? 2 * pause : LOCK_PAUSE_MS;
    }
    return 0;
}

/* The lock of the folder, or -1 and an error was printed. */
static int lock_folder(const struct local *lo, int64_t until)
{
    int fd = open(lo->start, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int why = fd >= 0 ? lock_file(lo, fd, until) : errno;

    if (why == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    if (why == ETIMEDOUT)
        out_tell(OUT_ERROR, "local",
                 "another process starts or stops the private redis-server "
                 "and does not finish; it has locked %s",
                 lo->start);
    else
        (void)refuse_place(strerror(why), lo->start);
    return -1;
}

/* False, with an error: a server with locks on it runs, but cannot be reached
 * any more. */
static bool none_left(const struct local *lo)
{
    pid_t pid = orphan_busy(lo->dir, lo->socket);
    struct local other;

    if (!pid && lo->other[0] && set_dir(&other, lo->other))
        pid = orphan_busy(other.dir, other.socket);
    if (pid)
        out_tell(OUT_ERROR, "local",
                 "a private redis-server still runs, but its socket is gone "
                 "(process %ld); somebody may hold locks there: wait, or end "
                 "it with: kill %ld",
                 (long)pid, (long)pid);
    return pid == 0;
}

static int64_t start_limit(int64_t until)
{
    int64_t now = time_now();
    int64_t least = now + (until > now ? START_MIN_MS : START_TRY_MS);

    return until > least ? until : least;
}

int local_start(const struct local *lo, int64_t until)
{
    if (local_alive(lo, NULL))
        return EXIT_FINE;
    int code = local_folder(lo);
    if (code != EXIT_FINE)
        return code;
    until = start_limit(until);
    int fd = lock_folder(lo, until);
    if (fd < 0)
        return EXIT_SERVER;
    if (!local_alive(lo, NULL)) {
        code = none_left(lo) ? launch_server(lo, until) : EXIT_SERVER;
        if (code == EXIT_FINE)
            out_tell(OUT_WARN, "local",
                     "no URL given: started a private redis-server on %s "
                     "(end it with: dibs local stop)",
                     lo->socket);
    }
    close(fd);
    return code;
}

/* ---- stop -------------------------------------------------------------- */

/* Signals the process behind the socket, and waits until it is gone. A pidfd
 * cannot come to mean another process. It is that of the right process if the
 * connection, which was made before, is still up after. An old Linux has no
 * pidfd; then the process id is used while the connection is up. */
static bool end_server(int conn, pid_t pid, int sig)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = conn, .events = POLLIN};

    if (poll(&p, 1, 0) != 0) { /* it said nothing, so it has ended */
        if (fd >= 0)
            close(fd);
        return true;
    }
    if (fd >= 0)
        syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
    else
        kill(pid, sig);
    p.fd = fd >= 0 ? fd : conn;
    bool gone = poll(&p, 1, STOP_MS) == 1;
    if (fd >= 0)
        close(fd);
    return gone;
}

int local_stop(const struct local *lo, pid_t *pid)
{
    struct ucred peer;

    *pid = 0;
    if (!local_alive(lo, NULL))
        return EXIT_FINE;
    int lock = lock_folder(lo, time_now() + START_MS + 2 * STOP_MS);
    if (lock < 0)
        return EXIT_SERVER;
    int conn = dial_server(lo, &peer);
    bool gone = conn < 0;

    if (!gone) {
        *pid = peer.pid;
        gone = end_server(conn, peer.pid, SIGTERM) ||
               end_server(conn, peer.pid, SIGKILL);
        close(conn);
    }
    if (gone)
        unlink(lo->socket);
    else
        out_tell(OUT_ERROR, "local", "process %ld does not end", (long)*pid);
    close(lock);
    return gone ? EXIT_FINE : EXIT_SERVER;
}
