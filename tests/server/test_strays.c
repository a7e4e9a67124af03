/* SPDX-License-Identifier: MIT
 *
 * test_strays.c - an answer too many, a yes above all: no call takes it for its
 * own, be it asked by the caller itself, by the I/O thread, from a callback, or
 * with others in one write. The connection ends, the call ends right.
 */
#include "server/kit.h"

#include "support/proxy.h"

#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

enum way { SYNC, ASYNC, RIDE, WAYS };

static const struct {
    const char *name;
    dibs_err (*make)(dibs_client *c, const char *name, dibs_lock **out);
    const char *other; /* a yes with the number of another call */
    const char *old;   /* a yes without one */
} kinds[] = {
    {"plain", dibs_lock_new, "$4\r\n0999\r\n", "$-1\r\n"},
    {"fair", dibs_fair_lock_new, "$4\r\n0999\r\n", "$-1\r\n"},
    {"write", dibs_write_lock_new, "$4\r\n0999\r\n", "$-1\r\n"},
    {"fenced", dibs_fenced_lock_new, "$21\r\n0999=1700000000000000\r\n",
     "$16\r\n1700000000000000\r\n"},
};

static struct ts_proxy *px;
static dibs_client *client;
static dibs_lock *mine, *theirs, *spark;
static dibs_owner owner;

/* Theirs is held by somebody else. */
static void begin(size_t kind)
{
    px = ts_proxy_start(srv);
    client = kit_open_at(ts_proxy_url(px), NULL);
    owner = dibs_owner_new(client);
    FINE(kinds[kind].make(client, "mine", &mine));
    FINE(kinds[kind].make(client, "theirs", &theirs));
    spark = kit_lock(client, "spark");
    if (kinds[kind].make == dibs_write_lock_new)
        ts_ok(srv, "HSET theirs mode write " STRANGER ":write 1");
    else
        ts_ok(srv, "HSET theirs " STRANGER " 1");
    ts_ok(srv, "PEXPIRE theirs 600000");
}

static void end(void)
{
    dibs_lock_free(mine);
    dibs_lock_free(theirs);
    dibs_lock_free(spark);
    kit_close(client);
    ts_ok(srv, "DEL theirs redisson_lock_token:{mine}");
    ts_proxy_stop(px);
}

/* ---- one call ---------------------------------------------------------- */

typedef dibs_err async_call(dibs_lock *l, const dibs_lock_opts *opts,
                            dibs_cb cb, void *arg);

struct inner {
    async_call *fn;
    dibs_lock *l;
    struct told t[4];
    size_t n; /* so many at once, in one write */
};

static void inner_start(struct inner *in)
{
    dibs_lock_opts o = *DIBS_LOCK_OPTS(.owner = owner);

    for (size_t i = 0; i < in->n; i++) {
        dibs_err err = in->fn(in->l, &o, kit_tell, &in->t[i]);
        if (err != DIBS_OK)
            kit_tell(err, &in->t[i]);
        o.owner = dibs_owner_new(client); /* those behind are others */
    }
}

static void inner_begins(dibs_err err, void *arg)
{
    (void)err;
    inner_start(arg);
}

/* From the callback of a call that has nothing to do with it. */
static void inner_ride(struct inner *in)
{
    dibs_owner one = dibs_owner_new(client);

    FINE(dibs_lock_acquire_async(spark, DIBS_LOCK_OPTS(.owner = one),
                                 inner_begins, in));
    for (size_t i = 0; i < in->n; i++)
        TS_WAIT(atomic_load(&in->t[i].times) > 0);
    FINE(dibs_lock_release(spark, DIBS_LOCK_OPTS(.owner = one)));
}

static dibs_err call(enum way way, async_call *fn, dibs_lock *l)
{
    struct inner in = {.fn = fn, .l = l, .n = 1};
    const dibs_lock_opts *o = DIBS_LOCK_OPTS(.owner = owner);

    if (way == SYNC)
        return fn == dibs_lock_acquire_async   ? dibs_lock_acquire(l, o)
               : fn == dibs_lock_release_async ? dibs_lock_release(l, o)
                                               : dibs_lock_try(l, o);
    if (way == ASYNC)
        inner_start(&in);
    else
        inner_ride(&in);
    return kit_answer(&in.t[0]);
}

/* ---- which connection -------------------------------------------------- */

/* On which the nth command with this name in it went, as the log has it. */
static void connection_of(const char *name, unsigned nth, char out[16])
{
    char *line = ts_proxy_log_line(px, name, nth);
    unsigned id = 0;

    if (!line || sscanf(line, "%*d #%u", &id) != 1)
        fail_msg("the log has no %s", name);
    snprintf(out, 16, " #%u ", id);
    free(line);
}

/* It is used so often at most, whichever way is taken. */
static void check_ended(const char *where, const char *connection,
                        unsigned most)
{
    unsigned before = ts_proxy_logged(px, connection);

    for (int i = 0; i < 4; i++)
        for (enum way way = SYNC; way < WAYS; way++)
            WANT(call(way, dibs_lock_try_async, theirs), DIBS_ERR_BUSY);
    if (ts_proxy_logged(px, connection) > before + most)
        fail_msg("%s: a connection that is out of step is used", where);
}

/* ---- the tests --------------------------------------------------------- */

/* The yes of an acquire comes twice: before the next call is sent, or behind
 * that. */
static void test_strays_twice(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(kinds) * WAYS; i++) {
        enum way way = (enum way)(i / 2 % WAYS);
        bool late = i % 2;
        const char *where = kinds[i / 2 / WAYS].name;

        begin(i / 2 / WAYS);
        FINE(call(way, dibs_lock_acquire_async, mine)); /* scripts are known */
        FINE(call(way, dibs_lock_release_async, mine));
        int id =
            ts_proxy_rule(px, &(struct ts_rule){.action = TS_DUPLICATE_REPLY,
                                                .match = "EVAL*",
                                                .contains = "mine",
                                                .ms = late ? kit_chance() : 0,
                                                .count = 1});
        unsigned before = ts_proxy_logged(px, "mine");
        char link[16];
        FINE(call(way, dibs_lock_acquire_async, mine));
        connection_of("mine", before, link);
        if (!late)
            assert_true(ts_rule_wait_done(px, id, 1, TS_SOON));
        else
            WANT(call(way, dibs_lock_try_async, theirs), DIBS_ERR_BUSY);
        assert_true(ts_rule_wait_done(px, id, 1, TS_SOON));
        check_ended(where, link, 1); /* the one that finds out */
        FINE(call(way, dibs_lock_release_async, mine));
        assert_false(ts_exists(srv, "mine"));
        end();
    }
}

/* A yes in the place of the answer, which comes behind it. */
static void test_strays_ahead(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(kinds) * WAYS; i++) {
        enum way way = (enum way)(i / 2 % WAYS);
        size_t kind = i / 2 / WAYS;
        char text[128], link[16];

        begin(kind);
        WANT(call(way, dibs_lock_try_async, theirs), DIBS_ERR_BUSY);
        snprintf(text, sizeof text, "%s$10\r\n0999 60000\r\n",
                 i % 2 ? kinds[kind].other : kinds[kind].old);
        int id = ts_proxy_rule(px, &(struct ts_rule){.action = TS_REWRITE_REPLY,
                                                     .match = "EVAL*",
                                                     .contains = "theirs",
                                                     .bare = true,
                                                     .text = text,
                                                     .count = 1});
        unsigned before = ts_proxy_logged(px, "theirs");
        WANT(call(way, dibs_lock_try_async, theirs), DIBS_ERR_BUSY);
        assert_int_equal(ts_rule_done(px, id), 1);
        connection_of("theirs", before, link);
        check_ended(kinds[kind].name, link, 0);
        end();
    }
}

/* Several calls in one write, and the first of them is answered twice: each of
 * the others would get the answer of the one before it. */
static void test_strays_in_one_write(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kinds) * 2; i++) {
        struct inner in = {.fn = dibs_lock_try_async, .n = COUNT(in.t)};
        unsigned taken = 0;

        begin(i / 2);
        FINE(call(ASYNC, dibs_lock_acquire_async, mine));
        FINE(call(ASYNC, dibs_lock_release_async, mine));
        int id =
            ts_proxy_rule(px, &(struct ts_rule){.action = TS_DUPLICATE_REPLY,
                                                .match = "EVAL*",
                                                .contains = "mine",
                                                .count = 1});
        in.l = mine; /* for the first only, and only that may have it */
        if (i % 2)
            inner_ride(&in);
        else
            inner_start(&in);
        for (size_t j = 0; j < in.n; j++) {
            dibs_err err = kit_answer(&in.t[j]);
            taken += err == DIBS_OK;
            if (err != DIBS_OK && err != DIBS_ERR_BUSY)
                fail_msg("%s: %s", kinds[i / 2].name, dibs_strerror(err));
        }
        assert_int_equal(ts_rule_done(px, id), 1);
        assert_int_equal(taken, 1);
        assert_int_equal(kit_count(mine, "mine", owner), 1);
        FINE(call(SYNC, dibs_lock_release_async, mine));
        assert_false(ts_exists(srv, "mine"));
        end();
    }
}

static bool count_who(size_t i, const dibs_who *who, void *arg)
{
    (void)i;
    (void)who;
    ++*(int *)arg;
    return true;
}

/* What is no script has no number: it is not asked behind an answer too many,
 * which is a text, too. */
static void test_strays_before_a_question(void **state)
{
    char text[DIBS_OWNER_MAX];
    const char *who = text;
    int found = 0;

    (void)state;
    begin(0);
    FINE(call(SYNC, dibs_lock_acquire_async, mine));
    FINE(call(SYNC, dibs_lock_release_async, mine));
    int id = ts_proxy_rule(px, &(struct ts_rule){.action = TS_DUPLICATE_REPLY,
                                                 .match = "EVAL*",
                                                 .contains = "mine",
                                                 .count = 1});
    FINE(call(SYNC, dibs_lock_acquire_async, mine));
    assert_true(ts_rule_wait_done(px, id, 1, TS_SOON));
    FINE(dibs_lock_owner_text(mine, owner, text, sizeof text));
    FINE(dibs_client_who(client, &who, 1, count_who, &found));
    assert_int_equal(found, 1);
    FINE(call(SYNC, dibs_lock_release_async, mine));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_strays_twice),
        KIT_TEST(test_strays_ahead),
        KIT_TEST(test_strays_in_one_write),
        KIT_TEST(test_strays_before_a_question),
    };

    return KIT_RUN("strays", tests);
}
