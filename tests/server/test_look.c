/* SPDX-License-Identifier: MIT
 *
 * test_look.c - looking at locks, one or all, and breaking them.
 */
#include "server/kit.h"

#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

/* ---- one lock ---------------------------------------------------------- */

static void test_look_info(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *seen = kit_lock(d, "l");
    char owner[DIBS_OWNER_MAX];
    dibs_lock_info info;

    (void)state;
    memset(&info, 0x5a, sizeof info);
    info.size = sizeof info;
    FINE(dibs_lock_info_get(seen, &info));
    assert_false(info.locked);
    assert_int_equal(info.mode, DIBS_MODE_NONE);
    assert_int_equal(info.ttl_ms, 0);
    assert_int_equal(info.holds, 0);
    assert_int_equal(info.owners, 0);
    assert_int_equal(info.waiters, 0);
    assert_string_equal(info.owner, "");

    for (int i = 0; i < 3; i++)
        FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 60000)));
    FINE(dibs_lock_owner_text(l, 0, owner, sizeof owner));
    FINE(dibs_lock_info_get(seen, &info));
    assert_true(info.locked);
    assert_int_equal(info.mode, DIBS_MODE_EXCLUSIVE);
    assert_in_range(info.ttl_ms, 30000, 60000);
    assert_int_equal(info.holds, 3);
    assert_int_equal(info.owners, 1);
    assert_string_equal(info.owner, owner);
    assert_int_equal(info.size, sizeof info);
    dibs_lock_free(l);
    dibs_lock_free(seen);
    kit_close(c);
    kit_close(d);
}

/* Locks that others made, also ones that we would not make. */
static void test_look_info_of_strangers(void **state)
{
    static char long_owner[300];
    static const struct {
        const char *set; /* NULL: the long owner */
        int64_t ttl_ms, holds;
        size_t owners;
        dibs_mode mode;
        const char *owner;
    } rows[] = {
        {"HSET l " STRANGER " 2", -1, 2, 1, DIBS_MODE_EXCLUSIVE, STRANGER},
        {"HSET l mode read " STRANGER " 1 " STRANGER "8 4", -1, 1, 2,
         DIBS_MODE_READ, STRANGER},
        {"HSET l mode write " STRANGER ":write 3", -1, 3, 1, DIBS_MODE_WRITE,
         STRANGER ":write"},
        {NULL, -1, 7, 1, DIBS_MODE_EXCLUSIVE, long_owner},
    };
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    memset(long_owner, 'x', sizeof long_owner - 1);
    memcpy(long_owner, STRANGER ":", strlen(STRANGER ":"));
    for (size_t i = 0; i < COUNT(rows); i++) {
        dibs_lock_info info = DIBS_LOCK_INFO_INIT;

        if (rows[i].set)
            ts_ok(srv, rows[i].set);
        else
            ts_ok(srv, "HSET l %s 7", long_owner);
        FINE(dibs_lock_info_get(l, &info));
        if (!info.locked || info.ttl_ms != rows[i].ttl_ms ||
            info.holds != rows[i].holds || info.owners != rows[i].owners ||
            info.mode != rows[i].mode ||
            strncmp(info.owner, rows[i].owner, DIBS_OWNER_MAX - 1) != 0)
            fail_msg("row %zu: ttl %lld holds %lld owners %zu mode %d %s", i,
                     (long long)info.ttl_ms, (long long)info.holds, info.owners,
                     info.mode, info.owner);
        assert_true(strlen(info.owner) < DIBS_OWNER_MAX);
        ts_ok(srv, "DEL l");
    }
    dibs_lock_free(l);
    kit_close(c);
}

/* A newer program's struct is longer; what we do not know we do not touch. */
static void test_look_info_longer_struct(void **state)
{
    struct {
        dibs_lock_info info;
        unsigned char more[64];
    } out;
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    memset(&out, 0x5a, sizeof out);
    out.info.size = sizeof out;
    FINE(dibs_lock_info_get(l, &out.info));
    assert_false(out.info.locked);
    assert_int_equal(out.info.size, sizeof out);
    for (size_t i = 0; i < sizeof out.more; i++)
        assert_int_equal(out.more[i], 0x5a);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- force ------------------------------------------------------------- */

static void test_look_force(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_client *d = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock *breaker = kit_lock(d, "l");
    bool was = true;

    (void)state;
    FINE(dibs_lock_force_release(breaker, &was));
    assert_false(was);
    FINE(dibs_lock_force_release(breaker, NULL));

    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_force_release(breaker, &was));
    assert_true(was);
    assert_false(ts_exists(srv, "l"));
    /* The holder finds out when it gives back, each level of it. No lease has
     * ended, and the text does not say so. */
    assert_null(strstr(dibs_strerror(DIBS_ERR_LOST), "lease ended"));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_acquire(l, NULL)); /* and starts again */
    assert_int_equal(kit_count(l, "l", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    dibs_lock_free(breaker);
    kit_close(c);
    kit_close(d);
}

/* Broken by the client whose owner holds it: that one knows at once. */
static void test_look_force_own(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_owner owner = dibs_owner_new(c);
    struct lost lost = {0};
    bool was = false;

    (void)state;
    FINE(dibs_lock_acquire(
        l, DIBS_LOCK_OPTS(.owner = owner, .on_lost = kit_lose, .arg = &lost)));
    FINE(dibs_lock_force_release(l, &was));
    assert_true(was);
    assert_int_equal(dibs_lock_state(l, owner), DIBS_LOST);
    assert_int_equal(dibs_lock_holds(l, owner), 0);
    TS_WAIT(atomic_load(&lost.times) == 1);
    assert_string_equal(lost.lock, "l");
    assert_int_equal(lost.owner, owner);
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = owner)), DIBS_ERR_LOST);
    assert_int_equal(dibs_lock_state(l, owner), DIBS_NOT_HELD);
    dibs_lock_free(l);
    kit_close(c);
    assert_int_equal(atomic_load(&lost.times), 1);
}

static void test_look_force_stranger(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    bool was = false;

    (void)state;
    ts_ok(srv, "HSET l %s 3", STRANGER);
    FINE(dibs_lock_force_release(l, &was));
    assert_true(was);
    assert_false(ts_exists(srv, "l"));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_look_force_owner(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    bool was = true;

    (void)state;
    FINE(dibs_lock_force_release_owner(l, STRANGER, &was));
    assert_false(was);
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_force_release_owner(l, STRANGER, &was));
    assert_false(was);
    FINE(dibs_lock_force_release_owner(l, STRANGER, NULL));
    assert_int_equal(kit_count(l, "l", 0), 1); /* untouched */
    assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD);
    FINE(dibs_lock_info_get(l, &info));
    FINE(dibs_lock_force_release_owner(l, info.owner, &was));
    assert_true(was);
    assert_false(ts_exists(srv, "l"));
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c);
}

/* ---- all locks --------------------------------------------------------- */

struct seen {
    unsigned calls;
    unsigned stop_after; /* 0 = never */
    char names[512];     /* each with a ; behind it, in no order */
    bool bad;
};

static bool see(const char *name, size_t len, const dibs_lock_info *info,
                void *arg)
{
    struct seen *s = arg;

    s->calls++;
    if (name[len] != '\0' || !info->locked || info->holds < 1 ||
        info->owners != 1 || !strchr(info->owner, ':'))
        s->bad = true;
    if (strlen(s->names) + len + 2 < sizeof s->names && strlen(name) == len) {
        strcat(s->names, name);
        strcat(s->names, ";");
    }
    return s->calls != s->stop_after;
}

static void test_look_list(void **state)
{
    static const char *const names[] = {"a", "ab", "job:1", "job:2", "b*"};
    static const struct {
        const char *pattern;
        unsigned want;
        const char *one; /* among them */
    } rows[] = {
        {NULL, 7, "a;"},        {"*", 7, "ab;"},   {"job:*", 2, "job:1;"},
        {"a", 1, "a;"},         {"a?", 1, "ab;"},  {"nothing", 0, ""},
        {"b\\*", 1, "b*;"},     {"[ab]", 1, "a;"}, {"", 0, ""},
        {"minus", 1, "minus;"},
    };
    dibs_client *c = kit_open(NULL);
    dibs_lock *locks[COUNT(names)];
    dibs_lock *with_nul;

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        locks[i] = kit_lock(c, names[i]);
        FINE(dibs_lock_acquire(locks[i], NULL));
    }
    FINE(dibs_lock_new_bytes(c, "x\0y", 3, &with_nul));
    FINE(dibs_lock_acquire(with_nul, NULL));
    ts_ok(srv, "SET a_string 1");
    ts_ok(srv, "RPUSH a_list 1");
    ts_ok(srv, "HSET a_hash field 1");
    ts_ok(srv, "HSET minus 8743c9c0-0795-4907-87fd-6c719a6b4586:-7 1");
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct seen s = {0};

        FINE(dibs_client_list(c, rows[i].pattern, see, &s));
        if (s.calls != rows[i].want || s.bad || !strstr(s.names, rows[i].one))
            fail_msg("row %zu: %u: %s", i, s.calls, s.names);
    }
    struct seen few = {.stop_after = 2};
    FINE(dibs_client_list(c, NULL, see, &few));
    assert_int_equal(few.calls, 2);
    for (size_t i = 0; i < COUNT(names); i++)
        dibs_lock_free(locks[i]);
    dibs_lock_free(with_nul);
    ts_ok(srv, "DEL a_string a_list a_hash minus");
    kit_close(c);
}

/* More than a page of them, and more that are no locks. */
static void test_look_list_many(void **state)
{
    enum { LOCKS = 700, OTHERS = 1500 };
    dibs_client *c = kit_open(NULL);
    struct seen s = {0};

    (void)state;
    for (int i = 0; i < LOCKS; i++)
        ts_ok(srv, "HSET lock:%d %s 1", i, STRANGER);
    for (int i = 0; i < OTHERS; i++)
        ts_ok(srv, "SET other:%d 1", i);
    FINE(dibs_client_list(c, "lock:*", see, &s));
    assert_true(s.calls >= LOCKS); /* a page may repeat a name */
    assert_false(s.bad);
    ts_ok(srv, "FLUSHALL");
    s.calls = 0;
    FINE(dibs_client_list(c, NULL, see, &s));
    assert_int_equal(s.calls, 0);
    kit_close(c);
}

/* The client ends while its locks are listed, by the very function that is
 * shown them. */
static bool close_inside(const char *name, size_t len,
                         const dibs_lock_info *info, void *arg)
{
    (void)name, (void)len, (void)info;
    return dibs_client_close(arg, 0) != DIBS_OK;
}

static void test_look_list_and_close(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "l");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_client_list(c, NULL, close_inside, c));
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_CLOSED);
    dibs_lock_free(l);
    kit_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_look_info),
        KIT_TEST(test_look_info_of_strangers),
        KIT_TEST(test_look_info_longer_struct),
        KIT_TEST(test_look_force),
        KIT_TEST(test_look_force_own),
        KIT_TEST(test_look_force_stranger),
        KIT_TEST(test_look_force_owner),
        KIT_TEST(test_look_list),
        KIT_TEST(test_look_list_many),
        KIT_TEST(test_look_list_and_close),
    };
    return KIT_RUN("server.look", tests);
}
