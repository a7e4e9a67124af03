/* SPDX-License-Identifier: MIT
 *
 * fault_late.c - an extension, or a renewal, that runs when its hold is over;
 * and what is said of a hold whose release is on its way.
 *
 * Both make a lease longer. One that is still on its way when the hold is lost,
 * or given back, may meet what its owner takes next. Nobody would look after
 * the longer lease: to the owner the hold is over when its own lease says so,
 * and the server would keep the lock. So it must be taken back, or not be met
 * at all.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/limits_kit.h"

#define UNHEARD_MS kit_ms(400)  /* a command's time where no answer comes */
#define LEASE_MS   kit_ms(2000) /* that is to end */

/* By our clock the hold is over while an extension of it is not answered. What
 * it got on the server is taken back, and nobody has to release it. closed: by
 * a close, which leaves nothing behind if it says OK. */
static void extend_unheard(bool late, bool closed)
{
    struct scene sc =
        begin(&(struct kit_opts){.timeout_ms = late ? 0 : LEASE_MS});
    struct act extends;

    kit_want("taking it",
             dibs_lock_acquire(
                 sc.l, DIBS_LOCK_OPTS(.owner = sc.a, .lease_ms = LEASE_MS)),
             DIBS_OK);
    hold_next(&sc, &dibs__script_mutex_renew,
              late ? TS_HOLD_REPLY : TS_SWALLOW_REPLY);
    act_on_thread(&extends, sc.l, dibs_lock_extend,
                  DIBS_LOCK_OPTS(.owner = sc.a, .lease_ms = KIT_LONG));
    is_held(&sc);
    TS_WAIT(kit_told(sc.k, DIBS_EVENT_LOST) == 1);
    if (late)
        let_go(&sc);
    kit_want("extending it", act_end(&extends),
             late ? DIBS_ERR_LOST : DIBS_ERR_UNKNOWN);
    let_go(&sc);
    if (!closed)
        kit_gone("extended", sc.name);
    dibs_lock_free(sc.l);
    kit_close(sc.k);
    assert_false(ts_exists(kit_srv, sc.name));
    free(sc.name);
}

static void test_extend_unheard(void **state)
{
    (void)state;
    extend_unheard(false, false);
    extend_unheard(false, true);
}

static void test_extend_late(void **state)
{
    (void)state;
    extend_unheard(true, false);
    extend_unheard(true, true);
}

/* The next hold of the same owner, with a lease that ends. What was on its way
 * to the old one runs now. */
static void next_hold(struct scene *sc)
{
    give(sc, sc->a);
    kit_want("taking it again",
             dibs_lock_acquire(
                 sc->l, DIBS_LOCK_OPTS(.owner = sc->a, .lease_ms = LEASE_MS)),
             DIBS_OK);
    let_go(sc);
    if (!ts_rule_wait_done(kit_px, sc->rule, 1, TS_SOON) ||
        ts_rule_executed(kit_px, sc->rule) == 0)
        fail_msg("what was held did not run");
}

/* It ends when its lease does, whether it is given back or not. */
static void next_hold_ends(struct scene *sc, bool gives_back)
{
    TS_WAIT(dibs_lock_state(sc->l, sc->a) == DIBS_LOST);
    if (!gives_back)
        kit_gone("the next hold", sc->name);
    kit_want("giving it back",
             dibs_lock_release(sc->l, DIBS_LOCK_OPTS(.owner = sc->a)),
             DIBS_ERR_LOST);
    kit_gone("the next hold", sc->name);
}

static void extend_meets_next(bool gives_back)
{
    struct scene sc = begin(&(struct kit_opts){0});
    dibs_lock *other = kit_lock(sc.k, "else");
    struct act extends;

    kit_warm(sc.k, other, "else");
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_mutex_renew, TS_HOLD_REQUEST);
    act_on_thread(&extends, sc.l, dibs_lock_extend,
                  DIBS_LOCK_OPTS(.owner = sc.a));
    is_held(&sc);
    next_hold(&sc);
    kit_want("extending the old one", act_end(&extends), DIBS_ERR_NOT_OWNER);
    next_hold_ends(&sc, gives_back);
    dibs_lock_free(other);
    finish(&sc);
}

static void test_extend_and_next(void **state)
{
    (void)state;
    extend_meets_next(true);
    extend_meets_next(false);
}

/* On which connection the last request with this text came; 0, none. */
static unsigned connection_of(const char *text)
{
    unsigned n = ts_proxy_logged(kit_px, text), number = 0;
    char *line = n ? ts_proxy_log_line(kit_px, text, n - 1) : NULL;

    if (line && sscanf(line, "%*d #%u", &number) != 1)
        number = 0;
    free(line);
    return number;
}

/* When its connections ended, the client wants to know at once whether all is
 * still there, and renews it. While it hears no, it asks again and again, and
 * has time to make itself a connection for the calls of this thread. */
static void renewal_meets_next(bool gives_back)
{
    struct scene sc = begin(&(struct kit_opts){0});
    dibs_lock *other = kit_lock(sc.k, "else");
    dibs_lock_info info = DIBS_LOCK_INFO_INIT;

    take(&sc, sc.a);
    int no = kit_rule(
        &dibs__script_mutex_renew, sc.name,
        &(struct ts_rule){.action = TS_ANSWER, .text = "-ERR not now\r\n"});
    ts_proxy_kill_all(kit_px, false);
    if (!ts_rule_wait(kit_px, no, 1, TS_SOON))
        fail_msg("it does not ask");
    TS_WAIT(dibs_lock_info_get(other, &info) == DIBS_OK &&
            connection_of("else") !=
                connection_of(dibs__script_mutex_renew.sha));
    hold_next(&sc, &dibs__script_mutex_renew, TS_HOLD_REQUEST);
    ts_proxy_unrule(kit_px, no);
    is_held(&sc);
    next_hold(&sc);
    next_hold_ends(&sc, gives_back);
    dibs_lock_free(other);
    finish(&sc);
}

static void test_renewal_and_next(void **state)
{
    (void)state;
    renewal_meets_next(true);
    renewal_meets_next(false);
}

#define T(f) cmocka_unit_test_setup(f, kit_fresh)

/* Somebody else may have the lock before its release is answered. So another
 * thread of its owner does not see it as held any more. */
static void test_given_back_unheard(void **state)
{
    struct scene sc = begin(&(struct kit_opts){0});
    struct act gives;

    (void)state;
    take(&sc, sc.a);
    hold_next(&sc, &dibs__script_mutex_release, TS_HOLD_REPLY);
    act_on_thread(&gives, sc.l, dibs_lock_release,
                  DIBS_LOCK_OPTS(.owner = sc.a));
    is_held(&sc);
    assert_int_equal(dibs_lock_state(sc.l, sc.a), DIBS_NOT_HELD);
    assert_int_equal(dibs_lock_valid_ms(sc.l, sc.a), 0);
    assert_int_equal(dibs_lock_holds(sc.l, sc.a), 0);
    let_go(&sc);
    kit_want("giving it back", act_end(&gives), DIBS_OK);
    finish(&sc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_extend_unheard),     T(test_extend_late),
        T(test_extend_and_next),    T(test_renewal_and_next),
        T(test_given_back_unheard),
    };

    return TS_RUN_PARALLEL("fault.late", tests, kit_up, kit_down);
}
