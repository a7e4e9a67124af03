/* SPDX-License-Identifier: MIT
 *
 * test_listeners.c - how many clients wait for a lock that has no queue.
 */
#include "server/kit.h"

typedef dibs_err (*new_fn)(dibs_client *, const char *, dibs_lock **);

/* The holder of kind a keeps those of kind b waiting. */
static const struct {
    const char *what;
    new_fn held, want;
    size_t clients; /* that are counted, of two */
} rows[] = {
    {"plain", dibs_lock_new, dibs_lock_new, 2},
    {"write", dibs_write_lock_new, dibs_write_lock_new, 2},
    {"read", dibs_write_lock_new, dibs_read_lock_new, 2},
    {"fair", dibs_fair_lock_new, dibs_fair_lock_new, 0},
};

static bool are(dibs_lock *l, size_t wanted)
{
    size_t n = 99;

    return dibs_lock_listeners(l, &n) == DIBS_OK && n == wanted;
}

static bool sees_queue(dibs_lock *l, size_t wanted)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    return dibs_lock_info_get(l, &info) == DIBS_OK && info.waiters == wanted;
}

/* Two threads of each of two clients wait: that is two. Handles of every kind
 * see the same, of names with and without braces. */
static void test_listeners_counted(void **state)
{
    static const char *const names[] = {"l", "a:{7}"};

    (void)state;
    for (size_t i = 0; i < COUNT(rows) * COUNT(names); i++) {
        size_t row = i / COUNT(names);
        const char *name = names[i % COUNT(names)];
        dibs_client *c = kit_open(NULL), *w[2];
        dibs_lock *held, *want[2], *seen[3];
        struct call call[4];

        FINE(rows[row].held(c, name, &held));
        FINE(dibs_lock_new(c, name, &seen[0]));
        FINE(dibs_fair_lock_new(c, name, &seen[1]));
        FINE(dibs_read_lock_new(c, name, &seen[2]));
        FINE(dibs_lock_acquire(held, NULL));
        assert_true(are(held, 0));
        for (int k = 0; k < 4; k++) {
            if (k < 2) {
                w[k] = kit_open(NULL);
                FINE(rows[row].want(w[k], name, &want[k]));
            }
            kit_call_start(&call[k], want[k % 2], NULL, dibs_lock_acquire);
        }
        for (int k = 0; k < 3; k++)
            TS_WAIT(are(seen[k], rows[row].clients));
        if (rows[row].clients == 0) { /* a fair lock has its queue */
            TS_WAIT(sees_queue(held, 4));
            assert_true(are(held, 0));
        }
        for (int k = 0; k < 3; k++)
            dibs_lock_free(seen[k]);
        for (int k = 0; k < 2; k++)
            FINE(dibs_client_close(w[k], TS_SOON)); /* ends those who wait */
        for (int k = 0; k < 4; k++)
            WANT(kit_call_end(&call[k]), DIBS_ERR_CLOSED);
        FINE(dibs_lock_release(held, NULL));
        dibs_lock_free(held);
        for (int k = 0; k < 2; k++) {
            dibs_lock_free(want[k]);
            dibs_client_free(w[k]);
            kit_clients--;
        }
        kit_close(c);
    }
}

static void test_listeners_refused(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l"), *group = NULL;
    size_t n = 7;

    (void)state;
    FINE(dibs_multi_lock_new(&l, 1, &group));
    WANT(dibs_lock_listeners(NULL, &n), DIBS_ERR_INVALID);
    WANT(dibs_lock_listeners(l, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_listeners(group, &n), DIBS_ERR_INVALID);

    /* The one right it needs. */
    ts_ok(srv, "ACL SETUSER some reset on >pw ~* &* +@all -pubsub");
    char *url =
        ts_text("unix://some:pw@%s", ts_server_url(srv) + strlen("unix://"));
    dibs_client *d = kit_open_at(url, NULL);
    dibs_lock *m = kit_lock(d, "l");
    WANT(dibs_lock_listeners(m, &n), DIBS_ERR_AUTH);
    assert_non_null(strstr(dibs_error_text(), "NOPERM"));
    ts_ok(srv, "ACL SETUSER some -@all +pubsub|numsub");
    FINE(dibs_lock_listeners(m, &n));
    assert_int_equal(n, 0);
    n = 7;
    ts_ok(srv, "ACL SETUSER some +@all");
    dibs_lock_free(m);
    kit_close(d);
    ts_ok(srv, "ACL DELUSER some");
    free(url);

    FINE(dibs_client_close(c, TS_SOON));
    WANT(dibs_lock_listeners(l, &n), DIBS_ERR_CLOSED);
    assert_int_equal(n, 7);
    dibs_lock_free(group);
    dibs_lock_free(l);
    dibs_client_free(c);
    kit_clients--;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        KIT_TEST(test_listeners_counted),
        KIT_TEST(test_listeners_refused),
    };

    return KIT_RUN("listeners", tests);
}
