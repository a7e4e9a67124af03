/* SPDX-License-Identifier: MIT
 *
 * herd.c - many clients that want one lock, each with connections of its own.
 *
 * Greedy: four processes that hold the lock for a millisecond and ask again at
 * once. The one that has just released it must not win each time.
 *
 * Herd: twelve clients, then 500, that pause in between. If each release woke
 * all of them, they would ask in vain nearly always, and the lock would be the
 * slower the more want it. A fair lock, which calls one at a time, stands
 * beside it.
 *
 * The one that has the lock writes in memory that all share, so that nobody
 * else may be there: two at once end the program.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES  4
#define HOLD_US    1000
#define PAUSE_US   2000
#define FEW        12
#define MANY       500
#define GREEDY_MS  10000
#define SETTLE_MS  1500
#define FDS_WANTED 4096

typedef dibs_err (*new_fn)(dibs_client *, const char *, dibs_lock **);

/* What everybody sees. */
struct field {
    atomic_int ready, inside, last;
    atomic_bool counts, stop, met;
    atomic_long acquires, changes;
    atomic_llong longest_ns;
};

struct herd {
    const char *url;
    const char *name;
    new_fn lock_new;
    int clients; /* of a process */
    int pause_us;
};

struct sheep {
    struct field *f;
    const struct herd *h;
    dibs_client *c;
    dibs_lock *l;
    int id;
    pthread_t thread;
};

static void note_wait(struct field *f, int64_t ns)
{
    long long most = atomic_load(&f->longest_ns);

    while (ns > most &&
           !atomic_compare_exchange_weak(&f->longest_ns, &most, ns))
        ;
}

static void *graze(void *arg)
{
    struct sheep *s = arg;
    struct field *f = s->f;

    while (!atomic_load(&f->stop)) {
        int64_t began = now_ns();
        must(dibs_lock_acquire(s->l, NULL), "acquire");
        if (atomic_fetch_add(&f->inside, 1) != 0)
            atomic_store(&f->met, true);
        if (atomic_load(&f->counts)) {
            note_wait(f, now_ns() - began);
            atomic_fetch_add(&f->acquires, 1);
            if (atomic_exchange(&f->last, s->id) != s->id)
                atomic_fetch_add(&f->changes, 1);
        }
        usleep(HOLD_US);
        atomic_fetch_sub(&f->inside, 1);
        must(dibs_lock_release(s->l, NULL), "release");
        if (s->h->pause_us)
            usleep((useconds_t)s->h->pause_us);
    }
    return NULL;
}

static void run_process(struct field *f, const struct herd *h, int number)
{
    struct sheep *all = calloc((size_t)h->clients, sizeof *all);

    if (!all)
        die("out of memory");
    for (int i = 0; i < h->clients; i++) {
        struct sheep *s = &all[i];
        s->f = f;
        s->h = h;
        s->id = 1 + number * h->clients + i;
        must(dibs_client_open(h->url, NULL, &s->c), "open");
        must(h->lock_new(s->c, h->name, &s->l), "new lock");
        if (pthread_create(&s->thread, NULL, graze, s) != 0)
            die("no thread");
        atomic_fetch_add(&f->ready, 1);
    }
    for (int i = 0; i < h->clients; i++)
        pthread_join(all[i].thread, NULL);
    for (int i = 0; i < h->clients; i++) {
        dibs_lock_free(all[i].l);
        dibs_client_free(all[i].c);
    }
    free(all);
}

static pid_t start_process(struct field *f, const struct herd *h, int number)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    run_process(f, h, number);
    _exit(0);
}

struct outcome {
    double rate, changes, commands, longest_ms;
};

static struct outcome run_herd(const struct herd *h, int64_t ms)
{
    struct field *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    redisContext *rc = server_connect(h->url);
    pid_t pids[PROCESSES];
    int status = 0;

    if (f == MAP_FAILED)
        die("out of memory");
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = start_process(f, h, i);
    while (atomic_load(&f->ready) < PROCESSES * h->clients)
        sleep_ms(10);
    sleep_ms(SETTLE_MS);
    struct tally before = server_tally(rc);
    int64_t began = now_ns();
    atomic_store(&f->counts, true);
    sleep_ms(ms);
    atomic_store(&f->counts, false);
    double seconds = (double)(now_ns() - began) / 1e9;
    struct tally after = server_tally(rc);
    atomic_store(&f->stop, true);
    for (int i = 0; i < PROCESSES; i++)
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
            die("a process of the benchmark failed");
    if (atomic_load(&f->met))
        die("two had the lock at the same time");
    double acquires = (double)atomic_load(&f->acquires);
    struct outcome out = {
        .rate = acquires / seconds,
        .changes = (double)atomic_load(&f->changes) / seconds,
        .commands = (double)(after.commands - before.commands) / acquires,
        .longest_ms = (double)atomic_load(&f->longest_ns) / 1e6};
    munmap(f, sizeof *f);
    redisFree(rc);
    return out;
}

void measure_greedy(const struct plan *p)
{
    char name[96];
    struct herd h = {.url = p->url,
                     .name = bench_name(name, sizeof name, "greedy", 0),
                     .lock_new = dibs_lock_new,
                     .clients = 1};

    title("greedy: %d processes that ask again at once, 1 ms each", PROCESSES);
    struct outcome got = run_herd(&h, GREEDY_MS);
    line("acquires", got.rate, 0, "per second");
    line("changes of hands", got.changes, 0, "per second");
    line("Redis commands", got.commands, 2, "per acquire");
    line("longest wait", got.longest_ms, 0, "ms");
    target("greedy, changes of hands of all releases", AT_LEAST, 0.5,
           got.changes / got.rate);
    target("greedy, longest wait in 10 s, ms", AT_MOST, 50, got.longest_ms);
}

/* A client has three files or so. */
static void raise_limit(void)
{
    struct rlimit lim;

    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < FDS_WANTED) {
        lim.rlim_cur = FDS_WANTED < lim.rlim_max ? FDS_WANTED : lim.rlim_max;
        setrlimit(RLIMIT_NOFILE, &lim);
    }
}

static struct outcome measure_one(const struct plan *p, const char *kind,
                                  new_fn lock_new, int clients)
{
    char name[96];
    struct herd h = {.url = p->url,
                     .name = bench_name(name, sizeof name, kind, clients),
                     .lock_new = lock_new,
                     .clients = clients / PROCESSES,
                     .pause_us = PAUSE_US};
    struct outcome got = run_herd(&h, p->lap_ms * 8);

    title("herd: %d clients, a %s lock", h.clients * PROCESSES, kind);
    line("acquires", got.rate, 0, "per second");
    line("Redis commands", got.commands, 2, "per acquire");
    line("longest wait", got.longest_ms, 0, "ms");
    return got;
}

void measure_herd(const struct plan *p)
{
    raise_limit();
    struct outcome few = measure_one(p, "plain", dibs_lock_new, FEW);
    struct outcome many = measure_one(p, "plain", dibs_lock_new, MANY);
    struct outcome fair_few = measure_one(p, "fair", dibs_fair_lock_new, FEW);
    struct outcome fair = measure_one(p, "fair", dibs_fair_lock_new, MANY);

    target("plain lock, 500 to 12 clients, acquires", AT_LEAST, 0.8,
           many.rate / few.rate);
    target("plain lock, 500 to 12 clients, commands", AT_MOST, 1.5,
           many.commands / few.commands);
    target("plain lock, 500 clients, wait to fair's", AT_MOST, 2,
           many.longest_ms / fair.longest_ms);
    target("fair lock, Redis commands between clients", AT_MOST, 3.05,
           fair_few.commands);
}
