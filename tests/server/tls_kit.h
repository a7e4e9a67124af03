/* SPDX-License-Identifier: MIT
 *
 * tls_kit.h - what the tests of TLS share: certificates, a server that has
 * one, and what events said.
 *
 * The certificates are made by the openssl command, in the folder of a server
 * that is there only for that: its keeper removes the folder however the test
 * ends. All certificates of servers have one key, so that a running server can
 * be given another one in one step.
 */
#ifndef DIBS_TESTS_SERVER_TLS_KIT_H
#define DIBS_TESTS_SERVER_TLS_KIT_H

#include "server/kit.h"
#include "support/server_impl.h"

#include <unistd.h>

static struct ts_server *tls_home; /* has the folder */
static const char *tls_dir;        /* with the certificates */
static int tls_port, tls_port_fd;

/* ---- certificates ------------------------------------------------------ */

/* name.key: the server's, and one for each client. name.crt: who signed it is
 * its last word. */
static const char tls_script[] =
    "set -e; exec 2>make.log\n"
    "key() { openssl genpkey -algorithm EC"
    " -pkeyopt ec_paramgen_curve:P-256 -out $1.key; }\n"
    "root() { key $1; openssl req -x509 -new -key $1.key -subj /CN=$1"
    " -days 2 -out $1.crt; }\n"
    "leaf() {\n" /* NAME KEY TIME SAN CA */
    "  printf 'subjectAltName=%s\\n' \"$4\" >$1.ext\n"
    "  openssl req -new -key $2.key -subj /CN=$1 -out $1.csr\n"
    "  openssl x509 -req -in $1.csr -CA $5.crt -CAkey $5.key"
    " -set_serial 0x$(openssl rand -hex 8) $3 -extfile $1.ext"
    " -out $1.crt; }\n"
    "root ca; root other; key server; key client\n"
    "here=DNS:localhost,IP:127.0.0.1 soon='-days 2' past='-days -1'\n"
    /* OpenSSL 3.5 wants a past to be spelled out, older ones cannot. */
    "if openssl x509 -help 2>&1 | grep -q -e -not_after; then\n"
    "  past='-not_before 20200101000000Z -not_after 20200102000000Z'\n"
    "fi\n"
    "leaf good server \"$soon\" $here ca\n"
    "leaf again server \"$soon\" $here ca\n"
    "leaf wrong server \"$soon\" DNS:elsewhere.example,IP:192.0.2.1 ca\n"
    "leaf expired server \"$past\" $here ca\n"
    "leaf foreign server \"$soon\" $here other\n"
    "leaf client client \"$soon\" DNS:client ca\n"
    "leaf stranger client \"$soon\" DNS:stranger other\n"
    "cat client.crt client.key >both.pem\n"
    "openssl pkey -in client.key -aes128 -passout pass:x -out locked.key\n"
    "cp ca.crt trusted.crt; echo nothing >text.pem; mkdir folder\n";

static inline void tls_make(void)
{
    char *command = ts_text("cd '%s' && sh -c '%s'", tls_dir, "exec sh make");
    char *path = ts_text("%s/make", tls_dir);
    FILE *f = fopen(path, "we");

    if (!f || fputs(tls_script, f) < 0 || fclose(f) != 0)
        ts_fatal("%s cannot be written", path);
    if (system(command) != 0)
        ts_fatal("the certificates could not be made; see %s/make.log",
                 tls_dir);
    free(command);
    free(path);
}

/* Puts another certificate in the place of one that a client knows by name, as
 * the one that renews it does. */
static inline void tls_replace(const char *name, const char *with)
{
    char *from = ts_text("%s/%s", tls_dir, with);
    char *to = ts_text("%s/%s", tls_dir, name);
    char *tmp = ts_text("%s.new", to);

    unlink(tmp);
    if (link(from, tmp) != 0 || rename(tmp, to) != 0)
        ts_fatal("%s cannot be replaced", to);
    free(from);
    free(to);
    free(tmp);
}

/* ---- the server -------------------------------------------------------- */

/* The server shows this certificate from now on. */
static inline void tls_show(const char *cert)
{
    ts_ok(srv, "CONFIG SET tls-cert-file %s/%s", tls_dir, cert);
}

static inline void tls_start_server(void)
{
    char *key = ts_text("%s/server.key", tls_dir);
    char *cert = ts_text("%s/good.crt", tls_dir);
    char *ca = ts_text("%s/ca.crt", tls_dir);
    char port[16];

    tls_port_fd = ts__port_take(&tls_port);
    snprintf(port, sizeof port, "%d", tls_port);
    srv = ts_server_start((const char *[]){
        "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
        "--tls-ca-cert-file", ca, "--tls-auth-clients", "no", NULL});
    free(key);
    free(cert);
    free(ca);
}

static inline bool tls_config(const char *name, const char *value)
{
    redisReply *r = ts_cmd(tls_home, "CONFIG SET %s %s", name, value);
    bool set = r && r->type == REDIS_REPLY_STATUS;

    freeReplyObject(r);
    return set;
}

/* A server may have been built without TLS, and shows it only when it is to
 * listen. */
static inline bool tls_there(void)
{
    char *key = ts_text("%s/server.key", tls_dir);
    char *cert = ts_text("%s/good.crt", tls_dir);
    char *ca = ts_text("%s/ca.crt", tls_dir);
    char port[16];
    int number, fd = ts__port_take(&number);

    snprintf(port, sizeof port, "%d", number);
    bool there =
        tls_config("tls-cert-file", cert) && tls_config("tls-key-file", key) &&
        tls_config("tls-ca-cert-file", ca) && tls_config("tls-port", port);
    close(fd);
    free(key);
    free(cert);
    free(ca);
    return there;
}

/* redis://HOST:PORT?WORDS, %s in the words being the folder; free() it. */
static inline char *tls_url_at(const char *host, int port, const char *words)
{
    char *query = ts_text("%s", "");

    for (const char *p = words; *p; p++) {
        bool folder = *p == '%' && p[1] == 's';
        char *longer =
            ts_text("%s%.*s", query, folder ? 999 : 1, folder ? tls_dir : p);
        free(query);
        query = longer;
        p += folder;
    }
    char *url =
        ts_text("rediss://%s:%d%s%s", host, port, *query ? "?" : "", query);
    free(query);
    return url;
}

static inline char *tls_url(const char *words)
{
    return tls_url_at("127.0.0.1", tls_port, words);
}

static inline dibs_client *tls_open(const char *words,
                                    const dibs_client_opts *opts)
{
    char *url = tls_url(words);
    dibs_client *c = kit_open_at(url, opts);

    free(url);
    return c;
}

static inline int tls_start(void **state)
{
    dibs_client *c = NULL;

    (void)state;
    tls_start_server();
    if (dibs_client_open(ts_server_url(srv), NULL, &c) != DIBS_OK)
        return -1;
    dibs_client_free(c);
    return 0;
}

static inline int tls_stop(void **state)
{
    (void)state;
    ts_server_stop(srv);
    close(tls_port_fd);
    return 0;
}

/* As a test before may have left it. */
static inline int tls_before(void **state)
{
    tls_show("good.crt");
    tls_replace("trusted.crt", "ca.crt");
    ts_ok(srv, "CONFIG SET tls-auth-clients no");
    ts_ok(srv, "CONFIG SET tls-protocols %s", "");
    return kit_before(state);
}

#define TLS_TEST(f) cmocka_unit_test_setup_teardown(f, tls_before, kit_after)

static inline int tls_run(const char *name, const struct CMUnitTest *tests,
                          size_t count)
{
    int failed = 0;

    tls_home = ts_server_start(NULL);
    tls_dir = ts_server_dir(tls_home);
    tls_make();
    if (tls_there())
        failed =
            _cmocka_run_group_tests(name, tests, count, tls_start, tls_stop);
    else
        printf("%s: this server has no TLS; nothing is tested\n", name);
    ts_server_stop(tls_home);
    return failed;
}

/* ---- what events said -------------------------------------------------- */

struct heard {
    pthread_mutex_t mu;
    char text[8192]; /* mu: a line each: error number, kind, words */
    size_t len;      /* mu */
};

#define HEARD_INIT                                                             \
    {                                                                          \
        .mu = PTHREAD_MUTEX_INITIALIZER                                        \
    }

/* A dibs_event_cb whose arg is a struct heard. */
static inline void tls_hear(const dibs_event *ev, void *arg)
{
    struct heard *h = arg;

    pthread_mutex_lock(&h->mu);
    size_t left = sizeof h->text - h->len;
    int n = snprintf(h->text + h->len, left, "%d %d %s\n", ev->err, ev->kind,
                     ev->text);
    if (n > 0 && (size_t)n < left)
        h->len += (size_t)n;
    pthread_mutex_unlock(&h->mu);
}

static inline bool tls_heard(struct heard *h, dibs_err err, const char *part)
{
    char *head = ts_text("%d ", err);
    bool found = false;

    pthread_mutex_lock(&h->mu);
    for (char *line = h->text, *end; (end = strchr(line, '\n')) && !found;
         line = end + 1) {
        *end = '\0';
        found = strncmp(line, head, strlen(head)) == 0 && strstr(line, part);
        *end = '\n';
    }
    pthread_mutex_unlock(&h->mu);
    free(head);
    return found;
}

#endif
