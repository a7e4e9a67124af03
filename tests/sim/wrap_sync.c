/* SPDX-License-Identifier: MIT
 *
 * wrap_sync.c - threads, mutexes, semaphores, clocks and chance as the library
 * meets them in the simulation.
 *
 * The linker's --wrap leads each call that the library makes here (the list is
 * in CMakeLists.txt); the library is the one that is shipped, compiled as ever.
 * What the types of pthread.h and semaphore.h hold is ours: a mutex is zero
 * when it is free, as PTHREAD_MUTEX_INITIALIZER has it.
 *
 * Beyond the real ones: a wait for a condition may end without a reason, one
 * for a semaphore by a signal (EINTR); both are allowed, and seldom met.
 */
#include "sim/fiber.h"
#include "sim/wrap.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <uv.h>

#define SPURIOUS_ONE_IN 200

struct mutex {
    void *owner;
};

struct semaphore {
    unsigned value;
};

/* ---- mutexes ----------------------------------------------------------- */

int __wrap_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a)
{
    (void)a;
    memset(m, 0, sizeof *m);
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *m)
{
    if (((struct mutex *)(void *)m)->owner)
        sim_die("a mutex is destroyed while somebody has it");
    return 0;
}

/* Outside of all fibers there is nobody to wait for, and nobody waits. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *pm)
{
    struct mutex *m = (void *)pm;

    if (sim_peeking() || !sim_self()) {
        if (m->owner)
            sim_peek_spoiled();
        return 0;
    }
    sim_preempt();
    if (m->owner == sim_self())
        sim_die("a thread takes a mutex twice");
    while (m->owner)
        sim_block(m, SIM_NEVER);
    m->owner = sim_self();
    sim_took(&m->owner);
    return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *pm)
{
    struct mutex *m = (void *)pm;

    if (m->owner)
        return EBUSY;
    return __wrap_pthread_mutex_lock(pm);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *pm)
{
    struct mutex *m = (void *)pm;

    if (sim_peeking() || !sim_self())
        return 0;
    sim_gave(&m->owner);
    m->owner = NULL;
    sim_wake(m, 1);
    sim_preempt();
    return 0;
}

/* ---- conditions -------------------------------------------------------- */

int __wrap_pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a)
{
    (void)c;
    (void)a;
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *c)
{
    (void)c;
    return 0;
}

static int cond_wait_until(pthread_cond_t *c, pthread_mutex_t *pm, int64_t when)
{
    struct mutex *m = (void *)pm;
    bool woken = true;

    sim_gave(&m->owner);
    m->owner = NULL;
    sim_wake(m, 1);
    if (sim_once_in(&sim_luck, SPURIOUS_ONE_IN))
        sim_yield();
    else
        woken = sim_block(c, when);
    while (m->owner)
        sim_block(m, SIM_NEVER);
    m->owner = sim_self();
    sim_took(&m->owner);
    return woken ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    return cond_wait_until(c, m, SIM_NEVER);
}

static int64_t time_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000 + t->tv_nsec / 1000;
}

static int64_t when_of(const struct timespec *t)
{
    return sim_clock_when(sim_proc_self(), time_of(t));
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *t)
{
    return cond_wait_until(c, m, when_of(t));
}

int __wrap_pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  clockid_t clock, const struct timespec *t)
{
    (void)clock;
    return cond_wait_until(c, m, when_of(t));
}

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    sim_wake(c, 1);
    sim_preempt();
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    sim_wake(c, 1000000);
    sim_preempt();
    return 0;
}

/* ---- semaphores -------------------------------------------------------- */

int __wrap_sem_init(sem_t *s, int shared, unsigned value)
{
    (void)shared;
    ((struct semaphore *)(void *)s)->value = value;
    return 0;
}

int __wrap_sem_destroy(sem_t *s)
{
    (void)s;
    return 0;
}

static int sem_wait_until(sem_t *ps, int64_t when)
{
    struct semaphore *s = (void *)ps;

    sim_preempt();
    if (sim_once_in(&sim_luck, SPURIOUS_ONE_IN)) {
        sim_yield();
        errno = EINTR;
        return -1;
    }
    while (s->value == 0)
        if (!sim_block(s, when)) {
            errno = ETIMEDOUT;
            return -1;
        }
    s->value--;
    return 0;
}

int __wrap_sem_wait(sem_t *s)
{
    return sem_wait_until(s, SIM_NEVER);
}

int __wrap_sem_trywait(sem_t *ps)
{
    struct semaphore *s = (void *)ps;

    if (s->value == 0) {
        errno = EAGAIN;
        return -1;
    }
    s->value--;
    return 0;
}

int __wrap_sem_timedwait(sem_t *s, const struct timespec *t)
{
    return sem_wait_until(s, when_of(t));
}

int __wrap_sem_clockwait(sem_t *s, clockid_t clock, const struct timespec *t)
{
    (void)clock;
    return sem_wait_until(s, when_of(t));
}

int __wrap_sem_post(sem_t *ps)
{
    struct semaphore *s = (void *)ps;

    s->value++;
    sim_wake(s, 1);
    sim_preempt();
    return 0;
}

/* ---- threads ----------------------------------------------------------- */

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a,
                          void *(*run)(void *), void *arg)
{
    (void)a;
    if (sim_memory_short())
        return EAGAIN;
    *t = (pthread_t)sim_spawn(sim_proc_self(), "thread", run, arg);
    return 0;
}

int __wrap_pthread_join(pthread_t t, void **value)
{
    struct sim_fiber *f = (struct sim_fiber *)t;

    if (value)
        *value = NULL;
    while (!sim_ended(f))
        sim_block(f, SIM_NEVER);
    return 0;
}

int __wrap_pthread_detach(pthread_t t)
{
    sim_forget((struct sim_fiber *)t);
    return 0;
}

pthread_t __wrap_pthread_self(void)
{
    return (pthread_t)sim_self();
}

int __wrap_pthread_setname_np(pthread_t t, const char *name)
{
    (void)t;
    (void)name;
    return 0;
}

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    (void)how;
    (void)set;
    (void)old;
    return 0;
}

int __wrap_pthread_setcancelstate(int state, int *old)
{
    if (old)
        *old = state;
    return 0;
}

int __wrap_sched_yield(void)
{
    sim_sleep(sim_between(&sim_luck, 1, 20));
    return 0;
}

/* Only what a library could use to sleep on a number. */
static long sleep_on(const uint32_t *word, uint32_t value,
                     const struct timespec *t)
{
    int64_t when = t ? sim_now() + time_of(t) : SIM_NEVER;

    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
        errno = EAGAIN;
        return -1;
    }
    if (!sim_block(word, when)) {
        errno = ETIMEDOUT;
        return -1;
    }
    return 0;
}

long __wrap_syscall(long number, ...)
{
    va_list list;

    va_start(list, number);
    const uint32_t *word = va_arg(list, uint32_t *);
    int what = va_arg(list, int) & FUTEX_CMD_MASK;
    uint32_t value = va_arg(list, uint32_t);
    const struct timespec *t =
        what == FUTEX_WAIT ? va_arg(list, const struct timespec *) : NULL;
    va_end(list);
    if (number != SYS_futex || (what != FUTEX_WAIT && what != FUTEX_WAKE))
        sim_die("a system call that the simulation has not: %ld", number);
    sim_preempt();
    if (what == FUTEX_WAIT)
        return sleep_on(word, value, t);
    sim_wake(word, (int)(value > 1000000 ? 1000000 : value));
    return 1;
}

/* ---- time and chance --------------------------------------------------- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    const struct sim_proc *p = sim_proc_self();
    int64_t us = p ? sim_clock_us(p) : sim_now();

    if (clock == CLOCK_REALTIME)
        us = SIM_EPOCH_US + sim_now();
    t->tv_sec = (time_t)(us / 1000000);
    t->tv_nsec = (long)(us % 1000000 * 1000);
    return 0;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)left;
    sim_sleep(time_of(t));
    return 0;
}

int __wrap_uv_random(uv_loop_t *loop, uv_random_t *req, void *buf, size_t len,
                     unsigned flags, uv_random_cb cb)
{
    struct sim_proc *p = sim_proc_self();
    unsigned char *at = buf;

    (void)loop;
    (void)req;
    (void)flags;
    (void)cb;
    for (size_t i = 0; i < len; i++)
        at[i] = (unsigned char)sim_draw(p ? &p->chance : &sim_luck);
    return 0;
}
