/* SPDX-License-Identifier: MIT
 *
 * time.h - the clock, and a descriptor that wakes us.
 *
 * The clock is CLOCK_BOOTTIME: it never jumps, and it counts the time a machine
 * sleeps, as the server's does. The time limit of poll(2) does not, so
 * deadlines use a timer descriptor.
 */
#ifndef DIBS_CLI_UTIL_TIME_H
#define DIBS_CLI_UTIL_TIME_H

#include <stdint.h>
#include <sys/timerfd.h>
#include <time.h>

#define TIME_NEVER INT64_MAX

/* Milliseconds since the machine was started. */
static inline int64_t time_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static inline int64_t time_earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* -1 when the system has none left; then poll with TIME_POLL. */
static inline int time_fd(void)
{
    return timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
}

/* How long a poll(2) may sleep that relies on such a descriptor. */
#define TIME_POLL(fd) ((fd) >= 0 ? -1 : 50)

/* Makes fd readable at that time; at once if it has passed. */
static inline void time_arm(int fd, int64_t at)
{
    struct itimerspec when = {.it_value = {0, 0}};

    if (at != TIME_NEVER) {
        when.it_value.tv_sec = (time_t)(at > 0 ? at / 1000 : 0);
        when.it_value.tv_nsec = at > 0 ? (long)(at % 1000) * 1000000 : 1;
    }
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL);
}

#endif
