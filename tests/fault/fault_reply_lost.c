/* SPDX-License-Identifier: MIT
 *
 * fault_reply_lost.c - a reply is lost, at every step, in every way.
 *
 * The step: what the library asks the server for. The way: the request never
 * arrived; it arrived, was executed, and the connection ended before the reply
 * or at any byte of it; or the reply just never comes. The caller cannot tell
 * these apart, and must not need to: whatever happened, the answer is right,
 * the server has exactly the holds that the library says, and in the end the
 * lock is free.
 *
 * Each with a server that lets us end what the old connection may still have
 * under way (CLIENT KILL) and with one that does not; each with the caller
 * talking to the server itself and with the I/O thread doing it.
 *
 * A step is done once with one reply lost, which the library makes good by
 * itself, and once with every reply of that step lost, so that it cannot.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/loss.h"

#include <string.h>

/* A run, and who else is in it. */
struct scene {
    struct loss_run run;
    struct kit_client *rival; /* it has the lock, if there is one */
    dibs_lock *rival_lock;
    dibs_owner next_owner;
    struct kit_end next_end;
};

/* ---- calls, sync or async ---------------------------------------------- */

struct told {
    struct kit_end end;
    bool was_locked;
    dibs_lock_info info;
};

static void forced(dibs_err err, bool was_locked, void *arg)
{
    struct told *t = arg;

    t->was_locked = was_locked;
    kit_ended(err, &t->end);
}

static dibs_err force(struct loss_run *r)
{
    struct told t = {.was_locked = false};
    dibs_err err;

    if (r->async) {
        err = dibs_lock_force_release_async(r->l, forced, &t);
        err = err == DIBS_OK ? kit_wait(&t.end) : err;
    } else {
        err = dibs_lock_force_release(r->l, &t.was_locked);
    }
    if (err == DIBS_OK && !t.was_locked)
        fail_msg("%s: it was locked", r->where);
    return err;
}

static void informed(dibs_err err, const dibs_lock_info *info, void *arg)
{
    struct told *t = arg;

    if (info)
        t->info = *info;
    kit_ended(err, &t->end);
}

static dibs_err look(struct loss_run *r)
{
    struct told t = {.info = DIBS_LOCK_INFO_INIT};
    char owner[DIBS_OWNER_MAX] = "";
    dibs_err err;

    if (r->async) {
        err = dibs_lock_info_get_async(r->l, informed, &t);
        err = err == DIBS_OK ? kit_wait(&t.end) : err;
    } else {
        err = dibs_lock_info_get(r->l, &t.info);
    }
    dibs_lock_owner_text(r->l, 0, owner, sizeof owner);
    if (err == DIBS_OK && (!t.info.locked || t.info.holds != 1 ||
                           strcmp(t.info.owner, owner) != 0))
        fail_msg("%s: told of %lld holds of '%s'", r->where,
                 (long long)t.info.holds, t.info.owner);
    return err;
}

/* ---- steps and faults -------------------------------------------------- */

struct step {
    const char *name;
    const struct dibs__script *script;
    size_t reply_len;   /* at least */
    int before, after;  /* our holds, when all is well */
    bool next_owner;    /* somebody here waits for the lock */
    bool rival;         /* somebody else has it */
    bool watched;       /* the watchdog's doing: a short lease */
    dibs_err timed_out; /* what one reply that never comes leads to */
    dibs_err (*act)(struct loss_run *r);
};

static const struct step steps[] = {
    {"acquire", &dibs__script_mutex_acquire, 5, .before = 0, .after = 1,
     .act = loss_acquire},
    {"try", &dibs__script_mutex_acquire, 5, .before = 0, .after = 1,
     .timed_out = DIBS_ERR_UNKNOWN, .act = loss_try},
    {"re-entry", &dibs__script_mutex_acquire, 5, .before = 1, .after = 2,
     .act = loss_acquire},
    {"partial release", &dibs__script_mutex_release, 4, .before = 2, .after = 1,
     .act = loss_release},
    {"release", &dibs__script_mutex_release, 4, .before = 1, .after = 0,
     .act = loss_release},
    {"hand-over", &dibs__script_mutex_handover, 4, .before = 1, .after = 0,
     .next_owner = true, .act = loss_release},
    {"force release", &dibs__script_mutex_force, 4, .rival = true,
     .act = force},
    {"info", &dibs__script_mutex_info, 60, .before = 1, .after = 1,
     .act = look},
    {"renewal", &dibs__script_mutex_renew, 7, .before = 1, .after = 1,
     .watched = true, .act = loss_renewed},
};

static const struct loss *const losses[] = {
    &loss_not_passed_on, &loss_not_passed_on_reset, &loss_request_cut,
    &loss_reply_dropped, &loss_reply_dropped_reset, &loss_reply_held,
};

/* ---- one run ----------------------------------------------------------- */

/* Up to the trap. */
static void begin(struct scene *sc, const struct step *st,
                  const struct loss *loss)
{
    struct loss_run *r = &sc->run;

    loss_begin(r, "reply", st->name, loss, st->watched);
    r->l = kit_lock(r->k, r->name);
    loss_hold(r, st->before);
    if (st->rival) {
        sc->rival = kit_open(&(struct kit_opts){.direct = true});
        sc->rival_lock = kit_lock(sc->rival, r->name);
        assert_int_equal(dibs_lock_acquire(sc->rival_lock, NULL), DIBS_OK);
    }
    sc->next_owner = dibs_owner_new(r->k->c);
    if (st->next_owner)
        assert_int_equal(dibs_lock_acquire_async(
                             r->l, DIBS_LOCK_OPTS(.owner = sc->next_owner),
                             kit_ended, &sc->next_end),
                         DIBS_OK);
    if (!r->async)
        kit_warm(r->k, r->l, r->name);
    char *needle = kit_needle(st->script, r->name);
    loss_trap(r, needle);
    free(needle);
}

/* Gives back what is held, whatever that is by now. */
static void give_back(struct scene *sc, const struct step *st)
{
    struct loss_run *r = &sc->run;
    dibs_err err;

    if (st->next_owner) {
        err = kit_wait(&sc->next_end);
        if (err != DIBS_OK)
            fail_msg("%s: the next owner gets: %s", r->where,
                     dibs_strerror(err));
        kit_check(r->where, r->l, sc->next_owner, r->name, 1);
        err = dibs_lock_release(
            r->l, DIBS_LOCK_OPTS(.owner = sc->next_owner, .wait_ms = TS_SOON));
        if (err != DIBS_OK)
            fail_msg("%s: the next owner gives it back: %s", r->where,
                     dibs_strerror(err));
    }
    loss_give_back(r);
}

/* The rival goes. The one that lost one reply has forced it out; the one that
 * lost all of them may have, or not. */
static void part(struct scene *sc)
{
    if (!sc->rival)
        return;
    if (dibs_lock_release(sc->rival_lock, NULL) != DIBS_ERR_LOST &&
        !sc->run.for_ever)
        fail_msg("%s: the one forced out does not know", sc->run.where);
    dibs_lock_free(sc->rival_lock);
    kit_close(sc->rival);
}

/* Nothing is left, and the same thread can have the lock again. */
static void end(struct loss_run *r)
{
    kit_gone(r->where, r->name);
    loss_take_again(r);
    kit_check(r->where, r->l, 0, r->name, 1);
    loss_give_back(r);
    if (r->for_ever)
        kit_free_for_all(r->where, r->name);
    loss_end(r);
}

static bool lose_one(const struct step *st, const struct loss *loss,
                     enum kit_user user, bool async)
{
    struct scene sc = {.run = {.user = user, .async = async}};
    struct loss_run *r = &sc.run;

    begin(&sc, st, loss);
    dibs_err err = st->act(r);
    bool sure = loss_verdict(r, err, st->timed_out);
    if (err == DIBS_OK && !st->next_owner)
        kit_check(r->where, r->l, 0, r->name, st->after);
    give_back(&sc, st);
    end(r);
    part(&sc);
    return sure;
}

static void lose_one_surely(const struct step *st, const struct loss *loss,
                            enum kit_user user, bool async)
{
    for (int times = 1; !lose_one(st, loss, user, async); times++)
        loss_unsure(st->name, loss, times);
}

/* ---- tests ------------------------------------------------------------- */

/* Nobody calls for a renewal, and each takes a while: every third will do. */
static void lose_all_ways(enum kit_user user)
{
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(losses); i++)
            if (!steps[s].watched) {
                lose_one_surely(&steps[s], losses[i], user, false);
                lose_one_surely(&steps[s], losses[i], user, true);
            } else if (i % 3 == 2) {
                lose_one_surely(&steps[s], losses[i], user, false);
            }
}

static void test_one_lost_kill_allowed(void **state)
{
    (void)state;
    lose_all_ways(KIT_FULL);
}

static void test_one_lost_kill_forbidden(void **state)
{
    (void)state;
    lose_all_ways(KIT_MEEK);
}

/* The reply is cut at each of its bytes. */
static void test_reply_cut_at_every_byte(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t at = 0; at < steps[s].reply_len; at++) {
            struct loss loss = loss_reply_cut_at(at);
            if (steps[s].watched && at != 3)
                continue;
            enum kit_user user = at % 2 ? KIT_MEEK : KIT_FULL;
            lose_one_surely(&steps[s], &loss, user, at / 2 % 2);
        }
}

/* Every reply of this step is lost, until the caller gives up. False: nothing
 * was sent. */
static bool lose_all(const struct step *st, const struct loss *loss,
                     enum kit_user user, bool async)
{
    struct scene sc = {.run = {.user = user, .async = async, .for_ever = true}};
    struct loss_run *r = &sc.run;

    begin(&sc, st, loss);
    dibs_err err = st->act(r);
    bool unsent = loss_unsent(r, err);
    if (err != DIBS_ERR_UNKNOWN && !unsent)
        fail_msg("%s: %s", r->where, dibs_strerror(err));
    if (dibs_lock_holds(r->l, 0) !=
        (st->after < st->before ? st->after : st->before))
        fail_msg("%s: holds %lld", r->where,
                 (long long)dibs_lock_holds(r->l, 0));
    ts_proxy_unrule(kit_px, 0);
    give_back(&sc, st);
    part(&sc);
    end(r);
    return !unsent;
}

static void lose_for_ever(const struct step *st, const struct loss *loss,
                          enum kit_user user, bool async)
{
    for (int times = 1; !lose_all(st, loss, user, async); times++)
        loss_unsure(st->name, loss, times);
}

static void test_all_lost(void **state)
{
    static const struct loss *const some[] = {&loss_not_passed_on,
                                              &loss_reply_held};
    bool async = false;

    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(some) && !steps[s].watched; i++) {
            lose_for_ever(&steps[s], some[i], KIT_FULL, async);
            lose_for_ever(&steps[s], some[i], KIT_MEEK, !async);
            async = !async;
        }
}

/* No renewal is ever answered, though each is executed. Nobody else says that
 * the lock is lost; our own clock must. Then it must not stay locked. */
static void check_renewals_lost(enum kit_user user)
{
    struct scene sc = {.run = {.user = user, .for_ever = true}};
    struct loss_run *r = &sc.run;

    begin(&sc, &steps[COUNT(steps) - 1], &loss_reply_held);
    TS_WAIT(dibs_lock_state(r->l, 0) != DIBS_HELD);
    assert_int_equal(dibs_lock_state(r->l, 0), DIBS_SUSPECT);
    assert_true(dibs_lock_valid_ms(r->l, 0) > 0);
    TS_WAIT(dibs_lock_state(r->l, 0) == DIBS_LOST);
    assert_int_equal(dibs_lock_valid_ms(r->l, 0), 0);
    TS_WAIT(atomic_load(&r->lost) == 1);
    assert_true(kit_told(r->k, DIBS_EVENT_SUSPECT) > 0);
    assert_int_equal(dibs_lock_release(r->l, NULL), DIBS_ERR_LOST);
    assert_int_equal(dibs_lock_release(r->l, NULL), DIBS_ERR_NOT_OWNER);
    ts_proxy_unrule(kit_px, 0);
    end(r);
    assert_int_equal(atomic_load(&r->lost), 1);
}

static void test_renewals_never_answered(void **state)
{
    (void)state;
    check_renewals_lost(KIT_FULL);
    check_renewals_lost(KIT_MEEK);
}

/* ---- late, not lost ---------------------------------------------------- */

/* Waits until the lock has less than this left, at the server. */
static void wait_ttl(const char *name, long long below)
{
    TS_WAIT(ts_pttl(kit_srv, name) < below);
}

static int hold_reply(const struct dibs__script *script, const char *name)
{
    return kit_rule(script, name,
                    &(struct ts_rule){.action = TS_HOLD_REPLY, .count = 1});
}

/* The answer to an acquire takes a while. The lease has been running since
 * before it was asked for, so what is left of it, as we have it, is never more
 * than what is left of it at the server. */
static void test_late_answer_shortens_what_is_left(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
    dibs_lock *l = kit_lock(k, "late");
    dibs_owner next_owner = dibs_owner_new(k->c);
    struct kit_end end = {.err = DIBS_OK}, inherited = {.err = DIBS_OK};

    (void)state;
    hold_reply(&dibs__script_mutex_acquire, "late");
    assert_int_equal(dibs_lock_acquire_async(l, NULL, kit_ended, &end),
                     DIBS_OK);
    assert_true(ts_wait_exists(kit_srv, "late", true));
    wait_ttl("late", KIT_LONG - 200);
    ts_proxy_release(kit_px);
    assert_int_equal(kit_wait(&end), DIBS_OK);
    long long left = ts_pttl(kit_srv, "late");
    assert_true(dibs_lock_valid_ms(l, 0) <= left);

    assert_int_equal(
        dibs_lock_acquire_async(l, DIBS_LOCK_OPTS(.owner = next_owner),
                                kit_ended, &inherited),
        DIBS_OK);
    int id = hold_reply(&dibs__script_mutex_handover, "late");
    memset(&end, 0, sizeof end);
    assert_int_equal(dibs_lock_release_async(l, NULL, kit_ended, &end),
                     DIBS_OK);
    TS_WAIT(ts_rule_executed(kit_px, id) == 1);
    wait_ttl("late", KIT_LONG - 200);
    ts_proxy_release(kit_px);
    assert_int_equal(kit_wait(&end), DIBS_OK);
    assert_int_equal(kit_wait(&inherited), DIBS_OK);
    left = ts_pttl(kit_srv, "late");
    assert_true(dibs_lock_valid_ms(l, next_owner) <= left);
    dibs_lock_free(l);
    kit_close(k);
}

/* It takes longer than the lease. Then nothing was taken. */
static void test_answer_after_the_lease(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
    dibs_lock *l = kit_lock(k, "over");
    struct kit_end end = {.err = DIBS_OK};

    (void)state;
    int id = hold_reply(&dibs__script_mutex_acquire, "over");
    assert_int_equal(dibs_lock_try_async(l, DIBS_LOCK_OPTS(.lease_ms = 200),
                                         kit_ended, &end),
                     DIBS_OK);
    TS_WAIT(ts_rule_executed(kit_px, id) == 1);
    assert_true(ts_wait_exists(kit_srv, "over", false));
    kit_free_for_all("meanwhile", "over");
    ts_proxy_release(kit_px);
    assert_int_equal(kit_wait(&end), DIBS_ERR_UNKNOWN);
    assert_int_equal(dibs_lock_state(l, 0), DIBS_NOT_HELD);
    dibs_lock_free(l);
    kit_close(k);
}

/* A release is on its way for longer than the lease. Nothing may renew the lock
 * meanwhile: it ends, and the release finds it gone. */
static void test_renewal_ends_before_release(void **state)
{
    struct kit_client *k =
        kit_open(&(struct kit_opts){.lease_ms = kit_ms(2400)});
    dibs_lock *l = kit_lock(k, "end");
    struct kit_end end = {.err = DIBS_OK};

    (void)state;
    assert_int_equal(dibs_lock_acquire(l, NULL), DIBS_OK);
    kit_rule(&dibs__script_mutex_release, "end",
             &(struct ts_rule){.action = TS_HOLD_REQUEST, .count = 1});
    assert_int_equal(dibs_lock_release_async(l, NULL, kit_ended, &end),
                     DIBS_OK);
    kit_gone("being given back", "end");
    ts_proxy_release(kit_px);
    assert_int_equal(kit_wait(&end), DIBS_ERR_LOST);
    assert_int_equal(dibs_lock_release(l, NULL), DIBS_ERR_NOT_OWNER);
    dibs_lock_free(l);
    kit_close(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_one_lost_kill_allowed, kit_fresh),
        cmocka_unit_test_setup(test_one_lost_kill_forbidden, kit_fresh),
        cmocka_unit_test_setup(test_reply_cut_at_every_byte, kit_fresh),
        cmocka_unit_test_setup(test_all_lost, kit_fresh),
        cmocka_unit_test_setup(test_renewals_never_answered, kit_fresh),
        cmocka_unit_test_setup(test_late_answer_shortens_what_is_left,
                               kit_fresh),
        cmocka_unit_test_setup(test_answer_after_the_lease, kit_fresh),
        cmocka_unit_test_setup(test_renewal_ends_before_release, kit_fresh),
    };

    return TS_RUN_PARALLEL("fault.reply_lost", tests, kit_up, kit_down);
}
