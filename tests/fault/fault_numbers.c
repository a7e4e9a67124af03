/* SPDX-License-Identifier: MIT
 *
 * fault_numbers.c - what still goes by a number that its owner has given up.
 *
 * The server knows an owner by a number. An owner takes another one when the
 * old one is not its own any more: it left a lock to somebody who adopts it, or
 * left it taken by nobody for a while; or some command under that number was
 * not answered, and may yet run. From then on the reaper, an adopter or a late
 * command may do anything to what the old number has.
 *
 * So nothing of that owner may go by the old number: no call that began to wait
 * under it, no other half of the same lock, no hold that is taken next. Here
 * they all meet: a second call waits while the first gives its number up; an
 * extension, or a renewal, is still on its way when its hold is over and the
 * next one is there.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/limits_kit.h"

#define UNHEARD_MS kit_ms(400)  /* a command's time where no answer comes */
#define LEASE_MS   kit_ms(2000) /* that is to end */

typedef dibs_err new_fn(dibs_client *c, const char *name, dibs_lock **out);

static dibs_lock *lock_of(new_fn *make, struct kit_client *k, const char *name)
{
    dibs_lock *l = NULL;

    kit_want("a lock", make(k->c, name, &l), DIBS_OK);
    return l;
}

/* ---- two calls of one owner -------------------------------------------- */

/* Each has a lease of its own, by which its questions are known. */
struct turn {
    struct pair *p;
    struct kit_end got;
    int asks; /* a rule */
};

/* Somebody else has the lock, and two calls of one owner wait for it. The one
 * that gets in first gives it back at once. */
struct pair {
    char *name;
    struct kit_client *k, *other;
    dibs_lock *l, *theirs;
    dibs_owner owner, adopter;
    struct turn turn[2];
    dibs_lock_opts how;
    atomic_int first; /* -1: nobody yet */
    bool alone;       /* the second did not come in with the first */
    struct kit_end gave;
    char text[DIBS_OWNER_MAX]; /* by which the first had it */
};

static struct turn *second(struct pair *p)
{
    return &p->turn[1 - atomic_load(&p->first)];
}

static int64_t lease_of(int i)
{
    return KIT_LONG + 1 + i;
}

/* Counts, or spoils, the questions of this call. */
static int rule_of(int i, struct ts_rule rule)
{
    char *needle = ts_text("\r\n%lld\r\n", (long long)lease_of(i));

    rule.contains = needle;
    int id = ts_proxy_rule(kit_px, &rule);
    free(needle);
    return id;
}

static void granted(dibs_err err, void *arg)
{
    struct turn *t = arg;
    struct pair *p = t->p;
    int nobody = -1;

    if (err == DIBS_OK && atomic_compare_exchange_strong(&p->first, &nobody,
                                                         (int)(t - p->turn))) {
        p->alone = dibs_lock_holds(p->l, p->owner) == 1;
        err = dibs_lock_owner_text(p->l, p->owner, p->text, sizeof p->text);
        dibs_err began =
            dibs_lock_release_async(p->l, &p->how, kit_ended, &p->gave);
        if (began != DIBS_OK)
            kit_ended(began, &p->gave);
    }
    kit_ended(err, &t->got);
}

static void pair_open(struct pair *p, new_fn *make, const struct kit_opts *o)
{
    memset(p, 0, sizeof *p);
    ts_proxy_reset(kit_px);
    p->name = kit_name("numbers");
    p->k = kit_open(o);
    p->other = kit_open(&(struct kit_opts){.direct = true});
    p->l = lock_of(make, p->k, p->name);
    p->theirs = lock_of(make, p->other, p->name);
    p->owner = dibs_owner_new(p->k->c);
    atomic_init(&p->first, -1);
    kit_want("others", dibs_lock_acquire(p->theirs, NULL), DIBS_OK);
}

/* What is left goes with the clients. */
static void pair_end(struct pair *p)
{
    kit_relent();
    dibs_lock_free(p->l);
    dibs_lock_free(p->theirs);
    kit_close(p->k);
    kit_close(p->other);
    free(p->name);
}

static void start(struct pair *p, int i, int64_t wait_ms, dibs_cb cb, void *arg)
{
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.owner = p->owner, .wait_ms = wait_ms,
                       .lease_ms = lease_of(i));

    kit_want("a call", dibs_lock_acquire_async(p->l, o, cb, arg), DIBS_OK);
}

/* One more waits for it, and has heard that it must. */
static void line_up(struct pair *p, int i, dibs_cb cb, void *arg)
{
    p->turn[i].asks = rule_of(i, (struct ts_rule){.action = TS_PASS});
    start(p, i, 0, cb, arg);
    if (!ts_rule_wait_done(kit_px, p->turn[i].asks, 1, TS_SOON))
        fail_msg("it does not ask");
}

/* Both have waited, the first had it, and has given it back. A rule for one
 * script of this lock comes before that. */
static void first_gave(struct pair *p, const struct kit_opts *o,
                       const dibs_lock_opts *how,
                       const struct dibs__script *script, struct ts_rule rule,
                       int *id)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    for (;;) {
        pair_open(p, dibs_fair_lock_new, o);
        p->how = *how;
        p->how.owner = p->owner;
        if (script) {
            char *needle = kit_needle_keys(script, 4, p->name);
            rule.contains = needle;
            *id = ts_proxy_rule(kit_px, &rule);
            free(needle);
        }
        for (int i = 0; i < 2; i++) {
            p->turn[i].p = p;
            line_up(p, i, granted, &p->turn[i]);
        }
        kit_want("others", dibs_lock_release(p->theirs, NULL), DIBS_OK);
        (void)kit_wait(&p->gave);
        if (p->alone)
            return;
        pair_end(p); /* this machine stood still */
        if (!ts_wait_step(&w))
            fail_msg("it always comes in with the first");
    }
}

/* It has asked since, and more than once: no answer was a yes. */
static void second_waits(struct pair *p)
{
    struct turn *t = second(p);
    unsigned n = ts_rule_done(kit_px, t->asks);

    TS_WAIT(ts_rule_done(kit_px, t->asks) >= n + 2 ||
            atomic_load(&t->got.over));
    if (atomic_load(&t->got.over))
        fail_msg("the second has it: %s", dibs_strerror(t->got.err));
}

static void second_has_it(struct pair *p)
{
    kit_want("the second", kit_wait(&second(p)->got), DIBS_OK);
    kit_check("the second", p->l, p->owner, p->name, 1);
}

static void second_gives(struct pair *p)
{
    kit_want("the second, at its end",
             dibs_lock_release(p->l, DIBS_LOCK_OPTS(.owner = p->owner)),
             DIBS_OK);
    kit_gone("the second", p->name);
    pair_end(p);
}

static void adopt(struct pair *p)
{
    kit_want("adopting it",
             dibs_lock_adopt(p->theirs, p->text, NULL, &p->adopter), DIBS_OK);
}

static void adopter_has_it(struct pair *p)
{
    assert_int_equal(dibs_lock_state(p->theirs, p->adopter), DIBS_HELD);
    assert_int_equal(kit_holds(p->theirs, p->adopter, p->name), 1);
}

static void adopter_gives(struct pair *p)
{
    kit_want("the adopter",
             dibs_lock_release(p->theirs, DIBS_LOCK_OPTS(.owner = p->adopter)),
             DIBS_OK);
}

/* The first left it to somebody, who has adopted it. The second is not that
 * one, and has to wait. */
static void test_fair_left(void **state)
{
    struct pair p;

    (void)state;
    first_gave(&p, &(struct kit_opts){0}, DIBS_LOCK_OPTS(.leave = true), NULL,
               (struct ts_rule){0}, NULL);
    kit_want("leaving it", p.gave.err, DIBS_OK);
    adopt(&p);
    second_waits(&p);
    adopter_has_it(&p);
    adopter_gives(&p);
    second_has_it(&p);
    second_gives(&p);
}

/* No answer comes to the release of the first. It runs when the second has the
 * lock, and must not end that hold. */
static void test_fair_late_release(void **state)
{
    struct pair p;
    int id = 0;

    (void)state;
    first_gave(
        &p, &(struct kit_opts){.user = KIT_MEEK, .timeout_ms = UNHEARD_MS},
        DIBS_LOCK_OPTS(.wait_ms = UNHEARD_MS / 2), &dibs__script_fair_release,
        (struct ts_rule){.action = TS_HOLD_REQUEST, .count = 2}, &id);
    kit_want("the first release", p.gave.err, DIBS_ERR_UNKNOWN);
    second_has_it(&p);
    unsigned held = ts_rule_hits(kit_px, id);
    ts_proxy_unrule(kit_px, id);
    ts_proxy_release(kit_px);
    if (!ts_rule_wait_done(kit_px, id, held, TS_SOON) ||
        ts_rule_executed(kit_px, id) != held)
        fail_msg("the late release did not run");
    second_has_it(&p);
    assert_int_equal(dibs_lock_state(p.l, p.owner), DIBS_HELD);
    second_gives(&p);
}

/* The first left it taken by nobody: not by the second, either. */
static void test_fair_kept(void **state)
{
    struct pair p;

    (void)state;
    first_gave(&p, &(struct kit_opts){0}, DIBS_LOCK_OPTS(.keep_ms = KIT_LONG),
               NULL, (struct ts_rule){0}, NULL);
    kit_want("leaving it taken", p.gave.err, DIBS_OK);
    second_waits(&p);
    ts_ok(kit_srv, "DEL %s", p.name); /* as if its time were over */
    second_has_it(&p);
    second_gives(&p);
}

/* An answer to the call that gives up was lost, so the reaper looks after its
 * number from then on. The other call gets in, and what it leaves behind for
 * somebody, or for nobody, is not the reaper's. */
static void write_left(bool leave)
{
    struct kit_end late = {.err = DIBS_OK};
    struct pair p;

    pair_open(&p, dibs_write_lock_new,
              &(struct kit_opts){.user = KIT_MEEK, .timeout_ms = UNHEARD_MS});
    line_up(&p, 0, kit_ended, &p.turn[0].got);
    int lost =
        rule_of(1, (struct ts_rule){.action = TS_SWALLOW_REPLY, .count = 1});
    start(&p, 1, 2 * UNHEARD_MS, kit_ended, &late);
    assert_int_not_equal(kit_wait(&late), DIBS_OK);
    assert_int_equal(ts_rule_hits(kit_px, lost), 1);
    char *needle = kit_needle_keys(&dibs__script_write_leave, 3, p.name);
    int looks = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_PASS, .contains = needle});
    free(needle);
    kit_want("others", dibs_lock_release(p.theirs, NULL), DIBS_OK);
    kit_want("the other call", kit_wait(&p.turn[0].got), DIBS_OK);
    kit_want("its name",
             dibs_lock_owner_text(p.l, p.owner, p.text, sizeof p.text),
             DIBS_OK);
    const dibs_lock_opts *how = DIBS_LOCK_OPTS(.owner = p.owner, .leave = leave,
                                               .keep_ms = leave ? 0 : KIT_LONG);
    kit_want("leaving it", dibs_lock_release(p.l, how), DIBS_OK);
    if (leave)
        adopt(&p);
    unsigned n = ts_rule_done(kit_px, looks);
    if (!ts_rule_wait_done(kit_px, looks, n + 3, TS_SOON))
        fail_msg("nobody looks");
    if (leave) {
        adopter_has_it(&p);
        adopter_gives(&p);
    } else {
        assert_true(ts_exists(kit_srv, p.name));
        ts_ok(kit_srv, "DEL %s", p.name);
    }
    kit_gone("left", p.name);
    pair_end(&p);
}

static void test_write_left(void **state)
{
    (void)state;
    write_left(true);
}

static void test_write_kept(void **state)
{
    (void)state;
    write_left(false);
}

/* ---- the other half ---------------------------------------------------- */

struct halves {
    char *name;
    struct kit_client *k;
    dibs_lock *r, *w, *other;
    dibs_owner owner;
    struct act reads;
};

/* An owner writes, and its question whether it may read is on its way. */
static void halves_begin(struct halves *h)
{
    h->name = kit_name("numbers");
    h->k = kit_open(&(struct kit_opts){0});
    h->r = lock_of(dibs_read_lock_new, h->k, h->name);
    h->w = lock_of(dibs_write_lock_new, h->k, h->name);
    h->other = kit_lock(h->k, "else");
    h->owner = dibs_owner_new(h->k->c);
    kit_warm(h->k, h->other, "else"); /* it has a second connection */
    kit_want("write",
             dibs_lock_acquire(h->w, DIBS_LOCK_OPTS(.owner = h->owner)),
             DIBS_OK);
    int id = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                  .contains = dibs__script_read_acquire.sha});
    act_async(&h->reads, h->r, dibs_lock_acquire_async,
              DIBS_LOCK_OPTS(.owner = h->owner));
    if (!ts_rule_wait(kit_px, id, 1, TS_SOON))
        fail_msg("nothing was held");
}

static void halves_read(struct halves *h)
{
    kit_relent();
    kit_want("read", act_end(&h->reads), DIBS_OK);
    kit_want("its end",
             dibs_lock_release(h->r, DIBS_LOCK_OPTS(.owner = h->owner)),
             DIBS_OK);
}

static void halves_end(struct halves *h)
{
    kit_gone("both halves", h->name);
    dibs_lock_free(h->r);
    dibs_lock_free(h->w);
    dibs_lock_free(h->other);
    kit_close(h->k);
    kit_no_keys("both halves");
    free(h->name);
}

/* The adopter would write while this owner reads. So the write stays, until
 * that is settled. */
static void test_half_left(void **state)
{
    struct halves h;

    (void)state;
    halves_begin(&h);
    const dibs_lock_opts *leave =
        DIBS_LOCK_OPTS(.owner = h.owner, .leave = true);
    kit_want("leaving it", dibs_lock_release(h.w, leave), DIBS_ERR_INVALID);
    assert_int_equal(dibs_lock_state(h.w, h.owner), DIBS_HELD);
    assert_int_equal(kit_holds(h.w, h.owner, h.name), 1);
    halves_read(&h);
    kit_want("leaving it", dibs_lock_release(h.w, leave), DIBS_OK);
    ts_ok(kit_srv, "DEL %s", h.name);
    halves_end(&h);
}

/* What is kept is nobody's, and nobody would end it when the read, which got in
 * by it, has made it last. So it is not kept. */
static void test_half_kept(void **state)
{
    struct halves h;

    (void)state;
    halves_begin(&h);
    kit_want("leaving it taken",
             dibs_lock_release(
                 h.w, DIBS_LOCK_OPTS(.owner = h.owner, .keep_ms = 3000)),
             DIBS_OK);
    halves_read(&h);
    halves_end(&h);
}

/* ---- extensions and renewals under way --------------------------------- */

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
    hold_next(&sc, &dibs__script_basic_renew,
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
    hold_next(&sc, &dibs__script_basic_renew, TS_HOLD_REQUEST);
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
        &dibs__script_basic_renew, sc.name,
        &(struct ts_rule){.action = TS_ANSWER, .text = "-ERR not now\r\n"});
    ts_proxy_kill_all(kit_px, false);
    if (!ts_rule_wait(kit_px, no, 1, TS_SOON))
        fail_msg("it does not ask");
    TS_WAIT(dibs_lock_info_get(other, &info) == DIBS_OK &&
            connection_of("else") !=
                connection_of(dibs__script_basic_renew.sha));
    hold_next(&sc, &dibs__script_basic_renew, TS_HOLD_REQUEST);
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

static int fresh(void **state)
{
    static const struct dibs__script *const scripts[] = {
        &dibs__script_fair_acquire,  &dibs__script_fair_leave,
        &dibs__script_fair_release,  &dibs__script_read_acquire,
        &dibs__script_read_release,  &dibs__script_write_acquire,
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
        T(test_fair_left),       T(test_fair_late_release), T(test_fair_kept),
        T(test_write_left),      T(test_write_kept),        T(test_half_left),
        T(test_half_kept),       T(test_extend_unheard),    T(test_extend_late),
        T(test_extend_and_next), T(test_renewal_and_next),
    };

    return cmocka_run_group_tests_name("fault.numbers", tests, kit_up,
                                       kit_down);
}
