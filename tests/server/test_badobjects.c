/* SPDX-License-Identifier: MIT
 *
 * test_badobjects.c - names that are something else, and numbers that other
 * clients left: fenced locks, slots, semaphores and latches say so, or count
 * right, and change nothing that is not theirs.
 */
#include "server/kit.h"

#define NAME "thing"

/* All there is, of one name. */
struct things {
    dibs_client *c;
    dibs_lock *fenced, *slots;
    dibs_semaphore *s;
    dibs_latch *g;
};

static void open_things(struct things *t)
{
    t->c = kit_open(NULL);
    FINE(dibs_fenced_lock_new(t->c, NAME, &t->fenced));
    FINE(dibs_slots_lock_new(t->c, NAME, 3, &t->slots));
    FINE(dibs_semaphore_new(t->c, NAME, &t->s));
    FINE(dibs_latch_new(t->c, NAME, &t->g));
}

static void close_things(struct things *t)
{
    dibs_lock_free(t->fenced);
    dibs_lock_free(t->slots);
    dibs_semaphore_free(t->s);
    dibs_latch_free(t->g);
    kit_close(t->c);
    ts_ok(srv, "FLUSHALL");
}

/* ---- each call --------------------------------------------------------- */

static int64_t number;

static dibs_err call_fenced(struct things *t)
{
    return dibs_lock_try(t->fenced, NULL);
}

static dibs_err call_slots(struct things *t)
{
    return dibs_lock_try(t->slots, NULL);
}

static dibs_err call_slots_set(struct things *t)
{
    return dibs_slots_set(t->slots, 5);
}

static dibs_err call_slots_info(struct things *t)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    return dibs_lock_info_get(t->slots, &info);
}

static dibs_err call_try(struct things *t)
{
    return dibs_semaphore_try(t->s, NULL);
}

static dibs_err call_set(struct things *t)
{
    return dibs_semaphore_set(t->s, 3, NULL);
}

static dibs_err call_add(struct things *t)
{
    return dibs_semaphore_add(t->s, 2, NULL);
}

static dibs_err call_drain(struct things *t)
{
    return dibs_semaphore_drain(t->s, NULL);
}

static dibs_err call_available(struct things *t)
{
    return dibs_semaphore_available(t->s, &number);
}

static dibs_err call_latch_set(struct things *t)
{
    return dibs_latch_set(t->g, 2, NULL, NULL);
}

static dibs_err call_latch_open(struct things *t)
{
    return dibs_latch_set(t->g, 0, NULL, NULL);
}

static dibs_err call_down(struct things *t)
{
    return dibs_latch_count_down(t->g, NULL, NULL);
}

static dibs_err call_count(struct things *t)
{
    return dibs_latch_count(t->g, &number);
}

static dibs_err call_wait(struct things *t)
{
    return dibs_latch_wait(t->g, DIBS_LATCH_OPTS(.wait_ms = TS_SOON));
}

static const struct thing_call {
    const char *name;
    dibs_err (*make)(struct things *t);
    bool counts; /* a number under that name is its own */
} calls[] = {
    {"fenced try", call_fenced, false},
    {"slots try", call_slots, true},
    {"slots set", call_slots_set, true},
    {"slots info", call_slots_info, true},
    {"semaphore try", call_try, true},
    {"semaphore set", call_set, true},
    {"semaphore add", call_add, true},
    {"semaphore drain", call_drain, true},
    {"semaphore available", call_available, true},
    {"latch set", call_latch_set, true},
    {"latch open", call_latch_open, true},
    {"latch down", call_down, true},
    {"latch count", call_count, true},
    {"latch wait", call_wait, true},
};

/* ---- what is no number ------------------------------------------------- */

/* The key, as it is stored. */
static char *dump_key(void)
{
    return ts_str(srv, "EVAL %s 1 " NAME,
                  "return redis.sha1hex(redis.call('dump', KEYS[1]))");
}

static void refused(struct things *t, const char *what,
                    const struct thing_call *call)
{
    char *before = dump_key();
    dibs_err err = call->make(t);
    char *after = dump_key();

    if (err != DIBS_ERR_WRONGTYPE)
        fail_msg("%s, %s: \"%s\"", what, call->name, dibs_strerror(err));
    if (!strstr(dibs_error_text(), NAME) && !strstr(dibs_error_text(), "key"))
        fail_msg("%s, %s: it says: %s", what, call->name, dibs_error_text());
    if (strcmp(before, after) != 0 || ts_nkeys(srv) != 1)
        fail_msg("%s, %s: something was changed", what, call->name);
    free(before);
    free(after);
}

static void test_badobjects_no_number(void **state)
{
    static const char *const states[] = {
        "SET " NAME " word",
        "SET " NAME " 1.5",
        "SET " NAME " 9223372036854775807",
        "SET " NAME " 12345678901234567890",
        "SET " NAME " -",
        "HSET " NAME " field value",
        "HSET " NAME " 8743c9c0-0795-4907-87fd-6c719a6b4586:45 1 mode read",
        "RPUSH " NAME " a",
        "ZADD " NAME " 1 a",
    };
    struct things t;

    (void)state;
    open_things(&t);
    for (size_t i = 0; i < COUNT(states); i++)
        for (size_t k = 0; k < COUNT(calls); k++) {
            ts_ok(srv, "FLUSHALL");
            ts_ok(srv, states[i]);
            refused(&t, states[i], &calls[k]);
        }
    close_things(&t);
}

/* A number there, and somebody who wants a lock; or the other way round. */
static void test_badobjects_another_kind(void **state)
{
    struct things t;

    (void)state;
    open_things(&t);
    ts_ok(srv, "SET " NAME " 3");
    for (size_t k = 0; k < COUNT(calls); k++)
        if (!calls[k].counts)
            refused(&t, "a number", &calls[k]);
    ts_ok(srv, "FLUSHALL");
    FINE(dibs_lock_acquire(t.fenced, NULL));
    ts_ok(srv, "DEL redisson_lock_token:{" NAME "}");
    for (size_t k = 0; k < COUNT(calls); k++)
        if (calls[k].counts)
            refused(&t, "a fenced lock", &calls[k]);
    FINE(dibs_lock_release(t.fenced, NULL));
    close_things(&t);
}

/* ---- numbers of other clients ------------------------------------------ */

/* Below zero: nobody gets one, nothing is forgiven, a latch is open. */
static void test_badobjects_below_zero(void **state)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    struct things t;

    (void)state;
    open_things(&t);
    ts_ok(srv, "SET " NAME " -3");
    WANT(dibs_lock_try(t.slots, NULL), DIBS_ERR_BUSY);
    WANT(dibs_lock_acquire(t.slots, DIBS_LOCK_OPTS(.wait_ms = 50)),
         DIBS_ERR_TIMEOUT);
    FINE(dibs_lock_info_get(t.slots, &info));
    assert_int_equal(info.free_slots, -3);
    WANT(dibs_semaphore_try(t.s, NULL), DIBS_ERR_BUSY);
    FINE(dibs_semaphore_available(t.s, &number));
    assert_int_equal(number, -3);
    FINE(dibs_semaphore_drain(t.s, &number));
    assert_int_equal(number, 0);
    FINE(dibs_semaphore_add(t.s, 2, &number));
    assert_int_equal(number, -1);
    FINE(dibs_latch_wait(t.g, NULL));
    FINE(dibs_latch_count(t.g, &number));
    assert_int_equal(number, 0);
    assert_int_equal(ts_int(srv, "GET " NAME), -1);
    close_things(&t);
}

/* More than 32 bits: what is there is counted, none is made beyond. */
static void test_badobjects_beyond_32_bits(void **state)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    struct things t;

    (void)state;
    open_things(&t);
    ts_ok(srv, "SET " NAME " 3000000000");
    FINE(dibs_lock_try(t.slots, NULL));
    FINE(dibs_lock_info_get(t.slots, &info));
    assert_int_equal(info.slots, INT64_C(3000000000));
    FINE(dibs_lock_release(t.slots, NULL));
    FINE(dibs_semaphore_try(t.s, NULL));
    FINE(dibs_semaphore_release(t.s, NULL));
    FINE(dibs_semaphore_available(t.s, &number));
    assert_int_equal(number, INT64_C(3000000000));
    WANT(dibs_semaphore_add(t.s, 1, NULL), DIBS_ERR_SERVER);
    assert_non_null(strstr(dibs_error_text(), "32 bits"));
    ts_ok(srv, "SET " NAME " 2147483647");
    WANT(dibs_semaphore_add(t.s, 1, NULL), DIBS_ERR_SERVER);
    ts_ok(srv, "SET " NAME " -2147483648");
    WANT(dibs_semaphore_add(t.s, -1, NULL), DIBS_ERR_SERVER);
    assert_int_equal(ts_int(srv, "GET " NAME), INT64_C(-2147483648));
    close_things(&t);
}

struct asks {
    dibs_semaphore *s;
    dibs_err err;
    atomic_bool done;
    pthread_t thread;
};

static void *asks_main(void *arg)
{
    struct asks *a = arg;

    a->err =
        dibs_semaphore_acquire(a->s, DIBS_SEMAPHORE_OPTS(.wait_ms = TS_SOON));
    atomic_store(&a->done, true);
    return NULL;
}

/* Messages that mean nothing (vector 54): who waits asks, waits on, and hears
 * the next one. */
static void test_badobjects_messages(void **state)
{
    static const char *const messages[] = {"-3", "abc", "", "99999999999999"};
    const char *channel = "redisson_sc:{" NAME "}";
    struct things t;
    struct asks a = {0};

    (void)state;
    open_things(&t);
    a.s = t.s;
    ts_ok(srv, "SET " NAME " 0");
    assert_int_equal(pthread_create(&a.thread, NULL, asks_main, &a), 0);
    assert_true(ts_wait_numsub(srv, channel, 1));
    for (size_t i = 0; i < COUNT(messages); i++) {
        long long asked = ts_command_calls(srv, "evalsha");
        ts_ok(srv, "PUBLISH %s %s", channel, messages[i]);
        TS_WAIT(ts_command_calls(srv, "evalsha") > asked);
        assert_false(atomic_load(&a.done));
    }
    ts_ok(srv, "INCR " NAME);
    ts_ok(srv, "PUBLISH %s 1", channel);
    pthread_join(a.thread, NULL);
    FINE(a.err);
    FINE(dibs_semaphore_release(t.s, NULL));
    close_things(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_badobjects_no_number),
        KIT_TEST(test_badobjects_another_kind),
        KIT_TEST(test_badobjects_below_zero),
        KIT_TEST(test_badobjects_beyond_32_bits),
        KIT_TEST(test_badobjects_messages),
    };

    return KIT_RUN("badobjects", tests);
}
