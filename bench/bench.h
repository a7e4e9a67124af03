/* SPDX-License-Identifier: MIT
 *
 * bench.h - what the parts of the benchmark share.
 *
 * The parts, in reading order:
 *
 *   bench.c     options, and which measurement comes when
 *   report.c    numbers: how they are printed, and the targets they must meet
 *   server.c    a private redis-server, and how many commands it was sent
 *   race.c      many threads doing the same thing for a while
 *   floor.c     the same locks without dibs: a blocking connection a thread
 *   pairs.c     pairs a second, dibs next to the floor
 *   counts.c    what one pair costs: commands, allocations, wake-ups
 *   trace.c     what one pair costs: system calls
 *   heap.c      counts allocations
 *   contend.c   one lock, wanted by many: threads, then processes
 *   herd.c      one lock, wanted by many clients
 *   many.c      many locks held, many waiters for one
 *   fair.c      the fair lock: hand-overs, and many waiters
 *   rw.c        the read-write lock: many readers
 *   objects.c   fenced locks and slots: pairs, renewal, many waiters
 *   groups.c    several locks at once, and one on several servers
 *   loss.c      from a deleted key to on_lost
 *   hands.c     one lock goes from process to process
 *   cluster.c   a cluster next to a single server
 *
 * Whatever does not work ends the program with a message and exit code 1: a
 * benchmark that goes on after an error measures the error.
 */
#ifndef DIBS_BENCH_H
#define DIBS_BENCH_H

#include <dibs/dibs.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- report.c ---------------------------------------------------------- */

/* Says what is wrong and ends the program. */
_Noreturn void die(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
/* Ends the program unless err is OK. */
void must(dibs_err err, const char *what);

/* A headline. */
void title(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* One number: its label, how many digits behind the point, its unit. NAN is
 * printed as "not measured". */
void line(const char *label, double value, int digits, const char *unit);

/* Notes a target, AT_MOST or AT_LEAST the limit, for the block at the end. */
enum relation { AT_MOST, AT_LEAST };
void target(const char *what, enum relation rel, double limit, double value);
void targets_print(void);

double median(const double *values, size_t n); /* n up to 99 */
double least(const double *values, size_t n);
double greatest(const double *values, size_t n);

int64_t now_ns(void);
void sleep_ms(int64_t ms);

/* ---- server.c ---------------------------------------------------------- */

/* Starts a redis-server on a Unix socket, with tcp also on a loopback port. It
 * ends with this program, whichever way that ends. */
void server_start(bool tcp);
const char *server_url(bool tcp);
/* One more, on a Unix socket; where it is. */
const char *server_more(void);

/* A plain connection, logged in and with the right database. */
redisContext *server_connect(const char *url);
const char *server_version(redisContext *rc, char *buf, size_t size);

/* What was sent to the server so far, by all its clients. */
struct tally {
    long long commands; /* not counting what scripts call, nor our questions */
    long long looks;    /* HEXISTS calls: a renewal makes one for each lock */
};
struct tally server_tally(redisContext *rc);

/* ---- race.c ------------------------------------------------------------ */

/* One step of a racer. */
typedef void (*step_fn)(void *arg);

/* Lets n threads repeat step(args[i]) for so long; gives steps a second. */
struct lap {
    double steps; /* in all */
    double rate;  /* a second */
};
struct lap race(int n, step_fn step, void *const *args, int64_t ms);

/* ---- floor.c ----------------------------------------------------------- */

/* A lock with a connection of its own. */
struct floor_lock;
struct floor_lock *floor_open(const char *url, const char *name, int number);
void floor_close(struct floor_lock *f);
void floor_pair(void *floor_lock); /* a step */
/* Ends the program unless the floor sends what dibs sends. */
void floor_check(const char *url);

/* ---- heap.c ------------------------------------------------------------ */

/* From start to stop, allocations in all threads are counted. */
void heap_start(void);
void heap_stop(void);
double heap_calls(void); /* malloc, calloc, realloc; NAN: cannot be counted */
double heap_bytes(void); /* taken, less given back; NAN: cannot be counted */

/* ---- trace.c ----------------------------------------------------------- */

/* Runs work in a traced process. System calls between two trace_mark are
 * counted, in all its threads; NAN if this system does not let us. */
double trace_count(void (*work)(void *arg), void *arg);
void trace_mark(void);

/* ---- the measurements -------------------------------------------------- */

/* What to measure, and for how long. */
struct plan {
    const char *url;
    const char *where;   /* that is, in words */
    const char *tcp_url; /* the same server; or NULL */
    int rounds;          /* of each kind */
    int64_t lap_ms;      /* of a race */
    int pairs;           /* for counting */
    int locks;           /* held at once */
    int waiters;         /* for one lock */
    int64_t lease_ms;    /* of the locks held at once */
};

void measure_pairs(const struct plan *p, const char *where, bool targets);
void measure_async(const struct plan *p);
void measure_counts(const struct plan *p);
void measure_handover(const struct plan *p);
void measure_processes(const struct plan *p);
void measure_greedy(const struct plan *p);
void measure_herd(const struct plan *p);
void measure_renewal(const struct plan *p);
void measure_waiters(const struct plan *p);
void measure_fair(const struct plan *p);
void measure_fair_waiters(const struct plan *p);
void measure_readers(const struct plan *p);
void measure_kinds(const struct plan *p);
void measure_permits(const struct plan *p);
void measure_places_in_line(const struct plan *p);
void measure_multi(const struct plan *p);
void measure_orders(const struct plan *p);
void measure_quorum(const struct plan *p);
void measure_loss(const struct plan *p);
void measure_hands(const struct plan *p);   /* starts servers of its own */
void measure_cluster(const struct plan *p); /* starts servers of its own */

/* How many entries a folder of /proc/self has; with a prefix, only links to
 * something that begins so. */
int count_entries(const char *path, const char *prefix);
/* Waits until the library has put away all it was given: its memory does not
 * change for a while. */
void settle(void);

/* Acquire and release of a dibs_lock: a step. */
void dibs_pair(void *lock);
/* A name that no other run uses, in buf. */
const char *bench_name(char *buf, size_t size, const char *what, int number);

#endif
