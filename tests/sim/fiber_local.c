/* SPDX-License-Identifier: MIT
 *
 * fiber_local.c - what a thread has of its own, for fibers.
 *
 * The library tells threads apart by the address of a _Thread_local variable,
 * so each fiber needs a place of its own for them. Only the system can make
 * such a place. So a real thread is made that sleeps for ever, and its place is
 * lent to a fiber: the register that points there is set at each switch. The
 * real thread never touches it again.
 *
 * On x86-64 one such thread is enough: the others are copies of its place, in
 * which the two words that point to the place itself are put right. So ten
 * thousand clients are not ten thousand threads.
 *
 * This is the one part that knows the machine: x86-64 and AArch64 on Linux.
 */
#include "sim/fiber_local.h"

#include "sim/fiber.h"
#include "sim/wrap.h"

#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <asm/prctl.h>
#endif

#define PLACES_MAX 40000
#define BYTES_MAX  8192
#define STACK      (64 * 1024)
#define BELOW      BYTES_MAX /* of a place, x86-64: what is copied of it */
#define AT_ONCE    64        /* places are made */

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a,
                          void *(*run)(void *), void *arg);
pthread_t __real_pthread_self(void);
int __real_sem_init(sem_t *s, int shared, unsigned value);
int __real_sem_post(sem_t *s);
int __real_sem_wait(sem_t *s);
long __real_syscall(long number, ...);

static unsigned long first_place, current_place, found_place;
static char *first_bytes;
static size_t nbytes;
static char fresh[BYTES_MAX];
static bool fresh_known;
static unsigned long spare[PLACES_MAX];
static int nspare;
static sem_t found;
static unsigned long found_end; /* of what is above a place */

static unsigned long read_place(void)
{
    unsigned long place;

#if defined(__x86_64__)
    __asm__ volatile("mov %%fs:0, %0" : "=r"(place));
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, tpidr_el0" : "=r"(place));
#else
#error "tests/sim/fiber_local.c does not know this machine"
#endif
    return place;
}

static void write_place(unsigned long place)
{
#if defined(__x86_64__)
    static int quick = -1;

    if (quick < 0)
        quick = (getauxval(AT_HWCAP2) & 2) != 0; /* FSGSBASE */
    if (quick)
        __asm__ volatile("wrfsbase %0" : : "r"(place) : "memory");
    else
        __real_syscall(SYS_arch_prctl, ARCH_SET_FS, place);
#else
    __asm__ volatile("msr tpidr_el0, %0" : : "r"(place) : "memory");
#endif
}

static int find_bytes(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            first_bytes = info->dlpi_tls_data;
            nbytes = info->dlpi_phdr[i].p_memsz;
        }
    return 1; /* the program itself comes first */
}

static void *sleeper(void *arg)
{
    pthread_attr_t a;
    void *stack;
    size_t size;

    (void)arg;
    found_place = read_place();
    if (pthread_getattr_np(__real_pthread_self(), &a) == 0) {
        pthread_attr_getstack(&a, &stack, &size);
        found_end = (unsigned long)stack + size;
        pthread_attr_destroy(&a);
    }
    __real_sem_post(&found);
    for (;;)
        pause();
    return NULL;
}

static char *bytes_of(unsigned long place)
{
    return first_bytes + (place - first_place);
}

static unsigned long make_place(void)
{
    pthread_attr_t a;
    pthread_t t;

    if (!first_place) {
        first_place = current_place = read_place();
        dl_iterate_phdr(find_bytes, NULL);
        __real_sem_init(&found, 0, 0);
        if (nbytes > BYTES_MAX)
            sim_die("threads have %zu bytes of their own", nbytes);
    }
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, STACK);
    if (__real_pthread_create(&t, &a, sleeper, NULL) != 0)
        sim_die("no thread to be had");
    pthread_attr_destroy(&a);
    while (__real_sem_wait(&found) != 0)
        ;
    if (!fresh_known)
        memcpy(fresh, bytes_of(found_place), nbytes);
    fresh_known = true;
    return found_place;
}

#if defined(__x86_64__)
static void copy_places(void)
{
    static unsigned long model;
    static char *image;
    static size_t above;

    if (!model) {
        model = make_place();
        above = found_end - model;
        if (found_end < model || above > BYTES_MAX)
            sim_die("the place of a thread is not where it is looked for");
        image = __real_malloc(BELOW + above);
        memcpy(image, (char *)model - BELOW, BELOW + above);
        spare[nspare++] = model;
    }
    size_t room = (BELOW + above + 127) / 64 * 64;
    char *at = mmap(NULL, AT_ONCE * room, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; at != MAP_FAILED && i < AT_ONCE; i++, at += room) {
        unsigned long place = (unsigned long)at + BELOW + model % 64;
        memcpy(at + model % 64, image, BELOW + above);
        memcpy((char *)place, &place, sizeof place);
        memcpy((char *)place + 2 * sizeof place, &place, sizeof place);
        spare[nspare++] = place;
    }
}
#else
static void copy_places(void)
{
    spare[nspare++] = make_place();
}
#endif

unsigned long sim_own_new(void)
{
    unsigned long before = current_place;

    if (nspare == 0) {
        if (before)
            sim_own_use(0);
        copy_places();
        if (before)
            sim_own_use(before);
    }
    memcpy(bytes_of(spare[nspare - 1]), fresh, nbytes);
    return spare[--nspare];
}

void sim_own_free(unsigned long own)
{
    spare[nspare++] = own;
}

void sim_own_use(unsigned long own)
{
    unsigned long place = own ? own : first_place;

    if (place == current_place)
        return;
    current_place = place;
    write_place(place);
}
