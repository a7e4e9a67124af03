/* SPDX-License-Identifier: MIT
 *
 * orphan.h - a private server that nobody can reach any more.
 */
#ifndef DIBS_CLI_ORPHAN_H
#define DIBS_CLI_ORPHAN_H

#include <sys/types.h>

/* A server of ours that works in this folder, or did until the folder was
 * removed, though nothing answers on its socket. One that serves nobody is
 * ended. The id of one that does; 0 = there is none. */
pid_t orphan_busy(const char *dir, const char *socket);

#endif
