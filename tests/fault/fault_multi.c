/* SPDX-License-Identifier: MIT
 *
 * fault_multi.c - the command that takes several locks, or gives them back, is
 * lost: not passed on, cut, not answered, held back and executed when nobody
 * waits for it any more.
 *
 * Whatever happened: all members are held, as often as the library says, or
 * none; once all is given back nothing stays on the server, though no lease
 * ends here by itself; and a stranger can have all of them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <stdio.h>
#include <string.h>

#define HASTY_MS kit_ms(100) /* a command's time where a reply never comes */
#define TRIES    5

enum { MEMBERS = 3 };

static const char kinds[MEMBERS + 1] = "pwp";

struct run {
    char *where; /* for people */
    struct kit_client *k;
    dibs_lock *g, *m[MEMBERS];
    char *name[MEMBERS];
    bool async;
    bool for_ever; /* every reply is lost, not one */
    int rule;
    atomic_int lost;
};

/* ---- the group --------------------------------------------------------- */

static dibs_lock *make(dibs_client *c, size_t i, const char *name)
{
    dibs_lock *l = NULL;

    assert_int_equal(kinds[i] == 'w' ? dibs_write_lock_new(c, name, &l)
                                     : dibs_lock_new(c, name, &l),
                     DIBS_OK);
    return l;
}

static void make_all(dibs_client *c, char *const *name, dibs_lock **m,
                     dibs_lock **g)
{
    for (size_t i = 0; i < MEMBERS; i++)
        m[i] = make(c, i, name[i]);
    assert_int_equal(dibs_multi_lock_new(m, MEMBERS, g), DIBS_OK);
}

static void free_all(dibs_lock **m, dibs_lock *g)
{
    for (size_t i = 0; i < MEMBERS; i++)
        dibs_lock_free(m[i]);
    dibs_lock_free(g);
}

/* Each member is held so often, by us and nobody else, and has a TTL. */
static void check(struct run *r, long long holds)
{
    if (dibs_lock_holds(r->g, 0) != holds)
        fail_msg("%s: we think we hold it %lld times, not %lld", r->where,
                 (long long)dibs_lock_holds(r->g, 0), holds);
    for (size_t i = 0; i < MEMBERS; i++) {
        long long known = dibs_lock_holds(r->m[i], 0);
        long long here = kit_holds(r->m[i], 0, r->name[i]);
        long long fields = ts_hlen(kit_srv, r->name[i]);
        long long most = holds == 0 ? 0 : kinds[i] == 'w' ? 2 : 1;
        if (known != holds || here != holds || fields != most)
            fail_msg("%s: %s: %lld holds known, %lld at the server, not %lld; "
                     "%lld fields",
                     r->where, r->name[i], known, here, holds, fields);
        if (holds > 0 && ts_pttl(kit_srv, r->name[i]) <= 0)
            fail_msg("%s: there is no TTL", r->where);
    }
}

static void all_gone(const char *where)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (ts_nkeys(kit_srv) != 0)
        if (!ts_wait_step(&w))
            fail_msg("%s: %lld keys stay", where, ts_nkeys(kit_srv));
}

/* A stranger gets all of them, and gives them back. */
static void free_for_all(struct run *r)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *m[MEMBERS], *g = NULL;

    make_all(k->c, r->name, m, &g);
    dibs_err err = dibs_lock_try(g, NULL);
    if (err != DIBS_OK)
        fail_msg("%s: a stranger gets: %s", r->where, dibs_strerror(err));
    assert_int_equal(dibs_lock_release(g, NULL), DIBS_OK);
    free_all(m, g);
    kit_close(k);
    all_gone(r->where);
}

/* ---- calls, sync or async ---------------------------------------------- */

static dibs_err acquire(struct run *r)
{
    struct kit_end end = {.err = DIBS_OK};
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.wait_ms = r->for_ever ? HASTY_MS : 0,
                       .on_lost = kit_lost, .arg = &r->lost);

    if (!r->async)
        return dibs_lock_acquire(r->g, o);
    dibs_err err = dibs_lock_acquire_async(r->g, o, kit_ended, &end);
    return err == DIBS_OK ? kit_wait(&end) : err;
}

static dibs_err try(struct run *r)
{
    struct kit_end end = {.err = DIBS_OK};

    if (!r->async)
        return dibs_lock_try(r->g, NULL);
    dibs_err err = dibs_lock_try_async(r->g, NULL, kit_ended, &end);
    return err == DIBS_OK ? kit_wait(&end) : err;
}

static dibs_err release(struct run *r)
{
    struct kit_end end = {.err = DIBS_OK};

    if (!r->async)
        return dibs_lock_release(r->g, NULL);
    dibs_err err = dibs_lock_release_async(r->g, NULL, kit_ended, &end);
    return err == DIBS_OK ? kit_wait(&end) : err;
}

/* ---- steps and faults -------------------------------------------------- */

struct step {
    const char *name;
    const struct dibs__script *script;
    size_t reply_len;   /* at least */
    int before, after;  /* our holds, when all is well */
    dibs_err timed_out; /* what one reply that never comes leads to */
    dibs_err (*act)(struct run *r);
};

static const struct step steps[] = {
    {"acquire", &dibs__script_multi_acquire, 5, 0, 1, DIBS_OK, acquire},
    {"try", &dibs__script_multi_acquire, 5, 0, 1, DIBS_ERR_UNKNOWN, try},
    {"re-entry", &dibs__script_multi_acquire, 5, 1, 2, DIBS_OK, acquire},
    {"partial release", &dibs__script_multi_release, 16, 2, 1, DIBS_OK,
     release},
    {"release", &dibs__script_multi_release, 16, 1, 0, DIBS_OK, release},
};

struct fault {
    const char *name;
    struct ts_rule rule;
    bool silent; /* nothing comes, nothing ends */
    bool tcp;
};

static const struct fault faults[] = {
    {"not passed on", {.action = TS_CLOSE_BEFORE}, false, false},
    {"not passed on, reset",
     {.action = TS_CLOSE_BEFORE, .rst = true},
     false,
     true},
    {"request cut", {.action = TS_CUT_REQUEST_AT, .at = 90}, false, false},
    {"reply dropped", {.action = TS_DROP_REPLY_CLOSE}, false, false},
    {"reply dropped, reset",
     {.action = TS_DROP_REPLY_CLOSE, .rst = true},
     false,
     true},
    {"reply swallowed", {.action = TS_SWALLOW_REPLY}, true, false},
    {"reply held back", {.action = TS_HOLD_REPLY}, true, false},
    {"request held back", {.action = TS_HOLD_REQUEST}, true, false},
};

/* ---- one run ----------------------------------------------------------- */

static void begin(struct run *r, const struct step *st, const struct fault *f,
                  enum kit_user user)
{
    bool hasty = f->silent || r->for_ever;
    struct kit_opts o = {.user = user, .tcp = f->tcp};
    char *stem = kit_name("multi");

    o.timeout_ms = hasty ? HASTY_MS : 0;
    r->where = ts_text("%s, %s%s, %s, %s", st->name, f->name,
                       r->for_ever ? " for ever" : "",
                       user == KIT_MEEK ? "no CLIENT KILL" : "CLIENT KILL",
                       r->async ? "async" : "sync");
    for (int i = 0; i < MEMBERS; i++)
        r->name[i] = ts_text("%s%c", stem, 'a' + i);
    free(stem);
    ts_proxy_reset(kit_px);
    r->k = kit_open(&o);
    make_all(r->k->c, r->name, r->m, &r->g);
    for (int i = 0; i < st->before + 1; i++) /* the scripts are known then */
        assert_int_equal(
            dibs_lock_acquire(
                r->g, DIBS_LOCK_OPTS(.on_lost = kit_lost, .arg = &r->lost)),
            DIBS_OK);
    assert_int_equal(dibs_lock_release(r->g, NULL), DIBS_OK);
    if (!r->async)
        kit_warm(r->k, r->m[0], r->name[0]);
}

/* A request of this script for our group; the write lock has two keys. */
static void lay_trap(struct run *r, const struct dibs__script *script,
                     const struct ts_rule *how)
{
    struct ts_rule rule = *how;
    char *needle = ts_text("%s\r\n$1\r\n%d\r\n$%zu\r\n%s\r\n", script->sha,
                           MEMBERS + 1, strlen(r->name[0]), r->name[0]);

    rule.contains = needle;
    rule.count = r->for_ever ? 0 : 1;
    r->rule = ts_proxy_rule(kit_px, &rule);
    free(needle);
}

/* Gives back what is held; then nothing is left, it can all be had again, by
 * us and by a stranger. */
static void end(struct run *r)
{
    const dibs_lock_opts *o = DIBS_LOCK_OPTS(.wait_ms = TS_SOON);
    dibs_err err;

    while (dibs_lock_holds(r->g, 0) > 0)
        if ((err = dibs_lock_release(r->g, o)) != DIBS_OK)
            fail_msg("%s: giving back: %s", r->where, dibs_strerror(err));
    all_gone(r->where);
    if ((err = dibs_lock_acquire(r->g, o)) != DIBS_OK)
        fail_msg("%s: not to be had again: %s", r->where, dibs_strerror(err));
    check(r, 1);
    ts_proxy_release(kit_px); /* what was held back comes now, or never */
    if (r->rule && ts_rule_hits(kit_px, r->rule) == 1)
        ts_rule_wait_done(kit_px, r->rule, 1, TS_SOON);
    check(r, 1);
    if ((err = dibs_lock_release(r->g, o)) != DIBS_OK)
        fail_msg("%s: not to be given back again: %s", r->where,
                 dibs_strerror(err));
    all_gone(r->where);
    free_for_all(r);
    if (atomic_load(&r->lost) != 0)
        fail_msg("%s: something was lost", r->where);
    free_all(r->m, r->g);
    kit_close(r->k);
    for (size_t i = 0; i < MEMBERS; i++)
        free(r->name[i]);
    free(r->where);
}

/* False: a reply did not come in time although nobody lost it, so this says
 * nothing; all is well all the same. */
static bool lose_one(const struct step *st, const struct fault *f,
                     enum kit_user user, bool async)
{
    struct run r = {.async = async};
    dibs_err want = f->silent ? st->timed_out : DIBS_OK;

    begin(&r, st, f, user);
    lay_trap(&r, st->script, &f->rule);
    dibs_err err = st->act(&r);
    if (ts_rule_hits(kit_px, r.rule) != 1)
        fail_msg("%s: %u were lost", r.where, ts_rule_hits(kit_px, r.rule));
    bool slow = f->silent && err == DIBS_ERR_UNKNOWN;
    if (err != want && !slow)
        fail_msg("%s: %s", r.where, dibs_strerror(err));
    if (err == DIBS_OK)
        check(&r, st->after);
    else if (dibs_lock_holds(r.g, 0) != dibs_lock_holds(r.m[1], 0))
        fail_msg("%s: some are held", r.where);
    end(&r);
    return err == want;
}

static void lose_one_surely(const struct step *st, const struct fault *f,
                            enum kit_user user, bool async)
{
    int tries = 1;

    while (!lose_one(st, f, user, async))
        if (++tries > TRIES)
            fail_msg("%s, %s: never answered", st->name, f->name);
}

/* ---- tests ------------------------------------------------------------- */

static void lose_all_ways(enum kit_user user)
{
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(faults); i++) {
            lose_one_surely(&steps[s], &faults[i], user, false);
            lose_one_surely(&steps[s], &faults[i], user, true);
        }
}

static void test_multi_lost_kill_allowed(void **state)
{
    (void)state;
    lose_all_ways(KIT_FULL);
}

static void test_multi_lost_kill_forbidden(void **state)
{
    (void)state;
    lose_all_ways(KIT_MEEK);
}

static void test_multi_reply_cut_at_every_byte(void **state)
{
    char name[48];

    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t at = 0; at < steps[s].reply_len; at++) {
            struct fault f = {
                name, {.action = TS_CUT_REPLY_AT, .at = at}, false, false};
            snprintf(name, sizeof name, "reply cut at %zu", at);
            enum kit_user user = at % 2 ? KIT_MEEK : KIT_FULL;
            lose_one_surely(&steps[s], &f, user, at / 2 % 2);
        }
}

/* None of these commands is ever answered, until the caller gives up: it does
 * not have it, or not once more, and what may have been granted goes. Or it
 * gets there one by one, then it has all of them. */
static void lose_for_ever(const struct step *st, const struct fault *f,
                          enum kit_user user, bool async)
{
    struct run r = {.async = async, .for_ever = true};
    int least = st->after < st->before ? st->after : st->before;

    begin(&r, st, f, user);
    lay_trap(&r, st->script, &f->rule);
    dibs_err err = st->act(&r);
    if (err != DIBS_OK && err != DIBS_ERR_UNKNOWN && err != DIBS_ERR_TIMEOUT &&
        err != DIBS_ERR_CONN)
        fail_msg("%s: %s", r.where, dibs_strerror(err));
    if (err == DIBS_OK)
        check(&r, st->after);
    else if (dibs_lock_holds(r.g, 0) != least)
        fail_msg("%s: holds %lld", r.where, (long long)dibs_lock_holds(r.g, 0));
    ts_proxy_unrule(kit_px, 0);
    ts_proxy_release(kit_px);
    r.for_ever = false;
    r.rule = 0;
    end(&r);
}

static void test_multi_all_lost(void **state)
{
    static const size_t some[] = {0, 3, 5};
    bool async = false;

    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(some); i++, async = !async) {
            lose_for_ever(&steps[s], &faults[some[i]], KIT_FULL, async);
            lose_for_ever(&steps[s], &faults[some[i]], KIT_MEEK, !async);
        }
}

/* What cannot be an answer is not taken for one. */
static void test_multi_odd_answers(void **state)
{
    static const char *const odd[] = {
        ":1\r\n",
        "*0\r\n",
        "*1\r\n:1\r\n",
        "*2\r\n:9\r\n:5\r\n",
        "*2\r\n:0\r\n:5\r\n",
        "*2\r\n$1\r\nx\r\n$1\r\ny\r\n",
        "*2\r\n:-1\r\n:-7\r\n",
        "$2\r\nOK\r\n",
    };
    char name[32];

    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(odd); i++) {
            struct run r = {.async = i % 2};
            struct fault f = {
                name, {.action = TS_REWRITE_REPLY, .text = odd[i]}, 0, 0};
            snprintf(name, sizeof name, "odd answer %zu", i);
            begin(&r, &steps[s], &f, i / 2 % 2 ? KIT_MEEK : KIT_FULL);
            lay_trap(&r, steps[s].script, &f.rule);
            dibs_err err = steps[s].act(&r);
            if (err == DIBS_OK)
                check(&r, steps[s].after);
            end(&r);
        }
}

/* ---- taking back what was taken in vain -------------------------------- */

/* Its owner has one member by itself. The group takes it once more, finds the
 * other busy, and cannot give it back: in the end the owner has it once, and
 * when that is given back it is free. */
static void undo_fails(const struct fault *f, enum kit_user user)
{
    struct kit_opts o = {.user = user, .timeout_ms = HASTY_MS};
    struct kit_client *k = kit_open(&o);
    struct kit_client *other = kit_open(&(struct kit_opts){.direct = true});
    char *mine = kit_name("mine"), *busy = kit_name("busy");
    dibs_lock *m[] = {kit_lock(k, mine), kit_lock(other, busy)}, *g = NULL;
    struct ts_rule rule = f->rule;
    struct ts_wait w = ts_wait_begin(TS_SOON);
    char *needle = kit_needle(&dibs__script_basic_release, mine);

    assert_int_equal(dibs_multi_lock_new(m, 2, &g), DIBS_OK);
    assert_int_equal(dibs_lock_acquire(m[0], NULL), DIBS_OK);
    ts_ok(kit_srv, "HSET %s stranger 1", busy);
    rule.contains = needle;
    int id = ts_proxy_rule(kit_px, &rule);
    assert_int_equal(dibs_lock_try(g, NULL), DIBS_ERR_BUSY);
    assert_true(ts_rule_hits(kit_px, id) > 0);
    ts_proxy_unrule(kit_px, 0);
    ts_proxy_release(kit_px);
    while (dibs_lock_holds(m[0], 0) != 1)
        if (!ts_wait_step(&w))
            fail_msg("%s: held %lld times", f->name,
                     (long long)dibs_lock_holds(m[0], 0));
    dibs_err err = dibs_lock_release(m[0], NULL); /* hasty: it may not wait */
    assert_true(err == DIBS_OK || err == DIBS_ERR_UNKNOWN);
    kit_gone(f->name, mine);
    ts_ok(kit_srv, "DEL %s", busy);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    dibs_lock_free(g);
    kit_close(k);
    kit_close(other);
    free(needle);
    free(mine);
    free(busy);
}

static void test_multi_undo_fails(void **state)
{
    static const struct fault ways[] = {
        {"not passed on", {.action = TS_CLOSE_BEFORE}, 0, 0},
        {"not answered", {.action = TS_SWALLOW_REPLY}, 0, 0},
        {"refused", {.action = TS_ANSWER, .text = "-ERR no\r\n"}, 0, 0},
        {"forbidden", {.action = TS_ANSWER, .text = "-NOPERM no\r\n"}, 0, 0},
        {"full", {.action = TS_ANSWER, .text = "-OOM no\r\n"}, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(ways); i++) {
        ts_proxy_reset(kit_px);
        undo_fails(&ways[i], KIT_FULL);
        ts_proxy_reset(kit_px);
        undo_fails(&ways[i], KIT_MEEK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_multi_lost_kill_allowed, kit_fresh),
        cmocka_unit_test_setup(test_multi_lost_kill_forbidden, kit_fresh),
        cmocka_unit_test_setup(test_multi_reply_cut_at_every_byte, kit_fresh),
        cmocka_unit_test_setup(test_multi_all_lost, kit_fresh),
        cmocka_unit_test_setup(test_multi_odd_answers, kit_fresh),
        cmocka_unit_test_setup(test_multi_undo_fails, kit_fresh),
    };

    return cmocka_run_group_tests_name("fault.multi", tests, kit_up, kit_down);
}
