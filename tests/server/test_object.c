/* SPDX-License-Identifier: MIT
 *
 * test_object.c - what is under a name, of whatever kind; and the list of all.
 */
#include "server/kit.h"

#define LEASE 600000

/* Nothing is left of any of them. */
static void forget_all(dibs_client *c)
{
    kit_close(c);
    ts_ok(srv, "FLUSHALL");
}

static dibs_lock_info look_at(dibs_client *c, const char *name)
{
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    FINE(dibs_client_look(c, name, &info));
    return info;
}

/* Kinds that are hashes: nothing, a lock, a read-write lock, a stranger's. */
static void test_look_finds_locks(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a"), *f = NULL, *r = NULL;
    dibs_lock_info info = look_at(c, "a");

    (void)state;
    assert_int_equal(info.kind, DIBS_KIND_NONE);
    assert_false(info.locked);
    FINE(dibs_lock_acquire(l, NULL));
    info = look_at(c, "a");
    assert_int_equal(info.kind, DIBS_KIND_LOCK);
    assert_int_equal(info.mode, DIBS_MODE_EXCLUSIVE);
    assert_int_equal(info.token, 0);
    assert_non_null(strstr(info.owner, dibs_client_id(c)));
    FINE(dibs_fenced_lock_new(c, "f", &f));
    FINE(dibs_lock_acquire(f, NULL));
    info = look_at(c, "f");
    assert_int_equal(info.kind, DIBS_KIND_LOCK);
    int64_t token = 0;
    FINE(dibs_lock_token(f, 0, &token));
    assert_true(info.token == token);
    FINE(dibs_read_lock_new(c, "r", &r));
    FINE(dibs_lock_acquire(r, NULL));
    info = look_at(c, "r");
    assert_int_equal(info.kind, DIBS_KIND_RW);
    assert_int_equal(info.mode, DIBS_MODE_READ);
    ts_ok(srv, "RPUSH list 1");
    assert_int_equal(look_at(c, "list").kind, DIBS_KIND_OTHER);
    ts_ok(srv, "SET text abc");
    assert_int_equal(look_at(c, "text").kind, DIBS_KIND_OTHER);
    ts_ok(srv, "HSET hash a b");
    WANT(dibs_client_look(c, "hash", &info), DIBS_ERR_WRONGTYPE);
    dibs_lock_free(l);
    dibs_lock_free(f);
    dibs_lock_free(r);
    forget_all(c);
}

/* Kinds that are numbers, in use and not. */
static void test_look_finds_numbers(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = NULL;
    dibs_semaphore *s = NULL;
    dibs_latch *la = NULL;

    (void)state;
    FINE(dibs_slots_lock_new(c, "s", 3, &l));
    FINE(dibs_slots_set(l, 3));
    dibs_lock_info info = look_at(c, "s");
    assert_int_equal(info.kind, DIBS_KIND_COUNTER);
    assert_int_equal(info.free_slots, 3);
    FINE(dibs_lock_acquire(l, NULL));
    info = look_at(c, "s");
    assert_int_equal(info.kind, DIBS_KIND_SLOTS);
    assert_int_equal(info.slots, 3);
    assert_int_equal(info.free_slots, 2);
    assert_non_null(strstr(info.owner, dibs_client_id(c)));
    FINE(dibs_semaphore_new(c, "p", &s));
    FINE(dibs_semaphore_set(s, 5, NULL));
    FINE(dibs_semaphore_acquire(
        s, DIBS_SEMAPHORE_OPTS(.permits = 2, .lease_ms = LEASE)));
    info = look_at(c, "p");
    assert_int_equal(info.kind, DIBS_KIND_SEMAPHORE);
    assert_true(info.locked);
    assert_int_equal(info.free_slots, 3);
    assert_int_equal(info.owners, 1);
    assert_true(info.ttl_ms > LEASE / 2 && info.ttl_ms <= LEASE);
    FINE(dibs_latch_new(c, "l", &la));
    FINE(dibs_latch_set(la, 4, NULL, NULL));
    info = look_at(c, "l");
    assert_int_equal(info.kind, DIBS_KIND_LATCH);
    assert_true(info.locked);
    assert_int_equal(info.left, 4);
    assert_int_equal(info.ttl_ms, -1);
    dibs_lock_free(l);
    dibs_semaphore_free(s);
    dibs_latch_free(la);
    forget_all(c);
}

/* A user who may read the names only sees what these say. */
static void test_look_with_few_rights(void **state)
{
    dibs_client *all = kit_open(NULL), *c;
    dibs_lock *l = NULL;

    (void)state;
    FINE(dibs_slots_lock_new(all, "s", 3, &l));
    FINE(dibs_lock_acquire(l, NULL));
    ts_ok(srv, "ACL SETUSER some reset on >p ~s ~a &* +@all");
    c = kit_open(DIBS_CLIENT_OPTS(.user = "some", .password = "p"));
    assert_int_equal(look_at(c, "s").kind, DIBS_KIND_COUNTER);
    kit_close(c);
    ts_ok(srv, "ACL DELUSER some");
    dibs_lock_free(l);
    forget_all(all);
}

static void test_look_bad_input(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock_info info = DIBS_LOCK_INFO_INIT, no_size = {0};

    (void)state;
    WANT(dibs_client_look(NULL, "a", &info), DIBS_ERR_INVALID);
    WANT(dibs_client_look(c, NULL, &info), DIBS_ERR_INVALID);
    WANT(dibs_client_look(c, "", &info), DIBS_ERR_INVALID);
    WANT(dibs_client_look(c, "a", NULL), DIBS_ERR_INVALID);
    WANT(dibs_client_look(c, "a", &no_size), DIBS_ERR_INVALID);
    kit_close(c);
}

/* ---- the list ---------------------------------------------------------- */

struct kinds_seen {
    unsigned calls;
    char text[1024]; /* name=kind; of each */
};

static bool see_kind(const char *name, size_t len, const dibs_lock_info *info,
                     void *arg)
{
    struct kinds_seen *k = arg;
    size_t n = strlen(k->text);

    k->calls++;
    snprintf(k->text + n, sizeof k->text - n, "%.*s=%d;", (int)len, name,
             (int)info->kind);
    return true;
}

static void check_list(dibs_client *c, const char *pattern,
                       const char *const *wanted, unsigned count)
{
    struct kinds_seen k = {0};

    FINE(dibs_client_list(c, pattern, see_kind, &k));
    for (unsigned i = 0; i < count; i++)
        if (!strstr(k.text, wanted[i]))
            fail_msg("%s: no %s in %s", pattern ? pattern : "all", wanted[i],
                     k.text);
    if (k.calls != count)
        fail_msg("%s: %s", pattern ? pattern : "all", k.text);
}

/* Each by its own name, once; no key beside one is taken for a lock. */
static void test_list_has_all_kinds(void **state)
{
    static const char *const all[] = {"job:a=1;",      "job:s=3;", "job:p=4;",
                                      "job:l=5;",      "f=1;",     "b{s}=3;",
                                      "{x}:timeout=1;"};
    static const char *const jobs[] = {"job:a=1;", "job:s=3;", "job:p=4;",
                                       "job:l=5;"};
    static const char *const one[] = {"job:s=3;"};
    static const char *const braced[] = {"b{s}=3;"};
    dibs_client *c = kit_open(NULL);
    dibs_lock *locks[6] = {kit_lock(c, "job:a"), kit_lock(c, "{x}:timeout")};
    dibs_semaphore *s = NULL;
    dibs_latch *la = NULL;

    (void)state;
    FINE(dibs_fenced_lock_new(c, "f", &locks[2]));
    FINE(dibs_slots_lock_new(c, "job:s", 3, &locks[3]));
    FINE(dibs_slots_lock_new(c, "b{s}", 3, &locks[4]));
    FINE(dibs_slots_lock_new(c, "job:free", 3, &locks[5]));
    for (int i = 0; i < 6; i++)
        FINE(dibs_lock_acquire(locks[i], NULL));
    FINE(dibs_lock_release(locks[5], NULL));
    FINE(dibs_semaphore_new(c, "job:p", &s));
    FINE(dibs_semaphore_set(s, 5, NULL));
    FINE(dibs_semaphore_acquire(s, NULL));
    FINE(dibs_latch_new(c, "job:l", &la));
    FINE(dibs_latch_set(la, 4, NULL, NULL));
    ts_ok(srv, "ZADD mine:timeout 1 a"); /* an application's */
    ts_ok(srv, "ZADD {mine}:timeout 1 a");
    ts_ok(srv, "HSET {mine}:dibs_down a b");
    check_list(c, NULL, all, COUNT(all));
    check_list(c, "*", all, COUNT(all));
    check_list(c, "job:*", jobs, COUNT(jobs));
    check_list(c, "job:s", one, COUNT(one));
    check_list(c, "[^b]ob:[r-t]", one, COUNT(one));
    check_list(c, "job:[s", one, COUNT(one)); /* the set is not closed */
    check_list(c, "b*", braced, COUNT(braced));
    check_list(c, "*:timeout}", NULL, 0);
    for (int i = 0; i < 6; i++)
        dibs_lock_free(locks[i]);
    dibs_semaphore_free(s);
    dibs_latch_free(la);
    forget_all(c);
}

/* A pattern means what it means to the server. */
static void test_list_patterns_are_the_servers(void **state)
{
    static const char *const names[] = {"a",  "b",   "ab",   "abc",  "a*c",
                                        "a-", "a]c", "a\\c", "aXbX", "^a",
                                        "[a", "a?",  "aab",  "zzzb"};
    static const char *const patterns[] = {
        "a*",     "*b",    "*",       "a?c",    "[ab]",   "[^a]",
        "[a-c]*", "a\\*c", "a[*]c",   "a[]]c",  "[",      "[a",
        "[^",     "a\\",   "\\",      "a[b-]",  "?",      "??",
        "*a*b*",  "*X*X",  "a[\\]]c", "[c-a]",  "a[b-]c", "**",
        "a[b-]",  "a[\\]", "*[b]*",   "[\\^]a", "",       "a\\\\c",
    };
    dibs_client *c = kit_open(NULL);

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++)
        ts_ok(srv, "HSET %s 8743c9c0-0795-4907-87fd-6c719a6b4586:7 1",
              names[i]);
    for (size_t i = 0; i < COUNT(patterns); i++) {
        struct kinds_seen k = {0};
        const char *argv[] = {"KEYS", patterns[i]};
        redisReply *r = ts_cmdv(srv, 2, argv, NULL);

        FINE(dibs_client_list(c, patterns[i], see_kind, &k));
        if (k.calls != r->elements)
            fail_msg("'%s': %zu by the server, here %s", patterns[i],
                     r->elements, k.text);
        for (size_t j = 0; j < r->elements; j++) {
            char one[64];
            snprintf(one, sizeof one, "%s=1;", r->element[j]->str);
            if (!strstr(k.text, one))
                fail_msg("'%s': no %s in %s", patterns[i], one, k.text);
        }
        freeReplyObject(r);
    }
    forget_all(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_look_finds_locks),
        KIT_TEST(test_look_finds_numbers),
        KIT_TEST(test_look_with_few_rights),
        KIT_TEST(test_look_bad_input),
        KIT_TEST(test_list_has_all_kinds),
        KIT_TEST(test_list_patterns_are_the_servers),
    };

    return KIT_RUN("object", tests);
}
