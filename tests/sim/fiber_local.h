/* SPDX-License-Identifier: MIT
 *
 * fiber_local.h - what a thread has of its own (_Thread_local, errno), for
 * fibers.
 */
#ifndef DIBS_TESTS_SIM_FIBER_LOCAL_H
#define DIBS_TESTS_SIM_FIBER_LOCAL_H

/* A set of such things, as a new thread finds it; and back. */
unsigned long sim_own_new(void);
void sim_own_free(unsigned long own);
/* From now on they are these; 0 = those of the program's first thread. */
void sim_own_use(unsigned long own);

#endif
