/* SPDX-License-Identifier: MIT
 *
 * interop_fenced.c - fenced locks of dibs and of Redisson: the tokens grow
 * across both, whoever holds, waits or dies. And two more locks of Redisson's
 * that are the plain lock on the server: the spin lock and the one that cannot
 * be re-entered.
 */
#include "interop/kit.h"

#define NAME  "order"
#define TOKEN "redisson_lock_token:{" NAME "}"

enum { LEASE_MS = 4000 };

static dibs_lock *fenced(dibs_client *c)
{
    dibs_lock *l = NULL;

    FINE(dibs_fenced_lock_new(c, NAME, &l));
    return l;
}

static int64_t token_of(dibs_lock *l, dibs_owner owner)
{
    int64_t token = 0;

    FINE(dibs_lock_token(l, owner, &token));
    return token;
}

static int64_t java_token(const char *worker)
{
    return SAYS(worker, "lockToken", "fenced", NAME, NULL).value;
}

static void java_unlocks(const char *worker)
{
    SAYS(worker, "unlock", "fenced", NAME, NULL);
}

/* It waits in the background, whatever the call looks like. */
static int java_waits_for_token(const char *worker)
{
    ts_reset_stats(srv);
    int id = jvm_send(jvm, worker, "lockToken", "fenced", NAME, NULL);
    kit_wait_listeners(PLAIN, NAME, 1);
    kit_wait_scripts(2);
    assert_false(jvm_done(jvm, id));
    return id;
}

static void fenced_waits(struct waiter *w)
{
    waiter_start_on(w, dib, fenced(dib), NULL);
}

/* ---- tokens ------------------------------------------------------------ */

/* In turns; each sees the other's token as the last one given. */
static void test_tokens_grow(void **state)
{
    dibs_lock *l = fenced(dib);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    int64_t last = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        int64_t ours = token_of(l, 0);
        assert_true(ours > last);
        assert_int_equal(SAYS("a", "token", "fenced", NAME, NULL).value, ours);
        assert_int_equal(SAYS("a", "tryToken", "fenced", NAME, "\t0\t-1").value,
                         0);
        FINE(dibs_lock_release(l, NULL));
        last = java_token("a");
        assert_true(last > ours);
        FINE(dibs_lock_info_get(l, &info));
        assert_int_equal(info.token, last);
        WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
        java_unlocks("a");
    }
    dibs_lock_free(l);
}

/* A re-entry spends one in Java, none in dibs. */
static void test_re_entry(void **state)
{
    dibs_lock *l = fenced(dib);

    (void)state;
    int64_t first = java_token("a"), second = java_token("a");
    assert_true(second > first);
    java_unlocks("a");
    java_unlocks("a");
    FINE(dibs_lock_acquire(l, NULL));
    int64_t ours = token_of(l, 0);
    assert_true(ours > second);
    FINE(dibs_lock_acquire(l, NULL));
    assert_int_equal(token_of(l, 0), ours);
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
}

/* Small ones: each side counts on where the other was. */
static void test_small_tokens(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.small_tokens = true));
    dibs_lock *l = fenced(c);

    (void)state;
    for (int i = 1; i < 10; i += 2) {
        assert_int_equal(java_token("a"), i);
        java_unlocks("a");
        FINE(dibs_lock_acquire(l, NULL));
        assert_int_equal(token_of(l, 0), i + 1);
        FINE(dibs_lock_release(l, NULL));
    }
    assert_int_equal(ts_pttl(srv, TOKEN), -1);
    dibs_lock_free(l);
    dibs_client_free(c);
}

/* The key is gone, as after an eviction. dibs goes on with larger ones. Java
 * alone begins at 1; behind dibs it counts on. */
static void test_token_key_is_lost(void **state)
{
    dibs_lock *l = fenced(dib);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    int64_t ours = token_of(l, 0);
    FINE(dibs_lock_release(l, NULL));
    ts_ok(srv, "DEL " TOKEN);
    assert_int_equal(java_token("a"), 1);
    java_unlocks("a");
    FINE(dibs_lock_acquire(l, NULL));
    assert_true(token_of(l, 0) > ours);
    FINE(dibs_lock_release(l, NULL));
    assert_true(java_token("a") > ours);
    java_unlocks("a");
    dibs_lock_free(l);
}

/* ---- waiting ----------------------------------------------------------- */

static void test_java_waits(void **state)
{
    struct wakes wakes = {.what = "dibs fenced -> Java fenced"};
    dibs_lock *l = fenced(dib);

    (void)state;
    for (int i = 0; i < 5; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        int64_t ours = token_of(l, 0);
        int id = java_waits_for_token("a");
        int64_t begin = kit_now_us();
        FINE(dibs_lock_release(l, NULL));
        struct jvm_answer a = ENDS(jvm, id);
        assert_true(a.value > ours);
        wakes_add(&wakes, begin, a.end_us);
        java_unlocks("a");
    }
    wakes_print(&wakes);
    dibs_lock_free(l);
}

/* Java holds, two dibs threads wait: one of them gets it by a message, the
 * other from the first, by a hand-over; a token each. Then Java again. */
static void test_dibs_waits(void **state)
{
    struct waiter w[2];

    (void)state;
    int64_t last = java_token("a");
    fenced_waits(&w[0]);
    kit_wait_listeners(PLAIN, NAME, 1);
    fenced_waits(&w[1]);
    assert_false(atomic_load(&w[0].done) || atomic_load(&w[1].done));
    java_unlocks("a");
    for (int i = 0; i < 2; i++) {
        TS_WAIT(atomic_load(&w[0].done) || atomic_load(&w[1].done));
        struct waiter *first = atomic_load(&w[0].done) ? &w[0] : &w[1];
        FINE(waiter_end(first));
        atomic_store(&first->done, false);
        int64_t ours = token_of(first->l, first->opts.owner);
        assert_true(ours > last);
        assert_int_equal(SAYS("a", "token", "fenced", NAME, NULL).value, ours);
        last = ours;
        waiter_release(first);
    }
    assert_true(java_token("a") > last);
    java_unlocks("a");
}

/* ---- death ------------------------------------------------------------- */

static void test_java_holder_dies(void **state)
{
    struct jvm *doomed = kit_java("watchdog=4000", NULL);
    struct waiter w;

    (void)state;
    int64_t theirs =
        SAYS_AT(doomed, "a", "lockToken", "fenced", NAME, NULL).value;
    fenced_waits(&w);
    kit_wait_listeners(PLAIN, NAME, 1);
    jvm_kill(doomed);
    FINE(waiter_end(&w));
    assert_true(token_of(w.l, w.opts.owner) > theirs);
    waiter_release(&w);
    jvm_stop(doomed);
}

static int64_t hold_fenced(void)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;
    int64_t token = -1;

    if (dibs_client_open(ts_server_url(srv),
                         DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS),
                         &c) != DIBS_OK ||
        dibs_fenced_lock_new(c, NAME, &l) != DIBS_OK ||
        dibs_lock_acquire(l, NULL) != DIBS_OK ||
        dibs_lock_token(l, 0, &token) != DIBS_OK)
        return -1;
    return token;
}

static void test_dibs_holder_dies(void **state)
{
    int64_t ours;
    struct ts_child *doomed = kit_doom(hold_fenced, &ours);

    (void)state;
    int id = java_waits_for_token("a");
    ts_child_kill(doomed);
    assert_true(ENDS(jvm, id).value > ours);
    java_unlocks("a");
    ts_child_free(doomed);
}

/* ---- two more of Redisson's -------------------------------------------- */

/* Its spin lock sends no message: a dibs waiter with `poll` does not need one,
 * and one without looks by itself. */
static void test_spin(void **state)
{
    dibs_lock *l = kit_lock(dib, PLAIN, NAME);
    const bool polls[] = {true, false};

    (void)state;
    for (size_t i = 0; i < COUNT(polls); i++) {
        struct waiter w;
        SAYS("a", "lock", "spin", NAME, "\t-1");
        WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
        waiter_start(&w, dib, PLAIN, NAME, DIBS_LOCK_OPTS(.poll = polls[i]));
        if (!polls[i])
            kit_wait_listeners(PLAIN, NAME, 1);
        SAYS("a", "unlock", "spin", NAME, NULL);
        FINE(waiter_end(&w));
        int id = jvm_send(jvm, "a", "lock", "spin", NAME, "\t-1");
        kit_pass(50);
        assert_false(jvm_done(jvm, id));
        waiter_release(&w);
        GRANTED(jvm, id);
        SAYS("a", "unlock", "spin", NAME, NULL);
    }
    dibs_lock_free(l);
}

/* The lock that cannot be re-entered: 4.4 and later. */
static void test_single(void **state)
{
    struct waiter w;

    (void)state;
    if (jvm_older(jvm, 4, 4))
        return;
    SAYS("a", "lock", "single", NAME, "\t-1");
    assert_false(jvm_ask(jvm, "a", "lock", "single", NAME, "\t-1").ok);
    waiter_start(&w, dib, PLAIN, NAME, DIBS_LOCK_OPTS(.no_reentry = true));
    kit_wait_listeners(PLAIN, NAME, 1);
    SAYS("a", "unlock", "single", NAME, NULL);
    FINE(waiter_end(&w));
    WANT(dibs_lock_acquire(w.l, &w.opts), DIBS_ERR_DEADLOCK);
    int id = jvm_send(jvm, "a", "lock", "single", NAME, "\t-1");
    kit_wait_parked(jvm, "a");
    waiter_release(&w);
    GRANTED(jvm, id);
    SAYS("a", "unlock", "single", NAME, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_OBJECT(test_tokens_grow),
        KIT_OBJECT(test_re_entry),
        KIT_OBJECT(test_small_tokens),
        KIT_OBJECT(test_token_key_is_lost),
        KIT_OBJECT(test_java_waits),
        KIT_OBJECT(test_dibs_waits),
        KIT_OBJECT(test_java_holder_dies),
        KIT_OBJECT(test_dibs_holder_dies),
        KIT_TEST(test_spin),
        KIT_TEST(test_single),
    };
    return KIT_RUN("interop.fenced", tests);
}
