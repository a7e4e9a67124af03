/* SPDX-License-Identifier: MIT
 *
 * test_foreign.c - a hash that is no lock stands where a lock should be. Every
 * call says so at once, and the hash stays as it is. And a full server: every
 * release works there, of every kind.
 */
#include "server/kit.h"

#define STRANGER "1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7"

typedef dibs_err new_fn(dibs_client *, const char *, dibs_lock **);

static const struct {
    const char *name;
    new_fn *make;
} kinds[] = {
    {"plain", dibs_lock_new},
    {"fair", dibs_fair_lock_new},
    {"read", dibs_read_lock_new},
    {"write", dibs_write_lock_new},
};

/* ---- data of an application -------------------------------------------- */

static const char *const hashes[] = {
    "HSET l name bob",
    "HSET l price 5",
    "HSET l name bob mode read",
    "HSET l name bob mode write",
    "HSET l mode dark",
    "HSET l mode read",
    "HSET l " STRANGER " x",
    "HSET l " STRANGER " 1 name bob",
    "HSET l mode read " STRANGER " 1 name bob",
    "HSET l mode write " STRANGER ":write 1 name bob",
};

static bool never(const char *owner, dibs_mode mode, int64_t holds,
                  int64_t left_ms, void *arg)
{
    (void)mode, (void)holds, (void)left_ms, (void)arg;
    fail_msg("%s is no holder", owner);
    return false;
}

static void refuse_all(dibs_lock *l, dibs_client *c)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;
    dibs_lock *both[2] = {l, kit_lock(c, "other")}, *group;
    struct told t = {0};

    WANT(dibs_lock_try(l, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_acquire(l, NULL), DIBS_ERR_WRONGTYPE);
    FINE(dibs_lock_acquire_async(l, NULL, kit_tell, &t));
    WANT(kit_answer(&t), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    WANT(dibs_lock_info_get(l, &info), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_holders(l, never, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_force_release(l, NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_force_release_owner(l, "name", NULL), DIBS_ERR_WRONGTYPE);
    WANT(dibs_lock_force_release_owner(l, STRANGER, NULL), DIBS_ERR_WRONGTYPE);
    FINE(dibs_multi_lock_new(both, 2, &group));
    WANT(dibs_lock_acquire(group, NULL), DIBS_ERR_WRONGTYPE);
    dibs_lock_free(group);
    dibs_lock_free(both[1]);
}

static bool not_that(const char *name, size_t len, const dibs_lock_info *info,
                     void *arg)
{
    (void)len, (void)info, (void)arg;
    fail_msg("%s is no lock", name);
    return false;
}

static void test_foreign_hash(void **state)
{
    dibs_client *c = kit_open(NULL);

    (void)state;
    for (size_t i = 0; i < COUNT(kinds) * COUNT(hashes); i++) {
        dibs_lock *l;

        FINE(kinds[i % COUNT(kinds)].make(c, "l", &l));
        ts_ok(srv, hashes[i / COUNT(kinds)]);
        char *before = ts_str(srv, "DUMP l");
        refuse_all(l, c);
        FINE(dibs_client_list(c, NULL, not_that, NULL));
        char *after = ts_str(srv, "DUMP l");
        assert_string_equal(before, after);
        assert_int_equal(ts_pttl(srv, "l"), -1);
        assert_int_equal(ts_nkeys(srv), 1); /* nothing beside it, either */
        free(before);
        free(after);
        ts_ok(srv, "DEL l");
        FINE(dibs_lock_acquire(l, NULL)); /* and it can be a lock again */
        FINE(dibs_lock_release(l, NULL));
        dibs_lock_free(l);
    }
    kit_close(c);
}

/* An application writes into the hash of a lock that is held, or takes its
 * place: what it wrote stays. */
static void test_foreign_hash_later(void **state)
{
    dibs_client *c = kit_open(NULL);

    (void)state;
    for (size_t i = 0; i < 2 * COUNT(kinds); i++) {
        bool instead = i % 2;
        dibs_lock *l;

        FINE(kinds[i / 2].make(c, "l", &l));
        FINE(dibs_lock_acquire(l, NULL));
        if (instead)
            ts_ok(srv, "DEL l");
        ts_ok(srv, "HSET l name bob");
        WANT(dibs_lock_release(l, NULL), instead ? DIBS_ERR_LOST : DIBS_OK);
        char *name = ts_hget(srv, "l", "name");
        assert_string_equal(name, "bob");
        free(name);
        WANT(dibs_lock_try(l, NULL), DIBS_ERR_WRONGTYPE);
        ts_ok(srv, "DEL l");
        dibs_lock_free(l);
    }
    kit_close(c);
}

/* ---- a full server ----------------------------------------------------- */

#define DEEP 4

static void test_full_server(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);

    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        dibs_lock *l, *other;

        FINE(kinds[i].make(c, "l", &l));
        FINE(kinds[i].make(d, "l", &other));
        for (int n = 0; n < DEEP; n++)
            FINE(dibs_lock_acquire(l, NULL));
        ts_config_set(srv, "maxmemory", "1");
        WANT(dibs_lock_acquire(l, NULL), DIBS_ERR_SERVER);
        for (int n = DEEP - 1; n > 0; n--) {
            FINE(dibs_lock_release(l, NULL));
            assert_int_equal(dibs_lock_holds(l, 0), n);
            dibs_lock_info info = DIBS_LOCK_INFO_INIT;
            FINE(dibs_lock_info_get(other, &info));
            assert_int_equal(info.holds, n);
        }
        FINE(dibs_lock_release(l, NULL));
        assert_int_equal(ts_nkeys(srv), 0);
        if (kinds[i].make != dibs_fair_lock_new) /* it may get through */
            WANT(dibs_lock_try(other, NULL), DIBS_ERR_SERVER);
        ts_config_set(srv, "maxmemory", "0");
        FINE(dibs_lock_acquire(other, NULL));
        FINE(dibs_lock_release(other, NULL));
        dibs_lock_free(l);
        dibs_lock_free(other);
    }
    kit_close(c);
    kit_close(d);
}

/* A writer that reads, too, gives back what it wrote under, then what it reads
 * under, both several times. */
static void test_full_server_downgrade(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *r, *w, *other;

    (void)state;
    FINE(dibs_read_lock_new(c, "l", &r));
    FINE(dibs_write_lock_new(c, "l", &w));
    FINE(dibs_read_lock_new(d, "l", &other));
    FINE(dibs_lock_acquire(w, NULL));
    FINE(dibs_lock_acquire(w, NULL));
    FINE(dibs_lock_acquire(r, NULL));
    FINE(dibs_lock_acquire(r, NULL));
    ts_config_set(srv, "maxmemory", "1");
    FINE(dibs_lock_release(r, NULL));
    FINE(dibs_lock_release(w, NULL));
    FINE(dibs_lock_release(w, NULL));
    assert_int_equal(dibs_lock_state(r, 0), DIBS_HELD);
    ts_config_set(srv, "maxmemory", "0");
    FINE(dibs_lock_try(other, NULL)); /* others may read */
    ts_config_set(srv, "maxmemory", "1");
    FINE(dibs_lock_release(r, NULL));
    FINE(dibs_lock_release(other, NULL));
    assert_int_equal(ts_nkeys(srv), 0);
    ts_config_set(srv, "maxmemory", "0");
    dibs_lock_free(r);
    dibs_lock_free(w);
    dibs_lock_free(other);
    kit_close(c);
    kit_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_foreign_hash),
        KIT_TEST(test_foreign_hash_later),
        KIT_TEST(test_full_server),
        KIT_TEST(test_full_server_downgrade),
    };

    return KIT_RUN("foreign", tests);
}
