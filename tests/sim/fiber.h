/* SPDX-License-Identifier: MIT
 *
 * fiber.h - processes, their threads, and time, in the simulation.
 *
 * A thread of the library or of a simulated program is a fiber: a stack of its
 * own inside the one real thread. It runs until it waits, or until it is
 * preempted at random (sim_preempt), which can happen at every mutex,
 * semaphore and system call. So every order of threads that such calls allow
 * can be met, and the seed says which one it is.
 *
 * A process is some fibers, a clock and a way of being stopped or killed.
 * Time is microseconds since the simulation began. It moves when no fiber can
 * run, to the next event; and a little with every turn of a fiber.
 */
#ifndef DIBS_SIM_FIBER_H
#define DIBS_SIM_FIBER_H

#include "sim/prng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NEVER INT64_MAX

struct sim_fiber;

struct sim_proc {
    struct sim_proc *next;
    int id;
    char name[16];
    bool stopped;
    bool dead;
    int64_t clock_offset; /* us; its clock is that plus simulated time, */
    int64_t ppm;          /* faster by so many millionths */
    struct sim_chance chance;
    int fibers;         /* that live */
    int sockets;        /* that are open */
    int64_t stopped_at; /* while it is */
    int64_t
        late_copy_at; /* a server read what it sent, and had given up, then */
    int64_t
        very_late_copy_at; /* the same, more than a lease after that server */
                           /* had answered it again */
    struct sim_delayed *late; /* what was read so, the latest first */
    int unheard;              /* closed connections, no answer since then */
    int64_t lease_us;         /* which it has */
    int64_t idle_us;          /* how long its threads could not run, in all, */
    int64_t longest_us;       /* and how long at once, at most */
    int64_t stalled_since;    /* less those that cannot now: the sum of their */
    int stalls;               /* beginnings, and how many they are */
    struct sim_fiber **parked; /* could run, but it is stopped */
    size_t nparked, cap_parked;
};

/* ---- scheduler and time ------------------------------------------------- */

void sim_begin(uint64_t seed);
int64_t sim_now(void); /* us */
/* Calls fn at that time, between the turns of fibers; it must not wait. */
typedef void sim_event_fn(void *arg, int64_t number);
void sim_at(int64_t when, sim_event_fn *fn, void *arg, int64_t number);
/* Runs until done returns true. False: no event is left. */
bool sim_run(bool (*done)(void));
/* How often a fiber is preempted, and for how long: one in N times; 0 = never.
 */
void sim_disturb(int64_t yield_one_in, int64_t stall_one_in,
                 int64_t stall_most_us);
extern uint64_t sim_turns; /* of fibers */
/* For random choices of no client or server. */
extern struct sim_chance sim_luck;

/* ---- processes --------------------------------------------------------- */

struct sim_proc *sim_proc_new(const char *name, uint64_t seed);
void sim_proc_stop(struct sim_proc *p);
void sim_proc_continue(struct sim_proc *p);
/* Its fibers are gone, with all that they were about to do. What its sockets
 * do then is net.c's. Not from inside. */
void sim_proc_kill(struct sim_proc *p);
/* One of its fibers, by chance, has no processor for so long. */
void sim_proc_stall(struct sim_proc *p, int64_t us);
/* Its clock, and simulated time at which that shows local. */
int64_t sim_clock_us(const struct sim_proc *p);
int64_t sim_clock_when(const struct sim_proc *p, int64_t local);
/* How long its threads could not run so far. */
int64_t sim_idle_us(const struct sim_proc *p);

/* ---- fibers ------------------------------------------------------------ */

struct sim_fiber *sim_spawn(struct sim_proc *p, const char *name,
                            void *(*run)(void *), void *arg);
struct sim_fiber *sim_self(void);
struct sim_proc *sim_proc_self(void); /* NULL between the turns */
const char *sim_self_name(void);
bool sim_ended(const struct sim_fiber *f);
void sim_forget(struct sim_fiber *f); /* no join will follow */
/* Waits to be woken on that address, or until it is time: false. */
bool sim_block(const void *on, int64_t until);
void sim_wake(const void *on, int most);
void sim_sleep(int64_t us);
void sim_yield(void);
/* A preemption point. */
void sim_preempt(void);
/* A mutex that this fiber has, so that a kill can let go of it. */
void sim_took(void **owner);
void sim_gave(void **owner);

/* ---- looking at a process from outside --------------------------------- */

/* Until sim_peek_end, calls into the library are made with the clock of p, and
 * take no mutex. sim_peek_end returns whether no mutex that was needed was
 * locked, so that the results are valid. */
void sim_peek_begin(struct sim_proc *p);
bool sim_peek_end(void);
bool sim_peeking(void);
void sim_peek_spoiled(void);

_Noreturn void sim_die(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

#endif
