/* SPDX-License-Identifier: MIT
 *
 * test_semaphore.c - what is promised about semaphores: permits that are
 * counted once, and come back.
 */
#include "server/kit.h"

#define BOOK       "{s}:dibs_held"
#define PERMITS(n) DIBS_SEMAPHORE_OPTS(.permits = (n), .wait_ms = TS_SOON)

static dibs_semaphore *semaphore(dibs_client *c, int64_t permits)
{
    dibs_semaphore *s = NULL;
    bool was_set = false;

    FINE(dibs_semaphore_new(c, "s", &s));
    if (permits)
        FINE(dibs_semaphore_set(s, permits, &was_set));
    assert_true(was_set == (permits != 0));
    return s;
}

static int64_t available(dibs_semaphore *s)
{
    int64_t n = -99;

    FINE(dibs_semaphore_available(s, &n));
    return n;
}

/* The number stays on the server, and for a minute what was answered. */
static void tidy(dibs_client *c, dibs_semaphore *s, int64_t permits)
{
    assert_int_equal(available(s), permits);
    assert_int_equal(ts_int(srv, "EXISTS %s", BOOK), 0);
    dibs_semaphore_free(s);
    kit_close(c);
    ts_ok(srv, "FLUSHALL");
}

static void test_semaphore_take_and_give(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = semaphore(c, 3);
    bool was_set = true;

    (void)state;
    FINE(dibs_semaphore_set(s, 5, &was_set));
    assert_false(was_set);
    FINE(dibs_semaphore_acquire(s, PERMITS(2)));
    assert_int_equal(available(s), 1);
    WANT(dibs_semaphore_try(s, PERMITS(2)), DIBS_ERR_BUSY);
    FINE(dibs_semaphore_try(s, NULL));
    assert_int_equal(available(s), 0);
    WANT(dibs_semaphore_acquire(s, DIBS_SEMAPHORE_OPTS(.wait_ms = 30)),
         DIBS_ERR_TIMEOUT);
    WANT(dibs_semaphore_release(s, PERMITS(3)), DIBS_ERR_NOT_OWNER);
    FINE(dibs_semaphore_release(s, PERMITS(2)));
    assert_int_equal(available(s), 2);
    FINE(dibs_semaphore_release(s, NULL));
    WANT(dibs_semaphore_release(s, NULL), DIBS_ERR_NOT_OWNER);
    tidy(c, s, 3);
}

struct taker {
    dibs_semaphore *s;
    dibs_err err;
    int64_t permits;
    pthread_t thread;
};

static void *take_some(void *arg)
{
    struct taker *t = arg;

    t->err = dibs_semaphore_acquire(t->s, PERMITS(t->permits));
    return NULL;
}

static void taker_start(struct taker *t)
{
    assert_int_equal(pthread_create(&t->thread, NULL, take_some, t), 0);
}

/* Who waits goes on when permits come back, are made, or are set. */
static void test_semaphore_wakes(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_semaphore *s = semaphore(c, 0), *other = semaphore(d, 0);
    struct taker t = {.s = other, .permits = 2};
    int64_t n;

    (void)state;
    taker_start(&t);
    TS_WAIT(ts_nchannels(srv) == 1);
    FINE(dibs_semaphore_set(s, 2, NULL));
    pthread_join(t.thread, NULL);
    FINE(t.err);
    taker_start(&t);
    TS_WAIT(ts_nchannels(srv) == 1);
    FINE(dibs_semaphore_add(s, 2, &n));
    assert_int_equal(n, 2);
    pthread_join(t.thread, NULL);
    FINE(t.err);
    taker_start(&t);
    TS_WAIT(ts_nchannels(srv) == 1);
    FINE(dibs_semaphore_release(other, PERMITS(2)));
    pthread_join(t.thread, NULL);
    FINE(t.err);
    dibs_semaphore_free(other);
    kit_close(d); /* gives back what is left */
    tidy(c, s, 4);
}

/* Another client, which knows no book, gives back. */
static void test_semaphore_other_clients(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = semaphore(c, 1);
    struct taker t = {.s = s, .permits = 1};

    (void)state;
    ts_ok(srv, "DECRBY s 1");
    taker_start(&t);
    TS_WAIT(ts_nchannels(srv) == 1);
    ts_ok(srv, "INCRBY s 1");
    ts_ok(srv, "PUBLISH redisson_sc:{s} 1");
    pthread_join(t.thread, NULL);
    FINE(t.err);
    FINE(dibs_semaphore_release(s, NULL));
    tidy(c, s, 1);
}

/* A holder that died: its permits come back to whoever asks. */
static void test_semaphore_of_one_that_died(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = semaphore(c, 2);

    (void)state;
    FINE(dibs_semaphore_acquire(
        s, DIBS_SEMAPHORE_OPTS(.permits = 2, .lease_ms = kit_short())));
    FINE(dibs_semaphore_acquire(s, PERMITS(1)));
    WANT(dibs_semaphore_release(s, PERMITS(2)), DIBS_ERR_LOST);
    assert_int_equal(available(s), 1);
    FINE(dibs_semaphore_release(s, NULL));
    tidy(c, s, 2);
}

static void test_semaphore_is_renewed(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_semaphore *s = semaphore(c, 9);

    (void)state;
    for (int i = 1; i <= 3; i++)
        FINE(dibs_semaphore_acquire(s, PERMITS(i)));
    int64_t end = ts_now_ms() + 3 * kit_lease() / 2;
    TS_WAIT(ts_now_ms() > end);
    assert_int_equal(available(s), 3);
    for (int i = 1; i <= 3; i++)
        FINE(dibs_semaphore_release(s, PERMITS(i)));
    tidy(c, s, 9);
}

/* It was deleted: what was taken is lost, and not given back to another. */
static void test_semaphore_deleted(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_semaphore *s = semaphore(c, 2);
    struct lost lost = {.times = 0};
    bool was_set;

    (void)state;
    FINE(dibs_semaphore_acquire(
        s, DIBS_SEMAPHORE_OPTS(.on_lost = kit_lose, .arg = &lost)));
    ts_ok(srv, "DEL s");
    FINE(dibs_semaphore_set(s, 5, &was_set));
    assert_true(was_set);
    TS_WAIT(atomic_load(&lost.times) == 1);
    assert_string_equal(lost.lock, "s");
    WANT(dibs_semaphore_release(s, NULL), DIBS_ERR_LOST);
    tidy(c, s, 5);
}

static void test_semaphore_add_and_drain(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = semaphore(c, 4);
    int64_t n;

    (void)state;
    FINE(dibs_semaphore_add(s, 3, &n));
    assert_int_equal(n, 7);
    FINE(dibs_semaphore_drain(s, &n));
    assert_int_equal(n, 7);
    FINE(dibs_semaphore_drain(s, &n));
    assert_int_equal(n, 0);
    FINE(dibs_semaphore_add(s, -2, &n));
    assert_int_equal(n, -2);
    FINE(dibs_semaphore_drain(s, &n)); /* the debt stays */
    assert_int_equal(n, 0);
    assert_int_equal(available(s), -2);
    WANT(dibs_semaphore_try(s, NULL), DIBS_ERR_BUSY);
    FINE(dibs_semaphore_add(s, 4, NULL));
    tidy(c, s, 2);
}

static void test_semaphore_async(void **state)
{
    enum { MANY = 40 };
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = semaphore(c, 3);
    struct told got[MANY] = {{0}}, gave[MANY] = {{0}}, tried = {0};

    (void)state;
    for (int i = 0; i < MANY; i++)
        FINE(dibs_semaphore_acquire_async(s, PERMITS(1 + i % 3), kit_tell,
                                          &got[i]));
    for (int i = 0; i < MANY; i++) {
        FINE(kit_answer(&got[i]));
        if (i == 0) {
            FINE(dibs_semaphore_try_async(s, PERMITS(3), kit_tell, &tried));
            WANT(kit_answer(&tried), DIBS_ERR_BUSY);
        }
        FINE(dibs_semaphore_release_async(s, PERMITS(1 + i % 3), kit_tell,
                                          &gave[i]));
    }
    for (int i = 0; i < MANY; i++)
        FINE(kit_answer(&gave[i]));
    tidy(c, s, 3);
}

struct inside {
    dibs_semaphore *s;
    dibs_err some, more;
    struct told done;
};

static void acquire_inside(dibs_err err, void *arg)
{
    struct inside *in = arg;

    in->some = dibs_semaphore_acquire(in->s, PERMITS(1));
    in->more = dibs_semaphore_acquire(in->s, PERMITS(1));
    kit_tell(err, &in->done);
}

/* Inside a callback permits are taken, but not waited for. */
static void test_semaphore_inside_callback(void **state)
{
    dibs_client *c = kit_open(NULL);
    static struct inside in;

    (void)state;
    in = (struct inside){.s = semaphore(c, 3)};
    FINE(dibs_semaphore_acquire_async(in.s, PERMITS(2), acquire_inside, &in));
    FINE(kit_answer(&in.done));
    FINE(in.some);
    WANT(in.more, DIBS_ERR_DEADLOCK);
    FINE(dibs_semaphore_release(in.s, PERMITS(1)));
    FINE(dibs_semaphore_release(in.s, PERMITS(2)));
    tidy(c, in.s, 3);
}

static void test_semaphore_bad_input(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = NULL;
    dibs_semaphore_opts small = {.size = 3};
    char text[DIBS_OWNER_MAX];
    int64_t n;

    (void)state;
    WANT(dibs_semaphore_new(c, "", &s), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_new(c, "s", NULL), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_new(NULL, "s", &s), DIBS_ERR_INVALID);
    assert_null(s);
    s = semaphore(c, 0);
    WANT(dibs_semaphore_set(s, -1, NULL), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_set(s, DIBS_PERMITS_MAX + 1, NULL), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_add(s, INT64_MAX, NULL), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_try(s, PERMITS(-1)), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_try(s, &small), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_try(NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_release(NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_leave(s, PERMITS(-1), text, sizeof text),
         DIBS_ERR_INVALID);
    WANT(dibs_semaphore_adopt(s, "1:x", PERMITS(-1), &n), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_available(s, NULL), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_acquire_async(s, NULL, NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_try(s, NULL), DIBS_ERR_BUSY); /* nobody said how many */
    ts_ok(srv, "SET s x");
    WANT(dibs_semaphore_try(s, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_semaphore_add(s, 1, &n), DIBS_ERR_WRONGTYPE);
    WANT(dibs_semaphore_available(s, &n), DIBS_ERR_WRONGTYPE);
    ts_ok(srv, "SET s 2147483647");
    WANT(dibs_semaphore_add(s, 1, &n), DIBS_ERR_SERVER);
    tidy(c, s, 2147483647);
}

/* ---- deleted by others ------------------------------------------------- */

/* Each holder hears of it, and nothing is added to what is set anew. */
static void test_semaphore_deleted_by_others(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_semaphore *s = semaphore(c, 3);
    struct lost lost = {.times = 0};

    (void)state;
    for (int i = 0; i < 3; i++)
        FINE(dibs_semaphore_acquire(
            s, DIBS_SEMAPHORE_OPTS(.on_lost = kit_lose, .arg = &lost)));
    ts_ok(srv, "DEL s");
    TS_WAIT(atomic_load(&lost.times) == 3);
    ts_ok(srv, "SET s 3");
    for (int i = 0; i < 3; i++)
        WANT(dibs_semaphore_release(s, NULL), DIBS_ERR_LOST);
    tidy(c, s, 3);
}

/* The release is the first to see it. Others' permits are void as well. */
static void test_semaphore_deleted_release(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = semaphore(c, 3);

    (void)state;
    FINE(dibs_semaphore_acquire(s, PERMITS(2)));
    FINE(dibs_semaphore_acquire(s, PERMITS(1)));
    ts_ok(srv, "DEL s");
    WANT(dibs_semaphore_release(s, PERMITS(2)), DIBS_ERR_LOST);
    assert_int_equal(ts_int(srv, "EXISTS s"), 0);
    ts_ok(srv, "SET s 3");
    WANT(dibs_semaphore_release(s, PERMITS(1)), DIBS_ERR_LOST);
    tidy(c, s, 3);
}

/* ---- many and few ------------------------------------------------------ */

static void taker_end(struct taker *t)
{
    pthread_join(t->thread, NULL);
    FINE(t->err);
    FINE(dibs_semaphore_release(t->s, PERMITS(t->permits)));
}

/* One that asks for more than there will be for now does not keep away those
 * that ask for less, and gets its own in the end. */
static void test_semaphore_passes(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = semaphore(c, 1);
    struct taker many = {.s = s, .permits = 9}, some = {.s = s, .permits = 3},
                 few = {.s = s, .permits = 1};

    (void)state;
    taker_start(&many);
    TS_WAIT(ts_nchannels(srv) == 1);
    taker_start(&few);
    pthread_join(few.thread, NULL);
    FINE(few.err);
    assert_int_equal(available(s), 0);
    taker_start(&some);
    FINE(dibs_semaphore_release(s, NULL));
    FINE(dibs_semaphore_add(s, 1, NULL));
    taker_start(&few); /* passes both */
    taker_end(&few);
    FINE(dibs_semaphore_add(s, 1, NULL));
    taker_end(&some);
    FINE(dibs_semaphore_add(s, 6, NULL));
    taker_end(&many);
    tidy(c, s, 9);
}

/* Where there are enough for the first one, that one gets them, though those
 * behind it could have had some before. */
static void test_semaphore_order(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = semaphore(c, 2);
    struct told many = {0}, few = {0};

    (void)state;
    FINE(dibs_semaphore_acquire(s, PERMITS(2)));
    FINE(dibs_semaphore_acquire_async(s, PERMITS(2), kit_tell, &many));
    FINE(dibs_semaphore_acquire_async(s, PERMITS(1), kit_tell, &few));
    TS_WAIT(ts_nchannels(srv) == 1);
    FINE(dibs_semaphore_release(s, PERMITS(2)));
    FINE(kit_answer(&many));
    assert_int_equal(atomic_load(&few.times), 0);
    FINE(dibs_semaphore_release(s, PERMITS(2)));
    FINE(kit_answer(&few));
    FINE(dibs_semaphore_release(s, PERMITS(1)));
    tidy(c, s, 2);
}

/* No more than the text is written. */
static void test_semaphore_leave_text(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = semaphore(c, 1);
    char text[DIBS_OWNER_MAX];

    (void)state;
    memset(text, 'x', sizeof text);
    FINE(dibs_semaphore_acquire(s, NULL));
    FINE(dibs_semaphore_leave(s, NULL, text, sizeof text));
    for (size_t i = strlen(text) + 1; i < sizeof text; i++)
        assert_int_equal(text[i], 'x');
    FINE(dibs_semaphore_adopt(s, text, NULL, NULL));
    FINE(dibs_semaphore_release(s, NULL));
    tidy(c, s, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_semaphore_take_and_give),
        KIT_TEST(test_semaphore_wakes),
        KIT_TEST(test_semaphore_other_clients),
        KIT_TEST(test_semaphore_of_one_that_died),
        KIT_TEST(test_semaphore_is_renewed),
        KIT_TEST(test_semaphore_deleted),
        KIT_TEST(test_semaphore_add_and_drain),
        KIT_TEST(test_semaphore_async),
        KIT_TEST(test_semaphore_inside_callback),
        KIT_TEST(test_semaphore_bad_input),
        KIT_TEST(test_semaphore_deleted_by_others),
        KIT_TEST(test_semaphore_deleted_release),
        KIT_TEST(test_semaphore_passes),
        KIT_TEST(test_semaphore_order),
        KIT_TEST(test_semaphore_leave_text),
    };

    return KIT_RUN("semaphore", tests);
}
