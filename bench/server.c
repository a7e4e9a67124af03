/* SPDX-License-Identifier: MIT
 *
 * server.c - the redis-servers that are measured against.
 *
 * It is started here, in a folder of its own, so that nobody else's commands
 * are in the numbers and nobody's data is in danger. It must not outlive us:
 * it is killed at exit, on the usual signals, and by the kernel should we die
 * of anything else. Only the process that started it does any of this; its
 * children, which are measured, leave it alone.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include "net/url.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 5000 /* it has this long to answer */

#define SERVERS_MAX 12

static struct {
    pid_t keeper; /* who started them */
    int port;     /* of the first; 0: no TCP */
    char dir[96];
    char log[112];
    char tcp_url[64];
    int n; /* the first is the one that is measured; more for a quorum */
    struct server {
        pid_t pid; /* 0: none */
        char sock[112];
        char url[128];
    } all[SERVERS_MAX];
} sv;

/* ---- its end ----------------------------------------------------------- */

static void remove_files(void)
{
    for (int i = 0; i < sv.n; i++)
        unlink(sv.all[i].sock);
    unlink(sv.log);
    rmdir(sv.dir);
}

static void stop(void)
{
    if (getpid() != sv.keeper)
        return;
    remove_files();
    for (int i = 0; i < sv.n; i++) {
        if (sv.all[i].pid <= 0)
            continue;
        kill(sv.all[i].pid, SIGKILL);
        waitpid(sv.all[i].pid, NULL, 0);
        sv.all[i].pid = 0;
    }
}

/* The server dies with us; threads that are still at work must not see it go
 * before. */
static void on_signal(int sig)
{
    if (getpid() == sv.keeper)
        remove_files();
    signal(sig, SIG_DFL);
    raise(sig);
}

/* ---- its start --------------------------------------------------------- */

/* A port that is free right now. Somebody may take it before the server does;
 * then the server says so and we end. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        die("no free port: %s", strerror(errno));
    close(fd);
    return ntohs(at.sin_port);
}

static void make_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    int len = snprintf(sv.dir, sizeof sv.dir, "%s/dibs-bench.XXXXXX",
                       tmp && *tmp ? tmp : "/tmp");

    if (len < 0 || (size_t)len >= 80) /* a socket's path must be short */
        die("TMPDIR is too long");
    if (!mkdtemp(sv.dir))
        die("%s: %s", sv.dir, strerror(errno));
    snprintf(sv.log, sizeof sv.log, "%s/log", sv.dir);
}

/* In the child: becomes the server. */
static void become_server(pid_t parent, const char *sock, int tcp)
{
    char port[16];
    int log = open(sv.log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || log < 0) /* too late for that signal */
        _exit(126);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    snprintf(port, sizeof port, "%d", tcp);
    execlp("redis-server", "redis-server", "--port", port, "--bind",
           "127.0.0.1", "--unixsocket", sock, "--dir", sv.dir, "--save", "",
           "--appendonly", "no", "--daemonize", "no", (char *)NULL);
    _exit(127);
}

/* Waits until it answers. */
static void wait_for_server(struct server *s)
{
    int64_t limit = now_ns() + (int64_t)START_MS * 1000000;

    while (now_ns() < limit) {
        int status = 0;
        redisContext *rc = redisConnectUnix(s->sock);
        bool up = rc && !rc->err;
        redisFree(rc);
        if (up)
            return;
        if (waitpid(s->pid, &status, WNOHANG) == s->pid) {
            s->pid = 0;
            die(WIFEXITED(status) && WEXITSTATUS(status) == 127
                    ? "redis-server was not found"
                    : "redis-server ended at once");
        }
        sleep_ms(5);
    }
    die("redis-server did not answer within %d ms", START_MS);
}

static struct server *start_one(int port)
{
    struct server *s = &sv.all[sv.n];
    char dir[sizeof sv.dir], sock[sizeof s->sock];

    if (sv.n == SERVERS_MAX)
        die("too many servers");
    memcpy(dir, sv.dir, sizeof dir);
    snprintf(sock, sizeof sock, "%s/redis%d.sock", dir, sv.n);
    memcpy(s->sock, sock, sizeof sock);
    snprintf(s->url, sizeof s->url, "unix://%s", sock);
    sv.n++;
    s->pid = fork();
    if (s->pid < 0)
        die("fork: %s", strerror(errno));
    if (s->pid == 0)
        become_server(sv.keeper, s->sock, port);
    wait_for_server(s);
    return s;
}

const char *server_more(void)
{
    return start_one(0)->url;
}

void server_start(bool tcp)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

    sv.keeper = getpid();
    sv.port = tcp ? free_port() : 0;
    make_folder();
    snprintf(sv.tcp_url, sizeof sv.tcp_url, "redis://127.0.0.1:%d", sv.port);
    atexit(stop);
    for (size_t i = 0; i < COUNT(signals); i++)
        signal(signals[i], on_signal);

    start_one(sv.port);
}

const char *server_url(bool tcp)
{
    return tcp ? sv.tcp_url : sv.all[0].url;
}

/* ---- talking to it ----------------------------------------------------- */

/* Sends a command during set-up, which must not fail. */
static void expect_ok(redisContext *rc, int argc, const char **argv)
{
    redisReply *r = redisCommandArgv(rc, argc, argv, NULL);

    if (!r || r->type == REDIS_REPLY_ERROR)
        die("%s: %s", argv[0], r ? r->str : rc->errstr);
    freeReplyObject(r);
}

redisContext *server_connect(const char *url)
{
    struct dibs__url u;
    struct timeval limit = {.tv_sec = 5};

    must(dibs__url_parse(url, &u, NULL), "URL");
    if (u.mode != URL_SINGLE || u.tls.on)
        die("the comparison needs redis:// or unix://");
    redisContext *rc = u.unix_socket
                           ? redisConnectUnixWithTimeout(u.path, limit)
                           : redisConnectWithTimeout(u.host, u.port, limit);
    if (!rc || rc->err)
        die("no connection: %s", rc ? rc->errstr : "out of memory");
    if (u.password && u.user)
        expect_ok(rc, 3, (const char *[]){"AUTH", u.user, u.password});
    else if (u.password)
        expect_ok(rc, 2, (const char *[]){"AUTH", u.password});
    if (u.db != 0) {
        char db[16];
        snprintf(db, sizeof db, "%d", u.db);
        expect_ok(rc, 2, (const char *[]){"SELECT", db});
    }
    dibs__url_clear(&u);
    return rc;
}

/* One section of INFO. */
static redisReply *info(redisContext *rc, const char *section)
{
    redisReply *r = redisCommand(rc, "INFO %s", section);

    if (!r || !r->str || r->type == REDIS_REPLY_ERROR)
        die("INFO: %s", r && r->str ? r->str : rc->errstr);
    return r;
}

const char *server_version(redisContext *rc, char *buf, size_t size)
{
    redisReply *r = info(rc, "server");
    const char *at = strstr(r->str, "redis_version:");

    snprintf(buf, size, "%.*s", at ? (int)strcspn(at + 14, "\r\n") : 1,
             at ? at + 14 : "?");
    freeReplyObject(r);
    return buf;
}

/* Redis counts what a script calls like what a client sends. These are what
 * clients send: the library, and in some measurements we. */
static bool is_counted(const char *name, size_t len)
{
    static const char *const sent[] = {
        "eval",      "evalsha",     "script|load", "scan",   "auth",
        "subscribe", "unsubscribe", "ping",        "select",
    };

    for (size_t i = 0; i < COUNT(sent); i++)
        if (strlen(sent[i]) == len && memcmp(sent[i], name, len) == 0)
            return true;
    return len > 7 && memcmp(name, "client|", 7) == 0;
}

/* Lines like "cmdstat_evalsha:calls=12,usec=...". */
struct tally server_tally(redisContext *rc)
{
    static const char prefix[] = "cmdstat_";
    static const char calls[] = ":calls=";
    redisReply *r = info(rc, "commandstats");
    struct tally t = {0};

    for (const char *at = r->str; (at = strstr(at, prefix)) != NULL;) {
        at += sizeof prefix - 1;
        size_t len = strcspn(at, ":\r\n");
        if (strncmp(at + len, calls, sizeof calls - 1) != 0)
            die("INFO commandstats: unexpected line");
        long long n = strtoll(at + len + sizeof calls - 1, NULL, 10);
        if (is_counted(at, len))
            t.commands += n;
        if (len == 7 && memcmp(at, "hexists", 7) == 0)
            t.looks = n;
    }
    freeReplyObject(r);
    return t;
}
