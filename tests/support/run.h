/* SPDX-License-Identifier: MIT
 *
 * run.h - runs the tests of one program in several processes at once, for
 * programs that mostly wait for leases and timeouts.
 *
 * Each worker process calls the group's setup (so it has a server of its own),
 * takes the next test that no worker has taken, runs it through cmocka, and
 * calls the group's teardown when none is left. List long tests first.
 *
 * Output     A line when a test begins, and all that it printed when it has
 *            ended. So a test that hangs is one that began and did not end.
 * Threads    Call it on the main thread, before there are others.
 */
#ifndef DIBS_TESTS_RUN_H
#define DIBS_TESTS_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Returns the number of tests and fixtures that failed. */
int ts_run_parallel(const char *group, const struct CMUnitTest *tests, size_t n,
                    CMFixtureFunction setup, CMFixtureFunction teardown);

#define TS_RUN_PARALLEL(group, tests, setup, teardown)                         \
    ts_run_parallel(group, tests, sizeof(tests) / sizeof((tests)[0]), setup,   \
                    teardown)

#endif
