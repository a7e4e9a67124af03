/* SPDX-License-Identifier: MIT
 *
 * test_hold_states.c - one owner's hold as a table: from a state, what a grant,
 * a renewal, a release or a loss does; until when it is valid, when the
 * watchdog looks at it, and what is reported.
 *
 * Clock, client, watchdog and what hears of a loss are faked (linked with
 * --wrap).
 */
#include "base/mem.h"
#include "lock/core/hold.h"
#include "lock/core/lock_manager.h"
#include "lock/core/operation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define NOW   100000
#define LEASE 30000
#define VALID (LEASE - 302) /* less 1 % and 2 ms for clocks that differ */

enum event { GRANT, RENEW, RENEW_EARLIER, RELEASE, RELEASE_ONE, LOSE, WATCH };
enum { NONE = 0, TOLD = 1, WAKES = 2, COUNTED = 4 };
#define LOST_ALL (TOLD | WAKES | COUNTED)
#define NO_LOOK  0

static const struct row {
    const char *name;
    unsigned char from;
    enum event event;
    unsigned char to;
    int levels;
    int64_t valid; /* from NOW on */
    bool looks;    /* the watchdog will look at it */
    int done;
} rows[] = {
    {"granted", HOLD_PREPARED, GRANT, HOLD_HELD, 1, VALID, true, NONE},
    {"re-entry", HOLD_HELD, GRANT, HOLD_HELD, 2, VALID, true, NONE},
    {"renewed", HOLD_HELD, RENEW, HOLD_HELD, 1, VALID + 1000, true, NONE},
    {"an earlier renewal does not shorten", HOLD_HELD, RENEW_EARLIER, HOLD_HELD,
     1, VALID, true, NONE},
    {"suspect: renewed", HOLD_SUSPECT, RENEW, HOLD_HELD, 1, VALID + 1000, true,
     NONE},
    {"suspect: re-entry", HOLD_SUSPECT, GRANT, HOLD_HELD, 2, VALID, true, NONE},
    {"suspect: lost", HOLD_SUSPECT, LOSE, HOLD_LOST, 1, VALID, false, LOST_ALL},
    {"one level released", HOLD_HELD, RELEASE_ONE, HOLD_HELD, 0, VALID, true,
     NONE},
    {"releasing: no renewal", HOLD_HELD, RELEASE, HOLD_ENDING, 1, VALID, false,
     NONE},
    {"releasing: the watchdog looks at its end", HOLD_ENDING, WATCH,
     HOLD_ENDING, 1, VALID, true, NONE},
    {"lost", HOLD_HELD, LOSE, HOLD_LOST, 1, VALID, false, LOST_ALL},
    {"releasing: lost", HOLD_ENDING, LOSE, HOLD_LOST, 1, VALID, false,
     LOST_ALL},
    {"lost once only", HOLD_LOST, LOSE, HOLD_LOST, 1, VALID, true, NONE},
    {"lost: its owner gives it back", HOLD_LOST, RELEASE_ONE, HOLD_LOST, 0,
     VALID, true, NONE},
};

static struct {
    dibs_client *c;
    struct dibs__lock_manager *locks;
    struct dibs__lock_entry *line;
    int64_t look;
    int done;
} f;

/* clang-format off */
int64_t __wrap_dibs__now_ms(void);
void __wrap_dibs__lease_timer_set(void *wd, void *le, int64_t at);
void __wrap_dibs__lease_timer_cancel(void *wd, void *le);
struct dibs__server *__wrap_dibs__entry_server(const struct dibs__lock_entry *entry);
void __wrap_dibs__entry_log_event(const struct dibs__lock_entry *entry, int kind, int err,
                            const char *fmt, ...);
void __wrap_dibs__wait_queue_wake_head(struct dibs__wait_queue *queue);
void __wrap_dibs__adopted_held(void *t, uint64_t wire, bool held);
int64_t __wrap_dibs__now_ms(void) { return NOW; }
void __wrap_dibs__lease_timer_set(void *wd, void *le, int64_t at)
{ (void)wd, (void)le; f.look = at; }
void __wrap_dibs__lease_timer_cancel(void *wd, void *le)
{ (void)wd, (void)le; f.look = NO_LOOK; }
struct dibs__server *__wrap_dibs__entry_server(const struct dibs__lock_entry *entry)
{ (void)entry; return NULL; }
void __wrap_dibs__entry_log_event(const struct dibs__lock_entry *entry, int kind, int err,
                            const char *fmt, ...)
{ (void)entry, (void)fmt; if (kind == DIBS_EVENT_LOST && err == DIBS_ERR_LOST) f.done |= TOLD; }
void __wrap_dibs__wait_queue_wake_head(struct dibs__wait_queue *queue) { (void)queue; f.done |= WAKES; }
void __wrap_dibs__adopted_held(void *t, uint64_t wire, bool held)
{ (void)t, (void)wire, (void)held; }
/* clang-format on */

/* One thread, so no mutex is needed. */
UNCHECKED static void grant(struct dibs__hold *h)
{
    struct dibs__operation op = {.owner = 7, .owner_id = 7};

    op.args.lease_ms = LEASE;
    assert_true(dibs__hold_reserve_level(h));
    dibs__hold_add_level(f.line, h, &op, NOW, 0);
}

UNCHECKED static void apply(struct dibs__hold *h, enum event e)
{
    switch (e) {
    case GRANT:
        grant(h);
        break;
    case RENEW:
        dibs__hold_set_lease(f.line, h, NOW + 1000, LEASE);
        break;
    case RENEW_EARLIER:
        dibs__hold_set_lease(f.line, h, NOW - 1000, LEASE);
        break;
    case RELEASE:
        dibs__hold_begin_release(f.line, h);
        break;
    case RELEASE_ONE:
        assert_null(dibs__hold_pop_level(h, NULL));
        break;
    case LOSE:
        dibs__hold_lose(f.line, h);
        break;
    case WATCH:
        dibs__hold_schedule(f.line, h, NOW + 1);
        break;
    }
}

UNCHECKED static void check(const struct row *r)
{
    struct dibs__hold *h = dibs__hold_new(f.line);
    dibs_stats before = {.size = sizeof before}, after = before;

    assert_non_null(h);
    assert_int_equal(h->state, HOLD_PREPARED);
    if (r->from != HOLD_PREPARED)
        grant(h);
    h->state = r->from;
    f.done = NONE;
    dibs__stats_sum(f.c->stats, &before);
    apply(h, r->event);
    dibs__stats_sum(f.c->stats, &after);
    if (after.losses > before.losses)
        f.done |= COUNTED;
    if (h->state != r->to || h->count != r->levels ||
        h->valid_until != NOW + r->valid || f.done != r->done ||
        (f.look != NO_LOOK) != r->looks || f.look > h->valid_until)
        fail_msg("%s: state %d, levels %d, valid %lld, look %lld, done %d",
                 r->name, h->state, h->count, (long long)h->valid_until - NOW,
                 (long long)f.look - NOW, f.done);
    if (r->to == HOLD_ENDING && r->event == WATCH)
        assert_int_equal(f.look, h->valid_until);
    assert_ptr_equal(dibs__hold_of(f.line, 7), h);
    dibs__hold_free(f.line, h);
    assert_null(dibs__hold_next(f.line, NULL));
    assert_int_equal(f.look, NO_LOOK);
    assert_int_equal(f.line->refs, 1);
}

static void test_hold_transitions(void **state)
{
    (void)state;
    f.c = calloc(1, sizeof *f.c);
    f.locks = calloc(1, sizeof *f.locks);
    f.line = calloc(1, sizeof *f.line + 2);
    assert_true(f.c && f.locks && f.line);
    f.c->stats = dibs__stats_new();
    f.c->lease_ms = LEASE;
    f.locks->c = f.c;
    f.line->manager = f.locks;
    f.line->refs = 1;
    dibs__mutex_init(&f.line->mu, RANK_ENTRY);
    dibs__list_init(&f.line->holds);
    dibs__list_init(&f.line->in_flight);
    dibs__lock(&f.line->mu);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check(&rows[i]);
    dibs__unlock(&f.line->mu);
    dibs__free(f.line->spare_hold);
    dibs__stats_free(f.c->stats);
    free(f.line);
    free(f.locks);
    free(f.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hold_transitions),
    };

    return cmocka_run_group_tests_name("unit.hold_states", tests, NULL, NULL);
}
