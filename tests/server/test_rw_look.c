/* SPDX-License-Identifier: MIT
 *
 * test_rw_look.c - the read-write lock: looking at it, breaking it, closing
 * with it, and names that are used for two kinds.
 */
#include "server/rw_kit.h"

/* ---- looking and breaking ---------------------------------------------- */

struct seen {
    int readers, writers, over;
    int64_t holds, least_ms, most_ms;
};

static bool see(const char *owner, dibs_mode mode, int64_t holds,
                int64_t remaining_ms, void *arg)
{
    struct seen *s = arg;

    (void)owner;
    s->readers += mode == DIBS_MODE_READ;
    s->writers += mode == DIBS_MODE_WRITE;
    s->over += remaining_ms == -2;
    s->holds += holds;
    if (remaining_ms > s->most_ms)
        s->most_ms = remaining_ms;
    if (s->least_ms == 0 || remaining_ms < s->least_ms)
        s->least_ms = remaining_ms;
    return true;
}

static void test_rw_look(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    dibs_owner other = dibs_owner_new(c);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    struct seen s = {0};

    (void)state;
    FINE(dibs_lock_info_get(h.r, &info));
    assert_false(info.locked);
    FINE(dibs_lock_holders(h.r, see, &s));
    assert_int_equal(s.readers + s.writers, 0);

    FINE(dibs_lock_acquire(h.r, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    FINE(dibs_lock_acquire(h.r, NULL));
    FINE(dibs_lock_acquire(h.r,
                           DIBS_LOCK_OPTS(.owner = other, .lease_ms = 60000)));
    FINE(dibs_lock_info_get(h.r, &info));
    assert_true(info.locked);
    FINE(dibs_lock_info_get(h.w, &info));
    assert_false(info.locked);
    assert_int_equal(info.mode, DIBS_MODE_READ);
    assert_int_equal(info.kind, DIBS_KIND_RW);
    assert_int_equal(info.owners, 2);
    assert_true(info.owner[0] != '\0' && info.ttl_ms > 0);
    FINE(dibs_lock_holders(h.w, see, &s));
    assert_int_equal(s.readers, 2);
    assert_int_equal(s.writers, 0);
    assert_int_equal(s.holds, 3);
    assert_in_range(s.least_ms, 1, 60000);
    assert_in_range(s.most_ms, LONG_MS / 2, LONG_MS);
    FINE(dibs_lock_release(h.r, OWNED(other)));
    FINE(dibs_lock_release(h.r, NULL));
    FINE(dibs_lock_release(h.r, NULL));

    s = (struct seen){0};
    FINE(dibs_lock_acquire(h.w, NULL));
    FINE(dibs_lock_info_get(h.r, &info));
    assert_false(info.locked);
    assert_int_equal(info.owners, 1);
    FINE(dibs_lock_acquire(h.r, NULL)); /* a writer that reads counts twice */
    FINE(dibs_lock_info_get(h.w, &info));
    assert_true(info.locked);
    assert_int_equal(info.owners, 2);
    FINE(dibs_lock_info_get(h.r, &info));
    assert_false(info.locked);
    assert_int_equal(info.mode, DIBS_MODE_WRITE);
    assert_int_equal(info.owners, 2);
    FINE(dibs_lock_holders(h.r, see, &s));
    assert_int_equal(s.readers, 1);
    assert_int_equal(s.writers, 1);
    kit_halves_free(&h);
    kit_close(c);
}

/* A reader that crashed is shown as what it is. */
static void test_rw_look_dead_reader(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    struct seen s = {0};

    (void)state;
    FINE(dibs_lock_acquire(h.r, NULL));
    ts_ok(srv, "HSET l %s 2", STRANGER);
    FINE(dibs_lock_holders(h.r, see, &s));
    assert_int_equal(s.readers, 2);
    assert_int_equal(s.over, 1);
    FINE(dibs_lock_release(h.r, NULL));
    kit_halves_free(&h);
    kit_close(c);
}

/* What a force release of either half ends, and what it says. */
static void test_rw_force(void **state)
{
    static const struct {
        const char *did;
        char half;
        bool was;
        const char *mode;       /* then */
        dibs_err reads, writes; /* what a release of each half says then */
    } rows[] = {
        {"", 'r', false, NULL, DIBS_ERR_NOT_OWNER, DIBS_ERR_NOT_OWNER},
        {"", 'w', false, NULL, DIBS_ERR_NOT_OWNER, DIBS_ERR_NOT_OWNER},
        {"r", 'r', true, NULL, DIBS_ERR_LOST, DIBS_ERR_NOT_OWNER},
        {"r", 'w', false, "read", DIBS_OK, DIBS_ERR_NOT_OWNER},
        {"w", 'r', false, "write", DIBS_ERR_NOT_OWNER, DIBS_OK},
        {"w", 'w', true, NULL, DIBS_ERR_NOT_OWNER, DIBS_ERR_LOST},
        {"wr", 'r', true, "write", DIBS_ERR_LOST, DIBS_OK},
        {"wr", 'w', true, "read", DIBS_OK, DIBS_ERR_LOST},
    };
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    struct halves h = kit_halves(c), breaker = kit_halves(d);

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool was = !rows[i].was;
        dibs_owner o = dibs_owner_new(c);
        for (const char *p = rows[i].did; *p; p++)
            FINE(kit_step(&h, o, *p));
        FINE(dibs_lock_force_release(
            rows[i].half == 'r' ? breaker.r : breaker.w, &was));
        assert_int_equal(was, rows[i].was);
        kit_state(rows[i].did, rows[i].mode, 1);
        WANT(kit_step(&h, o, 'R'), rows[i].reads);
        WANT(kit_step(&h, o, 'W'), rows[i].writes);
        assert_int_equal(ts_nkeys(srv), 0);
    }
    kit_halves_free(&h);
    kit_halves_free(&breaker);
    kit_close(c);
    kit_close(d);
}

/* All readers go together; with a name, only if that one is among them. */
static void test_rw_force_many(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    struct halves h = kit_halves(c), breaker = kit_halves(d);
    dibs_owner o[3] = {dibs_owner_new(c), dibs_owner_new(c), dibs_owner_new(c)};
    char name[DIBS_OWNER_MAX];
    bool was = true;

    (void)state;
    for (int named = 0; named < 2; named++) {
        for (int i = 0; i < 3; i++)
            FINE(kit_step(&h, o[i], 'r'));
        FINE(dibs_lock_owner_text(h.r, o[1], name, sizeof name));
        FINE(dibs_lock_force_release_owner(breaker.r, STRANGER, &was));
        assert_false(was);
        kit_state("a stranger", "read", 3);
        FINE(named ? dibs_lock_force_release_owner(breaker.r, name, &was)
                   : dibs_lock_force_release(breaker.r, &was));
        assert_true(was);
        assert_int_equal(ts_nkeys(srv), 0);
        for (int i = 0; i < 3; i++)
            WANT(kit_step(&h, o[i], 'R'), DIBS_ERR_LOST);
    }
    kit_halves_free(&h);
    kit_halves_free(&breaker);
    kit_close(c);
    kit_close(d);
}

/* Closing gives back everything, read keys included. */
static void test_rw_close(void **state)
{
    static const char *const did[] = {"r", "rr", "w", "ww", "wr", "wrW"};

    (void)state;
    for (size_t i = 0; i < COUNT(did); i++) {
        dibs_client *c = kit_open(NULL);
        struct halves h = kit_halves(c);
        for (const char *p = did[i]; *p; p++)
            FINE(kit_step(&h, 0, *p));
        if (did[i][0] == 'r')
            FINE(kit_step(&h, dibs_owner_new(c), 'r'));
        kit_halves_free(&h);
        kit_close(c);
        if (ts_nkeys(srv) != 0)
            fail_msg("%s, then close: %lld keys", did[i], ts_nkeys(srv));
    }
}

/* ---- one name for two kinds -------------------------------------------- */

typedef dibs_err new_fn(dibs_client *c, const char *name, dibs_lock **out);

static new_fn *const kinds[] = {dibs_lock_new, dibs_fair_lock_new,
                                dibs_read_lock_new, dibs_write_lock_new};

/* All fields of the lock, as one text. */
static char *fields(void)
{
    redisReply *r = ts_cmd(srv, "HGETALL l");
    char *all = ts_strdup("");

    for (size_t i = 0; r && i < r->elements; i++) {
        char *longer = ts_text("%s %s", all, r->element[i]->str);
        free(all);
        all = longer;
    }
    freeReplyObject(r);
    return all;
}

/* It is refused, and all is as it was; also for the owner who has it. */
static void refused(dibs_client *c, dibs_client *d, int held, int wanted)
{
    dibs_lock *has = NULL, *wants = NULL, *elsewhere = NULL;

    FINE(kinds[held](c, "l", &has));
    FINE(kinds[wanted](c, "l", &wants));
    FINE(kinds[wanted](d, "l", &elsewhere));
    FINE(dibs_lock_acquire(has, NULL));
    char *before = fields();
    WANT(dibs_lock_try(wants, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_acquire(wants, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_try(elsewhere, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_acquire(elsewhere, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_release(wants, NULL), DIBS_ERR_NOT_OWNER);
    char *after = fields();
    assert_string_equal(before, after);
    assert_int_equal(ts_nkeys(srv), held == 2 ? 2 : 1);
    FINE(dibs_lock_release(has, NULL));
    assert_int_equal(ts_nkeys(srv), 0);
    free(before);
    free(after);
    dibs_lock_free(has);
    dibs_lock_free(wants);
    dibs_lock_free(elsewhere);
}

static void test_rw_one_name_two_kinds(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);

    (void)state;
    for (int held = 0; held < 4; held++)
        for (int wanted = 0; wanted < 4; wanted++)
            if ((held < 2) != (wanted < 2))
                refused(c, d, held, wanted);
    kit_close(c);
    kit_close(d);
}

/* Breaking a lock of another kind by mistake. */
static void test_rw_force_another_kind(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    dibs_lock *plain = kit_lock(c, "l");
    bool was = true;

    (void)state;
    FINE(dibs_lock_acquire(plain, NULL));
    WANT(dibs_lock_force_release(h.r, &was), DIBS_ERR_WRONGTYPE);
    FINE(dibs_lock_force_release(h.w, &was));
    assert_false(was);
    assert_int_equal(kit_count(plain, "l", 0), 1);
    FINE(dibs_lock_release(plain, NULL));
    FINE(dibs_lock_acquire(h.r, NULL));
    WANT(dibs_lock_force_release(plain, &was), DIBS_ERR_WRONGTYPE);
    assert_int_equal(kit_count(h.r, "l", 0), 1);
    FINE(dibs_lock_release(h.r, NULL));
    dibs_lock_free(plain);
    kit_halves_free(&h);
    kit_close(c);
}

static void test_rw_not_a_lock(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);

    (void)state;
    ts_ok(srv, "SET l x");
    WANT(dibs_lock_try(h.r, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_acquire(h.w, NULL), DIBS_ERR_WRONGTYPE);
    char *value = ts_str(srv, "GET l");
    assert_string_equal(value, "x");
    free(value);
    ts_ok(srv, "DEL l");
    kit_halves_free(&h);
    kit_close(c);
}

/* A plain and a fair lock of one name are one lock on the server: who has the
 * one is refused the other, and keeps what it has. */
static void test_rw_plain_and_fair(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *plain = kit_lock(c, "l"), *other = kit_lock(d, "l"), *fair;

    (void)state;
    FINE(dibs_fair_lock_new(c, "l", &fair));
    FINE(dibs_lock_acquire(plain, NULL));
    WANT(dibs_lock_acquire(fair, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_release(fair, NULL), DIBS_ERR_NOT_OWNER);
    WANT(dibs_lock_try(other, NULL), DIBS_ERR_BUSY);
    FINE(dibs_lock_release(plain, NULL));
    dibs_lock_free(plain);
    dibs_lock_free(fair);
    dibs_lock_free(other);
    kit_close(c);
    kit_close(d);
}

/* A number that was retired by another lock: the halves still know each other,
 * and nobody waits for itself. */
static void test_rw_number_retired(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct halves h = kit_halves(c);
    dibs_lock *m = kit_lock(c, "m");

    (void)state;
    FINE(dibs_lock_acquire(h.w, NULL));
    FINE(dibs_lock_acquire(m, NULL));
    FINE(dibs_lock_release(m, DIBS_LOCK_OPTS(.keep_ms = 1)));
    FINE(dibs_lock_try(h.r, NULL));
    FINE(dibs_lock_release(h.w, NULL));
    WANT(dibs_lock_try(h.w, NULL), DIBS_ERR_UPGRADE);
    FINE(dibs_lock_release(h.r, NULL));
    TS_WAIT(ts_nkeys(srv) == 0);
    dibs_lock_free(m);
    kit_halves_free(&h);
    kit_close(c);
}

/* Keeping the write lock taken must not cut the key under its owner's reading.
 */
static void test_rw_keep_while_reading(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    struct halves h = kit_halves(c), other = kit_halves(d);

    (void)state;
    FINE(dibs_lock_acquire(h.w, NULL));
    FINE(dibs_lock_acquire(h.r, NULL));
    FINE(dibs_lock_release(h.w, DIBS_LOCK_OPTS(.keep_ms = 1)));
    assert_true(ts_pttl(srv, "l") > 1000);
    WANT(dibs_lock_try(other.w, NULL), DIBS_ERR_BUSY);
    FINE(dibs_lock_release(h.r, NULL));
    kit_halves_free(&h);
    kit_halves_free(&other);
    kit_close(c);
    kit_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_rw_look),
        KIT_TEST(test_rw_look_dead_reader),
        KIT_TEST(test_rw_force),
        KIT_TEST(test_rw_force_many),
        KIT_TEST(test_rw_close),
        KIT_TEST(test_rw_one_name_two_kinds),
        KIT_TEST(test_rw_force_another_kind),
        KIT_TEST(test_rw_not_a_lock),
        KIT_TEST(test_rw_plain_and_fair),
        KIT_TEST(test_rw_number_retired),
        KIT_TEST(test_rw_keep_while_reading),
    };

    return KIT_RUN("rw_look", tests);
}
