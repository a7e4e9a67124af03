/* SPDX-License-Identifier: MIT
 *
 * peer.h - what the two C programs of the comparison share.
 *
 * Every program of the comparison reads one command a line and answers each
 * with one line of JSON; bench/peers/run.py says which commands there are. It
 * starts them all, so that each is warm, and gives them turns.
 *
 *   threads.c   libraries whose calls block: dibs, and plain hiredis
 *   tasks.c     dibs with callbacks; and the most that the server can do
 *   peer.c      the commands, the clock, the log of holds
 */
#ifndef DIBS_BENCH_PEERS_C_PEER_H
#define DIBS_BENCH_PEERS_C_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What a line of the comparison may ask for. */
struct peer_order {
    char kind[16];  /* plain, fair or read */
    int n;          /* threads, tasks, locks or waiters */
    int ms;         /* how long */
    char name[160]; /* of the lock, or what all names begin with */
    int hold_us;    /* how long each hold lasts */
    int pause_us;   /* how long a thread pauses after it */
    char file[256]; /* where the holds are noted */
};

/* A library, as this program uses it. What it cannot do is NULL. */
struct peer_library {
    const char *name;
    void (*open)(const char *url);
    /* Each of n takes and gives back a lock of its own; gives how often. */
    long long (*pairs)(const struct peer_order *o);
    /* All of n want one lock; notes each hold. */
    long long (*contend)(const struct peer_order *o);
    /* Takes n locks and keeps them. */
    void (*hold)(const struct peer_order *o);
    /* n wait for a lock that another process keeps. Comes back at once. */
    void (*wait)(const struct peer_order *o);
};

extern const struct peer_library peer_dibs, peer_hiredis; /* threads.c */
extern const struct peer_library peer_tasks, peer_limit;  /* tasks.c */

_Noreturn void peer_die(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
int64_t peer_now_ns(void); /* the same clock for all processes */
void peer_sleep_us(int us);

/* One hold: who, when it asked, when it had the lock, when it let go. */
struct peer_log;
struct peer_log *peer_log_open(const char *path);
void peer_log_add(struct peer_log *log, int who, const int64_t at[3]);
long long peer_log_close(struct peer_log *log); /* how many */

#endif
