/* SPDX-License-Identifier: MIT
 *
 * test_latch.c - what is promised about latches: everybody goes on when it
 * opens, on whatever path, and nobody before.
 */
#include "server/kit.h"

#define NOTES   "{g}:dibs_down"
#define CHANNEL "redisson_countdownlatch__channel__{g}"

static dibs_latch *latch(dibs_client *c, int64_t count)
{
    dibs_latch *l = NULL;
    bool was_set = false;

    FINE(dibs_latch_new(c, "g", &l));
    if (count)
        FINE(dibs_latch_set(l, count, NULL, &was_set));
    assert_true(was_set == (count != 0));
    return l;
}

static int64_t left(dibs_latch *l)
{
    int64_t n = -1;

    FINE(dibs_latch_count(l, &n));
    return n;
}

static void tidy(dibs_client *c, dibs_latch *l)
{
    dibs_latch_free(l);
    kit_close(c);
    assert_int_equal(ts_int(srv, "EXISTS g"), 0);
    ts_ok(srv, "DEL %s", NOTES);
}

static void test_latch_count_down(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_latch *l = latch(c, 0);
    bool was_set;
    int64_t n = -1;

    (void)state;
    FINE(dibs_latch_wait(l, NULL)); /* nobody has set it: it is open */
    FINE(dibs_latch_count_down(l, NULL, &n));
    assert_int_equal(n, 0);
    FINE(dibs_latch_set(l, 2, NULL, &was_set));
    assert_true(was_set);
    FINE(dibs_latch_set(l, 5, NULL, &was_set));
    assert_false(was_set);
    WANT(dibs_latch_wait(l, DIBS_LATCH_OPTS(.wait_ms = 30)), DIBS_ERR_TIMEOUT);
    FINE(dibs_latch_count_down(l, NULL, &n));
    assert_int_equal(n, 1);
    assert_int_equal(left(l), 1);
    FINE(dibs_latch_count_down(l, NULL, NULL));
    assert_int_equal(left(l), 0);
    FINE(dibs_latch_wait(l, NULL));
    tidy(c, l);
}

/* A name counts once, until the latch is set again. */
static void test_latch_tickets(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_latch *l = latch(c, 3);
    int64_t n;

    (void)state;
    for (int i = 0; i < 3; i++)
        FINE(dibs_latch_count_down(l, DIBS_LATCH_OPTS(.ticket = "bob"), &n));
    assert_int_equal(n, 2);
    FINE(dibs_latch_count_down(l, DIBS_LATCH_OPTS(.ticket = "eve"), &n));
    assert_int_equal(n, 1);
    FINE(dibs_latch_count_down(l, NULL, &n));
    assert_int_equal(n, 0);
    FINE(dibs_latch_set(l, 2, NULL, NULL));
    FINE(dibs_latch_count_down(l, DIBS_LATCH_OPTS(.ticket = "bob"), &n));
    assert_int_equal(n, 1);
    FINE(dibs_latch_set(l, 0, NULL, NULL));
    tidy(c, l);
}

enum { MANY = 30 };

struct waiters {
    struct told told[MANY];
};

static void start_waiters(dibs_latch *l, struct waiters *w)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < MANY; i++)
        FINE(dibs_latch_wait_async(l, NULL, kit_tell, &w->told[i]));
    TS_WAIT(ts_nchannels(srv) == 1);
}

static void all_told(struct waiters *w, dibs_err err)
{
    for (int i = 0; i < MANY; i++)
        WANT(kit_answer(&w->told[i]), err);
}

/* Every way in which it can open. */
static void test_latch_wakes_everybody(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_latch *l = latch(c, 1), *other = latch(d, 0);
    struct waiters w;

    (void)state;
    start_waiters(l, &w); /* counted down by another client */
    FINE(dibs_latch_count_down(other, NULL, NULL));
    all_told(&w, DIBS_OK);
    FINE(dibs_latch_set(other, 7, NULL, NULL));
    start_waiters(l, &w); /* opened */
    FINE(dibs_latch_set(other, 0, NULL, NULL));
    all_told(&w, DIBS_OK);
    FINE(dibs_latch_set(other, 7, NULL, NULL));
    start_waiters(l, &w); /* by Redisson */
    ts_ok(srv, "DEL g");
    ts_ok(srv, "PUBLISH %s 0", CHANNEL);
    all_told(&w, DIBS_OK);
    FINE(dibs_latch_set(other, 7, NULL, NULL));
    start_waiters(l, &w); /* deleted, and nobody says so */
    ts_ok(srv, "DEL g");
    all_told(&w, DIBS_OK);
    dibs_latch_free(other);
    kit_close(d);
    tidy(c, l);
}

/* Who waits for a latch that opens by itself hears that it was not counted
 * down; others that wait for it are told, too. */
/* A latch that is used again and again does not grow: what was noted is
 * forgotten when nobody can send it again, and not before. */
static void test_latch_forgets(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_latch *l = latch(c, 0);

    (void)state;
    for (int i = 0; i < 3000; i++)
        ts_ok(srv, "HSET %s c:old:%d 5", NOTES, i);
    ts_ok(srv, "HSET %s # 8 n:bob 4 s:old 5 c:young 6 @ %s", NOTES, "5 1000 0");
    FINE(dibs_latch_set(l, 1, NULL, NULL));
    /* #, @, the young one, and what has just been set. */
    assert_int_equal(ts_hlen(srv, NOTES), 4);
    assert_int_equal(ts_int(srv, "HEXISTS %s c:young", NOTES), 1);
    for (int i = 0; i < 100; i++)
        ts_ok(srv, "HSET %s c:new:%d 8", NOTES, i);
    FINE(dibs_latch_count_down(l, NULL, NULL));
    assert_int_equal(ts_hlen(srv, NOTES), 105);
    tidy(c, l);
}

/* A closed latch is asked for seldom: a waiter that asks in a circle would keep
 * the server busy for nothing. */
static void test_latch_waits_without_asking(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_latch *l = latch(c, 1);
    long long before = ts_command_calls(srv, "evalsha");

    (void)state;
    WANT(dibs_latch_wait(l, DIBS_LATCH_OPTS(.wait_ms = 300)), DIBS_ERR_TIMEOUT);
    assert_in_range(ts_command_calls(srv, "evalsha") - before, 1, 5);
    FINE(dibs_latch_count_down(l, NULL, NULL));
    tidy(c, l);
}

static void test_latch_deadline(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_latch *l = latch(c, 0);
    struct waiters w;

    (void)state;
    FINE(dibs_latch_set(l, 2, DIBS_LATCH_OPTS(.deadline_ms = 2 * kit_short()),
                        NULL));
    start_waiters(l, &w);
    WANT(dibs_latch_wait(l, NULL), DIBS_ERR_TIMEOUT);
    assert_non_null(strstr(dibs_error_text(), "deadline"));
    all_told(&w, DIBS_ERR_TIMEOUT);
    assert_int_equal(left(l), 0);
    FINE(dibs_latch_set(l, 1, NULL, NULL)); /* a new life */
    FINE(dibs_latch_count_down(l, NULL, NULL));
    FINE(dibs_latch_wait(l, NULL));
    tidy(c, l);
}

static void test_latch_close_ends_waits(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_latch *l = latch(c, 1);
    struct waiters w;

    (void)state;
    start_waiters(l, &w);
    kit_close(c);
    all_told(&w, DIBS_ERR_CLOSED);
    WANT(dibs_latch_wait(l, NULL), DIBS_ERR_CLOSED);
    dibs_latch_free(l);
    ts_ok(srv, "DEL g %s", NOTES);
}

struct inside {
    dibs_latch *l;
    dibs_err closed, opened;
    struct told done;
};

static void wait_inside(dibs_err err, void *arg)
{
    struct inside *in = arg;

    in->closed = dibs_latch_wait(in->l, NULL);
    if (err == DIBS_OK)
        err = dibs_latch_set(in->l, 0, NULL, NULL);
    in->opened = dibs_latch_wait(in->l, NULL);
    kit_tell(err, &in->done);
}

/* Inside a callback nobody waits, and nobody must where it is open. */
static void test_latch_inside_callback(void **state)
{
    dibs_client *c = kit_open(NULL);
    static struct inside in;

    (void)state;
    in = (struct inside){.l = latch(c, 2)};
    FINE(dibs_latch_count_down_async(in.l, NULL, wait_inside, &in));
    FINE(dibs_latch_wait(in.l, DIBS_LATCH_OPTS(.wait_ms = TS_SOON)));
    FINE(kit_answer(&in.done));
    WANT(in.closed, DIBS_ERR_DEADLOCK);
    FINE(in.opened);
    tidy(c, in.l);
}

static void ignore(dibs_err err, void *arg)
{
    (void)err;
    (void)arg;
}

static void count_down_then(dibs_err err, void *arg)
{
    if (err == DIBS_ERR_TIMEOUT)
        (void)!dibs_latch_count_down_async(arg, NULL, ignore, NULL);
}

/* The one that asks for all gives up. The next one was asked for by a thread
 * that waits; from now on the I/O thread asks for it, and must not wait. */
static void test_latch_next_asks(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_latch *l = latch(c, 1);

    (void)state;
    FINE(dibs_latch_wait_async(l, DIBS_LATCH_OPTS(.wait_ms = 100),
                               count_down_then, l));
    FINE(dibs_latch_wait(l, DIBS_LATCH_OPTS(.wait_ms = TS_SOON)));
    tidy(c, l);
}

static void test_latch_bad_input(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_latch *l = NULL;
    char ticket[DIBS_NAME_MAX + 2];
    int64_t n;

    (void)state;
    WANT(dibs_latch_new(c, NULL, &l), DIBS_ERR_INVALID);
    WANT(dibs_latch_new(c, "g", NULL), DIBS_ERR_INVALID);
    assert_null(l);
    l = latch(c, 0);
    WANT(dibs_latch_set(l, -1, NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_latch_set(l, INT64_MAX, NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_latch_set(l, 1, DIBS_LATCH_OPTS(.deadline_ms = -1), NULL),
         DIBS_ERR_INVALID);
    WANT(dibs_latch_count_down(l, DIBS_LATCH_OPTS(.ticket = ""), NULL),
         DIBS_ERR_INVALID);
    memset(ticket, 'x', sizeof ticket);
    ticket[DIBS_NAME_MAX + 1] = '\0';
    WANT(dibs_latch_count_down(l, DIBS_LATCH_OPTS(.ticket = ticket), NULL),
         DIBS_ERR_INVALID);
    WANT(dibs_latch_count(l, NULL), DIBS_ERR_INVALID);
    WANT(dibs_latch_wait(NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_latch_wait_async(l, NULL, NULL, NULL), DIBS_ERR_INVALID);
    ts_ok(srv, "SET g x");
    WANT(dibs_latch_wait(l, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_latch_count_down(l, NULL, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_latch_set(l, 2, NULL, NULL), DIBS_ERR_WRONGTYPE);
    ts_ok(srv, "SET g -4"); /* what others leave */
    FINE(dibs_latch_wait(l, NULL));
    FINE(dibs_latch_count_down(l, NULL, &n));
    assert_int_equal(n, 0);
    tidy(c, l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_latch_count_down),
        KIT_TEST(test_latch_tickets),
        KIT_TEST(test_latch_wakes_everybody),
        KIT_TEST(test_latch_forgets),
        KIT_TEST(test_latch_waits_without_asking),
        KIT_TEST(test_latch_deadline),
        KIT_TEST(test_latch_close_ends_waits),
        KIT_TEST(test_latch_inside_callback),
        KIT_TEST(test_latch_next_asks),
        KIT_TEST(test_latch_bad_input),
    };

    return KIT_RUN("latch", tests);
}
