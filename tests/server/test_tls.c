/* SPDX-License-Identifier: MIT
 *
 * test_tls.c - locks over TLS: everything works as it does without.
 *
 * What is different inside: bytes come and go in records, a session has some
 * that poll does not know of, and files are read for each connection. So there
 * is a test for each way in which bytes go: by a caller itself, in batches, as
 * messages, and in amounts that no record and no socket takes at once.
 */
#include "net/tls.h"
#include "server/relay.h"
#include "server/tls_kit.h"

#include <signal.h>
#include <sys/wait.h>

#define CA "ca=%s/ca.crt"

/* ---- the verbs --------------------------------------------------------- */

typedef dibs_err (*new_fn)(dibs_client *, const char *, dibs_lock **);

static const new_fn kinds[] = {dibs_lock_new, dibs_fair_lock_new,
                               dibs_read_lock_new, dibs_write_lock_new};

static bool count_one(const char *name, size_t len, const dibs_lock_info *info,
                      void *arg)
{
    (void)name;
    (void)len;
    (void)info;
    ++*(size_t *)arg;
    return true;
}

static void test_tls_every_kind(void **state)
{
    dibs_client *c = tls_open(CA, NULL);

    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dibs_lock_info info = DIBS_LOCK_INFO_INIT;
        size_t listed = 0;
        bool was = false;
        dibs_lock *l;

        FINE(kinds[i](c, "k", &l));
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_try(l, NULL));
        FINE(dibs_lock_info_get(l, &info));
        assert_true(info.locked);
        assert_int_equal(info.holds, 2);
        FINE(dibs_client_list(c, NULL, count_one, &listed));
        assert_int_equal(listed, 1);
        FINE(dibs_lock_release(l, NULL));
        FINE(dibs_lock_release(l, NULL));
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_force_release(l, &was));
        assert_true(was);
        WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
        dibs_lock_free(l);
    }
    kit_close(c);
}

/* A caller alone talks on a connection of its own. */
static void test_tls_caller_talks(void **state)
{
    dibs_client *c = tls_open(CA, DIBS_CLIENT_OPTS(.max_connections = 2));
    dibs_lock *l = kit_lock(c, "t");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL)); /* has the second connection dialed */
    FINE(dibs_lock_release(l, NULL));
    TS_WAIT(ts_client_count(srv) >= kit_strange + 2);
    for (int i = 0; i < 300; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
    }
    FINE(dibs_lock_acquire(l, NULL));
    assert_int_equal(kit_count(l, "t", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- waiting ----------------------------------------------------------- */

static void test_tls_wait_is_woken(void **state)
{
    static const new_fn both[] = {dibs_lock_new, dibs_fair_lock_new};
    dibs_client *a = tls_open(CA, NULL), *b = tls_open(CA, NULL);
    dibs_lock *la, *lb;

    (void)state;
    for (size_t i = 0; i < COUNT(both); i++) {
        struct call call;

        FINE(both[i](a, "w", &la));
        FINE(both[i](b, "w", &lb));
        FINE(dibs_lock_acquire(la, NULL));
        kit_call_start(&call, lb, NULL, dibs_lock_acquire);
        /* It waits, and listens, over TLS. */
        TS_WAIT(i ? ts_int(srv, "LLEN redisson_lock_queue:{w}") == 1
                  : ts_waiting(srv, "w") == 1);
        TS_WAIT(ts_nchannels(srv) >= 1);
        long long before = ts_command_calls(srv, "evalsha");
        FINE(dibs_lock_release(la, NULL));
        FINE(kit_call_end(&call));
        /* The release, one attempt of the other; were it not woken there would
         * be more, or none. */
        assert_true(ts_command_calls(srv, "evalsha") - before <= 4);
        FINE(dibs_lock_force_release(lb, NULL));
        TS_WAIT(ts_waiting(srv, "w") == 0);
        dibs_lock_free(la);
        dibs_lock_free(lb);
    }
    FINE(dibs_client_close(a, TS_SOON));
    dibs_client_free(a);
    FINE(dibs_client_close(b, TS_SOON));
    dibs_client_free(b);
    kit_clients -= 2;
}

struct share {
    dibs_lock *l;
    int inside, most; /* guarded by the lock under test */
};

static void *take_turns(void *arg)
{
    struct share *s = arg;

    for (int i = 0; i < 50; i++) {
        if (dibs_lock_acquire(s->l, NULL) != DIBS_OK)
            return s;
        if (++s->inside > s->most)
            s->most = s->inside;
        s->inside--;
        if (dibs_lock_release(s->l, NULL) != DIBS_OK)
            return s;
    }
    return NULL;
}

static void test_tls_hand_over(void **state)
{
    dibs_client *c = tls_open(CA, NULL);
    struct share share = {.l = kit_lock(c, "h")};
    pthread_t threads[8];
    void *failed = NULL, *one;

    (void)state;
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, &share),
                         0);
    for (size_t i = 0; i < COUNT(threads); i++) {
        pthread_join(threads[i], &one);
        failed = one ? one : failed;
    }
    assert_null(failed);
    assert_int_equal(share.most, 1);
    dibs_lock_free(share.l);
    kit_close(c);
}

static void test_tls_renewed(void **state)
{
    dibs_client *c = tls_open(CA, DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "r");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    long long before = ts_command_calls(srv, "evalsha");
    TS_WAIT(ts_command_calls(srv, "evalsha") >= before + 4);
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_HELD);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* The lease is long: nothing but a message can tell. */
static void test_tls_loss_is_told(void **state)
{
    struct lost lost = {0};
    dibs_client *c = tls_open(CA, DIBS_CLIENT_OPTS(.lease_ms = 600000));
    dibs_lock *l = kit_lock(c, "gone");

    (void)state;
    FINE(dibs_lock_acquire(l,
                           DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost)));
    TS_WAIT(ts_info(srv, "stats", "tracking_total_keys") == 1);
    ts_ok(srv, "DEL gone");
    TS_WAIT(atomic_load(&lost.times) == 1);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- much at once ------------------------------------------------------ */

enum { MANY = 400 };

/* Renewals of locks with long names are commands of 200 KB: many records, and
 * more than a socket takes at once. */
static void test_tls_large_commands(void **state)
{
    static dibs_lock *locks[MANY];
    dibs_client *c =
        tls_open(CA, DIBS_CLIENT_OPTS(.lease_ms = kit_lease() * 2));
    struct told told = {0};
    char name[DIBS_NAME_MAX + 1];
    size_t listed = 0;

    (void)state;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < MANY; i++) {
        name[0] = (char)('a' + i % 26);
        name[1] = (char)('a' + i / 26);
        locks[i] = kit_lock(c, name);
        FINE(dibs_lock_acquire_async(locks[i], NULL, kit_tell, &told));
    }
    TS_WAIT(atomic_load(&told.times) == MANY);
    assert_int_equal(atomic_load(&told.err), DIBS_OK);
    long long before = ts_command_calls(srv, "evalsha");
    TS_WAIT(ts_command_calls(srv, "evalsha") >= before + 6);
    for (int i = 0; i < MANY; i++)
        TS_WAIT(dibs_lock_state(locks[i], 0) == DIBS_HELD);
    FINE(dibs_client_list(c, NULL, count_one, &listed)); /* much comes back */
    assert_int_equal(listed, MANY);
    kit_close(c); /* and all of it is released */
    for (int i = 0; i < MANY; i++)
        dibs_lock_free(locks[i]);
}

static void tell_info(dibs_err err, const dibs_lock_info *info, void *arg)
{
    kit_tell(err == DIBS_OK && info->locked ? DIBS_ERR_BUSY : err, arg);
}

/* A server that does not read: records get stuck half-way, and go on. */
static void test_tls_server_stalls(void **state)
{
    struct heard h = HEARD_INIT;
    dibs_client *c =
        tls_open(CA, DIBS_CLIENT_OPTS(.command_timeout_ms = ts_ms(30000),
                                      .on_event = tls_hear, .event_arg = &h));
    struct told told = {0};
    char name[DIBS_NAME_MAX + 1];

    (void)state;
    memset(name, 's', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    dibs_lock *l = kit_lock(c, name);
    ts_server_pause(srv);
    for (int i = 0; i < 60 * MANY; i++) /* about 26 MB */
        FINE(dibs_lock_info_get_async(l, tell_info, &told));
    ts_server_resume(srv);
    TS_WAIT(atomic_load(&told.times) == 60 * MANY);
    assert_int_equal(atomic_load(&told.err), DIBS_OK);
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(strncmp(h.text, "0 1 rediss://", 13), 0);
    char *end = strchr(h.text, '\n');
    assert_true(end && end[1] == '\0'); /* and no other */
    assert_string_equal(strrchr(h.text, ' '), " connected\n");
}

/* Two replies in two records come at once: the socket has nothing more to tell
 * when the first is taken. */
static void test_tls_records_together(void **state)
{
    struct relay r;
    struct told told = {0};

    (void)state;
    relay_start(&r, tls_port);
    char *url = tls_url_at("127.0.0.1", r.port, CA);
    dibs_client *c =
        kit_open_at(url, DIBS_CLIENT_OPTS(.max_connections = 1,
                                          .command_timeout_ms = 4 * TS_SOON));
    dibs_lock *l = kit_lock(c, "two");
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    FINE(dibs_lock_info_get(l, &info)); /* the server knows the script */
    atomic_store(&r.freeze, true);
    atomic_store(&r.left, 0);
    long long before = ts_command_calls(srv, "evalsha");
    for (int i = 1; i <= 2; i++) {
        FINE(dibs_lock_info_get_async(l, tell_info, &told));
        TS_WAIT(ts_command_calls(srv, "evalsha") == before + i);
    }
    atomic_store(&r.left, RELAY_ALL);
    TS_WAIT(atomic_load(&told.times) == 2);
    dibs_lock_free(l);
    kit_close(c);
    free(url);
    relay_stop(&r);
}

/* ---- certificates ------------------------------------------------------ */

static void check_works(dibs_client *c)
{
    dibs_lock *l = kit_lock(c, "c");

    FINE(dibs_lock_try(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_tls_names(void **state)
{
    char *url = tls_url_at("localhost", tls_port, CA);

    (void)state;
    check_works(kit_open_at(url, NULL));
    check_works(tls_open(CA "&sni=localhost", NULL));
    tls_show("wrong.crt");
    check_works(tls_open(CA "&sni=elsewhere.example", NULL));
    check_works(tls_open(CA "&sni=192.0.2.1", NULL));
    check_works(tls_open("insecure=1", NULL));
    tls_show("expired.crt");
    check_works(tls_open("insecure=1", NULL));
    tls_show("foreign.crt");
    check_works(tls_open("ca=%s/other.crt", NULL));
    check_works(tls_open("ca=%s/foreign.crt", NULL)); /* the very one */
    free(url);
}

static void test_tls_client_certificate(void **state)
{
    char *cert = ts_text("%s/client.crt", tls_dir);
    char *key = ts_text("%s/client.key", tls_dir);
    char *ca = ts_text("%s/ca.crt", tls_dir);
    static const char *const protocols[] = {"TLSv1.3", "TLSv1.2"};

    (void)state;
    ts_ok(srv, "CONFIG SET tls-auth-clients yes");
    for (size_t i = 0; i < COUNT(protocols); i++) {
        ts_ok(srv, "CONFIG SET tls-protocols %s", protocols[i]);
        check_works(tls_open(CA "&cert=%s/client.crt&key=%s/client.key", NULL));
        check_works(tls_open(CA "&cert=%s/both.pem", NULL));
        check_works(tls_open("insecure=1&cert=%s/both.pem", NULL));
        check_works(
            tls_open("", DIBS_CLIENT_OPTS(.tls_ca = ca, .tls_cert = cert,
                                          .tls_key = key)));
        /* What the options say counts more. */
        check_works(
            tls_open("ca=/none&cert=/none&key=/none&sni=none",
                     DIBS_CLIENT_OPTS(.tls_ca = ca, .tls_cert = cert,
                                      .tls_key = key, .tls_sni = "localhost")));
    }
    free(cert);
    free(key);
    free(ca);
}

/* The server changes its CA, and later the file of trusted ones does: the
 * client, which was never restarted, is back. */
static void test_tls_renewed_certificates(void **state)
{
    struct heard h = HEARD_INIT;
    dibs_client *c =
        tls_open("ca=%s/trusted.crt",
                 DIBS_CLIENT_OPTS(.on_event = tls_hear, .event_arg = &h));
    dibs_lock *l = kit_lock(c, "n");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    tls_show("again.crt"); /* a new one of the same CA */
    ts_ok(srv, "CLIENT KILL TYPE normal SKIPME yes");
    FINE(dibs_lock_acquire(l, NULL));

    tls_show("foreign.crt");
    ts_ok(srv, "CLIENT KILL TYPE normal SKIPME yes");
    TS_WAIT(tls_heard(&h, DIBS_ERR_TLS, "unknown CA"));
    assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD); /* its lease runs */
    tls_replace("trusted.crt", "other.crt");
    TS_WAIT(dibs_lock_acquire(l, NULL) == DIBS_OK);
    assert_int_equal(kit_count(l, "n", 0), 3);
    for (int i = 0; i < 3; i++)
        FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- a good citizen ---------------------------------------------------- */

static volatile sig_atomic_t pipes;

static void count_pipe(int sig)
{
    (void)sig;
    pipes++;
}

/* The one that listened has hung up: the very first bytes find nobody. */
static void test_tls_no_sigpipe(void **state)
{
    struct sigaction count = {.sa_handler = count_pipe}, before;
    struct dibs__url url = {.host = "localhost", .tls.on = true};
    struct dibs__tls *t = dibs__tls_new(&url);
    int fds[2];

    (void)state;
    assert_non_null(t);
    assert_true(dibs__tls_load(t));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    close(fds[1]);
    assert_int_equal(sigaction(SIGPIPE, &count, &before), 0);
    assert_int_equal(dibs__tls_handshake(t, fds[0]), TLS_CUT);
    assert_int_equal(sigaction(SIGPIPE, &before, NULL), 0);
    assert_int_equal(pipes, 0);
    dibs__tls_free(t);
    close(fds[0]);
}

/* A child that frees its copy says nothing on the session. */
static void test_tls_fork(void **state)
{
    dibs_client *c = tls_open(CA, NULL);
    dibs_lock *l = kit_lock(c, "f");
    int status = -1;

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    pid_t pid = fork();
    if (pid == 0) {
        bool right = dibs_lock_release(l, NULL) == DIBS_ERR_FORKED;
        dibs_client_free(c);
        _exit(right ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    long long clients = ts_info(srv, "stats", "total_connections_received");
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    /* On the connections there were, or a spare one that was being made. */
    assert_true(ts_info(srv, "stats", "total_connections_received") <=
                clients + 1);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- replicas, and what the doctor says --------------------------------- */

/* The connection for acknowledgements is encrypted as the others are. */
static void test_tls_replicas(void **state)
{
    dibs_client *c = tls_open(CA, NULL);
    dibs_lock *l = kit_lock(c, "l");
    char *port = ts_text("%d", ts_server_port(srv));

    (void)state;
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas = DIBS_REPLICAS_ALL)),
         DIBS_ERR_REPLICAS);
    assert_false(ts_exists(srv, "l"));
    ts_config_set(srv, "repl-diskless-sync-delay", "0");
    struct ts_server *replica = ts_server_start(
        (const char *[]){"--replicaof", "127.0.0.1", port, NULL});
    TS_WAIT(ts_int(srv, "WAIT 1 0") == 1);
    FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(.replicas = DIBS_REPLICAS_ALL,
                                         .replicas_timeout_ms = TS_SOON)));
    assert_true(ts_exists(replica, "l"));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    ts_server_stop(replica);
    free(port);
}

struct said {
    dibs_verdict verdict;
    char text[256];
};

static bool about_tls(const char *check, dibs_verdict verdict, const char *text,
                      void *arg)
{
    struct said *said = arg;

    if (strcmp(check, "tls") != 0)
        return true;
    said->verdict = verdict;
    snprintf(said->text, sizeof said->text, "%s", text);
    return false;
}

static void test_tls_doctor(void **state)
{
    static const struct {
        const char *words;
        dibs_verdict verdict;
        const char *text;
    } rows[] = {
        {CA, DIBS_VERDICT_OK, "is verified"},
        {CA "&cert=%s/both.pem", DIBS_VERDICT_OK, "client certificate is sent"},
        {"insecure=1", DIBS_VERDICT_WARNING, "insecure=1"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct said said = {DIBS_VERDICT_PROBLEM, ""};
        dibs_client *c = tls_open(rows[i].words, NULL);
        FINE(dibs_client_doctor(c, NULL, about_tls, &said));
        assert_int_equal(said.verdict, rows[i].verdict);
        assert_non_null(strstr(said.text, rows[i].text));
        kit_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TLS_TEST(test_tls_every_kind),
        TLS_TEST(test_tls_caller_talks),
        TLS_TEST(test_tls_wait_is_woken),
        TLS_TEST(test_tls_hand_over),
        TLS_TEST(test_tls_renewed),
        TLS_TEST(test_tls_loss_is_told),
        TLS_TEST(test_tls_large_commands),
        TLS_TEST(test_tls_server_stalls),
        TLS_TEST(test_tls_records_together),
        TLS_TEST(test_tls_names),
        TLS_TEST(test_tls_client_certificate),
        TLS_TEST(test_tls_renewed_certificates),
        TLS_TEST(test_tls_no_sigpipe),
        TLS_TEST(test_tls_fork),
        TLS_TEST(test_tls_replicas),
        TLS_TEST(test_tls_doctor),
    };
    return tls_run("tls", tests, COUNT(tests));
}
