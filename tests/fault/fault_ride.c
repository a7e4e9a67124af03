/* SPDX-License-Identifier: MIT
 *
 * fault_ride.c - calls that a callback begins, and something goes wrong.
 *
 * The thread that runs callbacks sends such calls itself, on a connection that
 * it borrows, and reads their replies between callbacks (callback_io.c). So
 * whatever can be lost on other ways is lost here, too, and the answer must be
 * as right. And a callback that takes its time must delay neither its own calls
 * nor the replies to others.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/loss.h"

#include "client/client.h"

#include <poll.h>
#include <semaphore.h>

/* ---- a call from inside a callback ------------------------------------- */

struct inner {
    dibs_lock *l;
    kit_async_fn *start;
    dibs_lock_opts opts;
    struct kit_end begun, end;
};

static void start_inner(dibs_err err, const dibs_lock_info *info, void *arg)
{
    struct inner *in = arg;

    (void)info;
    if (err == DIBS_OK)
        err = in->start(in->l, &in->opts, kit_ended, &in->end);
    if (err != DIBS_OK)
        kit_ended(err, &in->end);
    kit_ended(err, &in->begun);
}

/* The owner is this thread's, not that of the callback. */
static dibs_err call_inside(struct kit_client *k, struct inner *in)
{
    in->opts.size = sizeof in->opts;
    in->opts.owner = dibs_owner_thread(k->c);
    assert_int_equal(dibs_lock_info_get_async(in->l, start_inner, in), DIBS_OK);
    (void)kit_wait(&in->begun); /* or it would outlive us */
    return kit_wait(&in->end);
}

/* It was the thread of the callbacks that sent it. */
static void check_rode(const struct kit_client *k)
{
    assert_true(k->c->callbacks.wake_fd >= 0);
}

/* ---- lost -------------------------------------------------------------- */

static const struct step {
    const char *name;
    const struct dibs__script *script;
    size_t reply_len;
    int before, after;
    dibs_err timed_out;
    kit_async_fn *start;
} steps[] = {
    {"acquire", &dibs__script_mutex_acquire, 5, 0, 1, DIBS_OK,
     dibs_lock_acquire_async},
    {"try", &dibs__script_mutex_acquire, 5, 0, 1, DIBS_ERR_UNKNOWN,
     dibs_lock_try_async},
    {"re-entry", &dibs__script_mutex_acquire, 5, 1, 2, DIBS_OK,
     dibs_lock_acquire_async},
    {"partial release", &dibs__script_mutex_release, 4, 2, 1, DIBS_OK,
     dibs_lock_release_async},
    {"release", &dibs__script_mutex_release, 4, 1, 0, DIBS_OK,
     dibs_lock_release_async},
};

/* False: says nothing. */
static bool lose_one(const struct step *st, const struct loss *loss,
                     enum kit_user user)
{
    struct loss_run r = {.user = user, .async = true};

    loss_begin(&r, "ride", st->name, loss, false);
    r.l = kit_lock(r.k, r.name);
    loss_hold(&r, st->before);
    kit_warm(r.k, r.l, r.name);
    char *needle = kit_needle(st->script, r.name);
    loss_trap(&r, needle);
    free(needle);
    struct inner in = {.l = r.l, .start = st->start};
    dibs_err err = call_inside(r.k, &in);
    check_rode(r.k);
    bool sure = loss_verdict(&r, err, st->timed_out);
    if (err == DIBS_OK)
        kit_check(r.where, r.l, 0, r.name, st->after);
    loss_give_back(&r);
    kit_gone(r.where, r.name);
    loss_take_again(&r);
    loss_give_back(&r);
    loss_end(&r);
    return sure;
}

static void lose_one_surely(const struct step *st, const struct loss *loss,
                            enum kit_user user)
{
    for (int times = 1; !lose_one(st, loss, user); times++)
        loss_unsure(st->name, loss, times);
}

static void test_lost_in_all_ways(void **state)
{
    static const struct loss *const losses[] = {
        &loss_not_passed_on, &loss_not_passed_on_reset, &loss_request_cut,
        &loss_reply_dropped, &loss_reply_dropped_reset, &loss_reply_held,
    };

    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t i = 0; i < COUNT(losses); i++)
            lose_one_surely(&steps[s], losses[i],
                            (s + i) % 2 ? KIT_MEEK : KIT_FULL);
}

static void test_reply_cut_at_every_byte(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(steps); s++)
        for (size_t at = 0; at < steps[s].reply_len; at++) {
            struct loss loss = loss_reply_cut_at(at);
            lose_one_surely(&steps[s], &loss, at % 2 ? KIT_MEEK : KIT_FULL);
        }
}

/* ---- answered, but not so ---------------------------------------------- */

static void check_answer(const char *where, const struct ts_rule *rule)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
    char *name = kit_name("answer");
    dibs_lock *l = kit_lock(k, name);
    struct inner in = {.l = l, .start = dibs_lock_acquire_async};
    struct inner out = {.l = l, .start = dibs_lock_release_async};

    kit_warm(k, l, name);
    int id = kit_rule(&dibs__script_mutex_acquire, name, rule);
    kit_want(where, call_inside(k, &in), DIBS_OK);
    assert_int_equal(ts_rule_hits(kit_px, id), 1);
    kit_check(where, l, 0, name, 1);
    kit_want(where, call_inside(k, &out), DIBS_OK);
    check_rode(k);
    kit_gone(where, name);
    dibs_lock_free(l);
    kit_close(k);
    free(name);
}

static void test_other_answers(void **state)
{
    (void)state;
    check_answer("loading", &(struct ts_rule){.action = TS_ANSWER,
                                              .text = "-LOADING a moment\r\n",
                                              .count = 1});
    check_answer("another one's", &(struct ts_rule){.action = TS_REWRITE_REPLY,
                                                    .text = "*0\r\n",
                                                    .count = 1});
    check_answer("twice",
                 &(struct ts_rule){.action = TS_DUPLICATE_REPLY, .count = 1});
    check_answer("byte by byte",
                 &(struct ts_rule){.action = TS_DRIP, .ms = 2, .count = 1});
}

/* ---- callbacks that take their time ------------------------------------ */

struct slow {
    dibs_lock *l;
    dibs_lock_opts opts;
    struct kit_end end;
    sem_t go_on;
    atomic_bool inside;
    dibs_err err;
};

static void stay_inside(struct slow *s)
{
    atomic_store(&s->inside, true);
    while (sem_wait(&s->go_on) != 0)
        ;
}

static void release_and_stay(dibs_err err, void *arg)
{
    struct slow *s = arg;

    s->err = err != DIBS_OK
                 ? err
                 : dibs_lock_release_async(s->l, &s->opts, kit_ended, &s->end);
    stay_inside(s);
}

static void slow_begin(struct slow *s, struct kit_client *k, const char *name)
{
    *s = (struct slow){.l = kit_lock(k, name)};
    s->opts =
        (dibs_lock_opts){.size = sizeof s->opts, .owner = dibs_owner_new(k->c)};
    sem_init(&s->go_on, 0, 0);
    kit_warm(k, s->l, name);
}

static void slow_end(struct slow *s)
{
    sem_destroy(&s->go_on);
    dibs_lock_free(s->l);
}

/* What a callback began is done, though the callback has not returned. */
static void test_a_callback_stays(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
    struct slow s;

    (void)state;
    slow_begin(&s, k, "stays");
    for (int i = 0; i < 3; i++) { /* with and without a ride */
        atomic_store(&s.inside, false);
        atomic_store(&s.end.over, false);
        assert_int_equal(
            dibs_lock_acquire_async(s.l, &s.opts, release_and_stay, &s),
            DIBS_OK);
        TS_WAIT(atomic_load(&s.inside));
        kit_gone("the callback is still inside", "stays");
        assert_false(atomic_load(&s.end.over));
        sem_post(&s.go_on);
        assert_int_equal(kit_wait(&s.end), DIBS_OK);
        assert_int_equal(s.err, DIBS_OK);
    }
    check_rode(k);
    slow_end(&s);
    kit_close(k);
}

static void stay(dibs_err err, void *arg)
{
    struct slow *s = arg;

    s->err = err;
    stay_inside(s);
}

static void acquire_and_return(dibs_err err, void *arg)
{
    struct slow *s = arg;

    if (err == DIBS_OK)
        err = dibs_lock_acquire_async(s->l, &s->opts, kit_ended, &s->end);
    s->err = err;
}

/* The reply comes while another callback is inside: it counts at once. */
static void test_another_callback_stays(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
    dibs_lock *first = kit_lock(k, "first");
    struct slow s, block;

    (void)state;
    slow_begin(&s, k, "asked");
    slow_begin(&block, k, "blocks");
    int id = kit_rule(&dibs__script_mutex_acquire, "asked",
                      &(struct ts_rule){.action = TS_HOLD_REPLY, .count = 1});
    assert_int_equal(
        dibs_lock_acquire_async(first, &s.opts, acquire_and_return, &s),
        DIBS_OK);
    TS_WAIT(ts_rule_executed(kit_px, id) == 1);
    assert_int_equal(
        dibs_lock_acquire_async(block.l, &block.opts, stay, &block), DIBS_OK);
    TS_WAIT(atomic_load(&block.inside));
    ts_proxy_release(kit_px);
    TS_WAIT(dibs_lock_state(s.l, s.opts.owner) == DIBS_HELD);
    assert_false(atomic_load(&s.end.over));
    sem_post(&block.go_on);
    assert_int_equal(kit_wait(&s.end), DIBS_OK);
    check_rode(k);
    slow_end(&s);
    slow_end(&block);
    dibs_lock_free(first);
    kit_close(k);
}

/* ---- in the program's own loop ----------------------------------------- */

/* Until it is over. */
static dibs_err dispatch_until(const struct kit_client *k, struct kit_end *end)
{
    struct ts_wait w = ts_wait_begin(TS_SOON);

    while (!atomic_load(&end->over)) {
        struct pollfd p = {.fd = dibs_client_fd(k->c), .events = POLLIN};
        if (poll(&p, 1, 100) == 1)
            (void)dibs_client_dispatch(k->c);
        else if (!ts_wait_step(&w))
            fail_msg("nothing more to dispatch");
    }
    return end->err;
}

static void start_in_loop(const struct kit_client *k, struct inner *in)
{
    in->opts.size = sizeof in->opts;
    in->opts.owner = dibs_owner_thread(k->c);
    atomic_store(&in->end.over, false);
    assert_int_equal(dibs_lock_info_get_async(in->l, start_inner, in), DIBS_OK);
}

/* Lost or not, whatever a callback in the loop begins is answered there; and
 * nothing makes the loop run when there is nothing to be done. */
static void test_loop_loses_replies(void **state)
{
    static const struct loss *const losses[] = {
        &loss_not_passed_on, &loss_request_cut, &loss_reply_dropped};
    struct kit_client *k = kit_open(&(struct kit_opts){.dispatch = true});
    dibs_lock *l = kit_lock(k, "loop");
    struct inner in = {.l = l, .start = dibs_lock_acquire_async};
    struct inner out = {.l = l, .start = dibs_lock_release_async};

    (void)state;
    for (size_t i = 0; i < 2 * COUNT(losses); i++) {
        struct ts_rule rule = losses[i / 2]->rule;
        rule.count = 1;
        kit_warm(k, l, "loop");
        int id = kit_rule(i % 2 ? &dibs__script_mutex_acquire
                                : &dibs__script_mutex_release,
                          "loop", &rule);
        start_in_loop(k, &in);
        assert_int_equal(dispatch_until(k, &in.end), DIBS_OK);
        kit_check("loop", l, 0, "loop", 1);
        start_in_loop(k, &out);
        assert_int_equal(dispatch_until(k, &out.end), DIBS_OK);
        assert_int_equal(ts_rule_hits(kit_px, id), 1);
        kit_gone("loop", "loop");
    }
    while (dibs_client_dispatch(k->c) > 0)
        ;
    struct pollfd p = {.fd = dibs_client_fd(k->c), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_false(dibs__list_linked(&k->c->callbacks.rides));
    dibs_lock_free(l);
    kit_close(k);
}

/* The loop is busy elsewhere: the reply counts all the same. */
static void test_loop_is_busy(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.dispatch = true});
    dibs_lock *l = kit_lock(k, "busy");
    struct inner in = {.l = l, .start = dibs_lock_acquire_async};

    (void)state;
    kit_warm(k, l, "busy");
    start_in_loop(k, &in);
    assert_int_equal(dispatch_until(k, &in.begun), DIBS_OK); /* no further */
    TS_WAIT(dibs_lock_state(l, 0) == DIBS_HELD);
    assert_false(atomic_load(&in.end.over));
    assert_int_equal(dispatch_until(k, &in.end), DIBS_OK);
    assert_int_equal(dibs_lock_release(l, NULL), DIBS_OK);
    dibs_lock_free(l);
    kit_close(k);
}

/* ---- the end ----------------------------------------------------------- */

struct chain {
    dibs_lock *l;
    dibs_lock_opts opts;
    atomic_int pairs;
    struct kit_end end;
};

static void chain_released(dibs_err err, void *arg);

static void chain_acquired(dibs_err err, void *arg)
{
    struct chain *ch = arg;

    if (err == DIBS_OK)
        err = dibs_lock_release_async(ch->l, &ch->opts, chain_released, ch);
    if (err != DIBS_OK)
        kit_ended(err, &ch->end);
}

static void chain_released(dibs_err err, void *arg)
{
    struct chain *ch = arg;

    atomic_fetch_add(&ch->pairs, 1);
    if (err == DIBS_OK)
        err = dibs_lock_acquire_async(ch->l, &ch->opts, chain_acquired, ch);
    if (err != DIBS_OK)
        kit_ended(err, &ch->end);
}

#define CHAINS 8

static void start_chains(struct chain *chains, struct kit_client *k)
{
    for (int i = 0; i < CHAINS; i++) {
        char *name = kit_name("chain");
        chains[i].l = kit_lock(k, name);
        free(name);
        chains[i].opts = (dibs_lock_opts){.size = sizeof chains[i].opts,
                                          .owner = dibs_owner_new(k->c)};
        assert_int_equal(dibs_lock_acquire_async(chains[i].l, &chains[i].opts,
                                                 chain_acquired, &chains[i]),
                         DIBS_OK);
    }
    for (int i = 0; i < CHAINS; i++)
        TS_WAIT(atomic_load(&chains[i].pairs) > 20);
}

/* Connections end again and again under chains of calls; they all go on. */
static void test_chains_outlive_connections(void **state)
{
    struct kit_client *k = kit_open(&(struct kit_opts){.lazy = false});
    struct chain chains[CHAINS] = {0};

    (void)state;
    start_chains(chains, k);
    check_rode(k);
    for (int round = 0; round < 5; round++) {
        int before = atomic_load(&chains[round].pairs);
        ts_proxy_kill_all(kit_px, false);
        TS_WAIT(atomic_load(&chains[round].pairs) > before + 20 ||
                atomic_load(&chains[round].end.over));
    }
    for (int i = 0; i < CHAINS; i++)
        assert_false(atomic_load(&chains[i].end.over));
    assert_int_equal(dibs_client_close(k->c, 0), DIBS_OK);
    for (int i = 0; i < CHAINS; i++) {
        assert_int_equal(kit_wait(&chains[i].end), DIBS_ERR_CLOSED);
        dibs_lock_free(chains[i].l);
    }
    kit_close(k);
    kit_no_keys("after the close");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_lost_in_all_ways, kit_fresh),
        cmocka_unit_test_setup(test_reply_cut_at_every_byte, kit_fresh),
        cmocka_unit_test_setup(test_other_answers, kit_fresh),
        cmocka_unit_test_setup(test_a_callback_stays, kit_fresh),
        cmocka_unit_test_setup(test_another_callback_stays, kit_fresh),
        cmocka_unit_test_setup(test_loop_loses_replies, kit_fresh),
        cmocka_unit_test_setup(test_loop_is_busy, kit_fresh),
        cmocka_unit_test_setup(test_chains_outlive_connections, kit_fresh),
    };

    return cmocka_run_group_tests(tests, kit_up, kit_down);
}
