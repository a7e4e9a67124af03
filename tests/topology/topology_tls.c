/* SPDX-License-Identifier: MIT
 *
 * topology_tls.c - sentinels, their master, and the nodes of a cluster, all
 * over TLS. Each must prove who it is.
 */
#include "server/tls_kit.h"

typedef dibs_err (*new_fn)(dibs_client *, const char *, dibs_lock **);

static const new_fn kinds[] = {dibs_lock_new, dibs_fair_lock_new,
                               dibs_read_lock_new, dibs_write_lock_new};

static void use(dibs_client *c)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dibs_lock *l;

        FINE(kinds[i](c, "k", &l));
        FINE(dibs_lock_acquire(l, NULL));
        FINE(dibs_lock_release(l, NULL));
        dibs_lock_free(l);
    }
}

/* Opens, or does not. WORDS of the query have the folder for %s. */
static void opens(const char *scheme, int port, const char *path,
                  const char *words, dibs_err wanted)
{
    char *tls = tls_url_at("127.0.0.1", port, words);
    char *query = strchr(tls, '?');
    char *url = ts_text("%s://127.0.0.1:%d%s%s", scheme, port, path,
                        query ? query : "");
    dibs_client *c = NULL;

    WANT(
        dibs_client_open(url, DIBS_CLIENT_OPTS(.connect_timeout_ms = 1000), &c),
        wanted);
    if (c) {
        use(c);
        FINE(dibs_client_close(c, 0));
        dibs_client_free(c);
    }
    free(url);
    free(tls);
}

static void test_tls_sentinel(void **state)
{
    int port, fd = ts__port_take(&port);
    char *lines = ts_text("tls-port %d\n"
                          "tls-cert-file %s/good.crt\n"
                          "tls-key-file %s/server.key\n"
                          "tls-ca-cert-file %s/ca.crt\n"
                          "tls-auth-clients no\n"
                          "tls-replication yes\n"
                          "sentinel monitor locks 127.0.0.1 %d 1\n",
                          port, tls_dir, tls_dir, tls_dir, tls_port);
    struct ts_server *s = ts_sentinel_start(lines);

    (void)state;
    opens("rediss-sentinel", port, "/locks", "ca=%s/ca.crt", DIBS_OK);
    opens("rediss-sentinel", port, "/locks", "insecure=1", DIBS_OK);
    opens("rediss-sentinel", port, "/locks", "ca=%s/other.crt", DIBS_ERR_TLS);
    /* The sentinel is who it says, the master is not. */
    tls_show("foreign.crt");
    opens("rediss-sentinel", port, "/locks", "ca=%s/ca.crt", DIBS_ERR_TLS);
    ts_server_stop(s);
    close(fd);
    free(lines);
}

static bool whole(struct ts_server *s)
{
    char *text = ts_str(s, "CLUSTER INFO");
    bool ok = text && strstr(text, "cluster_state:ok");

    free(text);
    return ok;
}

/* A node uses the port 10,000 above its own, too. */
static int low_port(int *port)
{
    int fd = ts__port_take(port);

    for (int i = 0; *port > 55000 && i < 1000; i++) {
        close(fd);
        fd = ts__port_take(port);
    }
    return fd;
}

static void test_tls_cluster(void **state)
{
    int port, fd = low_port(&port);
    char *key = ts_text("%s/server.key", tls_dir);
    char *cert = ts_text("%s/good.crt", tls_dir);
    char *ca = ts_text("%s/ca.crt", tls_dir);
    char number[16];

    (void)state;
    snprintf(number, sizeof number, "%d", port);
    struct ts_server *s = ts_server_start((const char *[]){
        "--tls-port", number, "--tls-cert-file", cert, "--tls-key-file", key,
        "--tls-ca-cert-file", ca, "--tls-auth-clients", "no", "--tls-cluster",
        "yes", "--cluster-enabled", "yes", NULL});
    ts_ok(s, "CLUSTER ADDSLOTSRANGE 0 16383");
    TS_WAIT(whole(s));
    opens("rediss-cluster", port, "", "ca=%s/ca.crt", DIBS_OK);
    opens("rediss-cluster", port, "", "insecure=1", DIBS_OK);
    opens("rediss-cluster", port, "", "ca=%s/other.crt", DIBS_ERR_TLS);
    ts_ok(s, "CONFIG SET tls-cert-file %s/wrong.crt", tls_dir);
    opens("rediss-cluster", port, "", "ca=%s/ca.crt", DIBS_ERR_TLS);
    ts_server_stop(s);
    close(fd);
    free(key);
    free(cert);
    free(ca);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TLS_TEST(test_tls_sentinel),
        TLS_TEST(test_tls_cluster),
    };

    return tls_run("topology.tls", tests, COUNT(tests));
}
