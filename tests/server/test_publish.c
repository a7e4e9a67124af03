/* SPDX-License-Identifier: MIT
 *
 * test_publish.c - what a holder publishes with its lock: who reads it, for how
 * long, and how it ends.
 */
#include "server/kit.h"
#include "support/proxy.h"

#define KEY      "dibs_lock_value:{a}"
#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

typedef dibs_err new_fn(dibs_client *c, const char *name, dibs_lock **out);

static dibs_lock *lock_of(new_fn *make, dibs_client *c, const char *name)
{
    dibs_lock *l = NULL;

    FINE(make(c, name, &l));
    return l;
}

/* What a client of its own reads. */
static void reads(const char *name, const char *want)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, name);
    char text[DIBS_VALUE_MAX + 1] = "?";

    FINE(dibs_lock_published(l, text, sizeof text));
    assert_string_equal(text, want);
    dibs_lock_free(l);
    kit_close(c);
}

static void test_kinds(void **state)
{
    static new_fn *const kinds[] = {dibs_lock_new, dibs_fair_lock_new,
                                    dibs_write_lock_new, dibs_fenced_lock_new};

    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dibs_client *c = kit_open(NULL);
        dibs_lock *l = lock_of(kinds[i], c, "a");
        FINE(dibs_lock_acquire(l, NULL));
        reads("a", "");
        FINE(dibs_lock_publish(l, 0, "10.0.0.1:80"));
        reads("a", "10.0.0.1:80");
        long long lock = ts_pttl(srv, "a"); /* before the value's */
        long long value = ts_pttl(srv, KEY);
        assert_true(value > 0);
        /* Redis 7.0 looks at its clock twice in the script, and may be stopped
         * in between. */
        assert_true(value <= lock + 1000);
        FINE(dibs_lock_publish(l, 0, "another, with spaces "));
        reads("a", "another, with spaces ");
        FINE(dibs_lock_publish(l, 0, NULL));
        reads("a", "");
        FINE(dibs_lock_publish(l, 0, "last"));
        FINE(dibs_lock_release(l, NULL));
        reads("a", "");
        TS_WAIT(!ts_exists(srv, KEY));
        dibs_lock_free(l);
        kit_close(c);
        ts_ok(srv, "DEL redisson_lock_token:{a}");
    }
}

static void test_bad_input(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a"),
              *read = lock_of(dibs_read_lock_new, c, "r");
    dibs_lock *slots = NULL, *both = NULL, *pair[2] = {l, kit_lock(c, "b")};
    char longest[DIBS_VALUE_MAX + 2], text[DIBS_VALUE_MAX + 2];

    (void)state;
    memset(longest, 'x', sizeof longest);
    longest[DIBS_VALUE_MAX + 1] = '\0';
    FINE(dibs_slots_lock_new(c, "s", 2, &slots));
    FINE(dibs_multi_lock_new(pair, 2, &both));
    WANT(dibs_lock_publish(l, 0, "x"), DIBS_ERR_NOT_OWNER);
    WANT(dibs_lock_publish(NULL, 0, "x"), DIBS_ERR_INVALID);
    WANT(dibs_lock_publish(read, 0, "x"), DIBS_ERR_INVALID);
    WANT(dibs_lock_publish(slots, 0, "x"), DIBS_ERR_INVALID);
    WANT(dibs_lock_publish(both, 0, "x"), DIBS_ERR_INVALID);
    WANT(dibs_lock_published(slots, text, sizeof text), DIBS_ERR_INVALID);
    WANT(dibs_lock_published(both, text, sizeof text), DIBS_ERR_INVALID);
    WANT(dibs_lock_published(l, NULL, 9), DIBS_ERR_INVALID);
    WANT(dibs_lock_published(l, text, 0), DIBS_ERR_INVALID);
    WANT(dibs_lock_publish_async(l, 0, "x", NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_published_async(l, NULL, NULL), DIBS_ERR_INVALID);
    FINE(dibs_lock_acquire(l, NULL));
    WANT(dibs_lock_publish(l, 0, longest), DIBS_ERR_INVALID);
    assert_non_null(strstr(dibs_error_text(), "4096"));
    longest[DIBS_VALUE_MAX] = '\0';
    FINE(dibs_lock_publish(l, 0, longest));
    FINE(dibs_lock_published(l, text, sizeof text));
    assert_string_equal(text, longest);
    FINE(dibs_lock_published(l, text, 5)); /* cut */
    assert_string_equal(text, "xxxx");
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(both);
    dibs_lock_free(slots);
    dibs_lock_free(read);
    dibs_lock_free(pair[1]);
    dibs_lock_free(l);
    kit_close(c);
}

/* It lasts as long as the lock does, and comes back if it was taken away. */
static void test_is_renewed(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_publish(l, 0, "here"));
    for (int i = 0; i < 3; i++) {
        ts_ok(srv, "DEL " KEY);
        TS_WAIT(ts_exists(srv, KEY));
        reads("a", "here");
    }
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_HELD);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    assert_false(ts_exists(srv, KEY)); /* the close waits for that */
}

/* A hold without a value sends nothing about values, at no time. */
static void test_costs_nothing(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    long long gets = ts_command_calls(srv, "get"),
              sets = ts_command_calls(srv, "set");
    FINE(dibs_lock_acquire(l, NULL));
    long long want = ts_command_calls(srv, "pexpire") + 3;
    TS_WAIT(ts_command_calls(srv, "pexpire") >= want);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(ts_command_calls(srv, "get"), gets);
    assert_int_equal(ts_command_calls(srv, "set"), sets);
}

/* A value never stands for another holder, even if it is still there. */
static void test_other_holder(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a"), *other = kit_lock(d, "a");
    char *kept;

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_publish(l, 0, "old"));
    kept = ts_str(srv, "GET " KEY);
    FINE(dibs_lock_release(l, NULL));
    TS_WAIT(!ts_exists(srv, KEY));
    ts_ok(srv, "SET " KEY " %s", kept);
    reads("a", "");
    FINE(dibs_lock_acquire(other, NULL));
    reads("a", "");
    FINE(dibs_lock_publish(other, 0, "new"));
    reads("a", "new");
    FINE(dibs_lock_release(other, NULL));
    free(kept);
    dibs_lock_free(l);
    dibs_lock_free(other);
    kit_close(c);
    kit_close(d);
}

/* Passed on inside a client: the next owner has published nothing. */
static void test_hand_over(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");
    dibs_owner next = dibs_owner_new(c);
    dibs_stats s = DIBS_STATS_INIT;
    struct told t = {0};

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_publish(l, 0, "mine"));
    FINE(dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = next), kit_tell,
                                 &t));
    FINE(dibs_lock_release(l, NULL));
    FINE(kit_answer(&t));
    FINE(dibs_client_stats(c, &s));
    assert_int_equal(s.handovers, 1);
    reads("a", "");
    TS_WAIT(!ts_exists(srv, KEY));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = next)));
    dibs_lock_free(l);
    kit_close(c);
}

/* Lost: the value goes, publishing says so, and a new hold begins without. */
static void test_loss(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");
    bool was = false;

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_publish(l, 0, "mine"));
    FINE(dibs_lock_force_release(l, &was));
    assert_true(was);
    TS_WAIT(!ts_exists(srv, KEY));
    WANT(dibs_lock_publish(l, 0, "mine"), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_acquire(l, NULL));
    reads("a", "");
    FINE(dibs_lock_release(l, NULL));
    /* The server knows of a loss before the holder does. */
    FINE(dibs_lock_acquire(l, NULL));
    ts_ok(srv, "DEL a");
    WANT(dibs_lock_publish(l, 0, "mine"), DIBS_ERR_LOST);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c);
}

/* A hold that is ended by force takes its value along, in the same step: its
 * owner may be gone, so nobody else would. */
static void test_forced(void **state)
{
    static const struct {
        new_fn *make;
        const char *field;
        bool named; /* by its owner */
    } rows[] = {
        {dibs_lock_new, STRANGER, false},
        {dibs_lock_new, STRANGER, true},
        {dibs_fair_lock_new, STRANGER, false},
        {dibs_fenced_lock_new, STRANGER, false},
        {dibs_write_lock_new, STRANGER ":write", false},
    };
    dibs_client *c = kit_open(NULL);

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_lock *l = lock_of(rows[i].make, c, "a");
        bool was = false;

        if (rows[i].make == dibs_write_lock_new)
            ts_ok(srv, "HSET a mode write");
        ts_ok(srv, "HSET a %s 1", rows[i].field);
        ts_ok(srv, "SET " KEY " %s", rows[i].field);
        ts_ok(srv, "APPEND " KEY " %s", " 5 here"); /* a blank inside */
        reads("a", "here");
        FINE(rows[i].named ? dibs_lock_force_release_owner(l, STRANGER, &was)
                           : dibs_lock_force_release(l, &was));
        assert_true(was);
        assert_false(ts_exists(srv, KEY));
        assert_false(ts_exists(srv, "a"));
        dibs_lock_free(l);
    }
    kit_close(c);
}

/* The reply gets lost: it is sent again, and is published once it is OK. */
static void test_reply_lost(void **state)
{
    struct ts_proxy *px = ts_proxy_start(srv);
    dibs_client *c = kit_open_at(ts_proxy_url(px),
                                 DIBS_CLIENT_OPTS(.command_timeout_ms = 1000));
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    ts_proxy_rule(px, &(struct ts_rule){.action = TS_SWALLOW_REPLY,
                                        .match = "EVAL*",
                                        .contains = KEY,
                                        .count = 1});
    FINE(dibs_lock_publish(l, 0, "mine"));
    reads("a", "mine");
    FINE(dibs_lock_publish(l, 0, "newer"));
    reads("a", "newer");
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    ts_proxy_stop(px);
    assert_false(ts_exists(srv, KEY));
}

/* Refused: nothing is published, and the lock is as good as before. */
static void test_refused(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    ts_ok(srv, "HSET " KEY " f v");
    FINE(dibs_lock_acquire(l, NULL));
    WANT(dibs_lock_publish(l, 0, "mine"), DIBS_ERR_WRONGTYPE);
    long long want = ts_command_calls(srv, "pexpire") + 2;
    TS_WAIT(ts_command_calls(srv, "pexpire") >= want);
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_HELD);
    FINE(dibs_lock_release(l, NULL));
    ts_ok(srv, "DEL " KEY);
    dibs_lock_free(l);
    kit_close(c);
}

struct read {
    atomic_int times;
    dibs_err err;
    char owner[DIBS_OWNER_MAX], value[64];
};

static void on_value(dibs_err err, const char *owner, const char *value,
                     void *arg)
{
    struct read *r = arg;

    r->err = err;
    snprintf(r->owner, sizeof r->owner, "%s", owner ? owner : "NULL");
    snprintf(r->value, sizeof r->value, "%s", value ? value : "NULL");
    atomic_fetch_add(&r->times, 1);
}

static struct read read_async(dibs_lock *l)
{
    struct read r = {.err = DIBS_ERR_INVALID};

    FINE(dibs_lock_published_async(l, on_value, &r));
    TS_WAIT(atomic_load(&r.times) == 1);
    return r;
}

static dibs_err publish_async(dibs_lock *l, const char *value)
{
    struct told t = {0};

    FINE(dibs_lock_publish_async(l, 0, value, kit_tell, &t));
    return kit_answer(&t);
}

static void test_async(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");
    char owner[DIBS_OWNER_MAX];
    struct told late = {0};

    (void)state;
    ts_ok(srv, "HSET " KEY " f v");
    struct read r = read_async(l);
    WANT(r.err, DIBS_ERR_WRONGTYPE);
    assert_string_equal(r.owner, "NULL");
    assert_string_equal(r.value, "NULL");
    WANT(dibs_lock_published(l, owner, sizeof owner), DIBS_ERR_WRONGTYPE);
    ts_ok(srv, "DEL " KEY);
    r = read_async(l);
    FINE(r.err);
    assert_string_equal(r.owner, "");
    assert_string_equal(r.value, "");
    WANT(publish_async(l, "async"), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_owner_text(l, 0, owner, sizeof owner));
    FINE(publish_async(l, "async"));
    r = read_async(l);
    FINE(r.err);
    assert_string_equal(r.owner, owner);
    assert_string_equal(r.value, "async");
    /* A release behind one that is on its way. */
    FINE(dibs_lock_publish_async(l, 0, "late", kit_tell, &late));
    FINE(dibs_lock_release(l, NULL));
    FINE(kit_answer(&late));
    TS_WAIT(!ts_exists(srv, KEY));
    dibs_lock_free(l);
    kit_close(c);
}

/* Close gives back the lock, and takes the value with it. */
static void test_close(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_publish(l, 0, "mine"));
    dibs_lock_free(l);
    kit_close(c);
    assert_false(ts_exists(srv, KEY));
    assert_false(ts_exists(srv, "a"));
}

/* A lease that is not renewed: the value ends with it, or is extended. */
static void test_own_lease(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 60000)));
    FINE(dibs_lock_publish(l, 0, "mine"));
    assert_true(ts_pttl(srv, KEY) <= 60000);
    FINE(dibs_lock_extend(l, DIBS_LOCK_OPTS(.lease_ms = 600000)));
    TS_WAIT(ts_pttl(srv, KEY) > 60000);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_kinds),        KIT_TEST(test_bad_input),
        KIT_TEST(test_is_renewed),   KIT_TEST(test_costs_nothing),
        KIT_TEST(test_other_holder), KIT_TEST(test_hand_over),
        KIT_TEST(test_loss),         KIT_TEST(test_reply_lost),
        KIT_TEST(test_refused),      KIT_TEST(test_async),
        KIT_TEST(test_close),        KIT_TEST(test_own_lease),
        KIT_TEST(test_forced),
    };

    return KIT_RUN_PARALLEL("publish", tests);
}
