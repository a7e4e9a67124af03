/* SPDX-License-Identifier: MIT
 *
 * jvm.h - the Java side: a process with a Redisson client that does what it is
 * told (src/main/java/Helper.java).
 *
 * A request goes to a worker, a Java thread of that name; to Redisson a thread
 * is an owner. It is answered when it is done, so a request that waits for a
 * lock is asked for with jvm_send, and its answer awaited later.
 *
 * Where Java and its classes are is said by $DIBS_INTEROP_JAVA (java) and
 * $DIBS_INTEROP_CLASSPATH.
 *
 * Threads    Any function from any thread, but start on the main one: the Java
 *            process is killed when the thread that made it ends.
 * Trouble    What Java cannot do at all ends the program. An exception of
 *            Redisson's is an answer.
 */
#ifndef DIBS_TESTS_INTEROP_JVM_H
#define DIBS_TESTS_INTEROP_JVM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct jvm;

struct jvm_answer {
    bool ok;                  /* false: an exception, text says which */
    long long value;          /* of text, where it is a number */
    int64_t begin_us, end_us; /* around the call, by the monotonic clock */
    char text[512];
};

/* A client for the server at this port. extra: more arguments for the helper,
 * "watchdog=MS" or "fairwait=MS", ended by NULL; or NULL. */
struct jvm *jvm_start(int port, const char *const *extra);
void jvm_stop(struct jvm *j); /* in good order; accepts NULL */
void jvm_kill(struct jvm *j); /* kill -9; jvm_stop it anyway */

const char *jvm_version(const struct jvm *j); /* Redisson's */
bool jvm_older(const struct jvm *j, int major, int minor);
bool jvm_has_fair_wait(const struct jvm *j); /* it has fairLockWaitTimeout */

/* Sends a request: operation, kind, name, and numbers as text with tabs before
 * each. Gives its number. */
int jvm_send(struct jvm *j, const char *worker, const char *op,
             const char *kind, const char *name, const char *numbers);
bool jvm_done(struct jvm *j, int id);
/* The answer, once it is there; too late is a failure of the test. */
struct jvm_answer jvm_await(struct jvm *j, int id, int64_t timeout_ms);
/* Both. */
struct jvm_answer jvm_ask(struct jvm *j, const char *worker, const char *op,
                          const char *kind, const char *name,
                          const char *numbers);

#endif
