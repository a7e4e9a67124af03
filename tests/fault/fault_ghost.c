/* SPDX-License-Identifier: MIT
 *
 * fault_ghost.c - commands that are executed after their caller gave up, and
 * after that caller has gone on.
 *
 * A server can hold a command back for as long as it likes and execute it long
 * after the connection it came on was closed. By then the same thread may have
 * locked again. That later hold must stay as it is: the same holds, renewed as
 * before. And what a ghost takes for somebody who does not want it any more
 * must not stay locked.
 *
 * The first half holds back single commands in the proxy and lets them go at
 * the worst moment. The second half holds back the whole server, by CLIENT
 * PAUSE and by SIGSTOP, and lets it execute what has piled up in whatever order
 * it likes. All with a server that lets us end an old connection (then there
 * is no ghost) and with one that does not.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/kit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define HASTY_MS kit_ms(400)
#define LEASE_MS kit_ms(2400) /* where renewal is to be seen */
#define ROUNDS   2

/* What a test works with: a client, one lock, two of its owners. */
struct scene {
    char *where;
    char *name;
    enum kit_user user;
    struct kit_client *k;
    dibs_lock *l;
    dibs_owner a, b;
    int rule; /* holds commands back */
    atomic_int lost;
};

static void scene_set(struct scene *sc, const char *what,
                      const struct kit_opts *o)
{
    sc->user = o->user;
    sc->where = ts_text("%s, %s", what,
                        o->user == KIT_MEEK ? "no CLIENT KILL" : "CLIENT KILL");
    sc->name = kit_name("ghost");
    ts_proxy_reset(kit_px);
    sc->k = kit_open(o);
    sc->l = kit_lock(sc->k, sc->name);
    sc->a = dibs_owner_thread(sc->k->c);
    sc->b = dibs_owner_new(sc->k->c);
    atomic_init(&sc->lost, 0);
}

static struct scene scene(const char *what, enum kit_user user, bool renewed)
{
    struct scene sc = {.rule = 0};

    scene_set(&sc, what,
              &(struct kit_opts){.user = user,
                                 .timeout_ms = HASTY_MS,
                                 .lease_ms = renewed ? LEASE_MS : 0});
    return sc;
}

static void want(const struct scene *sc, const char *what, dibs_err err,
                 dibs_err wanted)
{
    if (err != wanted)
        fail_msg("%s: %s: %s", sc->where, what, dibs_strerror(err));
}

static void take(struct scene *sc, dibs_owner owner)
{
    want(sc, "taking it",
         dibs_lock_acquire(
             sc->l, DIBS_LOCK_OPTS(.owner = owner, .wait_ms = TS_SOON,
                                   .on_lost = kit_lost, .arg = &sc->lost)),
         DIBS_OK);
}

static void give(struct scene *sc, dibs_owner owner, dibs_err wanted)
{
    int64_t within = wanted == DIBS_OK ? TS_SOON : 0;

    want(sc, "giving it back",
         dibs_lock_release(sc->l,
                           DIBS_LOCK_OPTS(.owner = owner, .wait_ms = within)),
         wanted);
}

/* This owner waits for it from now on. */
static void line_up(struct scene *sc, dibs_owner owner, struct kit_end *end)
{
    want(sc, "lining up",
         dibs_lock_acquire_async(sc->l, DIBS_LOCK_OPTS(.owner = owner),
                                 kit_ended, end),
         DIBS_OK);
}

/* Holds back the next so many commands of this kind. */
static void hold_back(struct scene *sc, const struct dibs__script *script,
                      unsigned count)
{
    sc->rule =
        kit_rule(script, sc->name,
                 &(struct ts_rule){.action = TS_HOLD_REQUEST, .count = count});
}

/* Lets them go, and waits until they have run or cannot any more. */
static void let_go(struct scene *sc)
{
    unsigned held = ts_rule_hits(kit_px, sc->rule);

    if (held == 0)
        fail_msg("%s: nothing was held back", sc->where);
    ts_proxy_unrule(kit_px, sc->rule);
    ts_proxy_release(kit_px);
    if (!ts_rule_wait_done(kit_px, sc->rule, held, TS_SOON))
        fail_msg("%s: the ghost does not come", sc->where);
    if (sc->user == KIT_MEEK && ts_rule_executed(kit_px, sc->rule) != held)
        fail_msg("%s: the ghost did not run", sc->where);
}

/* The owner's hold is as it should be, and stays so while it is renewed. */
static void intact(struct scene *sc, dibs_owner owner, long long holds)
{
    int renewal = kit_rule(&dibs__script_mutex_renew, sc->name,
                           &(struct ts_rule){.action = TS_PASS});

    kit_check(sc->where, sc->l, owner, sc->name, holds);
    if (!ts_rule_wait_done(kit_px, renewal, 1, TS_SOON))
        fail_msg("%s: not renewed any more", sc->where);
    kit_check(sc->where, sc->l, owner, sc->name, holds);
    if (dibs_lock_state(sc->l, owner) != DIBS_HELD || atomic_load(&sc->lost))
        fail_msg("%s: lost", sc->where);
}

static void end(struct scene *sc)
{
    kit_free_for_all(sc->where, sc->name);
    dibs_lock_free(sc->l);
    kit_close(sc->k);
    free(sc->name);
    free(sc->where);
}

/* ---- single commands --------------------------------------------------- */

/* The caller gives up, and takes it again, twice. */
static void acquire_then_taken(enum kit_user user)
{
    struct scene sc = scene("acquire, taken again", user, true);

    hold_back(&sc, &dibs__script_mutex_acquire, 1);
    want(&sc, "trying", dibs_lock_try(sc.l, NULL), DIBS_ERR_UNKNOWN);
    assert_int_equal(dibs_lock_state(sc.l, 0), DIBS_NOT_HELD);
    take(&sc, sc.a);
    take(&sc, sc.a);
    let_go(&sc);
    intact(&sc, sc.a, 2);
    give(&sc, sc.a, DIBS_OK);
    give(&sc, sc.a, DIBS_OK);
    end(&sc);
}

/* The caller gives up for good; the ghost comes when the client has looked
 * for it a few times already. */
static void acquire_then_nothing(enum kit_user user)
{
    struct scene sc = scene("acquire, given up", user, false);
    int looks = kit_rule(&dibs__script_mutex_force, sc.name,
                         &(struct ts_rule){.action = TS_PASS});

    hold_back(&sc, &dibs__script_mutex_acquire, 1);
    want(&sc, "trying", dibs_lock_try(sc.l, NULL), DIBS_ERR_UNKNOWN);
    if (!ts_rule_wait_done(kit_px, looks, 3, TS_SOON))
        fail_msg("%s: nobody looks", sc.where);
    let_go(&sc);
    kit_gone(sc.where, sc.name);
    if (ts_rule_executed(kit_px, sc.rule) > 0)
        TS_WAIT(kit_told(sc.k, DIBS_EVENT_REAPED) == 1);
    end(&sc);
}

/* The caller gives up, and the ghost comes when the client has looked for it so
 * often that it will not look again for most of a second. Then the client
 * closes. A close that says OK has left nothing behind. */
static void acquire_then_closed(enum kit_user user)
{
    struct scene sc = scene("acquire, closed", user, false);
    int looks = kit_rule(&dibs__script_mutex_force, sc.name,
                         &(struct ts_rule){.action = TS_PASS});

    hold_back(&sc, &dibs__script_mutex_acquire, 1);
    want(&sc, "trying", dibs_lock_try(sc.l, NULL), DIBS_ERR_UNKNOWN);
    if (!ts_rule_wait_done(kit_px, looks, 5, TS_SOON))
        fail_msg("%s: nobody looks", sc.where);
    let_go(&sc);
    dibs_lock_free(sc.l);
    kit_close(sc.k);
    if (ts_int(kit_srv, "EXISTS %s", sc.name) != 0)
        fail_msg("%s: it is still locked", sc.where);
    free(sc.name);
    free(sc.where);
}

/* The call asks again by itself and gets it. The ghost comes while it is held,
 * or when it is free again. */
static void acquire_asked_twice(enum kit_user user, bool late)
{
    struct scene sc =
        scene(late ? "acquire, asked twice, late" : "acquire, asked twice",
              user, !late);

    hold_back(&sc, &dibs__script_mutex_acquire, 1);
    take(&sc, sc.a);
    if (late) {
        give(&sc, sc.a, DIBS_OK);
        let_go(&sc);
        take(&sc, sc.a);
        kit_check(sc.where, sc.l, sc.a, sc.name, 1);
    } else {
        take(&sc, sc.a);
        let_go(&sc);
        intact(&sc, sc.a, 2);
        give(&sc, sc.a, DIBS_OK);
    }
    give(&sc, sc.a, DIBS_OK);
    end(&sc);
}

/* It is left taken by nobody for a moment; the ghost comes when that is over.
 */
static void acquire_then_kept(enum kit_user user)
{
    struct scene sc = scene("acquire, asked twice, kept", user, false);

    hold_back(&sc, &dibs__script_mutex_acquire, 1);
    take(&sc, sc.a);
    want(&sc, "leaving it taken",
         dibs_lock_release(sc.l, DIBS_LOCK_OPTS(.keep_ms = 50)), DIBS_OK);
    kit_gone(sc.where, sc.name);
    let_go(&sc);
    kit_gone(sc.where, sc.name);
    end(&sc);
}

/* It is made to last longer, and nobody hears that. By our clock it ends as it
 * was to end, and then it does so on the server. */
static void extend_then_lost(enum kit_user user, bool given_back)
{
    struct scene sc = scene("extend", user, false);

    kit_load(&dibs__script_mutex_renew);
    want(&sc, "taking it",
         dibs_lock_acquire(sc.l, DIBS_LOCK_OPTS(.lease_ms = LEASE_MS)),
         DIBS_OK);
    int id = kit_rule(&dibs__script_mutex_renew, sc.name,
                      &(struct ts_rule){.action = TS_SWALLOW_REPLY});
    want(&sc, "extending it",
         dibs_lock_extend(sc.l, DIBS_LOCK_OPTS(.lease_ms = 10 * TS_SOON)),
         DIBS_ERR_UNKNOWN);
    ts_proxy_unrule(kit_px, id);
    TS_WAIT(dibs_lock_state(sc.l, 0) == DIBS_LOST);
    if (given_back)
        give(&sc, sc.a, DIBS_ERR_LOST);
    kit_gone(sc.where, sc.name);
    if (!given_back)
        give(&sc, sc.a, DIBS_ERR_LOST);
    end(&sc);
}

/* Of a release, one copy is held back, or every one. Then the same thread
 * takes the lock again. */
static void release_then_taken(enum kit_user user, unsigned copies)
{
    struct scene sc =
        scene(copies > 1 ? "release, given up" : "release", user, true);

    take(&sc, sc.a);
    hold_back(&sc, &dibs__script_mutex_release, copies);
    give(&sc, sc.a, copies > 1 ? DIBS_ERR_UNKNOWN : DIBS_OK);
    assert_int_equal(dibs_lock_state(sc.l, 0), DIBS_NOT_HELD);
    take(&sc, sc.a);
    let_go(&sc);
    intact(&sc, sc.a, 1);
    give(&sc, sc.a, DIBS_OK);
    end(&sc);
}

/* One of two holds is given back, then the other; then it is taken twice. */
static void partial_then_taken(enum kit_user user)
{
    struct scene sc = scene("partial release", user, true);

    take(&sc, sc.a);
    take(&sc, sc.a);
    hold_back(&sc, &dibs__script_mutex_release, 1);
    give(&sc, sc.a, DIBS_OK);
    give(&sc, sc.a, DIBS_OK);
    take(&sc, sc.a);
    take(&sc, sc.a);
    let_go(&sc);
    intact(&sc, sc.a, 2);
    give(&sc, sc.a, DIBS_OK);
    give(&sc, sc.a, DIBS_OK);
    end(&sc);
}

/* A hands over to B. Either one copy is held back, or every one; then B gets it
 * anyway, later. Then the first owner, or the second, has it again when the
 * ghost comes. */
static void handover_then_taken(enum kit_user user, unsigned copies,
                                bool by_heir)
{
    struct scene sc =
        scene(copies > 1 ? "hand-over, given up" : "hand-over", user, true);
    struct kit_end next_end = {.err = DIBS_OK};

    take(&sc, sc.a);
    line_up(&sc, sc.b, &next_end);
    hold_back(&sc, &dibs__script_mutex_handover, copies);
    give(&sc, sc.a, copies > 1 ? DIBS_ERR_UNKNOWN : DIBS_OK);
    want(&sc, "next owner", kit_wait(&next_end), DIBS_OK);
    kit_check(sc.where, sc.l, sc.b, sc.name, 1);
    give(&sc, sc.b, DIBS_OK);
    take(&sc, by_heir ? sc.b : sc.a);
    take(&sc, by_heir ? sc.b : sc.a);
    let_go(&sc);
    intact(&sc, by_heir ? sc.b : sc.a, 2);
    give(&sc, by_heir ? sc.b : sc.a, DIBS_OK);
    give(&sc, by_heir ? sc.b : sc.a, DIBS_OK);
    end(&sc);
}

/* All copies of a hand-over come while the lock is still the old owner's, at
 * the server: before anybody could free it. The next owner must get it, and
 * what the ghosts do must not stay. */
static void handover_at_once(enum kit_user user)
{
    struct scene sc = scene("hand-over, at once", user, false);
    struct kit_end next_end = {.err = DIBS_OK};

    take(&sc, sc.a);
    line_up(&sc, sc.b, &next_end);
    hold_back(&sc, &dibs__script_mutex_handover, 0);
    kit_rule(&dibs__script_mutex_force, sc.name,
             &(struct ts_rule){.action = TS_HOLD_REQUEST, .count = 2});
    give(&sc, sc.a, DIBS_ERR_UNKNOWN);
    let_go(&sc);
    want(&sc, "next owner", kit_wait(&next_end), DIBS_OK);
    kit_check(sc.where, sc.l, sc.b, sc.name, 1);
    give(&sc, sc.b, DIBS_OK);
    end(&sc);
}

/* A stranger has the lock by the time a renewal of ours comes, or a force
 * release that was meant for somebody else. */
static void stranger_untouched(enum kit_user user, bool force)
{
    struct scene sc = scene(force ? "force release" : "renewal", user, !force);
    struct kit_client *k = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *l = kit_lock(k, sc.name);

    if (force) {
        take(&sc, sc.a);
        hold_back(&sc, &dibs__script_mutex_force, 2);
        want(&sc, "forcing", dibs_lock_force_release(sc.l, NULL),
             DIBS_ERR_UNKNOWN);
    } else {
        hold_back(&sc, &dibs__script_mutex_renew, 1);
        take(&sc, sc.a);
        if (!ts_rule_wait(kit_px, sc.rule, 1, TS_SOON))
            fail_msg("%s: never renewed", sc.where);
    }
    give(&sc, sc.a, DIBS_OK);
    want(&sc, "a stranger",
         dibs_lock_acquire(l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON)), DIBS_OK);
    let_go(&sc);
    kit_check(sc.where, l, 0, sc.name, 1);
    want(&sc, "a stranger gives it back", dibs_lock_release(l, NULL), DIBS_OK);
    dibs_lock_free(l);
    kit_close(k);
    end(&sc);
}

/* state: the user. */
static void test_acquire(void **state)
{
    enum kit_user user = *(const enum kit_user *)*state;

    acquire_then_taken(user);
    acquire_then_nothing(user);
    acquire_then_closed(user);
    acquire_asked_twice(user, true);
    if (user == KIT_FULL)
        acquire_asked_twice(user, false);
    acquire_then_kept(user);
}

static void test_extend(void **state)
{
    enum kit_user user = *(const enum kit_user *)*state;

    extend_then_lost(user, true);
    extend_then_lost(user, false);
}

static void test_release(void **state)
{
    enum kit_user user = *(const enum kit_user *)*state;

    release_then_taken(user, 1);
    release_then_taken(user, 2);
    partial_then_taken(user);
}

static void test_handover(void **state)
{
    enum kit_user user = *(const enum kit_user *)*state;

    handover_then_taken(user, 1, false);
    handover_then_taken(user, 1, true);
    handover_then_taken(user, 2, false);
    handover_then_taken(user, 2, true);
    handover_at_once(user);
}

static void test_stranger_untouched(void **state)
{
    enum kit_user user = *(const enum kit_user *)*state;

    stranger_untouched(user, true);
    stranger_untouched(user, false);
}

/* Without the right to end the old connection, an acquire can come while its
 * own second copy holds the lock, more often by now. */
static void test_acquire_meets_its_own_hold(void **state)
{
    (void)state;
    acquire_asked_twice(KIT_MEEK, false);
}

/* An answer too many comes before that to CLIENT KILL, once, or always. The
 * connection ends, and the next one is asked again; but not for ever. */
static void test_kill_out_of_step(void **state)
{
    (void)state;
    for (int always = 0; always < 2; always++) {
        struct scene sc = scene("kill out of step", KIT_FULL, true);
        int id = ts_proxy_rule(
            kit_px,
            &(struct ts_rule){.action = TS_REWRITE_REPLY,
                              .match = "CLIENT",
                              .contains = "KILL",
                              .text = always ? "+no\r\n" : "$-1\r\n:1\r\n",
                              .count = always ? 0 : 1});

        hold_back(&sc, &dibs__script_mutex_acquire, 1);
        want(&sc, "trying", dibs_lock_try(sc.l, NULL), DIBS_ERR_UNKNOWN);
        TS_WAIT(kit_heard(sc.k, DIBS_EVENT_DISCONNECTED, DIBS_ERR_CONN,
                          "a reply to another command"));
        take(&sc, sc.a);
        intact(&sc, sc.a, 1);
        assert_int_equal(kit_told(sc.k, DIBS_EVENT_WARNING), always);
        assert_in_range(ts_rule_hits(kit_px, id), 1, always ? 40 : 1);
        ts_proxy_unrule(kit_px, sc.rule);
        give(&sc, sc.a, DIBS_OK);
        end(&sc);
    }
}

/* ---- the whole server -------------------------------------------------- */

enum stop { BY_CLIENT_PAUSE, BY_SIGSTOP };

static void server_stop(enum stop how)
{
    if (how == BY_SIGSTOP)
        ts_server_pause(kit_srv);
    else
        ts_ok(kit_srv, "CLIENT PAUSE 100000 WRITE");
}

/* When this returns, all that had piled up has been executed: what was there
 * is read in the first turn of the server, connections that were waiting to be
 * accepted in the second. */
static void server_go_on(enum stop how)
{
    if (how == BY_SIGSTOP)
        ts_server_resume(kit_srv);
    else
        ts_ok(kit_srv, "CLIENT UNPAUSE");
    for (int i = 0; i < 5; i++)
        ts_ok(kit_srv, "PING");
}

enum verb { ACQUIRE, RELEASE, HAND_OVER, VERBS };

/* The server stops; the call is given up; the same owner wants the lock again;
 * the server goes on. */
static void one_round(struct scene *sc, enum stop how, enum verb verb)
{
    struct kit_end next_end = {.err = DIBS_OK}, again = {.err = DIBS_OK};

    if (verb != ACQUIRE)
        take(sc, sc->a);
    if (verb == HAND_OVER)
        line_up(sc, sc->b, &next_end);
    server_stop(how);
    if (verb == ACQUIRE)
        want(sc, "trying", dibs_lock_try(sc->l, NULL), DIBS_ERR_UNKNOWN);
    else
        give(sc, sc->a, DIBS_ERR_UNKNOWN);
    line_up(sc, sc->a, &again);
    server_go_on(how);
    if (verb == HAND_OVER) {
        want(sc, "next owner", kit_wait(&next_end), DIBS_OK);
        kit_check(sc->where, sc->l, sc->b, sc->name, 1);
        give(sc, sc->b, DIBS_OK);
    }
    want(sc, "getting it again", kit_wait(&again), DIBS_OK);
    kit_check(sc->where, sc->l, sc->a, sc->name, 1);
    give(sc, sc->a, DIBS_OK);
    kit_gone(sc->where, sc->name);
}

static void whole_server(enum stop how, enum kit_user user)
{
    static const char *const names[VERBS] = {"acquire", "release", "hand-over"};

    for (int v = 0; v < VERBS; v++) {
        struct scene sc = {.rule = 0};
        scene_set(&sc, names[v],
                  &(struct kit_opts){
                      .user = user, .direct = true, .timeout_ms = HASTY_MS});
        for (int i = 0; i < ROUNDS; i++)
            one_round(&sc, how, (enum verb)v);
        end(&sc);
    }
}

static void test_client_pause(void **state)
{
    whole_server(BY_CLIENT_PAUSE, *(const enum kit_user *)*state);
}

static void test_server_stopped(void **state)
{
    whole_server(BY_SIGSTOP, *(const enum kit_user *)*state);
}

/* ---- one owner, several calls ------------------------------------------ */

static void *give_main(void *arg)
{
    struct scene *sc = arg;

    return (void *)(intptr_t)dibs_lock_release(sc->l,
                                               DIBS_LOCK_OPTS(.owner = sc->b));
}

/* Another call of the owner waits for a release that nobody answers. It goes on
 * under a number that the lost release cannot mean: that one was retired before
 * the hold was seen to end. */
static void test_release_retires_first(void **state)
{
    char before[DIBS_OWNER_MAX], after[DIBS_OWNER_MAX];

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct scene sc = scene("release, asked again", KIT_MEEK, true);
        struct kit_end over = {.err = DIBS_OK};
        pthread_t giver;
        void *gave;

        take(&sc, sc.b);
        dibs_lock_owner_text(sc.l, sc.b, before, sizeof before);
        hold_back(&sc, &dibs__script_mutex_release, 2);
        assert_int_equal(pthread_create(&giver, NULL, give_main, &sc), 0);
        assert_true(ts_rule_wait(kit_px, sc.rule, 1, TS_SOON));
        line_up(&sc, sc.b, &over);
        pthread_join(giver, &gave);
        want(&sc, "the release", (dibs_err)(intptr_t)gave, DIBS_ERR_UNKNOWN);
        want(&sc, "the acquire", kit_wait(&over), DIBS_OK);
        dibs_lock_owner_text(sc.l, sc.b, after, sizeof after);
        assert_string_not_equal(before, after);
        let_go(&sc);
        intact(&sc, sc.b, 1);
        give(&sc, sc.b, DIBS_OK);
        end(&sc);
    }
}

int main(void)
{
    static enum kit_user full = KIT_FULL, meek = KIT_MEEK;
#define EACH_USER(f)                                                           \
    {#f " CLIENT KILL", f, kit_fresh, NULL, &full},                            \
    {                                                                          \
#f " no CLIENT KILL", f, kit_fresh, NULL, &meek                        \
    }
    const struct CMUnitTest tests[] = {
        EACH_USER(test_handover),
        EACH_USER(test_acquire),
        EACH_USER(test_client_pause),
        EACH_USER(test_server_stopped),
        EACH_USER(test_extend),
        EACH_USER(test_release),
        EACH_USER(test_stranger_untouched),
        cmocka_unit_test_setup(test_acquire_meets_its_own_hold, kit_fresh),
        cmocka_unit_test_setup(test_kill_out_of_step, kit_fresh),
        cmocka_unit_test_setup(test_release_retires_first, kit_fresh),
    };

    return TS_RUN_PARALLEL("fault.ghost", tests, kit_up, kit_down);
}
