/* SPDX-License-Identifier: MIT
 *
 * interop_rw.c - read-write locks shared by dibs and Redisson: readers of both
 * sides side by side, none hurt by another's leaving; writing and reading on.
 */
#include "interop/kit.h"

#define NAME "page"

static dibs_lock *readers, *writers;

static int rw_before(void **state)
{
    kit_before(state);
    readers = kit_lock(dib, READ, NAME);
    writers = kit_lock(dib, WRITE, NAME);
    return 0;
}

static int rw_after(void **state)
{
    dibs_lock_free(readers);
    dibs_lock_free(writers);
    return kit_after(state);
}

#define RW_TEST(f) cmocka_unit_test_setup_teardown(f, rw_before, rw_after)

static bool java_may_write(void)
{
    bool got = JAVA("z", "try", WRITE, NAME, NULL) == 1;

    if (got)
        JAVA("z", "unlock", WRITE, NAME, NULL);
    return got;
}

/* Nobody can write. */
static void check_read(void)
{
    assert_false(kit_free_for_dibs(WRITE, NAME));
    assert_false(java_may_write());
}

static void check_free(void)
{
    assert_true(kit_free_for_dibs(WRITE, NAME));
    assert_true(java_may_write());
}

/* ---- readers ----------------------------------------------------------- */

static void test_java_reader_survives(void **state)
{
    (void)state;
    JAVA("a", "lock", READ, NAME, "\t-1");
    FINE(dibs_lock_acquire(readers, NULL));
    FINE(dibs_lock_acquire(readers, NULL));
    check_read();
    FINE(dibs_lock_release(readers, NULL));
    check_read();
    FINE(dibs_lock_release(readers, NULL));
    check_read();
    assert_int_equal(JAVA("a", "isHeld", READ, NAME, NULL), 1);
    JAVA("a", "unlock", READ, NAME, NULL);
    check_free();
}

static void test_dibs_reader_survives(void **state)
{
    (void)state;
    FINE(dibs_lock_acquire(readers, NULL));
    JAVA("a", "lock", READ, NAME, "\t-1");
    JAVA("a", "lock", READ, NAME, "\t-1");
    JAVA("b", "lock", READ, NAME, "\t-1");
    JAVA("a", "unlock", READ, NAME, NULL);
    check_read();
    JAVA("a", "unlock", READ, NAME, NULL);
    JAVA("b", "unlock", READ, NAME, NULL);
    check_read();
    assert_int_equal(dibs_lock_state(readers, 0), DIBS_HELD);
    FINE(dibs_lock_release(readers, NULL));
    check_free();
}

/* Nested: dibs has one key for all its holds, Redisson one for each. */
static void test_nested_dibs_reader_survives(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        FINE(dibs_lock_acquire(readers, NULL));
    JAVA("a", "lock", READ, NAME, "\t-1");
    JAVA("a", "unlock", READ, NAME, NULL);
    check_read();
    for (int i = 0; i < 3; i++) {
        check_read();
        FINE(dibs_lock_release(readers, NULL));
    }
    check_free();
}

/* Java's first hold has a short lease, its second goes on. What is left is the
 * second one's key only. */
static void nested_java_reader(const char *first, const char *second)
{
    JAVA("a", "lock", READ, NAME, first);
    JAVA("a", "lock", READ, NAME, second);
    FINE(dibs_lock_acquire(readers, NULL));
    kit_pass(1200);
    check_read();
    FINE(dibs_lock_release(readers, NULL));
    assert_int_equal(JAVA("a", "isHeld", READ, NAME, NULL), 1);
    check_read();
    JAVA("a", "unlock", READ, NAME, NULL);
}

static void test_nested_java_reader_survives(void **state)
{
    (void)state;
    nested_java_reader("\t20000", "\t1000");
    check_read();
    JAVA("a", "unlock", READ, NAME, NULL);
    check_free();
}

static void test_nested_java_reader_lives_by_its_second(void **state)
{
    (void)state;
    nested_java_reader("\t1000", "\t20000");
    jvm_ask(jvm, "a", "unlock", "read", NAME, NULL);
    ts_ok(srv, "FLUSHDB");
}

static void test_many_readers(void **state)
{
    enum { MANY = 8 };
    struct waiter w[MANY];
    char worker[MANY][16];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        snprintf(worker[i], sizeof worker[i], "r%d", i);
        JAVA(worker[i], "lock", READ, NAME, "\t-1");
        waiter_start(&w[i], dib, READ, NAME, NULL);
        FINE(waiter_end(&w[i]));
    }
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    FINE(dibs_lock_info_get(readers, &info));
    assert_int_equal(info.owners, 2 * MANY);
    for (int i = 0; i < MANY; i++) {
        check_read();
        JAVA(worker[i], "unlock", READ, NAME, NULL);
        check_read();
        waiter_release(&w[i]);
    }
    check_free();
}

/* A reader of either side dies; the other's writer gets its turn when the
 * dead one's lease is over, however many live readers came and went. */
static void test_dead_java_reader(void **state)
{
    struct jvm *doomed = kit_java("watchdog=4000", NULL);
    struct waiter w;

    (void)state;
    JAVA_AT(doomed, "a", "lock", READ, NAME, "\t-1");
    waiter_start(&w, dib, WRITE, NAME, NULL);
    kit_wait_listeners(WRITE, NAME, 1);
    jvm_kill(doomed);
    FINE(waiter_end(&w));
    waiter_release(&w);
    jvm_stop(doomed);
    check_free();
}

/* ---- writing, and reading on ------------------------------------------- */

static void test_java_downgrades(void **state)
{
    struct waiter w;

    (void)state;
    JAVA("a", "lock", WRITE, NAME, "\t-1");
    assert_false(kit_free_for_dibs(READ, NAME));
    JAVA("a", "lock", READ, NAME, "\t-1");
    assert_false(kit_free_for_dibs(READ, NAME));
    JAVA("a", "unlock", WRITE, NAME, NULL);
    FINE(dibs_lock_try(readers, NULL));
    check_read();
    FINE(dibs_lock_release(readers, NULL));
    check_read();
    waiter_start(&w, dib, WRITE, NAME, NULL);
    kit_wait_listeners(WRITE, NAME, 1);
    JAVA("a", "unlock", READ, NAME, NULL);
    FINE(waiter_end(&w));
    waiter_release(&w);
    check_free();
}

static void dibs_downgrades(struct wakes *wakes)
{
    FINE(dibs_lock_acquire(writers, NULL));
    FINE(dibs_lock_acquire(readers, NULL));
    assert_int_equal(JAVA("b", "try", READ, NAME, NULL), 0);
    int id = jvm_send(jvm, "a", "lock", "read", NAME, "\t-1");
    kit_wait_parked(jvm, "a");
    int64_t begin = kit_now_us();
    FINE(dibs_lock_release(writers, NULL));
    wakes_add(wakes, begin, GRANTED(jvm, id).end_us);
    check_read();
    FINE(dibs_lock_release(readers, NULL));
    check_read();
    JAVA("a", "unlock", READ, NAME, NULL);
    check_free();
}

static void test_dibs_downgrades(void **state)
{
    struct wakes wakes = {.what = "dibs downgrades, Java reads"};

    (void)state;
    for (int i = 0; i < 5; i++)
        dibs_downgrades(&wakes);
    wakes_print(&wakes);
}

/* Reading inside of writing, and ending that first: it still writes. */
static void test_read_inside_write(void **state)
{
    (void)state;
    JAVA("a", "lock", WRITE, NAME, "\t20000");
    JAVA("a", "lock", READ, NAME, "\t20000");
    JAVA("a", "unlock", READ, NAME, NULL);
    assert_false(kit_free_for_dibs(READ, NAME));
    JAVA("a", "unlock", WRITE, NAME, NULL);
    check_free();

    FINE(dibs_lock_acquire(writers, NULL));
    FINE(dibs_lock_acquire(readers, NULL));
    FINE(dibs_lock_release(readers, NULL));
    assert_int_equal(JAVA("a", "try", READ, NAME, NULL), 0);
    assert_int_equal(JAVA("a", "isLocked", WRITE, NAME, NULL), 1);
    FINE(dibs_lock_release(writers, NULL));
    check_free();
}

/* Two readers and a writer of Java wait for a dibs writer: all get it. */
static void test_all_waiters_come_in(void **state)
{
    static const char *const who[] = {"a", "b", "c", "d"};
    int id[COUNT(who)];

    (void)state;
    FINE(dibs_lock_acquire(writers, NULL));
    for (size_t i = 0; i < COUNT(who); i++) {
        id[i] = jvm_send(jvm, who[i], "lock", "read", NAME, "\t-1");
        kit_wait_parked(jvm, who[i]);
    }
    FINE(dibs_lock_release(writers, NULL));
    for (size_t i = 0; i < COUNT(who); i++)
        GRANTED(jvm, id[i]);
    check_read();
    for (size_t i = 0; i < COUNT(who); i++)
        JAVA(who[i], "unlock", READ, NAME, NULL);
    check_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RW_TEST(test_java_reader_survives),
        RW_TEST(test_dibs_reader_survives),
        RW_TEST(test_nested_dibs_reader_survives),
        RW_TEST(test_nested_java_reader_survives),
        RW_TEST(test_nested_java_reader_lives_by_its_second),
        RW_TEST(test_many_readers),
        RW_TEST(test_dead_java_reader),
        RW_TEST(test_java_downgrades),
        RW_TEST(test_dibs_downgrades),
        RW_TEST(test_read_inside_write),
        RW_TEST(test_all_waiters_come_in),
    };
    return KIT_RUN("interop.rw", tests);
}
