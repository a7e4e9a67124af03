/* SPDX-License-Identifier: MIT
 *
 * test_fenced.c - what is promised about fenced locks: tokens that only grow.
 */
#include "server/kit.h"

#define TOKENS "redisson_lock_token:{l}"

static dibs_lock *fenced(dibs_client *c)
{
    dibs_lock *l = NULL;

    FINE(dibs_fenced_lock_new(c, "l", &l));
    return l;
}

static int64_t token_of(dibs_lock *l, dibs_owner owner)
{
    int64_t token = -1;

    FINE(dibs_lock_token(l, owner, &token));
    return token;
}

/* The last token stays on the server. */
static void tidy(dibs_client *c, dibs_lock *l)
{
    dibs_lock_free(l);
    kit_close(c);
    ts_ok(srv, "DEL %s", TOKENS);
}

static void test_fenced_token_of_a_hold(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fenced(c);
    int64_t token = 5, last = 0;

    (void)state;
    WANT(dibs_lock_token(l, 0, &token), DIBS_ERR_NOT_OWNER);
    assert_int_equal(token, 5);
    for (int i = 0; i < 5; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        token = token_of(l, 0);
        assert_true(token > last);
        assert_int_equal(ts_int(srv, "EVAL %s 1 %s",
                                "return tonumber(redis.call('get', KEYS[1]))",
                                TOKENS),
                         token);
        FINE(dibs_lock_acquire(l, NULL)); /* the same for a nested hold */
        assert_int_equal(token_of(l, 0), token);
        FINE(dibs_lock_release(l, NULL));
        assert_int_equal(token_of(l, 0), token);
        FINE(dibs_lock_release(l, NULL));
        WANT(dibs_lock_token(l, 0, &last), DIBS_ERR_NOT_OWNER);
        last = token;
    }
    tidy(c, l);
}

/* Another client may have counted as far as there are numbers. */
static void test_fenced_largest_token(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fenced(c);

    (void)state;
    ts_ok(srv, "SET %s 9223372036854775805", TOKENS);
    for (int64_t want = INT64_MAX - 1; want > 0; want++) {
        FINE(dibs_lock_acquire(l, NULL));
        assert_true(token_of(l, 0) == want);
        FINE(dibs_lock_release(l, NULL));
        if (want == INT64_MAX)
            break;
    }
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_SERVER);
    tidy(c, l);
}

/* The server lost everything: the next token is larger all the same, and the
 * one of the hold that is lost can still be read. */
static void test_fenced_token_after_data_loss(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fenced(c);
    dibs_owner other = dibs_owner_new(c);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    int64_t token = token_of(l, 0);
    ts_ok(srv, "FLUSHALL");
    FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = other)));
    assert_true(token_of(l, other) > token);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_LOST);
    assert_int_equal(token_of(l, 0), token);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = other)));
    tidy(c, l);
}

enum { THREADS = 8, ROUNDS = 50 };

struct runner {
    dibs_lock *l;
    int64_t *last; /* under the lock */
    atomic_int *bad;
};

static void *run_rounds(void *arg)
{
    struct runner *r = arg;

    for (int i = 0; i < ROUNDS; i++) {
        int64_t token = 0;
        if (dibs_lock_acquire(r->l, NULL) != DIBS_OK ||
            dibs_lock_token(r->l, 0, &token) != DIBS_OK || token <= *r->last)
            atomic_fetch_add(r->bad, 1);
        *r->last = token;
        if (dibs_lock_release(r->l, NULL) != DIBS_OK)
            atomic_fetch_add(r->bad, 1);
    }
    return NULL;
}

/* A hold that is over by our clock, and not yet by the server's. Whoever takes
 * the lock again has another hold, and another token. */
static void test_fenced_token_after_a_loss(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fenced(c);

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = kit_short())));
    int64_t token = token_of(l, 0);
    assert_int_equal(ts_int(srv, "PEXPIRE l 60000"), 1);
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)));
    assert_true(token_of(l, 0) > token);
    FINE(dibs_lock_release(l, NULL));
    tidy(c, l);
}

/* Handed over from thread to thread, and between two clients: each hold has a
 * larger token than the one before. */
static void test_fenced_tokens_in_order(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *l = fenced(c), *m = fenced(d);
    int64_t last = 0;
    atomic_int bad = 0;
    struct runner one = {l, &last, &bad}, two = {m, &last, &bad};
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, run_rounds, i % 4 ? &one : &two),
            0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&bad), 0);
    dibs_lock_free(m);
    kit_close(d);
    tidy(c, l);
}

static void test_fenced_small_tokens(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.small_tokens = true));
    dibs_lock *l = fenced(c);

    (void)state;
    for (int i = 1; i <= 3; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        assert_int_equal(token_of(l, 0), i);
        FINE(dibs_lock_release(l, NULL));
    }
    assert_int_equal(ts_pttl(srv, TOKENS), -1);
    tidy(c, l);
}

/* One lock with the plain one of that name. */
static void test_fenced_and_plain(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fenced(c), *plain = kit_lock(c, "l");
    dibs_owner other = dibs_owner_new(c);
    int64_t token;

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    WANT(dibs_lock_try(plain, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_try(plain, DIBS_LOCK_OPTS(.owner = other)), DIBS_ERR_BUSY);
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_try(plain, DIBS_LOCK_OPTS(.owner = other)));
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    WANT(dibs_lock_token(plain, other, &token), DIBS_ERR_INVALID);
    FINE(dibs_lock_release(plain, DIBS_LOCK_OPTS(.owner = other)));
    dibs_lock_free(plain);
    tidy(c, l);
}

static void test_fenced_info(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fenced(c);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    bool was = false;

    (void)state;
    FINE(dibs_lock_info_get(l, &info));
    assert_false(info.locked);
    assert_int_equal(info.token, 0);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_info_get(l, &info));
    assert_true(info.locked);
    assert_int_equal(info.holds, 2);
    assert_int_equal(info.token, token_of(l, 0));
    FINE(dibs_lock_force_release(l, &was));
    assert_true(was);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    tidy(c, l);
}

/* Something else is where the last token should be: nothing is taken. */
static void test_fenced_token_key_is_no_number(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fenced(c);

    (void)state;
    ts_ok(srv, "SET %s abc", TOKENS);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_SERVER);
    ts_ok(srv, "DEL %s", TOKENS);
    ts_ok(srv, "HSET %s a 1", TOKENS);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_WRONGTYPE);
    assert_int_equal(ts_int(srv, "EXISTS l"), 0);
    ts_ok(srv, "DEL %s", TOKENS);
    FINE(dibs_lock_try(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    tidy(c, l);
}

/* Each member of a multi lock has a token of its own. */
static void test_fenced_in_a_multi_lock(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = fenced(c), *plain = kit_lock(c, "m"), *multi = NULL;

    (void)state;
    FINE(dibs_multi_lock_new((dibs_lock *[]){l, plain}, 2, &multi));
    FINE(dibs_lock_acquire(multi, NULL));
    int64_t token = token_of(l, 0);
    assert_true(token > 0);
    FINE(dibs_lock_release(multi, NULL));
    FINE(dibs_lock_acquire(multi, NULL));
    assert_true(token_of(l, 0) > token);
    FINE(dibs_lock_release(multi, NULL));
    dibs_lock_free(multi);
    dibs_lock_free(plain);
    tidy(c, l);
}

/* ---- options of every lock --------------------------------------------- */

static void test_fenced_no_reentry(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *locks[3] = {fenced(c), kit_lock(c, "p"), NULL};

    (void)state;
    FINE(dibs_slots_lock_new(c, "s", 2, &locks[2]));
    for (size_t i = 0; i < COUNT(locks); i++) {
        const dibs_lock_opts *once = DIBS_LOCK_OPTS(.no_reentry = true);
        FINE(dibs_lock_acquire(locks[i], once));
        long long before = ts_command_calls(srv, "evalsha");
        WANT(dibs_lock_acquire(locks[i], once), DIBS_ERR_DEADLOCK);
        WANT(dibs_lock_try(locks[i], once), DIBS_ERR_DEADLOCK);
        assert_non_null(strstr(dibs_error_text(), "already"));
        /* Nobody was asked. */
        assert_int_equal(ts_command_calls(srv, "evalsha"), before);
        assert_int_equal(dibs_lock_holds(locks[i], 0), 1);
        FINE(dibs_lock_acquire(locks[i], NULL));
        FINE(dibs_lock_release(locks[i], NULL));
        FINE(dibs_lock_release(locks[i], NULL));
    }
    dibs_lock_free(locks[1]);
    dibs_lock_free(locks[2]);
    ts_ok(srv, "DEL s {s}:dibs_slot");
    tidy(c, locks[0]);
}

/* It asks again and again, and listens to nothing. */
static void test_fenced_poll(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "p"), *m = kit_lock(d, "p");
    struct call call;

    (void)state;
    FINE(dibs_lock_acquire(m, NULL));
    kit_call_start(&call, l, DIBS_LOCK_OPTS(.poll = true), dibs_lock_acquire);
    long long first = ts_command_calls(srv, "evalsha");
    TS_WAIT(ts_command_calls(srv, "evalsha") > first + 5);
    assert_int_equal(ts_nchannels(srv), 0);
    FINE(dibs_lock_release(m, NULL));
    FINE(kit_call_end(&call));
    dibs_lock_free(m);
    kit_close(d);
    dibs_lock_free(l);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_fenced_token_of_a_hold),
        KIT_TEST(test_fenced_largest_token),
        KIT_TEST(test_fenced_token_after_data_loss),
        KIT_TEST(test_fenced_token_after_a_loss),
        KIT_TEST(test_fenced_tokens_in_order),
        KIT_TEST(test_fenced_small_tokens),
        KIT_TEST(test_fenced_and_plain),
        KIT_TEST(test_fenced_info),
        KIT_TEST(test_fenced_token_key_is_no_number),
        KIT_TEST(test_fenced_in_a_multi_lock),
        KIT_TEST(test_fenced_no_reentry),
        KIT_TEST(test_fenced_poll),
    };

    return KIT_RUN("fenced", tests);
}
