/* SPDX-License-Identifier: MIT
 *
 * test_wakeup.c - server-side wake-up as a table: from a state, what a reply, a
 * message or a leave does; what the next acquire requests, and which channels
 * are subscribed.
 *
 * The names are those of the protocol. apply(), request() and channels() alone
 * know how the library spells them.
 */
#include "lock/wait/turn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define NOW 100000

enum mode { UNKNOWN, BROADCAST, TARGETED }; /* how releases reach this client */
/* What the server may know, and what has been seen since the last acquire. */
enum { REGISTERED = 1, WOKEN = 2, FOREIGN = 4, READY = 8, LEAVING = 16 };

enum event {
    REPLY_BROADCAST, /* replies to an acquire that asks to be registered */
    REPLY_REGISTERED,
    REPLY_SUBSCRIBE,
    REPLY_LISTENER,
    REPLY_GRANTED,
    REPLY_LOST,
    REPLY_LOST_WOKEN,   /* the acquire said that it was woken */
    REPLY_UNREGISTERED, /* the acquire did not ask to be registered */
    OWN_READY,
    OWN_REFUSED,
    WAKE,
    RELEASE_WAKING, /* on the lock's channel: a release that woke a client */
    RELEASE_FOREIGN,
    DEREGISTER,
    LINGER_OVER
};

/* What an event makes the client do, besides the next state. */
enum action { NOTHING, LOOK_LATER, ASK, ASK_FIRST, TELL_SERVER };

enum request { PLAIN, REGISTER, AGAIN, AFTER_WAKE, AFTER_FOREIGN };
enum { NO_CHANNEL, LOCK_CHANNEL, OWN_CHANNEL, BOTH };

static const struct row {
    const char *name;
    enum mode from;
    unsigned facts;
    enum event event;
    enum action action;
    enum mode to;
    unsigned facts_after;
    enum request request; /* of the next acquire */
    unsigned channels;    /* with waiters */
} rows[] = {
    {"own channel ready: register", UNKNOWN, 0, OWN_READY, ASK, UNKNOWN, READY,
     REGISTER, BOTH},
    {"own channel refused: broadcast", UNKNOWN, 0, OWN_REFUSED, ASK, BROADCAST,
     0, PLAIN, LOCK_CHANNEL},
    {"registered", UNKNOWN, READY, REPLY_REGISTERED, NOTHING, TARGETED,
     READY | REGISTERED, AGAIN, OWN_CHANNEL},
    {"registered, and subscribes", UNKNOWN, READY, REPLY_SUBSCRIBE, NOTHING,
     TARGETED, READY | REGISTERED, AGAIN, BOTH},
    {"registered, and listens for all", UNKNOWN, READY, REPLY_LISTENER, NOTHING,
     TARGETED, READY | REGISTERED, AGAIN, BOTH},
    {"registration refused", UNKNOWN, READY, REPLY_BROADCAST, NOTHING,
     BROADCAST, READY, PLAIN, LOCK_CHANNEL},
    {"registration refused later", TARGETED, READY | REGISTERED | FOREIGN,
     REPLY_BROADCAST, NOTHING, BROADCAST, READY, PLAIN, LOCK_CHANNEL},
    {"no registration requested", UNKNOWN, READY, REPLY_UNREGISTERED, NOTHING,
     UNKNOWN, READY, REGISTER, BOTH},
    {"granted", TARGETED, READY | REGISTERED, REPLY_GRANTED, NOTHING, TARGETED,
     READY, REGISTER, OWN_CHANNEL},
    {"reply lost: it may be registered", UNKNOWN, READY, REPLY_LOST, NOTHING,
     UNKNOWN, READY | REGISTERED, AGAIN, BOTH},
    {"reply lost: it says again that it was woken", TARGETED, READY,
     REPLY_LOST_WOKEN, NOTHING, TARGETED, READY | REGISTERED | WOKEN,
     AFTER_WAKE, OWN_CHANNEL},
    {"wake", TARGETED, READY | REGISTERED, WAKE, ASK_FIRST, TARGETED,
     READY | WOKEN, AFTER_WAKE, OWN_CHANNEL},
    {"own channel made anew", TARGETED, REGISTERED, OWN_READY, ASK, TARGETED,
     READY | REGISTERED, AGAIN, OWN_CHANNEL},
    {"own channel lost for good", TARGETED, READY | REGISTERED | WOKEN,
     OWN_REFUSED, ASK, BROADCAST, 0, PLAIN, LOCK_CHANNEL},
    {"release that woke another", TARGETED, READY | REGISTERED, RELEASE_WAKING,
     NOTHING, TARGETED, READY | REGISTERED, AGAIN, OWN_CHANNEL},
    {"foreign release", TARGETED, READY | REGISTERED, RELEASE_FOREIGN,
     LOOK_LATER, TARGETED, READY | REGISTERED | FOREIGN, AFTER_FOREIGN,
     OWN_CHANNEL},
    {"foreign release, then one that woke", TARGETED,
     READY | REGISTERED | FOREIGN, RELEASE_WAKING, NOTHING, TARGETED,
     READY | REGISTERED, AGAIN, OWN_CHANNEL},
    {"broadcast: a release that woke another", BROADCAST, READY, RELEASE_WAKING,
     NOTHING, BROADCAST, READY, PLAIN, LOCK_CHANNEL},
    {"broadcast: foreign release", BROADCAST, READY, RELEASE_FOREIGN, ASK,
     BROADCAST, READY, PLAIN, LOCK_CHANNEL},
    {"deregister", TARGETED, READY | REGISTERED, DEREGISTER, TELL_SERVER,
     TARGETED, READY, REGISTER, OWN_CHANNEL},
    {"deregister: woken, must pass it on", TARGETED, READY | WOKEN, DEREGISTER,
     TELL_SERVER, TARGETED, READY, REGISTER, OWN_CHANNEL},
    {"deregister: foreign release seen", TARGETED, READY | FOREIGN, DEREGISTER,
     TELL_SERVER, TARGETED, READY, REGISTER, OWN_CHANNEL},
    {"deregister: nothing registered", TARGETED, READY, DEREGISTER, NOTHING,
     TARGETED, READY, REGISTER, OWN_CHANNEL},
    {"deregister in flight: do not register", TARGETED, READY | LEAVING, WAKE,
     ASK_FIRST, TARGETED, READY | WOKEN | LEAVING, PLAIN, OWN_CHANNEL},
    {"linger over", TARGETED, READY, LINGER_OVER, NOTHING, UNKNOWN, 0, PLAIN,
     BOTH},
    {"linger over: broadcast for a while", BROADCAST, READY, LINGER_OVER,
     NOTHING, BROADCAST, 0, PLAIN, LOCK_CHANNEL},
};

static const unsigned char modes[] = {TURN_NONE, TURN_ALL, TURN_CALLED};

static void start(struct dibs__turn *t, const struct row *r)
{
    *t = (struct dibs__turn){.registers = true,
                             .told = DIBS__MSG_QUEUED_LOCK,
                             .state = modes[r->from],
                             .hears = r->facts & READY,
                             .in_queue = r->facts & REGISTERED,
                             .called = r->facts & WOKEN,
                             .foreign = r->facts & FOREIGN,
                             .leaving = r->facts & LEAVING ? 1 : 0,
                             .alone_until = NOW + 1};
}

static enum action heard(enum dibs__wake_reason h)
{
    static const enum action actions[] = {NOTHING, LOOK_LATER, ASK, ASK_FIRST};

    return actions[h];
}

/* Of REPLY_BROADCAST and those behind it. */
static const struct {
    enum dibs__registration how;
    enum dibs__reg_reply told;
} replies[] = {{REG_NEW, REG_REJECTED},      {REG_NEW, REG_QUEUED},
               {REG_NEW, REG_QUEUED_LISTEN}, {REG_NEW, REG_DESIGNATED_LISTENER},
               {REG_REFRESH, REG_ACQUIRED},  {REG_NEW, REG_NO_REPLY},
               {REG_WOKEN, REG_NO_REPLY},    {REG_NONE, REG_QUEUED}};

/* clang-format off */
static enum action apply(struct dibs__turn *t, enum event e)
{
    switch (e) {
    case OWN_READY: return heard(dibs__turn_own_said(t, 0, true, NOW));
    case OWN_REFUSED: return heard(dibs__turn_own_said(t, 0, false, NOW));
    case WAKE: return heard(dibs__turn_own_said(t, '0', true, NOW));
    case RELEASE_WAKING:
        return heard(dibs__turn_line_said(t, DIBS__MSG_QUEUED_LOCK, true));
    case RELEASE_FOREIGN: return heard(dibs__turn_line_said(t, '0', true));
    case DEREGISTER: return dibs__turn_over(t) ? TELL_SERVER : NOTHING;
    case LINGER_OVER: return dibs__turn_end(t, NOW) ? TELL_SERVER : NOTHING;
    default: dibs__turn_answered(t, replies[e].how, replies[e].told, NOW);
    }
    return NOTHING;
}
/* clang-format on */

static unsigned facts(const struct dibs__turn *t)
{
    return (t->in_queue ? REGISTERED : 0) | (t->called ? WOKEN : 0) |
           (t->foreign ? FOREIGN : 0) | (t->hears ? READY : 0) |
           (t->leaving ? LEAVING : 0);
}

static void test_wakeup_transitions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        struct dibs__turn t;

        start(&t, r);
        enum action action = apply(&t, r->event);
        bool same = action == r->action && t.state == modes[r->to] &&
                    facts(&t) == r->facts_after &&
                    dibs__turn_needs(&t, NOW, true) == r->channels &&
                    (enum request)dibs__turn_how(&t) == r->request;
        if (!same)
            fail_msg("%s: action %d, mode %d, facts %u", r->name, action,
                     t.state, facts(&t));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wakeup_transitions),
    };

    return cmocka_run_group_tests_name("unit.wakeup", tests, NULL, NULL);
}
