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
 * under it, no other half of the same lock, no hold that is taken next
 * (fault_late.c). Here they meet: a second call waits while the first gives its
 * number up.
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
    struct turn turn[3]; /* mostly two */
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

/* The same client may adopt it, although the second still waits there, in the
 * queue, by the number that was left. */
static void test_fair_left_at_home(void **state)
{
    struct pair p;

    (void)state;
    first_gave(&p, &(struct kit_opts){0}, DIBS_LOCK_OPTS(.leave = true), NULL,
               (struct ts_rule){0}, NULL);
    kit_want("leaving it", p.gave.err, DIBS_OK);
    kit_want("adopting it", dibs_lock_adopt(p.l, p.text, NULL, &p.adopter),
             DIBS_OK);
    second_waits(&p);
    assert_int_equal(dibs_lock_state(p.l, p.adopter), DIBS_HELD);
    kit_want("the adopter",
             dibs_lock_release(p.l, DIBS_LOCK_OPTS(.owner = p.adopter)),
             DIBS_OK);
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

/* The call that waits is canceled before it asks again, and its good-bye is not
 * answered. What was left is not ended for that. */
static void test_fair_left_and_canceled(void **state)
{
    struct pair p;
    int id = 0;

    (void)state;
    first_gave(&p,
               &(struct kit_opts){.user = KIT_MEEK, .timeout_ms = UNHEARD_MS},
               DIBS_LOCK_OPTS(.leave = true), &dibs__script_fair_leave,
               (struct ts_rule){.action = TS_SWALLOW_REPLY, .count = 1}, &id);
    kit_want("leaving it", p.gave.err, DIBS_OK);
    adopt(&p);
    kit_want("canceling", dibs_lock_cancel(p.l, p.owner), DIBS_OK);
    kit_want("the second", kit_wait(&second(&p)->got), DIBS_ERR_CANCELED);
    kit_close(p.k); /* what it looks after, it asks for once more */
    p.k = kit_open(&(struct kit_opts){0});
    adopter_has_it(&p);
    adopter_gives(&p);
    kit_gone("left", p.name);
    pair_end(&p);
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

/* The first in line. When the others give the lock back, it gets it, and hears
 * nothing, until its time is over. */
static void unheard_head(struct pair *p, struct kit_end *late)
{
    p->turn[0].asks = rule_of(0, (struct ts_rule){.action = TS_PASS});
    start(p, 0, 6 * UNHEARD_MS, kit_ended, late);
    if (!ts_rule_wait_done(kit_px, p->turn[0].asks, 1, TS_SOON))
        fail_msg("it does not ask");
}

static void heads_lock_lost(struct pair *p)
{
    ts_proxy_unrule(kit_px, p->turn[0].asks);
    (void)rule_of(0,
                  (struct ts_rule){.action = TS_SWALLOW_REPLY, .count = 100});
    kit_want("others", dibs_lock_release(p->theirs, NULL), DIBS_OK);
}

/* The server gives the lock to a call that does not hear of it, and gives up.
 * Two more of its owner wait: the next one gets in soon, though the last one
 * still goes by the number that is taken back. */
static void test_write_three(void **state)
{
    struct kit_end late = {.err = DIBS_OK};
    struct pair p;

    (void)state;
    pair_open(&p, dibs_write_lock_new,
              &(struct kit_opts){.user = KIT_MEEK, .timeout_ms = UNHEARD_MS});
    unheard_head(&p, &late);
    line_up(&p, 1, kit_ended, &p.turn[1].got);
    line_up(&p, 2, kit_ended, &p.turn[2].got);
    heads_lock_lost(&p);
    assert_int_not_equal(kit_wait(&late), DIBS_OK);
    kit_want("the next one", kit_wait(&p.turn[1].got), DIBS_OK);
    pair_end(&p);
}

/* As above, and nobody answers when it leaves, either. The next one has the
 * lock before that is given up, and leaves it to somebody, who keeps it. */
static void test_write_asked_early(void **state)
{
    struct kit_end late = {.err = DIBS_OK};
    struct pair p;

    (void)state;
    pair_open(&p, dibs_write_lock_new,
              &(struct kit_opts){.user = KIT_MEEK, .timeout_ms = UNHEARD_MS});
    char *needle = kit_needle_keys(&dibs__script_write_leave, 3, p.name);
    int leaves =
        ts_proxy_rule(kit_px, &(struct ts_rule){.action = TS_SWALLOW_REPLY,
                                                .count = 1,
                                                .contains = needle});
    unheard_head(&p, &late);
    line_up(&p, 1, kit_ended, &p.turn[1].got);
    heads_lock_lost(&p);
    kit_want("the next one", kit_wait(&p.turn[1].got), DIBS_OK);
    kit_want("its name",
             dibs_lock_owner_text(p.l, p.owner, p.text, sizeof p.text),
             DIBS_OK);
    assert_int_not_equal(kit_wait(&late), DIBS_OK);
    assert_int_equal(ts_rule_hits(kit_px, leaves), 1);
    kit_want(
        "leaving it",
        dibs_lock_release(p.l, DIBS_LOCK_OPTS(.owner = p.owner, .leave = true)),
        DIBS_OK);
    adopt(&p);
    int looks = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_PASS, .contains = needle});
    free(needle);
    if (!ts_rule_wait_done(kit_px, looks, 3, TS_SOON))
        fail_msg("nobody looks");
    adopter_has_it(&p);
    adopter_gives(&p);
    pair_end(&p);
}

/* ---- the other half ---------------------------------------------------- */

struct halves {
    char *name;
    struct kit_client *k;
    dibs_lock *r, *w, *other;
    dibs_owner owner;
    struct act reads;
};

/* Its next calls go by another number, as it has left a lock to somebody. */
static void give_up_number(struct halves *h)
{
    kit_want("another lock",
             dibs_lock_acquire(h->other, DIBS_LOCK_OPTS(.owner = h->owner)),
             DIBS_OK);
    kit_want("leaving it",
             dibs_lock_release(
                 h->other, DIBS_LOCK_OPTS(.owner = h->owner, .leave = true)),
             DIBS_OK);
    ts_ok(kit_srv, "DEL else");
}

/* An owner writes, and its question whether it may read is on its way, by the
 * same number or by another. */
static void halves_begin(struct halves *h, bool another)
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
    if (another)
        give_up_number(h);
    int id = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                  .contains = dibs__script_read_acquire.sha});
    act_async(&h->reads, h->r,
              another ? dibs_lock_try_async : dibs_lock_acquire_async,
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
    halves_begin(&h, false);
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
    halves_begin(&h, false);
    kit_want("leaving it taken",
             dibs_lock_release(
                 h.w, DIBS_LOCK_OPTS(.owner = h.owner, .keep_ms = 3000)),
             DIBS_OK);
    halves_read(&h);
    halves_end(&h);
}

/* The number of the write is given up with it, that of the read is not: it is
 * granted, and nobody takes that back. */
static void test_half_by_another(void **state)
{
    struct halves h;

    (void)state;
    halves_begin(&h, true);
    kit_want("leaving it taken",
             dibs_lock_release(
                 h.w, DIBS_LOCK_OPTS(.owner = h.owner, .keep_ms = 3000)),
             DIBS_OK);
    halves_read(&h);
    halves_end(&h);
}

/* Its question is with the server while another call of its owner, for the
 * other half, gives the number up: a copy of that one may still come. What it
 * is granted is not kept by that number. */
static void test_granted_by_an_old_number(void **state)
{
    struct halves h = {.name = kit_name("numbers")};
    struct kit_client *other = kit_open(&(struct kit_opts){.direct = true});
    dibs_lock *theirs = lock_of(dibs_read_lock_new, other, h.name);
    char before[DIBS_OWNER_MAX], now[DIBS_OWNER_MAX];
    struct act writes;

    (void)state;
    h.k = kit_open(&(struct kit_opts){.user = KIT_MEEK});
    h.r = lock_of(dibs_read_lock_new, h.k, h.name);
    h.w = lock_of(dibs_write_lock_new, h.k, h.name);
    h.other = kit_lock(h.k, "else");
    h.owner = dibs_owner_new(h.k->c);
    const dibs_lock_opts *mine = DIBS_LOCK_OPTS(.owner = h.owner);
    kit_want("first", dibs_lock_acquire(h.r, mine), DIBS_OK);
    kit_want("by which",
             dibs_lock_owner_text(h.r, h.owner, before, sizeof before),
             DIBS_OK);
    kit_want("first", dibs_lock_release(h.r, mine), DIBS_OK);
    kit_want("others read", dibs_lock_acquire(theirs, NULL), DIBS_OK);
    kit_warm(h.k, h.other, "else");

    int id = ts_proxy_rule(
        kit_px, &(struct ts_rule){.action = TS_HOLD_REQUEST,
                                  .contains = dibs__script_read_acquire.sha,
                                  .count = 1});
    act_on_thread(&h.reads, h.r, dibs_lock_acquire, mine);
    if (!ts_rule_wait(kit_px, id, 1, TS_SOON))
        fail_msg("nothing was held");
    ts_proxy_rule(kit_px,
                  &(struct ts_rule){.action = TS_DROP_REPLY_CLOSE,
                                    .contains = dibs__script_write_acquire.sha,
                                    .count = 1});
    act_async(&writes, h.w, dibs_lock_try_async, mine);
    kit_want("write", act_end(&writes), DIBS_ERR_BUSY);
    kit_relent();
    kit_want("read", act_end(&h.reads), DIBS_OK);
    kit_want("by which", dibs_lock_owner_text(h.r, h.owner, now, sizeof now),
             DIBS_OK);
    assert_string_not_equal(now, before);
    kit_want("its end", dibs_lock_release(h.r, mine), DIBS_OK);
    kit_want("others' end", dibs_lock_release(theirs, NULL), DIBS_OK);
    dibs_lock_free(theirs);
    kit_close(other);
    halves_end(&h);
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
        T(test_fair_left),
        T(test_fair_late_release),
        T(test_fair_left_at_home),
        T(test_fair_kept),
        T(test_fair_left_and_canceled),
        T(test_write_left),
        T(test_write_kept),
        T(test_write_three),
        T(test_write_asked_early),
        T(test_half_left),
        T(test_half_kept),
        T(test_half_by_another),
        T(test_granted_by_an_old_number),
    };

    return TS_RUN_PARALLEL("fault.numbers", tests, kit_up, kit_down);
}
