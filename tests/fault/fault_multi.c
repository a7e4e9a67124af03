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
#include "fault/loss.h"

#include <stdio.h>

enum { MEMBERS = 3 };

static const char kinds[MEMBERS + 1] = "pwp";

/* A run with a group, and its members. */
struct scene {
    struct loss_run run;
    dibs_lock *m[MEMBERS];
    char *name[MEMBERS];
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

static void free_members(dibs_lock **m)
{
    for (size_t i = 0; i < MEMBERS; i++)
        dibs_lock_free(m[i]);
}

/* Each member is held so often, by us and nobody else, and has a TTL. */
static void check(struct scene *sc, long long holds)
{
    const char *where = sc->run.where;

    if (dibs_lock_holds(sc->run.l, 0) != holds)
        fail_msg("%s: we think we hold it %lld times, not %lld", where,
                 (long long)dibs_lock_holds(sc->run.l, 0), holds);
    for (size_t i = 0; i < MEMBERS; i++) {
        long long known = dibs_lock_holds(sc->m[i], 0);
        long long here = kit_holds(sc->m[i], 0, sc->name[i]);
        long long fields = ts_hlen(kit_srv, sc->name[i]);
        long long most = holds == 0 ? 0 : kinds[i] == 'w' ? 2 : 1;
        if (known != holds || here != holds || fields != most)
            fail_msg("%s: %s: %lld holds known, %lld at the server, not %lld; "
                     "%lld fields",
                     where, sc->name[i], known, here, holds, fields);
        if (holds > 0 && ts_pttl(kit_srv, sc->name[i]) <= 0)
            fail_msg("%s: there is no TTL", where);
    }
}

/* A stranger gets all of them, and gives them back. */
static void free_for_all(struct scene *sc)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *m[MEMBERS], *g = NULL;

    make_all(k->c, sc->name, m, &g);
    dibs_err err = dibs_lock_try(g, NULL);
    if (err != DIBS_OK)
        fail_msg("%s: a stranger gets: %s", sc->run.where, dibs_strerror(err));
    assert_int_equal(dibs_lock_release(g, NULL), DIBS_OK);
    free_members(m);
    dibs_lock_free(g);
    kit_close(k);
    kit_no_keys(sc->run.where);
}

/* ---- steps and faults -------------------------------------------------- */

struct step {
    const char *name;
    const struct dibs__script *script;
    size_t reply_len;   /* at least */
    int before, after;  /* our holds, when all is well */
    dibs_err timed_out; /* what one reply that never comes leads to */
    dibs_err (*act)(struct loss_run *r);
};

static const struct step steps[] = {
    {"acquire", &dibs__script_multi_acquire, 5, 0, 1, DIBS_OK, loss_acquire},
    {"try", &dibs__script_multi_acquire, 5, 0, 1, DIBS_ERR_UNKNOWN, loss_try},
    {"re-entry", &dibs__script_multi_acquire, 5, 1, 2, DIBS_OK, loss_acquire},
    {"partial release", &dibs__script_multi_release, 16, 2, 1, DIBS_OK,
     loss_release},
    {"release", &dibs__script_multi_release, 16, 1, 0, DIBS_OK, loss_release},
};

static const struct loss cut_among_the_keys = {
    .name = "request cut", .rule = {.action = TS_CUT_REQUEST_AT, .at = 90}};

static const struct loss *const losses[] = {
    &loss_not_passed_on, &loss_not_passed_on_reset, &cut_among_the_keys,
    &loss_reply_dropped, &loss_reply_dropped_reset, &loss_reply_swallowed,
    &loss_reply_held,    &loss_request_held,
};

/* ---- one run ----------------------------------------------------------- */

/* Up to the trap. */
static void begin(struct scene *sc, const struct step *st,
                  const struct loss *loss)
{
    struct loss_run *r = &sc->run;

    loss_begin(r, "multi", st->name, loss, false);
    for (int i = 0; i < MEMBERS; i++)
        sc->name[i] = ts_text("%s%c", r->name, 'a' + i);
    make_all(r->k->c, sc->name, sc->m, &r->l);
    loss_hold(r, st->before + 1); /* the scripts are known then */
    assert_int_equal(
        dibs_lock_release(r->l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)), DIBS_OK);
    if (!r->async)
        kit_warm(r->k, sc->m[0], sc->name[0]);
    /* The write lock has two keys. */
    char *needle = kit_needle_keys(st->script, MEMBERS + 1, sc->name[0]);
    loss_trap(r, needle);
    free(needle);
}

/* Gives back what is held; then nothing is left, it can all be had again, by
 * us and by a stranger. */
static void end(struct scene *sc)
{
    struct loss_run *r = &sc->run;

    loss_give_back(r);
    kit_no_keys(r->where);
    loss_take_again(r);
    check(sc, 1);
    ts_proxy_release(kit_px); /* what was held back comes now, or never */
    if (!r->for_ever && ts_rule_hits(kit_px, r->rule) == 1)
        ts_rule_wait_done(kit_px, r->rule, 1, TS_SOON);
    check(sc, 1);
    loss_give_back(r);
    kit_no_keys(r->where);
    free_for_all(sc);
    if (atomic_load(&r->lost) != 0)
        fail_msg("%s: something was lost", r->where);
    free_members(sc->m);
    loss_end(r);
    for (size_t i = 0; i < MEMBERS; i++)
        free(sc->name[i]);
}

static bool lose_one(const struct step *st, const struct loss *loss,
                     enum kit_user user, bool async)
{
    struct scene sc = {.run = {.user = user, .async = async}};
    struct loss_run *r = &sc.run;

    begin(&sc, st, loss);
    dibs_err err = st->act(r);
    bool sure = loss_verdict(r, err, st->timed_out);
    if (err == DIBS_OK)
        check(&sc, st->after);
    else if (dibs_lock_holds(r->l, 0) != dibs_lock_holds(sc.m[1], 0))
        fail_msg("%s: some are held", r->where);
    end(&sc);
    return sure;
}

static void lose_one_surely(const struct step *st, const struct loss *loss,
                            enum kit_user user, bool async)
{
    for (int times = 1; !lose_one(st, loss, user, async); times++)
        loss_unsure(st->name, loss, times);
}

/* ---- tests ------------------------------------------------------------- */

static void lose_all_ways(enum kit_user user)
{
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(losses); i++) {
            lose_one_surely(&steps[s], losses[i], user, false);
            lose_one_surely(&steps[s], losses[i], user, true);
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
    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t at = 0; at < steps[s].reply_len; at++) {
            struct loss loss = loss_reply_cut_at(at);
            enum kit_user user = at % 2 ? KIT_MEEK : KIT_FULL;
            lose_one_surely(&steps[s], &loss, user, at / 2 % 2);
        }
}

/* None of these commands is ever answered, until the caller gives up: it does
 * not have it, or not once more, and what may have been granted goes. Or it
 * gets there one by one, then it has all of them. */
static void lose_for_ever(const struct step *st, const struct loss *loss,
                          enum kit_user user, bool async)
{
    struct scene sc = {.run = {.user = user, .async = async, .for_ever = true}};
    struct loss_run *r = &sc.run;
    int least = st->after < st->before ? st->after : st->before;

    begin(&sc, st, loss);
    dibs_err err = st->act(r);
    if (err != DIBS_OK && err != DIBS_ERR_UNKNOWN && err != DIBS_ERR_TIMEOUT &&
        err != DIBS_ERR_CONN)
        fail_msg("%s: %s", r->where, dibs_strerror(err));
    if (err == DIBS_OK)
        check(&sc, st->after);
    else if (dibs_lock_holds(r->l, 0) != least)
        fail_msg("%s: holds %lld", r->where,
                 (long long)dibs_lock_holds(r->l, 0));
    kit_relent();
    end(&sc);
}

static void test_multi_all_lost(void **state)
{
    static const struct loss *const some[] = {
        &loss_not_passed_on, &loss_reply_dropped, &loss_reply_swallowed};
    bool async = false;

    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(some); i++, async = !async) {
            lose_for_ever(&steps[s], some[i], KIT_FULL, async);
            lose_for_ever(&steps[s], some[i], KIT_MEEK, !async);
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

    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(odd); i++) {
            struct scene sc = {.run = {.user = i / 2 % 2 ? KIT_MEEK : KIT_FULL,
                                       .async = i % 2}};
            struct loss loss = {
                .rule = {.action = TS_REWRITE_REPLY, .text = odd[i]}};
            snprintf(loss.name, sizeof loss.name, "odd answer %zu", i);
            begin(&sc, &steps[s], &loss);
            if (steps[s].act(&sc.run) == DIBS_OK)
                check(&sc, steps[s].after);
            end(&sc);
        }
}

/* ---- taking back what was taken in vain -------------------------------- */

/* Its owner has one member by itself. The group takes it once more, finds the
 * other busy, and cannot give it back: in the end the owner has it once, and
 * when that is given back it is free. */
static void undo_fails(const struct loss *loss, enum kit_user user)
{
    struct kit_opts o = {.user = user, .timeout_ms = LOSS_HASTY_MS};
    struct kit_client *k = kit_open(&o);
    struct kit_client *other = kit_open(&(struct kit_opts){.direct = true});
    char *mine = kit_name("mine"), *busy = kit_name("busy");
    dibs_lock *m[] = {kit_lock(k, mine), kit_lock(other, busy)}, *g = NULL;
    struct ts_wait w = ts_wait_begin(TS_SOON);

    assert_int_equal(dibs_multi_lock_new(m, 2, &g), DIBS_OK);
    assert_int_equal(dibs_lock_acquire(m[0], NULL), DIBS_OK);
    ts_ok(kit_srv, "HSET %s 1b2e5f0a-3c4d-4e5f-8a9b-0c1d2e3f4a5b:7 1", busy);
    int id = kit_rule(&dibs__script_mutex_release, mine, &loss->rule);
    assert_int_equal(dibs_lock_try(g, NULL), DIBS_ERR_BUSY);
    assert_true(ts_rule_hits(kit_px, id) > 0);
    kit_relent();
    while (dibs_lock_holds(m[0], 0) != 1)
        if (!ts_wait_step(&w))
            fail_msg("%s: held %lld times", loss->name,
                     (long long)dibs_lock_holds(m[0], 0));
    dibs_err err = dibs_lock_release(m[0], NULL); /* hasty: it may not wait */
    assert_true(err == DIBS_OK || err == DIBS_ERR_UNKNOWN);
    kit_gone(loss->name, mine);
    ts_ok(kit_srv, "DEL %s", busy);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    dibs_lock_free(g);
    kit_close(k);
    kit_close(other);
    free(mine);
    free(busy);
}

static void test_multi_undo_fails(void **state)
{
    static const struct loss ways[] = {
        {.name = "not passed on", .rule = {.action = TS_CLOSE_BEFORE}},
        {.name = "not answered", .rule = {.action = TS_SWALLOW_REPLY}},
        {.name = "refused",
         .rule = {.action = TS_ANSWER, .text = "-ERR no\r\n"}},
        {.name = "forbidden",
         .rule = {.action = TS_ANSWER, .text = "-NOPERM no\r\n"}},
        {.name = "full", .rule = {.action = TS_ANSWER, .text = "-OOM no\r\n"}},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(ways); i++) {
        ts_proxy_reset(kit_px);
        undo_fails(&ways[i], KIT_FULL);
        ts_proxy_reset(kit_px);
        undo_fails(&ways[i], KIT_MEEK);
    }
}

/* One member is just being given back by the same owner, and no answer comes.
 * The group waits for that no longer than it may. */
static void test_multi_behind_own_release(void **state)
{
    const int64_t hours = 36000000; /* no command is over before that */
    struct kit_client *k = kit_open(&(struct kit_opts){.timeout_ms = hours});
    struct kit_client *other = kit_open(&(struct kit_opts){.direct = true});
    char *slow = kit_name("slow"), *idle = kit_name("idle");
    dibs_lock *m[] = {kit_lock(k, slow), kit_lock(other, idle)}, *g = NULL;
    struct kit_end end = {.over = false};

    (void)state;
    assert_int_equal(dibs_multi_lock_new(m, 2, &g), DIBS_OK);
    assert_int_equal(dibs_lock_acquire(m[0], NULL), DIBS_OK);
    kit_rule(&dibs__script_mutex_release, slow,
             &(struct ts_rule){.action = TS_HOLD_REPLY});
    assert_int_equal(dibs_lock_release_async(m[0], NULL, kit_ended, &end),
                     DIBS_OK);
    assert_int_equal(dibs_lock_acquire(g, DIBS_LOCK_OPTS(.wait_ms = 100)),
                     DIBS_ERR_TIMEOUT);
    assert_false(atomic_load(&end.over));
    kit_relent();
    assert_int_equal(kit_wait(&end), DIBS_OK);
    assert_int_equal(dibs_lock_acquire(g, NULL), DIBS_OK);
    assert_int_equal(dibs_lock_release(g, NULL), DIBS_OK);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    dibs_lock_free(g);
    kit_close(k);
    kit_close(other);
    free(slow);
    free(idle);
}

/* A call of the owner has one member, waits for the other, and loses what it
 * has. Another call of the owner has lost nothing: it waits, too. */
static void test_multi_lost_by_own_call(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){0});
    struct kit_client *other = kit_open(&(struct kit_opts){0});
    char *has = kit_name("a"), *waits = kit_name("b");
    dibs_lock *m[] = {kit_lock(k, has), kit_lock(k, waits)}, *g = NULL;
    dibs_lock *theirs = kit_lock(other, waits);
    dibs_owner owner = dibs_owner_new(k->c);
    struct kit_end end = {.over = false};

    (void)state;
    assert_int_equal(dibs_multi_lock_new(m, 2, &g), DIBS_OK);
    assert_int_equal(dibs_lock_acquire(theirs, NULL), DIBS_OK);
    assert_int_equal(dibs_lock_acquire_async(g, DIBS_LOCK_OPTS(.owner = owner),
                                             kit_ended, &end),
                     DIBS_OK);
    TS_WAIT(ts_exists(kit_srv, has));
    ts_ok(kit_srv, "DEL %s", has);
    ts_proxy_kill_all(kit_px, false); /* so it looks at once */
    TS_WAIT(kit_told(k, DIBS_EVENT_LOST) == 1);
    assert_int_equal(
        dibs_lock_acquire(g, DIBS_LOCK_OPTS(.owner = owner, .wait_ms = 100)),
        DIBS_ERR_TIMEOUT);
    assert_int_equal(dibs_lock_release(theirs, NULL), DIBS_OK);
    assert_int_equal(kit_wait(&end), DIBS_OK);
    assert_int_equal(dibs_lock_release(g, DIBS_LOCK_OPTS(.owner = owner)),
                     DIBS_OK);
    dibs_lock_free(m[0]);
    dibs_lock_free(m[1]);
    dibs_lock_free(theirs);
    dibs_lock_free(g);
    kit_close(k);
    kit_close(other);
    free(has);
    free(waits);
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
        cmocka_unit_test_setup(test_multi_behind_own_release, kit_fresh),
        cmocka_unit_test_setup(test_multi_lost_by_own_call, kit_fresh),
    };

    return TS_RUN_PARALLEL("fault.multi", tests, kit_up, kit_down);
}
