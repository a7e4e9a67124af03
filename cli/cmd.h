/* SPDX-License-Identifier: MIT
 *
 * cmd.h - the subcommands. Each gives the exit code.
 */
#ifndef DIBS_CLI_CMD_H
#define DIBS_CLI_CMD_H

#include "args/args.h"

int cmd_run(const struct args *a);
int cmd_hold(const struct args *a);
int cmd_acquire(const struct args *a);
int cmd_extend(const struct args *a);
int cmd_release(const struct args *a);
int cmd_info(const struct args *a);
int cmd_queue(const struct args *a);
int cmd_ls(const struct args *a);
int cmd_watch(const struct args *a);
int cmd_wait(const struct args *a);
int cmd_top(const struct args *a);
int cmd_metrics(const struct args *a);
int cmd_force_unlock(const struct args *a);
int cmd_doctor(const struct args *a);
int cmd_acl(const struct args *a);
int cmd_completion(const struct args *a);
int cmd_local(const struct args *a);
int cmd_version(const struct args *a);
int cmd_help(const struct args *a);

/* In cmd_slots.c, cmd_sem.c, cmd_latch.c: the verbs of subverbs.c. */
int slots_set(const struct args *a);
int slots_info(const struct args *a);
int sem_set(const struct args *a);
int sem_add(const struct args *a);
int sem_acquire(const struct args *a);
int sem_release(const struct args *a);
int sem_drain(const struct args *a);
int sem_info(const struct args *a);
int latch_set(const struct args *a);
int latch_down(const struct args *a);
int latch_wait(const struct args *a);
int latch_info(const struct args *a);

/* In complete.c: what can come next on a command line, for shells. */
int complete_line(int argc, char **argv);

/* What --help shows: about one subcommand, or with NULL about all. */
int help_show(const struct command *cmd, const char *verb);

#endif
