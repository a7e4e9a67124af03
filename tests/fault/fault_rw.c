/* SPDX-License-Identifier: MIT
 *
 * fault_rw.c - both halves of the read-write lock when things go wrong: replies
 * that are lost, at every step and in every way; a server that starts anew, or
 * that stops for a while.
 *
 * Whatever happened, the answer is right, the server has exactly the holds that
 * the library says, a reader has its read key, and in the end nothing is left:
 * no hash, no read key, no sign of a writer that waits.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <stdio.h>
#include <string.h>

#define HASTY_MS ts_ms(100) /* a command's time where a reply never comes */
#define TRIES    5

enum half { READ, WRITE };

static const char *const half_names[] = {"read", "write"};

struct run {
    char *where; /* for people */
    enum half half;
    struct kit_client *k, *rival;
    dibs_lock *l, *rival_lock;
    char *name;
    bool async;
    bool for_ever;   /* every reply is lost, not one */
    int rule, later; /* the fault, and requests that it lets pass */
    atomic_int lost;
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
static void check(struct run *r, long long holds)
{
    char owner[DIBS_OWNER_MAX] = "";
    long long known = dibs_lock_holds(r->l, 0);
    long long here = kit_holds(r->l, 0, r->name);
    long long fields = ts_hlen(kit_srv, r->name);
    char *mode = ts_hget(kit_srv, r->name, "mode");

    if (known != holds || here != holds || fields != (holds ? 2 : 0))
        fail_msg("%s: %lld holds wanted; %lld known, %lld there, %lld fields",
                 r->where, holds, known, here, fields);
    if (holds && (!mode || strcmp(mode, half_names[r->half]) != 0 ||
                  ts_pttl(kit_srv, r->name) <= 0))
        fail_msg("%s: mode %s", r->where, mode ? mode : "none");
    free(mode);
    if (!holds || r->half == WRITE)
        return;
    assert_int_equal(dibs_lock_owner_text(r->l, 0, owner, sizeof owner),
                     DIBS_OK);
    char *key = ts_text("{%s}:%s:rwlock_timeout:1", r->name, owner);
    if (ts_pttl(kit_srv, key) <= 0)
        fail_msg("%s: no read key", r->where);
    free(key);
}

/* Nothing is left of this lock, soon. */
static void gone(const char *where)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (ts_nkeys(kit_srv) != 0)
        if (!ts_wait_step(&w))
            fail_msg("%s: %lld keys are left", where, ts_nkeys(kit_srv));
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

typedef dibs_err start_fn(dibs_lock *l, const dibs_lock_opts *o, dibs_cb cb,
                          void *arg);
typedef dibs_err call_fn(dibs_lock *l, const dibs_lock_opts *o);

static dibs_err call(struct run *r, call_fn *sync, start_fn *async,
                     const dibs_lock_opts *o)
{
    struct kit_end end = {.err = DIBS_OK};

    if (!r->async)
        return sync(r->l, o);
    dibs_err err = async(r->l, o, kit_ended, &end);
    return err == DIBS_OK ? kit_wait(&end) : err;
}

static dibs_err acquire(struct run *r)
{
    return call(r, dibs_lock_acquire, dibs_lock_acquire_async,
                DIBS_LOCK_OPTS(.wait_ms = r->for_ever ? HASTY_MS : 0,
                               .on_lost = kit_lost, .arg = &r->lost));
}

static dibs_err try(struct run *r)
{
    return call(r, dibs_lock_try, dibs_lock_try_async, NULL);
}

static dibs_err release(struct run *r)
{
    return call(r, dibs_lock_release, dibs_lock_release_async, NULL);
}

static dibs_err force(struct run *r)
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

static dibs_err look(struct run *r)
{
    int64_t holds = 0;
    dibs_err err = dibs_lock_holders(r->l, count_holder, &holds);

    if (err == DIBS_OK && holds != 1)
        fail_msg("%s: told of %lld holds", r->where, (long long)holds);
    return err;
}

/* Waits for a rival, and gives up: says so to the server. */
static dibs_err give_up(struct run *r)
{
    dibs_err err = call(r, dibs_lock_acquire, dibs_lock_acquire_async,
                        DIBS_LOCK_OPTS(.wait_ms = 50));

    return err == DIBS_ERR_TIMEOUT ? DIBS_OK : err;
}

/* Renewal comes by itself: one that fails, and one that does not. */
static dibs_err renewed(struct run *r)
{
    if (!ts_rule_wait(kit_px, r->rule, 1, TS_SOON) ||
        !ts_rule_wait(kit_px, r->later, 2, TS_SOON))
        fail_msg("%s: no renewal", r->where);
    if (dibs_lock_state(r->l, 0) == DIBS_LOST || atomic_load(&r->lost))
        return DIBS_ERR_LOST;
    return DIBS_OK;
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
    dibs_err (*act)(struct run *r);
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
    {"acquire", ACQUIRES, 5, .after = 1, .act = acquire},
    {"try", ACQUIRES, 5, .after = 1, .timed_out = DIBS_ERR_UNKNOWN, .act = try},
    {"re-entry", ACQUIRES, 5, .before = 1, .after = 2, .act = acquire},
    {"partial release", RELEASES, 4, .before = 2, .after = 1, .act = release},
    {"release", RELEASES, 4, .before = 1, .after = 0, .act = release},
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
     {&dibs__script_read_renew, &dibs__script_basic_renew},
     7,
     .before = 1,
     .after = 1,
     .watched = true,
     .act = renewed},
};

struct fault {
    const char *name;
    struct ts_rule rule;
    bool silent; /* nothing comes, nothing ends */
    bool tcp;
};

static const struct fault faults[] = {
    {"not passed on", {.action = TS_CLOSE_BEFORE}, false, false},
    {"request cut", {.action = TS_CUT_REQUEST_AT, .at = 20}, false, false},
    {"reply dropped", {.action = TS_DROP_REPLY_CLOSE}, false, false},
    {"reply dropped, reset",
     {.action = TS_DROP_REPLY_CLOSE, .rst = true},
     false,
     true},
    {"no reply", {.action = TS_HOLD_REPLY}, true, false},
};

/* ---- one run ----------------------------------------------------------- */

static void begin(struct run *r, const struct step *st, const struct fault *f,
                  enum kit_user user)
{
    struct kit_opts o = {.user = user, .tcp = f->tcp};
    bool hasty = (f->silent || r->for_ever) && !st->watched;

    o.timeout_ms = hasty ? HASTY_MS : 0;
    o.lease_ms = st->watched ? ts_ms(900) : 0;
    r->where = ts_text("%s, %s, %s%s, %s, %s", half_names[r->half], st->name,
                       f->name, r->for_ever ? " for ever" : "",
                       user == KIT_MEEK ? "no CLIENT KILL" : "CLIENT KILL",
                       r->async ? "async" : "sync");
    r->name = kit_name("rw");
    ts_proxy_reset(kit_px);
    r->k = kit_open(&o);
    r->l = half_of(r->k, r->half, r->name);
    for (int i = 0; i < st->before; i++)
        assert_int_equal(
            dibs_lock_acquire(
                r->l, DIBS_LOCK_OPTS(.on_lost = kit_lost, .arg = &r->lost)),
            DIBS_OK);
    if (st->rival) {
        r->rival = kit_open(&(struct kit_opts){.direct = true});
        r->rival_lock = half_of(r->rival, r->half, r->name);
        assert_int_equal(dibs_lock_acquire(r->rival_lock, NULL), DIBS_OK);
    }
    if (!r->async)
        kit_warm(r->k, r->l, r->name);
}

/* Nobody else talks through the proxy, so the script's name is enough. */
static void lay_trap(struct run *r, const struct step *st,
                     const struct fault *f)
{
    const char *sha = st->of[r->half]->sha;
    struct ts_rule rule = f->rule;

    rule.contains = sha;
    rule.count = r->for_ever ? 0 : 1;
    r->rule = ts_proxy_rule(kit_px, &rule);
    r->later = ts_proxy_rule(kit_px, &(struct ts_rule){.contains = sha});
}

/* Gives back what is held, whatever that is by now. */
static void give_back(struct run *r, const struct step *st)
{
    dibs_err err;

    while (dibs_lock_holds(r->l, 0) > 0)
        if ((err = dibs_lock_release(
                 r->l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON))) != DIBS_OK)
            fail_msg("%s: giving back: %s", r->where, dibs_strerror(err));
    if (!st->rival)
        return;
    err = dibs_lock_release(r->rival_lock, NULL);
    dibs_err want = st->act == give_up ? DIBS_OK : DIBS_ERR_LOST;
    if (err != want && !r->for_ever) /* then it may have happened, or not */
        fail_msg("%s: the rival: %s", r->where, dibs_strerror(err));
    dibs_lock_free(r->rival_lock);
    kit_close(r->rival);
}

/* Nothing is left, and the same thread can have the lock again. */
static void end(struct run *r)
{
    gone(r->where);
    if (dibs_lock_acquire(r->l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)) != DIBS_OK)
        fail_msg("%s: not to be had again", r->where);
    check(r, 1);
    if (dibs_lock_release(r->l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)) != DIBS_OK)
        fail_msg("%s: not to be given back again", r->where);
    if (r->for_ever)
        free_for_all(r->where, r->name);
    dibs_lock_free(r->l);
    kit_close(r->k);
    gone(r->where);
    free(r->name);
    free(r->where);
}

/* False: a reply did not come in time although nobody lost it, so this says
 * nothing; all is well all the same. */
static bool lose_one(const struct step *st, const struct fault *f,
                     enum half half, unsigned way)
{
    struct run r = {.half = half, .async = way & 1};
    dibs_err want = f->silent ? st->timed_out : DIBS_OK;

    begin(&r, st, f, way & 2 ? KIT_MEEK : KIT_FULL);
    lay_trap(&r, st, f);
    dibs_err err = st->act(&r);
    if (ts_rule_hits(kit_px, r.rule) != 1)
        fail_msg("%s: %u replies were lost", r.where,
                 ts_rule_hits(kit_px, r.rule));
    if (err == DIBS_OK && want == DIBS_OK && !st->rival)
        check(&r, st->after);
    bool slow = f->silent && err == DIBS_ERR_UNKNOWN;
    if (err != want && !slow)
        fail_msg("%s: %s", r.where, dibs_strerror(err));
    give_back(&r, st);
    end(&r);
    return err == want;
}

static void lose_one_surely(const struct step *st, const struct fault *f,
                            enum half half, unsigned way)
{
    int tries = 1;

    if (!st->of[half])
        return;
    while (!lose_one(st, f, half, way))
        if (++tries > TRIES)
            fail_msg("%s, %s: never answered", st->name, f->name);
}

/* ---- replies that are lost --------------------------------------------- */

/* Nobody calls for a renewal, and each takes a while: one way will do. */
static void lose_all_ways(enum half half)
{
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(faults); i++)
            for (unsigned way = 0; way < 4; way += faults[i].silent ? 3 : 1)
                if (!steps[s].watched || (way == 0 && i == 2))
                    lose_one_surely(&steps[s], &faults[i], half, way);
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
    char name[48];

    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t at = 0; at < steps[s].reply_len && at < 12; at++) {
            struct fault f = {
                name, {.action = TS_CUT_REPLY_AT, .at = at}, false, false};
            snprintf(name, sizeof name, "reply cut at %zu", at);
            if (!steps[s].watched)
                for (enum half half = READ; half <= WRITE; half++)
                    lose_one_surely(&steps[s], &f, half, (unsigned)at % 4);
        }
}

/* Every reply of this step is lost, until the caller gives up. */
static void lose_for_ever(const struct step *st, const struct fault *f,
                          enum half half, unsigned way)
{
    struct run r = {.half = half, .async = way & 1, .for_ever = true};

    begin(&r, st, f, way & 2 ? KIT_MEEK : KIT_FULL);
    lay_trap(&r, st, f);
    dibs_err err = st->act(&r);
    if (err != DIBS_ERR_UNKNOWN && !(st->act == give_up && err == DIBS_OK))
        fail_msg("%s: %s", r.where, dibs_strerror(err));
    ts_proxy_unrule(kit_px, 0);
    ts_proxy_release(kit_px);
    give_back(&r, st);
    end(&r);
}

static void test_rw_all_lost(void **state)
{
    static const size_t some[] = {0, 4}; /* never arrived; never answered */
    unsigned way = 0;

    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(some); i++)
            for (enum half half = READ; half <= WRITE; half++)
                if (!steps[s].watched && steps[s].of[half])
                    lose_for_ever(&steps[s], &faults[some[i]], half, way++ % 4);
}

/* ---- a server that starts anew, or stops ------------------------------- */

/* One that holds this half, renewed. */
static void hold(struct run *r, enum half half, int64_t lease_ms)
{
    *r = (struct run){.half = half};
    r->where = ts_text("%s", half_names[half]);
    r->name = kit_name("rw");
    r->k = kit_open(&(struct kit_opts){
        .direct = true, .lease_ms = lease_ms, .timeout_ms = ts_ms(500)});
    r->l = half_of(r->k, half, r->name);
    assert_int_equal(dibs_lock_acquire(r->l, DIBS_LOCK_OPTS(.on_lost = kit_lost,
                                                            .arg = &r->lost)),
                     DIBS_OK);
}

/* It knows that it has lost the lock, and was told once. */
static void has_lost(struct run *r)
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
        struct run r;
        struct kit_end waiter = {.err = DIBS_OK};
        hold(&r, half, ts_ms(900));
        struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
        dibs_lock *w = half_of(k, WRITE, r.name);
        assert_int_equal(dibs_lock_acquire_async(w, NULL, kit_ended, &waiter),
                         DIBS_OK);
        ts_server_restart(kit_srv);
        assert_int_equal(kit_wait(&waiter), DIBS_OK); /* nobody has it now */
        has_lost(&r);
        assert_int_equal(dibs_lock_release(w, NULL), DIBS_OK);
        dibs_lock_free(w);
        kit_close(k);
        end(&r);
    }
}

/* Stopped for less than a lease: nothing is lost. */
static void test_rw_stopped_shortly(void **state)
{
    (void)state;
    for (enum half half = READ; half <= WRITE; half++) {
        struct run r;
        hold(&r, half, ts_ms(6000));
        ts_server_pause(kit_srv);
        TS_WAIT(dibs_lock_state(r.l, 0) == DIBS_SUSPECT);
        ts_server_resume(kit_srv);
        TS_WAIT(dibs_lock_state(r.l, 0) == DIBS_HELD);
        check(&r, 1);
        assert_int_equal(atomic_load(&r.lost), 0);
        assert_int_equal(dibs_lock_release(r.l, NULL), DIBS_OK);
        end(&r);
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
        struct run r;
        hold(&r, i % 2 ? READ : WRITE, ts_ms(600));
        pause_clients(i < 2);
        TS_WAIT(dibs_lock_state(r.l, 0) == DIBS_LOST);
        TS_WAIT(atomic_load(&r.lost) == 1);
        if (i < 2)
            ts_server_resume(kit_srv);
        has_lost(&r);
        free_for_all(r.where, r.name);
        end(&r);
    }
}

/* A call that the pause falls into is just late. */
static void test_rw_paused_call(void **state)
{
    (void)state;
    for (enum half half = READ; half <= WRITE; half++) {
        struct run r = {.half = half, .where = ts_text("paused")};
        r.name = kit_name("rw");
        r.k = kit_open(&(struct kit_opts){.direct = true});
        r.l = half_of(r.k, half, r.name);
        ts_ok(kit_srv, "CLIENT PAUSE 200");
        assert_int_equal(dibs_lock_acquire(r.l, NULL), DIBS_OK);
        check(&r, 1);
        ts_ok(kit_srv, "CLIENT PAUSE 200");
        assert_int_equal(dibs_lock_release(r.l, NULL), DIBS_OK);
        end(&r);
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
    for (size_t i = 0; i < COUNT(scripts); i++) {
        const char *argv[] = {"SCRIPT", "LOAD", scripts[i]->src};
        const size_t lens[] = {6, 4, scripts[i]->len};
        redisReply *r = ts_cmdv(kit_srv, 3, argv, lens);
        if (!r || r->type != REDIS_REPLY_STRING)
            ts_fatal("%s was not loaded", scripts[i]->name);
        freeReplyObject(r);
    }
    return 0;
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
    };

    return cmocka_run_group_tests(tests, kit_up, kit_down);
}
