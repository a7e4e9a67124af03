/* SPDX-License-Identifier: MIT
 *
 * eventloop.c - dibs inside a program that has a loop of its own.
 *
 *   eventloop [URL]         URL defaults to redis://127.0.0.1:6379
 *
 * With DIBS_CALLBACKS_DISPATCH no callback comes from another thread: the
 * client has a descriptor that becomes readable when some are waiting, and
 * dibs_client_dispatch runs them right there. So this program has one thread
 * of its own, no mutex, and yet holds several locks that are renewed in time
 * however long the loop is busy elsewhere. Any loop will do; this one is
 * poll(2) and a timer.
 *
 * It takes a few locks, looks at them at every tick of its timer, and gives
 * them back after some ticks.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <dibs/dibs.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOCKS    5
#define TICKS    3 /* then the locks go back */
#define TICK_MS  100
#define LIMIT_MS 30000 /* for all of it */

struct app {
    dibs_client *c;
    dibs_lock *locks[LOCKS];
    int held;      /* taken and not yet given back */
    int pending;   /* callbacks that are still to come */
    int ticks;     /* so far */
    int64_t start; /* when the loop began */
    dibs_err err;  /* what went wrong first, or OK */
};

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Remembers the first error; the loop then ends. */
static void note(struct app *a, dibs_err err)
{
    if (a->err == DIBS_OK)
        a->err = err;
}

/* ---- callbacks: run inside dispatch, so on the loop's own thread ------- */

static void on_taken(dibs_err err, void *arg)
{
    struct app *a = arg;

    a->pending--;
    note(a, err);
    if (err == DIBS_OK)
        printf("took %d of %d\n", ++a->held, LOCKS);
}

static void on_freed(dibs_err err, void *arg)
{
    struct app *a = arg;

    a->pending--;
    a->held--;
    note(a, err);
}

static void on_lost(const char *name, dibs_owner owner, void *arg)
{
    (void)owner;
    printf("lost %s\n", name);
    note(arg, DIBS_ERR_LOST);
}

/* ---- what the loop does ------------------------------------------------ */

/* Asks for all locks at once. The owner is this thread: it makes every call,
 * and one owner may hold any number of locks. */
static void take_all(struct app *a)
{
    const dibs_lock_opts *opts =
        DIBS_LOCK_OPTS(.wait_ms = 1500, .on_lost = on_lost, .arg = a);

    for (int i = 0; i < LOCKS && a->err == DIBS_OK; i++) {
        note(a, dibs_lock_acquire_async(a->locks[i], opts, on_taken, a));
        if (a->err == DIBS_OK)
            a->pending++;
    }
}

static void free_all(struct app *a)
{
    for (int i = 0; i < LOCKS && a->err == DIBS_OK; i++) {
        note(a, dibs_lock_release_async(a->locks[i], NULL, on_freed, a));
        if (a->err == DIBS_OK)
            a->pending++;
    }
}

/* The timer. Looking at a lock's state is no I/O, so a loop may do it as often
 * as it likes. */
static void on_tick(struct app *a)
{
    int64_t least = DIBS_MS_MAX;

    a->ticks++;
    for (int i = 0; i < LOCKS; i++) {
        int64_t left = dibs_lock_valid_ms(a->locks[i], 0);
        if (left < least)
            least = left;
    }
    printf("tick %d: %d held, all of them for %" PRId64 " ms more\n", a->ticks,
           a->held, least);
    if (a->ticks == TICKS) {
        printf("giving them back\n");
        free_all(a);
    }
}

/* Runs until every lock was taken and given back, or something is wrong. */
static void loop(struct app *a)
{
    struct pollfd fd = {.fd = dibs_client_fd(a->c), .events = POLLIN};
    int64_t next_tick = a->start + TICK_MS;

    while (a->err == DIBS_OK && (a->held > 0 || a->pending > 0)) {
        int64_t wait = next_tick - now_ms();
        int ready = poll(&fd, 1, wait > 0 ? (int)wait : 0);
        if (ready > 0)
            dibs_client_dispatch(a->c);
        if (ready < 0 && errno != EINTR) {
            fprintf(stderr, "eventloop: poll: %s\n", strerror(errno));
            note(a, DIBS_ERR_INVALID);
        }
        int64_t now = now_ms();
        if (now >= next_tick) {
            next_tick = now + TICK_MS;
            if (a->held == LOCKS && a->ticks < TICKS)
                on_tick(a);
        }
        if (now - a->start > LIMIT_MS)
            note(a, DIBS_ERR_TIMEOUT);
    }
}

/* ---- set-up ------------------------------------------------------------ */

static dibs_err set_up(struct app *a, const char *url)
{
    dibs_err err = dibs_client_open(
        url, DIBS_CLIENT_OPTS(.callbacks = DIBS_CALLBACKS_DISPATCH), &a->c);

    for (int i = 0; i < LOCKS && err == DIBS_OK; i++) {
        char name[64];
        snprintf(name, sizeof name, "dibs:example:eventloop:%d", i);
        err = dibs_lock_new(a->c, name, &a->locks[i]);
    }
    return err;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "redis://127.0.0.1:6379";
    struct app a = {.start = now_ms()};

    a.err = set_up(&a, url);
    take_all(&a);
    loop(&a);
    if (a.err == DIBS_OK)
        printf("all %d are free again\n", LOCKS);
    else
        fprintf(stderr, "eventloop: %s\n", dibs_strerror(a.err));

    /* Closing releases what an error left held. */
    dibs_client_free(a.c);
    for (int i = 0; i < LOCKS; i++)
        dibs_lock_free(a.locks[i]);
    return a.err == DIBS_OK ? 0 : 1;
}
