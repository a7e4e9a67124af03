/* SPDX-License-Identifier: MIT
 *
 * turn.c - whether a client is called when the turn of its line has come, and
 * to which channels the line listens for that.
 *
 * Thread  any, with the mutex of the line. It sends nothing; wait_queue.c does.
 *
 * How     A release that woke every client would have all of them ask, and all
 *         but one in vain. So the clients that wait for a plain, fenced or
 *         write lock, or for slots, are in a queue on the server, and a release
 *         calls the first of them, each on a channel of its own. The head of
 *         the line asks for all calls that wait here, so a client is in the
 *         queue once.
 *
 *         Clients that do not know the queue release without a call. So one of
 *         the queue listens to the lock's channel for all; the server's answer
 *         says who. A release says '0' there, or how many slots are free. One
 *         that called somebody, or found that nobody waits, says '2' behind it,
 *         of slots '0'. A release without that is foreign: then the listener
 *         asks. Both come from one script, so they mostly arrive together; io
 *         looks when it has read all there is.
 *
 *         1 The lock's hash alone decides who has it. The queue, the listener
 *           and the messages are hints. If one is lost, that costs time: every
 *           head asks again after two seconds or so, and when its channels had
 *           to be subscribed anew.
 *         2 A client registers only when its own channel is ready. So one that
 *           does not hear is gone, and the script that calls drops it.
 *         3 Who is called is out of the queue. It asks and says "called", which
 *           takes it back to the front if another one was faster. If no call
 *           waits here any more, it tells the server, which calls the next.
 *         4 While the queue has clients, one listens to the lock's channel. It
 *           does so for longer than the server counts on it, so that the next
 *           one has asked by then, and also when it does not wait any more. If
 *           it cannot, it tells the server, which has another one ask. A
 *           release calls the first in the queue also if nobody heard of it on
 *           the lock's channel: the listener may have closed just now, or not
 *           have subscribed yet.
 *         5 A client that released, and was told that somebody heard of it,
 *           does not ask for a moment. A call ends that moment.
 *         6 Several slots may be free at once, but a release calls one client.
 *           So one that was called, or looked by itself, and got in has the
 *           server call the next if more are free. That also heals a call that
 *           nobody followed, and a foreign release right before one of ours.
 *         7 All of it may come twice, or late. A late copy of a question may
 *           register a client that waits no more; it is called in vain once,
 *           and says so. As long as a client may be called, its line is there
 *           to hear it; after that its channel is not, and rule 2 holds.
 *         8 While the server is being told that nobody waits here, a question
 *           does not register: that could arrive first, and be undone. When
 *           the server has answered, the head asks once more.
 *
 *         After the last call has left, the line lingers: it goes on listening
 *         to its own channel for some seconds, so that a lock that is often
 *         wanted costs no SUBSCRIBE each time. To the lock's channel it listens
 *         on for a moment only, unless that is its duty: a listener there
 *         makes others stand back.
 *
 * States of a line, as the server last answered
 *
 *   state   what can happen                                   next state
 *   NONE    own channel ready: the head registers; answer 0   ALL
 *           answer 1, 2 or 3                                  CALLED
 *           own channel refused                               ALL
 *   ALL     it listens to the lock's channel, and asks at
 *           each release. The last call has left, and some
 *           seconds have passed                               NONE
 *   CALLED  message on its own channel: it asks               CALLED
 *           answer 2 or 3: it listens to the lock's channel,
 *           too                                               CALLED
 *           answer 0                                          ALL
 *           the last call has left, some seconds ago          NONE
 *
 * Trouble A full server, missing rights or a key of another type: answer 0. A
 *         client that is stopped or killed when it was just called: the next
 *         release calls the next one, or a head that asks by itself finds the
 *         lock or a slot free. A connection that is lost: its channels are made
 *         anew, and then the head asks. The listener is killed: the first head
 *         that finds the lock free by itself has the next one listen.
 */
#include "lock/wait/turn.h"

#include "base/platform.h"

#define DUTY_MS   7500 /* the server counts on it for 5000 */
#define EAR_MS    100
#define ALONE_MS  10000
#define LINGER_MS 5000

/* ---- questions and answers --------------------------------------------- */

enum dibs__registration dibs__turn_how(struct dibs__turn *t)
{
    enum dibs__registration how = t->in_queue ? REG_REFRESH : REG_NEW;

    if (!t->registers || !t->hears || t->state == TURN_ALL || t->leaving)
        return REG_NONE;
    if (t->called)
        how = REG_WOKEN;
    else if (t->foreign)
        how = REG_EXTERNAL_RELEASE;
    t->called = t->foreign = false;
    return how;
}

static void turn_alone(struct dibs__turn *t, int64_t now)
{
    t->state = TURN_ALL;
    t->alone_until = now + ALONE_MS;
    t->in_queue = t->called = t->foreign = false;
}

void dibs__turn_answered(struct dibs__turn *t, enum dibs__registration how,
                         enum dibs__reg_reply told, int64_t now)
{
    if (how == REG_NONE)
        return;
    switch (told) {
    case REG_ACQUIRED:
        t->in_queue = false;
        break;
    case REG_NO_REPLY: /* so it asks the same again */
        t->in_queue = true;
        t->called |= how == REG_WOKEN;
        t->foreign |= how == REG_EXTERNAL_RELEASE;
        break;
    case REG_REJECTED:
        turn_alone(t, now);
        break;
    case REG_QUEUED:
    case REG_QUEUED_LISTEN:
    case REG_DESIGNATED_LISTENER:
        t->state = TURN_CALLED;
        t->in_queue = true;
        t->told_listen = told != REG_QUEUED;
        if (told == REG_DESIGNATED_LISTENER)
            t->duty_until = now + DUTY_MS;
    }
}

/* ---- without waiters --------------------------------------------------- */

bool dibs__turn_quiet(const struct dibs__turn *t)
{
    return t->linger_until && !t->called && !t->in_queue && !t->foreign;
}

bool dibs__turn_over(struct dibs__turn *t)
{
    bool tell = t->called || t->in_queue || t->foreign;

    t->called = t->in_queue = t->foreign = false;
    return tell;
}

int64_t dibs__turn_linger(struct dibs__turn *t, int64_t now, bool room)
{
    if (!t->linger_until && t->state == TURN_CALLED && room)
        t->linger_until = dibs__max(now + LINGER_MS, t->duty_until);
    return t->linger_until;
}

int64_t dibs__turn_next(const struct dibs__turn *t, int64_t now)
{
    int64_t at = t->linger_until;

    if (now < t->ear_until)
        at = dibs__min(at, t->ear_until);
    if (now < t->duty_until)
        at = dibs__min(at, t->duty_until);
    return at;
}

bool dibs__turn_unlinger(struct dibs__turn *t)
{
    bool lingered = t->linger_until != 0;

    t->linger_until = 0;
    return lingered;
}

bool dibs__turn_end(struct dibs__turn *t, int64_t now)
{
    bool duty = now < t->duty_until;

    if (t->state == TURN_CALLED || now >= t->alone_until)
        t->state = TURN_NONE;
    t->hears = t->told_listen = false;
    t->duty_until = t->ear_until = 0;
    return duty;
}

bool dibs__turn_forgets(const struct dibs__turn *t)
{
    return t->state != TURN_ALL && !t->leaving;
}

/* ---- channels ---------------------------------------------------------- */

unsigned dibs__turn_needs(struct dibs__turn *t, int64_t now, bool waits)
{
    if (!t->registers || t->state == TURN_ALL)
        return waits ? WAIT_LOCK_CHANNEL : 0;
    if (t->state == TURN_NONE)
        return WAIT_LOCK_CHANNEL | WAIT_CLIENT_CHANNEL;
    bool needed = (waits && t->told_listen) || now < t->duty_until;
    if (needed)
        t->ear_until = now + EAR_MS;
    return now < t->ear_until ? WAIT_LOCK_CHANNEL | WAIT_CLIENT_CHANNEL
                              : WAIT_CLIENT_CHANNEL;
}

enum dibs__wake_reason dibs__turn_line_said(struct dibs__turn *t, char said,
                                            bool own)
{
    bool told = said && said == t->told;

    if (t->state == TURN_CALLED && said) {
        t->foreign = !told;
        return told ? WAKE_NONE : WAKE_DEFERRED;
    }
    /* If its own channel is to come, it is asked for behind this one. */
    if (told || (!said && own && t->state == TURN_NONE))
        return WAKE_NONE;
    return WAKE_RELEASE;
}

enum dibs__wake_reason dibs__turn_own_said(struct dibs__turn *t, char said,
                                           bool hears, int64_t now)
{
    t->hears = hears;
    if (!hears)
        turn_alone(t, now);
    if (!said || !hears)
        return WAKE_RELEASE;
    t->called = true;
    t->in_queue = false;
    return WAKE_DIRECT;
}
