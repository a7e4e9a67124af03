/* SPDX-License-Identifier: MIT
 *
 * turn.h - whether a client is called when the turn of its line has come, and
 * to which channels the line listens for that.
 */
#ifndef DIBS_LOCK_WAIT_TURN_H
#define DIBS_LOCK_WAIT_TURN_H

#include <stdbool.h>
#include <stdint.h>

/* turn.c has the table of states. */
enum dibs__turn_state { TURN_NONE, TURN_ALL, TURN_CALLED };

/* What a question says about being called. */
enum dibs__registration {
    REG_NONE, /* nothing: it shall not be called */
    REG_NEW,
    REG_REFRESH,         /* it is registered */
    REG_WOKEN,           /* it was called */
    REG_EXTERNAL_RELEASE /* it heard of a release that called nobody */
};

/* What the answer says; the first four are the server's numbers. */
enum dibs__reg_reply {
    REG_REJECTED,      /* not registered: listen to all releases */
    REG_QUEUED,        /* it will be called */
    REG_QUEUED_LISTEN, /* and listens to the lock's channel while it waits */
    REG_DESIGNATED_LISTENER, /* and listens for all, for some seconds */
    REG_ACQUIRED,            /* it got in */
    REG_NO_REPLY
};

/* Channels, as bits. */
enum dibs__wait_channel {
    WAIT_LOCK_CHANNEL = 1,  /* the line's */
    WAIT_CLIENT_CHANNEL = 2 /* the one on which this client is called */
};

/* What a message means for the line. */
enum dibs__wake_reason {
    WAKE_NONE,
    WAKE_DEFERRED, /* look when all is read */
    WAKE_RELEASE,
    WAKE_DIRECT /* ask at once, even if others were first */
};

/* What is said on the channel of a lock, or of slots, behind a release that
 * called somebody. */
#define DIBS__MSG_QUEUED_LOCK  '2'
#define DIBS__MSG_QUEUED_SLOTS '0'

/* Of one line. All of it under the mutex of the line, but for the first two,
 * which are const after init. */
struct dibs__turn {
    bool registers; /* the server can call it; false: all below is unused */
    char told;      /* a message on its channel that begins so is no release;
                       NUL = there is none */
    unsigned char state;
    unsigned char listens; /* to which channels, as bits */
    bool hears;            /* its own channel is ready, says io */
    bool in_queue;         /* the server may have it in the queue */
    bool called;           /* it was, and has not asked since */
    bool foreign;          /* a release called nobody */
    bool told_listen;      /* to the line's channel while it waits */
    unsigned leaving;      /* so often the server is being told that it left */
    int64_t duty_until;    /* it listens to that for all */
    int64_t ear_until;     /* it listens to that without a need */
    int64_t alone_until;   /* ALL at least until then */
    int64_t linger_until;  /* it is looked after without waiters; 0 = not */
};

/* What the next question has to say; for that question only. */
enum dibs__registration dibs__turn_how(struct dibs__turn *t);
/* The answer to such a question. */
void dibs__turn_answered(struct dibs__turn *t, enum dibs__registration how,
                         enum dibs__reg_reply told, int64_t now);

/* Has a call left that the server must hear of? */
bool dibs__turn_quiet(const struct dibs__turn *t);
/* Nobody waits here. True: the server must be told so. Once told, it is not
 * told again. (leaving is the caller's.) */
bool dibs__turn_over(struct dibs__turn *t);
/* Until when it is looked after without waiters; 0 = it is not. room: for one
 * more of these. */
int64_t dibs__turn_linger(struct dibs__turn *t, int64_t now, bool room);
/* When to look again, of a line that lingers. */
int64_t dibs__turn_next(const struct dibs__turn *t, int64_t now);
/* It has waiters again. True: it had none. */
bool dibs__turn_unlinger(struct dibs__turn *t);
/* It is not looked after any more. True: it listened for all, and the server
 * must be told that it does so no more. */
bool dibs__turn_end(struct dibs__turn *t, int64_t now);
/* It is not looked after: is nothing to be remembered for the next time? */
bool dibs__turn_forgets(const struct dibs__turn *t);
/* Which channels the line needs, as bits. waits: it has waiters. */
unsigned dibs__turn_needs(struct dibs__turn *t, int64_t now, bool waits);

/* What was said on the line's channel; NUL: it is ready. own: the other one is
 * asked for. */
enum dibs__wake_reason dibs__turn_line_said(struct dibs__turn *t, char said,
                                            bool own);
/* What was said on its own channel; NUL: it is ready, or refused. */
enum dibs__wake_reason dibs__turn_own_said(struct dibs__turn *t, char said,
                                           bool hears, int64_t now);

#endif
