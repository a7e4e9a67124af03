/* SPDX-License-Identifier: MIT
 *
 * test_places.c - where a server is, and who it is: sentinels that cannot tell,
 * two deployments with one name, a replica instead of a master.
 *
 * Sentinels here are real ones, one a deployment.
 */
#include "server/fake.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_places_no_sentinel),
        KIT_TEST(test_places_service_unknown),
        KIT_TEST(test_places_service_known_later),
    };

    return KIT_RUN("server.places", tests);
}
