/* SPDX-License-Identifier: MIT
 *
 * statslog.c - events and statistics in a program's own log.
 *
 *   statslog [URL]          URL defaults to redis://127.0.0.1:6379
 *
 * The library prints nothing and reads no environment. What a log should have
 * comes by the event callback; how much was done, and how long it took, by
 * dibs_client_stats. A service would write its statistics once a minute, or
 * when it is asked for metrics.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* gmtime_r, with -std=c11, too */
#endif
#include <dibs/dibs.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/*
 * The program's log: a time, a word, a line. Two threads write to it, so a line
 * is written by one call, and the time is not kept in memory that they share.
 */
__attribute__((format(printf, 2, 3))) static void log_line(const char *what,
                                                           const char *fmt, ...)
{
    char when[32], line[512];
    time_t now = time(NULL);
    struct tm utc;
    va_list ap;

    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    printf("%s %-7s %s\n", when, what, line);
}

/* Runs on the client's callback thread; a log must be able to take that. */
static void on_event(const dibs_event *ev, void *arg)
{
    (void)arg;
    log_line(ev->kind == DIBS_EVENT_LOST || ev->kind == DIBS_EVENT_ERROR
                 ? "error"
                 : "info",
             "dibs: %s%s%s", ev->text, ev->err ? ": " : "",
             ev->err ? dibs_strerror(ev->err) : "");
}

/* Below how many microseconds this part of all was: the end of a bucket. */
static unsigned long long part_us(const dibs_histogram *h, double part)
{
    uint64_t seen = 0;
    int i = 0;

    for (; i < DIBS_BUCKETS - 1; i++) {
        seen += h->bucket[i];
        if (h->count > 0 && (double)seen >= part * (double)h->count)
            break;
    }
    return h->count > 0 ? 1ull << i : 0;
}

static void log_times(const char *name, const dibs_histogram *h)
{
    log_line("stats",
             "%-7s %6llu times, half below %llu us, 99%% below %llu us", name,
             (unsigned long long)h->count, part_us(h, 0.5), part_us(h, 0.99));
}

static void log_stats(dibs_client *c)
{
    dibs_stats s = DIBS_STATS_INIT;

    if (dibs_client_stats(c, &s) != DIBS_OK)
        return;
    log_line("stats",
             "%llu acquires, %llu waits, %llu losses, %llu commands, %llu "
             "reconnects",
             (unsigned long long)s.acquires, (unsigned long long)s.waits,
             (unsigned long long)s.losses, (unsigned long long)s.commands,
             (unsigned long long)s.reconnects);
    log_times("acquire", &s.acquire);
    log_times("hold", &s.hold);
}

/* The work: a thousand short holds, and one that is lost. */
static dibs_err work(dibs_client *c)
{
    dibs_lock *l = NULL;
    bool was_locked;
    dibs_err err = dibs_lock_new(c, "statslog", &l);

    for (int i = 0; err == DIBS_OK && i < 1000; i++) {
        err = dibs_lock_acquire(l, NULL);
        if (err == DIBS_OK)
            err = dibs_lock_release(l, NULL);
    }
    if (err == DIBS_OK)
        err = dibs_lock_acquire(l, NULL);
    if (err == DIBS_OK)
        err = dibs_lock_force_release(l, &was_locked);
    if (err == DIBS_OK && dibs_lock_release(l, NULL) != DIBS_ERR_LOST)
        log_line("error", "it was not lost");
    dibs_lock_free(l);
    return err;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "redis://127.0.0.1:6379";
    dibs_client *c = NULL;
    dibs_err err =
        dibs_client_open(url, DIBS_CLIENT_OPTS(.on_event = on_event), &c);

    if (err == DIBS_OK)
        err = work(c);
    if (err != DIBS_OK)
        log_line("error", "%s: %s", dibs_strerror(err), dibs_error_text());
    if (c)
        log_stats(c);
    dibs_client_free(c);
    return err == DIBS_OK ? 0 : 1;
}
