/* SPDX-License-Identifier: MIT
 *
 * test_adopt.c - holds that change their client: left by one, adopted by
 * another, extended, released, lost.
 */
#include "server/kit.h"
#include "support/proxy.h"

#include <sys/stat.h>
#include <unistd.h>

#define LONG_MS 600000

typedef dibs_err new_fn(dibs_client *c, const char *name, dibs_lock **out);

static new_fn *const kinds[] = {dibs_lock_new, dibs_fair_lock_new,
                                dibs_read_lock_new, dibs_write_lock_new};
#define KINDS (sizeof kinds / sizeof *kinds)

static dibs_lock *lock_of(new_fn *make, dibs_client *c, const char *name)
{
    dibs_lock *l = NULL;

    FINE(make(c, name, &l));
    return l;
}

/* Takes the lock, leaves it, and closes its client. */
static void take_and_leave(new_fn *make, const char *name, int64_t lease_ms,
                           char text[DIBS_OWNER_MAX])
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = lock_of(make, c, name);

    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = lease_ms)));
    FINE(dibs_lock_owner_text(l, 0, text, DIBS_OWNER_MAX));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.leave = true)));
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    WANT(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    dibs_lock_free(l);
    kit_close(c);
    assert_true(ts_exists(srv, name));
}

static void test_every_kind_changes_hands(void **state)
{
    char text[DIBS_OWNER_MAX], again[DIBS_OWNER_MAX];

    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        take_and_leave(kinds[i], "a", LONG_MS, text);
        dibs_client *c = kit_open(NULL);
        dibs_lock *l = lock_of(kinds[i], c, "a");
        dibs_owner o = 0;
        FINE(dibs_lock_adopt(l, text, NULL, &o));
        assert_int_equal(dibs_lock_state(l, o), DIBS_HELD);
        assert_int_equal(dibs_lock_holds(l, o), 1);
        FINE(dibs_lock_owner_text(l, o, again, sizeof again));
        assert_string_equal(again, text);
        assert_true(ts_pttl(srv, "a") > LONG_MS / 2); /* never shortened */
        WANT(dibs_lock_adopt(l, text, NULL, &o), DIBS_ERR_INVALID);
        FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = o)));
        FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
        FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
        assert_false(ts_exists(srv, "a"));
        WANT(dibs_lock_adopt(l, text, NULL, &o), DIBS_ERR_NOT_OWNER);
        /* From now on the owner goes by a number of its own. */
        FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = o)));
        FINE(dibs_lock_owner_text(l, o, again, sizeof again));
        assert_string_not_equal(again, text);
        FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
        dibs_lock_free(l);
        kit_close(c);
    }
}

/* A writer's name has a word behind it, which may be left out. With a longest
 * time of its own it is renewed no further. */
static void test_writer_without_its_word(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = lock_of(dibs_write_lock_new, c, "a");
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    take_and_leave(dibs_write_lock_new, "a", LONG_MS, text);
    char *word = strstr(text, ":write");
    assert_non_null(word);
    WANT(dibs_lock_adopt(l, "a", NULL, &o), DIBS_ERR_INVALID);
    WANT(dibs_lock_adopt(l, word, NULL, &o), DIBS_ERR_INVALID);
    *word = '\0';
    FINE(dibs_lock_adopt(l, text, DIBS_LOCK_OPTS(.max_hold_ms = 10000), &o));
    FINE(dibs_lock_extend(l, DIBS_LOCK_OPTS(.owner = o, .max_hold_ms = 10000)));
    assert_true(dibs_lock_valid_ms(l, o) < 10000);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
    dibs_lock_free(l);
    kit_close(c);
}

/* What this client has it cannot adopt, and keeps. */
static void test_own_hold_is_not_adopted(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_owner_text(l, 0, text, sizeof text));
    WANT(dibs_lock_adopt(l, text, NULL, &o), DIBS_ERR_INVALID);
    assert_int_equal(o, 0);
    assert_int_equal(kit_count(l, "a", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* Adopted and renewed: it outlives the lease that it had. */
static void test_is_renewed(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "a");
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    take_and_leave(dibs_lock_new, "a", kit_lease(), text);
    FINE(dibs_lock_adopt(l, text, NULL, &o));
    long long want = ts_command_calls(srv, "pexpire") + 4;
    TS_WAIT(ts_command_calls(srv, "pexpire") >= want);
    TS_WAIT(dibs_lock_state(l, o) == DIBS_HELD);
    assert_int_equal(kit_count(l, "a", o), 1);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_close_releases_what_was_adopted(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    take_and_leave(dibs_lock_new, "a", LONG_MS, text);
    FINE(dibs_lock_adopt(l, text, NULL, &o));
    dibs_lock_free(l);
    kit_close(c);
    assert_false(ts_exists(srv, "a"));
}

static void test_loss_is_told(void **state)
{
    dibs_client *c = kit_open(DIBS_CLIENT_OPTS(.lease_ms = kit_lease()));
    dibs_lock *l = kit_lock(c, "a");
    char text[DIBS_OWNER_MAX];
    struct lost lost = {0};
    dibs_owner o = 0;

    (void)state;
    take_and_leave(dibs_lock_new, "a", LONG_MS, text);
    FINE(dibs_lock_adopt(
        l, text, DIBS_LOCK_OPTS(.on_lost = kit_lose, .arg = &lost), &o));
    ts_ok(srv, "DEL a");
    TS_WAIT(dibs_lock_extend(l, DIBS_LOCK_OPTS(.owner = o)) == DIBS_ERR_LOST);
    TS_WAIT(atomic_load(&lost.times) == 1);
    assert_int_equal(lost.owner, o);
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c);
}

/* Of a reader that was adopted only that one ends. */
static void test_other_readers_stay(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *mine = lock_of(dibs_read_lock_new, c, "a");
    dibs_lock *l = lock_of(dibs_read_lock_new, d, "a");
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    FINE(dibs_lock_acquire(mine, NULL));
    take_and_leave(dibs_read_lock_new, "a", LONG_MS, text);
    FINE(dibs_lock_adopt(l, text, NULL, &o));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
    assert_int_equal(kit_count(mine, "a", 0), 1);
    FINE(dibs_lock_release(mine, NULL));
    dibs_lock_free(mine);
    dibs_lock_free(l);
    kit_close(c);
    kit_close(d);
}

/* A writer that was adopted reads, too. */
static void test_halves_go_together(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *reader = lock_of(dibs_read_lock_new, c, "a");
    dibs_lock *writer = lock_of(dibs_write_lock_new, c, "a");
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    take_and_leave(dibs_write_lock_new, "a", LONG_MS, text);
    FINE(dibs_lock_adopt(writer, text, NULL, &o));
    FINE(dibs_lock_try(reader, DIBS_LOCK_OPTS(.owner = o)));
    WANT(dibs_lock_release(reader, DIBS_LOCK_OPTS(.owner = o, .leave = true)),
         DIBS_ERR_INVALID); /* the adopter would read while this one writes */
    FINE(dibs_lock_release(reader, DIBS_LOCK_OPTS(.owner = o)));
    dibs_lock_free(reader);
    dibs_lock_free(writer);
    kit_close(c);
}

/* It changed hands meanwhile: the next holder keeps it. */
static void test_strangers_hold_is_not_adopted(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *mine = kit_lock(c, "a"), *l = kit_lock(d, "a");
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 7;

    (void)state;
    take_and_leave(dibs_lock_new, "a", LONG_MS, text);
    ts_ok(srv, "DEL a");
    FINE(dibs_lock_acquire(mine, NULL));
    WANT(dibs_lock_adopt(l, text, NULL, &o), DIBS_ERR_NOT_OWNER);
    assert_int_equal(o, 7);
    dibs_lock_free(l);
    kit_close(d);
    assert_int_equal(kit_count(mine, "a", 0), 1);
    FINE(dibs_lock_release(mine, NULL));
    dibs_lock_free(mine);
    kit_close(c);
}

/* The owner that left it takes it anew under another name: whoever adopted the
 * old hold cannot end the new one. */
static void test_who_left_goes_by_another_name(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");
    char old[DIBS_OWNER_MAX], text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_owner_text(l, 0, old, sizeof old));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.leave = true)));
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    /* A client may adopt what it left itself. */
    FINE(dibs_lock_adopt(l, old, NULL, &o));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_owner_text(l, 0, text, sizeof text));
    assert_string_not_equal(text, old);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

/* Of several levels one is forgotten, the others go on. */
static void test_nested_is_left_once(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_acquire(l, NULL));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.leave = true)));
    assert_int_equal(dibs_lock_holds(l, 0), 1);
    FINE(dibs_lock_release(l, NULL));
    assert_false(ts_exists(srv, "a"));
    dibs_lock_free(l);
    kit_close(c);
}

static void test_group_is_left(void **state)
{
    dibs_client *c = kit_open(NULL), *d = kit_open(NULL);
    dibs_lock *m[] = {kit_lock(c, "a"), kit_lock(c, "b")}, *multi = NULL;
    const char *const names[] = {"a", "b"};
    char text[2][DIBS_OWNER_MAX];

    (void)state;
    FINE(dibs_multi_lock_new(m, 2, &multi));
    FINE(dibs_lock_acquire(multi, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    for (int i = 0; i < 2; i++)
        FINE(dibs_lock_owner_text(m[i], 0, text[i], sizeof text[i]));
    FINE(dibs_lock_release(multi, DIBS_LOCK_OPTS(.leave = true)));
    dibs_lock_free(multi);
    for (int i = 0; i < 2; i++)
        dibs_lock_free(m[i]);
    kit_close(c);
    for (int i = 0; i < 2; i++) {
        dibs_lock *l = kit_lock(d, names[i]);
        dibs_owner o = 0;
        FINE(dibs_lock_adopt(l, text[i], NULL, &o));
        FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
        dibs_lock_free(l);
    }
    kit_close(d);
}

static void test_extend(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");

    (void)state;
    WANT(dibs_lock_extend(l, NULL), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 60000)));
    FINE(dibs_lock_extend(l, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    assert_true(ts_pttl(srv, "a") > LONG_MS / 2);
    assert_true(dibs_lock_valid_ms(l, 0) > LONG_MS / 2);
    FINE(dibs_lock_extend(l, DIBS_LOCK_OPTS(.lease_ms = 60000)));
    assert_true(dibs_lock_valid_ms(l, 0) > LONG_MS / 2);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
}

struct extender {
    dibs_lock *l;
    dibs_owner owner;
    atomic_bool stop;
};

static void *extend_all_the_time(void *arg)
{
    struct extender *e = arg;

    while (!atomic_load(&e->stop))
        (void)!dibs_lock_extend(e->l, DIBS_LOCK_OPTS(.owner = e->owner));
    return NULL;
}

/* The server does not know a hold that is just given back: that is no loss. */
static void test_extend_during_release(void **state)
{
    dibs_client *c = kit_open(NULL);
    struct extender e = {.l = kit_lock(c, "l"), .owner = dibs_owner_new(c)};
    struct lost lost = {.times = 0};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, extend_all_the_time, &e), 0);
    for (int i = 0; i < 2000; i++) {
        FINE(dibs_lock_acquire(e.l, DIBS_LOCK_OPTS(.owner = e.owner,
                                                   .on_lost = kit_lose,
                                                   .arg = &lost)));
        FINE(dibs_lock_release(e.l, DIBS_LOCK_OPTS(.owner = e.owner)));
    }
    atomic_store(&e.stop, true);
    pthread_join(thread, NULL);
    dibs_lock_free(e.l);
    kit_close(c);
    assert_int_equal(atomic_load(&lost.times), 0);
}

/* The reply is lost: it is asked for again, and counts once. */
static void test_lost_reply(void **state)
{
    struct ts_proxy *p = ts_proxy_start(srv);
    dibs_client *c = kit_open_at(ts_proxy_url(p), NULL);
    dibs_lock *l = kit_lock(c, "a");
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    take_and_leave(dibs_lock_new, "a", LONG_MS, text);
    ts_proxy_rule(p, &(struct ts_rule){.action = TS_DROP_REPLY_CLOSE,
                                       .match = "EVAL*",
                                       .contains = text,
                                       .count = 1});
    FINE(dibs_lock_adopt(l, text, NULL, &o));
    /* And that of the release: the reaper ends this owner's hold, and no
     * other's. */
    ts_proxy_rule(p, &(struct ts_rule){.action = TS_DROP_REPLY_CLOSE,
                                       .match = "EVAL*",
                                       .contains = text,
                                       .count = 1});
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
    assert_false(ts_exists(srv, "a"));
    FINE(dibs_lock_acquire(l, NULL));
    assert_int_equal(kit_count(l, "a", 0), 1);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(l);
    kit_close(c);
    ts_proxy_stop(p);
}

/* ---- holds that came with a number -------------------------------------- */

static void test_fenced_hold_changes_hands(void **state)
{
    char text[DIBS_OWNER_MAX];
    int64_t token = 0, again = 0;
    dibs_owner o = 0;
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = lock_of(dibs_fenced_lock_new, c, "f");

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = LONG_MS)));
    FINE(dibs_lock_token(l, 0, &token));
    FINE(dibs_lock_owner_text(l, 0, text, sizeof text));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.leave = true)));
    dibs_lock_free(l);
    kit_close(c);
    c = kit_open(NULL);
    l = lock_of(dibs_fenced_lock_new, c, "f");
    FINE(dibs_lock_adopt(l, text, NULL, &o));
    FINE(dibs_lock_token(l, o, &again));
    assert_true(token == again);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
    assert_false(ts_exists(srv, "f"));
    ts_ok(srv, "DEL redisson_lock_token:{f}");
    dibs_lock_free(l);
    kit_close(c);
}

static dibs_lock *slots_of(dibs_client *c)
{
    dibs_lock *l = NULL;

    FINE(dibs_slots_lock_new(c, "s", 2, &l));
    return l;
}

/* Two slots are left; the second is adopted, passed on, and given back. */
static void test_slot_changes_hands(void **state)
{
    char text[DIBS_OWNER_MAX], other[DIBS_OWNER_MAX];
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = slots_of(c);
    dibs_owner a = dibs_owner_new(c), b = dibs_owner_new(c), o = 0, next;
    struct told t = {0};
    int64_t slot = -1;

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = a, .lease_ms = LONG_MS)));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = b, .lease_ms = LONG_MS)));
    FINE(dibs_lock_owner_text(l, a, other, sizeof other));
    FINE(dibs_lock_owner_text(l, b, text, sizeof text));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = a, .leave = true)));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = b, .leave = true)));
    dibs_lock_free(l);
    kit_close(c);
    c = kit_open(NULL);
    l = slots_of(c);
    WANT(dibs_lock_try(l, NULL), DIBS_ERR_BUSY);
    FINE(dibs_lock_adopt(l, text, NULL, &o));
    FINE(dibs_lock_slot(l, o, &slot));
    assert_int_equal(slot, 1);
    FINE(dibs_lock_extend(l, DIBS_LOCK_OPTS(.owner = o)));
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.owner = o)));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
    next = dibs_owner_new(c);
    FINE(dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = next), kit_tell,
                                 &t));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
    FINE(kit_answer(&t));
    FINE(dibs_lock_slot(l, next, &slot));
    assert_int_equal(slot, 1);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = next)));
    WANT(dibs_lock_adopt(l, text, NULL, &o), DIBS_ERR_NOT_OWNER);
    FINE(dibs_lock_adopt(l, other, NULL, &o));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
    assert_int_equal(ts_int(srv, "INCRBY s 0"), 2);
    ts_ok(srv, "FLUSHALL");
    dibs_lock_free(l);
    kit_close(c);
}

static void test_permits_change_hands(void **state)
{
    static const char *const bad[] = {
        "03:5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1",
        "3-5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1",
        "2147483648:5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1",
        "30000000000:5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1",
        "3:5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11",
    };
    char text[DIBS_OWNER_MAX];
    dibs_client *c = kit_open(NULL);
    dibs_semaphore *s = NULL;
    int64_t n = 0;

    (void)state;
    FINE(dibs_semaphore_new(c, "p", &s));
    FINE(dibs_semaphore_set(s, 5, NULL));
    WANT(dibs_semaphore_leave(s, NULL, text, sizeof text), DIBS_ERR_NOT_OWNER);
    const dibs_semaphore_opts *three =
        DIBS_SEMAPHORE_OPTS(.permits = 3, .lease_ms = LONG_MS);
    FINE(dibs_semaphore_acquire(s, three));
    WANT(dibs_semaphore_leave(s, three, text, 10), DIBS_ERR_INVALID);
    FINE(dibs_semaphore_leave(s, three, text, sizeof text));
    WANT(dibs_semaphore_release(s, three), DIBS_ERR_NOT_OWNER);
    dibs_semaphore_free(s);
    kit_close(c);
    c = kit_open(NULL);
    FINE(dibs_semaphore_new(c, "p", &s));
    FINE(dibs_semaphore_available(s, &n));
    assert_int_equal(n, 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        WANT(dibs_semaphore_adopt(s, bad[i], NULL, &n), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_adopt(s, text + 2, NULL, &n), DIBS_ERR_INVALID);
    WANT(dibs_semaphore_adopt(s, NULL, NULL, &n), DIBS_ERR_INVALID);
    FINE(dibs_semaphore_adopt(s, text, NULL, &n));
    assert_int_equal(n, 3);
    WANT(dibs_semaphore_adopt(s, text, NULL, &n), DIBS_ERR_INVALID);
    FINE(dibs_semaphore_release(s, DIBS_SEMAPHORE_OPTS(.permits = 3)));
    FINE(dibs_semaphore_available(s, &n));
    assert_int_equal(n, 5);
    WANT(dibs_semaphore_adopt(s, text, NULL, &n), DIBS_ERR_NOT_OWNER);
    text[0] = '2'; /* so many were never in it */
    WANT(dibs_semaphore_adopt(s, text, NULL, &n), DIBS_ERR_NOT_OWNER);
    ts_ok(srv, "FLUSHALL");
    dibs_semaphore_free(s);
    kit_close(c);
}

static void test_bad_input(void **state)
{
    static const char *const bad[] = {
        "",
        "x",
        "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11",
        "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:",
        "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:0",
        "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:01",
        "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1x",
        "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1 ",
        "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:x",
        "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d1111",
        "5F0C5D1G-0c5b-4b6e-8a39-6a1f8e0b7d11:1",
        "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1:write",
        "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:99999999999999999999999",
        "zf0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1",
    };
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a"), *fenced = NULL, *multi = NULL;
    const char *good = "5f0c5d1e-0c5b-4b6e-8a39-6a1f8e0b7d11:1";
    dibs_owner o = 0;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        WANT(dibs_lock_adopt(l, bad[i], NULL, &o), DIBS_ERR_INVALID);
    WANT(dibs_lock_adopt(l, NULL, NULL, &o), DIBS_ERR_INVALID);
    WANT(dibs_lock_adopt(NULL, good, NULL, &o), DIBS_ERR_INVALID);
    WANT(dibs_lock_adopt(l, good, NULL, NULL), DIBS_ERR_INVALID);
    WANT(dibs_lock_adopt(l, good, DIBS_LOCK_OPTS(.lease_ms = 1), &o),
         DIBS_ERR_INVALID);
    WANT(dibs_lock_adopt(l, good, DIBS_LOCK_OPTS(.owner = 1), &o),
         DIBS_ERR_INVALID);
    WANT(dibs_lock_adopt(l, good, NULL, &o), DIBS_ERR_NOT_OWNER);
    FINE(dibs_fenced_lock_new(c, "f", &fenced));
    WANT(dibs_lock_adopt(fenced, good, NULL, &o), DIBS_ERR_NOT_OWNER);
    FINE(dibs_multi_lock_new((dibs_lock *[]){l}, 1, &multi));
    WANT(dibs_lock_adopt(multi, good, NULL, &o), DIBS_ERR_INVALID);
    WANT(dibs_lock_extend(multi, NULL), DIBS_ERR_INVALID);
    ts_ok(srv, "SET a x");
    WANT(dibs_lock_adopt(l, good, NULL, &o), DIBS_ERR_WRONGTYPE);
    ts_ok(srv, "DEL a");
    FINE(dibs_lock_acquire(l, NULL));
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.leave = true, .keep_ms = 5)),
         DIBS_ERR_INVALID);
    FINE(dibs_lock_release(l, NULL));
    dibs_lock_free(multi);
    dibs_lock_free(fenced);
    dibs_lock_free(l);
    kit_close(c);
}

static bool is_refused(void)
{
    redisReply *reply = ts_cmd(srv, "DEL none");
    bool refused = reply && reply->type == REDIS_REPLY_ERROR;

    freeReplyObject(reply);
    return refused;
}

/* A server that could not save its data writes nothing more: there is a folder
 * where its file should be. (That there are too few replicas is not noticed in
 * scripts before Redis 7.) Returns the folder, to be given to allow_writes. */
static char *refuse_writes(void)
{
    char *folder = ts_text("%s/dump.rdb", ts_server_dir(srv));

    assert_int_equal(mkdir(folder, 0700), 0);
    ts_config_set(srv, "save", "3600 1000000");
    ts_ok(srv, "BGSAVE");
    TS_WAIT(is_refused());
    return folder;
}

static void allow_writes(char *folder)
{
    ts_config_set(srv, "save", "");
    assert_int_equal(rmdir(folder), 0);
    free(folder);
}

/* A server that writes nothing now: the hold is there, and is not extended. The
 * answer is not that the key is something else. */
static void test_refused(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");
    const dibs_lock_opts *longer = DIBS_LOCK_OPTS(.lease_ms = 120000);
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 60000)));
    FINE(dibs_lock_owner_text(l, 0, text, sizeof text));
    char *folder = refuse_writes();
    WANT(dibs_lock_extend(l, longer), DIBS_ERR_SERVER);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_HELD);
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.leave = true)));
    WANT(dibs_lock_adopt(l, text, longer, &o), DIBS_ERR_SERVER);
    allow_writes(folder);
    FINE(dibs_lock_adopt(l, text, longer, &o));
    FINE(dibs_lock_extend(l, DIBS_LOCK_OPTS(.lease_ms = 240000, .owner = o)));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)));
    dibs_lock_free(l);
    kit_close(c);
}

/* The server has what was left for longer than the adopter wants it. When the
 * adopter's lease is over, so is the hold there. */
static void test_short_adoption(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 600000)));
    FINE(dibs_lock_owner_text(l, 0, text, sizeof text));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.leave = true)));
    FINE(dibs_lock_adopt(l, text, DIBS_LOCK_OPTS(.lease_ms = 200), &o));
    TS_WAIT(dibs_lock_state(l, o) == DIBS_LOST);
    TS_WAIT(!ts_exists(srv, "a"));
    WANT(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o)), DIBS_ERR_LOST);
    dibs_lock_free(l);
    kit_close(c);
}

/* What was adopted for a time is given back like anything else: when it was
 * left taken for a moment, nothing of it is in doubt. */
static void test_kept_after_adoption(void **state)
{
    dibs_client *c = kit_open(NULL);
    dibs_lock *l = kit_lock(c, "a");
    char text[DIBS_OWNER_MAX];
    dibs_owner o = 0;

    (void)state;
    FINE(dibs_lock_acquire(l, DIBS_LOCK_OPTS(.lease_ms = 60000)));
    FINE(dibs_lock_owner_text(l, 0, text, sizeof text));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.leave = true)));
    FINE(dibs_lock_adopt(l, text, DIBS_LOCK_OPTS(.lease_ms = 30000), &o));
    FINE(dibs_lock_release(l, DIBS_LOCK_OPTS(.owner = o, .keep_ms = 1000)));
    FINE(dibs_client_close(c, 0));
    dibs_lock_free(l);
    kit_close(c);
    TS_WAIT(!ts_exists(srv, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_every_kind_changes_hands),
        KIT_TEST(test_writer_without_its_word),
        KIT_TEST(test_own_hold_is_not_adopted),
        KIT_TEST(test_is_renewed),
        KIT_TEST(test_close_releases_what_was_adopted),
        KIT_TEST(test_loss_is_told),
        KIT_TEST(test_other_readers_stay),
        KIT_TEST(test_halves_go_together),
        KIT_TEST(test_strangers_hold_is_not_adopted),
        KIT_TEST(test_who_left_goes_by_another_name),
        KIT_TEST(test_nested_is_left_once),
        KIT_TEST(test_group_is_left),
        KIT_TEST(test_extend),
        KIT_TEST(test_extend_during_release),
        KIT_TEST(test_lost_reply),
        KIT_TEST(test_fenced_hold_changes_hands),
        KIT_TEST(test_slot_changes_hands),
        KIT_TEST(test_permits_change_hands),
        KIT_TEST(test_bad_input),
        KIT_TEST(test_refused),
        KIT_TEST(test_short_adoption),
        KIT_TEST(test_kept_after_adoption),
    };

    return KIT_RUN("adopt", tests);
}
