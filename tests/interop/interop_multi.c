/* SPDX-License-Identifier: MIT
 *
 * interop_multi.c - several locks at once, with Redisson's multi lock on the
 * other side: each keeps the other out, takes all or none, and neither blocks
 * the other for good, in whichever order they lock.
 */
#include "interop/kit.h"

#define NAMES  "a|b|c"
#define ROUNDS 40

static const char *const forward[] = {"a", "b", "c"};

/* A group of its own for each caller, as a second program would have it. */
static dibs_lock *new_multi(dibs_client *c, bool backward)
{
    dibs_lock *members[COUNT(forward)], *group = NULL;

    for (size_t i = 0; i < COUNT(forward); i++)
        members[i] =
            kit_lock(c, PLAIN, forward[backward ? COUNT(forward) - 1 - i : i]);
    FINE(dibs_multi_lock_new(members, COUNT(members), &group));
    for (size_t i = 0; i < COUNT(forward); i++)
        dibs_lock_free(members[i]);
    return group;
}

static struct jvm_answer java(const char *worker, const char *op,
                              const char *numbers)
{
    struct jvm_answer a = jvm_ask(jvm, worker, op, "multi", NAMES, numbers);

    if (!a.ok)
        print_error("Java, %s: %s\n", op, a.text);
    assert_true(a.ok);
    return a;
}

/* ---- each keeps the other out ------------------------------------------ */

static void test_java_holds_all(void **state)
{
    dibs_lock *l = new_multi(dib, true);
    struct waiter w;

    (void)state;
    java("j", "lock", "\t-1");
    for (size_t i = 0; i < COUNT(forward); i++)
        assert_false(kit_free_for_dibs(PLAIN, forward[i]));
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    WANT(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = 200)),
         DIBS_ERR_TIMEOUT);
    waiter_start(&w, dib, PLAIN, "b", NULL);
    kit_wait_listeners(PLAIN, "b", 1);
    java("j", "unlock", NULL);
    FINE(waiter_end(&w));
    waiter_release(&w);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
}

static void test_dibs_holds_all(void **state)
{
    dibs_lock *l = new_multi(dib, false);

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    assert_int_equal(java("j", "tryLock", "\t0\t-1").value, 0);
    for (size_t i = 0; i < COUNT(forward); i++)
        assert_int_equal(JAVA("k", "try", PLAIN, forward[i], NULL), 0);
    int id = jvm_send(jvm, "j", "lock", "multi", NAMES, "\t-1");
    kit_wait_parked(jvm, "j");
    FINE(dibs_lock_release(l, NULL));
    struct jvm_answer a = jvm_await(jvm, id, TS_SOON);
    assert_true(a.ok);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    java("j", "unlock", NULL);
    dibs_lock_free(l);
}

/* One member is Java's: dibs takes none, and gets all when it is free. */
static void test_java_holds_one(void **state)
{
    dibs_lock *l = new_multi(dib, false);
    dibs_member m = DIBS_MEMBER_INIT;

    (void)state;
    JAVA("j", "lock", PLAIN, "b", "\t-1");
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    FINE(dibs_lock_members(l, 1, 0, &m));
    assert_int_equal(m.verdict, DIBS_ERR_BUSY);
    assert_int_equal(JAVA("k", "try", PLAIN, "a", NULL), 1);
    JAVA("k", "unlock", PLAIN, "a", NULL);
    assert_int_equal(JAVA("k", "try", PLAIN, "c", NULL), 1);
    JAVA("k", "unlock", PLAIN, "c", NULL);
    JAVA("j", "unlock", PLAIN, "b", NULL);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
}

/* ---- side by side ------------------------------------------------------ */

/* Java locks in the order a b c, and gives all back after a while when it does
 * not get on; dibs has an order of its own. Both take and give back at their
 * own pace: everybody comes through. While we hold, Java holds none of them. */
static void test_side_by_side(void **state)
{
    dibs_lock *l = new_multi(dib, true);

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        int id = jvm_send(jvm, "j", "lock", "multi", NAMES, "\t-1");
        int back = jvm_send(jvm, "j", "unlock", "multi", NAMES, NULL);
        FINE(dibs_lock_acquire(l, NULL));
        for (size_t k = 0; k < COUNT(forward); k++)
            assert_int_equal(JAVA("k", "try", PLAIN, forward[k], NULL), 0);
        FINE(dibs_lock_release(l, NULL));
        assert_true(jvm_await(jvm, id, TS_SOON).ok);
        assert_true(jvm_await(jvm, back, TS_SOON).ok);
    }
    dibs_lock_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_java_holds_all),
        KIT_TEST(test_dibs_holds_all),
        KIT_TEST(test_java_holds_one),
        KIT_TEST(test_side_by_side),
    };
    return KIT_RUN("interop.multi", tests);
}
