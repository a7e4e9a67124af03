/* SPDX-License-Identifier: MIT
 *
 * test_client.c - opening a client: which addresses and credentials work, and
 * how each that does not is told from the others.
 */
#include "server/fake.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* It works: a lock is taken, in that database, and given back. */
static void works(const char *row, const char *url,
                  const dibs_client_opts *opts, int db)
{
    dibs_client *c = kit_open_at(url, opts);
    dibs_lock *l = kit_lock(c, "l");
    redisContext *cn = ts_connect(srv);
    redisReply *r;

    if (dibs_lock_try(l, NULL) != DIBS_OK)
        fail_msg("%s: no lock", row);
    r = redisCommand(cn, "SELECT %d", db);
    freeReplyObject(r);
    r = redisCommand(cn, "EXISTS l");
    if (!r || r->integer != 1)
        fail_msg("%s: the lock is not in database %d", row, db);
    freeReplyObject(r);
    redisFree(cn);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* It does not, and leaves nothing behind. */
static void fails(const char *row, const char *url,
                  const dibs_client_opts *opts, dibs_err want)
{
    size_t threads = ts_threads(), fds = ts_fds();
    dibs_client *c = NULL;
    dibs_err err = dibs_client_open(url, opts, &c);

    if (err != want)
        fail_msg("%s: %s", row, dibs_strerror(err));
    assert_null(c);
    TS_WAIT(ts_threads() <= threads);
    TS_WAIT(ts_fds() <= fds); /* a listener of ours may still have its end */
}

/* ---- addresses --------------------------------------------------------- */

static void test_client_addresses(void **state)
{
    const char *path = ts_server_socket(srv);
    int port = ts_server_port(srv);
    const struct {
        char *url;
        int db;
    } rows[] = {
        {ts_text("unix://%s", path), 0},
        {ts_text("unix://%s?db=3", path), 3},
        {ts_text("redis://127.0.0.1:%d", port), 0},
        {ts_text("redis://127.0.0.1:%d/", port), 0},
        {ts_text("redis://127.0.0.1:%d/5", port), 5},
        {ts_text("redis://localhost:%d", port), 0},
        {ts_text("redis://localhost:%d/15", port), 15},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        works(rows[i].url, rows[i].url, NULL, rows[i].db);
        free(rows[i].url);
    }
}

static void test_client_no_such_database(void **state)
{
    char *url = ts_text("unix://%s?db=99", ts_server_socket(srv));

    (void)state;
    fails("db 99", url, NULL, DIBS_ERR_SERVER);
    free(url);
}

/* The server has no passwords, so ours is for another one. */
static void test_client_password_for_nothing(void **state)
{
    char *url = ts_text("unix://:secret@%s", ts_server_socket(srv));

    (void)state;
    fails("a password where there is none", url, NULL, DIBS_ERR_AUTH);
    free(url);
}

static void keep_text(const dibs_event *ev, void *arg)
{
    if (ev->err == DIBS_ERR_AUTH)
        snprintf(arg, 300, "%s", ev->text);
}

/* A server that does not know AUTH says what it was told, all of it. */
static void test_client_password_unsaid(void **state)
{
    const char *without[] = {"--rename-command", "AUTH", "", NULL};
    struct ts_server *s = ts_server_start(without);
    char *url = ts_text("unix://joe:s3cret@%s", ts_server_socket(s));
    char text[300] = "";
    dibs_client *c = NULL;

    (void)state;
    WANT(dibs_client_open(
             url, DIBS_CLIENT_OPTS(.on_event = keep_text, .event_arg = text),
             &c),
         DIBS_ERR_AUTH);
    assert_non_null(strstr(text, "AUTH"));
    assert_null(strstr(text, "s3cret"));
    free(url);
    ts_server_stop(s);
}

/* A port of ours on which nobody listens. */
static int deaf_port(int *fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(getsockname(*fd, (struct sockaddr *)&at, &len), 0);
    return ntohs(at.sin_port);
}

static void test_client_refused(void **state)
{
    int fd;
    char *url = ts_text("redis://127.0.0.1:%d", deaf_port(&fd));

    (void)state;
    fails("a socket that is not there", "unix:///nonexistent/dibs", NULL,
          DIBS_ERR_CONN);
    fails("a file that is no socket", "unix:///etc/passwd", NULL,
          DIBS_ERR_CONN);
    fails("a port nobody listens on", url, NULL, DIBS_ERR_CONN);
    free(url);
    close(fd);
}

/* The look-up counts towards the time limit. It may go on for a while, on a
 * thread of its own, so nothing is counted here. */
static void test_client_no_such_host(void **state)
{
    dibs_client *c = NULL;

    (void)state;
    WANT(dibs_client_open("redis://no-such-host.invalid",
                          DIBS_CLIENT_OPTS(.connect_timeout_ms = 300), &c),
         DIBS_ERR_CONN);
    assert_null(c);
}

/* ---- who we are -------------------------------------------------------- */

static void test_client_credentials(void **state)
{
    const char *with_password[] = {"--requirepass", "s3cret p@ss", NULL};
    struct ts_server *before = srv;

    (void)state;
    srv = ts_server_start(with_password);
    const char *path = ts_server_socket(srv);
    ts_ok(srv, "ACL SETUSER ann on >hers ~* &* +@all");
    ts_ok(srv, "ACL SETUSER off off >hers ~* &* +@all");
    const struct {
        char *url;
        const char *user, *password; /* options */
        dibs_err want;
        int db;
    } rows[] = {
        {ts_text("unix://%s", path), NULL, NULL, DIBS_ERR_AUTH, 0},
        {ts_text("unix://:s3cret%%20p%%40ss@%s", path), NULL, NULL, DIBS_OK, 0},
        {ts_text("unix://:wrong@%s", path), NULL, NULL, DIBS_ERR_AUTH, 0},
        {ts_text("unix://%s", path), NULL, "s3cret p@ss", DIBS_OK, 0},
        {ts_text("unix://:wrong@%s", path), NULL, "s3cret p@ss", DIBS_OK, 0},
        {ts_text("unix://ann:hers@%s", path), NULL, NULL, DIBS_OK, 0},
        {ts_text("unix://ann:wrong@%s", path), NULL, NULL, DIBS_ERR_AUTH, 0},
        {ts_text("unix://bob:hers@%s", path), NULL, NULL, DIBS_ERR_AUTH, 0},
        {ts_text("unix://off:hers@%s", path), NULL, NULL, DIBS_ERR_AUTH, 0},
        {ts_text("unix://ann@%s", path), NULL, "hers", DIBS_OK, 0},
        {ts_text("unix://bob:x@%s", path), "ann", "hers", DIBS_OK, 0},
        {ts_text("unix://%s", path), "ann", "hers", DIBS_OK, 0},
        {ts_text("redis://ann:hers@127.0.0.1:%d/2", ts_server_port(srv)), NULL,
         NULL, DIBS_OK, 2},
        /* A user without a password means nothing. */
        {ts_text("unix://ann@%s", path), NULL, NULL, DIBS_ERR_INVALID, 0},
        {ts_text("unix://%s", path), "ann", NULL, DIBS_ERR_INVALID, 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const dibs_client_opts *opts =
            DIBS_CLIENT_OPTS(.user = rows[i].user,
                             .password = rows[i].password);
        if (rows[i].want == DIBS_OK)
            works(rows[i].url, rows[i].url, opts, rows[i].db);
        else
            fails(rows[i].url, rows[i].url, opts, rows[i].want);
        free(rows[i].url);
    }
    ts_server_stop(srv);
    srv = before;
}

static bool listed_as(const char *name)
{
    char *list = ts_str(srv, "CLIENT LIST");
    char *want = ts_text("/%d/%s ", (int)getpid(), name);
    bool found = strstr(list, want) != NULL;

    free(list);
    free(want);
    return found;
}

static void test_client_names(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(DIBS_CLIENT_OPTS(.client_name = "reports-7"));

    (void)state;
    assert_true(listed_as("test_client"));
    assert_true(listed_as("reports-7"));
    kit_close(c);
    kit_close(d);
}

static void test_client_id(void **state)
{
    static const char form[] = "xxxxxxxx-xxxx-4xxx-xxxx-xxxxxxxxxxxx";
    dibs_client *c = kit_open(NULL);
    const char *id = dibs_client_id(c);

    (void)state;
    assert_int_equal(strlen(id), sizeof form - 1);
    for (size_t i = 0; i < sizeof form - 1; i++)
        if (form[i] == 'x' ? !strchr("0123456789abcdef", id[i])
                           : id[i] != form[i])
            fail_msg("%s is not a UUID of version 4", id);
    assert_non_null(strchr("89ab", id[19]));
    kit_close(c);
}

/* ---- what is not a server ---------------------------------------------- */

static void test_client_not_a_server(void **state)
{
    static const struct {
        const char *answer;
        bool hang_up;
        dibs_err want;
    } rows[] = {
        {"HTTP/1.1 400 Bad Request\r\n\r\n<html>", false, DIBS_ERR_PROTOCOL},
        {"HTTP/1.1 400 Bad Request\r\n\r\n<html>", true, DIBS_ERR_PROTOCOL},
        {"SSH-2.0-OpenSSH_9.2\r\n", false, DIBS_ERR_PROTOCOL},
        {"220 mail ESMTP\r\n", false, DIBS_ERR_PROTOCOL},
        {"\x15\x03\x01\x02\x02\x16", false, DIBS_ERR_PROTOCOL},
        {"*100000000\r\n", false, DIBS_ERR_PROTOCOL},
        {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", false,
         DIBS_ERR_PROTOCOL},
        {"$-7\r\n", false, DIBS_ERR_PROTOCOL},
        /* Silence, a part of an answer, a length that never comes. */
        {NULL, false, DIBS_ERR_CONN},
        {"+O", false, DIBS_ERR_CONN},
        {"$2000000000\r\nabc", false, DIBS_ERR_CONN},
        {"", true, DIBS_ERR_CONN},
        {"+OK\r\n", true, DIBS_ERR_CONN},
        {"-DENIED go away\r\n", false, DIBS_ERR_AUTH},
        {"-ERR max number of clients reached\r\n", true, DIBS_ERR_CONN},
    };
    struct fake f;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        fake_start(&f, rows[i].answer, rows[i].hang_up);
        /* Where an answer is to come, it has time. */
        int64_t limit = rows[i].want == DIBS_ERR_CONN ? 200 : TS_SOON;
        fails(rows[i].answer ? rows[i].answer : "silence", f.url,
              DIBS_CLIENT_OPTS(.connect_timeout_ms = limit), rows[i].want);
        fake_stop(&f);
    }
}

/* As a server at maxclients: it answers and closes with bytes unread. So the
 * peer's socket has an error while there is still something to read. */
static void *reset_main(void *arg)
{
    static const char answer[] = "-ERR max number of clients reached\r\n";
    int fd = accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC);
    struct pollfd p = {.fd = fd, .events = POLLIN};

    if (fd < 0 || poll(&p, 1, (int)TS_SOON) != 1)
        return NULL;
    ts_tell(fd, answer, sizeof answer - 1);
    close(fd);
    return NULL;
}

static void first_event(const dibs_event *ev, void *arg)
{
    char *text = arg;

    if (!*text)
        snprintf(text, 200, "%s", ev->text);
}

/* The answer is read as a whole, not only until the time for the connection is
 * over. */
static void test_client_reset_behind_answer(void **state)
{
    char *path = ts_text("%s/reset", ts_server_dir(srv));
    char *at = ts_text("unix://%s", path);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char text[200] = "";
    dibs_client *c = NULL;
    pthread_t thread;

    (void)state;
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, reset_main, &fd), 0);
    WANT(dibs_client_open(at,
                          DIBS_CLIENT_OPTS(.connect_timeout_ms = ts_ms(2000),
                                           .on_event = first_event,
                                           .event_arg = text),
                          &c),
         DIBS_ERR_CONN);
    pthread_join(thread, NULL);
    if (!strstr(text, "max number of clients"))
        fail_msg("\"%s\", not \"max number of clients\"", text);
    close(fd);
    unlink(path);
    free(at);
    free(path);
}

/* ---- lazy -------------------------------------------------------------- */

static void test_client_lazy(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lazy = true));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_client_lazy_before_server(void **state)
{
    (void)state;
    ts_server_kill(srv);
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lazy = true));
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    struct told t = {0};

    WANT(dibs_lock_try(l, NULL), DIBS_ERR_CONN);
    WANT(dibs_lock_info_get(l, &info), DIBS_ERR_CONN);
    WANT(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 100)), DIBS_ERR_CONN);
    WANT(dibs_lock_force_release(l, NULL), DIBS_ERR_CONN);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    FINE(dibs_lock_acquire_async(l, NULL, kit_tell, &t));
    ts_server_restart(srv);
    kit_strange = 0;
    FINE(kit_answer(&t)); /* as soon as there is one */
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_client_lazy_wrong(void **state)
{
    struct fake f;
    dibs_client *c;

    (void)state;
    fake_start(&f, "HTTP/1.1 400 Bad Request\r\n\r\n", false);
    c = kit_open_at(f.url, DIBS_CLIENT_OPTS(.lazy = true));
    dibs_lock *l = kit_lock(c, "l");
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_PROTOCOL);
    WANT(dibs_lock_acquire(l, NULL), DIBS_ERR_PROTOCOL);
    dibs_lock_free(l);
    kit_close(c);
    fake_stop(&f);
}

/* ---- events ------------------------------------------------------------ */

struct events {
    atomic_int seen[DIBS_EVENT_WARNING + 1];
    atomic_bool bad;
};

static void on_event(const dibs_event *ev, void *arg)
{
    struct events *e = arg;

    if (ev->size != sizeof *ev || !ev->text || !*ev->text ||
        ev->kind < DIBS_EVENT_CONNECTED || ev->kind > DIBS_EVENT_WARNING)
        atomic_store(&e->bad, true);
    else
        atomic_fetch_add(&e->seen[ev->kind], 1);
}

static void test_client_events(void **state)
{
    struct events e = {0};
    dibs_client *c =
        kit_open(DIBS_CLIENT_OPTS(.on_event = on_event, .event_arg = &e));
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    TS_WAIT(atomic_load(&e.seen[DIBS_EVENT_CONNECTED]) == 1);
    ts_ok(srv, "SET l precious");
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_WRONGTYPE);
    TS_WAIT(atomic_load(&e.seen[DIBS_EVENT_ERROR]) >= 1);
    ts_ok(srv, "DEL l");
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_short())));
    TS_WAIT(atomic_load(&e.seen[DIBS_EVENT_LOST]) == 1);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    ts_ok(srv, "CLIENT KILL TYPE normal SKIPME yes");
    TS_WAIT(atomic_load(&e.seen[DIBS_EVENT_DISCONNECTED]) >= 1);
    TS_WAIT(atomic_load(&e.seen[DIBS_EVENT_CONNECTED]) >= 2);
    assert_true(ts_wait_exists(srv, "l", false));
    dibs_lock_free(l);
    kit_close(c);
    assert_false(atomic_load(&e.bad));
}

/* ---- a server that ends as soon as it is there ------------------------- */

struct dying {
    pthread_t thread;
    struct sockaddr_un at;
    atomic_bool stop;
};

/* Those who have connected by then are told that the connection was reset. */
static void *listen_and_die(void *arg)
{
    struct dying *d = arg;

    while (!atomic_load(&d->stop)) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)unlink(d->at.sun_path);
        if (bind(fd, (struct sockaddr *)&d->at, sizeof d->at) != 0 ||
            listen(fd, 16) != 0)
            ts_fatal("cannot listen");
        sched_yield();
        close(fd);
    }
    return NULL;
}

/* A Unix socket has no host, also when it comes to telling what failed. */
static void test_client_server_dies_at_once(void **state)
{
    struct dying d = {.at.sun_family = AF_UNIX};

    (void)state;
    snprintf(d.at.sun_path, sizeof d.at.sun_path, "%s.dying",
             ts_server_socket(srv));
    char *url = ts_text("unix://%s", d.at.sun_path);
    assert_int_equal(pthread_create(&d.thread, NULL, listen_and_die, &d), 0);
    for (int i = 0; i < 200; i++) {
        dibs_client *c = NULL;
        dibs_err err = dibs_client_open(
            url, DIBS_CLIENT_OPTS(.connect_timeout_ms = 50), &c);
        assert_int_equal(err, DIBS_ERR_CONN);
        assert_null(c);
    }
    atomic_store(&d.stop, true);
    pthread_join(d.thread, NULL);
    (void)unlink(d.at.sun_path);
    free(url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_client_addresses),
        KIT_TEST(test_client_server_dies_at_once),
        KIT_TEST(test_client_no_such_database),
        KIT_TEST(test_client_password_for_nothing),
        KIT_TEST(test_client_password_unsaid),
        KIT_TEST(test_client_refused),
        KIT_TEST(test_client_no_such_host),
        KIT_TEST(test_client_credentials),
        KIT_TEST(test_client_names),
        KIT_TEST(test_client_id),
        KIT_TEST(test_client_not_a_server),
        KIT_TEST(test_client_reset_behind_answer),
        KIT_TEST(test_client_lazy),
        KIT_TEST(test_client_lazy_before_server),
        KIT_TEST(test_client_lazy_wrong),
        KIT_TEST(test_client_events),
    };
    return KIT_RUN("server.client", tests);
}
