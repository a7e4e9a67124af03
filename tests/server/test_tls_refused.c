/* SPDX-License-Identifier: MIT
 *
 * test_tls_refused.c - TLS that must not come about, or does not last: each
 * refusal with its own words, and faults on the wire.
 */
#include "base/mem.h"
#include "server/fake.h"
#include "server/relay.h"
#include "server/tls_kit.h"

#define CA "ca=%s/ca.crt"

/* ---- who is not trusted, or does not trust us -------------------------- */

/* Opening ends so, and an event says why before it returns: with both ways of
 * delivering events. */
static void check_refused(const char *url, const dibs_client_opts *opts,
                          dibs_err want, const char *part)
{
    for (int dispatch = 0; dispatch < 2; dispatch++) {
        struct heard h = HEARD_INIT;
        dibs_client_opts o = *opts;
        dibs_client *c = NULL;

        o.on_event = tls_hear;
        o.event_arg = &h;
        o.callbacks =
            dispatch ? DIBS_CALLBACKS_DISPATCH : DIBS_CALLBACKS_THREAD;
        dibs_err err = dibs_client_open(url, &o, &c);
        if (err != want || !tls_heard(&h, want, part))
            fail_msg("%s: %s, and was told: %s", url, dibs_strerror(err),
                     h.text);
        assert_null(c);
    }
}

struct refusal {
    const char *shows; /* the server's certificate */
    const char *words; /* of the URL */
    const char *part;  /* of the event's text */
};

static void test_tls_servers_not_trusted(void **state)
{
    static const struct refusal rows[] = {
        {"good.crt", "", "unknown CA (those of the system"},
        {"good.crt", "ca=%s/other.crt", "unknown CA (/"},
        {"good.crt", "ca=%s/folder", "unknown CA"},
        {"foreign.crt", CA, "unknown CA"},
        {"wrong.crt", CA, "for another host than 127.0.0.1"},
        {"good.crt", CA "&sni=elsewhere.example",
         "for another host than elsewhere.example"},
        {"good.crt", CA "&sni=192.0.2.1", "for another host than 192.0.2.1"},
        {"expired.crt", CA, "has expired"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *url = tls_url(rows[i].words);
        tls_show(rows[i].shows);
        check_refused(url, DIBS_CLIENT_OPTS(0), DIBS_ERR_TLS, rows[i].part);
        free(url);
    }
}

static void test_tls_client_not_trusted(void **state)
{
    static const char *const protocols[] = {"TLSv1.3", "TLSv1.2"};
    static const struct refusal rows[] = {
        {NULL, CA, "wants a client certificate"},
        {NULL, "insecure=1", "wants a client certificate"},
        {NULL, CA "&cert=%s/stranger.crt&key=%s/client.key",
         "does not accept our certificate"},
    };
    (void)state;
    ts_ok(srv, "CONFIG SET tls-auth-clients yes");
    for (size_t i = 0; i < COUNT(rows) * COUNT(protocols); i++) {
        const struct refusal *row = &rows[i / COUNT(protocols)];
        char *url = tls_url(row->words);
        ts_ok(srv, "CONFIG SET tls-protocols %s",
              protocols[i % COUNT(protocols)]);
        check_refused(url, DIBS_CLIENT_OPTS(0), DIBS_ERR_TLS, row->part);
        free(url);
    }
}

static void test_tls_files_of_no_use(void **state)
{
    static const struct refusal rows[] = {
        {NULL, "ca=%s/none", "/none': No such file"},
        {NULL, "ca=%s/text.pem", "text.pem' has no certificate"},
        {NULL, "ca=%s/client.key", "client.key' has no certificate"},
        {NULL, CA "&cert=%s/none", "cert '"},
        {NULL, CA "&cert=%s/none", "No such file"},
        {NULL, CA "&cert=%s/text.pem", "text.pem' has no certificate"},
        {NULL, CA "&cert=%s/client.crt", "client.crt' has no key"},
        {NULL, CA "&cert=%s/client.crt&key=%s/none", "key '"},
        {NULL, CA "&cert=%s/client.crt&key=%s/none", "No such file"},
        {NULL, CA "&cert=%s/client.crt&key=%s/text.pem", "has no key"},
        {NULL, CA "&cert=%s/client.crt&key=%s/server.key",
         "does not belong to the certificate"},
        {NULL, CA "&cert=%s/client.crt&key=%s/locked.key", "passphrase"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *url = tls_url(rows[i].words);
        check_refused(url, DIBS_CLIENT_OPTS(0), DIBS_ERR_TLS, rows[i].part);
        free(url);
    }
}

static void test_tls_options_refused(void **state)
{
    const char *plain = ts_server_tcp_url(srv);
    char *url = tls_url("");

    (void)state;
    check_refused(plain, DIBS_CLIENT_OPTS(.tls_ca = "x"), DIBS_ERR_INVALID,
                  "no rediss");
    check_refused(plain, DIBS_CLIENT_OPTS(.tls_insecure = true),
                  DIBS_ERR_INVALID, "no rediss");
    check_refused(url, DIBS_CLIENT_OPTS(.tls_key = "x"), DIBS_ERR_INVALID,
                  "no certificate");
    check_refused("rediss://h?verify=0", DIBS_CLIENT_OPTS(0), DIBS_ERR_INVALID,
                  "does not know");
    free(url);
}

/* A refusal is told at once also to those who opened without waiting, and what
 * is refused now may be right later. */
static void test_tls_lazy(void **state)
{
    (void)state;
    tls_show("foreign.crt");
    dibs_client *c = tls_open(CA, DIBS_CLIENT_OPTS(.lazy = true));
    dibs_lock *l = kit_lock(c, "z");
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_TLS);
    WANT(dibs_lock_acquire(l, NULL), DIBS_ERR_TLS);
    tls_show("good.crt");
    TS_WAIT(dibs_lock_try(l, NULL) == DIBS_OK);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_tls_insecure_warns(void **state)
{
    struct heard h = HEARD_INIT;

    (void)state;
    tls_show("expired.crt");
    dibs_client *c = tls_open(
        "insecure=1", DIBS_CLIENT_OPTS(.on_event = tls_hear, .event_arg = &h));
    TS_WAIT(tls_heard(&h, DIBS_OK, "without verification"));
    kit_close(c);
}

#ifdef DIBS_FAULTS
/* Each allocation of ours fails once while a client is opened; with every file
 * named, and where it is refused in the end as well. */
static void test_tls_out_of_memory(void **state)
{
    static const char words[] = CA "&cert=%s/client.crt&key=%s/client.key";
    char *urls[] = {tls_url(words), tls_url("sni=localhost")};
    const dibs_err ends[] = {DIBS_OK, DIBS_ERR_TLS};

    (void)state;
    for (size_t i = 0; i < COUNT(urls); i++) {
        bool all = false;
        for (long n = 1; !all; n++) {
            dibs_client *c = NULL;
            dibs__mem_fail_at(n, false);
            dibs_err err = dibs_client_open(urls[i], NULL, &c);
            all = dibs__mem_fail_at(0, false) < n;
            if (err != ends[i] && err != DIBS_ERR_NOMEM && err != DIBS_ERR_CONN)
                fail_msg("%s, %ld: %s", urls[i], n, dibs_strerror(err));
            assert_true((err == DIBS_OK) == (c != NULL));
            dibs_client_free(c);
        }
        free(urls[i]);
    }
}
#endif

/* ---- not TLS ----------------------------------------------------------- */

static void test_tls_plain_peers(void **state)
{
    static const struct {
        const char *answer;
        bool hang_up;
        dibs_err want;
        const char *part;
    } rows[] = {
        {"-ERR unknown command\r\n", false, DIBS_ERR_TLS, "not speak TLS"},
        {"HTTP/1.1 400 Bad Request\r\n\r\n", true, DIBS_ERR_TLS,
         "not speak TLS"},
        {"", true, DIBS_ERR_CONN, "closed the connection in the TLS handshake"},
        {NULL, false, DIBS_ERR_CONN, "handshake did not end in time"},
        {"\x16\x03\x03", false, DIBS_ERR_CONN, "handshake did not end in time"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct fake f;
        fake_start(&f, rows[i].answer, rows[i].hang_up);
        char *url = tls_url_at("127.0.0.1", f.port, "");
        bool ends = rows[i].want == DIBS_ERR_TLS || rows[i].hang_up;
        int64_t limit = ends ? TS_SOON : ts_ms(2000); /* which is sat out */
        check_refused(url, DIBS_CLIENT_OPTS(.connect_timeout_ms = limit),
                      rows[i].want, rows[i].part);
        free(url);
        fake_stop(&f);
    }
}

/* A real server's ports, mixed up. */
static void test_tls_ports_mixed_up(void **state)
{
    char *tls_at_plain = tls_url_at("127.0.0.1", ts_server_port(srv), CA);
    char *plain_at_tls = ts_text("redis://127.0.0.1:%d", tls_port);
    dibs_client *c = NULL;
    struct fake f;

    (void)state;
    /* What a plain server makes of a handshake depends on chance: it may
     * answer or wait for the end of a line. */
    dibs_err err = dibs_client_open(
        tls_at_plain, DIBS_CLIENT_OPTS(.connect_timeout_ms = 500), &c);
    assert_true(err == DIBS_ERR_TLS || err == DIBS_ERR_CONN);
    /* Redis hangs up, others send an alert first. */
    WANT(dibs_client_open(plain_at_tls, NULL, &c), DIBS_ERR_CONN);
    fake_start(&f, "\x15\x03\x01", false);
    check_refused(f.url, DIBS_CLIENT_OPTS(0), DIBS_ERR_PROTOCOL,
                  "the server sent TLS");
    fake_stop(&f);
    free(tls_at_plain);
    free(plain_at_tls);
}

/* ---- faults on the wire ------------------------------------------------ */

/* The handshake ends after so many bytes of the server, cut or frozen. */
static void test_tls_handshake_interrupted(void **state)
{
    struct relay r;

    (void)state;
    relay_start(&r, tls_port);
    char *url = tls_url_at("127.0.0.1", r.port, CA);
    for (long bytes = 0; bytes < 800; bytes += 97) {
        atomic_store(&r.freeze, false);
        atomic_store(&r.left, bytes);
        dibs_client *c = NULL;
        WANT(dibs_client_open(url, NULL, &c), DIBS_ERR_CONN);
    }
    atomic_store(&r.freeze, true);
    for (long bytes = 0; bytes < 800; bytes += 497) {
        atomic_store(&r.left, bytes);
        check_refused(url, DIBS_CLIENT_OPTS(.connect_timeout_ms = ts_ms(2000)),
                      DIBS_ERR_CONN, "handshake did not end in time");
    }
    free(url);
    relay_stop(&r);
}

/* A reply is cut in the middle of its record, at every place: the command runs
 * once, and the caller gets its answer. */
static void test_tls_reply_cut(void **state)
{
    struct relay r;

    (void)state;
    relay_start(&r, tls_port);
    char *url = tls_url_at("127.0.0.1", r.port, CA);
    for (unsigned connections = 1; connections <= 2; connections++) {
        dibs_client *c =
            kit_open_at(url, DIBS_CLIENT_OPTS(.max_connections = connections));
        dibs_lock *l = kit_lock(c, "cut");

        for (int i = 0; i < 100; i++) { /* until a caller has its own */
            FINE(dibs_lock_acquire(l, NULL));
            FINE(dibs_lock_release(l, NULL));
        }
        for (long bytes = 0; bytes < 28; bytes += 3) {
            atomic_store(&r.left, bytes);
            struct call call;
            kit_call_start(&call, l, NULL, dibs_lock_acquire);
            TS_WAIT(atomic_load(&r.left) <= 0);
            /* The rest is cut with the connection; the next one is whole. */
            TS_WAIT(ts_exists(srv, "cut"));
            atomic_store(&r.left, RELAY_ALL);
            FINE(kit_call_end(&call));
            FINE(dibs_lock_force_release(l, NULL));
            TS_WAIT(!ts_exists(srv, "cut"));
        }
        dibs_lock_free(l);
        kit_close(c);
    }
    free(url);
    relay_stop(&r);
}

/* A record that comes slowly but in time is an answer. One that comes byte by
 * byte holds a caller no longer than its limit: were each byte waited for as
 * long as that, there would be an answer after all. */
static void test_tls_reply_drips(void **state)
{
    const int limit = (int)ts_ms(2000);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    struct relay r;

    (void)state;
    relay_start(&r, tls_port);
    char *url = tls_url_at("127.0.0.1", r.port, CA);
    dibs_client *c =
        kit_open_at(url, DIBS_CLIENT_OPTS(.max_connections = 2,
                                          .command_timeout_ms = limit));
    dibs_lock *l = kit_lock(c, "drip");
    for (int i = 0; i < 100; i++) /* until a caller has its own connection */
        FINE(dibs_lock_info_get(l, &info));

    atomic_store(&r.drip_ms, 1);
    for (int i = 0; i < 5; i++)
        FINE(dibs_lock_info_get(l, &info));
    atomic_store(&r.drip_ms, limit / 4);
    dibs_err err = dibs_lock_info_get(l, &info);
    assert_true(err == DIBS_ERR_UNKNOWN || err == DIBS_ERR_CONN);
    atomic_store(&r.drip_ms, 0);
    TS_WAIT(dibs_lock_info_get(l, &info) == DIBS_OK);
    dibs_lock_free(l);
    kit_close(c);
    free(url);
    relay_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TLS_TEST(test_tls_servers_not_trusted),
        TLS_TEST(test_tls_client_not_trusted),
        TLS_TEST(test_tls_files_of_no_use),
        TLS_TEST(test_tls_options_refused),
        TLS_TEST(test_tls_lazy),
        TLS_TEST(test_tls_insecure_warns),
#ifdef DIBS_FAULTS
        TLS_TEST(test_tls_out_of_memory),
#endif
        TLS_TEST(test_tls_plain_peers),
        TLS_TEST(test_tls_ports_mixed_up),
        TLS_TEST(test_tls_handshake_interrupted),
        TLS_TEST(test_tls_reply_cut),
        TLS_TEST(test_tls_reply_drips),
    };
    return tls_run("tls_refused", tests, COUNT(tests));
}
