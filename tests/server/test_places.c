/* SPDX-License-Identifier: MIT
 *
 * test_places.c - where a server is, and who it is: sentinels that cannot tell,
 * two deployments with one name, a replica instead of a master.
 *
 * Sentinels here are real ones, one a deployment.
 */
#include "server/fake.h"
#include "support/proxy.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct {
    const char *name;
    dibs_err (*make)(dibs_client *c, const char *name, dibs_lock **out);
} kinds[] = {
    {"plain", dibs_lock_new},
    {"fair", dibs_fair_lock_new},
    {"read", dibs_read_lock_new},
    {"write", dibs_write_lock_new},
};

/* ---- nobody can tell --------------------------------------------------- */

/* Every kind asks for its lock, waits, and hears that there is no server. */
static void no_master(const char *row, const char *url)
{
    dibs_client *c = kit_open_at(
        url, DIBS_CLIENT_OPTS(.lazy = true, .connect_timeout_ms = 200,
                              .command_timeout_ms = 200));

    for (size_t i = 0; i < COUNT(kinds); i++) {
        dibs_lock *l = NULL;
        FINE(kinds[i].make(c, kinds[i].name, &l));
        dibs_err err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 600));
        if (err != DIBS_ERR_CONN)
            fail_msg("%s, %s: %s", row, kinds[i].name, dibs_strerror(err));
        WANT(dibs_lock_try(l, NULL), DIBS_ERR_CONN);
        dibs_lock_free(l);
    }
    /* Leaving the queue cannot be confirmed, and is not waited for here. */
    (void)dibs_client_close(c, 1);
    dibs_client_free(c);
    kit_clients--;
}

static void test_places_no_sentinel(void **state)
{
    (void)state;
    no_master("nobody there", "redis-sentinel://127.0.0.1:1/svc");
}

static void test_places_service_unknown(void **state)
{
    struct ts_server *sentinel = ts_sentinel_start("");
    char *url =
        ts_text("redis-sentinel://127.0.0.1:%d/svc", ts_server_port(sentinel));

    (void)state;
    no_master("not known", url);
    free(url);
    ts_server_stop(sentinel);
}

/* ---- nobody answers ---------------------------------------------------- */

#define SILENT_NODES 8
#define SILENT_MS    500

/* A port where connections are made and nobody says anything. */
static int silent_port(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

struct opening {
    char url[400];
    int64_t connect_ms;
    atomic_bool over;
    pthread_t thread;
};

static void *open_main(void *arg)
{
    struct opening *o = arg;
    dibs_client *c = NULL;
    dibs_err err = dibs_client_open(
        o->url, DIBS_CLIENT_OPTS(.connect_timeout_ms = o->connect_ms), &c);

    atomic_store(&o->over, true);
    return (void *)(intptr_t)err;
}

/* All that are named are silent. However many they are, opening a client takes
 * two connect timeouts at most (P7); so it ends before that of one silent
 * server that has four. */
static bool ends_in_time(const char *scheme, const char *tail)
{
    struct opening many = {.connect_ms = SILENT_MS};
    struct opening one = {.connect_ms = 4 * SILENT_MS};
    int fd[SILENT_NODES], port;
    size_t at = (size_t)sprintf(many.url, "%s", scheme);
    void *err;

    for (int i = 0; i < SILENT_NODES; i++) {
        fd[i] = silent_port(&port);
        at += (size_t)sprintf(many.url + at, "%s127.0.0.1:%d", i ? "," : "",
                              port);
    }
    sprintf(many.url + at, "%s", tail);
    sprintf(one.url, "redis://127.0.0.1:%d", port);
    assert_int_equal(pthread_create(&one.thread, NULL, open_main, &one), 0);
    assert_int_equal(pthread_create(&many.thread, NULL, open_main, &many), 0);
    pthread_join(many.thread, &err);
    bool in_time = !atomic_load(&one.over);
    WANT((dibs_err)(intptr_t)err, DIBS_ERR_CONN);
    pthread_join(one.thread, &err);
    WANT((dibs_err)(intptr_t)err, DIBS_ERR_CONN);
    for (int i = 0; i < SILENT_NODES; i++)
        close(fd[i]);
    return in_time;
}

/* Once of a few times: this machine may stand still. */
static void check_silence(const char *scheme, const char *tail)
{
    for (int i = 0; !ends_in_time(scheme, tail); i++)
        if (i == 4)
            fail_msg("%s: it takes as long as four connect timeouts", scheme);
}

static void test_places_all_silent(void **state)
{
    (void)state;
    check_silence("redis-cluster://", "");
    check_silence("redis-sentinel://", "/svc");
}

/* A waiter that came before anybody knew of a master hears of a release once
 * there is one. */
static void test_places_service_known_later(void **state)
{
    struct ts_server *sentinel = ts_sentinel_start("");
    char *url =
        ts_text("redis-sentinel://127.0.0.1:%d/svc", ts_server_port(sentinel));
    dibs_client *c = kit_open_at(url, DIBS_CLIENT_OPTS(.lazy = true));
    dibs_client *other = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l"), *theirs = kit_lock(other, "l");
    struct call call;

    (void)state;
    FINE(dibs_lock_acquire(theirs, NULL));
    kit_call_start(&call, l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON),
                   dibs_lock_acquire);
    ts_ok(sentinel, "SENTINEL MONITOR svc 127.0.0.1 %d 1", ts_server_port(srv));
    TS_WAIT(ts_nchannels(srv) > 0); /* it listens */
    FINE(dibs_lock_release(theirs, NULL));
    FINE(kit_call_end(&call));
    FINE(dibs_client_close(c, TS_SOON));
    dibs_lock_free(l);
    dibs_lock_free(theirs);
    kit_close(other);
    kit_clients--;
    dibs_client_free(c);
    free(url);
    ts_server_stop(sentinel);
    ts_ok(srv, "CLIENT KILL TYPE pubsub"); /* the sentinel's own */
}

/* ---- one name, two deployments ----------------------------------------- */

/* Servers with a sentinel each; all have one name. */
struct deployment {
    struct ts_server *s, *sentinel[2];
    char *url[2];
};

static struct ts_server *sentinel_of(const struct ts_server *s)
{
    char *lines =
        ts_text("sentinel monitor svc 127.0.0.1 %d 1\n", ts_server_port(s));
    struct ts_server *sentinel = ts_sentinel_start(lines);

    free(lines);
    return sentinel;
}

/* Each of two sentinels has a URL of its own. They need not know each other. */
static void deployment_start(struct deployment *d)
{
    d->s = ts_server_start(NULL);
    for (int i = 0; i < 2; i++) {
        d->sentinel[i] = sentinel_of(d->s);
        d->url[i] = ts_text("redis-sentinel://127.0.0.1:%d/svc",
                            ts_server_port(d->sentinel[i]));
    }
}

static void deployment_stop(struct deployment *d)
{
    for (int i = 0; i < 2; i++) {
        ts_server_stop(d->sentinel[i]);
        free(d->url[i]);
    }
    ts_server_stop(d->s);
}

typedef dibs_err group_fn(dibs_lock *const *members, size_t n, dibs_lock **out);

/* A group of one name at these places; made, and held once if it is fine. */
static void group_at(const char *row, group_fn *make, char *const *urls,
                     size_t n, dibs_err want)
{
    dibs_client *c[3];
    dibs_lock *l[3], *g = NULL;

    for (size_t i = 0; i < n; i++) {
        c[i] = kit_open_at(urls[i], NULL);
        l[i] = kit_lock(c[i], "l");
    }
    dibs_err err = make(l, n, &g);
    if (err != want)
        fail_msg("%s: %s", row, dibs_strerror(err));
    if (err == DIBS_OK) {
        FINE(dibs_lock_acquire(g, DIBS_LOCK_OPTS(.member_ms = TS_SOON)));
        FINE(dibs_lock_release(g, NULL));
    }
    dibs_lock_free(g);
    for (size_t i = 0; i < n; i++) {
        dibs_lock_free(l[i]);
        kit_close(c[i]);
    }
}

static void test_places_same_service_twice(void **state)
{
    struct deployment a, b;

    (void)state;
    deployment_start(&a);
    deployment_start(&b);
    char *both =
        ts_text("redis-sentinel://127.0.0.1:%d,127.0.0.1:%d/svc",
                ts_server_port(a.sentinel[1]), ts_server_port(a.sentinel[0]));
    char *direct = ts_text("redis://localhost:%d", ts_server_port(a.s));
    const struct {
        const char *row;
        char *urls[3];
        size_t n;
        dibs_err want;
    } rows[] = {
        {"two deployments", {a.url[0], b.url[0]}, 2, DIBS_OK},
        {"and one more",
         {a.url[0], b.url[0], (char *)ts_server_url(srv)},
         3,
         DIBS_OK},
        {"one sentinel", {a.url[0], a.url[0]}, 2, DIBS_ERR_INVALID},
        {"one in common", {a.url[0], both}, 2, DIBS_ERR_INVALID},
        {"two sentinels of one", {a.url[0], a.url[1]}, 2, DIBS_ERR_INVALID},
        {"by itself, too", {a.url[0], b.url[0], direct}, 3, DIBS_ERR_INVALID},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        group_at(rows[i].row, dibs_quorum_lock_new, rows[i].urls, rows[i].n,
                 rows[i].want);
        group_at(rows[i].row, dibs_multi_lock_new, rows[i].urls, rows[i].n,
                 rows[i].want);
    }
    free(both);
    free(direct);
    deployment_stop(&a);
    deployment_stop(&b);
}

/* Which server it is nobody knows as yet: found out with the first vote. */
static void test_places_same_server_later(void **state)
{
    struct deployment a;
    dibs_client *c[2];
    dibs_lock *l[2], *q = NULL;

    (void)state;
    deployment_start(&a);
    ts_server_pause(a.s);
    for (int i = 0; i < 2; i++) {
        c[i] = kit_open_at(a.url[i], DIBS_CLIENT_OPTS(.lazy = true));
        FINE(dibs_read_lock_new(c[i], "l", &l[i])); /* readers do not mind */
    }
    FINE(dibs_quorum_lock_new(l, 2, &q));
    ts_server_resume(a.s);
    WANT(dibs_lock_acquire(
             q, DIBS_LOCK_OPTS(.wait_ms = TS_SOON, .member_ms = TS_SOON / 4)),
         DIBS_ERR_INVALID);
    dibs_lock_free(q);
    for (int i = 0; i < 2; i++) {
        dibs_lock_free(l[i]);
        kit_close(c[i]);
    }
    deployment_stop(&a);
}

/* ---- another master, and nobody said so -------------------------------- */

/* The lease is minutes long: its holder hears of the loss because a connection
 * was made again. */
static void test_places_master_without_data(void **state)
{
    struct deployment a;
    struct lost lost = {0};

    (void)state;
    deployment_start(&a);
    dibs_client *c =
        kit_open_at(a.url[0], DIBS_CLIENT_OPTS(.lease_ms = 600000));
    dibs_lock *l = kit_lock(c, "l");
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    ts_ok(a.sentinel[0], "SENTINEL REMOVE svc");
    ts_ok(a.sentinel[0], "SENTINEL MONITOR svc 127.0.0.1 %d 1",
          ts_server_port(srv));
    ts_server_kill(a.s);
    TS_WAIT(atomic_load(&lost.times) == 1);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c);
    deployment_stop(&a);
    ts_ok(srv, "CLIENT KILL TYPE pubsub"); /* the sentinel's own */
}

/* ---- a replica --------------------------------------------------------- */

struct events {
    pthread_mutex_t mu;
    unsigned of[16];   /* mu */
    unsigned replicas; /* mu: that name the two servers */
    char want[200];    /* const */
};

static void hear(const dibs_event *ev, void *arg)
{
    struct events *e = arg;

    pthread_mutex_lock(&e->mu);
    if ((size_t)ev->kind < COUNT(e->of))
        e->of[ev->kind]++;
    e->replicas += e->want[0] && strstr(ev->text, e->want) != NULL;
    pthread_mutex_unlock(&e->mu);
}

static unsigned heard(struct events *e, dibs_event_kind kind)
{
    pthread_mutex_lock(&e->mu);
    unsigned n = e->of[kind];
    pthread_mutex_unlock(&e->mu);
    return n;
}

static unsigned named(struct events *e)
{
    pthread_mutex_lock(&e->mu);
    unsigned n = e->replicas;
    pthread_mutex_unlock(&e->mu);
    return n;
}

static unsigned all_heard(struct events *e)
{
    unsigned n = 0;

    for (size_t i = 0; i < COUNT(e->of); i++)
        n += heard(e, (dibs_event_kind)i);
    return n;
}

/* The sentinel means another master from now on, and has the client ask. */
static void switch_master(struct ts_server *sentinel, const struct ts_server *s)
{
    ts_ok(sentinel, "SENTINEL REMOVE svc");
    ts_ok(sentinel, "SENTINEL MONITOR svc 127.0.0.1 %d 1", ts_server_port(s));
    TS_WAIT(ts_int(sentinel, "CLIENT KILL TYPE pubsub") > 0);
}

/* The master does not answer any more, and a sentinel says that it is
 * elsewhere. An idle client does not wait for an answer first, and tells that
 * it is there without being asked for anything; the next time, too. */
static void test_places_silent_master(void **state)
{
    struct deployment a;
    struct events e = {.mu = PTHREAD_MUTEX_INITIALIZER};

    (void)state;
    deployment_start(&a);
    dibs_client *c = kit_open_at(
        a.url[0], DIBS_CLIENT_OPTS(.command_timeout_ms = 10 * TS_SOON,
                                   .on_event = hear, .event_arg = &e));
    TS_WAIT(heard(&e, DIBS_EVENT_CONNECTED) == 1);
    ts_server_pause(a.s);
    switch_master(a.sentinel[0], srv);
    TS_WAIT(heard(&e, DIBS_EVENT_CONNECTED) == 2);
    ts_server_resume(a.s);
    switch_master(a.sentinel[0], a.s);
    TS_WAIT(heard(&e, DIBS_EVENT_CONNECTED) == 3);
    switch_master(a.sentinel[0], srv);
    TS_WAIT(heard(&e, DIBS_EVENT_CONNECTED) == 4);
    dibs_lock *l = kit_lock(c, "l");
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    deployment_stop(&a);
    ts_ok(srv, "CLIENT KILL TYPE pubsub"); /* the sentinel's own */
}

/* The URL means a replica. That is told once, by name, though it is tried again
 * and again; and when it becomes a master, all is well. */
static void test_places_replica(void **state)
{
    char port[16];
    struct events e = {.mu = PTHREAD_MUTEX_INITIALIZER};

    (void)state;
    snprintf(port, sizeof port, "%d", ts_server_port(srv));
    struct ts_server *s = ts_server_start(
        (const char *[]){"--replicaof", "127.0.0.1", port, NULL});
    struct ts_proxy *px = ts_proxy_start(s);
    snprintf(e.want, sizeof e.want, "%s: READONLY, a replica of 127.0.0.1:%s",
             ts_proxy_tcp_url(px), port);
    dibs_client *c =
        kit_open_at(ts_proxy_tcp_url(px),
                    DIBS_CLIENT_OPTS(.on_event = hear, .event_arg = &e));
    dibs_lock *l = kit_lock(c, "l");
    struct call call;
    kit_call_start(&call, l, NULL, dibs_lock_acquire);
    TS_WAIT(ts_proxy_accepted(px) >= 8);
    assert_int_equal(named(&e), 1);
    assert_int_equal(heard(&e, DIBS_EVENT_DISCONNECTED), 1);
    assert_int_equal(heard(&e, DIBS_EVENT_CONNECTED), 1);
    if (all_heard(&e) > 3) /* one more: it waits */
        fail_msg("%u events", all_heard(&e));
    ts_ok(s, "REPLICAOF NO ONE");
    FINE(kit_call_end(&call));
    TS_WAIT(heard(&e, DIBS_EVENT_CONNECTED) == 2);
    ts_ok(s, "DEL l");
    dibs_lock_free(l);
    kit_close(c);
    ts_proxy_stop(px);
    ts_server_stop(s);
    TS_WAIT(ts_client_count(srv) == kit_strange);
}

/* What fails in the same way again and again is told once; that it is over,
 * once, too. */
static void test_places_always_refused(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv);
    struct events e = {.mu = PTHREAD_MUTEX_INITIALIZER};

    (void)state;
    int rule = ts_proxy_rule(
        px, &(struct ts_rule){.action = TS_CLOSE_BEFORE, .match = "CLIENT*"});
    dibs_client *c = kit_open_at(
        ts_proxy_tcp_url(px),
        DIBS_CLIENT_OPTS(.lazy = true, .on_event = hear, .event_arg = &e));
    TS_WAIT(ts_proxy_accepted(px) >= 7);
    assert_int_equal(heard(&e, DIBS_EVENT_DISCONNECTED), 1);
    assert_int_equal(all_heard(&e), 1);
    ts_proxy_unrule(px, rule);
    TS_WAIT(heard(&e, DIBS_EVENT_CONNECTED) == 1);
    assert_int_equal(all_heard(&e), 2);
    kit_close(c);
    ts_proxy_stop(px);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_places_no_sentinel),
        KIT_TEST(test_places_service_unknown),
        KIT_TEST(test_places_all_silent),
        KIT_TEST(test_places_service_known_later),
        KIT_TEST(test_places_same_service_twice),
        KIT_TEST(test_places_same_server_later),
        KIT_TEST(test_places_master_without_data),
        KIT_TEST(test_places_silent_master),
        KIT_TEST(test_places_replica),
        KIT_TEST(test_places_always_refused),
    };

    return KIT_RUN_PARALLEL("server.places", tests);
}
