/* SPDX-License-Identifier: MIT
 *
 * fault_objects.c - a reply is lost, at every step of fenced locks, slots,
 * semaphores and latches, in every way.
 *
 * As fault_reply_lost.c does it for the plain lock. Here it is about numbers:
 * whatever was lost, a permit is neither lost nor made, a latch is counted down
 * once, and the token that the library tells is the one that the server has.
 * Each step is done with one reply lost, which the library makes good by
 * itself, and with all of them lost, so that it cannot; then what may have been
 * taken comes back.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/loss.h"

#include <stdio.h>
#include <string.h>

enum { TOTAL = 5 }; /* permits of each, and the count of a latch */

struct scene {
    struct loss_run run;
    dibs_semaphore *s;
    dibs_latch *g;
    int64_t result;
};

struct step {
    const char *name;
    const struct dibs__script *script;
    int keys;
    bool of_permits; /* its first key is the list of permits */
    bool watched;    /* the watchdog's doing: a short lease */
    int held;        /* before it */
    void (*make)(struct scene *sc);
    dibs_err (*act)(struct scene *sc);
    /* After one loss: the answer was OK. Fails the test if that is not so. */
    void (*check)(struct scene *sc, const struct step *st);
    /* Whatever happened: what is on the server adds up once all is over. */
    bool (*sound)(struct scene *sc);
    dibs_err timed_out; /* what one reply that never comes leads to */
};

static long long number_at(const char *key)
{
    return ts_int(kit_srv, "EVAL %s 1 %s",
                  "return tonumber(redis.call('get', KEYS[1]) or 0)", key);
}

static long long members(const char *name, const char *suffix)
{
    char *key = ts_text("{%s}:%s", name, suffix);
    long long n = ts_int(kit_srv, "ZCARD %s", key);

    free(key);
    return n;
}

/* A set before the run. The client does not wait long for any reply, so on a
 * slow machine it may take several. */
#define SET_UP(call)                                                           \
    do {                                                                       \
        struct ts_wait w_ = ts_wait_begin(TS_SOON);                            \
        dibs_err err_;                                                         \
        do                                                                     \
            err_ = (call);                                                     \
        while ((err_ == DIBS_ERR_UNKNOWN || err_ == DIBS_ERR_CONN) &&          \
               ts_wait_step(&w_));                                             \
        assert_int_equal(err_, DIBS_OK);                                       \
    } while (0)

/* ---- fenced locks ------------------------------------------------------ */

static void make_fenced(struct scene *sc)
{
    assert_int_equal(
        dibs_fenced_lock_new(sc->run.k->c, sc->run.name, &sc->run.l), DIBS_OK);
}

static dibs_err act_acquire(struct scene *sc)
{
    return loss_acquire(&sc->run);
}

static dibs_err act_try(struct scene *sc)
{
    return loss_try(&sc->run);
}

static dibs_err act_release(struct scene *sc)
{
    return loss_release(&sc->run);
}

static dibs_err act_renewed(struct scene *sc)
{
    return loss_renewed(&sc->run);
}

static void check_token(struct scene *sc, const struct step *st)
{
    char *key = ts_text("redisson_lock_token:{%s}", sc->run.name);
    int64_t token = 0;

    (void)st;
    assert_int_equal(dibs_lock_token(sc->run.l, 0, &token), DIBS_OK);
    if (token != number_at(key))
        fail_msg("%s: told of token %lld", sc->run.where, (long long)token);
    free(key);
}

static bool fenced_sound(struct scene *sc)
{
    return ts_int(kit_srv, "EXISTS %s", sc->run.name) == 0;
}

/* ---- slots ------------------------------------------------------------- */

static void make_slots(struct scene *sc)
{
    assert_int_equal(
        dibs_slots_lock_new(sc->run.k->c, sc->run.name, TOTAL, &sc->run.l),
        DIBS_OK);
    SET_UP(dibs_slots_set(sc->run.l, TOTAL));
}

static dibs_err act_slots_set(struct scene *sc)
{
    return dibs_slots_set(sc->run.l, TOTAL);
}

static void check_slots(struct scene *sc, const struct step *st)
{
    bool held = dibs_lock_holds(sc->run.l, 0) > 0;
    int64_t slot = -1;

    (void)st;
    if (number_at(sc->run.name) != TOTAL - held ||
        members(sc->run.name, "timeout") != held)
        fail_msg("%s: %lld free, %lld out", sc->run.where,
                 number_at(sc->run.name), members(sc->run.name, "timeout"));
    if (held && (dibs_lock_slot(sc->run.l, 0, &slot) != DIBS_OK || slot != 0))
        fail_msg("%s: slot %lld", sc->run.where, (long long)slot);
}

static bool slots_sound(struct scene *sc)
{
    return number_at(sc->run.name) == TOTAL &&
           members(sc->run.name, "timeout") == 0;
}

/* ---- semaphores -------------------------------------------------------- */

#define TWO DIBS_SEMAPHORE_OPTS(.permits = 2, .wait_ms = TS_SOON)

static void make_semaphore(struct scene *sc)
{
    assert_int_equal(dibs_semaphore_new(sc->run.k->c, sc->run.name, &sc->s),
                     DIBS_OK);
    SET_UP(dibs_semaphore_set(sc->s, TOTAL, NULL));
}

static void make_semaphore_unset(struct scene *sc)
{
    assert_int_equal(dibs_semaphore_new(sc->run.k->c, sc->run.name, &sc->s),
                     DIBS_OK);
}

static dibs_err semaphore_call(struct scene *sc, bool gives)
{
    struct kit_end end = {.over = false};
    dibs_semaphore_opts o = *TWO;

    if (sc->run.for_ever)
        o.wait_ms = LOSS_HASTY_MS;
    if (!sc->run.async)
        return gives ? dibs_semaphore_release(sc->s, &o)
                     : dibs_semaphore_acquire(sc->s, &o);
    dibs_err err =
        gives ? dibs_semaphore_release_async(sc->s, &o, kit_ended, &end)
              : dibs_semaphore_acquire_async(sc->s, &o, kit_ended, &end);
    return err == DIBS_OK ? kit_wait(&end) : err;
}

static dibs_err act_semaphore_acquire(struct scene *sc)
{
    dibs_err err = semaphore_call(sc, false);

    sc->result = err == DIBS_OK ? 2 : 0;
    return err;
}

static dibs_err act_semaphore_release(struct scene *sc)
{
    sc->result = 0;
    return semaphore_call(sc, true);
}

static dibs_err act_semaphore_add(struct scene *sc)
{
    dibs_err err = dibs_semaphore_add(sc->s, 3, &sc->result);

    if (err == DIBS_OK && sc->result != TOTAL + 3)
        fail_msg("%s: told of %lld", sc->run.where, (long long)sc->result);
    sc->result = -3;
    return err;
}

static dibs_err act_semaphore_drain(struct scene *sc)
{
    dibs_err err = dibs_semaphore_drain(sc->s, &sc->result);

    if (err == DIBS_OK && sc->result != TOTAL)
        fail_msg("%s: told of %lld", sc->run.where, (long long)sc->result);
    sc->result = TOTAL;
    return err;
}

static dibs_err act_semaphore_set(struct scene *sc)
{
    bool was_set = false;
    dibs_err err = dibs_semaphore_set(sc->s, TOTAL, &was_set);

    if (err == DIBS_OK && !was_set)
        fail_msg("%s: told that it was set before", sc->run.where);
    return err;
}

/* result: permits that are not free. */
static void check_semaphore(struct scene *sc, const struct step *st)
{
    (void)st;
    if (number_at(sc->run.name) != TOTAL - sc->result)
        fail_msg("%s: %lld free", sc->run.where, number_at(sc->run.name));
}

/* Nothing is in the book, and what was to happen once did so once or never. */
static bool semaphore_sound(struct scene *sc)
{
    long long n = number_at(sc->run.name);

    return members(sc->run.name, "dibs_held") == 0 &&
           (n == TOTAL || n == TOTAL - sc->result || n == 0);
}

/* ---- latches ----------------------------------------------------------- */

static void make_latch(struct scene *sc)
{
    assert_int_equal(dibs_latch_new(sc->run.k->c, sc->run.name, &sc->g),
                     DIBS_OK);
    SET_UP(dibs_latch_set(sc->g, TOTAL, NULL, NULL));
}

static void make_latch_open(struct scene *sc)
{
    assert_int_equal(dibs_latch_new(sc->run.k->c, sc->run.name, &sc->g),
                     DIBS_OK);
}

static dibs_err act_latch_set(struct scene *sc)
{
    bool was_set = false;
    dibs_err err = dibs_latch_set(sc->g, TOTAL, NULL, &was_set);

    if (err == DIBS_OK && !was_set)
        fail_msg("%s: told that it was set before", sc->run.where);
    sc->result = TOTAL;
    return err;
}

static dibs_err act_latch_open(struct scene *sc)
{
    bool was_set = false;
    dibs_err err = dibs_latch_set(sc->g, 0, NULL, &was_set);

    if (err == DIBS_OK && !was_set)
        fail_msg("%s: told that it was open before", sc->run.where);
    sc->result = 0;
    return err;
}

static dibs_err act_latch_down(struct scene *sc)
{
    struct kit_end end = {.over = false};

    sc->result = TOTAL - 1;
    if (!sc->run.async)
        return dibs_latch_count_down(sc->g, NULL, NULL);
    dibs_err err = dibs_latch_count_down_async(sc->g, NULL, kit_ended, &end);
    return err == DIBS_OK ? kit_wait(&end) : err;
}

static dibs_err act_latch_named(struct scene *sc)
{
    sc->result = TOTAL - 1;
    return dibs_latch_count_down(sc->g, DIBS_LATCH_OPTS(.ticket = "bob"), NULL);
}

static dibs_err act_latch_wait(struct scene *sc)
{
    struct kit_end end = {.over = false};
    dibs_latch_opts o = *DIBS_LATCH_OPTS(.wait_ms = TS_SOON);

    if (sc->run.for_ever)
        o.wait_ms = LOSS_HASTY_MS;
    if (!sc->run.async)
        return dibs_latch_wait(sc->g, &o);
    dibs_err err = dibs_latch_wait_async(sc->g, &o, kit_ended, &end);
    return err == DIBS_OK ? kit_wait(&end) : err;
}

static void check_latch(struct scene *sc, const struct step *st)
{
    (void)st;
    if (number_at(sc->run.name) != sc->result)
        fail_msg("%s: %lld left", sc->run.where, number_at(sc->run.name));
}

static bool latch_sound(struct scene *sc)
{
    long long n = number_at(sc->run.name);

    return n == 0 || n == TOTAL || n == sc->result;
}

/* ---- the table --------------------------------------------------------- */

#define FENCED    .make = make_fenced, .sound = fenced_sound
#define SLOTS     .make = make_slots, .sound = slots_sound, .check = check_slots
#define SEMAPHORE .sound = semaphore_sound, .check = check_semaphore
#define LATCH     .sound = latch_sound, .check = check_latch

static const struct step steps[] = {
    {"fenced acquire", &dibs__script_fenced_acquire, 2, FENCED,
     .act = act_acquire, .check = check_token},
    {"fenced try", &dibs__script_fenced_acquire, 2, FENCED, .act = act_try,
     .check = check_token, .timed_out = DIBS_ERR_UNKNOWN},
    {"fenced re-entry", &dibs__script_fenced_acquire, 2, FENCED, .held = 1,
     .act = act_acquire, .check = check_token},
    {"slots acquire", &dibs__script_slots_acquire, 3, SLOTS,
     .act = act_acquire},
    {"slots try", &dibs__script_slots_acquire, 3, SLOTS, .act = act_try,
     .timed_out = DIBS_ERR_UNKNOWN},
    {"slots re-entry", &dibs__script_slots_acquire, 3, SLOTS, .held = 1,
     .act = act_acquire},
    {"slots release", &dibs__script_slots_release, 3, SLOTS, .held = 1,
     .act = act_release},
    {"slots renewal", &dibs__script_permit_renew, 1, SLOTS, .held = 1,
     .of_permits = true, .watched = true, .act = act_renewed},
    {"slots set", &dibs__script_slots_set, 2, SLOTS, .act = act_slots_set},
    {"semaphore acquire", &dibs__script_semaphore_acquire, 2, SEMAPHORE,
     .make = make_semaphore, .act = act_semaphore_acquire},
    {"semaphore release", &dibs__script_semaphore_release, 2, SEMAPHORE,
     .make = make_semaphore, .held = 2, .act = act_semaphore_release},
    {"semaphore add", &dibs__script_semaphore_add, 2, SEMAPHORE,
     .make = make_semaphore, .act = act_semaphore_add},
    {"semaphore drain", &dibs__script_semaphore_drain, 2, SEMAPHORE,
     .make = make_semaphore, .act = act_semaphore_drain},
    {"semaphore set", &dibs__script_semaphore_set, 3, SEMAPHORE,
     .make = make_semaphore_unset, .act = act_semaphore_set},
    {"latch set", &dibs__script_latch_set, 2, LATCH, .make = make_latch_open,
     .act = act_latch_set},
    {"latch open", &dibs__script_latch_set, 2, LATCH, .make = make_latch,
     .act = act_latch_open},
    {"latch down", &dibs__script_latch_down, 2, LATCH, .make = make_latch,
     .act = act_latch_down},
    {"latch ticket", &dibs__script_latch_down, 2, LATCH, .make = make_latch,
     .act = act_latch_named},
    {"latch wait", &dibs__script_latch_look, 2, LATCH, .make = make_latch_open,
     .act = act_latch_wait},
};

static const struct loss *const losses[] = {
    &loss_not_passed_on,
    &loss_request_cut,
    &loss_reply_dropped,
    &loss_reply_held,
};

/* ---- one run ----------------------------------------------------------- */

static void set_trap(struct scene *sc, const struct step *st)
{
    char *first = st->of_permits ? ts_text("{%s}:timeout", sc->run.name)
                                 : ts_strdup(sc->run.name);
    char *needle = kit_needle_keys(st->script, st->keys, first);

    loss_trap(&sc->run, needle);
    free(needle);
    free(first);
}

static void begin_run(struct scene *sc, const struct step *st,
                      const struct loss *loss)
{
    kit_load(st->script);
    loss_begin(&sc->run, "object", st->name, loss, st->watched);
    st->make(sc);
    if (sc->run.l)
        loss_hold(&sc->run, st->held);
    else if (st->held)
        assert_int_equal(dibs_semaphore_acquire(sc->s, TWO), DIBS_OK);
    set_trap(sc, st);
}

/* What is held is given back; then all must add up. */
static void end_run(struct scene *sc, const struct step *st)
{
    kit_relent();
    if (sc->run.l)
        loss_give_back(&sc->run);
    else if (sc->s)
        while (dibs_semaphore_release(sc->s, TWO) != DIBS_ERR_NOT_OWNER)
            ;
    struct ts_wait waits = ts_wait_begin(TS_SOON);
    while (!st->sound(sc))
        if (!ts_wait_step(&waits))
            fail_msg("%s: it does not add up: %lld", sc->run.where,
                     number_at(sc->run.name));
    dibs_semaphore_free(sc->s);
    dibs_latch_free(sc->g);
    loss_end(&sc->run);
    ts_ok(kit_srv, "FLUSHALL");
}

static void one_lost(const struct step *st, const struct loss *loss,
                     enum kit_user user, bool async)
{
    for (int times = 0;; times++) {
        struct scene sc = {.run = {.user = user, .async = async}};
        begin_run(&sc, st, loss);
        dibs_err err = st->act(&sc);
        bool sure = loss_verdict(&sc.run, err, st->timed_out);
        if (sure && err == DIBS_OK && st->check)
            st->check(&sc, st);
        end_run(&sc, st);
        if (sure)
            return;
        loss_unsure(st->name, loss, times);
    }
}

static void all_lost(const struct step *st, const struct loss *loss,
                     enum kit_user user)
{
    struct scene sc = {.run = {.user = user, .for_ever = true}};

    begin_run(&sc, st, loss);
    dibs_err err = st->act(&sc);
    if (err == DIBS_OK)
        fail_msg("%s: it cannot know", sc.run.where);
    end_run(&sc, st);
}

/* state: the step. */
static void test_objects_one_reply_lost(void **state)
{
    const struct step *st = *state;

    for (size_t k = 0; k < COUNT(losses); k++)
        for (int how = 0; how < 4; how++)
            one_lost(st, losses[k], how % 2 ? KIT_MEEK : KIT_FULL, how / 2);
}

static void test_objects_all_replies_lost(void **state)
{
    const struct step *st = *state;

    for (int how = 0; how < 2; how++) {
        all_lost(st, &loss_not_passed_on, how ? KIT_MEEK : KIT_FULL);
        all_lost(st, &loss_reply_dropped, how ? KIT_MEEK : KIT_FULL);
    }
}

int main(void)
{
    static char names[COUNT(steps)][2][64];
    struct CMUnitTest tests[2 * COUNT(steps)];
    size_t n = 0;

    for (size_t i = 0; i < COUNT(steps); i++) {
        snprintf(names[i][0], sizeof names[i][0], "%s, one reply lost",
                 steps[i].name);
        snprintf(names[i][1], sizeof names[i][1], "%s, all replies lost",
                 steps[i].name);
        tests[n++] =
            (struct CMUnitTest){names[i][0], test_objects_one_reply_lost,
                                kit_fresh, NULL, (void *)&steps[i]};
        if (!steps[i].watched)
            tests[n++] =
                (struct CMUnitTest){names[i][1], test_objects_all_replies_lost,
                                    kit_fresh, NULL, (void *)&steps[i]};
    }
    return ts_run_parallel("fault.objects", tests, n, kit_up, kit_down);
}
