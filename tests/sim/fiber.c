/* SPDX-License-Identifier: MIT
 *
 * fiber.c - processes, threads and time in the simulation.
 *
 * How     One queue of events by time, one bag of fibers that can run. As long
 *         as a fiber can run, one is picked at random; time nearly stands still
 *         then. When none can, time jumps to the next event.
 *
 *         The first switch to a fiber is makecontext's, all others are _setjmp
 *         and _longjmp, which make no system call. What is _Thread_local goes
 *         along (fiber_local.h).
 *
 * States  of a fiber:
 *
 *         state    what can happen                              next
 *         READY    it is picked                                 RUNNING
 *                  its process is stopped when it is picked     PARKED
 *         RUNNING  it waits / loses the processor / returns     WAITING,
 *                                                               READY, ENDED
 *         WAITING  it is woken, or its time has come            READY
 *         PARKED   its process goes on                          READY
 *         any      its process is killed                        ENDED
 */
#include "sim/fiber.h"

#include "sim/fiber_local.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK_BYTES (128 * 1024)
#define STACKS_AT   ((char *)0x110000000000)
#define STACKS_MAX  40000
#define BUCKETS     16384
#define HELD_MAX    8
#define TURN_US     1 /* what a turn of a fiber takes */

enum fiber_state { READY, RUNNING, WAITING, PARKED, ENDED };

struct sim_fiber {
    enum fiber_state state;
    struct sim_proc *proc;
    char name[16];
    void *(*run)(void *);
    void *arg;
    bool begun, forgotten, timed_out;
    int slot; /* of its stack */
    jmp_buf where;
    const void *on;                 /* what it waits for */
    struct sim_fiber *next, **back; /* in the bucket of that */
    uint64_t nap; /* number of its wait, so that an old alarm is known */
    void **held[HELD_MAX];
    int nheld;
    int64_t stalled_at;
    unsigned long own;
    struct sim_fiber *all_next;
};

struct event {
    int64_t when;
    uint64_t number;
    sim_event_fn *fn;
    void *arg;
    int64_t n;
};

uint64_t sim_turns;
struct sim_chance sim_luck;

static int64_t now;
static struct event *events;
static size_t nevents, cap_events;
static uint64_t event_number, nap_number;
static struct sim_fiber **ready;
static size_t nready, cap_ready;
static struct sim_fiber *buckets[BUCKETS], *all_fibers;
static struct sim_fiber *current;
static struct sim_proc *as_proc;
static bool peeking, spoiled;
static jmp_buf scheduler;
static int free_slots[STACKS_MAX], nfree_slots, slots;
static int64_t yield_one_in, stall_one_in, stall_most;
static int procs;

_Noreturn void sim_die(const char *fmt, ...)
{
    va_list list;

    va_start(list, fmt);
    fprintf(stderr, "sim: at %.6f s: ", (double)now / 1e6);
    vfprintf(stderr, fmt, list);
    fprintf(stderr, "\n");
    va_end(list);
    abort();
}

/* ---- events ------------------------------------------------------------ */

static bool earlier(const struct event *a, const struct event *b)
{
    return a->when != b->when ? a->when < b->when : a->number < b->number;
}

void sim_at(int64_t when, sim_event_fn *fn, void *arg, int64_t number)
{
    struct event e = {when > now ? when : now, ++event_number, fn, arg, number};

    if (nevents == cap_events) {
        cap_events = cap_events ? cap_events * 2 : 256;
        events = realloc(events, cap_events * sizeof *events);
    }
    size_t i = nevents++;
    while (i > 0 && earlier(&e, &events[(i - 1) / 2])) {
        events[i] = events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    events[i] = e;
}

static struct event pop_event(void)
{
    struct event first = events[0], last = events[--nevents];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= nevents)
            break;
        if (child + 1 < nevents && earlier(&events[child + 1], &events[child]))
            child++;
        if (!earlier(&events[child], &last))
            break;
        events[i] = events[child];
        i = child;
    }
    events[i] = last;
    return first;
}

int64_t sim_now(void)
{
    return now;
}

/* ---- running ----------------------------------------------------------- */

static void make_ready(struct sim_fiber *f)
{
    f->state = READY;
    if (nready == cap_ready) {
        cap_ready = cap_ready ? cap_ready * 2 : 256;
        ready = realloc(ready, cap_ready * sizeof *ready);
    }
    ready[nready++] = f;
}

static void end_fiber(struct sim_fiber *f)
{
    if (f->state == WAITING && f->back) {
        *f->back = f->next;
        if (f->next)
            f->next->back = f->back;
        f->back = NULL;
    }
    f->state = ENDED;
    f->nap = 0;
    f->proc->fibers--;
    free_slots[nfree_slots++] = f->slot;
    sim_own_free(f->own);
    while (f->nheld > 0) {
        void **owner = f->held[--f->nheld];
        *owner = NULL;
        sim_wake(owner, 1);
    }
}

static void fiber_main(void)
{
    struct sim_fiber *f = current;

    f->run(f->arg);
    sim_wake(f, 1000000);
    end_fiber(f);
    _longjmp(scheduler, 1);
}

static void begin_fiber(struct sim_fiber *f)
{
    static ucontext_t context, unused;

    f->begun = true;
    getcontext(&context);
    context.uc_stack.ss_sp = STACKS_AT + (size_t)f->slot * STACK_BYTES;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, fiber_main, 0);
    swapcontext(&unused, &context);
}

/* One turn, on the stack of the scheduler. */
static void give_turn(struct sim_fiber *f)
{
    current = f;
    f->state = RUNNING;
    sim_turns++;
    now += TURN_US;
    sim_own_use(f->own);
    if (_setjmp(scheduler) == 0) {
        if (f->begun)
            _longjmp(f->where, 1);
        else
            begin_fiber(f);
    }
    sim_own_use(0);
    current = NULL;
}

/* Back to the scheduler. */
static void leave_turn(void)
{
    struct sim_fiber *f = current;

    if (_setjmp(f->where) == 0)
        _longjmp(scheduler, 1);
}

static void park_fiber(struct sim_fiber *f)
{
    struct sim_proc *p = f->proc;

    if (p->nparked == p->cap_parked) {
        p->cap_parked = p->cap_parked ? p->cap_parked * 2 : 8;
        p->parked = realloc(p->parked, p->cap_parked * sizeof(void *));
    }
    f->state = PARKED;
    p->parked[p->nparked++] = f;
}

static void pick_fiber(void)
{
    size_t i = (size_t)sim_between(&sim_luck, 0, (int64_t)nready - 1);
    struct sim_fiber *f = ready[i];

    ready[i] = ready[--nready];
    if (f->state == ENDED)
        return;
    if (f->proc->stopped)
        park_fiber(f);
    else
        give_turn(f);
}

bool sim_run(bool (*done)(void))
{
    while (!done()) {
        if (nevents > 0 && (events[0].when <= now || nready == 0)) {
            struct event e = pop_event();
            if (e.when > now)
                now = e.when;
            e.fn(e.arg, e.n);
        } else if (nready > 0) {
            pick_fiber();
        } else {
            return false;
        }
    }
    return true;
}

void sim_begin(uint64_t seed)
{
    if (mmap(STACKS_AT, (size_t)STACKS_MAX * STACK_BYTES,
             PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
             -1, 0) != STACKS_AT)
        sim_die("no place for stacks");
    sim_luck = sim_stream(seed, 1);
    now = 1000000;
}

void sim_disturb(int64_t yield_in, int64_t stall_in, int64_t most_us)
{
    yield_one_in = yield_in;
    stall_one_in = stall_in;
    stall_most = most_us;
}

/* ---- fibers ------------------------------------------------------------ */

struct sim_fiber *sim_spawn(struct sim_proc *p, const char *name,
                            void *(*run)(void *), void *arg)
{
    struct sim_fiber *f = calloc(1, sizeof *f);

    if (nfree_slots == 0 && slots == STACKS_MAX)
        sim_die("too many threads");
    f->slot = nfree_slots > 0 ? free_slots[--nfree_slots] : slots++;
    f->proc = p;
    f->run = run;
    f->arg = arg;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->own = sim_own_new();
    p->fibers++;
    f->all_next = all_fibers;
    all_fibers = f;
    make_ready(f);
    return f;
}

struct sim_fiber *sim_self(void)
{
    return current;
}

struct sim_proc *sim_proc_self(void)
{
    return as_proc ? as_proc : current ? current->proc : NULL;
}

const char *sim_self_name(void)
{
    return current ? current->name : "world";
}

bool sim_ended(const struct sim_fiber *f)
{
    return f->state == ENDED;
}

void sim_forget(struct sim_fiber *f)
{
    f->forgotten = true;
}

static struct sim_fiber **bucket_of(const void *on)
{
    return &buckets[((uintptr_t)on >> 3) * 2654435761u % BUCKETS];
}

static void wake_fiber(struct sim_fiber *f, bool timed_out)
{
    if (f->back) {
        *f->back = f->next;
        if (f->next)
            f->next->back = f->back;
    }
    f->back = NULL;
    f->on = NULL;
    f->nap = 0;
    f->timed_out = timed_out;
    make_ready(f);
}

static void alarm_rang(void *arg, int64_t nap)
{
    struct sim_fiber *f = arg;

    if (f->state == WAITING && f->nap == (uint64_t)nap)
        wake_fiber(f, true);
}

bool sim_block(const void *on, int64_t until)
{
    struct sim_fiber *f = current;

    if (!f || peeking)
        sim_die("a fiber waits that must not");
    if (until <= now)
        return false;
    struct sim_fiber **b = bucket_of(on);
    while (*b) /* first come, first woken */
        b = &(*b)->next;
    f->on = on;
    f->next = NULL;
    f->back = b;
    *b = f;
    f->state = WAITING;
    f->nap = ++nap_number;
    if (until != SIM_NEVER)
        sim_at(until, alarm_rang, f, (int64_t)f->nap);
    leave_turn();
    return !f->timed_out;
}

void sim_wake(const void *on, int most)
{
    struct sim_fiber *f = *bucket_of(on);

    while (f && most > 0) {
        struct sim_fiber *next = f->next;
        if (f->on == on) {
            wake_fiber(f, false);
            most--;
        }
        f = next;
    }
}

void sim_sleep(int64_t us)
{
    struct sim_fiber *f = current;

    sim_block(&f->where, now + us);
}

void sim_yield(void)
{
    make_ready(current);
    leave_turn();
}

/* One thread cannot run. What has passed of that counts, not what will. */
static int64_t stall_begins(struct sim_proc *p)
{
    p->stalls++;
    p->stalled_since += now;
    return now;
}

static void stall_ends(struct sim_proc *p, int64_t since)
{
    p->stalls--;
    p->stalled_since -= since;
    p->idle_us += now - since;
    if (now - since > p->longest_us)
        p->longest_us = now - since;
}

void sim_preempt(void)
{
    if (!current || peeking)
        return;
    if (sim_once_in(&sim_luck, stall_one_in)) {
        int64_t us = sim_skewed(&sim_luck, stall_most);
        int64_t since = stall_begins(current->proc);
        sim_sleep(us);
        stall_ends(current->proc, since);
    } else if (sim_once_in(&sim_luck, yield_one_in)) {
        sim_yield();
    }
}

void sim_took(void **owner)
{
    if (current->nheld == HELD_MAX)
        sim_die("a thread has too many mutexes");
    current->held[current->nheld++] = owner;
}

void sim_gave(void **owner)
{
    for (int i = current->nheld; i-- > 0;)
        if (current->held[i] == owner) {
            current->held[i] = current->held[--current->nheld];
            return;
        }
    sim_die("a mutex is given back by a thread that has it not");
}

/* ---- processes --------------------------------------------------------- */

struct sim_proc *sim_proc_new(const char *name, uint64_t seed)
{
    struct sim_proc *p = calloc(1, sizeof *p);

    p->id = procs++;
    snprintf(p->name, sizeof p->name, "%s", name);
    p->chance = sim_stream(seed, 1000 + (uint64_t)p->id);
    p->clock_offset = sim_between(&p->chance, 1000000, 1000000000000);
    return p;
}

void sim_proc_stop(struct sim_proc *p)
{
    if (p->stopped || p->dead)
        return;
    p->stopped = true;
    p->stopped_at = now;
}

void sim_proc_continue(struct sim_proc *p)
{
    if (!p->stopped)
        return;
    p->stopped = false;
    p->idle_us += now - p->stopped_at;
    while (p->nparked > 0)
        make_ready(p->parked[--p->nparked]);
}

int64_t sim_idle_us(const struct sim_proc *p)
{
    return p->idle_us + (p->stopped ? now - p->stopped_at : 0) +
           p->stalls * now - p->stalled_since;
}

void sim_proc_kill(struct sim_proc *p)
{
    p->dead = true;
    p->nparked = 0;
    for (struct sim_fiber *f = all_fibers; f; f = f->all_next)
        if (f->proc == p && f->state != ENDED)
            end_fiber(f);
}

static void stall_over(void *arg, int64_t number)
{
    struct sim_fiber *f = arg;

    (void)number;
    stall_ends(f->proc, f->stalled_at);
    if (f->state == PARKED)
        make_ready(f);
}

/* It is taken out of the bag for a while; if it waits, nothing happens, as
 * with a thread that has nothing to do. */
void sim_proc_stall(struct sim_proc *p, int64_t us)
{
    for (size_t i = 0; i < nready; i++)
        if (ready[i]->proc == p && ready[i]->state == READY && !p->stopped) {
            struct sim_fiber *f = ready[i];
            ready[i] = ready[--nready];
            f->state = PARKED;
            f->stalled_at = stall_begins(p);
            sim_at(now + us, stall_over, f, 0);
            return;
        }
}

int64_t sim_clock_us(const struct sim_proc *p)
{
    return p->clock_offset + now + now / 1000000 * p->ppm +
           now % 1000000 * p->ppm / 1000000;
}

int64_t sim_clock_when(const struct sim_proc *p, int64_t local)
{
    int64_t left = local - sim_clock_us(p);

    if (left <= 0)
        return now;
    if (left > INT64_C(1000000000000)) /* eleven days */
        return SIM_NEVER;
    return now + left - left / 1000000 * p->ppm -
           left % 1000000 * p->ppm / 1000000 + left / 1000000 + 1;
}

/* ---- looking from outside ---------------------------------------------- */

void sim_peek_begin(struct sim_proc *p)
{
    peeking = true;
    spoiled = false;
    as_proc = p;
}

bool sim_peek_end(void)
{
    peeking = false;
    as_proc = NULL;
    return !spoiled;
}

bool sim_peeking(void)
{
    return peeking;
}

void sim_peek_spoiled(void)
{
    spoiled = true;
}
