/* SPDX-License-Identifier: MIT
 *
 * private_server_orphan.h - a private server that cannot be reached any more.
 */
#ifndef DIBS_CLI_SERVER_PRIVATE_SERVER_ORPHAN_H
#define DIBS_CLI_SERVER_PRIVATE_SERVER_ORPHAN_H

#include <sys/types.h>

/* Looks for a server of ours whose working directory is this folder, also if
 * the folder was removed. If no client is connected to it, it is ended. Returns
 * its process id if there are clients; otherwise 0. */
pid_t orphan_busy(const char *dir, const char *socket);

#endif
