/* SPDX-License-Identifier: MIT
 *
 * fault_rw_both.c - both halves of a read-write lock by one owner, which has
 * one number for both: what is left of the one, or was not answered, and the
 * other goes on.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/limits_kit.h"

#include <unistd.h>

#define LEASE_MS kit_ms(400) /* that is to end */
#define AWAY_MS  kit_ms(250) /* so much later it begins on the server */

/* One client with both halves, and the second owner's word. */
struct both {
    struct kit_client *k;
    char *name;
    dibs_lock *r, *w;
    dibs_owner a, b;
};

static struct both both_begin(const struct kit_opts *o)
{
    struct both t = {.k = kit_open(o), .name = kit_name("both")};

    kit_want("a lock", dibs_read_lock_new(t.k->c, t.name, &t.r), DIBS_OK);
    kit_want("a lock", dibs_write_lock_new(t.k->c, t.name, &t.w), DIBS_OK);
    t.a = dibs_owner_new(t.k->c);
    t.b = dibs_owner_new(t.k->c);
    return t;
}

/* What is left goes with the client. */
static void both_end(struct both *t)
{
    dibs_lock_free(t->r);
    dibs_lock_free(t->w);
    kit_close(t->k);
    kit_no_keys("both");
    free(t->name);
}

/* The lock is taken with a lease that begins later on the server than we think:
 * its end by our clock is well before that on the server. */
static void take_slowly(dibs_lock *l, dibs_owner owner,
                        const struct dibs__script *script)
{
    struct act takes;
    int id = ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                                     .contains = script->sha,
                                                     .count = 1});

    act_async(&takes, l, dibs_lock_acquire_async,
              DIBS_LOCK_OPTS(.owner = owner, .lease_ms = LEASE_MS));
    if (!ts_rule_wait(kit_px, id, 1, TS_SOON))
        fail_msg("nothing was held");
    usleep((useconds_t)(AWAY_MS * 1000));
    ts_proxy_unrule(kit_px, id);
    ts_proxy_release(kit_px);
    kit_want("taking it", act_end(&takes), DIBS_OK);
}

static const dibs_lock_opts *by(dibs_owner owner)
{
    static dibs_lock_opts o;

    o = (dibs_lock_opts)DIBS_LOCK_OPTS_INIT;
    o.owner = owner;
    return &o;
}

/* A stranger can read, and gives it back. */
static void others_read(const char *name)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *r = NULL;

    kit_want("a lock", dibs_read_lock_new(k->c, name, &r), DIBS_OK);
    kit_want("a stranger",
             dibs_lock_acquire(r, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)), DIBS_OK);
    kit_want("a stranger", dibs_lock_release(r, NULL), DIBS_OK);
    dibs_lock_free(r);
    kit_close(k);
}

/* ---- what is left of a write ------------------------------------------- */

/* The writer reads, too, for long. Its write is over: then others may read,
 * also if it never gives back what it has lost. */
static void write_over(bool gives_back)
{
    struct both t = both_begin(&(struct kit_opts){.direct = true});

    kit_want("write",
             dibs_lock_acquire(
                 t.w, DIBS_LOCK_OPTS(.owner = t.a, .lease_ms = LEASE_MS)),
             DIBS_OK);
    kit_want("read", dibs_lock_acquire(t.r, by(t.a)), DIBS_OK);
    TS_WAIT(dibs_lock_state(t.w, t.a) == DIBS_LOST);
    if (gives_back)
        kit_want("end", dibs_lock_release(t.w, by(t.a)), DIBS_ERR_LOST);
    others_read(t.name);
    assert_int_equal(dibs_lock_state(t.r, t.a), DIBS_HELD);
    assert_int_equal(kit_holds(t.r, t.a, t.name), 1);
    both_end(&t);
}

static void test_both_write_over(void **state)
{
    (void)state;
    write_over(true);
    write_over(false);
}

/* The same, and the client closes, later than a margin for clocks explains. */
static void test_both_write_over_closed(void **state)
{
    struct both t =
        both_begin(&(struct kit_opts){.direct = true, .timeout_ms = HASTY_MS});

    (void)state;
    kit_want("write",
             dibs_lock_acquire(
                 t.w, DIBS_LOCK_OPTS(.owner = t.a, .lease_ms = LEASE_MS)),
             DIBS_OK);
    kit_want("read", dibs_lock_acquire(t.r, by(t.a)), DIBS_OK);
    TS_WAIT(dibs_lock_state(t.w, t.a) == DIBS_LOST);
    usleep((useconds_t)(2 * HASTY_MS * 1000));
    both_end(&t);
}

/* What is left of a write lets no reader in to write. */
static void test_both_no_way_back(void **state)
{
    struct both t = both_begin(&(struct kit_opts){0});

    (void)state;
    take_slowly(t.w, t.a, &dibs__script_write_acquire);
    kit_want("read", dibs_lock_acquire(t.r, by(t.a)), DIBS_OK);
    ts_proxy_rule(kit_px,
                  &(struct ts_rule){.action = TS_CLOSE_BEFORE,
                                    .contains = dibs__script_write_leave.sha});
    TS_WAIT(dibs_lock_state(t.w, t.a) == DIBS_LOST);
    kit_want("end", dibs_lock_release(t.w, by(t.a)), DIBS_ERR_LOST);
    kit_want("write", dibs_lock_try(t.w, by(t.a)), DIBS_ERR_UPGRADE);
    kit_relent();
    others_read(t.name);
    both_end(&t);
}

/* ---- what is left of a read -------------------------------------------- */

/* The server has a read that is lost, or about to end. Who had it does not
 * read, and so is not told that it cannot write: it waits. */
static void test_both_read_lost(void **state)
{
    struct both t = both_begin(&(struct kit_opts){0});
    dibs_lock *other = kit_lock(t.k, "other");

    (void)state;
    kit_warm(t.k, other, "other"); /* it has a second connection */
    take_slowly(t.r, t.a, &dibs__script_read_acquire);
    int id = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                  .contains = dibs__script_read_release.sha});
    TS_WAIT(dibs_lock_state(t.r, t.a) == DIBS_LOST);
    kit_want("a try", dibs_lock_try(t.w, by(t.a)), DIBS_ERR_BUSY);
    ts_proxy_unrule(kit_px, id);
    ts_proxy_release(kit_px);
    kit_want("write", dibs_lock_acquire(t.w, by(t.a)), DIBS_OK);
    kit_want("end", dibs_lock_release(t.r, by(t.a)), DIBS_ERR_LOST);
    kit_want("end", dibs_lock_release(t.w, by(t.a)), DIBS_OK);
    dibs_lock_free(other);
    both_end(&t);
}

static void test_both_read_ending(void **state)
{
    struct both t = both_begin(&(struct kit_opts){0});
    dibs_lock *other = kit_lock(t.k, "other");
    struct act gives, writes;

    (void)state;
    kit_warm(t.k, other, "other");
    kit_want("read", dibs_lock_acquire(t.r, by(t.a)), DIBS_OK);
    kit_want("a reader's try", dibs_lock_try(t.w, by(t.a)), DIBS_ERR_UPGRADE);
    int id = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                  .contains = dibs__script_read_release.sha});
    act_async(&gives, t.r, dibs_lock_release_async, by(t.a));
    TS_WAIT(ts_rule_hits(kit_px, id) > 0);
    kit_want("a try", dibs_lock_try(t.w, by(t.a)), DIBS_ERR_BUSY);
    act_async(&writes, t.w, dibs_lock_acquire_async, by(t.a));
    ts_proxy_unrule(kit_px, id);
    ts_proxy_release(kit_px);
    kit_want("the release", act_end(&gives), DIBS_OK);
    kit_want("write", act_end(&writes), DIBS_OK);
    kit_want("end", dibs_lock_release(t.w, by(t.a)), DIBS_OK);
    dibs_lock_free(other);
    both_end(&t);
}

/* ---- a write that is kept ---------------------------------------------- */

/* A write is left taken by nobody for a moment. Who had it and asks to read
 * right behind that waits like others. */
static void test_both_kept(void **state)
{
    struct both t = both_begin(&(struct kit_opts){.direct = true});
    struct act gives, reads;

    (void)state;
    kit_want("write", dibs_lock_acquire(t.w, by(t.a)), DIBS_OK);
    act_async(&gives, t.w, dibs_lock_release_async,
              DIBS_LOCK_OPTS(.owner = t.a, .keep_ms = 50));
    act_async(&reads, t.r, dibs_lock_acquire_async, by(t.a));
    kit_want("leaving it taken", act_end(&gives), DIBS_OK);
    kit_want("read", act_end(&reads), DIBS_OK);
    others_read(t.name);
    kit_want("end", dibs_lock_release(t.r, by(t.a)), DIBS_OK);
    both_end(&t);
}

/* The same through a group, by an owner that goes by another number since. */
static void test_both_group_kept(void **state)
{
    struct both t = both_begin(&(struct kit_opts){.direct = true});
    dibs_lock *other = kit_lock(t.k, "both-other"), *both = NULL;

    (void)state;
    kit_want("a group",
             dibs_multi_lock_new((dibs_lock *[]){t.w, other}, 2, &both),
             DIBS_OK);
    kit_want("write", dibs_lock_acquire(both, by(t.a)), DIBS_OK);
    dibs_lock *third = kit_lock(t.k, "both-third");
    kit_want("another", dibs_lock_acquire(third, by(t.a)), DIBS_OK);
    kit_want(
        "leaving it taken",
        dibs_lock_release(third, DIBS_LOCK_OPTS(.owner = t.a, .keep_ms = 1)),
        DIBS_OK);
    kit_want("read", dibs_lock_acquire(t.r, by(t.a)), DIBS_OK);
    kit_want("leaving it taken",
             dibs_lock_release(both,
                               DIBS_LOCK_OPTS(.owner = t.a, .keep_ms = 600000)),
             DIBS_OK);
    others_read(t.name);
    assert_int_equal(dibs_lock_state(t.r, t.a), DIBS_HELD);
    assert_int_equal(kit_holds(t.r, t.a, t.name), 1);
    freeReplyObject(ts_cmd(kit_srv, "DEL both-other"));
    dibs_lock_free(both);
    dibs_lock_free(other);
    dibs_lock_free(third);
    both_end(&t);
}

/* ---- an answer that is lost -------------------------------------------- */

/* Somebody waits: it has asked, and listens. */
static bool is_listening(const char *name)
{
    redisReply *r = ts_cmd(kit_srv, "PUBSUB CHANNELS *rwlock*%s*", name);
    bool any = r->elements > 0;

    freeReplyObject(r);
    return any;
}

/* A writer reads, behind a reader of its client who waits for it. The server's
 * answer never comes: the reader before cannot ask for both. */
static void test_both_unheard(void **state)
{
    struct both t = both_begin(&(struct kit_opts){.timeout_ms = HASTY_MS});
    char owner[DIBS_OWNER_MAX];
    struct act before, reads;

    (void)state;
    kit_want("write", dibs_lock_acquire(t.w, by(t.a)), DIBS_OK);
    kit_want("its name", dibs_lock_owner_text(t.w, t.a, owner, sizeof owner),
             DIBS_OK);
    owner[strcspn(owner, ":") + 1 +
          strspn(strchr(owner, ':') + 1, "0123456789")] = '\0';
    char *needle = ts_text("%s\r\n", owner);
    act_async(&before, t.r, dibs_lock_acquire_async, by(t.b));
    TS_WAIT(is_listening(t.name));
    int id = ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_SWALLOW_REPLY,
                                                     .contains = needle,
                                                     .count = 1});
    act_async(&reads, t.r, dibs_lock_acquire_async, by(t.a));
    if (!ts_rule_wait(kit_px, id, 1, TS_SOON))
        fail_msg("no answer was lost");
    kit_want("read", act_end(&reads), DIBS_OK);
    assert_false(atomic_load(&before.end.over));
    kit_want("end", dibs_lock_release(t.w, by(t.a)), DIBS_OK);
    kit_want("the reader before", act_end(&before), DIBS_OK);
    free(needle);
    both_end(&t);
}

/* A question stays on its way; its waiter asks again, and hears "busy". Then
 * the lock is free, and the old question runs: who waits before it cannot ask
 * for both. */
static void test_both_late(void **state)
{
    struct both t = both_begin(
        &(struct kit_opts){.user = KIT_MEEK, .timeout_ms = HASTY_MS});
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    char *needle = ts_text(":%llu\r\n", (unsigned long long)t.a);
    struct act before, late;
    dibs_lock *w = NULL;

    (void)state;
    kit_want("a lock", dibs_write_lock_new(k->c, t.name, &w), DIBS_OK);
    kit_want("write", dibs_lock_acquire(w, NULL), DIBS_OK);
    act_async(&before, t.w, dibs_lock_acquire_async, by(t.b));
    TS_WAIT(is_listening(t.name));
    int id = ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                                     .contains = needle,
                                                     .count = 1});
    act_async(&late, t.w, dibs_lock_acquire_async,
              DIBS_LOCK_OPTS(.owner = t.a, .lease_ms = 10 * TS_SOON));
    if (!ts_rule_wait(kit_px, id, 1, TS_SOON))
        fail_msg("nothing was held");
    int again = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_PASS, .contains = needle});
    if (!ts_rule_wait_done(kit_px, again, 1, TS_SOON))
        fail_msg("it is not asked again");
    freeReplyObject(ts_cmd(kit_srv, "DEL %s", t.name));
    ts_proxy_unrule(kit_px, id);
    ts_proxy_release(kit_px);
    TS_WAIT(atomic_load(&late.end.over) || atomic_load(&before.end.over));
    bool lucky = atomic_load(&before.end.over); /* it asked just then */
    kit_want("the first", act_end(lucky ? &before : &late), DIBS_OK);
    kit_want("end", dibs_lock_release(t.w, by(lucky ? t.b : t.a)), DIBS_OK);
    kit_want("the second", act_end(lucky ? &late : &before), DIBS_OK);
    kit_want("end", dibs_lock_release(t.w, by(lucky ? t.a : t.b)), DIBS_OK);
    kit_want("what was taken away", dibs_lock_release(w, NULL), DIBS_ERR_LOST);
    dibs_lock_free(w);
    kit_close(k);
    free(needle);
    both_end(&t);
}

static int fresh(void **state)
{
    static const struct dibs__script *const scripts[] = {
        &dibs__script_read_acquire,  &dibs__script_read_release,
        &dibs__script_read_renew,    &dibs__script_write_acquire,
        &dibs__script_write_release, &dibs__script_write_leave};

    kit_fresh(state);
    for (size_t i = 0; i < COUNT(scripts); i++)
        kit_load(scripts[i]);
    return 0;
}

#define T(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_both_write_over),  T(test_both_write_over_closed),
        T(test_both_no_way_back), T(test_both_read_lost),
        T(test_both_read_ending), T(test_both_kept),
        T(test_both_group_kept),  T(test_both_unheard),
        T(test_both_late),
    };

    return cmocka_run_group_tests_name("fault.rw_both", tests, kit_up,
                                       kit_down);
}
