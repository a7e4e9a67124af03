/* SPDX-License-Identifier: MIT
 *
 * sim.c - the simulator as a program: runs seeds one after the other; shrinks a
 * failing one and prints its history.
 *
 *     sim --seed 42 [--wire]        one seed, with its history, and the bytes
 *     sim --seconds 60 [--from N]   as many as run in that time
 *     sim --count 10000             N seeds, until one fails
 *     sim --file seeds.txt          those in the file
 *         --profile NAME            only that one (sim --profiles lists them)
 *         --clients N  --drop 3,7   less of it: fewer clients, without faults
 *         --jobs N                  N at once
 *         --keep-going              do not end with the first failure
 *         --strict-wakeups          without the exceptions of docs/testing.md
 *                                   for grants that come late
 *
 * If it is interrupted, the seeds that are running end, and are counted.
 *
 * Each seed is a process of its own: one that crashes or hangs is a failing
 * seed like any other, and what it leaves in memory does not disturb the next.
 */
#include "sim/fiber_local.h"
#include "sim/simulation.h"
#include "sim/wrap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_S   120 /* of a processor, that one seed may take */
#define JOBS_MAX 64
#define TEXT_MAX 2000

struct outcome {
    struct sim_totals totals;
    uint64_t seed;
    bool used;
    char text[TEXT_MAX]; /* why it failed */
};

static struct options {
    uint64_t seed, from, count;
    bool one, keep_going, no_shrink, talk;
    double seconds;
    const char *profile, *file;
    int clients, jobs;
    bool drop[SIM_FAULTS_MAX];
} want = {.from = 1, .count = UINT64_MAX, .jobs = 1};

static struct outcome *outcomes; /* shared with the children */
static struct sim_totals all;
static volatile sig_atomic_t interrupted;

static double real_seconds(void)
{
    struct timespec t;

    __real_clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- one seed ---------------------------------------------------------- */

/* Where the library counts what of it runs (`make coverage`), the counts of
 * this process are to be kept. */
extern void __gcov_dump(void) __attribute__((weak));

static void play_seed(uint64_t seed, struct outcome *out)
{
    /* By its own time: a machine with much else to do is not a hang. */
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = HANG_S},
              NULL);
    if (!sim_plan_make(&sim_plan, seed, want.profile))
        _exit(2);
    if (want.clients > 0 && want.clients < sim_plan.clients)
        sim_plan.clients = want.clients;
    for (int i = 0; i < sim_plan.nfaults; i++) {
        sim_plan.faults[i].dropped = want.drop[i];
        if (sim_plan.faults[i].client >= sim_plan.clients)
            sim_plan.faults[i].client = -1;
        if (sim_plan.faults[i].client < 0 &&
            sim_plan.faults[i].kind == SIM_FAULT_KILL)
            sim_plan.faults[i].client = 0;
    }
    sim_prints_history = want.talk;
    sim_memory_begin();
    sim_begin(seed);
    sim_run_plan();
    out->totals = sim_totals;
    fflush(stdout);
    if (__gcov_dump) {
        sim_own_use(0);
        __gcov_dump();
    }
    _exit(0);
}

/* Starts it; what it prints goes to a pipe, or where ours goes. */
static pid_t start_seed(uint64_t seed, struct outcome *out, int *fd)
{
    int ends[2];

    fflush(stdout);
    memset(out, 0, sizeof *out);
    out->seed = seed;
    if (pipe(ends) != 0) {
        perror("sim: pipe");
        exit(2);
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (!want.talk) {
            dup2(ends[1], 1);
            dup2(ends[1], 2);
        }
        __real_close(ends[0]);
        __real_close(ends[1]);
        play_seed(seed, out);
    }
    __real_close(ends[1]);
    *fd = ends[0];
    return pid;
}

/* True: it went well. */
static bool finish_seed(int fd, int status, struct outcome *out)
{
    size_t n = 0;
    ssize_t got;

    while (n < TEXT_MAX - 1 &&
           (got = __real_read(fd, out->text + n, TEXT_MAX - 1 - n)) > 0)
        n += (size_t)got;
    out->text[n] = '\0';
    __real_close(fd);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (WIFSIGNALED(status) && n + 100 < TEXT_MAX)
        snprintf(out->text + n, TEXT_MAX - n,
                 "CRASH: seed %llu ended by signal %d (%s)\n",
                 (unsigned long long)out->seed, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    return false;
}

static bool run_one(uint64_t seed, struct outcome *out)
{
    int fd, status;
    pid_t pid = start_seed(seed, out, &fd);

    waitpid(pid, &status, 0);
    return finish_seed(fd, status, out);
}

/* ---- making it smaller ------------------------------------------------- */

/* The promise that is broken: the first two words. */
static void reason_of(const char *text, char *out, size_t size)
{
    const char *at = strstr(text, "BROKEN ");

    snprintf(out, size, "%.*s", at ? (int)strcspn(at, ":") : 5,
             at ? at : "CRASH");
}

static bool still_fails(uint64_t seed, const char *reason, struct outcome *out)
{
    char now[40];

    if (run_one(seed, out))
        return false;
    reason_of(out->text, now, sizeof now);
    return strcmp(now, reason) == 0;
}

static void drop_faults(uint64_t seed, const char *reason, int nfaults,
                        struct outcome *out)
{
    for (int size = nfaults; size >= 1; size /= 2)
        for (int first = 0; first < nfaults; first += size) {
            bool before[SIM_FAULTS_MAX];
            memcpy(before, want.drop, sizeof before);
            for (int i = first; i < first + size && i < nfaults; i++)
                want.drop[i] = true;
            if (!still_fails(seed, reason, out))
                memcpy(want.drop, before, sizeof before);
        }
}

/* Fewer clients, then fewer faults, as long as the same promise is broken. */
static void shrink(uint64_t seed, const char *text)
{
    struct outcome *out = &outcomes[JOBS_MAX];
    struct sim_plan plan;
    char reason[40];
    int dropped = 0;

    if (!sim_plan_make(&plan, seed, want.profile))
        return;
    reason_of(text, reason, sizeof reason);
    for (int n = 1; n < plan.clients && want.clients == 0; n++) {
        want.clients = n;
        if (!still_fails(seed, reason, out))
            want.clients = 0;
    }
    drop_faults(seed, reason, plan.nfaults, out);
    run_one(seed, out);
    printf("smaller: %s", out->text);
    printf("again:   make sim SEED=%llu SIM_ARGS=\"", (unsigned long long)seed);
    if (want.profile)
        printf("--profile %s ", want.profile);
    if (sim_strict_wakeups)
        printf("--strict-wakeups ");
    if (want.clients > 0)
        printf("--clients %d ", want.clients);
    for (int i = 0; i < plan.nfaults; i++)
        if (want.drop[i])
            printf("%s%d", dropped++ ? "," : "--drop ", i);
    printf("\"   (%d of %d faults)\n", plan.nfaults - dropped, plan.nfaults);
    memset(want.drop, 0, sizeof want.drop);
    want.clients = 0;
}

/* ---- many seeds -------------------------------------------------------- */

static void add_totals(const struct sim_totals *t)
{
    all.seeds++;
    all.acquires += t->acquires;
    all.refused += t->refused;
    all.faults += t->faults;
    all.lost += t->lost;
    all.overlaps += t->overlaps;
    all.simulated_us += t->simulated_us;
    all.turns += t->turns;
    all.pieces += t->pieces;
    all.cuts += t->cuts;
    all.looks += t->looks;
    all.foreign += t->foreign;
    all.skipped += t->skipped;
    for (int i = 0; i < SIM_FAULT_KINDS; i++)
        all.by_kind[i] += t->by_kind[i];
    for (int i = 0; i < SIM_LATE_KINDS; i++)
        if (all.late_us[i] < t->late_us[i])
            all.late_us[i] = t->late_us[i];
}

static void print_totals(double took)
{
    double hours = (double)all.simulated_us / 3.6e9;
    struct rusage r;

    getrusage(RUSAGE_CHILDREN, &r);
    double cpu = (double)r.ru_utime.tv_sec + (double)r.ru_stime.tv_sec +
                 (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
    printf("sim: %llu seeds, %llu failed; %.2f simulated hours in %.1f s, "
           "%.1f s of a processor: %.0f times real time\n",
           (unsigned long long)all.seeds, (unsigned long long)all.failed, hours,
           took, cpu, cpu > 0 ? hours * 3600 / cpu : 0);
    printf("sim: %llu acquires (and %llu by Redisson clients), %llu that "
           "were not granted, %llu losses told, "
           "%llu overlaps where data may vanish\n",
           (unsigned long long)all.acquires, (unsigned long long)all.foreign,
           (unsigned long long)all.refused, (unsigned long long)all.lost,
           (unsigned long long)all.overlaps);
    printf("sim: %llu faults, %llu connections cut; %llu looks of the checker "
           "(%llu in vain), %llu turns, %llu pieces\n",
           (unsigned long long)all.faults, (unsigned long long)all.cuts,
           (unsigned long long)all.looks, (unsigned long long)all.skipped,
           (unsigned long long)all.turns, (unsigned long long)all.pieces);
    printf("sim: faults:");
    for (int i = 0; i < SIM_FAULT_KINDS; i++)
        printf(" %s %llu", sim_fault_name((enum sim_fault_kind)i),
               (unsigned long long)all.by_kind[i]);
    printf("\nsim: longest, in ms:");
    for (int i = 0; sim_lateness_name(i); i++)
        printf(" %s %.1f", sim_lateness_name(i), (double)all.late_us[i] / 1e3);
    printf("\n");
}

static void failed_seed(const struct outcome *out)
{
    char text[TEXT_MAX];

    all.failed++;
    memcpy(text, out->text, sizeof text);
    printf("%sseed %llu failed after %llu seeds\n", text,
           (unsigned long long)out->seed, (unsigned long long)all.seeds);
    fflush(stdout);
    if (!want.keep_going && !want.no_shrink)
        shrink(out->seed, text);
}

static void note_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static int run_many(void)
{
    const struct sigaction once = {.sa_handler = note_interrupt,
                                   .sa_flags = (int)SA_RESETHAND};
    double began = real_seconds();
    uint64_t next = want.from, last = want.count;
    pid_t pids[JOBS_MAX] = {0};
    int fds[JOBS_MAX], running = 0, status;
    bool stop = false;

    sigaction(SIGINT, &once, NULL);
    sigaction(SIGTERM, &once, NULL);
    do {
        for (int i = 0; i < want.jobs && !stop && last > 0; i++)
            if (pids[i] == 0) {
                pids[i] = start_seed(next++, &outcomes[i], &fds[i]);
                last--;
                running++;
            }
        pid_t pid = running ? waitpid(-1, &status, 0) : 0;
        for (int i = 0; i < want.jobs && pid > 0; i++)
            if (pids[i] == pid) {
                pids[i] = 0;
                running--;
                bool well = finish_seed(fds[i], status, &outcomes[i]);
                add_totals(&outcomes[i].totals);
                if (!well)
                    failed_seed(&outcomes[i]);
                stop |= !well && !want.keep_going;
            }
        stop |= want.seconds > 0 && real_seconds() - began > want.seconds;
        stop |= interrupted;
    } while (running > 0 || (!stop && last > 0));
    if (interrupted)
        printf("sim: interrupted\n");
    print_totals(real_seconds() - began);
    return all.failed > 0 || interrupted;
}

/* ---- arguments --------------------------------------------------------- */

static void read_drops(const char *list)
{
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        int i = atoi(at);
        if (i >= 0 && i < SIM_FAULTS_MAX)
            want.drop[i] = true;
    }
}

/* Lines of a profile and a seed; the rest of a line is for people. */
static int run_file(const char *path)
{
    FILE *f = fopen(path, "r");
    char line[200], profile[40];
    unsigned long long seed;

    if (!f) {
        perror(path);
        return 2;
    }
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#' || sscanf(line, "%39s %llu", profile, &seed) != 2)
            continue;
        want.profile = profile;
        bool well = run_one(seed, &outcomes[0]);
        add_totals(&outcomes[0].totals);
        if (!well) {
            all.failed++;
            printf("%s", outcomes[0].text);
        }
    }
    fclose(f);
    print_totals(1);
    return all.failed > 0;
}

static bool read_option(const char *name, const char *value)
{
    if (strcmp(name, "--seed") == 0) {
        want.one = true;
        want.seed = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--from") == 0) {
        want.from = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--count") == 0) {
        want.count = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--seconds") == 0) {
        want.seconds = atof(value);
    } else if (strcmp(name, "--minutes") == 0) {
        want.seconds = atof(value) * 60;
    } else if (strcmp(name, "--profile") == 0) {
        want.profile = value;
    } else if (strcmp(name, "--clients") == 0) {
        want.clients = atoi(value);
    } else if (strcmp(name, "--jobs") == 0) {
        want.jobs = atoi(value);
    } else if (strcmp(name, "--file") == 0) {
        want.file = value;
    } else if (strcmp(name, "--drop") == 0) {
        read_drops(value);
    } else {
        return false;
    }
    return true;
}

static int list_profiles(void)
{
    for (int i = 0; sim_profile_name(i); i++)
        printf("%s\n", sim_profile_name(i));
    return 0;
}

static int complain(const char *what, const char *word)
{
    fprintf(stderr, "sim: %s%s\n", what, word);
    fprintf(stderr, "usage: sim --seed N [--wire] | --minutes N | --seconds N "
                    "| --count N | --file FILE | --profiles\n"
                    "       [--from N] [--profile NAME] [--clients N] "
                    "[--drop N,N] [--jobs N] [--keep-going] [--no-shrink]\n"
                    "       [--strict-wakeups]\n");
    return 2;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--profiles") == 0)
            return list_profiles();
        if (strcmp(argv[i], "--wire") == 0) {
            sim_shows_wire = true;
            continue;
        }
        if (strcmp(argv[i], "--strict-wakeups") == 0) {
            sim_strict_wakeups = true;
            continue;
        }
        if (strcmp(argv[i], "--no-shrink") == 0) {
            want.no_shrink = true;
            continue;
        }
        if (strcmp(argv[i], "--keep-going") == 0) {
            want.keep_going = true;
            continue;
        }
        if (i + 1 == argc || !read_option(argv[i], argv[i + 1]))
            return complain("not understood: ", argv[i]);
        i++;
    }
    if (!want.one && !want.file && want.count == UINT64_MAX &&
        !(want.seconds > 0))
        return complain("how long, or how many? It would not end", "");
    if (want.jobs < 1 || want.jobs > JOBS_MAX)
        want.jobs = 1;
    outcomes = mmap(NULL, (JOBS_MAX + 1) * sizeof *outcomes,
                    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (want.file)
        return run_file(want.file);
    if (!want.one)
        return run_many();
    want.talk = true;
    bool well = run_one(want.seed, &outcomes[0]);
    printf("%sseed %llu: %s\n", outcomes[0].text, (unsigned long long)want.seed,
           well ? "well" : "FAILED");
    return well ? 0 : 1;
}
