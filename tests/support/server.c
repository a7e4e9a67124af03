/* SPDX-License-Identifier: MIT
 *
 * server.c - a real server for a test: its process and its folder.
 *
 * Between the test and its server stands a third process, the keeper. It is
 * forked for one server, is that server's parent and owns its folder; the test
 * talks to it through a socket, one question, one answer. When the test closes
 * the socket or dies of whatever, the keeper notices, kills the server, removes
 * the folder and ends. It leads a session of its own and blocks all signals,
 * so that an interrupt at the terminal cannot end it before its work is done.
 * Should the keeper itself be killed, the kernel kills the server with it.
 *
 * Log     It is in the folder that run_test.c made for the test, which outlives
 * a failed test; or in the server's own, if there is no such folder.
 *
 * Port    A socket that is bound, never listens and stays open keeps the port
 *         ours for as long as the server lives and while it is being
 *         restarted: nobody else gets it, but the server may share it.
 *
 * Thread  any. Locks: s.mu for whatever of s is not constant; list_mu for the
 *         list of servers, which exit() goes through.
 *
 * fork    The keeper comes from fork without exec, maybe out of a process with
 *         threads: it allocates nothing and takes no lock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/server_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/util.h"

/* What the test asks the keeper; the answer is a pid, 0 = no server now. */
enum ask { ASK_START, ASK_ALIVE, ASK_KILL, ASK_PAUSE, ASK_RESUME };

static pthread_mutex_t list_mu = PTHREAD_MUTEX_INITIALIZER;
static struct ts_server *list; /* list_mu */

/* ---- the keeper -------------------------------------------------------- */

/* waitpid that nothing interrupts. */
static pid_t reap(pid_t pid, int *status, int flags)
{
    pid_t got;

    do
        got = waitpid(pid, status, flags);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Until the server has stopped, gone on or ended; 0: it does not. The keeper
 * must not wait forever, or nobody would clean up. */
static pid_t reap_change(pid_t pid, int *status, int flag)
{
    pid_t got = 0;

    for (int i = 0; i < 20000 && got == 0; i++) {
        got = reap(pid, status, flag | WNOHANG);
        if (got == 0)
            poll(NULL, 0, 1);
    }
    return got;
}

/* Closes everything but the standard three and these two. */
static void keep_only(int a, int b)
{
    unsigned lo = (unsigned)(a < b ? a : b);
    unsigned hi = (unsigned)(a < b ? b : a);

    if (a < 0 || b < 0)
        lo = hi;
    if (lo > 3)
        close_range(3, lo - 1, 0);
    if (hi > lo + 1)
        close_range(lo + 1, hi - 1, 0);
    close_range(hi + 1, ~0U, 0);
}

_Noreturn static void run_server(const struct ts_server *s, pid_t keeper)
{
    sigset_t none;
    int fd = open(s->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(126);
    if (fd >= 0) {
        dup2(fd, 1);
        dup2(fd, 2);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(s->argv[0], s->argv);
    dprintf(2, "cannot run %s: %s\n", s->argv[0], strerror(errno));
    _exit(127);
}

static pid_t keeper_start(const struct ts_server *s)
{
    pid_t keeper = getpid();
    pid_t pid = fork();

    if (pid == 0)
        run_server(s, keeper);
    return pid > 0 ? pid : 0;
}

static pid_t keeper_answer(const struct ts_server *s, pid_t pid, enum ask ask)
{
    int status = 0;
    pid_t got = 0;

    if (ask == ASK_START)
        return pid ? pid : keeper_start(s);
    if (pid == 0)
        return 0;
    switch (ask) {
    case ASK_KILL:
        kill(pid, SIGKILL);
        reap(pid, &status, 0);
        return 0;
    case ASK_PAUSE:
        kill(pid, SIGSTOP);
        got = reap_change(pid, &status, WUNTRACED);
        break;
    case ASK_RESUME:
        kill(pid, SIGCONT);
        got = reap_change(pid, &status, WCONTINUED);
        break;
    case ASK_START:
    case ASK_ALIVE:
        got = reap(pid, &status, WNOHANG);
        break;
    }
    bool ended = got == pid && (WIFEXITED(status) || WIFSIGNALED(status));
    return ended ? 0 : pid;
}

static void remove_folder(const char *dir)
{
    pid_t pid = fork();

    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", dir, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        reap(pid, NULL, 0);
}

/* test: becomes readable when the test process is gone, even if others still
 * have the other end of ctl; -1 where the system has no such thing. */
_Noreturn static void keeper_main(const struct ts_server *s, int ctl, int test)
{
    pid_t pid = 0;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    dup2(null, 0);
    dup2(null, 1);
    keep_only(ctl, test);
    prctl(PR_SET_NAME, "ts-keeper");
    for (;;) {
        struct pollfd f[2] = {{.fd = ctl, .events = POLLIN},
                              {.fd = test, .events = POLLIN}};
        enum ask ask;

        if (poll(f, 2, -1) < 0 && errno != EINTR)
            break;
        if (f[1].revents)
            break;
        if (!f[0].revents)
            continue;
        if (recv(ctl, &ask, sizeof ask, 0) != sizeof ask)
            break;
        pid = keeper_answer(s, pid, ask);
        send(ctl, &pid, sizeof pid, MSG_NOSIGNAL);
    }
    keeper_answer(s, pid, ASK_KILL);
    remove_folder(s->dir);
    _exit(0);
}

/* Locks: needs s.mu. */
static pid_t ask_keeper(struct ts_server *s, enum ask ask)
{
    pid_t pid = 0;

    if (getpid() != s->owner)
        ts_fatal("only the process that started a server may do this");
    if (send(s->ctl, &ask, sizeof ask, MSG_NOSIGNAL) != sizeof ask ||
        recv(s->ctl, &pid, sizeof pid, 0) != sizeof pid)
        ts_fatal("the keeper of %s is gone", s->dir);
    s->pid = pid;
    return pid;
}

static void fork_keeper(struct ts_server *s)
{
    int test = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int ends[2];
    sigset_t all, before;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        ts_fatal("socketpair: %s", strerror(errno));
    fflush(NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->keeper = fork();
    if (s->keeper == 0) {
        setsid();
        keeper_main(s, ends[1], test);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s->keeper < 0)
        ts_fatal("fork: %s", strerror(errno));
    close(ends[1]);
    if (test >= 0)
        close(test);
    s->ctl = ends[0];
}

/* ---- its birth --------------------------------------------------------- */

/* Binds to a port of the kernel's choice, and lets only those share it who
 * ask: we are alone with it, and the server will ask. */
int ts__port_take(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0)
        ts_fatal("no port: %s", strerror(errno));
    *port = ntohs(a.sin_port);
    return fd;
}

/* A sentinel has its configuration in a file, which it rewrites. */
static void build_sentinel(struct ts_server *s, const char *lines)
{
    const char *program = getenv("SERVER");
    char *path = ts_text("%s/sentinel.conf", s->dir);
    FILE *f = fopen(path, "we");

    if (!f ||
        fprintf(f, "port %d\nbind 127.0.0.1\nunixsocket %s\ndir %s\n%s\n",
                s->port, s->socket, s->dir, lines) < 0 ||
        fclose(f) != 0)
        ts_fatal("cannot write %s", path);
    s->argv = ts_alloc(4 * sizeof *s->argv);
    s->argv[0] = ts_strdup(program && *program ? program : "redis-server");
    s->argv[1] = path;
    s->argv[2] = ts_strdup("--sentinel");
}

static void build_argv(struct ts_server *s, const char *const *extra)
{
    const char *program = getenv("SERVER");
    char port[16];
    size_t n = 0, more = 0;

    snprintf(port, sizeof port, "%d", s->port);
    const char *ours[] = {program && *program ? program : "redis-server",
                          "--port",
                          port,
                          "--bind",
                          "127.0.0.1",
                          "--unixsocket",
                          s->socket,
                          "--dir",
                          s->dir,
                          "--save",
                          "",
                          "--appendonly",
                          "no",
                          "--daemonize",
                          "no"};
    const size_t count = sizeof ours / sizeof ours[0];
    while (extra && extra[more])
        more++;
    s->argv = ts_alloc((count + more + 1) * sizeof *s->argv);
    for (; n < count; n++)
        s->argv[n] = ts_strdup(ours[n]);
    for (size_t i = 0; i < more; i++) {
        s->argv[n++] = ts_strdup(extra[i]);
        if (strcmp(extra[i], "--requirepass") == 0 && extra[i + 1])
            ts_server_password(s, extra[i + 1]);
    }
}

static struct ts_server *new_server(const char *const *extra,
                                    const char *sentinel)
{
    struct ts_server *s = ts_alloc(sizeof *s);
    const char *tmp = getenv("TMPDIR"), *logs = getenv("DIBS_TEST_DIR");
    char *dir = ts_text("%s/dibs-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");

    if (!mkdtemp(dir))
        ts_fatal("mkdtemp: %s", strerror(errno));
    pthread_mutex_init(&s->mu, NULL);
    s->owner = getpid();
    s->dir = dir;
    s->socket = ts_text("%s/redis.sock", dir);
    s->log = logs ? ts_text("%s/%s.log", logs, strrchr(dir, '/') + 1)
                  : ts_text("%s/log", dir);
    s->port_fd = ts__port_take(&s->port);
    s->url = ts_text("unix://%s", s->socket);
    s->tcp_url = ts_text("redis://127.0.0.1:%d", s->port);
    if (sentinel)
        build_sentinel(s, sentinel);
    else
        build_argv(s, extra);
    return s;
}

static void free_server(struct ts_server *s)
{
    ts__cn_drop(s);
    close(s->port_fd);
    for (char **a = s->argv; *a; a++)
        free(*a);
    free(s->argv);
    free(s->dir);
    free(s->socket);
    free(s->log);
    free(s->url);
    free(s->tcp_url);
    free(s->password);
    pthread_mutex_destroy(&s->mu);
    free(s);
}

/* The last of what the server had to say. */
static char *read_log(const struct ts_server *s)
{
    char *text = ts_alloc(2000);
    FILE *f = fopen(s->log, "re");
    size_t n = 0;

    if (f) {
        if (fseek(f, -1999, SEEK_END) < 0)
            rewind(f);
        n = fread(text, 1, 1999, f);
        fclose(f);
    }
    text[n] = '\0';
    return text;
}

/* Locks: needs s.mu. */
static bool start_and_wait(struct ts_server *s)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    ts__cn_drop(s);
    s->own = 0;
    ask_keeper(s, ASK_START);
    while (!ts__cn_ready(s))
        if (!ask_keeper(s, ASK_ALIVE) || !ts_wait_step(&w))
            return false;
    return true;
}

/* Locks: takes list_mu. */
static void list_add(struct ts_server *s)
{
    pthread_mutex_lock(&list_mu);
    s->next = list;
    list = s;
    pthread_mutex_unlock(&list_mu);
}

/* Locks: takes list_mu. */
static void list_remove(struct ts_server *s)
{
    pthread_mutex_lock(&list_mu);
    for (struct ts_server **at = &list; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    pthread_mutex_unlock(&list_mu);
}

/* The keeper would do it anyway, but not before the program has ended, and the
 * one that looks then should find nothing. */
static void stop_all(void)
{
    for (struct ts_server *s = list, *next; s; s = next) {
        next = s->next;
        if (s->owner == getpid())
            ts_server_stop(s);
    }
}

static void at_exit_once(void)
{
    atexit(stop_all);
}

static struct ts_server *start_new(const char *const *extra,
                                   const char *sentinel)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, at_exit_once);
    for (int attempt = 1;; attempt++) {
        struct ts_server *s = new_server(extra, sentinel);

        fork_keeper(s);
        list_add(s);
        pthread_mutex_lock(&s->mu);
        bool up = start_and_wait(s);
        pthread_mutex_unlock(&s->mu);
        if (up)
            return s;
        char *log = read_log(s);
        ts_server_stop(s);
        /* A node of a cluster needs a second port, 10,000 above the first. */
        if (attempt == 20 || !(strstr(log, "already in use") ||
                               strstr(log, "port number too high")))
            ts_fatal("the server does not start:\n%s", log);
        free(log);
    }
}

struct ts_server *ts_server_start(const char *const *extra)
{
    return start_new(extra, NULL);
}

struct ts_server *ts_sentinel_start(const char *lines)
{
    return start_new(NULL, lines);
}

/* ---- its life ---------------------------------------------------------- */

void ts_server_stop(struct ts_server *s)
{
    if (!s)
        return;
    list_remove(s);
    if (s->owner == getpid()) {
        shutdown(s->ctl, SHUT_RDWR);
        reap(s->keeper, NULL, 0); /* it ends when the folder is gone */
    }
    close(s->ctl);
    free_server(s);
}

void ts_server_kill(struct ts_server *s)
{
    pthread_mutex_lock(&s->mu);
    ask_keeper(s, ASK_KILL);
    s->paused = false;
    ts__cn_drop(s);
    pthread_mutex_unlock(&s->mu);
}

void ts_server_restart(struct ts_server *s)
{
    pthread_mutex_lock(&s->mu);
    ask_keeper(s, ASK_KILL);
    s->paused = false;
    bool up = start_and_wait(s);
    pthread_mutex_unlock(&s->mu);
    if (!up)
        ts_fatal("the server does not start again:\n%s", read_log(s));
}

void ts_server_pause(struct ts_server *s)
{
    pthread_mutex_lock(&s->mu);
    if (!s->paused && !ask_keeper(s, ASK_PAUSE))
        ts_fatal("there is no server to pause");
    s->paused = true;
    pthread_mutex_unlock(&s->mu);
}

void ts_server_resume(struct ts_server *s)
{
    pthread_mutex_lock(&s->mu);
    if (s->paused && !ask_keeper(s, ASK_RESUME))
        ts_fatal("there is no server to resume");
    s->paused = false;
    pthread_mutex_unlock(&s->mu);
}

const char *ts_server_url(const struct ts_server *s)
{
    return s->url;
}

const char *ts_server_tcp_url(const struct ts_server *s)
{
    return s->tcp_url;
}

const char *ts_server_socket(const struct ts_server *s)
{
    return s->socket;
}

const char *ts_server_dir(const struct ts_server *s)
{
    return s->dir;
}

int ts_server_port(const struct ts_server *s)
{
    return s->port;
}

pid_t ts_server_pid(const struct ts_server *s)
{
    return s->pid;
}
