/* SPDX-License-Identifier: MIT
 *
 * cluster.c - the same in a cluster: what it costs that there are several
 * servers, next to a single one in the same run.
 *
 * Three masters and a single server, all on loopback TCP, are started here and
 * end with this program. In each round a lock of another node is measured, and
 * the same lock on the single server right behind it. How it goes when every
 * pair is on another lock is shown too; with fewer cores than servers, that is
 * mostly what it costs the machine to change servers.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

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

#define NODES      3
#define SINGLE     NODES /* the one beside them */
#define START_MS   10000
#define NAMES      24
#define ROUNDS_MAX 15
#define PORT_MAX   55000 /* a node uses the port 10,000 above, too */

static struct {
    pid_t keeper; /* who started them */
    pid_t pid[NODES + 1];
    int port[NODES + 1];
    char dir[96];
    char url[64], single[64];
} cl;

/* ---- their life -------------------------------------------------------- */

static void stop(void)
{
    char path[160];

    if (getpid() != cl.keeper)
        return;
    for (int i = 0; i <= NODES; i++) {
        if (cl.pid[i] > 0) {
            kill(cl.pid[i], SIGKILL);
            waitpid(cl.pid[i], NULL, 0);
            cl.pid[i] = 0;
        }
        snprintf(path, sizeof path, "%s/nodes%d.conf", cl.dir, i);
        unlink(path);
    }
    rmdir(cl.dir);
}

static int free_port(void)
{
    for (int tries = 0; tries < 1000; tries++) {
        struct sockaddr_in at = {.sin_family = AF_INET};
        socklen_t len = sizeof at;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
            getsockname(fd, (struct sockaddr *)&at, &len) != 0)
            die("no free port: %s", strerror(errno));
        close(fd);
        if (ntohs(at.sin_port) <= PORT_MAX)
            return ntohs(at.sin_port);
    }
    die("no free port below %d", PORT_MAX);
}

/* In the child: becomes a server. */
static void become_server(int i)
{
    char port[16], file[32];
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != cl.keeper || null < 0)
        _exit(126);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    snprintf(port, sizeof port, "%d", cl.port[i]);
    snprintf(file, sizeof file, "nodes%d.conf", i);
    execlp("redis-server", "redis-server", "--port", port, "--bind",
           "127.0.0.1", "--dir", cl.dir, "--save", "", "--appendonly", "no",
           "--daemonize", "no", "--cluster-enabled", i == SINGLE ? "no" : "yes",
           "--cluster-config-file", file, (char *)NULL);
    _exit(127);
}

static redisContext *wait_for(int i)
{
    int64_t limit = now_ns() + (int64_t)START_MS * 1000000;

    while (now_ns() < limit) {
        redisContext *rc = redisConnect("127.0.0.1", cl.port[i]);
        if (rc && !rc->err)
            return rc;
        redisFree(rc);
        if (waitpid(cl.pid[i], NULL, WNOHANG) == cl.pid[i]) {
            cl.pid[i] = 0;
            die("a server for the cluster ended at once");
        }
        sleep_ms(5);
    }
    die("a server for the cluster did not answer");
}

static void say(redisContext *rc, const char *format, int a, int b)
{
    redisReply *r = redisCommand(rc, format, a, b);

    if (!r || r->type == REDIS_REPLY_ERROR)
        die("%s: %s", format, r ? r->str : rc->errstr);
    freeReplyObject(r);
}

static bool is_ok(redisContext *rc)
{
    redisReply *r = redisCommand(rc, "CLUSTER INFO");
    bool ok = r && r->str && strstr(r->str, "cluster_state:ok") &&
              strstr(r->str, "cluster_known_nodes:3");

    freeReplyObject(r);
    return ok;
}

static void join(redisContext *rc[NODES])
{
    static const int first[] = {0, 5461, 10923, 16384};
    int64_t limit = now_ns() + (int64_t)START_MS * 1000000;

    for (int i = 0; i < NODES; i++) {
        say(rc[i], "CLUSTER SET-CONFIG-EPOCH %d", i + 1, 0);
        say(rc[i], "CLUSTER ADDSLOTSRANGE %d %d", first[i], first[i + 1] - 1);
        if (i > 0)
            say(rc[0], "CLUSTER MEET 127.0.0.1 %d", cl.port[i], 0);
    }
    for (int i = 0; i < NODES; i++)
        while (!is_ok(rc[i])) {
            if (now_ns() > limit)
                die("the cluster does not come together");
            sleep_ms(20);
        }
}

static void cluster_start(void)
{
    const char *tmp = getenv("TMPDIR");
    redisContext *rc[NODES + 1];

    cl.keeper = getpid();
    snprintf(cl.dir, sizeof cl.dir, "%.60s/dibs-bench.XXXXXX",
             tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(cl.dir))
        die("%s: %s", cl.dir, strerror(errno));
    atexit(stop);
    for (int i = 0; i <= NODES; i++) {
        cl.port[i] = free_port();
        cl.pid[i] = fork();
        if (cl.pid[i] < 0)
            die("fork: %s", strerror(errno));
        if (cl.pid[i] == 0)
            become_server(i);
        rc[i] = wait_for(i);
    }
    join(rc);
    for (int i = 0; i <= NODES; i++)
        redisFree(rc[i]);
    snprintf(cl.url, sizeof cl.url, "redis-cluster://127.0.0.1:%d", cl.port[0]);
    snprintf(cl.single, sizeof cl.single, "redis://127.0.0.1:%d",
             cl.port[SINGLE]);
}

/* ---- pairs ------------------------------------------------------------- */

struct side {
    dibs_client *c;
    dibs_lock *l[NAMES];
    unsigned next;
    bool roam; /* each pair on another lock */
};

static void side_open(struct side *s, const char *url)
{
    char name[96];

    s->next = 0;
    must(dibs_client_open(url, NULL, &s->c), "open");
    for (int i = 0; i < NAMES; i++)
        must(dibs_lock_new(s->c, bench_name(name, sizeof name, "slot", i),
                           &s->l[i]),
             "new lock");
}

static void side_close(struct side *s)
{
    for (int i = 0; i < NAMES; i++)
        dibs_lock_free(s->l[i]);
    dibs_client_free(s->c);
}

static void next_pair(void *arg)
{
    struct side *s = arg;

    dibs_pair(s->l[s->next % NAMES]);
    s->next += s->roam;
}

/* Rounds in turn; the median of the ratios. */
static double compare(const struct plan *p, struct side *a, struct side *b)
{
    double many[ROUNDS_MAX], one[ROUNDS_MAX], ratio[ROUNDS_MAX];
    size_t rounds = (size_t)p->rounds;
    void *args[2] = {a, b};

    for (size_t i = 0; i < rounds; i++) {
        a->next = b->next = (unsigned)i;
        many[i] = race(1, next_pair, args, p->lap_ms).rate;
        one[i] = race(1, next_pair, args + 1, p->lap_ms).rate;
        ratio[i] = many[i] / one[i];
    }
    line("cluster", median(many, rounds), 0, "pairs/s");
    line("single server", median(one, rounds), 0, "pairs/s");
    line("cluster / single, median", median(ratio, rounds), 2, "x");
    return median(ratio, rounds);
}

static void measure_cluster_pairs(const struct plan *p)
{
    struct side a = {.roam = true}, b = {.roam = true};
    void *args[2] = {&a, &b};

    if (p->rounds > ROUNDS_MAX)
        die("at most %d rounds", ROUNDS_MAX);
    title("one thread in a cluster of %d, %d rounds of %d ms", NODES, p->rounds,
          (int)p->lap_ms);
    side_open(&a, cl.url);
    side_open(&b, cl.single);
    race(1, next_pair, args, 2000); /* spare connections come after a while */
    race(1, next_pair, args + 1, 500);
    title("each pair on another of %d locks", NAMES);
    compare(p, &a, &b);
    a.roam = b.roam = false;
    title("one lock a round");
    target("1 thread in a cluster, of a single server", AT_LEAST, 0.9,
           compare(p, &a, &b));
    side_close(&a);
    side_close(&b);
}

/* ---- renewals ---------------------------------------------------------- */

static struct tally tally(redisContext *rc[NODES])
{
    struct tally sum = {0};

    for (int i = 0; i < NODES; i++) {
        struct tally t = server_tally(rc[i]);
        sum.commands += t.commands;
        sum.looks += t.looks;
    }
    return sum;
}

static double watch_renewals(redisContext *rc[NODES], const struct plan *p)
{
    int64_t limit = now_ns() + 2 * p->lease_ms * 1000000;
    struct tally before = tally(rc), now = before;

    while (now.looks - before.looks < 2LL * p->locks) {
        if (now_ns() > limit)
            die("%lld of %d renewals in two leases", now.looks - before.looks,
                2 * p->locks);
        sleep_ms(10);
        now = tally(rc);
    }
    return (double)(now.looks - before.looks) /
           (double)(now.commands - before.commands);
}

static void measure_cluster_renewal(const struct plan *p)
{
    dibs_client *c = NULL;
    redisContext *rc[NODES];
    dibs_lock **l = calloc((size_t)p->locks, sizeof *l);
    char name[96];

    if (!l)
        die("out of memory");
    title("renewal in a cluster: %d locks held, lease %d ms", p->locks,
          (int)p->lease_ms);
    must(
        dibs_client_open(cl.url, DIBS_CLIENT_OPTS(.lease_ms = p->lease_ms), &c),
        "open");
    for (int i = 0; i < p->locks; i++) {
        must(dibs_lock_new(c, bench_name(name, sizeof name, "held", i), &l[i]),
             "new lock");
        must(dibs_lock_acquire(l[i], NULL), "acquire");
    }
    for (int i = 0; i < NODES; i++) {
        snprintf(name, sizeof name, "redis://127.0.0.1:%d", cl.port[i]);
        rc[i] = server_connect(name);
    }
    double batch = watch_renewals(rc, p);
    for (int i = 0; i < p->locks; i++)
        if (dibs_lock_state(l[i], 0) != DIBS_HELD)
            die("lock %d is not held any more", i);
    line("locks renewed", batch, 0, "per command");
    target("renewal in a cluster, locks per command", AT_LEAST, 50, batch);
    must(dibs_client_close(c, START_MS), "close");
    for (int i = 0; i < p->locks; i++)
        dibs_lock_free(l[i]);
    for (int i = 0; i < NODES; i++)
        redisFree(rc[i]);
    free(l);
    dibs_client_free(c);
}

void measure_cluster(const struct plan *p)
{
    cluster_start();
    measure_cluster_pairs(p);
    measure_cluster_renewal(p);
    stop();
}
