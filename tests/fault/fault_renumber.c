/* SPDX-License-Identifier: MIT
 *
 * fault_renumber.c - an owner takes another number, for one lock and not for
 * all.
 *
 * The server knows an owner by a number, and by the same one for every lock.
 * When something of one lock is left behind under that number (a read whose
 * lease is over, a hold that was left to somebody), the owner goes on under
 * another one. That can go wrong in two ways. Whoever clears up behind the old
 * number may end what is not the owner's any more. And calls for other locks,
 * which had no trouble at all, may change their number, too, and are strangers
 * to themselves then: what the server gave them by the old number is in their
 * own way, and their place in a queue is not theirs.
 *
 * So: what was left stays with its adopter, even if a renewal of it is never
 * answered. A call for another lock keeps its number, what it got by it, and
 * its place. Only a call for the very lock that was left has to give up its
 * place, and while it does so it can be canceled like any call that waits.
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

static void end_hold(const char *what, dibs_lock *l, dibs_owner owner)
{
    const dibs_lock_opts *o =
        DIBS_LOCK_OPTS(.owner = owner, .wait_ms = TS_SOON);

    kit_want(what, dibs_lock_release(l, o), DIBS_OK);
}

static struct kit_client *stranger(void)
{
    return kit_open(&(struct kit_opts){.direct = true});
}

/* ---- a renewal of what was left ---------------------------------------- */

/* Nobody answers the renewals of a client that may not end its old connections:
 * they may yet run. All it has is renewed at once when its connections end. */
static int renewals_unheard(void)
{
    int id = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_SWALLOW_REPLY,
                                  .contains = dibs__script_mutex_renew.sha});

    ts_proxy_kill_all(kit_px, false);
    if (!ts_rule_wait(kit_px, id, 1, TS_SOON))
        fail_msg("nothing is renewed");
    return id;
}

/* The client has two locks. Of the one that it keeps, it says when a renewal
 * was given up, and when one was answered again: by then it has seen to
 * whatever it had to. */
static void renewals_given_up(dibs_lock *kept, dibs_owner owner, int id)
{
    TS_WAIT(dibs_lock_state(kept, owner) == DIBS_SUSPECT);
    ts_proxy_unrule(kit_px, id);
    TS_WAIT(dibs_lock_state(kept, owner) == DIBS_HELD);
}

/* A renewal of the lock is under way when it is left. Somebody adopts it, and
 * has it still when that renewal is given up. */
static void test_left_while_renewed(void **state)
{
    struct scene sc =
        begin(&(struct kit_opts){.user = KIT_MEEK, .timeout_ms = UNHEARD_MS});
    char *kept_name = kit_name("kept"), text[DIBS_OWNER_MAX];
    dibs_lock *kept = kit_lock(sc.k, kept_name);
    struct kit_client *heir = stranger(), *third = stranger();
    dibs_lock *theirs = kit_lock(heir, sc.name);
    dibs_lock *wanted = kit_lock(third, sc.name);
    const dibs_lock_opts *leave = DIBS_LOCK_OPTS(.owner = sc.a, .leave = true);
    dibs_owner b = 0;

    (void)state;
    take(&sc, sc.a);
    kit_want("another", dibs_lock_acquire(kept, DIBS_LOCK_OPTS(.owner = sc.a)),
             DIBS_OK);
    kit_want("its name", dibs_lock_owner_text(sc.l, sc.a, text, sizeof text),
             DIBS_OK);
    int unheard = renewals_unheard();
    kit_want("leaving it", dibs_lock_release(sc.l, leave), DIBS_OK);
    kit_want("adopting it", dibs_lock_adopt(theirs, text, NULL, &b), DIBS_OK);
    assert_int_equal(dibs_lock_state(theirs, b), DIBS_HELD);
    renewals_given_up(kept, sc.a, unheard);
    kit_check("adopted", theirs, b, sc.name, 1);
    assert_int_equal(dibs_lock_state(theirs, b), DIBS_HELD);
    kit_want("a third", dibs_lock_try(wanted, NULL), DIBS_ERR_BUSY);
    end_hold("the adopter", theirs, b);
    end_hold("the other", kept, sc.a);
    dibs_lock_free(theirs);
    dibs_lock_free(wanted);
    dibs_lock_free(kept);
    kit_close(heir);
    kit_close(third);
    finish(&sc);
    kit_no_keys("left");
    free(kept_name);
}

/* ---- trouble of another lock ------------------------------------------- */

/* A read with a lease of its own. When that is over, its owner ends what is
 * left of it on the server, and has another number by then. */
struct read {
    char *name;
    dibs_lock *l;
    dibs_owner owner;
    int ends; /* a rule */
};

static void read_begin(struct read *r, struct kit_client *k, dibs_owner owner)
{
    r->name = kit_name("read");
    r->l = lock_of(dibs_read_lock_new, k, r->name);
    r->owner = owner;
    r->ends = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_PASS,
                                  .contains = dibs__script_read_release.sha});
    kit_want("a read",
             dibs_lock_acquire(
                 r->l, DIBS_LOCK_OPTS(.owner = owner, .lease_ms = LEASE_MS)),
             DIBS_OK);
}

static void read_ends_by_itself(struct read *r)
{
    if (!ts_rule_wait(kit_px, r->ends, 1, TS_SOON))
        fail_msg("what is left of the read is not ended");
    assert_int_equal(dibs_lock_state(r->l, r->owner), DIBS_LOST);
}

static void read_end(struct read *r)
{
    kit_want("the read",
             dibs_lock_release(r->l, DIBS_LOCK_OPTS(.owner = r->owner)),
             DIBS_ERR_LOST);
    kit_gone("the read", r->name);
    dibs_lock_free(r->l);
    free(r->name);
}

/* The server gave the lock to a call, and the call does not know. Meanwhile a
 * read of the same owner ends. The call asks again, is the one that has it, and
 * does not wait for itself. */
static void test_granted_unheard(void **state)
{
    struct scene sc = begin(&(struct kit_opts){.timeout_ms = UNHEARD_MS});
    struct read r;
    struct act takes;

    (void)state;
    read_begin(&r, sc.k, sc.a);
    hold_next(&sc, &dibs__script_mutex_acquire, TS_SWALLOW_REPLY);
    act_async(&takes, sc.l, dibs_lock_acquire_async,
              DIBS_LOCK_OPTS(.owner = sc.a));
    assert_true(ts_wait_exists(kit_srv, sc.name, true));
    read_ends_by_itself(&r);
    /* An old question may be sent again. Of three, one was begun since. */
    unsigned n = ts_rule_hits(kit_px, sc.rule);
    assert_true(ts_rule_wait(kit_px, sc.rule, n + 3, TS_SOON));
    assert_false(atomic_load(&takes.end.over));
    let_go(&sc);
    kit_want("what it has", act_end(&takes), DIBS_OK);
    kit_check("granted", sc.l, sc.a, sc.name, 1);
    end_hold("what it has", sc.l, sc.a);
    read_end(&r);
    finish(&sc);
    kit_no_keys("granted");
}

/* ---- calls that wait --------------------------------------------------- */

/* A call with a lease of its own, by which its questions are known. */
struct turn {
    struct pair *p;
    struct kit_end got;
    int64_t lease_ms;
    int asks; /* a rule */
};

/* It waits from now on, and has heard that it must. */
static void line_up(struct turn *t, dibs_lock *l, dibs_owner owner, dibs_cb cb,
                    void *arg)
{
    static int number;

    t->lease_ms = KIT_LONG + ++number;
    char *needle = ts_text("\r\n%lld\r\n", (long long)t->lease_ms);
    t->asks = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_PASS, .contains = needle});
    free(needle);
    kit_want("a call",
             dibs_lock_acquire_async(
                 l, DIBS_LOCK_OPTS(.owner = owner, .lease_ms = t->lease_ms), cb,
                 arg),
             DIBS_OK);
    assert_true(ts_rule_wait_done(kit_px, t->asks, 1, TS_SOON));
}

/* As the server knows it. free() it. */
static char *first_in_queue(const char *name)
{
    char *who = ts_str(kit_srv, "LINDEX redisson_lock_queue:{%s} 0", name);

    assert_non_null(who);
    return who;
}

/* One owner is first in the queue, another one is second. A read of the first
 * ends, and it stays where it is. */
static void test_place_kept(void **state)
{
    char *name = kit_name("place");
    struct kit_client *k = kit_open(&(struct kit_opts){0});
    struct kit_client *other = stranger();
    dibs_lock *l = lock_of(dibs_fair_lock_new, k, name);
    dibs_lock *theirs = lock_of(dibs_fair_lock_new, other, name);
    dibs_owner o = dibs_owner_new(k->c), d = dibs_owner_new(k->c);
    struct turn first = {.asks = 0}, second = {.asks = 0};
    struct read r;

    (void)state;
    kit_want("others", dibs_lock_acquire(theirs, NULL), DIBS_OK);
    read_begin(&r, k, o);
    line_up(&first, l, o, kit_ended, &first.got);
    line_up(&second, l, d, kit_ended, &second.got);
    char *before = first_in_queue(name);
    read_ends_by_itself(&r);
    unsigned n = ts_rule_done(kit_px, first.asks);
    assert_true(ts_rule_wait_done(kit_px, first.asks, n + 2, TS_SOON));
    char *now = first_in_queue(name);
    assert_string_equal(now, before);
    free(now);
    free(before);
    kit_want("others", dibs_lock_release(theirs, NULL), DIBS_OK);
    TS_WAIT(atomic_load(&first.got.over) || atomic_load(&second.got.over));
    assert_false(atomic_load(&second.got.over));
    kit_want("the first", first.got.err, DIBS_OK);
    kit_check("the first", l, o, name, 1);
    end_hold("the first", l, o);
    kit_want("the second", kit_wait(&second.got), DIBS_OK);
    end_hold("the second", l, d);
    kit_gone("the second", name);
    read_end(&r);
    dibs_lock_free(l);
    dibs_lock_free(theirs);
    kit_close(k);
    kit_close(other);
    kit_no_keys("a place");
    free(name);
}

/* Somebody else has the lock, and two calls of one owner wait for it. The one
 * that gets in first leaves it at once. */
struct pair {
    char *name;
    struct kit_client *k, *other;
    dibs_lock *l, *theirs;
    dibs_owner owner;
    struct turn turn[2];
    atomic_int first; /* -1: nobody yet */
    bool alone;       /* the second did not come in with the first */
    struct kit_end left;
    int gives_up; /* a rule: holds what gives up the place of the second */
};

static void granted(dibs_err err, void *arg)
{
    struct turn *t = arg;
    struct pair *p = t->p;
    int nobody = -1;

    if (err == DIBS_OK && atomic_compare_exchange_strong(&p->first, &nobody,
                                                         (int)(t - p->turn))) {
        p->alone = dibs_lock_holds(p->l, p->owner) == 1;
        dibs_err began = dibs_lock_release_async(
            p->l, DIBS_LOCK_OPTS(.owner = p->owner, .leave = true), kit_ended,
            &p->left);
        if (began != DIBS_OK)
            kit_ended(began, &p->left);
    }
    kit_ended(err, &t->got);
}

static void pair_open(struct pair *p)
{
    memset(p, 0, sizeof *p);
    ts_proxy_reset(kit_px);
    p->name = kit_name("pair");
    p->k = kit_open(&(struct kit_opts){0});
    p->other = stranger();
    p->l = lock_of(dibs_fair_lock_new, p->k, p->name);
    p->theirs = lock_of(dibs_fair_lock_new, p->other, p->name);
    p->owner = dibs_owner_new(p->k->c);
    atomic_init(&p->first, -1);
    p->gives_up = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                  .contains = dibs__script_fair_leave.sha});
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

static void first_left(struct pair *p)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    for (;;) {
        pair_open(p);
        for (int i = 0; i < 2; i++) {
            p->turn[i].p = p;
            line_up(&p->turn[i], p->l, p->owner, granted, &p->turn[i]);
        }
        kit_want("others", dibs_lock_release(p->theirs, NULL), DIBS_OK);
        (void)kit_wait(&p->left);
        if (p->alone)
            return;
        pair_end(p); /* this machine stood still */
        if (!ts_wait_step(&w))
            fail_msg("it always comes in with the first");
    }
}

/* The second has a place by a number that is the adopter's now, and is about to
 * give it up. It is canceled before the server has said anything. */
static void test_canceled_while_leaving(void **state)
{
    struct pair p;

    (void)state;
    first_left(&p);
    kit_want("leaving it", p.left.err, DIBS_OK);
    if (!ts_rule_wait(kit_px, p.gives_up, 1, TS_SOON))
        fail_msg("it keeps its place");
    kit_want("canceling", dibs_lock_cancel(p.l, p.owner), DIBS_OK);
    kit_relent();
    kit_want("the second", kit_wait(&p.turn[1 - atomic_load(&p.first)].got),
             DIBS_ERR_CANCELED);
    kit_want("canceling it again", dibs_lock_cancel(p.l, p.owner),
             DIBS_ERR_NOT_OWNER);
    ts_ok(kit_srv, "DEL %s", p.name); /* it was left */
    pair_end(&p);
    kit_no_keys("canceled");
}

/* ---- both halves ------------------------------------------------------- */

/* It waits to read, and then gets the lock to write, by another number. Who
 * writes may read. False: the read was the first to get in. */
static bool reads_while_it_writes(void)
{
    char *name = kit_name("halves");
    struct kit_client *k = kit_open(&(struct kit_opts){0}), *other = stranger();
    dibs_lock *reads = lock_of(dibs_read_lock_new, k, name);
    dibs_lock *writes = lock_of(dibs_write_lock_new, k, name);
    dibs_lock *theirs = lock_of(dibs_write_lock_new, other, name);
    dibs_owner owner = dibs_owner_new(k->c);
    const dibs_lock_opts *o = DIBS_LOCK_OPTS(.owner = owner);
    struct kit_end got = {.err = DIBS_OK};
    struct read r;

    ts_proxy_reset(kit_px); /* of the time before */
    kit_want("theirs", dibs_lock_acquire(theirs, NULL), DIBS_OK);
    read_begin(&r, k, owner);
    int asks = ts_proxy_rule(
        kit_px, &(struct ts_rule){.contains = dibs__script_read_acquire.sha});
    kit_want("asking", dibs_lock_acquire_async(reads, o, kit_ended, &got),
             DIBS_OK);
    if (!ts_rule_wait_done(kit_px, asks, 1, TS_SOON))
        fail_msg("it does not ask to read");
    read_ends_by_itself(&r);
    kit_want("giving back", dibs_lock_release(theirs, NULL), DIBS_OK);
    bool both = dibs_lock_try(writes, o) == DIBS_OK;
    kit_want("the read", kit_wait(&got), DIBS_OK);
    if (both)
        end_hold("the write", writes, owner);
    end_hold("the read", reads, owner);
    read_end(&r);
    dibs_lock_free(reads);
    dibs_lock_free(writes);
    dibs_lock_free(theirs);
    kit_close(k);
    kit_close(other);
    free(name);
    return both;
}

static void test_reads_while_it_writes(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        if (reads_while_it_writes())
            return;
    fail_msg("it never got in to write first");
}

static int fresh(void **state)
{
    static const struct dibs__script *const scripts[] = {
        &dibs__script_fair_acquire,  &dibs__script_fair_leave,
        &dibs__script_fair_release,  &dibs__script_read_acquire,
        &dibs__script_read_release,  &dibs__script_read_renew,
        &dibs__script_write_acquire, &dibs__script_write_release};

    kit_fresh(state);
    for (size_t i = 0; i < COUNT(scripts); i++)
        kit_load(scripts[i]);
    return 0;
}

#define T(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_left_while_renewed),
        T(test_granted_unheard),
        T(test_place_kept),
        T(test_canceled_while_leaving),
        T(test_reads_while_it_writes),
    };

    return TS_RUN_PARALLEL("fault.renumber", tests, kit_up, kit_down);
}
