/* SPDX-License-Identifier: MIT
 *
 * fault_rw.c - both halves of the read-write lock when things go wrong: replies
 * that are lost, at every step and in every way; a server that starts again, or
 * that stops for a while.
 *
 * Whatever happened, the answer is right, the server has exactly the holds that
 * the library says, a reader has its read key, and in the end nothing is left:
 * no hash, no read key, no sign of a writer that waits.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/loss.h"

#include <stdio.h>
#include <string.h>

enum half { READ, WRITE };

static const char *const half_names[] = {"read", "write"};

/* A run with one half, and who else may have it. */
struct scene {
    struct loss_run run;
    enum half half;
    struct kit_client *rival;
    dibs_lock *rival_lock;
};

static dibs_lock *half_of(struct kit_client *k, enum half half,
                          const char *name)
{
    dibs_lock *l = NULL;

    assert_int_equal(half == READ ? dibs_read_lock_new(k->c, name, &l)
                                  : dibs_write_lock_new(k->c, name, &l),
                     DIBS_OK);
    return l;
}

/* ---- the server's view ------------------------------------------------- */

/* The keys are as our owner's view has it, and nobody else is there. */
static void check(struct scene *sc, long long holds)
{
    struct loss_run *r = &sc->run;
    char owner[DIBS_OWNER_MAX] = "";
    long long known = dibs_lock_holds(r->l, 0);
    long long here = kit_holds(r->l, 0, r->name);
    long long fields = ts_hlen(kit_srv, r->name);
    char *mode = ts_hget(kit_srv, r->name, "mode");

    if (known != holds || here != holds || fields != (holds ? 2 : 0))
        fail_msg("%s: %lld holds wanted; %lld known, %lld there, %lld fields",
                 r->where, holds, known, here, fields);
    if (holds && (!mode || strcmp(mode, half_names[sc->half]) != 0 ||
                  ts_pttl(kit_srv, r->name) <= 0))
        fail_msg("%s: mode %s", r->where, mode ? mode : "none");
    free(mode);
    if (!holds || sc->half == WRITE)
        return;
    assert_int_equal(dibs_lock_owner_text(r->l, 0, owner, sizeof owner),
                     DIBS_OK);
    char *key = ts_text("{%s}:%s:rwlock_timeout:1", r->name, owner);
    if (ts_pttl(kit_srv, key) <= 0)
        fail_msg("%s: no read key", r->where);
    free(key);
}

/* A stranger can have all of it, and gives it back. */
static void free_for_all(const char *where, const char *name)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = half_of(k, WRITE, name);
    dibs_err err = dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON));

    if (err != DIBS_OK || dibs_lock_release(l, NULL) != DIBS_OK)
        fail_msg("%s: a stranger gets: %s", where, dibs_strerror(err));
    dibs_lock_free(l);
    kit_close(k);
}

/* ---- calls, sync or async ---------------------------------------------- */

static dibs_err force(struct loss_run *r)
{
    bool was = false;
    dibs_err err = dibs_lock_force_release(r->l, &was);

    if (err == DIBS_OK && !was)
        fail_msg("%s: it was locked", r->where);
    return err;
}

static bool count_holder(const char *owner, dibs_mode mode, int64_t holds,
                         int64_t remaining_ms, void *arg)
{
    (void)owner;
    (void)mode;
    *(int64_t *)arg += remaining_ms > 0 ? holds : 100;
    return true;
}

static dibs_err look(struct loss_run *r)
{
    int64_t holds = 0;
    dibs_err err = dibs_lock_holders(r->l, count_holder, &holds);

    if (err == DIBS_OK && holds != 1)
        fail_msg("%s: told of %lld holds", r->where, (long long)holds);
    return err;
}

/* Waits for a rival, and gives up: says so to the server. */
static dibs_err give_up(struct loss_run *r)
{
    dibs_err err =
        kit_call(r->l, r->async, dibs_lock_acquire, dibs_lock_acquire_async,
                 DIBS_LOCK_OPTS(.wait_ms = 50));

    return err == DIBS_ERR_TIMEOUT ? DIBS_OK : err;
}

/* ---- steps and faults -------------------------------------------------- */

struct step {
    const char *name;
    const struct dibs__script *of[2]; /* by half; NULL: not for this one */
    size_t reply_len;                 /* at least */
    int before, after;                /* our holds, when all is well */
    bool rival;                       /* somebody else has it */
    bool watched;                     /* the watchdog's doing: a short lease */
    dibs_err timed_out; /* what one reply that never comes leads to */
    dibs_err (*act)(struct loss_run *r);
};

#define ACQUIRES                                                               \
    {                                                                          \
        &dibs__script_read_acquire, &dibs__script_write_acquire                \
    }
#define RELEASES                                                               \
    {                                                                          \
        &dibs__script_read_release, &dibs__script_write_release                \
    }

static const struct step steps[] = {
    {"acquire", ACQUIRES, 5, .after = 1, .act = loss_acquire},
    {"try", ACQUIRES, 5, .after = 1, .timed_out = DIBS_ERR_UNKNOWN,
     .act = loss_try},
    {"re-entry", ACQUIRES, 5, .before = 1, .after = 2, .act = loss_acquire},
    {"partial release", RELEASES, 4, .before = 2, .after = 1,
     .act = loss_release},
    {"release", RELEASES, 4, .before = 1, .after = 0, .act = loss_release},
    {"force release",
     {&dibs__script_read_force, &dibs__script_write_leave},
     4,
     .rival = true,
     .act = force},
    {"holders",
     {&dibs__script_holders, &dibs__script_holders},
     60,
     .before = 1,
     .after = 1,
     .act = look},
    {"giving up",
     {NULL, &dibs__script_write_leave},
     4,
     .rival = true,
     .act = give_up},
    {"renewal",
     {&dibs__script_read_renew, &dibs__script_mutex_renew},
     7,
     .before = 1,
     .after = 1,
     .watched = true,
     .act = loss_renewed},
};

static const struct loss *const losses[] = {
    &loss_not_passed_on,       &loss_request_cut, &loss_reply_dropped,
    &loss_reply_dropped_reset, &loss_reply_held,
};

/* ---- one run ----------------------------------------------------------- */

/* The ways of a run: bit 0 for async, bit 1 for no right to CLIENT KILL. */
static struct scene scene(enum half half, unsigned way, bool for_ever)
{
    return (struct scene){.run = {.user = way & 2 ? KIT_MEEK : KIT_FULL,
                                  .async = way & 1,
                                  .for_ever = for_ever},
                          .half = half};
}

/* Up to the trap. Nobody else talks through the proxy, so the script's name is
 * enough for it. */
static void begin(struct scene *sc, const struct step *st,
                  const struct loss *loss)
{
    struct loss_run *r = &sc->run;

    loss_begin(r, half_names[sc->half], st->name, loss, st->watched);
    r->l = half_of(r->k, sc->half, r->name);
    loss_hold(r, st->before);
    if (st->rival) {
        sc->rival = kit_open(&(struct kit_opts){.direct = true});
        sc->rival_lock = half_of(sc->rival, sc->half, r->name);
        assert_int_equal(dibs_lock_acquire(sc->rival_lock, NULL), DIBS_OK);
    }
    if (!r->async)
        kit_warm(r->k, r->l, r->name);
    loss_trap(r, st->of[sc->half]->sha);
}

/* Gives back what is held, whatever that is by now. */
static void give_back(struct scene *sc, const struct step *st)
{
    loss_give_back(&sc->run);
    if (!st->rival)
        return;
    dibs_err err = dibs_lock_release(sc->rival_lock, NULL);
    dibs_err want = st->act == give_up ? DIBS_OK : DIBS_ERR_LOST;
    if (err != want && !sc->run.for_ever) /* it may have happened, or not */
        fail_msg("%s: the rival: %s", sc->run.where, dibs_strerror(err));
    dibs_lock_free(sc->rival_lock);
    kit_close(sc->rival);
}

/* Nothing is left, and the same thread can have the lock again. */
static void end(struct scene *sc)
{
    struct loss_run *r = &sc->run;

    kit_no_keys(r->where);
    loss_take_again(r);
    check(sc, 1);
    loss_give_back(r);
    if (r->for_ever)
        free_for_all(r->where, r->name);
    loss_end(r);
    kit_no_keys(r->where);
}

static bool lose_one(const struct step *st, const struct loss *loss,
                     enum half half, unsigned way)
{
    struct scene sc = scene(half, way, false);

    begin(&sc, st, loss);
    dibs_err err = st->act(&sc.run);
    bool sure = loss_verdict(&sc.run, err, st->timed_out);
    if (err == DIBS_OK && !st->rival)
        check(&sc, st->after);
    give_back(&sc, st);
    end(&sc);
    return sure;
}

static void lose_one_surely(const struct step *st, const struct loss *loss,
                            enum half half, unsigned way)
{
    if (!st->of[half])
        return;
    for (int times = 1; !lose_one(st, loss, half, way); times++)
        loss_unsure(st->name, loss, times);
}

/* ---- replies that are lost --------------------------------------------- */

/* Nobody calls for a renewal, and each takes a while: one way will do. */
static void lose_all_ways(enum half half)
{
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(losses); i++)
            for (unsigned way = 0; way < 4; way += losses[i]->silent ? 3 : 1)
                if (!steps[s].watched || (way == 0 && i == 2))
                    lose_one_surely(&steps[s], losses[i], half, way);
}

static void test_rw_read_one_lost(void **state)
{
    (void)state;
    lose_all_ways(READ);
}

static void test_rw_write_one_lost(void **state)
{
    (void)state;
    lose_all_ways(WRITE);
}

static void test_rw_reply_cut_at_every_byte(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t at = 0; at < steps[s].reply_len && at < 12; at++) {
            struct loss loss = loss_reply_cut_at(at);
            if (!steps[s].watched)
                for (enum half half = READ; half <= WRITE; half++)
                    lose_one_surely(&steps[s], &loss, half, (unsigned)at % 4);
        }
}

/* Every reply of this step is lost, until the caller gives up. False: nothing
 * was sent. */
static bool lose_all(const struct step *st, const struct loss *loss,
                     enum half half, unsigned way)
{
    struct scene sc = scene(half, way, true);

    begin(&sc, st, loss);
    dibs_err err = st->act(&sc.run);
    bool unsent = loss_unsent(&sc.run, err);
    if (err != DIBS_ERR_UNKNOWN && !unsent &&
        !(st->act == give_up && err == DIBS_OK))
        fail_msg("%s: %s", sc.run.where, dibs_strerror(err));
    kit_relent();
    give_back(&sc, st);
    end(&sc);
    return !unsent;
}

static void lose_for_ever(const struct step *st, const struct loss *loss,
                          enum half half, unsigned way)
{
    for (int times = 1; !lose_all(st, loss, half, way); times++)
        loss_unsure(st->name, loss, times);
}

static void test_rw_all_lost(void **state)
{
    static const struct loss *const some[] = {&loss_not_passed_on,
                                              &loss_reply_held};
    unsigned way = 0;

    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(some); i++)
            for (enum half half = READ; half <= WRITE; half++)
                if (!steps[s].watched && steps[s].of[half])
                    lose_for_ever(&steps[s], some[i], half, way++ % 4);
}

/* ---- a server that starts again, or stops ------------------------------- */

/* One that holds this half, renewed. */
static void hold(struct scene *sc, enum half half, int64_t lease_ms)
{
    struct loss_run *r = &sc->run;

    *sc = scene(half, 0, false);
    snprintf(r->where, sizeof r->where, "%s", half_names[half]);
    r->name = kit_name("rw");
    r->k = kit_open(&(struct kit_opts){
        .direct = true, .lease_ms = lease_ms, .timeout_ms = ts_ms(500)});
    r->l = half_of(r->k, half, r->name);
    loss_hold(r, 1);
}

/* It knows that it has lost the lock, and was told once. */
static void has_lost(struct loss_run *r)
{
    TS_WAIT(dibs_lock_state(r->l, 0) == DIBS_LOST);
    TS_WAIT(atomic_load(&r->lost) == 1);
    assert_int_equal(dibs_lock_release(r->l, NULL), DIBS_ERR_LOST);
    assert_int_equal(dibs_lock_release(r->l, NULL), DIBS_ERR_NOT_OWNER);
}

static void test_rw_restart(void **state)
{
    (void)state;
    for (enum half half = READ; half <= WRITE; half++) {
        struct scene sc;
        struct kit_end waiter = {.err = DIBS_OK};
        hold(&sc, half, ts_ms(900));
        struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
        dibs_lock *w = half_of(k, WRITE, sc.run.name);
        assert_int_equal(dibs_lock_acquire_async(w, NULL, kit_ended, &waiter),
                         DIBS_OK);
        ts_server_restart(kit_srv);
        assert_int_equal(kit_wait(&waiter), DIBS_OK); /* nobody has it now */
        has_lost(&sc.run);
        assert_int_equal(dibs_lock_release(w, NULL), DIBS_OK);
        dibs_lock_free(w);
        kit_close(k);
        end(&sc);
    }
}

/* Stopped for less than a lease: nothing is lost. */
static void test_rw_stopped_shortly(void **state)
{
    (void)state;
    for (enum half half = READ; half <= WRITE; half++) {
        struct scene sc;
        hold(&sc, half, ts_ms(6000));
        ts_server_pause(kit_srv);
        TS_WAIT(dibs_lock_state(sc.run.l, 0) == DIBS_SUSPECT);
        ts_server_resume(kit_srv);
        TS_WAIT(dibs_lock_state(sc.run.l, 0) == DIBS_HELD);
        check(&sc, 1);
        assert_int_equal(atomic_load(&sc.run.lost), 0);
        assert_int_equal(dibs_lock_release(sc.run.l, NULL), DIBS_OK);
        end(&sc);
    }
}

static void pause_clients(bool stop)
{
    if (stop)
        ts_server_pause(kit_srv);
    else
        ts_ok(kit_srv, "CLIENT PAUSE %lld", (long long)ts_ms(1500));
}

/* Stopped for longer, the process or only its clients: lost by our own clock,
 * before the server says anything; and then somebody else can have it. */
static void test_rw_stopped_long(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct scene sc;
        hold(&sc, i % 2 ? READ : WRITE, ts_ms(600));
        pause_clients(i < 2);
        TS_WAIT(dibs_lock_state(sc.run.l, 0) == DIBS_LOST);
        TS_WAIT(atomic_load(&sc.run.lost) == 1);
        if (i < 2)
            ts_server_resume(kit_srv);
        has_lost(&sc.run);
        free_for_all(sc.run.where, sc.run.name);
        end(&sc);
    }
}

/* A call that the pause falls into is just late. */
static void test_rw_paused_call(void **state)
{
    (void)state;
    for (enum half half = READ; half <= WRITE; half++) {
        struct scene sc = scene(half, 0, false);
        struct loss_run *r = &sc.run;
        snprintf(r->where, sizeof r->where, "paused");
        r->name = kit_name("rw");
        r->k = kit_open(&(struct kit_opts){.direct = true});
        r->l = half_of(r->k, half, r->name);
        ts_ok(kit_srv, "CLIENT PAUSE 200");
        assert_int_equal(dibs_lock_acquire(r->l, NULL), DIBS_OK);
        check(&sc, 1);
        ts_ok(kit_srv, "CLIENT PAUSE 200");
        assert_int_equal(dibs_lock_release(r->l, NULL), DIBS_OK);
        end(&sc);
    }
}

/* ---- the set-up -------------------------------------------------------- */

static int fresh(void **state)
{
    static const struct dibs__script *const scripts[] = {
        &dibs__script_read_acquire,  &dibs__script_read_release,
        &dibs__script_read_renew,    &dibs__script_read_force,
        &dibs__script_write_acquire, &dibs__script_write_release,
        &dibs__script_write_leave,   &dibs__script_holders};

    kit_fresh(state);
    for (size_t i = 0; i < COUNT(scripts); i++)
        kit_load(scripts[i]);
    return 0;
}

/* ---- one half ends, and the other goes on ------------------------------ */

/* The rest of a read that its clock has ended is taken back while its owner
 * goes on to write; so is a release that was given up and comes late. What the
 * owner reads next is another read, by another number. */
static void old_read_ends(bool given_up)
{
    struct kit_client *k = kit_open(&(struct kit_opts){
        .user = KIT_MEEK, .timeout_ms = given_up ? kit_ms(200) : 0});
    char *name = kit_name("rw");
    dibs_lock *r = half_of(k, READ, name), *w = half_of(k, WRITE, name);
    dibs_lock *other = kit_lock(k, "other");

    kit_warm(k, other, "other"); /* calls have a connection that goes on */
    kit_want("write", dibs_lock_acquire(w, NULL), DIBS_OK);
    kit_want("read",
             dibs_lock_acquire(
                 r, DIBS_LOCK_OPTS(.lease_ms = given_up ? 0 : kit_ms(300))),
             DIBS_OK);
    TS_WAIT(given_up || dibs_lock_state(r, 0) == DIBS_LOST);
    int id = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                  .contains = dibs__script_read_release.sha,
                                  .count = given_up ? 2 : 1});
    kit_want("end", dibs_lock_release(r, NULL),
             given_up ? DIBS_ERR_UNKNOWN : DIBS_ERR_LOST);
    if (!ts_rule_wait(kit_px, id, 1, TS_SOON))
        fail_msg("nothing was held");
    kit_want("read again", dibs_lock_acquire(r, NULL), DIBS_OK);
    kit_relent();
    kit_want("something else", dibs_lock_try(r, NULL), DIBS_OK);
    kit_want("something else", dibs_lock_release(r, NULL), DIBS_OK);
    assert_int_equal(kit_holds(r, 0, name), 1);
    kit_want("end of both", dibs_lock_release(w, NULL), DIBS_OK);
    assert_int_equal(kit_holds(r, 0, name), 1);
    kit_want("end of both", dibs_lock_release(r, NULL), DIBS_OK);
    free_for_all("an old read", name);
    dibs_lock_free(other);
    dibs_lock_free(r);
    dibs_lock_free(w);
    kit_close(k);
    free(name);
}

static void test_rw_rest_of_a_writer(void **state)
{
    (void)state;
    old_read_ends(false);
}

static void test_rw_late_end_of_a_read(void **state)
{
    (void)state;
    old_read_ends(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_rw_read_one_lost, fresh),
        cmocka_unit_test_setup(test_rw_write_one_lost, fresh),
        cmocka_unit_test_setup(test_rw_reply_cut_at_every_byte, fresh),
        cmocka_unit_test_setup(test_rw_all_lost, fresh),
        cmocka_unit_test_setup(test_rw_restart, fresh),
        cmocka_unit_test_setup(test_rw_stopped_shortly, fresh),
        cmocka_unit_test_setup(test_rw_stopped_long, fresh),
        cmocka_unit_test_setup(test_rw_paused_call, fresh),
        cmocka_unit_test_setup(test_rw_rest_of_a_writer, fresh),
        cmocka_unit_test_setup(test_rw_late_end_of_a_read, fresh),
    };

    return TS_RUN_PARALLEL("fault.rw", tests, kit_up, kit_down);
}
