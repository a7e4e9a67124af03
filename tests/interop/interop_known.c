/* SPDX-License-Identifier: MIT
 *
 * interop_known.c - where Redisson itself does not do what one would think,
 * and what dibs makes of it. docs/interop.md tells of these; each test shows
 * what happens, with the version at hand, so that a change is noticed.
 */
#include "interop/kit.h"

#define NAME     "thing"
#define WATCHDOG "watchdog=4000"

static void say(const char *what, double number, const char *unit)
{
    print_message("             %-52s %.1f %s\n", what, number, unit);
}

/* ---- renewal that stops ------------------------------------------------ */

/* Whether dibs gets what Java thinks it holds, once the lease of Java's
 * watchdog is over. Java's unlock shows it then. */
static bool lost_by_java(struct jvm *java, enum kind kind)
{
    struct waiter w;

    waiter_start(&w, dib, kind, NAME, DIBS_LOCK_OPTS(.wait_ms = 9000));
    dibs_err err = waiter_end(&w);
    if (err == DIBS_OK)
        waiter_release(&w);
    else
        dibs_lock_free(w.l);
    jvm_ask(java, "a", "unlock", kind_name(kind), NAME, NULL);
    return err == DIBS_OK;
}

/* Since 3.44 a nested read, given back, stops the renewal of the write lock
 * around it. */
static void test_read_inside_write_ends_renewal(void **state)
{
    struct jvm *java = kit_java(WATCHDOG, NULL);

    (void)state;
    JAVA_AT(java, "a", "lock", WRITE, NAME, "\t-1");
    JAVA_AT(java, "a", "lock", READ, NAME, "\t-1");
    JAVA_AT(java, "a", "unlock", READ, NAME, NULL);
    bool lost = lost_by_java(java, WRITE);
    print_message("             a write lock with a read inside is %s\n",
                  lost ? "lost" : "kept");
    assert_int_equal(lost, !jvm_older(java, 3, 44));
    jvm_stop(java);
}

/* lock(); lock(1 s); unlock(): the outer lock is not renewed any more. */
static void test_inner_lease_ends_renewal(void **state)
{
    struct jvm *java = kit_java(WATCHDOG, NULL);

    (void)state;
    JAVA_AT(java, "a", "lock", PLAIN, NAME, "\t-1");
    JAVA_AT(java, "a", "lock", PLAIN, NAME, "\t1000");
    JAVA_AT(java, "a", "unlock", PLAIN, NAME, NULL);
    bool lost = lost_by_java(java, PLAIN);
    print_message("             a lock with a lease nested in it is %s\n",
                  lost ? "lost" : "kept");
    assert_true(lost);
    jvm_stop(java);
}

/* The same with dibs is kept. */
static void test_dibs_inner_lease(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = 4000));
    dibs_lock *l = kit_lock(c, PLAIN, NAME);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 500)));
    FINE(dibs_lock_release(l, NULL));
    assert_int_equal(JAVA("a", "tryLock", PLAIN, NAME, "\t5000\t-1"), 0);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    dibs_client_free(c);
}

/* ---- leases ------------------------------------------------------------ */

/* A re-entry with a shorter lease cuts the longer one short. */
static void test_re_entry_shortens(void **state)
{
    (void)state;
    JAVA("a", "lock", PLAIN, NAME, "\t60000");
    JAVA("a", "lock", PLAIN, NAME, "\t5000");
    say("plain, 60 s and then 5 s nested: left",
        (double)JAVA("a", "ttl", PLAIN, NAME, NULL) / 1000, "s");
    assert_true(JAVA("a", "ttl", PLAIN, NAME, NULL) <= 5000);
    JAVA("a", "unlock", PLAIN, NAME, NULL);
    JAVA("a", "unlock", PLAIN, NAME, NULL);
}

/* A nested read, given back, cuts short the write lease; a nested write
 * lengthens it. */
static void test_write_lease_moves(void **state)
{
    (void)state;
    JAVA("a", "lock", WRITE, NAME, "\t60000");
    JAVA("a", "lock", READ, NAME, "\t5000");
    JAVA("a", "lock", READ, NAME, "\t5000");
    JAVA("a", "unlock", READ, NAME, NULL);
    say("write 60 s, read 5 s twice, read given back: left",
        (double)JAVA("a", "ttl", WRITE, NAME, NULL) / 1000, "s");
    assert_true(JAVA("a", "ttl", WRITE, NAME, NULL) <= 5000);
    JAVA("a", "unlock", READ, NAME, NULL);
    JAVA("a", "unlock", WRITE, NAME, NULL);

    JAVA("a", "lock", WRITE, NAME, "\t10000");
    JAVA("a", "lock", WRITE, NAME, "\t10000");
    say("write 10 s, write 10 s nested: left",
        (double)JAVA("a", "ttl", WRITE, NAME, NULL) / 1000, "s");
    assert_true(JAVA("a", "ttl", WRITE, NAME, NULL) > 10000);
    JAVA("a", "unlock", WRITE, NAME, NULL);
    JAVA("a", "unlock", WRITE, NAME, NULL);
}

/* A fair lock whose lease is over: unlock says that all is well. */
static void test_late_fair_unlock(void **state)
{
    dibs_lock *l = kit_lock(dib, FAIR, NAME);

    (void)state;
    JAVA("a", "lock", FAIR, NAME, "\t300");
    assert_true(ts_wait_exists(srv, NAME, false));
    assert_true(jvm_ask(jvm, "a", "unlock", "fair", NAME, NULL).ok);

    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 300)));
    assert_true(ts_wait_exists(srv, NAME, false));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
}

/* ---- read-write -------------------------------------------------------- */

/* A Java writer that goes on reading tells nobody. Java readers sleep on until
 * the lease that they saw is over; dibs readers look again before that. */
static void test_java_downgrade_is_silent(void **state)
{
    struct waiter w;

    (void)state;
    JAVA("a", "lock", WRITE, NAME, "\t-1");
    JAVA("a", "lock", READ, NAME, "\t-1");
    int id = jvm_send(jvm, "b", "lock", "read", NAME, "\t-1");
    kit_wait_parked(jvm, "b");
    waiter_start(&w, dib, READ, NAME, NULL);
    kit_wait_listeners(READ, NAME, 2);
    struct jvm_answer a = jvm_ask(jvm, "a", "unlock", "write", NAME, NULL);
    FINE(waiter_end(&w));
    say("Java goes on reading; a dibs reader comes in after",
        (double)(w.end_us - a.begin_us) / 1e6, "s");
    print_message("             a Java reader %s by then\n",
                  jvm_done(jvm, id) ? "is in" : "still sleeps");
    JAVA("a", "unlock", READ, NAME, NULL);
    waiter_release(&w); /* the last reader says so, which wakes the other */
    GRANTED(jvm, id);
    JAVA("b", "unlock", READ, NAME, NULL);
}

/* A reader that asks for the write lock waits for itself. dibs says so. */
static void test_upgrade(void **state)
{
    dibs_lock *r = kit_lock(dib, READ, NAME), *w = kit_lock(dib, WRITE, NAME);

    (void)state;
    JAVA("a", "lock", READ, NAME, "\t-1");
    assert_int_equal(JAVA("a", "tryLock", WRITE, NAME, "\t500\t-1"), 0);
    JAVA("a", "unlock", READ, NAME, NULL);

    FINE(dibs_lock_acquire(r, NULL));
    WANT(dibs_lock_acquire(w, NULL), DIBS_ERR_UPGRADE);
    FINE(dibs_lock_release(r, NULL));
    dibs_lock_free(r);
    dibs_lock_free(w);
}

/* A writer's message 1 reaches only those Java waiters that sleep already; one
 * that is about to lie down would sleep for as long as the lease it saw. So
 * dibs sends a 0 as well, which is kept for it. */
static void test_release_meets_a_java_waiter_about_to_sleep(void **state)
{
    enum { ROUNDS = 40 };
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = 4000));
    dibs_lock *l = kit_lock(c, WRITE, NAME);
    int64_t worst = 0;
    int slept = 0;

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        FINE(dibs_lock_acquire(l, NULL));
        int id = jvm_send(jvm, "a", "lock", "read", NAME, "\t-1");
        kit_wait_listeners(READ, NAME, 1); /* it listens, and will ask again */
        int64_t begin = kit_now_us();
        FINE(dibs_lock_release(l, NULL));
        int64_t us = GRANTED(jvm, id).end_us - begin;
        if (us > worst)
            worst = us;
        slept += us > 200000;
        JAVA("a", "unlock", READ, NAME, NULL);
        kit_wait_listeners(READ, NAME, 0);
    }
    print_message("             %d of %d Java readers overslept the release, "
                  "%.1f s at most (the lease: 4 s)\n",
                  slept, ROUNDS, (double)worst / 1e6);
    dibs_lock_free(l);
    dibs_client_free(c);
}

/* ---- fair -------------------------------------------------------------- */

/* The head of the queue is dead, the lock is free: Java waiters ask again and
 * again without a pause until its time is over (since 3.32), or sleep until
 * then (before). */
static void test_dead_head(void **state)
{
    struct jvm *doomed = kit_java(NULL, NULL);

    (void)state;
    JAVA("a", "lock", FAIR, NAME, "\t1500");
    jvm_send(doomed, "d", "lock", "fair", NAME, "\t-1");
    kit_wait_queue(NAME, 1);
    int id = jvm_send(jvm, "b", "lock", "fair", NAME, "\t-1");
    kit_wait_queue(NAME, 2);
    jvm_kill(doomed);
    JAVA("a", "unlock", FAIR, NAME, NULL);
    kit_pass(2000); /* it asks again when the lease that it saw is over */
    ts_reset_stats(srv);
    kit_pass(1000);
    long long asked =
        ts_command_calls(srv, "eval") + ts_command_calls(srv, "evalsha");
    say("a Java waiter behind a dead one asks", (double)asked,
        "times a second");
    assert_false(jvm_done(jvm, id));

    /* The next dibs client that asks removes the dead waiters. */
    struct waiter w;
    waiter_start(&w, dib, FAIR, NAME, NULL);
    int64_t begin = kit_now_us();
    say("until a dibs client asks; then it is served after",
        (double)(GRANTED(jvm, id).end_us - begin) / 1e6, "s");
    JAVA("b", "unlock", FAIR, NAME, NULL);
    FINE(waiter_end(&w));
    waiter_release(&w);
    jvm_stop(doomed);
}

/* A holder outlives the lease that a waiter saw, and then dies. Before 3.32 the
 * waiter sleeps without a limit by then: only a message wakes it. */
static void test_fair_waiter_outlives_a_lease(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = 4000));
    dibs_lock *l = kit_lock(c, FAIR, NAME);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    int id = jvm_send(jvm, "a", "lock", "fair", NAME, "\t-1");
    kit_pass(4500);
    assert_false(jvm_done(jvm, id));
    ts_ok(srv, "DEL " NAME); /* as if its lease had ended */
    if (jvm_older(jvm, 3, 32))
        kit_pass(5000);
    else
        TS_WAIT(jvm_done(jvm, id));
    bool asleep = !jvm_done(jvm, id);
    print_message("             a fair waiter whose holder dies after a "
                  "renewal %s\n",
                  asleep ? "sleeps on, until a dibs client asks" : "is served");
    assert_int_equal(asleep, jvm_older(jvm, 3, 32));
    if (asleep)
        assert_false(kit_free_for_dibs(FAIR, NAME));
    GRANTED(jvm, id);
    JAVA("a", "unlock", FAIR, NAME, NULL);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    dibs_client_free(c);
}

/* Java takes 300 s off the score of a dibs waiter that counts on 5 s: it is
 * removed as dead, and stands at the end when it asks again. */
static void test_settings_that_differ(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.fair_wait_ms = 5000));
    struct waiter w;

    (void)state;
    JAVA("holder", "lock", FAIR, NAME, "\t-1");
    int first = jvm_send(jvm, "a", "lock", "fair", NAME, "\t-1");
    kit_wait_queue(NAME, 1);
    waiter_start(&w, c, FAIR, NAME, NULL);
    kit_wait_queue(NAME, 2);
    int last = jvm_send(jvm, "b", "lock", "fair", NAME, "\t-1");
    kit_wait_queue(NAME, 3);
    JAVA("holder", "unlock", FAIR, NAME, NULL);
    GRANTED(jvm, first);
    JAVA("a", "unlock", FAIR, NAME, NULL);
    TS_WAIT(jvm_done(jvm, last) || atomic_load(&w.done));
    bool overtaken = jvm_done(jvm, last);
    print_message("             dibs with 5 s among Java with 300 s %s\n",
                  overtaken ? "is overtaken" : "keeps its place");
    if (overtaken)
        JAVA("b", "unlock", FAIR, NAME, NULL);
    FINE(waiter_end(&w));
    waiter_release(&w);
    if (!overtaken) {
        GRANTED(jvm, last);
        JAVA("b", "unlock", FAIR, NAME, NULL);
    }
    dibs_client_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_read_inside_write_ends_renewal),
        KIT_TEST(test_inner_lease_ends_renewal),
        KIT_TEST(test_dibs_inner_lease),
        KIT_TEST(test_re_entry_shortens),
        KIT_TEST(test_write_lease_moves),
        KIT_TEST(test_late_fair_unlock),
        KIT_TEST(test_java_downgrade_is_silent),
        KIT_TEST(test_upgrade),
        KIT_TEST(test_release_meets_a_java_waiter_about_to_sleep),
        KIT_TEST(test_dead_head),
        KIT_TEST(test_fair_waiter_outlives_a_lease),
        KIT_TEST(test_settings_that_differ),
    };
    return KIT_RUN("interop.known", tests);
}
