/* SPDX-License-Identifier: MIT
 *
 * loss.h - what the tests that lose requests and replies share: the ways in
 * which one is lost, and a run, which is one step of a lock with one of them.
 *
 * Use     loss_begin opens a client; the test makes its lock, loss_hold takes
 *         it as often as the step wants, loss_trap lays the trap. Then comes
 *         the step, and loss_verdict looks at its answer. loss_give_back and
 *         loss_end clear up; what is left then is for the test to say.
 * Time    Nothing sits out more than LOSS_HASTY_MS for a reply that does not
 *         come; where none is lost, a command's time does not pass.
 */
#ifndef DIBS_TESTS_LOSS_H
#define DIBS_TESTS_LOSS_H

#include "fault/kit.h"

/* ---- ways to lose one -------------------------------------------------- */

struct loss {
    char name[32];       /* for people */
    struct ts_rule rule; /* but for what it is to fit */
    bool silent;         /* nothing comes, nothing ends */
    bool tcp;            /* works by TCP only */
};

extern const struct loss loss_not_passed_on;
extern const struct loss loss_not_passed_on_reset;
extern const struct loss loss_request_cut; /* before the script's name */
extern const struct loss loss_request_held;
extern const struct loss loss_reply_dropped; /* these were all executed */
extern const struct loss loss_reply_dropped_reset;
extern const struct loss loss_reply_swallowed;
extern const struct loss loss_reply_held;
/* The connection ends at this byte of the reply. */
struct loss loss_reply_cut_at(size_t at);

/* ---- a run ------------------------------------------------------------- */

/* A command's time where a reply never comes. */
#define LOSS_HASTY_MS kit_ms(100)

struct loss_run {
    /* The test says these. */
    enum kit_user user;
    bool async;    /* the step is an async call */
    bool for_ever; /* every reply is lost, not one */
    dibs_lock *l;
    /* loss_begin and loss_trap do. */
    const struct loss *loss;
    char where[128]; /* for people */
    char *name;      /* nobody had it before */
    struct kit_client *k;
    int rule, later; /* the trap, and requests that it lets pass */
    atomic_int lost; /* times on_lost was called */
};

/* stem: of the name. watched: the step is the watchdog's, and the lease so
 * short that it does it soon. */
void loss_begin(struct loss_run *r, const char *stem, const char *step,
                const struct loss *loss, bool watched);
/* The lock, so often. */
void loss_hold(struct loss_run *r, int times);
/* The next request with this in it is lost, or all of them are. */
void loss_trap(struct loss_run *r, const char *needle);
/* The client does not wait long, and its time passed before anything was sent:
 * the run says nothing. */
bool loss_unsent(struct loss_run *r, dibs_err err);
/* One was lost, and the step's answer is right: OK, or timed_out where nothing
 * came. False: a reply did not come in time although nobody lost it, so this
 * says nothing; all is well anyway. */
bool loss_verdict(struct loss_run *r, dibs_err err, dibs_err timed_out);
/* The verdict said nothing for the so-manieth time: fails the test when that
 * is too often. */
void loss_unsure(const char *step, const struct loss *loss, int times);
/* Gives back what is held, whatever that is by now. */
void loss_give_back(struct loss_run *r);
/* Takes the lock again, which must be granted. */
void loss_take_again(struct loss_run *r);
/* Closes, which must release everything. where stays. */
void loss_end(struct loss_run *r);

/* ---- steps ------------------------------------------------------------- */

dibs_err loss_acquire(struct loss_run *r);
dibs_err loss_try(struct loss_run *r);
dibs_err loss_release(struct loss_run *r);
/* Renewal comes by itself: one that fails, and one that does not. */
dibs_err loss_renewed(struct loss_run *r);

#endif
