/* SPDX-License-Identifier: MIT
 *
 * loss.c - what the tests that lose requests and replies share.
 *
 * Thread  the test's main thread.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault/loss.h"

#include <stdio.h>

#define TRIES 5

/* ---- ways to lose one -------------------------------------------------- */

const struct loss loss_not_passed_on = {.name = "not passed on",
                                        .rule = {.action = TS_CLOSE_BEFORE}};
const struct loss loss_not_passed_on_reset = {
    .name = "not passed on, reset",
    .rule = {.action = TS_CLOSE_BEFORE, .rst = true},
    .tcp = true};
const struct loss loss_request_cut = {
    .name = "request cut", .rule = {.action = TS_CUT_REQUEST_AT, .at = 20}};
const struct loss loss_request_held = {.name = "request held back",
                                       .rule = {.action = TS_HOLD_REQUEST},
                                       .silent = true};
const struct loss loss_reply_dropped = {
    .name = "reply dropped", .rule = {.action = TS_DROP_REPLY_CLOSE}};
const struct loss loss_reply_dropped_reset = {
    .name = "reply dropped, reset",
    .rule = {.action = TS_DROP_REPLY_CLOSE, .rst = true},
    .tcp = true};
const struct loss loss_reply_swallowed = {.name = "reply swallowed",
                                          .rule = {.action = TS_SWALLOW_REPLY},
                                          .silent = true};
const struct loss loss_reply_held = {.name = "reply held back",
                                     .rule = {.action = TS_HOLD_REPLY},
                                     .silent = true};

struct loss loss_reply_cut_at(size_t at)
{
    struct loss loss = {.rule = {.action = TS_CUT_REPLY_AT, .at = at}};

    snprintf(loss.name, sizeof loss.name, "reply cut at %zu", at);
    return loss;
}

/* ---- a run ------------------------------------------------------------- */

void loss_begin(struct loss_run *r, const char *stem, const char *step,
                const struct loss *loss, bool watched)
{
    bool hasty = (loss->silent || r->for_ever) && !watched;

    r->loss = loss;
    snprintf(r->where, sizeof r->where, "%s, %s, %s%s, %s, %s", stem, step,
             loss->name, r->for_ever ? " forever" : "",
             r->user == KIT_MEEK ? "no CLIENT KILL" : "CLIENT KILL",
             r->async ? "async" : "sync");
    r->name = kit_name(stem);
    ts_proxy_reset(kit_px);
    r->k = kit_open(&(struct kit_opts){.user = r->user,
                                       .tcp = loss->tcp,
                                       .timeout_ms = hasty ? LOSS_HASTY_MS : 0,
                                       .lease_ms = watched ? kit_ms(2400) : 0});
}

void loss_hold(struct loss_run *r, int times)
{
    for (int i = 0; i < times; i++)
        assert_int_equal(
            dibs_lock_acquire(
                r->l, DIBS_LOCK_OPTS(.on_lost = kit_lost, .arg = &r->lost)),
            DIBS_OK);
}

void loss_trap(struct loss_run *r, const char *needle)
{
    struct ts_rule rule = r->loss->rule;

    rule.contains = needle;
    rule.count = r->for_ever ? 0 : 1;
    r->rule = ts_proxy_rule(kit_px, &rule);
    r->later = ts_proxy_rule(kit_px, &(struct ts_rule){.contains = needle});
}

bool loss_unsent(struct loss_run *r, dibs_err err)
{
    bool hasty = r->loss->silent || r->for_ever;

    return hasty && err == DIBS_ERR_CONN && ts_rule_hits(kit_px, r->rule) == 0;
}

bool loss_verdict(struct loss_run *r, dibs_err err, dibs_err timed_out)
{
    dibs_err want = r->loss->silent ? timed_out : DIBS_OK;
    bool slow = r->loss->silent && err == DIBS_ERR_UNKNOWN;

    if (loss_unsent(r, err))
        return false;
    if (ts_rule_hits(kit_px, r->rule) != 1)
        fail_msg("%s: %u were lost", r->where, ts_rule_hits(kit_px, r->rule));
    if (err != want && !slow)
        fail_msg("%s: %s", r->where, dibs_strerror(err));
    return err == want;
}

void loss_unsure(const char *step, const struct loss *loss, int times)
{
    if (times >= TRIES)
        fail_msg("%s, %s: never answered", step, loss->name);
}

void loss_give_back(struct loss_run *r)
{
    const dibs_lock_opts *o = DIBS_LOCK_OPTS(.wait_ms = TS_SOON);
    dibs_err err;

    while (dibs_lock_holds(r->l, 0) > 0)
        if ((err = dibs_lock_release(r->l, o)) != DIBS_OK)
            fail_msg("%s: giving back: %s", r->where, dibs_strerror(err));
}

void loss_take_again(struct loss_run *r)
{
    dibs_err err = dibs_lock_acquire(r->l, DIBS_LOCK_OPTS(.wait_ms = TS_SOON));

    if (err != DIBS_OK)
        fail_msg("%s: cannot be taken again: %s", r->where, dibs_strerror(err));
}

void loss_end(struct loss_run *r)
{
    dibs_lock_free(r->l);
    kit_close(r->k);
    free(r->name);
}

/* ---- steps ------------------------------------------------------------- */

dibs_err loss_acquire(struct loss_run *r)
{
    return kit_call(r->l, r->async, dibs_lock_acquire, dibs_lock_acquire_async,
                    DIBS_LOCK_OPTS(.wait_ms = r->for_ever ? LOSS_HASTY_MS : 0,
                                   .on_lost = kit_lost, .arg = &r->lost));
}

dibs_err loss_try(struct loss_run *r)
{
    return kit_call(r->l, r->async, dibs_lock_try, dibs_lock_try_async, NULL);
}

dibs_err loss_release(struct loss_run *r)
{
    return kit_call(r->l, r->async, dibs_lock_release, dibs_lock_release_async,
                    NULL);
}

dibs_err loss_renewed(struct loss_run *r)
{
    if (!ts_rule_wait(kit_px, r->rule, 1, TS_SOON) ||
        !ts_rule_wait(kit_px, r->later, 2, TS_SOON))
        fail_msg("%s: no renewal", r->where);
    if (dibs_lock_state(r->l, 0) == DIBS_LOST || atomic_load(&r->lost))
        return DIBS_ERR_LOST;
    return DIBS_OK;
}
