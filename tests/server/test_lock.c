/* SPDX-License-Identifier: MIT
 *
 * test_lock.c - the plain lock: taken, taken again, given back, by whom, and
 * what can be learnt about it. Waiting, leases and the async twins have tests
 * of their own.
 */
#include "server/kit.h"

/* ---- taking and giving back -------------------------------------------- */

static void test_lock_acquire_release(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "order");
    char owner[DIBS_OWNER_MAX];

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_owner_text(l, 0, owner, sizeof owner));
    assert_memory_equal(owner, dibs_client_id(c), 36);
    assert_int_equal(owner[36], ':');
    char *count = ts_hget(srv, "order", owner);
    assert_string_equal(count, "1");
    free(count);
    assert_int_equal(ts_hlen(srv, "order"), 1);
    assert_in_range(ts_pttl(srv, "order"), 20000, 30000);
    FINE(dibs_lock_release(l, NULL));
    assert_false(ts_exists(srv, "order"));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    dibs_lock_free(l);
    kit_close(c);
}

static void test_lock_try(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner other = dibs_owner_new(c);

    (void)state;
    FINE(dibs_lock_try(l, NULL));
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = other)), DIBS_ERR_BUSY);
    WANT(kit_elsewhere(l, NULL, dibs_lock_try), DIBS_ERR_BUSY);
    FINE(dibs_lock_try(l, NULL)); /* once more for us */
    FINE(dibs_lock_release(l, NULL));
    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = other)), DIBS_ERR_BUSY);
    FINE(dibs_lock_release(l, NULL));
    FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = other)));
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = other)));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_lock_reentry(void **state)
{
    enum { LEVELS = 100 };
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "deep");

    (void)state;
    for (int i = 1; i <= LEVELS; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        assert_int_equal(dibs_lock_holds(l, 0), i);
        assert_int_equal(kit_count(l, "deep", 0), i);
        assert_int_equal(ts_hlen(srv, "deep"), 1);
    }
    for (int i = LEVELS - 1; i >= 1; i--) {
        FINE(dibs_lock_release(l, NULL));
        assert_int_equal(dibs_lock_holds(l, 0), i);
        assert_int_equal(kit_count(l, "deep", 0), i);
        assert_true(ts_pttl(srv, "deep") > 0);
    }
    WANT(kit_elsewhere(l, NULL, dibs_lock_try), DIBS_ERR_BUSY);
    FINE(dibs_lock_release(l, NULL));
    assert_int_equal(dibs_lock_holds(l, 0), 0);
    assert_false(ts_exists(srv, "deep"));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    dibs_lock_free(l);
    kit_close(c);
}

static void test_lock_release_by_other_owner(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *other = kit_lock(d, "l");

    (void)state;
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_acquire(l, NULL));
    WANT(kit_elsewhere(l, NULL, dibs_lock_release), DIBS_ERR_NOT_OWNER);
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = dibs_owner_new(c))),
         DIBS_ERR_NOT_OWNER);
    WANT(dibs_lock_release(other, NULL), DIBS_ERR_NOT_OWNER);
    assert_int_equal(kit_count(l, "l", 0), 2);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD);
    dibs_lock_free(l);
    dibs_lock_free(other);
    kit_close(d);
    kit_close(c); /* releases the two holds */
}

/* ---- owners ------------------------------------------------------------ */

static void *note_number(void *arg)
{
    dibs_owner *number = arg;

    number[1] = dibs_owner_thread((dibs_client *)(uintptr_t)number[0]);
    return NULL;
}

static void test_lock_owner_numbers(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_owner mine = dibs_owner_thread(c);
    dibs_owner last = 0;

    (void)state;
    assert_int_not_equal(mine, 0);
    assert_int_equal(dibs_owner_thread(c), mine);
    for (int i = 0; i < 100; i++) {
        dibs_owner owner = dibs_owner_new(i % 2 ? c : d);
        assert_true(owner > last); /* so none comes twice */
        assert_int_not_equal(owner, mine);
        last = owner;
        if (i % 10 == 0) {
            dibs_owner number[2] = {(uintptr_t)c, 0};
            pthread_t t;
            pthread_create(&t, NULL, note_number, number);
            pthread_join(t, NULL);
            assert_true(number[1] > last); /* of a thread of that time */
            last = number[1];
        }
    }
    kit_close(c);
    kit_close(d);
}

/* 0 and the thread's own number are the same owner. */
static void test_lock_owner_of_thread(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner mine = dibs_owner_thread(c);

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = mine)));
    FINE(dibs_lock_acquire(l, NULL));
    assert_int_equal(dibs_lock_holds(l, mine), 2);
    assert_int_equal(dibs_lock_holds(l, 0), 2);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = mine)));
    FINE(dibs_lock_release(l, NULL));
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_lock_owner_travels(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = owner)));
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    FINE(kit_elsewhere(l, DIBS_LOCK_OPTS(.owner = owner), dibs_lock_acquire));
    assert_int_equal(dibs_lock_holds(l, owner), 2);
    FINE(kit_elsewhere(l, DIBS_LOCK_OPTS(.owner = owner), dibs_lock_release));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = owner)));
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

/* Pairs by the one owner that both threads are. */
static dibs_err many_pairs(dibs_lock *l, const dibs_lock_opts *opts)
{
    dibs_err err = DIBS_OK;

    for (int i = 0; i < 300 && err == DIBS_OK; i++) {
        err = i % 3 ? dibs_lock_acquire(l, opts) : dibs_lock_try(l, opts);
        if (err == DIBS_OK)
            err = dibs_lock_release(l, opts);
    }
    return err;
}

/* One owner on several threads at once: every call is a hold, every release
 * takes one away, and the lock is free in the end. */
static void test_lock_owner_on_many_threads(void **state)
{
    enum { THREADS = 3 };
    static struct call calls[THREADS];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner both = dibs_owner_new(c);

    (void)state;
    for (int i = 0; i < THREADS; i++)
        kit_call_start(&calls[i], l, DIBS_LOCK_OPTS(.owner = both), many_pairs);
    for (int i = 0; i < THREADS; i++)
        FINE(kit_call_end(&calls[i]));
    assert_int_equal(dibs_lock_state(l, both), DIBS_NOT_HELD);
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

/* What a thread left behind is not inherited by the threads that come. */
static void test_lock_owner_of_dead_thread(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(kit_elsewhere(l, NULL, dibs_lock_acquire));
    for (int i = 0; i < 20; i++) {
        WANT(kit_elsewhere(l, NULL, dibs_lock_try), DIBS_ERR_BUSY);
        WANT(kit_elsewhere(l, NULL, dibs_lock_release), DIBS_ERR_NOT_OWNER);
    }
    assert_true(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- handles and clients ----------------------------------------------- */

static void test_lock_handles_of_a_name(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *a = kit_lock(c, "l");
    dibs_lock *b = kit_lock(c, "l");
    dibs_lock *other = kit_lock(c, "l2");

    (void)state;
    FINE(dibs_lock_acquire(a, NULL));
    FINE(dibs_lock_acquire(b, NULL));
    assert_int_equal(dibs_lock_holds(a, 0), 2);
    assert_int_equal(dibs_lock_state(other, 0), DIBS_NOT_HELD);
    dibs_lock_free(a); /* releases nothing */
    assert_int_equal(dibs_lock_holds(b, 0), 2);
    FINE(dibs_lock_release(b, NULL));
    dibs_lock_free(b);
    a = kit_lock(c, "l"); /* with no handle left, it was still known */
    assert_int_equal(dibs_lock_state(a, 0), DIBS_HELD);
    assert_int_equal(kit_count(a, "l", 0), 1);
    FINE(dibs_lock_release(a, NULL));
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(a);
    dibs_lock_free(other);
    kit_close(c);
}

static void test_lock_two_clients(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_lock *mine = kit_lock(c, "l");
    dibs_lock *yours = kit_lock(d, "l");

    (void)state;
    assert_string_not_equal(dibs_client_id(c), dibs_client_id(d));
    for (int i = 0; i < 10; i++) {
        FINE(dibs_lock_acquire(mine, NULL));
        WANT(dibs_lock_try(yours, NULL), DIBS_ERR_BUSY);
        assert_int_equal(dibs_lock_state(yours, 0), DIBS_NOT_HELD);
        FINE(dibs_lock_release(mine, NULL));
        FINE(dibs_lock_acquire(yours, NULL));
        WANT(dibs_lock_try(mine, NULL), DIBS_ERR_BUSY);
        FINE(dibs_lock_release(yours, NULL));
    }
    dibs_lock_free(mine);
    dibs_lock_free(yours);
    kit_close(c);
    kit_close(d);
}

#define N(text) text, sizeof text - 1

static void test_lock_names(void **state)
{
    static char longest[DIBS_NAME_MAX];
    static const struct {
        const char *name;
        size_t len;
    } rows[] = {{N("a")},
                {N("a\0")},
                {N("a\0b")},
                {N("\0")},
                {N("\xff\xfe")},
                {N("a b\r\nc")},
                {N("{t}:a")},
                {N("a{")},
                {N("caf\xc3\xa9")},
                {N("%s%n*?[a-z]")},
                {longest, sizeof longest}};
    dibs_lock *locks[COUNT(rows)];
    dibs_client *c = kit_open(NULL);

    (void)state;
    memset(longest, 'x', sizeof longest);
    for (size_t i = 0; i < COUNT(rows); i++) {
        FINE(dibs_lock_new_bytes(c, rows[i].name, rows[i].len, &locks[i]));
        FINE(dibs_lock_try(locks[i], NULL));
    }
    assert_int_equal(ts_nkeys(srv), COUNT(rows)); /* all are different */
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(ts_int(srv, "EXISTS %b", rows[i].name, rows[i].len),
                         1);
        FINE(dibs_lock_release(locks[i], NULL));
        assert_int_equal(ts_int(srv, "EXISTS %b", rows[i].name, rows[i].len),
                         0);
        dibs_lock_free(locks[i]);
    }
    kit_close(c);
}

/* ---- what is known ----------------------------------------------------- */

static void test_lock_known_here(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    char text[DIBS_OWNER_MAX] = "untouched";

    (void)state;
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_valid_ms(l, 0), 0);
    assert_int_equal(dibs_lock_holds(l, 0), 0);
    WANT(dibs_lock_owner_text(l, 0, text, sizeof text), DIBS_ERR_NOT_OWNER);
    assert_string_equal(text, "untouched");

    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 100000)));
    assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD);
    /* Never more than the server has, by a percent and two ms. */
    int64_t valid = dibs_lock_valid_ms(l, 0);
    assert_in_range(valid, 50000, 100000 - 1002);
    assert_true(valid <= ts_pttl(srv, "l"));
    assert_int_equal(dibs_lock_holds(l, 0), 1);
    assert_int_equal(dibs_lock_state(l, dibs_owner_new(c)), DIBS_NOT_HELD);
    FINE(dibs_lock_owner_text(l, 0, text, sizeof text));
    size_t len = strlen(text);
    WANT(dibs_lock_owner_text(l, 0, text, len), DIBS_ERR_INVALID);
    FINE(dibs_lock_owner_text(l, 0, text, len + 1));

    FINE(dibs_lock_release(l, NULL));
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_valid_ms(l, 0), 0);
    dibs_lock_free(l);
    kit_close(c);
}

/* It must not need the server: it is asked while the server cannot answer. */
static void test_lock_known_without_server(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 100000)));
    ts_server_pause(srv);
    dibs_state known = dibs_lock_state(l, 0);
    int64_t valid = dibs_lock_valid_ms(l, 0);
    int64_t holds = dibs_lock_holds(l, 0);
    ts_server_resume(srv);
    assert_int_equal(known, DIBS_HELD);
    assert_true(valid > 0);
    assert_int_equal(holds, 1);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- keeping ----------------------------------------------------------- */

static void test_lock_keep(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_acquire(l, NULL));
    /* Not the last hold: there is nothing to keep yet. */
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.keep_ms = 500)));
    assert_true(ts_pttl(srv, "l") > 20000);
    assert_int_equal(dibs_lock_holds(l, 0), 1);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.keep_ms = 60000)));
    assert_in_range(ts_pttl(srv, "l"), 50000, 60000);
    /* By nobody: not by us either. */
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    assert_true(ts_pttl(srv, "l") > 50000);
    bool was = false;
    FINE(dibs_lock_force_release(l, &was));
    assert_true(was);

    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.keep_ms = 200)));
    FINE(dibs_lock_acquire(l, NULL)); /* when that time is over */
    assert_int_equal(kit_count(l, "l", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_lock_acquire_release),
        KIT_TEST(test_lock_try),
        KIT_TEST(test_lock_reentry),
        KIT_TEST(test_lock_release_by_other_owner),
        KIT_TEST(test_lock_owner_numbers),
        KIT_TEST(test_lock_owner_of_thread),
        KIT_TEST(test_lock_owner_travels),
        KIT_TEST(test_lock_owner_on_many_threads),
        KIT_TEST(test_lock_owner_of_dead_thread),
        KIT_TEST(test_lock_handles_of_a_name),
        KIT_TEST(test_lock_two_clients),
        KIT_TEST(test_lock_names),
        KIT_TEST(test_lock_known_here),
        KIT_TEST(test_lock_known_without_server),
        KIT_TEST(test_lock_keep),
    };
    return KIT_RUN("server.lock", tests);
}
