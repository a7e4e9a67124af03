/* SPDX-License-Identifier: MIT
 *
 * interop_slots.c - a slots lock of dibs and an RPermitExpirableSemaphore of
 * Redisson: one number of permits, and each side counts what the other has.
 */
#include "interop/kit.h"

#define NAME    "pool"
#define OUT     "{" NAME "}:timeout"
#define CHANNEL "redisson_sc:{" NAME "}"

enum { LEASE_MS = 4000, MOST = 8 };

static dibs_lock *slots_lock(dibs_client *c, int64_t slots)
{
    dibs_lock *l = NULL;

    FINE(dibs_slots_lock_new(c, NAME, slots, &l));
    return l;
}

/* One slot for an owner of its own. */
static dibs_owner take_slot(dibs_lock *l)
{
    dibs_owner me = dibs_owner_new(dib);

    FINE(dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = me)));
    return me;
}

static void give_slot(dibs_lock *l, dibs_owner owner)
{
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = owner)));
}

static void none_free(dibs_lock *l)
{
    dibs_owner me = dibs_owner_new(dib);

    WANT(dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = me)), DIBS_ERR_BUSY);
}

static long long java_number(const char *op)
{
    return SAYS("n", op, "permits", NAME, NULL).value;
}

static struct jvm_answer java_permit(const char *worker, const char *lease)
{
    return SAYS(worker, "acquire", "permits", NAME, lease);
}

static void java_gives(const char *id)
{
    char arg[600];

    snprintf(arg, sizeof arg, "\t%s", id);
    SAYS("n", "release", "permits", NAME, arg);
}

/* What both sides say about it. */
static void agree(dibs_lock *l, int64_t total, int64_t available)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    FINE(dibs_lock_info_get(l, &info));
    assert_int_equal(info.slots, total);
    assert_int_equal(info.free_slots, available);
    assert_int_equal(java_number("permits"), total);
    assert_int_equal(java_number("available"), available);
    assert_int_equal(java_number("acquired"), total - available);
}

/* ---- counting ---------------------------------------------------------- */

/* Whoever says how many there are, both sides take from them. */
static void count_both(bool java_sets)
{
    dibs_lock *l = slots_lock(dib, 3);

    if (java_sets)
        assert_int_equal(SAYS("n", "set", "permits", NAME, "\t3").value, 1);
    else
        FINE(dibs_slots_set(l, 3));
    agree(l, 3, 3);
    struct jvm_answer id = java_permit("a", "\t0");
    dibs_owner one = take_slot(l), two = take_slot(l);
    int64_t slot[2] = {-1, -1};
    FINE(dibs_lock_slot(l, one, &slot[0]));
    FINE(dibs_lock_slot(l, two, &slot[1]));
    assert_true(slot[0] == 0 && slot[1] == 1);
    agree(l, 3, 0);
    none_free(l);
    assert_string_equal(SAYS("a", "try", "permits", NAME, NULL).text, "none");
    give_slot(l, one);
    agree(l, 3, 1);
    java_gives(id.text);
    give_slot(l, two);
    agree(l, 3, 3);
    assert_int_equal(ts_nkeys(srv), 1);
    dibs_lock_free(l);
}

static void test_both_count(void **state)
{
    (void)state;
    count_both(true);
    ts_ok(srv, "FLUSHALL");
    count_both(false);
}

/* Fewer than are out, by either side: nobody gets one until enough came back,
 * and none is lost. */
static void test_fewer_than_are_out(void **state)
{
    dibs_lock *l = slots_lock(dib, 3);

    (void)state;
    for (int i = 0; i < 2; i++) {
        dibs_owner one = take_slot(l), two = take_slot(l);
        struct jvm_answer id = java_permit("a", "\t0");
        if (i == 0)
            SAYS("n", "total", "permits", NAME, "\t1");
        else
            FINE(dibs_slots_set(l, 1));
        agree(l, 1, -2);
        give_slot(l, one);
        none_free(l);
        java_gives(id.text);
        none_free(l);
        assert_string_equal(SAYS("a", "try", "permits", NAME, NULL).text,
                            "none");
        give_slot(l, two);
        agree(l, 1, 1);
        FINE(dibs_slots_set(l, 3));
    }
    dibs_lock_free(l);
}

/* ---- waiting ----------------------------------------------------------- */

/* Blocking and in the background. */
static void test_java_waits(void **state)
{
    static const char *const ways[] = {"acquire", "acquireAsync"};
    dibs_lock *l = slots_lock(dib, 1);

    (void)state;
    for (size_t way = 0; way < COUNT(ways); way++) {
        char what[64];
        snprintf(what, sizeof what, "dibs slot -> Java %s", ways[way]);
        struct wakes wakes = {.what = what};
        for (int i = 0; i < 5; i++) {
            dibs_owner me = take_slot(l);
            ts_reset_stats(srv);
            int id = jvm_send(jvm, "a", ways[way], "permits", NAME, "\t0");
            kit_wait_scripts(2);
            assert_false(jvm_done(jvm, id));
            int64_t begin = kit_now_us();
            give_slot(l, me);
            struct jvm_answer a = ENDS(jvm, id);
            wakes_add(&wakes, begin, a.end_us);
            none_free(l);
            java_gives(a.text);
        }
        wakes_print(&wakes);
    }
    agree(l, 1, 1);
    dibs_lock_free(l);
}

static void test_dibs_waits(void **state)
{
    struct wakes wakes = {.what = "Java permit -> dibs slot"};

    (void)state;
    assert_int_equal(SAYS("n", "set", "permits", NAME, "\t1").value, 1);
    for (int i = 0; i < 5; i++) {
        struct waiter w;
        char arg[600];
        struct jvm_answer id = java_permit("a", "\t0");
        waiter_start_on(&w, dib, slots_lock(dib, 1), NULL);
        assert_true(ts_wait_numsub(srv, CHANNEL, 1));
        assert_false(atomic_load(&w.done));
        snprintf(arg, sizeof arg, "\t%s", id.text);
        struct jvm_answer a = SAYS("a", "release", "permits", NAME, arg);
        FINE(waiter_end(&w));
        wakes_add(&wakes, a.begin_us, w.end_us);
        waiter_release(&w);
        assert_true(ts_wait_numsub(srv, CHANNEL, 0));
    }
    wakes_print(&wakes);
}

/* W75: Java waiters in the background take one message each. So dibs sends one
 * for each permit that it makes. */
static void test_more_wake_all_in_the_background(void **state)
{
    dibs_lock *l = slots_lock(dib, 1);
    dibs_owner me = take_slot(l);
    int id[3];

    (void)state;
    ts_reset_stats(srv);
    for (int i = 0; i < 3; i++) {
        char worker[8];
        snprintf(worker, sizeof worker, "w%d", i);
        id[i] = jvm_send(jvm, worker, "acquireAsync", "permits", NAME, NULL);
    }
    kit_wait_scripts(6);
    FINE(dibs_slots_set(l, 4));
    for (int i = 0; i < 3; i++)
        java_gives(ENDS(jvm, id[i]).text);
    give_slot(l, me);
    agree(l, 4, 4);
    dibs_lock_free(l);
}

/* W76: before 3.51 a waiter for two needs two messages. */
static void test_waiter_for_two(void **state)
{
    dibs_lock *l = slots_lock(dib, 1);

    (void)state;
    for (int way = 0; way < 2; way++) {
        dibs_owner owner[2] = {take_slot(l), 0};
        if (way == 0) {
            FINE(dibs_slots_set(l, 2));
            owner[1] = take_slot(l);
        }
        ts_reset_stats(srv);
        int id = jvm_send(jvm, "a", "acquireMany", "permits", NAME, "\t2");
        kit_wait_parked(jvm, "a");
        if (way == 0) { /* two that come back */
            give_slot(l, owner[0]);
            give_slot(l, owner[1]);
        } else { /* two that are made */
            FINE(dibs_slots_set(l, 3));
            give_slot(l, owner[0]);
        }
        java_gives(ENDS(jvm, id).text);
        FINE(dibs_slots_set(l, 1));
    }
    agree(l, 1, 1);
    dibs_lock_free(l);
}

/* W91: the message is lost with Java's connection. It wakes at the first end
 * that it was told, or with the next release. */
static void test_missed_message(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS));
    dibs_lock *l = NULL;

    (void)state;
    FINE(dibs_slots_lock_new(c, NAME, 1, &l));
    FINE(dibs_lock_acquire(l, NULL));
    int id = jvm_send(jvm, "a", "acquire", "permits", NAME, "\t0");
    kit_wait_parked(jvm, "a");
    ts_ok(srv, "CLIENT KILL TYPE pubsub");
    FINE(dibs_lock_release(l, NULL));
    java_gives(ENDS(jvm, id).text);
    agree(l, 1, 1);
    dibs_lock_free(l);
    dibs_client_free(c);
}

/* ---- leases and death -------------------------------------------------- */

/* A permit that is renewed is not taken for one that has ended. */
static void test_dibs_renews(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS));
    dibs_lock *l = NULL;

    (void)state;
    FINE(dibs_slots_lock_new(c, NAME, 1, &l));
    FINE(dibs_lock_acquire(l, NULL));
    assert_string_equal(
        SAYS("a", "tryFor", "permits", NAME, "\t5000\t60000").text, "none");
    FINE(dibs_lock_release(l, NULL));
    agree(l, 1, 1);
    dibs_lock_free(l);
    dibs_client_free(c);
}

static int64_t hold_two(void)
{
    dibs_client *c = NULL;
    dibs_lock *l = NULL;

    if (dibs_client_open(ts_server_url(srv),
                         DIBS_CLIENT_OPTS(.lease_ms = LEASE_MS),
                         &c) != DIBS_OK ||
        dibs_slots_lock_new(c, NAME, 2, &l) != DIBS_OK)
        return -1;
    for (int i = 0; i < 2; i++)
        if (dibs_lock_try(l, DIBS_LOCK_OPTS(.owner = dibs_owner_new(c))) !=
            DIBS_OK)
            return -1;
    return 2;
}

/* Two slots of a process that is killed: Java has both within a lease. */
static void test_dibs_holder_dies(void **state)
{
    int64_t held;
    struct ts_child *doomed = kit_doom(hold_two, &held);
    dibs_lock *l = slots_lock(dib, 2);
    struct jvm_answer a[2];
    int id[2];

    (void)state;
    id[0] = jvm_send(jvm, "a", "acquire", "permits", NAME, "\t0");
    kit_wait_parked(jvm, "a");
    id[1] = jvm_send(jvm, "b", "acquire", "permits", NAME, "\t0");
    kit_wait_parked(jvm, "b");
    ts_child_kill(doomed);
    int64_t begin = kit_now_us();
    for (int i = 0; i < 2; i++) {
        a[i] = ENDS(jvm, id[i]);
        print_message("             Java has a dead holder's slot after %.1f "
                      "s (the lease: %.1f s)\n",
                      (double)(a[i].end_us - begin) / 1e6, LEASE_MS / 1000.0);
    }
    for (int i = 0; i < 2; i++) /* both are Java's before one comes back */
        java_gives(a[i].text);
    agree(l, 2, 2);
    dibs_lock_free(l);
    ts_child_free(doomed);
}

/* A Java permit has the lease that it was given. dibs has it a second later at
 * most; one without a lease never comes back. */
static void test_java_holder_dies(void **state)
{
    struct jvm *doomed = kit_java(NULL, NULL);
    dibs_lock *l = slots_lock(dib, 2);
    struct waiter w;

    (void)state;
    SAYS("n", "set", "permits", NAME, "\t2");
    SAYS_AT(doomed, "a", "acquire", "permits", NAME, "\t1500");
    SAYS_AT(doomed, "a", "acquire", "permits", NAME, "\t0");
    waiter_start_on(&w, dib, slots_lock(dib, 2), NULL);
    assert_true(ts_wait_numsub(srv, CHANNEL, 1));
    jvm_kill(doomed);
    int64_t begin = kit_now_us();
    FINE(waiter_end(&w));
    print_message("             dibs has a dead holder's slot after %.1f s "
                  "(the lease: 1.5 s)\n",
                  (double)(w.end_us - begin) / 1e6);
    none_free(l);
    waiter_release(&w);
    agree(l, 2, 1);
    dibs_lock_free(l);
    jvm_stop(doomed);
}

/* Each side may end a permit of the other's by its id. */
static void test_the_others_permit(void **state)
{
    dibs_lock *l = slots_lock(dib, 2);
    dibs_owner me = take_slot(l);
    char arg[600];

    (void)state;
    char *hex = ts_str(srv, "EVAL %s 1 " OUT,
                       "return (redis.call('zrange', KEYS[1], 0, 0)[1]:gsub("
                       "'.', function(c) return ('%02x'):format(c:byte()) "
                       "end))");
    snprintf(arg, sizeof arg, "\t%s\t60000", hex);
    assert_int_equal(SAYS("a", "extend", "permits", NAME, arg).value, 1);
    snprintf(arg, sizeof arg, "\t%s", hex);
    assert_int_equal(SAYS("a", "tryRelease", "permits", NAME, arg).value, 1);
    free(hex);
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = me)), DIBS_ERR_LOST);
    agree(l, 2, 2);

    struct jvm_answer id = java_permit("a", "\t0");
    bool was = false;
    FINE(dibs_lock_force_release_owner(l, id.text, &was));
    assert_true(was);
    snprintf(arg, sizeof arg, "\t%s", id.text);
    assert_int_equal(SAYS("a", "tryRelease", "permits", NAME, arg).value, 0);
    agree(l, 2, 2);
    dibs_lock_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_OBJECT(test_both_count),
        KIT_OBJECT(test_fewer_than_are_out),
        KIT_OBJECT(test_java_waits),
        KIT_OBJECT(test_dibs_waits),
        KIT_OBJECT(test_more_wake_all_in_the_background),
        KIT_OBJECT(test_waiter_for_two),
        KIT_OBJECT(test_missed_message),
        KIT_OBJECT(test_dibs_renews),
        KIT_OBJECT(test_dibs_holder_dies),
        KIT_OBJECT(test_java_holder_dies),
        KIT_OBJECT(test_the_others_permit),
    };
    return KIT_RUN("interop.slots", tests);
}
