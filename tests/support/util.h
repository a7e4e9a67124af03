/* SPDX-License-Identifier: MIT
 *
 * util.h - what every test needs: time, patience, child processes, counting.
 *
 * Patience. A test waits for an event, never for time to pass. Where there is
 * no event to wait for, it looks again and again in short steps (ts_wait). All
 * limits are guards against hanging and nothing else: they are generous, and
 * ts_ms makes them longer still where the build or the tool is slow.
 *
 * Trouble in the harness itself ends the program: ts_fatal. A test that fails
 * says so through cmocka instead.
 */
#ifndef DIBS_TESTS_UTIL_H
#define DIBS_TESTS_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Says why on stderr and aborts. Servers and folders go anyway. */
_Noreturn void ts_fatal(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* Memory that is always there; the harness has no use for less. */
void *ts_alloc(size_t size); /* zeroed */
char *ts_strdup(const char *s);
/* printf into memory of its own; free() it. */
char *ts_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* DIBS_TEST_LONG=1: soaks and loops over every allocation in full. */
bool ts_long(void);
/* Without it, the short form of a loop that lets the n-th allocation fail, for
 * n from 1: the first ones, and one of three of those behind. Which ones is
 * another choice for each `part`. */
bool ts_walks(long n, int part);

/* ---- time -------------------------------------------------------------- */

int64_t ts_now_ms(void); /* monotonic */

/* How many times slower than usual this run may be: 1 or more. Knows the
 * sanitizers and valgrind; $DIBS_TEST_SLOWNESS may ask for more. */
int ts_slow(void);

/* A hang guard of so many ms, scaled. */
int64_t ts_ms(int64_t ms);

/* Long enough for anything that should happen at once. */
#define TS_SOON ts_ms(20000)

/* For conditions without an event:
 *
 *     struct ts_wait w = ts_wait_begin(TS_SOON);
 *     while (!ready())
 *         if (!ts_wait_step(&w))
 *             fail_msg("not ready");
 */
struct ts_wait {
    int64_t until;
    int step_us;
};

struct ts_wait ts_wait_begin(int64_t timeout_ms);
bool ts_wait_step(struct ts_wait *w); /* false: the time is over */

/* The same with a function; true as soon as it says so. */
bool ts_wait_until(bool (*cond)(void *arg), void *arg, int64_t timeout_ms);

/* The same with an expression, and the test fails if it stays false. Needs
 * cmocka.h where it is used. */
#define TS_WAIT(expr)                                                          \
    do {                                                                       \
        struct ts_wait ts_w_ = ts_wait_begin(TS_SOON);                         \
        while (!(expr))                                                        \
            if (!ts_wait_step(&ts_w_))                                         \
                fail_msg("not true within %lld ms: %s", (long long)TS_SOON,    \
                         #expr);                                               \
    } while (0)

/* ---- child processes --------------------------------------------------- */

/* A child runs fn and ends with what fn returns. The two talk through a
 * socket: the child's end is fd, the parent's ts_child_fd. It is killed when
 * the thread that made it ends, so make children on the main thread; and
 * before the first other thread, or ThreadSanitizer will not let the child
 * have threads of its own. */
struct ts_child;

struct ts_child *ts_spawn(int (*fn)(int fd, void *arg), void *arg);
int ts_child_fd(const struct ts_child *ch);
pid_t ts_child_pid(const struct ts_child *ch);

/* Exactly len bytes. False: the other end is gone, or the time is over. */
bool ts_tell(int fd, const void *buf, size_t len);
bool ts_hear(int fd, void *buf, size_t len, int64_t timeout_ms);

/* Stops it and waits until it is stopped; the same for going on. */
void ts_child_pause(struct ts_child *ch);
void ts_child_resume(struct ts_child *ch);
/* Kills it and waits until it is gone. Harmless if it has ended. */
void ts_child_kill(struct ts_child *ch);
/* What fn returned, or 128 + the signal that ended it; -1: still running. */
int ts_child_wait(struct ts_child *ch, int64_t timeout_ms);
/* Kills it if it still runs. Accepts NULL. */
void ts_child_free(struct ts_child *ch);

/* ---- counting ---------------------------------------------------------- */

/* Of this process. A thread stays listed for a moment after it was joined, so
 * wait for the number. Compare with a number taken before: the sanitizers have
 * threads too. */
size_t ts_threads(void);
size_t ts_fds(void);
bool ts_pid_alive(pid_t pid); /* a zombie is not */

#endif
